"""Write and read the tables of a run folder; each file is whole or absent."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypedDict

import pandas as pd

from cad.base.errors import CadError
from cad.base.files import parquet_bytes, typed, write_atomic, write_csv
from cad.base.reading import parquet_columns, read_frame, read_rows
from cad.folders.run_folder.folder import RunFolder
from cad.folders.run_folder.schema import (
    DETECTOR_COLUMNS,
    EARLIER_COLUMNS,
    EXPLANATION_RESULT_COLUMNS,
    FAILURE_RESULT_COLUMNS,
    MAN_COLUMNS,
    OUTLINE_RESULT_COLUMNS,
    READERS,
    REGION_COLUMNS,
    names_of,
)

KEYS = ["participant_id", "study_id", "roi_id"]
"""Columns that name a region."""

LIKE = "like"
"""Value of the column ``unlike`` for a region that is like the training regions.

For a region that was not compared with them the column is empty.
"""
NEITHER = "neither"
"""Value of the column ``plausible`` for a region that fits no class at 90 % confidence."""

RANGE = ("probability_low", "probability_high")
"""Columns with the ends of the 95 % range of a probability. Of many regions or men judged alike,
the share with cancer lies in this range. The columns are empty where the probability is a belief.
"""

PROBABILITY_COLUMNS = names_of(REGION_COLUMNS)
PATIENT_COLUMNS = names_of(MAN_COLUMNS)
OUTLINE_COLUMNS = names_of(OUTLINE_RESULT_COLUMNS)
FAILURE_COLUMNS = names_of(FAILURE_RESULT_COLUMNS)
EXPLANATION_COLUMNS = names_of(EXPLANATION_RESULT_COLUMNS)


@dataclass(frozen=True)
class EarlierRow:
    """Hold a row of ``earlier.csv``: a region of a man's latest study and its earlier counterpart.

    The counterpart is the nearest region in the study before the latest.

    Parameters
    ----------
    participant_id, study_id : str
        The man and his latest study.
    roi_id : str
        A region of the latest study. Empty on a row of an earlier region that has no region of the
        latest study near it.
    earlier_study_id : str
        The man's study before the latest.
    earlier_roi_id : str
        Nearest region of that earlier study; empty where none is near or nothing was compared.
    distance_mm : float or None
        Distance between the centres of both regions.
    order : str
        Source of the order of the studies: ``date`` or ``session``.
    alignment : str
        ``aligned``, or the reason why no region is compared.
    moved_mm, turned_deg : float or None
        Displacement and rotation of the earlier image.
    alignment_note : str
        The reason why the comparison failed.
    earlier_psa, earlier_psa_density : float or None
        PSA (ng/mL) and PSA density (ng/mL2) at the earlier study.
    """

    participant_id: str
    study_id: str
    roi_id: str
    earlier_study_id: str
    earlier_roi_id: str
    distance_mm: float | None
    order: str
    alignment: str
    moved_mm: float | None
    turned_deg: float | None
    alignment_note: str
    earlier_psa: float | None
    earlier_psa_density: float | None


class Explanation(TypedDict):
    """Hold the effect of one feature on a region's decision value.

    Parameters
    ----------
    rank : int
        Rank from 1, which is the feature with the largest effect.
    feature : str
        Name of the feature.
    value : float
        The region's value.
    delta : float
        Change of the decision value when the feature goes from the training median to ``value``.
    percentile : float
        Percentile of ``value`` among the training rows, 0 to 100.
    """

    rank: int
    feature: str
    value: float
    delta: float
    percentile: float


class ExplanationRow(Explanation):
    """Hold a row of ``explanations.csv``: an explanation with its region and family of features.

    ``group`` is the family. ``contribution`` is the effect of the whole family on the log-odds of
    the belief. It stands on one row of the family and is None on the other rows. ``average`` holds
    the log-odds of the belief of the average training region.
    """

    participant_id: str
    study_id: str
    roi_id: str
    unit: str
    group: str
    contribution: float | None
    average: float


@dataclass(frozen=True)
class Failure:
    """Hold a row of ``failures.csv``: a study or a region that gave no result, and why.

    ``stage`` names the step of the run that failed, and ``hint`` says what to do. ``status`` is
    ``awaiting ROI`` where no region has been drawn yet, else ``failed``.
    """

    participant_id: str
    study_id: str
    roi_id: str
    stage: str
    reason: str
    hint: str = ""
    status: Literal["failed", "awaiting ROI"] = "failed"

    @property
    def waiting(self) -> bool:
        """Tell whether the study waits for a region, which is a state and no fault."""
        return self.status == "awaiting ROI"


def write_features(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``features.parquet``, the features with one row per region."""
    write_atomic(folder.features, parquet_bytes(table))


