"""The rules that imports here follow."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A rules file of its own, to be changed."""
    from import_cases import RULES

    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path
