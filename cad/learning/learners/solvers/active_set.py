"""Solve pointwise problems exactly, from a rough solution, by a primal active-set method.

In a pointwise problem each row (constraint) is about one training point. :mod:`.rows` explains the
notation: j is a row, gamma_j its dual, c_j its cost, b the intercept and v_j the intercept at which
row j lies on its margin. A row is free if its dual lies strictly between its bounds 0 and c_j. A
free row lies on its margin in the solution, v_j = b.

While all other duals are fixed, the change of the free duals, the intercept and the scale is the
solution of one linear system. The kernel block of this system is kept as a Cholesky factor, to
which rows are added and from which they are removed. If a dual meets its bound during a step, the
step ends there, and the row is no longer free. After a full step, the rows that violate their
constraint most become free. The number of steps is about the number of rows that change between
free and bound. With hard margins (large costs) sequential minimal optimisation (:mod:`.smo`) would
take far more steps.

LAPACK computes the first factor, and code compiled by numba everything else. Most problems are
small, so calls of numpy would take longer than the computation itself.
"""

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf

from cad.learning.learners.solvers.problem import Array
from cad.learning.learners.solvers.rows import Iterate, Rows, RowStore, add_rows, inner

# This share of the largest entry of the kernel matrix is added to the matrix's diagonal. So the
# matrix can be factorised although some points depend linearly on others (as with a linear kernel
# or duplicates). Steps are repeated until the solution is exact, so the addition has no effect on
# the solution.
RIDGE = 1e-11
# After this number of full steps the method gives up, because it may visit the same points again
# and again. Ten steps are usual; problems with the largest costs take some dozens.
_MOST_ROUNDS = 300
# Numba options that allow a sum to be computed in any order, so that inner products use vector
# registers.
_ANY_ORDER = {"reassoc", "nsz", "contract"}


