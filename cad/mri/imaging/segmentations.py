"""Read the segments of a SEG object: frames of voxels, each at a place that it states itself.

A frame fills the slice of the images that it was drawn on, and no other slice. Where the study
lacks these images, or the SEG has slices of its own that are thinner or thicker, the distance of
slices that the SEG states is taken.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset

from cad.base.errors import CadError, located, printable
from cad.mri.imaging.drawn_regions import (
    DrawnRegion,
    Wanted,
    check_approval,
    check_frame_of_reference,
    number_of,
    share_on_grid,
)
from cad.mri.imaging.elements import tagged
from cad.mri.imaging.frame_headers import check_identity, frames_of
from cad.mri.imaging.frames import ROUNDED, Frame
from cad.mri.imaging.pixel_checks import check_lines
from cad.mri.imaging.pixels import decoded
from cad.mri.imaging.stacks import (
    ORIENTATION_TOLERANCE,
    POSITION_TOLERANCE_MM,
    SPACING_TOLERANCE,
)
from cad.mri.imaging.structure_sets import OFF_PLANE
from cad.mri.imaging.volume import LARGEST_MM, Volume, triple

_LABEL_MAP = "LABELMAP"
_TYPES = ("BINARY", "FRACTIONAL", _LABEL_MAP)
_SAME_SLICE = 0.5  # farthest that a frame may lie from the image that it names, in slice distances
_SAME_PIXEL = 0.5  # farthest that a frame may reach beyond the image that it names, in pixels
_ROUNDED = 0.01  # share of the slice distance by which rounding may move a frame
_NO_GRID = "the frames form no regular grid, or are damaged"
_AGAIN = "export the SEG again"


@dataclass(frozen=True)
class _SegmentFrame:
    """Hold one frame of a wanted segment.

    Parameters
    ----------
    index : int
        Number of the frame in the file, from 0.
    shape : tuple of 2 ints
        Rows and columns.
    position : ndarray, shape (3,)
        Centre of its first pixel, LPS mm.
    axes : ndarray, shape (2, 3)
        Unit vectors along its rows and its columns.
    spacing : ndarray, shape (2,)
        Distance of its rows and of its columns, mm.
    numbers : tuple of int
        The segments that it shows; a label map shows all.
    sources : tuple of (str, int or None)
        SOPInstanceUID of every image that it was drawn on, and the number of the frame in it.
    """

    index: int
    shape: tuple[int, int]
    position: np.ndarray
    axes: np.ndarray
    spacing: np.ndarray
    numbers: tuple[int, ...]
    sources: tuple[tuple[str, int | None], ...]

    @property
    def label(self) -> str:
        """Return the frame's number from 1, for a message."""
        return f"frame {self.index + 1}"


@dataclass(frozen=True)
class _Slices:
    """Hold where slices lie along the normal of the frames.

    Parameters
    ----------
    first : float
        Place of slice 0, mm.
    distance : float
        From slice to slice, mm.
    count : int or None
        Number of slices; None where any number is possible.
    image : Frame or None
        An image in one of them, if they are those of images.
    """

    first: float
    distance: float
    count: int | None = None
    image: Frame | None = None

    def place(self, number: int) -> float:
        """Return where a slice lies, mm."""
        return self.first + number * self.distance

    def nearest(self, place: float) -> int:
        """Return the number of the slice that lies nearest to a place."""
        return round((place - self.first) / self.distance)

    def away(self, place: float) -> float:
        """Return how far a place is from the nearest slice, in slice distances."""
        number = self.nearest(place)
        if self.count is not None:
            number = min(max(number, 0), self.count - 1)
        return abs(place - self.place(number)) / self.distance


def wanted_segments(dataset: Dataset, wanted: Wanted) -> dict[int, str]:
    """Return the names of the segments that are to be read, by number.

    Raises
    ------
    CadError
        For a segment without a number, or of number 0 where this is not the background of a label
        map.
    """
    names = {}
    background = str(dataset.get("SegmentationType", "")) == _LABEL_MAP
    for item in dataset.SegmentSequence:
        number = number_of(item, "SegmentNumber")
        name = str(item.get("SegmentLabel", "") or number)
        if wanted(name) and number < 1 and not (number == 0 and background):
            raise CadError(
                f"{tagged('SegmentNumber')} is {number}; segments are numbered from 1 (PS3.3 "
                "C.8.20.4)",
                roi=name,
                hint=_AGAIN,
            )
        if number > 0 and wanted(name):
            names[number] = name
    return names


