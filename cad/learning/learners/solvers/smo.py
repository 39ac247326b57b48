"""Solve pointwise problems by sequential minimal optimisation: two rows at a time, in numba.

:mod:`.rows` explains the notation. A row whose dual can raise the coefficient of its point needs
v_j <= b. A row whose dual can lower this coefficient needs v_j >= b. Each move changes the pair of
rows that violates these conditions most (second-order choice, Fan, Chen and Lin 2005). A move keeps
the balance of the intercept exactly.

A learned scale has another condition, sum_j w_j gamma_j <= 0. A proximal term (s - anchor)^2 / (2
rho) makes the solution meet this condition. The caller moves the anchor until the term vanishes
(method of multipliers). Then s = max(0, anchor + rho sum_j w_j gamma_j) is known at every step, and
moves of pairs are sufficient.
"""

import numba
import numpy as np

from cad.learning.learners.solvers.rows import inner

# Numba options for comparisons of numbers that are never NaN: loops over all rows then use vector
# registers.
_NO_NAN = {"nnan", "nsz"}


@numba.njit(cache=True, fastmath=_NO_NAN)
def smo(kernel, rows, iterate, scale, eps, limit):  # type: ignore[no-untyped-def]
    """Move pairs of rows until the largest violation is below ``eps``.

    Parameters
    ----------
    kernel : KernelRows
        Kernel rows in memory.
    rows : Rows
        Rows of the problem.
    iterate : Iterate
        Feasible start, changed in place. Its u (intercept b and scale s) is written but not read.
    scale : ndarray, shape (3,)
        Three numbers that give the scale s, which divides decision values before they become
        probabilities: s = max(0, anchor + rho * total). The first two, anchor and rho, belong to
        the proximal term (s - anchor)^2 / (2 rho). The third, total, is the sum of w * gamma over
        the rows, with w = -sign * q the row's coefficient of s and gamma its dual variable; the
        total is updated in place. Where the scale is not learned, q is 0 and s has no effect.
    eps : float
        Violation at which to stop.
    limit : int
        Largest number of moves.

    Returns
    -------
    moves : int
        Number of pairs that were moved.
    violation : float
        Largest violation left.
    unfetched : int
        Number of a point whose kernel row is needed but not in memory; -1 if no row is needed. The
        caller adds the row and calls again.
    """
    values, slot, diagonal = kernel
    point = rows.point
    sign = rows.sign
    r = rows.r
    q = rows.q
    c = rows.c
    gamma = iterate.gamma
    f = iterate.f
    m = len(point)
    n = len(f)
    anchor = scale[0]
    rho = scale[1]
    total = scale[2]
    v = np.empty(m)
    gain = np.empty(m)
    bend = np.empty(m)
    # A row at its bound cannot move further. An infinite penalty excludes such a row without a
    # branch, so that the loops below can be vectorised.
    raising = np.empty(m)
    lowering = np.empty(m)
    for j in range(m):
        _set_penalties(raising, lowering, j, sign[j], gamma[j], c[j])
        bend[j] = diagonal[point[j]]
    moves = 0
    unfetched = -1
    while True:
        # Scale that the proximal term gives for these duals, at least 0.
        s = max(0.0, anchor + rho * total)
        # best = max v_j over rows that may raise, lowest = min v_j over rows that may lower. While
        # best > lowest, no intercept b lies between them.
        best = -np.inf
        lowest = np.inf
        for j in range(m):
            v[j] = r[j] + q[j] * s - f[point[j]]
            best = max(best, v[j] + raising[j])
            lowest = min(lowest, v[j] + lowering[j])
        violation = best - lowest
        iterate.u[0] = between(best, lowest)
        iterate.u[1] = s
        if not violation > eps or moves >= limit:
            break
        # The maximum and its place are found in two passes, because the first pass vectorises.
        i = _first_equal(v, raising, best)
        a = point[i]
        if slot[a] < 0:
            unfetched = a
            break
        column_a = values[slot[a]]
        # The objective gains difference^2 / curvature when this pair is moved.
        k_aa = bend[i]
        q_i = q[i]
        most_gain = 0.0
        for j in range(m):
            difference = max(0.0, best - v[j] - lowering[j])
            # This is the second derivative of the dual along the pair: |phi_i - phi_j|^2 of the
            # kernel, plus a part from the proximal term. The latter is there because a move of the
            # pair changes s.
            step_q = q_i - q[j]
            curvature = k_aa + bend[j] - 2.0 * column_a[point[j]] + rho * step_q * step_q
            gain[j] = difference * difference / max(curvature, 1e-12)
            most_gain = max(most_gain, gain[j])
        partner = m - 1
        for j in range(m):
            if gain[j] == most_gain:
                partner = j
                break
        o = point[partner]
        if slot[o] < 0:
            unfetched = o
            break
        column_o = values[slot[o]]
        step_q = q_i - q[partner]
        curvature = k_aa + bend[partner] - 2.0 * column_a[o] + rho * step_q * step_q
        delta = (best - v[partner]) / max(curvature, 1e-12)
        room_i = c[i] - gamma[i] if sign[i] > 0 else gamma[i]
        room_o = gamma[partner] if sign[partner] > 0 else c[partner] - gamma[partner]
        # Both coefficients move by the same amount, so the balance B'gamma = 0 of the intercept is
        # kept exactly.
        delta = min(delta, room_i, room_o)
        _move(gamma, c, i, sign[i] * delta, delta >= room_i)
        _move(gamma, c, partner, -sign[partner] * delta, delta >= room_o)
        _set_penalties(raising, lowering, i, sign[i], gamma[i], c[i])
        _set_penalties(raising, lowering, partner, sign[partner], gamma[partner], c[partner])
        # Update f by the kernel columns of both points. The columns of two rows of the same point
        # cancel.
        if a != o:
            for k in range(n):
                f[k] += delta * (column_a[k] - column_o[k])
        total -= step_q * delta
        moves += 1
    scale[2] = total
    return moves, violation, unfetched


@inner()
def _set_penalties(raising, lowering, j, sign, gamma, c):  # type: ignore[no-untyped-def]
    """Write both penalties of row j: 0 where its dual may raise (or lower) its point's coefficient,
    else -inf (or inf).
    """
    up = gamma < c if sign > 0 else gamma > 0
    down = gamma > 0 if sign > 0 else gamma < c
    raising[j] = 0.0 if up else -np.inf
    lowering[j] = 0.0 if down else np.inf


@inner()
def _first_equal(v, penalty, value):  # type: ignore[no-untyped-def]
    """Return the first row whose v plus penalty equals ``value``."""
    for j in range(len(v)):
        if v[j] + penalty[j] == value:
            return j
    return len(v) - 1


@numba.njit(cache=True)
def between(best, lowest):  # type: ignore[no-untyped-def]
    """Return the number halfway between two bounds of the intercept, in either order.

    ``best`` is the lower bound and ``lowest`` the upper bound, once no pair can be moved. If one
    bound is infinite, the result is the other bound. If both bounds are infinite, the result is 0.
    """
    if np.isfinite(best) and np.isfinite(lowest):
        return 0.5 * (best + lowest)
    if np.isfinite(best):
        return best
    return lowest if np.isfinite(lowest) else 0.0


@inner()
def _move(gamma, c, j, step, to_bound):  # type: ignore[no-untyped-def]
    """Add ``step`` to the dual of row j; set the dual to exactly its bound where ``to_bound`` is
    true.
    """
    gamma[j] += step
    if to_bound:
        gamma[j] = c[j] if step > 0 else 0.0
