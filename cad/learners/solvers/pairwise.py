"""Pairwise hinge problems: thousands of pair rows that live on about a hundred points.

Positives p, negatives q and unlabelled points m give the rows of docs/methods.md 2,

    f_p - f_q >= 1,    f_m - f_q - M d_m >= 1 - M,    f_p - f_m + M d_m >= 1,    0 <= d <= 1,

and a primal-dual interior point (Mehrotra's predictor and corrector) solves them all at once. A
row touches two points and at most one d, so the normal equations of the rows are one weighted
graph over the points: its matrix is written down from row sums, d is eliminated by its diagonal,
and each step costs O(pairs + n^3) with n the number of *points*. No matrix over pairs exists.

Sums over the rows of a point are numba kernels, which never write down which rows those are;
everything else is numpy and LAPACK, and one Cholesky factor serves predictor and corrector.
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

from cad.learners.solvers.problem import Problem, Solution

Floats = NDArray[np.float64]
# Share of the gap asked for that the products of an iterate aim at.
_AIM = 0.01
_CAREFUL_AFTER = 20
# Share of the way to the nearest bound that a step goes.
_CLOSE = 0.999
_SHORTEST = 1e-10
# Least product of a pair, relative to the mean.
_LEAST = 0.1


@dataclass(frozen=True)
class PairwiseProblem:
    """Hold one SVMROC or SSLROC problem; points in the order positives, negatives, unlabelled.

    Every row of the problem is a pair of points.

    Attributes
    ----------
    factor : ndarray (n, r)
        L with L L' the kernel matrix of the points; :func:`kernel_factor` makes it.
    n_positive, n_negative : int
        Number of positive and of negative points; the rest of the n points are unlabelled.
    weight : ndarray (n,)
        Weight of each point, > 0; the cost of a pair is multiplied by its two weights.
    labelled_cost, unlabelled_cost : float
        Cost of a pair of labelled points, and of a pair with an unlabelled point.
    margin : float
        M of [W14] (3): by how much the margins change when a soft label d goes from 0 to 1.
    norm : int
        1 = hinge, 2 = squared hinge.
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
        """Return whether the loss is the hinge, not its square."""
        return self.norm == 1

    @property
    def n_unlabelled(self) -> int:
        """Return the number of points without a label."""
        return len(self.factor) - self.n_positive - self.n_negative

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of the problem's rows of three kinds, which come one after another.

        The kinds are pairs (positive, negative), (unlabelled, negative) and (positive, unlabelled).
        """
        p, q, m = self.n_positive, self.n_negative, self.n_unlabelled
        return p * q, m * q, p * m

    @cached_property
    def cost(self) -> Floats:
        """Return the cost of every row, shape (rows,), in the order of :attr:`sizes`."""
        pq = self.n_positive + self.n_negative
        p, q, m = np.split(self.weight, [self.n_positive, pq])
        return np.concatenate(
            [
                self.labelled_cost * np.outer(p, q).ravel(),
                self.unlabelled_cost * np.outer(m, q).ravel(),
                self.unlabelled_cost * np.outer(p, m).ravel(),
            ]
        )

    @cached_property
    def target(self) -> Floats:
        """Return the margin of every row, shape (rows,), in the order of :attr:`sizes`."""
        return np.repeat([1.0, 1.0 - self.margin, 1.0], self.sizes)

    def general(self) -> Problem:
        """Return the problem in the general form, a :class:`Problem`, for reference solvers."""
        p, q, m = self.n_positive, self.n_negative, self.n_unlabelled
        of_p, of_q, of_m = np.arange(p), p + np.arange(q), p + q + np.arange(m)
        plus = np.concatenate([np.repeat(of_p, q), np.repeat(of_m, q), np.repeat(of_p, m)])
        minus = np.concatenate([np.tile(of_q, p), np.tile(of_q, m), np.tile(of_m, p)])
        # The unlabelled point of a row, if it has one, comes last in the order of points.
        soft = np.maximum(plus, minus) - (p + q)
        pull = np.repeat([0.0, -self.margin, self.margin], self.sizes)
        row = np.arange(len(plus))
        one = np.ones(len(row))
        shape = (len(row), len(self.factor))
        A = sparse.csr_array((one, (row, plus)), shape=shape) - sparse.csr_array(
            (one, (row, minus)), shape=shape
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
        Relative gap at which to stop; the KKT violation must be below ten times ``tol``.
    max_iter : int
        Most iterations.

    Returns
    -------
    Solution
        The most exact iterate, equal to the last bit on every run; its ``u`` holds the soft labels.
        ``converged`` says whether ``tol`` was reached.
    """
    state = _start(problem)
    best: Solution | None = None
    for iteration in range(max_iter + 1):
        solution = _certified(problem, state, iteration, tol)
        # Round-off can spoil the last steps of an ill-conditioned problem: keep the best.
        if best is None or _merit(solution) < _merit(best):
            best = solution
        if solution.converged or iteration == max_iter:
            break
        try:
            # Stiffer equations than the gap needs spoil it, because multipliers take up rounding.
            least = _AIM * tol * abs(solution.primal) if abs(solution.gap) > tol else 0.0
            length = _step(problem, state, least, iteration >= _CAREFUL_AFTER)
        except np.linalg.LinAlgError:
            break
        if length == 0.0:
            break
    return best if best is not None else solution


