"""Read the 34 classification sets of [W14] Table 1, and encode their attributes inside folds.

UCI is the collection of data sets from which the paper took them. If the user names no folder, the
sets are fetched from OpenML by scikit-learn's ``fetch_openml``. Each table is checked. If its
number of rows or of positive rows is not that of the UCI set, the table is left out, with the
reason.
"""

import re
import socket
import warnings
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.terms.beside import table_beside

# Seconds until a connection to OpenML counts as blocked, for example by a firewall. scikit-learn
# itself sets no limit.
SECONDS = 20.0
WAY_OUT = (
    "run it again when the network is there: files that have arrived are kept; or give a folder "
    "with the UCI tables and their manifest.csv (a row per set: name, file, positive, negative) "
    "with --data"
)


class Source(NamedTuple):
    """Say where a data set is on OpenML, and which numbers its table must have.

    Parameters
    ----------
    name : str
        Name as in [W14] Table 1.
    data_id : int
        OpenML's number of the table.
    positive : str
        OpenML's values of the paper's positive class, joined by a vertical bar; every other value
        is negative.
    rows, positives : int
        Number of rows, and of positive rows, of the UCI set; a table with other numbers is refused.
    label : str
        Column of the class; empty for OpenML's own choice.
    first : int or None
        Number of rows that are taken from the top; None for all rows.
    total : int or None
        Sum of all attributes of the rows taken; a table with another sum is refused. None where
        it is not checked.
    """

    name: str
    data_id: int
    positive: str
    rows: int
    positives: int
    label: str = ""
    first: int | None = None
    total: int | None = None


_TABLES = table_beside(__file__)
# A data set can have several sources: several uploads to OpenML, or several possible codings of its
# classes. At most one source has the UCI set's number of rows and of positive rows.
SOURCES = tuple(Source(**row) for row in _TABLES["sources"])
NOT_THERE: dict[str, str] = _TABLES["not_there"]
# By data set: columns that reveal the label, or that the donors of the data advise not to use.
LEAKING: dict[str, list[str]] = _TABLES["leaking"]


