"""Put probabilities beside what is known: a decision for every region, measures for the whole.

This is the one place where a decision is made and where it is withdrawn. Table, page, index,
structured report, FHIR and terminal show its column ``decision``.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from cad.base.files import JsonObject
from cad.base.terms.text import side_of_half
from cad.folders.run_folder.tables import KEYS, LIKE, NEITHER, ExplanationRow, Failure, by_region
from cad.learning.evaluation.decisions.costs import DECISIONS, measure_decisions
from cad.learning.evaluation.decisions.operating import OperatingChoice
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.evaluation.folds.crossval import OutOfFold
from cad.learning.evaluation.folds.null import PermutationNull
from cad.learning.evaluation.summary import Given, Summary, summarise
from cad.run.model.outcome import with_given
from cad.run.stages.aggregate import Aggregated
from cad.run.stages.load import Loaded

Threshold = float | np.ndarray
AGREE, FAR = 0.25, 0.5
"""Distance between the tool and the readers' mean below which they agree, and from which they are
far apart: one step of a five-point scale, and two."""
SUSPICIOUS = 0.75
"""A reader's score as probability, from which that reader alone speaks against ``benign``."""
UNSEEN = "outlined by a detector, seen by nobody"
"""No region of which this holds is stated benign."""
SET_ERROR = 0.1
"""Conformal sets withdraw a decision, and are shown, at 90 % confidence."""


@dataclass(frozen=True)
class Judged:
    """Hold the probability of and decision on every region, and measures of how good they are.

    Parameters
    ----------
    results : DataFrame
        Rows of ``probabilities.csv``, with further columns that comparisons of runs need.
    summary : Summary
        Content of ``metrics.json``.
    explanations : list of dict
        Rows of ``explanations.csv``.
    failures : list of Failure
        Regions without a probability, with the reason.
    notes : list of str
        Remarks for the reader of the run.
    timings : dict of str to float
        Seconds by stage.
    thresholds : (float, float)
        Benign below the first (P-), malignant above the second (P+); those of the first model,
        where models differ.
    folds : OutOfFold or None
        The validation's folds; None for a prediction.
    model : dict or None
        Description of the models of a prediction; None for a validation.
    estimator : dict or None
        Description of the fitted estimators (:func:`cad.run.model.described.describe`).
    simulated : bool
        Whether any number rests on simulated patients.
    men : DataFrame
        One row per patient, before the decision on him (:mod:`cad.run.stages.men`).
    """

    results: pd.DataFrame
    summary: Summary
    explanations: list[ExplanationRow]
    failures: list[Failure]
    notes: list[str]
    timings: dict[str, float]
    thresholds: tuple[float, float]
    folds: OutOfFold | None = None
    model: JsonObject | None = None
    estimator: JsonObject | None = None
    simulated: bool = field(default=False)
    men: pd.DataFrame = field(default_factory=pd.DataFrame)


def judge(
    loaded: Loaded,
    aggregated: Aggregated,
    scored: pd.DataFrame,
    *,
    thresholds: tuple[Threshold, Threshold],
    operating_point: OperatingChoice | None = None,
    given: Given | None = None,
    folds: OutOfFold | None = None,
    null: PermutationNull | None = None,
) -> tuple[pd.DataFrame, Summary]:
    """Decide on every region and measure the decisions and probabilities.

    Parameters
    ----------
    loaded, aggregated : Loaded, Aggregated
        The run so far.
    scored : DataFrame, shape (n, ...)
        ``probability, decision_value`` for the rows of ``aggregated.table``, NaN where there is
        none; of a validation ``centred``, which regions of different folds are ranked by. Further
        columns of the models (see ``results`` of :func:`decided`) are passed on.
    thresholds : (float or ndarray, float or ndarray)
        Benign below the first, malignant above the second; arrays of shape (n,) where rows differ.
    operating_point : OperatingChoice, optional
        How the thresholds were chosen, where they come from a stated aim and not from costs.
    given : Given, optional
        For a prediction: what else the trained models say of each region and of themselves.
    folds : OutOfFold, optional
        For a validation: the folds that gave the probabilities.
    null : PermutationNull, optional
        Measures of the same validation with permuted labels.

    Returns
    -------
    results : DataFrame
        One row per region of the cohort, with its decision.
    summary : Summary
        Measures of the probabilities and decisions.
    """
    settings, table, rows = loaded.settings, aggregated.table, aggregated.own_rows
    measured = [name for name in ("probability", "decision_value", "centred") if name in scored]
    summary = summarise(
        table.labels.assign(**{name: scored[name].to_numpy() for name in measured}),
        reader_scores=aggregated.grades,
        decision=settings.decision,
        folds=folds,
        feature_names=list(table.X.columns),
        null=null,
        operating_point=operating_point,
        given=given,
        bootstraps=settings.validate_.bootstraps,
        seed=settings.validate_.seed,
    )
    results = _described(loaded, aggregated).assign(warnings="")
    if summary.rows is not None:
        results = with_given(results, summary.rows)
    for name in scored:  # rows of an earlier model's table come after the cohort's
        results[name] = scored[name].to_numpy()[:rows]
    limits = [np.broadcast_to(limit, len(scored))[:rows] for limit in thresholds]
    results = decided(results, limits[0], limits[1])
    if "confidence" in results:
        seen_by_nobody = np.array([unseen(c) for c in results["confidence"]], dtype=bool)
        here = seen_by_nobody & results["readers_mean"].isna()
        said = results["warnings"].where(results["warnings"] == "", results["warnings"] + "; ")
        results["warnings"] = results["warnings"].where(~here, said + UNSEEN)
    changed = bool((results["decision"] != results["decision_before_histology"]).any())
    decisions = {
        name: measure_decisions(
            results[column].to_numpy(str),
            results["truth"].to_numpy(float),
            results["participant_id"].to_numpy(str),
            settings.decision,
            seen=column == "decision" and changed,
        )
        for name, column in DECISION_COLUMNS.items()
    }
    return results, replace(summary, decisions=decisions)


