"""Compute intervals of AUCs and shares when the regions of one patient resemble each other.

The patients are independent of each other, and ``groups`` has the patient of every region.
Obuchowski's covariance of AUCs uses the groups. With a group for every region it equals DeLong's
covariance (1988), which is too small if regions of one patient resemble each other. Both are used
with a normal approximation, by which intervals are too narrow with 20 patients. Intervals are
therefore computed by the jackknife: each patient is left out in turn (docs/evidence.md has the
coverage of each interval). Tests between learners use the covariance.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from scipy.stats import beta, norm, rankdata
from scipy.stats import t as t_distribution

LEVEL = 0.95  # confidence level
_ENTRIES = 2**17  # most numbers in an array of resamples, so that it stays in the processor's cache


@dataclass(frozen=True)
class Interval:
    """Hold an estimate with its confidence interval.

    Parameters
    ----------
    value : float
        The estimate.
    lower, upper : float
        Ends of the interval; NaN if the data allow none.
    method : str
        How the interval was computed, in words for a table.
    level : float
        Confidence level.
    """

    value: float
    lower: float
    upper: float
    method: str
    level: float = LEVEL


def auc_covariance(
    truth: ArrayLike, scores: ArrayLike, groups: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return the AUCs of several scores on the same ROIs, and their covariance.

    The covariance takes the ROIs of a patient as dependent.

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
        The AUC of each score; NaN if a class is absent.
    covariance : ndarray, shape (k, k)
        The covariance of Obuchowski, Biometrics 53 (1997) 567; NaN if fewer than two patients have
        regions of a class.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0, 1, 0, 1, 0, 1])
    >>> scores = np.array([[0.1, 0.9, 0.2, 0.6, 0.7, 0.8], [0.3, 0.4, 0.2, 0.9, 0.1, 0.2]])
    >>> aucs, covariance = auc_covariance(truth, scores, [1, 1, 2, 2, 3, 3])
    >>> aucs.round(3).tolist(), covariance.shape
    ([0.889, 0.833], (2, 2))
    """
    y = np.asarray(truth, dtype=float) == 1
    s = np.atleast_2d(np.asarray(scores, dtype=float))
    score_count = len(s)
    malignant_count = int(y.sum())
    benign_count = int((~y).sum())
    if malignant_count == 0 or benign_count == 0:
        return np.full(score_count, np.nan), np.full((score_count, score_count), np.nan)
    # The placement of a region is the share of the regions of the other class with which it is in
    # the right order. The mean placement of the malignant regions is the AUC, and so is that of the
    # benign regions.
    positive, negative = _placements(y, s)
    aucs = positive.mean(axis=1)
    patient_code = np.unique(np.asarray(groups), return_inverse=True)[1]
    patients = int(patient_code.max()) + 1
    # Deviations from the AUC are summed over the regions of each patient. Their products are the
    # three parts of the covariance: of malignant, of benign, and of malignant with benign regions.
    malignant_sums = _cluster_sums(positive - aucs[:, None], patient_code[y], patients)
    benign_sums = _cluster_sums(negative - aucs[:, None], patient_code[~y], patients)
    patients_with_malignant = len(np.unique(patient_code[y]))
    patients_with_benign = len(np.unique(patient_code[~y]))
    if min(patients_with_malignant, patients_with_benign) < 2:
        return aucs, np.full((score_count, score_count), np.nan)
    of_malignant = (
        patients_with_malignant
        / ((patients_with_malignant - 1) * malignant_count)
        * (malignant_sums @ malignant_sums.T)
    )
    of_benign = (
        patients_with_benign
        / ((patients_with_benign - 1) * benign_count)
        * (benign_sums @ benign_sums.T)
    )
    of_both = patients / (patients - 1) * (malignant_sums @ benign_sums.T)
    pairs = malignant_count * benign_count
    covariance = of_malignant / malignant_count + of_benign / benign_count
    covariance = covariance + (of_both + of_both.T) / pairs
    return aucs, covariance


