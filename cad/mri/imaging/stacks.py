"""Group the frames of a series into stacks: 3-D images with their slices in order.

Slices of a stack share orientation, size, spacing, b-value, gradient direction, flip angle, echo
time and time point. Geometry is compared with a tolerance, because scanners write spacings that
differ in the last digits.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cad.base.errors import CadError, printable
from cad.mri.imaging.elements import tagged
from cad.mri.imaging.frames import Frame
from cad.mri.imaging.volume import Volume, triple

ORIENTATION_TOLERANCE = 1e-3
# If a direction cosine of two slices differs by at least this much, the slices lie in two planes,
# such as axial and sagittal. The slices of one image differ by less on every scanner.
_OTHER_PLANE = 0.2
POSITION_TOLERANCE_MM = 0.1
SPACING_TOLERANCE = 0.02  # largest difference of two slice distances, as a share of the median
MISSING_FACTOR = 1.5  # a step larger than this many times the median has lost a slice
_PIXEL_TOLERANCE_MM = 1e-3  # largest difference of two roundings of one pixel spacing
BY_ORDER = "order of the instance numbers"


@dataclass(frozen=True)
class Stack:
    """Hold the slices of one 3-D image, sorted along their normal.

    Parameters
    ----------
    slices : tuple of Frame
        Headers of the slices, in the order of the z axis.
    spacing : tuple of 3 floats
        Voxel size in mm along x, y, z.
    origin : tuple of 3 floats
        Centre of voxel (0, 0, 0) in the patient, mm to his left, back and head (LPS).
    direction : ndarray, shape (3, 3)
        Columns are the unit vectors of the x, y and z voxel axes in LPS: left, back, head.
    told_apart_by : str
        What distinguishes this stack from the stacks of other time points at the same positions,
        such as ``acquisition time``. Empty where there is only one time point.
    """

    slices: tuple[Frame, ...]
    spacing: tuple[float, float, float]
    origin: tuple[float, float, float]
    direction: np.ndarray
    told_apart_by: str = ""

    @property
    def first(self) -> Frame:
        """Return the header of the first slice, for attributes that all slices have in common."""
        return self.slices[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the number of voxels along z, y, x."""
        return (len(self.slices), self.first.rows, self.first.columns)

    @property
    def grid(self) -> Volume:
        """Return the stack's grid as a volume whose values mean nothing."""
        # The array has one value in memory, which all voxels share.
        empty = np.broadcast_to(np.zeros((), bool), self.shape)
        return Volume(empty, self.spacing, self.origin, self.direction)

    @property
    def order_of_numbers(self) -> np.ndarray | None:
        """Return the slices in the order of InStackPositionNumber, if it contradicts their places.

        The slices of a stack are sorted by their places (ImagePositionPatient). If their numbers
        rise, or fall, from each slice to the next, numbers and places agree, and the result is
        None. It is also None if a slice has no number, or if the slices are of several stacks or
        files. Otherwise the result has the indices of the slices, sorted by number. Slices with
        equal numbers stay in the order of their places.
        """
        stacks_of_files = {(frame.path, frame.stack_id) for frame in self.slices}
        stated_numbers = [frame.stack_position for frame in self.slices]
        if None in stated_numbers or len(stacks_of_files) > 1:
            return None
        numbers = np.array(stated_numbers)
        steps = np.diff(numbers)
        if (steps > 0).all() or (steps < 0).all():
            return None
        return np.argsort(numbers, kind="stable")

    def __str__(self) -> str:
        head = self.first
        b_value = "" if head.b_value is None else f", b {head.b_value:g}"
        flip = "" if head.flip_angle is None else f", flip {head.flip_angle:g}"
        return f"series {head.series_number} {printable(head.description)!r}{b_value}{flip}"


def stacks_of(frames: list[Frame]) -> list[Stack]:
    """Return the 3-D images of one series.

    Parameters
    ----------
    frames : list of Frame
        All planes of one SeriesInstanceUID.

    Returns
    -------
    list of Stack
        One for each combination of plane (a localiser has three), b-value, diffusion direction,
        flip angle, echo time, image type and time point.

    Raises
    ------
    CadError
        For a missing or duplicate slice, slices of different size, orientation or spacing, slices
        without a position, and mosaics that state different distances between their slices.
    """
    _check_mosaics(frames)
    groups: dict[tuple[object, ...], list[Frame]] = defaultdict(list)
    planes: list[np.ndarray] = []
    for frame in frames:
        # Numbers are rounded, because scanners write one value with differing last digits.
        direction = frame.direction
        if direction is not None:
            direction = tuple(round(cosine, 3) for cosine in direction)
        what_slices_share = (
            _number_of_plane(frame, planes),
            _rounded(frame.b_value, 1),
            direction,
            frame.flip_angle,
            _rounded(frame.echo_time, 3),
            frame.image_type,
        )
        groups[what_slices_share].append(frame)
    stacks: list[Stack] = []
    for frames_of_group in groups.values():
        stacks += _split_times(frames_of_group)

    def first_number(stack: Stack) -> tuple[int, int]:
        return min((frame.instance_number, frame.index) for frame in stack.slices)

    return sorted(stacks, key=first_number)


