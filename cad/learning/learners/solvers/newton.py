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
    chosen = np.empty(rows.shape)
    for _ in range(MAX_NEWTON):
        aim = _aim(rows, y, cost, lambda_, f, chosen)
        f_aim = rows @ aim
        # The objective equals a quadratic function as long as the same rows miss their margin.
        # ``aim`` is the minimum of this function. If the same rows miss their margin at ``aim``, it
        # is the solution.
        if _same_violations(y, cost, f, f_aim):
            return aim, True
        step = _exact_step(y, cost, lambda_, w, aim, f, f_aim)
        change = 0.0
        size = 0.0
        for k in range(len(w)):
            move = step * (aim[k] - w[k])
            change = max(change, abs(move))
            size = max(size, abs(w[k]))
            w[k] += move
        # f is computed from w again, because rounding errors would accumulate in updates of f.
        f = rows @ w
        # A step that is only a rounding error no longer changes which rows miss their margin.
        if change <= 1e-14 * size:
            return w, True
    return w, False


@njit(cache=True)
def _aim(rows: Floats, y: Floats, cost: Floats, lambda_: float, f: Floats, chosen: Floats) -> Any:
    """Return the weights, shape (d,), that minimise the quadratic which equals the objective near
    f.

    f are the decision values of the rows. The objective is that of :func:`finite_newton`, whose
    arguments have the same names. The quadratic equals it as long as the same rows miss their
    margin (y f < 1).

    ``chosen`` is memory of the shape of ``rows``. The rows that miss their margin are copied there,
    weighted by the root of their cost. One product of matrices then gives the second derivative.
    """
    n, d = rows.shape
    right = np.zeros(d)
    count = 0
    for i in range(n):
        if cost[i] > 0.0 and y[i] * f[i] < 1.0:
            root = np.sqrt(cost[i])
            for k in range(d):
                chosen[count, k] = root * rows[i, k]
                right[k] += cost[i] * y[i] * rows[i, k]
            count += 1
    # The second derivative is lambda I + sum of cost x x' over the rows that miss their margin.
    violators = chosen[:count]
    hessian = violators.T @ violators
    for k in range(d):
        hessian[k, k] += lambda_
    return np.linalg.solve(hessian, right)


@njit(cache=True)
def _same_violations(y: Floats, cost: Floats, f: Floats, f_aim: Floats) -> bool:
    """Return whether the same rows miss their margin at ``f`` and ``f_aim``.

    A row exactly on its margin counts both as missing the margin and as meeting it.
    """
    for i in range(len(y)):
        if cost[i] > 0.0:
            margin = 1.0 - y[i] * f_aim[i]
            # A row on its margin may count as missing it or as meeting it, because its loss and the
            # slope of its loss are 0 there.
            active = y[i] * f[i] < 1.0
            if (active and margin < -1e-10) or (not active and margin > 1e-10):
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
    # The derivative of the objective along w + t step is ``value`` at t = 0. It rises by ``slope``
    # times t up to the first place where a row meets its margin.
    step = aim - w
    slope = lambda_ * np.dot(step, step)
    value = lambda_ * np.dot(w, step)
    where = np.empty(n)
    which = np.empty(n, dtype=np.int64)
    count = 0
    for i in range(n):
        if cost[i] <= 0.0:
            continue
        margin = 1.0 - y[i] * f[i]
        rate = -y[i] * (f_aim[i] - f[i])
        if margin > 0.0:
            value += cost[i] * margin * rate
            slope += cost[i] * rate * rate
        # A row meets its margin where margin + t rate = 0. If the row misses its margin before this
        # place, its term of the derivative ends there. Otherwise its term begins there.
        if (margin > 0.0 and rate < 0.0) or (margin <= 0.0 and rate > 0.0):
            where[count] = -margin / rate
            which[count] = i
            count += 1
    order = np.argsort(where[:count])
    reached = 0.0
    for k in range(count):
        t = where[order[k]]
        if value + slope * (t - reached) >= 0.0:
            break
        # The derivative has no zero before the place t, so its value and its new slope are computed
        # at t.
        value += slope * (t - reached)
        reached = t
        i = which[order[k]]
        rate = f_aim[i] - f[i]
        if 1.0 - y[i] * f[i] > 0.0:
            slope -= cost[i] * rate * rate
        else:
            slope += cost[i] * rate * rate
    return reached - value / slope if slope > 0.0 else 1.0
