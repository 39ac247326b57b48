"""Measure the decisions of a run, and what its errors and referrals cost."""

from dataclasses import dataclass

import numpy as np

from cad.base.settings import DecisionSettings
from cad.base.terms.text import interval_text
from cad.learning.evaluation.decisions.reject import RejectPoint, reject_curve, reject_point
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.comparison import enough_patients, is_probability
from cad.learning.evaluation.measures.intervals import (
    Interval,
    clustered_share,
    share_design_effect,
)

# The word of each decision, by its number.
DECISIONS = {0: "benign", -1: "refer", 1: "malignant"}


@dataclass(frozen=True)
class Thresholds:
    """Hold the lower threshold P- and the upper threshold P+ of a probability.

    A region whose probability is below P- is called benign, one above P+ malignant. Any other
    region is referred, that is, left to be read again.
    """

    lower: float
    upper: float


@dataclass(frozen=True)
class Reject:
    """Hold how error rate and cost change with the share of regions that are referred.

    Parameters
    ----------
    against : str
        Truth by which a decision is judged to be an error: ``histology``, or ``readers`` if too few
        regions have histology.
    curve : dict of str to list of float
        One value per point of the curve: ``reject_rate``, ``error_rate``, ``cost``, the thresholds
        ``lower`` and ``upper``, and more
        (:func:`cad.learning.evaluation.decisions.reject.reject_curve`).
    """

    against: str
    curve: dict[str, list[float]]


@dataclass(frozen=True)
class Counted:
    """Hold how many regions have one of the decisions benign, refer and malignant.

    Parameters
    ----------
    n : int
        Number of regions with this decision.
    share : float
        ``n`` divided by the number of regions with a probability; NaN if no region has one.
    malignant, benign, unknown : int
        How many of the ``n`` regions are malignant by histology, benign by histology, or without
        histology.
    """

    n: int
    share: float
    malignant: int
    benign: int
    unknown: int


@dataclass(frozen=True)
class Decisions:
    """Hold counts, predictive values, errors and cost of the decisions that one rule makes.

    Parameters
    ----------
    scored : int
        Number of regions with a probability.
    decided : float
        Share of the scored regions that are called benign or malignant, and not referred; NaN if no
        region is scored.
    decisions : dict of str to Counted
        Counts for each decision: benign, refer, malignant.
    npv, ppv : Interval or None
        Negative and positive predictive value, with intervals that take the regions of a patient as
        dependent. A value is None if no region of known histology has the decision, and if
        histology changed the decisions.
    point : RejectPoint or None
        Errors and cost on the regions with histology; None if no region has histology, and if
        histology changed the decisions.
    sentence : str
        The shares and predictive values in words.
    """

    scored: int
    decided: float
    decisions: dict[str, Counted]
    npv: Interval | None
    ppv: Interval | None
    point: RejectPoint | None
    sentence: str


