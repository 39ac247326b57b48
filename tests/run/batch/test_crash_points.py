"""A kill before any call that changes a file costs nothing: ``tests/support/crash_points.py``.

Here every k-th point of some commands, and a few pairs. ``pytest -m faults`` tries every command at
more points, ``pytest -m slow`` at all.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import crash_points
import pytest
from crash_points import (
    Case,
    Copies,
    Death,
    Watch,
    child,
    enumerate_points,
    prepared,
    recorded,
)
from folder_trees import differences, tree

PROGRAM = Path(crash_points.__file__)
# Groups of about the same time, to be shared between processes.
GROUPS = {
    "train": ("train",),
    "run": ("run",),
    "extend": ("train --extend, over a model",),
    "predict": ("predict", "suggest"),
    "shadow": ("predict --shadow",),
    "watch": ("watch night",),
    "import": (
        "import, new patients",
        "import, pseudonyms",
        "import, zip",
        "import, archive",
        "report --dicom",
        "report --fhir",
        "experiment",
    ),
    "cohort": (
        "import, second study",
        "import, regions later",
        "simulate",
        "reading",
        "reading --collect",
        "cohort remove",
        "cohort remove --node",
        "serve",
    ),
}
EVERY = {
    "train": 4,
    "run": 4,
    "extend": 10,
    "predict": 6,
    "shadow": 15,
    "watch": 10,
    "import": 3,
    "cohort": 6,
}
"""Every k-th point of a group is tried with ``pytest -m faults``: some two hundred of each."""
PAIRS = 8
ALL = {name for names in GROUPS.values() for name in names}
# One of each way of writing; each is prepared and run as a whole for a second.
FEW = (
    "train",
    "predict",
    "import, second study",
    "reading --collect",
    "report --dicom",
    "cohort remove --node",
    "serve",
)
TWO_SOURCES = "import, two sources at once"


def results(*arguments: str) -> dict[str, dict]:
    """Run the program; return what it found, case by case."""
    program = [sys.executable, "-W", "ignore", str(PROGRAM), *arguments]
    said = subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found = {line["case"]: line for line in map(json.loads, said.stdout.splitlines())}
    for name, line in found.items():
        said = f"{line['tried']} of {line['points']}"
        print(f"{name}: {said}, {len(line['lost']) + len(line['leftovers'])} differ")
    return found


def require_whole(found: dict[str, dict]) -> None:
    wrong = {n: line["lost"] + line["leftovers"] for n, line in found.items()}
    assert {n: said for n, said in wrong.items() if said} == {}


def test_every_so_often_a_kill_costs_nothing():
    found = results(*FEW, "--every", "61", "--offset", "11")
    assert set(found) == set(FEW)
    assert sum(line["tried"] for line in found.values()) > 15
    require_whole(found)


def test_a_kill_at_any_point_of_acknowledging_costs_nothing():
    found = results("acknowledge")
    assert found["acknowledge"]["tried"] == found["acknowledge"]["points"] > 2
    require_whole(found)


def test_two_commands_at_once_lose_nothing():
    found = results(TWO_SOURCES, "--pairs", "6")
    assert found[TWO_SOURCES]["tried"] == 6
    require_whole(found)


@pytest.mark.faults
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("group", GROUPS)
def test_a_kill_at_many_points_costs_nothing(group):
    every = EVERY[group]
    found = results(*GROUPS[group], "--every", str(every))
    assert set(found) == set(GROUPS[group])
    for name, line in found.items():
        assert line["tried"] >= max(line["points"] // every, 1), name
        assert line["points"] > 5, name  # a list of suggestions is one file
    require_whole(found)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("group", GROUPS)
def test_a_kill_at_every_point_costs_nothing(group):
    found = results(*GROUPS[group])
    for line in found.values():
        assert line["tried"] == line["points"] > 5
    require_whole(found)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    "pairs",
    [pytest.param(PAIRS, marks=pytest.mark.faults), pytest.param(50, marks=pytest.mark.slow)],
)
def test_two_of_any_command_at_once_lose_nothing(group, pairs):
    names = {*GROUPS[group], *([TWO_SOURCES] if group == "cohort" else [])}
    found = results(*names, "--pairs", str(pairs))
    assert set(found) == names
    assert min(line["tried"] for line in found.values()) >= pairs
    assert all(line["points"] for line in found.values()), "no try met the other command"
    require_whole(found)


def _in_two_steps() -> None:
    """Write two files that only count together: this suite must notice it."""
    if not Path("first").exists():
        Path("first").write_text("1" * 99)
        Path("second").write_text("2" * 99)


def _and_a_leftover() -> None:
    """Another name each time: the next run does not take the file away."""
    name = Path(f".temporary-{os.getpid()}")
    name.write_text("x" * 99)
    name.rename("whole")


@pytest.mark.parametrize(
    ("command", "kind", "points", "number"),
    [(_in_two_steps, "lost", 4, 3), (_and_a_leftover, "leftovers", 3, 2)],
)
def test_a_command_that_a_kill_breaks_is_found(
    command, kind, points, number, tmp_path, monkeypatch
):
    """Killed within or before the second file, or within the first, it never heals."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking where threads may be
        found = enumerate_points(Case("broken", command, lambda: None), tmp_path / "work", 1, 0)
    assert found.points == found.tried == points
    assert len(getattr(found, kind)) == number
    assert len(found.lost) + len(found.leftovers) == number


def _of_every_kind() -> None:
    """Calls of every kind, into files that are new, that are and that have two names."""
    Path("folder").mkdir()
    with Path("old").open("a") as stream:
        stream.write("more" * 9)
    Path("folder/new").write_text("n" * 99)
    os.link("folder/new", "folder/twin")
    Path("old").chmod(0o600)
    with Path("folder/twin").open("r+") as stream:
        stream.truncate(70)
    Path("few").write_text("f")
    os.symlink("few", "link")
    Path("few").rename("old")
    shutil.rmtree("folder")


def test_a_copy_is_what_a_kill_leaves(tmp_path, monkeypatch):
    """At every point of calls of all kinds a real death leaves the same names and bytes."""
    monkeypatch.chdir(tmp_path)
    case = Case("kinds", _of_every_kind, lambda: Path("old").write_text("o" * 99) and None)
    work = tmp_path / "work"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fresh = prepared(case, work)
        copies = Copies(work / "here", work / "states", 1, 0)
        recorded(case, work, fresh, copies)
        for name in copies.points:
            fresh()
            code = child(case.command, work / "output", Watch(work / "here", Death(name)))
            assert code == -(signal.SIGKILL if name.startswith("before") else signal.SIGXFSZ), name
            assert differences(tree(work / "states" / name), tree(work / "here")) == [], name
    assert len(copies.points) >= 12
    assert sum(name.startswith("in the middle") for name in copies.points) == 2
