"""Nyul's scale belongs to the training patients: in every fold, in the model, in the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.folders.cohort import StudyRef, read_cohort
from cad.mri.features.table import extract
from cad.mri.features.unscaled import UnscaledT2
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.mri.imaging.standardise import NyulScale, landmarks, prepared_t2
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study
from cad.run.model.bundle import load_bundle, verify_bundle
from cad.run.model.fold_features import NYUL_NOTE, Preparation
from cad.run.model.state import dump_state

Pipeline = Callable[..., PipelineSettings]
Measured = Callable[..., Any]
SCALE = NyulScale(np.array([0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.75, 1.0]))


@pytest.fixture
def nyul(pipeline: Pipeline) -> PipelineSettings:
    return pipeline(images={"t2_standardisation": "nyul"})


def load(ref: StudyRef) -> Study:
    rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
    return read_study(ref.folder, ref.study_id, ref.participant_id, rois)


def other_t2(root: Path, patient: str) -> None:
    """The patient's T2 image with another histogram."""
    path = root / patient / "anat" / f"{patient}_T2w.nii.gz"
    image = read_volume(path)
    changed = 20 + np.sqrt(np.abs(image.array.astype(float))) * 11
    write_volume(path, image.with_array(changed.astype(np.float32)))


def test_the_kept_part_gives_the_features_of_the_files(
    small_cohort: Path, nyul: PipelineSettings
) -> None:
    for ref in read_cohort(small_cohort).studies()[:3]:
        study = load(ref)
        waiting, whole = extract(study, nyul), extract(study, nyul, SCALE)
        assert list(waiting.rows.columns) == list(whole.rows.columns)
        assert waiting.unscaled is not None
        again = UnscaledT2.from_arrays(waiting.unscaled.to_arrays())
        assert again is not None
        t2 = [c for c in whole.rows if c.startswith("t2w_")]
        assert len(t2) > 20
        assert waiting.rows[t2].isna().to_numpy().all()
        columns = again.columns(SCALE, nyul.features)
        assert list(columns) == t2
        for name in t2:
            np.testing.assert_array_equal(columns[name], whole.rows[name], err_msg=name)


def test_nothing_of_the_left_out_patient_reaches_his_fold(
    own_cohort: Path, nyul: PipelineSettings, measured: Measured, tmp_path: Path
) -> None:
    def states(out: Path) -> dict[str, dict[str, np.ndarray]]:
        run = measured(nyul, own_cohort, out)
        run.validate()
        assert run.judged.folds is not None
        assert not any(fold.error for fold in run.judged.folds.folds)
        return {fold.name: dump_state(fold.estimator)[1] for fold in run.judged.folds.folds}

    before = states(tmp_path / "before")
    other_t2(own_cohort, "sub-0002")
    after = states(tmp_path / "after")
    own = before["sub-0002"]
    assert own.keys() == after["sub-0002"].keys()
    for name, array in own.items():
        assert array.tobytes() == after["sub-0002"][name].tobytes(), name
    for name in before.keys() - {"sub-0002"}:  # his image is in every other fold's scale
        assert any(before[name][k].tobytes() != after[name][k].tobytes() for k in before[name]), (
            name
        )


def test_a_fold_has_the_scale_of_its_training_patients(
    small_cohort: Path, nyul: PipelineSettings, measured: Measured, tmp_path: Path
) -> None:
    run = measured(nyul, small_cohort, tmp_path)
    source = run.source
    rows = np.flatnonzero(run.table.groups != "sub-0003")
    others = [
        landmarks(prepared_t2(load(ref), nyul.images))
        for ref in read_cohort(small_cohort).studies()
        if ref.participant_id != "sub-0003"
    ]
    expected = NyulScale.fit(np.array(others))
    found = source.fit(rows).scale
    assert found is not None
    np.testing.assert_array_equal(found.landmarks, expected.landmarks)
    values = pd.DataFrame(source(rows), columns=run.table.X.columns)
    left_out = next(r for r in read_cohort(small_cohort).studies() if r.study_id == "sub-0003")
    direct = extract(load(left_out), nyul, expected).rows
    names = list(direct.columns[2:])
    own = values.loc[run.table.groups == "sub-0003", names].to_numpy()
    np.testing.assert_array_equal(own, direct[names].to_numpy())


