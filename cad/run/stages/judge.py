"""Join the probabilities of regions with the regions' histology, and measure how good they are.

No decision is made here (:mod:`cad.run.stages.decide`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cad.base.files import JsonObject
from cad.folders.run_folder.tables import KEYS, ExplanationRow, Failure, by_region
from cad.learning.evaluation.decisions.operating import OperatingChoice
from cad.learning.evaluation.decisions.patient_level import PatientLevel
from cad.learning.evaluation.folds.crossval import OutOfFold
from cad.learning.evaluation.folds.null import PermutationNull
from cad.learning.evaluation.summary import (
    NO_VALIDATION,
    Given,
    MeasuredDecisions,
    MeasuredValidation,
    Summary,
    summarise,
)
from cad.learning.joint_model import JointModel
from cad.mri.features.provenance import displaced_from
from cad.run.model.outcome import with_given
from cad.run.stages.aggregate import Aggregated
from cad.run.stages.load import Loaded

MEASURED = (
    "belief",
    "probability",
    "probability_images",
    "decision_value",
    "centred_belief",
    "centred",
    "centred_images",
)
"""Columns of scored regions whose agreement with readers and histology is measured. A prediction
lacks the columns that begin with ``centred``.
"""


@dataclass(frozen=True)
class Judged:
    """Hold the probability of and decision on every region, and measures of how good they are.

    Parameters
    ----------
    results : DataFrame
        Rows of ``probabilities.csv``, with further columns that comparisons of runs need; the
        decisions are there after :func:`cad.run.stages.decide.decide_run`.
    summary : Summary
        Measures of the probabilities.
    explanations : list of dict
        Rows of ``explanations.csv``.
    failures : list of Failure
        Regions without a probability, with the reason.
    notes : list of str
        Remarks that the run shows.
    timings : dict of str to float
        Seconds by stage.
    thresholds : (float, float)
        A region is called benign below the first and malignant above the second. In a prediction
        with several models these are the thresholds of the first one.
    lower, upper : ndarray, shape (n,)
        The two thresholds of every row of ``results``.
    folds : OutOfFold or None
        The folds of a validation; None for a prediction.
    joint : JointModel or None
        In a validation: the joint model, which leads from beliefs to the probabilities of regions
        and men, fitted to all men; None where there is no histology to fit it to.
    out_of_fold : DataFrame
        In a validation: out-of-fold ``belief`` and ``probability`` of each row of the aggregated
        table, moved to the scale of a model that leaves nobody out. Thresholds and conformal sets
        for new patients are computed from these numbers.
    model : dict or None
        Description of the models of a prediction; None for a validation.
    estimator : dict or None
        Description of the fitted estimators (:func:`cad.run.model.described.describe`).
    simulated : bool
        Whether any patient of the run, or any training patient of its models, is simulated.
    undecided_models : tuple of str
        Names of the models that make no decision on a real man.
    men : DataFrame
        One row per patient (:mod:`cad.run.stages.risk`), with ``lower``, the threshold below which
        the patient may be called benign.
    latest : ndarray of bool, shape (n,), or None
        In a prediction: which rows of ``results`` are of their man's latest study, from which the
        decision on the man is made. None where it is made from all his regions.
    decisions : MeasuredDecisions
        Measures of the decisions; empty before :func:`cad.run.stages.decide.decide_run`.
    """

    results: pd.DataFrame
    summary: Summary
    explanations: list[ExplanationRow]
    failures: list[Failure]
    notes: list[str]
    timings: dict[str, float]
    thresholds: tuple[float, float]
    lower: np.ndarray
    upper: np.ndarray
    folds: OutOfFold | None = None
    joint: JointModel | None = None
    out_of_fold: pd.DataFrame = field(default_factory=pd.DataFrame)
    model: JsonObject | None = None
    estimator: JsonObject | None = None
    simulated: bool = field(default=False)
    undecided_models: tuple[str, ...] = ()
    men: pd.DataFrame = field(default_factory=pd.DataFrame)
    latest: np.ndarray | None = None
    decisions: MeasuredDecisions = field(default_factory=MeasuredDecisions)


def judge(
    loaded: Loaded,
    aggregated: Aggregated,
    scored: pd.DataFrame,
    *,
    patient_level: PatientLevel | None = None,
    operating_point: OperatingChoice | None = None,
    at_training: Mapping[str, OperatingChoice] | None = None,
    thresholds: tuple[float, float] | None = None,
    given: Given | None = None,
    folds: OutOfFold | None = None,
    null: PermutationNull | None = None,
    validation: MeasuredValidation = NO_VALIDATION,
) -> tuple[pd.DataFrame, Summary]:
    """Measure how good probabilities are, and join them to what the tables say of the regions.

    Parameters
    ----------
    loaded, aggregated : Loaded, Aggregated
        Results of the stages ``load`` and ``aggregate``.
    scored : DataFrame, shape (n, ...)
        Columns ``belief, probability, probability_images, decision_value`` for the rows of
        ``aggregated.table``, NaN where there is no value. A validation also has ``centred_belief,
        centred, centred_images``: log-odds without the base rates of the folds, by which regions of
        different folds can be ranked. Further columns are copied into the results.
    patient_level : PatientLevel, optional
        Measures of the probabilities of men.
    operating_point : OperatingChoice, optional
        How the thresholds were chosen, where they were chosen for a stated predictive value and not
        from costs.
    at_training, thresholds : dict of str to OperatingChoice and (float, float), optional
        For a prediction: how the training of each model chose its thresholds, and the thresholds of
        the first model.
    given : Given, optional
        For a prediction: further values of each region that the trained models return.
    folds : OutOfFold, optional
        For a validation: the folds that gave the beliefs.
    null : PermutationNull, optional
        Measures of the same validation with permuted labels.
    validation : MeasuredValidation
        For a validation: the measures that need its folds or further fits.

    Returns
    -------
    results : DataFrame
        One row per region of the cohort.
    summary : Summary
        Measures of the probabilities.
    """
    settings = loaded.settings
    table = aggregated.table
    n_cohort = aggregated.own_rows
    columns_to_measure = {name: scored[name].to_numpy() for name in MEASURED if name in scored}
    summary = summarise(
        table.labels.assign(**columns_to_measure),
        reader_scores=aggregated.grades,
        decision=settings.decision,
        folds=folds,
        feature_names=list(table.X.columns),
        null=null,
        validation=validation,
        patient_level=patient_level,
        operating_point=operating_point,
        at_training=at_training,
        thresholds=thresholds,
        given=given,
        bootstraps=settings.validate_.bootstraps,
        seed=settings.validate_.seed,
    )
    results = _described_regions(loaded, aggregated).assign(warnings="")
    if summary.rows is not None:  # values of each region, beside the measures of all regions
        results = with_given(results, summary.rows)
    # ``scored`` may end with rows from the training table of an earlier model. They are left out
    # here.
    for name in scored:
        results[name] = scored[name].to_numpy()[:n_cohort]
    provenance_of_rows = aggregated.provenance.iloc[:n_cohort].to_dict("records")
    results["displaced"] = [
        displaced_from(provenance, limit_mm=settings.images.withdraw_from_mm)
        for provenance in provenance_of_rows
    ]
    return results, summary


def unseen(confidence: object) -> bool:
    """Tell whether software detected a region. Perhaps no reader has looked at such a region.

    Parameters
    ----------
    confidence : float or None
        The detector's confidence from ``rois.tsv``; None or NaN where a person drew the region.

    Returns
    -------
    bool
        True if there is a confidence of a detector, False if it is None or NaN.
    """
    return confidence is not None and not pd.isna(confidence)


def _described_regions(loaded: Loaded, aggregated: Aggregated) -> pd.DataFrame:
    """Return a row for each region of the cohort, with what the cohort's tables and labels say."""
    rois = aggregated.rois
    scores = aggregated.scores
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
    # A left join could make the number of the region in the mask a float.
    results["label"] = results["label"].astype(int)
    other_columns = [name for name in results.columns if name not in KEYS]
    return results[[*KEYS, *other_columns]]
