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
_LISTED = 5  # most numbers that a message lists
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
        if self.count is not None:  # a place beyond the ends is measured from the slice at the end
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
    is_label_map = str(dataset.get("SegmentationType", "")) == _LABEL_MAP
    for item in dataset.SegmentSequence:
        number = number_of(item, "SegmentNumber")
        name = str(item.get("SegmentLabel", "") or number)
        if not wanted(name):
            continue
        is_background = number == 0 and is_label_map
        if number < 1 and not is_background:
            raise CadError(
                f"{tagged('SegmentNumber')} is {number}; segments are numbered from 1 (PS3.3 "
                "C.8.20.4)",
                roi=name,
                hint=_AGAIN,
            )
        if number > 0:
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
    # Which segments are read
    names = wanted_segments(dataset, wanted)
    notes = []
    n_segments = 0
    for item in dataset.SegmentSequence:
        if item.SegmentNumber > 0:  # 0 is the background of a label map
            n_segments += 1
    n_unused = n_segments - len(names)
    if n_unused > 0:
        notes.append(f"{n_unused} segments that the rules do not ask for are left out")
    if not names:
        return [], notes

    # Whether the object may be read at all, and belongs to the images
    check_approval(dataset, path)
    _check_object(dataset, path, names)
    for item in dataset.SegmentSequence:
        if int(item.SegmentNumber) in names:
            with located(file=path, roi=names[int(item.SegmentNumber)]):
                check_identity(item, dataset, "SegmentSequence")
    stated_frame_uid = str(dataset.get("FrameOfReferenceUID", "") or "")
    if not stated_frame_uid:
        raise CadError(
            "a SEG without FrameOfReferenceUID (0020,0052): its positions belong to no images",
            file=path,
            hint=_AGAIN,
        )
    check_frame_of_reference({stated_frame_uid}, frame_uid, path)

    # The frames: their content and their places
    pixels = decoded(dataset, path)
    with located(file=path):
        check_lines(pixels)
    if pixels.ndim == 2:  # a SEG of a single frame
        pixels = pixels[np.newaxis]
    segment_frames = _segment_frames(dataset, path, names)
    _check_segment_values(dataset, pixels, segment_frames, path)
    plane = _plane_of_frames(segment_frames, path, names)
    _check_sources(segment_frames, images, path, names)
    notes += _notes_on_sources(segment_frames, images, path)
    slices = _slices_of_frames(dataset, segment_frames, plane, drawn_on, images, path, names, notes)

    # Each segment, from its frames onto the grid
    regions = []
    for number, name in names.items():
        frames = _frames_by_slice(segment_frames, number, plane, slices, path, name)
        faint_slices = []
        for z in sorted(frames):
            if _is_faint(dataset, pixels[frames[z].index], number):
                faint_slices.append(str(z))
        if faint_slices:
            listed = ", ".join(faint_slices)
            notes.append(f"segment {number} fills no voxel of slice {listed} to one half")
        segment = _segment_volume(dataset, pixels, frames, number, plane, slices)
        if not segment.array.any():
            raise CadError(
                "the segment is empty: all of its frames are",
                file=path,
                roi=name,
                hint="draw it, or remove the segment",
            )
        share = share_on_grid(segment, grid, path, name, notes, first=min(frames))
        # The number is only needed to tell two segments of one name apart.
        has_namesake = list(names.values()).count(name) > 1
        regions.append(DrawnRegion(name, share, path, number=number if has_namesake else 0))
    return regions, notes


def _check_object(dataset: Dataset, path: Path, names: dict[int, str]) -> None:
    """Refuse a SEG of an unknown type or of tiles, and one with two segments of one number."""
    type_ = str(dataset.get("SegmentationType", "") or "")
    if type_ not in _TYPES:
        raise CadError(
            f"{tagged('SegmentationType')} is {printable(type_)!r}, read are {', '.join(_TYPES)}",
            file=path,
            hint=_AGAIN,
        )
    is_tiled = dataset.get("DimensionOrganizationType") == "TILED_FULL"
    if "TotalPixelMatrixColumns" in dataset or is_tiled:
        raise CadError(
            "a SEG of tiles (TotalPixelMatrixColumns), which are no slices of a patient",
            file=path,
            hint="draw the ROI on this study's images",
        )
    segments_of_number = Counter(int(item.SegmentNumber) for item in dataset.SegmentSequence)
    for number, name in names.items():
        if segments_of_number[number] > 1:
            raise CadError(
                f"two segments of SegmentNumber {number}; numbers tell segments apart (PS3.3 "
                "C.8.20.4)",
                file=path,
                roi=name,
                hint=_AGAIN,
            )


