"""Conformal p-values: by hand, against ranks, and their promise on new patients."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from cad.learning.evaluation.decisions.conformal import (
    conformal_p_values,
    conformal_summary,
    leave_patient_out_p_values,
)


def test_by_hand() -> None:
    truth = [1, 1, 1, 0, 1]
    score = [0.9, 0.4, 0.6, 0.2, np.nan]
    groups = ["a", "a", "b", "b", "c"]
    # Patients a (.9, .4) and b (.6) count one each; .5 has .4 below it: half of a.
    p = conformal_p_values(truth, score, groups, [0.5, 0.3, 0.95, np.nan], 1)
    np.testing.assert_allclose(p, [1.5 / 3, 1 / 3, 3 / 3, np.nan])
    p = conformal_p_values(truth, score, groups, [0.1, 0.2, 0.3], 0)
    np.testing.assert_allclose(p, [1, 1, 1 / 2])
    assert conformal_p_values([0, 0], [0.1, 0.2], [1, 2], [0.5], 1) == [1.0]


def test_one_roi_a_patient_is_the_usual_rank() -> None:
    rng = np.random.default_rng(0)
    s, new = rng.normal(size=40), rng.normal(size=7)
    p = conformal_p_values(np.ones(40), s, np.arange(40), new, 1)
    np.testing.assert_allclose(p, [(1 + np.sum(s <= v)) / 41 for v in new])


def test_copies_of_a_patients_roi_change_nothing() -> None:
    rng = np.random.default_rng(1)
    s, g = rng.normal(size=10), np.arange(10)
    once = conformal_p_values(np.ones(10), s, g, [0.1], 1)
    often = np.r_[s, np.repeat(s[3], 20)], np.r_[g, np.repeat(3, 20)]
    assert conformal_p_values(np.ones(30), *often, [0.1], 1) == pytest.approx(once)


def test_the_least_typical_score_of_all_has_p_one_exactly() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        g = np.repeat(np.arange(42), rng.integers(1, 12, 42))
        s = rng.normal(size=len(g))
        p = conformal_p_values(np.ones(len(g)), s, g, [*s, 9.0], 1)
        assert p[-1] == p.max() == 1
        assert p.min() > 0


def test_own_patient_does_not_calibrate() -> None:
    rng = np.random.default_rng(2)
    y, g = np.tile([0.0, 1.0], 20), np.repeat(np.arange(10), 4)
    s = y + rng.normal(size=40)
    before = leave_patient_out_p_values(y, s, g)[1]
    y[1], moved = 0.0, s.copy()
    moved[2] += 50
    after = leave_patient_out_p_values(y, moved, g)[1]
    np.testing.assert_allclose(before[[0, 1, 3]], after[[0, 1, 3]])
    y[5], s[[3, 9, 10]] = np.nan, (s[2], np.nan, s[0])  # unknown, tied, not predicted
    for label, all_at_once in enumerate(leave_patient_out_p_values(y, s, g)):
        for patient in range(10):
            own, rest = g == patient, g != patient
            alone = conformal_p_values(y[rest], s[rest], g[rest], s[own], label)
            np.testing.assert_array_equal(all_at_once[own], alone)


def test_promise_on_new_patients(coverage: ModuleType) -> None:
    """The full 200 cohorts: python -m benchmarks.coverage."""
    found = coverage.conformal(cohorts=150)
    assert found["coverage malignant"] >= 0.87
    assert found["coverage benign"] >= 0.87


def test_summary_counts_sets() -> None:
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(30), 5)
    y = (rng.random(150) < 0.4).astype(float)
    s = 2 * y + rng.normal(size=150)
    y[:3], s[5] = np.nan, np.nan
    p_benign, p_malignant = leave_patient_out_p_values(y, s, g)
    found = conformal_summary(y, s, g, p_benign, p_malignant)
    for row in found["levels"]:
        assert row.empty + row.single + row.both == pytest.approx(1)
        assert row.coverage_malignant >= 1 - row.error - 0.05
        assert row.coverage_benign_roi >= 1 - row.error - 0.05
    assert np.isnan(p_malignant[5])
    assert np.isfinite(p_malignant[:3]).all()
