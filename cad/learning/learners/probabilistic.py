"""Provide the probabilistic SVM, which learns from certain and from soft labels in one convex
problem ([N14] III-IV).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.utils.validation import validate_data

from cad.learning.learners import base, soft_labels
from cad.learning.learners.soft_labels import KIND_NAMES, SoftLabels, half_widths, read_labels
from cad.learning.learners.solvers.problem import Array, LearnerError, Problem, Solution
from cad.learning.stored import SMALLEST, Declared, Plain, floats, words

# A learned scale below this share of the largest decision value has collapsed to 0 (docs/methods.md
# 2).
_COLLAPSED = 1e-6
# A largest decision value below this counts as this (:func:`_refuse_collapse`).
_LEAST_DECISION = 1e-3
# If the standard deviations of two features differ by more than this factor, the feature with the
# smaller deviation has hardly any effect on a kernel.
_UNLIKE = 100.0
# Factors by which kappa is multiplied, in this order, if every soft label's interval contains 1/2
# at kappa itself.
_NARROWER = (0.5, 0.25)


# If a fit raises one of these exceptions, the methods that make many fits leave this fit out.
_NO_FIT = (ValueError, ArithmeticError, np.linalg.LinAlgError)


@dataclass(eq=False, repr=False, kw_only=True)
class ProbabilisticSVC(base.PointwiseMachine):
    """Learn a probabilistic SVM (P-SVM) from certain and soft labels in one convex problem.

    This is the machine of the papers. Use it to reproduce a paper, or with a grid of C and gamma
    for features that are on one scale, for example standardised. :func:`cad.default_learner` scales
    the features itself and has no parameters that must be chosen. On the scores of real readers,
    this class with a single setting is worse than that learner.

    A certain label (0 or 1) is a constraint that the row lies beyond a margin. A soft label p is a
    constraint that the predicted probability lies within p - eta to p + eta. A violated constraint
    has a cost. The probability is P(y = 1 | x) = 1 / (1 + exp(-(f(x) + b) / s)) with the decision
    value f + b and the scale s.

    Parameters
    ----------
    C : float
        Cost of a unit of violation of a certain label's margin.
    C_soft : float, optional
        Cost of a unit of violation of a soft label's interval; None stands for C.
    eta : float
        Uncertainty of every label, used when ``fit`` gets no ``eta``.
    eta0 : float, optional
        Reading precision. It has three uses. It is the least half-width of an interval. With
        ``boundary="drop"`` a label is certain if p <= eta0 or p >= 1 - eta0. And the fixed scale is
        computed from it. None is the protocol of the papers: there is no least half-width, and the
        parameter ``eta`` takes the place of eta0 in the other two uses.
    kappa : float
        Share of the uncertainty eta that becomes the half-width of an interval. The half-width is
        clip(max(eta0, kappa eta), 0, 1/2) (docs/methods.md 8).
    boundary : "drop" or "paper"
        How an interval that reaches 0 or 1 is treated: "drop" ignores the bound that lies
        outside (0, 1), "paper" makes the label certain (docs/methods.md 1).
    scale : "learned", "fixed" or float
        The scale s. With "learned", s >= 0 is a variable of the problem ([N14] (13), where it is
        1/A); if several values are optimal, s is the smallest of them. With "fixed", s is 1 /
        ln(1/eta0 - 1), so that the probability at the margin of a malignant label is 1 - eta0
        ([N14] (14)). With a number, s is this number.
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
    scale_ : float
        The scale s. If the labels cannot determine s, it is the fixed scale even if ``scale`` is
        "learned". This is so if every label is certain, or if every interval contains 1/2 at any
        kappa that is tried.
    kappa_ : float
        The kappa that was used. It is smaller than the parameter if this was needed to learn the
        scale; a warning then says so.
    label_kinds_ : ndarray of str, shape (n,)
        Kind of every label (:data:`cad.learning.learners.soft_labels.KIND_NAMES`).
    label_counts_ : dict
        Number of samples of every kind of label.
    classes_ : ndarray, shape (2,)
        The two classes, the positive one last.
    support_ : ndarray of int
        Rows whose coefficient is not 0.
    support_vectors_ : ndarray, shape (n_support, d)
        Features of the support rows.
    dual_coef_ : ndarray, shape (1, n_support)
        Coefficients of the support rows in f.
    intercept_ : ndarray, shape (1,)
        The intercept b, which is added to f.
    solution_ : Solution
        Solution of the optimisation problem, and how exact it is.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import ProbabilisticSVC
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> p = np.array([0.0, 0.1, 0.3, 0.7, 0.9, 1.0])
    >>> model = ProbabilisticSVC(C=10.0, kernel="linear").fit(X, p, eta=0.05)
    >>> model.predict_proba([[-1.2], [0.0], [1.2]])[:, 1].round(2).tolist()
    [0.21, 0.5, 0.79]
    >>> model.label_counts_
    {'certain_negative': 2, 'certain_positive': 2, 'two_sided': 2, 'one_sided': 0, 'none': 0}
    """

    stored: ClassVar[Declared] = {
        "kappa_": floats(low=0.0),
        "scale_": floats(low=SMALLEST),
        "label_kinds_": words("rows"),
        "label_counts_": Plain(),
    }

    C_soft: float | None = None
    eta: float = 0.125
    eta0: float | None = None
    kappa: float = 1.0
    boundary: Any = "drop"
    scale: Any = "learned"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> Self:
        """Fit to hard and soft labels.

        Parameters
        ----------
        X : array, shape (n, d)
            Features; for a precomputed kernel the (n, n) kernel matrix.
        y : array, shape (n,)
            Two classes, or probabilities in [0, 1] (0 and 1 are certain).
        eta : float or array, shape (n,), optional
            Uncertainty of the labels, in place of the constructor's ``eta``; a single number is for
            all labels.
        sample_weight : array, shape (n,), optional
            Weight of every row: its costs are multiplied by it.
        start : array, shape (n,), optional
            Coefficients of an earlier, similar fit (``solution_.beta``) to start from.

        Raises
        ------
        LearnerError
            For y or eta out of range, and for labels of one class. Also if the scale cannot be
            learned, because no label is certain or because the learned scale goes to 0.
        """
        X, classes, p, weight = self._read_inputs(X, y, sample_weight)
        if self.kernel != "precomputed":
            _warn_unscaled(X, getattr(self, "feature_names_in_", None))
        gram = self._make_gram(X, weight)
        # The scale is None if it is learned.
        labels, self.kappa_, scale = self._read_labels(p, eta, weight)
        solution = self._solve(gram, self._problem(labels, weight, scale), start)
        self.scale_ = self._accept(solution, labels, weight, scale)
        self.classes_ = classes
        self.label_kinds_ = np.array(KIND_NAMES)[labels.kinds]
        self.label_counts_ = labels.counts()
        self._keep(gram, solution)
        return self

    def predict_grid(
        self,
        points: Sequence[dict[str, Any]],
        X: ArrayLike,
        y: ArrayLike,
        X_new: ArrayLike,
        eta: ArrayLike | None = None,
    ) -> Array:
        """Fit at every point of a grid and return the predictions.

        This is quicker than a call of :meth:`fit` for every point.

        Parameters
        ----------
        points : sequence of dict
            For each point the parameters that differ from this estimator's parameters.
        X : array, shape (n, d)
            Training features; for a precomputed kernel the (n, n) kernel matrix.
        y, eta : array, shape (n,)
            Labels, classes or floats in [0, 1] (0 and 1 are certain), and their uncertainty.
        X_new : array, shape (m, d)
            Rows to predict; for a precomputed kernel (m, n).

        Returns
        -------
        ndarray, shape (n_points, m)
            P(y = 1 | x) of the new rows by each point's fit; NaN where a fit fails.
        """
        rows, _, p, weight = self._read_inputs(X, y, None)
        new: Array = validate_data(self, X_new, dtype=np.float64, reset=False, order="C")
        unknown = set[str]()
        for point in points:
            unknown |= point.keys() - self.get_params(deep=False).keys()
        if unknown:
            raise LearnerError(f"{type(self).__name__} has no parameter {', '.join(unknown)}")
        # The learners are copied by copy.copy, because scikit-learn's clone takes as long as a fit.
        learners = [copy.copy(self) for _ in points]
        for changed, point in zip(learners, points, strict=True):
            changed.__dict__.update(point)
        kernels = [(each.kernel, each.gamma, each.degree, each.coef0) for each in learners]
        probability = np.full((len(points), len(new)), np.nan)
        labels_by_settings: dict[tuple[Any, ...], tuple[SoftLabels, float, float | None]] = {}
        for kernel in dict.fromkeys(kernels):
            same_kernel = []
            for k, kernel_of_point in enumerate(kernels):
                if kernel_of_point == kernel:
                    same_kernel.append(k)
            try:
                gram = learners[same_kernel[0]]._make_gram(rows, weight)
            except ValueError:
                continue  # the kernel cannot be used: the rows of its points stay NaN
            between = gram.kernel.between(new, rows)
            reusable_fit = None
            # Fits are made in the order of rising costs, because a solution in which no dual
            # variable is at its cost also holds for all higher costs.
            for k in sorted(same_kernel, key=lambda k: _cost_order(learners[k].C)):
                learner = learners[k]
                label_settings = (
                    learner.eta,
                    learner.eta0,
                    learner.kappa,
                    learner.boundary,
                    learner.scale,
                )
                same_problem = (*label_settings, learner.solver, learner.tol)
                try:
                    costs = np.array(learner._costs())
                    # The fit before serves this point, too, if it holds at higher costs, and no
                    # cost of this point is lower.
                    is_solved = (
                        reusable_fit is not None
                        and reusable_fit[0] == same_problem
                        and not (costs < reusable_fit[1]).any()
                    )
                    if not is_solved:
                        if same_problem not in labels_by_settings:
                            labels_by_settings[same_problem] = learner._read_labels(p, eta, weight)
                        labels, _, scale = labels_by_settings[same_problem]
                        problem = learner._problem(labels, weight, scale)
                        solution = learner._solve(gram, problem)
                        s = learner._accept(solution, labels, weight, scale)
                        latest = expit(_decision_values_of(between, solution) / s)
                        # If every dual variable is strictly below its cost, the optimality
                        # conditions do not depend on the costs. So the solution also holds at
                        # higher costs.
                        below_costs = (solution.gamma < problem.c).all()
                        holds_at_higher_costs = solution.solver == "hybrid" and below_costs
                        reusable_fit = (same_problem, costs) if holds_at_higher_costs else None
                    probability[k] = latest
                except _NO_FIT:
                    continue  # its row stays NaN
        return probability

    def predict_labellings(
        self,
        X: ArrayLike,
        labellings: ArrayLike,
        X_new: ArrayLike,
        etas: ArrayLike | None = None,
        starts: ArrayLike | None = None,
    ) -> tuple[Array, Array, Array]:
        """Fit to the same rows once for each of many labellings; return the predictions.

        Parameters
        ----------
        X : array, shape (n, d)
            Features; for a precomputed kernel the (n, n) kernel matrix.
        labellings : array, shape (k, n)
            For each of the k fits, labels: classes or floats in [0, 1] (0 and 1 are certain).
        X_new : array, shape (m, d)
            Rows to predict; for a precomputed kernel (m, n).
        etas, starts : array, shape (k, n), optional
            For each fit, the uncertainties of the labels, and the coefficients of a similar fit to
            start from. Starts save time. They change decision values only as far as ``tol`` allows
            (the largest observed change was 6e-5).

        Returns
        -------
        probability, decision : ndarray, shape (k, m)
            P(y = 1 | x) and f + b of the new rows; NaN where a labelling could not be fitted.
        coefficients : ndarray, shape (k, n)
            Coefficients of every fit, which may be ``starts`` of another call; zeros where a fit
            failed.
        """
        y = np.asarray(labellings, dtype=float)
        # The features are checked once, with stand-in labels of both classes.
        stand_in = np.arange(len(y[0])) % 2
        rows, _, _, weight = self._read_inputs(X, stand_in, None)
        new: Array = validate_data(self, X_new, dtype=np.float64, reset=False, order="C")
        gram = self._make_gram(rows, weight)
        between = gram.kernel.between(new, rows)
        shape = (len(y), len(new))
        probability = np.full(shape, np.nan)
        decision = np.full(shape, np.nan)
        coefficients = np.zeros(y.shape)
        # The coefficients ``starts`` are used only with solvers that end in the active-set method,
        # because the solution of this method does not depend on the start.
        ends_exact = self.solver in ("auto", "hybrid") and not gram.is_low_rank()
        uses_starts = starts is not None and ends_exact
        start_coefficients = np.asarray(starts) if uses_starts else coefficients
        for k, labelling in enumerate(y):
            spread = None if etas is None else np.asarray(etas)[k]
            # Zeros mean that no start was given, or that the fit which it comes from failed.
            start = start_coefficients[k] if start_coefficients[k].any() else None
            try:
                p = base.read_targets(labelling)[1]
                labels, _, scale = self._read_labels(p, spread, weight)
                problem = self._problem(labels, weight, scale)
                solution = self._solve(gram, problem, start)
                # A solution by another solver than the active-set method depends on the start. Then
                # the problem is solved again without a start.
                if start is not None and solution.solver != "hybrid":
                    solution = self._solve(gram, problem)
                s = self._accept(solution, labels, weight, scale)
            except _NO_FIT:
                continue  # its predictions stay NaN
            coefficients[k] = solution.beta
            decision[k] = _decision_values_of(between, solution)
            probability[k] = expit(decision[k] / s)
        return probability, decision, coefficients

    def predict_spreads(
        self,
        X: ArrayLike,
        y: ArrayLike,
        spreads: ArrayLike,
        X_new: ArrayLike,
        groups: ArrayLike | None = None,
    ) -> Array:
        """Fit to the same rows once for each of several spreads of the readers; return the
        predictions.

        Parameters
        ----------
        X : array, shape (n, d)
            Features; for a precomputed kernel the (n, n) kernel matrix.
        y : array, shape (n,)
            Labels: classes or floats in [0, 1] (0 and 1 are certain).
        spreads : array, shape (k, n)
            For each of the k fits, the readers' standard deviation in every row.
        X_new : array, shape (m, d)
            Rows to predict; for a precomputed kernel (m, n).
        groups : ignored
            The argument is there because the averaged machine's method of the same name needs it.

        Returns
        -------
        ndarray, shape (k, m)
            P(y = 1 | x) of the new rows; NaN where a spread could not be fitted.
        """
        spread_values = np.asarray(spreads, dtype=float)
        labels = np.tile(np.asarray(y, dtype=float), (len(spread_values), 1))
        probability, _, _ = self.predict_labellings(X, labels, X_new, etas=spread_values)
        return probability

    def _read_labels(
        self, p: Array, spread: ArrayLike | None, weight: Array
    ) -> tuple[SoftLabels, float, float | None]:
        """Return the labels' constraints, the kappa that was used, and the scale s.

        The scale is None if it is learned.
        """
        spread = _in_range("eta", self.eta, 0.5) if spread is None else spread
        used = weight > 0
        labels, kappa, bounded = self._labels(p, spread, used)
        return labels, kappa, self._fixed_scale(labels, used, bounded)

    def _costs(self) -> tuple[float, float]:
        """Return the checked costs of certain and of soft labels."""
        cost = base.check_cost("C", self.C)
        cost_soft = cost if self.C_soft is None else base.check_cost("C_soft", self.C_soft)
        return cost, cost_soft

    def _problem(self, labels: SoftLabels, weight: Array, scale: float | None) -> Problem:
        """Return the optimisation problem of the labels, with this estimator's costs."""
        cost, cost_soft = self._costs()
        return soft_labels.probabilistic_problem(labels, cost * weight, cost_soft * weight, scale)

    def _accept(
        self, solution: Solution, labels: SoftLabels, weight: Array, scale: float | None
    ) -> float:
        """Return the scale s of a solution.

        A warning is given if the solution missed its tolerance, and an error raised if a learned s
        went to 0.
        """
        base.warn_unless_converged(solution, type(self).__name__)
        s = float(solution.u[1]) if scale is None else float(scale)
        # Only a learned scale can go to 0, so a given scale is replaced by infinity in this check.
        _refuse_collapse(s if scale is None else np.inf, solution, labels, weight > 0)
        return s

    def _precision(self) -> float:
        """Return the reading precision: ``eta0``, or the parameter ``eta`` if ``eta0`` is None.

        The argument ``eta`` of ``fit`` does not change it.
        """
        return _in_range("eta", self.eta, 0.5) if self.eta0 is None else self._floor()

    def _floor(self) -> float:
        """Return the least half-width of an interval."""
        return 0.0 if self.eta0 is None else _in_range("eta0", self.eta0, 0.5)

    def _labels(self, p: Array, spread: ArrayLike, used: Any) -> tuple[SoftLabels, float, bool]:
        """Return the labels' constraints, the kappa that was used, and whether a learned scale is
        bounded.

        A learned scale has no upper bound if every interval contains 1/2. An interval with the ends
        l <= 0 <= h in log-odds demands s l <= f + b <= s h. If s is large enough, this holds for
        every decision value f + b. With binary scores of up to seven readers one dissenting reader
        is enough for an interval to contain 1/2, because the spread is then .38 or more. If every
        interval contains 1/2, narrower intervals are tried.
        """
        kappa = _in_range("kappa", self.kappa, np.inf)
        labels = self._labels_at(p, spread, kappa)
        if self.scale != "learned" or not _all_around_half(labels, used):
            return labels, kappa, True
        # kappa = 0 is tried only if eta0 is given, since otherwise intervals would have width 0.
        shares = _NARROWER if self.eta0 is None else (*_NARROWER, 0.0)
        for share in shares:
            narrower = kappa * share
            tried = self._labels_at(p, spread, narrower)
            if not _all_around_half(tried, used):
                warnings.warn(
                    f"every soft interval contains 1/2 at kappa = {kappa:g}: the scale is learned "
                    f"from narrower ones, kappa = {narrower:g}",
                    base.LearnerWarning,
                    stacklevel=3,
                )
                return tried, narrower, True
        return labels, kappa, False

    def _labels_at(self, p: Array, spread: ArrayLike, kappa: float) -> SoftLabels:
        """Return the labels' constraints at a value of kappa."""
        try:
            p, spread = soft_labels.check_soft(p, spread)
            if self.eta0 is None:  # the papers' protocol, without a least half-width
                half_width = kappa * spread
            else:
                half_width = half_widths(spread, self._floor(), kappa)
            # An interval of half-width 1 contains (0, 1) for any p, so larger half-widths are
            # reduced to 1.
            return read_labels(p, np.minimum(half_width, 1.0), self.boundary, self._precision())
        except ValueError as error:
            raise LearnerError(str(error)) from error

    def _fixed_scale(self, labels: SoftLabels, used: Any, bounded: bool) -> float | None:
        """Return the scale s if it is fixed, None if it is learned.

        An error is raised if s cannot be determined.
        """
        certain, informative = soft_labels.check_labels(labels, used)
        kinds = labels.kinds[certain]
        one_kind = len(kinds) > 0 and kinds.min() == kinds.max()
        if one_kind:
            warnings.warn(
                f"every certain label is {KIND_NAMES[kinds[0]].removeprefix('certain_')}: "
                "the margin is held on one side only",
                base.LearnerWarning,
                stacklevel=3,
            )
        if isinstance(self.scale, str) and self.scale == "learned":
            # If no soft label is a constraint, the problem is that of the ordinary SVM, and the
            # scale s is fixed.
            if not informative.any():
                return margin_scale(self._precision())
            if not certain.any():
                raise LearnerError(
                    "no certain label: with a learned scale f = b = s = 0 is optimal",
                    hint="use scale='fixed', or labels with p <= eta0 or p >= 1 - eta0",
                )
            if not bounded:
                scale = margin_scale(self._precision())
                warnings.warn(
                    "every soft interval contains 1/2 at any kappa: the scale cannot be learned "
                    f"and is held at the margin's, {scale:.3g}",
                    base.LearnerWarning,
                    stacklevel=3,
                )
                return scale
            return None
        if isinstance(self.scale, str):
            if self.scale != "fixed":
                raise LearnerError(f'scale = {self.scale!r}: "learned", "fixed" or a number > 0')
            return margin_scale(self._precision())
        return base.check_cost("scale", self.scale)

    def _probability(self, values: Array) -> Array:
        return np.asarray(expit(values / self.scale_))


