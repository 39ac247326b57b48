"""Referring: counted by hand, costs that follow from counts, the optimal rule is optimal."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from cad.base.errors import CadError
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions.reject import decide, reject_curve, reject_point

COSTS = DecisionSettings()


def calibrated(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    q = rng.beta(0.6, 1.4, n)
    return (rng.random(n) < q).astype(float), q


def test_point_by_hand() -> None:
    y = [1, 1, 1, 0, 0, 0, 0, 0, 1, 0]
    d = [1, 0, -1, 1, 0, 0, -1, -1, 1, 0]
    found = reject_point(y, d, COSTS)
    assert (found.tp, found.fn, found.fp, found.tn) == (2, 1, 1, 3)
    assert (found.referred_malignant, found.referred_benign) == (1, 2)
    assert found.reject_rate == 0.3
    assert found.error_rate == 0.2
    assert found.cost == pytest.approx((4 * 1 + 1 * 1 + 0.4 * 3) / 10)
    assert found.sensitivity == pytest.approx(2 / 3)
    assert found.ppv == pytest.approx(2 / 3)


def test_no_decision_of_a_kind_has_no_sensitivity_or_predictive_value() -> None:
    point = reject_point([0, 0, 1], [0, 0, -1], COSTS)
    assert np.isnan(point.sensitivity)
    assert np.isnan(point.ppv)
    assert (point.tp, point.fp, point.tn, point.fn) == (0, 0, 2, 0)
    # As many found as missed: the share is a half, and no number is divided by nought.
    assert reject_point([1, 1, 0], [1, 0, 1], COSTS).sensitivity == 0.5
    assert reject_point([1, 1, 0], [1, 0, 1], COSTS).ppv == 0.5


def test_each_of_the_four_costs_is_charged_by_its_own_count() -> None:
    costs = DecisionSettings(
        false_negative=8.0, false_positive=2.0, refer_positive=0.7, refer_negative=0.3
    )
    y = [1] * 4 + [0] * 8
    d = [0, 0, -1, 1] + [1, 1, 1] + [-1] * 4 + [0]
    point = reject_point(y, d, costs)
    assert (point.fn, point.fp, point.referred_malignant, point.referred_benign) == (2, 3, 1, 4)
    assert (point.tp, point.tn) == (1, 1)
    assert point.cost == pytest.approx((2 * 8.0 + 3 * 2.0 + 1 * 0.7 + 4 * 0.3) / 12)


def test_default_costs_give_the_default_thresholds() -> None:
    assert COSTS.thresholds == pytest.approx((0.1, 0.6))
    np.testing.assert_array_equal(decide([0.05, 0.1, 0.3, 0.6, 0.61], 0.1, 0.6), [0, -1, -1, -1, 1])


def test_decision_values_and_probabilities_decide_alike() -> None:
    f = np.linspace(-4, 4, 101)
    lower, upper = COSTS.thresholds
    of_value = decide(f, np.log(lower / (1 - lower)), np.log(upper / (1 - upper)))
    np.testing.assert_array_equal(of_value, decide(expit(f), lower, upper))


def test_no_other_thresholds_cost_less_on_calibrated_probabilities() -> None:
    y, q = calibrated()
    best = reject_point(y, decide(q, *COSTS.thresholds), COSTS).cost
    grid = np.linspace(0.02, 0.9, 23)
    others = [reject_point(y, decide(q, a, b), COSTS).cost for a in grid for b in grid if a <= b]
    assert best <= min(others) + 0.01


def test_a_probability_on_the_threshold_is_not_above_it() -> None:
    # 1 / (1 + 4) = .2: called benign where nothing may be referred, so that both regions are wrong.
    curve = reject_curve([1, 0], [0.2, 0.9], COSTS, points=9)
    rates = zip(curve["reject_rate"], curve["error_rate"], curve["error_reject_ratio"], strict=True)
    referring = [(rate, error, ratio) for rate, error, ratio in rates if rate > 0]
    assert referring
    for rate, error, ratio in referring:
        assert ratio == pytest.approx((error - 1) / rate)


def test_curve_runs_from_much_to_nothing() -> None:
    y, q = calibrated()
    curve = reject_curve(y, q, COSTS)
    assert (np.diff(curve["reject_rate"]) <= 1e-12).all()
    assert (np.diff(curve["error_rate"]) >= -1e-12).all()
    assert curve["reject_rate"][0] > 0.8
    assert curve["reject_rate"][-1] < 0.05
    nominal = int(np.argmin(np.abs(np.array(curve["scale"]) - 1)))
    assert curve["cost"][nominal] == pytest.approx(min(curve["cost"]), abs=0.01)
    # The ratio is minus the share of the referred that would have been errors.
    i = nominal
    referred = decide(q, curve["lower"][i], curve["upper"][i]) == -1
    errors = (q > 0.2) != (y == 1)
    assert curve["error_reject_ratio"][i] == pytest.approx(-errors[referred].mean())


def test_curve_by_hand() -> None:
    costs = DecisionSettings(
        false_negative=8.0, false_positive=2.0, refer_positive=0.8, refer_negative=0.3
    )
    y = np.array([0, 0, 0, 1, 0, 1, 1, 1])
    q = np.array([0.01, 0.05, 0.15, 0.2, 0.2, 0.35, 0.7, 0.95])
    curve = reject_curve(y, q, costs, points=4)
    # Referring is useless from R_p / C_p + R_n / C_n = 1 on: .1 + .15 = 1 / 4 of it.
    scales = np.array([0.2, 0.4, 0.6, 0.8]) / 0.25
    np.testing.assert_allclose(curve["scale"], scales)
    # Without referring both thresholds are 2 / (2 + 8): what equals it is benign, one of them ill.
    base = np.mean((q > 0.2) != (y == 1))
    assert base == 1 / 8
    for i, scale in enumerate(scales):
        lower = scale * 0.3 / (8.0 - scale * 0.8 + scale * 0.3)
        upper = (2.0 - scale * 0.3) / (2.0 - scale * 0.3 + scale * 0.8)
        assert curve["lower"][i] == pytest.approx(lower)
        assert curve["upper"][i] == pytest.approx(upper)
        referred = (q >= lower) & (q <= upper)
        wrong = (y == 1) & (q < lower) | (y == 0) & (q > upper)
        assert curve["reject_rate"][i] == pytest.approx(referred.mean())
        assert curve["error_rate"][i] == pytest.approx(wrong.mean())
        point = reject_point(y, decide(q, lower, upper), costs)
        assert curve["cost"][i] == pytest.approx(point.cost)
        ratio = (wrong.mean() - base) / referred.mean()
        assert curve["error_reject_ratio"][i] == pytest.approx(ratio)
    assert len(reject_curve(y, q, costs)["scale"]) == 40
    # Where nobody is referred there is no ratio.
    sure = reject_curve(np.array([0, 1]), np.array([0.0, 1.0]), costs, points=3)
    assert np.isnan(sure["error_reject_ratio"]).all()


def test_out_of_fold_decisions_of_the_reject_classifier() -> None:
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    from cad.learners import LEARNERS
    from cad.learning.evaluation.folds.crossval import out_of_fold

    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(10), 6)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + 0.7 * rng.normal(size=60) > 0).astype(float)
    learner = LEARNERS["RejectSVC"](costs=(1.0, 4.0, 0.4, 0.4), kernel="linear")
    pipeline = Pipeline([("scale", StandardScaler()), ("learner", learner)])
    f = out_of_fold(pipeline, X, y, groups=groups).decision
    lower, upper = COSTS.thresholds
    found = reject_point(y, decide(expit(f), lower, upper), COSTS)
    nothing = reject_point(y, decide(expit(f), 0.2, 0.2), COSTS)
    assert 0 < found.reject_rate < 0.9
    assert found.error_rate < nothing.error_rate


def test_wrong_use_is_refused() -> None:
    with pytest.raises(CadError, match="nothing to measure"):
        reject_point([], [], COSTS)
    with pytest.raises(CadError, match="3 truths and 2 decisions"):
        reject_point([1, 0, 1], [1, 0], COSTS)
    for truth, decision in (([1, 0], [1, 2]), ([1, 2], [1, 0]), ([-1, 0], [1, 0])):
        with pytest.raises(CadError, match="0, 1 or -1"):
            reject_point(truth, decision, COSTS)
    # One region is enough to count.
    assert reject_point([1], [1], COSTS).tp == 1