def read_segments(
    dataset: Dataset,
    path: Path,
    drawn_on: Volume,
    frame_uid: str,
    grid: Volume,
    wanted: Wanted,
    images: Sequence[Frame],
) -> tuple[list[DrawnRegion], list[str]]:
    """Read the segments of a SEG object.

    Parameters, results and errors are those of
    :func:`cad.mri.imaging.annotations.read_drawn_regions`.
    """
    names = wanted_segments(dataset, wanted)
    notes = []
    n_segments = 0
    for item in dataset.SegmentSequence:
        if item.SegmentNumber > 0:
            n_segments += 1
    unused = n_segments - len(names)
    if unused > 0:
        notes.append(f"{unused} segments that the rules do not ask for are left out")
    if not names:
        return [], notes
    check_approval(dataset, path)
    _check_object(dataset, path, names)
    for item in dataset.SegmentSequence:
        if int(item.SegmentNumber) in names:
            with located(file=path, roi=names[int(item.SegmentNumber)]):
                check_identity(item, dataset, "SegmentSequence")
    stated = str(dataset.get("FrameOfReferenceUID", "") or "")
    if not stated:
        raise CadError(
            "a SEG without FrameOfReferenceUID (0020,0052): its positions belong to no images",
            file=path,
            hint=_AGAIN,
        )
    check_frame_of_reference({stated}, frame_uid, path)
    pixels = decoded(dataset, path)
    with located(file=path):
        check_lines(pixels)
    if pixels.ndim == 2:
        pixels = pixels[np.newaxis]
    drawn = _frames(dataset, path, names)
    _check_segment_values(dataset, pixels, drawn, path)
    plane = _plane_of_frames(drawn, path, names)
    _check_sources(drawn, images, path, names)
    notes += _notes_on_sources(drawn, images, path)
    slices = _slices_of_frames(dataset, drawn, plane, drawn_on, images, path, names, notes)
    regions = []
    for number, name in names.items():
        frames = _frames_by_slice(drawn, number, plane, slices, path, name)
        faint = []
        for z in sorted(frames):
            if _is_faint(dataset, pixels[frames[z].index], number):
                faint.append(z)
        if faint:
            listed = ", ".join(str(z) for z in faint)
            notes.append(f"segment {number} fills no voxel of slice {listed} to one half")
        place = _segment_volume(dataset, pixels, frames, number, plane, slices)
        if not place.array.any():
            raise CadError(
                "the segment is empty: all of its frames are",
                file=path,
                roi=name,
                hint="draw it, or remove the segment",
            )
        share = share_on_grid(place, grid, path, name, notes, min(frames))
        twin = list(names.values()).count(name) > 1
        regions.append(DrawnRegion(name, share, path, number if twin else 0))
    return regions, notes


def _check_object(dataset: Dataset, path: Path, names: dict[int, str]) -> None:
    """Refuse a SEG of an unknown type, and one with two segments of one number."""
    type_ = str(dataset.get("SegmentationType", "") or "")
    if type_ not in _TYPES:
        raise CadError(
            f"{tagged('SegmentationType')} is {printable(type_)!r}, read are {', '.join(_TYPES)}",
            file=path,
            hint=_AGAIN,
        )
    if "TotalPixelMatrixColumns" in dataset or (
        dataset.get("DimensionOrganizationType") == "TILED_FULL"
    ):
        raise CadError(
            "a SEG of tiles (TotalPixelMatrixColumns), which are no slices of a patient",
            file=path,
            hint="draw the ROI on this study's images",
        )
    often = Counter(int(item.SegmentNumber) for item in dataset.SegmentSequence)
    for number, name in names.items():
        if often[number] > 1:
            raise CadError(
                f"two segments of SegmentNumber {number}; numbers tell segments apart (PS3.3 "
                "C.8.20.4)",
                file=path,
                roi=name,
                hint=_AGAIN,
            )


