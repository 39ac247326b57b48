"""One row per region: names, isolation of failures, absent modalities, maps, sliding spheres."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, PipelineSettings, TextureSettings
from cad.base.terms.features import FAMILY_NAMES
from cad.mri.columns import columns_of
from cad.mri.features.sliding import sliding_rows, where_to_slide
from cad.mri.features.table import extract
from cad.mri.imaging.geometry import occupancy
from cad.mri.imaging.study import Roi, Study


def with_features(**features: object) -> PipelineSettings:
    return PipelineSettings(name="test", features=FeatureSettings(**features))  # type: ignore[arg-type]


def test_every_family_has_its_columns(study: Study, settings: PipelineSettings) -> None:
    found = extract(study, settings)
    assert not found.failures
    names = list(found.rows.columns[2:])
    assert found.rows["roi_id"].tolist() == ["one", "two"]
    assert np.isfinite(found.rows[names].to_numpy(float)).all()
    # Without flip-angle images T1 is an assumption and no feature.
    columns = columns_of(settings.features)
    assert names == [name for name, column in columns.items() if column.channel != "t1"]
    assert {column.family for column in columns.values()}.isdisjoint({"size", "position"})
    gain = {"semi_baseline_signal", "semi_maximum_enhancement"}  # in units of the scanner's gain
    assert {column.channel for column in columns.values()}.isdisjoint(gain)
    asked = with_features(counting=True, families=FAMILY_NAMES)
    more = columns_of(asked.features)
    assert list(extract(study, asked).rows.columns[2:]) == [
        n for n in more if more[n].channel != "t1"
    ]
    for name in (
        "adc_intensity_p10",
        "t2w_kirsch_mean",
        "t2w_haralick_contrast",
        "dce_tofts_ktrans_median",
        "dce_semi_time_to_peak_median",
    ):
        assert name in names


def test_values_are_those_of_the_own_grid(study: Study, settings: PipelineSettings) -> None:
    found = extract(study, settings)
    assert study.adc is not None
    assert study.roi_map is not None
    for number, roi in enumerate(study.rois):
        mask = study.roi_map.with_array(study.roi_map.array == roi.label)
        share = occupancy(mask, study.adc).array
        inside = share > 1e-4
        values, weights = study.adc.array[inside], share[inside].astype(float)
        row = found.rows.iloc[number]
        mean = np.average(values, weights=weights)
        assert row["adc_intensity_mean"] == pytest.approx(mean, rel=1e-6)
        # Each voxel as many times as a thousandth of it is filled.
        many = np.repeat(values, np.round(1000 * weights).astype(int))
        assert row["adc_intensity_p10"] == pytest.approx(np.percentile(many, 10), rel=0.02)
        volume = mask.array.sum() * np.prod(mask.spacing)
        assert weights.sum() * np.prod(study.adc.spacing) == pytest.approx(volume, rel=1e-3)
    assert set(found.curves) == {"one", "two"}
    curve = found.curves["one"]
    assert curve.signal.shape == curve.fit_mM.shape == curve.time_s.shape == (40,)
    shown = found.maps["relative_enhancement"]
    assert study.dce is not None
    share = occupancy(
        study.roi_map.with_array(study.roi_map.array == study.rois[0].label), shown
    ).array
    assert np.average(shown.array, weights=share) == pytest.approx(
        found.rows["dce_semi_relative_enhancement_mean"].iloc[0], rel=1e-4
    )


def test_an_absent_modality_is_said_and_has_no_columns(
    study: Study, settings: PipelineSettings
) -> None:
    lacking = replace(study, dce=None)
    found = extract(lacking, settings)
    assert not [c for c in found.rows if c.startswith("dce_")]
    assert "dce" in lacking.missing  # what a page says
    assert not found.failures
    with pytest.raises(CadError, match="none of the images"):
        extract(replace(study, dce=None, adc=None, t2w=None), settings)


def test_one_regions_failure_costs_no_other(study: Study, settings: PipelineSettings) -> None:
    assert study.roi_map is not None
    labels = study.roi_map.array.copy()
    labels[6, 5:7, 5:7] = 3  # four voxels of T2, less of all others
    bad = replace(
        study,
        roi_map=study.roi_map.with_array(labels),
        rois=[*study.rois, Roi("tiny", 3), Roi("empty", 4)],
    )
    found = extract(bad, settings)
    good = extract(study, settings)
    assert found.rows["roi_id"].tolist() == ["one", "two"]
    assert sorted(f.roi for f in found.failures) == ["empty", "tiny"]
    assert all(f.patient == "sub-A" for f in found.failures)
    names = [c for c in good.rows if c.startswith(("t2w_", "adc_"))]
    np.testing.assert_allclose(found.rows[names], good.rows[names])


def drawn_as(study: Study, where: tuple[slice, slice, slice]) -> Study:
    """The study with one region."""
    assert study.roi_map is not None
    labels = np.zeros_like(study.roi_map.array)
    labels[where] = 1
    return replace(study, roi_map=study.roi_map.with_array(labels), rois=[Roi("one", 1)])


def test_a_region_in_one_slice_between_two_others_is_measured(
    study: Study, settings: PipelineSettings
) -> None:
    """Half of the slice lies in each of two ADC slices: a fixed half would lose it."""
    assert study.adc is not None
    x, y, z = study.adc.origin
    ramp = np.broadcast_to(np.arange(8.0)[:, None, None], study.adc.shape).astype(np.float32)
    moved = replace(study.adc, origin=(x, y, z + 1.5), array=ramp * 100 + 500)
    found = extract(
        drawn_as(replace(study, adc=moved), np.s_[4:5, 20:40, 20:40]),
        with_features(families=("intensity", "haralick")),
    )
    assert not found.failures
    assert not [note for note in found.notes if "not measured" in note]
    row = found.rows.iloc[0]
    assert row["adc_intensity_mean"] == pytest.approx(500 + 100 * 3.5, abs=1.0)
    assert np.isfinite(row["adc_haralick_contrast"])


def test_too_little_in_one_modality_is_nan_there_and_has_a_reason(
    study: Study, settings: PipelineSettings
) -> None:
    """Six voxels of T2 are 0.4 of an ADC voxel; T2 is measured, the others are not."""
    found = extract(drawn_as(study, np.s_[4:5, 20:22, 20:23]), settings)
    assert not found.failures
    row = found.rows.iloc[0]
    assert np.isfinite(row["t2w_intensity_mean"])
    assert not [c for c in found.rows if c.startswith(("adc_", "dce_"))]
    assert any("adc not measured in ROI one" in note for note in found.notes)
    both = drawn_as(study, np.s_[4:5, 20:22, 20:23])
    assert both.roi_map is not None
    both.roi_map.array[3:6, 35:48, 33:48] = 2
    both.rois.append(Roi("two", 2))
    mixed = extract(both, settings).rows.set_index("roi_id")
    assert np.isnan(mixed.loc["one", "adc_intensity_mean"])
    assert np.isfinite(mixed.loc["two"].drop("participant_id").to_numpy(float)).all()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_region_of_a_few_voxels_is_refused_with_its_number(
    study: Study, settings: PipelineSettings, size: int
) -> None:
    found = extract(drawn_as(study, np.s_[4:5, 20:21, 20 : 20 + size]), settings)
    assert found.rows.empty
    assert f"fills {size}.0 voxels" in found.failures[0].problem


def test_a_region_outside_one_modality_keeps_the_others(
    study: Study, settings: PipelineSettings
) -> None:
    assert study.adc is not None
    x, y, z = study.adc.origin
    away = replace(study.adc, origin=(x + 15.0, y, z))
    found = extract(drawn_as(replace(study, adc=away), np.s_[3:6, 20:40, 5:30]), settings)
    assert any(
        "lie outside the image" in note or "lies in the image" in note for note in found.notes
    )
    assert np.isfinite(found.rows["t2w_intensity_mean"].iloc[0])
    far = replace(study.adc, origin=(x + 500.0, y, z))
    found = extract(drawn_as(replace(study, adc=far), np.s_[3:6, 20:40, 5:30]), settings)
    assert any("adc not measured in ROI one: 0% of it" in note for note in found.notes)
    assert not [c for c in found.rows if c.startswith("adc_")]


def test_a_modality_that_cannot_be_prepared_leaves_the_others(
    study: Study, settings: PipelineSettings
) -> None:
    assert study.t2w is not None
    assert study.dce is not None
    flat = replace(study.dce, frames=np.full_like(study.dce.frames, 100.0))
    found = extract(replace(study, dce=flat), settings)
    assert len(found.failures) == 1
    assert "bolus" in str(found.failures[0])
    assert "t2w_intensity_mean" in found.rows
    constant = study.t2w.with_array(np.full_like(study.t2w.array, 5.0))
    found = extract(replace(study, t2w=constant), settings)
    assert "constant" in str(found.failures[0])
    assert "adc_intensity_mean" in found.rows


def test_a_constant_region_is_measured(study: Study, settings: PipelineSettings) -> None:
    assert study.adc is not None
    adc = study.adc.with_array(np.full_like(study.adc.array, 900.0))
    found = extract(replace(study, adc=adc), settings)
    names = [c for c in found.rows if c.startswith("adc_")]
    assert np.isfinite(found.rows[names].to_numpy(float)).all()
    assert (found.rows["adc_haralick_contrast"] == 0).all()


def test_one_slice_has_co_occurrence_in_3d_too(study: Study, settings: PipelineSettings) -> None:
    assert study.roi_map is not None
    labels = np.zeros_like(study.roi_map.array)
    labels[3, 15:30, 15:30] = 1
    single = replace(study, roi_map=study.roi_map.with_array(labels), rois=study.rois[:1], dce=None)
    found = extract(single, settings)
    assert not found.failures
    flat = extract(single, with_features(texture=TextureSettings(dimension="2D")))
    assert found.rows["t2w_haralick_contrast"].iloc[0] == pytest.approx(
        flat.rows["t2w_haralick_contrast"].iloc[0]
    )


def test_settings_choose_columns(study: Study) -> None:
    found = extract(study, with_features(modalities=("adc",), families=("intensity", "haralick")))
    assert {c.split("_")[1] for c in found.rows.columns[2:]} == {"intensity", "haralick"}
    left = extract(study, with_features(exclude=("*_cov", "dce_*")))
    assert not [c for c in left.rows if c.endswith("_cov") or c.startswith("dce_")]


def test_classes_without_the_extra_name_the_way_out(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "radiomics", None)
    with pytest.raises(CadError, match=r"cad\[radiomics\]"):
        extract(study, with_features(radiomics=("glrlm",)))
    with pytest.raises(CadError, match="map cannot be made"):
        sliding_rows(study, with_features(radiomics=("glrlm",)))


def test_a_sphere_is_measured_as_a_region(study: Study, settings: PipelineSettings) -> None:
    """A region drawn as the sphere's own voxels gives the same T2 numbers."""
    assert study.t2w is not None
    around = np.zeros(study.t2w.shape, bool)
    around[4, 28:32, 28:32] = True
    slid = sliding_rows(study, settings, study.t2w.with_array(around))
    assert list(slid.rows.columns) == list(extract(study, settings).rows.columns[2:])
    at = int(np.flatnonzero((slid.index == (4, 30, 30)).all(axis=1))[0])
    z, y, x = np.meshgrid(*(np.arange(n) for n in study.t2w.shape), indexing="ij")
    gap = ((z - 4) * 3.0) ** 2 + ((y - 30) * 0.6) ** 2 + ((x - 30) * 0.6) ** 2
    sphere = study.t2w.with_array((gap <= 16.0).astype(np.uint8))
    region = replace(study, roi_map=sphere, rois=[Roi("sphere", 1)])
    expected = extract(region, settings).rows
    names = [c for c in expected if c.startswith("t2w_")]
    np.testing.assert_allclose(
        slid.rows[names].iloc[at].to_numpy(float),
        expected[names].iloc[0].to_numpy(float),
        rtol=1e-9,
    )
    back = slid.to_volume(slid.rows["t2w_intensity_mean"].to_numpy())
    assert np.isfinite(back.array).sum() == 16
    assert back.same_grid(study.t2w)


