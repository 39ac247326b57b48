"""Primal active set for pointwise problems: the exact solution from a rough one.

Rows strictly between their bounds are free and must be tight: v_j = b (notation of
:mod:`.rows`). With the other duals fixed, the step of the free ones, the intercept and
the scale solve one bordered linear system; its kernel block is held as a Cholesky factor that grows
and shrinks a row at a time. A step that meets a bound stops there and drops the row; a full step is
followed by taking in the rows that violate most. Hard margins, where pairs crawl, cost as many
steps as rows change state.

Steps and factor are numba kernels; what happens once in a full step (decision values, violations)
is numpy, which compiles nothing and uses BLAS.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf

from cad.learners.solvers.problem import Array
from cad.learners.solvers.rows import Iterate, Rows, RowStore

# Added to the kernel's diagonal, relative to its largest entry: keeps dependent points (a linear
# kernel, duplicates) factorisable. Steps are repeated until exact, so the solution has no trace.
RIDGE = 1e-11
# Sums may be taken in any order: inner products then use vector registers.
_ANY_ORDER = {"reassoc", "nsz", "contract"}


@dataclass
class _Free:
    """Hold the free rows, one a point, and the Cholesky factor of their kernel block.

    Parameters
    ----------
    L : ndarray, shape (capacity, capacity)
        Lower triangle; the first ``size`` rows count.
    rows : ndarray of int64, shape (most,)
    size : int
    ridge : float
    """

    L: Array
    rows: NDArray[np.int64]
    size: int
    ridge: float


def active_set(
    store: RowStore,
    rows: Rows,
    at: Iterate,
    rest: Array,
    *,
    tol: float,
    max_iter: int,
    max_free: int,
    add_most: int,
) -> tuple[int, float]:
    """Solve a pointwise problem exactly, from a start whose free rows are roughly right.

    Free rows are those whose dual lies strictly between 0 and the row's cost.

    Parameters
    ----------
    store : RowStore
        Kernel rows; those that are needed are added.
    rows : Rows
        Rows of the problem.
    at : Iterate
        Start, changed in place. Its duals gamma lie between their bounds; they need not fulfil the
        equations of intercept and scale.
    rest : ndarray, shape (2,)
        Where ``rows`` are part of a larger problem: sums of sign * gamma and of q * sign * gamma
        over the other rows, which stay fixed. q is a row's coefficient of the scale
        (``Rows``). Zeros for a whole problem.
    tol : float
        Largest violation at which to stop, in units of the margin.
    max_iter : int
        Most steps.
    max_free : int
        Most free rows.
    add_most : int
        Most rows that become free after a full step.

    Returns
    -------
    steps : int
        Steps done.
    violation : float
        Largest violation left; infinite when the method gave up. It may exceed ``tol``.
    """
    # None: too many free rows, kernel rows that do not fit, or a block that has no factor.
    free = _start(store, rows, at.gamma, max_free)
    if free is None:
        return 0, np.inf
    steps, violation = 0, np.inf
    while steps < max_iter:
        change = np.zeros(len(at.f))
        # g = B'gamma of b and of s: a full step closes both, whatever the start missed.
        signed = rows.sign * at.gamma
        balance = np.array([signed.sum() + rest[0], rows.q @ signed + rest[1]])
        done, free.size = _to_full_step(
            free.L, free.rows, free.size, rows, at, balance, change, max_iter - steps
        )
        steps += abs(done)
        if done < 0:
            return steps, np.inf
        # f = K A'gamma by what the full step changed: one product with few kernel rows.
        at.f[:] += store.times(change)
        violation, new = _violations(rows, at, free, tol, add_most)
        if not len(new):
            if violation <= tol:
                break
            continue
        if not _take_in(store, rows, free, new):
            return steps, np.inf
    return steps, violation


def _start(store: RowStore, rows: Rows, gamma: Array, max_free: int) -> _Free | None:
    """Factorise the kernel of the rows that are free now, one a point; None when it cannot be."""
    ridge = RIDGE * float(store.kernel.diagonal.max())
    inside = rows.free(gamma)
    points, first = np.unique(rows.point[inside], return_index=True)
    size = len(points)
    if size > max_free or ridge <= 0.0 or not store.fetch(points):
        return None
    block = store.block(points, points)
    block.flat[:: size + 1] += ridge
    capacity = min(max_free, size + size // 4 + 50)
    L = np.empty((capacity, capacity))
    if size:
        # The lower triangle of a row-major array is the upper one of LAPACK's column-major view.
        triangle, info = dpotrf(block.T, lower=0, overwrite_a=1)
        if info != 0:
            return None
        L[:size, :size] = triangle.T
    free_rows = np.empty(max_free, dtype=np.int64)
    free_rows[:size] = inside[first]
    return _Free(L, free_rows, size, ridge)


def _violations(
    rows: Rows, at: Iterate, free: _Free, tol: float, add_most: int
) -> tuple[float, NDArray[np.intp]]:
    """Return the largest violation, and the worst rows at a bound, at most one a point."""
    slack = rows.slack(at)
    tight = free.rows[: free.size]
    # At gamma = 0 a row must keep its margin (slack <= 0), at gamma = c it must miss it.
    bad = np.where(at.gamma <= 0.0, slack, -slack)
    bad[tight] = np.abs(slack[tight])
    violation = float(bad.max())
    if violation <= tol:
        return violation, np.empty(0, dtype=np.intp)
    # A point has one free row at most: a second one would make the block singular.
    outside = np.ones(len(at.f), dtype=bool)
    outside[rows.point[tight]] = False
    worst = ((bad > tol) & outside[rows.point]).nonzero()[0]
    if not len(worst):
        return violation, worst
    worst = worst[np.argsort(-bad[worst], kind="stable")]
    # The first, which is the worse, of two rows of one point: it is written last.
    points, turn, first = rows.point[worst], np.arange(len(worst)), np.empty(len(at.f), dtype=int)
    first[points[::-1]] = turn[::-1]
    worst = worst[first[points] == turn]
    return violation, worst[: min(add_most, len(free.rows) - free.size)]


def _take_in(store: RowStore, rows: Rows, free: _Free, new: NDArray[np.intp]) -> bool:
    """Add rows to the factor; False when their kernel rows do not fit the store."""
    if not store.fetch(rows.point[new]):
        return False
    size = free.size + len(new)
    if size > len(free.L):
        capacity = min(len(free.rows), 2 * size)
        larger = np.empty((capacity, capacity))
        larger[: free.size, : free.size] = free.L[: free.size, : free.size]
        free.L = larger
    free.rows[free.size : size] = new
    points = rows.point[free.rows[:size]]
    _append(free.L, free.size, store.block(rows.point[new], points), free.ridge)
    free.size = size
    return True


@numba.njit(cache=True)
def _to_full_step(L, free, size, rows, at, balance, change, most):  # type: ignore[no-untyped-def]
    """Step until no bound is in the way, dropping the rows that meet one.

    Parameters
    ----------
    L, free, size
        Factor, rows and number of the free rows (:class:`_Free`).
    rows : Rows
    at : Iterate
        gamma and u are moved in place; f is left to the caller.
    balance : ndarray, shape (2,)
        sum sign gamma and sum q sign gamma over all rows; overwritten.
    change : ndarray, shape (n,)
        Receives the change of every point's coefficient.
    most : int
        Steps allowed.

    Returns
    -------
    steps : int
        Negative when the system has no solution that can be used.
    size : int
        Free rows left.
    """
    gamma, u = at.gamma, at.u
    tight, step = np.empty(size), np.empty(size)
    ones, slopes = np.empty(size), np.empty(size)
    for k in range(size):
        tight[k] = at.f[rows.point[free[k]]]
    steps = 0
    while steps < most:
        steps += 1
        goal = _direction(L, free, size, rows, u, balance, tight, step, ones, slopes)
        if not goal[2]:
            return -steps, size
        length, blocked = _room(free, size, rows, gamma, step)
        for k in range(size):
            j = free[k]
            gamma[j] = min(max(gamma[j] + length * rows.sign[j] * step[k], 0.0), rows.c[j])
            change[rows.point[j]] += length * step[k]
        if blocked == size:
            u[0], u[1] = goal[0], goal[1]
            break
        # On the way everything moves in proportion: free values towards their targets, the
        # balances towards zero. So neither needs the kernel or all rows before the full step.
        for k in range(size):
            aim = rows.r[free[k]] + rows.q[free[k]] * goal[1] - goal[0]
            tight[k] += length * (aim - tight[k])
        u[0] += length * (goal[0] - u[0])
        u[1] += length * (goal[1] - u[1])
        balance[0] *= 1.0 - length
        balance[1] *= 1.0 - length
        # On the bound exactly, not to rounding: free rows are told by 0 < gamma < c.
        j = free[blocked]
        gamma[j] = 0.0 if rows.sign[j] * step[blocked] < 0.0 else rows.c[j]
        _remove(L, size, blocked)
        size -= 1
        for k in range(blocked, size):
            free[k], tight[k] = free[k + 1], tight[k + 1]
    return steps, size


@numba.njit(cache=True)
def _direction(  # type: ignore[no-untyped-def]
    L, free, size, rows, u, balance, tight, step, ones, slopes
):
    """Solve the bordered system: write ``step``; return the new b and s, and whether they serve.

    With L L' the free kernel block, step = (L L')^-1 (r - f + s q - b 1), where b and s are such
    that the step closes both balances. Half-solved vectors (L^-1 r, L^-1 1, L^-1 q) are enough to
    find b and s, so there is one backward substitution and not three.
    """
    b, s = u[0], u[1]
    for k in range(size):
        step[k] = rows.r[free[k]] - tight[k]
        ones[k] = 1.0
        slopes[k] = rows.q[free[k]]
    _solve_lower(L, size, step)
    _solve_lower(L, size, ones)
    # 1'(LL')^-1 1 and 1'(LL')^-1 (r - f): the Schur complement of the free block for b.
    a_bb, a_b = _dot(ones, ones, size), _dot(ones, step, size)
    if rows.learned:
        _solve_lower(L, size, slopes)
        a_bs, a_ss = _dot(ones, slopes, size), _dot(slopes, slopes, size)
        determinant = a_bb * a_ss - a_bs * a_bs
        # Rows of one slope cannot tell b from s.
        if size < 2 or determinant <= 1e-14 * a_bb * a_ss:
            return b, s, False
        right_b = a_b + balance[0]
        right_s = _dot(slopes, step, size) + balance[1]
        s = (a_bs * right_b - a_bb * right_s) / determinant
        b = (a_ss * right_b - a_bs * right_s) / determinant
        # s = 0 would leave its box: the caller solves without s, or moves pairs.
        if s <= 0.0:
            return b, s, False
        for k in range(size):
            step[k] += s * slopes[k] - b * ones[k]
    else:
        if size < 1:
            return b, s, False
        b = (a_b + balance[0]) / a_bb
        for k in range(size):
            step[k] -= b * ones[k]
    _solve_upper(L, size, step)
    return b, s, True


@numba.njit(cache=True)
def _room(free, size, rows, gamma, step):  # type: ignore[no-untyped-def]
    """Return how far the step may go, at most 1, and which free row stops it (``size``: none)."""
    length, blocked = 1.0, size
    for k in range(size):
        j = free[k]
        move = rows.sign[j] * step[k]
        room = length
        if move < 0.0:
            room = gamma[j] / -move
        elif move > 0.0:
            room = (rows.c[j] - gamma[j]) / move
        if room < length:
            length, blocked = room, k
    return length, blocked


@numba.njit(cache=True)
def _append(L, size, block, ridge):  # type: ignore[no-untyped-def]
    """Add rows to the factor; ``block`` (new, size + new) holds their kernel values."""
    for i in range(len(block)):
        at = size + i
        row = L[at]
        for k in range(at):
            row[k] = block[i, k]
        _solve_lower(L, at, row)
        # A point that depends on the others leaves rounding: the ridge stands in for it.
        row[at] = np.sqrt(max(block[i, at] + ridge - _dot(row, row, at), ridge))


@numba.njit(cache=True)
def _remove(L, size, at):  # type: ignore[no-untyped-def]
    """Take row ``at`` out of the factor.

    Rows below move up, which leaves one entry beside the diagonal in each; Givens rotations of
    neighbouring columns clear them, in O(size^2) where factorising again costs O(size^3).
    """
    for i in range(at, size - 1):
        for k in range(i + 2):
            L[i, k] = L[i + 1, k]
    for i in range(at, size - 1):
        x, y = L[i, i], L[i, i + 1]
        length = np.sqrt(x * x + y * y)
        cos, sin = x / length, y / length
        for k in range(i, size - 1):
            left, right = L[k, i], L[k, i + 1]
            L[k, i] = cos * left + sin * right
            L[k, i + 1] = cos * right - sin * left


@numba.njit(cache=True, fastmath=_ANY_ORDER)
def _dot(x, y, size):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(size):
        total += x[k] * y[k]
    return total


@numba.njit(cache=True)
def _solve_lower(L, size, x):  # type: ignore[no-untyped-def]
    """Solve L y = x in place."""
    for i in range(size):
        x[i] = (x[i] - _dot(L[i], x, i)) / L[i, i]


@numba.njit(cache=True)
def _solve_upper(L, size, x):  # type: ignore[no-untyped-def]
    """Solve L' y = x in place, walking rows of L, which lie side by side in memory."""
    for i in range(size - 1, -1, -1):
        x[i] /= L[i, i]
        value = x[i]
        for k in range(i):
            x[k] -= L[i, k] * value
