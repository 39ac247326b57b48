"""Find the features, and the families of features, that had most effect on a region's belief."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit
from sklearn.pipeline import Pipeline

from cad.folders.run_folder.tables import Explanation, ExplanationRow
from cad.learning.evaluation.folds.ask import (
    decision_value,
    decision_value_of_mixed,
    positive_probability,
)
from cad.learning.evaluation.folds.null import LABEL_FREE
from cad.mri.columns import Column, units_of

TOP = 10
"""Number of features that are kept for every region."""
MOST_EXPLAINED = 5000
"""Largest number of regions for which explanations are computed in a run of a table of features. In
such a run no region has a page of its own.
"""
ORDERS = 4
_CLIP = 1e-9  # least distance of probabilities from 0 and 1, where odds are not finite


def explanation_rows(
    estimator: Any,
    training: np.ndarray,
    rows: np.ndarray,
    names: list[str],
    keys: pd.DataFrame,
    columns: Mapping[str, Column],
) -> list[ExplanationRow]:
    """Return the rows of ``explanations.csv``.

    A region has a row for each of the 10 features with the largest effects (:func:`explain`). It
    also has a row for the main feature of each family of features. The main feature is the one with
    the largest effect among those whose effect has the sign of the family's effect. Its row also
    has the effect of the whole family (``contribution``, by :func:`contributions`). ``average``
    holds the log-odds of the average training region.

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
        Meaning of the features, by name. A feature without an entry is a family of its own.

    Examples
    --------
    Here each family has only one feature, which is shown for the family:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> learner = LogisticRegression()
    >>> learner.classes_ = np.array([0, 1])
    >>> learner.coef_ = np.array([[2.0]])
    >>> learner.intercept_ = np.array([0.0])
    >>> training = np.array([[-1.0], [0.0], [1.0]])
    >>> region = np.array([[0.5]])
    >>> keys = pd.DataFrame({"participant_id": ["sub-1"], "study_id": ["sub-1"], "roi_id": ["1"]})
    >>> (row,) = explanation_rows(learner, training, region, ["psa"], keys, {})
    >>> row["group"], row["delta"], round(row["contribution"], 6), row["average"]
    ('psa', 1.0, 1.0, 0.0)
    """
    units = units_of(names, columns)
    group_of = {}
    for name in names:
        group_of[name] = columns[name].title if name in columns else name
    titles = list(dict.fromkeys(group_of.values()))
    explained = explain(estimator, training, rows, names, top=len(names))
    average, effects = contributions(estimator, training, rows, list(group_of.values()))
    table: list[ExplanationRow] = []
    for key, entries, of_families in zip(keys.itertuples(), explained, effects, strict=True):
        effect_of = dict(zip(titles, of_families.tolist(), strict=True))
        spokesman = _spokesmen(entries, group_of, effect_of)
        for entry in entries:
            group = group_of[entry["feature"]]
            speaks = spokesman[group] == entry["feature"]
            if entry["rank"] <= TOP or speaks:
                table.append(
                    {
                        "participant_id": key.participant_id,
                        "study_id": key.study_id,
                        "roi_id": key.roi_id,
                        **entry,
                        "unit": units[entry["feature"]],
                        "group": group,
                        "contribution": effect_of[group] if speaks else None,
                        "average": average,
                    }
                )
    return table


def _spokesmen(
    entries: Sequence[Explanation], group_of: Mapping[str, str], effect_of: Mapping[str, float]
) -> dict[str, str]:
    """Return, for each family of features, the feature that is shown for it.

    This is the feature with the largest effect among those whose effect has the same sign as that
    of the whole family. If no feature has this sign, it is the family's feature with the largest
    effect.
    """
    spokesman: dict[str, str] = {}
    for entry in entries:
        group = group_of[entry["feature"]]
        if entry["delta"] * effect_of[group] > 0:
            spokesman.setdefault(group, entry["feature"])
    for entry in entries:
        spokesman.setdefault(group_of[entry["feature"]], entry["feature"])
    return spokesman


def contributions(
    estimator: Any, training: np.ndarray, rows: np.ndarray, groups: Sequence[str]
) -> tuple[float, np.ndarray]:
    """Return how much every family of features adds to the log-odds of the average training region.

    The average region has the training median of every feature. In it the medians are replaced by
    the values of the region to explain, family after family, until all are replaced. This is done
    in ``2 * ORDERS`` random orders of the families (each order and its reverse). A family's part is
    the mean change of the log-odds when its values are replaced (a Shapley value by sampling). The
    parts of a region sum to its log-odds minus the log-odds of the average region.

    Parameters
    ----------
    estimator : object
        Fitted estimator. Without ``predict_proba`` its decision values replace log-odds.
    training : ndarray, shape (n_training, n_features)
        Training regions.
    rows : ndarray, shape (n, n_features)
        Regions to explain.
    groups : sequence of str
        The family of every feature.

    Returns
    -------
    average : float
        Log-odds of the average region.
    effects : ndarray, shape (n, n_groups)
        The part of each family; families are in the order in which ``groups`` first names them.

    Examples
    --------
    The log-odds of a region with the features a, b and c are 2 a + b + c. They are 0 for the
    average region. Family ``x`` has the features a and b, and family ``y`` has c:

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> learner = LogisticRegression()
    >>> learner.classes_ = np.array([0, 1])
    >>> learner.coef_ = np.array([[2.0, 1.0, 1.0]])
    >>> learner.intercept_ = np.array([0.0])
    >>> training = np.array([[-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    >>> region = np.array([[1.0, 0.5, -1.0]])
    >>> average, effects = contributions(learner, training, region, ["x", "x", "y"])
    >>> average, effects.round(6).tolist()
    (0.0, [[2.5, -1.0]])
    """
    titles = list(dict.fromkeys(groups))
    family_of = np.array([titles.index(group) for group in groups])
    rng = np.random.default_rng(0)
    orders: list[np.ndarray] = []
    for _ in range(ORDERS):
        order = rng.permutation(len(titles))
        orders.append(order)
        orders.append(order[::-1])
    # A state says which families of features still have the training medians. In state k of an
    # order of the families, the first k families have the region's values, and the others have the
    # medians.
    states = []
    for order in orders:
        turn = np.argsort(order)
        states += [turn >= k for k in range(len(titles) + 1)]
    # Many orders contain the same states, so the learner predicts each distinct state once.
    distinct, place = np.unique(np.array(states), axis=0, return_inverse=True)
    mixtures = _Mixtures(estimator, rows, _medians_of_columns(training))
    effects = np.zeros((len(rows), len(titles)))
    average = 0.0
    for number, of_states in enumerate(mixtures.log_odds(distinct[:, family_of])):
        values = of_states[place].reshape(len(orders), -1)
        average = float(values[0, 0])
        for order, steps in zip(orders, np.diff(values, axis=1), strict=True):
            effects[number, order] += steps / len(orders)
    return average, effects


def explain(
    estimator: Any, training: np.ndarray, rows: np.ndarray, names: list[str], top: int = TOP
) -> list[list[Explanation]]:
    """Return the features with the largest effects on each region's decision value.

    The effect of a feature is the change of the decision value when this feature alone goes from
    the training median to the region's value.

    Parameters
    ----------
    estimator : object
        Fitted estimator. Without ``decision_function`` the log-odds of its probabilities replace
        decision values.
    training : ndarray, shape (n_training, n_features)
        Rows that the estimator was fitted on.
    rows : ndarray, shape (n, n_features)
        Regions to explain.
    names : list of str
        Feature names.
    top : int
        Number of features that are kept per region.

    Returns
    -------
    list of list of Explanation
        For every region its features. The feature whose effect ``delta`` has the largest absolute
        value comes first.

    Examples
    --------
    The learner's decision value is 2 ADC + 1 Ktrans. The medians are 0, so the effect of each
    feature is its weight times its value.

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> learner = LogisticRegression()
    >>> learner.classes_ = np.array([0, 1])
    >>> learner.coef_ = np.array([[2.0, 1.0]])
    >>> learner.intercept_ = np.array([0.0])
    >>> training = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    >>> region = np.array([[0.5, -3.0]])
    >>> for entry in explain(learner, training, region, ["adc", "ktrans"])[0]:
    ...     print(entry["rank"], entry["feature"], entry["delta"])
    1 ktrans -3.0
    2 adc 1.0
    """
    mixtures = _Mixtures(estimator, rows, _medians_of_columns(training))
    replaced = np.vstack([np.eye(len(names), dtype=bool), np.zeros(len(names), bool)])
    explained: list[list[Explanation]] = []
    percentiles = _percentiles(training, rows)
    decided = mixtures.decision_values(replaced)
    for row, percentile, values in zip(rows, percentiles, decided, strict=True):
        delta = values[-1] - values[:-1]
        largest = np.argsort(-np.abs(delta), kind="stable")[:top]
        entries: list[Explanation] = []
        for rank, j in enumerate(largest, start=1):
            entries.append(
                {
                    "rank": rank,
                    "feature": names[j],
                    "value": float(row[j]),
                    "delta": float(delta[j]),
                    "percentile": float(percentile[j]),
                }
            )
        explained.append(entries)
    return explained


class _Mixtures:
    """Predict for rows in which some features are replaced by the training median.

    Steps before the learner that are of a class in :data:`LABEL_FREE` transform every column by
    itself. So one changed feature is still one changed column after them. Rows and medians are
    therefore transformed once, and not once for each feature that is replaced.

    Parameters
    ----------
    estimator : object
        Fitted estimator.
    rows : ndarray, shape (n, d)
        Features of the regions.
    median : ndarray, shape (d,)
        The training median, which replaces values.
    """

    def __init__(self, estimator: Any, rows: np.ndarray, median: np.ndarray) -> None:
        self.learner = estimator
        self.rows = rows
        self.median = median
        # For each column of the transformed rows, the number of the feature that it comes from.
        self.source = np.arange(len(median))
        fitted = getattr(estimator, "best_estimator_", estimator)
        if not isinstance(fitted, Pipeline) or len(fitted) < 2:
            return
        front = fitted[:-1]
        steps = [step for _, step in front.steps if step not in (None, "passthrough")]
        if not steps or not all(type(step) in LABEL_FREE for step in steps):
            return
        names = front.get_feature_names_out([str(i) for i in self.source])
        # An imputer may add columns that mark missing values. Such a column comes from no single
        # feature, so the rows are then not transformed in advance.
        if not all(str(name).isdigit() for name in names):
            return
        prepared = np.asarray(front.transform(np.vstack([rows, median])), float)
        self.learner = fitted[-1]
        self.rows = prepared[:-1]
        self.median = prepared[-1]
        self.source = np.array([int(name) for name in names])

    def decision_values(self, replaced: np.ndarray) -> Iterator[np.ndarray]:
        """Yield for every row the decision values of its m mixtures, shape (m,).

        A mixture of a row is a copy in which the training median replaces some of the features. The
        decision value of a learner that gives probabilities alone is their log-odds.

        Parameters
        ----------
        replaced : ndarray of bool, shape (m, features)
            For each mixture, the features that are replaced by the median.
        """
        if hasattr(self.learner, "decide_mixed"):
            # Such a learner computes only once what all mixtures of a row have in common.
            columns = replaced[:, self.source]
            yield from decision_value_of_mixed(self.learner, self.rows, self.median, columns)
        elif hasattr(self.learner, "decision_function"):
            for mixtures in self._mixed_rows(replaced):
                yield decision_value(self.learner, mixtures)
        else:
            yield from self.log_odds(replaced)

    def log_odds(self, replaced: np.ndarray) -> Iterator[np.ndarray]:
        """Yield for every row the log-odds of the probabilities of its m mixtures, shape (m,).

        A mixture is the row with some features replaced by the median of the training.
        ``replaced``, shape (m, features), says which ones.
        """
        if hasattr(self.learner, "decide_mixed"):  # such a learner's decision values are log-odds
            lowest, highest = logit([_CLIP, 1 - _CLIP])
            for values in self.decision_values(replaced):
                yield np.clip(values, lowest, highest)
        elif hasattr(self.learner, "predict_proba"):
            for mixtures in self._mixed_rows(replaced):
                q = positive_probability(self.learner, mixtures)
                yield np.asarray(logit(np.clip(q, _CLIP, 1 - _CLIP)))
        else:
            yield from self.decision_values(replaced)

    def _mixed_rows(self, replaced: np.ndarray) -> Iterator[np.ndarray]:
        """Yield for every row its m mixtures as the learner takes them, shape (m, columns)."""
        columns = replaced[:, self.source]
        for row in self.rows:
            yield np.where(columns, self.median, row)


def _medians_of_columns(training: np.ndarray) -> np.ndarray:
    """Return the median of the finite values of each column; 0 where no value is finite."""
    ordered = np.sort(np.where(np.isfinite(training), training, np.nan), axis=0)  # NaN comes last
    n_finite = np.isfinite(ordered).sum(axis=0)
    column = np.arange(ordered.shape[1])
    below = ordered[np.maximum(n_finite - 1, 0) // 2, column]
    above = ordered[np.minimum(n_finite // 2, len(ordered) - 1), column]
    return np.where(n_finite > 0, (below + above) / 2, 0.0)


def _percentiles(training: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the percentile of each value of ``rows`` among the training values of its column."""
    percentiles = np.full(rows.shape, np.nan)
    for j in range(rows.shape[1]):
        column = training[:, j]
        # The training values are sorted once, and each row is found among them. This is faster than
        # comparing every row with every training row.
        ordered = np.sort(column[np.isfinite(column)])
        if not len(ordered):
            continue
        measured = np.isfinite(rows[:, j])
        below = np.searchsorted(ordered, rows[measured, j], side="left")
        equal = np.searchsorted(ordered, rows[measured, j], side="right") - below
        percentiles[measured, j] = 100 * (below / len(ordered) + 0.5 * (equal / len(ordered)))
    return percentiles
