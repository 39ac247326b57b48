"""A cohort folder: who was examined, which regions, what the readers said, what histology found.

A cohort is BIDS where BIDS speaks. Five tables carry everything that is not an image; this module
reads them, checks every rule at the door and writes them back. A problem that concerns one patient
excludes that patient and is kept in :attr:`Cohort.problems`; a problem of the whole is raised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.files import write_atomic
from cad.labels.scales import check_score

ZONES = ("PZ", "TZ", "CZ", "AFS")
HISTOLOGY = ("malignant", "benign")
MISSING = "n/a"
SIMULATOR = "cad simulate"

_ROI_COLUMNS = ("participant_id", "roi_id", "label", "zone", "histology", "isup")
_COLUMNS = {
    "participants.tsv": ("participant_id",),
    "readers.tsv": ("reader_id", "expert"),
    "rois.tsv": _ROI_COLUMNS,
    "scores.tsv": ("participant_id", "roi_id", "reader_id", "scale", "score"),
}
_PARTICIPANT = re.compile(r"sub-[A-Za-z0-9]+")
_SESSION = re.compile(r"ses-[A-Za-z0-9]+")
_DESCRIPTION = {"Name": "cad cohort", "BIDSVersion": "1.9.0", "DatasetType": "raw"}
# BIDS has no datatype for dynamic MRI and no region tables; its validator must skip them.
_Rule = tuple[pd.Series, Callable[[pd.Series], str]]
_BIDSIGNORE = (
    "*/perf/\n*/masks/\n*/ses-*/perf/\n*/ses-*/masks/\nrois.tsv\nscores.tsv\nreaders.tsv\n"
)


@dataclass(frozen=True)
class StudyRef:
    """Where one study's images lie and which regions belong to it.

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
        ``rois.tsv``, shared by all studies: ten thousand small tables would fill the memory.
    rows : ndarray of int
        The study's rows of it; none while the study awaits its regions.
    """

    study_id: str
    participant_id: str
    session_id: str | None
    folder: Path
    table: pd.DataFrame
    rows: np.ndarray

    @property
    def rois(self) -> pd.DataFrame:
        """The study's regions."""
        return self.table.iloc[self.rows].reset_index(drop=True)

    def __getstate__(self) -> dict[str, Any]:
        # A worker needs this study's rows, not the cohort's.
        return {**vars(self), "table": self.rois, "rows": np.arange(len(self.rows))}


@dataclass(frozen=True)
class Cohort:
    """The tables of a cohort, typed and checked.

    Parameters
    ----------
    root : Path
        The cohort folder.
    participants : DataFrame
        ``participant_id``, ``site`` and whatever else the file holds.
    readers : DataFrame
        ``reader_id``, ``expert`` (bool).
    rois : DataFrame
        ``participant_id, roi_id, label`` (int), ``zone, histology, isup`` (NaN where n/a) and
        ``session_id`` where there are sessions.
    scores : DataFrame
        ``participant_id, roi_id, reader_id, scale, score`` (float); missing scores are dropped.
    problems : list of CadError
        One for every broken rule that concerns a single patient.
    simulated : bool
        Whether the patients are simulated.
    """

    root: Path
    participants: pd.DataFrame
    readers: pd.DataFrame
    rois: pd.DataFrame
    scores: pd.DataFrame
    problems: list[CadError] = field(default_factory=list)
    simulated: bool = False

    def studies(self) -> list[StudyRef]:
        """Studies of the patients without problems, in the order of ``participants.tsv``."""
        excluded = {problem.patient for problem in self.problems}
        ids = self.participants["participant_id"].drop_duplicates()
        rows = self.rois.groupby("participant_id", sort=False).indices
        none = np.array([], dtype=int)
        wanted = [patient for patient in ids if patient not in excluded]
        return [ref for patient in wanted for ref in self._of(patient, rows.get(patient, none))]

    def _of(self, patient: str, rows: np.ndarray) -> list[StudyRef]:
        folder = self.root / patient
        sessions = sorted(p.name for p in folder.glob("ses-*") if p.is_dir())
        if not sessions:
            return [StudyRef(patient, patient, None, folder, self.rois, rows)]
        none = np.full(len(rows), "")
        own = self.rois["session_id"].to_numpy()[rows] if "session_id" in self.rois else none
        return [
            StudyRef(
                f"{patient}_{session}",
                patient,
                session,
                folder / session,
                self.rois,
                rows[own == session],
            )
            for session in sessions
        ]


