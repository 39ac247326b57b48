"""Learn from a table of features and readers' scores, or from the tables of runs; no image is read.

Wherever a path is asked for, it is a CSV or TSV file with a row per region, or a folder of run
folders (:func:`cad.folders.run_folder.partitions.read_partitions`), which bring their own labels.
"""

import re
from ast import literal_eval
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.base.files import write_csv
from cad.base.reading import read_frame, reading
from cad.folders.run_folder.partitions import LABELS, read_partitions
from cad.folders.run_folder.tables import KEYS
from cad.learning.labels.pooled import Belief
from cad.learning.learners import LEARNERS
from cad.learning.learners.rivals import rival_learners, rival_notes
from cad.run.api import Validation, consensus, save_model, validate
from cad.run.model.bundle import Bundle, load_bundle


@dataclass(frozen=True)
class Columns:
    """Name the columns of a table that are no features; all other columns are features.

    Parameters
    ----------
    patient : str
        Column with the patient of every row.
    scores : tuple of str
        Columns with scores, one per reader.
    scale : str
        Scale of all scores: ``likert5``, ``likert01``, ``percent`` or ``pirads``.
    histology : str or None
        Column with histology, 1 (malignant), 0 or empty; if ``isup_min`` is given, with the ISUP
        grade.
    isup_min : int or None
        Lowest ISUP grade that counts as malignant.
    ignored : tuple of str
        Columns that are neither features nor labels.
    """

    patient: str
    scores: tuple[str, ...]
    scale: str = "likert5"
    histology: str | None = None
    isup_min: int | None = None
    ignored: tuple[str, ...] = ()


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """Read a CSV or TSV table, or the tables of run folders; columns of texts stay texts.

    Parameters
    ----------
    path : Path
        A name that ends in ``.tsv`` means tabs between cells, any other commas.
    **options
        Passed to :func:`cad.base.reading.read_frame`.

    Raises
    ------
    CadError
        For a file that is missing, too large or no table.
    """
    if path.is_dir():
        return read_partitions(path)
    try:
        return read_frame(path, "\t" if path.suffix == ".tsv" else ",", **options)
    except OSError as error:
        raise CadError(f"cannot be read as a table: {error}", file=path) from error


