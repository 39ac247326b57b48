"""Describe fitted estimators, for cards, pages and checklists."""

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

# Settings of which an average of support vector machines has machines with several values.
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
        - ``grid``, ``criterion``, ``inner_folds``: only where a grid search chose parameters.
        - ``members``: smallest and largest number of support vector machines that one fit averages
          (1 and 1 for a single machine).
        - ``trees``: number of trees.
        - ``start``: what a fit starts from. "convex" means that the problem has one minimum, so
          that the start does not matter; for trees the text has their seed.
        - ``weights``: for a learner that averages support vector machines of several settings, the
          weight of each value of each setting, as a mean over the fits.
        - ``sentence``: these weights in words; empty without weights.
        - ``fits``: number of estimators.

        A value that the learner does not have is None.
    """
    if not estimators:
        return None
    fitted = [getattr(estimator, "best_estimator_", estimator) for estimator in estimators]
    learners = [_learner_of(estimator) for estimator in fitted]
    # All are of one kind, and were made with the same parameters.
    first = learners[0]
    description: JsonObject = {
        "learner": type(first).__name__,
        "parameters": _parameters(first),
        "steps": _steps_before(fitted[0]),
        "members": _number_of_members(learners),
        "trees": _trees(first),
        "weights": _weights_of_settings(learners),
        "start": _start_of_fit(first),
        "fits": len(fitted),
    }
    search = estimators[0]
    if isinstance(search, PatientGridSearch):
        description["grid"] = search.grid
        description["criterion"] = search.criterion
        description["inner_folds"] = search.n_folds
    description["sentence"] = _weights_sentence(description["weights"])
    return dict(json_safe(description))


def _learner_of(estimator: Any) -> Any:
    """Return the learner at the end of a pipeline.

    For a recalibrated learner this is the learner that it wraps.
    """
    learner = estimator
    if isinstance(estimator, Pipeline):
        learner = estimator.steps[-1][1]
    return getattr(learner, "learner", learner)


def _steps_before(estimator: Any) -> list[JsonObject]:
    """Return the class name and the parameters of each step of a pipeline before its learner."""
    if not isinstance(estimator, Pipeline):
        return []
    steps = []
    for _, step in estimator.steps[:-1]:
        steps.append({"name": type(step).__name__, **_parameters(step)})
    return steps


def _parameters(step: Any) -> JsonObject:
    """Return the parameters that an estimator holds.

    ``get_params`` is not used, because an estimator of an older bundle may lack newer parameters.
    """
    parameters = {}
    for name, value in vars(step).items():
        if not name.startswith("_") and not name.endswith("_"):
            parameters[name] = value
    return parameters


def _weights_of_settings(learners: Sequence[Any]) -> JsonObject | None:
    """Return how much each value of a setting counts in averages of support vector machines.

    For each setting and each of its values, the weights of the machines with this value are summed,
    and the sums are averaged over the fits. The result is None where a learner is no average of
    machines.
    """
    if not all(hasattr(learner, "points_") for learner in learners):
        return None
    weights: dict[str, dict[str, float]] = {name: {} for name in _WEIGHED}
    for learner in learners:
        # Each point stands for one machine: its settings, and its weight in the average.
        for point in learner.points_:
            share = point["weight"] / len(learners)
            for name in _WEIGHED:
                # A setting that a point does not name had the value that was given to the learner.
                value = point.get(name, "given")
                value_text = value if isinstance(value, str) else f"{value:g}"
                weights[name][value_text] = weights[name].get(value_text, 0.0) + share
    for name, weight_of_values in weights.items():
        weights[name] = dict(sorted(weight_of_values.items()))
    return weights


def _number_of_members(learners: Sequence[Any]) -> list[int] | None:
    """Return the smallest and the largest number of support vector machines in one fit.

    The result is None for learners of another kind.
    """
    if all(isinstance(learner, AveragedProbabilisticSVC) for learner in learners):
        counts = [len(learner.points_) for learner in learners]
        return [min(counts), max(counts)]
    if all(isinstance(learner, KernelMachine) for learner in learners):
        return [1, 1]
    return None


def _trees(learner: Any) -> int | None:
    if isinstance(learner, (SoftExtraTrees, ProbabilisticEnsemble)):
        return int(np.max(learner.trees))
    return None


def _start_of_fit(learner: Any) -> str | None:
    """Return a text on what the fit of a learner starts from.

    The text is "convex" for a kernel machine, whose result does not depend on the start. For trees
    it has their seed. The result is None for all other learners.
    """
    if isinstance(learner, ProbabilisticEnsemble):
        return f"convex; trees of seed {learner.trees_.seed}"
    if isinstance(learner, SoftExtraTrees):
        return f"seed {learner.seed}"
    if isinstance(learner, KernelMachine):
        return "convex"
    return None


def _weights_sentence(weights: JsonObject | None) -> str:
    """Say how much weight the values of eta0 and of the scaling have in an average of support
    vector machines; empty without weights.

    kappa, which says how far the readers' spread counts, is left out. Its weight is no evidence
    that the spread helps; :mod:`cad.learning.evaluation.folds.disagreement` tests this.
    """
    if not weights:
        return ""
    clauses = []
    for name, title in (("eta0", "η₀"), ("scaling", "scaling")):
        shares = [f"{value}: {share:.0%}" for value, share in weights[name].items()]
        clauses.append(f"{title} {', '.join(shares)}")
    return f"Weights of {'; '.join(clauses)}."
