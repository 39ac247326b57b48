"""Weigh readers by how far they agree with the other readers, without histology (docs/methods.md
8).

A reader's weight is max(0, r)^2. Here r is the correlation of the reader's scores with the weighted
mean of the other readers' scores, over the regions that he and others scored. A correlation that
comes from few regions is uncertain. Each r is therefore written as Fisher's z = artanh(r), and each
z is drawn towards the mean z of all readers, as far as chance explains the differences between
readers (DerSimonian and Laird 1986). Where chance explains all differences, all readers have equal
weights.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cad.learning.labels.pooled import Belief, MeanReaders, refuse_outside

Array = NDArray[np.float64]

FEWEST_READERS = 3
"""Least number of readers that can have different weights; fewer readers have equal weights."""
# Number of times that weights are computed from the mean of the other readers. In the first mean
# all readers have equal weights, also a reader who agrees with nobody. In the later means this
# reader has little or no weight.
_ROUNDS = 3
# Least number of regions for a correlation: the variance of Fisher's z is 1 / (n - 3), so that
# three regions give no estimate.
_FEWEST = 4
# Correlations are clipped to this value, because Fisher's z of 1 is infinite.
_HIGHEST = 0.99
# Decimals to which a weighted mean and its deviation are rounded, to remove rounding errors.
_DIGITS = 12
# Two readers whose scores are equal in all common regions count as one person, if the probability
# of such equality by chance is below this.
_COINCIDENCE = 1e-3
# Quantiles of the normal distribution, for the printed 95 % interval and for the 99 % interval.
# Both intervals decide whether a reader is odd, that is, adds nothing to the other readers.
_Z95 = 1.959963984540054
_Z99 = 2.5758293035489004
# A reader is odd only if his whole 95 % interval lies below this share of the other readers' median
# correlation.
_SHARE_OF_OTHERS = 0.5


@dataclass(frozen=True)
class ReaderAgreement:
    """Hold how far one reader agrees with the other readers.

    Parameters
    ----------
    reader : str
        Name of the reader.
    n : int
        Number of regions that the reader and at least one other reader scored. Another reader
        counts only if he has weight.
    correlation, lower, upper : float
        Correlation of the reader's scores with the weighted mean of the others' scores, and its 95
        % interval. They are NaN if ``n`` is below four, or if the mean of the others is the same in
        all regions.
    others : float
        Median of the other readers' correlations; NaN where no other reader has a correlation.
    weight : float
        The reader's share of the consensus in regions that everybody read, in [0, 1].
    copy_of : tuple of str
        Names of the readers whose scores equal this reader's scores in all common regions, where
        chance does not explain this.
    odd : bool
        True if the reader counts as adding nothing to the other readers. This is so if three
        conditions hold: there are three readers or more, the 99 % interval of his correlation
        reaches down to 0 or below, and its 95 % interval lies below half of ``others``.
    """

    reader: str
    n: int
    correlation: float
    lower: float
    upper: float
    others: float
    weight: float
    copy_of: tuple[str, ...]
    odd: bool


class AgreementReaders:
    """Take the mean of the readers, each weighed by his agreement with the other readers.

    Attributes
    ----------
    weights_ : ndarray, shape (n_readers,)
        Weights of the readers, with sum 1. Weights are equal for fewer than three readers, and
        where no reader agrees with the others. Readers whose scores are copies of each other share
        the weight of one reader.
    copies_ : ndarray of int, shape (n_readers,)
        For each reader, the column of the first reader with the same scores. It is the reader's own
        column if he is no copy.
    note : str
        Always empty; :func:`reader_agreement` makes the sentences about readers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random(200)[:, None]
    >>> grades = np.clip(truth + rng.normal(0, 0.1, (200, 4)), 0, 1)
    >>> grades[:, 3] = rng.random(200)
    >>> AgreementReaders().fit(grades, truth).weights_.round(2).tolist()
    [0.34, 0.33, 0.33, 0.0]
    """

    note = ""

    def __init__(self, single: float = 0.125) -> None:
        self.single = single

    def fit(self, grades: Array, truth: Array) -> Self:
        """Learn the weights from the training regions and return this object.

        Parameters
        ----------
        grades : ndarray, shape (n, n_readers)
            Readers' probabilities; NaN where missing.
        truth : ignored
            This rule uses no histology. The argument is there because other consensus rules need
            it.

        Raises
        ------
        CadError
            For grades outside [0, 1].
        """
        refuse_outside(grades)
        self.copies_ = _first_of_copies(grades)
        person_of_reader = np.unique(self.copies_, return_inverse=True)[1]
        # Readers whose scores are copies count as one person. They share that person's weight.
        weight = _weights_of_readers(_scores_of_persons(grades, self.copies_))
        times = np.bincount(person_of_reader)
        self.weights_ = np.asarray(weight[person_of_reader] / times[person_of_reader])
        return self

    def predict(self, grades: Array) -> Belief:
        """Return the weighted mean (``p``) and the weighted standard deviation (``eta``).

        ``grades`` has shape (n, n_readers), NaN where missing; a region without a grade gets NaN. A
        region that only readers without weight scored gets their plain mean. With equal weights the
        deviation is the standard deviation with ddof 1. Where one reader alone counts, the
        deviation is ``single``, the uncertainty of one score.
        """
        refuse_outside(grades)
        scored = np.isfinite(grades)
        weight = scored * self.weights_
        weight = np.where(weight.any(axis=1, keepdims=True), weight, scored)
        if np.ptp(self.weights_) == 0:
            # With equal weights the result must equal the plain mean in every bit, so it is
            # computed as a plain mean.
            return MeanReaders(self.single).predict(grades)
        total = weight.sum(axis=1)
        nobody = total == 0
        share = weight / np.where(nobody, 1.0, total)[:, None]
        # Errors of floating-point arithmetic could carry a label out of [0, 1] or break a tie at
        # 1/2. So the mean is rounded. Where all readers state the same probability, the rounded
        # mean is exactly this probability.
        p = np.round(np.where(scored, grades * share, 0.0).sum(axis=1), _DIGITS)
        square = np.where(scored, share * (grades - p[:, None]) ** 2, 0.0).sum(axis=1)
        # A reader's share is his weight divided by the sum of weights. In expectation the weighted
        # variance of the scores is too small by the factor 1 - sum of squared shares, so it is
        # divided by this factor. With n equal weights the factor is 1 - 1/n, as in a sample
        # variance (ddof 1).
        freedom = 1 - (share**2).sum(axis=1)
        alone = freedom < 1e-9
        spread = np.round(np.sqrt(square / np.where(alone, 1.0, freedom)), _DIGITS)
        eta = np.where(alone, self.single, spread)
        return Belief(np.where(nobody, np.nan, p), np.where(nobody, np.nan, eta))


def reader_agreement(
    grades: Array, readers: list[str], patients: ArrayLike
) -> list[ReaderAgreement]:
    """Measure how far every reader agrees with the other readers, and who adds nothing to them.

    Parameters
    ----------
    grades : ndarray, shape (n, n_readers)
        Readers' probabilities; NaN where missing.
    readers : list of str
        Names of the columns.
    patients : array, shape (n,)
        Patient of every region. The regions of one patient are treated as dependent in the
        intervals.

    Returns
    -------
    list of ReaderAgreement
        One for each reader, in the order of ``readers``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> grades = np.clip(rng.random((90, 1)) + rng.normal(0, 0.1, (90, 3)), 0, 1)
    >>> grades[:, 2] = rng.random(90)
    >>> found = reader_agreement(grades, ["a", "b", "c"], np.arange(90) // 3)
    >>> [row.odd for row in found]
    [False, False, True]
    """
    rule = AgreementReaders().fit(grades, np.full(len(grades), np.nan))
    group = np.unique(np.asarray(patients).astype(str), return_inverse=True)[1]
    persons, person_of_reader = np.unique(rule.copies_, return_inverse=True)
    # Readers with the same scores count as one person. ``each`` has a column per person.
    each = _scores_of_persons(grades, rule.copies_)
    weight = np.bincount(person_of_reader, rule.weights_).astype(float)
    # z is Fisher's: tanh(z) is the correlation of a person with the mean of the others.
    z, variance, n = _agreements(each, weight, group)
    rows = []
    for j, reader in enumerate(readers):
        person = int(person_of_reader[j])
        of_others = np.delete(z, person)
        of_others = of_others[np.isfinite(of_others)]
        median_of_others = float(np.tanh(np.median(of_others))) if len(of_others) else np.nan
        deviation = np.sqrt(variance[person])
        lower, upper = np.tanh(z[person] + _Z95 * deviation * np.array([-1.0, 1.0]))
        nothing_shown = z[person] - _Z99 * deviation <= 0
        # A reader is odd if his 99 % interval reaches down to 0 and his 95 % interval lies far
        # below the others' median. Of only two persons who disagree, nobody knows which one is odd.
        odd = len(persons) >= FEWEST_READERS and bool(
            nothing_shown and upper < _SHARE_OF_OTHERS * median_of_others
        )
        same = []
        for k in np.flatnonzero(person_of_reader == person):
            if k != j:
                same.append(readers[k])
        rows.append(
            ReaderAgreement(
                reader=reader,
                n=int(n[person]),
                correlation=float(np.tanh(z[person])),
                lower=float(lower),
                upper=float(upper),
                others=median_of_others,
                weight=float(rule.weights_[j]),
                copy_of=tuple(same),
                odd=odd,
            )
        )
    return rows


def agreement_notes(agreements: list[ReaderAgreement]) -> list[str]:
    """Return sentences that name the readers who add nothing and the copies, with the numbers that
    show it.

    Parameters
    ----------
    agreements : list of ReaderAgreement
        Results of :func:`reader_agreement`.

    Returns
    -------
    list of str
        One sentence for each odd reader, one for each group of readers with the same scores, and
        one if all readers agree nearly everywhere. The list is empty if none of this is so.
    """
    sentences = []
    named: set[str] = set()
    if len(agreements) > 1 and all(row.correlation >= _HIGHEST - 1e-9 for row in agreements):
        sentences.append(
            f"the readers agree nearly everywhere (correlations of {_HIGHEST:g} or more): none can "
            "be told from the others, and there is hardly any disagreement to learn from"
        )
    for row in agreements:
        if row.odd:
            turned = "; is the scale turned round?" if row.upper < 0 else ""
            sentences.append(
                f"{row.reader} adds nothing to the other readers that these regions can show: "
                f"correlation with their mean {row.correlation:.2f} "
                f"[{row.lower:.2f}, {row.upper:.2f}] in {row.n} regions, where the others' is "
                f"{row.others:.2f}{turned}"
            )
        if row.copy_of and row.reader not in named:
            names = (row.reader, *row.copy_of)
            named.update(names)
            sentences.append(
                f"{', '.join(names)} gave the same scores, by more than chance: one reader under "
                f"{len(names)} names is no agreement, and counts once"
            )
    return sentences


def _scores_of_persons(grades: Array, copies: NDArray[np.intp]) -> Array:
    """Return the scores with one column per person: readers who are copies of each other are one.

    ``copies`` has for each reader the number of the first reader with the same scores. A person's
    score is the score of any of his readers.
    """
    if grades.shape[1] == 0:
        return grades
    columns = []
    for first in np.unique(copies):
        names = grades[:, copies == first]
        # Readers who are copies of each other have equal scores wherever both scored a region, so
        # the first finite score is taken.
        where = np.isfinite(names).argmax(axis=1)
        columns.append(names[np.arange(len(names)), where])
    return np.column_stack(columns)


def _first_of_copies(grades: Array) -> NDArray[np.intp]:
    """Return for each reader the number of the first reader whose scores are a copy of his.

    Two readers are copies if their scores are equal in all common regions, and if that is unlikely
    by chance. The chance is s^n for n common regions, where s is the median share of equal scores
    in the other pairs of readers.
    """
    n_readers = grades.shape[1]
    first = np.arange(n_readers)
    pairs = []
    for b in range(n_readers):
        for a in range(b):
            pairs.append((a, b))
    if len(pairs) < 2:
        return first
    common = np.zeros(len(pairs), dtype=int)
    equal = np.zeros(len(pairs), dtype=int)
    for k, (a, b) in enumerate(pairs):
        both = np.isfinite(grades[:, a]) & np.isfinite(grades[:, b])
        common[k] = both.sum()
        equal[k] = (grades[both, a] == grades[both, b]).sum()
    share = (equal + 1) / (common + 2)
    for pair in np.flatnonzero((common == equal) & (common > 0)):
        a, b = pairs[pair]
        of_others = np.delete(share, pair)[np.delete(common, pair) > 0]
        if len(of_others) and np.median(of_others) ** common[pair] < _COINCIDENCE:
            first[b] = min(first[b], first[a])
    return first


def _weights_of_readers(grades: Array) -> Array:
    """Return the weight of every reader; no two readers may be copies of each other."""
    n_readers = grades.shape[1]
    equal = np.full(n_readers, 1 / n_readers)
    # A single reader has nobody to agree with, and two readers agree equally with each other. So
    # fewer than three readers get equal weights.
    if n_readers < FEWEST_READERS:
        return equal
    weight = equal
    for _ in range(_ROUNDS):
        z, variance, _ = _agreements(grades, weight, np.arange(len(grades)))
        measured = np.isfinite(z)
        if measured.sum() < FEWEST_READERS:
            return equal
        square = np.maximum(0.0, np.tanh(_shrunk_z(z, variance, measured))) ** 2
        if square.sum() == 0:
            return equal
        weight = square / square.sum()
    return np.asarray(weight)


def _agreements(
    grades: Array, weight: Array, group: NDArray[np.intp]
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Return each reader's agreement with the mean of the other readers.

    The result has three arrays, each with a value per reader: Fisher's z of the correlation, the
    variance of z, and the number of regions. Where the correlation cannot be computed, z is NaN and
    its variance infinite. ``weight`` has the weight of each reader, and ``group`` the patient of
    each region.
    """
    scored = np.isfinite(grades)
    total = np.where(scored, grades * weight, 0.0)
    weight_of_score = scored * weight
    # Each reader is compared with the weighted mean of the other readers. If nobody who scored has
    # a weight above 0, all readers count equally.
    if not weight_of_score.any():
        weight_of_score = scored.astype(float)
        total = np.where(scored, grades, 0.0)
    z = np.full(grades.shape[1], np.nan)
    variance = np.full(grades.shape[1], np.inf)
    n: NDArray[np.intp] = np.zeros(grades.shape[1], dtype=np.intp)
    # A reader who always gives the same score has correlation 0. How certain this 0 is depends on
    # how much the other readers' mean varies over his regions. It is compared with the variance of
    # the mean over all regions.
    variance_of_mean = _variance_of_mean(total.sum(axis=1), weight_of_score.sum(axis=1))
    for reader in range(grades.shape[1]):
        sum_of_others = np.delete(weight_of_score, reader, axis=1).sum(axis=1)
        used = scored[:, reader] & (sum_of_others > 0)
        n[reader] = np.count_nonzero(used)
        if n[reader] < _FEWEST:
            continue
        mean = np.delete(total, reader, axis=1).sum(axis=1)[used] / sum_of_others[used]
        z[reader], variance[reader] = _fisher(
            grades[used, reader], mean, group[used], variance_of_mean
        )
    return z, variance, n


def _variance_of_mean(total: Array, heard: Array) -> float:
    """Return the variance, over the regions that somebody scored, of the readers' weighted mean.

    ``total`` is the sum of the readers' weighted scores of each region, and ``heard`` the sum of
    the weights of the readers who scored it.
    """
    if not (heard > 0).any():
        return 0.0
    return float(np.var(total[heard > 0] / heard[heard > 0]))


def _fisher(
    scores: Array, mean: Array, group: NDArray[np.intp], variance_of_mean: float
) -> tuple[float, float]:
    """Return Fisher's z of the correlation of a reader's scores with a mean, and the variance of z.

    The variance takes the regions of one patient as dependent. ``variance_of_mean`` is
    the variance of the readers' mean over all regions.
    """
    n = len(scores)
    if np.ptp(mean) == 0:
        return np.nan, np.inf
    least_variance = 1 / (n - 3)
    if np.ptp(scores) == 0:
        # A reader who gives the same score everywhere has correlation 0. How certain this 0 is
        # depends on how much the other readers' mean varies over his regions.
        share = 1.0
        if variance_of_mean > 0:
            share = min(1.0, float(np.var(mean)) / variance_of_mean)
        return 0.0, least_variance / max(share, 1e-6)
    u = (scores - scores.mean()) / scores.std()
    v = (mean - mean.mean()) / mean.std()
    r = float(np.clip((u * v).mean(), -_HIGHEST, _HIGHEST))
    # ``influence`` is the influence of each region on the correlation. It is summed by patient.
    influence = u * v - r * (u**2 + v**2) / 2
    sums = np.bincount(group, influence)
    variance = float(sums @ sums) / n**2 / (1 - r**2) ** 2
    # With few regions the influences underestimate the variance, so the variance of a normal sample
    # of the same size is its lower bound.
    return float(np.arctanh(r)), max(variance, least_variance)


def _shrunk_z(z: Array, variance: Array, measured: NDArray[np.bool_]) -> Array:
    """Return every reader's z, drawn towards the mean z of all readers as far as chance explains
    the difference.

    z is Fisher's transform of the correlation of the reader's scores with the other readers' mean.
    The mean and the variance between readers are those of a random-effects meta-analysis
    (DerSimonian and Laird 1986). A reader without a measured z gets the mean.
    """
    precision = 1 / variance[measured]
    common_mean = float(precision @ z[measured] / precision.sum())
    # If the readers did not differ, the weighted squares would on average add up to the number of
    # readers minus 1. What goes beyond this number is the variance between readers times ``scale``.
    excess = float(precision @ (z[measured] - common_mean) ** 2) - (measured.sum() - 1)
    scale = precision.sum() - (precision @ precision) / precision.sum()
    between = max(0.0, excess / scale)
    weight = 1 / (variance[measured] + between)
    mean = float(weight @ z[measured] / weight.sum())
    reliability = between / (between + variance[measured])
    shrunk = np.full(len(z), mean)
    shrunk[measured] = mean + reliability * (z[measured] - mean)
    return shrunk
