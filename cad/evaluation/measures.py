"""The one table of measures: name, title, function, what it needs, which way is better.

Whatever shows or compares a measure looks it up here by name. To add one, add a row and, where
there is none yet, its function in :mod:`cad.evaluation.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cad.evaluation import metrics


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

    def take(self, rows: np.ndarray) -> Cases:
        """Return the given rows; a patient who is drawn twice becomes two patients."""
        drawn = self.patients[rows] + (self.patients.max() + 1) * _times_before(rows)
        columns = (self.truth[rows], self.target[rows], self.score[rows])
        return Cases(*columns, drawn, self.is_probability)


def _times_before(rows: np.ndarray) -> np.ndarray:
    """Return how often each entry of ``rows`` has occurred earlier in it."""
    order = np.argsort(rows, kind="stable")
    new = np.append(True, np.diff(rows[order]) != 0)[: len(rows)]
    start = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    times = np.empty(len(rows), dtype=int)
    times[order] = np.arange(len(rows)) - start
    return times


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
        :class:`Cases` to a number; NaN where it is not defined.
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
    function: Callable[[Cases], float]
    needs: Literal["score", "probability"]
    better: Literal["higher", "lower", "near 0", "near 1"]
    digits: int = 3
    headline: bool = False

    def __call__(self, cases: Cases) -> float:
        """Return the value, NaN where the measure needs a probability and there is none."""
        if self.needs == "probability" and not cases.is_probability:
            return float("nan")
        return self.function(cases)


_TABLE = (
    Measure("auc", "AUC", lambda c: metrics.auc(c.truth, c.score), "score", "higher"),
    Measure(
        "accuracy",
        "Accuracy at .5",
        lambda c: metrics.accuracy(c.truth, c.score),
        "probability",
        "higher",
        headline=True,
    ),
    Measure(
        "average_precision",
        "Average precision",
        lambda c: metrics.average_precision(c.truth, c.score),
        "score",
        "higher",
    ),
    Measure(
        "patient_average_precision",
        "Average precision, patients",
        lambda c: metrics.patient_average_precision(c.truth, c.score, c.patients),
        "score",
        "higher",
    ),
    Measure(
        "partial_auc",
        "Partial AUC",
        lambda c: metrics.partial_auc(c.truth, c.score),
        "score",
        "higher",
    ),
    Measure(
        "kl",
        "Two-sided KL, sum, nats",
        lambda c: metrics.kl(c.target, c.score),
        "probability",
        "lower",
        digits=1,
        headline=True,
    ),
    Measure(
        "kl_one_sided",
        "One-sided KL, as printed in the paper; no criterion",
        lambda c: metrics.kl_one_sided(c.target, c.score),
        "probability",
        "near 0",
        digits=1,
    ),
    Measure(
        "alignment_error",
        "Alignment error",
        lambda c: metrics.alignment_error(c.target, c.score),
        "probability",
        "lower",
        headline=True,
    ),
    Measure(
        "cross_entropy",
        "Cross-entropy, nats",
        lambda c: metrics.cross_entropy(c.target, c.score),
        "probability",
        "lower",
    ),
    Measure(
        "brier",
        "Brier score",
        lambda c: metrics.brier(c.target, c.score),
        "probability",
        "lower",
        headline=True,
    ),
    Measure(
        "calibration_intercept",
        "Calibration intercept",
        lambda c: metrics.calibration_intercept(c.target, c.score),
        "probability",
        "near 0",
        digits=2,
    ),
    Measure(
        "calibration_slope",
        "Calibration slope",
        lambda c: metrics.calibration_slope(c.target, c.score),
        "probability",
        "near 1",
        digits=2,
    ),
)
MEASURES: dict[str, Measure] = {measure.name: measure for measure in _TABLE}


def measure_values(cases: Cases) -> dict[str, float]:
    """Return every measure of the table by its name."""
    return {name: measure(cases) for name, measure in MEASURES.items()}
