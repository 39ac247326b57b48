"""Compute T1 from spoiled gradient echoes at several flip angles."""

from dataclasses import dataclass

import numpy as np

from cad.base.errors import CadError

# Least and largest T1 (s) of a fit. With a T1 outside these limits the fit failed: no tissue and no
# phantom has such a T1 at 1.5 or 3 T.
T1_MIN_S = 0.01
T1_MAX_S = 10.0
# T1 (s), by field strength (T), that is assumed where T1 is not measured. Prostate: de Bazelaire et
# al., Radiology 230 (2004) 652. Blood: Stanisz et al., Magn Reson Med 54 (2005) 507 (1.5 T), and Lu
# et al., Magn Reson Med 52 (2004) 679 (3 T).
T1_TISSUE_S = {1.5: 1.317, 3.0: 1.6}
T1_BLOOD_S = {1.5: 1.441, 3.0: 1.664}
# How often the fit of T1 is repeated with weights from the fit before.
_REWEIGHTINGS = 3


@dataclass(frozen=True, eq=False)
class T1Fit:
    """Hold the result of a variable-flip-angle fit.

    Parameters
    ----------
    t1 : ndarray, shape (...)
        Seconds; NaN where the fit failed.
    s0 : ndarray, shape (...)
        Signal scale of the spoiled gradient-echo equation.
    r2 : ndarray, shape (...)
        Coefficient of determination over the flip angles.
    failed : ndarray of bool, shape (...)
        True where a signal is not positive, or T1 lies outside ``T1_MIN_S`` .. ``T1_MAX_S``.
    notes : tuple of str
        Sentences on what limits the trust in the result, such as a fit to only two flip angles.
    """

    t1: np.ndarray
    s0: np.ndarray
    r2: np.ndarray
    failed: np.ndarray
    notes: tuple[str, ...] = ()


def assumed_t1(table: dict[float, float], field_strength: float | None) -> float:
    """Return the T1 that is assumed for a field strength.

    Parameters
    ----------
    table : mapping of float to float
        T1 in s by field in T.
    field_strength : float or None
        T; None for an unknown field, which counts as 3 T.

    Returns
    -------
    float
        T1 in s, of the table's entry with the nearest field.
    """
    field = 3.0 if field_strength is None else field_strength
    return table[min(table, key=lambda strength: abs(strength - field))]


def fit_t1(
    signals: np.ndarray,
    flip_angles: np.ndarray,
    repetition_time: float,
    b1: np.ndarray | None = None,
) -> T1Fit:
    """Fit T1 and signal scale to signals at several flip angles.

    For signal S and flip angle a, S / sin(a) is linear in S / tan(a) with slope exp(-TR / T1). The
    division by sin(a) and tan(a) makes the noise of the flip angles unequal. The least-squares fit
    therefore has weights, which are computed again in each iteration (Chang et al., Magn Reson Med
    60 (2008) 496).

    Parameters
    ----------
    signals : ndarray, shape (n_flips, ...)
        Signals in arbitrary units, with the same receiver gain at every flip angle.
    flip_angles : ndarray, shape (n_flips,)
        Flip angles, degrees.
    repetition_time : float
        Repetition time, seconds.
    b1 : ndarray, shape (...), optional
        Ratio of actual to stated flip angle of every voxel; 1 by default.

    Returns
    -------
    T1Fit
        T1 in s, the signal scale in the unit of ``signals``, R² and whether the fit failed, for
        each voxel: shape (...). Where a fit failed, T1 is NaN and R² is 0.

    Raises
    ------
    CadError
        For fewer than two different flip angles, or an impossible angle or repetition time.

    Examples
    --------
    >>> import numpy as np
    >>> flip = np.deg2rad([2.0, 10.0, 20.0])
    >>> decay = np.exp(-0.005 / 1.5)
    >>> signals = 1000 * np.sin(flip) * (1 - decay) / (1 - decay * np.cos(flip))
    >>> fitted = fit_t1(signals[:, None], np.array([2.0, 10.0, 20.0]), 0.005)
    >>> float(fitted.t1[0].round(3))
    1.5
    """
    signals = np.asarray(signals, float)
    notes = _check_flip_angles(signals, flip_angles, repetition_time)
    # The flip angles get axes of length 1 behind their own, so that each goes with all voxels.
    voxel_axes = [1] * (signals.ndim - 1)
    angles = np.deg2rad(np.asarray(flip_angles, float)).reshape(-1, *voxel_axes)
    if b1 is not None:
        angles = angles * np.asarray(b1, float)
    usable = np.isfinite(signals).all(axis=0) & (signals > 0).all(axis=0)
    # A placeholder of 1 keeps the formulas free of errors where a signal is not positive. The
    # result is replaced there, because ``failed`` is True.
    usable_signals = np.where(usable, signals, 1.0)
    e1, s0 = _linear(usable_signals, angles)
    with np.errstate(divide="ignore", invalid="ignore"):
        # E1 = exp(-TR / T1) lies between 0 and 1 for every T1. Comparisons with NaN are False, so
        # that a voxel with another E1 counts as failed.
        t1 = -repetition_time / np.log(np.where((e1 > 0) & (e1 < 1), e1, np.nan))
        failed = ~(usable & (t1 >= T1_MIN_S) & (t1 <= T1_MAX_S))
    model = s0 * np.sin(angles) * (1 - e1) / (1 - e1 * np.cos(angles))
    variation = ((usable_signals - usable_signals.mean(axis=0)) ** 2).sum(axis=0)
    misfit = ((usable_signals - model) ** 2).sum(axis=0)
    # R2 of signals that are all equal would be a division by 0; it counts as 0.
    r2 = np.where(variation > 0, 1 - misfit / np.where(variation > 0, variation, 1.0), 0.0)
    return T1Fit(
        t1=np.where(failed, np.nan, t1),
        s0=s0,
        r2=np.where(failed, 0.0, r2),
        failed=failed,
        notes=notes,
    )


