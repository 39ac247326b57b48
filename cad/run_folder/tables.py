"""Write and read the tables of a run folder; each file is whole or absent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypedDict

import pandas as pd
import pyarrow.parquet as pq

from cad.errors import CadError
from cad.files import parquet_bytes, write_atomic, write_csv
from cad.reading import read_frame, read_parquet, read_rows, reading
from cad.run_folder.folder import RunFolder

KEYS = ["participant_id", "study_id", "roi_id"]
"""What names a region."""

LIKE = "like"
"""Stands in the column ``unlike`` of a region that was compared and is like the training."""

FAILURE_COLUMNS = ("participant_id", "study_id", "roi_id", "stage", "reason", "hint", "status")
PROBABILITY_COLUMNS = (
    *KEYS,
    "label",
    "zone",
    "probability",
    "decision",
    "decision_value",
    "p",
    "eta",
    "n_readers",
    "label_kind",
    "histology",
    "isup",
    "scores",
    "with_tool",
    "patient_probability",
    "p_benign",
    "p_malignant",
    "model",
    "warnings",
    "unlike",
    "scales",
    "reader_values",
    "sector",
    "psa",
)
OUTLINE_COLUMNS = ("outline_low", "outline_median", "outline_high", "outlines")
"""Stand in ``probabilities.csv`` where a prediction was asked how far outlines move it."""
EXPLANATION_COLUMNS = (*KEYS, "rank", "feature", "value", "unit", "delta", "percentile")


class Explanation(TypedDict):
    """Hold what one feature did to a region's decision value."""

    rank: int
    feature: str
    value: float
    delta: float
    percentile: float


class ExplanationRow(Explanation):
    """Hold a row of ``explanations.csv``."""

    participant_id: str
    study_id: str
    roi_id: str
    unit: str


@dataclass(frozen=True)
class Failure:
    """Hold a row of ``failures.csv``: a study or a region that gave no result, and why."""

    participant_id: str
    study_id: str
    roi_id: str
    stage: str
    reason: str
    hint: str = ""
    status: Literal["failed", "awaiting ROI"] = "failed"


def write_features(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``features.parquet``."""
    write_atomic(folder.features, parquet_bytes(table))


def read_features(folder: RunFolder) -> pd.DataFrame:
    """Read ``features.parquet``."""
    with reading(folder.features, "not a readable table"):
        return read_parquet(folder.features)


def count_features(folder: RunFolder) -> int:
    """Count the features of ``features.parquet``."""
    return len(set(pq.read_schema(folder.features).names) - set(KEYS))


def write_labels(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``labels.parquet``."""
    write_atomic(folder.labels, parquet_bytes(table))


def write_probabilities(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``probabilities.csv``."""
    asked = [name for name in OUTLINE_COLUMNS if name in table]
    write_csv(folder.probabilities, table, [*PROBABILITY_COLUMNS, *asked])


def read_probabilities(folder: RunFolder) -> pd.DataFrame:
    """Read ``probabilities.csv``; identifiers stay text.

    Raises
    ------
    CadError
        Where there is none.
    """
    if not folder.probabilities.is_file():
        raise CadError("the run has no probabilities.csv", file=folder.probabilities)
    text = ("participant_id", "study_id", "roi_id", "zone")
    return read_frame(folder.probabilities, dtype=dict.fromkeys(text, str))


def write_explanations(folder: RunFolder, rows: Sequence[ExplanationRow]) -> None:
    """Write ``explanations.csv``."""
    write_csv(folder.explanations, pd.DataFrame(rows), EXPLANATION_COLUMNS)


def write_failures(folder: RunFolder, failures: Sequence[Failure]) -> None:
    """Write one row per study or region that failed; an empty table says that none did."""
    write_csv(folder.failures, pd.DataFrame([asdict(f) for f in failures]), FAILURE_COLUMNS)


def read_failures(folder: RunFolder) -> list[Failure]:
    """Read the rows of ``failures.csv``."""
    table = read_rows(folder.failures, FAILURE_COLUMNS)
    return [
        Failure(
            row["participant_id"],
            row["study_id"],
            row["roi_id"],
            row["stage"],
            row["reason"],
            row["hint"],
            "awaiting ROI" if row["status"] == "awaiting ROI" else "failed",
        )
        for row in table
    ]


def write_suggestions(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``suggestions.csv``."""
    write_csv(folder.suggestions, table, list(table.columns))


def by_region(scores: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """Return what every region's readers say in a column as ``r1=3; r2=4``, under a name."""
    texts = [
        f"{reader}={value:g}" if isinstance(value, float) else f"{reader}={value}"
        for reader, value in zip(scores["reader_id"], scores[column], strict=True)
    ]
    grouped = scores.assign(**{name: texts}).groupby(["participant_id", "roi_id"], sort=False)
    return grouped[name].agg("; ".join).reset_index()
