"""Detect changes of scanner or patients by charts, with a known average number of false alarms.

A chart follows one measure of the men who come each night, and raises an alarm if the measure
changes. Its run length is the number of nights until an alarm. The average run length without a
change is known in advance.

A limit that is computed from a hundred earlier men is inexact, because these men are a random
sample. A limit in standard deviations is wrong if values are not normal. Ranks avoid both errors.
As long as men are exchangeable, the rank of each man among all men before him is uniform and
independent of earlier ranks, whatever is measured (Vovk 2021).

The ranks of a night are converted to normal scores, added up, and divided by the square root of
their number. The result is one number per night, which is exactly standard normal. The cumulative
sum of such numbers (Page 1954) has an average run length that can be computed (Goel and Wu 1971).

There are several charts, one per measure. The limit of each chart is so high that all charts
together raise at most one false alarm, on average, in the stated number of nights.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from cad.base.errors import CadError

Array = NDArray[np.float64]

# Amount that is subtracted every night from a chart's sum, in standard deviations of the number
# that is added each night. A chart detects a shift of twice this amount fastest.
ALLOWANCE = 0.5
# Average number of nights between two false alarms of all charts together.
NIGHTS = 365.0
# Number of points at which the integral equation of the run length is solved.
_NODES = 80


def average_run_length(limit: float, shift: float = 0.0, allowance: float = ALLOWANCE) -> float:
    """Return the average number of nights after which a one-sided chart raises an alarm.

    The chart's sum S begins at 0 and becomes max(0, S + z - allowance) every night. There is an
    alarm if S exceeds the limit. z is the number that the chart gets for a night. It is normal with
    variance 1 and the mean ``shift``.

    Parameters
    ----------
    limit : float
        Limit of S, above 0.
    shift : float
        Mean of z; 0 without a change.
    allowance : float
        The amount that is taken off S every night.

    Returns
    -------
    float
        Average number of nights, by Goel and Wu's integral equation on 80 Gauss-Legendre nodes.

    Examples
    --------
    >>> round(average_run_length(4.0) / 2)  # two-sided; Montgomery's table has 168
    168
    """
    # The nodes and weights of the interval from -1 to 1 are moved to that from 0 to the limit.
    nodes, standard_weights = np.polynomial.legendre.leggauss(_NODES)
    node_sums = limit * (nodes + 1) / 2
    node_weight = limit * standard_weights / 2
    mean_step = shift - allowance
    # L(s) is the average number of nights until an alarm, counted from a night on which the sum is
    # s. It fulfils an integral equation: L(s) is 1 + L(0) P(s + z - k <= 0) plus an integral over
    # u. The integrand is L(u) times the density of s + z - k at u. Here z is the number that the
    # chart gets for the next night, and k is the allowance. L is computed at the nodes, and at 0 in
    # the last row and column.
    start_sums = np.append(node_sums, 0.0)
    matrix = np.zeros((_NODES + 1, _NODES + 1))
    matrix[:, :_NODES] = (
        norm.pdf(node_sums[None, :] - start_sums[:, None] - mean_step) * node_weight[None, :]
    )
    matrix[:, _NODES] = norm.cdf(-start_sums - mean_step)
    run_lengths = np.linalg.solve(np.eye(_NODES + 1) - matrix, np.ones(_NODES + 1))
    # The chart begins at a sum of 0, which is the last start.
    return float(run_lengths[-1])


@lru_cache
def limit_of(nights: float, allowance: float = ALLOWANCE) -> float:
    """Return the limit with which a one-sided chart has a given average run length.

    The run length is the number of nights until the chart's sum exceeds the limit, although nothing
    has changed: a false alarm (:func:`average_run_length`).

    Parameters
    ----------
    nights : float
        Average run length, between 2 and 10^8 nights.
    allowance : float
        The amount that is taken off the chart's sum every night.

    Raises
    ------
    CadError
        For a run length that is not between 2 and 10^8 nights.
    """
    if not 2 <= nights <= 1e8:
        raise CadError(f"an average run length of {nights:g} nights, must lie between 2 and 10^8")

    def log_ratio(limit: float) -> float:
        """Return the logarithm of a limit's run length, minus that of the wanted run length."""
        run_length = average_run_length(limit, shift=0.0, allowance=allowance)
        return float(np.log(run_length) - np.log(nights))

    # The run lengths at these two limits enclose all that are allowed.
    return float(brentq(log_ratio, 0.01, 20.0, xtol=1e-9))


