"""Draw regions as readers would outline them on the T2 image.

A reader's outline is shifted, and larger or smaller than the true region. Some outlines are in one
slice only.
"""

from dataclasses import replace

import numpy as np

from cad.evidence.phantom import params
from cad.evidence.phantom.findings import TrueRegion
from cad.evidence.phantom.readers import READERS
from cad.evidence.phantom.scene import View
from cad.evidence.phantom.shapes import Shape, ripples
from cad.mri.imaging.drawn import fill

# An outline that is too small to be measured in one of the images is drawn again, larger by the
# factor _LARGER. There are at most _TIMES attempts, counted from 0. From attempt _TIMES_IN_ONE on,
# an outline that was to be in one slice only is drawn in all slices of the region.
_LARGER = 1.08
_TIMES = 16
_TIMES_IN_ONE = 6


def draw_outlines(
    rng: np.random.Generator, views: list[View], regions: list[TrueRegion], gland: np.ndarray
) -> dict[str, np.ndarray]:
    """Draw every reader's label map of a patient's regions.

    Parameters
    ----------
    rng : Generator
        Source of the random draws; every region takes the same number of draws.
    views : list of View
        The view of the T2 grid, on which the outlines are drawn, then the views of the other
        images.
    regions : list of TrueRegion
        Labels are 1, 2, ... in this order.
    gland : ndarray of bool, shape of the T2 grid
        Voxels of the gland; no outline goes beyond them.

    Returns
    -------
    dict of str to ndarray of uint8
        By reader id, a label map with the shape of the T2 grid. A voxel gets a region's label where
        the outline fills at least half of the voxel. An outline that would be too small to be
        measured in one of the images is drawn larger; if there is no room for that, the region has
        no label.

    Examples
    --------
    Four readers draw a ball of 5 mm radius in the middle of a small grid:

    >>> from cad.evidence.phantom.protocols import Grid
    >>> from cad.evidence.phantom.scene import Placement, Scene
    >>> ball = Shape("cancer", (0.0, 0.0, 0.0), (5.0, 5.0, 5.0))
    >>> region = TrueRegion(1, "cancer", "PZ", 2, 0.5, 5.0, [ball], params.TISSUES["cancer"])
    >>> frame = Placement(np.zeros(3), np.eye(3))
    >>> scene = Scene([ball], {}, frame, np.zeros((4, 1, 1, 1)), np.zeros(3), np.zeros(5))
    >>> grid = Grid((5, 20, 20), (1.0, 1.0, 3.0))
    >>> view = View(scene, grid, np.zeros(3), np.zeros(3), (1, 2, 2))
    >>> gland = np.ones(grid.shape, bool)
    >>> maps = draw_outlines(np.random.default_rng(0), [view], [region], gland)
    >>> sorted(maps), maps["r1"].shape, int(maps["r1"].max())
    (['r1', 'r2', 'r3', 'r4'], (5, 20, 20), 1)
    """
    t2_view = views[0]
    grids = [view.volume(np.empty(view.grid.shape)) for view in views]
    maps = {reader.reader_id: np.zeros(t2_view.grid.shape, np.uint8) for reader in READERS}
    for label, region in enumerate(regions, start=1):
        # One random draw decides for all readers together whether they outline the region in a
        # single slice.
        in_one_slice = rng.random() < params.ONE_SLICE_SHARE
        for reader in READERS:
            shape = _redrawn(rng, region.shapes[-1], reader.error)
            labels = maps[reader.reader_id]
            for attempt in range(_TIMES):
                larger = _scaled_shape(shape, _LARGER**attempt)
                window, share = _share_of_voxels(t2_view, larger)
                inside = (share >= 0.5) & gland[window] & (labels[window] == 0)
                if in_one_slice and attempt < _TIMES_IN_ONE and inside.any():
                    # Only the slice on which the outline is largest is kept.
                    areas = inside.sum(axis=(1, 2))
                    inside[np.arange(len(areas)) != areas.argmax()] = False
                mask = t2_view.volume(np.zeros(labels.shape, bool))
                mask.array[window] = inside
                if inside.any() and not any(fill(mask, grid).too_little for grid in grids):
                    labels[window][inside] = label
                    break
    return maps


def true_labels(view: View, regions: list[TrueRegion], least: float = 0.5) -> np.ndarray:
    """Return the label map of the true regions, before any reader draws them.

    Parameters
    ----------
    view : View
        The scene on the grid of the map.
    regions : list of TrueRegion
        The regions; labels are 1, 2, ... in this order.
    least : float
        Share of a voxel that a region has to fill.

    Returns
    -------
    ndarray of uint8, shape of the grid
    """
    labels = np.zeros(view.grid.shape, np.uint8)
    for label, region in enumerate(regions, start=1):
        window, share = _share_of_voxels(view, region.shapes[-1])
        labels[window][(share >= least) & (labels[window] == 0)] = label
    return labels


def _redrawn(rng: np.random.Generator, shape: Shape, error: float) -> Shape:
    """Return the shape of a region as a reader draws it, shifted and larger or smaller.

    ``error`` says how far this reader's outlines differ from the regions.
    """
    dx, dy = rng.normal(0, params.OUTLINE_SHIFT_MM * error, 2)
    size = float(np.exp(rng.normal(0, params.OUTLINE_SIZE_SD * error)))
    x, y, z = shape.centre
    scaled = _scaled_shape(shape, size)
    edge = ripples(rng, params.OUTLINE_WAVES * error, size=min(scaled.axes), count=2)
    waves = (*scaled.waves, *edge)
    return replace(scaled, centre=(x + float(dx), y + float(dy), z), waves=waves)


def _scaled_shape(shape: Shape, factor: float) -> Shape:
    """Return a shape with its semi-axes multiplied by a factor."""
    a, b, c = shape.axes
    return replace(shape, axes=(a * factor, b * factor, c * factor))


def _share_of_voxels(view: View, shape: Shape) -> tuple[tuple[slice, slice, slice], np.ndarray]:
    """Return the box of the grid that a shape may touch, and the share of each voxel of this box
    that the shape fills.
    """
    # For each axis, z first: the slice of voxels in the box, and the places of their points.
    reach, reach_z = shape.reach()
    box = []
    lattice = []
    for axis, step, centre, half, count in zip(
        view.seen[::-1],
        view.grid.spacing[::-1],
        shape.centre[::-1],
        (reach_z, reach, reach),
        view.supersample,
        strict=True,
    ):
        first, stop = np.searchsorted(axis, (centre - half - step, centre + half + step))
        box.append(slice(int(first), int(stop)))
        offsets = ((np.arange(count) + 0.5) / count - 0.5) * step
        lattice.append((axis[first:stop, None] + offsets).ravel())
    z, y, x = lattice
    inside = shape.level(x[None, None, :], y[None, :, None], z[:, None, None]) < 1.0

    # Each axis is divided into voxels and points within a voxel; the mean is over the points.
    n_z, n_y, n_x = (voxels.stop - voxels.start for voxels in box)
    points_z, points_y, points_x = view.supersample
    divided = inside.reshape(n_z, points_z, n_y, points_y, n_x, points_x)
    slice_z, slice_y, slice_x = box
    return (slice_z, slice_y, slice_x), divided.mean(axis=(1, 3, 5))
