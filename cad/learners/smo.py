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

# Kernel codes shared with Python.
FULL, LINEAR, RBF, POLY = 0, 1, 2, 3


@numba.njit(cache=True)
def _fill_column(i, kind, X, squares, gamma, coef0, degree, out):  # type: ignore[no-untyped-def]
    """Kernel column of point i into ``out``."""
    product = np.dot(X, X[i])
    n = len(out)
    if kind == LINEAR:
        out[:] = product
    elif kind == RBF:
        for k in range(n):
            distance = squares[k] + squares[i] - 2.0 * product[k]
            out[k] = np.exp(-gamma * max(distance, 0.0))
    else:
        for k in range(n):
            out[k] = (gamma * product[k] + coef0) ** degree


@numba.njit(cache=True)
def _slot(i, kind, X, squares, gamma, coef0, degree, cache, slot_of, owner, used, tick):  # type: ignore[no-untyped-def]
    """Row of ``cache`` that holds column i; the longest unused one makes room (LRU)."""
    tick[0] += 1
    if kind == FULL:
        return i
    slot = slot_of[i]
    if slot < 0:
        slot = np.argmin(used)
        if owner[slot] >= 0:
            slot_of[owner[slot]] = -1
        owner[slot] = i
        slot_of[i] = slot
        _fill_column(i, kind, X, squares, gamma, coef0, degree, cache[slot])
    used[slot] = tick[0]
    return slot


@numba.njit(cache=True)
def smo(  # type: ignore[no-untyped-def]
    cache,
    kind,
    X,
    squares,
    parameters,
    diagonal,
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
    cache : ndarray, shape (slots, n)
        The whole kernel matrix (``kind`` 0), or room for columns made on demand.
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
    n_slots = cache.shape[0]
    slot_of = np.full(cache.shape[1], -1, np.int64)
    owner = np.full(n_slots, -1, np.int64)
    used = np.zeros(n_slots, np.int64)
    tick = np.zeros(1, np.int64)
    kernel_gamma, coef0, degree = parameters[0], parameters[1], int(parameters[2])
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
        slot = _slot(
            a, kind, X, squares, kernel_gamma, coef0, degree, cache, slot_of, owner, used, tick
        )
        column_a = cache[slot]
        k_aa = diagonal[a]
        q_i = q[i]
        gain = 0.0
        partner = -1
        curvature = 1.0
        for j in range(m):
            if may[j] & 2:
                difference = best - v[j]
                if difference > 0.0:
                    o = point[j]
                    bend = k_aa + diagonal[o] - 2.0 * column_a[o]
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
        slot = _slot(
            o, kind, X, squares, kernel_gamma, coef0, degree, cache, slot_of, owner, used, tick
        )
        column_o = cache[slot]
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
