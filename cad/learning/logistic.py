"""Fit logistic regressions, with a normal prior or without.

All logistic fits of the program use this module. They are for calibration, Platt's sigmoid, the
weights of readers, and the combination of a reader with the classifier.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import expit

# A 2 x 2 determinant below this share of the product of its diagonal may be only a rounding error.
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
    """Fit a logistic regression and return its coefficients.

    The coefficients are the mode of the posterior, found by Newton steps. Their shape is (k,). If
    ``weight`` is given, there is one fit for each weighting of the same rows, and the shape is
    (draws, k).

    Parameters
    ----------
    design : ndarray, shape (n, k)
        One column per coefficient.
    y : ndarray, shape (n,)
        0 or 1, or a probability.
    weight : ndarray, shape (draws, n), optional
        How often each row counts, for each of several fits. When not given, there is one fit, in
        which each row counts once.
    offset : ndarray, shape (n,), or float
        Number that is added to the log-odds.
    mean, precision : ndarray, shape (k,), or float
        Mean and precision (1 / variance) of each coefficient's normal prior. With precision 0 a
        coefficient has no prior.

    Returns
    -------
    ndarray, shape (k,) or (draws, k)
        The coefficients, in log-odds per unit of each column; with ``weight`` one row of them for
        each fit.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-2, 2, 41)
    >>> y = 1 / (1 + np.exp(-(0.5 + 2.0 * x)))
    >>> fit_logistic(np.column_stack([np.ones(41), x]), y).round(3).tolist()
    [0.5, 2.0]
    """
    times = np.ones((1, len(y))) if weight is None else weight
    centre = np.broadcast_to(np.asarray(mean, dtype=float), design.shape[1])
    prior = np.broadcast_to(np.asarray(precision, dtype=float), design.shape[1])
    beta = np.tile(np.where(prior > 0, centre, 0.0), (len(times), 1))

    def loss(b: np.ndarray, z: np.ndarray, w: np.ndarray) -> np.ndarray:
        # softplus is log(1 + exp(z)), computed in a sixth of the time of numpy's logaddexp.
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        return _sum(w, softplus - y * z) + _sum(prior, (b - centre) ** 2) / 2

    going = np.arange(len(times))
    b = beta.copy()
    w = times
    z = offset + b @ design.T
    current = loss(b, z, w)
    for _ in range(100):
        fitted = expit(z)
        gradient = (w * (fitted - y)) @ design + prior * (b - centre)
        curved = design.T * (w * (fitted * (1 - fitted)))[:, None, :]
        step = _newton_steps(curved @ design + np.diag(prior), gradient)
        unfinished = _sum(gradient, step) / 2 > 1e-12 * np.maximum(1.0, np.abs(current))
        # A fit that ends here makes its last step in full, because near the optimum a full step
        # squares the error. The other fits make the step below, halved where necessary.
        beta[going] = b - step
        if not unfinished.any():
            break
        going = going[unfinished]
        w = w[unfinished]
        step = step[unfinished]
        b, z, current = _halved(
            partial(loss, w=w),
            current[unfinished],
            (b[unfinished], z[unfinished]),
            (step, step @ design.T),
        )
        beta[going] = b
    return beta[0] if weight is None else beta


def _halved(
    loss: Callable[..., np.ndarray],
    current: np.ndarray,
    start: tuple[np.ndarray, np.ndarray],
    step: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return coefficients, log-odds of the rows and losses of several fits after one step of each.

    ``start`` has coefficients and log-odds before the step. ``step`` is subtracted from them.
    The step of a fit is halved as long as its loss would be larger than its ``current`` loss.
    """
    length = np.ones((len(current), 1))
    for _ in range(_HALVINGS):
        b, z = (before - length * turn for before, turn in zip(start, step, strict=True))
        value = loss(b, z)
        if not (far := value > current).any():
            break
        length[far] /= 2
    return b, z, value


def _sum(weight: np.ndarray, values: np.ndarray) -> np.ndarray:
    total: np.ndarray = (weight * values).sum(axis=1)
    return total


def _newton_steps(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return the solutions of the Newton equations, shape (draws, k).

    Each of the ``draws`` is a fit of its own with k parameters. Where the equations of a fit are
    singular, the result has their least-squares solution of least norm.
    """
    k = gradient.shape[1]
    step = np.empty_like(gradient)
    is_solved = np.zeros(len(gradient), dtype=bool)
    if k == 1:
        is_solved = hessian[:, 0, 0] > 0
        step[is_solved] = gradient[is_solved] / hessian[is_solved, 0]
    elif k == 2:  # solved by a formula, because resampling needs thousands of fits
        a = hessian[:, 0, 0]
        b = hessian[:, 0, 1]
        d = hessian[:, 1, 1]
        determinant = a * d - b * b
        is_solved = determinant > _SINGULAR * a * d
        adjugate = np.stack(
            [d * gradient[:, 0] - b * gradient[:, 1], a * gradient[:, 1] - b * gradient[:, 0]],
            axis=1,
        )
        step[is_solved] = adjugate[is_solved] / determinant[is_solved, None]
    for i in np.flatnonzero(~is_solved):
        step[i] = np.linalg.lstsq(hessian[i], gradient[i], rcond=None)[0]
    return step
