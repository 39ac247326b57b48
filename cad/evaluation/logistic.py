"""Logistic regression with a normal prior, for calibration and for adding evidence."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

# Below this share of its diagonal's product a determinant of 2 x 2 is rounding.
_SINGULAR = 1e-10


def fit_logistic(
    design: np.ndarray,
    y: np.ndarray,
    *,
    offset: np.ndarray | float = 0.0,
    mean: np.ndarray | float = 0.0,
    precision: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Return the coefficients, shape (k,), of largest posterior density.

    Newton steps, halved until the loss falls; the problem is convex.

    Parameters
    ----------
    design : ndarray, shape (n, k)
        One column per coefficient.
    y : ndarray, shape (n,)
        0 or 1, or a probability.
    offset : ndarray, shape (n,), or float
        Added to the log-odds.
    mean, precision : ndarray, shape (k,), or float
        Of each coefficient's normal prior; precision 0 is none (maximum likelihood).
    """
    centre = np.broadcast_to(np.asarray(mean, dtype=float), design.shape[1])
    weight = np.broadcast_to(np.asarray(precision, dtype=float), design.shape[1])
    beta = np.where(weight > 0, centre, 0.0)
    prior = bool(weight.any())

    def loss(b: np.ndarray, z: np.ndarray) -> float:
        data = float(np.sum(np.logaddexp(0, z) - y * z))
        return data + float(weight @ (b - centre) ** 2 / 2) if prior else data

    z = offset + design @ beta
    current = loss(beta, z)
    for _ in range(100):
        fitted = expit(z)
        gradient = design.T @ (fitted - y)
        hessian = design.T @ (design * (fitted * (1 - fitted))[:, None])
        if prior:
            gradient += weight * (beta - centre)
            hessian += np.diag(weight)
        step = _newton_step(hessian, gradient)
        turn, length = design @ step, 1.0
        while (value := loss(beta - length * step, z - length * turn)) > current and length > 1e-8:
            length /= 2
        beta, z = beta - length * step, z - length * turn
        previous, current = current, value
        if previous - current <= 1e-12 * max(1.0, abs(current)):
            break
    return beta


def _newton_step(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return the solution; the shortest where the Hessian is singular."""
    step: np.ndarray
    if len(gradient) == 1 and hessian[0, 0] > 0:
        step = gradient / hessian[0]
        return step
    if len(gradient) == 2:  # thousands of resamples ask for these: LAPACK takes four times as long
        (a, b), (_, d) = hessian.tolist()
        g, h = gradient.tolist()
        determinant = a * d - b * b
        if determinant > _SINGULAR * a * d:
            step = np.array([d * g - b * h, a * h - b * g]) / determinant
            return step
    step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
    return step