# --- frames --------------------------------------------------------------------------------------


def _frames(dataset: Dataset, path: Path, names: dict[int, str]) -> list[_SegmentFrame]:
    """Return the frames that show a wanted segment; frames that state two places are refused."""
    groups = dataset.get("PerFrameFunctionalGroupsSequence") or []
    if not groups:
        count = dataset.get("NumberOfFrames", 1)
        raise CadError(
            f"{_NO_GRID}: a SEG of {count} frames that does not say where each lies",
            file=path,
            hint=_AGAIN,
        )
    declared = {int(item.SegmentNumber) for item in dataset.SegmentSequence}
    drawn = []
    for group, frame in zip(groups, frames_of(dataset, path), strict=True):
        numbers = _segments_of(dataset, group, frame, declared, path)
        wanted = [number for number in sorted(numbers) if number in names]
        if wanted:
            roi = names[wanted[0]] if len(wanted) == 1 else ""
            drawn.append(_frame_with_place(frame, wanted, _sources(group), path, roi))
    for number, name in names.items():
        if not any(number in item.numbers for item in drawn):
            raise CadError(
                "the segment is empty: no frame shows it",
                file=path,
                roi=name,
                hint="draw it, or remove the segment",
            )
    return drawn


def _frame_with_place(
    frame: Frame,
    numbers: list[int],
    sources: list[tuple[str, int | None]],
    path: Path,
    roi: str,
) -> _SegmentFrame:
    """Return a frame with its place; refuse one that does not state it."""
    stated = {
        "ImagePositionPatient": frame.position,
        "ImageOrientationPatient": frame.orientation,
        "PixelSpacing": frame.pixel_spacing,
    }
    for keyword, value in stated.items():
        if value is None:
            raise CadError(
                f"{_NO_GRID}: frame {frame.index + 1} has no {tagged(keyword)} of finite numbers",
                file=path,
                roi=roi,
                hint=_AGAIN,
            )
    return _SegmentFrame(
        index=frame.index,
        shape=(frame.rows, frame.columns),
        position=np.array(frame.position, float),
        axes=np.array(frame.orientation, float).reshape(2, 3),
        spacing=np.array(frame.pixel_spacing, float),
        numbers=tuple(numbers),
        sources=tuple(sources),
    )


def _segments_of(
    dataset: Dataset, group: Dataset, frame: Frame, declared: set[int], path: Path
) -> set[int]:
    """Return the segment that a frame shows, or all segments of a label map."""
    if dataset.SegmentationType == _LABEL_MAP:
        return declared - {0}
    stated = []
    for place in (group, *(dataset.get("SharedFunctionalGroupsSequence") or [])):
        for item in place.get("SegmentIdentificationSequence") or []:
            stated.append(number_of(item, "ReferencedSegmentNumber"))
    numbers = set(stated)
    name = f"{tagged('ReferencedSegmentNumber')} of frame {frame.index + 1}"
    if not numbers:
        raise CadError(
            f"frame {frame.index + 1} without {tagged('ReferencedSegmentNumber')}: it is not known "
            "which segment it shows",
            file=path,
            hint=_AGAIN,
        )
    if len(numbers) > 1:
        listed = " and as ".join(str(number) for number in sorted(numbers))
        raise CadError(f"{name} stands twice, as {listed}", file=path, hint=_AGAIN)
    if not numbers <= declared:
        raise CadError(
            f"{name} is {stated[0]}, which no segment of the file has: a part of a drawing would "
            "be lost",
            file=path,
            hint=_AGAIN,
        )
    return numbers


def _sources(group: Dataset) -> list[tuple[str, int | None]]:
    """Return the SOPInstanceUIDs of the images that a frame was drawn on, and their frames."""
    sources = []
    for derivation in group.get("DerivationImageSequence") or []:
        for item in derivation.get("SourceImageSequence") or []:
            uid = str(item.get("ReferencedSOPInstanceUID", "") or "")
            number = item.get("ReferencedFrameNumber")
            if uid:
                sources.append((uid, number if isinstance(number, int) else None))
    return sources


