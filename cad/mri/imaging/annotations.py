"""Read regions drawn in DICOM (SEG objects, RT structure sets) onto the grid of an image.

For both kinds of object the result is the share of each voxel that the region fills.

An RT structure set (RTSTRUCT) holds contours. A contour is the border of an area in its slice
plane. Contours in one plane are combined by the even-odd rule, so that an inner contour is a hole.
A keyhole contour (an outer and an inner contour, joined by a line) works as well. The share of a
voxel is the part of its area that lies inside the contours. It is exact along rows, and sampled on
sixteen lines in each row.

A SEG object (a DICOM segmentation) holds voxels. highdicom reads them, and
:mod:`cad.mri.imaging.geometry` resamples them.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pydicom

from cad.base.errors import CadError, located
from cad.base.reading import reading
from cad.mri.imaging.frame_headers import frames_of
from cad.mri.imaging.frames import Frame
from cad.mri.imaging.geometry import occupancy
from cad.mri.imaging.pixel_checks import check_lines
from cad.mri.imaging.pixels import decoded
from cad.mri.imaging.stacks import ORIENTATION_TOLERANCE, POSITION_TOLERANCE_MM
from cad.mri.imaging.volume import Volume, triple

if TYPE_CHECKING:
    import highdicom

# Largest distance of a contour from the nearest slice plane of the images, as a share of the
# distance of two slices. A contour farther away was drawn on other images.
OFF_PLANE = 0.1
_LINES_PER_ROW = 16
_HALF = 0.5
_CUT = 0.02  # least share of a region outside of the grid that is noted; sampling loses less
_BEYOND = 1.0  # farthest that a contour may lie beyond the centres of the outer pixels, in pixels
_SAME_SLICE = 0.5  # largest difference of positions in one slice plane, in slice distances
_CLOSED = ("CLOSED_PLANAR", "CLOSED_PLANAR_XOR", "CLOSEDPLANAR_XOR")
_UNSOUND = "not a sound SEG or RTSTRUCT object"
Wanted = Callable[[str], bool]


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
        Number of the segment or structure in the file, if another segment or structure has the same
        name; otherwise 0.
    """

    name: str
    share: np.ndarray
    file: Path
    number: int = 0


def referenced_images(dataset: pydicom.Dataset) -> dict[str, list[str]]:
    """Return the images that a SEG or RTSTRUCT object says it was drawn on.

    The result has the SOPInstanceUIDs of these images, by SeriesInstanceUID. It is empty if the
    object names no series.
    """
    named: dict[str, list[str]] = {}

    def add(series: pydicom.Dataset, sequence: str) -> None:
        uid = str(series.get("SeriesInstanceUID", "") or "")
        if uid:
            named.setdefault(uid, []).extend(_instances(series, sequence))

    for series in dataset.get("ReferencedSeriesSequence") or []:
        add(series, "ReferencedInstanceSequence")
    for frame in dataset.get("ReferencedFrameOfReferenceSequence") or []:
        for study in frame.get("RTReferencedStudySequence") or []:
            for series in study.get("RTReferencedSeriesSequence") or []:
                add(series, "ContourImageSequence")
    return named


def contour_images(dataset: pydicom.Dataset, wanted: Wanted) -> set[str]:
    """Return the SOPInstanceUIDs of the images on which wanted structures were drawn.

    The set is empty where the contours name no image.

    Parameters
    ----------
    dataset, wanted
        As for :func:`read_regions`.
    """
    numbers = set()
    for item in dataset.get("StructureSetROISequence") or []:
        if wanted(_structure_name(item)):
            numbers.add(int(item.ROINumber))
    uids: set[str] = set()
    for item in dataset.get("ROIContourSequence") or []:
        if int(item.ReferencedROINumber) in numbers:
            for contour in item.get("ContourSequence") or []:
                uids.update(_instances(contour, "ContourImageSequence"))
    return uids


def _instances(item: pydicom.Dataset, sequence: str) -> list[str]:
    uids = [
        str(image.get("ReferencedSOPInstanceUID", "") or "") for image in item.get(sequence) or []
    ]
    return [uid for uid in uids if uid]