def fetch_sets(folder: Path, names: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Fetch data sets from OpenML, and write their tables and ``manifest.csv`` into a folder.

    A table with another number of rows or of positive rows than the UCI set is not written.
    scikit-learn keeps downloads in its own data folder (``SCIKIT_LEARN_DATA``, by default in the
    home folder) and does not fetch them again.

    Parameters
    ----------
    folder : Path
        Folder to write; :func:`cad.evidence.experiments.uci.read_sets` reads it.
    names : tuple of str
        Names of the wanted sets, without regard to case; empty for all.

    Returns
    -------
    arrived : tuple of str
        Names of the sets in the folder's manifest.
    left_out : dict of str to str
        For each wanted set that is not in the folder, the reason.

    Raises
    ------
    CadError
        For an unknown name, without a network, or if none of the wanted sets arrived.
    """
    sources: dict[str, list[Source]] = {}
    for source in SOURCES:
        sources.setdefault(source.name, []).append(source)
    manifest: dict[str, dict[str, object]] = {}
    left_out = {}
    for name in _wanted(names, list(dict.fromkeys([*sources, *NOT_THERE]))):
        if name in NOT_THERE:
            left_out[name] = NOT_THERE[name]
            continue
        problems = []
        # A set may have several sources. The first source is taken whose table is the UCI set.
        for source in sources[name]:
            try:
                table = _fetch_set(source)
            except ValueError as error:
                problems.append(f"OpenML {source.data_id}: {error}")
            else:
                manifest[name] = _write_set(source, table, folder)
                break
        else:  # no source had the UCI set
            left_out[name] = "; ".join(problems)
    if not manifest:
        why = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
        raise CadError(f"no set arrived from OpenML: {why}", hint=WAY_OUT)
    rows = pd.DataFrame(list(manifest.values()))
    write_atomic(folder / "manifest.csv", rows.to_csv(index=False).encode())
    return tuple(manifest), left_out


def provenance(arrived: tuple[str, ...], left_out: dict[str, str]) -> str:
    """Return sentences that say where the tables come from, and which tables are missing and why.

    Parameters
    ----------
    arrived : tuple of str
        Names of the sets that were fetched.
    left_out : dict of str to str
        The reason, by name, for each set that was not fetched.
    """
    published = len({source.name for source in SOURCES} | NOT_THERE.keys())
    missing = "; ".join(f"{name} ({why})" for name, why in left_out.items())
    return (
        f"{len(arrived)} of the paper's {published} sets, from OpenML through scikit-learn's "
        "fetch_openml, each with the rows and positive rows of the UCI set; columns that OpenML "
        "sets aside are not attributes (Zoo's animal name, Bupaliver's selector). "
        + (f"Left out: {missing}." if missing else "None of those asked for was left out.")
    )


@door("own", "published data")
def _fetch_set(source: Source) -> pd.DataFrame:
    """Return a set's attributes and its column ``class``, fetched from OpenML.

    ValueError is raised if OpenML's table is not the UCI set.
    """
    limit_before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SECONDS)
    try:
        with warnings.catch_warnings():
            # scikit-learn tries again after a network error, so that its warning is not needed.
            warnings.filterwarnings("ignore", "A network error occurred")
            target = source.label or "default-target"
            # The parser "liac-arff" is chosen, because the parser "pandas" fails on sets whose
            # classes pandas 3 reads as numbers or booleans.
            data_set = fetch_openml(
                data_id=source.data_id, target_column=target, as_frame=True, parser="liac-arff"
            )
    except HTTPError as error:
        raise ValueError(str(error)) from error
    except (OSError, HTTPException) as error:
        raise CadError(f"OpenML {source.data_id} was not reached: {error}", hint=WAY_OUT) from error
    except Exception as error:  # scikit-learn's parsers raise their own kinds of exceptions
        raise ValueError(f"{type(error).__name__}: {error}") from error
    finally:
        socket.setdefaulttimeout(limit_before)

    # OpenML's table is the UCI set if it has the right rows, and among them the right positives.
    if not isinstance(data_set.target, pd.Series):
        raise ValueError("it has no class column, or several")
    classes = data_set.target.iloc[: source.first]
    table: pd.DataFrame = data_set.data.iloc[: source.first].copy()
    if source.total is not None and table.to_numpy(float).sum() != source.total:
        raise ValueError(f"the first {source.first} rows are not those of the UCI set")
    # A class is stored as a text; a number such as 1.0 becomes "1".
    if pd.api.types.is_numeric_dtype(classes):
        table["class"] = classes.map("{:g}".format)
    else:
        table["class"] = classes.astype(str).str.strip()
    positives = int(table["class"].isin(source.positive.split("|")).sum())
    if (len(table), positives) != (source.rows, source.positives):
        raise ValueError(
            f"{len(table)} rows with {positives} positive ({source.positive}) "
            f"are not the {source.rows} with {source.positives} of the UCI set"
        )
    return table


def _write_set(source: Source, table: pd.DataFrame, folder: Path) -> dict[str, object]:
    """Write the table of a data set; return its row of ``manifest.csv``, the list of all tables."""
    file = re.sub(r"\W", "_", source.name.lower()) + ".csv"
    write_atomic(folder / file, table.to_csv(index=False).encode())
    negative_classes = set(table["class"]) - set(source.positive.split("|"))
    return {
        "name": source.name,
        "file": file,
        "instances": len(table),
        "attributes": table.shape[1] - 1,
        "positive": source.positive,
        "negative": "|".join(sorted(negative_classes)),
        "notes": f"OpenML {source.data_id} through scikit-learn's fetch_openml",
    }


MAX_ROWS = 100
_LEAST_OF_CLASS = 4


class DataSet(NamedTuple):
    """Hold one data set of [W14]: raw attributes and a label of 0 or 1 for each row.

    Parameters
    ----------
    name : str
        Name as in the paper's Table 1.
    X : DataFrame, shape (n, d)
        Raw attributes, numbers or strings, NaN where missing.
    y : ndarray, shape (n,)
        1 for the paper's positive class, else 0.
    """

    name: str
    X: pd.DataFrame
    y: np.ndarray


@door("own", "published data")
def read_sets(folder: Path, names: tuple[str, ...], leaking: bool) -> list[DataSet]:
    """Read the data sets of a folder with a ``manifest.csv``.

    Parameters
    ----------
    folder : Path
        Tables and manifest, as :func:`fetch_sets` writes them.
    names : tuple of str
        Names of the wanted sets, without regard to case; empty for all.
    leaking : bool
        Whether to keep the columns of :data:`LEAKING`, which give the label away; the paper kept
        them.

    Returns
    -------
    list of DataSet
        The data sets, in the order of the manifest.

    Raises
    ------
    CadError
        For a missing manifest or table, an unknown name, or a class that the manifest does not
        list.
    """
    path = folder / "manifest.csv"
    if not path.is_file():
        raise CadError("no manifest.csv", file=path, hint="give the folder of the UCI tables")
    manifest = pd.read_csv(path, dtype=str)
    rows = manifest[manifest["name"].isin(_wanted(names, list(manifest["name"])))]
    return [_read_set(folder, row, leaking) for _, row in rows.iterrows()]


def _wanted(names: tuple[str, ...], offered: list[str]) -> list[str]:
    """Return the offered names that are wanted, without regard to case; all if no name is given."""
    asked_names = {name.lower() for name in names or offered}
    unknown = asked_names - {name.lower() for name in offered}
    if unknown:
        raise CadError(
            f"unknown data set {', '.join(sorted(unknown))}", hint=f"known: {', '.join(offered)}"
        )
    return [name for name in offered if name.lower() in asked_names]


def draw_rows(data: DataSet, seed: int) -> DataSet:
    """Draw 100 rows at random that contain both classes, as [W14] 4.2.1 does.

    Parameters
    ----------
    data : DataSet
        All rows of the set.
    seed : int
        Random seed.

    Returns
    -------
    DataSet
        Set with at least four rows of each class; a set of at most 100 rows is returned whole.
    """
    n = len(data.y)
    if n <= MAX_ROWS:
        return data
    rng = np.random.default_rng(seed)
    rows = rng.choice(n, MAX_ROWS, replace=False)
    # Rows are drawn again until each class has enough rows, because the training rows and the test
    # rows of a fold both need rows of each class.
    while min(data.y[rows].sum(), (1 - data.y[rows]).sum()) < _LEAST_OF_CLASS:
        rows = rng.choice(n, MAX_ROWS, replace=False)
    return DataSet(data.name, data.X.iloc[rows].reset_index(drop=True), data.y[rows])


def encode(X: pd.DataFrame, fitted_on: np.ndarray) -> np.ndarray:
    """Turn attributes into numbers for learners.

    A missing number is replaced by the median of its column, and a missing string by the column's
    most frequent value. Strings are then one-hot encoded, and every column is standardised.

    Parameters
    ----------
    X : DataFrame, shape (n, d)
        Raw attributes.
    fitted_on : ndarray of int
        Positions of the training rows: medians, most frequent values, categories, means and
        deviations come from these alone.

    Returns
    -------
    ndarray, shape (n, d_encoded)
        All rows of ``X``. Columns that are constant on the training rows are left out.

    Examples
    --------
    The first two rows are the training rows: mean 2 and median 2 of the numbers, and two colours:

    >>> import numpy as np
    >>> X = pd.DataFrame({"size": [1.0, 3.0, np.nan], "colour": ["red", "blue", "blue"]})
    >>> encode(X, np.array([0, 1])).round(2).tolist()
    [[-0.71, -0.71, 0.71], [0.71, 0.71, -0.71], [0.0, 0.71, -0.71]]
    """
    # Columns of numbers. One without a value in the training rows has no median, and is left out.
    numbers = X.select_dtypes("number").to_numpy(float)
    has_value = ~np.isnan(numbers[fitted_on]).all(axis=0)
    numbers = numbers[:, has_value]
    medians = np.nanmedian(numbers[fitted_on], axis=0)
    blocks = [np.where(np.isnan(numbers), medians, numbers)]

    # Columns of strings become a column of 0 and 1 for each value that the training rows have.
    for name in X.columns.difference(X.select_dtypes("number").columns, sort=False):
        training_values = X[name].iloc[fitted_on].dropna()
        if not training_values.empty:
            most_frequent = training_values.mode().iloc[0]
            filled = X[name].fillna(most_frequent).to_numpy(str)
            categories = np.unique(training_values.to_numpy(str))
            blocks.append((filled[:, None] == categories).astype(float))

    values = np.hstack(blocks)
    mean = values[fitted_on].mean(axis=0)
    deviation = values[fitted_on].std(axis=0, ddof=1)
    # A deviation that is only a rounding error counts as 0, and nothing is divided by it.
    varying = deviation > 1e-12 * np.maximum(1.0, np.abs(mean))
    return np.asarray((values[:, varying] - mean[varying]) / deviation[varying])


@door("own", "published data")
def _read_set(folder: Path, row: pd.Series, leaking: bool) -> DataSet:
    """Return the data set of a row of the manifest; ``leaking`` keeps columns of LEAKING."""
    path = folder / str(row["file"])
    if not path.is_file():
        raise CadError("the manifest names a table that is not there", file=path)
    # Classes are read as texts, as the manifest lists them. Only an empty cell is a missing value:
    # a class or attribute may be called NA.
    labels = pd.read_csv(path, dtype=str, keep_default_na=False, usecols=["class"])["class"]
    X = pd.read_csv(path, keep_default_na=False, na_values=[""]).drop(columns="class")
    positive = str(row["positive"]).split("|")
    negative = str(row["negative"]).split("|")
    if not labels.isin([*positive, *negative]).all():
        raise CadError("a class value is neither positive nor negative in the manifest", file=path)
    if not leaking:
        leaking_names = LEAKING.get(str(row["name"]), ())
        X = X.drop(columns=[name for name in leaking_names if name in X.columns])
    return DataSet(str(row["name"]), X, labels.isin(positive).to_numpy(float))