def training_inflation(n_folds: int | None) -> float:
    """Return the factor by which the chance of training raises the variance of an out-of-fold AUC.

    An out-of-fold AUC varies by chance for two reasons: which patients were tested, and which
    patients the models were trained on (the chance of training). If each of K parts is left out in
    turn, the model for one part learns from the labels of every other part. So the labels of part a
    change the scores of part b, and the labels of b change the scores of a. The usual variance over
    patients counts only one of these two effects, so the factor is 2. It is exact for a linear rule
    on features that are noise, for any K (docs/methods.md 10). If features have an effect, 2 is too
    large: the right factor is between 1 and 2.

    Parameters
    ----------
    n_folds : int or None
        Number of parts that were left out in turn. None if all scores come from one model that
        learned from none of these patients; the factor is then 1.

    Examples
    --------
    >>> training_inflation(None), training_inflation(5)
    (1.0, 2.0)
    """
    # One model's scores, or those of a single part, do not depend on the labels of other parts.
    if n_folds is None or n_folds < 2:
        return 1.0
    return 2.0


def clustered_auc(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike, n_folds: int | None = None
) -> Interval:
    """Return the AUC with an interval that takes the regions of a patient as dependent.

    It is wide enough also for few patients.

    The K patients are jackknifed on the logit scale: with L_k the logit of the AUC without patient
    k, the variance is (K - 1)/K sum (L_k - mean)^2. The ends are logit AUC - t r and logit AUC + t
    r, with r the root of this variance. t is the quantile of Student's distribution with K - 1
    degrees of freedom. If the AUC without a patient is 0 or 1, it is moved by half a pair, so that
    its logit is finite. If the AUC of all regions is 0 or 1, or if fewer than two patients have
    regions of a class, there is no interval (NaN).

    Parameters
    ----------
    truth : array, shape (n,)
        0 or 1.
    score : array, shape (n,)
        Larger is more malignant.
    groups : array, shape (n,)
        The patient of every ROI.
    n_folds : int, optional
        If the scores are out of fold, the number of parts that were left out in turn. The variance
        is then multiplied by :func:`training_inflation`, and the interval is for the AUC that the
        model of all patients has on new patients. If not given, the scores are treated as those of
        one model.

    Examples
    --------
    >>> score = [0.1, 0.9, 0.2, 0.6, 0.7, 0.8]
    >>> interval = clustered_auc([0, 1, 0, 1, 0, 1], score, groups=[1, 1, 2, 2, 3, 3])
    >>> round(interval.value, 3), bool(interval.lower < interval.value < interval.upper)
    (0.889, True)
    """
    y = np.asarray(truth, dtype=float) == 1
    s = np.asarray(score, dtype=float)
    patient_code = np.unique(np.asarray(groups), return_inverse=True)[1]
    method = "patients jackknifed, logit scale, t"
    nan = float("nan")
    # Without regions of a class there is no AUC.
    if y.all() or not y.any():
        return Interval(value=nan, lower=nan, upper=nan, method=method)
    auc_of_all, without, pairs_left = auc_without_each_patient(y, s, patient_code)
    has_rare_class = min(len(np.unique(patient_code[y])), len(np.unique(patient_code[~y]))) < 2
    # For an AUC of 0 or 1, or with one patient of a class, no variance can be estimated.
    if has_rare_class or auc_of_all in (0.0, 1.0):
        return Interval(value=auc_of_all, lower=nan, upper=nan, method=method)
    # Without some patients no pair may be left, and then no AUC.
    without = without[pairs_left > 0]
    pairs_left = pairs_left[pairs_left > 0]
    # An AUC of 0 or 1 is moved by half a pair, so that its logit is finite.
    logits_without = logit(np.clip(without, 0.5 / pairs_left, 1 - 0.5 / pairs_left))
    patients = len(logits_without)
    variance = (patients - 1) / patients * np.sum((logits_without - logits_without.mean()) ** 2)
    standard_error = np.sqrt(training_inflation(n_folds) * variance)
    half_in_log_odds = t_distribution.ppf((1 + LEVEL) / 2, patients - 1) * standard_error
    lower = expit(logit(auc_of_all) - half_in_log_odds)
    upper = expit(logit(auc_of_all) + half_in_log_odds)
    return Interval(value=auc_of_all, lower=float(lower), upper=float(upper), method=method)


