"""Store trained models as plain arrays and JSON, with a hash for every file and without pickle.

A bundle is a folder with these files. ``weights.npz`` has all fitted arrays. ``metadata.json`` says
what the model is and how it was trained and validated. It also has the structure of the fitted
object. ``reference.npz`` has some inputs and their predictions. ``training.parquet`` has feature
rows and labels, for retraining. ``README.md`` is the card. ``hashes.json`` has the SHA-256 of the
other files.
"""

import hashlib
import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import JsonObject, parquet_bytes, write_atomic
from cad.base.processes.limited import call_limited
from cad.base.reading import (
    MAX_ARRAYS,
    MAX_JSON,
    check_names,
    open_arrays,
    parse_json,
    read_bytes,
    read_parquet,
    reading,
)
from cad.base.transactions import FolderKind, claimed, commit, is_ours, settle, stage
from cad.learning.evaluation.folds.ask import positive_probability
from cad.learning.learners.base import RangeWarning, outside, training_range
from cad.mri.columns import Column, columns_of_table, columns_stated
from cad.run.model.fold_features import Preparation
from cad.run.model.metadata import check_metadata
from cad.run.model.state import check_stored, dump_state, load_state

SCHEMA_VERSION = 1
FILES = ("weights.npz", "metadata.json", "reference.npz", "training.parquet", "README.md")
HASHES = "hashes.json"
REPRODUCTION_TOLERANCE = 1e-8
LARGEST = 1e100
"""Largest absolute value of a feature. Learners square differences of features, and 1e200 is still
finite.
"""
FILL = (
    "fill in the value, or take the row out; a model that fills missing values is trained by `cad "
    "table train`, or as a pipeline that begins with scikit-learn's SimpleImputer"
)
"""Way out where a value is missing and the model fills none."""
# Columns of the training table that hold labels and probabilities, from 0 to 1. Only the label that
# the learner was fitted to is known in every row.
_LABELS = ("y", "p", "truth", "out_of_fold", "out_of_fold_probability", "readers_mean")
_ALWAYS_LABELLED = ("y",)
_SAME_VALUE = 1e-9  # relative difference up to which two stored values are one
# Limits of time (seconds) and memory (gigabytes) for the child process that computes a bundle's
# reference predictions again, and the modules that this process loads.
_SECONDS = 120.0
_GIGABYTES = 4.0
_NEEDS = "cad.learning.learners.rivals cad.learning.learners.ranking.rankboost pyarrow.parquet"


MODEL = FolderKind(
    "model",
    lambda top: (top / HASHES).is_file() and (top / "metadata.json").is_file(),
    marked=False,
)


