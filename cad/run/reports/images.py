"""Make the pictures of one study for a page: all slices for the viewer, key slices with outlines.

A layer is one image of the study or a map, such as ADC. For the viewer all slices of a layer are
put side by side into one picture, called a sprite. The key slice of a region is the slice on which
the region is largest.
"""

import base64
import io
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from cad.base.files import JsonObject
from cad.base.reading import open_arrays, parse_json, reading
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.study_file import read_map_display

KEY_SIDE_MM = 64.0
"""Least side of a picture, mm, if the place of the gland is not known."""
LEAST_SIDE_MM = 45.0
"""Least side of a picture, mm, if the place of the gland is known."""
NEAR_MM = 8.0
"""Width of the shown surroundings of a region on every side, mm."""
RIM_MM = 4.0
"""Width of the shown surroundings of the gland on every side, mm."""
SCALE_BAR_MM = 10
# Largest size in bytes of a page's slices that are compressed without loss. Larger slices are
# compressed with loss, so that a page stays below 6 MB.
SLICES_BYTES = 4_500_000
LOSSY_QUALITIES = (92, 80, 60)
# The values that are shown as black and as white, for layers in which they are the same in all
# studies. So pictures of different studies can be compared.
FIXED_WINDOWS = {"probability": (0.0, 1.0), "adc": (400.0, 2000.0)}
NO_VALUE = 0  # grey level in a sprite for a voxel outside the image's field of view


LAYERS = {
    "t2w": ("T2", "a.u.", 0),
    "adc": ("ADC", "×10⁻⁶ mm²/s", 0),
    "hbv": ("High b", "a.u.", 0),
    "enhancement": ("DCE relative enhancement", "(S−S₀)/S₀", 2),
    "ktrans": ("Ktrans map", "1/min", 3),
    "probability": ("Probability map", "", 2),
}
"""Title, unit and number of decimals of each layer on a page, by the layer's key."""


@dataclass(frozen=True)
class StudyImages:
    """Hold the images of one study for its page, read from ``studies/<study_id>.npz``.

    The arrays are turned so that rows run to the patient's back and columns to his left. H and W
    are the numbers of rows and columns. T is the number of time points of the dynamic series, and n
    the number of images whose alignment was tried.

    Parameters
    ----------
    layers : dict of str to ndarray, shape (n_slices, H, W)
        Arrays of float32, NaN outside the field of view; the keys are those of :data:`LAYERS`.
    roi_map : ndarray, shape (n_slices, H, W)
        Label map of the regions, uint8; labels above 255 are stored as 255.
    spacing : (float, float)
        In-plane voxel size along x and y, mm.
    z_mm : ndarray, shape (n_slices,)
        Position of every slice along the slice normal, mm, increasing.
    sides : (str, str, str, str)
        Letters for the patient's side at the left, right, top and bottom edge; empty where the
        direction is unknown.
    curves : dict of str to ndarray
        ``times`` in s has shape (T,). ``signal``, ``concentration`` and ``fit`` (of the
        concentration) have one row for each region, shape (n_roi, T). Concentration and fit are in
        mM.
    meta : dict
        Facts that were written with the study: regions, slice numbers, notes, missing images.
    registration : ndarray of uint8, shape (n, 3, H, W), or None
        For each image whose alignment to T2 was tried: the image before, the image after, and the
        edges of T2. How far the image was moved is in ``meta``.
    frame : ndarray of bool, shape (n_slices, H, W), or None
        The part of the image that pictures show: the gland, or without a gland mask the middle of
        the image. None in a run of an earlier version.
    """

    layers: dict[str, np.ndarray]
    roi_map: np.ndarray
    spacing: tuple[float, float]
    z_mm: np.ndarray
    sides: tuple[str, str, str, str]
    curves: dict[str, np.ndarray]
    meta: JsonObject
    registration: np.ndarray | None = None
    frame: np.ndarray | None = None

    @property
    def slice_numbers(self) -> list[int]:
        """Return the number of every shown slice in the whole series, counted from 1."""
        # The last entry of ``slice_numbers`` is the number of slices of the whole series. Without
        # these numbers the shown slices are counted, and 0 takes the place of the last entry.
        shown = range(1, len(self.z_mm) + 1)
        return [int(number) for number in self.meta.get("slice_numbers", [*shown, 0])[:-1]]

    @property
    def n_slices(self) -> int:
        """Return the number of slices of the whole series, of which a page may show only some."""
        # The last entry of ``slice_numbers``; without it, the number of shown slices.
        return int(self.meta.get("slice_numbers", [len(self.z_mm)])[-1])

    @property
    def rois(self) -> dict[str, JsonObject]:
        """Return the measurements of every region, one dictionary by ROI id."""
        return {str(roi["roi_id"]): roi for roi in self.meta.get("rois", [])}

    def curve(self, roi_id: str) -> dict[str, np.ndarray]:
        """Return one region's curves over time; empty without a dynamic series.

        Parameters
        ----------
        roi_id : str
            The region; for an unknown region the result is empty.

        Returns
        -------
        dict of str to ndarray, shape (n_times,)
            ``times`` (s), and those of ``signal``, ``concentration`` (mM) and ``fit`` (mM) that the
            study has.
        """
        ids = list(self.rois)
        if "times" not in self.curves or roi_id not in ids:
            return {}
        row = ids.index(roi_id)  # the rows of the curves are in the order of the regions
        curves = {"times": self.curves["times"]}
        for name, values in self.curves.items():
            # A study without a fit, for example, has no rows for it.
            if name != "times" and len(values) > row:
                curves[name] = values[row]
        return curves


