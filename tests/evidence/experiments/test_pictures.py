"""The pictures of the evidence are drawn from the tables that stand beside them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from evidence_pictures import PICTURES, coverage, draw

from cad.base.errors import CadError


def test_every_table_has_its_picture_its_command_and_its_link(repository: Path) -> None:
    page = (repository / "docs" / "evidence.md").read_text(encoding="utf-8")
    pictures = page.split("## In pictures")[1].split("\n## ")[0]
    files = {path.name for path in (repository / "docs" / "evidence").iterdir()}
    assert files == {f"{name}{end}" for name in PICTURES for end in (".csv", ".png")}
    for name in PICTURES:
        caption = pictures.split(f"(evidence/{name}.png)")[1].split("![")[0]
        assert f"[{name}.csv](evidence/{name}.csv)" in caption
        assert "`python -m benchmarks." in caption


def test_pictures_are_drawn_of_the_tables_alone(repository: Path, tmp_path: Path) -> None:
    for name in PICTURES:
        shutil.copy(repository / "docs" / "evidence" / f"{name}.csv", tmp_path)
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
