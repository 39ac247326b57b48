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
"""Number of random orders of the families; each is used together with its reverse."""
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
    family_of_feature = {}
    for name in names:
        family_of_feature[name] = columns[name].title if name in columns else name
    families = list(dict.fromkeys(family_of_feature.values()))
    # All features are explained, because the main feature of a family may have a small effect.
    explained = explain(estimator, training, rows, names, top=len(names))
    average, effects = contributions(estimator, training, rows, list(family_of_feature.values()))
    table: list[ExplanationRow] = []
    for region, entries, effects_of_region in zip(
        keys.itertuples(), explained, effects, strict=True
    ):
        effect_of_family = dict(zip(families, effects_of_region.tolist(), strict=True))
        main_feature_of = _main_features(entries, family_of_feature, effect_of_family)
        for entry in entries:
            family = family_of_feature[entry["feature"]]
            is_main_feature = main_feature_of[family] == entry["feature"]
            if entry["rank"] <= TOP or is_main_feature:
                table.append(
                    {
                        "participant_id": region.participant_id,
                        "study_id": region.study_id,
                        "roi_id": region.roi_id,
                        **entry,
                        "unit": units[entry["feature"]],
                        "group": family,
                        "contribution": effect_of_family[family] if is_main_feature else None,
                        "average": average,
                    }
                )
    return table


