"""Provide the base class of all rankers, which learn to give positive rows higher scores than
negative rows.

The class reads labels and weights, and computes probabilities by Platt's sigmoid from out-of-fold
scores.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cad.learning.learners.base import BinaryLearner, fit_sigmoid, platt_targets
from cad.learning.learners.solvers.problem import LearnerError
from cad.learning.stored import Declared, floats

Floats = NDArray[np.float64]

# Least slope of Platt's sigmoid for each standard deviation of the scores.
_LEAST_SLOPE = 1e-3


def require(condition: bool, problem: str, hint: str = "") -> None:
    """Raise LearnerError with the message ``problem`` and a hint unless the condition holds."""
    if not condition:
        raise LearnerError(problem, hint=hint)


def require_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise LearnerError unless the value of parameter ``name`` is one of the choices."""
    listed = ", ".join(repr(choice) for choice in choices)
    require(value in choices, f"{name} = {value!r}, must be one of {listed}")


def require_count(name: str, value: object, least: int = 1) -> None:
    """Raise LearnerError unless the value of parameter ``name`` is an integer >= least."""
    # True and False are integers in Python, but no counts.
    is_count = (
        isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least
    )
    require(bool(is_count), f"{name} = {value!r}, must be an integer >= {least}")


def warn_not_converged(who: str, what: str, hint: str) -> None:
    """Emit scikit-learn's ConvergenceWarning that a learner did not converge.

    Parameters
    ----------
    who : str
        Name of the learner.
    what : str
        The numbers that show that the learner did not converge, such as a gap.
    hint : str
        What the caller can do about it.
    """
    warnings.warn(f"{who} did not converge: {what} ({hint})", ConvergenceWarning, stacklevel=4)


