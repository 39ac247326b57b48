"""Choose a solver of pointwise problems by name."""

from cad.learning.learners.solvers.cvxopt_solver import solve_cvxopt
from cad.learning.learners.solvers.face import settle_scalars
from cad.learning.learners.solvers.kernels import Gram
from cad.learning.learners.solvers.pointwise import solve_hybrid
from cad.learning.learners.solvers.problem import Array, LearnerError, Problem, Solution

SOLVERS = ("auto", "hybrid", "smo", "cvxopt")


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
        Kernel of the training points.
    problem : Problem
        Problem in which each row (constraint) is about one training point.
    solver : str
        "auto" and "hybrid" stand for :func:`~cad.learning.learners.solvers.pointwise.solve_hybrid`,
        "smo" for sequential minimal optimisation alone, and "cvxopt" for the slow reference, which
        ignores ``start`` and ``cache_mb``.
    tol : float
        Relative duality gap at which to stop. The violation of the optimality (KKT) conditions must
        be below ten times ``tol``.
    cache_mb : float
        Memory for kernel values when ``gram`` does not hold the whole matrix, MB.
    start : ndarray, shape (n,), optional
        Coefficients beta of a similar problem to start from.

    Returns
    -------
    Solution
        The solution, whose ``converged`` says whether ``tol`` was reached. If several scales are
        optimal, the smallest is returned. If the optimal intercepts are an interval, its middle is
        returned (:func:`~cad.learning.learners.solvers.face.settle_scalars`).

    Raises
    ------
    LearnerError
        For an unknown name or a tolerance that is not in (0, 1).
    ValueError
        For a precomputed kernel matrix that is not positive semi-definite on the points whose
        coefficient is not 0.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learning.learners.solvers.kernels import Kernel, make_gram
    >>> from cad.learning.learners.svm import svm_problem
    >>> X = np.array([[-1.0], [1.0]])
    >>> gram = make_gram(Kernel("linear"), X, 1.0)
    >>> solution = solve_pointwise(gram, svm_problem(np.array([0.0, 1.0]), np.ones(2)))
    >>> round(solution.primal, 3), abs(solution.gap) < 1e-6
    (0.5, True)
    """
    if solver not in SOLVERS:
        raise LearnerError(f"solver {solver!r} is unknown: {', '.join(SOLVERS)}")
    if not 0 < tol < 1:
        raise LearnerError(f"tol = {tol!r}, must lie in (0, 1)")
    if solver == "cvxopt":
        # cvxopt, the reference solver, needs the whole matrix, whatever memory it takes.
        K = gram.kernel.between(gram.X, gram.X) if gram.matrix is None else gram.matrix
        solution = solve_cvxopt(K, problem, gap_tol=tol, kkt_tol=10 * tol)
    else:
        # "smo" means moves of pairs alone, so no exact method may follow them.
        solution = solve_hybrid(
            gram, problem, tol=tol, cache_mb=cache_mb, start=start, polish=solver != "smo"
        )
    # A large matrix from the caller was checked only in part. Now the support vectors are known.
    support = solution.beta.nonzero()[0]
    gram.prove(support)
    return settle_scalars(problem, solution)
