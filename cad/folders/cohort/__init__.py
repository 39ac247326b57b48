"""Read, check and write a cohort folder: patients, regions, readers' scores and histology.

The names and folders of images follow the standard BIDS where BIDS covers such images. All other
content is in five tables. A problem that concerns one patient excludes this patient and is kept in
:attr:`Cohort.problems`. A problem that concerns the whole cohort raises an error.
"""

import csv
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import CONTROL, each_cell, harmless, write_atomic
from cad.base.reading import MAX_TABLE, read_bytes, read_frame, read_json, reading
from cad.base.terms.grades import grade_range, grade_text
from cad.base.transactions import FolderKind, is_ours, pending, settle
from cad.folders.cohort.patients import CHECK_FILE, KEY_FILE
from cad.folders.cohort.rules import (
    check_grades_of_men,
    check_participants,
    check_rois,
    check_scores,
    check_sessions,
    typed_participants,
)
from cad.learning.labels.scales import check_score
from cad.mri.imaging.makers import SIMULATOR
from cad.mri.imaging.plausibility import RANGES_FILE

MISSING = "n/a"

COLUMNS = {
    "participants": ("participant_id",),
    "readers": ("reader_id", "expert"),
    "rois": ("participant_id", "roi_id", "label", "zone", "histology", "isup"),
    "scores": ("participant_id", "roi_id", "reader_id", "scale", "score"),
}
"""Columns that each table must have, in their order."""
_NEEDED = {**COLUMNS, "sessions": ("participant_id", "session_id")}
"""Columns that each table must have, also those of ``sessions.tsv``, which a cohort may lack."""
# How often the tables are read anew before an import that keeps changing them is reported.
_TRIES = 50
_READING = re.compile(r"(sub-[A-Za-z0-9]+)/([^/=]+)/([^/=]+)=([0-9.]+)")


def _is_cohort(root: Path) -> bool:
    """Tell whether a folder is a cohort.

    A folder whose import was stopped before the first study counts as a cohort, too.
    """
    if (root / "dataset_description.json").is_file():
        return (root / "rois.tsv").is_file()
    key_folder = root / Path(KEY_FILE).parent  # an import makes this folder before the first file
    # Until then it holds nothing but hidden files of transactions.
    if key_folder.is_dir() and all(is_ours(path.name) for path in key_folder.iterdir()):
        return True
    return any((root / name).is_file() for name in (CHECK_FILE, KEY_FILE, RANGES_FILE))


COHORT = FolderKind("cohort", _is_cohort, marked=False)
_DESCRIPTION = {"Name": "cad cohort", "BIDSVersion": "1.9.0", "DatasetType": "raw"}
# Content of the file `.bidsignore`, which names files that the validator of BIDS skips. The
# standard has no place for dynamic MRI, region tables or calculated high-b images, so that the
# validator would report them as errors. The names of folders have no slash at the end: with a
# slash, the validator would not skip a folder whose name it does not know.
_BIDSIGNORE = (
    "perf\nmasks\ndicom\n*acq-highb_dwi*\nrois.tsv\nscores.tsv\nreaders.tsv\nplausible.json\n"
)


@dataclass(frozen=True)
class StudyRef:
    """Hold in which folder one study's images lie, and which regions belong to the study.

    Parameters
    ----------
    study_id : str
        ``sub-XXX``, or ``sub-XXX_ses-YY`` where the patient has sessions.
    participant_id : str
        ``sub-XXX``.
    session_id : str or None
        ``ses-YY``.
    folder : Path
        Folder that holds ``anat``, ``dwi``, ``perf`` and ``masks``.
    table : DataFrame
        All rows of ``rois.tsv``. One table is shared by all studies, to save memory.
    rows : ndarray of int
        Positions of the study's regions in ``table``; empty while no region has been drawn.
    """

    study_id: str
    participant_id: str
    session_id: str | None
    folder: Path
    table: pd.DataFrame
    rows: np.ndarray

    @property
    def rois(self) -> pd.DataFrame:
        """Return the study's rows of ``rois.tsv``, one per region, with a new index from 0."""
        return self.table.iloc[self.rows].reset_index(drop=True)

    def __getstate__(self) -> dict[str, Any]:
        # When a study is sent to a worker process, it takes along only its own rows, and not the
        # table of the whole cohort.
        return {**vars(self), "table": self.rois, "rows": np.arange(len(self.rows))}


def _no_sessions() -> pd.DataFrame:
    """Return the table of sessions of a cohort without ``sessions.tsv``: it has no rows."""
    return pd.DataFrame(columns=list(_NEEDED["sessions"]), dtype=object)


