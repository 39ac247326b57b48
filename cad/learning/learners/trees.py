"""Provide extremely randomised trees for soft labels, stored as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.tree import ExtraTreeRegressor

from cad.learning.learners.averaged import CLIP
from cad.learning.learners.base import SoftLearner
from cad.learning.learners.solvers.problem import Array
from cad.learning.stored import Declared, check_trees, floats, whole


@dataclass(eq=False, repr=False)
class SoftExtraTrees(SoftLearner):
    """Learn soft labels p by extremely randomised trees (Geurts, Ernst and Wehenkel 2006).

    The mean of the trees' predictions is the prediction. scikit-learn grows the trees. They are
    kept as arrays of nodes, which a bundle (a stored model) can hold.

    Parameters
    ----------
    trees : int
        Number of trees.
    min_leaf : int
        Least number of rows of a leaf.
    max_features : float
        Share of the features that are candidates at each node.
    share : float
        Share of the patients that each tree is grown on.
    seed : int
        Seed of the random thresholds, and of the random draw of patients for each tree.

    Attributes
    ----------
    roots_ : ndarray of int, shape (trees,)
        Node where each tree begins.
    features_, left_, right_ : ndarray of int, shape (nodes,)
        The column that each node compares with its threshold. The next node is ``left_`` if the
        value is at most the threshold, and ``right_`` if it is above. Both next nodes of a leaf are
        the leaf itself.
    thresholds_, values_ : ndarray, shape (nodes,)
        Threshold of each node, and mean p of the training rows that reach it.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SoftExtraTrees
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> p = np.where(X[:, 0] > 0, 0.9, 0.2)
    >>> model = SoftExtraTrees(trees=10).fit(X, p)
    >>> low, high = model.predict_proba([[-2.0], [2.0]])[:, 1]
    >>> bool(low < 0.4 < 0.7 < high)
    True
    """

    stored: ClassVar[Declared] = {
        "roots_": whole("trees", below="nodes", bits=32),
        "features_": whole("nodes", below="d", bits=32),
        "left_": whole("nodes", below="nodes", bits=32),
        "right_": whole("nodes", below="nodes", bits=32),
        "thresholds_": floats("nodes"),
        "values_": floats("nodes", low=0.0, high=1.0),
    }

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    trees: int = 100
    min_leaf: int = 3
    max_features: float = 1.0
    share: float = 1.0
    seed: int = 0

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Grow the trees.

        Parameters
        ----------
        X : array, shape (n, d)
            Features.
        y : array, shape (n,)
            Two classes, or probabilities in [0, 1].
        eta : ignored
            This learner does not use the labels' uncertainty. The argument is there so that
            learners can be exchanged.
        sample_weight : array, shape (n,), optional
            How much each row counts.
        groups : array, shape (n,), optional
            Patient of every row, to draw a ``share`` of the patients. When not given, every row
            counts as another patient.
        """
        self._fit_inside(X, y, sample_weight, groups, judged=False)
        return self

    def _fit_inside(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
        judged: bool = True,
    ) -> Array:
        """Grow the trees and store them, and predict each row by trees that have not seen it.

        Each tree is grown on the rows of some of the patients, if ``share`` is below 1. For a
        patient, the trees that were grown without him predict as for a new patient. So
        :class:`cad.learners.ProbabilisticEnsemble` can weigh the trees without growing them again
        for each fold.

        Parameters
        ----------
        X, y, sample_weight, groups
            As for :meth:`fit`.
        judged : bool
            Whether the predictions are wanted.

        Returns
        -------
        ndarray, shape (n,)
            Mean prediction of the trees that were grown without the row's patient. NaN where every
            tree was grown with him, and in every row if ``judged`` is false.
        """
        features, p, weight = self._read(X, y, sample_weight)
        # scikit-learn grows trees on single-precision numbers.
        rows = features.astype(np.float32)
        n_rows = len(p)
        owner = np.arange(n_rows) if groups is None else np.asarray(groups)
        patient = np.unique(owner, return_inverse=True)[1]
        random = np.random.RandomState(self.seed)

        trees = []
        sum_of_predictions = np.zeros(n_rows)
        n_predictions = np.zeros(n_rows)
        for _ in range(self.trees):
            grower = ExtraTreeRegressor(
                min_samples_leaf=self.min_leaf,
                max_features=self.max_features,
                random_state=random.randint(np.iinfo(np.int32).max),
            )
            is_drawn = self._drawn_rows(patient, weight, random)
            # ``_read`` has checked the rows; scikit-learn would check them again for every tree.
            with config_context(skip_parameter_validation=True, assume_finite=True):
                tree = grower.fit(rows, p, weight * is_drawn, check_input=False).tree_
            trees.append(tree)
            if judged and not is_drawn.all():
                prediction = tree.predict(rows)[:, 0]
                sum_of_predictions += np.where(is_drawn, 0.0, prediction)
                n_predictions += ~is_drawn

        for name, array in flatten(trees).items():
            setattr(self, name, array)
        self.values_ = np.concatenate([tree.value[:, 0, 0] for tree in trees])
        mean = np.full(n_rows, np.nan)
        np.divide(sum_of_predictions, n_predictions, out=mean, where=n_predictions > 0)
        return mean

    def _drawn_rows(
        self, patient: NDArray[np.intp], weight: Array, random: np.random.RandomState
    ) -> NDArray[np.bool_]:
        """Draw the patients of a tree, and tell which rows are theirs, shape (n,).

        All rows are drawn if ``share`` is 1. This is also so if all drawn rows have weight 0,
        because no tree could grow on them.
        """
        n_patients = int(patient.max()) + 1
        n_drawn = n_patients
        if self.share != 1:
            # At least one patient is left out, so that the tree can predict him.
            n_drawn = min(n_patients - 1, max(1, round(self.share * n_patients)))
        if n_drawn == n_patients:
            return np.ones(len(patient), dtype=bool)
        drawn_patients = random.permutation(n_patients)[:n_drawn]
        is_drawn = np.isin(patient, drawn_patients)
        if not (weight[is_drawn] > 0).any():
            return np.ones(len(patient), dtype=bool)
        return is_drawn

    def _probability(self, X: Array) -> Array:
        # scikit-learn grows trees on single-precision numbers, so rows are compared in single
        # precision.
        rows = np.ascontiguousarray(X, dtype=np.float32)
        nodes = (self.features_, self.thresholds_, self.left_, self.right_, self.values_)
        mean = walk(rows, self.roots_, *nodes) / len(self.roots_)
        return np.clip(mean, CLIP, 1 - CLIP)

    def check_stored(self) -> None:
        """Check, on loading, that a walk through the trees stays within them and ends
        (:func:`cad.learning.stored.check_trees`).
        """
        check_trees(self.roots_, self.left_, self.right_, type(self).__name__)


