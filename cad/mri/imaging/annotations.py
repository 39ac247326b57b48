"""Read regions drawn in DICOM (SEG objects, RT structure sets) onto the grid of an image.

For both kinds of object the result is the share of each voxel that the region fills. RT structure
sets hold contours (:mod:`cad.mri.imaging.structure_sets`), SEG objects hold voxels
(:mod:`cad.mri.imaging.segmentations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pydicom

from cad.base.errors import CadError, printable
from cad.base.reading import reading
from cad.mri.imaging.drawn_regions import DrawnRegion, Wanted, number_of
from cad.mri.imaging.elements import tagged
from cad.mri.imaging.frames import Frame
from cad.mri.imaging.segmentations import read_segments, wanted_segments
from cad.mri.imaging.structure_sets import read_structures, structure_name
from cad.mri.imaging.volume import Volume

DRAWN_CLASSES = {
    "1.2.840.10008.5.1.4.1.1.66.4": "SEG",
    "1.2.840.10008.5.1.4.1.1.66.7": "SEG",
    "1.2.840.10008.5.1.4.1.1.481.3": "RTSTRUCT",
}
"""Modality of an object by its SOPClassUID: segmentation, label map, structure set."""
_UNSOUND = "not a sound SEG or RTSTRUCT object"


def referenced_images(dataset: pydicom.Dataset) -> dict[str, list[str]]:
    """Return the images that a SEG or RTSTRUCT object says it was drawn on.

    The result has the SOPInstanceUIDs that are named, by SeriesInstanceUID. It is empty where the
    object names no series.
    """
    images_by_series: dict[str, list[str]] = {}

    def add_images(series: pydicom.Dataset, sequence: str) -> None:
        uid = str(series.get("SeriesInstanceUID", "") or "")
        if uid:
            images_by_series.setdefault(uid, []).extend(_referenced_uids(series, sequence))

    # A SEG names its series here,
    for series in dataset.get("ReferencedSeriesSequence") or []:
        add_images(series, "ReferencedInstanceSequence")
    # and an RTSTRUCT here.
    for frame in dataset.get("ReferencedFrameOfReferenceSequence") or []:
        for study in frame.get("RTReferencedStudySequence") or []:
            for series in study.get("RTReferencedSeriesSequence") or []:
                add_images(series, "ContourImageSequence")
    return images_by_series


def contour_images(dataset: pydicom.Dataset, wanted: Wanted) -> set[str]:
    """Return the SOPInstanceUIDs of the images on which wanted structures were drawn.

    The set is empty where the contours name no image.

    Parameters
    ----------
    dataset, wanted
        The object, and a function that takes the name of a structure and returns whether it is
        read.
    """
    numbers = set()  # of the wanted structures, by which their contours name them
    for structure in dataset.get("StructureSetROISequence") or []:
        if wanted(structure_name(structure)):
            numbers.add(number_of(structure, "ROINumber"))
    uids: set[str] = set()
    for contour_group in dataset.get("ROIContourSequence") or []:
        if number_of(contour_group, "ReferencedROINumber") in numbers:
            for contour in contour_group.get("ContourSequence") or []:
                uids.update(_referenced_uids(contour, "ContourImageSequence"))
    return uids


def _referenced_uids(item: pydicom.Dataset, sequence: str) -> list[str]:
    uids = []
    for image in item.get(sequence) or []:
        uid = str(image.get("ReferencedSOPInstanceUID", "") or "")
        if uid:
            uids.append(uid)
    return uids


def is_segmentation(dataset: pydicom.Dataset) -> bool:
    """Tell whether an object is a SEG; else it is an RTSTRUCT.

    Parameters
    ----------
    dataset : Dataset
        The object.

    Returns
    -------
    bool
        True for a SEG, False for an RTSTRUCT.

    Raises
    ------
    CadError
        When its Modality and its SOPClassUID are those of two kinds of object.
    """
    modality = str(dataset.get("Modality", "") or "")
    modality_of_class = DRAWN_CLASSES.get(str(dataset.get("SOPClassUID", "") or ""))
    if modality_of_class != modality:
        raise CadError(
            f"{tagged('Modality')} is {printable(modality)!r}, but {tagged('SOPClassUID')} is that "
            f"of {modality_of_class or 'neither a SEG nor an RTSTRUCT'}",
            hint="export the object again",
        )
    return modality_of_class == "SEG"


def has_regions(dataset: pydicom.Dataset, path: Path, wanted: Wanted) -> bool:
    """Tell whether any segment or structure of an object is to be read.

    Parameters
    ----------
    dataset, path, wanted
        The object, its file for messages, and a function that takes the name of a segment or
        structure and returns whether it is read.

    Returns
    -------
    bool
        True if at least one segment or structure fits ``wanted``.
    """
    with reading(path, _UNSOUND):
        if is_segmentation(dataset):
            return bool(wanted_segments(dataset, wanted))
        return any(wanted(structure_name(item)) for item in dataset.StructureSetROISequence)


def read_drawn_regions(
    dataset: pydicom.Dataset,
    path: Path,
    drawn_on: Volume,
    frame_uid: str,
    grid: Volume,
    wanted: Wanted = lambda name: True,
    images: Sequence[Frame] = (),
) -> tuple[list[DrawnRegion], list[str]]:
    """Read the regions of a SEG or RTSTRUCT object on an image's grid.

    Parameters
    ----------
    dataset : Dataset
        The object.
    path : Path
        Its file, for messages.
    drawn_on : Volume
        Grid of the images the object was drawn on; contours must lie in its slice planes. Frames of
        a SEG fill its slices where ``images`` are not known.
    frame_uid : str
        FrameOfReferenceUID of the images; empty to skip the comparison.
    grid : Volume
        Grid of the result.
    wanted : callable
        Takes the name of a segment or structure and returns whether it is read. Segments and
        structures that are not read are not checked either.
    images : sequence of Frame
        The images that the object was drawn on. A contour that names another image is refused, and
        a contour or frame in another plane than its image. Empty to skip the comparison.

    Returns
    -------
    list of DrawnRegion, list of str
        Regions that fill at least one voxel to one half, and sentences on everything that was left
        out.

    Raises
    ------
    CadError
        Naming file and ROI, for another frame of reference, a contour off the slice planes or the
        image, open or degenerate contours, contours that overlap or are moved by an offset, two
        regions of one number, an empty segment, frames that form no regular grid or lie between the
        slices of their images, and pixel data without an installed codec. Two statements of one
        place, identity or count that differ are refused, too.
    """
    with reading(path, _UNSOUND):
        read_regions = read_segments if is_segmentation(dataset) else read_structures
        return read_regions(dataset, path, drawn_on, frame_uid, grid, wanted, images)
