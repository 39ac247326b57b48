"""A small simulated cohort, its first patient, and one run and one model made on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cad.run.execution.options import HERE
from cad.run.pipeline import run_pipeline, train_model

QUICK = """
name: quick
# On voxels as large as these a region of the fewest voxels that count may lose one when its image
# is moved by less than a voxel.
images: {displacement: said}
features: {families: [intensity, semiquantitative], texture: {bins: 16}}
learner: {name: ProbabilisticSVC, params: {C: 1.0}}
validate: {bootstraps: 50}
"""


@pytest.fixture(scope="session")
def quick_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of few features, so that a run takes seconds."""
    path = tmp_path_factory.mktemp("pipeline") / "quick.yaml"
    path.write_text(QUICK)
    return path


@pytest.fixture(scope="session")
def cohort(light_cohort: Path) -> Path:
    """Six simulated patients with small images; read only."""
    return light_cohort


@pytest.fixture(scope="session")
def first_patient(
    cohort: Path,
    part_of: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The cohort's first patient alone; read only."""
    return part_of(cohort, tmp_path_factory.mktemp("first") / "cohort", ["sub-0001"])


@pytest.fixture(scope="session")
def run_folder(
    cohort: Path, quick_pipeline: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("run") / "run"
    assert run_pipeline(str(quick_pipeline), cohort, out, HERE).failures == []
    return out


@pytest.fixture(scope="session")
def model(cohort: Path, quick_pipeline: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model bundle trained on the cohort."""
    out = tmp_path_factory.mktemp("model") / "quick-model"
    train_model(str(quick_pipeline), cohort, out, HERE)
    return out
