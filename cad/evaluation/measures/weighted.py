"""Measures of the same ROIs under many weightings at once, which is what resampling asks for.

``y`` is bool, ``t`` and ``q`` are probabilities, ``s`` is any score; all have shape (n,) and are
known. ``weight``, shape (draws, n), says how often each ROI counts. Every measure has shape
(draws,), NaN where a draw allows none. For one set of ROIs: :mod:`cad.evaluation.measures.metrics`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logit, xlogy

from cad.logistic import fit_logistic

CLIP = 1e-6  # probabilities enter logarithms no closer to 0 and 1 than this


def cumulative(
    y: np.ndarray, s: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return thresholds from infinity down, and true and false positives at or above each.

    Returns
    -------
    threshold : ndarray, shape (n_distinct + 1,)
    true, false : ndarray, shape (draws, n_distinct + 1)
    """
    order = np.argsort(-s, kind="stable")
    y, s, weight = y[order], s[order], weight[:, order]
    last = np.append(np.flatnonzero(np.diff(s)), len(s) - 1) if len(s) else np.array([], int)
    none = np.zeros((len(weight), 1))
    true = np.hstack([none, np.cumsum(weight * y, axis=1)[:, last]])
    false = np.hstack([none, np.cumsum(weight * ~y, axis=1)[:, last]])
    return np.append(np.inf, s[last]), true, false


def auc(y: np.ndarray, s: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve, ties counted one half."""
    _, true, false = cumulative(y, s, weight)
    pairs = np.diff(false) * (true[:, 1:] + true[:, :-1]) / 2
    return _share(pairs.sum(axis=1), true[:, -1] * false[:, -1])


def average_precision(y: np.ndarray, s: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the sum of precision times the step in recall; NaN without positives."""
    _, true, false = cumulative(y, s, weight)
    called = true + false
    precision = np.divide(true, called, out=np.ones_like(true), where=called > 0)
    recall = _share(true, true[:, -1:])
    steps: np.ndarray = np.sum(np.diff(recall) * precision[:, 1:], axis=1)
    return np.where(true[:, -1] > 0, steps, np.nan)


def patient_average_precision(
    y: np.ndarray, s: np.ndarray, patients: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Return the average precision over patients, who count as often as their first ROI."""
    _, first, code = np.unique(patients, return_index=True, return_inverse=True)
    largest = np.full((2, len(first)), -np.inf)
    np.maximum.at(largest[0], code, y)
    np.maximum.at(largest[1], code, s)
    return average_precision(largest[0] == 1, largest[1], weight[:, first])


def partial_auc(y: np.ndarray, s: np.ndarray, max_fpr: float, weight: np.ndarray) -> np.ndarray:
    """Return the area left of ``max_fpr``, chance being .5 and perfect 1 (McClish 1989)."""
    _, true, false = cumulative(y, s, weight)
    x, height = _share(false, false[:, -1:]), _share(true, true[:, -1:])
    width, rise = np.diff(x), np.diff(height)
    # A piece counts up to max_fpr; what it has risen by there is interpolated.
    inside = np.clip(max_fpr - x[:, :-1], 0, width)
    part = np.divide(inside, width, out=np.zeros_like(width), where=width > 0)
    area: np.ndarray = np.sum(inside * (height[:, :-1] + part * rise / 2), axis=1)
    chance = max_fpr**2 / 2
    return 0.5 * (1 + (area - chance) / (max_fpr - chance))


def table(
    y: np.ndarray, q: np.ndarray, threshold: float, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return true and false positives, true and false negatives; above is called malignant."""
    called = q > threshold
    cells = (called & y, called & ~y, ~called & ~y, ~called & y)
    tp, fp, tn, fn = ((weight * cell).sum(axis=1) for cell in cells)
    return tp, fp, tn, fn


def rates(
    y: np.ndarray, q: np.ndarray, threshold: float, weight: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the rates of a two-by-two table by name."""
    tp, fp, tn, fn = table(y, q, threshold, weight)
    return {
        "sensitivity": _share(tp, tp + fn),
        "specificity": _share(tn, tn + fp),
        "ppv": _share(tp, tp + fp),
        "npv": _share(tn, tn + fn),
        "accuracy": _share(tp + tn, tp + fp + tn + fn),
    }


def kl(t: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the two-sided binary Kullback-Leibler distance, a sum in nats; both clipped."""
    t, q = clipped(t), clipped(q)
    return _sum(weight, xlogy(t, t / q) + xlogy(1 - t, (1 - t) / (1 - q)))


def kl_one_sided(t: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the sum of P ln(P/Q)."""
    t, q = clipped(t), clipped(q)
    return _sum(weight, xlogy(t, t / q))


def alignment_error(t: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return 1 - <P, Q> / (|P| |Q|); NaN for a zero vector."""
    size = np.sqrt(_sum(weight, t * t) * _sum(weight, q * q))
    return 1 - _share(_sum(weight, t * q), size)


def cross_entropy(t: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the mean of -P ln Q - (1 - P) ln(1 - Q), Q clipped, in nats."""
    q = clipped(q)
    return -_share(_sum(weight, t * np.log(q) + (1 - t) * np.log(1 - q)), weight.sum(axis=1))


def brier(t: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the mean squared difference."""
    return _share(_sum(weight, (t - q) ** 2), weight.sum(axis=1))


def calibration_intercept(t: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the calibration intercept, the slope held at 1; NaN where the target is constant."""
    usable = _spread(t, weight) > 0
    found = np.full(len(weight), np.nan)
    if usable.any():
        design = np.ones((len(t), 1))
        found[usable] = fit_logistic(design, t, weight=weight[usable], offset=logit(clipped(q)))[
            :, 0
        ]
    return found


def calibration_slope(t: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the slope b of target ~ expit(a + b logit(probability)), least cross-entropy.

    NaN where target or probability is constant, or where the classes of a hard target are separated
    by the probability, which has no finite slope.
    """
    x = logit(clipped(q))
    usable = (_spread(t, weight) > 0) & (_spread(x, weight) >= 1e-9)
    hard = ~((weight > 0) & (t > 0) & (t < 1)).any(axis=1)
    lowest, highest = _ends(x, weight * (t == 1))
    below, above = _ends(x, weight * (t == 0))
    usable &= ~(hard & ((lowest >= above) | (highest <= below)))
    found = np.full(len(weight), np.nan)
    if usable.any():
        design = np.column_stack([np.ones(len(t)), x])
        found[usable] = fit_logistic(design, t, weight=weight[usable])[:, 1]
    return found


def clipped(values: np.ndarray) -> np.ndarray:
    """Return probabilities at a distance from 0 and 1 that logarithms can bear."""
    inside: np.ndarray = np.clip(values, CLIP, 1 - CLIP)
    return inside


def _sum(weight: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return weighted sums; numpy's, which do not depend on the number of threads."""
    total: np.ndarray = (weight * values).sum(axis=1)
    return total


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def _ends(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value that counts; inf and -inf where none does."""
    counts = weight > 0
    low = np.where(counts, values, np.inf).min(axis=1, initial=np.inf)
    high = np.where(counts, values, -np.inf).max(axis=1, initial=-np.inf)
    return low, high


def _spread(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return largest minus smallest value; 0 or less where none counts."""
    low, high = _ends(values, weight)
    return np.where(high >= low, high - low, 0.0)