def _check_segment_values(
    dataset: Dataset, pixels: np.ndarray, drawn: list[_SegmentFrame], path: Path
) -> None:
    """Refuse stored numbers that do not say where a segment is."""
    shown = np.unique(pixels[[item.index for item in drawn]])
    if dataset.SegmentationType == "BINARY" and len(set(shown.tolist()) - {0}) > 1:
        raise CadError(
            f"a BINARY segmentation with the values {_first(shown)}; it has 0 and one other",
            file=path,
            hint=_AGAIN,
        )
    if dataset.SegmentationType == "FRACTIONAL":
        highest = int(dataset.get("MaximumFractionalValue", 0) or 0)
        if highest < 1 or shown.max() > highest:
            raise CadError(
                f"{tagged('MaximumFractionalValue')} is {highest}, but the frames have values of "
                f"up to {shown.max()}",
                file=path,
                hint=_AGAIN,
            )
    if dataset.SegmentationType == _LABEL_MAP:
        background = dataset.get("PixelPaddingValue")
        declared = {int(item.SegmentNumber) for item in dataset.SegmentSequence}
        unknown = set(shown.tolist()) - declared - {0}
        if unknown or background not in (None, 0):
            raise CadError(
                f"a label map with the values {_first(shown)} and the background "
                f"{background or 0}; expected are 0 for the background and the numbers of the "
                f"segments, {_first(np.array(sorted(declared)))}",
                file=path,
                hint=_AGAIN,
            )


def _first(values: np.ndarray) -> str:
    """Return the first few of a list of numbers, for a message."""
    texts = [str(value) for value in values[:5].tolist()]
    if len(values) > 5:
        texts.append("…")
    return ", ".join(texts)


# --- places --------------------------------------------------------------------------------------


def _plane_of_frames(drawn: list[_SegmentFrame], path: Path, names: dict[int, str]) -> Volume:
    """Return the first frame of the SEG as a volume of one slice, 1 mm thick.

    An error is raised if another frame is not parallel to the first, lies beside it, or has pixels
    of another size.
    """
    first = drawn[0]
    normal = np.cross(first.axes[0], first.axes[1])
    plane = Volume(
        np.broadcast_to(np.zeros((), bool), (1, *first.shape)),
        (float(first.spacing[1]), float(first.spacing[0]), 1.0),
        triple(first.position),
        np.stack([*first.axes, normal], axis=1),
    )
    for item in drawn:
        beside = first.axes @ (item.position - first.position)
        if (
            np.abs(item.axes - first.axes).max() > ORIENTATION_TOLERANCE
            or not np.allclose(item.spacing, first.spacing, rtol=ROUNDED)
            or np.abs(beside).max() > POSITION_TOLERANCE_MM
        ):
            raise CadError(
                f"{_NO_GRID}: {item.label} lies beside {first.label}, is turned against it, or has "
                "other pixels",
                file=path,
                roi=_segment_name(item, names),
                hint=_AGAIN,
            )
    return plane


def _segment_name(item: _SegmentFrame, names: dict[int, str]) -> str:
    """Return the name of the segment that a frame shows; empty if it shows several."""
    return names[item.numbers[0]] if len(item.numbers) == 1 else ""


def _along(plane: Volume, position: np.ndarray) -> float:
    """Return how far a position lies from a plane, in mm along the plane's normal (signed)."""
    return float((position - plane.origin) @ plane.direction[:, 2])


def _is_parallel(plane: Volume, image: Frame) -> bool:
    """Tell whether an image is parallel to a plane; False if it does not say where it lies."""
    if image.position is None or image.orientation is None:
        return False
    x, y = np.array(image.orientation, float).reshape(2, 3)
    return _is_normal(np.cross(x, y), plane)


def _is_normal(direction: np.ndarray, plane: Volume) -> bool:
    """Tell whether a direction is the normal of a plane, in either sense."""
    normal = plane.direction[:, 2]
    turned = min(np.abs(direction - normal).max(), np.abs(direction + normal).max())
    return bool(turned <= ORIENTATION_TOLERANCE)