def sequential_ranks(values: ArrayLike, strata: ArrayLike, baseline: int, seed: int = 0) -> Array:
    """Return the rank of each man among the men of his stratum before him, between 0 and 1.

    Parameters
    ----------
    values : array, shape (n,)
        One number per man, in the order in which the men came; NaN where a man has none.
    strata : array of str, shape (n,)
        Stratum of each man, such as his scanner's maker. He is compared only with men of this
        stratum.
    baseline : int
        Number of men at the beginning of each stratum who are not ranked.
    seed : int
        Seed for the order of men with equal values, which is drawn at random.

    Returns
    -------
    ndarray, shape (n,)
        Ranks, which are uniform and independent as long as men are exchangeable; NaN for men who
        are not ranked.

    Examples
    --------
    >>> import numpy as np
    >>> values = [0.1, 0.2, 0.3, 0.4, 0.9, 0.0]
    >>> ranks = sequential_ranks(values, ["a"] * 6, baseline=4)
    >>> bool(np.isnan(ranks[:4]).all()), bool(ranks[4] > 0.8), bool(ranks[5] < 0.2)
    (True, True, True)
    """
    numbers = np.asarray(values, dtype=float)
    stratum_of_man = np.asarray(strata, dtype=str)
    draws = np.random.Generator(np.random.PCG64(seed)).random(len(numbers))
    ranks = np.full(len(numbers), np.nan)
    sorted_values: dict[str, list[float]] = {}
    for man, (value, stratum) in enumerate(
        zip(numbers.tolist(), stratum_of_man.tolist(), strict=True)
    ):
        # A man without a value is not ranked, and nobody is compared with him.
        if np.isnan(value):
            continue
        earlier_values = sorted_values.setdefault(stratum, [])
        smaller = bisect_left(earlier_values, value)
        # Among earlier men of the same value, the man gets one of these places at random.
        possible_ranks = bisect_right(earlier_values, value) - smaller + 1
        # The first men of a stratum are not ranked, because there are too few before them.
        if len(earlier_values) >= baseline:
            ranks[man] = (smaller + draws[man] * possible_ranks) / (len(earlier_values) + 1)
        # The list stays sorted, and the man counts for all who come after him.
        earlier_values.insert(smaller, value)
    return ranks


@dataclass(frozen=True)
class Chart:
    """Hold one chart, which follows a measure of the men of each night and raises alarms.

    An alarm is raised on a night on which one of the chart's two cumulative sums exceeds the limit.

    Parameters
    ----------
    nights : ndarray of int, shape (k,)
        Nights on which a man was ranked.
    scores : ndarray, shape (k,)
        For each night one number, computed from the ranks of its men. It is standard normal as long
        as nothing changes.
    upper, lower : ndarray, shape (k,)
        Sum that detects a rise, and sum that detects a fall, after each night.
    limit : float
        Limit of both sums.
    """

    nights: NDArray[np.int64]
    scores: Array
    upper: Array
    lower: Array
    limit: float

    @property
    def alarm(self) -> int:
        """Return the first night on which either sum exceeds the limit; -1 without such a night."""
        beyond = np.flatnonzero(np.maximum(self.upper, self.lower) > self.limit)
        if not len(beyond):
            return -1
        return int(self.nights[beyond[0]])

    @property
    def direction(self) -> str:
        """Return whether the first alarm is for a "rise" or a "fall"; empty if there is no
        alarm.
        """
        beyond = np.flatnonzero(np.maximum(self.upper, self.lower) > self.limit)
        if not len(beyond):
            return ""
        if self.upper[beyond[0]] > self.limit:
            return "rise"
        return "fall"


def night_scores(ranks: ArrayLike, nights: ArrayLike) -> tuple[NDArray[np.int64], Array]:
    """Return the nights that have ranked men, and one number for each night.

    Parameters
    ----------
    ranks : array, shape (n,)
        Ranks of men between 0 and 1; NaN is left out.
    nights : array of int, shape (n,)
        Night of every man.

    Returns
    -------
    nights : ndarray of int, shape (k,)
        Nights in ascending order.
    scores : ndarray, shape (k,)
        Sum of the men's normal scores, divided by the square root of the number of men.

    Examples
    --------
    >>> import numpy as np
    >>> nights, scores = night_scores([0.5, 0.975, 0.975, np.nan], [1, 2, 2, 3])
    >>> nights.tolist(), scores.round(2).tolist()
    ([1, 2], [0.0, 2.77])
    """
    rank_of_man = np.asarray(ranks, dtype=float)
    is_ranked = ~np.isnan(rank_of_man)
    nights_with_men, night_of_man = np.unique(
        np.asarray(nights, dtype=np.int64)[is_ranked], return_inverse=True
    )
    scores = norm.ppf(rank_of_man[is_ranked])
    sum_of_night = np.bincount(night_of_man, scores, len(nights_with_men))
    men_of_night = np.bincount(night_of_man, minlength=len(nights_with_men))
    return nights_with_men, np.asarray(sum_of_night / np.sqrt(men_of_night))


