"""Compute the 25 co-occurrence features of IBSI, for many regions.

The co-occurrence matrix says how often grey levels i and j are neighbours in a region. Each pair of
voxels at one distance along a direction is counted once, and the counts are read as a symmetric
matrix. Three features need the matrix itself (joint maximum, energy, joint entropy). The others
follow from three simpler counts: of single levels, of the differences of two levels, and of the
sums of two levels. Only those cells of the matrix that have counts are visited. The sum of c log2 c
over integer counts c comes from a table, so that no logarithm is taken in the loop.

The matrix of a constant region has a single cell with counts. Its entropies, contrast, inverse
variance, both measures of information correlation and all measures of spread are 0. Its joint
maximum, energy, inverse differences and correlation are 1.

At distance d IBSI multiplies the 13 unit directions (4 in a slice) by d. Other tools take all
neighbours whose largest step along an axis is d. At distance 1 both rules give the same pairs.
"""

import itertools
import math
from typing import Any

import numpy as np
from numba import njit

from cad.base.errors import CadError
from cad.base.settings import TextureSettings
from cad.base.terms.features import HARALICK
from cad.mri.features.regions import RegionVoxels, Sample

RECORD = np.dtype([(name, float) for name in HARALICK])
"""Result of :func:`haralick_features` for a region: a field for each feature."""

# A co-occurrence matrix says how often two grey levels are neighbours. Each of IBSI's aggregations
# has three values: whether neighbours may lie in different slices, whether each slice has its own
# matrix, and whether each direction has its own matrix.
AGGREGATIONS: dict[str, tuple[bool, bool, bool]] = {
    "2D_avg": (False, True, True),
    "2D_comb": (False, True, False),
    "2_5D_avg": (False, False, True),
    "2_5D_comb": (False, False, False),
    "3D_avg": (True, False, True),
    "3D_comb": (True, False, False),
}
"""IBSI's ways to merge matrices over slices and directions, or to average features over them."""
# IBSI's name of an aggregation has two parts. The first stands for the setting ``dimension`` of the
# texture, the second for the setting ``aggregation``.
_DIMENSION = {"slice": "2D", "2D": "2_5D", "3D": "3D"}
_AGGREGATION = {"merged": "comb", "averaged": "avg"}


def directions(three_d: bool, distance: int = 1) -> np.ndarray:
    """Return the steps from one voxel of a pair to the other; of two opposite steps only one is
    kept.

    Parameters
    ----------
    three_d : bool
        True for the 13 directions in space, False for the 4 inside a slice.
    distance : int
        Distance of the two voxels of a pair: the factor on each unit direction, such as (0, 1, 1).

    Returns
    -------
    ndarray of int, shape (13 or 4, 3)
        Steps dz, dy, dx in voxels.
    """
    across_slices = (0, 1) if three_d else (0,)
    steps = list(itertools.product(across_slices, (-1, 0, 1), (-1, 0, 1)))
    forward = [step for step in steps if step > (0, 0, 0)]
    return np.array(forward, np.int64) * distance


def aggregation_of(texture: TextureSettings) -> str:
    """Return IBSI's name of the way in which co-occurrence is averaged over directions and slices.

    Parameters
    ----------
    texture : TextureSettings
        Settings with ``dimension`` and ``aggregation``.

    Returns
    -------
    str
        A key of ``AGGREGATIONS``.

    Examples
    --------
    >>> from cad.base.settings import TextureSettings
    >>> aggregation_of(TextureSettings(dimension="2D", aggregation="averaged"))
    '2_5D_avg'
    """
    return f"{_DIMENSION[texture.dimension]}_{_AGGREGATION[texture.aggregation]}"


def haralick_of(sample: Sample) -> np.ndarray:
    """Return the co-occurrence features of each region of a sample, by the sample's texture
    settings.

    Parameters
    ----------
    sample : Sample
        Grey levels in the core of each region: the voxels that the region fills most.

    Returns
    -------
    ndarray of ``RECORD``, shape (n_regions,)
        The result of :func:`haralick_features`.
    """
    levels = np.zeros(len(sample.is_finite), np.int64)
    levels[sample.is_finite] = sample.levels
    aggregation = aggregation_of(sample.texture)
    return haralick_features(
        levels, sample.n_levels, sample.core, sample.texture.distance, aggregation
    )


