"""Compute Venn-Abers intervals of a probability, calibrated by patient.

A calibration region is a region of known truth. The new region is added to the calibration regions,
once as benign and once as malignant. Each time isotonic regression of truth on score gives a value
at its score; the two values are the ends of the interval (Vovk & Petej 2014, section 4). That paper
assumes that regions are exchangeable. Here only patients are assumed to be exchangeable: each
calibration patient has the weight 1, shared equally among his regions. The new region has the
weight 1 of a whole patient, because all regions of its patient may err together. Packages such as
venn-abers give every region the same weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import isotonic_regression

MOST_CHECKED = 1000
"""Largest number of regions whose intervals are checked. A share of this many regions is known to
about .03, and the time of the check grows with the square of the number.
"""


def venn_abers(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike, new_score: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper Venn-Abers probability of malignancy for new regions' scores.

    Parameters
    ----------
    truth : array, shape (n,)
        0 or 1 of the calibration regions; regions with NaN are not used.
    score : array, shape (n,)
        Out-of-fold probabilities of the calibration regions; regions with NaN are not used.
    groups : array, shape (n,)
        Patient of every calibration region.
    new_score : array, shape (m,)
        Probabilities of the new regions.

    Returns
    -------
    low, high : ndarray, shape (m,)
        Ends of the interval. They are NaN where ``new_score`` is NaN, and everywhere if the
        calibration regions are of one class.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.repeat([0, 1], 20)
    >>> low, high = venn_abers(truth, np.linspace(0, 1, 40), np.arange(40), [0.5])
    >>> bool(0 <= low[0] < high[0] <= 1)
    True
    """
    y = np.asarray(truth, dtype=float)
    s = np.asarray(score, dtype=float)
    new = np.asarray(new_score, dtype=float)
    has_both = np.isfinite(y) & np.isfinite(s)
    y = y[has_both]
    s = s[has_both]
    ends = np.full((2, len(new)), np.nan)
    # With regions of one class only, an interval would say nothing.
    if not len(y) or np.ptp(y) == 0:
        return ends[0], ends[1]
    _, patient_code, regions_of_patient = np.unique(
        np.asarray(groups)[has_both], return_inverse=True, return_counts=True
    )
    # Isotonic regression needs distinct scores, so the weights of regions of equal score are added
    # up.
    distinct_scores, score_index = np.unique(s, return_inverse=True)
    region_weight = 1 / regions_of_patient[patient_code]
    weight = np.bincount(score_index, region_weight)
    malignant_weight = np.bincount(score_index, y / regions_of_patient[patient_code])
    # All new scores between the same two calibration scores have the same interval. A new score
    # that equals a calibration score is added to the regions of that score.
    has_new_score = np.isfinite(new)
    positions = np.searchsorted(distinct_scores, new)
    equals_score = np.isin(new, distinct_scores)
    # k distinct calibration scores make at most 2 k + 1 cases (k scores, k + 1 gaps), however many
    # new scores there are.
    cases = zip(
        positions[has_new_score].tolist(), equals_score[has_new_score].tolist(), strict=True
    )
    for position, is_equal in sorted(set(cases)):
        # A new score between two others gets a place of its own, to which nothing belongs so far.
        if is_equal:
            weights, malignant_sums = weight, malignant_weight
        else:
            weights, malignant_sums = np.insert([weight, malignant_weight], position, 0.0, axis=1)
        # The new region has the weight 1 at its place, and 0 elsewhere.
        added = np.arange(len(malignant_sums)) == position
        same_position = (positions == position) & (equals_score == is_equal) & has_new_score
        for label in (0, 1):
            total_weights = weights + added
            malignant_shares = (malignant_sums + label * added) / total_weights
            shares = isotonic_regression(malignant_shares, sample_weight=total_weights)
            ends[label, same_position] = shares[position]
    return ends[0], ends[1]


