"""Are two learners different, on the same patients and the same folds?

The patient is resampled, or swapped, as a whole. DeLong is there for comparison and labelled
ROI-level; [N14]'s bootstrap sign test is there to reproduce its tables and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binom, norm, rankdata

from cad.errors import CadError
from cad.evaluation import metrics
from cad.evaluation.intervals import auc_covariance, patient_resamples

_Measure = Callable[[np.ndarray, np.ndarray, np.ndarray], float]

# name: (truth, target, probability) -> value. AUC and accuracy look at the truth, the others at
# the target probability.
MEASURES: dict[str, _Measure] = {
    "auc": lambda y, t, q: metrics.auc(y, q),
    "accuracy": lambda y, t, q: metrics.accuracy(y, q),
    "kl": lambda y, t, q: metrics.kl(t, q),
    "alignment_error": lambda y, t, q: metrics.alignment_error(t, q),
    "cross_entropy": lambda y, t, q: metrics.cross_entropy(t, q),
    "brier": lambda y, t, q: metrics.brier(t, q),
}


def compare_learners(
    probabilities: Mapping[str, ArrayLike],
    truth: ArrayLike,
    groups: ArrayLike,
    *,
    target: ArrayLike | None = None,
    measures: tuple[str, ...] = ("auc", "cross_entropy"),
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare every pair of learners on every measure.

    Parameters
    ----------
    probabilities : mapping of str to array, shape (n,)
        Out-of-fold probabilities of each learner.
    truth : array, shape (n,)
        0, 1, or NaN (left out).
    groups : array, shape (n,)
        The patient of every ROI.
    target : array, shape (n,), optional
        Probability that kl, alignment error, cross-entropy and Brier compare with; the truth
        when not given.
    measures : tuple of str
        Keys of :data:`MEASURES`.
    resamples : int
        Patient bootstrap resamples, and patient permutations.
    seed : int
        Seed of both.

    Returns
    -------
    DataFrame
        One row per measure and pair: ``measure, a, b, value_a, value_b, difference``;
        ``lower, upper`` and ``p_bootstrap`` (patient-clustered paired bootstrap);
        ``p_permutation`` (learners swapped inside randomly chosen patients; ranks for the AUC),
        ``p_holm`` and ``p_hochberg`` (it, corrected over the pairs of one measure);
        ``p_clustered`` and ``p_delong`` (AUC only, two-sided); ``n``, ``patients``.

    Raises
    ------
    CadError
        For fewer than two learners, an unknown measure, or no ROI that all learners predicted.
    """
    if len(probabilities) < 2:
        raise CadError("a comparison needs two learners or more")
    unknown = [m for m in measures if m not in MEASURES]
    if unknown:
        raise CadError(f"unknown measure {unknown[0]!r}, must be one of {', '.join(MEASURES)}")
    table = {name: np.asarray(q, dtype=float) for name, q in probabilities.items()}
    y = np.asarray(truth, dtype=float)
    t = y if target is None else np.asarray(target, dtype=float)
    usable = np.isfinite(y) & np.isfinite(t) & np.isfinite(np.array([*table.values()])).all(axis=0)
    if not usable.any():
        raise CadError("no ROI has a truth and a prediction by every learner")
    y, t, group = y[usable], t[usable], np.asarray(groups)[usable]
    table = {name: q[usable] for name, q in table.items()}
    rows = []
    for measure in measures:
        pairs = [
            _compare(measure, a, b, table, y, t, group, resamples, seed)
            for a, b in combinations(table, 2)
        ]
        p = np.array([row["p_permutation"] for row in pairs], dtype=float)
        for row, p_holm, p_hochberg in zip(pairs, holm(p), hochberg(p), strict=True):
            rows.append({**row, "p_holm": p_holm, "p_hochberg": p_hochberg})
    return pd.DataFrame(rows)


def holm(p: ArrayLike) -> np.ndarray:
    """Holm's step-down adjusted p-values; NaN stays NaN and is not counted."""
    return _stepwise(np.asarray(p, dtype=float), down=True)


def hochberg(p: ArrayLike) -> np.ndarray:
    """Hochberg's step-up adjusted p-values; NaN stays NaN and is not counted."""
    return _stepwise(np.asarray(p, dtype=float), down=False)


