"""Rivals against scikit-learn, refits and optimality."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from cad.learning.learners import rivals
from cad.learning.learners.base import RangeWarning
from cad.learning.learners.rivals import (
    RidgeProbability,
    SoftBoosting,
    SoftLogistic,
    rival_learners,
)
from cad.learning.learners.solvers.problem import LearnerError
from cad.run.model.state import dump_state, load_state

GIVEN = ("given",)


def cohort(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, the mean of four readers, and patients of four regions each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    scores = np.clip(expit(2 * X[:, :1]) + rng.normal(0, 0.15, (n, 4)), 0, 1)
    return X, (np.round(4 * scores) / 4).mean(axis=1), np.arange(n) // 4


def test_soft_logistic_is_scikit_learns_on_doubled_rows() -> None:
    X, p, patient = cohort()
    ours = SoftLogistic(Cs=(0.3,), scaling=GIVEN).fit(X, p, groups=patient)
    weight = np.concatenate([p, 1 - p])
    peer = LogisticRegression(C=0.3, tol=1e-10, solver="newton-cholesky").fit(
        np.vstack([X, X]), np.repeat([1, 0], len(p)), sample_weight=weight
    )
    np.testing.assert_allclose(ours.coef_, peer.coef_[0], atol=1e-6)
    assert ours.intercept_ == pytest.approx(peer.intercept_[0], abs=1e-6)


def test_soft_logistic_finds_its_optimum_among_many_features() -> None:
    """d = 5 n, labels 0 and 1 among them: the gradient vanishes where weights nearly do."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 200))
    p = np.clip(expit(3 * X[:, 0]).round(2), 0, 1)
    fitted = SoftLogistic(Cs=(10.0,), scaling=GIVEN).fit(X, p)
    q = fitted.predict_proba(X)[:, 1]
    np.testing.assert_allclose(fitted.coef_ / 10.0, X.T @ (p - q), atol=1e-4)
    assert abs(np.sum(p - q)) < 1e-4


def test_the_ridge_chooses_what_refits_would() -> None:
    X, p, patient = cohort()
    ours = RidgeProbability(gammas=(0.2, 1.0), alphas=(0.1, 1.0), scaling=GIVEN)
    ours.fit(X, p, groups=patient)
    losses = {}
    for gamma in (0.2, 1.0):
        for alpha in (0.1, 1.0):
            left = np.zeros(len(p))
            for train, test in GroupKFold(5).split(X, groups=patient):
                peer = KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma / 5)
                left[test] = peer.fit(X[train], p[train] - p.mean()).predict(X[test])
            losses[gamma, alpha] = np.sum((p - p.mean() - left) ** 2)
    assert (ours.gamma_, ours.alpha_) == min(losses, key=lambda k: losses[k])
    peer = KernelRidge(alpha=ours.alpha_, kernel="rbf", gamma=ours.gamma_ / 5)
    expected = p.mean() + peer.fit(X, p - p.mean()).predict(X)
    np.testing.assert_allclose(
        ours.predict_proba(X)[:, 1], np.clip(expected, 0.02, 0.98), atol=1e-9
    )


@pytest.mark.parametrize("name", list(rival_learners()))
def test_every_rival_learns_and_refuses_labels_that_are_all_the_same(name: str) -> None:
    X, p, patient = cohort()
    rival = rival_learners()[name]
    keywords = {} if name.startswith("extra") else {"groups": patient}
    q = rival.fit(X, p, eta=np.zeros(len(p)), **keywords).predict_proba(X)
    np.testing.assert_allclose(q.sum(axis=1), 1)
    assert np.corrcoef(q[:, 1], p)[0, 1] > 0.7
    with pytest.raises(LearnerError):
        rival.fit(X, np.full(len(p), 0.75), **keywords)


