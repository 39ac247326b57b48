"""The documented measurements of benchmarks/evidence.py, importable by the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def evidence(repository: Path) -> ModuleType:
    """The module ``benchmarks.evidence``, which is not part of the installed package."""
    spec = importlib.util.spec_from_file_location(
        "benchmarks_evidence", repository / "benchmarks" / "evidence.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
