"""Write and read the tables of a run folder; each file is whole or absent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypedDict

import pandas as pd

from cad.errors import CadError
from cad.files import parquet_bytes, write_atomic, write_csv
from cad.run_folder.folder import RunFolder

KEYS = ["participant_id", "study_id", "roi_id"]
"""What names a region."""

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
)
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
    return pd.read_parquet(folder.features)


def write_labels(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``labels.parquet``."""
    write_atomic(folder.labels, parquet_bytes(table))


def write_probabilities(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``probabilities.csv``."""
    write_csv(folder.probabilities, table, PROBABILITY_COLUMNS)


def read_probabilities(folder: RunFolder) -> pd.DataFrame:
    """Read ``probabilities.csv``; identifiers stay text.

    Raises
    ------
    CadError
        Where there is none.
    """
    if not folder.probabilities.is_file():
        raise CadError("the run has no probabilities.csv", file=folder.probabilities)
    return pd.read_csv(folder.probabilities, dtype={"roi_id": str, "zone": str})


def write_explanations(folder: RunFolder, rows: Sequence[ExplanationRow]) -> None:
    """Write ``explanations.csv``."""
    write_csv(folder.explanations, pd.DataFrame(rows), EXPLANATION_COLUMNS)


def write_failures(folder: RunFolder, failures: Sequence[Failure]) -> None:
    """Write one row per study or region that failed; an empty table says that none did."""
    write_csv(folder.failures, pd.DataFrame([asdict(f) for f in failures]), FAILURE_COLUMNS)


def read_failures(folder: RunFolder) -> list[Failure]:
    """Read the rows of ``failures.csv``."""
    columns = list(FAILURE_COLUMNS)
    table = pd.read_csv(folder.failures, dtype=str, keep_default_na=False, usecols=columns)
    return [Failure(*row) for row in table[columns].itertuples(index=False)]


def write_suggestions(folder: RunFolder, table: pd.DataFrame) -> None:
    """Write ``suggestions.csv``."""
    write_csv(folder.suggestions, table, list(table.columns))


def scores_text(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of every region as ``r1=3; r2=4``, as the readers gave them."""
    given = scores.assign(scores=[f"{r.reader_id}={r.score:g}" for r in scores.itertuples()])
    grouped = given.groupby(["participant_id", "roi_id"], sort=False)["scores"].agg("; ".join)
    return grouped.reset_index()
