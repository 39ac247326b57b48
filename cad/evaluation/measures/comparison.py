"""Predictions against one truth: every measure with its interval, rates at thresholds, curves."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cad.evaluation.measures import metrics, weighted
from cad.evaluation.measures.intervals import Interval, bootstrap, clustered_auc, delong_auc
from cad.evaluation.measures.table import MEASURES, Cases, measure_values

FEW_PATIENTS = 10  # below, an interval over patients is too wide to mean anything
CLASS_PATIENTS = 2  # patients that must have regions of each class before a curve is drawn
RATES = ("sensitivity", "specificity", "ppv", "npv")


@dataclass(frozen=True)
class OperatingPoint:
    """Hold the two-by-two table at one threshold, and its rates with intervals."""

    threshold: float
    tp: int
    fp: int
    tn: int
    fn: int
    sensitivity: Interval
    specificity: Interval
    ppv: Interval
    npv: Interval


@dataclass(frozen=True)
class ROC:
    """Hold the ROC curve of :func:`cad.evaluation.measures.metrics.roc_curve`."""

    fpr: np.ndarray
    tpr: np.ndarray
    threshold: np.ndarray


@dataclass(frozen=True)
class PrecisionRecall:
    """Hold the curve of :func:`cad.evaluation.measures.metrics.precision_recall_curve`."""

    precision: np.ndarray
    recall: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """Hold what is measured against one truth, on regions whose truth and score are known.

    Parameters
    ----------
    n, patients, positive, negative : int
        Regions, their patients, and the classes.
    unknown, not_predicted : int
        Regions without a truth; with a truth and without a score.
    ties : int
        Regions whose consensus lies on .5 (counted as benign).
    warnings : list of str
        What keeps the numbers from meaning what they seem to.
    auc : Interval
        Patient-clustered, the primary one.
    auc_roi_level : Interval
        DeLong's, which takes regions as independent.
    auc_bootstrap : Interval
        From resampled patients.
    measures : dict of str to Interval
        Every other :data:`~cad.evaluation.measures.table.MEASURES` by name.
    operating_points : list of OperatingPoint
        At P-, .5 and P+; empty without a probability.
    roc, precision_recall, calibration_curve, decision_curve
        None unless two patients have malignant and two have benign regions.
    """

    n: int
    patients: int
    positive: int
    negative: int
    unknown: int
    not_predicted: int
    ties: int
    warnings: list[str]
    auc: Interval
    auc_roi_level: Interval
    auc_bootstrap: Interval
    measures: dict[str, Interval]
    operating_points: list[OperatingPoint] = field(default_factory=list)
    roc: ROC | None = None
    precision_recall: PrecisionRecall | None = None
    calibration_curve: dict[str, list[float]] | None = None
    decision_curve: dict[str, list[float]] | None = None


def compare_with_truth(
    truth: np.ndarray,
    target: np.ndarray,
    score: np.ndarray,
    patients: np.ndarray,
    *,
    thresholds: tuple[float, ...],
    bootstraps: int,
    seed: int,
    ties: int = 0,
) -> Comparison | None:
    """Measure scores against one truth; None where no region has both.

    Parameters
    ----------
    truth, target, score, patients : ndarray, shape (n,)
        As in :class:`~cad.evaluation.measures.table.Cases`; NaN where unknown.
    thresholds : tuple of float
        Probabilities at which rates are given.
    bootstraps, seed : int
        Patient resamples for the intervals, and their seed.
    ties : int
        Passed on.
    """
    known, predicted = np.isfinite(truth), np.isfinite(score)
    if not (known & predicted).any():
        return None
    cases = _cases(truth, target, score, patients)
    found = _intervals(cases, thresholds, bootstraps, seed)
    y, q, group = cases.truth, cases.score, cases.patients
    curves = enough_patients(y, group)
    return Comparison(
        n=len(y),
        patients=len(np.unique(group)),
        positive=int(y.sum()),
        negative=int((1 - y).sum()),
        unknown=int((~known).sum()),
        not_predicted=int((known & ~predicted).sum()),
        ties=ties,
        warnings=_warnings(cases),
        auc=clustered_auc(y, q, group),
        auc_roi_level=delong_auc(y, q),
        auc_bootstrap=found["auc"],
        measures={name: found[name] for name in MEASURES if name != "auc"},
        operating_points=_operating_points(cases, thresholds, found),
        roc=ROC(*metrics.roc_curve(y, q)) if curves else None,
        precision_recall=(
            PrecisionRecall(*metrics.precision_recall_curve(y, q)) if curves else None
        ),
        calibration_curve=(
            metrics.calibration_curve(y, q) if curves and cases.is_probability else None
        ),
        decision_curve=metrics.decision_curve(y, q) if curves and cases.is_probability else None,
    )


def enough_patients(truth: np.ndarray, patients: np.ndarray) -> bool:
    """Tell whether each class has the patients that a curve needs."""
    return min(len(np.unique(patients[truth == label])) for label in (0, 1)) >= CLASS_PATIENTS


def is_probability(score: np.ndarray) -> bool:
    """Tell whether every score lies in [0, 1]."""
    return bool(((score >= 0) & (score <= 1)).all())


def _cases(truth: np.ndarray, target: np.ndarray, score: np.ndarray, patients: np.ndarray) -> Cases:
    usable = np.isfinite(truth) & np.isfinite(score)
    y, t, q = truth[usable], target[usable], score[usable]
    return Cases(y, t, q, np.unique(patients[usable], return_inverse=True)[1], is_probability(q))


def _intervals(
    cases: Cases, thresholds: tuple[float, ...], bootstraps: int, seed: int
) -> dict[str, Interval]:
    """Return every measure and every rate by name, with intervals from resampled patients."""

    def values(weight: np.ndarray) -> dict[str, np.ndarray]:
        return {**measure_values(cases, weight), **_rates(cases, thresholds, weight)}

    point = values(np.ones((1, len(cases.truth))))
    ends = bootstrap(
        lambda weight: np.stack([*values(weight).values()], axis=1),
        cases.patients,
        bootstraps,
        seed,
    )
    method = f"{bootstraps} patient resamples"
    return {
        name: Interval(float(value[0]), float(low), float(high), method)
        for (name, value), (low, high) in zip(point.items(), ends, strict=True)
    }


def _rates(
    cases: Cases, thresholds: tuple[float, ...], weight: np.ndarray
) -> dict[str, np.ndarray]:
    if not cases.is_probability:
        return {}
    malignant = cases.truth == 1
    found = {t: weighted.rates(malignant, cases.score, t, weight) for t in thresholds}
    return {_key(rate, t): found[t][rate] for t in thresholds for rate in RATES}


def _key(rate: str, threshold: float) -> str:
    return f"{rate} at {threshold!r}"


def _operating_points(
    cases: Cases, thresholds: tuple[float, ...], found: dict[str, Interval]
) -> list[OperatingPoint]:
    if not cases.is_probability:
        return []
    points = []
    for threshold in thresholds:
        table = metrics.counts(cases.truth, cases.score, threshold)
        rates = (found[_key(rate, threshold)] for rate in RATES)
        points.append(OperatingPoint(threshold, table.tp, table.fp, table.tn, table.fn, *rates))
    return points


def _warnings(cases: Cases) -> list[str]:
    y, q, group = cases.truth, cases.score, cases.patients
    if not enough_patients(y, group):
        found = [
            f"{int((y == label).sum())} {name} (patients: {len(np.unique(group[y == label]))})"
            for label, name in ((1, "malignant"), (0, "benign"))
        ]
        return [
            f"not enough regions: {' and '.join(found)}; without {CLASS_PATIENTS} patients of each "
            "there is no curve and no interval of the AUC"
        ]
    said = []
    if np.ptp(q) == 0:
        said.append("all probabilities are equal: AUC is .5 by definition, no calibration slope")
    if len(np.unique(group)) < FEW_PATIENTS:
        said.append(
            f"{len(np.unique(group))} patients, fewer than {FEW_PATIENTS}: "
            "intervals are too wide to mean anything"
        )
    return said
