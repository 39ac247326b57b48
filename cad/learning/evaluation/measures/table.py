"""Connect each measure with the function that computes it and with what it needs.

``cad/base/terms/measures.yaml`` has a row for each measure: the texts that show it, and which
values of the regions it compares. The function of the same name in
:mod:`cad.learning.evaluation.measures.metrics` computes it. Code that computes or compares a
measure looks it up here by its name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import expit

from cad.base.terms.measures import MEASURES as WORDS
from cad.base.terms.measures import MeasureWords
from cad.learning.evaluation.measures import metrics


@dataclass(frozen=True)
class Cases:
    """Hold arrays with one value per region, for the regions whose truth and score are both known.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        0 or 1.
    target : ndarray, shape (n,)
        Probability in [0, 1] that a learner's probability should match: the truth, or the readers'
        mean.
    score : ndarray, shape (n,)
        Larger is more malignant.
    patients : ndarray of int, shape (n,)
        Number of the patient of every region, from 0.
    is_probability : bool
        Whether the score is a probability; a ranker's score is not.
    centred : ndarray, shape (n,), optional
        If scores come from the models of several folds, log-odds that can be compared between the
        folds (:mod:`cad.learning.evaluation.measures.centring`). Regions are ranked by them, and a
        slope is fitted to them. When not given, the scores themselves are used.
    """

    truth: np.ndarray
    target: np.ndarray
    score: np.ndarray
    patients: np.ndarray
    is_probability: bool
    centred: np.ndarray | None = None

    @property
    def positive(self) -> np.ndarray:
        """Return whether each region is malignant, shape (n,)."""
        return np.asarray(self.truth == 1)

    @property
    def ranking(self) -> np.ndarray:
        """Return the values that rank regions, shape (n,); larger is more malignant."""
        return self.score if self.centred is None else self.centred

    @property
    def sloped(self) -> np.ndarray:
        """Return the probabilities to whose log-odds a calibration slope is fitted, shape (n,)."""
        return self.score if self.centred is None else np.asarray(expit(self.centred))


_Needs = Literal["score", "probability"]
Function = Callable[[Cases, np.ndarray], np.ndarray]
"""Function that computes a measure.

Its arguments are the regions (:class:`Cases`), and how often each counts in each draw of a
resampling, shape (draws, n). It returns an array of shape (draws,); NaN where the measure is not
defined.
"""


@dataclass(frozen=True)
class Measure(MeasureWords):
    """Hold a measure of predictions: the function that computes it, and the words that show it.

    The words are arguments of :class:`cad.base.terms.measures.MeasureWords`: ``name``, ``title``,
    ``better`` (which values are better), ``digits`` (how many a table shows), ``headline`` and
    ``compares`` (which values of the regions the function gets).

    Parameters
    ----------
    function : Function
        Function of the regions (:class:`Cases`) and of how often each counts in each draw, shape
        (draws, n). It returns the measure of each draw, shape (draws,).
    needs : {"score", "probability"}
        "score" if the measure can be computed from any score; "probability" if it is NaN for scores
        that are no probabilities.
    """

    needs: _Needs = "score"
    function: Function = field(kw_only=True)

    def __call__(self, cases: Cases) -> float:
        """Return the measure of the regions ``cases``.

        The result is NaN if the measure needs a probability and the score is not a probability.
        """
        return float(self.draws(cases, np.ones((1, len(cases.truth))))[0])

    def draws(self, cases: Cases, weight: np.ndarray) -> np.ndarray:
        """Return the measure's value in each draw of a resampling, shape (draws,).

        Parameters
        ----------
        cases : Cases
            The regions.
        weight : ndarray, shape (draws, n)
            How often each region counts in each draw.
        """
        if self.needs == "probability" and not cases.is_probability:
            return np.full(len(weight), np.nan)
        return self.function(cases, weight)


def _measure(words: MeasureWords) -> Measure:
    """Return a measure with its function: the one of the same name in :mod:`.metrics`."""
    function = getattr(metrics, words.name)

    # ``compares`` names the properties of the regions that the function gets.
    def draws(cases: Cases, weight: np.ndarray) -> np.ndarray:
        """Return the measure in each draw of a resampling, shape (draws,)."""
        values = [getattr(cases, name) for name in words.compares]
        return np.asarray(function(*values, weight=weight))

    # A measure of the order of the regions can be computed from any score.
    needs: _Needs = "score" if "ranking" in words.compares else "probability"
    return Measure(**vars(words), needs=needs, function=draws)


MEASURES: dict[str, Measure] = {name: _measure(words) for name, words in WORDS.items()}
"""Every measure of :data:`cad.base.terms.measures.MEASURES` with its function."""


def measure_values(cases: Cases, weight: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Compute every measure in :data:`MEASURES`.

    Parameters
    ----------
    cases : Cases
        The regions.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling; when not given, one draw in which
        each region counts once.

    Returns
    -------
    dict of str to ndarray, shape (draws,)
        The values of each measure in each draw, by name of the measure.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0.0, 0.0, 1.0, 1.0])
    >>> score = np.array([0.1, 0.6, 0.4, 0.9])
    >>> values = measure_values(Cases(truth, truth, score, np.arange(4), is_probability=True))
    >>> sorted(values)[:3]
    ['accuracy', 'alignment_error', 'auc']
    >>> round(float(values["brier"][0]), 3)
    0.185
    """
    times_drawn = np.ones((1, len(cases.truth))) if weight is None else weight
    return {name: measure.draws(cases, times_drawn) for name, measure in MEASURES.items()}
