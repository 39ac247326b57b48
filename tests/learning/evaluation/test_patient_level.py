"""Men: their truth, counted by hand, and the measures of their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from cad.learning.evaluation.decisions.patient_level import (
    PatientLevel,
    measure_men,
    truth_of_men,
)
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import clustered_auc


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


def measured_cohort() -> tuple[np.ndarray, np.ndarray]:
    """Truths and probabilities of 60 men, three of whom lack one of the two."""
    rng = np.random.default_rng(4)
    probability = rng.uniform(0.05, 0.95, 60)
    truth = (rng.random(60) < probability).astype(float)
    truth[:2] = np.nan
    probability[2] = np.nan
    return truth, probability


def test_men_without_truth_or_probability_are_counted_and_not_measured() -> None:
    truth, probability = measured_cohort()
    measured = measure_men(truth, probability, bootstraps=20)
    y, p = truth[3:], probability[3:]
    assert (measured.n, measured.unknown) == (57, 3)
    assert measured.positive == int(y.sum())
    assert measured.auc == clustered_auc(y, p, np.arange(57))
    assert measured.average_precision.value == pytest.approx(average_precision_score(y, p))
    assert measured.brier.value == pytest.approx(np.mean((y - p) ** 2))
    assert measured.calibration_intercept.value == pytest.approx(
        metrics.calibration_intercept(y, p)
    )
    assert measured.calibration_slope.value == pytest.approx(metrics.calibration_slope(y, p))
    # The slope alone is fitted to the probabilities on one scale, where there are such.
    on_one_scale = np.where(np.isfinite(probability), probability**2, np.nan)
    moved = measure_men(truth, probability, on_one_scale=on_one_scale, bootstraps=20)
    assert moved.calibration_slope.value == pytest.approx(metrics.calibration_slope(y, p**2))
    assert moved.brier == measured.brier
    assert moved.auc == measured.auc
    # Held beside intervals that know the number of parts left out, the AUC's widens.
    folds = measure_men(truth, probability, bootstraps=20, n_folds=5)
    assert folds.auc == clustered_auc(y, p, np.arange(57), 5)


def test_a_thousand_resamples_with_seed_nought_unless_others_are_wanted() -> None:
    truth, probability = measured_cohort()
    standard = measure_men(truth, probability)
    assert standard == measure_men(truth, probability, bootstraps=1000, seed=0)
    assert standard.brier.method == "1000 patient resamples"
    assert standard.brier != measure_men(truth, probability, seed=1).brier


def test_nothing_measured_counts_nobody() -> None:
    empty = measure_men(np.full(3, np.nan), np.full(3, 0.5))
    assert (empty.n, empty.positive, empty.unknown) == (0, 0, 0)
    assert empty == PatientLevel()
    assert np.isnan(empty.auc.value)