def _warn_unscaled(rows: Array, names: Any) -> None:
    """Warn if the standard deviation of one feature is so large that kernels ignore another one."""
    spread = rows.std(axis=0)
    # The standard deviation of a constant column may be a rounding error, so constant columns are
    # not compared.
    varying = np.flatnonzero(spread > 1e-12 * np.abs(rows).max(axis=0))
    if len(varying) < 2:
        return
    narrowest = varying[spread[varying].argmin()]
    widest = varying[spread[varying].argmax()]
    if spread[widest] <= _UNLIKE * spread[narrowest]:
        return
    # An array has no names of its columns, so they are numbered.
    widest_name = f"column {widest}"
    narrowest_name = f"column {narrowest}"
    if names is not None:
        widest_name = str(names[widest])
        narrowest_name = str(names[narrowest])
    warnings.warn(
        f"features of unlike scale: {widest_name} has a standard deviation of "
        f"{spread[widest]:.3g}, {narrowest_name} of {spread[narrowest]:.3g}, "
        "which a kernel hardly sees; put StandardScaler "
        "before the learner, or take cad.default_learner(), which scales by itself",
        base.LearnerWarning,
        stacklevel=3,
    )


def _refuse_collapse(s: float, solution: Solution, labels: SoftLabels, used: Any) -> None:
    """Raise an error if the scale s is nearly 0; warn if the decision function is constant.

    ``used`` says which labels count: those whose weight is above 0.
    """
    values = solution.f + solution.u[0]
    largest = float(np.abs(values).max())
    # Margins are exact to 1e-10 only, so a scale near 1e-9 cannot be told from a rounding error.
    # Therefore decision values that are all below a thousandth count as a thousandth here.
    if s <= _COLLAPSED * max(largest, _LEAST_DECISION):
        soft = ~labels.certain & used
        # An interval with the ends l and h in log-odds demands s l <= f + b <= s h. At s = 0 both
        # limits are 0, so the sign of the decision value f + b says whether a limit is violated.
        violated = (values[soft] < 0) & np.isfinite(labels.lower[soft])
        violated |= (values[soft] > 0) & np.isfinite(labels.upper[soft])
        raise LearnerError(
            f"the learned scale collapsed to {s:.3g}: {violated.mean():.0%} of the "
            f"{soft.sum()} soft intervals are violated",
            hint="use wider eta, smaller C, or scale='fixed'",
        )
    if float(np.ptp(solution.f)) <= 1e-9 * max(1.0, largest):
        warnings.warn(
            "the decision function is constant: the features do not tell the samples apart",
            base.LearnerWarning,
            stacklevel=4,
        )


