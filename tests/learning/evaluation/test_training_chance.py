"""The chance of training in an out-of-fold AUC: by derivation, by simulated noise, by fresh men."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import logit

from cad.learning.evaluation.folds.paired import compare_probabilities
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import clustered_auc, training_inflation

COHORTS, PATIENTS, FEATURES = 300, 40, 10


def test_scores_of_one_model_have_no_chance_of_training() -> None:
    assert training_inflation(None) == 1.0
    assert training_inflation(1) == 1.0


@pytest.mark.parametrize("n_folds", [2, 5, 10, PATIENTS])
def test_on_noise_a_linear_rule_has_twice_the_variance(n_folds: int) -> None:
    """Sum over pairs of y_i y_j x_i x_j: each pair counts twice, and the variance twice again."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(PATIENTS, FEATURES))
    fold = np.arange(PATIENTS) % n_folds
    kernel = np.where(fold[:, None] == fold, 0.0, X @ X.T)
    sums = []
    within = []
    for _ in range(4000):
        y = rng.choice([-1.0, 1.0], PATIENTS)
        each = y * (kernel @ y)  # label times the score by a rule that did not see it
        sums.append(each.sum())
        within.append(float(each @ each))
    ratio = np.var(sums) / np.mean(within)
    assert ratio == pytest.approx(training_inflation(n_folds), abs=0.15)


def scores_left_out(
    rng: np.random.Generator, y: np.ndarray, effect: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return features, and scores of a rule without an intercept that all others taught."""
    X = rng.normal(size=(PATIENTS, FEATURES))
    X[:, 0] += effect * y
    score = np.empty(PATIENTS)
    for patient in range(PATIENTS):
        others = np.arange(PATIENTS) != patient
        malignant = X[others & (y == 1)].mean(axis=0)
        benign = X[others & (y == 0)].mean(axis=0)
        score[patient] = X[patient] @ (malignant - benign)
    return X, score


@cache
def share_beyond_chance(n_folds: int | None, effect: float) -> float:
    """Return how often a rule of noise and another rule differ beyond chance."""
    beyond = 0
    for seed in range(COHORTS):
        rng = np.random.default_rng([8, seed])
        y = (np.arange(PATIENTS) % 3 == 0).astype(float)
        pair = {
            "a": 1 / (1 + np.exp(-scores_left_out(rng, y, 0.0)[1])),
            "b": 1 / (1 + np.exp(-scores_left_out(rng, y, effect)[1])),
        }
        table = compare_probabilities(
            pair, np.arange(PATIENTS), reference="a", truth=y, centred=None, n_folds=n_folds
        ).table.set_index(["measure", "learner"])
        beyond += bool(table.loc[("auc", "b"), "beyond_chance"])
    return beyond / COHORTS


def test_rules_of_noise_differ_no_more_often_than_chance_allows() -> None:
    error = np.sqrt(0.05 * 0.95 / COHORTS)
    assert share_beyond_chance(PATIENTS, 0.0) <= 0.05 + 2 * error
    assert share_beyond_chance(None, 0.0) > 0.12  # what the test regions' chance alone says


def test_a_real_difference_is_still_seen() -> None:
    assert share_beyond_chance(PATIENTS, 3.0) > 0.9


@pytest.mark.parametrize("effect", [0.5, 1.0])
def test_the_interval_covers_what_fresh_men_show(effect: float) -> None:
    covered = {None: 0, PATIENTS: 0}
    for seed in range(COHORTS):
        rng = np.random.default_rng([9, seed])
        y = (np.arange(PATIENTS) % 3 == 0).astype(float)
        X, score = scores_left_out(rng, y, effect)
        direction = X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0)
        truth_fresh = np.arange(3000) % 3 == 0
        fresh = rng.normal(size=(3000, FEATURES))
        fresh[:, 0] += effect * truth_fresh
        auc = metrics.auc(truth_fresh.astype(float), fresh @ direction)
        for n_folds in covered:
            interval = clustered_auc(y, score, np.arange(PATIENTS), n_folds)
            covered[n_folds] += interval.lower <= auc <= interval.upper
    assert 0.92 <= covered[PATIENTS] / COHORTS <= 0.99
    assert covered[None] < covered[PATIENTS]


def test_the_factor_widens_the_interval_by_its_root() -> None:
    rng = np.random.default_rng(3)
    y = (np.arange(60) % 2).astype(float)
    score = rng.normal(size=60) + y
    groups = np.arange(60) // 2
    plain = clustered_auc(y, score, groups)
    wide = clustered_auc(y, score, groups, n_folds=5)
    assert wide.value == plain.value
    ratio = (logit(wide.upper) - logit(wide.value)) / (logit(plain.upper) - logit(plain.value))
    assert ratio == pytest.approx(np.sqrt(2))
