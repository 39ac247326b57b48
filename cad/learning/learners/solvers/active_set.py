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
# A determinant below this share of the product of its diagonal may be only a rounding error.
_NO_DETERMINANT = 1e-14
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
    capacity = min(max_free, len(rows.free(iterate.gamma)) * 5 // 4 + 50)
    L = np.empty((capacity, capacity))
    free = np.empty(max_free, dtype=np.int64)
    entering = np.empty(add_most, dtype=np.int64)
    beta_change = np.zeros(len(iterate.f))
    row_violation = np.empty(len(rows.point))
    workspace = np.empty((5, max_free + 2))
    n_free = _factorise_free(store, rows, iterate.gamma, L, free, ridge)
    steps = 0
    violation = np.inf
    # Without a factor of the free rows of the start no step can be made.
    most_rounds = _MOST_ROUNDS if n_free >= 0 else 0
    for _ in range(most_rounds):
        taken_steps, n_free, violation, n_entering = _to_full_step(
            L,
            free,
            n_free,
            rows,
            iterate,
            unmet,
            store.kernel,
            tol,
            entering,
            beta_change,
            row_violation,
            workspace,
        )
        steps += taken_steps
        # The equations have no solution that can be used, or the problem is solved.
        if n_free < 0 or (n_entering == 0 and violation <= tol):
            break
        if n_entering == 0:
            # No row can be added: each row that violates its constraint is about a point that has a
            # free row already (or no room is left). So the worst of them takes the place of the
            # free row of its point. The steps below then add nothing.
            _exchange(rows, iterate.gamma, free[:n_free], entering[0])
        entering_points = rows.point[entering[:n_entering]]
        n_after = n_free + n_entering
        if not store.fetch(entering_points):
            # The kernel rows of these points do not fit the memory.
            return steps, np.inf
        if n_after > len(L):
            L = np.pad(L, (0, min(max_free, 2 * n_after) - len(L)))
        free[n_free:n_after] = entering[:n_entering]
        _append_rows(L, n_free, store.block(entering_points, rows.point[free[:n_after]]), ridge)
        n_free = n_after
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
    all_free = rows.free(gamma)
    first_free = np.full(len(store.kernel.slot), -1)
    # The rows are written in reverse order, so that the first free row of a point comes last and
    # replaces the others.
    backwards = all_free[::-1]
    first_free[rows.point[backwards]] = backwards
    free_rows = first_free[first_free >= 0]
    points = rows.point[free_rows]
    n_free = len(free_rows)
    # A ridge of 0 means that the kernel matrix is 0, and has no factor.
    if n_free > len(free) or ridge <= 0.0 or not store.fetch(points):
        return -1
    if n_free:
        block = store.block(points, points)
        block.flat[:: n_free + 1] += ridge  # the diagonal
        # LAPACK's dpotrf expects column-major arrays. For it the lower triangle of this row-major
        # array is the upper triangle.
        upper, failed_at = dpotrf(block.T, lower=0, overwrite_a=1)
        if failed_at != 0:  # the block is not positive definite
            return -1
        L[:n_free, :n_free] = upper.T
        free[:n_free] = free_rows
    return n_free


def _exchange(rows: Rows, gamma: Array, free: NDArray[np.int64], j: np.int64) -> None:
    """Change the duals of row ``j`` and of a free row of the same point, in place.

    A free row is one whose dual may change in a step. The coefficient of the point in the decision
    function stays the same. Both duals change until one of them meets a bound. The row whose dual
    lies between its bounds then is the free row of the point. ``free`` has the numbers of the free
    rows.
    """
    same_point = rows.point[free] == rows.point[j]
    for place in np.flatnonzero(same_point & (free != j)):
        partner = free[place]
        # Row j is not free, so its dual is at 0 and rises, or is at its cost and falls.
        rises = gamma[j] <= 0.0
        # The coefficient of the point is the sum of sign * gamma over its rows. So it stays the
        # same if duals of the same sign change in opposite directions, or duals of opposite signs
        # in the same direction.
        same_sign = rows.sign[partner] == rows.sign[j]
        partner_falls = same_sign == rises
        amount = gamma[partner] if partner_falls else rows.c[partner] - gamma[partner]
        # The dual of row j can change by its whole cost. The partner's may meet its bound earlier.
        if amount < rows.c[j]:
            gamma[partner] = 0.0 if partner_falls else rows.c[partner]
            free[place] = j
        else:
            amount = rows.c[j]
            gamma[partner] += -amount if partner_falls else amount
        gamma[j] += amount if rises else -amount


@inner()
def _violations(rows, iterate, free, n_free, tol, entering, row_violation, taken):  # type: ignore[no-untyped-def]
    """Find the rows that violate their constraint most, and put their numbers into ``entering``.

    Return the largest violation and how many rows were put into ``entering``. A row is free if its
    dual lies strictly between its bounds, 0 and its cost. Rows that are free are not put into
    ``entering``, nor is another row of a point that has a free row. If no row can be put there, 0
    is returned as the number, and ``entering`` begins with the row that violates its constraint
    most of all.

    ``row_violation`` and ``taken`` are memory for a number per row and a number per point. The
    first ``n_free`` entries of ``free`` are the numbers of the free rows.
    """
    # ``taken`` becomes 1 for each point that has a free row or a row in ``entering``.
    for i in range(len(taken)):
        taken[i] = 0.0
    for j in range(len(row_violation)):
        # v = r + q s - f is the intercept at which the row lies on its margin (:mod:`.rows`).
        v_minus_b = rows.r[j] + rows.q[j] * iterate.u[1] - iterate.f[rows.point[j]] - iterate.u[0]
        # ``slack`` is above 0 if the row is short of its margin. A row whose dual variable gamma is
        # 0 must be on or beyond its margin. A row whose gamma is its cost c must be on its margin
        # or short of it.
        slack = v_minus_b * rows.sign[j]
        row_violation[j] = slack if iterate.gamma[j] <= 0.0 else -slack
    for k in range(n_free):
        # A free row must be exactly on its margin.
        row_violation[free[k]] = abs(row_violation[free[k]])
        # A point has one free row at most, because two would make the kernel block singular.
        taken[rows.point[free[k]]] = 1.0
    violation = 0.0
    worst = 0
    for j in range(len(row_violation)):
        if row_violation[j] > violation:
            violation = row_violation[j]
            worst = j
    n_entering = 0
    entering[0] = worst
    # In each pass the row of the largest violation, of a point that is not taken yet, is chosen.
    while n_entering < len(entering) and n_free + n_entering < len(free):
        chosen = -1
        largest = tol
        for j in range(len(row_violation)):
            if row_violation[j] > largest and taken[rows.point[j]] == 0.0:
                chosen = j
                largest = row_violation[j]
        if chosen < 0:
            break
        taken[rows.point[chosen]] = 1.0
        entering[n_entering] = chosen
        n_entering += 1
    return violation, n_entering


@numba.njit(cache=True)
def _to_full_step(  # type: ignore[no-untyped-def]
    L,
    free,
    n_free,
    rows,
    iterate,
    unmet,
    kernel,
    tol,
    entering,
    beta_change,
    row_violation,
    workspace,
):
    """Make steps until one meets no bound; rows whose dual meets a bound are no longer free.

    Parameters
    ----------
    L : ndarray, shape (capacity, capacity)
        Cholesky factor of the kernel block of the free rows, after ``RIDGE`` was added to its
        diagonal. Only the lower triangle of the first ``n_free`` rows is used.
    free : ndarray of int64, shape (most_free,)
        Numbers of the free rows, at most one per point; only the first ``n_free`` are used.
    n_free : int
        Number of free rows at the start.
    rows, iterate, unmet, tol
        Constraints, variables, fixed sums and tolerance, as in :func:`active_set`.
    kernel : KernelRows
        Kernel rows in memory, including the kernel rows of the free rows.
    entering : ndarray of int64
        Receives the numbers of the rows that must become free, the worst row first, as many as the
        array has room for.
    beta_change : ndarray, shape (n,)
        Zeros at the start. The changes of the points' coefficients are added up here.
    row_violation, workspace : ndarray, shapes (m,) and (5, most_free + 2)
        Memory for intermediate results. Compiled code that makes its own arrays takes longer to
        compile.

    Returns
    -------
    steps : int
        Number of steps that were made.
    n_free : int
        Number of free rows afterwards; -1 if the linear system has no solution that can be used.
    violation : float
        Largest violation left.
    n_entering : int
        Number of rows in ``entering``.
    """
    gamma = iterate.gamma
    u = iterate.u
    # The step of the free rows' coefficients, the decision values of the free rows, and the two
    # balances. _step_direction uses the second and third row of ``workspace``.
    step = workspace[0]
    f_free = workspace[3]
    balance = workspace[4]
    for k in range(n_free):
        f_free[k] = iterate.f[rows.point[free[k]]]
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
        goal_b, goal_s, usable = _step_direction(
            L, free, n_free, rows, u, balance, f_free, workspace
        )
        if not usable:
            return steps, -1, np.inf, 0
        share, limiting = _room(free, n_free, rows, gamma, step)
        for k in range(n_free):
            j = free[k]
            # The coefficient of a point is a sum of sign * gamma, so gamma changes by sign * step.
            # The clip removes rounding errors.
            gamma[j] = min(max(gamma[j] + share * rows.sign[j] * step[k], 0.0), rows.c[j])
            beta_change[rows.point[j]] += share * step[k]
        if limiting == n_free:  # no row limits the step, so it is a full step
            u[0] = goal_b
            u[1] = goal_s
            break
        # In a shortened step all values change in proportion: the decision values of free rows
        # towards their targets, the balances towards 0. So neither the kernel nor the other rows
        # are needed before the full step.
        for k in range(n_free):
            f_on_margin = rows.r[free[k]] + rows.q[free[k]] * goal_s - goal_b
            f_free[k] += share * (f_on_margin - f_free[k])
        u[0] += share * (goal_b - u[0])
        u[1] += share * (goal_s - u[1])
        balance[0] *= 1.0 - share
        balance[1] *= 1.0 - share
        # The dual variable gamma of the row that limits the step is set to exactly its bound,
        # because 0 < gamma < c defines the free rows.
        j = free[limiting]
        gamma[j] = 0.0 if rows.sign[j] * step[limiting] < 0.0 else rows.c[j]
        # This row is no longer free: it is taken out of the factor and of both lists.
        _remove(L, n_free, limiting)
        n_free -= 1
        for k in range(limiting, n_free):
            free[k] = free[k + 1]
            f_free[k] = f_free[k + 1]
    # The decision values f = K A'gamma are updated for the dual variables gamma that changed, by a
    # product with few kernel rows.
    add_rows(kernel, beta_change, iterate.f)
    # _violations uses the array of the changes as memory; afterwards it is set back to zeros.
    violation, n_entering = _violations(
        rows, iterate, free, n_free, tol, entering, row_violation, beta_change
    )
    for i in range(len(beta_change)):
        beta_change[i] = 0.0
    return steps, n_free, violation, n_entering


@inner()
def _step_direction(L, free, n_free, rows, u, balance, f_free, workspace):  # type: ignore[no-untyped-def]
    """Solve the linear system of a step; return the new b and s, and whether they can be used.

    b is the intercept and s the scale. The step, a change of the coefficients of the free rows, is
    written to ``workspace[0]``; ``workspace[1]`` and ``workspace[2]`` are memory for intermediate
    results.

    L L' is the kernel block of the free rows, so step = (L L')^-1 (r - f + s q - b 1). f
    (``f_free``) are the decision values without intercept. On the margins of the rows, the decision
    values with intercept are r + s q (:class:`.Rows`). The equations of b and s each have an error,
    a balance. b and s are the numbers for which the step makes both balances 0. The vectors L^-1 (r
    - f), L^-1 1 and L^-1 q are enough to find them, so one backward substitution is needed instead
    of three.
    """
    b = u[0]
    s = u[1]
    step = workspace[0]
    ones = workspace[1]
    q_free = workspace[2]
    # The right sides of the three systems: r - f, 1 and q. Each array then gets its solution.
    for k in range(n_free):
        step[k] = rows.r[free[k]] - f_free[k]
        ones[k] = 1.0
        q_free[k] = rows.q[free[k]]
    # Without a learned scale q is not needed.
    for k in range(2 + rows.learned):
        _solve_lower(L, n_free, workspace[k])
    # With the Cholesky factor L, ``a_bb`` is the product 1'(LL')^-1 1, and ``a_b`` is 1'(LL')^-1 (r
    # - f). After the free duals are eliminated from the system, they are the coefficients of an
    # equation for b.
    a_bb = _dot(ones, ones, n_free)
    a_b = _dot(ones, step, n_free)
    if rows.learned:
        a_bs = _dot(ones, q_free, n_free)
        a_ss = _dot(q_free, q_free, n_free)
        determinant = a_bb * a_ss - a_bs * a_bs
        # If all free rows have the same coefficient of the scale s, the equations do not determine
        # the intercept b and s.
        if n_free < 2 or determinant <= _NO_DETERMINANT * a_bb * a_ss:
            return b, s, False
        # Two equations give b and s (Cramer's rule).
        right_of_b = a_b + balance[0]
        right_of_s = _dot(q_free, step, n_free) + balance[1]
        s = (a_bs * right_of_b - a_bb * right_of_s) / determinant
        b = (a_ss * right_of_b - a_bs * right_of_s) / determinant
        for k in range(n_free):
            step[k] += s * q_free[k] - b * ones[k]
    else:
        if n_free < 1:
            # Without a free row no equation determines the intercept.
            return b, s, False
        b = (a_b + balance[0]) / a_bb
        for k in range(n_free):
            step[k] -= b * ones[k]
    # ``step`` is L^-1 (r - f + s q - b 1) now.
    _solve_upper(L, n_free, step)
    return b, s, True


@inner()
def _room(free, n_free, rows, gamma, step):  # type: ignore[no-untyped-def]
    """Return the share of the step that keeps all duals within their bounds, at most 1.

    The second result is the place, among the free rows, of the row that limits the share, or
    ``n_free`` if none does.
    """
    share = 1.0
    limiting = n_free
    for k in range(n_free):
        j = free[k]
        # The coefficient of the row's point changes by the step, and the dual by sign * step.
        gamma_change = rows.sign[j] * step[k]
        share_to_bound = share
        if gamma_change < 0.0:
            share_to_bound = gamma[j] / -gamma_change
        elif gamma_change > 0.0:
            share_to_bound = (rows.c[j] - gamma[j]) / gamma_change
        if share_to_bound < share:
            share = share_to_bound
            limiting = k
    return share, limiting


@numba.njit(cache=True)
def _append_rows(L, size, block, ridge):  # type: ignore[no-untyped-def]
    """Add rows to the Cholesky factor L of ``size`` rows.

    ``block``, shape (new, size + new), has the kernel values of the new rows. ``ridge`` is added to
    their diagonal elements. No diagonal element of L is less than the root of ``ridge``.
    """
    for i in range(len(block)):
        position = size + i
        new_row = L[position]
        for k in range(position):
            new_row[k] = block[i, k]
        _solve_lower(L, position, new_row)
        # For a point that depends linearly on the others, the diagonal element before its square
        # root is only a rounding error, and may be negative. The ridge then takes its place.
        new_row[position] = np.sqrt(
            max(block[i, position] + ridge - _dot(new_row, new_row, position), ridge)
        )


@inner()
def _remove(L, size, removed):  # type: ignore[no-untyped-def]
    """Remove row ``removed`` from the Cholesky factor L.

    The rows below move up by one, so each of them has one entry beyond the diagonal. Givens
    rotations of neighbouring columns make these entries 0. This takes O(size^2) operations, whereas
    a new factorisation would take O(size^3).
    """
    for i in range(removed, size - 1):
        for k in range(i + 2):
            L[i, k] = L[i + 1, k]
    for i in range(removed, size - 1):
        diagonal = L[i, i]
        beyond = L[i, i + 1]
        radius = np.sqrt(diagonal * diagonal + beyond * beyond)
        cos = diagonal / radius
        sin = beyond / radius
        # The rotation of columns i and i + 1, for all rows from i on.
        for k in range(i, size - 1):
            left_entry = L[k, i]
            right_entry = L[k, i + 1]
            L[k, i] = cos * left_entry + sin * right_entry
            L[k, i + 1] = cos * right_entry - sin * left_entry


@inner(fastmath=_ANY_ORDER)
def _dot(x, y, size):  # type: ignore[no-untyped-def]
    """Return the inner product of the first ``size`` entries of x and y."""
    total = 0.0
    for k in range(size):
        total += x[k] * y[k]
    return total


@inner()
def _solve_lower(L, size, x):  # type: ignore[no-untyped-def]
    """Solve L y = x for the first ``size`` rows of the lower triangle L, in place."""
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