def _main_features(
    entries: Sequence[Explanation],
    family_of_feature: Mapping[str, str],
    effect_of_family: Mapping[str, float],
) -> dict[str, str]:
    """Return, for each family of features, the feature that is shown for it.

    This is the feature with the largest effect among those whose effect has the same sign as that
    of the whole family. If no feature has this sign, it is the family's feature with the largest
    effect. ``entries`` are a region's features, that with the largest effect first.
    """
    main_features: dict[str, str] = {}
    for entry in entries:
        family = family_of_feature[entry["feature"]]
        has_sign_of_family = entry["delta"] * effect_of_family[family] > 0
        if has_sign_of_family:
            main_features.setdefault(family, entry["feature"])  # the first one stays
    for entry in entries:
        main_features.setdefault(family_of_feature[entry["feature"]], entry["feature"])
    return main_features


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
    families = list(dict.fromkeys(groups))
    family_of_feature = np.array([families.index(group) for group in groups])
    rng = np.random.default_rng(0)  # a fixed seed, so that the same region gets the same numbers
    orders: list[np.ndarray] = []
    for _ in range(ORDERS):
        order = rng.permutation(len(families))
        orders.append(order)
        orders.append(order[::-1])

    # A state says which families of features still have the training medians. In state k of an
    # order of the families, the first k families have the region's values, and the others have the
    # medians.
    states = []
    for order in orders:
        place_in_order = np.argsort(order)  # of each family
        states += [place_in_order >= k for k in range(len(families) + 1)]
    # Many orders contain the same states, so the learner predicts each distinct state once.
    distinct_states, number_of_state = np.unique(np.array(states), axis=0, return_inverse=True)
    has_median = distinct_states[:, family_of_feature]  # by state and feature

    mixtures = _Mixtures(estimator, rows, _medians_of_columns(training))
    effects = np.zeros((len(rows), len(families)))
    average = 0.0
    for row, log_odds_of_states in enumerate(mixtures.log_odds(has_median)):
        # A line for each order, from state 0 to the last state.
        log_odds = log_odds_of_states[number_of_state].reshape(len(orders), -1)
        # In state 0 all features have their medians. So this number is the same for all regions.
        average = float(log_odds[0, 0])
        for order, changes in zip(orders, np.diff(log_odds, axis=1), strict=True):
            # The change from state k to state k + 1 is due to the family ``order[k]``.
            effects[row, order] += changes / len(orders)
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
    # In each mixture one feature has its median, and in the last mixture no feature has.
    only_feature = np.eye(len(names), dtype=bool)
    no_feature = np.zeros(len(names), bool)
    decision_values = mixtures.decision_values(np.vstack([only_feature, no_feature]))
    percentiles = _percentiles(training, rows)
    explained: list[list[Explanation]] = []
    for row, percentiles_of_row, decisions in zip(rows, percentiles, decision_values, strict=True):
        effects = decisions[-1] - decisions[:-1]
        largest_first = np.argsort(-np.abs(effects), kind="stable")
        entries: list[Explanation] = []
        for rank, feature in enumerate(largest_first[:top], start=1):
            entries.append(
                {
                    "rank": rank,
                    "feature": names[feature],
                    "value": float(row[feature]),
                    "delta": float(effects[feature]),
                    "percentile": float(percentiles_of_row[feature]),
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
        # Where nothing can be transformed in advance, the whole estimator predicts for mixtures of
        # the rows as they are.
        self.learner = estimator
        self.rows = rows
        self.median = median
        # For each column of the transformed rows, the number of the feature that it comes from.
        self.source = np.arange(len(median))
        fitted = getattr(estimator, "best_estimator_", estimator)
        if not isinstance(fitted, Pipeline) or len(fitted) < 2:  # no step before the learner
            return
        steps_before = fitted[:-1]
        steps = [step for _, step in steps_before.steps if step not in (None, "passthrough")]
        if not steps or not all(type(step) in LABEL_FREE for step in steps):
            return
        # The features are named by their numbers, to see from which feature each column comes.
        names = steps_before.get_feature_names_out([str(number) for number in self.source])
        # An imputer may add columns that mark missing values. Such a column comes from no single
        # feature, so the rows are then not transformed in advance.
        if not all(str(name).isdigit() for name in names):
            return
        transformed = np.asarray(steps_before.transform(np.vstack([rows, median])), float)
        self.learner = fitted[-1]
        self.rows = transformed[:-1]
        self.median = transformed[-1]
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
            replaced_columns = replaced[:, self.source]
            yield from decision_value_of_mixed(
                self.learner, self.rows, self.median, replaced_columns
            )
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
            # They are clipped to the range that log-odds of probabilities have below.
            lowest, highest = logit([_CLIP, 1 - _CLIP])
            for log_odds in self.decision_values(replaced):
                yield np.clip(log_odds, lowest, highest)
        elif hasattr(self.learner, "predict_proba"):
            for mixtures in self._mixed_rows(replaced):
                q = positive_probability(self.learner, mixtures)
                yield np.asarray(logit(np.clip(q, _CLIP, 1 - _CLIP)))
        else:
            yield from self.decision_values(replaced)

    def _mixed_rows(self, replaced: np.ndarray) -> Iterator[np.ndarray]:
        """Yield for every row its m mixtures as the learner takes them, shape (m, columns)."""
        replaced_columns = replaced[:, self.source]
        for row in self.rows:
            yield np.where(replaced_columns, self.median, row)


def _medians_of_columns(training: np.ndarray) -> np.ndarray:
    """Return the median of the finite values of each column; 0 where no value is finite."""
    ordered = np.sort(np.where(np.isfinite(training), training, np.nan), axis=0)  # NaN comes last
    n_finite = np.isfinite(ordered).sum(axis=0)
    columns = np.arange(ordered.shape[1])
    # The median is the mean of the two middle values. They are one value if their number is odd.
    # The limits keep the numbers of rows valid, also where no value is finite.
    row_below = np.maximum(n_finite - 1, 0) // 2
    row_above = np.minimum(n_finite // 2, len(ordered) - 1)
    medians = (ordered[row_below, columns] + ordered[row_above, columns]) / 2
    return np.where(n_finite > 0, medians, 0.0)


def _percentiles(training: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the percentile of each value of ``rows`` among the training values of its column."""
    percentiles = np.full(rows.shape, np.nan)
    for column in range(rows.shape[1]):
        training_values = training[:, column]
        # The training values are sorted once, and each row is found among them. This is faster than
        # comparing every row with every training row.
        ordered = np.sort(training_values[np.isfinite(training_values)])
        if not len(ordered):  # with nothing to compare, the percentiles stay NaN
            continue
        is_measured = np.isfinite(rows[:, column])
        values = rows[is_measured, column]
        n_below = np.searchsorted(ordered, values, side="left")
        n_equal = np.searchsorted(ordered, values, side="right") - n_below
        # An equal training value counts as half below.
        share_below = n_below / len(ordered) + 0.5 * (n_equal / len(ordered))
        percentiles[is_measured, column] = 100 * share_below
    return percentiles