def chart(
    nights: NDArray[np.int64], scores: Array, limit: float, allowance: float = ALLOWANCE
) -> Chart:
    """Return two cumulative sums of nightly numbers: one detects a rise, the other a fall.

    Parameters
    ----------
    nights, scores : ndarray, shape (k,)
        Nights, and the number of each night, from :func:`night_scores`.
    limit : float
        Limit of both sums (:func:`limit_of`). A sum above the limit is an alarm.
    allowance : float
        Amount that is taken off both sums every night.

    Examples
    --------
    >>> import numpy as np
    >>> sums = chart(np.arange(3), np.array([1.0, 2.0, -0.5]), limit=5.0, allowance=0.5)
    >>> sums.upper.tolist(), sums.lower.tolist()
    ([0.5, 2.0, 1.0], [0.0, 0.0, 0.0])
    """
    upper = np.empty(len(scores))
    lower = np.empty(len(scores))
    # Both sums begin at 0 and never fall below it. The allowance is taken off every night.
    rise = 0.0
    fall = 0.0
    for i, score in enumerate(scores):
        rise = max(0.0, rise + score - allowance)
        fall = max(0.0, fall - score - allowance)
        upper[i] = rise
        lower[i] = fall
    return Chart(nights=nights, scores=scores, upper=upper, lower=lower, limit=limit)


def watch(
    measures: Mapping[str, ArrayLike],
    strata: ArrayLike,
    nights: ArrayLike,
    baseline: int,
    run_length: float = NIGHTS,
    seed: int = 0,
) -> dict[str, Chart]:
    """Return a chart for every measure, with a limit for all of them together.

    Parameters
    ----------
    measures : mapping of str to array, shape (n,)
        For each measure, by its name, the numbers of the men; NaN where a man has none.
    strata : array of str, shape (n,)
        Stratum of each man; he is compared only with men of his stratum.
    nights : array of int, shape (n,)
        Night of every man, not descending.
    baseline : int
        Number of men at the beginning of each stratum who are not ranked.
    run_length : float
        Average number of nights between two false alarms of all charts together.
    seed : int
        Seed for the order of men with equal values.

    Raises
    ------
    CadError
        If nights descend, because it is then unknown which men came before a man.

    Examples
    --------
    >>> import numpy as np
    >>> value = np.concatenate([np.arange(100.0) % 10, np.full(40, 99.0)])
    >>> charts = watch({"ADC": value}, ["A"] * 140, np.arange(140), baseline=50)
    >>> charts["ADC"].direction
    'rise'
    """
    night_of_man = np.asarray(nights, dtype=np.int64)
    backwards = np.flatnonzero(np.diff(night_of_man) < 0)
    if len(backwards):
        last_before = int(backwards[0])
        raise CadError(
            f"night {night_of_man[last_before + 1]} comes after night "
            f"{night_of_man[last_before]}: men must be in order"
        )
    charts = {}
    for number, (name, values) in enumerate(measures.items()):
        # Each measure has draws of its own for the order of equal values.
        ranks = sequential_ranks(values, strata, baseline, seed + number)
        nights_with_men, scores = night_scores(ranks, night_of_man)
        charts[name] = chart(nights_with_men, scores, common_limit(len(measures), run_length))
    return charts


def common_limit(charts: int, run_length: float = NIGHTS) -> float:
    """Return the limit of each of several two-sided charts that together have a given run length.

    The rate of false alarms of all charts is at most the sum of the charts' rates, however they
    depend on each other.

    Parameters
    ----------
    charts : int
        Number of two-sided charts.
    run_length : float
        Average number of nights between two false alarms of all charts together.

    Examples
    --------
    >>> common_limit(1, 168.0) < common_limit(5, 168.0)
    True
    """
    # Each chart has two sums, so its sums share the alarms with those of all other charts.
    return limit_of(run_length * 2 * charts)


def first_alarm(charts: Mapping[str, Chart], after: int = 0) -> tuple[int, Sequence[str]]:
    """Return the first night with an alarm, and the charts that raise it.

    Only alarms on the night ``after`` or later count.

    Returns
    -------
    night : int
        The night; -1 if there is no alarm.
    names : list of str
        Names of the charts that raise an alarm on this night.
    """
    alarms = {name: chart.alarm for name, chart in charts.items() if chart.alarm >= after}
    if not alarms:
        return -1, []
    night = min(alarms.values())
    return night, [name for name, alarm in alarms.items() if alarm == night]
