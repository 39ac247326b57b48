"""Several learners on the same folds: what stands before them is made once per fold."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from cad.evaluation.folds.crossval import (
    FIT_ERRORS,
    Fold,
    Relabel,
    blas_threads,
    fit_fold,
    fit_keywords,
    read_groups,
)
from cad.evaluation.folds.loops import each_piece


def folds_side_by_side(
    estimators: Mapping[str, Any],
    X: Any,
    y: ArrayLike,
    *,
    groups: ArrayLike,
    front: Pipeline | None = None,
    eta: ArrayLike | None = None,
    patients: ArrayLike | None = None,
    relabel: Relabel | None = None,
    fronts: Mapping[str, Any] | None = None,
    n_jobs: int = 1,
) -> dict[str, list[Fold]]:
    """Leave one group out, fit every estimator on the others, predict the one.

    The folds are those that :func:`cad.evaluation.folds.crossval.out_of_fold` has for
    ``Pipeline([*front.steps, ("learner", estimator)])``, to rounding; features that are made for
    the training rows, learned labels and ``front`` are made once for all estimators.

    Parameters
    ----------
    estimators : mapping of str to estimator
        Unfitted.
    front : Pipeline, optional
        Unfitted steps before each of them. What it warns about is not repeated here.
    fronts : mapping of str to Pipeline, optional
        ``front`` as it was already fitted on the same rows and labels, by what is left out; it is
        fitted here where there is none.
    X, y, groups, eta, patients, relabel, n_jobs
        As :func:`cad.evaluation.folds.crossval.out_of_fold`.

    Returns
    -------
    dict of str to list of Fold
        By estimator, also of one whose every fold failed.

    Raises
    ------
    CadError
        When there is only one group, or shapes disagree.
    """
    labels = np.asarray(y, dtype=float)
    spread = None if eta is None else np.broadcast_to(np.asarray(eta, dtype=float), labels.shape)
    group, names = read_groups(groups, len(labels))
    patient = group if patients is None else np.asarray(patients).astype(str)
    each = list(estimators.values())
    made = fronts or {}
    work = (
        (each, front, made.get(str(name)), X, labels, spread, relabel, group, patient, name)
        for name in names
    )
    of_groups = list(each_piece(_fold_of_each, work, n_jobs))
    return {name: [folds[i] for folds in of_groups] for i, name in enumerate(estimators)}


def _fold_of_each(
    estimators: Sequence[Any],
    front: Pipeline | None,
    made: Pipeline | None,
    X: Any,
    y: np.ndarray,
    eta: np.ndarray | None,
    relabel: Relabel | None,
    group: np.ndarray,
    patient: np.ndarray,
    name: str,
) -> list[Fold]:
    rows, train = np.flatnonzero(group == name), np.flatnonzero((group != name) & ~np.isnan(y))
    labels = (y, eta) if relabel is None else relabel(train)
    try:
        table = X(train) if callable(X) else X
        if made is not None:
            table = made.transform(table)
        elif front is not None:
            table = _behind(front, table, labels, train, patient)
    except FIT_ERRORS as error:
        nothing = np.full(len(rows), np.nan)
        return [Fold(name, rows, len(train), nothing, nothing, error=str(error))] * len(estimators)
    return [
        fit_fold(estimator, table, y, eta, lambda _: labels, group, patient, name)
        for estimator in estimators
    ]


def _behind(
    front: Pipeline,
    table: Any,
    labels: tuple[np.ndarray, np.ndarray | None],
    train: np.ndarray,
    patient: np.ndarray,
) -> Any:
    """Return all rows as the front, fitted on the training rows, gives them."""
    (y, eta), fitted = labels, clone(front)
    keywords = fit_keywords(fitted, None if eta is None else eta[train], patient[train])
    with blas_threads().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(_safe_indexing(table, train), y[train], **keywords)
        return fitted.transform(table)