def _check_flip_angles(signals: np.ndarray, flip_angles: np.ndarray, tr: float) -> tuple[str, ...]:
    """Refuse flip angles (degrees) and repetition times (s) that give no T1; return notes."""
    angles = np.asarray(flip_angles, float)
    if len(angles) != len(signals):
        raise CadError(f"{len(signals)} flip-angle images but {len(angles)} flip angles")
    if not tr > 0:
        raise CadError(
            f"the repetition time of the flip-angle images must be positive, found {tr:g} s"
        )
    if not ((angles > 0) & (angles < 180)).all():
        raise CadError(f"flip angles lie between 0 and 180 degrees, found {angles.tolist()}")
    # Angles that differ only in digits beyond the third are the same angle, as headers round it.
    n_different = len(np.unique(np.round(angles, 3)))
    if n_different < 2:
        raise CadError(
            f"T1 needs at least two different flip angles, found {angles.tolist()} degrees",
            hint="use a fixed T1 (t1: fixed) for this study",
        )
    if n_different == 2:
        return ("T1 from two flip angles only: no residual tells whether the fit is right",)
    return ()


def _linear(signals: np.ndarray, angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E1 = exp(-TR / T1) and the signal scale S0 of each voxel.

    They are fitted by reweighted linear least squares to the signals at several flip angles (rad).
    """
    y = signals / np.sin(angles)
    x = signals / np.tan(angles)
    e1 = np.full(signals.shape[1:], 0.995)  # a typical value, for the first weights
    intercept = np.ones_like(e1)
    for _ in range(_REWEIGHTINGS + 1):
        # Each weight is the inverse variance of S / sin a, for the signal S at the flip angle a. It
        # is computed with the E1 of the iteration before (method of Chang).
        # The limit below 1 keeps the divisor above 0 at small angles.
        weight = (np.sin(angles) / (1 - np.clip(e1, 0.0, 0.99999) * np.cos(angles))) ** 2
        weight_sum = weight.sum(axis=0)
        mean_x = (weight * x).sum(axis=0) / weight_sum
        mean_y = (weight * y).sum(axis=0) / weight_sum
        sxx = (weight * (x - mean_x) ** 2).sum(axis=0)
        sxy = (weight * (x - mean_x) * (y - mean_y)).sum(axis=0)
        # The slope of the line is E1. Without any spread along x there is no slope.
        e1 = np.where(sxx > 0, sxy / np.where(sxx > 0, sxx, 1.0), 0.0)
        intercept = mean_y - e1 * mean_x
    # The fitted line is S / sin a = E1 S / tan a + S0 (1 - E1). Its intercept divided by 1 - E1 is
    # S0.
    # Where E1 is 1 the fit has failed, and only the division by 0 must be avoided.
    one_minus_e1 = 1 - e1
    return e1, intercept / np.where(np.abs(one_minus_e1) > 1e-12, one_minus_e1, 1e-12)
