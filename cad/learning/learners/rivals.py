"""Provide the rivals.

A rival is another learner from soft labels, with which every validation compares the learner that
is validated.

A rival that has settings, such as a scaling and a penalty, chooses them itself: by inner folds of
whole patients (``groups``) or by a likelihood. No rival is tuned by hand. A test compares each
rival with a simple implementation of the textbook formula
(tests/learning/learners/test_textbook.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, logit
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

from cad.learning.learners.averaged import squared_distances
from cad.learning.learners.base import SoftLearner, cross_entropies, fit_sigmoid
from cad.learning.learners.scaling import SCALERS
from cad.learning.learners.solvers.problem import Array, LearnerError
from cad.learning.learners.trees import SoftExtraTrees, flatten, walk
from cad.learning.logistic import fit_logistic
from cad.learning.stored import Declared, Inside, Plain, check_trees, floats, whole

# Largest number of Newton's steps.
_NEWTON = 50
# Largest gradient at which Newton's method stops. The limit is larger while C is chosen, to save
# time, and smaller for the final fit.
_CHOOSING = 1e-3
_FITTED = 1e-6
# A larger gradient of the final fit gives a warning.
_WARNED = 1e-4
_SCALINGS = ("rank", "clipped")
MOST_SQUARE = 5000
"""Largest number of rows for a rival that needs a matrix of all pairs of rows. With so many rows a
fold takes three minutes.
"""
MOST_GROWN = 50_000
"""Largest number of rows on which a rival grows one tree; each tree draws other rows."""
# Boosting stops when this number of consecutive trees have not lowered the loss on inner folds.
_PATIENCE = 8


def rival_learners(n_rows: int = 0) -> dict[str, BaseEstimator]:
    """Return the unfitted rivals of every validation, by name.

    Reports show these names, such as "logistic on soft labels".

    Parameters
    ----------
    n_rows : int
        Number of rows to learn from. With more than :data:`MOST_SQUARE` rows, learners are left out
        whose time grows with the square or the cube of this number. No tree is grown on more than
        :data:`MOST_GROWN` rows.
    """
    share = min(1.0, MOST_GROWN / max(n_rows, 1))
    trees: dict[str, BaseEstimator] = {
        "boosting on soft labels": SoftBoosting(sample=min(SoftBoosting.sample, share)),
        "extra trees on p": SoftExtraTrees(trees=100, share=share),
    }
    if n_rows > MOST_SQUARE:
        return trees
    return {
        "logistic on soft labels": SoftLogistic(),
        "kernel ridge on p": RidgeProbability(),
        "Gaussian process on p": RidgeProbability(choose="likelihood"),
        **trees,
        "SVM, Platt on soft targets": SoftSVM(),
    }


def histology_rivals(n_rows: int = 0) -> dict[str, BaseEstimator]:
    """Return the unfitted rivals that learn from histology instead of readers' scores, by name.

    Parameters
    ----------
    n_rows : int
        Number of rows to learn from. With more than :data:`MOST_SQUARE` rows there is no such
        rival.

    Examples
    --------
    >>> list(histology_rivals())
    ['logistic on ranks, of histology']
    """
    if n_rows > MOST_SQUARE:
        return {}
    return {"logistic on ranks, of histology": SoftLogistic(scaling=("rank",))}


def rival_notes(names: list[str], n_rows: int) -> list[str]:
    """Return sentences on what is left out because of the number of rows.

    They name the rivals of ``names`` that are not compared, and those whose trees are grown on a
    sample of the rows.
    """
    compared = rival_learners(n_rows)
    without_comparison = [name for name in names if name not in compared]
    why = f"more than {MOST_SQUARE:,} rows, and their time grows with the square or the cube"
    notes = []
    if without_comparison:
        notes.append(f"not compared: {', '.join(without_comparison)} ({why})")
    if n_rows > MOST_GROWN:
        trees = ", ".join(name for name in names if name in compared)
        notes.append(f"{trees}: each tree is grown on at most {MOST_GROWN:,} of {n_rows:,} rows")
    return notes


class GroupedLearner(SoftLearner):
    """Share the methods of learners that choose their settings on inner folds of whole patients.

    A subclass supplies two methods. ``_fit`` chooses and fits; it gets checked rows, probabilities,
    weights and patients. ``_probability`` returns the probability of the positive class, shape
    (n,), for rows (n, d).
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose the settings on inner folds and fit to all rows.

        Parameters
        ----------
        X : array, shape (n, d)
            Features.
        y : array, shape (n,)
            Two classes, or probabilities in [0, 1].
        eta : ignored
            Accepted so that learners from soft labels can be exchanged.
        sample_weight : array, shape (n,), optional
            How much each row counts.
        groups : array, shape (n,), optional
            Patient of every row. All rows of a patient are in one inner fold.
        """
        self._fit(*self._read_grouped(X, y, sample_weight, groups))
        return self

    def _fit(self, given: Array, p: Array, weight: Array, groups: NDArray[Any]) -> Array:
        """Fit to rows, shape (n, d), their probabilities, weights above 0 and patients, shape (n,).

        The result is the log-odds of every row, by the chosen setting in a fit that left out the
        inner fold of the row, shape (n,).
        """
        raise NotImplementedError

    def fit_left_out(self, X: Array, p: Array, weight: Array, groups: NDArray[Any]) -> Array:
        """Fit, and return every row's log-odds, shape (n,), by a fit that left the row's patient
        out.

        Parameters
        ----------
        X : ndarray, shape (n, d)
            Features.
        p, weight : ndarray, shape (n,)
            Labels in [0, 1], and how much each row counts; a row of weight 0 gets NaN.
        groups : ndarray, shape (n,)
            Patient of every row.

        Returns
        -------
        ndarray, shape (n,)
            Log-odds of every row by a fit without the row's patient; NaN for a row of weight 0.
        """
        left_out = np.full(len(p), np.nan)
        # Only rows of a weight above 0 are read, so only they get log-odds.
        left_out[weight > 0] = self._fit(*self._read_grouped(X, p, weight, groups))
        return left_out


class SoftLogistic(GroupedLearner):
    """Learn logistic regression on soft labels.

    The learner minimises |w|^2 / 2 + C times the sum of cross-entropies, with w the weights of the
    features.

    Parameters
    ----------
    Cs : tuple of float
        Values of C to try, ascending. The value with the least cross-entropy on inner folds is
        chosen; of equally good values it is the first. The search stops once the cross-entropy
        rises.
    scaling : tuple of str
        Scalings to try: names in :data:`cad.learning.learners.scaling.SCALERS`, or "given" (none).
    folds : int
        Number of inner folds. All rows of a patient are in one fold.

    Attributes
    ----------
    C_, scaling_ : float and str
        The chosen values.
    scaler_ : transformer or None
        The fitted transformer of the scaling; None for "given".
    coef_ : ndarray, shape (d,)
        Weights of the scaled features.
    intercept_ : float
    """

    stored: ClassVar[Declared] = {
        "C_": floats(low=0.0),
        "coef_": floats("d"),
        "intercept_": floats(),
        "scaler_": Inside(optional=True),
        "scaling_": Plain(),
    }

    def __init__(
        self,
        Cs: tuple[float, ...] = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 0.3, 1.0, 3.0),
        scaling: tuple[str, ...] = _SCALINGS,
        folds: int = 5,
    ) -> None:
        self.Cs = Cs
        self.scaling = scaling
        self.folds = folds

    def _fit(self, given: Array, p: Array, weight: Array, groups: NDArray[Any]) -> Array:
        """Choose scaling and C on inner folds, fit to all rows, and return left-out log-odds."""
        least_loss = np.inf
        for scaling, scaler, rows in _scaled_rows(given, self.scaling):
            splits = _splits(p, groups, self.folds)
            # One for each inner fold; each is fitted at one cost after another.
            lines = [_line_loss(rows[train], p[train]) for train, _ in splits]
            last_loss = np.inf
            for C in self.Cs:
                log_odds = np.empty(len(p))
                for (train, test), line in zip(splits, lines, strict=True):
                    coefficients, intercept = line.fitted(C * weight[train], _CHOOSING)
                    log_odds[test] = rows[test] @ coefficients + intercept
                loss = float(weight @ cross_entropies(p, expit(log_odds)))
                if loss < least_loss:
                    least_loss = loss
                    self.C_ = float(C)
                    chosen_rows = rows
                    left_out = log_odds
                    self.scaling_ = scaling
                    self.scaler_ = scaler
                # As the cost C rises, the loss on inner folds falls first and then rises. Larger
                # values of C would be worse and slower.
                if loss > last_loss:
                    break
                last_loss = loss
        final_line = _line_loss(chosen_rows, p)
        self.coef_, self.intercept_ = final_line.fitted(self.C_ * weight, _FITTED)
        if final_line.missed > _WARNED:
            warnings.warn(
                f"SoftLogistic: not converged in {_NEWTON} Newton steps, "
                f"gradient {final_line.missed:.1e}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return left_out

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the log-odds of the positive class, shape (n,)."""
        check_is_fitted(self)
        return self._linear(validate_data(self, X, dtype=np.float64, reset=False))

    def _linear(self, rows: Array) -> Array:
        """Return the log-odds of checked rows, shape (n,)."""
        scaled = rows if self.scaler_ is None else self.scaler_.transform(rows)
        values: Array = scaled @ self.coef_ + self.intercept_
        return values

    def _probability(self, X: Array) -> Array:
        probability: Array = expit(self._linear(X))
        return probability


