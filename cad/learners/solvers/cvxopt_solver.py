"""The reference: any :class:`~.problem.Problem` as a quadratic program in cvxopt.

Slow and plain on purpose: every other solver is tested against it. cvxopt is GPL-3: it is the
extra ``reference`` and is imported only when this solver is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cad.errors import CadError, install
from cad.learners.solvers.problem import Array, Problem, Solution, judge


def solve_cvxopt(
    K: Array,
    problem: Problem,
    *,
    tol: float = 1e-11,
    max_iter: int = 100,
    gap_tol: float = 1e-6,
    kkt_tol: float = 1e-5,
) -> Solution:
    """Solve the dual quadratic program.

    Variables are gamma, and one more per finite bound of an extra scalar: a box term
    max(lower g, upper g) is written as upper p - lower q with g = p - q, p, q >= 0. The
    multipliers of those balances are the extra scalars u themselves.

    Parameters
    ----------
    K : ndarray, shape (n, n)
        Kernel matrix.
    problem : Problem
    tol : float
        cvxopt's absolute, relative and feasibility tolerance.
    max_iter : int
        Interior-point iterations.

    Returns
    -------
    Solution
    """
    m, k = problem.n_rows, len(problem.lower)
    qp = _dual(K, problem)
    result = _call(qp, tol, max_iter)
    gamma = np.clip(np.array(result["x"]).ravel()[:m], 0, problem.c if problem.r == 1 else np.inf)
    u = np.array(result["y"]).ravel() if k else np.zeros(0)
    f = K @ (problem.A.T @ gamma)
    return judge(
        problem, f, gamma, u,
        iterations=int(result["iterations"]), solver="cvxopt", gap_tol=gap_tol, kkt_tol=kkt_tol,
    )  # fmt: skip


def import_cvxopt() -> Any:
    """Import cvxopt.

    Raises
    ------
    CadError
        Where the extra is not installed.
    """
    try:
        import cvxopt
    except ImportError as error:
        raise CadError(
            "the reference solver needs cvxopt, which is not installed",
            hint=f"{install('reference')} (GPL-3); or solver='auto', which needs no extra",
        ) from error
    return cvxopt


class _Quadratic(NamedTuple):
    """Hold the problem min 1/2 x'Px + q'x with Gx <= h and Ax = 0."""

    P: Array
    q: Array
    G: Array
    h: Array
    A: Array


def _dual(K: Array, problem: Problem) -> _Quadratic:
    """Return the dual quadratic program over (gamma, one p or q per finite bound)."""
    m, k = problem.n_rows, len(problem.lower)
    A, B = problem.dense()
    up, low = np.isfinite(problem.upper), np.isfinite(problem.lower)
    size = m + int(up.sum() + low.sum())
    P = np.zeros((size, size))
    P[:m, :m] = A @ K @ A.T
    if problem.r == 2:
        P[np.arange(m), np.arange(m)] += 1 / (2 * problem.c)
    q = np.concatenate([-problem.t, problem.upper[up], -problem.lower[low]])
    balance = np.zeros((k, size))
    balance[:, :m] = B.T
    balance[np.flatnonzero(up), m + np.arange(up.sum())] = -1.0
    balance[np.flatnonzero(low), m + up.sum() + np.arange(low.sum())] = 1.0
    G, h = -np.eye(size), np.zeros(size)
    if problem.r == 1:
        G, h = np.vstack([G, np.eye(m, size)]), np.concatenate([h, problem.c])
    return _Quadratic(P, q, G, h, balance)


def _call(qp: _Quadratic, tol: float, max_iter: int) -> dict[str, Any]:
    cvxopt = import_cvxopt()
    options = {
        "show_progress": False,
        "abstol": tol,
        "reltol": tol,
        "feastol": tol,
        "maxiters": max_iter,
        "refinement": 2,
    }
    equalities = (qp.A, np.zeros(len(qp.A))) if len(qp.A) else ()
    parts = [cvxopt.matrix(part) for part in (qp.P, qp.q, qp.G, qp.h, *equalities)]
    result: dict[str, Any] = cvxopt.solvers.qp(*parts, options=options)
    return result
