"""How uncertain an AUC is, when the ROIs of one patient resemble each other.

The unit of the data is the patient. ``groups`` names the patient of every ROI; with every ROI its
own group the same formulas are DeLong's (1988), which is too sure of itself on such data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from scipy.stats import norm, rankdata


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    Parameters
    ----------
    value : float
        The estimate.
    lower, upper : float
        NaN where the data allow no interval.
    method : str
        How it was made, for the reader of a table.
    level : float
        Confidence level.
    """

    value: float
    lower: float
    upper: float
    method: str
    level: float = 0.95


def auc_covariance(
    truth: ArrayLike, scores: ArrayLike, groups: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """AUCs of several scores on the same ROIs and their patient-clustered covariance.

    Parameters
    ----------
    truth : array, shape (n,)
        0 or 1.
    scores : array, shape (k, n) or (n,)
        One row per score.
    groups : array, shape (n,)
        The patient of every ROI.

    Returns
    -------
    aucs : ndarray, shape (k,)
        NaN where a class is absent.
    covariance : ndarray, shape (k, k)
        NaN where fewer than two patients have a class. Obuchowski, Biometrics 53 (1997) 567.
    """
    y = np.asarray(truth, dtype=float) == 1
    s = np.atleast_2d(np.asarray(scores, dtype=float))
    k, m, n = len(s), int(y.sum()), int((~y).sum())
    if m == 0 or n == 0:
        return np.full(k, np.nan), np.full((k, k), np.nan)
    positive, negative = _placements(y, s)
    theta = positive.mean(axis=1)
    code = np.unique(np.asarray(groups), return_inverse=True)[1]
    clusters = int(code.max()) + 1
    a = _cluster_sums(positive - theta[:, None], code[y], clusters)
    b = _cluster_sums(negative - theta[:, None], code[~y], clusters)
    i10, i01 = len(np.unique(code[y])), len(np.unique(code[~y]))
    if min(i10, i01) < 2:
        return theta, np.full((k, k), np.nan)
    s10 = i10 / ((i10 - 1) * m) * (a @ a.T)
    s01 = i01 / ((i01 - 1) * n) * (b @ b.T)
    s11 = clusters / (clusters - 1) * (a @ b.T)
    return theta, s10 / m + s01 / n + (s11 + s11.T) / (m * n)


def clustered_auc(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike, level: float = 0.95
) -> Interval:
    """AUC with a patient-clustered interval on the logit scale (Obuchowski 1997)."""
    theta, cov = auc_covariance(truth, score, groups)
    return _logit_interval(theta[0], cov[0, 0], "patient-clustered (Obuchowski)", level)


def delong_auc(truth: ArrayLike, score: ArrayLike, level: float = 0.95) -> Interval:
    """AUC with DeLong's interval on the logit scale, which takes ROIs as independent."""
    theta, cov = auc_covariance(truth, score, np.arange(len(np.asarray(truth))))
    return _logit_interval(theta[0], cov[0, 0], "ROI-level (DeLong)", level)


def patient_resamples(groups: ArrayLike, n: int, seed: int) -> Iterator[np.ndarray]:
    """Yield ``n`` bootstrap resamples of whole patients, as row indices."""
    code = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(code, kind="stable")
    size = np.bincount(code)
    rows = np.split(order, np.cumsum(size)[:-1])
    rng = np.random.default_rng(seed)
    for _ in range(n):
        drawn = rng.integers(0, len(rows), len(rows))
        yield np.concatenate([rows[i] for i in drawn])


def bootstrap(
    statistic: Callable[[np.ndarray], np.ndarray],
    groups: ArrayLike,
    n: int,
    seed: int,
    level: float = 0.95,
) -> np.ndarray:
    """Percentile intervals of several statistics under resampling of patients.

    Parameters
    ----------
    statistic : callable
        Row indices -> ndarray of shape (k,); NaN where a resample does not allow one.
    groups : array, shape (n_rois,)
        The patient of every ROI.
    n : int
        Resamples.
    seed : int
        Seed of the resampling.
    level : float
        Confidence level.

    Returns
    -------
    ndarray, shape (k, 2)
        Lower and upper ends; NaN without resamples, where more than half of them failed, or where
        all of them agree (one patient, no error at all): a width of 0 would be a lie.
    """
    draws = np.array([statistic(rows) for rows in patient_resamples(groups, n, seed)], dtype=float)
    if len(draws) == 0:
        k = len(statistic(np.arange(len(np.asarray(groups)))))
        return np.full((k, 2), np.nan)
    ends = np.full((draws.shape[1], 2), np.nan)
    tail = (1 - level) / 2
    for j, column in enumerate(draws.T):
        usable = column[np.isfinite(column)]
        if len(usable) * 2 > n and np.ptp(usable) > 0:
            ends[j] = np.quantile(usable, [tail, 1 - tail])
    return ends


def _placements(y: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of negatives below each positive, and of positives above each negative; ties half."""
    m, n = int(y.sum()), int((~y).sum())
    overall = rankdata(s, axis=1)
    own_positive = rankdata(s[:, y], axis=1)
    own_negative = rankdata(s[:, ~y], axis=1)
    return (overall[:, y] - own_positive) / n, 1 - (overall[:, ~y] - own_negative) / m


def _cluster_sums(values: np.ndarray, code: np.ndarray, clusters: int) -> np.ndarray:
    return np.array([np.bincount(code, weights=row, minlength=clusters) for row in values])


def _logit_interval(theta: float, variance: float, method: str, level: float) -> Interval:
    if not np.isfinite(variance):
        return Interval(float(theta), float("nan"), float("nan"), method, level)
    if theta in (0.0, 1.0):
        # Perfect separation has no variance to estimate; an interval of width 0 would be a lie.
        return Interval(float(theta), float("nan"), float("nan"), method, level)
    half = norm.ppf((1 + level) / 2) * np.sqrt(max(variance, 0.0)) / (theta * (1 - theta))
    centre = logit(theta)
    lower, upper = expit(centre - half), expit(centre + half)
    return Interval(float(theta), float(lower), float(upper), method, level)
