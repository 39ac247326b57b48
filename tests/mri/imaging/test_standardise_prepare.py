"""Image settings are carried out and noted, and leave the study that was read alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.ndimage import gaussian_filter

from cad.base.settings import ImageSettings
from cad.mri.imaging.prepare import prepare_study
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume


def image(seed: int = 0) -> Volume:
    smooth = gaussian_filter(np.random.default_rng(seed).normal(size=(16, 40, 40)), (1, 3, 3))
    array = (100 + 3000 * np.abs(smooth)).astype(np.float32)
    return Volume(array, (2.0, 2.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))


def test_adc_is_fitted_only_where_there_is_no_map() -> None:
    low, high = image(), image()
    high = high.with_array(low.array * np.float32(np.exp(-0.8)))
    study = Study("sub-01", "sub-01", diffusion=[(0.0, low), (800.0, high)])
    found, done = prepare_study(study, ImageSettings())
    assert done == []
    assert found.adc is not None
    np.testing.assert_allclose(found.adc.array, 1000, rtol=1e-3)
    assert study.adc is None
    assert study.notes == []
    kept, _ = prepare_study(replace(study, adc=low), ImageSettings())
    assert kept.adc is low
    alone, _ = prepare_study(replace(study, diffusion=study.diffusion[:1]), ImageSettings())
    assert alone.adc is None
    assert "two different b-values" in alone.notes[0]


def test_registration_when_asked_for() -> None:
    fixed = image()
    moved = replace(fixed, origin=(3.0, -2.0, 3.0))
    study = Study("sub-01", "sub-01", t2w=fixed, adc=moved)
    found, done = prepare_study(study, ImageSettings(registration="rigid"))
    assert found.adc is not None
    np.testing.assert_allclose(found.adc.origin, (0.0, 0.0, 0.0), atol=0.5)
    assert done[0].after > done[0].before
    without, none = prepare_study(replace(study, t2w=None), ImageSettings(registration="rigid"))
    assert none == []
    assert "no T2 image" in without.notes[-1]
