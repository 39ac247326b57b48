"""Choose one intercept and scale if the optimal values are not unique."""

from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

from cad.learning.learners.solvers.problem import Problem, Solution

# A dual variable counts as being at a bound if its distance from the bound is below this share of
# its cost.
_AT_BOUND = 1e-7
# Tolerance of the constraints on the intercept b and the scale s, in units of the margin.
_SLACK = 1e-9
# Largest rise of the objective, as a share of it, that the chosen intercept and scale may cause. It
# is a tenth of the tolerance of the solvers.
_RISE = 1e-7
# Shares of the way from the chosen intercept and scale to those of the solver, tried in this order.
_TOWARDS_SOLVER = (0.0, 1e-4, 1e-3, 1e-2)


def settle_scalars(problem: Problem, solution: Solution) -> Solution:
    """Return the optimal solution with the smallest scale s, and for it the middle intercept b.

    The decision values f are unique, but the intercept b and the scale s, which divides f + b
    before it becomes a probability, need not be. The optimal (b, s) form a polygon, because the
    dual gamma of each row gives a linear constraint. The row lies on its margin if its dual lies
    between the bounds 0 and cost. It lies on or beyond its margin if the dual is 0, and on its
    margin or short of it if the dual is the cost. For a fixed s the optimal b are an interval. By
    this choice all solvers, from all starts, return the same solution up to their tolerance.

    Parameters
    ----------
    problem : Problem
        A pointwise problem with the extra scalar b, or with b and s >= 0.
    solution : Solution
        A solution of the problem. It is returned unchanged if it has not converged, or if b and s
        are unique.
    """
    learns_scale = len(problem.lower) == 2
    share = solution.gamma / problem.c  # each row's dual as a share of its cost, 0 to 1
    below_cost = share < 1 - _AT_BOUND
    above_zero = share > _AT_BOUND
    between = below_cost & above_zero
    B = problem.B  # coefficients of the scalars u = (b,) or (b, s), a row for each constraint
    # A row whose dual lies between its bounds lies on its margin, and so gives an equation for u.
    unique = between.any()
    if learns_scale:
        # Two unknowns are unique if the equations have rank 2.
        unique = np.linalg.matrix_rank(B[between]) == 2
    if not solution.converged or unique:
        return solution

    # The slack t - a'f - B u says how far a row falls short of its margin. It is <= 0 if the row's
    # dual is below its cost, and >= 0 if the dual is above 0. Together these are G u <= h.
    slack_at_zero = problem.slack(solution.f, np.zeros(B.shape[1]))
    G = np.vstack([-B[below_cost], B[above_zero]])
    h = np.concatenate([-slack_at_zero[below_cost], slack_at_zero[above_zero]])
    # The constraints are relaxed by the solver's error, so that its solution fulfils them.
    h += _SLACK + max(0.0, float((G @ solution.u - h).max()))

    optimal = solution.u
    if learns_scale:
        # The linear program finds the smallest s of the polygon of optimal (b, s). Its b may be
        # any of the intercepts that are optimal for this s; their middle is taken below.
        smallest_scale = linprog([0.0, 1.0], G, h, bounds=[(None, None), (0, None)])
        if smallest_scale.status != 0:
            # The linear program was not solved, so the solver's solution stays.
            return solution
        optimal = smallest_scale.x
    # With s fixed, each constraint bounds b from one side: from below if its coefficient of b is
    # negative, and from above if it is positive.
    b_coefficient = G[:, 0]
    bounds = (h - G[:, 1:] @ optimal[1:]) / b_coefficient
    lowest = bounds[b_coefficient < 0].max(initial=-np.inf)
    highest = bounds[b_coefficient > 0].min(initial=np.inf)
    b = optimal[0]
    # If one side has no bound, there is no middle.
    if np.isfinite([lowest, highest]).all():
        b = (lowest + highest) / 2

    # Rounding in the linear program may give a point slightly outside the optimal set. So points
    # are also tried that lie nearer to the solver's solution. If C is large, even a tiny error of
    # the intercept may raise the objective too much. Then the solver's intercept is tried.
    highest_primal = solution.primal + _RISE * abs(solution.primal)
    for intercept in (b, solution.u[0]):
        chosen = np.append(intercept, optimal[1:])
        for towards_solver in _TOWARDS_SOLVER:
            u = (1 - towards_solver) * chosen + towards_solver * solution.u
            primal = problem.primal(solution.beta, solution.f, u)
            if primal <= highest_primal:
                return replace(solution, u=u, primal=primal)
    return solution
