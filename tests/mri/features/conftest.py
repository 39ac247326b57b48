"""A small study with known tissue: enough for every family of features."""

from __future__ import annotations

import numpy as np
import pytest

from cad.base.settings import PipelineSettings
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Dynamic, Volume


def make_volume(array: np.ndarray, spacing: tuple[float, float, float]) -> Volume:
    """A volume whose middle lies at the scanner's centre."""
    size = np.array(array.shape[::-1])
    origin = -(size - 1) * np.array(spacing) / 2
    return Volume(array, spacing, tuple(map(float, origin)), np.eye(3))


@pytest.fixture
def study() -> Study:
    """T2 at .6 x .6 x 3 mm, ADC at 1.8 x 1.8 x 3 mm, DCE at 1.5 x 1.5 x 3 mm; two regions."""
    rng = np.random.default_rng(7)
    t2w = make_volume(rng.normal(300, 40, (8, 60, 60)).astype(np.float32), (0.6, 0.6, 3.0))
    adc = make_volume(rng.normal(1200, 150, (8, 20, 20)).astype(np.float32), (1.8, 1.8, 3.0))
    labels = np.zeros(t2w.shape, np.uint8)
    labels[3:6, 15:30, 15:30] = 1
    labels[2:5, 35:48, 33:48] = 2
    times = np.arange(40) * 6.0
    grid = make_volume(np.zeros((8, 24, 24), np.float32), (1.5, 1.5, 3.0))
    rise = np.clip(times - 36.0, 0, None)
    curve = 1.0 + 1.2 * (1 - np.exp(-rise / 40.0)) * np.exp(-rise / 900.0)
    frames = 200.0 * curve[:, None, None, None] * rng.uniform(0.9, 1.1, grid.shape)
    frames = (frames + rng.normal(0, 1.0, frames.shape)).astype(np.float32)
    dce = Dynamic(frames, grid.with_array(frames[0]), times, 0.004, 12.0)
    return Study(
        "sub-A",
        "sub-A",
        t2w=t2w,
        adc=adc,
        dce=dce,
        roi_map=t2w.with_array(labels),
        rois=[Roi("one", 1, "PZ"), Roi("two", 2, "TZ")],
    )


@pytest.fixture
def settings() -> PipelineSettings:
    """The defaults."""
    return PipelineSettings(name="test")