@dataclass(frozen=True)
class Bundle:
    """Hold a trained model that was read from its folder.

    Parameters
    ----------
    name : str
        Folder name.
    estimator : object
        Fitted scikit-learn estimator. It takes rows of features in the order of ``features``.
    metadata : dict
        Content of ``metadata.json``.
    reference_X, reference_probability : ndarray
        Stored inputs, shape (n, n_features), and the model's stored probabilities for them, shape
        (n,).
    training : DataFrame
        A row for each training region, with its keys, labels (``p, eta, certain, truth,
        label_kind``) and features. For a model that was trained on a table, the rows have ``y``,
        ``eta`` and the table's columns.
    hash : str
        SHA-256 of ``hashes.json``, which has the hash of every other file.
    gap : float
        Largest absolute difference between the stored probabilities and the probabilities computed
        on loading.
    """

    name: str
    estimator: Any
    metadata: JsonObject
    reference_X: np.ndarray
    reference_probability: np.ndarray
    training: pd.DataFrame
    hash: str
    gap: float = 0.0

    @property
    def pipeline(self) -> JsonObject:
        """Return a copy of the pipeline's settings that the model was trained with.

        Raises
        ------
        CadError
            For a model that :func:`cad.save_model` wrote, which has no settings.
        """
        if "pipeline" not in self.metadata:
            raise self.refused_for_images()
        return dict(self.metadata["pipeline"])

    def refused_for_images(self) -> CadError:
        """Return the error for a user who gives images to a model that was trained on a table."""
        return CadError(
            f"{self.name} was trained on a table: it scores rows of its columns, not images",
            hint="`cad table predict`, or cad.load_model(...).probability(X)",
        )

    @property
    def of_table(self) -> bool:
        """Tell whether the model was trained on a table, so that it scores tables and no images."""
        return "pipeline" not in self.metadata or bool(self.metadata.get("table"))

    @property
    def columns(self) -> dict[str, Column]:
        """Return the meaning of every column that the model takes, by column name."""
        if self.of_table:
            return columns_of_table(self.features)
        return columns_stated(self.pipeline)

    def probability(self, X: pd.DataFrame) -> np.ndarray:
        """Return the probability of malignancy of every row, shape (n,).

        A ``RangeWarning`` is given where rows differ from the training rows by more than chance.

        Parameters
        ----------
        X : DataFrame, shape (n, ...)
            Features; at least the columns ``features``, in any order.

        Raises
        ------
        CadError
            When X lacks one of the model's columns, and for a row with infinity or with a number
            larger than :data:`LARGEST` in size. For a missing value (NaN), when the model fills
            none.
        """
        rows = self._rows(X)
        too_large = np.argwhere(np.abs(rows) > LARGEST)  # infinity, too
        if len(too_large):
            row, column = too_large[0]
            raise CadError(
                f"row {row + 1} cannot be scored: {self.features[column]} = {rows[row, column]:g}",
                hint="correct the value, or take the row out",
            )
        unfilled = self.unfilled(X)
        if unfilled is not None:
            row, name = unfilled
            raise CadError(
                f"row {row + 1} cannot be scored: {name} is missing, and {self.name} fills no "
                "missing values",
                hint=FILL,
            )
        deviations = self.unlike(X)
        if deviations:
            warnings.warn("; ".join(deviations), RangeWarning, stacklevel=2)
        return positive_probability(self.estimator, rows)

    def unfilled(self, X: pd.DataFrame) -> tuple[int, str] | None:
        """Return where the first missing value is, if the model gives no probability without it.

        Parameters
        ----------
        X : DataFrame, shape (n, ...)
            Features; at least the columns ``features``, in any order.

        Returns
        -------
        tuple of int and str, or None
            Number of the row, from 0, and name of the column. None if no value is missing, or if
            the model fills missing values.
        """
        rows = self._rows(X)
        missing = np.argwhere(np.isnan(rows))
        if not len(missing):
            return None
        row, column = missing[0]
        if fills_missing(self.estimator, rows[row]):
            return None
        return int(row), self.features[column]

    def unlike(self, X: pd.DataFrame) -> list[str]:
        """Return sentences on the columns and rows of X that differ from the training rows.

        Parameters
        ----------
        X : DataFrame, shape (n, ...)
            Features; at least the columns ``features``, in any order.

        Returns
        -------
        list of str
            Empty where nothing differs by more than chance
            (:func:`cad.learning.learners.base.outside`).
        """
        # From a column without any value in the training nothing was learned.
        has_values = self.training[self.features].notna().any().to_numpy()
        names = np.array(self.features, dtype=object)[has_values].tolist()
        training_rows = self.training[names].to_numpy(float)
        rows = self._rows(X)[:, has_values]
        if not len(rows) or not names:  # there is nothing to compare
            return []
        return outside(rows, training_range(training_rows), len(training_rows), names)

    def _rows(self, X: pd.DataFrame) -> np.ndarray:
        """Return the model's columns of a table as numbers, shape (n, n_features)."""
        absent = [name for name in self.features if name not in X.columns]
        if absent:
            raise CadError(f"the table lacks columns of model {self.name}: {', '.join(absent)}")
        return np.asarray(X[self.features].to_numpy(float))

    @property
    def features(self) -> list[str]:
        """Return the names of the feature columns, in order."""
        return list(self.metadata["features"])