@dataclass(eq=False, repr=False)
class RidgeProbability(GroupedLearner):
    """Learn soft labels p by kernel ridge regression; predictions are clipped, to lie within (0,
    1).

    Parameters
    ----------
    gammas : tuple of float
        Values of gamma to try in the kernel exp(-gamma |u - v|^2 / d) of rows u and v, d features.
    alphas : tuple of float
        Strengths of the ridge penalty to try.
    choose : "left-out error" or "likelihood"
        How the settings are chosen. With "left-out error", by the squared error on left-out groups
        of patients, which for a ridge regression needs no other fit. With "likelihood", by the
        marginal likelihood of the Gaussian process whose mean is this ridge regression (Rasmussen
        and Williams 2006, section 2.7). All variances of the process are multiplied by the factor
        for which the likelihood is largest.
    scaling : tuple of str
        Scalings to try: names in :data:`cad.learning.learners.scaling.SCALERS`, or "given" (none).
    clip : float
        Probabilities lie in [clip, 1 - clip], so that the cross-entropy is finite.
    folds : int
        Number of groups of patients that are left out.

    Attributes
    ----------
    gamma_, alpha_, scaling_ : float, float and str
        The chosen values.
    """

    stored: ClassVar[Declared] = {
        "alpha_": floats(low=0.0),
        "gamma_": floats(low=0.0),
        "dual_": floats("n"),
        "rows_": floats("n", "d"),
        "mean_": floats(low=0.0, high=1.0),
        "scaler_": Inside(optional=True),
        "scaling_": Plain(),
    }

    gammas: tuple[float, ...] = (0.02, 0.035, 0.06, 0.11, 0.2, 0.35, 0.6)
    alphas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    choose: str = "left-out error"
    scaling: tuple[str, ...] = _SCALINGS
    clip: float = 0.02
    folds: int = 5

    def _fit(self, given: Array, p: Array, weight: Array, groups: NDArray[Any]) -> Array:
        """Choose scaling, gamma and alpha, and keep the fit to all rows with them."""
        if self.choose not in ("left-out error", "likelihood"):
            raise LearnerError(f"choose = {self.choose!r}: known are left-out error, likelihood")
        self.mean_ = float(np.average(p, weights=weight))
        # A weight is the precision (1 / variance) of its label. So ridge regression solves
        # equations with the matrix S K S + alpha I. K is the kernel matrix, and S has the square
        # roots of the weights on its diagonal.
        root_of_weight = np.sqrt(weight)
        target = root_of_weight * (p - self.mean_)
        left_out_groups = [test for _, test in _splits(p, groups, self.folds)]
        least_loss = np.inf
        for scaling, scaler, rows in _scaled_rows(given, self.scaling):
            distances = squared_distances(rows, rows) / rows.shape[1]
            for gamma in self.gammas:
                weighted_kernel = (
                    root_of_weight[:, None] * np.exp(-gamma * distances) * root_of_weight
                )
                eigenvalues, eigenvectors = np.linalg.eigh(weighted_kernel)
                # Rounding can make an eigenvalue slightly negative.
                eigenvalues = np.maximum(eigenvalues, 0.0)
                # In the basis of the eigenvectors the equations of every alpha are diagonal.
                rotated_target = eigenvectors.T @ target
                for alpha in self.alphas:
                    if self.choose == "likelihood":
                        loss = _minus_likelihood(eigenvalues + alpha, rotated_target)
                    else:
                        shrinkage = eigenvalues / (eigenvalues + alpha)
                        loss = _left_out_error(
                            eigenvectors, shrinkage, rotated_target, target, left_out_groups
                        )
                    if loss < least_loss:
                        least_loss = loss
                        self.gamma_ = float(gamma)
                        self.alpha_ = float(alpha)
                        self.scaling_ = scaling
                        self.scaler_ = scaler
                        self.rows_ = rows
                        solution = eigenvectors @ (rotated_target / (eigenvalues + alpha))
                        self.dual_ = root_of_weight * solution
        # The left-out predictions of this learner are not needed, because it is no member of an
        # ensemble.
        return np.full(len(p), np.nan)

    def _probability(self, X: Array) -> Array:
        rows = X if self.scaler_ is None else self.scaler_.transform(X)
        K = np.exp(-self.gamma_ * squared_distances(rows, self.rows_) / X.shape[1])
        probability: Array = np.clip(self.mean_ + K @ self.dual_, self.clip, 1.0 - self.clip)
        return probability


