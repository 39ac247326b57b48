"""Logistic regression with a normal prior, for calibration and for adding evidence."""

from __future__ import annotations

import numpy as np
from scipy.special import expit


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

    def loss(b: np.ndarray, z: np.ndarray) -> float:
        return float(np.sum(np.logaddexp(0, z) - y * z) + weight @ (b - centre) ** 2 / 2)

    z = offset + design @ beta
    current = loss(beta, z)
    for _ in range(100):
        fitted = expit(z)
        gradient = design.T @ (fitted - y) + weight * (beta - centre)
        hessian = design.T @ (design * (fitted * (1 - fitted))[:, None]) + np.diag(weight)
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        turn, length = design @ step, 1.0
        while (value := loss(beta - length * step, z - length * turn)) > current and length > 1e-8:
            length /= 2
        beta, z = beta - length * step, z - length * turn
        previous, current = current, value
        if previous - current <= 1e-12 * max(1.0, abs(current)):
            break
    return beta
