"""A map of the transmit field: proven as fraction or percent, and what it does to T1 and Ktrans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.base.settings import PerfusionSettings, PipelineSettings
from cad.mri.features.perfusion.concentration import (
    concentration_from_signal,
)
from cad.mri.features.perfusion.maps import perfusion_maps
from cad.mri.features.perfusion.t1 import fit_t1
from cad.mri.features.provenance import CohortFacts, differences, resolve_auto
from cad.mri.imaging.nifti import write_sidecar, write_volume
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import b1_path, read_b1
from cad.mri.imaging.volume import Dynamic, Volume
from tests.support.gradient_echo import gradient_echo

TR, ANGLES = 0.005, np.array([2.0, 5.0, 10.0, 20.0])
SHAPE = (2, 6, 8)
GRID = Volume(np.zeros(SHAPE, np.float32), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
SETTINGS = PerfusionSettings(arterial_input="parker", models=("tofts",))


def field() -> np.ndarray:
    """From .8 to 1.2 along x, as across a pelvis at 3 T."""
    return np.broadcast_to(np.linspace(0.8, 1.2, SHAPE[2]), SHAPE).astype(np.float32)


def made(b1: np.ndarray) -> Study:
    """T1 of 1.5 s and one curve everywhere, seen with ``b1`` times the stated flip angles."""
    times = np.arange(40) * 4.0
    curve = np.where(times > 30, 1 - np.exp(-(times - 30) / 60), 0.0)
    angle = 12.0 * b1[..., None]
    before = gradient_echo(np.full((*SHAPE, 1), 1 / 1.5), np.array(1000.0), TR, angle)
    after = gradient_echo(1 / 1.5 + 4.5 * curve, np.array(1000.0), TR, angle)
    assert before.shape == (*SHAPE, 1)
    vfa = [
        (float(a), GRID.with_array(gradient_echo(np.array(1 / 1.5), np.array(1000.0), TR, a * b1)))
        for a in ANGLES
    ]
    everywhere = GRID.with_array(np.ones(SHAPE, np.uint8))
    return Study(
        "sub-01",
        "sub-01",
        dce=Dynamic(np.moveaxis(after, -1, 0), GRID, times, TR, 12.0),
        vfa=vfa,
        vfa_repetition_time=TR,
        b1=GRID.with_array(b1.astype(np.float32)),
        roi_map=everywhere,
        rois=[Roi("1", 1)],
    )


def test_t1_with_the_angles_that_were_there() -> None:
    """By hand: small angles give T1 in proportion to 1 / B1^2 where B1 is left out."""
    b1 = np.array([0.7, 1.0, 1.3])
    signals = np.stack(
        [gradient_echo(np.array(1 / 1.5), np.array(900.0), TR, a * b1) for a in ANGLES]
    )
    found = fit_t1(signals, ANGLES, TR, b1=b1)
    np.testing.assert_allclose(found.t1, 1.5, rtol=1e-9)
    np.testing.assert_allclose(found.s0, 900.0, rtol=1e-9)
    blind = fit_t1(signals, ANGLES, TR).t1
    np.testing.assert_allclose(blind, 1.5 * b1**2, rtol=0.03)


def test_a_field_of_one_changes_no_bit() -> None:
    noise = np.random.default_rng(0).normal(scale=3.0, size=(4, 50))
    signals = gradient_echo(np.array(1 / 1.5), np.array(900.0), TR, ANGLES[:, None]) + noise
    plain, ones = fit_t1(signals, ANGLES, TR), fit_t1(signals, ANGLES, TR, b1=np.ones(50))
    np.testing.assert_array_equal(plain.t1, ones.t1)
    study = made(np.ones(SHAPE, np.float32))
    with_map = perfusion_maps(study, SETTINGS)
    without = perfusion_maps(replace(study, b1=None), SETTINGS)
    for name, volume in without.maps.items():
        np.testing.assert_array_equal(volume.array, with_map.maps[name].array, err_msg=name)
    assert (without.t1_source, with_map.t1_source) == ("vfa", "vfa, flip angles by B1 map")


def test_concentration_takes_each_voxels_angle() -> None:
    """Independent: what the signal equation made of a concentration at 9.6 and 14.4 degrees."""
    truth, t1 = np.array([0.0, 0.0, 0.4, 1.1]), np.array([1.5])
    for angle in (9.6, 14.4):
        base = gradient_echo(1 / t1, np.array([500.0]), TR, angle)
        signal = gradient_echo(1 / t1 + 4.5 * truth[None], np.array(500.0), TR, angle)
        found = concentration_from_signal(signal, base, t1, TR, np.array([angle]), 4.5)
        np.testing.assert_allclose(found[0], truth, atol=1e-12)


def test_maps_are_flat_again_under_an_uneven_field() -> None:
    study = made(field())
    found = perfusion_maps(study, SETTINGS)
    np.testing.assert_allclose(found.maps["t1"].array, 1.5, rtol=1e-5)
    ktrans = found.maps["tofts_ktrans"].array
    assert np.ptp(ktrans) < 1e-3 * ktrans.mean()
    blind = perfusion_maps(study, SETTINGS.model_copy(update={"b1": "none"}))
    assert np.ptp(blind.maps["t1"].array) > 0.7
    assert blind.t1_source == "vfa"
    assert any("corrected by the transmit field, median 1.00" in note for note in found.notes)
    assert "extended" not in str(found.curve(np.ones(SHAPE, bool)).params)


def test_where_the_map_has_no_value_angles_are_as_stated() -> None:
    holes = np.ones(SHAPE, np.float32) * 0.9
    holes[0, 0, 0] = np.nan
    study = made(np.where(np.isfinite(holes), holes, 1.0))
    study.b1 = GRID.with_array(holes)
    found = perfusion_maps(study, SETTINGS)
    np.testing.assert_allclose(found.maps["t1"].array, 1.5, rtol=1e-5)
    assert any("as stated in 1 of 96 voxels" in note for note in found.notes)
    study.b1 = GRID.with_array(np.full(SHAPE, np.nan))
    with pytest.raises(CadError, match=r"sub-01.*transmit field has no value"):
        perfusion_maps(study, SETTINGS)
    required = SETTINGS.model_copy(update={"b1": "map"})
    with pytest.raises(CadError, match=r"sub-01.*no map of the transmit field"):
        perfusion_maps(replace(study, b1=None), required)


@pytest.mark.parametrize(
    ("factor", "unit", "wrong"),
    [
        (1.0, "", ""),
        (1.0, "fraction", ""),
        (1.0, "arbitrary", ""),
        (100.0, "", ""),
        (100.0, "percent", ""),
        (100.0, "fraction", "expected percent"),
        (1.0, "%", "expected fraction"),
        (1.0, "degrees", "expected fraction"),
        (10.0, "", "neither a fraction"),
        (0.0, "percent", "neither a fraction"),
    ],
)
def test_unit_and_values_prove_each_other(
    tmp_path: Path, factor: float, unit: str, wrong: str
) -> None:
    path = b1_path(tmp_path, "sub-01")
    assert read_b1(path) is None
    values = field() * factor
    values[0, 0] = 0.0  # beside the body
    write_volume(path, GRID.with_array(values))
    write_sidecar(path, {"Units": unit} if unit else {})
    if wrong:
        with pytest.raises(CadError, match=rf"TB1map.*{wrong}"):
            read_b1(path)
        return
    found = read_b1(path)
    assert found is not None
    np.testing.assert_allclose(found.array[1], field()[1], rtol=1e-5)
    assert np.isnan(found.array[0, 0]).all()


def test_one_choice_for_a_cohort_and_a_model_says_the_difference() -> None:
    settings = PipelineSettings(name="b1")
    every = resolve_auto(CohortFacts(4, 4, 4, 4, 4, 4), settings)
    some = resolve_auto(CohortFacts(4, 4, 4, 4, 4, 3), settings)
    assert (every.features.perfusion.b1, some.features.perfusion.b1) == ("map", "none")
    row = {"provenance_t1_source": "vfa, flip angles by B1 map"}
    assert differences({"t1_source": ["vfa"]}, row) == [
        "tissue T1 from: vfa, flip angles by B1 map, trained on vfa"
    ]
