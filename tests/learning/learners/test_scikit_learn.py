"""Soft labels through scikit-learn's own tools, and its checks of every public estimator."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn import config_context
from sklearn.feature_selection import RFECV
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cad.evaluation import kl, out_of_fold, soft_brier, soft_log_loss
from cad.learners import (
    LEARNERS,
    SSLROC,
    PlattSVC,
    ProbabilisticSVC,
    ProbabilityRegressor,
    RankBoost,
)
from cad.learning.evaluation.folds.nested import PatientGridSearch
from cad.learning.evaluation.folds.selection import SELECTORS
from cad.learning.evaluation.measures import metrics
from cad.learning.learners.rivals import RidgeProbability, SoftBoosting, SoftLogistic
from cad.learning.learners.solvers.problem import LearnerError
from cad.mri.features.harmonise import CombatHarmoniser


def cohort(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, the mean of four readers, their spread, and patients of three regions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    latent = 1 / (1 + np.exp(-2 * X[:, 0]))
    scores = np.round(4 * np.clip(latent[:, None] + rng.normal(0, 0.15, (n, 4)), 0, 1)) / 4
    return X, scores.mean(axis=1), np.maximum(0.1, scores.std(axis=1, ddof=1)), np.arange(n) // 3


def soft_learners() -> list[Any]:
    """Every learner by its defaults."""
    return [kind() for kind in LEARNERS.values()]


@pytest.mark.parametrize("learner", soft_learners(), ids=lambda e: type(e).__name__)
def test_score_is_minus_the_cross_entropy_of_soft_labels(learner: Any) -> None:
    X, p, _, _ = cohort()
    p[:2] = 0.0, 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner.fit(X, p)
    q = learner.predict_proba(X)[:, 1]
    assert learner.score(X, p) == pytest.approx(-metrics.cross_entropy(p, q), rel=1e-12)
    doubled = np.r_[p, p[:9]], np.vstack([X, X[:9]])
    weight = np.r_[np.full(9, 2.0), np.ones(len(p) - 9)]
    assert learner.score(X, p, weight) == pytest.approx(learner.score(doubled[1], doubled[0]))


def test_score_by_hand() -> None:
    """One region believed at 1/4 and called 1/2: -ln 2; its mirror too."""
    X, y = np.array([[-1.0], [1.0]]), np.array(["benign", "malignant"])
    learner = ProbabilisticSVC(kernel="linear").fit(X, y)
    assert learner.score([[0.0]], ["benign"]) == pytest.approx(-np.log(2))
    soft = ProbabilisticSVC(kernel="linear").fit(X, [0, 1])
    assert soft.score([[0.0], [0.0]], [0.25, 0.75]) == pytest.approx(-np.log(2))
    for wrong in (["unsure"], [0.5]):
        with pytest.raises(LearnerError, match="neither of the classes"):
            learner.score([[0.0]], wrong)
    with pytest.raises(LearnerError, match="neither of the classes"):
        soft.score([[0.0]], [1.5])


def test_rows_without_a_label_are_not_scored() -> None:
    X, p, _, _ = cohort(24)
    y = (p > 0.5).astype(int)
    learner = SSLROC(platt_folds=0).fit(X, y)
    hidden = np.where(np.arange(24) < 12, y, -1)
    assert learner.score(X, hidden) == learner.score(X[:12], y[:12])
    with pytest.raises(LearnerError, match="nothing to score"):
        learner.score(X, np.full(24, -1))


GRID = {"C": [1e-4, 0.1, 10.0]}


@pytest.mark.parametrize(
    ("scoring", "loss"),
    [
        (None, metrics.cross_entropy),
        (soft_log_loss, metrics.cross_entropy),
        (soft_brier, metrics.brier),
        (kl, lambda p, q: metrics.kl(p, q) / len(p)),
    ],
    ids=["score", "soft_log_loss", "soft_brier", "kl"],
)
def test_grid_search_on_soft_labels_equals_a_loop(scoring: Any, loss: Any) -> None:
    X, p, eta, patient = cohort()
    with config_context(enable_metadata_routing=True):
        learner = ProbabilisticSVC(scale="fixed")
        search = GridSearchCV(learner, GRID, scoring=scoring, cv=GroupKFold(4), error_score="raise")
        search.fit(X, p, eta=eta, groups=patient)
    expected = []
    for C in GRID["C"]:
        losses = []
        for train, test in GroupKFold(4).split(X, p, patient):
            one = ProbabilisticSVC(scale="fixed", C=C).fit(X[train], p[train], eta=eta[train])
            losses.append(loss(p[test], one.predict_proba(X[test])[:, 1]))
        expected.append(-np.mean(losses))
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-10)
    assert search.best_params_["C"] == GRID["C"][int(np.argmax(expected))] != GRID["C"][0]


def test_a_whole_number_of_folds_works_too() -> None:
    X, p, _, _ = cohort()
    for learner in (ProbabilisticSVC(), RankBoost(n_rounds=5), SoftLogistic()):
        scores = cross_val_score(learner, X, p, cv=3, error_score="raise")
        assert np.isfinite(scores).all()


def test_out_of_fold_probabilities_through_a_regressor_equal_a_loop() -> None:
    X, p, eta, patient = cohort()
    with config_context(enable_metadata_routing=True):
        learner = ProbabilisticSVC()
        pipeline = ProbabilityRegressor(make_pipeline(StandardScaler(), learner))
        params = {"eta": eta, "groups": patient}
        q = cross_val_predict(pipeline, X, p, cv=GroupKFold(4), params=params)
    for train, test in GroupKFold(4).split(X, p, patient):
        scale = StandardScaler().fit(X[train])
        one = ProbabilisticSVC().fit(scale.transform(X[train]), p[train], eta=eta[train])
        expected = one.predict_proba(scale.transform(X[test]))[:, 1]
        np.testing.assert_allclose(q[test], expected, rtol=1e-10)
    # Without routing, parameters go straight to the learner.
    straight = ProbabilityRegressor(ProbabilisticSVC()).fit(X, p, eta=eta)
    same = ProbabilisticSVC().fit(X, p, eta=eta)
    np.testing.assert_array_equal(straight.predict(X), same.predict_proba(X)[:, 1])
    assert straight.score(X, p) == same.score(X, p)


def test_our_own_folds_route_as_well() -> None:
    """A pipeline, and a search of scikit-learn's, validated with routing on and off."""
    X, p, eta, patient = cohort(45)
    pipeline = make_pipeline(StandardScaler(), ProbabilisticSVC(scale="fixed"))
    plain = out_of_fold(pipeline, X, p, eta=eta, groups=patient)
    grid = {"probabilisticsvc__C": [1.0]}
    with config_context(enable_metadata_routing=True):
        routed = out_of_fold(pipeline, X, p, eta=eta, groups=patient)
        search = GridSearchCV(pipeline, grid, cv=GroupKFold(2), error_score="raise")
        searched = out_of_fold(search, X, p, eta=eta, groups=patient)
        nested = PatientGridSearch(pipeline, {"C": [1.0]}, n_folds=2)
        own = out_of_fold(nested, X, p, eta=eta, groups=patient)
    for other in (routed, searched, own):
        assert not [fold.error for fold in other.folds if fold.error]
        np.testing.assert_array_equal(other.probability, plain.probability)
    other_eta = out_of_fold(pipeline, X, p, eta=eta / 2, groups=patient)
    assert not np.array_equal(other_eta.probability, plain.probability)


