"""Fit kinetic models: Tofts, extended Tofts, Patlak (to concentration) and Brix (to signal).

The curves of the models are exact for an input that is linear between its samples. A fit is a
linear least-squares estimate for many voxels at once (Murase, Magn Reson Med 51 (2004) 858), which
can be refined by bounded non-linear least squares. Patlak's model is linear and needs no
refinement. Symbols and units follow OSIPI's lexicon. The rates Ktrans (from plasma into tissue) and
kep (back) are in 1/min. The volumes ve (space outside cells and vessels) and vp (plasma) are
fractions of the tissue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cad.base.errors import CadError
from cad.mri.features.perfusion import kernels
from cad.mri.features.perfusion.aif import SECONDS_PER_MINUTE, InputFunction
from cad.mri.features.perfusion.kernels import TimeGrid

ModelName = Literal["tofts", "extended_tofts", "brix", "patlak"]

PARAMETERS: dict[ModelName, tuple[str, ...]] = {
    "tofts": ("ktrans", "ve"),
    "extended_tofts": ("ktrans", "ve", "vp"),
    "brix": ("amplitude", "kep", "kel"),
    "patlak": ("ktrans", "vp"),
}
# Bounds of the parameters, as in OSIPI's tests: 0 to 5 per minute for Ktrans, 0 to 1 for ve and vp.
# But ve stays above zero, because kep = Ktrans / ve would be infinite at zero.
KTRANS_MAX = 5.0
VE_MIN = 1e-3
# For each model: the smallest values of its parameters (in the order of PARAMETERS, and 0 in place
# of an absent third one), then the largest values.
BOUNDS: dict[ModelName, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "tofts": ((0.0, VE_MIN, 0.0), (KTRANS_MAX, 1.0, 0.0)),
    "extended_tofts": ((0.0, VE_MIN, 0.0), (KTRANS_MAX, 1.0, 1.0)),
    "brix": ((0.0, 1e-3, 0.0), (100.0, 100.0, 10.0)),
}
_CODE = {"tofts": kernels.TOFTS, "extended_tofts": kernels.EXTENDED_TOFTS, "brix": kernels.BRIX}
# A parameter within this distance of a bound lies on the bound.
_EDGE = 1e-9
# Rates kep and kel (1/min) of a typical enhancing tissue. The refinement of a Brix fit starts from
# these rates if the linear estimate cannot be used.
_BRIX_START = (1.0, 0.05)


@dataclass(frozen=True, eq=False)
class KineticFit:
    """Hold the fitted parameters of many curves, and how well the model fits each.

    Parameters
    ----------
    parameters : dict of str to ndarray, shape (n_curves,)
        By name: ``ktrans``, ``ve``, ``kep`` (Ktrans / ve) for Tofts, and ``vp`` for extended Tofts;
        ``amplitude``, ``kep``, ``kel`` for Brix; ``ktrans``, ``vp`` for Patlak. Rates in 1/min. NaN
        where the curve has NaN.
    r2 : ndarray, shape (n_curves,)
        Coefficient of determination; 0 for a constant curve.
    residual : ndarray, shape (n_curves,)
        Root mean square of curve minus model, unit of the curve.
    failed : ndarray of bool, shape (n_curves,)
        True for a curve whose fit failed: the curve has NaN, the equations are singular, a
        parameter lies on its bound, or the refinement did not converge.
    fitted : ndarray, shape (n_curves, n_times)
        The fitted curves of the model.
    """

    parameters: dict[str, np.ndarray]
    r2: np.ndarray
    residual: np.ndarray
    failed: np.ndarray
    fitted: np.ndarray


def tofts(ktrans: float, ve: float, inlet: InputFunction) -> np.ndarray:
    """Return the tissue concentration (mM) at the frames by the standard Tofts model (OSIPI TM).

    C(t) = Ktrans int cp(u) exp(-(Ktrans / ve)(t - u)) du, with cp the plasma input.

    Parameters
    ----------
    ktrans : float
        Transfer constant, 1/min.
    ve : float
        Volume fraction of the extravascular extracellular space, above 0.
    inlet : InputFunction
        Plasma input, which also holds the times of the frames.

    Returns
    -------
    ndarray, shape (n_times,)
        Concentration in mM at each frame of ``inlet``.
    """
    return extended_tofts(ktrans, ve, 0.0, inlet)


def extended_tofts(ktrans: float, ve: float, vp: float, inlet: InputFunction) -> np.ndarray:
    """Return the tissue concentration (mM) at the frames by the extended Tofts model (OSIPI ETM).

    The result is the curve of :func:`tofts` plus vp cp(t), with cp the plasma input.

    Parameters
    ----------
    ktrans : float
        Transfer constant, 1/min.
    ve, vp : float
        Volume fractions of the extravascular extracellular space (above 0) and of plasma.
    inlet : InputFunction
        Plasma input, which also holds the times of the frames.

    Returns
    -------
    ndarray, shape (n_times,)
        Concentration in mM at each frame of ``inlet``.
    """
    if not ve > 0:
        raise CadError(f"ve must be positive, found {ve:g}")
    return np.asarray(
        _model_curves("extended_tofts", np.array([[ktrans, ve, vp]]), _time_grid(inlet))[0]
    )


def brix(
    amplitude: float, kep: float, kel: float, times: np.ndarray, arrival: float = 0.0
) -> np.ndarray:
    """Return the relative enhancement of the signal, S / S_baseline - 1, by the Brix model.

    The curve is A kep (exp(-kel t) - exp(-kep t)) / (kep - kel), at the time t (min) from the
    arrival of the bolus.

    Parameters
    ----------
    amplitude : float
        Amplitude A, relative to the baseline signal.
    kep, kel : float
        Rates (1/min) at which contrast agent leaves the tissue (kep) and the blood (kel).
    times : ndarray, shape (n_times,)
        Times of the samples, seconds.
    arrival : float
        Bolus arrival, seconds on the same clock.

    Returns
    -------
    ndarray, shape (n_times,)
        Relative enhancement at each time, without unit; 0 before the arrival.

    References
    ----------
    Brix et al., J Comput Assist Tomogr 15 (1991) 621; the form for a bolus is that of Hoffmann et
    al., Magn Reson Med 33 (1995) 506.

    Examples
    --------
    >>> import numpy as np
    >>> curve = brix(1.0, 2.0, 0.1, np.arange(0.0, 300.0, 60.0), arrival=60.0)
    >>> curve[:2].tolist(), bool(curve[2] > 0)
    ([0.0, 0.0], True)
    """
    grid = _brix_grid(times, arrival)
    return np.asarray(_model_curves("brix", np.array([[amplitude, kep, kel]]), grid)[0])


def fit_tofts(curves: np.ndarray, inlet: InputFunction, refine: bool = False) -> KineticFit:
    """Fit the standard Tofts model to concentrations.

    Parameters
    ----------
    curves : ndarray, shape (n_curves, n_times)
        Concentration of each curve over time, mM; a curve with any NaN is not fitted.
    inlet : InputFunction
        Input in plasma; its frames are those of the curves.
    refine : bool
        Whether to refine the linear estimate by bounded non-linear least squares.

    Returns
    -------
    KineticFit
        For each curve ``ktrans`` and ``kep`` (1/min) and ``ve`` (share of the volume), shape
        (n_curves,). Also for each curve: R², the root mean square of curve minus model (mM),
        whether the fit failed, and the fitted curve (mM). For a curve with any NaN all these
        numbers are NaN, and the fit counts as failed.

    Examples
    --------
    A constant input of 1 mM fills a space of 0.4 at the rate kep = 0.2 / 0.4:

    >>> import numpy as np
    >>> minutes = np.arange(8.0)
    >>> inlet = InputFunction(60.0 * minutes, np.ones(8), np.arange(8))
    >>> curve = 0.4 * (1.0 - np.exp(-0.5 * minutes))
    >>> fit = fit_tofts(curve[None], inlet, refine=True)
    >>> fit.parameters["ktrans"].round(3).tolist(), fit.parameters["ve"].round(3).tolist()
    ([0.2], [0.4])
    """
    return _fit_curves("tofts", curves, _time_grid(inlet), refine)


def fit_extended_tofts(
    curves: np.ndarray, inlet: InputFunction, refine: bool = False
) -> KineticFit:
    """Fit the extended Tofts model to concentrations.

    Parameters
    ----------
    curves : ndarray, shape (n_curves, n_times)
        Concentration of each curve over time, mM; a curve with any NaN is not fitted.
    inlet : InputFunction
        Input in plasma; its frames are those of the curves.
    refine : bool
        Whether to refine the linear estimate by bounded non-linear least squares.

    Returns
    -------
    KineticFit
        For each curve ``ktrans`` and ``kep`` (1/min), ``ve`` and ``vp`` (shares of the volume),
        shape (n_curves,). Also for each curve: R², the root mean square of curve minus model (mM),
        whether the fit failed, and the fitted curve (mM). For a curve with any NaN all these
        numbers are NaN, and the fit counts as failed.

    Examples
    --------
    Blood plasma that fills a tenth of the voxel adds a tenth of the input:

    >>> import numpy as np
    >>> seconds = np.arange(0.0, 300.0, 15.0)
    >>> plasma = 5.0 * np.exp(-seconds / 100.0)
    >>> inlet = InputFunction(seconds, plasma, np.arange(len(seconds)))
    >>> curve = tofts(0.2, 0.4, inlet) + 0.1 * plasma
    >>> fit = fit_extended_tofts(curve[None], inlet, refine=True)
    >>> {name: round(float(values[0]), 3) for name, values in fit.parameters.items()}
    {'ktrans': 0.2, 've': 0.4, 'vp': 0.1, 'kep': 0.5}
    """
    return _fit_curves("extended_tofts", curves, _time_grid(inlet), refine)


def fit_brix(
    curves: np.ndarray, times: np.ndarray, arrival: float, refine: bool = False
) -> KineticFit:
    """Fit the Brix model to relative enhancement.

    Parameters
    ----------
    curves : ndarray, shape (n_curves, n_times)
        Relative enhancement S / S_baseline - 1 of each curve over time.
    times : ndarray, shape (n_times,)
        Times of the samples, seconds.
    arrival : float
        Bolus arrival, seconds on the same clock.
    refine : bool
        Whether to refine the linear estimate by bounded non-linear least squares.

    Returns
    -------
    KineticFit
        For each curve ``amplitude`` (relative enhancement), ``kep`` and ``kel`` (1/min), shape
        (n_curves,). Also for each curve: R², the root mean square of curve minus model, whether the
        fit failed, and the fitted curve. For a curve with any NaN all these numbers are NaN, and
        the fit counts as failed.

    Examples
    --------
    >>> import numpy as np
    >>> seconds = np.arange(0.0, 300.0, 10.0)
    >>> curve = brix(1.2, 2.0, 0.1, seconds, arrival=30.0)
    >>> fit = fit_brix(curve[None], seconds, arrival=30.0, refine=True)
    >>> {name: round(float(values[0]), 2) for name, values in fit.parameters.items()}
    {'amplitude': 1.2, 'kep': 2.0, 'kel': 0.1}
    """
    return _fit_curves("brix", curves, _brix_grid(times, arrival), refine)


def fit_patlak(curves: np.ndarray, inlet: InputFunction) -> KineticFit:
    """Fit Patlak's model: contrast agent enters the tissue and does not come back.

    C(t) = vp cp(t) + Ktrans int cp(u) du is linear in both parameters, so that one least-squares
    fit finds them. In most of the prostate, contrast agent does come back after a minute, and the
    fitted Ktrans is then too low.

    Parameters
    ----------
    curves : ndarray, shape (n_curves, n_times)
        Concentration of each curve over time, mM; a curve with any NaN is not fitted.
    inlet : InputFunction
        Input in plasma; its frames are those of the curves.

    Returns
    -------
    KineticFit
        For each curve ``ktrans`` (1/min) and ``vp`` (share of the volume), shape (n_curves,). Also
        for each curve: R², the root mean square of curve minus model (mM), whether the fit failed,
        and the fitted curve (mM). For a curve with any NaN all these numbers are NaN, and the fit
        counts as failed.

    Raises
    ------
    CadError
        When curves and input have different frames.

    References
    ----------
    Patlak et al., J Cereb Blood Flow Metab 3 (1983) 1.

    Examples
    --------
    With a constant input of 1 mM the integral is the time in minutes, and the curve is a line:

    >>> import numpy as np
    >>> minutes = np.arange(5.0)
    >>> inlet = InputFunction(60.0 * minutes, np.ones(5), np.arange(5))
    >>> fit = fit_patlak((0.1 + 0.2 * minutes)[None], inlet)
    >>> fit.parameters["vp"].round(3).tolist(), fit.parameters["ktrans"].round(3).tolist()
    ([0.1], [0.2])
    """
    usable, finite_curves = _usable(np.asarray(curves, float), len(inlet.at_frames))
    # The integral of the input (mM min) up to each of its samples, by the trapezoid rule.
    steps = np.diff(inlet.times) / SECONDS_PER_MINUTE
    input_area = np.concatenate(
        [[0.0], np.cumsum(steps * (inlet.plasma[1:] + inlet.plasma[:-1]) / 2)]
    )
    design = np.stack([input_area, inlet.plasma], axis=1)[inlet.at_frames]
    ktrans, vp = np.linalg.pinv(design) @ finite_curves.T  # the same pseudo-inverse fits all curves
    parameters = np.stack([ktrans, vp], axis=1)
    out_of_range = (ktrans <= _EDGE) | (ktrans >= KTRANS_MAX) | (vp < -_EDGE) | (vp >= 1)
    return _rated_fit(
        "patlak", finite_curves, parameters, out_of_range | ~usable, usable, parameters @ design.T
    )


def best_delay(misfit: Callable[[float], float], bounds: tuple[float, float]) -> float:
    """Find the delay of the least misfit: by whole seconds, then by golden section to 0.02 s.

    Parameters
    ----------
    misfit : callable
        Takes a delay in s and returns a float.
    bounds : (float, float)
        Least and largest delay, s.

    Returns
    -------
    float
        The delay in s, within 0.02 s of the least misfit near the best whole second.
    """
    candidates = np.arange(bounds[0], bounds[1] + 0.5)
    misfits = [misfit(float(delay)) for delay in candidates]
    best = float(candidates[int(np.argmin(misfits))])
    low = max(best - 1.0, bounds[0])
    high = min(best + 1.0, bounds[1])
    # Two delays divide the interval by the golden ratio. The interval is cut at the delay with the
    # larger misfit. The other delay then divides the smaller interval by the golden ratio, too, so
    # that each round computes one new misfit.
    golden_ratio = (np.sqrt(5.0) - 1) / 2
    lower_try = high - golden_ratio * (high - low)
    upper_try = low + golden_ratio * (high - low)
    lower_misfit = misfit(lower_try)
    upper_misfit = misfit(upper_try)
    while high - low > 0.02:
        if lower_misfit <= upper_misfit:
            high = upper_try
            upper_try = lower_try
            upper_misfit = lower_misfit
            lower_try = high - golden_ratio * (high - low)
            lower_misfit = misfit(lower_try)
        else:
            low = lower_try
            lower_try = upper_try
            lower_misfit = upper_misfit
            upper_try = low + golden_ratio * (high - low)
            upper_misfit = misfit(upper_try)
    return float((low + high) / 2)


def curve_delays(
    curves: np.ndarray, inlet_at: Callable[[float], InputFunction], bounds: tuple[float, float]
) -> np.ndarray:
    """Find the input's delay for each curve: the delay at which extended Tofts fits it best.

    Each delay is tried by the linear estimate of the model's parameters. First every whole second
    within the bounds is tried. Then half and a quarter of a second to either side of each curve's
    best second are tried.

    Parameters
    ----------
    curves : ndarray, shape (n_curves, n_times)
        Concentration of each curve over time, mM; a curve with any NaN gets the lower bound.
    inlet_at : callable
        Takes a delay in s and returns the input function moved by this delay.
    bounds : (float, float)
        Least and largest delay, s; no delay leaves them.

    Returns
    -------
    ndarray, shape (n_curves,)
        The delay of each curve, seconds.

    Examples
    --------
    Two tissues get the same bolus, the second tissue 3.5 s later:

    >>> import numpy as np
    >>> seconds = np.arange(0.0, 120.0, 2.0)
    >>> def inlet_at(delay):
    ...     since = np.clip(seconds - 20.0 - delay, 0.0, None)
    ...     return InputFunction(seconds, since * np.exp(-since / 10.0), np.arange(60))
    >>> curves = np.array([tofts(0.3, 0.4, inlet_at(0.0)), tofts(0.3, 0.4, inlet_at(3.5))])
    >>> curve_delays(curves, inlet_at, (-5.0, 5.0)).tolist()
    [0.0, 3.5]
    """
    smallest_error = np.full(len(curves), np.inf)
    delays = np.full(len(curves), bounds[0])

    def attempt(delay: float, tried: np.ndarray) -> None:
        """Give the delay to those of the curves ``tried`` that it fits best so far."""
        residual = fit_extended_tofts(curves[tried], inlet_at(delay)).residual
        is_better = residual < smallest_error[tried]
        better = tried[is_better]
        smallest_error[better] = residual[is_better]
        delays[better] = delay

    # The last whole step may lie beyond the upper bound, which is tried in its place.
    for delay in np.arange(bounds[0], bounds[1] + 0.5):
        attempt(min(float(delay), bounds[1]), np.arange(len(curves)))
    for step in (0.5, 0.25):
        # Curves with the same best delay so far are tried together.
        centres = delays.copy()
        for centre in np.unique(centres):
            tried = np.flatnonzero(centres == centre)
            for delay in (centre - step, centre + step):
                if bounds[0] <= delay <= bounds[1]:
                    attempt(float(delay), tried)
    return delays


def fit_each_at(
    fit: Callable[[np.ndarray, InputFunction], KineticFit],
    curves: np.ndarray,
    inlet_at: Callable[[float], InputFunction],
    delays: np.ndarray,
) -> KineticFit:
    """Fit a model to each curve with the input at the curve's own delay.

    Parameters
    ----------
    fit : callable
        Takes curves and an input function, such as :func:`fit_patlak`.
    curves : ndarray, shape (n_curves, n_times)
        Concentration of each curve over time, mM.
    inlet_at : callable
        Takes a delay in s and returns the input function moved by this delay.
    delays : ndarray, shape (n_curves,)
        Seconds; curves with equal delays are fitted together.

    Returns
    -------
    KineticFit
        The fits of all curves, in the order of ``curves``, with the parameters and units of the
        model that ``fit`` fits.

    Examples
    --------
    Each curve has its own delay of the input, and is a straight line from there on:

    >>> import numpy as np
    >>> minutes = np.arange(6.0)
    >>> def inlet_at(delay):
    ...     return InputFunction(60.0 * minutes, (60.0 * minutes >= delay) * 1.0, np.arange(6))
    >>> curves = np.array([0.1 * minutes, 0.1 * np.clip(minutes - 1.5, 0.0, None)])
    >>> fit = fit_each_at(fit_patlak, curves, inlet_at, np.array([0.0, 120.0]))
    >>> fit.parameters["ktrans"].round(3).tolist()
    [0.1, 0.1]
    """
    distinct_delays, delay_number = np.unique(delays, return_inverse=True)
    # Curves are put in the order of their delays, fitted in groups of one delay, and put back.
    by_delay = np.argsort(delay_number, kind="stable")
    ends = np.cumsum(np.bincount(delay_number, minlength=len(distinct_delays)))
    fits = []
    for delay, members in zip(distinct_delays, np.split(by_delay, ends[:-1]), strict=True):
        fits.append(fit(curves[members], inlet_at(float(delay))))
    original_order = np.argsort(by_delay, kind="stable")
    parameters = {}
    for name in fits[0].parameters:
        parameters[name] = np.concatenate([of_delay.parameters[name] for of_delay in fits])[
            original_order
        ]
    return KineticFit(
        parameters=parameters,
        r2=np.concatenate([of_delay.r2 for of_delay in fits])[original_order],
        residual=np.concatenate([of_delay.residual for of_delay in fits])[original_order],
        failed=np.concatenate([of_delay.failed for of_delay in fits])[original_order],
        fitted=np.concatenate([of_delay.fitted for of_delay in fits])[original_order],
    )


def _time_grid(inlet: InputFunction) -> TimeGrid:
    """Return times (min) and input curve in the types for which the kernels are compiled."""
    minutes = inlet.times / SECONDS_PER_MINUTE
    dt = np.diff(minutes)
    # Steps (min) that should be equal differ in their last digits. They are rounded, so that
    # convolve() computes one exponential for all equal steps.
    dt = np.round(dt, 12)
    frame_index = np.require(inlet.at_frames, np.int64, ["C", "W"])
    return TimeGrid(
        times=minutes[frame_index],
        dt=dt,
        plasma=np.require(inlet.plasma, float, ["C", "W"]),
        frame_index=frame_index,
    )


def _brix_grid(times: np.ndarray, arrival: float) -> TimeGrid:
    """Return the times in minutes from the arrival; the Brix model has no input curve."""
    minutes = (np.asarray(times, float) - arrival) / SECONDS_PER_MINUTE
    no_input = np.zeros(0)
    return TimeGrid(minutes, dt=no_input, plasma=no_input, frame_index=np.arange(len(minutes)))


def _model_curves(model: ModelName, parameters: np.ndarray, grid: TimeGrid) -> np.ndarray:
    """Return a model's curve for each row of parameters, shape (n_curves, n_times)."""
    out = np.zeros((len(parameters), len(grid.frame_index)))
    parameters = np.require(parameters, float, ["C", "W"])
    kernels.curve_rows(_CODE[model], parameters, grid, VE_MIN, out)
    return out


