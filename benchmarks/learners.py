"""Learners against their peers: ``python -m benchmarks.learners [--small]``.

Every row is a ratio of medians measured in this process on one thread. Time is what the process
used of a processor, so that neighbours on a shared machine do not count; seconds are printed
beside the ratios and mean nothing elsewhere. "--small" leaves out the problems of 20,000 and 50,000
points, most of whose time is scikit-learn's.

The generator (:func:`generate`): 20 standard normal features; 20 % of the samples are positive and
their mean is shifted by .6 in half of the features; a latent 1 / (1 + exp(-(.8 * (x1 + .. + x6)
- 2))); four readers = latent + N(0, .2), clipped and rounded to the five-point scale; p their mean,
eta = .125. The SVC peer learns p > .5 with the same kernel matrix, C and cache.
"""

# ruff: noqa: E402  (threads are limited before numpy starts)
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import qpsolvers
from scipy import sparse
from scipy.special import expit
from sklearn.svm import SVC

from cad.learners.cvxopt_solver import solve_cvxopt
from cad.learners.kernels import Gram, Kernel
from cad.learners.pairwise import PairwiseProblem, kernel_factor, solve_pairwise
from cad.learners.paths import leave_groups_out, restrict
from cad.learners.pointwise import solve_hybrid
from cad.learners.probabilistic import probabilistic_problem
from cad.learners.problem import Problem, Solution
from cad.learners.soft_labels import soft_labels

Array = np.ndarray
N_PATIENTS = 49
CACHE_MB = 500.0


def generate(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Features (n, 20) and readers' mean probabilities (n,), as the module says."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.2
    X = rng.normal(size=(n, 20))
    X[:, :10] += 0.6 * positive[:, None]
    latent = expit(0.8 * X[:, :6].sum(axis=1) - 2)
    scores = np.clip(latent[:, None] + rng.normal(0, 0.2, (n, 4)), 0, 1)
    return X, (np.round(4 * scores) / 4).mean(axis=1)


def psvm(p: Array, C: float) -> Problem:
    """P-SVM with learned scale, eta = .125."""
    cost = np.full(len(p), C)
    return probabilistic_problem(soft_labels(p, 0.125), cost, cost, None)


def timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median processor seconds, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds)), result


def dual_qp(K: Array, problem: Problem) -> dict[str, Any]:
    """The pointwise dual as a dense QP for qpsolvers."""
    A, B = problem.A.toarray(), problem.B.toarray()
    return {
        "P": A @ K @ A.T + 1e-12 * np.eye(len(A)),
        "q": -problem.t,
        "A": B[:, :1].T,
        "b": np.zeros(1),
        "G": B[:, 1:].T,
        "h": np.zeros(B.shape[1] - 1),
        "lb": np.zeros(len(A)),
        "ub": problem.c,
    }


def peer(name: str, qp: dict[str, Any], repeats: int) -> float:
    """Median seconds of a QP solver."""
    problem = qpsolvers.Problem(**qp)
    if name in ("clarabel", "osqp"):
        problem = qpsolvers.Problem(
            **{**qp, **{k: sparse.csc_matrix(qp[k]) for k in ("P", "G", "A") if k in qp}}
        )
    seconds, _ = timed(lambda: qpsolvers.solve_problem(problem, solver=name), repeats)
    return seconds


class Table:
    """Prints rows as they are measured and remembers whether each holds."""

    def __init__(self) -> None:
        self.missed = 0
        print(f"{'case':46} {'measure':34} {'measured':>10} {'must be':>10}")

    def row(self, case: str, measure: str, value: float, sign: str, limit: float) -> None:
        """One requirement: value >= limit or <= limit."""
        holds = value >= limit if sign == ">=" else value <= limit
        self.missed += not holds
        mark = "" if holds else "  MISSED"
        print(f"{case:46} {measure:34} {value:10.3g} {sign:>4} {limit:5.3g}{mark}", flush=True)

    def note(self, case: str, text: str) -> None:
        """Something measured that has no limit."""
        print(f"{case:46} {text}", flush=True)


def check(table: Table, case: str, solution: Solution) -> None:
    """Rows for the solution's own verdict."""
    table.row(case, "relative gap", abs(solution.gap), "<=", 1e-6)
    table.row(case, "KKT violation", solution.kkt, "<=", 1e-5)


