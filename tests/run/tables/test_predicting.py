"""A table is scored by a model that was trained on a table: what it cannot score is refused."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.learners import ProbabilisticSVC
from cad.run.model.table_model import save_table_model
from cad.run.tables.dialects import Dialect, read_cells
from cad.run.tables.predicting import Predicted, predict_table

GOOD = [("1000.5", "1.2", "0.31"), ("1500.25", "0.7", "0.55"), ("900.75", "2.1", "0.22")]


def features() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 40)
    columns = {
        "adc": 1400 - 400 * y + rng.normal(0, 180, 40),
        "volume": 1 + y + rng.uniform(-0.8, 0.8, 40),
        "t2": 0.5 - 0.1 * y + rng.uniform(-0.2, 0.2, 40),
    }
    return pd.DataFrame(columns), y * 0.8 + 0.1


def saved(folder: Path, learner: Any) -> Path:
    X, p = features()
    save_table_model(folder, learner.fit(X.to_numpy(), p), X, p, np.arange(40))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(
        tmp_path_factory.mktemp("models") / "M", make_pipeline(StandardScaler(), ProbabilisticSVC())
    )


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    imputer = SimpleImputer(keep_empty_features=True)
    learner = make_pipeline(imputer, StandardScaler(), ProbabilisticSVC())
    return saved(tmp_path_factory.mktemp("models") / "filling", learner)


def predicted(rows: list[tuple[str, ...]], model: Path, scratch: Path) -> Predicted:
    lines = ["adc,volume,t2", *(",".join(row) for row in rows)]
    (scratch / "table.csv").write_text("\n".join(lines) + "\n")
    return predict_table(scratch / "table.csv", model, scratch / "out.csv")


def test_a_model_without_a_column_of_patients_says_so(model: Path, tmp_path: Path):
    """A model of arrays was never told of patients; its note names no column ``None``."""
    table = predicted(GOOD[:2], model, tmp_path)
    note = "M names no column of patients: every row counts as a patient of its own"
    assert [text for text in table.notes if "patient" in text] == [note]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("factor", [1e-6, 1e-3])
def test_a_column_in_another_unit_is_noted(model: Path, tmp_path: Path, factor: float, rows: int):
    noted = predicted(GOOD[:rows], model, tmp_path).notes
    assert [note for note in noted if "training's range" in note] == []
    other = [(f"{float(adc) * factor:.9f}", *rest) for adc, *rest in GOOD[:rows]]
    noted = predicted(other, model, tmp_path).notes
    (note,) = [note for note in noted if "training's range" in note]
    assert note.startswith(f"adc: {rows} of {rows} rows lie far from the training's range")


@pytest.mark.parametrize("empty", ["", "NA"])
def test_an_empty_cell_is_named_where_the_model_fills_none(model: Path, tmp_path: Path, empty: str):
    rows = [GOOD[0], (GOOD[1][0], empty, GOOD[1][2]), GOOD[2]]
    with pytest.raises(CadError, match=r"column 'volume', row 3: the value is missing") as caught:
        predicted(rows, model, tmp_path)
    assert "SimpleImputer" in caught.value.hint
    assert "table.csv" in str(caught.value)
    assert not (tmp_path / "out.csv").exists()


def test_an_empty_cell_is_filled_where_the_model_fills_it(filling: Path, tmp_path: Path):
    rows = [GOOD[0], (GOOD[1][0], "", GOOD[1][2]), ("NA", "NA", "NA")]
    table = predicted(rows, filling, tmp_path).table
    assert table["probability"].notna().tolist() == [True, True, False]


def test_a_row_without_values_gets_no_probability_and_stops_nothing(model: Path, tmp_path: Path):
    whole = predicted(GOOD, model, tmp_path).table["probability"].to_numpy(float)
    result = predicted([("NA", "NA", "NA"), *GOOD], model, tmp_path)
    probability = result.table["probability"].to_numpy(float)
    assert np.isnan(probability[0])
    np.testing.assert_array_equal(probability[1:], whole)
    assert "1 rows have no value" in result.notes[-1]


def test_a_missing_value_in_python_names_row_and_column(model: Path):
    from cad import load_model

    X, _ = features()
    X.loc[4, "t2"] = np.nan
    with pytest.raises(CadError, match=r"row 5 cannot be scored: t2 is missing"):
        load_model(model).probability(X)


def workbook(change: str) -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    for row in [("adc", "volume", "t2"), *[tuple(map(float, row)) for row in GOOD]]:
        sheet.append(list(row))
    if change:
        sheet.merge_cells(change)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


@pytest.mark.parametrize("merged", ["A2:A3", "B3:C4", "A1:B1"])
def test_merged_cells_are_no_missing_values(tmp_path: Path, merged: str):
    path = tmp_path / "table.xlsx"
    path.write_bytes(workbook(""))
    assert len(read_cells(path, Dialect()).table) == 3
    path.write_bytes(workbook(merged))
    with pytest.raises(CadError, match=f"cells {merged} of sheet 'Sheet' are merged") as caught:
        read_cells(path, Dialect())
    assert "unmerge the cells" in caught.value.hint


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"<mergeCell ", b"<mergeCell\n"),
        lambda text: text.decode().encode("utf-16"),
    ],
    ids=["line break", "utf-16"],
)
def test_merged_cells_are_seen_however_the_sheet_is_written(tmp_path: Path, change):
    """Neither a line break in the element nor another encoding of the sheet hides them."""
    path = tmp_path / "new.xlsx"
    with (
        zipfile.ZipFile(io.BytesIO(workbook("A2:A3"))) as archive,
        zipfile.ZipFile(path, "w") as out,
    ):
        for name in archive.namelist():
            content = archive.read(name)
            if name == "xl/worksheets/sheet1.xml":
                assert b"<mergeCell " in content
                content = change(content)
            out.writestr(name, content)
    with pytest.raises(CadError, match="cells A2:A3 of sheet 'Sheet' are merged"):
        read_cells(path)


def test_empty_merged_cells_beside_the_table_are_no_matter(tmp_path: Path):
    path = tmp_path / "table.xlsx"
    path.write_bytes(workbook("E2:F5"))
    assert len(read_cells(path, Dialect()).table) == 3


@pytest.mark.parametrize(("value", "noted"), [("-999", True), ("-99", True), ("1000", False)])
def test_a_number_that_usually_means_a_missing_value_is_said(
    model: Path, tmp_path: Path, value: str, noted: bool
):
    rows = [(value, *GOOD[0][1:]), *GOOD[1:]]
    notes = [note for note in predicted(rows, model, tmp_path).notes if "--missing" in note]
    assert len(notes) == noted
    if noted:
        assert f"column 'adc', row 2: {value} stands in 1 rows" in notes[0]
        assert f"--missing={value}" in notes[0]


def test_a_code_within_the_trainings_range_is_a_value(tmp_path: Path):
    """-9 means a missing value in many tables, and not in a column that is trained around it."""
    X, p = features()
    X["t2"] = X["t2"] * 100 - 50
    assert X["t2"].min() < -9 < X["t2"].max()
    learner = make_pipeline(StandardScaler(), ProbabilisticSVC()).fit(X.to_numpy(), p)
    save_table_model(tmp_path / "M", learner, X, p, np.arange(40))
    table = predicted([("1000", "1.5", "-9"), ("1000", "1.5", "-999")], tmp_path / "M", tmp_path)
    assert not [note for note in table.notes if note.endswith("--missing=-9")]
    assert [note for note in table.notes if "--missing=-999" in note]
