"""Decide on every region and every man; no other module makes decisions.

The thresholds give a first decision. Reasons against this decision change it to ``refer``: a reader
has to look again. Tables, pages, structured reports, FHIR and terminal show the columns that are
computed here.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cad.base.files import JsonObject, json_safe
from cad.base.settings import DecisionSettings
from cad.base.terms.text import side_of_half
from cad.folders.run_folder.tables import LIKE, NEITHER, Failure
from cad.learning.evaluation.decisions.costs import DECISIONS, measure_decisions
from cad.learning.evaluation.decisions.reject import decide as by_thresholds
from cad.learning.evaluation.measures.metrics import calibration_intercept
from cad.learning.evaluation.summary import MeasuredDecisions
from cad.run.stages.judge import Judged, unseen
from cad.run.stages.load import Loaded

AGREE = 0.25
FAR = 0.5
"""Limits of the distance between the belief and the readers' mean. Below AGREE the two agree, and
from FAR on they are far apart. The limits are one step and two steps of a five-point scale.
"""
SUSPICIOUS = 0.75
"""If one reader's probability is this or more, ``benign`` becomes ``refer``."""
UNSEEN = "outlined by a detector, seen by nobody"
"""Reason against ``benign`` for a region that software detected and no reader has scored."""
SET_ERROR = 0.1
"""Error level of the conformal sets by which decisions are checked and which are shown. A set holds
the classes that are not ruled out at 90 % confidence.
"""
LATELY = 100
"""Number of men, the last by their ids, who show whether scanner or patients have changed.

In a node, ids count up as men arrive, so the last ids are the latest men.
"""
REAL_MEN = 30
"""Least number of men with histology on whom a model of simulated patients must be recalibrated
before it decides on a real man.
"""
SIMULATED_TRAINING = (
    "trained on simulated patients, so no decision is made on a real man; recalibrating the model "
    f"on {REAL_MEN} men with histology (cad recalibrate) changes that"
)
NO_LATEST = "his latest study gave no result"
"""Reason why no decision is made on a man of whose studies only earlier ones have regions."""
DECISION_COLUMNS = {
    "stated": "decision",
    "before_histology": "decision_before_histology",
    "thresholds": "decision_model",
}
"""For each entry of ``decisions`` in ``metrics.json``, the column of results that it measures."""


def decide_run(loaded: Loaded, measured: Sequence[Failure], judged: Judged) -> Judged:
    """Decide on every region and man of a run, and measure the decisions.

    Parameters
    ----------
    loaded : Loaded
        The run.
    measured : sequence of Failure
        Failures of the measurement. A man with any failure is not called benign.
    judged : Judged
        Probabilities of regions and men, with their thresholds.

    Returns
    -------
    Judged
        A copy with measures of the decisions. Its results also have ``decision_model,
        decision_before_histology, decision, decision_reason, plausible, readers_agree, gap, apart,
        suspicion, patient_decision``. Its men also have ``regions, decision_model,
        decision_before_histology, decision, decision_reason, basis``.
    """
    # A man with any failure is not called benign, because what was not read may be cancer.
    failures = [*loaded.failures, *measured, *judged.failures]
    patients_with_failure = {failure.participant_id for failure in failures}
    # On simulated men every model may decide.
    withheld_models = set()
    if not loaded.cohort.simulated:
        withheld_models = set(judged.undecided_models)
    results = decide_regions(judged.results, judged.lower, judged.upper, withheld_models)
    # In a prediction the decision on a man is made from the regions of his latest study alone.
    regions_that_count = results if judged.latest is None else results[judged.latest]
    men = decide_men(judged.men, regions_that_count, patients_with_failure)
    results["patient_decision"] = results["participant_id"].map(men["decision"])
    if "confidence" in results:  # without this column of rois.tsv, people drew all regions
        detected = np.array([unseen(value) for value in results["confidence"]], dtype=bool)
        read_by_nobody = detected & results["readers_mean"].isna().to_numpy()
        results["warnings"] = _with_warning(results["warnings"], read_by_nobody, UNSEEN)
    decisions = MeasuredDecisions(
        regions=measures_of_decisions(results, loaded.settings.decision),
        men=measure_decisions_on_men(men),
        waiting=sum(failure.waiting for failure in failures),
    )
    notes = list(judged.notes)
    # The note is shown only if such a model scored a region. A validation has no column ``model``.
    if "model" in results and withheld_models & set(results["model"]):
        notes.append(SIMULATED_TRAINING)
    return replace(judged, results=results, men=men, decisions=decisions, notes=notes)


