"""The high-b image is measured like any other: a row of two tables, and these features."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cad.base.settings import ImageSettings, PipelineSettings, parse_settings
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.mri.features.snapshot import snapshot
from cad.mri.features.table import extract
from cad.mri.imaging.prepare import prepare_study
from cad.mri.imaging.study import Protocol, Study
from cad.run.stages.study import read_study_of


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """One simulated patient; the high-b image is what a decay with their ADC leaves."""
    root = tmp_path_factory.mktemp("high-b") / "cohort"
    simulate(root, patients=1, seed=2, light=True)
    found = read_study_of(read_cohort(root).studies()[0])
    assert found.adc is not None
    signal = 800.0 * np.exp(-1400.0 * found.adc.array.astype(float) * 1e-6)
    return replace(found, hbv=found.adc.with_array(signal))


def test_intensity_follows_the_decay(study: Study) -> None:
    settings = parse_settings(
        PipelineSettings,
        {"name": "b", "features": {"modalities": ["adc", "hbv"], "families": ["intensity"]}},
    )
    rows = extract(study, settings).rows
    assert {"hbv_intensity_mean", "hbv_intensity_p10"} <= set(rows.columns)
    # A monotone map turns the order of values around: its median is that of the median ADC.
    expected = 800.0 * np.exp(-1400.0 * rows["adc_intensity_median"].to_numpy() * 1e-6)
    np.testing.assert_allclose(rows["hbv_intensity_median"], expected, rtol=0.02)
    assert (rows["hbv_intensity_maximum"] > rows["hbv_intensity_minimum"]).all()


def test_a_study_without_it_lacks_only_its_columns(study: Study, tmp_path: Path) -> None:
    settings = parse_settings(
        PipelineSettings,
        {"name": "b", "features": {"modalities": ["adc", "hbv", "dce"], "families": ["intensity"]}},
    )
    lacking = replace(study, hbv=None, dce=None)
    found = extract(lacking, settings)
    assert not [c for c in found.rows.columns if c.startswith(("hbv_", "dce_"))]
    # A page names what every study should have by itself; only the optional image needs a note.
    shown = json.loads(str(snapshot(lacking, found)["meta"]))
    assert shown["missing"] == ["dce"]
    assert shown["notes"] == ["no high-b diffusion image: its features are missing"]


def test_a_page_is_told_the_b_value_and_what_frames_its_pictures(study: Study) -> None:
    settings = parse_settings(PipelineSettings, {"name": "b", "features": {"modalities": ["adc"]}})
    found = extract(study, settings)

    def told(shown: Study) -> Any:
        return json.loads(str(snapshot(shown, found)["meta"]))["b_value"]

    assert study.diffusion
    highest = max(b_value for b_value, _ in study.diffusion)
    assert told(replace(study, hbv=None)) == highest
    assert told(study) == max(highest, 1400.0)  # made from the series
    assert told(replace(study, hbv=None, diffusion=[])) is None
    stated = {**study.protocols, "hbv": Protocol(b_value=2000.0)}
    assert told(replace(study, protocols=stated)) == 2000.0
    arrays = snapshot(study, found)
    assert arrays["frame"].shape == arrays["roi_map"].shape
    gland = study.gland
    assert gland is not None
    assert arrays["frame"].sum() == pytest.approx(gland.array.sum(), rel=0.02)
    middle = snapshot(replace(study, gland=None), found)["frame"]
    assert middle.any(axis=(1, 2)).all()


def test_it_is_carried_on_from_the_decay_when_asked_for(study: Study) -> None:
    assert study.diffusion
    images = ImageSettings()
    without, _ = prepare_study(replace(study, hbv=None), images)
    assert without.hbv is None  # nobody asked
    made, _ = prepare_study(replace(study, hbv=None), images, ("adc", "hbv"))
    assert made.hbv is not None
    assert made.adc is not None
    low_b, low = min(study.diffusion, key=lambda pair: pair[0])
    inside = (made.adc.array > 500) & (low.array > 50)
    expected = low.array[inside] * np.exp(-(1400.0 - low_b) * made.adc.array[inside] * 1e-6)
    ratio = made.hbv.array[inside] / expected
    assert abs(np.median(ratio) - 1.0) < 0.05
