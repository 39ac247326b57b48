"""First-order statistics of a region: the 18 of IBSI's family and the two quartiles.

Logarithms do not occur, variance is the population's, kurtosis is excess kurtosis, percentiles are
interpolated linearly between order statistics. A constant region has a defined value everywhere:
its intensity for mean, median, extremes, percentiles and root mean square; 0 for every measure of
spread, for skewness and for kurtosis. The two ratios (coefficient of variation, quartile
coefficient of dispersion) are 0 when their denominator is 0.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from cad.features.regions import keep_finite

STATISTICS = (
    "mean",
    "variance",
    "skewness",
    "kurtosis",
    "median",
    "minimum",
    "p10",
    "p25",
    "p75",
    "p90",
    "maximum",
    "iqr",
    "range",
    "mad",
    "rmad",
    "medad",
    "cov",
    "qcod",
    "energy",
    "rms",
)
"""Columns of :func:`statistics`, in order."""


def statistics(values: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the statistics of the values of each region.

    Parameters
    ----------
    values : ndarray, shape (n_voxels,)
        Values of all regions one after another; those that are not finite are left out.
    start : ndarray of int64, shape (n_regions + 1,)
        Region r owns ``values[start[r]:start[r + 1]]``.

    Returns
    -------
    ndarray, shape (n_regions, 20)
        Columns as in ``STATISTICS``; NaN in the row of a region without a finite value.
    """
    finite, limits, _ = keep_finite(np.ascontiguousarray(values, float), start)
    out = np.empty((len(start) - 1, len(STATISTICS)))
    _statistics(finite, np.ascontiguousarray(limits, np.int64), out)
    return out


@njit(cache=True)
def percentile(ordered: np.ndarray, share: float) -> float:
    """Return a percentile (share 0..1) of ascending values, linear between order statistics."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


@njit(cache=True)
def summarise(ordered: np.ndarray, out: np.ndarray) -> None:
    """Write the 20 statistics of ascending values into ``out``."""
    n = len(ordered)
    total = 0.0
    squares = 0.0
    for v in ordered:
        total += v
        squares += v * v
    mean = total / n
    median = percentile(ordered, 0.5)
    p10, p25 = percentile(ordered, 0.10), percentile(ordered, 0.25)
    p75, p90 = percentile(ordered, 0.75), percentile(ordered, 0.90)
    if ordered[0] == ordered[n - 1]:
        mean = ordered[0]  # the sum's rounding must not give a constant a spread
    # Central moments in a second pass: differences of raw moments would cancel.
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
    m2, m3, m4 = m2 / n, m3 / n, m4 / n
    rmad = 0.0
    if robust_n > 0 and ordered[0] != ordered[n - 1]:
        centre = robust_sum / robust_n
        for v in ordered:
            if p10 <= v <= p90:
                rmad += abs(v - centre)
        rmad /= robust_n
    out[0] = mean
    out[1] = m2
    out[2] = m3 / m2**1.5 if m2 > 0 else 0.0
    out[3] = m4 / (m2 * m2) - 3.0 if m2 > 0 else 0.0
    out[4] = median
    out[5] = ordered[0]
    out[6], out[7], out[8], out[9] = p10, p25, p75, p90
    out[10] = ordered[n - 1]
    out[11] = p75 - p25
    out[12] = ordered[n - 1] - ordered[0]
    out[13] = mad / n
    out[14] = rmad
    out[15] = medad / n
    out[16] = math.sqrt(m2) / mean if mean != 0 else 0.0
    out[17] = (p75 - p25) / (p75 + p25) if p75 + p25 != 0 else 0.0
    out[18] = squares
    out[19] = math.sqrt(squares / n)


@njit(cache=True)
def _statistics(values: np.ndarray, start: np.ndarray, out: np.ndarray) -> None:
    for r in range(len(start) - 1):
        if start[r + 1] == start[r]:
            out[r] = np.nan
            continue
        summarise(np.sort(values[start[r] : start[r + 1]]), out[r])
