"""Bound the effect of regions without histology on measures that use histology.

Histology is known only for regions that were biopsied or removed: the verified regions. Measures on
these regions say nothing about the unverified regions, most of which nobody suspected. A simple
bound is computed here: all unverified regions are counted as benign.
"""

from dataclasses import dataclass

import numpy as np

from cad.learning.evaluation.measures.intervals import clustered_share
from cad.learning.evaluation.measures.metrics import calibration_slope


@dataclass(frozen=True)
class Unverified:
    """Hold measures on the regions with histology, and on all regions if the others are benign.

    Parameters
    ----------
    verified, unverified : int
        Numbers of regions with a probability: with histology, and without histology.
    slope, slope_if_benign : float
        Calibration slope on the verified regions, and on all regions with the unverified ones
        counted as benign.
    npv, npv_if_benign : float
        Share of benign regions among those below the lower threshold, on the same two sets of
        regions; NaN if no region lies below.
    sentence : str
        The same measures in words.
    """

    verified: int
    unverified: int
    slope: float
    slope_if_benign: float
    npv: float
    npv_if_benign: float
    sentence: str


def if_unverified_were_benign(
    truth: np.ndarray,
    probability: np.ndarray,
    patients: np.ndarray,
    lower: float,
    on_one_scale: np.ndarray | None = None,
) -> Unverified | None:
    """Return calibration slope and negative predictive value twice: without the unverified regions,
    and with these regions counted as benign.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 or 0 by histology, NaN where there is none.
    probability : ndarray, shape (n,)
        Probability of each region; NaN where there is none.
    patients : ndarray, shape (n,)
        The patient of every region.
    lower : float
        Threshold below which a region is called benign.
    on_one_scale : ndarray, shape (n,), optional
        Probabilities to which the calibration slopes are fitted, where several models gave
        ``probability``. They are on one scale for all regions; ``probability`` when not given.

    Returns
    -------
    Unverified or None
        None if no region with a probability has histology, or if every one has.

    Examples
    --------
    >>> truth = np.array([0.0, 1.0, np.nan, 0.0])
    >>> found = if_unverified_were_benign(truth, np.array([0.1, 0.8, 0.05, 0.3]), np.arange(4), 0.2)
    >>> found.verified, found.unverified, found.npv_if_benign
    (3, 1, 1.0)
    """
    scored = np.isfinite(probability)
    verified = scored & np.isfinite(truth)
    if not verified.any() or verified.sum() == scored.sum():
        return None
    assumed = np.where(np.isnan(truth), 0.0, truth)
    of_slope = probability if on_one_scale is None else on_one_scale
    slope = calibration_slope(truth[verified], of_slope[verified])
    slope_if_benign = calibration_slope(assumed[scored], of_slope[scored])
    npv = _npv(truth[verified], probability[verified], patients[verified], lower)
    npv_if_benign = _npv(assumed[scored], probability[scored], patients[scored], lower)
    without = int(scored.sum() - verified.sum())
    sentence = (
        f"histology is known of {int(verified.sum())} of {int(scored.sum())} regions; were the "
        f"other {without} benign, the calibration slope would be {slope_if_benign:.2f} instead of "
        f"{slope:.2f}"
    )
    if np.isfinite(npv) and np.isfinite(npv_if_benign):
        sentence += f" and the negative predictive value {npv_if_benign:.3f} instead of {npv:.3f}"
    return Unverified(
        int(verified.sum()), without, slope, slope_if_benign, npv, npv_if_benign, f"{sentence}."
    )


def _npv(truth: np.ndarray, probability: np.ndarray, patients: np.ndarray, lower: float) -> float:
    benign = probability < lower
    if not benign.any():
        return float("nan")
    return clustered_share((truth[benign] == 0).astype(float), patients[benign]).value
