"""Watch for changes by charts whose average run length without a change is known beforehand.

The run length is the number of nights until an alarm.

A limit from a hundred earlier men is wrong as far as these men differ from later men. A limit in
standard deviations is wrong as far as values are not normal. Ranks avoid both. Where men are
exchangeable, the rank of each man among all men before him is uniform and independent of earlier
ranks, whatever is measured (Vovk 2021).

The ranks of a night are turned into normal scores, added, and divided by the root of their number.
This gives one standard normal number per night, exactly. The cumulative sum of such numbers (Page
1954) has an average run length that can be computed (Goel and Wu 1971).

Several charts watch at once. The limit of each chart is so high that all charts together raise less
than one false alarm in the stated number of nights.
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

# Taken off every night. A chart detects fastest a shift of twice this amount, in standard
# deviations of a night's number.
ALLOWANCE = 0.5
# Average number of nights between false alarms of all charts together, without a change.
NIGHTS = 365.0
_NODES = 80


def average_run_length(limit: float, shift: float = 0.0, allowance: float = ALLOWANCE) -> float:
    """Return after how many nights a one-sided chart raises an alarm, on average.

    The chart's sum S begins at 0 and becomes max(0, S + z - allowance) every night. There is an
    alarm where S exceeds the limit. z is normal with variance 1 and the mean ``shift``.

    Parameters
    ----------
    limit : float
        Limit of S, > 0.
    shift : float
        Mean of z; 0 without a change.
    allowance : float
        The amount taken off every night.

    Returns
    -------
    float
        Average number of nights, by Goel and Wu's integral equation on 80 Gauss-Legendre nodes.

    Examples
    --------
    >>> round(average_run_length(4.0) / 2)  # two-sided; Montgomery's table has 168
    168
    """
    nodes, node_weights = np.polynomial.legendre.leggauss(_NODES)
    centre = limit * (nodes + 1) / 2
    weight = limit * node_weights / 2
    move = shift - allowance
    # Integral equation: L(s) = 1 + L(0) P(s + z - k <= 0) + integral of L(u) times the density of s
    # + z - k at u.
    start = np.append(centre, 0.0)
    matrix = np.zeros((_NODES + 1, _NODES + 1))
    matrix[:, :_NODES] = norm.pdf(centre[None, :] - start[:, None] - move) * weight[None, :]
    matrix[:, _NODES] = norm.cdf(-start - move)
    lengths = np.linalg.solve(np.eye(_NODES + 1) - matrix, np.ones(_NODES + 1))
    return float(lengths[-1])


@lru_cache
def limit_of(nights: float, allowance: float = ALLOWANCE) -> float:
    """Return the limit of a one-sided chart whose average run length without a change is given.

    Parameters
    ----------
    nights : float
        Average run length, between 2 and 10^8 nights.
    allowance : float
        The amount taken off every night.

    Raises
    ------
    CadError
        For a run length that is not between 2 and 10^8 nights.
    """
    if not 2 <= nights <= 1e8:
        raise CadError(f"an average run length of {nights:g} nights, must lie between 2 and 10^8")

    def away(limit: float) -> float:
        return float(np.log(average_run_length(limit, 0.0, allowance)) - np.log(nights))

    return float(brentq(away, 0.01, 20.0, xtol=1e-9))


def sequential_ranks(values: ArrayLike, strata: ArrayLike, baseline: int, seed: int = 0) -> Array:
    """Return the rank of each man among the men of his stratum before him, between 0 and 1.

    Parameters
    ----------
    values : array, shape (n,)
        One number per man, in the order in which the men came; NaN where a man has none.
    strata : array of str, shape (n,)
        The group within which each man is compared, such as the scanner's maker.
    baseline : int
        Number of men of a stratum before the first man who is ranked.
    seed : int
        Seed for the order of men with equal values, which is drawn at random.

    Returns
    -------
    ndarray, shape (n,)
        Ranks, uniform and independent where men are exchangeable; NaN for men who are not ranked.

    Examples
    --------
    >>> import numpy as np
    >>> values = [0.1, 0.2, 0.3, 0.4, 0.9, 0.0]
    >>> ranks = sequential_ranks(values, ["a"] * 6, baseline=4)
    >>> bool(np.isnan(ranks[:4]).all()), bool(ranks[4] > 0.8), bool(ranks[5] < 0.2)
    (True, True, True)
    """
    numbers = np.asarray(values, dtype=float)
    names = np.asarray(strata, dtype=str)
    draws = np.random.Generator(np.random.PCG64(seed)).random(len(numbers))
    ranks = np.full(len(numbers), np.nan)
    sorted_values: dict[str, list[float]] = {}
    for man, (value, name) in enumerate(zip(numbers.tolist(), names.tolist(), strict=True)):
        if np.isnan(value):
            continue
        before = sorted_values.setdefault(name, [])
        lower = bisect_left(before, value)
        equal = bisect_right(before, value) - lower + 1
        if len(before) >= baseline:
            ranks[man] = (lower + draws[man] * equal) / (len(before) + 1)
        before.insert(lower, value)
    return ranks


@dataclass(frozen=True)
class Chart:
    """Hold one chart: its nights, its two sums and its alarms.

    Parameters
    ----------
    nights : ndarray of int, shape (k,)
        Nights on which a man was ranked.
    scores : ndarray, shape (k,)
        The number of each night; it is standard normal as long as nothing changes.
    upper, lower : ndarray, shape (k,)
        Sums that detect a rise, and sums that detect a fall.
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
        """Return the first night on which a sum exceeds the limit; -1 where no sum does."""
        beyond = np.flatnonzero(np.maximum(self.upper, self.lower) > self.limit)
        if not len(beyond):
            return -1
        return int(self.nights[beyond[0]])

    @property
    def direction(self) -> str:
        """Return "rise" or "fall" for the first alarm; empty where there is no alarm."""
        beyond = np.flatnonzero(np.maximum(self.upper, self.lower) > self.limit)
        if not len(beyond):
            return ""
        if self.upper[beyond[0]] > self.limit:
            return "rise"
        return "fall"


