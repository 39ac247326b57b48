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
MISSING_FACTOR = 1.5
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
        stacks_of_files = {(item.path, item.stack_id) for item in self.slices}
        stated = [item.stack_position for item in self.slices]
        if None in stated or len(stacks_of_files) > 1:
            return None
        numbers = np.array(stated)
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
    for item in frames:
        direction = item.direction
        if direction is not None:
            direction = tuple(round(v, 3) for v in direction)
        key = (
            _number_of_plane(item, planes),
            _rounded(item.b_value, 1),
            direction,
            item.flip_angle,
            _rounded(item.echo_time, 3),
            item.image_type,
        )
        groups[key].append(item)
    stacks: list[Stack] = []
    for group in groups.values():
        stacks += _split_times(group)
    return sorted(stacks, key=lambda s: min((i.instance_number, i.index) for i in s.slices))


def _check_mosaics(frames: list[Frame]) -> None:
    """Refuse a series whose Siemens mosaics state different distances between their slices.

    The places of a mosaic's slices follow from this distance, so that two distances would give two
    images of one series on different grids.
    """
    first_places = {}
    distances: dict[Path, float] = {}
    for item in frames:
        if not item.tiles or item.position is None:
            continue
        place = np.array(item.position)
        if item.index == 0:
            first_places[item.path] = place
        elif item.index == 1 and item.path in first_places:
            distances[item.path] = float(np.linalg.norm(place - first_places[item.path]))
    if not distances:
        return
    head, distance = next(iter(distances.items()))
    for path, other in distances.items():
        if abs(other - distance) > max(SPACING_TOLERANCE * distance, POSITION_TOLERANCE_MM):
            raise CadError(
                f"{tagged('SpacingBetweenSlices')} is {distance:g} mm in {head.name} and "
                f"{other:g} mm in {path.name}; the mosaics of one series have one distance between "
                "slices",
                file=path,
                hint="two series may be mixed, or one file was changed; export the series again",
            )


def _number_of_plane(item: Frame, planes: list[np.ndarray]) -> int | None:
    """Return the number of a slice's orientation in ``planes``; None if the header states none.

    An orientation that is not in ``planes`` is added to it.
    """
    if item.orientation is None:
        return None
    axes = np.array(item.orientation)
    for number, plane in enumerate(planes):
        if np.abs(plane - axes).max() < _OTHER_PLANE:
            return number
    planes.append(axes)
    return len(planes) - 1


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _split_times(group: list[Frame]) -> list[Stack]:
    """Return one stack of slices, or one for each time point if a position has several slices."""
    positions = Counter(_rounded_position(item) for item in group)
    repeats = max(positions.values())
    if repeats == 1:
        return [_stack(group)]
    for name in (
        "temporal_position",
        "acquisition_number",
        "trigger_time",
        "acquisition_time",
        "content_time",
    ):
        times: dict[object, list[Frame]] = defaultdict(list)
        for item in group:
            times[getattr(item, name)].append(item)
        once = all(_all_apart(items) for items in times.values())
        if len(times) == repeats and once and None not in times:
            return [_stack(items, name.replace("_", " ")) for items in times.values()]
    # The instance numbers can tell the phases of a dynamic series apart only if no two planes have
    # the same number.
    numbered = len({(item.instance_number, item.index) for item in group}) == len(group)
    if set(positions.values()) == {repeats} and numbered:
        return [_stack(items, BY_ORDER) for items in _by_order(group)]
    place, count = positions.most_common(1)[0]
    twice = [item for item in group if _rounded_position(item) == place]
    raise CadError(
        f"duplicate slice: {count} images of series {twice[0].series_number} lie at position "
        f"{place} mm ({', '.join(item.path.name for item in twice[:4])}), and neither a clock nor "
        "the instance numbers tell them apart",
        file=twice[1].path,
        hint="if one is a copy, remove it; else export the series again",
    )


def _all_apart(items: list[Frame]) -> bool:
    return len({_rounded_position(item) for item in items}) == len(items)


def _by_order(group: list[Frame]) -> list[list[Frame]]:
    """Return phases by order of occurrence: the k-th plane at every position belongs to phase k."""
    phases: dict[int, list[Frame]] = defaultdict(list)
    times_seen: Counter[tuple[float, ...]] = Counter()
    for item in sorted(group, key=lambda i: (i.instance_number, i.index)):
        phases[times_seen[_rounded_position(item)]].append(item)
        times_seen[_rounded_position(item)] += 1
    return list(phases.values())


def _rounded_position(item: Frame) -> tuple[float, ...]:
    if item.position is None or item.orientation is None or item.pixel_spacing is None:
        raise CadError(
            "no ImagePositionPatient, ImageOrientationPatient or PixelSpacing", file=item.path
        )
    return tuple(round(v, 2) for v in item.position)


def _stack(slices: list[Frame], told_apart_by: str = "") -> Stack:
    """Return slices as a stack, sorted along their normal; refuse slices without a regular grid."""
    head = slices[0]
    for item in slices:
        _rounded_position(item)
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
    assert head.pixel_spacing is not None  # noqa: S101 - _rounded_position has checked it
    row_spacing, column_spacing = head.pixel_spacing
    return Stack(
        tuple(ordered),
        (column_spacing, row_spacing, distance),
        triple(positions[order[0]]),
        np.stack([orientation[0], orientation[1], normal], axis=1),
        told_apart_by,
    )


def _check_alike(item: Frame, head: Frame) -> None:
    if (item.rows, item.columns) != (head.rows, head.columns):
        raise CadError(
            f"slices differ in size: {item.rows} x {item.columns} and {head.rows} x {head.columns}",
            file=item.path,
        )
    for name, tolerance in (("orientation", ORIENTATION_TOLERANCE), ("pixel_spacing", 1e-3)):
        a = np.array(getattr(item, name))
        b = np.array(getattr(head, name))
        if np.abs(a - b).max() > tolerance:
            problem = f"slices differ in {name.replace('_', ' ')}: {a.tolist()} and {b.tolist()}"
            raise CadError(problem, file=item.path, hint="a localiser may be mixed into the series")
    if item.frame_uid != head.frame_uid:
        raise CadError("slices of one series have different frames of reference", file=item.path)


def _distance(along: np.ndarray, ordered: list[Frame]) -> float:
    """Return the distance (mm) of neighbouring slices; refuse a missing or duplicate slice."""
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
    a = ordered[worst]
    b = ordered[worst + 1]
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
