"""Compute statistics of the values in a region: IBSI's 18 first-order statistics and two quartiles.

Variance is divided by the number of voxels, kurtosis is excess kurtosis, and percentiles are
interpolated linearly between the sorted values. Every statistic is defined for a constant region,
too. Its mean, median, extremes, percentiles and root mean square are its one intensity. Its
measures of spread, its skewness and its kurtosis are 0. The two ratios (coefficient of variation,
quartile coefficient of dispersion) are 0 if their denominator is 0.

Voxels may have weights: the weight is the share of the voxel that belongs to the region. Voxels are
then laid out by increasing value, each as long as its weight, and percentiles are interpolated
linearly between the middles of these lengths. Voxels of equal value share their weights evenly, so
that their order does not matter. If all weights are equal, the results are those without weights.
"""

import itertools
import math
from typing import Any

import numpy as np
from numba import njit

from cad.base.terms.features import STATISTICS
from cad.mri.features.regions import keep_finite

RECORD = np.dtype([(name, float) for name in STATISTICS])
"""Result of :func:`statistics` for a region: a field for each statistic."""


def statistics(
    values: np.ndarray,
    start: np.ndarray,
    weight: np.ndarray | None = None,
    core: np.ndarray | None = None,
) -> np.ndarray:
    """Return IBSI's first-order statistics (and two quartiles) of each region's values.

    Parameters
    ----------
    values : ndarray, shape (n_voxels,)
        Values of all regions one after another; values that are not finite are left out.
    start : ndarray of int64, shape (n_regions + 1,)
        Region r owns ``values[start[r]:start[r + 1]]``.
    weight : ndarray, shape (n_voxels,), optional
        Share (0 to 1) of each voxel that the region fills; by default every voxel counts whole.
        Equal weights give the statistics of whole voxels, except energy, a weighted sum.
    core : ndarray of bool, shape (n_voxels,), optional
        Voxels among which minimum and maximum are taken; needed with ``weight``.

    Returns
    -------
    ndarray of ``RECORD``, shape (n_regions,)
        A field for each of ``STATISTICS``; all NaN for a region without a finite value.

    Examples
    --------
    >>> import numpy as np
    >>> rows = statistics(np.array([1.0, 3.0, 10.0, 20.0]), np.array([0, 2, 4]))
    >>> rows["mean"].tolist(), rows["maximum"].tolist()
    ([2.0, 15.0], [3.0, 20.0])
    """
    finite, limits, is_finite = keep_finite(np.ascontiguousarray(values, float), start)
    limits = np.ascontiguousarray(limits, np.int64)
    out = np.full(len(start) - 1, np.nan, RECORD)
    # The values are sorted by NumPy, and not in the functions that numba compiles. With a sort
    # inside them, compiling would take twice as long.
    ends = list(itertools.pairwise(limits))
    if weight is None or core is None:
        ordered = [np.sort(finite[a:b]) for a, b in ends]
        _fill_statistics(np.concatenate([finite[:0], *ordered]), limits - limits[0], out)
    else:
        weight = weight[is_finite]
        core = core[is_finite]
        orders = [np.zeros(0, int)]
        for begin, end in ends:
            orders.append(begin + np.lexsort((weight[begin:end], finite[begin:end])))
        order = np.concatenate(orders)
        _weighted_statistics(finite[order], weight[order], core[order], limits - limits[0], out)
    return out


@njit(cache=True)
def percentile(ordered: np.ndarray, share: float) -> float:
    """Return a percentile of sorted values, linear between neighbours.

    Parameters
    ----------
    ordered : ndarray, shape (n,)
        Values in ascending order; at least one.
    share : float
        Share of the values below the percentile, 0 to 1: 0.25 for the lower quartile.

    Examples
    --------
    >>> import numpy as np
    >>> percentile(np.array([1.0, 2.0, 3.0]), 0.25)
    1.5
    """
    rank = share * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    value: float = ordered[low] + (rank - low) * (ordered[high] - ordered[low])
    return value


