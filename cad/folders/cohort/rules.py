"""Check the rows of a cohort's tables, and collect an error for every broken rule."""

import re
from pathlib import Path

import pandas as pd

from cad.base.errors import CadError
from cad.base.terms.beside import table_beside
from cad.base.terms.grades import grade_range, grade_text
from cad.base.terms.sectors import SECTOR_NAMES
from cad.learning.labels.scales import check_score

ZONES = ("PZ", "TZ", "CZ", "AFS")
HISTOLOGY = ("malignant", "benign")

_PARTICIPANT = re.compile(r"sub-[A-Za-z0-9]+")
_SESSION = re.compile(r"ses-[A-Za-z0-9]+")
_PLAUSIBLE: dict[str, list[float]] = table_beside(__file__)["plausible"]
_MALE = ("m", "male", "o", "n/a")  # values of ``sex`` that do not contradict a prostate; o is other
_LARGEST_LABEL = 2**31 - 1  # the largest number of a label map's type (int32)
_STRANGER = "the patient is not in participants.tsv"
_Rule = tuple[pd.Series, str]
"""A rule for rows of a table: a series that is True for rows that break the rule, and a message.

In the message about a row, each name of a column in braces is replaced by the row's cell.
"""


def check_participants(root: Path, table: pd.DataFrame, problems: list[CadError]) -> None:
    """Collect the faults of the rows of ``participants.tsv``.

    Parameters
    ----------
    root : Path
        The cohort folder, in which every patient has a folder of images.
    table : DataFrame
        The table as text. Optional columns: ``sex``, ``age`` in years, ``psa`` in ng/mL,
        ``psa_density`` in ng/mL2 and ``prostate_volume`` in mL.
    problems : list of CadError
        An error is appended for each row and each rule that the row breaks.

    Raises
    ------
    CadError
        For a ``participant_id`` that is not ``sub-`` with letters and digits. This error is raised
        and not collected, because the row names no patient.
    """
    path = root / "participants.tsv"
    for patient in table["participant_id"]:
        # A participant_id becomes the name of a folder. With a slash or dots in it, the path could
        # lead out of the cohort.
        if not _PARTICIPANT.fullmatch(patient):
            raise CadError(
                f"participant_id {patient!r} is not sub- and letters or digits", file=path
            )
        if not (root / patient).is_dir():
            problems.append(
                CadError("the patient has no image folder", file=root / patient, patient=patient)
            )
    _check_patient_values(path, table, problems)
    sexes = table["sex"].dropna().astype(str) if "sex" in table else pd.Series(dtype=str)
    for row in sexes.index[~sexes.str.lower().isin(_MALE)]:
        message = f"sex {sexes[row]!r}: a prostate is a man's"
        problems.append(CadError(message, file=path, patient=table.at[row, "participant_id"]))
    for patient in table["participant_id"][table["participant_id"].duplicated()].unique():
        problems.append(CadError("the patient is listed twice", file=path, patient=patient))


def _check_patient_values(path: Path, table: pd.DataFrame, problems: list[CadError]) -> None:
    """Add a problem for each impossible value of age, PSA, PSA density or prostate volume."""
    for column, (low, high) in _PLAUSIBLE.items():
        cells = table[column].dropna() if column in table else pd.Series(dtype=object)
        # A text that is no number becomes NaN, which lies between no limits.
        values = pd.to_numeric(cells, errors="coerce")
        for row in cells.index[~values.between(low, high)]:
            message = f"{column} {cells[row]} is no man's: {low:g} to {high:g} is allowed, or n/a"
            problems.append(CadError(message, file=path, patient=table.at[row, "participant_id"]))


def check_sessions(
    root: Path, table: pd.DataFrame, participant_ids: set[str], problems: list[CadError]
) -> pd.DataFrame:
    """Collect the faults of the rows of ``sessions.tsv``, and return the table with numbers.

    Parameters
    ----------
    root : Path
        The cohort folder, for messages.
    table : DataFrame
        ``participant_id`` and ``session_id`` as text. Optional columns: ``psa`` in ng/mL,
        ``psa_density`` in ng/mL2 and ``prostate_volume`` in mL, as measured at that study.
    participant_ids : set of str
        The patients of ``participants.tsv``.
    problems : list of CadError
        An error is appended for each row and each rule that the row breaks.

    Returns
    -------
    DataFrame
        A copy; values that are impossible or no number are NaN.
    """
    path = root / "sessions.tsv"
    is_stranger = ~table["participant_id"].isin(participant_ids)
    is_unnamed = ~table["session_id"].fillna("").astype(str).str.fullmatch(_SESSION.pattern)
    is_repeated = table.duplicated(["participant_id", "session_id"])
    rules: list[_Rule] = [
        (is_stranger, _STRANGER),
        (is_unnamed, "session_id {session_id!r} is not ses- and letters or digits"),
        (is_repeated, "session {session_id} is listed twice"),
    ]
    _apply(rules, table, path, problems)
    _check_patient_values(path, table, problems)
    return _typed_men(path, table, problems)


