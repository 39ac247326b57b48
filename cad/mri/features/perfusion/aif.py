"""Compute arterial input functions: how much contrast agent the artery has at each time.

An input function is the curve of a population (Parker, Georgiou), or is measured in a vessel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from cad.base.errors import CadError

SECONDS_PER_MINUTE = 60.0

# Parameters of Parker's population curve (Parker et al., Magn Reson Med 56 (2006) 993, Table 1).
# Each Gaussian has an area in mM min, and a centre and a width in min. Rates are in 1/min.
PARKER_GAUSSIANS = ((0.809, 0.17046, 0.0563), (0.330, 0.365, 0.132))
PARKER_ALPHA = 1.050
PARKER_BETA = 0.1685
PARKER_S = 38.078
PARKER_TAU = 0.483

# Parameters of Georgiou's population curve (Georgiou et al., Magn Reson Med 81 (2019) 1756).
# Amplitudes are in mM, rates in 1/min, times in min.
GEORGIOU_AMPLITUDE = (0.37, 0.33, 10.06)
GEORGIOU_RATE = (0.11, 1.17, 16.02)
GEORGIOU_ALPHA = 5.26
GEORGIOU_BETA = 0.032
GEORGIOU_TAU = 0.129

# Longest step (s) between samples of a population's curve. The curve rises within seconds, so that
# samples at the times of the frames would not be enough.
FINE_STEP_S = 1.0


@dataclass(frozen=True, eq=False)
class InputFunction:
    """Hold the plasma concentration in the artery, which is linear between its samples.

    Parameters
    ----------
    times : ndarray, shape (n_fine,)
        Times of the samples in seconds, strictly increasing.
    plasma : ndarray, shape (n_fine,)
        Concentration of contrast agent in plasma at these times, mM.
    at_frames : ndarray of int, shape (n_times,)
        Positions in ``times`` of the frames of the dynamic series.
    """

    times: np.ndarray
    plasma: np.ndarray
    at_frames: np.ndarray

    def __post_init__(self) -> None:
        if self.times.shape != self.plasma.shape or self.times.ndim != 1:
            raise CadError(
                f"an input function has one concentration per time, found shapes "
                f"{self.times.shape} and {self.plasma.shape}"
            )
        if not np.isfinite(self.plasma).all():
            raise CadError(
                f"the arterial input function has {int((~np.isfinite(self.plasma)).sum())} "
                "samples that are not numbers",
                hint="the artery saturates or was drawn outside the image; use the population "
                "input (arterial_input: parker)",
            )


def parker_blood(times: np.ndarray, delay: float = 0.0) -> np.ndarray:
    """Return Parker's population curve: contrast agent in an artery's whole blood over time.

    Parameters
    ----------
    times : ndarray
        Times of the samples, seconds.
    delay : float
        Arrival of the bolus, in seconds on the clock of ``times``; the curve is zero before it.

    Returns
    -------
    ndarray, shape of ``times``
        mM in whole blood (OSIPI: Cb). Divide by 1 - haematocrit for plasma.

    References
    ----------
    Parker et al., Magn Reson Med 56 (2006) 993, equation (1) and Table 1.

    Examples
    --------
    >>> import numpy as np
    >>> curve = parker_blood(np.array([0.0, 10.0, 60.0]))
    >>> bool(curve[1] > curve[2] > 0)
    True
    """
    minutes = (np.asarray(times, float) - delay) / SECONDS_PER_MINUTE
    # The exponent of the sigmoid is cut off at 700, because exp would overflow at times long before
    # the bolus.
    sigmoid_exponent = np.clip(-PARKER_S * (minutes - PARKER_TAU), None, 700.0)
    blood = PARKER_ALPHA * np.exp(-PARKER_BETA * minutes) / (1.0 + np.exp(sigmoid_exponent))
    for area, centre, width in PARKER_GAUSSIANS:
        height = area / (width * np.sqrt(2 * np.pi))
        blood = blood + height * np.exp(-((minutes - centre) ** 2) / (2 * width**2))
    return np.where(minutes >= 0, blood, 0.0)


def georgiou_blood(times: np.ndarray, delay: float = 0.0) -> np.ndarray:
    """Return Georgiou's population curve: contrast agent in an artery's whole blood over time.

    The curve is three exponentials times a sum of gamma variates. Blood passes through the
    circulation again and again, so that one more gamma variate is added each ``GEORGIOU_TAU``. Each
    gamma variate is later and wider than the one before.

    Parameters
    ----------
    times : ndarray
        Times of the samples, seconds.
    delay : float
        Arrival of the bolus, in seconds on the clock of ``times``; the curve is zero before it.

    Returns
    -------
    ndarray, shape of ``times``
        mM in whole blood. Divide by 1 - haematocrit for plasma.

    References
    ----------
    Georgiou et al., Magn Reson Med 81 (2019) 1756.

    Examples
    --------
    >>> import numpy as np
    >>> curve = georgiou_blood(np.array([0.0, 10.0, 60.0]))
    >>> bool(curve[1] > curve[2] > 0)
    True
    """
    minutes = (np.asarray(times, float) - delay) / SECONDS_PER_MINUTE
    gamma_variates = np.zeros_like(minutes)
    last_minute = max(float(minutes.max()), 0.0)
    n_passes = int(np.floor(last_minute / GEORGIOU_TAU)) + 1  # passes that begin until then
    for pass_number in range(n_passes):
        minutes_of_pass = minutes - pass_number * GEORGIOU_TAU
        begun = minutes_of_pass > 0
        shape = (pass_number + 1) * GEORGIOU_ALPHA + pass_number
        # Each pass of the bolus is a power times an exponential. It is computed by its logarithm,
        # because the powers of late passes are too large for floating-point numbers.
        log_power = shape * np.log(minutes_of_pass[begun]) - minutes_of_pass[begun] / GEORGIOU_BETA
        # The area under each pass is 1.
        log_variate = log_power - (shape + 1) * np.log(GEORGIOU_BETA) - gammaln(shape + 1)
        gamma_variates[begun] += np.exp(log_variate)
    # Before the arrival there is no pass, so that the decay does not matter. But its exponentials
    # could overflow there.
    minutes_from_arrival = np.clip(minutes, 0.0, None)
    decay = np.zeros_like(minutes)
    for amplitude, rate in zip(GEORGIOU_AMPLITUDE, GEORGIOU_RATE, strict=True):
        decay += amplitude * np.exp(-rate * minutes_from_arrival)
    return np.asarray(decay * gamma_variates)


def population_input(
    times: np.ndarray,
    delay: float,
    haematocrit: float,
    blood: Callable[[np.ndarray, float], np.ndarray] = parker_blood,
) -> InputFunction:
    """Return the concentration of contrast agent in a population's arterial plasma over time.

    The concentration is given at the times of the frames and at times close together between them.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    delay : float
        When the bolus reaches the artery, seconds on the frames' clock.
    haematocrit : float
        Share of blood that is cells, 0 to 1. The concentration in plasma is that in whole blood
        divided by 1 - haematocrit.
    blood : function
        Takes times and a delay (s) and returns the concentration in whole blood (mM): Parker's
        curve, or another population's.

    Examples
    --------
    >>> import numpy as np
    >>> inlet = population_input(np.arange(0.0, 60.0, 5.0), delay=10.0, haematocrit=0.42)
    >>> bool((inlet.plasma[0] == 0) & (inlet.plasma.max() > 1))
    True
    """
    fine, at_frames = refine_times(times, FINE_STEP_S)
    plasma = blood(fine, delay) / (1.0 - haematocrit)
    return InputFunction(fine, plasma, at_frames)


def sampled_input(times: np.ndarray, plasma: np.ndarray, delay: float = 0.0) -> InputFunction:
    """Return the input function that is known at the frames, moved to later times by ``delay``.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    plasma : ndarray, shape (n_times,)
        Concentration in plasma at the frames, mM.
    delay : float
        Shift in seconds. Before the shifted first frame, the input has the value of the first
        frame.

    Examples
    --------
    >>> import numpy as np
    >>> given = sampled_input(np.array([0.0, 5.0, 10.0]), np.array([0.0, 4.0, 2.0]), delay=5.0)
    >>> given.times.tolist(), given.plasma.tolist()
    ([0.0, 5.0, 10.0], [0.0, 0.0, 4.0])
    """
    times = np.asarray(times, float)
    plasma = np.asarray(plasma, float)
    if delay == 0:
        return InputFunction(times, plasma, np.arange(len(times)))
    # The curve is linear between the frames, and has a corner at each frame. After the shift, its
    # corners lie between the frames. They are added to the samples; otherwise the peak of the curve
    # would be cut off.
    corners = times + delay
    is_between = (corners > times[0]) & (corners < times[-1])
    fine = np.union1d(times, corners[is_between])
    # Rounding may put a corner just after a frame or after another corner. Such a corner is
    # dropped, because it says nothing new of the curve. Every frame stays, because the curve is
    # read there.
    is_apart = np.concatenate([[True], np.diff(fine) > 1e-9])
    is_frame = np.isin(fine, times)
    fine = fine[is_apart | is_frame]
    moved_plasma = np.interp(fine - delay, times, plasma)
    return InputFunction(fine, moved_plasma, at_frames=np.searchsorted(fine, times))


@dataclass(frozen=True, eq=False)
class ArterialInput:
    """Hold an input function that can be moved in time, and its delay in one study.

    Parameters
    ----------
    name : str
        ``parker``, ``georgiou`` or ``measured``.
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    delay : float
        Seconds. For a population's input: when the bolus arrives on the frames' clock. For a
        measured input: how much later the bolus reaches the tissue than the artery.
    haematocrit : float
        Share of blood that is cells; read for a population's input.
    plasma : ndarray, shape (n_times,), or None
        Measured input, mM in plasma; None for a population's input.
    """

    name: str
    times: np.ndarray
    delay: float = 0.0
    haematocrit: float = 0.0
    plasma: np.ndarray | None = None

    def inlet(self, delay: float) -> InputFunction:
        """Return the input function of tissue that the bolus reaches ``delay`` seconds later."""
        if self.plasma is not None:
            return sampled_input(self.times, self.plasma, delay)
        blood = {"parker": parker_blood, "georgiou": georgiou_blood}[self.name]
        return population_input(self.times, delay, self.haematocrit, blood=blood)


def refine_times(times: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Divide every interval between frames into equal parts that are not longer than a step.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    step : float
        Length that no part may exceed, s.

    Returns
    -------
    fine : ndarray, shape (n_fine,)
        The original times and those between them, seconds.
    at_frames : ndarray of int, shape (n_times,)
        Positions of the original times in ``fine``.

    Examples
    --------
    >>> import numpy as np
    >>> fine, place = refine_times(np.array([0.0, 2.0, 4.0]), 1.0)
    >>> fine.tolist(), place.tolist()
    ([0.0, 1.0, 2.0, 3.0, 4.0], [0, 2, 4])
    """
    times = np.asarray(times, float)
    intervals = np.diff(times)
    # The term 1e-9 keeps an interval of just one step, but for rounding, from being divided.
    n_steps = np.maximum(np.ceil(intervals / step - 1e-9).astype(int), 1)
    at_frames = np.concatenate([[0], np.cumsum(n_steps)])
    # All intervals are divided at once and not in a loop, because the search for a delay makes
    # dozens of input functions. The operations and their order are those of np.linspace, so that
    # the times equal those of np.linspace to the last bit.
    # ``number`` counts the steps of each interval from 0.
    number = np.arange(at_frames[-1]) - np.repeat(at_frames[:-1], n_steps)
    step_length = np.repeat(intervals / n_steps, n_steps)
    fine = number * step_length + np.repeat(times[:-1], n_steps)
    return np.concatenate([fine, times[-1:]]), at_frames
