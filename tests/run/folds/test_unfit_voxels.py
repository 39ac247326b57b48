"""Kinetic statistics leave out the voxels whose fit failed, and say so."""

from __future__ import annotations

import numpy as np
import pytest

from cad.base.settings import FeatureSettings
from cad.mri.features.images import Prepared
from cad.mri.features.measure import measure_regions
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.table import _unfit_notes
from cad.mri.imaging.study import Roi
from cad.mri.imaging.volume import Volume


@pytest.fixture
def prepared() -> Prepared:
    grid = Volume(np.zeros((1, 4, 6)), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    ktrans = np.arange(24, dtype=float).reshape(1, 4, 6)
    failed = np.zeros((1, 4, 6))
    failed[0, 0, :2] = 1  # two of the first region's twelve voxels
    failed[0, 2:, :5] = 1  # ten of the second's: two remain, which is too few
    maps = {
        "wash_in": ktrans,
        "tofts_ktrans": ktrans,
        "tofts_r2": ktrans,
        "tofts_did_not_fit": failed,
        "extended_tofts_ktrans": ktrans,
    }
    return Prepared("dce", grid, maps)


@pytest.fixture
def regions() -> RegionVoxels:
    upper = np.zeros((1, 4, 6), bool)
    upper[0, :2] = True
    return RegionVoxels.from_masks([upper, ~upper])


def test_counted_by_hand(prepared: Prepared, regions: RegionVoxels) -> None:
    found = measure_regions(prepared, regions, FeatureSettings())
    assert found["dce_tofts_ktrans_mean"][0] == np.arange(2, 12).mean()
    assert found["dce_tofts_ktrans_minimum"][0] == 2
    assert np.isnan(found["dce_tofts_ktrans_mean"][1])
    # Another model's flag, and what is no kinetic parameter, take no part.
    np.testing.assert_array_equal(found["dce_extended_tofts_ktrans_mean"], [5.5, 17.5])
    np.testing.assert_array_equal(found["dce_semi_wash_in_mean"], [5.5, 17.5])


def test_fit_quality_is_of_all_voxels(prepared: Prepared, regions: RegionVoxels) -> None:
    found = measure_regions(prepared, regions, FeatureSettings())
    np.testing.assert_allclose(found["dce_tofts_did_not_fit_mean"], [2 / 12, 10 / 12])
    np.testing.assert_array_equal(found["dce_tofts_r2_median"], [5.5, 17.5])


def test_the_note_counts_them(prepared: Prepared, regions: RegionVoxels) -> None:
    notes = _unfit_notes(prepared, regions, [Roi("L1", 1, "PZ"), Roi("L2", 2, "TZ")])
    assert notes == [
        "tofts: voxels that did not fit are left out of the statistics of ROI "
        "L1 (2 of 12), L2 (10 of 12)"
    ]
    prepared.maps["tofts_did_not_fit"][:] = 0
    assert _unfit_notes(prepared, regions, [Roi("L1", 1, "PZ"), Roi("L2", 2, "TZ")]) == []
