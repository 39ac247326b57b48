"""A reader with the tool: weights, prior, fairness to a useless tool, and storage."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from cad.base.errors import CadError
from cad.base.files import json_safe, typed
from cad.learning.evaluation.measures.centring import ranked
from cad.learning.evaluation.measures.metrics import auc, calibration_slope
from cad.learning.evaluation.readers.assisted import (
    LEAST_TOOL,
    Combinations,
    assist,
    fit_combinations,
)
from cad.learning.logistic import fit_logistic

NAMES = ["r1", "r2", "r3"]


def cohort(
    seed: int, patients: int = 40, rois: int = 7, tool: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return truth, three readers' Likert scores, a classifier and patients."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(patients), rois)
    truth = (rng.random(len(group)) < 0.2).astype(float)
    percept = 1.6 * truth + rng.normal(size=(3, len(group)))
    scores = np.digitize(percept, [-0.3, 0.4, 1.1, 1.8]) / 4
    scores[rng.random(scores.shape) < 0.04] = np.nan
    shared = 0.7 * rng.normal(size=patients)[group]
    q = expit(tool * (1.8 * truth - 1) + rng.normal(size=len(group)) + shared - 1)
    return truth, scores, q, group


def test_logistic_without_prior_is_maximum_likelihood_and_with_one_is_ridge() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (rng.random(200) < expit(X @ [1.0, -2.0] + 0.3)).astype(float)
    design = np.column_stack([np.ones(200), X])
    plain = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(fit_logistic(design, y)[1:], plain.coef_[0], atol=1e-5)
    ridge = LogisticRegression(C=0.5, tol=1e-10).fit(X, y)
    found = fit_logistic(design, y, precision=np.array([0.0, 2.0, 2.0]))
    np.testing.assert_allclose(found, [ridge.intercept_[0], *ridge.coef_[0]], atol=1e-5)
    # Many weightings side by side, each as scikit-learn weighs samples.
    weight = rng.integers(0, 3, (5, 200)).astype(float)
    for own, w in zip(fit_logistic(design, y, weight=weight), weight, strict=True):
        alone = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y, sample_weight=w)
        np.testing.assert_allclose(own, [alone.intercept_[0], *alone.coef_[0]], atol=1e-5)
        np.testing.assert_allclose(design.T @ (w * (expit(design @ own) - y)), 0, atol=1e-10)
    # The gradient of the posterior vanishes at another centre too.
    mean, precision = np.array([0.0, 3.0, 3.0]), np.array([0.1, 4.0, 4.0])
    beta = fit_logistic(design, y, mean=mean, precision=precision, offset=0.2)
    gradient = design.T @ (expit(0.2 + design @ beta) - y) + precision * (beta - mean)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_every_reader_gains_and_probabilities_are_calibrated() -> None:
    truth, scores, q, group = cohort(0)
    found, probability = assist(truth, scores, q, group, NAMES)
    assert found.test is not None
    assert found.test.difference > 0
    assert "helps" in found.sentence()
    for name, own in zip(NAMES, scores, strict=True):
        seen = np.isfinite(own)
        p = probability[name]
        assert (np.isfinite(p) == seen).all()
        part = found.readers[name]
        assert part["alone"].value == pytest.approx(auc(truth[seen], own[seen]))
        assert part["with_tool"].value > part["alone"].value
        assert 0.6 < calibration_slope(truth[seen], p[seen]) < 1.5


def test_weights_are_fitted_without_the_patient() -> None:
    truth, scores, q, group = cohort(1, patients=20)
    before = assist(truth, scores, q, group, NAMES)[1]["r1"]
    changed = np.where(group == 3, 1 - truth, truth)
    after = assist(changed, scores, q, group, NAMES)[1]["r1"]
    np.testing.assert_array_equal(before[group == 3], after[group == 3])
    assert not np.array_equal(before[group != 3], after[group != 3], equal_nan=True)


def test_few_regions_give_plain_addition_and_an_average_reader() -> None:
    """With the prior alone the tool's log-odds are added as they are."""
    truth, scores, q, _ = cohort(2)
    scores[2, 5:] = np.nan  # a reader with five regions
    found = fit_combinations(truth, scores, q, NAMES)
    far = abs(found.readers["r3"].score - found.anyone.score)
    assert far < 0.3 * found.anyone.score
    assert found.readers["r3"].n <= 5
    tool = {part.tool for part in (*found.readers.values(), found.anyone)}
    assert len(tool) == 1
    p, note = found.probability("r9", np.array([0.5]), np.array([0.3]))
    expected = found.anyone.intercept + 0.5 * found.anyone.score + tool.pop() * logit(0.3)
    assert p[0] == pytest.approx(expit(expected))
    assert "r9" in note
    assert found.probability("r1", np.array([0.5]), np.array([0.3]))[1] == ""


def test_a_useless_tool_is_not_called_harmful() -> None:
    """Ranks by fold keep equal scores equal in expectation; the full 100: benchmarks.outcomes."""
    p, differences = [], []
    for seed in range(12):
        truth, scores, _, group = cohort(100 + seed, patients=25)
        noise = np.random.default_rng(seed).normal(size=len(truth))
        found, _ = assist(truth, scores, expit(noise - 1), group, NAMES)
        assert found.test is not None
        p.append(found.test.p)
        differences.append(found.test.difference)
    assert np.sum(np.array(p) < 0.05) <= 3  # P(more of 12 at level .05) = .002
    assert abs(np.mean(differences)) < 0.01


def test_the_tool_is_never_weighted_against_itself() -> None:
    truth, scores, q, _ = cohort(3)
    found = fit_combinations(truth, scores, 1 - q, NAMES)
    assert found.anyone.tool == LEAST_TOOL


def test_json_and_back() -> None:
    truth, scores, q, _ = cohort(4)
    found = fit_combinations(truth, scores, q, NAMES)
    again = typed(Combinations, json.loads(json.dumps(json_safe(found))))
    assert again == found


def test_too_little_histology_is_refused_and_one_reader_is_not_tested() -> None:
    truth, scores, q, group = cohort(5)
    with pytest.raises(CadError, match="weights of readers need 5"):
        assist(np.full(len(truth), np.nan), scores, q, group, NAMES)
    with pytest.raises(CadError, match="0 malignant"):
        assist(np.where(truth == 1, np.nan, truth), scores, q, group, NAMES)
    alone, _ = assist(truth, scores[:1], q, group, ["r1"])
    assert alone.test is None
    assert "two treatments and two readers" in alone.note
    assert alone.note in alone.sentence()


def test_rank_counts_ties_half() -> None:
    among = np.array([0.1, 0.2, 0.2, 0.4, np.nan])
    found = ranked(np.array([0.2, 0.05, 0.5, np.nan]), among)
    np.testing.assert_allclose(found, [0.5, 0, 1, np.nan])
