"""The files of a run folder, each whole or absent (DESIGN 4)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from cad.evaluation.summary import json_safe
from cad.extraction import Failure
from cad.files import write_atomic

FAILURE_COLUMNS = ("participant_id", "study_id", "roi_id", "stage", "reason", "hint")
PROBABILITY_COLUMNS = (
    "participant_id",
    "study_id",
    "roi_id",
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
    "p_benign",
    "p_malignant",
    "model",
    "warnings",
)
EXPLANATION_COLUMNS = (
    "participant_id",
    "study_id",
    "roi_id",
    "rank",
    "feature",
    "value",
    "unit",
    "delta",
    "percentile",
)


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """A table as parquet; byte-identical for the same content."""
    stream = BytesIO()
    table.to_parquet(stream, index=False)
    write_atomic(path, stream.getvalue())


def write_csv(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """A table as CSV with exactly these columns; floats read back to the same bits."""
    text = table.reindex(columns=list(columns)).to_csv(index=False, lineterminator="\n")
    write_atomic(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """JSON without NaN: what is not a number is null."""
    text = json.dumps(json_safe(content), indent=1, sort_keys=True, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def write_failures(path: Path, failures: list[Failure]) -> None:
    """One row per study or region that failed; an empty table says that none did."""
    write_csv(path, pd.DataFrame([asdict(f) for f in failures]), FAILURE_COLUMNS)


def read_failures(path: Path) -> list[Failure]:
    """The rows of ``failures.csv``."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return [Failure(*row) for row in table[list(FAILURE_COLUMNS)].itertuples(index=False)]


def scores_text(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores of every region as ``r1=3; r2=4``, as the readers gave them."""
    given = scores.assign(scores=[f"{r.reader_id}={r.score:g}" for r in scores.itertuples()])
    grouped = given.groupby(["participant_id", "roi_id"], sort=False)["scores"].agg("; ".join)
    return grouped.reset_index()
