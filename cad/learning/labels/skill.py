"""Measure how good each reader is, and who adds nothing to the other readers."""

from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from cad.learning.labels.agreement import agreement_notes, reader_agreement
from cad.learning.labels.pooled import PooledReaders, mean_of_known

Array = NDArray[np.float64]

_Z = 1.959963984540054


class SkillRow(TypedDict):
    """Hold one reader's row of the table of :func:`reader_skill`.

    ``n`` counts regions. Keys that end in ``_lower`` and ``_upper`` are the ends of 95 % intervals.
    ``weight`` is the change of the log-odds by all readers together, when this reader's score goes
    from 0 to 1. ``adds`` says whether the interval of ``weight`` lies above 0. ``correlation`` is
    the correlation with the weighted mean of the other readers, and ``share`` the reader's weight
    in the consensus by agreement. ``odd`` says whether the reader adds nothing to the other
    readers, judged without histology (:mod:`cad.learning.labels.agreement`).
    """

    reader: str
    n: int
    sensitivity: float
    sensitivity_lower: float
    sensitivity_upper: float
    specificity: float
    specificity_lower: float
    specificity_upper: float
    weight: float
    weight_lower: float
    weight_upper: float
    adds: bool | None
    correlation: float
    correlation_lower: float
    correlation_upper: float
    share: float
    odd: bool


class SkillTable(TypedDict):
    """Hold the results of :func:`reader_skill` as they stand in ``metrics.json``.

    ``table`` has a row for each reader. ``against`` names the truth that the readers were measured
    against. ``sentence`` names the readers who add nothing to the other readers.
    """

    against: str
    sentence: str
    table: list[SkillRow]


def reader_skill(
    grades: Array, readers: list[str], truth: Array, patients: ArrayLike
) -> tuple[pd.DataFrame, str, str]:
    """Measure every reader: sensitivity, specificity, and what the reader adds to other readers.

    Parameters
    ----------
    grades : ndarray, shape (n, n_readers)
        Probabilities that the scores state; NaN where missing.
    readers : list of str
        Names of the columns.
    truth : ndarray, shape (n,)
        Histology: 1 malignant, 0 benign, NaN unknown.
    patients : array, shape (n,)
        Patient of every region.

    Returns
    -------
    table : DataFrame
        A row for each reader. ``reader`` is the name, and ``n`` the number of measured regions.
        ``sensitivity`` and ``specificity`` are computed with a score above .5 as a call of cancer.
        The columns with ``_lower`` and ``_upper`` are their 95 % intervals, which take the regions
        of a patient as dependent. ``weight`` is the change of the pooled log-odds when this
        reader's score alone goes from 0 to 1, with ``weight_lower`` and ``weight_upper`` (95 %,
        Laplace). ``adds`` says whether ``weight_lower`` is above 0. Where histology does not have
        both classes, ``weight`` is NaN and ``adds`` None. ``correlation`` is the correlation with
        the others' weighted mean, with its 95 % interval. ``share`` is the reader's share of the
        consensus by agreement. ``odd`` says whether the reader adds nothing to the other
        readers, judged without histology.
    sentence : str
        Sentences that name the readers of whom these regions show no contribution, by histology and
        by agreement. They also name the readers whose scores are copies.
    against : str
        Truth that readers are measured against: "histology", or "the mean of the other readers"
        where histology does not have both classes.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.tile([0.0, 1.0], 20)
    >>> sure = np.where(truth == 1, 0.75, 0.25)
    >>> guessing = np.tile([0.25, 0.25, 0.75], 14)[:40]
    >>> grades = np.column_stack([sure, guessing])
    >>> table, _, against = reader_skill(grades, ["sure", "guessing"], truth, np.arange(40))
    >>> against, table["sensitivity"].tolist()
    ('histology', [1.0, 0.3])
    """
    pooled = PooledReaders().fit(grades, truth)
    identified = pooled.identified_
    group = np.unique(np.asarray(patients).astype(str), return_inverse=True)[1]
    weight = deviation = np.full(len(readers), np.nan)
    if identified:
        weight, deviation = pooled.weights(grades)
    agreements = reader_agreement(grades, readers, patients)
    rows = []
    for j, reader in enumerate(readers):
        # If histology does not have both classes, a reader is measured against the other readers.
        aim = truth if identified else _others(grades, j)
        # As in all measures, a score of exactly 1/2 does not count as a call of cancer.
        called = np.where(np.isfinite(grades[:, j]), grades[:, j] > 0.5, np.nan)
        used = np.isfinite(called) & np.isfinite(aim)
        sick = used & (aim == 1)
        well = used & (aim == 0)
        rows.append(
            {
                "reader": reader,
                "n": int(used.sum()),
                **_share_of_hits("sensitivity", called[sick], group[sick]),
                **_share_of_hits("specificity", 1 - called[well], group[well]),
                "weight": weight[j],
                "weight_lower": weight[j] - _Z * deviation[j],
                "weight_upper": weight[j] + _Z * deviation[j],
                "adds": bool(weight[j] - _Z * deviation[j] > 0) if identified else None,
                "correlation": agreements[j].correlation,
                "correlation_lower": agreements[j].lower,
                "correlation_upper": agreements[j].upper,
                "share": agreements[j].weight,
                "odd": agreements[j].odd,
            }
        )
    table = pd.DataFrame(rows)
    against = "histology" if identified else "the mean of the other readers"
    sentences = [_skill_sentence(table, pooled)]
    for note in agreement_notes(agreements):
        sentences.append(f"{note}.")
    return table, " ".join(sentences), against


