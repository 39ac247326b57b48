"""Solve pairwise problems, with thousands of rows (constraints) on pairs of some hundred points.

The training points are positives p, negatives q and unlabelled points m. Their rows are the
following (docs/methods.md 2). f are scores, d soft labels, and M is the number by which the margins
change when a soft label goes from 0 to 1:

    f_p - f_q >= 1,    f_m - f_q - M d_m >= 1 - M,    f_p - f_m + M d_m >= 1,    0 <= d <= 1.

A primal-dual interior-point method (Mehrotra's predictor and corrector) solves the problem. A row
is about two points and at most one d. So the rows' part of the normal equations is the Laplacian
matrix of a weighted graph whose nodes are the points. It is computed from sums over rows. d is
eliminated, because its part of the matrix is diagonal. A step costs O(pairs + n^3) operations, with
n the number of points. No matrix over pairs is made.

Functions compiled by numba compute the sums over the rows of a point without a list of these rows.
Everything else is computed by numpy and LAPACK. Predictor and corrector use the same Cholesky
factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.lapack import dpotrf, dpotrs, dpstrf

from cad.learning.learners.solvers.problem import Problem, Solution

Floats = NDArray[np.float64]
# Share of the wanted gap below which the sum of the products of variables and multipliers is not
# reduced.
_AIM = 0.01
# From this iteration on steps are careful (``careful`` of :func:`_step`).
_CAREFUL_AFTER = 20
# First values: multipliers start at _FIRST times their largest possible value, slacks and
# shortfalls at _ROOM (in units of the margin) or more.
_FIRST = 0.3
_ROOM = 0.5
# A step covers this share of the way to the point where a variable reaches its bound.
_CLOSE = 0.999
# A shorter step makes no progress.
_SHORTEST = 1e-10
# Least product of a variable and its multiplier, relative to the mean product.
_LEAST = 0.1
# Shares of the diagonal that are added to the diagonal of a matrix. The next share is tried if the
# matrix is not positive definite because of rounding errors.
_RIDGES = (0.0, 1e-14, 1e-12, 1e-10)


@dataclass(frozen=True)
class PairwiseProblem:
    """Hold the optimisation problem of SVMROC or SSLROC, two SVMs of [W14] that rank.

    The points are in this order: positives, negatives, unlabelled points. Every row (constraint) of
    the problem is about a pair of points.

    Attributes
    ----------
    factor : ndarray (n, r)
        L with L L' the kernel matrix of the points; :func:`kernel_factor` makes it.
    n_positive, n_negative : int
        Number of positive and of negative points; the rest of the n points are unlabelled.
    weight : ndarray (n,)
        Weight of each point, > 0. The cost of a pair is multiplied by the weights of its two
        points.
    labelled_cost, unlabelled_cost : float
        Cost of a pair of labelled points, and of a pair with an unlabelled point.
    margin : float
        M of [W14] (3): the number by which the margins change when a soft label d goes from 0 to 1.
    norm : int
        1 for the hinge loss, 2 for the squared hinge loss.
    """

    factor: Floats
    n_positive: int
    n_negative: int
    weight: Floats
    labelled_cost: float
    unlabelled_cost: float
    margin: float
    norm: int

    @property
    def hinge(self) -> bool:
        """Return whether the loss is the hinge; otherwise it is the squared hinge."""
        return self.norm == 1

    @property
    def n_unlabelled(self) -> int:
        """Return the number of points without a label."""
        return len(self.factor) - self.n_positive - self.n_negative

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of rows of each of three kinds, which come one after another.

        The kinds are pairs (positive, negative), (unlabelled, negative) and (positive, unlabelled).
        """
        p = self.n_positive
        q = self.n_negative
        m = self.n_unlabelled
        return p * q, m * q, p * m

    @cached_property
    def cost(self) -> Floats:
        """Return the cost of every row (constraint), shape (rows,), in the order that :attr:`sizes`
        names.
        """
        p, q, m = np.split(self.weight, [self.n_positive, self.n_positive + self.n_negative])
        # Each row is a constraint on a pair of points. Its weight is the product of the weights of
        # the two points.
        positive_negative = self.labelled_cost * np.outer(p, q)
        unlabelled_negative = self.unlabelled_cost * np.outer(m, q)
        positive_unlabelled = self.unlabelled_cost * np.outer(p, m)
        return np.concatenate(
            [positive_negative.ravel(), unlabelled_negative.ravel(), positive_unlabelled.ravel()]
        )

    @cached_property
    def target(self) -> Floats:
        """Return the right side of every row's constraint, shape (rows,), in the order of
        :attr:`sizes`.
        """
        return np.repeat([1.0, 1.0 - self.margin, 1.0], self.sizes)

    @cached_property
    def pull(self) -> Floats:
        """Return a bound of the derivative of the Lagrangian by each soft label d, shape
        (unlabelled,).

        Each row (constraint) on an unlabelled point adds ``margin`` times its multiplier to the
        derivative, positive or negative. The multiplier is at most the cost of the row. So the
        bound is ``margin`` times the sum of the costs of the point's rows.
        """
        _, unlabelled_negative, positive_unlabelled = self.blocks(self.cost)
        costs_of_point: Floats = unlabelled_negative.sum(axis=1) + positive_unlabelled.sum(axis=0)
        return self.margin * costs_of_point

    def blocks(self, value: Floats) -> tuple[Floats, Floats, Floats]:
        """Return numbers of all rows (constraints) as three matrices, one for each kind of pair.

        ``value`` has one number per row. The kinds are positive and negative, unlabelled and
        negative, and positive and unlabelled. Each matrix has a row for each first point and a
        column for each second point.
        """
        p = self.n_positive
        q = self.n_negative
        m = self.n_unlabelled
        second = p * q
        third = p * q + m * q
        positive_negative = value[:second].reshape(p, q)
        unlabelled_negative = value[second:third].reshape(m, q)
        positive_unlabelled = value[third:].reshape(p, m)
        return positive_negative, unlabelled_negative, positive_unlabelled

    def general(self) -> Problem:
        """Return this problem as a :class:`Problem`, with sparse matrices, for the reference
        solver.
        """
        p = self.n_positive
        q = self.n_negative
        m = self.n_unlabelled
        positives = np.arange(p)
        negatives = p + np.arange(q)
        unlabelled = p + q + np.arange(m)
        first_point = np.concatenate(
            [np.repeat(positives, q), np.repeat(unlabelled, q), np.repeat(positives, m)]
        )
        second_point = np.concatenate(
            [np.tile(negatives, p), np.tile(negatives, m), np.tile(unlabelled, p)]
        )
        # Unlabelled points come last. So the larger of the two numbers of a pair is its unlabelled
        # point, if the pair has one.
        soft_label = np.maximum(first_point, second_point) - (p + q)
        label_coefficient = np.repeat([0.0, -self.margin, self.margin], self.sizes)
        row = np.arange(len(first_point))
        ones = np.ones(len(row))
        shape = (len(row), len(self.factor))
        # A row compares the score of its first point with that of its second point.
        plus = sparse.csr_array((ones, (row, first_point)), shape=shape)
        minus = sparse.csr_array((ones, (row, second_point)), shape=shape)
        A = plus - minus
        # The rows of labelled points alone come first.
        rows_of_unlabelled = row[self.sizes[0] :]
        B = sparse.csr_array(
            (
                label_coefficient[rows_of_unlabelled],
                (rows_of_unlabelled, soft_label[rows_of_unlabelled]),
            ),
            shape=(len(row), m),
        )
        zero = np.zeros(m)
        return Problem(
            A=A.tocsr(),
            B=B,
            t=self.target,
            c=self.cost,
            lower=zero,
            upper=zero + 1.0,
            r=self.norm,
        )


