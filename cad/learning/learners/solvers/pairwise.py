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
_CAREFUL_AFTER = 20
# First values: multipliers start at _FIRST times their largest possible value, slacks and
# shortfalls at _ROOM (in units of the margin) or more.
_FIRST = 0.3
_ROOM = 0.5
# A step covers this share of the way to the point where a variable reaches its bound.
_CLOSE = 0.999
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
        _, of_negative, of_positive = self.blocks(self.cost)
        total: Floats = of_negative.sum(axis=1) + of_positive.sum(axis=0)
        return self.margin * total

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
        of_unlabelled = value[second:third].reshape(m, q), value[third:].reshape(p, m)
        return value[:second].reshape(p, q), *of_unlabelled

    def general(self) -> Problem:
        """Return this problem as a :class:`Problem`, with sparse matrices, for the reference
        solver.
        """
        p = self.n_positive
        q = self.n_negative
        m = self.n_unlabelled
        of_p = np.arange(p)
        of_q = p + np.arange(q)
        of_m = p + q + np.arange(m)
        plus = np.concatenate([np.repeat(of_p, q), np.repeat(of_m, q), np.repeat(of_p, m)])
        minus = np.concatenate([np.tile(of_q, p), np.tile(of_q, m), np.tile(of_m, p)])
        # Unlabelled points come last. So the larger of the two numbers of a pair is its unlabelled
        # point, if the pair has one.
        soft = np.maximum(plus, minus) - (p + q)
        pull = np.repeat([0.0, -self.margin, self.margin], self.sizes)
        row = np.arange(len(plus))
        ones = np.ones(len(row))
        shape = (len(row), len(self.factor))
        A = sparse.csr_array((ones, (row, plus)), shape=shape) - sparse.csr_array(
            (ones, (row, minus)), shape=shape
        )
        touched = row[self.sizes[0] :]
        B = sparse.csr_array((pull[touched], (touched, soft[touched])), shape=(len(row), m))
        zero = np.zeros(m)
        return Problem(A.tocsr(), B, self.target, self.cost, zero, zero + 1.0, self.norm)


def kernel_factor(kernel: Floats) -> Floats:
    """Return L (n, r) with K = L L' for a positive semi-definite kernel matrix (n, n).

    The factor is a pivoted Cholesky factor, and r the numerical rank of the matrix.
    """
    n = len(kernel)
    tolerance = n * np.finfo(float).eps * max(float(np.diag(kernel).max()), np.finfo(float).tiny)
    upper, pivots, rank, _ = dpstrf(np.asarray(kernel, dtype=float), tol=tolerance, lower=0)
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
            # multipliers inexact.
            smallest = _AIM * tol * abs(solution.primal) if abs(solution.gap) > tol else 0.0
            length = _step(problem, state, smallest, iteration >= _CAREFUL_AFTER)
        except np.linalg.LinAlgError:
            break
        if length == 0.0:
            break
    return best if best is not None else solution


def _merit(solution: Solution) -> float:
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
    rows = len(problem.cost)
    m = problem.n_unlabelled
    box = value[rows : rows + m], value[rows + m : rows + 2 * m]
    return value[:rows], *box, value[rows + 2 * m :]


def _start_inside(problem: PairwiseProblem) -> _State:
    """Return a start of the interior-point method, strictly between all bounds.

    d are the soft labels of the unlabelled points. The multipliers of their bounds 0 <= d <= 1 are
    a fixed share of the largest pull that the rows can have on d (``pull`` of the problem).
    """
    n = len(problem.factor)
    cost = problem.cost
    d = np.full(problem.n_unlabelled, 0.5)
    sides = _sides(np.zeros(n), d, problem.n_positive, problem.n_negative, problem.margin)
    short = problem.target - sides
    s = np.maximum(-short, 0.0) + _ROOM
    xi = np.maximum(short, 0.0) + _ROOM
    gamma = _FIRST * cost
    push = _FIRST * problem.pull
    x = np.concatenate([s, push, push, xi])
    y = np.concatenate([gamma, d, d, cost - gamma])
    used = len(x) if problem.hinge else len(x) - len(xi)
    return _State(np.zeros(problem.factor.shape[1]), x[:used], y[:used])


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
    points = np.zeros(n)
    onto_d = np.zeros(m)
    first = 0
    for i in range(p):
        total = 0.0
        for j in range(q):
            total += value[first + j]
            points[p + j] -= value[first + j]
        points[i] += total
        first += q
    for i in range(m):
        total = 0.0
        for j in range(q):
            total += value[first + j]
            points[p + j] -= value[first + j]
        points[p + q + i] += total
        onto_d[i] -= margin * total
        first += q
    for i in range(p):
        total = 0.0
        for j in range(m):
            total += value[first + j]
            points[p + q + j] -= value[first + j]
            onto_d[j] += margin * value[first + j]
        points[i] += total
        first += m
    return points, onto_d


