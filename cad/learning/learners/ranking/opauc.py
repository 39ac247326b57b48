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

# A change of a weight that is not below this counts as overflow.
_OVERFLOW = 1e100


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
        """Learn the weights of the features in one pass over the rows."""
        if self.random_state is not None:
            order = np.random.default_rng(self.random_state).permutation(len(X))
            X = X[order]
            sign = sign[order]
            weight = weight[order]
        # A path of one learning rate and one penalty; the results of this pair are at [0, 0].
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
    learning_rates = np.asarray(etas, dtype=float)
    penalties = np.asarray(lambdas, dtype=float)
    # Of two methods the one with fewer operations is used. Numbers of operations are for one pair
    # of settings (eta, lambda), n rows and d features. The method by means and covariances takes n
    # d^2 operations, and the method by inner products of rows n^3.
    if X.shape[1] > X.shape[0]:
        # Here the weights are X.T @ coefficients. Every gradient is a weighted sum of the rows, so
        # the weights always are one, too.
        coefficients, diverged = _pass_factor(X @ X.T, sign, weight, learning_rates, penalties)
        return coefficients @ X, diverged
    return _pass_moments(X, sign, weight, learning_rates, penalties)


@njit(cache=True)
def _pass_moments(
    X: Floats, sign: Floats, weight: Floats, learning_rates: Floats, penalties: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Fit OPAUC for all pairs of a learning rate and a penalty factor in one pass over the rows.

    All pairs share the running mean and covariance of each class. Parameters and results are those
    of :func:`opauc_path`; ``learning_rates`` and ``penalties`` are its ``etas`` and ``lambdas``.
    """
    n, d = X.shape
    n_rates = len(learning_rates)
    n_penalties = len(penalties)
    w = np.zeros((n_rates, n_penalties, d))
    diverged = np.zeros((n_rates, n_penalties), dtype=np.bool_)
    mean = np.zeros((2, d))
    cov = np.zeros((2, d, d))
    class_weight = np.zeros(2)
    distance = np.zeros(d)
    change = np.zeros(d)
    for t in range(n):
        own_class = 1 if sign[t] > 0 else 0
        other_class = 1 - own_class
        # The first rows, which are all of one class, make no pair yet. So no step is made, not even
        # for the penalty lambda.
        if class_weight[other_class] > 0:
            for k in range(d):
                distance[k] = X[t, k] - mean[other_class, k]
            for i in range(n_rates):
                for j in range(n_penalties):
                    # After an overflow no further step is made and the weights before it are kept.
                    # A grid search then finds poor settings instead of an error.
                    if diverged[i, j]:
                        continue
                    w_of_pair = w[i, j]
                    # The gradient at row t is lambda w + error a + Cov w. Here a is the distance of
                    # x_t from the mean of the other class, error = w'a - y_t, and Cov is the
                    # covariance of the other class. It equals the gradient of the mean loss over
                    # the pairs.
                    error = -sign[t]
                    for k in range(d):
                        error += distance[k] * w_of_pair[k]
                    largest_change = 0.0
                    for k in range(d):
                        derivative = penalties[j] * w_of_pair[k] + error * distance[k]
                        for m in range(d):
                            derivative += cov[other_class, k, m] * w_of_pair[m]
                        change[k] = learning_rates[i] * weight[t] * derivative
                        if not abs(change[k]) <= largest_change:
                            largest_change = abs(change[k])
                    # The condition is written with "not", so that a NaN counts as overflow, too.
                    if not largest_change < _OVERFLOW:
                        diverged[i, j] = True
                        continue
                    for k in range(d):
                        w_of_pair[k] -= change[k]
        # Welford's update of the weighted mean and covariance of the class, row by row. The
        # distance is now that from the mean of the row's own class.
        class_weight[own_class] += weight[t]
        share_of_row = weight[t] / class_weight[own_class]
        for k in range(d):
            distance[k] = X[t, k] - mean[own_class, k]
        for k in range(d):
            mean[own_class, k] += share_of_row * distance[k]
            for m in range(d):
                cov[own_class, k, m] += share_of_row * (
                    (1.0 - share_of_row) * distance[k] * distance[m] - cov[own_class, k, m]
                )
    return w, diverged


@njit(cache=True)
def _pass_factor(
    gram: Floats, sign: Floats, weight: Floats, learning_rates: Floats, penalties: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Fit every pair of a step size and a penalty, with a coefficient for each row.

    The weights w of the features are X' times these coefficients. The features X themselves are not
    needed: ``gram`` has the inner products X X' of the rows. The other parameters are as in
    :func:`_pass_moments`. The result has the coefficients, shape (rates, penalties, n), and whether
    each fit diverged.
    """
    n = len(gram)
    n_rates = len(learning_rates)
    n_penalties = len(penalties)
    coefficients = np.zeros((n_rates, n_penalties, n))
    diverged = np.zeros((n_rates, n_penalties), dtype=np.bool_)
    change = np.zeros(n)
    for i in range(n_rates):
        for j in range(n_penalties):
            coefficient = coefficients[i, j]
            # The scores X w are kept up to date instead of the weights w, which takes n
            # operations for each changed coefficient.
            scores = np.zeros(n)  # w'x of every row
            class_weight = np.zeros(2)
            for t in range(n):
                own_class = 1 if sign[t] > 0 else 0
                weight_of_other = class_weight[1 - own_class]
                if weight_of_other > 0:
                    mean_score_of_other = 0.0
                    for k in range(t):
                        if sign[k] != sign[t]:
                            mean_score_of_other += weight[k] * scores[k]
                    mean_score_of_other /= weight_of_other  # w'(mean of the other class)
                    step_size = learning_rates[i] * weight[t]
                    error = scores[t] - mean_score_of_other - sign[t]
                    change[t] = -step_size * error
                    largest_change = abs(change[t])
                    for k in range(t):
                        # Row k of the other class has the share weight[k] / weight_of_other in the
                        # mean and in the covariance. So it occurs twice in the gradient: as share
                        # (score_k - mean score) x_k in the covariance times w, and as -share error
                        # x_k in the mean. Its coefficient changes by the sum of both, times minus
                        # the step size.
                        change[k] = 0.0
                        if sign[k] != sign[t]:
                            change[k] = (
                                -step_size
                                * weight[k]
                                / weight_of_other
                                * (scores[k] - mean_score_of_other - error)
                            )
                            if not abs(change[k]) <= largest_change:
                                largest_change = abs(change[k])
                    shrinkage = 1.0 - step_size * penalties[j]
                    # The conditions are written with "not", so that a NaN counts as overflow, too.
                    # An overflow ends this fit, and the coefficients before it are kept.
                    if not largest_change < _OVERFLOW or not abs(shrinkage * error) < _OVERFLOW:
                        diverged[i, j] = True
                        break
                    # The penalty first multiplies all weights w by a factor. Then the gradient of
                    # the loss, a sum of rows, is added.
                    for k in range(n):
                        scores[k] *= shrinkage
                        coefficient[k] *= shrinkage
                    for k in range(t + 1):
                        if change[k] != 0.0:
                            coefficient[k] += change[k]
                            for m in range(n):
                                scores[m] += change[k] * gram[k, m]
                class_weight[own_class] += weight[t]
    return coefficients, diverged
