"""Choose thresholds for which a predictive value can be promised, for as many regions as possible.

A region is called benign below the largest threshold for which a negative predictive value of, say,
.95 can be promised. The threshold of malignant is chosen likewise (docs/methods.md 8). The regions
are ordered, with the most surely decided regions first, and divided into twenty equal shares. Share
by share, the one-sided lower 95 % bound of the predictive value of all regions so far is compared
with the aim. The bound treats patients as clusters. The first share that fails ends the sequence
(learn then test: Angelopoulos, Bates, Candes, Jordan & Lei 2021). So in at most 5 % of cohorts a
promised value does not hold, however many shares were tested.

The sequence begins at the first share whose bound could reach the aim with one error in it. If no
share is large enough for that, it begins at the first share whose bound could reach the aim without
an error. The beginning depends on the numbers of regions, but not on which of them are malignant.
If the first test fails, nothing is decided, and the result says how many decisions without an error
would have been needed.
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
"""Number of equal shares into which the regions are divided."""
ERRORS_AT_START = 1
"""The tests begin at the first share that could still pass with this many errors."""
INTERCEPT_SD = 1.5
SLOPE_SD = 0.35
"""Standard deviations of the priors of a calibration's intercept and slope. The residuals of that
calibration show how alike the regions of one patient are.
"""


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
        Share of regions with a probability that get this decision at the threshold.
    observed : Interval
        Predictive value at the threshold, on the regions that it was chosen on.
    n : int
        Number of regions with histology behind ``observed``.
    note : str
        Why no region gets this decision; empty where a region gets it.
    bound : float
        One-sided lower 95 % bound of the predictive value at the threshold, clustered by patient.
        NaN where no region gets this decision, and in a bundle of an older version, which chose the
        threshold in another way.
    needed : int
        Least number of decisions, all right, with which the aim could be promised, with regions of
        one patient as alike as they are here; 0 where the threshold comes from the costs.
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
        """Return the promised predictive value: the aim, or the bound where the costs set the
        threshold.

        NaN where nothing is decided, and where the aim was not tested.
        """
        if self.aim is None:
            return self.bound
        return self.aim if self.bound >= self.aim else float("nan")


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
        """Return shares, aims and promises in one sentence, and the requirements of a missing
        promise.
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
    """Hold the largest set of decisions for which an aim can be promised, counted from the safest
    one.

    Parameters
    ----------
    cut : float
        Regions with values below the cut are decided; 0 if nothing can be promised.
    bound : float
        One-sided lower bound of the predictive value below the cut; NaN if nothing is decided.
    needed : int
        Least number of decisions, all right, with which the aim could be promised.
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
    """Choose the two thresholds for which the aims can be promised, on out-of-fold probabilities.

    A threshold without an aim follows from the costs. Rows are regions or men. If rows are men,
    every man is a patient of his own.

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
    group = np.asarray(patients)[has_both]
    if len(np.unique(y)) < 2 or len(np.unique(group)) < 2:
        raise CadError(
            f"a threshold for an aim needs malignant and benign regions of two patients or more: "
            f"{int(y.sum())} malignant, {int((1 - y).sum())} benign of {len(np.unique(group))}",
            hint="take decision.aim_npv and aim_ppv out: thresholds then follow from the costs",
        )
    lower, upper = settings.thresholds
    promised: dict[int, Promised] = {}
    if settings.aim_npv is not None:
        promised[0] = promised_cut(1 - y, p, group, settings.aim_npv)
        lower = promised[0].cut
    if settings.aim_ppv is not None:
        promised[1] = promised_cut(y, 1 - p, group, settings.aim_ppv)
        upper = 1 - promised[1].cut
    # If both decisions are promised for the same regions, no region is referred, and these are
    # benign.
    upper = max(lower, upper)
    decided = decide(p, lower, upper)
    effect = share_design_effect(y, group)
    # Shares are of all regions, as in use; only predictive values need histology.
    scored = q[np.isfinite(q)]
    every = decide(scored, lower, upper)

    def side(label: int, aim: float | None, threshold: float) -> Side:
        rows = decided == label
        right = (y == label).astype(float)[rows]
        observed = clustered_share(right, group[rows], design_effect=effect)
        note = ""
        needed = 0
        bound = _bound(right, group[rows], _residual_correlation(y, p, group))
        if label in promised:
            note = promised[label].note
            needed = promised[label].needed
            bound = promised[label].bound
        if not rows.any():
            bound = float("nan")
            if not note:
                note = "no region lies beyond the threshold: nothing is decided"
        share = float(np.mean(every == label))
        return Side(aim, threshold, share, observed, int(rows.sum()), note, bound, needed)

    benign = side(0, settings.aim_npv, lower)
    malignant = side(1, settings.aim_ppv, upper)
    return OperatingChoice(benign, malignant, float(np.mean(every == -1)))


