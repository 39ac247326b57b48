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
    n_rows = problem.n_rows
    n_scalars = len(problem.lower)
    A, B = problem.dense()
    # The quadratic program is min 1/2 x'Px + q'x with Gx <= h and Ex = 0. x holds the duals gamma,
    # then a variable a for every finite upper bound of a scalar, then a variable b for every finite
    # lower bound.
    has_upper = np.isfinite(problem.upper)
    has_lower = np.isfinite(problem.lower)
    n_variables = n_rows + int(has_upper.sum() + has_lower.sum())
    P = np.zeros((n_variables, n_variables))
    P[:n_rows, :n_rows] = A @ K @ A.T
    if problem.r == 2:
        # This is the term sum gamma^2 / (4 c), which the squared hinge adds to the minimised dual
        # objective.
        P[np.arange(n_rows), np.arange(n_rows)] += 1 / (2 * problem.c)
    q = np.concatenate([-problem.t, problem.upper[has_upper], -problem.lower[has_lower]])
    # Each row of Ex = 0 is the optimality condition of one scalar (the intercept or the scale):
    # B'gamma = a - b, where a and b are the variables of the scalar's upper and lower bound.
    E = np.zeros((n_scalars, n_variables))
    E[:, :n_rows] = B.T
    n_upper = has_upper.sum()
    columns_of_a = n_rows + np.arange(n_upper)
    columns_of_b = n_rows + n_upper + np.arange(has_lower.sum())
    E[np.flatnonzero(has_upper), columns_of_a] = -1.0
    E[np.flatnonzero(has_lower), columns_of_b] = 1.0
    # All variables are at least 0.
    G = -np.eye(n_variables)
    h = np.zeros(n_variables)
    if problem.r == 1:
        # The plain hinge bounds the duals by the costs: gamma <= c.
        G = np.vstack([G, np.eye(n_rows, n_variables)])
        h = np.concatenate([h, problem.c])
    # Without an extra scalar there is no equation; cvxopt then gets no matrix for it.
    equations = (E, np.zeros(n_scalars)) if n_scalars else ()
    matrices = []
    for matrix in (P, q, G, h, *equations):
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
    # cvxopt meets the bounds of the duals only up to its tolerance.
    highest = problem.c if problem.r == 1 else np.inf
    gamma = np.clip(np.array(result["x"]).ravel()[:n_rows], 0, highest)
    # The multipliers of the equations are the scalars.
    u = np.array(result["y"]).ravel() if n_scalars else np.zeros(0)
    decision_values = K @ (problem.A.T @ gamma)
    return certify(
        problem,
        decision_values,
        gamma,
        u,
        iterations=int(result["iterations"]),
        solver="cvxopt",
        gap_tol=gap_tol,
        kkt_tol=kkt_tol,
    )