@dataclass(frozen=True)
class Cohort:
    """Hold the tables of a cohort, with checked rows and with numbers where numbers are meant.

    Parameters
    ----------
    root : Path
        The cohort folder.
    participants : DataFrame
        ``participant_id``, ``site`` and all further columns of the file; ``age``, ``psa``,
        ``psa_density`` and ``prostate_volume`` as numbers, ``isup`` as the text of a grade.
    readers : DataFrame
        ``reader_id``, ``expert`` (bool).
    rois : DataFrame
        ``participant_id, roi_id, label`` (float), ``zone, histology, isup`` (text, such as ``3`` or
        ``>=2`` for a grade; NaN where n/a) and ``session_id`` where there are sessions.
    scores : DataFrame
        ``participant_id, roi_id, reader_id, scale, score`` (float); missing scores are dropped.
    problems : list of CadError
        An error for every broken rule that concerns a single patient.
    simulated : bool
        Whether the patients are simulated.
    digest : str
        SHA-256 of all TSV and JSON files in the cohort folder itself, as they were read.
    sessions : DataFrame
        ``participant_id, session_id`` and, where ``sessions.tsv`` has them, ``psa``,
        ``psa_density`` and ``prostate_volume`` as numbers. Without this file there is no row.
    """

    root: Path
    participants: pd.DataFrame
    readers: pd.DataFrame
    rois: pd.DataFrame
    scores: pd.DataFrame
    problems: list[CadError] = field(default_factory=list)
    simulated: bool = False
    digest: str = ""
    sessions: pd.DataFrame = field(default_factory=_no_sessions)

    def studies(self) -> list[StudyRef]:
        """Return the studies of patients without problems, in the order of ``participants.tsv``."""
        # A patient with a broken rule is left out as a whole.
        excluded = {problem.patient for problem in self.problems}
        patients = self.participants["participant_id"].drop_duplicates()
        rows_by_patient = self.rois.groupby("participant_id", sort=False).indices
        no_rows = np.array([], dtype=int)
        studies: list[StudyRef] = []
        for patient in patients:
            if patient not in excluded:
                studies += self._of(patient, rows_by_patient.get(patient, no_rows))
        return studies

    def _of(self, patient: str, rows: np.ndarray) -> list[StudyRef]:
        """Return the studies of a patient, whose regions are the ``rows`` of ``rois.tsv``."""
        folder = self.root / patient
        sessions = sorted(path.name for path in folder.glob("ses-*") if path.is_dir())
        if not sessions:  # the patient's own folder is his only study, and takes his id
            return [
                StudyRef(
                    study_id=patient,
                    participant_id=patient,
                    session_id=None,
                    folder=folder,
                    table=self.rois,
                    rows=rows,
                )
            ]
        # Without the column, no region belongs to a session.
        session_of_row = np.full(len(rows), "")
        if "session_id" in self.rois:
            session_of_row = self.rois["session_id"].to_numpy()[rows]
        studies = []
        for session in sessions:
            studies.append(
                StudyRef(
                    study_id=f"{patient}_{session}",
                    participant_id=patient,
                    session_id=session,
                    folder=folder / session,
                    table=self.rois,
                    rows=rows[session_of_row == session],
                )
            )
        return studies


def read_cohort(root: Path) -> Cohort:
    """Read and check the tables of a cohort folder.

    Parameters
    ----------
    root : Path
        Cohort folder (docs/cohort.md).

    Returns
    -------
    Cohort
        The cohort; ``problems`` holds an error for every broken rule that concerns a single
        patient.

    Raises
    ------
    CadError
        When a table is missing, cannot be read or lacks a column; when a broken rule concerns the
        whole cohort; when an import keeps changing the tables while they are read.
    """
    if not root.is_dir():
        raise CadError("no such cohort folder", file=root)
    # An import may replace the tables while they are read. The tables are therefore read again
    # until they are the same before and after reading.
    for _ in range(_TRIES):
        settle(root)  # finish an import that was killed while it put its files into place
        digest = _digest_of_tables(root)
        try:
            cohort = _read_once(root)
        except CadError:
            # The error may come from a change in between, unless nothing has changed.
            if not pending(root) and _digest_of_tables(root) == digest:
                raise
            continue
        if not pending(root) and _digest_of_tables(root) == digest:
            return replace(cohort, digest=digest)
    raise CadError(
        "the tables change while they are read", file=root, hint="wait until the import has ended"
    )


