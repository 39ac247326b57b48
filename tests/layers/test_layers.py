"""The layers hold, a module outside them fails, and the page of arrows is the contract's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its contract, to be broken."""
    shutil.copytree(ROOT / "cad", tmp_path / "cad", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(LINT), "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("learning.learners.solvers.kernels", "run.stages.load"),
        ("learning.evaluation.measures.metrics", "learning.evaluation.folds.crossval"),
        ("dicom.out.sr", "dicom.into.rules"),
        ("run.reports.printed", "learning.evaluation.measures.table"),
    ],
)
def test_an_arrow_upwards_is_seen(copy: Path, lower: str, upper: str) -> None:
    """From room to room, within a room, and where reports would compute."""
    path = copy / "cad" / f"{lower.replace('.', '/')}.py"
    text = path.read_text().replace("from __future__", "#", 1)
    path.write_text(f"import cad.{upper}\n{text}")
    found = lint(copy)
    assert found.returncode == 1
    assert f"cad.{lower} -> cad.{upper}" in found.stdout


def test_a_module_outside_the_layers_is_seen(copy: Path) -> None:
    (copy / "cad" / "helpers.py").write_text('"""Help."""\n')
    found = lint(copy)
    assert found.returncode == 1
    assert "helpers" in found.stdout


def circles(root: Path) -> list[list[str]]:
    """Return every circle of imports between modules, and between the parts of each package.

    Imports within functions and those for types only count as any other.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CIRCLES],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


_CIRCLES = """
import json
import grimp
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

graph = grimp.build_graph("cad", exclude_type_checking_imports=False, cache_dir=None)
arrows = [(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)]
found = []
for parts in ["cad", *(m for m in graph.modules if graph.find_children(m)), ""]:
    inside = [p for p in arrows if all(m.startswith(parts + ".") for m in p)] if parts else arrows
    depth = parts.count(".") + 2 if parts else 99
    cut = {tuple(".".join(m.split(".")[:depth]) for m in pair) for pair in inside}
    names = sorted({name for pair in cut for name in pair})
    links = np.zeros((len(names), len(names)), bool)
    for a, b in cut:
        links[names.index(a), names.index(b)] = a != b
    count, label = connected_components(csr_array(links), connection="strong")
    groups = [[n for n, k in zip(names, label) if k == one] for one in range(count)]
    found += [group for group in groups if len(group) > 1]
print(json.dumps(found))
"""


def test_no_circle_of_imports() -> None:
    assert circles(ROOT) == []


@pytest.mark.parametrize("indent", ["", "if TYPE_CHECKING:\n    "])
def test_a_circle_is_seen(copy: Path, indent: str) -> None:
    path = copy / "cad" / "learning" / "learners" / "solvers" / "rows.py"
    head = (
        "from typing import TYPE_CHECKING\n"
        + indent
        + "import cad.learning.learners.solvers.pointwise\n"
    )
    path.write_text(head + path.read_text().replace("from __future__", "#", 1))
    expected = ["cad.learning.learners.solvers.pointwise", "cad.learning.learners.solvers.rows"]
    assert any(set(expected) <= set(group) for group in circles(copy))
