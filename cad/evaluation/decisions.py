"""What a run decided, and what its decisions and referrals cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cad.evaluation import metrics
from cad.evaluation.comparison import enough_patients, is_probability
from cad.evaluation.reject import RejectPoint, decide, reject_curve, reject_point
from cad.settings import DecisionSettings

DECISIONS = {0: "benign", -1: "refer", 1: "malignant"}


@dataclass(frozen=True)
class Thresholds:
    """Hold P- and P+: benign below the first, malignant above the second."""

    lower: float
    upper: float


@dataclass(frozen=True)
class DecisionCount:
    """Hold the number of regions of one decision, by histology."""

    n: int
    malignant: int
    benign: int
    unknown: int


@dataclass(frozen=True)
class Reject:
    """Hold the errors and the cost of referring.

    Parameters
    ----------
    against : str
        ``histology``, or ``readers`` where that has too few regions.
    point : RejectPoint
        Of the run's decisions.
    curve : dict of str to list of float
        See :func:`cad.evaluation.reject.reject_curve`.
    """

    against: str
    point: RejectPoint
    curve: dict[str, list[float]]


def decided_words(
    frame: pd.DataFrame, score: np.ndarray, thresholds: tuple[float, float]
) -> np.ndarray:
    """Return each region's ``decision`` where the frame has it, else by threshold; else empty."""
    if "decision" in frame:
        stored: np.ndarray = frame["decision"].to_numpy(dtype=str)
        return stored
    words = np.array([DECISIONS[code] for code in decide(score, *thresholds).tolist()], dtype=str)
    return np.where(np.isfinite(score), words, "")


def count_decisions(decided: np.ndarray, truth: np.ndarray) -> dict[str, DecisionCount]:
    """Return the regions of each decision, by histology."""
    return {word: _count(truth[decided == word]) for word in DECISIONS.values()}


def _count(truth: np.ndarray) -> DecisionCount:
    return DecisionCount(
        n=len(truth),
        malignant=int(np.sum(truth == 1)),
        benign=int(np.sum(truth == 0)),
        unknown=int(np.isnan(truth).sum()),
    )


def reject_summary(
    truth: np.ndarray,
    consensus: np.ndarray,
    score: np.ndarray,
    patients: np.ndarray,
    decided: np.ndarray,
    costs: DecisionSettings,
) -> Reject | None:
    """Measure decisions against histology, or against readers where that has too few regions."""
    code = np.select([decided == word for word in DECISIONS.values()], list(DECISIONS), -1)
    majority = metrics.consensus_truth(consensus)[0]
    for against, y in (("histology", truth), ("readers", majority)):
        usable = np.isfinite(y) & np.isfinite(score)
        y, q = y[usable], score[usable]
        if enough_patients(y, patients[usable]) and is_probability(q):
            point = reject_point(y, code[usable], costs)
            return Reject(against, point, reject_curve(y, q, costs))
    return None