def haralick_features(
    levels: np.ndarray,
    n_levels: np.ndarray,
    regions: RegionVoxels,
    distance: int = 1,
    aggregation: str = "3D_comb",
) -> np.ndarray:
    """Return the co-occurrence features of each region.

    Parameters
    ----------
    levels : ndarray of int64, shape (n_voxels,)
        Grey level (1 to ``n_levels``) of every voxel of every region; 0 leaves a voxel out.
    n_levels : ndarray of int64, shape (n_regions,)
        Number of grey levels of each region; used in the two normalised inverse differences.
    regions : RegionVoxels
        Voxels of the regions, in the order of ``levels``.
    distance : int
        Distance of the two voxels of a pair: the factor on each unit direction, such as (0, 1, 1).
    aggregation : str
        Merging of matrices over directions and slices, one of ``AGGREGATIONS``: ``2D``, ``2_5D`` or
        ``3D``, then ``_avg`` or ``_comb``, as IBSI names them.

    Returns
    -------
    ndarray of ``RECORD``, shape (n_regions,)
        A field for each of ``HARALICK``; all NaN for a region without a pair of neighbours.

    Raises
    ------
    CadError
        For an unknown aggregation or a distance below 1.

    Examples
    --------
    >>> import numpy as np
    >>> region = RegionVoxels.from_masks([np.ones((1, 4, 4), bool)])
    >>> chequered = (np.indices((4, 4)).sum(axis=0) % 2 + 1).ravel()
    >>> row = haralick_features(chequered, np.array([2]), region, aggregation="2D_comb")
    >>> float(row["contrast"][0].round(3))
    0.571
    """
    if aggregation not in AGGREGATIONS:
        raise CadError(f"unknown aggregation {aggregation!r}; known are {', '.join(AGGREGATIONS)}")
    if distance < 1:
        raise CadError(f"the co-occurrence distance is at least 1 voxel, found {distance}")
    three_d, by_slice, by_direction = AGGREGATIONS[aggregation]
    count_values = np.arange(_TABLE, dtype=float)
    highest = int(n_levels.max())
    # The matrix has a row for each level from 0 to the highest. A row takes 2^bits cells.
    n_cells = (highest + 1) << _row_bits(highest)
    counts = (  # used for one matrix after another; _add_matrix_features() empties these arrays
        np.zeros(n_cells, np.int32),  # counts of the cells
        # Numbers of the cells that have counts. One entry more is written, but not used, when all
        # cells have counts.
        np.zeros(n_cells + 1, np.int32),
        np.zeros(highest, np.int64),  # counts of single levels
        np.zeros(highest, np.int64),  # counts of differences of two levels
        np.zeros(2 * highest, np.int64),  # counts of sums of two levels
        # The table of c log2 c. For c = 0 it has 0, because log2(0) is replaced by log2(1).
        count_values * np.log2(np.maximum(count_values, 1.0)),
    )
    out = np.zeros(regions.count, RECORD)
    n_matrices = np.zeros(regions.count)
    _features_of_regions(
        levels,
        n_levels,
        regions.index,
        regions.start,
        np.array(regions.shape, np.int64),
        directions(three_d, distance),
        distance,
        by_slice,
        by_direction,
        counts,
        out,
        n_matrices,
    )
    # The array ``out`` holds, for each region, features summed over its co-occurrence matrices.
    # They are divided by the number of matrices. A region without a pair of neighbours has no
    # matrix, so that 0 / 0 gives NaN.
    values = out.view(float).reshape(len(out), -1)
    with np.errstate(invalid="ignore"):
        values /= n_matrices[:, None]
    return out


_TABLE = 4096  # the table has c log2 c for every count c below this number


# The six arrays in which pairs of neighbouring voxels are counted. The first is the co-occurrence
# matrix; it has one row and one column more than there are grey levels, because level 0 stands for
# voxels outside the region. The second has the numbers of those cells of the matrix that have
# counts. The third to fifth have the counts of single levels, of level differences and of level
# sums. The last is no count but the table of c log2 c.
Counts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@njit(cache=True, nogil=True)
def _x_log_x(count: int, table: np.ndarray) -> float:
    """Return the count times its binary logarithm.

    ``table`` has the result for each count from 0 to ``len(table) - 1``.
    """
    if count < len(table):
        value: float = table[count]
        return value
    return float(count * math.log2(count))


