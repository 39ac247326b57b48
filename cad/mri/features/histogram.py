"""Turn values into grey levels, and compute the 23 intensity-histogram features of IBSI.

There are three rules for the grey level of a value v in a region. With a fixed number N of bins,
the region's own range of values is divided: level = floor(N (v - min) / (max - min)) + 1, and the
maximum belongs to level N. With a fixed bin width w and an anchor, levels count from the anchor:
level = floor((v - anchor) / w) + 1. IBSI takes as the anchor the lower bound of the range of values
that count. With a fixed bin width and no anchor, levels are cut at multiples of the width, and
count from the lowest level in the region: level = floor(v / w) - floor(min / w) + 1.

A constant region has the one level 1, unless there is an anchor. A region of one level has entropy
0, uniformity 1, and both gradients 0 at level 1.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from cad.base.errors import CadError
from cad.base.terms.features import HISTOGRAM, STATISTICS
from cad.mri.features.intensity import statistics
from cad.mri.features.regions import Sample
from cad.mri.imaging.geometry import MIN_VOXELS

RECORD = np.dtype([(name, float) for name in HISTOGRAM])
"""Result of :func:`histogram_features` for a region: a field for each feature."""

# A value that lies below the edge of a grey level by no more than this share of a level counts as
# on the edge. Integers in a file often lie exactly on an edge. If rounding errors decided their
# level, the gain of a scanner would change the texture.
_TIE = 1e-4
# Largest number of grey levels that a bin width may give. With more levels, the width was probably
# meant for values in another unit.
MAX_LEVELS = 1024


def discretise(
    values: np.ndarray,
    start: np.ndarray,
    bins: int | None,
    bin_width: float | None,
    anchor: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Turn values into grey levels, region by region, as IBSI defines them.

    With ``bins`` the range of each region is cut into that many equal bins. With ``bin_width``,
    bins are counted from ``anchor``. Without an anchor, bins are cut at multiples of the width, and
    counted from the region's lowest bin.

    Parameters
    ----------
    values : ndarray, shape (n_voxels,)
        Finite values of all regions one after another.
    start : ndarray of int64, shape (n_regions + 1,)
        Where each region begins in the array of voxels; the last entry is its end.
    bins : int or None
        Fixed number of bins over each region's range; ``bin_width`` is then not used.
    bin_width : float or None
        Width of a bin in the unit of the values.
    anchor : float or None
        Lower edge of the first bin of width ``bin_width``; no value may lie below it.

    Returns
    -------
    levels : ndarray of int64, shape (n_voxels,)
        Levels from 1 to the region's number of levels, in the order of ``values``.
    n_levels : ndarray of int64, shape (n_regions,)
        ``bins``, or the region's highest level for a fixed width and for a constant region.

    Raises
    ------
    CadError
        If neither ``bins`` nor ``bin_width`` is given, or if the width gives more than 1024 levels.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.array([0.0, 1.0, 2.0, 4.0])
    >>> levels, n_levels = discretise(values, np.array([0, 4]), bins=4, bin_width=None)
    >>> levels.tolist(), n_levels.tolist()
    ([1, 2, 3, 4], [4])
    """
    sizes = np.diff(start)
    has_voxels = sizes > 0
    first_voxel = start[:-1][has_voxels]
    voxels_per_region = sizes[has_voxels]
    # ``least`` is the least value of each region. Bins of a fixed number divide the region's range
    # of values, which begins there. Bins of a fixed width without an anchor are counted from there.
    least = np.repeat(np.minimum.reduceat(values, first_voxel), voxels_per_region)
    if bins is not None:
        span = np.repeat(np.maximum.reduceat(values, first_voxel), voxels_per_region) - least
        # A constant region has no range. Divided by 1 instead, all of its values get level 1.
        share = bins * (values - least) / np.where(span > 0, span, 1.0)
        # The region's largest value would have the level bins + 1 by the formula; it belongs to the
        # last bin.
        level_numbers = np.minimum(np.floor(share + _TIE) + 1, bins)
    elif bin_width is None:
        raise CadError(
            "texture needs a bin number or a bin width, found neither",
            hint="set features.texture.bins or features.texture.bin_width",
        )
    elif anchor is not None:
        level_numbers = np.floor((values - anchor) / bin_width + _TIE) + 1
    else:
        # The edges of bins lie at multiples of the width, whatever the region's least value is.
        level_numbers = np.floor(values / bin_width + _TIE) - np.floor(least / bin_width + _TIE) + 1
    levels = level_numbers.astype(np.int64)
    n_levels = np.ones(len(sizes), np.int64)  # a region without voxels keeps one level
    n_levels[has_voxels] = np.maximum.reduceat(levels, first_voxel)
    if n_levels.size and n_levels.max() > MAX_LEVELS:
        raise CadError(
            f"a bin width of {bin_width:g} cuts a region into {n_levels.max()} levels; "
            f"at most {MAX_LEVELS} are allowed",
            hint="widen bin_width in features.texture (T2) or texture_adc, or set bins",
        )
    return levels, n_levels


