"""Solve pointwise problems by sequential minimal optimisation, compiled by numba.

In this method a move changes the duals of two rows, and all others stay the same.

:mod:`.rows` explains the notation; v_j is the intercept at which row j lies on its margin, and b
the intercept. The coefficient of a point is the sum of sign_j gamma_j over its rows. At the optimum
v_j <= b for each row whose dual may change so that the coefficient grows, and v_j >= b for each row
whose dual may change so that it falls. A move changes a pair of rows that violates these two
conditions. It is chosen by the gain of the objective (second-order choice, Fan, Chen and Lin 2005).
A move keeps the sum of sign_j gamma_j over all rows, which must be 0.

A learned scale has another condition, sum_j w_j gamma_j <= 0, which moves of pairs cannot fulfil.
So the proximal term (s - anchor)^2 / (2 rho) is added to the objective. With it s = max(0, anchor +
rho sum_j w_j gamma_j) follows from the duals, and moves of pairs are sufficient. The caller sets
the anchor to the last s until the term is 0 and the condition holds (method of multipliers).
"""

import numba
import numpy as np

from cad.learning.learners.solvers.rows import inner

# Numba options that assume that no number is NaN. Comparisons in loops over all rows then use
# vector registers.
_NO_NAN = {"nnan", "nsz"}
# The curvature is at least this, because that of two equal points is 0.
_LEAST_CURVATURE = 1e-12


