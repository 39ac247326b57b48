"""Compute a region on the grid of any modality: the share of each voxel that the region fills.

People often draw a region in a single slice of T2. On the grid of another image, the region then
fills voxels only partly. The region is measured on that grid if enough of the measured signal comes
from it. Otherwise the region is left out of this modality, with a reason, and is still measured in
the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cad.base.errors import CadError
from cad.mri.imaging.geometry import MIN_VOXELS, occupancy, resample_image
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Volume

# Least purity of a region that is measured. The purity is the share of the measured signal that
# comes from the region, where each voxel counts by the share of it that the region fills. A region
# that fills half of each of its voxels has a purity of one half.
MIN_PURITY = 0.25
# Least share of a region that lies in the image, and least share of this part that has a value. A
# region with less is not measured in the image.
MIN_INSIDE = 0.5
MIN_VALUED = 0.5
# A share this close to 0 or 1 counts as 0 or 1. Otherwise the rounding of positions could make a
# whole voxel count as partly filled.
_ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Drawn:
    """Hold the voxels of one region on the grid of one image.

    Parameters
    ----------
    share : ndarray of float, shape (z, y, x)
        Share (0 to 1) of each voxel that the region fills.
    voxels : float
        Effective number of voxels: (sum of the shares)^2 / (sum of the squared shares).
    purity : float
        Share of the measured signal that comes from the region: (sum of the squared shares) / (sum
        of the shares).
    inside : float
        Part (0 to 1) of the region's volume that lies in the image.
    valued : float
        Part (0 to 1) of the region within the image in which the image has a value.
    """

    share: np.ndarray
    voxels: float
    purity: float
    inside: float
    valued: float = 1.0

    @property
    def too_little(self) -> str:
        """Return why the region cannot be measured on this grid; empty text when it can."""
        if self.inside < MIN_INSIDE:
            return f"{self.inside:.0%} of it lies in the image, {MIN_INSIDE:.0%} are needed"
        if self.voxels < MIN_VOXELS:
            return f"it fills {self.voxels:.1f} voxels, {MIN_VOXELS} are needed"
        if self.purity < MIN_PURITY:
            return (
                f"{self.purity:.0%} of what would be measured is the region, {MIN_PURITY:.0%} are "
                "needed"
            )
        if self.valued < MIN_VALUED:
            return (
                f"the image has a value (0 is none) in {self.valued:.0%} of it, {MIN_VALUED:.0%} "
                "are needed"
            )
        return ""


def without_void(adc: Volume, least: float) -> Volume:
    """Return an ADC map with NaN where nothing was measured.

    Scanners write 0 into an ADC map where the signal was too weak for a fit, and some fits give a
    negative number there. Neither number is a diffusion coefficient. A 0 would look like strongly
    restricted diffusion, and so like cancer.

    Parameters
    ----------
    adc : Volume
        An ADC map, or a part of an ADC map; not changed.
    least : float
        The least value that is a measurement, in the unit of the map.

    Examples
    --------
    >>> import numpy as np
    >>> adc = Volume(np.array([[[0.0, 900.0, -3.0]]]), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> without_void(adc, 1.0).array.tolist()
    [[[nan, 900.0, nan]]]
    """
    measured = adc.array >= least
    if measured.all():
        return adc
    return adc.with_array(np.where(measured, adc.array, np.nan))


def require_measurable(
    study: Study, roi: Roi, grids: Mapping[str, Volume], half: bool = False
) -> dict[str, Drawn]:
    """Return a region's voxels on every grid; raise an error if no grid can measure the region.

    Parameters
    ----------
    study : Study
        Study with the label map.
    roi : Roi
        The region.
    grids : mapping of str to Volume
        Images by name. An image may be cropped, as long as it still contains the region. A voxel
        that is NaN has no value.
    half : bool
        By default a voxel counts by the share that the region fills. With True a voxel counts whole
        where the mask, interpolated at its centre, is at least one half, else not at all.

    Returns
    -------
    dict of str to Drawn
        The region on each of the grids, by the image's name.

    Raises
    ------
    CadError
        When the study has no label map, the region is empty, or no grid can measure it. The error
        names patient, ROI and every reason.
    """
    mask = study.mask_of(roi)
    drawn_on = {name: fill(mask, grid, half) for name, grid in grids.items()}
    if all(drawn.too_little for drawn in drawn_on.values()):  # each has a reason
        reasons = []
        for name, drawn in drawn_on.items():
            reasons.append(f"{name}: {why_unmeasured(study, name, drawn)}")
        raise CadError(
            f"the ROI cannot be measured in any image: {'; '.join(reasons)}",
            hint="draw a larger ROI, on the images of this study",
            patient=study.participant_id,
            roi=roi.roi_id,
        )
    return drawn_on


def why_unmeasured(study: Study, name: str, drawn: Drawn) -> str:
    """Return why a region cannot be measured in an image, and whether the image was moved before.

    Parameters
    ----------
    study : Study
        The study, after displaced images were moved back to where T2 shows their content.
    name : str
        The image.
    drawn : Drawn
        The region on the grid of this image.
    """
    for displacement in study.displacements:
        is_moved = displacement.name == name and name in study.mended_mm
        # Nearly every image is moved back by a fraction of a mm. Such a small move is not named,
        # because it is not why a region cannot be measured.
        if is_moved and displacement.is_notable:
            moved_mm = displacement.size_mm
            return f"{drawn.too_little}, after the image was moved back by {moved_mm:.1f} mm"
    return drawn.too_little


def fill(mask: Volume, grid: Volume, half: bool = False) -> Drawn:
    """Return the share of each voxel of a grid that a mask fills.

    Parameters
    ----------
    mask : Volume
        Boolean mask of the region, not empty.
    grid : Volume
        The image that is measured, or its part around the mask. A voxel of NaN has no value.
    half : bool
        By default a voxel counts by the share of it that the mask fills. With True a voxel counts
        whole or not at all: whole where the mask, interpolated at the voxel's centre, is at least
        one half (IBSI reference manual, 2.4).
    """
    if mask.same_grid(grid):
        share = (mask.array != 0).astype(float)
    elif half:
        interpolated = np.nan_to_num(resample_image(mask, grid).array)  # NaN beside the mask
        share = (interpolated >= 0.5 - _ROUNDING).astype(float)
    else:
        share = occupancy(mask, grid).array
        share[share < _ROUNDING] = 0.0  # the region only touches these voxels
        share[share > 1 - _ROUNDING] = 1.0
    sum_of_shares = float(share.sum())
    sum_of_squares = float((share**2).sum())
    if not sum_of_shares:  # the region lies beside the image
        return Drawn(share, voxels=0.0, purity=0.0, inside=0.0)
    mask_mm3 = float(np.count_nonzero(mask.array)) * float(np.prod(mask.spacing))
    inside = sum_of_shares * float(np.prod(grid.spacing)) / mask_mm3
    with_value = float(share[np.isfinite(grid.array)].sum())
    return Drawn(
        share,
        voxels=sum_of_shares**2 / sum_of_squares,
        purity=sum_of_squares / sum_of_shares,
        inside=min(inside, 1.0),  # it may be a little more by rounding
        valued=with_value / sum_of_shares,
    )


def gland_on(study: Study) -> Volume | None:
    """Return the gland as a mask on the grid of the label map.

    Parameters
    ----------
    study : Study
        Study with or without label map and gland mask.

    Returns
    -------
    Volume or None
        Boolean; None without label map or gland mask, or if the gland lies outside the label map.
    """
    if study.roi_map is None or study.gland is None:
        return None
    inside = fill(study.gland, study.roi_map).share >= 0.5
    return study.roi_map.with_array(inside) if inside.any() else None


def shares_on(share: np.ndarray, grid: Volume, other: Volume) -> np.ndarray:
    """Copy shares of voxels from one part of a grid to a larger part that contains it.

    Parameters
    ----------
    share : ndarray, shape of ``grid``
        How much of each voxel a region fills, 0 to 1.
    grid, other : Volume
        Old and new part of one larger grid; their values are not read.

    Returns
    -------
    ndarray, shape of ``other``
        The same shares; 0 in voxels outside of ``grid``.

    Examples
    --------
    >>> import numpy as np
    >>> small = Volume(np.zeros((1, 1, 2)), (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), np.eye(3))
    >>> large = Volume(np.zeros((1, 1, 4)), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> shares_on(np.array([[[0.5, 1.0]]]), small, large).tolist()
    [[[0.0, 0.5, 1.0, 0.0]]]
    """
    # The first voxel of ``grid`` is this one of ``other``. Both are parts of one grid, so that the
    # indices differ from whole numbers by rounding alone.
    x, y, z = np.round(other.patient_to_index(np.array(grid.origin))).astype(int)
    out = np.zeros(other.shape)
    filled = np.nonzero(share)  # indices along z, y, x
    out[filled[0] + z, filled[1] + y, filled[2] + x] = share[filled]
    return out
