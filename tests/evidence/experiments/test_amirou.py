"""[A14]: losses, counts by hand, beat features, and the ratio's order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import DecisionSettings
from cad.evidence.experiments import Options
from cad.evidence.experiments.amirou2014 import (
    FEATURES,
    REJECT_COSTS,
    THETA,
    RejectProblem,
    _one_seed,
    _rates,
    beat_features,
    covertype,
    double_hinge,
    ecg,
    read_beats,
    symmetric_half_width,
    synthetic,
)
from cad.learners import RejectSVC
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.learners.reject import asymmetric_rule


@pytest.mark.parametrize("costs", [(1.0, 1.0, 0.3, 0.3), (1.0, 1.2, 0.3, 0.3)])
def test_double_hinge_touches_the_log_loss_at_both_thresholds(costs) -> None:
    rule = asymmetric_rule(costs)
    f = np.array([rule.lower, rule.upper])
    np.testing.assert_allclose(double_hinge(f, 1, costs), np.logaddexp(0, -f), rtol=1e-12)
    np.testing.assert_allclose(double_hinge(f, 0, costs), np.logaddexp(0, f), rtol=1e-12)
    wide = np.linspace(-6, 6, 101)
    assert (double_hinge(wide, 1, costs) <= np.logaddexp(0, -wide) + 1e-12).all()


@pytest.mark.parametrize("r", [0.2, 0.4])
def test_symmetric_rule_is_a_threshold_on_the_same_solution(r) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 2)) + 1.5 * y[:, None]
    H = -r * np.log(r) - (1 - r) * np.log(1 - r)
    based = RejectSVC(C=2.0, gamma=0.5, costs=(1.0, 1.0, r, r), tol=1e-9).fit(X, y)
    other = RejectSVC(C=2.0 * r**2 / H, gamma=0.5, symmetric=r, tol=1e-9).fit(X, y)
    f = based.decision_function(X)
    np.testing.assert_allclose(other.decision_function(X), f * r / H, atol=1e-4)
    half = symmetric_half_width(r)
    clear = np.abs(np.abs(f) - half) > 1e-3
    np.testing.assert_array_equal(other.predict(X)[clear], decide(f, -half, half)[clear])


def test_rules_coincide_where_the_paper_says() -> None:
    r = 0.24149
    assert symmetric_half_width(r) == pytest.approx(np.log((1 - r) / r), abs=1e-4)


def test_measures_counted_by_hand() -> None:
    truth = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    said = np.array([1, 1, 0, -1, 0, 1, -1, -1])
    forced = np.array([1, 1, 0, 0, 0, 1, 1, 0])  # two of the three rejects would be wrong
    costs = DecisionSettings(
        false_positive=1.0, false_negative=1.2, refer_negative=0.3, refer_positive=0.3
    )
    row = _rates(truth, said, forced, costs)
    assert row["reject rate"] == 3 / 8
    assert row["error rate"] == 2 / 8
    assert row["spared errors"] == 2 / 8
    assert row["cost"] == pytest.approx((1.2 + 1.0 + 3 * 0.3) / 8)
    assert row["sensitivity"] == pytest.approx(2 / 3)
    assert row["positive predictivity"] == pytest.approx(2 / 3)


def test_synthetic_ratio_is_steeper_for_the_cost_based_rule(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cad.evidence.experiments.amirou2014.REJECT_COSTS", (0.24, 0.40, 0.499))
    monkeypatch.setattr("cad.evidence.experiments.amirou2014.COSTS", (1.0,))
    result = synthetic(Options(tmp_path, repeats=1))
    ratio = next(iter(result.tables.values())).set_index("rule")
    share = ratio["rejects that were errors"]
    assert share["cost-based"] < share["symmetric"] < 0
    curve = result.tables["Reject and error rate against r, θ = 1"]
    based = curve[curve["rule"] == "cost-based"].set_index("r")["reject rate"]
    assert based.is_monotonic_decreasing
    assert len(result.figures) == 3
    costly, best = (table.set_index("rule") for table in list(result.tables.values())[2:])
    for name in costly:
        assert costly.at["no rejection", name] == best.at["no rejection", name]


def test_forced_decisions_and_rejects_account_for_every_error() -> None:
    rng = np.random.default_rng(1)
    y = (np.arange(300) % 2).astype(float)
    X = rng.normal(size=(300, 2)) + 1.5 * y[:, None]
    problem = RejectProblem("test", X, y, 100, 200, 0.5, (-1, -1), (0, 1), ("a", "b"))
    rows = pd.DataFrame(_one_seed(problem, 1.0, 0)).query("rule == 'cost-based' and theta == 1")
    assert len(rows) == len(REJECT_COSTS)
    assert (rows["spared errors"] <= rows["reject rate"]).all()
    assert THETA == 1.2


def test_beat_features_of_a_made_up_rhythm() -> None:
    fs, beats = 360, np.arange(1, 30) * 300
    beats[20] -= 100  # one premature beat
    signal = np.zeros(10_000)
    for k, beat in enumerate(beats):
        height, width = (-2.0, 12) if k == 20 else (1.0, 4)
        x = np.arange(-60, 61)
        signal[beat - 60 : beat + 61] += height * np.exp(-0.5 * (x / width) ** 2)
    rows, kept = beat_features(signal, fs, beats)
    assert rows.shape == (len(kept), len(FEATURES))
    early = int(np.flatnonzero(kept == 20)[0])
    normal = np.delete(rows, early, axis=0)
    assert rows[early, 0] == pytest.approx(200 / 360)
    assert rows[early, 1] == pytest.approx(400 / 360)
    assert rows[early, 2] == pytest.approx(2 / 3)
    assert rows[early, 3] < -1.4
    assert rows[early, 5] > normal[:, 5].max()
    assert rows[early, 6] < 0 < normal[:, 6].min()


@pytest.mark.reference
def test_ecg_records_hold_what_is_stated(shared_data) -> None:
    X, pvc = read_beats(shared_data / "ecg")
    assert X.shape[1] == 7
    assert np.isfinite(X).all()
    assert abs(int(pvc.sum()) - (826 + 444 + 520 + 109)) <= 12  # the first beats lack a history


def test_missing_data_is_asked_for(tmp_path) -> None:
    for experiment in (ecg, covertype):
        with pytest.raises(CadError, match="--data"):
            experiment(Options(tmp_path))
        with pytest.raises(CadError, match="no such"):
            experiment(Options(tmp_path, data=tmp_path))
