"""Compare the latest study of a man with the study before it, for the reader of his page.

No decision depends on this comparison. Its table ``earlier.csv`` says which studies are compared,
how their images were aligned and which regions are near each other. Sizes and probabilities of the
regions are in other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.folders.cohort import StudyRef
from cad.folders.cohort.men import men_stated
from cad.folders.run_folder import RunFolder, records
from cad.folders.run_folder.results import read_earlier
from cad.folders.run_folder.schema import NEAR_MM
from cad.folders.run_folder.study_file import study_date
from cad.folders.run_folder.tables import EarlierRow
from cad.run.execution.pool import each
from cad.run.stages.extract import Measured
from cad.run.stages.load import Loaded

_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})")
_FAILED = "failed"


@dataclass(frozen=True)
class Pair:
    """Hold the two studies of a man that are compared.

    Parameters
    ----------
    latest, earlier : StudyRef
        The man's latest study and the study before it.
    order : str
        How the latest study is recognised: by ``date`` or by ``session``.
    """

    latest: StudyRef
    earlier: StudyRef
    order: str


def has_pairs(measured: Measured) -> bool:
    """Tell whether any man has several measured studies. If so, the run gets a file
    ``earlier.csv``.

    Parameters
    ----------
    measured : Measured
        Result of measuring the cohort.

    Returns
    -------
    bool
        True if at least one man has two or more measured studies.
    """
    return bool(_men_with_several_studies(measured))


def of_latest_study(
    folder: RunFolder, keys: pd.DataFrame, studies: Iterable[StudyRef]
) -> np.ndarray:
    """Tell which regions are of the latest study of their man.

    If a man's latest study could not be measured, it has no region here. Then no region of this man
    counts as one of his latest study, so that an earlier study does not take its place unnoticed.

    Parameters
    ----------
    folder : RunFolder
        The run, whose study files have the dates of studies.
    keys : DataFrame, shape (n, ...)
        ``participant_id, study_id``, one row per region.
    studies : iterable of StudyRef
        All studies of the cohort. Where it is empty, as for a user's own table, only the studies of
        ``keys`` count.

    Returns
    -------
    ndarray of bool, shape (n,)
        Whether each row is of the latest study; True in every row of a man with one study.

    Examples
    --------
    A table names two studies of one man without their dates:

    >>> from pathlib import Path
    >>> import pandas as pd
    >>> studies = ["sub-1_ses-1", "sub-1_ses-2", "sub-2"]
    >>> keys = pd.DataFrame({"participant_id": ["sub-1", "sub-1", "sub-2"], "study_id": studies})
    >>> of_latest_study(RunFolder(Path("run")), keys, []).tolist()
    [False, True, True]
    """
    patients_and_studies = list(zip(keys["participant_id"], keys["study_id"], strict=True))
    # A study that could not be measured has no row in ``keys``, but may be the man's latest.
    patients_and_studies += [(ref.participant_id, ref.study_id) for ref in studies]
    studies_of_men: dict[str, list[str]] = {}
    for patient, study in patients_and_studies:
        studies_of_man = studies_of_men.setdefault(patient, [])
        if study not in studies_of_man:
            studies_of_man.append(study)
    latest_of_men = {}
    for patient, studies_of_man in studies_of_men.items():
        dates = {}
        for study in studies_of_man:
            # A single study is the latest without a date, so its file need not be read. A study
            # that failed has no file, and so no date is known. The same holds for the studies of a
            # user's own table.
            if len(studies_of_man) > 1 and folder.study(study).is_file():
                dates[study] = study_date(folder, study)
        earliest_first, _ = in_order(studies_of_man, dates)
        latest_of_men[patient] = earliest_first[-1]
    is_latest = keys["study_id"] == keys["participant_id"].map(latest_of_men)
    return np.asarray(is_latest, dtype=bool)


def compare_earlier(loaded: Loaded, measured: Measured) -> list[EarlierRow]:
    """Compare the latest study of every man with the study before it.

    Comparisons of an earlier run into the folder are kept where neither study changed. A comparison
    that fails becomes rows that say why, and changes no other result.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        Results of the stages ``load`` and ``measure``. Studies that could not be measured are left
        out.

    Returns
    -------
    list of EarlierRow
        Rows in the order of the cohort. For each man the regions of his latest study come first,
        then the regions of the earlier study that are near none of these.
    """
    pairs = _pairs_of_studies(loaded, measured)
    if not pairs:
        return []
    rows_of_men = _rows_still_current(loaded, measured, pairs)
    pairs_to_compare = [pair for pair in pairs if pair.latest.participant_id not in rows_of_men]
    for comparison in each(compare_pair, pairs_to_compare, loaded.options):
        patient = comparison.task.latest.participant_id
        # The process that compares may end or exceed a limit. Then there is a fault and no result.
        if comparison.fault is not None or comparison.result is None:
            reason = "no result" if comparison.fault is None else comparison.fault.reason
            rows_of_men[patient] = _rows_of_failed_pair(comparison.task, reason)
        else:
            rows_of_men[patient] = comparison.result
    return _in_cohort_order(loaded, pairs, rows_of_men)


def compare_pair(pair: Pair) -> list[EarlierRow]:
    """Align the T2 images of two studies of a man, and find the earlier region near each region.

    Parameters
    ----------
    pair : Pair
        The two studies.

    Returns
    -------
    list of EarlierRow
        Rows of ``earlier.csv`` whose fields for PSA are still empty. Where the images cannot be
        read or aligned, the rows say so.
    """
    try:
        return _compared_regions(pair)
    except CadError as error:
        return _rows_of_failed_pair(pair, error.problem)
    except OSError as error:
        return _rows_of_failed_pair(pair, str(error))


def in_order(studies: Sequence[str], dates: Mapping[str, str]) -> tuple[list[str], str]:
    """Sort the studies of a man, the earliest first.

    Parameters
    ----------
    studies : sequence of str
        Ids of the studies, ``sub-XXX_ses-YY``.
    dates : mapping of str to str
        Date of each study, ``2024-05-31`` or ``20240531``; empty where it is not known.

    Returns
    -------
    studies : list of str
        The studies. They are sorted by date if every date is known and no two are equal. Otherwise
        they are sorted by the label of the session, in which ``2`` comes before ``10``.
    order : str
        ``date`` or ``session``.

    Examples
    --------
    >>> in_order(["sub-1_ses-10", "sub-1_ses-2"], {})
    (['sub-1_ses-2', 'sub-1_ses-10'], 'session')
    """
    days = {}
    for study in studies:
        match = _DATE.fullmatch(dates.get(study, ""))
        if match is not None:
            # Year, month and day, as text of fixed width. Sorted as text, days are in order.
            days[study] = match.groups()
    every_date_is_known = len(days) == len(studies)
    # Dates cannot say which of two studies of one day is the later one.
    no_two_are_equal = len(set(days.values())) == len(days)
    if every_date_is_known and no_two_are_equal:
        return sorted(studies, key=lambda study: days[study]), "date"
    return sorted(studies, key=_sort_key_of_id), "session"


def _sort_key_of_id(study: str) -> list[tuple[int, str]]:
    """Return a key that sorts ids by the value of their numbers: ``ses-2`` before ``ses-10``."""
    sort_key = []
    for piece in re.findall(r"\d+|\D+", study):
        # Every piece becomes a number and a text, because Python cannot compare a number with a
        # text. The number -1 sorts words before numbers.
        sort_key.append((int(piece), piece) if piece.isdigit() else (-1, piece))
    return sort_key


def _men_with_several_studies(measured: Measured) -> dict[str, list[str]]:
    """Return the measured studies of every man who has more than one measured study."""
    studies_of_men: dict[str, list[str]] = {}
    for outcome in measured.outcomes:
        patient, session_mark, _ = outcome.study_id.partition("_ses-")
        # An id without a session is that of a man's only study.
        if session_mark and outcome.status != _FAILED:
            studies_of_men.setdefault(patient, []).append(outcome.study_id)
    return {patient: ids for patient, ids in studies_of_men.items() if len(ids) > 1}


def _pairs_of_studies(loaded: Loaded, measured: Measured) -> list[Pair]:
    """Return for every man with several studies the latest study and the study before it."""
    studies_of_men = _men_with_several_studies(measured)
    if not studies_of_men:  # true of most cohorts, whose studies then need not be listed again
        return []
    refs = {ref.study_id: ref for ref in loaded.cohort.studies()}
    pairs = []
    for studies in studies_of_men.values():
        dates = {}
        for study in studies:
            dates[study] = study_date(loaded.folder, study)
        earliest_first, order = in_order(studies, dates)
        earlier, latest = earliest_first[-2:]
        pairs.append(Pair(latest=refs[latest], earlier=refs[earlier], order=order))
    return pairs


def _rows_still_current(
    loaded: Loaded, measured: Measured, pairs: Sequence[Pair]
) -> dict[str, list[EarlierRow]]:
    """Return, by man, the rows of an earlier run that need not be computed again.

    Each row compares a man's two latest studies. It is kept if both studies are the same as in the
    earlier run and have not changed since.
    """
    if not loaded.options.resume:
        return {}
    try:
        rows_of_men = read_earlier(loaded.folder)
        # Where the record has no hashes of inputs, no study counts as unchanged.
        input_hashes_before = records.read_record(loaded.folder).get("inputs") or {}
    except CadError:  # the folder holds no finished run, so all pairs of studies are compared
        return {}
    input_hashes = {outcome.study_id: outcome.key for outcome in measured.outcomes}
    current_rows = {}
    for pair in pairs:
        patient = pair.latest.participant_id
        rows = rows_of_men.get(patient, [])
        is_current = bool(rows)
        for ref in (pair.latest, pair.earlier):
            input_hash = input_hashes[ref.study_id]
            # The hash is empty where the study's files could not be read.
            if not input_hash or input_hashes_before.get(ref.study_id) != input_hash:
                is_current = False
        for row in rows:
            compares_latest = row.study_id == pair.latest.study_id
            with_study_before = row.earlier_study_id == pair.earlier.study_id
            # A comparison that failed is tried again.
            if not (compares_latest and with_study_before) or row.alignment == _FAILED:
                is_current = False
        if is_current:
            current_rows[patient] = rows
    return current_rows


def _in_cohort_order(
    loaded: Loaded, pairs: Sequence[Pair], rows_of_men: Mapping[str, list[EarlierRow]]
) -> list[EarlierRow]:
    """Return the rows of all men in the order of the cohort, with order of studies and PSA set.

    Order and PSA are set anew in every row. In a row that is kept from an earlier run they may be
    out of date, because the cohort's tables may have changed since. A new row has no PSA yet.
    """
    rows = []
    # The comparisons of studies become ready in any order. Their rows are put into the order of
    # ``pairs``, which is the order of the cohort.
    for pair in pairs:
        stated = _stated_psa(loaded, pair.earlier)
        for row in rows_of_men[pair.latest.participant_id]:
            rows.append(
                replace(
                    row,
                    order=pair.order,
                    earlier_psa=stated["psa"],
                    earlier_psa_density=stated["psa_density"],
                )
            )
    return rows


def _compared_regions(pair: Pair) -> list[EarlierRow]:
    """Align the images of two studies and return their rows of ``earlier.csv``.

    An error of reading or aligning is raised.
    """
    from cad.mri.imaging.earlier import align_earlier, nearest_regions, region_centres
    from cad.mri.imaging.study import Roi
    from cad.mri.imaging.study_files import read_drawings

    studies = []
    for ref in (pair.latest, pair.earlier):
        rois = []
        for row in ref.rois.itertuples():
            rois.append(Roi(str(row.roi_id), int(row.label)))
        studies.append(read_drawings(ref.folder, ref.study_id, ref.participant_id, rois))
    latest, earlier = studies
    alignment = align_earlier(earlier, latest)
    # Displacement and angle are None where no alignment was searched.
    moved_mm = None if alignment.moved_mm is None else round(alignment.moved_mm, 1)
    turned_deg = None if alignment.turned_deg is None else round(alignment.turned_deg, 1)
    row_without_region = replace(
        _row_of_pair(pair, alignment.state),
        moved_mm=moved_mm,
        turned_deg=turned_deg,
    )
    # Without a trusted alignment nobody knows which regions are near each other.
    if alignment.state != "aligned":
        return _rows_without_match(pair, row_without_region)
    matches = nearest_regions(
        region_centres(latest), region_centres(earlier), alignment.matrix, limit_mm=NEAR_MM
    )
    rows = []
    matched_earlier_ids = set()
    for roi in latest.rois:
        match = matches.get(roi.roi_id)
        row = replace(row_without_region, roi_id=roi.roi_id)
        if match is not None:
            matched_earlier_ids.add(match.roi_id)
            distance_mm = round(match.distance_mm, 1)
            row = replace(row, earlier_roi_id=match.roi_id, distance_mm=distance_mm)
        rows.append(row)
    for roi in earlier.rois:
        if roi.roi_id not in matched_earlier_ids:
            rows.append(replace(row_without_region, earlier_roi_id=roi.roi_id))
    return rows


def _rows_of_failed_pair(pair: Pair, reason: str) -> list[EarlierRow]:
    row_without_region = replace(_row_of_pair(pair, _FAILED), alignment_note=reason)
    return _rows_without_match(pair, row_without_region)


def _rows_without_match(pair: Pair, row_without_region: EarlierRow) -> list[EarlierRow]:
    """Return a row for each region of the latest study, with no earlier region beside it."""
    return [replace(row_without_region, roi_id=str(roi)) for roi in pair.latest.rois["roi_id"]]


def _row_of_pair(pair: Pair, alignment: str) -> EarlierRow:
    """Return a row of ``earlier.csv`` that holds a pair of studies and no region."""
    return EarlierRow(
        participant_id=pair.latest.participant_id,
        study_id=pair.latest.study_id,
        roi_id="",
        earlier_study_id=pair.earlier.study_id,
        earlier_roi_id="",
        distance_mm=None,
        order=pair.order,
        alignment=alignment,
        moved_mm=None,
        turned_deg=None,
        alignment_note="",
        earlier_psa=None,
        earlier_psa_density=None,
    )


def _stated_psa(loaded: Loaded, ref: StudyRef) -> dict[str, float | None]:
    """Return PSA and PSA density of a study from ``sessions.tsv``; None where unknown."""
    sessions = loaded.cohort.sessions
    rows = sessions[
        (sessions["participant_id"] == ref.participant_id)
        & (sessions["session_id"] == ref.session_id)
    ]
    stated: dict[str, float | None] = {"psa": None, "psa_density": None}
    if rows.empty:
        return stated
    # The row of a man and session has the same columns as a row of ``participants.tsv``. So the
    # function for that table also computes the PSA density here.
    values = men_stated(rows, loaded.settings.labels.isup_min).iloc[0]
    for name in stated:
        if pd.notna(values[name]):
            stated[name] = float(values[name])
    return stated
