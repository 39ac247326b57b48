"""Turn stacks (3-D images) into a dynamic series: phases in order, with times from the headers."""

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cad.base.errors import CadError
from cad.mri.imaging.pixels import PixelReader, read_stack
from cad.mri.imaging.stacks import BY_ORDER, Stack
from cad.mri.imaging.volume import Dynamic

_DAY = 86400.0  # seconds
# Times in the headers (clocks), in the order in which they are tried. The first clock with
# different times for all phases is used.
CLOCKS = ("trigger", "acquisition", "content")
# Least repetition time (s) of a whole volume. A shorter one is the time for one line of the
# volume's raw data.
_VOLUME_TR = 0.3


@dataclass(frozen=True)
class Phases:
    """Hold the phases of a dynamic series in order.

    Parameters
    ----------
    timed : tuple of (float, Stack)
        Time in seconds and slices of each phase, by increasing time.
    clock : str
        Source of the times, such as ``acquisition`` for the acquisition time in the headers.
    notes : tuple of str
        Sentences on how the times were found, if the wanted clock or all clocks were missing.
    """

    timed: tuple[tuple[float, Stack], ...]
    clock: str
    notes: tuple[str, ...] = ()

    @property
    def times(self) -> np.ndarray:
        """Return the times of the phases in seconds, shape (n_phases,)."""
        return np.array([time for time, _ in self.timed], float)


def read_phases(phases: Phases) -> Dynamic:
    """Read the voxels of a dynamic series as the scanner's signal.

    Philips headers scale stored numbers for display. The signal is read without this scaling
    (``precise`` in :func:`cad.mri.imaging.pixels.read_stack`). Times start at 0 in the first phase.

    Parameters
    ----------
    phases : Phases
        Phases with their times, from :func:`order_phases`.

    Returns
    -------
    Dynamic
        Signal in arbitrary units, shape (n_times, n_z, n_y, n_x), the times in s from the first
        phase, and repetition time (s) and flip angle (degrees) of the first header.

    Raises
    ------
    CadError
        For phases on different grids, and for files whose pixels cannot be read.
    """
    _, first = phases.timed[0]
    for number, (_, stack) in enumerate(phases.timed, start=1):
        if not stack.grid.same_grid(first.grid):
            raise CadError(
                f"DCE phases of different sizes: phase {number} ({stack}) is {stack.shape}, "
                f"phase 1 is {first.shape} (slices, rows, columns) or lies elsewhere",
                file=stack.first.path.parent,
                hint="export the phase again; a slice may be missing",
            )
    reader = PixelReader()
    volumes = [read_stack(stack, precise=True, reader=reader) for _, stack in phases.timed]
    frames = np.stack([volume.array for volume in volumes])
    header = first.first
    return Dynamic(
        frames=frames,
        grid=volumes[0].with_array(frames[0]),
        times=phases.times - phases.times[0],
        repetition_time=header.repetition_time,
        flip_angle=header.flip_angle,
    )


def order_phases(
    stacks: list[Stack], clock: str = "auto", pattern: str = "", interval: float | None = None
) -> Phases:
    """Sort the phases of a dynamic series and give each its time.

    Parameters
    ----------
    stacks : list of Stack
        The stacks of the series, one per phase, in any order.
    clock : str
        Source of the times: ``trigger``, ``acquisition`` or ``content`` (header times);
        ``description`` (a number of seconds in the series description); or ``auto``, the first of
        the header times that gives every phase a different time. If ``auto`` finds none, the phases
        keep the scanner's order. The repetition time is then taken as the time from phase to phase,
        if it is long enough for a whole volume. If only the instance numbers tell phases apart, a
        ``clock`` that gives no times is replaced by ``auto``.
    pattern : str
        For ``description``: regular expression whose first group is the number of seconds.
    interval : float, optional
        Seconds from phase to phase as the site states them; ``clock`` is then not used.

    Returns
    -------
    Phases
        Each phase with its time in s, by increasing time; the clock that gave the times; and notes
        on a clock that was missing.

    Raises
    ------
    CadError
        When a phase has no time, when two phases have the same time, or when the times contradict
        the order in which the scanner numbered the phases.
    """
    notes: tuple[str, ...] = ()
    # Where instance numbers tell phases apart, the headers have no sound times. The wanted clock
    # may then be missing, and others are tried.
    has_numbers_only = any(stack.told_apart_by == BY_ORDER for stack in stacks)
    if has_numbers_only:
        notes = (f"phases told apart by the {BY_ORDER}",)
    if interval is not None:
        return _evenly(stacks, interval, "interval", notes)

    clocks: tuple[str, ...] = (clock,)
    if clock == "auto":
        clocks = CLOCKS
    elif has_numbers_only:
        clocks = (clock, *CLOCKS)
    problems = []
    for name in clocks:
        try:
            timed = _by_clock(stacks, name, pattern)
        except CadError as error:
            problems.append(error)
            continue
        if clock not in ("auto", name):  # another clock than the wanted one
            notes = (*notes, f"dated by the {name} clock")
        return Phases(timed, name, notes)
    if clock != "auto" and not has_numbers_only:
        raise problems[0]

    # No clock gives times. One volume follows another after the repetition time and the pause, if
    # all headers state the same.
    stated = {(stack.first.repetition_time, stack.first.group_delay) for stack in stacks}
    repetition_time, delay = stated.pop() if len(stated) == 1 else (None, 0.0)
    if repetition_time is not None and repetition_time >= _VOLUME_TR:
        seconds_of_phase = repetition_time + delay
        note = f"no clock dates the phases: one every {seconds_of_phase:g} s, the repetition time"
        if delay:
            note += f" and a group delay of {delay:g} s"
        return _evenly(stacks, seconds_of_phase, "repetition time", (*notes, note))
    raise CadError(
        f"no clock dates the {len(stacks)} phases of the dynamic series: {problems[0].problem}",
        file=stacks[0].first.path.parent,
        hint="give the seconds from phase to phase as dce.interval in the import rules",
    )


