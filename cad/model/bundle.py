"""Trained models on disk: plain arrays and JSON, a hash for every file, no pickle.

A bundle is a folder: ``weights.npz`` (every fitted array), ``metadata.json`` (what the model is,
how it was trained and validated, and the fitted object's structure), ``reference.npz`` (inputs and
the predictions they gave), ``training.parquet`` (feature rows and labels, for retraining),
``README.md`` (the card) and ``hashes.json`` (SHA-256 of the others).
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.files import JsonObject, parquet_bytes, write_atomic
from cad.model.state import dump_state, load_state

SCHEMA_VERSION = 1
FILES = ("weights.npz", "metadata.json", "reference.npz", "training.parquet", "README.md")
HASHES = "hashes.json"
REPRODUCTION_TOLERANCE = 1e-8
MAX_FILE_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Bundle:
    """Hold a loaded model.

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
        Keys, labels (``p, eta, certain, truth, label_kind``) and features of the training regions.
    hash : str
        SHA-256 of ``hashes.json``: of everything in the bundle.
    """

    name: str
    estimator: Any
    metadata: JsonObject
    reference_X: np.ndarray
    reference_probability: np.ndarray
    training: pd.DataFrame
    hash: str

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
    """Write a bundle; its files are byte-identical whenever the content is the same.

    Parameters
    ----------
    folder : Path
        New or existing folder; files of an earlier bundle are replaced, hashes last.
    estimator : object
        Fitted scikit-learn estimator.
    metadata : dict
        JSON-serialisable; must hold ``features`` (list of names).
    card : str
        Markdown text for people.
    reference_X : ndarray, shape (n, n_features)
        Inputs whose predictions are stored and reproduced by :func:`verify_bundle`.
    training : DataFrame
        Training regions, see :class:`Bundle`.
    """
    structure, arrays = dump_state(estimator)
    probability = estimator.predict_proba(reference_X)[:, 1]
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
    for name, content in contents.items():
        write_atomic(folder / name, content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    write_atomic(folder / HASHES, (json.dumps(hashes, indent=1) + "\n").encode())


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle after checking its members, hashes and schema.

    Raises
    ------
    CadError
        For a missing, additional, truncated or changed file, or a schema of a later version.
    """
    contents = _checked_contents(folder)
    try:
        metadata = dict(json.loads(contents["metadata.json"]))
    except (ValueError, TypeError, RecursionError) as error:
        raise CadError(f"metadata.json is no JSON object: {error}", file=folder) from error
    found = metadata.get("schema_version")
    if found != SCHEMA_VERSION:
        raise CadError(
            f"the bundle has schema version {found!r}, this program reads {SCHEMA_VERSION}",
            file=folder,
            hint="use the release of cad that wrote it, or train again",
        )
    try:
        estimator = load_state(metadata["structure"], _arrays(contents["weights.npz"]))
        reference = _arrays(contents["reference.npz"])
        return Bundle(
            folder.resolve().name,
            estimator,
            metadata,
            reference["X"],
            reference["probability"],
            pd.read_parquet(io.BytesIO(contents["training.parquet"])),
            hashlib.sha256((folder / HASHES).read_bytes()).hexdigest(),
        )
    except CadError:
        raise
    except Exception as error:  # hashes are right, yet someone may have written anything
        raise CadError(f"the bundle's content is not a model: {error!r}", file=folder) from error


def verify_bundle(folder: Path) -> float:
    """Check a bundle and reproduce its reference predictions.

    Returns
    -------
    float
        Largest absolute difference to the stored probabilities.

    Raises
    ------
    CadError
        As :func:`load_bundle`, and when the predictions do not reproduce.
    """
    bundle = load_bundle(folder)
    try:
        got = bundle.estimator.predict_proba(bundle.reference_X)[:, 1]
        gap = float(np.abs(got - bundle.reference_probability).max())
    except Exception as error:  # parts that were altered together may break it anywhere
        raise CadError(f"the bundle's model does not predict: {error!r}", file=folder) from error
    if not gap <= REPRODUCTION_TOLERANCE:
        raise CadError(
            f"reference predictions differ by {gap:.2g}, allowed {REPRODUCTION_TOLERANCE:g}",
            file=folder,
            hint=f"the bundle was written with {bundle.metadata.get('versions')}",
        )
    return gap


def _checked_contents(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        raise CadError("no such model folder", file=folder)
    present = {p.name for p in folder.iterdir()}
    if present != {*FILES, HASHES}:
        odd = sorted(present ^ {*FILES, HASHES})
        raise CadError(
            f"a bundle holds exactly {', '.join((*FILES, HASHES))}; "
            f"missing or additional: {', '.join(odd)}",
            file=folder,
        )
    for name in present:
        path = folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise CadError("a bundle's member is a plain file of at most 512 MiB", file=path)
    contents = {name: (folder / name).read_bytes() for name in FILES}
    try:
        hashes = json.loads((folder / HASHES).read_text(encoding="utf-8"))
        expected = {name: str(hashes[name]) for name in FILES}
    except (ValueError, KeyError, TypeError) as error:
        raise CadError("hashes.json is damaged", file=folder / HASHES) from error
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != expected[name]:
            raise CadError(
                "the file's bytes have changed since the bundle was written (SHA-256 differs)",
                file=folder / name,
                hint="fetch the bundle again from its source",
            )
    return contents


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    """Return arrays as npz bytes; numpy stamps members 1980, so equal arrays give equal bytes."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
