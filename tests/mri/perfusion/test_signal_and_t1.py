"""Signal, concentration, T1 and model-free parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cad.base.errors import CadError
from cad.mri.features.perfusion.concentration import (
    baseline_signal,
    check_sequence,
    concentration_from_signal,
)
from cad.mri.features.perfusion.semiquantitative import (
    bolus_arrival,
    find_bolus,
    initial_area,
    semiquantitative,
)
from cad.mri.features.perfusion.t1 import fit_t1
from tests.support.gradient_echo import gradient_echo

TIMES = np.arange(40) * 5.0
ANGLES = np.array([2.0, 5.0, 10.0, 20.0])


@given(
    c=st.lists(st.floats(-0.1, 20), min_size=2, max_size=5),
    t1=st.floats(0.2, 4),
    tr=st.floats(0.002, 0.02),
    flip=st.floats(5, 60),
)
@settings(max_examples=50, deadline=None)
def test_signal_and_concentration_are_inverse(
    c: list[float], t1: float, tr: float, flip: float
) -> None:
    concentration = np.array([c])
    args = (np.array([100.0]), np.array([t1]), tr, flip, 4.5)
    scale = 100.0 / gradient_echo(np.array(1 / t1), np.array(1.0), tr, flip)
    signal = gradient_echo(1 / t1 + 4.5 * concentration, scale, tr, flip)
    np.testing.assert_allclose(concentration_from_signal(signal, *args), concentration, atol=1e-7)


def test_signal_counted_by_hand() -> None:
    """90 degrees: S = S0 (1 - E1)."""
    assert gradient_echo(np.array(2.0), np.array(100.0), 0.5, 90.0) == pytest.approx(
        100 * (1 - np.exp(-1))
    )


def test_saturated_and_impossible_signals_are_not_numbers() -> None:
    signal = np.array([[10.0, 1e6], [10.0, 12.0], [0.0, 5.0]])
    found = concentration_from_signal(
        signal, signal[:, 0], np.array([1.0, -1.0, 1.0]), 0.005, 12.0, 4.5
    )
    assert found[0, 0] == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(found[0, 1])
    assert np.isnan(found[1:]).all()


def test_noise_may_make_concentration_negative() -> None:
    found = concentration_from_signal(
        np.array([[10.0, 9.0]]), np.array([10.0]), np.array([1.5]), 0.004, 12.0, 4.5
    )
    assert found[0, 1] < 0


@pytest.mark.parametrize(
    ("tr", "flip", "words"),
    [
        (None, 12.0, "repetition time of the dynamic series is missing"),
        (0.004, None, "flip angle of the dynamic series is missing"),
        (3.85, 12.0, "between 0 and 1 s"),
        (0.004, 0.0, "between 0 and 180"),
    ],
)
def test_sequence_is_checked(tr: float | None, flip: float | None, words: str) -> None:
    with pytest.raises(CadError, match=words):
        check_sequence(tr, flip)


def test_baseline_needs_a_frame() -> None:
    assert baseline_signal(np.array([[9.0, 1.0, 3.0, 8.0]]), 3, skip=1)[0] == 2.0
    with pytest.raises(CadError, match="no frame before the bolus"):
        baseline_signal(np.ones((1, 4)), 1, skip=1)


def test_t1_is_recovered_exactly_without_noise() -> None:
    t1 = np.array([[0.3, 1.0], [1.6, 4.0]])
    signals = np.stack([gradient_echo(1 / t1, np.full((2, 2), 1e4), 0.00385, a) for a in ANGLES])
    fit = fit_t1(signals, ANGLES, 0.00385)
    np.testing.assert_allclose(fit.t1, t1, rtol=1e-6)
    np.testing.assert_allclose(fit.s0, 1e4, rtol=1e-6)
    assert fit.r2.min() > 0.999999


def test_t1_does_not_depend_on_the_scale_of_the_signal() -> None:
    signals = np.array([134.2, 178.8, 116.8, 70.2])[:, None]
    one, other = fit_t1(signals, ANGLES, 0.00385), fit_t1(signals * 7, ANGLES, 0.00385)
    np.testing.assert_allclose(one.t1, other.t1, rtol=1e-9)
    np.testing.assert_allclose(other.s0, 7 * one.s0, rtol=1e-9)


def test_two_flip_angles_work_with_a_note() -> None:
    signals = np.stack([gradient_echo(np.array([0.6]), np.array([1e3]), 0.004, a) for a in (3, 15)])
    fit = fit_t1(signals, np.array([3.0, 15.0]), 0.004)
    assert fit.t1[0] == pytest.approx(1 / 0.6)
    assert "two flip angles only" in fit.notes[0]


@pytest.mark.parametrize(
    ("angles", "tr", "words"),
    [
        ([5.0, 5.0], 0.004, "two different flip angles"),
        ([5.0, 10.0], 0.0, "repetition time"),
        ([5.0, 190.0], 0.004, "between 0 and 180"),
        ([5.0], 0.004, "2 flip-angle images but 1"),
    ],
)
def test_bad_flip_angles_are_refused(angles: list[float], tr: float, words: str) -> None:
    with pytest.raises(CadError, match=words):
        fit_t1(np.ones((2, 3)), np.array(angles), tr)


def test_voxels_without_signal_fail_by_name() -> None:
    signals = np.array([[0.0, 100.0, np.nan], [50.0, 100.0, 50.0]])
    fit = fit_t1(signals, np.array([3.0, 15.0]), 0.004)
    assert fit.failed.tolist()[0] is True
    assert fit.failed.tolist()[2] is True
    assert np.isnan(fit.t1[0])


def ramp(level: float = 100.0, arrival: float = 52.5) -> np.ndarray:
    """Constant, then a straight rise of 2 a second for 50 s, then a fall of .1 a second."""
    late = TIMES - arrival
    return level + 2 * np.clip(late, 0, 50) - 0.1 * np.clip(late - 50, 0, None)


def test_bolus_of_a_ramp_counted_by_hand() -> None:
    bolus = find_bolus(TIMES, ramp())
    assert bolus.arrival == 52.5
    assert bolus.n_baseline == 10  # frames 0 .. 50 s, less the last


def test_model_free_parameters_counted_by_hand() -> None:
    found = semiquantitative(TIMES, ramp()[None], np.array([100.0]), 52.5)
    # The frame at 100 s is the last of the rise: 100 + 2 * 47.5; at 105 s the curve has 199.75.
    assert found["maximum_enhancement"][0] == pytest.approx(99.75)
    assert found["relative_enhancement"][0] == pytest.approx(0.9975)
    assert found["time_to_peak"][0] == pytest.approx(52.5)
    assert found["wash_in"][0] == pytest.approx(0.9975 / (52.5 / 60))
    assert found["wash_out"][0] == pytest.approx(-0.1 * 60 / 100)
    assert found["bolus_arrival"][0] == 0.0


def test_initial_area_counted_by_hand() -> None:
    curve = np.clip(TIMES - 52.5, 0, None)[None]
    # The frame at 50 s is 0 and the line starts at 52.5: linear between frames from 0 to 2.5 mM.
    area = initial_area(TIMES, curve, 55.0, 60.0)[0]
    assert area == pytest.approx(0.5 * (2.5 + 62.5) * 60)
    with pytest.raises(CadError, match="needs frames until"):
        initial_area(TIMES, curve, 150.0, 60.0)


@given(shift=st.integers(0, 8), scale=st.floats(0.1, 100))
@settings(max_examples=20, deadline=None)
def test_arrival_moves_with_time_and_ignores_scale(shift: int, scale: float) -> None:
    curves = np.stack([ramp(arrival=52.5), scale * ramp(arrival=52.5 + 5 * shift)])
    found = bolus_arrival(TIMES, curves)
    assert found[1] - found[0] == pytest.approx(5 * shift)


def test_constant_curve_has_a_defined_result() -> None:
    found = semiquantitative(TIMES, np.full((1, 40), 5.0), np.array([5.0]), 50.0)
    assert all(np.isfinite(v).all() for v in found.values())
    assert found["relative_enhancement"][0] == found["wash_in"][0] == found["wash_out"][0] == 0


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        (np.full(40, 10.0), "no bolus is seen"),
        (100 + np.random.default_rng(0).normal(size=40), "no bolus is seen"),
        (ramp(arrival=-20.0), "no bolus is seen|no baseline frame"),
        (ramp(arrival=2.0), "no baseline frame"),
        (np.ones(3), "at least 4"),
        (np.full(40, np.nan), "not numbers"),
    ],
)
def test_series_without_usable_bolus_is_refused(curve: np.ndarray, words: str) -> None:
    with pytest.raises(CadError, match=words):
        find_bolus(TIMES[: len(curve)], curve)
