"""Move images and regions to another grid: images by interpolation, regions by occupancy.

A region is a set of mask voxels, each a solid box. The region's occupancy of a voxel on another
grid is the share of this voxel's volume that the boxes fill. The voxel belongs to the region if
this share is at least one half (docs/methods.md 7). If the axes of both grids are parallel, the
share is exact: a product of overlap lengths along the three axes. Otherwise every voxel is sampled
at evenly spaced points, at least six and at most sixteen along each axis. Within these limits, the
points are no farther apart than a third of a mask voxel.
"""

from collections.abc import Iterable

import numpy as np
import SimpleITK as sitk

from cad.base.errors import CadError, located
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import CORNERS, Volume

MIN_VOXELS = 5
"""Least number of voxels of a region that is measured."""
OCCUPANCY = 0.5
"""Least share of a voxel that a region fills, if the voxel belongs to it."""
Box = tuple[slice, slice, slice]
# A share that is below one half by no more than this counts as one half, because it may be rounded.
_ROUNDING = 1e-4
_PARALLEL_TOLERANCE = 1e-3
# A place that lies beyond the border of a grid by no more than this, in voxels, may be rounded.
_BORDER_ROUNDING = 1e-3
_MIN_SAMPLES = 6
_MAX_SAMPLES = 16


def resample_mask(roi_mask: Volume, grid: Volume) -> Volume:
    """Return a mask of those voxels of ``grid`` that are filled to at least one half by a mask.

    Parameters
    ----------
    roi_mask : Volume
        Boolean mask, or any array whose non-zero voxels are inside.
    grid : Volume
        Grid of the result; its values are not read.

    Returns
    -------
    Volume
        Boolean mask on ``grid``.
    """
    inside = roi_mask.array != 0
    if roi_mask.same_grid(grid):
        return grid.with_array(inside)
    share = occupancy(roi_mask.with_array(inside), grid)
    return grid.with_array(share.array >= OCCUPANCY - _ROUNDING)


def occupancy(share: Volume, grid: Volume) -> Volume:
    """Return for every voxel of ``grid`` the share (0 to 1) of the voxel that a region fills.

    Parameters
    ----------
    share : Volume
        The region on its own grid: a boolean mask, or the share (0 to 1) of each voxel that the
        region fills.
    grid : Volume
        Grid of the result; its values are not read.
    """
    filled = np.zeros(grid.shape)
    # Only the part of the mask with the region is looked at.
    bounds = bounding_box(share.array)
    if bounds is None:
        return grid.with_array(filled)
    box = share.array[bounds]
    low, _ = limits(bounds)  # along z, y, x

    # An index (x, y, z) in the cropped mask becomes the index step @ index + start in the grid.
    to_grid = np.linalg.inv(grid.affine) @ share.affine
    step = to_grid[:3, :3]
    start = to_grid[:3, 3] + step @ low[::-1]

    # The window is the part of the grid that the cropped mask can touch.
    outer_corners = CORNERS * np.array(box.shape[::-1]) - 0.5
    corners_in_grid = outer_corners @ step.T + start
    nearest = np.floor(corners_in_grid.min(axis=0) + 0.5)
    furthest = np.ceil(corners_in_grid.max(axis=0) + 0.5)
    window = box_between(nearest[::-1], furthest[::-1], grid.shape)
    first, last = (end[::-1] for end in limits(window))
    if not (last > first).all():  # the region lies outside of the grid
        return grid.with_array(filled)

    # Axes that are parallel, but for rounding, have cosines of -1, 0 and 1.
    cosines = np.asarray(grid.direction).T @ np.asarray(share.direction)
    axes = np.round(cosines)
    start_in_window = start - first
    window_size = last - first
    if np.abs(cosines - axes).max() <= _PARALLEL_TOLERANCE:
        filled[window] = _exact(box, step, start_in_window, axes, window_size)
    else:
        filled[window] = _sampled(box, step, start_in_window, window_size)
    return grid.with_array(filled)