def _images_of_frame(item: _SegmentFrame, images: Sequence[Frame]) -> list[Frame]:
    """Return the images that a frame of the SEG names as drawn on, if they say where they lie."""
    named = []
    for uid, number in item.sources:
        same = [image for image in images if image.sop_uid == uid]
        if number is not None and len(same) > 1:
            same = [image for image in same if image.index + 1 == number]
        for image in same:
            if image.position is not None and image.orientation is not None:
                named.append(image)
    return named


def _check_sources(
    drawn: list[_SegmentFrame], images: Sequence[Frame], path: Path, names: dict[int, str]
) -> None:
    """Refuse a frame of the SEG that lies in another plane than every image that it names.

    An image of another orientation than the frame is not compared with it.
    """
    for item in drawn:
        normal = np.cross(item.axes[0], item.axes[1])
        nearest: tuple[float, float, Frame] | None = None
        for image in _images_of_frame(item, images):
            if not _has_axes(item, image):
                continue
            _check_sides(item, image, path, names)
            away = abs(float((np.array(image.position, float) - item.position) @ normal))
            limit = max(_SAME_SLICE * (image.thickness or 0.0), POSITION_TOLERANCE_MM)
            if nearest is None or away - limit < nearest[0] - nearest[1]:
                nearest = (away, limit, image)
        if nearest is not None and nearest[0] > nearest[1]:
            away, _, image = nearest
            raise CadError(
                f"a frame lies {away:.2f} mm off the plane of the image of "
                f"ReferencedSOPInstanceUID {image.sop_uid} that it names; allowed is half its "
                "thickness",
                file=path,
                roi=_segment_name(item, names),
                hint=_AGAIN,
            )


def _notes_on_sources(drawn: list[_SegmentFrame], images: Sequence[Frame], path: Path) -> list[str]:
    """Return a note on frames that name images, but none of the series that the SEG names."""
    instances = {image.sop_uid for image in images}
    strange = 0
    for item in drawn:
        uids = {uid for uid, _ in item.sources}
        if instances and uids and not uids & instances:
            strange += 1
    if not strange:
        return []
    return [
        f"{strange} of {len(drawn)} frames of {path.name} name images that its series does not "
        "have; their own positions say where they lie"
    ]


def _has_axes(item: _SegmentFrame, image: Frame) -> bool:
    """Tell whether rows and columns of a frame of the SEG have the directions of an image's."""
    axes = np.array(image.orientation, float).reshape(2, 3)
    return bool(np.abs(axes - item.axes).max() <= ORIENTATION_TOLERANCE)


def _check_sides(item: _SegmentFrame, image: Frame, path: Path, names: dict[int, str]) -> None:
    """Refuse a frame of the SEG that does not fit the image on which it was drawn.

    In two cases the frame's position, PixelSpacing, or Rows and Columns must be wrong. First, it
    has pixels of the image's size and reaches beyond the image. Second, it begins at the image's
    first pixel and has as many rows and columns, but pixels of another size. A frame that covers
    only a part of the image is read, and so is a frame with pixels of another size and number.
    """
    if image.pixel_spacing is None:
        return
    spacing = np.array(image.pixel_spacing, float)
    first = item.axes @ (item.position - np.array(image.position, float)) / spacing[::-1]
    same_size = np.allclose(spacing, item.spacing, rtol=ROUNDED)
    begins_alike = bool(np.abs(first).max() <= _SAME_PIXEL)
    beyond = first + np.array(item.shape[::-1]) - (image.columns, image.rows)
    outside = max(float(-first.min()), float(beyond.max())) > _SAME_PIXEL
    same_number = item.shape == (image.rows, image.columns)
    if (same_size and outside) or (not same_size and same_number and begins_alike):
        raise CadError(
            f"{item.label} has {item.shape[0]} Rows and {item.shape[1]} Columns of "
            f"{item.spacing[0]:.4g} x {item.spacing[1]:.4g} mm and begins {first[0]:.1f} columns "
            f"and {first[1]:.1f} rows from the first pixel of the image of "
            f"ReferencedSOPInstanceUID {image.sop_uid} that it was drawn on; this has {image.rows} "
            f"Rows and {image.columns} Columns of {spacing[0]:.4g} x {spacing[1]:.4g} mm",
            file=path,
            roi=_segment_name(item, names),
            hint=_AGAIN,
        )


