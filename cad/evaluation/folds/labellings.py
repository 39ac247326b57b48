"""Out-of-fold predictions under many labellings of the same rows.

Labels change from one labelling to the next, features do not. So what a fold makes of features
alone (imputation, ranks, scaling; a kernel, where the learner can fit many labellings on one) is
made once a fold and not once a labelling. Steps that look at labels are fitted for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import _safe_indexing

from cad.evaluation.folds.crossval import (
    FIT_ERRORS,
    blas_threads,
    decision_value,
    fit_keywords,
    positive_probability,
)
from cad.learners.scaling import ClippedScaler, RankScaler

# Steps that never look at labels. A list, because scikit-learn's tags say whether labels are
# needed, not whether they are used.
LABEL_FREE = (
    SimpleImputer,
    VarianceThreshold,
    ClippedScaler,
    RankScaler,
    QuantileTransformer,
    PowerTransformer,
    StandardScaler,
    RobustScaler,
    MinMaxScaler,
    MaxAbsScaler,
)
# Labellings that are fitted together: what is kept of one is as long as its rows.
_TOGETHER = 500

Scores = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class SharedFolds:
    """Leave one group out under many labellings, the label-free part of a fold made once.

    Parameters
    ----------
    front : Pipeline or None
        Unfitted steps that never look at labels.
    learner : estimator
        Unfitted.
    X : array or DataFrame, shape (n, d), or callable
        As in :func:`~cad.evaluation.folds.crossval.out_of_fold`.
    groups, patients : ndarray, shape (n,)
        What is left out together; patient of every row.
    """

    front: Pipeline | None
    learner: Any
    X: Any
    groups: np.ndarray
    patients: np.ndarray

    @classmethod
    def of(
        cls, estimator: Any, X: Any, y: np.ndarray, groups: np.ndarray, patients: np.ndarray
    ) -> SharedFolds | None:
        """Return the shared folds; None where a fold has nothing that labels leave alone.

        That is the case where a label is missing (the training rows move with it) and where the
        estimator is no pipeline whose steps before the last are of :data:`LABEL_FREE`.
        """
        if np.isnan(y).any() or not isinstance(estimator, Pipeline) or estimator.memory is not None:
            return None
        front, learner = estimator.steps[:-1], estimator.steps[-1][1]
        steps = [step for _, step in front if step is not None and step != "passthrough"]
        # The very type: a subclass may have begun to look at labels.
        if not all(type(step) in LABEL_FREE for step in steps) or not hasattr(learner, "fit"):
            return None
        return cls(Pipeline(front) if steps else None, learner, X, groups.astype(str), patients)

    def scores(
        self, labels: np.ndarray, etas: np.ndarray | None, n_jobs: int
    ) -> Iterator[tuple[int, Scores]]:
        """Yield how many labellings are as good as done and, with the last fold, their scores.

        Parameters
        ----------
        labels, etas : ndarray, shape (k, n)
            Labels in [0, 1] and their uncertainties.
        n_jobs : int
            Parallel folds, which change no result.

        Yields
        ------
        done : int
        scores : tuple of ndarray, shape (k_part, n)
            Probabilities and decision values of a part of the labellings, NaN where a fold failed;
            of no labelling before the part's last fold.
        """
        names, nothing = np.unique(self.groups), np.empty((0, len(self.groups)))
        for begin in range(0, len(labels), _TOGETHER):
            part = slice(begin, begin + _TOGETHER)
            y, eta = labels[part], None if etas is None else etas[part]
            # A labelling's fit to all rows is near its fit to all but one patient.
            starts = self._starts(y, eta)
            work = (delayed(self._fold)(name, y, eta, starts) for name in names)
            probability, decision = np.full(y.shape, np.nan), np.full(y.shape, np.nan)
            folds = Parallel(n_jobs=n_jobs, return_as="generator")(work)
            for k, (rows, scores) in enumerate(folds, start=1):
                probability[:, rows], decision[:, rows] = scores
                done = begin + len(y) * k // len(names)
                # Rows of one fold alone make no AUC: scores are whole with the last fold.
                yield done, (probability, decision) if k == len(names) else (nothing, nothing)

    def _starts(self, labels: np.ndarray, etas: np.ndarray | None) -> np.ndarray | None:
        """Return coefficients of fits to all rows, which folds start from; None without such."""
        if not hasattr(self.learner, "predict_labellings"):
            return None
        with blas_threads().limit(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                everything = np.arange(len(self.groups))
                X, new = self._features(everything, everything[:1])
                # One new row is asked for, whose answer nobody reads: the coefficients are
                # wanted.
                predict = clone(self.learner).predict_labellings
                coefficients: np.ndarray = predict(X, labels, new, etas)[2]
            except FIT_ERRORS:
                return None
        return coefficients

    def _features(self, train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
        """Return training and left-out rows as the learner sees them."""
        table = self.X(train) if callable(self.X) else self.X
        X, new = _safe_indexing(table, train), _safe_indexing(table, test)
        if self.front is None:
            return X, new
        front = clone(self.front)
        return front.fit_transform(X), front.transform(new)

    def _fold(
        self, name: str, labels: np.ndarray, etas: np.ndarray | None, starts: np.ndarray | None
    ) -> tuple[np.ndarray, Scores]:
        """Return the rows of one group and their scores, shape (k, rows)."""
        test, train = np.flatnonzero(self.groups == name), np.flatnonzero(self.groups != name)
        y, eta = labels[:, train], None if etas is None else etas[:, train]
        nothing = np.full((len(y), len(test)), np.nan)
        with blas_threads().limit(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                X, new = self._features(train, test)
                if starts is not None:
                    learner = clone(self.learner)
                    fits = learner.predict_labellings(X, y, new, eta, starts[:, train])
                    return test, fits[:2]
            except FIT_ERRORS:
                return test, (nothing, nothing)
            rows = [
                self._single(X, labelling, new, None if eta is None else eta[k], train)
                for k, labelling in enumerate(y)
            ]
        return test, (np.array([p for p, _ in rows]), np.array([f for _, f in rows]))

    def _single(
        self, X: Any, y: np.ndarray, new: Any, eta: np.ndarray | None, train: np.ndarray
    ) -> Scores:
        """Return the scores of one labelling in one fold."""
        learner = clone(self.learner)
        try:
            learner.fit(X, y, **fit_keywords(learner, eta, self.patients[train]))
            return positive_probability(learner, new), decision_value(learner, new)
        except FIT_ERRORS:
            nothing = np.full(np.shape(new)[0], np.nan)
            return nothing, nothing