def _usable(curves: np.ndarray, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which curves are finite, and all curves, with zeros in place of those that are not
    finite.
    """
    if curves.ndim != 2 or curves.shape[1] != frames:
        raise CadError(f"curves of shape {curves.shape} do not match {frames} frames of the input")
    usable = np.isfinite(curves).all(axis=1)
    finite_curves = curves if usable.all() else np.where(usable[:, None], curves, 0.0)
    return usable, finite_curves


def _fit_curves(model: ModelName, curves: np.ndarray, grid: TimeGrid, refine: bool) -> KineticFit:
    """Return a model's parameters for each curve, and how well the model fits the curve.

    The parameters are estimated linearly. With ``refine`` those of all curves are refined by
    bounded non-linear least squares. Without it, only those of curves that enhance and whose
    estimate lies outside the physical range are refined.
    """
    # The curves are made writable. To numba, read-only arrays (such as the memory maps of parallel
    # workers) are another type, for which the functions would be compiled again.
    usable, finite_curves = _usable(np.require(curves, float, ["C", "W"]), len(grid.frame_index))
    estimate = _estimate_brix if model == "brix" else _estimate_tofts
    parameters, failed, fitted = estimate(model, finite_curves, grid)
    # If an estimate failed or is refined below, its curve in ``fitted`` does not belong to the
    # returned parameters. Such curves (``curve_is_stale``) are computed again at the end.
    curve_is_stale = failed.copy()
    # A linear estimate outside the physical range says nothing about the tissue. If the curve
    # enhances, it is then fitted by the refinement within the bounds, even if the settings demand
    # no refinement.
    to_refine = np.ones(len(finite_curves), bool) if refine else failed & (parameters[:, 0] > 0)
    to_refine &= usable
    if to_refine.any():
        parameters[to_refine], failed[to_refine] = _refine(
            model, finite_curves[to_refine], parameters[to_refine], grid
        )
        curve_is_stale |= to_refine
    if curve_is_stale.any():
        fitted[curve_is_stale] = _model_curves(model, parameters[curve_is_stale], grid)
    return _rated_fit(model, finite_curves, parameters, failed | ~usable, usable, fitted)


def _estimate_tofts(
    model: ModelName, data: np.ndarray, grid: TimeGrid
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return estimated parameters, which of them left their physical range, and the model's curves.

    Where the parameters left their range, the returned curve of the model is not valid.
    """
    extended = model == "extended_tofts"
    # The integral of the input (mM min) up to each frame, by the trapezoid rule.
    areas_of_steps = 0.5 * grid.dt * (grid.plasma[1:] + grid.plasma[:-1])
    area = np.concatenate([[0.0], np.cumsum(areas_of_steps)])[grid.frame_index]
    # The curve is fitted as a sum of these rows and of its own integral. The extended model has the
    # input itself as a row, because plasma fills a part of the voxel.
    design = np.stack([grid.plasma[grid.frame_index], area]) if extended else area[None]
    coefficients = np.zeros((len(data), 3))
    kernels.linear_rows(design, data, grid.times, len(design) + 1, coefficients)
    parameters = np.zeros((len(data), 3))
    clipped = np.zeros(len(data), np.uint8)
    fitted = np.zeros(data.shape)
    kernels.fit_tofts_rows(
        coefficients, data, extended, VE_MIN, KTRANS_MAX, grid, parameters, clipped, fitted
    )
    return parameters, clipped.astype(bool), fitted


def _estimate_brix(
    model: ModelName, data: np.ndarray, grid: TimeGrid
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return estimated parameters of the Brix model, for which curves the estimate failed, and the
    model's curves.

    The parameters are an amplitude and the rates kep and kel. A linear fit gives the sum and the
    product of the two rates, which are the roots of k^2 - sum k + product.
    """
    minutes_after = np.clip(grid.times, 0.0, None)
    # Only samples after the arrival of the bolus follow the Brix model. Earlier samples are noise,
    # and are set to zero.
    data_after = np.where(grid.times > 0, data, 0.0)
    coefficients = np.zeros((len(data), 3))
    kernels.linear_rows(minutes_after[None], data_after, grid.times, 3, coefficients)
    # Where the linear fit has no solution, its coefficients are NaN. Zeros let the computation go
    # on for all curves at once; these estimates fail below.
    singular = ~np.isfinite(coefficients).all(axis=1)
    coefficients[singular] = 0.0
    rate_sum = -coefficients[:, 1]
    rate_product = -coefficients[:, 2]
    # Noise may make the root imaginary; both rates are then half of their sum.
    half_difference = np.sqrt(np.clip(rate_sum**2 / 4 - rate_product, 0.0, None))
    lower, upper = map(np.array, BOUNDS["brix"])
    rates = np.stack([rate_sum / 2 + half_difference, rate_sum / 2 - half_difference], axis=1)
    clipped_rates = np.clip(rates, lower[1:], upper[1:])
    out_of_range = (np.abs(clipped_rates - rates) > _EDGE).any(axis=1)
    # With these two rates, the model's curve is the amplitude times ``unit_curves``. The amplitude
    # is fitted by least squares.
    unit_curves = _model_curves("brix", np.column_stack([np.ones(len(data)), clipped_rates]), grid)
    power = (unit_curves**2).sum(axis=1)
    fitted_amplitude = (unit_curves * data_after).sum(axis=1) / np.where(power > 0, power, 1.0)
    amplitude = np.clip(fitted_amplitude, lower[0], upper[0])
    failed = singular | out_of_range | (amplitude != fitted_amplitude)
    parameters = np.column_stack([amplitude, clipped_rates])

    # A failed estimate is replaced by a start for the refinement. A curve that rises above the
    # noise before the bolus starts from typical rates, another one from no enhancement.
    noise = np.sqrt((np.where(grid.times > 0, 0.0, data) ** 2).sum(axis=1))
    noise /= np.sqrt(max(int((grid.times <= 0).sum()), 1))
    mean_level = data_after.sum(axis=1) / max(int((grid.times > 0).sum()), 1)
    enhances = mean_level > noise
    parameters[failed, 0] = np.where(enhances, data_after.max(axis=1), 0.0)[failed]
    parameters[failed, 1:] = np.where(enhances[:, None], _BRIX_START, lower[1:])[failed]
    return parameters, failed, amplitude[:, None] * unit_curves


def _refine(
    model: ModelName, data: np.ndarray, start: np.ndarray, grid: TimeGrid
) -> tuple[np.ndarray, np.ndarray]:
    """Return parameters refined by bounded least squares, and for which curves the refinement
    failed.

    A fit failed if it did not converge, or if a parameter ends on a bound.
    """
    refined = np.ascontiguousarray(start)
    lower, upper = map(np.array, BOUNDS[model])
    converged = np.zeros(len(data), np.uint8)
    kernels.refine_rows(_CODE[model], data, refined, lower, upper, grid, converged)
    n_parameters = len(PARAMETERS[model])
    on_bound = (refined[:, :n_parameters] >= upper[:n_parameters] - _EDGE).any(axis=1)
    # The third parameter (vp or kel) may well be zero. But the fit failed if one of the first two
    # parameters is at its lower bound: Ktrans or ve, or Brix's amplitude or kep.
    on_bound |= (refined[:, :2] <= lower[:2] + _EDGE).any(axis=1)
    return refined, (converged == 0) | on_bound


def _rated_fit(
    model: ModelName,
    data: np.ndarray,
    parameters: np.ndarray,
    failed: np.ndarray,
    usable: np.ndarray,
    fitted: np.ndarray,
) -> KineticFit:
    """Return fitted curves with measures of how well they fit: R2, and the root mean square error.

    ``data`` and ``fitted``, shape (n, times), are the measured and the fitted curves, and
    ``parameters``, shape (n, k), those of the fit. Curves that are not ``usable`` get NaN.
    """
    misfit = ((data - fitted) ** 2).sum(axis=1)
    variation = ((data - data.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    r2 = np.zeros(len(data))
    varies = variation > 0
    r2[varies] = 1 - misfit[varies] / variation[varies]
    error = np.sqrt(misfit / data.shape[1])
    # A product with this column is NaN for curves that are not usable, and unchanged for others.
    one_or_nan = np.where(usable, 1.0, np.nan)
    values = {}
    for number, name in enumerate(PARAMETERS[model]):
        values[name] = parameters[:, number] * one_or_nan
    if "ve" in values:
        # A Ktrans of 0 goes with a ve of 0, which would be a division by 0.
        values["kep"] = values["ktrans"] / np.maximum(values["ve"], VE_MIN)
    return KineticFit(
        parameters=values,
        r2=r2 * one_or_nan,
        residual=error * one_or_nan,
        failed=failed,
        fitted=fitted * one_or_nan[:, None],
    )
