"""Images: what is put in comes out, on grids that scanners use."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cad.evidence.phantom.acquisition import Worsening
from cad.evidence.phantom.params import HAEMATOCRIT, RELAXIVITY, TISSUES
from cad.evidence.phantom.physics import extended_tofts, fine_grid, parker
from cad.evidence.phantom.protocols import LIGHT, SAMPLE, Grid
from cad.evidence.phantom.scanner import (
    Injection,
    diffusion_images,
    dynamic_images,
    t2_image,
)
from cad.evidence.phantom.scene import Placement, Scene, View
from cad.evidence.phantom.shapes import Shape
from cad.evidence.phantom.simulator import make_patient
from cad.mri.imaging.geometry import resample_mask

QUIET = dataclasses.replace(SAMPLE[0], noise=(0.0, 0.0, 0.0))


def _scene(tissue: str) -> Scene:
    """One even tissue everywhere, no bias field, straight axes."""
    even = {name: dataclasses.replace(t, texture=0.0, septa=0.0) for name, t in TISSUES.items()}
    shape = Shape(tissue, (0, 0, 0), (900, 900, 900), "PZ")
    fields = np.zeros((4, 4, 4, 4), np.float32)
    place = Placement(np.zeros(3), np.eye(3))
    return Scene([shape], even, place, fields, np.zeros(3), np.zeros(5))


def _view(scene: Scene, supersample: tuple[int, int, int] = (2, 2, 2)) -> View:
    grid = Grid((3, 6, 7), (2.0, 2.0, 3.6))
    return View(scene, grid, np.zeros(3), np.zeros(3), supersample)


@pytest.mark.parametrize("tissue", ["PZ", "TZ", "cancer"])
def test_noise_free_signal_inverts_to_the_kinetic_parameters(tissue):
    protocol = dataclasses.replace(QUIET, frames=40, dce_times=(0.00385, 5.0))
    injection = Injection(20.0, 2.0, 1.0)
    dce, vfa = dynamic_images(_view(_scene(tissue)), protocol, injection, np.random.default_rng(0))
    truth = TISSUES[tissue]
    # T1 from the flip angles (integer signals: rounding is the only error).
    flips = np.radians([flip for flip, _ in vfa])
    signal = np.array([float(volume.array.mean()) for _, volume in vfa])
    slope, _ = np.polyfit(signal / np.tan(flips), signal / np.sin(flips), 1)
    assert -protocol.dce_times[0] / np.log(slope) == pytest.approx(truth.t1, rel=0.05)
    # Concentration by exact inversion at the true T1.
    mean = dce.frames.reshape(len(dce.times), -1).mean(axis=1)
    angle, tr = np.radians(protocol.flip), protocol.dce_times[0]
    e10 = np.exp(-tr / truth.t1)
    scale = mean[0] * (1 - np.cos(angle) * e10) / (1 - e10)
    e1 = (1 - mean / scale) / (1 - np.cos(angle) * mean / scale)
    got = (-np.log(e1) / tr - 1 / truth.t1) / RELAXIVITY
    fine = fine_grid(dce.times)
    plasma = parker(fine, 22.0) / (1 - HAEMATOCRIT)
    wanted = extended_tofts(
        dce.times, fine, plasma, *(np.array([v]) for v in (truth.ktrans, truth.ve, truth.vp))
    )[0]
    assert np.abs(got - wanted).max() <= 0.02 + 0.03 * wanted.max()


@pytest.mark.parametrize("tissue", ["PZ", "TZ", "cancer", "urine"])
def test_noise_free_diffusion_inverts_to_adc(tissue):
    adc, images = diffusion_images(_view(_scene(tissue)), QUIET, np.random.default_rng(0))
    assert np.median(adc.array) == pytest.approx(TISSUES[tissue].adc, rel=0.01)
    assert [b for b, _ in images] == list(QUIET.b_values)


def test_t2_contrast_is_that_of_the_spin_echo():
    rng = np.random.default_rng(0)
    pz, cancer = (
        float(t2_image(_view(_scene(name)), QUIET, 1.0, rng).array.mean())
        for name in ("PZ", "cancer")
    )
    repetition, echo = QUIET.t2_times
    wanted = 1.0
    for name, sign in (("cancer", 1), ("PZ", -1)):
        t = TISSUES[name]
        value = t.density * (1 - np.exp(-repetition / t.t1)) * np.exp(-echo / t.t2)
        wanted *= value**sign
    assert cancer / pz == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("fwhm", [2.0, 4.0])
def test_an_edge_is_as_wide_as_the_blur_that_was_asked_for(fwhm):
    """The slope of a straight edge is the line spread, whose width is measured in T2."""
    scene = _scene("PZ")
    half = Shape("cancer", (-500.0, 0, 0), (500.0, 1e6, 1e6), "PZ", power=40.0)
    scene = dataclasses.replace(scene, shapes=[*scene.shapes, half])
    step = 0.5
    view = View(scene, Grid((1, 8, 128), (step, 1.0, 3.0)), np.zeros(3), np.zeros(3), (1, 1, 8))
    widths = []
    for worse in (Worsening(), Worsening(blur_mm=fwhm)):
        image = t2_image(view, QUIET, 50.0, np.random.default_rng(0), worse)
        slope = np.abs(np.diff(image.array[0, 4].astype(float)))[32:-32]
        fine = np.linspace(0, len(slope) - 1, 100 * len(slope))
        values = np.interp(fine, np.arange(len(slope)), slope)
        widths.append((values >= values.max() / 2).sum() * (fine[1] - fine[0]) * step)
    by_grid, both = widths
    assert by_grid < 1.5
    assert both == pytest.approx(fwhm, rel=0.02)


def test_added_noise_is_a_share_of_the_signal_of_the_peripheral_zone():
    """T2 has any gain; the high b-value and the flip angles get half of the noise."""
    worse = Worsening(noise=0.1, interpolation=2.0)
    grid = Grid((8, 64, 64), (2.0, 2.0, 3.6))
    view = View(_scene("PZ"), grid, np.zeros(3), np.zeros(3), (1, 1, 1))
    clean = _view(_scene("PZ"))
    rng = np.random.default_rng(0)
    t2 = t2_image(view, QUIET, 2.0, rng, worse).array.astype(float)
    assert t2.std() / t2.mean() == pytest.approx(0.1, rel=0.05)
    neighbours = np.corrcoef(t2[:, :, :-1].ravel(), t2[:, :, 1:].ravel())[0, 1]
    assert neighbours == pytest.approx(0.722, abs=0.03)  # 2 J1(pi / 2) / (pi / 2)
    injection = Injection(20.0, 2.0, 1.0)
    (_, low), (_, high) = diffusion_images(view, QUIET, rng, worse)[1]
    dce, vfa = dynamic_images(view, QUIET, injection, rng, worse=worse)
    without, _ = dynamic_images(clean, QUIET, injection, rng)
    before_agent = without.frames[0].mean()
    # The magnitude of weak signals in noise is Rician: their deviation is a little lower.
    assert low.array.std() == pytest.approx(0.1 * 300.0, rel=0.05)
    assert high.array.std() == pytest.approx(0.05 * 300.0, rel=0.08)
    assert dce.frames[0].std() == pytest.approx(0.1 * before_agent, rel=0.05)
    for _, image in vfa:
        assert image.array.std() == pytest.approx(0.05 * before_agent, rel=0.08)


def test_partial_volume_is_the_share_of_points():
    scene = _scene("PZ")
    half = Shape("cancer", (-500.0, 0, 0), (500.0, 1e6, 1e6), "PZ", power=40.0)
    scene = dataclasses.replace(scene, shapes=[*scene.shapes, half])
    grid = Grid((1, 1, 4), (2.0, 2.0, 2.0))
    view = View(scene, grid, np.array([0.5, 0, 0]), np.zeros(3), (1, 1, 8))
    assert view.share([2]).ravel().tolist() == [1.0, 0.75, 0.0, 0.0]
    voxel, number, share = view.voxel_shares()
    assert np.bincount(voxel, share).tolist() == [1.0] * 4
    assert share[(voxel == 1) & (number == 2)].tolist() == [0.75]


@pytest.fixture(scope="module")
def patients():
    return [make_patient(5, index, SAMPLE) for index in range(3)]


def test_studies_are_what_scanners_give(patients):
    assert {p.site for p in patients} <= {"A", "B"}
    for patient in patients:
        study = patient.study
        spacings = {study.t2w.spacing, study.adc.spacing, study.dce.grid.spacing}
        assert len(spacings) == 3
        assert study.t2w.array.dtype == study.dce.frames.dtype == np.uint16
        assert np.abs(study.t2w.direction - np.eye(3)).max() > 0.01  # tilted
        volume = study.gland.array.sum() * np.prod(study.gland.spacing) / 1000
        assert 15 < volume < 110
        grids = {v.shape for _, v in study.vfa} | {study.vessel.shape, study.dce.grid.shape}
        assert len(grids) == 1


def test_adc_and_enhancement_are_those_of_a_prostate(patients):
    """Published: PZ 1.6 .. 1.9e-3 mm2/s, urine 3.0e-3; arteries enhance first and most."""
    normal, cancer = [], []
    for patient in patients:
        study = patient.study
        for roi, region in zip(study.rois, patient.regions, strict=True):
            inside = study.roi_map.with_array(study.roi_map.array == roi.label)
            value = np.median(study.adc.array[resample_mask(inside, study.adc).array])
            if region.kind == "normal PZ":
                normal.append(value)
            if region.malignant:
                cancer.append(value)
        frames = study.dce.frames.astype(float)
        before = frames[study.dce.times < 18].mean(axis=0)
        rise = frames.max(axis=0) / np.maximum(before, 1) - 1
        vessel = study.vessel.array
        gland = resample_mask(study.gland, study.dce.grid).array
        assert np.median(rise[vessel]) > 2 * np.median(rise[gland]) > 0.6
        curve = frames[:, vessel].mean(axis=1)
        tissue = frames[:, gland].mean(axis=1)
        assert curve.argmax() <= tissue.argmax()
    assert 1450 < np.mean(normal) < 1900
    assert 800 < np.mean(cancer) < 1300


def test_a_patient_depends_on_seed_and_number_only():
    first, again = make_patient(3, 1, LIGHT), make_patient(3, 1, LIGHT)
    assert np.array_equal(first.study.dce.frames, again.study.dce.frames)
    assert first.scores.equals(again.scores)
    other = make_patient(4, 1, LIGHT)
    assert not np.array_equal(first.study.t2w.array, other.study.t2w.array)
