"""DICOM image series: headers once, stacks of slices in their order, voxels when they are wanted.

A *stack* is one 3-D image: slices of one series that share orientation, size, spacing, b-value,
flip angle, echo time and time point. A dynamic series is a list of stacks with a time each, whether
the scanner stored one series per phase or all phases in one. Geometry is compared with a tolerance
because scanners write spacings that differ in the last digits.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pydicom
from pydicom.pixels import get_decoder
from pydicom.uid import UID

from cad.errors import CadError
from cad.imaging.dicom_headers import Slice, printable
from cad.imaging.volume import Dynamic, Volume

ORIENTATION_TOLERANCE = 1e-3
POSITION_TOLERANCE_MM = 0.1
SPACING_TOLERANCE = 0.02  # of the slice distance
MISSING_FACTOR = 1.5
_DAY = 86400.0


@dataclass(frozen=True)
class Stack:
    """Slices of one 3-D image, sorted along their normal.

    Parameters
    ----------
    slices : tuple of Slice
        In the order of the z axis.
    spacing, origin, direction
        As in :class:`cad.imaging.volume.Volume`.
    """

    slices: tuple[Slice, ...]
    spacing: tuple[float, float, float]
    origin: tuple[float, float, float]
    direction: np.ndarray

    @property
    def first(self) -> Slice:
        """Header that stands for the stack where all slices agree."""
        return self.slices[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Voxels along z, y, x."""
        return (len(self.slices), self.first.rows, self.first.columns)

    def __str__(self) -> str:
        head = self.first
        b_value = "" if head.b_value is None else f", b {head.b_value:g}"
        flip = "" if head.flip_angle is None else f", flip {head.flip_angle:g}"
        return f"series {head.series_number} {printable(head.description)!r}{b_value}{flip}"


def stacks_of(slices: list[Slice]) -> list[Stack]:
    """The 3-D images of one series.

    Parameters
    ----------
    slices : list of Slice
        All of one SeriesInstanceUID.

    Returns
    -------
    list of Stack
        One for each combination of b-value, flip angle, echo time and time point.

    Raises
    ------
    CadError
        For a missing or duplicate slice, slices of different size, orientation or spacing,
        multi-frame objects, and slices without a position.
    """
    groups: dict[tuple[object, ...], list[Slice]] = defaultdict(list)
    for item in slices:
        if item.frames > 1:
            raise CadError(
                f"multi-frame image with {item.frames} frames",
                file=item.path,
                hint="convert it to single-frame series, e.g. with dcm4che's emf2sf",
            )
        groups[(item.b_value, item.flip_angle, item.echo_time, item.image_type)].append(item)
    found = [stack for group in groups.values() for stack in _split_times(group)]
    return sorted(found, key=lambda s: min(item.instance_number for item in s.slices))


def read_stack(stack: Stack) -> Volume:
    """Read the voxels of a stack.

    Returns
    -------
    Volume
        Stored type where no rescaling is asked for by the headers, else float32.

    Raises
    ------
    CadError
        For a damaged file, a size that contradicts the header, colour images, and a compressed
        transfer syntax whose codec is not installed (naming the package that has it).
    """
    planes = [_pixels(item) for item in stack.slices]
    shapes = {plane.shape for plane in planes}
    if shapes != {(stack.first.rows, stack.first.columns)}:
        raise CadError(
            f"slices differ in size: {sorted(shapes)}; expected one plane of rows x columns",
            file=stack.first.path.parent,
        )
    kinds = {plane.dtype for plane in planes}
    array = np.stack(planes) if len(kinds) == 1 else np.stack([p.astype("f4") for p in planes])
    return Volume(array, stack.spacing, stack.origin, stack.direction)


def read_phases(phases: list[tuple[float, Stack]]) -> Dynamic:
    """Read a dynamic series.

    Parameters
    ----------
    phases : list of (float, Stack)
        Time in seconds and slices of each phase, as :func:`order_phases` gives them.

    Raises
    ------
    CadError
        For phases on different grids; and as :func:`read_stack`.
    """
    first = phases[0][1]
    reference = Volume(np.empty(first.shape, bool), first.spacing, first.origin, first.direction)
    for number, (_, stack) in enumerate(phases, start=1):
        grid = Volume(np.empty(stack.shape, bool), stack.spacing, stack.origin, stack.direction)
        if not grid.same_grid(reference):
            raise CadError(
                f"DCE phases of different sizes: phase {number} ({stack}) is {stack.shape}, "
                f"phase 1 is {first.shape} (slices, rows, columns) or lies elsewhere",
                file=stack.first.path.parent,
                hint="export the phase again; a slice may be missing",
            )
    volumes = [read_stack(stack) for _, stack in phases]
    frames = np.stack([volume.array for volume in volumes])
    times = np.array([time for time, _ in phases], float)
    head = first.first
    return Dynamic(
        frames,
        volumes[0].with_array(frames[0]),
        times - times[0],
        head.repetition_time,
        head.flip_angle,
    )


