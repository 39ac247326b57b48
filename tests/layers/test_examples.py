"""Public estimators and functions of arrays show how they are called, and what they show runs.

Public functions whose docstring has a section of parameters also say what they return.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cad
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


def test_public_functions_have_examples() -> None:
    """The functions that docs/reference/api.md lists."""
    lacking = []
    for module in (cad, cad.plot, cad.evaluation):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and ">>> " not in (value.__doc__ or ""):
                lacking.append(f"{module.__name__}.{name}")
    assert lacking == []


SECTION_OF_PARAMETERS = re.compile(r"^Parameters\n-+$", re.MULTILINE)
SECTION_OF_RESULT = re.compile(r"^(Returns|Yields)\n-+$", re.MULTILINE)
SECTION = re.compile(r"^(?=\w[\w ]*\n-+$)", re.MULTILINE)
FIRST_SENTENCE_OF_RESULT = re.compile(r"(Return|Yield)\b")
Function = ast.FunctionDef | ast.AsyncFunctionDef
ARRAY = re.compile(r"\b(ndarray|NDArray|Array|Floats|Ints)\b")


def public_functions(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the name and the syntax tree of every public function and method."""
    for node in body:
        if isinstance(node, Function):
            if not node.name.startswith("_"):
                yield f"{owner}{node.name}", node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, f"{owner}{node.name}.")


def gives_a_value(function: Function) -> bool:
    """Tell whether callers get a value of which the docstring has to say what it is.

    They get none from a function that is annotated to return None, or that returns nothing.
    Methods that return their own object, context managers, properties and commands need no section:
    the value of a context manager is stated with the block, and the docstring of a command is the
    help that it prints.
    """
    for decorator in function.decorator_list:
        word = ast.unparse(decorator)
        if "contextmanager" in word or "property" in word or ".command(" in word:
            return False
    annotation = "" if function.returns is None else ast.unparse(function.returns)
    values = []
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            values.append(ast.unparse(node.value))
    if values:
        return annotation != "None" and set(values) != {"self"}
    return annotation not in ("", "None", "Self")


def public_functions_with_parameters() -> Iterator[tuple[str, str, Function, str]]:
    """Yield module, name, syntax tree and docstring of functions that must say what they return."""
    for path in sorted((ROOT / "cad").rglob("*.py")):
        module = module_of(path)
        for name, node in public_functions(ast.parse(path.read_text(encoding="utf-8")).body):
            words = ast.get_docstring(node) or ""
            if SECTION_OF_PARAMETERS.search(words) and gives_a_value(node):
                yield module, name, node, words


def without_returns() -> dict[str, list[str]]:
    """The public functions that describe their parameters and not what they return, by module."""
    lacking: dict[str, list[str]] = {}
    for module, name, _, words in public_functions_with_parameters():
        if not SECTION_OF_RESULT.search(words) and not FIRST_SENTENCE_OF_RESULT.match(words):
            lacking.setdefault(module, []).append(name)
    return lacking


def without_shape() -> dict[str, list[str]]:
    """The public functions that return an array and do not say of what shape, by module."""
    lacking: dict[str, list[str]] = {}
    for module, name, node, words in public_functions_with_parameters():
        kind = "" if node.returns is None else ast.unparse(node.returns)
        if not ARRAY.search(kind) or kind.startswith("Callable"):
            continue
        introduction, *sections = SECTION.split(words)
        on_result = [part for part in sections if SECTION_OF_RESULT.match(part)]
        if "shape" not in " ".join([introduction, *on_result]):
            lacking.setdefault(module, []).append(name)
    return lacking


def test_functions_with_parameters_say_what_they_return() -> None:
    assert without_returns() == {}


def test_functions_that_return_arrays_say_of_what_shape() -> None:
    assert without_shape() == {}


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
