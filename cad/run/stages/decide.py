"""Decide on every region and every man; no other module makes decisions.

The thresholds give a first decision. Reasons against it change it to ``refer``. Tables, pages,
structured reports, FHIR and terminal show the columns that are made here.
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
from cad.run.stages.judge import Judged, unseen
from cad.run.stages.load import Loaded

AGREE = 0.25
FAR = 0.5
"""Limits of the distance between the belief and the readers' mean: below the first they agree, from
the second on they are far apart. They are one and two steps of a five-point scale.
"""
SUSPICIOUS = 0.75
"""A reader's probability from which this reader alone turns ``benign`` into ``refer``."""
UNSEEN = "outlined by a detector, seen by nobody"
"""Reason against ``benign`` for a region that software detected and no reader has scored."""
SET_ERROR = 0.1
"""Error level of the conformal sets that decide and are shown: 90 % confidence."""
LATELY = 100
"""Number of men, the last of the cohort, in whose results drift is measured."""
REAL_MEN = 30
"""Least number of men with histology for recalibrating a model that was trained on simulated
patients. Before that it does not decide on a real man.
"""
SIMULATED_TRAINING = (
    "trained on simulated patients, so no decision is made on a real man; recalibrating the model "
    f"on {REAL_MEN} men with histology (cad recalibrate) changes that"
)
NO_LATEST = "his latest study gave no result"
"""Reason why no decision is made on a man whose earlier studies alone have regions."""
DECISION_COLUMNS = {
    "stated": "decision",
    "before_histology": "decision_before_histology",
    "thresholds": "decision_model",
}
"""Column of the results that each entry of ``decisions`` in ``metrics.json`` measures."""


def decide_run(loaded: Loaded, measured: Sequence[Failure], judged: Judged) -> Judged:
    """Decide on every region and man of a run, and measure the decisions.

    Parameters
    ----------
    loaded : Loaded
        The run.
    measured : sequence of Failure
        Failures of measuring. Whoever failed in any part is not called benign.
    judged : Judged
        Probabilities of regions and men, with their thresholds.

    Returns
    -------
    Judged
        A copy whose results have ``decision_model, decision_before_histology, decision,
        decision_reason, plausible, readers_agree, gap, apart, suspicion, patient_decision``, whose
        men have ``regions, decision_model, decision_before_histology, decision, decision_reason,
        basis``, and whose summary measures the decisions.
    """
    failures = [*loaded.failures, *measured, *judged.failures]
    failed = {failure.participant_id for failure in failures}
    withheld = set()
    if not loaded.cohort.simulated:
        withheld = set(judged.undecided_models)
    results = decide_regions(judged.results, judged.lower, judged.upper, withheld)
    current = results if judged.latest is None else results[judged.latest]
    men = decide_men(judged.men, current, failed)
    results["patient_decision"] = results["participant_id"].map(men["decision"])
    if "confidence" in results:
        detected = np.array([unseen(value) for value in results["confidence"]], dtype=bool)
        alone = detected & results["readers_mean"].isna().to_numpy()
        results["warnings"] = _with_warning(results["warnings"], alone, UNSEEN)
    summary = replace(
        judged.summary, decisions=_measures_of_decisions(results, loaded.settings.decision)
    )
    if summary.patient_level is not None:
        of_men = replace(summary.patient_level, decisions=measure_decisions_on_men(men))
        summary = replace(summary, patient_level=of_men)
    notes = list(judged.notes)
    if "model" in results and withheld & set(results["model"]):
        notes.append(SIMULATED_TRAINING)
    return replace(judged, results=results, men=men, summary=summary, notes=notes)


