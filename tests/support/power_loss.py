"""Lose what was not flushed: at every call that changes a file, and after the end of a command.

POSIX promises the names of a folder once the folder was flushed, and the content of a file once the
file was. :class:`Disk` knows both at any moment, by the calls of ``os.fsync``, and makes what a
power cut may leave: with unflushed names and contents dropped, or with the names and without the
contents. From each the command is run again, as :mod:`crash_points` does after a kill; and what a
command has reported must be there though nothing more is flushed.

Not tried: an order of names within one folder other than that of the calls, torn sectors, and what
SQLite writes: it flushes by itself, so its files are taken as they are.
``python tests/support/power_loss.py [CASE] [--every K]``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from crash_points import Case, Copies, Found, child, prepared, recorded
from folder_trees import differences, digest, tree

from cad.base.transactions import is_ours

CASES = (
    "import, new patients",
    "import, pseudonyms",
    "train",
    "predict",
    "suggest",
    "cohort remove",
    "cohort remove --node",
    "serve",
    "reading",
    "reading --collect",
    "report --dicom",
    "report --fhir",
)
END = "after the end"
_OWN = ".sqlite"


class Disk:
    """Hold the files and names of a folder that would survive a loss of power.

    A file is known by its inode. So the folder must lie on a file system that gives no inode twice,
    such as tmpfs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: dict[int, dict[str, tuple[int, int]]] = {}
        self.data: dict[int, bytes] = {}
        for place, _, files in os.walk(root):
            self._flush_names(place)
            for name in files:
                self._flush_data(os.path.join(place, name))

    def fsync(self, handle: int) -> None:
        """Stand in for ``os.fsync``."""
        path = f"/proc/self/fd/{handle}"
        if not os.path.realpath(path).startswith(os.path.realpath(self.root)):
            return
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            self._flush_names(path)
        else:
            self._flush_data(path)

    def _flush_names(self, place: str) -> None:
        with os.scandir(place) as entries:
            found = {e.name: (e.inode(), e.stat(follow_symlinks=False).st_mode) for e in entries}
        self.names[os.stat(place).st_ino] = found

    def _flush_data(self, path: str) -> None:
        if os.path.isfile(path):
            with open(path, "rb") as stream:
                self.data[os.stat(path).st_ino] = stream.read()

    def leave(self, target: Path, *, names: bool) -> None:
        """Write what a power cut leaves; with all names, or with the flushed ones only."""
        self._leave(self.root.stat().st_ino, self.root, target, names=names)

    @staticmethod
    def _names(place: Path, pattern: str = "*") -> dict[str, tuple[int, int]]:
        return {p.name: (p.lstat().st_ino, p.lstat().st_mode) for p in place.glob(pattern)}

    def _leave(self, inode: int, now: Path, target: Path, *, names: bool) -> None:
        target.mkdir()
        entries = self.names.get(inode, {})
        if names and now.is_dir():
            entries = self._names(now)
        elif now.is_dir():
            entries = {**entries, **self._names(now, f"*{_OWN}*")}
        for name, (inner, mode) in entries.items():
            if stat.S_ISDIR(mode):
                self._leave(inner, now / name, target / name, names=names)
            elif stat.S_ISREG(mode) and _OWN in name and (now / name).is_file():
                shutil.copyfile(now / name, target / name)
            elif stat.S_ISREG(mode):
                (target / name).write_bytes(self.data.get(inner, b""))
            elif stat.S_ISLNK(mode):
                (target / name).symlink_to(os.readlink(now / name))
                continue
            (target / name).chmod(stat.S_IMODE(mode))


class Cuts(Copies):
    """Keep what a power cut leaves at every k-th call, instead of what a kill leaves."""

    disk: Disk | None = None

    def __call__(self, number: int, event: str, path: str, flags: int) -> None:
        """Be called before a call that changes something."""
        if self.disk is None:  # nothing has changed yet
            self.disk = Disk(self.root)
            os.fsync = self.disk.fsync
        for kind in ("names and contents", "contents"):
            if self._chosen(f"{kind} dropped before call {number} ({event})"):
                self.disk.leave(self.states / self.points[-1], names=kind == "contents")

    def look(self) -> None:
        """Look at nothing that grows."""

    def end(self) -> None:
        """Keep what was reported and flushed."""
        if self.disk is not None:
            self.points.append(END)
            self.disk.leave(self.states / END, names=False)


def tried(case: Case, work: Path, every: int, offset: int) -> Found:
    """Run a case again from what every k-th power cut leaves, and compare; then look at its end."""
    begin = time.monotonic()
    here, states = work / "here", work / "states"
    fresh = prepared(case, work)
    states.mkdir()
    cuts = Cuts(here, states, every, offset)
    expected = recorded(case, work, fresh, cuts)
    found, seen = Found(case.name, len(cuts.points)), set[str]()
    for name in cuts.points:
        if not (states / name).exists():
            continue
        found.tried += 1
        left = digest(states / name, times=False)  # every file is made anew: its time says nothing
        if left in seen and name != END:  # between two flushes nothing reaches the disk
            continue
        seen.add(left)
        if name == END:
            code, said = 0, differences(expected, tree(states / name))
            said = [one for one in said if not any(map(is_ours, Path(one.split(" ")[-1]).parts))]
        else:
            fresh(states / name)
            code = child(case.command, work / "output")
            said = differences(expected, tree(here))
        if code or said:
            found.lost.append(f"{name}: exit {code}, {said[:6]}")
    found.different = len(seen)
    found.seconds = round(time.monotonic() - begin, 1)
    return found


def main() -> None:
    """Try the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import crash_cases

    crash_cases.flush = lambda: os.fsync  # the disk's own is put there at the first change
    results = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    with tempfile.TemporaryDirectory(prefix="power-", dir="/dev/shm") as folder:
        cases = crash_cases.cases(Path(folder))
        for name in arguments.cases or CASES:
            work = Path(folder) / "work"
            found = tried(cases[name], work, arguments.every, arguments.offset)
            os.chdir(folder)
            shutil.rmtree(work)
            print(json.dumps(asdict(found)), file=results, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
