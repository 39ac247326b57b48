"""Compare predictions with one truth, by measures with intervals, rates at thresholds and
curves.
"""

import warnings
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from scipy.special import expit
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import precision_recall_curve, roc_curve

from cad.learning.evaluation.measures import intervals, metrics
from cad.learning.evaluation.measures.intervals import Interval
from cad.learning.evaluation.measures.table import MEASURES, Cases, measure_values

# With fewer patients than this, a warning says that intervals are too wide.
FEW_PATIENTS = 10
# A curve is computed only if each class has regions of at least this many patients.
CLASS_PATIENTS = 2


class OperatingPoint(TypedDict):
    """Hold counts and rates at one threshold, above which regions are called malignant.

    ``tp``, ``fp``, ``tn`` and ``fn`` are numbers of regions: true and false positives, true and
    false negatives. The rates, each with an interval, are ``sensitivity``, ``specificity``, and the
    positive and negative predictive values ``ppv`` and ``npv``.
    """

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
class Comparison:
    """Hold the measures of a learner against one truth, on regions whose truth and score are known.

    Parameters
    ----------
    n, patients, positive, negative : int
        Numbers of regions, of their patients, and of the regions of each class.
    unknown, not_predicted : int
        Number of regions without a truth, and number of regions with a truth and without a score.
    ties : int
        If the truth is the readers' mean, the number of regions at which this mean is .5. They
        count as benign.
    warnings : list of str
        Sentences that qualify the numbers, such as that there are few patients.
    auc : Interval
        AUC with an interval that takes the regions of a patient as dependent. This is the AUC to
        report.
    auc_roi_level : Interval
        AUC with DeLong's interval, which takes regions as independent.
    auc_bootstrap : Interval
        AUC with an interval from bootstrap resamples of the patients.
    measures : dict of str to Interval
        All other measures of :data:`~cad.learning.evaluation.measures.table.MEASURES`, by name.
    operating_points : list of OperatingPoint
        Counts and rates for each wanted threshold; empty if a score lies outside [0, 1].
    roc, precision_recall, calibration_curve, decision_curve : dict of str to array, or None
        The points of each curve; None unless at least two patients have malignant and two have
        benign regions. The last two are also None if a score lies outside [0, 1].
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
    roc: dict[str, np.ndarray] | None = None
    precision_recall: dict[str, np.ndarray] | None = None
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
    centred: np.ndarray | None = None,
    n_folds: int | None = None,
) -> Comparison | None:
    """Measure a learner's scores against one truth.

    The result is None if no region has both a score and a truth.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 malignant, 0 benign, NaN unknown.
    target : ndarray, shape (n,)
        Probability that a learner's probability should match: the truth, or the readers' mean.
    score : ndarray, shape (n,)
        Larger is more malignant; NaN where there is none. Scores may be of any scale, but if one
        lies outside [0, 1], everything that needs a probability is left out.
    patients : ndarray, shape (n,)
        The patient of every region.
    thresholds : tuple of float
        Probabilities above which a region is called malignant. Counts and rates are computed for
        each.
    bootstraps, seed : int
        Number of bootstrap resamples of patients for the intervals, and their seed.
    ties : int
        Number of regions whose readers' mean is .5; only stored in the result.
    centred : ndarray, shape (n,), optional
        If the scores come from the models of several folds, log-odds that can be compared between
        folds. All that ranks regions (AUC, average precision, ROC and precision-recall curves) and
        the calibration slope are computed from them. The thresholds of these curves are then on
        this common scale.
    n_folds : int, optional
        If the scores are out of fold, the number of parts that were left out in turn. The interval
        of the AUC then also covers the chance of training (docs/methods.md 10).

    Returns
    -------
    Comparison or None
        The measures with intervals, the counts and rates at each threshold, and the points of the
        curves, all on the regions that have a score and a truth. None if there is no such region.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0, np.nan])
    >>> score = np.array([0.1, 0.2, 0.4, 0.5, 0.7, 0.9, 0.3])
    >>> compared = compare_with_truth(
    ...     truth, truth, score, np.arange(7), thresholds=(0.45,), bootstraps=50, seed=0
    ... )
    >>> compared.n, compared.unknown, round(compared.auc.value, 3)
    (6, 1, 0.889)
    """
    has_truth = np.isfinite(truth)
    has_score = np.isfinite(score)
    if not (has_truth & has_score).any():
        return None
    cases = _cases(truth, target, score, patients, centred)
    measures_by_name = _intervals(cases, bootstraps, seed)
    # From here on, only regions with a truth and a score.
    y = cases.truth
    q = cases.score
    group = cases.patients
    ranking = cases.ranking
    has_curves = enough_patients(y, group)
    has_probability_curves = has_curves and cases.is_probability
    return Comparison(
        n=len(y),
        patients=len(np.unique(group)),
        positive=int(y.sum()),
        negative=int((1 - y).sum()),
        unknown=int((~has_truth).sum()),
        not_predicted=int((has_truth & ~has_score).sum()),
        ties=ties,
        warnings=_comparison_warnings(cases),
        auc=intervals.clustered_auc(y, ranking, group, n_folds),
        auc_roi_level=intervals.delong_auc(y, ranking),
        auc_bootstrap=measures_by_name["auc"],
        measures={name: measures_by_name[name] for name in MEASURES if name != "auc"},
        operating_points=(
            [_rates_at_threshold(cases, threshold) for threshold in thresholds]
            if cases.is_probability
            else []
        ),
        roc=_roc_curve(cases) if has_curves else None,
        precision_recall=_precision_recall_curve(y, ranking) if has_curves else None,
        calibration_curve=metrics.calibration_curve(y, q) if has_probability_curves else None,
        decision_curve=metrics.decision_curve(y, q) if has_probability_curves else None,
    )


def roc_points(truth: np.ndarray, score: np.ndarray) -> dict[str, np.ndarray]:
    """Return the ROC curve, from (0, 0) to (1, 1).

    Parameters
    ----------
    truth : ndarray, shape (n,)
        0 or 1.
    score : ndarray, shape (n,)
        Larger is more malignant.

    Returns
    -------
    dict of str to ndarray, shape (n_distinct + 1,)
        False positive rates ``fpr``, true positive rates ``tpr``, and the ``threshold`` of each: a
        region is called positive if its score is at or above the threshold. The first threshold is
        infinite. Rates are NaN if there is no region of their class.

    Examples
    --------
    >>> import numpy as np
    >>> curve = roc_points(np.array([0, 1, 0, 1]), np.array([0.1, 0.4, 0.4, 0.9]))
    >>> curve["fpr"].tolist(), curve["tpr"].tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    # scikit-learn refuses empty arrays.
    if not len(truth):
        nothing = np.full(1, np.nan)
        return {"fpr": nothing, "tpr": nothing, "threshold": np.full(1, np.inf)}
    with warnings.catch_warnings():
        # Without regions of a class the curve is NaN, so scikit-learn's warning is not needed.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        fpr, tpr, threshold = roc_curve(truth, score, drop_intermediate=False)
    return {"fpr": fpr, "tpr": tpr, "threshold": threshold}


