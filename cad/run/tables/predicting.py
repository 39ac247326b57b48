"""Score the rows of a table with a trained model, and write the table with the result."""

import difflib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from cad.base.errors import CadError, located
from cad.base.files import csv_bytes, write_own
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.partitions import LABELS, read_partitions
from cad.folders.run_folder.tables import KEYS
from cad.learning.learners.base import RangeWarning
from cad.run.execution.options import HERE
from cad.run.model.bundle import FILL, Bundle, load_bundle
from cad.run.stages.decide import decide_run
from cad.run.stages.extract import Extracted
from cad.run.stages.predict import predict, settings_of
from cad.run.tables import values
from cad.run.tables.dialects import UNSTATED, Cells, Dialect, read_cells
from cad.run.tables.doubts import CODES
from cad.run.tables.regions import Regions, no_scores, numbered_within
from cad.run.tables.stages import aggregate_table, load_table

_SHOWN = 12
ADDED = (
    "belief",
    "probability",
    "probability_of",
    "probability_images",
    "probability_low",
    "probability_high",
    "decision",
    "decision_reason",
    "unlike",
)
"""Columns that a prediction adds to the table, as far as the model gives them."""


@dataclass(frozen=True)
class Predicted:
    """Hold a scored table.

    Parameters
    ----------
    table : DataFrame
        The table that was written: all columns of the user's table as they were, and the columns of
        :data:`ADDED`.
    notes : list of str
        Sentences on how the file was read, on columns that the training had and the file lacks, and
        on columns and rows that are unlike those of the training, and on numbers that usually mean
        a missing value.
    """

    table: pd.DataFrame
    notes: list[str]


def predict_table(
    path: Path,
    model: Path,
    out: Path,
    dialect: Dialect = UNSTATED,
    missing: tuple[str, ...] = (),
    force: bool = False,
) -> Predicted:
    """Score the rows of a table with a trained model, and write the table with the result.

    Parameters
    ----------
    path : Path
        A file (:func:`cad.run.tables.dialects.read_cells`), or a folder of runs, with the model's
        features. Columns of the patient and of the readers' scores are found by the names that they
        had at the training.
    model : Path
        Folder of a bundle (a stored model). When it is loaded, its stored reference predictions are
        computed again and compared.
    out : Path
        CSV file to write; never the table itself, a link or a device.
    dialect : Dialect
        How the file is to be read, where its bytes leave a choice.
    missing : tuple of str
        Texts that stand for a missing value, in addition to those that did so at the training.
    force : bool
        Whether an existing file that this program did not write is replaced.

    Returns
    -------
    Predicted
        The table that was written, and notes on it.

    Raises
    ------
    CadError
        For a table that lacks one of the model's columns; for a table that already has a column
        with the name of an added column; for a cell that is no number; for an empty cell, if the
        model fills no missing values; for a model that does not reproduce its reference
        predictions; for an output file that is the input file.
    """
    bundle = load_bundle(model)
    if not bundle.of_table:
        raise CadError(
            f"{bundle.name} was trained on images: it scores a cohort, not a table",
            file=model,
            hint="`cad predict --model MODEL --cohort COHORT`",
        )
    if path.is_dir():
        table = read_partitions(path)
        _check_model_columns(table, bundle, path)
        regions = _regions_to_predict(table, bundle, path)
        rows = [f"region {roi} of {patient}" for patient, roi in _keys_of_rows(regions)]
    else:
        cells = read_cells(path, dialect)
        table = cells.table
        _check_model_columns(table, bundle, path)
        with located(file=path):
            regions = _of_cells(cells, bundle, missing)
        rows = [f"row {row}" for row in cells.rows]
    with located(file=path):
        _check_filled(regions.X, rows, bundle)

    scored = _columns_of_scores(regions, bundle)
    # The arrays carry no index, so that a column goes to the rows by their order.
    written = table.assign(**{name: scored[name].to_numpy() for name in scored})
    write_own(out, csv_bytes(written, list(written.columns)), [path, model], force=force)

    notes = [*regions.notes, *bundle.unlike(regions.X), *_notes_on_codes(regions.X, rows, bundle)]
    n_empty = int(regions.X.isna().all(axis=1).sum())
    if n_empty:
        notes.append(f"{n_empty} rows have no value in any column of the model, and no probability")
    return Predicted(written, notes)