# --- frames --------------------------------------------------------------------------------------


def _segment_frames(dataset: Dataset, path: Path, names: dict[int, str]) -> list[_SegmentFrame]:
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
    segment_frames = []
    for group, frame in zip(groups, frames_of(dataset, path), strict=True):
        numbers = _segments_of(dataset, group, frame, declared, path)
        wanted_numbers = [number for number in sorted(numbers) if number in names]
        if wanted_numbers:
            # A message names the segment, unless the frame shows several.
            roi = names[wanted_numbers[0]] if len(wanted_numbers) == 1 else ""
            sources = _sources(group)
            segment_frames.append(_frame_with_place(frame, wanted_numbers, sources, path, roi))
    for number, name in names.items():
        if not any(number in frame.numbers for frame in segment_frames):
            raise CadError(
                "the segment is empty: no frame shows it",
                file=path,
                roi=name,
                hint="draw it, or remove the segment",
            )
    return segment_frames


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
    """Return the segment that a frame shows, or all segments of a label map.

    ``group`` is the functional group of the frame, and ``declared`` has the segments of the file.
    """
    if dataset.SegmentationType == _LABEL_MAP:
        return declared - {0}  # 0 is the background
    numbers = set()
    for any_group in (group, *(dataset.get("SharedFunctionalGroupsSequence") or [])):
        for item in any_group.get("SegmentIdentificationSequence") or []:
            numbers.add(number_of(item, "ReferencedSegmentNumber"))
    element = f"{tagged('ReferencedSegmentNumber')} of frame {frame.index + 1}"
    if not numbers:
        raise CadError(
            f"frame {frame.index + 1} without {tagged('ReferencedSegmentNumber')}: it is not known "
            "which segment it shows",
            file=path,
            hint=_AGAIN,
        )
    if len(numbers) > 1:
        listed = " and as ".join(str(number) for number in sorted(numbers))
        raise CadError(f"{element} stands twice, as {listed}", file=path, hint=_AGAIN)
    if not numbers <= declared:
        raise CadError(
            f"{element} is {min(numbers)}, which no segment of the file has: a part of a drawing "
            "would be lost",
            file=path,
            hint=_AGAIN,
        )
    return numbers


def _sources(group: Dataset) -> list[tuple[str, int | None]]:
    """Return the SOPInstanceUIDs of the images that a frame was drawn on, and their frames.

    The number of the frame is None where the image has only one, or it is not stated.
    """
    sources = []
    for derivation in group.get("DerivationImageSequence") or []:
        for item in derivation.get("SourceImageSequence") or []:
            uid = str(item.get("ReferencedSOPInstanceUID", "") or "")
            frame_number = item.get("ReferencedFrameNumber")
            if uid:
                sources.append((uid, frame_number if isinstance(frame_number, int) else None))
    return sources


def _check_segment_values(
    dataset: Dataset, pixels: np.ndarray, segment_frames: list[_SegmentFrame], path: Path
) -> None:
    """Refuse stored numbers that do not say where a segment is."""
    shown = np.unique(pixels[[frame.index for frame in segment_frames]])
    if dataset.SegmentationType == "BINARY" and len(set(shown.tolist()) - {0}) > 1:
        raise CadError(
            f"a BINARY segmentation with the values {_first_numbers(shown)}; it has 0 and one "
            "other",
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
                f"a label map with the values {_first_numbers(shown)} and the background "
                f"{background or 0}; expected are 0 for the background and the numbers of the "
                f"segments, {_first_numbers(np.array(sorted(declared)))}",
                file=path,
                hint=_AGAIN,
            )


def _first_numbers(values: np.ndarray) -> str:
    """Return the first few of a list of numbers, for a message."""
    texts = [str(value) for value in values[:_LISTED].tolist()]
    if len(values) > _LISTED:
        texts.append("…")
    return ", ".join(texts)


# --- places --------------------------------------------------------------------------------------


