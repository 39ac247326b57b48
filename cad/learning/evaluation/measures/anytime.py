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
# Below this share the factor of the empirical Bernstein cost is computed by a series.
_NEAR = 1e-5
# Largest number of Newton's steps in a search for a bound, and the step at which the search ends.
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
    log_threshold = np.log(threshold)
    # The bound of a patient is the root s of an equation: the logarithm of the sum is that of the
    # threshold. Each rate has a value of s at which its term alone reaches the threshold. The least
    # of these values is the start, because the root is not above it. The logarithm of the sum is
    # convex in s, so Newton's steps go down from the start to the root and never pass it.
    bound = ((log_threshold - log_weights + cost) / rates).min(axis=1)
    for _ in range(_NEWTON):
        exponents = log_weights + rates * bound[:, None] - cost
        log_total = logsumexp(exponents, axis=1)
        slope_of_log_total = np.exp(exponents - log_total[:, None]) @ rates
        step = (log_total - log_threshold) / slope_of_log_total
        bound = bound - step
        # All bounds have settled.
        if np.abs(step).max(initial=0.0) < _SETTLED:
            break
    return np.asarray(bound)


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
    differences = np.asarray(difference, dtype=float)
    low = np.broadcast_to(np.asarray(lowest, dtype=float), differences.shape)
    high = np.broadcast_to(np.asarray(highest, dtype=float), differences.shape)
    if not 0 < level < 1:
        raise CadError(f"level {level}, must lie between 0 and 1")
    # A difference may lie on its end, and beyond it by a rounding error.
    inside = (low - 1e-9 <= differences) & (differences <= high + 1e-9)
    if not inside.all():
        first_outside = int(np.argmin(inside))
        raise CadError(
            f"the difference of patient number {first_outside + 1} is "
            f"{differences[first_outside]}, outside of what was possible: "
            f"[{low[first_outside]}, {high[first_outside]}]"
        )
    patients_so_far = np.arange(1, len(differences) + 1)
    mean = differences.cumsum() / patients_so_far
    # The guess g_i of a patient's difference is the mean difference of the patients before him, 0
    # for the first patient. A guess outside the patient's ends could only be wrong, so it is
    # clipped. Without any patient there is no guess.
    mean_before = np.concatenate([[0.0], mean[:-1]])[: len(differences)]
    guesses = np.clip(mean_before, low, high)
    summed_costs = _cost_by_rate(differences - guesses, high - low).cumsum(axis=0)
    weights = np.full(len(RATES), 1.0 / len(RATES))
    # Each of the two ends of an interval may be wrong with half the probability of an error.
    threshold = 2.0 / (1.0 - level)
    radius = mixture_bound(summed_costs, RATES, weights, threshold) / patients_so_far
    # The mean of the expectations m_i cannot lie below the mean of the least possible differences,
    # or above the mean of the largest ones. The interval is cut off there.
    mean_low = low.cumsum() / patients_so_far
    mean_high = high.cumsum() / patients_so_far
    return Anytime(
        mean=mean,
        low=np.maximum(mean - radius, mean_low),
        high=np.minimum(mean + radius, mean_high),
        level=level,
    )


def _cost_by_rate(residual: Array, width: Array) -> Array:
    """Return the cost of every patient at each of the k rates in ``RATES``, shape (n, k).

    The module's docstring defines costs and rates. ``residual`` is each patient's difference minus
    its guess, and ``width`` the width of the range in which the difference lies.
    """
    rate_times_width = width[:, None] * RATES
    hoeffding = rate_times_width**2 / 8
    # Where the product of rate and width is near 1 or above, the empirical Bernstein cost is very
    # large or not defined, and Hoeffding's cost takes its place.
    is_bernstein = rate_times_width < _BERNSTEIN
    # The factor of the empirical Bernstein cost is psi(l) = (-log(1 - c l) - c l) / c^2, with c the
    # width hi_i - lo_i. Near c l = 0 the numerator would be mostly a rounding error, so a series
    # takes its place. Where the formula is not used, it is computed at .5, which gives no warning.
    is_near = rate_times_width < _NEAR
    safe_product = np.where(is_bernstein & ~is_near, rate_times_width, 0.5)
    series = 0.5 + rate_times_width / 3
    formula = (-np.log1p(-safe_product) - safe_product) / safe_product**2
    psi_per_squared_rate = np.where(is_near, series, formula)
    empirical_bernstein = RATES**2 * psi_per_squared_rate * residual[:, None] ** 2
    return np.where(is_bernstein, empirical_bernstein, hoeffding)


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
    of_champion = np.asarray(champion, dtype=float)
    of_challenger = np.asarray(challenger, dtype=float)
    y = np.asarray(truth, dtype=float)
    # ``np.unique`` sorts the names. The order of first regions is restored below.
    names, first_region, patient_of_region = np.unique(
        np.asarray(patients, dtype=str), return_index=True, return_inverse=True
    )
    where_malignant = (of_challenger - 1) ** 2 - (of_champion - 1) ** 2
    where_benign = of_challenger**2 - of_champion**2
    regions_of_patient = np.bincount(patient_of_region).astype(float)
    actual = np.where(y > 0.5, where_malignant, where_benign)
    order_of_patients = np.argsort(first_region)
    # The actual difference, and the least and the largest one that were possible.
    columns = []
    for values in (
        actual,
        np.minimum(where_malignant, where_benign),
        np.maximum(where_malignant, where_benign),
    ):
        mean_of_patient = np.bincount(patient_of_region, values) / regions_of_patient
        columns.append(mean_of_patient[order_of_patients])
    difference, lowest, highest = columns
    return [str(name) for name in names[order_of_patients]], difference, lowest, highest
