"""Solving by blocks, without the whole kernel matrix, and how balances are judged."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cad.learning.learners.soft_labels import probabilistic_problem, soft_labels
from cad.learning.learners.solvers import pointwise
from cad.learning.learners.solvers.cvxopt_solver import solve_cvxopt
from cad.learning.learners.solvers.decomposition import block_size, smo_by_blocks
from cad.learning.learners.solvers.kernels import Gram, Kernel
from cad.learning.learners.solvers.pointwise import solve_hybrid
from cad.learning.learners.solvers.problem import Problem, certify
from cad.learning.learners.solvers.rows import Iterate, as_rows


def make(seed: int, n: int, C: float) -> tuple[np.ndarray, Problem]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    p = np.round(4 / (1 + np.exp(-2 * X[:, 0] + rng.normal(size=n)))) / 4
    cost = np.full(n, C)
    return X, probabilistic_problem(soft_labels(p, 0.125), cost, cost, None)


@pytest.mark.parametrize("cache_mb", [1e-6, 0.01, 0.1, 10.0])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_any_block_size_finds_the_optimum(cache_mb: float, C: float) -> None:
    X, problem = make(1, 90, C)
    kernel = Kernel("rbf", 0.3)
    exact = solve_cvxopt(kernel.between(X, X), problem)
    gram = Gram(kernel, X, None)
    first = solve_hybrid(gram, problem, cache_mb=cache_mb)
    assert first.converged
    assert first.primal == pytest.approx(exact.primal, rel=1e-6)
    again = solve_hybrid(gram, problem, cache_mb=cache_mb)
    assert first.gamma.tobytes() == again.gamma.tobytes()


@pytest.mark.parametrize("at_once", [1, 5, 31])
def test_rows_that_are_made_together_change_no_solution(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 90 points, and of 4 whose costs are not zero: fewer rows than are made at once."""
    monkeypatch.setattr(pointwise, "_ROWS_AT_ONCE", at_once)
    kernel = Kernel("rbf", 0.3)
    X, problem = make(1, 90, 10.0)
    few = np.zeros(90)
    few[[3, 20, 50, 77]] = 1.0
    p = np.where(np.arange(90) % 2, 0.875, 0.125)
    for asked in (problem, probabilistic_problem(soft_labels(p, 0.125), few, few, 0.5)):
        exact = solve_cvxopt(kernel.between(X, X), asked)
        found = solve_hybrid(Gram(kernel, X, None), asked)
        assert found.converged
        assert found.primal == pytest.approx(exact.primal, rel=1e-6)


def test_blocks_alone_reach_the_tolerance_and_keep_f() -> None:
    X, problem = make(2, 200, 1.0)
    kernel = Kernel("rbf", 0.3)
    gram = Gram(kernel, X, None)
    alone = solve_hybrid(gram, problem, cache_mb=0.05, polish=False)
    assert alone.converged
    assert alone.solver == "smo"
    rows = as_rows(problem)
    at = Iterate(np.zeros(problem.n_rows), np.zeros(200), np.zeros(2))
    scale = np.array([0.5, 0.3, 0.0])
    moves, violation = smo_by_blocks(gram, 20, rows, at, scale, 1e-3, 10**6)
    assert moves > 0
    assert violation <= 1e-3
    assert np.abs(rows.sign @ at.gamma) < 1e-9
    np.testing.assert_allclose(at.f, kernel.between(X, X) @ (problem.A.T @ at.gamma), atol=1e-10)
    assert scale[2] == pytest.approx(float(-(rows.q * rows.sign) @ at.gamma), abs=1e-9)


def test_a_block_fits_its_budget() -> None:
    assert block_size(1e-6, 100) == 2
    assert block_size(1e6, 100) == 100
    for megabytes in (1.0, 10.0, 60.0):
        assert 8e-6 * block_size(megabytes, 10**6) ** 2 <= megabytes / 2


def test_a_soft_label_whose_rows_are_nearly_inactive_is_judged_by_their_costs() -> None:
    # One point asked for f >= 1; f + d >= -5 and f - d >= -5 hold by far and pull by rounding.
    one = np.ones(3)
    problem = Problem(
        sparse.csr_array(one[:, None]),
        sparse.csr_array(np.array([[0.0], [1.0], [-1.0]])),
        np.array([1.0, -5.0, -5.0]),
        one,
        np.zeros(1),
        np.ones(1),
        2,
    )
    rounding = 1e-9
    gamma = np.array([2 / 3, rounding, 0.0])  # K = 1: f = gamma, gamma / 2 = 1 - f
    solution = certify(
        problem, np.array([gamma.sum()]), gamma, np.array([0.5]), iterations=0, solver=""
    )
    assert solution.converged, str(solution)
    # A pull worth a tenth of the costs is none to overlook.
    gamma[1] = 0.2
    assert (
        certify(
            problem, np.array([gamma.sum()]), gamma, np.array([0.5]), iterations=0, solver=""
        ).kkt
        > 0.05
    )
