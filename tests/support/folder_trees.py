"""Trees of a folder, without what tells the time: copied, read, compared."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from functools import lru_cache
from io import BytesIO
from pathlib import Path

Tree = dict[str, tuple[int, bytes]]


def copy(root: Path, into: Path) -> None:
    """Copy a folder; files that are one under several names stay one."""
    known: dict[int, str] = {}

    def one(source: str, target: str) -> str:
        number = os.lstat(source).st_ino
        if number in known:
            os.link(known[number], target, follow_symlinks=False)
        else:
            known[number] = target
            shutil.copy2(source, target, follow_symlinks=False)
        return target

    shutil.copytree(root, into, symlinks=True, copy_function=one)


def digest(root: Path, *, times: bool) -> str:
    """Return a hash of everything in a folder that a command may see there.

    ``times`` says whether those of files are seen, too: what is equal has one outcome.
    """
    made, known = hashlib.sha256(), dict[int, int]()
    for number, path in enumerate(sorted(root.rglob("*"))):
        status = path.lstat()
        twin = known.setdefault(status.st_ino, number)  # names of one file
        moment = status.st_mtime_ns if times and path.is_file() else 0
        made.update(repr((str(path.relative_to(root)), status.st_mode, twin, moment)).encode())
        if path.is_symlink():
            made.update(os.readlink(path).encode())
        elif path.is_file():
            made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()


_MOMENT = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\+00:00| UTC)?")
_TIMINGS = re.compile(rb"(&#34;|\")timings(&#34;|\"): \{[^}]*\}|<summary>timings.*?</pre>", re.S)


def tree(root: Path) -> Tree:
    """Return name, mode and content of everything in a folder; what tells the time is taken out."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        if path.name.endswith((".sqlite-wal", ".sqlite-shm")):  # the database's own
            continue
        name, mode = str(path.relative_to(root)), path.lstat().st_mode
        if path.is_symlink():
            content = os.readlink(path).encode()
        else:
            content = b"" if path.is_dir() else _content(path)
        found[name] = (mode, content)
    return found


def _content(path: Path) -> bytes:
    # SQLite has written into two files.
    return _queue(path) if path.suffix == ".sqlite" else _timeless(path, path.read_bytes())


@lru_cache(maxsize=512)
def _timeless(path: Path, content: bytes) -> bytes:
    """Return a file's content without times; most files are the same after every crash."""
    if path.name == "log.jsonl":  # what was done and when: it differs as the runs do
        return b""
    if path.name == "resume.jsonl":  # one line a study; sizes and times of files are in it
        lines = [json.loads(line) for line in content.splitlines()]
        # Whether this run measured a study or found it differs, as in run.json.
        kept = {n["study"]: [n["status"] == "failed", n["key"], n["failures"]] for n in lines}
        return json.dumps(kept, sort_keys=True).encode()
    if path.name == "audit.jsonl":  # a line may be there twice after a kill, never missing
        lines = [json.loads(line)["entry"] for line in content.splitlines()]
        return json.dumps(sorted({json.dumps(line, sort_keys=True) for line in lines})).encode()
    if path.name == "run.json":
        record = json.loads(content)
        for key in ("created", "timings"):
            record.pop(key)
        record["studies"] = [[s["study_id"], s["status"] == "failed"] for s in record["studies"]]
        return json.dumps(record, sort_keys=True).encode()
    if path.name == "acknowledged.csv":
        return _MOMENT.sub(b"", content)
    if path.suffix in (".html", ".md"):
        return _TIMINGS.sub(b"", _MOMENT.sub(b"", content))
    if path.suffix == ".dcm":
        return _objects(content)
    return content


def _queue(path: Path) -> bytes:
    """Return which studies and instances a node's queue has."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        studies = database.execute("SELECT key, state, sender FROM study ORDER BY 1").fetchall()
        kept = database.execute(
            "SELECT key, study, kind, digest FROM instance ORDER BY 1"
        ).fetchall()
    return repr((studies, kept)).encode()


def _objects(content: bytes) -> bytes:
    """Return a DICOM object as text without its own time, and the UID that highdicom draws anew."""
    import pydicom

    try:
        dataset = pydicom.dcmread(BytesIO(content))
    except pydicom.errors.InvalidDicomError:  # torn
        return content
    text = str(dataset) + str(dataset.file_meta)
    return re.sub(r"\n[^\n]*( (DA|TM|DT): |\(0020,9164\))[^\n]*", "", text).encode()


def differences(one: Tree, other: Tree) -> list[str]:
    """Say in what two trees differ."""
    said = [f"missing {name}" for name in one if name not in other]
    said += [f"left over {name}" for name in other if name not in one]
    said += [f"changed {n}" for n in one if n in other and one[n] != other[n]]
    return said
