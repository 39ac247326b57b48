"""Compare learners with their peers: ``python -m benchmarks.learners [--small | --cold]``.

The functions that users call are timed. ``fit`` (with its reading of labels, its kernel and its
checks) is compared with ``SVC.fit`` on p > .5 with the same kernel, C and cache. ``predict_proba``
and a ``GridSearchCV`` are timed as well. The solvers alone are compared with cvxopt, PIQP, Clarabel
and OSQP on the same dual problem.

A row is a ratio of medians of runs that take turns in this process, on one thread. Time is the
processor time of the process. On a shared machine ratios still move by a tenth or two, because
neighbours use the cache. The load is printed. "--small" leaves out 20,000 and 50,000 points.
"--cold" measures only the first fit, each time in a fresh process with an empty compile cache.

The generator (:func:`generate`) draws d standard normal features. 20 % of the samples are positive,
and their mean is shifted by .6 in half of the features. The latent value is 1 / (1 + exp(-(.8 * (x1
+ .. + x6) - 2))). Four readers state the latent + N(0, .2), clipped and rounded to the five-point
scale. p is their mean, and eta is .125.
"""

# ruff: noqa: E402  (threads are limited before numpy starts)
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import qpsolvers
from scipy import sparse
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from cad.learners import ProbabilisticSVC
from cad.learning.learners.soft_labels import probabilistic_problem, soft_labels
from cad.learning.learners.solvers.cvxopt_solver import solve_cvxopt
from cad.learning.learners.solvers.kernels import Gram, Kernel
from cad.learning.learners.solvers.pairwise import PairwiseProblem, kernel_factor, solve_pairwise
from cad.learning.learners.solvers.pointwise import solve_hybrid
from cad.learning.learners.solvers.problem import Problem, Solution
from cad.learning.learners.warm import warm

Array = np.ndarray
CACHE_MB = 500.0
# Largest number of seconds for all repeats of one comparison.
PATIENCE = 10.0


def generate(n: int, d: int = 20, seed: int = 0) -> tuple[Array, Array]:
    """Return features (n, d) and readers' mean probabilities (n,), as the module describes."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.2
    X = rng.normal(size=(n, d))
    X[:, : d // 2] += 0.6 * positive[:, None]
    latent = expit(0.8 * X[:, :6].sum(axis=1) - 2)
    scores = np.clip(latent[:, None] + rng.normal(0, 0.2, (n, 4)), 0, 1)
    return X, (np.round(4 * scores) / 4).mean(axis=1)


def psvm(p: Array, C: float) -> Problem:
    """Return the P-SVM's problem with learned scale and eta = .125."""
    cost = np.full(len(p), C)
    return probabilistic_problem(soft_labels(p, 0.125), cost, cost, None)


def taking_turns(repeats: int, *functions: Callable[[], Any]) -> list[float]:
    """Return every function's median processor seconds; one run each comes first, unmeasured."""
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    begun = time.process_time()
    for _ in range(repeats):
        for function, own in zip(functions, seconds, strict=True):
            start = time.process_time()
            function()
            own.append(time.process_time() - start)
        if time.process_time() - begun > PATIENCE:
            break
    return [float(np.median(own)) for own in seconds]


def dual_qp(K: Array, problem: Problem) -> dict[str, Any]:
    """Return the pointwise dual as a dense QP for qpsolvers."""
    A, B = problem.dense()
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


def peer(name: str, qp: dict[str, Any]) -> Callable[[], Any]:
    """Return a call of a QP solver."""
    if name in ("clarabel", "osqp"):
        qp = {**qp, **{k: sparse.csc_matrix(qp[k]) for k in ("P", "G", "A")}}
    problem = qpsolvers.Problem(**qp)
    return lambda: qpsolvers.solve_problem(problem, solver=name)


class Table:
    """Print rows as they are measured, and remember whether each holds."""

    def __init__(self) -> None:
        self.missed = 0
        print(f"{'case':46} {'measure':34} {'measured':>10} {'must be':>10}")

    def row(self, case: str, measure: str, value: float, sign: str, limit: float) -> None:
        """Print one requirement: value >= limit or <= limit."""
        holds = value >= limit if sign == ">=" else value <= limit
        self.missed += not holds
        mark = "" if holds else "  MISSED"
        print(f"{case:46} {measure:34} {value:10.3g} {sign:>4} {limit:5.3g}{mark}", flush=True)

    def verdict(self) -> int:
        """Print whether every row holds; return the exit code."""
        print(f"{self.missed} rows missed" if self.missed else "every row holds")
        return 1 if self.missed else 0

    def note(self, case: str, text: str) -> None:
        """Print a measured value that has no limit."""
        print(f"{case:46} {text}", flush=True)


def check(table: Table, case: str, solution: Solution) -> None:
    """Print rows for the solution's own verdict."""
    table.row(case, "relative gap", abs(solution.gap), "<=", 1e-8)
    table.row(case, "KKT violation", solution.kkt, "<=", 1e-5)


