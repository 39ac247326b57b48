"""Recalibration at a site: intercept and slope with a prior, men whole, nothing half done."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.learning.evaluation.decisions.recalibrate import (
    Recalibration,
    before_and_after,
    recalibration,
)
from cad.learning.evaluation.measures.metrics import CLIP


def site(men: int, seed: int = 0, a: float = -0.7, b: float = 0.6) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    names = np.repeat([f"m{i}" for i in range(men)], 2)
    z = rng.normal(0, 1.5, len(names))
    return (rng.random(len(z)) < expit(a + b * z)) * 1.0, expit(z), names


def test_the_map_is_the_posterior_mode() -> None:
    y, q, names = site(40)
    z = logit(q)

    def loss(t: np.ndarray) -> float:
        f = t[0] + t[1] * z
        return float(np.sum(np.logaddexp(0, f) - y * f) + t[0] ** 2 / 2 + (t[1] - 1) ** 2 / 0.245)

    fit = recalibration(y, q, names)
    assert [fit.intercept, fit.slope] == pytest.approx(minimize(loss, [0, 1]).x, abs=1e-4)


def test_many_men_give_the_truth_and_order_stays() -> None:
    y, q, names = site(20_000)
    fit = recalibration(y, q, names)
    assert [fit.intercept, fit.slope] == pytest.approx([-0.7, 0.6], abs=0.03)
    assert (np.argsort(fit.probability(q)) == np.argsort(q)).all()
    assert np.isnan(fit.probability(np.array([np.nan]))).all()


def test_left_out_men_are_nearer_to_calibration() -> None:
    y, q, names = site(200)
    said = before_and_after(y, q, names)
    assert (said["men"], said["n"]) == (200, 400)
    for name, right in (("intercept", 0.0), ("slope", 1.0)):
        assert abs(said["after"][name] - right) < abs(said["before"][name] - right)
    assert said["after"]["brier"] < said["before"]["brier"]


def test_unknown_rows_do_not_count() -> None:
    y, q, names = site(40)
    more = np.r_[y, np.nan, 1.0], np.r_[q, 0.5, np.nan], np.array([*names, "x", "y"])
    assert recalibration(*more) == recalibration(y, q, names)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (lambda y, q, m: (y[:58], q[:58], m[:58]), "29 men with histology and a probability, 30"),
        (lambda y, q, m: (y * 0, q, m), "all 80 are benign"),
        (lambda y, q, m: (y * 0 + 1, q, m), "all 80 are malignant"),
        (lambda y, q, m: ((q < 0.5) * 1.0, expit(9 * logit(q)), m), "the wrong way"),
    ],
)
def test_what_allows_no_map_is_refused(rows: object, said: str) -> None:
    with pytest.raises(CadError, match=said):
        recalibration(*rows(*site(40)))  # type: ignore[operator]


def test_thirty_men_are_enough_and_twenty_nine_are_not() -> None:
    y, q, names = site(40)
    of_thirty = np.isin(names, [f"m{i}" for i in range(30)])
    fit = recalibration(y[of_thirty], q[of_thirty], names[of_thirty])
    assert fit.slope > 0
    # Each of 30 men is left out once, and the 29 others are enough for that; 28 are not.
    assert before_and_after(y[of_thirty], q[of_thirty], names[of_thirty])["men"] == 30
    of_fewer = np.isin(names, [f"m{i}" for i in range(29)])
    with pytest.raises(CadError, match="28 men with histology and a probability, 29 are needed"):
        before_and_after(y[of_fewer], q[of_fewer], names[of_fewer])


def test_a_certain_probability_counts_as_the_nearest_one() -> None:
    """By hand: 0 and 1 have no log-odds, so those of the limits are moved."""
    moved = Recalibration(0.5, 2.0).probability(np.array([0.0, 0.5, 1.0]))
    limit = logit(CLIP)
    np.testing.assert_allclose(moved, expit([0.5 + 2 * limit, 0.5, 0.5 - 2 * limit]))
    assert moved[2] < 1
    y, q, names = site(40)
    certain = q.copy()
    certain[0] = 0.0
    certain[-1] = 1.0
    clipped = np.clip(certain, CLIP, 1 - CLIP)
    fit = recalibration(y, certain, names)
    assert fit == recalibration(y, clipped, names)
    assert np.isfinite([fit.intercept, fit.slope]).all()