@njit(cache=True, nogil=True)
def _add_features(
    cells: tuple[int, float, float],
    counts: Counts,
    pairs: int,
    n_levels: int,
    extremes: tuple[int, int],
    out: Any,
) -> None:
    """Add the features of one symmetric matrix to the fields of ``out``.

    Parameters
    ----------
    cells : (int, float, float)
        Three numbers of the symmetric matrix: the largest count c of a cell, the sum of c^2 over
        its cells, and the sum of c log2 c.
    counts : Counts
        Its last four arrays are read. They are the number of voxels of each level (two voxels per
        pair), the number of pairs by the difference of their levels, the number of pairs by the sum
        of their levels less 2, and the table of c log2 c.
    pairs : int
        Number of pairs, > 0; the symmetric matrix sums to twice that.
    n_levels : int
        Number of grey levels of the region.
    extremes : (int, int)
        Lowest and highest level (from 0) that occurs.
    out : record of :data:`cad.mri.features.haralick.RECORD`
        Record whose fields are sums over matrices; the features are added to it.
    """
    # All sums run over counts of pairs, and each is divided once at the end by the number of pairs.
    # Sums over probabilities would be less exact. They would also need a logarithm for each cell,
    # where counts need only the table of c log2 c.
    joint_max, squares, joint_log = cells
    _, _, single, difference, total, table = counts
    low, high = extremes
    whole = 2.0 * pairs
    log_pairs = math.log2(pairs)
    log_whole = log_pairs + 1.0
    # Mean and entropy of the levels of single voxels. The share of voxels with level i is p = c /
    # whole, where c is single[i]. The entropy is therefore -sum p log2 p = log2(whole) - sum c log2
    # c / whole.
    mean = 0.0
    single_log = 0.0
    for g in range(low, high + 1):
        c = single[g]
        if c > 0:
            mean += c * (g + 1.0)
            single_log += _x_log_x(c, table)
    mean /= whole
    h_single = max(log_whole - single_log / whole, 0.0)

    # Features of the difference d = |i - j| of the two levels of a pair. The share of pairs with
    # the difference d is difference[d] / pairs.
    diff_avg = contrast = inv = inv_n = idm = idm_n = inv_var = diff_log = 0.0
    for d in range(high - low + 1):
        c = difference[d]
        if c > 0:
            square = float(d * d)
            share = d / n_levels
            diff_avg += c * d
            contrast += c * square
            inv += c / (1.0 + d)
            inv_n += c / (1.0 + share)
            idm += c / (1.0 + square)
            idm_n += c / (1.0 + share * share)
            if d > 0:
                inv_var += c / square
            diff_log += _x_log_x(c, table)
    diff_avg = diff_avg / pairs
    contrast = contrast / pairs

    # Features of the sum i + j of the two levels of a pair. Levels i and j are counted from 1, and
    # s = i + j - 2 is the sum of the levels counted from 0. The cluster features are the moments of
    # i + j - 2 mu, where mu is the mean level.
    tendency = shade = prominence = sum_log = 0.0
    for s in range(2 * low, 2 * high + 1):
        c = total[s]
        if c > 0:
            e = s + 2.0 - 2.0 * mean
            tendency += c * e * e
            shade += c * e * e * e
            prominence += c * e * e * e * e
            sum_log += _x_log_x(c, table)
    tendency = tendency / pairs
    shade = shade / pairs
    prominence = prominence / pairs

    # Variance of a level i, and covariance of the two levels i and j of a pair. They follow from
    # the moments of i + j (tendency) and of i - j (contrast).
    variance = (tendency + contrast) / 4.0
    covariance = (tendency - contrast) / 4.0
    constant = low == high  # the region has one level: all entropies are exactly 0
    h_joint = 0.0 if constant else max(log_whole - joint_log / whole, 0.0)
    h_difference = 0.0 if constant else max(log_pairs - diff_log / pairs, 0.0)
    h_sum = 0.0 if constant else max(log_pairs - sum_log / pairs, 0.0)
    out.joint_maximum += joint_max / whole
    out.joint_average += mean
    out.joint_variance += variance
    out.joint_entropy += h_joint
    out.difference_average += diff_avg
    out.difference_variance += max(contrast - diff_avg * diff_avg, 0.0)
    out.difference_entropy += h_difference
    out.sum_average += 2.0 * mean
    out.sum_variance += tendency
    out.sum_entropy += h_sum
    out.energy += squares / (whole * whole)
    out.contrast += contrast
    out.dissimilarity += diff_avg
    out.inverse_difference += inv / pairs
    out.inverse_difference_normalised += inv_n / pairs
    out.inverse_difference_moment += idm / pairs
    out.inverse_difference_moment_normalised += idm_n / pairs
    out.inverse_variance += inv_var / pairs
    out.correlation += 1.0 if constant else covariance / variance
    out.autocorrelation += covariance + mean * mean
    out.cluster_tendency += tendency
    out.cluster_shade += shade
    out.cluster_prominence += prominence
    # Haralick's two cross entropies HXY1 and HXY2 both equal twice the entropy of single levels,
    # because the co-occurrence matrix is symmetric.
    if not constant:
        out.information_correlation_1 += (h_joint - 2.0 * h_single) / h_single
        out.information_correlation_2 += math.sqrt(
            max(1.0 - math.exp(-2.0 * (2.0 * h_single - h_joint)), 0.0)
        )