def front_door(
    table: Table, kernel: str, n: int, d: int, C: float, scale: str, limit: float, sigma: float = 4
) -> None:
    """Time ``fit`` and ``predict_proba`` against SVC's ``fit`` and ``decision_function``."""
    case = f"{kernel} n={n} d={d} C={C:g} {scale}"
    X, p = generate(n, d)
    options: dict[str, Any] = {"C": C, "kernel": kernel, "cache_size": CACHE_MB}
    if kernel == "precomputed":
        X = Kernel("rbf", 1 / (2 * sigma**2)).between(X, X)
    elif kernel == "rbf":
        options["gamma"] = 1 / (2 * sigma**2)
    elif kernel == "poly":
        options |= {"degree": 2, "coef0": 1.0, "gamma": 1 / d}
    ours, svc = ProbabilisticSVC(scale=scale, **options), SVC(**options)
    hard = p > 0.5
    # The shortest fits take 2 ms, and need the most repeats for a stable median.
    repeats = 201 if n <= 350 else 21 if n <= 1000 else 5
    fit, peer_fit = taking_turns(repeats, lambda: ours.fit(X, p), lambda: svc.fit(X, hard))
    rows = X[:1000]
    predict, peer_predict = taking_turns(
        repeats, lambda: ours.predict_proba(rows), lambda: svc.decision_function(rows)
    )
    table.row(case, "fit / SVC fit", fit / peer_fit, "<=", limit)
    check(table, case, ours.solution_)
    table.note(
        case,
        f"{ours.solution_.solver}; seconds here {fit:.2e}, SVC {peer_fit:.2e}; "
        f"predict / SVC {predict / peer_predict:.2g}",
    )


def grid(table: Table) -> None:
    """Time scikit-learn's grid search of 4 x 4 points, 5 folds, 350 samples."""
    X, p = generate(350)
    hard = (p > 0.5).astype(int)
    points = {"C": [0.1, 1, 10, 100], "gamma": [1 / (2 * 2.0**k) for k in (2, 4, 6, 8)]}

    def search(learner: Any) -> Callable[[], Any]:
        return lambda: GridSearchCV(learner, points, scoring="roc_auc", cv=5).fit(X, hard)

    # Labels are hard, because scikit-learn's folds need classes. The P-SVM is then an ordinary SVM.
    ours, svc = taking_turns(3, search(ProbabilisticSVC()), search(SVC()))
    table.row("GridSearchCV, rbf n=350, 80 fits", "time / SVC", ours / svc, "<=", 2)