def _plane_of_frames(
    segment_frames: list[_SegmentFrame], path: Path, names: dict[int, str]
) -> Volume:
    """Return the first frame of the SEG as a volume of one slice, 1 mm thick.

    An error is raised if another frame is not parallel to the first, lies beside it, or has pixels
    of another size.
    """
    first = segment_frames[0]
    normal = np.cross(first.axes[0], first.axes[1])
    row_distance, column_distance = first.spacing
    plane = Volume(
        array=np.broadcast_to(np.zeros((), bool), (1, *first.shape)),  # needs no memory
        spacing=(float(column_distance), float(row_distance), 1.0),
        origin=triple(first.position),
        direction=np.stack([*first.axes, normal], axis=1),
    )
    for frame in segment_frames:
        beside_mm = first.axes @ (frame.position - first.position)  # within the plane
        is_turned = np.abs(frame.axes - first.axes).max() > ORIENTATION_TOLERANCE
        has_other_pixels = not np.allclose(frame.spacing, first.spacing, rtol=ROUNDED)
        lies_beside = np.abs(beside_mm).max() > POSITION_TOLERANCE_MM
        if is_turned or has_other_pixels or lies_beside:
            raise CadError(
                f"{_NO_GRID}: {frame.label} lies beside {first.label}, is turned against it, or "
                "has other pixels",
                file=path,
                roi=_segment_name(frame, names),
                hint=_AGAIN,
            )
    return plane


def _segment_name(frame: _SegmentFrame, names: dict[int, str]) -> str:
    """Return the name of the segment that a frame shows; empty if it shows several."""
    return names[frame.numbers[0]] if len(frame.numbers) == 1 else ""


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
    difference = min(np.abs(direction - normal).max(), np.abs(direction + normal).max())
    return bool(difference <= ORIENTATION_TOLERANCE)


def _images_of_frame(frame: _SegmentFrame, images: Sequence[Frame]) -> list[Frame]:
    """Return the images that a frame of the SEG names as drawn on, if they say where they lie."""
    named_images = []
    for uid, number in frame.sources:
        of_uid = [image for image in images if image.sop_uid == uid]
        # In a multi-frame file, all frames have the UID of the file.
        if number is not None and len(of_uid) > 1:
            of_uid = [image for image in of_uid if image.index + 1 == number]
        for image in of_uid:
            if image.position is not None and image.orientation is not None:
                named_images.append(image)
    return named_images


def _check_sources(
    segment_frames: list[_SegmentFrame], images: Sequence[Frame], path: Path, names: dict[int, str]
) -> None:
    """Refuse a frame of the SEG that lies in another plane than every image that it names.

    An image of another orientation than the frame is not compared with it.
    """
    for frame in segment_frames:
        normal = np.cross(frame.axes[0], frame.axes[1])
        # How far beyond its limit the frame lies from each image, with this distance itself. The
        # frame has to lie near one of its images; that with the least excess is judged.
        nearest: Frame | None = None
        nearest_away_mm = 0.0
        least_excess_mm = math.inf
        for image in _images_of_frame(frame, images):
            if not _has_axes(frame, image):
                continue
            _check_sides(frame, image, path, names)
            away_mm = abs(float((np.array(image.position, float) - frame.position) @ normal))
            limit_mm = max(_SAME_SLICE * (image.thickness or 0.0), POSITION_TOLERANCE_MM)
            if away_mm - limit_mm < least_excess_mm:
                nearest = image
                nearest_away_mm = away_mm
                least_excess_mm = away_mm - limit_mm
        if nearest is not None and least_excess_mm > 0:
            raise CadError(
                f"a frame lies {nearest_away_mm:.2f} mm off the plane of the image of "
                f"ReferencedSOPInstanceUID {nearest.sop_uid} that it names; allowed is half its "
                "thickness",
                file=path,
                roi=_segment_name(frame, names),
                hint=_AGAIN,
            )


def _notes_on_sources(
    segment_frames: list[_SegmentFrame], images: Sequence[Frame], path: Path
) -> list[str]:
    """Return a note on frames that name images, but none of the series that the SEG names."""
    image_uids = {image.sop_uid for image in images}
    n_unmatched = 0
    for frame in segment_frames:
        named_uids = {uid for uid, _ in frame.sources}
        if image_uids and named_uids and not named_uids & image_uids:
            n_unmatched += 1
    if not n_unmatched:
        return []
    return [
        f"{n_unmatched} of {len(segment_frames)} frames of {path.name} name images that its series "
        "does not have; their own positions say where they lie"
    ]


