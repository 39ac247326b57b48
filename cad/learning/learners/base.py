"""Provide the base classes of learners, and functions on labels, warnings and Platt's sigmoid.

The sigmoid turns decision values into probabilities (Platt 2000; Lin, Lin and Weng 2007).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import validation

from cad.learning.learners.solvers.choice import solve_pointwise
from cad.learning.learners.solvers.kernels import Gram, decision_values, make_gram, settle_kernel
from cad.learning.learners.solvers.problem import Array, LearnerError, Problem, Solution
from cad.learning.logistic import fit_logistic
from cad.learning.stored import Declared, Numbers, floats, whole

_CLIP = 1e-6
# Largest number of columns that a warning names.
_NAMED = 5
# Limits beyond which values count as far from the training's range (:func:`outside`). With these
# four numbers, fewer than 1 in 100 tables of 1 to 10 ordinary rows get a warning.
_FAR_RATIO = 5.0
_FAR_WIDTHS_OF_COLUMN = 10.0
_FAR_WIDTHS = 3.0
_FAR_WIDTHS_OF_ONE = 200.0


class LearnerWarning(UserWarning):
    """Warn of a fit that succeeded but is hardly useful, such as a constant prediction."""


class RangeWarning(LearnerWarning):
    """Warn that rows to be predicted are unlike the training rows."""


def read_targets(y: ArrayLike) -> tuple[NDArray[Any], Array]:
    """Return the two classes, and for each row the probability of the positive class by its label.

    Parameters
    ----------
    y : array, shape (n,)
        Two classes of any kind, or probabilities in [0, 1].

    Returns
    -------
    classes : ndarray, shape (2,)
        Negative and positive class, in sorted order, so the positive class is the larger one. For
        probabilities the classes are 0 and 1.
    p : ndarray, shape (n,)
        Probability of the positive class; 0 or 1 if the labels are classes.

    Raises
    ------
    LearnerError
        For one class or more than two, for probabilities outside [0, 1], for NaN, and for a wrong
        shape.

    Examples
    --------
    >>> classes, p = read_targets(["benign", "malignant", "benign"])
    >>> classes.tolist(), p.tolist()
    (['benign', 'malignant'], [0.0, 1.0, 0.0])
    >>> read_targets([0.0, 0.25, 1.0])[1].tolist()
    [0.0, 0.25, 1.0]
    """
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        # As in scikit-learn, a column vector is accepted with a warning.
        from sklearn.utils import column_or_1d

        values = column_or_1d(values, warn=True)
    if values.ndim != 1:
        raise LearnerError(f"y has shape {values.shape}, must be one label per sample")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        if not np.isnan(values).any():
            raise LearnerError("Input y contains infinity; labels lie in [0, 1]")
        first_nan = int(np.argmax(np.isnan(values)))
        raise LearnerError(
            f"y[{first_nan}] is NaN: Input y contains NaN", hint="leave unlabelled rows out"
        )
    # Labels that are not all whole numbers are probabilities.
    if values.dtype.kind == "f" and (values != np.rint(values)).any():
        lowest = values.min()
        highest = values.max()
        if lowest < 0 or highest > 1:
            wrong = lowest if lowest < 0 else highest
            raise LearnerError(
                f"Unknown label type: continuous y with the value {wrong:g} outside [0, 1]",
                hint="soft labels are probabilities in [0, 1]",
            )
        return np.array([0, 1]), values.astype(float)
    classes = np.unique(values)
    if len(classes) == 1:
        raise LearnerError(
            f"y holds one class only ({classes[0]}): two are needed to tell them apart"
        )
    if len(classes) > 2:
        raise LearnerError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"{len(classes)} values from {classes[0]} to {classes[-1]}",
            hint="soft labels are floats in [0, 1]; cross_val_predict replaces them by integers, "
            "unless the learner stands in cad.learners.ProbabilityRegressor",
        )
    return classes, (values == classes[1]).astype(float)


def _is_plain(X: ArrayLike) -> bool:
    """Return whether scikit-learn's input validation would return the array X unchanged."""
    if type(X) is not np.ndarray or X.dtype != np.float64:
        return False
    return X.ndim == 2 and len(X) > 1 and X.flags.c_contiguous


