"""The page on architecture leads from every number to its one maker; a second one is seen."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import architecture
import numpy as np
import pytest

from cad.folders.run_folder.tables import OUTLINE_COLUMNS, PATIENT_COLUMNS, PROBABILITY_COLUMNS
from cad.learning.evaluation.measures.intervals import Interval
from cad.learning.evaluation.measures.table import MEASURES
from cad.learning.evaluation.summary import (
    Given,
    MeasuredDecisions,
    Summary,
    metrics_content,
)

PACKAGE = Path(__file__).parents[2] / "cad"
# As the cohort's tables have them, or how rows are named and counted.
GIVEN = {
    "participant_id",
    "study_id",
    "roi_id",
    "label",
    "zone",
    "sector",
    "histology",
    "isup",
    "scores",
    "scales",
    "psa",
    "psa_density",
    "age",
    "regions",
}
# Names that other tables use too: who writes them into a run's is not seen by the name.
SHARED = {
    "probability",
    "decision_value",
    "model",
    "warnings",
    "truth",
    "p",
    "eta",
    "n_readers",
    "lower",
    "upper",
    "unknown",
    "outlines",
    "order",
    "alignment",
    "rank",
}
MAKERS = (
    "learning/evaluation/",
    "learning/labels/",
    "folders/",
    "dicom/",
    "run/",
    "hospital/node/",
)
"""Packages that a number passes before it is written or shown."""


RUN_FILES = {"validation.md"}
"""Files of a run folder that end like a file of the project."""


@cache
def rows() -> list[tuple[set[str], dict[str, str]]]:
    """Return what every row of the table keeps, and its functions by module."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("### The way of each number")[1].split("\n## ")[0]
    cells = [line.split("|")[2:4] for line in table.splitlines() if line.startswith("| ")]
    return [
        (set(re.findall(r"`([\w.*/]+)`", kept)), dict(re.findall(r"`([\w/]+\.py)::(\w+)`", made)))
        for kept, made in cells[1:]
    ]


@cache
def one_function() -> dict[tuple[str, str], str]:
    """By table and column, or by ``metrics.json`` and measure: the function that the page names."""
    page = architecture.PAGE.read_text(encoding="utf-8")
    found = {}
    for line in page.splitlines():
        cells = re.fullmatch(r"\| `(\w+)` \| (.+) \| `([\w/]+\.py::\w+)` \|", line)
        if cells:
            name, second, maker = cells.groups()
            file = second.strip("`") if second.startswith("`") else "metrics.json"
            found[file, name] = maker
    return found


def modules_of(name: str) -> set[str]:
    return {path for kept, makers in rows() if name in kept for path in makers}


@cache
def trees() -> dict[str, ast.Module]:
    return {
        p.relative_to(PACKAGE).as_posix(): ast.parse(p.read_text()) for p in PACKAGE.rglob("*.py")
    }


def writes(node: ast.AST) -> list[object]:
    """Names of the columns that an expression writes."""
    if isinstance(node, ast.Assign):
        return [
            part.value
            for target in node.targets
            if isinstance(target, ast.Subscript)
            for part in ast.walk(target.slice)
            if isinstance(part, ast.Constant)
        ]
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assign":
        return [word.arg for word in node.keywords]
    if isinstance(node, ast.Dict):
        return [key.value for key in node.keys if isinstance(key, ast.Constant)]
    return []


def records(kind: Any) -> set[Any]:
    """The record types that a type holds, itself among them."""
    if is_dataclass(kind):
        inner = [records(hint) for hint in get_type_hints(kind).values()]
        return {kind}.union(*inner)
    return set().union(*map(records, get_args(kind)))


@cache
def made() -> dict[object, set[str]]:
    """By the name of a class or a column, the modules that make it."""
    found: dict[object, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found[f"{getattr(node.func, 'id', '')}()"].add(path)
            if path.startswith(MAKERS):
                for name in writes(node):
                    found[name].add(path)
    # A section of settings; a rule's name in FHIR; what the viewer colours an outline by.
    found["decision"] -= {"run/stages/predict.py", "dicom/out/fhir.py", "run/reports/views.py"}
    found["belief"].discard("run/workflows/watch.py")  # the name of a chart
    for makers in found.values():
        makers.discard("run/reports/printed.py")  # --json repeats what the table holds
    return found


def test_every_function_that_the_page_names_is_there() -> None:
    assert len(rows()) > 30
    for _, makers in rows():
        assert makers
        for path, function in makers.items():
            names = {getattr(node, "name", "") for node in ast.walk(trees()[path])}
            assert function in names, f"{path}::{function}"


def run_folder_parts() -> set[str]:
    """Return the folders of a run folder, as the page's table of files names them."""
    return set(re.findall(r"`(\w+)/", architecture.files_table()))


def defined(path: Path) -> set[str]:
    """Return the names of all functions and classes of a module."""
    return {getattr(node, "name", "") for node in ast.walk(ast.parse(path.read_text()))}


def gone(page: str) -> list[str]:
    """Return the paths, functions and modules that a page on the code names and that are absent.

    A path is below the project, below ``cad/``, or below the path that begins its line.
    """
    root = PACKAGE.parent
    absent = []
    for line in page.splitlines():
        codes = re.findall(r"`([^`]+)`", line)
        bases = [root, PACKAGE, *(PACKAGE / code for code in codes[:1])]
        for code in codes:
            if re.fullmatch(r"cad(\.\w+)+", code):
                module = root / code.replace(".", "/")
                if not module.is_dir() and not module.with_suffix(".py").is_file():
                    absent.append(code)
                continue
            name, _, function = code.partition("::")
            is_path = re.fullmatch(r"[\w.]+(/[\w.*-]*)+|[\w.]+\.(py|toml|yaml|md)", name)
            if not is_path or name.split("/")[0] in run_folder_parts() | {"report"}:
                continue
            paths = [found for base in bases for found in sorted(base.glob(name.rstrip("/")))]
            if name not in RUN_FILES and not paths:
                absent.append(code)
            if function and paths and function not in defined(paths[0]):
                absent.append(code)
    return absent


def test_every_path_and_module_of_the_page_is_there() -> None:
    assert gone(architecture.PAGE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("see `run/gone.py`", ["run/gone.py"]),
        ("see `tests/layers/gone.py`", ["tests/layers/gone.py"]),
        ("see `run/pipeline.py::gone`", ["run/pipeline.py::gone"]),
        ("see `pipelines/*.yml`", ["pipelines/*.yml"]),
        ("| `suggestions.csv` | `cad.run.workflows.gone` |", ["cad.run.workflows.gone"]),
        ("| `learning/evaluation/` | `measures/`, `gone/` |", ["gone/"]),
        ("| `cad/run/pipeline.py`, `docs/folds.md`, `studies/sub-XXX.npz` |", []),
    ],
)
def test_a_path_that_is_gone_is_seen(line: str, absent: list[str]) -> None:
    assert gone(line) == absent


