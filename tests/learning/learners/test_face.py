"""Of several optima the smallest scale and middle intercept; tiny costs raise no alarm."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import linprog

from cad.learners import ProbabilisticSVC
from cad.learning.learners.solvers.kernels import settle_kernel
from cad.learning.learners.solvers.problem import Problem, Solution, certify, pointwise_problem


def small(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a few regions with scores on a grid, whose labels often leave the scale open."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 30))
    X = rng.normal(size=(n, 2))
    p = np.round(4 / (1 + np.exp(-2 * X[:, 0] + rng.normal(0, 0.7, n)))) / 4
    return X, p, rng.uniform(0.05, 0.4, n)


def smallest_by_the_primal(problem: Problem, solution: Solution) -> float:
    """Return min s over (b, s) whose summed losses at this f are the least possible."""
    n = problem.n_rows
    B = np.asarray(problem.B)
    room = problem.slack(solution.f, np.zeros(2))
    rows = np.hstack([-B, -np.eye(n)])
    bounds = [(None, None), (0, None), *[(0, None)] * n]
    cost = np.r_[0, 0, problem.c]
    least = linprog(cost, rows, -room, bounds=bounds).fun
    with_bound = np.vstack([rows, cost])
    limit = np.r_[-room, least * (1 + 1e-9) + 1e-9]
    return float(linprog(np.r_[0, 1, np.zeros(n)], with_bound, limit, bounds=bounds).x[1])


def test_the_learned_scale_is_the_smallest_optimal_one() -> None:
    several = 0
    for seed in range(60):
        X, p, eta = small(seed)
        learner = ProbabilisticSVC(C=float(10 ** (seed % 4 - 1)), eta0=0.05)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                learner.fit(X, p, eta=eta)
                labels, _, scale = learner._read_labels(p, eta, np.ones(len(p)))
            except ValueError:
                continue
        if scale is not None:
            continue
        problem, solution = learner._problem(labels, np.ones(len(p)), None), learner.solution_
        least = smallest_by_the_primal(problem, solution)
        assert learner.scale_ == pytest.approx(least, rel=2e-3, abs=1e-5)
        # Anything on the way to a larger optimum costs the same, anything below costs more.
        here = problem.primal(solution.beta, solution.f, solution.u)
        below = problem.primal(solution.beta, solution.f, solution.u * [1, 0.98])
        assert below >= here * (1 - 1e-6)
        bound = linprog([0, -1], *polygon(problem, solution), bounds=[(None, None), (0, None)])
        several += bound.status == 3 or (bound.status == 0 and bound.x[1] > 1.01 * least)
    assert several >= 3


def polygon(problem: Problem, solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Return G and h of the optima G (b, s) <= h by complementary slackness."""
    B, share = np.asarray(problem.B), solution.gamma / problem.c
    room = problem.slack(solution.f, np.zeros(2))
    above, below = share < 1 - 1e-7, share > 1e-7
    return np.vstack([-B[above], B[below]]), np.r_[-room[above], room[below]] + 1e-8


@pytest.mark.parametrize("solver", ["auto", "smo", "cvxopt"])
def test_an_open_intercept_is_the_middle_for_every_solver_and_start(solver: str) -> None:
    """The ends are found by two linear programs over the losses, which know nothing of duals."""
    several = 0
    for seed in range(60):
        X, p, _ = small(seed)
        p = (p > 0.5).astype(float)
        learner = ProbabilisticSVC(C=0.05, scale=1.0, solver=solver)
        if len(set(p)) < 2:
            continue
        cold = learner.fit(X, p).solution_
        problem = learner._problem(
            learner._read_labels(p, None, np.ones(len(p)))[0], np.ones(len(p)), 1.0
        )
        low, high = ends_by_the_primal(problem, cold)
        several += high - low > 1e-3
        assert cold.u[0] == pytest.approx((low + high) / 2, abs=2e-6)
        other = (X[:, 1] > 0).astype(float)
        if solver == "auto" and len(set(other)) == 2:
            start = ProbabilisticSVC(C=0.05, scale=1.0).fit(X, other).solution_.beta
            warm = learner.fit(X, p, start=start).solution_
            assert warm.u[0] == pytest.approx(cold.u[0], abs=2e-6)
    assert several >= 10


def ends_by_the_primal(problem: Problem, solution: Solution) -> tuple[float, float]:
    """Return the least and the largest b whose summed losses at this f are the least possible."""
    n = problem.n_rows
    B = np.asarray(problem.B)
    room = problem.slack(solution.f, np.zeros(1))
    rows = np.hstack([-B, -np.eye(n)])
    bounds = [(None, None), *[(0, None)] * n]
    cost = np.r_[0, problem.c]
    least = linprog(cost, rows, -room, bounds=bounds).fun
    with_bound, limit = np.vstack([rows, cost]), np.r_[-room, least * (1 + 1e-10)]
    b = np.r_[1.0, np.zeros(n)]
    low, high = (linprog(sign * b, with_bound, limit, bounds=bounds).x[0] for sign in (1, -1))
    return float(low), float(high)


def test_a_given_scale_does_not_collapse_where_a_feature_is_huge() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 1))
    y = (X[:, 0] + 0.5 * rng.normal(size=30) > 0).astype(float)
    X[np.argmax(X)] = 1e8
    given = ProbabilisticSVC(kernel="linear", scale=0.5).fit(X, y)
    assert given.scale_ == 0.5
    assert np.abs(given.decision_function(X)).max() > 1e6


@pytest.mark.parametrize("value", [0.1, 1.0, 1e9])
def test_constant_features_leave_gamma_alone(value: float) -> None:
    """As in scikit-learn; the variance of 45 times .1 is rounding, not 0."""
    for n in range(20, 60):
        kernel = settle_kernel("poly", "scale", 3, 0.0, np.full((n, 2), value))
        assert kernel.gamma == 1.0


def test_a_cost_far_below_the_others_raises_no_false_alarm() -> None:
    """The duals of 1e3 are right to rounding, 1e-10 of the largest: of 1e-6 that is 5 %."""
    point = np.array([0, 1, 2])
    sign = np.array([1.0, -1.0, 1.0])
    problem = pointwise_problem(3, point, sign, np.ones(3), np.array([1e3, 1e3, 1e-6]))
    gamma = np.array([500.0, 500.0, 5e-8])
    f = np.array([1.0, -1.0, 1.1])
    found = certify(problem, f, gamma, np.zeros(1), iterations=1, solver="by hand")
    assert found.kkt < 1e-5
    wrong = np.array([500.0, 500.0, 0.0])
    short = certify(problem, f - [0, 0, 1], wrong, np.zeros(1), iterations=1, solver="by hand")
    assert short.kkt > 1e-5  # wrong altogether is still seen
    even = pointwise_problem(3, point, sign, np.ones(3), np.array([1e3, 1e3, 1e2]))
    assert (
        certify(even, f - [0, 0, 1], wrong, np.zeros(1), iterations=1, solver="by hand").kkt > 0.1
    )