def count_features(folder: RunFolder, columns: Collection[str]) -> int:
    """Return how many feature columns ``features.parquet`` has; keys and provenance do not count.

    Parameters
    ----------
    folder : RunFolder
        The run.
    columns : collection of str
        Names of all columns that are features (:func:`cad.mri.columns.columns_of`).
    """
    return len({*parquet_columns(folder.features)} & {*columns})


def write_labels(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``labels.parquet``: the readers' and the histology's labels of every region."""
    write_atomic(folder.labels, parquet_bytes(table))


def write_probabilities(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``probabilities.csv``, the results with one row per region."""
    optional_columns = [
        name for name in (*OUTLINE_COLUMNS, *names_of(DETECTOR_COLUMNS)) if name in table
    ]
    write_csv(folder.probabilities, table, [*PROBABILITY_COLUMNS, *optional_columns])


def read_probabilities(folder: RunFolder) -> pd.DataFrame:
    """Read ``probabilities.csv``; identifiers stay text.

    Raises
    ------
    CadError
        When the file is missing, or an earlier version wrote it.
    """
    if not folder.probabilities.is_file():
        raise CadError("the run has no probabilities.csv", file=folder.probabilities)
    text_columns = [
        column.name for column in REGION_COLUMNS if column.kind in ("text", "pairs", "list")
    ]
    # Without these types, an id such as 007 would become the number 7.
    table = read_frame(folder.probabilities, dtype=dict.fromkeys(text_columns, str))
    refuse_earlier(table.columns, folder.probabilities)
    if "probability_of" not in table:
        # The column `probability_of` is missing in tables of earlier versions. There the learner's
        # own number, now called the belief, was called the probability.
        table = table.drop(columns=[name for name in RANGE if name in table])
        table["belief"] = table["probability"]
        table["probability_of"] = READERS
        table["probability_images"] = table["probability"]
    return table


def refuse_earlier(columns: Collection[str], path: Path) -> None:
    """Raise an error for ``probabilities.csv`` of an early version.

    In such a file the decisions have another meaning than now.

    Parameters
    ----------
    columns : collection of str
        Names of the table's columns.
    path : Path
        The file, for the error message.

    Raises
    ------
    CadError
        When there is no column ``decision_model``.
    """
    if "decision_model" not in columns:
        raise CadError(
            "written by an earlier version, whose pages stated other decisions than this table",
            file=path,
            hint="make the run anew",
        )


def write_patients(folder: RunFolder, men: pd.DataFrame) -> None:
    """Write ``patients.csv``: one row per patient, the highest probability of cancer first."""
    sorted_men = men.reset_index().sort_values("probability", ascending=False, kind="stable")
    write_csv(folder.patients, sorted_men, PATIENT_COLUMNS)


def write_explanations(folder: RunFolder, rows: Sequence[ExplanationRow]) -> None:
    """Write ``explanations.csv``: the features with the largest effects on decision values."""
    write_csv(folder.explanations, pd.DataFrame(rows), EXPLANATION_COLUMNS)


def write_failures(folder: RunFolder, failures: Sequence[Failure]) -> None:
    """Write ``failures.csv``: one row per failed study or region; no row if none failed."""
    write_csv(folder.failures, pd.DataFrame([asdict(f) for f in failures]), FAILURE_COLUMNS)


def write_earlier(folder: RunFolder, rows: Sequence[EarlierRow]) -> None:
    """Write ``earlier.csv``: each region of a man's latest study beside its earlier counterpart.

    The counterpart is the nearest region in the study before the latest. Only men with several
    studies have rows.
    """
    table = pd.DataFrame([asdict(row) for row in rows])
    write_csv(folder.earlier, table, names_of(EARLIER_COLUMNS))


def read_failures(folder: RunFolder) -> list[Failure]:
    """Read the rows of ``failures.csv``."""
    awaiting = "awaiting ROI"
    failures = []
    for row in read_rows(folder.failures, FAILURE_COLUMNS):
        status = awaiting if row["status"] == awaiting else "failed"
        failures.append(typed(Failure, {**row, "status": status}))
    return failures


def write_suggestions(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``suggestions.csv``: the regions that should be read next."""
    write_csv(folder.suggestions, table, list(table.columns))


def by_region(scores: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """Join all readers' values of each region into one text, such as ``r1=3; r2=4``.

    Parameters
    ----------
    scores : DataFrame
        One row per reader and region: ``participant_id, roi_id, reader_id`` and ``column``.
    column : str
        Name of the column with the readers' values.
    name : str
        Name of the new column with the joined text.

    Returns
    -------
    DataFrame
        ``participant_id, roi_id`` and ``name``, one row per region.
    """
    texts = []
    for reader, value in zip(scores["reader_id"], scores[column], strict=True):
        value_text = f"{value:g}" if isinstance(value, float) else str(value)
        texts.append(f"{reader}={value_text}")
    grouped = scores.assign(**{name: texts}).groupby(["participant_id", "roi_id"], sort=False)
    return grouped[name].agg("; ".join).reset_index()
