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
    y, flat, group, omitted = _complete(truth, table.reshape(-1, table.shape[2]), groups)
    t, r = table.shape[:2]
    aucs = _auc_of_readers(y, flat).reshape(t, r)
    cov = _jackknife_covariance(y, flat, group).reshape(t, r, t, r)
    variance, cov1, cov2, cov3 = _components(cov)
    treatment = aucs.mean(axis=1)
    reader = aucs.mean(axis=0)
    ms_treatment = float(r * np.sum((treatment - aucs.mean()) ** 2) / (t - 1))
    residual = aucs - treatment[:, None] - reader[None, :] + aucs.mean()
    ms_interaction = float(np.sum(residual**2) / ((t - 1) * (r - 1)))
    # cov2 is the covariance of the AUCs of two readers under one treatment, cov3 under two
    # treatments. The true cov2 is at least cov3. If the estimate of cov2 is below that of cov3,
    # their difference counts as 0. Otherwise the error would be too small (Hillis).
    denominator = ms_interaction + r * max(cov2 - cov3, 0.0)
    f, df2, p = _f_test(ms_treatment, ms_interaction, denominator, t, r)
    difference = float(treatment[-1] - treatment[0])
    # The difference of two treatments' mean AUCs has the variance 2/r (MS(T*R) + r (cov2 - cov3)).
    # r is the number of readers and MS(T*R) the mean square of treatment by reader.
    error = float(np.sqrt(2 / r * denominator))
    half = float(t_distribution.ppf(0.975, df2) * error)
    return MRMC(
        aucs=aucs,
        treatment_aucs=treatment,
        f=f,
        df1=float(t - 1),
        df2=df2,
        p=p,
        difference=difference,
        error=error,
        lower=difference - half,
        upper=difference + half,
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
    read = []
    won = []
    for wins in table:
        # ``gap`` has the shape (readers, malignant, benign). If one of the two cases was not read
        # by the reader, the gap is NaN, and there is no pair.
        gap = wins[:, y == 1][:, :, None] - wins[:, y == 0][:, None, :]
        read.append(np.isfinite(gap) * 1.0)
        won.append(np.where(gap > 0, 1.0, np.where(gap == 0, 0.5, 0.0)))
    pairs = [float(wins.sum()) for wins in read]
    if min(pairs) == 0:
        raise CadError("no reader read a malignant and a benign case in one of the treatments")
    aucs = np.array([wins.sum() / n for wins, n in zip(won, pairs, strict=True)])
    cov = np.zeros((2, 2))
    for i, j in product(range(2), repeat=2):
        hits = _pair_sums(won[i], won[j])
        both = _pair_sums(read[i], read[j])
        moment = np.divide(hits, both, out=np.zeros_like(hits), where=both > 0)
        # A unit is a malignant and a benign case compared by one reader. Two units may share the
        # reader, the malignant case, the benign case, or several of these, which makes eight kinds
        # of two units. The covariance is the sum over the kinds of the mean product (``moment``),
        # weighted by the share of the kind, minus the squared mean.
        cov[i, j] = np.sum(both * moment) / (pairs[i] * pairs[j]) - moment[0, 0, 0]
    # An unbiased estimate of a variance may be negative, and then counts as 0.
    variance = cov[0, 0] + cov[1, 1] - cov[0, 1] - cov[1, 0]
    return aucs, float(aucs[1] - aucs[0]), float(np.sqrt(max(variance, 0.0)))


def _pair_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sums of the products a[i] b[j] over pairs of entries, in eight groups of pairs.

    ``a`` and ``b`` have three axes each. A group has the pairs whose indices i and j are equal on
    the same axes. The result has shape (2, 2, 2): on each axis, place 0 is for pairs whose indices
    on this axis differ, and place 1 for pairs whose indices are equal.
    """
    total = np.zeros((2, 2, 2))
    for same in product((0, 1), repeat=3):
        summed_axes = tuple(axis for axis in range(3) if not same[axis])
        total[same] = np.sum(a.sum(axis=summed_axes) * b.sum(axis=summed_axes))
    # So far, place 0 of an axis has all pairs. The pairs with equal indices on this axis are
    # subtracted, so that only pairs with different indices remain.
    for axis in range(3):
        total[(slice(None),) * axis + (0,)] -= total[(slice(None),) * axis + (1,)]
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
    y, flat, group, omitted = _complete(truth, rows, groups)
    aucs = _auc_of_readers(y, flat)
    r = len(table)
    # The comparison uses psi_r = AUC(CAD) - AUC(reader r). The AUC of CAD is a part of every psi_r,
    # so all psi_r are correlated.
    contrast = np.hstack([np.ones((r, 1)), -np.eye(r)])
    psi = contrast @ aucs
    cov = contrast @ _jackknife_covariance(y, flat, group) @ contrast.T
    # cov2 is the mean covariance of the differences of two readers: the mean of the elements off
    # the diagonal. If its estimate is negative, it counts as 0. Otherwise the error would be too
    # small (Hillis).
    cov2 = float((cov.sum() - np.trace(cov)) / (r * (r - 1)))
    ms_reader = float(np.var(psi, ddof=1))
    denominator = ms_reader + r * max(cov2, 0.0)
    # The mean difference of r readers has the variance (MS(R) + r cov2) / r, with MS(R) the mean
    # square of the readers' differences.
    difference = float(psi.mean())
    error = float(np.sqrt(denominator / r))
    df = float("inf") if ms_reader == 0 else (denominator / ms_reader) ** 2 * (r - 1)
    statistic = difference / error if error > 0 else float("nan")
    half = float(t_distribution.ppf(0.975, df) * error)
    return AgainstReaders(
        cad_auc=float(aucs[0]),
        reader_aucs=aucs[1:],
        difference=difference,
        lower=difference - half,
        upper=difference + half,
        t=statistic,
        df=df,
        p=float(2 * t_distribution.sf(abs(statistic), df)),
        n=len(y),
        omitted=omitted,
    )


def _complete(
    truth: ArrayLike, scores: np.ndarray, groups: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
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
    for value, name in ((1, "malignant"), (0, "benign")):
        if len(np.unique(group[y == value])) < 2:
            raise CadError(f"only one patient has {name} cases: the jackknife needs two")
    return y, scores, group, int((~usable).sum())


def _auc_of_readers(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
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


def _components(cov: np.ndarray) -> tuple[float, float, float, float]:
    """Return the variance, cov1, cov2 and cov3 of :class:`MRMC`.

    They are means of entries of ``cov``, shape (t, r, t, r), for t treatments and r readers.
    """
    t, r = cov.shape[:2]
    same_t = np.eye(t, dtype=bool)[:, None, :, None]
    same_r = np.eye(r, dtype=bool)[None, :, None, :]
    kinds = (same_t & same_r, ~same_t & same_r, same_t & ~same_r, ~same_t & ~same_r)
    means = [float(cov[np.broadcast_to(kind, cov.shape)].mean()) for kind in kinds]
    return means[0], means[1], means[2], means[3]


def _f_test(
    ms_treatment: float, ms_interaction: float, denominator: float, t: int, r: int
) -> tuple[float, float, float]:
    if denominator <= 0:
        return float("nan"), float("nan"), float("nan")
    if ms_interaction == 0:
        df2 = float("inf")
    else:
        df2 = (denominator / ms_interaction) ** 2 * (t - 1) * (r - 1)
    f = ms_treatment / denominator
    # The F distribution is not defined for infinite degrees of freedom. With 1e9 it equals its
    # limit, chi-squared / (t - 1), in all digits.
    return f, df2, float(f_distribution.sf(f, t - 1, min(df2, 1e9)))