@dataclass(eq=False, repr=False)
class SoftSVM(GroupedLearner):
    """Learn an SVM on the classes p > .5 and p <= .5, with a sigmoid that is fitted to p on
    left-out rows.

    Scaling, C and gamma are chosen by the cross-entropy between p and the predictions on inner
    folds. The decision values of one fold come from an SVM that was fitted to the other folds. The
    sigmoid is fitted to the decision values of all folds (Platt 2000).

    Parameters
    ----------
    Cs : tuple of float
        Values to try for the cost of a unit of violation of a margin, ascending.
    gammas : tuple of float
        Values of gamma to try in the kernel exp(-gamma |u - v|^2 / d) of rows u and v, d features.
    scaling : tuple of str
        Scalings to try: names in :data:`cad.learning.learners.scaling.SCALERS`, or "given" (none).
    folds : int
        Number of inner folds; they keep patients whole.

    Attributes
    ----------
    C_, gamma_, scaling_ : float, float and str
        The chosen values.
    rows_ : ndarray, shape (n_support, d)
        The support vectors, after scaling.
    dual_ : ndarray, shape (n_support,)
        Coefficients of the support vectors in the decision value.
    intercept_ : float
        The intercept, which is added to the kernel expansion.
    sigmoid_ : ndarray, shape (2,)
        Slope and offset that turn decision values into log-odds.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> p = np.clip(0.5 + X[:, 0] / 4, 0, 1)
    >>> fitted = SoftSVM().fit(X, p, groups=np.arange(40) % 8)
    >>> bool((np.diff(fitted.predict_proba(X)[:, 1]) > -1e-9).all())
    True
    """

    stored: ClassVar[Declared] = {
        "C_": floats(low=0.0),
        "gamma_": floats(low=0.0),
        "rows_": floats("n", "d"),
        "dual_": floats("n"),
        "intercept_": floats(),
        "sigmoid_": floats(2),
        "scaler_": Inside(optional=True),
        "scaling_": Plain(),
    }

    Cs: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    gammas: tuple[float, ...] = (0.1, 0.3, 1.0)
    scaling: tuple[str, ...] = _SCALINGS
    folds: int = 5

    def _fit(self, given: Array, p: Array, weight: Array, groups: NDArray[Any]) -> Array:
        """Choose scaling, gamma and C on inner folds, and fit; return left-out log-odds."""
        positive = p > 0.5
        if positive.all() or not positive.any():
            raise LearnerError(
                "an SVM needs two classes, and the labels lie on one side of .5",
                hint="labels above .5 are positive",
            )
        splits = _splits(p, groups, self.folds)
        least_loss = np.inf
        for scaling, scaler, rows in _scaled_rows(given, self.scaling):
            distances = squared_distances(rows, rows) / rows.shape[1]
            for gamma in self.gammas:
                K = np.exp(-gamma * distances)
                last_loss = np.inf
                for C in self.Cs:
                    margins = _left_out_margins(K, positive, C * weight, splits)
                    has_margin = np.isfinite(margins)
                    if not has_margin.any():
                        # The training rows of every fold have one class only.
                        continue
                    f = margins[has_margin]
                    p_judged = p[has_margin]
                    weight_judged = weight[has_margin]
                    slope, offset = fit_sigmoid(f, p_judged, weight_judged)
                    q = expit(slope * f + offset)
                    loss = float(weight_judged @ cross_entropies(p_judged, q))
                    if loss < least_loss:
                        least_loss = loss
                        self.C_ = float(C)
                        self.gamma_ = float(gamma)
                        self.scaling_ = scaling
                        self.scaler_ = scaler
                        self.sigmoid_ = np.array([slope, offset])
                        chosen_rows = rows
                        chosen_kernel = K
                        left_out = slope * margins + offset
                    # As the cost C rises, the loss on inner folds falls first and then rises.
                    # Larger values of C would be worse and slower.
                    if loss > last_loss:
                        break
                    last_loss = loss
        # Without a finite loss nothing was chosen above.
        if not np.isfinite(least_loss):
            raise LearnerError("no inner fold has training rows of both classes")
        machine = _machine(chosen_kernel, positive, self.C_ * weight)
        self.rows_ = chosen_rows[machine.support_]
        self.dual_ = machine.dual_coef_[0]
        self.intercept_ = float(machine.intercept_[0])
        return left_out

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the decision values, shape (n,); the SVM separates its classes at 0."""
        check_is_fitted(self)
        return self._margins(validate_data(self, X, dtype=np.float64, reset=False))

    def _margins(self, X: Array) -> Array:
        """Return the decision values of checked rows, shape (n,)."""
        rows = X if self.scaler_ is None else self.scaler_.transform(X)
        K = np.exp(-self.gamma_ * squared_distances(rows, self.rows_) / X.shape[1])
        values: Array = K @ self.dual_ + self.intercept_
        return values

    def _probability(self, X: Array) -> Array:
        probability: Array = expit(self.sigmoid_[0] * self._margins(X) + self.sigmoid_[1])
        return probability


def _machine(K: Array, positive: NDArray[np.bool_], cost: Array) -> SVC:
    """Return an SVM fitted to a kernel matrix, with a cost for each row."""
    return SVC(C=1.0, kernel="precomputed").fit(K, positive, cost)


def _left_out_margins(
    K: Array,
    positive: NDArray[np.bool_],
    cost: Array,
    splits: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
) -> Array:
    """Return the decision values of left-out rows; NaN if the training rows have one class only."""
    margins = np.full(len(positive), np.nan)
    for train, test in splits:
        if len(np.unique(positive[train])) < 2:
            continue  # no SVM can be fitted, so the left-out rows keep NaN
        machine = _machine(K[np.ix_(train, train)], positive[train], cost[train])
        margins[test] = machine.decision_function(K[np.ix_(test, train)])
    return margins


@dataclass(eq=False, repr=False)
class SoftBoosting(GroupedLearner):
    """Learn soft labels by boosted trees; each tree is a Newton step on the cross-entropy (Friedman
    2001).

    Parameters
    ----------
    depths : tuple of int
        Depths of the trees that are tried.
    trees : int
        Largest number of trees. Depth and number of trees are chosen by the cross-entropy of inner
        folds.
    rate : float
        Learning rate: the share of each tree's step that is taken.
    sample : float
        Share of the rows that each tree is grown on.
    min_leaf : int
        Least number of rows of a leaf.
    folds : int
        Number of inner folds; they keep patients whole.
    seed : int
        Seed of the random draw of the rows and columns for each tree.

    Attributes
    ----------
    depth_, n_trees_ : int
        The chosen depth and number of trees.
    start_ : float
        Log-odds before the first tree.
    roots_ : ndarray of int, shape (trees,)
        Node where each tree begins.
    features_, left_, right_, thresholds_, values_ : ndarray, shape (nodes,)
        Nodes of all trees: the feature that a node compares, the nodes to which a row goes whose
        value is at most the threshold or above it, the threshold, and the node's value. A leaf has
        itself as its next nodes. The value of the leaf that a row reaches is added to the log-odds
        of the row.
    """

    stored: ClassVar[Declared] = {
        "depth_": whole(),
        "n_trees_": whole(),
        "start_": floats(),
        "roots_": whole("trees", below="nodes", bits=32),
        "features_": whole("nodes", below="d", bits=32),
        "left_": whole("nodes", below="nodes", bits=32),
        "right_": whole("nodes", below="nodes", bits=32),
        "thresholds_": floats("nodes"),
        "values_": floats("nodes"),
    }

    depths: tuple[int, ...] = (1, 2, 3)
    trees: int = 70
    rate: float = 0.15
    sample: float = 0.7
    min_leaf: int = 5
    folds: int = 2
    seed: int = 0

    def _fit(self, given: Array, p: Array, weight: Array, groups: NDArray[Any]) -> Array:
        """Choose depth and number of trees on inner folds, grow them on all rows, and return
        left-out log-odds.
        """
        rows = given.astype(np.float32)
        splits = _splits(p, groups, self.folds)
        least_loss = np.inf
        for depth in self.depths:
            for n_trees, log_odds in enumerate(self._left_out(rows, p, weight, splits, depth)):
                loss = float(weight @ cross_entropies(p, expit(log_odds)))
                if loss < least_loss:
                    least_loss = loss
                    self.depth_ = int(depth)
                    self.n_trees_ = n_trees
                    left_out = log_odds.copy()  # ``_left_out`` changes its array in place
        self.start_ = _log_odds(p, weight)
        growing = self._steps(rows, p, weight, self.depth_)
        steps_taken = [step for step, _ in zip(growing, range(self.n_trees_), strict=False)]
        for name, array in flatten([tree for tree, _ in steps_taken]).items():
            setattr(self, name, array)
        # The empty array comes first, because the chosen number of trees may be 0.
        self.values_ = np.concatenate([np.empty(0), *(values for _, values in steps_taken)])
        return left_out

    def _left_out(
        self,
        rows: NDArray[np.float32],
        p: Array,
        weight: Array,
        splits: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
        depth: int,
    ) -> Iterator[Array]:
        """Yield the log-odds of all rows after 0, 1, 2, ... trees, until their loss stops falling.

        The log-odds of a row come from the training rows of the split whose test rows hold the row.
        Every step yields the same array, changed in place. ``depth`` is that of each tree.
        """
        log_odds = np.empty(len(p))
        for train, test in splits:
            log_odds[test] = _log_odds(p[train], weight[train])
        steps_of_splits = [
            self._steps(rows[train], p[train], weight[train], depth) for train, _ in splits
        ]
        test_rows = [rows[test] for _, test in splits]
        lowest = np.inf
        trees_without_gain = 0
        while trees_without_gain <= _PATIENCE:
            loss = float(weight @ cross_entropies(p, expit(log_odds)))
            yield log_odds
            if loss < lowest:
                lowest = loss
                trees_without_gain = 0
            else:
                trees_without_gain += 1
            for (_, test), rows_of_test, steps in zip(
                splits, test_rows, steps_of_splits, strict=True
            ):
                next_step = next(steps, None)
                if next_step is None:
                    return  # the largest number of trees is reached
                tree, node_values = next_step
                log_odds[test] += node_values[tree.apply(rows_of_test)]

    def _steps(
        self, rows: NDArray[np.float32], p: Array, weight: Array, depth: int
    ) -> Iterator[tuple[Any, Array]]:
        """Yield each tree, and the amounts that it adds to the log-odds at each of its nodes."""
        rng = np.random.RandomState(self.seed)
        log_odds = np.full(len(p), _log_odds(p, weight))
        n_drawn = max(2, int(self.sample * len(p)))
        for _ in range(self.trees):
            q = expit(log_odds)
            # First and second derivative of the loss by the log-odds of each row (the first with a
            # minus sign). The clip keeps steps finite where q is nearly 0 or 1.
            curvature = weight * np.maximum(q * (1 - q), 1e-3)
            slope = weight * (p - q)
            drawn = rng.permutation(len(p))[:n_drawn]
            grower = DecisionTreeRegressor(
                max_depth=depth,
                min_samples_leaf=self.min_leaf,
                max_features="sqrt",
                random_state=rng,
            )
            with config_context(skip_parameter_validation=True, assume_finite=True):
                # The tree is fitted to the Newton step of each row, weighted by the curvature.
                newton_step = (slope / curvature)[drawn]
                grower.fit(rows[drawn], newton_step, curvature[drawn], check_input=False)
            tree = grower.tree_
            leaf = tree.apply(rows)
            n_nodes = tree.node_count
            # The value of a leaf is the sum of slopes divided by the sum of curvatures. The 1 that
            # is added to the curvatures draws the value of a leaf with few rows towards 0.
            sum_of_slopes = np.bincount(leaf, slope, n_nodes)
            sum_of_curvatures = np.bincount(leaf, curvature, n_nodes)
            node_values = sum_of_slopes / (sum_of_curvatures + 1.0)
            log_odds += self.rate * node_values[leaf]
            yield tree, self.rate * node_values

    def _probability(self, X: Array) -> Array:
        probability: Array = expit(self._log_odds(X))
        return probability

    def _log_odds(self, X: Array) -> Array:
        """Return the log-odds of checked rows, shape (n,)."""
        nodes = (self.features_, self.thresholds_, self.left_, self.right_, self.values_)
        rows = np.ascontiguousarray(X, dtype=np.float32)
        return self.start_ + walk(rows, self.roots_, *nodes)

    def check_stored(self) -> None:
        """Check, on loading, that a walk through the trees stays within them and ends
        (:func:`cad.learning.stored.check_trees`).
        """
        check_trees(self.roots_, self.left_, self.right_, type(self).__name__)


def _log_odds(p: Array, weight: Array) -> float:
    """Return the log-odds of the weighted mean label, which is clipped to [.01, .99]."""
    mean = np.average(p, weights=weight)
    return float(logit(np.clip(mean, 0.01, 0.99)))


def _scaled_rows(X: Array, names: tuple[str, ...]) -> Iterator[tuple[str, Any, Array]]:
    """Yield for every named scaling its name, the fitted scaler and the scaled rows."""
    for name in names:
        if name == "given":  # the features as they are
            yield name, None, X
        else:
            scaler = SCALERS[name]().fit(X)
            yield name, scaler, scaler.transform(X)


def _splits(
    p: Array, groups: NDArray[Any], folds: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the training rows and the test rows of every inner fold; patients stay whole."""
    n_folds = min(folds, len(np.unique(groups)))
    if n_folds < 2:
        raise LearnerError("inner folds need at least two patients")
    return list(GroupKFold(n_folds).split(p, groups=groups))