def read_images(folder: RunFolder, study_id: str) -> StudyImages:
    """Read one study's images from a run folder, with the probability map if the run made one.

    Parameters
    ----------
    folder : RunFolder
        The run folder.
    study_id : str
        The study.

    Returns
    -------
    StudyImages
        Layers of shape (n_slices, H, W), the label map, curves and facts of the study. Rows run to
        the patient's back and columns to his left, where the run stored the direction.

    Raises
    ------
    CadError
        For a file that is absent, damaged or not of this kind.
    """
    path = folder.study(study_id)
    with reading(path, "the study's images cannot be shown"):
        with open_arrays(path) as archive:
            arrays = {}
            for name in archive:
                if name in _WANTED or name in LAYERS:
                    arrays[name] = archive[name]
        probability = read_map_display(folder, study_id)
        if probability is not None:
            arrays["probability"] = probability
        return oriented(arrays, parse_json(str(arrays["meta"])))


_WANTED = {
    "roi_map",
    "frame",
    "spacing",
    "z_mm",
    "direction",
    "meta",
    "curve_times",
    "curve_signal",
    "curve_concentration",
    "curve_fit",
    "registration",
}


def oriented(arrays: dict[str, np.ndarray], meta: JsonObject) -> StudyImages:
    """Turn a study's arrays so that rows run to the patient's back and columns to his left.

    Parameters
    ----------
    arrays : dict of str to ndarray
        Arrays of ``studies/<study_id>.npz``; they are not changed. Nothing is turned if
        ``direction`` is absent, or if an axis of the arrays runs closer to another axis of the
        patient than to its own.
    meta : dict
        The file's ``meta``, parsed. It is not changed; the result has a copy with the slice numbers
        in the new order.

    Returns
    -------
    StudyImages
        The turned arrays: layers as float32 and the label map as uint8, shape (n_slices, H, W),
        positions of the slices (mm), and the letters of the four edges. The letters are empty if
        nothing could be turned.

    Examples
    --------
    The columns of this image run to the patient's right, so they are reversed:

    >>> layer = np.array([[[1.0, 2.0]]])
    >>> arrays = {
    ...     "t2w": layer,
    ...     "roi_map": layer > 1,
    ...     "spacing": np.ones(3),
    ...     "z_mm": np.zeros(1),
    ...     "direction": np.diag([-1.0, 1.0, 1.0]),
    ... }
    >>> images = oriented(arrays, {})
    >>> images.layers["t2w"].tolist(), images.roi_map.tolist(), images.sides
    ([[[2.0, 1.0]]], [[[1, 0]]], ('R', 'L', 'A', 'P'))
    """
    # The slice objects that turn an array with axes z, y and x.
    turned = (slice(None),) * 3
    sides = ("", "", "", "")
    if "direction" in arrays and _is_upright(arrays["direction"]):
        turned = turn(arrays["direction"])
        sides = ("R", "L", "A", "P")
    turned_z, turned_y, turned_x = turned
    numbers = meta.get("slice_numbers")
    if numbers:
        # The last entry is the number of all slices, and keeps its place.
        meta = {**meta, "slice_numbers": [*numbers[:-1][turned_z], numbers[-1]]}
    z_mm = np.asarray(arrays["z_mm"], float)[turned_z]
    if len(z_mm) > 1 and z_mm[-1] < z_mm[0]:
        # Heights are positions along the slice normal. After the slices were reversed, the normal
        # points to the head, so all heights change their sign.
        z_mm = -z_mm
    layers = {}
    for key in LAYERS:
        if key in arrays:
            layers[key] = np.asarray(arrays[key], np.float32)[turned]
    curves = {}
    for name in ("curve_times", "curve_signal", "curve_concentration", "curve_fit"):
        if name in arrays:
            curves[name.removeprefix("curve_")] = np.asarray(arrays[name], float)
    registration = None
    if "registration" in arrays:
        registration = np.asarray(arrays["registration"], np.uint8)[:, :, turned_y, turned_x]
    return StudyImages(
        layers=layers,
        roi_map=np.asarray(arrays["roi_map"], np.uint8)[turned],
        spacing=(float(arrays["spacing"][0]), float(arrays["spacing"][1])),
        z_mm=z_mm,
        sides=sides,
        curves=curves,
        meta=meta,
        registration=registration,
        frame=np.asarray(arrays["frame"], bool)[turned] if "frame" in arrays else None,
    )


