"""Check a cohort: find every problem that a run would meet, before the run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from cad.base.errors import CadError, refused
from cad.base.settings import ImageSettings, PipelineSettings
from cad.base.terms.sectors import SIDES
from cad.folders.cohort import Cohort, StudyRef, read_cohort
from cad.folders.cohort.twins import twins
from cad.mri.columns import columns_of
from cad.run.execution.options import HERE, ExecutionOptions
from cad.run.execution.pool import each
from cad.run.execution.progress import progress
from cad.run.execution.task import StudyOutcome
from cad.run.stages.study import failure_of, require_t1_of_the_field

if TYPE_CHECKING:
    from cad.mri.features.table import StudyFeatures
    from cad.mri.imaging.study import Study

# A note names no more than this number of studies.
_MOST_STUDIES = 5


def check(
    root: Path, options: ExecutionOptions = HERE, settings: PipelineSettings | None = None
) -> tuple[list[CadError], dict[str, list[str]]]:
    """Find every problem in a cohort's tables, images and regions, without starting a run.

    Parameters
    ----------
    root : Path
        Cohort folder.
    options : ExecutionOptions
        Number of processes, and limits; by default everything is done in this process without
        limits. A study whose check exceeds a limit is a problem, too.
    settings : PipelineSettings, optional
        A model's settings. If they are given, the features of the model are measured. Then every
        problem is found for which a prediction would leave out a study or a region.

    Returns
    -------
    problems : list of CadError
        Errors because of which a patient, a study or a region cannot be measured, or can be
        measured only in part.
    notes : dict of str to list of str
        Keys are remarks that are no errors, such as a missing or replaced image. Values are the ids
        of the studies to which the remark applies.
    """
    notes: dict[str, list[str]] = {}
    try:
        cohort = read_cohort(root)
    except CadError as error:
        return [error], notes
    problems = list(cohort.problems)
    for note in _remarks_on_labels(cohort):
        notes.setdefault(note, []).append(cohort.root.name)
    refs = cohort.studies()
    problems += twins(refs)
    results_of_studies: dict[str, tuple[list[CadError], list[str]]] = {}
    with progress(len(refs), n_unchanged=0, options=options) as tell:
        for checked in each(partial(check_study_of, settings=settings), refs, options):
            ref = checked.task
            fault = checked.fault
            if fault is not None:
                problem = CadError(
                    fault.reason, hint=fault.hint, file=ref.folder, patient=ref.participant_id
                )
                results_of_studies[ref.study_id] = [problem], []
            elif checked.result is not None:
                results_of_studies[ref.study_id] = checked.result
            # The progress only counts the study.
            tell(
                StudyOutcome(ref.study_id, "computed", why="", failures=[], seconds=checked.seconds)
            )
    # Studies are checked in any order, and reported in the order of the cohort.
    for ref in refs:
        problems_of_study, notes_of_study = results_of_studies[ref.study_id]
        problems += problems_of_study
        for note in notes_of_study:
            notes.setdefault(note, []).append(ref.study_id)
    return problems, notes


def model_settings(model: str) -> PipelineSettings:
    """Return the settings that a model measures with.

    Parameters
    ----------
    model : str
        Name of a released model, or a folder.
    """
    from cad.base.share import find
    from cad.run.model.bundle import load_bundle
    from cad.run.stages.predict import shared_settings

    return shared_settings([load_bundle(find("models", model))])


def check_study_of(
    ref: StudyRef, settings: PipelineSettings | None = None
) -> tuple[list[CadError], list[str]]:
    """Find the problems of one study.

    Parameters
    ----------
    ref : StudyRef
        The study.
    settings : PipelineSettings, optional
        A model's settings. If they are given, the features of the model are measured, too, unless
        values of the study are implausible.

    Returns
    -------
    problems : list of CadError
        Errors because of which the study or a region cannot be measured.
    notes : list of str
        Remarks that are no errors: on missing or replaced images and, if nothing was measured, on
        regions that cannot be measured in one of the images.
    """
    from cad.mri.features.table import extract
    from cad.mri.imaging.displacement_search import with_displacements
    from cad.mri.imaging.plausibility import implausible, site_ranges
    from cad.mri.imaging.prepare import prepare_study
    from cad.mri.imaging.study import Roi
    from cad.mri.imaging.study_files import (
        check_study,
        lost_images,
        lost_sidecars,
        misnamed_images,
        read_study,
        unreached_regions,
    )

    # These checks use the names of files alone. A file that is missing or misspelt leaves no trace
    # in the study that is read below.
    problems = [
        *lost_images(ref.folder),
        *lost_sidecars(ref.folder),
        *misnamed_images(ref.folder, ref.study_id),
    ]
    problems = [problem.naming(patient=ref.participant_id) for problem in problems]
    rois = [Roi(str(row.roi_id), int(row.label), str(row.zone)) for row in ref.rois.itertuples()]
    images = settings.images if settings else ImageSettings()
    modalities = settings.features.modalities if settings else ()
    # Registration will move images to where T2 shows the same tissue. So the place in which they
    # lie now need not be plausible.
    will_be_registered = images.registration != "none"
    try:
        study = with_displacements(read_study(ref.folder, ref.study_id, ref.participant_id, rois))
        ranges = site_ranges(ref.folder, registered=will_be_registered)
        implausible_values = implausible(study, ranges)
        problems += implausible_values
        prepared, _ = prepare_study(study, images, modalities)
        problems += wrong_sides(prepared, ref.rois)
        # A prediction would refuse a study with implausible values, so it need not be measured.
        if settings is not None and not implausible_values:
            # The settings may assume the T1 of another field strength than the scanner's. The
            # features of the dynamic series would then be wrong, and an error is raised.
            require_t1_of_the_field(prepared, settings)
            # check_study() is not called, because measuring reports the same problems.
            measured = extract(prepared, settings)
            problems += [*measured.failures, *_lacks(ref, measured, settings)]
            return problems, _notes_on_images(prepared)
    except CadError as error:
        return [*problems, error], []
    except OSError as error:
        return [*problems, refused(error).naming(patient=ref.participant_id, file=ref.folder)], []
    # Nothing was measured, so the regions are checked by themselves.
    notes = [*_notes_on_images(prepared), *unreached_regions(prepared)]
    return [*problems, *check_study(prepared)], notes


def _notes_on_images(study: Study) -> list[str]:
    """Return notes on optional images and masks that a study lacks, and on replaced images."""
    notes = [*study.missing_notes, *study.notes]
    if not study.gland:
        notes.append(
            "no gland mask: T2 is scaled by a box about the regions, no region gets a place"
        )
    return notes


def wrong_sides(study: Study, rois: pd.DataFrame) -> list[CadError]:
    """Find regions whose mask is on the other side of the gland than their sector in ``rois.tsv``.

    Parameters
    ----------
    study : Study
        The study, with a gland mask that tells left from right.
    rois : DataFrame
        Rows of ``rois.tsv`` with ``roi_id, label, sector``.

    Returns
    -------
    list of CadError
        An error for each such region; empty without a gland mask.
    """
    from cad.mri.features.place import place_of
    from cad.mri.imaging.drawn import gland_on

    gland = gland_on(study)
    if gland is None or study.roi_map is None or "sector" not in rois:
        return []
    problems = []
    for row in rois[rois["sector"].notna()].itertuples():
        region = study.roi_map.array == int(row.label)
        place = place_of(gland, region) if region.any() else None
        stated_side = str(row.sector).split(" ", 1)[0]  # the first word of the sector
        # A region on the midline of the gland is on neither side. So it cannot contradict the side
        # that ``rois.tsv`` states.
        if place is not None and place.side in SIDES and place.side != stated_side:
            problems.append(
                CadError(
                    f"the sector says {row.sector}, the mask lies on the {place.side}",
                    patient=study.participant_id,
                    roi=str(row.roi_id),
                    hint="correct the sector, or the mask's orientation",
                )
            )
    return problems


def _lacks(ref: StudyRef, measured: StudyFeatures, settings: PipelineSettings) -> list[CadError]:
    """Return an error for each region or study that a model cannot score.

    Each message is the one that a prediction by this model would give.
    """
    from cad.run.model.gaps import lacking, reasons

    features = settings.features
    images_of_rows = lacking(measured.rows, features.modalities, columns_of(features))
    lacks = {row: images for row, images in enumerate(images_of_rows) if images}
    failures = [
        failure_of(error, ref.participant_id, ref.study_id, "measure")
        for error in measured.failures
    ]
    keys = measured.rows.assign(study_id=ref.study_id)
    # A set, because a reason that concerns the whole study comes for each of its regions.
    problems_and_rois = set()
    for row, reason in reasons(lambda _: measured.gaps, keys, lacks, failures).items():
        problem = f"the model needs {' and '.join(lacks[row])} features and {reason}"
        roi = "" if reason.startswith("this study") else str(keys["roi_id"].iloc[row])
        problems_and_rois.add((problem, roi))
    return [
        CadError(problem, patient=ref.participant_id, roi=roi)
        for problem, roi in sorted(problems_and_rois)
    ]


def _remarks_on_labels(cohort: Cohort) -> list[str]:
    """Return remarks on what the commands ``run`` and ``train`` need and the cohort lacks."""
    remarks = []
    has_labels = len(cohort.scores) or cohort.rois["histology"].notna().any()
    if len(cohort.rois) and not has_labels:
        remarks.append(
            "no region has a score or a histology: run and train have nothing to learn from"
        )
    is_malignant = cohort.rois["histology"] == "malignant"
    is_ungraded = is_malignant & cohort.rois["isup"].isna()
    if is_ungraded.any():
        n_ungraded = is_ungraded.sum()
        remarks.append(
            f"{n_ungraded} malignant regions without a grade: labels.isup_min decides on them"
        )
    if (cohort.scores["scale"] == "pirads").any():
        remarks.append("scores on the PI-RADS scale: labels.pirads_probability says what they mean")
    return remarks


def check_text(root: Path, problems: list[CadError], notes: dict[str, list[str]]) -> str:
    """Return problems and notes as lines for a terminal.

    Parameters
    ----------
    root : Path
        The cohort.
    problems, notes : list, dict
        Results of :func:`check`.
    """
    lines = [str(problem) for problem in problems] or [f"{root}: no problem found"]
    for note, studies in notes.items():
        n_further = len(studies) - _MOST_STUDIES
        further = f" and {n_further} more" if n_further > 0 else ""
        lines.append(f"note: {note}: {', '.join(studies[:_MOST_STUDIES])}{further}")
    return "\n".join(lines)