def _all_around_half(labels: SoftLabels, used: Any) -> bool:
    """Return whether there are soft intervals and each of them contains 1/2."""
    soft = labels.bounded & used
    # The bounds are log-odds, so 1/2 is 0.
    beside_half = (labels.lower > 0) | (labels.upper < 0)
    return bool(soft.any()) and not bool(beside_half[soft].any())


def _in_range(name: str, value: Any, end: float) -> float:
    """Return a number in [0, end) as a float; raise an error for any other value."""
    if not isinstance(value, (int, float, np.number)) or not 0 <= value < end:
        raise LearnerError(f"{name} = {value!r}, must lie in [0, {end:g})")
    return float(value)


def margin_scale(precision: float) -> float:
    """Return the fixed scale s = 1 / ln(1/eta_0 - 1), for a reading precision eta_0 ([N14] (14)).

    The probability of a decision value v is 1 / (1 + exp(-v / s)); for v = 1 it is 1 - eta_0.

    Parameters
    ----------
    precision : float
        Reading precision eta_0, in (0, .5).

    Raises
    ------
    LearnerError
        For a value outside (0, .5).
    """
    if not 0 < precision < 0.5:
        raise LearnerError(
            f"eta0 = {precision:g}: the fixed scale 1 / ln(1/eta0 - 1) needs 0 < eta0 < .5",
            hint="set eta0, or give scale as a number",
        )
    return float(1.0 / np.log(1.0 / precision - 1.0))


# The functions below serve the methods that make many fits to the same rows.


def _cost_order(C: Any) -> float:
    """Return the sort key of a cost: the cost itself, or infinity if it is no number.

    Such a value raises no error here; the fit that uses it does.
    """
    return float(C) if isinstance(C, (int, float, np.number)) else np.inf


def _decision_values_of(between: Array, solution: Solution) -> Array:
    """Return f + b of new rows, given their kernel values with the training rows."""
    support = np.flatnonzero(solution.beta)
    return np.asarray(between[:, support] @ solution.beta[support] + solution.u[0])
