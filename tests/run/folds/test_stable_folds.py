"""Stable features are chosen on the training patients, before any other selection."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import PipelineSettings
from cad.mri.features.robustness import stable_features
from cad.run.model.bundle import load_bundle
from cad.run.model.estimator import make_estimator
from cad.run.model.fold_features import FoldFeatures

Measured = Callable[..., Any]
NAMES = ["adc_steady", "adc_noise", "adc_depends", "adc_not_redrawn"]
REPEATS = 4


@pytest.fixture
def stable(pipeline: Callable[..., PipelineSettings]) -> PipelineSettings:
    return pipeline(features={"robustness": {"stable_only": True, "repeats": REPEATS}})


@pytest.fixture
def source(stable: PipelineSettings, tmp_path: Path) -> FoldFeatures:
    """Twelve studies of two regions; ``adc_depends`` is noise in the first six only."""
    rng = np.random.default_rng(8)
    results, keys, rows = [], [], []
    for i in range(12):
        patient, blocks = f"sub-{i:02d}", []
        for _ in range(2):
            level = rng.normal(size=3)
            copies = np.tile(level, (1 + REPEATS, 1)) + 0.02 * rng.normal(size=(1 + REPEATS, 3))
            copies[:, 1] = rng.normal(size=1 + REPEATS)
            if i < 6:
                copies[:, 2] = rng.normal(size=1 + REPEATS)
            blocks.append(copies)
            rows.append([*copies[0], rng.normal()])
        path = tmp_path / f"{patient}.npz"
        np.savez(
            path,
            key=patient,
            roi_ids=["1", "2"],
            participant_id=patient,
            copies=np.concatenate(blocks),
            copy_names=NAMES[:3],
            copy_roi_id=np.repeat(["1", "2"], 1 + REPEATS),
            copy_repeat=np.tile(np.arange(1 + REPEATS), 2),
        )
        results.append(path)
        keys += [(patient, patient, roi) for roi in ("1", "2")]
    table = pd.DataFrame(keys, columns=["participant_id", "study_id", "roi_id"])
    X = pd.DataFrame(rows, columns=NAMES)
    return FoldFeatures(table, X, stable, results, [""] * 24, tmp_path / "folds")


def test_training_patients_decide(source: FoldFeatures) -> None:
    first, last = np.arange(12), np.arange(12, 24)
    assert source.fit(first).unstable == ("adc_noise", "adc_depends", "adc_not_redrawn")
    assert source.fit(last).unstable == ("adc_noise", "adc_not_redrawn")
    found = source(last)
    np.testing.assert_array_equal(found[:, [0, 2]], source.X.to_numpy()[:, [0, 2]])
    assert np.isnan(found[:, [1, 3]]).all()
    assert "2 of 4" not in source.notes[0]
    assert "1 of 4" in source.notes[0]


@pytest.mark.filterwarnings("ignore::cad.learning.learners.base.RangeWarning")
def test_an_unstable_feature_moves_no_probability(source: FoldFeatures) -> None:
    rows = np.arange(12, 24)
    y = (source.X["adc_steady"].to_numpy() > 0).astype(float)
    assert 0 < y[rows].sum() < 12
    found = source(rows)
    estimator = make_estimator(source.settings).fit(found[rows], y[rows])
    before = estimator.predict_proba(found)[:, 1]
    for column, moves in ((0, True), (1, False), (2, True), (3, False)):
        changed = found.copy()
        changed[:, column] = np.nan_to_num(changed[:, column]) + 3
        assert (estimator.predict_proba(changed)[:, 1] != before).any() == moves, NAMES[column]


def test_a_whole_run(
    small_cohort: Path,
    pipeline: Callable[..., PipelineSettings],
    measured: Measured,
    tmp_path: Path,
) -> None:
    settings = pipeline(
        features={"robustness": {"stable_only": True, "repeats": REPEATS}},
        learner={"selection": "t-test", "n_features": 4},
    )
    run = measured(settings, small_cohort, tmp_path / "run", "train")
    run.validate()
    run.write()
    assert run.judged.folds is not None
    copies, names = run.source._copies, list(run.table.X.columns)
    assert len(copies) == len(run.features) * (1 + REPEATS)
    different = set()
    for fold in run.judged.folds.folds:
        assert fold.features is not None
        training = sorted(set(run.table.groups) - {fold.name})
        kept = stable_features(copies, training)
        assert 4 < len(kept) < len(names)
        assert len(fold.features) == 4
        assert {names[i] for i in fold.features} <= set(kept)
        different.add(tuple(kept))
    assert len(different) > 1
    warned = json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    assert any(said.startswith("learned from stable features only") for said in warned)

    # The region as drawn is the first of its copies: the table and the copies agree.
    drawn = copies[copies["repeat"] == 0].reset_index(drop=True)
    np.testing.assert_allclose(drawn[names], run.features[names], rtol=1e-9)

    run.fit(tmp_path / "model")
    bundle = load_bundle(tmp_path / "model")
    assert "that redrawing changes are not used" in (tmp_path / "model" / "README.md").read_text()
    new = measured(settings, small_cohort, tmp_path / "new", "predict")
    with np.load(new.measured.results[0]) as archive:
        assert "copies" not in archive  # nothing is redrawn to apply a model
    new.score(bundle)
    raw = new.features[bundle.features].to_numpy(float)
    expected = bundle.estimator.predict_proba(raw)[:, 1]
    np.testing.assert_array_equal(new.judged.results["belief"], expected)
