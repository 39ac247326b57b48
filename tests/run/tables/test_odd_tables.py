"""Odd tables are refused: column, row, value, the rule that it broke, and the way out."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.run.tables import Columns, read_regions
from tests.run.tables import odd_tables


def test_at_least_fifty_are_listed() -> None:
    assert len({odd.name for odd in odd_tables.ODD}) == len(odd_tables.ODD) >= 50


@pytest.mark.parametrize("odd", odd_tables.ODD, ids=lambda odd: odd.name)
def test_an_odd_table_is_refused_with_this_message(odd: odd_tables.Odd, tmp_path: Path) -> None:
    path = odd.write(tmp_path)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        done = CliRunner().invoke(
            app, ["table", "validate", str(path), "-o", str(tmp_path / "run"), *odd.options]
        )
    assert isinstance(done.exception, CadError), done.exception
    text = str(done.exception).replace(f"file {path}: ", "")
    assert text == odd.says
    assert not [each for each in warned if issubclass(each.category, UserWarning | RuntimeWarning)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the sound table."""
    folder = tmp_path_factory.mktemp("model")
    path = odd_tables.Odd("", odd_tables.csv).write(folder)
    words = [*odd_tables.BASE, "--learner", "PlattSVC", "--folds", "2"]
    done = CliRunner().invoke(
        app, ["table", "train", str(path), "-o", str(folder / "model"), *words]
    )
    assert done.exit_code == 0, done.exception
    return folder / "model"


@pytest.mark.parametrize("odd", odd_tables.OF_MODEL, ids=lambda odd: odd.name)
def test_a_prediction_refuses_with_this_message(
    odd: odd_tables.Odd, model: Path, tmp_path: Path
) -> None:
    """And offers no option that ``cad table predict`` does not have."""
    path = odd.write(tmp_path)
    words = ["table", "predict", str(path), "--model", str(model), "-o", str(tmp_path / "out.csv")]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, CadError), done.exception
    assert str(done.exception).replace(f"file {path}: ", "") == odd.says
    for option in ("--ignore", "--features", "--scores", "--patient", "--scale"):
        assert option not in odd.says
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("odd", "note"), odd_tables.NOTED, ids=lambda value: getattr(value, "name", "")
)
def test_what_is_read_with_a_doubt_is_said(odd: odd_tables.Odd, note: str, tmp_path: Path) -> None:
    words = dict(zip(odd.options[::2], odd.options[1::2], strict=False))
    missing = tuple(word.partition("=")[2] for word in odd.options if word.startswith("--missing="))
    columns = Columns(
        words["--patient"],
        tuple(words["--scores"].split(",")),
        histology=words["--histology"],
        missing=missing,
    )
    notes = read_regions(odd.write(tmp_path), columns).notes
    assert [said for said in notes if said.startswith(note)], notes


def test_a_sound_table_is_read_without_a_remark(tmp_path: Path) -> None:
    path = odd_tables.Odd("", odd_tables.csv).write(tmp_path)
    assert read_regions(path, Columns("patient", ("r1", "r2"), histology="cancer")).notes == []


def test_a_row_without_any_value_gets_no_probability(model: Path, tmp_path: Path) -> None:
    """Medians in every column would give it one that says nothing of the row."""
    frame = odd_tables.sound()
    frame.loc[3, ["adc", "t2", "ktrans"]] = ""
    path = tmp_path / "table.csv"
    path.write_text(odd_tables.csv(frame.drop(columns=["patient", "r2"])))
    words = ["table", "predict", str(path), "--model", str(model), "-o", str(tmp_path / "out.csv")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    for note in (
        "1 rows have no value in any column of the model, and no probability",
        "no column 'patient': every row counts as a patient of its own",
        "no scores of r2: they are no evidence here",
    ):
        assert note in done.output
    scored = pd.read_csv(tmp_path / "out.csv")
    assert scored["probability"].isna().tolist() == [k == 3 for k in range(40)]
    assert scored["unlike"][3] == "no column of the model has a value"


def test_no_message_shows_a_type_a_module_or_a_path_of_the_program() -> None:
    for odd in (*odd_tables.ODD, *odd_tables.OF_MODEL):
        for word in ("np.", "float64", "Traceback", "cad.run", "site-packages", "pandas."):
            assert word not in odd.says, odd.name
        assert odd.says.endswith(")"), f"{odd.name}: no way out"
