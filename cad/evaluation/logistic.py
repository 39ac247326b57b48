"""Logistic regression with a normal prior, for calibration and for adding evidence."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

# Below this share of its diagonal's product a determinant of 2 x 2 is rounding.
_SINGULAR = 1e-10
_HALVINGS = 27


def fit_logistic(
    design: np.ndarray,
    y: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    offset: np.ndarray | float = 0.0,
    mean: np.ndarray | float = 0.0,
    precision: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Return the coefficients of largest posterior density, shape (k,) or (draws, k).

    Newton steps, halved until the loss falls; the problem is convex. Many weightings of the same
    rows are fitted side by side.

    Parameters
    ----------
    design : ndarray, shape (n, k)
        One column per coefficient.
    y : ndarray, shape (n,)
        0 or 1, or a probability.
    weight : ndarray, shape (draws, n), optional
        How often each row counts in each of several fits; once, in one fit, when not given.
    offset : ndarray, shape (n,), or float
        Added to the log-odds.
    mean, precision : ndarray, shape (k,), or float
        Of each coefficient's normal prior; precision 0 is none (maximum likelihood).
    """
    k = design.shape[1]
    times = np.ones((1, len(y))) if weight is None else weight
    centre = np.broadcast_to(np.asarray(mean, dtype=float), k)
    prior = np.broadcast_to(np.asarray(precision, dtype=float), k)
    beta = np.tile(np.where(prior > 0, centre, 0.0), (len(times), 1))

    def loss(b: np.ndarray, z: np.ndarray, w: np.ndarray) -> np.ndarray:
        data: np.ndarray = (w * (np.logaddexp(0, z) - y * z)).sum(axis=1)
        data += ((b - centre) ** 2 * prior).sum(axis=1) / 2
        return data

    going, b, w = np.arange(len(times)), beta.copy(), times
    z = offset + b @ design.T
    current = loss(b, z, w)
    for _ in range(100):
        fitted = expit(z)
        gradient = (w * (fitted - y)) @ design + prior * (b - centre)
        curved = w * (fitted * (1 - fitted))
        hessian = np.matmul(design.T * curved[:, None, :], design) + np.diag(prior)
        step = _newton_steps(hessian, gradient)
        gain = (gradient * step).sum(axis=1) / 2
        more = gain > 1e-12 * np.maximum(1.0, np.abs(current))
        beta[going] = b - step  # the last step is a whole one: it squares an error that is tiny
        if not more.any():
            break
        going, b, w, z = going[more], b[more], w[more], z[more]
        step, current = step[more], current[more]
        turn, length = step @ design.T, np.ones((len(b), 1))
        for _ in range(_HALVINGS):
            value = loss(b - length * step, z - length * turn, w)
            if not (far := value > current).any():
                break
            length[far] /= 2
        b, z, current = b - length * step, z - length * turn, value
        beta[going] = b
    return beta[0] if weight is None else beta


def _newton_steps(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return the solutions, shape (draws, k); the shortest where a Hessian is singular."""
    k = gradient.shape[1]
    step, good = np.empty_like(gradient), np.zeros(len(gradient), dtype=bool)
    if k == 1:
        good = hessian[:, 0, 0] > 0
        step[good] = gradient[good] / hessian[good, 0]
    elif k == 2:  # by hand: resamples ask for thousands
        a, b, d = hessian[:, 0, 0], hessian[:, 0, 1], hessian[:, 1, 1]
        determinant = a * d - b * b
        good = determinant > _SINGULAR * a * d
        adjugate = np.stack([d * gradient[:, 0] - b * gradient[:, 1],
                             a * gradient[:, 1] - b * gradient[:, 0]], axis=1)  # fmt: skip
        step[good] = adjugate[good] / determinant[good, None]
    for i in np.flatnonzero(~good):
        step[i] = np.linalg.lstsq(hessian[i], gradient[i], rcond=None)[0]
    return step
