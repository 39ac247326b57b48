"""Minimise linear SVMs with squared hinge loss by the modified finite Newton method.

The method is that of Sindhwani and Keerthi 2006. It is compiled by numba.

As long as the same rows miss their margin, the objective is a quadratic function. A step computes
the minimum of this quadratic, and then the exact minimum of the objective on the line to that
point. If the same rows miss their margin at the minimum of the quadratic, this minimum is the
solution.
"""

from typing import Any

import numpy as np
from numba import njit

from cad.learning.learners.solvers.problem import Array as Floats

MAX_NEWTON = 200
# A row nearer than this to its margin counts as lying on it.
_ON_MARGIN = 1e-10
# A step below this share of the largest weight is only a rounding error.
_ROUNDING = 1e-14


@njit(cache=True)
def finite_newton(
    rows: Floats, y: Floats, cost: Floats, lambda_: float, start: Floats
) -> tuple[Floats, bool]:
    """Minimise lambda/2 |w|^2 + 1/2 sum cost max(0, 1 - y rows w)^2 by modified finite Newton.

    Parameters
    ----------
    rows, y, cost : ndarray (n, d), (n,), (n,)
        Features, class +1 or -1, and weight of the loss of every row.
    lambda_ : float
        Factor of the penalty, above 0.
    start : ndarray (d,)
        Weights to start from; the array stays unchanged.

    Returns
    -------
    w : ndarray, shape (d,)
        Weights of the features.
    converged : bool
        Whether w is the minimiser, up to rounding.
    """
    w = start.copy()
    f = rows @ w
    memory = np.empty(rows.shape)
    for _ in range(MAX_NEWTON):
        aim = _aim(rows, y, cost, lambda_, f, memory)
        f_aim = rows @ aim
        # The objective equals a quadratic function as long as the same rows miss their margin.
        # ``aim`` is the minimum of this function. If the same rows miss their margin at ``aim``, it
        # is the solution.
        if _same_violations(y, cost, f, f_aim):
            return aim, True
        share = _exact_step(y, cost, lambda_, w, aim, f, f_aim)
        largest_change = 0.0
        largest_weight = 0.0
        for k in range(len(w)):
            weight_change = share * (aim[k] - w[k])
            largest_change = max(largest_change, abs(weight_change))
            largest_weight = max(largest_weight, abs(w[k]))
            w[k] += weight_change
        # f is computed from w again, because rounding errors would accumulate in updates of f.
        f = rows @ w
        # A step that is only a rounding error no longer changes which rows miss their margin.
        if largest_change <= _ROUNDING * largest_weight:
            return w, True
    return w, False


@njit(cache=True)
def _aim(rows: Floats, y: Floats, cost: Floats, lambda_: float, f: Floats, memory: Floats) -> Any:
    """Return the weights, shape (d,), that minimise the quadratic which equals the objective near
    f.

    f are the decision values of the rows. The objective is that of :func:`finite_newton`, whose
    arguments have the same names. The quadratic equals it as long as the same rows miss their
    margin (y f < 1).

    ``memory`` is memory of the shape of ``rows``. The rows that miss their margin are copied there,
    weighted by the root of their cost. One product of matrices then gives the second derivative.
    """
    n, d = rows.shape
    right_side = np.zeros(d)
    n_missing = 0
    for i in range(n):
        # Only rows that miss their margin and have a cost add to the quadratic.
        if cost[i] > 0.0 and y[i] * f[i] < 1.0:
            root_of_cost = np.sqrt(cost[i])
            for k in range(d):
                memory[n_missing, k] = root_of_cost * rows[i, k]
                right_side[k] += cost[i] * y[i] * rows[i, k]
            n_missing += 1
    # The second derivative is lambda I + sum of cost x x' over the rows that miss their margin.
    weighted_rows = memory[:n_missing]
    hessian = weighted_rows.T @ weighted_rows
    for k in range(d):
        hessian[k, k] += lambda_
    return np.linalg.solve(hessian, right_side)


@njit(cache=True)
def _same_violations(y: Floats, cost: Floats, f: Floats, f_aim: Floats) -> bool:
    """Return whether the same rows miss their margin at ``f`` and ``f_aim``.

    A row exactly on its margin counts both as missing the margin and as meeting it.
    """
    for i in range(len(y)):
        if cost[i] > 0.0:  # a row without cost does not change the objective
            short_at_aim = 1.0 - y[i] * f_aim[i]
            # A row on its margin may count as missing it or as meeting it, because its loss and the
            # slope of its loss are 0 there.
            missed_at_f = y[i] * f[i] < 1.0
            now_met = missed_at_f and short_at_aim < -_ON_MARGIN
            now_missed = not missed_at_f and short_at_aim > _ON_MARGIN
            if now_met or now_missed:
                return False
    return True


@njit(cache=True)
def _exact_step(
    y: Floats, cost: Floats, lambda_: float, w: Floats, aim: Floats, f: Floats, f_aim: Floats
) -> float:
    """Return the number t for which the objective is least at the point w + t (aim - w).

    The objective is that of :func:`finite_newton`, whose arguments have the same names. ``f`` and
    ``f_aim`` are the decision values of the rows at ``w`` and at ``aim``. The derivative of the
    objective along the line is piecewise linear and rises. Its slope changes at each place where a
    row meets its margin. These places are visited in ascending order of t, until the derivative
    becomes 0.
    """
    n = len(y)
    # The derivative of the objective along w + t direction is ``derivative`` at t = 0. It rises by
    # ``slope`` times t up to the first place where a row meets its margin.
    direction = aim - w
    slope = lambda_ * np.dot(direction, direction)
    derivative = lambda_ * np.dot(w, direction)
    places = np.empty(n)
    row_at_place = np.empty(n, dtype=np.int64)
    n_places = 0
    for i in range(n):
        if cost[i] <= 0.0:  # the row has no term in the objective
            continue
        shortfall = 1.0 - y[i] * f[i]
        # Along the line the row falls short of its margin by shortfall + t rate.
        rate = -y[i] * (f_aim[i] - f[i])
        if shortfall > 0.0:
            derivative += cost[i] * shortfall * rate
            slope += cost[i] * rate * rate
        # A row meets its margin where shortfall + t rate = 0. If the row misses its margin before
        # this place, its term of the derivative ends there. Otherwise its term begins there.
        if (shortfall > 0.0 and rate < 0.0) or (shortfall <= 0.0 and rate > 0.0):
            places[n_places] = -shortfall / rate
            row_at_place[n_places] = i
            n_places += 1
    order = np.argsort(places[:n_places])
    reached = 0.0
    for visit in range(n_places):
        t = places[order[visit]]
        if derivative + slope * (t - reached) >= 0.0:
            # The derivative becomes 0 before the place t.
            break
        # The derivative has no zero before the place t, so its value and its new slope are computed
        # at t.
        derivative += slope * (t - reached)
        reached = t
        i = row_at_place[order[visit]]
        rate = f_aim[i] - f[i]  # only its square is used, so the sign of the class is left out
        # The term of a row that missed its margin at t = 0 ends; that of another row begins.
        if 1.0 - y[i] * f[i] > 0.0:
            slope -= cost[i] * rate * rate
        else:
            slope += cost[i] * rate * rate
    # A slope that is not above 0 is a rounding error. The step then ends at ``aim``.
    return reached - derivative / slope if slope > 0.0 else 1.0