@numba.njit(cache=True, error_model="numpy")
def _sides(f, d, p, q, margin):  # type: ignore[no-untyped-def]
    """Return the left sides A f + B d of all rows (constraints A f + B d >= margins).

    ``f``, shape (n,), are scores and ``d``, shape (n - p - q,), soft labels; p and q are the
    numbers of positives and negatives.
    """
    m = len(d)
    out = np.empty(p * q + m * q + p * m)
    # Scores f_m and soft labels d_m of an unlabelled point occur only as f_m - M d_m, with M the
    # parameter ``margin``.
    moved = f[p + q :] - margin * d
    first = 0
    for i in range(p):
        for j in range(q):
            out[first + j] = f[i] - f[p + j]
        first += q
    for i in range(m):
        for j in range(q):
            out[first + j] = moved[i] - f[p + j]
        first += q
    for i in range(p):
        for j in range(m):
            out[first + j] = f[i] - moved[j]
        first += m
    return out


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
    diagonal : ndarray, shape (m,)
        Diagonal of D.
    """
    n = len(problem.factor)
    p = problem.n_positive
    margin = problem.margin
    labelled = p + problem.n_negative
    of_labelled, of_negative, of_positive = problem.blocks(stiffness)
    # Each row acts as a spring between two nodes. Column i of ``star`` has the strengths of the
    # springs from the node at f_i - M d_i to the positives and the negatives.
    star = np.concatenate([of_positive, of_negative.T])
    diagonal = theta / margin**2
    total = star.sum(axis=0)
    share = star / (total + diagonal)
    weight = np.zeros((n, n))
    weight[:labelled, :labelled] = share @ star.T
    weight[:p, p:labelled] += of_labelled
    weight[p:labelled, :p] += of_labelled.T
    weight[:labelled, labelled:] = share * diagonal
    weight[labelled:, :labelled] = weight[:labelled, labelled:].T
    np.fill_diagonal(weight, 0.0)
    # ``weight`` has the strengths of the springs between the n points, after the soft labels are
    # eliminated. With minus the sum of each column on the diagonal it is -S (see the docstring).
    np.fill_diagonal(weight, -weight.sum(axis=0))
    system = -(problem.factor.T @ weight @ problem.factor)
    lean = np.concatenate([share, np.diag(-total / (total + diagonal))]) / margin
    return _cholesky(system), lean, margin**2 * (total + diagonal)


def _cholesky(system: Floats) -> Floats:
    """Return the Cholesky factor of I + ``system``, if needed with a ridge; ``system`` is changed.

    The ridge is added to the diagonal. A small ridge makes steps less exact. But each step corrects
    the error of the last step, so the gap still goes to 0.
    """
    diagonal = np.einsum("ii->i", system)
    diagonal += 1.0
    for ridge in _RIDGES:
        diagonal *= 1.0 + ridge
        chol: Floats
        # The matrix is symmetric, so its transpose can be passed, which has the order in memory
        # that LAPACK needs.
        chol, info = dpotrf(system.T, lower=1, clean=0)
        if info == 0:
            return chol
    raise np.linalg.LinAlgError("the normal equations are indefinite")


def _step(problem: PairwiseProblem, state: _State, smallest: float, careful: bool) -> float:
    """Change the state of the interior-point method by one step, in place.

    The state has variables x and their multipliers y, among other numbers.

    Parameters
    ----------
    smallest : float
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
    count = len(state.x)
    inverse = 1.0 / state.y
    # If products of a variable x and its multiplier y are near 0, the equations have large rounding
    # errors. So x is raised where the product is too small. The next step reduces x again.
    np.maximum(
        state.x, (max(smallest, _LEAST * float(state.x @ state.y)) / count) * inverse, out=state.x
    )
    towards = _equations(problem, state, inverse)
    mean = float(state.x @ state.y) / count
    # ``ahead`` is the predictor step and ``change`` the corrector step of Mehrotra's method.
    ahead = towards(0.0)
    reach = _reach(state, ahead)
    bent = ahead.x * ahead.y
    remaining = max((1.0 - reach) * mean + reach**2 * float(bent.mean()), 0.0)
    aim = max(mean * min(1.0, remaining / mean) ** 3, smallest / count)
    change = towards(aim - (reach**2 if careful else 1.0) * bent)
    length = _CLOSE * _reach(state, change)
    if not length > _SHORTEST:
        return 0.0
    state.w += length * change.w
    state.x += length * change.x
    state.y += length * change.y
    return length


