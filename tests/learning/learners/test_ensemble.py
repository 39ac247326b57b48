"""The shipped learner: what its members say, how they are weighed, ranges, and many rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.utils.estimator_checks import parametrize_with_checks

import cad
from cad.learners import AveragedProbabilisticSVC, ProbabilisticEnsemble, SoftExtraTrees
from cad.learning.learners import averaged, ensemble
from cad.learning.learners.rivals import SoftBoosting, SoftLogistic
from cad.learning.learners.solvers.problem import LearnerError

FOLDS = "inner folds are drawn from rows: a repeated row is not a row of twice the weight"
SMALL = {"C": 1.0, "gamma": 0.3, "eta0": 0.1, "kappa": 0.0, "folds": 3}


@parametrize_with_checks(
    [ProbabilisticEnsemble(trees=20, **SMALL)],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": FOLDS for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def cohort(n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, the mean of four readers, and patients of four regions each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    scores = np.clip(expit(3 * X[:, :1]) + rng.normal(0, 0.15, (n, 4)), 0, 1)
    return X, (np.round(4 * scores) / 4).mean(axis=1), np.arange(n) // 4


def members(
    X: np.ndarray, p: np.ndarray, patient: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return every member's log-odds of all rows, and those of rows that its fits left out."""
    weight = np.ones(len(p))
    line, boosting = SoftLogistic(folds=3), SoftBoosting(folds=3)
    smooth = AveragedProbabilisticSVC(**SMALL)
    trees = SoftExtraTrees(trees=25, max_features=1 / 3, share=0.8)
    left = [
        line.fit_left_out(X, p, weight, patient),
        smooth._fit_inside(X, p, None, None, patient),
        logit(np.clip(trees._fit_inside(X, p, None, patient), 0.01, 0.99)),
        boosting.fit_left_out(X, p, weight, patient),
    ]
    every = [logit(each.predict_proba(X)[:, 1]) for each in (line, smooth, trees, boosting)]
    return every, left


def test_the_ensemble_adds_log_odds_by_what_inner_folds_say() -> None:
    """The weights from scipy's minimiser, on inner log-odds of members fitted one by one."""
    X, p, patient = cohort()
    fitted = ProbabilisticEnsemble(trees=25, **SMALL).fit(X, p, groups=patient)
    every, left = members(X, p, patient)
    base = logit(p.mean())
    expected = base + fitted.member_weights_ @ (np.array(every) - base)
    np.testing.assert_allclose(fitted.decision_function(X), expected, atol=1e-8)
    said = np.array(left).T - base

    def loss(weights: np.ndarray) -> float:
        z = base + said @ weights
        prior = 3 * np.sum((weights - ensemble.TOWARDS) ** 2)
        return float(np.sum(np.logaddexp(0, z) - p * z) + prior)

    best = minimize(loss, ensemble.TOWARDS, tol=1e-12).x
    np.testing.assert_allclose(fitted.member_weights_, best, atol=1e-4)


def test_members_that_know_nothing_count_less_than_they_begin_with() -> None:
    rng = np.random.default_rng(5)
    X, p = rng.normal(size=(120, 4)), rng.integers(0, 2, 120).astype(float)
    fitted = ProbabilisticEnsemble(trees=50, **SMALL).fit(X, p, groups=np.arange(120) // 3)
    assert fitted.member_weights_.sum() < 0.6


def test_left_out_log_odds_are_of_fits_without_the_patient() -> None:
    """A column that names the patient tells a left-out patient's label nothing."""
    rng = np.random.default_rng(6)
    patient = np.repeat(np.arange(40), 5)
    p = np.repeat(rng.random(40), 5)
    X = np.column_stack([patient, rng.normal(size=200)])
    for member in (SoftLogistic(), SoftBoosting()):
        left_out = member.fit_left_out(X, p, np.ones(200), patient)
        assert abs(np.corrcoef(left_out, p)[0, 1]) < 0.4


def test_a_line_of_many_rows_is_that_of_their_kernel() -> None:
    """The primal and the dual fit have one optimum."""
    from cad.learning.learners import rivals

    X, p, _ = cohort(60)
    cost = 0.1 * np.linspace(0.5, 1.5, 60)
    primal, dual = rivals._PrimalLine(X, p), rivals._DualLine(X, p)
    coefficients, b = primal.fitted(cost, 1e-9)
    others, b_dual = dual.fitted(cost, 1e-9)
    np.testing.assert_allclose(coefficients, others, atol=1e-7)
    assert b == pytest.approx(b_dual, abs=1e-7)
    q = expit(X @ coefficients + b)
    np.testing.assert_allclose(coefficients, X.T @ (cost * (p - q)), atol=1e-7)


def test_the_default_learner_needs_no_scaling() -> None:
    X, p, patient = cohort()
    learner = cad.default_learner()
    assert isinstance(learner, ProbabilisticEnsemble)
    plain = learner.fit(X, p, groups=patient).predict_proba(X)
    stretched = X * [1, 1e6, 1e-3, 1, 1] + [0, 1e6, 0, -5, 0]
    scaled = cad.default_learner().fit(stretched, p, groups=patient).predict_proba(stretched)
    np.testing.assert_allclose(plain, scaled, atol=2e-3)


def test_a_range_holds_its_number_and_as_many_labels_as_it_says() -> None:
    X, p, patient = cohort(240)
    fitted = ProbabilisticEnsemble(trees=25, **SMALL).fit(X, p, groups=patient)
    held = []
    for seed in range(1, 6):
        new, label, _ = cohort(200, seed)
        low, high = fitted.predict_range(new, level=0.9).T
        q = fitted.predict_proba(new)[:, 1]
        assert ((low <= q) & (q <= high)).all()
        held.append(((low <= label) & (label <= high)).mean())
    assert 0.86 < np.mean(held) < 0.96
    quantiles = fitted.predict_quantiles(new, (0.1, 0.5, 0.9))
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert quantiles.min() >= 0
    assert quantiles.max() <= 1
    with pytest.raises(LearnerError, match=r"levels = \[1.5\], must lie in \[0, 1\]"):
        fitted.predict_quantiles(new, [1.5])


def test_many_rows_are_drawn_for_kernels_and_all_are_used_by_trees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, p, patient = cohort(400)
    monkeypatch.setattr(averaged, "MOST_ROWS", 100)
    monkeypatch.setattr(ensemble, "MOST_LINED", 200)
    fitted = ProbabilisticEnsemble(trees=10, **SMALL).fit(X, p, groups=patient)
    assert fitted.n_fitted_ == 100
    assert averaged.drawn_notes(fitted, 400) == [
        "kernels of the P-SVMs are fitted to 100 of up to 400 rows, drawn at random"
    ]
    assert averaged.drawn_notes(fitted, 100) == averaged.drawn_notes(SoftLogistic(), 400) == []
    drawn = averaged.drawn_rows(np.ones(400), 100)
    assert set(fitted.support_) <= set(drawn)
    np.testing.assert_array_equal(X[fitted.support_], fitted.support_vectors_)
    assert set(drawn) <= set(averaged.drawn_rows(np.ones(400), 200))
    new, label, _ = cohort(400, 1)
    assert np.mean((fitted.predict_proba(new)[:, 1] - label) ** 2) < 0.02
