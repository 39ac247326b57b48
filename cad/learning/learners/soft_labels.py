"""Turn probabilities and their uncertainty into constraints for a learner (docs/methods.md 1).

A soft label is a probability p with an interval p - eta to p + eta. There are two rules for
intervals that reach 0 or 1. "drop" ignores the bound that lies outside (0, 1). "paper" makes the
label certain, as [N14] III does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cad.learning.learners.solvers.problem import Array, LearnerError, Problem, pointwise_problem

Rule = Literal["drop", "paper"]

KIND_NAMES = ("certain_negative", "certain_positive", "two_sided", "one_sided", "none")
CERTAIN_NEGATIVE, CERTAIN_POSITIVE, TWO_SIDED, ONE_SIDED, NONE = range(5)

# Largest half-width. With a half-width of 1/2 or more, the interval of p = 1/2 would have no bound
# within (0, 1).
WIDEST = 0.5 - 1e-6
# Tolerance for comparing the ends of intervals with 0 and 1. If the spread is a standard deviation
# with the divisor n (ddof 0), the intervals of eleven patterns of four readers' scores end exactly
# at 0 or 1 (docs/methods.md 1).
_TIE = 1e-9


@dataclass(frozen=True)
class SoftLabels:
    """Hold the constraints that labels become: the kind of each sample's label, and its interval of
    log-odds.

    Parameters
    ----------
    kinds : ndarray of int, shape (n,)
        Index into :data:`KIND_NAMES`: certain (negative or positive), bounded on two sides or on
        one, or none (no bound).
    lower, upper : ndarray, shape (n,)
        Ends of a soft label's interval: the logit of p minus and plus the half-width, infinite
        where there is no bound. For certain labels both ends are 0 and not used.
    """

    kinds: NDArray[np.int64]
    lower: Array
    upper: Array

    @cached_property
    def certain(self) -> NDArray[np.bool_]:
        """Return whether each sample has a certain label, shape (n,)."""
        return self.kinds <= CERTAIN_POSITIVE

    @cached_property
    def bounded(self) -> NDArray[np.bool_]:
        """Return whether each sample is uncertain and its tube has a finite end, shape (n,)."""
        return ~self.certain & (self.kinds < NONE)

    def counts(self) -> dict[str, int]:
        """Return the number of samples by kind of label."""
        counts = np.bincount(self.kinds, minlength=len(KIND_NAMES)).tolist()
        return dict(zip(KIND_NAMES, counts, strict=True))


def half_widths(spread: ArrayLike, precision: float, kappa: float) -> Array:
    """Return the half-widths of soft labels' intervals, in the shape of ``spread``.

    The half-width of sample i is clip(max(eta_0, kappa spread_i), 0, 1/2 - 1e-6) (docs/methods.md
    8).

    Parameters
    ----------
    spread : float or array, shape (n,)
        Standard deviation of the readers' probabilities, >= 0.
    precision : float
        eta_0, the least half-width.
    kappa : float
        Share of the spread that becomes half-width; 0 gives every sample eta_0.

    Examples
    --------
    >>> half_widths([0.0, 0.3, 0.9], precision=0.125, kappa=1.0).round(3).tolist()
    [0.125, 0.3, 0.5]
    """
    by_spread = kappa * np.asarray(spread, dtype=float)
    return np.clip(np.maximum(precision, by_spread), 0.0, WIDEST)


def _kinds_of_labels(
    p: Array,
    reaches_0: NDArray[np.bool_],
    reaches_1: NDArray[np.bool_],
    rule: Rule,
    precision: float,
) -> NDArray[np.int64]:
    """Return the kind of every label, shape (n,), by its p and by which ends its interval reaches.

    Parameters are those of :func:`read_labels`; the kinds are numbers such as :data:`TWO_SIDED`.
    """
    if rule == "paper":
        # A label whose interval reaches both 0 and 1 is not certain (docs/methods.md 1). The scores
        # (0, 0, 1, 1) have such an interval.
        negative = (reaches_0 & ~reaches_1) | (p <= _TIE)
        positive = (reaches_1 & ~reaches_0) | (p >= 1 - _TIE)
    elif rule == "drop":
        certain_within = max(precision, 0.0) + _TIE  # distance of p from 0 or 1
        negative = p <= certain_within
        # With a precision of 1/2 or more, p could be near to both.
        positive = (p >= 1 - certain_within) & ~negative
    else:
        raise ValueError(f'boundary rule {rule!r} is unknown: "drop" or "paper"')
    kinds = np.full(p.shape, TWO_SIDED, dtype=np.int64)
    kinds[reaches_0 | reaches_1] = ONE_SIDED
    kinds[reaches_0 & reaches_1] = NONE
    # A certain label is certain whatever its interval reaches, so these kinds are set last.
    kinds[negative] = CERTAIN_NEGATIVE
    kinds[positive] = CERTAIN_POSITIVE
    return kinds


def soft_labels(
    p: ArrayLike, half_width: ArrayLike, rule: Rule = "drop", precision: float = 0.125
) -> SoftLabels:
    """Check labels and half-widths, and return them as the constraints of a learner.

    Parameters
    ----------
    p : array, shape (n,)
        Probabilities in [0, 1]; 0 and 1 are certain by either rule.
    half_width : float or array, shape (n,)
        Half-width of each label's interval, >= 0.
    rule : "drop" or "paper"
        How an interval that reaches 0 or 1 is treated: "drop" ignores the bound that lies outside
        (0, 1), "paper" makes the label certain.
    precision : float
        Reading precision eta_0; under "drop" only p <= eta_0 or p >= 1 - eta_0 is certain.

    Returns
    -------
    SoftLabels
        Kind of every label, and lower and upper bound of its log-odds, each of shape (n,). A bound
        that is ignored is infinite. The bounds of certain labels are 0 and not used.

    Raises
    ------
    ValueError
        For p or half-widths out of range or of different lengths, and for an unknown rule.

    Examples
    --------
    >>> labels = soft_labels([0.0, 0.4, 1.0], [0.0, 0.2, 0.0])
    >>> type(labels).__name__
    'SoftLabels'
    """
    return read_labels(*check_soft(p, half_width), rule, precision)


def read_labels(p: Array, half_width: Array, rule: Rule, precision: float) -> SoftLabels:
    """Return labels and half-widths as the constraints of a probabilistic SVM (docs/methods.md 1).

    Parameters
    ----------
    p, half_width : ndarray, shape (n,)
        Probability and half-width of its interval, checked by :func:`check_soft`.
    rule : {"paper", "drop"}
        How an interval that reaches 0 or 1 is treated: "drop" ignores the bound that lies outside
        (0, 1), "paper" makes the label certain.
    precision : float
        Reading precision eta_0; under "drop" only p <= eta_0 or p >= 1 - eta_0 is certain.

    Returns
    -------
    SoftLabels
        Kind and bounds of every sample.

    Examples
    --------
    >>> import numpy as np
    >>> labels = read_labels(np.array([1.0, 0.6]), np.array([0.0, 0.1]), "drop", precision=0.01)
    >>> labels.kinds.tolist()
    [1, 2]
    >>> labels.lower.round(3).tolist(), labels.upper.round(3).tolist()
    ([0.0, 0.0], [0.0, 0.847])
    """
    lower_end = p - half_width
    upper_end = p + half_width
    reaches_0 = lower_end <= _TIE
    reaches_1 = upper_end >= 1 - _TIE
    kinds = _kinds_of_labels(p, reaches_0, reaches_1, rule, precision)

    certain = kinds <= CERTAIN_POSITIVE
    # An end of a soft label's interval at or beyond 0 or 1 is no bound.
    has_lower = ~certain & ~reaches_0
    has_upper = ~certain & ~reaches_1
    lower = np.where(certain, 0.0, -np.inf)
    upper = np.where(certain, 0.0, np.inf)
    lower[has_lower] = _logit(lower_end[has_lower])
    upper[has_upper] = _logit(upper_end[has_upper])
    return SoftLabels(kinds, lower, upper)


def check_soft(p: ArrayLike, eta: ArrayLike) -> tuple[Array, Array]:
    """Check labels and their spreads or half-widths, and return both as arrays of the same length.

    Parameters
    ----------
    p : array, shape (n,)
        Probabilities.
    eta : array, shape (n,), or float
        Spreads or half-widths.

    Returns
    -------
    p : ndarray, shape (n,)
        The probabilities as floats.
    eta : ndarray, shape (n,)
        The spreads or half-widths as floats; a single number is repeated. The array is read-only.

    Raises
    ------
    ValueError
        For values outside [0, 1], for NaN, and for arrays of different lengths.

    Examples
    --------
    >>> import numpy as np
    >>> p, eta = check_soft([0.0, 0.5, 1.0], 0.1)
    >>> p.tolist(), eta.tolist()
    ([0.0, 0.5, 1.0], [0.1, 0.1, 0.1])
    """
    p = np.asarray(p, dtype=float)
    if p.ndim != 1:
        raise ValueError(f"probabilities have shape {p.shape}, must be one per sample")
    eta = np.asarray(eta, dtype=float)
    if eta.ndim and eta.shape != p.shape:
        raise ValueError(f"eta has shape {eta.shape}, must be one number or {p.shape}")
    for name, value in (("y", p), ("eta", eta)):
        # For NaN both comparisons are false, so NaN is found, too.
        if value.size and not (value.min() >= 0 and value.max() <= 1):
            # A single number is one for all samples.
            values = np.broadcast_to(value, p.shape)
            in_range = (values >= 0) & (values <= 1)
            first = int(np.argmax(~in_range))
            raise ValueError(f"{name}[{first}] = {values[first]!r}, must lie in [0, 1]")
    eta = np.broadcast_to(eta, p.shape)
    return p, eta


def check_labels(labels: SoftLabels, used: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which samples have a certain label, and which have a soft label with a bound.

    An error is raised if no P-SVM can be learned from the labels.

    Parameters
    ----------
    labels : SoftLabels
        The constraints of all samples, from :func:`read_labels`.
    used : ndarray of bool, shape (n,)
        Samples that count, because their weight is above 0.

    Raises
    ------
    LearnerError
        If no sample has a certain label or a bound, and if there are only certain labels of one
        class.

    Returns
    -------
    certain, informative : ndarray of bool, shape (n,)
        Whether each sample has a certain label, and whether it has a soft label with a bound; False
        for samples that do not count.
    """
    certain = labels.certain & used
    informative = labels.bounded & used
    if not (certain | informative).any():
        raise LearnerError(
            "no sample says anything: every interval p +- eta covers (0, 1)",
            hint="give smaller eta, or certain labels",
        )
    kinds = labels.kinds[certain]
    one_class = len(kinds) > 0 and kinds.min() == kinds.max()
    if one_class and not informative.any():
        raise LearnerError("one class only among the labels: two are needed")
    return certain, informative


