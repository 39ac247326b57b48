"""Provide OPAUC, which maximises the AUC in one pass over the rows (Gao et al. 2013).

It minimises the square loss of all pairs of a positive and a negative row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from cad.learning.learners.base import check_cost
from cad.learning.learners.ranking.base import Floats, Ranker, require, warn_not_converged
from cad.learning.stored import Declared, Plain, floats


@dataclass(eq=False, repr=False)
class OPAUC(Ranker):
    """Rank by linear weights that maximise the AUC, learned in one pass over the rows (OPAUC).

    The loss of a pair of rows of different classes is the square loss (Gao et al. 2013). Row t,
    with features x_t and class y_t (+1 or -1), makes one gradient step of the weights w on

        lambda/2 |w|^2 + mean over i of (1 - y_t w'(x_t - x_i))^2 / 2.

    The mean is over the earlier rows i of the other class. Its gradient needs only the mean and the
    covariance of these rows. With more features than rows, w is kept as coefficients of the rows,
    and no d x d matrix is formed.

    Parameters
    ----------
    eta : float
        Learning rate: the factor of the gradient in a step (the papers try 2^-12 to 2^10).
    lambda_ : float
        The factor lambda of the penalty (the papers try 2^-10 to 2^2).
    random_state : int or None
        Seed of the random order in which the steps use the rows; with None they use the given
        order.
    platt_folds : int
        Number of folds for the out-of-fold scores that Platt's sigmoid is fitted to; with 0 it is
        fitted to the scores of the training rows.

    Attributes
    ----------
    coef_ : ndarray, shape (1, d)
        Weights of the features.
    diverged_ : bool
        Whether the weights overflowed because of a large ``eta``; ``coef_`` then holds the weights
        before the overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import OPAUC
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> model = OPAUC(eta=0.1, platt_folds=0).fit(X, [0, 0, 0, 1, 1, 1])
    >>> bool(model.coef_[0, 0] > 0)
    True
    >>> model.predict([[-1.2], [1.2]]).tolist()
    [0, 1]
    """

    stored: ClassVar[Declared] = {
        "coef_": floats(1, "d"),
        "diverged_": Plain(),
    }

    eta: float = 2.0**-6
    lambda_: float = 2.0**-6
    random_state: int | None = None
    platt_folds: int = 5

    def _check_parameters(self) -> None:
        check_cost("eta", self.eta)
        is_valid = isinstance(self.lambda_, (int, float, np.number)) and 0 <= self.lambda_ < np.inf
        require(is_valid, f"lambda_ = {self.lambda_!r}, must be a finite number >= 0")

    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        if self.random_state is not None:
            order = np.random.default_rng(self.random_state).permutation(len(X))
            X = X[order]
            sign = sign[order]
            weight = weight[order]
        coef, diverged = opauc_path(X, sign, weight, [self.eta], [self.lambda_])
        self.coef_ = coef[0, 0][None, :]
        self.diverged_ = bool(diverged[0, 0])
        if self.diverged_:
            warn_not_converged(
                "OPAUC",
                f"the weights overflow at eta = {self.eta:.3g} "
                f"(largest |w| kept {np.abs(self.coef_).max():.1e})",
                "standardise the features or lower eta",
            )

    def _scores(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_[0])


def opauc_path(
    X: Floats, sign: Floats, weight: Floats, etas: ArrayLike, lambdas: ArrayLike
) -> tuple[Floats, NDArray[np.bool_]]:
    """Fit OPAUC (one-pass optimisation of the AUC) for all pairs of learning rate and penalty.

    Parameters
    ----------
    X : ndarray (n, d)
        Rows, in the order in which the steps use them.
    sign, weight : ndarray (n,)
        Classes +1 or -1, and weights > 0 of the rows.
    etas, lambdas : array-like (a,), (b,)
        Learning rates, and factors of the penalty.

    Returns
    -------
    coef : ndarray, shape (a, b, d)
        Weights of the features; where they overflowed, the weights before the overflow.
    diverged : ndarray of bool, shape (a, b)
        Whether the weights overflowed.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [-1.0], [2.0], [-2.0]])
    >>> sign = np.array([1.0, -1.0, 1.0, -1.0])
    >>> coef, diverged = opauc_path(X, sign, np.ones(4), etas=[0.1], lambdas=[0.0, 1.0])
    >>> coef.shape, bool(diverged.any()), bool(coef[0, 0, 0] > coef[0, 1, 0] > 0)
    ((1, 2, 1), False, True)
    """
    X = np.ascontiguousarray(X, dtype=float)
    steps = np.asarray(etas, dtype=float)
    lams = np.asarray(lambdas, dtype=float)
    # Of two methods the one with fewer operations is used. Numbers of operations are for one pair
    # of settings (eta, lambda), n rows and d features. The method by means and covariances takes n
    # d^2 operations, and the method by inner products of rows n^3.
    if X.shape[1] > X.shape[0]:
        # Here the weights are X.T @ coefficients. Every gradient is a weighted sum of the rows, so
        # the weights always are one, too.
        coefficients, diverged = _pass_factor(X @ X.T, sign, weight, steps, lams)
        return coefficients @ X, diverged
    return _pass_moments(X, sign, weight, steps, lams)


@njit(cache=True)
def _pass_moments(
    X: Floats, sign: Floats, weight: Floats, steps: Floats, lams: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Fit OPAUC for all pairs of a learning rate and a penalty factor in one pass over the rows.

    All pairs share the running mean and covariance of each class. Parameters and results are those
    of :func:`opauc_path`; ``steps`` and ``lams`` are its ``etas`` and ``lambdas``.
    """
    n, d = X.shape
    a = len(steps)
    b = len(lams)
    w = np.zeros((a, b, d))
    diverged = np.zeros((a, b), dtype=np.bool_)
    mean = np.zeros((2, d))
    cov = np.zeros((2, d, d))
    total = np.zeros(2)
    apart = np.zeros(d)
    gradient = np.zeros(d)
    for t in range(n):
        same = 1 if sign[t] > 0 else 0
        other_class = 1 - same
        # The first rows, which are all of one class, make no pair yet. So no step is made, not even
        # for the penalty lambda.
        if total[other_class] > 0:
            for k in range(d):
                apart[k] = X[t, k] - mean[other_class, k]
            for i in range(a):
                for j in range(b):
                    # After an overflow no further step is made and the weights before it are kept.
                    # A grid search then finds poor settings instead of an error.
                    if diverged[i, j]:
                        continue
                    v = w[i, j]
                    # The gradient at row t is lambda w + s a + Cov w. Here a = x_t - mean of the
                    # other class, s = w'a - y_t, and Cov is the covariance of the other class. It
                    # equals the gradient of the mean loss over the pairs.
                    s = -sign[t]
                    for k in range(d):
                        s += apart[k] * v[k]
                    largest = 0.0
                    for k in range(d):
                        g = lams[j] * v[k] + s * apart[k]
                        for m in range(d):
                            g += cov[other_class, k, m] * v[m]
                        gradient[k] = steps[i] * weight[t] * g
                        if not abs(gradient[k]) <= largest:
                            largest = abs(gradient[k])
                    # The condition is written with "not", so that a NaN counts as overflow, too.
                    if not largest < 1e100:
                        diverged[i, j] = True
                        continue
                    for k in range(d):
                        v[k] -= gradient[k]
        # Welford's update of the weighted mean and covariance of the class, row by row.
        total[same] += weight[t]
        share = weight[t] / total[same]
        for k in range(d):
            apart[k] = X[t, k] - mean[same, k]
        for k in range(d):
            mean[same, k] += share * apart[k]
            for m in range(d):
                cov[same, k, m] += share * ((1.0 - share) * apart[k] * apart[m] - cov[same, k, m])
    return w, diverged


