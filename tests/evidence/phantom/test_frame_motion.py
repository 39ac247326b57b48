"""Frames of a dynamic series that moved are brought back, and Ktrans with them."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, shift

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, ImageSettings, PerfusionSettings, PipelineSettings
from cad.evidence.phantom import acquisition, scanner
from cad.evidence.phantom.protocols import SAMPLE
from cad.evidence.phantom.sample import SEED
from cad.evidence.phantom.simulator import Patient, make_patient
from cad.mri.features.provenance import summary
from cad.mri.features.table import extract
from cad.mri.imaging.frame_motion import still_frames
from cad.mri.imaging.prepare import prepare_study
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Dynamic, Volume

# mm along x, y: still, then another place, then a third.
PATH = np.array([[0.0, 0.0]] * 3 + [[3.0, -2.0]] * 3 + [[0.0, 4.0]] * 3)
TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
ON = ImageSettings(frame_motion="translation")


def series(path: np.ndarray, direction: np.ndarray) -> Study:
    """A structure whose one half brightens, moved by ``path``."""
    rng = np.random.default_rng(1)
    still = gaussian_filter(rng.normal(size=(6, 44, 44)), (1.0, 2.5, 2.5))
    still = 200 + 100 * still / still.std()
    late = still.copy()
    late[:, :, 22:] += 80
    frames = [
        shift(late if number > 2 else still, (0.0, y / 2.0, x / 2.0), order=3, mode="nearest")
        + rng.normal(scale=2.0, size=still.shape)
        for number, (x, y) in enumerate(path)
    ]
    grid = Volume(frames[0], (2.0, 2.0, 4.0), (5.0, 6.0, 7.0), direction)
    return Study("sub-01", "sub-01", dce=Dynamic(np.stack(frames), grid, np.arange(9) * 5.0))


@pytest.mark.parametrize("direction", [np.eye(3), TURN])
def test_known_shifts_are_taken_back(direction: np.ndarray) -> None:
    study = series(PATH, direction)
    assert study.dce is not None
    found, shift_mm, note = still_frames(study)
    np.testing.assert_allclose(shift_mm[:, :2], -PATH, atol=0.4)
    assert not shift_mm[:, 2].any()
    assert "6 of 9 frames" in note
    before, after = re.findall(r"information .* (\d+\.\d+) to (\d+\.\d+)", note)[0]
    assert float(after) > float(before)
    inner = (slice(None), slice(8, 36), slice(8, 36))
    truth = series(PATH * 0, direction).dce
    assert truth is not None
    before = np.abs(study.dce.frames[7][inner] - truth.frames[7][inner]).mean()
    assert np.abs(found.frames[7][inner] - truth.frames[7][inner]).mean() < before / 4
    np.testing.assert_array_equal(found.frames[:3], study.dce.frames[:3].astype(np.float32))
    assert found.grid.origin == study.dce.grid.origin


def test_a_still_series_keeps_every_value() -> None:
    study = series(PATH * 0, np.eye(3))
    found, shift_mm, note = still_frames(study)
    assert found is study.dce
    assert not shift_mm.any()
    assert note == "no motion found between the frames of the dynamic series"
    with pytest.raises(CadError, match=r"sub-01.*no dynamic series"):
        still_frames(replace(study, dce=None))


def test_it_is_done_only_where_asked_and_a_failure_is_said() -> None:
    study = series(PATH, np.eye(3))
    kept, _ = prepare_study(study, ImageSettings())
    assert kept.dce is study.dce
    assert kept.frames_moved_mm is None
    assert study.dce is not None
    flat = replace(study.dce, frames=np.full_like(study.dce.frames, 7.0))
    left, _ = prepare_study(replace(study, dce=flat), ON)
    assert left.dce is flat
    assert any(n.startswith("frames of the dynamic series not moved: ") for n in left.notes)


def patient(path: np.ndarray) -> Patient:
    """Patient 2 of the sample, his series moved by ``path`` (mm along x, y of each frame)."""
    with patch.object(scanner, "draw_motion", lambda rng, times: path[: len(times)]):
        return make_patient(SEED, 1, SAMPLE, even=True)


def ktrans(study: Study, images: ImageSettings) -> tuple[np.ndarray, Study]:
    perfusion = PerfusionSettings(arterial_input="parker", models=("extended_tofts",))
    features = FeatureSettings(modalities=("dce",), families=("kinetic",), perfusion=perfusion)
    prepared, _ = prepare_study(study, images)
    settings = PipelineSettings(name="motion", images=images, features=features)
    found = extract(prepared, settings)
    said = summary(found.provenance)
    assert "dce_moved" not in said  # of the patient, no limit of a model
    if images.frame_motion != "none":
        assert found.provenance["provenance_dce_moved"].iloc[0] == prepared.frames_moved_mm
    return found.rows["dce_extended_tofts_ktrans_median"].to_numpy(), prepared


@pytest.mark.slow
def test_ktrans_is_nearer_to_the_still_patients() -> None:
    """A jump of 5 mm while the bolus passes; the same man and noise without it is the reference."""
    assert acquisition.JUMP_SHARE > 0  # the simulator moves men by itself; here the path is given
    path = np.zeros((100, 2))
    path[5:] = (3.0, 4.0)
    moved = patient(path).study
    reference, _ = ktrans(patient(path * 0).study, ImageSettings())
    wrong, _ = ktrans(moved, ImageSettings())
    right, prepared = ktrans(moved, ON)
    assert prepared.frames_moved_mm == pytest.approx(5.0, abs=1.0)
    before = np.nanmedian(np.abs(np.log(wrong / reference)))
    after = np.nanmedian(np.abs(np.log(right / reference)))
    print(f"median error of Ktrans: {before:.3f} before, {after:.3f} after")
    assert after < before / 1.5
