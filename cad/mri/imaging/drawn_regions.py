"""Hold the regions that were drawn in DICOM, and what SEG and RTSTRUCT have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset

from cad.base.errors import CadError, printable
from cad.mri.imaging.elements import tagged
from cad.mri.imaging.geometry import OCCUPANCY, occupancy
from cad.mri.imaging.volume import Volume

Wanted = Callable[[str], bool]
HALF = OCCUPANCY - 1e-6
"""Least share of a voxel that counts as one half; shares are sums of float32."""
_NOTED_CUT = 0.02  # least share of a region outside of the grid that is noted; sampling loses less


@dataclass(frozen=True, eq=False)
class DrawnRegion:
    """Hold one region drawn in DICOM: a segment of a SEG object or a structure of an RTSTRUCT.

    Parameters
    ----------
    name : str
        SegmentLabel or ROIName.
    share : ndarray of float32, shape of the grid
        Share of every voxel that the region fills, 0 to 1.
    file : Path
        The DICOM file.
    number : int
        Number of the segment or structure in the file, where another one has the same name; else 0.
    """

    name: str
    share: np.ndarray
    file: Path
    number: int = 0


def number_of(item: Dataset, keyword: str) -> int:
    """Return the number by which a segment or structure is known.

    Parameters
    ----------
    item : Dataset
        Item of a sequence.
    keyword : str
        The element with the number.

    Raises
    ------
    CadError
        When the item has no such element, or one that is empty or no whole number.
    """
    value = item.get(keyword)
    if value is None or value == "":
        raise CadError(
            f"{tagged(keyword)} is missing: it is not known whose the drawing is",
            hint="export the object again",
        )
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise CadError(
            f"{tagged(keyword)} is {printable(str(value))!r}, and no whole number",
            hint="export the object again",
        ) from error


def check_approval(dataset: Dataset, path: Path) -> None:
    """Refuse a drawing that a person has rejected."""
    if str(dataset.get("ApprovalStatus", "") or "").strip().upper() == "REJECTED":
        raise CadError(
            f"{tagged('ApprovalStatus')} is REJECTED: a person has said that the drawing is wrong",
            file=path,
            hint="leave the file out, or have the drawing approved and export it again",
        )


def check_frame_of_reference(
    frames: set[str], images_frame: str, path: Path, roi: str = ""
) -> None:
    """Refuse regions that state another frame of reference than that of the images.

    Parameters
    ----------
    frames : set of str
        FrameOfReferenceUIDs that the regions state.
    images_frame : str
        That of the images; empty to skip the comparison.
    path, roi
        Where the regions are, for the message.
    """
    other_frames = sorted(frames - {images_frame})
    if images_frame and other_frames:
        problem = (
            f"drawn in another frame of reference: FrameOfReferenceUID "
            f"{printable(other_frames[0])}, the images are in {images_frame}"
        )
        raise CadError(problem, file=path, roi=roi, hint="draw the ROI on this study's images")
    if len(other_frames) > 1:
        raise CadError(
            f"two frames of reference of one ROI: FrameOfReferenceUID "
            f"{printable(other_frames[0])} and {printable(other_frames[1])}",
            file=path,
            roi=roi,
            hint="export the object again",
        )


def share_on_grid(
    place: Volume, grid: Volume, path: Path, name: str, notes: list[str], first: int = 0
) -> np.ndarray:
    """Return the share of every voxel of a grid that a region fills.

    Parameters
    ----------
    place : Volume
        The region on the grid that it was drawn on: the share (0 to 1) of each voxel.
    grid : Volume
        The wanted grid.
    path, name
        File and name of the region, for messages.
    notes : list of str
        A note is added where a part of the region lies outside of the grid.
    first : int
        Number of the first slice of ``place`` in the images, for the note.

    Returns
    -------
    ndarray, shape (z, y, x)
        The share (0 to 1) of each voxel of ``grid``.

    Raises
    ------
    CadError
        When the region fills no voxel to one half.
    """
    share = place.array
    if not place.same_grid(grid):
        share = occupancy(place, grid).array
    if not (share >= HALF).any():
        raise CadError(
            "the ROI is empty: it fills no voxel of the images to one half", file=path, roi=name
        )
    drawn_mm3 = place.array.sum() * np.prod(place.spacing)
    inside_share = share.sum() * np.prod(grid.spacing) / drawn_mm3
    if inside_share < 1 - _NOTED_CUT:
        note = (
            f"{1 - inside_share:.0%} of a region of {path.name} lie outside of the image on which "
            "regions are kept, and are left out"
        )
        lost_slices = [str(first + z) for z in _slices_outside(place, grid)]
        if lost_slices:
            note += f"; nothing is left of slice {', '.join(lost_slices)}"
        notes.append(note)
    return share


def _slices_outside(place: Volume, grid: Volume) -> list[int]:
    """Return the slices of a region that have no voxel in the grid."""
    voxels = np.argwhere(place.array >= HALF)  # indices along z, y, x
    points = place.index_to_patient(voxels[:, ::-1])
    index_in_grid = grid.patient_to_index(points)
    size = np.array(grid.shape[::-1])
    # The grid reaches half a voxel beyond the centres of its outer voxels.
    is_inside = ((index_in_grid > -0.5) & (index_in_grid < size - 0.5)).all(axis=1)
    slices = set(voxels[:, 0].tolist())
    slices_inside = set(voxels[is_inside, 0].tolist())
    return sorted(slices - slices_inside)
