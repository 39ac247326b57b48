"""Solvers of pointwise problems by name; what they share is only the problem and the solution."""

from __future__ import annotations

from cad.learners.base import LearnerError
from cad.learners.cvxopt_solver import solve_cvxopt
from cad.learners.kernels import Gram
from cad.learners.problem import Array, Problem, Solution

POINTWISE_SOLVERS = ("auto", "cvxopt")


def solve_pointwise(
    gram: Gram,
    problem: Problem,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    cache_mb: float = 500.0,
    start: Array | None = None,
) -> Solution:
    if solver not in POINTWISE_SOLVERS:
        raise LearnerError(f"solver {solver!r} is unknown: {', '.join(POINTWISE_SOLVERS)}")
    matrix = gram.matrix if gram.matrix is not None else gram.kernel.between(gram.X, gram.X)
    return solve_cvxopt(matrix, problem, gap_tol=tol, kkt_tol=10 * tol)