def save_bundle(
    folder: Path,
    estimator: Any,
    metadata: JsonObject,
    card: str,
    reference_X: np.ndarray,
    training: pd.DataFrame,
) -> None:
    """Write a bundle completely or not at all; equal content gives equal bytes.

    Parameters
    ----------
    folder : Path
        New or existing folder; an earlier bundle in it is replaced.
    estimator : object
        Fitted scikit-learn estimator.
    metadata : dict
        JSON-serialisable metadata, which must hold ``features`` (list of names).
    card : str
        Markdown text, written as ``README.md``.
    reference_X : ndarray, shape (n, n_features)
        Inputs whose predictions are stored and reproduced by :func:`verify_bundle`.
    training : DataFrame
        One row per training region: its ids, labels, out-of-fold numbers and features.

    Raises
    ------
    CadError
        When the folder holds something else, or another process writes into it.

    Examples
    --------
    >>> import tempfile
    >>> from cad.learners import ProbabilisticSVC
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> p = np.array([0.1, 0.2, 0.8, 0.9])
    >>> estimator = ProbabilisticSVC().fit(X, p)
    >>> training = pd.DataFrame({"y": p, "eta": 0.1, "adc": X[:, 0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "mine"
    ...     save_bundle(place, estimator, {"features": ["adc"]}, "# A card", X, training)
    ...     files = sorted(path.name for path in place.iterdir())
    >>> [name for name in files if name.endswith("npz")], "hashes.json" in files
    (['reference.npz', 'weights.npz'], True)
    """
    structure, arrays = dump_state(estimator)
    # The model must be loadable from what would be stored. Otherwise an error is raised here and
    # nothing is written.
    check_stored(load_state(structure, arrays), len(metadata["features"]))
    probability = positive_probability(estimator, reference_X)
    # Keys are sorted and no time is stored, so equal models give equal files and the same hash.
    metadata_text = json.dumps(
        {**metadata, "schema_version": SCHEMA_VERSION, "structure": structure},
        indent=1,
        sort_keys=True,
        allow_nan=False,
    )
    contents = {
        "weights.npz": _npz_bytes(arrays),
        "metadata.json": metadata_text.encode() + b"\n",
        "reference.npz": _npz_bytes({"X": reference_X, "probability": probability}),
        "training.parquet": parquet_bytes(training),
        "README.md": card.encode(),
    }
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[HASHES] = (json.dumps(hashes, indent=1) + "\n").encode()
    with claimed(folder, MODEL), stage(folder) as scratch:
        for name, content in contents.items():
            write_atomic(scratch / name, content)
        commit(folder, {name: scratch / name for name in contents})


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle from its folder, and check that it is the model that was written. No other
    function loads a bundle.

    Files, hashes and schema are checked, and every stored object must agree with the declaration of
    its class. The reference predictions are then computed again. This happens in a child process
    with limits, since compiled code runs there for the first time on arrays that anybody may have
    written.

    Parameters
    ----------
    folder : Path
        Folder of the bundle.

    Returns
    -------
    Bundle
        The model; its ``gap`` is the largest difference to the stored predictions.

    Raises
    ------
    CadError
        For a missing, additional, truncated or changed file, another schema version, and content
        that is not as declared. Also for predictions that do not reproduce or are no probabilities.
    """
    contents, bundle_hash = _checked_contents(folder)
    with reading(folder, "metadata.json is no JSON object"):
        metadata = dict(parse_json(contents["metadata.json"]))
    version = metadata.get("schema_version")
    if version != SCHEMA_VERSION:
        raise CadError(
            f"the bundle has schema version {version!r}, this program reads {SCHEMA_VERSION}",
            file=folder,
            hint="use the release of cad that wrote it, or train again",
        )
    problem = "the bundle's content is not a model"
    # The hashes only prove that the files belong together. Anybody may have written the files and
    # their hashes, so the content is checked in a process with limits.
    try:
        with reading(folder, problem):
            gap, training = call_limited(
                prove, contents, seconds=_SECONDS, gigabytes=_GIGABYTES, needs=_NEEDS
            )
            estimator, reference = _restored(metadata, contents)
    except CadError as error:
        # Some of the errors begin with these words already.
        cause = error.problem.removeprefix(f"{problem}: ")
        hint = "fetch the bundle again from its source, or train again"
        raise CadError(f"{problem}: {cause}", file=folder, hint=hint) from error
    bundle = Bundle(
        name=folder.resolve().name,
        estimator=estimator,
        metadata=metadata,
        reference_X=reference["X"],
        reference_probability=reference["probability"],
        training=training,
        hash=bundle_hash,
        gap=gap,
    )
    if not gap <= REPRODUCTION_TOLERANCE:  # also for a gap of NaN
        raise CadError(
            f"reference predictions differ by {gap:.2g}, allowed {REPRODUCTION_TOLERANCE:g}",
            file=folder,
            hint=f"the bundle was written with {metadata.get('versions')}",
        )
    return bundle


def prove(contents: dict[str, bytes]) -> tuple[float, pd.DataFrame]:
    """Restore a bundle from the contents of its files, and compute its reference predictions again.

    Parameters
    ----------
    contents : dict of str to bytes
        The bundle's files by name.

    Returns
    -------
    gap : float
        Largest absolute difference to the stored probabilities.
    training : DataFrame
        The training table.

    Raises
    ------
    CadError
        For content that is not a model.
    """
    metadata = dict(parse_json(contents["metadata.json"]))
    estimator, reference = _restored(metadata, contents)
    training = read_parquet(contents["training.parquet"])
    check_training(training, metadata, estimator)
    _check_reference(reference["X"], training, metadata)
    computed = positive_probability(estimator, reference["X"])
    gap = float(np.abs(computed - reference["probability"]).max())
    return gap, training


def _restored(
    metadata: JsonObject, contents: dict[str, bytes]
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the estimator and the reference arrays of a bundle; check them and the metadata."""
    features = metadata["features"]
    if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
        raise CadError("`features` must be a list of names")
    check_names(features)
    estimator = load_state(metadata["structure"], _arrays(contents["weights.npz"]))
    check_stored(estimator, len(features))
    reference = _arrays(contents["reference.npz"])
    X = reference["X"]
    probability = reference["probability"]
    n_rows = len(X) if X.ndim == 2 else 0
    # A missing value (NaN) is allowed, since most models fill it, and infinity is not.
    if X.shape != (n_rows, len(features)) or X.dtype.kind != "f" or np.isinf(X).any():
        raise CadError(f"reference rows of shape {X.shape} for {len(features)} features")
    if n_rows == 0 or probability.shape != (n_rows,) or probability.dtype.kind != "f":
        raise CadError(f"{n_rows} reference rows, probabilities of shape {probability.shape}")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise CadError("a stored reference probability is none: it is not within 0 to 1")
    check_metadata(metadata)
    return estimator, reference


