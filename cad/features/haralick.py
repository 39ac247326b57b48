"""The 25 co-occurrence features of IBSI, for any number of regions, in any of six aggregations.

Counting and the features of one matrix are in :mod:`cad.features.cooccurrence`.

A constant region has a single cell: entropies, contrast and all measures of spread are 0, joint
maximum, energy and the inverse differences 1, inverse variance 0, correlation 1, both measures of
information correlation 0.

At distance d the 13 (in a slice 4) unit directions are multiplied by d (IBSI). Other tools take all
offsets of Chebyshev norm d instead; at distance 1 both are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from cad.errors import CadError
from cad.features.cooccurrence import Counts, entropy_table, finish, new_counts, row_bits
from cad.features.regions import RegionVoxels
from cad.terms.features import HARALICK

RECORD = np.dtype([(name, float) for name in HARALICK])
"""What :func:`haralick_features` gives of a region: a field for each feature."""

# name -> (directions leave the slice, one matrix per slice, one matrix per direction)
AGGREGATIONS: dict[str, tuple[bool, bool, bool]] = {
    "2D_avg": (False, True, True),
    "2D_comb": (False, True, False),
    "2_5D_avg": (False, False, True),
    "2_5D_comb": (False, False, False),
    "3D_avg": (True, False, True),
    "3D_comb": (True, False, False),
}
"""IBSI's ways to merge matrices over slices and directions, or to average features over them."""


def directions(three_d: bool, distance: int = 1) -> np.ndarray:
    """Return the offsets (dz, dy, dx) of which no two are opposite: 13, or 4 inside a slice."""
    found = [
        (z, y, x)
        for z in ((0, 1) if three_d else (0,))
        for y in (-1, 0, 1)
        for x in (-1, 0, 1)
        if (z, y, x) > (0, 0, 0)
    ]
    return np.array(found, np.int64) * distance


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
        Levels of each region; enters the two normalised inverse differences.
    regions : RegionVoxels
        Where the voxels are.
    distance : int
        Voxels (Chebyshev).
    aggregation : str
        One of ``AGGREGATIONS``.

    Returns
    -------
    ndarray of ``RECORD``, shape (n_regions,)
        A field for each of ``HARALICK``; all NaN for a region without a pair of neighbours.

    Raises
    ------
    CadError
        For an unknown aggregation or a distance below 1.
    """
    if aggregation not in AGGREGATIONS:
        raise CadError(f"unknown aggregation {aggregation!r}; known are {', '.join(AGGREGATIONS)}")
    if distance < 1:
        raise CadError(f"the co-occurrence distance is at least 1 voxel, found {distance}")
    three_d, by_slice, by_direction = AGGREGATIONS[aggregation]
    out = np.zeros(regions.count, RECORD)
    matrices = np.zeros(regions.count)
    _regions(
        levels,
        n_levels,
        regions.index,
        regions.start,
        np.array(regions.shape, np.int64),
        directions(three_d, distance),
        distance,
        by_slice,
        by_direction,
        entropy_table(),
        out,
        matrices,
    )
    # out holds sums over matrices; a region without a pair has none, and 0 / 0 is its NaN.
    values = out.view(float).reshape(len(out), -1)
    with np.errstate(invalid="ignore"):
        values /= matrices[:, None]
    return out


@njit(cache=True, nogil=True)
def _regions(
    levels: np.ndarray,
    n_levels: np.ndarray,
    index: np.ndarray,
    start: np.ndarray,
    shape: np.ndarray,
    offsets: np.ndarray,
    distance: int,
    by_slice: bool,
    by_direction: bool,
    table: np.ndarray,
    out: np.ndarray,
    matrices: np.ndarray,
) -> None:
    most = 1 + 0 * distance  # a literal's type would have everything below compiled twice
    for n in n_levels:
        most = max(most, n)
    counts = new_counts(most)  # one set for all regions, emptied by finish()
    plane, row = shape[1] * shape[2], shape[2]
    for r in range(len(start) - 1):
        a, b = start[r], start[r + 1]
        if a == b:
            continue
        z0, z1 = index[a] // plane, index[b - 1] // plane
        y0, y1, x0, x1 = shape[1], 0, shape[2], 0
        for i in range(a, b):
            y, x = index[i] % plane // row, index[i] % row
            y0, y1, x0, x1 = min(y0, y), max(y1, y), min(x0, x), max(x1, x)
        # The region's own box with a border of level 0, so that no neighbour needs a check.
        ny, nx = y1 - y0 + 1 + 2 * distance, x1 - x0 + 1 + 2 * distance
        box = np.zeros((z1 - z0 + 1 + 2 * distance) * ny * nx, np.int64)
        place = np.empty(b - a, np.int64)
        for i in range(a, b):
            z, y, x = index[i] // plane, index[i] % plane // row, index[i] % row
            at = ((z - z0 + distance) * ny + y - y0 + distance) * nx + x - x0 + distance
            place[i - a] = at
            box[at] = levels[i]
        first = 0
        while first < b - a:
            last = b - a
            if by_slice:
                last = first
                slab = place[first] // (ny * nx)
                while last < b - a and place[last] // (ny * nx) == slab:
                    last += 1
            matrices[r] += _group(
                box,
                place[first:last],
                ny,
                nx,
                offsets,
                by_direction,
                n_levels[r],
                counts,
                table,
                out[r],
            )
            first = last


@njit(cache=True, nogil=True)
def _group(
    box: np.ndarray,
    place: np.ndarray,
    ny: int,
    nx: int,
    offsets: np.ndarray,
    by_direction: bool,
    n_levels: int,
    counts: Counts,
    table: np.ndarray,
    out: Any,
) -> int:
    """Add the features of one slice (or of all voxels); returns the matrices that had pairs."""
    joint, cells = counts[0], counts[1]
    bits = row_bits(n_levels)
    matrices = 0
    occupied = 0 * nx  # a literal's type would have finish() compiled twice
    for o in range(len(offsets)):
        step = (offsets[o, 0] * ny + offsets[o, 1]) * nx + offsets[o, 2]
        for at in place:
            cell = (box[at] << bits) | box[at + step]
            cells[occupied] = cell
            # Every cell is listed at its first visit; without a branch, which would mispredict.
            occupied += joint[cell] == 0
            joint[cell] += 1
        if by_direction or o == len(offsets) - 1:
            matrices += finish(counts, occupied, bits, n_levels, table, out)
            occupied = 0
    return matrices
