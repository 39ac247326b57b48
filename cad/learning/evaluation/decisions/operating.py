"""Thresholds with an aim: the largest share decided at a wanted predictive value.

"Benign below the largest threshold whose negative predictive value is at least .95", and likewise
for malignant (docs/methods.md 8). Predictive values are counted with one more error and one more
success, (k + 1)/(n + 2): the largest of many noisy shares is too good, and one region is no
evidence. What is promised is the lower end of a patient-clustered interval of the predictive value
of decisions by thresholds that were chosen without the decided patient.
"""

from dataclasses import asdict, dataclass

import numpy as np

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.evaluation.measures.intervals import (
    Interval,
    clustered_share,
    share_design_effect,
)

COSTS_INSTEAD = "thresholds are those of the costs, not of the aim"


@dataclass(frozen=True)
class Side:
    """Hold one of the two decisions, benign or malignant: its threshold and predictive value.

    Parameters
    ----------
    aim : float or None
        Predictive value wanted; None where the threshold comes from the costs.
    threshold : float
        Benign below it, or malignant above it.
    share : float
        Share of regions with a probability that get this decision at the stored threshold.
    observed : Interval
        Predictive value at the stored threshold, on the regions that it was chosen on.
    validated : Interval
        Predictive value when each patient's regions are decided by thresholds that were chosen on
        the other patients.
    n, validated_n : int
        Number of regions with histology behind ``observed`` and ``validated``.
    note : str
        Why the aim is not met; empty where it is.
    """

    aim: float | None
    threshold: float
    share: float
    observed: Interval
    validated: Interval
    n: int
    validated_n: int
    note: str

    @property
    def promise(self) -> float:
        """Return the predictive value that can be promised: the lower end of ``validated``.

        NaN where nothing was decided.
        """
        return self.validated.lower


@dataclass(frozen=True)
class OperatingChoice:
    """Hold an operating point: the two thresholds, their aims and the predictive values promised.

    Parameters
    ----------
    benign, malignant : Side
        The two decisions: threshold, aim and (negative or positive) predictive value.
    refer : float
        Share of regions with a probability that are referred: neither benign nor malignant.
    """

    benign: Side
    malignant: Side
    refer: float

    @property
    def thresholds(self) -> tuple[float, float]:
        """Return the two thresholds: benign below the first, malignant above the second."""
        return self.benign.threshold, self.malignant.threshold

    def as_dict(self) -> JsonObject:
        """Return the fields and ``sentence`` as a dict that JSON can hold, for a model bundle."""
        return dict(json_safe({**asdict(self), "sentence": self.sentence()}))

    def sentence(self) -> str:
        """Return shares, aims and promises in one sentence."""
        parts = [
            f"by the thresholds alone: benign {self.benign.share:.0%}, refer {self.refer:.0%}, "
            f"malignant {self.malignant.share:.0%}"
        ]
        for side, name in ((self.benign, "negative"), (self.malignant, "positive")):
            aim = f"aim {side.aim:g}, " if side.aim is not None else ""
            promise = "no promise" if np.isnan(side.promise) else f"promised {side.promise:.2f}"
            parts.append(f"{name} predictive value {side.observed.value:.2f} ({aim}{promise})")
        return "; ".join(parts) + "."


def choose_operating_point(
    truth: np.ndarray, q: np.ndarray, patients: np.ndarray, settings: DecisionSettings
) -> OperatingChoice:
    """Choose the two thresholds that reach the aims on out-of-fold probabilities.

    A threshold without an aim follows from the costs.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1, 0, or NaN without histology.
    q : ndarray, shape (n,)
        Out-of-fold probability; NaN where there is none.
    patients : ndarray, shape (n,)
        The patient of every region.
    settings : DecisionSettings
        Aims and costs.

    Raises
    ------
    CadError
        Where an aim is set and the regions with histology and probability lack a class or a
        second patient.
    """
    known = np.isfinite(truth) & np.isfinite(q)
    y, p, group = truth[known], q[known], np.asarray(patients)[known]
    if len(np.unique(y)) < 2 or len(np.unique(group)) < 2:
        raise CadError(
            f"a threshold for an aim needs malignant and benign regions of two patients or more: "
            f"{int(y.sum())} malignant, {int((1 - y).sum())} benign of {len(np.unique(group))}",
            hint="take decision.aim_npv and aim_ppv out: thresholds then follow from the costs",
        )
    lower, upper = choose_thresholds(y, p, settings)
    # -1, refer, for every region until the thresholds of the other patients say more.
    decided, validated = decide(p, lower, upper), np.full(len(p), -1)
    for patient in np.unique(group):
        own = group == patient
        # A threshold is fitted, too: chosen with the patient in, it is too good for him.
        validated[own] = decide(p[own], *choose_thresholds(y[~own], p[~own], settings))
    effect = share_design_effect(y, group)
    # Shares are of all regions, as in use; only predictive values need histology.
    scored = q[np.isfinite(q)]
    shares = {label: float(np.mean(decide(scored, lower, upper) == label)) for label in (0, -1, 1)}

    def side(label: int, aim: float | None, threshold: float) -> Side:
        first, second = decided == label, validated == label
        right = (y == label).astype(float)
        observed = clustered_share(right[first], group[first], design_effect=effect)
        honest = clustered_share(right[second], group[second], design_effect=effect)
        return Side(
            aim, threshold, shares[label], observed, honest, int(first.sum()), int(second.sum()),
            "" if first.any() else "no threshold reaches the aim: nothing is decided",
        )  # fmt: skip

    benign, malignant = side(0, settings.aim_npv, lower), side(1, settings.aim_ppv, upper)
    return OperatingChoice(benign, malignant, shares[-1])


def choose_thresholds(
    truth: np.ndarray, q: np.ndarray, settings: DecisionSettings
) -> tuple[float, float]:
    """Return the lower and the upper threshold that reach the settings' aims on known truths.

    A threshold without an aim follows from the costs. One whose aim cannot be reached is 0 (lower)
    or 1 (upper), so that no region gets that decision. Where both aims hold for the same regions,
    these are called benign.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 or 0.
    q : ndarray, shape (n,)
        Probabilities.
    settings : DecisionSettings
        ``aim_npv``, ``aim_ppv`` and costs.
    """
    lower, upper = settings.thresholds
    if settings.aim_npv is not None:
        lower = _largest_cut(1 - truth, q, settings.aim_npv)
    if settings.aim_ppv is not None:
        upper = 1 - _largest_cut(truth, 1 - q, settings.aim_ppv)
    # Sides that overlap leave nobody to refer, and a region may not be called both.
    return lower, max(lower, upper)


def _largest_cut(right: np.ndarray, q: np.ndarray, aim: float) -> float:
    """Return the largest cut below which the share of ``right`` is at least the aim."""
    order = np.argsort(q, kind="stable")
    value, hits = q[order], np.cumsum(right[order])
    n = np.arange(1, len(q) + 1)
    whole = np.append(np.diff(value) > 0, True)  # regions of equal probability stay together
    reaching = np.flatnonzero(((hits + 1) / (n + 2) >= aim) & whole)
    if len(reaching) == 0:
        return 0.0
    last = reaching[-1]
    # Between the two values: on either of them rounding would decide for the next patient.
    return float((value[last] + value[last + 1]) / 2) if last + 1 < len(q) else 1.0
