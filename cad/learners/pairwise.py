"""Pairwise hinge problems: thousands of pair rows that live on about a hundred points.

Positives p, negatives q and unlabelled points m give the rows of METHODS 2,

    f_p - f_q >= 1,    f_m - f_q - M d_m >= 1 - M,    f_p - f_m + M d_m >= 1,    0 <= d <= 1,

and a primal-dual interior point (Mehrotra's predictor and corrector) solves them all at once. A
row touches two points and at most one d, so the normal equations of the rows are one weighted
graph over the points: its matrix is written down from row sums, d is eliminated by its diagonal,
and each step costs O(pairs + n^3) with n the number of *points*. No matrix over pairs exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

from cad.learners.problem import Problem, Solution

Floats = NDArray[np.float64]
Solver = Callable[[Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class PairwiseProblem:
    """One SVMROC or SSLROC problem; points in the order positives, negatives, unlabelled.

    Attributes
    ----------
    factor : ndarray (n, r)
        L with K = L L'; :func:`kernel_factor` makes it.
    n_positive, n_negative : int
        The rest of the n points are unlabelled.
    weight : ndarray (n,)
        Weight of each point, > 0; the cost of a pair is the product of its two weights.
    labelled_cost, unlabelled_cost : float
        Cost c of a pair of labelled points, and of a pair with an unlabelled point.
    margin : float
        M of [W14] (3): what changing d from 0 to 1 does to the margins.
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
    def n_unlabelled(self) -> int:
        """Points without a label."""
        return len(self.factor) - self.n_positive - self.n_negative

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows of the three blocks: positive-negative, unlabelled-negative, positive-unlabelled."""
        p, q, m = self.n_positive, self.n_negative, self.n_unlabelled
        return p * q, m * q, p * m

    def with_costs(self, labelled: float, unlabelled: float) -> PairwiseProblem:
        """Return the same problem with other costs: the next point of a path."""
        return replace(self, labelled_cost=labelled, unlabelled_cost=unlabelled)

    def costs(self) -> Floats:
        """Cost of every row, (rows,)."""
        p, q, m = self._split(self.weight)
        return np.concatenate(
            [
                self.labelled_cost * np.outer(p, q).ravel(),
                self.unlabelled_cost * np.outer(m, q).ravel(),
                self.unlabelled_cost * np.outer(p, m).ravel(),
            ]
        )

    def targets(self) -> Floats:
        """Margin t of every row, (rows,)."""
        return np.repeat([1.0, 1.0 - self.margin, 1.0], self.sizes)

    def rows(self, f: Floats, d: Floats) -> Floats:
        """What every row asks of scores f (n,) and soft labels d (unlabelled,), (rows,)."""
        p, q, m = self._split(f)
        pull = self.margin * d
        return np.concatenate(
            [
                np.subtract.outer(p, q).ravel(),
                np.subtract.outer(m - pull, q).ravel(),
                np.subtract.outer(p, m - pull).ravel(),
            ]
        )

    def blocks(self, value: Floats) -> tuple[Floats, Floats, Floats]:
        """One number a row as three matrices (p, q), (m, q), (p, m)."""
        p, q, m = self.n_positive, self.n_negative, self.n_unlabelled
        a, b, _ = self.sizes
        return (
            value[:a].reshape(p, q),
            value[a : a + b].reshape(m, q),
            value[a + b :].reshape(p, m),
        )

    def columns(self, value: Floats, magnitudes: bool = False) -> tuple[Floats, Floats]:
        """Transpose of :meth:`rows`: onto the points (n,) and onto d (unlabelled,).

        With ``magnitudes`` the entries of d's columns count without their signs.
        """
        pn, un, pu = self.blocks(value)
        from_negative, from_positive = un.sum(1), pu.sum(0)
        points = np.concatenate(
            [pn.sum(1) + pu.sum(1), -pn.sum(0) - un.sum(0), from_negative - from_positive]
        )
        signed = from_positive + from_negative if magnitudes else from_positive - from_negative
        return points, self.margin * signed

    def general(self) -> Problem:
        """The same rows in the general form of METHODS 2, for reference solvers."""
        p, q, m = self.n_positive, self.n_negative, self.n_unlabelled
        of_p, of_q, of_m = np.arange(p), p + np.arange(q), p + q + np.arange(m)
        plus = np.concatenate([np.repeat(of_p, q), np.repeat(of_m, q), np.repeat(of_p, m)])
        minus = np.concatenate([np.tile(of_q, p), np.tile(of_q, m), np.tile(of_m, p)])
        a, b, c = self.sizes
        row = np.arange(a + b + c)
        one = np.ones(len(row))
        n = p + q + m
        A = sparse.csr_array((one, (row, plus)), shape=(len(row), n)) - sparse.csr_array(
            (one, (row, minus)), shape=(len(row), n)
        )
        pull = np.repeat([-self.margin, self.margin], [b, c])
        which = np.concatenate([np.repeat(np.arange(m), q), np.tile(np.arange(m), p)])
        B = sparse.csr_array((pull, (row[a:], which)), shape=(len(row), m))
        zero = np.zeros(m)
        return Problem(A.tocsr(), B, self.targets(), self.costs(), zero, zero + 1.0, self.norm)

    def _split(self, value: Floats) -> tuple[Floats, Floats, Floats]:
        p, pq = self.n_positive, self.n_positive + self.n_negative
        return value[:p], value[p:pq], value[pq:]


def kernel_factor(kernel: Floats) -> Floats:
    """Return L (n, r) with K = L L' for a positive semi-definite kernel matrix (n, n).

    Pivoted Cholesky: r is the numerical rank, so a linear kernel of few features stays small.
    """
    n = len(kernel)
    tolerance = n * np.finfo(float).eps * max(float(np.diag(kernel).max()), np.finfo(float).tiny)
    upper, pivots, rank, _ = dpstrf(np.asarray(kernel, dtype=float), tol=tolerance, lower=0)
    factor = np.zeros((n, rank))
    factor[pivots - 1] = np.triu(upper)[:rank].T
    return factor


def solve_pairwise(
    problem: PairwiseProblem,
    tol: float = 1e-6,
    max_iter: int = 100,
    start: Solution | None = None,
) -> Solution:
    """Solve a pairwise problem by a primal-dual interior point in point space.

    Parameters
    ----------
    problem : PairwiseProblem
    tol : float
        Relative gap to reach; the KKT violation has to reach ten times this.
    max_iter : int
    start : Solution, optional
        Solution of a problem of the same shape (another C, another M) to start near.

    Returns
    -------
    Solution
        Deterministic: the same bits for the same problem and start.
    """
    state = _State(problem, start)
    best: Solution | None = None
    for iteration in range(max_iter + 1):
        solution = _judge(problem, state.gamma, state.d, iteration, tol)
        # Round-off can spoil the last steps of an ill-conditioned problem: keep the best.
        if best is None or _merit(solution) < _merit(best):
            best = solution
        if solution.converged or iteration == max_iter or not state.step():
            break
    return best if best is not None else solution


def _merit(solution: Solution) -> float:
    return max(abs(solution.gap), solution.kkt / 10.0)


class _State:
    """The interior point: (w, d) with slacks s, xi and multipliers gamma, nu, lower, upper."""

    def __init__(self, problem: PairwiseProblem, start: Solution | None) -> None:
        self.problem = problem
        self.cost = problem.costs()
        self.target = problem.targets()
        self.hinge = problem.norm == 1
        factor = problem.factor
        if start is None:
            self.w = np.zeros(factor.shape[1])
            self.d = np.full(problem.n_unlabelled, 0.5)
            near = 1.0
        else:
            self.w = factor.T @ start.beta
            self.d = np.clip(start.u, 0.1, 0.9)
            near = 0.1
        short = self.target - problem.rows(factor @ self.w, self.d)
        self.s = np.maximum(-short, 0.0) + near
        self.xi = np.maximum(short, 0.0) + near
        if self.hinge:
            share = 0.5 if start is None else np.clip(start.gamma / self.cost, 0.1, 0.9)
            self.gamma = self.cost * share
            self.nu = self.cost - self.gamma
        else:
            self.gamma = 2.0 * self.cost * self.xi
            self.nu = np.ones(0)
        price = float((self.s * self.gamma).mean())
        self.lower = np.full(problem.n_unlabelled, price) / self.d
        self.upper = np.full(problem.n_unlabelled, price) / (1.0 - self.d)

    def step(self) -> bool:
        """Take one predictor-corrector step; False when no further progress is possible."""
        p = self.problem
        xi = self.xi if self.hinge else self.gamma / (2.0 * self.cost)
        free = 1.0 - self.d
        complementarity = float(self.s @ self.gamma + self.lower @ self.d + self.upper @ free)
        count = len(self.s) + 2 * len(self.d)
        if self.hinge:
            complementarity += float(xi @ self.nu)
            count += len(xi)
            soft = xi / self.nu
        else:
            soft = 0.5 / self.cost
        mu = complementarity / count
        stiffness = 1.0 / (self.s / self.gamma + soft)
        theta = self.lower / self.d + self.upper / free
        solve = self._normal_equations(stiffness, theta)
        if solve is None:
            return False

        points, onto_d = p.columns(self.gamma)
        dual_w = self.w - p.factor.T @ points
        dual_d = self.upper - self.lower - onto_d
        infeasible = p.rows(p.factor @ self.w, self.d) + xi - self.s - self.target

        def direction(rs: Floats, rx: Floats, rl: Floats, ru: Floats) -> tuple[Floats, ...]:
            # Residuals of s gamma, xi nu, d lower, (1-d) upper; all else follows by elimination.
            right = rs / self.gamma - infeasible
            if self.hinge:
                right = right - rx / self.nu
            add_points, add_d = p.columns(stiffness * right)
            dw, dd = solve(
                p.factor.T @ add_points - dual_w,
                add_d - dual_d + rl / self.d - ru / free,
            )
            moved = p.rows(p.factor @ dw, dd)
            dgamma = stiffness * (right - moved)
            ds = (rs - self.s * dgamma) / self.gamma
            dxi = (rx + xi * dgamma) / self.nu if self.hinge else np.zeros(0)
            dl = (rl - self.lower * dd) / self.d
            du = (ru + self.upper * dd) / free
            return dw, dd, dgamma, ds, dxi, dl, du

        zero_x = xi * self.nu if self.hinge else np.zeros(0)
        affine = direction(-self.s * self.gamma, -zero_x, -self.d * self.lower, -free * self.upper)
        a = self._length(affine)
        _, dd, dg, ds, dx, dl, du = affine
        ahead = float((self.s + a * ds) @ (self.gamma + a * dg))
        ahead += float((self.d + a * dd) @ (self.lower + a * dl))
        ahead += float((free - a * dd) @ (self.upper + a * du))
        if self.hinge:
            ahead += float((xi + a * dx) @ (self.nu - a * dg))
        centre = mu * min(1.0, max(ahead, 0.0) / (count * mu)) ** 3
        final = direction(
            centre - self.s * self.gamma - ds * dg,
            centre - zero_x + dx * dg if self.hinge else zero_x,
            centre - self.d * self.lower - dd * dl,
            centre - free * self.upper + dd * du,
        )
        a = min(1.0, 0.995 * self._length(final))
        if not a > 1e-10:
            return False
        self._move(final, a)
        return True

    def _normal_equations(self, stiffness: Floats, theta: Floats) -> Solver | None:
        """Factor I + L' S L, S being the rows' graph after eliminating d; give its solver."""
        p = self.problem
        factor = p.factor
        a, b = p.n_positive, p.n_positive + p.n_negative
        pn, un, pu = p.blocks(stiffness)
        n = len(factor)
        graph = np.zeros((n, n))
        graph[:a, a:b] = -pn
        graph[b:, a:b] = -un
        graph[:a, b:] = -pu
        graph += graph.T
        graph[np.diag_indices(n)] = -graph.sum(1)
        from_negative, from_positive = un.sum(1), pu.sum(0)
        big = p.margin * p.margin * (from_negative + from_positive) + theta
        cross = np.zeros((n, p.n_unlabelled))
        cross[:a] = p.margin * pu
        cross[a:b] = p.margin * un.T
        cross[np.arange(b, n), np.arange(n - b)] = -p.margin * (from_negative + from_positive)
        lean = cross / big
        graph -= lean @ cross.T
        system = factor.T @ (graph @ factor)
        system[np.diag_indices(len(system))] += 1.0
        try:
            chol = cho_factor(system, check_finite=False)
        except np.linalg.LinAlgError:
            return None

        def solve(rw: Floats, rd: Floats) -> tuple[Floats, Floats]:
            dw = cho_solve(chol, rw - factor.T @ (lean @ rd), check_finite=False)
            return dw, rd / big - lean.T @ (factor @ dw)

        return solve

    def _length(self, direction: tuple[Floats, ...]) -> float:
        _, dd, dg, ds, dx, dl, du = direction
        pairs = [(self.s, ds), (self.gamma, dg), (self.d, dd), (1.0 - self.d, -dd)]
        pairs += [(self.lower, dl), (self.upper, du)]
        if self.hinge:
            pairs += [(self.xi, dx), (self.nu, -dg)]
        worst = max((float((-dv / v).max()) for v, dv in pairs if len(v)), default=0.0)
        return 1.0 / worst if worst > 1.0 else 1.0

    def _move(self, direction: tuple[Floats, ...], a: float) -> None:
        dw, dd, dg, ds, dx, dl, du = direction
        self.w = self.w + a * dw
        self.d = self.d + a * dd
        self.gamma = self.gamma + a * dg
        self.s = self.s + a * ds
        self.lower = self.lower + a * dl
        self.upper = self.upper + a * du
        if self.hinge:
            self.xi = self.xi + a * dx
            self.nu = self.nu - a * dg


def _judge(
    problem: PairwiseProblem, gamma: Floats, d: Floats, iterations: int, tol: float
) -> Solution:
    """Objectives, gap and KKT violation of (gamma, d), nothing taken from the iteration."""
    cost, target = problem.costs(), problem.targets()
    beta, pull = problem.columns(gamma)
    w = problem.factor.T @ beta
    norm2 = 0.5 * float(w @ w)
    f = problem.factor @ w
    short = target - problem.rows(f, d)
    loss = np.maximum(short, 0.0)
    boxed = float(np.maximum(pull, 0.0).sum())
    if problem.norm == 1:
        primal = norm2 + float(cost @ loss)
        dual = float(target @ gamma) - norm2 - boxed
        wish = np.clip(gamma + cost * short, 0.0, cost)
    else:
        primal = norm2 + float(cost @ (loss * loss))
        dual = float(target @ gamma) - norm2 - boxed - float((gamma * gamma / (4.0 * cost)).sum())
        wish = 2.0 * cost * loss
    kkt = float(np.abs((wish - gamma) / cost).max(initial=0.0)) / problem.norm
    if len(d):
        # The pull on each d, in units of all its rows could pull: none inside the box, one-sided
        # at its ends.
        _, most = problem.columns(cost, magnitudes=True)
        kkt = max(kkt, float(np.abs(np.clip(d + pull / most, 0.0, 1.0) - d).max()))
    gap = (primal - dual) / max(abs(primal), abs(dual), np.finfo(float).tiny)
    return Solution(
        beta=beta,
        f=f,
        u=d,
        gamma=gamma,
        primal=primal,
        dual=dual,
        gap=gap,
        kkt=kkt,
        iterations=iterations,
        converged=bool(abs(gap) <= tol and kkt <= 10.0 * tol),
        solver="interior-point",
    )
