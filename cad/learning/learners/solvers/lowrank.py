"""Solve pointwise problems by an interior-point method in the space of the features, if it has few
dimensions.

The kernel matrix is K = L L', where L has r columns: the features of a linear kernel, or the
monomials of a polynomial kernel. The problem then has r weights w and the scalars u (intercept,
scale), however many rows there are::

    min over w, u, xi >= 0    1/2 |w|^2 + c' xi ,    Z x - t + xi = v >= 0 ,    x = (w, u)

Z = (A L, B) are the coefficients of the constraints, with A and B as in :mod:`.problem`. t are the
margins of the constraints, c their costs, xi their shortfall and v their surplus; ' stands for
transposition. Mehrotra's method of a predictor and a corrector needs about fifteen steps, whatever
C is. A step takes the time of a product of (rows x r) matrices. The active-set method
(:mod:`.active_set`) is less suited if more rows are free than there are dimensions, because its
step is then not unique.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dgesv, dpotrf, dpotrs

from cad.learning.learners.solvers.problem import Array, Problem, Solution, certify

_STEPS = 100
_FIRST_SCALE = 0.05
# A step covers this share of the way to the point where a variable reaches its bound.
_CLOSE = 0.999
_SHORTEST = 1e-8
# The complementarity is the sum of the products of the variables and their duals, and 0 at the
# optimum. When it falls to one of these values (relative to the objective), the solver guesses
# which rows are on their margin. The guess at the first value is mostly right, which saves the last
# steps. If the exact solution of these rows does not solve the problem, the solver continues to the
# next value.
_ENOUGH = (1e-4, 1e-7, 1e-11)
# Number of points whose weighted features are computed together, so that they stay in the cache.
_POINTS = 2000
# The solver guesses which rows lie exactly on their margin, and solves the problem for these rows.
# The guess counts as right if the relative gap of primal and dual objective is at most this.
_EXACT = 1e-9
# Largest residual, in units of the margin, at which the equations of the rows on their margin count
# as solved.
_SOLVED = 1e-9


def solve_low_rank(
    factor: Array,
    times: Callable[[Array], Array],
    problem: Problem,
    *,
    gap_tol: float = 1e-6,
    kkt_tol: float = 1e-5,
) -> Solution:
    """Solve a pointwise problem by means of a factor of its kernel matrix.

    Parameters
    ----------
    factor : ndarray, shape (n, r)
        L with K = L L', where K is the kernel matrix of the training points.
    times : callable
        Function of coefficients beta, shape (n,), that returns K beta, shape (n,). The quality of
        the solution is measured with it.
    problem : Problem
        A pointwise problem. Its extra scalars are the intercept b, or b and the scale s >= 0 that
        divides decision values before they become probabilities.
    gap_tol, kkt_tol : float
        Largest relative duality gap, and largest violation of the optimality (KKT) conditions, at
        which the solution counts as converged.

    Returns
    -------
    Solution
        The exact solution for the rows on the margin, if the interior-point method finds which rows
        these are. Otherwise the better of two: the solution for its guess of these rows, and the
        last point of the method itself.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learning.learners.solvers.problem import pointwise_problem
    >>> X = np.array([[1.0], [-1.0]])
    >>> problem = pointwise_problem(
    ...     2, np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2), np.ones(2)
    ... )
    >>> solution = solve_low_rank(X, lambda beta: X @ (X.T @ beta), problem)
    >>> solution.converged, solution.gamma.round(3).tolist()
    (True, [0.5, 0.5])
    """
    # Row j is about one point, with the sign that A holds.
    signed_features = problem.A.data[:, None] * factor[problem.A.indices]
    # Z is column-major, so that products with Z and Z' are one BLAS call without a copy.
    Z = np.asfortranarray(np.column_stack([signed_features, problem.B]))
    n, n_weights = factor.shape
    state = _start_of_duals(Z, problem)

    def system(row_weight: Array) -> Array:
        """Return Z' diag(row_weight) Z, of which only the lower triangle is set.

        Z are the coefficients of the rows (constraints), and ``row_weight`` has a weight for each
        row.
        """
        system_matrix = np.zeros((Z.shape[1], Z.shape[1]), order="F")
        # The upper left block is the sum of row_weight_j l_i l_i', where row j is about point i and
        # l_i is row i of the factor. The sign of a row is squared, so it drops out, and the weights
        # of all rows of one point can be added first.
        root_of_weights = np.sqrt(np.bincount(problem.A.indices, row_weight, n))[:, None]
        for start in range(0, n, _POINTS):
            chunk = slice(start, start + _POINTS)
            weighted = np.multiply(factor[chunk], root_of_weights[chunk], order="F")
            system_matrix[:n_weights, :n_weights] += dsyrk(1.0, weighted, trans=1, lower=1)
        system_matrix[n_weights:] = (row_weight[:, None] * problem.B).T @ Z
        return system_matrix

    def verdict(gamma: Array, u: Array) -> Solution:
        """Return duals and scalars as a solution with its objectives and its quality."""
        return certify(
            problem,
            times(problem.coefficients(gamma)),
            gamma,
            u,
            iterations=state.steps,
            solver="low-rank",
            gap_tol=gap_tol,
            kkt_tol=kkt_tol,
        )

    for complementarity in _ENOUGH:
        while state.left > complementarity and state.steps < _STEPS:
            _low_rank_step(Z, system, problem, state)
        vertex = verdict(*_vertex_of_optimum(Z, problem, state))
        if vertex.converged and vertex.gap <= _EXACT:
            return vertex
    # The entries of x after the weights are the scalars.
    interior = verdict(state.gamma, state.x[n_weights:])
    # The better of the two has converged, or else has the smaller gap.
    return min(vertex, interior, key=lambda solution: (not solution.converged, abs(solution.gap)))


@dataclass
class _LowRankState:
    """Hold the state of the interior-point method: x, gamma, c - gamma, v and xi.

    x are weights and scalars, gamma the duals, v the surplus and xi the shortfall of the rows. All
    of them but x are above 0. c - gamma (``back``) is a variable of its own, because near the bound
    the computed difference would be mostly a rounding error. ``price`` is the multiplier of s >= 0,
    None if there is no s. ``left`` is the complementarity before the last step, relative to the
    objective; it is 0 if no further step is possible.
    """

    x: Array
    quadratic: Array
    gamma: Array
    back: Array
    v: Array
    xi: Array
    price: float | None
    left: float = np.inf
    steps: int = 0


def _start_of_duals(Z: Array, problem: Problem) -> _LowRankState:
    """Return the state from which the interior-point method starts.

    Each dual lies in the middle between its bounds. The surplus and the shortfall of a row say how
    far it lies beyond its margin or misses it; both start at 1 or more.
    """
    n_scalars = len(problem.lower)
    # The scalars are the intercept and, if the scale is learned, the scale s.
    learned = n_scalars == 2
    quadratic = np.ones(Z.shape[1])
    quadratic[-n_scalars:] = 0.0  # the scalars are not part of |w|^2 / 2
    x = np.zeros(Z.shape[1])
    if learned:
        # s starts small. With a large s all rows would miss their margin at first, and more steps
        # would be needed.
        x[-1] = _FIRST_SCALE
    shortfall = problem.t - Z @ x
    return _LowRankState(
        x=x,
        quadratic=quadratic,
        gamma=0.5 * problem.c,
        back=0.5 * problem.c,
        v=np.maximum(-shortfall, 0.0) + 1.0,
        xi=np.maximum(shortfall, 0.0) + 1.0,
        price=float(np.mean(problem.c)) if learned else None,
    )


@dataclass
class _Change:
    """Hold a step of the interior-point method: the change of each variable of
    :class:`_LowRankState`.
    """

    x: Array
    gamma: Array
    v: Array
    xi: Array
    price: float

    def reach(self, state: _LowRankState) -> float:
        """Return how much of this change, at most 1, can be made before a variable meets its bound.

        The variables are those of ``state``, primal and dual.
        """
        # A variable that falls by more than its value would become negative: a ratio above 1 limits
        # the step. c - gamma falls if gamma grows.
        largest_ratio = max(
            -(self.gamma / state.gamma).min(),
            (self.gamma / state.back).max(),
            -(self.v / state.v).min(),
            -(self.xi / state.xi).min(),
            1.0,
        )
        if state.price is not None:
            largest_ratio = max(largest_ratio, -self.x[-1] / state.x[-1], -self.price / state.price)
        return float(1.0 / largest_ratio)

    def complementarity(self, state: _LowRankState, length: float) -> float:
        """Return gamma'v + (c - gamma)'xi + s price after the share ``length`` of this change.

        This sum of the products of variables and multipliers is the complementarity. It is 0 at the
        optimum.
        """
        total = (state.gamma + length * self.gamma) @ (state.v + length * self.v)
        total += (state.back - length * self.gamma) @ (state.xi + length * self.xi)
        if state.price is not None:
            total += (state.x[-1] + length * self.x[-1]) * (state.price + length * self.price)
        return float(total)

    def apply(self, state: _LowRankState, length: float) -> None:
        """Add ``length`` times this change to the variables and duals of the state, in place."""
        state.x += length * self.x
        state.gamma += length * self.gamma
        state.back -= length * self.gamma
        state.v += length * self.v
        state.xi += length * self.xi
        if state.price is not None:
            state.price += length * self.price


def _low_rank_step(
    Z: Array, system_of: Callable[[Array], Array], problem: Problem, state: _LowRankState
) -> None:
    """Change the state by one step of the interior-point method: a predictor and a corrector.

    ``Z`` is the matrix of the rows' constraints, with a column for each variable of x.
    ``system_of`` returns Z' diag(w) Z for weights w of the rows.
    """
    t = problem.t
    c = problem.c
    gamma = state.gamma
    back = state.back
    v = state.v
    xi = state.xi
    # The scale s, and ``price``, the multiplier of its bound s >= 0.
    if state.price is None:
        # Without a learned scale its terms below must add nothing: s divides 0.
        s = 1.0
        price = 0.0
    else:
        s = float(state.x[-1])
        price = state.price
    # A product of a variable and its dual for both bounds of each row's dual, and one for s >= 0.
    n_products = 2 * len(c) + (state.price is not None)
    mean_product = (float(gamma @ v + back @ xi) + s * price) / n_products
    objective = float(0.5 * (state.quadratic * state.x) @ state.x + c @ xi)
    state.left = mean_product * n_products / max(objective, 1e-300)
    state.steps = state.steps + 1
    # ``row_residual`` are the residuals of the rows' equations, and ``x_residual`` those of the
    # gradient with respect to x. A full step makes both 0.
    row_residual = t - Z @ state.x - xi + v
    x_residual = Z.T @ gamma - state.quadratic * state.x
    x_residual[-1] += price
    # After the other variables are eliminated, the change dx of x is the solution of (I + Z'
    # diag(row_weight) Z) dx = right side. I is diagonal, with 1 for the weights and 0 for the
    # scalars.
    row_weight = 1.0 / (xi / back + v / gamma)
    system = system_of(row_weight)
    system.flat[:: len(system) + 1] += state.quadratic  # the diagonal
    system[-1, -1] += price / s
    chol, failed_at = dpotrf(system, lower=1, overwrite_a=1)
    if failed_at != 0:  # rounding errors made the matrix indefinite, so no further step is possible
        state.left = 0.0
        return

    def solve(to_v: Array, to_xi: Array, to_s: float) -> _Change:
        """Return the step that changes the products of variables and duals by given amounts.

        For every row (constraint) they are gamma v and (c - gamma) xi: its dual gamma, surplus v,
        cost c and shortfall xi. For the scale s the product is s times its multiplier ``price``.
        ``to_v``, ``to_xi`` and ``to_s`` are the amounts.
        """
        right_of_rows = row_residual - to_xi / back + to_v / gamma
        right_side = x_residual + Z.T @ (row_weight * right_of_rows)
        right_side[-1] += to_s / s
        dx = dpotrs(chol, right_side, lower=1)[0]
        dgamma = row_weight * (right_of_rows - Z @ dx)
        dv = (to_v - v * dgamma) / gamma
        dxi = (to_xi + xi * dgamma) / back
        dprice = (to_s - price * dx[-1]) / s
        return _Change(x=dx, gamma=dgamma, v=dv, xi=dxi, price=dprice)

    # The predictor is the step that would make all products of a variable and its dual 0. The
    # shorter it must be, the larger is the value ``centre`` that the corrector gives to these
    # products.
    predictor = solve(-gamma * v, -back * xi, -s * price)
    remaining = predictor.complementarity(state, predictor.reach(state)) / n_products
    # The cube is Mehrotra's choice.
    centre = mean_product * (max(remaining, 0.0) / mean_product) ** 3
    # After a full predictor step, each product of a variable and its dual would still be the
    # product of their two changes. The corrector subtracts it.
    corrector = solve(
        centre - gamma * v - predictor.gamma * predictor.v,
        centre - back * xi + predictor.gamma * predictor.xi,
        0.0 if state.price is None else centre - s * price - predictor.x[-1] * predictor.price,
    )
    length = _CLOSE * corrector.reach(state)
    if length < _SHORTEST:
        # The step would change nothing: no further progress is possible.
        state.left = 0.0
        return
    corrector.apply(state, length)


def _vertex_of_optimum(Z: Array, problem: Problem, state: _LowRankState) -> tuple[Array, Array]:
    """Return duals gamma and scalars u at which each row's dual is at a bound (0 or the row's cost
    c), or the row lies exactly on its margin.

    Each row starts with its dual gamma in ``state``. The dual is put at 0 if the row is beyond its
    margin by more than gamma / c, and at c if the row is short of its margin by more than (c -
    gamma) / c. The duals of all other rows are computed so that these rows lie on their margin. If
    the equations of these rows depend on each other, gamma changes as little as possible. ``Z`` has
    the factor of the kernel and the coefficients of u.
    """
    c = problem.c
    n_scalars = len(problem.lower)
    # At the optimum either a variable or its dual is 0. The one that is nearer to 0 is taken to be
    # 0.
    at_zero = state.v > state.gamma / c
    at_cost = state.xi > state.back / c
    gamma = np.where(at_zero, 0.0, np.where(at_cost, c, state.gamma))
    tight = np.flatnonzero((gamma > 0) & (gamma < c))
    signed_factor = Z[:, :-n_scalars]
    B = Z[:, -n_scalars:]
    if state.price is not None and state.x[-1] <= state.price:
        B = B[:, :1]  # s is at its bound 0, so only b is computed
    n_tight = len(tight)
    n_free_scalars = B.shape[1]
    system = np.zeros((n_tight + n_free_scalars, n_tight + n_free_scalars))
    system[:n_tight, :n_tight] = signed_factor[tight] @ signed_factor[tight].T
    system[:n_tight, n_tight:] = B[tight]
    system[n_tight:, :n_tight] = B[tight].T
    # The linear system is [[W W', B], [B', 0]] (change of gamma, u) = right side, with W
    # (``signed_factor``) and B of the rows ``tight``. With its solution these rows lie on their
    # margin, and the balances are 0.
    short_of_margin = problem.t[tight] - signed_factor[tight] @ (signed_factor.T @ gamma)
    right_side = np.concatenate([short_of_margin, -(B.T @ gamma)])
    change = dgesv(system, right_side)[2]
    residual = np.abs(system @ change - right_side).max(initial=0.0)
    # ``not <=`` is also true for NaN, which a singular system gives. The equations then depend on
    # each other, and least squares take the smallest change.
    if not residual <= _SOLVED:
        change = np.linalg.lstsq(system, right_side, rcond=1e-12)[0]
    gamma[tight] = np.clip(gamma[tight] + change[:n_tight], 0.0, c[tight])
    # A scale at its bound stays 0.
    u = np.zeros(n_scalars)
    u[:n_free_scalars] = change[n_tight:]
    return gamma, u