def _check_mosaics(frames: list[Frame]) -> None:
    """Refuse a series whose Siemens mosaics state different distances between their slices.

    The places of a mosaic's slices follow from this distance, so that two distances would give two
    images of one series on different grids.
    """
    first_places = {}
    distances: dict[Path, float] = {}  # of the first two slices of each mosaic
    for frame in frames:
        if not frame.tiles or frame.position is None:  # no slice of a mosaic
            continue
        place = np.array(frame.position)
        if frame.index == 0:
            first_places[frame.path] = place
        elif frame.index == 1 and frame.path in first_places:
            distances[frame.path] = float(np.linalg.norm(place - first_places[frame.path]))
    if not distances:
        return
    first_path, first_distance = next(iter(distances.items()))
    tolerance = max(SPACING_TOLERANCE * first_distance, POSITION_TOLERANCE_MM)
    for path, distance in distances.items():
        if abs(distance - first_distance) > tolerance:
            raise CadError(
                f"{tagged('SpacingBetweenSlices')} is {first_distance:g} mm in {first_path.name} "
                f"and {distance:g} mm in {path.name}; the mosaics of one series have one distance "
                "between slices",
                file=path,
                hint="two series may be mixed, or one file was changed; export the series again",
            )


def _number_of_plane(frame: Frame, planes: list[np.ndarray]) -> int | None:
    """Return the number of a slice's orientation in ``planes``; None if the header states none.

    An orientation that is not in ``planes`` is added to it.
    """
    if frame.orientation is None:
        return None
    axes = np.array(frame.orientation)
    for number, plane in enumerate(planes):
        if np.abs(plane - axes).max() < _OTHER_PLANE:
            return number
    planes.append(axes)
    return len(planes) - 1


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _split_times(frames: list[Frame]) -> list[Stack]:
    """Return one stack of slices, or one for each time point if a position has several slices."""
    positions = Counter(_rounded_position(frame) for frame in frames)
    n_times = max(positions.values())
    if n_times == 1:
        return [_stack(frames)]
    # The first number or clock of the header that tells the time points apart is taken: it has as
    # many values as there are time points, and each value has at most one slice at a position.
    for name in (
        "temporal_position",
        "acquisition_number",
        "trigger_time",
        "acquisition_time",
        "content_time",
    ):
        times: dict[object, list[Frame]] = defaultdict(list)
        for frame in frames:
            times[getattr(frame, name)].append(frame)
        all_apart = all(_all_apart(slices) for slices in times.values())
        if len(times) == n_times and all_apart and None not in times:
            return [_stack(slices, name.replace("_", " ")) for slices in times.values()]
    # The instance numbers can tell the phases of a dynamic series apart only if no two planes have
    # the same number, and no phase lacks a slice.
    numbers = {(frame.instance_number, frame.index) for frame in frames}
    all_numbered_apart = len(numbers) == len(frames)
    if set(positions.values()) == {n_times} and all_numbered_apart:
        return [_stack(slices, BY_ORDER) for slices in _by_order(frames)]
    place, count = positions.most_common(1)[0]
    duplicates = [frame for frame in frames if _rounded_position(frame) == place]
    file_names = ", ".join(frame.path.name for frame in duplicates[:4])
    raise CadError(
        f"duplicate slice: {count} images of series {duplicates[0].series_number} lie at position "
        f"{place} mm ({file_names}), and neither a clock nor the instance numbers tell them apart",
        file=duplicates[1].path,
        hint="if one is a copy, remove it; else export the series again",
    )


def _all_apart(frames: list[Frame]) -> bool:
    return len({_rounded_position(frame) for frame in frames}) == len(frames)


def _by_order(frames: list[Frame]) -> list[list[Frame]]:
    """Return phases by order of occurrence: the k-th plane at every position belongs to phase k."""
    phases: dict[int, list[Frame]] = defaultdict(list)
    n_planes_at: Counter[tuple[float, ...]] = Counter()
    for frame in sorted(frames, key=lambda frame: (frame.instance_number, frame.index)):
        position = _rounded_position(frame)
        phases[n_planes_at[position]].append(frame)
        n_planes_at[position] += 1
    return list(phases.values())


