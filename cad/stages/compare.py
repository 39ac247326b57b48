"""Compare: two models on one cohort, region by region."""

from __future__ import annotations

from typing import Any

from cad.model.comparison import compare_runs
from cad.run_folder import RunFolder
from cad.run_folder.records import write_comparison
from cad.stages.judge import Judged


def compare(a: Judged, b: Judged, names: tuple[str, str], folder: RunFolder) -> dict[str, Any]:
    """Return paired differences, calibration and changed decisions, and write them as JSON."""
    result = compare_runs(a.results, b.results, names)
    write_comparison(folder, result)
    return result
