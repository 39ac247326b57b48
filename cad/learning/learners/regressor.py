"""Wrap a learner of probabilities as a scikit-learn regressor that predicts these probabilities."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from cad.learning.learners.base import as_probabilities, soft_score
from cad.learning.learners.solvers.problem import Array


class ProbabilityRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a learner as a regressor whose prediction is the probability of the positive class.

    scikit-learn's ``cross_val_predict`` turns the labels of a classifier into integers, which
    destroys soft labels. It leaves the labels of a regressor as they are.

    Parameters
    ----------
    estimator : estimator
        Any learner from soft labels, or a pipeline that ends in one. ``fit`` fits a clone of it.
        Arguments of ``fit`` that the learner requests by ``set_fit_request`` are passed to it.

    Attributes
    ----------
    estimator_ : estimator
        The fitted learner.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_predict
    >>> from cad.learners import ProbabilisticSVC, ProbabilityRegressor
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> p = np.round(4 / (1 + np.exp(-3 * X[:, 0]))) / 4
    >>> q = cross_val_predict(ProbabilityRegressor(ProbabilisticSVC(C=10)), X[::-1], p[::-1])
    >>> q.shape, bool(((q > 0) & (q < 1)).all())
    ((24,), True)
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit a clone of the learner to X and y; return this object.

        ``fit_params`` are passed to the learner's ``fit``. If scikit-learn's metadata routing is
        enabled, it decides which of them are passed.
        """
        if fit_params and get_config()["enable_metadata_routing"]:
            fit_params = process_routing(self, "fit", **fit_params).estimator.fit
        self.estimator_ = clone(self.estimator)
        self.estimator_.fit(X, y, **fit_params)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Return the probability of the positive class, shape (n,)."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))[:, 1]

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the mean cross-entropy of the labels ``y`` (classes or probabilities).

        Larger is better.
        """
        q = self.predict(X)
        target = as_probabilities(y, self.estimator_.classes_)
        return soft_score(target, q, sample_weight)

    @property
    def n_features_in_(self) -> int:
        """Return the number of features that the learner was fitted on."""
        return int(self.estimator_.n_features_in_)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return scikit-learn's router, which passes parameters of ``fit`` on to the learner."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # a high cross-entropy may be normal, so scikit-learn's checks must not ask for a good score
        tags.regressor_tags.poor_score = True
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags
