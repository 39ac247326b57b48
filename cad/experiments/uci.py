"""The 34 classification sets of [W14] Table 1, read from a folder and encoded inside a fold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from cad.errors import CadError

MAX_ROWS = 100
# Columns that give the label away or that the donors ask to leave out (manifest notes).
LEAKING = {"Cardio": ("survival", "still_alive"), "Bupaliver": ("selector",)}


@dataclass(frozen=True)
class DataSet:
    """Hold one set: raw attributes and a 0/1 label.

    Parameters
    ----------
    name : str
        As in the paper's Table 1.
    X : DataFrame, shape (n, d)
        Raw attributes, numbers or strings, NaN where missing.
    y : ndarray, shape (n,)
        1 for the paper's positive class.
    """

    name: str
    X: pd.DataFrame
    y: np.ndarray


def read_sets(folder: Path, names: tuple[str, ...], leaking: bool) -> list[DataSet]:
    """Read the data sets of a folder with a ``manifest.csv``.

    Parameters
    ----------
    folder : Path
        Tables and manifest.
    names : tuple of str
        Which sets, by name without regard to case; empty for all.
    leaking : bool
        Keep the columns of :data:`LEAKING`, as the paper did.

    Raises
    ------
    CadError
        For a missing folder or an unknown name.
    """
    path = folder / "manifest.csv"
    if not path.is_file():
        raise CadError("no manifest.csv", file=path, hint="give the folder of the UCI tables")
    manifest = pd.read_csv(path, dtype=str)
    wanted = {name.lower() for name in names} or set(manifest["name"].str.lower())
    unknown = wanted - set(manifest["name"].str.lower())
    if unknown:
        known = ", ".join(manifest["name"])
        raise CadError(f"unknown data set {', '.join(sorted(unknown))}", hint=f"known: {known}")
    rows = manifest[manifest["name"].str.lower().isin(wanted)]
    return [_read(folder, row, leaking) for _, row in rows.iterrows()]


def draw_rows(data: DataSet, seed: int) -> DataSet:
    """Draw at most 100 rows with both classes, as [W14] 4.2.1; a smaller set stays whole.

    Parameters
    ----------
    data : DataSet
        All its rows.
    seed : int
        Of the draw.
    """
    n = len(data.y)
    if n <= MAX_ROWS:
        return data
    rng = np.random.default_rng(seed)
    rows = rng.choice(n, MAX_ROWS, replace=False)
    while min(data.y[rows].sum(), (1 - data.y[rows]).sum()) < 4:  # each half fold needs both
        rows = rng.choice(n, MAX_ROWS, replace=False)
    return DataSet(data.name, data.X.iloc[rows].reset_index(drop=True), data.y[rows])


def encode(X: pd.DataFrame, fitted_on: np.ndarray) -> np.ndarray:
    """Return numbers for learners: median and mode imputation, one-hot, z-scores.

    Parameters
    ----------
    X : DataFrame, shape (n, d)
    fitted_on : ndarray of int
        Rows that medians, modes, categories, means and deviations come from.

    Returns
    -------
    ndarray, shape (n, d_encoded)
        Columns that are constant on ``fitted_on`` are left out.
    """
    numbers = X.select_dtypes("number").to_numpy(float)
    numbers = numbers[:, ~np.isnan(numbers[fitted_on]).all(axis=0)]
    median = np.nanmedian(numbers[fitted_on], axis=0)
    parts = [np.where(np.isnan(numbers), median, numbers)]
    for name in X.columns.difference(X.select_dtypes("number").columns, sort=False):
        seen = X[name].iloc[fitted_on].dropna()
        if not seen.empty:
            filled = X[name].fillna(seen.mode().iloc[0]).to_numpy(str)
            parts.append((filled[:, None] == np.unique(seen.to_numpy(str))).astype(float))
    values = np.hstack(parts)
    mean, deviation = values[fitted_on].mean(axis=0), values[fitted_on].std(axis=0, ddof=1)
    varying = deviation > 1e-12 * np.maximum(1.0, np.abs(mean))
    encoded: np.ndarray = (values[:, varying] - mean[varying]) / deviation[varying]
    return encoded


def _read(folder: Path, row: pd.Series, leaking: bool) -> DataSet:
    path = folder / str(row["file"])
    if not path.is_file():
        raise CadError("the manifest names a table that is not there", file=path)
    labels = pd.read_csv(path, dtype=str, keep_default_na=False, usecols=["class"])["class"]
    X = pd.read_csv(path, keep_default_na=False, na_values=[""]).drop(columns="class")
    positive, negative = str(row["positive"]).split("|"), str(row["negative"]).split("|")
    if not labels.isin([*positive, *negative]).all():
        raise CadError("a class value is neither positive nor negative in the manifest", file=path)
    if not leaking:
        drop = [c for c in LEAKING.get(str(row["name"]), ()) if c in X.columns]
        X = X.drop(columns=drop)
    return DataSet(str(row["name"]), X, labels.isin(positive).to_numpy(float))
