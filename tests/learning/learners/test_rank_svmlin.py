"""SVMlin: against LinearSVC, a hand-solved toy, and objectives that never rise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from cad.learners import SVMLin
from cad.learning.learners.solvers.newton import finite_newton


def made(seed, n=80, d=6):
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, n)
    y[:2] = [0, 1]
    return random.normal(size=(n, d)) + 0.4 * y[:, None], y


@pytest.mark.parametrize("lambda_", [1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("features", [6, 150])
def test_supervised_equals_linearsvc_to_six_digits(lambda_, features):
    X, y = made(1, 60, features)
    ours = SVMLin(lambda_=lambda_, method="supervised", platt_folds=0).fit(X, y)
    reference = LinearSVC(
        loss="squared_hinge", dual=False, C=1 / (2 * lambda_), tol=1e-10, max_iter=100_000
    ).fit(X, y)
    expected = np.append(reference.coef_, reference.intercept_)
    found = np.append(ours.coef_, ours.bias_)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_by_hand():
    # x = 1 positive, x = -1 negative, bias 0 by symmetry: lambda/2 w^2 + (1 - w)^2.
    learner = SVMLin(lambda_=1.0, method="supervised", platt_folds=0)
    learner.fit(np.array([[1.0], [-1.0]]), [1, 0])
    assert learner.coef_[0, 0] == pytest.approx(2 / 3, rel=1e-12)
    assert learner.bias_ == pytest.approx(0, abs=1e-12)


def test_finite_newton_is_stationary():
    X, y = made(2)
    sign = np.where(y == 1, 1.0, -1.0)
    cost = np.random.default_rng(0).uniform(0, 2, len(y))
    cost[:5] = 0
    w, good = finite_newton(X, sign, cost, 0.01, np.zeros(6))
    assert good
    missed = np.maximum(0, 1 - sign * (X @ w))
    np.testing.assert_allclose(0.01 * w - X.T @ (cost * sign * missed), 0, atol=1e-10)


def test_two_clusters_with_two_labels_are_found():
    random = np.random.default_rng(3)
    truth = np.arange(60) % 2
    # The labelled pair points along the second axis, the gap lies along the first.
    X = np.column_stack([6.0 * truth - 3, np.zeros(60)]) + 0.3 * random.normal(size=(60, 2))
    y = np.full(60, -1)
    y[:2] = truth[:2]
    X[0], X[1] = [-1.5, -3.0], [1.5, 3.0]
    for method in ("multi-switch", "deterministic-annealing"):
        learner = SVMLin(0.01, 1.0, method, platt_folds=0).fit(X, y)
        assert ((learner.soft_labels_ > 0.5) == truth[2:]).all()
        assert abs(learner.coef_[0, 0]) > abs(learner.coef_[0, 1])


@pytest.mark.parametrize("method", ["multi-switch", "deterministic-annealing"])
@pytest.mark.parametrize("seed", range(4))
def test_the_objective_never_rises_within_an_annealing_step(method, seed):
    X, truth = made(seed, 70, 5)
    y = np.where(np.arange(70) < 20, truth, -1)
    learner = SVMLin(0.01, 2.0, method, platt_folds=0).fit(X, y)
    levels, values = learner.annealing_levels_, learner.annealing_objectives_
    assert len(np.unique(levels)) > 5
    for level in np.unique(levels):
        steps = np.diff(values[levels == level])
        assert (steps <= 1e-9 * np.abs(values[levels == level]).max()).all()
    share = truth[:20].mean()
    assert learner.soft_labels_.mean() == pytest.approx(share, abs=0.5 / 50 + 1e-6)


def test_switching_ends_at_a_pairwise_optimum():
    X, truth = made(9, 40, 3)
    y = np.where(np.arange(40) < 16, truth, -1)
    learner = SVMLin(0.1, 1.0, platt_folds=0).fit(X, y)
    f = X[16:] @ learner.coef_[0] + learner.bias_
    positive = learner.soft_labels_ > 0.5
    assert f[positive].min() >= f[~positive].max() - 1e-6
