"""Check: every problem of a cohort that a run would meet, before it does."""

from __future__ import annotations

from pathlib import Path

from cad.cohort import Cohort, read_cohort
from cad.errors import CadError
from cad.settings import ImageSettings


def check(root: Path) -> tuple[list[CadError], dict[str, list[str]]]:
    """Find every problem of a cohort: its tables, its images, its regions on every measured grid.

    Returns
    -------
    problems : list of CadError
        What keeps a patient, a study or a region from being measured, or a measurement incomplete.
    notes : dict of str to list of str
        What is missing or replaced without being wrong, and the studies that it holds for.
    """
    from cad.imaging.plausibility import implausible, site_ranges
    from cad.imaging.prepare import prepare_study
    from cad.imaging.study import Roi
    from cad.imaging.study_files import check_study, lost_images, misnamed_images, read_study

    notes: dict[str, list[str]] = {}
    try:
        cohort = read_cohort(root)
    except CadError as error:
        return [error], notes
    problems = list(cohort.problems)
    for note in _to_learn_from(cohort):
        notes.setdefault(note, []).append(cohort.root.name)
    for ref in cohort.studies():
        problems += [lost.at(patient=ref.participant_id) for lost in lost_images(ref.folder)]
        misnamed = misnamed_images(ref.folder, ref.study_id)
        problems += [name.at(patient=ref.participant_id) for name in misnamed]
        rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
        try:
            study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
            problems += implausible(study, site_ranges(ref.folder))
            study, _ = prepare_study(study, ImageSettings())
        except CadError as error:
            problems.append(error)
            continue
        problems += check_study(study)
        for note in [*study.missing_notes, *study.notes]:
            notes.setdefault(note, []).append(ref.study_id)
    return problems, notes


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
