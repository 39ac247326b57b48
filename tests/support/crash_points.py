"""Kill a command before every call that changes a file, run it again, compare the trees.

``python tests/support/crash_points.py [CASE ...] [--every K] [--offset J]`` prints one JSON line a
case; with ``--pairs N`` it starts two of each command at once instead.

A case is run once undisturbed; then, for every n, a child forked from this warm process runs it and
kills itself (SIGKILL) before the n-th call, and another child runs it to its end. What lies in the
folder then, names, modes and bytes, hidden files too, must be what the undisturbed run left.

Calls are seen by the interpreter's audit events: opening for writing, rename, mkdir, unlink, rmdir,
link, symlink, truncate, chmod, chown, utime. At every opening for writing a second child dies in
the middle of the content instead, by a limit of a few bytes on the size of files. Studies are
measured in the same process, so that their files are seen too; the deaths of real workers and of
drivers with workers are in ``tests/batch/test_faults.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Tree = dict[str, tuple[int, bytes]]
# Where an event's arguments hold the paths, and where the folders that these are relative to.
CHANGES = {
    "os.rename": ((0, 2), (1, 3)),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TORN = 16  # bytes of a file that arrive before the process dies


@dataclass(frozen=True)
class Case:
    """Name a command, and what lies in the folder before."""

    name: str
    command: Callable[[], object]
    prepare: Callable[[], object]
    other: Callable[[], object] | None = None  # what runs at the same time, if not the same


@dataclass
class Found:
    """Hold what became of a case's crash points: after which a result is lost, or rubbish stays."""

    case: str
    points: int = 0
    tried: int = 0
    lost: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Watch:
    """Count the calls that change something under a folder, and die before one of them."""

    def __init__(self, root: Path, die_at: int = -1, torn: bool = False) -> None:
        self.root, self.die_at, self.torn = os.path.realpath(root), die_at, torn
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an audit event."""
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITES:
                return
            places = [(path, -1)]
        elif event in CHANGES:
            places = [
                (arguments[path], -1 if folder is None else arguments[folder])
                for path, folder in CHANGES[event]
            ]
        else:
            return
        if any(self._inside(*place) for place in places):
            self._count(event)

    def _inside(self, path: object, folder: int) -> bool:
        if isinstance(path, int):
            path, folder = os.readlink(f"/proc/self/fd/{path}"), -1
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        text = os.fsdecode(path)
        if folder >= 0 and not os.path.isabs(text):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
        return os.path.abspath(text).startswith(self.root + os.sep)

    def _count(self, event: str) -> None:
        self.seen.append(event)
        if len(self.seen) - 1 != self.die_at:
            return
        if self.torn:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_TORN, _TORN))
        else:
            os.kill(os.getpid(), signal.SIGKILL)


def child(command: Callable[[], object], watch: Watch, seen: Path | None = None) -> int:
    """Run a command in a fork; return its wait status."""
    return os.waitpid(start(command, watch, seen), 0)[1]


def start(command: Callable[[], object], watch: Watch, seen: Path | None = None) -> int:
    """Start a command in a fork; its output goes to a file beside the folder."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        quiet = os.open(watch.root + ".output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        sys.addaudithook(watch)
        code = int(command() or 0)  # type: ignore[call-overload]
        if seen is not None:
            seen.write_text(json.dumps(watch.seen))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


_MOMENT = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\+00:00| UTC)?")
_TIMINGS = re.compile(rb"(&#34;|\")timings(&#34;|\"): \{[^}]*\}|<summary>timings.*?</pre>", re.S)