def _check_model_columns(table: pd.DataFrame, bundle: Bundle, path: Path) -> None:
    """Raise an error if a table lacks a model's column, or has one that a prediction adds."""
    absent = [name for name in bundle.features if name not in table]
    if absent:
        shown = ", ".join(map(repr, absent[:_SHOWN]))
        further = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
        names = [str(name) for name in table.columns]
        # A name that differs by capitals alone is the closest.
        closest = [name for name in names if name.lower() == absent[0].lower()]
        closest += difflib.get_close_matches(absent[0], names, n=1)
        meant = f"is it the table's {closest[0]!r}? " if closest else ""
        raise CadError(
            f"no column {shown}{further}, which {bundle.name} was trained on",
            file=path,
            hint=f"{meant}the model needs its {len(bundle.features)} columns under the names of "
            f"its card, and the table has {', '.join(names[:_SHOWN])}",
        )
    taken = [name for name in ADDED if name in table]
    if taken:
        raise CadError(
            f"the table has a column {taken[0]!r} already, and a prediction adds one of that name",
            file=path,
            hint="rename the table's column: nothing of it is overwritten",
        )


def _keys_of_rows(regions: Regions) -> list[tuple[str, str]]:
    """Return patient and region of every row."""
    return list(zip(regions.rois["participant_id"], regions.rois["roi_id"], strict=True))


def _check_filled(X: pd.DataFrame, rows: list[str], bundle: Bundle) -> None:
    """Raise an error for a missing value, if the model fills none.

    A row without any value is accepted, because it gets no probability.

    Parameters
    ----------
    X : DataFrame, shape (n, n_features)
        The model's columns.
    rows : list of str, length n
        Words that name each row to the user.
    bundle : Bundle
        The model.
    """
    with_values = np.flatnonzero(X.notna().any(axis=1))  # indices of rows
    unfilled = bundle.unfilled(X.iloc[with_values])
    if unfilled is not None:
        index, name = unfilled  # the index counts the rows of ``with_values``
        row = rows[with_values[index]]
        raise CadError(
            f"column {name!r}, {row}: the value is missing, and {bundle.name} fills "
            "no missing values",
            hint=FILL,
        )


def _notes_on_codes(X: pd.DataFrame, rows: list[str], bundle: Bundle) -> list[str]:
    """Return notes on numbers outside the training's range that usually mean a missing value.

    Parameters
    ----------
    X : DataFrame, shape (n, n_features)
        The model's columns.
    rows : list of str, length n
        Words that name each row to the user.
    bundle : Bundle
        The model.
    """
    notes = []
    for name in bundle.features:
        values = X[name].to_numpy(float)
        trained = bundle.training[name]
        outside = (values < trained.min()) | (values > trained.max())
        for code in CODES:
            with_code = np.flatnonzero((values == code) & outside)  # indices of rows
            if len(with_code):
                notes.append(
                    f"column {name!r}, {rows[with_code[0]]}: {code:g} stands in {len(with_code)} "
                    "rows and lies outside what the model was trained on; if it means a missing "
                    f"value, give --missing={code:g}"
                )
    return notes


def _regions_to_predict(table: pd.DataFrame, bundle: Bundle, path: Path) -> Regions:
    """Return the regions of a folder of runs with the model's features, without their labels."""
    rois = table[["participant_id", "roi_id"]].astype(str).assign(histology="", isup="", site="")
    features = table[bundle.features]
    unknown_labels = pd.DataFrame(np.nan, table.index, LABELS)
    return Regions(path, features, rois, no_scores(), stated=unknown_labels)


