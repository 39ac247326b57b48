"""Provide two baselines built on scikit-learn: kernel logistic regression, and support vector
regression (SVR) of the labels' logits.

Baselines are simpler learners that the P-SVM is compared with.

A third baseline, an SVM with Platt's sigmoid on soft labels, is
:class:`cad.learning.learners.SoftPlattSVC`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVR

from cad.learning.learners.base import OneKernelMachine, check_cost
from cad.learning.learners.solvers.kernels import Gram
from cad.learning.learners.solvers.problem import Array, LearnerError

# An eigenvector of the kernel matrix is dropped if its eigenvalue is below this share of the
# largest one. Such an eigenvalue may be only a rounding error.
_RANK_TOL = 1e-12


class _Baseline(OneKernelMachine):
    """Share the methods of kernel machines whose decision value is a logit."""

    def _matrix(self, X: Array, weight: Array) -> tuple[Gram, Array]:
        gram = self._make_gram(X, weight).held(self.cache_size)
        if gram.matrix is None:
            raise LearnerError(
                f"{len(X)} samples: the kernel matrix exceeds cache_size = {self.cache_size:g} MB",
                hint="raise cache_size, or use ProbabilisticSVC, which makes columns on demand",
            )
        return gram, gram.matrix


@dataclass(eq=False, repr=False, kw_only=True)
class KernelLogistic(_Baseline):
    """Learn kernel logistic regression on soft labels.

    The learner minimises 1/2 |f|^2 + C times the sum of cross-entropies, with |f| the norm of the
    decision function in the space of the kernel. A soft label p counts as two rows: a positive of
    weight p and a negative of weight 1 - p. scikit-learn's LogisticRegression is fitted by Newton
    steps to an exact feature map of the kernel (eigenvectors of the kernel matrix).

    Parameters
    ----------
    C : float
        Cost of a unit of cross-entropy.
    kernel, gamma, degree, coef0, cache_size
        Kernel and memory (MB), as in scikit-learn's SVC and
        :class:`cad.learning.learners.PlattSVC`.
    tol : float
        Tolerance of LogisticRegression.
    max_iter : int
        Largest number of Newton steps.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import KernelLogistic
    >>> X = np.linspace(-2, 2, 9)[:, None]
    >>> p = 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> model = KernelLogistic(C=100.0, kernel="linear").fit(X, p)
    >>> model.predict_proba([[-1.0], [0.0], [1.0]])[:, 1].round(2).tolist()
    [0.12, 0.5, 0.88]
    """

    max_iter: int = 2000

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to two classes, or to probabilities in [0, 1], and return this object.

        ``X`` has shape (n, d), ``y`` and ``sample_weight`` (how much each row counts; 1 if not
        given) shape (n,). ``eta`` is accepted, so that learners can be exchanged, and not used.
        """
        X, classes, p, weight = self._read_inputs(X, y, sample_weight)
        gram, matrix = self._matrix(X, weight)
        values, vectors = np.linalg.eigh(matrix)
        keep = values > _RANK_TOL * max(float(values[-1]), 1e-300)
        root = np.sqrt(values[keep])
        features = vectors[:, keep] * root
        both = np.vstack([features, features])
        side = np.repeat([1, 0], len(X))
        weights = np.concatenate([weight * p, weight * (1 - p)])
        used = weights > 0
        if len(np.unique(side[used])) < 2:
            raise LearnerError("the samples that count are of one class only: two are needed")
        model = LogisticRegression(
            C=check_cost("C", self.C),
            solver="newton-cholesky",
            tol=self.tol,
            max_iter=self.max_iter,
        ).fit(both[used], side[used], sample_weight=weights[used])
        self.classes_ = classes
        beta = vectors[:, keep] @ (model.coef_[0] / root)
        self._remember(gram, beta, float(model.intercept_[0]), int(np.max(model.n_iter_)))
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class LogitSVR(_Baseline):
    """Learn soft labels p by support vector regression of logit(p).

    Labels are first clipped to [clip, 1 - clip], so that their logits are finite.

    Parameters
    ----------
    C, epsilon : float
        Cost and half-width of the tube of scikit-learn's SVR; epsilon is in units of the logit.
    clip : float
        A label of 1 becomes logit(1 - clip), a label of 0 logit(clip).
    kernel, gamma, degree, coef0, cache_size
        Kernel and memory (MB), as in scikit-learn's SVR and
        :class:`cad.learning.learners.PlattSVC`.
    tol : float
        Tolerance of SVR.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import LogitSVR
    >>> X = np.linspace(-2, 2, 9)[:, None]
    >>> p = 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> model = LogitSVR(C=100.0, epsilon=0.01, kernel="linear").fit(X, p)
    >>> model.predict_proba([[-1.0], [0.0], [1.0]])[:, 1].round(2).tolist()
    [0.22, 0.5, 0.78]
    """

    epsilon: float = 0.1
    clip: float = 0.125
    tol: float = 1e-9

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to two classes, or to probabilities in [0, 1], and return this object.

        ``X`` has shape (n, d), ``y`` and ``sample_weight`` (how much each row counts; 1 if not
        given) shape (n,). ``eta`` is accepted, so that learners can be exchanged, and not used.
        """
        X, classes, p, weight = self._read_inputs(X, y, sample_weight)
        if not 0 < self.clip < 0.5:
            raise LearnerError(f"clip = {self.clip!r}, must lie in (0, .5)")
        gram, matrix = self._matrix(X, weight)
        p = np.clip(p, self.clip, 1 - self.clip)
        used = np.flatnonzero(weight > 0)
        if np.ptp(p[used]) == 0:
            raise LearnerError("the samples that count are of one class only: two are needed")
        model = SVR(
            kernel="precomputed",
            C=check_cost("C", self.C),
            epsilon=self.epsilon,
            tol=self.tol,
            cache_size=self.cache_size,
        ).fit(
            matrix[np.ix_(used, used)],
            np.log(p[used]) - np.log1p(-p[used]),
            sample_weight=weight[used],
        )
        beta = np.zeros(len(X))
        beta[used[model.support_]] = model.dual_coef_[0]
        self.classes_ = classes
        self._remember(gram, beta, float(model.intercept_[0]), int(model.n_iter_))
        return self
