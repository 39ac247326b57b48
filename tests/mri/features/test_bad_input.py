"""Images as clinics send them by mistake: each is measured right, or left out with its reason.

Regions of 1, 2 and 4 voxels and regions outside one image are in ``test_table.py``; images with NaN
are refused on reading (``tests/mri/imaging/test_study_files.py``).
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import PipelineSettings
from cad.mri.features.provenance import differences, summary
from cad.mri.features.snapshot import snapshot
from cad.mri.features.table import StudyFeatures, extract
from cad.mri.imaging.study import Roi, Study


def both(found: StudyFeatures) -> pd.DataFrame:
    return pd.concat([found.rows, found.provenance], axis=1).set_index("roi_id")


def test_zeros_that_stand_for_outside_do_not_count(
    study: Study, settings: PipelineSettings
) -> None:
    """ADC's re-segmentation range begins at 1: half a region of zeros leaves the other half."""
    assert study.adc is not None
    assert study.roi_map is not None
    cut = study.adc.array.copy()
    cut[:, :7] = 0  # y above 12.6 mm: region one reaches from 9 to 18 mm
    labels = np.zeros_like(study.roi_map.array)
    labels[3:6, 15:27, 15:30] = 1
    drawn = replace(study, roi_map=study.roi_map.with_array(labels), rois=[Roi("one", 1)])
    whole = both(extract(drawn, settings)).loc["one"]
    found = both(extract(replace(drawn, adc=study.adc.with_array(cut)), settings)).loc["one"]
    assert whole["provenance_adc_valid"] == pytest.approx(1.0)
    assert 0.2 < found["provenance_adc_valid"] < 0.8
    assert found["adc_intensity_minimum"] > 500
    assert found["adc_intensity_mean"] == pytest.approx(whole["adc_intensity_mean"], rel=0.05)


@pytest.mark.parametrize(("rows", "measured"), [(6, True), (9, False)])
def test_a_region_that_is_void_for_the_most_part_is_not_measured(
    study: Study, settings: PipelineSettings, rows: int, measured: bool
) -> None:
    """Region one reaches over rows 5 to 9 of the ADC map: a void ends behind row 5, or behind 8."""
    assert study.adc is not None
    assert study.roi_map is not None
    void = study.adc.array.copy()
    void[:, :rows] = 0
    labels = np.zeros_like(study.roi_map.array)
    labels[3:6, 15:30, 15:30] = 1
    drawn = replace(
        study,
        roi_map=study.roi_map.with_array(labels),
        rois=[Roi("one", 1)],
        adc=study.adc.with_array(void),
    )
    extracted = extract(drawn, settings)
    values = extracted.rows.filter(like="adc_").to_numpy(float)
    about_one = [note for note in extracted.notes if "ROI one" in note and note.startswith("adc")]
    if measured:
        assert np.isfinite(values).any()
        assert about_one == ["adc: 20% of ROI one has no value and is left out"]
        assert extracted.gaps == {}
    else:
        assert np.isnan(values).all()
        reason = "the image has a value (0 is none) in 20% of it, 50% are needed"
        assert extracted.gaps == {"one": {"adc": reason}}
        assert about_one == [f"adc not measured in ROI one: {reason}"]


@pytest.mark.parametrize("z", [0, 7])
def test_a_region_on_the_first_or_the_last_slice(
    study: Study, settings: PipelineSettings, z: int
) -> None:
    """Measured in every image, and shown on a slice that has no neighbour on one side."""
    assert study.roi_map is not None
    labels = np.zeros_like(study.roi_map.array)
    labels[z, 15:30, 15:30] = 1
    drawn = replace(study, roi_map=study.roi_map.with_array(labels), rois=[Roi("one", 1, "PZ")])
    found = extract(drawn, settings)
    assert found.failures == []
    row = both(found).loc["one"]
    inside = study.adc.array[z, 5:10, 5:10]  # type: ignore[union-attr]  # there is an ADC
    assert row["adc_intensity_median"] == pytest.approx(np.median(inside))
    for name in ("t2w_intensity_median", "dce_tofts_ktrans_median"):
        assert np.isfinite(row[name]), name
    shown = snapshot(drawn, found)
    meta = json.loads(str(shown["meta"]))
    assert meta["slice_numbers"] == ([1, 2, 3, 8] if z == 0 else [6, 7, 8, 8])
    (region,) = meta["rois"]
    assert region["centre_index"][0] == (0 if z == 0 else 2)  # the end of what is shown
    assert region["volume_mm3"] == pytest.approx(15 * 15 * 0.6 * 0.6 * 3, abs=0.1)
    assert region["diameter_mm"] > 15 * 0.6
    assert (shown["roi_map"] > 0).sum() == 15 * 15


