"""Families of fits that start from each other: without a patient, and along a grid of C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cad.learners.base import LearnerError
from cad.learners.kernels import Gram, Kernel
from cad.learners.pointwise import solve_hybrid
from cad.learners.problem import Array, Problem, Solution


def leave_groups_out(
    K: Array,
    problem: Problem,
    groups: ArrayLike,
    *,
    full: Solution | None = None,
    tol: float = 1e-6,
) -> dict[Any, Solution]:
    """Exact refits of a pointwise problem without each group of points, kernel kept.

    Estimators whose features are scaled or selected inside the fold have another kernel in every
    fold; they start from the full fit by ``fit(..., start=full.solution_.beta[train])``.

    Parameters
    ----------
    K : ndarray, shape (n, n)
        Kernel matrix of all points.
    problem : Problem
        Pointwise, on all points.
    groups : array, shape (n,)
        Patient of every point.
    full : Solution, optional
        Solution on all points, solved here when not given.
    tol : float
        As :func:`cad.learners.pointwise.solve_hybrid`.

    Returns
    -------
    dict
        Group to Solution; its ``beta`` and ``f`` are over the points that stayed, in order.

    Raises
    ------
    LearnerError
        When groups and points disagree in number, or there are fewer than two groups.
    """
    groups = np.asarray(groups)
    if groups.shape != (problem.n_points,):
        raise LearnerError(f"{len(groups)} groups for {problem.n_points} points")
    names = np.unique(groups)
    if len(names) < 2:
        raise LearnerError(f"one group only ({names[0]!r}): nothing is left to fit without it")
    if full is None:
        full = solve_hybrid(Gram(Kernel("precomputed"), K, K), problem, tol=tol)
    solutions: dict[Any, Solution] = {}
    for name in names:
        stay = np.flatnonzero(groups != name)
        part = np.ascontiguousarray(K[np.ix_(stay, stay)])
        solutions[name] = solve_hybrid(
            Gram(Kernel("precomputed"), part, part),
            restrict(problem, stay),
            tol=tol,
            start=full.beta[stay],
        )
    return solutions


def path_of_costs(
    K: Array, problem: Problem, factors: Sequence[float], *, tol: float = 1e-6
) -> list[Solution]:
    """Solutions with every cost multiplied by each factor, each from the one before.

    Coefficients grow with the costs until rows come free, so they start scaled likewise.
    """
    gram = Gram(Kernel("precomputed"), K, K)
    solutions: list[Solution] = []
    before = 0.0
    for factor in factors:
        start = solutions[-1].beta * min(1.0, factor / before) if solutions else None
        scaled = replace(problem, c=problem.c * factor)
        solutions.append(solve_hybrid(gram, scaled, tol=tol, start=start))
        before = factor
    return solutions


def restrict(problem: Problem, points: NDArray[np.intp]) -> Problem:
    """The pointwise problem on some of its points, renumbered in the order given."""
    place = np.full(problem.n_points, -1)
    place[points] = np.arange(len(points))
    rows = np.flatnonzero(place[problem.A.indices] >= 0)
    return Problem(
        problem.A[rows][:, points],
        problem.B[rows],
        problem.t[rows],
        problem.c[rows],
        problem.lower,
        problem.upper,
        problem.r,
    )
