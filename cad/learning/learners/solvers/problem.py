"""Define the convex problem of all kernel learners, and solutions that state how exact they are.

Training points x_1..x_n with kernel matrix K have decision values f = K beta. Extra scalars u are
the intercept, the sigmoid's scale or soft labels; each is free or has bounds. Row j is a constraint
with coefficients a_j and b_j, margin t_j and cost c_j (docs/methods.md 2). The loss is a hinge (r =
1) or a squared hinge (r = 2)::

    min over beta, u   1/2 beta' K beta + sum_j c_j max(0, t_j - a_j' f - b_j' u)^r

The dual problem has one variable gamma_j per row. It lies in [0, c_j] for r = 1, and has no upper
bound for r = 2::

    max over gamma     t' gamma - 1/2 beta' K beta - sum_k max(lower_k g_k, upper_k g_k)
                       [ - sum_j gamma_j^2 / (4 c_j)  for r = 2 ]

Here beta = A' gamma and g = B' gamma, with the rows' coefficients in A and B; lower and upper are
the bounds of u. A free u_k requires g_k = 0, and u_k >= 0 requires g_k <= 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cad.base.errors import CadError

Array = NDArray[np.float64]

# An objective or balance below this share of the sum of costs may be only a rounding error.
_FLOOR = 1e-9
# The violation of the optimality (KKT) conditions by a row is measured relative to the row's cost.
# If the cost is below this share of the largest dual variable, this share of it takes the cost's
# place. Otherwise the violation would be mostly a rounding error.
_UNSEEN = 1e-5


class LearnerError(CadError, ValueError):
    """Report an input that a learner refuses, with the value, the rule that it breaks, and
    advice.
    """


@dataclass(frozen=True)
class Problem:
    """Hold a convex problem without its kernel matrix K.

    Row j is the constraint a_j' f + b_j' u >= t_j, where f are the decision values of the training
    points and u are extra scalars such as the intercept. If the left side falls short of t_j, the
    row costs c_j (shortfall)^r. The module's docstring has the whole problem and its dual.

    Parameters
    ----------
    A : csr_array, shape (m, n)
        Coefficients a_j of every row for the decision values f of the n points.
    B : ndarray or csr_array, shape (m, k)
        Coefficients b_j of every row for the k extra scalars u; sparse where there are many.
    t : ndarray, shape (m,)
        Margin of every row.
    c : ndarray, shape (m,)
        Cost of every row, > 0.
    lower, upper : ndarray, shape (k,)
        Bounds of every extra scalar; -inf and inf where a scalar has none.
    r : 1 or 2
        1 for the hinge, 2 for the squared hinge.

    Raises
    ------
    ValueError
        If shapes do not match, a number is NaN, a cost is not above 0, or a lower bound is above
        its upper bound.
    """

    A: sparse.csr_array
    B: Array | sparse.csr_array
    t: Array
    c: Array
    lower: Array
    upper: Array
    r: int = 1

    def __post_init__(self) -> None:
        m = self.A.shape[0]
        k = self.B.shape[1]
        rows_of = {"B": self.B.shape[0], "t": len(self.t), "c": len(self.c)}
        for name, n_rows in rows_of.items():
            if n_rows != m:
                raise ValueError(f"{name} has {n_rows} rows, A has {m}: they must agree")
        if len(self.lower) != k or len(self.upper) != k:
            raise ValueError(
                f"B has {k} columns but {len(self.lower)} lower and {len(self.upper)} upper bounds"
            )
        if self.r not in (1, 2):
            raise ValueError(f"r = {self.r!r}, must be 1 (hinge) or 2 (squared hinge)")
        if not (np.isfinite(self.t).all() and np.isfinite(self.c).all() and (self.c > 0).all()):
            raise ValueError("margins must be finite, costs finite and > 0 (leave other rows out)")
        if not (self.lower <= self.upper).all():
            raise ValueError("a box with lower > upper is empty")

    @property
    def n_points(self) -> int:
        """Return the number of training points n."""
        return int(self.A.shape[1])

    @property
    def n_rows(self) -> int:
        """Return the number of rows m, the constraints."""
        return int(self.A.shape[0])

    def dense(self) -> tuple[Array, Array]:
        """Return the coefficients of the constraints as two dense arrays, for the reference solver.

        The first array, A, has shape (n_rows, n_points) and holds the coefficients of the points'
        decision values. The second array, B, has shape (n_rows, k) and holds the coefficients of
        the k extra scalars, such as the intercept.
        """
        B = self.B if isinstance(self.B, np.ndarray) else self.B.toarray()
        return self.A.toarray(), B

    def coefficients(self, gamma: Array) -> Array:
        """Return the coefficients beta of the points, shape (n,), for dual variables ``gamma``.

        ``gamma`` has shape (m,), one for each row (constraint) of the problem.
        """
        if self.A.nnz == self.n_rows:  # one point per row, so no transposed matrix is needed
            return np.bincount(self.A.indices, self.A.data * gamma, self.n_points).astype(float)
        coefficients: Array = self.A.T @ gamma
        return coefficients

    def slack(self, f: Array, u: Array) -> Array:
        """Return how far every row (constraint) falls short of its margin.

        The value is negative for a row beyond its margin. The result is t - A f - B u, with the
        margins t and the coefficients A and B of the rows.

        Parameters
        ----------
        f : ndarray, shape (n,)
            Decision values of the training points, without intercept.
        u : ndarray, shape (k,)
            Extra scalars, such as the intercept.

        Returns
        -------
        ndarray, shape (m,)
        """
        # With one point per row no sparse product is needed.
        single = self.A.nnz == self.n_rows
        weighted_f = self.A.data * f[self.A.indices] if single else self.A @ f
        slack: Array = self.t - weighted_f - self.B @ u
        return slack

    def primal(self, beta: Array, f: Array, u: Array) -> float:
        """Return the primal objective: half of beta'f, plus the costs of all shortfalls.

        ``beta`` and ``f``, shape (n,), are the points' coefficients and decision values; ``u``,
        shape (k,), are the extra scalars, such as the intercept.
        """
        missed = np.maximum(0.0, self.slack(f, u))
        return float(0.5 * beta @ f + self.c @ missed**self.r)


@dataclass(frozen=True)
class Solution:
    """Hold a solution of a :class:`Problem`, and numbers that say how exact it is.

    Parameters
    ----------
    beta, f : ndarray, shape (n,)
        Coefficients and decision values (without intercept) of the training points.
    u : ndarray, shape (k,)
        Extra scalars.
    gamma : ndarray, shape (m,)
        Dual variables of the rows.
    primal, dual : float
        Objectives of the primal and the dual problem.
    gap : float
        Relative duality gap (primal - dual) / max(abs(primal), abs(dual), 1e-9 sum c).
    kkt : float
        Largest violation of the optimality conditions (Karush, Kuhn and Tucker), in units of the
        margin. For an extra scalar it is the error of its balance, its entry of B' gamma, relative
        to the terms of this sum. If the scalar has two bounds, it is relative to the costs of the
        scalar's rows.
    iterations : int
        Number of iterations of the solver.
    converged : bool
        Whether gap and kkt are within the limits that the caller gave.
    solver : str
        Name of the solver.
    """

    beta: Array
    f: Array
    u: Array
    gamma: Array
    primal: float
    dual: float
    gap: float
    kkt: float
    iterations: int
    converged: bool
    solver: str

    def __str__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"{self.solver}: {state}, objective {self.primal:.9g}, relative gap {self.gap:.1e}, "
            f"KKT violation {self.kkt:.1e}, {self.iterations} iterations"
        )


def certify(
    problem: Problem,
    f: Array,
    gamma: Array,
    u: Array,
    *,
    iterations: int,
    solver: str,
    gap_tol: float = 1e-6,
    kkt_tol: float = 1e-5,
) -> Solution:
    """Return a solution whose objectives, gap and KKT violation are computed from its numbers.

    Parameters
    ----------
    problem : Problem
        The problem that was solved.
    f : ndarray, shape (n,)
        Decision values of the training points for the duals ``gamma``, without intercept. The
        caller computes them, because they need the kernel.
    gamma, u : ndarray, shapes (m,) and (k,)
        Dual variables and extra scalars. The solution has copies of them that are clipped to their
        bounds.
    iterations, solver
        Number of iterations and name of the solver; they are stored in the solution.
    gap_tol, kkt_tol : float
        Largest relative duality gap, and largest violation of the optimality (KKT) conditions, at
        which the solution counts as converged.

    Examples
    --------
    For points at 1 and -1 on a line, of different classes, the best weight is 1, and each dual is
    half of this weight:

    >>> import numpy as np
    >>> problem = pointwise_problem(
    ...     2, np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2), np.ones(2)
    ... )
    >>> gamma = np.array([0.5, 0.5])
    >>> f = np.array([1.0, -1.0])
    >>> solution = certify(problem, f, gamma, np.zeros(1), iterations=0, solver="by hand")
    >>> solution.converged, solution.primal, solution.dual
    (True, 0.5, 0.5)
    """
    # Dual variables are clipped to their bounds before they are used. Only then is the dual
    # objective a lower bound of the primal objective.
    gamma = np.maximum(gamma, 0.0)
    if problem.r == 1:
        gamma = np.minimum(gamma, problem.c)
    u = np.minimum(np.maximum(u, problem.lower), problem.upper)
    beta = problem.coefficients(gamma)
    slack = problem.slack(f, u)
    half_norm = float(0.5 * beta @ f)
    missed = np.maximum(0.0, slack)
    balance = problem.B.T @ gamma  # g of the module's docstring
    dual = float(problem.t @ gamma) - half_norm - _box_term(problem, balance, u)
    if problem.r == 2:  # the squared hinge
        missed *= missed
        dual -= float(np.sum(gamma**2 / (4 * problem.c)))
    primal = half_norm + float(problem.c @ missed)
    # If the optimum is 0, the relative gap is not defined. So the gap is divided by at least a
    # share of the sum of costs.
    least_size = max(_FLOOR * float(problem.c.sum()), 1e-300)
    gap = (primal - dual) / max(abs(primal), abs(dual), least_size)
    kkt = max(_row_violation(problem, slack, gamma), _balance_violation(problem, gamma, balance, u))
    converged = bool(abs(gap) <= gap_tol and kkt <= kkt_tol)
    return Solution(
        beta=beta,
        f=f,
        u=u,
        gamma=gamma,
        primal=primal,
        dual=dual,
        gap=float(gap),
        kkt=kkt,
        iterations=iterations,
        converged=converged,
        solver=solver,
    )


def _box_term(problem: Problem, g: Array, u: Array) -> float:
    """Return sum max(lower g, upper g) over the extra scalars u, with their bounds lower and upper.

    ``g``, shape (k,), is the balance B' gamma of the scalars. If g is not 0 because of a rounding
    error and its sign selects an infinite bound, u is used in place of the bound.
    """
    bound = np.where(g > 0, problem.upper, problem.lower)
    return float(np.where(np.isfinite(bound), bound, u) @ g)


def _row_violation(problem: Problem, slack: Array, gamma: Array) -> float:
    """Return the largest violation of the optimality condition of a row, in units of the margin.

    ``slack`` says how far every row falls short of its margin. A row violates its condition by the
    smaller of two numbers: the slack, and the distance of the dual from the bound that it should
    have, as a share of the cost.
    """
    if not problem.n_rows:
        return 0.0
    if problem.r == 2:
        # At the optimum of the squared hinge the dual gamma of a row is 2 c max(0, slack).
        return float(np.max(np.abs(gamma / (2 * problem.c) - np.maximum(slack, 0.0))))
    # At the optimum the dual of a row short of its margin is the row's cost, and the dual of a row
    # beyond its margin is 0. The rounding error of all duals is that of the largest one. So a
    # violation is not divided by a much smaller cost, because the quotient would be mostly a
    # rounding error.
    divisor = np.maximum(problem.c, _UNSEEN * float(gamma.max()))
    distance_to_bound = np.where(slack > 0, problem.c - gamma, gamma) / divisor
    return float(np.minimum(np.abs(slack), distance_to_bound).max())


def _balance_violation(problem: Problem, gamma: Array, g: Array, u: Array) -> float:
    """Return the largest violation of the balance of the extra scalars u, such as the intercept.

    The balance is g = B' gamma, with a number g_k for each scalar u_k. If u_k lies between its
    bounds, g_k must be 0. If u_k is at its upper bound, g_k must be at least 0, and at its lower
    bound at most 0.

    The violation is relative to the sum of the absolute values of the terms of g_k. If u_k has two
    bounds, nearly all of these terms may be 0. Its violation is therefore relative to the largest
    value that the sum could have. This is exact enough, because the duality gap contains the error
    of such a u_k already.
    """
    if not len(g):  # a problem without extra scalars
        return 0.0
    magnitudes = abs(problem.B).T
    # A share of the costs is added, because the sum may be 0 at the optimum.
    sum_of_terms = magnitudes @ (gamma + _FLOOR * problem.c)
    has_both_bounds = np.isfinite(problem.upper - problem.lower)
    if has_both_bounds.any():
        sum_of_terms[has_both_bounds] = (magnitudes @ problem.c)[has_both_bounds]
    relative = g / np.maximum(sum_of_terms, 1e-300)
    # A scalar at the bound that the sign of g belongs to violates nothing.
    distance_to_bound = np.where(g > 0, problem.upper - u, u - problem.lower)
    return float(np.minimum(np.abs(relative), distance_to_bound).max())


def pointwise_problem(
    n_points: int,
    point: NDArray[np.intp],
    sign: Array,
    t: Array,
    c: Array,
    scale: Array | None = None,
) -> Problem:
    """Return a pointwise problem, in which each row (constraint) is about one point.

    Row j, about point i, is sign_j (f_i + b) + scale_j s >= t_j.

    f_i is the decision value of point i without the intercept b. t_j is the margin of the row, and
    s the scale, if it is learned.

    Parameters
    ----------
    n_points : int
        Number of training points.
    point : ndarray of int, shape (m,)
        Number i of the point of every row.
    sign : ndarray, shape (m,)
        Sign of every row, +1 or -1.
    t, c : ndarray, shape (m,)
        Margin and cost of every row.
    scale : ndarray, shape (m,), optional
        Coefficients of a learned scale s >= 0. When given, the extra scalars are (b, s), else b
        alone.

    Examples
    --------
    This is the problem of a support vector machine for two points:

    >>> import numpy as np
    >>> problem = pointwise_problem(
    ...     2, np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2), np.ones(2)
    ... )
    >>> problem.A.toarray().tolist(), problem.t.tolist()
    ([[1.0, 0.0], [0.0, -1.0]], [1.0, 1.0])
    """
    m = len(point)
    A = sparse.csr_array((sign, point, np.arange(m + 1)), shape=(m, n_points))
    # The intercept has no bounds, and the scale s must be at least 0.
    if scale is None:
        B = sign[:, None]
        lower = np.array([-np.inf])
    else:
        B = np.column_stack([sign, scale])
        lower = np.array([-np.inf, 0.0])
    return Problem(A, B, t, c, lower, np.full(len(lower), np.inf))