def has_regions(dataset: pydicom.Dataset, path: Path, wanted: Wanted) -> bool:
    """Tell whether any segment or structure of an object is to be read.

    Parameters
    ----------
    dataset, path, wanted
        As for :func:`read_regions`.
    """
    with reading(path, _UNSOUND):
        if str(dataset.get("Modality", "")) == "SEG":
            return bool(_wanted_segments(dataset, wanted))
        return any(wanted(_structure_name(item)) for item in dataset.StructureSetROISequence)


def read_regions(
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
        Grid of the images the object was drawn on; contours must lie in its slice planes.
    frame_uid : str
        FrameOfReferenceUID of the images; empty to skip the comparison.
    grid : Volume
        Grid of the result.
    wanted : callable
        Takes the name of a segment or structure and returns whether it is read. Segments and
        structures that are not read are not checked either.
    images : sequence of Frame
        The images that the object was drawn on. A contour that names an image not among these is
        refused. A contour or frame in another plane than the image that it names is refused as
        well. Empty to skip both comparisons.

    Returns
    -------
    list of DrawnRegion, list of str
        Regions that fill at least one voxel to one half, and sentences on everything that was left
        out.

    Raises
    ------
    CadError
        Naming file and ROI, for a region in another frame of reference than the images, and for two
        regions of one number. For a contour that lies off the slice planes, is open or degenerate,
        or states an offset. For a segment that is empty, whose frames form no regular grid, or
        whose pixels no installed package can decode.
    """
    with reading(path, _UNSOUND):
        if str(dataset.get("Modality", "")) == "SEG":
            return _read_seg(dataset, path, frame_uid, grid, wanted, images)
        return _read_structures(dataset, path, drawn_on, frame_uid, grid, wanted, images)


def fill_polygons(polygons: list[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Return the share of every pixel inside polygons, combined by the even-odd rule.

    Parameters
    ----------
    polygons : list of ndarray, shape (n, 2)
        Corners in pixel indices (x, y); pixel (i, j) covers i - .5 to i + .5.
    shape : tuple of 2 ints
        Rows and columns.

    Returns
    -------
    ndarray of float32, shape (rows, columns)

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0.5, 0.5], [2.5, 0.5], [2.5, 2.5], [0.5, 2.5]])
    >>> float(fill_polygons([square], (4, 4)).sum())
    4.0
    """
    rows, columns = shape
    start = np.concatenate(polygons)
    end = np.concatenate([np.roll(p, -1, axis=0) for p in polygons])
    share = np.zeros(shape)
    first = max(int(np.floor(start[:, 1].min() + 0.5)), 0)
    last = min(int(np.floor(start[:, 1].max() + 0.5)), rows - 1)
    left_edges = np.arange(columns + 1) - 0.5
    for row in range(first, last + 1):
        for line in range(_LINES_PER_ROW):
            y = row - 0.5 + (line + 0.5) / _LINES_PER_ROW
            crossed = (start[:, 1] <= y) != (end[:, 1] <= y)
            a = start[crossed]
            b = end[crossed]
            x = np.sort(a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1]))
            for left, right in zip(x[::2], x[1::2], strict=True):
                share[row] += np.diff(np.clip(left_edges, left, right))
    return (share / _LINES_PER_ROW).astype(np.float32)


def _check_frame(frames: set[str], images_frame: str, path: Path, roi: str = "") -> None:
    """Refuse regions that state another frame of reference than that of the images."""
    others = sorted(frames - {images_frame})
    if images_frame and others:
        problem = (
            f"drawn in another frame of reference: FrameOfReferenceUID {others[0]}, the images are "
            f"in {images_frame}"
        )
        raise CadError(problem, file=path, roi=roi, hint="draw the ROI on this study's images")


# --- RT structure sets ---------------------------------------------------------------------------


