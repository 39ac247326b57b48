"""The pictures of the evidence are drawn from the tables that stand beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from evidence_pictures import PICTURES, coverage, decision_curve, draw, roc

from cad.base.errors import CadError

WITHOUT_PICTURE = {"noise.csv", "outcome_tables.csv"}
"""Tables of the page that are shown as tables only."""


def test_every_table_has_its_picture_its_command_and_its_link(repository: Path) -> None:
    page = (repository / "docs" / "evidence.md").read_text(encoding="utf-8")
    pictures = page.split("## In pictures")[1].split("\n## ")[0]
    files = {path.name for path in (repository / "docs" / "evidence").iterdir()}
    tables = {f"{table}.csv" for table, _ in PICTURES.values()}
    assert files == {f"{name}.png" for name in PICTURES} | tables | WITHOUT_PICTURE
    for table in WITHOUT_PICTURE:
        assert f"[{table}](evidence/{table})" in page
    for name, (table, _) in PICTURES.items():
        caption = pictures.split(f"(evidence/{name}.png)")[1].split("![")[0]
        assert f"[{table}.csv](evidence/{table}.csv)" in caption
        assert "`python -m benchmarks." in caption


def test_pictures_are_drawn_of_the_tables_alone(repository: Path, tmp_path: Path) -> None:
    for table, _ in PICTURES.values():
        shutil.copy(repository / "docs" / "evidence" / f"{table}.csv", tmp_path)
    drawn = draw(tmp_path)
    assert [path.read_bytes()[:4] for path in drawn] == [b"\x89PNG"] * len(PICTURES)
    (tmp_path / "coverage.csv").unlink()
    with pytest.raises(CadError, match="no table to draw"):
        draw(tmp_path)


def test_a_row_lies_where_its_number_is() -> None:
    row = {"interval": "used here", "patients": 20, "AUC": 0.85, "coverage": 0.95}
    axes = coverage(pd.DataFrame([row])).axes[0]
    nominal, chance, share = axes.get_lines()
    assert list(share.get_xdata()) == [0.95]
    low, high = chance.get_xdata()
    # By hand, of 380 of 400: (p + z²/2n ± z √(pq/n + z²/4n²)) / (1 + z²/n).
    assert (round(low, 3), round(high, 3)) == (0.924, 0.967)
    assert list(nominal.get_xdata()) == [0.95, 0.95]


def test_a_curve_goes_through_the_shares_above_each_border() -> None:
    groups = {"predicted": [0.2, 0.8], "observed": [0.1, 0.6], "n": [10, 5], "number": "belief"}
    _, curve = roc(pd.DataFrame(groups)).axes[0].get_lines()
    # Above the border are 3 of 4 regions with cancer, and 2 of 11 benign ones.
    np.testing.assert_allclose(curve.get_xydata(), [[0, 0], [2 / 11, 3 / 4], [1, 1]])


def test_a_decision_curve_shows_each_number_and_both_rules_without_a_number(
    repository: Path,
) -> None:
    table = pd.read_csv(repository / "docs" / "evidence" / "decision_curve.csv")
    axes = decision_curve(table).axes[0]
    drawn = {str(line.get_label()): line for line in axes.get_lines()}
    assert list(drawn) == [name for name in table.columns if name != "threshold"]
    for name, line in drawn.items():
        np.testing.assert_array_equal(line.get_xdata(), table["threshold"])
        np.testing.assert_array_equal(line.get_ydata(), table[name])
    assert (table["treat none"] == 0).all()
    # By hand: with the share m of malignant regions, to treat all has m - (1 - m) t / (1 - t).
    odds = table["threshold"] / (1 - table["threshold"])
    share = (table["treat all"] + odds) / (1 + odds)
    np.testing.assert_allclose(share, share[0], atol=3e-5)


def test_rows_that_were_measured_on_different_days_state_the_day(repository: Path) -> None:
    page = (repository / "docs" / "evidence.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.+\n)+", page, re.MULTILINE)
    n_days = 0
    for table in tables:
        head, _, *rows = (line.strip("| \n").split(" | ") for line in table.splitlines())
        for name in ("day", "command"):
            if name not in head:
                continue
            for row in rows:
                cell = row[head.index(name)]
                n_days += name == "day"
                assert re.fullmatch(r"2\d Nov", cell) if name == "day" else cell != "", row
    assert n_days == 28
    for section in page.split("\n## ")[1:]:
        dates = section.split("\n\n")[1]
        if re.search(r"\d (to|and) \d", dates):
            assert "| day |" in section, section.splitlines()[0]


def test_every_section_of_the_evidence_states_when_it_was_measured(repository: Path) -> None:
    page = (repository / "docs" / "evidence.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[1:]
    assert len(sections) >= 10
    for section in sections:
        assert re.search(r"\b\d{1,2} [A-Z][a-z]+ 20\d\d\b", section), section.splitlines()[0]
