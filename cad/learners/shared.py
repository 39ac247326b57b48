"""Many fits of one P-SVM to the same rows: a grid of settings, or many labellings.

What the fits have in common is made once: inputs, kernel, what the labels say. What one fit found
serves the next where that changes no answer: a solution without a dual at its cost stays the
solution at any higher cost, and the active set is exact wherever it starts.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.utils.validation import validate_data

from cad.learners.base import LearnerError, read_targets
from cad.learners.kernels import Gram
from cad.learners.problem import Array, Problem, Solution
from cad.learners.soft_labels import SoftLabels

if TYPE_CHECKING:
    from cad.learners.probabilistic import ProbabilisticSVC

# What says that one of the fits cannot be made.
NO_FIT = (ValueError, ArithmeticError, np.linalg.LinAlgError)
# Solvers that end in the active set, whose answer does not depend on the start.
_EXACT = ("auto", "hybrid")


@dataclass(frozen=True)
class Labellings:
    """Hold what one set of rows predicts under several labellings.

    Parameters
    ----------
    probability, decision : ndarray, shape (k, m)
        P(y = 1 | x) and f + b of the new rows; NaN where a labelling could not be fitted.
    coefficients : ndarray, shape (k, n)
        beta of every fit, to start others from; zeros where there is none.
    """

    probability: Array
    decision: Array
    coefficients: Array


def predict_grid(
    learner: ProbabilisticSVC,
    points: Sequence[dict[str, Any]],
    X: ArrayLike,
    y: ArrayLike,
    X_new: ArrayLike,
    eta: ArrayLike | None,
) -> Array:
    """Return P(y = 1 | x) of new rows at every point, shape (n_points, m); NaN where none fits."""
    rows, targets, weight = learner._read_inputs(X, y, None)
    new: Array = validate_data(learner, X_new, dtype=np.float64, reset=False, order="C")
    found = np.full((len(points), len(new)), np.nan)
    unknown = {name for point in points for name in point} - set(learner.get_params(deep=False))
    if unknown:
        raise LearnerError(f"{type(learner).__name__} has no parameter {', '.join(unknown)}")
    learners = [_with_settings(learner, point) for point in points]
    said = _Said(targets.p, weight, eta)
    kernels = [(each.kernel, each.gamma, each.degree, each.coef0) for each in learners]
    for kernel in dict.fromkeys(kernels):
        here = [k for k, other in enumerate(kernels) if other == kernel]
        try:
            gram = learners[here[0]]._make_gram(rows, weight)
        except ValueError:
            continue
        between, last = gram.kernel.between(new, rows), None
        # Costs that rise: what no cost holds back any more is solved for all that follow.
        for k in sorted(here, key=lambda k: _rank(learners[k].C)):
            try:
                if last is None or not last.holds_at(learners[k]):
                    last = _Point(learners[k], *said.fitted(learners[k], gram), between)
                found[k] = last.probability
            except NO_FIT:
                continue
    return found


def predict_labellings(
    learner: ProbabilisticSVC,
    X: ArrayLike,
    labellings: ArrayLike,
    X_new: ArrayLike,
    etas: ArrayLike | None,
    starts: ArrayLike | None,
) -> Labellings:
    """Return what every labelling of the same rows predicts for new ones."""
    y = np.asarray(labellings, dtype=float)
    rows, _, weight = learner._read_inputs(X, np.arange(len(y[0])) % 2, None)
    new: Array = validate_data(learner, X_new, dtype=np.float64, reset=False, order="C")
    gram = learner._make_gram(rows, weight)
    between = gram.kernel.between(new, rows)
    shape = (len(y), len(new))
    made = Labellings(np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(y.shape))
    use = starts is not None and learner.solver in _EXACT and not gram.is_low_rank()
    for k, labelling in enumerate(y):
        eta = None if etas is None else np.asarray(etas)[k]
        start = np.asarray(starts)[k] if use else None
        try:
            said = _Said(read_targets(labelling).p, weight, eta)
            _, solution, s = said.fitted(learner, gram, start)
        except NO_FIT:
            continue
        made.coefficients[k] = solution.beta
        made.decision[k] = _values(between, solution)
        made.probability[k] = expit(made.decision[k] / s)
    return made


def _with_settings(learner: ProbabilisticSVC, point: dict[str, Any]) -> ProbabilisticSVC:
    """Return a copy with some settings; scikit-learn's clone costs as much as a fit."""
    made = copy.copy(learner)
    for name, value in point.items():
        setattr(made, name, value)
    return made