def read_weight(sample_weight: ArrayLike | None, rows: Array) -> Array:
    """Return checked weights of the rows, shape (n,); 1 each where ``sample_weight`` is None.

    Of ``rows``, shape (n, d), only the number is used.

    Raises
    ------
    LearnerError
        For a weight below zero, or if all weights are zero.

    Examples
    --------
    >>> import numpy as np
    >>> read_weight(None, np.zeros((3, 2))).tolist()
    [1.0, 1.0, 1.0]
    """
    if sample_weight is None:
        return np.ones(len(rows))
    weight: Array = validation._check_sample_weight(sample_weight, rows, dtype=np.float64)
    if (weight < 0).any():
        first = int(np.argmax(weight < 0))
        raise LearnerError(f"sample_weight[{first}] = {weight[first]:g}, must be >= 0")
    if not (weight > 0).any():
        raise LearnerError("sample_weight is zero everywhere: no sample is left to fit")
    return weight


def check_cost(name: str, value: Any) -> float:
    """Check a cost and return it as a float; the error's message has its ``name``.

    Raises
    ------
    LearnerError
        Unless the cost is finite and > 0.
    """
    if not isinstance(value, (int, float, np.number)) or not np.isfinite(value) or value <= 0:
        raise LearnerError(
            f"{name} = {value!r}, must be a finite number > 0", hint=f"for example {name}=1.0"
        )
    return float(value)


def warn_unless_converged(solution: Solution, name: str) -> None:
    """Emit scikit-learn's ConvergenceWarning when a solution missed its tolerance.

    Parameters
    ----------
    solution : Solution
        The solution, whose ``converged`` decides.
    name : str
        Name of the learner, for the message.
    """
    if not solution.converged:
        warnings.warn(
            f"{name}: {solution}; try larger tol, smaller C, or scaled features",
            ConvergenceWarning,
            stacklevel=3,
        )


def training_range(rows: Array) -> Array:
    """Return the minimum, maximum, mean and standard deviation of every column.

    Parameters
    ----------
    rows : ndarray, shape (n, d)
        Training rows; NaN is left out.

    Returns
    -------
    ndarray, shape (4, d)
        Minimum, maximum, mean and standard deviation, in that order.

    Examples
    --------
    >>> import numpy as np
    >>> training_range(np.array([[1.0], [3.0]])).ravel().tolist()
    [1.0, 3.0, 2.0, 1.0]
    """
    return np.array(
        [
            np.nanmin(rows, axis=0),
            np.nanmax(rows, axis=0),
            np.nanmean(rows, axis=0),
            np.nanstd(rows, axis=0),
        ]
    )


