"""Reference solvers of the pairwise problem: the paper's semidefinite program, and a QP.

[W14] Theorems 1 and 2 hand SSLROC to a semidefinite solver. With the corrections of
docs/methods.md 2 (the box 0 <= d <= 1, the coupling v / sqrt 2 with corner t - psi'e, and
diag(1 / (2c)) for the squared hinge) it has the optimum of the pairwise problem, so it is kept as
an oracle for tiny instances. cvxopt is the extra ``reference``, imported only when asked for.
"""

from __future__ import annotations

import numpy as np

from cad.learners.solvers.cvxopt_solver import import_cvxopt, solve_cvxopt
from cad.learners.solvers.pairwise import PairwiseProblem
from cad.learners.solvers.problem import Array, Solution


def solve_pairwise_cvxopt(problem: PairwiseProblem) -> Solution:
    """Solve a small pairwise problem as a dense quadratic program over its pairs."""
    return solve_cvxopt(problem.factor @ problem.factor.T, problem.general())


def sdp_objective(problem: PairwiseProblem) -> float:
    """Return the optimal value by the semidefinite program of [W14] (4), in cvxopt.

    For fixed d the dual of the rows is max over 0 <= gamma <= c of v'gamma - 1/2 gamma'G gamma
    with margins v = t - B d and G the pair-by-pair kernel. Its own dual, minimised with d, is

        min tau  over d in [0, 1], zeta >= 0, psi >= 0
        subject to [[G, (v + zeta - psi) / sqrt 2], [., tau - psi'c]] >= 0,

    without psi, and with G + diag(1 / (2c)), for the squared hinge. Forms G: tiny problems only.
    """
    cvxopt = import_cvxopt()
    block, constant, null, t_null = _block(problem)
    n, size, m = len(constant), block.shape[2], problem.n_unlabelled
    objective = np.zeros(size)
    objective[0] = 1.0
    # zeta, psi and d are >= 0, d is <= 1.
    linear = np.vstack([-np.eye(size)[1:], np.eye(size)[1 : 1 + m]])
    right = np.concatenate([np.zeros(size - 1), np.ones(m)])
    # Feasible to 1e-10 is beyond reach on some processors: cvxopt then divides by zero.
    options = {"show_progress": False, "abstol": 1e-9, "reltol": 1e-9, "feastol": 1e-8}
    equality = {"A": cvxopt.matrix(null), "b": cvxopt.matrix(-t_null)} if len(null) else {}
    result = cvxopt.solvers.sdp(
        cvxopt.matrix(objective),
        Gl=cvxopt.matrix(linear),
        hl=cvxopt.matrix(right),
        Gs=[cvxopt.matrix(-block.reshape(n * n, size))],
        hs=[cvxopt.matrix(constant)],
        options=options,
        **equality,
    )
    return float(result["primal objective"])


def _block(problem: PairwiseProblem) -> tuple[Array, Array, Array, Array]:
    """Return the matrix inequality as coefficients (n, n, variables) and constant (n, n).

    Variables are tau, d, zeta and, for the hinge, psi. G is singular: the Schur complement needs
    v + zeta - psi in its range. With G = U S U' that is said exactly: by the block over the live
    eigenvectors, whitened to [[I, x], [x', 2 (tau - psi'c)]], and by U0'(v + zeta - psi) = 0 over
    the others, whose coefficients and constant are the last two answers.
    """
    general = problem.general()
    rows, m = general.n_rows, problem.n_unlabelled
    A, B = general.dense()
    points = A @ problem.factor
    pairs = points @ points.T
    hinge = problem.norm == 1
    if not hinge:
        pairs += np.diag(0.5 / general.c)
    values, vectors = np.linalg.eigh(pairs)
    live = values > 1e-11 * values.max()
    rank = int(live.sum())
    size = 1 + m + rows + (rows if hinge else 0)
    affine = np.zeros((rows, size))
    affine[:, 1 : 1 + m] = -B
    affine[:, 1 + m : 1 + m + rows] = np.eye(rows)
    corner = np.zeros(size)
    corner[0] = 2.0
    if hinge:
        affine[:, 1 + m + rows :] = -np.eye(rows)
        corner[1 + m + rows :] = -2.0 * general.c
    white, null = vectors[:, live].T / np.sqrt(values[live])[:, None], vectors[:, ~live].T
    block = np.zeros((rank + 1, rank + 1, size))
    block[:rank, rank] = block[rank, :rank] = white @ affine
    block[rank, rank] = corner
    constant = np.zeros((rank + 1, rank + 1))
    constant[:rank, :rank] = np.eye(rank)
    constant[:rank, rank] = constant[rank, :rank] = white @ general.t
    return block, constant, null @ affine, null @ general.t
