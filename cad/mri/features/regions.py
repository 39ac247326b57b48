"""Store the voxels of many regions in one array, over which the compiled functions loop.

A region of interest, a perturbed copy of one, and a sphere around a voxel are all stored alike: as
a list of voxels, each with the share that the region fills. Thousands of overlapping regions take
no more memory than the numbers of their voxels.

The border of a region that was drawn on T2 seldom coincides with borders of voxels of another grid.
First-order statistics weigh every voxel by its share, so that the region keeps its volume. Features
that count voxels or pairs of voxels (extremes, histogram, co-occurrence) use the region's ``core``.
The core has the voxels with the largest shares; their number is about the region's volume in
voxels. Voxels of equal shares are either all in the core or all outside. So the core depends
neither on the order in which voxels are stored nor on whether the image is mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numba import njit

from cad.base.settings import TextureSettings
from cad.mri.imaging.geometry import MIN_VOXELS

# The share of a voxel that a region fills is rounded to multiples of 1 / _PARTS before shares are
# compared. Otherwise the last digits of a file's geometry could choose between voxels that the
# region fills alike. No common share (halves, thirds and fifths) lies where this rounding changes
# from one multiple to the next.
_PARTS = 64


@dataclass(frozen=True, eq=False)
class RegionVoxels:
    """Hold the voxels of several regions of one grid.

    Parameters
    ----------
    index : ndarray of int64, shape (n_voxels,)
        Flat voxel numbers (C order of ``shape``), ascending inside each region.
    start : ndarray of int64, shape (n_regions + 1,)
        Region r owns ``index[start[r]:start[r + 1]]``.
    shape : tuple of 3 ints
        Number of voxels of the grid along z, y, x.
    weight : ndarray, shape (n_voxels,), or None
        Share (0 to 1) of each voxel that its region fills; None where all voxels are whole.
    """

    index: np.ndarray
    start: np.ndarray
    shape: tuple[int, int, int]
    weight: np.ndarray | None = None

    @classmethod
    def from_masks(cls, masks: Sequence[np.ndarray]) -> RegionVoxels:
        """Make one region from each boolean array; all have one shape (z, y, x), at least one."""
        indices = [np.flatnonzero(mask) for mask in masks]
        start = np.zeros(len(indices) + 1, np.int64)
        np.cumsum([len(index) for index in indices], out=start[1:])
        return cls(np.concatenate(indices).astype(np.int64), start, masks[0].shape)

    @classmethod
    def from_shares(cls, shares: Sequence[np.ndarray]) -> RegionVoxels:
        """Make one region from each array of shares (0 to 1); all have one shape (z, y, x)."""
        touched = cls.from_masks([share > 0 for share in shares])
        share_of_voxel = np.concatenate([share[share > 0] for share in shares]).astype(float)
        # Without weights every voxel counts whole.
        weight = None if (share_of_voxel == 1).all() else share_of_voxel
        return cls(touched.index, touched.start, touched.shape, weight)

    @classmethod
    def spheres(
        cls,
        centres: np.ndarray,
        shape: tuple[int, int, int],
        spacing: tuple[float, float, float],
        radius: float,
    ) -> RegionVoxels:
        """Make a spherical region around each point: voxels whose centres lie within the radius.

        Parameters
        ----------
        centres : ndarray, shape (n, 3)
            Centres of the spheres: voxel indices x, y, z, which need not be whole numbers.
        shape : tuple of 3 ints
            Number of voxels of the grid along z, y, x.
        spacing : tuple of 3 floats
            Voxel size in mm along x, y, z.
        radius : float
            Radius of the spheres, mm.

        Returns
        -------
        RegionVoxels
            One region for each centre, in the order of ``centres``, without weights. A sphere that
            crosses the edge of the grid has only its voxels inside, and may be empty.
        """
        points = np.ascontiguousarray(centres, float)
        size = np.array(shape, np.int64)
        voxel_size = np.array(spacing, float)
        start = np.zeros(len(points) + 1, np.int64)
        # The first call only counts the voxels of each sphere; their sums are the places where
        # spheres begin. The second call fills an array that has room for just these voxels.
        _sphere_voxels(points, size, voxel_size, radius, start, np.zeros(0, np.int64))
        np.cumsum(start, out=start)
        index = np.empty(start[-1], np.int64)
        _sphere_voxels(points, size, voxel_size, radius, start, index)
        return cls(index, start, shape)

    @property
    def count(self) -> int:
        """Return the number of regions."""
        return len(self.start) - 1

    @cached_property
    def is_core(self) -> np.ndarray:
        """Tell which voxels belong to the core of their region, boolean, shape (n_voxels,).

        The core has the voxels with the largest shares: about as many as the sum of the shares, and
        at least ``MIN_VOXELS``. Voxels of equal shares are either all in the core or all outside.
        """
        if self.weight is None:
            return np.ones(len(self.index), bool)
        in_core = np.zeros(len(self.index), bool)
        for first, last in pairwise(self.start):
            share = self.weight[first:last]
            if not len(share):  # an empty region has no levels to choose from
                continue
            rounded = np.round(share * _PARTS)
            volume = float(share.sum(dtype=float))
            share_level, n_at_level = np.unique(rounded, return_counts=True)
            # For each rounded share, the number of voxels with at least this share: a core that
            # ends at this share would have so many.
            n_from_level = np.cumsum(n_at_level[::-1])[::-1]
            large_enough = n_from_level >= min(MIN_VOXELS, len(share))
            # The number of voxels in the core should be close to ``volume``, the region's volume in
            # voxels. If a core may have half a voxel too many or half a voxel too few, the larger
            # core is taken. The term 1e-3 makes this so, whatever the last digit of ``volume`` is.
            distance_from_volume = np.where(
                large_enough, np.abs(n_from_level - volume - 1e-3), np.inf
            )
            in_core[first:last] = rounded >= share_level[distance_from_volume.argmin()]
        return in_core

    def core(self) -> RegionVoxels:
        """Return the regions reduced to their cores, in which every voxel counts as a whole.

        The core of a region has the voxels of which the region fills the largest shares
        (:meth:`is_core`).
        """
        if self.weight is None:
            return self
        in_core = self.is_core
        # The voxels of each core follow those of the cores before it.
        n_core_before = np.concatenate([[0], np.cumsum(in_core)])
        return RegionVoxels(self.index[in_core], n_core_before[self.start], self.shape)

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of voxels of each region, shape (n_regions,)."""
        return np.diff(self.start)

    def share_of(self, usable: np.ndarray) -> list[float]:
        """Return, for each region, the share (0 to 1) of its volume in ``usable`` voxels.

        ``usable`` is boolean, shape (n_voxels,). The share of an empty region is 0.
        """
        weight = np.ones(len(usable)) if self.weight is None else self.weight
        shares = []
        for first, last in pairwise(self.start):
            total = float(weight[first:last].sum())
            counted = weight[first:last][usable[first:last]]
            shares.append(float(counted.sum()) / total if total else 0.0)
        return shares

    def voxels(self) -> np.ndarray:
        """Return the union of all regions, boolean, shape (z, y, x)."""
        inside = np.zeros(int(np.prod(self.shape)), bool)
        inside[self.index] = True
        return inside.reshape(self.shape)

    def values(self, image: np.ndarray) -> np.ndarray:
        """Return an image's (z, y, x) values in all regions' voxels, float64, shape (n_voxels,)."""
        return np.asarray(image.reshape(-1)[self.index].astype(float))