def auc_without_each_patient(
    y: np.ndarray, s: np.ndarray, code: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the AUC of all regions, and the AUC without the regions of each patient in turn.

    Parameters
    ----------
    y : ndarray of bool, shape (n,)
        Whether each region is malignant.
    s : ndarray, shape (n,)
        Scores; larger is more malignant.
    code : ndarray of int, shape (n,)
        The number of every region's patient, counted from 0.

    Returns
    -------
    auc : float
        AUC of all regions.
    without : ndarray, shape (n_patients,)
        AUC without each patient; NaN if no region of a class is left.
    pairs : ndarray, shape (n_patients,)
        Number of pairs of a malignant and a benign region that are left without each patient.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([True, False, True, False])
    >>> s = np.array([0.9, 0.2, 0.3, 0.5])
    >>> auc, without, pairs = auc_without_each_patient(y, s, np.array([0, 0, 1, 1]))
    >>> auc, without.tolist(), pairs.tolist()
    (0.75, [0.0, 1.0], [1, 1])
    """
    malignant_count = int(y.sum())
    benign_count = int((~y).sum())
    # Placement of every malignant and of every benign region, for the one score that there is.
    positives, negatives = _placements(y, s[None, :])
    positive = positives[0]
    negative = negatives[0]
    patients = int(code.max()) + 1
    malignant_of_patient = np.bincount(code[y], minlength=patients)
    benign_of_patient = np.bincount(code[~y], minlength=patients)
    # A pair is a malignant and a benign region. It is won if the malignant region has the larger
    # score. To get the pairs won without a patient, the pairs of his malignant and of his benign
    # regions are subtracted from all pairs won. Pairs between his own regions are then subtracted
    # twice, so they are added once.
    lost = benign_count * np.bincount(code[y], weights=positive, minlength=patients)
    lost += malignant_count * np.bincount(code[~y], weights=negative, minlength=patients)
    # To count the pairs won within one patient, scores are ranked so that each patient lies above
    # all earlier patients. A malignant region then wins over every benign region of earlier
    # patients. All its other wins are within its own patient.
    patient_then_score = code * len(s) + rankdata(s, "dense")
    placements_by_patient, _ = _placements(y, patient_then_score[None, :])
    won_by_rank = benign_count * np.bincount(
        code[y], weights=placements_by_patient[0], minlength=patients
    )
    benign_of_earlier = np.cumsum(benign_of_patient) - benign_of_patient
    won_within = won_by_rank - malignant_of_patient * benign_of_earlier
    lost -= won_within
    won = benign_count * positive.sum()
    pairs = (malignant_count - malignant_of_patient) * (benign_count - benign_of_patient)
    # Without a pair there is no AUC, and the quotient is not used.
    with np.errstate(invalid="ignore", divide="ignore"):
        without = np.where(pairs > 0, (won - lost) / pairs, np.nan)
    return float(positive.mean()), without, pairs


def delong_auc(truth: ArrayLike, score: ArrayLike) -> Interval:
    """Return the AUC with DeLong's interval on the logit scale.

    The interval takes regions as independent, so it is too narrow if patients have several regions.
    It is given beside that of :func:`clustered_auc`, because papers print it.

    Parameters
    ----------
    truth : array, shape (n,)
        0 or 1.
    score : array, shape (n,)
        Larger is more malignant.

    Examples
    --------
    >>> interval = delong_auc([0, 1, 0, 1, 0, 1], [0.1, 0.9, 0.2, 0.6, 0.7, 0.8])
    >>> round(interval.value, 3), bool(interval.lower < interval.value < interval.upper)
    (0.889, True)
    """
    # With a group of its own for every region, regions count as independent.
    group_of_region = np.arange(len(np.asarray(truth)))
    aucs, covariance = auc_covariance(truth, score, group_of_region)
    auc = float(aucs[0])
    variance = covariance[0, 0]
    method = "ROI-level (DeLong)"
    # With perfect separation no variance can be estimated, and an interval of width 0 would
    # mislead.
    if not np.isfinite(variance) or auc in (0.0, 1.0):
        return Interval(value=auc, lower=float("nan"), upper=float("nan"), method=method)
    # The standard error of the AUC, divided by AUC (1 - AUC), is that of its logit. Rounding could
    # make the variance negative.
    half_in_log_odds = norm.ppf((1 + LEVEL) / 2) * np.sqrt(max(variance, 0.0)) / (auc * (1 - auc))
    lower = expit(logit(auc) - half_in_log_odds)
    upper = expit(logit(auc) + half_in_log_odds)
    return Interval(value=auc, lower=float(lower), upper=float(upper), method=method)


def clustered_share(success: ArrayLike, groups: ArrayLike, design_effect: float = 1.0) -> Interval:
    """Return a share with an interval that is valid also for few patients and for shares of 0 and
    1.

    The interval is Clopper and Pearson's exact interval, computed with an effective number of
    regions. The effective number is n divided by the design effect (at least 1), times the square
    of a ratio of two t-quantiles. The design effect is the factor by which the variance grows
    because regions of one patient are alike. The quantile in the numerator has the degrees of
    freedom of the regions, that in the denominator those of the patients (Korn & Graubard, Surv.
    Methodol. 24 (1998) 193).

    Parameters
    ----------
    success : array, shape (n,)
        0 or 1.
    groups : array, shape (n,)
        The patient of every region.
    design_effect : float
        Design effect to use if all values of ``success`` are equal, so that it cannot be estimated
        from them.

    Examples
    --------
    >>> interval = clustered_share([1, 1, 1, 0], ["a", "a", "b", "c"])
    >>> interval.value, bool(interval.lower < 0.75 < interval.upper)
    (0.75, True)
    """
    successes = np.asarray(success, dtype=float)
    patient_code = np.unique(groups, return_inverse=True)[1]
    regions = len(successes)
    nan = float("nan")
    method = "exact at the effective number of regions (Korn and Graubard)"
    if regions == 0:
        return Interval(value=nan, lower=nan, upper=nan, method=method)
    patients = int(patient_code.max()) + 1
    share = float(successes.mean())
    # The t-quantile of the patients needs two of them.
    if patients < 2:
        return Interval(value=share, lower=nan, upper=nan, method=method)
    estimated = share_design_effect(successes, groups)
    # Without an estimate the given design effect counts. An effect below 1 would be by chance,
    # since regions of a patient are not less alike than others.
    used_effect = max(1.0, design_effect if np.isnan(estimated) else estimated)
    tail = (1 + LEVEL) / 2
    effective_regions = _effective_regions(regions, patients, used_effect, tail)
    effective_successes = share * effective_regions
    effective_failures = effective_regions - effective_successes
    # Without any success the lower end is 0, and without any failure the upper end is 1. There the
    # beta distribution would have a parameter of 0.
    lower = 0.0
    upper = 1.0
    if effective_successes > 0:
        lower = beta.ppf(1 - tail, effective_successes, effective_failures + 1)
    if effective_successes < effective_regions:
        upper = beta.ppf(tail, effective_successes + 1, effective_failures)
    return Interval(value=share, lower=float(lower), upper=float(upper), method=method)


def share_lower_bound(success: ArrayLike, groups: ArrayLike, design_effect: float) -> float:
    """Return the one-sided lower 95 % bound of a share, for a given design effect.

    The bound is computed like the interval of :func:`clustered_share`, but one-sided. If n patients
    have one region each, and ``success`` is 1 for all, the bound is .05 ** (1 / n). With one
    patient the bound is 0.

    Parameters
    ----------
    success : array, shape (n,)
        0 or 1; at least one.
    groups : array, shape (n,)
        The patient of every region.
    design_effect : float
        Factor, at least 1, by which the variance is larger because regions of one patient are
        alike.

    Examples
    --------
    >>> round(share_lower_bound([1] * 59, range(59), 1.0), 4)
    0.9505
    """
    successes = np.asarray(success, dtype=float)
    patients = len(np.unique(np.asarray(groups)))
    # With one patient nothing is known of other patients; a share of 0 has no lower bound above 0.
    if patients < 2 or not successes.any():
        return 0.0
    effective_regions = _effective_regions(len(successes), patients, max(1.0, design_effect), LEVEL)
    effective_successes = float(successes.mean()) * effective_regions
    effective_failures = effective_regions - effective_successes
    return float(beta.ppf(1 - LEVEL, effective_successes, effective_failures + 1))


def _effective_regions(n: int, patients: int, effect: float, tail: float) -> float:
    """Return the number of independent regions that carry as much information as ``n`` regions.

    The n regions belong to ``patients`` patients. ``effect`` is the design effect, and ``tail`` the
    probability of the t-quantiles, such as .975 (:func:`clustered_share`).
    """
    ratio_of_quantiles = t_distribution.ppf(tail, n - 1) / t_distribution.ppf(tail, patients - 1)
    return float(n / effect * ratio_of_quantiles**2)


def share_design_effect(success: ArrayLike, groups: ArrayLike) -> float:
    """Return the design effect of a share.

    It is the variance that takes the regions of a patient as dependent, divided by the variance
    that independent regions would have. It is NaN if the share is 0 or 1, and with one patient.

    Parameters
    ----------
    success : array, shape (n,)
        0 or 1.
    groups : array, shape (n,)
        The patient of every region.

    Examples
    --------
    >>> share_design_effect([1, 1, 0, 0], ["a", "a", "b", "b"]) > 1
    True
    """
    successes = np.asarray(success, dtype=float)
    patient_code = np.unique(groups, return_inverse=True)[1]
    share = successes.mean()
    patients = int(patient_code.max()) + 1
    # If all regions are alike, or of one patient, no variance can be estimated.
    if share in (0.0, 1.0) or patients < 2:
        return float("nan")
    deviations_of_patients = np.bincount(patient_code, weights=successes - share)
    clustered_variance = (
        patients / (patients - 1) * np.sum(deviations_of_patients**2) / len(successes) ** 2
    )
    independent_variance = share * (1 - share) / len(successes)
    return float(clustered_variance / independent_variance)


def patient_resamples(groups: ArrayLike, n: int, seed: int) -> Iterator[np.ndarray]:
    """Yield ``n`` bootstrap resamples of whole patients, several resamples at a time.

    Parameters
    ----------
    groups : array, shape (n_rows,)
        The patient of every row.
    n, seed : int
        Number of resamples, and the seed of the draws.

    Yields
    ------
    ndarray, shape (resamples of this block, n_rows)
        How often every row was drawn in each resample.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.concatenate(list(patient_resamples(["a", "a", "b"], 5, seed=0)))
    >>> weights.shape, bool((weights[:, 0] == weights[:, 1]).all())
    ((5, 3), True)
    """
    patient_of_row = np.unique(np.asarray(groups), return_inverse=True)[1]
    patients = int(patient_of_row.max(initial=-1)) + 1
    rng = np.random.default_rng(seed)
    # As many resamples at a time as fit into the processor's cache, but at least one.
    block_size = max(1, _ENTRIES // max(1, len(patient_of_row)))
    for begin in range(0, n, block_size):
        # A patient may be drawn several times, or not at all, and each of his rows with him.
        draws = [rng.integers(0, patients, patients) for _ in range(min(block_size, n - begin))]
        times_of_rows = [np.bincount(draw, minlength=patients)[patient_of_row] for draw in draws]
        yield np.array(times_of_rows, dtype=float)


def bootstrap(
    statistic: Callable[[np.ndarray], np.ndarray], groups: ArrayLike, n: int, seed: int
) -> np.ndarray:
    """Return percentile intervals of several statistics, by resampling patients.

    Parameters
    ----------
    statistic : callable
        Function of the weights of the rows in each resample, shape (draws, n_rois). It returns the
        k statistics of every resample, shape (draws, k); NaN where one cannot be computed.
    groups : array, shape (n_rois,)
        The patient of every ROI.
    n : int
        Number of resamples.
    seed : int
        Seed of the resampling.

    Returns
    -------
    ndarray, shape (k, 2)
        Lower and upper ends of 95 % intervals. They are NaN if there are no resamples, and if half
        of the resamples or more gave NaN. They are also NaN if all resamples gave the same value,
        because a width of 0 would mislead.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.arange(20.0)
    >>> def mean(weight):
    ...     return (weight * values).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    >>> bootstrap(mean, np.arange(20), n=200, seed=0).shape
    (1, 2)
    """
    # Without resamples the statistic is computed once, only to learn how many values it has.
    if n == 0:
        each_row_once = np.ones((1, len(np.asarray(groups))))
        return np.full((statistic(each_row_once).shape[1], 2), np.nan)
    values_of_draws = np.concatenate(
        [statistic(weight) for weight in patient_resamples(groups, n, seed)]
    )
    ends = np.full((values_of_draws.shape[1], 2), np.nan)
    tail = (1 - LEVEL) / 2
    for j, column in enumerate(values_of_draws.T):
        usable = column[np.isfinite(column)]
        # A range of resampled values below 1e-12 may be a rounding error, and counts as no range.
        if len(usable) * 2 > n and np.ptp(usable) > 1e-12:
            ends[j] = np.quantile(usable, [tail, 1 - tail])
    return ends


def bootstrap_intervals(
    statistic: Callable[[np.ndarray], np.ndarray], groups: ArrayLike, n: int, seed: int
) -> list[Interval]:
    """Return several statistics, each with its percentile interval from resamples of the patients.

    Parameters
    ----------
    statistic : callable
        Function of the weights of the rows in each resample, shape (draws, n). It returns the k
        statistics of every resample, shape (draws, k).
    groups : array, shape (n,)
        The patient of every row.
    n, seed : int
        Number of resamples, and their seed.

    Returns
    -------
    list of Interval
        One for each of the k statistics.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.arange(20.0)
    >>> def mean(weight):
    ...     return (weight * values).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    >>> (interval,) = bootstrap_intervals(mean, np.arange(20), n=200, seed=0)
    >>> interval.value, bool(5 < interval.lower < 9.5 < interval.upper < 14)
    (9.5, True)
    """
    each_row_once = np.ones((1, len(np.asarray(groups))))
    values = statistic(each_row_once)[0]
    ends = bootstrap(statistic, groups, n, seed)
    method = f"{n} patient resamples"
    intervals = []
    for value, (low, high) in zip(values, ends, strict=True):
        intervals.append(
            Interval(value=float(value), lower=float(low), upper=float(high), method=method)
        )
    return intervals


def _placements(y: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every region, the share of the other class with which it is in the right order.

    ``s`` has a row for each of several scores. Ties count one half.

    The first array has, for every positive, the share of negatives below it. The second array has,
    for every negative, the share of positives above it.
    """
    malignant_count = int(y.sum())
    benign_count = int((~y).sum())
    rank_among_all = rankdata(s, axis=1)
    rank_among_positives = rankdata(s[:, y], axis=1)
    rank_among_negatives = rankdata(s[:, ~y], axis=1)
    # A positive's rank among all, minus its rank among positives, is the number of negatives below
    # it. The same holds for a negative and the positives below it.
    negatives_below = rank_among_all[:, y] - rank_among_positives
    positives_below = rank_among_all[:, ~y] - rank_among_negatives
    return negatives_below / benign_count, 1 - positives_below / malignant_count


def _cluster_sums(values: np.ndarray, code: np.ndarray, clusters: int) -> np.ndarray:
    """Return the sums of each row of ``values`` over the regions of each patient.

    ``code`` has the patient of every region. The shape is (rows, ``clusters``).
    """
    return np.array([np.bincount(code, weights=row, minlength=clusters) for row in values])
