"""Features of a region under several outlines are those of the region with that outline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import FeatureSettings, PipelineSettings
from cad.mri.features.robustness import Perturbation, copies_of, masks_features
from cad.mri.features.table import extract
from cad.mri.imaging.study import Roi, Study
from tests.mri.features.conftest import make_volume


@pytest.fixture
def every() -> PipelineSettings:
    """Every family."""
    families = (
        "intensity",
        "histogram",
        "gradient",
        "haralick",
        "semiquantitative",
        "kinetic",
        "size",
        "position",
    )
    return PipelineSettings(name="t", features=FeatureSettings(families=families))


def with_gland(study: Study) -> Study:
    assert study.roi_map is not None
    gland = np.zeros(study.roi_map.shape, bool)
    gland[1:7, 8:54, 8:54] = True
    return replace(study, gland=study.roi_map.with_array(gland))


def test_a_regions_own_outline_gives_its_own_features(
    study: Study, every: PipelineSettings
) -> None:
    for given in (study, with_gland(study)):
        masks = [given.roi_map.with_array(given.roi_map.array == k) for k in (1, 2)]
        found = masks_features(given, every, masks)
        expected = extract(given, every).rows
        names = list(expected.columns[2:])
        assert set(names) == set(found.columns)
        np.testing.assert_allclose(found[names], expected[names], rtol=1e-9, atol=1e-12)


def test_a_copy_has_the_features_of_a_study_whose_region_it_is(
    study: Study, every: PipelineSettings
) -> None:
    """The other region is gone from that study: copies do not depend on it."""
    given = with_gland(study)
    copies = copies_of(given, given.rois[0], Perturbation(repeats=2))
    found = masks_features(given, every, copies)
    for number in (1, 2):
        whole = np.zeros(given.roi_map.shape, np.uint8)
        mask = copies[number]
        at = np.argwhere(mask.array)[:, ::-1].astype(float)
        index = np.rint(given.roi_map.patient_to_index(mask.index_to_patient(at))).astype(int)
        whole[tuple(index[:, ::-1].T)] = 1
        alone = replace(given, roi_map=given.roi_map.with_array(whole), rois=[Roi("one", 1)])
        expected = extract(alone, every).rows
        names = list(expected.columns[2:])
        np.testing.assert_allclose(
            found.loc[[number], names].to_numpy(), expected[names].to_numpy(), rtol=1e-9, atol=1e-12
        )


def test_a_region_in_a_constant_surrounding_has_the_same_values_under_every_outline(
    study: Study,
) -> None:
    """By hand: every voxel that a copy can reach is 900, so is every statistic of place."""
    array = study.adc.array.copy()
    array[:, 2:14, 2:14] = 900.0
    flat = replace(study, adc=study.adc.with_array(array))
    chosen = PipelineSettings(
        name="t", features=FeatureSettings(modalities=("adc",), families=("intensity",))
    )
    found = masks_features(flat, chosen, copies_of(flat, flat.rois[0], Perturbation(repeats=5)))
    for name in ("mean", "median", "p10", "p90"):
        np.testing.assert_allclose(found[f"adc_intensity_{name}"], 900.0)
    for name in ("variance", "iqr", "mad"):
        np.testing.assert_allclose(found[f"adc_intensity_{name}"], 0.0, atol=1e-6)


def test_an_outline_with_nothing_to_measure_has_no_values(
    study: Study, every: PipelineSettings
) -> None:
    empty = study.roi_map.with_array(np.zeros(study.roi_map.shape, bool))
    beside = make_volume(np.ones((3, 5, 5), bool), (0.6, 0.6, 3.0))
    beside = replace(beside, origin=(500.0, 0.0, 0.0))
    own = study.roi_map.with_array(study.roi_map.array == 1)
    found = masks_features(study, every, [own, empty, beside])
    assert found.loc[0].notna().any()
    assert found.loc[[1, 2]].isna().all(axis=None)
    nothing = masks_features(study, every, [empty, beside])
    pd.testing.assert_frame_equal(nothing, pd.DataFrame(index=range(2)))
