"""Changes of the code of a decision: which are made, and that one is noticed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mutants import TABLE, mutants_of

ROOT = Path(__file__).resolve().parents[2]
MODULES = yaml.safe_load(TABLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("a == b", ["a != b"]),
        ("a < 2", ["a <= 2", "a >= 2", "3"]),
        ("a not in b", ["a in b"]),
        ("a and b", ["a or b"]),
        ("not a", ["a"]),
        ("a + b", ["a - b"]),
        ("x = 'benign'", ["'benign*'"]),
        ("x = 0.5", ["0.51"]),
        ("f('column')", ["pass"]),
        ("x += y", ["pass"]),
        ("x = f(a, strict=True)", ["False"]),
        ("raise ValueError('of 2')", ["pass"]),
        ("if a:\n    b", ["if not a:\n    b"]),
        ('"""Say it."""', []),
        ("import a", []),
    ],
)
def test_a_change_is_one_of_these(code: str, changes: list[str]) -> None:
    mutants = mutants_of(code)
    assert [mutant.after for mutant in mutants] == changes
    for mutant in mutants:
        assert ast.unparse(mutant.tree) != ast.unparse(ast.parse(code))


@pytest.mark.parametrize("module", list(MODULES))
def test_what_the_table_names_is_there(module: str) -> None:
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    names = {mutant.name for mutant in mutants_of(source)}
    assert set(MODULES[module].get("equivalent") or {}) <= names
    for test in MODULES[module]["tests"]:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE)


CALLS = """
import ast, sys
sys.path.insert(0, {scripts!r})
from mutants import ROOT, mutants_of, tried
source = (ROOT / "cad/base/terms/text.py").read_text()
for mutant in mutants_of(source):
    if mutant.name == "side_of_half: mean > 0.5 -> mean >= 0.5":
        for tree in (ast.parse(source), mutant.tree):
            print(tried("cad.base.terms.text", tree, [{test!r}], 60)[0], flush=True)
"""
CALLED = {
    "at once": "side_of_half(0.5)",
    "as a file of strangers is checked": "call_limited(side_of_half, 0.5, seconds=9, gigabytes=1)",
}


@pytest.mark.parametrize("how", CALLED)
def test_a_change_of_a_limit_is_noticed(tmp_path: Path, how: str) -> None:
    """In a process of its own: this one has loaded the module, and runs tests already."""
    test = tmp_path / "test_half.py"
    test.write_text(
        "from cad.base.processes.limited import call_limited\n"
        "from cad.base.terms.text import side_of_half\n\n\n"
        "def test_one_half_is_on_neither_side():\n"
        f"    assert {CALLED[how]} == 'equivocal'\n"
    )
    calls = CALLS.format(scripts=str(ROOT / "scripts"), test=str(test))
    done = subprocess.run(
        [sys.executable, "-c", calls], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]
