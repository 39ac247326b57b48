"""Interpolate images to a common voxel size, with grids aligned as IBSI defines.

The images of all sites then have one voxel size. Without this, measures of texture would differ
with the voxel size of the scanner. The new grid has the centre and directions of the old grid, and
as many voxels as the extent of the old grid needs, rounded up. Values are interpolated linearly
between voxel centres, or by cubic splines.
"""

from dataclasses import replace

import numpy as np

from cad.base.errors import CadError
from cad.base.settings import ImageSettings
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume, triple

MOST_VOXELS = 200_000_000
_COUNT_ROUNDING = 1e-3


def aligned_grid(image: Volume, spacing: tuple[float, float, float]) -> Volume:
    """Return an empty grid (float32) with another spacing and the same centre as an image.

    Parameters
    ----------
    image : Volume
        Image whose extent the grid covers.
    spacing : tuple of 3 floats
        Voxel size in mm along x, y, z; 0 keeps the image's own size.

    Raises
    ------
    CadError
        For a negative spacing, or a spacing that makes more than 200 million voxels.

    References
    ----------
    IBSI reference manual, 2.4 (align by centre).
    """
    if min(spacing) < 0:
        raise CadError(f"a voxel spacing is positive, or 0 to keep the axis, found {spacing} mm")
    # All of these are along x, y, z.
    old_spacing = np.array(image.spacing)
    new_spacing = np.where(np.array(spacing) > 0, spacing, old_spacing)
    old_count = np.array(image.shape[::-1])
    # Files store the voxel size with seven digits. The tolerance of 1e-3 keeps this rounding from
    # adding a voxel.
    new_count = np.ceil(old_count * old_spacing / new_spacing - _COUNT_ROUNDING).astype(int)
    # The number of voxels is checked before the array is made. With a voxel size of 1e-3 mm by a
    # typing error, the array would need terabytes.
    if int(np.prod(new_count)) > MOST_VOXELS:
        raise CadError(
            f"a spacing of {tuple(new_spacing)} mm makes {np.prod(new_count):,} voxels of one "
            "image",
            hint="choose a coarser images.spacing",
        )
    # ``first`` is the place of the first new voxel as an index in the old grid. Both grids have one
    # centre, so that a larger new grid extends beyond the old grid equally on both sides.
    first = (old_count - 1) / 2 - (new_count - 1) / 2 * new_spacing / old_spacing
    grid = image.beginning_at(np.zeros(new_count[::-1], np.float32), first)
    return replace(grid, spacing=triple(new_spacing))


def interpolate(
    image: Volume,
    spacing: tuple[float, float, float] | None,
    kind: str = "linear",
    whole: bool = False,
) -> Volume:
    """Return an image on a grid of another voxel size about the same centre.

    Parameters
    ----------
    image : Volume
        Image to interpolate; not changed.
    spacing : tuple of 3 floats, or None
        New voxel size in mm along x, y, z; 0 keeps the size along that axis, None along all three.
    kind : {"linear", "cubic"}
        Kind of splines.
    whole : bool
        Whether values are rounded to whole numbers.

    Returns
    -------
    Volume
        float32; the image itself where its grid stays the same.
    """
    if spacing is None:
        return image
    grid = aligned_grid(image, spacing)
    # If the grid stays the same, the values are not interpolated, because interpolation rounds
    # values even at voxel centres.
    if grid.same_grid(image):
        return image
    values = resample_image(image, grid, kind)
    return values.with_array(np.rint(values.array)) if whole else values


def at_spacing(study: Study, settings: ImageSettings) -> Study:
    """Return a study with T2 and ADC at the voxel sizes that settings name; its masks are the same.

    Parameters
    ----------
    study : Study
        The study; not changed.
    settings : ImageSettings
        ``spacing_t2w``, ``spacing_adc`` and the kind of interpolation.
    """
    out = replace(study)
    kind = settings.interpolation
    whole = settings.whole_numbers
    if study.t2w is not None:
        out.t2w = interpolate(study.t2w, settings.spacing_t2w, kind, whole)
    if study.adc is not None:
        out.adc = interpolate(study.adc, settings.spacing_adc, kind, whole)
    return out
