"""Decide on regions or refer them, and measure error rate, reject rate and cost.

A referred region is left to be read again ([A14], docs/methods.md 3).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cad.base.errors import CadError
from cad.base.settings import DecisionSettings


@dataclass(frozen=True)
class RejectPoint:
    """Hold error rate, reject rate and cost of one rule's decisions on n regions.

    Parameters
    ----------
    reject_rate, error_rate : float
        Share of regions that are referred, and share of regions that are decided wrongly. Both are
        shares of all n regions.
    cost : float
        (C_p FN + C_n FP + costs of the referred regions) / n. C_p is the cost of a false negative,
        C_n the cost of a false positive.
    sensitivity, ppv : float
        TP / (TP + FN) and TP / (TP + FP) among the decided regions; NaN where the denominator is 0.
    tp, fp, tn, fn, referred_malignant, referred_benign : int
        Numbers of regions: true and false positives, true and false negatives, and the referred
        regions that are malignant and that are benign.
    """

    reject_rate: float
    error_rate: float
    cost: float
    sensitivity: float
    ppv: float
    tp: int
    fp: int
    tn: int
    fn: int
    referred_malignant: int
    referred_benign: int


def decide(score: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> np.ndarray:
    """Return a decision for every score: 1 malignant, 0 benign, -1 refer.

    Scores and thresholds must be on the same scale: both are probabilities, or both are decision
    values.

    Parameters
    ----------
    score : array, shape (n,)
        Probabilities or decision values; NaN is referred.
    lower, upper : float or array, shape (n,)
        A region is benign below the first and malignant above the second; a score equal to a
        threshold is referred.

    Returns
    -------
    ndarray of int, shape (n,)
        Decision for each score: 1, 0 or -1.

    Examples
    --------
    >>> decide([0.1, 0.4, 0.9], 0.2, 0.7).tolist()
    [0, -1, 1]
    """
    s = np.asarray(score, dtype=float)
    return np.where(s > upper, 1, np.where(s < lower, 0, -1))


def reject_point(truth: ArrayLike, decision: ArrayLike, costs: DecisionSettings) -> RejectPoint:
    """Count errors and cost of decisions whose truth is known.

    Parameters
    ----------
    truth : array, shape (n,)
        1 malignant, 0 benign.
    decision : array, shape (n,)
        1 malignant, 0 benign, -1 refer.
    costs : DecisionSettings
        Costs of errors and of referring a region.

    Returns
    -------
    RejectPoint
        Shares of the n regions that are referred and that are decided wrongly, the cost per region,
        and the numbers of regions by truth and decision. Sensitivity and positive predictive value
        are over the decided regions. Each of these two is NaN where its denominator is 0.

    Raises
    ------
    CadError
        If there is no region, or if a truth or decision has another value.

    Examples
    --------
    >>> from cad.base.settings import DecisionSettings
    >>> point = reject_point([0, 0, 1, 1], [0, -1, 1, 0], DecisionSettings())
    >>> point.tp, point.tn, point.fn, point.referred_benign
    (1, 1, 1, 1)
    """
    y = np.asarray(truth, dtype=float)
    d = np.asarray(decision, dtype=float)
    if len(y) == 0 or y.shape != d.shape:
        raise CadError(f"nothing to measure: {len(y)} truths and {len(d)} decisions")
    if not (np.isin(y, (0, 1)).all() and np.isin(d, (-1, 0, 1)).all()):
        raise CadError("truth must be 0 or 1 and decisions 0, 1 or -1 (refer)")
    regions = len(y)
    tp = int(np.sum((d == 1) & (y == 1)))
    fn = int(np.sum((d == 0) & (y == 1)))
    fp = int(np.sum((d == 1) & (y == 0)))
    tn = int(np.sum((d == 0) & (y == 0)))
    referred_malignant = int(np.sum((d == -1) & (y == 1)))
    referred_benign = int(np.sum((d == -1) & (y == 0)))
    total_cost = (
        costs.false_negative * fn
        + costs.false_positive * fp
        + costs.refer_positive * referred_malignant
        + costs.refer_negative * referred_benign
    )
    return RejectPoint(
        reject_rate=(referred_malignant + referred_benign) / regions,
        error_rate=(fp + fn) / regions,
        cost=total_cost / regions,
        sensitivity=tp / (tp + fn) if tp + fn else float("nan"),
        ppv=tp / (tp + fp) if tp + fp else float("nan"),
        tp=tp,
        fp=fp,
        tn=tn,
        fn=fn,
        referred_malignant=referred_malignant,
        referred_benign=referred_benign,
    )


def reject_curve(
    truth: ArrayLike, probability: ArrayLike, costs: DecisionSettings, points: int = 40
) -> dict[str, list[float]]:
    """Return error rate and cost at falling reject rates, that is, shares of referred regions.

    Each point of the curve has other thresholds: those that are best if the costs of referring are
    multiplied by a number, the ``scale``. The scale grows from near 0. It ends just below the value
    at which referring costs so much that it no longer lowers the total cost. The ``cost`` of a
    point is computed with the costs as given.

    Parameters
    ----------
    truth : array, shape (n,)
        1 malignant, 0 benign.
    probability : array, shape (n,)
        Probability of malignancy.
    costs : DecisionSettings
        Costs of errors and of referring a region.
    points : int
        Number of points of the curve.

    Returns
    -------
    dict
        Lists with one value per point. ``scale`` is the factor, and ``lower`` and ``upper`` are the
        thresholds. ``reject_rate``, ``error_rate`` and ``cost`` are divided by the number of all
        regions. ``sensitivity`` and ``ppv`` are those of the decided regions only.
        ``error_reject_ratio`` is (E - E0) / R, with R the reject rate, E the error rate and E0 the
        error rate if nothing is referred. A ratio of -.4 means that 40 % of the referred regions
        would have been decided wrongly; it is NaN if nothing is referred.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.base.settings import DecisionSettings
    >>> truth = np.array([0, 0, 1, 0, 1, 1])
    >>> curve = reject_curve(truth, np.linspace(0.1, 0.9, 6), DecisionSettings(), points=5)
    >>> np.round(curve["reject_rate"], 2).tolist()
    [0.83, 0.67, 0.67, 0.33, 0.17]
    """
    # At a scale of 1 divided by this number, the two thresholds are equal, and no region is
    # referred.
    relative_cost = (
        costs.refer_positive / costs.false_negative + costs.refer_negative / costs.false_positive
    )
    # At both ends of the range there is nothing to show: everything, or nothing, is referred.
    scales = np.linspace(0, 1, points + 2)[1:-1] / relative_cost
    measure_names = ("reject_rate", "error_rate", "cost", "sensitivity", "ppv")
    curve: dict[str, list[float]] = {
        name: [] for name in ("scale", "lower", "upper", *measure_names, "error_reject_ratio")
    }
    # At the largest scale, referring a region costs so much that it no longer lowers the total
    # cost. Both thresholds are then equal: the cost of a false positive divided by the sum of the
    # costs of a false positive and a false negative.
    single_threshold = costs.false_positive / (costs.false_positive + costs.false_negative)
    q = np.asarray(probability, dtype=float)
    nothing_referred = reject_point(truth, (q > single_threshold).astype(float), costs)
    for scale in scales:
        scaled_costs = costs.model_copy(
            update={
                "refer_negative": scale * costs.refer_negative,
                "refer_positive": scale * costs.refer_positive,
            }
        )
        lower, upper = scaled_costs.thresholds
        point = reject_point(truth, decide(q, lower, upper), costs)
        reject_rate = point.reject_rate
        ratio = (
            (point.error_rate - nothing_referred.error_rate) / reject_rate
            if reject_rate
            else float("nan")
        )
        for name, value in (("scale", scale), ("lower", lower), ("upper", upper)):
            curve[name].append(float(value))
        for name in measure_names:
            curve[name].append(float(getattr(point, name)))
        curve["error_reject_ratio"].append(ratio)
    return curve
