"""Solve any :class:`~.problem.Problem` as a quadratic program by the package cvxopt.

This is the reference solver: it is slow and simple, and tests compare all other solvers with it.
The licence of cvxopt is GPL-3. cvxopt is installed by the extra ``reference``, and imported only
when this solver is chosen.
"""

import numpy as np

from cad.base.errors import CadError, install
from cad.learning.learners.solvers.problem import Array, Problem, Solution, certify


def solve_cvxopt(
    K: Array,
    problem: Problem,
    *,
    tol: float = 1e-11,
    max_iter: int = 100,
    gap_tol: float = 1e-6,
    kkt_tol: float = 1e-5,
) -> Solution:
    """Solve a problem by its dual quadratic program in cvxopt.

    The variables are the duals gamma of the problem, and one variable for each finite bound of an
    extra scalar u, such as the scale.

    Parameters
    ----------
    K : ndarray, shape (n, n)
        Kernel matrix of the training points.
    problem : Problem
        Any problem.
    tol : float
        Value of cvxopt's absolute, relative and feasibility tolerances.
    max_iter : int
        Largest number of iterations.
    gap_tol, kkt_tol : float
        Largest relative duality gap, and largest violation of the optimality (KKT) conditions, at
        which the solution counts as converged.

    Returns
    -------
    Solution
        The solution, with ``solver`` "cvxopt"; its ``converged`` may be False.

    Raises
    ------
    CadError
        If cvxopt is not installed.

    Notes
    -----
    For an extra scalar, let g be the sum of the duals times the scalar's coefficients, and lower
    and upper its bounds. The dual objective has the term max(lower g, upper g). The term is written
    as upper a - lower b with g = a - b and a, b >= 0. The multipliers of the equations g = a - b
    are the extra scalars u.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learning.learners.solvers.problem import pointwise_problem
    >>> X = np.array([[1.0], [-1.0]])
    >>> problem = pointwise_problem(
    ...     2, np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2), np.ones(2)
    ... )
    >>> solution = solve_cvxopt(X @ X.T, problem)
    >>> solution.converged, solution.gamma.round(3).tolist()
    (True, [0.5, 0.5])
    """
    try:
        import cvxopt
    except ImportError as error:
        raise CadError(
            "the reference solver needs cvxopt, which is not installed",
            hint=f"{install('reference')} (GPL-3); or solver='auto', which needs no extra",
        ) from error
    m = problem.n_rows
    k = len(problem.lower)
    A, B = problem.dense()
    # The quadratic program is min 1/2 x'Px + q'x with Gx <= h and Ex = 0. x holds the duals gamma,
    # then a variable a for every finite upper bound of a scalar, then a variable b for every finite
    # lower bound.
    up = np.isfinite(problem.upper)
    low = np.isfinite(problem.lower)
    size = m + int(up.sum() + low.sum())
    P = np.zeros((size, size))
    P[:m, :m] = A @ K @ A.T
    if problem.r == 2:
        # This is the term sum gamma^2 / (4 c), which the squared hinge adds to the minimised dual
        # objective.
        P[np.arange(m), np.arange(m)] += 1 / (2 * problem.c)
    q = np.concatenate([-problem.t, problem.upper[up], -problem.lower[low]])
    # Each row of Ex = 0 is the optimality condition of one scalar (the intercept or the scale):
    # B'gamma = a - b, where a and b are the variables of the scalar's upper and lower bound.
    E = np.zeros((k, size))
    E[:, :m] = B.T
    E[np.flatnonzero(up), m + np.arange(up.sum())] = -1.0
    E[np.flatnonzero(low), m + up.sum() + np.arange(low.sum())] = 1.0
    G = -np.eye(size)
    h = np.zeros(size)
    if problem.r == 1:
        # The plain hinge bounds the duals by the costs: gamma <= c.
        G = np.vstack([G, np.eye(m, size)])
        h = np.concatenate([h, problem.c])
    matrices = []
    for matrix in (P, q, G, h, *((E, np.zeros(k)) if k else ())):
        matrices.append(cvxopt.matrix(matrix))
    options = {
        "show_progress": False,
        "abstol": tol,
        "reltol": tol,
        "feastol": tol,
        "maxiters": max_iter,
        "refinement": 2,
    }
    result = cvxopt.solvers.qp(*matrices, options=options)
    gamma = np.clip(np.array(result["x"]).ravel()[:m], 0, problem.c if problem.r == 1 else np.inf)
    u = np.array(result["y"]).ravel() if k else np.zeros(0)
    return certify(
        problem,
        K @ (problem.A.T @ gamma),
        gamma,
        u,
        iterations=int(result["iterations"]),
        solver="cvxopt",
        gap_tol=gap_tol,
        kkt_tol=kkt_tol,
    )
