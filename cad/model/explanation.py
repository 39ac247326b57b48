"""Say which features moved a region's decision value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cad.features.registry import feature_units
from cad.run_folder.tables import Explanation, ExplanationRow


def explanation_rows(
    estimator: Any,
    training: np.ndarray,
    rows: np.ndarray,
    names: list[str],
    keys: pd.DataFrame,
) -> list[ExplanationRow]:
    """Return rows of ``explanations.csv`` for regions named by ``keys``; see :func:`explain`."""
    units, explained = feature_units(names), explain(estimator, training, rows, names)
    return [
        {
            "participant_id": key.participant_id,
            "study_id": key.study_id,
            "roi_id": key.roi_id,
            **entry,
            "unit": units[entry["feature"]],
        }
        for key, entries in zip(keys.itertuples(), explained, strict=True)
        for entry in entries
    ]


def explain(
    estimator: Any, training: np.ndarray, rows: np.ndarray, names: list[str], top: int = 10
) -> list[list[Explanation]]:
    """Return the features that moved each region's decision value most.

    A feature's part is the change of the decision value when it goes from the training median to
    the region's value, all others kept.

    Parameters
    ----------
    estimator : object
        Fitted estimator with ``decision_function``.
    training : ndarray, shape (n_training, n_features)
        Rows it was fitted on.
    rows : ndarray, shape (n, n_features)
        Regions to explain.
    names : list of str
        Feature names.
    top : int
        Features kept per region.

    Returns
    -------
    list of list of Explanation
        Per region: ``rank, feature, value, delta, percentile`` (0 to 100 among training rows).
    """
    with np.errstate(all="ignore"):
        median = np.nan_to_num(np.array([_nanmedian(column) for column in training.T]))
    explained: list[list[Explanation]] = []
    for row in rows:
        changed = np.tile(row, (len(row) + 1, 1))
        changed[np.arange(len(row)), np.arange(len(row))] = median
        values = np.asarray(estimator.decision_function(changed), float)
        delta = values[-1] - values[:-1]
        order = np.argsort(-np.abs(delta), kind="stable")[:top]
        explained.append(
            [
                {
                    "rank": rank,
                    "feature": names[j],
                    "value": float(row[j]),
                    "delta": float(delta[j]),
                    "percentile": _percentile(training[:, j], row[j]),
                }
                for rank, j in enumerate(order, start=1)
            ]
        )
    return explained


def _nanmedian(column: np.ndarray) -> float:
    finite = column[np.isfinite(column)]
    return float(np.median(finite)) if finite.size else float("nan")


def _percentile(column: np.ndarray, value: float) -> float:
    finite = column[np.isfinite(column)]
    if not finite.size or not np.isfinite(value):
        return float("nan")
    return float(100 * ((finite < value).mean() + 0.5 * (finite == value).mean()))