class _DualLine:
    """Fit a penalised logistic regression at several costs, for more features than rows.

    The unknowns are a coefficient for every row.
    """

    def __init__(self, rows: Array, p: Array) -> None:
        self.rows = rows
        self.p = p
        self.K = rows @ rows.T
        # The fit at each cost starts from the solution at the last cost.
        self.last_solution = (np.zeros(len(p)), 0.0)
        self.missed = 0.0

    def fitted(self, cost: Array, tol: float) -> tuple[Array, float]:
        """Return the weights of the features and the intercept, given each row's cost."""
        alpha, b, self.missed = _newton(self.K, self.p, cost, *self.last_solution, tol)
        self.last_solution = (alpha, b)
        return self.rows.T @ alpha, b


class _PrimalLine:
    """Fit a penalised logistic regression at several costs, for more rows than features.

    The unknowns are a weight for every feature.
    """

    def __init__(self, rows: Array, p: Array) -> None:
        self.design = np.column_stack([np.ones(len(rows)), rows])
        self.p = p
        self.missed = 0.0

    def fitted(self, cost: Array, tol: float) -> tuple[Array, float]:
        """Return the weights of the features and the intercept, given each row's cost."""
        precision = np.ones(self.design.shape[1])
        precision[0] = 0.0  # the intercept has no penalty
        beta = fit_logistic(self.design, self.p, weight=cost[None], precision=precision)[0]
        return beta[1:], float(beta[0])