def small(table: Table, n: int, sigma: float, C: float, limits: dict[str, float]) -> None:
    """One P-SVM against cvxopt, the QP codes and SVC on the same kernel matrix."""
    case = f"P-SVM n={n} sigma={sigma:g} C={C:g}"
    X, p = generate(n)
    K = Kernel("rbf", 1 / (2 * sigma**2)).between(X, X)
    problem, gram = psvm(p, C), Gram(Kernel("precomputed"), K, K)
    ours, solution = timed(lambda: solve_hybrid(gram, problem), 15)
    svc, _ = timed(lambda: SVC(C=C, kernel="precomputed").fit(K, p > 0.5), 15)
    reference, exact = timed(lambda: solve_cvxopt(K, problem), 3 if n < 500 else 1)
    check(table, case, solution)
    again = solve_hybrid(gram, problem)
    same = again.gamma.tobytes() == solution.gamma.tobytes()
    table.row(case, "same bits twice", float(same), ">=", 1)
    difference = abs(solution.primal - exact.primal) / exact.primal
    table.row(case, "objective against cvxopt, relative", difference, "<=", 1e-6)
    table.row(case, "times faster than cvxopt", reference / ours, ">=", limits["cvxopt"])
    if "svc" in limits:
        table.row(case, "time / SVC", ours / svc, "<=", limits["svc"])
    else:
        table.note(case, f"time / SVC {ours / svc:.2g}")
    qp = dual_qp(K, problem)
    for name in ("piqp", "clarabel", "osqp"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = peer(name, qp, 3 if n < 500 else 1)
        if name in limits:
            table.row(case, f"times faster than {name}", seconds / ours, ">=", limits[name])
        else:
            table.note(case, f"times faster than {name} {seconds / ours:.3g}")
    table.note(case, f"seconds here: ours {ours:.2e}, SVC {svc:.2e}, cvxopt {reference:.2e}")


def leave_one_out(table: Table, sigma: float, C: float, limit: float) -> None:
    """All 49 refits against one cvxopt solve of the full problem, kernels excluded."""
    n = 350
    case = f"leave one patient out, sigma={sigma:g} C={C:g}"
    X, p = generate(n)
    K = Kernel("rbf", 1 / (2 * sigma**2)).between(X, X)
    problem = psvm(p, C)
    patient = np.arange(n) * N_PATIENTS // n
    full = solve_hybrid(Gram(Kernel("precomputed"), K, K), problem)
    seconds, folds = timed(lambda: leave_groups_out(K, problem, patient, full=full), 3)
    reference, _ = timed(lambda: solve_cvxopt(K, problem), 3)
    table.row(case, "49 fits / one cvxopt solve", seconds / reference, "<=", limit)
    worst = 0.0
    for name, solution in folds.items():
        stay = np.flatnonzero(patient != name)
        part = np.ascontiguousarray(K[np.ix_(stay, stay)])
        cold = solve_hybrid(Gram(Kernel("precomputed"), part, part), restrict(problem, stay))
        worst = max(worst, abs(cold.primal - solution.primal) / cold.primal)
    table.row(case, "objective against cold, worst fold", worst, "<=", 1e-6)


def large(table: Table, sizes: tuple[int, ...], C: float = 1.0, sigma: float = 4.0) -> None:
    """Columns on demand against SVC with the same cache; growth exponent over all sizes."""
    seconds_of = {}
    for n in sizes:
        case = f"P-SVM n={n} sigma={sigma:g} C={C:g}, on demand"
        X, p = generate(n)
        gamma = 1 / (2 * sigma**2)
        gram, problem = Gram(Kernel("rbf", gamma), X, None), psvm(p, C)
        ours, solution = timed(lambda g=gram, q=problem: solve_hybrid(g, q, cache_mb=CACHE_MB), 1)
        seconds_of[n] = ours
        check(table, case, solution)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        table.row(case, "peak memory of this process, GB", peak, "<=", 2)
        machine = SVC(C=C, gamma=gamma, cache_size=CACHE_MB)
        svc, _ = timed(lambda m=machine, x=X, y=p > 0.5: m.fit(x, y), 1)
        table.row(case, "time / SVC, same cache", ours / svc, "<=", 3)
        table.note(case, f"seconds here: ours {ours:.1f}, SVC {svc:.1f}")
    if len(sizes) > 1:
        slope = np.polyfit(np.log(list(seconds_of)), np.log(list(seconds_of.values())), 1)[0]
        table.note("growth", f"time ~ n^{slope:.2f} over n = {', '.join(map(str, sizes))}")


def sslroc(table: Table, norm: int) -> None:
    """25 + 25 labelled, 50 unlabelled, M = 1, C = 1, against Clarabel on the same rows."""
    case = f"SSLROC norm {norm}, 25+25 labelled, 50 not"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 20))
    X[:25, :10] += 0.6
    X[50:75, :10] += 0.6
    K = Kernel("rbf", 1 / 32).between(X, X)
    problem = PairwiseProblem(kernel_factor(K), 25, 25, np.ones(100), 0.5, 0.5, 1.0, norm)
    ours, solution = timed(lambda: solve_pairwise(problem), 31)
    qp = primal_qp(problem)
    settings = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    clarabel, answer = timed(lambda: qpsolvers.solve_problem(qp, solver="clarabel", **settings), 9)
    objective = float(0.5 * answer.x @ (qp.P @ answer.x) + qp.q @ answer.x)
    check(table, case, solution)
    difference = abs(solution.primal - objective) / objective
    table.row(case, "objective against Clarabel", difference, "<=", 1e-6)
    table.row(case, "milliseconds", 1e3 * ours, "<=", 100)
    table.row(case, "times faster than Clarabel", clarabel / ours, ">=", 10)


