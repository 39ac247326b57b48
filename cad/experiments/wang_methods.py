"""The eight methods of [W14] with their grids: scores of test rows for every grid point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from sklearn.svm import SVC

from cad.learners.ranking.opauc import opauc_path
from cad.learners.ranking.rankboost import RankBoost
from cad.learners.ranking.ssrankboost import SSRankBoost, neighbour_ranks
from cad.learners.ranking.svmlin import SVMLin
from cad.learners.solvers.pairwise import PairwiseProblem, kernel_factor, solve_pairwise

Rows = np.ndarray


@dataclass(frozen=True)
class Split:
    """Hold training rows, their labels and test rows; kernels are made once for all grid points.

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
        """Return training and test rows with the labels 1, 0 and -1 (unlabelled)."""
        labels = np.concatenate([self.y, np.full(len(self.X_test), -1.0)])
        return np.vstack([self.X, self.X_test]), labels

    @property
    def rotated(self) -> Split:
        """Return the rows in coordinates of their own span, where features outnumber rows.

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
        """Return the RBF kernel matrix."""
        square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        kernel: np.ndarray = np.exp(-self.gamma * np.maximum(square, 0.0))
        return kernel


Point = dict[str, float]


Scores = Callable[[Split, list[Point]], Rows]
"""From a split and points of a grid to scores, shape (len(points), n_test); NaN where refused."""


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


def _svm(split: Split, points: list[Point]) -> Rows:
    K, K_test = split.kernel(split.X, split.X), split.kernel(split.X_test, split.X)
    return np.array(
        [
            SVC(C=point["C"], kernel="precomputed").fit(K, split.y).decision_function(K_test)
            for point in points
        ]
    )


def _svmroc(split: Split, points: list[Point]) -> Rows:
    order = np.argsort(-split.y, kind="stable")
    X = split.X[order]
    problem = _pairs(split, kernel_factor(split.kernel(X, X)), margin=1.0, norm=1)
    K_test = split.kernel(split.X_test, X)
    costs = [point["C"] for point in points]
    return np.array([K_test @ solve_pairwise(problem.with_costs(C, C)).beta for C in costs])


def _sslroc(norm: int) -> Scores:
    def scores(split: Split, points: list[Point]) -> Rows:
        X = np.vstack([split.X[np.argsort(-split.y, kind="stable")], split.X_test])
        factor = kernel_factor(split.kernel(X, X))
        rows = []
        for point in points:
            problem = _pairs(split, factor, point["M"], norm)
            # A pair costs C / 2 in [W14] (3).
            half = point["C"] / 2.0
            rows.append(solve_pairwise(problem.with_costs(half, half)).f[len(split.X) :])
        return np.array(rows)

    return scores


def _pairs(split: Split, factor: Rows, margin: float, norm: int) -> PairwiseProblem:
    """Return the pairs of a split whose kernel is factored, positives first, test rows last."""
    n_positive = int(split.y.sum())
    return PairwiseProblem(
        factor=factor,
        n_positive=n_positive,
        n_negative=len(split.y) - n_positive,
        weight=np.ones(len(factor)),
        labelled_cost=1.0,
        unlabelled_cost=1.0,
        margin=margin,
        norm=norm,
    )


def _rankboost(split: Split, points: list[Point]) -> Rows:
    model = RankBoost(n_rounds=max(ROUNDS), platt_folds=0).fit(split.X, split.y)
    # One fit of the most rounds holds the scores after every smaller number of them.
    stages = list(model.staged_decision_function(split.X_test))
    return np.array([stages[int(point["rounds"]) - 1] for point in points])


def _opauc(split: Split, points: list[Point]) -> Rows:
    # Some tables are sorted by class; one pass over them has to be in random order.
    order = np.random.default_rng(0).permutation(len(split.y))
    X, sign, one = split.X[order], np.where(split.y == 1, 1.0, -1.0)[order], np.ones(len(order))
    etas, lams = sorted({p["eta"] for p in points}), sorted({p["lam"] for p in points})
    coef, _ = opauc_path(X, sign, one, etas, lams)
    rows = [coef[etas.index(p["eta"]), lams.index(p["lam"])] for p in points]
    scores: Rows = np.array(rows) @ split.X_test.T
    return scores


def _svmlin(split: Split, points: list[Point]) -> Rows:
    X, labels = split.rotated.both
    n = len(split.X)
    return np.array(
        [
            SVMLin(lambda_=point["lam"], lambda_u=point["lam_u"], platt_folds=0)
            .fit(X, labels)
            .decision_function(X[n:])
            for point in points
        ]
    )


def _ssrankboost(split: Split, points: list[Point]) -> Rows:
    X, labels = split.both
    sign = np.select([labels == 1, labels == 0], [1.0, -1.0], 0.0)
    fits: dict[tuple[float, bytes], Rows] = {}
    rows = []
    for point in points:
        d, k = point["discount"], int(point["K"])
        # Fits are equal where the same rows got the same ranks, or no weight.
        key = d, neighbour_ranks(X, sign, k).tobytes() if d > 0 else b""
        if key not in fits:
            model = SSRankBoost(discount=d, k=k, platt_folds=0).fit(X, labels)
            fits[key] = model.decision_function(split.X_test)
        rows.append(fits[key])
    return np.array(rows)


def _grid(**axes: tuple[float, ...]) -> list[Point]:
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


METHODS: dict[str, tuple[list[Point], Scores]] = {
    "SVM": (_grid(C=C_SVM), _svm),
    "SVMROC": (_grid(C=C_SVM), _svmroc),
    "RankBoost": (_grid(rounds=tuple(float(n) for n in ROUNDS)), _rankboost),
    "OPAUC": (_grid(eta=ETA_OPAUC, lam=LAMBDA_OPAUC), _opauc),
    "SVMlin": (_grid(lam=LAMBDA_LIN, lam_u=LAMBDA_U_LIN), _svmlin),
    "SSRankBoost": (_grid(discount=DISCOUNTS, K=tuple(float(k) for k in NEIGHBOURS)), _ssrankboost),
    "SSLROC1": (_grid(C=C_SSL, M=M_SSL), _sslroc(1)),
    "SSLROC2": (_grid(C=C_SSL, M=M_SSL), _sslroc(2)),
}