@njit(cache=True)
def _pass_factor(
    gram: Floats, sign: Floats, weight: Floats, steps: Floats, lams: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Fit every pair of a step size and a penalty, with a coefficient for each row.

    The weights w of the features are X' times these coefficients. The features X themselves are not
    needed: ``gram`` has the inner products X X' of the rows. The other parameters are as in
    :func:`_pass_moments`. The result has the coefficients, shape (steps, lams, n), and whether each
    fit diverged.
    """
    n = len(gram)
    a = len(steps)
    b = len(lams)
    out = np.zeros((a, b, n))
    diverged = np.zeros((a, b), dtype=np.bool_)
    change = np.zeros(n)
    for i in range(a):
        for j in range(b):
            coefficient = out[i, j]
            # The scores u = X w are kept up to date instead of the weights w, which takes n
            # operations for each changed coefficient.
            u = np.zeros(n)  # w'x of every row
            total = np.zeros(2)
            for t in range(n):
                same = 1 if sign[t] > 0 else 0
                total_of_other = total[1 - same]
                if total_of_other > 0:
                    centre = 0.0
                    for k in range(t):
                        if sign[k] != sign[t]:
                            centre += weight[k] * u[k]
                    centre /= total_of_other  # w'(mean of the other class)
                    rate = steps[i] * weight[t]
                    s = u[t] - centre - sign[t]
                    change[t] = -rate * s
                    largest = abs(change[t])
                    for k in range(t):
                        # Row k of the other class has the share weight[k] / total_of_other in the
                        # mean and in the covariance. So it occurs twice in the gradient: as share
                        # (u_k - centre) x_k in the covariance times w, and as -share s x_k in the
                        # mean. Its coefficient changes by the sum of both, times -rate.
                        change[k] = 0.0
                        if sign[k] != sign[t]:
                            change[k] = -rate * weight[k] / total_of_other * (u[k] - centre - s)
                            if not abs(change[k]) <= largest:
                                largest = abs(change[k])
                    shrink = 1.0 - rate * lams[j]
                    if not largest < 1e100 or not abs(shrink * s) < 1e100:
                        diverged[i, j] = True
                        break
                    # The penalty first multiplies all weights w by a factor. Then the gradient of
                    # the loss, a sum of rows, is added.
                    for k in range(n):
                        u[k] *= shrink
                        coefficient[k] *= shrink
                    for k in range(t + 1):
                        if change[k] != 0.0:
                            coefficient[k] += change[k]
                            for m in range(n):
                                u[m] += change[k] * gram[k, m]
                total[same] += weight[t]
    return out, diverged
