"""The one table of measures: name, title, function, what it needs, which way is better.

Whatever shows or compares a measure looks it up here by name. To add one, add a row and, where
there is none yet, its function in :mod:`cad.evaluation.weighted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cad.evaluation import weighted


@dataclass(frozen=True)
class Cases:
    """Hold the regions whose truth and score are both known, one value each.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        0 or 1.
    target : ndarray, shape (n,)
        Probability in [0, 1] that a probability is compared with: the truth, or the readers' mean.
    score : ndarray, shape (n,)
        Larger is more malignant.
    patients : ndarray of int, shape (n,)
        Number of the patient of every region, 0 and up.
    is_probability : bool
        Whether the score is a probability; a ranker's is not.
    """

    truth: np.ndarray
    target: np.ndarray
    score: np.ndarray
    patients: np.ndarray
    is_probability: bool


@dataclass(frozen=True)
class Measure:
    """Define one measure of predictions.

    Parameters
    ----------
    name : str
        Key in ``metrics.json`` and in settings.
    title : str
        What a reader of a table sees.
    function : callable
        :class:`Cases`, and how often each region counts in each draw, shape (draws, n), to an
        ndarray of shape (draws,); NaN where it is not defined.
    needs : {"score", "probability"}
        Whether any ranking will do. Without a probability the value is NaN.
    better : {"higher", "lower", "near 0", "near 1"}
        Which way is better.
    digits : int
        Decimals in a table.
    headline : bool
        Whether it stands where there is room for few: on the terminal and the model card.
    """

    name: str
    title: str
    function: Callable[[Cases, np.ndarray], np.ndarray]
    needs: Literal["score", "probability"]
    better: Literal["higher", "lower", "near 0", "near 1"]
    digits: int = 3
    headline: bool = False

    def __call__(self, cases: Cases) -> float:
        """Return the value, NaN where the measure needs a probability and there is none."""
        return float(self.draws(cases, np.ones((1, len(cases.truth))))[0])

    def draws(self, cases: Cases, weight: np.ndarray) -> np.ndarray:
        """Return the value in each draw, shape (draws,); ``weight`` as in ``function``."""
        if self.needs == "probability" and not cases.is_probability:
            return np.full(len(weight), np.nan)
        return self.function(cases, weight)


_TABLE = (
    Measure("auc", "AUC", lambda c, w: weighted.auc(c.truth == 1, c.score, w), "score", "higher"),
    Measure(
        "accuracy",
        "Accuracy at .5",
        lambda c, w: weighted.rates(c.truth == 1, c.score, 0.5, w)["accuracy"],
        "probability",
        "higher",
        headline=True,
    ),
    Measure(
        "average_precision",
        "Average precision",
        lambda c, w: weighted.average_precision(c.truth == 1, c.score, w),
        "score",
        "higher",
    ),
    Measure(
        "patient_average_precision",
        "Average precision, patients",
        lambda c, w: weighted.patient_average_precision(c.truth == 1, c.score, c.patients, w),
        "score",
        "higher",
    ),
    Measure(
        "partial_auc",
        "Partial AUC",
        lambda c, w: weighted.partial_auc(c.truth == 1, c.score, 0.2, w),
        "score",
        "higher",
    ),
    Measure(
        "kl",
        "Two-sided KL, sum, nats",
        lambda c, w: weighted.kl(c.target, c.score, w),
        "probability",
        "lower",
        digits=1,
        headline=True,
    ),
    Measure(
        "kl_one_sided",
        "One-sided KL, as printed in the paper; no criterion",
        lambda c, w: weighted.kl_one_sided(c.target, c.score, w),
        "probability",
        "near 0",
        digits=1,
    ),
    Measure(
        "alignment_error",
        "Alignment error",
        lambda c, w: weighted.alignment_error(c.target, c.score, w),
        "probability",
        "lower",
        headline=True,
    ),
    Measure(
        "cross_entropy",
        "Cross-entropy, nats",
        lambda c, w: weighted.cross_entropy(c.target, c.score, w),
        "probability",
        "lower",
    ),
    Measure(
        "brier",
        "Brier score",
        lambda c, w: weighted.brier(c.target, c.score, w),
        "probability",
        "lower",
        headline=True,
    ),
    Measure(
        "calibration_intercept",
        "Calibration intercept",
        lambda c, w: weighted.calibration_intercept(c.target, c.score, w),
        "probability",
        "near 0",
        digits=2,
    ),
    Measure(
        "calibration_slope",
        "Calibration slope",
        lambda c, w: weighted.calibration_slope(c.target, c.score, w),
        "probability",
        "near 1",
        digits=2,
    ),
)
MEASURES: dict[str, Measure] = {measure.name: measure for measure in _TABLE}


def measure_values(cases: Cases, weight: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Return every measure of the table by its name, shape (draws,).

    Parameters
    ----------
    cases : Cases
        The regions.
    weight : ndarray, shape (draws, n), optional
        How often each counts in each draw; once, in one draw, when not given.
    """
    times = np.ones((1, len(cases.truth))) if weight is None else weight
    return {name: measure.draws(cases, times) for name, measure in MEASURES.items()}
