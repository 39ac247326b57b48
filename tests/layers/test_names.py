"""Variables and functions are called by what they hold (docs/code-glossary.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "code-glossary.md").read_text(encoding="utf-8")
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
