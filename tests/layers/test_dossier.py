"""The dossier is true: every control names a test that runs and fails without the control."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import dossier
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
HAZARDS = dossier.hazards()


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """Return the test functions of a file by name."""
    tree = ast.parse(path.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def marks(path: Path, function: ast.FunctionDef) -> str:
    """Return the marks of a test and of its file, as text."""
    written = [ast.unparse(each) for each in function.decorator_list]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            written.append(ast.unparse(node.value))
    return " ".join(written)


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard["id"])
def test_a_hazard_is_whole_and_its_test_is_one_of_the_quick_suite(hazard):
    assert hazard["severity"] in ("high", "medium", "low")
    for part in ("hazard", "cause", "control"):
        assert hazard[part].strip().endswith(".")
    file, _, name = hazard["test"].partition("::")
    found = functions(ROOT / file)
    assert name in found
    # Skipped and left-out tests show nothing.
    assert not re.search(r"skip|slow|faults|fuzz|xfail", marks(ROOT / file, found[name]))


def test_ids_are_in_order_and_once():
    ids = [hazard["id"] for hazard in HAZARDS]
    assert ids == [f"H{number:02d}" for number in range(1, len(ids) + 1)]


@pytest.mark.parametrize(
    "hazard", [each for each in HAZARDS if "remove" in each], ids=lambda hazard: hazard["id"]
)
def test_the_control_stands_once_where_the_page_says(hazard):
    remove = hazard["remove"]
    text = (ROOT / "cad" / remove["file"]).read_text()
    assert text.count(remove["text"]) == 1
    ast.parse(text.replace(remove["text"], remove["put"]))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "hazard", [each for each in HAZARDS if "remove" in each], ids=lambda hazard: hazard["id"]
)
def test_a_control_that_is_taken_out_is_missed(hazard):
    assert dossier.is_noticed(hazard)


def test_generated_pages_are_those_of_today():
    for name, text in dossier.pages().items():
        assert (ROOT / "docs" / "dossier" / name).read_text() == text, "python scripts/dossier.py"


def test_every_direct_package_has_its_purpose():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        if extra not in ("dev", "docs"):
            named += requirements
    names = {Requirement(text).name for text in named}
    known = dossier.yaml.safe_load((ROOT / "docs" / "dossier" / "software.yaml").read_text())
    assert names == set(known)