def resample_image(image: Volume, grid: Volume, kind: str = "linear") -> Volume:
    """Return an image on another grid, its values interpolated by splines.

    Parameters
    ----------
    image : Volume
        Image to interpolate.
    grid : Volume
        Grid of the result; its values are not read.
    kind : {"linear", "cubic"}
        Kind of splines.

    Returns
    -------
    Volume
        float32; NaN outside the image.
    """
    source = image.with_array(image.array.astype(np.float32)).to_sitk()
    reference = sitk.Image([int(length) for length in grid.shape[::-1]], sitk.sitkUInt8)
    reference.SetSpacing([float(step) for step in grid.spacing])
    reference.SetOrigin([float(coordinate) for coordinate in grid.origin])
    reference.SetDirection([float(cosine) for cosine in np.asarray(grid.direction).ravel()])
    splines = sitk.sitkBSpline if kind == "cubic" else sitk.sitkLinear
    unmoved = sitk.Transform()
    outside = float("nan")
    out = sitk.Resample(source, reference, unmoved, splines, outside, sitk.sitkFloat32)
    return grid.with_array(sitk.GetArrayFromImage(out))


def on_grid(image: Volume, grid: Volume) -> Volume:
    """Return an image on another grid: unchanged where it lies on that grid, else interpolated.

    Parameters
    ----------
    image : Volume
        The image.
    grid : Volume
        The grid; its values are not read.
    """
    return image if image.same_grid(grid) else resample_image(image, grid)


def bounding_box(mask: np.ndarray, margin: np.ndarray | int = 0) -> Box | None:
    """Return the smallest box that holds all non-zero voxels of a mask; None for an empty one.

    Parameters
    ----------
    mask : ndarray, shape (z, y, x)
        Array of any type.
    margin : ndarray of int, shape (3,), or int
        Voxels along z, y, x to add on each side of the box, up to the border of the array.

    Examples
    --------
    >>> import numpy as np
    >>> mask = np.zeros((3, 4, 5), bool)
    >>> mask[1, 1:3, 2] = True
    >>> bounding_box(mask)
    (slice(1, 2, None), slice(1, 3, None), slice(2, 3, None))
    """
    # For each axis, the indices at which the mask has any voxel
    filled = [np.flatnonzero(mask.any(axis=other_axes)) for other_axes in ((1, 2), (0, 2), (0, 1))]
    if not len(filled[0]):
        return None
    low = np.array([indices[0] for indices in filled]) - margin
    high = np.array([indices[-1] + 1 for indices in filled]) + margin
    return box_between(low, high, mask.shape)


def limits(box: Box) -> tuple[np.ndarray, np.ndarray]:
    """Return where a box begins and ends.

    Parameters
    ----------
    box : tuple of 3 slices
        Along z, y, x.

    Returns
    -------
    first, last : ndarray of int, shape (3,)
        First index along z, y, x, and one past the last index.
    """
    return np.array([side.start for side in box]), np.array([side.stop for side in box])


def box_between(low: np.ndarray, high: np.ndarray, shape: tuple[int, ...]) -> Box:
    """Return the box between two indices, cut at the borders of an array.

    Parameters
    ----------
    low, high : ndarray of int, shape (3,)
        First index (z, y, x), and one past the last.
    shape : tuple of 3 ints
        Shape of the array.

    Examples
    --------
    >>> import numpy as np
    >>> box_between(np.array([-1, 0, 2]), np.array([1, 2, 9]), (4, 4, 4))
    (slice(0, 1, None), slice(0, 2, None), slice(2, 4, None))
    """
    begin = np.maximum(low, 0)
    end = np.minimum(high, shape)
    z, y, x = (slice(int(first), int(last)) for first, last in zip(begin, end, strict=True))
    return z, y, x