def _roc_curve(cases: Cases) -> dict[str, np.ndarray]:
    """Return the points of the ROC curve: its rates and thresholds, as arrays by name.

    If the regions are ordered by centred log-odds, the thresholds are converted to probabilities.
    """
    points = roc_points(cases.truth, cases.ranking)
    if cases.centred is not None and cases.is_probability:
        # The first threshold is infinite, and stays so.
        finite = np.isfinite(points["threshold"])
        points["threshold"] = np.where(finite, expit(points["threshold"]), np.inf)
    return points


def _precision_recall_curve(truth: np.ndarray, score: np.ndarray) -> dict[str, np.ndarray]:
    """Return precision and recall, from the highest threshold to the lowest.

    The first precision is 1.
    """
    # scikit-learn begins with the lowest threshold.
    precision, recall, _ = precision_recall_curve(truth, score)
    return {"precision": precision[::-1], "recall": recall[::-1]}


def enough_patients(truth: np.ndarray, patients: np.ndarray) -> bool:
    """Return whether each class has regions of at least two patients, which a curve needs.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        0 or 1.
    patients : ndarray, shape (n,)
        The patient of every region.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0, 1, 0, 1])
    >>> enough_patients(truth, np.array(["a", "a", "b", "b"]))
    True
    >>> enough_patients(truth, np.array(["a", "b", "c", "b"]))
    False
    """
    benign = np.unique(patients[truth == 0])
    malignant = np.unique(patients[truth == 1])
    return min(len(benign), len(malignant)) >= CLASS_PATIENTS


