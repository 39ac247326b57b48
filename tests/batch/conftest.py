"""A small simulated cohort, and a pipeline that is quick on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

QUICK = """
name: quick
features: {modalities: [t2w, adc], families: [intensity, histogram]}
learner: {name: ProbabilisticSVC}
validate: {bootstraps: 0}
"""


@pytest.fixture(scope="session")
def simulated(
    light_cohort: Path,
    part_of: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Six light simulated patients; read only."""
    six = [f"sub-{k:04d}" for k in range(1, 7)]
    return part_of(light_cohort, tmp_path_factory.mktemp("batch") / "cohort", six)


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a pipeline that measures little."""
    path = tmp_path_factory.mktemp("pipeline") / "quick.yaml"
    path.write_text(QUICK)
    return str(path)
