"""Select features by scikit-learn transformers.

They are steps of a pipeline, so each fold selects on its training rows only.

The transformers accept soft labels: a region counts as malignant when y > .5, and as benign at .5
or below (docs/methods.md 6).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cad.learning.stored import Declared, floats, whole


class _Selector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Keep the ``n_features`` best columns; of equally good columns the first is kept.

    Parameters
    ----------
    n_features : int
        Number of columns to keep. If there are fewer columns, all are kept.

    Attributes
    ----------
    scores_ : ndarray, shape (d,)
        Score of every column; larger is better.
    order_ : ndarray of int, shape (min(n_features, d),)
        Indices of the kept columns, best first.
    """

    stored: ClassVar[Declared] = {
        "scores_": floats("d"),
        "order_": whole("chosen", below="d"),
    }

    def __init__(self, n_features: int = 20) -> None:
        self.n_features = n_features

    def fit(self, X: ArrayLike, y: ArrayLike) -> _Selector:
        """Choose columns of X, shape (n, d), for labels y, shape (n,), in [0, 1].

        Raises
        ------
        ValueError
            If all labels are of one class, or if X holds NaN.
        """
        values, positive = self._checked(X, y)
        self.scores_, self.order_ = self._rank(values, positive)
        return self

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the checked values of X, and whether each row is malignant."""
        if self.n_features < 1:
            raise ValueError(f"n_features must be at least 1, found {self.n_features}")
        values, labels = validate_data(self, X, y, dtype=float)
        positive = np.asarray(labels, dtype=float) > 0.5
        if positive.all() or not positive.any():
            raise ValueError("feature selection needs both classes, found only one class")
        return values, positive

    def _rank(self, X: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the score of every column, and the indices of the columns to keep, best first."""
        scores = self._scores(X, positive)
        return scores, np.argsort(-scores, kind="stable")[: self.n_features]

    def _scores(self, X: np.ndarray, positive: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _get_support_mask(self) -> np.ndarray:
        """Return whether each column is kept; scikit-learn calls this method."""
        check_is_fitted(self)
        mask = np.zeros(len(self.scores_), dtype=bool)
        mask[self.order_] = True
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class TTestSelector(_Selector):
    """Keep the columns whose means differ most between the classes, by Welch's t.

    Rows whose label is above .5 are the malignant class.

    Parameters
    ----------
    n_features : int
        Number of columns to keep.
    """

    def _scores(self, X: np.ndarray, positive: np.ndarray) -> np.ndarray:
        return welch_t(X, positive)


class MutualInformationSelector(_Selector):
    """Keep the columns with the largest mutual information with the class: label above .5, or not.

    The values of each column are first put into quantile groups of about equal size.

    Parameters
    ----------
    n_features : int
        Number of columns to keep.
    bins : int
        Number of quantile groups of each column.
    """

    def __init__(self, n_features: int = 20, bins: int = 5) -> None:
        super().__init__(n_features)
        self.bins = bins

    def _scores(self, X: np.ndarray, positive: np.ndarray) -> np.ndarray:
        codes = quantile_codes(X, self.bins)
        return column_information(codes, positive.astype(int), self.bins)


class MRMRSelector(MutualInformationSelector):
    """Keep columns by maximum relevance and minimum redundancy (mRMR, Peng et al. 2005).

    Columns are added one by one. The next column is the one with the largest difference: its mutual
    information with the class, minus its mean mutual information with the columns that were added
    before.

    Parameters
    ----------
    n_features, bins : int
        Number of columns to keep, and number of quantile groups of each column.
    """

    def _rank(self, X: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every column's information on the class, and the chosen columns, first to last."""
        codes = quantile_codes(X, self.bins)
        relevance = column_information(codes, positive.astype(int), self.bins)
        redundancy = np.zeros_like(relevance)
        chosen: list[int] = []
        for chosen_before in range(min(self.n_features, X.shape[1])):
            # ``redundancy`` is a sum over the columns chosen before; at first there is none.
            gain = relevance - redundancy / max(chosen_before, 1)
            # No column is chosen twice.
            gain[chosen] = -np.inf
            best = int(np.argmax(gain))
            chosen.append(best)
            redundancy += column_information(codes, codes[:, best], self.bins)
        return relevance, np.array(chosen)


class StabilitySelector(_Selector):
    """Keep the columns that a t-test keeps most often in random halves of the patients.

    The method is that of Meinshausen & Buhlmann (2010), with a t-test in place of the lasso.
    Columns that are kept equally often are ordered by the t-test on all rows.

    Parameters
    ----------
    n_features : int
        Number of columns to keep, in every half and in the end.
    resamples : int
        Number of random halves of the patients.
    random_state : int
        Seed of the random halves.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(self, n_features: int = 20, resamples: int = 50, random_state: int = 0) -> None:
        super().__init__(n_features)
        self.resamples = resamples
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> StabilitySelector:
        """Choose the columns that are chosen most often on random halves of the patients; return
        self.

        Parameters
        ----------
        X : array, shape (n, d)
            Features, without NaN.
        y : array, shape (n,)
            Labels in [0, 1]; above .5 is malignant.
        groups : array, shape (n,), optional
            The patient of every row; all rows of a patient are in the same half. Without groups
            every row counts as a patient of its own.
        """
        values, positive = self._checked(X, y)
        patient_of_row = np.arange(len(values)) if groups is None else np.asarray(groups)
        patients, patient_code = np.unique(patient_of_row, return_inverse=True)
        rng = np.random.default_rng(self.random_state)
        times_chosen = np.zeros(values.shape[1])
        for _ in range(self.resamples):
            # Half of the patients; of an odd number, the larger half.
            drawn_patients = rng.permutation(len(patients))[: (len(patients) + 1) // 2]
            in_half = np.isin(patient_code, drawn_patients)
            # A half of one class only chooses nothing.
            if positive[in_half].all() or not positive[in_half].any():
                continue
            t_of_half = welch_t(values[in_half], positive[in_half])
            best_columns = np.argsort(-t_of_half, kind="stable")[: self.n_features]
            times_chosen[best_columns] += 1
        self.scores_ = times_chosen / self.resamples
        # Columns that were chosen most often come first. Among equally frequent columns, the one
        # with the larger t statistic comes first.
        t = welch_t(values, positive)
        self.order_ = np.lexsort((-t, -self.scores_))[: self.n_features]
        return self


SELECTORS: dict[str, type[_Selector]] = {
    "t-test": TTestSelector,
    "mutual-information": MutualInformationSelector,
    "mrmr": MRMRSelector,
    "stability": StabilitySelector,
}


def welch_t(X: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return the absolute value of Welch's t between the two classes, for every column.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Without NaN.
    positive : ndarray of bool, shape (n,)
        Whether each row is malignant.

    Returns
    -------
    ndarray, shape (d,)
        0 for a constant column, and with fewer than two rows of a class.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 2.0], [5.0, 1.0], [6.0, 2.0]])
    >>> t = welch_t(X, np.array([False, False, True, True]))
    >>> bool(t[0] > 5), float(t[1])
    (True, 0.0)
    """
    malignant = X[positive]
    benign = X[~positive]
    # One row has no variance.
    if min(len(malignant), len(benign)) < 2:
        return np.zeros(X.shape[1])
    malignant_variance = malignant.var(axis=0, ddof=1) / len(malignant)
    benign_variance = benign.var(axis=0, ddof=1) / len(benign)
    difference = np.abs(malignant.mean(axis=0) - benign.mean(axis=0))
    largest_value = np.abs(X).max(axis=0, initial=0.0)
    standard_error = np.sqrt(malignant_variance + benign_variance)
    # A constant column varies only by rounding errors, which grow with its values.
    usable = standard_error > 1e-12 * largest_value
    statistic: np.ndarray = np.divide(
        difference, standard_error, out=np.zeros(X.shape[1]), where=usable
    )
    return statistic


def quantile_codes(X: np.ndarray, bins: int) -> np.ndarray:
    """Return for each value the number of its quantile group, within its column.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Values.
    bins : int
        Number of quantile groups of each column; they have about equally many values.

    Returns
    -------
    ndarray of int, shape (n, d)
        Numbers from 0 to ``bins - 1``.

    Examples
    --------
    >>> import numpy as np
    >>> quantile_codes(np.array([[1.0], [2.0], [3.0], [4.0]]), bins=2).ravel().tolist()
    [0, 0, 1, 1]
    """
    edges = np.quantile(X, np.linspace(0, 1, bins + 1)[1:-1], axis=0)
    # The number of a value's group is the number of edges below the value.
    return np.asarray((X[None, :, :] > edges[:, None, :]).sum(axis=0))


def column_information(codes: np.ndarray, other: np.ndarray, bins: int) -> np.ndarray:
    """Return the mutual information, in nats, of every column with a vector, shape (d,).

    It is estimated from the numbers of rows with each pair of values.

    Parameters
    ----------
    codes : ndarray of int, shape (n, d)
        Quantile groups from 0 to ``bins - 1``.
    other : ndarray of int, shape (n,)
        The vector, with numbers from 0 to ``bins - 1``.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> column_information(codes, np.array([0, 0, 1, 1]), bins=2).round(3).tolist()
    [0.693, 0.0]
    """
    rows, columns = codes.shape
    # Each column gets numbers of its own, so that all columns are counted at once.
    shifted_codes = codes + bins * np.arange(columns)
    counts = np.empty((bins, columns * bins))
    for value in range(bins):
        counts[value] = np.bincount(shifted_codes[other == value].ravel(), minlength=columns * bins)
    # The axes are the vector's value, the column, and the column's value. The expected shares are
    # those of a column and a vector that are independent.
    shares = counts.reshape(bins, columns, bins) / rows
    expected_shares = shares.sum(axis=0, keepdims=True) * shares.sum(axis=2, keepdims=True)
    # A pair of values that does not occur adds nothing; the logarithm of 1 is 0.
    ratio = np.divide(shares, expected_shares, out=np.ones_like(shares), where=shares > 0)
    return np.asarray((shares * np.log(ratio)).sum(axis=(0, 2)))
