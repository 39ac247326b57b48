"""Forged exports of readers: each is refused in words, or is what a page could have written."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from folder_trees import differences, tree
from reading_cases import export, make_cohort, outline, square

from cad.base.errors import CadError
from cad.hospital.reader_study.exports import collect_reading
from cad.hospital.reader_study.study import ReadingSettings, write_reading

ODD: list[Any] = [
    "3,5",
    "",
    " ",
    "\ud800",
    "４",
    "4\n",
    "=1+1",
    None,
    True,
    False,
    [],
    {},
    [[[]]],
    {"a": 1},
    -1,
    0,
    6,
    2**70,
    1e300,
    -0.0,
    3.5,
    float("nan"),
    float("inf"),
    "NaN",
    "sub-0001",
    "../../x",
    "x" * 70000,
    "\x00",
    "\u2028",
    "a\tb",
    "k1",
]


def seal(content: Any, end: bytes = b"\n") -> bytes:
    line = json.dumps(content, separators=(",", ":")).encode()
    return line + end + b'{"crc32":"%08x"}' % zlib.crc32(line) + end


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(content, list):
        content = dict(enumerate(content))
    for key, value in content.items() if isinstance(content, dict) else ():
        yield from places(value, (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.deepcopy(content)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


Write = Callable[[Path], object]


def forgeries(
    content: dict[str, Any], count: int
) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Yield a name and what writes the forgery; the kinds first, then values put anywhere."""
    whole = seal(content)
    line = whole.split(b"\n")[0]
    deep = b"[" * 200_000

    def of(what: bytes) -> Write:
        return lambda path: path.write_bytes(what)

    yield "a named pipe", os.mkfifo
    yield "a device without end", lambda path: path.symlink_to("/dev/zero")
    yield "a folder", Path.mkdir
    yield "a loop", lambda path: path.symlink_to(path)
    for name, what in {
        "nothing": b"",
        "one line": line,
        "cut": whole[:-9],
        "twice": whole + whole,
        "BOM": b"\xef\xbb\xbf" + whole,
        "UTF-16": whole.decode().encode("utf-16"),
        "CRLF": seal(content, b"\r\n"),
        "deep": deep,
        "bytes": os.urandom(500),
        "deep and sealed": deep + b"\n" + b'{"crc32":"%08x"}\n' % zlib.crc32(deep),
        "proof is a list": line + b"\n[]\n",
        "proof is null": line + b"\nnull\n",
        "a list": seal([content]),
        "null": seal(None),
        "text": seal("text"),
        "a third line": whole + b"{}\n",
        "blank lines": whole + b"\n\n",
        "large": b" " * 40_000_000,
    }.items():
        yield name, of(what)
    chance = random.Random(4)
    where = list(places(content))
    for number in range(count - 22):
        path, value = chance.choice(where), chance.choice(ODD)
        yield f"{number}: {path} = {value!r:.40}", of(seal(changed(content, path, value)))


def escapes(folder: Path, count: int) -> list[str]:
    """Collect every forgery; the names of those that were neither refused nor sound."""
    cohort, study = make_cohort(folder / "cohort", 2), folder / "study"
    write_reading(cohort, study, ReadingSettings(("r1", "r2"), outlines=True))
    drawn = outline(cohort, study, square())
    path = export(study, "r1", outlines=[drawn])
    content = json.loads(path.read_bytes().split(b"\n")[0])
    before, found = tree(cohort), []
    sound = folder / "sound"
    shutil.copytree(cohort, sound)
    for name, write in forgeries(content, count):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        write(path)
        try:
            collect_reading(cohort, study, [path])
        except CadError as error:
            if differences(before, tree(cohort)) or not error.file:
                found.append(f"{name}: refused, and changed something or names no file")
            continue
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
            continue
        (study / "readings.tsv").unlink()
        shutil.rmtree(cohort)
        shutil.copytree(sound, cohort)
    return found


@pytest.mark.timeout(120)
def test_a_forged_export_is_refused_in_words(tmp_path):
    assert escapes(tmp_path, 60) == []


@pytest.mark.fuzz
@pytest.mark.timeout(900)
def test_five_hundred_forged_exports_are_refused_in_words(tmp_path):
    assert escapes(tmp_path, 500) == []
