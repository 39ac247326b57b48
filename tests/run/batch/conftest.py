"""A small simulated cohort, and a pipeline that is quick on it."""

from __future__ import annotations

from pathlib import Path

import pytest

QUICK = """
name: quick
# On voxels as large as these a region of the fewest voxels that count may lose one when its image
# is moved by less than a voxel.
images: {displacement: said}
features: {modalities: [t2w, adc], families: [intensity, histogram]}
learner: {name: ProbabilisticSVC}
validate: {bootstraps: 0}
"""


@pytest.fixture(scope="session")
def simulated(light_cohort: Path) -> Path:
    """Six light simulated patients; read only."""
    return light_cohort


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a pipeline that measures little."""
    path = tmp_path_factory.mktemp("pipeline") / "quick.yaml"
    path.write_text(QUICK)
    return str(path)
