"""Thresholds with an aim: by hand, by brute force, kept promises, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta

from cad.base.errors import CadError
from cad.base.files import typed
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions.operating import (
    OperatingChoice,
    choose_operating_point,
    choose_thresholds,
)
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.evaluation.measures.intervals import clustered_share, share_design_effect

AIMS = DecisionSettings(aim_npv=0.9, aim_ppv=0.7)


def regions(seed: int, patients: int = 50, rois: int = 6) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(patients), rois)
    z = -1.5 + 1.3 * rng.normal(size=len(group)) + 0.9 * rng.normal(size=patients)[group]
    return (rng.random(len(group)) < expit(z)).astype(float), expit(z), group


def test_threshold_by_hand() -> None:
    # Nine benign, then a malignant: (9 + 1)/(9 + 2) = .909 and (9 + 1)/(10 + 2) = .833.
    q = np.arange(1, 13) / 20
    y = np.array([0.0] * 9 + [1, 0, 1])
    lower, upper = choose_thresholds(y, q, DecisionSettings(aim_npv=0.9))
    assert lower == pytest.approx(9.5 / 20)
    assert upper == pytest.approx(0.6)  # of the costs
    assert choose_thresholds(y, q, DecisionSettings(aim_npv=0.95))[0] == 0
    tied = np.where(np.arange(12) >= 8, 0.5, q)  # the ninth cannot be cut from the tenth
    assert choose_thresholds(y, tied, DecisionSettings(aim_npv=0.9))[0] == pytest.approx(0.45)


@pytest.mark.parametrize("seed", range(4))
def test_largest_share_by_brute_force(seed: int) -> None:
    y, q, _ = regions(seed, patients=12)
    lower, _ = choose_thresholds(y, q, AIMS)

    def allowed(t: float) -> bool:
        right = 1 - y[q < t]
        return bool((right.sum() + 1) / (len(right) + 2) >= 0.9)

    best = max((t for t in [0.0, *np.unique(q), 1.01] if allowed(t) or t == 0), default=0.0)
    assert np.sum(q < lower) == np.sum(q < best)


def test_sides_mirror_each_other() -> None:
    y, q, _ = regions(1)
    lower, upper = choose_thresholds(y, q, DecisionSettings(aim_npv=0.95, aim_ppv=0.7))
    assert 0 < lower < upper < 1
    mirrored = choose_thresholds(1 - y, 1 - q, DecisionSettings(aim_npv=0.7, aim_ppv=0.95))
    assert mirrored == pytest.approx((1 - upper, 1 - lower))


def test_promises_are_kept_for_new_patients() -> None:
    kept, decided = [], []
    for seed in range(30):
        found = choose_operating_point(*regions(seed), AIMS)
        y, q, _ = regions(1000 + seed, patients=400)
        new = decide(q, *found.thresholds)
        kept.append(np.mean(1 - y[new == 0]) >= found.benign.promise)
        decided.append(1 - found.refer)
        assert found.benign.promise < found.benign.observed.value
    assert np.mean(kept) >= 0.85  # .975 promised; P(fewer than 26 of 30) = .001
    assert np.mean(decided) > 0.5


def test_shares_are_of_all_regions_and_json_comes_back() -> None:
    y, q, group = regions(3)
    y[:40] = np.nan
    q[40:50] = np.nan
    found = choose_operating_point(y, q, group, AIMS)
    assert found.benign.share + found.refer + found.malignant.share == pytest.approx(1)
    assert found.benign.share == pytest.approx(np.mean(q[np.isfinite(q)] < found.thresholds[0]))
    again = typed(OperatingChoice, json.loads(json.dumps(found.as_dict())))
    assert again.thresholds == found.thresholds
    assert again.sentence() == found.sentence()


def test_an_aim_that_cannot_be_met_decides_nothing_and_says_so() -> None:
    y, q, group = regions(5, patients=8)
    found = choose_operating_point(y, q, group, DecisionSettings(aim_npv=0.999))
    assert found.benign.threshold == 0
    assert found.benign.share == 0
    assert "nothing is decided" in found.benign.note
    assert "no promise" in found.sentence()
    with pytest.raises(CadError, match="malignant and benign regions"):
        choose_operating_point(np.zeros(len(y)), q, group, AIMS)


def test_share_is_clopper_pearson_when_every_region_is_a_patient() -> None:
    x = np.array([1.0] * 28 + [0.0] * 2)
    found = clustered_share(x, np.arange(30))
    effect = max(1.0, share_design_effect(x, np.arange(30)))
    n = 30 / effect
    hits = n * 28 / 30
    assert effect == pytest.approx(30 / 29)
    assert found.lower == pytest.approx(beta.ppf(0.025, hits, n - hits + 1))
    perfect = clustered_share(np.ones(30), np.arange(30))
    assert perfect.upper == 1
    assert perfect.lower == pytest.approx(0.025 ** (1 / 30))  # Clopper and Pearson in closed form
    assert clustered_share(np.ones(30), np.arange(30), design_effect=3.0).lower < perfect.lower
    assert np.isnan(clustered_share(np.ones(3), np.zeros(3)).lower)
    assert np.isnan(clustered_share(np.array([]), np.array([])).value)


def test_share_covers_with_twenty_patients() -> None:
    hits = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        share = rng.beta(9, 1, 20).repeat(5)
        x = (rng.random(100) < share).astype(float)
        found = clustered_share(x, np.arange(20).repeat(5))
        hits.append(found.lower <= 0.9 <= found.upper)
    assert np.mean(hits) >= 0.9