def decide_regions(
    results: pd.DataFrame,
    lower: np.ndarray,
    upper: np.ndarray,
    withheld: Collection[str] = (),
) -> pd.DataFrame:
    """Decide on each region by the thresholds, and change a doubtful decision to ``refer``.

    ``benign`` or ``malignant`` becomes ``refer`` where the readers say the opposite, where their
    mean is 0.5 or more from what the tool believes they would say, or where one reader's
    probability is 0.75 or more and the tool calls the region benign. The same holds where the
    region is unlike the training cohort, where an image may lie too far beside T2, where the
    conformal prediction set (90 %) excludes the decision, or where histology says otherwise. A
    region that software detected and no reader has scored is not called benign.

    Parameters
    ----------
    results : DataFrame, shape (n, ...)
        ``probability, belief``; ``readers_mean``; ``truth``: 1 or 0 by histology, NaN where
        histology does not tell. Optional: ``reader_values``, the readers' probabilities as text;
        ``unlike``, how the region differs from the training cohort; ``displaced``, which image lies
        too far beside T2; ``confidence``, of the software that detected it; ``p_benign,
        p_malignant``, conformal p-values; ``model``, the name of the model that scored it.
    lower, upper : ndarray, shape (n,)
        Thresholds of each row: benign below the first, malignant above the second.
    withheld : collection of str
        Models that make no decision.

    Returns
    -------
    DataFrame
        A copy with these columns. ``decision_model``: by the thresholds alone.
        ``decision_before_histology``: after all checks but histology. ``decision``: after all
        checks. ``decision_reason``: why it was changed, or why none is made. ``plausible``: the
        classes in the conformal set, ``neither``, or empty. ``readers_agree``. ``gap`` and
        ``apart``: how far belief and readers are from each other. ``suspicion``: the belief or the
        readers' mean, whichever is higher; where the readers contradict the tool, the most
        suspicious reader's probability counts.

    Examples
    --------
    The thresholds call three regions benign or malignant; of the last one a reader says the
    opposite:

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
    # A missing probability is neither below nor above a threshold; it gets no decision.
    codes = by_thresholds(results["probability"], lower, upper)
    rows = []
    for row, code in zip(results.to_dict("records"), codes.tolist(), strict=True):
        by_limits = ""
        if np.isfinite(row["probability"]):
            by_limits = DECISIONS[code]
        if by_limits and row.get("model") in withheld:
            rows.append(_withheld(row))
        else:
            rows.append(_decision_columns(by_limits, row))
    return results.assign(**pd.DataFrame(rows, index=results.index))


def _withheld(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a region on which its model makes no decision."""
    # Conformal sets hold for men like those of the training, as the limits do, so none is shown.
    return {**_decision_columns("", row), "decision_reason": SIMULATED_TRAINING, "plausible": ""}


def _decision_columns(model: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the decision columns of one region, from its decision by the thresholds and its
    row.
    """
    values = _reader_values(row)
    mean = row["readers_mean"]
    gap = abs(mean - row["belief"])
    readers = _readers_against(model, values, mean, gap)
    plausible = _plausible(row)
    against = list(readers)
    histology = []
    if model in ("malignant", "benign"):
        if _text(row, "unlike") not in ("", LIKE):
            against.append("the region is unlike the training cohort")
        against += _set_against(model, plausible)
        if _text(row, "displaced"):
            against.append(row["displaced"])
        if model == "benign" and not values and unseen(row.get("confidence")):
            against.append(UNSEEN)
        # A biopsy may miss a lesion, and the tool may miss cancer, so a contradiction needs a
        # person.
        if model == "malignant" and row["truth"] == 0.0:
            histology.append("histology found it benign")
        if model == "benign" and row["truth"] == 1.0:
            histology.append("histology found it malignant")
    suspicion = np.fmax(row["belief"], mean)
    if readers:
        # The page sorts by suspicion. A region that one reader suspects must not come late because
        # the mean is low.
        suspicion = np.fmax(row["belief"], max(values))
    return {
        "decision_model": model,
        **withdrawn(model, against, histology),
        "plausible": plausible,
        "readers_agree": _readers_apart(values),
        "gap": gap,
        "apart": _word_for_gap(gap),
        "suspicion": suspicion,
    }


def withdrawn(model: str, against: list[str], histology: list[str]) -> dict[str, str]:
    """Return a decision on a region or man, or ``refer`` where there are reasons against it.

    Parameters
    ----------
    model : str
        The decision by the thresholds.
    against, histology : list of str
        Reasons against it that do not come from histology, and those that do; may be empty.

    Returns
    -------
    dict of str to str
        ``decision_before_histology``, changed for the first reasons only; ``decision``, changed for
        both; and ``decision_reason``, the reasons as text.
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
    values = []
    for pair in _text(row, "reader_values").split("; "):
        if pair:
            values.append(float(pair.rpartition("=")[2]))
    return values


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name, "")
    return value if isinstance(value, str) else ""


