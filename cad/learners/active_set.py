"""Primal active set for pointwise problems: the exact solution from a rough one, in numba.

Rows strictly between their bounds are free and must be tight: v_j = b (notation of
:mod:`cad.learners.smo`). With beta of the others fixed, their step, the intercept and the scale
solve one bordered linear system; its kernel block is held as a Cholesky factor that grows and
shrinks a row at a time. A step that meets a bound stops there and drops the row; a full step is
followed by taking in the rows that violate most. Hard margins, where pairs crawl, cost as many
steps as rows change state.
"""

from __future__ import annotations

import numba
import numpy as np

# Added to the kernel's diagonal, relative to its largest entry: keeps dependent points (a linear
# kernel, duplicates) factorisable. Steps are repeated until exact, so the solution has no trace.
RIDGE = 1e-11


@numba.njit(cache=True)
def _solve_lower(L, size, x):  # type: ignore[no-untyped-def]
    for i in range(size):
        total = x[i]
        for k in range(i):
            total -= L[i, k] * x[k]
        x[i] = total / L[i, i]


@numba.njit(cache=True)
def _solve_upper(L, size, x):  # type: ignore[no-untyped-def]
    """L' y = x in place, walking rows of L."""
    for i in range(size - 1, -1, -1):
        x[i] /= L[i, i]
        value = x[i]
        for k in range(i):
            x[k] -= L[i, k] * value


@numba.njit(cache=True)
def _append(L, size, K, points, new, ridge):  # type: ignore[no-untyped-def]
    for k in range(size):
        L[size, k] = K[new, points[k]]
    row = L[size]
    _solve_lower(L, size, row)
    rest = K[new, new] + ridge
    for k in range(size):
        rest -= row[k] * row[k]
    L[size, size] = np.sqrt(max(rest, ridge))


@numba.njit(cache=True)
def _remove(L, size, at):  # type: ignore[no-untyped-def]
    """Factor without row ``at``: rows move up, Givens rotations restore the triangle."""
    for i in range(at, size - 1):
        for k in range(i + 2):
            L[i, k] = L[i + 1, k]
    for i in range(at, size - 1):
        x, y = L[i, i], L[i, i + 1]
        length = np.hypot(x, y)
        cos, sin = x / length, y / length
        for k in range(i, size - 1):
            left, right = L[k, i], L[k, i + 1]
            L[k, i] = cos * left + sin * right
            L[k, i + 1] = cos * right - sin * left


@numba.njit(cache=True)
def _factor(L, size, K, points, ridge):  # type: ignore[no-untyped-def]
    block = np.empty((size, size))
    for i in range(size):
        for k in range(size):
            block[i, k] = K[points[i], points[k]]
        block[i, i] += ridge
    L[:size, :size] = np.linalg.cholesky(block)


