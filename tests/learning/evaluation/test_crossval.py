"""Out-of-fold prediction: nothing of the left-out patient reaches its fold."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.folds.nested import PatientGridSearch
from cad.learning.evaluation.folds.selection import SELECTORS, StabilitySelector


def cohort(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = np.repeat([f"sub-{i:02d}" for i in range(12)], 5)
    X = rng.normal(size=(60, 8))
    return X, (X[:, 0] + 0.8 * rng.normal(size=60) > 0.4).astype(float), groups


def logistic(*front: tuple[str, Any]) -> Pipeline:
    return Pipeline([("scale", StandardScaler()), *front, ("learner", LogisticRegression())])


def fitted_state(estimator: Any) -> list[tuple[str, bytes]]:
    """Every fitted attribute as bytes, nested estimators included."""
    state: list[tuple[str, bytes]] = []

    def visit(name: str, value: Any) -> None:
        if isinstance(value, BaseEstimator):
            for key, part in sorted(vars(value).items()):
                visit(f"{name}.{key}", part)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            state.append((name, value.tobytes()))
        elif isinstance(value, list | tuple):
            for i, part in enumerate(value):
                visit(f"{name}[{i}]", part)
        elif isinstance(value, dict):
            for key, part in sorted(value.items()):
                visit(f"{name}[{key}]", part)
        else:
            state.append((name, repr(value).encode()))

    visit("", estimator)
    return state


def psvm() -> Pipeline:
    from cad.learners import LEARNERS

    learner = LEARNERS["ProbabilisticSVC"](C=2.0, gamma=0.1)
    return Pipeline([("scale", StandardScaler()), ("learner", learner)])


def test_predictions_are_those_of_scikit_learns_splitter() -> None:
    X, y, groups = cohort()
    ours = out_of_fold(logistic(), X, y, groups=groups)
    theirs = cross_val_predict(
        logistic(), X, y, groups=groups, cv=LeaveOneGroupOut(), method="predict_proba"
    )
    np.testing.assert_allclose(ours.probability, theirs[:, 1], atol=1e-12)
    assert [fold.name for fold in ours.folds] == sorted(set(groups))


def leaky_designs() -> dict[str, Any]:
    grid = {"C": [0.1, 10.0]}
    designs: dict[str, Any] = {
        f"select {name}": Pipeline(
            [("impute", SimpleImputer()), *logistic(("select", selector(3))).steps]
        )
        for name, selector in SELECTORS.items()
    }
    designs["nested"] = PatientGridSearch(logistic(("select", StabilitySelector(3))), grid)
    designs["nested auc"] = PatientGridSearch(logistic(), grid, criterion="auc")
    designs["p-svm"] = psvm()
    designs["nested p-svm"] = PatientGridSearch(psvm(), {"gamma": [0.05, 0.2], "C": [0.5, 5.0]})
    return designs


@pytest.mark.parametrize("name", list(leaky_designs()))
def test_a_fold_does_not_know_its_patient(name: str) -> None:
    """Other features, scores and histology of the left-out patient: not a bit changes."""
    X, y, groups = cohort()
    eta = np.full(60, 0.125)
    rng = np.random.default_rng(9)
    estimator = leaky_designs()[name]
    before = out_of_fold(estimator, X, y, groups=groups, eta=eta, keep_estimators=True)
    for patient in ("sub-00", "sub-07"):
        rows = groups == patient
        X_other, y_other, eta_other = X.copy(), y.copy(), eta.copy()
        X_other[rows] = 1e3 * rng.normal(size=(5, 8))
        y_other[rows] = 1 - y_other[rows]
        eta_other[rows] = 0.4
        after = out_of_fold(
            estimator, X_other, y_other, groups=groups, eta=eta_other, keep_estimators=True
        )
        one, two = ({fold.name: fold.estimator for fold in o.folds} for o in (before, after))
        mine, theirs = fitted_state(one[patient]), fitted_state(two[patient])
        assert len(mine) > 5
        assert [m for m, t in zip(mine, theirs, strict=True) if m != t] == []
        other = "sub-03"
        assert fitted_state(one[other]) != fitted_state(two[other])


def test_features_that_depend_on_the_training_rows() -> None:
    X, y, groups = cohort()
    seen: list[tuple[int, ...]] = []

    def table(train: np.ndarray) -> np.ndarray:
        seen.append(tuple(train))
        return X - X[train].mean(axis=0)

    found = out_of_fold(logistic(), table, y, groups=groups)
    np.testing.assert_allclose(
        found.probability, out_of_fold(logistic(), X, y, groups=groups).probability, atol=1e-9
    )
    assert len(seen) == 12
    assert all(len(rows) == 55 for rows in seen)


def test_jobs_do_not_change_the_result_and_progress_counts() -> None:
    X, y, groups = cohort()
    said: list[tuple[int, int]] = []
    one = out_of_fold(logistic(), X, y, groups=groups, progress=lambda i, n: said.append((i, n)))
    two = out_of_fold(logistic(), X, y, groups=groups, n_jobs=2)
    np.testing.assert_array_equal(one.probability, two.probability)
    np.testing.assert_array_equal(one.decision, two.decision)
    assert said == [(i, 12) for i in range(1, 13)]


class Recorder(ClassifierMixin, BaseEstimator):
    """Says what it was given."""

    def fit(self, X: np.ndarray, y: np.ndarray, eta: Any = None, groups: Any = None) -> Recorder:
        self.eta_, self.groups_, self.classes_ = eta, list(groups), np.array([0, 1])
        self.n_ = len(y)
        warnings.warn("did not converge", ConvergenceWarning, stacklevel=1)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.tile([0.3, 0.7], (len(X), 1))


@pytest.mark.parametrize("wrapped", [False, True])
def test_eta_and_patients_reach_the_fit_and_unlabelled_rows_do_not(wrapped: bool) -> None:
    X, y, groups = cohort()
    y[3] = np.nan
    sites = np.where(groups < "sub-06", "A", "B")
    eta = np.arange(60) / 100
    estimator = Pipeline([("s", StandardScaler()), ("r", Recorder())]) if wrapped else Recorder()
    found = out_of_fold(
        estimator, X, y, groups=sites, eta=eta, patients=groups, keep_estimators=True
    )
    fold_b = next(fold.estimator for fold in found.folds if fold.name == "B")
    inner = fold_b.named_steps["r"] if wrapped else fold_b
    expected = np.flatnonzero((sites == "A") & (np.arange(60) != 3))
    np.testing.assert_array_equal(inner.eta_, eta[expected])
    assert inner.groups_ == list(groups[expected])
    assert np.isfinite(found.probability).all()
    assert np.isnan(found.decision).all()
    assert [fold.warnings for fold in found.folds] == [["did not converge"]] * 2
    assert [fold.n_train for fold in found.folds] == [30, 29]


def test_a_fold_with_one_class_fails_alone() -> None:
    X, _, groups = cohort()
    y = (groups == "sub-04").astype(float)
    found = out_of_fold(logistic(), X, y, groups=groups)
    failed = {fold.name: fold.error for fold in found.folds if fold.error}
    assert list(failed) == ["sub-04"]
    assert "class" in failed["sub-04"]
    assert np.isnan(found.probability[groups == "sub-04"]).all()
    assert np.isfinite(found.probability[groups != "sub-04"]).all()


def test_what_cannot_be_validated_is_refused() -> None:
    X, y, groups = cohort()
    with pytest.raises(CadError, match="only one group"):
        out_of_fold(logistic(), X, y, groups=np.repeat("sub-01", 60))
    with pytest.raises(CadError, match="every fold failed"):
        out_of_fold(logistic(), X, np.zeros(60), groups=groups)
    with pytest.raises(CadError, match="60 labels but 59"):
        out_of_fold(logistic(), X, y, groups=groups[:-1])


def test_kept_features_pass_through_every_selecting_step() -> None:
    X, y, groups = cohort()
    X[:, 1] = 4.0
    chain = Pipeline(
        [("constant", VarianceThreshold()), *logistic(("select", SELECTORS["t-test"](2))).steps]
    )
    found = out_of_fold(chain, X, y, groups=groups)
    for fold in found.folds:
        assert fold.features is not None
        assert len(fold.features) == 2
        assert 0 in fold.features
        assert 1 not in fold.features
    everything = out_of_fold(logistic(), X, y, groups=groups)
    assert everything.folds[0].features is None
    mixed = logistic(("pca", PCA(3)), ("select", SELECTORS["t-test"](2)))
    assert out_of_fold(mixed, X, y, groups=groups).folds[0].features is None


def test_the_name_that_learners_hint_at_exists() -> None:
    import cad.evaluation

    assert cad.evaluation.out_of_fold is out_of_fold