def split(
    table: pd.DataFrame, columns: Columns | None
) -> tuple[pd.DataFrame, Belief, np.ndarray | None]:
    """Take a table apart into features, labels and histology.

    Parameters
    ----------
    table : DataFrame
        One row per region.
    columns : Columns or None
        Which columns are no features; None for a table of runs, which says that itself.

    Returns
    -------
    X : DataFrame, shape (n_regions, n_features)
        The features: every other column.
    belief : Belief
        Arrays of shape (n_regions,): ``y``, the label from 0 to 1; ``eta``, the standard
        deviation of the readers' probabilities; ``p``, their mean.
    truth : ndarray, shape (n_regions,), or None
        Histology: 1, 0 or NaN; None where there is no such column.

    Raises
    ------
    CadError
        For a column that is missing or that holds texts where numbers are needed.
    """
    if columns is None:
        belief = Belief(*(table[name].to_numpy(float) for name in ("p", "eta", "y")))
        return table.drop(columns=[*KEYS, *LABELS]), belief, table["truth"].to_numpy(float)
    named = [columns.patient, *columns.scores, *columns.ignored]
    named += [columns.histology] if columns.histology else []
    missing = [name for name in named if name not in table]
    if missing:
        raise CadError(
            f"no column {missing[0]!r}", hint=f"the table has {', '.join(map(str, table.columns))}"
        )
    X = table.drop(columns=named)
    texts = [str(name) for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    if texts or X.empty:
        said = f"columns that are no numbers: {', '.join(texts)}" if texts else "no feature is left"
        raise CadError(said, hint="leave them out with --ignore" if texts else "name fewer columns")
    # What pandas writes as the name of a row.
    index = [n for n in X if re.match("Unnamed: |index$", str(n)) and X[n].diff()[1:].eq(1).all()]
    if index:
        raise CadError(f"{index[0]!r} only numbers the rows", hint="leave it out with --ignore")
    grades = None if columns.histology is None else table[columns.histology]
    belief = consensus(table[list(columns.scores)], columns.scale, grades, columns.isup_min)
    if grades is None:
        return X, belief, None
    truth = consensus(np.full((len(X), 1), np.nan), columns.scale, grades, columns.isup_min).y
    return X, belief, truth


def make_learner(name: str) -> Pipeline:
    """Return an unfitted pipeline: missing values imputed, features standardized, a learner.

    Parameters
    ----------
    name : str
        Name of a class in :data:`cad.learning.learners.LEARNERS`, or of a learner that every
        validation compares with (:func:`cad.learning.learners.rivals.rival_learners`). Parameters
        may follow a colon: ``ProbabilisticSVC:kernel=linear,C=10``.

    Raises
    ------
    CadError
        For an unknown name or parameter; the hint lists all names.
    """
    name, _, given = name.partition(":")
    rivals = rival_learners()
    if name not in rivals and name not in LEARNERS:
        raise CadError(
            f"no learner {name!r}", hint=f"known: {', '.join((*sorted(LEARNERS), *rivals))}"
        )
    learner = rivals[name] if name in rivals else LEARNERS[name]()
    parameters = dict(word.strip().split("=", 1) for word in given.split(",") if "=" in word)
    if len(parameters) < len(list(filter(None, given.split(",")))):
        raise CadError(f"{given!r}: parameters look like kernel=linear,C=10")
    with reading(name, "a parameter that it does not have"):
        learner.set_params(**{key: _value(text) for key, text in parameters.items()})
    impute = SimpleImputer(keep_empty_features=True)
    return Pipeline([("impute", impute), ("scale", StandardScaler()), ("learner", learner)])


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a word, such as linear


def validate_table(
    path: Path, columns: Columns | None, learner: str, folds: int | None, seed: int, jobs: int
) -> Validation:
    """Cross-validate a learner and all its rivals on a table of features and readers' scores.

    Parameters
    ----------
    path : Path
        CSV or TSV table, or folder of runs.
    columns : Columns or None
        Which columns are no features; None for a folder of runs.
    learner : str
        Name as in :func:`make_learner`.
    folds : int or None
        Number of folds into which patients are dealt at random; None leaves out one patient at a
        time.
    seed : int
        Random seed of the folds.
    jobs : int
        Number of folds that are fitted at the same time.

    Returns
    -------
    Validation
        Out-of-fold probabilities, and measures of the learner and its rivals. ``notes`` says which
        rivals were left out or see a part of the rows
        (:func:`cad.learning.learners.rivals.rival_learners`), and how many regions are copies.

    Raises
    ------
    CadError
        For a table, a name or labels that cannot be used (:func:`split`, :func:`make_learner`,
        :func:`cad.validate`).
    """
    table = read_table(path)
    X, belief, truth = split(table, columns)
    readers = {"consensus": belief.p}
    if columns is not None:
        readers = {name: consensus(table[[name]], columns.scale).p for name in columns.scores}
    patients = _patients(path, table, columns)
    del table  # its features are in X: a fifth of what 700,000 rows take
    rivals = {
        name: make_learner(name).set_params(learner=rival)
        for name, rival in rival_learners(len(X)).items()
        if name != learner
    }
    made = validate(
        make_learner(learner), X, belief.y, patients, eta=belief.eta, truth=truth,
        readers=pd.DataFrame(readers), rivals=rivals, folds=folds, seed=seed, jobs=jobs,
    )  # fmt: skip
    of_rivals = rival_notes([name for name in rival_learners() if name != learner], len(X))
    return replace(made, notes=[*made.notes, *of_rivals, *_copies(X, patients)])


def _patients(path: Path, table: pd.DataFrame, columns: Columns | None) -> pd.Series:
    return table[KEYS[0]] if columns is None else _texts(path)[columns.patient]


def _texts(path: Path) -> pd.DataFrame:
    """Return the cells of a file as they are: as numbers, 007 would be 7, and NA would be none."""
    return read_table(path, dtype=str, keep_default_na=False)


def _copies(X: pd.DataFrame, patients: pd.Series) -> list[str]:
    """Say how many regions have all the features of another patient's region."""
    rows = pd.util.hash_pandas_object(X, index=False).to_numpy()
    owners = pd.DataFrame({"row": rows, "patient": patients.astype(str).to_numpy()})
    copied = int((owners.groupby("row")["patient"].transform("nunique") > 1).sum())
    said = f"{copied} regions have the same features as a region of another patient: one man under "
    return [said + "two names is trained on and tested at once"] if copied else []


def train_table(path: Path, columns: Columns | None, learner: str, out: Path) -> Bundle:
    """Fit a learner to all labelled rows of a table, and write it as a bundle.

    Parameters
    ----------
    path : Path
        CSV or TSV table, or folder of runs.
    columns : Columns or None
        Which columns are no features; None for a folder of runs.
    learner : str
        Name as in :func:`make_learner`.
    out : Path
        Folder of the bundle.

    Returns
    -------
    Bundle
        The trained model that was written.

    Raises
    ------
    CadError
        For a table, a name or labels that cannot be used (:func:`split`, :func:`make_learner`,
        :func:`cad.save_model`).
    """
    from cad.learning.evaluation.folds.crossval import fit_keywords

    table = read_table(path)
    X, belief, _ = split(table, columns)
    told = ~np.isnan(belief.y)
    X, y, patients = X[told], belief.y[told], _patients(path, table, columns)[told].to_numpy(str)
    eta = np.nan_to_num(belief.eta[told])
    fitted: Any = make_learner(learner)
    fitted.fit(X, y, **fit_keywords(fitted, eta, patients))
    return save_model(out, fitted, X, y, patients, eta=eta, description=f"Learned from {path.name}")


def predict_table(path: Path, model: Path, out: Path) -> pd.DataFrame:
    """Score the rows of a table with a trained model, and write the table with the result.

    Parameters
    ----------
    path : Path
        CSV or TSV table, or folder of runs, with the model's features.
    model : Path
        Folder of a bundle.
    out : Path
        CSV file to write.

    Returns
    -------
    DataFrame
        What was written: all columns of the table, and ``probability``. Of a file all columns
        but the features are text.

    Raises
    ------
    CadError
        For a table that lacks one of the model's columns.
    """
    table, bundle = read_table(path), load_bundle(model)
    missing = [name for name in bundle.features if name not in table]
    if missing:
        raise CadError(f"no column {missing[0]!r}, which {bundle.name} was trained on", file=path)
    features = table[list(bundle.features)]
    copy = table if path.is_dir() else _texts(path).assign(**features)
    scored = copy.assign(probability=bundle.probability(features))
    write_csv(out, scored, list(scored.columns))
    return scored
