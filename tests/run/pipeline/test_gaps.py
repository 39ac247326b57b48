"""One region's problem costs that region only, in a validation as in a prediction."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_failures, read_probabilities
from cad.mri.imaging.nifti import read_dynamic, read_volume, write_dynamic, write_volume
from cad.mri.imaging.study_files import image_path
from cad.run.execution.options import HERE
from cad.run.pipeline import check, predict_cohort, run_pipeline
from cad.run.workflows.check import model_settings

PATIENT = "sub-0001"


def beyond(root: Path, *, all_images: bool = False) -> str:
    """Cut an image, so that one region of the patient lies beside it; return the region."""
    rois = pd.read_csv(root / "rois.tsv", sep="\t", dtype=str)
    rois = rois[rois["participant_id"] == PATIENT]
    labels = read_volume(image_path(root / PATIENT, PATIENT, "rois"))
    adc_path = image_path(root / PATIENT, PATIENT, "adc")
    adc = read_volume(adc_path)
    far = {}
    for row in rois.itertuples():
        z, y, x = np.nonzero(labels.array == int(row.label))
        place = labels.index_to_patient(np.stack([x, y, z], axis=1).astype(float))
        far[row.roi_id] = adc.patient_to_index(place)[:, 0].max()
    roi = min(far, key=far.__getitem__)
    first = int(np.ceil(far[roi])) + 1
    if all_images:  # outlined nowhere: no voxel of the label map has its value
        label = int(rois.set_index("roi_id").loc[roi, "label"])
        write_volume(
            image_path(root / PATIENT, PATIENT, "rois"),
            labels.with_array(np.where(labels.array == label, 0, labels.array)),
        )
        return str(roi)
    origin = adc.index_to_patient(np.array([[first, 0, 0]], float))[0]
    cut = replace(adc, array=adc.array[:, :, first:].copy(), origin=tuple(origin.tolist()))
    write_volume(adc_path, cut)
    return str(roi)


def test_a_prediction_leaves_out_the_region_and_says_why(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    predict_cohort([str(model)], first_patient, tmp_path / "whole", HERE)
    root = shutil.copytree(first_patient, tmp_path / "cohort")
    roi = beyond(root)
    done = predict_cohort([str(model)], root, tmp_path / "run", HERE)
    (failure,) = done.failures
    assert (failure.study_id, failure.roi_id, failure.stage) == (PATIENT, roi, "score")
    assert "needs adc features and this region has none (adc: " in failure.reason
    assert "50% are needed" in failure.reason
    assert f"failed: {PATIENT} ROI {roi} (score)" in done.as_text()
    before = read_probabilities(RunFolder(tmp_path / "whole")).set_index("roi_id")["probability"]
    after = read_probabilities(RunFolder(tmp_path / "run")).set_index("roi_id")["probability"]
    assert np.isnan(after[roi])
    assert len(after) == len(before) > 2
    change = (after - before).drop(roi).abs()
    assert change.max() < 0.01  # some are cut at their edge


def speck(root: Path) -> None:
    """Leave a region so many voxels that T2 measures it and ADC and DCE do not."""
    path = image_path(root / PATIENT, PATIENT, "rois")
    labels = read_volume(path)
    place = np.argwhere(labels.array == 1)
    middle = place[np.abs(place - place.mean(axis=0)).sum(axis=1).argmin()]
    near = np.abs(place - middle).sum(axis=1).argsort(kind="stable")
    array = np.where(labels.array == 1, 0, labels.array)
    array[tuple(place[near[:9]].T)] = 1
    write_volume(path, labels.with_array(array))


def one_flip_angle(root: Path) -> None:
    next(root.glob(f"{PATIENT}/perf/*flip-1_VFA.nii.gz")).unlink()
    next(root.glob(f"{PATIENT}/perf/*flip-1_VFA.json")).unlink()


def reorder(order: Callable[[np.ndarray], np.ndarray], root: Path) -> None:
    path = image_path(root / PATIENT, PATIENT, "dce")
    dynamic = read_dynamic(path)
    frames = dynamic.frames[order(np.arange(len(dynamic.times)))]
    write_dynamic(path, replace(dynamic, frames=frames, times=dynamic.times[: len(frames)]))


FAULTS: dict[str, Callable[[Path], object]] = {
    "none": lambda root: None,
    "speck": speck,
    "beyond": beyond,
    "no dce": lambda root: shutil.rmtree(root / PATIENT / "perf"),
    "one flip angle": one_flip_angle,
    "no baseline": partial(reorder, lambda frames: frames[len(frames) // 3 :]),
    "shuffled": partial(reorder, np.random.default_rng(1).permutation),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_check_names_what_predict_refuses(
    cohort: Path, part_of: Callable[..., Path], model: Path, tmp_path: Path, fault: str
) -> None:
    root = part_of(cohort, tmp_path / "cohort", [PATIENT, "sub-0002"])
    FAULTS[fault](root)
    done = predict_cohort([str(model)], root, tmp_path / "run", HERE)
    refused = {(f.participant_id, f.roi_id) for f in done.failures if f.roi_id}
    whole = {f.participant_id for f in done.failures if not f.roi_id}
    problems, _ = check(root, settings=model_settings(str(model)))
    named = {(str(p.patient), str(p.roi or "")) for p in problems}
    of_study = {patient for patient, roi in named if not roi}
    assert {patient for patient, _ in named} == {p for p, _ in refused} | whole
    assert refused <= named | {(patient, roi) for patient, roi in refused if patient in of_study}
    assert {(patient, roi) for patient, roi in named if roi} <= refused


def test_the_last_region_is_refused_with_its_reason(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(first_patient, tmp_path / "cohort")
    roi = beyond(root)
    for name in ("rois.tsv", "scores.tsv"):
        table = pd.read_csv(root / name, sep="\t", dtype=str, keep_default_na=False)
        table[table["roi_id"] == roi].to_csv(root / name, sep="\t", index=False)
    with pytest.raises(CadError, match="no region has the modalities") as caught:
        predict_cohort([str(model)], root, tmp_path / "run", HERE)
    assert "needs adc features and this region has none (adc: 0% of it" in caught.value.hint
    beyond(root, all_images=True)
    with pytest.raises(CadError, match="no region has the modalities") as caught:
        predict_cohort([str(model)], root, tmp_path / "run", HERE)
    assert "the ROI is empty" in caught.value.hint


def test_a_validation_treats_it_as_a_prediction_does(
    cohort: Path, quick_pipeline: Path, run_folder: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(cohort, tmp_path / "cohort")
    roi = beyond(root)
    done = run_pipeline(str(quick_pipeline), root, tmp_path / "run", HERE)
    (failure,) = done.failures
    assert (failure.study_id, failure.roi_id, failure.stage) == (PATIENT, roi, "validate")
    assert "the learner needs adc features and this region has none (adc: " in failure.reason
    folder = RunFolder(tmp_path / "run")
    assert read_failures(folder) == done.failures
    table, whole = read_probabilities(folder), read_probabilities(RunFolder(run_folder))
    lost = table["probability"].isna()
    assert table.loc[lost, ["study_id", "roi_id"]].to_numpy().tolist() == [[PATIENT, roi]]
    assert table.loc[lost, "decision"].isna().all()
    assert len(table) == len(whole)
    explained = pd.read_csv(folder.explanations, dtype=str)
    assert not ((explained["study_id"] == PATIENT) & (explained["roi_id"] == roi)).any()


def test_a_failed_fold_names_every_region_it_leaves(
    cohort: Path, quick_pipeline: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    """All malignant regions are of one site: without that site there is nothing to learn."""
    people = pd.read_csv(cohort / "participants.tsv", sep="\t")["participant_id"].tolist()[:4]
    root = part_of(cohort, tmp_path / "cohort", people)
    sites = dict(zip(people, ["a", "a", "b", "b"], strict=True))
    rois = pd.read_csv(root / "rois.tsv", sep="\t", keep_default_na=False)
    first = rois["participant_id"].map(sites) == "a"
    rois["histology"] = np.where(first & (rois.index % 2 == 0), "malignant", "benign")
    rois["isup"] = np.where(rois["histology"] == "malignant", "3", "n/a")
    rois.to_csv(root / "rois.tsv", sep="\t", index=False)
    table = pd.read_csv(root / "participants.tsv", sep="\t")
    table.assign(site=table["participant_id"].map(sites)).to_csv(
        root / "participants.tsv", sep="\t", index=False
    )
    path = tmp_path / "sites.yaml"
    text = quick_pipeline.read_text().replace(
        "validate: {", "labels: {histology: override}\nvalidate: {scheme: leave-one-site-out, "
    )
    path.write_text(text)
    done = run_pipeline(str(path), root, tmp_path / "run", HERE)
    left = read_probabilities(RunFolder(tmp_path / "run"))
    lost = left[left["probability"].isna()]
    named = [(f.participant_id, f.roi_id) for f in done.failures]
    assert named == list(zip(lost["participant_id"], lost["roi_id"], strict=True))
    assert set(lost["participant_id"]) == {p for p, site in sites.items() if site == "a"}


def test_an_image_that_the_man_lacks_is_not_said_to_miss_one_region(
    first_patient: Path, repository: Path, tmp_path: Path
) -> None:
    """A second model scores his other regions; the reason names what this region lacks."""
    root = shutil.copytree(first_patient, tmp_path / "cohort")
    roi = beyond(root)
    image_path(root / PATIENT, PATIENT, "dce").unlink()
    models = [
        repository / "models" / name for name in ("phantom-psvm", "phantom-psvm-biparametric")
    ]
    done = predict_cohort([str(path) for path in models], root, tmp_path / "run", HERE)
    (failure,) = done.failures
    assert failure.roi_id == roi
    assert "phantom-psvm needs adc and dce features" in failure.reason
    reason = failure.reason.split(" and this region has none ")[1]
    assert reason.startswith("(adc: ")
    assert "dce" not in reason
