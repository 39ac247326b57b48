"""Test whether learners differ, on the same patients and the same folds.

Tests resample patients, or exchange the learners' values in patients, always with all regions of a
patient. DeLong's test is there for comparison only, because it takes regions as independent. The
bootstrap sign test of [N14] serves only to reproduce the tables of that paper.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binom, norm, rankdata

from cad.base.errors import CadError
from cad.learning.evaluation.measures.centring import centred_log_odds
from cad.learning.evaluation.measures.comparison import is_probability
from cad.learning.evaluation.measures.intervals import auc_covariance, patient_resamples
from cad.learning.evaluation.measures.table import MEASURES, Cases, Measure


def compare_learners(
    probabilities: Mapping[str, ArrayLike],
    truth: ArrayLike,
    groups: ArrayLike,
    *,
    target: ArrayLike | None = None,
    centred: Mapping[str, ArrayLike] | None = None,
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
        0 or 1; regions with NaN are left out.
    groups : array, shape (n,)
        The patient of every ROI.
    target : array, shape (n,), optional
        Probability that a learner's probabilities should match, such as the readers' mean. Measures
        of probabilities are computed against it, or against ``truth`` if it is not given.
    centred : mapping of str to array, shape (n,), optional
        For a learner whose probabilities come from the models of several folds, log-odds that can
        be compared between folds (:attr:`cad.learning.evaluation.OutOfFold.centred`).
    measures : tuple of str
        Names in :data:`~cad.learning.evaluation.measures.table.MEASURES`.
    resamples, seed : int
        Number of bootstrap resamples of patients, which is also the number of permutations, and the
        seed of both.

    Returns
    -------
    DataFrame
        A row per measure and pair of learners. ``a`` and ``b`` are the names of the learners,
        ``value_a`` and ``value_b`` their values, and ``difference`` is a minus b. ``lower`` and
        ``upper`` are the 95 % interval of the difference, and ``p_bootstrap`` its p-value, by a
        bootstrap that resamples patients. ``p_permutation`` is the p-value by exchanging the two
        learners' values (ranks for the AUC) in randomly chosen patients. ``p_clustered`` and
        ``p_delong`` are two-sided p-values for the AUC, and NaN for other measures. ``p_clustered``
        takes the regions of a patient as dependent, ``p_delong`` (DeLong's test) as independent.
        ``n`` and ``patients`` are the numbers of compared regions and patients. ``p_holm`` and
        ``p_hochberg`` are ``p_permutation`` corrected for the number of pairs, per measure.

    Raises
    ------
    CadError
        For fewer than two learners, an unknown measure, or no ROI that all learners predicted.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0, 1], 20)
    >>> learners = {"good": 0.2 + 0.6 * truth, "bad": rng.random(40)}
    >>> table = compare_learners(learners, truth, np.arange(40), measures=("auc",), resamples=100)
    >>> len(table)
    1
    """
    cases_by_learner = _on_common_rows(
        probabilities, truth, groups, target, centred or {}, measures
    )
    rows = []
    for measure in measures:
        pairs = []
        for two_names in combinations(cases_by_learner, 2):
            pairs.append(
                _comparison_row(MEASURES[measure], two_names, cases_by_learner, resamples, seed)
            )
        p_values = np.array([pair["p_permutation"] for pair in pairs])
        for pair, p_holm, p_hochberg in zip(pairs, holm(p_values), hochberg(p_values), strict=True):
            rows.append({**pair, "p_holm": p_holm, "p_hochberg": p_hochberg})
    return pd.DataFrame(rows)


def _on_common_rows(
    probabilities: Mapping[str, ArrayLike],
    truth: ArrayLike,
    groups: ArrayLike,
    target: ArrayLike | None,
    centred: Mapping[str, ArrayLike],
    measures: tuple[str, ...],
) -> dict[str, Cases]:
    """Return for each learner the regions that all learners predicted, with this learner's
    values.
    """
    if len(probabilities) < 2:
        raise CadError("a comparison needs two learners or more")
    unknown = [measure for measure in measures if measure not in MEASURES]
    if unknown:
        raise CadError(f"unknown measure {unknown[0]!r}, must be one of {', '.join(MEASURES)}")
    arrays = {
        name: np.asarray(probability, dtype=float) for name, probability in probabilities.items()
    }
    known_truth = np.asarray(truth, dtype=float)
    known_target = known_truth if target is None else np.asarray(target, dtype=float)
    has_predictions = np.isfinite(np.array([*arrays.values()])).all(axis=0)
    usable = np.isfinite(known_truth) & np.isfinite(known_target) & has_predictions
    if not usable.any():
        raise CadError("no ROI has a truth and a prediction by every learner")
    patient_of_row = np.unique(np.asarray(groups)[usable], return_inverse=True)[1]
    cases_by_learner = {}
    for name, probability in arrays.items():
        cases_by_learner[name] = Cases(
            truth=known_truth[usable],
            target=known_target[usable],
            score=probability[usable],
            patients=patient_of_row,
            is_probability=is_probability(probability[usable]),
            centred=np.asarray(centred[name], dtype=float)[usable] if name in centred else None,
        )
    return cases_by_learner


