"""Measure how good the probabilities of men are, and derive a man's truth from his regions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cad.learning.evaluation.decisions.operating import OperatingChoice
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import Interval, bootstrap_intervals, clustered_auc
from cad.learning.joint_model import truth_of_regions

UNMEASURED = Interval(np.nan, np.nan, np.nan, "no man has truth and probability")


@dataclass(frozen=True)
class PatientLevel:
    """Hold how good the probabilities of men are.

    Parameters
    ----------
    n, positive, unknown : int
        Numbers of men. ``n`` men have a truth and a probability, ``positive`` of them have cancer.
        ``unknown`` men lack the truth or the probability.
    auc, average_precision : Interval
        How well the order of the probabilities separates men with cancer from the others. In a
        validation the probability of a man comes from a model that did not see him.
    calibration_intercept, calibration_slope, brier : Interval
        Calibration and Brier score of the probabilities.
    note : str
        Reason why no model of men's probabilities could be fitted, or why no threshold reaches the
        aim that the settings state for men.
    operating_point : OperatingChoice or None
        The two thresholds on the probability of men; None if the settings state no aim for men.
    promised_share : float or None
        In a prediction, the share of the training's men whom the thresholds called benign or
        malignant.
    """

    n: int = 0
    positive: int = 0
    unknown: int = 0
    auc: Interval = UNMEASURED
    average_precision: Interval = UNMEASURED
    calibration_intercept: Interval = UNMEASURED
    calibration_slope: Interval = UNMEASURED
    brier: Interval = UNMEASURED
    note: str = ""
    operating_point: OperatingChoice | None = None
    promised_share: float | None = None


def truth_of_men(truth: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """Return each man's truth from that of his regions.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 or 0 by histology of a region, NaN where unknown.
    patients : ndarray, shape (n,)
        The man of every region.

    Returns
    -------
    ndarray, shape (n_men,)
        1 for a man with a malignant region, 0 if all his regions are known to be benign, else NaN.
        The men are in the order of ``numpy.unique(patients)``.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0.0, 1.0, 0.0, 0.0, 0.0, np.nan])
    >>> truth_of_men(truth, np.array(["a", "a", "b", "b", "c", "c"])).tolist()
    [1.0, 0.0, nan]
    """
    names, man_of_region = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    return truth_of_regions(np.asarray(truth, float), man_of_region, len(names))


def measure_men(
    truth: np.ndarray,
    probability: np.ndarray,
    rank: np.ndarray | None = None,
    *,
    on_one_scale: np.ndarray | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
    n_folds: int | None = None,
) -> PatientLevel:
    """Measure how good the probabilities of men are.

    In the result ``n`` is 0 if no man has both a truth and a probability.

    Parameters
    ----------
    truth, probability : ndarray, shape (n,)
        Each man's truth (1 or 0) and probability; NaN where unknown.
    rank : ndarray, shape (n,), optional
        Values by which men are ordered for AUC and average precision, larger for more suspicious;
        the probabilities when not given.
    on_one_scale : ndarray, shape (n,), optional
        Probabilities to which the calibration slope is fitted, where several models gave
        ``probability``. They are on one scale for all men; ``probability`` when not given.
    bootstraps, seed : int
        Number of bootstrap resamples of men, and their seed. The resamples give all intervals
        except that of the AUC, which is a jackknife interval.
    n_folds : int, optional
        In a validation, the number of parts of the men that were left out in turn. See
        :func:`~cad.learning.evaluation.measures.intervals.clustered_auc`.

    Returns
    -------
    PatientLevel
        Numbers of men, and with 95 % intervals: AUC, average precision, calibration intercept and
        slope, and Brier score. Men whose truth or probability is NaN are only counted. The
        operating point is not filled in.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    >>> probability = np.array([0.1, 0.2, 0.4, 0.5, 0.7, 0.9])
    >>> measured = measure_men(truth, probability, bootstraps=50)
    >>> measured.n, round(measured.auc.value, 3), round(measured.brier.value, 3)
    (6, 0.889, 0.127)
    """
    has_both = np.isfinite(truth) & np.isfinite(probability)
    if not has_both.any():
        return PatientLevel()
    y = truth[has_both]
    p = probability[has_both]
    ranking = p if rank is None else rank[has_both]
    slope_probabilities = p if on_one_scale is None else on_one_scale[has_both]

    def values(weight: np.ndarray) -> np.ndarray:
        """Return four measures of each draw of a resampling, shape (draws, 4)."""
        return np.stack(
            [
                metrics.average_precision(y == 1, ranking, weight=weight),
                metrics.calibration_intercept(y, p, weight=weight),
                metrics.calibration_slope(y, slope_probabilities, weight=weight),
                metrics.brier(y, p, weight=weight),
            ],
            axis=1,
        )

    # Each row is a man, so no two rows belong together.
    men = np.arange(len(y))
    average_precision, intercept, slope, brier = bootstrap_intervals(values, men, bootstraps, seed)
    auc = clustered_auc(y, ranking, men, n_folds)
    return PatientLevel(
        n=len(y),
        positive=int(y.sum()),
        unknown=int((~has_both).sum()),
        auc=auc,
        average_precision=average_precision,
        calibration_intercept=intercept,
        calibration_slope=slope,
        brier=brier,
    )