def test_a_classifier_whose_labels_were_made_integers_refuses() -> None:
    X, p, _, _ = cohort()
    with pytest.raises(LearnerError, match="ProbabilityRegressor"):
        cross_val_predict(ProbabilisticSVC(), X, p, method="predict_proba")


def test_features_are_eliminated_by_the_weights_of_a_linear_kernel() -> None:
    X, p, eta, patient = cohort(90)
    with config_context(enable_metadata_routing=True):
        learner = ProbabilisticSVC(kernel="linear")
        search = RFECV(learner, cv=GroupKFold(3), scoring=soft_log_loss)
        search.fit(X, p, eta=eta, groups=patient)
    assert search.ranking_[0] == 1
    # RFECV looks for accuracy where it is told nothing, and fails aloud.
    with pytest.raises(ValueError, match="continuous"):
        RFECV(ProbabilisticSVC(kernel="linear")).fit(X, p)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    linear = ProbabilisticSVC(kernel="linear").fit(X, p)
    np.testing.assert_allclose(
        X @ linear.coef_[0] + linear.intercept_, linear.decision_function(X), rtol=1e-9
    )
    assert not hasattr(ProbabilisticSVC().fit(X, p), "coef_")


def test_a_learning_curve_rises() -> None:
    X, p, eta, patient = cohort(120)
    with config_context(enable_metadata_routing=True):
        learner = ProbabilisticSVC()
        sizes, _, test = learning_curve(
            learner,
            X,
            p,
            cv=GroupKFold(4),
            train_sizes=[20, 90],
            params={"eta": eta, "groups": patient},
            error_score="raise",
        )
    assert sizes.tolist() == [20, 90]
    assert test[1].mean() > test[0].mean()


