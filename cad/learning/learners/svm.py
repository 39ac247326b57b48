"""Provide the SVM with Platt's probabilities, and the fuzzy SVM ([N14] (2) and (10))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from cad.learning.learners import base
from cad.learning.learners.solvers.problem import Array, LearnerError, Problem, pointwise_problem
from cad.learning.stored import Declared, floats


def svm_problem(p: Array, cost: Array) -> Problem:
    """Return the SVM's optimisation problem.

    The constraint of every sample is y_i (f_i + b) >= 1. y_i is the class (+1 or -1), f_i the
    decision value without the intercept b.

    Parameters
    ----------
    p : ndarray, shape (n,)
        Labels; a label above .5 is positive.
    cost : ndarray, shape (n,)
        Cost of a unit by which each sample violates its constraint. A sample of cost zero is left
        out.

    Raises
    ------
    LearnerError
        If all samples of a cost above zero are of one class.

    Examples
    --------
    >>> import numpy as np
    >>> problem = svm_problem(np.array([0.0, 1.0]), np.ones(2))
    >>> problem.n_points
    2
    """
    positive = p > 0.5
    used = np.flatnonzero(cost > 0)
    if len(np.unique(positive[used])) < 2:
        raise LearnerError(
            "the samples that count are of one class only: two are needed",
            hint="labels above .5 are positive; an SVM with fuzzy memberships ignores p = .5",
        )
    sign = np.where(positive[used], 1.0, -1.0)
    margin = np.ones(len(used))
    return pointwise_problem(len(p), point=used, sign=sign, t=margin, c=cost[used])


@dataclass(eq=False, repr=False, kw_only=True)
class _PlattMachine(base.PointwiseMachine):
    """Share the methods of SVMs whose decision values become probabilities by Platt's sigmoid."""

    stored: ClassVar[Declared] = {
        "sigmoid_": floats(2),
    }

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    calibration_folds: int | None = None

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> Self:
        """Fit the SVM, then the sigmoid that turns its decision values into probabilities.

        Parameters
        ----------
        X : array, shape (n, d)
            Features; for a precomputed kernel the (n, n) kernel matrix.
        y : array, shape (n,)
            Two classes, or probabilities in [0, 1] (positive above .5).
        eta : ignored
            This learner does not use the labels' uncertainty. The argument is there so that
            learners can be exchanged.
        sample_weight : array, shape (n,), optional
            Weight of every row: its cost is multiplied by it.
        groups : array, shape (n,), optional
            Patient of every row. If the sigmoid is fitted on out-of-fold values, all rows of a
            patient are in one fold.
        start : array, shape (n,), optional
            Coefficients of an earlier, similar fit (``solution_.beta``) to start from.

        Raises
        ------
        LearnerError
            For labels that cannot be learned from, and for invalid weights, costs or kernels.
        """
        X, classes, p, weight = self._read_inputs(X, y, sample_weight)
        cost = base.check_cost("C", self.C) * weight * self._membership(p)
        gram = self._make_gram(X, weight)
        solution = self._solve(gram, svm_problem(p, cost), start)
        base.warn_unless_converged(solution, type(self).__name__)
        self.classes_ = classes
        self._keep(gram, solution)
        values = solution.f + self.intercept_[0]
        if self.calibration_folds is not None:
            values = self._out_of_fold(X, p, weight, groups)
        self.sigmoid_ = np.array(base.fit_sigmoid(values, self._goal(p, weight), weight))
        return self

    def _out_of_fold(self, X: Array, p: Array, weight: Array, groups: ArrayLike | None) -> Array:
        """Return the decision value of every sample, by a machine that was not trained on the
        sample's fold.

        If ``groups`` are given, all samples of a group are in one fold.
        """
        classes = (p > 0.5).astype(int)
        fold_class = StratifiedKFold if groups is None else StratifiedGroupKFold
        splitter = fold_class(self.calibration_folds)
        values = np.zeros(len(p))
        # Without folds of its own, the machine's fit does not come back to this method.
        machine = clone(self).set_params(calibration_folds=None)
        is_precomputed = self.kernel == "precomputed"
        for train, test in splitter.split(X, classes, groups):
            # A precomputed kernel matrix has a column for each row, so columns are chosen, too.
            training = np.ix_(train, train) if is_precomputed else train
            tested = np.ix_(test, train) if is_precomputed else test
            machine.fit(X[training], p[train], sample_weight=weight[train])
            values[test] = machine.decision_function(X[tested])
        return values

    def _membership(self, p: Array) -> Array:
        """Return the factor of each row's cost; here every row counts fully."""
        return np.ones(len(p))

    def _goal(self, p: Array, weight: Array) -> Array:
        """Return the probabilities that the sigmoid is fitted to: here Platt's targets."""
        return base.platt_targets(p > 0.5, weight)

    def _probability(self, values: Array) -> Array:
        return np.asarray(expit(self.sigmoid_[0] * values + self.sigmoid_[1]))