def measure_decisions(
    words: np.ndarray,
    truth: np.ndarray,
    patients: np.ndarray,
    costs: DecisionSettings,
    *,
    after_histology: bool,
) -> Decisions:
    """Measure the decisions of one rule: counts, shares, predictive values, errors and cost.

    Parameters
    ----------
    words : ndarray of str, shape (n,)
        Decisions: ``benign``, ``refer``, ``malignant``, or empty without a probability.
    truth : ndarray, shape (n,)
        1 malignant or 0 benign by histology; NaN where unknown.
    patients : ndarray, shape (n,)
        The patient of every region.
    costs : DecisionSettings
        Costs of errors and of referring a region.
    after_histology : bool
        Whether histology changed these decisions. Then their predictive values say nothing about
        the rule, and are not computed.

    Returns
    -------
    Decisions
        Counts and shares of each decision, predictive values with 95 % intervals, and errors and
        cost. The counts are over regions with a decision; predictive values, errors and cost are
        over those that also have histology. These are None without a region with histology, and if
        ``after_histology`` is set. A predictive value is also None if no region with histology has
        its decision.

    Examples
    --------
    >>> import numpy as np
    >>> words = np.array(["benign", "refer", "malignant", "benign"])
    >>> truth = np.array([0.0, 1.0, 1.0, 1.0])
    >>> measured = measure_decisions(
    ...     words, truth, np.arange(4), DecisionSettings(), after_histology=False
    ... )
    >>> measured.decided, measured.npv.value, measured.ppv.value
    (0.75, 0.5, 1.0)
    """
    has_decision = words != ""
    counts = {word: _counted(words, truth, word) for word in DECISIONS.values()}
    # These stay None without histology, and after it: see the parameter ``after_histology``.
    npv = ppv = point = None
    has_histology = has_decision & np.isfinite(truth)
    if has_histology.any() and not after_histology:
        judged_words = words[has_histology]
        judged_truth = truth[has_histology]
        judged_patients = patients[has_histology]
        npv = _predictive_value("benign", 0, judged_words, judged_truth, judged_patients)
        ppv = _predictive_value("malignant", 1, judged_words, judged_truth, judged_patients)
        has_word = [judged_words == word for word in DECISIONS.values()]
        decision_numbers = np.select(has_word, list(DECISIONS))
        point = reject_point(judged_truth, decision_numbers, costs)
    decided = np.nan
    sentence = ""
    if has_decision.any():
        decided = float(np.mean(words[has_decision] != "refer"))
        shares = [f"{word} {count.n} ({count.share:.0%})" for word, count in counts.items()]
        clauses = [", ".join(shares)]
        for value_name, word, predictive_value in (
            ("negative", "benign", npv),
            ("positive", "malignant", ppv),
        ):
            if predictive_value is not None:
                n_regions = int((words[has_histology] == word).sum())
                text = interval_text(predictive_value, 2)
                clauses.append(f"{value_name} predictive value {text} of {n_regions}")
        sentence = f"{'; '.join(clauses)}."
    return Decisions(
        scored=int(has_decision.sum()),
        decided=decided,
        decisions=counts,
        npv=npv,
        ppv=ppv,
        point=point,
        sentence=sentence,
    )


def _counted(words: np.ndarray, truth: np.ndarray, word: str) -> Counted:
    """Count the regions with the decision ``word``, and those that are malignant, benign or
    unknown.
    """
    has_decision = words != ""
    has_this_decision = words == word
    their_truth = truth[has_this_decision]
    return Counted(
        n=int(has_this_decision.sum()),
        share=float(np.mean(has_this_decision[has_decision])) if has_decision.any() else np.nan,
        malignant=int((their_truth == 1).sum()),
        benign=int((their_truth == 0).sum()),
        unknown=int(np.isnan(their_truth).sum()),
    )


def _predictive_value(
    word: str, label: int, words: np.ndarray, truth: np.ndarray, patients: np.ndarray
) -> Interval | None:
    """Return the share of regions with the decision ``word`` that histology confirms.

    ``label`` is the truth that confirms it. The result is None if no region has this decision.
    """
    has_this_decision = words == word
    if not has_this_decision.any():
        return None
    # The design effect is the factor by which the variance of the share grows because the regions
    # of one patient are alike. It is estimated from all regions with histology, because the regions
    # with the decision ``word`` may be too few.
    effect = share_design_effect(truth, patients)
    return clustered_share(
        truth[has_this_decision] == label, patients[has_this_decision], design_effect=effect
    )


def reject_summary(
    truth: np.ndarray,
    consensus: np.ndarray,
    score: np.ndarray,
    patients: np.ndarray,
    costs: DecisionSettings,
) -> Reject | None:
    """Measure how errors and cost change with the share of regions that are referred.

    The truth is histology. If too few patients have histology, the readers' mean, above or below
    1/2, takes its place for all regions.

    Parameters
    ----------
    truth, consensus, score : ndarray, shape (n,)
        Histology (1 or 0), the readers' mean and the learner's probability; NaN where unknown.
    patients : ndarray, shape (n,)
        The patient of every region.
    costs : DecisionSettings
        Costs of errors and of referring a region.

    Returns
    -------
    Reject or None
        None if neither histology nor the readers' mean is known for enough patients, or if a score
        is outside [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    >>> score = np.linspace(0.05, 0.95, 8)
    >>> summary = reject_summary(truth, truth, score, np.arange(8), DecisionSettings())
    >>> summary.against, summary.curve["reject_rate"][0], summary.curve["error_rate"][0]
    ('histology', 1.0, 0.0)
    """
    majority, _ = metrics.consensus_truth(consensus)
    # Histology comes first. The readers' majority is used only if histology is known for too few.
    for source, classes in (("histology", truth), ("readers", majority)):
        usable = np.isfinite(classes) & np.isfinite(score)
        y = classes[usable]
        q = score[usable]
        if enough_patients(y, patients[usable]) and is_probability(q):
            return Reject(against=source, curve=reject_curve(y, q, costs))
    return None
