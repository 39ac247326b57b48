"""RankBoost and SSRankBoost: hand-worked toys and invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cad.learners import RankBoost, SSRankBoost
from cad.learning.learners.ranking.rankboost import neighbour_ranks


def noisy(seed, n=60, d=5):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    y = (X[:, 0] + 0.5 * X[:, 1] ** 2 + random.normal(size=n) > 0.4).astype(int)
    y[:2] = [0, 1]
    return X, y


def test_first_round_by_hand():
    # Positives at 1, 3; negatives at 0, 2. Cut between 0 and 1 or between 2 and 3: each orders
    # 2 of 4 pairs and ties 2, so r = 1/2; the higher cut wins the tie.
    X, y = np.array([[1.0], [3.0], [0.0], [2.0]]), [1, 1, 0, 0]
    learner = RankBoost(n_rounds=1, platt_folds=0).fit(X, y)
    assert learner.thresholds_[0] == 2.5
    alpha = 0.5 * np.log((1.5 + 0.25) / (0.5 + 0.25))
    assert learner.alphas_[0] == pytest.approx(alpha, rel=1e-12)
    # Two pairs shrink by exp(-alpha), two stay.
    assert learner.losses_[1] == pytest.approx(0.5 + 0.5 * np.exp(-alpha), rel=1e-12)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_loss_never_rises_and_is_the_loss_of_the_scores(seed):
    X, y = noisy(seed, 40, 3)
    X = np.round(X, 1)  # ties
    learner = RankBoost(n_rounds=40, platt_folds=0).fit(X, y)
    assert (np.diff(learner.losses_) <= 0).all()
    raw = list(learner.staged_decision_function(X))
    assert len(raw) == 40
    f = raw[len(learner.alphas_) - 1]
    loss = np.exp(-np.subtract.outer(f[y == 1], f[y == 0])).mean()
    assert learner.losses_[-1] == pytest.approx(loss, rel=1e-9)


def test_one_run_holds_every_shorter_run():
    X, y = noisy(3)
    stages = list(RankBoost(n_rounds=90, platt_folds=0).fit(X, y).staged_decision_function(X))
    short = RankBoost(n_rounds=30, platt_folds=0).fit(X, y)
    np.testing.assert_array_equal(stages[29], list(short.staged_decision_function(X))[-1])


def test_monotone_features_and_row_weights():
    X, y = noisy(4)
    a = RankBoost(platt_folds=0).fit(X, y)
    b = RankBoost(platt_folds=0).fit(np.exp(X), y)
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(np.exp(X)), atol=1e-12)
    twice = np.append(np.arange(60), 7)
    weight = np.ones(60)
    weight[7] = 2
    c = RankBoost(platt_folds=0).fit(X[twice], y[twice])
    d = RankBoost(platt_folds=0).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(c.decision_function(X), d.decision_function(X), atol=1e-9)


def test_constant_features_give_the_base_rate():
    X, y = np.ones((12, 2)), [0, 1, 0] * 4
    p = RankBoost().fit(X, y).predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, 5 / 14, atol=1e-3)


def test_ten_thousand_rounds_stay_finite():
    X, y = noisy(6, 20, 2)
    learner = RankBoost(n_rounds=10_000, platt_folds=0).fit(X, y)
    assert np.isfinite(learner.alphas_).all()
    assert np.isfinite(learner.losses_).all()


def test_neighbours_take_the_rank_of_the_nearer_claimant():
    X = np.array([[0.0], [10.0], [1.0], [4.0], [6.0], [9.0]])
    sign = np.array([1.0, -1.0, 0, 0, 0, 0])
    assert neighbour_ranks(X, sign, 1).tolist() == [0, 1, 2, -1, -1, 3]
    assert neighbour_ranks(X, sign, 3).tolist() == [0, 1, 2, 2, 3, 3]


def test_ssrankboost_without_discount_or_unlabelled_rows_is_rankboost():
    X, y = noisy(5)
    part = y.copy()
    part[30:] = -1
    plain = RankBoost(platt_folds=0).fit(X[:30], y[:30]).decision_function(X)
    off = SSRankBoost(discount=0.0, platt_folds=0).fit(X, part).decision_function(X)
    none = SSRankBoost(discount=0.8, platt_folds=0).fit(X[:30], y[:30]).decision_function(X)
    np.testing.assert_array_equal(plain, off)
    np.testing.assert_array_equal(plain, none)


def test_ssrankboost_loss_by_hand_and_never_rising():
    X, y = noisy(8)
    part = y.copy()
    part[30:] = -1
    learner = SSRankBoost(n_rounds=25, discount=0.6, k=4, platt_folds=0).fit(X, part)
    assert (np.diff(learner.losses_) <= 0).all()
    f = list(learner.staged_decision_function(X))[-1]
    role = neighbour_ranks(X, np.array([-1.0, 1.0, 0.0])[part], 4)

    def mean_loss(up, down):
        return np.exp(-np.subtract.outer(f[role == up], f[role == down])).mean()

    assert learner.losses_[0] == 1.6
    assert learner.losses_[-1] == pytest.approx(mean_loss(0, 1) + 0.6 * mean_loss(2, 3), rel=1e-9)
