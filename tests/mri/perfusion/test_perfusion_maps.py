"""Maps of a made study: the parameters that made it come back, bad input is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.base.settings import PerfusionSettings
from cad.base.terms.features import MAPS
from cad.mri.features.perfusion.aif import parker_blood, population_input
from cad.mri.features.perfusion.maps import perfusion_maps
from cad.mri.features.perfusion.models import extended_tofts, fit_patlak
from cad.mri.imaging.study import Protocol, Roi, Study
from cad.mri.imaging.volume import Dynamic, Volume
from tests.support.gradient_echo import gradient_echo

TIMES = np.arange(60) * 4.0
TR, FLIP, RELAXIVITY, HCT = 0.004, 12.0, 4.5, 0.42
ANGLES = (2.0, 5.0, 10.0, 20.0)
SHAPE = (4, 10, 12)
SETTINGS = PerfusionSettings(haematocrit=HCT, refine=True)
# (Ktrans, ve, vp, T1) left and right of the middle.
LEFT, RIGHT = (0.1, 0.2, 0.02, 1.5), (0.3, 0.4, 0.05, 2.0)


def made_study(noise: float = 0.0) -> Study:
    """Two halves of known kinetics, a vessel corner, flip-angle images; Parker's input at 30 s."""
    grid = Volume(np.zeros(SHAPE, np.float32), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    inlet = population_input(TIMES, 30.0, HCT)
    concentration = np.zeros((*SHAPE, len(TIMES)))
    t1 = np.zeros(SHAPE)
    for half, (ktrans, ve, vp, tissue_t1) in ((slice(0, 6), LEFT), (slice(6, 12), RIGHT)):
        concentration[:, :, half] = extended_tofts(ktrans, ve, vp, inlet)
        t1[:, :, half] = tissue_t1
    vessel = np.zeros(SHAPE, bool)
    vessel[:, :2, :2] = True
    concentration[vessel] = parker_blood(TIMES, 28.0)
    t1[vessel] = 1.664
    s0 = 5000.0
    rate = 1 / t1[..., None] + RELAXIVITY * concentration
    frames = np.moveaxis(gradient_echo(rate, s0, TR, FLIP), -1, 0)
    frames = frames + np.random.default_rng(0).normal(scale=noise, size=frames.shape)
    gland = np.zeros(SHAPE, bool)
    gland[1:3, 3:9, 2:10] = True
    return Study(
        "sub-01",
        "sub-01",
        dce=Dynamic(frames, grid, TIMES, TR, FLIP),
        vfa=[(a, grid.with_array(gradient_echo(1 / t1, s0, TR, a))) for a in ANGLES],
        vfa_repetition_time=TR,
        roi_map=grid.with_array(gland.astype(np.uint8)),
        rois=[Roi("1", 1)],
        gland=grid.with_array(gland),
        vessel=grid.with_array(vessel),
    )


def gland_of(study: Study) -> np.ndarray:
    assert study.gland is not None
    return np.asarray(study.gland.array, bool)


def test_known_parameters_come_back() -> None:
    study = made_study()
    found = perfusion_maps(study, replace_setting(arterial_input="parker"))
    assert found.input_kind == "parker"
    assert abs(found.arrival - 30.0) < 6.0
    for half, (ktrans, ve, vp, t1) in ((4, LEFT), (8, RIGHT)):
        at = (2, 5, half)
        value = {name: float(volume.array[at]) for name, volume in found.maps.items()}
        assert value["t1"] == pytest.approx(t1, rel=1e-4)
        assert value["extended_tofts_ktrans"] == pytest.approx(ktrans, rel=0.05)
        assert value["extended_tofts_ve"] == pytest.approx(ve, rel=0.05)
        assert value["extended_tofts_vp"] == pytest.approx(vp, abs=0.01)
        assert value["extended_tofts_r2"] > 0.999
        assert value["extended_tofts_did_not_fit"] == 0


def replace_setting(**changes: object) -> PerfusionSettings:
    return SETTINGS.model_copy(update=changes)


def test_measured_input_gives_the_same() -> None:
    found = perfusion_maps(made_study(), SETTINGS)
    assert found.input_kind == "measured"
    # Four-second sampling cuts the bolus's peak: agreement to a tenth.
    assert found.maps["extended_tofts_ktrans"].array[2, 5, 4] == pytest.approx(0.1, rel=0.1)
    assert any("measured in the vessel mask" in note for note in found.notes)


def test_maps_are_defined_on_the_mask_and_only_there() -> None:
    study = made_study()
    mask = gland_of(study)
    every = SETTINGS.model_copy(update={"models": (*SETTINGS.models, "patlak"), "delay": "voxel"})
    found = perfusion_maps(study, every, mask)
    everywhere = perfusion_maps(study, every)
    assert set(found.maps) == set(MAPS)
    for name, volume in found.maps.items():
        assert volume.array.dtype == np.float32
        assert np.isnan(volume.array[~mask]).all(), name
        assert np.isfinite(volume.array[mask]).all(), name
        # A voxel's value does not depend on the mask around it.
        np.testing.assert_array_equal(volume.array[mask], everywhere.maps[name].array[mask])


LATE_S = 5.0


def late_half() -> Study:
    """The made study, in which the input reaches the right half later."""
    study = made_study()
    assert study.dce is not None
    inlet = population_input(TIMES, 30.0 + LATE_S, HCT)
    ktrans, ve, vp, t1 = RIGHT
    rate = 1 / t1 + RELAXIVITY * extended_tofts(ktrans, ve, vp, inlet)
    frames = study.dce.frames.copy()
    frames[:, :, :, 6:] = gradient_echo(rate, 5000.0, TR, FLIP)[:, None, None, None]
    return replace(study, dce=replace(study.dce, frames=frames))


def test_each_voxel_may_have_its_own_delay() -> None:
    study = late_half()
    one = perfusion_maps(study, replace_setting(arterial_input="parker"))
    each = perfusion_maps(study, replace_setting(arterial_input="parker", delay="voxel"))
    assert "input_delay" not in one.maps
    for half, (ktrans, ve, vp, _) in ((4, LEFT), (8, RIGHT)):
        at = (2, 5, half)
        assert each.maps["extended_tofts_ktrans"].array[at] == pytest.approx(ktrans, rel=0.02)
        assert each.maps["extended_tofts_ve"].array[at] == pytest.approx(ve, rel=0.02)
        assert each.maps["extended_tofts_vp"].array[at] == pytest.approx(vp, rel=0.1)
        assert each.maps["tofts_did_not_fit"].array[at] == 0
    # One delay for both is too early for the late half, and its vp pays for it.
    assert abs(one.maps["extended_tofts_vp"].array[2, 5, 8] - RIGHT[2]) > 0.2 * RIGHT[2]
    delay = each.maps["input_delay"].array
    assert delay[2, 5, 8] - delay[2, 5, 4] == pytest.approx(LATE_S, abs=0.25)
    curve = each.curve(gland_of(study) & (np.arange(12) >= 6))
    assert curve.params["input_delay"] == pytest.approx(delay[2, 5, 8])
    assert any("own delay" in note for note in each.notes)


def test_a_delay_on_its_bound_did_not_fit() -> None:
    study = late_half()
    assert study.dce is not None
    frames = study.dce.frames.copy()
    frames[6:, :, :, 9] = study.dce.frames[:-6, :, :, 9]  # 24 s later still
    frames[:6, :, :, 9] = frames[0, :, :, 9]
    late = replace(study, dce=replace(study.dce, frames=frames))
    found = perfusion_maps(late, replace_setting(arterial_input="parker", delay="voxel"))
    assert found.maps["input_delay"].array[2, 5, 9] == pytest.approx(10.0)
    assert found.maps["extended_tofts_did_not_fit"].array[2, 5, 9] == 1
    assert found.maps["extended_tofts_did_not_fit"].array[2, 5, 8] == 0


def test_sparse_frames_and_stated_angles_are_said() -> None:
    study = made_study()
    assert study.dce is not None
    kept = slice(None, None, 2)
    sparse = replace(study.dce, frames=study.dce.frames[kept], times=TIMES[kept])
    of_vp = perfusion_maps(replace(study, dce=sparse), replace_setting(arterial_input="parker"))
    assert any("frames are 8.0 s apart" in note and "vp" in note for note in of_vp.notes)
    assert any("without a map of the transmit field" in note for note in of_vp.notes)
    dense = perfusion_maps(study, replace_setting(arterial_input="parker"))
    without_vp = perfusion_maps(
        replace(study, dce=sparse), replace_setting(arterial_input="parker", models=("tofts",))
    )
    for made in (dense, without_vp):
        assert not any("s apart" in note for note in made.notes)


def test_region_curve() -> None:
    study = made_study(noise=0.5)
    curve = perfusion_maps(study, SETTINGS).curve(gland_of(study))
    assert curve.time_s.shape == curve.signal.shape == curve.concentration_mM.shape == (60,)
    assert np.abs(curve.fit_mM - curve.concentration_mM).max() < 0.1 * curve.fit_mM.max()
    assert 0.1 < curve.params["tofts_ktrans"] < 0.4
    with pytest.raises(CadError, match="no voxel"):
        perfusion_maps(study, SETTINGS).curve(np.zeros(SHAPE, bool))


def test_flip_angle_images_on_another_grid_are_resampled() -> None:
    study = made_study()
    coarse = [(a, shifted(v)) for a, v in study.vfa]
    found = perfusion_maps(replace(study, vfa=coarse), SETTINGS, gland_of(study))
    assert found.maps["t1"].array[2, 5, 4] == pytest.approx(1.5, rel=0.01)


def shifted(volume: Volume) -> Volume:
    """The same object sampled half a voxel off in z (its values do not vary along z)."""
    return replace(volume, origin=(0.0, 0.0, -1.5))


def test_without_flip_angle_images_t1_is_fixed_with_a_note() -> None:
    study = replace(made_study(), vfa=[])
    found = perfusion_maps(study, SETTINGS)
    assert found.maps["t1"].array[2, 5, 4] == pytest.approx(1.6)
    assert any("T1 fixed at 1.6 s" in note for note in found.notes)
    with pytest.raises(CadError, match=r"sub-01.*no flip-angle images"):
        perfusion_maps(study, replace_setting(t1="vfa"))


def test_equal_or_two_flip_angles() -> None:
    study = made_study()
    same = replace(study, vfa=[(5.0, study.vfa[1][1])] * 2)
    assert any("two different" in n for n in perfusion_maps(same, SETTINGS).notes)
    two = replace(study, vfa=[study.vfa[0], study.vfa[3]])
    found = perfusion_maps(two, SETTINGS)
    assert any("two flip angles only" in n for n in found.notes)
    assert found.maps["t1"].array[2, 5, 4] == pytest.approx(1.5, rel=1e-3)
    unknown = replace(study, vfa_repetition_time=None)
    assert any("repetition time" in n for n in perfusion_maps(unknown, SETTINGS).notes)


@pytest.mark.parametrize("missing", ["repetition_time", "flip_angle"])
def test_without_sequence_only_signal_maps_remain(missing: str) -> None:
    study = made_study()
    assert study.dce is not None
    found = perfusion_maps(replace(study, dce=replace(study.dce, **{missing: None})), SETTINGS)
    assert "relative_enhancement" in found.maps
    assert "brix_kep" in found.maps
    assert "tofts_ktrans" not in found.maps
    assert any("no concentration" in note for note in found.notes)
    curve = found.curve(gland_of(study))
    assert np.isnan(curve.concentration_mM).all()


def test_saturated_voxels_are_counted_and_not_numbers() -> None:
    study = made_study()
    assert study.dce is not None
    frames = study.dce.frames.copy()
    frames[30:, 2, 5, 4] = 1e6
    found = perfusion_maps(replace(study, dce=replace(study.dce, frames=frames)), SETTINGS)
    assert np.isnan(found.maps["tofts_ktrans"].array[2, 5, 4])
    assert found.maps["tofts_did_not_fit"].array[2, 5, 4] == 1
    assert any("saturated" in note and "1 of" in note for note in found.notes)


def test_constant_region_has_a_defined_result() -> None:
    study = made_study()
    assert study.dce is not None
    frames = study.dce.frames.copy()
    frames[:, 3, 9, 5:8] = 100.0
    found = perfusion_maps(replace(study, dce=replace(study.dce, frames=frames)), SETTINGS)
    values = {name: v.array[3, 9, 6] for name, v in found.maps.items()}
    assert all(np.isfinite(v) for v in values.values())
    assert values["tofts_ktrans"] == 0
    assert values["tofts_did_not_fit"] == 1


def test_series_without_bolus_or_baseline_name_the_patient() -> None:
    study = made_study()
    assert study.dce is not None
    flat = np.repeat(study.dce.frames[:1], len(TIMES), axis=0)
    with pytest.raises(CadError, match="patient sub-01: no bolus is seen"):
        perfusion_maps(replace(study, dce=replace(study.dce, frames=flat)), SETTINGS)
    late = Dynamic(study.dce.frames[9:], study.dce.grid, TIMES[9:] - TIMES[9], TR, FLIP)
    with pytest.raises(CadError, match=r"sub-01.*(no baseline frame|no bolus)"):
        perfusion_maps(replace(study, dce=late), SETTINGS)
    with pytest.raises(CadError, match=r"sub-01.*no dynamic series"):
        perfusion_maps(replace(study, dce=None), SETTINGS)
    with pytest.raises(CadError, match="mask has no voxel"):
        perfusion_maps(study, SETTINGS, np.zeros(SHAPE, bool))


def test_regions_that_do_not_enhance_still_have_a_bolus() -> None:
    study = made_study()
    assert study.dce is not None
    cyst = gland_of(study)
    frames = study.dce.frames.copy()
    frames[:, cyst] = 100.0
    found = perfusion_maps(replace(study, dce=replace(study.dce, frames=frames)), SETTINGS, cyst)
    assert abs(found.arrival - 30.0) < 6.0
    assert any("bolus found in the whole image" in note for note in found.notes)
    assert found.maps["relative_enhancement"].array[cyst].max() == 0


def test_vessel_that_is_none() -> None:
    study = made_study()
    assert study.gland is not None
    with pytest.raises(CadError, match="no vessel mask"):
        perfusion_maps(replace(study, vessel=None), replace_setting(arterial_input="measured"))
    wrong = replace(study, vessel=study.gland.with_array(np.roll(gland_of(study), 1)))
    found = perfusion_maps(wrong, replace_setting(arterial_input="auto"))
    # A piece of gland enhances too little to be an artery, or is taken with its note.
    assert any("input" in note for note in found.notes)


def test_every_map_is_documented() -> None:
    for name, definition in MAPS.items():
        assert definition.definition, name
        assert definition.unit, name
        assert definition.source, name


@pytest.mark.parametrize(("field", "tissue"), [(1.5, 1.317), (3.0, 1.6), (None, 1.6)])
def test_what_is_assumed_of_t1_is_that_of_the_field(field: float | None, tissue: float) -> None:
    """de Bazelaire 2004: prostate 1317 ms at 1.5 T, 1597 ms at 3 T."""
    study = replace(made_study(), vfa=[], protocols={"dce": Protocol(field_strength=field)})
    found = perfusion_maps(study, PerfusionSettings(arterial_input="parker"))
    assert found.maps["t1"].array.max() == np.float32(tissue)
    assert f"tissue T1 fixed at {tissue:g} s" in " ".join(found.notes)
    stated = perfusion_maps(study, PerfusionSettings(arterial_input="parker", t1_tissue=2.0))
    assert stated.maps["t1"].array.max() == 2.0
    # The same enhancement from a longer T1 takes less contrast agent.
    ratio = stated.maps["tofts_ktrans"].array / found.maps["tofts_ktrans"].array
    assert 0.2 < np.nanmedian(ratio) < tissue / 2.0


def test_patlak_is_the_slope_of_its_plot_and_names_its_maps() -> None:
    """Independent: the textbook's graph, C / cp against area / cp, is a straight line."""
    inlet = population_input(TIMES, 20.0, HCT)
    plasma = inlet.plasma[inlet.at_frames]
    area = np.concatenate(
        [[0.0], np.cumsum(np.diff(inlet.times) * (inlet.plasma[1:] + inlet.plasma[:-1]) / 120)]
    )[inlet.at_frames]
    curve = 0.05 * plasma + 0.12 * area
    late = plasma > 0.1
    slope, intercept = np.polyfit(area[late] / plasma[late], curve[late] / plasma[late], 1)
    found = fit_patlak(np.stack([curve, np.full_like(curve, np.nan), -curve]), inlet)
    assert found.parameters["ktrans"][0] == pytest.approx(slope, rel=1e-9)
    assert found.parameters["vp"][0] == pytest.approx(intercept, rel=1e-9)
    assert (slope, intercept) == pytest.approx((0.12, 0.05))
    assert found.r2[0] == pytest.approx(1.0)
    assert found.failed.tolist() == [False, True, True]
    # The backflow is missed: below the Tofts model of the curve, the more so the faster.
    slow, fast = (fit_patlak(extended_tofts(0.1, ve, 0.02, inlet)[None], inlet) for ve in (5, 0.2))
    assert 0.02 < fast.parameters["ktrans"][0] < slow.parameters["ktrans"][0] < 0.1 + 1e-9
    maps = perfusion_maps(made_study(), PerfusionSettings(models=("patlak",))).maps
    assert {n for n in maps if n.startswith("patlak_")} == {
        n for n in MAPS if n.startswith("patlak_")
    }
    with pytest.raises(CadError, match="do not match"):
        fit_patlak(curve[None, :-1], inlet)
