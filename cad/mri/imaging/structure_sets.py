"""Read the structures of an RTSTRUCT object: contours, each the border of an area in its slice.

The share of a voxel that a structure fills is the part of its area that lies inside the contours.
It is exact along rows, and sampled on sixteen lines in each row. Contours of one slice that lie
apart are added. A contour inside another one is a hole in it; a keyhole contour (an outer and an
inner one, joined by a channel) is one as well. Contours of the type CLOSEDPLANAR_XOR are combined
by exclusive disjunction (PS3.3 C.8.8.6.3). Of other contours that overlap, programs differ in what
they fill: a contour that is there twice counts once, and all others are refused.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset

from cad.base.errors import CadError, printable
from cad.base.reading import reading
from cad.mri.imaging.drawn_regions import (
    HALF,
    DrawnRegion,
    Wanted,
    check_approval,
    check_frame_of_reference,
    number_of,
    share_on_grid,
)
from cad.mri.imaging.elements import tagged
from cad.mri.imaging.frame_headers import check_identity
from cad.mri.imaging.frames import Frame
from cad.mri.imaging.polygons import Border, common_area, fill_polygons, folded_area
from cad.mri.imaging.volume import LARGEST_MM, Volume

# A contour that lies farther from the nearest slice plane than this (in slice distances) was drawn
# on other images.
OFF_PLANE = 0.1
_SAME_SLICE = 0.5  # largest difference of positions in one slice plane, in slice distances
_BEYOND = 1.0  # farthest that a contour may lie beyond the centres of the outer pixels, in pixels
# Area in pixels that may come from rounding, such as the area by which two contours of one border
# differ.
_ROUNDED = 0.5
# A ring between two contours that is narrower than this on average, in pixels, is no ring: the two
# are one border, drawn twice.
_THIN = 1.0
_XOR = ("CLOSED_PLANAR_XOR", "CLOSEDPLANAR_XOR")
_CLOSED = ("CLOSED_PLANAR", *_XOR)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_AGAIN = "export the structure set again"


@dataclass(frozen=True)
class _Contour:
    """Hold one contour on its slice.

    Parameters
    ----------
    polygon : ndarray, shape (n, 2)
        Corners in pixel indices (x, y).
    exclusive : bool
        Whether its type is CLOSEDPLANAR_XOR.
    """

    polygon: np.ndarray
    exclusive: bool


def structure_name(item: Dataset) -> str:
    """Return the ROIName of a structure, or its number where it has no name."""
    return str(item.get("ROIName", "") or number_of(item, "ROINumber"))


def read_structures(
    dataset: Dataset,
    path: Path,
    drawn_on: Volume,
    frame_uid: str,
    grid: Volume,
    wanted: Wanted,
    images: Sequence[Frame],
) -> tuple[list[DrawnRegion], list[str]]:
    """Read the structures of an RTSTRUCT object.

    Parameters, results and errors are those of
    :func:`cad.mri.imaging.annotations.read_drawn_regions`.
    """
    # Which structures are read
    structures = _structures(dataset, path, wanted)
    names = {number: structure_name(item) for number, item in structures.items()}
    wanted_names = Counter(name for name in names.values() if wanted(name))
    if wanted_names:
        check_approval(dataset, path)
    if wanted_names and "ROIContourSequence" not in dataset:
        raise CadError(
            "structures without any contours: the file was cut off",
            file=path,
            hint="export it again",
        )
    notes = []
    n_left_out = len(structures) - wanted_names.total()
    if n_left_out > 0:
        notes.append(f"{n_left_out} structures that the rules do not ask for are left out")
    contours = _contours_by_structure(dataset, names, path, wanted)
    for number, name in names.items():
        if wanted(name) and number not in contours:
            notes.append(f"structure {number} has no contours")

    regions: list[DrawnRegion] = []
    for number, contour_group in contours.items():
        name = names[number]
        structure = structures[number]
        # Whether the structure is of this patient and object, and of the images' coordinates
        items = [(structure, "StructureSetROISequence"), *_items_of(contour_group)]
        for item, sequence in items:
            with reading(path, f"{sequence} is damaged", roi=name):
                check_identity(item, dataset, sequence)
        frames = _frames_of_reference(dataset, structure, contour_group)
        check_frame_of_reference(frames, frame_uid, path, name)
        if frame_uid and not frames:
            notes.append(f"structure {number} states no frame of reference; the images' is taken")

        # The shares that it fills of the images that it was drawn on, and then of the wanted grid
        planes, remarks = _planes(contour_group, drawn_on, path, name, images)
        notes += [f"structure {number} {remark}" for remark in remarks]
        share, remarks = _filled_shares(planes, drawn_on, path, name)
        notes += [f"structure {number} {remark}" for remark in remarks]
        on_grid = share_on_grid(drawn_on.with_array(share), grid, path, name, notes)
        # The number is only needed to tell two structures of one name apart.
        has_namesake = wanted_names[name] > 1
        regions.append(DrawnRegion(name, on_grid, path, number=number if has_namesake else 0))
    return regions, notes


def _contours_by_structure(
    dataset: Dataset, names: dict[int, str], path: Path, wanted: Wanted
) -> dict[int, Dataset]:
    """Return the contours of every wanted structure that has some, by its number.

    Contours of no structure, and two groups of contours for one structure, are refused.
    """
    contours: dict[int, Dataset] = {}
    for contour_group in dataset.get("ROIContourSequence") or []:
        number = number_of(contour_group, "ReferencedROINumber")
        if number not in names:
            raise CadError(
                f"contours of ReferencedROINumber {number}, which no structure has",
                file=path,
                hint=_AGAIN,
            )
        if not wanted(names[number]):
            continue
        if number in contours:
            raise CadError(
                f"two groups of contours for the structure of ROINumber {number}; each structure "
                "has one (PS3.3 C.8.8.6)",
                file=path,
                roi=names[number],
                hint=_AGAIN,
            )
        contours[number] = contour_group
    return contours


def _without_contour(path: Path, name: str) -> CadError:
    return CadError(
        "the structure has no closed contour",
        file=path,
        roi=name,
        hint="draw it, or remove the structure",
    )


def _structures(dataset: Dataset, path: Path, wanted: Wanted) -> dict[int, Dataset]:
    """Return the structures of a structure set by number.

    An error is raised if two structures have the same number and one of the two is wanted.
    """
    structures: dict[int, Dataset] = {}
    for item in dataset.StructureSetROISequence:
        number = number_of(item, "ROINumber")
        first = structures.setdefault(number, item)
        name = structure_name(item)
        if first is not item and (wanted(name) or wanted(structure_name(first))):
            raise CadError(
                f"two structures of ROINumber {number}; numbers tell structures apart (PS3.3 "
                "C.8.8.5), so it is not known whose the contours are",
                file=path,
                roi=name,
                hint=_AGAIN,
            )
    return structures


def _items_of(contour_group: Dataset) -> list[tuple[Dataset, str]]:
    """Return the group of a structure's contours and each contour, with their sequences' names."""
    items = [(contour_group, "ROIContourSequence")]
    for contour in contour_group.get("ContourSequence") or []:
        items.append((contour, "ContourSequence"))
    return items


def _frames_of_reference(dataset: Dataset, structure: Dataset, contour_group: Dataset) -> set[str]:
    """Return the FrameOfReferenceUIDs that hold for a structure.

    A structure states a UID of its own, which must be one of the UIDs of the whole structure set
    (PS3.3 C.8.8.5). If the structure states none and the set has only one UID, the set's UID is
    returned. If the structure's UID is not among those of the set, all these UIDs are returned. The
    top of the header and the contours may state a UID, too, which is added to the result. The
    caller refuses a structure for which more than one UID is returned.
    """
    uids_of_set = set()
    for reference in dataset.get("ReferencedFrameOfReferenceSequence") or []:
        uids_of_set.add(_uid_of_item(reference, "FrameOfReferenceUID"))
    uids_of_set.discard("")  # an item that states none
    uids = {_uid_of_item(dataset, "FrameOfReferenceUID")}
    for item, _ in _items_of(contour_group):
        uids.add(_uid_of_item(item, "FrameOfReferenceUID"))
    uid_of_structure = _uid_of_item(structure, "ReferencedFrameOfReferenceUID")
    if uid_of_structure:
        uids.add(uid_of_structure)
        # A UID that the set does not have contradicts the set. With the UIDs of the set beside it,
        # the caller sees more than one UID and refuses the structure.
        if uid_of_structure not in uids_of_set:
            uids |= uids_of_set
    elif len(uids_of_set) == 1:
        uids |= uids_of_set
    uids.discard("")
    return uids


def _uid_of_item(item: Dataset, keyword: str) -> str:
    return str(item.get(keyword, "") or "").strip()


def _planes(
    contour_group: Dataset, drawn_on: Volume, path: Path, name: str, images: Sequence[Frame]
) -> tuple[dict[int, list[_Contour]], list[str]]:
    """Return the contours by slice, and notes on contours that were left out."""
    planes: dict[int, list[_Contour]] = defaultdict(list)
    n_points = 0
    for contour in contour_group.get("ContourSequence") or []:
        contour_type = str(contour.get("ContourGeometricType", "") or "")
        if contour_type == "POINT":
            n_points += 1
            continue
        if contour_type not in _CLOSED:
            raise CadError(
                f"contour type {printable(contour_type) or 'that is not stated'} encloses no area",
                file=path,
                roi=name,
                hint="draw the ROI as closed contours (ContourGeometricType CLOSED_PLANAR)",
            )
        _check_offset(contour, path, name)
        indices = drawn_on.patient_to_index(_contour_points(contour, path, name))
        z = _slice_of(indices, drawn_on, path, name)
        if images:  # known: whether the contour names one of them can be checked
            _check_image(contour, z, drawn_on, images, path, name)
        planes[z].append(_Contour(polygon=indices[:, :2], exclusive=contour_type in _XOR))
    if not planes:
        raise _without_contour(path, name)
    remarks = []
    if n_points:
        remarks.append(f"has {n_points} single points among its contours, which are left out")
    return planes, remarks


def _contour_points(contour: Dataset, path: Path, name: str) -> np.ndarray:
    """Return the points of a contour, LPS mm, shape (n, 3).

    Numbers of more than 64 KiB do not fit into the VR DS. They are written as UN (PS3.5 6.2.2), and
    pydicom then gives their bytes.
    """
    with reading(path, f"{tagged('ContourData')} is no list of decimal numbers", _AGAIN, name):
        values = contour.get("ContourData")
        if isinstance(values, bytes):
            values = values.decode("ascii").strip("\0 ").split("\\")
        if values is None or isinstance(values, str):
            raise CadError(f"a contour without the numbers of {tagged('ContourData')}", hint=_AGAIN)
        numbers = []
        for value in values:
            # float() also takes texts that are no decimal numbers in DICOM, such as 1_0. pydicom
            # keeps the text of the file beside the number.
            text = str(getattr(value, "original_string", value)).strip()
            number = float(value)
            # The test is written with "not", so that NaN is refused as well.
            if not _DECIMAL.fullmatch(text) or not abs(number) <= LARGEST_MM:
                raise CadError(
                    f"{tagged('ContourData')} has {printable(text)!r}, which is no decimal number "
                    f"of at most {LARGEST_MM:g} mm",
                    hint=_AGAIN,
                )
            numbers.append(number)
        if len(numbers) % 3:
            raise CadError(
                f"{tagged('ContourData')} has {len(numbers)} numbers; a point has three",
                hint=_AGAIN,
            )
    points = np.array(numbers).reshape(-1, 3)
    _check_count(contour, len(points), path, name)
    return points


def _check_count(contour: Dataset, count: int, path: Path, name: str) -> None:
    """Refuse a contour whose number of points is not stated, or is not the stated one.

    Without it a contour that lost its last points looks whole.
    """
    stated = contour.get("NumberOfContourPoints")
    if stated is None or stated == "":
        raise CadError(
            f"a contour without {tagged('NumberOfContourPoints')}: it is not known whether its "
            f"{count} points are all",
            file=path,
            roi=name,
            hint=_AGAIN,
        )
    with reading(path, f"{tagged('NumberOfContourPoints')} is no whole number", _AGAIN, name):
        number = int(stated)
    if number != count:
        raise CadError(
            f"NumberOfContourPoints is {number}, but the contour has {count} points",
            file=path,
            roi=name,
            hint=_AGAIN,
        )
    if count < 3:
        raise CadError(
            f"a contour of {count} points, which enclose no area", file=path, roi=name, hint=_AGAIN
        )


def _check_offset(contour: Dataset, path: Path, name: str) -> None:
    """Refuse a contour with an offset to its points, which only some programs apply."""
    value = contour.get("ContourOffsetVector")
    offset_mm = [float(component) for component in value] if value else []
    if any(component != 0 for component in offset_mm):
        listed = ", ".join(f"{component:g}" for component in offset_mm)
        raise CadError(
            f"ContourOffsetVector (3006,0045) is {listed} mm; only contours without an offset are "
            "read, because programs do not agree on this retired element",
            file=path,
            roi=name,
            hint="export the structure set again without an offset",
        )


def _slice_of(indices: np.ndarray, drawn_on: Volume, path: Path, name: str) -> int:
    """Return the slice in which a contour lies; refuse one that leaves the slices or the images.

    ``indices`` are the points of the contour as indices (x, y, z) in the grid ``drawn_on``.
    """
    z = int(np.round(np.median(indices[:, 2])))
    off_plane = float(np.abs(indices[:, 2] - z).max())
    if off_plane > OFF_PLANE:
        raise CadError(
            f"a contour lies up to {off_plane * drawn_on.spacing[2]:.2f} mm off the nearest slice "
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
            hint="the images it was drawn on are missing: export them, too",
        )
    _, n_rows, n_columns = drawn_on.shape
    before_first = float(-indices[:, :2].min())
    behind_last = float((indices[:, :2] - np.array([n_columns, n_rows]) + 1).max())
    beyond = max(before_first, behind_last)
    if beyond > _BEYOND:
        raise CadError(
            f"a contour on slice {z} leaves the images, which have {n_columns} columns and "
            f"{n_rows} rows, by {beyond:.1f} pixels",
            file=path,
            roi=name,
            hint="it was drawn on other images: export images and structure set together",
        )
    return z


def _check_image(
    contour: Dataset,
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
        named_images = [frame for frame in images if frame.sop_uid == uid]
        if uid and not named_images:
            raise CadError(
                f"a contour was drawn on the image of ReferencedSOPInstanceUID {uid}, which the "
                "series that the structure set names does not have",
                file=path,
                roi=name,
                hint="export images and structure set together, or draw the ROI on these images",
            )
        # In a multi-frame file, all frames have the UID of the file.
        if number is not None and len(named_images) > 1:
            named_images = [frame for frame in named_images if frame.index + 1 == int(number)]
        slices_of_images = []  # as indices along z, which need not be whole
        for frame in named_images:
            if frame.position is not None:
                _, _, slice_of_image = drawn_on.patient_to_index(np.array(frame.position))
                slices_of_images.append(float(slice_of_image))
        # The contour has to lie in one of the images that it names.
        distances = [abs(slice_of_image - z) for slice_of_image in slices_of_images]
        if distances and min(distances) > _SAME_SLICE:
            raise CadError(
                f"a contour lies on slice {z}, but the image of ReferencedSOPInstanceUID {uid} "
                f"that it names is slice {slices_of_images[0]:.0f}",
                file=path,
                roi=name,
                hint=_AGAIN,
            )


def _filled_shares(
    planes: dict[int, list[_Contour]], drawn_on: Volume, path: Path, name: str
) -> tuple[np.ndarray, list[str]]:
    """Return the share of every voxel that the contours fill, and remarks on its slices."""
    slice_shape = (drawn_on.shape[1], drawn_on.shape[2])
    share = np.zeros(drawn_on.shape, np.float32)
    slices_with_doubles = []
    unfilled_slices = []  # with contours that are all too small for a voxel
    small_contours: Counter[int] = Counter()  # how many fill no voxel to one half, by slice
    for z in sorted(planes):
        borders = _distinct(planes[z], z, path, name)
        if len(borders) < len(planes[z]):
            slices_with_doubles.append(z)
        share[z] = fill_polygons([border.polygon for border in borders], slice_shape)
        for border in borders:
            # Only a narrow border can miss all voxels.
            if 2 * border.area < _THIN * border.length:
                alone = fill_polygons([border.polygon], slice_shape)
                small_contours[z] += int(alone.max() < HALF)
        if share[z].max() >= HALF:
            continue
        # A contour that alone fills a voxel, and together with the others none, is cut out by them.
        if small_contours[z] < len(borders):
            raise _cancelled(z, path, name)
        unfilled_slices.append(z)

    remarks = []
    if slices_with_doubles:
        listed = _list_of_slices(slices_with_doubles)
        remarks.append(f"has contours twice on slice {listed}; they are taken once")
    if unfilled_slices:
        remarks.append(f"fills no voxel of slice {_list_of_slices(unfilled_slices)} to one half")
    for z, count in sorted(small_contours.items()):
        if count and z not in unfilled_slices:
            remarks.append(f"has {count} contours on slice {z} that fill no voxel to one half")
    gaps = [z for z in range(min(planes), max(planes)) if z not in planes]
    if gaps:
        listed = _list_of_slices(gaps)
        remarks.append(f"has no contour on slice {listed}, between its first and last")
    return share, remarks


def _cancelled(z: int, path: Path, name: str) -> CadError:
    """Return the error for contours of a slice that cut each other out."""
    return CadError(
        f"the contours of slice {z} cancel each other: together they fill no voxel",
        file=path,
        roi=name,
        hint=_AGAIN,
    )


def _list_of_slices(slices: list[int]) -> str:
    return ", ".join(str(z) for z in slices)


def _distinct(contours: list[_Contour], z: int, path: Path, name: str) -> list[Border]:
    """Return the borders of a slice, each once; refuse those that have two meanings."""
    exclusive = contours[0].exclusive
    if any(contour.exclusive != exclusive for contour in contours):
        raise CadError(
            f"contours of the types CLOSED_PLANAR and CLOSEDPLANAR_XOR on slice {z}: it is not "
            "known which of them are combined (PS3.3 C.8.8.6.3)",
            file=path,
            roi=name,
            hint=_AGAIN,
        )
    distinct: list[Border] = []
    for contour in contours:
        folded = folded_area(contour.polygon)
        if folded > _ROUNDED:
            raise CadError(
                f"a contour of slice {z} crosses itself, or runs twice around {folded:.3g} pixels",
                file=path,
                roi=name,
                hint="draw the border once around the ROI, without loops",
            )
        border = Border(contour.polygon)
        # Compared with every other border, because a comparison may also refuse the two.
        twins = [_is_twin(border, other, exclusive, z, path, name) for other in distinct]
        if not any(twins):
            distinct.append(border)
        elif exclusive:  # by exclusive disjunction, a border that is there twice fills nothing
            raise _cancelled(z, path, name)
    return distinct


def _is_twin(border: Border, other: Border, exclusive: bool, z: int, path: Path, name: str) -> bool:
    """Tell whether two borders of a slice are one that is there twice.

    Borders that lie apart, or one inside the other, are two. Others are refused, except those that
    are combined by exclusive disjunction. A ring between two borders that is thinner than a pixel
    is refused, too.
    """
    common = common_area(border, other)
    if common <= _ROUNDED:  # they lie apart
        return False
    inner, outer = sorted((border, other), key=lambda either: either.area)
    if common >= outer.area - _ROUNDED:  # even the larger lies inside the other
        return True
    if common >= inner.area - _ROUNDED:  # the smaller lies inside the larger
        ring_width = (outer.area - inner.area) / inner.length
        if ring_width >= _THIN:
            return False
        raise CadError(
            f"two contours of slice {z} lie inside each other, on average {ring_width:.2g} pixels "
            "apart: they are probably one border, drawn twice, and the ring between them is no "
            "region",
            file=path,
            roi=name,
            hint="keep one of the two contours",
        )
    if exclusive:
        return False
    raise CadError(
        f"two contours of slice {z} overlap in {common:.3g} pixels, and neither lies inside the "
        "other: some programs add them, others cut out what they have in common",
        file=path,
        roi=name,
        hint="draw one border around both, or export contours of the type CLOSEDPLANAR_XOR",
    )