def _slices_of_frames(
    dataset: Dataset,
    drawn: list[_SegmentFrame],
    plane: Volume,
    drawn_on: Volume,
    images: Sequence[Frame],
    path: Path,
    names: dict[int, str],
    notes: list[str],
) -> _Slices:
    """Return the slices that the frames of the SEG fill; refuse frames that lie between slices.

    The slices are those of the series on which the SEG was drawn, or those of ``drawn_on`` if this
    series is not known. If the SEG states another distance between slices than theirs, it has
    slices of its own, and a note says so.
    """
    stated = _stated_distance(dataset, "SpacingBetweenSlices")
    thickness = _stated_distance(dataset, "SliceThickness")
    of_series = _slices_of_images(drawn, plane, images, stated, path)
    of_images = of_series or _slices_of_grid(plane, drawn_on)
    if not of_series and not stated and not thickness:
        raise CadError(
            "a SEG that states neither SpacingBetweenSlices (0018,0088) nor SliceThickness "
            "(0018,0050), and whose images the study does not have: it is not known how thick its "
            "slices are",
            file=path,
            hint=_AGAIN,
        )
    if of_images and (not stated or _agree(stated, of_images.distance)):
        if of_series:
            _check_on_slices(drawn, plane, of_series, images, path, names)
            return of_series
        if max(of_images.away(_along(plane, item.position)) for item in drawn) <= OFF_PLANE:
            return of_images
    slices = _slices_of_seg(drawn, plane, stated, thickness, of_images, path, names)
    if of_images and not _agree(slices.distance, of_images.distance):
        notes.append(
            f"{path.name} has slices of its own, {_in_mm(slices.distance)} apart; those of the "
            f"images are {_in_mm(of_images.distance)} apart"
        )
    return slices


def _check_on_slices(
    drawn: list[_SegmentFrame],
    plane: Volume,
    slices: _Slices,
    images: Sequence[Frame],
    path: Path,
    names: dict[int, str],
) -> None:
    """Refuse a frame that lies between the slices of its images, or in another than it names."""
    for item in drawn:
        place = _along(plane, item.position)
        away = slices.away(place)
        named = [image for image in _images_of_frame(item, images) if _is_parallel(plane, image)]
        if slices.image and not named and _has_axes(item, slices.image):
            _check_sides(item, slices.image, path, names)
        allowed = _SAME_SLICE if named else OFF_PLANE
        if away > allowed:
            raise CadError(
                f"{item.label} lies {away * slices.distance:.2f} mm off the nearest slice of the "
                f"images that the SEG was drawn on; allowed is {allowed * slices.distance:.2f} mm",
                file=path,
                roi=_segment_name(item, names),
                hint="the images it was drawn on are missing: export them, too",
            )
        numbers = set()
        for image in named:
            numbers.add(slices.nearest(_along(plane, np.array(image.position, float))))
        if numbers and slices.nearest(place) not in numbers:
            raise CadError(
                f"{item.label} lies on slice {slices.nearest(place)}, but the image of "
                f"ReferencedSOPInstanceUID {named[0].sop_uid} that it names is slice "
                f"{min(numbers)}",
                file=path,
                roi=_segment_name(item, names),
                hint=_AGAIN,
            )


