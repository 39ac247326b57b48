"""Learners as scikit-learn estimators; :data:`LEARNERS` names them."""

from __future__ import annotations

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

LEARNERS: dict[str, type] = {
    "AveragedProbabilisticSVC": AveragedProbabilisticSVC,
    "FuzzySVC": FuzzySVC,
    "KernelLogistic": KernelLogistic,
    "LogitSVR": LogitSVR,
    "PlattSVC": PlattSVC,
    "ProbabilisticSVC": ProbabilisticSVC,
    "RejectSVC": RejectSVC,
    "SoftPlattSVC": SoftPlattSVC,
    "OPAUC": OPAUC,
    "RankBoost": RankBoost,
    "SSLROC": SSLROC,
    "SSRankBoost": SSRankBoost,
    "SVMLin": SVMLin,
    "SVMROC": SVMROC,
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
