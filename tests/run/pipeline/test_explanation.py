"""Explanations: the short way through a pipeline gives what the definition gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from cad.learners import AveragedProbabilisticSVC, ProbabilisticEnsemble, SoftExtraTrees
from cad.learning.learners.base import RangeWarning
from cad.run.model.explanation import contributions, explain


def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 12))
    X[rng.random(X.shape) < 0.05] = np.nan
    X[:, 5], X[:, 9] = 3.0, np.nan  # constant, never known
    X[:, 7] = np.round(X[:, 7])
    rows = rng.normal(size=(6, 12))
    rows[2, 3] = np.nan
    return X, (np.nan_to_num(X[:, 0]) > 0).astype(float), rows


def by_definition(estimator: Any, X: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Each feature at the training median in turn, through the whole estimator."""
    found = np.empty(len(row))
    for j in range(len(row)):
        changed = row.copy()
        known = X[np.isfinite(X[:, j]), j]
        changed[j] = np.median(known) if len(known) else 0.0
        both = estimator.decision_function(np.array([row, changed]))
        found[j] = both[0] - both[1]
    return found


def front(kind: str) -> list[tuple[str, Any]]:
    impute = ("impute", SimpleImputer(strategy="median", keep_empty_features=True))
    rank = ("rank", QuantileTransformer(n_quantiles=21, subsample=None))
    return {
        "as the pipelines": [impute, ("c", VarianceThreshold()), rank, ("s", StandardScaler())],
        "with indicators": [("impute", SimpleImputer(add_indicator=True)), ("s", StandardScaler())],
        "mixes columns": [impute, ("mix", PCA(3))],
    }[kind]


@pytest.mark.parametrize("kind", ["as the pipelines", "with indicators", "mixes columns"])
@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
def test_a_feature_moves_the_value_as_its_definition_says(kind: str) -> None:
    X, y, rows = table()
    estimator = Pipeline([*front(kind), ("learner", LogisticRegression())]).fit(X, y)
    explained = explain(estimator, X, rows, [str(j) for j in range(12)], top=12)
    for row, entries in zip(rows, explained, strict=True):
        expected = by_definition(estimator, X, row)
        moved = np.array(
            [entry["delta"] for entry in sorted(entries, key=lambda e: int(e["feature"]))]
        )
        np.testing.assert_allclose(moved, expected, atol=1e-12)
        assert [e["rank"] for e in entries] == list(range(1, 13))
        sizes = [abs(e["delta"]) for e in entries]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.filterwarnings("ignore::cad.learning.learners.base.RangeWarning")
@pytest.mark.parametrize("kind", [AveragedProbabilisticSVC, ProbabilisticEnsemble])
@pytest.mark.parametrize("scaling", ["rank", "clipped", "given"])
def test_mixed_rows_are_decided_as_they_are_one_by_one(kind: type, scaling: str) -> None:
    """Also with ties, and with values far outside what the learner has seen."""
    X, y, rows = table()
    X, rows = np.nan_to_num(X), np.nan_to_num(rows)
    learner = kind(scaling=scaling, folds=2).fit(X, y)
    rng = np.random.default_rng(0)
    several = np.vstack([rows, 1e3 * rows[0], X[0]])
    other = np.median(X, axis=0)
    for _ in range(len(several)):
        mixed = rng.random((30, X.shape[1])) < rng.random((30, 1))
        decided = learner.decide_mixed(several, other, mixed)
        assert decided.shape == (len(several), 30)
        for row, values in zip(several, decided, strict=True):
            expected = learner.decision_function(np.where(mixed, other, row))
            np.testing.assert_allclose(values, expected, atol=1e-9)
            likely = learner.predict_proba(np.where(mixed, other, row))[:, 1]
            np.testing.assert_allclose(1 / (1 + np.exp(-values)), likely, atol=1e-9)  # log odds


class Product:
    """An estimator whose log odds are the product of its two features."""

    def predict_proba(self, X: Any) -> np.ndarray:
        q = 1 / (1 + np.exp(-X[:, 0] * X[:, 1]))
        return np.column_stack([1 - q, q])


def test_families_share_the_log_odds_as_shapley_says() -> None:
    X, y, rows = table()
    X, rows = np.nan_to_num(X), np.nan_to_num(rows)
    groups = [f"family {j % 4}" for j in range(12)]
    linear = LogisticRegression().fit(X, y)
    average, parts = contributions(linear, X, rows, groups)
    # Where features add up, a family's part is the sum of its weights times the distances.
    middle = np.median(X, axis=0)
    alone = (rows - middle) * linear.coef_[0]
    by_hand = np.column_stack([alone[:, [j, j + 4, j + 8]].sum(axis=1) for j in range(4)])
    np.testing.assert_allclose(parts, by_hand, atol=1e-9)
    assert average == pytest.approx(float(linear.decision_function(middle[None])[0]))
    # Two families that only act together share what they do: (ab - cd) by hand.
    training, one = np.array([[1.0, 2.0]] * 3), np.array([[3.0, 0.5]])
    _, shared = contributions(Product(), training, one, ["a", "b"])
    assert shared[0] == pytest.approx([(4 + 1) / 2, (-1.5 - 4.5) / 2])
    assert shared[0].sum() == pytest.approx(3 * 0.5 - 1 * 2)


@pytest.mark.parametrize("kind", [AveragedProbabilisticSVC, SoftExtraTrees])
@pytest.mark.parametrize("piped", [False, True])
def test_made_up_rows_warn_of_nothing(kind: type, piped: bool) -> None:
    """An explanation asks about rows that no patient has; warnings are errors in this suite."""
    X, y, rows = table()
    X = np.nan_to_num(X)
    rows = 1e3 * np.nan_to_num(rows)
    learner = kind().fit(X, y)
    estimator = Pipeline([("scale", StandardScaler()), ("learner", kind())]) if piped else learner
    if piped:
        estimator.fit(X, y)
    with pytest.warns(RangeWarning):
        estimator.predict_proba(rows)
    names = [str(j) for j in range(12)]
    assert len(explain(estimator, X, rows, names)) == 6
    assert contributions(estimator, X, rows, names)[1].shape == (6, 12)


def test_a_percentile_counts_training_rows_below_and_half_of_those_alike() -> None:
    rng = np.random.default_rng(4)
    training = rng.integers(0, 6, (50, 3)).astype(float)
    training[rng.random(training.shape) < 0.2] = np.nan
    training[:, 2] = np.nan
    rows = np.vstack([rng.integers(-1, 7, (20, 3)).astype(float), [[np.nan, np.inf, 1.0]]])
    learner = LogisticRegression().fit(np.nan_to_num(training), np.arange(50) % 2)
    explained = explain(learner, training, np.nan_to_num(rows, posinf=1e6), ["a", "b", "c"])
    for row, entries in zip(np.nan_to_num(rows, posinf=1e6), explained, strict=True):
        for entry in entries:
            column = training[:, "abc".index(entry["feature"])]
            value = row["abc".index(entry["feature"])]
            known = np.isfinite(column).sum()
            expected = np.nan
            if known:
                below = (column < value).sum()
                expected = 100 * (below + (column == value).sum() / 2) / known
            np.testing.assert_allclose(entry["percentile"], expected, rtol=1e-12)
