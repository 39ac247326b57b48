"""Variables and functions are called by what they hold (docs/code-glossary.md)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "code-glossary.md").read_text(encoding="utf-8")

COMMAND = "a command, and the function of the program that does its work"
HOOK = "Python itself calls a function of this name"
NAMED_TWICE = {
    "__dir__": HOOK,
    "__getattr__": HOOK,
    "acknowledge": COMMAND,
    "extended_tofts": "one model twice: the simulator must not use the code that it tests",
    "extract": "measures the regions of a study, and as a stage of a run those of all studies",
    "group": "typer prints its docstring as the help of a group of commands",
    "main": "runs a module as a program",
    "measure": "a function of the Python API, and the stage of a run that does its work",
    "predict": "a command, a function of the Python API, and the stage that does their work",
    "read_cohort": "a function of the Python API, and the one that does its work",
    "recalibrate": COMMAND,
    "serve": "a command, its work, and what a child process runs (cad/base/processes)",
    "simulate": COMMAND,
    "suggest": COMMAND,
    "train": "a command, and the stage of a run that does its work",
    "validate": "a function of the Python API, and the stage of a run that does the same",
    "watch_night": COMMAND,
}
"""Functions and classes of one name in two modules, where both do the same; and what they do."""
VAGUE = set(re.findall(r"`(\w+)`", PAGE.split("## Words that name nothing")[1].split(":")[0]))


def vague_names(tree: ast.AST) -> Iterator[str]:
    """Yield every variable, argument and function of a module that is called by a vague word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        else:
            continue
        if name.lstrip("_") in VAGUE:
            yield name


def by_file() -> dict[str, list[str]]:
    """The vague names of every module that has any."""
    names: dict[str, list[str]] = {}
    for path in sorted((ROOT / "cad").rglob("*.py")):
        vague = sorted(set(vague_names(ast.parse(path.read_text(encoding="utf-8")))))
        if vague:
            names[path.relative_to(ROOT).as_posix()] = vague
    return names


def named_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """The modules of every function and class whose name another module has, too.

    An underscore at the beginning makes no other name.
    """
    modules = defaultdict(set)
    for module, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = node.name if node.name.startswith("__") else node.name.lstrip("_")
                modules[name].add(module)
    twice = {}
    for name in sorted(modules):
        if len(modules[name]) > 1:
            twice[name] = sorted(modules[name])
    return twice


def test_a_name_in_two_modules_stands_for_one_thing() -> None:
    """Rename a new function, unless both do the same; then say in NAMED_TWICE what they do."""
    sources = {}
    for path in sorted((ROOT / "cad").rglob("*.py")):
        sources[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    twice = named_twice(sources)
    new = {name: modules for name, modules in twice.items() if name not in NAMED_TWICE}
    assert new == {}
    assert set(NAMED_TWICE) - set(twice) == set(), "these names are no longer in two modules"


def test_a_name_in_two_modules_is_seen() -> None:
    sources = {
        "a.py": "def _text(): ...\ndef row(): ...\nclass Grid: ...",
        "b.py": "def text(): ...\ndef text(): ...\ndef f():\n    def row(): ...",
        "c.py": "class _Grid: ...\nasync def _text(): ...",
    }
    assert named_twice(sources) == {"Grid": ["a.py", "c.py"], "text": ["a.py", "b.py", "c.py"]}


def test_names_say_what_is_held() -> None:
    assert len(VAGUE) == 15
    assert by_file() == {}


@pytest.mark.parametrize(
    "code",
    [
        "said = 1",
        "def f(part): ...",
        "for one in (): ...",
        "def _parts(): ...",
        "[at for at in ()]",
    ],
)
def test_a_vague_name_is_seen(code: str) -> None:
    assert len(list(vague_names(ast.parse(code)))) == 1
