"""Define the unit of work: one study, what its features are computed from, and its outcome."""

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cad.base.doors import door
from cad.base.settings import PipelineSettings
from cad.base.version import __version__
from cad.folders.cohort import StudyRef
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import Failure
from cad.mri.columns import columns_digest

# Version of the result files of studies. It is raised whenever the code measures something in
# another way, so that older results are computed again.
RESULT_VERSION = 6
FAILED_BEFORE = "failed before with the same input; --retry-failed tries again"


@dataclass(frozen=True)
class StudyTask:
    """Hold the input of a worker that measures one study.

    Parameters
    ----------
    ref : StudyRef
        The study's folder and regions.
    settings : PipelineSettings
        Settings of the run; only ``images`` and ``features`` are used.
    out : Path
        The run folder.
    resume : bool
        Whether to keep an earlier result that was made from the same input (:func:`input_key`).
    failed : Failure or None
        Why the study failed in an earlier run; None if it did not. The study is not measured again
        while its :func:`input_key` is still ``failed_key``.
    failed_key : str
        The study's :func:`input_key` in that earlier run.
    """

    ref: StudyRef
    settings: PipelineSettings
    out: Path
    resume: bool = True
    failed: Failure | None = None
    failed_key: str = ""

    @property
    def result(self) -> Path:
        """Return the path of the one file that this task writes, the features of its study."""
        return RunFolder(self.out).study(self.ref.study_id)


@dataclass(frozen=True)
class StudyOutcome:
    """Hold the outcome of measuring one study.

    Parameters
    ----------
    study_id : str
        The study.
    status : str
        ``computed``, ``kept`` (its result was current) or ``failed``.
    why : str
        Why the study was computed, kept or not tried again.
    failures : list of Failure
        Why the study, or single regions of it, could not be measured.
    seconds : float
        Time by the clock.
    key : str
        The study's :func:`input_key`, a hash of its input. It is empty where the input could not be
        read, or where something other than the input made the study fail. The next run then
        measures the study again.
    peak_mb : float
        Largest resident memory while the study was measured, in megabytes; 0 where unknown.
    """

    study_id: str
    status: str
    why: str
    failures: list[Failure]
    seconds: float
    key: str = ""
    peak_mb: float = 0.0

    @property
    def waiting(self) -> bool:
        """Tell whether the study gave no result only because it waits for a region."""
        if self.status != "failed" or not self.failures:
            return False
        return all(failure.waiting for failure in self.failures)

    @property
    def state(self) -> str:
        """Return the status for logs: ``waiting``, not ``failed``, if only a region is missing."""
        return "waiting" if self.waiting else self.status


def study_files(folder: Path) -> list[tuple[str, os.stat_result]]:
    """List the files of a study, sorted by path; folders ``ses-*`` inside it are left out.

    Pipes, sockets and devices are left out, too, because opening one may block for ever.

    Parameters
    ----------
    folder : Path
        The study's folder.

    Returns
    -------
    list of (str, stat_result)
        For each file its path relative to the folder, and its status with size and times.

    Raises
    ------
    OSError
        When a folder may not be read.
    """
    files = []
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("ses-"):  # another study of the same patient
                    continue
                if entry.is_dir():
                    folders.append(Path(entry.path))
                    continue
                status = entry.stat()
                if stat.S_ISREG(status.st_mode):
                    # The name is the same on every system.
                    name = os.path.relpath(entry.path, folder).replace(os.sep, "/")
                    files.append((name, status))
    return sorted(files, key=lambda name_and_status: name_and_status[0])


def settings_key(settings: PipelineSettings) -> str:
    """Return a text that changes with all that features depend on, except the study's own files.

    The text depends on the settings of images and features and on the list of feature columns. It
    also depends on the versions of the program and of the result files.

    Parameters
    ----------
    settings : PipelineSettings
        Settings of the run.
    """
    content = settings.model_dump(mode="json", include={"images", "features"})
    # The digest of the feature columns changes when a feature is added to the program. Studies are
    # then measured again.
    digest_of_columns = columns_digest(settings.features)
    return json.dumps([RESULT_VERSION, __version__, digest_of_columns, content], sort_keys=True)


@door("in", "any", bound="hashed by the block")
def input_key(task: StudyTask) -> str:
    """Return a SHA-256 over everything that a study's features depend on.

    The hash covers the text of :func:`settings_key`, the study's regions, and every byte of the
    study's files.

    Parameters
    ----------
    task : StudyTask
        The study and the settings.
    """
    settings_and_regions = settings_key(task.settings) + _rois_text(task.ref)
    digest = hashlib.sha256(settings_and_regions.encode())
    for name, _ in study_files(task.ref.folder):
        digest.update(name.encode())
        with (task.ref.folder / name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def fingerprint(ref: StudyRef, settings: str) -> str:
    """Return a hash of a study's input that is fast to compute, because no file is read.

    The hash covers settings, regions, and each file's name, size and time of change. An equal hash
    means unchanged input, unless a file was changed and kept its size and time. For such a change
    there is the option ``--no-resume``.

    Parameters
    ----------
    ref : StudyRef
        The study.
    settings : str
        Result of :func:`settings_key`.
    """
    files = [(name, status.st_size, status.st_mtime_ns) for name, status in study_files(ref.folder)]
    content = settings + _rois_text(ref) + json.dumps(files)
    return hashlib.sha256(content.encode()).hexdigest()


def _rois_text(ref: StudyRef) -> str:
    return json.dumps(ref.rois[["roi_id", "label", "zone"]].astype(str).to_numpy().tolist())