@numba.njit(cache=True, fastmath=_NO_NAN)
def smo(kernel, rows, iterate, scale, eps, limit):  # type: ignore[no-untyped-def]
    """Change the duals of two rows at a time until the largest violation is below ``eps``.

    This is sequential minimal optimisation. A violation says how far the intercepts that two rows
    (constraints) allow contradict each other.

    Parameters
    ----------
    kernel : KernelRows
        Kernel rows in memory.
    rows : Rows
        Rows of the problem.
    iterate : Iterate
        Start with duals between their bounds and a sum of sign * gamma of 0, changed in place. Its
        u (intercept b and scale s) is set but not used.
    scale : ndarray, shape (3,)
        Three numbers that give the scale s, which divides decision values before they become
        probabilities: s = max(0, anchor + rho * total). The first two, anchor and rho, belong to
        the proximal term (s - anchor)^2 / (2 rho). The third, total, is the sum of w * gamma over
        the rows, with w = -sign * q the row's coefficient of s and gamma its dual variable; the
        total is updated in place. Where the scale is not learned, q is 0 and s has no effect.
    eps : float
        Violation at which to stop.
    limit : int
        Largest number of moves; a move changes the duals of one pair of rows.

    Returns
    -------
    moves : int
        Number of pairs that were changed.
    violation : float
        Largest remaining violation.
    unfetched : int
        Number of a point whose kernel row is needed but not in memory; -1 if there is none. The
        caller adds the row and calls this function again.
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
    k_diagonal = np.empty(m)  # the kernel's diagonal at the point of every row
    # The dual of a row at its bound cannot change further in one direction. An infinite penalty
    # excludes such a row without a branch, so the loops below can be vectorised.
    raising = np.empty(m)
    lowering = np.empty(m)
    for j in range(m):
        _set_penalties(raising, lowering, j, sign[j], gamma[j], c[j])
        k_diagonal[j] = diagonal[point[j]]
    moves = 0
    unfetched = -1
    while True:
        # With the proximal term of the scale (see the module's docstring), s is the scale that is
        # optimal for the present dual variables.
        s = max(0.0, anchor + rho * total)
        # v_j is the intercept at which row j lies on its margin. ``largest_v`` is the largest v_j
        # of the rows whose dual variable may change so that the coefficient of their point grows.
        # ``least_v`` is the least v_j of the rows whose dual variable may change so that this
        # coefficient falls. At the optimum there is an intercept b with largest_v <= b <= least_v.
        largest_v = -np.inf
        least_v = np.inf
        for j in range(m):
            v[j] = r[j] + q[j] * s - f[point[j]]
            largest_v = max(largest_v, v[j] + raising[j])
            least_v = min(least_v, v[j] + lowering[j])
        violation = largest_v - least_v
        iterate.u[0] = between(largest_v, least_v)
        iterate.u[1] = s
        if not violation > eps or moves >= limit:
            break
        # Row i is the one whose v is ``largest_v``. The maximum and its place are found in two
        # passes, because the first pass can be vectorised.
        i = _first_equal(v, raising, largest_v)
        point_i = point[i]
        if slot[point_i] < 0:
            unfetched = point_i
            break
        column_i = values[slot[point_i]]
        # If the dual variables of rows i and j are changed, the dual objective gains difference^2 /
        # curvature / 2.
        k_ii = k_diagonal[i]
        q_i = q[i]
        most_gain = 0.0
        for j in range(m):
            difference = max(0.0, largest_v - v[j] - lowering[j])
            # ``curvature`` is the second derivative of the dual objective along the move. It is the
            # squared distance of the two points in the space of the kernel, plus a part from the
            # proximal term, because the move changes s.
            step_q = q_i - q[j]
            curvature = k_ii + k_diagonal[j] - 2.0 * column_i[point[j]] + rho * step_q * step_q
            gain[j] = difference * difference / max(curvature, _LEAST_CURVATURE)
            most_gain = max(most_gain, gain[j])
        # The partner is the first row with the largest gain.
        partner = m - 1
        for j in range(m):
            if gain[j] == most_gain:
                partner = j
                break
        point_of_partner = point[partner]
        if slot[point_of_partner] < 0:
            unfetched = point_of_partner
            break
        column_of_partner = values[slot[point_of_partner]]
        step_q = q_i - q[partner]
        curvature = (
            k_ii + k_diagonal[partner] - 2.0 * column_i[point_of_partner] + rho * step_q * step_q
        )
        # Without bounds the objective would be best after this change of both coefficients.
        step = (largest_v - v[partner]) / max(curvature, _LEAST_CURVATURE)
        # The coefficient of point i grows, and that of the partner's point falls. The rooms say how
        # far the two duals are from the bounds that they move to.
        room_i = c[i] - gamma[i] if sign[i] > 0 else gamma[i]
        room_of_partner = gamma[partner] if sign[partner] > 0 else c[partner] - gamma[partner]
        # One coefficient grows and the other falls by the same amount, so the sum of sign * gamma
        # stays 0 exactly.
        step = min(step, room_i, room_of_partner)
        _move(gamma, c, i, sign[i] * step, step >= room_i)
        _move(gamma, c, partner, -sign[partner] * step, step >= room_of_partner)
        _set_penalties(raising, lowering, i, sign[i], gamma[i], c[i])
        _set_penalties(raising, lowering, partner, sign[partner], gamma[partner], c[partner])
        # The decision values f change by the kernel columns of both points. For two rows of the
        # same point the columns cancel.
        if point_i != point_of_partner:
            for k in range(n):
                f[k] += step * (column_i[k] - column_of_partner[k])
        # total is the sum of -sign * q * gamma, so it changes by -(q_i - q_partner) * step.
        total -= step_q * step
        moves += 1
    scale[2] = total
    return moves, violation, unfetched


@inner()
def _set_penalties(raising, lowering, j, sign, gamma, c):  # type: ignore[no-untyped-def]
    """Write both penalties of row j.

    ``raising[j]`` is 0 if the dual may change so that the coefficient of the row's point grows,
    else -inf. ``lowering[j]`` is 0 if the dual may change so that it falls, else inf.
    """
    # The coefficient of the point contains sign * gamma.
    may_grow = gamma < c if sign > 0 else gamma > 0
    may_fall = gamma > 0 if sign > 0 else gamma < c
    raising[j] = 0.0 if may_grow else -np.inf
    lowering[j] = 0.0 if may_fall else np.inf


@inner()
def _first_equal(v, penalty, value):  # type: ignore[no-untyped-def]
    """Return the first row whose v plus penalty equals ``value``; the last row if none does."""
    for j in range(len(v)):
        if v[j] + penalty[j] == value:
            return j
    return len(v) - 1


@numba.njit(cache=True)
def between(best, lowest):  # type: ignore[no-untyped-def]
    """Return the number halfway between two bounds of the intercept.

    In a solution ``best`` is the lower bound and ``lowest`` the upper bound. Until a solution is
    reached, ``best`` is larger than ``lowest``. If one bound is infinite, the result is the other
    bound. If both bounds are infinite, the result is 0.
    """
    if np.isfinite(best) and np.isfinite(lowest):
        return 0.5 * (best + lowest)
    if np.isfinite(best):
        return best
    return lowest if np.isfinite(lowest) else 0.0


@inner()
def _move(gamma, c, j, step, to_bound):  # type: ignore[no-untyped-def]
    """Add ``step`` to the dual of row j, in place.

    If ``to_bound`` is true, the dual is set to exactly the bound that the step reaches: the row's
    cost c or 0.
    """
    gamma[j] += step
    if to_bound:
        gamma[j] = c[j] if step > 0 else 0.0