def is_probability(score: np.ndarray) -> bool:
    """Return whether every score lies in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> is_probability(np.array([0.0, 0.4, 1.0])), is_probability(np.array([-0.1, 0.4]))
    (True, False)
    """
    return bool(((score >= 0) & (score <= 1)).all())


def _cases(
    truth: np.ndarray,
    target: np.ndarray,
    score: np.ndarray,
    patients: np.ndarray,
    centred: np.ndarray | None,
) -> Cases:
    """Return the regions that have a truth and a score; patients are numbered from 0."""
    usable = np.isfinite(truth) & np.isfinite(score)
    patient_numbers = np.unique(patients[usable], return_inverse=True)[1]
    return Cases(
        truth=truth[usable],
        target=target[usable],
        score=score[usable],
        patients=patient_numbers,
        is_probability=is_probability(score[usable]),
        centred=None if centred is None else centred[usable],
    )


def _intervals(cases: Cases, bootstraps: int, seed: int) -> dict[str, Interval]:
    """Return every measure by its name, with an interval from bootstrap resamples of the
    patients.
    """
    names_and_values = measure_values(cases, np.ones((1, len(cases.truth))))
    resampled = intervals.bootstrap_intervals(
        lambda weight: np.stack([*measure_values(cases, weight).values()], axis=1),
        cases.patients,
        bootstraps,
        seed,
    )
    return dict(zip(names_and_values, resampled, strict=True))


def _rates_at_threshold(cases: Cases, threshold: float) -> OperatingPoint:
    """Return counts and rates at a threshold, the rates with intervals.

    Regions above the threshold are called malignant.
    """
    is_malignant = cases.truth == 1
    called_malignant = cases.score > threshold
    patients = cases.patients
    # If a rate is 0 or 1, how alike a patient's regions are cannot be estimated from it. The design
    # effect of the truth takes its place.
    effect = intervals.share_design_effect(cases.truth, patients)

    def share(is_success: np.ndarray, counted: np.ndarray) -> Interval:
        """Return the share of successes among the regions that are counted."""
        return intervals.clustered_share(
            is_success[counted], patients[counted], design_effect=effect
        )

    return {
        "threshold": threshold,
        "tp": int((called_malignant & is_malignant).sum()),
        "fp": int((called_malignant & ~is_malignant).sum()),
        "tn": int((~called_malignant & ~is_malignant).sum()),
        "fn": int((~called_malignant & is_malignant).sum()),
        "sensitivity": share(called_malignant, is_malignant),
        "specificity": share(~called_malignant, ~is_malignant),
        "ppv": share(is_malignant, called_malignant),
        "npv": share(~is_malignant, ~called_malignant),
    }


def _comparison_warnings(cases: Cases) -> list[str]:
    """Return sentences on what is wrong with the numbers, such as too few patients."""
    y = cases.truth
    group = cases.patients
    if not enough_patients(y, group):
        class_counts = []
        for label, name in ((1, "malignant"), (0, "benign")):
            class_patients = len(np.unique(group[y == label]))
            class_counts.append(f"{int((y == label).sum())} {name} (patients: {class_patients})")
        return [
            f"not enough regions: {' and '.join(class_counts)}; "
            f"without {CLASS_PATIENTS} patients of each "
            "there is no curve and no interval of the AUC"
        ]
    sentences = []
    if np.ptp(cases.ranking) == 0:
        sentences.append(
            "all probabilities are equal: AUC is .5 by definition, no calibration slope"
        )
    if len(np.unique(group)) < FEW_PATIENTS:
        sentences.append(
            f"{len(np.unique(group))} patients, fewer than {FEW_PATIENTS}: "
            "intervals are too wide to mean anything"
        )
    return sentences
