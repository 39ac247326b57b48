"""Provide an SVM with reject option: it refers rows of which neither class is sure ([A14]).

Its loss is a double hinge, either with different costs for both classes or symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from cad.learning.learners.base import PointwiseMachine, check_cost, warn_unless_converged
from cad.learning.learners.solvers.problem import Array, LearnerError, Problem, pointwise_problem
from cad.learning.stored import Declared, floats


class RejectRule(NamedTuple):
    """Hold the loss of an SVM with reject option, a double hinge, and its decision thresholds.

    The double hinge of a row is the sum of two hinge losses with different margins.

    Parameters
    ----------
    margins : tuple
        The two margins of positives, then those of negatives. A margin is a value of y f at which
        the slope of the loss changes (docs/methods.md 3). y is the class (+1 or -1) and f the
        decision value.
    costs : tuple
        The costs of the two margins of positives, then those of negatives, for C = 1.
    lower, upper : float
        Thresholds of the decision value. A row is negative below ``lower``, positive above
        ``upper``, and referred between them.
    slope : float
        Slope of the probability 1 / (1 + exp(-slope f)), where f is the decision value.
    """

    margins: tuple[tuple[float, float], tuple[float, float]]
    costs: tuple[tuple[float, float], tuple[float, float]]
    lower: float
    upper: float
    slope: float


def asymmetric_rule(costs: tuple[float, float, float, float]) -> RejectRule:
    """Return the loss of the SVM that may refer, for four different costs, and its thresholds.

    The loss is called the double hinge. The two thresholds of the decision follow from the costs.
    At both thresholds the double hinge touches the log-loss ([A14] (7), docs/methods.md 3).

    Parameters
    ----------
    costs : (C_n, C_p, R_n, R_p)
        Costs of a false positive and a false negative, and of referring a negative and a positive.

    Raises
    ------
    LearnerError
        For costs that are not above 0, and for costs with which it never pays to refer a row.
    """
    if len(costs) != 4:
        raise LearnerError(f"costs = {costs!r}, must be (C_n, C_p, R_n, R_p)")
    names = ("C_n", "C_p", "R_n", "R_p")
    checked = [check_cost(name, cost) for name, cost in zip(names, costs, strict=True)]
    c_n, c_p, r_n, r_p = checked
    relative_cost = r_p / c_p + r_n / c_n
    if relative_cost >= 1:
        raise LearnerError(
            f"these costs make rejecting useless: R_p/C_p + R_n/C_n = {relative_cost:.3g}, "
            "must be < 1",
            hint="lower R_p or R_n, or use a learner without reject option",
        )
    # The two limits of the probability, between which it pays to refer, and the margins of the
    # double hinge (docs/methods.md 3).
    p_high = (c_n - r_n) / (c_n - r_n + r_p)
    p_low = r_n / (c_p - r_p + r_n)
    rho = (_entropy(p_low) - _entropy(p_high)) / (p_high - p_low)
    tau_high = _entropy(p_high) / (1 - p_high)
    tau_low = -_entropy(p_low) / p_low
    # The decision values of this loss are log-odds, so the slope is 1.
    return RejectRule(
        margins=((tau_high, rho), (-tau_low, -rho)),
        costs=((1 - p_high, p_high - p_low), (p_low, p_high - p_low)),
        lower=_logit_of_number(p_low),
        upper=_logit_of_number(p_high),
        slope=1.0,
    )


def symmetric_rule(r: float, delta0: float = 0.5) -> RejectRule:
    """Return the double hinge for one cost of referring, the same for both classes.

    docs/methods.md 3 has the formula.

    Parameters
    ----------
    r : float
        Cost of referring, relative to the cost of an error.
    delta0 : float
        Rows with a decision value between -delta0 and delta0 are referred.

    Raises
    ------
    LearnerError
        Unless 0 < r < 1/2 and r <= delta0 <= 1 - r.
    """
    if not 0 < r < 0.5:
        raise LearnerError(
            f"symmetric = {r!r}, the cost of rejecting relative to an error must lie in (0, .5)"
        )
    if not r <= delta0 <= 1 - r:
        raise LearnerError(f"delta0 = {delta0!r}, must lie in [r, 1 - r] = [{r:g}, {1 - r:g}]")
    margins = (1.0, 0.0)
    costs = (1.0, (1 - 2 * r) / r)
    # The symmetric loss is W(y, H(r) f / r) / H(r) (docs/methods.md 3). y is the class, f the
    # decision value, H the entropy, and W the loss of :func:`asymmetric_rule` for the costs
    # (1, 1, r, r), whose decision values are log-odds. So H(r) / r times f are log-odds.
    return RejectRule(
        margins=(margins, margins),
        costs=(costs, costs),
        lower=-delta0,
        upper=delta0,
        slope=_entropy(r) / r,
    )


def reject_problem(positive: NDArray[np.bool_], cost: Array, rule: RejectRule) -> Problem:
    """Return the optimisation problem of the double hinge, with two margins for every sample.

    Parameters
    ----------
    positive : ndarray of bool, shape (n,)
        Whether each sample is positive.
    cost : ndarray, shape (n,)
        Cost of each sample; a sample of cost zero is left out of the problem.
    rule : RejectRule
        Margins of both classes, and the factors by which a sample's cost is multiplied.

    Returns
    -------
    Problem
        The problem, for :mod:`cad.learning.learners.solvers`.

    Raises
    ------
    LearnerError
        When the samples that cost something are of one class only.

    Examples
    --------
    Each of two samples has two rows in the problem:

    >>> import numpy as np
    >>> positive = np.array([True, False])
    >>> problem = reject_problem(positive, np.ones(2), symmetric_rule(0.3))
    >>> problem.A.shape, problem.A.toarray()[:, 0].tolist()
    ((4, 2), [1.0, 1.0, 0.0, 0.0])
    """
    used = np.flatnonzero(cost > 0)
    if len(np.unique(positive[used])) < 2:
        raise LearnerError("the samples that count are of one class only: two are needed")
    # The rule has the positives' numbers first, then the negatives'.
    class_in_rule = np.where(positive[used], 0, 1)
    margins = np.array(rule.margins)[class_in_rule]
    cost_factors = np.array(rule.costs)[class_in_rule]
    sign = np.where(positive[used], 1.0, -1.0)
    # The two rows of a sample follow one another.
    return pointwise_problem(
        len(positive),
        point=np.repeat(used, 2),
        sign=np.repeat(sign, 2),
        t=margins.ravel(),
        c=(cost_factors * cost[used, None]).ravel(),
    )


@dataclass(eq=False, repr=False, kw_only=True)
class RejectSVC(PointwiseMachine):
    """Separate two classes, and refer rows that lie too close to the boundary between them ([A14]).

    Parameters
    ----------
    C : float
        Factor of the loss, beside the penalty 1/2 |f|^2 (C_0 in [A14]).
    costs : (C_n, C_p, R_n, R_p)
        Costs of a false positive and a false negative, and of referring a negative and a positive.
        The default is an example; a site sets its own costs.
    symmetric : float, optional
        Cost of referring relative to the cost of an error. When given, the symmetric rule replaces
        ``costs``.
    delta0 : float
        Threshold of the symmetric rule, in [symmetric, 1 - symmetric]: rows with a decision value
        between -delta0 and delta0 are referred.
    reject_label : int or str
        Value that ``predict`` gives to referred rows; must not be a class.
    kernel : "rbf", "linear", "poly", "precomputed" or function
        A function gets rows of the shapes (n, d) and (m, d) and returns their kernel values, of
        shape (n, m).
    gamma : "scale", "auto" or float
        gamma of the kernel exp(-gamma |u - v|^2) of rows u and v; "scale" is 1 / (d Var X) and
        "auto" is 1 / d, with d features.
    degree, coef0 : int, float
        Degree and constant of the polynomial kernel (gamma u'v + coef0)^degree.
    solver : str
        "auto", or one of :data:`cad.learning.learners.solvers.choice.SOLVERS`.
    tol : float
        Largest relative duality gap of the solution. The violation of the optimality (KKT)
        conditions may be ten times as large.
    cache_size : float
        Memory for kernel values, MB.

    Attributes
    ----------
    thresholds_ : ndarray, shape (2,)
        Thresholds of the decision value. A row is negative below the first, positive above the
        second.
    slope_ : float
        Slope of the sigmoid in ``predict_proba``: the log-odds are slope times the decision value.
    classes_ : ndarray, shape (2,)
        The two classes, the positive one last.
    support_ : ndarray of int
        Rows whose coefficient is not 0.
    support_vectors_ : ndarray, shape (n_support, d)
        Features of the support rows.
    dual_coef_ : ndarray, shape (1, n_support)
        Coefficients of the support rows in the kernel expansion.
    intercept_ : ndarray, shape (1,)
        The intercept, which is added to the kernel expansion.
    solution_ : Solution
        Solution of the optimisation problem, and how exact it is.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import RejectSVC
    >>> X = np.array([[-2.0], [-1.5], [-0.2], [0.2], [1.5], [2.0]])
    >>> model = RejectSVC(kernel="linear", symmetric=0.3).fit(X, [0, 0, 1, 0, 1, 1])
    >>> model.predict([[-2.0], [0.0], [2.0]]).tolist()
    [0, -1, 1]
    """

    stored: ClassVar[Declared] = {
        "thresholds_": floats(2),
        "slope_": floats(),
    }

    costs: tuple[float, float, float, float] = (1.0, 4.0, 0.4, 0.4)
    symmetric: float | None = None
    delta0: float = 0.5
    reject_label: Any = -1

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> Self:
        """Fit to two classes; a soft label is positive above .5.

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
            Weight of every row: C is multiplied by it.
        start : array, shape (n,), optional
            Coefficients of an earlier, similar fit (``solution_.beta``) to start from.

        Raises
        ------
        LearnerError
            For labels that cannot be learned from, for invalid costs, and for a reject label that
            is a class.
        """
        X, classes, p, weight = self._read_inputs(X, y, sample_weight)
        if self.reject_label in list(classes):
            raise LearnerError(
                f"reject_label {self.reject_label!r} is one of the classes",
                hint="choose another reject_label",
            )
        if self.symmetric is None:
            rule = asymmetric_rule(self.costs)
        else:
            rule = symmetric_rule(self.symmetric, self.delta0)
        problem = reject_problem(p > 0.5, check_cost("C", self.C) * weight, rule)
        gram = self._make_gram(X, weight)
        solution = self._solve(gram, problem, start)
        warn_unless_converged(solution, type(self).__name__)
        self.classes_ = classes
        self.thresholds_ = np.array([rule.lower, rule.upper])
        self.slope_ = rule.slope
        self._keep(gram, solution)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of every row, or ``reject_label`` where it is referred, shape (n,)."""
        values = self.decision_function(X)
        # The result's type must hold the classes and the label of referred rows.
        dtype = np.result_type(self.classes_, np.asarray(self.reject_label))
        predicted = np.full(len(values), self.reject_label, dtype=dtype)
        predicted[values < self.thresholds_[0]] = self.classes_[0]
        predicted[values > self.thresholds_[1]] = self.classes_[1]
        return predicted

    def _probability(self, values: Array) -> Array:
        return np.asarray(expit(self.slope_ * values))


def _entropy(p: float) -> float:
    """Return the entropy -p ln p - (1 - p) ln(1 - p)."""
    return float(-p * np.log(p) - (1 - p) * np.log1p(-p))


def _logit_of_number(p: float) -> float:
    return float(np.log(p) - np.log1p(-p))