def test_the_blocks_and_the_picture_are_those_of_the_code() -> None:
    text = architecture.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- from the code: ") == len(architecture.blocks())
    assert architecture.page(text) == text, "python scripts/architecture.py"
    picture = architecture.PICTURE.read_text(encoding="utf-8")
    assert picture == architecture.drawn_floors(), "python scripts/architecture.py"


def test_another_order_of_stages_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(architecture), "body", lambda *_: "measured = measure(loaded)")
    text = architecture.PAGE.read_text(encoding="utf-8")
    assert architecture.page(text) != text


NUMBERS = sorted(one_function())
DRAWN = [NUMBERS[i] for i in np.random.default_rng(67).choice(len(NUMBERS), 30, replace=False)]


@pytest.mark.parametrize(("file", "name"), DRAWN, ids=".".join)
def test_a_number_drawn_by_chance_leads_to_its_one_function(file: str, name: str) -> None:
    """The function is there, and who writes the column is its module or calls it."""
    module, function = one_function()[file, name].split("::")
    assert function in {getattr(node, "name", "") for node in trees()[module].body}
    if file == "metrics.json":
        assert (name, module) == (function, "learning/evaluation/measures/metrics.py")
        assert name in MEASURES
        return
    writers = made()[name]
    if name not in GIVEN | SHARED and file != "explanations.csv":
        assert writers <= modules_of(name)
    callers = {
        writer
        for writer in writers
        if function
        in {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(trees()[writer])}
    }
    assert not writers or module in writers or callers, writers


def test_the_one_function_of_a_column_is_on_its_way() -> None:
    """The short table and the long one speak of the same functions."""
    strangers = {
        (name, maker)
        for (file, name), maker in one_function().items()
        if file in ("probabilities.csv", "patients.csv")
        and name not in GIVEN
        and maker.split("::")[0] not in modules_of(name)
    }
    assert strangers == set()


def test_every_column_and_measure_is_on_the_page() -> None:
    kept = set().union(*(names for names, _ in rows()))
    columns = {*PROBABILITY_COLUMNS, *PATIENT_COLUMNS, *OUTLINE_COLUMNS} - GIVEN
    measures = set(metrics_content(Summary(), MeasuredDecisions()))
    assert (columns | measures) - kept == set()


COLUMNS = sorted({*PROBABILITY_COLUMNS, *PATIENT_COLUMNS, *OUTLINE_COLUMNS} - GIVEN - SHARED)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_is_written_by_those_whom_the_page_names(column: str) -> None:
    assert made()[column] <= modules_of(column)


@pytest.mark.parametrize("field", sorted(get_type_hints(Summary)))
def test_a_measure_has_one_maker_and_the_page_names_it(field: str) -> None:
    held = records(get_type_hints(Summary)[field]) - {
        Interval,
        Given,
    }  # values of many measures
    assert {path for kind in held for path in made()[f"{kind.__name__}()"]} <= {
        *modules_of(field),
        *({"learning/evaluation/decisions/reject.py"} if field == "decisions" else ()),
        *({"learning/evaluation/decisions/operating.py"} if field == "patient_level" else ()),
        *({"learning/evaluation/readers/mrmc.py"} if field == "assisted" else ()),
    }


def test_a_second_maker_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "table = table.assign(suspicion=Decisions(1, 1.0, {}, None, None, None, ''))"
    monkeypatch.setitem(trees(), "run/workflows/check.py", ast.parse(source))
    made.cache_clear()
    try:
        for name in ("suspicion", "decisions"):
            kind = "Decisions()" if name == "decisions" else name
            assert made()[kind] - modules_of(name) == {"run/workflows/check.py"}
    finally:
        made.cache_clear()
