"""Co-occurrence features in a window that slides over every voxel of a mask.

Grey levels are made once over the mask, so that windows can be compared with each other. A window
is a box of voxels cut at the mask's border: voxels outside do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit

from cad.errors import CadError
from cad.features.cooccurrence import entropy_table, finish, new_counts, row_bits
from cad.features.haralick import RECORD, averaged, check_aggregation, directions
from cad.features.histogram import discretise
from cad.features.measure import aggregation_of
from cad.features.regions import RegionVoxels
from cad.imaging.volume import Volume
from cad.settings import TextureSettings
from cad.terms.features import HARALICK


def haralick_map(
    image: Volume, mask: np.ndarray, texture: TextureSettings, radius: int = 2, jobs: int = 1
) -> dict[str, Volume]:
    """Make maps of the 25 co-occurrence features over a mask.

    Parameters
    ----------
    image : Volume
        Any image; values that are not finite do not count.
    mask : ndarray of bool, shape (z, y, x)
        Where; both the voxels that get a value and those that windows see.
    texture : TextureSettings
        Bins over the mask's range or bin width, distance, dimension, aggregation. A window of
        dimension ``2D`` is one voxel thick.
    radius : int
        Voxels from a window's centre to its border along each axis: 2 is 5 x 5 (x 5).
    jobs : int
        Threads; changes no result.

    Returns
    -------
    dict of str to Volume
        By the names of ``HARALICK``, float32; NaN outside the mask, and where a window holds no
        pair of neighbours.

    Raises
    ------
    CadError
        For an empty mask, a radius below 1, or a bin width that gives too many levels.
    """
    counted = np.isfinite(image.array)
    if texture.range:
        counted &= (image.array >= texture.range[0]) & (image.array <= texture.range[1])
    region = RegionVoxels.from_masks([mask & counted])
    if not len(region.index):
        raise CadError("the mask has no voxel with a value")
    levels, n_levels = discretise(
        region.values(image.array),
        region.start,
        texture.bins,
        texture.bin_width,
        texture.range[0] if texture.range else None,
    )
    found = haralick_windows(
        levels, int(n_levels[0]), region, radius, texture.distance, aggregation_of(texture), jobs
    )
    maps = {}
    for name in HARALICK:
        values = np.full(image.array.size, np.nan, np.float32)
        values[region.index] = found[name]
        maps[name] = image.with_array(values.reshape(image.shape))
    return maps


def haralick_windows(
    levels: np.ndarray,
    n_levels: int,
    region: RegionVoxels,
    radius: int = 2,
    distance: int = 1,
    aggregation: str = "3D_comb",
    jobs: int = 1,
) -> np.ndarray:
    """Return the features of the window around each voxel of one region.

    Parameters
    ----------
    levels : ndarray of int64, shape (n_voxels,)
        Grey levels, 1 to ``n_levels``.
    n_levels : int
        Levels of the whole region.
    region : RegionVoxels
        One region.
    radius, distance : int
        Voxels.
    aggregation : str
        ``2_5D_avg`` or ``2_5D_comb`` (a window in the slice), ``3D_avg`` or ``3D_comb``.
    jobs : int
        Threads.

    Returns
    -------
    ndarray of :data:`cad.features.haralick.RECORD`, shape (n_voxels,)
        All NaN where a window holds no pair.
    """
    three_d, by_slice, by_direction = check_aggregation(aggregation, distance)
    if by_slice:
        raise CadError(
            f"a window in the slice needs no {aggregation!r}",
            hint="use 2_5D_avg or 2_5D_comb, the same for one slice",
        )
    if radius < 1:
        raise CadError(f"the window's radius is at least 1 voxel, found {radius}")
    size = (radius if three_d else 0, radius, radius)
    coords = np.array(np.unravel_index(region.index, region.shape)).T.astype(np.int64)
    low = coords.min(axis=0)
    padded = np.zeros(coords.max(axis=0) - low + 1 + 2 * np.array(size), np.int64)
    at = coords - low + np.array(size)
    padded[tuple(at.T)] = levels
    out = np.zeros(len(levels), RECORD)
    matrices = np.zeros(len(levels))
    offsets = directions(three_d, distance)
    table = entropy_table()
    window = np.array(size, np.int64)

    def work(part: slice) -> None:
        whole = (padded, at[part], window, offsets, by_direction, n_levels, table)
        _windows(*whole, out[part], matrices[part])

    _in_threads(work, len(levels), jobs)
    return averaged(out, matrices)


def _in_threads(work: Callable[[slice], None], count: int, jobs: int) -> None:
    """Do the work on ``count`` rows in as many equal parts as there are jobs."""
    step = -(-count // max(jobs, 1))
    parts = [slice(first, first + step) for first in range(0, count, step)]
    if len(parts) == 1:
        work(parts[0])
    else:
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(work, parts))


@njit(cache=True, nogil=True)
def _windows(
    padded: np.ndarray,
    centres: np.ndarray,
    window: np.ndarray,
    offsets: np.ndarray,
    by_direction: bool,
    n_levels: int,
    table: np.ndarray,
    out: np.ndarray,
    matrices: np.ndarray,
) -> None:
    counts = new_counts(n_levels)
    joint, cells = counts[0], counts[1]
    bits = row_bits(n_levels)
    # A border of level 0 as wide as the window: no voxel needs a check of the bounds.
    flat = padded.reshape(-1)
    ny, nx = padded.shape[1], padded.shape[2]
    for v in range(len(centres)):
        cz, cy, cx = centres[v]
        occupied = 0
        for o in range(len(offsets)):
            dz, dy, dx = offsets[o]
            step = (dz * ny + dy) * nx + dx
            # First voxels of pairs whose second voxel is in the window as well.
            for z in range(cz - window[0] - min(dz, 0), cz + window[0] - max(dz, 0) + 1):
                for y in range(cy - window[1] - min(dy, 0), cy + window[1] - max(dy, 0) + 1):
                    row = (z * ny + y) * nx
                    for x in range(cx - window[2] - min(dx, 0), cx + window[2] - max(dx, 0) + 1):
                        cell = (flat[row + x] << bits) | flat[row + x + step]
                        cells[occupied] = cell
                        occupied += joint[cell] == 0
                        joint[cell] += 1
            if by_direction or o == len(offsets) - 1:
                matrices[v] += finish(counts, occupied, bits, n_levels, table, out[v])
                occupied = 0
