"""Learners as scikit-learn estimators; :data:`LEARNERS` names them."""

from __future__ import annotations

from cad.learners.probabilistic import ProbabilisticSVC
from cad.learners.svm import FuzzySVC, PlattSVC

LEARNERS: dict[str, type] = {
    "FuzzySVC": FuzzySVC,
    "PlattSVC": PlattSVC,
    "ProbabilisticSVC": ProbabilisticSVC,
}

__all__ = [
    "LEARNERS",
    "FuzzySVC",
    "PlattSVC",
    "ProbabilisticSVC",
]