DECISION_COLUMNS = {
    "stated": "decision",
    "before_histology": "decision_before_histology",
    "thresholds": "decision_model",
}
"""Under which name ``metrics.json`` measures which column."""


def decided(results: pd.DataFrame, lower: np.ndarray, upper: np.ndarray) -> pd.DataFrame:
    """Decide on each region by the thresholds, and change a doubtful decision to ``refer``.

    ``benign`` or ``malignant`` becomes ``refer`` where the readers say the opposite, where their
    mean is 0.5 or more from the tool's probability, or where one reader's probability is 0.75 or
    more and the tool calls the region benign. The same holds where the region is unlike the
    training cohort, where the conformal prediction set (90 %) excludes the decision, or
    where histology says otherwise.

    Parameters
    ----------
    results : DataFrame, shape (n, ...)
        ``probability``, and ``truth``: 1 or 0 by histology, NaN where histology does not tell.
        Optional: ``reader_values``, the readers' probabilities as text; ``unlike``, how the region
        differs from the training cohort; ``p_benign, p_malignant``, conformal p-values.
    lower, upper : ndarray, shape (n,)
        Thresholds of each row: benign below the first, malignant above the second.

    Returns
    -------
    DataFrame
        A copy with these columns. ``decision_model``: by the thresholds alone.
        ``decision_before_histology``: after all checks but histology. ``decision``: after all
        checks. ``decision_reason``: why it was changed. ``plausible``: the classes in the conformal
        set, ``neither``, or empty. ``readers_mean``. ``gap`` and ``apart``: how far tool and
        readers are from each other. ``suspicion``: the tool's probability or the readers' mean,
        whichever is higher; where the readers contradict the tool, the most suspicious reader's
        probability counts.
    """
    # A missing probability compares false with both thresholds; the mask below empties its word.
    codes = decide(results["probability"], lower, upper)
    words = np.array([DECISIONS[code] for code in codes.tolist()], dtype="<U9")
    model = np.where(results["probability"].notna(), words, "")
    rows = [
        _stated(str(word), row) for word, row in zip(model, results.to_dict("records"), strict=True)
    ]
    return results.assign(decision_model=model, **pd.DataFrame(rows, index=results.index))


def _stated(model: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of one region, from its decision by the thresholds and its row."""
    given = _text(row, "reader_values").split("; ")
    values = [float(part.rpartition("=")[2]) for part in given if part]
    mean = sum(values) / len(values) if values else np.nan
    gap = abs(mean - row["probability"])
    readers = _readers_against(model, values, mean, gap)
    against, histology, plausible = list(readers), [], _plausible(row)
    if model in ("malignant", "benign"):
        if _text(row, "unlike") not in ("", LIKE):
            against.append("the region is unlike the training cohort")
        against += _set_against(model, plausible)
        if model == "benign" and not values and unseen(row.get("confidence")):
            against.append(UNSEEN)
        # A biopsy may miss a lesion and a tool may miss cancer: a person has to look at both.
        if (model, row["truth"]) in (("malignant", 0.0), ("benign", 1.0)):
            histology = [f"histology found it {'malignant' if row['truth'] else 'benign'}"]
    return {
        **withdrawn(model, against, histology),
        "plausible": plausible,
        "readers_mean": mean,
        "readers_agree": _agreement(values),
        "gap": gap,
        "apart": "" if np.isnan(gap) else _apart(gap),
        # The page sorts by it: a region that one reader suspects must not sink under a low mean.
        "suspicion": np.fmax(row["probability"], max(values) if readers else mean),
    }


def withdrawn(model: str, against: list[str], histology: list[str]) -> dict[str, str]:
    """Return a decision on a region or patient, or ``refer`` where there are reasons against it.

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
    return {
        "decision_before_histology": "refer" if against else model,
        "decision": "refer" if against or histology else model,
        "decision_reason": "; ".join([*against, *histology]),
    }


def unseen(confidence: object) -> bool:
    """Tell whether software detected a region, so that perhaps no reader has looked at it.

    Parameters
    ----------
    confidence : float or None
        The detector's confidence from ``rois.tsv``; None or NaN where a person drew the region.
    """
    return confidence is not None and not pd.isna(confidence)


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name, "")
    return value if isinstance(value, str) else ""


