"""Import: a source becomes a cohort, each study in a process with limits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cad.base.processes import landlock
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.into.importer import ImportSummary, import_patient, import_source
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.run.execution.progress import progress
from cad.run.execution.task import StudyOutcome
from cad.run.execution.worker import Confined

# Loaded by the process that opens the source, before it can open nothing else.
_LOADED = (
    "cad.dicom.into.conversion",
    "cad.dicom.into.file_cohort",
    "cad.mri.imaging.pixels",
    "scipy.ndimage",
    "pydicom.pixels",
    "nibabel",
)


def import_cohort(
    source: str,
    out: Path,
    rules: Path,
    options: ExecutionOptions,
    *,
    patient: str | None = None,
    aet: str = "ANY-SCP",
    limits: ArchiveLimits | None = None,
) -> ImportSummary:
    """Turn a folder or zip of DICOM, or a patient's studies in an archive, into a cohort folder.

    Parameters
    ----------
    source : str
        Folder or zip; with ``patient`` the address of an archive.
    out : Path
        Cohort folder; it may hold studies already, which stay.
    rules : Path
        The site's rules file.
    options : ExecutionOptions
        Limits of one study. A study that exceeds them is a failure in the summary, and the others
        are imported.
    patient : str, optional
        PatientID in the archive.
    aet : str
        The archive's AE title.
    limits : ArchiveLimits, optional
        Limits of time and amount for the transfer from an archive.

    Returns
    -------
    ImportSummary
        Ids of the studies that were imported, the failures, and notes.

    Raises
    ------
    CadError
        As :func:`cad.dicom.into.importer.import_source`, and
        :func:`cad.dicom.into.importer.import_patient` where a patient is named.
    """

    @contextmanager
    def watch(count: int) -> Iterator[Callable[[str, str], None]]:
        with progress(count, 0, options) as tell:

            def told(study: str, problem: str) -> None:
                # The reason is printed once, with the summary.
                status = "failed" if problem else "computed"
                tell(StudyOutcome(study or "a study", status, "", [], 0.0))

            yield told

    # What parses the source's files opens nothing else, whatever they say.
    read = () if patient is not None else (Path(source),)
    confined = Confined(read, (out,), _LOADED)
    with Caller(options, confined=confined) as call:
        if patient is not None:
            summary = import_patient(source, aet, patient, out, rules, limits, call, watch)
        else:
            summary = import_source(Path(source), out, rules, call, watch)
    if not landlock.version():
        summary.notes.append(
            "the kernel has no Landlock: that nothing outside the source was opened rests on the "
            "checks of each file alone"
        )
    return summary
