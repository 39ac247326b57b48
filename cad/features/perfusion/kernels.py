"""Compiled curves of the kinetic models: exact convolution of an input that is linear in pieces.

Times are in minutes and rates in 1/min here, so that Ktrans needs no conversion. Every kernel has
one signature; curves are voxel-major, shape (n_voxels, n_times).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

TOFTS, EXTENDED_TOFTS, BRIX = 0, 1, 2


class Grid(NamedTuple):
    """Name what the kernels need of the times: all in minutes.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        The frames.
    dt : ndarray, shape (n_fine - 1,)
        Steps between the samples of the input.
    plasma : ndarray, shape (n_fine,)
        The input, mM.
    at : ndarray of int64, shape (n_times,)
        Which samples are the frames.
    """

    times: np.ndarray
    dt: np.ndarray
    plasma: np.ndarray
    at: np.ndarray


# Below this k dt the closed forms of the step lose digits and their series is used.
_SERIES_BELOW = 0.05


@njit(cache=True, fastmath=False)
def _step(x: float) -> tuple[float, float, float, float, float]:
    """Return e^-x, phi1 = int_0^1 e^{-xu}, phi2 = int_0^1 (1-u) e^{-xu}, both derivatives."""
    e = np.exp(-x)
    if abs(x) < _SERIES_BELOW:
        # (1 - e) / x cancels near 0; seven terms of its series, in Horner form, do not.
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
def convolve(k: float, grid: Grid, h: np.ndarray, g: np.ndarray) -> None:
    """Write h = int cp(u) exp(-k (t-u)) du at the frames, and g = dh/dk, exact for linear cp."""
    _, dt, plasma, at = grid
    # The integral up to a sample decays by exp(-k dt) and gains its own step: one pass, no
    # n x n convolution. The slope in k follows the same recursion, differentiated.
    value = 0.0
    slope = 0.0
    last = -1.0
    e = p1 = p2 = d1 = d2 = 0.0
    frame = 0
    if at[0] == 0:
        h[0] = 0.0
        g[0] = 0.0
        frame = 1
    for i in range(len(dt)):
        step = dt[i]
        # Frames are evenly spaced, mostly: the exponential is computed once, not every step.
        if step != last:
            e, p1, p2, d1, d2 = _step(k * step)
            last = step
        a = plasma[i]
        rise = plasma[i + 1] - a
        slope = e * (slope - step * value) + step * step * (a * d1 + rise * d2)
        value = e * value + step * (a * p1 + rise * p2)
        if frame < len(at) and at[frame] == i + 1:
            h[frame] = value
            g[frame] = slope
            frame += 1


@njit(cache=True)
def convolve_value(k: float, grid: Grid, h: np.ndarray) -> None:
    """Write h as :func:`convolve` does, without the slope: half the work."""
    _, dt, plasma, at = grid
    value = 0.0
    last = -1.0
    e = w1 = w2 = 0.0
    frame = 0
    if at[0] == 0:
        h[0] = 0.0
        frame = 1
    for i in range(len(dt)):
        step = dt[i]
        if step != last:
            e, p1, p2, _, _ = _step(k * step)
            # Weights of the two ends of a linear piece: two products a step are left.
            w1 = step * (p1 - p2)
            w2 = step * p2
            last = step
        value = e * value + w1 * plasma[i] + w2 * plasma[i + 1]
        if frame < len(at) and at[frame] == i + 1:
            h[frame] = value
            frame += 1


@njit(cache=True)
def _brix_curve(
    p: np.ndarray, t: np.ndarray, f: np.ndarray, jac: np.ndarray, want_slopes: bool
) -> None:
    """Write A kep (exp(-kel t) - exp(-kep t)) / (kep - kel) and slopes; t in min from arrival."""
    amount, kep, kel = p[0], p[1], p[2]
    gap = kep - kel
    for i in range(len(t)):
        time = t[i]
        if time <= 0:  # before the bolus the model is 0, and so are its slopes
            f[i] = 0.0
            jac[0, i] = jac[1, i] = jac[2, i] = 0.0
            continue
        slow = np.exp(-kel * time)
        # Written with phi1 of (kep - kel) t, which stays exact where both rates coincide.
        _, p1, _, d1, _ = _step(gap * time)
        shape = slow * time * p1
        bend = slow * time * time * d1
        f[i] = amount * kep * shape
        if want_slopes:
            jac[0, i] = kep * shape
            jac[1, i] = amount * (shape + kep * bend)
            jac[2, i] = amount * kep * (-time * shape - bend)


@njit(cache=True)
def evaluate(
    model: int,
    p: np.ndarray,
    grid: Grid,
    f: np.ndarray,
    jac: np.ndarray,
    h: np.ndarray,
    g: np.ndarray,
) -> None:
    """Write the model curve f (n_times,) and its slopes jac (3, n_times) at parameters p."""
    if model == BRIX:
        _brix_curve(p, grid.times, f, jac, True)
        return
    ktrans, ve = p[0], p[1]
    convolve(ktrans / ve, grid, h, g)
    for i in range(len(f)):
        f[i] = ktrans * h[i]
        # Ktrans stands before the integral and in its rate kep = Ktrans / ve: product rule.
        jac[0, i] = h[i] + ktrans * g[i] / ve
        jac[1, i] = -ktrans * ktrans * g[i] / (ve * ve)
        jac[2, i] = 0.0
    if model == EXTENDED_TOFTS:
        for i in range(len(f)):
            cp = grid.plasma[grid.at[i]]
            f[i] += p[2] * cp
            jac[2, i] = cp


@njit(cache=True)
def curve_rows(model: int, p: np.ndarray, grid: Grid, ve_min: float, out: np.ndarray) -> None:
    """Write the model curves (n_voxels, n_times) of parameters (n_voxels, 3)."""
    n_times = out.shape[1]
    h = np.zeros(n_times)
    jac = np.zeros((3, n_times))
    for v in range(len(p)):
        if model == BRIX:
            _brix_curve(p[v], grid.times, out[v], jac, False)
            continue
        # ve = 0 would be an infinite rate.
        convolve_value(p[v, 0] / max(p[v, 1], ve_min), grid, h)
        for i in range(n_times):
            out[v, i] = p[v, 0] * h[i]
            if model == EXTENDED_TOFTS:
                out[v, i] += p[v, 2] * grid.plasma[grid.at[i]]