@dataclass(frozen=True, eq=False)
class Sample:
    """Hold the grey levels of several regions, of which histogram and co-occurrence are computed.

    Only the core of a region counts: the voxels that the region fills most.

    Parameters
    ----------
    values : ndarray, shape (n_values,)
        Finite values, one region after the other.
    start : ndarray of int64, shape (n_regions + 1,)
        Where each region begins in ``values``.
    is_finite : ndarray of bool, shape (n_voxels,)
        True for the voxels of ``core`` that have a value and are not left out by the settings.
    core : RegionVoxels
        Voxels of the regions' cores, each counted whole.
    levels : ndarray of int64, shape (n_values,)
        Grey level of every value, from 1.
    n_levels : ndarray of int64, shape (n_regions,)
        Number of grey levels of each region.
    texture : TextureSettings
        How values were cut into levels, and how pairs are counted.
    """

    values: np.ndarray
    start: np.ndarray
    is_finite: np.ndarray
    core: RegionVoxels
    levels: np.ndarray
    n_levels: np.ndarray
    texture: TextureSettings


def keep_finite(values: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leave NaN and infinite values out of regions' values.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Values of all regions, one region after the other.
    start : ndarray of int, shape (n_regions + 1,)
        Where each region begins in ``values``.

    Returns
    -------
    values : ndarray
        The finite values.
    start : ndarray of int
        Where each region begins in the finite values.
    kept : ndarray of bool, shape (n,)
        True for the values that were kept.

    Examples
    --------
    >>> import numpy as np
    >>> values, start, is_finite = keep_finite(np.array([1.0, np.nan, 3.0]), np.array([0, 2, 3]))
    >>> values.tolist(), start.tolist()
    ([1.0, 3.0], [0, 1, 2])
    """
    is_finite = np.isfinite(values)
    if is_finite.all():
        return values, start, is_finite
    n_finite_before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(is_finite, out=n_finite_before[1:])
    return values[is_finite], n_finite_before[start], is_finite


@njit(cache=True)
def _sphere_voxels(
    points: np.ndarray,
    size: np.ndarray,
    spacing: np.ndarray,
    radius: float,
    start: np.ndarray,
    index: np.ndarray,
) -> None:
    """Count the voxels of each sphere, or write their flat numbers into ``index``.

    The function is called twice. The first call has an empty ``index``, and counts the voxels of
    each sphere into ``start[1:]``. In the second call ``start`` says where each sphere begins in
    ``index``.

    ``points`` are the centres as voxel indices x, y, z, and ``spacing`` the voxel size x, y, z
    (mm). ``size`` is the number of voxels of the grid along z, y, x; ``radius`` is in mm.
    """
    fill = len(index) > 0
    # A voxel whose centre lies on the surface of the sphere belongs to it, whatever its distance is
    # rounded to.
    squared_radius = radius * radius * (1 + 1e-9)
    low = np.empty(3, np.int64)
    high = np.empty(3, np.int64)
    for p in range(len(points)):
        for axis in range(3):
            # Only voxels in the box around the sphere are tested. This box is cut off at the border
            # of the grid. The term 1e-9 keeps voxels whose centres lie on the box's faces.
            reach = radius / spacing[axis]
            n_along_axis = size[2 - axis]
            low[axis] = max(0, int(np.ceil(points[p, axis] - reach - 1e-9)))
            high[axis] = min(n_along_axis - 1, int(np.floor(points[p, axis] + reach + 1e-9)))
        n_voxels = start[p] if fill else 0
        for z in range(low[2], high[2] + 1):
            # A voxel is in the sphere of radius r if dz^2 + dy^2 + dx^2 <= r^2, for its distances
            # from the centre along the axes. Each square is computed in the outermost loop in which
            # it is constant.
            dz_squared = ((z - points[p, 2]) * spacing[2]) ** 2
            for y in range(low[1], high[1] + 1):
                dzy_squared = dz_squared + ((y - points[p, 1]) * spacing[1]) ** 2
                for x in range(low[0], high[0] + 1):
                    if dzy_squared + ((x - points[p, 0]) * spacing[0]) ** 2 <= squared_radius:
                        if fill:
                            index[n_voxels] = (z * size[1] + y) * size[2] + x
                        n_voxels += 1
        if not fill:
            start[p + 1] = n_voxels
