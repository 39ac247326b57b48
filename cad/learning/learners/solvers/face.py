"""Choose one intercept and scale if the optimal values are not unique."""

from dataclasses import replace
from itertools import product

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
    learned = len(problem.lower) == 2
    share = solution.gamma / problem.c
    # The slack t - a'f - B u says how far a row falls short of its margin. It is <= 0 if the row's
    # dual is below its cost, and >= 0 if the dual is above 0.
    above = share < 1 - _AT_BOUND
    below = share > _AT_BOUND
    free = above & below
    B = problem.B
    unique = np.linalg.matrix_rank(B[free]) == 2 if learned else free.any()
    if not solution.converged or unique:
        return solution
    room = problem.slack(solution.f, np.zeros(B.shape[1]))
    G = np.vstack([-B[above], B[below]])
    h = np.concatenate([-room[above], room[below]])
    # The constraints are relaxed by the solver's error, so that its solution fulfils them.
    h += _SLACK + max(0.0, float((G @ solution.u - h).max()))
    corner = solution.u
    if learned:
        # The linear program finds the smallest s of the polygon of optimal (b, s). Its b may be
        # any of the intercepts that are optimal for this s; their middle is taken below.
        program = linprog([0.0, 1.0], G, h, bounds=[(None, None), (0, None)])
        if program.status != 0:
            return solution
        corner = program.x
    ends = (h - G[:, 1:] @ corner[1:]) / G[:, 0]
    low = ends[G[:, 0] < 0].max(initial=-np.inf)
    high = ends[G[:, 0] > 0].min(initial=np.inf)
    b = (low + high) / 2 if np.isfinite([low, high]).all() else corner[0]
    # Rounding in the linear program may give a point slightly outside the optimal set. So points
    # are also tried that lie nearer to the solver's solution. If C is large, even a tiny error of
    # the intercept may raise the objective too much. Then the solver's intercept is tried.
    for intercept, back in product((b, solution.u[0]), (0.0, 1e-4, 1e-3, 1e-2)):
        u = (1 - back) * np.append(intercept, corner[1:]) + back * solution.u
        primal = problem.primal(solution.beta, solution.f, u)
        if primal <= solution.primal + _RISE * abs(solution.primal):
            return replace(solution, u=u, primal=primal)
    return solution
