"""Reference solvers of the pairwise problem: the paper's semidefinite program, and a QP.

[W14] Theorems 1 and 2 hand SSLROC to a semidefinite solver. With METHODS 2's corrections (the
box 0 <= d <= 1, the coupling v / sqrt 2 with corner t - psi'e, and diag(1 / (2c)) for the squared
hinge) it has the optimum of the pairwise problem, so it is kept as an oracle for tiny instances.
cvxopt is GPL-3 and is imported only here and only when asked for.
"""

from __future__ import annotations

import numpy as np

from cad.learners.pairwise import PairwiseProblem
from cad.learners.problem import Solution


def solve_pairwise_cvxopt(problem: PairwiseProblem) -> Solution:
    """Solve a small pairwise problem as a dense quadratic program over its pairs."""
    from cad.learners.cvxopt_solver import solve_cvxopt

    return solve_cvxopt(problem.factor @ problem.factor.T, problem.general())


def sdp_objective(problem: PairwiseProblem) -> float:
    """Optimal value by the semidefinite program of [W14] (4), in cvxopt.

    For fixed d the dual of the rows is max over 0 <= gamma <= c of v'gamma - 1/2 gamma'G gamma
    with margins v = t - B d and G the pair-by-pair kernel. Its own dual, minimised with d, is

        min tau  over d in [0, 1], zeta >= 0, psi >= 0
        subject to [[G, (v + zeta - psi) / sqrt 2], [., tau - psi'c]] >= 0,

    without psi, and with G + diag(1 / (2c)), for the squared hinge. Forms G: tiny problems only.
    """
    import cvxopt
    from cvxopt import solvers

    general = problem.general()
    rows, m = general.n_rows, problem.n_unlabelled
    A, B = general.dense()
    points = A @ problem.factor
    pairs = points @ points.T
    hinge = problem.norm == 1
    if not hinge:
        pairs += np.diag(0.5 / general.c)
    # G is singular: the Schur block needs v + zeta - psi in its range, which is said exactly by
    # G = U S U', the block [[S, U'(..)], ..] and U0'(..) = 0.
    values, vectors = np.linalg.eigh(pairs)
    live = values > 1e-11 * values.max()
    basis, null = vectors[:, live], vectors[:, ~live]
    rank = int(live.sum())

    # Variables: tau, d (m), zeta (rows), psi (rows, hinge only).
    size = 1 + m + rows + (rows if hinge else 0)
    affine = np.zeros((rows, size))
    affine[:, 1 : 1 + m] = -B
    affine[:, 1 + m : 1 + m + rows] = np.eye(rows)
    if hinge:
        affine[:, 1 + m + rows :] = -np.eye(rows)
    objective = np.zeros(size)
    objective[0] = 1.0
    # Whitened by the eigenvalues the block is [[I, x], [x', 2 (tau - psi'c)]].
    white = basis.T / np.sqrt(values[live])[:, None]
    corner = np.zeros(size)
    corner[0] = 2.0
    if hinge:
        corner[1 + m + rows :] = -2.0 * general.c
    n = rank + 1
    block = np.zeros((n, n, size))
    block[:rank, rank] = block[rank, :rank] = white @ affine
    block[rank, rank] = corner
    constant = np.zeros((n, n))
    constant[:rank, :rank] = np.eye(rank)
    constant[:rank, rank] = constant[rank, :rank] = white @ general.t

    bounds = -np.eye(size)[1:]
    upper = np.eye(size)[1 : 1 + m]
    linear = np.vstack([bounds, upper])
    right = np.concatenate([np.zeros(size - 1), np.ones(m)])
    # Feasible to 1e-10 is beyond reach on some processors: cvxopt then divides by zero.
    options = {"show_progress": False, "abstol": 1e-9, "reltol": 1e-9, "feastol": 1e-8}
    equality = {}
    if null.shape[1]:
        equality = {
            "A": cvxopt.matrix(null.T @ affine),
            "b": cvxopt.matrix(-null.T @ general.t),
        }
    result = solvers.sdp(
        cvxopt.matrix(objective),
        Gl=cvxopt.matrix(linear),
        hl=cvxopt.matrix(right),
        Gs=[cvxopt.matrix(-block.reshape(n * n, size))],
        hs=[cvxopt.matrix(constant)],
        options=options,
        **equality,
    )
    return float(result["primal objective"])
