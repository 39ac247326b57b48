"""Read regions drawn in DICOM (SEG objects, RT structure sets) onto the grid of an image.

For both kinds of object the result is the share of each voxel that the region fills. RT structure
sets hold contours. A contour is the border of an area in its slice plane. Contours in one plane are
combined by the even-odd rule, so that an inner contour is a hole. A keyhole contour (an outer and
an inner one, joined by a line) works as well. The share of a voxel is the part of its area that
lies inside the contours. It is exact along rows, and sampled on sixteen lines in each row. SEG
objects hold voxels. highdicom reads them, and :mod:`cad.mri.imaging.geometry` resamples them.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pydicom

from cad.base.errors import CadError
from cad.base.reading import reading
from cad.mri.imaging.geometry import occupancy
from cad.mri.imaging.pixels import decoded
from cad.mri.imaging.volume import Volume, triple

if TYPE_CHECKING:
    import highdicom

# A contour that lies farther from the nearest slice plane than this (in slice distances) was drawn
# on other images.
OFF_PLANE = 0.1
_LINES_PER_ROW = 16
_HALF = 0.5
_CLOSED = ("CLOSED_PLANAR", "CLOSED_PLANAR_XOR", "CLOSEDPLANAR_XOR")
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
        Number of the segment or structure in the file, where another one has the same name; else 0.
    """

    name: str
    share: np.ndarray
    file: Path
    number: int = 0


def referenced_series(dataset: pydicom.Dataset) -> str:
    """Return the SeriesInstanceUID of the images that a SEG or RTSTRUCT object was drawn on.

    The text is empty where the object does not say.
    """
    for series in dataset.get("ReferencedSeriesSequence", []):
        return str(series.get("SeriesInstanceUID", ""))
    for frame in dataset.get("ReferencedFrameOfReferenceSequence", []):
        for study in frame.get("RTReferencedStudySequence", []):
            for series in study.get("RTReferencedSeriesSequence", []):
                return str(series.get("SeriesInstanceUID", ""))
    return ""


def read_regions(
    dataset: pydicom.Dataset,
    path: Path,
    drawn_on: Volume,
    frame_uid: str,
    grid: Volume,
    wanted: Wanted = lambda name: True,
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

    Returns
    -------
    list of DrawnRegion, list of str
        Regions that fill at least one voxel to one half, and sentences on everything that was left
        out.

    Raises
    ------
    CadError
        Naming file and ROI, for another frame of reference, a contour off the slice planes, open or
        degenerate contours, an empty segment, frames that form no regular grid, or pixel data
        without an installed codec.
    """
    with reading(path, "not a sound SEG or RTSTRUCT object"):
        if str(dataset.get("Modality", "")) == "SEG":
            return _read_seg(dataset, path, frame_uid, grid, wanted)
        return _read_structures(dataset, path, drawn_on, frame_uid, grid, wanted)


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


def _check_frame(frame: str, images_frame: str, path: Path, roi: str = "") -> None:
    if frame and images_frame and frame != images_frame:
        problem = f"drawn in another frame of reference: {frame}, the images are in {images_frame}"
        raise CadError(problem, file=path, roi=roi, hint="draw the ROI on this study's images")


# --- RT structure sets ---------------------------------------------------------------------------


def _read_structures(
    dataset: pydicom.Dataset,
    path: Path,
    drawn_on: Volume,
    frame_uid: str,
    grid: Volume,
    wanted: Wanted,
) -> tuple[list[DrawnRegion], list[str]]:
    structures = {int(s.ROINumber): s for s in dataset.StructureSetROISequence}
    names = {n: str(s.get("ROIName", "") or n) for n, s in structures.items()}
    often = Counter(name for name in names.values() if wanted(name))
    if often and "ROIContourSequence" not in dataset:
        raise CadError(
            "structures without any contours: the file was cut off",
            file=path,
            hint="export it again",
        )
    regions = []
    notes = []
    if len(structures) > often.total():
        n_left_out = len(structures) - often.total()
        notes.append(f"{n_left_out} structures that the rules do not ask for are left out")
    for item in dataset.get("ROIContourSequence", []):
        number = int(item.ReferencedROINumber)
        structure = structures[number]
        name = names[number]
        if not wanted(name):
            continue
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
                f"structure {number} has no contour on {skipped} slices between its first and last"
            )
        on_grid = _share_on_grid(share, drawn_on, grid, path, name)
        regions.append(DrawnRegion(name, on_grid, path, number if often[name] > 1 else 0))
    return regions, notes


def _planes(
    item: pydicom.Dataset, drawn_on: Volume, path: Path, name: str
) -> dict[int, list[np.ndarray]]:
    """Return contours as (x, y) pixel indices, by slice."""
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


def _share_on_grid(
    share: np.ndarray, place: Volume, grid: Volume, path: Path, name: str
) -> np.ndarray:
    """Return the share on the wanted grid; raise an error if it is one half in no voxel."""
    if not place.same_grid(grid):
        share = occupancy(place.with_array(share), grid).array
    if not (share >= 0.5 - 1e-6).any():
        raise CadError(
            "the ROI is empty: it fills no voxel of the images to one half", file=path, roi=name
        )
    return share


# --- SEG -----------------------------------------------------------------------------------------


def _read_seg(
    dataset: pydicom.Dataset, path: Path, frame_uid: str, grid: Volume, wanted: Wanted
) -> tuple[list[DrawnRegion], list[str]]:
    import highdicom  # slow to load, and only few studies have a SEG

    # highdicom warns of values that other makers write in another form.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        # segread() is not used, because the dataset has been read already.
        seg = highdicom.seg.Segmentation.from_dataset(dataset, copy=False)
    segments = [s for s in dataset.SegmentSequence if int(s.SegmentNumber) > 0]
    names = {
        int(s.SegmentNumber): str(s.get("SegmentLabel", "") or s.SegmentNumber) for s in segments
    }
    names = {number: name for number, name in names.items() if wanted(name)}
    if names:
        _check_frame(str(dataset.get("FrameOfReferenceUID", "")), frame_uid, path)
        decoded(dataset, path)  # tells damaged pixels from a missing codec
    regions = []
    notes = []
    for number, name in names.items():
        segment = _segment(seg, number, path, name)
        if not segment.array.any():
            raise CadError("the segment is empty: all of its frames are", file=path, roi=name)
        share = _share_on_grid(segment.array.astype(np.float32), segment, grid, path, name)
        twin = list(names.values()).count(name) > 1
        regions.append(DrawnRegion(name, share, path, number if twin else 0))
    unused = len(segments) - len(names)
    if unused:
        notes.append(f"{unused} segments that the rules do not ask for are left out")
    return regions, notes


def _segment(seg: highdicom.seg.Segmentation, number: int, path: Path, name: str) -> Volume:
    """Return one segment as a boolean volume on its own grid."""
    with reading(path, "the frames form no regular grid, or are damaged", roi=name):
        volume = seg.get_volume(
            segment_numbers=[number], rescale_fractional=True, allow_missing_positions=True
        )
    if np.linalg.det(volume.affine[:3, :3][:, ::-1]) < 0:
        volume = volume.flip_spatial(0)
    axes = volume.affine[:3, :3][:, ::-1]  # highdicom's axes are slice, row, column
    spacing = np.linalg.norm(axes, axis=0)
    inside = volume.array[..., 0] >= _HALF
    origin = volume.affine[:3, 3]
    return Volume(inside, triple(spacing), triple(origin), axes / spacing)