def _digest_of_tables(root: Path) -> str:
    """Return a hash of the cohort's tables (all TSV and JSON files directly in its folder).

    The hash changes whenever an import changes a table.
    """
    files = [path for path in sorted([*root.glob("*.tsv"), *root.glob("*.json")]) if path.is_file()]
    digests = [hashlib.sha256(read_bytes(path, MAX_TABLE)).hexdigest() for path in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _read_once(root: Path) -> Cohort:
    """Read and check the tables of a cohort folder, whose digest stays empty."""
    # Cells that should be numbers or grades are turned into them. What is wrong with one patient is
    # added to ``problems``; what is wrong with a whole table raises an error.
    simulated = is_simulated(root)
    participants = _read_cohort_table(root, "participants")
    readers = _typed_readers(root, _read_cohort_table(root, "readers"))
    problems: list[CadError] = []
    rois = _graded(
        root / "rois.tsv",
        _read_floats(root, "rois", {"label": "a positive integer"}, problems),
        problems,
    )
    scores = _read_floats(root, "scores", {"score": "a number"}, problems)
    check_participants(root, participants, problems)
    participants = typed_participants(root, participants, problems)
    if "isup" in participants:
        participants = _graded(root / "participants.tsv", participants, problems)

    # The tables are compared with each other.
    participant_ids = set(participants["participant_id"])
    check_rois(root, rois, participant_ids, problems)
    check_grades_of_men(root, participants, rois, problems)
    check_scores(root, scores, rois, participant_ids, set(readers["reader_id"]), problems)
    scores = scores.dropna(subset=["score"]).reset_index(drop=True)  # a missing score is no score

    sessions = _no_sessions()
    if (root / "sessions.tsv").is_file():
        sessions = check_sessions(
            root, _read_cohort_table(root, "sessions"), participant_ids, problems
        )
    return Cohort(
        root=root,
        participants=participants,
        readers=readers,
        rois=rois,
        scores=scores,
        problems=problems,
        simulated=simulated,
        sessions=sessions,
    )


def with_readings(cohort: Cohort, readings: Sequence[str]) -> Cohort:
    """Return a copy of a cohort with more readers' scores; nothing is written to its files.

    Parameters
    ----------
    cohort : Cohort
        The cohort; not changed.
    readings : sequence of str
        Readings, each as ``sub-XXX/ROI/READER=SCORE``, where ROI and READER are ids and the score
        is a whole number from 1 to 5 (``likert5``). The reader need not be in ``readers.tsv``.

    Raises
    ------
    CadError
        For a reading of another form, and for a score that is no whole number from 1 to 5. Also for
        a region that is not in the cohort or that the reader has scored already.
    """
    rows = []
    for stated in readings:
        match = _READING.fullmatch(stated)
        if match is None:
            message = f"a reading is sub-XXX/ROI/READER=SCORE, found {stated!r}"
            raise CadError(message, hint="for example sub-0001/1/r1=4")
        patient, roi, reader, score = match.groups()
        with reading("", f"score {score!r} is no number"):
            check_score("likert5", float(score))
        of_patient = cohort.rois["participant_id"] == patient
        if not (of_patient & (cohort.rois["roi_id"] == roi)).any():
            raise CadError("the region is not in the cohort", patient=patient, roi=roi)
        rows.append((patient, roi, reader, "likert5", float(score)))
    new_scores = pd.DataFrame(rows, columns=COLUMNS["scores"])
    scores = pd.concat([cohort.scores, new_scores], ignore_index=True) if rows else cohort.scores
    repeated = scores[scores.duplicated(["participant_id", "roi_id", "reader_id"])]
    if len(repeated):
        row = repeated.iloc[0]
        message = f"reader {row['reader_id']} scored this ROI already"
        raise CadError(message, patient=row["participant_id"], roi=row["roi_id"])
    return replace(cohort, scores=scores)


def write_tables(
    root: Path,
    *,
    participants: pd.DataFrame,
    readers: pd.DataFrame,
    rois: pd.DataFrame,
    scores: pd.DataFrame,
    name: str = "cad cohort",
    simulated: bool = False,
) -> None:
    """Write the tables and the BIDS description of a cohort; each file is whole or absent.

    Parameters
    ----------
    root : Path
        The cohort folder; made if absent.
    participants, readers, rois, scores : DataFrame
        The content of each table, with the columns that :class:`Cohort` lists.
    name : str
        Name of the cohort in ``dataset_description.json``.
    simulated : bool
        Whether the patients are simulated. This is recorded in ``dataset_description.json`` and
        stated on all pages that are made from the cohort.
    """
    root.mkdir(parents=True, exist_ok=True)
    generator = {"GeneratedBy": [{"Name": SIMULATOR}]} if simulated else {}
    description = json.dumps({**_DESCRIPTION, "Name": name, **generator}, indent=2) + "\n"
    write_atomic(root / "dataset_description.json", description.encode())
    write_atomic(root / ".bidsignore", _BIDSIGNORE.encode())
    tables = {"participants": participants, "readers": readers, "rois": rois, "scores": scores}
    for table_name, table in tables.items():
        # A spreadsheet program would compute a cell that begins like a formula. The function
        # `harmless` therefore puts an apostrophe before the content of such a cell.
        text = each_cell(table, harmless).to_csv(
            sep="\t", index=False, na_rep=MISSING, lineterminator="\n", quoting=csv.QUOTE_NONE
        )
        write_atomic(root / f"{table_name}.tsv", text.encode())


def is_simulated(root: Path) -> bool:
    """Return whether the cohort's description says that the simulator made its patients.

    Raises
    ------
    CadError
        When the description is missing or no JSON object.
    """
    path = root / "dataset_description.json"
    try:
        generators = read_json(path).get("GeneratedBy")
    except FileNotFoundError:
        message = "not a cohort folder: dataset_description.json is missing"
        hint = "make one with `cad import` or `cad simulate`"
        raise CadError(message, file=path, hint=hint) from None
    return isinstance(generators, list) and {"Name": SIMULATOR} in generators


def _read_cohort_table(root: Path, name: str) -> pd.DataFrame:
    """Read a table of a cohort as text; refuse missing columns, and rows without an id."""
    path = root / f"{name}.tsv"
    if not path.is_file():
        raise CadError(f"the cohort has no {path.name}", file=path)
    # Only an empty cell and n/a are missing values: "NA" or "null" may be an id. A quotation mark
    # is a letter like any other, as BIDS has it.
    table = read_frame(
        path,
        "\t",
        dtype=str,
        keep_default_na=False,
        na_values=[MISSING, ""],
        quoting=csv.QUOTE_NONE,
    )
    _refuse_control_characters(table, path)
    absent = [column for column in _NEEDED[name] if column not in table.columns]
    if absent:
        message = (
            f"missing column(s) {', '.join(absent)}; found {', '.join(map(str, table.columns))}"
        )
        hint = "columns are separated by tabs and named in the first line"
        raise CadError(message, file=path, hint=hint)
    ids = [
        column for column in ("participant_id", "roi_id", "reader_id") if column in _NEEDED[name]
    ]
    for column in ids:
        is_missing = table[column].isna()
        if is_missing.any():
            line = int(is_missing.to_numpy().argmax()) + 2  # line 1 has the names of the columns
            raise CadError(f"line {line} has no {column}", file=path)
    return table


def _refuse_control_characters(table: pd.DataFrame, path: Path) -> None:
    """Raise an error for a cell with a control character.

    A control character could change what a terminal shows, or break a table.
    """
    for column in table.columns:
        for line, cell in enumerate(table[column], start=2):  # line 1 has the names of the columns
            if isinstance(cell, str) and CONTROL.search(cell):
                message = f"line {line} has a control character in {column}"
                raise CadError(message, file=path, hint="write the cell without it")


def _typed_readers(root: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of readers with ``expert`` as a truth value; refuse a reader listed twice.

    A reader of whom the table does not say so is no expert.
    """
    path = root / "readers.tsv"
    repeated = table["reader_id"][table["reader_id"].duplicated()]
    if len(repeated):
        raise CadError(f"reader {repeated.iloc[0]} is listed twice", file=path)
    expert_words = table["expert"].str.lower().fillna("0")
    unknown = expert_words[~expert_words.isin(["0", "1", "true", "false", "yes", "no"])]
    if len(unknown):
        raise CadError(f"expert must be 1 or 0, found {unknown.iloc[0]!r}", file=path)
    return table.assign(expert=expert_words.isin(["1", "true", "yes"]))


def _graded(path: Path, table: pd.DataFrame, problems: list[CadError]) -> pd.DataFrame:
    """Return a table in which every grade is spelt in one way.

    An invalid grade is added to the problems and becomes NaN.
    """
    grades = []
    for row in table.to_dict("records"):
        grade = grade_text(row["isup"])
        try:
            grade_range(grade)
        except CadError as error:
            # The table of patients has no regions.
            place = {"patient": row["participant_id"], "roi": row.get("roi_id", "")}
            problems.append(error.naming(file=path, **place))
            grade = ""
        grades.append(grade if grade else np.nan)
    return table.assign(isup=np.array(grades, dtype=object))


def _read_floats(
    root: Path, name: str, numbers: dict[str, str], problems: list[CadError]
) -> pd.DataFrame:
    """Read a table and turn the columns named in ``numbers`` into floats.

    Text that is no number becomes NaN and is added to the problems, with its patient.
    """
    table = _read_cohort_table(root, name)
    for column, meaning in numbers.items():
        values = pd.to_numeric(table[column], errors="coerce").astype(float)
        for row in table.index[values.isna() & table[column].notna()]:
            message = f"{column} {table.at[row, column]!r} is not {meaning}"
            place = {"patient": table.at[row, "participant_id"], "roi": table.at[row, "roi_id"]}
            problems.append(CadError(message, file=root / f"{name}.tsv", **place))
        table[column] = values
    return table