def holm(p: ArrayLike) -> np.ndarray:
    """Return p-values adjusted for multiple tests by Holm's step-down rule, shape (n,).

    Parameters
    ----------
    p : array, shape (n,)
        NaN stays NaN and is not counted.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    return _stepwise(np.asarray(p, dtype=float), down=True)


def hochberg(p: ArrayLike) -> np.ndarray:
    """Return p-values adjusted for multiple tests by Hochberg's step-up rule, shape (m,).

    Parameters
    ----------
    p : array, shape (m,)
        p-values of the tests. NaN stays NaN and is not counted as a test.

    Examples
    --------
    >>> hochberg([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.04, 0.04]
    """
    return _stepwise(np.asarray(p, dtype=float), down=False)


def paper_sign_test(
    statistic: Callable[[np.ndarray], tuple[float, float]],
    n: int,
    resamples: int = 100,
    seed: int = 0,
) -> float:
    """Return the p-value of a one-sided sign test over resampled test points, as in [N14] IV.

    The test measures the resampling and not the data: with more resamples any difference becomes
    "significant". Use it for comparison with the paper's tables only.

    Parameters
    ----------
    statistic : callable
        Function of the row indices of a resample. It returns the measures of the first and of the
        second learner on these rows; larger is better.
    n : int
        Number of test points.
    resamples : int
        Number of resamples; 100 in the paper.
    seed : int
        Seed of the resampling.

    Returns
    -------
    float
        Probability that a fair coin gives at least as many wins as the first learner has. Resamples
        in which both values are equal do not count; the result is 1 if all are equal.

    Examples
    --------
    The first learner is better by a hundredth on every point:

    >>> import numpy as np
    >>> first = np.linspace(0.5, 0.9, 50)
    >>> second = first - 0.01
    >>> paper_sign_test(lambda rows: (first[rows].mean(), second[rows].mean()), n=50) < 1e-20
    True
    """
    rng = np.random.default_rng(seed)
    two_values = np.array([statistic(rng.integers(0, n, n)) for _ in range(resamples)])
    differences = two_values[:, 0] - two_values[:, 1]
    wins = int(np.sum(differences > 0))
    losses = int(np.sum(differences < 0))
    # ``sf`` is the probability of more than its first argument, so of at least as many wins.
    return float(binom.sf(wins - 1, wins + losses, 0.5))


def _comparison_row(
    measure: Measure, names: tuple[str, str], table: dict[str, Cases], resamples: int, seed: int
) -> dict[str, Any]:
    """Return one row of :func:`compare_learners`, without the corrected p-values."""
    first = table[names[0]]
    second = table[names[1]]
    patient_of_row = first.patients
    patients = len(np.unique(patient_of_row))
    # The empty array is for a call without resamples, since nothing cannot be put together.
    differences = [np.empty(0)]
    for weight in patient_resamples(patient_of_row, resamples, seed):
        differences.append(measure.draws(first, weight) - measure.draws(second, weight))
    resampled_differences = np.concatenate(differences)
    resampled_differences = resampled_differences[np.isfinite(resampled_differences)]
    lower = np.nan
    upper = np.nan
    # With one patient all resamples are equal.
    if len(resampled_differences) and patients > 1:
        lower, upper = np.quantile(resampled_differences, [0.025, 0.975])
    p_delong = p_clustered = float("nan")
    if measure.name == "auc":
        both_rankings = np.stack([first.ranking, second.ranking])
        # With a patient of its own for every region, regions count as independent.
        p_delong = _auc_p(first.truth, both_rankings, np.arange(len(first.truth)))
        p_clustered = _auc_p(first.truth, both_rankings, patient_of_row)
    value_a = measure(first)
    value_b = measure(second)
    return {
        "measure": measure.name,
        "a": names[0],
        "b": names[1],
        "value_a": value_a,
        "value_b": value_b,
        "difference": value_a - value_b,
        "lower": float(lower),
        "upper": float(upper),
        "p_bootstrap": _two_sided(resampled_differences),
        "p_permutation": _permutation_p(measure, first, second, resamples, seed),
        "p_clustered": p_clustered,
        "p_delong": p_delong,
        "n": len(first.truth),
        "patients": patients,
    }


def _permutation_p(
    measure: Measure, first: Cases, second: Cases, permutations: int, seed: int
) -> float:
    """Return the p-value of a difference by exchanging the two learners in random patients.

    If the learners do not differ, an exchange does not change how the difference is distributed. So
    the observed difference is compared with the differences after random exchanges.
    """
    if measure.needs == "score":
        # The test exchanges the values of the two learners. Their scores may have different units,
        # so ranks are exchanged instead of scores (Bandos et al. 2005).
        first = replace(first, score=rankdata(first.ranking), centred=None)
        second = replace(second, score=rankdata(second.ranking), centred=None)
    rng = np.random.default_rng([seed, 1])

    def difference(is_swapped: np.ndarray) -> float:
        """Return the first learner's measure minus the second's, with regions exchanged."""
        return measure(_exchanged(first, second, is_swapped)) - measure(
            _exchanged(second, first, is_swapped)
        )

    observed = difference(np.zeros(len(first.truth), dtype=bool))
    if not np.isfinite(observed):
        return float("nan")
    swapped_patients = (
        rng.integers(0, 2, (permutations, int(first.patients.max()) + 1), dtype=np.int8) == 1
    )
    permuted_differences = np.array(
        [difference(is_swapped[first.patients]) for is_swapped in swapped_patients]
    )
    # An exchange that changes nothing gives the observed difference again, but for rounding.
    as_large = np.abs(permuted_differences) >= abs(observed) - 1e-12
    # The exchange of nobody, which was observed, counts as one of the permutations.
    return (1 + int(np.sum(as_large))) / (1 + permutations)


def _exchanged(cases: Cases, other: Cases, swap: np.ndarray) -> Cases:
    """Return the cases of one learner, with the other learner's scores where ``swap`` is true."""
    # If one learner has centred log-odds, those of the other are computed, so that both are alike.
    centred = None
    if cases.centred is not None or other.centred is not None:
        centred = np.where(swap, _log_odds_of_cases(other), _log_odds_of_cases(cases))
    return replace(cases, score=np.where(swap, other.score, cases.score), centred=centred)


def _log_odds_of_cases(cases: Cases) -> np.ndarray:
    """Return the centred log-odds of a learner; those of its scores if it has none."""
    return centred_log_odds(cases.score, base=0.0) if cases.centred is None else cases.centred


def _auc_p(y: np.ndarray, scores: np.ndarray, group: np.ndarray) -> float:
    """Return the two-sided p-value of the difference between the AUCs of two scores.

    ``scores`` has a row for each of the two, and ``group`` the patient of every region.
    """
    aucs, covariance = auc_covariance(y, scores, group)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    if not np.isfinite(variance):
        return float("nan")
    difference = abs(aucs[0] - aucs[1])
    # Two scores that order all regions alike do not differ. Any other variance of 0, up to rounding
    # errors, allows no test.
    if variance <= 1e-15:
        return 1.0 if difference < 1e-12 else float("nan")
    return float(2 * norm.sf(difference / np.sqrt(variance)))


def _two_sided(draws: np.ndarray) -> float:
    """Return the p-value of a difference from its bootstrap draws: twice the rarer sign's share."""
    if len(draws) == 0:
        return float("nan")
    # Twice a share may exceed 1, and a p-value of 0 would claim more than the draws can show.
    rarer = min(np.sum(draws <= 0), np.sum(draws >= 0))
    return float(min(1.0, 2 * (1 + rarer) / (1 + len(draws))))


def _stepwise(p: np.ndarray, down: bool) -> np.ndarray:
    """Return adjusted p-values: by Holm's rule if ``down`` is true, else by Hochberg's."""
    finite = np.flatnonzero(np.isfinite(p))
    ascending = finite[np.argsort(p[finite], kind="stable")]
    # The k-th smallest of m p-values is multiplied by m - k + 1 (Holm's and Hochberg's rules). The
    # running maximum (for Hochberg's rule the running minimum, from the largest p-value down) keeps
    # the adjusted values in the order of the p-values.
    scaled = p[ascending] * np.arange(len(ascending), 0, -1)
    minimum_from_largest = np.minimum.accumulate(scaled[::-1])[::-1]
    adjusted = np.maximum.accumulate(scaled) if down else minimum_from_largest
    # NaN stays NaN, and the others return to their places. No p-value exceeds 1.
    result = np.full(len(p), np.nan)
    result[ascending] = np.minimum(adjusted, 1.0)
    return result