def solvers(table: Table, n: int, sigma: float, C: float) -> None:
    """Time the solver alone against cvxopt and the QP codes on the same kernel matrix."""
    case = f"solver alone n={n} sigma={sigma:g} C={C:g}"
    X, p = generate(n)
    K = Kernel("rbf", 1 / (2 * sigma**2)).between(X, X)
    problem, gram = psvm(p, C), Gram(Kernel("precomputed"), K, K)
    solution, exact = solve_hybrid(gram, problem), solve_cvxopt(K, problem)
    check(table, case, solution)
    again = solve_hybrid(gram, problem)
    table.row(case, "same bits twice", again.gamma.tobytes() == solution.gamma.tobytes(), ">=", 1)
    difference = abs(solution.primal - exact.primal) / exact.primal
    table.row(case, "objective against cvxopt, relative", difference, "<=", 1e-6)
    names = ("piqp", "clarabel", "osqp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        qp = dual_qp(K, problem)
        ours, *others = taking_turns(
            3,
            lambda: solve_hybrid(gram, problem),
            lambda: solve_cvxopt(K, problem),
            *(peer(name, qp) for name in names),
        )
    for name, seconds in zip(("cvxopt", *names), others, strict=True):
        table.note(case, f"times faster than {name} {seconds / ours:.3g}")


def large(table: Table, n: int, C: float, peers: bool = True) -> None:
    """Time ``fit`` once on many points, and state the memory of this process so far."""
    case = f"rbf n={n} d=20 C={C:g} learned, cache 500 MB"
    X, p = generate(n)
    ours = ProbabilisticSVC(C=C, gamma=1 / 32, cache_size=CACHE_MB)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours.fit(X, p)
    seconds = time.process_time() - start
    check(table, case, ours.solution_)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    table.row(case, "peak memory of this process, GB", peak, "<=", 2)
    table.note(case, f"{seconds:.1f} s")
    if peers:
        start = time.process_time()
        SVC(C=C, gamma=1 / 32, cache_size=CACHE_MB).fit(X, p > 0.5)
        table.note(case, f"fit / SVC fit {seconds / (time.process_time() - start):.2g}")


def cold(table: Table) -> None:
    """Measure first fits, each in a fresh process with an empty compile cache."""
    first = """
import time, numpy as np
from cad.learners import LEARNERS
X = np.random.default_rng(0).normal(size=(350, 20))
p = np.round(4 / (1 + np.exp(-2 * X[:, 0]))) / 4
start = time.process_time()
LEARNERS[{name!r}]().fit(X[:{n}], {y}[:{n}])
print(time.process_time() - start)
"""
    labels = {"ProbabilisticSVC": ("p", 350), "SVMROC": ("p > 0.5", 100)}
    labels |= dict.fromkeys(("OPAUC", "RankBoost", "SVMLin"), ("p > 0.5", 100))
    for name, (y, n) in labels.items():
        code = first.format(name=name, y=f"({y})", n=n)
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            empty, full = (
                float(
                    subprocess.run(
                        [sys.executable, "-c", code],
                        env=environment,
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                )
                for _ in range(2)
            )
        case = f"first {name}.fit"
        if name == "ProbabilisticSVC":
            table.row(case, "processor seconds, cache empty", empty, "<=", 4)
            table.row(case, "processor seconds, cache full", full, "<=", 1.5)
        else:
            table.note(case, f"processor seconds, cache empty {empty:.1f}, full {full:.2f}")


def starts(table: Table) -> None:
    """Time by the clock from a process's start to its first result, without its end."""
    probability = """
import numpy as np
from cad.learners import ProbabilisticSVC
X = np.random.default_rng(0).normal(size=(60, 3))
p = np.round(4 / (1 + np.exp(-2 * X[:, 0]))) / 4
ProbabilisticSVC(C=10).fit(X, p).predict_proba(X)
"""
    own, peer = "from cad.learners import ProbabilisticSVC", "from sklearn.svm import SVC"

    def seconds(code: str) -> float:
        program = [sys.executable, "-c", f"{code}\nprint('done', flush=True)"]
        start = time.perf_counter()
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            return time.perf_counter() - start

    turns = [[seconds(code) for code in (probability, own, peer)] for _ in range(9)]
    first, ours, theirs = np.median(turns, axis=0)
    table.row("process start", "seconds to the first probability", first, "<=", 1.5)
    table.row("process start", "import / SVC's import", ours / theirs, "<=", 1.2)


def sslroc(table: Table, norm: int) -> None:
    """Time SSLROC with 25 + 25 labelled and 50 unlabelled rows, M = 1, C = 1, against Clarabel."""
    case = f"SSLROC norm {norm}, 25+25 labelled, 50 not"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 20))
    X[:25, :10] += 0.6
    X[50:75, :10] += 0.6
    K = Kernel("rbf", 1 / 32).between(X, X)
    problem = PairwiseProblem(kernel_factor(K), 25, 25, np.ones(100), 0.5, 0.5, 1.0, norm)
    solution = solve_pairwise(problem)
    qp = primal_qp(problem)
    settings = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    answer = qpsolvers.solve_problem(qp, solver="clarabel", **settings)
    objective = float(0.5 * answer.x @ (qp.P @ answer.x) + qp.q @ answer.x)
    ours, clarabel = taking_turns(
        9,
        lambda: solve_pairwise(problem),
        lambda: qpsolvers.solve_problem(qp, solver="clarabel", **settings),
    )
    table.row(case, "relative gap", abs(solution.gap), "<=", 1e-6)
    table.row(case, "KKT violation", solution.kkt, "<=", 1e-5)
    difference = abs(solution.primal - objective) / objective
    table.row(case, "objective against Clarabel", difference, "<=", 1e-6)
    table.row(case, "milliseconds", 1e3 * ours, "<=", 40)
    table.row(case, "against Clarabel's time", ours / clarabel, "<=", 0.1)


def primal_qp(problem: PairwiseProblem) -> qpsolvers.Problem:
    """Return min over w, f, d, xi of 1/2 |w|^2 + loss(xi), f = L w: sparse, as Clarabel needs."""
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


def main() -> int:
    """Print the table; the exit code says whether every row holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="leave out n = 20,000 and 50,000")
    parser.add_argument("--cold", action="store_true", help="only starts: first fits, imports")
    arguments = parser.parse_args()
    table = Table()
    table.note("machine", f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, one thread used")
    if arguments.cold:
        cold(table)
        starts(table)
        return table.verdict()
    warm()
    hard = 2.0**13
    for n in (350, 1000, 5000):
        for C in (1, 100, hard):
            front_door(table, "rbf", n, 20, C, "learned", 1.0)
    for n in (350, 1000, 5000):
        for C in (1, 100, hard):
            front_door(table, "precomputed", n, 20, C, "learned", 1.5)
    for kernel in ("linear", "poly"):
        for n in (350, 1000):
            for d in (5, 20, 100) if kernel == "linear" else (5,):
                for C in (0.1, hard):
                    for scale in ("learned", "fixed"):
                        front_door(table, kernel, n, d, C, scale, 2.0)
    grid(table)
    for n, sigma, C in ((350, 4, 100), (1000, 4, 100), (350, 2**5, hard)):
        solvers(table, n, sigma, C)
    for norm in (1, 2):
        sslroc(table, norm)
    if not arguments.small:
        large(table, 20_000, 1)
        for C in (0.1, 1, hard):
            large(table, 50_000, C, peers=C == 1)
    table.note("machine", f"load {os.getloadavg()[0]:.1f} at the end")
    return table.verdict()


if __name__ == "__main__":
    raise SystemExit(main())