def flatten(trees: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return the nodes of scikit-learn's trees as arrays, with the names of
    :class:`SoftExtraTrees`.

    Parameters
    ----------
    trees : sequence of sklearn.tree._tree.Tree
        Fitted trees; the sequence may be empty.

    Returns
    -------
    dict of str to ndarray
        ``roots_`` (int32) has shape (n_trees,). ``features_, left_, right_`` (int32) and
        ``thresholds_`` have one number for each node of all trees, shape (n_nodes,). ``values_`` is
        not among them.
    """
    sizes = np.array([tree.node_count for tree in trees], dtype=int)
    roots = np.cumsum(sizes) - sizes
    root_of_node = np.repeat(roots, sizes)
    node_number = np.arange(sizes.sum())

    def together(name: str) -> NDArray[Any]:
        """Return an array of every tree's nodes, one tree after another."""
        # The empty array comes first, because there may be no tree.
        return np.concatenate([np.empty(0), *(getattr(tree, name) for tree in trees)])

    left = together("children_left")
    right = together("children_right")
    integers = {
        "roots_": roots,
        # scikit-learn marks leaves by negative numbers. A leaf compares no column, so its column
        # may be any, and is 0. Its next node is the leaf itself. The nodes of a tree are numbered
        # from its root.
        "features_": np.maximum(together("feature"), 0),
        "left_": np.where(left < 0, node_number, left + root_of_node),
        "right_": np.where(right < 0, node_number, right + root_of_node),
    }
    nodes = {name: values.astype(np.int32) for name, values in integers.items()}
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
    """Return for each row the sum over all trees of the value of the leaf that it reaches, shape
    (n,).

    Parameters
    ----------
    rows : ndarray of float32, shape (n, d)
        Rows to predict.
    roots : ndarray of int, shape (n_trees,)
        Node where each tree begins.
    features, thresholds : ndarray, shape (n_nodes,)
        A row goes left where the node's feature is at most the node's threshold.
    left, right : ndarray of int, shape (n_nodes,)
        Next nodes of each node; for a leaf both are its own number.
    values : ndarray, shape (n_nodes,)
        Value of each node; only the values of leaves are used.

    Examples
    --------
    The only tree compares the only feature once, with the threshold .5:

    >>> import numpy as np
    >>> rows = np.array([[0.2], [0.8]], np.float32)
    >>> features = np.zeros(3, np.int32)
    >>> left = np.array([1, 1, 2], np.int32)
    >>> right = np.array([2, 1, 2], np.int32)
    >>> values = np.array([0.0, 10.0, 20.0])
    >>> roots = np.zeros(1, np.int32)
    >>> walk(rows, roots, features, np.array([0.5, 0.0, 0.0]), left, right, values).tolist()
    [10.0, 20.0]
    """
    total = np.zeros(len(rows))
    for i in range(len(rows)):
        for root in roots:
            node = root
            while left[node] != node:
                node = left[node] if rows[i, features[node]] <= thresholds[node] else right[node]
            total[i] += values[node]
    return total
