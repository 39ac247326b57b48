"""Ask fitted estimators what they are, for cards, pages and checklists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from cad.base.files import JsonObject, json_safe
from cad.learning.evaluation.folds.nested import PatientGridSearch
from cad.learning.learners.averaged import AveragedProbabilisticSVC
from cad.learning.learners.base import KernelMachine
from cad.learning.learners.ensemble import ProbabilisticEnsemble
from cad.learning.learners.trees import SoftExtraTrees

_WEIGHED = ("scaling", "gamma", "eta0", "kappa", "C")


def describe(estimators: Sequence[Any]) -> JsonObject | None:
    """Return a description of fitted estimators of one kind; None for an empty sequence.

    Parameters
    ----------
    estimators : sequence of estimator
        Pipelines, grid searches over pipelines, or learners: one for each fold of a validation, or
        the only one of a model.

    Returns
    -------
    dict
        Values that JSON can hold:

        - ``learner`` and ``parameters``: class name and parameters of the learner.
        - ``steps``: class name and parameters of each step before the learner.
        - ``grid``, ``criterion``, ``inner_folds``: only where a grid search chose.
        - ``members``: fewest and most machines that one fit averages (1 for one machine).
        - ``trees``: number of trees; ``start``: what a fit starts from, "convex"
          (one minimum, so the start does not matter), or a text with the seed of the trees.
        - ``weights``: for a learner that weighs its settings, mean weight over the fits, by setting
          and value; ``sentence``: the same in words, empty without weights.
        - ``fits``: number of estimators.

        A value that the learner does not have is None.
    """
    if not estimators:
        return None
    fitted = [getattr(estimator, "best_estimator_", estimator) for estimator in estimators]
    steps = [
        estimator_of_fold.steps
        if isinstance(estimator_of_fold, Pipeline)
        else [("", estimator_of_fold)]
        for estimator_of_fold in fitted
    ]
    learners = [
        getattr(estimator_of_fold[-1][1], "learner", estimator_of_fold[-1][1])
        for estimator_of_fold in steps
    ]  # recalibrated
    first, search = learners[0], estimators[0]
    description: JsonObject = {
        "learner": type(first).__name__,
        "parameters": _parameters(first),
        "steps": [{"name": type(step).__name__, **_parameters(step)} for _, step in steps[0][:-1]],
        "members": _members(learners),
        "trees": _trees(first),
        "weights": _weights(learners),
        "start": _start(first),
        "fits": len(fitted),
    }
    if isinstance(search, PatientGridSearch):
        description["grid"] = search.grid
        description["criterion"], description["inner_folds"] = search.criterion, search.n_folds
    description["sentence"] = _weights_sentence(description["weights"])
    return dict(json_safe(description))


def _parameters(step: Any) -> JsonObject:
    """Return the parameters that an estimator has; one of an older bundle lacks newer ones."""
    return {k: v for k, v in vars(step).items() if not k.endswith("_") and not k.startswith("_")}


def _weights(learners: Sequence[Any]) -> JsonObject | None:
    """Return the weight of every value of every setting, mean over fits; None without weights."""
    if not all(hasattr(learner, "points_") for learner in learners):
        return None
    weights: dict[str, dict[str, float]] = {name: {} for name in _WEIGHED}
    for learner in learners:
        for point in learner.points_:
            for name in _WEIGHED:
                value = point.get(name, "given")
                key = value if isinstance(value, str) else f"{value:g}"
                weights[name][key] = weights[name].get(key, 0.0) + point["weight"] / len(learners)
    return {name: dict(sorted(shares.items())) for name, shares in weights.items()}


def _members(learners: Sequence[Any]) -> list[int] | None:
    if all(isinstance(learner, AveragedProbabilisticSVC) for learner in learners):
        counts = [len(learner.points_) for learner in learners]
        return [min(counts), max(counts)]
    return [1, 1] if all(isinstance(learner, KernelMachine) for learner in learners) else None


def _trees(learner: Any) -> int | None:
    grown = isinstance(learner, (SoftExtraTrees, ProbabilisticEnsemble))
    return int(np.max(learner.trees)) if grown else None


def _start(learner: Any) -> str | None:
    """Say what a fit starts from: a convex problem has one minimum, trees are drawn."""
    if isinstance(learner, ProbabilisticEnsemble):
        return f"convex; trees of seed {learner.trees_.seed}"
    if isinstance(learner, SoftExtraTrees):
        return f"seed {learner.seed}"
    return "convex" if isinstance(learner, KernelMachine) else None


def _weights_sentence(weights: JsonObject | None) -> str:
    """Say how much eta0 and the scalings count; empty where nothing was weighed.

    Not kappa, whose weight is no evidence: see
    :mod:`cad.learning.evaluation.folds.disagreement`.
    """
    if not weights:
        return ""
    names = {"eta0": "η₀", "scaling": "scaling"}
    clauses = [
        f"{title} " + ", ".join(f"{value}: {share:.0%}" for value, share in weights[name].items())
        for name, title in names.items()
    ]
    return f"Weights of {'; '.join(clauses)}."
