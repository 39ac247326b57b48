"""The pairwise solver against references, identities and its own optimality."""

from __future__ import annotations

from dataclasses import replace

import cvxopt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from cad.learners import SSLROC, SVMROC
from cad.learning.learners.solvers.cvxopt_solver import solve_cvxopt
from cad.learning.learners.solvers.pairwise import PairwiseProblem, kernel_factor, solve_pairwise
from cad.learning.learners.solvers.problem import certify


def make(seed, sizes, norm, labelled=1.0, unlabelled=1.0, margin=1.0, weight=None, features=4):
    """A small problem, and its kernel matrix; positives shifted, half of the unlabelled too."""
    random = np.random.default_rng(seed)
    p, q, m = sizes
    n = p + q + m
    X = random.normal(size=(n, features))
    X[:p] += 0.6
    X[p + q : p + q + m // 2] += 0.6
    square = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = np.exp(-square / (2 * np.quantile(square, 0.9)))
    weight = np.ones(n) if weight is None else weight
    factor = kernel_factor(K)
    return PairwiseProblem(factor, p, q, weight, labelled, unlabelled, margin, norm), K


def random_problem(seed):
    random = np.random.default_rng([seed, 77])
    p, q, m = (int(v) for v in random.integers(1, 6, 3))
    m = m if seed % 4 else 0
    costs = 10 ** random.uniform(-2, 2, 2)
    weight = random.uniform(0.5, 2.0, p + q + m)
    return make(seed, (p, q, m), 1 + seed % 2, *costs, [0.1, 1.0, 10.0][seed % 3], weight)


def test_two_hundred_random_problems_equal_cvxopt(counted):
    for seed in range(200):
        problem, K = random_problem(seed)
        ours = solve_pairwise(problem, 1e-8)
        reference = solve_cvxopt(K, problem.general())
        assert ours.converged
        assert ours.gap <= 1e-6
        assert ours.kkt <= 1e-5
        assert ours.primal == pytest.approx(reference.primal, rel=1e-6)
        # The general certificate, which knows nothing of pairs, finds the same objectives.
        again = certify(problem.general(), ours.f, ours.gamma, ours.u, iterations=0, solver="")
        assert again.primal == pytest.approx(ours.primal, rel=1e-12)
        assert again.dual == pytest.approx(ours.dual, rel=1e-9)
    counted(200, "pairwise problems against cvxopt")


def sdp_objective(problem):
    """The optimal value by the semidefinite program of [W14] (4), as docs/methods.md 2 has it.

    For fixed d the dual of the rows is max over 0 <= gamma <= c of v'gamma - 1/2 gamma'G gamma
    with margins v = t - B d and G the pair-by-pair kernel. Its own dual, minimised with d, is

        min tau  over d in [0, 1], zeta >= 0, psi >= 0
        subject to [[G, (v + zeta - psi) / sqrt 2], [., tau - psi'c]] >= 0,

    without psi, and with G + diag(1 / (2c)), for the squared hinge. Forms G: tiny problems only.
    """
    block, constant, null, t_null = sdp_block(problem)
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
    return result["primal objective"]


def sdp_block(problem):
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


@pytest.mark.parametrize("norm", [1, 2])
def test_the_corrected_semidefinite_program_has_the_same_optimum(norm, counted):
    for seed in range(8):
        random = np.random.default_rng([seed, norm])
        sizes = tuple(int(v) for v in random.integers(2, 4, 3))
        cost = 10 ** random.uniform(-1, 1)
        problem, _ = make(seed, sizes, norm, cost, cost, [0.1, 1.0, 10.0][seed % 3])
        ours = solve_pairwise(problem, 1e-10)
        assert sdp_objective(problem) == pytest.approx(ours.primal, rel=1e-8)
    counted(8, "SSLROC optima against the SDP")


def test_without_the_box_unlabelled_coefficients_vanish():
    # docs/methods.md 2: with d free, every pull on it must balance; then M drops out and f with it.
    problem, K = make(3, (3, 3, 2), 1)
    general = problem.general()
    free = replace(general, lower=np.full(2, -np.inf), upper=np.full(2, np.inf))
    solution = solve_cvxopt(K, free)
    assert np.abs(solution.beta[6:]).max() < 1e-6


@pytest.mark.parametrize("norm", [1, 2])
def test_at_large_margin_sslroc_is_svmroc_at_half_the_cost(norm):
    problem, _ = make(5, (8, 7, 10), norm, 0.5, 0.5, 1.0)
    n = 15
    alone = replace(problem, factor=problem.factor[:n], weight=problem.weight[:n])
    supervised = solve_pairwise(alone, 1e-9)
    f = problem.factor @ (problem.factor[:n].T @ supervised.beta)
    p, q, m = f[:8], f[8:15], f[15:]
    enough = np.maximum(1 + m - p.min(), 0) + np.maximum(1 + q.max() - m, 0)
    both = solve_pairwise(replace(problem, margin=float(enough.max()) * 1.01), 1e-9)
    assert both.primal == pytest.approx(supervised.primal, rel=1e-8)
    np.testing.assert_allclose(both.f, f, atol=1e-5)
    small = solve_pairwise(problem, 1e-9)
    assert small.primal > supervised.primal * 1.01


@pytest.mark.parametrize("norm", [1, 2])
def test_scaling_the_kernel_and_the_costs_leaves_the_scores(norm):
    problem, K = make(7, (5, 6, 7), norm, 2.0, 0.7)
    k = 13.0
    scaled = replace(
        problem, factor=kernel_factor(k * K), labelled_cost=2.0 / k, unlabelled_cost=0.7 / k
    )
    a, b = solve_pairwise(problem, 1e-10), solve_pairwise(scaled, 1e-10)
    assert b.primal == pytest.approx(a.primal / k, rel=1e-9)
    np.testing.assert_allclose(b.f, a.f, atol=1e-6)
    np.testing.assert_allclose(b.beta, a.beta / k, atol=1e-6)


@pytest.mark.parametrize("norm", [1, 2])
def test_a_point_of_weight_two_is_the_point_twice(norm):
    problem, K = make(8, (3, 4, 3), norm)
    for point in (0, 4, 8):
        weight = np.ones(10)
        weight[point] = 2.0
        heavy = solve_pairwise(replace(problem, weight=weight), 1e-10)
        rows = np.sort(np.append(np.arange(10), point))
        sizes = [3, 4, 3]
        sizes[[0, 4, 8].index(point)] += 1
        twice = PairwiseProblem(
            kernel_factor(K[np.ix_(rows, rows)]), *sizes[:2], np.ones(11), 1.0, 1.0, 1.0, norm
        )
        assert solve_pairwise(twice, 1e-10).primal == pytest.approx(heavy.primal, rel=1e-9)


def test_class_swap_turns_the_scores_round():
    problem, K = make(9, (4, 5, 6), 1)
    order = np.r_[4:9, 0:4, 9:15]
    swapped = PairwiseProblem(
        kernel_factor(K[np.ix_(order, order)]), 5, 4, np.ones(15), 1.0, 1.0, 1.0, 1
    )
    a, b = solve_pairwise(problem, 1e-10), solve_pairwise(swapped, 1e-10)
    assert b.primal == pytest.approx(a.primal, rel=1e-9)
    np.testing.assert_allclose(b.f, -a.f[order], atol=1e-6)


def solved_problem(seed, cost, margin, norm):
    random = np.random.default_rng(seed)
    sizes = tuple(int(v) for v in random.integers(1, 9, 3))
    return make(seed, sizes, norm, 10.0**cost, 10.0**cost, 10.0**margin)


def solved(seed, cost, margin, norm):
    return solve_pairwise(solved_problem(seed, cost, margin, norm)[0])


@given(
    seed=st.integers(0, 10_000),
    cost=st.floats(-4, 6),
    margin=st.floats(-3, 3),
    norm=st.sampled_from([1, 2]),
)
@settings(max_examples=40, deadline=None)
def test_any_cost_and_margin_converges(seed, cost, margin, norm):
    solution = solved(seed, cost, margin, norm)
    assert solution.converged, str(solution)


@pytest.mark.parametrize(
    ("seed", "cost", "margin", "norm"),
    [
        # Rounding once made the equations of these indefinite, or a slack of d's box zero.
        (405, 4.0, 0.0, 1),
        (8767, 3.69, -0.55, 1),
        (5312, 3.89, 0.22, 1),
        # And these went round in circles.
        (7291, 3.6935054, -2.89118005, 2),
        (6172, 2.72015935, -1.31025224, 2),
    ],
)
def test_the_hardest_hinges_converge(seed, cost, margin, norm):
    solution = solved(seed, cost, margin, norm)
    assert solution.converged, str(solution)
    problem, K = solved_problem(seed, cost, margin, norm)
    again = certify(
        problem.general(), solution.f, solution.gamma, solution.u, iterations=0, solver=""
    )
    assert again.converged, str(again)
    np.testing.assert_allclose(K @ solution.beta, solution.f, atol=1e-6)


@pytest.mark.parametrize(
    ("seed", "sizes", "cost", "margin"),
    [
        (136, (39, 30, 43), 5.72, 10.0),
        (524, (29, 31, 37), 5.28, 1.0),
        (764, (30, 31, 47), 5.59, 1.0),
        (902, (40, 26, 49), 5.52, 1.0),
    ],
)
def test_equations_that_rounding_made_indefinite_are_solved(seed, sizes, cost, margin):
    problem, _ = make(seed, sizes, 1, 10.0**cost, 10.0**cost, margin)
    solution = solve_pairwise(problem)
    assert solution.converged, str(solution)


def test_same_bits():
    problem, _ = make(1, (25, 25, 50), 2, 0.5, 0.5)
    first, second = solve_pairwise(problem), solve_pairwise(problem)
    assert first.beta.tobytes() == second.beta.tobytes()


def test_hand_solved_pairs():
    # One positive at 1, one negative at -1, linear kernel: f = w x, one pair of margin 2w.
    X, y = np.array([[1.0], [-1.0]]), [1, 0]
    hard = SVMROC(C=10.0, kernel="linear", platt_folds=0).fit(X, y)
    assert hard.solution_.primal == pytest.approx(0.125, rel=1e-6)  # w = 1/2
    soft = SVMROC(C=0.1, kernel="linear", platt_folds=0).fit(X, y)
    assert soft.solution_.primal == pytest.approx(0.08, rel=1e-6)  # w = 2C
    squared = SVMROC(C=1.0, norm=2, kernel="linear", platt_folds=0).fit(X, y)
    # 1/2 w^2 + (1 - 2w)^2 is least at w = 4/9: 8/81 + 1/81.
    assert squared.solution_.primal == pytest.approx(1 / 9, rel=1e-6)


def test_not_converged_is_said_with_gap_and_iterations():
    random = np.random.default_rng(0)
    X = random.normal(size=(30, 3))
    y = (X[:, 0] + random.normal(size=30) > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match=r"relative gap .* after 2 iterations"):
        SVMROC(max_iter=2, platt_folds=0).fit(X, y)


def test_sslroc_ranks_unlabelled_points_and_keeps_soft_labels_in_the_box():
    random = np.random.default_rng(2)
    X = random.normal(size=(60, 3))
    truth = (np.arange(60) % 2).astype(int)
    X[truth == 1] += 1.5
    y = truth.copy()
    y[20:] = -1
    for norm in (1, 2):
        learner = SSLROC(C=1.0, norm=norm).fit(X, y)
        assert learner.soft_labels_.shape == (40,)
        assert learner.soft_labels_.min() >= 0
        assert learner.soft_labels_.max() <= 1
        assert learner.solution_.converged
        assert roc_auc_score(truth[20:], learner.decision_function(X[20:])) > 0.85


def test_cvxopt_by_name_and_precomputed_give_the_same_scores():
    random = np.random.default_rng(4)
    X = random.normal(size=(24, 3))
    y = np.tile([0, 1, -1], 8)
    X[y == 1] += 1
    own = SSLROC(C=0.5, tol=1e-10, platt_folds=0, kernel="linear").fit(X, y)
    reference = SSLROC(C=0.5, solver="cvxopt", platt_folds=0, kernel="linear").fit(X, y)
    np.testing.assert_allclose(own._scores(X), reference._scores(X), atol=1e-5)
    K = X @ X.T
    pre = SSLROC(C=0.5, tol=1e-10, kernel="precomputed").fit(K, y)
    folded = SSLROC(C=0.5, tol=1e-10, kernel="linear").fit(X, y)
    np.testing.assert_allclose(pre.predict_proba(K), folded.predict_proba(X), atol=1e-5)