def _read_structures(
    dataset: pydicom.Dataset,
    path: Path,
    drawn_on: Volume,
    frame_uid: str,
    grid: Volume,
    wanted: Wanted,
    images: Sequence[Frame],
) -> tuple[list[DrawnRegion], list[str]]:
    structures = _structures(dataset, path, wanted)
    names = {number: _structure_name(item) for number, item in structures.items()}
    often = Counter(name for name in names.values() if wanted(name))
    if often and "ROIContourSequence" not in dataset:
        raise CadError(
            "structures without any contours: the file was cut off",
            file=path,
            hint="export it again",
        )
    regions: list[DrawnRegion] = []
    notes = []
    if len(structures) > often.total():
        n_left_out = len(structures) - often.total()
        notes.append(f"{n_left_out} structures that the rules do not ask for are left out")
    drawn: set[int] = set()
    for item in dataset.get("ROIContourSequence", []):
        number = int(item.ReferencedROINumber)
        if number not in structures:
            raise CadError(
                f"contours of ReferencedROINumber {number}, which no structure has",
                file=path,
                hint="export the structure set again",
            )
        name = names[number]
        if not wanted(name):
            continue
        if number in drawn:
            raise CadError(
                f"two groups of contours for the structure of ROINumber {number}; each structure "
                "has one (PS3.3 C.8.8.6)",
                file=path,
                roi=name,
                hint="export the structure set again",
            )
        drawn.add(number)
        frames = _frames_of_reference(dataset, structures[number])
        _check_frame(frames, frame_uid, path, name)
        if frame_uid and not frames:
            notes.append(f"structure {number} states no frame of reference; the images' is taken")
        planes = _planes(item, drawn_on, path, name, images)
        if not planes:
            raise CadError("the structure has no closed contour", file=path, roi=name)
        share = np.zeros(drawn_on.shape, np.float32)
        for z, polygons in planes.items():
            share[z] = fill_polygons(polygons, (drawn_on.shape[1], drawn_on.shape[2]))
        filled = sorted(planes)
        if len(filled) < filled[-1] - filled[0] + 1:
            skipped = filled[-1] - filled[0] + 1 - len(filled)
            notes.append(
                f"structure {number} has no contour on {skipped} slices between its first and last"
            )
        on_grid = _share_on_grid(share, drawn_on, grid, path, name, notes)
        regions.append(DrawnRegion(name, on_grid, path, number if often[name] > 1 else 0))
    return regions, notes


def _structures(dataset: pydicom.Dataset, path: Path, wanted: Wanted) -> dict[int, pydicom.Dataset]:
    """Return the structures by number; refuse a wanted structure that shares its number with
    another.
    """
    structures: dict[int, pydicom.Dataset] = {}
    for item in dataset.StructureSetROISequence:
        number = int(item.ROINumber)
        first = structures.setdefault(number, item)
        name = _structure_name(item)
        if first is not item and (wanted(name) or wanted(_structure_name(first))):
            raise CadError(
                f"two structures of ROINumber {number}; numbers tell structures apart (PS3.3 "
                "C.8.8.5), so it is not known whose the contours are",
                file=path,
                roi=name,
                hint="export the structure set again",
            )
    return structures


def _structure_name(item: pydicom.Dataset) -> str:
    return str(item.get("ROIName", "") or int(item.ROINumber))


def _frames_of_reference(dataset: pydicom.Dataset, structure: pydicom.Dataset) -> set[str]:
    """Return the FrameOfReferenceUIDs that hold for a structure.

    A structure states its own UID, which must be one of the UIDs of the whole structure set (PS3.3
    C.8.8.5). If the structure states none and the set has only one, the set's UID is returned. If
    the structure's UID is not among those of the set, all UIDs are returned, and the caller refuses
    the structure.
    """
    of_set = set()
    for item in dataset.get("ReferencedFrameOfReferenceSequence") or []:
        of_set.add(str(item.get("FrameOfReferenceUID", "") or ""))
    of_set.discard("")
    stated = str(structure.get("ReferencedFrameOfReferenceUID", "") or "")
    if not stated:
        return of_set if len(of_set) == 1 else set()
    return {stated} if not of_set or stated in of_set else {stated, *of_set}


