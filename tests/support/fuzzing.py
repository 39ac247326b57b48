"""Damage for files of every kind, with a meaning and by bytes, and a judge of its outcome."""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import json
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cad.base.errors import CadError
from cad.cli import main

SECONDS = 10.0
DEPTHS = (3, 90, 300, 990, 20_000)

ODD_TEXTS = (
    "",
    " ",
    "n/a",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e999",
    "9" * 400,
    "1_000",
    "1,5",
    "0x10",
    "٣",
    "true",
    "null",
    "=1+1",
    "@SUM(A1)",
    "a\tb",
    'a"b',
    "a\rb",
    "\x1b[31m",
    "\x00",
    "\u202e",
    "😀",
    "../../x",
    "sub-0001",
    "sub-",
    "ses-01",
    "x" * 200_000,
    "likert5",
    "percent",
    "1;2",
    "r1=3",
    "{}",
    "[]",
    "%s%n",
    "NA",
    "None",
    "2.5",
    "1e308",
)


ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    0.5,
    1e308,
    -1e308,
    1e-320,
    float("nan"),
    float("inf"),
    2**63,
    10**400,
    "",
    "n/a",
    "1",
    "x" * 100_000,
    "\x1b[31m\x00",
    [],
    {},
    [None],
    [[]],
    {"": None},
    [0],
    [1, 2],
    ["a"],
    {"a": {}},
    "malignant",
    [1e400, "nan"],
    -(2**31),
    "\ud800",
)


class Late(BaseException):
    """No exception that a parser's wrapper could take for its own."""


@contextlib.contextmanager
def bounded_time(seconds: float) -> Iterator[None]:
    """So many seconds of processor time."""

    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fault(read: Callable[[], object], seconds: float = SECONDS) -> str:
    """Return a fault that a user must never see: a foreign traceback's place, or a long wait."""
    start = time.process_time()
    try:
        with warnings.catch_warnings(), bounded_time(seconds):
            warnings.simplefilter("ignore")  # damaged files make libraries talk
            read()
    except CadError as error:
        str(error).encode()
    except Late:
        return f"longer than {seconds:g} s\n{traceback.format_exc(limit=-6)}"
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/cad/" in f.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return f"{type(error).__name__} at {place}\n{traceback.format_exc(limit=-8)}"
    if time.process_time() - start > seconds:
        return f"longer than {seconds:g} s"
    return ""


# --- by bytes ------------------------------------------------------------------------------------


def odd_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flipped, cut, repeated, truncated, emptied, in another encoding."""
    kind = rng.randrange(8)
    at = rng.randrange(len(content) or 1)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return b""
    if kind == 2:
        return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"PK\x03\x04")) + content
    if kind == 3:
        text = content.decode("utf-8", "replace")
        return text.encode(rng.choice(("utf-16", "utf-32", "utf-7")), "replace")
    if kind == 4:
        length = rng.randrange(1, 64)
        return content[:at] + content[at : at + length] * 50 + content[at:]
    if kind == 5:
        token = rng.choice((b"\x00" * 16, b"\xff" * 16, b"[" * 5000, b'{"a":' * 5000, b"- " * 3000))
        return content[:at] + token + content[at:]
    data = bytearray(content)
    for _ in range(rng.randrange(1, 6)):
        if data:
            data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    return bytes(data)


# --- values in a tree: JSON and YAML -------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:20]):
            yield from _places(item, (*path, index))


def nested(text: str) -> str:
    """Put deep nesting in the place of its marks: no writer could be made to write it."""
    for depth in DEPTHS:
        text = text.replace(f'"deep {depth}"', "[" * depth + "1" + "]" * depth)
    return text


def odd_tree(value: Any, rng: random.Random) -> Any:
    """Swap, remove, add or nest a few values anywhere in a tree."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randrange(1, 3)):
        *path, last = rng.choice([p for p in _places(value) if p] or [(0,)])
        inner = value
        try:
            for key in path:
                inner = inner[key]
            kind = rng.randrange(7)
            if kind == 0:
                del inner[last]
            elif kind == 1 and isinstance(inner, dict):
                inner[rng.choice(ODD_TEXTS)] = copy.deepcopy(inner[last])
            elif kind == 2:
                inner[last] = f"deep {rng.choice(DEPTHS)}"
            elif kind == 3:
                inner[last] = [inner[last]]
            elif kind == 4 and isinstance(inner[last], list):
                inner[last] = inner[last][:-1] or inner[last] * 2
            else:
                # A copy: what is put into a list of the table would be in the next tree, too.
                inner[last] = copy.deepcopy(rng.choice(ODD_VALUES))
        except (KeyError, IndexError, TypeError):
            return copy.deepcopy(rng.choice(ODD_VALUES))
    return value


