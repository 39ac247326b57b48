"""Solving in feature space: the reference's optimum, exact margins, and kernels of unknown rank."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cad.learning.learners.reject import asymmetric_rule, reject_problem
from cad.learning.learners.soft_labels import probabilistic_problem, soft_labels
from cad.learning.learners.solvers.cvxopt_solver import solve_cvxopt
from cad.learning.learners.solvers.kernels import Gram, Kernel, decision_values, make_gram
from cad.learning.learners.solvers.lowrank import solve_low_rank
from cad.learning.learners.solvers.pointwise import solve_hybrid
from cad.learning.learners.solvers.problem import Problem

POLY = Kernel("poly", 0.5, 2, 1.0)


def make(seed: int, n: int, d: int, C: float, scale: float | None) -> tuple[np.ndarray, Problem]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    p = np.round(4 / (1 + np.exp(-2 * X[:, 0] + rng.normal(size=n)))) / 4
    cost = C * rng.uniform(0.5, 2, n)
    return X, probabilistic_problem(soft_labels(p, 0.125), cost, cost, scale)


@pytest.mark.parametrize("kernel", [Kernel("linear"), POLY], ids=["linear", "poly"])
@pytest.mark.parametrize("scale", [None, 0.51], ids=["learned", "fixed"])
@pytest.mark.parametrize("C", [0.1, 10.0, 2.0**13])
def test_the_optimum_is_the_references(kernel: Kernel, scale: float | None, C: float) -> None:
    for seed in range(3):
        X, problem = make(seed, 70, 3, C, scale)
        if seed == 1:
            X[35:] = X[:35]  # every point twice: dependent rows
        exact = solve_cvxopt(kernel.between(X, X), problem)
        ours = solve_hybrid(make_gram(kernel, X, 100.0), problem)
        assert ours.solver == "low-rank"
        assert ours.converged, str(ours)
        assert abs(ours.gap) <= 1e-8
        assert abs(ours.primal - exact.primal) <= 1e-6 * abs(exact.primal)


def test_free_rows_lie_on_the_margin_and_are_no_more_than_dimensions() -> None:
    X, problem = make(5, 300, 4, 5.0, None)
    gram = make_gram(Kernel("linear"), X, 100.0)
    assert gram.matrix is None  # no kernel matrix is made
    ours = solve_hybrid(gram, problem)
    free = (ours.gamma > 0) & (ours.gamma < problem.c)
    assert 0 < free.sum() <= 4 + 2
    assert np.abs(problem.slack(ours.f, ours.u)[free]).max() < 1e-8
    assert np.abs(problem.B.T @ ours.gamma).max() < 1e-8 * problem.c.sum()


def test_a_reject_problem_with_two_rows_a_point() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 3))
    positive = X[:, 0] + rng.normal(size=90) > 0
    problem = reject_problem(positive, np.full(90, 3.0), asymmetric_rule((1, 4, 0.4, 0.4)))
    exact = solve_cvxopt(X @ X.T, problem)
    ours = solve_low_rank(X, lambda beta: X @ (X.T @ beta), problem)
    assert ours.converged
    assert ours.primal == pytest.approx(exact.primal, rel=1e-6)


def test_a_linear_kernel_that_comes_as_a_matrix_is_found_out() -> None:
    """Its rank is not known, the active set fails on it, and pairs alone need 200,000 moves."""
    X, problem = make(7, 350, 20, 0.1, None)
    K = X @ X.T
    given = solve_hybrid(Gram(Kernel("precomputed"), K, K), problem)
    known = solve_hybrid(make_gram(Kernel("linear"), X, 100.0), problem)
    assert given.converged
    assert given.primal == pytest.approx(known.primal, rel=1e-8)
    assert given.iterations < 5000


@pytest.mark.parametrize("kernel", [Kernel("linear"), POLY, Kernel("rbf", 0.3)])
def test_a_factor_gives_the_kernel_back_or_says_that_it_is_too_large(kernel: Kernel) -> None:
    X = np.random.default_rng(2).normal(size=(60, 2))
    K = kernel.between(X, X)
    factor = Gram(kernel, X, None).factor(20)
    if kernel.name == "rbf":
        assert factor is None
    else:
        assert factor is not None
        assert factor.shape[1] == (2 if kernel.name == "linear" else 6)
        np.testing.assert_allclose(factor @ factor.T, K, atol=1e-12 * K.max())
    assert Gram(Kernel("precomputed"), K, K).factor(1) is None
    few = Gram(Kernel("rbf", 9.0), X[:20], None)  # as many dimensions as points
    whole = few.factor(20)
    assert whole is not None
    np.testing.assert_allclose(whole @ whole.T, few.kernel.between(X[:20], X[:20]), atol=1e-12)
    assert few.factor(19) is None


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("coef0", [0.0, 0.7])
def test_monomials_are_the_polynomial_kernel(degree, coef0):
    X = np.random.default_rng(degree).normal(size=(40, 3))
    kernel = Kernel("poly", 0.4, degree, coef0)
    features = kernel.monomials(X)
    assert features.shape == (40, kernel.dimensions(X))
    np.testing.assert_allclose(
        features @ features.T, (0.4 * X @ X.T + coef0) ** degree, rtol=1e-9, atol=1e-12
    )


def test_monomials_of_two_variables_by_hand():
    # (x1 y1 + x2 y2 + 1)^2 = 1 + 2 x1 y1 + 2 x2 y2 + x1^2 y1^2 + 2 x1 x2 y1 y2 + x2^2 y2^2.
    root = np.sqrt(2)
    found = Kernel("poly", 1.0, 2, 1.0).monomials(np.array([[2.0, 3.0]]))
    np.testing.assert_allclose(found, [[1, 2 * root, 3 * root, 4, 6 * root, 9]])


def test_a_polynomial_kernel_with_a_negative_constant_has_no_monomials():
    # It is not positive semi-definite in general: its factor comes from its rows, or not at all.
    X = np.random.default_rng(0).normal(size=(40, 2))
    gram = Gram(Kernel("poly", 1.0, 2, -0.5), X, None)
    factor = gram.factor(20)
    assert factor is None or np.isfinite(factor).all()


def test_a_linear_kernel_predicts_without_a_product_for_every_support_vector() -> None:
    rng = np.random.default_rng(0)
    X, beta = rng.normal(size=(100_000, 4)), rng.normal(size=100_000)
    begun = time.process_time()
    values = decision_values(Kernel("linear"), X, X, beta)
    assert time.process_time() - begun < 1  # 10^10 kernel values take a quarter of a minute
    np.testing.assert_allclose(values[:5], (X[:5] @ X.T) @ beta, rtol=1e-9, atol=1e-9)