class Ranker(BinaryLearner):
    """Share the methods of rankers; a subclass learns the scores.

    A subclass supplies three methods. ``_check_parameters()`` raises an error for parameters out of
    range. ``_fit_scores(X, sign, weight)`` learns from rows whose ``sign`` is the class +1 or -1,
    or 0 for an unlabelled row of a semi-supervised learner. ``_scores(X)`` returns the scores,
    shape (n,); larger scores are more positive.

    Platt's sigmoid turns scores into probabilities. It is fitted to scores that were predicted out
    of fold. There are ``platt_folds`` stratified folds, which keep patients whole if ``groups`` are
    given. With ``platt_folds=0`` it is fitted to the scores of the training rows. This is fast, but
    the probabilities are then too near 0 and 1. The scores of the training rows are also used if a
    class has too few rows or patients for two folds. The slope of the sigmoid is at least 1e-3 per
    standard deviation of the scores, so that probabilities follow the order of the scores. If
    positive rows have lower out-of-fold scores than negative rows, all probabilities are near the
    share of positive rows.
    """

    stored: ClassVar[Declared] = {
        "platt_slope_": floats(),
        "threshold_": floats(),
    }

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"eta": True, "groups": True}

    semi_supervised = False
    platt_folds: int

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Ranker:
        """Learn to rank, then fit the probabilities; return this object.

        Parameters
        ----------
        X : array-like, shape (n, d)
        y : array-like, shape (n,)
            Two classes; for semi-supervised learners -1 means "unlabelled". Floats in [0, 1] that
            are not all 0 or 1 are readers' probabilities: a row is positive if its probability is
            above 1/2, else negative.
        eta : ignored
            Rankers do not use the readers' uncertainty. The argument is there so that a pipeline
            may give it to any learner.
        sample_weight : array-like, shape (n,), optional
            Weights of the rows; a row of weight 2 counts like two equal rows.
        groups : array-like, shape (n,), optional
            Patient of every row. For the out-of-fold scores whole patients are left out.

        Raises
        ------
        LearnerError
            For labels of one class only, for no labelled row, and for a parameter out of range. The
            error is also a ValueError.
        """
        self._check_parameters()
        require_count("platt_folds", self.platt_folds, 0)
        require(self.platt_folds != 1, "platt_folds = 1, must be 0 (training scores) or at least 2")
        checked = validate_data(self, X, y, dtype=np.float64, order="C", ensure_min_samples=2)
        rows: Floats = checked[0]
        labels = checked[1]
        self._keep_range(rows)
        sign = self._signs(labels)
        weight = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        # Rows of weight 0 are removed, because they would still influence scaling, folds and
        # support rows.
        used = np.flatnonzero(weight > 0)
        self._check_two_classes(sign[used])
        if self._kernel_is_precomputed():
            require(
                rows.shape[0] == rows.shape[1],
                "Precomputed matrix must be a square matrix, input is "
                f"{rows.shape[0]} x {rows.shape[1]}",
                "give the kernel between the training points",
            )
            # Rows of weight 0 are left out of a precomputed kernel matrix, and so are their
            # columns. _fit_scores numbers support rows among the used rows; _widen turns these
            # numbers into numbers among all rows.
            self._fit_scores(rows[np.ix_(used, used)], sign[used], weight[used])
            self._widen(used, len(rows))
        else:
            self._fit_scores(rows[used], sign[used], weight[used])
        used_groups = None if groups is None else np.asarray(groups)[used]
        self._calibrate(rows, used, sign[used], weight[used], used_groups)
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the scores minus the score whose probability is one half, shape (n,)."""
        check_is_fitted(self)
        rows: Floats = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        # A ranker learns from differences of scores only, so its scores have no natural zero. The
        # zero is put where Platt's sigmoid is 1/2.
        return self._scores(rows) - self.threshold_

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return probabilities of the two classes, shape (n, 2), in the order of ``classes_``.

        A warning is given if rows differ from the training rows by more than chance.
        """
        values = self.decision_function(X)
        self._warn_outside(X)
        positive = expit(self.platt_slope_ * values)
        return np.column_stack([1.0 - positive, positive])

    @abstractmethod
    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        """Learn from rows of weight > 0, whose sign is +1 (positive), -1 (negative) or 0 (no
        label).
        """

    @abstractmethod
    def _scores(self, X: Floats) -> Floats:
        """Return the score of every row; larger is more positive."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise an error for parameters out of range."""

    def _kernel_is_precomputed(self) -> bool:
        """Return whether the learner gets kernel values; most rankers have no kernel."""
        return getattr(self, "kernel", None) == "precomputed"

    def _widen(self, used: NDArray[np.intp], n: int) -> None:
        """Renumber the support rows of a learner with a precomputed kernel.

        The learner was fitted to the rows ``used`` alone, and numbers its support rows among these.
        Afterwards the numbers are positions among all n rows.
        """

    def _signs(self, labels: NDArray[Any]) -> Floats:
        """Return the class of every row, shape (n,): 1, -1, or 0 for a row without a label.

        ``labels`` holds two classes of any type, or probabilities; -1 marks a row without a label
        if the learner is semi-supervised. The two classes are stored in ``classes_``.
        """
        y = column_or_1d(labels, warn=True)
        labelled = np.ones(len(y), dtype=bool)
        if self.semi_supervised and np.issubdtype(y.dtype, np.number):
            labelled = y != -1
            require(
                bool(labelled.any()),
                f"all {len(y)} rows are unlabelled (-1): there is nothing to learn a rank from",
                "label at least one row of each class",
            )
        if _are_probabilities(y[labelled]):
            self.classes_ = np.array([0, 1])
            # Pairs need classes and not probabilities. A probability of 1/2 counts as negative, as
            # in the measures of predictions.
            sign = np.where(y > 0.5, 1.0, -1.0)
            sign[~labelled] = 0.0
            return sign
        check_classification_targets(y)
        self.classes_ = np.unique(y[labelled])
        require(
            len(self.classes_) <= 2,
            "Only binary classification is supported. The type of the target is multiclass: "
            f"{len(self.classes_)} classes found",
            "merge classes until two are left",
        )
        sign = np.where(y == self.classes_[-1], 1.0, -1.0)
        self._check_two_classes(sign[labelled])
        sign[~labelled] = 0.0
        return sign

    def _check_two_classes(self, sign: Floats) -> None:
        """Raise an error unless there are rows of both classes."""
        positive = int((sign > 0).sum())
        negative = int((sign < 0).sum())
        require(
            positive > 0 and negative > 0 and len(self.classes_) == 2,
            f"y holds one class only ({positive} positive, {negative} negative rows of positive "
            "weight): a rank needs both classes",
            "add rows of the other class",
        )

    def _calibrate(
        self,
        X: Floats,
        used: NDArray[np.intp],
        sign: Floats,
        weight: Floats,
        groups: NDArray[Any] | None,
    ) -> None:
        """Fit Platt's sigmoid to scores of the labelled rows, out-of-fold ones if possible.

        ``used`` has the numbers of the rows of X that have a weight; the other arguments are about
        these rows.
        """
        labelled = np.flatnonzero(sign)
        scores = self._out_of_fold(X, used, sign, weight, groups)
        # If a class has too few rows or patients for two folds, training scores are used, although
        # they are too confident.
        if scores is None:
            training_rows = self._rows(X, rows=used, used=used, train=used)
            scores = self._scores(training_rows)[labelled]
        self.platt_slope_, self.threshold_ = platt(scores, sign[labelled], weight[labelled])

    def _rows(
        self, X: Floats, rows: NDArray[np.intp], used: NDArray[np.intp], train: NDArray[np.intp]
    ) -> Floats:
        """Return the rows ``rows`` of X, for a learner that was fitted to the rows ``train``.

        For a precomputed kernel the columns of X are training rows. Then a learner of one fold gets
        only the columns ``train``, and a learner that was fitted to all rows of positive weight
        (``used``) gets all columns.
        """
        if not self._kernel_is_precomputed():
            return X[rows]
        # A learner that was fitted to all used rows numbers its support rows among all rows, so it
        # gets all columns of the kernel matrix. A learner of one fold numbers them among its
        # training rows, so it gets the columns of these rows.
        return X[rows] if train is used else X[np.ix_(rows, train)]

    def _out_of_fold(
        self,
        X: Floats,
        used: NDArray[np.intp],
        sign: Floats,
        weight: Floats,
        groups: NDArray[Any] | None,
    ) -> Floats | None:
        """Return scores of labelled rows, each by a learner that was not trained on the row.

        ``used`` has the numbers of the rows of X that have a weight above 0. ``sign``, ``weight``
        and ``groups`` are about these rows, in this order. The result is None if no folds can be
        made.
        """
        labelled = np.flatnonzero(sign)
        # There are at most as many folds as the rarer class has rows (with ``groups``: patients).
        # Each training set then has both classes. With one class alone there would be no pairs to
        # learn from.
        most_folds = _size_of_rarer_class(
            sign[labelled], None if groups is None else groups[labelled]
        )
        folds = min(self.platt_folds, most_folds)
        if folds < 2:
            return None
        if groups is None:
            splits = StratifiedKFold(folds).split(labelled, sign[labelled])
        else:
            splits = StratifiedGroupKFold(folds).split(labelled, sign[labelled], groups[labelled])
        # One score for each labelled row.
        scores = np.empty(len(labelled))
        for _, test in splits:
            left_out = labelled[test]
            # Unlabelled rows (sign 0) are in no test fold and stay in every training set.
            train = np.setdiff1d(np.arange(len(sign)), left_out)
            labelled_signs = sign[train][sign[train] != 0]
            if len(np.unique(labelled_signs)) < 2:
                # Whole patients are left out, so a class may be missing nevertheless.
                return None
            learner = clone(self)
            # clone() drops ``n_features_in_``, which validate_data set, and _fit_scores does not
            # validate again.
            learner.n_features_in_ = self.n_features_in_
            # ``train`` and ``left_out`` are positions among the used rows.
            train_rows = used[train]
            # _rows() takes rows of X. If X is a kernel matrix, its columns are training rows, and
            # _rows() takes only the columns of this fold's training rows.
            learner._fit_scores(
                self._rows(X, rows=train_rows, used=used, train=train_rows),
                sign[train],
                weight[train],
            )
            test_rows = self._rows(X, rows=used[left_out], used=used, train=train_rows)
            scores[test] = learner._scores(test_rows)
        return scores

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "platt_slope_")


