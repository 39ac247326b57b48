"""Compare learners on the same folds, and say whether they differ by more than chance.

Differences are paired: both learners predict the same regions. The unit of chance is the patient. A
difference of losses is summed by patient, and its interval is Student's over patients (linearised
for means). With twenty patients this interval is wide enough, while the interval of the percentile
bootstrap is too narrow. The interval of a difference of AUCs is computed by leaving out each
patient in turn. If predictions are out of fold, this interval also covers the chance of training,
that is, which patients the models were trained on (docs/methods.md 10).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import t as student
from sklearn.pipeline import Pipeline

from cad.base.errors import CadError
from cad.learning.evaluation.folds.crossval import (
    Fold,
    OutOfFold,
    Relabel,
    folds_side_by_side,
    put_together,
)
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import (
    auc_without_each_patient,
    training_inflation,
)

CONSTANT = "constant"
READERS = "readers' mean"
_TITLES = {"readers": "the readers", "histology": "histology"}
_NAMES = {"kl": "two-sided KL", "brier": "Brier"}
MEASURED = {
    "kl": metrics.kl,
    "brier": metrics.brier,
    "calibration_slope": metrics.calibration_slope,
}
# Measure by which the best learner is chosen: one against the readers' mean, one against histology.
# Both measures judge probabilities, and not only their order.
_JUDGED_BY = {"readers": "kl", "histology": "brier"}


class RivalRow(TypedDict):
    """Hold one row of ``Rivals.table``: a learner's measure, and its difference from the reference.

    ``against`` is the truth (readers or histology), known on ``n`` regions. ``lower`` and ``upper``
    are the 95 % interval of ``difference``. ``beyond_chance`` says whether the difference is larger
    than chance explains, and ``note`` why a value is missing or doubtful.
    """

    against: str
    measure: str
    learner: str
    n: int
    value: float
    difference: float
    lower: float
    upper: float
    beyond_chance: bool
    note: str


class RivalTable(TypedDict):
    """Hold the comparison of a learner with rivals, as it stands in ``metrics.json``.

    A rival is another learner that the learner is compared with. ``reference`` names the learner
    that all others are compared with. ``table`` is a list with a row per truth, measure and
    learner. ``sentence`` is the result in words.
    """

    reference: str
    sentence: str
    table: list[RivalRow]


@dataclass(frozen=True)
class Rivals:
    """Hold the comparison of a learner, the reference, with other learners.

    Parameters
    ----------
    table : DataFrame
        Three columns say what a row is about. ``against`` is the truth (``readers`` or
        ``histology``), ``measure`` the measure (``kl``, ``brier``, ``auc`` or
        ``calibration_slope``), and ``learner`` the name of the learner.

        ``n`` is the number of regions and ``value`` the value of the measure. ``difference`` is the
        learner's value minus the reference's value on the regions that both predicted. ``lower``
        and ``upper`` are its 95 % interval, over patients. ``beyond_chance`` is true if this
        interval does not contain 0. ``note`` says why a value is missing or doubtful. Difference
        and interval are NaN for the reference, for slopes and if nothing was predicted.
    sentence : str
        Sentences that name the best learner, and say whether the difference is larger than chance
        explains.
    probabilities : dict of str to ndarray, shape (n,)
        Probabilities by the name of the learner; NaN where the learner failed.
    reference : str
        Name of the learner that the others are compared with.
    centred : dict of str to ndarray, shape (n,)
        Log-odds that can be compared between folds, by the name of the learner, for learners whose
        probabilities come from the models of several folds.
    """

    table: pd.DataFrame
    sentence: str
    probabilities: dict[str, np.ndarray]
    reference: str
    centred: dict[str, np.ndarray] = field(default_factory=dict)


def compare_with_rivals(
    name: str,
    probability: ArrayLike,
    rivals: Mapping[str, Any],
    X: Any,
    y: ArrayLike,
    groups: ArrayLike,
    *,
    eta: ArrayLike | None = None,
    front: Pipeline | None = None,
    target: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    patients: ArrayLike | None = None,
    relabel: Relabel | None = None,
    fronts: Mapping[str, Any] | None = None,
    centred: ArrayLike | None = None,
    of_histology: Mapping[str, Any] | None = None,
    n_jobs: int = 1,
) -> Rivals:
    """Validate rivals on the same folds as a learner, and compare each of them with it.

    A rival is another learner that the learner is compared with.

    Parameters
    ----------
    name : str
        The learner's name in the table.
    probability : array, shape (n,)
        The learner's out-of-fold probabilities; NaN where the learner gives none.
    rivals : mapping of str to estimator
        Unfitted rivals by name; ``cad.learning.learners.rivals.rival_learners()`` returns those of
        every validation.
    X, y, groups, eta, patients, relabel, n_jobs
        The arguments with which :func:`cad.learning.evaluation.folds.crossval.out_of_fold` gave
        ``probability``: features, labels, left-out group of every row, and so on.
    front, fronts
        Unfitted steps that come before every rival, and the same steps after their fit for each
        left-out group; see :func:`cad.learning.evaluation.folds.crossval.folds_side_by_side`.
    target : array, shape (n,), optional
        The readers' mean probability, NaN where nobody read; ``y`` when not given.
    truth : array, shape (n,), optional
        Histology, 1, 0 or NaN.
    centred : array, shape (n,), optional
        The learner's log-odds that can be compared between folds, which are ``centred`` of its
        :class:`~cad.learning.evaluation.OutOfFold`. If not given, the probabilities are treated as
        those of one model.
    of_histology : mapping of str to estimator, optional
        Unfitted rivals, by name, that learn from ``truth`` and not from ``y``. They are compared if
        the truth of some regions is known.

    Returns
    -------
    Rivals
        Besides the rivals, the table has rows of a constant prediction (the mean of ``y`` in the
        other groups) and, against histology, of the readers' mean. If a fit of a rival failed or
        warned, its note says so.

    Raises
    ------
    CadError
        If nothing was predicted, and if neither readers' means nor histology are known.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 2))
    >>> y = (X[:, 0] + rng.normal(size=40) > 0).astype(float)
    >>> patients = np.arange(40) // 2
    >>> compared = compare_with_rivals(
    ...     "guess", rng.uniform(0.01, 0.99, 40), {"logistic": LogisticRegression()}, X, y, patients
    ... )
    >>> sorted(compared.probabilities)
    ['constant', 'guess', 'logistic']
    """
    labels = np.asarray(y, dtype=float)
    readers_mean = labels if target is None else np.asarray(target, dtype=float)
    folds = folds_side_by_side(
        rivals,
        X,
        labels,
        groups=groups,
        front=front,
        fronts=fronts,
        eta=eta,
        patients=patients,
        relabel=relabel,
        n_jobs=n_jobs,
    )
    # Rivals that learn from histology need some. They get no ``eta`` and no ``relabel``, which are
    # for readers' labels.
    if of_histology and truth is not None and np.isfinite(np.asarray(truth, dtype=float)).any():
        folds |= folds_side_by_side(
            of_histology,
            X,
            truth,
            groups=groups,
            front=front,
            fronts=fronts,
            patients=patients,
            n_jobs=n_jobs,
        )
    predictions_by_rival = {}
    for rival_name, rival_folds in folds.items():
        predictions_by_rival[rival_name] = _predicted_by_rival(rival_folds, len(labels))
    probabilities_by_learner = {name: np.asarray(probability, dtype=float)}
    for rival_name, (predictions, _) in predictions_by_rival.items():
        probabilities_by_learner[rival_name] = (
            np.full(len(labels), np.nan) if predictions is None else predictions.probability
        )
    probabilities_by_learner[CONSTANT] = _mean_of_other_groups(
        labels, np.asarray(groups).astype(str)
    )
    if truth is not None:
        probabilities_by_learner[READERS] = readers_mean
    patient_of_row = groups if patients is None else patients
    comparable_log_odds = {}
    for rival_name, (predictions, _) in predictions_by_rival.items():
        if predictions is not None:
            comparable_log_odds[rival_name] = predictions.centred
    if centred is not None:
        comparable_log_odds[name] = np.asarray(centred, dtype=float)
    result = compare_probabilities(
        probabilities_by_learner,
        patient_of_row,
        target=readers_mean,
        truth=truth,
        reference=name,
        centred=comparable_log_odds,
        n_folds=len(np.unique(np.asarray(groups).astype(str))),
    )
    notes = []
    for learner in result.table["learner"]:
        note = ""
        if learner in predictions_by_rival:
            _, note = predictions_by_rival[learner]
        notes.append(note)
    return replace(result, table=result.table.assign(note=notes), centred=comparable_log_odds)


def _predicted_by_rival(folds: list[Fold], n: int) -> tuple[OutOfFold | None, str]:
    """Return a rival's out-of-fold predictions and a note on its folds.

    The predictions are None if all folds failed.
    """
    try:
        return put_together(folds, n), _fold_note(folds)
    except CadError as error:
        return None, str(error)


def compare_probabilities(
    probabilities: Mapping[str, ArrayLike],
    groups: ArrayLike,
    *,
    reference: str,
    target: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    centred: Mapping[str, ArrayLike] | None = None,
    n_folds: int | None = None,
) -> Rivals:
    """Compare probabilities of the same regions, from any learners or pipelines.

    Parameters
    ----------
    probabilities : mapping of str to array, shape (n,)
        Probabilities by name of the learner; NaN where the learner gives none. Each learner is
        compared with the reference on the regions that both predicted.
    groups : array, shape (n,)
        Patient of every region.
    reference : str
        The learner that others are compared with.
    target : array, shape (n,), optional
        The readers' mean probability, NaN where nobody read.
    truth : array, shape (n,), optional
        Histology, 1, 0 or NaN.
    centred : mapping of str to array, shape (n,), optional
        For a learner whose probabilities come from the models of several folds, log-odds that can
        be compared between folds. AUC and slope are computed from them.
    n_folds : int, optional
        If the probabilities are out of fold, the number of parts that were left out in turn. The
        interval of a difference of AUCs then also covers the chance of training
        (:func:`~cad.learning.evaluation.measures.intervals.training_inflation`).

    Returns
    -------
    Rivals
        Its table has a row for each truth, measure and learner: the value, and its difference from
        the reference with a 95 % interval over patients. Its sentences name the best learner. The
        probabilities are those that were given, as arrays of floats.

    Raises
    ------
    CadError
        If the reference is not in ``probabilities``, or if neither target nor truth is known.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0.0, 1.0], 30)
    >>> good = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.1, 60), 0.01, 0.99)
    >>> probabilities = {"good": good, "guess": rng.uniform(0.01, 0.99, 60)}
    >>> compared = compare_probabilities(
    ...     probabilities, np.arange(60) // 2, reference="good", truth=truth
    ... )
    >>> compared.reference, len(compared.table)
    ('good', 6)
    """
    arrays = {name: np.asarray(q, dtype=float) for name, q in probabilities.items()}
    if reference not in arrays:
        raise CadError(f"no learner {reference!r} to compare with: {', '.join(arrays)}")
    # Values that order regions: a learner's probabilities, or, if they come from several folds, its
    # centred log-odds, turned into numbers from 0 to 1.
    ranking = dict(arrays)
    for name, log_odds in (centred or {}).items():
        ranking[name] = np.asarray(expit(np.asarray(log_odds, dtype=float)))
    patient_of_row = np.unique(np.asarray(groups).astype(str), return_inverse=True)[1]
    truths = {"readers": target, "histology": truth}
    rows: list[dict[str, object]] = []
    for against, truth_or_mean in truths.items():
        if truth_or_mean is None:
            continue
        truth_values = np.asarray(truth_or_mean, dtype=float)
        if np.isfinite(truth_values).any():
            for learner in arrays:
                # The readers' mean is not compared with itself.
                if not (against == "readers" and learner == READERS):
                    rows += _measure_rows(
                        against=against,
                        learner=learner,
                        reference=reference,
                        arrays=arrays,
                        ranking=ranking,
                        truth_values=truth_values,
                        patient_of_row=patient_of_row,
                        n_folds=n_folds,
                    )
    if not rows:
        raise CadError("neither readers' scores nor histology to compare learners with")
    table = pd.DataFrame(rows).sort_values(
        ["against", "measure"], key=lambda column: column.map(_ORDER), kind="stable"
    )
    table = table.reset_index(drop=True)
    sentences = [_best_learner_sentence(table, against, reference) for against in truths]
    sentence = " ".join(text for text in sentences if text)
    return Rivals(table=table, sentence=sentence, probabilities=arrays, reference=reference)


# Order of the truths, and that of the measures, in the table of rivals.
_ORDER = {"readers": 0, "histology": 1, "kl": 0, "brier": 1, "auc": 2, "calibration_slope": 3}


def _measure_rows(
    against: str,
    learner: str,
    reference: str,
    arrays: dict[str, np.ndarray],
    ranking: dict[str, np.ndarray],
    truth_values: np.ndarray,
    patient_of_row: np.ndarray,
    n_folds: int | None,
) -> list[dict[str, object]]:
    """Return the rows of one learner against one truth: a row for each measure.

    ``arrays`` has the learners' probabilities, and ``ranking`` the values by which they order
    regions. ``truth_values`` and ``patient_of_row`` have the truth and patient of every region.
    """
    predicted = np.isfinite(truth_values) & np.isfinite(arrays[learner])
    both_predicted = predicted & np.isfinite(arrays[reference])
    rows: list[dict[str, object]] = []
    for measure in ("kl", "brier", "auc", "calibration_slope"):
        if measure == "kl" and against == "histology":
            # KL is left out against histology. For a truth of 0 or 1 it is the cross-entropy, whose
            # value depends on how far probabilities are clipped from 0 and 1.
            continue
        if measure in ("auc", "calibration_slope") and learner == CONSTANT:
            # The constant learner predicts in each fold the mean label of the other patients. This
            # mean is low if the left-out patients have many malignant regions. So the order of the
            # constants is opposite to the order of the labels.
            continue
        # AUC and slope are computed from centred scores, which can be compared between folds.
        values_of_learners = ranking if measure in ("auc", "calibration_slope") else arrays
        learner_values = values_of_learners[learner]
        reference_values = values_of_learners[reference]
        value = _value_of_measure(measure, truth_values[predicted], learner_values[predicted])
        # A slope is best at 1 and not at an extreme, so a difference of slopes has no meaning.
        difference = lower = upper = np.nan
        if learner != reference and both_predicted.any() and measure != "calibration_slope":
            difference, lower, upper = _paired_difference(
                measure,
                aim=truth_values[both_predicted],
                q=learner_values[both_predicted],
                base=reference_values[both_predicted],
                code=patient_of_row[both_predicted],
                n_folds=n_folds,
            )
        # Where the interval is not known (NaN), nothing is shown beyond chance.
        rows.append(
            {
                "against": against,
                "measure": measure,
                "learner": learner,
                "n": int(predicted.sum()),
                "value": value,
                "difference": difference,
                "lower": lower,
                "upper": upper,
                "beyond_chance": bool(lower > 0 or upper < 0),
                "note": "" if predicted.any() else "nothing predicted",
            }
        )
    return rows


def _value_of_measure(measure: str, aim: np.ndarray, q: np.ndarray) -> float:
    """Return a measure of the values ``q`` against truth or readers' mean; NaN without a region."""
    if len(aim) == 0:
        return float("nan")
    # An AUC needs two classes, so a readers' mean counts as malignant above .5.
    if measure == "auc":
        majority, _ = metrics.consensus_truth(aim)
        return metrics.auc(majority, q)
    return MEASURED[measure](aim, q)


