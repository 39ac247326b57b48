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


def test_counts_begin_with_zeros_and_take_equal_scores_together() -> None:
    y = np.array([True, False, True, False, True])
    score = np.array([0.2, 0.9, 0.9, 0.5, 0.2])
    weight = np.array([[1.0, 1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 1.0, 3.0, 0.0]])
    true, false = metrics.cumulative(y, score, weight)
    assert true.tolist() == [[0, 1, 1, 3], [0, 1, 1, 3]]
    assert false.tolist() == [[0, 1, 2, 2], [0, 0, 3, 3]]


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


def test_a_probability_is_on_the_malignant_side_just_above_one_half() -> None:
    assert metrics.accuracy([1, 0, 0], [0.505, 0.5, 0.495]) == 1


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
    for scale in (1e-38, 1e-121, 1e-200, 1e-300):
        assert metrics.alignment_error(p, scale * p) == pytest.approx(0, abs=1e-12)
        assert metrics.alignment_error(scale * p, scale * p) == pytest.approx(0, abs=1e-12)
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


SHARES: tuple[metrics.MeasureCall, ...] = (
    metrics.auc,
    metrics.average_precision,
    metrics.partial_auc,
    metrics.accuracy,
)
MEANS: tuple[metrics.MeasureCall, ...] = (
    metrics.alignment_error,
    metrics.cross_entropy,
    metrics.brier,
)


@pytest.mark.parametrize("measure", [*SHARES, *MEANS], ids=lambda measure: measure.__name__)
def test_half_of_every_weight_changes_no_share_and_no_mean(measure: metrics.MeasureCall) -> None:
    truth = np.array([True, False, True, False])
    for score in ([0.5, 0.5, 0.5, 0.5], [0.9, 0.9, 0.2, 0.1]):
        half = measure(truth, np.array(score), weight=np.full((1, 4), 0.5))
        assert half[0] == pytest.approx(measure(truth, score), abs=1e-12)


def test_average_precision_where_all_malignant_regions_come_last() -> None:
    assert metrics.average_precision([0, 1], [0.9, 0.1]) == 0.5
    assert metrics.average_precision([0, 0, 1, 1], [0.9, 0.8, 0.1, 0.1]) == 0.5


def test_a_partial_area_ends_at_a_rate_of_one_fifth_unless_another_is_stated() -> None:
    y, q = sample(4)
    assert metrics.partial_auc(y, q) == metrics.partial_auc(y, q, 0.2)
    assert metrics.partial_auc(y, q) != metrics.partial_auc(y, q, 0.21)


def test_the_partial_area_up_to_a_rate_of_one_is_the_whole_area() -> None:
    y, q = sample(4)
    assert metrics.partial_auc(y, q, 1.0) == pytest.approx(metrics.auc(y, q), abs=1e-12)


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


