"""Check: every problem of a cohort that a run would meet, before it does."""

from __future__ import annotations

from pathlib import Path

from cad.cohort import Cohort, StudyRef, read_cohort
from cad.errors import CadError, refused
from cad.execution.options import HERE, ExecutionOptions
from cad.execution.pool import each
from cad.execution.progress import progress
from cad.execution.task import StudyOutcome
from cad.settings import ImageSettings


def check(
    root: Path, options: ExecutionOptions = HERE
) -> tuple[list[CadError], dict[str, list[str]]]:
    """Find every problem of a cohort: its tables, its images, its regions on every measured grid.

    Parameters
    ----------
    root : Path
        The cohort.
    options : ExecutionOptions
        How its studies are looked at; one that cannot be looked at is a problem of its own.

    Returns
    -------
    problems : list of CadError
        What keeps a patient, a study or a region from being measured, or a measurement incomplete.
    notes : dict of str to list of str
        What is missing or replaced without being wrong, and the studies that it holds for.
    """
    notes: dict[str, list[str]] = {}
    try:
        cohort = read_cohort(root)
    except CadError as error:
        return [error], notes
    problems = list(cohort.problems)
    for note in _to_learn_from(cohort):
        notes.setdefault(note, []).append(cohort.root.name)
    refs = cohort.studies()
    found: dict[str, tuple[list[CadError], list[str]]] = {}
    with progress(len(refs), 0, options) as tell:
        for done in each(check_study_of, refs, options):
            ref, fault = done.task, done.fault
            if fault is not None:
                where = {"file": ref.folder, "patient": ref.participant_id}
                found[ref.study_id] = [CadError(fault.reason, hint=fault.hint, **where)], []
            elif done.result is not None:
                found[ref.study_id] = done.result
            tell(StudyOutcome(ref.study_id, "computed", "", [], done.seconds))
    for ref in refs:
        own, said = found[ref.study_id]
        problems += own
        for note in said:
            notes.setdefault(note, []).append(ref.study_id)
    return problems, notes


def check_study_of(ref: StudyRef) -> tuple[list[CadError], list[str]]:
    """Return the problems of one study, and what is missing or replaced without being wrong."""
    from cad.imaging.plausibility import implausible, site_ranges
    from cad.imaging.prepare import prepare_study
    from cad.imaging.study import Roi
    from cad.imaging.study_files import check_study, lost_images, misnamed_images, read_study

    problems = [*lost_images(ref.folder), *misnamed_images(ref.folder, ref.study_id)]
    problems = [problem.at(patient=ref.participant_id) for problem in problems]
    rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
    try:
        study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
        problems += implausible(study, site_ranges(ref.folder))
        study, _ = prepare_study(study, ImageSettings())
    except CadError as error:
        return [*problems, error], []
    except OSError as error:
        return [*problems, refused(error).at(patient=ref.participant_id, file=ref.folder)], []
    return [*problems, *check_study(study)], [*study.missing_notes, *study.notes]


def _to_learn_from(cohort: Cohort) -> list[str]:
    """Return what ``run`` and ``train`` will miss, though ``predict`` will not."""
    said = []
    judged = len(cohort.scores) or cohort.rois["histology"].notna().any()
    if len(cohort.rois) and not judged:
        said.append(
            "no region has a score or a histology: run and train have nothing to learn from"
        )
    if (cohort.scores["scale"] == "pirads").any():
        said.append("scores on the PI-RADS scale: labels.pirads_probability says what they mean")
    return said


def check_text(root: Path, problems: list[CadError], notes: dict[str, list[str]]) -> str:
    """Return what :func:`check` found as lines for a terminal."""
    lines = [str(problem) for problem in problems] or [f"{root}: no problem found"]
    for note, studies in notes.items():
        more = f" and {len(studies) - 5} more" if len(studies) > 5 else ""
        lines.append(f"note: {note}: {', '.join(studies[:5])}{more}")
    return "\n".join(lines)
