"""Cut a command off before every call that changes a file, run it again, compare the trees.

``python tests/support/crash_points.py [CASE ...] [--every K] [--offset J]`` prints one JSON line a
case; with ``--pairs N`` it starts two of each command at once instead.

A case is run undisturbed, in a child forked from this warm process, which copies the folder before
every such call: this is what SIGKILL would leave there, to the byte (``test_crash_points.py`` kills
and compares). From every copy another child runs the command to its end. What lies in the folder
then, names, modes and bytes, hidden files too, must be what the undisturbed run left.

Calls are seen by the interpreter's audit events: opening for writing, rename, mkdir, unlink, rmdir,
link, symlink, truncate, chmod, chown, utime. Every opening for writing is a second point, where a
few bytes of the content have arrived. Studies are measured in the same process, so that their files
are seen too; the deaths of real workers and of drivers with workers are in
``tests/run/batch/test_faults.py``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
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

from folder_trees import Tree, copy, differences, digest, tree

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
_TORN = 16  # bytes that have arrived when the process dies in the middle of a file


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
    different: int = 0  # of the states that were tried; equal ones have one outcome
    lost: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Watch:
    """Call ``before`` with number, event, path and flags of every call that changes something."""

    def __init__(
        self, root: Path, before: Callable[[int, str, str, int], None] | None = None
    ) -> None:
        self.root, self.before = os.path.realpath(root), before
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an audit event."""
        flags = 0
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
        paths = [place for place in (_absolute(*one) for one in places) if self._inside(place)]
        if paths:
            self.seen.append(event)
            if self.before:
                self.before(len(self.seen) - 1, event, paths[0], flags)

    def _inside(self, path: str) -> bool:
        return path.startswith(self.root + os.sep)


def _absolute(path: object, folder: int) -> str:
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    if not isinstance(path, (str, bytes, os.PathLike)):
        return ""
    text = os.fsdecode(path)
    if folder >= 0 and not os.path.isabs(text):
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    return os.path.abspath(text)


class Copies:
    """Keep what lies in a folder at every k-th point: a folder each in ``states``."""

    def __init__(self, root: Path, states: Path, every: int, offset: int) -> None:
        self.root, self.states, self.every, self.offset = root, states, every, offset
        self.points: list[str] = []
        self.growing: dict[str, tuple[str, int, bool]] = {}

    def __call__(self, number: int, event: str, path: str, flags: int) -> None:
        """Be called before a call."""
        self.look()
        if self._chosen(f"before call {number} ({event})"):
            copy(self.root, self.states / self.points[-1])
        if event == "open":
            torn = self._chosen(f"in the middle of call {number} ({event})")
            before = 0 if flags & (os.O_TRUNC | os.O_EXCL) else _size(path)
            self.growing[self.points[-1]] = path, before, torn

    def _chosen(self, name: str) -> bool:
        self.points.append(name)
        return (len(self.points) - 1 - self.offset) % self.every == 0

    def look(self) -> None:
        """Keep the folder with a file cut that has grown since the last call."""
        for name, (path, before, torn) in list(self.growing.items()):
            if _size(path) > before + _TORN:
                del self.growing[name]
                if torn:
                    copy(self.root, self.states / name)
                    cut = self.states / name / os.path.relpath(path, self.root)
                    os.truncate(cut, before + _TORN)

    def end(self) -> None:
        """Forget the points where too little was written to be cut."""
        self.look()
        self.points = [name for name in self.points if name not in self.growing]


class Death:
    """Die before a call, or in the middle of the content of what it opens."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, number: int, event: str, path: str, flags: int) -> None:
        if self.name == f"before call {number} ({event})":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.name == f"in the middle of call {number} ({event})":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            anew = flags & (os.O_TRUNC | os.O_EXCL) or not os.path.exists(path)
            limit = 16 + (0 if anew else os.path.getsize(path))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def child(command: Callable[[], object], output: Path, watch: Watch | None = None) -> int:
    """Run a command in a fork; return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(start(command, output, watch), 0)[1])


