"""Redrawn regions, and what is stable under them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, PipelineSettings
from cad.mri.features.robustness import (
    Perturbation,
    icc,
    perturbed_features,
    redraw,
    stability,
    stable_features,
)
from cad.mri.features.table import extract
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

# Shrout & Fleiss 1979, table 2: six targets, four judges; ICC(1,1) = .17, interval -.13 to .72.
SHROUT_FLEISS = np.array(
    [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float
)


def block() -> Volume:
    array = np.zeros((7, 30, 30), bool)
    array[2:5, 10:20, 12:22] = True
    return Volume(array, (0.6, 0.6, 3.0), (0.0, 0.0, 0.0), np.eye(3))


def test_icc_of_the_published_table() -> None:
    value, low, high = icc(SHROUT_FLEISS)
    assert round(value, 2) == 0.17
    assert round(low, 2) == -0.13
    assert round(high, 2) == 0.72


def test_icc_of_limiting_cases() -> None:
    assert icc(np.full((5, 3), 2.5)) == (0.0, 0.0, 0.0)
    assert icc(np.repeat([[1.0], [2.0], [4.0]], 4, axis=1)) == (1.0, 1.0, 1.0)
    value, low, high = icc(np.random.default_rng(0).normal(size=(400, 5)))
    assert low < 0 < high
    assert abs(value) < 0.1
    np.testing.assert_allclose(icc(3 * SHROUT_FLEISS - 7), icc(SHROUT_FLEISS), rtol=1e-12)
    with pytest.raises(CadError, match="2 regions"):
        icc(SHROUT_FLEISS[:1])


def test_interval_covers_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        values = rng.normal(size=(20, 1)) * np.sqrt(0.8) + rng.normal(size=(20, 4)) * np.sqrt(0.2)
        _, low, high = icc(values)
        covered += low <= 0.8 <= high
    assert 0.92 <= covered / 400 <= 0.98


def redrawn(**sizes: float) -> list[Volume]:
    nothing = {"shift_mm": 0.0, "growth_mm": 0.0, "noise_mm": 0.0}
    rng = np.random.default_rng(11)
    return [redraw(block(), Perturbation(**{**nothing, **sizes}), rng) for _ in range(12)]  # type: ignore[arg-type]


def centre(mask: Volume) -> np.ndarray:
    return mask.index_to_patient(np.array(ndimage.center_of_mass(mask.array))[::-1])


def test_nothing_perturbed_is_the_region_itself() -> None:
    for copy in redrawn():
        assert copy.array.sum() == block().array.sum()
        np.testing.assert_allclose(centre(copy), centre(block()))


def test_each_perturbation_does_what_it_says() -> None:
    size = block().array.sum()
    moved = np.array([centre(c) - centre(block()) for c in redrawn(shift_mm=1.5)])
    assert 0.7 < moved[:, :2].std() < 2.5
    assert np.abs(moved[:, 2]).max() < 1e-9
    grown = np.array([c.array.sum() for c in redrawn(growth_mm=0.8)])
    assert grown.min() < size < grown.max()
    rough = redrawn(noise_mm=0.6)
    assert all(0.5 * size < c.array.sum() < 1.8 * size for c in rough)
    assert len({c.array.tobytes() for c in rough}) == len(rough)


@pytest.fixture
def few() -> PipelineSettings:
    return PipelineSettings(
        name="t", features=FeatureSettings(modalities=("t2w", "adc"), families=("intensity",))
    )


def test_the_first_row_is_the_region_as_drawn(study: Study, few: PipelineSettings) -> None:
    table = perturbed_features(study, few, Perturbation(repeats=3))
    assert table.groupby("roi_id").size().tolist() == [4, 4]
    expected = extract(study, few).rows
    names = expected.columns[2:]
    drawn = table[table["repeat"] == 0].reset_index(drop=True)
    np.testing.assert_allclose(drawn[names], expected[names])
    again = perturbed_features(study, few, Perturbation(repeats=3))
    pd.testing.assert_frame_equal(table, again)
    other = perturbed_features(study, few, Perturbation(repeats=3, seed=1))
    assert not np.allclose(other[names], table[names])


def test_stable_features_look_at_the_given_patients_only() -> None:
    rng = np.random.default_rng(2)
    rows = []
    for patient in range(12):
        level = rng.normal()
        for repeat in range(5):
            noisy = rng.normal() if patient < 6 else level
            rows.append(
                {
                    "participant_id": f"sub-{patient}",
                    "roi_id": "1",
                    "repeat": repeat,
                    "steady": level + 0.05 * rng.normal(),
                    "noise": rng.normal(),
                    "steady_later": noisy,
                }
            )
    table = pd.DataFrame(rows).sample(frac=1, random_state=0)
    first = [f"sub-{p}" for p in range(6)]
    later = [f"sub-{p}" for p in range(6, 12)]
    assert stable_features(table, first) == ["steady"]
    assert stable_features(table, later) == ["steady", "steady_later"]
    found = stability(table).set_index("feature")
    assert found.loc["steady", "icc"] > 0.98
    assert (found["low"] <= found["icc"]).all()
    assert (found["icc"] <= found["high"]).all()
    with pytest.raises(CadError, match="no feature is stable"):
        stable_features(table[["participant_id", "roi_id", "repeat", "noise"]])
    with pytest.raises(CadError, match="same number of copies"):
        stability(table.iloc[:-1])


def test_a_region_outside_of_one_image_costs_that_image_only(
    study: Study, few: PipelineSettings
) -> None:
    adc = study.adc
    assert adc is not None
    far = replace(study, adc=replace(adc, origin=(900.0, 0.0, 0.0)))
    table = perturbed_features(far, few, Perturbation(repeats=1))
    assert {name.split("_")[0] for name in table.columns[3:]} == {"t2w"}
