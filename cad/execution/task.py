"""The unit of work: one study, what decides its numbers, and what became of it."""

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cad._version import __version__
from cad.cohort import StudyRef
from cad.columns import columns_digest
from cad.run_folder import RunFolder
from cad.run_folder.tables import Failure
from cad.settings import PipelineSettings

# Raised whenever measured numbers change meaning, so that results of older code are recomputed.
RESULT_VERSION = 5
FAILED_BEFORE = "failed before with the same input; --retry-failed tries again"


@dataclass(frozen=True)
class StudyTask:
    """Hold what a worker needs to measure one study.

    Parameters
    ----------
    ref : StudyRef
        The study's place and regions.
    settings : PipelineSettings
        Only ``images`` and ``features`` matter here.
    out : Path
        The run folder.
    resume : bool
        Keep a result whose key (input bytes, settings, columns, version) is unchanged.
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
        """Return the one file this task writes."""
        return RunFolder(self.out).study(self.ref.study_id)


@dataclass(frozen=True)
class StudyOutcome:
    """Tell what became of one study.

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
        Hash of input bytes, settings, columns and version; empty where the input could not be
        read, or the failure was not the input's: such a study is always tried again.
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


def study_files(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Return the files of a study by their path in its folder, sorted; other sessions are left out.

    Pipes, sockets and devices are no files: opening one may never end.

    Parameters
    ----------
    folder : Path
        The study's folder.

    Returns
    -------
    list of (str, stat_result)
        Path relative to the folder; sizes and times.

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
                elif stat.S_ISREG((status := entry.stat()).st_mode):
                    name = os.path.relpath(entry.path, folder).replace(os.sep, "/")
                    found.append((name, status))
    return sorted(found, key=lambda item: item[0])


def settings_key(settings: PipelineSettings) -> str:
    """Return everything but a study's own files that decides its numbers, as text.

    Parameters
    ----------
    settings : PipelineSettings
        Images and features count, as do the versions of program and result.
    """
    content = settings.model_dump(mode="json", include={"images", "features"})
    made = columns_digest(settings.features)  # a feature that was added since is measured
    return json.dumps([RESULT_VERSION, __version__, made, content], sort_keys=True)


def input_key(task: StudyTask) -> str:
    """Return a SHA-256 over all that decides a study's numbers: settings, regions, every byte.

    Parameters
    ----------
    task : StudyTask
        The study and the settings.
    """
    digest = hashlib.sha256((settings_key(task.settings) + _rois_text(task.ref)).encode())
    for name, _ in study_files(task.ref.folder):
        digest.update(name.encode())
        with (task.ref.folder / name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def fingerprint(ref: StudyRef, settings: str) -> str:
    """Return a hash of a study's input from sizes and times of change alone: fast.

    It is enough to say "same". A file that changed without its size and time changing is not seen;
    ``--no-resume`` is.

    Parameters
    ----------
    ref : StudyRef
        The study.
    settings : str
        As :func:`settings_key` returns it.
    """
    files = [(name, s.st_size, s.st_mtime_ns) for name, s in study_files(ref.folder)]
    text = settings + _rois_text(ref) + json.dumps(files)
    return hashlib.sha256(text.encode()).hexdigest()


def _rois_text(ref: StudyRef) -> str:
    return json.dumps(ref.rois[["roi_id", "label", "zone"]].astype(str).to_numpy().tolist())
