"""Compute the coordinates of an enhancement curve on a patient's page, and write numbers as text.

The templates of the page draw the curve.
"""

import math
from typing import NamedTuple

import numpy as np


class CurvePlot(NamedTuple):
    """Hold a plot of an enhancement curve, in a box of ``WIDTH`` x ``HEIGHT`` drawing units.

    Parameters
    ----------
    points : list of (float, float)
        x and y of the measured values in drawing units; y grows downwards.
    fit : str
        The fitted curve as the ``points`` of an SVG polyline; empty without a fit.
    x_ticks, y_ticks : list of (float, str)
        Position on the axis in drawing units, and label. The labels of x are in minutes.
    quantity : str
        Name and unit of the vertical axis.
    """

    points: list[tuple[float, float]]
    fit: str
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    quantity: str


WIDTH = 300.0
HEIGHT = 130.0
_LEAST_SPAN = 1e-9
"""Least length of an axis, so that nothing is divided by zero if all values are equal."""


def curve_plot(curve: dict[str, np.ndarray]) -> CurvePlot | None:
    """Return the plot of a region's concentration with its fit, else of its signal.

    Parameters
    ----------
    curve : dict of str to ndarray, shape (n_times,)
        ``times`` in s, ``concentration`` and ``fit`` in mM, and ``signal`` in arbitrary units. Each
        may be absent or NaN.

    Returns
    -------
    CurvePlot or None
        None without times, or if neither concentration nor signal has a finite value.

    Examples
    --------
    >>> curve = {
    ...     "times": np.array([0.0, 60.0, 120.0]),
    ...     "signal": np.array([100.0, 180.0, np.nan]),
    ... }
    >>> plot = curve_plot(curve)
    >>> plot.quantity, len(plot.points), plot.x_ticks[-1]
    ('signal, a.u.', 2, (300.0, '2'))
    """
    if "times" not in curve:
        return None
    minutes = np.asarray(curve["times"], float) / 60
    values = curve.get("concentration")
    quantity = "tissue concentration, mM"
    fit = curve.get("fit")
    if values is None or not np.isfinite(values).any():
        values = curve.get("signal")
        quantity = "signal, a.u."
        fit = None  # the fit is one of the concentration
    if values is None or not np.isfinite(values).any():
        return None

    # The ends of the axes: the ticks, and what noise carries a little beyond the last tick.
    curves = [values] if fit is None else [values, fit]
    all_values = np.concatenate([one_curve[np.isfinite(one_curve)] for one_curve in curves])
    lowest = float(all_values.min())
    highest = float(all_values.max())
    x_ticks = _ticks(float(minutes.min()), float(minutes.max()))
    y_ticks = _ticks(min(0.0, lowest), highest)
    x_low = float(minutes.min())
    x_high = float(max(minutes.max(), x_ticks[-1]))
    y_low = min(y_ticks[0], lowest)
    y_high = max(y_ticks[-1], highest)

    x_span = max(x_high - x_low, _LEAST_SPAN)
    y_span = max(y_high - y_low, _LEAST_SPAN)

    def place(x: float, y: float) -> tuple[float, float]:
        """Return a point of the plot in drawing units."""
        from_left = round(WIDTH * (x - x_low) / x_span, 1)
        from_top = round(HEIGHT * (1 - (y - y_low) / y_span), 1)
        return from_left, from_top

    def places(curve_values: np.ndarray) -> list[tuple[float, float]]:
        """Return the points of a curve in drawing units, without values that are not finite."""
        finite = np.isfinite(curve_values)
        return [place(x, y) for x, y in zip(minutes[finite], curve_values[finite], strict=True)]

    fitted = places(np.asarray(fit)) if fit is not None else []
    return CurvePlot(
        points=places(np.asarray(values)),
        fit=" ".join(f"{x},{y}" for x, y in fitted),
        x_ticks=[(place(tick, y_low)[0], f"{tick:g}") for tick in x_ticks],
        y_ticks=[(place(x_low, tick)[1], f"{tick:g}") for tick in y_ticks],
        quantity=quantity,
    )