def histogram_of(sample: Sample) -> np.ndarray:
    """Return the histogram features of each region of a sample.

    Parameters
    ----------
    sample : Sample
        Grey levels in the cores of the regions.

    Returns
    -------
    ndarray of ``RECORD``, shape (n_regions,)
        All NaN for a region of fewer than 5 voxels with a value.
    """
    features = histogram_features(sample.levels, sample.start, sample.n_levels)
    features[np.diff(sample.start) < MIN_VOXELS] = np.nan
    return features


def histogram_features(levels: np.ndarray, start: np.ndarray, n_levels: np.ndarray) -> np.ndarray:
    """Return the features of each region's grey-level histogram.

    Parameters
    ----------
    levels : ndarray of int64, shape (n_voxels,)
        Grey level of every voxel, from :func:`discretise`.
    start : ndarray of int64, shape (n_regions + 1,)
        Where each region begins in the array of voxels; the last entry is its end.
    n_levels : ndarray of int64, shape (n_regions,)
        Number of levels of each region, from :func:`discretise`.

    Returns
    -------
    ndarray of ``RECORD``, shape (n_regions,)
        A field for each of ``HISTOGRAM``; all NaN for a region without voxels.

    Examples
    --------
    >>> import numpy as np
    >>> levels = np.array([1, 1, 2, 2])
    >>> row = histogram_features(levels, np.array([0, 4]), np.array([2]))
    >>> float(row["entropy"][0]), float(row["uniformity"][0])
    (1.0, 0.5)
    """
    summary = statistics(levels.astype(float), start)
    out = np.full(len(start) - 1, np.nan, RECORD)
    _histogram(levels, start, n_levels, summary["mean"], out)
    # Some histogram features are ordinary statistics, such as the mean. They are computed from grey
    # levels as they are from any other values.
    for name in set(HISTOGRAM) & set(STATISTICS):
        out[name] = summary[name]
    return out


@njit(cache=True)
def _histogram(
    levels: np.ndarray, start: np.ndarray, n_levels: np.ndarray, means: np.ndarray, out: np.ndarray
) -> None:
    """Write mode, entropy, uniformity and gradients of each region's histogram into ``out``.

    ``means`` has the mean level of each region.
    """
    for region in range(len(start) - 1):
        n_voxels = start[region + 1] - start[region]
        if n_voxels == 0:  # the features of a region without voxels stay NaN
            continue
        n_of_levels = n_levels[region]
        counts = np.zeros(n_of_levels, np.int64)
        for level in levels[start[region] : start[region + 1]]:
            counts[level - 1] += 1
        entropy = 0.0
        uniformity = 0.0
        mode = 0
        for place in range(n_of_levels):
            share = counts[place] / n_voxels
            uniformity += share * share
            if share > 0:
                entropy -= share * math.log2(share)
            # If several levels have the largest count, the mode is the level nearest to the mean
            # (IBSI). Place 0 of the histogram is level 1.
            nearer = abs(place + 1 - means[region]) < abs(mode + 1 - means[region])
            if counts[place] > counts[mode] or (counts[place] == counts[mode] and nearer):
                mode = place
        out[region].mode = mode + 1
        out[region].entropy = entropy
        out[region].uniformity = uniformity
        _gradients(counts, out[region])


@njit(cache=True)
def _gradients(counts: np.ndarray, out: Any) -> None:
    """Write the largest and the smallest slope of a histogram into ``out``, each with its level.

    ``counts`` is the histogram: a count for each level. The level of a slope is the first level at
    which the histogram has this slope; levels are numbered from 1.
    """
    n_levels = len(counts)
    steepest = 0.0
    steepest_at = 1
    lowest = 0.0
    lowest_at = 1
    for place in range(n_levels if n_levels > 1 else 0):  # one level has no slope
        # The slope of the histogram at a level is the central difference of the counts. At the
        # lowest and the highest level it is the one-sided difference (IBSI).
        if place == 0:
            slope = counts[1] - counts[0]
        elif place == n_levels - 1:
            slope = counts[place] - counts[place - 1]
        else:
            slope = (counts[place + 1] - counts[place - 1]) / 2
        # The first level (place 0) gives both slopes their first value.
        if place == 0 or slope > steepest:
            steepest = slope
            steepest_at = place + 1
        if place == 0 or slope < lowest:
            lowest = slope
            lowest_at = place + 1
    out.maximum_gradient = steepest
    out.maximum_gradient_level = steepest_at
    out.minimum_gradient = lowest
    out.minimum_gradient_level = lowest_at
