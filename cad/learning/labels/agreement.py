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
        weight_of_person = _weights_of_readers(_scores_of_persons(grades, self.copies_))
        readers_of_person = np.bincount(person_of_reader)
        self.weights_ = np.asarray(
            weight_of_person[person_of_reader] / readers_of_person[person_of_reader]
        )
        return self

    def predict(self, grades: Array) -> Belief:
        """Return the weighted mean (``p``) and the weighted standard deviation (``eta``).

        ``grades`` has shape (n, n_readers), NaN where missing; a region without a grade gets NaN. A
        region that only readers without weight scored gets their plain mean. With equal weights the
        deviation is the standard deviation with ddof 1. Where one reader alone counts, the
        deviation is ``single``, the uncertainty of one score.
        """
        refuse_outside(grades)
        has_score = np.isfinite(grades)
        weight = has_score * self.weights_
        # If only readers without weight scored a region, they count equally there.
        weight = np.where(weight.any(axis=1, keepdims=True), weight, has_score)
        if np.ptp(self.weights_) == 0:
            # With equal weights the result must equal the plain mean in every bit, so it is
            # computed as a plain mean.
            return MeanReaders(self.single).predict(grades)
        sum_of_weights = weight.sum(axis=1)
        is_unread = sum_of_weights == 0
        # In a region that nobody scored the divisor would be 0; its result becomes NaN below.
        share = weight / np.where(is_unread, 1.0, sum_of_weights)[:, None]
        # Errors of floating-point arithmetic could carry a label out of [0, 1] or break a tie at
        # 1/2. So the mean is rounded. Where all readers state the same probability, the rounded
        # mean is exactly this probability.
        p = np.round(np.where(has_score, grades * share, 0.0).sum(axis=1), _DIGITS)
        squares = np.where(has_score, share * (grades - p[:, None]) ** 2, 0.0).sum(axis=1)
        # A reader's share is his weight divided by the sum of weights. In expectation the weighted
        # variance of the scores is too small by the factor 1 - sum of squared shares, so it is
        # divided by this factor. With n equal weights the factor is 1 - 1/n, as in a sample
        # variance (ddof 1).
        freedom = 1 - (share**2).sum(axis=1)
        # Where one reader alone counts, the factor is 0 up to rounding errors.
        one_reader_counts = freedom < 1e-9
        spread = np.round(np.sqrt(squares / np.where(one_reader_counts, 1.0, freedom)), _DIGITS)
        eta = np.where(one_reader_counts, self.single, spread)
        return Belief(p=np.where(is_unread, np.nan, p), eta=np.where(is_unread, np.nan, eta))


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
    patient_of_region = np.unique(np.asarray(patients).astype(str), return_inverse=True)[1]
    persons, person_of_reader = np.unique(rule.copies_, return_inverse=True)
    # Readers with the same scores count as one person. ``scores_of_persons`` has a column
    # per person.
    scores_of_persons = _scores_of_persons(grades, rule.copies_)
    weight_of_person = np.bincount(person_of_reader, rule.weights_).astype(float)
    # z is Fisher's: tanh(z) is the correlation of a person with the mean of the others.
    z, variance, regions_of_person = _agreements(
        scores_of_persons, weight_of_person, patient_of_region
    )
    rows = []
    for number, reader in enumerate(readers):
        person = int(person_of_reader[number])
        z_of_others = np.delete(z, person)
        z_of_others = z_of_others[np.isfinite(z_of_others)]
        median_of_others = float(np.tanh(np.median(z_of_others))) if len(z_of_others) else np.nan
        deviation_of_z = np.sqrt(variance[person])
        lower, upper = np.tanh(z[person] + _Z95 * deviation_of_z * np.array([-1.0, 1.0]))
        # A reader is odd if his 99 % interval reaches down to 0 and his 95 % interval lies far
        # below the others' median. Of only two persons who disagree, nobody knows which one is odd.
        may_be_zero = z[person] - _Z99 * deviation_of_z <= 0
        far_below = upper < _SHARE_OF_OTHERS * median_of_others
        is_odd = len(persons) >= FEWEST_READERS and bool(may_be_zero and far_below)
        # The other names of the same person.
        copies = []
        for other_number in np.flatnonzero(person_of_reader == person):
            if other_number != number:
                copies.append(readers[other_number])
        rows.append(
            ReaderAgreement(
                reader=reader,
                n=int(regions_of_person[person]),
                correlation=float(np.tanh(z[person])),
                lower=float(lower),
                upper=float(upper),
                others=median_of_others,
                weight=float(rule.weights_[number]),
                copy_of=tuple(copies),
                odd=is_odd,
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
    names_told: set[str] = set()
    # Correlations are clipped to _HIGHEST; a rounding error may lie below it.
    if len(agreements) > 1 and all(row.correlation >= _HIGHEST - 1e-9 for row in agreements):
        sentences.append(
            f"the readers agree nearly everywhere (correlations of {_HIGHEST:g} or more): none can "
            "be told from the others, and there is hardly any disagreement to learn from"
        )
    for row in agreements:
        if row.odd:
            question = "; is the scale turned round?" if row.upper < 0 else ""
            sentences.append(
                f"{row.reader} adds nothing to the other readers that these regions can show: "
                f"correlation with their mean {row.correlation:.2f} "
                f"[{row.lower:.2f}, {row.upper:.2f}] in {row.n} regions, where the others' is "
                f"{row.others:.2f}{question}"
            )
        # Each group of copies is told once, at its first reader.
        if row.copy_of and row.reader not in names_told:
            names = (row.reader, *row.copy_of)
            names_told.update(names)
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
    # Without a reader there is no column to put together.
    if grades.shape[1] == 0:
        return grades
    columns = []
    for first in np.unique(copies):
        scores_of_readers = grades[:, copies == first]
        # Readers who are copies of each other have equal scores wherever both scored a region, so
        # the first finite score is taken.
        first_scored = np.isfinite(scores_of_readers).argmax(axis=1)
        columns.append(scores_of_readers[np.arange(len(scores_of_readers)), first_scored])
    return np.column_stack(columns)


def _first_of_copies(grades: Array) -> NDArray[np.intp]:
    """Return for each reader the number of the first reader whose scores are a copy of his.

    Two readers are copies if their scores are equal in all common regions, and if that is unlikely
    by chance. The chance is s^n for n common regions, where s is the median share of equal scores
    in the other pairs of readers.
    """
    n_readers = grades.shape[1]
    first_of_reader = np.arange(n_readers)
    pairs = []
    for later_reader in range(n_readers):
        for reader in range(later_reader):
            pairs.append((reader, later_reader))
    # With one pair there are no other pairs to say how often chance makes scores equal.
    if len(pairs) < 2:
        return first_of_reader
    common = np.zeros(len(pairs), dtype=int)
    equal = np.zeros(len(pairs), dtype=int)
    for pair_number, (reader, later_reader) in enumerate(pairs):
        both_scored = np.isfinite(grades[:, reader]) & np.isfinite(grades[:, later_reader])
        common[pair_number] = both_scored.sum()
        equal[pair_number] = (
            grades[both_scored, reader] == grades[both_scored, later_reader]
        ).sum()
    # One equal and one unequal score are added, so that no share is 0 or 1.
    share = (equal + 1) / (common + 2)
    for equal_pair in np.flatnonzero((common == equal) & (common > 0)):
        reader, later_reader = pairs[equal_pair]
        shares_of_others = np.delete(share, equal_pair)[np.delete(common, equal_pair) > 0]
        # Without another pair nothing tells how often chance makes scores equal.
        if len(shares_of_others):
            by_chance = np.median(shares_of_others) ** common[equal_pair]
            if by_chance < _COINCIDENCE:
                earliest = min(first_of_reader[later_reader], first_of_reader[reader])
                first_of_reader[later_reader] = earliest
    return first_of_reader


def _weights_of_readers(grades: Array) -> Array:
    """Return the weight of every reader; no two readers may be copies of each other."""
    n_readers = grades.shape[1]
    equal_weights = np.full(n_readers, 1 / n_readers)
    # A single reader has nobody to agree with, and two readers agree equally with each other. So
    # fewer than three readers get equal weights.
    if n_readers < FEWEST_READERS:
        return equal_weights
    # In each round the mean of the others is computed with the weights of the round before.
    weights = equal_weights
    for _ in range(_ROUNDS):
        z, variance, _ = _agreements(grades, weights, np.arange(len(grades)))
        has_z = np.isfinite(z)
        # The variance between readers cannot be estimated from fewer of them.
        if has_z.sum() < FEWEST_READERS:
            return equal_weights
        correlations = np.tanh(_shrunk_z(z, variance, has_z))
        # A reader who contradicts the others gets no weight.
        squared_correlations = np.maximum(0.0, correlations) ** 2
        if squared_correlations.sum() == 0:
            # Nobody agrees with the others.
            return equal_weights
        weights = squared_correlations / squared_correlations.sum()
    return np.asarray(weights)


def _agreements(
    grades: Array, weight: Array, group: NDArray[np.intp]
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Return each reader's agreement with the mean of the other readers.

    The result has three arrays, each with a value per reader: Fisher's z of the correlation, the
    variance of z, and the number of regions. Where the correlation cannot be computed, z is NaN and
    its variance infinite. ``weight`` has the weight of each reader, and ``group`` the patient of
    each region.
    """
    has_score = np.isfinite(grades)
    weighted_scores = np.where(has_score, grades * weight, 0.0)
    weight_of_score = has_score * weight
    # Each reader is compared with the weighted mean of the other readers. If nobody who scored has
    # a weight above 0, all readers count equally.
    if not weight_of_score.any():
        weight_of_score = has_score.astype(float)
        weighted_scores = np.where(has_score, grades, 0.0)
    z = np.full(grades.shape[1], np.nan)
    variance = np.full(grades.shape[1], np.inf)
    regions: NDArray[np.intp] = np.zeros(grades.shape[1], dtype=np.intp)
    # A reader who always gives the same score has correlation 0. How certain this 0 is depends on
    # how much the other readers' mean varies over his regions. It is compared with the variance of
    # the mean over all regions.
    variance_of_mean = _variance_of_mean(weighted_scores.sum(axis=1), weight_of_score.sum(axis=1))
    for reader in range(grades.shape[1]):
        sum_of_others = np.delete(weight_of_score, reader, axis=1).sum(axis=1)
        is_used = has_score[:, reader] & (sum_of_others > 0)
        regions[reader] = np.count_nonzero(is_used)
        if regions[reader] < _FEWEST:
            continue
        scores_of_others = np.delete(weighted_scores, reader, axis=1).sum(axis=1)
        mean_of_others = scores_of_others[is_used] / sum_of_others[is_used]
        z[reader], variance[reader] = _fisher(
            grades[is_used, reader], mean_of_others, group[is_used], variance_of_mean
        )
    return z, variance, regions


def _variance_of_mean(total: Array, weight_of_readers: Array) -> float:
    """Return the variance, over the regions that somebody scored, of the readers' weighted mean.

    ``total`` is the sum of the readers' weighted scores of each region, and ``weight_of_readers``
    the sum of the weights of the readers who scored it.
    """
    has_readers = weight_of_readers > 0
    if not has_readers.any():
        return 0.0
    return float(np.var(total[has_readers] / weight_of_readers[has_readers]))


def _fisher(
    scores: Array, mean: Array, group: NDArray[np.intp], variance_of_mean: float
) -> tuple[float, float]:
    """Return Fisher's z of the correlation of a reader's scores with a mean, and the variance of z.

    The variance takes the regions of one patient as dependent. ``variance_of_mean`` is
    the variance of the readers' mean over all regions.
    """
    regions = len(scores)
    # There is no correlation with a constant.
    if np.ptp(mean) == 0:
        return np.nan, np.inf
    # The variance of Fisher's z for as many independent normal pairs.
    least_variance = 1 / (regions - 3)
    if np.ptp(scores) == 0:
        # A reader who gives the same score everywhere has correlation 0. How certain this 0 is
        # depends on how much the other readers' mean varies over his regions.
        share_of_variance = 1.0
        if variance_of_mean > 0:
            share_of_variance = min(1.0, float(np.var(mean)) / variance_of_mean)
        # If their mean hardly varies, the variance of z is large, but finite.
        return 0.0, least_variance / max(share_of_variance, 1e-6)
    standard_scores = (scores - scores.mean()) / scores.std()
    standard_mean = (mean - mean.mean()) / mean.std()
    correlation = float(np.clip((standard_scores * standard_mean).mean(), -_HIGHEST, _HIGHEST))
    # The influence of each region on the correlation is summed by patient. The variance of a
    # correlation is divided by (1 - r^2)^2 to give that of z, since z changes by dr / (1 - r^2).
    influence = (
        standard_scores * standard_mean - correlation * (standard_scores**2 + standard_mean**2) / 2
    )
    influence_of_patients = np.bincount(group, influence)
    variance = (
        float(influence_of_patients @ influence_of_patients)
        / regions**2
        / (1 - correlation**2) ** 2
    )
    # With few regions the influences underestimate the variance, so the variance of a normal sample
    # of the same size is its lower bound.
    return float(np.arctanh(correlation)), max(variance, least_variance)


def _shrunk_z(z: Array, variance: Array, has_z: NDArray[np.bool_]) -> Array:
    """Return every reader's z, drawn towards the mean z of all readers as far as chance explains
    the difference.

    z is Fisher's transform of the correlation of the reader's scores with the other readers' mean.
    The mean and the variance between readers are those of a random-effects meta-analysis
    (DerSimonian and Laird 1986). A reader without a measured z gets the mean.
    """
    precision = 1 / variance[has_z]
    common_mean = float(precision @ z[has_z] / precision.sum())
    # If the readers did not differ, the weighted squares would on average add up to the number of
    # readers minus 1. What goes beyond this number is the variance between readers, times
    # ``scale_of_excess``.
    excess_of_squares = float(precision @ (z[has_z] - common_mean) ** 2) - (has_z.sum() - 1)
    scale_of_excess = precision.sum() - (precision @ precision) / precision.sum()
    variance_between = max(0.0, excess_of_squares / scale_of_excess)
    # With this variance added, the mean is computed again, and each reader's z is drawn to it.
    weights = 1 / (variance[has_z] + variance_between)
    mean = float(weights @ z[has_z] / weights.sum())
    reliability = variance_between / (variance_between + variance[has_z])
    shrunk = np.full(len(z), mean)
    shrunk[has_z] = mean + reliability * (z[has_z] - mean)
    return shrunk
