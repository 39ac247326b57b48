"""Size and position, named as such; texture that does not tell them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from scipy.spatial.distance import pdist

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, PipelineSettings
from cad.mri.columns import column_name, columns_of
from cad.mri.features.histogram import discretise
from cad.mri.features.size import largest_distance, size_and_position
from cad.mri.features.table import extract
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Volume


def of(mask: np.ndarray, spacing: tuple[float, float, float], **more: Volume) -> dict[str, float]:
    volume = Volume(mask.astype(np.uint8), spacing, (0.0, 0.0, 0.0), np.eye(3))
    study = Study("sub-1", "sub-1", roi_map=volume, rois=[Roi("1", 1)], **more)
    return {
        column_name("", part, name): float(values[0])
        for part, made in size_and_position(study, [1]).items()
        for name, values in made.items()
    }


@pytest.mark.reference
def test_the_digital_phantoms_shape(shared_data: Path) -> None:
    """Published values of the IBSI digital phantom: 592 and 556 mm3, 388 mm2, 13.1 mm."""
    image = sitk.ReadImage(str(shared_data / "ibsi" / "phantom_mask.nii.gz"))
    found = of(sitk.GetArrayFromImage(image) > 0, image.GetSpacing())
    assert found["size_volume"] == pytest.approx(0.592)
    assert found["size_mesh_volume"] == pytest.approx(0.556, abs=5e-4)
    assert found["size_surface"] == pytest.approx(388, abs=0.5)
    assert found["size_diameter"] == pytest.approx(13.1, abs=0.05)


def test_a_ball_has_its_own_size_and_place() -> None:
    z, y, x = np.meshgrid(*(np.arange(n) for n in (40, 60, 60)), indexing="ij")
    ball = (z * 1.0 - 20) ** 2 + (y * 0.5 - 10) ** 2 + (x * 0.5 - 20) ** 2 <= 36.0
    spacing = (0.5, 0.5, 1.0)
    gland = np.zeros(ball.shape, bool)
    gland[5:35, 6:54, 6:54] = True
    box = Volume(gland, spacing, (0.0, 0.0, 0.0), np.eye(3))
    found = of(ball, spacing, gland=box)
    assert found["size_volume"] == pytest.approx(4 / 3 * np.pi * 0.216, rel=0.03)
    # Marching cubes cut steps into corners: the surface of a voxel ball is about 8 % too large.
    assert found["size_surface"] == pytest.approx(4 * np.pi * 36, rel=0.12)
    assert found["size_diameter"] == pytest.approx(12.0, abs=1.0)
    assert found["size_slices"] == 13
    assert found["position_side"] == pytest.approx(abs(2 * (40 - 5.5) / 48 - 1))
    assert found["position_back"] == pytest.approx((20 - 5.5) / 48)
    assert found["position_head"] == pytest.approx((20 - 4.5) / 30)
    # The nearest side is at y = 6 (its voxel outside at 5): 15 voxels of 0.5 mm.
    assert found["position_capsule_distance"] == pytest.approx(7.0, abs=0.5)
    assert np.isnan(of(ball, spacing)["position_side"])


def test_size_is_measured_where_it_is_asked_for(study: Study) -> None:
    settings = PipelineSettings.model_validate(
        {"name": "t", "features": {"families": ["size", "intensity"], "modalities": ["t2w"]}}
    )
    rows = extract(study, settings).rows
    assert rows["size_slices"].tolist() == [3.0, 3.0]
    assert not [c for c in rows if c.startswith("position_")]
    assert rows["size_volume"].iloc[0] == pytest.approx(3 * 15 * 15 * 0.6 * 0.6 * 3.0 / 1000)
    columns = columns_of(FeatureSettings(counting=True, families=("size", "intensity", "haralick")))
    assert columns["adc_intensity_energy"].counts_voxels
    assert not columns["adc_haralick_contrast"].counts_voxels
    assert not [name for name in rows.columns[2:] if columns[name].counts_voxels]


def test_the_place_is_in_the_whole_gland_not_in_the_regions_box(study: Study) -> None:
    """Measuring cuts the label map to the regions; the gland reaches beyond."""
    assert study.roi_map is not None
    gland = np.zeros(study.roi_map.shape, bool)
    gland[1:7, 6:54, 6:54] = True
    whole = replace(study, gland=study.roi_map.with_array(gland))
    settings = PipelineSettings.model_validate(
        {"name": "t", "features": {"families": ["position", "intensity"], "modalities": ["t2w"]}}
    )
    row = extract(whole, settings).rows.iloc[0]
    assert row["position_head"] == pytest.approx((4 - 0.5) / 6)  # slices 3 to 5 of 1 to 6
    assert row["position_back"] == pytest.approx((22 - 5.5) / 48)
    # From slice 4 the nearest slice outside is 7: 9 mm, half of a slice nearer at the outline.
    assert row["position_capsule_distance"] == pytest.approx(9.0, abs=1.0)


def test_levels_of_fixed_width_begin_at_the_range(study: Study) -> None:
    """IBSI: level = floor((v - lower bound) / width) + 1; what lies outside does not count."""
    values, start = np.array([1.0, 120.9, 121.0, 999.0]), np.array([0, 4])
    levels, n_levels = discretise(values, start, None, 120.0, 1.0)
    assert levels.tolist() == [1, 1, 2, 9]
    assert n_levels.tolist() == [9]
    assert study.adc is not None
    holes = study.adc.array.copy()
    holes[:, ::3, ::3] = 0.0  # "no value" on many scanners
    whole = extract(study, PipelineSettings(name="t")).rows
    study.adc = study.adc.with_array(holes)
    found = extract(study, PipelineSettings(name="t"))
    assert (found.rows["adc_intensity_minimum"] >= 1.0).all()
    near = found.rows["adc_intensity_mean"] / whole["adc_intensity_mean"]
    assert near.between(0.9, 1.1).all()
    assert (found.provenance["provenance_adc_valid"] < 1).all()


def test_a_width_for_another_unit_is_refused(study: Study) -> None:
    wrong = PipelineSettings.model_validate(
        {"name": "t", "features": {"texture_adc": {"bins": None, "bin_width": 0.1}}}
    )
    found = None
    with pytest.raises(CadError, match="texture_adc"):
        found = extract(study, wrong)
    assert found is None


@pytest.mark.parametrize("n", [2, 3, 199, 200, 201, 650])
@pytest.mark.parametrize("k", [2, 3])
def test_the_largest_distance_is_that_of_scipy(n: int, k: int) -> None:
    points = np.random.default_rng(n).normal(size=(n, k)) * 30
    assert largest_distance(points) == pytest.approx(pdist(points).max(), rel=1e-14)


def test_the_largest_distance_of_a_box() -> None:
    corners = np.array([[0, 0, 0], [3, 0, 0], [0, 4, 0], [3, 4, 12.0]])
    assert largest_distance(corners) == 13.0  # 3, 4, 12: counted by hand
