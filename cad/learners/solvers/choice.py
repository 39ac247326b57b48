"""Solvers of pointwise problems by name; what they share is only the problem and the solution."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cad.learners.solvers.cvxopt_solver import solve_cvxopt
from cad.learners.solvers.kernels import Gram
from cad.learners.solvers.pointwise import solve_hybrid
from cad.learners.solvers.problem import Array, LearnerError, Problem, Solution


def _solve_reference(
    gram: Gram, problem: Problem, *, tol: float, cache_mb: float, start: Array | None
) -> Solution:
    """Solve by cvxopt, which needs the whole matrix and starts from nothing."""
    matrix = gram.held(np.inf).matrix
    assert matrix is not None  # nosec B101  # noqa: S101 (no budget)
    return solve_cvxopt(matrix, problem, gap_tol=tol, kkt_tol=10 * tol)


SOLVERS: dict[str, Callable[..., Solution]] = {
    "auto": solve_hybrid,
    "hybrid": solve_hybrid,
    "smo": partial(solve_hybrid, polish=False),
    "cvxopt": _solve_reference,
}


def solve_pointwise(
    gram: Gram,
    problem: Problem,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    cache_mb: float = 500.0,
    start: Array | None = None,
) -> Solution:
    """Solve a pointwise problem by a named solver.

    Parameters
    ----------
    gram : Gram
    problem : Problem
    solver : str
        "auto" and "hybrid": :func:`~cad.learners.solvers.pointwise.solve_hybrid`; "smo": pairs of
        rows only; "cvxopt": the reference, which ignores ``start`` and ``cache_mb``.
    tol, cache_mb, start
        As :func:`cad.learners.solvers.pointwise.solve_hybrid`.

    Raises
    ------
    LearnerError
        For an unknown name or a tolerance that is not in (0, 1).
    ValueError
        For a given kernel matrix that is not positive semi-definite on the solution's support.
    """
    if solver not in SOLVERS:
        raise LearnerError(f"solver {solver!r} is unknown: {', '.join(SOLVERS)}")
    if not 0 < tol < 1:
        raise LearnerError(f"tol = {tol!r}, must lie in (0, 1)")
    solution = SOLVERS[solver](gram, problem, tol=tol, cache_mb=cache_mb, start=start)
    gram.prove(solution.beta.nonzero()[0])
    return solution
