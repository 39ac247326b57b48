"""The documented measurements of benchmarks/, importable by the tests."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


def _benchmark(repository: Path, name: str) -> ModuleType:
    """Import a module of ``benchmarks``, which is not part of the installed package."""
    if str(repository) not in sys.path:
        sys.path.append(str(repository))
    return import_module(f"benchmarks.{name}")


@pytest.fixture(scope="session")
def evidence(repository: Path) -> ModuleType:
    """Return ``benchmarks.evidence``."""
    return _benchmark(repository, "evidence")


@pytest.fixture(scope="session")
def ablation(repository: Path) -> ModuleType:
    """Return ``benchmarks.ablation``."""
    return _benchmark(repository, "ablation")


@pytest.fixture(scope="session")
def coverage(repository: Path) -> ModuleType:
    """Return ``benchmarks.coverage``."""
    return _benchmark(repository, "coverage")
