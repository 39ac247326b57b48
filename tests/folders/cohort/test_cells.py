"""Cells that a spreadsheet would execute: made harmless in every table, read back unchanged."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cad.base.errors import CadError
from cad.base.files import as_given, harmless, plain, write_csv
from cad.base.reading import read_frame
from cad.folders.cohort import read_cohort, write_tables
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.results import read_results
from cad.folders.run_folder.tables import Failure, read_failures, write_failures

ATTACKS = (
    "=cmd|'/c calc'!A0",
    "+1+1",
    "-1+1|x",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "  =1+1",
    "'=1",
    "''@x",
    '=HYPERLINK("http://x";"y")',
    "\u3000=1",
    "＝1+1",
    "-",
    "-x",
    "+49 30 123",
)
HARMLESS = ("", "r1", "n/a", "-1.5", "+3", "1e-5", "-2E+10", ".5", " -1.5", "a=b", "'quoted'", "é")


def executed(cell: str) -> bool:
    """Tell whether a spreadsheet would take the cell as a formula, by what it looks at first."""
    try:
        float(cell)
    except ValueError:
        return cell.strip()[:1] in tuple("=+-@＝＋－＠") or cell[:1] in ("\t", "\r", "\n")
    return False


@pytest.mark.parametrize("cell", ATTACKS)
def test_a_formula_becomes_text_and_comes_back(cell: str):
    assert not executed(harmless(cell))
    assert as_given(harmless(cell)) == cell


@pytest.mark.parametrize("cell", HARMLESS)
def test_numbers_and_words_stay_as_they_are(cell: str):
    assert harmless(cell) == cell
    assert as_given(cell) == cell


@given(st.text(alphabet="=+-@'\t\r\n \u00a0＝1.5eE_a,;\"", max_size=8) | st.text(max_size=6))
@settings(max_examples=600, deadline=None)
def test_any_text_is_harmless_and_comes_back(cell: str):
    assert not executed(harmless(cell))
    assert as_given(harmless(cell)) == cell


@given(st.floats(allow_nan=False))
@settings(max_examples=200, deadline=None)
def test_every_number_is_left_alone(value: float):
    if np.isfinite(value):
        assert harmless(repr(value)) == repr(value)
    assert harmless(value) is value


@pytest.fixture
def cohort(tmp_path: Path, repository: Path) -> Path:
    """The sample cohort's tables, with empty folders for its patients."""
    root = tmp_path / "cohort"
    root.mkdir()
    for path in (repository / "sample_data").glob("*.*"):
        shutil.copy(path, root)
    for patient in pd.read_csv(root / "participants.tsv", sep="\t")["participant_id"]:
        (root / patient).mkdir()
    return root


def test_a_table_keeps_its_bits_and_its_text(tmp_path: Path):
    attacks = [cell for cell in ATTACKS if "\r" not in cell]
    rows = len(attacks)
    table = pd.DataFrame({"text": attacks, "number": np.linspace(-1, 1, rows)})
    write_csv(tmp_path / "t.csv", table, ["text", "number"])
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as stream:
        raw = list(csv.DictReader(stream))
    assert not [row["text"] for row in raw if executed(row["text"])]
    again = read_frame(tmp_path / "t.csv", dtype={"text": str}, keep_default_na=False)
    assert again["number"].tolist() == table["number"].tolist()
    assert again["text"].tolist() == attacks
    write_csv(tmp_path / "t.csv", pd.DataFrame({"a": ["x\r=1\x1b[2J"]}), ["a"])
    assert (tmp_path / "t.csv").read_bytes() == b"a\nx\\r=1\\x1b[2J\n"


def test_a_readers_formula_in_a_cohort(cohort: Path):
    """The reader's name of the attack: harmless on disk in every table, itself to every reader."""
    name = "=cmd|'/c calc'!A0"
    tables = read_cohort(cohort)
    first = tables.readers["reader_id"].iloc[0]
    write_tables(
        cohort,
        participants=pd.read_csv(cohort / "participants.tsv", sep="\t"),
        readers=pd.read_csv(cohort / "readers.tsv", sep="\t").replace({"reader_id": {first: name}}),
        rois=pd.read_csv(cohort / "rois.tsv", sep="\t", keep_default_na=False),
        scores=pd.read_csv(cohort / "scores.tsv", sep="\t", keep_default_na=False).replace(
            {"reader_id": {first: name}}
        ),
        name="formulas",
        simulated=True,
    )
    for path in cohort.glob("*.tsv"):
        cells = [c for line in path.read_text().splitlines() for c in line.split("\t")]
        assert not [cell for cell in cells if executed(cell)]
    again = read_cohort(cohort)
    assert again.problems == tables.problems
    assert name in set(again.readers["reader_id"])
    assert name in set(again.scores["reader_id"])


def test_a_formula_in_the_tables_of_a_run(tmp_path: Path):
    folder = RunFolder(tmp_path)
    failure = Failure("sub-1", "sub-1", "=1+1", "measure", "@reason", "-hint")
    write_failures(folder, [failure])
    assert read_failures(folder) == [failure]
    assert "'=1+1" in folder.failures.read_text()
    folder.record.write_text("{}")
    folder.probabilities.write_text(
        "participant_id,study_id,roi_id,decision_model,scores\n"
        "sub-1,sub-1,'=1+1,benign,'=x()=3; r2=4\n"
    )
    results = read_results(tmp_path)
    assert results.regions[0].roi == "=1+1"
    assert results.regions[0].scores == [("=x()", "3"), ("r2", "4")]
    assert results.failures[0]["reason"] == "@reason"


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x00", "\x9b31m", "\u202e", "\u2028"])
def test_control_characters_are_no_part_of_a_table(cohort: Path, sign: str):
    path = cohort / "rois.tsv"
    lines = path.read_text().splitlines()
    index = lines[0].split("\t").index("roi_id")
    cells = lines[1].split("\t")
    cells[index] += sign
    path.write_text("\n".join([lines[0], "\t".join(cells), *lines[2:]]) + "\n")
    with pytest.raises(CadError, match=r"line 2 has a control character in roi_id|NUL character"):
        read_cohort(cohort)


def test_plain_text_keeps_lines_and_spells_out_the_rest():
    said = plain("one\n\ttwo \x1b[31mred\x1b[0m \x07 \x9b2J \u202etxt\x7f é 病")
    assert said == "one\n\ttwo \\x1b[31mred\\x1b[0m \\x07 \\x9b2J \\u202etxt\\x7f é 病"


def test_every_table_is_written_by_one_pair_of_functions(repository: Path):
    """Elsewhere ``to_csv`` makes hashes, text to search, simulated numbers, data from OpenML."""
    users = {
        path.relative_to(repository).as_posix()
        for path in (repository / "cad").rglob("*.py")
        if ".to_csv(" in path.read_text(encoding="utf-8")
    }
    hashed = {"cad/dicom/out/results.py", "cad/run/model/card.py", "cad/run/audit/entries.py"}
    hashed |= {"cad/folders/cohort/traces.py"}  # searched for a patient, and not written
    data = {"cad/evidence/phantom/simulator.py", "cad/evidence/experiments/uci.py"}
    assert users - hashed - data == {
        "cad/base/files.py",
        "cad/folders/cohort/__init__.py",
        "cad/hospital/reader_study/exports.py",
    }
    for name in users - hashed - data:
        assert "harmless)" in (repository / name).read_text(encoding="utf-8")
