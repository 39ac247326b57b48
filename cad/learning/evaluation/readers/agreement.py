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
    table = np.asarray(ratings, dtype=float)
    scored = np.isfinite(table)
    pairs: list[Kappa] = []
    for i, j in combinations(range(len(table)), 2):
        both = scored[i] & scored[j]
        value = weighted_kappa(table[i, both], table[j, both])
        pairs.append({"a": names[i], "b": names[j], "n": int(both.sum()), "value": value})
    return {
        "kappa": pairs,
        "icc": intraclass(table[:, scored.all(axis=0)]),
        "krippendorff_alpha": {
            "n": int((scored.sum(axis=0) >= 2).sum()),
            "interval": krippendorff_alpha(table, "interval"),
            "ordinal": krippendorff_alpha(table, "ordinal"),
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
    x = np.asarray(a, dtype=float)
    z = np.asarray(b, dtype=float)
    if len(x) == 0:
        return float("nan")
    observed = np.mean((x - z) ** 2)
    # ``expected`` is the mean squared difference between a score of the first and a score of the
    # second reader. Each score is drawn at random and independently of the other.
    expected = x.var() + z.var() + (x.mean() - z.mean()) ** 2
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
    x = np.asarray(ratings, dtype=float)
    k, n = x.shape
    if k < 2 or n < 2:
        nan = float("nan")
        return {"n": n, "single": nan, "average": nan, "consistency": nan}
    grand = x.mean()
    rows = k * np.sum((x.mean(axis=0) - grand) ** 2) / (n - 1)
    columns = n * np.sum((x.mean(axis=1) - grand) ** 2) / (k - 1)
    residual = x - x.mean(axis=0) - x.mean(axis=1)[:, None] + grand
    error = np.sum(residual**2) / ((n - 1) * (k - 1))
    return {
        "n": n,
        "single": _ratio(rows - error, rows + (k - 1) * error + k * (columns - error) / n),
        "average": _ratio(rows - error, rows + (columns - error) / n),
        "consistency": _ratio(rows - error, rows + (k - 1) * error),
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
    x = np.asarray(ratings, dtype=float)
    x = x[:, np.isfinite(x).sum(axis=0) >= 2]
    values, code = np.unique(x[np.isfinite(x)], return_inverse=True)
    if len(values) < 2:
        return float("nan")
    counts = np.zeros((x.shape[1], len(values)))
    np.add.at(counts, (np.nonzero(np.isfinite(x))[1], code), 1)
    m = counts.sum(axis=1, keepdims=True)
    coincidence = (counts / (m - 1)).T @ counts - np.diag((counts / (m - 1)).sum(axis=0))
    total = coincidence.sum(axis=1)
    distance = _distances(values, total, level)
    expected = (np.outer(total, total) - np.diag(total)) / (total.sum() - 1)
    return float(1 - np.sum(coincidence * distance) / np.sum(expected * distance))


def _distances(values: np.ndarray, total: np.ndarray, level: str) -> np.ndarray:
    if level == "nominal":
        return 1 - np.eye(len(values))
    if level == "interval":
        return np.asarray((values[:, None] - values[None, :]) ** 2)
    if level == "ordinal":
        # The distance of two scores is the number of ratings that lie between them. Ratings that
        # are equal to one of the two scores count half.
        position = np.cumsum(total) - total / 2
        return (position[:, None] - position[None, :]) ** 2
    raise ValueError(f"level {level!r} is none of nominal, ordinal, interval")


def _ratio(a: float, b: float) -> float:
    return float(a / b) if abs(b) > 1e-12 else float("nan")
