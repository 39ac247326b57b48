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
    if not len(y) or np.ptp(y) == 0:
        return ends[0], ends[1]
    _, code, size = np.unique(np.asarray(groups)[has_both], return_inverse=True, return_counts=True)
    # Isotonic regression needs distinct scores, so the weights of regions of equal score are added
    # up.
    levels, level = np.unique(s, return_inverse=True)
    weight = np.bincount(level, 1 / size[code])
    malignant = np.bincount(level, y / size[code])
    # All new scores between the same two calibration scores have the same interval. A new score
    # that equals a calibration score is added to the regions of that score.
    scored = np.isfinite(new)
    place = np.searchsorted(levels, new)
    tied = np.isin(new, levels)
    # k distinct calibration scores make at most 2 k + 1 cases (k scores, k + 1 gaps), however many
    # new scores there are.
    for position, tie in sorted({*zip(place[scored].tolist(), tied[scored].tolist(), strict=True)}):
        sums = (weight, malignant) if tie else np.insert([weight, malignant], position, 0.0, axis=1)
        heavier, malignant_sums = sums
        added = np.arange(len(malignant_sums)) == position
        same_position = (place == position) & (tied == tie) & scored
        for label in (0, 1):
            total = heavier + added
            shares = isotonic_regression(
                (malignant_sums + label * added) / total, sample_weight=total
            )
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
    g = np.asarray(groups)
    ends = np.full((2, len(s)), np.nan)
    for patient in np.unique(g) if patients is None else patients:
        left_out = g == patient
        ends[:, left_out] = venn_abers(y[~left_out], s[~left_out], g[~left_out], s[left_out])
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
    names = np.unique(np.asarray(groups))
    regions = len(np.asarray(groups))
    drawn = ""
    if regions > MOST_CHECKED:
        count = max(1, round(len(names) * MOST_CHECKED / regions))
        names = names[np.linspace(0, len(names) - 1, count).round().astype(int)]
        drawn = f", of {count:,} patients,"
    low, high = leave_patient_out_venn_abers(truth, probability, groups, names.tolist())
    q = np.asarray(probability, dtype=float)
    scored = np.isfinite(low) & np.isfinite(q)
    if not scored.any():
        return None
    # The ends of an interval are shares of finitely many regions. So a probability may be equal to
    # an end, except for a rounding error.
    inside = (q[scored] >= low[scored] - 1e-12) & (q[scored] <= high[scored] + 1e-12)
    share = float(inside.mean())
    width = float((high - low)[scored].mean())
    sentence = (
        f"{share:.0%} of {int(scored.sum())} probabilities{drawn} lie in the interval that a "
        f"calibration without any model gives (Venn-Abers, mean width {width:.2f})."
    )
    return VennAbersCheck(int(scored.sum()), share, width, sentence)
