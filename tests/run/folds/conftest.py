"""A small simulated cohort of two sites, and runs over copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cad.base.settings import PipelineSettings, parse_settings
from cad.evidence.phantom import simulate
from cad.mri.imaging.standardise import NyulScale
from cad.run.execution.options import HERE
from cad.run.model.bundle import Bundle
from cad.run.model.fold_features import FoldFeatures
from cad.run.stages.aggregate import Table, aggregate, extend
from cad.run.stages.decide import decide_run
from cad.run.stages.emit import emit
from cad.run.stages.extract import extract, measure
from cad.run.stages.judge import Judged
from cad.run.stages.load import Kind, load
from cad.run.stages.predict import first_scale, predict
from cad.run.stages.train import train
from cad.run.stages.validate import validate


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
            # The coarse images of the cohort keep every region where it was drawn.
            "images": {"displacement": "said"},
            "features": {"modalities": ["t2w", "adc"], "families": ["intensity", "haralick"]},
            "learner": {"name": "ProbabilisticSVC"},
            "validate": {"bootstraps": 0},
        }
        for name, section in sections.items():
            content[name] = {**content[name], **section}
        return parse_settings(PipelineSettings, content)

    return make


class Steps:
    """The stages one after the other, so that a test can look between them."""

    def __init__(self, settings: PipelineSettings, root: Path, out: Path, kind: Kind) -> None:
        self.loaded = load(settings, root, out, HERE, kind)
        self.measured = measure(self.loaded)
        self._label()

    def _label(self, scale: NyulScale | None = None) -> None:
        self.extracted = extract(self.loaded, self.measured, scale)
        self.aggregated = aggregate(self.loaded, self.extracted)

    @property
    def features(self) -> pd.DataFrame:
        """Features as stored."""
        return self.extracted.features

    @property
    def source(self) -> FoldFeatures:
        """Features as folds make them."""
        return self.aggregated.source

    @property
    def table(self) -> Table:
        """Rows that learners see."""
        return self.aggregated.table

    def validate(self) -> Judged:
        """Out-of-fold probabilities."""
        self.judged = validate(self.loaded, self.aggregated)
        return self.judged

    def write(self) -> None:
        """The run's tables and pages."""
        decided = decide_run(self.loaded, self.measured.failures, self.judged)
        emit(self.loaded, self.measured, decided)

    def fit(self, out: Path) -> None:
        """A bundle."""
        train(self.loaded, self.aggregated, self.judged, out)

    def extend(self, bundle: Bundle) -> None:
        """Rows of an earlier model after the cohort's."""
        self.aggregated = extend(self.loaded, self.aggregated, bundle)

    def score(self, bundle: Bundle) -> Judged:
        """Probabilities of a trained model, features on its scale."""
        self._label(first_scale([bundle]))
        self.judged = predict(self.loaded, self.extracted, self.aggregated, [bundle])
        return self.judged


@pytest.fixture(scope="session")
def measured() -> Callable[..., Steps]:
    """A run whose studies are measured and labelled."""

    def make(settings: PipelineSettings, root: Path, out: Path, kind: Kind = "run") -> Steps:
        return Steps(settings, root, out, kind)

    return make
