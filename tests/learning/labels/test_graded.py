"""Readers with thresholds and noise of their own, and no histology."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.interpolate import CubicSpline
from scipy.optimize import approx_fprime
from scipy.stats import norm

from cad.base.errors import CadError
from cad.learning.evaluation.measures.metrics import brier
from cad.learning.labels import graded
from cad.learning.labels.graded import GradedReaders
from cad.learning.labels.pooled import MeanReaders
from cad.learning.labels.rules import fold_labels

CUTS = np.array([-0.8, 0.0, 0.6, 1.2])
NOISE = np.array([0.3, 0.5, 0.8, 1.6])
LEAN = np.array([0.0, 0.3, -0.3, 0.5])


def readings(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return grades of four readers who see x through their own noise, and x."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    percept = x[:, None] + LEAN + NOISE * rng.normal(size=(n, 4))
    grades = np.searchsorted(CUTS, percept) / 4
    grades[rng.random((n, 4)) < 0.05] = np.nan
    return grades, x


def test_the_precisions_that_made_the_grades_are_found() -> None:
    grades, _ = readings(3000)
    rule = GradedReaders().fit(grades, np.full(3000, np.nan))
    np.testing.assert_allclose(1 / rule.precision_, NOISE, atol=0.1)


def test_the_slope_of_the_likelihood_is_its_difference() -> None:
    counts = np.random.default_rng(0).random((5, 61))
    theta = np.array([0.2, -0.9, -0.2, 0.1, -0.4])

    def value(at: np.ndarray) -> float:
        return float(at[0] ** 2 / 2 - np.sum(counts * graded._log_table(at)))

    best = graded._improve(theta, counts)
    for _ in range(20):
        best = graded._improve(best, counts)
    np.testing.assert_allclose(approx_fprime(best, value, 1e-6), 0, atol=2e-3 * counts.sum() / 100)


def test_the_expected_grade_is_the_integral() -> None:
    grades, _ = readings()
    rule = GradedReaders().fit(grades, np.full(600, np.nan))
    case = np.array([[0.75, 0.25, np.nan, 1.0]])

    fine, nodes = np.linspace(-4, 4, 4001), np.linspace(-4, 4, rule._tables.shape[2])
    # P(level | x) of every reader, between the nodes of the fit.
    chance = CubicSpline(nodes, np.exp(rule._tables), axis=2)(fine)
    density = norm.pdf(fine) * chance[0, 3] * chance[1, 1] * chance[3, 4]
    grade = np.einsum("l,rlq->q", rule.levels_, chance) / 4
    expected = trapezoid(grade * density, fine) / trapezoid(density, fine)
    assert rule.predict(case).p[0] == pytest.approx(expected, abs=2e-3)


def test_it_is_nearer_the_truth_than_the_mean_and_a_reader_of_noise_counts_little() -> None:
    grades, x = readings()
    truth = (x > 0.9).astype(float)
    belief = GradedReaders().fit(grades, truth).predict(grades)
    assert brier(truth, belief.p) < brier(truth, MeanReaders().predict(grades).p) - 0.005
    assert 0.02 < np.median(belief.eta) < 0.2
    noisy = grades.copy()
    noisy[:, 1] = np.random.default_rng(1).integers(0, 5, 600) / 4
    assert GradedReaders().fit(noisy, truth).precision_[1] < 0.2


def test_histology_and_the_order_of_readers_change_nothing() -> None:
    grades, x = readings()
    truth = (x > 0.9).astype(float)
    p = GradedReaders().fit(grades, truth).predict(grades).p
    np.testing.assert_array_equal(GradedReaders().fit(grades, 1 - truth).predict(grades).p, p)
    turned = GradedReaders().fit(grades[:, ::-1], truth).predict(grades[:, ::-1]).p
    np.testing.assert_allclose(turned, p, atol=1e-4)
    train = np.arange(300)
    y, eta, note = fold_labels("graded", grades, truth, np.full(600, np.nan), train)
    assert note == ""
    assert np.isfinite(eta[300:]).all() == np.isfinite(y[300:]).all()


def test_odd_panels_take_the_mean_and_say_so_or_hold() -> None:
    """Two readers, one grade, binary reads, all readers equal, nobody, a grade not seen before."""
    grades, x = readings(200)
    nothing = np.full(200, np.nan)
    for few, what in ((grades[:, :2], "2 readers"), (np.full((200, 4), 0.5), "1 different grades")):
        rule = GradedReaders().fit(few, nothing)
        assert what in rule.note
        assert rule.note.endswith("the mean is taken")
        np.testing.assert_array_equal(rule.predict(few).p, MeanReaders().predict(few).p)
    binary = np.where(np.isnan(grades), np.nan, (grades > 0.5).astype(float))
    p = GradedReaders().fit(binary, nothing).predict(binary).p
    assert p[x > 1].mean() > p[x < 0].mean() + 0.3
    equal = np.repeat(np.searchsorted(CUTS, x)[:, None] / 4, 4, axis=1)
    rule = GradedReaders().fit(equal, nothing)
    np.testing.assert_allclose(rule.predict(equal).p, equal[:, 0], atol=0.05)
    assert np.isnan(rule.predict(np.full((1, 4), np.nan)).p[0])
    near = rule.predict(np.array([[0.7] * 4, [0.75] * 4])).p
    assert near[0] == near[1]
    with pytest.raises(CadError, match=r"must lie in \[0, 1\]"):
        GradedReaders().fit(grades * 4, nothing)
