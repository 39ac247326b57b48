"""A model whose probabilities are fitted to a site: the same bundle, its log-odds moved.

What a model says of order stays; what hangs on the size of its probabilities (thresholds, what a
reader makes of them, the man's probability) moves with them or is chosen anew on the site's men.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe, typed
from cad.learning.evaluation.decisions.recalibrate import Recalibration
from cad.learning.evaluation.readers.assisted import Combinations
from cad.learning.stored import Declared, Inside, floats
from cad.run.model.bundle import Bundle, save_bundle
from cad.run.model.card import card


class Recalibrated(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a fitted learner; its log-odds become ``intercept + slope * log-odds``.

    Parameters
    ----------
    learner : estimator
        Fitted learner.
    intercept, slope : float
        Numbers of a :class:`cad.learning.evaluation.decisions.recalibrate.Recalibration`.
    """

    stored: ClassVar[Declared] = {
        "learner": Inside(),
        "intercept": floats(),
        "slope": floats(),
    }

    def __init__(self, learner: Any, intercept: float, slope: float) -> None:
        self.learner = learner
        self.intercept = intercept
        self.slope = slope

    def fit(self, X: ArrayLike, y: ArrayLike, **params: Any) -> Self:
        """Replace the learner by a copy fitted to X and y; return this object.

        Intercept and slope stay as they are.
        """
        self.learner = clone(self.learner).fit(X, y, **params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True  # as the learner, which says so itself

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probabilities of benign and malignant, shape (n, 2)."""
        q = np.asarray(self.learner.predict_proba(X), dtype=float)[:, -1]
        p = Recalibration(self.intercept, self.slope).probability(q)
        return np.column_stack([1 - p, p])

    @available_if(lambda self: hasattr(self.learner, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the learner's decision values, not recalibrated, shape (n,)."""
        return np.asarray(self.learner.decision_function(X))


def save_recalibrated(
    out: Path, bundle: Bundle, regions: Recalibration, outcome: JsonObject, report: JsonObject
) -> None:
    """Write a new bundle of a model whose probabilities are recalibrated for a site.

    Parameters
    ----------
    out : Path
        Folder of the new bundle.
    bundle : Bundle
        The model before recalibration.
    regions : Recalibration
        Intercept and slope for the log-odds of regions.
    outcome : dict
        Metadata that replace the model's, chosen at the site: ``operating_point`` and ``man`` (the
        model of a patient's probability, with its operating point), and ``recalibrated_on``, the
        participants.
    report : dict
        Metadata ``recalibration`` for the card: the maps of ``regions`` and ``men``, with measures
        ``before`` and ``after``.

    Raises
    ------
    CadError
        For a model that was recalibrated before.
    """
    steps = list(bundle.estimator.steps)
    name, learner = steps[-1]
    if isinstance(learner, Recalibrated):
        raise CadError(
            f"model {bundle.name} is recalibrated already",
            hint="recalibrate the model that it was made of, with all the men there are now",
        )
    steps[-1] = (name, Recalibrated(learner, regions.intercept, regions.slope))
    training = bundle.training
    if "out_of_fold" in training:
        # New probabilities are ranked among these for conformal sets: both lie behind the same map.
        moved = regions.probability(training["out_of_fold"].to_numpy(float))
        training = training.assign(out_of_fold=moved)
    readers = bundle.metadata.get("combinations")
    kept = {k: v for k, v in bundle.metadata.items() if k not in ("structure", "schema_version")}
    meta: JsonObject = json_safe(
        {**kept, **outcome, "recalibration": report,
         "combinations": readers and _for_moved(typed(Combinations, readers), regions)}
    )  # fmt: skip
    save_bundle(out, type(bundle.estimator)(steps), meta, card(meta), bundle.reference_X, training)


def _for_moved(weights: Combinations, moved: Recalibration) -> Combinations:
    """Return weights that say of moved probabilities what these say of the model's own."""

    def one(part: Any) -> Any:
        # A weight w of the old log-odds x is w / slope of the new ones, intercept + slope x, less
        # what their intercept would add.
        tool = part.tool / moved.slope
        return replace(part, tool=tool, intercept=part.intercept - tool * moved.intercept)

    readers = {name: one(part) for name, part in weights.readers.items()}
    return Combinations(readers, one(weights.anyone))