def leave_patient_out_venn_abers(
    truth: ArrayLike,
    score: ArrayLike,
    groups: ArrayLike,
    patients: Sequence[object] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper Venn-Abers probability of every region, from the other patients.

    Parameters
    ----------
    truth : array, shape (n,)
        1 or 0 by histology, NaN where unknown.
    score : array, shape (n,)
        Out-of-fold probabilities; NaN where missing.
    groups : array, shape (n,)
        The patient of every region.
    patients : sequence, optional
        Patients whose regions get an interval; all patients if not given. Each region takes two
        isotonic regressions of all other regions.

    Returns
    -------
    lower, upper : ndarray, shape (n,)
        Ends of the interval. They are NaN where the other patients' regions are of one class, and
        for patients who are not in ``patients``.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.repeat([0, 1], 20)
    >>> low, high = leave_patient_out_venn_abers(truth, np.linspace(0, 1, 40), np.arange(40))
    >>> bool((low <= high).all())
    True
    """
    y = np.asarray(truth, float)
    s = np.asarray(score, float)
    patient_of_region = np.asarray(groups)
    ends = np.full((2, len(s)), np.nan)
    for patient in np.unique(patient_of_region) if patients is None else patients:
        left_out = patient_of_region == patient
        ends[:, left_out] = venn_abers(
            y[~left_out], s[~left_out], patient_of_region[~left_out], s[left_out]
        )
    return ends[0], ends[1]


@dataclass(frozen=True)
class VennAbersCheck:
    """Hold how many regions have a probability that lies in their Venn-Abers interval.

    The ends of this interval are calibrated probabilities: that of the region if it is counted as
    benign, and that if it is counted as malignant (:func:`venn_abers`).

    Parameters
    ----------
    n : int
        Number of regions with an interval.
    inside : float
        Share of these regions whose probability lies in its interval.
    width : float
        Mean width of the intervals. With few patients the intervals are wide, and say little.
    sentence : str
        The same numbers in words.
    """

    n: int
    inside: float
    width: float
    sentence: str


def check_venn_abers(
    truth: ArrayLike, probability: ArrayLike, groups: ArrayLike
) -> VennAbersCheck | None:
    """Count the probabilities that lie in their Venn-Abers interval, calibrated on the other
    patients.

    Parameters
    ----------
    truth : array, shape (n,)
        1 or 0 by histology, NaN where unknown.
    probability : array, shape (n,)
        Out-of-fold probabilities; NaN where missing.
    groups : array, shape (n,)
        The patient of every region.

    Returns
    -------
    VennAbersCheck or None
        None if no region has an interval. If there are more than :data:`MOST_CHECKED` regions, only
        about this number is checked, of patients at equal distances in the sorted list of patients.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q = rng.random(100)
    >>> truth = (rng.random(100) < q).astype(float)
    >>> check = check_venn_abers(truth, q, np.arange(100))
    >>> check.n, check.width < 0.5
    (100, True)
    """
    checked_patients = np.unique(np.asarray(groups))
    regions = len(np.asarray(groups))
    drawn_text = ""
    # Only some patients are checked, because the time grows with the square of the number.
    if regions > MOST_CHECKED:
        patient_count = max(1, round(len(checked_patients) * MOST_CHECKED / regions))
        places = np.linspace(0, len(checked_patients) - 1, patient_count).round().astype(int)
        checked_patients = checked_patients[places]
        drawn_text = f", of {patient_count:,} patients,"
    low, high = leave_patient_out_venn_abers(truth, probability, groups, checked_patients.tolist())
    q = np.asarray(probability, dtype=float)
    has_interval = np.isfinite(low) & np.isfinite(q)
    if not has_interval.any():
        return None
    # The ends of an interval are shares of finitely many regions. So a probability may be equal to
    # an end, except for a rounding error.
    is_above_low = q[has_interval] >= low[has_interval] - 1e-12
    is_below_high = q[has_interval] <= high[has_interval] + 1e-12
    share = float((is_above_low & is_below_high).mean())
    width = float((high - low)[has_interval].mean())
    sentence = (
        f"{share:.0%} of {int(has_interval.sum())} probabilities{drawn_text} "
        "lie in the interval that a calibration without any model gives "
        f"(Venn-Abers, mean width {width:.2f})."
    )
    return VennAbersCheck(n=int(has_interval.sum()), inside=share, width=width, sentence=sentence)
