"""The sheet of a man: what is on it, and that none of its pages is nearly blank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from dicom_files import needs

from cad.folders.run_folder.results import read_results
from cad.learning.evaluation.summary import Summary
from cad.run.reports.paper import BOTTOM, PAGE_HEIGHT
from cad.run.reports.sheet import Sheet, draw_sheet
from cad.run.reports.views import list_patients


def sheet_of(run: Path, name: str, language: str = "en") -> Sheet:
    results = read_results(run)
    metrics = Summary.from_dict(results.metrics)
    (patient,) = [view for view in list_patients(results) if view.patient == name]
    return draw_sheet(results, metrics, patient, capture=True, language=language)


def text_of(sheet: Sheet) -> str:
    needs("pdftotext")
    command = ["pdftotext", "-raw", "-", "-"]
    done = subprocess.run(command, input=sheet.pdf, check=True, capture_output=True)
    return " ".join(done.stdout.decode().split())


@pytest.mark.parametrize("name", ["sub-P001", "sub-P002", "sub-P003", "sub-P004", "sub-P005"])
def test_a_second_sheet_is_not_nearly_blank(name: str, finished_run: Path) -> None:
    sheets = sheet_of(finished_run, name).pixels
    for sheet in sheets[1:]:
        above_foot = sheet[: round(BOTTOM / PAGE_HEIGHT * len(sheet))]
        rows = np.flatnonzero((above_foot < 128).any(axis=(1, 2)))
        assert rows.max() > 0.3 * len(sheet)


def test_the_curve_has_titles_and_the_table_histology(finished_run: Path) -> None:
    text = text_of(sheet_of(finished_run, "sub-P004"))
    assert "tissue concentration, mM" in text
    assert "time, min" in text
    assert "Decision Readers Histology" in text
    german = text_of(sheet_of(finished_run, "sub-P004", "de"))
    assert "Zeit, min" in german
    assert "Entscheidung Befunder Histologie" in german
