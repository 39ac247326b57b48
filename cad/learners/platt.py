"""Platt's sigmoid: probabilities from decision values (Platt 2000; Lin, Lin and Weng 2007)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cad.learners.solvers.problem import Array
from cad.logistic import fit_logistic


def platt_targets(positive: ArrayLike, weight: ArrayLike | None = None) -> Array:
    """Regularise targets: (N+ + 1)/(N+ + 2) for positives and 1/(N- + 2) for negatives.

    Parameters
    ----------
    positive : array of bool, shape (n,)
    weight : array, shape (n,), optional
        Counted instead of ones.
    """
    positive = np.asarray(positive, dtype=bool)
    weight = np.ones(len(positive)) if weight is None else np.asarray(weight, dtype=float)
    n_positive, n_negative = weight[positive].sum(), weight[~positive].sum()
    targets: Array = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    return targets


def fit_sigmoid(
    values: ArrayLike, targets: ArrayLike, weight: ArrayLike | None = None
) -> tuple[float, float]:
    """Fit slope and offset of P = 1 / (1 + exp(-(slope v + offset))) by least cross-entropy.

    Parameters
    ----------
    values : array, shape (n,)
        Decision values.
    targets : array, shape (n,)
        Probabilities aimed at, in [0, 1]: :func:`platt_targets`, or soft labels themselves.
    weight : array, shape (n,), optional

    Returns
    -------
    slope, offset : float
        Constant values give slope 0.
    """
    v, t = np.asarray(values, dtype=float), np.asarray(targets, dtype=float)
    w = np.ones(len(v)) if weight is None else np.asarray(weight, dtype=float)
    spread = float(np.std(v))
    if spread <= 1e-12 * max(1.0, float(np.max(np.abs(v)))):
        mean = float(np.clip(np.average(t, weights=w), 1e-12, 1 - 1e-12))
        return 0.0, float(np.log(mean / (1 - mean)))
    centre = float(np.mean(v))
    design = np.column_stack([(v - centre) / spread, np.ones(len(v))])
    slope, offset = fit_logistic(design, t, weight=w[None])[0].tolist()
    return slope / spread, offset - slope / spread * centre