def turn(direction: np.ndarray) -> tuple[slice, slice, slice]:
    """Return the slice objects by which :func:`oriented` turns an array with axes z, y, x.

    An array that is indexed twice with these slice objects is as before.

    Parameters
    ----------
    direction : ndarray, shape (3, 3)
        Direction cosines: column k is the direction of the grid's axis k (x, y, z) in the patient.

    Returns
    -------
    tuple of 3 slices
        One slice object for each axis, which keeps or reverses it.

    Examples
    --------
    >>> columns_reversed = turn(np.diag([-1.0, 1.0, 1.0]))
    >>> np.array([[[1, 2], [3, 4]]])[columns_reversed].tolist()
    [[[2, 1], [4, 3]]]
    """
    cosines = np.asarray(direction, float)
    steps = []
    for axis in (2, 1, 0):  # the axes of an array are z, y, x
        # An axis is reversed if it runs against its axis of the patient. An oblique image that
        # cannot be turned stays as it is.
        is_flipped = _is_upright(cosines) and cosines[axis, axis] < 0
        steps.append(-1 if is_flipped else 1)
    step_z, step_y, step_x = steps
    return slice(None, None, step_z), slice(None, None, step_y), slice(None, None, step_x)


def _is_upright(direction: np.ndarray) -> bool:
    """Tell whether the axes x, y and z of the grid run closest to the patient's x, y and z."""
    closest_axes = np.abs(np.asarray(direction, float)).argmax(axis=0)
    return list(closest_axes) == [0, 1, 2]


def key_slice(images: StudyImages, label: int) -> int | None:
    """Return the index of the slice on which a region is largest.

    Parameters
    ----------
    images : StudyImages
        The study.
    label : int
        The region's label in the cohort.

    Returns
    -------
    int or None
        None if the region is not on the shown slices.
    """
    inside = images.roi_map == min(label, 255)  # the map stores labels above 255 as 255
    voxels_on_slice = inside.sum(axis=(1, 2))
    return int(voxels_on_slice.argmax()) if voxels_on_slice.any() else None


class KeyImage(NamedTuple):
    """Hold a picture of one layer around a region, which a page shows as an SVG in mm.

    Parameters
    ----------
    title, unit : str
        Name and unit of the layer.
    detail : str
        Text after the title: the b-value of a high-b image, ``= 1000`` (s/mm2); else empty.
    source : str
        The picture as a data URL.
    width, height : float
        Extent, mm.
    outline, outline_of_others : str
        The attribute ``d`` of SVG paths along the border of the region and along the borders of the
        other regions, in voxels.
    neighbours : list of (str, float, float)
        Name and position (x, y in mm) of each other region.
    scale : (float, float)
        Voxel size along x and y, mm.
    window : (float, float)
        The values that are shown as black and as white.
    digits : int
        Number of decimals of values.
    sides : (str, str, str, str)
        Letters for the patient's side at the left, right, top and bottom edge; empty where the
        direction is unknown.
    """

    title: str
    unit: str
    source: str
    width: float
    height: float
    outline: str
    outline_of_others: str
    neighbours: list[tuple[str, float, float]]
    scale: tuple[float, float]
    window: tuple[float, float]
    digits: int
    sides: tuple[str, str, str, str] = ("", "", "", "")
    detail: str = ""


