"""Measure how good each reader is, and who adds nothing to the other readers."""

from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from cad.learning.labels.agreement import agreement_notes, reader_agreement
from cad.learning.labels.pooled import PooledReaders, mean_of_known

Array = NDArray[np.float64]

# Quantile of the normal distribution for a 95 % interval.
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
    has_both_classes = pooled.identified_
    patient_of_region = np.unique(np.asarray(patients).astype(str), return_inverse=True)[1]
    # Without both classes in histology, no weight can be fitted.
    weight = deviation = np.full(len(readers), np.nan)
    if has_both_classes:
        weight, deviation = pooled.weights(grades)
    agreements = reader_agreement(grades, readers, patients)
    rows = []
    for number, reader in enumerate(readers):
        # If histology does not have both classes, a reader is measured against the other readers.
        reference_truth = truth if has_both_classes else _others(grades, number)
        # As in all measures, a score of exactly 1/2 does not count as a call of cancer.
        called_malignant = np.where(np.isfinite(grades[:, number]), grades[:, number] > 0.5, np.nan)
        is_used = np.isfinite(called_malignant) & np.isfinite(reference_truth)
        malignant = is_used & (reference_truth == 1)
        benign = is_used & (reference_truth == 0)
        weight_lower = weight[number] - _Z * deviation[number]
        weight_upper = weight[number] + _Z * deviation[number]
        rows.append(
            {
                "reader": reader,
                "n": int(is_used.sum()),
                **_share_of_hits(
                    "sensitivity", called_malignant[malignant], patient_of_region[malignant]
                ),
                **_share_of_hits(
                    "specificity", 1 - called_malignant[benign], patient_of_region[benign]
                ),
                "weight": weight[number],
                "weight_lower": weight_lower,
                "weight_upper": weight_upper,
                "adds": bool(weight_lower > 0) if has_both_classes else None,
                "correlation": agreements[number].correlation,
                "correlation_lower": agreements[number].lower,
                "correlation_upper": agreements[number].upper,
                "share": agreements[number].weight,
                "odd": agreements[number].odd,
            }
        )
    table = pd.DataFrame(rows)
    against = "histology" if has_both_classes else "the mean of the other readers"
    sentences = [_skill_sentence(table, pooled)]
    for note in agreement_notes(agreements):
        sentences.append(f"{note}.")
    return table, " ".join(sentences), against


def _others(grades: Array, reader: int) -> Array:
    """Return for every region what the readers other than ``reader`` say on average.

    The value is 1 where the mean of their probabilities is above 1/2, and 0 where it is below. It
    is NaN where the mean is 1/2, and where no other reader scored.
    """
    mean_of_others = mean_of_known(np.delete(grades, reader, axis=1))
    # A mean may differ from 1/2 by a rounding error.
    is_tie = np.abs(mean_of_others - 0.5) < 1e-9
    return np.where(np.isnan(mean_of_others) | is_tie, np.nan, mean_of_others > 0.5)


def _share_of_hits(name: str, hits: Array, group: NDArray[np.int64]) -> dict[str, float]:
    """Return the share of hits with its 95 % interval, by Student's t on the logit scale.

    A hit is a right call. The regions of one patient are taken as dependent.
    """
    regions = len(hits)
    if regions == 0:
        return {name: np.nan, f"{name}_lower": np.nan, f"{name}_upper": np.nan}
    share = float(hits.mean())
    patient_code = np.unique(group, return_inverse=True)[1]
    patients = int(patient_code.max()) + 1
    if patients < 2 or share in (0.0, 1.0):
        # If all calls are right (hits), or none is, no variance can be estimated. One end of the
        # interval is then the exact one-sided 97.5 % bound, as if each patient had one region. With
        # one patient who has both hits and misses, the interval is [0, 1].
        bound = 0.025 ** (1 / patients)
        lower, upper = 0.0, 1.0
        if share == 1.0:
            lower = bound
        elif share == 0.0:
            upper = 1 - bound
        return {name: share, f"{name}_lower": lower, f"{name}_upper": upper}
    # Linearised variance of the share: deviations from it are summed by patient first.
    residual = np.bincount(patient_code, hits - share, patients)
    variance = patients / (patients - 1) * float(residual @ residual) / regions**2
    # The interval is made on the logit scale, so that it stays in [0, 1]. A small change dp of a
    # share p is a change dp / (p (1 - p)) on this scale.
    half_in_log_odds = (
        float(student.ppf(0.975, patients - 1)) * np.sqrt(variance) / (share * (1 - share))
    )
    log_odds = np.log(share) - np.log1p(-share)
    lower, upper = (1 / (1 + np.exp(-(log_odds + side * half_in_log_odds))) for side in (-1, 1))
    return {name: share, f"{name}_lower": float(lower), f"{name}_upper": float(upper)}


def _skill_sentence(table: pd.DataFrame, pooled: PooledReaders) -> str:
    """Return a sentence that names the readers who add nothing, as far as these regions show."""
    if not pooled.identified_:
        return (
            "Histology does not have both classes among the scored regions: readers are measured "
            "against the mean of the others."
        )
    if len(table) == 1:
        return "There is one reader, and so no other reader to add to."
    without_contribution = table.loc[~table["adds"].astype(bool), "reader"].tolist()
    if not without_contribution:
        return "Every reader adds to the other readers."
    subject_and_verb = f"the reader {without_contribution[0]} adds"
    if len(without_contribution) > 1:
        subject_and_verb = f"the readers {', '.join(without_contribution)} add"
    return f"These regions do not show that {subject_and_verb} anything to the other readers."
