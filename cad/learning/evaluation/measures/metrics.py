"""Measure how well scores separate the classes and how good probabilities are.

There is one function for each measure (docs/methods.md 6). Arrays have one value per region.
``truth`` is 0 or 1. ``target`` is a probability in [0, 1]: the readers' mean, or a certain 0 or 1.
``probability`` is the prediction of a learner.

A measure called with these arrays counts every region once and returns a float. With ``weight``,
shape (draws, n), it returns a value for each draw of a resampling, shape (draws,). A weight says
how often a region occurs in a draw. With ``weight`` the arrays are not checked: ``truth`` must be
bool, and no value may be NaN. The result is NaN where a measure is not defined.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit, xlogy
from scipy.stats import binomtest

from cad.learning.logistic import fit_logistic

CLIP = 1e-6  # probabilities are clipped to this distance from 0 and 1 before logarithms


class MeasureCall(Protocol):
    """Describe how a measure is called.

    A measure takes two arrays of shape (n,): the truth (or a target), and the score. Without
    ``weight`` every region counts once, and the result is a number. With ``weight``, shape
    (draws, n), the result has shape (draws,): a value for each draw of a resampling. A weight says
    how often the region occurs in the draw.
    """

    @overload
    def __call__(self, truth: ArrayLike, score: ArrayLike, *others: Any) -> float: ...

    @overload
    def __call__(
        self, truth: np.ndarray, score: np.ndarray, *others: Any, weight: np.ndarray
    ) -> np.ndarray: ...


def _optional_weight(
    checked: Callable[[ArrayLike, ArrayLike], tuple[np.ndarray, np.ndarray]],
) -> Callable[[Callable[..., np.ndarray]], MeasureCall]:
    """Return a decorator of measures that makes their argument ``weight`` optional.

    Without ``weight`` the two arrays are checked by ``checked``, and every region counts once.
    """

    def decorate(values_of_draws: Callable[..., np.ndarray]) -> MeasureCall:
        """Return a measure from a function that computes its value in each draw."""

        @wraps(values_of_draws)
        def measure(truth: Any, score: Any, *others: Any, weight: Any = None) -> Any:
            if weight is not None:
                return values_of_draws(truth, score, *others, weight=weight)
            # One draw in which every region counts once; its value is the measure.
            y, s = checked(truth, score)
            return float(values_of_draws(y, s, *others, weight=np.ones((1, len(y))))[0])

        return measure

    return decorate


def _with_truth(target: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return targets in [0, 1] and scores as floats; raise an error for any other values."""
    t = np.asarray(target, dtype=float)
    s = np.asarray(score, dtype=float)
    if t.shape != s.shape or t.ndim != 1:
        raise ValueError(f"truth {t.shape} and score {s.shape} must be two equal one-dim. arrays")
    if not ((t >= 0) & (t <= 1)).all():
        raise ValueError("truth must lie in [0, 1]; leave out ROIs of unknown truth")
    if np.isnan(s).any():
        raise ValueError("scores must be known; leave out ROIs without one")
    return t, s