def start(command: Callable[[], object], output: Path, watch: Watch | None = None) -> int:
    """Start a command in a fork; what it prints goes to a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    gc.freeze()  # a collection would copy every page that is shared with the parent
    try:
        quiet = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if watch is not None:
            sys.addaudithook(watch)
        code = int(command() or 0)  # type: ignore[call-overload]
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def prepared(case: Case, work: Path) -> Callable[[Path], None]:
    """Go to a new folder ``here``; return what fills it anew, by default as the case starts."""
    before, here = work / "before", work / "here"
    here.mkdir(parents=True)
    os.chdir(here)
    case.prepare()
    copy(here, before)

    def fresh(state: Path | None = None) -> None:
        os.chdir(work)
        shutil.rmtree(here)
        if state is None:
            copy(before, here)
        else:
            state.rename(here)
        os.chdir(here)

    return fresh


def two_at_once(case: Case, work: Path, tries: int) -> Found:
    """Start two commands on one folder within a moment of each other, many times.

    Each ends well or refuses (exit code 2); what was refused is run again. Nothing may be lost. On
    a busy machine a short command may never meet the other: then more tries follow, within less
    time of each other.
    """
    begin = os.times()
    found = Found(case.name)
    here, output = work / "here", work / "output"
    fresh = prepared(case, work)
    pair = (case.command, case.other or case.command)
    if case.command():  # imports of the first use would be most of a short command
        raise RuntimeError(f"{case.name} failed")
    expected = []
    for order in (pair, pair[::-1])[: 1 if case.other is None else 2]:
        fresh()
        clock = time.monotonic()
        if any(child(command, output) for command in order):
            raise RuntimeError(f"{case.name}: {output.read_text()}")
        whole = (time.monotonic() - clock) / 2
        expected.append(tree(here))
    moments = random.Random(5)
    latest = 0.7 * whole
    while found.tried < tries or (not found.points and found.tried < 10 * tries):
        if found.tried and found.tried % tries == 0:
            latest /= 2
        fresh()
        running = []
        for command in pair:
            running.append((start(command, output), command))
            time.sleep(moments.uniform(0, latest) if len(running) == 1 else 0)
        ends = [(os.waitpid(pid, 0)[1] >> 8, command) for pid, command in running]
        found.tried += 1
        found.points += any(code == 2 for code, _ in ends)
        again = [child(command, output) for code, command in ends if code]
        codes = [code for code, _ in ends]
        said = min((differences(one, tree(here)) for one in expected), key=len)
        if said or any(again) or set(codes) - {0, 2} or 0 not in codes:
            found.lost.append(f"exit {codes}, then {again}: {said[:6]}")
    end = os.times()
    found.seconds = round(sum(end[:4]) - sum(begin[:4]), 1)
    return found


def recorded(case: Case, work: Path, fresh: Callable[..., None], copies: Copies) -> Tree:
    """Run a case undisturbed, three times; return what it leaves; ``copies`` has the points."""
    here, output = work / "here", work / "output"

    def command() -> object:
        code = case.command()
        copies.end()
        (work / "points.json").write_text(json.dumps(copies.points))
        return code

    if case.command():  # what is imported and compiled on first use is so in every child
        raise RuntimeError(f"{case.name} failed")
    left = []
    for run, watch in ((case.command, None), (command, Watch(here, copies))):
        fresh()
        if code := child(run, output, watch):
            raise RuntimeError(f"{case.name}: {code}: {output.read_text()}")
        left.append(tree(here))
    if said := differences(*left):
        raise RuntimeError(f"{case.name}: two undisturbed runs differ: {said}")
    copies.points = json.loads((work / "points.json").read_text())
    return left[0]


def enumerate_points(case: Case, work: Path, every: int, offset: int) -> Found:
    """Run a case to its end from what lay in the folder at every k-th point, and compare."""
    begin = os.times()
    here, states = work / "here", work / "states"
    fresh = prepared(case, work)
    copies = Copies(here, states, every, offset)
    expected = recorded(case, work, fresh, copies)
    found, seen = Found(case.name, len(copies.points)), set[str]()
    for name in copies.points:
        if not (states / name).exists():  # not one of every k
            continue
        found.tried += 1
        left = digest(states / name, times=True)
        if left in seen:
            continue
        seen.add(left)
        fresh(states / name)
        code = child(case.command, work / "output")
        said = differences(expected, tree(here))
        if code or said:
            only = not code and all(one.startswith("left over") for one in said)
            kind = found.leftovers if only else found.lost
            kind.append(f"{name}: exit {code}, {said[:6]}")
    end = os.times()
    found.different = len(seen)
    found.seconds = round(sum(end[:4]) - sum(begin[:4]), 1)
    return found


def _in_memory() -> str | None:
    """Return a file system without a disk, where there is one with a gigabyte to spare."""
    memory = Path("/dev/shm")  # noqa: S108 - a new folder is made in it
    usable = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
    return str(memory) if usable else None


def main() -> None:
    """Run the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--pairs", type=int, help="so often start two of each at once instead")
    arguments = parser.parse_args()
    # Before numpy is imported: a second thread of linear algebra spins and has nothing to do.
    os.environ["OMP_NUM_THREADS"] = "1"
    import crash_cases

    results = os.fdopen(os.dup(1), "w")  # what commands print is not for here
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    with tempfile.TemporaryDirectory(prefix="crash-", dir=_in_memory()) as folder:
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