def test_the_slope_through_two_soft_targets_by_hand() -> None:
    q = np.array([0.499, 0.501])  # log-odds of -.004 and .004
    odds = np.log(0.6 / 0.4) / np.log(0.501 / 0.499)
    assert metrics.calibration_slope([0.4, 0.6], q) == pytest.approx(odds, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_a_constant_target_has_no_slope_and_no_intercept(value: float) -> None:
    q = [0.1, 0.4, 0.6, 0.9]
    assert np.isnan(metrics.calibration_slope(np.full(4, value), q))
    assert np.isnan(metrics.calibration_intercept(np.full(4, value), q))


@pytest.mark.parametrize("target", [[0, 0, 1, 1], [1, 1, 0, 0]])
def test_classes_that_share_one_probability_and_no_more_have_no_slope(target: list[int]) -> None:
    """The largest probability of one class is the smallest of the other."""
    assert np.isnan(metrics.calibration_slope(target, [0.2, 0.5, 0.5, 0.8]))
    assert np.isfinite(metrics.calibration_slope(target, [0.2, 0.6, 0.5, 0.8]))


def test_a_soft_target_that_is_not_drawn_does_not_keep_the_slope_finite() -> None:
    target = np.array([0.0, 0.0, 0.5, 1.0, 1.0])
    q = np.array([0.1, 0.2, 0.5, 0.8, 0.9])
    weight = np.array([[1.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    slope = metrics.calibration_slope(target, q, weight=weight)
    assert np.isnan(slope[0])
    assert np.isfinite(slope[1])


def test_a_draw_of_no_region_has_no_calibration() -> None:
    target = np.array([0.0, 1.0, 0.0, 1.0])
    q = np.array([0.2, 0.4, 0.6, 0.8])
    weight = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    for measure in (metrics.calibration_intercept, metrics.calibration_slope):
        value = measure(target, q, weight=weight)
        assert np.isnan(value[0])
        assert np.isfinite(value[1])


def test_groups_of_a_calibration_curve_by_hand() -> None:
    truth = [0, 0, 1, 0, 1, 1, 0, 1, 1]
    q = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    curve = metrics.calibration_curve(truth, q, bins=3)
    assert curve["n"] == [3, 3, 3]
    assert curve["predicted"] == pytest.approx([0.2, 0.5, 0.8])
    assert curve["observed"] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    whole = metrics.calibration_curve(truth, q, bins=1)
    assert whole["n"] == [9]
    assert whole["predicted"] == pytest.approx([0.5])


def test_a_calibration_curve_has_ten_groups_unless_another_number_is_stated() -> None:
    y, q = sample(6, n=110)
    curve = metrics.calibration_curve(y, q)
    assert len(curve["n"]) == 10
    assert set(curve["n"]) == {11}
    assert curve == metrics.calibration_curve(y, q, bins=10)


def test_curves_of_one_region_and_of_none() -> None:
    for no_curve in (metrics.calibration_curve([], []), metrics.decision_curve([], [])):
        assert all(values == [] for values in no_curve.values())
    calibration = metrics.calibration_curve([1], [0.4])
    assert (calibration["n"], calibration["predicted"]) == ([1], [0.4])
    assert calibration["observed"] == [1]
    decision = metrics.decision_curve([1], [0.4], [0.3, 0.5])
    assert (decision["model"], decision["all"]) == ([1, 0], [1, 1])


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


def test_net_benefit_where_classes_differ_and_a_region_lies_on_the_threshold() -> None:
    curve = metrics.decision_curve([1, 0, 0, 0], [0.8, 0.2, 0.1, 0.1], [0.2])
    assert curve["model"] == pytest.approx([1 / 4 - 1 / 4 * 0.25])
    assert curve["all"] == pytest.approx([1 / 4 - 3 / 4 * 0.25])
    assert curve["none"] == [0]


def test_a_decision_curve_has_every_hundredth_unless_thresholds_are_stated() -> None:
    curve = metrics.decision_curve([0, 1], [0.2, 0.7])
    assert curve["threshold"] == pytest.approx([hundredth / 100 for hundredth in range(1, 100)])
    assert {len(values) for values in curve.values()} == {99}


def test_wilson_by_hand() -> None:
    # Newcombe (1998), table I: 81 of 263 and 0 of 20.
    for hits, n, ends in ((81, 263, (0.2553, 0.3662)), (0, 20, (0.0, 0.1611))):
        curve = metrics.calibration_curve(np.arange(n) < hits, np.full(n, 0.5))
        assert (curve["lower"][0], curve["upper"][0]) == pytest.approx(ends, abs=5e-5)


def test_a_tied_consensus_is_negative_and_counted() -> None:
    truth, ties = metrics.consensus_truth([0.5, 0.5 + 1e-12, 0.51, 0.25, np.nan])
    np.testing.assert_array_equal(truth, [0, 0, 1, 0, np.nan])
    assert ties == 2


def test_a_mean_exactly_a_billionth_above_the_threshold_is_still_a_tie() -> None:
    truth, ties = metrics.consensus_truth([1e-9, 1.1e-9], threshold=0.0)
    assert (truth.tolist(), ties) == ([0, 1], 1)


def test_what_cannot_be_measured_is_nan_not_an_error() -> None:
    same = np.full(4, 0.3)
    assert metrics.auc([0, 1, 0, 1], same) == 0.5
    assert np.isnan(metrics.calibration_slope([0, 1, 0, 1], same))
    assert np.isnan(metrics.calibration_slope([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9]))
    for ranking in (metrics.auc, metrics.average_precision, metrics.partial_auc):
        assert np.isnan(ranking([], []))
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
    with pytest.raises(ValueError, match=r"max_fpr must be in \(0, 1\], found 1\.01"):
        metrics.partial_auc([0, 1], [0, 1], 1.01)


@pytest.mark.parametrize("value", [1.5, -0.1, np.nan])
@pytest.mark.parametrize(
    "measure",
    [metrics.auc, metrics.calibration_intercept, metrics.calibration_slope],
    ids=lambda measure: measure.__name__,
)
def test_a_truth_outside_0_to_1_is_refused(measure: metrics.MeasureCall, value: float) -> None:
    with pytest.raises(ValueError, match=r"truth must lie in \[0, 1\]; leave out ROIs of unknown"):
        measure([0, value, 1], [0.1, 0.5, 0.9])


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
