"""Say which features moved a region's decision value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from cad.evaluation.labellings import LABEL_FREE
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
    decide = _Decisions.of(estimator, rows, _medians(training))
    explained: list[list[Explanation]] = []
    for number, row in enumerate(rows):
        values = decide(number)
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


@dataclass(frozen=True, eq=False)
class _Decisions:
    """Give the decision values of a row with each of its features at the median in turn.

    Steps of :data:`LABEL_FREE` treat every column by itself. Behind them a changed feature is still
    one changed number, so that rows and median pass them once, not once for each feature.

    Parameters
    ----------
    last : object
        Fitted estimator, or the pipeline's last step.
    rows : ndarray, shape (n, k)
        Regions as ``last`` sees them.
    median : ndarray, shape (k,)
        What stands in, as ``last`` sees it.
    source : ndarray of int, shape (k,)
        The feature that each column is made from.
    features : int
        Their number.
    """

    last: Any
    rows: np.ndarray
    median: np.ndarray
    source: np.ndarray
    features: int

    @classmethod
    def of(cls, estimator: Any, rows: np.ndarray, median: np.ndarray) -> _Decisions:
        """Pass the steps that treat every column by itself, where the estimator has only such."""
        d = len(median)
        fitted = getattr(estimator, "best_estimator_", estimator)
        if isinstance(fitted, Pipeline) and len(fitted) > 1:
            front = fitted[:-1]
            steps = [step for _, step in front.steps if step not in (None, "passthrough")]
            if steps and all(type(step) in LABEL_FREE for step in steps):
                names = front.get_feature_names_out([str(i) for i in range(d)])
                # An imputer may add columns that say what was missing: no feature's own.
                if all(str(name).isdigit() for name in names):
                    seen = np.asarray(front.transform(np.vstack([rows, median])), float)
                    source = np.array([int(name) for name in names])
                    return cls(fitted[-1], seen[:-1], seen[-1], source, d)
        return cls(estimator, rows, median, np.arange(d), d)

    def __call__(self, number: int) -> np.ndarray:
        """Return the values, shape (features + 1,); the last is that of the row as it is."""
        changed = np.tile(self.rows[number], (self.features + 1, 1))
        changed[self.source, np.arange(len(self.source))] = self.median
        return np.asarray(self.last.decision_function(changed), float)


def _medians(training: np.ndarray) -> np.ndarray:
    """Return the median of every column's finite values, 0 where it has none."""
    ordered = np.sort(np.where(np.isfinite(training), training, np.nan), axis=0)  # NaN come last
    known, every = np.isfinite(ordered).sum(axis=0), np.arange(ordered.shape[1])
    below = ordered[np.maximum(known - 1, 0) // 2, every]
    above = ordered[np.minimum(known // 2, len(ordered) - 1), every]
    return np.where(known > 0, (below + above) / 2, 0.0)


def _percentile(column: np.ndarray, value: float) -> float:
    finite = column[np.isfinite(column)]
    if not finite.size or not np.isfinite(value):
        return float("nan")
    return float(100 * ((finite < value).mean() + 0.5 * (finite == value).mean()))
