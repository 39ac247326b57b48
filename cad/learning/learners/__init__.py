"""Provide the learners as scikit-learn estimators. :data:`LEARNERS` has their names.

The module of a learner is imported when its name is first used. Type checkers read the stub file
beside this module instead.
"""

from importlib import import_module

_MODULES = {
    "AveragedProbabilisticSVC": "averaged",
    "FuzzySVC": "svm",
    "KernelLogistic": "baselines",
    "LogitSVR": "baselines",
    "PlattSVC": "svm",
    "ProbabilisticEnsemble": "ensemble",
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

__all__ = ["LEARNERS", "ProbabilityRegressor", *_MODULES]


def __getattr__(name: str) -> object:
    if name == "LEARNERS":
        value: object = {learner: __getattr__(learner) for learner in _MODULES}
    elif name in _MODULES or name == "ProbabilityRegressor":
        # ProbabilityRegressor is no learner, so it is not in the table.
        module = _MODULES.get(name, "regressor")
        value = getattr(import_module(f"cad.learning.learners.{module}"), name)
    else:
        raise AttributeError(f"module 'cad.learning.learners' has no attribute {name!r}")
    # Python does not call this function again for a name that is stored in the module.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
