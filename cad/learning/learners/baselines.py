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
        """Return the kernel of the training rows and its whole matrix."""
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
        eigenvalues, eigenvectors = np.linalg.eigh(matrix)
        largest = max(float(eigenvalues[-1]), 1e-300)  # eigh returns them in ascending order
        is_positive = eigenvalues > _RANK_TOL * largest
        root_of_eigenvalues = np.sqrt(eigenvalues[is_positive])
        # The inner products of these features are the kernel.
        features = eigenvectors[:, is_positive] * root_of_eigenvalues
        # Each row occurs twice: as a positive of weight p, and as a negative of weight 1 - p.
        doubled_features = np.vstack([features, features])
        classes_of_rows = np.repeat([1, 0], len(X))
        row_weights = np.concatenate([weight * p, weight * (1 - p)])
        used = row_weights > 0
        if len(np.unique(classes_of_rows[used])) < 2:
            raise LearnerError("the samples that count are of one class only: two are needed")
        model = LogisticRegression(
            C=check_cost("C", self.C),
            solver="newton-cholesky",
            tol=self.tol,
            max_iter=self.max_iter,
        ).fit(doubled_features[used], classes_of_rows[used], sample_weight=row_weights[used])
        self.classes_ = classes
        # The weights of the features as coefficients of the kernel's rows.
        beta = eigenvectors[:, is_positive] @ (model.coef_[0] / root_of_eigenvalues)
        iterations = int(np.max(model.n_iter_))
        self._remember(gram, beta, float(model.intercept_[0]), iterations)
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
        clipped = np.clip(p, self.clip, 1 - self.clip)
        used = np.flatnonzero(weight > 0)
        if np.ptp(clipped[used]) == 0:
            raise LearnerError("the samples that count are of one class only: two are needed")
        logits = np.log(clipped[used]) - np.log1p(-clipped[used])
        model = SVR(
            kernel="precomputed",
            C=check_cost("C", self.C),
            epsilon=self.epsilon,
            tol=self.tol,
            cache_size=self.cache_size,
        ).fit(
            matrix[np.ix_(used, used)],
            logits,
            sample_weight=weight[used],
        )
        beta = np.zeros(len(X))
        # SVR numbers the rows that it was given; ``used`` has their numbers among all rows.
        beta[used[model.support_]] = model.dual_coef_[0]
        self.classes_ = classes
        self._remember(gram, beta, float(model.intercept_[0]), int(model.n_iter_))
        return self
