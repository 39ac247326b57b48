"""Say which features, and which families of them, moved a region's probability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit
from sklearn.pipeline import Pipeline

from cad.folders.run_folder.tables import Explanation, ExplanationRow
from cad.learning.evaluation.folds.crossval import positive_probability
from cad.learning.evaluation.folds.null import LABEL_FREE
from cad.mri.columns import Column, units_of

TOP = 10
"""Features that are kept of every region."""
ORDERS = 4
_CLIP = 1e-9  # a probability of 0 or 1 has no odds


def explanation_rows(
    estimator: Any,
    training: np.ndarray,
    rows: np.ndarray,
    names: list[str],
    keys: pd.DataFrame,
    columns: Mapping[str, Column],
) -> list[ExplanationRow]:
    """Return the rows of ``explanations.csv``.

    A region has a row for each of its 10 features with the largest effects (:func:`explain`), and
    for one feature of every family of features. That feature has the largest effect among those
    that moved the region in the same direction as the family. Its row also has the effect of the
    whole family (``contribution``, by :func:`contributions`). ``average`` is the log odds of the
    average training region.

    Parameters
    ----------
    estimator : estimator
        Fitted estimator.
    training, rows : ndarray, shape (m, d) and (n, d)
        Training regions, and regions to explain.
    names : list of str
        Names of the features.
    keys : DataFrame, shape (n, 3)
        ``participant_id, study_id, roi_id`` of the rows.
    columns : mapping of str to Column
        Meaning of the features, by name; a feature that is not there is a family of its own.
    """
    units = units_of(names, columns)
    group_of = {name: columns[name].title if name in columns else name for name in names}
    titles = list(dict.fromkeys(group_of.values()))
    explained = explain(estimator, training, rows, names, top=len(names))
    average, parts = contributions(estimator, training, rows, list(group_of.values()))
    found: list[ExplanationRow] = []
    for number, (key, entries) in enumerate(zip(keys.itertuples(), explained, strict=True)):
        part = dict(zip(titles, parts[number].tolist(), strict=True))
        # Of every family the feature speaks that moves the region most as its family does.
        speaks: dict[str, str] = {}
        for entry in entries:
            group = group_of[entry["feature"]]
            if entry["delta"] * part[group] > 0:
                speaks.setdefault(group, entry["feature"])
        for entry in entries:
            # A family may move a region against all of its features; one of them stands for it
            # still.
            speaks.setdefault(group_of[entry["feature"]], entry["feature"])
        for entry in entries:
            group = group_of[entry["feature"]]
            spoken = speaks[group] == entry["feature"]
            if entry["rank"] <= TOP or spoken:
                found.append(
                    {
                        "participant_id": key.participant_id,
                        "study_id": key.study_id,
                        "roi_id": key.roi_id,
                        **entry,
                        "unit": units[entry["feature"]],
                        "group": group,
                        "contribution": part[group] if spoken else None,
                        "average": average,
                    }
                )
    return found


def contributions(
    estimator: Any, training: np.ndarray, rows: np.ndarray, groups: Sequence[str]
) -> tuple[float, np.ndarray]:
    """Return how much every family of features adds to the log odds of the average training region.

    The average region has the training median of every feature. The families, one after another,
    then take the values of the region to explain, in ``2 * ORDERS`` random orders (each order and
    its reverse). A family's part is the mean change of the log odds at its turn (Shapley values by
    sampling). The parts of a region sum to its log odds minus those of the average region.

    Parameters
    ----------
    estimator : object
        Fitted estimator. Without ``predict_proba`` its decision values replace log odds.
    training : ndarray, shape (n_training, n_features)
        Training regions.
    rows : ndarray, shape (n, n_features)
        Regions to explain.
    groups : sequence of str
        The family of every feature.

    Returns
    -------
    average : float
        Log odds of the average region.
    parts : ndarray, shape (n, n_groups)
        By family, in the order in which ``groups`` first names them.
    """
    titles = list(dict.fromkeys(groups))
    of = np.array([titles.index(group) for group in groups])
    rng = np.random.default_rng(0)
    drawn = [rng.permutation(len(titles)) for _ in range(ORDERS)]
    orders = [order for one in drawn for order in (one, one[::-1])]
    # Row k of an order: its first k families have the region's values, the others the median's.
    states = np.array(
        [[np.argsort(order) >= k for k in range(len(titles) + 1)] for order in orders]
    )
    # Many orders pass through the same states: the learner is asked once for each.
    kept, place = np.unique(states.reshape(-1, len(titles)), axis=0, return_inverse=True)
    said = _Sayings(estimator, rows, _medians(training))
    parts, average = np.zeros((len(rows), len(titles))), 0.0
    for number, each in enumerate(said.log_odds(kept[:, of])):
        values = each[place].reshape(len(orders), -1)
        average = float(values[0, 0])
        for order, steps in zip(orders, np.diff(values, axis=1), strict=True):
            parts[number, order] += steps / len(orders)
    return average, parts


def explain(
    estimator: Any, training: np.ndarray, rows: np.ndarray, names: list[str], top: int = TOP
) -> list[list[Explanation]]:
    """Return the features that moved each region's decision value most.

    The effect of a feature is the change of the decision value when this feature alone goes from
    the training median to the region's value.

    Parameters
    ----------
    estimator : object
        Fitted estimator. Without ``decision_function`` the log odds of its probabilities replace
        decision values.
    training : ndarray, shape (n_training, n_features)
        Rows that the estimator was fitted on.
    rows : ndarray, shape (n, n_features)
        Regions to explain.
    names : list of str
        Feature names.
    top : int
        Features kept per region.

    Returns
    -------
    list of list of Explanation
        For every region its features, the largest effect ``delta`` (in size) first.
    """
    said = _Sayings(estimator, rows, _medians(training))
    alone = np.vstack([np.eye(len(names), dtype=bool), np.zeros(len(names), bool)])
    explained: list[list[Explanation]] = []
    for row, values in zip(rows, said(alone), strict=True):
        delta, percentile = values[-1] - values[:-1], _percentiles(training, row)
        order = np.argsort(-np.abs(delta), kind="stable")[:top]
        explained.append(
            [
                {
                    "rank": rank,
                    "feature": names[j],
                    "value": float(row[j]),
                    "delta": float(delta[j]),
                    "percentile": float(percentile[j]),
                }
                for rank, j in enumerate(order, start=1)
            ]
        )
    return explained


class _Sayings:
    """Give what an estimator says of a row with some of its features at the median.

    Steps of :data:`LABEL_FREE` treat every column by itself. Behind them a changed feature is still
    one changed number, so that rows and median pass them once, not once for each feature.

    Parameters
    ----------
    estimator : object
        Fitted.
    rows : ndarray, shape (n, d)
        Regions.
    median : ndarray, shape (d,)
        What stands in.
    """

    def __init__(self, estimator: Any, rows: np.ndarray, median: np.ndarray) -> None:
        self.last, self.rows, self.median = estimator, rows, median
        # The feature that each column of the rows is made from.
        self.source = np.arange(len(median))
        fitted = getattr(estimator, "best_estimator_", estimator)
        if not isinstance(fitted, Pipeline) or len(fitted) < 2:
            return
        front = fitted[:-1]
        steps = [step for _, step in front.steps if step not in (None, "passthrough")]
        if steps and all(type(step) in LABEL_FREE for step in steps):
            names = front.get_feature_names_out([str(i) for i in self.source])
            # An imputer may add columns that say what was missing: no feature's own.
            if all(str(name).isdigit() for name in names):
                seen = np.asarray(front.transform(np.vstack([rows, median])), float)
                self.last, self.rows, self.median = fitted[-1], seen[:-1], seen[-1]
                self.source = np.array([int(name) for name in names])

    def __call__(self, medians: np.ndarray) -> Iterable[np.ndarray]:
        """Return every row's decision values, shape (m,); ``medians`` says what is replaced.

        Parameters
        ----------
        medians : ndarray of bool, shape (m, features)
        """
        if hasattr(self.last, "decide_mixed"):
            mixed = medians[:, self.source]
            return np.asarray(self.last.decide_mixed(self.rows, self.median, mixed))
        if not hasattr(self.last, "decision_function"):
            return self.log_odds(medians)
        return (np.asarray(self.last.decision_function(X), float) for X in self._changed(medians))

    def log_odds(self, medians: np.ndarray) -> Iterable[np.ndarray]:
        """Return the log odds of every row's probability, each of shape (m,)."""
        if hasattr(self.last, "decide_mixed"):  # decides by log odds
            return np.asarray(np.clip(list(self(medians)), *logit([_CLIP, 1 - _CLIP])))
        if not hasattr(self.last, "predict_proba"):
            return self(medians)
        said = (positive_probability(self.last, X) for X in self._changed(medians))
        return (np.asarray(logit(np.clip(q, _CLIP, 1 - _CLIP))) for q in said)

    def _changed(self, medians: np.ndarray) -> Iterator[np.ndarray]:
        return (np.where(medians[:, self.source], self.median, row) for row in self.rows)


def _medians(training: np.ndarray) -> np.ndarray:
    """Return the median of every column's finite values, 0 where it has none."""
    ordered = np.sort(np.where(np.isfinite(training), training, np.nan), axis=0)  # NaN come last
    known, every = np.isfinite(ordered).sum(axis=0), np.arange(ordered.shape[1])
    below = ordered[np.maximum(known - 1, 0) // 2, every]
    above = ordered[np.minimum(known // 2, len(ordered) - 1), every]
    return np.where(known > 0, (below + above) / 2, 0.0)


def _percentiles(training: np.ndarray, row: np.ndarray) -> np.ndarray:
    finite = np.isfinite(training)
    count = np.where(np.isfinite(row) & finite.any(axis=0), finite.sum(axis=0), np.nan)
    below, equal = (finite & (training < row)).sum(axis=0), (training == row).sum(axis=0)
    return np.asarray(100 * (below / count + 0.5 * (equal / count)))