class OneSite(CombatHarmoniser):
    """Hold the harmoniser at one site: the checks know no sites, and it refuses to guess them."""

    def fit(self, X: Any, y: Any = None, site: Any = None) -> OneSite:
        """Fit with one site."""
        super().fit(X, y, np.full(np.asarray(X).shape[:1] or 1, "A") if site is None else site)
        return self

    def transform(self, X: Any, site: Any = None) -> np.ndarray:
        """Transform with one site."""
        return super().transform(X, np.full(np.asarray(X).shape[:1] or 1, "A"))


class Squashed(ProbabilityRegressor):
    """Hold the regressor's labels inside (0, 1): those of the checks are any numbers."""

    def fit(self, X: Any, y: Any, **params: Any) -> Squashed:
        """Fit to labels between 0 and 1."""
        super().fit(X, None if y is None else expit(np.asarray(y, dtype=float)), **params)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score against labels between 0 and 1."""
        return super().score(X, expit(np.asarray(y, dtype=float)), sample_weight)


# Checks that do not apply, and why; docs/scikit-learn.md lists the same.
ONE_CLASS = "the check's labels fall into one class at .5, and a selector needs two"
INNER = "inner folds are drawn from rows: a repeated row is not a row of twice the weight"
NUMBERS = "its labels are numbers in [0, 1]"
EXCUSES: dict[type, dict[str, str]] = {
    PatientGridSearch: {
        "check_estimators_dtypes": NUMBERS,
        "check_classifiers_classes": NUMBERS,
    },
}
for _kind in (SoftLogistic, RidgeProbability, SoftBoosting):
    EXCUSES[_kind] = {"check_sample_weight_equivalence_on_dense_data": INNER}
for _kind in SELECTORS.values():
    EXCUSES[_kind] = {"check_estimators_dtypes": ONE_CLASS, "check_fit2d_1feature": ONE_CLASS}


@parametrize_with_checks(
    [
        SoftLogistic(Cs=(0.01, 0.1), folds=3),
        RidgeProbability(folds=3),
        SoftBoosting(trees=20),
        Squashed(SoftLogistic(Cs=(0.1,), folds=2)),
        PatientGridSearch(PlattSVC(), {"C": [1.0]}, n_folds=2),
        *(kind() for kind in SELECTORS.values()),
        OneSite(),
    ],
    expected_failed_checks=lambda estimator: EXCUSES.get(type(estimator), {}),
)
def test_scikit_learn_checks(estimator: object, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_every_excuse_is_on_the_page(repository: Path) -> None:
    page = (repository / "docs" / "scikit-learn.md").read_text(encoding="utf-8")
    for kind, checks in EXCUSES.items():
        selector = kind in SELECTORS.values()
        row = next(
            line
            for line in page.splitlines()
            if line.startswith("| ") and ("selectors" if selector else f"`{kind.__name__}`") in line
        )
        for check, why in checks.items():
            assert f"`{check}`" in row
            assert selector or why in row


def test_the_page_runs(repository: Path) -> None:
    page = (repository / "docs" / "scikit-learn.md").read_text(encoding="utf-8")
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})  # noqa: S102