class PlattSVC(_PlattMachine):
    """Separate two classes by an SVM, and convert its decision values to probabilities by Platt's
    sigmoid ([N14] (2); Platt 2000).

    Parameters
    ----------
    C : float
        Cost of a unit of violation of a margin.
    kernel : "rbf", "linear", "poly", "precomputed" or function
        A function gets rows of the shapes (n, d) and (m, d) and returns their kernel values, of
        shape (n, m).
    gamma : "scale", "auto" or float
        gamma of the kernel exp(-gamma |u - v|^2) of rows u and v; for a kernel of width sigma it is
        1 / (2 sigma^2). "scale" is 1 / (d Var X) and "auto" is 1 / d, with d features.
    degree, coef0 : int, float
        Degree and constant of the polynomial kernel (gamma u'v + coef0)^degree.
    calibration_folds : int, optional
        Number of folds for the out-of-fold decision values that the sigmoid is fitted to. If
        ``groups`` are given, all rows of a patient are in one fold. With None the sigmoid is fitted
        to the decision values of the training rows, as in [N14].
    solver : str
        "auto", or one of :data:`cad.learning.learners.solvers.choice.SOLVERS`.
    tol : float
        Largest relative duality gap of the solution. The violation of the optimality (KKT)
        conditions may be ten times as large.
    cache_size : float
        Memory for kernel values, MB.

    Attributes
    ----------
    classes_ : ndarray, shape (2,)
        The two classes, the positive one last.
    support_ : ndarray of int
        Rows whose coefficient is not 0.
    support_vectors_ : ndarray, shape (n_support, d)
        Features of these rows.
    dual_coef_ : ndarray, shape (1, n_support)
        Their coefficients in the kernel expansion.
    intercept_ : ndarray, shape (1,)
        The intercept, which is added to the kernel expansion.
    solution_ : Solution
        Solution of the optimisation problem, and how exact it is.
    sigmoid_ : ndarray, shape (2,)
        Slope and offset of the sigmoid.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import PlattSVC
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> model = PlattSVC(kernel="linear").fit(X, [0, 0, 0, 1, 1, 1])
    >>> model.predict([[-1.2], [1.2]]).tolist()
    [0, 1]
    >>> model.predict_proba([[-1.2], [0.0], [1.2]])[:, 1].round(2).tolist()
    [0.26, 0.5, 0.74]
    """


