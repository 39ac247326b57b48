"""Everything that a page or a docstring refers to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cad.base.settings import FeatureSettings
from cad.mri.columns import columns_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "generated" not in page.parts]


def cited(text: str) -> set[str]:
    """Return the section numbers that a text gives for docs/methods.md."""
    return set(re.findall(r"docs/methods\.md`? (\d+)", text))


def text_files() -> list[Path]:
    """Return the files whose words are checked."""
    return PAGES + [
        path
        for folder in ("cad", "tests", "benchmarks", "scripts", "pipelines", "configs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md", ".yaml"} and path != Path(__file__)
    ]


def test_every_cited_section_of_the_methods_is_there() -> None:
    methods = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    there = set(re.findall(r"^## (\d+)\. ", methods, flags=re.MULTILINE))
    wanted = {
        (str(path.relative_to(ROOT)), number)
        for path in text_files()
        for number in cited(path.read_text(encoding="utf-8"))
    }
    assert len(wanted) > 20
    assert {(path, number) for path, number in wanted if number not in there} == set()


def test_every_file_that_a_text_names_is_there() -> None:
    """A page in docs/ and a module in cad/, wherever they are named in full."""
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in text_files()
        for name in re.findall(
            r"(?<![\w/.-])(?:docs/[\w-]+\.md|cad/[\w/]+\.py)\b", path.read_text(encoding="utf-8")
        )
        if not (ROOT / name).exists()
    }
    assert wrong == set()


def test_no_text_cites_a_document_outside_the_project() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in text_files()
        for word in re.findall(
            r"\b(?:METHODS|DESIGN|RECIPES)(?:\.md)? \d+", path.read_text(encoding="utf-8")
        )
    ]
    assert not wrong, "\n".join(wrong)


def admissions(text: str) -> list[str]:
    """Return the words by which a text admits that a number cannot be measured again."""
    flat = " ".join(text.split())
    return re.findall(r"no command|not in the repository|an earlier version", flat, re.IGNORECASE)


@pytest.mark.parametrize(
    "name",
    ["evidence", "probability", "real-data", "reproduction", "methods", "robustness", "scale"],
)
def test_every_number_of_a_page_of_evidence_can_be_measured_again(name: str) -> None:
    """Numbers without a command are in docs/history.md, or nowhere."""
    assert admissions((ROOT / f"docs/{name}.md").read_text(encoding="utf-8")) == []


def test_an_admission_is_seen_across_a_line_break() -> None:
    text = "The repository has no\ncommand for this; the code is not in the repository."
    assert admissions(text) == ["no command", "not in the repository"]


WITHOUT_SUBJECT = re.compile(r'''(?:"""|(?<!\S)#:? )(?:What|Whatever|Who|Whoever) .*''')
"""A docstring or comment whose first words leave open what it is about."""


def test_no_docstring_or_comment_leaves_its_subject_open() -> None:
    """With "What" as its first word a text leaves its subject to be guessed from the code."""
    wrong = [
        f"{path.relative_to(ROOT)}: {words}"
        for folder in ("cad", "benchmarks", "scripts", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for words in WITHOUT_SUBJECT.findall(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_subject_that_is_left_open_is_seen() -> None:
    assert WITHOUT_SUBJECT.search('    """' + "What readers allow.")
    assert WITHOUT_SUBJECT.search("x = 1  # " + "Who is first.")
    assert not WITHOUT_SUBJECT.search('"""' + "The limit that readers set.")


def broken(page: Path) -> list[str]:
    """Return the relative links of a page that lead to no file; what the site makes is left out."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if not re.match(r"[a-z]+:", target)
        and target.split("#")[0]
        and not target.startswith("reference/generated/")
        and not (page.parent / target.split("#")[0]).exists()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#x) [b](gone.md) [c](https://example.org) ![d](images/gone.png)")
    assert broken(page) == ["gone.md", "images/gone.png"]


def test_counts_are_those_of_today() -> None:
    """Features by default, and the sample cohort; a count of the past says so ("of then")."""
    sample = {
        name: len((ROOT / "sample_data" / f"{name}.tsv").read_text().splitlines()) - 1
        for name in ("rois", "participants")
    }
    counts = {
        r"\b(\d{3}) (?:default )?features(?! of then)": len(columns_of(FeatureSettings())),
        r"\*\*all\*\* \| \*\*(\d+)\*\*": len(columns_of(FeatureSettings())),
        r"(?<!earlier )sample\scohort,\s(\d+) regions": sample["rois"],
        r"(?:such a cohort \(|`cad demo` has )(\d+) patients": sample["participants"],
    }
    text = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    for pattern, count in counts.items():
        stated = {name: re.findall(pattern, words) for name, words in text.items()}
        assert any(stated.values()), pattern
        assert {n: s for n, s in stated.items() if set(s) - {str(count)}} == {}