def active_set(
    store: RowStore,
    rows: Rows,
    iterate: Iterate,
    unmet: Array,
    *,
    tol: float,
    max_free: int,
    add_most: int,
) -> tuple[int, float]:
    """Solve a pointwise problem exactly, from a start.

    The method is fast if the free rows of the start are mostly those of the solution. Free rows are
    those whose dual lies strictly between 0 and the row's cost.

    Parameters
    ----------
    store : RowStore
        Rows of the kernel matrix; those that are needed and not there are computed and added.
    rows : Rows
        Rows of the problem.
    iterate : Iterate
        Start, changed in place. The duals gamma of the start lie between their bounds. Their
        balances of the intercept and the scale (``unmet``) need not be 0.
    unmet : ndarray, shape (2,)
        Sums over rows that are not in ``rows`` and stay fixed. The first is the sum of sign * gamma
        (the balance of the intercept), the second the sum of q * sign * gamma (the balance of the
        scale). q is a row's coefficient of the scale (``Rows``). Zeros if ``rows`` are the whole
        problem.
    tol : float
        The method stops when the largest violation of a constraint is at most this, in units of the
        margin.
    max_free : int
        Largest number of free rows.
    add_most : int
        Largest number of rows that become free after a full step.

    Returns
    -------
    steps : int
        Number of steps that were made.
    violation : float
        Largest violation left; infinite when the method gave up. It may exceed ``tol``.

    Examples
    --------
    Two points, at -1 and 1 on a line, are of different classes. The decision value f(x) = x meets
    both margins, with dual variables of 1/2:

    >>> from cad.learning.learners.solvers.kernels import Gram, Kernel
    >>> X = np.array([[-1.0], [1.0]])
    >>> store = RowStore(Gram(Kernel("linear"), X, X @ X.T), 1.0)
    >>> sign = np.array([-1.0, 1.0])
    >>> rows = Rows(np.arange(2), sign, sign, np.zeros(2), np.full(2, 10.0), False)
    >>> iterate = Iterate(np.array([0.4, 0.4]), np.array([-0.8, 0.8]), np.array([0.0, 1.0]))
    >>> steps, violation = active_set(
    ...     store, rows, iterate, np.zeros(2), tol=1e-9, max_free=2, add_most=2
    ... )
    >>> iterate.gamma.round(6).tolist(), iterate.f.round(6).tolist(), violation < 1e-9
    ([0.5, 0.5], [-1.0, 1.0], True)
    """
    ridge = RIDGE * float(store.kernel.diagonal.max())
    # The Cholesky factor L starts with little memory, which is enlarged when needed. To allocate
    # and clear a large array takes a fifth of the time of a small fit.
    room = min(max_free, len(rows.free(iterate.gamma)) * 5 // 4 + 50)
    L = np.empty((room, room))
    free = np.empty(max_free, dtype=np.int64)
    new = np.empty(add_most, dtype=np.int64)
    change = np.zeros(len(iterate.f))
    bad = np.empty(len(rows.point))
    work = np.empty((5, max_free + 2))
    size = _factorise_free(store, rows, iterate.gamma, L, free, ridge)
    steps = 0
    violation = np.inf
    for _ in range(_MOST_ROUNDS if size >= 0 else 0):
        taken_steps, size, violation, count = _to_full_step(
            L, free, size, rows, iterate, unmet, store.kernel, tol, new, change, bad, work
        )
        steps += taken_steps
        if size < 0 or (count == 0 and violation <= tol):
            break
        if count == 0:
            _exchange(rows, iterate.gamma, free[:size], new[0])
        points = rows.point[new[:count]]
        end = size + count
        if not store.fetch(points):
            return steps, np.inf
        if end > len(L):
            L = np.pad(L, (0, min(max_free, 2 * end) - len(L)))
        free[size:end] = new[:count]
        _append_rows(L, size, store.block(points, rows.point[free[:end]]), ridge)
        size = end
    # The scale s may become negative in the steps, and is then set to 0. The caller checks whether
    # this gives a solution.
    iterate.u[1] = max(iterate.u[1], 0.0)
    return steps, violation


def _factorise_free(
    store: RowStore, rows: Rows, gamma: Array, L: Array, free: NDArray[np.int64], ridge: float
) -> int:
    """Factorise the kernel matrix of the free rows (Cholesky); return the number of these rows.

    A row (constraint) is free if its dual lies between its bounds. If a point has several free
    rows, only the first counts. The factor is written into ``L``, and the numbers of the rows into
    ``free``. The result is -1 if more rows are free than ``free`` has places, if their kernel rows
    do not fit the memory, or if the matrix has no factor.
    """
    inside = rows.free(gamma)
    first = np.full(len(store.kernel.slot), -1)
    first[rows.point[inside[::-1]]] = inside[::-1]
    inside = first[first >= 0]
    points = rows.point[inside]
    size = len(inside)
    if size > len(free) or ridge <= 0.0 or not store.fetch(points):
        return -1
    if size:
        block = store.block(points, points)
        block.flat[:: size + 1] += ridge
        # LAPACK's dpotrf expects column-major arrays. For it the lower triangle of this row-major
        # array is the upper triangle.
        triangle, info = dpotrf(block.T, lower=0, overwrite_a=1)
        if info != 0:
            return -1
        L[:size, :size] = triangle.T
        free[:size] = inside
    return size


def _exchange(rows: Rows, gamma: Array, free: NDArray[np.int64], j: np.int64) -> None:
    """Change the duals of row ``j`` and of a free row of the same point, in place.

    A free row is one whose dual may change in a step. The coefficient of the point in the decision
    function stays the same. Both duals change until one of them meets a bound. The row whose dual
    lies between its bounds then is the free row of the point.
    """
    for k in np.flatnonzero((rows.point[free] == rows.point[j]) & (free != j)):
        i = free[k]
        up = gamma[j] <= 0.0
        falls = (rows.sign[i] == rows.sign[j]) == up
        room = gamma[i] if falls else rows.c[i] - gamma[i]
        if room < rows.c[j]:
            gamma[i] = 0.0 if falls else rows.c[i]
            free[k] = j
        else:
            room = rows.c[j]
            gamma[i] += -room if falls else room
        gamma[j] += room if up else -room


@inner()
def _violations(rows, iterate, free, size, tol, new, bad, taken):  # type: ignore[no-untyped-def]
    """Find the rows that violate their constraint most, and put their numbers into ``new``.

    Return the largest violation and how many rows were put into ``new``. A row is free if its dual
    lies strictly between its bounds, 0 and its cost. Rows that are free are not put into ``new``,
    nor is another row of a point that has a free row. If no row can be put there, 0 is returned as
    the number, and ``new`` begins with the row that violates its constraint most of all.
    """
    for i in range(len(taken)):
        taken[i] = 0.0
    for j in range(len(bad)):
        missed = rows.r[j] + rows.q[j] * iterate.u[1] - iterate.f[rows.point[j]] - iterate.u[0]
        # A row whose dual variable gamma is 0 must be on or beyond its margin. A row whose gamma is
        # its cost c must be on its margin or short of it.
        bad[j] = missed * rows.sign[j] if iterate.gamma[j] <= 0.0 else -missed * rows.sign[j]
    for k in range(size):
        bad[free[k]] = abs(bad[free[k]])
        # A point has one free row at most, because two would make the kernel block singular.
        taken[rows.point[free[k]]] = 1.0
    violation = 0.0
    worst = 0
    for j in range(len(bad)):
        if bad[j] > violation:
            violation = bad[j]
            worst = j
    count = 0
    new[0] = worst
    while count < len(new) and size + count < len(free):
        chosen = -1
        limit = tol
        for j in range(len(bad)):
            if bad[j] > limit and taken[rows.point[j]] == 0.0:
                chosen = j
                limit = bad[j]
        if chosen < 0:
            break
        taken[rows.point[chosen]] = 1.0
        new[count] = chosen
        count += 1
    return violation, count


@numba.njit(cache=True)
def _to_full_step(  # type: ignore[no-untyped-def]
    L, free, size, rows, iterate, unmet, kernel, tol, new, change, bad, work
):
    """Make steps until one meets no bound; rows whose dual meets a bound are no longer free.

    Parameters
    ----------
    L : ndarray, shape (room, room)
        Cholesky factor of the kernel block of the free rows, after ``RIDGE`` was added to its
        diagonal. Only the lower triangle of the first ``size`` rows is used.
    free : ndarray of int64, shape (most_free,)
        Numbers of the free rows, at most one per point; only the first ``size`` are used.
    size : int
        Number of free rows at the start.
    rows, iterate, unmet, tol
        Constraints, variables, fixed sums and tolerance, as in :func:`active_set`.
    kernel : KernelRows
        Kernel rows in memory, including the kernel rows of the free rows.
    new : ndarray of int64
        Receives the numbers of the rows that must become free, the worst row first, as many as the
        array has room for.
    change : ndarray, shape (n,)
        Zeros at the start. The changes of the points' coefficients are added up here.
    bad, work : ndarray, shapes (m,) and (5, most_free + 2)
        Memory for intermediate results. Compiled code that makes its own arrays takes longer to
        compile.

    Returns
    -------
    steps : int
        Number of steps that were made.
    size : int
        Number of free rows afterwards; -1 if the linear system has no solution that can be used.
    violation : float
        Largest violation left.
    count : int
        Number of rows in ``new``.
    """
    gamma = iterate.gamma
    u = iterate.u
    step = work[0]
    tight = work[3]
    balance = work[4]
    for k in range(size):
        tight[k] = iterate.f[rows.point[free[k]]]
    # Balances of the intercept b and the scale s, which must be 0 in a solution. They are the sums
    # of sign * gamma and of q * sign * gamma over all rows. A full step makes them 0, even if they
    # are not 0 at the start.
    balance[0] = unmet[0]
    balance[1] = unmet[1]
    for j in range(len(gamma)):
        balance[0] += rows.sign[j] * gamma[j]
        balance[1] += rows.q[j] * rows.sign[j] * gamma[j]
    steps = 0
    while True:
        steps += 1
        goal = _step_direction(L, free, size, rows, u, balance, tight, work)
        if not goal[2]:
            return steps, -1, np.inf, 0
        length, blocked = _room(free, size, rows, gamma, step)
        for k in range(size):
            j = free[k]
            gamma[j] = min(max(gamma[j] + length * rows.sign[j] * step[k], 0.0), rows.c[j])
            change[rows.point[j]] += length * step[k]
        if blocked == size:
            u[0] = goal[0]
            u[1] = goal[1]
            break
        # In a shortened step all values change in proportion: the decision values of free rows
        # towards their targets, the balances towards 0. So neither the kernel nor the other rows
        # are needed before the full step.
        for k in range(size):
            aim = rows.r[free[k]] + rows.q[free[k]] * goal[1] - goal[0]
            tight[k] += length * (aim - tight[k])
        u[0] += length * (goal[0] - u[0])
        u[1] += length * (goal[1] - u[1])
        balance[0] *= 1.0 - length
        balance[1] *= 1.0 - length
        # The dual variable gamma of the row that limits the step is set to exactly its bound,
        # because 0 < gamma < c defines the free rows.
        j = free[blocked]
        gamma[j] = 0.0 if rows.sign[j] * step[blocked] < 0.0 else rows.c[j]
        _remove(L, size, blocked)
        size -= 1
        for k in range(blocked, size):
            free[k] = free[k + 1]
            tight[k] = tight[k + 1]
    # The decision values f = K A'gamma are updated for the dual variables gamma that changed, by a
    # product with few kernel rows.
    add_rows(kernel, change, iterate.f)
    violation, count = _violations(rows, iterate, free, size, tol, new, bad, change)
    for i in range(len(change)):
        change[i] = 0.0
    return steps, size, violation, count


@inner()
def _step_direction(L, free, size, rows, u, balance, tight, work):  # type: ignore[no-untyped-def]
    """Solve the linear system of a step; return the new b and s, and whether they can be used.

    b is the intercept and s the scale. The step, a change of the coefficients of the free rows, is
    written to ``work[0]``; ``work[1]`` and ``work[2]`` are memory for intermediate results.

    L L' is the kernel block of the free rows, so step = (L L')^-1 (r - f + s q - b 1). f
    (``tight``) are the decision values without intercept. On the margins of the rows, the decision
    values with intercept are r + s q (:class:`.Rows`). The equations of b and s each have an error,
    a balance. b and s are the numbers for which the step makes both balances 0. The vectors L^-1 (r
    - f), L^-1 1 and L^-1 q are enough to find them, so one backward substitution is needed instead
    of three.
    """
    b = u[0]
    s = u[1]
    step = work[0]
    ones = work[1]
    slopes = work[2]
    for k in range(size):
        step[k] = rows.r[free[k]] - tight[k]
        ones[k] = 1.0
        slopes[k] = rows.q[free[k]]
    for k in range(2 + rows.learned):
        _solve_lower(L, size, work[k])
    # With the Cholesky factor L, ``a_bb`` is the product 1'(LL')^-1 1, and ``a_b`` is 1'(LL')^-1 (r
    # - f). After the free duals are eliminated from the system, they are the coefficients of an
    # equation for b.
    a_bb = _dot(ones, ones, size)
    a_b = _dot(ones, step, size)
    if rows.learned:
        a_bs = _dot(ones, slopes, size)
        a_ss = _dot(slopes, slopes, size)
        determinant = a_bb * a_ss - a_bs * a_bs
        # If all free rows have the same coefficient of the scale s, the equations do not determine
        # the intercept b and s.
        if size < 2 or determinant <= 1e-14 * a_bb * a_ss:
            return b, s, False
        right_b = a_b + balance[0]
        right_s = _dot(slopes, step, size) + balance[1]
        s = (a_bs * right_b - a_bb * right_s) / determinant
        b = (a_ss * right_b - a_bs * right_s) / determinant
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


@inner()
def _room(free, size, rows, gamma, step):  # type: ignore[no-untyped-def]
    """Return the share of the step that keeps all duals within their bounds, at most 1.

    The second result is the place, among the free rows, of the row that limits the share, or
    ``size`` if none does.
    """
    length = 1.0
    blocked = size
    for k in range(size):
        j = free[k]
        move = rows.sign[j] * step[k]
        room = length
        if move < 0.0:
            room = gamma[j] / -move
        elif move > 0.0:
            room = (rows.c[j] - gamma[j]) / move
        if room < length:
            length = room
            blocked = k
    return length, blocked


@numba.njit(cache=True)
def _append_rows(L, size, block, ridge):  # type: ignore[no-untyped-def]
    """Add rows to the Cholesky factor L of ``size`` rows.

    ``block``, shape (new, size + new), has the kernel values of the new rows. ``ridge`` is added to
    their diagonal elements. No diagonal element of L is less than the root of ``ridge``.
    """
    for i in range(len(block)):
        place = size + i
        row = L[place]
        for k in range(place):
            row[k] = block[i, k]
        _solve_lower(L, place, row)
        # For a point that depends linearly on the others, the diagonal element before its square
        # root is only a rounding error, and may be negative. The ridge then takes its place.
        row[place] = np.sqrt(max(block[i, place] + ridge - _dot(row, row, place), ridge))


@inner()
def _remove(L, size, place):  # type: ignore[no-untyped-def]
    """Remove row ``place`` from the Cholesky factor L.

    The rows below move up by one, so each of them has one entry beyond the diagonal. Givens
    rotations of neighbouring columns make these entries 0. This takes O(size^2) operations, whereas
    a new factorisation would take O(size^3).
    """
    for i in range(place, size - 1):
        for k in range(i + 2):
            L[i, k] = L[i + 1, k]
    for i in range(place, size - 1):
        x = L[i, i]
        y = L[i, i + 1]
        length = np.sqrt(x * x + y * y)
        cos = x / length
        sin = y / length
        for k in range(i, size - 1):
            first = L[k, i]
            right = L[k, i + 1]
            L[k, i] = cos * first + sin * right
            L[k, i + 1] = cos * right - sin * first


@inner(fastmath=_ANY_ORDER)
def _dot(x, y, size):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(size):
        total += x[k] * y[k]
    return total


@inner()
def _solve_lower(L, size, x):  # type: ignore[no-untyped-def]
    """Solve L y = x in place."""
    for i in range(size):
        x[i] = (x[i] - _dot(L[i], x, i)) / L[i, i]


@inner()
def _solve_upper(L, size, x):  # type: ignore[no-untyped-def]
    """Solve L' y = x for the first ``size`` rows of the lower triangle L; y is written into ``x``.

    The loop goes along the rows of L, because their entries are neighbours in memory.
    """
    for i in range(size - 1, -1, -1):
        x[i] /= L[i, i]
        value = x[i]
        for k in range(i):
            x[k] -= L[i, k] * value