def decide_regions(
    results: pd.DataFrame,
    lower: np.ndarray,
    upper: np.ndarray,
    withheld: Collection[str] = (),
) -> pd.DataFrame:
    """Decide on each region by the thresholds, and change a doubtful decision to ``refer``.

    ``benign`` or ``malignant`` becomes ``refer`` in these cases:

    - The readers' mean says the opposite, or is 0.5 or more away from the belief.
    - The region is unlike the training regions.
    - An image may be displaced too far against T2.
    - Conformal prediction rules the decision out at 90 % confidence.
    - Histology contradicts the decision.

    ``benign`` also becomes ``refer`` where one reader's probability is 0.75 or more, and where
    software detected the region and no reader has scored it.

    Parameters
    ----------
    results : DataFrame, shape (n, ...)
        Columns ``probability``, ``belief``, ``readers_mean``, and ``truth``: 1 or 0 by histology,
        NaN where histology does not tell. Optional columns: ``reader_values``, the readers'
        probabilities as text; ``unlike``, how the region differs from the training regions;
        ``displaced``, which image is displaced too far against T2; ``confidence`` of the software
        that detected the region; ``p_benign, p_malignant``, conformal p-values; ``model``, the name
        of the model that scored the region.
    lower, upper : ndarray, shape (n,)
        Thresholds of each row: a region is called benign below the first and malignant above the
        second.
    withheld : collection of str
        Names of the models that make no decision.

    Returns
    -------
    DataFrame
        A copy with further columns:

        - ``decision_model``: the decision by the thresholds alone.
        - ``decision_before_histology``: the decision after all checks but that against histology.
        - ``decision``: the decision after all checks.
        - ``decision_reason``: why the decision was changed, or why none is made.
        - ``plausible``: the classes that conformal prediction does not rule out, ``neither``, or
          empty.
        - ``readers_agree``: how far the readers' scores are apart from each other, in words.
        - ``gap`` and ``apart``: distance between the belief and the readers' mean, as a number and
          in words.
        - ``suspicion``: the belief or the readers' mean, whichever is higher. Where the readers
          contradict the tool (the model), the highest reader's probability takes the place of the
          mean.

    Examples
    --------
    By the thresholds three regions are benign, malignant and benign. A reader says the opposite of
    the last one:

    >>> import numpy as np
    >>> import pandas as pd
    >>> results = pd.DataFrame(
    ...     {
    ...         "probability": [0.1, 0.9, 0.1],
    ...         "belief": [0.1, 0.9, 0.1],
    ...         "readers_mean": [0.2, 0.8, 0.9],
    ...         "reader_values": ["r1=0.2", "r1=0.8", "r1=0.9"],
    ...         "truth": [np.nan, np.nan, np.nan],
    ...     }
    ... )
    >>> decided = decide_regions(results, np.full(3, 0.3), np.full(3, 0.6))
    >>> decided["decision_model"].tolist()
    ['benign', 'malignant', 'benign']
    >>> decided["decision"].tolist()
    ['benign', 'malignant', 'refer']
    >>> decided["decision_reason"].iloc[2]
    'the tool does not suspect cancer, the reader does'
    """
    codes = by_thresholds(results["probability"], lower, upper)
    rows = []
    for row, code in zip(results.to_dict("records"), codes.tolist(), strict=True):
        # The code of a missing probability is that of ``refer``. But without a number there is
        # nothing to refer, so the region gets no decision.
        decision_by_thresholds = ""
        if np.isfinite(row["probability"]):
            decision_by_thresholds = DECISIONS[code]
        if decision_by_thresholds and row.get("model") in withheld:
            rows.append(_columns_without_decision(row))
        else:
            rows.append(_decision_columns(decision_by_thresholds, row))
    return results.assign(**pd.DataFrame(rows, index=results.index))


def _columns_without_decision(row: dict[str, Any]) -> dict[str, Any]:
    """Return the decision columns of a region whose model may not decide on real men.

    ``row`` is the region's row of results. The decision is empty, and its reason says that the
    model was trained on simulated men.
    """
    # The classes that conformal prediction leaves possible are not shown. Like the thresholds, they
    # hold only for men like those of the training, and these men were simulated.
    columns = _decision_columns(first_decision="", row=row)
    return {**columns, "decision_reason": SIMULATED_TRAINING, "plausible": ""}


