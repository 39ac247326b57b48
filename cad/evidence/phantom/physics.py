"""Compute the signal of a tissue from its parameters: kinetics of contrast agent, magnetisation.

The module shares no code with :mod:`cad.mri.features.perfusion`, which fits such parameters to
signals. An error in one of the two is therefore not repeated in the other, and simulated curves
test the fits.
"""

import numpy as np

FINE_STEP = 0.5
"""Largest step (s) between samples of the arterial curve inside the convolution."""

# Parameters of the arterial curve, from Parker et al., Magn Reson Med 56 (2006) 993, Table 1. Each
# Gaussian has an area in mM min, and a centre and a width in min. Alpha is in mM, and rates are in
# 1/min.
_GAUSSIANS = ((0.809, 0.17046, 0.0563), (0.330, 0.365, 0.132))
_ALPHA = 1.050
_BETA = 0.1685
_S = 38.078
_TAU = 0.483


def parker(times: np.ndarray, delay: float) -> np.ndarray:
    """Return the concentration of contrast agent in an artery, mM in whole blood.

    It is the curve of Parker et al., an average over people.

    Parameters
    ----------
    times : ndarray
        Times of the samples, seconds.
    delay : float
        Arrival of the bolus, in seconds on the same clock; the curve is zero before it.

    Returns
    -------
    ndarray, shape of ``times``

    References
    ----------
    Parker et al., Magn Reson Med 56 (2006) 993.

    Examples
    --------
    >>> import numpy as np
    >>> np.round(parker(np.array([0.0, 10.0, 20.0, 60.0]), delay=10.0), 2).tolist()
    [0.0, 0.08, 6.04, 0.91]
    """
    minutes = (np.asarray(times, float) - delay) / 60.0
    # Before the arrival the formula has no meaning, and its exponentials could overflow.
    after_arrival = np.maximum(minutes, 0.0)
    curve = _ALPHA * np.exp(-_BETA * after_arrival) / (1.0 + np.exp(-_S * (after_arrival - _TAU)))
    for area, centre, width in _GAUSSIANS:
        peak = area / (width * np.sqrt(2.0 * np.pi))
        curve += peak * np.exp(-0.5 * ((after_arrival - centre) / width) ** 2)
    return np.where(minutes >= 0.0, curve, 0.0)


def extended_tofts(
    times: np.ndarray,
    fine_times: np.ndarray,
    plasma: np.ndarray,
    ktrans: np.ndarray,
    ve: np.ndarray,
    vp: np.ndarray,
) -> np.ndarray:
    """Return the concentration of contrast agent in tissues by the extended Tofts model.

    C(t) = vp Cp(t) + Ktrans int Cp(s) exp(-Ktrans/ve (t - s)) ds, with the plasma curve Cp. Between
    its samples Cp is linear, and the integral is exact.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times (s) of the result; each is one of ``fine_times``.
    fine_times : ndarray, shape (n_fine,)
        Times (s) of the plasma curve, evenly spaced.
    plasma : ndarray, shape (n_fine,)
        Plasma curve Cp, mM.
    ktrans : ndarray, shape (n,)
        Ktrans of each tissue, 1/min.
    ve, vp : ndarray, shape (n,)
        Volume fractions of each tissue, ve > 0.

    Returns
    -------
    ndarray, shape (n, n_times)
        Concentration of contrast agent, mM; a row per tissue.

    Examples
    --------
    With a constant plasma concentration of 1 mM the tissue has ve (1 - exp(-Ktrans / ve t)):

    >>> import numpy as np
    >>> times = np.array([0.0, 5.0, 10.0])
    >>> fine_times = fine_grid(times)
    >>> plasma = np.ones(len(fine_times))
    >>> tissue = extended_tofts(
    ...     times, fine_times, plasma, np.array([0.6]), np.array([0.3]), np.array([0.0])
    ... )
    >>> tissue[0].round(4).tolist()
    [0.0, 0.0461, 0.085]
    >>> (0.3 * (1 - np.exp(-2 * times / 60))).round(4).tolist()
    [0.0, 0.0461, 0.085]
    """
    step = (fine_times[1] - fine_times[0]) / 60.0  # min
    kep = np.maximum(np.asarray(ktrans, float) / ve, 1e-6)  # not 0, because it divides below
    x = kep * step
    decay = np.exp(-x)  # what is left of the agent in the tissue after one step
    # Within one step the plasma curve is linear between its two samples. Its integral over the step
    # is therefore a weighted sum of the two samples, with these weights of the later (`new`) and of
    # the earlier sample (`old`).
    new = (x - 1.0 + decay) / (kep * x)
    old = (1.0 - decay) / kep - new
    # For a slow exchange both weights are differences of nearly equal numbers. Their limit, half a
    # step, is then more exact.
    slow = x < 1e-4
    new = np.where(slow, step / 2, new)
    old = np.where(slow, step / 2, old)

    # The integral goes from step to step. A frame's concentration is taken when its time comes; the
    # small number allows for rounding errors of the times.
    frame_indices = set(np.searchsorted(fine_times, times - 1e-9).tolist())
    integral = np.zeros(len(kep))
    concentration = np.empty((len(times), len(kep)))
    frame = 0
    for i in range(len(fine_times)):
        # Before the agent arrives the integral stays 0, so these steps are left out.
        if i and (plasma[i] or plasma[i - 1] or frame):
            integral = integral * decay + old * plasma[i - 1] + new * plasma[i]
        if i in frame_indices:
            concentration[frame] = ktrans * integral + vp * plasma[i]
            frame += 1
    return concentration.T