def _slices_of_seg(
    drawn: list[_SegmentFrame],
    plane: Volume,
    stated: float | None,
    thickness: float | None,
    of_images: _Slices | None,
    path: Path,
    names: dict[int, str],
) -> _Slices:
    """Return the slices by the distance that the SEG states; refuse what contradicts it."""
    distance = stated or thickness
    if not distance or (thickness and not _agree(distance, thickness)):
        problem = (
            f"{tagged('SpacingBetweenSlices')} is {_in_mm(stated)} and "
            f"{tagged('SliceThickness')} {_in_mm(thickness)}"
        )
        if of_images:
            problem += f", and the slices of the images are {_in_mm(of_images.distance)} apart"
        raise CadError(
            f"{problem}: it is not known how thick the slices of the SEG are",
            file=path,
            roi=_segment_name(drawn[0], names),
            hint=_AGAIN,
        )
    slices = _Slices(0.0, distance)
    for item in drawn:
        away = slices.away(_along(plane, item.position))
        if away > OFF_PLANE:
            raise CadError(
                f"{_NO_GRID}: {item.label} lies {away * distance:.2f} mm beside slices that are "
                f"{_in_mm(distance)} apart",
                file=path,
                roi=_segment_name(item, names),
                hint=_AGAIN,
            )
    return slices


def _in_mm(distance: float | None) -> str:
    return "not stated" if distance is None else f"{distance:.4g} mm"


def _stated_distance(dataset: Dataset, keyword: str) -> float | None:
    """Return a distance of slices or thickness that a SEG states, mm; None without one."""
    places = [dataset]
    for sequence in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in dataset.get(sequence) or []:
            places += group.get("PixelMeasuresSequence") or []
    stated = set()
    for place in places:
        value = place.get(keyword)
        if value is None or value == "":
            continue
        distance = abs(float(value))
        if not math.isfinite(distance):
            raise CadError(f"{tagged(keyword)} is {distance:g}, and no distance", hint=_AGAIN)
        stated.add(distance)
    if stated and not _agree(min(stated), max(stated)):
        raise CadError(
            f"{tagged(keyword)} is stated as {min(stated):g} and as {max(stated):g} mm; all slices "
            "of a SEG have one distance, and one thickness",
            hint=_AGAIN,
        )
    largest = max(stated, default=0.0)
    return largest if 0 < largest <= LARGEST_MM else None


def _agree(first: float, second: float) -> bool:
    """Tell whether two distances of slices are one, as slices of an image may differ."""
    return abs(first - second) <= max(SPACING_TOLERANCE * second, POSITION_TOLERANCE_MM)


def _slices_of_images(
    drawn: list[_SegmentFrame],
    plane: Volume,
    images: Sequence[Frame],
    stated: float | None,
    path: Path,
) -> _Slices | None:
    """Return the slices of the series that a SEG was drawn on; None if the study lacks it.

    If the frames name images, it is a series of these. Of several series, those are taken whose
    slices have the stated distance, and of these the one whose slices lie nearest to the frames.
    """
    series_uids = set()
    for item in drawn:
        for image in _images_of_frame(item, images):
            series_uids.add(image.series_uid)
    if not series_uids:
        series_uids = {image.series_uid for image in images}
    candidates = []
    for uid in sorted(series_uids):
        of_series = [image for image in images if image.series_uid == uid]
        slices = _slices_of_series(of_series, plane)
        if slices is not None:
            candidates.append(slices)
    if stated:
        matching = [slices for slices in candidates if _agree(stated, slices.distance)]
        candidates = matching or candidates
    if not candidates:
        return None
    farthest = []  # for each candidate, how far a frame lies from its slices, in slice distances
    for slices in candidates:
        farthest.append(max(slices.away(_along(plane, item.position)) for item in drawn))
    nearest = []
    for slices, away in zip(candidates, farthest, strict=True):
        if away <= min(farthest) + _ROUNDED:
            nearest.append(slices)
    for slices in nearest[1:]:
        if not _agree(slices.distance, nearest[0].distance):
            raise CadError(
                f"drawn on {len(nearest)} series whose slices are "
                f"{_in_mm(nearest[0].distance)} and {_in_mm(slices.distance)} apart: it is not "
                "known how thick its slices are",
                file=path,
                hint="export a SEG that names the series it was drawn on",
            )
    return nearest[0]


