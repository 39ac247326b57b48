"""Compute the concentration of contrast agent from signals, by the spoiled gradient-echo equation.

S is the signal, S0 its scale, a the flip angle, TR the repetition time, R1 = 1 / T1 the relaxation
rate. With E1 = exp(-TR R1) the signal is S = S0 sin(a) (1 - E1) / (1 - E1 cos(a)). Contrast agent
of concentration C and relaxivity r1 adds to the rate before contrast, R10: R1 = R10 + r1 C. The
decay of the signal until the echo time (T2*) is neglected.
"""

import numpy as np

from cad.base.errors import CadError


def check_sequence(repetition_time: float | None, flip_angle: float | None) -> tuple[float, float]:
    """Check repetition time and flip angle of a dynamic series, and return both.

    Parameters
    ----------
    repetition_time : float or None
        Seconds; None where it is unknown.
    flip_angle : float or None
        Degrees; None where it is unknown.

    Returns
    -------
    repetition_time : float
        Seconds, between 0 and 1.
    flip_angle : float
        Degrees, between 0 and 180.

    Raises
    ------
    CadError
        For a missing value, or a value that no spoiled gradient echo has. A TR above 1 s is nearly
        always a number of milliseconds.
    """
    if repetition_time is None:
        raise CadError(
            "the repetition time of the dynamic series is missing",
            hint="add RepetitionTime (seconds) to its JSON sidecar",
        )
    if flip_angle is None:
        raise CadError(
            "the flip angle of the dynamic series is missing",
            hint="add FlipAngle (degrees) to its JSON sidecar",
        )
    if not 0 < repetition_time < 1:
        raise CadError(
            f"a spoiled gradient echo has a repetition time between 0 and 1 s, found "
            f"{repetition_time:g} s",
            hint="sidecars are in seconds, DICOM headers in milliseconds",
        )
    if not 0 < flip_angle < 180:
        raise CadError(f"a flip angle lies between 0 and 180 degrees, found {flip_angle:g}")
    return float(repetition_time), float(flip_angle)


def concentration_from_signal(
    signal: np.ndarray,
    baseline: np.ndarray,
    t1: np.ndarray,
    repetition_time: float,
    flip_angle: float | np.ndarray,
    relaxivity: float,
) -> np.ndarray:
    """Return the concentration by exact inversion of the spoiled gradient-echo equation.

    Parameters
    ----------
    signal : ndarray, shape (..., n_times)
        Signal of each curve over time, arbitrary units.
    baseline : ndarray, shape (...)
        Signal before contrast.
    t1 : ndarray, shape (...)
        T1 before contrast, s.
    repetition_time, relaxivity : float
        Repetition time (s), and relaxivity of the contrast agent (1/(s mM)).
    flip_angle : float, or ndarray of shape (...)
        Degrees: one angle for all curves, or an angle for each curve (transmit field).

    Returns
    -------
    ndarray, shape of ``signal``
        Concentration, mM. Noise may make it negative, and nothing is clipped. It is NaN where no
        concentration gives the signal (at or above the signal of fully relaxed spins), and where
        baseline or T1 is not positive.

    Examples
    --------
    The signals are made for 0 and 0.5 mM of an agent with a relaxivity of 4.5 1/(s mM). The
    function returns these concentrations:

    >>> import numpy as np
    >>> t1 = 1 / (1 / 1.4 + 4.5 * 0.5)
    >>> angle = np.radians(12.0)
    >>> def signal_of(t1):
    ...     e1 = np.exp(-0.005 / t1)
    ...     return np.sin(angle) * (1 - e1) / (1 - np.cos(angle) * e1)
    ...
    >>> signal = np.array([[signal_of(1.4), signal_of(t1)]])
    >>> concentration = concentration_from_signal(
    ...     signal, signal[:, 0], np.array([1.4]), 0.005, 12.0, 4.5
    ... )
    >>> np.abs(concentration).round(3).tolist()
    [[0.0, 0.5]]
    """
    cosine = np.cos(np.deg2rad(flip_angle))
    baseline = np.asarray(baseline, float)
    t1 = np.asarray(t1, float)
    usable = (baseline > 0) & (t1 > 0)
    r10 = 1.0 / np.where(usable, t1, np.nan)
    e10 = np.exp(-repetition_time * r10)
    # S0 sin(a) is the signal that fully relaxed spins would give at the flip angle a. Its inverse,
    # ``inverse_full_signal``, follows from the baseline signal. ``share_of_full`` is the signal
    # divided by S0 sin(a). No concentration gives a share of 1 or more.
    inverse_full_signal = (1 - e10) / ((1 - e10 * cosine) * np.where(usable, baseline, np.nan))
    share_of_full = np.asarray(signal, float) * inverse_full_signal[..., None]
    share_of_full = np.where(share_of_full < 1, share_of_full, np.nan)
    # The signal equation, solved for E1 = exp(-TR R1).
    e1 = (1 - share_of_full) / (1 - share_of_full * np.asarray(cosine)[..., None])
    r1 = -np.log(e1) / repetition_time
    return np.asarray((r1 - r10[..., None]) / relaxivity)


def baseline_signal(signal: np.ndarray, n_baseline: int, skip: int = 0) -> np.ndarray:
    """Return each curve's mean signal before the bolus: frames ``skip`` to ``n_baseline - 1``.

    Parameters
    ----------
    signal : ndarray, shape (..., n_times)
        Signal of each curve over time, arbitrary units.
    n_baseline : int
        Number of frames before the bolus, including the skipped frames.
    skip : int
        Frames at the start that have not reached the steady state.

    Returns
    -------
    ndarray, shape (...)
        Mean signal of each curve, in the unit of ``signal``.

    Raises
    ------
    CadError
        When no frame before the bolus is left.

    Examples
    --------
    >>> import numpy as np
    >>> baseline_signal(np.array([[9.0, 1.0, 3.0, 8.0]]), n_baseline=3, skip=1).tolist()
    [2.0]
    """
    if n_baseline - skip < 1:
        raise CadError(
            f"no frame before the bolus: {n_baseline} baseline frames, {skip} of them skipped",
            hint="the series must start before the injection arrives",
        )
    return np.asarray(np.asarray(signal)[..., skip:n_baseline].mean(axis=-1, dtype=float))
