"""Compute conformal p-values of each class, calibrated on patients of known truth.

A conformal p-value says how implausible a class is for a new region. It compares the region's score
with the scores of regions whose truth is known: the calibration regions.

The libraries crepes and MAPIE also compute such p-values for each class. But they assume that every
calibration region is exchangeable with the new region, which is not so if several regions belong to
one patient. Here only the patients are assumed to be exchangeable. Each calibration patient with
regions of the class has the weight 1, shared equally among these regions (hierarchical conformal
prediction; Dunn, Wasserman & Ramdas 2023, Lee, Barber & Willett 2023). Draw a region at random from
the regions of its true class in a new patient. The p-value of its true class is at most a with
probability at most a, for every a.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


def conformal_p_values(
    truth: ArrayLike,
    score: ArrayLike,
    groups: ArrayLike,
    new_score: ArrayLike,
    label: int,
    of: ArrayLike | None = None,
) -> np.ndarray:
    """Return conformal p-values of one class for new regions, from regions of calibration patients.

    A small p-value says that the class is implausible for the region.

    Parameters
    ----------
    truth : array, shape (n,)
        0 or 1 of the calibration regions; regions with NaN are not used.
    score : array, shape (n,)
        Out-of-fold scores of the calibration regions, larger is more malignant; regions with NaN
        are not used.
    groups : array, shape (n,)
        Patient of every calibration region.
    new_score : array, shape (m,)
        Scores of the new regions.
    label : {0, 1}
        The class whose p-values are computed.
    of : array, shape (m,), optional
        Patient of every new region, if the new regions are themselves calibration regions. Each
        region is then calibrated on the other patients only.

    Returns
    -------
    ndarray, shape (m,)
        (1 + sum of shares) / (1 + number of patients with regions of this class). Each of these
        patients has one share: the share of his regions of this class whose score is no more
        typical of the class than the new region's score. The p-value is 1 for every region if no
        calibration region is of this class, and NaN where the new score is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0, 0, 0, 1])
    >>> score = np.array([0.1, 0.2, 0.3, 0.9])
    >>> p = conformal_p_values(truth, score, np.arange(4), [0.05, 0.95], label=0)
    >>> p.round(2).tolist()
    [1.0, 0.25]
    """
    truths = np.asarray(truth, float)
    scores = np.asarray(score, float)
    patients = np.asarray(groups)
    is_calibrating = (truths == label) & np.isfinite(scores)
    # A low score is atypical of malignant regions, a high score is atypical of benign regions. So
    # with this sign, larger values are more typical of the class.
    sign = 1.0 if label == 1 else -1.0
    typical = sign * scores[is_calibrating]
    new = sign * np.asarray(new_score, dtype=float)
    patient_code = np.unique(patients[is_calibrating], return_inverse=True)[1]
    regions_of_patient = np.bincount(patient_code)
    regions_of_its_patient = regions_of_patient[patient_code]
    # Without ``of`` no new region has a calibration region of its own patient.
    of_same_patient = size_of_same_patient = np.zeros(len(new), int)
    if of is not None:
        of_same_patient, size_of_same_patient = _equal_in_patient(
            typical, patients[is_calibrating], new, np.asarray(of)
        )
    # Each region of a calibration patient with n regions counts 1/n. Patients with the same n are
    # treated together: their regions are counted in whole numbers, and the count is divided by n
    # once. A sum of single fractions 1/n could differ from 1 for a whole patient because of
    # rounding.
    sum_of_shares = np.zeros(len(new))
    for patient_size in np.unique(regions_of_patient):
        # Of the regions that are no more typical than a new region, those of its own patient are
        # taken off.
        not_above = np.searchsorted(
            np.sort(typical[regions_of_its_patient == patient_size]), new, "right"
        )
        sum_of_shares += (
            not_above - of_same_patient * (size_of_same_patient == patient_size)
        ) / patient_size
    # The 1 that is added stands for the new patient, who is exchangeable with the calibration
    # patients.
    other_patients = len(regions_of_patient) - (size_of_same_patient > 0)
    return np.where(np.isnan(new), np.nan, (1 + sum_of_shares) / (1 + other_patients))


def _equal_in_patient(
    typical: np.ndarray, groups: np.ndarray, new: np.ndarray, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Count for each new region the calibration regions of its patient that are no more typical.

    ``typical`` and ``new`` say how typical of a class the calibration regions and the new regions
    are. A calibration region is counted if it is at most as typical as the new region. ``groups``
    and ``of`` are the patients of the calibration regions and of the new regions. The result is two
    arrays with an entry for each new region, shape (m,): the count, and the number of all
    calibration regions of its patient. All scores are sorted by patient and then by rank, so one
    search counts within each patient.
    """
    # Scores are replaced by their ranks, which are integers, so no digit of a score is lost.
    # Patient number times the number of ranks, plus the rank, sorts by patient first and by score
    # second.
    rank = np.unique(np.r_[typical, new], return_inverse=True)[1]
    patient_number = np.unique(np.r_[groups, of], return_inverse=True)[1]
    patient_start = patient_number * len(rank)
    calibration_regions = len(typical)
    # The calibration regions come first, then the new regions.
    sorted_keys = np.sort(patient_start[:calibration_regions] + rank[:calibration_regions])
    new_start = patient_start[calibration_regions:]
    new_rank = rank[calibration_regions:]
    before_patient = np.searchsorted(sorted_keys, new_start)
    up_to_region = np.searchsorted(sorted_keys, new_start + new_rank, "right")
    up_to_patient_end = np.searchsorted(sorted_keys, new_start + len(rank))
    return up_to_region - before_patient, up_to_patient_end - before_patient


