"""Measures against scikit-learn, scipy, hand-counted values and invariants."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import entropy
from sklearn import metrics as reference
from sklearn.linear_model import LogisticRegression

from cad.learning.evaluation.measures import metrics


def sample(seed: int, n: int = 200, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(float)
    q = 1 / (1 + np.exp(-(rng.normal(size=n) + 1.5 * y - 1)))
    return y, np.round(q, 1) if ties else q


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_ranking_measures_are_those_of_scikit_learn(seed: int, ties: bool) -> None:
    y, q = sample(seed, ties=ties)
    assert metrics.auc(y, q) == pytest.approx(reference.roc_auc_score(y, q), abs=1e-12)
    assert metrics.average_precision(y, q) == pytest.approx(
        reference.average_precision_score(y, q), abs=1e-12
    )
    for limit in (0.1, 0.2, 0.5):
        assert metrics.partial_auc(y, q, limit) == pytest.approx(
            reference.roc_auc_score(y, q, max_fpr=limit), abs=1e-12
        )
    assert metrics.brier(y, q) == pytest.approx(np.mean((y - q) ** 2), abs=1e-14)


def test_accuracy_by_hand() -> None:
    y = [1, 1, 1, 0, 0, 0, 0, 0]
    assert metrics.accuracy(y, [0.9, 0.6, 0.2, 0.7, 0.5, 0.3, 0.1, 0.1]) == pytest.approx(6 / 8)


def test_kl_is_scipys_entropy_of_two_outcomes() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.random((2, 50))
    two = np.stack([p, 1 - p]), np.stack([q, 1 - q])
    assert metrics.kl(p, q) == pytest.approx(entropy(*two, axis=0).sum(), rel=1e-12)
    assert metrics.kl_one_sided(p, q) == pytest.approx(np.sum(p * np.log(p / q)), rel=1e-12)


def test_cross_entropy_is_log_loss_on_hard_labels() -> None:
    y, q = sample(1)
    assert metrics.cross_entropy(y, q) == pytest.approx(reference.log_loss(y, q), rel=1e-12)


def test_one_sided_kl_is_gamed_and_negative_where_two_sided_is_not() -> None:
    p = np.array([0.1, 0.2, 0.5])
    everything = np.ones(3)
    assert metrics.kl_one_sided(p, everything) < 0
    assert metrics.kl(p, everything) > 10


def test_alignment_error_is_blind_to_scale() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(30)
    assert metrics.alignment_error(p, 0.3 * p) == pytest.approx(0, abs=1e-12)
    assert metrics.alignment_error([1, 0], [0, 1]) == 1
    assert np.isnan(metrics.alignment_error([0, 0], [0, 1]))


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(probabilities, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_proper_measures_are_least_at_the_truth(p: list[float], random: Random) -> None:
    q = [random.random() for _ in p]
    assert metrics.kl(p, p) == 0
    assert metrics.kl(p, q) >= 0
    assert metrics.brier(p, p) == 0
    assert metrics.cross_entropy(p, p) <= metrics.cross_entropy(p, q) + 1e-5
    assert -1e-9 <= np.nan_to_num(metrics.alignment_error(p, q)) <= 1


@given(st.lists(st.integers(0, 4), min_size=4, max_size=30), st.data())
@settings(max_examples=60, deadline=None)
def test_auc_counts_pairs(scores: list[int], data: st.DataObject) -> None:
    y = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, positive in zip(scores, y, strict=True)
        if positive
        for b, other in zip(scores, y, strict=True)
        if not other
    ]
    value = metrics.auc(np.array(y, float), scores)
    assert np.isnan(value) if not pairs else value == pytest.approx(np.mean(pairs), abs=1e-12)


def test_calibration_is_maximum_likelihood() -> None:
    y, q = sample(3, n=400)
    x = np.log(q / (1 - q))
    fit = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x[:, None], y)
    assert metrics.calibration_slope(y, q) == pytest.approx(fit.coef_.item(), abs=1e-5)
    intercept = minimize(lambda b: np.sum(np.logaddexp(0, b + x) - y * (b + x)), 0.0).x.item()
    assert metrics.calibration_intercept(y, q) == pytest.approx(intercept, abs=1e-5)


def test_calibration_of_probabilities_that_are_right() -> None:
    rng = np.random.default_rng(5)
    q = rng.random(20000)
    y = (rng.random(20000) < q).astype(float)
    assert metrics.calibration_slope(y, q) == pytest.approx(1, abs=0.05)
    assert metrics.calibration_intercept(y, q) == pytest.approx(0, abs=0.06)
    extreme = 1 / (1 + np.exp(-2 * np.log(q / (1 - q))))
    assert metrics.calibration_slope(y, extreme) == pytest.approx(0.5, abs=0.03)


def test_calibration_against_soft_targets_is_one_where_they_are_expected() -> None:
    rng = np.random.default_rng(0)
    q = rng.uniform(0.05, 0.95, 4000)
    assert metrics.calibration_slope(q, q) == pytest.approx(1, abs=1e-6)
    shrunk = 1 / (1 + np.sqrt(1 / q - 1))  # half the log-odds
    assert metrics.calibration_slope(q, shrunk) == pytest.approx(2, abs=1e-6)
    assert metrics.calibration_intercept(q, q**2) > 0.5
    # The same as of drawn truths, fifty each; a thresholded target asks for extremes.
    repeated = np.repeat(q, 50)
    drawn = metrics.calibration_slope(
        (rng.random(len(repeated)) < repeated).astype(float), repeated
    )
    assert drawn == pytest.approx(1, abs=0.03)
    assert not metrics.calibration_slope((q > 0.5).astype(float), q + rng.normal(0, 0.01, 4000)) < 5
    assert np.isnan(metrics.calibration_slope(q, np.full(4000, 0.3)))
    assert np.isnan(metrics.calibration_intercept(np.full(4000, 0.3), q))


def test_calibration_curve_keeps_ties_together_and_every_roi() -> None:
    y, q = sample(2, ties=True)
    curve = metrics.calibration_curve(y, q)
    assert sum(curve["n"]) == len(y)
    weighted = np.average(curve["observed"], weights=curve["n"])
    assert weighted == pytest.approx(y.mean())
    assert len(set(curve["predicted"])) == len(curve["predicted"])
    lower, observed, upper = (np.array(curve[k]) for k in ("lower", "observed", "upper"))
    assert ((lower <= observed) & (observed <= upper)).all()


def test_decision_curve_by_hand() -> None:
    curve = metrics.decision_curve([1, 0, 1, 0], [0.8, 0.6, 0.4, 0.1], [0.5, 0.2])
    assert curve["model"] == pytest.approx([1 / 4 - 1 / 4, 2 / 4 - 1 / 4 * 0.25])
    assert curve["all"] == pytest.approx([0.5 - 0.5, 0.5 - 0.5 * 0.25])


def test_wilson_by_hand() -> None:
    # Newcombe (1998), table I: 81 of 263 and 0 of 20.
    for hits, n, ends in ((81, 263, (0.2553, 0.3662)), (0, 20, (0.0, 0.1611))):
        curve = metrics.calibration_curve(np.arange(n) < hits, np.full(n, 0.5))
        assert (curve["lower"][0], curve["upper"][0]) == pytest.approx(ends, abs=5e-5)


def test_a_tied_consensus_is_negative_and_counted() -> None:
    truth, ties = metrics.consensus_truth([0.5, 0.5 + 1e-12, 0.51, 0.25, np.nan])
    np.testing.assert_array_equal(truth, [0, 0, 1, 0, np.nan])
    assert ties == 2


def test_what_cannot_be_measured_is_nan_not_an_error() -> None:
    same = np.full(4, 0.3)
    assert metrics.auc([0, 1, 0, 1], same) == 0.5
    assert np.isnan(metrics.calibration_slope([0, 1, 0, 1], same))
    assert np.isnan(metrics.calibration_slope([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9]))
    for one_class in (np.zeros(4), np.ones(4)):
        assert np.isnan(metrics.auc(one_class, [0.1, 0.2, 0.3, 0.4]))
        assert np.isnan(metrics.calibration_intercept(one_class, [0.1, 0.2, 0.3, 0.4]))
        assert np.isnan(metrics.partial_auc(one_class, [0.1, 0.2, 0.3, 0.4]))


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        metrics.auc([0, 0.5], [0, 1])
    with pytest.raises(ValueError, match="without one"):
        metrics.auc([0, 1], [np.nan, 1])
    with pytest.raises(ValueError, match="equal"):
        metrics.auc([0, 1], [1])
    with pytest.raises(ValueError, match="max_fpr"):
        metrics.partial_auc([0, 1], [0, 1], 0)


def test_patient_average_precision_by_hand_and_by_scikit_learn() -> None:
    # Patients a (.9, benign), b (.8, malignant by its other region), c (.1): precision 1/2.
    truth, score = [0, 0, 1, 0], [0.9, 0.8, 0.2, 0.1]
    assert metrics.patient_average_precision(truth, score, ["a", "b", "b", "c"]) == 0.5
    rng = np.random.default_rng(0)
    group, q = rng.integers(0, 40, 200), rng.random(200)
    y = (rng.random(200) < 0.15 + 0.3 * q).astype(float)
    names = np.unique(group)
    own = [[v[group == name].max() for name in names] for v in (y, q)]
    found = metrics.patient_average_precision(y, q, group)
    assert found == pytest.approx(reference.average_precision_score(*own))
    assert np.isnan(metrics.patient_average_precision([0, 0], [0.1, 0.2], [0, 1]))