def _rank(C: Any) -> float:
    """Return where a cost stands in line; what is no number is refused by its fit."""
    return float(C) if isinstance(C, (int, float, np.number)) else np.inf


def _values(between: Array, solution: Solution) -> Array:
    """Return f + b of new rows from their kernel values."""
    support = np.flatnonzero(solution.beta)
    values: Array = between[:, support] @ solution.beta[support] + solution.u[0]
    return values


def _solved_from(
    learner: ProbabilisticSVC, gram: Gram, problem: Problem, start: Array | None
) -> Solution:
    """Return the exact solution from a start; where the active set fails, the one without."""
    if start is not None and start.any():
        solution = learner._solve(gram, problem, start)
        if solution.solver == "hybrid":
            return solution
    return learner._solve(gram, problem)


def _reading(learner: ProbabilisticSVC) -> tuple[Any, ...]:
    """Return the settings that decide what labels say."""
    return learner.eta, learner.eta0, learner.kappa, learner.boundary, learner.scale


class _Said:
    """Read labels once for all settings that read them alike.

    Parameters
    ----------
    p, weight : ndarray, shape (n,)
    eta : float or ndarray, shape (n,), or None
    """

    def __init__(self, p: Array, weight: Array, eta: ArrayLike | None) -> None:
        self._p, self._weight, self._eta = p, weight, eta
        self._read: dict[tuple[Any, ...], tuple[SoftLabels, float | None, Problem]] = {}

    def fitted(
        self, learner: ProbabilisticSVC, gram: Gram, start: Array | None = None
    ) -> tuple[Problem, Solution, float]:
        """Return the rows at a learner's costs, their solution, and s."""
        key = _reading(learner)
        if key not in self._read:
            labels, _, scale = learner._read_labels(self._p, self._eta, self._weight)
            unit = learner._problem(labels, self._weight, scale, unit=True)
            self._read[key] = labels, scale, unit
        labels, scale, unit = self._read[key]
        cost, soft = learner._costs()
        if cost == soft:
            problem = replace(unit, c=cost * unit.c)
        else:
            problem = learner._problem(labels, self._weight, scale)
        solution = _solved_from(learner, gram, problem, start)
        return problem, solution, learner._accept(solution, labels, self._weight, scale)


class _Point:
    """Hold what a grid point predicts, and where else it is the solution.

    Parameters
    ----------
    learner : ProbabilisticSVC
    problem, solution, s
        As :meth:`_Said.fitted` returns them.
    between : ndarray, shape (m, n)
        Kernel of new rows with training rows.
    """

    def __init__(
        self,
        learner: ProbabilisticSVC,
        problem: Problem,
        solution: Solution,
        s: float,
        between: Array,
    ) -> None:
        self._settings = (*_reading(learner), learner.solver, learner.tol)
        self._costs = learner._costs()
        self._open = solution.solver == "hybrid" and bool((solution.gamma < problem.c).all())
        self.probability: Array = expit(_values(between, solution) / s)

    def holds_at(self, learner: ProbabilisticSVC) -> bool:
        """Return whether this is the solution at a learner's costs too.

        With every dual strictly below its cost the conditions of optimality name no cost: they
        hold at any that is higher.
        """
        if not self._open or self._settings != (*_reading(learner), learner.solver, learner.tol):
            return False
        return all(new >= old for new, old in zip(learner._costs(), self._costs, strict=True))