def _others(grades: Array, reader: int) -> Array:
    """Return for every region what the readers other than ``reader`` say on average.

    The value is 1 where the mean of their probabilities is above 1/2, and 0 where it is below. It
    is NaN where the mean is 1/2, and where no other reader scored.
    """
    mean = mean_of_known(np.delete(grades, reader, axis=1))
    return np.where(np.isnan(mean) | (np.abs(mean - 0.5) < 1e-9), np.nan, mean > 0.5)


def _share_of_hits(name: str, hits: Array, group: NDArray[np.int64]) -> dict[str, float]:
    """Return the share of hits with its 95 % interval, by Student's t on the logit scale.

    A hit is a right call. The regions of one patient are taken as dependent.
    """
    n = len(hits)
    if n == 0:
        return {name: np.nan, f"{name}_lower": np.nan, f"{name}_upper": np.nan}
    p = float(hits.mean())
    code = np.unique(group, return_inverse=True)[1]
    m = int(code.max()) + 1
    if m < 2 or p in (0.0, 1.0):
        # If all calls are right (hits), or none is, no variance can be estimated. One end of the
        # interval is then the exact one-sided 97.5 % bound, as if each of the m patients had one
        # region. With one patient who has both hits and misses, the interval is [0, 1].
        bound = 0.025 ** (1 / m)
        lower, upper = (bound, 1.0) if p == 1.0 else (0.0, 1 - bound) if p == 0.0 else (0.0, 1.0)
        return {name: p, f"{name}_lower": lower, f"{name}_upper": upper}
    # Linearised variance of the share: deviations from p are summed by patient first.
    residual = np.bincount(code, hits - p, m)
    variance = m / (m - 1) * float(residual @ residual) / n**2
    # The interval is made on the logit scale, so that it stays in [0, 1]. A small change dp of p is
    # a change dp / (p (1 - p)) on this scale.
    half = float(student.ppf(0.975, m - 1)) * np.sqrt(variance) / (p * (1 - p))
    centre = np.log(p) - np.log1p(-p)
    lower, upper = (1 / (1 + np.exp(-(centre + side * half))) for side in (-1, 1))
    return {name: p, f"{name}_lower": float(lower), f"{name}_upper": float(upper)}


def _skill_sentence(table: pd.DataFrame, pooled: PooledReaders) -> str:
    if not pooled.identified_:
        return (
            "Histology does not have both classes among the scored regions: readers are measured "
            "against the mean of the others."
        )
    if len(table) == 1:
        return "There is one reader, and so no other reader to add to."
    idle = table.loc[~table["adds"].astype(bool), "reader"].tolist()
    if not idle:
        return "Every reader adds to the other readers."
    named = f"the reader {idle[0]} adds"
    if len(idle) > 1:
        named = f"the readers {', '.join(idle)} add"
    return f"These regions do not show that {named} anything to the other readers."