def _has_axes(frame: _SegmentFrame, image: Frame) -> bool:
    """Tell whether rows and columns of a frame of the SEG have the directions of an image's."""
    axes = np.array(image.orientation, float).reshape(2, 3)
    return bool(np.abs(axes - frame.axes).max() <= ORIENTATION_TOLERANCE)


def _check_sides(frame: _SegmentFrame, image: Frame, path: Path, names: dict[int, str]) -> None:
    """Refuse a frame of the SEG that does not fit the image on which it was drawn.

    In two cases the frame's position, PixelSpacing, or Rows and Columns must be wrong. First, it
    has pixels of the image's size and reaches beyond the image. Second, it begins at the image's
    first pixel and has as many rows and columns, but pixels of another size. A frame that covers
    only a part of the image is read, and so is a frame with pixels of another size and number.
    """
    if image.pixel_spacing is None:
        return
    spacing = np.array(image.pixel_spacing, float)
    # The frame's first pixel, and how far its last pixel lies behind the image's last, both in
    # pixels of the image: along the columns, then along the rows.
    offset_mm = frame.axes @ (frame.position - np.array(image.position, float))
    first = offset_mm / spacing[::-1]
    beyond = first + np.array(frame.shape[::-1]) - (image.columns, image.rows)
    same_pixel_size = np.allclose(spacing, frame.spacing, rtol=ROUNDED)
    begins_alike = bool(np.abs(first).max() <= _SAME_PIXEL)
    is_outside = max(float(-first.min()), float(beyond.max())) > _SAME_PIXEL
    same_number = frame.shape == (image.rows, image.columns)
    if (same_pixel_size and is_outside) or (not same_pixel_size and same_number and begins_alike):
        raise CadError(
            f"{frame.label} has {frame.shape[0]} Rows and {frame.shape[1]} Columns of "
            f"{frame.spacing[0]:.4g} x {frame.spacing[1]:.4g} mm and begins {first[0]:.1f} columns "
            f"and {first[1]:.1f} rows from the first pixel of the image of "
            f"ReferencedSOPInstanceUID {image.sop_uid} that it was drawn on; this has {image.rows} "
            f"Rows and {image.columns} Columns of {spacing[0]:.4g} x {spacing[1]:.4g} mm",
            file=path,
            roi=_segment_name(frame, names),
            hint=_AGAIN,
        )


