"""The page on cohorts names the columns and the words that the code reads."""

from __future__ import annotations

import re
from pathlib import Path

from cad.base.terms.beside import table_beside
from cad.folders import cohort
from cad.folders.cohort import rules
from cad.learning.labels.scales import SCALES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cohort.md").read_text(encoding="utf-8")
MEN = set(table_beside(rules.__file__)["plausible"])
"""Columns with a number of a man."""


def columns_of(page: str) -> dict[str, tuple[tuple[str, ...], set[str]]]:
    """Return, by table, the columns that it must have and those that it may have."""
    columns = {}
    for line in page.splitlines():
        cells = re.fullmatch(r"\| `(\w+)\.tsv` \|(.*)\|(.*)\|", line)
        if cells:
            needed = tuple(re.findall(r"`(\w+)`", cells[2]))
            columns[cells[1]] = (needed, set(re.findall(r"`(\w+)`", cells[3])))
    return columns


def test_the_page_has_the_columns_that_a_table_must_have() -> None:
    needed = {table: must for table, (must, _) in columns_of(PAGE).items()}
    assert needed == cohort._NEEDED


def test_the_page_has_the_columns_that_the_code_reads_where_they_are() -> None:
    optional = {table: may for table, (_, may) in columns_of(PAGE).items()}
    assert optional["participants"] == MEN | {"site", "sex", "isup"}
    assert optional["sessions"] == MEN - {"age"}
    assert optional["readers"] == optional["scores"] == set()
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "cad").rglob("*.py"))
    for name in set().union(*optional.values()) - MEN:
        # The code asks whether the table has the column before it reads it.
        assert re.search(rf'"{name}" (not )?in \w', code), name


def test_the_page_has_the_words_of_the_cells() -> None:
    prose = " ".join(PAGE.split())
    zones = f"{', '.join(rules.ZONES[:-1])} or {rules.ZONES[-1]}"
    assert f"`zone` is {zones}:" in prose
    assert f"`histology` is {' or '.join(rules.HISTOLOGY)}." in prose
    sentence = re.search(r"In `scores.tsv`, `scale` is (.*?PI-RADS\))", prose)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == set(SCALES)


def test_another_column_is_seen() -> None:
    assert columns_of("| `rois.tsv` | `roi_id`, `lesion` | `sector` |") == {
        "rois": (("roi_id", "lesion"), {"sector"})
    }
    without = PAGE.replace("`zone`, ", "", 1)
    assert columns_of(without)["rois"][0] != cohort._NEEDED["rois"]
