"""The eight methods of [W14] with their grids: scores of test rows for every grid point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from sklearn.svm import SVC

from cad.learners.opauc import OPAUC
from cad.learners.rankboost import RankBoost
from cad.learners.sslroc import SSLROC
from cad.learners.ssrankboost import SSRankBoost
from cad.learners.svmlin import SVMLin
from cad.learners.svmroc import SVMROC

Rows = np.ndarray


@dataclass(frozen=True)
class Split:
    """Training rows, their labels, and test rows; kernels are made once for all grid points.

    Parameters
    ----------
    X : ndarray, shape (n_train, d)
    y : ndarray, shape (n_train,)
        1 or 0.
    X_test : ndarray, shape (n_test, d)
    gamma : float
        Of the RBF kernel, from the 90th percentile of pairwise distances.
    """

    X: Rows
    y: Rows
    X_test: Rows
    gamma: float

    @property
    def both(self) -> tuple[Rows, Rows]:
        """Training and test rows with the labels 1, 0 and -1 (unlabelled)."""
        labels = np.concatenate([self.y, np.full(len(self.X_test), -1.0)])
        return np.vstack([self.X, self.X_test]), labels

    @property
    def rotated(self) -> Split:
        """The same rows in coordinates of their own span where there are more features than rows.

        Distances and inner products stay, so linear methods with a Euclidean penalty give the
        same scores at a fraction of the work.
        """
        rows = np.vstack([self.X, self.X_test])
        if rows.shape[1] <= len(rows):
            return self
        u, singular, _ = np.linalg.svd(rows, full_matrices=False)
        spanned = u * singular
        n = len(self.X)
        return replace(self, X=spanned[:n], X_test=spanned[n:])

    def kernel(self, a: Rows, b: Rows) -> Rows:
        """RBF kernel matrix."""
        square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        return np.exp(-self.gamma * np.maximum(square, 0.0))


@dataclass(frozen=True)
class Method:
    """One method: its grid and how it scores.

    Parameters
    ----------
    grid : list of dict
        Parameters, for the record.
    scores : callable
        From a split to scores, shape (len(grid), n_test); NaN where a fit was refused.
    """

    grid: list[dict[str, float]]
    scores: Callable[[Split], Rows]


C_SVM = tuple(10.0**k for k in range(-4, 3))
C_SSL = tuple(10.0**k for k in range(-3, 2))
M_SSL = (0.1, 1.0, 10.0)
ROUNDS = tuple(range(30, 91, 10))
ETA_OPAUC = tuple(2.0**k for k in range(-12, 11))
LAMBDA_OPAUC = tuple(2.0**k for k in range(-10, 3))
LAMBDA_LIN = tuple(10.0**k for k in range(-4, 5))
LAMBDA_U_LIN = tuple(10.0**k for k in range(-2, 3))
DISCOUNTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
NEIGHBOURS = tuple(range(1, 11))


def _svm(split: Split) -> Rows:
    K, K_test = split.kernel(split.X, split.X), split.kernel(split.X_test, split.X)
    return np.array(
        [SVC(C=C, kernel="precomputed").fit(K, split.y).decision_function(K_test) for C in C_SVM]
    )


def _svmroc(split: Split) -> Rows:
    K, K_test = split.kernel(split.X, split.X), split.kernel(split.X_test, split.X)
    return np.array(
        [
            SVMROC(C=C, kernel="precomputed", platt_folds=0)
            .fit(K, split.y)
            .decision_function(K_test)
            for C in C_SVM
        ]
    )


def _sslroc(norm: int) -> Callable[[Split], Rows]:
    def scores(split: Split) -> Rows:
        X, labels = split.both
        K = split.kernel(X, X)
        K_test = K[len(split.X) :]
        rows = []
        for C, M in product(C_SSL, M_SSL):
            model = SSLROC(C=C, M=M, norm=norm, kernel="precomputed", platt_folds=0)
            rows.append(model.fit(K, labels).decision_function(K_test))
        return np.array(rows)

    return scores


def _rankboost(split: Split) -> Rows:
    model = RankBoost(n_rounds=max(ROUNDS), platt_folds=0).fit(split.X, split.y)
    stages = list(model.staged_decision_function(split.X_test))
    # Boosting that has separated the pairs stops early: later rounds would change nothing.
    return np.array([stages[min(n, len(stages)) - 1] for n in ROUNDS])


def _opauc(split: Split) -> Rows:
    split = split.rotated
    return np.array(
        [
            OPAUC(eta=eta, lambda_=lam, platt_folds=0)
            .fit(split.X, split.y)
            .decision_function(split.X_test)
            for eta, lam in product(ETA_OPAUC, LAMBDA_OPAUC)
        ]
    )


def _svmlin(split: Split) -> Rows:
    split = split.rotated
    X, labels = split.both
    return np.array(
        [
            SVMLin(lambda_=lam, lambda_u=lam_u, platt_folds=0)
            .fit(X, labels)
            .decision_function(split.X_test)
            for lam, lam_u in product(LAMBDA_LIN, LAMBDA_U_LIN)
        ]
    )


def _ssrankboost(split: Split) -> Rows:
    X, labels = split.both
    return np.array(
        [
            SSRankBoost(discount=d, k=k, platt_folds=0)
            .fit(X, labels)
            .decision_function(split.X_test)
            for d, k in product(DISCOUNTS, NEIGHBOURS)
        ]
    )


def _grid(**axes: tuple[float, ...]) -> list[dict[str, float]]:
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


METHODS: dict[str, Method] = {
    "SVM": Method(_grid(C=C_SVM), _svm),
    "SVMROC": Method(_grid(C=C_SVM), _svmroc),
    "RankBoost": Method(_grid(rounds=tuple(float(n) for n in ROUNDS)), _rankboost),
    "OPAUC": Method(_grid(eta=ETA_OPAUC, lam=LAMBDA_OPAUC), _opauc),
    "SVMlin": Method(_grid(lam=LAMBDA_LIN, lam_u=LAMBDA_U_LIN), _svmlin),
    "SSRankBoost": Method(
        _grid(discount=DISCOUNTS, K=tuple(float(k) for k in NEIGHBOURS)), _ssrankboost
    ),
    "SSLROC1": Method(_grid(C=C_SSL, M=M_SSL), _sslroc(1)),
    "SSLROC2": Method(_grid(C=C_SSL, M=M_SSL), _sslroc(2)),
}