def _evenly(stacks: list[Stack], interval: float, clock: str, notes: tuple[str, ...]) -> Phases:
    """Return phases in the scanner's order, one every ``interval`` seconds.

    ``clock`` names the source of the interval.
    """

    def place_in_series(stack: Stack) -> tuple[int, int, tuple[int, int]]:
        first_numbers = min((frame.instance_number, frame.index) for frame in stack.slices)
        return (stack.first.temporal_position or 0, stack.first.series_number, first_numbers)

    timed = []
    for number, stack in enumerate(sorted(stacks, key=place_in_series)):
        timed.append((number * interval, stack))
    return Phases(tuple(timed), clock, notes)


def _by_clock(stacks: list[Stack], clock: str, pattern: str) -> tuple[tuple[float, Stack], ...]:
    """Return the phases with their times by a clock, by increasing time.

    Times that are missing or equal, or contradict the scanner's numbering, are refused.
    """
    timed = [(_time_of(stack, clock, pattern), stack) for stack in stacks]
    if clock in ("acquisition", "content"):
        # Both clocks state the time of day (VR TM, PS3.5 6.2), which starts again at midnight. If a
        # series runs past midnight, 24 hours are added to the times after midnight. No series takes
        # half a day, so that times farther apart lie on two days.
        times = [time for time, _ in timed]
        if max(times) - min(times) >= _DAY / 2:
            for index, (time, stack) in enumerate(timed):
                if time < _DAY / 2:
                    timed[index] = (time + _DAY, stack)
    timed.sort(key=lambda time_and_stack: time_and_stack[0])
    for (time, stack), (next_time, next_stack) in pairwise(timed):
        if next_time <= time:
            raise CadError(
                f"two DCE phases have the same time {time:g} s by the {clock} clock: {stack} and "
                f"{next_stack}",
                file=next_stack.first.path.parent,
                hint="choose another clock in the import rules",
            )
    _check_numbering(timed, clock)
    return tuple(timed)


def _check_numbering(timed: list[tuple[float, Stack]], clock: str) -> None:
    """Raise an error if the times contradict the scanner's own numbering of the phases.

    ``timed`` are times and phases, by increasing time. The first of three numbers of the header
    that differs in all phases counts.
    """
    for name in ("temporal_position", "acquisition_number", "series_number"):
        numbers = [getattr(stack.first, name) for _, stack in timed]
        if None in numbers or len(set(numbers)) < len(numbers):
            continue
        later_phases = zip(timed[1:], pairwise(numbers), strict=True)
        for (time, stack), (number_before, number) in later_phases:
            if number < number_before:
                raise CadError(
                    f"DCE times are not monotonic: by the {clock} clock {name.replace('_', ' ')} "
                    f"{number} comes after {number_before}, at {time:g} s",
                    file=stack.first.path.parent,
                    hint="choose another clock in the import rules",
                )
        return


def _time_of(stack: Stack, clock: str, pattern: str) -> float:
    """Return the time (s) of a phase by a clock; raise an error where it has none.

    ``pattern`` finds the seconds in the series description, for the clock ``description``.
    """
    header = stack.first
    time: float | None
    if clock == "description":
        match = re.search(pattern, header.description)
        try:
            time = float(match.group(1)) if match else None
        except (IndexError, ValueError):  # the pattern has no group, or it holds no number
            time = None
    else:
        # The time of a phase is that of its earliest slice.
        times = [getattr(frame, f"{clock}_time") for frame in stack.slices]
        time = None if None in times else min(times)
    if time is None:
        raise CadError(
            f"{stack} has no time by the {clock} clock",
            file=header.path.parent,
            hint="choose another clock in the import rules",
        )
    return time
