"""A man who is imaged twice: the second study shows him elsewhere in the scanner, as is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.ndimage import binary_erosion
from scipy.spatial.transform import Rotation

from cad.folders.cohort import read_cohort
from cad.mri.imaging import geometry
from cad.mri.imaging.registration import moved
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import image_path, read_study, write_study
from cad.mri.imaging.volume import Volume

NOISE = 0.1
"""Standard deviation of the second image's own noise, by that of the image."""


def displacement(
    about: np.ndarray, degrees: tuple[float, float, float], shift_mm: tuple[float, float, float]
) -> np.ndarray:
    """Return the 4 x 4 matrix that turns about a point and then shifts (LPS, mm)."""
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    matrix[:3, 3] = about + np.array(shift_mm) - matrix[:3, :3] @ about
    return matrix


def imaged_again(
    study: Study,
    matrix: np.ndarray,
    *,
    removed: Collection[str] = (),
    smaller: Collection[str] = (),
    aside: Mapping[str, tuple[float, float, float]] | None = None,
    seed: int = 0,
) -> Study:
    """Return a later study of the same man, whose body was moved by a matrix in between.

    T2 is interpolated on the old grid, brighter and with noise of its own, and outlines with it;
    the other images keep their voxels. Some regions are gone, some lose their outer voxels in the
    slice, and some lie aside by a vector (mm). ROI ids begin with ``b``.
    """
    assert study.t2w is not None
    assert study.roi_map is not None
    assert study.gland is not None
    grid = study.t2w
    rng = np.random.default_rng(seed)
    values = geometry.resample_image(moved(grid, matrix), grid).array
    values = np.where(np.isfinite(values), 1.4 * values, np.nanmedian(values))
    values = np.maximum(values + rng.normal(0, NOISE * values.std(), values.shape), 1.0)
    labels = np.zeros(study.roi_map.shape, np.uint8)
    rois = []
    for roi in study.rois:
        if roi.roi_id in removed:
            continue
        mask = study.mask_of(roi)
        beside = np.eye(4)
        beside[:3, 3] = (aside or {}).get(roi.roi_id, (0.0, 0.0, 0.0))
        inside = geometry.resample_mask(moved(mask, beside @ matrix), study.roi_map).array
        if roi.roi_id in smaller:
            inside = binary_erosion(inside, np.ones((1, 3, 3)))
        labels[inside] = roi.label
        rois.append(Roi(f"b{roi.roi_id}", roi.label, roi.zone))

    def elsewhere(image: Volume | None) -> Volume | None:
        return None if image is None else moved(image, matrix)

    return replace(
        study,
        study_id=f"{study.participant_id}_ses-02",
        t2w=grid.with_array(values.astype(np.float32)),
        roi_map=study.roi_map.with_array(labels),
        rois=rois,
        gland=geometry.resample_mask(moved(study.gland, matrix), study.gland),
        adc=elsewhere(study.adc),
        hbv=elsewhere(study.hbv),
        vessel=elsewhere(study.vessel),
        dce=None if study.dce is None else replace(study.dce, grid=moved(study.dce.grid, matrix)),
        vfa=[(angle, moved(image, matrix)) for angle, image in study.vfa],
        diffusion=[(b_value, moved(image, matrix)) for b_value, image in study.diffusion],
    )


def study_in(cohort: Path, patient: str) -> Study:
    """Read the one study of a man of a cohort."""
    (ref,) = [ref for ref in read_cohort(cohort).studies() if ref.participant_id == patient]
    rois = []
    for row in ref.rois.itertuples():
        rois.append(Roi(str(row.roi_id), int(row.label), str(row.zone)))
    return read_study(ref.folder, patient, patient, rois)


def write_two_studies(
    cohort: Path, study: Study, later: Study, dates: tuple[str, str] = ("", "")
) -> None:
    """Replace the one study of a man in a cohort by two sessions, and his rows by theirs."""
    patient = study.participant_id
    shutil.rmtree(cohort / patient)
    first = replace(study, study_id=f"{patient}_ses-01")
    for session, each, date in zip(("ses-01", "ses-02"), (first, later), dates, strict=True):
        folder = cohort / patient / session
        write_study(folder, each)
        if date:
            sidecar = image_path(folder, each.study_id, "t2w")
            sidecar.with_name(sidecar.name.replace(".nii.gz", ".json")).write_text(
                json.dumps({"StudyDate": date})
            )
    rois = pd.read_csv(cohort / "rois.tsv", sep="\t", dtype=str, keep_default_na=False)
    if "session_id" not in rois:
        rois["session_id"] = "n/a"
    theirs = rois["participant_id"] == patient
    rois.loc[theirs, "session_id"] = "ses-01"
    rows = rois[theirs]
    present = {roi.roi_id for roi in later.rois}
    again = rows.assign(roi_id="b" + rows["roi_id"], session_id="ses-02")
    again = again[again["roi_id"].isin(present)]
    pd.concat([rois, again]).to_csv(cohort / "rois.tsv", sep="\t", index=False)