def test_maps_slide_over_the_gland_or_around_regions(study: Study) -> None:
    assert study.t2w is not None
    assert study.roi_map is not None
    near = where_to_slide(study, 2.0)
    inside = study.roi_map.array > 0
    assert near.array[inside].all()
    assert near.array.sum() > inside.sum()
    gland = np.zeros(study.t2w.shape, bool)
    gland[2:6, 10:50, 10:50] = True
    own = where_to_slide(replace(study, gland=study.t2w.with_array(gland)))
    np.testing.assert_array_equal(own.array, gland)
    with pytest.raises(CadError, match="gland mask or regions"):
        where_to_slide(replace(study, roi_map=None))
    with pytest.raises(CadError, match="empty"):
        sliding_rows(study, PipelineSettings(name="t"), study.t2w.with_array(np.zeros_like(gland)))


def test_a_model_that_fits_less_than_half_of_a_region_says_nothing_there(
    study: Study, settings: PipelineSettings
) -> None:
    """The first region stops enhancing in most of its voxels; the second is as it was."""
    assert study.dce is not None
    assert study.roi_map is not None
    first = study.roi_map.with_array(study.roi_map.array == 1)
    inside = np.argwhere(occupancy(first, study.dce.grid).array > 0)
    frames = study.dce.frames.copy()
    for z, y, x in inside[: int(0.7 * len(inside))]:
        frames[:, z, y, x] = np.linspace(220, 180, len(frames))
    found = extract(replace(study, dce=replace(study.dce, frames=frames)), settings)
    bad, good = found.rows.iloc[0], found.rows.iloc[1]
    assert bad["dce_tofts_did_not_fit_mean"] > 0.5
    assert np.isnan(bad["dce_tofts_ktrans_median"])
    assert np.isfinite(bad["dce_semi_relative_enhancement_median"])
    assert np.isfinite(good["dce_tofts_ktrans_median"])
    assert found.provenance["provenance_dce_valid"].iloc[0] < 0.5
