"""Put probabilities beside what is known: a decision for every region, measures for the whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cad.evaluation.crossval import OutOfFold
from cad.evaluation.decisions import DECISIONS
from cad.evaluation.null import PermutationNull
from cad.evaluation.operating import OperatingChoice
from cad.evaluation.reject import decide
from cad.evaluation.summary import evaluate
from cad.files import JsonObject
from cad.labels.consensus import reader_probabilities
from cad.run_folder.tables import KEYS, ExplanationRow, Failure, by_region
from cad.stages.aggregate import Aggregated
from cad.stages.load import Loaded
from cad.stages.outcome import take_out_of_fold

Threshold = float | np.ndarray


@dataclass(frozen=True)
class Judged:
    """Hold what a run says of every region, and how good that is.

    Parameters
    ----------
    results : DataFrame
        Rows of ``probabilities.csv``, with what comparisons need beside.
    metrics : dict
        Content of ``metrics.json``.
    explanations : list of dict
        Rows of ``explanations.csv``.
    failures : list of Failure
        Folds or studies without a probability.
    notes : list of str
        What the reader of the run has to know.
    timings : dict of str to float
        Seconds by stage.
    thresholds : (float, float)
        P- and P+; those of the first model, where models differ.
    folds : OutOfFold or None
        The validation's folds; None for a prediction.
    model : dict or None
        The models of a prediction.
    simulated : bool
        Whether a number rests on simulated patients.
    """

    results: pd.DataFrame
    metrics: JsonObject
    explanations: list[ExplanationRow]
    failures: list[Failure]
    notes: list[str]
    timings: dict[str, float]
    thresholds: tuple[float, float]
    folds: OutOfFold | None = None
    model: JsonObject | None = None
    simulated: bool = field(default=False)


def judge(
    loaded: Loaded,
    aggregated: Aggregated,
    probability: np.ndarray,
    decision_value: np.ndarray,
    *,
    thresholds: tuple[Threshold, Threshold],
    operating_point: OperatingChoice | None = None,
    outside: np.ndarray | bool = False,
    folds: OutOfFold | None = None,
    null: PermutationNull | None = None,
) -> tuple[pd.DataFrame, JsonObject]:
    """Decide on every region and measure the decisions and probabilities.

    Parameters
    ----------
    loaded, aggregated : Loaded, Aggregated
        The run so far.
    probability, decision_value : ndarray, shape (n,)
        For the rows of ``aggregated.table``; NaN where there is none.
    thresholds : (float or ndarray, float or ndarray)
        Benign below the first, malignant above the second; of every row, where they differ.
    operating_point : OperatingChoice, optional
        Where the thresholds come from an aim.
    outside : ndarray of bool, shape (n,), or bool
        Regions unlike the training cohort; they are not called benign.
    folds : OutOfFold, optional
        The folds that gave the probabilities.
    null : PermutationNull, optional
        Measures of the whole loop under permuted labels.

    Returns
    -------
    results : DataFrame
        One row a region of the cohort.
    metrics : dict
        Content of ``metrics.json``.
    """
    settings, table = loaded.settings, aggregated.table
    called = _called(probability, thresholds, outside)
    metrics = evaluate(
        table.labels.assign(
            probability=probability, decision_value=decision_value, decision=called
        ),
        reader_scores=reader_probabilities(aggregated.scores, aggregated.rois, settings.labels),
        decision=settings.decision,
        folds=folds,
        feature_names=list(table.X.columns),
        null=null,
        operating_point=operating_point,
        bootstraps=settings.validate_.bootstraps,
        seed=settings.validate_.seed,
    )
    results = _described(loaded, aggregated)
    own = slice(0, len(results))  # rows of an earlier model's table come after the cohort's
    results["probability"], results["decision_value"] = probability[own], decision_value[own]
    results["decision"] = called[own]
    results["warnings"] = ""
    return take_out_of_fold(results, metrics, len(results))


def _called(
    probability: np.ndarray, thresholds: tuple[Threshold, Threshold], outside: np.ndarray | bool
) -> np.ndarray:
    """Return the word of every region's decision, empty without a probability."""
    codes = decide(probability, *thresholds)
    called = np.array([DECISIONS[code] for code in codes.tolist()], dtype="<U9")
    called = np.where(outside & (called == "benign"), "refer", called)
    return np.where(np.isfinite(probability), called, "")


def _described(loaded: Loaded, aggregated: Aggregated) -> pd.DataFrame:
    """Return one row per region of the cohort with what its tables say of it."""
    rois, scores = aggregated.rois, aggregated.scores
    columns = ["participant_id", "roi_id", "label", "zone", "histology", "isup"]
    columns += [name for name in ("sector",) if name in rois]
    region = ["participant_id", "roi_id"]
    values = reader_probabilities(scores, rois, loaded.settings.labels)
    results = (
        aggregated.table.keys.iloc[: aggregated.own_rows]
        .merge(rois[columns], on=region, how="left")
        .merge(aggregated.labels, on=region, how="left")
        .merge(by_region(scores, "score", "scores"), on=region, how="left")
        .merge(by_region(scores, "scale", "scales"), on=region, how="left")
        .merge(by_region(values, "probability", "reader_values"), on=region, how="left")
    )
    results["label"] = results["label"].astype(int)
    patients = loaded.cohort.participants
    if "psa" in patients:
        own = pd.to_numeric(patients.set_index("participant_id")["psa"], errors="coerce")
        results["psa"] = results["participant_id"].map(own[own > 0])
    return results[[*KEYS, *(c for c in results.columns if c not in KEYS)]]
