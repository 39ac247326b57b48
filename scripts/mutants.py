"""Change the code of a decision in one place at a time, and see whether a test fails.

``python scripts/mutants.py`` runs every module of ``scripts/mutants.yaml``. With names of modules
it runs only those. ``--sample N`` draws N mutants of each (``--seed``), and ``--list`` prints the
mutants and runs nothing. Each mutant is one change: a reversed comparison, a comparison moved to
its limit, ``and`` for ``or``, a negated condition, an exchanged operator, a changed number or word,
or a statement left out. The tests of the module run on the mutant. A mutant that passes them has
survived.

A file of tests takes 7 seconds to start and 0.5 to run, so that programs that start pytest once for
each mutant (cosmic-ray) take too long. mutmut leaves out decorated functions and the top level of a
module, such as the limits of a decision. Here the libraries are loaded once, and each mutant runs
in a fork that loads this package with the one module changed.

``cad`` checks files of strangers in a child process with limits. That child would load the module
from the disk, where it is not changed. So in the fork the checks run without a child, as they do
within such a child. Tests of the limits themselves (a crash, the memory, the time) cannot guard a
module here.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".yaml")
LIBRARIES = (
    "numba",
    "numpy",
    "pandas",
    "pyarrow.parquet",
    "pydantic",
    "pytest",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.stats",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.svm",
)
"""Libraries that are loaded once; every fork loads the modules of this project anew."""
LEAST_SECONDS = 20
"""A mutant loops if it takes more processor time than this and five times that of the tests."""
LONGEST_WAIT = 3600
"""Seconds by the clock after which a mutant counts as waiting without end."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


Step = tuple[str, int | None]
"""A field of a node and, where it holds a list, a place in it."""


@dataclass(frozen=True)
class Mutant:
    """Hold one change of a module.

    Parameters
    ----------
    line : int
        Line of the module that changes.
    place : str
        Function or class around it; empty at the top of the module.
    before, after : str
        The expression or statement, without and with the change.
    module : Module
        The whole module without the change.
    path : tuple of Step
        Where in the module the changed node stands.
    node : AST
        What takes the node's place.
    """

    line: int
    place: str
    before: str
    after: str
    module: ast.Module
    path: tuple[Step, ...]
    node: ast.AST

    @property
    def tree(self) -> ast.Module:
        """Return a copy of the whole module with the change.

        The copy is made on each call. A large module has so many mutants that a copy for each of
        them would fill the memory.
        """
        changed = copy.deepcopy(self.module)
        _put(_at(changed, self.path[:-1]), self.path[-1], self.node)
        ast.fix_missing_locations(changed)
        return changed

    @property
    def name(self) -> str:
        """Return the name of this mutant in the list of equivalent mutants."""
        return f"{self.place}: {self.before} -> {self.after}"


