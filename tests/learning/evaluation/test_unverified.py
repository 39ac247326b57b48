"""Regions without histology, counted as benign: slope and predictive value, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cad.learning.evaluation.decisions.unverified import if_unverified_were_benign
from cad.learning.evaluation.measures.metrics import calibration_slope

TRUTH = np.array([0.0, 1.0, 0.0, 1.0, np.nan, np.nan, 1.0, 0.0])
PROBABILITY = np.array([0.1, 0.8, 0.4, 0.3, 0.05, 0.6, 0.15, np.nan])
PATIENTS = np.arange(8)


def test_unverified_regions_are_counted_as_benign() -> None:
    """Below .2 lie a benign, a malignant and an unverified region; one has no probability."""
    measured = if_unverified_were_benign(TRUTH, PROBABILITY, PATIENTS, 0.2)
    assert measured is not None
    assert (measured.verified, measured.unverified) == (5, 2)
    assert measured.npv == pytest.approx(1 / 2)
    assert measured.npv_if_benign == pytest.approx(2 / 3)
    verified = [0, 1, 2, 3, 6]
    scored = [0, 1, 2, 3, 4, 5, 6]
    assumed = np.nan_to_num(TRUTH)
    expected = calibration_slope(TRUTH[verified], PROBABILITY[verified])
    expected_if_benign = calibration_slope(assumed[scored], PROBABILITY[scored])
    assert measured.slope == pytest.approx(expected)
    assert measured.slope_if_benign == pytest.approx(expected_if_benign)
    assert f"{expected_if_benign:.2f} instead of {expected:.2f}" in measured.sentence
    assert "the other 2 benign" in measured.sentence


def test_slopes_are_fitted_to_the_probabilities_on_one_scale() -> None:
    on_one_scale = PROBABILITY**2
    measured = if_unverified_were_benign(TRUTH, PROBABILITY, PATIENTS, 0.2, on_one_scale)
    assert measured is not None
    verified = [0, 1, 2, 3, 6]
    assert measured.slope == pytest.approx(
        calibration_slope(TRUTH[verified], on_one_scale[verified])
    )
    assert measured.npv == pytest.approx(1 / 2)


@pytest.mark.parametrize("truth", [np.full(8, np.nan), np.array([0, 1.0] * 4)])
def test_there_is_nothing_to_say_if_all_or_none_are_verified(truth: np.ndarray) -> None:
    assert if_unverified_were_benign(truth, PROBABILITY, PATIENTS, 0.2) is None


def test_without_a_region_below_the_threshold_no_predictive_value_is_stated() -> None:
    measured = if_unverified_were_benign(TRUTH, PROBABILITY, PATIENTS, 0.01)
    assert measured is not None
    assert np.isnan(measured.npv)
    assert "predictive value" not in measured.sentence