def _binary(truth: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each region is malignant, and its score; raise an error for other truths."""
    y, s = _with_truth(truth, score)
    if not np.isin(y, (0.0, 1.0)).all():
        raise ValueError("truth must be 0 or 1; leave out ROIs of unknown truth")
    return y == 1, s


def _two_as_floats(target: ArrayLike, probability: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(target, dtype=float), np.asarray(probability, dtype=float)


def cumulative(y: np.ndarray, s: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the true and false positives at or above each threshold, from the highest threshold
    down.

    Parameters
    ----------
    y : ndarray of bool, shape (n,)
        Whether each region is malignant.
    s : ndarray, shape (n,)
        Scores; larger is more malignant.
    weight : ndarray, shape (draws, n)
        How often each region counts in each draw.

    Returns
    -------
    true, false : ndarray, shape (draws, n_distinct + 1)
        Counts, one column per distinct score, from the largest score down. The first column, before
        them, has zeros for an infinite threshold.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([False, True, True])
    >>> true, false = cumulative(y, np.array([0.1, 0.5, 0.9]), np.ones((1, 3)))
    >>> true.tolist(), false.tolist()
    ([[0.0, 1.0, 2.0, 2.0]], [[0.0, 0.0, 0.0, 1.0]])
    """
    order = np.argsort(-s, kind="stable")
    y = y[order]
    s = s[order]
    weight = weight[:, order]
    # Regions of equal score are counted together, since no threshold separates them.
    last_of_equal = np.array([], int)
    if len(s):
        last_of_equal = np.append(np.flatnonzero(np.diff(s)), len(s) - 1)
    zero_column = np.zeros((len(weight), 1))
    true = np.hstack([zero_column, np.cumsum(weight * y, axis=1)[:, last_of_equal]])
    false = np.hstack([zero_column, np.cumsum(weight * ~y, axis=1)[:, last_of_equal]])
    return true, false


@_optional_weight(_binary)
def auc(y: np.ndarray, s: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve.

    Ties count one half. The result is NaN if a class is absent.

    Parameters
    ----------
    y, s : array, shape (n,)
        Truth, 1 malignant or 0 benign, and score, larger for more malignant.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The area, from 0 to 1; NaN where a class is absent. With ``weight`` it is an array with one
        value for each draw.

    Examples
    --------
    >>> auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    true, false = cumulative(y, s, weight)
    # At each threshold, every new false positive makes a pair with each true positive above it.
    # With a true positive of the same score it makes half a pair. The last counts are of all.
    won_pairs = np.diff(false) * (true[:, 1:] + true[:, :-1]) / 2
    return _quotient(won_pairs.sum(axis=1), true[:, -1] * false[:, -1])


@_optional_weight(_binary)
def average_precision(y: np.ndarray, s: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the average precision: the sum of precision times the step in recall (AUPRC).

    It is NaN without positives.

    Parameters
    ----------
    y, s : array, shape (n,)
        Truth, 1 malignant or 0 benign, and score, larger for more malignant.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The average precision, from 0 to 1; NaN without positives. With ``weight`` it is an array
        with one value for each draw.

    Examples
    --------
    >>> round(average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 3)
    0.833
    """
    true, false = cumulative(y, s, weight)
    called = true + false
    # If no region is called malignant, the precision is 1 by convention.
    precision = np.divide(true, called, out=np.ones_like(true), where=called > 0)
    recall = _quotient(true, true[:, -1:])
    area: np.ndarray = np.sum(np.diff(recall) * precision[:, 1:], axis=1)
    # Without a malignant region there is no recall.
    return np.where(true[:, -1] > 0, area, np.nan)


@_optional_weight(_binary)
def patient_average_precision(
    y: np.ndarray, s: np.ndarray, patients: ArrayLike, *, weight: np.ndarray
) -> np.ndarray:
    """Return the average precision over patients, the patient-level AUPRC of Saha et al. 2024.

    A patient's score is the largest score of the patient's regions. A patient is malignant if one
    of the regions is. The result is NaN if no patient is malignant.

    Parameters
    ----------
    y, s : array, shape (n,)
        Truth of every region, 1 malignant or 0 benign, and score, larger for more malignant.
    patients : array, shape (n,)
        The patient of every region.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling; a patient counts as often as the
        patient's first region. With it the result has a value for each draw. The decorator makes it
        optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The average precision, from 0 to 1; NaN if no patient is malignant. With ``weight`` it is an
        array with one value for each draw.

    Examples
    --------
    >>> score = [0.1, 0.9, 0.3, 0.6]
    >>> round(patient_average_precision([0, 1, 1, 0], score, ["a", "a", "b", "c"]), 3)
    0.833
    """
    _, first_region, patient_code = np.unique(
        np.asarray(patients), return_index=True, return_inverse=True
    )
    # The largest truth (row 0) and the largest score (row 1) of each patient's regions.
    largest_of_patient = np.full((2, len(first_region)), -np.inf)
    np.maximum.at(largest_of_patient[0], patient_code, y)
    np.maximum.at(largest_of_patient[1], patient_code, s)
    return average_precision(
        largest_of_patient[0] == 1, largest_of_patient[1], weight=weight[:, first_region]
    )


@_optional_weight(_binary)
def partial_auc(
    y: np.ndarray, s: np.ndarray, max_fpr: float = 0.2, *, weight: np.ndarray
) -> np.ndarray:
    """Return the area under the ROC curve up to the false-positive rate ``max_fpr``.

    The area is rescaled so that a score without information has .5, and a perfect score 1 (McClish
    1989).

    Parameters
    ----------
    y, s : array, shape (n,)
        Truth, 1 malignant or 0 benign, and score, larger for more malignant.
    max_fpr : float
        Largest false-positive rate, in (0, 1].
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The rescaled area; .5 for a score without information, 1 for a perfect score, NaN where a
        class is absent. With ``weight`` it is an array with one value for each draw.

    Raises
    ------
    ValueError
        If ``max_fpr`` is not in (0, 1].

    Examples
    --------
    >>> round(partial_auc([0, 0, 1, 1], [0.1, 0.2, 0.35, 0.8]), 3)
    1.0
    """
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be in (0, 1], found {max_fpr}")
    if not len(y):
        # Without this line the area would be the sum of no steps, which is 0.
        return np.full(len(weight), np.nan)
    true, false = cumulative(y, s, weight)
    false_positive_rate = _quotient(false, false[:, -1:])
    true_positive_rate = _quotient(true, true[:, -1:])
    width = np.diff(false_positive_rate)
    rise = np.diff(true_positive_rate)
    # The step of the ROC curve that passes max_fpr is cut there, at an interpolated height.
    width_inside = np.clip(max_fpr - false_positive_rate[:, :-1], 0, width)
    share_of_step = np.divide(width_inside, width, out=np.zeros_like(width), where=width > 0)
    mean_height = true_positive_rate[:, :-1] + share_of_step * rise / 2
    area: np.ndarray = np.sum(width_inside * mean_height, axis=1)
    # A score without information follows the diagonal, and a perfect score has the height 1.
    area_by_chance = max_fpr**2 / 2
    return 0.5 * (1 + (area - area_by_chance) / (max_fpr - area_by_chance))


def consensus_truth(p: ArrayLike, threshold: float = 0.5) -> tuple[np.ndarray, int]:
    """Turn the readers' mean into a truth: 1 above the threshold, 0 below it or on it.

    Parameters
    ----------
    p : array, shape (n,)
        The readers' mean; NaN where nobody read.
    threshold : float
        Largest probability that still counts as benign.

    Returns
    -------
    truth : ndarray, shape (n,)
        1, 0, or NaN where ``p`` is NaN.
    ties : int
        Number of values that lie on the threshold (within 1e-9).

    Examples
    --------
    >>> truth, ties = consensus_truth([0.2, 0.5, 0.9])
    >>> truth.tolist(), ties
    ([0.0, 0.0, 1.0], 1)
    """
    p = np.asarray(p, dtype=float)
    is_tie = np.abs(p - threshold) <= 1e-9
    # A mean that exceeds the threshold by a rounding error counts as a tie, which is benign.
    is_malignant = (p > threshold) & ~is_tie
    return np.where(np.isnan(p), np.nan, is_malignant.astype(float)), int(is_tie.sum())


@_optional_weight(_binary)
def accuracy(y: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the share of regions whose probability lies on the same side of .5 as the truth.

    Parameters
    ----------
    y, q : array, shape (n,)
        Truth, 1 malignant or 0 benign, and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The share, from 0 to 1. A probability of .5 counts as benign. With ``weight`` it is an array
        with one value for each draw.

    Examples
    --------
    >>> accuracy([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8])
    0.75
    """
    # A probability of exactly .5 counts as benign, like a readers' mean of .5.
    return _quotient(weight @ ((q > 0.5) == y), weight.sum(axis=1))


def divergences(target: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Return the Kullback-Leibler divergence of each region's probability from its target, shape
    (n,).

    With target P and probability Q the divergence is P ln(P/Q) + (1 - P) ln((1 - P)/(1 - Q)), in
    nats. P and Q are clipped to [1e-6, 1 - 1e-6].

    Parameters
    ----------
    target, probability : ndarray, shape (n,)
        The target and the learner's probability of every region.

    Examples
    --------
    >>> import numpy as np
    >>> divergences(np.array([0.5, 1.0]), np.array([0.5, 0.5])).round(3).tolist()
    [0.0, 0.693]
    """
    t = clipped(target)
    q = clipped(probability)
    return np.asarray(xlogy(t, t / q) + xlogy(1 - t, (1 - t) / (1 - q)))


@_optional_weight(_two_as_floats)
def kl(t: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the two-sided Kullback-Leibler divergence, in nats: the sum of :func:`divergences`.

    Two-sided means that both classes have a term.

    Parameters
    ----------
    t, q : array, shape (n,)
        Target in [0, 1] (the readers' mean or the truth), and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The sum over regions in nats, at least 0. With ``weight`` it is an array with one value for
        each draw.

    Examples
    --------
    >>> round(kl([0.5, 1.0], [0.5, 0.5]), 3)
    0.693
    """
    # Like the KL that [N14] prints, the result is a sum over the regions. So it grows with the
    # number of regions, as a mean would not.
    return _weighted_sum(weight, divergences(t, q))


@_optional_weight(_two_as_floats)
def kl_one_sided(t: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the one-sided Kullback-Leibler divergence: the sum of P ln(P/Q) over all regions.

    P is the target, Q the probability ([N14] App. C). The sum can be negative, and it is small for
    a useless learner that predicts Q = 1 everywhere. Use it only to compare with the paper's
    numbers, and not to choose a learner.

    Parameters
    ----------
    t, q : array, shape (n,)
        Target in [0, 1] (the readers' mean or the truth), and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The sum over regions in nats, which may be negative. With ``weight`` it is an array with one
        value for each draw.

    Examples
    --------
    >>> round(kl_one_sided([0.5, 1.0], [0.5, 0.5]), 3)
    0.693
    """
    t = clipped(t)
    q = clipped(q)
    return _weighted_sum(weight, xlogy(t, t / q))


@_optional_weight(_two_as_floats)
def alignment_error(t: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return 1 minus the cosine of the angle between targets P and probabilities Q ([N14] App. C).

    The error does not change if all probabilities are multiplied by the same number. It is NaN if
    all targets or all probabilities are 0.

    Parameters
    ----------
    t, q : array, shape (n,)
        Target in [0, 1] (the readers' mean or the truth), and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The error, from 0 to 1; NaN if all targets or all probabilities are 0. With ``weight`` it is
        an array with one value for each draw.

    Examples
    --------
    >>> alignment_error([0.2, 0.4], [0.1, 0.2])
    0.0
    """
    # The squares of very small numbers are 0, or have few digits left.
    t = _in_units_of_largest(t)
    q = _in_units_of_largest(q)
    product = _weighted_sum(weight, t * q)
    lengths = np.sqrt(_weighted_sum(weight, t * t) * _weighted_sum(weight, q * q))
    return 1 - _quotient(product, lengths)


@_optional_weight(_two_as_floats)
def cross_entropy(t: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the mean cross-entropy -P ln Q - (1 - P) ln(1 - Q), in nats.

    P is the target, Q the probability, clipped to [1e-6, 1 - 1e-6].

    Parameters
    ----------
    t, q : array, shape (n,)
        Target in [0, 1] (the readers' mean or the truth), and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The mean over regions in nats, at least 0. With ``weight`` it is an array with one value for
        each draw.

    Examples
    --------
    >>> round(cross_entropy([0.0, 1.0], [0.5, 0.5]), 3)
    0.693
    """
    q = clipped(q)
    log_likelihood = t * np.log(q) + (1 - t) * np.log(1 - q)
    return -_quotient(_weighted_sum(weight, log_likelihood), weight.sum(axis=1))


@_optional_weight(_two_as_floats)
def brier(t: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the Brier score: the mean squared difference of target and probability.

    Parameters
    ----------
    t, q : array, shape (n,)
        Target in [0, 1] (the readers' mean or the truth), and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The mean over regions, from 0 to 1. With ``weight`` it is an array with one value for each
        draw.

    Examples
    --------
    >>> round(brier([0.0, 1.0], [0.1, 0.7]), 3)
    0.05
    """
    return _quotient(_weighted_sum(weight, (t - q) ** 2), weight.sum(axis=1))


@_optional_weight(_with_truth)
def calibration_intercept(t: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the intercept a of target ~ expit(a + logit(probability)), by maximum likelihood.

    This is calibration in the large: a is 0 if the mean probability is about right, below 0 if
    probabilities are too high. It is NaN if the target is constant.

    Parameters
    ----------
    t, q : array, shape (n,)
        Target in [0, 1] (the readers' mean or the truth), and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The intercept in log-odds; NaN if the target is constant. With ``weight`` it is an array
        with one value for each draw.

    Examples
    --------
    >>> import numpy as np
    >>> q = np.linspace(0.1, 0.9, 50)
    >>> round(abs(calibration_intercept(q, q)), 6)
    0.0
    """
    # In a draw in which all targets are equal, the intercept may be infinite.
    usable = _weighted_range(t, weight) > 0
    intercept = np.full(len(weight), np.nan)
    if usable.any():
        # The only coefficient is the intercept. The log-odds of q are added as they are.
        design = np.ones((len(t), 1))
        offset = logit(clipped(q))
        intercept[usable] = fit_logistic(design, t, weight=weight[usable], offset=offset)[:, 0]
    return intercept


@_optional_weight(_with_truth)
def calibration_slope(t: np.ndarray, q: np.ndarray, *, weight: np.ndarray) -> np.ndarray:
    """Return the slope b of target ~ expit(a + b logit(probability)), fitted by cross-entropy.

    The right slope is 1; if it is below 1, the probabilities are too near 0 and 1. A soft target is
    not thresholded at 1/2, because then probabilities that are too near 0 and 1 would have the
    slope 1.

    The slope is NaN if target or probability is constant. It is also NaN if all targets are 0 or 1
    and the probability separates them, because the best slope is then infinite.

    Parameters
    ----------
    t, q : array, shape (n,)
        Target in [0, 1] (the readers' mean or the truth), and the learner's probability.
    weight : ndarray, shape (draws, n), optional
        How often each region counts in each draw of a resampling. With it the result has a value
        for each draw. The decorator makes it optional: without it the result is a float.

    Returns
    -------
    float or ndarray, shape (draws,)
        The slope, without unit; NaN where it cannot be fitted (see above). With ``weight`` it is an
        array with one value for each draw.

    Examples
    --------
    >>> import numpy as np
    >>> q = np.linspace(0.1, 0.9, 50)
    >>> round(calibration_slope(q, q), 6)
    1.0
    """
    log_odds = logit(clipped(q))
    # If all log-odds are within 1e-9 of each other, they may differ by rounding errors only, and a
    # slope has no meaning.
    usable = (_weighted_range(t, weight) > 0) & (_weighted_range(log_odds, weight) >= 1e-9)
    # The slope can be infinite only if all targets are 0 or 1. A single target between 0 and 1
    # keeps it finite.
    all_targets_hard = ~((weight > 0) & (t > 0) & (t < 1)).any(axis=1)
    lowest_malignant, highest_malignant = _weighted_ends(log_odds, weight * (t == 1))
    lowest_benign, highest_benign = _weighted_ends(log_odds, weight * (t == 0))
    is_separated = (lowest_malignant >= highest_benign) | (highest_malignant <= lowest_benign)
    usable &= ~(all_targets_hard & is_separated)
    slope = np.full(len(weight), np.nan)
    if usable.any():
        design = np.column_stack([np.ones(len(t)), log_odds])
        slope[usable] = fit_logistic(design, t, weight=weight[usable])[:, 1]
    return slope


def calibration_curve(
    truth: ArrayLike, probability: ArrayLike, bins: int = 10
) -> dict[str, list[float]]:
    """Return the share of malignant regions in groups of about equal size, formed by probability.

    Parameters
    ----------
    truth, probability : array, shape (n,)
        0 or 1, and a learner's probability.
    bins : int
        Largest number of groups.

    Returns
    -------
    dict
        Lists with one value per group, in the order of rising probability. ``predicted`` is the
        mean probability, ``observed`` the share of malignant regions, and ``n`` the number of
        regions. ``lower`` and ``upper`` are the Wilson 95 % interval of ``observed``, which takes
        regions as independent. Regions of equal probability are in the same group, so there may be
        fewer groups than ``bins``.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0, 0, 0, 1, 0, 1, 1, 1])
    >>> curve = calibration_curve(truth, np.linspace(0.1, 0.8, 8), bins=2)
    >>> curve["observed"]
    [0.25, 0.75]
    """
    y, q = _binary(truth, probability)
    columns = ("predicted", "observed", "lower", "upper", "n")
    curve: dict[str, list[float]] = {name: [] for name in columns}
    if len(y) == 0:
        return curve
    # The edges between groups are probabilities of regions, so regions of equal probability are in
    # the same group.
    edges = np.unique(np.quantile(q, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, q, side="left")
    for number in np.unique(group):
        inside = group == number
        regions = int(inside.sum())
        malignant = int(y[inside].sum())
        lower, upper = binomtest(malignant, regions).proportion_ci(method="wilson")
        values = (q[inside].mean(), malignant / regions, lower, upper, regions)
        for name, value in zip(curve, values, strict=True):
            curve[name].append(float(value))
    return curve


def decision_curve(
    truth: ArrayLike, probability: ArrayLike, thresholds: ArrayLike | None = None
) -> dict[str, list[float]]:
    """Return the net benefit of treatment by the model at each threshold (Vickers & Elkin 2006).

    Parameters
    ----------
    truth, probability : array, shape (n,)
        0 or 1, and a learner's probability.
    thresholds : array, optional
        Probabilities t; a region is treated if its probability is at least t. When not given, they
        are .01 to .99.

    Returns
    -------
    dict
        Lists with one value per threshold. ``threshold`` is t itself. ``model`` is the net benefit
        TP/N - FP/N * t/(1 - t), with TP malignant and FP benign regions that are treated, of N
        regions. ``all`` is the net benefit if every region is treated. ``none`` is that if no
        region is treated, which is 0.

    Examples
    --------
    >>> curve = decision_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], [0.5])
    >>> curve["model"], curve["all"]
    ([0.25], [0.0])
    """
    y, q = _binary(truth, probability)
    t = np.linspace(0.01, 0.99, 99) if thresholds is None else np.asarray(thresholds, dtype=float)
    if len(y) == 0:
        return {"threshold": [], "model": [], "all": [], "none": []}
    # A benign region that is treated costs this many times the benefit of a malignant one.
    odds = t / (1 - t)
    is_treated = q[None, :] >= t[:, None]
    true_positives = np.mean(is_treated & y, axis=1)
    false_positives = np.mean(is_treated & ~y, axis=1)
    return {
        "threshold": t.tolist(),
        "model": (true_positives - false_positives * odds).tolist(),
        "all": (y.mean() - (~y).mean() * odds).tolist(),
        "none": np.zeros(len(t)).tolist(),
    }


def clipped(values: np.ndarray) -> np.ndarray:
    """Return probabilities clipped to [1e-6, 1 - 1e-6], so that their logarithms are finite.

    Examples
    --------
    >>> import numpy as np
    >>> clipped(np.array([0.0, 0.5])).tolist()
    [1e-06, 0.5]
    """
    return np.asarray(np.clip(values, CLIP, 1 - CLIP))


def _weighted_sum(weight: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sum of ``values``, shape (n,), with the weights of each draw, shape (draws,).

    ``weight`` has shape (draws, n). The sums are computed without BLAS, so that they do not depend
    on the number of threads.
    """
    return np.asarray((weight * values).sum(axis=1))


def _in_units_of_largest(values: np.ndarray) -> np.ndarray:
    largest = values.max(initial=0.0)
    return np.asarray(values / largest) if largest > 0 else values


def _quotient(share: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return ``share`` divided by ``whole``; NaN where ``whole`` is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, share / whole, np.nan)


def _weighted_ends(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value with a weight above 0, for each draw.

    They are inf and -inf if no weight is above 0.
    """
    is_drawn = weight > 0
    lowest = np.where(is_drawn, values, np.inf).min(axis=1, initial=np.inf)
    highest = np.where(is_drawn, values, -np.inf).max(axis=1, initial=-np.inf)
    return lowest, highest


def _weighted_range(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the largest minus the smallest value with a weight above 0, for each draw.

    It is 0 if no weight is above 0.
    """
    low, high = _weighted_ends(values, weight)
    return np.where(high >= low, high - low, 0.0)