def fills_missing(estimator: Any, row: np.ndarray) -> bool:
    """Tell whether an estimator gives a probability for a row with a missing value (NaN).

    Parameters
    ----------
    estimator : object
        Fitted scikit-learn estimator.
    row : ndarray, shape (n_features,)
        A row with a missing value.

    Returns
    -------
    bool
        False if the estimator refuses the row.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> fitted = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> fills_missing(fitted, np.array([np.nan]))
    False
    """
    try:
        positive_probability(estimator, row[None])
    except (CadError, ValueError):
        return False
    return True


def check_training(training: pd.DataFrame, metadata: JsonObject, estimator: Any) -> None:
    """Raise an error for a training table that no training writes.

    Parameters
    ----------
    training : DataFrame
        One row per training region: its ids, labels, out-of-fold numbers and features.
    metadata : dict
        Content of ``metadata.json``.
    estimator : object
        The fitted estimator.

    Raises
    ------
    CadError
        For a table without rows or without a column of the model, for text or infinity in such a
        column, for a label outside 0 to 1, and for a missing value if the model fills none.
    """
    # Names come from a file that anybody may have written. A message shows 80 characters of them.
    features = metadata["features"]
    absent = [name for name in features if name not in training.columns]
    if absent:
        raise CadError(f"the training table has no column {absent[0][:80]!r}")
    # The kinds of NumPy that are numbers: floats, integers without and with sign, truth values.
    without_numbers = [name for name in features if training[name].dtype.kind not in "fiub"]
    if without_numbers:
        raise CadError(f"the training table's column {without_numbers[0][:80]!r} holds no numbers")
    if not len(training):
        raise CadError("the training table has no row")
    for name in features:
        values = training[name].to_numpy(float)
        rows_too_large = np.flatnonzero(np.abs(values) > LARGEST)
        if len(rows_too_large):
            row = rows_too_large[0]
            raise CadError(
                f"the training table's column {name[:80]!r} has {values[row]:g} in row {row + 1}: "
                f"expected a number of at most {LARGEST:g} in size"
            )
    for name in _LABELS:
        # A user's own table may call a feature by one of these names.
        if name not in training.columns or name in features:
            continue
        if training[name].dtype.kind not in "fiub":
            raise CadError(f"the training table's column {name!r} holds no numbers")
        values = training[name].to_numpy(float)
        is_valid = (values >= 0) & (values <= 1)
        if name not in _ALWAYS_LABELLED:
            is_valid |= np.isnan(values)
        if not is_valid.all():
            row = int(np.argmin(is_valid))  # the first one that is False
            raise CadError(
                f"the training table's column {name!r} has {values[row]:g} in row {row + 1}: "
                "expected a number from 0 to 1"
            )
    # A model that was trained by a pipeline fills missing values itself. Only in the training table
    # of other models a missing value may be an error.
    missing_values = np.argwhere(training[features].isna().to_numpy())
    if "pipeline" in metadata or not len(missing_values):
        return
    row, column = missing_values[0]
    if not fills_missing(estimator, training[features].to_numpy(float)[row]):
        raise CadError(
            f"the training table's column {features[column][:80]!r} has no value in row {row + 1}, "
            "and the model fills no missing values",
            hint=FILL,
        )


