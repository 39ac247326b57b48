"""Compute the curves of the kinetic models and their fits, in functions compiled by numba.

A curve is the exact convolution with an input that is linear in pieces. A fit is a linear estimate
for all voxels. For some voxels it is followed by a non-linear refinement within bounds.

Times are in minutes and rates in 1/min here, so that Ktrans needs no conversion. Every function is
always called with the same types, so that it is compiled only once. Arrays of curves have a row per
voxel, shape (n_voxels, n_times).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

TOFTS = 0
EXTENDED_TOFTS = 1
BRIX = 2


class TimeGrid(NamedTuple):
    """Hold the times and the input curve for the kernels; all times in minutes.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames.
    dt : ndarray, shape (n_fine - 1,)
        Steps between the samples of the input.
    plasma : ndarray, shape (n_fine,)
        Concentration in plasma at the samples of the input, mM.
    frame_index : ndarray of int64, shape (n_times,)
        Index of each frame among the samples of the input.
    """

    times: np.ndarray
    dt: np.ndarray
    plasma: np.ndarray
    frame_index: np.ndarray


# Limit of x = k dt (rate times step) in :func:`_exponential_integrals`. Below it, the closed
# formulas lose digits, and the first terms of their series replace them.
_SERIES_BELOW = 0.05
# Largest number of steps of a refinement, and the relative change below which it ends.
_MAX_STEPS = 40
_TOLERANCE = 1e-7


@njit(cache=True, fastmath=False)
def _exponential_integrals(x: float) -> tuple[float, float, float, float, float]:
    """Return e^-x, two integrals over u from 0 to 1, and the derivatives of both integrals by x.

    The integrals are phi1 = int e^{-xu} du and phi2 = int (1 - u) e^{-xu} du. They are called p1
    and p2, and their derivatives d1 and d2.
    """
    e = np.exp(-x)
    if abs(x) < _SERIES_BELOW:
        # Near x = 0 the closed formulas, such as (1 - exp(-x)) / x, lose digits. The first terms of
        # their series, written in Horner form, do not.
        p1 = 1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6))))
        p2 = 0.5 - x / 6 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6 * (1 - x / 7))))
        d1 = -0.5 + x / 3 * (1 - x * 3 / 8 * (1 - x * 4 / 15 * (1 - x * 5 / 24 * (1 - x * 6 / 35))))
        d2 = -1 / 6 + x / 12 * (
            1 - x * 3 / 10 * (1 - x * 2 / 9 * (1 - x * 5 / 28 * (1 - x * 3 / 20)))
        )
        return e, p1, p2, d1, d2
    p1 = (1 - e) / x
    p2 = (1 - p1) / x
    d1 = (e - p1) / x
    d2 = -(d1 + p2) / x
    return e, p1, p2, d1, d2


@njit(cache=True)
def convolve(k: float, grid: TimeGrid, h: np.ndarray, g: np.ndarray) -> None:
    """Compute the Tofts integral at the frames, and its derivative by the rate.

    The integral over u from 0 to t of cp(u) exp(-k (t - u)) is exact for a plasma input cp that is
    linear between its samples.

    Parameters
    ----------
    k : float
        Rate kep, 1/min.
    grid : Grid
        Times of the frames, and the plasma input.
    h, g : ndarray, shape (n_times,)
        Written in place: the integral (mM min) and its derivative by k.

    Examples
    --------
    A constant input at the rate 1/min gives 1 - exp(-t), and its slope (1 + t) exp(-t) - 1:

    >>> import numpy as np
    >>> minutes = np.array([0.0, 1.0, 2.0])
    >>> grid = TimeGrid(minutes, np.diff(minutes), np.ones(3), np.arange(3))
    >>> integral = np.zeros(3)
    >>> slope = np.zeros(3)
    >>> convolve(1.0, grid, integral, slope)
    >>> integral.round(3).tolist(), slope.round(3).tolist()
    ([0.0, 0.632, 0.865], [0.0, -0.264, -0.594])
    """
    _, dt, plasma, frame_index = grid
    # From one sample to the next, the integral decays by exp(-k dt), and the input during this step
    # is added. So one pass over the n samples is enough, and no n x n convolution is needed. The
    # same recursion, differentiated by k, gives the derivative.
    value = 0.0
    slope = 0.0
    last_step = -1.0
    e = p1 = p2 = d1 = d2 = 0.0
    frame = 0
    if frame_index[0] == 0:
        h[0] = 0.0
        g[0] = 0.0
        frame = 1
    for sample in range(len(dt)):
        step = dt[sample]
        # The exponential is computed again only if this step (min) differs from the step before.
        # Most steps are equal, because frames are mostly evenly spaced.
        if step != last_step:
            e, p1, p2, d1, d2 = _exponential_integrals(k * step)
            last_step = step
        start_value = plasma[sample]
        rise = plasma[sample + 1] - start_value
        slope = e * (slope - step * value) + step * step * (start_value * d1 + rise * d2)
        value = e * value + step * (start_value * p1 + rise * p2)
        if frame < len(frame_index) and frame_index[frame] == sample + 1:
            h[frame] = value
            g[frame] = slope
            frame += 1


@njit(cache=True)
def _brix_curve(p: np.ndarray, t: np.ndarray, f: np.ndarray, jac: np.ndarray) -> None:
    """Write the Brix curve A kep (exp(-kel t) - exp(-kep t)) / (kep - kel) and its derivatives.

    ``p`` has the amplitude A and the rates kep and kel (1/min). ``t`` is the time in minutes from
    the arrival of the bolus, shape (n_times,). ``f`` gets the curve, and ``jac`` its derivatives by
    the three parameters, shape (3, n_times).
    """
    amplitude = p[0]
    kep = p[1]
    kel = p[2]
    rate_difference = kep - kel
    for frame in range(len(t)):
        time = t[frame]
        if time <= 0:  # before the bolus the curve and its derivatives are 0
            f[frame] = 0.0
            jac[0, frame] = jac[1, frame] = jac[2, frame] = 0.0
            continue
        slow = np.exp(-kel * time)
        # The formula of the curve is 0 / 0 where the rates kep and kel are equal. The curve is
        # therefore computed from phi1 of (kep - kel) t, which _exponential_integrals() returns (p1,
        # with its derivative d1).
        _, p1, _, d1, _ = _exponential_integrals(rate_difference * time)
        shape = slow * time * p1
        bend = slow * time * time * d1  # the derivative of ``shape`` by kep
        f[frame] = amplitude * kep * shape
        # The derivatives are always computed. For a flag that switches them off, numba would
        # compile the function twice: for the literal True and for the literal False.
        jac[0, frame] = kep * shape
        jac[1, frame] = amplitude * (shape + kep * bend)
        jac[2, frame] = amplitude * kep * (-time * shape - bend)


@njit(cache=True)
def curve_and_slopes(
    model: int,
    p: np.ndarray,
    grid: TimeGrid,
    f: np.ndarray,
    jac: np.ndarray,
    h: np.ndarray,
    g: np.ndarray,
) -> None:
    """Compute a model's curve and its derivatives by the parameters.

    Parameters
    ----------
    model : int
        Number of the perfusion model: ``TOFTS``, ``EXTENDED_TOFTS`` or ``BRIX``.
    p : ndarray, shape (3,)
        Ktrans, ve and (extended Tofts only) vp; for Brix amplitude, kep, kel. Rates in 1/min.
    grid : Grid
        Times of the frames, and the plasma input.
    f : ndarray, shape (n_times,)
        Written in place: the curve.
    jac : ndarray, shape (3, n_times)
        Written in place: the derivative by each parameter.
    h, g : ndarray, shape (n_times,)
        Work space, overwritten: the Tofts integral and its derivative by the rate kep.

    Examples
    --------
    The slope by Ktrans gives the effect of a small step of Ktrans on the curve:

    >>> import numpy as np
    >>> minutes = np.array([0.0, 1.0, 2.0])
    >>> grid = TimeGrid(minutes, np.diff(minutes), np.ones(3), np.arange(3))
    >>> curve = np.zeros(3)
    >>> slopes = np.zeros((3, 3))
    >>> stepped = np.zeros(3)
    >>> work = np.zeros((2, 3))
    >>> curve_and_slopes(TOFTS, np.array([0.21, 0.4, 0.0]), grid, stepped, slopes, *work)
    >>> curve_and_slopes(TOFTS, np.array([0.20, 0.4, 0.0]), grid, curve, slopes, *work)
    >>> curve.round(3).tolist()
    [0.0, 0.157, 0.253]
    >>> np.allclose(stepped, curve + 0.01 * slopes[0], atol=1e-3)
    True
    """
    if model == BRIX:
        _brix_curve(p, grid.times, f, jac)
        return
    ktrans = p[0]
    ve = p[1]
    convolve(ktrans / ve, grid, h, g)
    for frame in range(len(f)):
        f[frame] = ktrans * h[frame]
        # Ktrans is a factor of the Tofts integral, and is also in its rate kep = Ktrans / ve. The
        # derivative by Ktrans therefore has two terms.
        jac[0, frame] = h[frame] + ktrans * g[frame] / ve
        jac[1, frame] = -ktrans * ktrans * g[frame] / (ve * ve)
        jac[2, frame] = 0.0
    if model == EXTENDED_TOFTS:
        # The plasma in the voxel adds vp times the input.
        for frame in range(len(f)):
            cp = grid.plasma[grid.frame_index[frame]]
            f[frame] += p[2] * cp
            jac[2, frame] = cp


@njit(cache=True)
def curve_rows(model: int, p: np.ndarray, grid: TimeGrid, ve_min: float, out: np.ndarray) -> None:
    """Compute a model's curve for the parameters of each voxel.

    Parameters
    ----------
    model : int
        Number of the perfusion model: ``TOFTS``, ``EXTENDED_TOFTS`` or ``BRIX``.
    p : ndarray, shape (n_voxels, 3)
        Ktrans, ve and (extended Tofts only) vp; for Brix amplitude, kep, kel. Rates in 1/min.
    grid : Grid
        Times of the frames, and the plasma input.
    ve_min : float
        Used in place of a smaller ve.
    out : ndarray, shape (n_voxels, n_times)
        Written in place: the curves.

    Examples
    --------
    The input is constant and ve is 0.4. Contrast agent fills the first voxel at kep = 0.5/min; the
    second voxel has a Ktrans of 0 and stays empty:

    >>> import numpy as np
    >>> minutes = np.array([0.0, 1.0, 2.0])
    >>> grid = TimeGrid(minutes, np.diff(minutes), np.ones(3), np.arange(3))
    >>> curves = np.zeros((2, 3))
    >>> curve_rows(TOFTS, np.array([[0.2, 0.4, 0.0], [0.0, 0.4, 0.0]]), grid, 1e-3, curves)
    >>> curves.round(3).tolist()
    [[0.0, 0.157, 0.253], [0.0, 0.0, 0.0]]
    """
    n_times = out.shape[1]
    integral = np.zeros(n_times)
    slope = np.zeros(n_times)
    jac = np.zeros((3, n_times))
    for voxel in range(len(p)):
        if model == BRIX:
            _brix_curve(p[voxel], grid.times, out[voxel], jac)
            continue
        # For ve = 0 the rate kep = Ktrans / ve would be infinite, so ve counts as at least ve_min.
        convolve(p[voxel, 0] / max(p[voxel, 1], ve_min), grid, integral, slope)
        for frame in range(n_times):
            out[voxel, frame] = p[voxel, 0] * integral[frame]
            if model == EXTENDED_TOFTS:
                out[voxel, frame] += p[voxel, 2] * grid.plasma[grid.frame_index[frame]]


@njit(cache=True)
def solve_small(a: np.ndarray, b: np.ndarray, n: int, x: np.ndarray) -> bool:
    """Solve a x = b for a symmetric positive definite matrix, by Cholesky.

    Parameters
    ----------
    a : ndarray, at least shape (n, n)
        The matrix; its lower triangle is read.
    b : ndarray, at least shape (n,)
        Right-hand side.
    n : int
        Size of the system, at most 3.
    x : ndarray, at least shape (n,)
        Written in place: the solution.

    Returns
    -------
    bool
        False where the matrix is singular; ``x`` is then left as it is.

    Examples
    --------
    4 x + 2 y = 8 and 2 x + 3 y = 8:

    >>> import numpy as np
    >>> x = np.zeros(2)
    >>> solve_small(np.array([[4.0, 2.0], [2.0, 3.0]]), np.array([8.0, 8.0]), 2, x)
    True
    >>> x.round(6).tolist()
    [1.0, 2.0]
    """
    # The matrix a is factored as L L', with the lower triangle L in ``low``. Then L z = b and L' x
    # = z are solved. All steps are written out, because a call of LAPACK would take longer than the
    # solution of a 3 x 3 system.
    low = np.zeros((3, 3))
    for i in range(n):
        for j in range(i + 1):
            remainder = a[i, j]
            for k in range(j):
                remainder -= low[i, k] * low[j, k]
            if i == j:
                # A pivot as small as this is a rounding error: the matrix is singular to 13
                # digits.
                if remainder <= 1e-13 * abs(a[i, i]) or remainder <= 0.0:
                    return False
                low[i, i] = np.sqrt(remainder)
            else:
                low[i, j] = remainder / low[j, j]
    # L z = b from the first row down; ``x`` holds z.
    for i in range(n):
        remainder = b[i]
        for k in range(i):
            remainder -= low[i, k] * x[k]
        x[i] = remainder / low[i, i]
    # L' x = z from the last row up.
    for i in range(n - 1, -1, -1):
        remainder = x[i]
        for k in range(i + 1, n):
            remainder -= low[k, i] * x[k]
        x[i] = remainder / low[i, i]
    return True


@njit(cache=True)
def linear_rows(
    design: np.ndarray, curves: np.ndarray, times: np.ndarray, n_columns: int, out: np.ndarray
) -> None:
    """Fit each curve by linear least squares, as a sum of common rows and of its own integrals.

    Parameters
    ----------
    design : ndarray, shape (n_fixed, n_times)
        Rows that are the same for all curves.
    curves : ndarray, shape (n_voxels, n_times)
        The curves.
    times : ndarray, shape (n_times,)
        Times of the frames, minutes.
    n_columns : int
        Number of rows that are fitted, at most 3: first the common rows, then the curve's integral
        over time, then the integral of this integral. Integrals follow the trapezoid rule.
    out : ndarray, shape (n_voxels, 3)
        Written in place: coefficients of the rows; NaN where the system is singular.

    Examples
    --------
    A curve that rises by 0.2 per minute and loses half of itself per minute is 0.2 t - 0.5 times
    its integral:

    >>> import numpy as np
    >>> minutes = np.arange(0.0, 5.0, 0.1)
    >>> curve = 0.4 * (1.0 - np.exp(-0.5 * minutes))
    >>> coefficients = np.zeros((1, 3))
    >>> linear_rows(minutes[None], curve[None], minutes, 2, coefficients)
    >>> coefficients.round(3).tolist()
    [[0.2, -0.5, 0.0]]
    """
    n_voxels, n_times = curves.shape
    n_fixed = design.shape[0]
    # Work arrays are made once for all voxels. To make them anew for each voxel would take longer
    # than the sums.
    rows = np.zeros((3, n_times))
    # The rows are copied by a loop. An array operation in its place would take numba as long to
    # compile as the rest of the function.
    for i in range(n_fixed):
        for frame in range(n_times):
            rows[i, frame] = design[i, frame]
    a = np.zeros((3, 3))
    b = np.zeros(3)
    x = np.zeros(3)
    lengths = np.zeros(3)
    for voxel in range(n_voxels):
        curve = curves[voxel]
        for row in range(n_fixed, n_columns):
            # The rows after the fixed ones are computed from the voxel's curve: first its integral
            # over time, then the integral of this integral.
            source = curve if row == n_fixed else rows[row - 1]
            total = 0.0
            rows[row, 0] = 0.0
            for i in range(1, n_times):
                total += 0.5 * (times[i] - times[i - 1]) * (source[i] + source[i - 1])
                rows[row, i] = total
        # The normal equations of the fit of the curve y by the rows R are a x = b, with a = R R'
        # and b = R y.
        for i in range(n_columns):
            b[i] = 0.0
            for frame in range(n_times):
                b[i] += rows[i, frame] * curve[frame]
            for j in range(i + 1):
                product_sum = 0.0
                for frame in range(n_times):
                    product_sum += rows[i, frame] * rows[j, frame]
                a[i, j] = product_sum
        # The rows have different units (minutes and mM), and differ by orders of magnitude. They
        # are scaled to unit length, so that solve_small() can tell a small pivot from a rounding
        # error.
        solvable = True
        for i in range(n_columns):
            lengths[i] = np.sqrt(a[i, i])
            if not lengths[i] > 0.0:
                solvable = False
        if solvable:
            for i in range(n_columns):
                b[i] /= lengths[i]
                for j in range(i + 1):
                    a[i, j] /= lengths[i] * lengths[j]
            solvable = solve_small(a, b, n_columns, x)
        for i in range(n_columns):
            out[voxel, i] = x[i] / lengths[i] if solvable else np.nan


@njit(cache=True)
def refine_rows(
    model: int,
    curves: np.ndarray,
    start: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    grid: TimeGrid,
    converged: np.ndarray,
) -> None:
    """Refine the parameters of each curve by Levenberg-Marquardt within bounds.

    A parameter on a bound keeps its value as long as a step would move it beyond the bound. Steps
    of all other parameters are clipped to the bounds.

    Parameters
    ----------
    model : int
        Number of the perfusion model: ``TOFTS``, ``EXTENDED_TOFTS`` or ``BRIX``.
    curves : ndarray, shape (n_voxels, n_times)
        The measured curves.
    start : ndarray, shape (n_voxels, 3)
        First estimates; changed in place to the refined parameters.
    lower, upper : ndarray, shape (3,)
        Bounds of the parameters.
    grid : Grid
        Times of the frames, and the plasma input.
    converged : ndarray, shape (n_voxels,)
        Written in place: 1 if the search ended, 0 if it did not end within 40 steps. It ends when a
        step changes the parameters, or lowers the sum of squares, by a share of less than 1e-7, or
        when no step lowers the sum.

    Examples
    --------
    >>> import numpy as np
    >>> minutes = np.arange(6.0)
    >>> grid = TimeGrid(minutes, np.diff(minutes), np.ones(6), np.arange(6))
    >>> curve = 0.4 * (1.0 - np.exp(-0.5 * minutes))  # Ktrans 0.2/min, ve 0.4
    >>> parameters = np.array([[0.1, 0.6, 0.0]])
    >>> converged = np.zeros(1, np.uint8)
    >>> lower = np.array([0.0, 1e-3, 0.0])
    >>> upper = np.array([5.0, 1.0, 0.0])
    >>> refine_rows(TOFTS, curve[None], parameters, lower, upper, grid, converged)
    >>> parameters.round(3).tolist(), converged.tolist()
    ([[0.2, 0.4, 0.0]], [1])
    """
    n_voxels, n_times = curves.shape
    n_par = 2 if model == TOFTS else 3
    f = np.zeros(n_times)
    jac = np.zeros((3, n_times))
    h = np.zeros(n_times)
    g = np.zeros(n_times)
    p = np.zeros(3)
    trial = np.zeros(3)
    grad = np.zeros(3)
    hess = np.zeros((3, 3))
    a = np.zeros((3, 3))
    b = np.zeros(3)
    x = np.zeros(3)
    free = np.zeros(3, np.int64)
    for v in range(n_voxels):
        y = curves[v]
        for i in range(n_par):
            p[i] = min(max(start[v, i], lower[i]), upper[i])
        curve_and_slopes(model, p, grid, f, jac, h, g)
        cost = 0.0
        for t in range(n_times):
            cost += (y[t] - f[t]) ** 2
        # The damping is small at first, because the start is close to the optimum. The first step
        # is nearly that of the method of Gauss and Newton.
        damping = 1e-3
        finished = 0
        for _ in range(_MAX_STEPS):
            # 0, in the integer type of ``n_par``; for a literal 0, numba would compile
            # solve_small() twice
            n_free = 0 * n_par
            # The cost is the sum of squares of y - f, for the measured curve y and the model's
            # curve f. J is the matrix of the derivatives of f by the parameters. Then ``grad`` is
            # J' (y - f), half the negative gradient of the cost, and ``hess`` is J' J, the Hessian
            # of Gauss and Newton.
            for i in range(n_par):
                grad[i] = 0.0
                for t in range(n_times):
                    grad[i] += jac[i, t] * (y[t] - f[t])
                for j in range(i + 1):
                    s = 0.0
                    for t in range(n_times):
                        s += jac[i, t] * jac[j, t]
                    hess[i, j] = s
                    hess[j, i] = s
                # A parameter that lies on a bound, and that this step would move beyond it, stays
                # where it is for this step only.
                outward = (p[i] <= lower[i] and grad[i] < 0) or (p[i] >= upper[i] and grad[i] > 0)
                if not outward and hess[i, i] > 0:
                    free[n_free] = i
                    n_free += 1
            if n_free == 0:
                finished = 1
                break
            accepted = False
            while damping < 1e12:
                # The normal equations are scaled to a diagonal of 1. One damping then suits
                # parameters of different size, such as Ktrans and ve.
                for i in range(n_free):
                    b[i] = grad[free[i]] / np.sqrt(hess[free[i], free[i]])
                    for j in range(i + 1):
                        a[i, j] = hess[free[i], free[j]] / np.sqrt(
                            hess[free[i], free[i]] * hess[free[j], free[j]]
                        )
                    a[i, i] += damping
                if not solve_small(a, b, n_free, x):
                    damping *= 10
                    continue
                # Copied by a loop: numba would take a second more to compile an array operation.
                for i in range(n_par):
                    trial[i] = p[i]
                moved = 0.0
                for i in range(n_free):
                    k = free[i]
                    trial[k] = min(max(p[k] + x[i] / np.sqrt(hess[k, k]), lower[k]), upper[k])
                    moved = max(moved, abs(trial[k] - p[k]) / (abs(p[k]) + 1e-6))
                if moved < _TOLERANCE:  # the parameters hardly move any more
                    finished = 1
                    break
                curve_and_slopes(model, trial, grid, f, jac, h, g)
                new = 0.0
                for t in range(n_times):
                    new += (y[t] - f[t]) ** 2
                # A step that lowers the cost is taken, and the damping becomes ten times smaller.
                # Otherwise the damping becomes ten times larger, and another step is tried.
                if new < cost:
                    accepted = True
                    if cost - new <= _TOLERANCE * cost:
                        finished = 1
                    cost = new
                    for i in range(n_par):
                        p[i] = trial[i]
                    damping = max(damping / 10, 1e-12)
                    break
                damping *= 10
            if finished == 1:
                break
            if not accepted:
                finished = 1  # no step lowers the cost, so that this is a minimum up to rounding
                break
        for i in range(n_par):
            start[v, i] = p[i]
        converged[v] = finished


@njit(cache=True)
def fit_tofts_rows(
    coefficients: np.ndarray,
    curves: np.ndarray,
    extended: bool,
    ve_min: float,
    ktrans_max: float,
    grid: TimeGrid,
    out: np.ndarray,
    clipped: np.ndarray,
    fitted: np.ndarray,
) -> None:
    """Turn the linear estimate of a Tofts model into Ktrans, ve and vp in their physical range.

    The rate kep is taken from the linear estimate. Ktrans and vp are then fitted to the curve by
    least squares at this kep (method of Murase).

    Parameters
    ----------
    coefficients : ndarray, shape (n_voxels, 3)
        From :func:`linear_rows`: Ktrans and -kep. For the extended model: vp, Ktrans + kep vp,
        -kep.
    curves : ndarray, shape (n_voxels, n_times)
        The measured curves, mM.
    extended : bool
        Whether the model has vp.
    ve_min, ktrans_max : float
        Least ve and largest Ktrans.
    grid : Grid
        Times of the frames, and the plasma input.
    out : ndarray, shape (n_voxels, 3)
        Written in place: Ktrans (1/min), ve, vp.
    clipped : ndarray, shape (n_voxels,)
        Written in place: 1 where a parameter had to be moved into its range, or the linear estimate
        is NaN.
    fitted : ndarray, shape (n_voxels, n_times)
        Written in place: the model's curves, only for voxels that are not ``clipped``.

    Examples
    --------
    The linear estimate is Ktrans = 0.2/min and kep = 0.5/min, so that ve is 0.2 / 0.5:

    >>> import numpy as np
    >>> minutes = np.arange(6.0)
    >>> grid = TimeGrid(minutes, np.diff(minutes), np.ones(6), np.arange(6))
    >>> curve = 0.4 * (1.0 - np.exp(-0.5 * minutes))
    >>> estimate = np.array([[0.2, -0.5, 0.0]])
    >>> parameters = np.zeros((1, 3))
    >>> clipped = np.zeros(1, np.uint8)
    >>> fitted = np.zeros((1, 6))
    >>> fit_tofts_rows(
    ...     estimate, curve[None], False, 1e-3, 5.0, grid, parameters, clipped, fitted
    ... )
    >>> parameters.round(3).tolist(), clipped.tolist(), np.allclose(fitted, curve)
    ([[0.2, 0.4, 0.0]], [0], True)
    """
    n_voxels, n_times = curves.shape
    integral = np.zeros(n_times)
    # The function convolve() also writes the derivative of the integral, which is not used here.
    derivative = np.zeros(n_times)
    for voxel in range(n_voxels):
        # The first guess of Ktrans is used only if the estimate of kep is not positive; Ktrans
        # itself is fitted below. For the extended model, the guess is Ktrans + kep vp, which is
        # close enough.
        if extended:
            first_guess = coefficients[voxel, 1]
            kep = -coefficients[voxel, 2]
        else:
            first_guess = coefficients[voxel, 0]
            kep = -coefficients[voxel, 1]
        if not np.isfinite(kep):
            out[voxel, 0] = 0.0
            out[voxel, 1] = 0.0
            out[voxel, 2] = 0.0
            clipped[voxel] = 1
            continue
        was_moved = 0
        if kep <= 0.0:
            # By an estimate kep <= 0 the contrast agent would never leave the tissue. In its place
            # kep gets the smallest value that ve <= 1 allows, which is Ktrans.
            kep = max(first_guess, 1e-4)
            was_moved = 1
        # The rate kep = Ktrans / ve is at most ktrans_max / ve_min. With a higher kep the curve
        # would be in proportion to the input, because exp(-kep dt) is 0 for every step dt.
        kep = min(kep, ktrans_max / ve_min)
        convolve(kep, grid, integral, derivative)
        ktrans, vp = _ktrans_and_vp(curves[voxel], integral, grid, extended)
        if vp > 1.0:
            vp = 1.0
            was_moved = 1
        if ktrans <= 0.0:
            ktrans = 0.0
            was_moved = 1
        if ktrans > ktrans_max:
            ktrans = ktrans_max
            was_moved = 1
        # The volume fraction ve follows from kep = Ktrans / ve.
        ve = ktrans / kep
        if ve > 1.0:
            ve = 1.0
            was_moved = 1
        # A Ktrans of 0 goes with a ve of 0; where agent enters, the space must have a volume.
        if ktrans > 0.0 and ve < ve_min:
            ve = ve_min
            was_moved = 1
        # The model's curve is written only if no parameter was moved into its range. The caller
        # computes the curves of the other voxels.
        if was_moved == 0:
            for frame in range(n_times):
                fitted[voxel, frame] = (
                    ktrans * integral[frame] + vp * grid.plasma[grid.frame_index[frame]]
                )
        out[voxel, 0] = ktrans
        out[voxel, 1] = ve
        out[voxel, 2] = vp
        clipped[voxel] = was_moved


@njit(cache=True)
def _ktrans_and_vp(
    curve: np.ndarray, integral: np.ndarray, grid: TimeGrid, extended: bool
) -> tuple[float, float]:
    """Fit a curve by Ktrans times ``integral`` plus vp times the input; return Ktrans and vp.

    ``curve`` (mM) and ``integral`` (mM min, of :func:`convolve`) have shape (n_times,). The volume
    fraction vp is never negative, and is 0 if the model is not the ``extended`` one.
    """
    # Each variable is a sum of products over the frames, named by its two factors: h for the
    # integral, c for the plasma input, and y for the curve.
    hh = 0.0
    hy = 0.0
    hc = 0.0
    cc = 0.0
    cy = 0.0
    for frame in range(len(curve)):
        y = curve[frame]
        c = grid.plasma[grid.frame_index[frame]]
        hh += integral[frame] * integral[frame]
        hy += integral[frame] * y
        hc += integral[frame] * c
        cc += c * c
        cy += c * y
    ktrans_alone = hy / hh if hh > 0 else 0.0
    if not extended:
        return ktrans_alone, 0.0
    ktrans = ktrans_alone
    vp = 0.0
    determinant = hh * cc - hc * hc
    # If exchange is fast, the integral is nearly in proportion to the plasma input, and the two
    # cannot be told apart. Ktrans is then fitted alone, and vp stays 0.
    if determinant > 1e-12 * hh * cc:
        # The two normal equations are solved by Cramer's rule.
        ktrans = (hy * cc - cy * hc) / determinant
        vp = (cy * hh - hy * hc) / determinant
    # If one of Ktrans and vp is negative, the curve is fitted by the other one alone.
    if vp < 0.0:
        return ktrans_alone, 0.0
    if ktrans < 0.0:
        vp = cy / cc if cc > 0 else 0.0
    return ktrans, max(vp, 0.0)