def _agreement(values: list[float]) -> str:
    """Say of two readers or more how far the lowest and the highest are apart: one step, or two."""
    if len(values) < 2:
        return ""
    spread = max(values) - min(values)
    return "agree" if spread <= AGREE else "differ" if spread <= FAR else "are split"


def _apart(gap: float) -> str:
    return "agree" if gap < AGREE else "far apart" if gap >= FAR else "apart"


def _readers_against(model: str, values: list[float], mean: float, gap: float) -> list[str]:
    if not values or model not in ("malignant", "benign"):
        return []
    who = "the readers on average do" if len(values) > 1 else "the reader does"
    # Opposite sides of one half come first: the sentence names who suspects cancer, which the
    # distance alone would not.
    side = side_of_half(mean)
    if model == "malignant" and side == "not suspicious":
        return [f"the tool suspects cancer, {who} not"]
    if model == "benign" and side == "suspicious":
        return [f"the tool does not suspect cancer, {who}"]
    if model == "benign" and max(values) >= SUSPICIOUS:
        return ["the tool does not suspect cancer, one reader does"]
    return ["the tool and the readers are far apart"] if gap >= FAR else []


def _set_against(model: str, plausible: str) -> list[str]:
    if not plausible or model in plausible:
        return []
    only = "no class" if plausible == NEITHER else "the other class only"
    return [f"at 90 % confidence it fits {only}"]


def _plausible(row: dict[str, Any]) -> str:
    """Return the classes that the conformal set leaves; empty where the run made no sets."""
    values = {word: row.get(f"p_{word}", np.nan) for word in ("benign", "malignant")}
    if np.isnan(list(values.values())).any():
        return ""
    return " or ".join(word for word, p in values.items() if p > SET_ERROR) or NEITHER


def patient_decisions(results: pd.DataFrame, failed: Collection[str]) -> pd.Series:
    """Return the decision on each row's patient that follows from the decisions on his regions.

    Parameters
    ----------
    results : DataFrame
        One row per region: ``participant_id, probability, decision``.
    failed : collection of str
        Patients of whom a study or a region gave no result: they are not called benign.

    Returns
    -------
    Series of str
        For every row of ``results``: empty where no region of the patient has a probability;
        ``malignant`` where one of his regions is; ``benign`` where all are and nothing failed;
        else ``refer``.
    """
    said = {}
    for patient, rows in results.groupby("participant_id"):
        words = set(rows["decision"])
        if rows["probability"].isna().all():
            said[patient] = ""
        elif "malignant" in words:
            said[patient] = "malignant"
        else:
            said[patient] = "benign" if words == {"benign"} and patient not in failed else "refer"
    return results["participant_id"].map(said)


def _described(loaded: Loaded, aggregated: Aggregated) -> pd.DataFrame:
    """Return one row per region of the cohort with what its tables say of it."""
    rois, scores = aggregated.rois, aggregated.scores
    columns = ["participant_id", "roi_id", "label", "zone", "histology", "isup"]
    columns += [name for name in ("sector", "confidence") if name in rois]
    region = ["participant_id", "roi_id"]
    results = (
        aggregated.table.keys.iloc[: aggregated.own_rows]
        .merge(rois[columns], on=region, how="left")
        .merge(aggregated.labels, on=region, how="left")
        .merge(by_region(scores, "score", "scores"), on=region, how="left")
        .merge(by_region(scores, "scale", "scales"), on=region, how="left")
        .merge(by_region(aggregated.grades, "probability", "reader_values"), on=region, how="left")
    )
    results["label"] = results["label"].astype(int)
    patients = loaded.cohort.participants.set_index("participant_id")
    for name in ("psa", "age"):
        if name in patients:
            own = pd.to_numeric(patients[name], errors="coerce")
            results[name] = results["participant_id"].map(own[own > 0])
    return results[[*KEYS, *(c for c in results.columns if c not in KEYS)]]
