"""The forward model: exact limits, an independent integration, published curves, inversions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import j1

from cad.evidence.phantom.acquisition import acquire, blur_filter, distort, interpolated_noise
from cad.evidence.phantom.physics import (
    extended_tofts,
    fine_grid,
    parker,
    spin_echo,
    spoiled_gradient_echo,
)


@pytest.mark.reference
def test_parker_curve_agrees_with_the_reference_implementation(shared_data, counted):
    table = pd.read_csv(shared_data / "osipi" / "ParkerAIF_ref.csv", skipinitialspace=True)
    table.columns = [c.strip() for c in table.columns]
    got = parker(table["time"].to_numpy() * 60.0, 0.0)
    assert np.allclose(got, table["Cb"], rtol=0.01, atol=1e-4)
    counted(len(table), "OSIPI Parker input function (simulator)")


@pytest.mark.reference
def test_extended_tofts_agrees_with_the_reference_object(shared_data, counted):
    table = pd.read_csv(shared_data / "osipi" / "dce_DRO_data_extended_tofts.csv")
    clean = table[table["label"].str.contains("highSNR")]
    assert len(clean) == 3
    for row in clean.itertuples():
        t = np.array(row.t.split(), float)
        plasma = np.array(row.ca.split(), float)
        tissue = np.array(row.C.split(), float)
        got = extended_tofts(
            t, t, plasma, np.array([row.Ktrans]), np.array([row.ve]), np.array([row.vp])
        )[0]
        assert np.abs(got - tissue).max() <= 0.01 * tissue.max()
    counted(len(clean), "OSIPI extended Tofts object (simulator)")


def test_convolution_agrees_with_adaptive_quadrature():
    times = np.arange(0, 200, 7.5)
    fine = fine_grid(times)
    assert np.isin(np.round(times, 9), np.round(fine, 9)).all()
    delay, ktrans, ve, vp = 12.0, 0.31, 0.27, 0.02
    got = extended_tofts(
        times, fine, parker(fine, delay), np.array([ktrans]), np.array([ve]), np.array([vp])
    )[0]
    for i in (3, 9, 20):
        end = times[i] / 60

        def integrand(s: float, end: float = end) -> float:
            return float(parker(np.array(60 * s), delay)) * np.exp(-ktrans / ve * (end - s))

        corner = [delay / 60, delay / 60 + 0.17, delay / 60 + 0.36]
        area = quad(integrand, 0, end, points=[c for c in corner if c < end], limit=400)[0]
        wanted = ktrans * area + vp * float(parker(times[i], delay))
        assert got[i] == pytest.approx(wanted, rel=2e-3, abs=2e-5)


def test_constant_input_has_the_closed_form():
    t = np.linspace(0, 600, 601)
    got = extended_tofts(t, t, np.ones_like(t), np.array([0.2]), np.array([0.4]), np.array([0.0]))[
        0
    ]
    assert np.allclose(got, 0.4 * (1 - np.exp(-0.5 * t / 60)), atol=1e-12)


def test_no_transfer_leaves_the_plasma_and_nothing_else():
    t = np.arange(0, 60.0, 5.0)
    plasma = parker(t, 10.0)
    got = extended_tofts(t, t, plasma, np.array([0.0]), np.array([0.3]), np.array([0.05]))[0]
    assert np.allclose(got, 0.05 * plasma, atol=1e-12)


def test_gradient_echo_gives_back_t1_and_peaks_at_the_ernst_angle():
    t1, tr = 1.6, 0.004
    flips = np.array([2.0, 5, 10, 20])
    signal = np.array(
        [float(spoiled_gradient_echo(np.array(t1), np.array(700.0), tr, a)) for a in flips]
    )
    x, y = signal / np.tan(np.radians(flips)), signal / np.sin(np.radians(flips))
    slope, level = np.polyfit(x, y, 1)
    assert -tr / np.log(slope) == pytest.approx(t1, rel=1e-9)
    assert level / (1 - slope) == pytest.approx(700.0, rel=1e-9)
    ernst = np.degrees(np.arccos(np.exp(-tr / t1)))
    around = [
        float(spoiled_gradient_echo(np.array(t1), np.array(1.0), tr, a))
        for a in (ernst - 0.3, ernst, ernst + 0.3)
    ]
    assert around[1] > max(around[0], around[2])


def test_spin_echo_gives_back_t2():
    signal = [spin_echo(np.array(1.8), np.array(0.1), np.array(1.0), 5.0, e) for e in (0.08, 0.12)]
    assert 0.04 / np.log(signal[0] / signal[1]) == pytest.approx(0.1, rel=1e-9)


def test_noise_is_rician_and_correlated_as_the_filter_says():
    rng = np.random.default_rng(1)
    zero = acquire(np.zeros((20, 96, 104)), 2.0, rng)
    assert zero.mean() == pytest.approx(2.0 * np.sqrt(np.pi / 2), rel=0.01)
    strong = acquire(np.full((20, 96, 104), 100.0), 2.0, rng)
    assert strong.mean() == pytest.approx(100.0 + 2.0**2 / 200, abs=0.02)
    assert strong.std() == pytest.approx(2.0, rel=0.02)
    near = np.corrcoef(strong[:, :-1].ravel(), strong[:, 1:].ravel())[0, 1]
    far = np.corrcoef(strong[:, :-4].ravel(), strong[:, 4:].ravel())[0, 1]
    assert 0.2 < near < 0.7
    assert abs(far) < 0.05


def test_motion_moves_the_image_and_nothing_else():
    """A shift by whole voxels is a roll; by half a voxel, twice, the same."""
    rng = np.random.default_rng(0)
    image = np.cumsum(rng.normal(size=(2, 16, 18)), axis=2) + 50
    still = acquire(image, 0.0, rng)
    np.testing.assert_allclose(
        acquire(image, 0.0, rng, (1.0, -2.0)), np.roll(still, (1, -2), (1, 2)), rtol=1e-4
    )
    assert still.sum() == pytest.approx(image.sum(), rel=1e-4)  # the middle of k-space is kept


def test_distortion_shifts_lines_and_keeps_the_signal():
    image = np.zeros((1, 60, 3))
    image[0, 20:30] = 1.0
    moved = distort(image, np.full(image.shape, 6.0), 2.0)
    np.testing.assert_allclose(moved[0, 23:33], 1.0)
    # Lines that crowd together pile up: the sum stays.
    squeezed = distort(image, 10.0 * np.exp(-np.arange(60) / 25.0)[None, :, None] + 0 * image, 2.0)
    assert squeezed.sum() == pytest.approx(image.sum(), rel=0.03)
    assert squeezed.max() > 1.05
    assert distort(image, None, 2.0) is image


def width_at_half(profile: np.ndarray, step: float) -> float:
    """Return the full width at half maximum of a single peak."""
    peak = int(profile.argmax())
    half = profile[peak] / 2
    above = np.flatnonzero(profile >= half)
    first, last = above[0], above[-1]
    rise = (profile[first] - half) / (profile[first] - profile[first - 1])
    fall = (profile[last] - half) / (profile[last] - profile[last + 1])
    return float((last - first + rise + fall) * step)


@pytest.mark.parametrize("fwhm", [2.0, 3.0, 5.0])
def test_a_point_is_as_wide_as_the_blur_that_was_asked_for(fwhm):
    """Voxels are finer along x than along y; the width is in millimetres along both."""
    spacing = (0.4, 0.2)
    point = np.zeros((1, 96, 160))
    point[0, 48, 80] = 1000.0
    blur = blur_filter((96, 160), spacing, fwhm)
    rng = np.random.default_rng(0)
    sharp = acquire(point, 0.0, rng)[0]
    blurred = acquire(point, 0.0, rng, blur=blur)[0]
    # The sampling of k-space makes a point less than three voxels wide by itself. Where the blur is
    # much wider than that, it alone makes the width.
    for axis, step in enumerate(spacing):
        assert width_at_half(sharp.sum(axis=1 - axis), step) < 3 * step
        assert width_at_half(blurred.sum(axis=1 - axis), step) == pytest.approx(fwhm, rel=0.02)
    assert blurred.sum() == pytest.approx(point.sum(), rel=0.001)


@pytest.mark.parametrize("interpolation", [1.0, 1.5, 2.0])
def test_added_noise_has_the_deviation_and_the_correlation_that_were_asked_for(interpolation):
    added = interpolated_noise((20, 96, 104), 4.0, interpolation, np.random.default_rng(2))
    assert added.real.std() == pytest.approx(4.0, rel=0.02)
    assert added.imag.std() == pytest.approx(4.0, rel=0.02)
    zero = acquire(np.zeros((20, 96, 104)), 0.0, np.random.default_rng(1), added=added)
    assert zero.mean() == pytest.approx(4.0 * np.sqrt(np.pi / 2), rel=0.02)
    strong = acquire(np.full((20, 96, 104), 200.0), 0.0, np.random.default_rng(1), added=added)
    assert strong.std() == pytest.approx(4.0, rel=0.02)
    for distance in (1, 2):
        angle = np.pi * distance / interpolation
        wanted = 2 * j1(angle) / angle
        for first, second in (
            (strong[:, :-distance], strong[:, distance:]),
            (strong[:, :, :-distance], strong[:, :, distance:]),
        ):
            measured = np.corrcoef(first.ravel(), second.ravel())[0, 1]
            assert measured == pytest.approx(wanted, abs=0.02)
