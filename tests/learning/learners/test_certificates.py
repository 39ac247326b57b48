"""A solution's objectives, gap and violations are counted again by loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from cad.learning.learners.solvers.problem import Problem, certify, pointwise_problem

POINTS, ROWS = 5, 8


def drawn(seed: int, r: int, *, pairs: bool, spread: float = 1.0) -> tuple[Problem, Any, Any, Any]:
    """Draw a problem with a free scalar, one bounded below and one in a box; f, duals, scalars."""
    rng = np.random.default_rng([11, seed])
    A = np.zeros((ROWS, POINTS))
    for row in range(ROWS):
        for point in rng.choice(POINTS, size=2 if pairs else 1, replace=False):
            A[row, point] = rng.choice([-1.0, 1.0])
    problem = Problem(
        sparse.csr_array(A),
        rng.normal(size=(ROWS, 3)),
        rng.normal(size=ROWS),
        np.exp(spread * rng.normal(size=ROWS)),
        np.array([-np.inf, 0.0, 0.0]),
        np.array([np.inf, np.inf, 1.0]),
        r,
    )
    gamma = rng.uniform(0, 1, ROWS) * (problem.c if r == 1 else 1.0)
    return problem, rng.normal(size=POINTS), gamma, np.array([rng.normal(), 0.4, 0.7])


def counted(problem: Problem, f: Any, gamma: Any, u: Any) -> dict[str, float]:
    """Return primal, dual, gap and violation from their definitions (docs/methods.md 2)."""
    A, B = problem.dense()
    primal = dual = worst = 0.0
    g = [0.0] * len(u)
    for row in range(problem.n_rows):
        slack = problem.t[row]
        for point in range(problem.n_points):
            slack -= A[row, point] * f[point]
            primal += 0.5 * A[row, point] * gamma[row] * f[point]
            dual -= 0.5 * A[row, point] * gamma[row] * f[point]
        for k, scalar in enumerate(u):
            slack -= B[row, k] * scalar
            g[k] += B[row, k] * gamma[row]
        cost = problem.c[row]
        dual += problem.t[row] * gamma[row]
        if problem.r == 1:
            primal += cost * max(slack, 0.0)
            room = cost - gamma[row] if slack > 0 else gamma[row]
            worst = max(worst, min(abs(slack), room / max(cost, 1e-5 * max(gamma))))
        else:
            primal += cost * max(slack, 0.0) ** 2
            dual -= gamma[row] ** 2 / (4 * cost)
            worst = max(worst, abs(gamma[row] / (2 * cost) - max(slack, 0.0)))
    for k, scalar in enumerate(u):
        bound = problem.upper[k] if g[k] > 0 else problem.lower[k]
        dual -= g[k] * (bound if np.isfinite(bound) else scalar)
        terms = 0.0
        for row in range(problem.n_rows):
            boxed = np.isfinite(problem.lower[k]) and np.isfinite(problem.upper[k])
            most = problem.c[row] if boxed else gamma[row] + 1e-9 * problem.c[row]
            terms += abs(B[row, k]) * most
        room = problem.upper[k] - scalar if g[k] > 0 else scalar - problem.lower[k]
        worst = max(worst, min(abs(g[k]) / terms, room))
    size = max(abs(primal), abs(dual), 1e-9 * sum(problem.c))
    return {"primal": primal, "dual": dual, "gap": (primal - dual) / size, "kkt": worst}


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("r", [1, 2])
def test_a_certificate_is_what_loops_count(r: int, pairs: bool) -> None:
    for seed in range(40):
        problem, f, gamma, u = drawn(seed, r, pairs=pairs, spread=3.0 if seed % 2 else 0.5)
        solution = certify(problem, f, gamma, u, iterations=7, solver="drawn")
        for name, value in counted(problem, f, gamma, u).items():
            assert getattr(solution, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name
        A, _ = problem.dense()
        np.testing.assert_allclose(solution.beta, A.T @ gamma, atol=1e-12)
        assert (solution.iterations, solution.solver) == (7, "drawn")
        assert not solution.converged
        assert "NOT converged" in str(solution)


def test_each_violation_alone_is_the_one_that_is_told() -> None:
    """One row and one scalar, so that nothing else can be the largest."""
    one = np.ones(1)
    problem = Problem(
        sparse.csr_array(np.ones((1, 1))), np.ones((1, 1)), one, one, np.zeros(1), np.full(1, 2.0)
    )
    # Beyond its margin (slack -1) with a dual of .25; the scalar at its upper bound.
    beyond = certify(
        problem, np.zeros(1), np.array([0.25]), np.array([2.0]), iterations=0, solver=""
    )
    assert beyond.kkt == pytest.approx(0.25)
    # On the margin: the balance .5 of its row's cost, with room 1 to the upper bound.
    boxed = certify(problem, np.zeros(1), np.array([0.5]), one, iterations=0, solver="")
    assert boxed.kkt == pytest.approx(0.5)
    # The same balance with little room, so that the room counts.
    near = certify(
        problem, np.array([-0.9]), np.array([0.5]), np.array([1.9]), iterations=0, solver=""
    )
    assert near.kkt == pytest.approx(0.1)


def test_duals_and_scalars_are_clipped_to_their_bounds_first() -> None:
    problem, f, _, _ = drawn(3, 1, pairs=False)
    outside = np.where(np.arange(ROWS) % 2 == 0, -1.0, 2 * problem.c)
    solution = certify(problem, f, outside, np.array([-5.0, -1.0, 3.0]), iterations=0, solver="")
    assert solution.gamma.tolist() == np.where(outside < 0, 0.0, problem.c).tolist()
    assert solution.u.tolist() == [-5.0, 0.0, 1.0]
    squared, f, _, _ = drawn(3, 2, pairs=False)
    solution = certify(squared, f, outside, np.zeros(3), iterations=0, solver="")
    assert solution.gamma.tolist() == np.where(outside < 0, 0.0, outside).tolist()


def test_next_to_an_optimum_of_zero_the_gap_is_relative_to_the_costs() -> None:
    tiny = np.array([1e-12])
    problem = pointwise_problem(1, np.array([0]), np.ones(1), tiny, np.array([4.0]))
    solution = certify(problem, np.zeros(1), np.zeros(1), np.zeros(1), iterations=0, solver="")
    # 4 times 1e-12 is missed, over 1e-9 times the cost 4.
    assert solution.gap == pytest.approx(1e-3)


def test_limits_belong_to_what_they_allow() -> None:
    """A gap and a violation of exactly the limit are converged, larger ones are not."""
    problem = pointwise_problem(1, np.array([0]), np.ones(1), np.ones(1), np.ones(1))
    values = (problem, np.array([0.5]), np.array([0.5]), np.array([0.25]))
    told = certify(*values, iterations=0, solver="")
    gap, kkt = abs(told.gap), told.kkt
    assert min(gap, kkt) > 0
    for gap_tol, kkt_tol, converged in (
        (gap, kkt, True),
        (0.99 * gap, kkt, False),
        (gap, 0.99 * kkt, False),
    ):
        solution = certify(*values, iterations=0, solver="", gap_tol=gap_tol, kkt_tol=kkt_tol)
        assert solution.converged is converged


def test_a_row_whose_cost_is_rounding_violates_nothing() -> None:
    """A cost of 1e-9 beside a dual of 1: an error of 1e-12 of the dual is none."""
    problem = pointwise_problem(
        2, np.array([0, 1]), np.ones(2), np.array([1.0, -1.0]), np.array([1.0, 1e-9])
    )
    gamma = np.array([1.0, 5e-10])
    solution = certify(problem, np.array([-1.0, 1.0]), gamma, np.zeros(1), iterations=0, solver="")
    # The second row lies 2 beyond its margin: 5e-10 over 1e-5, not over its cost.
    row = min(2.0, 5e-10 / 1e-5)
    balance = 1.0
    assert solution.kkt == pytest.approx(balance)
    without_scalar = Problem(
        problem.A, np.zeros((2, 0)), problem.t, problem.c, np.zeros(0), np.zeros(0)
    )
    alone = certify(
        without_scalar, np.array([-1.0, 1.0]), gamma, np.zeros(0), iterations=0, solver=""
    )
    assert alone.kkt == pytest.approx(row)


def test_without_rows_there_is_nothing_to_violate() -> None:
    nothing = np.zeros(0)
    problem = Problem(
        sparse.csr_array((0, 2)), np.zeros((0, 1)), nothing, nothing, np.zeros(1), np.ones(1)
    )
    solution = certify(problem, np.zeros(2), nothing, np.array([0.5]), iterations=0, solver="none")
    assert (solution.primal, solution.dual, solution.kkt) == (0.0, 0.0, 0.0)
    assert solution.converged
    assert str(solution).startswith("none: converged, objective 0,")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"B": np.ones((3, 1))}, "B has 3 rows, A has 2"),
        ({"t": np.ones(3)}, "t has 3 rows, A has 2"),
        ({"c": np.ones(1)}, "c has 1 rows, A has 2"),
        ({"lower": np.zeros(2)}, "B has 1 columns but 2 lower and 1 upper bounds"),
        ({"upper": np.zeros(2)}, "B has 1 columns but 1 lower and 2 upper bounds"),
        ({"r": 3}, "r = 3, must be 1"),
        ({"r": 0}, "r = 0, must be 1"),
        ({"t": np.array([1.0, np.nan])}, "margins must be finite"),
        ({"c": np.array([1.0, np.inf])}, "costs finite and > 0"),
        ({"c": np.array([1.0, 0.0])}, "costs finite and > 0"),
        ({"lower": np.array([2.0])}, "a box with lower > upper is empty"),
    ],
)
def test_what_is_no_problem_is_refused(change: dict[str, Any], words: str) -> None:
    content: dict[str, Any] = {
        "A": sparse.csr_array(np.eye(2)),
        "B": np.ones((2, 1)),
        "t": np.ones(2),
        "c": np.ones(2),
        "lower": np.ones(1),
        "upper": np.ones(1),
    }
    Problem(**content)  # a box of one number is none that is empty
    with pytest.raises(ValueError, match=words):
        Problem(**(content | change))


def test_a_pointwise_problem_has_an_intercept_and_maybe_a_scale() -> None:
    point, sign = np.array([1, 0, 1]), np.array([1.0, -1.0, -1.0])
    plain = pointwise_problem(2, point, sign, np.ones(3), np.ones(3))
    assert plain.dense()[0].tolist() == [[0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    assert plain.dense()[1].tolist() == [[1.0], [-1.0], [-1.0]]
    assert (plain.lower.tolist(), plain.upper.tolist()) == ([-np.inf], [np.inf])
    scaled = pointwise_problem(2, point, sign, np.ones(3), np.ones(3), np.array([2.0, 3.0, 4.0]))
    assert scaled.dense()[1].tolist() == [[1.0, 2.0], [-1.0, 3.0], [-1.0, 4.0]]
    assert (scaled.lower.tolist(), scaled.upper.tolist()) == ([-np.inf, 0.0], [np.inf, np.inf])


def test_the_primal_objective_of_a_problem_is_that_of_its_certificate() -> None:
    for r in (1, 2):
        problem, f, gamma, u = drawn(5, r, pairs=True)
        solution = certify(problem, f, gamma, u, iterations=0, solver="")
        assert problem.primal(solution.beta, f, u) == pytest.approx(solution.primal, rel=1e-12)


def test_unless_stated_a_gap_of_a_millionth_and_a_violation_of_ten_are_allowed() -> None:
    """Two points at 1 and -1 whose duals of one half are off by an error."""
    problem = pointwise_problem(2, np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2), np.ones(2))
    told = []
    for error in np.geomspace(1e-8, 1e-2, 60):
        gamma = np.full(2, 0.5 - error)
        f = np.array([1.0, -1.0]) * 2 * gamma[0]
        solution = certify(problem, f, gamma, np.zeros(1), iterations=0, solver="")
        told.append((solution.converged, abs(solution.gap) <= 1e-6, solution.kkt <= 1e-5))
    assert all(converged == (near and sound) for converged, near, sound in told)
    assert len({converged for converged, _, _ in told}) == 2
