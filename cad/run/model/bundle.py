"""Trained models on disk: plain arrays and JSON, a hash for every file, no pickle.

A bundle is a folder: ``weights.npz`` (every fitted array), ``metadata.json`` (what the model is,
how it was trained and validated, and the fitted object's structure), ``reference.npz`` (inputs and
the predictions they gave), ``training.parquet`` (feature rows and labels, for retraining),
``README.md`` (the card) and ``hashes.json`` (SHA-256 of the others).
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

from cad.base.errors import CadError
from cad.base.files import JsonObject, parquet_bytes, write_atomic
from cad.base.reading import (
    MAX_ARRAYS,
    MAX_JSON,
    open_arrays,
    parse_json,
    read_bytes,
    read_parquet,
    reading,
)
from cad.base.transactions import Kind, claimed, commit, is_ours, settle, stage
from cad.learning.evaluation.folds.ask import positive_probability
from cad.learning.learners.base import RangeWarning, outside, training_range
from cad.mri.columns import Column, columns_stated
from cad.run.model.state import dump_state, load_state

SCHEMA_VERSION = 1
FILES = ("weights.npz", "metadata.json", "reference.npz", "training.parquet", "README.md")
HASHES = "hashes.json"
REPRODUCTION_TOLERANCE = 1e-8


MODEL = Kind(
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
        Fitted scikit-learn estimator; takes rows of features in the order of ``features``.
    metadata : dict
        Content of ``metadata.json``.
    reference_X, reference_probability : ndarray
        Stored inputs, shape (n, n_features), and the probabilities they gave, shape (n,).
    training : DataFrame
        A row for each training region: its keys, labels (``p, eta, certain, truth, label_kind``)
        and features. For a model that was trained on a table: ``y``, ``eta`` and the table's
        columns.
    hash : str
        SHA-256 of ``hashes.json``, which has the hash of every other file.
    """

    name: str
    estimator: Any
    metadata: JsonObject
    reference_X: np.ndarray
    reference_probability: np.ndarray
    training: pd.DataFrame
    hash: str

    @property
    def pipeline(self) -> JsonObject:
        """Return a copy of the pipeline's settings that the model was trained with.

        Raises
        ------
        CadError
            For a model that was trained on a table, which has no settings for images.
        """
        if "pipeline" not in self.metadata:
            raise CadError(
                f"{self.name} was trained on a table: it scores rows of its columns, not images",
                hint="cad.load_model(...).probability(X)",
            )
        return dict(self.metadata["pipeline"])

    @property
    def columns(self) -> dict[str, Column]:
        """Return the meaning of every column that the model's pipeline measures, by column name."""
        return columns_stated(self.pipeline)

    def probability(self, X: pd.DataFrame) -> np.ndarray:
        """Return the probability of malignancy of every row, shape (n,).

        Warns (``RangeWarning``) where rows differ from the training rows by more than chance.

        Parameters
        ----------
        X : DataFrame, shape (n, ...)
            Holds at least the columns ``features``, in any order.

        Raises
        ------
        CadError
            When X lacks one of the model's columns.
        """
        if missing := [name for name in self.features if name not in X.columns]:
            raise CadError(f"the table lacks columns of model {self.name}: {', '.join(missing)}")
        rows = X[self.features].to_numpy(float)
        trained = self.training[self.features].to_numpy(float)
        if odd := outside(rows, training_range(trained), len(trained), self.features):
            warnings.warn("; ".join(odd), RangeWarning, stacklevel=2)
        return positive_probability(self.estimator, rows)

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
    """Write a bundle, whole or not at all; equal content gives equal bytes.

    Parameters
    ----------
    folder : Path
        New or existing folder; an earlier bundle in it is replaced.
    estimator : object
        Fitted scikit-learn estimator.
    metadata : dict
        JSON-serialisable; must hold ``features`` (list of names).
    card : str
        Markdown text, written as ``README.md``.
    reference_X : ndarray, shape (n, n_features)
        Inputs whose predictions are stored and reproduced by :func:`verify_bundle`.
    training : DataFrame
        Training regions, see :class:`Bundle`.

    Raises
    ------
    CadError
        When the folder holds something else, or another process writes into it.
    """
    structure, arrays = dump_state(estimator)
    probability = positive_probability(estimator, reference_X)
    # Keys sorted and no time of writing: equal models are equal files, and a hash names a model.
    text = json.dumps(
        {**metadata, "schema_version": SCHEMA_VERSION, "structure": structure},
        indent=1,
        sort_keys=True,
        allow_nan=False,
    )
    contents = {
        "weights.npz": _npz(arrays),
        "metadata.json": text.encode() + b"\n",
        "reference.npz": _npz({"X": reference_X, "probability": probability}),
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
    """Read a bundle after checking its members, hashes and schema.

    Raises
    ------
    CadError
        For a missing, additional, truncated or changed file, or another schema version.
    """
    contents, digest = _checked_contents(folder)
    with reading(folder, "metadata.json is no JSON object"):
        metadata = dict(parse_json(contents["metadata.json"]))
    found = metadata.get("schema_version")
    if found != SCHEMA_VERSION:
        raise CadError(
            f"the bundle has schema version {found!r}, this program reads {SCHEMA_VERSION}",
            file=folder,
            hint="use the release of cad that wrote it, or train again",
        )
    # Hashes may be right, yet someone may have written anything.
    with reading(folder, "the bundle's content is not a model"):
        estimator = load_state(metadata["structure"], _arrays(contents["weights.npz"]))
        reference = _arrays(contents["reference.npz"])
        return Bundle(
            folder.resolve().name,
            estimator,
            metadata,
            reference["X"],
            reference["probability"],
            read_parquet(contents["training.parquet"]),
            digest,
        )


@contextmanager
def using(bundle: Bundle) -> Iterator[None]:
    """Turn an error of the code inside this context manager into one that names the bundle.

    Correct hashes prove that the files did not change, not that they hold a valid model.

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
    """Check a bundle and reproduce its reference predictions.

    Parameters
    ----------
    folder : Path
        Folder of the bundle.

    Returns
    -------
    float
        Largest absolute difference to the stored probabilities.

    Raises
    ------
    CadError
        For a file that is missing, additional or changed, and when the predictions do not
        reproduce.
    """
    bundle = load_bundle(folder)
    # Parts that were altered together may break it anywhere.
    with reading(folder, "the bundle's model does not predict"):
        got = positive_probability(bundle.estimator, bundle.reference_X)
        gap = float(np.abs(got - bundle.reference_probability).max())
    if not gap <= REPRODUCTION_TOLERANCE:
        raise CadError(
            f"reference predictions differ by {gap:.2g}, allowed {REPRODUCTION_TOLERANCE:g}",
            file=folder,
            hint=f"the bundle was written with {bundle.metadata.get('versions')}",
        )
    return gap


def _checked_contents(folder: Path) -> tuple[dict[str, bytes], str]:
    """Return a bundle's files, and the hash of their hashes: of the bytes that were read."""
    if not folder.is_dir():
        raise CadError("no such model folder", file=folder)
    settle(folder)
    present = {p.name for p in folder.iterdir() if not is_ours(p.name)}
    if present != {*FILES, HASHES}:
        raise CadError(
            f"a bundle holds exactly {', '.join((*FILES, HASHES))}; "
            f"missing or additional: {', '.join(sorted(present ^ {*FILES, HASHES}))}",
            file=folder,
        )
    for name in present:
        path = folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_ARRAYS:
            raise CadError("a bundle's member is a plain file of at most 512 MiB", file=path)
    limits = dict.fromkeys(FILES, MAX_ARRAYS) | {"metadata.json": MAX_JSON}
    contents = {name: read_bytes(folder / name, limit) for name, limit in limits.items()}
    stated = read_bytes(folder / HASHES, MAX_JSON)
    with reading(folder / HASHES, "hashes.json is damaged"):
        hashes = parse_json(stated)
        expected = {name: str(hashes[name]) for name in FILES}
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != expected[name]:
            raise CadError(
                "the file's bytes have changed since the bundle was written (SHA-256 differs)",
                file=folder / name,
                hint="fetch the bundle again from its source",
            )
    return contents, hashlib.sha256(stated).hexdigest()


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    """Return arrays as npz bytes; numpy stamps members 1980, so equal arrays give equal bytes."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    with open_arrays(content) as archive:
        return dict(archive)