def fine_grid(times: np.ndarray) -> np.ndarray:
    """Return evenly spaced times, among them the time of every frame.

    At these times the arterial curve is sampled to integrate over it.

    Parameters
    ----------
    times : ndarray, shape (n_frames,)
        Times of the frames in seconds, evenly spaced.

    Returns
    -------
    ndarray, shape (n,)
        Times in seconds, evenly spaced and at most ``FINE_STEP`` apart.

    Examples
    --------
    >>> import numpy as np
    >>> fine_grid(np.array([0.0, 1.0, 2.0])).tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    steps_between_frames = int(np.ceil((times[1] - times[0]) / FINE_STEP))
    n_steps = (len(times) - 1) * steps_between_frames
    return np.linspace(times[0], times[-1], n_steps + 1)


def spoiled_gradient_echo(
    t1: np.ndarray, density: np.ndarray, repetition_time: float, flip_angle: float
) -> np.ndarray:
    """Return the steady-state signal of a spoiled gradient echo, without T2* decay.

    T1 and repetition time are in s, the flip angle in degrees; the arrays broadcast (as in NumPy).
    The signal is in units of ``density``, the proton density.

    Examples
    --------
    The tissue with the shorter T1 is brighter:

    >>> import numpy as np
    >>> t1 = np.array([0.7, 1.4])
    >>> spoiled_gradient_echo(t1, np.ones(2), 0.005, 12.0).round(3).tolist()
    [0.051, 0.029]
    """
    angle = np.radians(flip_angle)
    e1 = np.exp(-repetition_time / t1)  # share of the relaxation that one repetition leaves undone
    signal: np.ndarray = density * np.sin(angle) * (1.0 - e1) / (1.0 - np.cos(angle) * e1)
    return signal


def spin_echo(
    t1: np.ndarray, t2: np.ndarray, density: np.ndarray, repetition_time: float, echo_time: float
) -> np.ndarray:
    """Return the signal of a (turbo) spin echo with 90 degree excitation.

    All times are in s; the arrays broadcast. The signal is in units of ``density``, the proton
    density.

    Examples
    --------
    The tissue with the longer T2 is brighter:

    >>> import numpy as np
    >>> t2 = np.array([0.08, 0.16])
    >>> spin_echo(np.full(2, 1.4), t2, np.ones(2), 5.0, 0.1).round(2).tolist()
    [0.28, 0.52]
    """
    return density * (1.0 - np.exp(-repetition_time / t1)) * np.exp(-echo_time / t2)
