"""Nested search: whole patients in inner folds, criteria that suit probabilities."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.learners import ProbabilisticSVC
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.folds.nested import PatientGridSearch, with_params
from cad.learning.evaluation.folds.selection import TTestSelector


def cohort() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 4)
    X = rng.normal(size=(80, 6))
    return X, (X[:, 0] + rng.normal(size=80) > 0.5).astype(float), groups


def logistic() -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("learner", LogisticRegression())])


def test_losses_are_those_of_fitting_by_hand() -> None:
    X, y, groups = cohort()
    grid = {"C": [0.01, 0.1, 1.0, 100.0]}
    search = PatientGridSearch(logistic(), grid, n_folds=4).fit(X, y, groups=groups)
    folds = list(GroupKFold(4).split(X, groups=groups))
    for C, loss in zip(grid["C"], search.losses_, strict=True):
        q = cross_val_predict(
            with_params(logistic(), {"C": C}), X, y, cv=folds, method="predict_proba"
        )
        assert loss == pytest.approx(np.mean([log_loss(y[t], q[t]) for _, t in folds]), rel=1e-9)
    assert search.best_params_ == search.points_[int(np.argmin(search.losses_))]
    refit = with_params(logistic(), search.best_params_).fit(X, y)
    np.testing.assert_allclose(search.predict_proba(X), refit.predict_proba(X))


@pytest.mark.parametrize("criterion", ["cross-entropy", "auc", "kl", "brier"])
def test_every_criterion_prefers_signal_to_noise(criterion: str) -> None:
    X, y, groups = cohort()
    pipeline = Pipeline(
        [
            ("scale", StandardScaler()),
            ("select", TTestSelector()),
            ("learner", LogisticRegression()),
        ]
    )
    grid = {"learner__C": [1e-6, 1.0]} if criterion != "auc" else {"select__n_features": [6, 1]}
    search = PatientGridSearch(pipeline, grid, criterion).fit(X, y, groups=groups)
    assert search.best_params_ in ({"learner__C": 1.0}, {"select__n_features": 1})


class Spy(ClassifierMixin, BaseEstimator):
    """Fails when a patient is split, or when its parameter says so."""

    seen: list[tuple[int, ...]] = []  # noqa: RUF012

    def __init__(self, fail: bool = False) -> None:
        self.fail = fail

    def fit(self, X: np.ndarray, y: np.ndarray, eta: Any = None, groups: Any = None) -> Spy:
        if self.fail:
            raise ValueError("collapsed")
        Spy.seen.append(tuple(np.unique(X[:, 0]).astype(int)))
        counts = np.unique(X[:, 0], return_counts=True)[1]
        assert (counts == 4).all()
        np.testing.assert_array_equal(X[:, 0], np.asarray(groups).astype(float))
        np.testing.assert_array_equal(eta, X[:, 0] / 100)
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.tile([0.6, 0.4], (len(X), 1))


def test_inner_folds_are_whole_patients_of_the_outer_training_set() -> None:
    _, y, groups = cohort()
    X = groups[:, None].astype(float)
    Spy.seen.clear()
    search = PatientGridSearch(Spy(), {"fail": [False]}, n_folds=5)
    out_of_fold(search, X, y, groups=groups, eta=groups / 100)
    outer = [20 - 1] * 20
    sizes = [len(s) for s in Spy.seen]
    assert sorted(sizes) == sorted(outer + [15, 15, 15, 15, 16] * 20)


def test_a_point_that_cannot_be_fitted_is_never_chosen() -> None:
    _, y, groups = cohort()
    X = groups[:, None].astype(float)
    eta = groups / 100
    search = PatientGridSearch(Spy(), {"fail": [True, False]}).fit(X, y, eta=eta, groups=groups)
    assert search.best_params_ == {"fail": False}
    assert np.isinf(search.losses_[0])
    with pytest.raises(ValueError, match="no grid point"):
        PatientGridSearch(Spy(), {"fail": [True]}).fit(X, y, eta=eta, groups=groups)


def test_ties_go_to_the_first_point() -> None:
    X, y, groups = cohort()
    grid = {"tol": [1e-8, 1e-9], "C": [1.0]}
    search = PatientGridSearch(logistic(), grid, "auc").fit(X, y, groups=groups)
    assert search.losses_[0] == search.losses_[1]
    assert search.best_params_ == {"tol": 1e-8, "C": 1.0}
    assert len(search.points_) == len(list(product(*grid.values())))


def test_inner_folds_of_one_class_say_nothing_about_auc() -> None:
    X, y, groups = cohort()
    y = ((groups < 4) & (y == 1)).astype(float)
    y[:2] = 1
    search = PatientGridSearch(logistic(), {"C": [0.1, 1.0]}, "auc").fit(X, y, groups=groups)
    assert np.isfinite(search.losses_).all()


def test_the_selected_values_are_reported_by_fold() -> None:
    X, y, groups = cohort()
    found = out_of_fold(PatientGridSearch(logistic(), {"C": [0.1, 10.0]}), X, y, groups=groups)
    assert all(fold.selected["C"] in (0.1, 10.0) for fold in found.folds)


def test_wrong_use_is_refused() -> None:
    X, y, _ = cohort()
    with pytest.raises(ValueError, match="criterion 'accuracy'"):
        PatientGridSearch(logistic(), {"C": [1.0]}, "accuracy").fit(X, y)
    with pytest.raises(ValueError, match="two patients"):
        PatientGridSearch(logistic(), {"C": [1.0]}).fit(X, y, groups=np.zeros(80))


def test_a_grid_that_shares_its_kernels_predicts_what_single_fits_do() -> None:
    X, hard, _ = cohort()
    p = np.clip(hard * 0.8 + 0.1 * np.tile([0.0, 1.0], 40), 0, 1)
    eta = np.full(len(p), 0.05)
    learner = ProbabilisticSVC(kernel="rbf", scale="fixed")
    values = {"gamma": [0.01, "scale"], "C": [0.1, 100.0], "eta0": [0.125, 0.9]}
    points = [dict(zip(values, point, strict=True)) for point in product(*values.values())]
    rows = learner.predict_grid(points, X[:60], p[:60], X[60:], eta=eta[:60])
    for point, row in zip(points, rows, strict=True):
        if point["eta0"] == 0.9:  # refused: must lie below one half
            assert np.isnan(row).all()
            continue
        alone = with_params(learner, point).fit(X[:60], p[:60], eta=eta[:60])
        np.testing.assert_allclose(row, alone.predict_proba(X[60:])[:, 1], atol=1e-8, rtol=0)


@pytest.mark.parametrize("scale", ["learned", "fixed"])
def test_a_solution_that_no_cost_holds_back_stands_for_higher_ones(scale: str) -> None:
    """Costs in any order, equal or not for soft labels; invalid ones are refused among them."""
    X, hard, _ = cohort()
    p = np.clip(hard * 0.7 + 0.1 * np.tile([0.0, 1.0, 3.0, 2.0], 20), 0, 1)
    learner = ProbabilisticSVC(gamma=2.0, scale=scale, eta=0.1)
    points = [
        {"C": C, "C_soft": soft}
        for C, soft in [
            (1e4, None),
            (0.01, None),
            (50.0, None),
            (-1.0, None),
            (1e3, 1e3),
            (1e5, 2e3),
            (1e5, 0.01),
            (np.inf, None),
            (2e4, None),
        ]
    ]
    rows = learner.predict_grid(points, X[:60], p[:60], X[60:])
    highest = []
    for point, row in zip(points, rows, strict=True):
        if point["C"] < 0 or np.isinf(point["C"]):
            assert np.isnan(row).all()
            continue
        alone = with_params(learner, point).fit(X[:60], p[:60])
        np.testing.assert_allclose(row, alone.predict_proba(X[60:])[:, 1], atol=1e-8, rtol=0)
        if point["C_soft"] is None and point["C"] > 1e3:
            highest.append((row, np.abs(alone.dual_coef_).max()))
    assert max(largest for _, largest in highest) < 1e3  # no dual at its cost: the case meant
    assert (highest[0][0] == highest[1][0]).all()


def test_a_grid_names_the_parameter_that_does_not_exist() -> None:
    X, hard, _ = cohort()
    with pytest.raises(ValueError, match="ProbabilisticSVC has no parameter D"):
        ProbabilisticSVC().predict_grid([{"C": 1.0}, {"D": 1.0}], X[:60], hard[:60], X[60:])
