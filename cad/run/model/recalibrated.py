"""Write a new bundle of a model whose probabilities were fitted to a site.

The joint model, which leads from beliefs to probabilities of cancer, is replaced. The learner and
its beliefs stay the same. Two things depend on the size of the probabilities: the thresholds of
decisions, and the weights by which a reader's score is combined with the tool (the model). The
thresholds are chosen again on the site's men, and the weights are converted.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if

from cad.base.files import JsonObject, json_safe
from cad.learning.evaluation.decisions.recalibrate import Recalibration
from cad.learning.evaluation.readers.assisted import Combinations
from cad.learning.stored import Declared, Inside, floats
from cad.run.model.bundle import Bundle, save_bundle, using
from cad.run.model.card import card


class Recalibrated(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a fitted learner so that its log-odds become ``intercept + slope * log-odds``.

    A bundle holds this wrapper only if an earlier version of the program recalibrated it.

    Parameters
    ----------
    learner : estimator
        Fitted learner.
    intercept, slope : float
        The two numbers of the recalibration.
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

        ``intercept`` and ``slope``, the two numbers of the recalibration, stay as they are.
        """
        self.learner = clone(self.learner).fit(X, y, **params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True  # a learner inside that is not fitted raises an error by itself

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
    out: Path, bundle: Bundle, training: pd.DataFrame, outcome: JsonObject, report: JsonObject
) -> None:
    """Write a new bundle of a model whose probabilities are moved to a site.

    Parameters
    ----------
    out : Path
        Folder of the new bundle.
    bundle : Bundle
        The model before recalibration.
    training : DataFrame
        The model's training regions with their out-of-fold probabilities, which are recalibrated,
        too.
    outcome : dict
        Metadata that replace those of the model. ``joint`` is the site's joint model.
        ``operating_point`` and ``man`` are the thresholds of regions and of men, chosen at the
        site. ``combinations`` are the weights of readers' scores and of the model.
        ``recalibrated_on`` lists the participants of the site.
    report : dict
        Becomes ``recalibration`` of the metadata, for the card: measures of ``regions`` and
        ``men``, each ``before`` and ``after`` recalibration.
    """
    # Two entries are left out, because ``save_bundle`` adds them.
    added_on_saving = ("structure", "schema_version")
    unchanged = {
        name: entry for name, entry in bundle.metadata.items() if name not in added_on_saving
    }
    meta: JsonObject = json_safe({**unchanged, **outcome, "recalibration": report})
    with using(bundle):
        card_text = card(meta)
    save_bundle(out, bundle.estimator, meta, card_text, bundle.reference_X, training)


def moved_combinations(weights: Combinations, intercept: float, slope: float) -> Combinations:
    """Return the weights that combine a reader's score with the tool, for a recalibrated tool.

    The new weights with the new log-odds of the tool give the same result as the old weights with
    the old log-odds.

    Parameters
    ----------
    weights : Combinations
        Weights of each reader's score and of the tool's log-odds before recalibration.
    intercept, slope : float
        Recalibration of the tool's log-odds: x becomes ``intercept + slope * x``.

    Returns
    -------
    Combinations
        The adapted weights of each reader and of an average reader.
    """
    readers = {}
    for name, combination in weights.readers.items():
        readers[name] = _rescaled_combination(combination, intercept, slope)
    return Combinations(
        readers=readers, anyone=_rescaled_combination(weights.anyone, intercept, slope)
    )


def _rescaled_combination(combination: Any, intercept: float, slope: float) -> Any:
    """Return weights that give the same result for log-odds ``intercept + slope x`` as for x."""
    # Let x be the tool's old log-odds and w their old weight. The combination then had the term w
    # x. The new log-odds are intercept + slope x. With the weight w / slope they give w x, as
    # before, and also the constant w / slope * intercept. This constant is subtracted from the
    # intercept.
    weight_of_tool = combination.tool / slope
    constant = weight_of_tool * intercept
    return replace(combination, tool=weight_of_tool, intercept=combination.intercept - constant)