class FuzzySVC(_PlattMachine):
    """Learn a fuzzy SVM, in which an uncertain label counts less than a certain one ([N14] (10)).

    Platt's sigmoid converts its decision values to probabilities.

    The cost of a row with the label p is C abs(2p - 1). So if all labels are 0 or 1 the learner is
    an ordinary SVM.

    Parameters
    ----------
    C : float
        Cost of a unit of violation of a margin, for a certain label.
    kernel : "rbf", "linear", "poly", "precomputed" or function
        A function gets rows of the shapes (n, d) and (m, d) and returns their kernel values, of
        shape (n, m).
    gamma : "scale", "auto" or float
        gamma of the kernel exp(-gamma |u - v|^2) of rows u and v; "scale" is 1 / (d Var X) and
        "auto" is 1 / d, with d features.
    degree, coef0 : int, float
        Degree and constant of the polynomial kernel (gamma u'v + coef0)^degree.
    calibration_folds : int, optional
        Number of folds for the out-of-fold decision values that the sigmoid is fitted to. If
        ``groups`` are given, all rows of a patient are in one fold. With None the sigmoid is fitted
        to the decision values of the training rows.
    solver : str
        "auto", or one of :data:`cad.learning.learners.solvers.choice.SOLVERS`.
    tol : float
        Largest relative duality gap of the solution. The violation of the optimality (KKT)
        conditions may be ten times as large.
    cache_size : float
        Memory for kernel values, MB.

    Attributes
    ----------
    classes_ : ndarray, shape (2,)
        The two classes, the positive one last.
    support_ : ndarray of int
        Rows whose coefficient is not 0.
    support_vectors_ : ndarray, shape (n_support, d)
        Features of these rows.
    dual_coef_ : ndarray, shape (1, n_support)
        Their coefficients in the kernel expansion.
    intercept_ : ndarray, shape (1,)
        The intercept, which is added to the kernel expansion.
    solution_ : Solution
        Solution of the optimisation problem, and how exact it is.
    sigmoid_ : ndarray, shape (2,)
        Slope and offset of the sigmoid.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import FuzzySVC
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> p = [0.0, 0.1, 0.4, 0.6, 0.9, 1.0]
    >>> model = FuzzySVC(kernel="linear").fit(X, p)
    >>> model.predict_proba([[-1.2], [0.0], [1.2]])[:, 1].round(2).tolist()
    [0.26, 0.5, 0.74]
    """

    def _membership(self, p: Array) -> Array:
        """Return the factor of each row's cost: 1 for a certain label, 0 for a label of 1/2."""
        return np.abs(2 * p - 1)


class SoftPlattSVC(_PlattMachine):
    """Learn an SVM on the classes y > .5, with the sigmoid fitted to the soft labels y.

    This learner is a baseline: a simpler learner that learners from soft labels are compared with.

    Parameters
    ----------
    C : float
        Cost of a unit of violation of a margin.
    kernel : "rbf", "linear", "poly", "precomputed" or function
        A function gets rows of the shapes (n, d) and (m, d) and returns their kernel values, of
        shape (n, m).
    gamma : "scale", "auto" or float
        gamma of the kernel exp(-gamma |u - v|^2) of rows u and v; "scale" is 1 / (d Var X) and
        "auto" is 1 / d, with d features.
    degree, coef0 : int, float
        Degree and constant of the polynomial kernel (gamma u'v + coef0)^degree.
    calibration_folds : int, optional
        Number of folds for the out-of-fold decision values that the sigmoid is fitted to. If
        ``groups`` are given, all rows of a patient are in one fold. With None the sigmoid is fitted
        to the decision values of the training rows.
    solver : str
        "auto", or one of :data:`cad.learning.learners.solvers.choice.SOLVERS`.
    tol : float
        Largest relative duality gap of the solution. The violation of the optimality (KKT)
        conditions may be ten times as large.
    cache_size : float
        Memory for kernel values, MB.

    Attributes
    ----------
    classes_ : ndarray, shape (2,)
        The two classes, the positive one last.
    support_ : ndarray of int
        Rows whose coefficient is not 0.
    support_vectors_ : ndarray, shape (n_support, d)
        Features of these rows.
    dual_coef_ : ndarray, shape (1, n_support)
        Their coefficients in the kernel expansion.
    intercept_ : ndarray, shape (1,)
        The intercept, which is added to the kernel expansion.
    solution_ : Solution
        Solution of the optimisation problem, and how exact it is.
    sigmoid_ : ndarray, shape (2,)
        Slope and offset of the sigmoid.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SoftPlattSVC
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> p = [0.0, 0.1, 0.4, 0.6, 0.9, 1.0]
    >>> model = SoftPlattSVC(kernel="linear").fit(X, p)
    >>> model.predict_proba([[-1.2], [0.0], [1.2]])[:, 1].round(2).tolist()
    [0.18, 0.5, 0.82]
    """

    def _goal(self, p: Array, weight: Array) -> Array:
        """Return the probabilities that the sigmoid is fitted to: the soft labels."""
        return p
