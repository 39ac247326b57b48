"""A small simulated cohort of two sites, and runs over copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cad.cohort import read_cohort
from cad.phantom import simulate
from cad.run import Run
from cad.running import How
from cad.settings import PipelineSettings, parse_settings


@pytest.fixture(scope="session")
def small_cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six patients of two sites; read it, change nothing."""
    root = tmp_path_factory.mktemp("folds") / "cohort"
    simulate(root, 6, seed=5, light=True)
    return root


@pytest.fixture
def own_cohort(small_cohort: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(small_cohort, tmp_path / "cohort"))


@pytest.fixture(scope="session")
def pipeline() -> Callable[..., PipelineSettings]:
    """A quick pipeline with the given sections."""

    def make(**sections: dict[str, Any]) -> PipelineSettings:
        content: dict[str, Any] = {
            "name": "folds",
            "images": {},
            "features": {"modalities": ["t2w", "adc"], "families": ["intensity", "haralick"]},
            "learner": {"name": "ProbabilisticSVC"},
            "validate": {"bootstraps": 0},
        }
        for name, section in sections.items():
            content[name] = {**content[name], **section}
        return parse_settings(PipelineSettings, content)

    return make


@pytest.fixture(scope="session")
def measured() -> Callable[..., Run]:
    """A run whose studies are measured and labelled."""

    def make(settings: PipelineSettings, root: Path, out: Path, kind: str = "run") -> Run:
        run = Run(settings, read_cohort(root), out, How(), kind)
        run.measure()
        run.label()
        return run

    return make
