"""OPAUC: its gradient, its first steps by hand, its two ways of keeping the covariance."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from cad.learners import OPAUC
from cad.learning.learners.ranking.opauc import opauc_path


def stream(seed, n=30, d=4):
    random = np.random.default_rng(seed)
    sign = np.where(random.random(n) < 0.4, 1.0, -1.0)
    sign[:2] = [1.0, -1.0]
    return random.normal(size=(n, d)) + 0.5 * sign[:, None], sign, np.ones(n)


def opauc_objective(w, X, sign, lambda_):
    """lambda/2 |w|^2 + mean over all pairs of (1 - w'(x_p - x_q))^2 / 2."""
    f = X @ w
    loss = 1.0 - np.subtract.outer(f[sign > 0], f[sign < 0])
    return 0.5 * lambda_ * w @ w + 0.5 * np.mean(loss * loss)


def opauc_gradient(w, X, sign, lambda_):
    """The gradient of :func:`opauc_objective` from means and covariances alone, (d,)."""
    up, down = X[sign > 0], X[sign < 0]
    between = up.mean(0) - down.mean(0)
    up, down = up - up.mean(0), down - down.mean(0)
    spread = up.T @ (up @ w) / len(up) + down.T @ (down @ w) / len(down)
    return lambda_ * w + (between @ w - 1.0) * between + spread


def test_the_gradient_is_the_finite_difference_of_the_batch_objective():
    X, sign, _ = stream(0)
    w = np.random.default_rng(1).normal(size=4)
    gradient = opauc_gradient(w, X, sign, 0.3)
    for k, unit in enumerate(1e-5 * np.eye(4)):
        change = opauc_objective(w + unit, X, sign, 0.3) - opauc_objective(w - unit, X, sign, 0.3)
        assert gradient[k] == pytest.approx(change / 2e-5, rel=1e-7)


def test_every_step_is_the_gradient_of_the_rows_seen_so_far():
    X, sign, weight = stream(2, 12, 3)
    eta, lambda_ = 0.05, 0.2
    w = np.zeros(3)
    for t in range(12):
        earlier = X[:t][sign[:t] != sign[t]]
        if len(earlier):

            def objective(v, t=t, earlier=earlier):
                loss = 1 - sign[t] * ((X[t] - earlier) @ v)
                return 0.5 * lambda_ * v @ v + 0.5 * np.mean(loss**2)

            steps = 1e-5 * np.eye(3)
            slope = [(objective(w + s) - objective(w - s)) / 2e-5 for s in steps]
            w = w - eta * np.array(slope)
        found = opauc_path(X[: t + 1], sign[: t + 1], weight[: t + 1], [eta], [lambda_])[0][0, 0]
        np.testing.assert_allclose(found, w, atol=1e-8)


def test_first_step_by_hand():
    # Negative at (0, 1) passes, then a positive at (2, 0): w = eta (x_p - x_q) exactly.
    X, sign = np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([-1.0, 1.0])
    coef, _ = opauc_path(X, sign, np.ones(2), [0.25], [0.5])
    np.testing.assert_allclose(coef[0, 0], [0.5, -0.25])


@pytest.mark.parametrize("features", [3, 80])
def test_factors_and_moments_agree_on_a_grid(features):
    X, sign, weight = stream(3, 30, features)
    X /= np.sqrt(features)
    etas, lambdas = 2.0 ** np.arange(-12, 1), 2.0 ** np.arange(-10, 3)
    grid, diverged = opauc_path(X, sign, weight, etas, lambdas)
    assert not diverged.any()
    # Extra features of value zero make the same problem wide; fewer rows than features.
    wide = np.hstack([X, np.zeros((30, 200))])
    other, _ = opauc_path(wide, sign, weight, etas, lambdas)
    np.testing.assert_allclose(other[..., :features], grid, atol=1e-9)
    single = opauc_path(X, sign, weight, [etas[4]], [lambdas[2]])[0][0, 0]
    np.testing.assert_allclose(single, grid[4, 2], rtol=1e-12)


def test_many_passes_of_the_stream_approach_the_batch_optimum():
    X, sign, weight = stream(4, 40, 3)
    repeated = np.tile(np.arange(40), 200)
    coef = opauc_path(X[repeated], sign[repeated], weight[repeated], [0.002], [0.1])[0][0, 0]
    assert np.abs(opauc_gradient(coef, X, sign, 0.1)).max() < 0.02


def test_divergence_is_said_and_leaves_finite_weights():
    X, sign, _ = stream(5, 400, 4)
    with pytest.warns(ConvergenceWarning, match="overflow at eta = 1.02e"):
        learner = OPAUC(eta=2.0**10, platt_folds=0).fit(X, sign)
    assert learner.diverged_
    assert np.isfinite(learner.coef_).all()


def test_ranks_and_seeded_order():
    X, sign, _ = stream(6, 200, 4)
    learner = OPAUC(random_state=1).fit(X, sign)
    assert roc_auc_score(sign, learner.decision_function(X)) > 0.75
    again = OPAUC(random_state=1).fit(X, sign)
    np.testing.assert_array_equal(learner.coef_, again.coef_)