DENSITY_OFF = 0.25
DENSITY_ROUNDED = 0.02
"""Allowed differences between a stated PSA density and the quotient PSA / prostate volume.

A stated density contradicts the quotient only if it differs by more than DENSITY_OFF times the
quotient and also by more than DENSITY_ROUNDED (ng/mL2).
"""


def typed_participants(root: Path, table: pd.DataFrame, problems: list[CadError]) -> pd.DataFrame:
    """Return ``participants.tsv`` with age, PSA, PSA density and prostate volume as numbers.

    Parameters
    ----------
    root : Path
        The cohort folder, for messages.
    table : DataFrame
        The table as text; not changed.
    problems : list of CadError
        An error is appended for each patient whose PSA density contradicts PSA / prostate volume.

    Returns
    -------
    DataFrame
        A copy; values that are impossible or no number are NaN.
    """
    return _typed_men(root / "participants.tsv", table, problems)


def _typed_men(path: Path, table: pd.DataFrame, problems: list[CadError]) -> pd.DataFrame:
    """Return a table with age, PSA, PSA density and prostate volume as numbers instead of text.

    A number that is impossible, or a text that is no number, becomes NaN. For each PSA density that
    contradicts PSA / prostate volume, an error is added to the problems.
    """
    out = table.copy()
    for name in _PLAUSIBLE.keys() & set(table.columns):
        values = pd.to_numeric(table[name], errors="coerce").astype(float)
        out[name] = values.where(values.between(*_PLAUSIBLE[name]))
    if {"psa", "psa_density", "prostate_volume"} <= set(out.columns):
        derived_density = out["psa"] / out["prostate_volume"]
        difference = (out["psa_density"] - derived_density).abs()
        contradicts = (difference > DENSITY_ROUNDED) & (difference > DENSITY_OFF * derived_density)
        for row in out.index[contradicts]:
            problems.append(
                CadError(
                    f"psa_density {out.at[row, 'psa_density']:g} contradicts psa "
                    f"{out.at[row, 'psa']:g} / prostate_volume {out.at[row, 'prostate_volume']:g} "
                    f"= {derived_density[row]:.3g} ng/mL2",
                    file=path,
                    patient=out.at[row, "participant_id"],
                    hint="one of the three is wrong; write n/a for it",
                )
            )
    return out


def check_rois(
    root: Path, rois: pd.DataFrame, participant_ids: set[str], problems: list[CadError]
) -> None:
    """Collect the faults of the rows of ``rois.tsv``.

    Parameters
    ----------
    root : Path
        The cohort folder, for messages.
    rois : DataFrame
        Columns ``participant_id, roi_id, zone, histology, isup`` as text, ``label`` as a number;
        ``session_id`` and ``sector`` are optional.
    participant_ids : set of str
        The patients of ``participants.tsv``.
    problems : list of CadError
        An error is appended for each row and each rule that the row breaks.
    """
    session = rois["session_id"] if "session_id" in rois else pd.Series("", index=rois.index)
    session = session.fillna("")
    sector = rois["sector"] if "sector" in rois else pd.Series(None, index=rois.index, dtype=object)
    # The last word of a sector's name begins with its zone: the sector 'left mid PZpl' lies in the
    # zone PZ. For the zones CZ and AFS the last word is the zone alone.
    zone_of_sector = sector.astype("string").str.split(" ").str[-1].str.slice(0, 3)
    zone_of_sector = zone_of_sector.where(zone_of_sector == "AFS", zone_of_sector.str.slice(0, 2))
    label = rois["label"]
    # A man must not have two regions with the same roi_id. A study must not have two regions with
    # the same label (value in the label map); another session of the man has its own label map.
    same_id = rois.duplicated(["participant_id", "roi_id"])
    same_label = rois.assign(session=session).duplicated(["participant_id", "session", "label"])
    ranges = [grade_range(grade_text(cell)) for cell in rois["isup"]]
    lowest = pd.Series([low for low, _ in ranges], index=rois.index, dtype=int)
    highest = pd.Series([high for _, high in ranges], index=rois.index, dtype=int)
    is_sector = sector.isin(SECTOR_NAMES)
    is_zone = rois["zone"].isin(ZONES)
    is_label = label.between(1, _LARGEST_LABEL) & (label == label.round())
    rules: list[_Rule] = [
        (~rois["participant_id"].isin(participant_ids), _STRANGER),
        # A row that is listed twice has the same label twice, too. Only the first fault is told.
        (same_id, "the ROI is listed twice"),
        (same_label & ~same_id, "label {label:g} is used by two ROIs of this study"),
        (~is_label, "label must be a positive integer, found {label:g}"),
        (rois["zone"].notna() & ~is_zone, "zone {zone!r} is none of PZ TZ CZ AFS n/a"),
        (
            sector.notna() & ~is_sector,
            "sector {sector!r} is no side, level and sector of PI-RADS v2.1, as 'left mid PZpl'",
        ),
        (
            is_zone & is_sector & (rois["zone"] != zone_of_sector),
            "zone {zone} contradicts sector {sector!r}",
        ),
        (
            rois["histology"].notna() & ~rois["histology"].isin(HISTOLOGY),
            "histology {histology!r} is none of malignant benign n/a",
        ),
        # ISUP grade 0 means tissue without cancer. Grade 1 is cancer and contradicts 'benign', even
        # if the site counts only higher grades as significant.
        (
            (lowest >= 1) & (rois["histology"] == "benign"),
            "histology benign contradicts isup {isup}",
        ),
        (
            (highest == 0) & (rois["histology"] == "malignant"),
            "histology malignant contradicts isup {isup}",
        ),
        (
            (session != "") & ~session.str.fullmatch(_SESSION.pattern),
            "session_id {session_id!r} is not ses- and letters or digits",
        ),
    ]
    _apply(rules, rois, root / "rois.tsv", problems)