def night_scores(ranks: ArrayLike, nights: ArrayLike) -> tuple[NDArray[np.int64], Array]:
    """Return the nights that have ranked men, and one number for each.

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
        Sum of the men's normal scores, divided by the root of the number of men.

    Examples
    --------
    >>> import numpy as np
    >>> nights, scores = night_scores([0.5, 0.975, 0.975, np.nan], [1, 2, 2, 3])
    >>> nights.tolist(), scores.round(2).tolist()
    ([1, 2], [0.0, 2.77])
    """
    rank = np.asarray(ranks, dtype=float)
    ranked = ~np.isnan(rank)
    days, owner = np.unique(np.asarray(nights, dtype=np.int64)[ranked], return_inverse=True)
    scores = norm.ppf(rank[ranked])
    total = np.bincount(owner, scores, len(days))
    return days, np.asarray(total / np.sqrt(np.bincount(owner, minlength=len(days))))


def chart(
    nights: NDArray[np.int64], scores: Array, limit: float, allowance: float = ALLOWANCE
) -> Chart:
    """Return the two cumulative sums of nightly numbers.

    Parameters
    ----------
    nights, scores : ndarray, shape (k,)
        The results of :func:`night_scores`.
    limit : float
        Limit of both sums (:func:`limit_of`).
    allowance : float
        The amount taken off every night.

    Examples
    --------
    >>> import numpy as np
    >>> sums = chart(np.arange(3), np.array([1.0, 2.0, -0.5]), limit=5.0, allowance=0.5)
    >>> sums.upper.tolist(), sums.lower.tolist()
    ([0.5, 2.0, 1.0], [0.0, 0.0, 0.0])
    """
    upper = np.empty(len(scores))
    lower = np.empty(len(scores))
    rise = 0.0
    fall = 0.0
    for i, score in enumerate(scores):
        rise = max(0.0, rise + score - allowance)
        fall = max(0.0, fall - score - allowance)
        upper[i] = rise
        lower[i] = fall
    return Chart(nights, scores, upper, lower, limit)


def watch(
    measures: Mapping[str, ArrayLike],
    strata: ArrayLike,
    nights: ArrayLike,
    baseline: int,
    run_length: float = NIGHTS,
    seed: int = 0,
) -> dict[str, Chart]:
    """Return a chart for every measure, with limits that hold for all of them together.

    Parameters
    ----------
    measures : mapping of str to array, shape (n,)
        Numbers of the men by name of the measure; NaN where a man has none.
    strata : array of str, shape (n,)
        The group within which each man is compared.
    nights : array of int, shape (n,)
        Night of every man, not descending.
    baseline : int
        Number of men of a stratum before the first man who is ranked.
    run_length : float
        Nights between false alarms of all charts together, on average.
    seed : int
        Seed for the order of men with equal values.

    Raises
    ------
    CadError
        Where nights descend, because a man's predecessors are then unknown.

    Examples
    --------
    >>> import numpy as np
    >>> value = np.concatenate([np.arange(100.0) % 10, np.full(40, 99.0)])
    >>> charts = watch({"ADC": value}, ["A"] * 140, np.arange(140), baseline=50)
    >>> charts["ADC"].direction
    'rise'
    """
    day = np.asarray(nights, dtype=np.int64)
    backwards = np.flatnonzero(np.diff(day) < 0)
    if len(backwards):
        i = int(backwards[0])
        raise CadError(f"night {day[i + 1]} comes after night {day[i]}: men must be in order")
    charts = {}
    for number, (name, values) in enumerate(measures.items()):
        ranks = sequential_ranks(values, strata, baseline, seed + number)
        charts[name] = chart(*night_scores(ranks, day), common_limit(len(measures), run_length))
    return charts


def common_limit(charts: int, run_length: float = NIGHTS) -> float:
    """Return the limit of each of several two-sided charts that together have a run length.

    The charts' common rate of false alarms is at most the sum of their rates, whatever the charts
    have in common.

    Parameters
    ----------
    charts : int
        Number of two-sided charts.
    run_length : float
        Nights between false alarms of all charts together, on average.

    Examples
    --------
    >>> common_limit(1, 168.0) < common_limit(5, 168.0)
    True
    """
    return limit_of(run_length * 2 * charts)


def first_alarm(charts: Mapping[str, Chart], after: int = 0) -> tuple[int, Sequence[str]]:
    """Return the first night, ``after`` or later, of an alarm, and the charts that raise it.

    Returns
    -------
    night : int
        The night; -1 where there is no alarm.
    names : list of str
        Charts that raise the alarm.
    """
    alarms = {name: chart.alarm for name, chart in charts.items() if chart.alarm >= after}
    if not alarms:
        return -1, []
    night = min(alarms.values())
    return night, [name for name, alarm in alarms.items() if alarm == night]