def _slices_of_frames(
    dataset: Dataset,
    segment_frames: list[_SegmentFrame],
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
    stated_distance = _stated_distance(dataset, "SpacingBetweenSlices")
    stated_thickness = _stated_distance(dataset, "SliceThickness")
    series_slices = _slices_of_images(segment_frames, plane, images, stated_distance, path)
    image_slices = series_slices or _slices_of_grid(plane, drawn_on)
    if not series_slices and not stated_distance and not stated_thickness:
        raise CadError(
            "a SEG that states neither SpacingBetweenSlices (0018,0088) nor SliceThickness "
            "(0018,0050), and whose images the study does not have: it is not known how thick its "
            "slices are",
            file=path,
            hint=_AGAIN,
        )
    if image_slices and (not stated_distance or _agree(stated_distance, image_slices.distance)):
        if series_slices:
            _check_on_slices(segment_frames, plane, series_slices, images, path, names)
            return series_slices
        # The grid may be that of another series, so the frames need not lie on its slices.
        if _farthest_frame(segment_frames, plane, image_slices) <= OFF_PLANE:
            return image_slices
    slices = _slices_of_seg(
        segment_frames, plane, stated_distance, stated_thickness, image_slices, path, names
    )
    if image_slices and not _agree(slices.distance, image_slices.distance):
        notes.append(
            f"{path.name} has slices of its own, {_in_mm(slices.distance)} apart; those of the "
            f"images are {_in_mm(image_slices.distance)} apart"
        )
    return slices


def _farthest_frame(segment_frames: list[_SegmentFrame], plane: Volume, slices: _Slices) -> float:
    """Return how far the frame that lies farthest is from its slice, in slice distances."""
    return max(slices.away(_along(plane, frame.position)) for frame in segment_frames)


def _check_on_slices(
    segment_frames: list[_SegmentFrame],
    plane: Volume,
    slices: _Slices,
    images: Sequence[Frame],
    path: Path,
    names: dict[int, str],
) -> None:
    """Refuse a frame that lies between the slices of its images, or in another than it names."""
    for frame in segment_frames:
        place = _along(plane, frame.position)
        away = slices.away(place)
        named_images = []
        for image in _images_of_frame(frame, images):
            if _is_parallel(plane, image):
                named_images.append(image)
        # A frame that names images is compared with them by _check_sources.
        if slices.image and not named_images and _has_axes(frame, slices.image):
            _check_sides(frame, slices.image, path, names)
        # A frame that names its images may lie farther off, because they say which slice it fills.
        allowed = _SAME_SLICE if named_images else OFF_PLANE
        if away > allowed:
            raise CadError(
                f"{frame.label} lies {away * slices.distance:.2f} mm off the nearest slice of the "
                f"images that the SEG was drawn on; allowed is {allowed * slices.distance:.2f} mm",
                file=path,
                roi=_segment_name(frame, names),
                hint="the images it was drawn on are missing: export them, too",
            )
        named_slices = set()
        for image in named_images:
            named_slices.add(slices.nearest(_along(plane, np.array(image.position, float))))
        if named_slices and slices.nearest(place) not in named_slices:
            raise CadError(
                f"{frame.label} lies on slice {slices.nearest(place)}, but the image of "
                f"ReferencedSOPInstanceUID {named_images[0].sop_uid} that it names is slice "
                f"{min(named_slices)}",
                file=path,
                roi=_segment_name(frame, names),
                hint=_AGAIN,
            )


def _slices_of_seg(
    segment_frames: list[_SegmentFrame],
    plane: Volume,
    stated_distance: float | None,
    stated_thickness: float | None,
    image_slices: _Slices | None,
    path: Path,
    names: dict[int, str],
) -> _Slices:
    """Return the slices by the distance that the SEG states; refuse what contradicts it."""
    distance = stated_distance or stated_thickness
    if not distance or (stated_thickness and not _agree(distance, stated_thickness)):
        problem = (
            f"{tagged('SpacingBetweenSlices')} is {_in_mm(stated_distance)} and "
            f"{tagged('SliceThickness')} {_in_mm(stated_thickness)}"
        )
        if image_slices:
            problem += f", and the slices of the images are {_in_mm(image_slices.distance)} apart"
        raise CadError(
            f"{problem}: it is not known how thick the slices of the SEG are",
            file=path,
            roi=_segment_name(segment_frames[0], names),
            hint=_AGAIN,
        )
    # Slice 0 is that of the first frame, from whose plane places are measured.
    slices = _Slices(first=0.0, distance=distance)
    for frame in segment_frames:
        away = slices.away(_along(plane, frame.position))
        if away > OFF_PLANE:
            raise CadError(
                f"{_NO_GRID}: {frame.label} lies {away * distance:.2f} mm beside slices that are "
                f"{_in_mm(distance)} apart",
                file=path,
                roi=_segment_name(frame, names),
                hint=_AGAIN,
            )
    return slices


def _in_mm(distance: float | None) -> str:
    return "not stated" if distance is None else f"{distance:.4g} mm"


def _stated_distance(dataset: Dataset, keyword: str) -> float | None:
    """Return a distance of slices or thickness that a SEG states, mm; None without one."""
    items = [dataset]
    for sequence in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in dataset.get(sequence) or []:
            items += group.get("PixelMeasuresSequence") or []
    distances = set()
    for item in items:
        value = item.get(keyword)
        if value is None or value == "":
            continue
        distance = abs(float(value))  # a sign says in which sense slices run
        if not math.isfinite(distance):
            raise CadError(f"{tagged(keyword)} is {distance:g}, and no distance", hint=_AGAIN)
        distances.add(distance)
    if distances and not _agree(min(distances), max(distances)):
        raise CadError(
            f"{tagged(keyword)} is stated as {min(distances):g} and as {max(distances):g} mm; all "
            "slices of a SEG have one distance, and one thickness",
            hint=_AGAIN,
        )
    # A distance of 0, or one that no examination has, is as good as none.
    largest = max(distances, default=0.0)
    return largest if 0 < largest <= LARGEST_MM else None


def _agree(first: float, second: float) -> bool:
    """Tell whether two distances of slices are one, as slices of an image may differ."""
    return abs(first - second) <= max(SPACING_TOLERANCE * second, POSITION_TOLERANCE_MM)


def _slices_of_images(
    segment_frames: list[_SegmentFrame],
    plane: Volume,
    images: Sequence[Frame],
    stated_distance: float | None,
    path: Path,
) -> _Slices | None:
    """Return the slices of the series that a SEG was drawn on; None if the study lacks it.

    If the frames name images, it is a series of these. Of several series, those are taken whose
    slices have the stated distance, and of these the one whose slices lie nearest to the frames.
    """
    series_uids = set()
    for frame in segment_frames:
        for image in _images_of_frame(frame, images):
            series_uids.add(image.series_uid)
    if not series_uids:
        series_uids = {image.series_uid for image in images}
    candidates = []  # the slices of each series that the SEG may have been drawn on
    for uid in sorted(series_uids):
        images_of_series = [image for image in images if image.series_uid == uid]
        slices = _slices_of_series(images_of_series, plane)
        if slices is not None:
            candidates.append(slices)
    if stated_distance:
        matching = [slices for slices in candidates if _agree(stated_distance, slices.distance)]
        candidates = matching or candidates
    if not candidates:
        return None
    farthest = [_farthest_frame(segment_frames, plane, slices) for slices in candidates]
    nearest = []
    for slices, away in zip(candidates, farthest, strict=True):
        if away <= min(farthest) + _ROUNDED:  # as near as the best, but for rounding
            nearest.append(slices)
    # Of several nearest series any will do, if a frame is as thick in each of them.
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
    for place in sorted(_along(plane, np.array(image.position, float)) for image in parallel):
        # Images of several times, as in a dynamic series, lie at one place, which counts once.
        if not places or place - places[-1] > POSITION_TOLERANCE_MM:
            places.append(place)
    distance = parallel[0].thickness  # the distance of a single slice
    if len(places) > 1:
        distance = (places[-1] - places[0]) / (len(places) - 1)
    if not distance:
        return None
    return _Slices(first=places[0], distance=distance, count=len(places), image=parallel[0])


def _slices_of_grid(plane: Volume, drawn_on: Volume) -> _Slices | None:
    """Return the slices of a grid; None if they are not parallel to a plane."""
    if not _is_normal(drawn_on.direction[:, 2], plane):
        return None
    count = drawn_on.shape[0]
    first, last = drawn_on.index_to_patient(np.array([[0, 0, 0], [0, 0, count - 1.0]]))
    # The grid's slices may run against the normal of the frames, along which places are measured.
    start = min(_along(plane, first), _along(plane, last))
    return _Slices(first=start, distance=drawn_on.spacing[2], count=count)


# --- voxels --------------------------------------------------------------------------------------


def _frames_by_slice(
    segment_frames: list[_SegmentFrame],
    number: int,
    plane: Volume,
    slices: _Slices,
    path: Path,
    name: str,
) -> dict[int, _SegmentFrame]:
    """Return the frames of a segment by slice; refuse two of them in one slice."""
    frames: dict[int, _SegmentFrame] = {}
    for frame in segment_frames:
        if number not in frame.numbers:
            continue
        z = slices.nearest(_along(plane, frame.position))
        if z in frames:
            raise CadError(
                f"{_NO_GRID}: {frames[z].label} and {frame.label} of one segment lie in one slice",
                file=path,
                roi=name,
                hint=_AGAIN,
            )
        frames[z] = frame
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
    return Volume(
        array=inside,
        spacing=(*plane.spacing[:2], distance),
        origin=triple(origin),
        direction=plane.direction,
    )


def _is_faint(dataset: Dataset, stored: np.ndarray, number: int) -> bool:
    """Tell whether a frame of shares has some, but none of one half or more."""
    if dataset.SegmentationType != "FRACTIONAL":
        return False
    return bool(stored.any() and not _segment_voxels(dataset, stored, number).any())


def _segment_voxels(dataset: Dataset, stored: np.ndarray, number: int) -> np.ndarray:
    """Return the voxels of a frame that belong to a segment, from the stored numbers; boolean."""
    if dataset.SegmentationType == _LABEL_MAP:
        inside = stored == number
    elif dataset.SegmentationType == "FRACTIONAL":
        # At least one half; twice a stored number does not fit into its own type.
        inside = 2 * stored.astype(np.int64) >= int(dataset.MaximumFractionalValue)
    else:
        inside = stored != 0
    return np.asarray(inside)
