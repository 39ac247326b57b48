"""Compare the AUCs of ways of reading, over several readers and cases.

The method is that of Obuchowski & Rockette (1995), with covariances by leaving out each patient in
turn (jackknife). Degrees of freedom are those of Hillis, Stat. Med. 26 (2007) 596. Readers and
patients are both treated as random samples, so the result also applies to other readers and
patients like these.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import f as f_distribution
from scipy.stats import t as t_distribution

from cad.base.errors import CadError
from cad.learning.evaluation.measures.intervals import auc_without_each_patient
from cad.learning.evaluation.measures.metrics import auc


@dataclass(frozen=True)
class MRMC:
    """Hold a comparison of treatments, which are ways of reading, such as without and with CAD.

    The same readers read the same cases in each treatment (multi-reader multi-case design).

    Parameters
    ----------
    aucs : ndarray, shape (treatments, readers)
        AUC of each reader in each treatment.
    treatment_aucs : ndarray, shape (treatments,)
        Mean AUC over readers, for each treatment.
    f, df1, df2, p : float
        F statistic, degrees of freedom and p-value of the hypothesis that all treatments are equal.
        p is NaN if there is no variation at all.
    difference, error, lower, upper : float
        Mean AUC of the last treatment minus the mean AUC of the first, its standard error and 95 %
        interval.
    cov1, cov2, cov3 : float
        Jackknife covariances of two AUCs: of one reader in two treatments, of two readers in one
        treatment, and of two readers in two treatments.
    variance : float
        Mean jackknife variance of one AUC.
    ms_treatment, ms_interaction : float
        Mean squares of treatment, and of treatment by reader, in the two-way table of AUCs.
    n, omitted : int
        Number of cases that were used, and number of cases that were left out because their truth
        or a rating is missing.
    """

    aucs: np.ndarray
    treatment_aucs: np.ndarray
    f: float
    df1: float
    df2: float
    p: float
    difference: float
    error: float
    lower: float
    upper: float
    variance: float
    cov1: float
    cov2: float
    cov3: float
    ms_treatment: float
    ms_interaction: float
    n: int
    omitted: int


@dataclass(frozen=True)
class AgainstReaders:
    """Hold a comparison of one CAD system with several readers of the same cases.

    Parameters
    ----------
    cad_auc : float
        AUC of the system.
    reader_aucs : ndarray, shape (readers,)
        AUC of every reader.
    difference, lower, upper : float
        AUC of CAD minus the readers' mean AUC, with its 95 % interval.
    t, df, p : float
        t statistic, degrees of freedom and p-value of the hypothesis that the difference is zero.
    n, omitted : int
        Number of cases that were used, and number of cases that were left out because their truth
        or a rating is missing.
    """

    cad_auc: float
    reader_aucs: np.ndarray
    difference: float
    lower: float
    upper: float
    t: float
    df: float
    p: float
    n: int
    omitted: int


def obuchowski_rockette(
    truth: ArrayLike, ratings: ArrayLike, groups: ArrayLike | None = None
) -> MRMC:
    """Compare the mean AUC of treatments by the method of Obuchowski and Rockette.

    A treatment is a way of reading, such as without and with CAD. Readers and patients are both
    treated as random samples. Cases that a reader did not rate in a treatment are left out.

    Parameters
    ----------
    truth : array, shape (n,)
        0, 1, or NaN (left out).
    ratings : array, shape (treatments, readers, n)
        Higher is more suspicious; NaN where a reader gave none.
    groups : array, shape (n,), optional
        Patient of every case (ROI); when not given, every case counts as a patient of its own. The
        jackknife leaves out whole patients.

    Returns
    -------
    MRMC
        AUC of each reader in each treatment, shape (treatments, readers), and their means over
        readers. Also the F test of equal treatments, and the mean AUC of the last treatment minus
        that of the first with its standard error and 95 % interval. If nothing varies at all, F, p
        and the interval are NaN.

    Raises
    ------
    CadError
        For fewer than two treatments or readers. Also if the cases that all readers rated are of
        one class, or if one class has cases of one patient only.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0, 1], 20)
    >>> ratings = truth + rng.normal(0, [[[1.0]], [[0.5]]], (2, 3, 40))
    >>> comparison = obuchowski_rockette(truth, ratings)
    >>> alone, helped = comparison.treatment_aucs
    >>> bool(alone < helped)
    True
    """
    table = np.asarray(ratings, dtype=float)
    if table.ndim != 3 or min(table.shape[:2]) < 2:
        raise CadError(
            "a multi-reader comparison needs two treatments and two readers or more, "
            f"found {table.shape[:2] if table.ndim == 3 else table.shape}"
        )
    treatments, readers = table.shape[:2]
    # A row for each reader in each treatment, with a column for each case.
    y, rating_rows, group, omitted = _complete(truth, table.reshape(-1, table.shape[2]), groups)
    aucs = _auc_of_readers(y, rating_rows).reshape(treatments, readers)
    covariance = _jackknife_covariance(y, rating_rows, group).reshape(
        treatments, readers, treatments, readers
    )
    variance, cov1, cov2, cov3 = _components(covariance)
    treatment_aucs = aucs.mean(axis=1)
    reader_aucs = aucs.mean(axis=0)
    # The mean squares of a two-way analysis of variance of the AUCs.
    ms_treatment = float(readers * np.sum((treatment_aucs - aucs.mean()) ** 2) / (treatments - 1))
    residual = aucs - treatment_aucs[:, None] - reader_aucs[None, :] + aucs.mean()
    ms_interaction = float(np.sum(residual**2) / ((treatments - 1) * (readers - 1)))
    # cov2 is the covariance of the AUCs of two readers under one treatment, cov3 under two
    # treatments. The true cov2 is at least cov3. If the estimate of cov2 is below that of cov3,
    # their difference counts as 0. Otherwise the error would be too small (Hillis).
    denominator = ms_interaction + readers * max(cov2 - cov3, 0.0)
    f, df2, p = _f_test(ms_treatment, ms_interaction, denominator, treatments, readers)
    difference = float(treatment_aucs[-1] - treatment_aucs[0])
    # The difference of two treatments' mean AUCs has the variance 2/r (MS(T*R) + r (cov2 - cov3)).
    # r is the number of readers and MS(T*R) the mean square of treatment by reader. The expression
    # in brackets is ``denominator``.
    error = float(np.sqrt(2 / readers * denominator))
    half_interval = float(t_distribution.ppf(0.975, df2) * error)
    return MRMC(
        aucs=aucs,
        treatment_aucs=treatment_aucs,
        f=f,
        df1=float(treatments - 1),
        df2=df2,
        p=p,
        difference=difference,
        error=error,
        lower=difference - half_interval,
        upper=difference + half_interval,
        variance=variance,
        cov1=cov1,
        cov2=cov2,
        cov3=cov3,
        ms_treatment=ms_treatment,
        ms_interaction=ms_interaction,
        n=len(y),
        omitted=omitted,
    )


def u_statistic(truth: ArrayLike, ratings: ArrayLike) -> tuple[np.ndarray, float, float]:
    """Compare the AUC of two treatments if not every reader read every case.

    A treatment is a way of reading, such as without and with CAD.

    An AUC is a mean over pairs of a malignant and a benign case, and two pairs may have a reader or
    a case in common. The variance is computed from unbiased moments of the pairs (Gallas, Acad.
    Radiol. 13 (2006) 353; Gallas & Brown 2008 for incomplete designs).

    Parameters
    ----------
    truth : array, shape (n,)
        0 or 1.
    ratings : array, shape (2, readers, n)
        Higher is more suspicious; NaN where a reader did not read the case.

    Returns
    -------
    aucs : ndarray, shape (2,)
        AUC of each treatment. Every pair of a malignant and a benign case that were read by the
        same reader counts once.
    difference, error : float
        AUC of the last treatment minus the AUC of the first, and its standard error.

    Raises
    ------
    CadError
        If in one of the treatments no reader read both a malignant and a benign case.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0, 1], 20)
    >>> ratings = truth + rng.normal(0, [[[1.0]], [[0.5]]], (2, 3, 40))
    >>> aucs, difference, error = u_statistic(truth, ratings)
    >>> bool(aucs[0] < aucs[1]), error > 0
    (True, True)
    """
    y = np.asarray(truth, dtype=float)
    table = np.asarray(ratings, dtype=float)
    was_read = []
    won = []
    for treatment_ratings in table:
        # ``gap`` has the shape (readers, malignant, benign). If one of the two cases was not read
        # by the reader, the gap is NaN, and there is no pair.
        malignant = treatment_ratings[:, y == 1]
        benign = treatment_ratings[:, y == 0]
        gap = malignant[:, :, None] - benign[:, None, :]
        was_read.append(np.isfinite(gap) * 1.0)
        # A pair is won if the malignant case has the higher rating; equal ratings count one half.
        won.append(np.where(gap > 0, 1.0, np.where(gap == 0, 0.5, 0.0)))
    pairs = [float(of_treatment.sum()) for of_treatment in was_read]
    if min(pairs) == 0:
        raise CadError("no reader read a malignant and a benign case in one of the treatments")
    won_pairs = np.array([of_treatment.sum() for of_treatment in won])
    aucs = won_pairs / np.array(pairs)
    covariance = np.zeros((2, 2))
    for i, j in product(range(2), repeat=2):
        # A unit is a malignant and a benign case compared by one reader. Two units may share the
        # reader, the malignant case, the benign case, or several of these, which makes eight kinds
        # of two units. The covariance is the sum over the kinds of the mean product (``moment``),
        # weighted by the share of the kind, minus the squared mean. ``moment[0, 0, 0]``, of units
        # that share nothing, is an unbiased estimate of the squared mean. A kind without any two
        # units has no mean product, and counts as 0.
        won_together = _pair_sums(won[i], won[j])
        pairs_of_units = _pair_sums(was_read[i], was_read[j])
        moment = np.divide(
            won_together,
            pairs_of_units,
            out=np.zeros_like(won_together),
            where=pairs_of_units > 0,
        )
        covariance[i, j] = np.sum(pairs_of_units * moment) / (pairs[i] * pairs[j]) - moment[0, 0, 0]
    # An unbiased estimate of a variance may be negative, and then counts as 0.
    variance = covariance[0, 0] + covariance[1, 1] - covariance[0, 1] - covariance[1, 0]
    return aucs, float(aucs[1] - aucs[0]), float(np.sqrt(max(variance, 0.0)))


def _pair_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sums of the products a[i] b[j] over pairs of entries, in eight groups of pairs.

    ``a`` and ``b`` have three axes each. A group has the pairs whose indices i and j are equal on
    the same axes. The result has shape (2, 2, 2): on each axis, place 0 is for pairs whose indices
    on this axis differ, and place 1 for pairs whose indices are equal.
    """
    total = np.zeros((2, 2, 2))
    for same in product((0, 1), repeat=3):
        # The sum over an axis of both arrays, multiplied, has all pairs of indices on this axis.
        summed_axes = tuple(axis for axis in range(3) if not same[axis])
        total[same] = np.sum(a.sum(axis=summed_axes) * b.sum(axis=summed_axes))
    # So far, place 0 of an axis has all pairs. The pairs with equal indices on this axis are
    # subtracted, so that only pairs with different indices remain.
    for axis in range(3):
        # A colon for each axis before this one, and then the place on this axis.
        different = (slice(None),) * axis + (0,)
        equal = (slice(None),) * axis + (1,)
        total[different] -= total[equal]
    return total