def _readers_apart(values: list[float]) -> str:
    """Say how far the lowest and the highest of several readers' probabilities are apart."""
    if len(values) < 2:
        return ""
    spread = max(values) - min(values)
    if spread <= AGREE:
        return "agree"
    if spread <= FAR:
        return "differ"
    return "are split"


def _word_for_gap(gap: float) -> str:
    if np.isnan(gap):
        return ""
    if gap < AGREE:
        return "agree"
    if gap < FAR:
        return "apart"
    return "far apart"


def _readers_against(model: str, values: list[float], mean: float, gap: float) -> list[str]:
    if not values or model not in ("malignant", "benign"):
        return []
    readers_do = "the readers on average do" if len(values) > 1 else "the reader does"
    # This case comes first, because its sentence says whether the readers or the tool suspect
    # cancer. The sentence on the distance does not.
    side = side_of_half(mean)
    if model == "malignant" and side == "not suspicious":
        return [f"the tool suspects cancer, {readers_do} not"]
    if model == "benign" and side == "suspicious":
        return [f"the tool does not suspect cancer, {readers_do}"]
    if model == "benign" and max(values) >= SUSPICIOUS:
        return ["the tool does not suspect cancer, one reader does"]
    if gap >= FAR:
        return ["the tool and the readers are far apart"]
    return []


def _set_against(model: str, plausible: str) -> list[str]:
    if not plausible or model in plausible:
        return []
    if plausible == NEITHER:
        return ["hardly 1 in 10 regions of the training, benign or malignant, got such a number"]
    if model == "benign":
        return ["hardly 1 in 10 benign regions of the training looked so suspicious to the tool"]
    return ["hardly 1 in 10 malignant regions of the training looked so harmless to the tool"]


def _plausible(row: dict[str, Any]) -> str:
    """Return the classes in the conformal set as text; empty where the run made no sets."""
    words = []
    for word in ("benign", "malignant"):
        p_value = row.get(f"p_{word}", np.nan)
        if np.isnan(p_value):
            return ""
        if p_value > SET_ERROR:
            words.append(word)
    if not words:
        return NEITHER
    return " or ".join(words)


def decide_men(men: pd.DataFrame, results: pd.DataFrame, failed: Collection[str]) -> pd.DataFrame:
    """Decide on every man, who never goes further than his regions.

    ``malignant`` where one of his regions is: there is a target. ``benign`` where every region is
    and his own probability lies below his lower limit. ``refer`` otherwise. ``benign`` becomes
    ``refer`` where a study or region of his gave no result or the readers' mean suspects a region,
    and either becomes ``refer`` where histology says otherwise. A man none of whose regions has a
    decision has none.

    Parameters
    ----------
    men : DataFrame
        Indexed by ``participant_id``: ``probability, lower, truth``.
    results : DataFrame
        Regions with their decisions. A man without any has a latest study that gave no result.
    failed : collection of str
        Men of whom a study or a region gave no result.

    Returns
    -------
    DataFrame
        A copy of ``men`` with ``regions`` (their number), ``decision_model`` (before any change to
        ``refer``), ``decision_before_histology``, ``decision``, ``decision_reason`` and ``basis``:
        ``probability``, or ``regions`` where the man has no probability of his own.
    """
    groups = dict(tuple(results.groupby("participant_id")))
    rows = []
    nothing = results.iloc[:0]
    for name, man in zip(men.index, men.to_dict("records"), strict=True):
        regions = groups.get(name, nothing)
        model = _proposed(man, regions)
        against = []
        histology = []
        if model == "benign":
            against = _against_benign(regions, name in failed)
        if model == "malignant" and man["truth"] == 0.0:
            histology = ["histology found no such cancer"]
        if model == "benign" and man["truth"] == 1.0:
            histology = ["histology found cancer"]
        row = {"regions": len(regions), "decision_model": model}
        row |= withdrawn(model, against, histology)
        if regions.empty:
            row["decision_reason"] = NO_LATEST
        elif not model and (regions["decision_reason"] == SIMULATED_TRAINING).any():
            row["decision_reason"] = SIMULATED_TRAINING
        row["basis"] = ""
        if model:
            row["basis"] = "regions" if np.isnan(man["probability"]) else "probability"
        rows.append(row)
    return men.assign(**pd.DataFrame(rows, index=men.index))