def key_images(images: StudyImages, label: int, keys: tuple[str, ...]) -> list[KeyImage]:
    """Cut the same field of view around a region out of several layers (images and maps).

    The slice is the one on which the region is largest. The field of view shows the region and both
    sides of the gland, or without a gland mask the middle of the image.

    Parameters
    ----------
    images : StudyImages
        The study.
    label : int
        The region's label.
    keys : tuple of str
        Layers to show; layers that the study does not have are left out.

    Returns
    -------
    list of KeyImage
        The pictures in the order of :data:`LAYERS`; empty if the region is not on the shown slices.
    """
    z = key_slice(images, label)
    if z is None:
        return []
    inside = images.roi_map[z] == min(label, 255)  # the map stores labels above 255 as 255
    frame = None
    if images.frame is not None:
        frame = images.frame[z]
        if not frame.any():
            # The region lies on a slice that shows no gland. The picture then shows the rows and
            # columns that the gland covers on any slice.
            frame = np.asarray(images.frame.any(axis=0))
    rows, columns = _crop_of_picture(inside, frame, images.spacing)
    other_regions = (images.roi_map[z] > 0) & ~inside
    sx, sy = images.spacing
    neighbours = _neighbouring_regions(
        images, other_regions[rows, columns], images.roi_map[z, rows, columns]
    )
    shown = []
    for key, (title, unit, digits) in LAYERS.items():
        if key not in keys or key not in images.layers:
            continue
        crop = images.layers[key][z, rows, columns]
        low, high = window(images, key)
        shown.append(
            KeyImage(
                title=title,
                unit=unit,
                source=data_url(_grey(crop, low, high, first=0), quality=90),
                width=crop.shape[1] * sx,
                height=crop.shape[0] * sy,
                outline=outline(inside[rows, columns]),
                outline_of_others=outline(other_regions[rows, columns]),
                neighbours=neighbours,
                scale=(sx, sy),
                window=(low, high),
                digits=digits,
                sides=images.sides,
                detail=_b_words(images) if key == "hbv" else "",
            )
        )
    return shown


def _b_words(images: StudyImages) -> str:
    """Return the b-value of a study's high-b image, ``= 1000``; empty if it is not known."""
    b_value = images.meta.get("b_value")
    return "" if b_value is None else f"= {float(b_value):g}"


def _neighbouring_regions(
    images: StudyImages, other_regions: np.ndarray, labels: np.ndarray
) -> list[tuple[str, float, float]]:
    """Return name and position (mm) of each region on a picture besides the region it shows.

    ``other_regions`` says of each voxel of the picture whether it is in another region, and
    ``labels`` has the label of each voxel.
    """
    sx, sy = images.spacing
    neighbours = []
    for name, facts in images.rois.items():
        label = min(int(facts.get("label", 0)), 255)
        voxels = np.argwhere(other_regions & (labels == label))
        if len(voxels):
            y, x = voxels.mean(axis=0) + 0.5  # the middle of a voxel is half a voxel from its edge
            x_mm = float(x * sx)
            y_mm = float(y * sy) + 1  # the base line of the name, so that its middle is at y
            neighbours.append((name, round(x_mm, 1), round(y_mm, 1)))
    return neighbours


def window(images: StudyImages, key: str) -> tuple[float, float]:
    """Return the two values of a layer that are shown as black and as white.

    For ADC and probability the two values are fixed. For other layers they are the window that the
    study states, or else the layer's 1st and 99.5th percentile.

    Parameters
    ----------
    images : StudyImages
        The study.
    key : str
        The layer, a key of ``images.layers``.
    """
    stated = (images.meta.get("window") or {}).get(key)
    if key in FIXED_WINDOWS:
        return FIXED_WINDOWS[key]
    if stated:
        return float(stated[0]), float(stated[1])
    return _range(images.layers[key], (1, 99.5))


