"""The interval of a probability over a region's outlines."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.base.reading import read_json
from cad.base.settings import PipelineSettings, parse_settings
from cad.folders.cohort import read_cohort
from cad.mri.features.robustness import Perturbation
from cad.mri.imaging.nifti import read_dynamic, read_volume, write_dynamic, write_volume
from cad.mri.imaging.study_files import image_path, reader_outline_path
from cad.mri.imaging.volume import Volume
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle
from cad.run.pipeline import predict_cohort
from cad.run.reports.plots import probability_text
from cad.run.workflows.outline_spread import spread_of, spread_study

COLUMNS = ["outline_low", "outline_median", "outline_high", "outlines"]


def one_patient(first_patient: Path, root: Path, readers: tuple[str, ...] = ()) -> Path:
    """A copy of the cohort of one patient, with the outlines of these readers only."""
    shutil.copytree(first_patient, root)
    for path in root.rglob("*_desc-*"):
        if path.name.split("_desc-")[1].split("_")[0] not in readers:
            path.unlink()
    return root


def predicted(model: Path, root: Path, out: Path, outlines: int = 0) -> pd.DataFrame:
    assert predict_cohort([str(model)], root, out, HERE, outlines=outlines).failures == []
    return pd.read_csv(out / "probabilities.csv").set_index("roi_id")


def test_by_hand() -> None:
    own_and_ten = np.array([0.5, *np.arange(10) / 10])  # sorted: 0 .1 .2 .3 .4 .5 .5 .6 .7 .8 .9
    assert spread_of(own_and_ten) == (0.05, 0.5, pytest.approx(0.85), "10 redrawn")
    # The region's own value lies outside of the copies' quantiles and is taken in.
    assert spread_of(np.array([0.95, 0.1, 0.2, np.nan])) == (
        pytest.approx(0.11),
        0.2,
        0.95,
        "2 of 3 redrawn",
    )
    assert spread_of(np.array([0.4, 0.1, np.nan, 0.3]), ["a", "b", "c"]) == (0.1, 0.3, 0.4, "a, c")
    for nothing in ([0.4, np.nan], [np.nan, 0.4]):
        found = spread_of(np.array(nothing))
        assert np.isnan(found[:3]).all()


def test_the_interval_of_readers_is_that_of_predictions_with_each_readers_map(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    """Independent: every reader's label map in the place of the cohort's, predicted plainly."""
    root = one_patient(first_patient, tmp_path / "c", ("r2", "r3"))
    (ref,) = read_cohort(root).studies()
    found = predicted(model, root, tmp_path / "all", outlines=3)
    values = [found["belief"]]
    own = image_path(ref.folder, ref.study_id, "rois")
    for reader in ("r2", "r3"):
        shutil.copy(reader_outline_path(ref.folder, ref.study_id, reader), own)
        values.append(predicted(model, root, tmp_path / reader)["belief"])
    each = pd.concat(values, axis=1)
    assert each.std(axis=1).max() > 0.005  # readers draw differently
    np.testing.assert_allclose(found["outline_low"], each.min(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found["outline_median"], each.median(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found["outline_high"], each.max(axis=1), rtol=1e-9)
    assert set(found["outlines"]) == {"r2, r3"}


def test_redrawn_outlines_repeat_hold_the_belief_and_are_said_on_the_page(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    root = one_patient(first_patient, tmp_path / "c", ("r2",))  # one reader's are not several
    plain = predicted(model, root, tmp_path / "out")
    assert not set(COLUMNS) & set(plain.columns)
    page = next((tmp_path / "out" / "report").glob("sub-*.html"))
    assert "when the outline moves" not in page.read_text()
    found = predicted(model, root, tmp_path / "out", outlines=6)
    pd.testing.assert_frame_equal(found[list(plain.columns)], plain)
    assert found["outlines"].str.fullmatch(r"([3-5] of )?6 redrawn").all()  # small ones lose some
    assert "6 redrawn" in set(found["outlines"])
    assert (found["outline_low"] <= found["belief"]).all()
    assert (found["belief"] <= found["outline_high"]).all()
    assert (found["outline_low"] <= found["outline_median"]).all()
    assert (found["outline_median"] <= found["outline_high"]).all()
    assert (found["outline_high"] - found["outline_low"] > 0).any()
    text = page.read_text()
    low, high = (probability_text(found.iloc[0][name]) for name in COLUMNS[::2])
    assert f"between {low} and {high} when the outline moves by about a millimetre" in text
    again = predicted(model, root, tmp_path / "again", outlines=6)
    pd.testing.assert_frame_equal(again, found)  # the same draws


def test_outlines_that_do_not_move_give_the_belief_itself(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    root = one_patient(first_patient, tmp_path / "c")
    (ref,) = read_cohort(root).studies()
    plain = predicted(model, root, tmp_path / "out")["belief"]
    bundle = load_bundle(model)
    content = read_json(tmp_path / "out" / "run.json")["settings"]
    settings = parse_settings(PipelineSettings, content, "run.json")
    still = Perturbation(shift_mm=0.0, growth_mm=0.0, noise_mm=0.0, repeats=2)
    known = dict.fromkeys(plain.index.astype(str), bundle)
    found, failure = spread_study(ref, settings, known, still)
    assert failure is None
    for roi, probability in plain.items():
        spread = found[str(roi)]
        for value in spread[:3]:
            assert value == pytest.approx(probability, rel=1e-9)


def test_a_region_in_a_constant_surrounding_has_no_spread(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    """By hand: where every voxel that a copy can reach is the same, no outline says otherwise."""
    root = one_patient(first_patient, tmp_path / "c")
    (ref,) = read_cohort(root).studies()
    labels = read_volume(image_path(ref.folder, ref.study_id, "rois"))
    number = int(ref.rois["label"].iloc[0])
    middle = labels.index_to_patient(np.argwhere(labels.array == number).mean(axis=0)[::-1])
    still = [image_path(ref.folder, ref.study_id, kind) for kind in ("t2w", "adc")]
    for path in [*still, *ref.folder.glob("perf/*_VFA.nii.gz")]:
        volume = read_volume(path)
        array, near = volume.array.copy(), _near(volume, middle)
        array[near] = np.median(array[_near(volume, middle, 4.0)])
        write_volume(path, volume.with_array(array))
    path = image_path(ref.folder, ref.study_id, "dce")
    dynamic = read_dynamic(path)
    near = _near(dynamic.grid, middle)
    frames = dynamic.frames.copy()
    frames[:, near] = np.median(frames[:, _near(dynamic.grid, middle, 4.0)], axis=1)[:, None]
    sidecar = read_json(Path(str(path).replace(".nii.gz", ".json")))
    write_dynamic(path, replace(dynamic, frames=frames), sidecar)
    found = predicted(model, root, tmp_path / "out", outlines=6)
    first = found.loc[ref.rois["roi_id"].astype(found.index.dtype).iloc[0]]
    assert first["outline_low"] == pytest.approx(first["outline_high"], abs=1e-6)
    others = found.drop(index=first.name)
    assert (others["outline_high"] - others["outline_low"]).max() > 0.005


def _near(volume: Volume, point: np.ndarray, reach_mm: float = 20.0) -> np.ndarray:
    """Voxels so near to a point."""
    index = np.indices(volume.shape)[::-1].reshape(3, -1).T
    gap = np.linalg.norm(volume.index_to_patient(index) - point, axis=1)
    return (gap < reach_mm).reshape(volume.shape)
