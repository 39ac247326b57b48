"""What the tables of a cohort must hold, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from cad.cohort.sectors import SECTOR_NAMES
from cad.errors import CadError
from cad.labels.scales import check_score

ZONES = ("PZ", "TZ", "CZ", "AFS")
HISTOLOGY = ("malignant", "benign")

_PARTICIPANT = re.compile(r"sub-[A-Za-z0-9]+")
_SESSION = re.compile(r"ses-[A-Za-z0-9]+")
_Rule = tuple[pd.Series, Callable[[pd.Series], str]]


def check_participants(root: Path, table: pd.DataFrame, problems: list[CadError]) -> None:
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


def check_rois(root: Path, rois: pd.DataFrame, known: set[str], problems: list[CadError]) -> None:
    session = rois["session_id"] if "session_id" in rois else pd.Series("", index=rois.index)
    session = session.fillna("")
    sector = rois["sector"] if "sector" in rois else pd.Series(None, index=rois.index, dtype=object)
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
            sector.notna() & ~sector.isin(SECTOR_NAMES),
            lambda row: (
                f"sector {row['sector']!r} is no side, level and sector of PI-RADS v2.1, "
                "as 'left mid PZpl'"
            ),
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


def check_scores(
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
