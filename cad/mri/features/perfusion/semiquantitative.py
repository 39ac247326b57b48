"""Measure a dynamic curve without a kinetic model: arrival, enhancement, slopes, areas."""

from typing import NamedTuple

import numpy as np
from numba import njit

from cad.base.errors import CadError

SECONDS_PER_MINUTE = 60.0
# A bolus is found if the mean curve rises by at least the share MIN_RISE of its baseline. The rise
# must also be at least MIN_RISE_SD standard deviations of the frames before it.
MIN_RISE = 0.05
MIN_RISE_SD = 5.0
# Number of frames before the arrival above which the last of them can be spared.
_SAFE_BASELINE = 3
_PARTS = 4  # an arrival is tried at every quarter of the interval between two frames


class Bolus(NamedTuple):
    """Say where the bolus is in a series.

    Parameters
    ----------
    arrival : float
        Time at which the bolus arrives, in seconds on the frames' clock.
    n_baseline : int
        Number of frames at the start that certainly precede the arrival.
    """

    arrival: float
    n_baseline: int


def find_bolus(times: np.ndarray, curve: np.ndarray) -> Bolus:
    """Find the arrival of the bolus and the number of baseline frames in one mean curve.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    curve : ndarray, shape (n_times,)
        Mean signal of a region that enhances.

    Returns
    -------
    Bolus
        Time of the arrival in s on the clock of ``times``, and number of frames before it, at least
        2.

    Raises
    ------
    CadError
        When there are fewer than 4 frames, no bolus is found, or the bolus arrives before the
        second frame.

    Examples
    --------
    >>> import numpy as np
    >>> times = np.arange(0.0, 60.0, 5.0)
    >>> curve = np.where(times < 20, 100.0, 200.0)
    >>> find_bolus(times, curve).n_baseline
    3
    """
    curve = np.asarray(curve, float)
    if len(curve) < 4:
        raise CadError(
            f"{len(curve)} dynamic frames: at least 4 are needed to see a bolus",
            hint="give the whole dynamic series",
        )
    if not np.isfinite(curve).all():
        raise CadError("the mean dynamic curve holds values that are not numbers")
    arrival = float(bolus_arrival(times, curve[None])[0])
    # The term 1e-9 counts a frame at the arrival, which has no contrast agent yet.
    n_baseline = int(np.searchsorted(times, arrival + 1e-9))
    # The curve is fitted by a constant and then a straight rise, and ``arrival`` is the corner
    # between them. The first contrast agent comes a little before the corner. If there are enough
    # frames, the last frame before the corner is therefore not used for the baseline.
    if n_baseline > _SAFE_BASELINE:
        n_baseline -= 1
    # The rise is that of the mean of three frames, so that one noisy frame is no bolus.
    smoothed_curve = np.convolve(curve, np.ones(3) / 3, mode="valid")
    baseline = float(curve[:n_baseline].mean()) if n_baseline else float(curve[0])
    noise = float(curve[:n_baseline].std(ddof=1)) if n_baseline > 2 else 0.0
    rise = float(smoothed_curve.max()) - baseline
    if baseline <= 0 or rise < MIN_RISE * baseline or rise < MIN_RISE_SD * noise:
        raise CadError(
            f"no bolus is seen: the mean signal rises by {rise:.3g} from a baseline of "
            f"{baseline:.3g} (baseline noise {noise:.2g}); at least {MIN_RISE:.0%} and "
            f"{MIN_RISE_SD:g} times the noise are needed",
            hint="check that this is the dynamic series, its frame order and the gland mask",
        )
    if n_baseline < 2:
        raise CadError(
            f"no baseline frame: the bolus arrives at {arrival:.1f} s, the first frame is at "
            f"{times[0]:.1f} s and the second at {times[1]:.1f} s",
            hint="the series must start before the injection arrives",
        )
    return Bolus(arrival, n_baseline)


