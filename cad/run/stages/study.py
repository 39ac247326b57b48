"""Process one study: read its images, measure them, and write the result, or return a failure.

Worker processes run this module. It imports the libraries that measuring needs and no learners, so
that a worker starts fast.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.settings import ImageSettings, PipelineSettings
from cad.folders.cohort import StudyRef
from cad.folders.run_folder.study_file import study_failures, study_key, write_measured
from cad.folders.run_folder.tables import Failure
from cad.run.execution.task import FAILED_BEFORE, StudyOutcome, StudyTask, input_key

if TYPE_CHECKING:
    from cad.mri.features.table import StudyFeatures
    from cad.mri.imaging.study import Study


def process_study(task: StudyTask) -> StudyOutcome:
    """Measure one study and write its result file.

    A problem with the study is returned as a failure and raises no error. Only MemoryError is
    raised: the caller knows the memory limit and names it in its message.

    Parameters
    ----------
    task : StudyTask
        The study, the settings and the folder to write to.

    Returns
    -------
    StudyOutcome
        Whether the study was measured now, kept from an earlier run or failed, and why.
    """
    start = time.perf_counter()
    ref = task.ref
    input_hash = ""  # stays empty where the input cannot be read
    stage = "read"  # named in the failure, if there is one
    try:
        input_hash = input_key(task)
        if task.resume and study_key(task.result) == input_hash:
            failures = study_failures(task.result)
            return _study_outcome(ref, "kept", "unchanged", failures, start, input_hash)
        # If the same input failed in an earlier run, it would most likely fail again. So the study
        # is not measured.
        if task.failed is not None and task.failed_key == input_hash:
            return _study_outcome(ref, "failed", FAILED_BEFORE, [task.failed], start, input_hash)
        why = "new" if not task.result.exists() else "input, settings or version changed"
        if not task.resume:
            why = "asked for"
        study = read_study_of(ref, task.settings.images)
        require_t1_of_the_field(study, task.settings)
        stage = "measure"
        write, failures = _measured_study(task, study, input_hash)
        stage = "write"
        write()
        return _study_outcome(ref, "computed", why, failures, start, input_hash)
    except CadError as error:
        failure = failure_of(error, ref.participant_id, ref.study_id, stage)
    except MemoryError:  # the caller names the memory limit in its message
        raise
    # An OSError comes from the disk or the system and not from the content of the study. Therefore
    # an earlier result of the study is kept.
    except OSError as error:
        failure = _failure_of_files(ref, stage, error)
        # The hash of the input is left out of the outcome. So the next run tries again, although
        # the input is the same.
        return _study_outcome(ref, "failed", failure.reason, [failure], start)
    except Exception as error:  # an unexpected error in one study must not stop the others
        failure = Failure(
            participant_id=ref.participant_id,
            study_id=ref.study_id,
            roi_id="",
            stage=stage,
            reason=f"unexpected {type(error).__name__}: {error}",
            hint="please report this with the study's headers",
        )
    with suppress(OSError):
        task.result.unlink(missing_ok=True)  # an earlier result was made from other input
    return _study_outcome(ref, "failed", failure.reason, [failure], start, input_hash)


def _study_outcome(
    ref: StudyRef, status: str, why: str, failures: list[Failure], start: float, key: str = ""
) -> StudyOutcome:
    """Return the outcome of a study on which work began at the time ``start``."""
    return StudyOutcome(
        study_id=ref.study_id,
        status=status,
        why=why,
        failures=failures,
        seconds=time.perf_counter() - start,
        key=key,
    )


def _failure_of_files(ref: StudyRef, stage: str, error: OSError) -> Failure:
    """Return the failure of a study whose files the system could not read or write."""
    file_and_colon = f"{Path(str(error.filename)).name}: " if error.filename else ""
    hints = {
        errno.ENOSPC: "free space on the disk, then run again: finished studies are kept",
        errno.EDQUOT: "free some of your quota, then run again: finished studies are kept",
        errno.EACCES: "give the user of this run permission, then run again",
        errno.EPERM: "give the user of this run permission, then run again",
        errno.EROFS: "write to a file system that is not read-only",
    }
    # Python may raise an OSError without the system's text and number.
    reason = f"{file_and_colon}{error.strerror or error}"
    hint = hints.get(error.errno or 0, "look at the disk or the network share, then run again")
    return Failure(
        participant_id=ref.participant_id,
        study_id=ref.study_id,
        roi_id="",
        stage=stage,
        reason=reason,
        hint=hint,
    )


def _measured_study(
    task: StudyTask, study: Study, key: str
) -> tuple[Callable[[], None], list[Failure]]:
    """Measure a study. Return a function that writes its file, and the failures of regions.

    The file is not written here, so that the caller can tell an error of writing from an error of
    measuring.
    """
    from cad.mri.features.snapshot import snapshot
    from cad.mri.features.table import extract
    from cad.mri.imaging.prepare import prepare_study

    ref = task.ref
    prepared, registrations = prepare_study(
        study, task.settings.images, task.settings.features.modalities
    )
    features = extract(prepared, task.settings)
    copies = _features_of_redrawn_copies(prepared, features, task.settings)
    failures = [
        failure_of(error, ref.participant_id, ref.study_id, "measure")
        for error in features.failures
    ]
    unscaled_t2 = {} if features.unscaled is None else features.unscaled.to_arrays()
    write = partial(
        write_measured,
        task.result,
        key=key,
        participant_id=ref.participant_id,
        study_id=ref.study_id,
        rows=features.rows,
        provenance=features.provenance,
        notes=[*prepared.notes, *features.notes],
        failures=failures,
        gaps=features.gaps,
        arrays={**snapshot(prepared, features, registrations), **copies, **unscaled_t2},
    )
    return write, failures


def _features_of_redrawn_copies(
    study: Study, features: StudyFeatures, settings: PipelineSettings
) -> dict[str, np.ndarray]:
    """Return the features of randomly redrawn copies of the regions, as arrays by name.

    The result is empty unless the settings ask for stable features only, or if no copy can be
    measured.
    """
    if not settings.features.robustness.stable_only or features.rows.empty:
        return {}
    from cad.mri.features.robustness import Perturbation, perturbed_features

    # A region that cannot be measured as it was drawn needs no copies.
    measured_rois = set(features.rows["roi_id"])
    rois = [roi for roi in study.rois if roi.roi_id in measured_rois]
    settings_of_copies = settings
    if settings.images.t2_standardisation == "nyul":
        # Nyul's scale of T2 intensities is fitted to several patients, who are not known when one
        # study is measured. The z-score within this study takes its place.
        images = settings.images.model_copy(update={"t2_standardisation": "zscore"})
        settings_of_copies = settings.model_copy(update={"images": images})
    repeats = settings.features.robustness.repeats
    try:
        copies = perturbed_features(
            replace(study, rois=rois), settings_of_copies, Perturbation(repeats=repeats)
        )
    except CadError as error:
        features.notes.append(f"not judged for stability: {error.problem}")
        return {}
    keys = ("participant_id", "roi_id", "repeat")
    feature_names = [name for name in copies.columns if name not in keys]
    return {
        "participant_id": np.array(study.participant_id),
        "copies": copies[feature_names].to_numpy(float),
        "copy_names": np.array(feature_names, dtype=str),
        "copy_roi_id": np.array(copies["roi_id"].astype(str).tolist(), dtype=str),
        "copy_repeat": copies["repeat"].to_numpy(int),
    }


class AwaitingRoi(CadError):
    """Report that no region (ROI) of a study has been drawn yet; this is no fault of the study."""


def read_study_of(ref: StudyRef, images: ImageSettings | None = None) -> Study:
    """Read one study's volumes and regions, and check that their values are plausible.

    Parameters
    ----------
    ref : StudyRef
        The study's folder and regions.
    images : ImageSettings, optional
        Settings of images. If they ask for registration, it is no error that images are not yet
        aligned with each other.

    Returns
    -------
    Study
        The study's images, masks and regions, and how far its images lie beside T2 (mm).

    Raises
    ------
    AwaitingRoi
        For a study without regions.
    CadError
        For images that cannot be read, or values that no patient can have.
    """
    from cad.mri.imaging.displacement_search import with_displacements
    from cad.mri.imaging.plausibility import require_plausible, site_ranges
    from cad.mri.imaging.study import Roi
    from cad.mri.imaging.study_files import read_study

    rois = []
    for row in ref.rois.itertuples():
        zone = "n/a" if pd.isna(row.zone) else str(row.zone)
        rois.append(Roi(str(row.roi_id), int(row.label), zone))
    if not rois:
        raise AwaitingRoi(
            "awaiting ROI: the study has no region to measure", patient=ref.participant_id
        )
    study = with_displacements(read_study(ref.folder, ref.study_id, ref.participant_id, rois))
    will_be_registered = images is not None and images.registration != "none"
    require_plausible(study, site_ranges(ref.folder, will_be_registered))
    return study


def require_t1_of_the_field(study: Study, settings: PipelineSettings) -> None:
    """Check that the assumed T1 times fit the field strength of a study with a dynamic series.

    T1 grows with the field strength. Concentrations that are computed with the T1 of another field
    strength would be wrong. Nothing is checked where the settings do not measure the dynamic series
    (DCE).

    Parameters
    ----------
    study : Study
        The study, whose protocols state the field strength in tesla.
    settings : PipelineSettings
        Modalities, and the assumed T1 of tissue and blood.

    Raises
    ------
    CadError
        When the stated field strength is not 3 T and the T1 of tissue or blood would be the value
        for 3 T. There is no error where the field strength is not stated, and none for the T1 of
        tissue where it is measured from images of several flip angles.
    """
    from cad.mri.imaging.plausibility import t1_default_problem

    if "dce" in settings.features.modalities:
        perfusion = settings.features.perfusion
        problem = t1_default_problem(study, perfusion.t1_tissue, perfusion.t1_blood)
        if problem is not None:
            raise problem


def failure_of(error: CadError, patient: str, study: str, stage: str) -> Failure:
    """Return the row of ``failures.csv`` for an error.

    Parameters
    ----------
    error : CadError
        The error with reason, hint and region. If it names a patient, this patient takes the place
        of ``patient``.
    patient, study, stage : str
        Patient, study and stage of the run in which the error was raised.
    """
    file_and_colon = f"{Path(error.file).name}: " if error.file else ""
    return Failure(
        participant_id=error.patient or patient,
        study_id=study,
        roi_id=error.roi,
        stage=stage,
        reason=file_and_colon + error.problem,
        hint=error.hint,
        status="awaiting ROI" if isinstance(error, AwaitingRoi) else "failed",
    )
