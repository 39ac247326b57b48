"""RankBoost, SSRankBoost, SVMlin beside literal programs: every pair visited, SciPy minimising."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit, xlogy

from cad.learners import RankBoost, SSRankBoost, SVMLin

TIE = 1e-12  # two stumps whose advantages differ by less: the first feature, its highest threshold


def boosted(X, weights, rounds):
    """Freund et al. 2003, third method: a matrix of pair weights, every stump tried.

    ``weights[i, j]`` is the weight of the pair (i above j); alpha is smoothed by one labelled pair.
    """
    D = weights["initial"].copy()
    stumps = []
    for _ in range(rounds):
        best, chosen = 0.0, None
        for j in range(X.shape[1]):
            values = np.unique(X[:, j])
            for low, high in zip(values[-2::-1], values[:0:-1], strict=True):
                holds = (X[:, j] > low).astype(float)
                r = float((D * np.subtract.outer(holds, holds)).sum() / D.sum())
                if abs(r) > abs(best) + TIE:
                    best, chosen = r, (j, 0.5 * (low + high), holds)
        if chosen is None:
            break
        smooth = 1.0 / weights["pairs"]
        alpha = 0.5 * np.log((1 + best + smooth) / (1 - best + smooth))
        D = D * np.exp(-alpha * np.subtract.outer(chosen[2], chosen[2]))
        stumps.append((chosen[0], chosen[1], alpha))
    return stumps


def labelled_pairs(y):
    up, down = (y == 1).astype(float), (y == 0).astype(float)
    pairs = np.outer(up, down)
    return {"initial": pairs / pairs.sum(), "pairs": pairs.sum()}


def data(seed, n=24, d=3, ties=True):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    y = (X[:, 0] + 0.7 * random.normal(size=n) > 0).astype(int)
    y[:2] = [0, 1]
    return (np.round(X, 1) if ties else X), y


@pytest.mark.parametrize("seed", range(30))
def test_rankboost_is_the_literal_one(seed):
    X, y = data(seed, ties=seed % 2 == 0)
    ours = RankBoost(n_rounds=12, platt_folds=0).fit(X, y)
    theirs = boosted(X, labelled_pairs(y), 12)
    features, cuts, alphas = (np.array(part) for part in zip(*theirs, strict=True))
    rounds = len(ours.alphas_)
    np.testing.assert_array_equal(ours.features_, features[:rounds])
    np.testing.assert_allclose(ours.thresholds_, cuts[:rounds], atol=1e-12)
    np.testing.assert_allclose(ours.alphas_, alphas[:rounds], rtol=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_ssrankboost_is_the_literal_one(seed):
    """The k nearest unlabelled rows of a labelled one take its rank, of two claims the nearer's."""
    X, truth = data(seed, 30, ties=False)
    y, discount, k = np.where(np.arange(30) < 12, truth, -1), 0.5, 3
    claims: dict[int, tuple[float, int]] = {}
    for i in np.flatnonzero(y >= 0):
        away = {int(m): float(np.linalg.norm(X[i] - X[m])) for m in np.flatnonzero(y == -1)}
        for m in sorted(away, key=lambda m: away[m])[:k]:
            claims[m] = min(claims.get(m, (np.inf, -1)), (away[m], int(y[i])))
    pseudo = np.full(30, -1)
    for m, (_, label) in claims.items():
        pseudo[m] = label
    part = np.flatnonzero((y >= 0) | (pseudo >= 0))
    first, second = labelled_pairs(y[part]), labelled_pairs(pseudo[part])
    both = {**first, "initial": first["initial"] + discount * second["initial"]}
    theirs = boosted(X[part], both, 8)
    ours = SSRankBoost(n_rounds=8, discount=discount, k=k, platt_folds=0).fit(X, y)
    assert list(ours.features_) == [stump[0] for stump in theirs[: len(ours.alphas_)]]
    np.testing.assert_allclose(ours.alphas_, [s[2] for s in theirs[: len(ours.alphas_)]], rtol=1e-9)


def minimised(rows, y, cost, lambda_, start):
    """min lambda/2 |w|^2 + 1/2 sum cost max(0, 1 - y w x)^2 by SciPy."""

    def value(w):
        missed = np.maximum(0, 1 - y * (rows @ w))
        return (
            0.5 * lambda_ * w @ w + 0.5 * cost @ missed**2,
            lambda_ * w - rows.T @ (cost * y * missed),
        )

    found = minimize(
        value,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-11, "maxiter": 5000},
    )
    return found.x, found.fun