def against_readers(
    truth: ArrayLike, cad: ArrayLike, ratings: ArrayLike, groups: ArrayLike | None = None
) -> AgainstReaders:
    """Compare the AUC of one CAD system with the mean AUC of readers.

    Readers and patients are both treated as random samples. The hypothesis is that the mean of the
    AUC differences, CAD minus each reader, is zero (Hillis, Obuchowski & Berbaum 2011; used for
    stand-alone CAD by Hupse et al. 2013).

    Parameters
    ----------
    truth : array, shape (n,)
        0, 1, or NaN (left out).
    cad : array, shape (n,)
        Score of the system.
    ratings : array, shape (readers, n)
        NaN where a reader gave none.
    groups : array, shape (n,), optional
        Patient of every case.

    Returns
    -------
    AgainstReaders
        AUC of the system and of each reader, shape (readers,), and the AUC of the system minus the
        readers' mean AUC, with its 95 % interval and t test. t and p are NaN if the standard error
        is 0.

    Raises
    ------
    CadError
        For fewer than two readers. Also if the cases without missing values are of one class, or if
        one class has cases of one patient only.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0, 1], 20)
    >>> readers = truth + rng.normal(0, 1.0, (3, 40))
    >>> compared = against_readers(truth, truth + rng.normal(0, 0.3, 40), readers)
    >>> len(compared.reader_aucs), bool(compared.cad_auc > compared.reader_aucs.mean())
    (3, True)
    """
    table = np.asarray(ratings, dtype=float)
    if table.ndim != 2 or len(table) < 2:
        raise CadError(f"a comparison with readers needs two or more, found {len(table)}")
    rows = np.vstack([np.asarray(cad, dtype=float), table])
    y, score_rows, group, omitted = _complete(truth, rows, groups)
    aucs = _auc_of_readers(y, score_rows)
    reader_count = len(table)
    # The comparison uses AUC(CAD) - AUC(reader r) for each reader r. The AUC of CAD is in each of
    # these differences, so all are correlated.
    contrast = np.hstack([np.ones((reader_count, 1)), -np.eye(reader_count)])
    from_each_reader = contrast @ aucs
    covariance = contrast @ _jackknife_covariance(y, score_rows, group) @ contrast.T
    # cov2 is the mean covariance of the differences of two readers: the mean of the elements off
    # the diagonal. If its estimate is negative, it counts as 0. Otherwise the error would be too
    # small (Hillis).
    cov2 = float((covariance.sum() - np.trace(covariance)) / (reader_count * (reader_count - 1)))
    ms_reader = float(np.var(from_each_reader, ddof=1))
    denominator = ms_reader + reader_count * max(cov2, 0.0)
    # The mean difference of r readers has the variance (MS(R) + r cov2) / r, with MS(R) the mean
    # square of the readers' differences.
    difference = float(from_each_reader.mean())
    error = float(np.sqrt(denominator / reader_count))
    # If all readers' differences are equal, their mean square is 0, and t is normal.
    degrees = (
        float("inf") if ms_reader == 0 else (denominator / ms_reader) ** 2 * (reader_count - 1)
    )
    statistic = difference / error if error > 0 else float("nan")
    half_interval = float(t_distribution.ppf(0.975, degrees) * error)
    return AgainstReaders(
        cad_auc=float(aucs[0]),
        reader_aucs=aucs[1:],
        difference=difference,
        lower=difference - half_interval,
        upper=difference + half_interval,
        t=statistic,
        df=degrees,
        p=float(2 * t_distribution.sf(abs(statistic), degrees)),
        n=len(y),
        omitted=omitted,
    )


