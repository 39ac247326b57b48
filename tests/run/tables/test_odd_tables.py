"""Odd tables are refused: column, row, value, the rule that it broke, and the way out."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
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


def test_no_message_shows_a_type_a_module_or_a_path_of_the_program() -> None:
    for odd in odd_tables.ODD:
        for word in ("np.", "float64", "Traceback", "cad.run", "site-packages", "pandas."):
            assert word not in odd.says, odd.name
        assert odd.says.endswith(")"), f"{odd.name}: no way out"