def test_nan_in_part_of_a_modality_is_left_out_and_said(
    study: Study, settings: PipelineSettings
) -> None:
    assert study.adc is not None
    holes = study.adc.array.copy()
    holes[:, :7] = np.nan
    found = both(extract(replace(study, adc=study.adc.with_array(holes)), settings))
    assert found.loc["one", "provenance_adc_valid"] < 0.95
    assert found.loc["two", "provenance_adc_valid"] == pytest.approx(1.0)
    assert np.isfinite(found.loc["two"].filter(like="adc_intensity").to_numpy(float)).all()
    assert np.isfinite(found["t2w_intensity_mean"].to_numpy()).all()


def test_t2_of_another_spacing_is_said_and_can_be_made_the_same(
    study: Study, settings: PipelineSettings
) -> None:
    """Two patients, .6 mm and .9 mm: no learner gets both in silence."""
    assert study.t2w is not None
    x, y, z = study.t2w.spacing
    other = replace(study, t2w=replace(study.t2w, spacing=(x * 1.5, y * 1.5, z)))
    trained = summary(extract(study, settings).provenance)
    told = differences(trained, extract(other, settings).provenance.iloc[0].to_dict())
    assert told == ["t2w: voxel size in the slice, mm: 0.9, trained on 0.6 to 0.6"]
    common = settings.model_copy(
        update={"images": settings.images.model_copy(update={"spacing_t2w": (1.0, 1.0, 0.0)})}
    )
    trained = summary(extract(study, common).provenance)
    assert differences(trained, extract(other, common).provenance.iloc[0].to_dict()) == []


def test_gaps_between_slices_are_said(study: Study, settings: PipelineSettings) -> None:
    """3 mm slices with gaps of 5 mm lie 8 mm apart."""
    trained = summary(extract(study, settings).provenance)
    assert study.t2w is not None
    assert study.roi_map is not None
    gaps = {"spacing": (*study.t2w.spacing[:2], 8.0)}
    apart = replace(study, t2w=replace(study.t2w, **gaps), roi_map=replace(study.roi_map, **gaps))
    found = extract(apart, settings)
    told = differences(trained, found.provenance.iloc[0].to_dict())
    assert "t2w: slice distance, mm: 8, trained on 3 to 3" in told
    t2 = found.rows.filter(like="t2w_").to_numpy(float)
    assert np.isfinite(t2).all()


def test_one_baseline_frame_costs_the_dynamic_series_only(
    study: Study, settings: PipelineSettings
) -> None:
    """Nothing tells a single frame without contrast from one that already has some."""
    assert study.dce is not None
    late = slice(6, None)  # the contrast arrives at frame 6
    dce = replace(study.dce, frames=study.dce.frames[late], times=study.dce.times[late] - 36.0)
    found = extract(replace(study, dce=dce), settings)
    assert [f.problem.split(":")[0] for f in found.failures] == ["no baseline frame"]
    assert not [c for c in found.rows if c.startswith("dce_")]
    assert np.isfinite(found.rows["adc_intensity_mean"]).all()


def test_a_time_axis_that_jumps_is_followed(study: Study, settings: PipelineSettings) -> None:
    """A pause: areas, times and rates are those of the clock, not of the frames."""
    assert study.dce is not None
    kept = np.r_[0:16, 32:40]  # 90 s and 192 s follow each other
    dce = replace(study.dce, frames=study.dce.frames[kept], times=study.dce.times[kept])
    whole, found = extract(study, settings), extract(replace(study, dce=dce), settings)
    frames = replace(dce, times=np.arange(len(kept)) * 6.0)
    wrong = extract(replace(study, dce=frames), settings)
    assert not found.failures
    assert (
        abs(wrong.rows["dce_brix_kep_median"] / whole.rows["dce_brix_kep_median"] - 1).min() > 0.3
    )
    for name, within in (
        ("dce_tofts_ktrans_median", 0.15),
        ("dce_brix_kep_median", 0.15),
        ("dce_semi_relative_enhancement_median", 0.10),
    ):
        np.testing.assert_allclose(found.rows[name], whole.rows[name], rtol=within, err_msg=name)
