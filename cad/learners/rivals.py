"""Other learners of a probability from soft labels, beside which every validation sets its own.

Each chooses its own strength by inner folds of whole patients (``groups``), once its features are
scaled, so that a row of the table costs seconds. None is tuned by hand.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from cad.learners.base import LearnerError, SoftScore, cross_entropies, read_targets
from cad.learners.problem import Array
from cad.learners.svm import SoftPlattSVC

_NEWTON = 50
# How far from zero the gradient may end: to choose a strength less is needed than to report it.
_CHOOSING, _FITTED = 1e-3, 1e-6


def rival_learners() -> dict[str, BaseEstimator]:
    """Return the rivals by the names that tables show, each unfitted."""
    return {
        "logistic on soft labels": SoftLogistic(),
        "kernel ridge on p": RidgeProbability(),
        "boosting on soft labels": SoftBoosting(),
        "SVM, Platt on soft targets": SoftPlattSVC(calibration_folds=5),
    }


class _Rival(SoftScore, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Hold what the rivals share: labels in, two columns of probabilities out."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"eta": True}

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probabilities of the negative and the positive class, shape (n, 2)."""
        check_is_fitted(self)
        positive = self._probability(validate_data(self, X, dtype=np.float64, reset=False))
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likelier class of every row, shape (n,)."""
        likelier = (self.predict_proba(X)[:, 1] > 0.5).astype(int)
        chosen: NDArray[Any] = self.classes_[likelier]
        return chosen

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        if y is None:
            raise LearnerError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        rows: Array = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        targets = read_targets(y)
        check_consistent_length(rows, targets.p)
        if np.ptp(targets.p) == 0:
            raise LearnerError("every label is the same, one class: there is nothing to tell apart")
        self.classes_ = targets.classes
        return rows, targets.p

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _probability(self, X: Array) -> Array:
        raise NotImplementedError


class SoftLogistic(_Rival):
    """Learn logistic regression on soft labels: |w|^2 / (2 C) + sum of cross-entropies.

    Parameters
    ----------
    Cs : tuple of float
        Tried on inner folds by cross-entropy; the smallest of equally good ones is kept.
    folds : int
        Inner folds, patients kept whole.

    Attributes
    ----------
    C_ : float
        The chosen one.
    coef_ : ndarray, shape (d,)
    intercept_ : float
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(
        self, Cs: tuple[float, ...] = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1), folds: int = 5
    ) -> None:
        self.Cs = Cs
        self.folds = folds

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to two classes or probabilities; ``eta`` is accepted and not used."""
        rows, p = self._read(X, y)
        K = rows @ rows.T
        losses = np.zeros(len(self.Cs))
        for train, test in _splits(p, groups, self.folds):
            alpha, b, inside = np.zeros(len(train)), 0.0, K[np.ix_(train, train)]
            for i, C in enumerate(self.Cs):
                alpha, b, _ = _newton(inside, p[train], C, alpha, b, _CHOOSING)
                q = expit(K[np.ix_(test, train)] @ alpha + b)
                losses[i] += float(np.mean(cross_entropies(p[test], q)))
        self.C_ = float(self.Cs[int(np.argmin(losses))])
        alpha, self.intercept_, missed = _newton(K, p, self.C_, np.zeros(len(p)), 0.0, _FITTED)
        if missed > 1e-4:
            warnings.warn(
                f"SoftLogistic: not converged in {_NEWTON} Newton steps, gradient {missed:.1e}",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.coef_ = rows.T @ alpha
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return log-odds, shape (n,)."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False)
        values: Array = rows @ self.coef_ + self.intercept_
        return values

    def _probability(self, X: Array) -> Array:
        probability: Array = expit(self.decision_function(X))
        return probability


class RidgeProbability(_Rival):
    """Learn p by kernel ridge, clipped inside (0, 1) so that cross-entropy is finite.

    Parameters
    ----------
    gammas : tuple of float
        Widths of the Gaussian kernel, times 1 / d: exp(-gamma |u - v|^2 / d).
    alphas : tuple of float
        Ridges. Both are chosen by the squared error of left-out groups of patients, which for a
        ridge needs no refit: its residuals are (I - H_gg)^-1 (p - Hp)_g.
    clip : float
        Probabilities lie in [clip, 1 - clip]; 0 and 1 would be infinitely wrong once.
    folds : int
        Groups of patients.

    Attributes
    ----------
    gamma_, alpha_ : float
        The chosen ones.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(
        self,
        gammas: tuple[float, ...] = (0.02, 0.06, 0.2, 0.6),
        alphas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        clip: float = 0.02,
        folds: int = 5,
    ) -> None:
        self.gammas = gammas
        self.clip = clip
        self.alphas = alphas
        self.folds = folds

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to two classes or probabilities; ``eta`` is accepted and not used."""
        rows, p = self._read(X, y)
        self.mean_ = float(p.mean())
        splits = [test for _, test in _splits(p, groups, self.folds)]
        best = np.inf
        distances = _distances(rows, rows) / rows.shape[1]
        for gamma in self.gammas:
            values, vectors = np.linalg.eigh(np.exp(-gamma * distances))
            turned = vectors.T @ (p - self.mean_)
            for alpha in self.alphas:
                kept = np.maximum(values, 0.0) / (np.maximum(values, 0.0) + alpha)
                loss = _left_out_error(vectors, kept, turned, p - self.mean_, splits)
                if loss < best:
                    best, self.gamma_, self.alpha_ = loss, float(gamma), float(alpha)
                    self.dual_ = vectors @ (turned / (np.maximum(values, 0.0) + alpha))
        self.rows_ = rows
        return self

    def _probability(self, X: Array) -> Array:
        K = np.exp(-self.gamma_ * _distances(X, self.rows_) / X.shape[1])
        probability: Array = np.clip(self.mean_ + K @ self.dual_, self.clip, 1.0 - self.clip)
        return probability


class SoftBoosting(_Rival):
    """Boost trees on soft labels: scikit-learn's, p a positive of weight p and a negative.

    Parameters
    ----------
    trees, depth : int
        Small trees, few of them: a cohort has hundreds of regions.
    """

    def __init__(self, trees: int = 60, depth: int = 2) -> None:
        self.trees = trees
        self.depth = depth

    def fit(self, X: ArrayLike, y: ArrayLike, eta: ArrayLike | None = None) -> Self:
        """Fit to two classes or probabilities; ``eta`` is accepted and not used."""
        rows, p = self._read(X, y)
        weight = np.concatenate([p, 1 - p])
        used = weight > 0
        self.model_ = GradientBoostingClassifier(
            n_estimators=self.trees,
            max_depth=self.depth,
            max_features="sqrt",
            random_state=0,
        ).fit(
            np.vstack([rows, rows])[used],
            np.repeat([1, 0], len(p))[used],
            sample_weight=weight[used],
        )
        return self

    def _probability(self, X: Array) -> Array:
        probability: Array = self.model_.predict_proba(X)[:, 1]
        return probability


def _splits(
    p: Array, groups: ArrayLike | None, folds: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    owner = np.arange(len(p)) if groups is None else np.asarray(groups)
    n = min(folds, len(np.unique(owner)))
    if n < 2:
        raise LearnerError("inner folds need at least two patients")
    return list(GroupKFold(n).split(p, groups=owner))


def _newton(
    K: Array, p: Array, C: float, alpha: Array, b: float, tol: float
) -> tuple[Array, float, float]:
    """Minimise alpha'K alpha / (2 C) + sum of cross-entropies of K alpha + b; b is free.

    Returns
    -------
    alpha : ndarray, shape (n,)
    b : float
    missed : float
        Largest entry of alpha / C + q - p and of its sum, zero at the optimum and at most ``tol``.
    """
    alpha = alpha.copy()
    f = K @ alpha
    value = _objective(alpha, f, b, p, C)
    for _ in range(_NEWTON):
        q = expit(f + b)
        if max(np.max(np.abs(alpha / C + q - p)), abs(np.sum(q - p))) <= tol:
            break
        # Newton's step in the dual: (K + (C W)^-1) alpha = target, through I + C W^1/2 K W^1/2,
        # whose eigenvalues stay at or above 1 however certain q is (Rasmussen 2006, algorithm 3.1).
        weight = np.maximum(q * (1 - q), 1e-10)
        root = np.sqrt(C * weight)
        factor = cho_factor(np.eye(len(p)) + root[:, None] * K * root, check_finite=False)
        target = f + b + (p - q) / weight
        both = np.column_stack([target, np.ones(len(p))]) * root[:, None]
        solved = root[:, None] * cho_solve(factor, both, check_finite=False)
        new_b = float(solved[:, 0].sum() / solved[:, 1].sum())
        step, step_b = solved[:, 0] - new_b * solved[:, 1] - alpha, new_b - b
        rise, length = K @ step, 1.0
        while length > 1e-6:
            trial = _objective(alpha + length * step, f + length * rise, b + length * step_b, p, C)
            if trial <= value + 1e-12 * abs(value):
                break
            length /= 2
        alpha, f, b = alpha + length * step, f + length * rise, b + length * step_b
        value = trial
    q = expit(f + b)
    return alpha, b, float(max(np.max(np.abs(alpha / C + q - p)), abs(np.sum(q - p))))


def _objective(alpha: Array, f: Array, b: float, p: Array, C: float) -> float:
    z = f + b
    return float(alpha @ f / (2 * C) + np.sum(np.logaddexp(0.0, z) - p * z))


def _distances(X: Array, Y: Array) -> Array:
    squares: Array = np.sum(X**2, axis=1)[:, None] + np.sum(Y**2, axis=1) - 2 * X @ Y.T
    return np.maximum(squares, 0.0)


def _left_out_error(
    vectors: Array, kept: Array, turned: Array, p: Array, splits: list[NDArray[np.intp]]
) -> float:
    """Return the sum of squared residuals of groups that the ridge has not seen."""
    residual = p - vectors @ (kept * turned)
    total = 0.0
    for group in splits:
        part = vectors[group]
        inside = np.eye(len(group)) - (part * kept) @ part.T
        total += float(np.sum(np.linalg.solve(inside, residual[group]) ** 2))
    return total