def _planes(
    item: pydicom.Dataset, drawn_on: Volume, path: Path, name: str, images: Sequence[Frame]
) -> dict[int, list[np.ndarray]]:
    """Return the contours of one structure by slice, as arrays of (x, y) pixel indices, shape (n,
    2).
    """
    planes: dict[int, list[np.ndarray]] = defaultdict(list)
    for contour in item.get("ContourSequence", []):
        kind = str(contour.get("ContourGeometricType", ""))
        if kind == "POINT":
            continue
        if kind not in _CLOSED:
            raise CadError(
                f"contour type {kind or 'that is not stated'} encloses no area",
                file=path,
                roi=name,
                hint="draw the ROI as closed contours (ContourGeometricType CLOSED_PLANAR)",
            )
        _check_offset(contour, path, name)
        points = _points(contour)
        stated = contour.get("NumberOfContourPoints")
        if stated is not None and int(stated) != len(points):
            raise CadError(
                f"NumberOfContourPoints is {stated}, but the contour has {len(points)} points",
                file=path,
                roi=name,
                hint="export the structure set again",
            )
        if len(points) < 3:
            raise CadError(f"a contour of {len(points)} points", file=path, roi=name)
        index = drawn_on.patient_to_index(points)
        z = int(np.round(np.median(index[:, 2])))
        off = float(np.abs(index[:, 2] - z).max())
        if off > OFF_PLANE:
            raise CadError(
                f"a contour lies up to {off * drawn_on.spacing[2]:.2f} mm off the nearest slice "
                f"plane; allowed {OFF_PLANE * drawn_on.spacing[2]:.2f} mm",
                file=path,
                roi=name,
                hint="the images it was drawn on are missing, or export it as SEG",
            )
        if not 0 <= z < drawn_on.shape[0]:
            raise CadError(
                f"a contour lies on slice {z}, outside the images' 0 to {drawn_on.shape[0] - 1}",
                file=path,
                roi=name,
            )
        sides = np.array(drawn_on.shape[:0:-1])
        if (index[:, :2] < -_BEYOND).any() or (index[:, :2] > sides - 1 + _BEYOND).any():
            raise CadError(
                f"a contour on slice {z} leaves the images, which have {sides[0]} columns and "
                f"{sides[1]} rows",
                file=path,
                roi=name,
                hint="it was drawn on other images; export images and structure set together",
            )
        if images:
            _check_image(contour, z, drawn_on, images, path, name)
        planes[z].append(index[:, :2])
    return planes


def _points(contour: pydicom.Dataset) -> np.ndarray:
    """Return the points of a contour, shape (n, 3), in mm.

    Numbers of more than 64 KiB do not fit into the VR DS. They are written as UN (PS3.5 6.2.2), and
    pydicom then gives their bytes.
    """
    numbers = contour.ContourData
    if isinstance(numbers, bytes):
        numbers = numbers.decode("ascii").strip("\0 ").split("\\")
    return np.array([float(number) for number in numbers]).reshape(-1, 3)


def _check_offset(contour: pydicom.Dataset, path: Path, name: str) -> None:
    """Refuse a contour that states an offset of its points, because only some programs add this
    offset.
    """
    value = contour.get("ContourOffsetVector")
    offset = [float(v) for v in value] if value else []
    if any(v != 0 for v in offset):
        raise CadError(
            f"ContourOffsetVector (3006,0045) is {', '.join(f'{v:g}' for v in offset)} mm; only "
            "contours without an offset are read, because programs do not agree on this retired "
            "element",
            file=path,
            roi=name,
            hint="export the structure set again without an offset",
        )


def _check_image(
    contour: pydicom.Dataset,
    z: int,
    drawn_on: Volume,
    images: Sequence[Frame],
    path: Path,
    name: str,
) -> None:
    """Refuse a contour that names an image of another series, or of another plane than its own."""
    for item in contour.get("ContourImageSequence") or []:
        uid = str(item.get("ReferencedSOPInstanceUID", "") or "")
        number = item.get("ReferencedFrameNumber")
        named = [frame for frame in images if frame.sop_uid == uid]
        if uid and not named:
            raise CadError(
                f"a contour was drawn on the image of ReferencedSOPInstanceUID {uid}, which the "
                "series that the structure set names does not have",
                file=path,
                roi=name,
                hint="export images and structure set together, or draw the ROI on these images",
            )
        if number is not None and len(named) > 1:
            named = [frame for frame in named if frame.index + 1 == int(number)]
        planes = []
        for frame in named:
            if frame.position is not None:
                planes.append(float(drawn_on.patient_to_index(np.array(frame.position))[2]))
        if planes and min(abs(plane - z) for plane in planes) > _SAME_SLICE:
            raise CadError(
                f"a contour lies on slice {z}, but the image of ReferencedSOPInstanceUID {uid} "
                f"that it names is slice {planes[0]:.0f}",
                file=path,
                roi=name,
                hint="export the structure set again",
            )