def primal_qp(problem: PairwiseProblem) -> qpsolvers.Problem:
    """min over w, f, d, xi of 1/2 |w|^2 + loss(xi) with f = L w: sparse rows, as Clarabel likes."""
    rows = problem.general()
    n, rank = problem.factor.shape
    m, k = rows.n_rows, len(rows.lower)
    loss = 2 * rows.c if rows.r == 2 else np.zeros(m)
    P = sparse.diags_array(np.concatenate([np.ones(rank), np.zeros(n + k), loss])).tocsc()
    q = np.concatenate([np.zeros(rank + n + k), np.zeros(m) if rows.r == 2 else rows.c])
    nothing = sparse.csr_array((m, rank))
    G = sparse.hstack([nothing, -rows.A, -rows.B, -sparse.eye_array(m)]).tocsc()
    pad = sparse.csr_array((n, k + m))
    A = sparse.hstack([sparse.csr_array(problem.factor), -sparse.eye_array(n), pad]).tocsc()
    free = np.full(rank + n, np.inf)
    lower = np.concatenate([-free, rows.lower, np.zeros(m)])
    upper = np.concatenate([free, rows.upper, np.full(m, np.inf)])
    return qpsolvers.Problem(
        *(sparse.csc_matrix(x) if sparse.issparse(x) else x for x in (P, q, G)),
        -rows.t,
        sparse.csc_matrix(A),
        np.zeros(n),
        lower,
        upper,
    )


def warm_up() -> None:
    """Compile (or load) every numba kernel, and import the peers."""
    X, p = generate(120)
    K = Kernel("rbf", 1 / 32).between(X, X)
    solve_pairwise(PairwiseProblem(kernel_factor(K), 30, 30, np.ones(120), 0.5, 0.5, 1.0, 1))
    solve_hybrid(Gram(Kernel("precomputed"), K, K), psvm(p, 1.0))
    solve_hybrid(Gram(Kernel("rbf", 1 / 32), X, None), psvm(p, 1.0), cache_mb=1)
    SVC(kernel="precomputed").fit(K, p > 0.5)
    solve_cvxopt(K, psvm(p, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("piqp", "clarabel", "osqp"):
            peer(name, dual_qp(K, psvm(p, 1.0)), 1)


def main() -> int:
    """Print the table; the exit code says whether every row holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="leave out n = 20,000 and 50,000")
    arguments = parser.parse_args()
    warm_up()
    table = Table()
    small(table, 350, 4, 100, {"cvxopt": 50, "svc": 1.5})
    small(table, 1000, 4, 100, {"cvxopt": 200, "piqp": 15, "svc": 1.5})
    small(table, 350, 2**5, 2**13, {"cvxopt": 10, "piqp": 1})
    leave_one_out(table, 4, 100, 1)
    leave_one_out(table, 2**5, 2**13, 3)
    for norm in (1, 2):
        sslroc(table, norm)
    large(table, (5000,) if arguments.small else (5000, 20_000, 50_000))
    print(f"{table.missed} rows missed" if table.missed else "every row holds")
    return 1 if table.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