@njit(cache=True)
def summarise_ordered(ordered: np.ndarray, out: Any) -> None:
    """Write the first-order statistics of values into a record.

    Parameters
    ----------
    ordered : ndarray, shape (n,)
        Values in ascending order; at least one.
    out : record of ``RECORD``
        Changed in place: each of its fields gets a statistic.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.zeros(1, RECORD)
    >>> summarise_ordered(np.array([1.0, 2.0, 6.0]), out[0])
    >>> out["mean"].tolist(), out["median"].tolist()
    ([3.0], [2.0])
    """
    n = len(ordered)
    total = 0.0
    squares = 0.0
    for v in ordered:
        total += v
        squares += v * v
    mean = total / n
    median = percentile(ordered, 0.5)
    p10 = percentile(ordered, 0.10)
    p25 = percentile(ordered, 0.25)
    p75 = percentile(ordered, 0.75)
    p90 = percentile(ordered, 0.90)
    if ordered[0] == ordered[n - 1]:
        mean = ordered[0]  # a rounded mean would give a constant region a spread above 0
    # Central moments are summed in a second pass, when the mean is known. To compute them in one
    # pass, from sums of powers, would lose digits.
    m2 = m3 = m4 = mad = medad = 0.0
    robust_sum = 0.0
    robust_n = 0
    for v in ordered:
        d = v - mean
        m2 += d * d
        m3 += d * d * d
        m4 += d * d * d * d
        mad += abs(d)
        medad += abs(v - median)
        if p10 <= v <= p90:
            robust_sum += v
            robust_n += 1
    # The robust deviation uses only the values between the 10th and the 90th percentile: it is
    # their mean distance from their own mean. This mean is known only now.
    rmad = 0.0
    if robust_n > 0 and ordered[0] != ordered[n - 1]:
        centre = robust_sum / robust_n
        for v in ordered:
            if p10 <= v <= p90:
                rmad += abs(v - centre)
        rmad /= robust_n
    ranks = (ordered[0], p10, p25, median, p75, p90, ordered[n - 1])
    _write_statistics(
        n, mean, ranks, (m2 / n, m3 / n, m4 / n), (mad / n, rmad, medad / n), squares, out
    )


@njit(cache=True)
def _write_statistics(
    total: float,
    mean: float,
    ranks: tuple[float, float, float, float, float, float, float],
    moments: tuple[float, float, float],
    deviations: tuple[float, float, float],
    squares: float,
    out: Any,
) -> None:
    """Write a region's statistics from its sums.

    ``total`` is the sum of the voxels' weights, or the number of voxels. ``ranks`` are minimum,
    p10, p25, median, p75, p90, maximum. ``moments`` are the central moments from the second on.
    ``deviations`` are the mean absolute deviation (MAD), the robust MAD and the MAD about the
    median. ``squares`` is the weighted sum of squares.
    """
    low, p10, p25, median, p75, p90, high = ranks
    m2, m3, m4 = moments
    out.mean = mean
    out.variance = m2
    # In a constant region, skewness, kurtosis and the two ratios below would be 0 / 0. They are 0
    # by definition.
    out.skewness = m3 / m2**1.5 if m2 > 0 else 0.0
    out.kurtosis = m4 / (m2 * m2) - 3.0 if m2 > 0 else 0.0
    out.median = median
    out.minimum = low
    out.p10 = p10
    out.p25 = p25
    out.p75 = p75
    out.p90 = p90
    out.maximum = high
    out.iqr = p75 - p25
    out.range = high - low
    out.mad, out.rmad, out.medad = deviations
    out.cov = math.sqrt(m2) / mean if mean != 0 else 0.0
    out.qcod = (p75 - p25) / (p75 + p25) if p75 + p25 != 0 else 0.0
    out.energy = squares
    out.rms = math.sqrt(squares / total)


@njit(cache=True)
def _fill_statistics(ordered: np.ndarray, start: np.ndarray, out: np.ndarray) -> None:
    for r in range(len(start) - 1):
        if start[r + 1] == start[r]:
            continue
        summarise_ordered(ordered[start[r] : start[r + 1]], out[r])


