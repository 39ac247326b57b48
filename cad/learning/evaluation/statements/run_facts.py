"""Read facts about a run, for reviewers' checklists, from the run's files."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from cad.learning.evaluation.decisions.operating import OperatingChoice
from cad.learning.evaluation.measures.comparison import Comparison
from cad.learning.evaluation.summary import Summary

Json = Mapping[str, Any]
UNKNOWN = "not known to the program"
# The settings of the section ``decision`` that are costs.
COSTS = ("false_positive", "false_negative", "refer_negative", "refer_positive")
# Words in the name of a rival by which it counts as a simple model.
_SIMPLE = ("logistic", "linear", "mean")


@dataclass(frozen=True)
class RunFacts:
    """Hold one run's ``run.json`` and ``metrics.json``, and read facts from them.

    Parameters
    ----------
    run : mapping
        Content of ``run.json``. In a file of an earlier version any key may be absent.
    metrics : Summary
        Content of ``metrics.json``.
    """

    run: Json
    metrics: Summary

    def settings(self, *path: str) -> Json:
        """Return a section of the pipeline's settings, as the run recorded it.

        ``path`` has the names that lead to the section, the outermost first. The result is empty if
        the run did not record this section.
        """
        # A section may be absent, or present without a value; either is empty.
        section = self.run.get("settings") or {}
        for name in path:
            section = section.get(name) or {}
        return dict(section)

    @property
    def pictured(self) -> bool:
        """Return whether the run measured images.

        It did not if its features come from a user's table.
        """
        return self.settings("features").get("modalities") != []

    @property
    def counts(self) -> Json:
        """Return the numbers of studies, features and sites, by name.

        A number is None if it was not counted.
        """
        return {"features": None, "sites": None, **(self.run.get("counts") or {})}

    @property
    def fitted(self) -> Json:
        """Return the description of the fitted estimator; empty if it was not recorded."""
        return self.run.get("estimator") or {}

    @property
    def parameters(self) -> Json:
        """Return the fitted learner's parameters that are not None."""
        recorded = self.fitted.get("parameters") or {}
        return {name: value for name, value in recorded.items() if value is not None}

    @property
    def weights(self) -> Json:
        """Return the weight of each value of each parameter, for a learner that averages
        settings.
        """
        return self.fitted.get("weights") or {}

    @property
    def steps(self) -> dict[str, Json]:
        """Return the steps before the learner, by the names of their classes.

        If several steps have one class, the first of them stands for all.
        """
        by_name: dict[str, Json] = {}
        for step in self.fitted.get("steps") or []:
            by_name.setdefault(step["name"], step)
        return by_name

    @property
    def selector(self) -> Json | None:
        """Return the step that selects features; None if there is no such step."""
        # Only a selecting step has a number of features to keep.
        for step in self.fitted.get("steps") or []:
            if "n_features" in step:
                return dict(step)
        return None

    @property
    def models(self) -> dict[str, Json]:
        """Return the models that a prediction used, by name."""
        return (self.run.get("model") or {}).get("models") or {}

    @property
    def predicted(self) -> bool:
        """Return whether the run predicts with trained models, and fits nothing."""
        return self.run.get("kind") == "predict"

    @property
    def patients_shared_with_training(self) -> int:
        """Return how many patients of a prediction were also in the training of one of its models.

        It is the largest number of one model. Several models may have been trained on different
        patients, so that more patients may be shared. A run records numbers only, and no ids.
        """
        numbers = [model.get("patients_of_training", 0) for model in self.models.values()]
        return max(numbers, default=0)

    @property
    def external(self) -> bool:
        """Return whether no patient of a prediction was in the training of its models."""
        return self.predicted and self.patients_shared_with_training == 0

    @property
    def validated(self) -> bool:
        """Return whether the run fitted models and left patients out."""
        return not self.predicted and self.settings("validate").get("scheme", "none") != "none"

    @property
    def held_out(self) -> bool:
        """Return whether patients were predicted by models that were not fitted to them."""
        return self.external or self.validated

    @property
    def comparison(self) -> Comparison | None:
        """Return the measures of the predictions against histology.

        If histology is not known, these are the measures against the readers' consensus, or None.
        """
        return self.metrics.histology or self.metrics.consensus

    @property
    def rarer(self) -> int:
        """Return the number of regions of the rarer class; 0 if no truth is known."""
        comparison = self.comparison
        if comparison is None:
            return 0
        return min(comparison.positive, comparison.negative)

    @property
    def kappas(self) -> list[float]:
        """Return the weighted kappas of all pairs of readers for which it could be computed."""
        if self.metrics.agreement is None:
            return []
        values = [pair["value"] for pair in self.metrics.agreement["kappa"]]
        # A kappa that could not be computed is shown as a dash.
        return [value for value in values if digits3(value) != "–"]

    @property
    def rivals(self) -> list[str]:
        """Return the names of the rivals: other learners that were validated on the same folds."""
        if self.metrics.rivals is None:
            return []
        return sorted({row["learner"] for row in self.metrics.rivals["table"]})

    @property
    def simple_rivals(self) -> list[str]:
        """Return the names of the simple rivals: names with "logistic", "linear" or "mean"."""
        simple = []
        for name in self.rivals:
            if any(word in name.lower() for word in _SIMPLE):
                simple.append(name)
        return simple

    @property
    def costs(self) -> dict[str, float]:
        """Return the costs from which decisions follow, by the name of the setting.

        Other settings of the section ``decision``, such as an aim or the prevalence, are left out.
        """
        decision = self.settings("decision")
        return {name: decision[name] for name in COSTS if decision.get(name) is not None}

    @property
    def operating_choice(self) -> OperatingChoice | None:
        """Return the thresholds that were chosen for an aim, in this run or in the training of its
        model.
        """
        if self.metrics.operating_point is not None:
            return self.metrics.operating_point
        # A prediction by several models takes the thresholds of the first.
        return next(iter(self.metrics.at_training.values()), None)


def digits3(value: float | None) -> str:
    """Return a number with three significant digits, or a dash where it is unknown.

    Parameters
    ----------
    value : float or None
        The number; None and NaN stand for an unknown number.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> digits3(0.84371), digits3(None)
    ('0.844', '–')
    """
    if value is None or isnan(value):
        return "–"
    return f"{value:.3g}"