def leave_patient_out_p_values(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return conformal p-values of both classes for every region, calibrated on the other patients.

    Parameters
    ----------
    truth : array, shape (n,)
        1 or 0 by histology, NaN where unknown.
    score : array, shape (n,)
        Larger is more malignant; NaN where missing.
    groups : array, shape (n,)
        The patient of every region.

    Returns
    -------
    benign, malignant : ndarray, shape (n,)
        p-values of the class benign and of the class malignant; NaN where the score is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0, 0, 0, 1, 1])
    >>> score = [0.1, 0.2, 0.3, 0.8, 0.9]
    >>> benign, malignant = leave_patient_out_p_values(truth, score, np.arange(5))
    >>> bool(benign[0] > benign[4]), bool(malignant[0] < malignant[4])
    (True, True)
    """
    # The calibration regions are at once the new regions.
    benign = conformal_p_values(truth, score, groups, new_score=score, label=0, of=groups)
    malignant = conformal_p_values(truth, score, groups, new_score=score, label=1, of=groups)
    return benign, malignant


@dataclass(frozen=True)
class ConformalLevel:
    """Hold how often conformal sets contain the truth at one error level, and how large they are.

    The conformal set of a region contains each class (benign, malignant) whose p-value exceeds the
    error level.

    Parameters
    ----------
    error : float
        Error level: by the guarantee, at most this share of the sets does not contain the truth.
    coverage_malignant, coverage_benign : float
        Share of malignant (benign) regions whose set contains the truth. It is averaged within
        patients first, and then over patients, because the guarantee is about such an average.
    coverage_malignant_roi, coverage_benign_roi : float
        Share of malignant (benign) regions whose set contains the truth, averaged over regions.
    empty, single, both : float
        Shares of all regions whose set contains no class, one class or both classes.
    """

    error: float
    coverage_malignant: float
    coverage_malignant_roi: float
    coverage_benign: float
    coverage_benign_roi: float
    empty: float
    single: float
    both: float


def conformal_summary(
    truth: ArrayLike,
    score: ArrayLike,
    groups: ArrayLike,
    p_benign: np.ndarray,
    p_malignant: np.ndarray,
    levels: tuple[float, ...] = (0.05, 0.1, 0.2),
) -> dict[str, list[ConformalLevel]]:
    """Measure how often conformal sets contain the truth, and how large they are.

    Parameters
    ----------
    truth, score, groups : array, shape (n,)
        Histology (1, 0, NaN), score (NaN where missing) and patient of every region.
    p_benign, p_malignant : ndarray, shape (n,)
        p-values of :func:`leave_patient_out_p_values`. A class is in a region's set where its
        p-value exceeds the error level.
    levels : tuple of float
        Error levels.

    Returns
    -------
    dict
        One key, ``levels``: a list with a :class:`ConformalLevel` for each error level.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.repeat([0.0, 1.0], 20)
    >>> score = np.concatenate([np.linspace(0.0, 0.6, 20), np.linspace(0.4, 1.0, 20)])
    >>> p_benign, p_malignant = leave_patient_out_p_values(truth, score, np.arange(40))
    >>> summary = conformal_summary(
    ...     truth, score, np.arange(40), p_benign, p_malignant, levels=(0.1,)
    ... )
    >>> summary["levels"][0].coverage_benign, summary["levels"][0].coverage_malignant
    (0.9, 0.9)
    """
    truths = np.asarray(truth, float)
    scores = np.asarray(score, float)
    patients = np.asarray(groups)
    has_score = np.isfinite(scores)
    measured_levels = []
    for error in levels:
        is_malignant = has_score & (truths == 1)
        is_benign = has_score & (truths == 0)
        # A set contains the true class if the p-value of this class exceeds the error level.
        covers_malignant = p_malignant[is_malignant] > error
        covers_benign = p_benign[is_benign] > error
        set_size = (p_benign[has_score] > error).astype(int) + (p_malignant[has_score] > error)
        measured_levels.append(
            ConformalLevel(
                error=error,
                coverage_malignant=_patient_mean(covers_malignant, patients[is_malignant]),
                coverage_malignant_roi=_mean_or_nan(covers_malignant),
                coverage_benign=_patient_mean(covers_benign, patients[is_benign]),
                coverage_benign_roi=_mean_or_nan(covers_benign),
                empty=_mean_or_nan(set_size == 0),
                single=_mean_or_nan(set_size == 1),
                both=_mean_or_nan(set_size == 2),
            )
        )
    return {"levels": measured_levels}


def _mean_or_nan(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _patient_mean(values: np.ndarray, groups: np.ndarray) -> float:
    """Return the mean over patients of each patient's mean; NaN without any value."""
    if len(values) == 0:
        return float("nan")
    patient_code = np.unique(groups, return_inverse=True)[1]
    return float(np.mean(np.bincount(patient_code, weights=values) / np.bincount(patient_code)))