def kernel_factor(kernel: Floats) -> Floats:
    """Return L (n, r) with K = L L' for a positive semi-definite kernel matrix (n, n).

    The factor is a pivoted Cholesky factor, and r the numerical rank of the matrix.
    """
    n = len(kernel)
    # A remainder below the tolerance is only a rounding error.
    largest_diagonal = max(float(np.diag(kernel).max()), np.finfo(float).tiny)
    tolerance = n * np.finfo(float).eps * largest_diagonal
    upper, pivots, rank, _ = dpstrf(np.asarray(kernel, dtype=float), tol=tolerance, lower=0)
    # dpstrf has reordered the points; ``pivots`` are their numbers, counted from 1.
    factor = np.zeros((n, rank))
    factor[pivots - 1] = np.triu(upper)[:rank].T
    return factor


def solve_pairwise(problem: PairwiseProblem, tol: float = 1e-6, max_iter: int = 100) -> Solution:
    """Solve a pairwise problem by a primal-dual interior-point method.

    Parameters
    ----------
    problem : PairwiseProblem
        The problem.
    tol : float
        Relative duality gap at which to stop. The violation of the optimality (KKT) conditions must
        be below ten times ``tol``.
    max_iter : int
        Largest number of iterations.

    Returns
    -------
    Solution
        The most exact of all steps' results. It is the same to the last bit in every run. Its ``u``
        holds the soft labels. ``converged`` says whether ``tol`` was reached.
    """
    state = _start_inside(problem)
    best: Solution | None = None
    for iteration in range(max_iter + 1):
        solution = _certified(problem, state, iteration, tol)
        # In ill-conditioned problems rounding errors can make the last steps worse, so the best
        # result is kept.
        if best is None or _merit(solution) < _merit(best):
            best = solution
        if solution.converged or iteration == max_iter:
            break
        try:
            # Products of a variable and its multiplier need not be smaller than the wanted gap
            # requires. Smaller products would make the equations ill-conditioned, and the
            # multipliers inexact. If the gap is small enough already, only the optimality
            # conditions are not met, and the products may go to 0.
            least_products = _AIM * tol * abs(solution.primal) if abs(solution.gap) > tol else 0.0
            careful = iteration >= _CAREFUL_AFTER
            step_length = _step(problem, state, least_products, careful)
        except np.linalg.LinAlgError:
            # The equations have no solution because of rounding errors; the best result stays.
            break
        if step_length == 0.0:  # no further progress is possible
            break
    return best if best is not None else solution