def test_the_stored_table_is_the_fit_on_all_and_says_so(
    small_cohort: Path, nyul: PipelineSettings, measured: Measured, tmp_path: Path
) -> None:
    run = measured(nyul, small_cohort, tmp_path)
    run.validate()
    run.write()
    stored = pd.read_parquet(tmp_path / "features.parquet")
    studies = [load(ref) for ref in read_cohort(small_cohort).studies()]
    scale = NyulScale.fit(np.array([landmarks(prepared_t2(s, nyul.images)) for s in studies]))
    direct = pd.concat([extract(s, nyul, scale).rows for s in studies], ignore_index=True)
    names = list(direct.columns[2:])
    np.testing.assert_array_equal(stored[names].to_numpy(), direct[names].to_numpy())
    assert NYUL_NOTE in json.loads((tmp_path / "run.json").read_text())["warnings"]


def test_scales_are_measured_once(
    small_cohort: Path, nyul: PipelineSettings, measured: Measured, tmp_path: Path
) -> None:
    run = measured(nyul, small_cohort, tmp_path)
    source = run.source
    rows = np.arange(10)
    everyone = set((tmp_path / "folds").iterdir())  # the stored table's scale
    first = source(rows)
    (kept,) = set((tmp_path / "folds").iterdir()) - everyone
    changed = np.load(kept) + 1
    np.save(kept, changed)  # what lies there is taken
    again = run.source(rows)
    t2 = [i for i, name in enumerate(run.table.X.columns) if name.startswith("t2w_")]
    np.testing.assert_allclose(again[:, t2], first[:, t2] + 1)
    run.source(np.arange(20))  # other patients, another scale
    assert len(set((tmp_path / "folds").iterdir()) - everyone) == 2


def test_a_model_takes_its_scale_along(
    small_cohort: Path,
    own_cohort: Path,
    nyul: PipelineSettings,
    measured: Measured,
    tmp_path: Path,
) -> None:
    run = measured(nyul, small_cohort, tmp_path / "validation", "train")
    run.validate()
    run.fit(tmp_path / "model")
    assert verify_bundle(tmp_path / "model") == 0
    bundle = load_bundle(tmp_path / "model")
    everyone = run.source.fit(np.flatnonzero(run.table.labelled)).scale
    scale = Preparation.of(bundle.metadata).scale
    assert scale is not None
    assert everyone is not None
    assert scale.landmarks.tobytes() == everyone.landmarks.tobytes()

    # New patients with other images: the scale stays that of the training patients.
    for patient in ("sub-0001", "sub-0002", "sub-0003"):
        other_t2(own_cohort, patient)
    new = measured(nyul, own_cohort, tmp_path / "new", "predict")
    new.score(bundle)
    direct = pd.concat(
        [extract(load(ref), nyul, scale).rows for ref in read_cohort(own_cohort).studies()],
        ignore_index=True,
    )
    names = list(direct.columns[2:])
    np.testing.assert_array_equal(new.features[names].to_numpy(), direct[names].to_numpy())
    rows = direct[bundle.features].to_numpy(float)
    expected = bundle.estimator.predict_proba(rows)[:, 1]
    np.testing.assert_array_equal(new.judged.results["belief"], expected)

    twice = measured(nyul, small_cohort, tmp_path / "twice", "train")
    other = replace(bundle, training=bundle.training.assign(participant_id="sub-X"))
    with pytest.raises(CadError, match="holds no images"):
        twice.extend(other)


def test_a_patient_without_t2_is_kept(
    own_cohort: Path, nyul: PipelineSettings, measured: Measured, tmp_path: Path
) -> None:
    (own_cohort / "sub-0004" / "anat" / "sub-0004_T2w.nii.gz").unlink()
    run = measured(nyul, own_cohort, tmp_path / "run")
    run.validate()
    t2 = [c for c in run.features if c.startswith("t2w_")]
    lacking = (run.features["participant_id"] == "sub-0004").to_numpy()
    assert run.features.loc[lacking, t2].isna().to_numpy().all()
    assert run.features.loc[~lacking, t2].notna().to_numpy().all()
    assert run.judged.results["probability"].notna().all()
