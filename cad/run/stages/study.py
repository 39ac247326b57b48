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
    key = ""
    stage = "read"
    try:
        key = input_key(task)
        if task.resume and study_key(task.result) == key:
            failures = study_failures(task.result)
            return _study_outcome(ref, "kept", "unchanged", failures, start, key)
        # If the same input failed in an earlier run, it would most likely fail again. So the study
        # is not measured.
        if task.failed is not None and task.failed_key == key:
            return _study_outcome(ref, "failed", FAILED_BEFORE, [task.failed], start, key)
        why = "new" if not task.result.exists() else "input, settings or version changed"
        if not task.resume:
            why = "asked for"
        study = read_study_of(ref, task.settings.images)
        require_t1_of_the_field(study, task.settings)
        stage = "measure"
        write, failures = _measured_study(task, study, key)
        stage = "write"
        write()
        return _study_outcome(ref, "computed", why, failures, start, key)
    except CadError as error:
        failure = failure_of(error, ref.participant_id, ref.study_id, stage)
    except MemoryError:
        raise
    # An OSError comes from the disk or the system and not from the content of the study. Therefore
    # an earlier result of the study is kept.
    except OSError as error:
        failure = _failure_of_files(ref, stage, error)
        return _study_outcome(ref, "failed", failure.reason, [failure], start)
    except Exception as error:  # an unexpected error in one study must not stop the others
        failure = Failure(
            ref.participant_id,
            ref.study_id,
            "",
            stage,
            f"unexpected {type(error).__name__}: {error}",
            "please report this with the study's headers",
        )
    with suppress(OSError):
        task.result.unlink(missing_ok=True)  # an earlier result was made from other input
    return _study_outcome(ref, "failed", failure.reason, [failure], start, key)


def _study_outcome(
    ref: StudyRef, status: str, why: str, failures: list[Failure], start: float, key: str = ""
) -> StudyOutcome:
    return StudyOutcome(ref.study_id, status, why, failures, time.perf_counter() - start, key)


def _failure_of_files(ref: StudyRef, stage: str, error: OSError) -> Failure:
    """Return the failure of a study whose files the system could not read or write."""
    name = f"{Path(str(error.filename)).name}: " if error.filename else ""
    hints = {
        errno.ENOSPC: "free space on the disk, then run again: finished studies are kept",
        errno.EDQUOT: "free some of your quota, then run again: finished studies are kept",
        errno.EACCES: "give the user of this run permission, then run again",
        errno.EPERM: "give the user of this run permission, then run again",
        errno.EROFS: "write to a file system that is not read-only",
    }
    reason = f"{name}{error.strerror or error}"
    hint = hints.get(error.errno or 0, "look at the disk or the network share, then run again")
    return Failure(ref.participant_id, ref.study_id, "", stage, reason, hint)


def _measured_study(
    task: StudyTask, study: Study, key: str
) -> tuple[Callable[[], None], list[Failure]]:
    """Measure a study. Return a function that writes its file, and the failures of regions."""
    from cad.mri.features.snapshot import snapshot
    from cad.mri.features.table import extract
    from cad.mri.imaging.prepare import prepare_study

    ref = task.ref
    study, registrations = prepare_study(
        study, task.settings.images, task.settings.features.modalities
    )
    features = extract(study, task.settings)
    copies = _redrawn_copies(study, features, task.settings)
    failures = [
        failure_of(e, ref.participant_id, ref.study_id, "measure") for e in features.failures
    ]
    write = partial(
        write_measured,
        task.result,
        key=key,
        participant_id=ref.participant_id,
        study_id=ref.study_id,
        rows=features.rows,
        provenance=features.provenance,
        notes=[*study.notes, *features.notes],
        failures=failures,
        gaps=features.gaps,
        arrays={
            **snapshot(study, features, registrations),
            **copies,
            **(features.unscaled.to_arrays() if features.unscaled is not None else {}),
        },
    )
    return write, failures


def _redrawn_copies(
    study: Study, features: StudyFeatures, settings: PipelineSettings
) -> dict[str, np.ndarray]:
    """Return the features of randomly redrawn copies of the regions, as arrays by name.

    The result is empty unless the settings ask for stable features only, or if no copy can be
    measured.
    """
    if not settings.features.robustness.stable_only or features.rows.empty:
        return {}
    from cad.mri.features.robustness import Perturbation, perturbed_features

    measured_rois = set(features.rows["roi_id"])
    study = replace(study, rois=[roi for roi in study.rois if roi.roi_id in measured_rois])
    if settings.images.t2_standardisation == "nyul":
        # Nyul's scale of T2 intensities is fitted to several patients, who are not known when one
        # study is measured. The z-score within this study takes its place.
        images = settings.images.model_copy(update={"t2_standardisation": "zscore"})
        settings = settings.model_copy(update={"images": images})
    try:
        table = perturbed_features(
            study, settings, Perturbation(repeats=settings.features.robustness.repeats)
        )
    except CadError as error:
        features.notes.append(f"not judged for stability: {error.problem}")
        return {}
    names = [c for c in table.columns if c not in ("participant_id", "roi_id", "repeat")]
    return {
        "participant_id": np.array(study.participant_id),
        "copies": table[names].to_numpy(float),
        "copy_names": np.array(names, dtype=str),
        "copy_roi_id": np.array(table["roi_id"].astype(str).tolist(), dtype=str),
        "copy_repeat": table["repeat"].to_numpy(int),
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
    registered = images is not None and images.registration != "none"
    require_plausible(study, site_ranges(ref.folder, registered))
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
    where = f"{Path(error.file).name}: " if error.file else ""
    return Failure(
        error.patient or patient,
        study,
        error.roi,
        stage,
        where + error.problem,
        error.hint,
        "awaiting ROI" if isinstance(error, AwaitingRoi) else "failed",
    )