def outline(mask: np.ndarray) -> str:
    """Return the attribute ``d`` of an SVG path along the edges of a mask, in units of voxels.

    Parameters
    ----------
    mask : ndarray of bool, shape (H, W)
        Voxels that the path encloses.

    Returns
    -------
    str
        ``Mx yhn`` or ``Mx yvn`` for each straight piece of n voxels that begins at (x, y) and runs
        along a row or a column; empty for an empty mask.

    Examples
    --------
    >>> outline(np.array([[True, True]]))
    'M0 0h2M0 1h2M0 0v1M2 0v1'
    """
    # An edge lies where a voxel is in the mask and its neighbour is not.
    padded = np.pad(mask, 1).astype(np.int8)
    edges_above = np.diff(padded, axis=0)[:, 1:-1] != 0  # [y, x]: above voxel x of row y
    edges_left = np.diff(padded, axis=1)[1:-1] != 0  # [y, x]: to the left of voxel x of row y
    pieces = [f"M{x} {y}h{length}" for y, x, length in runs(edges_above)]
    pieces += [f"M{x} {y}v{length}" for x, y, length in runs(edges_left.T)]
    return "".join(pieces)


def runs(lines: np.ndarray) -> list[tuple[int, int, int]]:
    """Return every unbroken run of True in each row of an array.

    Parameters
    ----------
    lines : ndarray of bool, shape (H, W)
        The array.

    Returns
    -------
    list of (int, int, int)
        Row, first column and length of each run.

    Examples
    --------
    >>> runs(np.array([[True, True, False, True]]))
    [(0, 0, 2), (0, 3, 1)]
    """
    # Between two columns a step of 1 begins a run, and a step of -1 ends it. Empty columns at both
    # ends make sure that every run begins and ends.
    padded = np.pad(lines.astype(np.int8), ((0, 0), (1, 1)))
    steps = np.diff(padded, axis=1)
    rows, starts = np.nonzero(steps == 1)
    _, ends = np.nonzero(steps == -1)
    all_runs = np.stack([rows, starts, ends - starts], axis=1)
    return [(row, start, length) for row, start, length in all_runs.tolist()]


def _crop_of_picture(
    mask: np.ndarray, frame: np.ndarray | None, spacing: tuple[float, float]
) -> tuple[slice, slice]:
    """Return the rows and columns of a picture that shows a region (``mask``) and the ``frame``.

    The frame is the gland, or the middle of the image.
    """
    slices = []
    spacing_x, spacing_y = spacing
    for axis, voxel_mm in ((0, spacing_y), (1, spacing_x)):  # rows lie along y, columns along x
        size = mask.shape[axis]
        first, end = _ends(mask, axis)
        low = first - NEAR_MM / voxel_mm
        high = end + NEAR_MM / voxel_mm
        least_side = KEY_SIDE_MM / voxel_mm
        if frame is not None and frame.any():
            first_of_frame, end_of_frame = _ends(frame, axis)
            low = min(low, first_of_frame - RIM_MM / voxel_mm)
            high = max(high, end_of_frame + RIM_MM / voxel_mm)
            least_side = LEAST_SIDE_MM / voxel_mm
        n = min(size, round(max(high - low, least_side)))
        # Region and frame are in the middle of the picture, unless the image ends before.
        centred_start = round((low + high - n) / 2)
        start = int(np.clip(centred_start, 0, size - n))
        slices.append(slice(start, start + n))
    rows, columns = slices
    return rows, columns


def _ends(mask: np.ndarray, axis: int) -> tuple[int, int]:
    """Return the first row of a picture with voxels of a mask, and the last such row plus 1.

    With ``axis`` 1, columns are taken in place of rows. The mask must not be empty.
    """
    other_axis = 1 - axis
    places = np.flatnonzero(mask.any(axis=other_axis))
    return int(places[0]), int(places[-1]) + 1


def viewers_of(studies: list[StudyImages]) -> list[JsonObject]:
    """Return the data of a page's slice viewers, compressed so that the page is not too large.

    Pictures are compressed without loss if all of them fit into :data:`SLICES_BYTES`. Otherwise
    they get the best of :data:`LOSSY_QUALITIES` with which they fit. If they fit with none, they
    get the lowest quality.

    Parameters
    ----------
    studies : list of StudyImages
        All studies of one page.

    Returns
    -------
    list of dict
        For each study the result of :func:`viewer_data`, and ``lossy``, which says whether its
        pictures are compressed with loss.
    """
    viewers: list[JsonObject] = []
    for quality in (None, *LOSSY_QUALITIES):
        viewers = [viewer_data(images, quality) for images in studies]
        size = 0
        for viewer in viewers:
            size += sum(len(layer["source"]) for layer in viewer["layers"])
        if size <= SLICES_BYTES:
            break
    for viewer in viewers:
        viewer["lossy"] = quality is not None
    return viewers