def tree(root: Path) -> Tree:
    """Return name, mode and content of everything in a folder; what tells the time is taken out."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        name, mode = str(path.relative_to(root)), path.lstat().st_mode
        content = b"" if path.is_dir() else _timeless(path)
        found[name] = (mode, content)
    return found


def _timeless(path: Path) -> bytes:
    content = path.read_bytes()
    if path.name == "log.jsonl":  # what was done and when: it differs as the runs do
        return b""
    if path.name == "resume.jsonl":  # one line a study; sizes and times of files are in it
        lines = [json.loads(line) for line in content.splitlines()]
        kept = {n["study"]: [n["status"], n["key"], n["failures"]] for n in lines}
        return json.dumps(kept, sort_keys=True).encode()
    if path.name == "run.json":
        record = json.loads(content)
        for key in ("created", "timings"):
            record.pop(key)
        record["studies"] = [[s["study_id"], s["status"] == "failed"] for s in record["studies"]]
        return json.dumps(record, sort_keys=True).encode()
    if path.suffix in (".html", ".md"):
        return _TIMINGS.sub(b"", _MOMENT.sub(b"", content))
    if path.suffix == ".dcm":
        return _objects(content)
    return content


def _objects(content: bytes) -> bytes:
    """Return a DICOM object as text without its own time, and the UID that highdicom draws anew."""
    from io import BytesIO

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


def prepared(case: Case, work: Path) -> Callable[[], None]:
    """Go to a new folder ``here``; return what makes it again as the case starts from it."""
    before, here = work / "before", work / "here"
    here.mkdir(parents=True)
    os.chdir(here)
    case.prepare()
    shutil.copytree(here, before, symlinks=True)

    def fresh() -> None:
        os.chdir(work)
        shutil.rmtree(here)
        shutil.copytree(before, here, symlinks=True)
        os.chdir(here)

    return fresh


def two_at_once(case: Case, work: Path, tries: int) -> Found:
    """Start two commands on one folder within a moment of each other, many times.

    Each ends well or refuses (exit code 2); what was refused is run again. Nothing may be lost.
    """
    begin = os.times()
    found = Found(case.name)
    here = work / "here"
    fresh = prepared(case, work)
    pair = (case.command, case.other or case.command)
    expected = []
    for order in (pair, pair[::-1]):
        fresh()
        clock = time.monotonic()
        if any(child(command, Watch(here)) for command in order):
            raise RuntimeError(f"{case.name}: {Path(str(here) + '.output').read_text()}")
        whole = (time.monotonic() - clock) / 2
        expected.append(tree(here))
    moments = random.Random(5)
    for _ in range(tries):
        fresh()
        running = []
        for command in pair:
            running.append((start(command, Watch(here)), command))
            time.sleep(moments.uniform(0, 0.7 * whole) if len(running) == 1 else 0)
        ends = [(os.waitpid(pid, 0)[1] >> 8, command) for pid, command in running]
        found.tried += 1
        found.points += any(code == 2 for code, _ in ends)
        again = [child(command, Watch(here)) for code, command in ends if code]
        codes = [code for code, _ in ends]
        said = min((differences(one, tree(here)) for one in expected), key=len)
        if said or any(again) or set(codes) - {0, 2} or 0 not in codes:
            found.lost.append(f"exit {codes}, then {again}: {said[:6]}")
    end = os.times()
    found.seconds = round(sum(end[:4]) - sum(begin[:4]), 1)
    return found


def enumerate_points(case: Case, work: Path, every: int, offset: int) -> Found:
    """Kill a case at every k-th point, run it again and compare."""
    begin = os.times()
    found = Found(case.name)
    here = work / "here"
    fresh = prepared(case, work)
    if case.command():  # what is imported and compiled on first use is so in every child
        raise RuntimeError(f"{case.name} failed")
    fresh()
    report = work / "seen.json"
    status = child(case.command, Watch(here), report)
    if status:
        raise RuntimeError(f"{case.name}: {status}: {Path(str(here) + '.output').read_text()}")
    expected = tree(here)
    fresh()
    child(case.command, Watch(here))
    if said := differences(expected, tree(here)):
        raise RuntimeError(f"{case.name}: two undisturbed runs differ: {said}")
    seen = json.loads(report.read_text())
    points = [(n, torn) for n, e in enumerate(seen) for torn in (False, True)[: 1 + (e == "open")]]
    found.points = len(points)
    for n, torn in points[offset % every :: every]:
        fresh()
        status = child(case.command, Watch(here, n, torn))
        if not os.WIFSIGNALED(status):
            if torn:  # nothing was written to that file beyond the limit
                found.points -= 1
                continue
            raise RuntimeError(f"{case.name}: not killed at {n} ({seen[n]}): {status}")
        found.tried += 1
        status = child(case.command, Watch(here))
        said = differences(expected, tree(here))
        if status or said:
            word = "in the middle of" if torn else "before"
            only = not status and all(one.startswith("left over") for one in said)
            kind = found.leftovers if only else found.lost
            kind.append(f"{word} call {n} ({seen[n]}): exit {status >> 8}, {said[:6]}")
    end = os.times()
    found.seconds = round(sum(end[:4]) - sum(begin[:4]), 1)
    return found


def main() -> None:
    """Run the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--pairs", type=int, help="so often start two of each at once instead")
    arguments = parser.parse_args()
    import crash_cases

    results = os.fdopen(os.dup(1), "w")  # what commands print is not for here
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        cases = crash_cases.cases(Path(folder))
        for name, case in cases.items():
            if arguments.cases and name not in arguments.cases:
                continue
            work = Path(folder) / "work"
            if arguments.pairs:
                found = two_at_once(case, work, arguments.pairs)
            elif case.other is None:
                found = enumerate_points(case, work, arguments.every, arguments.offset)
            else:
                continue
            os.chdir(folder)
            shutil.rmtree(work)
            print(json.dumps(asdict(found)), file=results, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