@njit(cache=True)
def weighted_percentile(ordered: np.ndarray, place: np.ndarray, share: float) -> float:
    """Return a percentile of weighted values, linear between them.

    Parameters
    ----------
    ordered : ndarray, shape (n,)
        Values in ascending order.
    place : ndarray, shape (n,)
        Place of each value from 0 (smallest) to 1 (largest), by cumulative weight.
    share : float
        Share of the weight below the percentile, 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> weighted_percentile(np.array([1.0, 2.0, 4.0]), np.array([0.0, 0.5, 1.0]), 0.75)
    3.0
    """
    # ``high`` is the index of the first value whose place is at or beyond the share, and ``low``
    # the index before it. The percentile lies between these two values.
    high = min(int(np.searchsorted(place, share)), len(place) - 1)
    low = max(high - 1, 0)
    gap = place[high] - place[low]
    fraction = (share - place[low]) / gap if gap > 0 else 0.0
    value: float = ordered[low] + fraction * (ordered[high] - ordered[low])
    return value


@njit(cache=True)
def _share_evenly(ordered: np.ndarray, weight: np.ndarray) -> None:
    """Replace the weights of equal values by the mean of these weights; ``weight`` is changed.

    ``ordered`` has the values in ascending order. Among equal values, ``weight`` must be in
    ascending order, too.
    """
    first = 0
    for last in range(1, len(ordered) + 1):
        if last == len(ordered) or ordered[last] != ordered[first]:
            # The weights of equal values are in ascending order. The rounding of their mean
            # therefore does not depend on the order in which voxels are stored.
            if last - first > 1:
                weight[first:last] = weight[first:last].mean()
            first = last


@njit(cache=True)
def _weighted_statistics(
    values: np.ndarray, weights: np.ndarray, core: np.ndarray, start: np.ndarray, out: np.ndarray
) -> None:
    for r in range(len(start) - 1):
        a = start[r]
        b = start[r + 1]
        if a == b:
            continue
        v = values[a:b]
        w = weights[a:b]
        _share_evenly(v, w)
        n = len(v)
        total = weighted = squares = 0.0
        for i in range(n):
            total += w[i]
            weighted += w[i] * v[i]
            squares += w[i] * v[i] * v[i]
        if n == 1 or v[0] == v[n - 1]:
            summarise_ordered(v, out[r])
            out[r].energy = total * v[0] * v[0]
            continue
        # Values are laid out in order, each as long as its weight. The place of a value is the
        # middle of its length, scaled so that the smallest value has the place 0 and the largest 1.
        # With equal weights the place is i / (n - 1), as for whole voxels.
        place = np.empty(n)
        until = 0.0
        for i in range(n):
            until += w[i]
            place[i] = (until - 0.5 * w[i] - 0.5 * w[0]) / (total - 0.5 * (w[0] + w[n - 1]))
        mean = weighted / total
        median = weighted_percentile(v, place, 0.5)
        p10 = weighted_percentile(v, place, 0.10)
        p25 = weighted_percentile(v, place, 0.25)
        p75 = weighted_percentile(v, place, 0.75)
        p90 = weighted_percentile(v, place, 0.90)
        m2 = m3 = m4 = mad = medad = robust = robust_weight = 0.0
        # Minimum and maximum are taken in the region's core, the voxels that it fills most. A voxel
        # that the region only touches must not be its minimum.
        low = np.inf
        high = -np.inf
        for i in range(n):
            d = v[i] - mean
            m2 += w[i] * d**2
            m3 += w[i] * d**3
            m4 += w[i] * d**4
            mad += w[i] * abs(d)
            medad += w[i] * abs(v[i] - median)
            if p10 <= v[i] <= p90:
                robust += w[i] * v[i]
                robust_weight += w[i]
            if core[a + i]:
                low = min(low, v[i])
                high = max(high, v[i])
        rmad = 0.0
        if robust_weight > 0:
            centre = robust / robust_weight
            for i in range(n):
                if p10 <= v[i] <= p90:
                    rmad += w[i] * abs(v[i] - centre)
            rmad /= robust_weight
        if low > high:
            low = v[0]
            high = v[n - 1]
        ranks = (low, p10, p25, median, p75, p90, high)
        moments = (m2 / total, m3 / total, m4 / total)
        _write_statistics(
            total, mean, ranks, moments, (mad / total, rmad, medad / total), squares, out[r]
        )