def _line_loss(rows: Array, p: Array) -> _DualLine | _PrimalLine:
    """Return the penalised logistic regression of these rows, in the quicker of two forms."""
    return _PrimalLine(rows, p) if 2 * rows.shape[1] < len(rows) else _DualLine(rows, p)


def _newton(
    K: Array, p: Array, cost: Array, alpha: Array, b: float, tol: float
) -> tuple[Array, float, float]:
    """Fit kernel logistic regression with the coefficients alpha and the intercept b.

    The minimised objective is alpha'K alpha / 2 plus the sum of cost times cross-entropy over the
    rows, with the log-odds K alpha + b.

    Returns
    -------
    alpha : ndarray, shape (n,)
        Coefficients of the rows.
    b : float
        Intercept.
    missed : float
        Largest violation of the optimality conditions. It is the larger of two numbers: the largest
        absolute value in the vector alpha / cost + q - p, and the absolute sum of q - p weighted by
        cost / largest cost. It is zero at the optimum, and at most ``tol`` if the steps converged.
    """
    alpha = alpha.copy()
    expansion = K @ alpha
    relative_cost = cost / cost.max()
    objective = _logistic_objective(alpha, expansion, b, p, cost)
    for _ in range(_NEWTON):
        q = expit(expansion + b)
        gradient = max(np.max(np.abs(alpha / cost + q - p)), abs(relative_cost @ (q - p)))
        if gradient <= tol:
            break
        # Newton's step solves (K + W^-1) alpha = target with W = cost q (1 - q). The equations are
        # solved by way of the matrix I + W^1/2 K W^1/2. Its eigenvalues are at least 1 however near
        # q is to 0 or 1 (Rasmussen and Williams 2006, algorithm 3.1).
        weight = np.maximum(q * (1 - q), 1e-10)  # it is a divisor below
        root_of_weight = np.sqrt(cost * weight)
        matrix = root_of_weight[:, None] * K
        matrix *= root_of_weight
        matrix.flat[:: len(p) + 1] += 1.0  # the diagonal
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        # Two right sides: the target of the step, and ones, from which the intercept follows. The
        # coefficients sum to 0, because the intercept has no penalty.
        target = expansion + b + (p - q) / weight
        right_sides = np.column_stack([target, np.ones(len(p))]) * root_of_weight[:, None]
        solutions = root_of_weight[:, None] * cho_solve(factor, right_sides, check_finite=False)
        new_b = float(solutions[:, 0].sum() / solutions[:, 1].sum())
        alpha_step = solutions[:, 0] - new_b * solutions[:, 1] - alpha
        b_step = new_b - b
        expansion_step = K @ alpha_step
        # The step is halved until the objective does not rise by more than a rounding error. A step
        # of a millionth is accepted as it is, so that the loop ends.
        length = 1.0
        while length > 1e-6:
            new_alpha = alpha + length * alpha_step
            new_objective = _logistic_objective(
                new_alpha, expansion + length * expansion_step, b + length * b_step, p, cost
            )
            if new_objective <= objective + 1e-12 * abs(objective):
                break
            length /= 2
        alpha = alpha + length * alpha_step
        expansion = expansion + length * expansion_step
        b = b + length * b_step
        objective = new_objective
    q = expit(expansion + b)
    missed = max(np.max(np.abs(alpha / cost + q - p)), abs(relative_cost @ (q - p)))
    return alpha, b, float(missed)


