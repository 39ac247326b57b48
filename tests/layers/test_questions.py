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


EMPTY_WORDS = (
    "what which does that have with from where they them how the and for can are not who its it is "
    "see get any out too was has"
)
"""Words of a question that name nothing."""


def stems(text: str) -> set[str]:
    """Return the first four letters of every word that may name a thing."""
    words = re.findall(r"[a-z0-9]{3,}", text.lower())
    return {word[:4] for word in words if word not in EMPTY_WORDS.split()}


def is_at_hand(question: str, anchor: str, text: str) -> bool:
    """Tell whether an answer is seen at once, by its place on the page or by its heading.

    Either the answer begins in the upper half of its page, or its heading has a word of the
    question.
    """
    if stems(question) & stems(anchor):
        return True
    body = re.sub(r"^```.*?^```", lambda block: " " * len(block[0]), text, flags=re.M | re.S)
    for heading in re.finditer(r"^#{1,4} (.+)$", body, flags=re.MULTILINE):
        title = heading[1].strip().lower().replace(" ", "-")
        if re.sub(r"[^\w\- ]", "", title) == anchor:
            return heading.start() <= len(text) / 2
    return False


@pytest.mark.parametrize(("question", "target"), QUESTIONS, ids=[target for _, target in QUESTIONS])
def test_the_answer_is_high_on_its_page_or_under_a_heading_of_its_words(
    question: str, target: str
) -> None:
    name, anchor = target.split("#")
    text = (DOCS / name).read_text(encoding="utf-8")
    assert is_at_hand(question, anchor, text), f"{question}: {target}"


def test_an_answer_at_the_end_under_another_heading_is_seen() -> None:
    text = "# Page\n\nOne.\n\n## Drift\n\nTwo.\n\n## Notes\n"
    assert is_at_hand("How do I see drift?", "drift", text)
    assert is_at_hand("What does it show?", "page", text)
    assert not is_at_hand("Is a graphics card needed?", "notes", text)


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