def _complete(
    truth: ArrayLike, scores: np.ndarray, groups: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Leave out cases whose truth, or any of whose scores, is missing.

    Return truth, scores and patients of the other cases, and the number of cases left out. Without
    ``groups`` every case is a patient of its own. Raise an error if a class has cases of fewer than
    two patients.
    """
    y = np.asarray(truth, dtype=float)
    group = np.arange(len(y)) if groups is None else np.asarray(groups)
    usable = np.isfinite(y) & np.isfinite(scores).all(axis=0)
    y = y[usable]
    scores = scores[:, usable]
    group = group[usable]
    if not ((y == 1).any() and (y == 0).any()):
        raise CadError(
            f"the {len(y)} cases that everyone rated and whose truth is known lack a class"
        )
    for label, class_name in ((1, "malignant"), (0, "benign")):
        if len(np.unique(group[y == label])) < 2:
            raise CadError(f"only one patient has {class_name} cases: the jackknife needs two")
    return y, scores, group, int((~usable).sum())


def _auc_of_readers(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the AUC of each row of ``scores``."""
    return np.array([auc(y, row) for row in scores])


def _jackknife_covariance(
    truth: np.ndarray, ratings: np.ndarray, patient: np.ndarray
) -> np.ndarray:
    """Return by how much the AUCs of several readings vary, and vary together, over patients.

    Each of the n patients is left out in turn. The pseudovalue of patient i is n A - (n - 1) A_i. A
    is the AUC of all cases, and A_i the AUC without him (Efron and Tibshirani 1993, chapter 11).
    The result is the covariance of the pseudovalues' means.

    Parameters
    ----------
    truth : ndarray, shape (n_cases,)
        1 malignant, 0 benign.
    ratings : ndarray, shape (n_readings, n_cases)
        One row per reading, such as one reader's ratings under one treatment.
    patient : ndarray, shape (n_cases,)
        Patient of every case.

    Returns
    -------
    ndarray, shape (n_readings, n_readings)
        Variances of the AUCs on the diagonal, covariances of two AUCs beside it.
    """
    patient_number = np.unique(patient, return_inverse=True)[1]
    n_patients = int(patient_number.max()) + 1
    aucs_without = []
    for rating in ratings:
        _, without, _ = auc_without_each_patient(truth == 1, rating, patient_number)
        aucs_without.append(without)
    covariance = np.atleast_2d(np.cov(aucs_without, ddof=1))
    # A jackknife pseudovalue is -(n - 1) A_i plus a constant, with n patients and A_i the AUC
    # without patient i. So its covariance is (n - 1)^2 times that of A_i. The covariance of a mean
    # of n pseudovalues is 1/n of that of a pseudovalue.
    return covariance * (n_patients - 1) ** 2 / n_patients


def _components(covariance: np.ndarray) -> tuple[float, float, float, float]:
    """Return the variance, cov1, cov2 and cov3 of :class:`MRMC`.

    They are means of entries of ``covariance``, shape (t, r, t, r), for t treatments and r readers.
    """
    treatments, readers = covariance.shape[:2]
    same_treatment = np.eye(treatments, dtype=bool)[:, None, :, None]
    same_reader = np.eye(readers, dtype=bool)[None, :, None, :]
    kinds = (
        same_treatment & same_reader,
        ~same_treatment & same_reader,
        same_treatment & ~same_reader,
        ~same_treatment & ~same_reader,
    )
    # In the order of the kinds: variance, cov1, cov2, cov3.
    means = [float(covariance[np.broadcast_to(kind, covariance.shape)].mean()) for kind in kinds]
    return means[0], means[1], means[2], means[3]


def _f_test(
    ms_treatment: float, ms_interaction: float, denominator: float, treatments: int, readers: int
) -> tuple[float, float, float]:
    """Return F, its denominator's degrees of freedom by Hillis, and the p-value."""
    # A denominator of 0 means that nothing varies.
    if denominator <= 0:
        return float("nan"), float("nan"), float("nan")
    # Without interaction the formula for the degrees of freedom would divide by 0.
    if ms_interaction == 0:
        df2 = float("inf")
    else:
        df2 = (denominator / ms_interaction) ** 2 * (treatments - 1) * (readers - 1)
    f = ms_treatment / denominator
    # The F distribution is not defined for infinite degrees of freedom. With 1e9 it equals its
    # limit, chi-squared / (t - 1), in all digits.
    return f, df2, float(f_distribution.sf(f, treatments - 1, min(df2, 1e9)))