def odd_json(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return odd_bytes(content, rng)
    if rng.random() < 0.03:
        return b'{"a":' * 50_000
    text = nested(json.dumps(odd_tree(json.loads(content), rng)))
    return text.encode("utf-8", "surrogatepass")


# --- tables --------------------------------------------------------------------------------------


def odd_table(content: bytes, rng: random.Random, separator: str) -> bytes:
    """Other cells, rows, columns, names, separators."""
    if rng.random() < 0.2:
        return odd_bytes(content, rng)
    rows = list(csv.reader(io.StringIO(content.decode()), delimiter=separator))
    for _ in range(rng.randrange(1, 3)):
        row = rng.choice(rows)
        column = rng.randrange(len(row) or 1)
        kind = rng.randrange(12)
        if kind == 0:
            rows.remove(row)
        elif kind == 1:
            rows.append(list(row))
        elif kind == 2:
            for other in rows:
                other[column : column + 1] = other[column : column + 1] * 2
        elif kind == 3:
            for other in rows:
                del other[column : column + 1]
        elif kind == 4:
            row.append(rng.choice(ODD_TEXTS))
        elif kind == 5:
            del row[column:]
        elif kind == 6:
            rows[1:] = []
        elif kind == 7:
            rng.shuffle(row)
        elif row:
            row[column] = rng.choice(ODD_TEXTS)
        if not rows:
            return b""
    if rng.random() < 0.03:
        separator = rng.choice((";", " ", "|"))
    return "\n".join(separator.join(row) for row in rows).encode() + b"\n"


# --- arrays --------------------------------------------------------------------------------------


def odd_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    kind = rng.randrange(9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == 0:
            return array.astype(str)
        if kind == 1:
            return array.ravel()[: array.size // 2]
        if kind == 2:
            return np.array(rng.choice(("", "{}", "nan", 7, float("nan"))))
        if kind == 3:
            return array[None]
        if kind == 4:
            return np.empty((0, *array.shape[1:]), array.dtype)
        if kind == 5 and array.dtype.kind in "fiu":
            return np.full(array.shape, rng.choice((np.nan, np.inf, 1e308, -1e308)))
        if kind == 6 and array.dtype.kind in "fiu":
            return array.astype(complex)
        if kind == 7 and array.dtype.kind in "fiu":
            return array.astype(bool)
    return array.T


def odd_npz(content: bytes, rng: random.Random) -> bytes:
    """Other arrays under the same names, missing ones, other JSON inside."""
    if rng.random() < 0.2:
        return odd_bytes(content, rng)
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    name = rng.choice(sorted(arrays))
    value = arrays[name]
    if rng.random() < 0.15:
        del arrays[name]
    elif value.ndim == 0 and value.dtype.kind == "U" and str(value)[:1] == "{":
        arrays[name] = np.array(json.dumps(odd_tree(json.loads(str(value)), rng)))
    else:
        arrays[name] = odd_array(value, rng)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def cad(*arguments: str) -> None:
    """Run one command in this process, as the program does."""
    before = sys.argv
    sys.argv = ["cad", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit as end:
        if end.code not in (0, 1, 2, None):
            raise
    finally:
        sys.argv = before
