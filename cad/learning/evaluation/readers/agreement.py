"""Measure how well readers agree with each other."""

from itertools import combinations
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike


class Kappa(TypedDict):
    """Hold the quadratic weighted kappa (``value``) of two readers, ``a`` and ``b``.

    ``n`` is the number of regions that both scored.
    """

    a: str
    b: str
    n: int
    value: float


class Intraclass(TypedDict):
    """Hold the intraclass correlations of readers on the ``n`` regions that all of them scored.

    ``single`` is ICC(2,1), the agreement of single readers. ``average`` is ICC(2,k), the
    reliability of the mean of the k readers. ``consistency`` is ICC(3,1), in which a constant
    difference between readers does not count.
    """

    n: int
    single: float
    average: float
    consistency: float


class Alpha(TypedDict):
    """Hold Krippendorff's alpha of all readers, for an ``interval`` and for an ``ordinal`` scale.

    ``n`` is the number of regions with two scores or more.
    """

    n: int
    interval: float
    ordinal: float


class Agreement(TypedDict):
    """Hold how well readers agree, as :func:`agreement` measures it, for ``metrics.json``.

    It has three keys. ``kappa`` is a list with an entry for each pair of readers. ``icc`` holds the
    intraclass correlations. ``krippendorff_alpha`` holds an alpha for each of two kinds of scale.
    """

    kappa: list[Kappa]
    icc: Intraclass
    krippendorff_alpha: Alpha


def agreement(ratings: ArrayLike, names: list[str]) -> Agreement:
    """Measure how readers agree, pair by pair and all together.

    Parameters
    ----------
    ratings : array, shape (readers, n)
        Scores as probabilities, or on any other scale of equal steps that all readers use; NaN
        where a reader gave none.
    names : list of str
        Reader ids.

    Returns
    -------
    Agreement
        Weighted kappa of each pair, intraclass correlations, and Krippendorff's alpha. A measure
        that cannot be computed from these scores is NaN.

    Examples
    --------
    >>> measured = agreement([[0.1, 0.5, 0.9, 0.7], [0.3, 0.5, 0.9, 0.7]], ["r1", "r2"])
    >>> [(pair["a"], pair["b"], pair["n"]) for pair in measured["kappa"]]
    [('r1', 'r2', 4)]
    """
    scores_of_readers = np.asarray(ratings, dtype=float)
    has_score = np.isfinite(scores_of_readers)
    pairs: list[Kappa] = []
    for first, second in combinations(range(len(scores_of_readers)), 2):
        by_both = has_score[first] & has_score[second]
        kappa = weighted_kappa(
            scores_of_readers[first, by_both], scores_of_readers[second, by_both]
        )
        pairs.append(
            {"a": names[first], "b": names[second], "n": int(by_both.sum()), "value": kappa}
        )
    return {
        "kappa": pairs,
        "icc": intraclass(scores_of_readers[:, has_score.all(axis=0)]),
        "krippendorff_alpha": {
            "n": int((has_score.sum(axis=0) >= 2).sum()),
            "interval": krippendorff_alpha(scores_of_readers, "interval"),
            "ordinal": krippendorff_alpha(scores_of_readers, "ordinal"),
        },
    }


def weighted_kappa(a: ArrayLike, b: ArrayLike) -> float:
    """Return Cohen's kappa with quadratic weights on the values themselves.

    The weight of a disagreement is the squared difference of the two values. On a scale of equal
    steps these squares are the usual weights of the categories. The result is NaN if all values are
    equal.

    Parameters
    ----------
    a, b : array, shape (n,)
        The two readers' values on the same regions.

    Examples
    --------
    >>> weighted_kappa([1, 2, 3, 4], [1, 2, 3, 4])
    1.0
    >>> round(weighted_kappa([1, 2, 3, 4], [2, 2, 3, 3]), 3)
    0.667
    """
    first_scores = np.asarray(a, dtype=float)
    second_scores = np.asarray(b, dtype=float)
    # Without a region that both scored there is nothing to average.
    if len(first_scores) == 0:
        return float("nan")
    observed = np.mean((first_scores - second_scores) ** 2)
    # ``expected`` is the mean squared difference between a score of the first and a score of the
    # second reader. Each score is drawn at random and independently of the other.
    expected = (
        first_scores.var() + second_scores.var() + (first_scores.mean() - second_scores.mean()) ** 2
    )
    return float(1 - observed / expected) if expected > 0 else float("nan")


