"""Learners as scikit-learn estimators; :data:`LEARNERS` names them.

A learner's module is imported when its name is first asked for.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cad.learners.averaged import AveragedProbabilisticSVC
    from cad.learners.baselines import KernelLogistic, LogitSVR
    from cad.learners.opauc import OPAUC
    from cad.learners.probabilistic import ProbabilisticSVC
    from cad.learners.rankboost import RankBoost
    from cad.learners.regressor import ProbabilityRegressor
    from cad.learners.reject import RejectSVC
    from cad.learners.sslroc import SSLROC
    from cad.learners.ssrankboost import SSRankBoost
    from cad.learners.svm import FuzzySVC, PlattSVC, SoftPlattSVC
    from cad.learners.svmlin import SVMLin
    from cad.learners.svmroc import SVMROC

    LEARNERS: dict[str, type]

_MODULES = {
    "AveragedProbabilisticSVC": "averaged",
    "FuzzySVC": "svm",
    "KernelLogistic": "baselines",
    "LogitSVR": "baselines",
    "PlattSVC": "svm",
    "ProbabilisticSVC": "probabilistic",
    "RejectSVC": "reject",
    "SoftPlattSVC": "svm",
    "OPAUC": "opauc",
    "RankBoost": "rankboost",
    "SSLROC": "sslroc",
    "SSRankBoost": "ssrankboost",
    "SVMLin": "svmlin",
    "SVMROC": "svmroc",
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
    "ProbabilisticSVC",
    "ProbabilityRegressor",
    "RankBoost",
    "RejectSVC",
    "SSRankBoost",
    "SVMLin",
    "SoftPlattSVC",
]


def __getattr__(name: str) -> object:
    if name == "LEARNERS":
        found: object = {learner: __getattr__(learner) for learner in _MODULES}
    elif name in _MODULES or name == "ProbabilityRegressor":
        found = getattr(_load(_MODULES.get(name, "regressor")), name)
    else:
        raise AttributeError(f"module 'cad.learners' has no attribute {name!r}")
    globals()[name] = found
    return found


def _load(module: str) -> ModuleType:
    """Import a module; unused cycles are looked for less often meanwhile.

    Python looks through all modules again and again while they are loaded, and they stay.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, *before[1:])
    try:
        return import_module(f"cad.learners.{module}")
    finally:
        gc.set_threshold(*before)


def __dir__() -> list[str]:
    return sorted(__all__)
