"""Import DICOM studies into a cohort, each study in a process with limits."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cad.base.files import check_apart, write_atomic
from cad.base.processes import landlock
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.into.explain import (
    SourceExplanation,
    check_replaceable,
    explain_source,
    marked,
    write_rules,
)
from cad.dicom.into.importer import ImportSummary, import_patient, import_source
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.run.execution.progress import progress
from cad.run.execution.task import StudyOutcome
from cad.run.execution.worker import Confined
from cad.run.reports.candidates_page import candidates_page

# Modules that the child process, which opens the source, loads before it is restricted to a few
# folders.
_LOADED = (
    "cad.dicom.into.conversion",
    "cad.dicom.into.file_cohort",
    "cad.mri.imaging.pixels",
    "scipy.ndimage",
    "pydicom.pixels",
    "nibabel",
)
_UNCONFINED = (
    "the kernel has no Landlock: that nothing outside the source was opened rests on the checks of "
    "each file alone"
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
        Folder or zip file; with ``patient`` the address of an archive.
    out : Path
        Cohort folder. Studies that it already holds are kept.
    rules : Path
        The site's rules file, which says which series is which image.
    options : ExecutionOptions
        Limits of one study. A study that exceeds them is a failure in the summary, and the other
        studies are imported.
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
        When the source cannot be read or its studies cannot be listed, as
        :func:`cad.dicom.into.importer.import_source` and
        :func:`cad.dicom.into.importer.import_patient` say.
    """

    @contextmanager
    def progress_of_studies(n_studies: int) -> Iterator[Callable[[str, str], None]]:
        with progress(n_studies, n_unchanged=0, options=options) as tell:

            def tell_of_study(study: str, problem: str) -> None:
                # The reason of a failure is not shown with the progress, because the summary of the
                # import prints it.
                status = "failed" if problem else "computed"
                tell(StudyOutcome(study or "a study", status, why="", failures=[], seconds=0.0))

            yield tell_of_study

    # A child process reads the files of the source. Whatever these files contain, it can open no
    # file outside the source and the cohort. An archive is no folder that could be read.
    may_read = () if patient is not None else (Path(source),)
    confined = Confined(read=may_read, write=(out,), modules=_LOADED)
    with Caller(options, confined=confined) as call:
        if patient is not None:
            summary = import_patient(
                source, aet, patient, out, rules, limits, call, progress_of_studies
            )
        else:
            summary = import_source(Path(source), out, rules, call, progress_of_studies)
    if not landlock.version():
        summary.notes.append(_UNCONFINED)
    return summary


@contextmanager
def _looking_into(source: Path, options: ExecutionOptions) -> Iterator[tuple[Caller, Path]]:
    """Yield a caller of functions and a temporary folder, during a ``with`` block.

    The functions run in a child process that can open only the source and the temporary folder.
    This folder is meant for unpacked files.
    """
    with tempfile.TemporaryDirectory(prefix="cad-look-") as name:
        scratch = Path(name)
        confined = Confined(read=(source,), write=(scratch,), modules=_LOADED)
        with Caller(options, confined=confined) as call:
            yield call, scratch


def explain_confined(
    source: Path, rules: Path | None, options: ExecutionOptions
) -> SourceExplanation:
    """Explain which series an import would take, with the source opened by a restricted process.

    Parameters
    ----------
    source : Path
        Folder or zip archive.
    rules : Path, optional
        Rules file.
    options : ExecutionOptions
        Limits of each call.

    Returns
    -------
    Explanation
        The result of :func:`cad.dicom.into.explain.explain_source`. Where the kernel cannot
        restrict a process, the result says so.

    Raises
    ------
    CadError
        When the source or the rules cannot be read
        (:func:`cad.dicom.into.explain.explain_source`).
    """
    with _looking_into(source, options) as (call, scratch):
        explanation = explain_source(source, rules, call, scratch)
    if not landlock.version():
        return replace(explanation, problems=[*explanation.problems, _UNCONFINED])
    return explanation


def write_rules_confined(
    source: Path, rules: Path, take: Mapping[str, int], options: ExecutionOptions
) -> dict[str, list[str]]:
    """Write a first rules file for a source, with the source opened by a restricted process.

    Where several series could be the same image, a page beside the file shows slices of each.

    Parameters
    ----------
    source : Path
        Folder or zip archive.
    rules : Path
        File to write. The page has the file's name followed by ``.html``, and only the user can
        read it. Both are replaced if an earlier call wrote them and nobody has changed them. A page
        that is not needed any more is deleted.
    take : mapping of str to int
        What a person has chosen: for a role (such as ``adc``) the number of the chosen candidate.
    options : ExecutionOptions
        Limits of each call.

    Returns
    -------
    dict of str to list of str
        The roles for which several kinds of series are candidates, with a line on each candidate.

    Raises
    ------
    CadError
        When another page is there, when the file would lie in the source, and when the source
        cannot be read or the rules cannot be written (:func:`cad.dicom.into.explain.write_rules`).
    """
    check_apart(rules, [source])
    page = page_of(rules)
    check_replaceable(page, "the page of candidates")
    with _looking_into(source, options) as (call, scratch):
        undecided = write_rules(source, rules, take, call, scratch)
    if undecided:
        lines_and_slices = {}
        for role, candidates in undecided.items():
            lines_and_slices[role] = [
                (candidate.line, candidate.slices) for candidate in candidates
            ]
        page_text = candidates_page(lines_and_slices)
        # By the mark a later call sees whether somebody has changed the page.
        write_atomic(page, marked(page_text, "<!--", "-->"), mode=0o600)
    else:
        page.unlink(missing_ok=True)
    lines = {}
    for role, candidates in undecided.items():
        lines[role] = [candidate.line for candidate in candidates]
    return lines


def page_of(rules: Path) -> Path:
    """Return the path of the page that shows the series from which a rules file has to choose."""
    return rules.with_name(f"{rules.name}.html")
