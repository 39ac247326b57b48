"""Kinetic models: independent integration, invariants, hand-counted values, recovery from noise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.integrate import quad
from scipy.optimize import curve_fit

from cad.base.errors import CadError
from cad.base.settings import PerfusionSettings
from cad.mri.features.perfusion import kernels, semiquantitative
from cad.mri.features.perfusion.aif import (
    ArterialInput,
    InputFunction,
    parker_blood,
    population_input,
    refine_times,
    sampled_input,
)
from cad.mri.features.perfusion.models import (
    KineticFit,
    best_delay,
    brix,
    curve_delays,
    extended_tofts,
    fit_brix,
    fit_each_at,
    fit_extended_tofts,
    fit_tofts,
    tofts,
)
from cad.mri.features.perfusion.semiquantitative import bolus_arrival

TIMES = np.arange(70) * 4.2
KTRANS = st.floats(0.01, 2.0)
VE = st.floats(0.02, 0.9)


def inlet(delay: float = 30.0) -> InputFunction:
    return population_input(TIMES, delay, 0.42)


@given(ktrans=KTRANS, ve=VE)
@settings(max_examples=10, deadline=None)
def test_convolution_equals_numerical_integration(ktrans: float, ve: float) -> None:
    times = np.array([0.0, 5.0, 7.0, 20.0, 60.0])
    plasma = np.array([0.0, 6.0, 3.0, 1.5, 1.0])
    found = tofts(ktrans, ve, sampled_input(times, plasma))
    minutes = times / 60

    def integrand(u: float, t: float) -> float:
        return float(np.interp(u, minutes, plasma) * np.exp(-ktrans / ve * (t - u)))

    expected = [
        ktrans
        * sum(
            quad(integrand, a, b, args=(t,), epsabs=1e-13)[0]
            for a, b in itertools.pairwise(minutes)
            if b <= t + 1e-12
        )
        for t in minutes
    ]
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_constant_input_counted_by_hand() -> None:
    """cp = 1 mM from the start and kep = 1: after one minute C = ve (1 - 1/e)."""
    curve = tofts(0.3, 0.3, sampled_input(np.array([0.0, 30.0, 60.0]), np.ones(3)))
    assert curve[2] == pytest.approx(0.3 * (1 - np.exp(-1)), rel=1e-12)
    assert extended_tofts(0.3, 0.3, 0.1, sampled_input(np.array([0.0, 60.0]), np.ones(2)))[
        1
    ] == pytest.approx(0.3 * (1 - np.exp(-1)) + 0.1, rel=1e-12)


def test_brix_counted_by_hand() -> None:
    """A kep t exp(-k t) where both rates are k = 1/min: at one minute A / e."""
    assert brix(2.0, 1.0, 1.0, np.array([0.0, 60.0]))[1] == pytest.approx(2 / np.e, rel=1e-12)
    expected = 2.0 * 3.0 * (np.exp(-0.5) - np.exp(-3.0)) / 2.5
    assert brix(2.0, 3.0, 0.5, np.array([0.0, 70.0]), arrival=10.0)[1] == pytest.approx(expected)


@given(ktrans=KTRANS, ve=VE, factor=st.floats(0.1, 10.0))
@settings(max_examples=20, deadline=None)
def test_linear_in_the_input(ktrans: float, ve: float, factor: float) -> None:
    one = inlet()
    other = InputFunction(one.times, one.plasma * factor, one.at_frames)
    np.testing.assert_allclose(tofts(ktrans, ve, other), factor * tofts(ktrans, ve, one), rtol=1e-9)


@given(ktrans=KTRANS, ve=VE)
@settings(max_examples=20, deadline=None)
def test_time_shift_of_the_input_shifts_the_curve(ktrans: float, ve: float) -> None:
    early, late = tofts(ktrans, ve, inlet(20.0)), tofts(ktrans, ve, inlet(20.0 + 3 * 4.2))
    # Different samples of the fine grid hold the same curve: agreement to its interpolation.
    np.testing.assert_allclose(late[3:], early[:-3], atol=2e-2 * early.max())
    plasma = parker_blood(TIMES, 20.0)
    moved = np.concatenate([np.zeros(3), plasma[:-3]])
    np.testing.assert_allclose(
        tofts(ktrans, ve, sampled_input(TIMES, moved))[3:],
        tofts(ktrans, ve, sampled_input(TIMES, plasma))[:-3],
        atol=1e-9 + 1e-3 * plasma[0],
    )


@given(ktrans=KTRANS, ve=VE)
@settings(max_examples=20, deadline=None)
def test_mass_is_conserved(ktrans: float, ve: float) -> None:
    """Inflow minus outflow is the change: dC/dt = Ktrans cp - kep C, integrated."""
    fine, at = refine_times(np.array([0.0, 300.0]), 0.05)
    every = InputFunction(fine, parker_blood(fine, 20.0), np.arange(len(fine)))
    curve = tofts(ktrans, ve, every)
    entered = ktrans * np.trapezoid(every.plasma, fine / 60)
    left = ktrans / ve * np.trapezoid(curve, fine / 60)
    assert curve[at[-1]] == pytest.approx(entered - left, rel=1e-3, abs=1e-4)


def test_extended_without_plasma_is_tofts() -> None:
    np.testing.assert_array_equal(tofts(0.2, 0.3, inlet()), extended_tofts(0.2, 0.3, 0.0, inlet()))


@given(ktrans=KTRANS, ve=VE, vp=st.floats(0.0, 0.2))
@settings(max_examples=30, deadline=None)
def test_refinement_recovers_what_made_the_curve(ktrans: float, ve: float, vp: float) -> None:
    fit = fit_extended_tofts(extended_tofts(ktrans, ve, vp, inlet())[None], inlet(), refine=True)
    # A curve at the edge of what 4 s sampling can tell apart is judged by itself.
    assert fit.r2[0] > 0.9999
    if ktrans / ve < 3:
        assert fit.parameters["ktrans"][0] == pytest.approx(ktrans, rel=1e-2)
        assert fit.parameters["vp"][0] == pytest.approx(vp, abs=1e-2)


def test_brix_recovers_what_made_the_curve() -> None:
    curves = np.stack([brix(a, p, e, TIMES, 30.0) for a, p, e in ((2, 3, 0.1), (1, 0.8, 0.02))])
    fit = fit_brix(curves, TIMES, 30.0, refine=True)
    np.testing.assert_allclose(fit.parameters["amplitude"], [2, 1], rtol=1e-4)
    np.testing.assert_allclose(fit.parameters["kep"], [3, 0.8], rtol=1e-4)
    np.testing.assert_allclose(fit.parameters["kel"], [0.1, 0.02], rtol=1e-3)
    rough = fit_brix(curves, TIMES, 30.0)
    np.testing.assert_allclose(rough.parameters["kep"], [3, 0.8], rtol=0.1)


def test_refined_fit_is_as_good_as_scipy() -> None:
    """Same optimum as curve_fit of the same model on noisy curves: no larger sum of squares."""
    rng = np.random.default_rng(1)
    source = inlet()
    clean = np.stack([extended_tofts(k, v, 0.03, source) for k, v in ((0.1, 0.2), (0.4, 0.3))])
    noisy = clean + rng.normal(scale=0.02, size=clean.shape)
    fit = fit_extended_tofts(noisy, source, refine=True)

    def model(_: np.ndarray, ktrans: float, ve: float, vp: float) -> np.ndarray:
        return extended_tofts(ktrans, ve, vp, source)

    for i, curve in enumerate(noisy):
        best, _ = curve_fit(
            model, TIMES, curve, p0=(0.6, 0.2, 0.01), bounds=([0, 1e-3, 0], [5, 1, 1])
        )
        theirs = np.sqrt(np.mean((curve - model(TIMES, *best)) ** 2))
        assert fit.residual[i] <= theirs * (1 + 1e-6)


def test_slopes_of_the_models_are_derivatives() -> None:
    source = inlet()
    dt = np.round(np.diff(source.times / 60), 12)
    minutes = (TIMES - 30) / 60
    f, h, g = np.zeros(70), np.zeros(70), np.zeros(70)
    for code, p in ((0, (0.2, 0.3, 0.0)), (1, (0.2, 0.3, 0.05)), (2, (2.0, 1.5, 0.1))):
        jac = np.zeros((3, 70))
        grid = kernels.TimeGrid(minutes, dt, source.plasma, source.at_frames)
        kernels.curve_and_slopes(code, np.array(p), grid, f, jac, h, g)
        for i in range(2 if code == 0 else 3):
            up, down = np.array(p), np.array(p)
            up[i] += 1e-6
            down[i] -= 1e-6
            high, low, rest = np.zeros(70), np.zeros(70), np.zeros((3, 70))
            kernels.curve_and_slopes(code, up, grid, high, rest, h, g)
            kernels.curve_and_slopes(code, down, grid, low, rest, h, g)
            np.testing.assert_allclose(jac[i], (high - low) / 2e-6, atol=1e-6)


@pytest.mark.parametrize("x", [1e-9, 1e-3, 0.0499, 0.0501, 0.3, 2.0, -0.03, -1.0])
def test_step_functions_equal_their_integrals(x: float) -> None:
    integrals = (
        lambda u: np.exp(-x * u),
        lambda u: (1 - u) * np.exp(-x * u),
        lambda u: -u * np.exp(-x * u),
        lambda u: -u * (1 - u) * np.exp(-x * u),
    )
    expected = [np.exp(-x), *(quad(f, 0, 1, epsabs=1e-13)[0] for f in integrals)]
    np.testing.assert_allclose(kernels._exponential_integrals(x), expected, atol=5e-11)


def test_delay_is_found() -> None:
    plasma = parker_blood(TIMES, 30.0) / 0.58
    late = tofts(0.2, 0.3, sampled_input(TIMES, plasma, 3.3))

    def at(delay: float) -> KineticFit:
        return fit_tofts(late[None], sampled_input(TIMES, plasma, delay), refine=True)

    delay = best_delay(lambda d: float(at(d).residual[0]), (-10.0, 10.0))
    fit = at(delay)
    assert delay == pytest.approx(3.3, abs=0.1)
    assert fit.parameters["ktrans"][0] == pytest.approx(0.2, rel=0.01)


def test_curves_of_unlike_delay_are_fitted_as_each_alone() -> None:
    source = ArterialInput("parker", TIMES, haematocrit=0.42)
    true = np.array([33.0, 28.0, 33.0, 25.5])
    curves = np.stack([extended_tofts(0.2, 0.3, 0.03, source.inlet(delay)) for delay in true])
    delays = curve_delays(curves, source.inlet, (20.0, 40.0))
    np.testing.assert_allclose(delays, true, atol=0.25)
    together = fit_each_at(fit_extended_tofts, curves, source.inlet, delays)
    for row, delay in enumerate(delays):
        alone = fit_extended_tofts(curves[row : row + 1], source.inlet(float(delay)))
        assert together.parameters["ve"][row] == alone.parameters["ve"][0]
        assert together.residual[row] == alone.residual[0]
        np.testing.assert_array_equal(together.fitted[row], alone.fitted[0])
        # No delay that was tried is better: the neighbours a quarter of a second off are not.
        for other in (delay - 0.25, delay + 0.25):
            beside = fit_extended_tofts(curves[row : row + 1], source.inlet(float(other)))
            assert beside.residual[0] >= alone.residual[0]


def test_constant_negative_and_missing_curves_have_defined_results() -> None:
    curves = np.zeros((4, 70))
    curves[1] = -0.1
    curves[2, 5] = np.nan
    curves[3] = np.linspace(0, 5, 70)
    for refine in (False, True):
        for fit in (
            fit_tofts(curves, inlet(), refine),
            fit_extended_tofts(curves, inlet(), refine),
            fit_brix(curves, TIMES, 30.0, refine),
        ):
            first = next(iter(fit.parameters.values()))
            assert fit.failed[:3].all()
            assert first[0] == first[1] == 0.0
            assert np.isnan(first[2])
            assert np.isfinite(fit.r2[[0, 1, 3]]).all()
            assert all(np.isfinite(v[[0, 1, 3]]).all() for v in fit.parameters.values())


def test_wrong_shapes_and_values_are_refused() -> None:
    with pytest.raises(CadError, match="do not match 70 frames"):
        fit_tofts(np.zeros((2, 69)), inlet())
    with pytest.raises(CadError, match="ve must be positive"):
        tofts(0.1, 0.0, inlet())
    with pytest.raises(ValidationError, match="haematocrit"):
        PerfusionSettings(haematocrit=1.0)
    with pytest.raises(CadError, match="not numbers"):
        sampled_input(TIMES, np.full(70, np.nan))
    with pytest.raises(CadError, match="one concentration per time"):
        sampled_input(TIMES, np.zeros(3))


def test_parker_counted_by_hand() -> None:
    """At the first peak (10.2276 s) the first Gaussian alone is A1 / (sigma1 sqrt(2 pi))."""
    peak = parker_blood(np.array([0.17046 * 60]))[0]
    first = 0.809 / (0.0563 * np.sqrt(2 * np.pi))
    assert 5.7 < first < peak < first + 0.4
    assert parker_blood(np.array([-1.0, 4.9]), delay=5.0).tolist() == [0.0, 0.0]


def test_refined_times_hold_the_frames() -> None:
    fine, at = refine_times(np.array([0.0, 8.9, 13.1]), 1.0)
    np.testing.assert_allclose(fine[at], [0.0, 8.9, 13.1])
    assert np.diff(fine).max() <= 1.0


def test_kernels_have_one_signature_each() -> None:
    """Two signatures of one cached kernel can race in two processes (read-only input, int32)."""
    curves = np.stack([tofts(0.2, 0.3, inlet()), brix(2.0, 1.0, 0.1, TIMES, 30.0)])
    curves.flags.writeable = False
    times = TIMES.astype(np.float32)
    source = inlet()
    odd = InputFunction(source.times, source.plasma, source.at_frames.astype(np.int32))
    for refine in (False, True):
        fit_tofts(curves, odd, refine)
        fit_extended_tofts(curves, source, refine)
        fit_brix(curves, times, 30.0, refine)
    bolus_arrival(times, curves)
    bolus_arrival(TIMES, np.asfortranarray(curves))
    compiled = [
        *vars(kernels).values(),
        semiquantitative._arrivals,
    ]
    counts = [len(k.signatures) for k in compiled if hasattr(k, "signatures")]
    assert len(counts) >= 9
    assert max(counts) == 1


def test_times_are_refined_as_interval_by_interval_to_the_last_bit():
    times = np.cumsum(np.concatenate([[0.3], np.random.default_rng(8).uniform(0.01, 9.0, 60)]))
    fine, at = refine_times(times, 0.1)
    np.testing.assert_array_equal(fine[at], times)
    for first, last, begin, end in zip(at[:-1], at[1:], times[:-1], times[1:], strict=True):
        expected = np.linspace(begin, end, last - first, endpoint=False)
        np.testing.assert_array_equal(fine[first:last], expected)
        assert (end - begin) / (last - first) <= 0.1 + 1e-9


@pytest.mark.parametrize("ktrans", [0.001, 0.005, 0.009])
def test_tissue_that_hardly_leaks_keeps_its_ktrans(ktrans: float) -> None:
    """A small Ktrans is a value and not 0."""
    curve = tofts(ktrans, 0.2, inlet())[None]
    fit = fit_tofts(curve, inlet())
    assert fit.parameters["ktrans"][0] == pytest.approx(ktrans, rel=0.02)
    curve = extended_tofts(ktrans, 0.2, 0.03, inlet())[None]
    fit = fit_extended_tofts(curve, inlet())
    assert fit.parameters["ktrans"][0] == pytest.approx(ktrans, rel=0.02)
