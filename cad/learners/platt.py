"""Platt's sigmoid: probabilities from decision values (Platt 2000; Lin, Lin and Weng 2007)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from cad.learners.problem import Array

_ITERATIONS = 100
_RIDGE = 1e-12


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
        Newton steps with halving until the gradient vanishes; constant values give slope 0.
    """
    v, t = np.asarray(values, dtype=float), np.asarray(targets, dtype=float)
    w = np.ones(len(v)) if weight is None else np.asarray(weight, dtype=float)
    spread = float(np.std(v))
    if spread <= 1e-12 * max(1.0, float(np.max(np.abs(v)))):
        mean = float(np.clip(np.average(t, weights=w), 1e-12, 1 - 1e-12))
        return 0.0, float(np.log(mean / (1 - mean)))
    centre = float(np.mean(v))
    design = np.column_stack([(v - centre) / spread, np.ones(len(v))])
    theta = np.zeros(2)
    loss = _cross_entropy(design @ theta, t, w)
    for _ in range(_ITERATIONS):
        p = expit(design @ theta)
        gradient = design.T @ (w * (p - t))
        if np.max(np.abs(gradient)) <= 1e-10 * w.sum():
            break
        hessian = (design * (w * p * (1 - p))[:, None]).T @ design
        step = np.linalg.solve(hessian + _RIDGE * w.sum() * np.eye(2), gradient)
        length = 1.0
        while length > 1e-10:
            trial = theta - length * step
            trial_loss = _cross_entropy(design @ trial, t, w)
            if trial_loss <= loss - 1e-4 * length * float(gradient @ step):
                break
            length /= 2
        else:
            break
        theta, loss = trial, trial_loss
    slope = theta[0] / spread
    return float(slope), float(theta[1] - slope * centre)


def _cross_entropy(z: Array, t: Array, w: Array) -> float:
    return float(w @ (np.logaddexp(0.0, z) - t * z))
