"""A docstring names the arguments that its function has: renaming one left the old name behind."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}|\Z)", re.DOTALL | re.MULTILINE)


def documented(node: ast.FunctionDef) -> list[str]:
    """The names in a function's section Parameters."""
    section = PARAMETERS.search(ast.get_docstring(node) or "")
    if section is None:
        return []
    names = []
    for line in section[1].splitlines():
        if line and not line.startswith(" "):
            for name in line.split(" :")[0].split(","):
                names.append(name.strip().lstrip("*"))
    return names


def arguments(node: ast.FunctionDef) -> set[str]:
    """The names of a function's arguments."""
    each = node.args
    names = {word.arg for word in (*each.posonlyargs, *each.args, *each.kwonlyargs)}
    return names | {word.arg for word in (each.vararg, each.kwarg) if word is not None}


def test_a_docstring_names_the_arguments_that_there_are() -> None:
    strange = set()
    for path in sorted((ROOT / "cad").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for name in documented(node):
                    if name not in arguments(node):
                        place = path.relative_to(ROOT).as_posix()
                        strange.add(f"{place}: {node.name}({name})")
    assert strange == set()