def _share_on_grid(
    share: np.ndarray, place: Volume, grid: Volume, path: Path, name: str, notes: list[str]
) -> np.ndarray:
    """Return the share on the wanted grid; raise an error if it is one half in no voxel.

    A note is added where a part of the region lies outside of the grid.
    """
    drawn = place.with_array(share)
    if not place.same_grid(grid):
        share = occupancy(drawn, grid).array
    if not (share >= 0.5 - 1e-6).any():
        raise CadError(
            "the ROI is empty: it fills no voxel of the images to one half", file=path, roi=name
        )
    volume_on_grid = share.sum() * np.prod(grid.spacing)
    share_outside = 1 - volume_on_grid / (drawn.array.sum() * np.prod(place.spacing))
    if share_outside > _CUT:
        notes.append(
            f"{share_outside:.0%} of a region of {path.name} lie outside of the image on which "
            "regions are kept, and are left out"
        )
    return share


# --- SEG -----------------------------------------------------------------------------------------


def _read_seg(
    dataset: pydicom.Dataset,
    path: Path,
    frame_uid: str,
    grid: Volume,
    wanted: Wanted,
    images: Sequence[Frame],
) -> tuple[list[DrawnRegion], list[str]]:
    import highdicom  # loaded here, because loading is slow and few studies have a SEG

    numbers = [int(item.SegmentNumber) for item in dataset.SegmentSequence]
    names = _wanted_segments(dataset, wanted)
    for number in names:
        if numbers.count(number) > 1:
            raise CadError(
                f"two segments of SegmentNumber {number}; numbers tell segments apart (PS3.3 "
                "C.8.20.4)",
                file=path,
                roi=names[number],
                hint="export the SEG again",
            )
    frames: list[Frame] = []
    if names:
        with located(file=path):
            frames = frames_of(dataset, path)  # refuses a frame that states two places
            _state_slice_distance(dataset, frames, images)
    # highdicom warns of values that other makers write in another form.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        # The function segread() of highdicom would read the file a second time.
        seg = highdicom.seg.Segmentation.from_dataset(dataset, copy=False)
    notes: list[str] = []
    if names:
        frame = str(dataset.get("FrameOfReferenceUID", "") or "")
        if not frame:
            raise CadError(
                "a SEG without FrameOfReferenceUID (0020,0052): its positions belong to no images",
                file=path,
                hint="export the SEG again",
            )
        _check_frame({frame}, frame_uid, path)
        with located(file=path):
            check_lines(decoded(dataset, path))  # also tells damaged pixels from a missing codec
        _check_sources(dataset, frames, names, images, path)
    regions = []
    for number, name in names.items():
        segment = _segment(seg, number, path, name)
        if not segment.array.any():
            raise CadError("the segment is empty: all of its frames are", file=path, roi=name)
        share = segment.array.astype(np.float32)
        share = _share_on_grid(share, segment, grid, path, name, notes)
        twin = list(names.values()).count(name) > 1
        regions.append(DrawnRegion(name, share, path, number if twin else 0))
    unused = sum(1 for number in numbers if number > 0) - len(names)
    if unused:
        notes.append(f"{unused} segments that the rules do not ask for are left out")
    return regions, notes


def _state_slice_distance(
    dataset: pydicom.Dataset, frames: Sequence[Frame], images: Sequence[Frame]
) -> None:
    """Add the distance of slices to a SEG that does not state it; the data set is changed.

    highdicom would take the least distance between two frames, and would fill the slices between
    them on which nobody drew; for a single frame it would take 1 mm. The distance is that of the
    images that the SEG was drawn on, else the thickness of a slice.
    """
    lacking = []
    for keyword in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in dataset.get(keyword) or []:
            for item in group.get("PixelMeasuresSequence") or []:
                if not item.get("SpacingBetweenSlices"):
                    lacking.append(item)
    if not lacking:
        return
    first = frames[0]
    distance = first.thickness
    places = set()
    for image in images:
        if first.orientation is None or image.position is None or image.orientation is None:
            continue
        if _turned(image, first) <= ORIENTATION_TOLERANCE:
            places.add(round(_along(image, first), 2))
    if len(places) > 1:
        distance = float(np.median(np.diff(sorted(places))))
    if not distance:
        raise CadError(
            "a SEG that states neither SpacingBetweenSlices (0018,0088) nor SliceThickness "
            "(0018,0050): it is not known how thick its slices are",
            hint="export the SEG again",
        )
    for item in lacking:
        item.SpacingBetweenSlices = distance


