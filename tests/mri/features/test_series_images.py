"""Gradients and co-occurrence of the dynamic series; Haralick's fourteenth feature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from cad.base.settings import FeatureSettings, PipelineSettings, TextureSettings
from cad.mri.columns import columns_of
from cad.mri.features.gradient import sobel_map
from cad.mri.features.histogram import discretise
from cad.mri.features.maximal_correlation import maximal_correlation, maximal_correlation_of
from cad.mri.features.measure import _sample
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.table import extract
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Dynamic, Volume

SHAPE = (5, 14, 16)
TIMES = np.arange(24) * 5.0
ARRIVAL, BASELINE = 20.0, 200.0


def series(scale: float = 1.0) -> Study:
    """A gland that brightens by a pattern of its own at 20 s, and fades from 90 s on."""
    rng = np.random.default_rng(4)
    pattern = 1 + rng.uniform(0.5, 1.5, SHAPE)
    rise = np.clip((TIMES - ARRIVAL) / 10.0, 0, 1) * np.clip(1 - (TIMES - 90) / 200, 0, 1)
    frames = BASELINE * (1 + rise[:, None, None, None] * (pattern - 1)) * scale
    grid = Volume(np.zeros(SHAPE, np.float32), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    inside = np.zeros(SHAPE, np.uint8)
    inside[1:4, 3:11, 3:12] = 1
    dce = Dynamic(frames.astype(np.float32), grid, TIMES, 0.004, 12.0)
    return Study("sub-1", "sub-1", dce=dce, roi_map=grid.with_array(inside), rois=[Roi("1", 1)])


def measured(study: Study, **features: object) -> dict[str, float]:
    chosen = {"modalities": ("dce",), "partial_voxels": "half", **features}
    settings = PipelineSettings.model_validate({"name": "s", "features": chosen})
    return dict(extract(study, settings).rows.iloc[0])


EVERY = {
    "families": ("intensity", "histogram", "gradient", "haralick", "maximal_correlation"),
    "dce_images": ("early", "relative_enhancement"),
}


def test_the_early_image_is_the_mean_of_the_first_minute_over_the_baseline() -> None:
    study = series()
    assert study.dce is not None
    assert study.roi_map is not None
    row = measured(study, **EVERY)
    inside = study.roi_map.array > 0
    # By hand: the frames of 25 to 80 s, whichever side of 20 s the arrival is found.
    frames = study.dce.frames
    chosen = [mean(frames, 20.0, 80.0), mean(frames, 15.0, 75.0), mean(frames, 22.0, 82.0)]
    values = [np.mean(image[inside]) / BASELINE for image in chosen]
    assert min(values) - 1e-6 <= row["dce_early_mean"] <= max(values) + 1e-6
    assert row["dce_early_sobel_mean"] > 0
    assert 0 < row["dce_early_maximal_correlation_coefficient"] < 1
    names = {n for n in row if n.startswith("dce_")}
    expected = {
        name
        for name, column in columns_of(
            FeatureSettings.model_validate({"modalities": ("dce",), **EVERY})
        ).items()
        if column.image == "dce"
    }
    assert names == expected


def mean(frames: np.ndarray, after: float, until: float) -> np.ndarray:
    chosen = (after < TIMES) & (until >= TIMES)
    return np.asarray(frames[chosen].mean(axis=0, dtype=float))


def test_the_scanners_gain_changes_nothing() -> None:
    plain = measured(series(), **EVERY)
    louder = measured(series(7.0), **EVERY)
    for name, value in plain.items():
        if name.startswith("dce_"):
            assert louder[name] == pytest.approx(value, rel=1e-3, abs=1e-6), name


def test_a_maps_gradient_is_that_of_the_map_over_the_whole_series() -> None:
    """The map is made beyond the region, so that its rim has a gradient, too."""
    study = series()
    assert study.dce is not None
    assert study.roi_map is not None
    row = measured(study, **EVERY)
    inside = study.roi_map.array > 0
    frames = study.dce.frames.astype(float)
    after = frames[4:].max(axis=0)
    relative = after / BASELINE - 1
    edges = sobel_map(relative, (2.0, 2.0, 3.0), inside)
    assert row["dce_relative_enhancement_sobel_mean"] == pytest.approx(
        float(np.nanmean(edges[inside])), rel=1e-3
    )
    assert "dce_relative_enhancement_intensity_mean" not in row


def test_off_unless_named_and_a_map_without_its_model_is_refused() -> None:
    assert not [n for n in columns_of(FeatureSettings()) if "sobel" in n and n.startswith("dce")]
    assert not [n for n in columns_of(FeatureSettings()) if "maximal_correlation" in n]
    with pytest.raises(ValidationError, match=r"perfusion\.models lacks patlak"):
        FeatureSettings(dce_images=("patlak_ktrans",))
    with pytest.raises(ValidationError, match="delay is not voxel"):
        FeatureSettings(dce_images=("input_delay",))
    made = FeatureSettings(dce_images=("tofts_ktrans",))
    column = columns_of(made)["dce_tofts_ktrans_sobel_mean"]
    assert (column.unit, column.family) == ("1/min/mm", "gradient")


def test_voxels_that_did_not_fit_have_no_edges() -> None:
    study = series()
    assert study.dce is not None
    frames = study.dce.frames.copy()
    frames[:, :, :, 6:] = BASELINE  # no contrast: no Tofts fit there
    row = measured(
        replace(study, dce=replace(study.dce, frames=frames)),
        families=("gradient", "kinetic"),
        dce_images=("tofts_ktrans",),
    )
    assert np.isfinite(row["dce_tofts_ktrans_sobel_mean"])
    whole = measured(study, families=("gradient",), dce_images=("tofts_ktrans",))
    # The step to the voxels without contrast would be the steepest edge of all.
    assert row["dce_tofts_ktrans_sobel_maximum"] < 2 * whole["dce_tofts_ktrans_sobel_maximum"]


@given(arrays(float, (5, 5), elements=st.integers(0, 9)))
@settings(max_examples=60, deadline=None)
def test_no_renaming_of_levels_correlates_more(counts: np.ndarray) -> None:
    """For any numbers of the levels, their correlation is at most the coefficient."""
    counts = counts + counts.T
    if not counts.any():
        return
    found = maximal_correlation(counts)
    assert -1e-9 <= found <= 1
    order = np.random.default_rng(0).permutation(5)
    assert maximal_correlation(counts[np.ix_(order, order)]) == pytest.approx(found, abs=1e-9)
    share = counts / counts.sum()
    side = share.sum(axis=1)
    for seed in range(5):
        value = np.random.default_rng(seed).normal(size=5)
        value = value - side @ value
        spread = side @ value**2
        if spread > 1e-9:
            assert abs(value @ share @ value) / spread <= found + 1e-9


def test_by_hand() -> None:
    assert maximal_correlation(np.array([[3.0, 1.0], [1.0, 3.0]])) == pytest.approx(0.5)
    assert maximal_correlation(np.array([[4.0]])) == 1.0
    # Two pairs of levels that never meet: one renaming tells them apart for certain.
    apart = np.zeros((4, 4))
    apart[:2, :2] = apart[2:, 2:] = 1.0
    assert maximal_correlation(apart) == pytest.approx(1.0)


@pytest.mark.reference
@pytest.mark.parametrize("bins", [8, 16])
def test_it_is_pyradiomics_mcc(bins: int, counted) -> None:  # type: ignore[no-untyped-def]
    glcm = pytest.importorskip("radiomics.glcm")
    rng = np.random.default_rng(bins)
    image = rng.normal(100, 20, (6, 12, 13))
    mask = np.zeros(image.shape, np.uint8)
    mask[1:5, 2:10, 3:11] = 1
    mask[2, 5, 5] = 0
    grid = Volume(image, (1.0, 1.0, 2.0), (0.0, 0.0, 0.0), np.eye(3))
    theirs = glcm.RadiomicsGLCM(grid.to_sitk(), grid.with_array(mask).to_sitk(), binCount=bins)
    theirs.enableFeatureByName("MCC")
    region = RegionVoxels.from_masks([mask > 0])
    texture = TextureSettings(bins=bins, aggregation="averaged")
    found = maximal_correlation_of(_sample(image, region, texture))["coefficient"][0]
    assert found == pytest.approx(float(theirs.execute()["MCC"]), rel=1e-6)
    counted(1, "pyradiomics' MCC")


def test_regions_without_a_pair_and_of_one_level() -> None:
    image = np.zeros((3, 5, 5))
    image[1] = np.arange(25).reshape(5, 5)
    lone = np.zeros(image.shape, bool)
    lone[1, 0, 0] = lone[1, 4, 4] = True
    flat = np.zeros(image.shape, bool)
    flat[0, 1:4, 1:4] = True
    for dimension in ("slice", "2D", "3D"):
        regions = RegionVoxels.from_masks([lone, flat])
        texture = TextureSettings(bins=4, dimension=dimension)
        found = maximal_correlation_of(_sample(image, regions, texture))["coefficient"]
        assert np.isnan(found[0])
        assert found[1] == 1.0
    levels, _ = discretise(image[flat], np.array([0, 9]), 4, None)
    assert len(set(levels.tolist())) == 1