def platt(scores: Floats, sign: Floats, weight: Floats) -> tuple[float, float]:
    """Fit P(+1 | score) = 1 / (1 + exp(-slope (score - threshold))); return slope and threshold.

    Parameters
    ----------
    scores, sign, weight : ndarray, shape (n,)
        Scores of the rows, their class +1 or -1, and how often each row counts.

    Returns
    -------
    slope : float
        Change of the log-odds for each unit of the score; always above 0.
    threshold : float
        Score at which the probability is 1/2.

    Notes
    -----
    A slope below 1e-3 per standard deviation of the scores (or a negative slope) is replaced by
    this least slope; the probability at the mean score is then about the share of positives.
    """
    mean = np.average(scores, weights=weight)
    spread = float(np.sqrt(np.average((scores - mean) ** 2, weights=weight)))
    targets = platt_targets(sign > 0, weight)
    # Platt's targets are not 0 and 1, so the slope is finite also for a perfect ranking.
    slope, offset = fit_sigmoid(scores, targets, weight)
    least_slope = _LEAST_SLOPE / spread if spread > 0 else _LEAST_SLOPE
    if slope < least_slope:
        positive = weight[sign > 0].sum()
        negative = weight[sign < 0].sum()
        slope = least_slope
        # With this offset, the probability at the mean score is about the share of positives. The
        # least slope is so small that the probabilities of all rows are close to this share.
        log_odds = float(np.log((positive + 1.0) / (negative + 1.0)))
        offset = log_odds - slope * float(mean)
    # The threshold is the score at which slope * score + offset is 0.
    return slope, -offset / slope


def _are_probabilities(y: NDArray[Any]) -> bool:
    """Return whether y holds readers' probabilities: floats in [0, 1], not all of them 0 or 1."""
    if y.dtype.kind != "f" or not np.isfinite(y).all():
        return False
    in_range = bool(((y >= 0) & (y <= 1)).all())
    # Floats that are all 0 or 1 are names of classes, as everywhere in scikit-learn.
    return in_range and bool(((y > 0) & (y < 1)).any())


def _size_of_rarer_class(sign: Floats, groups: NDArray[Any] | None) -> int:
    """Return the number of rows of the rarer class, or of its patients if ``groups`` are given.

    This is the largest number of folds that can all contain both classes.
    """
    counts = []
    for class_sign in (-1.0, 1.0):
        of_class = sign == class_sign
        # Folds keep patients whole, so patients are counted and not regions.
        counts.append(int(of_class.sum()) if groups is None else len(np.unique(groups[of_class])))
    return min(counts)
