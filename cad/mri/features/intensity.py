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
    finite, start_of_finite, is_finite = keep_finite(np.ascontiguousarray(values, float), start)
    start_of_finite = np.ascontiguousarray(start_of_finite, np.int64)
    out = np.full(len(start) - 1, np.nan, RECORD)
    # The values are sorted by NumPy, and not in the functions that numba compiles. With a sort
    # inside them, compiling would take twice as long.
    region_limits = list(itertools.pairwise(start_of_finite))
    # The sorted values begin with the first region, even if ``values`` do not.
    start_of_sorted = start_of_finite - start_of_finite[0]
    if weight is None or core is None:
        # The empty array is there because nothing can be concatenated if there is no region.
        sorted_by_region = [np.sort(finite[first:last]) for first, last in region_limits]
        sorted_values = np.concatenate([finite[:0], *sorted_by_region])
        _fill_statistics(sorted_values, start_of_sorted, out)
    else:
        weight = weight[is_finite]
        core = core[is_finite]
        # The order is by value, and by weight among equal values, as _share_evenly() needs it.
        orders = [np.zeros(0, int)]
        for first, last in region_limits:
            orders.append(first + np.lexsort((weight[first:last], finite[first:last])))
        order = np.concatenate(orders)
        _weighted_statistics(finite[order], weight[order], core[order], start_of_sorted, out)
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
    rank = share * (len(ordered) - 1)  # from 0; it may lie between two values
    rank_below = int(rank)
    rank_above = min(rank_below + 1, len(ordered) - 1)  # the largest value has none above it
    gap = ordered[rank_above] - ordered[rank_below]
    value: float = ordered[rank_below] + (rank - rank_below) * gap
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
    for value in ordered:
        total += value
        squares += value * value
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
    m2_sum = m3_sum = m4_sum = mad_sum = medad_sum = 0.0
    robust_sum = 0.0
    n_robust = 0
    for value in ordered:
        deviation = value - mean
        m2_sum += deviation * deviation
        m3_sum += deviation * deviation * deviation
        m4_sum += deviation * deviation * deviation * deviation
        mad_sum += abs(deviation)
        medad_sum += abs(value - median)
        if p10 <= value <= p90:
            robust_sum += value
            n_robust += 1
    # The robust deviation uses only the values between the 10th and the 90th percentile: it is
    # their mean distance from their own mean. This mean is known only now.
    rmad = 0.0
    # In a constant region the rounded mean could give a deviation above 0.
    if n_robust > 0 and ordered[0] != ordered[n - 1]:
        centre = robust_sum / n_robust
        for value in ordered:
            if p10 <= value <= p90:
                rmad += abs(value - centre)
        rmad /= n_robust
    ranks = (ordered[0], p10, p25, median, p75, p90, ordered[n - 1])
    moments = (m2_sum / n, m3_sum / n, m4_sum / n)
    deviations = (mad_sum / n, rmad, medad_sum / n)
    _write_statistics(n, mean, ranks, moments, deviations, squares, out)


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
    """Write the statistics of each region's sorted values into its record of ``out``."""
    for region in range(len(start) - 1):
        if start[region + 1] == start[region]:  # the record of an empty region stays NaN
            continue
        summarise_ordered(ordered[start[region] : start[region + 1]], out[region])


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
    # The gap is 0 where the percentile is the smallest value.
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
    first = 0  # where a run of equal values begins
    for last in range(1, len(ordered) + 1):
        # A run ends before another value, and at the end of the array.
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
    """Write the weighted statistics of each region into its record of ``out``.

    The values of a region are in ascending order, and among equal values the weights. ``core``
    tells which voxels belong to the region's core. ``weights`` is changed: equal values share their
    weights evenly.
    """
    for region in range(len(start) - 1):
        first = start[region]
        last = start[region + 1]
        if first == last:  # the record of an empty region stays NaN
            continue
        v = values[first:last]  # the region's values and weights
        w = weights[first:last]
        _share_evenly(v, w)
        n = len(v)
        total = weighted = squares = 0.0
        for i in range(n):
            total += w[i]
            weighted += w[i] * v[i]
            squares += w[i] * v[i] * v[i]
        if n == 1 or v[0] == v[n - 1]:
            # A constant region has the statistics of whole voxels but for its energy, which is a
            # weighted sum. The places below would divide by 0 if there is one voxel only.
            summarise_ordered(v, out[region])
            out[region].energy = total * v[0] * v[0]
            continue
        # Values are laid out in order, each as long as its weight. The place of a value is the
        # middle of its length, scaled so that the smallest value has the place 0 and the largest 1.
        # With equal weights the place is i / (n - 1), as for whole voxels.
        place = np.empty(n)
        weight_up_to = 0.0
        for i in range(n):
            weight_up_to += w[i]
            place[i] = (weight_up_to - 0.5 * w[i] - 0.5 * w[0]) / (total - 0.5 * (w[0] + w[n - 1]))
        mean = weighted / total
        median = weighted_percentile(v, place, 0.5)
        p10 = weighted_percentile(v, place, 0.10)
        p25 = weighted_percentile(v, place, 0.25)
        p75 = weighted_percentile(v, place, 0.75)
        p90 = weighted_percentile(v, place, 0.90)
        m2 = m3 = m4 = mad = medad = robust_sum = robust_weight = 0.0
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
                robust_sum += w[i] * v[i]
                robust_weight += w[i]
            if core[first + i]:
                low = min(low, v[i])
                high = max(high, v[i])
        rmad = 0.0
        if robust_weight > 0:
            centre = robust_sum / robust_weight
            for i in range(n):
                if p10 <= v[i] <= p90:
                    rmad += w[i] * abs(v[i] - centre)
            rmad /= robust_weight
        if low > high:  # no voxel of the core has a finite value
            low = v[0]
            high = v[n - 1]
        ranks = (low, p10, p25, median, p75, p90, high)
        moments = (m2 / total, m3 / total, m4 / total)
        _write_statistics(
            total, mean, ranks, moments, (mad / total, rmad, medad / total), squares, out[region]
        )