def mutants_of(source: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    mutants = []
    for path, place in _nodes(tree, (), ""):
        node = _at(tree, path)
        for after in _changes(node):
            ast.copy_location(after, node)
            before = ast.unparse(node)
            mutants.append(
                Mutant(node.lineno, place, before, ast.unparse(after), tree, path, after)
            )
    return sorted(mutants, key=lambda mutant: mutant.line)


def _nodes(node: ast.AST, path: tuple[Step, ...], place: str) -> Iterator[tuple[Any, str]]:
    """Yield the path of every node that may be changed, with the function around the node."""
    for name, field in ast.iter_fields(node):
        # Types and messages of errors decide nothing, and decorators only register functions.
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(field, ast.AST):
            children: list[tuple[Step, ast.AST]] = [((name, None), field)]
        elif isinstance(field, list):
            children = [
                ((name, index), child)
                for index, child in enumerate(field)
                if isinstance(child, ast.AST)
            ]
        else:
            continue
        for step, child in children:
            if _is_docstring(child) or isinstance(child, ast.Import | ast.ImportFrom):
                continue
            # Any other text is a key or the name of a column, and nothing would run with another
            # text.
            if _is_word(child) and not isinstance(node, ast.Compare | ast.Assign | ast.Return):
                continue
            inner = place
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{place}.{child.name}".lstrip(".")
            yield (*path, step), inner
            if not isinstance(child, ast.Raise | ast.JoinedStr):
                yield from _nodes(child, (*path, step), inner)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and _is_word(node.value)


def _is_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _at(node: Any, path: tuple[Step, ...]) -> Any:
    for name, index in path:
        node = getattr(node, name)
        if index is not None:
            node = node[index]
    return node


def _put(holder: ast.AST, step: Step, node: ast.AST) -> None:
    name, index = step
    if index is None:
        setattr(holder, name, node)
    else:
        getattr(holder, name)[index] = node


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may replace a node."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[index] = other()
                yield changed
    elif isinstance(node, ast.BoolOp):
        other_word = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other_word, node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            changed_test = copy.deepcopy(node)
            changed_test.test = ast.UnaryOp(ast.Not(), node.test)
            yield changed_test
    elif isinstance(node, ast.Constant):
        yield from _other_constant(node.value)
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


def _other_constant(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, float):
        yield ast.Constant(value + 0.01)
    elif isinstance(value, str):
        yield ast.Constant(f"{value}*")


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Load one module of the package from a changed tree, and every other module unchanged."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name = name
        self.path = path
        self.code = code

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        return Path(os.fsdecode(path)).read_bytes()

    def get_code(self, fullname: str) -> CodeType:
        return self.code


def tried(
    module: str, tree: ast.Module, tests: Sequence[str], seconds: float
) -> tuple[bool, float]:
    """Return whether tests pass with a module changed, and the processor time that they took.

    A fork that takes more than ``seconds`` of processor time, or dies, does not pass. Time by the
    clock does not count: on a machine with other work, every mutant would be killed.
    """
    path = ROOT / f"{module.replace('.', '/')}.py"
    child = os.fork()
    if child == 0:
        # In any case the child must never continue with the code of its parent.
        status = 2
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(LONGEST_WAIT)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            sys.meta_path.insert(0, _Changed(module, path, compile(tree, str(path), "exec")))
            _run_checks_here()
            import pytest

            status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(status)
    _, code, usage = os.wait4(child, 0)
    return code == 0, usage.ru_utime + usage.ru_stime


def _run_checks_here() -> None:
    """Let this process check files of strangers itself, and start no child that does it."""
    limited = importlib.import_module("cad.base.processes.limited")
    limited._state["limited"] = True


def run_module(module: str, facts: dict[str, Any], mutants: Sequence[Mutant]) -> list[Mutant]:
    """Run the tests of a module on some of its mutants, and return those that survive."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    tests = [str(ROOT / name) for name in facts["tests"]]
    unchanged = ast.parse(path.read_text(encoding="utf-8"))
    passed, seconds = tried(module, unchanged, tests, 600)
    if not passed:
        raise SystemExit(f"{module}: its tests fail without any change")
    limit = max(LEAST_SECONDS, 5 * seconds)
    survivors = []
    for mutant in mutants:
        passed, _ = tried(module, mutant.tree, tests, limit)
        if passed:
            print(f"  survived {path.relative_to(ROOT)}:{mutant.line} {mutant.name}", flush=True)
            survivors.append(mutant)
    return survivors


def main(words: Sequence[str] | None = None) -> int:
    """Print the score of each module; return 1 where a score is below the module's least score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="modules of scripts/mutants.yaml; all without")
    parser.add_argument("--sample", type=int, help="mutants drawn of each module")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--within", default="", help="only mutants of functions of this name")
    options = parser.parse_args(words)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    if not options.list:
        for library in LIBRARIES:
            importlib.import_module(library)
    below = False
    for module in options.modules or list(table):
        facts = table[module]
        equivalent = facts.get("equivalent") or {}
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        mutants = [
            mutant
            for mutant in mutants_of(source)
            if mutant.name not in equivalent and options.within in mutant.place
        ]
        total = len(mutants)
        if options.list:
            for mutant in mutants:
                print(f"{module}:{mutant.line} {mutant.name}")
            print(f"{module}: {total} mutants")
            continue
        if options.sample is not None and options.sample < total:
            mutants = random.Random(options.seed).sample(mutants, options.sample)  # noqa: S311
        start = time.monotonic()
        survivors = run_module(module, facts, mutants)
        score = 1 - len(survivors) / len(mutants)
        print(
            f"{module}: {len(mutants) - len(survivors)} of {len(mutants)} killed ({score:.1%}, "
            f"asked {facts['least']:.0%}), {total} in all, {len(equivalent)} equivalent, "
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )
        below = below or score < facts["least"]
    return int(below)


if __name__ == "__main__":
    raise SystemExit(main())