def _check_sources(
    dataset: pydicom.Dataset,
    frames: Sequence[Frame],
    names: dict[int, str],
    images: Sequence[Frame],
    path: Path,
) -> None:
    """Refuse a frame of a wanted segment that lies in another plane than the image that it names.

    Frames that name several images, or an image of another orientation, are not compared.
    """
    by_uid: dict[str, list[Frame]] = defaultdict(list)
    for image in images:
        if image.position is not None and image.orientation is not None:
            by_uid[image.sop_uid].append(image)
    groups = dataset.get("PerFrameFunctionalGroupsSequence") or []
    for group, frame in zip(groups, frames, strict=True):
        name = _segment_name(group, names)
        sources: list[pydicom.Dataset] = []
        for derivation in group.get("DerivationImageSequence") or []:
            sources += derivation.get("SourceImageSequence") or []
        if name is None or not frame.position or not frame.orientation or len(sources) != 1:
            continue
        uid = str(sources[0].get("ReferencedSOPInstanceUID", "") or "")
        named = by_uid[uid]
        number = sources[0].get("ReferencedFrameNumber")
        if isinstance(number, int) and len(named) > 1:
            named = [image for image in named if image.index + 1 == number]
        turned = [_turned(image, frame) for image in named]
        if not named or max(turned) > ORIENTATION_TOLERANCE:
            continue
        away = min(abs(_along(image, frame) - _along(frame, frame)) for image in named)
        thickness = named[0].thickness or 0.0
        if away > max(_SAME_SLICE * thickness, POSITION_TOLERANCE_MM):
            raise CadError(
                f"a frame lies {away:.2f} mm off the plane of the image of "
                f"ReferencedSOPInstanceUID {uid} that it names; allowed is half its thickness",
                file=path,
                roi=name,
                hint="export the SEG again",
            )


def _turned(image: Frame, frame: Frame) -> float:
    """Return the largest difference between direction cosines of two slices."""
    return float(np.abs(np.array(image.orientation, float) - frame.orientation).max())


def _along(image: Frame, frame: Frame) -> float:
    """Return the position of a slice, in mm along the normal of a frame."""
    axes = np.array(frame.orientation, float).reshape(2, 3)
    return float(np.array(image.position, float) @ np.cross(axes[0], axes[1]))


def _segment_name(group: pydicom.Dataset, names: dict[int, str]) -> str | None:
    """Return the name of a frame's segment; None if it is not wanted."""
    items = group.get("SegmentIdentificationSequence")
    if not items:  # a frame that names no segment is one of a label map, and shows all segments
        return "" if names else None
    return names.get(int(items[0].ReferencedSegmentNumber))


def _wanted_segments(dataset: pydicom.Dataset, wanted: Wanted) -> dict[int, str]:
    """Return the names of the segments that are wanted, by number; the background (0) is none of
    them.
    """
    names = {}
    for item in dataset.SegmentSequence:
        number = int(item.SegmentNumber)
        name = str(item.get("SegmentLabel", "") or number)
        if number > 0 and wanted(name):
            names[number] = name
    return names


def _segment(seg: highdicom.seg.Segmentation, number: int, path: Path, name: str) -> Volume:
    """Return one segment as a boolean volume on its own grid."""
    with reading(path, "the frames form no regular grid, or are damaged", roi=name):
        volume = seg.get_volume(
            segment_numbers=[number], rescale_fractional=True, allow_missing_positions=True
        )
    if np.linalg.det(volume.affine[:3, :3][:, ::-1]) < 0:
        volume = volume.flip_spatial(0)
    # Turned from highdicom's order (slice, row, column) to x, y, z.
    axes = volume.affine[:3, :3][:, ::-1]
    spacing = np.linalg.norm(axes, axis=0)
    inside = volume.array[..., 0] >= _HALF
    origin = volume.affine[:3, 3]
    return Volume(inside, triple(spacing), triple(origin), axes / spacing)
