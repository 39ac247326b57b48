"""Measures of discrimination and of probability, each a pure function (docs/methods.md 6).

Arrays are one value per ROI. ``truth`` is 0 or 1; ``target`` is a probability in [0, 1] (what
readers believed, or a certain 0 or 1); ``probability`` is what a learner says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cad.evaluation.measures import weighted
from cad.evaluation.measures.weighted import CLIP as CLIP


def auc(truth: ArrayLike, score: ArrayLike) -> float:
    """Return the area under the ROC curve, ties counted one half; NaN where a class is absent."""
    return _once(weighted.auc, *_binary(truth, score))


def roc_curve(truth: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return false and true positive rates at every threshold, from (0, 0) to (1, 1).

    Returns
    -------
    fpr, tpr, threshold : ndarray, shape (n_distinct + 1,)
        A ROI is called positive when its score is at or above the threshold; the first threshold
        is infinite. Rates are NaN where their class is absent.
    """
    threshold, true, false, positives, negatives = _cumulative(truth, score)
    with np.errstate(invalid="ignore"):
        return false / negatives, true / positives, threshold


def precision_recall_curve(truth: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return precision and recall at every threshold, highest first; precision starts at 1."""
    _, true, false, positives, _ = _cumulative(truth, score)
    called = true + false
    precision = np.divide(true, called, out=np.ones_like(true), where=called > 0)
    with np.errstate(invalid="ignore"):
        return precision, true / positives


def average_precision(truth: ArrayLike, score: ArrayLike) -> float:
    """Return the sum of precision times the step in recall; NaN without positives."""
    return _once(weighted.average_precision, *_binary(truth, score))


def patient_average_precision(truth: ArrayLike, score: ArrayLike, patients: ArrayLike) -> float:
    """Return the average precision over patients, each with the largest of their regions' scores.

    A patient counts as malignant when one of the regions is: the AUPRC at patient level of the
    field's challenges (Saha et al. 2024). NaN without a malignant patient.

    Parameters
    ----------
    truth, score : array, shape (n,)
        Of the regions.
    patients : array, shape (n,)
        The patient of every region.
    """
    groups = np.asarray(patients)
    return _once(weighted.patient_average_precision, *_binary(truth, score), groups)


def partial_auc(truth: ArrayLike, score: ArrayLike, max_fpr: float = 0.2) -> float:
    """Return the area left of ``max_fpr``, chance being .5 and perfect 1 (McClish 1989).

    Raises
    ------
    ValueError
        When ``max_fpr`` is not in (0, 1].
    """
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be in (0, 1], found {max_fpr}")
    return _once(weighted.partial_auc, *_binary(truth, score), max_fpr)


def consensus_truth(p: ArrayLike, threshold: float = 0.5) -> tuple[np.ndarray, int]:
    """Threshold a consensus: above is positive, a tie is negative.

    Returns
    -------
    truth : ndarray of float
        1, 0, or NaN where ``p`` is NaN.
    ties : int
        How many values lie on the threshold (within 1e-9).
    """
    p = np.asarray(p, dtype=float)
    tie = np.abs(p - threshold) <= 1e-9
    truth = ((p > threshold) & ~tie).astype(float)
    return np.where(np.isnan(p), np.nan, truth), int(tie.sum())


@dataclass(frozen=True)
class Counts:
    """Hold a two-by-two table and the rates it gives; a rate without cases is NaN."""

    tp: int
    fp: int
    tn: int
    fn: int

    @property
    def sensitivity(self) -> float:
        """Return the share of the malignant that are called malignant."""
        return _ratio(self.tp, self.tp + self.fn)

    @property
    def specificity(self) -> float:
        """Return the share of the benign that are called benign."""
        return _ratio(self.tn, self.tn + self.fp)

    @property
    def ppv(self) -> float:
        """Return the share of malignant among those called malignant."""
        return _ratio(self.tp, self.tp + self.fp)

    @property
    def npv(self) -> float:
        """Return the share of benign among those called benign."""
        return _ratio(self.tn, self.tn + self.fn)

    @property
    def accuracy(self) -> float:
        """Return the share called as they are."""
        return _ratio(self.tp + self.tn, self.tp + self.fp + self.tn + self.fn)


def counts(truth: ArrayLike, probability: ArrayLike, threshold: float = 0.5) -> Counts:
    """Return the two-by-two table when ROIs above the threshold are called malignant."""
    y, q = _binary(truth, probability)
    return Counts(*(int(cell[0]) for cell in weighted.table(y, q, threshold, np.ones((1, len(y))))))


def accuracy(truth: ArrayLike, probability: ArrayLike) -> float:
    """Return the share of ROIs on their own side of .5."""
    return counts(truth, probability).accuracy


def kl(target: ArrayLike, probability: ArrayLike) -> float:
    """Return the two-sided binary Kullback-Leibler distance, a sum in nats; both clipped."""
    return _once(weighted.kl, *_floats(target, probability))


def kl_one_sided(target: ArrayLike, probability: ArrayLike) -> float:
    """Return [N14] App. C as printed: sum of P ln(P/Q). Can be negative; Q = 1 games it.

    Only for standing beside the paper's numbers, never a criterion.
    """
    return _once(weighted.kl_one_sided, *_floats(target, probability))


def alignment_error(target: ArrayLike, probability: ArrayLike) -> float:
    """Return 1 - <P, Q> / (|P| |Q|) ([N14] App. C), blind to scale; NaN for a zero vector."""
    return _once(weighted.alignment_error, *_floats(target, probability))


def cross_entropy(target: ArrayLike, probability: ArrayLike) -> float:
    """Return the mean of -P ln Q - (1 - P) ln(1 - Q), Q clipped, in nats."""
    return _once(weighted.cross_entropy, *_floats(target, probability))


def brier(target: ArrayLike, probability: ArrayLike) -> float:
    """Return the mean squared difference."""
    return _once(weighted.brier, *_floats(target, probability))


@dataclass(frozen=True)
class Calibration:
    """Hold weak calibration: logit of the target's expectation = intercept + slope * logit Q.

    Parameters
    ----------
    intercept : float
        Calibration in the large: the intercept when the slope is held at 1; 0 is right.
    slope : float
        1 is right, below 1 means too extreme probabilities.
    """

    intercept: float
    slope: float


def calibration(target: ArrayLike, probability: ArrayLike) -> Calibration:
    """Return calibration intercept and slope, by maximum likelihood."""
    return Calibration(
        calibration_intercept(target, probability), calibration_slope(target, probability)
    )


def calibration_intercept(target: ArrayLike, probability: ArrayLike) -> float:
    """Return the calibration intercept, the slope held at 1; NaN where the target is constant."""
    return _once(weighted.calibration_intercept, *_known(target, probability))


def calibration_slope(target: ArrayLike, probability: ArrayLike) -> float:
    """Return the slope b of target ~ expit(a + b logit(probability)), least cross-entropy.

    With a soft target it is 1 where probabilities are the target's expectation, which a target
    thresholded at 1/2 would not show: that asks for more extreme ones.

    NaN where target or probability is constant, or where the classes of a hard target are separated
    by the probability, which has no finite slope.
    """
    return _once(weighted.calibration_slope, *_known(target, probability))


def calibration_curve(
    truth: ArrayLike, probability: ArrayLike, bins: int = 10
) -> dict[str, list[float]]:
    """Return the observed share of malignant in groups of equal size, ordered by probability.

    Returns
    -------
    dict
        ``predicted`` (mean probability), ``observed``, ``lower`` and ``upper`` (Wilson 95 %,
        which takes ROIs as independent) and ``n`` per group. ROIs of equal probability stay in
        one group, so there may be fewer groups than asked for.
    """
    y, q = _binary(truth, probability)
    curve: dict[str, list[float]] = {
        k: [] for k in ("predicted", "observed", "lower", "upper", "n")
    }
    if len(y) == 0:
        return curve
    edges = np.unique(np.quantile(q, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, q, side="left")
    for g in np.unique(group):
        inside = group == g
        n, k = int(inside.sum()), int(y[inside].sum())
        lower, upper = wilson(k, n)
        values = (float(q[inside].mean()), k / n, lower, upper, float(n))
        for name, value in zip(curve, values, strict=True):
            curve[name].append(value)
    return curve


def decision_curve(
    truth: ArrayLike, probability: ArrayLike, thresholds: ArrayLike | None = None
) -> dict[str, list[float]]:
    """Return the net benefit over threshold probabilities (Vickers & Elkin 2006).

    Returns
    -------
    dict
        ``threshold``, ``model`` (TP/N - FP/N * t/(1 - t) when ROIs at or above t are treated),
        ``all`` (everyone treated), ``none`` (0).
    """
    y, q = _binary(truth, probability)
    t = np.linspace(0.01, 0.99, 99) if thresholds is None else np.asarray(thresholds, dtype=float)
    if len(y) == 0:
        return {"threshold": [], "model": [], "all": [], "none": []}
    odds = t / (1 - t)
    called = q[None, :] >= t[:, None]
    model = np.mean(called & y, axis=1) - np.mean(called & ~y, axis=1) * odds
    everyone = y.mean() - (~y).mean() * odds
    return {
        "threshold": t.tolist(),
        "model": model.tolist(),
        "all": everyone.tolist(),
        "none": np.zeros(len(t)).tolist(),
    }


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Return the wilson score interval of a proportion; NaN for n = 0."""
    if n == 0:
        return float("nan"), float("nan")
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return float(max(0.0, centre - half)), float(min(1.0, centre + half))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _binary(truth: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y, s = _known(truth, score)
    if not np.isin(y, (0.0, 1.0)).all():
        raise ValueError("truth must be 0 or 1; leave out ROIs of unknown truth")
    return y == 1, s


def _known(target: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    t, s = np.asarray(target, dtype=float), np.asarray(score, dtype=float)
    if t.shape != s.shape or t.ndim != 1:
        raise ValueError(f"truth {t.shape} and score {s.shape} must be two equal one-dim. arrays")
    if not ((t >= 0) & (t <= 1)).all():
        raise ValueError("truth must lie in [0, 1]; leave out ROIs of unknown truth")
    if np.isnan(s).any():
        raise ValueError("scores must be known; leave out ROIs without one")
    return t, s


def _floats(target: ArrayLike, probability: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(target, dtype=float), np.asarray(probability, dtype=float)


def _once(measure: Callable[..., np.ndarray], one: np.ndarray, *others: Any) -> float:
    """Return a measure of ROIs that count once each."""
    return float(measure(one, *others, np.ones((1, len(one))))[0])


def _cumulative(
    truth: ArrayLike, score: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Return thresholds from infinity down, true and false positives at or above, and all."""
    y, s = _binary(truth, score)
    threshold, true, false = weighted.cumulative(y, s, np.ones((1, len(y))))
    return threshold, true[0], false[0], float(true[0, -1]), float(false[0, -1])