def _slices_of_series(images: Sequence[Frame], plane: Volume) -> _Slices | None:
    """Return the slices of a series that are parallel to a plane; None if none is."""
    parallel = [image for image in images if _is_parallel(plane, image)]
    if not parallel:
        return None
    places: list[float] = []
    for along in sorted(_along(plane, np.array(image.position, float)) for image in parallel):
        # Images of several times, as in a dynamic series, lie at one place, which counts once.
        if not places or along - places[-1] > POSITION_TOLERANCE_MM:
            places.append(along)
    distance = parallel[0].thickness
    if len(places) > 1:
        distance = (places[-1] - places[0]) / (len(places) - 1)
    return _Slices(places[0], distance, len(places), parallel[0]) if distance else None


def _slices_of_grid(plane: Volume, drawn_on: Volume) -> _Slices | None:
    """Return the slices of a grid; None if they are not parallel to a plane."""
    if not _is_normal(drawn_on.direction[:, 2], plane):
        return None
    first, last = drawn_on.index_to_patient(np.array([[0, 0, 0], [0, 0, drawn_on.shape[0] - 1.0]]))
    start = min(_along(plane, first), _along(plane, last))
    return _Slices(start, drawn_on.spacing[2], drawn_on.shape[0])


# --- voxels --------------------------------------------------------------------------------------


def _frames_by_slice(
    drawn: list[_SegmentFrame], number: int, plane: Volume, slices: _Slices, path: Path, name: str
) -> dict[int, _SegmentFrame]:
    """Return the frames of a segment by slice; refuse two of them in one slice."""
    frames: dict[int, _SegmentFrame] = {}
    for item in drawn:
        if number not in item.numbers:
            continue
        z = slices.nearest(_along(plane, item.position))
        if z in frames:
            raise CadError(
                f"{_NO_GRID}: {frames[z].label} and {item.label} of one segment lie in one slice",
                file=path,
                roi=name,
                hint=_AGAIN,
            )
        frames[z] = item
    return frames


def _segment_volume(
    dataset: Dataset,
    pixels: np.ndarray,
    frames: dict[int, _SegmentFrame],
    number: int,
    plane: Volume,
    slices: _Slices,
) -> Volume:
    """Return a segment as a volume from its first to its last slice.

    A voxel is 1 if it belongs to the segment, and 0 otherwise. Between two frames may lie slices
    without a frame; they are 0.

    Parameters
    ----------
    frames : dict of int to _SegmentFrame
        The segment's frames, by the number of the slice on which each lies.
    number : int
        SegmentNumber of the segment.
    plane : Volume
        The plane of the frames, from which places are measured in mm.
    """
    first = min(frames)
    last = max(frames)
    inside = np.zeros((last - first + 1, *plane.shape[1:]), np.float32)
    for z, frame in frames.items():
        inside[z - first] = _segment_voxels(dataset, pixels[frame.index], number)

    # The frames lie on the slices if only rounding parts them. Then their own positions say where
    # the volume begins and how far its slices are apart, as they have more digits.
    on_slices = True
    for frame in frames.values():
        if slices.away(_along(plane, frame.position)) > _ROUNDED:
            on_slices = False
    start = slices.place(first)
    distance = slices.distance
    if on_slices:
        start = _along(plane, frames[first].position)
    if on_slices and last > first:
        distance = (_along(plane, frames[last].position) - start) / (last - first)
    origin = np.array(plane.origin) + start * plane.direction[:, 2]
    return Volume(inside, (*plane.spacing[:2], distance), triple(origin), plane.direction)


def _is_faint(dataset: Dataset, stored: np.ndarray, number: int) -> bool:
    """Tell whether a frame of shares has some, but none of one half or more."""
    fractional = dataset.SegmentationType == "FRACTIONAL"
    return bool(fractional and stored.any() and not _segment_voxels(dataset, stored, number).any())


def _segment_voxels(dataset: Dataset, stored: np.ndarray, number: int) -> np.ndarray:
    """Return the voxels of a frame that belong to a segment."""
    if dataset.SegmentationType == _LABEL_MAP:
        inside = stored == number
    elif dataset.SegmentationType == "FRACTIONAL":
        inside = 2 * stored.astype(np.int64) >= int(dataset.MaximumFractionalValue)
    else:
        inside = stored != 0
    return np.asarray(inside)