def bolus_arrival(times: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Find when the bolus arrives in each curve, by fitting a constant and then a straight rise.

    The arrival is the corner at which the constant ends and the rise begins. It is searched in
    steps of a quarter of a frame, by least squares on the frames up to the first that reaches 60 %
    of the largest enhancement (linear-linear method, Cheong et al., Phys Med Biol 48 (2003) N83).

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    curves : ndarray, shape (n_curves, n_times)
        Values of each curve over time, any unit.

    Returns
    -------
    ndarray, shape (n_curves,)
        Seconds; the time of the last frame for a curve that does not rise.

    Examples
    --------
    >>> import numpy as np
    >>> times = np.arange(0.0, 100.0, 5.0)
    >>> curve = np.clip(times - 40.0, 0.0, 30.0)
    >>> bool(abs(bolus_arrival(times, curve[None])[0] - 40.0) < 2.5)
    True
    """
    out = np.zeros(len(curves))
    # _arrivals() is compiled for one type of arrays, to which the arguments are converted.
    _arrivals(np.require(times, float, ["C", "W"]), np.require(curves, float, ["C", "W"]), out)
    return out


def semiquantitative(
    times: np.ndarray, signal: np.ndarray, baseline: np.ndarray, arrival: float
) -> dict[str, np.ndarray]:
    """Return the parameters of each curve that need no kinetic model.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    signal : ndarray, shape (n_curves, n_times)
        Signal of each curve over time, arbitrary units.
    baseline : ndarray, shape (n_curves,)
        Mean signal before the bolus.
    arrival : float
        Bolus arrival of the study, seconds.

    Returns
    -------
    dict of str to ndarray, shape (n_curves,)
        The parameters by name:

        - ``baseline_signal``: mean signal before the bolus, arbitrary units
        - ``bolus_arrival``: arrival of the bolus in the curve, s from the study's arrival
        - ``maximum_enhancement``: signal at the peak less the baseline, arbitrary units
        - ``relative_enhancement``: maximum enhancement as a fraction of the baseline
        - ``time_to_peak``: time of the peak, s from the study's arrival
        - ``wash_in``: relative enhancement divided by the time to peak, 1/min
        - ``wash_out``: least-squares slope of the relative enhancement from the peak on, 1/min; 0
          when the peak is the last frame

        A constant curve gives 0 for every parameter of the enhancement.

    Examples
    --------
    >>> import numpy as np
    >>> times = np.arange(0.0, 60.0, 5.0)
    >>> signal = np.interp(times, [20.0, 30.0, 60.0], [100.0, 250.0, 220.0])[None]
    >>> measured = semiquantitative(times, signal, np.array([100.0]), arrival=20.0)
    >>> measured["relative_enhancement"].tolist(), measured["time_to_peak"].tolist()
    ([1.5], [10.0])
    """
    signal = np.asarray(signal, float)
    frames_after = np.flatnonzero(times >= arrival)
    if not len(frames_after):
        raise CadError(f"no frame follows the bolus arrival at {arrival:.1f} s")
    baseline = np.asarray(baseline, float)
    signal_after = signal[:, frames_after]
    peak = frames_after[np.argmax(signal_after, axis=1)]
    maximum_enhancement = np.maximum(signal_after.max(axis=1) - baseline, 0.0)
    # Where the baseline is 0, as in air, nothing can be divided by it. Relative values are 0 there.
    positive = baseline > 0
    divisor = np.where(positive, baseline, 1.0)
    relative_enhancement = np.where(positive, maximum_enhancement / divisor, 0.0)
    relative_curve = np.where(positive[:, None], signal / divisor[:, None] - 1.0, 0.0)
    enhances = maximum_enhancement > 0
    seconds_to_peak = np.where(enhances, np.maximum(times[peak] - arrival, 0.0), 0.0)
    minutes = seconds_to_peak / SECONDS_PER_MINUTE
    # A peak at the arrival itself has no time in which the curve rises, and no wash-in.
    wash_in = np.where(minutes > 0, relative_enhancement / np.where(minutes > 0, minutes, 1.0), 0.0)
    return {
        "baseline_signal": baseline,
        "bolus_arrival": np.where(enhances, bolus_arrival(times, signal) - arrival, 0.0),
        "maximum_enhancement": maximum_enhancement,
        "relative_enhancement": relative_enhancement,
        "time_to_peak": seconds_to_peak,
        "wash_in": wash_in,
        "wash_out": np.where(enhances, _slope_from(times, relative_curve, peak), 0.0),
    }


def initial_area(
    times: np.ndarray, curves: np.ndarray, arrival: float, duration: float
) -> np.ndarray:
    """Return the area under each curve during ``duration`` seconds from the arrival (OSIPI: IAUC).

    The area follows the trapezoid rule; values at both ends are linear between frames.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    curves : ndarray, shape (n_curves, n_times)
        Values of each curve over time, mM or any other unit.
    arrival, duration : float
        Arrival of the bolus, and time from then on to integrate over, seconds.

    Returns
    -------
    ndarray, shape (n_curves,)
        The area of each curve, in the unit of the curve times seconds.

    Raises
    ------
    CadError
        When the series ends before arrival + duration.

    Examples
    --------
    >>> import numpy as np
    >>> times = np.arange(0.0, 200.0, 1.0)
    >>> float(initial_area(times, np.ones((1, 200)), arrival=10.0, duration=60.0)[0].round(6))
    60.0
    """
    times = np.asarray(times, float)
    end = arrival + duration
    if end > times[-1] + 1e-6:  # more than a rounding error beyond the last frame
        raise CadError(
            f"the initial area over {duration:g} s needs frames until {end:.1f} s, the series "
            f"ends at {times[-1]:.1f} s"
        )
    frames_between = times[(times > arrival) & (times < end)]
    corners = np.concatenate([[max(arrival, times[0])], frames_between, [end]])
    # Each corner lies between two frames; the last one, at the last frame, counts to the frames
    # before it.
    frame_before = np.clip(np.searchsorted(times, corners, side="right") - 1, 0, len(times) - 2)
    share_of_next = (corners - times[frame_before]) / (
        times[frame_before + 1] - times[frame_before]
    )
    # The area under a curve is a weighted sum of its frames. The weights are the same for all
    # curves, so that one matrix product gives all areas.
    intervals = np.diff(corners)
    # By the trapezoid rule, a corner counts half of the interval before it and half of the interval
    # after it. The value at a corner is shared between the frames on either side of it.
    width = 0.5 * (np.concatenate([[0.0], intervals]) + np.concatenate([intervals, [0.0]]))
    weight = np.zeros(len(times))
    np.add.at(weight, frame_before, width * (1 - share_of_next))
    np.add.at(weight, frame_before + 1, width * share_of_next)
    return np.asarray(curves, float) @ weight


def _slope_from(times: np.ndarray, curves: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the least-squares slope (1/min) of each curve from its own frame ``first`` on."""
    from_first = np.arange(len(times)) >= first[:, None]
    n_frames = from_first.sum(axis=1)
    minutes = np.asarray(times, float) / SECONDS_PER_MINUTE
    mean_minutes = (from_first * minutes).sum(axis=1) / n_frames
    offset = np.where(from_first, minutes - mean_minutes[:, None], 0.0)
    squares = (offset**2).sum(axis=1)
    slope = (offset * curves).sum(axis=1) / np.where(squares > 0, squares, 1.0)
    return np.where(n_frames > 1, slope, 0.0)  # one frame has no slope


@njit(cache=True)
def _arrivals(times: np.ndarray, curves: np.ndarray, out: np.ndarray) -> None:
    """Write the arrival of the bolus in each curve (s) into ``out``, as :func:`bolus_arrival` says.

    A curve that only falls arrives at the first frame, and a constant curve at the last.
    """
    n_times = len(times)
    for curve in range(len(curves)):
        signal = curves[curve]
        first_level = signal[0]
        lowest = top = first_level
        for frame in range(1, n_times):
            lowest = min(lowest, signal[frame])
            top = max(top, signal[frame])
        # Only the rise of the curve is fitted, without plateau and wash-out. The fit therefore ends
        # where the curve reaches 60 % of its largest enhancement.
        last = 0
        while last < n_times - 1 and signal[last] < first_level + 0.6 * (top - first_level):
            last += 1
        if top <= first_level:
            out[curve] = times[n_times - 1] if top <= lowest else times[0]
            continue
        n_fitted = last + 1
        least_cost = np.inf
        out[curve] = times[0]
        for start in range(max(last, 1)):
            for step in range(_PARTS):
                corner = times[start] + (times[start + 1] - times[start]) * step / _PARTS
                # The sums below give the least-squares fit of level + slope * max(0, t - corner).
                sx = sy = sxx = sxy = syy = 0.0
                for frame in range(n_fitted):
                    x = max(0.0, times[frame] - corner)
                    sx += x
                    sy += signal[frame]
                    sxx += x * x
                    sxy += x * signal[frame]
                    syy += signal[frame] * signal[frame]
                # The fitted slope is cxy / cxx. The sum of squares that remains, ``cost``, is syy -
                # sy^2 / n - cxy^2 / cxx.
                cxx = sxx - sx * sx / n_fitted
                cxy = sxy - sx * sy / n_fitted
                cost = syy - sy * sy / n_fitted
                if cxx > 0:
                    if cxy <= 0:  # a curve that falls after the corner shows no bolus there
                        continue
                    cost -= cxy * cxy / cxx
                # If several corners have the same cost, as in a flat part of the curve, the
                # earliest corner is taken. Without the small margin, rounding errors would decide
                # between them.
                if cost < least_cost - 1e-12 * abs(syy):
                    least_cost = cost
                    out[curve] = corner
