"""Choose hyper-parameters inside a fold, by inner folds that leave out whole patients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from cad.learning.evaluation.folds import ask, crossval
from cad.learning.evaluation.folds.unlabelled import UNLABELLED
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.scorers import mean_kl, soft_log_loss

_Loss = Callable[[np.ndarray, np.ndarray], float]


CRITERIA: dict[str, _Loss] = {
    "cross-entropy": metrics.cross_entropy,
    "brier": metrics.brier,
    "kl": mean_kl,
    "auc": lambda y, q: 1 - metrics.auc(metrics.consensus_truth(y)[0], q),
}


@dataclass(eq=False, repr=False)
class PatientGridSearch(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Choose parameters from a grid on inner folds that leave out whole patients.

    Parameters
    ----------
    estimator : estimator or pipeline
        Unfitted.
    grid : dict of str to list
        Values to try, for each parameter of the estimator by its name. For a pipeline a name is a
        parameter of its last step, or is written ``step__name``. Of equally good points the first
        in the order of the grid is chosen, so list simple values first.
    criterion : {"cross-entropy", "auc", "kl", "brier"}
        Loss by which points are compared. Cross-entropy, two-sided Kullback-Leibler divergence
        (``kl``) and Brier score compare the probability with the soft label; ``auc`` compares the
        order of the rows with labels above and below .5. The loss is averaged over the inner folds.
    n_folds : int
        Number of inner folds; all rows of a patient are in one fold.

    Attributes
    ----------
    best_params_ : dict
        The chosen parameters.
    best_estimator_ : estimator
        The estimator with these parameters, fitted on all rows.
    losses_ : ndarray, shape (n_points,)
        Mean loss of each grid point over the inner folds (1 - AUC for ``auc``); infinite if a fit
        failed.
    points_ : list of dict
        Grid points in the order of ``losses_``.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"eta": True, "groups": True}

    estimator: Any
    grid: dict[str, list[Any]]
    criterion: str = "cross-entropy"
    n_folds: int = 5

    def fit(
        self, X: Any, y: ArrayLike, eta: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> PatientGridSearch:
        """Choose the parameters on inner folds, then fit to all rows.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Features.
        y : array, shape (n,)
            Labels in [0, 1]; for a semi-supervised estimator also -1, which stands for unlabelled.
        eta : array, shape (n,), or float, optional
            Uncertainty of y, passed to every ``fit`` that takes it.
        groups : array, shape (n,), optional
            Patient of every row; when not given, every row counts as a patient of its own.

        Raises
        ------
        ValueError
            For an unknown criterion, for fewer than two patients, and if no grid point could be
            fitted.
        """
        if self.criterion not in CRITERIA:
            raise ValueError(f"criterion {self.criterion!r} is none of {', '.join(CRITERIA)}")
        # scikit-learn's checks of estimators expect this message.
        if y is None:
            raise ValueError("PatientGridSearch requires y to be passed, but the target y is None")
        X = self._checked(X)
        labels = np.asarray(y, dtype=float)
        uncertainty = None if eta is None else np.broadcast_to(np.asarray(eta, float), labels.shape)
        patient_of_row = np.arange(len(labels)) if groups is None else np.asarray(groups)
        n_patients = len(np.unique(patient_of_row))
        if n_patients < 2:
            raise ValueError("nested validation needs at least two patients to train on")
        self.points_ = []
        for values in product(*self.grid.values()):
            self.points_.append(dict(zip(self.grid, values, strict=True)))
        # All grid points use the same folds, so that their losses can be compared fold by fold.
        splits = GroupKFold(min(self.n_folds, n_patients)).split(labels, groups=patient_of_row)
        losses_of_folds = []
        for train, test in splits:
            losses_of_folds.append(
                _fold_losses(self, X, labels, uncertainty, patient_of_row, train, test)
            )
        losses = np.array(losses_of_folds)
        # The loss of a fold cannot be computed for an AUC if the fold has one class only. Such a
        # fold is left out for all grid points.
        losses = losses[~np.isnan(losses).any(axis=1)]
        # A grid point that failed in any fold has an infinite mean.
        if len(losses) == 0 or not np.isfinite(losses.mean(axis=0)).any():
            reason = _error_of_fit(self, X, labels, uncertainty, patient_of_row)
            raise ValueError(
                "no grid point could be fitted and measured in the inner folds: "
                f"{len(self.points_)} points tried{reason}"
            )
        self.losses_ = losses.mean(axis=0)
        # Of equal losses ``argmin`` takes the first.
        self.best_params_ = self.points_[int(np.argmin(self.losses_))]
        self.best_estimator_ = with_params(self.estimator, self.best_params_)
        keywords = crossval.fit_keywords(self.best_estimator_, uncertainty, patient_of_row)
        self.best_estimator_.fit(X, labels, **keywords)
        self.classes_ = getattr(self.best_estimator_, "classes_", np.array([0, 1]))
        return self

    @available_if(lambda self: self._has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the chosen estimator's probabilities of the two classes, shape (n, 2)."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict_proba(X))

    @available_if(lambda self: self._has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the chosen estimator's decision values, shape (n,)."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.decision_function(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the chosen estimator's classes, shape (n,)."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the mean cross-entropy of the chosen estimator, in nats: larger is better.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Features.
        y : array, shape (n,)
            Labels in [0, 1], soft or hard.
        sample_weight : array, shape (n,), optional
            Weight of every row in the mean; equal weights when not given.
        """
        check_is_fitted(self)
        return float(soft_log_loss(self.best_estimator_, X, y, sample_weight=sample_weight))

    def _checked(self, X: Any) -> Any:
        """Return X in a form that can be indexed and has a length; the estimator checks its
        values.
        """
        if hasattr(X, "iloc"):
            return validate_data(self, X, skip_check_array=True)
        return validate_data(self, X, dtype=None, ensure_all_finite=False, ensure_min_samples=2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def _has(self, method: str) -> bool:
        return hasattr(getattr(self, "best_estimator_", self.estimator), method)


def with_params(estimator: Any, params: dict[str, Any]) -> Any:
    """Return an unfitted copy of an estimator with parameters set.

    Parameters
    ----------
    estimator : estimator or pipeline
        Estimator to copy; it is not changed.
    params : dict of str to object
        Values of parameters by their names. For a pipeline, names without ``__`` are parameters of
        its last step.
    """
    new = clone(estimator)
    if isinstance(new, Pipeline):
        last_step = new.steps[-1][0]
        full_names = {}
        for name, value in params.items():
            full_name = name if "__" in name else f"{last_step}__{name}"
            full_names[full_name] = value
        params = full_names
    return new.set_params(**params)


def _fold_losses(
    search: PatientGridSearch,
    X: Any,
    y: np.ndarray,
    eta: np.ndarray | None,
    owner: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> list[float]:
    """Return the loss of every grid point in one inner fold.

    If the grid changes parameters of the last step only, all other steps are fitted once for all
    points.
    """
    # Unlabelled rows may be used for training, but there is no label to compare their prediction
    # with.
    test = test[np.ravel(y)[test] != UNLABELLED]
    X_train = _safe_indexing(X, train)
    X_test = _safe_indexing(X, test)
    train_eta = None if eta is None else eta[train]
    loss = CRITERIA[search.criterion]
    learner = search.estimator
    points = search.points_
    try:
        # If the grid changes parameters of the last step only, imputation, scaling and selection
        # are fitted once per fold.
        if isinstance(learner, Pipeline) and len(learner.steps) > 1 and _only_last(learner, points):
            front = Pipeline(clone(learner).steps[:-1])
            # As in the outer folds, steps before the learner are fitted to labelled rows.
            labelled = np.flatnonzero(np.ravel(y)[train] != UNLABELLED)
            keywords = crossval.fit_keywords(
                front, None if train_eta is None else train_eta[labelled], owner[train][labelled]
            )
            front.fit(_safe_indexing(X_train, labelled), y[train][labelled], **keywords)
            X_train = front.transform(X_train)
            X_test = front.transform(X_test)
            learner = learner.steps[-1][1]
            prefix = f"{search.estimator.steps[-1][0]}__"
            points = []
            for point in search.points_:
                of_learner = {name.removeprefix(prefix): value for name, value in point.items()}
                points.append(of_learner)
    except crossval.FIT_ERRORS:
        # No grid point could be fitted in this fold.
        return [float("inf")] * len(points)
    # Work that several grid points share, such as a kernel matrix, is done only once by
    # predict_grid.
    if hasattr(learner, "predict_grid"):
        try:
            predictions = learner.predict_grid(points, X_train, y[train], X_test, eta=train_eta)
        except crossval.FIT_ERRORS:
            return [float("inf")] * len(points)
        losses = []
        for probability in predictions:
            # A grid point that fails in one fold gets an infinite loss there. The other folds may
            # be easier, so a mean over the other folds alone would favour this grid point.
            failed = np.isnan(probability).any()
            losses.append(float("inf") if failed else loss(y[test], probability))
        return losses
    losses = []
    for point in points:
        fitted = with_params(learner, point)
        try:
            fitted.fit(X_train, y[train], **crossval.fit_keywords(fitted, train_eta, owner[train]))
            probability = ask.positive_probability(fitted, X_test)
            # Without probabilities the AUC can use decision values; all other criteria need
            # probabilities.
            if np.isnan(probability).all() and search.criterion == "auc":
                probability = ask.decision_value(fitted, X_test)
            losses.append(loss(y[test], probability))
        except crossval.FIT_ERRORS:
            losses.append(float("inf"))
    return losses


def _error_of_fit(
    search: PatientGridSearch, X: Any, y: np.ndarray, eta: np.ndarray | None, owner: np.ndarray
) -> str:
    """Return the error of a fit of the first grid point to all rows; empty if there is no error."""
    first = with_params(search.estimator, search.points_[0])
    try:
        first.fit(X, y, **crossval.fit_keywords(first, eta, owner))
    except crossval.FIT_ERRORS as error:
        return f"; the first says: {error}"
    return ""


def _only_last(pipeline: Pipeline, points: list[dict[str, Any]]) -> bool:
    """Return whether a grid changes parameters of the last step of a pipeline only.

    All points have the same parameters, so the names of the first point tell it.
    """
    prefix = f"{pipeline.steps[-1][0]}__"
    return all("__" not in name or name.startswith(prefix) for name in points[0])
