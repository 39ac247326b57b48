"""Compute intervals of a mean difference that hold at all looks together.

A look is a computation of the interval from the patients so far. A usual 95 % interval holds at one
planned look. Somebody who looks every night, and stops when the interval excludes 0, is wrong in
far more than 5 % of cases. A confidence sequence is a sequence of intervals, one after each
patient. With probability 95 %, all of them contain the mean expectation of the patients so far
(Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics 2021).

Patient i has one number d_i, for example the difference of two models' Brier scores. It lies
between lo_i and hi_i. These ends are known before his truth is known, because the models'
probabilities are known then. Let m_i be the expectation of d_i at that time. For every number l,
called a rate,

    exp( sum_i  l (d_i - m_i) - cost_i(l) )

is a supermartingale (a quantity whose expectation never grows) for two costs. Hoeffding's cost is
cost_i(l) = l^2 (hi_i - lo_i)^2 / 8. If l (hi_i - lo_i) < 1, another cost is psi(l) (d_i - g_i)^2,
with a guess g_i of d_i that is made before d_i is known (empirical Bernstein; Howard et al.,
theorem 4). psi(l) is (-log(1 - c l) - c l) / c^2 with c = hi_i - lo_i. An average over rates is a
supermartingale, too. The probability that it ever exceeds 2 / alpha is at most alpha / 2 (Ville
1939), with 1 - alpha the level of the sequence; the same holds for -d_i. The m_i may differ between
patients: the interval is one of their mean so far (Choe and Ramdas, Operations Research 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from cad.base.errors import CadError

Array = NDArray[np.float64]

# The bound is an average over these rates. A rate l is the factor of a patient's difference in an
# exponential (see the module's docstring). The best rate depends on the data: a few patients with
# large differences, or thousands with small differences. The rates are evenly spaced on a
# logarithmic scale, and include the best one for either case.
RATES = np.geomspace(0.02, 50.0, 60)
# A rate l times the width hi_i - lo_i of the possible differences is compared with this number.
# Below it the cost is the empirical Bernstein cost, else Hoeffding's cost (see the module's
# docstring).
_BERNSTEIN = 0.9
_NEAR = 1e-5
_NEWTON = 60
_SETTLED = 1e-12


@dataclass(frozen=True)
class Anytime:
    """Hold a confidence sequence: after every patient, an interval of the mean difference so far.

    Each patient has one difference, for example of two models' Brier scores.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        Mean difference of the first patient, of the first two patients, and so on.
    low, high : ndarray, shape (n,)
        Ends of the interval after each patient.
    level : float
        Probability with which all intervals hold together.
    """

    mean: Array
    low: Array
    high: Array
    level: float

    @property
    def decided(self) -> int:
        """Return after how many patients the interval of the mean difference first excluded 0.

        The result is 0 if the interval never excluded 0.
        """
        excludes = np.flatnonzero((self.low > 0) | (self.high < 0))
        if not len(excludes):
            return 0
        return int(excludes[0]) + 1


def mixture_bound(cost: Array, rates: Array, weights: Array, threshold: float) -> Array:
    """Return the s at which sum_k weights_k exp(rates_k s - cost_k) reaches a threshold.

    Parameters
    ----------
    cost : ndarray, shape (n, k)
        For each patient and rate, the sum of the rate's costs over the patients up to this one. A
        patient's cost is taken off rate * (d_i - m_i), so that the exponential does not grow on
        average.
    rates, weights : ndarray, shape (k,)
        Rates > 0, and their weights, which sum to 1.
    threshold : float
        1 divided by the probability with which the bound may ever be crossed.

    Returns
    -------
    ndarray, shape (n,)
        After each patient, the bound s of the sum of d_i - m_i over the patients so far. d_i is a
        patient's number, such as a difference of two models' Brier scores, and m_i its expectation
        before his truth is known.

    Examples
    --------
    With one rate it is (log threshold + cost) / rate:

    >>> import numpy as np
    >>> rate = np.array([0.5])
    >>> bound = mixture_bound(np.array([[0.1], [0.2]]), rate, np.ones(1), threshold=20.0)
    >>> bound.round(3).tolist()
    [6.191, 6.391]
    """
    log_weights = np.log(weights)
    aim = np.log(threshold)
    # Each rate has a value of s at which its term alone reaches the threshold. The least of these
    # values is the start, because the root is not above it. The logarithm of the sum is convex in
    # s, so Newton's steps go down from the start to the root and never pass it.
    s = ((aim - log_weights + cost) / rates).min(axis=1)
    for _ in range(_NEWTON):
        exponents = log_weights + rates * s[:, None] - cost
        total = logsumexp(exponents, axis=1)
        slope = np.exp(exponents - total[:, None]) @ rates
        step = (total - aim) / slope
        s = s - step
        if np.abs(step).max(initial=0.0) < _SETTLED:
            break
    return np.asarray(s)


def confidence_sequence(
    difference: ArrayLike, lowest: ArrayLike, highest: ArrayLike, level: float = 0.95
) -> Anytime:
    """Return the intervals of a mean, one after each patient, that hold together.

    Parameters
    ----------
    difference : array, shape (n,)
        One number per patient, in the order in which the numbers became known.
    lowest, highest : array, shape (n,)
        Ends between which each number must lie. They must be known before the number is known.
    level : float
        Probability with which all intervals hold.

    Returns
    -------
    Anytime
        Mean and interval after each patient. Every interval lies between the mean of the lower ends
        and the mean of the upper ends.

    Raises
    ------
    CadError
        For a number outside its ends, and for a level outside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> better = -0.3 * np.ones(60)
    >>> sequence = confidence_sequence(better, better - 0.5, better + 0.5)
    >>> bool(sequence.high[-1] < 0)
    True
    """
    d = np.asarray(difference, dtype=float)
    low = np.broadcast_to(np.asarray(lowest, dtype=float), d.shape)
    high = np.broadcast_to(np.asarray(highest, dtype=float), d.shape)
    if not 0 < level < 1:
        raise CadError(f"level {level}, must lie between 0 and 1")
    inside = (low - 1e-9 <= d) & (d <= high + 1e-9)
    if not inside.all():
        i = int(np.argmin(inside))
        raise CadError(
            f"the difference of patient number {i + 1} is {d[i]}, "
            f"outside of what was possible: [{low[i]}, {high[i]}]"
        )
    count = np.arange(1, len(d) + 1)
    mean = d.cumsum() / count
    # The guess g_i of a patient's difference is the mean difference of the patients before him.
    guess = np.clip(np.concatenate([[0.0], mean[:-1]])[: len(d)], low, high)
    cost = _cost_by_rate(d - guess, high - low).cumsum(axis=0)
    weights = np.full(len(RATES), 1.0 / len(RATES))
    radius = mixture_bound(cost, RATES, weights, 2.0 / (1.0 - level)) / count
    # The mean of the expectations m_i cannot lie below the mean of the least possible differences,
    # or above the mean of the largest ones. The interval is cut off there.
    mean_low = low.cumsum() / count
    mean_high = high.cumsum() / count
    return Anytime(
        mean, np.maximum(mean - radius, mean_low), np.minimum(mean + radius, mean_high), level
    )


def _cost_by_rate(residual: Array, width: Array) -> Array:
    """Return the cost of every patient at each of the k rates in ``RATES``, shape (n, k).

    The module's docstring defines costs and rates. ``residual`` is each patient's difference minus
    its guess, and ``width`` the width of the range in which the difference lies.
    """
    share = width[:, None] * RATES
    hoeffding = share**2 / 8
    bernstein = share < _BERNSTEIN
    # The factor of the empirical Bernstein cost is psi(l) = (-log(1 - c l) - c l) / c^2, with c the
    # width hi_i - lo_i. Near c l = 0 the numerator would be mostly a rounding error, so a series
    # takes its place.
    is_near = share < _NEAR
    within = np.where(bernstein & ~is_near, share, 0.5)
    ratio = np.where(is_near, 0.5 + share / 3, (-np.log1p(-within) - within) / within**2)
    return np.where(bernstein, RATES**2 * ratio * residual[:, None] ** 2, hoeffding)


def brier_differences(
    champion: ArrayLike, challenger: ArrayLike, truth: ArrayLike, patients: ArrayLike
) -> tuple[list[str], Array, Array, Array]:
    """Return by how much a challenger's Brier score differs from the champion's, for each patient.

    The champion is the model in use, and the challenger another model that is compared with it.

    Parameters
    ----------
    champion, challenger : array, shape (n,)
        Probabilities of the same regions by both models.
    truth : array, shape (n,)
        1 for malignant, 0 for benign.
    patients : array of str, shape (n,)
        Patient of every region. The result has the patients in the order of their first regions.

    Returns
    -------
    names : list of str
        Names of the patients.
    difference : ndarray, shape (patients,)
        Mean over a patient's regions of (challenger - truth)^2 - (champion - truth)^2. Where it is
        below 0, the challenger is better.
    lowest, highest : ndarray, shape (patients,)
        Smallest and largest difference that the two probabilities allow, whatever the truth is.

    Examples
    --------
    >>> brier_differences([0.5], [1.0], [1], ["sub-1"])[1].tolist()
    [-0.25]
    """
    p = np.asarray(champion, dtype=float)
    q = np.asarray(challenger, dtype=float)
    y = np.asarray(truth, dtype=float)
    names, first, owner = np.unique(
        np.asarray(patients, dtype=str), return_index=True, return_inverse=True
    )
    where_malignant = (q - 1) ** 2 - (p - 1) ** 2
    where_benign = q**2 - p**2
    regions = np.bincount(owner).astype(float)
    actual = np.where(y > 0.5, where_malignant, where_benign)
    order = np.argsort(first)
    columns = []
    for values in (
        actual,
        np.minimum(where_malignant, where_benign),
        np.maximum(where_malignant, where_benign),
    ):
        of_patient = np.bincount(owner, values) / regions
        columns.append(of_patient[order])
    return [str(name) for name in names[order]], columns[0], columns[1], columns[2]
