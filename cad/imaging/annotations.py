"""Regions drawn in DICOM: SEG objects and RT structure sets, brought onto an image's grid.

Both become the share of every voxel that the region fills. A contour is the border of an area in
its slice plane; contours in one plane are combined by the even-odd rule, so that an inner contour
is a hole and a keyhole contour is what it was meant to be. The share of a voxel is the share of
its area inside, exact along rows and sampled sixteen times across them. SEG frames are voxels and
are carried over by :mod:`cad.imaging.geometry`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pydicom

from cad.errors import CadError
from cad.imaging.dicom import POSITION_TOLERANCE_MM, decoded
from cad.imaging.geometry import occupancy
from cad.imaging.volume import Volume

# A contour this far from its slice plane, in slice distances, belongs to other images.
OFF_PLANE = 0.1
_LINES_PER_ROW = 16
_CLOSED = ("CLOSED_PLANAR", "CLOSED_PLANAR_XOR", "CLOSEDPLANAR_XOR")


@dataclass(frozen=True, eq=False)
class Region:
    """One segment or structure.

    Parameters
    ----------
    name : str
        SegmentLabel or ROIName.
    share : ndarray of float32, shape of the grid
        Share of every voxel that the region fills, 0 to 1.
    file : Path
        The object.
    """

    name: str
    share: np.ndarray
    file: Path


def read_object(path: Path) -> pydicom.Dataset:
    """Read a SEG or RTSTRUCT object.

    Raises
    ------
    CadError
        When the file is damaged.
    """
    try:
        return pydicom.dcmread(path)
    except Exception as error:  # a damaged file may break the reader anywhere
        raise CadError(f"damaged DICOM file: {error}", file=path) from error


def referenced_series(dataset: pydicom.Dataset) -> str:
    """SeriesInstanceUID of the images an object was drawn on; empty where it does not say."""
    for series in dataset.get("ReferencedSeriesSequence", []):
        return str(series.get("SeriesInstanceUID", ""))
    for frame in dataset.get("ReferencedFrameOfReferenceSequence", []):
        for study in frame.get("RTReferencedStudySequence", []):
            for series in study.get("RTReferencedSeriesSequence", []):
                return str(series.get("SeriesInstanceUID", ""))
    return ""


def read_regions(
    dataset: pydicom.Dataset, path: Path, drawn_on: Volume, frame_uid: str, grid: Volume
) -> tuple[list[Region], list[str]]:
    """Regions of a SEG or RTSTRUCT object on an image's grid.

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

    Returns
    -------
    list of Region, list of str
        Regions with at least one voxel filled to one half, and notes.

    Raises
    ------
    CadError
        Naming file and ROI: another frame of reference, a contour off the slice planes, open or
        degenerate contours, an empty segment, frames that form no regular grid, and pixel data
        without its codec.
    """
    try:
        if str(dataset.get("Modality", "")) == "SEG":
            return _read_seg(dataset, path, frame_uid, grid)
        return _read_structures(dataset, path, drawn_on, frame_uid, grid)
    except CadError:
        raise
    except Exception as error:  # required parts are missing or damaged
        raise CadError(f"not a sound SEG or RTSTRUCT object: {error}", file=path) from error


def fill_polygons(polygons: list[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Share of every pixel inside polygons combined by the even-odd rule.

    Parameters
    ----------
    polygons : list of ndarray, shape (n, 2)
        Corners in pixel indices (x, y); pixel (i, j) covers i - .5 to i + .5.
    shape : tuple of 2 ints
        Rows and columns.

    Returns
    -------
    ndarray of float32, shape (rows, columns)
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
            a, b = start[crossed], end[crossed]
            x = np.sort(a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1]))
            for left, right in zip(x[::2], x[1::2], strict=True):
                share[row] += np.diff(np.clip(left_edges, left, right))
    return (share / _LINES_PER_ROW).astype(np.float32)


def _check_frame(found: str, wanted: str, path: Path, roi: str = "") -> None:
    if found and wanted and found != wanted:
        raise CadError(
            f"drawn in another frame of reference: {found}, the images are in {wanted}",
            file=path,
            roi=roi,
            hint="draw the ROI on this study's images",
        )


# --- RT structure sets ---------------------------------------------------------------------------


def _read_structures(
    dataset: pydicom.Dataset, path: Path, drawn_on: Volume, frame_uid: str, grid: Volume
) -> tuple[list[Region], list[str]]:
    names = {int(s.ROINumber): s for s in dataset.StructureSetROISequence}
    regions, notes = [], []
    for item in dataset.get("ROIContourSequence", []):
        structure = names[int(item.ReferencedROINumber)]
        name = str(structure.get("ROIName", "") or structure.ROINumber)
        _check_frame(str(structure.get("ReferencedFrameOfReferenceUID", "")), frame_uid, path, name)
        planes = _planes(item, drawn_on, path, name)
        if not planes:
            raise CadError("the structure has no closed contour", file=path, roi=name)
        share = np.zeros(drawn_on.shape, np.float32)
        for z, polygons in planes.items():
            share[z] = fill_polygons(polygons, (drawn_on.shape[1], drawn_on.shape[2]))
        filled = sorted(planes)
        if len(filled) < filled[-1] - filled[0] + 1:
            skipped = filled[-1] - filled[0] + 1 - len(filled)
            notes.append(
                f"ROI {name} has no contour on {skipped} slices between its first and last"
            )
        regions.append(Region(name, _on_grid(share, drawn_on, grid, path, name), path))
    return regions, notes


def _planes(
    item: pydicom.Dataset, drawn_on: Volume, path: Path, name: str
) -> dict[int, list[np.ndarray]]:
    """Contours as (x, y) pixel indices, by slice."""
    planes: dict[int, list[np.ndarray]] = defaultdict(list)
    for contour in item.get("ContourSequence", []):
        kind = str(contour.get("ContourGeometricType", ""))
        if kind == "POINT":
            continue
        if kind not in _CLOSED:
            raise CadError(f"contour type {kind} encloses no area", file=path, roi=name)
        points = np.array([float(v) for v in contour.ContourData]).reshape(-1, 3)
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
        planes[z].append(index[:, :2])
    return planes


def _on_grid(share: np.ndarray, own: Volume, grid: Volume, path: Path, name: str) -> np.ndarray:
    """Share on the wanted grid; a region that fills no voxel to one half is empty."""
    if not own.same_grid(grid):
        share = occupancy(own.with_array(share), grid).array
    if not (share >= 0.5 - 1e-6).any():
        raise CadError(
            "the ROI is empty: it fills no voxel of the images to one half", file=path, roi=name
        )
    return share


# --- SEG -----------------------------------------------------------------------------------------


def _read_seg(
    dataset: pydicom.Dataset, path: Path, frame_uid: str, grid: Volume
) -> tuple[list[Region], list[str]]:
    _check_frame(str(dataset.get("FrameOfReferenceUID", "")), frame_uid, path)
    frames = decoded(dataset, path).reshape(-1, int(dataset.Rows), int(dataset.Columns))
    slots, own = _seg_grid(dataset, frames.shape, path)
    label_map = str(dataset.get("SegmentationType", "")) == "LABELMAP"
    top = float(dataset.get("MaximumFractionalValue", 1) or 1)
    regions, notes = [], []
    empty = sum(1 for frame in frames if not frame.any())
    if empty:
        notes.append(f"the SEG object has {empty} empty frames of {len(frames)}")
    for segment in dataset.SegmentSequence:
        number = int(segment.SegmentNumber)
        if number == 0:  # the background of a label map
            continue
        name = str(segment.get("SegmentLabel", "") or number)
        mask = np.zeros(own.shape, bool)
        for frame, (slot, segment_number) in zip(frames, slots, strict=True):
            if label_map:
                mask[slot] |= frame == number
            elif segment_number == number:
                mask[slot] |= frame >= 0.5 * top if top > 1 else frame > 0
        if not mask.any():
            raise CadError("the segment is empty: all of its frames are", file=path, roi=name)
        share = _on_grid(mask.astype(np.float32), own, grid, path, name)
        regions.append(Region(name, share, path))
    return regions, notes


def _seg_grid(
    dataset: pydicom.Dataset, shape: tuple[int, ...], path: Path
) -> tuple[list[tuple[int, int]], Volume]:
    """Slice and segment number of every frame, and the grid that all frames share."""
    shared = dataset.SharedFunctionalGroupsSequence[0]
    groups = dataset.PerFrameFunctionalGroupsSequence
    if len(groups) != shape[0]:
        raise CadError(f"{shape[0]} frames but {len(groups)} positions", file=path)
    positions, numbers = [], []
    head = _macro(groups[0], shared, "PlaneOrientationSequence").ImageOrientationPatient
    orientation = np.array([float(v) for v in head]).reshape(2, 3)
    for group in groups:
        place = _macro(group, shared, "PlanePositionSequence").ImagePositionPatient
        positions.append([float(v) for v in place])
        own = _macro(group, shared, "PlaneOrientationSequence").ImageOrientationPatient
        if np.abs(np.array([float(v) for v in own]) - orientation.ravel()).max() > 1e-4:
            raise CadError("the frames have different orientations", file=path)
        identity = group.get("SegmentIdentificationSequence") or shared.get(
            "SegmentIdentificationSequence"
        )
        numbers.append(int(identity[0].ReferencedSegmentNumber) if identity else 0)
    measures = _macro(groups[0], shared, "PixelMeasuresSequence")
    normal = np.cross(orientation[0], orientation[1])
    places = np.array(positions)
    along = places @ normal
    step = _step(along, measures, path)
    slots = np.round((along - along.min()) / step).astype(int)
    first = places[int(np.argmin(along))]
    drift = np.abs(places - first - np.outer(slots * step, normal)).max()
    if drift > POSITION_TOLERANCE_MM:
        raise CadError(
            f"the frames form no regular grid: one is {drift:.2f} mm from its place, "
            f"allowed {POSITION_TOLERANCE_MM} mm",
            file=path,
        )
    row, column = (float(v) for v in measures.PixelSpacing)
    grid = Volume(
        np.empty((int(slots.max()) + 1, *shape[1:]), bool),
        (column, row, step),
        (float(first[0]), float(first[1]), float(first[2])),
        np.stack([orientation[0], orientation[1], normal], axis=1),
    )
    return list(zip(slots.tolist(), numbers, strict=True)), grid


def _macro(group: pydicom.Dataset, shared: pydicom.Dataset, name: str) -> pydicom.Dataset:
    return (group.get(name) or shared[name].value)[0]


def _step(along: np.ndarray, measures: pydicom.Dataset, path: Path) -> float:
    """Distance between slices; frames without voxels may have been left out."""
    stated = float(measures.get("SpacingBetweenSlices", 0) or 0)
    if stated > 0:
        return stated
    steps = np.diff(np.unique(np.round(along, 3)))
    if len(steps):
        return float(steps.min())
    thickness = float(measures.get("SliceThickness", 0) or 0)
    if thickness <= 0:
        raise CadError("a single slice without SliceThickness", file=path)
    return thickness