def _equations(
    problem: PairwiseProblem, state: _State, inverse: Floats
) -> Callable[[Floats | float], _State]:
    """Return a function that computes one step of the interior-point method from ``state``.

    The function gets the values that the products of x and y (:class:`_State`) shall have after the
    step, and returns the change of w, x and y. ``inverse`` is 1 / y.
    """
    p = problem.n_positive
    q = problem.n_negative
    margin = problem.margin
    hinge = problem.hinge
    n = len(problem.factor)
    factor = problem.factor
    ratio = state.x * inverse
    gamma, d, _, _ = _constraint_values(problem, state.y)
    missing = problem.target - _sides(factor @ state.w, d, p, q, margin)
    # After the slack variables are eliminated, each row is an equation for the change dgamma of its
    # multiplier. The equation is (ease + give) dgamma = right - _sides(df, dd), where df and dd are
    # the changes of scores and soft labels.
    ease, low, high, give = _constraint_values(problem, ratio)
    if not hinge:
        give = 0.5 / problem.cost
        missing -= give * gamma
    stiffness = 1.0 / (ease + give)
    chol, lean, big = _factorise(problem, stiffness, low + high)
    points, onto_d = _onto(gamma, p, q, margin, n)
    # Residual of the condition w = L'A'gamma, which holds in a solution.
    left_w = factor.T @ points - state.w

    def towards(products: Floats | float) -> _State:
        target = products * inverse
        to_s, to_lower, to_upper, to_xi = _constraint_values(problem, target)
        right = missing + to_s - to_xi if hinge else missing + to_s
        points, more_d = _onto(stiffness * right, p, q, margin, n)
        # After this step the multipliers fulfil the condition of the soft labels d, B'gamma + lower
        # - upper = 0.
        rest_d = onto_d + more_d + to_lower - to_upper
        dw = dpotrs(chol, left_w + factor.T @ (points - lean @ rest_d), lower=1)[0]
        df = factor @ dw
        dd = rest_d / big - lean.T @ df
        dg = stiffness * (right - _sides(df, dd, p, q, margin))
        dy = np.concatenate([dg, dd, -dd, -dg])[: len(state.y)]
        return _State(dw, target - state.x - ratio * dy, dy)

    return towards


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
    norm2 = 0.5 * float(w @ w)
    short = problem.target - _sides(f, d, p, q, margin)
    missed = np.maximum(short, 0.0)
    share = gamma / cost
    dual = float(problem.target @ gamma) - norm2 - float(np.maximum(balance, 0.0).sum())
    if problem.hinge:
        primal = norm2 + float(cost @ missed)
        # At the optimum the multiplier gamma of a row is its cost c if the row is short of its
        # margin, and 0 if the row is beyond it. So if gamma / c is changed by the shortfall t - A f
        # - B d and clipped to [0, 1], it must stay the same.
        off = np.clip(share + short, 0.0, 1.0) - share
    else:
        primal = norm2 + float(cost @ missed**2)
        dual -= 0.25 * float(gamma @ share)
        off = missed - 0.5 * share
    wish = np.clip(d + balance / problem.pull, 0.0, 1.0)
    kkt = max(float(np.abs(off).max()), float(np.abs(wish - d).max(initial=0.0)))
    gap = (primal - dual) / max(abs(primal), abs(dual), np.finfo(float).tiny)
    converged = bool(abs(gap) <= tol and kkt <= 10.0 * tol)
    return Solution(
        beta,
        f,
        d.copy(),
        gamma.copy(),
        primal,
        dual,
        gap,
        kkt,
        iterations,
        converged,
        "interior-point",
    )