def promised_cut(right: np.ndarray, q: np.ndarray, groups: np.ndarray, aim: float) -> Promised:
    """Return the cut below which a predictive value can be promised, by a fixed sequence of tests.

    Parameters
    ----------
    right : ndarray, shape (n,)
        1 where the decision would be right, 0 where it would be wrong.
    q : ndarray, shape (n,)
        Values by which the regions are ordered: the smaller the value, the surer the decision.
    groups : ndarray, shape (n,)
        The patient of every row.
    aim : float
        Predictive value wanted, in (0, 1).

    Examples
    --------
    Of 59 men in a row without an error .95 can be promised, of 58 not:

    >>> import numpy as np
    >>> q = np.linspace(0.01, 0.5, 59)
    >>> promised_cut(np.ones(59), q, np.arange(59), 0.95).cut
    1.0
    >>> promised_cut(np.ones(58), q[:58], np.arange(58), 0.95).needed
    59
    """
    order = np.argsort(q, kind="stable")
    value = q[order]
    correct = right[order]
    group = groups[order]
    n = len(value)
    # The correlation within patients is estimated from all regions, because the most certain
    # regions contain few errors.
    correlation = _residual_correlation(1 - correct, value, group)
    needed = int(np.ceil(np.log(1 - LEVEL) / np.log(aim) * _effect(group, correlation) - 1e-9))
    sizes = _sizes_of_shares(value)
    start = _first_tested_share(sizes, group, correlation, aim)
    errors = np.cumsum(1 - correct)
    size = 0
    bound = float("nan")
    for candidate in sizes[start:]:
        reached = _bound(correct[:candidate], group[:candidate], correlation)
        if reached < aim:
            break
        size = int(candidate)
        bound = reached
    if size == 0:
        first = n
        if start < len(sizes):
            first = int(sizes[start])
        note = (
            f"{aim:g} cannot be promised, so nothing is decided: it takes {needed} decisions in a "
            f"row without an error, the safest {first} hold {int(errors[first - 1])} errors"
        )
        return Promised(0.0, bound, needed, note)
    cut = 1.0
    if size < n:
        # The cut lies halfway between two values. If it were equal to a value, rounding would
        # decide whether a new patient's equal value lies below it.
        cut = float((value[size - 1] + value[size]) / 2)
    return Promised(cut, bound, needed, "")


def choose_thresholds(
    truth: np.ndarray, q: np.ndarray, patients: np.ndarray, settings: DecisionSettings
) -> tuple[float, float]:
    """Return the lower and the upper threshold of :func:`choose_operating_point`.

    Where nothing can be promised the lower one is 0 and the upper one 1, so that no region gets
    that decision. Where both aims hold for the same regions, these are called benign.

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
    """Return how many of the sorted regions each share has; regions of equal value stay
    together.
    """
    n = len(value)
    whole = np.flatnonzero(np.append(np.diff(value) > 0, True)) + 1
    targets = np.ceil(n * np.arange(1, SHARES + 1) / SHARES).astype(int)
    return np.unique(whole[np.searchsorted(whole, targets)])


def _first_tested_share(
    sizes: np.ndarray, group: np.ndarray, correlation: float, aim: float
) -> int:
    """Return the number of the first share that could pass its test, or the number of shares if
    none could.
    """
    for errors in reversed(range(ERRORS_AT_START + 1)):
        for place, size in enumerate(sizes):
            correct = np.ones(size)
            correct[:errors] = 0.0
            if _bound(correct, group[:size], correlation) >= aim:
                return place
    return len(sizes)


def _bound(correct: np.ndarray, group: np.ndarray, correlation: float) -> float:
    """Return the one-sided lower 95 % bound of the share of correct decisions."""
    if len(correct) == 0:
        return float("nan")
    return share_lower_bound(correct, group, _effect(group, correlation))


def _effect(group: np.ndarray, correlation: float) -> float:
    """Return the design effect of regions of some patients: 1 + (n - 1) rho.

    n is the mean number of regions per patient, averaged over regions: sum n_i^2 / sum n_i. rho is
    the correlation of two regions of one patient.
    """
    counts = np.unique(group, return_counts=True)[1].astype(float)
    return float(1 + ((counts @ counts) / counts.sum() - 1) * correlation)


def _residual_correlation(truth: np.ndarray, q: np.ndarray, group: np.ndarray) -> float:
    """Return how alike the outcomes of regions of one patient are, beyond what q predicts, in [0,
    1].

    The result is the correlation of the residuals of a calibration of q, over pairs of regions of
    one patient. One standard error is added to the estimate, since a promise depends on it. The
    correlation is computed with two weightings: every pair counts the same, or every patient counts
    by his number of further regions. Neither one patient with many regions nor many with two then
    decide alone. The larger value is returned.
    """
    odds = logit(clipped(q))
    design = np.column_stack([np.ones(len(q)), odds])
    precision = np.array([INTERCEPT_SD, SLOPE_SD]) ** -2.0
    beta = fit_logistic(design, truth, mean=np.array([0.0, 1.0]), precision=precision)
    residual = truth - expit(design @ beta)
    code = np.unique(group, return_inverse=True)[1]
    counts = np.bincount(code)
    several = counts > 1
    if not several.any():
        return 0.0
    sums = np.bincount(code, residual)[several]
    squares = np.bincount(code, residual**2)[several]
    counts = counts[several]
    pairs = counts * (counts - 1)
    products = (sums**2 - squares) / pairs / np.mean(residual**2)
    largest = 0.0
    for weight in (pairs, counts - 1):
        weight = weight / weight.sum()
        mean = weight @ products
        error = np.sqrt(weight**2 @ (products - mean) ** 2)
        largest = max(largest, float(mean + error))
    return min(largest, 1.0)
