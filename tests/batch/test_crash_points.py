"""A kill before any call that changes a file costs nothing: ``tests/support/crash_points.py``.

Here every k-th point, with a few pairs of commands at once; all of them with ``pytest -m faults``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import crash_points
import pytest
from crash_points import Case, enumerate_points

PROGRAM = Path(crash_points.__file__)
IMPORTS = (
    "import, new patients",
    "import, pseudonyms",
    "import, second study",
    "import, regions later",
    "import, zip",
    "import, archive",
    "simulate",
    "experiment",
)
RUNS = (
    "train",
    "train --extend, over a model",
    "predict",
    "suggest",
    "reading --collect",
    "cohort remove",
    "report --dicom",
)


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def results(*programs: subprocess.Popen[str]) -> dict[str, dict]:
    lines = [line for program in programs for line in program.communicate()[0].splitlines()]
    assert [program.returncode for program in programs] == [0] * len(programs)
    found = {line["case"]: line for line in map(json.loads, lines)}
    for name, line in found.items():
        said = f"{line['tried']} of {line['points']}"
        print(f"{name}: {said}, {len(line['lost']) + len(line['leftovers'])} differ")
    return found


def require_whole(found: dict[str, dict]) -> None:
    wrong = {n: line["lost"] + line["leftovers"] for n, line in found.items()}
    assert {n: said for n, said in wrong.items() if said} == {}


def test_every_so_often_a_kill_costs_nothing():
    found = results(started("--every", "149", "--offset", "11"))
    assert set(found) == {*IMPORTS, *RUNS}
    assert sum(line["tried"] for line in found.values()) > 20
    require_whole(found)


def test_two_commands_at_once_lose_nothing():
    found = results(started("import, two sources at once", "--pairs", "6"))
    assert found["import, two sources at once"]["tried"] == 6
    require_whole(found)


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_a_kill_at_any_point_costs_nothing():
    found = results(started(*IMPORTS), started(*RUNS))
    assert set(found) == {*IMPORTS, *RUNS}
    for name, line in found.items():
        assert line["tried"] == line["points"] > 50, name
    require_whole(found)


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_two_of_any_command_at_once_lose_nothing():
    found = results(started("--pairs", "50"))
    assert {line["tried"] for line in found.values()} == {50}
    assert all(line["points"] for line in found.values()), "no try met the other command"
    require_whole(found)


def _in_two_steps() -> None:
    """What this suite is there to find: two files that only count together."""
    if not Path("first").exists():
        Path("first").write_text("1" * 99)
        Path("second").write_text("2" * 99)


def _and_a_leftover() -> None:
    Path(".temporary").write_text("x" * 99)
    Path(".temporary").rename("whole")


@pytest.mark.parametrize(
    ("command", "kind", "number"), [(_in_two_steps, "lost", 3), (_and_a_leftover, "leftovers", 0)]
)
def test_a_command_that_a_kill_breaks_is_found(command, kind, number, tmp_path, monkeypatch):
    """Killed within or before the second file, or within the first, it never heals."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking where threads may be
        found = enumerate_points(Case("broken", command, lambda: None), tmp_path / "work", 1, 0)
    assert found.points == found.tried == (4 if kind == "lost" else 3)
    assert len(getattr(found, kind)) == number
