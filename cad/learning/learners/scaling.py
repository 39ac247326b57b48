"""Scale features so that outliers have little effect: by ranks, or by standardising and
clipping.
"""

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cad.learning.learners.solvers.problem import Array, LearnerError
from cad.learning.stored import SMALLEST, Declared, floats

# Number of quantiles from which ranks are interpolated: one every 5 %. With fewer rows there is one
# quantile per row.
RANK_QUANTILES = 21
# Standardised values are clipped at this number of standard deviations, so that outliers have
# little effect.
_CLIP = 3.0
# Two quantiles of a column count as equal if their difference is below this share of the column's
# largest absolute value (without its least and largest quantile). Such a difference may be a
# rounding error.
_HAIR = 1e-9


class _Scaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Standardise features, after a method of the subclass has transformed them.

    The subclass supplies ``_learn``, which learns its transformation, and ``_scaled``, which
    applies it.
    """

    stored: ClassVar[Declared] = {
        "mean_": floats("d"),
        "scale_": floats("d", low=SMALLEST),
    }

    mean_: Array
    scale_: Array

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the scaling of each column from the rows of X, shape (n, d); ``y`` is not used."""
        rows = validate_data(self, X, dtype=np.float64)
        self._learn(rows)
        values = self._scaled(rows)
        self.mean_ = values.mean(axis=0)
        spread = values.std(axis=0)
        # A constant column is divided by 1.
        self.scale_ = np.where(spread > 0, spread, 1.0)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Return scaled rows, shape (n, d)."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return (self._scaled(rows) - self.mean_) / self.scale_

    def _learn(self, rows: Array) -> None:
        """Learn the subclass's transformation from the training rows."""
        raise NotImplementedError

    def _scaled(self, rows: Array) -> Array:
        """Return the rows after the subclass's transformation, shape (n, d)."""
        raise NotImplementedError


class RankScaler(_Scaler):
    """Replace each value by its rank among the training rows, then standardise the ranks.

    The rank is interpolated linearly between 21 quantiles of the training rows. Equal quantiles all
    get the mean of their ranks. So the rank is a continuous function of the value, and nearly equal
    values have nearly equal ranks, however many training rows have the same value.

    Attributes
    ----------
    quantiles_, ranks_ : ndarray, shape (q, d)
        Ascending values of each column and their ranks in [0, 1].
    mean_, scale_ : ndarray, shape (d,)
        Mean and standard deviation of the training rows' ranks.
    """

    stored: ClassVar[Declared] = {
        "quantiles_": floats("q", "d"),
        "ranks_": floats("q", "d", low=0.0, high=1.0),
    }

    quantiles_: Array
    ranks_: Array

    def _learn(self, rows: Array) -> None:
        """Learn the quantiles of each column and their ranks."""
        levels = np.linspace(0, 1, min(RANK_QUANTILES, len(rows)))
        self.quantiles_ = np.quantile(rows, levels, axis=0)
        # ``typical_size`` is the largest absolute value of the column, without its least and
        # largest quantile, which may be outliers.
        typical_size = np.abs(self.quantiles_[1:-1]).max(axis=0, initial=0.0)
        # Whether each quantile but the first differs from the one before.
        is_new = np.diff(self.quantiles_, axis=0) > _HAIR * typical_size
        self.ranks_ = np.repeat(levels[:, None], rows.shape[1], axis=1)
        for column in np.flatnonzero(~is_new.all(axis=0)):
            # Equal quantiles have the same number; they all get the mean of their levels.
            value_number = np.concatenate([[0], np.cumsum(is_new[:, column])])
            mean_rank = np.bincount(value_number, levels) / np.bincount(value_number)
            self.ranks_[:, column] = mean_rank[value_number]

    def _scaled(self, rows: Array) -> Array:
        # Each column is interpolated between its own quantiles.
        columns = map(np.interp, rows.T, self.quantiles_.T, self.ranks_.T)
        return np.column_stack(list(columns))

    def check_stored(self) -> None:
        """Check, on loading, that quantiles and ranks ascend, because interpolation needs it.

        Raises
        ------
        LearnerError
            Where the quantiles or ranks of a column do not ascend.
        """
        for values in (self.quantiles_, self.ranks_):
            if len(values) == 0 or (np.diff(values, axis=0) < 0).any():
                raise LearnerError("RankScaler: the quantiles of a column do not ascend")


class ClippedScaler(_Scaler):
    """Standardise values, clip them at three standard deviations, and standardise again.

    Attributes
    ----------
    center_, spread_ : ndarray, shape (d,)
        Mean and standard deviation before clipping.
    mean_, scale_ : ndarray, shape (d,)
        Mean and standard deviation of the clipped training values.
    """

    stored: ClassVar[Declared] = {
        "center_": floats("d"),
        "spread_": floats("d", low=SMALLEST),
    }

    center_: Array
    spread_: Array

    def _learn(self, rows: Array) -> None:
        self.center_ = rows.mean(axis=0)
        spread = rows.std(axis=0)
        # A constant column is divided by 1.
        self.spread_ = np.where(spread > 0, spread, 1.0)

    def _scaled(self, rows: Array) -> Array:
        return np.clip((rows - self.center_) / self.spread_, -_CLIP, _CLIP)


SCALERS: dict[str, type[_Scaler]] = {"rank": RankScaler, "clipped": ClippedScaler}