def half_labelled(seed):
    X, truth = data(seed, 40, 4, ties=False)
    X[:, 0] += 1.5 * truth
    y = np.where(np.arange(40) < 12, truth, -1)
    rows = np.column_stack([X, np.ones(40)])
    return X, y, rows[y >= 0], np.where(y[y >= 0] == 1, 1.0, -1.0), rows[y == -1]


@pytest.mark.parametrize("seed", range(6))
def test_multi_switch_is_the_literal_one(seed):
    """Sindhwani and Keerthi 2006, 3.1: exchange pairs of labels while lambda_u doubles."""
    X, y, rows, sign, free = half_labelled(seed)
    lambda_, lambda_u = 0.1, 1.0
    w, _ = minimised(rows, sign, np.full(len(rows), 1 / len(rows)), lambda_, np.zeros(5))
    f = free @ w
    guess = np.full(len(free), -1.0)
    guess[np.argsort(-f, kind="stable")[: round((sign > 0).mean() * len(free))]] = 1.0
    level = 1e-5
    while True:
        cost = np.r_[np.full(len(rows), 1 / len(rows)), np.full(len(free), level / len(free))]
        while True:
            w, _ = minimised(np.vstack([rows, free]), np.r_[sign, guess], cost, lambda_, w)
            f = free @ w
            hinge = np.maximum(0, 1 - f) ** 2 - np.maximum(0, 1 + f) ** 2
            up = sorted(np.flatnonzero(guess > 0), key=lambda i: -hinge[i])
            down = sorted(np.flatnonzero(guess < 0), key=lambda i: hinge[i])
            swap = [(i, j) for i, j in zip(up, down, strict=False) if hinge[i] > hinge[j] + 1e-9]
            for i, j in swap:
                guess[i], guess[j] = -1.0, 1.0
            if not swap:
                break
        if level >= lambda_u:
            break
        level = min(2 * level, lambda_u)
    ours = SVMLin(lambda_=lambda_, lambda_u=lambda_u, platt_folds=0).fit(X, y)
    np.testing.assert_array_equal(ours.soft_labels_, guess > 0)
    np.testing.assert_allclose(np.append(ours.coef_, ours.bias_), w, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_deterministic_annealing_is_the_literal_one(seed):
    """Sindhwani and Keerthi 2006, 3.2: w and p in turn, the temperature halved."""
    X, y, rows, sign, free = half_labelled(seed)
    lambda_, lambda_u, share = 0.1, 1.0, (sign > 0).mean()
    u = len(free)
    stacked, labels = np.vstack([rows, free, free]), np.r_[sign, np.ones(u), -np.ones(u)]
    w, _ = minimised(rows, sign, np.full(len(rows), 1 / len(rows)), lambda_, np.zeros(5))
    p, temperature = np.full(u, share), 10.0 * lambda_u

    def weights(p):
        return np.r_[np.full(len(rows), 1 / len(rows)), lambda_u * p / u, lambda_u * (1 - p) / u]

    while True:
        for _ in range(100):
            w, _ = minimised(stacked, labels, weights(p), lambda_, w)
            f = free @ w
            gain = lambda_u * (np.maximum(0, 1 + f) ** 2 - np.maximum(0, 1 - f) ** 2) / temperature
            nu = brentq(
                lambda nu, g=gain: expit(g - nu).mean() - share,
                gain.min() - 50,
                gain.max() + 50,
                xtol=1e-13,
            )
            old, p = p, expit(gain - nu)
            if np.abs(p - old).max() <= 1e-4:
                break
        entropy = -(xlogy(p, p) + xlogy(1 - p, 1 - p)).mean()
        if entropy <= 1e-6 or temperature <= 1e-6 * lambda_u:
            w, _ = minimised(stacked, labels, weights(p), lambda_, w)
            break
        temperature /= 2
    ours = SVMLin(
        lambda_=lambda_, lambda_u=lambda_u, method="deterministic-annealing", platt_folds=0
    ).fit(X, y)
    np.testing.assert_allclose(ours.soft_labels_, p, atol=1e-3)
    np.testing.assert_allclose(np.append(ours.coef_, ours.bias_), w, atol=1e-3)
