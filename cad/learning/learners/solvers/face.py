"""One point of the optimal face: where intercept and learned scale are not unique."""

from dataclasses import replace
from itertools import product

import numpy as np
from scipy.optimize import linprog

from cad.learning.learners.solvers.problem import Problem, Solution

# A dual so near to a bound, as a share of its cost, is at the bound.
_AT_BOUND = 1e-7
# Slack that rows may have beyond that, units of the margin.
_SLACK = 1e-9
# The objective may rise by such a share, a tenth of what solvers are asked for.
_RISE = 1e-7


def settle_scalars(problem: Problem, solution: Solution) -> Solution:
    """Return the optimal solution of smallest scale s, with b in the middle of its interval.

    The decision values f are unique, but the intercept b and the scale s, which divides f + b
    before it becomes a probability, need not be. The optimal (b, s) form a polygon, because the
    duals gamma say of each row whether it meets its margin exactly (dual between its bounds), keeps
    it (dual 0) or does not exceed it (dual at its cost). Of a fixed s an interval of b is left.
    So solvers and starts give the same answer, as far as their tolerance tells.

    Parameters
    ----------
    problem : Problem
        Pointwise, with extra scalar b, or b and s >= 0.
    solution : Solution
        A solution of the problem. It is returned unchanged if it has not converged, or if b and s
        are unique.
    """
    learned = len(problem.lower) == 2
    share = solution.gamma / problem.c
    # Slack t - a'f - B u, at most 0 unless a row is at its cost, at least 0 unless it is at 0.
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
    # Rows may miss by what the solver left, so that its own answer is inside.
    h += _SLACK + max(0.0, float((G @ solution.u - h).max()))
    corner = solution.u
    if learned:
        # The leftmost point of the polygon in s; its b is then any of an interval.
        program = linprog([0.0, 1.0], G, h, bounds=[(None, None), (0, None)])
        if program.status != 0:
            return solution
        corner = program.x
    ends = (h - G[:, 1:] @ corner[1:]) / G[:, 0]
    low = ends[G[:, 0] < 0].max(initial=-np.inf)
    high = ends[G[:, 0] > 0].min(initial=np.inf)
    b = (low + high) / 2 if np.isfinite([low, high]).all() else corner[0]
    # The program's own rounding may leave the face by a hair: step back towards the start. Where C
    # is large a hair of the intercept costs too much, and the solver's own intercept stays.
    for intercept, back in product((b, solution.u[0]), (0.0, 1e-4, 1e-3, 1e-2)):
        u = (1 - back) * np.append(intercept, corner[1:]) + back * solution.u
        primal = problem.primal(solution.beta, solution.f, u)
        if primal <= solution.primal + _RISE * abs(solution.primal):
            return replace(solution, u=u, primal=primal)
    return solution