def _merit(solution: Solution) -> float:
    """Return a number that is smaller for a more exact solution.

    The violation of the optimality conditions may be ten times the gap (:func:`solve_pairwise`).
    """
    return max(abs(solution.gap), solution.kkt / 10.0)


@dataclass
class _State:
    """Hold the state of the interior-point method: w, x and y.

    w are the weights of the columns of L, where the kernel matrix is K = L L'. The scores are
    f = L w.

    x is [s, lower, upper, xi]: slacks of the rows, multipliers of 0 <= d <= 1, and the shortfall of
    the rows. y is [gamma, d, room, nu]: multipliers of the rows, soft labels, room = 1 - d, and
    multipliers of xi >= 0. At the optimum the product of each entry of x with the entry of y at the
    same place is 0. room is a variable of its own, because floating-point numbers near 1 are too
    coarse to compute it from d. For the squared hinge xi = gamma / (2 cost), and x and y have no
    fourth part.

    At the optimum w = L'A'gamma, with the matrix A of the rows' coefficients of f. Yet w is a
    variable of its own, because the steps of gamma have larger rounding errors. When w was computed
    from gamma, 101 of 5,400 large test problems did not reach the wanted duality gap. With w as a
    variable, 1 problem does not reach it.
    """

    w: Floats
    x: Floats
    y: Floats


