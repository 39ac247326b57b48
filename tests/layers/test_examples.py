"""Public estimators and functions of arrays show how they are called, and what they show runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pydoc
from pathlib import Path

import pytest

from cad import learners

ROOT = Path(__file__).resolve().parents[2]
SHOWN = [
    path
    for path in sorted((ROOT / "cad").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def module_of(path: Path) -> str:
    name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    return name.removesuffix(".__init__")


@pytest.mark.parametrize("path", SHOWN, ids=module_of)
def test_every_example_runs(path: Path) -> None:
    done = doctest.testmod(importlib.import_module(module_of(path)))
    assert done.attempted > 0
    assert done.failed == 0


def without_example() -> dict[str, list[str]]:
    """The public functions of arrays that have no example, by module."""
    lacking: dict[str, list[str]] = {}
    for path in sorted((ROOT / "cad").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            arguments = [*node.args.args, *node.args.kwonlyargs]
            kinds = [ast.unparse(word.annotation) for word in arguments if word.annotation]
            takes_arrays = any("ndarray" in kind or "Array" in kind for kind in kinds)
            if takes_arrays and ">>> " not in (ast.get_docstring(node) or ""):
                lacking.setdefault(module_of(path), []).append(node.name)
    return lacking


def test_functions_of_arrays_have_examples() -> None:
    assert without_example() == {}


LEARNERS = [kind for name in learners.__all__ if inspect.isclass(kind := getattr(learners, name))]


@pytest.mark.parametrize("kind", LEARNERS)
def test_every_learner_has_an_example(kind: type) -> None:
    assert ">>> " in (kind.__doc__ or "")


@pytest.mark.parametrize("kind", LEARNERS)
def test_help_of_a_learner_is_readable(kind: type) -> None:
    """A line of a signature had 1,900 characters, most of them what ArrayLike stands for."""
    page = pydoc.plain(pydoc.render_doc(kind))
    longest = max(page.splitlines(), key=len)
    assert len(longest) < 500, longest
    for name in ("fit", "predict_proba", "decision_function"):
        method = getattr(kind, name, None)
        if method is not None:
            assert len(str(inspect.signature(method))) < 250
