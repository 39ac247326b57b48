"""The pages' words on a belief that moves with the outline."""

from __future__ import annotations

from pathlib import Path

import pytest

from cad.folders.run_folder.results import RegionResult, read_results
from cad.run.reports.regions import outline_words


def region(folder: Path, **cells: object) -> RegionResult:
    """Return the words of a run folder on one region with these cells."""
    row = {
        "participant_id": "sub-1",
        "study_id": "sub-1",
        "roi_id": "1",
        "probability": 0.42,
        "decision_model": "refer",
        **cells,
    }
    (folder / "run.json").write_text("{}")
    lines = [",".join(row), ",".join(f'"{cell}"' for cell in row.values())]
    (folder / "probabilities.csv").write_text("\n".join(lines) + "\n")
    return read_results(folder).regions[0]


MOVES = "when the outline moves by about a millimetre"
OVER = "over the outlines of r1, r2"


@pytest.mark.parametrize(
    ("low", "high", "outlines", "words"),
    [
        (0.31, 0.52, "20 redrawn", f"between 31% and 52% {MOVES}"),
        (0.31, 0.52, "r1, r2", f"between 31% and 52% {OVER}"),
        (0.419, 0.421, "r1, r2", f"stays at 42% {OVER}"),
        (0.3, 0.7, "8 of 9 redrawn", f"between 30% and 70% {MOVES}"),
    ],
)
def test_words(tmp_path: Path, low: float, high: float, outlines: str, words: str) -> None:
    found = region(tmp_path, outline_low=low, outline_high=high, outlines=outlines)
    assert outline_words(found) == words


@pytest.mark.parametrize("cells", [{}, {"outline_low": "", "outline_high": "", "outlines": ""}])
def test_nothing_is_said_where_nobody_asked(tmp_path: Path, cells: dict[str, object]) -> None:
    assert outline_words(region(tmp_path, **cells)) == ""