def roi_in_grid(study: Study, roi: Roi, grid: Volume) -> Volume:
    """Return the region's mask in another grid of its study.

    Parameters
    ----------
    study : Study
        Its ``roi_map`` holds the region as the integer ``roi.label``.
    roi : Roi
        The region.
    grid : Volume
        Image to be measured; its values are not read.

    Returns
    -------
    Volume
        Boolean, on ``grid``, at least ``MIN_VOXELS`` voxels.

    Raises
    ------
    CadError
        Naming patient and ROI: when the study has no label map, the region is empty, mask and image
        do not overlap, the region leaves the image, or fewer than 5 voxels remain.
    """
    inside = study.mask_of(roi)
    # If few voxels are inside, flatnonzero is faster than numpy's argwhere.
    z, y, x = np.unravel_index(np.flatnonzero(inside.array), inside.shape)
    points = inside.index_to_patient(np.stack([x, y, z], axis=1))
    is_outside = outside_of(grid, points)
    mask = resample_mask(inside, grid)
    count = int(mask.array.sum())
    with located(patient=study.participant_id, roi=roi.roi_id):
        if is_outside.all():
            raise CadError(
                f"the ROI lies outside the image: its centre is at {point(points.mean(axis=0))} "
                f"mm, the image's at {point(grid.centre)} mm (LPS)",
                hint="mask and image must share one frame of reference",
            )
        if is_outside.any():
            raise CadError(
                f"the ROI leaves the image: {int(is_outside.sum())} of its {len(is_outside)} mask "
                "voxels lie outside the field of view",
                hint="shrink the ROI or leave this image out",
            )
        if count < MIN_VOXELS:
            size = " x ".join(f"{step:.3g}" for step in grid.spacing)
            raise CadError(
                f"the ROI has {count} voxels of {size} mm in the measured grid; "
                f"at least {MIN_VOXELS} are needed",
                hint="draw a larger ROI or leave this image out",
            )
    return mask


def outside_of(grid: Volume, points: np.ndarray) -> np.ndarray:
    """Tell for each point whether it lies outside of a grid.

    Parameters
    ----------
    grid : Volume
        The grid; its values are not read.
    points : ndarray, shape (n, 3)
        Points in the patient (x, y, z), mm.

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    A grid of two voxels of 1 mm, whose first voxel lies around the origin:

    >>> import numpy as np
    >>> grid = Volume(np.zeros((1, 1, 2)), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> outside_of(grid, np.array([[1.4, 0.0, 0.0], [1.6, 0.0, 0.0]])).tolist()
    [False, True]
    """
    index = grid.patient_to_index(points)
    last = np.array(grid.shape[::-1]) - 1
    # The first and last voxels reach half a voxel beyond their centres.
    before_first = index < -0.5 - _BORDER_ROUNDING
    behind_last = index > last + 0.5 + _BORDER_ROUNDING
    is_outside: np.ndarray = np.any(before_first | behind_last, axis=1)
    return is_outside


def overlaps(a: Volume, b: Volume) -> bool:
    """Tell whether two grids may have a place in common.

    The result False is certain. True may be wrong if the grids are turned against each other and
    their edges pass each other closely. Only planes across the axes of the grids are tried as
    planes that separate the two grids.

    Parameters
    ----------
    a, b : Volume
        Grids in one frame of reference.

    Returns
    -------
    bool
        False if the grids have no place in common for certain, else True.
    """
    for grid, other in ((a, b), (b, a)):
        corners = grid.patient_to_index(other.outer_corners())
        size = np.array(grid.shape[::-1])
        # Along each axis of the grid: all of the other grid lies before it, or all lies behind it
        is_before = corners.max(axis=0) < -0.5
        is_behind = corners.min(axis=0) > size - 0.5
        if is_before.any() or is_behind.any():
            return False
    return True


def point(xyz: Iterable[float]) -> str:
    """Return a place in mm as text for a message, to a tenth of a mm."""
    return "(" + ", ".join(f"{coordinate:.1f}" for coordinate in xyz) + ")"


