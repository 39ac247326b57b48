"""The layers hold, a module outside them fails, and the page of arrows is the contract's."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
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
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_arrow_upwards_is_seen(copy: Path) -> None:
    path = copy / "cad" / "learners" / "kernels.py"
    path.write_text(
        "import cad.stages.load\n" + path.read_text().replace("from __future__", "#", 1)
    )
    found = lint(copy)
    assert found.returncode == 1
    assert "cad.learners.kernels -> cad.stages.load" in found.stdout


def test_a_module_outside_the_layers_is_seen(copy: Path) -> None:
    (copy / "cad" / "helpers.py").write_text('"""Help."""\n')
    found = lint(copy)
    assert found.returncode == 1
    assert "helpers" in found.stdout


def test_the_arrows_of_the_architecture_page_are_the_contracts() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from architecture import arrows
    finally:
        sys.path.pop(0)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert arrows(contracts) in (ROOT / "CONTRIBUTING.md").read_text()
