"""Pairwise hinge problems: thousands of pair rows that live on about a hundred points.

Positives p, negatives q and unlabelled points m give the rows of docs/methods.md 2,

    f_p - f_q >= 1,    f_m - f_q - M d_m >= 1 - M,    f_p - f_m + M d_m >= 1,    0 <= d <= 1,

and a primal-dual interior point (Mehrotra's predictor and corrector) solves them all at once. A
row touches two points and at most one d, so the normal equations of the rows are one weighted
graph over the points: its matrix is written down from row sums, d is eliminated by its diagonal,
and each step costs O(pairs + n^3) with n the number of *points*. No matrix over pairs exists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.lapack import dpstrf

from cad.learners.solvers.interior import Rows, State, reach, step, verdict
from cad.learners.solvers.problem import Problem, Solution

Floats = NDArray[np.float64]
# Share of the gap asked for that the products of an iterate aim at.
_AIM = 0.01
_CAREFUL_AFTER = 20


@dataclass(frozen=True)
class PairwiseProblem:
    """Hold one SVMROC or SSLROC problem; points in the order positives, negatives, unlabelled.

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
        """Return the number of points without a label."""
        return len(self.factor) - self.n_positive - self.n_negative

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of pq, mq and pm rows."""
        p, q, m = self.n_positive, self.n_negative, self.n_unlabelled
        return p * q, m * q, p * m

    def with_costs(self, labelled: float, unlabelled: float) -> PairwiseProblem:
        """Return the same problem with other costs: the next point of a path."""
        return replace(self, labelled_cost=labelled, unlabelled_cost=unlabelled)

    def costs(self) -> Floats:
        """Return the cost of every row, (rows,)."""
        p, q, m = self._split(self.weight)
        return np.concatenate(
            [
                self.labelled_cost * np.outer(p, q).ravel(),
                self.unlabelled_cost * np.outer(m, q).ravel(),
                self.unlabelled_cost * np.outer(p, m).ravel(),
            ]
        )

    def targets(self) -> Floats:
        """Return the margin t of every row, (rows,)."""
        return np.repeat([1.0, 1.0 - self.margin, 1.0], self.sizes)

    def general(self) -> Problem:
        """Return the same rows in the general form of docs/methods.md 2, for reference solvers."""
        p, q, m = self.n_positive, self.n_negative, self.n_unlabelled
        of_p, of_q, of_m = np.arange(p), p + np.arange(q), p + q + np.arange(m)
        plus = np.concatenate([np.repeat(of_p, q), np.repeat(of_m, q), np.repeat(of_p, m)])
        minus = np.concatenate([np.tile(of_q, p), np.tile(of_q, m), np.tile(of_m, p)])
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
    rows = Rows(
        np.ascontiguousarray(problem.factor), problem.n_positive, problem.n_negative,
        float(problem.margin), problem.targets(), problem.costs(), problem.norm == 1,
    )  # fmt: skip
    state = _start(problem, rows, start)
    best: Solution | None = None
    for iteration in range(max_iter + 1):
        solution = _judged(verdict(rows, state.gamma, state.d), state, iteration, tol)
        # Round-off can spoil the last steps of an ill-conditioned problem: keep the best.
        if best is None or _merit(solution) < _merit(best):
            best = solution
        if solution.converged or iteration == max_iter:
            break
        try:
            # Stiffer equations than the gap needs spoil it, because multipliers take up rounding.
            least = _AIM * tol * abs(solution.primal) if abs(solution.gap) > tol else 0.0
            length = step(rows, state, least, iteration >= _CAREFUL_AFTER)
        except np.linalg.LinAlgError:
            break
        if length == 0.0:
            break
    return best if best is not None else solution


def _merit(solution: Solution) -> float:
    return max(abs(solution.gap), solution.kkt / 10.0)


def _start(problem: PairwiseProblem, rows: Rows, start: Solution | None) -> State:
    """Return a start in the middle of every box, or near an earlier solution."""
    factor = problem.factor
    if start is None:
        w, d, near = np.zeros(factor.shape[1]), np.full(problem.n_unlabelled, 0.5), 1.0
    else:
        w, d, near = factor.T @ start.beta, np.clip(start.u, 0.1, 0.9), 0.1
    asked = reach(factor @ w, d, problem.n_positive, problem.n_negative, float(problem.margin))
    short, cost = rows.target - asked, rows.cost
    s, xi = np.maximum(-short, 0.0) + near, np.maximum(short, 0.0) + near
    if problem.norm == 1:
        share = 0.5 if start is None else np.clip(start.gamma / cost, 0.1, 0.9)
        gamma = cost * share
    else:
        gamma = 2.0 * cost * xi
    price = float((s * gamma).mean())
    return State(w, d, 1.0 - d, s, xi, gamma, cost - gamma, price / d, price / (1.0 - d))


def _judged(
    found: tuple[Floats, Floats, float, float, float], state: State, iterations: int, tol: float
) -> Solution:
    beta, f, primal, dual, kkt = found
    gap = (primal - dual) / max(abs(primal), abs(dual), np.finfo(float).tiny)
    return Solution(
        beta=beta,
        f=f,
        u=state.d.copy(),
        gamma=state.gamma.copy(),
        primal=primal,
        dual=dual,
        gap=gap,
        kkt=kkt,
        iterations=iterations,
        converged=bool(abs(gap) <= tol and kkt <= 10.0 * tol),
        solver="interior-point",
    )
