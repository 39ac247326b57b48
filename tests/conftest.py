"""Fixtures that every test area shares: the reference data, and a count of what was checked."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cad.base.processes import collect_rarely

collect_rarely()  # the collector would look through all that the tests have loaded
# Children that a test starts see one numerical thread each, as the test itself does.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Where an environment forbids bytecode, each of them would compile the whole package again.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
sys.dont_write_bytecode = False

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_DATA = Path(os.environ.get("CAD_REFERENCE_DATA", REPOSITORY.parent / "shared" / "data"))

LONGEST = (
    "test_crash_points.py",
    "test_power_loss.py",
    "test_faults.py",
    "test_structured.py",
    "test_commands_in_trouble.py",
    "test_misbehaving.py",
)
"""Files whose tests marked `faults` or `fuzz` take minutes each."""

_checked: Counter[str] = Counter()
_absent: set[str] = set()


@pytest.fixture(autouse=True)
def few_rivals(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tests of whole runs one of the six rivals; shared runs and evaluation's have all."""
    if request.path.parent.name not in ("pipeline", "folds", "layers", "node", "dicom"):
        return
    from cad.learning.learners.rivals import rival_learners
    from cad.run.stages import validate

    def few(n_rows: int) -> dict[str, Any]:
        return {"kernel ridge on p": rival_learners(n_rows)["kernel ridge on p"]}

    monkeypatch.setattr(validate, "rival_learners", few)
    monkeypatch.setattr(validate, "histology_rivals", lambda n_rows: {})


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the reference data; a test that needs it is skipped, loudly, without it."""
    if not SHARED_DATA.is_dir():
        _absent.add(str(SHARED_DATA))
        pytest.skip("REFERENCE DATA ABSENT")
    return SHARED_DATA


@dataclass(frozen=True)
class Ended:
    """The end of a command, as `subprocess.run` tells it of a process."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def main_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the whole of ``cad`` in this process: the libraries are loaded already."""
    from cad.cli import main
    from cad.cli.shared import global_options

    monkeypatch.setattr(global_options, "quiet", global_options.quiet)
    monkeypatch.setattr(global_options, "verbose", global_options.verbose)

    def run(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["cad", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def counted() -> Callable[[int, str], None]:
    """Call with the number of reference values that a test compared, and their source."""

    def count(number: int, source: str) -> None:
        _checked[source] += number

    return count


@pytest.fixture(scope="session")
def real_import(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, list[str]]]:
    """The cohort that ``cad import`` makes of PROSTATEx, and what it said; read only."""
    from typer.testing import CliRunner

    from cad.cli import app

    out = tmp_path_factory.mktemp("prostatex") / "cohort"
    command = ["import", str(shared_data / "prostatex"), str(out), "--rules", "prostatex"]
    made = CliRunner().invoke(app, [*command, "--json"])
    assert made.exit_code == 0, made.output
    return out, json.loads(made.stdout)


@pytest.fixture(scope="session")
def light_cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six simulated patients with small images; read it, change nothing."""
    from cad.evidence.phantom import simulate

    root = tmp_path_factory.mktemp("light") / "cohort"
    simulate(root, patients=6, seed=4, light=True)
    return root


@pytest.fixture(scope="session")
def part_of() -> Callable[[Path, Path, Collection[str]], Path]:
    """Copy a cohort with these patients only, into a folder that is not there yet."""

    def copy(cohort: Path, root: Path, patients: Collection[str]) -> Path:
        root.mkdir()
        for path in cohort.iterdir():
            if path.is_file():
                shutil.copy(path, root)
        for patient in patients:
            shutil.copytree(cohort / patient, root / patient)
        for path in root.glob("*.tsv"):
            head, *lines = path.read_text().splitlines(keepends=True)
            if head.startswith("participant_id"):
                kept = [line for line in lines if line.split("\t")[0].strip() in patients]
                path.write_text("".join([head, *kept]))
        return root

    return copy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that processes which share them end together."""

    def is_short(item: pytest.Item) -> bool:
        is_marked = "faults" in item.keywords or "fuzz" in item.keywords
        return item.path.name not in LONGEST or not is_marked

    items.sort(key=is_short)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what this process compared to the one that started it (``pytest -n``)."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {"checked": dict(_checked), "absent": sorted(_absent)}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a process compared that has ended."""
    output = getattr(node, "workeroutput", {})
    _checked.update(output.get("checked", {}))
    _absent.update(output.get("absent", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many reference values were compared, so that their absence is seen."""
    if _absent:
        terminalreporter.section("REFERENCE DATA ABSENT: nothing was compared with it")
        for path in sorted(_absent):
            terminalreporter.write_line(f"not found: {path} (set CAD_REFERENCE_DATA)")
    if _checked:
        terminalreporter.section("reference values checked")
        for source, number in sorted(_checked.items()):
            terminalreporter.write_line(f"{source}: {number}")
