"""Sequential minimal optimisation for pointwise problems: two rows at a time, in numba.

Every row j looks at one point: with f = K beta its value is v_j = r_j + q_j s - f_i, where
r_j = sign_j t_j and q_j = -sign_j w_j (w_j the row's coefficient of the scale s). A row that can
push beta_i up needs v_j <= b, one that can push it down v_j >= b; the pair that violates this most
is moved (second-order choice, Fan, Chen and Lin 2005). The intercept's equality is kept exactly.

The scale has a second (in)equality, sum_j w_j gamma_j <= 0. It is carried by a proximal term
(s - anchor)^2 / (2 rho) that the caller moves until it vanishes (method of multipliers): then
s = max(0, anchor + rho sum_j w_j gamma_j), known at every step, and pairs remain enough.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def smo(  # type: ignore[no-untyped-def]
    K,
    point,
    sign,
    r,
    q,
    c,
    learned,
    state,
    gamma,
    f,
    eps,
    max_iter,
):
    """Move pairs of rows until the largest violation is below ``eps``.

    Parameters
    ----------
    K : ndarray, shape (n, n)
    state : ndarray, shape (4,)
        anchor, rho, s, sum_j w_j gamma_j; the last two are kept up to date here.
    gamma, f : ndarray, shapes (m,) and (n,)
        Feasible start, moved in place; f = K beta.

    Returns
    -------
    iterations : int
    violation : float
    b : float
    """
    m = len(point)
    anchor, rho = state[0], state[1]
    s, total = state[2], state[3]
    violation = np.inf
    b = 0.0
    iteration = 0
    v = np.empty(m)
    # What a row may still do: bit 1 push its point's beta up, bit 2 push it down.
    may = np.empty(m, np.int8)
    for j in range(m):
        may[j] = _allowed(sign[j], gamma[j], c[j])
    while True:
        best = -np.inf
        lowest = np.inf
        i = -1
        for j in range(m):
            value = r[j] + q[j] * s - f[point[j]]
            v[j] = value
            if may[j] & 1 and value > best:
                best = value
                i = j
            if may[j] & 2 and value < lowest:
                lowest = value
        violation = best - lowest
        if np.isfinite(best) and np.isfinite(lowest):
            b = 0.5 * (best + lowest)
        elif np.isfinite(best):
            b = best
        elif np.isfinite(lowest):
            b = lowest
        if not violation > eps or iteration >= max_iter:
            break
        iteration += 1
        a = point[i]
        column_a = K[a]
        k_aa = K[a, a]
        q_i = q[i]
        gain = 0.0
        partner = -1
        curvature = 1.0
        for j in range(m):
            if may[j] & 2:
                difference = best - v[j]
                if difference > 0.0:
                    o = point[j]
                    bend = k_aa + K[o, o] - 2.0 * column_a[o]
                    if learned:
                        step_q = q_i - q[j]
                        bend += rho * step_q * step_q
                    if bend < 1e-12:
                        bend = 1e-12
                    value = difference * difference
                    if value > gain * bend:
                        gain = value / bend
                        partner = j
                        curvature = bend
        o = point[partner]
        column_o = K[o]
        delta = (best - v[partner]) / curvature
        room_i = c[i] - gamma[i] if sign[i] > 0 else gamma[i]
        room_o = gamma[partner] if sign[partner] > 0 else c[partner] - gamma[partner]
        delta = min(delta, room_i, room_o)
        _move(gamma, c, i, sign[i] * delta, delta >= room_i)
        _move(gamma, c, partner, -sign[partner] * delta, delta >= room_o)
        may[i] = _allowed(sign[i], gamma[i], c[i])
        may[partner] = _allowed(sign[partner], gamma[partner], c[partner])
        if a != o:
            for k in range(len(f)):
                f[k] += delta * (column_a[k] - column_o[k])
        if learned:
            total -= (q_i - q[partner]) * delta
            s = max(0.0, anchor + rho * total)
    state[2], state[3] = s, total
    return iteration, violation, b


@numba.njit(cache=True)
def _allowed(sign, gamma, c):  # type: ignore[no-untyped-def]
    up = gamma < c if sign > 0 else gamma > 0
    down = gamma > 0 if sign > 0 else gamma < c
    return (1 if up else 0) + (2 if down else 0)


@numba.njit(cache=True)
def _move(gamma, c, j, step, to_bound):  # type: ignore[no-untyped-def]
    """Add a step; one that uses all the room lands on the bound exactly."""
    gamma[j] += step
    if to_bound:
        gamma[j] = c[j] if step > 0 else 0.0