def _merit(solution: Solution) -> float:
    return max(abs(solution.gap), solution.kkt / 10.0)


def _start(problem: PairwiseProblem) -> _State:
    """Return a start in the middle of every box."""
    factor = problem.factor
    w, d = np.zeros(factor.shape[1]), np.full(problem.n_unlabelled, 0.5)
    asked = _sides(factor @ w, d, problem.n_positive, problem.n_negative, problem.margin)
    short, cost = problem.target - asked, problem.cost
    s, xi = np.maximum(-short, 0.0) + 1.0, np.maximum(short, 0.0) + 1.0
    # Of the squared hinge what stationarity asks for.
    gamma = 0.5 * cost if problem.hinge else 2.0 * cost * xi
    price = float((s * gamma).mean())
    return _State(w, d, 1.0 - d, s, xi, gamma, cost - gamma, price / d, price / (1.0 - d))


@dataclass
class _State:
    """Hold the interior point: weights w, soft labels d, slacks s and xi, and multipliers.

    gamma belongs to the rows, nu to xi >= 0, lower and upper to 0 <= d <= 1. For the squared hinge
    xi = gamma / (2 cost), and nu is not used. ``room`` is 1 - d, which near 1 d itself cannot tell.
    """

    w: Floats
    d: Floats
    room: Floats
    s: Floats
    xi: Floats
    gamma: Floats
    nu: Floats
    lower: Floats
    upper: Floats


# Rows come in three blocks (positive, negative), (unlabelled, negative), (positive, unlabelled);
# walking them block by block keeps every inner loop contiguous.


@numba.njit(cache=True, error_model="numpy")
def _onto(value, p, q, margin, n):  # type: ignore[no-untyped-def]
    """Return A' value, shape (n,), and B' value, shape (n - p - q,).

    ``value`` holds one number for each row; A and B are the rows over the scores f and the soft
    labels d.
    """
    m = n - p - q
    points, onto_d = np.zeros(n), np.zeros(m)
    at = 0
    for i in range(p):
        total = 0.0
        for j in range(q):
            total += value[at + j]
            points[p + j] -= value[at + j]
        points[i] += total
        at += q
    for i in range(m):
        total = 0.0
        for j in range(q):
            total += value[at + j]
            points[p + j] -= value[at + j]
        points[p + q + i] += total
        onto_d[i] -= margin * total
        at += q
    for i in range(p):
        total = 0.0
        for j in range(m):
            total += value[at + j]
            points[p + q + j] -= value[at + j]
            onto_d[j] += margin * value[at + j]
        points[i] += total
        at += m
    return points, onto_d


@numba.njit(cache=True, error_model="numpy")
def _sides(f, d, p, q, margin):  # type: ignore[no-untyped-def]
    """Return A f + B d, the left side of every row; f (n,) scores, d (n - p - q,) soft labels."""
    m = len(d)
    out = np.empty(p * q + m * q + p * m)
    # An unlabelled point enters every row as f_m - M d_m.
    moved = f[p + q :] - margin * d
    at = 0
    for i in range(p):
        for j in range(q):
            out[at + j] = f[i] - f[p + j]
        at += q
    for i in range(m):
        for j in range(q):
            out[at + j] = moved[i] - f[p + j]
        at += q
    for i in range(p):
        for j in range(m):
            out[at + j] = f[i] - moved[j]
        at += m
    return out


def _soonest(value: Floats, change: Floats) -> float:
    """Return 1 / t, t the least step along ``change`` that brings a value to zero; 0 if none."""
    return -float(np.min(change / value, initial=0.0))