def _constraint_values(
    problem: PairwiseProblem, value: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the four parts of ``value``, the x or the y of a :class:`_State`, as views into it.

    The parts of y are the multipliers of the rows (constraints), the soft labels d, the numbers 1 -
    d, and the multipliers of the rows' shortfalls. x has a number for each number of y; at the
    optimum the product of the two is 0.
    """
    n_rows = len(problem.cost)
    m = problem.n_unlabelled
    of_rows = value[:n_rows]
    of_lower_bounds = value[n_rows : n_rows + m]
    of_upper_bounds = value[n_rows + m : n_rows + 2 * m]
    of_shortfalls = value[n_rows + 2 * m :]
    return of_rows, of_lower_bounds, of_upper_bounds, of_shortfalls


def _start_inside(problem: PairwiseProblem) -> _State:
    """Return a start of the interior-point method, strictly between all bounds.

    d are the soft labels of the unlabelled points. The multipliers of their bounds 0 <= d <= 1 are
    a fixed share of the largest pull that the rows can have on d (``pull`` of the problem).
    """
    n = len(problem.factor)
    cost = problem.cost
    d = np.full(problem.n_unlabelled, 0.5)
    left_sides = _sides(np.zeros(n), d, problem.n_positive, problem.n_negative, problem.margin)
    shortfall = problem.target - left_sides
    slack = np.maximum(-shortfall, 0.0) + _ROOM
    xi = np.maximum(shortfall, 0.0) + _ROOM
    gamma = _FIRST * cost
    box_multiplier = _FIRST * problem.pull
    x = np.concatenate([slack, box_multiplier, box_multiplier, xi])
    # d is 1/2, so 1 - d is the same.
    y = np.concatenate([gamma, d, d, cost - gamma])
    # For the squared hinge x and y end before the shortfalls.
    n_used = len(x) if problem.hinge else len(x) - len(xi)
    return _State(w=np.zeros(problem.factor.shape[1]), x=x[:n_used], y=y[:n_used])


# A row is a constraint on a pair of points. Rows come in three blocks, by the kinds of the two
# points: (positive, negative), (unlabelled, negative), (positive, unlabelled). A loop handles one
# block at a time, so that inner loops read neighbours in memory.


@numba.njit(cache=True, error_model="numpy")
def _onto(value, p, q, margin, n):  # type: ignore[no-untyped-def]
    """Return A' value, shape (n,), and B' value, shape (n - p - q,).

    A row is a constraint on a pair of points. ``value`` has a number for each row. The matrix A
    has, in each row, the coefficients of the scores f; the matrix B has those of the soft labels d.
    p and q are the numbers of positives and negatives, and n is the number of points. ``margin`` is
    M of :class:`PairwiseProblem`.
    """
    m = n - p - q
    # A pair adds the number of its row to its first point, and subtracts it from its second point.
    onto_points = np.zeros(n)
    onto_d = np.zeros(m)
    # Rows come in three blocks: pairs (positive, negative), (unlabelled, negative) and (positive,
    # unlabelled).
    first_row = 0
    for i in range(p):
        total = 0.0
        for j in range(q):
            total += value[first_row + j]
            onto_points[p + j] -= value[first_row + j]
        onto_points[i] += total
        first_row += q
    for i in range(m):
        total = 0.0
        for j in range(q):
            total += value[first_row + j]
            onto_points[p + j] -= value[first_row + j]
        onto_points[p + q + i] += total
        onto_d[i] -= margin * total
        first_row += q
    for i in range(p):
        total = 0.0
        for j in range(m):
            total += value[first_row + j]
            onto_points[p + q + j] -= value[first_row + j]
            onto_d[j] += margin * value[first_row + j]
        onto_points[i] += total
        first_row += m
    return onto_points, onto_d


@numba.njit(cache=True, error_model="numpy")
def _sides(f, d, p, q, margin):  # type: ignore[no-untyped-def]
    """Return the left sides A f + B d of all rows (constraints A f + B d >= margins).

    ``f``, shape (n,), are scores and ``d``, shape (n - p - q,), soft labels; p and q are the
    numbers of positives and negatives.
    """
    m = len(d)
    left_sides = np.empty(p * q + m * q + p * m)
    # Scores f_m and soft labels d_m of an unlabelled point occur only as f_m - M d_m, with M the
    # parameter ``margin``.
    moved_scores = f[p + q :] - margin * d
    # Rows come in three blocks: pairs (positive, negative), (unlabelled, negative) and (positive,
    # unlabelled).
    first_row = 0
    for i in range(p):
        for j in range(q):
            left_sides[first_row + j] = f[i] - f[p + j]
        first_row += q
    for i in range(m):
        for j in range(q):
            left_sides[first_row + j] = moved_scores[i] - f[p + j]
        first_row += q
    for i in range(p):
        for j in range(m):
            left_sides[first_row + j] = f[i] - moved_scores[j]
        first_row += m
    return left_sides


def _factorise(
    problem: PairwiseProblem, stiffness: Floats, theta: Floats
) -> tuple[Floats, Floats, Floats]:
    """Solve the Newton equations of one step for the soft labels d; return what remains of them.

    The unknowns are the scores f of the n points and the soft labels d of the m unlabelled points.
    A row (constraint) has the left side A f + B d. W is the diagonal matrix of ``stiffness``. The
    matrix of the equations has the blocks

    - A' W A for the scores,
    - A' W B for a score and a soft label,
    - D = B' W B + diag(``theta``) for the soft labels, a diagonal matrix.

    To eliminate d changes the block of the scores into S = A' W A - A' W B D^-1 B' W A. This
    difference would lose precision by cancellation. So S is computed in another way. A row acts as
    a spring whose strength is its entry of ``stiffness``. Labelled points are nodes at the places
    f. An unlabelled point i has two nodes: one at f_i, and one at f_i - M d_i, where the springs of
    its rows end; M is the problem's ``margin``. A spring of strength ``theta`` / M^2 joins the two.
    The nodes at f_i - M d_i are then eliminated, which gives springs between the other nodes (the
    star-mesh transform). Their strengths are sums, products and quotients of positive numbers. S is
    the Laplacian matrix of this graph.

    Parameters
    ----------
    problem : PairwiseProblem
        The problem, with its factor L of the kernel matrix.
    stiffness : ndarray, shape (rows,)
        Weight of each row in the Newton equations.
    theta : ndarray, shape (m,)
        What the bounds 0 <= d <= 1 add to the diagonal of D.

    Returns
    -------
    chol : ndarray, shape (r, r)
        Cholesky factor of I + L' S L.
    lean : ndarray, shape (n, m)
        A' W B D^-1.
    box_strength : ndarray, shape (m,)
        Diagonal of D.
    """
    n = len(problem.factor)
    p = problem.n_positive
    margin = problem.margin
    n_labelled = p + problem.n_negative
    positive_negative, unlabelled_negative, positive_unlabelled = problem.blocks(stiffness)
    # Each row acts as a spring between two nodes. Column i of ``star`` has the strengths of the
    # springs from the node at f_i - M d_i to the positives and the negatives.
    star = np.concatenate([positive_unlabelled, unlabelled_negative.T])
    # The spring that joins the two nodes of an unlabelled point.
    box_strength = theta / margin**2
    star_strength = star.sum(axis=0)
    # The star-mesh transform: if a node is eliminated, two of its neighbours get a spring. Its
    # strength is the product of their two strengths, divided by the sum of all of them.
    share = star / (star_strength + box_strength)
    spring = np.zeros((n, n))
    spring[:n_labelled, :n_labelled] = share @ star.T
    # Pairs of labelled points have their springs from the beginning.
    spring[:p, p:n_labelled] += positive_negative
    spring[p:n_labelled, :p] += positive_negative.T
    spring[:n_labelled, n_labelled:] = share * box_strength
    spring[n_labelled:, :n_labelled] = spring[:n_labelled, n_labelled:].T
    np.fill_diagonal(spring, 0.0)  # a spring from a point to itself does nothing
    # ``spring`` has the strengths of the springs between the n points, after the soft labels are
    # eliminated. With minus the sum of each column on the diagonal it is -S (see the docstring).
    np.fill_diagonal(spring, -spring.sum(axis=0))
    system = -(problem.factor.T @ spring @ problem.factor)
    lean = (
        np.concatenate([share, np.diag(-star_strength / (star_strength + box_strength))]) / margin
    )
    return _cholesky(system), lean, margin**2 * (star_strength + box_strength)


def _cholesky(system: Floats) -> Floats:
    """Return the Cholesky factor of I + ``system``, if needed with a ridge; ``system`` is changed.

    The ridge is added to the diagonal. A small ridge makes steps less exact. But each step corrects
    the error of the last step, so the gap still goes to 0.
    """
    diagonal = np.einsum("ii->i", system)  # a view, so that changes of it change ``system``
    diagonal += 1.0
    for ridge in _RIDGES:
        diagonal *= 1.0 + ridge
        chol: Floats
        # The matrix is symmetric, so its transpose can be passed, which has the order in memory
        # that LAPACK needs.
        chol, failed_at = dpotrf(system.T, lower=1, clean=0)
        if failed_at == 0:
            return chol
    raise np.linalg.LinAlgError("the normal equations are indefinite")


def _step(problem: PairwiseProblem, state: _State, least_products: float, careful: bool) -> float:
    """Change the state of the interior-point method by one step, in place.

    The state has variables x and their multipliers y, among other numbers.

    Parameters
    ----------
    least_products : float
        The step aims at no smaller sum of the products x y than this; at the optimum the sum is 0.
    careful : bool
        Whether the corrector multiplies the predictor's second-order products by the squared length
        of the predictor's step. Without this factor the solver takes fewer steps, but does not
        converge in one problem of a thousand.

    Returns
    -------
    length : float
        Length of the step; 0 when no further progress is possible.

    Raises
    ------
    numpy.linalg.LinAlgError
        If because of rounding errors the matrix is not positive definite even with the largest
        ridge.
    """
    n_products = len(state.x)
    inverse_of_y = 1.0 / state.y
    # If products of a variable x and its multiplier y are near 0, the equations have large rounding
    # errors. So x is raised where the product is too small. The next step reduces x again.
    least_product = max(least_products, _LEAST * float(state.x @ state.y)) / n_products
    np.maximum(state.x, least_product * inverse_of_y, out=state.x)
    step_towards = _equations(problem, state, inverse_of_y)
    mean_product = float(state.x @ state.y) / n_products
    # ``predictor`` is the predictor step and ``corrector`` the corrector step of Mehrotra's method.
    predictor = step_towards(0.0)
    reach = _reach(state, predictor)
    second_order = predictor.x * predictor.y
    # Mean product after the predictor step. The shorter this step must be, the larger are the
    # products that the corrector aims at; the cube is Mehrotra's choice.
    remaining = max((1.0 - reach) * mean_product + reach**2 * float(second_order.mean()), 0.0)
    centre = mean_product * min(1.0, remaining / mean_product) ** 3
    target_product = max(centre, least_products / n_products)
    # The predictor changes each product also by the product of both changes; the corrector
    # subtracts this.
    share_of_second_order = reach**2 if careful else 1.0
    corrector = step_towards(target_product - share_of_second_order * second_order)
    length = _CLOSE * _reach(state, corrector)
    # ``not >`` also refuses a length that is NaN.
    if not length > _SHORTEST:
        return 0.0
    state.w += length * corrector.w
    state.x += length * corrector.x
    state.y += length * corrector.y
    return length


def _equations(
    problem: PairwiseProblem, state: _State, inverse_of_y: Floats
) -> Callable[[Floats | float], _State]:
    """Return a function that computes one step of the interior-point method from ``state``.

    The function gets the values that the products of x and y (:class:`_State`) shall have after the
    step, and returns the change of w, x and y. ``inverse_of_y`` is 1 / y.
    """
    p = problem.n_positive
    q = problem.n_negative
    margin = problem.margin
    hinge = problem.hinge
    n = len(problem.factor)
    factor = problem.factor
    x_over_y = state.x * inverse_of_y
    gamma, d, _, _ = _constraint_values(problem, state.y)
    row_residual = problem.target - _sides(factor @ state.w, d, p, q, margin)
    # After the slack variables are eliminated, each row is an equation for the change dgamma of its
    # multiplier. The equation is (ease + give) dgamma = right - _sides(df, dd), where df and dd are
    # the changes of scores and soft labels. ``ease`` and ``give`` are x / y of the slacks and of
    # the shortfalls; the squared hinge has no variable for a shortfall.
    ease, ease_lower, ease_upper, give = _constraint_values(problem, x_over_y)
    if not hinge:
        give = 0.5 / problem.cost
        row_residual -= give * gamma
    stiffness = 1.0 / (ease + give)
    chol, lean, diagonal_of_d = _factorise(problem, stiffness, ease_lower + ease_upper)
    beta, balance_of_d = _onto(gamma, p, q, margin, n)
    # Residual of the condition w = L'A'gamma, which holds in a solution.
    residual_w = factor.T @ beta - state.w

    def step_towards(products: Floats | float) -> _State:
        """Return the step after which the products of x and y have the given values."""
        target_x = products * inverse_of_y  # gives these products with the present y
        to_s, to_lower, to_upper, to_xi = _constraint_values(problem, target_x)
        right_of_rows = row_residual + to_s - to_xi if hinge else row_residual + to_s
        right_of_points, onto_d = _onto(stiffness * right_of_rows, p, q, margin, n)
        # After this step the multipliers fulfil the condition of the soft labels d, B'gamma + lower
        # - upper = 0.
        right_of_d = balance_of_d + onto_d + to_lower - to_upper
        dw = dpotrs(chol, residual_w + factor.T @ (right_of_points - lean @ right_of_d), lower=1)[0]
        df = factor @ dw
        dd = right_of_d / diagonal_of_d - lean.T @ df
        dgamma = stiffness * (right_of_rows - _sides(df, dd, p, q, margin))
        # y is [gamma, d, 1 - d, cost - gamma]; it has no last part for the squared hinge.
        dy = np.concatenate([dgamma, dd, -dd, -dgamma])[: len(state.y)]
        dx = target_x - state.x - x_over_y * dy
        return _State(w=dw, x=dx, y=dy)

    return step_towards


def _reach(state: _State, change: _State) -> float:
    """Return the largest share of a change, at most 1, by which x and y do not fall below 0."""
    worst_of_x = -float((change.x / state.x).min())
    worst_of_y = -float((change.y / state.y).min())
    return 1.0 / max(1.0, worst_of_x, worst_of_y)


def _certified(problem: PairwiseProblem, state: _State, iterations: int, tol: float) -> Solution:
    """Return the state as a solution.

    The primal and the dual objective, and the violation of the optimality (KKT) conditions, are
    computed from gamma and d. One of these conditions says that the pulls of the rows on each soft
    label d are in balance. Its violation is relative to the largest possible pull
    (:attr:`PairwiseProblem.pull`).
    """
    p = problem.n_positive
    q = problem.n_negative
    margin = problem.margin
    cost = problem.cost
    gamma, d, _, _ = _constraint_values(problem, state.y)
    beta, balance = _onto(gamma, p, q, margin, len(problem.factor))
    w = problem.factor.T @ beta
    f = problem.factor @ w
    half_norm = 0.5 * float(w @ w)
    shortfall = problem.target - _sides(f, d, p, q, margin)
    missed = np.maximum(shortfall, 0.0)
    share_of_cost = gamma / cost
    dual = float(problem.target @ gamma) - half_norm - float(np.maximum(balance, 0.0).sum())
    if problem.hinge:
        primal = half_norm + float(cost @ missed)
        # At the optimum the multiplier gamma of a row is its cost c if the row is short of its
        # margin, and 0 if the row is beyond it. So if gamma / c is changed by the shortfall t - A f
        # - B d and clipped to [0, 1], it must stay the same.
        row_violation = np.clip(share_of_cost + shortfall, 0.0, 1.0) - share_of_cost
    else:
        primal = half_norm + float(cost @ missed**2)
        dual -= 0.25 * float(gamma @ share_of_cost)
        # At the optimum of the squared hinge gamma is 2 c times the shortfall.
        row_violation = missed - 0.5 * share_of_cost
    # At the optimum a soft label moves no further: its pulls are in balance, or it is at a bound.
    d_after_pull = np.clip(d + balance / problem.pull, 0.0, 1.0)
    label_violation = float(np.abs(d_after_pull - d).max(initial=0.0))
    kkt = max(float(np.abs(row_violation).max()), label_violation)
    gap = (primal - dual) / max(abs(primal), abs(dual), np.finfo(float).tiny)
    converged = bool(abs(gap) <= tol and kkt <= 10.0 * tol)
    return Solution(
        beta=beta,
        f=f,
        u=d.copy(),
        gamma=gamma.copy(),
        primal=primal,
        dual=dual,
        gap=gap,
        kkt=kkt,
        iterations=iterations,
        converged=converged,
        solver="interior-point",
    )