def _check_reference(X: np.ndarray, training: pd.DataFrame, metadata: JsonObject) -> None:
    """Raise an error if the reference rows and the training table are not of one training.

    Reference rows are training rows, or rows of shuffled columns of the training table. So each of
    their values stands in the same column of the table, unless the columns are exchanged, or one of
    them is in another unit. The table has the features as they were measured. If site effects are
    removed before the learner, a reference value is one of this column without the effect of one of
    the sites.
    """
    features = metadata["features"]
    measured = training[features]
    preparation = Preparation.of(metadata)
    possible_tables = [measured.to_numpy(float)]
    if preparation.harmoniser is not None:
        for site in preparation.harmoniser.sites_:
            # The table as if all its rows were of this site.
            possible_tables.append(preparation.adjust(measured, [site] * len(measured)))
    possible_values = np.concatenate(possible_tables)
    for column, name in enumerate(features):
        reference_values = X[~np.isnan(X[:, column]), column]
        for value in reference_values:
            is_same = np.isclose(possible_values[:, column], value, rtol=_SAME_VALUE, atol=0)
            if not is_same.any():
                raise CadError(
                    f"the reference value {value:g} of column {name[:80]!r} is not in the training "
                    "table: columns are exchanged, or one is in another unit"
                )


@contextmanager
def using(bundle: Bundle) -> Iterator[None]:
    """Turn an error that a damaged model causes in the block into a CadError that names the model.

    Correct hashes prove that the files did not change. They do not prove that the files hold a
    valid model.

    Parameters
    ----------
    bundle : Bundle
        The model.

    Raises
    ------
    CadError
        In place of any error that a damaged model can cause.
    """
    with reading(bundle.name, "the bundle's content is not a model"):
        yield


def verify_bundle(folder: Path) -> float:
    """Load a bundle, and return the largest difference to its stored reference predictions.

    Parameters
    ----------
    folder : Path
        Folder of the bundle.

    Returns
    -------
    float
        Largest absolute difference between the stored probabilities and those computed on loading.

    Raises
    ------
    CadError
        For the errors of :func:`load_bundle`.
    """
    return load_bundle(folder).gap


def _checked_contents(folder: Path) -> tuple[dict[str, bytes], str]:
    """Return the contents of a bundle's files, and the hash of ``hashes.json``."""
    if not folder.is_dir():
        raise CadError(
            "no such model folder",
            file=folder,
            hint="name the folder that a training wrote, with its metadata.json",
        )
    # A process may have been killed while it replaced this bundle. Its change is completed first,
    # so that no files of two versions are read.
    settle(folder)
    names_present = set()
    for path in folder.iterdir():
        if not is_ours(path.name):  # files by which the program commits folders do not count
            names_present.add(path.name)
    names_expected = {*FILES, HASHES}
    if names_present != names_expected:
        raise CadError(
            f"a bundle holds exactly {', '.join((*FILES, HASHES))}; "
            f"missing or additional: {', '.join(sorted(names_present ^ names_expected))}",
            file=folder,
        )
    # No file may be larger than 512 MiB. Of JSON files ``read_bytes`` below takes at most 32 MiB.
    for name in names_present:
        path = folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_ARRAYS:
            raise CadError("a bundle's member is a plain file of at most 512 MiB", file=path)
    largest_sizes = dict.fromkeys(FILES, MAX_ARRAYS) | {"metadata.json": MAX_JSON}
    contents = {name: read_bytes(folder / name, size) for name, size in largest_sizes.items()}
    content_of_hashes = read_bytes(folder / HASHES, MAX_JSON)
    with reading(folder / HASHES, "hashes.json is damaged"):
        hashes = parse_json(content_of_hashes)
        stated_hashes = {name: str(hashes[name]) for name in FILES}
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != stated_hashes[name]:
            raise CadError(
                "the file's bytes have changed since the bundle was written (SHA-256 differs)",
                file=folder / name,
                hint="fetch the bundle again from its source",
            )
    return contents, hashlib.sha256(content_of_hashes).hexdigest()


@door("own", "arrays")
def _npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Return the bytes of an npz file with the given arrays. numpy gives all files inside it the
    same date, so equal arrays give equal bytes.
    """
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    with open_arrays(content) as archive:
        return dict(archive)
