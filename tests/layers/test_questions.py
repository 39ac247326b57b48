"""A usual question is two clicks from its answer, and each page names its reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
QUESTIONS = re.findall(r"^- \[(.+)\]\((.+)\)$", (DOCS / "questions.md").read_text(), re.MULTILINE)
SHELVES = ("Tutorials", "How-to", "Explanation", "Reference")
WITHOUT_READER = {"index.md", "reference/api.md"}
"""The start page has a table of readers; the other is a list of signatures."""


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#{1,4} (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower().replace(" ", "-")) for title in titles}


def pages() -> list[Path]:
    """Return the pages of the site that are written by hand or by a script of the project."""
    left_out = {"generated", "reproduction", "notebooks"}
    return [page for page in sorted(DOCS.rglob("*.md")) if not left_out & set(page.parts)]


def shelves() -> dict[str, list[str]]:
    """Return the pages that the start page puts on each shelf, by the shelf's name."""
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\{toctree\}\n:caption: ([^\n]+)\n:hidden:\n\n(.*?)```", text, re.S)
    return {name: listed.split() for name, listed in blocks}


def test_the_start_page_leads_to_thirty_questions() -> None:
    assert len(QUESTIONS) >= 30
    assert len({question for question, _ in QUESTIONS}) == len(QUESTIONS)
    assert all(question.endswith("?") for question, _ in QUESTIONS)
    assert "](questions.md)" in (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("question", "target"), QUESTIONS, ids=[target for _, target in QUESTIONS])
def test_a_question_leads_to_a_heading_that_is_there(question: str, target: str) -> None:
    name, anchor = target.split("#")
    assert anchor in anchors(DOCS / name), f"{question}: {target}"


def test_a_heading_that_is_gone_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Which `csv`: a file?\n```\n# no heading\n```\n## One, two\n")
    assert anchors(page) == {"which-csv-a-file", "one-two"}


def test_every_page_stands_on_one_of_four_shelves() -> None:
    listed = [name for names in shelves().values() for name in names]
    assert tuple(shelves()) == SHELVES
    assert len(listed) == len(set(listed))
    there = {page.relative_to(DOCS).with_suffix("").as_posix() for page in pages()}
    assert there - set(listed) == {"index"}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_names_its_reader_and_its_question(page: Path) -> None:
    if page.relative_to(DOCS).as_posix() in WITHOUT_READER:
        pytest.skip("no page for one reader")
    text = page.read_text(encoding="utf-8")
    first = re.search(r"^# .+\n\n(.+(?:\n.+)*)", text, re.MULTILINE)
    assert first is not None
    assert first[1].startswith("*For "), first[1]
    assert "?" in first[1], first[1]