def test_the_gaussian_process_has_scikit_learns_likelihood_and_mean() -> None:
    X, p, _ = cohort()
    gammas, alphas = (0.2, 1.0), (0.1, 1.0)
    ours = RidgeProbability(gammas, alphas, "likelihood", scaling=GIVEN).fit(X, p)
    target, best = p - p.mean(), {}
    for gamma in gammas:
        width = np.sqrt(5 / (2 * gamma))
        for alpha in alphas:
            unit = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) * gamma / 5)
            scale = target @ np.linalg.solve(unit + alpha * np.eye(len(p)), target) / len(p)
            kernel = ConstantKernel(scale) * RBF(width) + WhiteKernel(scale * alpha)
            peer = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X, target)
            # The scale is the best one: any other is less likely.
            worse = ConstantKernel(2 * scale) * RBF(width) + WhiteKernel(2 * scale * alpha)
            assert peer.log_marginal_likelihood_value_ > peer.log_marginal_likelihood(worse.theta)
            best[gamma, alpha] = (peer.log_marginal_likelihood_value_, peer)
    chosen = max(best, key=lambda key: best[key][0])
    assert (ours.gamma_, ours.alpha_) == chosen
    expected = np.clip(p.mean() + best[chosen][1].predict(X), 0.02, 0.98)
    np.testing.assert_allclose(ours.predict_proba(X)[:, 1], expected, atol=1e-8)


def test_trees_of_many_rows_are_grown_on_a_part_that_each_draws_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, p, patient = cohort()
    monkeypatch.setattr(rivals, "MOST_GROWN", len(p) // 4)
    few = rival_learners(len(p))
    assert few["boosting on soft labels"].sample == 0.25
    trees = few["extra trees on p"].fit(X, p, groups=patient)
    whole = rival_learners()["extra trees on p"].fit(X, p, groups=patient)
    assert len(trees.values_) < 0.5 * len(whole.values_)
    assert np.corrcoef(trees.predict_proba(X)[:, 1], p)[0, 1] > 0.7


def test_boosting_lowers_the_loss_tree_by_tree_and_chooses_on_inner_folds() -> None:
    X, p, patient = cohort()
    fitted = SoftBoosting(depths=(2,), trees=60, sample=1.0).fit(X, p, groups=patient)
    assert 0 < fitted.n_trees_ <= 60
    assert len(fitted.roots_) == fitted.n_trees_
    rows, f, losses = X.astype(np.float32), np.full(len(p), fitted.start_), []
    for tree, values in fitted._steps(rows, p, np.ones(len(p)), 2):
        losses.append(np.mean(np.logaddexp(0, f) - p * f))
        f = f + values[tree.apply(rows)]
    assert (np.diff(losses) < 1e-6).all()
    nothing = SoftBoosting(trees=30).fit(np.zeros((60, 2)) + X[:, :1] * 0, p, groups=patient)
    with pytest.warns(RangeWarning, match="60 of 60 rows"):
        q = nothing.predict_proba(X[:, :2])[:, 1]
    np.testing.assert_allclose(q, p.mean(), atol=0.02)


@pytest.mark.parametrize("name", list(rival_learners()))
def test_every_rival_survives_the_disk_takes_frames_and_weights(
    name: str, recwarn: pytest.WarningsRecorder
) -> None:
    X, p, patient = cohort()
    frame = pd.DataFrame(X, columns=list("abcde"))
    rival = rival_learners()[name].fit(frame, p)
    q = rival.predict_proba(frame)[:, 1]
    assert not [w for w in recwarn if "feature names" in str(w.message)]
    structure, arrays = dump_state(rival)
    again = load_state(json.loads(json.dumps(structure)), arrays)
    np.testing.assert_array_equal(again.predict_proba(frame)[:, 1], q)
    weight = np.where(X[:, 1] > 0, 1.0, 0.0)
    keywords = {} if name.startswith("extra") else {"groups": patient}
    weighted = rival_learners()[name].fit(X, p, sample_weight=weight, **keywords)
    moved = np.abs(weighted.predict_proba(X)[:, 1] - q).max()
    assert moved > 1e-3


@pytest.mark.parametrize("learner", [SoftLogistic(Cs=(0.1,)), RidgeProbability((0.2,), (0.3,))])
def test_a_row_of_weight_two_is_two_rows(learner: SoftLogistic) -> None:
    X, p, patient = cohort()
    learner.set_params(scaling=GIVEN)
    weight = np.where(np.arange(len(p)) % 3, 1.0, 2.0)
    twice = np.repeat(np.arange(len(p)), weight.astype(int))
    one = learner.fit(X, p, sample_weight=weight, groups=patient).predict_proba(X)
    two = learner.fit(X[twice], p[twice], groups=patient[twice]).predict_proba(X)
    np.testing.assert_allclose(one, two, atol=1e-6)
