"""The unit of work: one study read, measured and written as one file that is whole or absent."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from cad import __version__
from cad.cohort import StudyRef
from cad.errors import CadError
from cad.files import write_atomic
from cad.settings import PipelineSettings

if TYPE_CHECKING:
    from cad.features.table import StudyFeatures
    from cad.imaging.study import Study

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
    failed : Failure or None
        Why the study failed before, when it had ``failed_key``: not tried again with that key.
    failed_key : str
        Key of the earlier failure.
    """

    ref: StudyRef
    settings: PipelineSettings
    out: Path
    resume: bool = True
    failed: Failure | None = None
    failed_key: str = ""

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
        Why it was computed, kept or not tried again.
    failures : list of Failure
        Of the study, or of single regions.
    seconds : float
        Wall time.
    key : str
        Hash of input bytes, settings and version; empty where the input could not be read, or
        the failure was not the input's: such a study is always tried again.
    peak_mb : float
        Largest resident memory while it was measured, megabytes; 0 where unknown.
    """

    study_id: str
    status: str
    why: str
    failures: list[Failure]
    seconds: float
    key: str = ""
    peak_mb: float = 0.0


def process_study(task: StudyTask) -> StudyOutcome:
    """Measure one study; a problem becomes a failure, never an exception.

    Running out of memory is left to the caller, who knows the limit.
    """
    start = time.perf_counter()
    ref = task.ref
    key, stage = "", "read"
    try:
        key = input_key(task)
        kept = _stored_key(task.result) if task.resume else None
        if kept == key:
            failures = [Failure(**f) for f in read_result(task.result)["failures"]]
            return _outcome(ref, "kept", "unchanged", failures, start, key)
        if task.failed is not None and task.failed_key == key:
            return _outcome(ref, "failed", FAILED_BEFORE, [task.failed], start, key)
        why = "new" if not task.result.exists() else "input, settings or version changed"
        if not task.resume:
            why = "asked for"
        study = _read(ref)
        stage = "measure"
        content, failures = _measure(task, study, key)
        stage = "write"
        write_atomic(task.result, content)
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


FAILED_BEFORE = "failed before with the same input; --retry-failed tries again"


def _outcome(
    ref: StudyRef, status: str, why: str, failures: list[Failure], start: float, key: str = ""
) -> StudyOutcome:
    return StudyOutcome(ref.study_id, status, why, failures, time.perf_counter() - start, key)


def _refused(ref: StudyRef, stage: str, error: OSError) -> Failure:
    """The system refused to read or write."""
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


def study_files(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Files of a study by their path in its folder, sorted; other sessions are left out.

    Raises
    ------
    OSError
        When a folder may not be read.
    """
    found = []
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("ses-"):
                    continue
                if entry.is_dir():
                    folders.append(Path(entry.path))
                else:
                    name = os.path.relpath(entry.path, folder).replace(os.sep, "/")
                    found.append((name, entry.stat()))
    return sorted(found, key=lambda item: item[0])


def settings_key(settings: PipelineSettings) -> str:
    """Everything but the input that decides a study's numbers, as text."""
    content = settings.model_dump(mode="json", include={"images", "features"})
    return json.dumps([RESULT_VERSION, __version__, content], sort_keys=True)


def _rois_text(ref: StudyRef) -> str:
    return json.dumps(ref.rois[["roi_id", "label", "zone"]].astype(str).to_numpy().tolist())


def input_key(task: StudyTask) -> str:
    """SHA-256 over everything that decides a study's numbers."""
    digest = hashlib.sha256((settings_key(task.settings) + _rois_text(task.ref)).encode())
    for name, _ in study_files(task.ref.folder):
        digest.update(name.encode())
        with (task.ref.folder / name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def fingerprint(ref: StudyRef, settings: str) -> str:
    """As :func:`input_key` from sizes and times of change alone: fast, and enough to say "same".

    A file that changed without its size and time changing is not seen; ``--no-resume`` is.
    """
    files = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in study_files(ref.folder)]
    text = settings + _rois_text(ref) + json.dumps(files)
    return hashlib.sha256(text.encode()).hexdigest()


def read_result(path: Path) -> dict[str, Any]:
    """Feature rows, notes and failures of one measured study.

    Returns
    -------
    dict
        ``rows`` (DataFrame: participant_id, study_id, roi_id, features), ``notes``, ``failures``.
    """
    with np.load(path, allow_pickle=False) as archive:
        record = json.loads(str(archive["record"]))
    return {
        "rows": read_rows([path]),
        "notes": record["notes"],
        "failures": record["failures"],
    }


def read_rows(paths: Iterable[Path]) -> pd.DataFrame:
    """Feature rows of measured studies in the order given; columns by first appearance.

    Studies with the same columns are put together as plain arrays: ten thousand small tables
    would cost more than the studies.
    """
    keys: dict[str, list[str]] = {"participant_id": [], "study_id": [], "roi_id": []}
    blocks: list[np.ndarray] = []
    columns: list[tuple[str, ...]] = []
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in paths:
        with np.load(path, allow_pickle=False) as archive:
            record = json.loads(str(archive["record"]))
            blocks.append(archive["features"])
            names = tuple(archive["feature_names"].tolist())
            columns.append(known.setdefault(names, names))
            rois = archive["roi_ids"].tolist()
        keys["roi_id"] += rois
        for key in ("participant_id", "study_id"):
            keys[key] += [record[key]] * len(rois)
    every = list(dict.fromkeys(name for group in known for name in group))
    places = {group: np.array([every.index(n) for n in group], dtype=int) for group in known}
    values = np.full((len(keys["roi_id"]), len(every)), np.nan)
    last = len(values)
    while blocks:  # from the end, so that each block is given back as soon as it is copied
        block, group = blocks.pop(), columns.pop()
        values[last - len(block) : last, places[group]] = block
        last -= len(block)
    table = pd.DataFrame(values, columns=every, copy=False)
    for i, (key, texts) in enumerate(keys.items()):
        table.insert(i, key, pd.Series(texts, dtype=str))
    return table


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
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def _read(ref: StudyRef) -> Study:
    from cad.imaging.study import Roi
    from cad.imaging.study_files import read_study

    rois = [
        Roi(str(row.roi_id), int(row.label), "n/a" if pd.isna(row.zone) else str(row.zone))
        for row in ref.rois.itertuples()
    ]
    if not rois:
        raise CadError(
            "awaiting ROI: the study has no region to measure", patient=ref.participant_id
        )
    return read_study(ref.folder, ref.study_id, ref.participant_id, rois)


def _measure(task: StudyTask, study: Study, key: str) -> tuple[bytes, list[Failure]]:
    from cad.features.table import extract
    from cad.imaging.prepare import prepare_study
    from cad.snapshot import snapshot

    ref = task.ref
    study, registrations = prepare_study(study, task.settings.images)
    features = extract(study, task.settings)
    copies = _copies(study, features, task.settings)
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
        **snapshot(study, features, registrations),
        "features": features.rows[names].to_numpy(float),
        "feature_names": np.array(names, dtype=str),
        "roi_ids": np.array(features.rows["roi_id"].astype(str).tolist(), dtype=str),
        "record": np.array(json.dumps(record, sort_keys=True)),
        "key": np.array(key),
        **copies,
        **(features.unscaled.to_arrays() if features.unscaled is not None else {}),
    }
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue(), failures


def _copies(
    study: Study, features: StudyFeatures, settings: PipelineSettings
) -> dict[str, np.ndarray]:
    """Features of the measured regions and of redrawn copies, where stability is asked for."""
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
