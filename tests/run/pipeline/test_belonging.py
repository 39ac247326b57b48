"""What `check` says of a man whose images, regions or numbers do not belong together.

`run` and `predict` ask the same gates. Which faults are seen is the table of docs/import.md, by
`python -m benchmarks.faults table`; those that no gate sees are listed there as such.
"""

from __future__ import annotations

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


def silent_on_the_page(repository: Path) -> set[str]:
    """Return the faults that docs/import.md says are silent in some of ten simulated men."""
    page = (repository / "docs" / "import.md").read_text(encoding="utf-8")
    head = next(line for line in page.splitlines() if line.startswith("| fault | study refused |"))
    column = [cell.strip() for cell in head.split("|")].index("silent")
    silent = set()
    for line in page.partition(head)[2].splitlines()[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.split("|")]
        if cells[column]:
            silent.add(cells[1])
    return silent


def test_the_page_lists_every_fault(repository: Path) -> None:
    page = (repository / "docs" / "import.md").read_text(encoding="utf-8")
    assert [fault for fault in SEEN | SOMETIMES if f"| {fault} |" not in page] == []
    assert silent_on_the_page(repository) >= {"regions mirrored", "ADC x .7"}
    assert not silent_on_the_page(repository) & {"ADC upside down", "T2 in ADC's place"}


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
    assert harmful <= silent_on_the_page(repository)
    assert len(harmful) <= 6


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