def _exact(
    box: np.ndarray, step: np.ndarray, start: np.ndarray, axes: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Return the share of each voxel of a grid, shape (z, y, x), that a mask fills; axes are
    parallel.

    A voxel of the grid and a voxel of the mask share a box. Its volume, relative to the grid's
    voxel, is the product of the overlaps along the three axes. These products are added over the
    voxels of the mask (``box``), one axis after the other. ``step`` and ``start`` give the mask's
    axes and first voxel in voxels of the grid, and ``size`` the grid's shape; ``axes`` has the
    cosines of grid and mask axes.
    """
    # ``order`` has, for each axis of the grid, the number of the mask's axis that is parallel to
    # it. Axes are counted as x, y, z; the axes of an array are z, y, x, so axis k is 2 - k there.
    order = [int(np.argmax(np.abs(axes[grid_axis]))) for grid_axis in range(3)]
    x, y, z = order
    filled = box.astype(float).transpose([2 - z, 2 - y, 2 - x])
    # Positions are measured from the middle of the mask. The axes in files may be parallel only up
    # to 1e-7. With positions from a corner, a mirrored image would then give a slightly different
    # result.
    middle = start + step @ ((np.array(box.shape[::-1]) - 1) / 2)
    for grid_axis in range(3):
        # Where the voxels of the mask begin and end; the mask's axis may run the other way.
        mask_axis = order[grid_axis]
        count = box.shape[2 - mask_axis]
        edges = middle[grid_axis] + step[grid_axis, mask_axis] * (np.arange(count + 1) - count / 2)
        low = np.minimum(edges[:-1], edges[1:])
        high = np.maximum(edges[:-1], edges[1:])
        # The overlap of each voxel of the grid (rows) with each of the mask (columns)
        voxel = np.arange(size[grid_axis])[:, None]
        overlap = np.minimum(high, voxel + 0.5) - np.maximum(low, voxel - 0.5)
        overlap = np.clip(overlap, 0, None)  # voxels that lie apart do not overlap
        # tensordot puts the axis of the grid first; it goes back to its place.
        array_axis = 2 - grid_axis
        filled = np.tensordot(overlap, filled, axes=(1, array_axis))
        filled = np.moveaxis(filled, 0, array_axis)
    return filled


def _sampled(box: np.ndarray, step: np.ndarray, start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return which share of every voxel of a grid a mask fills, shape (z, y, x).

    The share is that of evenly spaced points in the voxel that lie in the mask ``box``. ``step``
    and ``start`` give the mask's axes and first voxel in voxels of the grid, and ``size`` the
    grid's shape.
    """
    to_mask = np.linalg.inv(step)
    # In each voxel of the grid, neighbouring points are at most a third of a mask voxel apart,
    # unless this needs more than _MAX_SAMPLES points along an axis.
    mask_voxels = np.abs(to_mask).max(axis=0)  # across a voxel of the grid, along each axis
    n_samples = np.clip(np.ceil(3 * mask_voxels), _MIN_SAMPLES, _MAX_SAMPLES).astype(int)
    offsets = [(np.arange(count) + 0.5) / count - 0.5 for count in n_samples]

    # The centres of the grid's voxels as places in the mask. By the added half, the whole part of
    # a place is the index of the voxel that it lies in.
    indices = [np.arange(length, dtype=float) for length in size]
    centres = np.stack(np.meshgrid(*indices, indexing="ij"), axis=-1).reshape(-1, 3)
    places = (centres - start) @ to_mask.T + 0.5

    # A border of empty voxels around the mask takes all points that lie outside of it.
    padded = np.pad(box, 1)
    mask_size = np.array(box.shape[::-1])
    filled = np.zeros(len(places))
    for dx in offsets[0]:
        for dy in offsets[1]:
            for dz in offsets[2]:
                sampled = np.floor(places + to_mask @ np.array([dx, dy, dz])).astype(int)
                index = np.clip(sampled, -1, mask_size) + 1
                filled += padded[index[:, 2], index[:, 1], index[:, 0]]
    return (filled / float(np.prod(n_samples))).reshape(size).transpose(2, 1, 0)