def _of_cells(cells: Cells, bundle: Bundle, missing: tuple[str, ...]) -> Regions:
    """Return the rows of a table with the model's features and the readers' scores."""
    # The roles of the columns at the training; a model that was not trained on a file has none.
    roles = bundle.metadata.get("table") or {}
    codes = (*roles.get("missing", ()), *missing)
    meaning = values.Meaning(cells.decimal_comma, codes, of_model=True)
    X = pd.DataFrame({name: values.numbers(cells, name, meaning) for name in bundle.features})
    notes = list(cells.notes)

    # Without a column of patients, nothing says that two rows are of one patient.
    patients = [f"row {row}" for row in cells.rows]
    patient_column = roles.get("patient")
    if patient_column is None:
        notes.append(
            f"{bundle.name} names no column of patients: every row counts as a patient of its own"
        )
    elif patient_column not in cells.table:
        notes.append(f"no column {patient_column!r}: every row counts as a patient of its own")
    else:
        patients = values.ids(cells, patient_column, "the patient", meaning)

    # Readers' scores are evidence beside the features. A table may lack those of some readers.
    absent_readers = [name for name in roles.get("scores", ()) if name not in cells.table]
    if absent_readers:
        notes.append(f"no scores of {', '.join(absent_readers)}: they are no evidence here")
    region_ids = numbered_within(patients)
    rois = pd.DataFrame({"participant_id": patients, "roi_id": region_ids})
    readings = [no_scores()]
    for name in roles.get("scores", ()):
        if name not in cells.table:
            continue
        reading = rois.assign(reader_id=name, scale=roles["scale"])
        reading["score"] = values.scores(cells, name, roles["scale"], meaning)
        readings.append(reading[reading["score"].notna()])
    # ``readings[0]`` is empty, and is the result where no reader has scored.
    scores = pd.concat(readings, ignore_index=True) if len(readings) > 1 else readings[0]
    rois = rois.assign(histology="", isup="", site="")
    return Regions(cells.file, X, rois, scores, notes=notes)


def _columns_of_scores(regions: Regions, bundle: Bundle) -> pd.DataFrame:
    """Return, for all rows of a table, the columns with results that are added to the table."""
    if "pipeline" not in bundle.metadata:
        # A model that `cad.save_model` wrote holds only a learner and no thresholds. So it gives a
        # probability and no decision.
        probability = np.full(len(regions.X), np.nan)
        has_value = regions.X.notna().any(axis=1).to_numpy()
        with warnings.catch_warnings():
            # `predict_table` writes a note on rows that lie far from the training's range, so the
            # same warning is not shown.
            warnings.simplefilter("ignore", RangeWarning)
            if has_value.any():
                probability[has_value] = bundle.probability(regions.X[has_value])
        return pd.DataFrame({"probability": probability})
    # The stages of a run write files, which are not kept.
    with TemporaryDirectory() as scratch:
        settings = settings_of(bundle)
        loaded = load_table(regions, settings, RunFolder(Path(scratch)), HERE, "predict")
        # load_table adapts the settings to the table, but a prediction takes those of the model.
        loaded = replace(loaded, settings=settings)
        aggregated = aggregate_table(loaded, regions)
        source = aggregated.source
        features = pd.concat([aggregated.table.keys[KEYS], aggregated.table.X], axis=1)
        extracted = Extracted(features, aggregated.provenance, source)
        judged = decide_run(loaded, [], predict(loaded, extracted, aggregated, [bundle]))
    results = judged.results
    is_empty = regions.X.isna().all(axis=1).to_numpy()
    numbers = [name for name in ADDED if name in results and is_numeric_dtype(results[name])]
    # For a row in which every feature is missing, the model sees only the medians of its training.
    # Its prediction then tells nothing about the row and is removed.
    results.loc[is_empty, numbers] = np.nan
    for name, text in (
        ("decision", ""),
        ("decision_reason", "no column of the model has a value"),
        ("unlike", "no column of the model has a value"),
    ):
        results.loc[is_empty, name] = text
    return results[[name for name in ADDED if name in results]]