def paper_sign_test(
    statistic: Callable[[np.ndarray], tuple[float, float]],
    n: int,
    resamples: int = 100,
    seed: int = 0,
) -> float:
    """[N14] IV: one-sided sign test over bootstrap resamples of test points.

    It measures the resampling and not the data (more resamples make any difference
    "significant"), so it stands beside the paper's tables only and earns no star elsewhere.

    Parameters
    ----------
    statistic : callable
        Row indices -> (value of the first learner, value of the second); larger is better.
    n : int
        Test points.
    resamples : int
        100 in the paper.
    seed : int
        Seed of the resampling.

    Returns
    -------
    float
        P(at least as many wins of the first | fair coin); resamples with equal values are
        dropped; 1 when all are equal.
    """
    rng = np.random.default_rng(seed)
    pairs = np.array([statistic(rng.integers(0, n, n)) for _ in range(resamples)])
    difference = pairs[:, 0] - pairs[:, 1]
    wins, losses = int(np.sum(difference > 0)), int(np.sum(difference < 0))
    return float(binom.sf(wins - 1, wins + losses, 0.5))


def _compare(
    measure: str,
    a: str,
    b: str,
    table: dict[str, np.ndarray],
    y: np.ndarray,
    t: np.ndarray,
    group: np.ndarray,
    resamples: int,
    seed: int,
) -> dict[str, object]:
    value = MEASURES[measure]
    first, second = table[a], table[b]

    def difference(rows: np.ndarray) -> float:
        return value(y[rows], t[rows], first[rows]) - value(y[rows], t[rows], second[rows])

    draws = np.array([difference(rows) for rows in patient_resamples(group, resamples, seed)])
    draws = draws[np.isfinite(draws)]
    enough = len(draws) and len(np.unique(group)) > 1
    lower, upper = np.quantile(draws, [0.025, 0.975]) if enough else (np.nan, np.nan)
    everything = np.arange(len(y))
    delong = clustered = float("nan")
    if measure == "auc":
        both = np.stack([first, second])
        delong, clustered = _auc_p(y, both, everything), _auc_p(y, both, group)
    return {
        "measure": measure,
        "a": a,
        "b": b,
        "value_a": value(y, t, first),
        "value_b": value(y, t, second),
        "difference": difference(everything),
        "lower": float(lower),
        "upper": float(upper),
        "p_bootstrap": _two_sided(draws),
        "p_permutation": _permutation_p(measure, first, second, y, t, group, resamples, seed),
        "p_clustered": clustered,
        "p_delong": delong,
        "n": len(y),
        "patients": len(np.unique(group)),
    }


def _permutation_p(
    measure: str,
    first: np.ndarray,
    second: np.ndarray,
    y: np.ndarray,
    t: np.ndarray,
    group: np.ndarray,
    permutations: int,
    seed: int,
) -> float:
    """Swap the learners in random patients; exchangeable when they do not differ."""
    if measure == "auc":
        # Scores of two learners share no unit, their ranks do (Bandos et al. 2005).
        first, second = rankdata(first), rankdata(second)
    code = np.unique(group, return_inverse=True)[1]
    rng = np.random.default_rng([seed, 1])
    value = MEASURES[measure]

    def difference(swap: np.ndarray) -> float:
        return value(y, t, np.where(swap, second, first)) - value(
            y, t, np.where(swap, first, second)
        )

    observed = difference(np.zeros(len(y), dtype=bool))
    if not np.isfinite(observed):
        return float("nan")
    swaps = rng.integers(0, 2, (permutations, int(code.max()) + 1), dtype=np.int8) == 1
    draws = np.array([difference(swap[code]) for swap in swaps])
    return (1 + int(np.sum(np.abs(draws) >= abs(observed) - 1e-12))) / (1 + permutations)


def _auc_p(y: np.ndarray, scores: np.ndarray, group: np.ndarray) -> float:
    theta, cov = auc_covariance(y, scores, group)
    variance = cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]
    if not np.isfinite(variance):
        return float("nan")
    if variance <= 1e-15:
        return 1.0 if abs(theta[0] - theta[1]) < 1e-12 else float("nan")
    return float(2 * norm.sf(abs(theta[0] - theta[1]) / np.sqrt(variance)))


def _two_sided(draws: np.ndarray) -> float:
    if len(draws) == 0:
        return float("nan")
    tail = min(np.sum(draws <= 0), np.sum(draws >= 0))
    return float(min(1.0, 2 * (1 + tail) / (1 + len(draws))))


def _stepwise(p: np.ndarray, down: bool) -> np.ndarray:
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    scaled = p[order] * np.arange(len(order), 0, -1)
    adjusted = np.maximum.accumulate(scaled) if down else np.minimum.accumulate(scaled[::-1])[::-1]
    out = np.full(len(p), np.nan)
    out[order] = np.minimum(adjusted, 1.0)
    return out