def outside(rows: Array, trained: Array, n: int, names: Sequence[str]) -> list[str]:
    """Return warnings if rows differ from the training rows by more than chance.

    One warning is about columns. The values of a column, as distances from the training mean, are
    clipped at three standard deviations. The column differs if their mean is more than four
    standard errors away from 0. The rows of a patient depend on each other, so in the standard
    error six rows count as one.

    Columns of few rows cannot be judged by their mean. A column is also named if all its values lie
    far from the training's range, as values in another unit do (:func:`_far_columns`).

    The last warning is about single rows. A row differs if two conditions hold. More than a fifth
    of its values lie outside the range of their column in the training by more than the width of
    the range. And at least one value lies outside by more than three widths. With fewer than 67
    training rows it must be more than 200 / n widths, because the range of few rows is narrow.

    Of tables with 1 to 10 ordinary rows fewer than 1 in 100 get a warning, on average over 18
    tables of measurements (simulated and real radiomics, UCI) with 20 to 100 training rows and 3 to
    495 columns. With 20 training rows and hundreds of columns it can be 3 in 100.

    Parameters
    ----------
    rows : ndarray, shape (m, d)
        Rows to predict; NaN is left out.
    trained : ndarray, shape (4, d)
        Result of :func:`training_range` for the training rows.
    n : int
        Number of training rows.
    names : sequence of str, length d
        Names of the columns.

    Returns
    -------
    list of str
        Sentences; empty where nothing differs.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.linspace(0, 1, 50)[:, None]
    >>> outside(rows, training_range(rows), 50, ["adc"])
    []
    >>> len(outside(rows + 10, training_range(rows), 50, ["adc"])) > 0
    True
    >>> trained = training_range(np.linspace(600, 1900, 50)[:, None])
    >>> outside(np.array([[0.0009]]), trained, 50, ["adc"])  # mm²/s instead of 10⁻⁶ mm²/s
    ["adc: 1 of 1 rows lie far from the training's range, 600 to 1900; their median is 0.0009"]
    """
    lowest, highest, mean, deviation = trained
    # A column that was constant in the training may differ by a rounding error, so its width is not
    # 0.
    width = np.maximum(deviation, 1e-9 * np.maximum(np.abs(mean), 1e-9))
    distance = np.clip((rows - mean) / width, -3, 3)
    # Missing values count as lying at the mean.
    shift = np.abs(np.nan_to_num(distance).mean(axis=0))
    # Six rows count as one, both of the new rows and of the n training rows.
    standard_error = np.sqrt(6 / len(rows) + 6 / n)
    shifted = np.flatnonzero(shift > 4 * standard_error)
    furthest_first = shifted[np.argsort(-shift[shifted], kind="stable")]
    notes = []
    for j in furthest_first[:_NAMED]:
        notes.append(
            f"{names[j]}: the mean of {len(rows)} rows is {np.nanmean(rows[:, j]):.4g}, the "
            f"training's {mean[j]:.4g} ± {deviation[j]:.4g}"
        )
    for j in _far_columns(rows, lowest, highest)[:_NAMED]:
        values = rows[~np.isnan(rows[:, j]), j]
        notes.append(
            f"{names[j]}: {len(values)} of {len(rows)} rows lie far from the training's range, "
            f"{lowest[j]:.4g} to {highest[j]:.4g}; their median is {np.median(values):.4g}"
        )
    # Single rows: the distance of each value from the training's range, 0 for a missing value.
    distance_outside = np.nan_to_num(np.maximum(lowest - rows, rows - highest))
    range_width = highest - lowest
    is_beyond = distance_outside > range_width
    least_widths = max(_FAR_WIDTHS, _FAR_WIDTHS_OF_ONE / n)
    is_far_beyond = distance_outside > least_widths * range_width
    far = (is_beyond.mean(axis=1) > 0.2) & is_far_beyond.any(axis=1)
    if far.any():
        columns_beyond = np.flatnonzero(is_beyond[far].any(axis=0))
        columns = ", ".join(names[j] for j in columns_beyond[:_NAMED])
        notes.append(f"{columns}: {far.sum()} of {len(rows)} rows lie outside the training's range")
    return notes


def _far_columns(rows: Array, lowest: Array, highest: Array) -> NDArray[np.int_]:
    """Return the columns whose values all lie outside the training's range, and far away.

    Another unit multiplies all values of a column. So columns whose training values have one sign
    are judged by ratios: the median is far if it is more than ``_FAR_RATIO`` times the nearest
    training value, or less than one ``_FAR_RATIO``-th of it, and if this ratio is larger than the
    square root of the ratio of the training's ends. Other columns are far if the median distance
    from the range is more than ``_FAR_WIDTHS_OF_COLUMN`` times its width. A column that was
    constant in the training has no scale.

    Parameters
    ----------
    rows : ndarray, shape (m, d)
        Rows to predict; NaN is left out.
    lowest, highest : ndarray, shape (d,)
        Ends of the training's range.
    """
    in_range = (rows >= lowest) & (rows <= highest)
    has_values = ~np.isnan(rows).all(axis=0)
    all_outside = has_values & ~in_range.any(axis=0)
    has_scale = highest > lowest
    far = []
    for j in np.flatnonzero(all_outside & has_scale):
        values = rows[~np.isnan(rows[:, j]), j]
        median = np.median(values)
        # Ratios say something only if both ends of the range and the median have one sign.
        signs = np.sign([lowest[j], highest[j], median])
        if signs[0] != 0 and (signs == signs[0]).all():
            sizes_of_ends = np.sort(np.abs([lowest[j], highest[j]]))
            ratio = max(abs(median) / sizes_of_ends[1], sizes_of_ends[0] / abs(median))
            is_far = ratio > max(_FAR_RATIO, np.sqrt(sizes_of_ends[1] / sizes_of_ends[0]))
        else:
            distance = np.median(np.maximum(lowest[j] - values, values - highest[j]))
            is_far = distance > _FAR_WIDTHS_OF_COLUMN * (highest[j] - lowest[j])
        if is_far:
            far.append(j)
    return np.array(far, dtype=int)


