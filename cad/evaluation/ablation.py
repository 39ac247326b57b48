"""One table of what each choice does: scale, eta, boundary rule, number of readers ([N14] VI)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import ArrayLike

from cad.errors import CadError
from cad.evaluation import metrics
from cad.evaluation.crossval import out_of_fold
from cad.evaluation.intervals import clustered_auc


@dataclass(frozen=True)
class Case:
    """One cell of the ablation.

    Parameters
    ----------
    choices : dict of str to str
        Column -> value, such as ``{"scale": "learned", "eta": "adaptive"}``.
    estimator : estimator
        Unfitted.
    y, eta : ndarray, shape (n,)
        Labels and their uncertainty under these choices.
    """

    choices: dict[str, str]
    estimator: Any
    y: np.ndarray
    eta: np.ndarray


def ablation_table(
    cases: Iterable[Case],
    X: Any,
    truth: ArrayLike,
    consensus: ArrayLike,
    groups: ArrayLike,
    *,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Leave-one-patient-out for every case, averaged over cases of equal choices.

    Parameters
    ----------
    cases : iterable of Case
        Several cases may share their choices (all pairs out of four readers, say).
    X : array, shape (n, d)
        Features, the same for all.
    truth : array, shape (n,)
        Histology: 1, 0 or NaN.
    consensus : array, shape (n,)
        Probability that KL and cross-entropy compare with, the same for all cases: the mean of
        all readers, so that a case trained on fewer readers is not measured against less.
    groups : array, shape (n,)
        Patients.
    n_jobs : int
        Parallel cases.
    progress : callable, optional
        Called with (cases done, cases in all).

    Returns
    -------
    DataFrame
        The choices; ``cases``, ``failed`` (cases whose every fold failed) and
        ``failed_folds`` (their number in all); means over the cases of ``auc_histology``
        (``lower, upper``: patient-clustered, of single-case rows only), ``auc_readers``, ``kl``
        (a sum over ROIs), ``cross_entropy``, ``brier_histology``; ``predicted``, the mean number
        of ROIs with a probability, on which the measures of a row are made.
    """
    work = list(cases)
    y, p, group = np.asarray(truth, float), np.asarray(consensus, float), np.asarray(groups)
    rows: list[dict[str, Any]] = []
    jobs = (delayed(_measure)(case, X, y, p, group) for case in work)
    for row in Parallel(n_jobs=n_jobs, return_as="generator")(jobs):
        rows.append(row)
        if progress is not None:
            progress(len(rows), len(work))
    table = pd.DataFrame(rows)
    choices = list(work[0].choices)
    grouped = table.groupby(choices, sort=False)
    means = grouped.mean(numeric_only=True)
    means.insert(0, "cases", grouped.size())
    for column in ("failed", "failed_folds"):
        means[column] = grouped[column].sum().astype(int)
    means.loc[means["cases"] > 1, ["lower", "upper"]] = np.nan
    return means.reset_index()


def _measure(
    case: Case, X: Any, truth: np.ndarray, consensus: np.ndarray, groups: np.ndarray
) -> dict[str, Any]:
    row: dict[str, Any] = {**case.choices, "failed": 0}
    names = ("auc_histology", "lower", "upper", "auc_readers", "kl", "cross_entropy")
    try:
        result = out_of_fold(case.estimator, X, case.y, eta=case.eta, groups=groups)
    except CadError:
        empty = dict.fromkeys((*names, "brier_histology"), float("nan"))
        n_folds = len(np.unique(groups))
        return {**row, "failed": 1, "failed_folds": n_folds, **empty, "predicted": 0.0}
    q = result.probability
    known, seen = np.isfinite(q) & np.isfinite(truth), np.isfinite(q) & np.isfinite(consensus)
    auc = clustered_auc(truth[known], q[known], groups[known])
    readers, _ = metrics.consensus_truth(consensus[seen])
    values = (
        auc.value,
        auc.lower,
        auc.upper,
        metrics.auc(readers, q[seen]),
        metrics.kl(consensus[seen], q[seen]),
        metrics.cross_entropy(consensus[seen], q[seen]),
    )
    return {
        **row,
        "failed_folds": sum(bool(fold.error) for fold in result.folds),
        **dict(zip(names, values, strict=True)),
        "brier_histology": metrics.brier(truth[known], q[known]),
        "predicted": float(np.isfinite(q).sum()),
    }