def _losses_of_regions(measure: str, aim: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return every region's loss, shape (n,): the squared error for "brier", else the divergence.

    ``aim`` is the truth or the readers' mean, and ``q`` the learner's probability.
    """
    if measure == "brier":
        return np.asarray((aim - q) ** 2)
    return metrics.divergences(aim, q)


def _paired_difference(
    measure: str,
    aim: np.ndarray,
    q: np.ndarray,
    base: np.ndarray,
    code: np.ndarray,
    n_folds: int | None,
) -> tuple[float, float, float]:
    """Return a learner's measure minus that of the reference, and the ends of its 95 % interval."""
    # Patients are numbered anew, because ``code`` may lack some of the patients.
    patient = np.unique(code, return_inverse=True)[1]
    patients = int(patient.max()) + 1
    if measure == "auc":
        majority, _ = metrics.consensus_truth(aim)
        value, variance = _auc_difference(majority == 1, q, base, patient)
        variance *= training_inflation(n_folds)
    else:
        learner_losses = _losses_of_regions(measure, aim, q)
        reference_losses = _losses_of_regions(measure, aim, base)
        difference_of_patients = np.bincount(patient, learner_losses - reference_losses, patients)
        regions_of_patients = np.bincount(patient, minlength=patients).astype(float)
        # KL is a sum over regions, and the Brier score a mean. A mean is a ratio of two sums over
        # patients, so a patient deviates from it by his sum minus the mean times his regions.
        if measure == "kl":
            value = float(difference_of_patients.sum())
            deviation = difference_of_patients - difference_of_patients.mean()
            divisor = 1.0
        else:
            divisor = float(regions_of_patients.sum())
            value = float(difference_of_patients.sum() / divisor)
            deviation = difference_of_patients - value * regions_of_patients
        variance = float("nan")
        if patients > 1:
            variance = patients / (patients - 1) * float(deviation @ deviation) / divisor**2
    if patients < 2 or not np.isfinite(variance):
        return value, float("nan"), float("nan")
    half_interval = float(student.ppf(0.975, patients - 1) * np.sqrt(max(variance, 0.0)))
    return value, value - half_interval, value + half_interval


def _auc_difference(
    y: np.ndarray, q: np.ndarray, base: np.ndarray, patient: np.ndarray
) -> tuple[float, float]:
    """Return the AUC of the scores ``q`` minus the AUC of the scores ``base``, and its variance.

    The variance comes from leaving out each patient in turn. Both numbers are NaN if ``y`` has one
    class only.
    """
    if y.all() or not y.any():
        return float("nan"), float("nan")
    auc, without, _ = auc_without_each_patient(y, q, patient)
    auc_of_base, without_of_base, _ = auc_without_each_patient(y, base, patient)
    differences = without - without_of_base
    # Without a patient whose regions are all of a class, there may be no AUC.
    differences = differences[np.isfinite(differences)]
    patients = len(differences)
    if patients < 2:
        return auc - auc_of_base, float("nan")
    variance = (patients - 1) / patients * float(np.sum((differences - differences.mean()) ** 2))
    return auc - auc_of_base, variance


def _best_learner_sentence(table: pd.DataFrame, against: str, reference: str) -> str:
    """Return a sentence on the best learner against one truth; empty if the reference has no value.

    It says whether the best learner, or the next one if the reference is best, differs from the
    reference by more than chance.
    """
    measure = _JUDGED_BY[against]
    rows = table[(table["against"] == against) & (table["measure"] == measure)]
    # Only learners that predicted all regions are compared, because a sum over fewer regions is
    # smaller.
    rows = rows[np.isfinite(rows["value"]) & (rows["n"] == rows["n"].max())]
    if rows.empty or reference not in set(rows["learner"]):
        return ""
    best_first = rows.sort_values("value", kind="stable")
    best = best_first.iloc[0]
    measure_name = _NAMES[measure]
    # KL is a sum over all regions, and so much larger than a Brier score.
    digits = 1 if measure == "kl" else 3
    reference_value = float(rows.loc[rows["learner"] == reference, "value"].iloc[0])
    start = f"Against {_TITLES[against]} ({measure_name}, smaller is better)"
    if best["learner"] == reference:
        if len(best_first) == 1:
            return f"{start} there is no rival to {reference}."
        second = best_first.iloc[1]
        verdict = "more than chance" if second["beyond_chance"] else "within chance"
        return (
            f"{start} {reference} is best, {reference_value:.{digits}f}; next {second['learner']}, "
            f"{second['value']:.{digits}f}, {verdict}."
        )
    verdict = "larger than chance" if best["beyond_chance"] else "within chance"
    return (
        f"{start} {best['learner']} is best, {best['value']:.{digits}f} against "
        f"{reference_value:.{digits}f} of {reference}: the difference is {verdict} "
        f"([{best['lower']:.{digits}f}, {best['upper']:.{digits}f}])."
    )


def _mean_of_other_groups(p: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return for every region the mean label of the regions of all other groups."""
    group_of_row = np.unique(group, return_inverse=True)[1]
    has_label = np.isfinite(p)
    sums = np.bincount(group_of_row, np.where(has_label, p, 0.0))
    counts = np.bincount(group_of_row, has_label.astype(float))
    counts_of_others = counts.sum() - counts
    sums_of_others = sums.sum() - sums
    mean = np.divide(
        sums_of_others,
        counts_of_others,
        out=np.full(len(sums), np.nan),
        where=counts_of_others > 0,
    )
    return np.asarray(mean[group_of_row])


def _fold_note(folds: list[Fold]) -> str:
    """Return a note on the errors and warnings of a rival's folds; empty if there are none."""
    failed = [fold for fold in folds if fold.error]
    warned = [fold for fold in folds if fold.warnings]
    notes = []
    if failed:
        notes.append(f"{len(failed)} of {len(folds)} folds failed: {failed[0].error}")
    if warned:
        notes.append(f"{len(warned)} of {len(folds)} folds warned: {warned[0].warnings[0]}")
    return "; ".join(notes)
