"""Pointwise learners as scikit-learn estimators: the checks, and what they refuse."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cad.learners import FuzzySVC, PlattSVC, ProbabilisticSVC


@parametrize_with_checks([ProbabilisticSVC(), PlattSVC(), FuzzySVC()])
def test_scikit_learn_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]