@njit(cache=True, nogil=True)
def _row_bits(n_levels: int) -> int:
    """Return the number of bits that a column takes in the number of a cell.

    The cell of the joint matrix in row i and column j, each 0 to ``n_levels``, has the number
    ``(i << bits) | j``.
    """
    # The length of a row of the matrix is raised to a power of two. The number of a cell can then
    # be split into row and column by shift and mask, which is faster than division.
    bits = 1
    while (1 << bits) <= n_levels:
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def _add_matrix_features(counts: Counts, occupied: int, bits: int, n_levels: int, out: Any) -> int:
    """Add the features of one co-occurrence matrix to ``out``, empty the counts, and return 1.

    If the matrix has no pair of voxels, nothing is added, and the result is 0.

    ``counts`` are the six arrays of :data:`Counts`; ``occupied`` is the number of cells of the
    matrix that have counts. The number of a cell is its row, shifted left by ``bits``, plus its
    column.
    """
    # Only cells with counts are visited. In a small region with 30 pairs of voxels, for example,
    # most cells of a matrix of 32 x 32 are empty.
    joint, cells, single, difference, total, table = counts
    low = n_levels
    # 0, in the integer type of ``occupied``; for a literal 0, numba would compile _add_features()
    # twice
    high = largest = pairs = 0 * occupied
    squares = joint_log = 0.0
    for place in range(occupied):
        cell = cells[place]
        count = int(joint[cell])
        # Each cell of the matrix is emptied when it has been read. To clear the whole matrix would
        # take most of the time.
        joint[cell] = 0
        # Rows and columns of the matrix begin with level 0, which stands for voxels outside the
        # region. Here the lowest level inside the region is numbered 0, and outside is -1.
        level_i = (cell >> bits) - 1
        level_j = (cell & ((1 << bits) - 1)) - 1
        # A count of 0 means that the cell was counted before, with the cell on the other side of
        # the diagonal.
        if level_i < 0 or level_j < 0 or count == 0:
            continue
        low = min(low, level_i, level_j)
        high = max(high, level_i, level_j)
        if level_i == level_j:
            # The pair counts in both directions. Both fall into this one cell of the diagonal.
            pairs += count
            single[level_i] += 2 * count
            difference[0] += count
            total[2 * level_i] += count
            count *= 2
            squares += float(count) * count
            joint_log += _x_log_x(count, table)
        else:
            # The cells (i, j) and (j, i) are counted together, because the matrix is symmetric.
            mirror = ((level_j + 1) << bits) | (level_i + 1)
            count += joint[mirror]
            joint[mirror] = 0
            pairs += count
            single[level_i] += count
            single[level_j] += count
            difference[abs(level_j - level_i)] += count
            total[level_i + level_j] += count
            squares += 2.0 * count * count
            joint_log += 2.0 * _x_log_x(count, table)
        largest = max(largest, count)
    if pairs == 0:
        return 0
    _add_features((largest, squares, joint_log), counts, pairs, n_levels, (low, high), out)
    # Only levels between the lowest and the highest of this matrix have counts.
    single[low : high + 1] = 0
    difference[: high - low + 1] = 0
    total[2 * low : 2 * high + 1] = 0
    return 1


