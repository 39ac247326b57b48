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
# After so many halvings a step is a hundred-millionth of its length, and no shorter one is tried.
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
    weights = np.ones((1, len(y))) if weight is None else weight
    prior_mean = np.broadcast_to(np.asarray(mean, dtype=float), design.shape[1])
    prior_precision = np.broadcast_to(np.asarray(precision, dtype=float), design.shape[1])
    beta = np.tile(np.where(prior_precision > 0, prior_mean, 0.0), (len(weights), 1))

    # b are the coefficients of several fits, z the log-odds of their rows, w the weights of these.
    def loss(b: np.ndarray, z: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Return minus the log-posterior of each fit, up to a constant."""
        # softplus is log(1 + exp(z)), computed in a sixth of the time of numpy's logaddexp.
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        return _sum(w, softplus - y * z) + _sum(prior_precision, (b - prior_mean) ** 2) / 2

    # ``b``, ``w``, ``z`` and ``current_loss`` have rows only for the fits that are not finished.
    unfinished_fits = np.arange(len(weights))
    b = beta.copy()
    w = weights
    z = offset + b @ design.T
    current_loss = loss(b, z, w)
    for _ in range(100):
        fitted = expit(z)
        gradient = (w * (fitted - y)) @ design + prior_precision * (b - prior_mean)
        weighted_design = design.T * (w * (fitted * (1 - fitted)))[:, None, :]
        step = _newton_steps(weighted_design @ design + np.diag(prior_precision), gradient)
        # Half of gradient times step is the decrease of the loss that this step promises.
        goes_on = _sum(gradient, step) / 2 > 1e-12 * np.maximum(1.0, np.abs(current_loss))
        # A fit that ends here makes its last step in full, because near the optimum a full step
        # squares the error. The other fits make the step below, halved where necessary.
        beta[unfinished_fits] = b - step
        if not goes_on.any():
            break
        unfinished_fits = unfinished_fits[goes_on]
        w = w[goes_on]
        step = step[goes_on]
        b, z, current_loss = _halved(
            partial(loss, w=w),
            current_loss[goes_on],
            (b[goes_on], z[goes_on]),
            (step, step @ design.T),
        )
        beta[unfinished_fits] = b
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
        b, z = (before - length * full_step for before, full_step in zip(start, step, strict=True))
        losses = loss(b, z)
        # A fit whose loss is too large after all halvings makes the last, tiny step.
        is_too_far = losses > current
        if not is_too_far.any():
            break
        length[is_too_far] /= 2
    return b, z, losses


def _sum(weight: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the weighted sum of each row of ``values``, shape (draws,)."""
    total: np.ndarray = (weight * values).sum(axis=1)
    return total


def _newton_steps(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return the solutions of the Newton equations, shape (draws, k).

    Each of the ``draws`` is a fit of its own with k parameters. Where the equations of a fit are
    singular, the result has their least-squares solution of least norm.
    """
    k = gradient.shape[1]
    # For one and two parameters there are formulas, because resampling needs thousands of fits.
    step = np.empty_like(gradient)
    is_solved = np.zeros(len(gradient), dtype=bool)
    if k == 1:
        is_solved = hessian[:, 0, 0] > 0
        step[is_solved] = gradient[is_solved] / hessian[is_solved, 0]
    elif k == 2:
        # The inverse of the matrix (a b; b d) is (d -b; -b a) divided by its determinant.
        a = hessian[:, 0, 0]
        b = hessian[:, 0, 1]
        d = hessian[:, 1, 1]
        determinant = a * d - b * b
        is_solved = determinant > _SINGULAR * a * d
        scaled_step = np.stack(
            [d * gradient[:, 0] - b * gradient[:, 1], a * gradient[:, 1] - b * gradient[:, 0]],
            axis=1,
        )
        step[is_solved] = scaled_step[is_solved] / determinant[is_solved, None]
    for i in np.flatnonzero(~is_solved):
        step[i] = np.linalg.lstsq(hessian[i], gradient[i], rcond=None)[0]
    return step
