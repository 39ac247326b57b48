"""Extract: every study's images to one row of features per region, and what its page shows."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cad.cohort import StudyRef
from cad.errors import CadError
from cad.execution.resume import measure_studies
from cad.execution.task import FAILED_BEFORE, StudyOutcome, StudyTask, input_key
from cad.model.fold_features import FoldFeatures, without_copies
from cad.run_folder.study_file import (
    read_provenance,
    read_rows,
    study_failures,
    study_key,
    write_measured,
)
from cad.run_folder.tables import KEYS, Failure, write_features
from cad.settings import PipelineSettings
from cad.stages.load import Loaded, failure_of, read_study_of, require_t1_of_the_field

if TYPE_CHECKING:
    from cad.features.table import StudyFeatures
    from cad.imaging.standardise import NyulScale
    from cad.imaging.study import Study


@dataclass(frozen=True)
class Measured:
    """Tell what became of every study of the cohort.

    Parameters
    ----------
    outcomes : list of StudyOutcome
        One per study, in the order of the cohort.
    results : list of Path
        Files of the studies that were measured.
    failures : list of Failure
        Of studies and of single regions.
    seconds : float
        Wall time.
    """

    outcomes: list[StudyOutcome]
    results: list[Path]
    failures: list[Failure]
    seconds: float


@dataclass(frozen=True)
class Extracted:
    """Hold the features of every measured region.

    Parameters
    ----------
    features : DataFrame
        ``participant_id, study_id, roi_id`` and features, as stored: where T2's scale is fitted
        across patients, the fit on all of them.
    provenance : DataFrame
        How each row was measured; stored beside the features, seen by no learner.
    source : FoldFeatures
        The same rows as any set of training patients makes them.
    """

    features: pd.DataFrame
    provenance: pd.DataFrame
    source: FoldFeatures


def measure(loaded: Loaded) -> Measured:
    """Measure every study that is not current, one result file each."""
    start = time.perf_counter()
    refs = loaded.cohort.studies()
    settings = _measured_with(loaded)
    tasks = [StudyTask(ref, settings, loaded.folder.root) for ref in refs]
    outcomes = measure_studies(process_study, tasks, loaded.options)
    failures = [f for outcome in outcomes for f in outcome.failures]
    pairs = zip(tasks, outcomes, strict=True)
    results = [task.result for task, outcome in pairs if outcome.status != "failed"]
    return Measured(outcomes, results, failures, time.perf_counter() - start)


def extract(loaded: Loaded, measured: Measured, scale: NyulScale | None = None) -> Extracted:
    """Collect the features of all studies and write ``features.parquet``.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        The run so far.
    scale : NyulScale, optional
        T2's scale, where a trained model brings it; else it is fitted on all patients.
    """
    rows = read_rows(measured.results)
    keys, X = rows[KEYS], rows.drop(columns=KEYS)
    source = FoldFeatures(
        keys,
        X,
        _measured_with(loaded),
        measured.results,
        loaded.sites(keys["participant_id"]),
        loaded.folder,
    )
    complete = source.measured(scale) if loaded.kind == "predict" else source.complete()
    features = pd.concat([keys, complete.reindex(columns=X.columns)], axis=1)
    provenance = read_provenance(measured.results)
    write_features(loaded.folder, pd.concat([features, provenance], axis=1))
    return Extracted(features, provenance, source)


def _measured_with(loaded: Loaded) -> PipelineSettings:
    predicting = loaded.kind == "predict"
    return without_copies(loaded.settings) if predicting else loaded.settings


def process_study(task: StudyTask) -> StudyOutcome:
    """Measure one study and write its file; a problem becomes a failure, never an exception.

    Running out of memory is left to the caller, who knows the limit.
    """
    start = time.perf_counter()
    ref = task.ref
    key, stage = "", "read"
    try:
        key = input_key(task)
        kept = study_key(task.result) if task.resume else None
        if kept == key:
            failures = study_failures(task.result)
            return _outcome(ref, "kept", "unchanged", failures, start, key)
        if task.failed is not None and task.failed_key == key:
            return _outcome(ref, "failed", FAILED_BEFORE, [task.failed], start, key)
        why = "new" if not task.result.exists() else "input, settings or version changed"
        if not task.resume:
            why = "asked for"
        study = read_study_of(ref)
        require_t1_of_the_field(study, task.settings)
        stage = "measure"
        write, failures = _measure(task, study, key)
        stage = "write"
        write()
        return _outcome(ref, "computed", why, failures, start, key)
    except CadError as error:
        failure = failure_of(error, ref.participant_id, ref.study_id, stage)
    except MemoryError:
        raise
    except OSError as error:  # the disk's fault, not the input's: an earlier result stays
        failure = _refused(ref, stage, error)
        return _outcome(ref, "failed", failure.reason, [failure], start)
    except Exception as error:  # an unforeseen fault of one study must not cost the others
        failure = Failure(
            ref.participant_id,
            ref.study_id,
            "",
            stage,
            f"unexpected {type(error).__name__}: {error}",
            "please report this with the study's headers",
        )
    with suppress(OSError):
        task.result.unlink(missing_ok=True)  # a result of earlier input is no result of this one
    return _outcome(ref, "failed", failure.reason, [failure], start, key)


def _outcome(
    ref: StudyRef, status: str, why: str, failures: list[Failure], start: float, key: str = ""
) -> StudyOutcome:
    return StudyOutcome(ref.study_id, status, why, failures, time.perf_counter() - start, key)


def _refused(ref: StudyRef, stage: str, error: OSError) -> Failure:
    """Return the failure of a study whose files the system refused to read or write."""
    name = f"{Path(str(error.filename)).name}: " if error.filename else ""
    hints = {
        errno.ENOSPC: "free space on the disk, then run again: what is done is kept",
        errno.EDQUOT: "free some of your quota, then run again: what is done is kept",
        errno.EACCES: "give the user of this run permission, then run again",
        errno.EPERM: "give the user of this run permission, then run again",
        errno.EROFS: "write to a file system that is not read-only",
    }
    reason = f"{name}{error.strerror or error}"
    hint = hints.get(error.errno or 0, "look at the disk or the network share, then run again")
    return Failure(ref.participant_id, ref.study_id, "", stage, reason, hint)


def _measure(task: StudyTask, study: Study, key: str) -> tuple[Callable[[], None], list[Failure]]:
    """Return what writes the study's file, and the regions that could not be measured."""
    from cad.features.snapshot import snapshot
    from cad.features.table import extract
    from cad.imaging.prepare import prepare_study

    ref = task.ref
    study, registrations = prepare_study(
        study, task.settings.images, task.settings.features.modalities
    )
    features = extract(study, task.settings)
    copies = _copies(study, features, task.settings)
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
        arrays={
            **snapshot(study, features, registrations),
            **copies,
            **(features.unscaled.to_arrays() if features.unscaled is not None else {}),
        },
    )
    return write, failures


def _copies(
    study: Study, features: StudyFeatures, settings: PipelineSettings
) -> dict[str, np.ndarray]:
    """Measure redrawn copies of the regions, where stability is asked for."""
    if not settings.features.robustness.stable_only or features.rows.empty:
        return {}
    from cad.features.robustness import Perturbation, perturbed_features

    good = set(features.rows["roi_id"])
    study = replace(study, rois=[roi for roi in study.rois if roi.roi_id in good])
    if settings.images.t2_standardisation == "nyul":
        # No scale of other patients is known here; every patient's own z-score stands in.
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
