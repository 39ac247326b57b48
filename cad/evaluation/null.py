"""What the whole validation loop gives when labels say nothing about images (METHODS 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike

from cad.errors import CadError
from cad.evaluation.crossval import out_of_fold
from cad.evaluation.metrics import auc, consensus_truth

SCHEMES = ("between", "within")
SIGNIFICANT = 0.05


def permute_between(groups: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """Exchange labels between patients, keeping their order along patients.

    The patients' blocks are laid end to end in random patient order, rotated by a random number
    of ROIs and cut at the original ROI counts, so neighbours stay neighbours.

    Returns
    -------
    ndarray of int, shape (n,)
        Row whose labels each row receives; a permutation.
    """
    code = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(code, kind="stable")
    blocks = np.split(order, np.cumsum(np.bincount(code))[:-1])
    line = np.concatenate([blocks[i] for i in rng.permutation(len(blocks))])
    source = np.empty(len(code), dtype=int)
    source[order] = np.roll(line, int(rng.integers(len(line))))
    return source


def permute_within(groups: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """Shuffle labels among the ROIs of each patient; returns as :func:`permute_between`."""
    code = np.unique(np.asarray(groups), return_inverse=True)[1]
    source = np.arange(len(code))
    for patient in range(int(code.max()) + 1):
        rows = np.flatnonzero(code == patient)
        source[rows] = rng.permutation(rows)
    return source


_PERMUTE: dict[str, Callable[[ArrayLike, np.random.Generator], np.ndarray]] = {
    "between": permute_between,
    "within": permute_within,
}


def permutation_null(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    truth: ArrayLike,
    *,
    groups: ArrayLike,
    n: int,
    eta: ArrayLike | None = None,
    patients: ArrayLike | None = None,
    observed: float | None = None,
    schemes: tuple[str, ...] = SCHEMES,
    seed: int = 0,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """AUC of the whole loop under permuted labels, by both schemes.

    Each ROI's label, uncertainty and truth travel together as one tuple; features and patients
    stay. Everything inside ``estimator`` (selection, nested search) is fitted anew each time.

    Parameters
    ----------
    estimator, X, y, groups, eta, patients
        As in :func:`cad.evaluation.crossval.out_of_fold`; labels move between ``patients``.
    truth : array, shape (n_rois,)
        What the AUC is measured against: 1, 0 or NaN (not measured). When nothing is known of
        any ROI, the labels themselves, thresholded at .5, take its place.
    n : int
        Permutations of each scheme.
    observed : float, optional
        AUC with the true labels when it is already known; made here otherwise.
    schemes : tuple of str
        ``between`` and ``within``.
    seed : int
        Seed; permutation k is the same whatever ``n`` and ``n_jobs``.
    n_jobs : int
        Parallel permutations.
    progress : callable, optional
        Called with (permutations done, permutations in all).

    Returns
    -------
    dict
        ``observed``, ``n``, ``against`` (histology or labels) and per scheme
        ``{aucs, failed, p, lower, upper, mean, evidence}``:
        ``p`` = (1 + b) / (1 + n) with b permutations at or above the observed AUC (a permutation
        whose loop failed counts as one), ``lower`` and ``upper`` the central 95 % of the null,
        ``evidence`` a sentence.

    Raises
    ------
    CadError
        For an unknown scheme, n < 1, truth of one class only, or no AUC with the true labels.
    """
    y, truth = np.asarray(y, dtype=float), np.asarray(truth, dtype=float)
    against = "histology" if np.isfinite(truth).any() else "labels"
    if against == "labels":
        truth = consensus_truth(y)[0]
    unknown = [scheme for scheme in schemes if scheme not in _PERMUTE]
    if unknown or n < 1:
        raise CadError(f"permutation schemes are {', '.join(SCHEMES)} and n >= 1: {schemes}, {n}")
    if not ((truth == 1).any() and (truth == 0).any()):
        raise CadError("the truth has one class only: there is no AUC to permute")
    spread = None if eta is None else np.broadcast_to(np.asarray(eta, float), y.shape)
    group = np.asarray(groups)
    owner = group if patients is None else np.asarray(patients)

    def loop(source: np.ndarray) -> float:
        moved = None if spread is None else spread[source]
        return _loop_auc(estimator, X, y[source], truth[source], moved, group, owner)

    if observed is None:
        observed = loop(np.arange(len(y)))
    if not np.isfinite(observed):
        raise CadError("the validation gives no AUC with the true labels: nothing to compare")
    result: dict[str, Any] = {"observed": observed, "n": n, "against": against}
    work = [
        (scheme, _PERMUTE[scheme](owner, np.random.default_rng([seed, number, k])))
        for number, scheme in enumerate(schemes)
        for k in range(n)
    ]
    aucs: list[float] = []
    for value in Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(loop)(source) for _, source in work
    ):
        aucs.append(value)
        if progress is not None:
            progress(len(aucs), len(work))
    for number, scheme in enumerate(schemes):
        result[scheme] = _summary(observed, np.array(aucs[number * n : (number + 1) * n]))
    return result


def _loop_auc(
    estimator: Any,
    X: Any,
    y: np.ndarray,
    truth: np.ndarray,
    eta: np.ndarray | None,
    groups: np.ndarray,
    patients: np.ndarray,
) -> float:
    try:
        result = out_of_fold(estimator, X, y, groups=groups, eta=eta, patients=patients)
    except CadError:
        return float("nan")
    score = result.probability
    if np.isnan(score).all():
        score = result.decision
    usable = np.isfinite(score) & np.isfinite(truth)
    return auc(truth[usable], score[usable])


def _summary(observed: float, aucs: np.ndarray) -> dict[str, Any]:
    usable = aucs[np.isfinite(aucs)]
    failed = len(aucs) - len(usable)
    p = (1 + int(np.sum(usable >= observed)) + failed) / (1 + len(aucs))
    lower, upper = np.quantile(usable, [0.025, 0.975]) if len(usable) else (np.nan, np.nan)
    found = "evidence" if p < SIGNIFICANT else "no evidence"
    return {
        "aucs": aucs,
        "failed": failed,
        "p": p,
        "lower": float(lower),
        "upper": float(upper),
        "mean": float(usable.mean()) if len(usable) else float("nan"),
        "evidence": f"{found} that images tell malignant from benign (p = {p:.3g})",
    }
