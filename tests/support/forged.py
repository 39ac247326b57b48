"""Small models of a table, and forgeries of them with right hashes."""

from __future__ import annotations

import hashlib
import io
import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
from fuzzing import odd_array, odd_json
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.learning.learners import LEARNERS
from cad.learning.learners.rivals import rival_learners
from cad.run.api import save_model
from cad.run.model.bundle import FILES, HASHES

COLUMNS = ["a", "b", "c"]


def made_bundle(folder: Path, learner: str) -> Path:
    """Write a small model of a table."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(30, 3)), columns=COLUMNS)
    p = np.clip(1 / (1 + np.exp(-2 * X["a"])), 0, 1).round(2).to_numpy()
    y = (p > 0.5).astype(float) if learner in ("RankBoost", "OPAUC") else p
    chosen = LEARNERS[learner]() if learner in LEARNERS else rival_learners()[learner]
    front = [("impute", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler())]
    pipeline = Pipeline([*front, ("learner", chosen)])
    pipeline.fit(X, y)
    save_model(folder, pipeline, X, y, np.arange(30))
    return folder


def sealed(folder: Path) -> Path:
    """Write the hashes that the files have now."""
    hashes = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in FILES}
    (folder / HASHES).write_text(json.dumps(hashes))
    return folder


def forged_bundle(path: Path, rng: random.Random) -> None:
    """Change some values of an array, an array, or the structure; the hashes are right again."""
    if path.suffix == ".json":
        path.write_bytes(odd_json(path.read_bytes(), rng))
        sealed(path.parent)
        return
    with np.load(path) as archive:
        arrays = dict(archive)
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    if rng.random() < 0.6 and array.size and array.dtype.kind in "fiu":
        changed = array.copy()
        for _ in range(rng.randrange(1, 4)):
            odd: float = rng.choice((-1, 0, 1, 2, len(array) if array.ndim else 3, 2**31 - 1))
            if array.dtype.kind == "f":
                odd = rng.choice((np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, -1.0, 2.0))
            changed.flat[rng.randrange(array.size)] = odd
        arrays[name] = changed
    else:
        arrays[name] = odd_array(array, rng)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    path.write_bytes(stream.getvalue())
    sealed(path.parent)