def check_grades_of_men(
    root: Path, participants: pd.DataFrame, rois: pd.DataFrame, problems: list[CadError]
) -> None:
    """Collect the men whose stated highest grade is lower than the grade of one of their regions.

    Parameters
    ----------
    root : Path
        The cohort folder, for messages.
    participants, rois : DataFrame
        Rows of ``participants.tsv`` and ``rois.tsv``. Without a column ``isup`` in
        ``participants.tsv`` nothing is checked.
    problems : list of CadError
        An error is appended for each region that contradicts its man.
    """
    if "isup" not in participants:
        return
    highest_of_man = {}
    for patient, cell in zip(participants["participant_id"], participants["isup"], strict=True):
        highest_of_man[patient] = grade_range(grade_text(cell))[1]
    for row in rois.to_dict("records"):
        least_grade = grade_range(grade_text(row["isup"]))[0]
        # Cancer without a stated grade is of grade 1 or more.
        if row["histology"] == "malignant":
            least_grade = max(least_grade, 1)
        patient = row["participant_id"]
        if patient in highest_of_man and least_grade > highest_of_man[patient]:
            problems.append(
                CadError(
                    f"the region is of isup {least_grade} or more, participants.tsv states at most "
                    f"{highest_of_man[patient]} for the whole man",
                    file=root / "participants.tsv",
                    patient=patient,
                    roi=row["roi_id"],
                    hint="a man's grade is the highest anywhere in him; write n/a if unknown",
                )
            )


def check_scores(
    root: Path,
    scores: pd.DataFrame,
    rois: pd.DataFrame,
    participant_ids: set[str],
    readers: set[str],
    problems: list[CadError],
) -> None:
    """Collect the faults of the rows of ``scores.tsv``.

    Parameters
    ----------
    root : Path
        The cohort folder, for messages.
    scores : DataFrame
        Columns ``participant_id, roi_id, reader_id, scale``, and ``score`` as a number, NaN where
        missing.
    rois : DataFrame
        Rows of ``rois.tsv``: the regions that may be scored.
    participant_ids, readers : set of str
        The patients of ``participants.tsv`` and the readers of ``readers.tsv``.
    problems : list of CadError
        An error is appended for each row and each rule that the row breaks.
    """
    # Each pair of scale and score is checked once, because a table has many rows and few pairs.
    distinct = scores[["scale", "score"]].drop_duplicates()
    problem_of_score = [
        _score_problem(scale, score) for scale, score in distinct.itertuples(index=False)
    ]
    scores = scores.merge(distinct.assign(wrong=problem_of_score), how="left")
    region_of_score = pd.MultiIndex.from_frame(scores[["participant_id", "roi_id"]])
    regions = pd.MultiIndex.from_frame(rois[["participant_id", "roi_id"]])
    is_participant = scores["participant_id"].isin(participant_ids)
    rules: list[_Rule] = [
        (~is_participant, _STRANGER),
        (
            is_participant & ~region_of_score.isin(regions),
            "scores for a ROI that is not in rois.tsv",
        ),
        (~scores["reader_id"].isin(readers), "reader {reader_id} is not in readers.tsv"),
        (
            scores.duplicated(["participant_id", "roi_id", "reader_id"]),
            "reader {reader_id} scored this ROI twice",
        ),
        (scores["wrong"] != "", "{wrong}"),
    ]
    _apply(rules, scores, root / "scores.tsv", problems)


def _score_problem(scale: object, score: float) -> str:
    """Return what is wrong with a score on its scale; an empty text if nothing is."""
    if pd.isna(score):  # the reader gave no score, which is allowed
        return ""
    try:
        check_score(str(scale), score)
    except CadError as error:
        return str(error)
    return ""


def _apply(rules: list[_Rule], table: pd.DataFrame, path: Path, problems: list[CadError]) -> None:
    """Add a problem for each row that breaks a rule."""
    for breaks_rule, message in rules:
        for _, row in table[breaks_rule].iterrows():
            problem = message.format_map(row)
            region = row.get("roi_id", "")  # a table of sessions has no regions
            problems.append(CadError(problem, file=path, patient=row["participant_id"], roi=region))
