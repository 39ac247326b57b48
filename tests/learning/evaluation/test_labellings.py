"""Many labellings on shared folds: the same numbers as one loop after another, or no sharing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

import cad.learning.evaluation.folds.null as labellings_module
from cad.learners import ProbabilisticSVC
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.folds.null import SharedFolds, permutation_null, permute_between
from cad.learning.evaluation.folds.selection import TTestSelector


class SoftBayes(GaussianNB):
    """A learner without shared labellings of its own; refuses labels of one class."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> SoftBayes:
        if len(np.unique(y > 0.5)) < 2:
            raise ValueError("one class only")
        return super().fit(X, y > 0.5)


def chain(learner: Any) -> Pipeline:
    steps = [
        ("impute", SimpleImputer(strategy="median")),
        ("rank", QuantileTransformer(n_quantiles=11)),
        ("none", "passthrough"),
        ("scale", StandardScaler()),
    ]
    return Pipeline([*steps, ("learner", learner)])


def cohort() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(9), 7)
    X = rng.normal(size=(63, 4))
    p = np.round(4 / (1 + np.exp(-2 * X[:, 0] + rng.normal(size=63)))) / 4
    X[rng.random(X.shape) < 0.05] = np.nan
    eta = np.maximum(0.125, rng.choice([0.0, 0.2, 0.3], 63))
    return X, p, eta, groups


def both_ways(estimator: Any, X: Any, n: int = 6, n_jobs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Centred scores of n permutations, shared and one loop after another, less their means."""
    table, p, eta, groups = cohort()
    X = table if X is None else X
    sources = np.array([permute_between(groups, np.random.default_rng(k)) for k in range(n)])
    shared = SharedFolds.of(estimator, X, p, groups, groups.astype(str))
    assert shared is not None
    parts = [scores for _, scores in shared.scores(p[sources], eta[sources], n_jobs)]
    loops = [out_of_fold(estimator, X, p[s], groups=groups, eta=eta[s]) for s in sources]
    together = np.concatenate(parts)
    alone = np.array([loop.centred for loop in loops])
    # A whole validation adds one number to all: the mean of its folds' bases.
    return (
        together - together.mean(axis=1, keepdims=True),
        alone - alone.mean(axis=1, keepdims=True),
    )


def test_a_shared_front_gives_the_same_bits() -> None:
    found, expected = both_ways(chain(SoftBayes()), None)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"C": 0.5},
        {"C": 100.0, "gamma": 0.3},
        {"C": 2.0**13, "gamma": 0.5},
        {"C": 3.0, "scale": "fixed", "eta0": 0.05, "kappa": 0.5},
        {"C": 10.0, "kernel": "linear", "scale": "fixed"},
        {"C": 1.0, "kernel": "poly", "degree": 2, "C_soft": 0.3},
        {"C": 1.0, "solver": "smo", "scale": "fixed"},
    ],
)
def test_a_shared_kernel_and_start_give_the_same_answer(settings: dict[str, Any]) -> None:
    found, expected = both_ways(chain(ProbabilisticSVC(**settings)), None)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, atol=1e-7, rtol=1e-7)


def test_features_that_depend_on_the_fold_are_made_for_it() -> None:
    table, *_ = cohort()
    made = np.nan_to_num(table)
    asked = []

    def features(train: np.ndarray) -> np.ndarray:
        asked.append(len(train))
        return made - made[train].mean(axis=0) * len(train)

    found, expected = both_ways(chain(ProbabilisticSVC(C=5.0, gamma=0.1)), features, n=3)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert len(asked) == 1 + 9 + 3 * 9  # all rows, and once a fold where folds are shared


def test_parts_and_processes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = chain(ProbabilisticSVC(C=5.0))
    whole, _ = both_ways(estimator, None, n=3)
    monkeypatch.setattr(labellings_module, "_TOGETHER", 2)
    parts, _ = both_ways(estimator, None, n=3, n_jobs=2)
    np.testing.assert_array_equal(whole, parts)


def test_a_labelling_that_cannot_be_fitted_costs_no_other() -> None:
    table, p, eta, groups = cohort()
    labels = np.array([p, np.zeros(63), 1 - p])
    for learner in (SoftBayes(), ProbabilisticSVC(scale="fixed")):
        shared = SharedFolds.of(chain(learner), table, p, groups, groups.astype(str))
        assert shared is not None
        *_, (done, scores) = shared.scores(labels, np.array([eta] * 3), 1)
        assert done == 3
        assert np.isnan(scores[1]).all()
        assert np.isfinite(scores[[0, 2]]).all()


def test_what_looks_at_labels_is_not_shared() -> None:
    table, p, _, groups = cohort()
    quick = chain(SoftBayes())
    selecting = Pipeline([*quick.steps[:-1], ("select", TTestSelector(2)), quick.steps[-1]])
    remembering = clone(quick).set_params(memory="somewhere")
    names = groups.astype(str)
    for estimator in (selecting, remembering, SoftBayes()):
        assert SharedFolds.of(estimator, table, p, groups, names) is None
    unlabelled = np.where(np.arange(63) == 5, np.nan, p)
    assert SharedFolds.of(quick, table, unlabelled, groups, names) is None


def test_the_null_is_that_of_one_loop_after_another() -> None:
    """A step that changes nothing, of a type that is not known to ignore labels, stops sharing."""
    table, p, eta, groups = cohort()

    class Scaler(StandardScaler):
        pass

    estimator = chain(ProbabilisticSVC(C=5.0, gamma=0.2))
    plain = clone(estimator).set_params(scale=Scaler())
    progress: list[tuple[int, int]] = []
    options: dict[str, Any] = {"groups": groups, "n": 5, "eta": eta}
    one = permutation_null(
        estimator, table, p, p > 0.5, progress=lambda *at: progress.append(at), **options
    )
    two = permutation_null(plain, table, p, p > 0.5, **options)
    for name in ("between", "within"):
        np.testing.assert_allclose(one.schemes[name].aucs, two.schemes[name].aucs, atol=1e-12)
    assert progress[-1] == (10, 10)
    assert progress == sorted(progress)
