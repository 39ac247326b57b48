"""The helpers in tests/support are importable; the rules that imports here follow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_SUPPORT = str(Path(__file__).resolve().parents[1] / "support")
if _SUPPORT not in sys.path:
    sys.path.insert(0, _SUPPORT)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A rules file of its own, to be changed."""
    from import_cases import RULES

    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path