def probabilistic_problem(
    labels: SoftLabels, cost_certain: Array, cost_soft: Array, scale: float | None
) -> Problem:
    """Return the optimisation problem of the probabilistic SVM (docs/methods.md 2).

    Parameters
    ----------
    labels : SoftLabels
        Kind of each sample's label, and the bounds of its interval.
    cost_certain, cost_soft : ndarray, shape (n,)
        Cost of each sample, if its label is certain and if it is soft; sample weights are included.
        A sample with a cost of zero is left out.
    scale : float or None
        The scale s that divides decision values before they become probabilities; None to learn
        s >= 0.

    Examples
    --------
    In the problem a certain label has one row, and a soft label has one row for each bound:

    >>> import numpy as np
    >>> labels = read_labels(np.array([1.0, 0.0, 0.6]), np.array([0.0, 0.0, 0.1]), "drop", 0.01)
    >>> problem = probabilistic_problem(labels, np.ones(3), np.ones(3), scale=None)
    >>> problem.A.shape
    (4, 3)
    """
    soft = labels.bounded & (cost_soft > 0)
    certain = labels.certain & (cost_certain > 0)
    # There is one row (constraint) for each certain label and each finite bound. The rows of one
    # sample are neighbours, because the solvers need this order.
    has_lower_row = certain | (soft & np.isfinite(labels.lower))
    has_upper_row = soft & np.isfinite(labels.upper)
    point, is_upper = np.nonzero(np.column_stack([has_lower_row, has_upper_row]))
    hard = labels.certain[point]
    # A row of sign 1 keeps the decision value up: a positive label, or the lower bound of an
    # interval.
    keeps_up = np.where(hard, labels.kinds[point] == CERTAIN_POSITIVE, is_upper == 0)
    sign = np.where(keeps_up, 1.0, -1.0)
    # For certain labels both bounds are 0.
    bound = sign * np.where(is_upper, labels.upper[point], labels.lower[point])
    # The margin of a certain label is 1. A soft label's margin is its bound times a fixed scale; a
    # learned scale is multiplied by the bound in the row itself.
    fixed_scale = 0.0 if scale is None else scale
    return pointwise_problem(
        len(labels.kinds),
        point=point,
        sign=sign,
        t=hard + fixed_scale * bound,
        c=np.where(hard, cost_certain[point], cost_soft[point]),
        scale=-bound if scale is None else None,
    )


def _logit(p: Array) -> Array:
    """Return the log-odds of probabilities in (0, 1)."""
    return np.log(p) - np.log1p(-p)
