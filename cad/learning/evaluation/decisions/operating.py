"""Choose thresholds for which a predictive value can be promised, for as many regions as possible.

An aim is a predictive value that the decisions shall have, such as a negative predictive value of
.95. A region is called benign below the largest threshold for which the aim can be promised. The
threshold of malignant is chosen in the same way (docs/methods.md 8). The regions are sorted by
their probability, the most certain ones first, and divided into twenty equal shares. After each
share, the aim is compared with the one-sided lower 95 % bound of the predictive value of all
regions so far. The bound takes the regions of a patient as dependent. The first bound that is below
the aim ends the sequence (learn then test: Angelopoulos, Bates, Candes, Jordan & Lei 2021). So a
promise is wrong in at most 5 % of cohorts, however many shares were tested.

The sequence begins at the first share after which the bound would reach the aim even with one
error. If there are too few regions for that, it begins at the first share after which the bound
would reach the aim without an error. Where the sequence begins depends on the numbers of regions
alone, and not on the outcomes of the first ones. If the first test fails, no region gets this
decision, and the result says how many decisions without an error would have been needed.
"""

from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.evaluation.measures.intervals import (
    LEVEL,
    Interval,
    clustered_share,
    share_design_effect,
    share_lower_bound,
)
from cad.learning.evaluation.measures.metrics import clipped
from cad.learning.logistic import fit_logistic

COSTS_INSTEAD = "thresholds are those of the costs, not of the aim"
SHARES = 20
"""Number of equal shares into which the sorted regions are divided."""
ERRORS_AT_START = 1
"""The tests begin at the first share that would still pass with this number of errors."""
INTERCEPT_SD = 1.5
SLOPE_SD = 0.35
"""Standard deviations of the priors of the intercept and the slope of a calibration. The residuals
of this calibration show how alike the regions of one patient are.
"""


@dataclass(frozen=True)
class Side:
    """Hold the threshold and the predictive value of one of the two decisions, benign or malignant.

    Parameters
    ----------
    aim : float or None
        Predictive value that is wanted; None if the threshold comes from the costs.
    threshold : float
        A region is benign below it, or malignant above it.
    share : float
        Share of the regions with a probability that get this decision by the threshold.
    observed : Interval
        Predictive value with this threshold, on the regions from which the threshold was chosen.
    n : int
        Number of regions from which ``observed`` was computed: those with histology and this
        decision.
    note : str
        Reason why no region gets this decision; empty if a region gets it.
    bound : float
        One-sided lower 95 % bound of the predictive value with this threshold; it takes the regions
        of a patient as dependent. NaN if no region gets this decision, and for a bundle (a stored
        model) of an older version, which chose the threshold in another way.
    needed : int
        Number of decisions without an error that the aim would need, if the regions of one patient
        are as alike as here. 0 if the threshold comes from the costs.
    """

    aim: float | None
    threshold: float
    share: float
    observed: Interval
    n: int
    note: str
    bound: float = float("nan")
    needed: int = 0

    @property
    def promise(self) -> float:
        """Return the predictive value that can be promised.

        It is the aim, if the aim could be promised. If the threshold comes from the costs, it is
        ``bound``, the lower 95 % bound of the predictive value. It is NaN if the aim could not be
        promised, or if no region gets this decision.
        """
        if self.aim is None:
            return self.bound
        return self.aim if self.bound >= self.aim else float("nan")


