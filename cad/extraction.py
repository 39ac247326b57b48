"""The unit of work: one study read, measured and written as one file that is whole or absent."""

from __future__ import annotations

import hashlib
import io
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad import __version__
from cad.cohort import StudyRef
from cad.errors import CadError
from cad.files import write_atomic
from cad.settings import PipelineSettings

# Raised whenever measured numbers change meaning, so that results of older code are recomputed.
RESULT_VERSION = 1


@dataclass(frozen=True)
class StudyTask:
    """What a worker needs to measure one study.

    Parameters
    ----------
    ref : StudyRef
        The study's place and regions.
    settings : PipelineSettings
        Only ``images`` and ``features`` matter here.
    out : Path
        The run folder; the result goes to ``studies/<study_id>.npz``.
    resume : bool
        Keep a result whose key (input bytes, settings, version) is unchanged.
    """

    ref: StudyRef
    settings: PipelineSettings
    out: Path
    resume: bool = True

    @property
    def result(self) -> Path:
        """The one file this task writes."""
        return self.out / "studies" / f"{self.ref.study_id}.npz"


@dataclass(frozen=True)
class Failure:
    """A row of ``failures.csv``."""

    participant_id: str
    study_id: str
    roi_id: str
    stage: str
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class StudyOutcome:
    """What became of one study.

    Parameters
    ----------
    study_id : str
        Which study.
    status : str
        ``computed``, ``kept`` (its result was current) or ``failed``.
    why : str
        Why it was computed or kept.
    failures : list of Failure
        Of the study, or of single regions.
    seconds : float
        Wall time.
    key : str
        Hash of input bytes, settings and version.
    """

    study_id: str
    status: str
    why: str
    failures: list[Failure]
    seconds: float
    key: str = ""


def process_study(task: StudyTask) -> StudyOutcome:
    """Measure one study; a problem becomes a failure, never an exception."""
    start = time.perf_counter()
    ref = task.ref
    try:
        key = input_key(task)
        kept = _stored_key(task.result) if task.resume else None
        if kept == key:
            failures = [Failure(**f) for f in read_result(task.result)["failures"]]
            return StudyOutcome(
                ref.study_id, "kept", "unchanged", failures, time.perf_counter() - start, key
            )
        why = "new" if not task.result.exists() else "input, settings or version changed"
        failures = _measure(task, key)
        return StudyOutcome(
            ref.study_id, "computed", why, failures, time.perf_counter() - start, key
        )
    except CadError as error:
        failure = failure_of(error, ref.participant_id, ref.study_id, "read or measure")
    except Exception as error:  # an unforeseen fault of one study must not cost the others
        failure = Failure(
            ref.participant_id,
            ref.study_id,
            "",
            "read or measure",
            f"unexpected {type(error).__name__}: {error}",
            "please report this with the study's headers",
        )
    task.result.unlink(missing_ok=True)  # a result of earlier input is no result of this one
    seconds = time.perf_counter() - start
    return StudyOutcome(ref.study_id, "failed", failure.reason, [failure], seconds)


def input_key(task: StudyTask) -> str:
    """SHA-256 over everything that decides a study's numbers."""
    settings = task.settings.model_dump(mode="json", include={"images", "features"})
    rois = task.ref.rois[["roi_id", "label", "zone"]].astype(str).to_numpy().tolist()
    digest = hashlib.sha256(
        json.dumps([RESULT_VERSION, __version__, settings, rois], sort_keys=True).encode()
    )
    for path in sorted(task.ref.folder.rglob("*")):
        if path.is_file() and "ses-" not in path.relative_to(task.ref.folder).as_posix():
            digest.update(path.relative_to(task.ref.folder).as_posix().encode())
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def read_result(path: Path) -> dict[str, Any]:
    """Feature rows, notes and failures of one measured study.

    Returns
    -------
    dict
        ``rows`` (DataFrame: participant_id, study_id, roi_id, features), ``notes``, ``failures``.
    """
    with np.load(path, allow_pickle=False) as archive:
        record = json.loads(str(archive["record"]))
        values = archive["features"]
        names = [str(n) for n in archive["feature_names"]]
        rows = pd.DataFrame(values, columns=names)
        rows.insert(0, "roi_id", [str(r) for r in archive["roi_ids"]])
    rows.insert(0, "study_id", record["study_id"])
    rows.insert(0, "participant_id", record["participant_id"])
    return {"rows": rows, "notes": record["notes"], "failures": record["failures"]}


def failure_of(error: CadError, patient: str, study: str, stage: str) -> Failure:
    """The row of ``failures.csv`` for an error; names the file where it knows it."""
    where = f"{Path(error.file).name}: " if error.file else ""
    return Failure(
        error.patient or patient, study, error.roi, stage, where + error.problem, error.hint
    )


def _stored_key(path: Path) -> str | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return str(archive["key"])
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _measure(task: StudyTask, key: str) -> list[Failure]:
    from cad.features.table import extract
    from cad.imaging.prepare import prepare_study
    from cad.imaging.study import Roi
    from cad.imaging.study_files import read_study
    from cad.snapshot import snapshot

    ref = task.ref
    rois = [
        Roi(str(row.roi_id), int(row.label), "n/a" if pd.isna(row.zone) else str(row.zone))
        for row in ref.rois.itertuples()
    ]
    if not rois:
        raise CadError(
            "awaiting ROI: the study has no region to measure", patient=ref.participant_id
        )
    study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
    study, _ = prepare_study(study, task.settings.images)
    features = extract(study, task.settings)
    failures = [
        failure_of(e, ref.participant_id, ref.study_id, "measure") for e in features.failures
    ]
    names = [c for c in features.rows.columns if c not in ("participant_id", "roi_id")]
    record = {
        "participant_id": ref.participant_id,
        "study_id": ref.study_id,
        "notes": [*study.notes, *features.notes],
        "failures": [vars(f) for f in failures],
    }
    arrays = {
        **snapshot(study, features),
        "features": features.rows[names].to_numpy(float),
        "feature_names": np.array(names, dtype=str),
        "roi_ids": np.array(features.rows["roi_id"].astype(str).tolist(), dtype=str),
        "record": np.array(json.dumps(record, sort_keys=True)),
        "key": np.array(key),
    }
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    write_atomic(task.result, stream.getvalue())
    return failures
