"""Learners as scikit-learn estimators; :data:`LEARNERS` names them.

A learner's module is imported when its name is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cad.learners.averaged import AveragedProbabilisticSVC
    from cad.learners.baselines import KernelLogistic, LogitSVR
    from cad.learners.probabilistic import ProbabilisticSVC
    from cad.learners.ranking.opauc import OPAUC
    from cad.learners.ranking.rankboost import RankBoost, SSRankBoost
    from cad.learners.ranking.svmlin import SVMLin
    from cad.learners.ranking.svmroc import SSLROC, SVMROC
    from cad.learners.regressor import ProbabilityRegressor
    from cad.learners.reject import RejectSVC
    from cad.learners.svm import FuzzySVC, PlattSVC, SoftPlattSVC
    from cad.learners.trees import ProbabilisticEnsemble, SoftExtraTrees

    LEARNERS: dict[str, type]

_MODULES = {
    "AveragedProbabilisticSVC": "averaged",
    "FuzzySVC": "svm",
    "KernelLogistic": "baselines",
    "LogitSVR": "baselines",
    "PlattSVC": "svm",
    "ProbabilisticEnsemble": "trees",
    "ProbabilisticSVC": "probabilistic",
    "RejectSVC": "reject",
    "SoftExtraTrees": "trees",
    "SoftPlattSVC": "svm",
    "OPAUC": "ranking.opauc",
    "RankBoost": "ranking.rankboost",
    "SSLROC": "ranking.svmroc",
    "SSRankBoost": "ranking.rankboost",
    "SVMLin": "ranking.svmlin",
    "SVMROC": "ranking.svmroc",
}

__all__ = [
    "LEARNERS",
    "OPAUC",
    "SSLROC",
    "SVMROC",
    "AveragedProbabilisticSVC",
    "FuzzySVC",
    "KernelLogistic",
    "LogitSVR",
    "PlattSVC",
    "ProbabilisticEnsemble",
    "ProbabilisticSVC",
    "ProbabilityRegressor",
    "RankBoost",
    "RejectSVC",
    "SSRankBoost",
    "SVMLin",
    "SoftExtraTrees",
    "SoftPlattSVC",
]


def __getattr__(name: str) -> object:
    if name == "LEARNERS":
        value: object = {learner: __getattr__(learner) for learner in _MODULES}
    elif name in _MODULES or name == "ProbabilityRegressor":
        module = import_module(f"cad.learners.{_MODULES.get(name, 'regressor')}")
        value = getattr(module, name)
    else:
        raise AttributeError(f"module 'cad.learners' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