def viewer_data(images: StudyImages, quality: int | None = None) -> JsonObject:
    """Return the data of one study for the script of the slice viewer.

    Parameters
    ----------
    images : StudyImages
        The study.
    quality : int, optional
        WebP quality; None for lossless.

    Returns
    -------
    dict
        The geometry of the slices; ``layers``, of which each has all slices side by side in one
        picture; ``labels``, the label map of the regions in the same form.
    """
    n, height, width = images.roi_map.shape
    columns = math.ceil(math.sqrt(n * height / width))  # all slices together are about a square
    layers = []
    for key in LAYERS:
        if key in images.layers:
            layers.append(_sprite(images, key, columns, quality))
    return {
        "n": n,
        "numbers": images.slice_numbers,
        "total": images.n_slices,
        "height": height,
        "width": width,
        "columns": columns,
        "spacing": list(images.spacing),
        "z": [round(float(z), 1) for z in images.z_mm],
        "sides": list(images.sides),
        "layers": layers,
        "labels": data_url(_tile(images.roi_map, columns)),
    }


def _sprite(images: StudyImages, key: str, columns: int, quality: int | None) -> JsonObject:
    """Return a layer's picture of all slices, and what turns its grey levels back into values."""
    array = images.layers[key]
    # A few extreme values would leave few grey levels for all others.
    low, high = _range(array, (0.1, 99.9))
    title, unit, digits = LAYERS[key]
    return {
        "key": key,
        "title": title,
        "unit": unit,
        "digits": digits,
        "low": low,
        "high": high,
        "window": list(window(images, key)),
        "floor": 0.0 if key in FIXED_WINDOWS else None,
        "source": data_url(_tile(_grey(array, low, high, first=1), columns), quality),
    }


def _range(array: np.ndarray, ends: tuple[float, float]) -> tuple[float, float]:
    """Return two percentiles of a layer's finite values, such as the 1st and the 99.5th."""
    finite = array[np.isfinite(array)].astype(float)
    if not finite.size:
        return 0.0, 1.0  # an image without any value; any range shows it as empty
    low, high = np.percentile(finite, ends)
    # In an image of one value both percentiles are equal, but a range must have a width.
    return float(low), float(max(high, low + 1e-6))


def _grey(array: np.ndarray, low: float, high: float, first: int) -> np.ndarray:
    """Return grey levels of 8 bits: ``first`` at ``low``, 255 at ``high``, ``NO_VALUE`` for NaN."""
    scaled = (np.clip(array, low, high) - low) / max(high - low, 1e-12)
    grey = np.nan_to_num(np.rint(first + scaled * (255 - first)), nan=NO_VALUE)
    return np.asarray(grey, np.uint8)


def _tile(array: np.ndarray, columns: int) -> np.ndarray:
    """Return the slices of an array side by side in one picture, ``columns`` slices in a row."""
    n, height, width = array.shape
    rows = math.ceil(n / columns)
    # The last row is filled up with empty slices.
    slices = np.zeros((rows * columns, height, width), np.uint8)
    slices[:n] = array
    # Axes: row of slices, row of voxels, column of slices, column of voxels.
    grid = slices.reshape(rows, columns, height, width).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width)


def data_url(grey: np.ndarray, quality: int | None = None) -> str:
    """Return a picture as WebP in a data URL.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W) or (H, W, 3)
        Grey levels or RGB.
    quality : int, optional
        WebP quality; None for lossless.

    Examples
    --------
    >>> data_url(np.zeros((4, 4), np.uint8)).partition(",")[0]
    'data:image/webp;base64'
    """
    stream = io.BytesIO()
    image = Image.fromarray(grey)
    if quality is None:
        # For lossless pictures ``quality`` is the effort that compression takes. Compared with an
        # effort of 0, an effort of 40 takes a third longer and saves only .02 % of the bytes.
        image.save(stream, "WEBP", lossless=True, method=2, quality=0)
    else:
        image.save(stream, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
