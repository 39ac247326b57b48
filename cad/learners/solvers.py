"""Solvers of pointwise problems by name; what they share is only the problem and the solution."""

from __future__ import annotations

from cad.learners.base import LearnerError
from cad.learners.cvxopt_solver import solve_cvxopt
from cad.learners.kernels import Gram
from cad.learners.pointwise import solve_hybrid
from cad.learners.problem import Array, Problem, Solution

POINTWISE_SOLVERS = ("auto", "hybrid", "smo", "cvxopt")


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
    solver : str
        "auto" and "hybrid": SMO finished by an active set; "smo": pairs only; "cvxopt": the
        reference, which ignores ``start`` and needs the whole matrix.
    tol, cache_mb, start
        As :func:`cad.learners.pointwise.solve_hybrid`.

    Raises
    ------
    LearnerError
        For an unknown name or a tolerance that is not in (0, 1).
    """
    if solver not in POINTWISE_SOLVERS:
        raise LearnerError(f"solver {solver!r} is unknown: {', '.join(POINTWISE_SOLVERS)}")
    if not 0 < tol < 1:
        raise LearnerError(f"tol = {tol!r}, must lie in (0, 1)")
    if solver == "cvxopt":
        matrix = gram.matrix if gram.matrix is not None else gram.kernel.between(gram.X, gram.X)
        return solve_cvxopt(matrix, problem, gap_tol=tol, kkt_tol=10 * tol)
    return solve_hybrid(
        gram, problem, tol=tol, cache_mb=cache_mb, start=start, polish=solver != "smo"
    )
