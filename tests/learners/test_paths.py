"""Families of fits: every member equals the same problem solved from nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cad.learners.base import LearnerError
from cad.learners.cvxopt_solver import solve_cvxopt
from cad.learners.kernels import Gram, Kernel
from cad.learners.paths import leave_groups_out, path_of_costs, restrict
from cad.learners.pointwise import solve_hybrid
from cad.learners.probabilistic import probabilistic_problem
from cad.learners.problem import Problem, Solution
from cad.learners.soft_labels import soft_labels
from cad.learners.svm import svm_problem


def psvm(seed: int, n: int = 72, C: float = 10.0) -> tuple[np.ndarray, Problem]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    p = np.round(4 / (1 + np.exp(-2 * X[:, 0] + rng.normal(size=n)))) / 4
    cost = np.full(n, C)
    problem = probabilistic_problem(soft_labels(p, 0.125), cost, cost, None)
    return Kernel("rbf", 0.1).between(X, X), problem


def cold(K: np.ndarray, problem: Problem) -> Solution:
    return solve_hybrid(Gram(Kernel("precomputed"), K, K), problem)


@pytest.mark.parametrize("C", [1.0, 100.0, 2.0**13])
def test_refits_without_each_patient_equal_cold_fits_and_the_reference(C: float) -> None:
    K, problem = psvm(1, C=C)
    patient = np.repeat(np.arange(12), 6) % 9
    folds = leave_groups_out(K, problem, patient)
    assert sorted(folds) == list(range(9))
    for name, solution in folds.items():
        stay = np.flatnonzero(patient != name)
        part = np.ascontiguousarray(K[np.ix_(stay, stay)])
        less = restrict(problem, stay)
        assert solution.converged
        assert solution.beta.shape == stay.shape
        assert solution.primal == pytest.approx(cold(part, less).primal, rel=1e-6)
        assert solution.primal == pytest.approx(solve_cvxopt(part, less).primal, rel=1e-6)
        # A subset of the costs cannot cost more.
        assert solution.primal <= cold(K, problem).primal * (1 + 1e-6)


def test_a_given_full_solution_is_used_and_gives_the_same() -> None:
    K, problem = psvm(2)
    patient = np.arange(72) % 6
    full = cold(K, problem)
    given, solved = leave_groups_out(K, problem, patient, full=full), None
    solved = leave_groups_out(K, problem, patient)
    for name in given:
        assert given[name].gamma.tobytes() == solved[name].gamma.tobytes()


def test_a_path_of_costs_equals_cold_fits_up_and_down() -> None:
    K, problem = psvm(3, C=1.0)
    for factors in ([0.01, 0.1, 1.0, 10.0, 1000.0], [100.0, 1.0, 0.01]):
        path = path_of_costs(K, problem, factors)
        assert len(path) == len(factors)
        for factor, solution in zip(factors, path, strict=True):
            scaled = Problem(
                problem.A, problem.B, problem.t, problem.c * factor, problem.lower, problem.upper
            )
            assert solution.converged
            assert solution.primal == pytest.approx(cold(K, scaled).primal, rel=1e-6)


def test_leaving_out_a_point_without_rows_changes_nothing() -> None:
    K, _ = psvm(4, n=20)
    y = np.tile([0.0, 1.0], 10)
    cost = np.ones(20)
    cost[[3, 4]] = 1e-3
    problem = svm_problem(y, cost)
    stay = np.r_[0:3, 5:20]
    less = restrict(problem, stay)
    assert less.n_points == 18
    assert less.n_rows == problem.n_rows - 2
    # What two nearly free points can add to the objective is bounded by their cost.
    part = np.ascontiguousarray(K[np.ix_(stay, stay)])
    difference = cold(K, problem).primal - cold(part, less).primal
    assert 0 <= difference <= 2e-3 * 4


def test_bad_groups_are_refused_with_the_numbers() -> None:
    K, problem = psvm(5)
    with pytest.raises(LearnerError, match="70 groups for 72 points"):
        leave_groups_out(K, problem, np.zeros(70))
    with pytest.raises(LearnerError, match="one group only"):
        leave_groups_out(K, problem, np.zeros(72))
