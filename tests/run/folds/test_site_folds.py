"""Site effects are those of the training patients, and a new site is left as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.learning.joint_model import from_dict
from cad.mri.features.harmonise import CombatHarmoniser
from cad.run.model.bundle import load_bundle, verify_bundle
from cad.run.model.fold_features import FoldFeatures, Preparation

Measured = Callable[..., Any]


@pytest.fixture
def combat(pipeline: Callable[..., PipelineSettings]) -> PipelineSettings:
    return pipeline(learner={"harmonisation": "combat"})


@pytest.fixture
def source(combat: PipelineSettings, tmp_path: Path) -> FoldFeatures:
    """Twelve patients of three sites, two regions each; site c is shifted and stretched."""
    rng = np.random.default_rng(3)
    n = 24
    sites = np.repeat(["a", "b", "c"], 8)
    X = pd.DataFrame(rng.normal(size=(n, 5)), columns=[f"adc_{i}" for i in range(5)])
    X.loc[sites == "c"] = 4 + 2.5 * X.loc[sites == "c"]
    X.iloc[3, 2] = np.nan
    keys = pd.DataFrame(
        {
            "participant_id": [f"sub-{i // 2}" for i in range(n)],
            "study_id": [f"sub-{i // 2}" for i in range(n)],
            "roi_id": [str(1 + i % 2) for i in range(n)],
        }
    )
    return FoldFeatures(keys, X, combat, [], sites, tmp_path)


def test_site_effects_go_and_missing_values_stay(source: FoldFeatures) -> None:
    rows = np.arange(24)
    raw, found = source.X.to_numpy(), source(rows)
    assert np.isnan(found[3, 2])
    assert np.isfinite(np.delete(found.ravel(), 3 * 5 + 2)).all()
    c = source.sites == "c"

    def gap(x: np.ndarray) -> float:
        return float(np.abs(np.nanmean(x[c], axis=0) - np.nanmean(x[~c], axis=0)).mean())

    assert gap(raw) > 3.5
    assert gap(found) < 0.3
    # The same as the library's transformer on the filled rows.
    filled = np.where(np.isnan(raw), np.nanmedian(raw, axis=0), raw)
    expected = CombatHarmoniser().fit(filled, site=source.sites).transform(filled, source.sites)
    expected[3, 2] = np.nan
    np.testing.assert_array_equal(found, expected)


def test_left_out_rows_decide_nothing(source: FoldFeatures) -> None:
    rows = np.arange(2, 24)
    before, first = source.fit(rows), source(rows)
    source.X.iloc[:2] = source.X.iloc[:2] * 50 - 7
    assert json.dumps(source.fit(rows).as_dict()) == json.dumps(before.as_dict())
    np.testing.assert_array_equal(source(rows)[2:], first[2:])
    assert (source(rows)[:2] != first[:2]).all()
    source.X.iloc[2:4] += 1  # a training patient decides
    assert json.dumps(source.fit(rows).as_dict()) != json.dumps(before.as_dict())


def test_a_site_that_was_left_out_stays_as_it_is(source: FoldFeatures) -> None:
    rows = np.flatnonzero(source.sites != "c")
    found, raw = source(rows), source.X.to_numpy()
    np.testing.assert_array_equal(found[16:], raw[16:])
    assert (found[:3] != raw[:3]).all()
    assert source.fit(rows).unseen(source.sites) == ["c"]


def test_what_a_bundle_stores_gives_the_same_bits(source: FoldFeatures) -> None:
    made = source.fit(np.arange(24))
    again = Preparation.from_dict(json.loads(json.dumps(made.as_dict())))
    np.testing.assert_array_equal(source.apply(again), source.apply(made))
    assert again.unseen(["a", "z", ""]) == ["", "z"]
    assert Preparation.of({"name": "older"}).adjust(source.X, source.sites).shape == (24, 5)


def test_refusals(source: FoldFeatures) -> None:
    source.sites = source.sites.astype("U9")
    source.sites[4] = ""
    with pytest.raises(CadError, match="none for sub-2"):
        source.fit(np.arange(24))
    source.fit(np.delete(np.arange(24), [4, 5]))  # he is not trained on
    source.sites[4:6] = "alone"
    with pytest.raises(CadError, match="'alone' has 2 regions"):
        source.fit(np.arange(24))


def test_a_model_of_two_sites_meets_a_third(
    own_cohort: Path, combat: PipelineSettings, measured: Measured, tmp_path: Path
) -> None:
    run = measured(combat, own_cohort, tmp_path / "validation", "train")
    run.validate()
    assert run.judged.folds is not None
    assert not any(fold.error for fold in run.judged.folds.folds)
    run.fit(tmp_path / "model")
    assert verify_bundle(tmp_path / "model") == 0
    bundle = load_bundle(tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text()
    assert "site effects removed by ComBat: A, B" in text

    # The model's own patients, unchanged: as the learner saw them in training.
    same = measured(combat, own_cohort, tmp_path / "same", "predict")
    same.score(bundle)
    of_the_model = [f"model model: {note}" for note in from_dict(bundle.metadata["joint"]).notes]
    assert same.judged.notes == of_the_model
    source = run.source
    rows = source(np.flatnonzero(run.table.labelled))
    expected = bundle.estimator.predict_proba(rows)[:, 1]
    np.testing.assert_array_equal(same.judged.results["belief"], expected)

    people = pd.read_csv(own_cohort / "participants.tsv", sep="\t")
    people.loc[people["site"] == "B", "site"] = "elsewhere"
    people.to_csv(own_cohort / "participants.tsv", sep="\t", index=False)
    new = measured(combat, own_cohort, tmp_path / "new", "predict")
    new.score(bundle)
    unknown = "model model was not trained on site elsewhere: features there are not harmonised"
    assert sorted(new.judged.notes) == sorted([unknown, *of_the_model])
    elsewhere = (new.table.labels["site"] == "elsewhere").to_numpy()
    raw = new.features[bundle.features].to_numpy(float)
    expected = bundle.estimator.predict_proba(raw[elsewhere])[:, 1]
    judged = new.judged.results.loc[elsewhere, "belief"]
    np.testing.assert_allclose(judged, expected, rtol=1e-14)  # of fewer rows: the last bit
    known = new.judged.results.loc[~elsewhere, "belief"]
    np.testing.assert_array_equal(known, same.judged.results.loc[~elsewhere, "belief"])


def test_whole_sites_left_out(
    small_cohort: Path,
    combat: PipelineSettings,
    measured: Measured,
    tmp_path: Path,
) -> None:
    validation = combat.validate_.model_copy(update={"scheme": "leave-one-site-out"})
    settings = combat.model_copy(update={"validate_": validation})
    run = measured(settings, small_cohort, tmp_path)
    run.validate()
    assert run.judged.folds is not None
    assert [fold.name for fold in run.judged.folds.folds] == ["A", "B"]
    assert run.judged.results["probability"].notna().all()
    # One site is left to train on: there is nothing to harmonise, and rows are the raw ones.
    source = run.source
    training = np.flatnonzero(source.sites == "A")
    np.testing.assert_allclose(source(training), run.table.X.to_numpy(float), rtol=1e-12)


def test_a_cohort_without_sites_is_refused(
    own_cohort: Path, combat: PipelineSettings, tmp_path: Path, measured: Measured
) -> None:
    people = pd.read_csv(own_cohort / "participants.tsv", sep="\t", dtype=str)
    people.drop(columns="site").to_csv(own_cohort / "participants.tsv", sep="\t", index=False)
    run = measured(combat, own_cohort, tmp_path / "run")
    with pytest.raises(CadError, match="needs a site for every patient"):
        run.validate()