class BinaryLearner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Provide ``predict`` and a ``score`` for soft labels to all learners of two classes.

    A subclass supplies ``fit``, which sets ``classes_``, and ``decision_function`` and
    ``predict_proba``. This class has a ``score`` of its own, because scikit-learn's classifiers
    score by accuracy, which raises an error for soft labels. scikit-learn's grid search would turn
    the error into NaN and choose the first grid point.
    """

    stored: ClassVar[Declared] = {
        "classes_": Numbers((2,), "iufbU"),
        "range_": Numbers((4, "d"), needed=False),
        "trained_": Numbers((), "iu", low=0.0, needed=False),
    }

    classes_: NDArray[Any]
    range_: Array
    trained_: int

    def _keep_range(self, rows: Array) -> None:
        """Store the statistics of the training rows that :func:`outside` needs.

        A precomputed kernel matrix has no features, so for it nothing is stored.
        """
        if getattr(self, "kernel", None) != "precomputed":
            self.range_ = training_range(rows)
            self.trained_ = len(rows)

    def _warn_outside(self, X: ArrayLike) -> None:
        """Emit a warning if rows are unlike the training rows.

        A learner from an older bundle (a stored model) has no ``range_``, and then there is no
        warning.
        """
        if not hasattr(self, "range_"):
            return
        # An array has no names of its columns, so they are numbered.
        numbered = [f"column {j}" for j in range(self.range_.shape[1])]
        names = getattr(self, "feature_names_in_", numbered)
        notes = outside(np.asarray(X, dtype=float), self.range_, self.trained_, names)
        if notes:
            warnings.warn("; ".join(notes), RangeWarning, stacklevel=3)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # Only learners with a parameter ``kernel`` can take a precomputed kernel matrix.
        tags.input_tags.pairwise = getattr(self, "kernel", None) == "precomputed"
        return tags

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of every row by the sign of its decision value, shape (n,)."""
        values = self.decision_function(X)  # raises an error if not fitted
        is_positive = (values > 0).astype(int)
        return np.asarray(self.classes_[is_positive])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the mean cross-entropy, in nats.

        Higher is better; 0 is reached if all predictions are certain and right.

        Parameters
        ----------
        X : array, shape (n, d)
            Features.
        y : array, shape (n,)
            The two classes, or probabilities in [0, 1] of the positive class. A semi-supervised
            learner's unlabelled rows (-1) are left out.
        sample_weight : array, shape (n,), optional
            Weight of every row in the mean.

        Raises
        ------
        LearnerError
            For a label that is neither a class nor a probability.
        """
        q: Array = self.predict_proba(X)[:, 1]
        target = as_probabilities(y, self.classes_)
        return soft_score(target, q, sample_weight)


def soft_score(target: Array, q: Array, sample_weight: ArrayLike | None = None) -> float:
    """Return minus the weighted mean cross-entropy of the rows whose target is known.

    Parameters
    ----------
    target, q : ndarray, shape (n,)
        Soft labels and predicted probabilities, in [0, 1]. A row whose target is NaN does not
        count.
    sample_weight : array, shape (n,), optional
        Weight of every row in the mean.

    Raises
    ------
    LearnerError
        When no row has a known target and a positive weight.

    Examples
    --------
    >>> import numpy as np
    >>> round(soft_score(np.array([0.0, 1.0, np.nan]), np.array([0.5, 0.5, 0.5])), 3)
    -0.693
    """
    labelled = ~np.isnan(target)
    weight = np.ones(len(q)) if sample_weight is None else np.asarray(sample_weight, float)
    if not (weight * labelled).any():
        raise LearnerError("no row has a label and a weight: there is nothing to score")
    losses = cross_entropies(target[labelled], q[labelled])
    return -float(np.average(losses, weights=weight[labelled]))


def as_probabilities(y: ArrayLike, classes: NDArray[Any]) -> Array:
    """Return labels as probabilities of the second class, shape (n,); NaN for unlabelled rows (-1).

    Parameters
    ----------
    y : array, shape (n,)
        Members of ``classes``, or probabilities where the classes are 0 and 1.
    classes : ndarray, shape (2,)
        Negative and positive class.

    Raises
    ------
    LearnerError
        For a label that is neither a class nor, where the classes are 0 and 1, a probability.

    Examples
    --------
    >>> import numpy as np
    >>> as_probabilities(["b", "m"], np.array(["b", "m"])).tolist()
    [0.0, 1.0]
    """
    values = np.asarray(y)
    are_numbers = values.dtype.kind in "biuf" and classes.dtype.kind in "biuf"
    # -1 means unlabelled, unless it is one of the classes. Words are never compared with -1.
    unlabelled = np.zeros(len(values), bool)
    if are_numbers:
        unlabelled = (values == -1) & (-1 not in classes)
    # Where the classes are 0 and 1, a label may be any probability.
    if are_numbers and classes.tolist() == [0, 1]:
        target = values.astype(float)
        is_valid = (target >= 0) & (target <= 1)
    else:
        target = (values == classes[1]).astype(float)
        is_valid = np.isin(values, classes)
    if not (is_valid | unlabelled).all():
        first_wrong = int(np.argmin(is_valid | unlabelled))
        wrong = values[first_wrong]
        raise LearnerError(f"the label {wrong!r} is neither of the classes {classes.tolist()}")
    return np.where(unlabelled, np.nan, target)


def cross_entropies(p: Array, q: Array) -> Array:
    """Return the cross-entropy -p ln q - (1 - p) ln(1 - q) of every row, shape (n,).

    p is the label, q the predicted probability, which is clipped to [1e-6, 1 - 1e-6].

    Examples
    --------
    >>> import numpy as np
    >>> cross_entropies(np.array([0.0, 1.0]), np.array([0.5, 0.5])).round(3).tolist()
    [0.693, 0.693]
    """
    q = np.clip(q, _CLIP, 1 - _CLIP)  # the logarithm of 0 is infinite
    return -p * np.log(q) - (1 - p) * np.log1p(-q)


class SoftLearner(BinaryLearner):
    """Share the methods of learners that learn from soft labels and have no kernel.

    A subclass supplies ``fit`` and ``_probability``, which returns the probability of the positive
    class for rows (n, d), shape (n,).
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"eta": True}

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probabilities of the negative and the positive class, shape (n, 2)."""
        validation.check_is_fitted(self)
        rows = validation.validate_data(self, X, dtype=np.float64, reset=False)
        self._warn_outside(rows)
        positive = self._probability(rows)
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likelier class of every row, shape (n,)."""
        likelier = (self.predict_proba(X)[:, 1] > 0.5).astype(int)
        return np.asarray(self.classes_[likelier])

    def _read(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        """Return features, labels and weights, shape (n, d), (n,) and (n,)."""
        if y is None:
            raise LearnerError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        rows: Array = validation.validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        classes, p = read_targets(y)
        validation.check_consistent_length(rows, p)
        self._keep_range(rows)
        if np.ptp(p) == 0:
            raise LearnerError("every label is the same, one class: there is nothing to tell apart")
        self.classes_ = classes
        return rows, p, read_weight(sample_weight, rows)

    def _read_grouped(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None
    ) -> tuple[Array, Array, Array, NDArray[Any]]:
        """Return features, labels, weights and patients of the rows whose weight is not zero."""
        rows, p, weight = self._read(X, y, sample_weight)
        # Without groups every row counts as another patient.
        owner = np.arange(len(p)) if groups is None else np.asarray(groups)
        used = weight > 0
        if np.ptp(p[used]) == 0:
            raise LearnerError(
                "every label that has a weight is the same, one class: nothing to tell apart"
            )
        return rows[used], p[used], weight[used], owner[used]

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the log-odds of the positive class, shape (n,)."""
        positive = self.predict_proba(X)[:, 1]
        # The log-odds of 0 and 1 are infinite.
        return np.asarray(logit(np.clip(positive, _CLIP, 1 - _CLIP)))

    def _probability(self, X: Array) -> Array:
        raise NotImplementedError


class KernelMachine(BinaryLearner):
    """Share the methods of estimators with a kernel. Subclasses declare the parameters and ``fit``.

    A subclass may replace ``_probability``, which computes the probability of the positive class
    from decision values. The method of this class takes decision values as log-odds.

    Every subclass has the parameter ``kernel`` and after ``fit`` the attributes ``classes_,
    support_, support_vectors_, dual_coef_, intercept_``.
    """

    # With scikit-learn's metadata routing switched on, ``eta`` is passed to ``fit`` although the
    # user did not request it.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"eta": True}

    kernel: Any

    def _read_inputs(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Array, NDArray[Any], Array, Array]:
        """Check and return features, classes, labels as probabilities, and weights.

        A row of weight 0 stays in the result, but violating its label costs nothing.
        """
        if y is None:
            raise LearnerError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        # A precomputed kernel matrix is checked when it is used, also for NaN.
        is_precomputed = self.kernel == "precomputed"
        rows: Array = validation.validate_data(
            self,
            X,
            dtype=np.float64,
            ensure_all_finite=not is_precomputed,
            ensure_min_samples=2,
            order="C",
            skip_check_array=is_precomputed and _is_plain(X),
        )
        y = np.asarray(y)
        if len(y) != len(rows):
            raise LearnerError(
                f"Found input variables with inconsistent numbers of samples: {len(rows)} in X, "
                f"{len(y)} in y"
            )
        classes, p = read_targets(y)
        self._keep_range(rows)
        return rows, classes, p, read_weight(sample_weight, rows)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probabilities of the negative and the positive class, shape (n, 2)."""
        positive = self._probability(self.decision_function(X))
        self._warn_outside(X)
        return np.column_stack([1.0 - positive, positive])

    def _probability(self, values: Array) -> Array:
        """Return P(y = 1) for decision values, which are taken as log-odds.

        A subclass may replace this method.
        """
        return np.asarray(expit(values))


@dataclass(eq=False, repr=False, kw_only=True)
class OneKernelMachine(KernelMachine):
    """Share the parameters and the decision function of estimators with one kernel and one cost."""

    stored: ClassVar[Declared] = {
        "support_": whole("n"),
        "support_vectors_": floats("n", "d"),
        "dual_coef_": floats(1, "n"),
        "intercept_": floats(1),
        "gamma_": floats(low=0.0),
        "n_iter_": whole(),
    }

    C: float = 1.0
    kernel: Any = "rbf"
    gamma: Any = "scale"
    degree: int = 3
    coef0: float = 1.0
    tol: float = 1e-6
    cache_size: float = 500.0

    def _make_gram(self, X: Array, weight: Array | None = None) -> Gram:
        """Return the kernel of the training rows, by this estimator's parameters.

        ``weight`` has the weights of the rows; only the gamma of "scale" depends on them.
        """
        kernel = settle_kernel(self.kernel, self.gamma, self.degree, self.coef0, X, weight)
        return make_gram(kernel, X, self.cache_size)

    def _keep(self, gram: Gram, solution: Solution) -> None:
        """Set the fitted attributes from a solution.

        The support rows are those whose coefficient is not 0.
        """
        # Problems of learners that rank have no intercept.
        intercept = solution.u[0] if len(solution.u) else 0.0
        self._remember(gram, solution.beta, intercept, solution.iterations)
        self.solution_ = solution

    def _remember(self, gram: Gram, beta: Array, intercept: float, iterations: int) -> None:
        """Set the attributes that predictions need, for coefficients ``beta`` of all rows."""
        beta = beta + 0.0  # turns -0.0 into 0.0
        self.support_ = beta.nonzero()[0]
        self.dual_coef_ = beta[self.support_][None, :]
        # A precomputed kernel has no features.
        is_precomputed = gram.kernel.name == "precomputed"
        self.support_vectors_ = np.zeros((0, 0)) if is_precomputed else gram.X[self.support_]
        self.intercept_ = np.array([intercept])
        self.gamma_ = gram.kernel.gamma
        self.n_iter_ = max(1, iterations)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the decision values, shape (n,): the kernel expansion f(x) plus the intercept b.

        ``predict_proba`` turns decision values into probabilities.

        Parameters
        ----------
        X : array, shape (n, d); for a precomputed kernel (n, n_training)
        """
        validation.check_is_fitted(self)
        rows: Array = validation.validate_data(self, X, dtype=np.float64, reset=False, order="C")
        kernel = settle_kernel(self.kernel, self.gamma_, self.degree, self.coef0, rows)
        # A precomputed kernel has a column for every training row; only support rows count.
        inputs = rows[:, self.support_] if self.kernel == "precomputed" else rows
        values = decision_values(kernel, inputs, self.support_vectors_, self.dual_coef_[0])
        return np.asarray(values + self.intercept_[0])

    @property
    def coef_(self) -> Array:
        """Return the weights of the features, shape (1, d); only for the kernel "linear"."""
        if self.kernel != "linear":
            raise AttributeError(f"coef_ needs kernel='linear', this is {self.kernel!r}")
        return self.dual_coef_ @ self.support_vectors_


@dataclass(eq=False, repr=False, kw_only=True)
class PointwiseMachine(OneKernelMachine):
    """Share the call of the solver among estimators whose loss is a sum of one term per row."""

    solver: str = "auto"

    def _solve(self, gram: Gram, problem: Problem, start: ArrayLike | None = None) -> Solution:
        """Solve a problem by this estimator's solver.

        ``start``, shape (n,), are coefficients of a similar fit to start from.
        """
        return solve_pointwise(
            gram,
            problem,
            solver=self.solver,
            tol=self.tol,
            cache_mb=self.cache_size,
            start=None if start is None else np.asarray(start, dtype=float),
        )


def platt_targets(positive: ArrayLike, weight: ArrayLike | None = None) -> Array:
    """Return Platt's targets for fitting a sigmoid, shape (n,).

    The targets replace the classes 1 and 0, so that the sigmoid is not fitted to certainty. They
    are (N+ + 1)/(N+ + 2) for positives and 1/(N- + 2) for negatives, with N+ and N- the numbers of
    positives and negatives.

    Parameters
    ----------
    positive : array of bool, shape (n,)
        Whether each row is positive.
    weight : array, shape (n,), optional
        How often each row counts in N+ and N-.

    Examples
    --------
    >>> platt_targets([True, True, False]).round(3).tolist()
    [0.75, 0.75, 0.333]
    """
    positive = np.asarray(positive, dtype=bool)
    weight = np.ones(len(positive)) if weight is None else np.asarray(weight, dtype=float)
    n_positive = weight[positive].sum()
    n_negative = weight[~positive].sum()
    high = (n_positive + 1) / (n_positive + 2)
    low = 1 / (n_negative + 2)
    return np.asarray(np.where(positive, high, low))


def fit_sigmoid(
    values: ArrayLike, targets: ArrayLike, weight: ArrayLike | None = None
) -> tuple[float, float]:
    """Fit slope and offset of P = 1 / (1 + exp(-(slope v + offset))) by least cross-entropy.

    v is a decision value, P the probability of the positive class.

    Parameters
    ----------
    values : array, shape (n,)
        Decision values.
    targets : array, shape (n,)
        Probabilities that P should match, in [0, 1]: :func:`platt_targets`, or the soft labels
        themselves.
    weight : array, shape (n,), optional
        How much each row counts.

    Returns
    -------
    slope, offset : float
        Slope and offset; constant values give slope 0.

    Examples
    --------
    >>> slope, offset = fit_sigmoid([-1.0, 0.0, 1.0], [0.119, 0.5, 0.881])
    >>> round(slope, 2), round(abs(offset), 2)
    (2.0, 0.0)
    """
    decisions = np.asarray(values, dtype=float)
    target = np.asarray(targets, dtype=float)
    row_weight = np.ones(len(decisions)) if weight is None else np.asarray(weight, dtype=float)
    spread = float(np.std(decisions))
    # Constant values may differ by a rounding error. P is then the mean target for all of them.
    if spread <= 1e-12 * max(1.0, float(np.max(np.abs(decisions)))):
        mean = float(np.clip(np.average(target, weights=row_weight), 1e-12, 1 - 1e-12))
        return 0.0, float(np.log(mean / (1 - mean)))
    centre = float(np.mean(decisions))
    design = np.column_stack([(decisions - centre) / spread, np.ones(len(decisions))])
    slope, offset = fit_logistic(design, target, weight=row_weight[None])[0].tolist()
    # The fit is to standardised values; slope and offset of the values themselves are returned.
    return slope / spread, offset - slope / spread * centre
