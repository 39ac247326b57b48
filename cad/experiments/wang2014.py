"""[W14] Tables 2 to 4 and Fig. 1 on 34 sets: eight rankers, 5 x 2-fold, with and without flaws."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy.spatial.distance import pdist
from sklearn.model_selection import StratifiedKFold

from cad.errors import CadError
from cad.evaluation.metrics import auc
from cad.experiments import Options
from cad.experiments.results import Result
from cad.experiments.uci import DataSet, draw_rows, encode, read_sets
from cad.experiments.wang_methods import METHODS, Split
from cad.experiments.wang_tables import assemble
from cad.files import write_atomic

REPEATS, FOLDS, INNER_FOLDS = 5, 2, 3
WIDTH_PERCENTILE = 90


@dataclass(frozen=True)
class Flaws:
    """What the paper or its authors' code did and a reviewer would not accept.

    Parameters
    ----------
    best_on_test : bool
        The grid's best value is taken on the test folds; otherwise on inner folds.
    shared_encoding : bool
        z-scores, imputation and kernel width from training and test rows; otherwise training only.
    flip : bool
        Folds with AUC below .5 are counted as 1 - AUC (in the authors' code, not in the text).
    leaking : bool
        Columns that give the label away are kept.
    """

    best_on_test: bool = False
    shared_encoding: bool = False
    flip: bool = False
    leaking: bool = False


MODES = {"with flaws": Flaws(True, True, True, True), "honest": Flaws()}


def uci(options: Options) -> Result:
    """Tables 2 to 4 and Fig. 1; every finished set is kept in ``wang2014-uci/`` and resumed."""
    if options.data is None:
        raise CadError("the UCI tables are needed", hint="give their folder with --data")
    repeats = options.repeats or REPEATS
    folder = options.out / "wang2014-uci"
    sets = read_sets(options.data, options.datasets, leaking=True)
    names = [data.name for data in sets]
    work = []
    for name in names:
        for mode, flaws in MODES.items():
            path = folder / f"{name.replace(' ', '_')}-{mode.replace(' ', '_')}-{repeats}.json"
            if not path.is_file():
                work.append(delayed(_one_set)(options.data, name, flaws, repeats, path))
    Parallel(n_jobs=options.jobs)(work)
    found = {
        mode: {
            name: json.loads(
                (
                    folder / f"{name.replace(' ', '_')}-{mode.replace(' ', '_')}-{repeats}.json"
                ).read_text()
            )
            for name in names
        }
        for mode in MODES
    }
    return assemble(found, names, repeats)


def _one_set(folder: Path, name: str, flaws: Flaws, repeats: int, path: Path) -> None:
    data = draw_rows(read_sets(folder, (name,), flaws.leaking)[0], seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tiny folds: convergence notes by the thousand
        result = {method: measure(data, method, flaws, repeats) for method in METHODS}
    write_atomic(path, json.dumps(result).encode())


def measure(data: DataSet, method: str, flaws: Flaws, repeats: int) -> dict[str, object]:
    """AUC of one method on one set by repeated two-fold cross-validation.

    Parameters
    ----------
    data : DataSet
        At most 100 rows.
    method : str
        A key of :data:`METHODS`.
    flaws : Flaws
        Protocol.
    repeats : int
        Repetitions of the two folds; repetition i has seed i.

    Returns
    -------
    dict
        ``auc``: one value per fold; ``grid``: mean AUC on the test folds of every grid point;
        ``chosen``: grid indices.
    """
    folds = [
        fold
        for seed in range(repeats)
        for fold in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(data.y, data.y)
    ]
    table = np.array([_grid_aucs(data, method, train, test, flaws) for train, test in folds])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a grid point that every fold refused
        mean = np.nanmean(table, axis=0)
    if flaws.best_on_test:
        chosen = [int(np.nanargmax(mean))] * len(folds)
    else:
        chosen = [_choose(data, method, train, flaws) for train, _ in folds]
    values = table[np.arange(len(folds)), chosen]
    return {
        "auc": [float(v) if np.isfinite(v) else 0.5 for v in values],
        "grid": [None if np.isnan(v) else float(v) for v in mean],
        "chosen": chosen,
    }


def _choose(data: DataSet, method: str, train: np.ndarray, flaws: Flaws) -> int:
    """Grid point with the best mean AUC over inner folds of the training rows."""
    y = data.y[train]
    n_splits = min(INNER_FOLDS, int(min(y.sum(), (1 - y).sum())))
    inner = StratifiedKFold(n_splits, shuffle=True, random_state=0).split(y, y)
    aucs = [_grid_aucs(data, method, train[a], train[b], flaws) for a, b in inner]
    return int(np.argmax(np.nan_to_num(np.nanmean(aucs, axis=0))))


def _grid_aucs(
    data: DataSet, method: str, train: np.ndarray, test: np.ndarray, flaws: Flaws
) -> np.ndarray:
    rows = np.concatenate([train, test])
    X = encode(data.X, rows if flaws.shared_encoding else train)
    width = np.percentile(pdist(X[rows if flaws.shared_encoding else train]), WIDTH_PERCENTILE)
    split = Split(X[train], data.y[train], X[test], float(1.0 / (2.0 * max(width, 1e-12) ** 2)))
    scores = METHODS[method].scores(split)
    values = np.array([auc(data.y[test], s) if np.isfinite(s).all() else np.nan for s in scores])
    return np.maximum(values, 1.0 - values) if flaws.flip else values
