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
    has_probability = np.isfinite(probability)
    verified = has_probability & np.isfinite(truth)
    # Without a verified or without an unverified region there is nothing to compare.
    if not verified.any() or verified.sum() == has_probability.sum():
        return None
    truth_if_benign = np.where(np.isnan(truth), 0.0, truth)
    slope_probabilities = probability if on_one_scale is None else on_one_scale
    slope = calibration_slope(truth[verified], slope_probabilities[verified])
    slope_if_benign = calibration_slope(
        truth_if_benign[has_probability], slope_probabilities[has_probability]
    )
    npv = _npv(truth[verified], probability[verified], patients[verified], lower)
    npv_if_benign = _npv(
        truth_if_benign[has_probability],
        probability[has_probability],
        patients[has_probability],
        lower,
    )
    unverified_count = int(has_probability.sum() - verified.sum())
    sentence = (
        f"histology is known of {int(verified.sum())} of {int(has_probability.sum())} regions; "
        f"were the other {unverified_count} benign, the calibration slope would be "
        f"{slope_if_benign:.2f} instead of {slope:.2f}"
    )
    if np.isfinite(npv) and np.isfinite(npv_if_benign):
        sentence += f" and the negative predictive value {npv_if_benign:.3f} instead of {npv:.3f}"
    return Unverified(
        verified=int(verified.sum()),
        unverified=unverified_count,
        slope=slope,
        slope_if_benign=slope_if_benign,
        npv=npv,
        npv_if_benign=npv_if_benign,
        sentence=f"{sentence}.",
    )


def _npv(truth: np.ndarray, probability: np.ndarray, patients: np.ndarray, lower: float) -> float:
    """Return the share of benign regions among those below the lower threshold; NaN if none is."""
    is_below = probability < lower
    if not is_below.any():
        return float("nan")
    is_benign = (truth[is_below] == 0).astype(float)
    return clustered_share(is_benign, patients[is_below]).value
