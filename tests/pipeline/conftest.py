"""A small simulated cohort, and one run and one model made on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cad.execution.options import HERE
from cad.phantom import simulate
from cad.pipeline import run_pipeline, train_model

QUICK = """
name: quick
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
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight simulated patients with small images."""
    root = tmp_path_factory.mktemp("cohort") / "cohort"
    simulate(root, patients=8, seed=3, light=True)
    return root


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
