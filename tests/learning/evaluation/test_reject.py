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
    with pytest.raises(CadError, match="0, 1 or -1"):
        reject_point([1, 0], [1, 2], COSTS)
