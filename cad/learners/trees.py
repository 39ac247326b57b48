"""Extremely randomised trees on p, kept as plain arrays, and their average with the P-SVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import ExtraTreesRegressor

from cad.learners.averaged import AveragedProbabilisticSVC
from cad.learners.base import SoftLearner
from cad.learners.solvers.problem import Array

# Three regions that agree make no certainty: a probability of 0 would be infinitely wrong once.
_CLIP = 0.01


class SoftExtraTrees(SoftLearner):
    """Average extremely randomised regression trees of p (Geurts, Ernst and Wehenkel 2006).

    scikit-learn grows them; what is kept are arrays of nodes, which a bundle can hold.

    Parameters
    ----------
    trees : int
    min_leaf : int
        Regions of a leaf, at least.
    max_features : float
        Share of the features that a node draws cuts of.
    seed : int
        Of the cuts.

    Attributes
    ----------
    roots_ : ndarray of int, shape (trees,)
        Node where each tree begins.
    features_, left_, right_ : ndarray of int, shape (nodes,)
        Column that a node asks for, and the next node where the value is at most its threshold, or
        above; a leaf is its own next node.
    thresholds_, values_ : ndarray, shape (nodes,)
        Threshold, and mean p of the training rows at the node.
    """

    def __init__(
        self, trees: int = 100, min_leaf: int = 3, max_features: float = 1.0, seed: int = 0
    ) -> None:
        self.trees = trees
        self.min_leaf = min_leaf
        self.max_features = max_features
        self.seed = seed

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to two classes or probabilities, shape (n,); ``eta`` is accepted and not used."""
        rows, p, weight = self._read(X, y, sample_weight)
        forest = ExtraTreesRegressor(
            self.trees,
            min_samples_leaf=self.min_leaf,
            max_features=self.max_features,
            random_state=self.seed,
        ).fit(rows, p, weight)
        grown = [tree.tree_ for tree in forest.estimators_]
        for name, array in flatten(grown).items():
            setattr(self, name, array)
        self.values_ = np.concatenate([tree.value[:, 0, 0] for tree in grown])
        return self

    def _probability(self, X: Array) -> Array:
        # scikit-learn cuts numbers of single precision.
        rows = np.ascontiguousarray(X, dtype=np.float32)
        nodes = (self.features_, self.thresholds_, self.left_, self.right_, self.values_)
        mean = walk(rows, self.roots_, *nodes) / len(self.roots_)
        return np.clip(mean, _CLIP, 1 - _CLIP)


def flatten(trees: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return the nodes of scikit-learn's trees as arrays, by the names of :class:`SoftExtraTrees`.

    Parameters
    ----------
    trees : sequence of sklearn.tree._tree.Tree
        None is one of no nodes.

    Returns
    -------
    dict of str to ndarray
        ``roots_, features_, left_, right_`` (int32) and ``thresholds_``; values are the caller's.
    """
    sizes = np.array([tree.node_count for tree in trees], dtype=int)
    roots = np.cumsum(sizes) - sizes
    first, every = np.repeat(roots, sizes), np.arange(sizes.sum())

    def together(name: str) -> NDArray[Any]:
        return np.concatenate([np.empty(0), *(getattr(tree, name) for tree in trees)])

    left, right = together("children_left"), together("children_right")
    whole = {
        "roots_": roots,
        # A leaf asks for no column and is its own next node.
        "features_": np.maximum(together("feature"), 0),
        "left_": np.where(left < 0, every, left + first),
        "right_": np.where(right < 0, every, right + first),
    }
    nodes = {name: values.astype(np.int32) for name, values in whole.items()}
    return {**nodes, "thresholds_": together("threshold")}


@njit(cache=True, nogil=True)
def walk(
    rows: NDArray[np.float32],
    roots: NDArray[np.int32],
    features: NDArray[np.int32],
    thresholds: Array,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    values: Array,
) -> Array:
    """Return the summed values of the leaves that each row falls into, shape (n,)."""
    total = np.zeros(len(rows))
    for i in range(len(rows)):
        for root in roots:
            node = root
            while left[node] != node:
                below = rows[i, features[node]] <= thresholds[node]
                node = left[node] if below else right[node]
            total[i] += values[node]
    return total


class ProbabilisticEnsemble(AveragedProbabilisticSVC):
    """Average the log-odds of the averaged P-SVM and of extremely randomised trees on p.

    The two err differently: one is smooth in all features, the other cuts single ones. Both count
    alike.

    Parameters
    ----------
    C, gamma, eta0, kappa, scaling, boundary, folds, drop, solver, tol
        As :class:`AveragedProbabilisticSVC`.
    trees, min_leaf, max_features
        As :class:`cad.learners.SoftExtraTrees`.

    Attributes
    ----------
    trees_ : SoftExtraTrees
        The fitted trees; all else is of the P-SVM, as in :class:`AveragedProbabilisticSVC`.
    """

    def __init__(
        self,
        *,
        C: float | Sequence[float] = (0.3, 3.0),
        gamma: float | Sequence[float] = (0.1, 0.3, 1.0),
        eta0: float | Sequence[float] = (0.02, 0.05, 0.125),
        kappa: float | Sequence[float] = (0.0, 0.5, 1.0),
        scaling: str | Sequence[str] = ("rank", "clipped"),
        boundary: Any = "drop",
        folds: int = 5,
        drop: float = 0.01,
        solver: str = "auto",
        tol: float = 1e-5,
        trees: int = 100,
        min_leaf: int = 3,
        max_features: float = 1.0,
    ) -> None:
        super().__init__(
            C=C, gamma=gamma, eta0=eta0, kappa=kappa, scaling=scaling, boundary=boundary,
            folds=folds, drop=drop, solver=solver, tol=tol,
        )  # fmt: skip
        self.trees = trees
        self.min_leaf = min_leaf
        self.max_features = max_features

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit both members; parameters and errors as :meth:`AveragedProbabilisticSVC.fit`."""
        super().fit(X, y, eta, sample_weight, groups)
        trees = SoftExtraTrees(self.trees, self.min_leaf, self.max_features)
        self.trees_ = trees.fit(np.asarray(X, dtype=float), y, sample_weight=sample_weight)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return averaged log-odds, shape (n,)."""
        smooth = super().decision_function(X)
        both: Array = (smooth + self.trees_.decision_function(np.asarray(X, dtype=float))) / 2
        return both