def intraclass(ratings: ArrayLike) -> Intraclass:
    """Return the two-way intraclass correlations of Shrout & Fleiss (1979).

    Parameters
    ----------
    ratings : array, shape (readers, n)
        One row per reader; no value may be missing.

    Returns
    -------
    Intraclass
        ``n`` is the number of regions. ``single`` is ICC(2,1), the agreement of single readers,
        taken as a random sample of readers. ``average`` is ICC(2,k), the reliability of the mean of
        these readers. ``consistency`` is ICC(3,1): it differs from ``single`` because a constant
        difference between readers does not count. The correlations are NaN for fewer than two
        readers or regions.

    Examples
    --------
    >>> intraclass([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 5.0]])["n"]
    4
    >>> round(intraclass([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 5.0]])["single"], 3)
    0.945
    """
    scores = np.asarray(ratings, dtype=float)
    readers, regions = scores.shape
    if readers < 2 or regions < 2:
        nan = float("nan")
        return {"n": regions, "single": nan, "average": nan, "consistency": nan}
    # The mean squares of a two-way analysis of variance: of regions, of readers, and of what the
    # two leave unexplained.
    grand_mean = scores.mean()
    regions_square = readers * np.sum((scores.mean(axis=0) - grand_mean) ** 2) / (regions - 1)
    readers_square = regions * np.sum((scores.mean(axis=1) - grand_mean) ** 2) / (readers - 1)
    residual = scores - scores.mean(axis=0) - scores.mean(axis=1)[:, None] + grand_mean
    error_square = np.sum(residual**2) / ((regions - 1) * (readers - 1))
    return {
        "n": regions,
        "single": _ratio(
            regions_square - error_square,
            regions_square
            + (readers - 1) * error_square
            + readers * (readers_square - error_square) / regions,
        ),
        "average": _ratio(
            regions_square - error_square,
            regions_square + (readers_square - error_square) / regions,
        ),
        "consistency": _ratio(
            regions_square - error_square, regions_square + (readers - 1) * error_square
        ),
    }


def krippendorff_alpha(ratings: ArrayLike, level: str = "interval") -> float:
    """Return Krippendorff's alpha, the agreement of all readers.

    Values may be missing.

    Parameters
    ----------
    ratings : array, shape (readers, n)
        Scores, NaN where a reader gave none; regions with fewer than two values do not count.
    level : {"nominal", "ordinal", "interval"}
        Kind of scale, which determines the distance between two values.

    Raises
    ------
    ValueError
        For any other ``level``.

    Examples
    --------
    >>> import numpy as np
    >>> krippendorff_alpha([[1.0, 2.0, 3.0, np.nan], [1.0, 2.0, 3.0, 4.0]])
    1.0
    """
    scores = np.asarray(ratings, dtype=float)
    # A region with one score has nothing to compare it with.
    scores = scores[:, np.isfinite(scores).sum(axis=0) >= 2]
    # ``values`` are the distinct scores, and ``value_index`` says which of them each score is.
    values, value_index = np.unique(scores[np.isfinite(scores)], return_inverse=True)
    # If all scores are equal, no disagreement is expected by chance, and alpha is 0 / 0.
    if len(values) < 2:
        return float("nan")
    # How often each value was given to each region.
    counts = np.zeros((scores.shape[1], len(values)))
    _, region_of_score = np.nonzero(np.isfinite(scores))
    np.add.at(counts, (region_of_score, value_index), 1)
    scores_of_region = counts.sum(axis=1, keepdims=True)
    # How often two values meet in pairs of scores of one region. A region with m scores has
    # m (m - 1) ordered pairs, each of weight 1 / (m - 1). No score makes a pair with itself.
    weighted_counts = counts / (scores_of_region - 1)
    coincidence = weighted_counts.T @ counts - np.diag(weighted_counts.sum(axis=0))
    times_used = coincidence.sum(axis=1)
    distances = _distances(values, times_used, level)
    # How often two values would meet if all scores were paired at random.
    by_chance = (np.outer(times_used, times_used) - np.diag(times_used)) / (times_used.sum() - 1)
    return float(1 - np.sum(coincidence * distances) / np.sum(by_chance * distances))


def _distances(values: np.ndarray, times_used: np.ndarray, level: str) -> np.ndarray:
    """Return the squared distance of every two of the ascending values, by the kind of scale.

    ``times_used`` says how many ratings have each value.
    """
    if level == "nominal":
        return 1 - np.eye(len(values))
    if level == "interval":
        return np.asarray((values[:, None] - values[None, :]) ** 2)
    if level == "ordinal":
        # The distance of two scores is the number of ratings that lie between them. Ratings that
        # are equal to one of the two scores count half. So each score gets a position among all
        # ratings in ascending order.
        position = np.cumsum(times_used) - times_used / 2
        return (position[:, None] - position[None, :]) ** 2
    raise ValueError(f"level {level!r} is none of nominal, ordinal, interval")


def _ratio(a: float, b: float) -> float:
    """Return a / b; NaN where b is 0, or differs from 0 by rounding only."""
    return float(a / b) if abs(b) > 1e-12 else float("nan")
