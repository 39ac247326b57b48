"""Docstrings start with a verb, and what a page or a docstring refers to is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "generated" not in page.parts]

# Imperatives with which the docstring of a class, a function or a property may start. A new verb is
# added here; a noun, a question word or a third person is no imperative.
_VERBS = """
accept add align append apply ask average be boost bring build call cancel check choose clone
collect compare compile compute connect copy count crop cut decide decode define describe divide do
draw emit end escape estimate exchange extrapolate factorise fetch fill find finish fit follow free
give handle hide hold import inflate interpolate join judge keep lay learn leave let limit list load
lock look make map mark measure merge minimise mix move name normalise note number offer open order
parse pass plan plot pool prepare print put raise rank read rebuild receive refine refuse regularise
remember remove renumber replace replay report reproduce return run save say scale score search
select send separate serve set share shift show shuffle simulate solve sort speak start state step
store subtract summarise swap sweep take tell threshold train turn unpack use validate wait warn
watch weigh widen write yield
"""
VERBS = frozenset(_VERBS.split())


def no_verbs(tree: ast.AST) -> list[tuple[int, str, str]]:
    """Return line, name and opening of every class and function whose docstring opens otherwise.

    "Number of samples" opens with a noun spelled like a verb: before "of" only "Warn" is a verb.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node) or "").split()[:2]
            noun = words[1:] == ["of"] and words[0] != "Warn"
            if words and (noun or words[0].strip(",.:;").lower() not in VERBS):
                found.append((node.lineno, node.name, " ".join(words)))
    return found


def test_every_docstring_of_the_package_starts_with_a_verb() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {name}: {opening}"
        for path in sorted((ROOT / "cad").rglob("*.py"))
        for line, name, opening in no_verbs(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "opening", ["The kernel", "Returns x.", "What it", "Weights of", "Number of", "scikit-learn's"]
)
@pytest.mark.parametrize("kind", ["class A", "def a()", "async def a()"])
def test_a_noun_is_seen(kind: str, opening: str) -> None:
    tree = ast.parse(f'{kind}:\n    """{opening}"""\n')
    assert [found for _, _, found in no_verbs(tree)] == [opening]


def test_a_verb_is_taken() -> None:
    assert no_verbs(ast.parse('def a():\n    """Warn of a solution."""\n\ndef b(): ...\n')) == []


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


def broken(page: Path) -> list[str]:
    """Return the relative links of a page that lead to no file; what the site makes is left out."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if not re.match(r"[a-z]+:", target)
        and target.split("#")[0]
        and not (page.parent / target.split("#")[0]).exists()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#x) [b](gone.md) [c](https://example.org) ![d](images/gone.png)")
    assert broken(page) == ["gone.md", "images/gone.png"]