def _rounded_position(frame: Frame) -> tuple[float, ...]:
    if frame.position is None or frame.orientation is None or frame.pixel_spacing is None:
        raise CadError(
            "no ImagePositionPatient, ImageOrientationPatient or PixelSpacing", file=frame.path
        )
    return tuple(round(coordinate, 2) for coordinate in frame.position)


def _stack(slices: list[Frame], told_apart_by: str = "") -> Stack:
    """Return slices as a stack, sorted along their normal; refuse slices without a regular grid."""
    head = slices[0]
    for frame in slices:
        _rounded_position(frame)  # refuses a slice that does not state its place
        _check_alike(frame, head)
    along_row, along_column = np.array(head.orientation, float).reshape(2, 3)
    normal = np.cross(along_row, along_column)

    # The slices in the order of their places along the normal
    positions = np.array([frame.position for frame in slices], float)
    places = positions @ normal
    order = np.argsort(places, kind="stable")
    ordered_slices = [slices[index] for index in order]
    positions = positions[order]
    places = places[order]
    distance = _distance(places, ordered_slices)

    # Whether each of them lies straight above the first
    line = positions[0] + np.outer(places - places[0], normal)
    drift_mm = float(np.abs(positions - line).max())
    if drift_mm > POSITION_TOLERANCE_MM:
        raise CadError(
            f"slices are sheared: they drift {drift_mm:.2f} mm from the normal of their planes, "
            f"allowed {POSITION_TOLERANCE_MM} mm",
            file=head.path.parent,
            hint="gantry-tilted grids are not supported; resample the series",
        )
    assert head.pixel_spacing is not None  # noqa: S101 - _rounded_position has checked it
    row_spacing, column_spacing = head.pixel_spacing
    return Stack(
        slices=tuple(ordered_slices),
        spacing=(column_spacing, row_spacing, distance),
        origin=triple(positions[0]),
        direction=np.stack([along_row, along_column, normal], axis=1),
        told_apart_by=told_apart_by,
    )


def _check_alike(frame: Frame, head: Frame) -> None:
    """Refuse a slice whose size, directions or frame of reference are not those of the first."""
    if (frame.rows, frame.columns) != (head.rows, head.columns):
        raise CadError(
            f"slices differ in size: {frame.rows} x {frame.columns} and {head.rows} x "
            f"{head.columns}",
            file=frame.path,
        )
    tolerances = {"orientation": ORIENTATION_TOLERANCE, "pixel_spacing": _PIXEL_TOLERANCE_MM}
    for name, tolerance in tolerances.items():
        values = np.array(getattr(frame, name))
        values_of_head = np.array(getattr(head, name))
        if np.abs(values - values_of_head).max() > tolerance:
            raise CadError(
                f"slices differ in {name.replace('_', ' ')}: {values.tolist()} and "
                f"{values_of_head.tolist()}",
                file=frame.path,
                hint="a localiser may be mixed into the series",
            )
    if frame.frame_uid != head.frame_uid:
        raise CadError("slices of one series have different frames of reference", file=frame.path)


def _distance(places: np.ndarray, slices: list[Frame]) -> float:
    """Return the distance (mm) of neighbouring slices; refuse a missing or duplicate slice.

    ``places`` are the slices' places along their normal (mm), in rising order.
    """
    if len(places) == 1:
        thickness = slices[0].thickness
        if not thickness or thickness <= 0:
            raise CadError("a single slice without SliceThickness", file=slices[0].path)
        return float(thickness)
    steps = np.diff(places)
    median = float(np.median(steps))
    # If even the step that differs most from the median is one of them, all are.
    worst = int(np.argmax(np.abs(steps - median)))
    worst_step = float(steps[worst])
    if abs(worst_step - median) <= max(SPACING_TOLERANCE * median, POSITION_TOLERANCE_MM):
        return float(places[-1] - places[0]) / (len(places) - 1)
    before = slices[worst]
    behind = slices[worst + 1]
    between = f"series {before.series_number}, between {before.path.name} and {behind.path.name}"
    if worst_step > MISSING_FACTOR * median:
        n_missing = max(round(worst_step / median) - 1, 1)
        raise CadError(
            f"missing slice: {n_missing} between {places[worst]:.2f} and "
            f"{places[worst + 1]:.2f} mm along the normal ({between}); the slice distance is "
            f"{median:.3f} mm",
            file=behind.path,
            hint="export the series again",
        )
    raise CadError(
        f"uneven slices: a step of {worst_step:.3f} mm where others are {median:.3f} mm "
        f"({between})",
        file=behind.path,
        hint="a duplicate slice or two interleaved series; export the series again",
    )