def _proposed(man: dict[str, Any], regions: pd.DataFrame) -> str:
    """Return the decision on a man from the decisions on his regions and his own probability."""
    words = set(regions["decision"])
    if words <= {""}:
        return ""
    if "malignant" in words:
        return "malignant"
    below = np.isnan(man["probability"]) or man["probability"] < man["lower"]
    if words == {"benign"} and below:
        return "benign"
    return "refer"


def _against_benign(regions: pd.DataFrame, failed: bool) -> list[str]:
    """Return the reasons against calling a man benign, except for histology."""
    reasons = []
    if failed or regions["probability"].isna().any():
        reasons.append("a study or region gave no result")
    if (regions["readers_mean"] >= SUSPICIOUS).any():
        reasons.append("the readers suspect a region")
    return reasons


def _with_warning(warnings: pd.Series, rows: np.ndarray, text: str) -> pd.Series:
    """Return the warnings of all rows, with a text added in some rows."""
    joined = []
    for warning, adds in zip(warnings, rows, strict=True):
        if adds and warning:
            joined.append(f"{warning}; {text}")
        elif adds:
            joined.append(text)
        else:
            joined.append(warning)
    return pd.Series(joined, index=warnings.index)


def _measures_of_decisions(results: pd.DataFrame, settings: DecisionSettings) -> dict[str, Any]:
    """Measure the decisions of a run after each step that can change them."""
    changed = bool((results["decision"] != results["decision_before_histology"]).any())
    measured = {}
    for name, column in DECISION_COLUMNS.items():
        measured[name] = measure_decisions(
            results[column].to_numpy(str),
            results["truth"].to_numpy(float),
            results["participant_id"].to_numpy(str),
            settings,
            after_histology=column == "decision" and changed,
        )
    return measured


def measure_decisions_on_men(men: pd.DataFrame) -> JsonObject:
    """Count the decisions on men before histology is looked at, and how many of them are right.

    Parameters
    ----------
    men : DataFrame
        From :func:`decide_men`.

    Returns
    -------
    dict
        ``n``, men with a decision. For ``benign`` and ``malignant``: how many men were so decided
        (``n``), how many of them have histology (``known``) and how many it confirms (``right``).
        ``lately``: share decided and calibration of the last 100 men, where drift shows first.
    """
    decision = men["decision_before_histology"]
    with_truth = men["truth"].notna()
    content: JsonObject = {"n": int((decision != "").sum()), "lately": _lately(men)}
    for name, right in (("benign", 0.0), ("malignant", 1.0)):
        confirmed = with_truth & (decision == name)
        hits = int((men.loc[confirmed, "truth"] == right).sum())
        content[name] = {
            "n": int((decision == name).sum()),
            "known": int(confirmed.sum()),
            "right": hits,
        }
    return content


def _lately(men: pd.DataFrame) -> JsonObject:
    """Return the share of decided men and the calibration of the last men, where drift shows
    first.
    """
    decision = men["decision_before_histology"]
    last = men[decision != ""].tail(LATELY)
    decided = decision.reindex(last.index).isin(["benign", "malignant"])
    judged = last.dropna(subset=["truth", "probability"])
    truth = judged["truth"].to_numpy(float)
    probability = judged["probability"].to_numpy(float)
    share = error = intercept = np.nan
    if len(last):
        share = float(decided.mean())
    if len(judged):
        # Standard error of the intercept: 1 / sqrt(sum of p (1 - p)).
        error = 1 / np.sqrt(np.sum(probability * (1 - probability)))
        intercept = calibration_intercept(truth, probability)
    content: JsonObject = json_safe(
        {
            "n": len(last),
            "decided": share,
            "known": len(judged),
            "intercept": intercept,
            "error": error,
        }
    )
    return content
