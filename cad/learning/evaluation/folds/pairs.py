"""Compute an AUC without bias from folds, by leaving out patients in pairs.

A malignant and a benign region of two patients are compared by the scores of one model, which was
trained on neither patient. So the scores of two models are never compared (Airola et al., Comput.
Stat. Data Anal. 55 (2011) 1828). P patients need P (P - 1) / 2 such fits. With few patients, and
for a learner that memorises its training rows, the AUC from ordinary folds keeps some bias, also
after centring (docs/methods.md 6); this AUC has none.
"""

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cad.base.errors import CadError
from cad.learning.evaluation.folds import crossval

_LEFT_OUT = "left out"


def pairs_left_out_auc(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    truth: ArrayLike,
    patients: ArrayLike,
    *,
    eta: ArrayLike | None = None,
    n_jobs: int = 1,
) -> float:
    """Return the AUC in which each pair of regions is compared by a model that saw neither patient.

    Parameters
    ----------
    estimator : estimator or pipeline
        Unfitted.
    X : array or DataFrame, shape (n, d)
        Features.
    y : array, shape (n,)
        Labels in [0, 1]; NaN for no label.
    truth : array, shape (n,)
        0 or 1; regions with NaN are not compared.
    patients : array, shape (n,)
        Patient of every row. Two regions of one patient are compared by a model without him.
    eta : array, shape (n,), or float, optional
        Uncertainty of y.
    n_jobs : int
        Number of parallel processes; it changes no result.

    Returns
    -------
    float
        Of the pairs of a malignant and a benign region, the share in which the malignant one has
        the larger score; ties count half. NaN if there is no such pair.

    Raises
    ------
    CadError
        If a fit fails, because an AUC without some of the pairs would be another quantity.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SoftExtraTrees
    >>> X = np.arange(12.0)[:, None]
    >>> truth = (X[:, 0] > 5).astype(float)
    >>> pairs_left_out_auc(SoftExtraTrees(trees=5), X, truth, truth, np.arange(12) % 6)
    1.0
    """
    labels = np.asarray(y, dtype=float)
    true_classes = np.asarray(truth, dtype=float)
    patient_of_row = np.asarray(patients).astype(str)
    spread = None if eta is None else np.broadcast_to(np.asarray(eta, dtype=float), labels.shape)
    names = np.unique(patient_of_row)
    # Every two patients, and every patient with himself.
    pairs_of_patients = [*combinations(names, 2), *((name, name) for name in names)]
    comparisons = []
    for first, second in pairs_of_patients:
        malignant, benign = _compared_rows(true_classes, patient_of_row, first, second)
        # Without a pair of a malignant and a benign region no fit is needed.
        if len(malignant):
            comparisons.append((first, second, malignant, benign))
    # The arguments of ``fit_fold`` for each comparison, which leaves the two patients out as one
    # group. The fitted estimator is not kept, and no labels are learned.
    keep = False
    relabel = None
    pieces = []
    for first, second, _, _ in comparisons:
        group = np.where((patient_of_row == first) | (patient_of_row == second), _LEFT_OUT, "")
        pieces.append(
            (estimator, _LEFT_OUT, keep, X, labels, spread, relabel, group, patient_of_row)
        )
    folds = crossval.each_piece(crossval.fit_fold, pieces, n_jobs)
    won_pairs = 0.0
    compared_pairs = 0
    for (first, second, malignant, benign), fold in zip(comparisons, folds, strict=True):
        if fold.error:
            raise CadError(f"the model without {first} and {second} failed: {fold.error}")
        score = np.full(len(labels), np.nan)
        # The two regions of a pair are scored by one model, so no base needs to be subtracted.
        score[fold.rows] = crossval.centred_scores(fold.probability, fold.decision, base=0.0)
        difference = score[malignant] - score[benign]
        won_pairs += float(np.sum(difference > 0) + np.sum(difference == 0) / 2)
        compared_pairs += len(malignant)
    if compared_pairs == 0:
        return float("nan")
    return won_pairs / compared_pairs


def _compared_rows(
    classes: np.ndarray, owner: np.ndarray, first: str, second: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all pairs of a malignant region of one of two men and a benign region of
    the other man.

    The men are ``first`` and ``second``; either may own the malignant region. If both are the same
    man, the pairs are within him. The first array has the row of each pair's malignant region, the
    second the row of its benign region. ``owner`` has the man of every row.
    """
    malignant = []
    benign = []
    # Both orders of the two men; if they are the same man, the keys of a dict count him once.
    for patient, other_patient in dict.fromkeys([(first, second), (second, first)]):
        malignant_rows = np.flatnonzero((owner == patient) & (classes == 1))
        benign_rows = np.flatnonzero((owner == other_patient) & (classes == 0))
        # Each malignant row is paired with each benign row.
        malignant.append(np.repeat(malignant_rows, len(benign_rows)))
        benign.append(np.tile(benign_rows, len(malignant_rows)))
    return np.concatenate(malignant), np.concatenate(benign)
