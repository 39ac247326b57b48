"""Selectors against scipy and scikit-learn, and what they must do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind
from sklearn.metrics import mutual_info_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from cad.learning.evaluation.folds.selection import (
    SELECTORS,
    MRMRSelector,
    MutualInformationSelector,
    StabilitySelector,
    TTestSelector,
    column_information,
    quantile_codes,
    welch_t,
)

ONE_CLASS = "the check gives labels of one class only, which a selection refuses"


@parametrize_with_checks(
    [selector() for selector in SELECTORS.values()],
    expected_failed_checks=lambda _: {
        "check_estimators_dtypes": ONE_CLASS,
        "check_fit2d_1feature": ONE_CLASS,
    },
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(150) < 0.4).astype(float)
    X = rng.normal(size=(150, 12))
    X[:, 3] += 1.5 * y
    X[:, 7] = X[:, 3] + 0.05 * rng.normal(size=150)  # the same again
    X[:, 9] += 0.8 * y
    X[:, 11] = 2.0
    return X, y


def test_t_is_scipys() -> None:
    X, y = table()
    ours = welch_t(X, y == 1)[:11]
    theirs = np.abs(ttest_ind(X[y == 1, :11], X[y == 0, :11], equal_var=False).statistic)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert welch_t(X, y == 1)[11] == 0
    assert TTestSelector(2).fit(X, y).order_.tolist() in ([3, 7], [7, 3])


def test_mutual_information_is_scikit_learns() -> None:
    X, y = table()
    codes = quantile_codes(X, 5)
    ours = column_information(codes, y.astype(int), 5)
    theirs = [mutual_info_score(y, column) for column in codes.T]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert codes.min() == 0
    assert codes.max() == 4
    assert 3 in MutualInformationSelector(2).fit(X, y).order_


def test_mrmr_leaves_the_copy_out() -> None:
    X, y = table()
    chosen = MRMRSelector(2).fit(X, y).order_
    assert chosen[0] in (3, 7)
    assert not {3, 7} <= set(chosen.tolist())
    assert {3, 7} <= set(MutualInformationSelector(2).fit(X, y).order_.tolist())


def test_stability_counts_half_samples_of_patients() -> None:
    X, y = table()
    patients = np.arange(150) // 5
    found = StabilitySelector(3).fit(X, y, groups=patients)
    assert found.scores_.max() == 1
    assert found.scores_.sum() == pytest.approx(3)
    assert set(found.order_.tolist()) == {3, 7, 9}
    again = StabilitySelector(3).fit(X, y, groups=patients)
    np.testing.assert_array_equal(found.scores_, again.scores_)


@pytest.mark.parametrize("name", SELECTORS)
def test_soft_labels_ties_and_scale(name: str) -> None:
    X, y = table()
    selector = SELECTORS[name]
    hard = selector(3).fit(X, y)
    soft = selector(3).fit(X, np.where(y == 1, 0.75, 0.5))  # a tie is benign
    np.testing.assert_array_equal(hard.order_, soft.order_)
    scaled = selector(3).fit(X * np.linspace(1, 100, 12) - 7, y)
    np.testing.assert_array_equal(hard.order_, scaled.order_)
    assert hard.transform(X).shape == (150, 3)
    assert selector(99).fit(X, y).get_support().all()
    with pytest.raises(ValueError, match="only one class"):
        selector().fit(X, np.full(150, 0.25))
    with pytest.raises(ValueError, match="at least 1"):
        selector(0).fit(X, y)
