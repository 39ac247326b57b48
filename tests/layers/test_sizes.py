"""The house stays small enough to read: modules at the top, lines of a file and of a function."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES, FILE_LINES, FUNCTION_LINES = 8, 400, 60


def long_functions(source: str) -> list[tuple[str, int]]:
    """Return what is too long, with its lines, docstring included; numba kernels are left out."""
    return [
        (node.name, lines)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
        and not any(_compiles(decorator) for decorator in node.decorator_list)
    ]


def _compiles(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) in ("njit", "jit", "numba.njit", "numba.jit")


def test_at_most_eight_modules_at_the_top() -> None:
    found = sorted(path.name for path in (ROOT / "cad").glob("[!_]*.py"))
    assert len(found) <= MODULES, found


def test_no_long_file() -> None:
    paths = [path for folder in ("cad", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in paths}
    assert len(lines) > 200
    assert {name: n for name, n in lines.items() if n > FILE_LINES} == {}


def test_no_long_function_outside_numba_kernels() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}": lines
        for path in (ROOT / "cad").rglob("*.py")
        for name, lines in long_functions(path.read_text())
    }
    assert found == {}


def test_the_measure_finds_a_long_function() -> None:
    def source(lines: int, decorator: str = "") -> str:
        return decorator + "def f():\n" + "    pass\n" * (lines - 1)

    assert long_functions(source(FUNCTION_LINES)) == []
    assert long_functions(source(FUNCTION_LINES + 1)) == [("f", FUNCTION_LINES + 1)]
    assert long_functions(source(FUNCTION_LINES + 1, "@numba.njit(cache=True)\n")) == []
    nested = "class C:\n    @property\n" + "".join(
        f"    {line}\n" for line in source(70).splitlines()
    )
    assert long_functions(nested) == [("f", 70)]
