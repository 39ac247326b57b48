"""The fast solver of pointwise problems: pairs of rows first, then an exact active set.

SMO finds out cheaply which rows matter; the active set turns its rough answer into the exact one
(or fails, and SMO goes on with a tenth of the tolerance). Without the whole kernel matrix, or with
too many free rows to factorise, SMO alone goes on until the solution passes its own judgement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cad.learners.active_set import active_set
from cad.learners.decomposition import block_size, smo_by_blocks
from cad.learners.kernels import Gram
from cad.learners.problem import Array, Problem, Solution, judge
from cad.learners.smo import smo

_FIRST_EPS = 0.1
_LAST_EPS = 1e-12
_FIRST_MOVES = 1
_ROUNDS = 40
# Largest Cholesky factor of the active set.
_MAX_FREE = 3000
# Without the whole kernel: pairs to this tolerance, then the active set on the unsettled points.
_PART_EPS = 0.011
_PART_ROUNDS = 8
_MAX_PART = 6000
# Strength of the proximal term on the scale, kernel units per squared logit: about the curvature
# that a pair of rows has anyway, so that pairs stay well conditioned.
_RHO = 0.3
_LARGEST_RHO = 1e3
_FIRST_SCALE = 0.5
_EXACT = 1e-10


@dataclass
class _Work:
    """Arrays the numba kernels share, in their notation (:mod:`cad.learners.smo`)."""

    point: NDArray[np.int64]
    sign: Array
    r: Array
    q: Array
    c: Array
    learned: bool
    gamma: Array
    f: Array
    u: Array


def is_pointwise(problem: Problem) -> bool:
    """Whether every row looks at one point with sign +-1 and the extra scalars are (b[, s])."""
    if problem.r != 1 or problem.A.nnz != problem.n_rows or not 1 <= len(problem.lower) <= 2:
        return False
    return bool(
        (np.diff(problem.A.indptr) == 1).all()
        and (np.abs(problem.A.data) == 1).all()
        and np.isinf(problem.lower[0])
        and (problem.lower[1:] == 0).all()
        and np.isinf(problem.upper).all()
    )


def solve_hybrid(
    gram: Gram,
    problem: Problem,
    *,
    tol: float = 1e-6,
    cache_mb: float = 500.0,
    start: Array | None = None,
    polish: bool = True,
) -> Solution:
    """Solve a pointwise problem.

    Parameters
    ----------
    gram : Gram
        Kernel of the training points, whole or on demand.
    problem : Problem
        Pointwise: rows as :func:`cad.learners.problem.pointwise_problem` makes them.
    tol : float
        Relative gap; KKT violation up to ten times it.
    cache_mb : float
        Room for kernel values when the matrix is not held whole, MB.
    start : ndarray, shape (n,), optional
        Coefficients beta of a similar problem.
    polish : bool
        Whether the active set may finish.

    Returns
    -------
    Solution
        The same bits on every run.
    """
    work = _prepare(gram, problem, start)
    iterations = 0
    whole = gram.matrix is not None
    if start is not None and whole and polish:
        solution, iterations = _finish(gram, problem, work, tol, iterations)
        if solution is not None:
            return solution
        work = _prepare(gram, problem, start)
    _balance(work)
    work.f = gram.times(problem.A.T @ work.gamma)
    size = block_size(cache_mb, gram.n_points)
    rho = _RHO * float(np.mean(gram.diagonal()))
    state = np.array([_FIRST_SCALE, rho, _FIRST_SCALE, 0.0])
    # Small costs make small duals, which need a softer anchor to move the scale at all.
    stiffest = _LARGEST_RHO * rho * max(1.0, 1.0 / float(np.median(work.c)))
    exact = whole and polish
    # Pairs get few moves before the active set has its first try: hard margins make them crawl.
    limit = _FIRST_MOVES * work.point.size if exact else 1000 * (work.point.size + 1000)
    most = 300 * (work.point.size + 300) if exact else limit
    eps, best, imbalance = _FIRST_EPS, None, np.inf
    for _ in range(_ROUNDS):
        state[3] = float(-(work.q * work.sign) @ work.gamma)
        state[2] = max(0.0, state[0] + state[1] * state[3])
        done, violation, b = _pairs(gram, size, work, state, eps, limit)
        iterations += done
        work.u[:] = b, state[2] if work.learned else 0.0
        state[0] = state[2]
        if exact:
            solution, iterations = _finish(gram, problem, work, tol, iterations)
            if solution is not None:
                return solution
        elif polish and eps <= _PART_EPS and violation <= eps:
            solution, iterations = _finish_part(gram, problem, work, eps, tol, iterations)
            if solution is not None:
                return solution
        if violation > eps:
            limit = min(4 * limit, most)
            continue
        if work.learned:
            # The anchor has moved: go on at this eps until the scale balances about as well, and
            # stiffen the proximal term only where moving the anchor does not get there.
            before, imbalance = imbalance, _scale_imbalance(work)
            if imbalance > max(tol, eps):
                if imbalance > 0.3 * before and state[1] < stiffest:
                    state[1] *= 10
                    continue
                if done > 0:
                    continue  # else no pair answers to the anchor: only a smaller eps makes one
        if eps <= 2e-4 or not polish:
            best = _judged(gram, problem, work, tol, iterations, "smo", best)
            if best.converged:
                return best
        if eps <= _LAST_EPS:
            break
        eps /= 10
    return _judged(gram, problem, work, tol, iterations, "smo", best)


def _prepare(gram: Gram, problem: Problem, start: Array | None) -> _Work:
    B = problem.B.toarray()
    sign = np.ascontiguousarray(problem.A.data, dtype=float)
    learned = B.shape[1] == 2
    q = -sign * B[:, 1] if learned else np.zeros(len(sign))
    point = problem.A.indices.astype(np.int64)
    gamma = np.zeros(len(sign))
    f = np.zeros(problem.n_points)
    if start is not None:
        gamma = spread_coefficients(problem, start)
        f = gram.times(problem.A.T @ gamma)
    return _Work(
        point, sign, sign * problem.t, q, problem.c.astype(float), learned, gamma, f, np.zeros(2)
    )


def spread_coefficients(problem: Problem, beta: Array) -> Array:
    """Duals gamma in their box whose A' gamma is as near to beta as rows allow.

    Rows of one point and sign are filled from the largest margin on: that one binds first.
    """
    gamma = np.zeros(problem.n_rows)
    rest = np.array(beta, dtype=float)
    if rest.shape != (problem.n_points,):
        raise ValueError(f"start has shape {rest.shape}, must be ({problem.n_points},)")
    order = np.argsort(-problem.t, kind="stable")
    point, sign = problem.A.indices, problem.A.data
    # Rows of a point are few: a second pass serves the second row, and so on.
    seen: set[tuple[int, float]] = set()
    for j in order:
        i = int(point[j])
        if rest[i] * sign[j] > 0 and (i, sign[j]) not in seen:
            gamma[j] = min(rest[i] * sign[j], problem.c[j])
            rest[i] -= sign[j] * gamma[j]
    return gamma


def _balance(work: _Work) -> None:
    """Make sum sign gamma = 0 by lowering rows of the heavier sign, free ones first."""
    excess = float(work.sign @ work.gamma)
    if excess == 0.0:
        return
    side = np.flatnonzero((work.sign * excess > 0) & (work.gamma > 0))
    free_first = side[np.argsort(work.gamma[side] >= work.c[side], kind="stable")]
    left = abs(excess)
    for j in free_first:
        cut = min(work.gamma[j], left)
        work.gamma[j] -= cut
        left -= cut
        if left <= 0:
            break


def _scale_imbalance(work: _Work) -> float:
    """How far sum w gamma is from what s asks (0, or <= 0 at s = 0), relative to its terms."""
    terms = -work.q * work.sign * work.gamma
    total = float(terms.sum())
    if work.u[1] <= 0:
        total = max(total, 0.0)
    size = float(np.abs(terms).sum())
    return abs(total) / size if size > 0 else 0.0


def _pairs(
    gram: Gram, size: int, work: _Work, state: Array, eps: float, limit: int
) -> tuple[int, float, float]:
    """Moves, violation left and intercept of SMO, by blocks without the whole matrix."""
    numbers = (
        work.point, work.sign, work.r, work.q, work.c, work.learned, state, work.gamma, work.f,
        eps, limit,
    )  # fmt: skip
    if gram.matrix is None:
        return smo_by_blocks(gram, size, *numbers)
    done, violation, b = smo(np.ascontiguousarray(gram.matrix), *numbers)
    return int(done), float(violation), float(b)


def _finish(
    gram: Gram, problem: Problem, work: _Work, tol: float, iterations: int
) -> tuple[Solution | None, int]:
    """The exact solution from the active set, or None; ``work`` keeps SMO's state."""
    assert gram.matrix is not None  # nosec B101  # noqa: S101 (the caller's)
    free = int(np.sum((work.gamma > 0) & (work.gamma < work.c)))
    if free > _MAX_FREE:
        return None, iterations
    room = min(_MAX_FREE, len(work.f), 2 * free + 200)
    gamma, f, u = work.gamma.copy(), work.f.copy(), work.u.copy()
    learned = work.learned and (u[1] > 0 or not gamma.any() or free > 0)
    done, violation = active_set(
        np.ascontiguousarray(gram.matrix), work.point, work.sign, work.r, work.q, work.c,
        learned, gamma, f, u, np.zeros(2), _EXACT, 20 * (len(work.point) + 100), room,
        max(1, free // 10),
    )  # fmt: skip
    iterations += int(done)
    if not np.isfinite(violation):
        return None, iterations
    polished = _Work(work.point, work.sign, work.r, work.q, work.c, work.learned, gamma, f, u)
    solution = _judged(gram, problem, polished, tol, iterations, "hybrid", None)
    return (solution if solution.converged else None), iterations


def _finish_part(
    gram: Gram, problem: Problem, work: _Work, eps: float, tol: float, iterations: int
) -> tuple[Solution | None, int]:
    """The exact solution through the points that may still change, the others held fixed.

    Their kernel is small enough to hold. Points outside that turn out to violate are taken in, and
    it is solved again; None when there are too many or the active set gives up.
    """
    part = np.zeros(0, dtype=np.int64)
    trial = _Work(
        work.point, work.sign, work.r, work.q, work.c, work.learned,
        work.gamma.copy(), work.f.copy(), work.u.copy(),
    )  # fmt: skip
    reach = 10 * eps
    for _ in range(_PART_ROUNDS):
        slack = trial.sign * (trial.r + trial.q * trial.u[1] - trial.f[trial.point] - trial.u[0])
        while True:
            unsettled = ((trial.gamma < trial.c) & (slack > -reach)) | (
                (trial.gamma > 0) & (slack < reach)
            )
            chosen = np.union1d(part, trial.point[unsettled])
            if len(chosen) <= _MAX_PART or reach <= eps:
                break
            reach /= 3
        if not 0 < len(chosen) <= _MAX_PART:
            return None, iterations
        part = chosen
        done, violation = _solve_part(gram, trial, chosen)
        iterations += done
        if not np.isfinite(violation):
            return None, iterations
        solution = _judged(gram, problem, trial, tol, iterations, "hybrid", None)
        if solution.converged:
            return solution, iterations
        reach = eps = 0.1 * tol
    return None, iterations


def _solve_part(gram: Gram, trial: _Work, chosen: NDArray[np.intp]) -> tuple[int, float]:
    place = np.full(len(trial.f), -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    inside = place[trial.point] >= 0
    rows = np.flatnonzero(inside)
    K = gram.kernel.between(gram.X[chosen], gram.X[chosen])
    outside = (trial.sign * trial.gamma)[~inside]
    rest = np.array([outside.sum(), trial.q[~inside] @ outside])
    gamma = trial.gamma[rows]
    free = int(np.sum((gamma > 0) & (gamma < trial.c[rows])))
    done, violation = active_set(
        K, place[trial.point[rows]], trial.sign[rows], trial.r[rows], trial.q[rows],
        trial.c[rows], trial.learned and trial.u[1] > 0, gamma, trial.f[chosen], trial.u, rest,
        _EXACT, 20 * (len(rows) + 100), min(len(chosen), 2 * free + 200), max(1, free // 10),
    )  # fmt: skip
    trial.gamma[rows] = gamma
    return int(done), float(violation)


def _judged(
    gram: Gram,
    problem: Problem,
    work: _Work,
    tol: float,
    iterations: int,
    solver: str,
    best: Solution | None,
) -> Solution:
    """The solution as it stands, or the better one so far."""
    f = gram.times(problem.A.T @ work.gamma)
    work.f[:] = f
    u = work.u[: len(problem.lower)]
    solution = judge(
        problem, f, work.gamma.copy(), u.copy(),
        iterations=iterations, solver=solver, gap_tol=tol, kkt_tol=10 * tol,
    )  # fmt: skip
    if best is not None and best.gap < solution.gap and not solution.converged:
        return best
    return solution