@numba.njit(cache=True)
def active_set(  # type: ignore[no-untyped-def]
    K, point, sign, r, q, c, learned, gamma, f, u, rest, tol, max_iter, max_free, add_most
):
    """Solve exactly from a start whose free rows are roughly right.

    Parameters
    ----------
    gamma, f : ndarray, shapes (m,) and (n,)
        Start within the box, moved in place; f = K beta. The balances of b and s need not hold.
    u : ndarray, shape (2,)
        b and s, moved in place.
    rest : ndarray, shape (2,)
        What rows that are held fixed elsewhere add to the balances of b and s: sum sign gamma and
        sum q sign gamma; zeros when there are none.
    tol : float
        Largest violation left, units of the margin.
    max_free : int
        Most free rows the factor may hold.
    add_most : int
        Rows taken in after a full step.

    Returns
    -------
    iterations : int
    violation : float
        Largest violation left; infinite when the method gave up.
    """
    m, n = len(point), len(f)
    taken = np.zeros(n, np.bool_)
    rows = np.empty(max_free, np.int64)
    points = np.empty(max_free, np.int64)
    is_free = np.zeros(m, np.bool_)
    size = 0
    for j in range(m):
        if 0.0 < gamma[j] < c[j] and not taken[point[j]]:
            if size >= max_free:
                return 0, np.inf
            rows[size], points[size] = j, point[j]
            taken[point[j]], is_free[j] = True, True
            size += 1
    largest = 0.0
    for i in range(n):
        largest = max(largest, K[i, i])
    ridge = RIDGE * largest
    if ridge <= 0.0:
        return 0, np.inf
    L = np.empty((max_free, max_free))
    _factor(L, size, K, points, ridge)
    step = np.empty(max_free)
    ones = np.empty(max_free)
    slopes = np.empty(max_free)
    change = np.zeros(n)
    b, s = u[0], u[1]
    violation = np.inf
    iteration = 0
    f_free = np.empty(max_free)
    fresh = True
    while iteration < max_iter:
        iteration += 1
        if fresh:
            for k in range(size):
                f_free[k] = f[points[k]]
        balance_b, balance_s = rest[0], rest[1]
        for j in range(m):
            if gamma[j] > 0.0:
                balance_b += sign[j] * gamma[j]
                balance_s += q[j] * sign[j] * gamma[j]
        for k in range(size):
            step[k] = r[rows[k]] - f_free[k]
            ones[k] = 1.0
            slopes[k] = q[rows[k]]
        _solve_lower(L, size, step)
        _solve_lower(L, size, ones)
        a_bb, a_b = 0.0, 0.0
        for k in range(size):
            a_bb += ones[k] * ones[k]
            a_b += ones[k] * step[k]
        new_b, new_s = b, s
        if learned:
            _solve_lower(L, size, slopes)
            a_bs, a_ss, a_s = 0.0, 0.0, 0.0
            for k in range(size):
                a_bs += ones[k] * slopes[k]
                a_ss += slopes[k] * slopes[k]
                a_s += slopes[k] * step[k]
            # step + s slopes - b ones, balanced for b and for s.
            determinant = a_bb * a_ss - a_bs * a_bs
            if size < 2 or determinant <= 1e-14 * a_bb * a_ss:
                return iteration, np.inf
            right_b = a_b + balance_b
            right_s = a_s + balance_s
            new_s = (a_bs * right_b - a_bb * right_s) / determinant
            new_b = (a_ss * right_b - a_bs * right_s) / determinant
            if new_s <= 0.0:
                return iteration, np.inf
        else:
            if size < 1:
                return iteration, np.inf
            new_b = (a_b + balance_b) / a_bb
        for k in range(size):
            step[k] += (new_s * slopes[k] if learned else 0.0) - new_b * ones[k]
        _solve_upper(L, size, step)
        length = 1.0
        blocked = -1
        for k in range(size):
            j = rows[k]
            move = sign[j] * step[k]
            if move < 0.0:
                room = gamma[j] / -move
            elif move > 0.0:
                room = (c[j] - gamma[j]) / move
            else:
                continue
            if room < length:
                length, blocked = room, k
        for k in range(size):
            j = rows[k]
            gamma[j] = min(max(gamma[j] + length * sign[j] * step[k], 0.0), c[j])
            change[points[k]] += length * step[k]
        if blocked >= 0:
            # On the way, free values move in proportion: tight ones at the end of a full step.
            for k in range(size):
                goal = r[rows[k]] + q[rows[k]] * new_s - new_b
                f_free[k] += length * (goal - f_free[k])
            b += length * (new_b - b)
            s += length * (new_s - s)
            j = rows[blocked]
            gamma[j] = 0.0 if sign[j] * step[blocked] < 0.0 else c[j]
            is_free[j], taken[point[j]] = False, False
            _remove(L, size, blocked)
            size -= 1
            for k in range(blocked, size):
                rows[k], points[k], f_free[k] = rows[k + 1], points[k + 1], f_free[k + 1]
            fresh = False
            continue
        b, s = new_b, new_s
        fresh = True
        for i in range(n):
            if change[i] != 0.0:
                amount = change[i]
                column = K[i]
                for k in range(n):
                    f[k] += amount * column[k]
                change[i] = 0.0
        violation = 0.0
        for k in range(size):
            j = rows[k]
            violation = max(violation, abs(r[j] + q[j] * s - f[points[k]] - b))
        free_violation = violation
        added = 0
        while added < add_most and size < max_free:
            worst, chosen = tol, -1
            for j in range(m):
                if not is_free[j]:
                    slack = sign[j] * (r[j] + q[j] * s - f[point[j]] - b)
                    bad = slack if gamma[j] <= 0.0 else -slack
                    violation = max(violation, bad)
                    if bad > worst and not taken[point[j]]:
                        worst, chosen = bad, j
            if chosen < 0:
                break
            _append(L, size, K, points, point[chosen], ridge)
            rows[size], points[size] = chosen, point[chosen]
            taken[point[chosen]], is_free[chosen] = True, True
            size += 1
            added += 1
        if added == 0 and free_violation <= tol:
            break
    u[0], u[1] = b, s
    return iteration, violation
