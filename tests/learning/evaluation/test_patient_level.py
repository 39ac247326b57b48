"""Men: their truth, counted by hand, and the measures of their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cad.learning.evaluation.decisions.patient_level import measure_men, truth_of_men


def test_truth_of_men_by_hand() -> None:
    truth = np.array([0, 1, 0, 0, np.nan, np.nan, 0, 1])
    patients = np.array(["b", "b", "a", "a", "c", "d", "d", "e"])
    # d has an open region: a benign one beside it does not make the man benign.
    np.testing.assert_array_equal(truth_of_men(truth, patients), [0, 1, np.nan, np.nan, 1])


def test_men_are_ranked_by_what_can_be_compared() -> None:
    rng = np.random.default_rng(0)
    truth = np.r_[np.ones(20), np.zeros(30)]
    rank = truth + rng.normal(0, 0.7, 50)
    probability = rng.uniform(0.1, 0.9, 50)
    measured = measure_men(truth, probability, rank, bootstraps=30)
    assert measured.auc.value == pytest.approx(roc_auc_score(truth, rank))
    assert measured.auc.lower < measured.auc.value < measured.auc.upper
    assert measured.brier.value == pytest.approx(np.mean((truth - probability) ** 2))
    assert measure_men(np.full(8, np.nan), np.full(8, 0.5)).n == 0
