"""Venn-Abers intervals: by hand, against scikit-learn's isotonic fits, and what they cover."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from cad.learning.evaluation.decisions.venn_abers import (
    check_venn_abers,
    leave_patient_out_venn_abers,
    venn_abers,
)


def test_by_hand() -> None:
    """Patient a has two known regions, of weight 1/2 each; b has one; the new one weighs 1."""
    truth, score, patients = [0, 1, 1, np.nan], [0.2, 0.6, 0.8, 0.5], ["a", "a", "b", "b"]
    low, high = venn_abers(truth, score, patients, [0.7, 0.1, 0.9, np.nan])
    # At .7 as benign: .6 (weight 1/2, malignant) and .7 (weight 1, benign) pool to 1/3.
    np.testing.assert_allclose(low, [1 / 3, 0, 3 / 5, np.nan], atol=1e-12)
    # At .1 as malignant: 1 of weight 1, then 0 of weight 1/2 pool to 2/3.
    np.testing.assert_allclose(high, [1, 2 / 3, 1, np.nan], atol=1e-12)


def test_ties_are_one_level_as_in_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    s, g = np.round(rng.random(60), 1), rng.integers(0, 12, 60)
    y = (rng.random(60) < s).astype(float)
    new = np.r_[np.round(rng.random(8), 1), rng.random(5), -1, 2]
    size = np.bincount(g)[g]
    for label, ends in enumerate(venn_abers(y, s, g, new)):
        for value, end in zip(new, ends, strict=True):
            peer = IsotonicRegression(out_of_bounds="clip")
            peer.fit(np.r_[s, value], np.r_[y, label], sample_weight=np.r_[1 / size, 1.0])
            assert end == pytest.approx(peer.predict([value])[0], abs=1e-12)


def test_copies_of_a_patients_regions_change_nothing() -> None:
    rng = np.random.default_rng(1)
    s, y, g = rng.random(20), rng.integers(0, 2, 20), np.arange(20) // 2
    own = np.flatnonzero(g == 4)
    often = [np.r_[part, np.tile(part[own], 9)] for part in (y, s, g)]
    np.testing.assert_allclose(venn_abers(y, s, g, s), venn_abers(*often, s), atol=1e-12)


def test_a_monotone_change_of_the_score_changes_nothing_and_low_is_below_high() -> None:
    rng = np.random.default_rng(2)
    s, g = rng.normal(size=80), np.arange(80) // 4
    y = (rng.random(80) < 0.4).astype(float)
    low, high = leave_patient_out_venn_abers(y, s, g)
    assert (low < high).all()
    np.testing.assert_allclose(leave_patient_out_venn_abers(y, np.exp(s), g), [low, high])


def test_of_many_regions_those_of_some_patients_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each still against all other patients: the same intervals as when all are made."""
    rng = np.random.default_rng(3)
    q, g = rng.random(120), np.arange(120) // 3
    y = (rng.random(120) < q).astype(float)
    low, high = leave_patient_out_venn_abers(y, q, g)
    monkeypatch.setattr("cad.learning.evaluation.decisions.venn_abers.MOST_CHECKED", 12)
    checked = check_venn_abers(y, q, g)
    assert checked is not None
    assert checked.n == 12
    assert "of 12 probabilities, of 4 patients, lie" in checked.sentence
    rows = np.isin(g, [0, 13, 26, 39])
    assert checked.width == pytest.approx((high - low)[rows].mean(), abs=1e-12)


def test_nothing_is_said_without_both_classes() -> None:
    assert np.isnan(venn_abers([1, 1], [0.2, 0.4], [1, 2], [0.3])).all()
    assert np.isnan(venn_abers([], [], [], [0.3])).all()


@pytest.mark.parametrize("cohorts", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_intervals_hold_the_observed_frequency(coverage: ModuleType, cohorts: int) -> None:
    found = coverage.frequency(cohorts=cohorts, patients=20)
    assert found["own patients"] >= 0.93
    assert found["ten times as many new ones"] >= (0.93 if cohorts == 200 else 0.6)
    if cohorts == 200:
        assert found["a single score"] == pytest.approx(0.84, abs=0.03)  # not .93: docs/evidence.md