def _factorise(
    problem: PairwiseProblem, stiffness: Floats, theta: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the Cholesky factor of I + L' S L, S the rows' graph after eliminating d.

    A row joins two points by a spring, so without d the rows are the Laplacian of a weighted graph.
    An unlabelled point's rows do not join it but a node at f_i - M d_i, which a spring of theta /
    M^2 joins to the point. Eliminating that node leaves a graph again (the star-mesh transform),
    whose weights are sums and products of positive numbers: nothing cancels.

    Beside it the cross terms A' W B divided by d's diagonal, and that diagonal.

    Raises
    ------
    numpy.linalg.LinAlgError
        When rounding has made the equations indefinite.
    """
    n, p, margin = len(problem.factor), problem.n_positive, problem.margin
    labelled = p + problem.n_negative
    of_labelled, of_negative, of_positive = _blocks(problem, stiffness)
    weight = np.zeros((n, n))
    weight[:p, p:labelled] = of_labelled
    weight[p:labelled, :p] = of_labelled.T
    # Row i: the springs between the node of unlabelled i and the positives, the negatives.
    star = np.hstack([of_positive.T, of_negative])
    total = star.sum(axis=1)
    big = margin**2 * total + theta
    lean = np.zeros((n, len(theta)))
    if len(theta):
        share = star / (total + theta / margin**2)[:, None]
        weight[:labelled, :labelled] += share.T @ star
        weight[labelled:, :labelled] = share * (theta / margin**2)[:, None]
        weight[:labelled, labelled:] = weight[labelled:, :labelled].T
        np.fill_diagonal(weight, 0.0)
        lean[:labelled] = margin * star.T / big
        np.fill_diagonal(lean[labelled:], -margin * total / big)
    graph = -weight
    np.fill_diagonal(graph, weight.sum(axis=1))
    system = problem.factor.T @ graph @ problem.factor
    system.flat[:: len(system) + 1] += 1.0
    chol, info = dpotrf(system, lower=1)
    if info != 0:
        raise np.linalg.LinAlgError("the normal equations are indefinite")
    return chol, lean, big


def _blocks(problem: PairwiseProblem, value: Floats) -> tuple[Floats, Floats, Floats]:
    """Return numbers of rows as (positive, negative), (unlabelled, negative), (positive, unl.)."""
    p, q = problem.n_positive, problem.n_negative
    m = len(problem.factor) - p - q
    first, second, third = np.split(value, [p * q, p * q + m * q])
    return first.reshape(p, q), second.reshape(m, q), third.reshape(p, m)


def _step(problem: PairwiseProblem, at: _State, least: float, careful: bool) -> float:
    """Move the state by one step, in place.

    Parameters
    ----------
    least : float
        Sum of the products that must vanish (:func:`_pairs`) below which the step does not aim.
    careful : bool
        Whether the corrector trusts what the predictor saw only as far as that got. In full it
        takes fewer steps, but goes round in circles in one problem of a thousand.

    Returns
    -------
    length : float
        Of the step; 0 when no further progress is possible.

    Raises
    ------
    numpy.linalg.LinAlgError
        When rounding has made the equations indefinite.
    """
    count = sum(len(x) for x, _ in _pairs(at, problem.hinge))
    _lift(at, problem.hinge, least / count)
    towards = _equations(problem, at)
    mean = _complementarity(at, at, 0.0, problem.hinge) / count
    # The predictor, then the corrector (Mehrotra).
    ahead = towards(0.0, [np.zeros(1)] * 4)
    seen = _reach_of(at, ahead, problem.hinge)
    left = max(_complementarity(at, ahead, seen, problem.hinge), 0.0) / count
    aim = max(mean * min(1.0, left / mean) ** 3, least / count)
    trust = seen**2 if careful else 1.0
    change = towards(aim, [trust * dx * dy for dx, dy in _pairs(ahead, problem.hinge)])
    length = _CLOSE * _reach_of(at, change, problem.hinge)
    if not length > _SHORTEST:
        return 0.0
    for name, value in vars(at).items():
        value += length * getattr(change, name)
    return length


def _equations(problem: PairwiseProblem, at: _State) -> Callable[[float, list[Floats]], _State]:
    """Return a function from an aim of the products, and second-order terms, to the change."""
    p, q, margin, hinge = problem.n_positive, problem.n_negative, problem.margin, problem.hinge
    n = len(problem.factor)
    asked = problem.target - _sides(problem.factor @ at.w, at.d, p, q, margin)
    # Without its slacks each row is (ease + give) dgamma = asked - _sides(df, dd).
    ease, give = at.s / at.gamma, at.xi / at.nu if hinge else 0.5 / problem.cost
    if not hinge:
        at.xi[:] = give * at.gamma
        asked -= at.xi
    stiffness = 1.0 / (ease + give)
    chol, lean, big = _factorise(problem, stiffness, at.lower / at.d + at.upper / at.room)
    points, onto_d = _onto(at.gamma, p, q, margin, n)
    # Stationarity of w = L'A'gamma and of d = B'gamma - upper + lower: what the state misses.
    left_w = problem.factor.T @ points - at.w
    left_d = onto_d - at.upper + at.lower

    def towards(aim: float, second: list[Floats]) -> _State:
        to_s, to_l = (aim - second[0]) / at.gamma, (aim - second[1]) / at.d - at.lower
        to_u = (aim - second[2]) / at.room - at.upper
        to_xi = (aim - second[3]) / at.nu if hinge else np.zeros_like(asked)
        right = asked + to_s - to_xi
        points, onto_d = _onto(stiffness * right, p, q, margin, n)
        rest_d = onto_d + left_d + to_l - to_u
        dw = dpotrs(chol, left_w + problem.factor.T @ (points - lean @ rest_d), lower=1)[0]
        df = problem.factor @ dw
        dd = rest_d / big - lean.T @ df
        dg = stiffness * (right - _sides(df, dd, p, q, margin))
        ds, dx = to_s - at.s - ease * dg, to_xi - at.xi + give * dg
        dl, du = to_l - at.lower * dd / at.d, to_u + at.upper * dd / at.room
        return _State(dw, dd, -dd, ds, dx, dg, -dg, dl, du)

    return towards


def _pairs(at: _State, hinge: bool) -> list[tuple[Floats, Floats]]:
    """Return the pairs whose products must vanish; the first of each may be lifted freely."""
    pairs = [(at.s, at.gamma), (at.lower, at.d), (at.upper, at.room)]
    return [*pairs, (at.xi, at.nu)] if hinge else pairs


def _lift(at: _State, hinge: bool, least: float) -> None:
    """Raise slacks, and multipliers of d's box, whose products lie below ``least`` or the average.

    Left so near zero they make equations that rounding spoils; the next step closes what this
    opens.
    """
    pairs = _pairs(at, hinge)
    mean = sum(float(x @ y) for x, y in pairs) / sum(len(x) for x, _ in pairs)
    for x, y in pairs:
        np.maximum(x, max(least, _LEAST * mean) / y, out=x)


def _reach_of(at: _State, change: _State, hinge: bool) -> float:
    """Return how far the state may move along a change before a bound is met, at most 1."""
    worst = 1.0
    for pair, moves in zip(_pairs(at, hinge), _pairs(change, hinge), strict=True):
        worst = max(worst, *map(_soonest, pair, moves))
    return 1.0 / worst


def _complementarity(at: _State, change: _State, length: float, hinge: bool) -> float:
    """Return the sum of the products that must vanish, after so long a step."""
    total = 0.0
    for (x, y), (dx, dy) in zip(_pairs(at, hinge), _pairs(change, hinge), strict=True):
        total += float(x @ y + length * (x @ dy + dx @ y + length * (dx @ dy)))
    return total


def _certified(problem: PairwiseProblem, state: _State, iterations: int, tol: float) -> Solution:
    """Return (gamma, d) with objectives and KKT violation, nothing taken from the iteration.

    The balance of each d counts relative to all that its rows could pull.
    """
    p, q, margin, cost = problem.n_positive, problem.n_negative, problem.margin, problem.cost
    gamma, d = state.gamma, state.d
    beta, balance = _onto(gamma, p, q, margin, len(problem.factor))
    w = problem.factor.T @ beta
    f = problem.factor @ w
    norm2 = 0.5 * float(w @ w)
    short = problem.target - _sides(f, d, p, q, margin)
    missed, share = np.maximum(short, 0.0), gamma / cost
    dual = float(problem.target @ gamma) - norm2 - float(np.maximum(balance, 0.0).sum())
    if problem.hinge:
        primal = norm2 + float(cost @ missed)
        # gamma = c where the margin is missed, 0 where it is kept: a step along t - A f - B d,
        # clipped to the box, must not move gamma.
        off = np.clip(share + short, 0.0, 1.0) - share
    else:
        primal = norm2 + float(cost @ missed**2)
        dual -= 0.25 * float(gamma @ share)
        off = missed - 0.5 * share
    # All that the rows of each d could pull: those of either block, whatever their sign.
    _, of_negative, of_positive = _blocks(problem, cost)
    most = margin * (of_negative.sum(axis=1) + of_positive.sum(axis=0))
    wish = np.clip(d + balance / most, 0.0, 1.0)
    kkt = max(float(np.abs(off).max()), float(np.abs(wish - d).max(initial=0.0)))
    gap = (primal - dual) / max(abs(primal), abs(dual), np.finfo(float).tiny)
    converged = bool(abs(gap) <= tol and kkt <= 10.0 * tol)
    return Solution(
        beta, f, d.copy(), gamma.copy(), primal, dual, gap, kkt, iterations, converged,
        "interior-point",
    )  # fmt: skip
