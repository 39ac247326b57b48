"""Score the rows of a table with a trained model, and write the table with the result."""

from pathlib import Path

import pandas as pd

from cad.base.errors import CadError, located
from cad.base.files import csv_bytes, write_own
from cad.folders.run_folder.partitions import read_partitions
from cad.run.model.bundle import Bundle, load_bundle
from cad.run.tables import values
from cad.run.tables.dialects import UNSTATED, Dialect, read_cells

ADDED = ("probability",)
"""Columns that a prediction adds to the table."""


def predict_table(
    path: Path,
    model: Path,
    out: Path,
    dialect: Dialect = UNSTATED,
    missing: tuple[str, ...] = (),
    force: bool = False,
) -> pd.DataFrame:
    """Score the rows of a table with a trained model, and write the table with the result.

    Parameters
    ----------
    path : Path
        A file (:func:`cad.run.tables.dialects.read_cells`), or a folder of runs, with the model's
        features.
    model : Path
        Folder of a bundle, which must reproduce its reference predictions first.
    out : Path
        CSV file to write; never the table itself, a link or a device.
    dialect : Dialect
        How the file is to be read, where its bytes leave a choice.
    missing : tuple of str
        Further texts that stand for a missing value.
    force : bool
        Whether to replace a file that this program did not write, as
        :func:`cad.base.files.write_own` does.

    Returns
    -------
    DataFrame
        What was written: all columns of the table as they were, and those of :data:`ADDED`.

    Raises
    ------
    CadError
        For a table that lacks one of the model's columns or has one of those that are added, a cell
        that is no number, a model that does not reproduce, and an output that is the input.
    """
    bundle = load_bundle(model)
    if path.is_dir():
        table = read_partitions(path)
        _check_columns(table, bundle, path)
        features = table[bundle.features]
    else:
        cells = read_cells(path, dialect)
        table = cells.table
        _check_columns(table, bundle, path)
        meaning = values.Meaning(cells.decimal_comma, missing)
        with located(file=path):
            features = pd.DataFrame(
                {name: values.numbers(cells, name, meaning) for name in bundle.features}
            )
    scored = table.assign(probability=bundle.probability(features))
    write_own(out, csv_bytes(scored, list(scored.columns)), [path, model], force=force)
    return scored


def _check_columns(table: pd.DataFrame, bundle: Bundle, path: Path) -> None:
    absent = [name for name in bundle.features if name not in table]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise CadError(
            f"no column {absent[0]!r}{more}, which {bundle.name} was trained on",
            file=path,
            hint=f"give a table with the {len(bundle.features)} columns of the model's card",
        )
    taken = [name for name in ADDED if name in table]
    if taken:
        raise CadError(
            f"the table has a column {taken[0]!r} already, and a prediction adds one of that name",
            file=path,
            hint="rename the table's column: nothing of it is overwritten",
        )
