"""IBSI's configurations beyond the defaults, counted by hand (beside MIRP: test_ibsi)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cad.base.settings import FeatureSettings, PipelineSettings, TextureSettings
from cad.mri.features.measure import resegmented
from cad.mri.features.table import extract
from cad.mri.imaging.drawn import fill
from cad.mri.imaging.interpolate import interpolate
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume


def volume(array: np.ndarray, spacing: tuple[float, float, float]) -> Volume:
    return Volume(array, spacing, (0.0, 0.0, 0.0), np.eye(3))


def test_outliers_are_each_regions_own_and_taken_before_the_range() -> None:
    """Nine zeros and a ten: mean 1, standard deviation 3, so the ten lies three of them out."""
    values = np.array([0.0] * 9 + [10.0] + [0.0, 10.0])
    start = np.array([0, 10, 12])
    kept = resegmented(values, start, TextureSettings(outliers=2.9))
    assert np.flatnonzero(np.isnan(kept)).tolist() == [9]
    assert not np.isnan(resegmented(values, start, TextureSettings(outliers=3.1))).any()
    # The range takes the zeros away, and the ten stays an outlier of the region as drawn.
    both = resegmented(values, start, TextureSettings(outliers=2.9, range=(5, 20)))
    assert np.flatnonzero(np.isfinite(both)).tolist() == [11]


def test_half_a_voxel_makes_a_whole_one() -> None:
    """Six voxels of 1 mm in a row, on voxels of 2 mm whose centres lie between theirs."""
    mask = volume(np.zeros((1, 1, 12), bool), (1.0, 1.0, 1.0))
    mask.array[0, 0, 3:8] = True
    grid = replace(volume(np.zeros((1, 1, 6)), (2.0, 1.0, 1.0)), origin=(0.5, 0.0, 0.0))
    assert fill(mask, grid).share[0, 0].tolist() == [0, 0.5, 1, 1, 0, 0]
    whole = fill(mask, grid, half=True)
    assert whole.share[0, 0].tolist() == [0, 1, 1, 1, 0, 0]
    assert whole.purity == 1.0


def test_splines_follow_what_lines_cut_and_whole_numbers_are_whole() -> None:
    x = np.arange(40)
    wave = volume(np.tile(100 * np.sin(x / 3), (5, 5, 1)), (1.0, 1.0, 1.0))
    truth = 100 * np.sin((np.arange(80) / 2 - 0.25) / 3)
    inner = slice(20, 60)
    linear = interpolate(wave, (0.5, 0.0, 0.0)).array[2, 2]
    cubic = interpolate(wave, (0.5, 0.0, 0.0), "cubic").array[2, 2]
    assert np.abs(cubic - truth)[inner].max() < 0.1 * np.abs(linear - truth)[inner].max()
    rounded = interpolate(wave, (0.5, 0.0, 0.0), "cubic", whole=True).array[2, 2]
    np.testing.assert_array_equal(rounded[inner], np.rint(cubic[inner]))


def test_slices_on_their_own_are_a_setting(study: Study) -> None:
    """Averaged over slices; in a region of one slice that is the same as slices merged."""

    def dependence(found: Study, dimension: str) -> float:
        texture = TextureSettings(dimension=dimension)  # type: ignore[arg-type]
        features = FeatureSettings(
            modalities=("t2w",), families=("haralick",), texture=texture, partial_voxels="half"
        )
        rows = extract(found, PipelineSettings(name="slices", features=features)).rows
        return float(rows["t2w_haralick_information_correlation_1"].iloc[0])

    assert dependence(study, "slice") != pytest.approx(dependence(study, "2D"), rel=1e-6)
    assert study.roi_map is not None
    single = study.roi_map.array.copy()
    single[:3], single[4:] = 0, 0
    one = replace(study, roi_map=study.roi_map.with_array(single))
    assert dependence(one, "slice") == pytest.approx(dependence(one, "2D"), rel=1e-12)