def order_phases(stacks: list[Stack], clock: str, pattern: str) -> list[tuple[float, Stack]]:
    """Sort the phases of a dynamic series by the clock that the import rules chose.

    Parameters
    ----------
    stacks : list of Stack
        One per phase.
    clock : str
        ``acquisition``, ``content`` or ``trigger`` (header times), or ``description`` (a number of
        seconds in the series description).
    pattern : str
        Regular expression whose first group is that number.

    Returns
    -------
    list of (float, Stack)
        Seconds and slices, increasing.

    Raises
    ------
    CadError
        When a phase has no time, two phases have the same, or the times contradict the order in
        which the scanner numbered the phases.
    """
    timed = [(_time_of(stack, clock, pattern), stack) for stack in stacks]
    if clock in ("acquisition", "content"):
        timed = _unwrap_midnight(timed)
    timed.sort(key=lambda pair: pair[0])
    for (early, a), (late, b) in pairwise(timed):
        if late <= early:
            raise CadError(
                f"two DCE phases have the same time {early:g} s by the {clock} clock: {a} and {b}",
                file=b.first.path.parent,
                hint="choose another clock in the import rules",
            )
    _check_numbering(timed, clock)
    return timed


def _check_numbering(timed: list[tuple[float, Stack]], clock: str) -> None:
    """The scanner's own count of the phases must increase with their times."""
    for name in ("temporal_position", "acquisition_number", "series_number"):
        numbers = [getattr(stack.first, name) for _, stack in timed]
        if None in numbers or len(set(numbers)) < len(numbers):
            continue
        for (time, stack), a, b in zip(timed[1:], numbers, numbers[1:], strict=False):
            if b < a:
                raise CadError(
                    f"DCE times are not monotonic: by the {clock} clock {name.replace('_', ' ')} "
                    f"{b} comes after {a}, at {time:g} s",
                    file=stack.first.path.parent,
                    hint="choose another clock in the import rules",
                )
        return


def _time_of(stack: Stack, clock: str, pattern: str) -> float:
    head = stack.first
    value: float | None
    if clock == "description":
        match = re.search(pattern, head.description)
        try:
            value = float(match.group(1)) if match else None
        except (IndexError, ValueError):
            value = None
    else:
        times = [getattr(item, f"{clock}_time") for item in stack.slices]
        value = None if None in times else min(times)
    if value is None:
        raise CadError(
            f"{stack} has no time by the {clock} clock",
            file=head.path.parent,
            hint="choose another clock in the import rules",
        )
    return value


def _unwrap_midnight(timed: list[tuple[float, Stack]]) -> list[tuple[float, Stack]]:
    times = [time for time, _ in timed]
    if max(times) - min(times) < _DAY / 2:
        return timed
    return [(time + _DAY if time < _DAY / 2 else time, stack) for time, stack in timed]


def _split_times(group: list[Slice]) -> list[Stack]:
    """One stack, or several when every position occurs once per time point."""
    positions = Counter(_where(item) for item in group)
    repeats = max(positions.values())
    if repeats == 1:
        return [_stack(group)]
    keys: tuple[Callable[[Slice], object], ...] = (
        lambda s: s.temporal_position,
        lambda s: s.acquisition_number,
        lambda s: s.trigger_time,
        lambda s: s.acquisition_time,
        lambda s: s.content_time,
    )
    same_object = len({item.sop_uid for item in group}) < len(group)
    for key in () if same_object else keys:
        times: dict[object, list[Slice]] = defaultdict(list)
        for item in group:
            times[key(item)].append(item)
        once = all(len({_where(i) for i in part}) == len(part) for part in times.values())
        if len(times) == repeats and once and None not in times:
            return [_stack(part) for part in times.values()]
    place, count = positions.most_common(1)[0]
    twice = [item for item in group if _where(item) == place]
    raise CadError(
        f"duplicate slice: {count} files of series {twice[0].series_number} lie at position "
        f"{place} mm ({', '.join(item.path.name for item in twice[:4])})",
        file=twice[1].path,
        hint="remove the copy, or export the series again",
    )


def _where(item: Slice) -> tuple[float, ...]:
    if item.position is None or item.orientation is None or item.pixel_spacing is None:
        raise CadError(
            "no ImagePositionPatient, ImageOrientationPatient or PixelSpacing", file=item.path
        )
    return tuple(round(v, 2) for v in item.position)


def _stack(slices: list[Slice]) -> Stack:
    """Sort slices along their normal and check that they form a regular grid."""
    head = slices[0]
    for item in slices:
        _where(item)
        _check_alike(item, head)
    orientation = np.array(head.orientation, float).reshape(2, 3)
    normal = np.cross(orientation[0], orientation[1])
    positions = np.array([item.position for item in slices], float)
    along = positions @ normal
    order = np.argsort(along, kind="stable")
    ordered = [slices[i] for i in order]
    distance = _distance(along[order], ordered)
    line = positions[order[0]] + np.outer(along[order] - along[order[0]], normal)
    drift = float(np.abs(positions[order] - line).max())
    if drift > POSITION_TOLERANCE_MM:
        raise CadError(
            f"slices are sheared: they drift {drift:.2f} mm from the normal of their planes, "
            f"allowed {POSITION_TOLERANCE_MM} mm",
            file=head.path.parent,
            hint="gantry-tilted grids are not supported; resample the series",
        )
    assert head.pixel_spacing is not None  # nosec B101  # noqa: S101 - _where has checked it
    row_spacing, column_spacing = head.pixel_spacing
    x, y, z = (float(v) for v in positions[order[0]])
    return Stack(
        tuple(ordered),
        (column_spacing, row_spacing, distance),
        (x, y, z),
        np.stack([orientation[0], orientation[1], normal], axis=1),
    )


