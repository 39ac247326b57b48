"""The conformance statement is what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_the_statement_is_current(repository: Path):
    page = runpy.run_path(str(repository / "scripts" / "conformance_page.py"))["conformance_page"]()
    assert (repository / "docs" / "conformance.md").read_text() == page
    for word in ("Comprehensive 3D SR Storage", "Segmentation Storage", "Implicit VR", "C-GET"):
        assert word in page