def _logistic_objective(alpha: Array, f: Array, b: float, p: Array, cost: Array) -> float:
    """Return alpha'f / 2 plus the sum of cost times cross-entropy, with f = K alpha."""
    log_odds = f + b
    cross_entropy = np.logaddexp(0.0, log_odds) - p * log_odds
    return float(alpha @ f / 2 + cost @ cross_entropy)


def _minus_likelihood(variances: Array, turned: Array) -> float:
    """Return minus the log marginal likelihood of the targets, without constants.

    The targets are taken as normal, with mean 0 and a covariance that is known but for a factor.
    The factor of highest likelihood is used.

    Parameters
    ----------
    variances, turned : ndarray, shape (n,)
        Eigenvalues of the covariance with the factor 1, and the targets in the basis of its
        eigenvectors.
    """
    best_scale = np.mean(turned**2 / variances)
    log_determinant = np.log(variances).sum()
    return float(len(turned) * np.log(best_scale) + log_determinant) / 2


def _left_out_error(
    eigenvectors: Array,
    shrinkage: Array,
    rotated_target: Array,
    p: Array,
    splits: list[NDArray[np.intp]],
) -> float:
    """Return the sum of squared errors of cross-validation over groups of rows (``splits``).

    The formula needs only one fit, to all rows. No group has to be left out of a fit.
    """
    residual = p - eigenvectors @ (shrinkage * rotated_target)
    total = 0.0
    for group in splits:
        # The residuals of a fit without the group are those of the full fit, divided by one minus
        # the group's block of the hat matrix.
        eigenvectors_of_group = eigenvectors[group]
        unexplained = (
            np.eye(len(group)) - (eigenvectors_of_group * shrinkage) @ eigenvectors_of_group.T
        )
        total += float(np.sum(np.linalg.solve(unexplained, residual[group]) ** 2))
    return total
