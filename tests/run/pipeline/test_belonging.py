"""`check` names a man whose images, regions or numbers do not belong together.

`run` and `predict` ask the same gates. Which faults are seen is the table of docs/import.md, by
`python -m benchmarks.faults table`; those that no gate sees are listed there as such.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.faults import SEEN, SOMETIMES, Judge, shown
from cad.base.errors import CadError
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.mri.imaging.plausibility import implausible
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import check_study, read_study

AIM = 3
"""Largest number of silent and harmful faults that a man should have; not every man meets it."""


def problems_of(study: Study) -> list[CadError]:
    return [*implausible(study), *check_study(study)]


@pytest.fixture(scope="module")
def men(cohort: Path) -> list[Study]:
    return [read(ref) for ref in read_cohort(cohort).studies()[:3]]


def read(ref) -> Study:  # type: ignore[no-untyped-def]
    rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
    return read_study(ref.folder, ref.study_id, ref.participant_id, rois)


def test_a_clean_man_is_not_questioned(men: list[Study]) -> None:
    for man in men:
        assert problems_of(man) == []
        assert problems_of(replace(man, gland=None)) == []


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_that_is_seen(men: list[Study], fault: str) -> None:
    assert problems_of(SEEN[fault](men[0], men[1]))


def published(repository: Path) -> dict[str, dict[str, str]]:
    """Return the published outcome of each fault in ten simulated men, by its name."""
    path = repository / "docs" / "import" / "faults.csv"
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return {row["fault"]: row for row in rows}


def test_the_page_has_every_fault_that_is_not_always_refused(repository: Path) -> None:
    outcomes = published(repository)
    assert set(outcomes) == {*SEEN, *SOMETIMES}
    page = (repository / "docs" / "import.md").read_text(encoding="utf-8")
    for fault, row in outcomes.items():
        counts = [row[name] for name in ("study refused", "region refused", "named")]
        counts += [row[name] for name in ("unlike the training", "silent", "changes above 0.1")]
        assert sum(map(int, counts[:5])) == 10, fault
        cells = " | ".join("" if count == "0" else count for count in counts)
        assert (f"| {fault} | {cells} |" in page) == (row["study refused"] != "10"), fault


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 2])
def test_table_of_faults(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], which: int
) -> None:
    """Every fault of a man on the grids that the model was trained on: docs/import.md."""
    simulate(tmp_path / "cohort", patients=3, seed=77)
    men = [read(ref) for ref in read_cohort(tmp_path / "cohort").studies()]
    assert problems_of(men[which]) == []
    table = Judge(repository).table(men[which], men[1])
    with capsys.disabled():
        print("\n" + shown([table], list(table)))
    harmful = {name for name, outcome in table.items() if outcome.harmful}
    assert len(table) >= 58
    outcomes = published(repository)
    assert [fault for fault in harmful if outcomes[fault]["silent"] == "0"] == []
    # 6 is the most that one of the ten men of docs/import.md has.
    assert len(harmful) <= 6
    if len(harmful) > AIM:
        pytest.xfail(f"{len(harmful)} faults are silent and harmful; the aim is {AIM} at most")


@pytest.mark.slow
def test_faults_of_a_real_man(
    repository: Path, real_import: tuple[Path, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """PROSTATEx: no false alarm, and what the table of docs/import.md says."""
    first, second = (read(ref) for ref in read_cohort(real_import[0]).studies())
    assert problems_of(first) == problems_of(second) == []
    table = Judge(repository).table(second, first)
    with capsys.disabled():
        print("\n" + shown([table], list(table)))
    assert len(table) >= 26
    assert not [name for name, outcome in table.items() if outcome.harmful]