def _check_alike(item: Slice, head: Slice) -> None:
    if (item.rows, item.columns) != (head.rows, head.columns):
        raise CadError(
            f"slices differ in size: {item.rows} x {item.columns} and {head.rows} x {head.columns}",
            file=item.path,
        )
    for name, tolerance in (("orientation", ORIENTATION_TOLERANCE), ("pixel_spacing", 1e-3)):
        a, b = np.array(getattr(item, name)), np.array(getattr(head, name))
        if np.abs(a - b).max() > tolerance:
            raise CadError(
                f"slices differ in {name.replace('_', ' ')}: {a.tolist()} and {b.tolist()}",
                file=item.path,
                hint="a localiser may be mixed into the series",
            )
    if item.frame_uid != head.frame_uid:
        raise CadError("slices of one series have different frames of reference", file=item.path)


def _distance(along: np.ndarray, ordered: list[Slice]) -> float:
    """Distance between neighbouring slices, mm; refuse gaps and copies."""
    if len(along) == 1:
        thickness = ordered[0].thickness
        if not thickness or thickness <= 0:
            raise CadError("a single slice without SliceThickness", file=ordered[0].path)
        return float(thickness)
    steps = np.diff(along)
    median = float(np.median(steps))
    worst = int(np.argmax(np.abs(steps - median)))
    gap = float(steps[worst])
    if abs(gap - median) <= max(SPACING_TOLERANCE * median, POSITION_TOLERANCE_MM):
        return float(along[-1] - along[0]) / (len(along) - 1)
    a, b = ordered[worst], ordered[worst + 1]
    number = f"series {a.series_number}, between {a.path.name} and {b.path.name}"
    if gap > MISSING_FACTOR * median:
        count = max(round(gap / median) - 1, 1)
        raise CadError(
            f"missing slice: {count} between {along[worst]:.2f} and {along[worst + 1]:.2f} mm "
            f"along the normal ({number}); the slice distance is {median:.3f} mm",
            file=b.path,
            hint="export the series again",
        )
    raise CadError(
        f"uneven slices: a step of {gap:.3f} mm where others are {median:.3f} mm ({number})",
        file=b.path,
        hint="a duplicate slice or two interleaved series; export the series again",
    )


def _pixels(item: Slice) -> np.ndarray:
    try:
        dataset = pydicom.dcmread(item.path)
        samples = int(dataset.get("SamplesPerPixel", 1))
        slope = float(dataset.get("RescaleSlope", 1) or 1)
        intercept = float(dataset.get("RescaleIntercept", 0) or 0)
    except Exception as error:  # a damaged file may break the reader anywhere
        raise CadError(f"damaged DICOM file: {error}", file=item.path) from error
    if samples != 1:
        raise CadError("a colour image where grey levels were expected", file=item.path)
    array = decoded(dataset, item.path)
    if (slope, intercept) == (1.0, 0.0):
        return array
    return (array * np.float32(slope) + np.float32(intercept)).astype(np.float32)


def decoded(dataset: pydicom.Dataset, path: Path) -> np.ndarray:
    """Pixel data of a dataset.

    Raises
    ------
    CadError
        When they are damaged, or compressed and the codec is not installed (naming the package).
    """
    try:
        return np.asarray(dataset.pixel_array)
    except Exception as error:  # decoders raise whatever they like
        syntax = dataset.file_meta.get("TransferSyntaxUID")
        if syntax is not None and _needs_codec(syntax):
            raise _no_codec(syntax, path, error) from error
        raise CadError(f"damaged pixel data: {error}", file=path) from error


def _needs_codec(syntax: UID) -> bool:
    """Whether the pixel data are compressed in a way that nothing installed can undo."""
    if not syntax.is_transfer_syntax or not syntax.is_compressed:
        return False
    try:
        return not get_decoder(syntax).is_available
    except NotImplementedError:
        return True


def _no_codec(syntax: UID, path: Path, error: Exception) -> CadError:
    packages = {
        "JPEG-LS": "pyjpegls",
        "JPEG 2000": "pylibjpeg pylibjpeg-openjpeg",
        "High-Throughput": "pylibjpeg pylibjpeg-openjpeg",
        "RLE": "pylibjpeg-rle",
        "JPEG": "pylibjpeg pylibjpeg-libjpeg",
    }
    package = next((p for name, p in packages.items() if name in syntax.name), "python-gdcm")
    return CadError(
        f"compressed pixel data that cannot be decoded: {syntax.name} ({syntax}): "
        f"{str(error).splitlines()[0]}",
        file=path,
        hint=f"install {package}, or decompress with `gdcmconv --raw` or `dcmdjpeg`",
    )