@njit(cache=True, nogil=True)
def _features_of_regions(
    levels: np.ndarray,
    n_levels: np.ndarray,
    index: np.ndarray,
    start: np.ndarray,
    shape: np.ndarray,
    offsets: np.ndarray,
    distance: int,
    by_slice: bool,
    by_direction: bool,
    counts: Counts,
    out: np.ndarray,
    n_matrices: np.ndarray,
) -> None:
    """Add the features of every region to ``out``, and the numbers of its matrices to
    ``n_matrices``.

    ``index``, ``start`` and ``shape`` are those of :class:`RegionVoxels`. ``levels`` has the grey
    level of each voxel of ``index``, and ``offsets`` the steps dz, dy, dx from a voxel to the
    neighbours at ``distance``. ``by_slice`` and ``by_direction`` tell whether each slice, and each
    direction, has its own matrix. ``counts`` are arrays to count in (:data:`Counts`).
    """
    plane_size = shape[1] * shape[2]
    row_length = shape[2]
    for region in range(len(start) - 1):
        first_voxel = start[region]
        end = start[region + 1]
        if first_voxel == end:  # an empty region has no box
            continue
        # Voxels are in ascending order, so that the first and the last one bound z.
        low_z = index[first_voxel] // plane_size
        high_z = index[end - 1] // plane_size
        low_y = shape[1]
        high_y = 0
        low_x = shape[2]
        high_x = 0
        for voxel in range(first_voxel, end):
            y = index[voxel] % plane_size // row_length
            x = index[voxel] % row_length
            low_y = min(low_y, y)
            high_y = max(high_y, y)
            low_x = min(low_x, x)
            high_x = max(high_x, x)
        # The levels of the region are copied into a box with a border of level 0. No step from a
        # voxel to its neighbour can then lead out of the box, so that no step has to be checked.
        ny = high_y - low_y + 1 + 2 * distance
        nx = high_x - low_x + 1 + 2 * distance
        box = np.zeros((high_z - low_z + 1 + 2 * distance) * ny * nx, np.int64)
        places = np.empty(end - first_voxel, np.int64)
        for voxel in range(first_voxel, end):
            z = index[voxel] // plane_size
            y = index[voxel] % plane_size // row_length
            x = index[voxel] % row_length
            row = (z - low_z + distance) * ny + (y - low_y + distance)
            place_in_box = row * nx + (x - low_x + distance)
            places[voxel - first_voxel] = place_in_box
            box[place_in_box] = levels[voxel]
        # A step to a neighbour, as a difference of two places in the flat box.
        steps = (offsets[:, 0] * ny + offsets[:, 1]) * nx + offsets[:, 2]
        group_start = 0
        while group_start < end - first_voxel:
            # A group of voxels that are counted together: those of one slice, or all.
            group_end = end - first_voxel
            if by_slice:
                group_end = group_start
                z_slice = places[group_start] // (ny * nx)
                while group_end < end - first_voxel and places[group_end] // (ny * nx) == z_slice:
                    group_end += 1
            group = places[group_start:group_end]
            n_matrices[region] += _features_of_voxels(
                box, group, steps, by_direction, n_levels[region], counts, out[region]
            )
            group_start = group_end


@njit(cache=True, nogil=True)
def _features_of_voxels(
    box: np.ndarray,
    places: np.ndarray,
    steps: np.ndarray,
    by_direction: bool,
    n_levels: int,
    counts: Counts,
    out: Any,
) -> int:
    """Add the features of one slice of a region, or of all its voxels, to ``out``.

    Return the number of co-occurrence matrices that have at least one pair of voxels.

    ``box`` is a flat box with the grey levels of the region, 0 outside. ``places`` says where in
    the box the voxels lie, and ``steps`` how far from a voxel each of its neighbours lies.
    ``by_direction`` tells whether each step has its own matrix. ``counts`` are the arrays to count
    in (:data:`Counts`), empty before and after.
    """
    joint = counts[0]
    cells = counts[1]
    bits = _row_bits(n_levels)
    matrices = 0
    # 0, in the integer type of ``n_levels``. For a literal 0, numba would compile
    # _add_matrix_features() twice.
    occupied = 0 * n_levels
    for number, step in enumerate(steps):
        for voxel in places:
            cell = (box[voxel] << bits) | box[voxel + step]
            cells[occupied] = cell
            # The number of a cell of the matrix is written to ``cells`` for every pair, but
            # ``occupied`` moves on only if the cell was empty. An ``if`` would be slower, because
            # the processor would often guess its result wrong.
            occupied += joint[cell] == 0
            joint[cell] += 1
        if by_direction or number == len(steps) - 1:
            matrices += _add_matrix_features(counts, occupied, bits, n_levels, out)
            occupied = 0
    return matrices
