"""Compiled counting of grey-level pairs, and the features of one co-occurrence matrix.

Pairs of voxels at one distance along a direction are counted once and read as a symmetric matrix.
Three features need the matrix itself (joint maximum, energy, joint entropy); the others follow
from the counts of single levels, of level differences and of level sums, so the matrix is visited
only where it is occupied. The sum of c log2 c over integer counts comes from a table: no logarithm
is taken in the loop.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_TABLE = 4096


def entropy_table() -> np.ndarray:
    """Return c log2 c for the counts c = 0, 1, ..., 4095."""
    counts = np.arange(_TABLE, dtype=float)
    counts[0] = 1.0
    table: np.ndarray = np.arange(_TABLE) * np.log2(counts)
    return table


@njit(cache=True, nogil=True)
def x_log_x(count: int, table: np.ndarray) -> float:
    """Return the count times its binary logarithm."""
    if count < len(table):
        found: float = table[count]
        return found
    return float(count * math.log2(count))


@njit(cache=True, nogil=True)
def add_features(
    cells: tuple[int, float, float],
    levels: tuple[np.ndarray, np.ndarray, np.ndarray],
    pairs: int,
    n_levels: int,
    extremes: tuple[int, int],
    table: np.ndarray,
    out: Any,
) -> None:
    """Add the features of one symmetric matrix to the fields of ``out``.

    Parameters
    ----------
    cells : (int, float, float)
        Largest cell, sum of squared cells, sum of c log2 c over cells of the symmetric matrix.
    levels : tuple of 3 ndarrays of int64
        Both voxels of every pair counted by level; pairs counted by the difference of their
        levels, and by the sum less 2.
    pairs : int
        Number of pairs, > 0; the symmetric matrix sums to twice that.
    n_levels : int
        Grey levels of the region.
    extremes : (int, int)
        Lowest and highest level (from 0) that occurs.
    out : record of :data:`cad.features.haralick.RECORD`
        Sums over matrices.
    """
    # Sums run over counts, not probabilities, and are divided once at the end: integers are exact
    # and c log c comes from the table.
    joint_max, squares, joint_log = cells
    single, difference, total = levels
    low, high = extremes
    whole = 2.0 * pairs
    log_pairs = math.log2(pairs)
    log_whole = log_pairs + 1.0
    mean = 0.0
    single_log = 0.0
    for g in range(low, high + 1):
        c = single[g]
        if c > 0:
            mean += c * (g + 1.0)
            single_log += x_log_x(c, table)
    mean /= whole
    h_single = max(log_whole - single_log / whole, 0.0)

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
            diff_log += x_log_x(c, table)
    diff_avg, contrast = diff_avg / pairs, contrast / pairs

    tendency = shade = prominence = sum_log = 0.0
    for s in range(2 * low, 2 * high + 1):
        c = total[s]
        if c > 0:
            e = s + 2.0 - 2.0 * mean
            tendency += c * e * e
            shade += c * e * e * e
            prominence += c * e * e * e * e
            sum_log += x_log_x(c, table)
    tendency, shade, prominence = tendency / pairs, shade / pairs, prominence / pairs

    # sum (i - mu)^2 p = (tendency + contrast) / 4 and cov(i, j) = (tendency - contrast) / 4.
    variance = (tendency + contrast) / 4.0
    covariance = (tendency - contrast) / 4.0
    constant = low == high  # one cell: entropies are 0 without rounding
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
    # The matrix is symmetric: both cross entropies HXY1 and HXY2 equal twice the single entropy.
    if not constant:
        out.information_correlation_1 += (h_joint - 2.0 * h_single) / h_single
        out.information_correlation_2 += math.sqrt(
            max(1.0 - math.exp(-2.0 * (2.0 * h_single - h_joint)), 0.0)
        )


# The joint matrix (one row and column more than levels: 0 is outside), the occupied cells' numbers,
# and counts of single levels, of level differences and of level sums.
Counts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@njit(cache=True, nogil=True)
def row_bits(n_levels: int) -> int:
    """Return the bits of a column: cell (i, j) of the joint matrix is number i << bits | j."""
    # A power of two, so that a cell is split by shift and mask instead of by division.
    bits = 1
    while (1 << bits) <= n_levels:
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def new_counts(n_levels: int) -> Counts:
    """Return empty counts for up to ``n_levels`` levels."""
    size = (n_levels + 1) << row_bits(n_levels)
    return (
        np.zeros(size, np.int32),
        np.zeros(size + 1, np.int32),
        np.zeros(n_levels, np.int64),
        np.zeros(n_levels, np.int64),
        np.zeros(2 * n_levels, np.int64),
    )


@njit(cache=True, nogil=True)
def finish(
    counts: Counts, occupied: int, bits: int, n_levels: int, table: np.ndarray, out: Any
) -> int:
    """Add one matrix's features to ``out``, empty the counts, return 1; 0 without any pair."""
    # Only occupied cells are visited: 30 pairs in a matrix of 32 x 32 leave most of it empty.
    joint, cells, single, difference, total = counts
    low, high = n_levels, 0
    largest = pairs = 0 * occupied  # literals would have add_features() compiled twice
    squares = joint_log = 0.0
    for k in range(occupied):
        cell = cells[k]
        c = int(joint[cell])
        joint[cell] = 0  # emptied on the way: clearing the whole matrix would dominate
        i = (cell >> bits) - 1
        j = (cell & ((1 << bits) - 1)) - 1
        # Level 0 is outside the region; a count of 0 was taken up by its mirror cell before.
        if i < 0 or j < 0 or c == 0:
            continue
        low, high = min(low, i, j), max(high, i, j)
        if i == j:
            pairs += c
            single[i] += 2 * c
            difference[0] += c
            total[2 * i] += c
            c *= 2
            squares += float(c) * c
            joint_log += x_log_x(c, table)
        else:
            # (i, j) and (j, i) are one cell of the symmetric matrix.
            mirror = ((j + 1) << bits) | (i + 1)
            c += joint[mirror]
            joint[mirror] = 0
            pairs += c
            single[i] += c
            single[j] += c
            difference[abs(j - i)] += c
            total[i + j] += c
            squares += 2.0 * c * c
            joint_log += 2.0 * x_log_x(c, table)
        largest = max(largest, c)
    if pairs == 0:
        return 0
    add_features(
        (largest, squares, joint_log),
        (single, difference, total),
        pairs,
        n_levels,
        (low, high),
        table,
        out,
    )
    single[low : high + 1] = 0
    difference[: high - low + 1] = 0
    total[2 * low : 2 * high + 1] = 0
    return 1