@dataclass(frozen=True)
class OperatingChoice:
    """Hold an operating point: the two thresholds, their aims and the promised predictive values.

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
        """Return the two thresholds: a region is benign below the first, malignant above the
        second.
        """
        return self.benign.threshold, self.malignant.threshold

    def as_dict(self) -> JsonObject:
        """Return the fields and ``sentence`` as a dict that JSON can hold, for a model bundle."""
        return dict(json_safe({**asdict(self), "sentence": self.sentence()}))

    def sentence(self) -> str:
        """Return one sentence with the share and the predictive value of each decision.

        Beside each predictive value the sentence has the aim, and the value that can be promised
        (``Side.promise``). If the aim cannot be promised, the sentence says how many decisions
        without an error that would take.
        """
        clauses = [
            f"by the thresholds alone: benign {self.benign.share:.0%}, refer {self.refer:.0%}, "
            f"malignant {self.malignant.share:.0%}"
        ]
        for side, name in ((self.benign, "negative"), (self.malignant, "positive")):
            if side.note:
                clauses.append(f"{name} predictive value: {side.note}")
                continue
            aim = ""
            if side.aim is not None:
                aim = f"aim {side.aim:g}, "
            promise = "no promise"
            if np.isfinite(side.promise):
                promise = f"promised {side.promise:.2f}"
            clauses.append(f"{name} predictive value {side.observed.value:.2f} ({aim}{promise})")
        return "; ".join(clauses) + "."


@dataclass(frozen=True)
class Promised:
    """Hold the largest set of decisions for which an aim can be promised.

    An aim is the least predictive value that a site accepts. Decisions enter the set in the order
    of their certainty, the most certain first.

    Parameters
    ----------
    cut : float
        Regions with values below the cut get the decision; 0 if nothing can be promised.
    bound : float
        One-sided lower 95 % bound of the predictive value below the cut; NaN if nothing is decided.
    needed : int
        How many decisions, all of them right, would be needed before the aim can be promised.
    note : str
        Reason why nothing is decided; empty if something is.
    """

    cut: float
    bound: float
    needed: int
    note: str


def choose_operating_point(
    truth: np.ndarray, q: np.ndarray, patients: np.ndarray, settings: DecisionSettings
) -> OperatingChoice:
    """Choose the two thresholds from out-of-fold probabilities, so that the aims can be promised.

    A threshold without an aim follows from the costs. Rows are regions or men. If rows are men,
    each man counts as one patient.

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

    Returns
    -------
    OperatingChoice
        For each of the two decisions its threshold on the probability (0 to 1), its predictive
        value with 95 % interval, and the predictive value that can be promised. ``refer`` is the
        share of rows with a probability that lie between the two thresholds.

    Raises
    ------
    CadError
        If the regions with histology and probability are of one class, or of one patient.

    Examples
    --------
    >>> import numpy as np
    >>> q = np.linspace(0.005, 0.995, 200)
    >>> truth = (q > 0.5).astype(float)
    >>> truth[[90, 110]] = [1, 0]
    >>> choice = choose_operating_point(truth, q, np.arange(200), DecisionSettings(aim_npv=0.9))
    >>> choice.benign.promise, choice.benign.n
    (0.9, 100)
    """
    has_both = np.isfinite(truth) & np.isfinite(q)
    y = truth[has_both]
    p = q[has_both]
    patient_of_row = np.asarray(patients)[has_both]
    if len(np.unique(y)) < 2 or len(np.unique(patient_of_row)) < 2:
        raise CadError(
            f"a threshold for an aim needs malignant and benign regions of two patients or more: "
            f"{int(y.sum())} malignant, {int((1 - y).sum())} benign "
            f"of {len(np.unique(patient_of_row))}",
            hint="take decision.aim_npv and aim_ppv out: thresholds then follow from the costs",
        )
    # The thresholds of the costs stay where there is no aim. For malignant, the surest regions are
    # those with the smallest 1 - p, so the cut is one of 1 - p.
    lower, upper = settings.thresholds
    promised: dict[int, Promised] = {}
    if settings.aim_npv is not None:
        promised[0] = promised_cut(1 - y, p, patient_of_row, settings.aim_npv)
        lower = promised[0].cut
    if settings.aim_ppv is not None:
        promised[1] = promised_cut(y, 1 - p, patient_of_row, settings.aim_ppv)
        upper = 1 - promised[1].cut
    # A region may be safe enough for both decisions: its probability lies below the benign and
    # above the malignant threshold. All such regions are called benign, and no region is referred.
    upper = max(lower, upper)
    decisions = decide(p, lower, upper)
    design_effect = share_design_effect(y, patient_of_row)
    # The share of each decision is computed over all regions with a probability, as in later use.
    # Only predictive values need histology.
    all_probabilities = q[np.isfinite(q)]
    all_decisions = decide(all_probabilities, lower, upper)

    def side(label: int, aim: float | None, threshold: float) -> Side:
        """Return one decision, benign (0) or malignant (1), with its predictive value."""
        has_decision = decisions == label
        is_right = (y == label).astype(float)[has_decision]
        observed = clustered_share(
            is_right, patient_of_row[has_decision], design_effect=design_effect
        )
        note = ""
        needed = 0
        correlation = _residual_correlation(y, p, patient_of_row)
        promised_bound = _bound(is_right, patient_of_row[has_decision], correlation)
        if label in promised:
            note = promised[label].note
            needed = promised[label].needed
            promised_bound = promised[label].bound
        # If an aim cannot be promised, the note already has the reason.
        if not has_decision.any():
            promised_bound = float("nan")
            if not note:
                note = "no region lies beyond the threshold: nothing is decided"
        share = float(np.mean(all_decisions == label))
        return Side(
            aim=aim,
            threshold=threshold,
            share=share,
            observed=observed,
            n=int(has_decision.sum()),
            note=note,
            bound=promised_bound,
            needed=needed,
        )

    benign = side(0, settings.aim_npv, lower)
    malignant = side(1, settings.aim_ppv, upper)
    refer = float(np.mean(all_decisions == -1))
    return OperatingChoice(benign=benign, malignant=malignant, refer=refer)


def promised_cut(right: np.ndarray, q: np.ndarray, groups: np.ndarray, aim: float) -> Promised:
    """Return the largest cut such that decisions on regions below it are right often enough.

    Each test takes the surest decisions up to a cut. A test is passed if the one-sided lower 95 %
    bound of their share of right decisions reaches ``aim``; the predictive value ``aim`` is then
    promised. The order of the tests, from few to many decisions, is fixed in advance, and the first
    test that fails ends them.

    Parameters
    ----------
    right : ndarray, shape (n,)
        1 where the decision would be right, 0 where it would be wrong.
    q : ndarray, shape (n,)
        Values by which the regions are ordered: the smaller the value, the surer the decision.
    groups : ndarray, shape (n,)
        The patient of every row.
    aim : float
        Predictive value that is wanted, in (0, 1).

    Examples
    --------
    With 59 men and no error a value of .95 can be promised, with 58 men it cannot:

    >>> import numpy as np
    >>> q = np.linspace(0.01, 0.5, 59)
    >>> promised_cut(np.ones(59), q, np.arange(59), 0.95).cut
    1.0
    >>> promised_cut(np.ones(58), q[:58], np.arange(58), 0.95).needed
    59
    """
    order = np.argsort(q, kind="stable")
    sorted_values = q[order]
    is_right = right[order]
    patient_of_row = groups[order]
    regions = len(sorted_values)
    # The correlation of errors within a patient is estimated from all regions, because the most
    # certain regions contain few errors.
    correlation = _residual_correlation(1 - is_right, sorted_values, patient_of_row)
    # With n right decisions of independent regions the bound is (1 - LEVEL) ** (1 / n), which
    # reaches the aim at the n below. If regions of a patient are alike, this n is multiplied by the
    # design effect. A whole number that a rounding error has made larger is not rounded up.
    independent = np.log(1 - LEVEL) / np.log(aim)
    needed = int(np.ceil(independent * _effect(patient_of_row, correlation) - 1e-9))
    sizes = _sizes_of_shares(sorted_values)
    first_test = _first_tested_share(sizes, patient_of_row, correlation, aim)
    errors_so_far = np.cumsum(1 - is_right)
    promised_size = 0
    promised_bound = float("nan")
    for size in sizes[first_test:]:
        bound = _bound(is_right[:size], patient_of_row[:size], correlation)
        if bound < aim:
            break
        promised_size = int(size)
        promised_bound = bound
    if promised_size == 0:
        # If no test can be passed, not even without an error, all regions stand in the note.
        first_size = regions
        if first_test < len(sizes):
            first_size = int(sizes[first_test])
        note = (
            f"{aim:g} cannot be promised, so nothing is decided: it takes {needed} decisions in a "
            f"row without an error, the safest {first_size} hold "
            f"{int(errors_so_far[first_size - 1])} errors"
        )
        return Promised(cut=0.0, bound=promised_bound, needed=needed, note=note)
    # If the promise holds for all regions, the cut is 1.
    cut = 1.0
    if promised_size < regions:
        # The threshold lies halfway between two values. If it were equal to one of them, rounding
        # would decide whether a new patient with the same value lies below it.
        cut = float((sorted_values[promised_size - 1] + sorted_values[promised_size]) / 2)
    return Promised(cut=cut, bound=promised_bound, needed=needed, note="")


def choose_thresholds(
    truth: np.ndarray, q: np.ndarray, patients: np.ndarray, settings: DecisionSettings
) -> tuple[float, float]:
    """Return the lower and the upper threshold of :func:`choose_operating_point`.

    If an aim for benign cannot be promised, the lower threshold is 0; if an aim for malignant
    cannot be promised, the upper threshold is 1. So no region gets that decision. If both aims can
    be promised for some regions, these regions are called benign.

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

    Examples
    --------
    >>> import numpy as np
    >>> q = np.linspace(0.005, 0.995, 200)
    >>> truth = (q > 0.5).astype(float)
    >>> lower, upper = choose_thresholds(
    ...     truth, q, np.arange(200), DecisionSettings(aim_npv=0.9, aim_ppv=0.9)
    ... )
    >>> round(lower, 2), round(upper, 2)
    (0.5, 0.5)
    """
    return choose_operating_point(truth, q, patients, settings).thresholds


def _sizes_of_shares(value: np.ndarray) -> np.ndarray:
    """Return the sizes of the sets of most certain regions that are tested, in ascending order.

    ``value`` has the regions' values in ascending order. The sets have about 1, 2, 3, ... of
    :data:`SHARES` equal parts of the regions. A set that has one region has all regions of the same
    value.
    """
    regions = len(value)
    # A set may end only behind the last region of a value. Of these sizes, the next one at or above
    # each wanted size is taken. Equal sizes count once.
    allowed_sizes = np.flatnonzero(np.append(np.diff(value) > 0, True)) + 1
    wanted_sizes = np.ceil(regions * np.arange(1, SHARES + 1) / SHARES).astype(int)
    return np.unique(allowed_sizes[np.searchsorted(allowed_sizes, wanted_sizes)])


def _first_tested_share(
    sizes: np.ndarray, group: np.ndarray, correlation: float, aim: float
) -> int:
    """Return the number, from 0, of the set of regions with which the tests begin.

    ``sizes`` has the numbers of regions of the sets, in ascending order. The tests begin with the
    first set that would reach ``aim`` although :data:`ERRORS_AT_START` of its decisions are wrong.
    If no set would, fewer errors are assumed, and at last none. If no set would reach ``aim``
    without an error, the result is the number of sets.
    """
    for errors in reversed(range(ERRORS_AT_START + 1)):
        for place, size in enumerate(sizes):
            is_right = np.ones(size)
            is_right[:errors] = 0.0
            if _bound(is_right, group[:size], correlation) >= aim:
                return place
    return len(sizes)


def _bound(correct: np.ndarray, group: np.ndarray, correlation: float) -> float:
    """Return the one-sided lower 95 % bound of the share of correct decisions.

    ``correct`` is 1 for a correct and 0 for a wrong decision, and ``group`` names the patient of
    each decision. ``correlation`` is that of the errors in two regions of one patient.
    """
    if len(correct) == 0:
        return float("nan")
    return share_lower_bound(correct, group, _effect(group, correlation))


def _effect(group: np.ndarray, correlation: float) -> float:
    """Return the design effect of the regions of some patients: 1 + (n - 1) rho.

    The variance of a share grows by this factor, because the regions of one patient are alike. n is
    the number of regions of a region's patient, averaged over the regions: sum n_i^2 / sum n_i, if
    patient i has n_i regions. rho is the correlation of two regions of one patient.
    """
    regions_of_patient = np.unique(group, return_counts=True)[1].astype(float)
    mean_size = (regions_of_patient @ regions_of_patient) / regions_of_patient.sum()
    return float(1 + (mean_size - 1) * correlation)


def _residual_correlation(truth: np.ndarray, q: np.ndarray, group: np.ndarray) -> float:
    """Return how alike the outcomes of one patient's regions are beyond what q predicts, in [0, 1].

    A calibration of q is fitted, and the correlation of its residuals is computed over pairs of
    regions of one patient. One standard error is added, because a promise depends on the result.
    This is done with two weightings: every pair has the same weight, or every patient has his
    number of regions minus 1 as weight. The larger result is returned. So neither one patient with
    many regions nor many patients with two regions decide alone.
    """
    log_odds = logit(clipped(q))
    design = np.column_stack([np.ones(len(q)), log_odds])
    precision = np.array([INTERCEPT_SD, SLOPE_SD]) ** -2.0
    coefficients = fit_logistic(design, truth, mean=np.array([0.0, 1.0]), precision=precision)
    residual = truth - expit(design @ coefficients)
    patient_code = np.unique(group, return_inverse=True)[1]
    regions_of_patient = np.bincount(patient_code)
    has_several = regions_of_patient > 1
    # With one region of each patient there is no pair.
    if not has_several.any():
        return 0.0
    # A patient's sum of products over ordered pairs of different regions is the square of his sum,
    # minus the sum of his squares. The mean product, divided by the mean square of all residuals,
    # is his correlation.
    sums = np.bincount(patient_code, residual)[has_several]
    squares = np.bincount(patient_code, residual**2)[has_several]
    regions_of_patient = regions_of_patient[has_several]
    pairs = regions_of_patient * (regions_of_patient - 1)
    of_patients = (sums**2 - squares) / pairs / np.mean(residual**2)
    # A negative correlation would make a promise too easy, so the result is at least 0.
    largest = 0.0
    for unscaled in (pairs, regions_of_patient - 1):
        weights = unscaled / unscaled.sum()
        correlation = weights @ of_patients
        standard_error = np.sqrt(weights**2 @ (of_patients - correlation) ** 2)
        largest = max(largest, float(correlation + standard_error))
    return min(largest, 1.0)