def _ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return round numbers, about ``about`` of them, that cover [low, high] at equal steps."""
    exact_step = max(high - low, _LEAST_SPAN) / about
    power_of_ten = 10.0 ** math.floor(math.log10(exact_step))
    round_steps = np.array([1.0, 2.0, 2.5, 5.0, 10.0]) * power_of_ten
    # The smallest round step that is not below the exact one. A step that is smaller by rounding
    # errors alone counts as equal.
    large_enough = round_steps >= exact_step * 0.999
    step = float(round_steps[large_enough][0])
    # Noise may carry values a little beyond the first and the last tick, by up to 0.15 steps. No
    # further tick is added for these values.
    first = math.floor(low / step + 0.15)
    last = math.ceil(high / step - 0.15)
    # Rounding removes errors such as that of 3 * 0.1.
    return [round(number * step, 10) for number in range(first, last + 1)]


_UNITS = {"1e-6 mm2/s": "×10⁻⁶ mm²/s", "1": "", "-": "", "none": ""}


def measured(value: float | None, unit: str = "") -> str:
    """Write a number with its unit: three significant digits, and whole numbers from 1000 on.

    Parameters
    ----------
    value : float or None
        None gives ``not measured``.
    unit : str
        Unit as in the tables; common units are written as in print, ``mm²/s``.

    Returns
    -------
    str
        The number and its unit, separated by a blank; ``not measured`` for None.

    Examples
    --------
    >>> measured(812.4, "1e-6 mm2/s"), measured(-0.1234), measured(None)
    ('812 ×10⁻⁶ mm²/s', '−0.123', 'not measured')
    """
    if value is None:
        return "not measured"
    if value == 0:
        text = "0"
    elif abs(value) >= 1e7:
        text = f"{value:.2e}"
    elif abs(value) >= 1000:
        text = f"{value:,.0f}".replace(",", " ")
    elif abs(value) < 1e-3:
        text = f"{value:.1e}"
    else:
        place_of_first_digit = math.floor(math.log10(abs(value)))  # 2 for hundreds, -1 for tenths
        decimals = max(0, 2 - place_of_first_digit)
        text = f"{value:.{decimals}f}"
    if value < 0:
        # The sign becomes a true minus; the hyphen of an exponent stays.
        text = text.replace("-", "−", 1)
    shown = _unit(unit)
    return f"{text} {shown}" if shown else text


def _unit(unit: str) -> str:
    """Return a unit of the tables as it is written in print; empty for a number without unit."""
    if unit.startswith("(") and unit.endswith(")^2"):
        inner = _unit(unit[1:-3])
        if not inner:
            return ""
        # A unit of several parts keeps its brackets, so that all of them are squared.
        return f"({inner})²" if " " in inner else f"{inner}²"
    return _UNITS.get(unit, unit)


def probability_text(value: float | None) -> str:
    """Write a probability in whole percent, ``<1%`` and ``>99%`` at the ends, and ``–`` for None.

    Parameters
    ----------
    value : float or None
        The probability, from 0 to 1.

    Returns
    -------
    str
        Whole per cent, such as ``35%``; ``<1%`` below 0.5 % and ``>99%`` from 99.5 % on; ``–`` for
        None.

    Examples
    --------
    >>> probability_text(0.349), probability_text(0.001), probability_text(None)
    ('35%', '<1%', '–')
    """
    if value is None:
        return "–"
    if value < 0.005:
        return "<1%"
    if value >= 0.995:
        return ">99%"
    return f"{100 * value:.0f}%"


def benign_limit(threshold: float) -> str:
    """Return the limit below which a region is called benign, as text; ``none called benign`` at 0.

    Parameters
    ----------
    threshold : float
        The lower threshold, from 0 to 1. It is 0 if no threshold reaches the negative predictive
        value that the site asks for.

    Examples
    --------
    >>> benign_limit(0.1), benign_limit(0.0)
    ('benign below 10%', 'none called benign')
    """
    if threshold <= 0:
        return "none called benign"
    return f"benign below {probability_text(threshold)}"


def malignant_limit(threshold: float) -> str:
    """Return the limit above which a region is called malignant, as text.

    If the limit is 1, the text is ``none called malignant``.

    Parameters
    ----------
    threshold : float
        The upper threshold, from 0 to 1.

    Examples
    --------
    >>> malignant_limit(0.6), malignant_limit(1.0)
    ('malignant above 60%', 'none called malignant')
    """
    if threshold >= 1:
        return "none called malignant"
    return f"malignant above {probability_text(threshold)}"