def read_cohort(root: Path) -> Cohort:
    """Read and check the tables of a cohort folder.

    Parameters
    ----------
    root : Path
        Cohort folder (DESIGN 4).

    Returns
    -------
    Cohort
        With per-patient problems in ``problems``.

    Raises
    ------
    CadError
        When a table is missing, unreadable, lacks a column, or a rule is broken that no single
        patient can be blamed for.
    """
    if not root.is_dir():
        raise CadError("no such cohort folder", file=root)
    simulated = is_simulated(root)
    participants = _read(root, "participants.tsv")
    readers = _typed_readers(root, _read(root, "readers.tsv"))
    problems: list[CadError] = []
    rois = _typed_rois(root, _read(root, "rois.tsv"), problems)
    scores = _typed_scores(root, _read(root, "scores.tsv"), problems)
    _check_participants(root, participants, problems)
    known = set(participants["participant_id"])
    _check_rois(root, rois, known, problems)
    _check_scores(root, scores, rois, known, set(readers["reader_id"]), problems)
    scores = scores.dropna(subset=["score"]).reset_index(drop=True)
    return Cohort(root, participants, readers, rois, scores, problems, simulated)


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

    ``simulated`` is recorded in ``dataset_description.json`` and follows every number of the
    cohort to its pages.
    """
    root.mkdir(parents=True, exist_ok=True)
    made = {"GeneratedBy": [{"Name": SIMULATOR}]} if simulated else {}
    description = json.dumps({**_DESCRIPTION, "Name": name, **made}, indent=2) + "\n"
    write_atomic(root / "dataset_description.json", description.encode())
    write_atomic(root / ".bidsignore", _BIDSIGNORE.encode())
    tables = {
        "participants.tsv": participants,
        "readers.tsv": readers,
        "rois.tsv": rois,
        "scores.tsv": scores,
    }
    for filename, table in tables.items():
        text = table.to_csv(sep="\t", index=False, na_rep=MISSING, lineterminator="\n")
        write_atomic(root / filename, text.encode())


def is_simulated(root: Path) -> bool:
    """Whether the cohort's description says that the simulator made its patients.

    Raises
    ------
    CadError
        When the description is missing or no JSON object.
    """
    made = _read_description(root).get("GeneratedBy")
    return isinstance(made, list) and {"Name": SIMULATOR} in made


def _read_description(root: Path) -> dict[str, object]:
    path = root / "dataset_description.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CadError(
            "not a cohort folder: dataset_description.json is missing",
            file=path,
            hint="make one with `cad import` or `cad simulate`",
        ) from None
    except ValueError as error:
        raise CadError(f"not valid JSON: {error}", file=path) from error
    if not isinstance(content, dict):
        raise CadError("a dataset description is a JSON object", file=path)
    return content


def _read(root: Path, filename: str) -> pd.DataFrame:
    path = root / filename
    if not path.is_file():
        raise CadError(f"the cohort has no {filename}", file=path)
    try:
        table = pd.read_csv(
            path, sep="\t", dtype=str, keep_default_na=False, na_values=[MISSING, ""], quoting=3
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise CadError(f"not a tab-separated table: {error}", file=path) from error
    absent = [column for column in _COLUMNS[filename] if column not in table.columns]
    if absent:
        raise CadError(
            f"missing column(s) {', '.join(absent)}; found {', '.join(map(str, table.columns))}",
            file=path,
            hint="columns are separated by tabs and named in the first line",
        )
    keys = [c for c in ("participant_id", "roi_id", "reader_id") if c in _COLUMNS[filename]]
    for key in keys:
        if table[key].isna().any():
            line = int(table[key].isna().to_numpy().argmax()) + 2
            raise CadError(f"line {line} has no {key}", file=path)
    return table


def _typed_readers(root: Path, table: pd.DataFrame) -> pd.DataFrame:
    path = root / "readers.tsv"
    repeated = table["reader_id"][table["reader_id"].duplicated()]
    if len(repeated):
        raise CadError(f"reader {repeated.iloc[0]} is listed twice", file=path)
    words = table["expert"].str.lower().fillna("0")
    unknown = words[~words.isin(["0", "1", "true", "false", "yes", "no"])]
    if len(unknown):
        raise CadError(f"expert must be 1 or 0, found {unknown.iloc[0]!r}", file=path)
    return table.assign(expert=words.isin(["1", "true", "yes"]))


def _number(
    table: pd.DataFrame, column: str, path: Path, problems: list[CadError], what: str
) -> pd.Series:
    """Column as floats; text that is no number becomes NaN and a problem of its patient."""
    values = pd.to_numeric(table[column], errors="coerce").astype(float)
    for i in table.index[values.isna() & table[column].notna()]:
        problems.append(
            CadError(
                f"{column} {table.at[i, column]!r} is not {what}",
                file=path,
                patient=table.at[i, "participant_id"],
                roi=table.at[i, "roi_id"],
            )
        )
    return values


def _typed_rois(root: Path, table: pd.DataFrame, problems: list[CadError]) -> pd.DataFrame:
    path = root / "rois.tsv"
    label = _number(table, "label", path, problems, "a positive integer")
    isup = _number(table, "isup", path, problems, "a grade")
    return table.assign(label=label, isup=isup)


def _typed_scores(root: Path, table: pd.DataFrame, problems: list[CadError]) -> pd.DataFrame:
    return table.assign(score=_number(table, "score", root / "scores.tsv", problems, "a number"))


def _check_participants(root: Path, table: pd.DataFrame, problems: list[CadError]) -> None:
    path = root / "participants.tsv"
    for patient in table["participant_id"]:
        if not _PARTICIPANT.fullmatch(patient):
            raise CadError(
                f"participant_id {patient!r} is not sub- and letters or digits", file=path
            )
        if not (root / patient).is_dir():
            problems.append(
                CadError("the patient has no image folder", file=root / patient, patient=patient)
            )
    for patient in table["participant_id"][table["participant_id"].duplicated()].unique():
        problems.append(CadError("the patient is listed twice", file=path, patient=patient))


def _check_rois(root: Path, rois: pd.DataFrame, known: set[str], problems: list[CadError]) -> None:
    session = rois["session_id"] if "session_id" in rois else pd.Series("", index=rois.index)
    session = session.fillna("")
    label = rois["label"]
    same_id = rois.duplicated(["participant_id", "roi_id"])
    same_label = rois.assign(session=session).duplicated(["participant_id", "session", "label"])
    rules: list[_Rule] = [
        (~rois["participant_id"].isin(known), lambda row: "the patient is not in participants.tsv"),
        (same_id, lambda row: "the ROI is listed twice"),
        (
            same_label & ~same_id,
            lambda row: f"label {row['label']:g} is used by two ROIs of this study",
        ),
        (
            ~((label >= 1) & (label == label.round())),
            lambda row: f"label must be a positive integer, found {row['label']}",
        ),
        (
            rois["zone"].notna() & ~rois["zone"].isin(ZONES),
            lambda row: f"zone {row['zone']!r} is none of {' '.join(ZONES)} n/a",
        ),
        (
            rois["histology"].notna() & ~rois["histology"].isin(HISTOLOGY),
            lambda row: f"histology {row['histology']!r} is none of malignant benign n/a",
        ),
        (
            rois["isup"].notna() & ~rois["isup"].isin(range(6)),
            lambda row: f"isup must be 0 to 5, found {row['isup']:g}",
        ),
        (
            (rois["isup"] >= 1) & (rois["histology"] == "benign"),
            lambda row: f"histology benign contradicts isup {row['isup']:g}",
        ),
        (
            (session != "") & ~session.str.fullmatch(_SESSION.pattern),
            lambda row: f"session_id {row['session_id']!r} is not ses- and letters or digits",
        ),
    ]
    _apply(rules, rois, root / "rois.tsv", problems)


def _check_scores(
    root: Path,
    scores: pd.DataFrame,
    rois: pd.DataFrame,
    known: set[str],
    readers: set[str],
    problems: list[CadError],
) -> None:
    distinct = scores[["scale", "score"]].drop_duplicates()
    wrong = [_score_problem(scale, score) for scale, score in distinct.itertuples(index=False)]
    scores = scores.merge(distinct.assign(wrong=wrong), how="left")
    roi_of = pd.MultiIndex.from_frame(scores[["participant_id", "roi_id"]])
    regions = pd.MultiIndex.from_frame(rois[["participant_id", "roi_id"]])
    patient_known = scores["participant_id"].isin(known)
    rules: list[_Rule] = [
        (~patient_known, lambda row: "the patient is not in participants.tsv"),
        (
            patient_known & ~roi_of.isin(regions),
            lambda row: "scores for a ROI that is not in rois.tsv",
        ),
        (
            ~scores["reader_id"].isin(readers),
            lambda row: f"reader {row['reader_id']} is not in readers.tsv",
        ),
        (
            scores.duplicated(["participant_id", "roi_id", "reader_id"]),
            lambda row: f"reader {row['reader_id']} scored this ROI twice",
        ),
        (scores["wrong"] != "", lambda row: row["wrong"]),
    ]
    _apply(rules, scores, root / "scores.tsv", problems)


def _score_problem(scale: object, score: float) -> str:
    if pd.isna(score):
        return ""
    try:
        check_score(str(scale), score)
    except CadError as error:
        return str(error)
    return ""


def _apply(rules: list[_Rule], table: pd.DataFrame, path: Path, problems: list[CadError]) -> None:
    """Add one problem per row that breaks a rule; only those rows are visited."""
    for broken, text in rules:
        for _, row in table[broken].iterrows():
            problems.append(
                CadError(text(row), file=path, patient=row["participant_id"], roi=row["roi_id"])
            )
