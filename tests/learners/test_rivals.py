"""Rivals against scikit-learn, refits and optimality."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from cad.learners.base import LearnerError
from cad.learners.rivals import RidgeProbability, SoftLogistic, rival_learners


def cohort(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, the mean of four readers, and patients of four regions each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    scores = np.clip(expit(2 * X[:, :1]) + rng.normal(0, 0.15, (n, 4)), 0, 1)
    return X, (np.round(4 * scores) / 4).mean(axis=1), np.arange(n) // 4


def test_soft_logistic_is_scikit_learns_on_doubled_rows() -> None:
    X, p, patient = cohort()
    ours = SoftLogistic(Cs=(0.3,)).fit(X, p, groups=patient)
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
    fitted = SoftLogistic(Cs=(10.0,)).fit(X, p)
    q = fitted.predict_proba(X)[:, 1]
    np.testing.assert_allclose(fitted.coef_ / 10.0, X.T @ (p - q), atol=1e-4)
    assert abs(np.sum(p - q)) < 1e-4


def test_the_ridge_chooses_what_refits_would() -> None:
    X, p, patient = cohort()
    ours = RidgeProbability(gammas=(0.2, 1.0), alphas=(0.1, 1.0)).fit(X, p, groups=patient)
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
    keywords = {} if name.startswith("boosting") else {"groups": patient}
    q = rival.fit(X, p, eta=np.zeros(len(p)), **keywords).predict_proba(X)
    np.testing.assert_allclose(q.sum(axis=1), 1)
    assert np.corrcoef(q[:, 1], p)[0, 1] > 0.7
    with pytest.raises(LearnerError):
        rival.fit(X, np.full(len(p), 0.75), **keywords)