def _decision_columns(first_decision: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the decision columns of one region.

    ``first_decision`` is its decision by the thresholds, empty where there is none. ``row`` is its
    row of results.
    """
    reader_values = _reader_values(row)
    readers_mean = row["readers_mean"]
    gap = abs(readers_mean - row["belief"])
    plausible = _plausible(row)

    # Reasons against the first decision. There are none against ``refer`` or no decision.
    reasons_of_readers = _readers_against(first_decision, reader_values, readers_mean, gap)
    reasons = list(reasons_of_readers)
    reasons_of_histology = []
    if first_decision in ("malignant", "benign"):
        # The cell is empty where the model has no limits to compare regions with.
        if _text_or_empty(row, "unlike") not in ("", LIKE):
            reasons.append("the region is unlike the training cohort")
        reasons += _conformal_set_against(first_decision, plausible)
        if _text_or_empty(row, "displaced"):
            reasons.append(row["displaced"])
        if first_decision == "benign" and not reader_values and unseen(row.get("confidence")):
            reasons.append(UNSEEN)
        # A biopsy may miss a lesion, and the tool (the model) may miss cancer. So a person has to
        # look at a region where histology contradicts the decision.
        if first_decision == "malignant" and row["truth"] == 0.0:
            reasons_of_histology.append("histology found it benign")
        if first_decision == "benign" and row["truth"] == 1.0:
            reasons_of_histology.append("histology found it malignant")

    # Where one number is NaN, such as the mean of a region without a score, ``fmax`` takes the
    # other.
    suspicion = np.fmax(row["belief"], readers_mean)
    if reasons_of_readers:
        # The page sorts regions by suspicion. If only the readers' mean counted, a region that a
        # single reader suspects would come late.
        suspicion = np.fmax(row["belief"], max(reader_values))
    return {
        "decision_model": first_decision,
        **withdrawn(first_decision, reasons, reasons_of_histology),
        "plausible": plausible,
        "readers_agree": _readers_apart(reader_values),
        "gap": gap,
        "apart": _word_for_gap(gap),
        "suspicion": suspicion,
    }


def withdrawn(model: str, against: list[str], histology: list[str]) -> dict[str, str]:
    """Return a decision on a region or man, which is ``refer`` where there are reasons against it.

    Parameters
    ----------
    model : str
        The decision by the thresholds.
    against, histology : list of str
        Reasons against the decision that do not come from histology, and reasons that come from
        histology. Both lists may be empty.

    Returns
    -------
    dict of str to str
        ``decision_before_histology`` is ``refer`` where ``against`` has a reason. ``decision`` is
        ``refer`` where any of the two lists has a reason. ``decision_reason`` has all reasons as
        text.
    """
    before = model
    if against:
        before = "refer"
    decision = before
    if histology:
        decision = "refer"
    return {
        "decision_before_histology": before,
        "decision": decision,
        "decision_reason": "; ".join([*against, *histology]),
    }


def _reader_values(row: dict[str, Any]) -> list[float]:
    """Return the readers' probabilities of a region, from a text such as ``r1=0.2; r2=0.8``."""
    probabilities = []
    for reader_and_value in _text_or_empty(row, "reader_values").split("; "):
        if reader_and_value:  # an empty text, which is that of no reader, also has one piece
            _, _, value = reader_and_value.rpartition("=")
            probabilities.append(float(value))
    return probabilities


def _text_or_empty(row: dict[str, Any], name: str) -> str:
    # A table of results may lack the column, and pandas holds an empty cell as NaN.
    cell = row.get(name, "")
    return cell if isinstance(cell, str) else ""


def _readers_apart(values: list[float]) -> str:
    """Say how far the lowest and the highest of several readers' probabilities are apart."""
    if len(values) < 2:  # there is nobody with whom to agree
        return ""
    distance = max(values) - min(values)
    if distance <= AGREE:
        return "agree"
    if distance <= FAR:
        return "differ"
    return "are split"


def _word_for_gap(gap: float) -> str:
    """Say how far the belief and the readers' mean are apart."""
    if np.isnan(gap):  # nobody scored the region, or it has no belief
        return ""
    if gap < AGREE:
        return "agree"
    if gap < FAR:
        return "apart"
    return "far apart"


def _readers_against(
    first_decision: str, reader_values: list[float], readers_mean: float, gap: float
) -> list[str]:
    """Return a list with the readers' reason against a decision, empty where they have none.

    ``gap`` is the distance between the belief and the readers' mean. Only the weightiest reason is
    returned.
    """
    if not reader_values or first_decision not in ("malignant", "benign"):
        return []
    readers_do = "the readers on average do" if len(reader_values) > 1 else "the reader does"
    # The text says whether readers and tool (the model) are on opposite sides of one half, and not
    # only how far apart they are. So it also tells which of them suspects cancer.
    side = side_of_half(readers_mean)
    if first_decision == "malignant" and side == "not suspicious":
        return [f"the tool suspects cancer, {readers_do} not"]
    if first_decision == "benign" and side == "suspicious":
        return [f"the tool does not suspect cancer, {readers_do}"]
    if first_decision == "benign" and max(reader_values) >= SUSPICIOUS:
        return ["the tool does not suspect cancer, one reader does"]
    if gap >= FAR:
        return ["the tool and the readers are far apart"]
    return []


def _conformal_set_against(first_decision: str, plausible: str) -> list[str]:
    """Return a list with a reason if conformal prediction rules a decision out, else empty.

    ``plausible`` is the text of :func:`_plausible`: the classes that are not ruled out.
    """
    if not plausible:  # the run made no conformal prediction
        return []
    if first_decision in plausible:
        return []
    if plausible == NEITHER:
        return ["hardly 1 in 10 regions of the training, benign or malignant, got such a number"]
    if first_decision == "benign":
        return ["hardly 1 in 10 benign regions of the training looked so suspicious to the tool"]
    return ["hardly 1 in 10 malignant regions of the training looked so harmless to the tool"]


def _plausible(row: dict[str, Any]) -> str:
    """Return the classes that conformal prediction does not rule out, as text.

    The text is empty where the run made no such prediction.
    """
    classes = []
    for name_of_class in ("benign", "malignant"):
        p_value = row.get(f"p_{name_of_class}", np.nan)
        if np.isnan(p_value):  # with one p-value alone, a missing class would seem ruled out
            return ""
        if p_value > SET_ERROR:
            classes.append(name_of_class)
    if not classes:
        return NEITHER
    return " or ".join(classes)


def decide_men(men: pd.DataFrame, results: pd.DataFrame, failed: Collection[str]) -> pd.DataFrame:
    """Decide on every man, from the decisions on his regions and from his own probability.

    A man is ``malignant`` where one of his regions is malignant, because there is a target for a
    biopsy. He is ``benign`` where every region is benign and his own probability is unknown or lies
    below his threshold. Otherwise the decision is ``refer``. ``benign`` becomes ``refer`` where a
    study or region of the man gave no result, or where the readers' mean of a region is 0.75 or
    more. Both ``benign`` and ``malignant`` become ``refer`` where histology contradicts them. If no
    region of a man has a decision, the man has no decision.

    Parameters
    ----------
    men : DataFrame
        Table indexed by ``participant_id``, with the columns ``probability``, ``lower`` (the man's
        threshold) and ``truth``.
    results : DataFrame
        Regions with their decisions. A man who has no region here is one whose latest study gave no
        result.
    failed : collection of str
        Men of whom a study or a region gave no result.

    Returns
    -------
    DataFrame
        A copy of ``men`` with ``regions`` (their number), ``decision_model`` (before any change to
        ``refer``), ``decision_before_histology``, ``decision``, ``decision_reason`` and ``basis``:
        ``probability``, or ``regions`` where the man has no probability of his own.
    """
    regions_of_men = dict(tuple(results.groupby("participant_id")))
    rows = []
    no_regions = results.iloc[:0]
    for patient, man in zip(men.index, men.to_dict("records"), strict=True):
        regions = regions_of_men.get(patient, no_regions)
        first_decision = _proposed(man, regions)
        reasons = []
        reasons_of_histology = []
        if first_decision == "benign":
            reasons = _against_benign(regions, patient in failed)
        if first_decision == "malignant" and man["truth"] == 0.0:
            reasons_of_histology = ["histology found no such cancer"]
        if first_decision == "benign" and man["truth"] == 1.0:
            reasons_of_histology = ["histology found cancer"]
        row = {"regions": len(regions), "decision_model": first_decision}
        row |= withdrawn(first_decision, reasons, reasons_of_histology)
        # A man without a decision is told why. (:func:`withdrawn` gives reasons against decisions.)
        if regions.empty:
            row["decision_reason"] = NO_LATEST
        elif not first_decision and (regions["decision_reason"] == SIMULATED_TRAINING).any():
            row["decision_reason"] = SIMULATED_TRAINING
        row["basis"] = ""
        if first_decision:
            row["basis"] = "regions" if np.isnan(man["probability"]) else "probability"
        rows.append(row)
    return men.assign(**pd.DataFrame(rows, index=men.index))


def _proposed(man: dict[str, Any], regions: pd.DataFrame) -> str:
    """Return the decision on a man from the decisions on his regions and his own probability."""
    decisions_of_regions = set(regions["decision"])
    if decisions_of_regions <= {""}:  # he has no region, or none with a decision
        return ""
    if "malignant" in decisions_of_regions:
        return "malignant"
    # A man without a probability of his own is judged by his regions alone.
    own_probability_allows_benign = (
        np.isnan(man["probability"]) or man["probability"] < man["lower"]
    )
    if decisions_of_regions == {"benign"} and own_probability_allows_benign:
        return "benign"
    return "refer"


def _against_benign(regions: pd.DataFrame, failed: bool) -> list[str]:
    """Return the reasons other than histology against calling a man benign.

    ``regions`` are the man's regions. ``failed`` says whether the man is among those with a failed
    study or region.
    """
    reasons = []
    if failed or regions["probability"].isna().any():
        reasons.append("a study or region gave no result")
    if (regions["readers_mean"] >= SUSPICIOUS).any():
        reasons.append("the readers suspect a region")
    return reasons


def _with_warning(warnings: pd.Series, rows: np.ndarray, text: str) -> pd.Series:
    """Return the warnings of all rows, with a text added where ``rows`` is True."""
    longer_warnings = []
    for warning, gets_text in zip(warnings, rows, strict=True):
        if gets_text and warning:
            longer_warnings.append(f"{warning}; {text}")
        elif gets_text:
            longer_warnings.append(text)
        else:
            longer_warnings.append(warning)
    return pd.Series(longer_warnings, index=warnings.index)


def measures_of_decisions(results: pd.DataFrame, settings: DecisionSettings) -> dict[str, Any]:
    """Measure the decisions of a run after each step that can change them.

    Parameters
    ----------
    results : DataFrame
        Regions with their decisions (:func:`decide_regions`), ``truth`` and ``participant_id``;
        without rows for a run in which no region was scored.
    settings : DecisionSettings
        Costs of errors, and aims for predictive values.

    Returns
    -------
    dict of str to Decisions
        One entry per key of :data:`DECISION_COLUMNS`.
    """
    histology_changed_any = bool(
        (results["decision"] != results["decision_before_histology"]).any()
    )
    measured = {}
    for name, column in DECISION_COLUMNS.items():
        measured[name] = measure_decisions(
            results[column].to_numpy(str),
            results["truth"].to_numpy(float),
            results["participant_id"].to_numpy(str),
            settings,
            after_histology=column == "decision" and histology_changed_any,
        )
    return measured


def measure_decisions_on_men(men: pd.DataFrame) -> JsonObject:
    """Count the decisions on men, as they were before histology could change them to ``refer``.

    It is also counted how many of these decisions histology confirms.

    Parameters
    ----------
    men : DataFrame
        Result of :func:`decide_men`.

    Returns
    -------
    dict
        ``n`` is the number of men with a decision. ``benign`` and ``malignant`` each tell how many
        men have that decision (``n``), how many of these have histology (``known``) and how many
        histology confirms (``right``). ``lately`` has the share of men called benign or malignant,
        and the calibration, among the 100 men with a decision who are the last by their ids.
        Where ids rise with time, drift, such as a change of scanner, shows there first.
    """
    decision = men["decision_before_histology"]
    has_histology = men["truth"].notna()
    content: JsonObject = {"n": int((decision != "").sum()), "lately": _lately(men)}
    for name, right_truth in (("benign", 0.0), ("malignant", 1.0)):
        is_called = decision == name
        is_checked = is_called & has_histology
        is_right = men.loc[is_checked, "truth"] == right_truth
        content[name] = {
            "n": int(is_called.sum()),
            "known": int(is_checked.sum()),
            "right": int(is_right.sum()),
        }
    return content


def _lately(men: pd.DataFrame) -> JsonObject:
    """Return measures of the men with a decision who are the last by their ids.

    Where ids rise with time, a change of scanner shows in these men first. The measures are the
    share of men called benign or malignant, and the calibration.
    """
    decision = men["decision_before_histology"]
    # The table lists men by their ids.
    last_men = men[decision != ""].tail(LATELY)
    is_decided = decision.reindex(last_men.index).isin(["benign", "malignant"])
    men_with_truth = last_men.dropna(subset=["truth", "probability"])
    truth = men_with_truth["truth"].to_numpy(float)
    probability = men_with_truth["probability"].to_numpy(float)
    share_decided = intercept_error = intercept = np.nan
    if len(last_men):
        share_decided = float(is_decided.mean())
    if len(men_with_truth):
        # Standard error of the calibration intercept: 1 / sqrt(sum of p (1 - p)), with p the
        # probabilities.
        intercept_error = 1 / np.sqrt(np.sum(probability * (1 - probability)))
        intercept = calibration_intercept(truth, probability)
    content: JsonObject = json_safe(
        {
            "n": len(last_men),
            "decided": share_decided,
            "known": len(men_with_truth),
            "intercept": intercept,
            "error": intercept_error,
        }
    )
    return content
