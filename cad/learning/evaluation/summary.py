"""Measure the predictions of a run. The result is the content of ``metrics.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe, typed
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions.conformal import (
    ConformalLevel,
    conformal_summary,
    leave_patient_out_p_values,
)
from cad.learning.evaluation.decisions.costs import Decisions, Reject, Thresholds, reject_summary
from cad.learning.evaluation.decisions.operating import OperatingChoice
from cad.learning.evaluation.decisions.patient_level import PatientLevel
from cad.learning.evaluation.decisions.unverified import Unverified
from cad.learning.evaluation.decisions.venn_abers import VennAbersCheck
from cad.learning.evaluation.folds.crossval import Fold, OutOfFold
from cad.learning.evaluation.folds.disagreement import Disagreement
from cad.learning.evaluation.folds.null import PermutationNull
from cad.learning.evaluation.folds.paired import RivalTable
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.comparison import (
    Comparison,
    compare_with_truth,
    is_probability,
)
from cad.learning.evaluation.readers.agreement import Agreement
from cad.learning.evaluation.readers.assisted import Assisted, assist
from cad.learning.evaluation.readers.ceiling import Ceiling, readers_ceiling
from cad.learning.evaluation.readers.mrmc import AgainstReaders
from cad.learning.evaluation.readers.results import ReaderResult, reader_results, score_table
from cad.learning.labels.skill import SkillTable

DEFAULT_DECISION = DecisionSettings()
CENTRED = (
    "Ranks (AUC, average precision) and the calibration slope compare left-out regions by log-odds "
    "less the base log-odds of the model that scored them, in units of that model's spread. Men "
    "are ordered by their rank among the men of that model's training. Probabilities, thresholds "
    "and all other measures are on that model's own scale."
)


@dataclass(frozen=True)
class Sizes:
    """Hold the numbers of regions and patients.

    Parameters
    ----------
    rois, patients : int
        Numbers of all regions and of their patients.
    predicted, not_predicted : int
        Numbers of regions with and without a prediction.
    with_histology, with_consensus : int
        Numbers of regions with histology, and of regions with a score of at least one reader.
    """

    rois: int = 0
    patients: int = 0
    predicted: int = 0
    not_predicted: int = 0
    with_histology: int = 0
    with_consensus: int = 0


@dataclass(frozen=True)
class FoldResult:
    """Hold the outcome of one fold of a validation.

    Parameters
    ----------
    name : str
        Name of the patient or site that is left out.
    n_train, n_unlabelled, n_test : int
        Numbers of labelled training rows, of rows without a label that the learner also used, and
        of test rows.
    selected : dict
        Chosen parameters by name.
    features : list of str or None
        Names of the selected features; None if all features were used.
    warnings : list of str
        Warnings of the fit.
    error : str
        Reason why the fold failed; empty if it did not fail.
    base : float
        Log-odds of the mean label of the training rows. For a learner without probabilities it is
        the mean decision value of the training rows.
    spread : float
        Standard deviation of the log-odds (or decision values) that the fold's model gives to its
        training rows. Log-odds of different folds can be ranked together after the base of its
        fold was subtracted from each, and the difference divided by the spread of its fold. A file
        of a version before this has 1.
    """

    name: str
    n_train: int
    n_unlabelled: int
    n_test: int
    selected: dict[str, Any]
    features: list[str] | None
    warnings: list[str]
    error: str
    base: float = 0.0
    spread: float = 1.0


@dataclass(frozen=True)
class Given:
    """Hold values per region that trained models return with a prediction.

    They are used for measures and pages of a prediction. A validation needs no such values: it
    computes them from the regions of the other patients.

    Parameters
    ----------
    p_benign, p_malignant : ndarray, shape (n,)
        Conformal p-values of both classes (how implausible each class is), calibrated on the
        regions of the training.
    with_tool : DataFrame, shape (n, readers)
        For every reader, the probability of malignancy that combines the reader's score with the
        model's probability.
    """

    p_benign: np.ndarray
    p_malignant: np.ndarray
    with_tool: pd.DataFrame


@dataclass(frozen=True)
class MeasuredValidation:
    """Hold measures that only a validation has, because they need its folds or further fits.

    Each field is the field of :class:`Summary` with the same name.
    """

    unlabelled_rows: int | None = None
    rivals: RivalTable | None = None
    reader_skill: SkillTable | None = None
    disagreement: Disagreement | None = None
    unverified: Unverified | None = None
    venn_abers: VennAbersCheck | None = None


NO_VALIDATION = MeasuredValidation()


@dataclass(frozen=True)
class Summary:
    """Hold the measures of ``metrics.json``, without those of decisions; each field is a key.

    :func:`summarise` makes it, and nothing changes it afterwards. :class:`MeasuredDecisions` holds
    the measures of decisions, and :func:`metrics_content` puts both together.

    Parameters
    ----------
    n : Sizes
        Numbers of regions and patients.
    label_kinds : dict of str to int
        Number of regions by kind of label (:data:`cad.learning.learners.soft_labels.KIND_NAMES`).
    warnings : list of str
        Sentences on what limits the validity of the numbers.
    thresholds : Thresholds
        The thresholds P- and P+. A region is called benign if its probability is below P-,
        malignant if it is above P+, and is referred otherwise.
    histology, consensus : Comparison or None
        Measures against histology, and against the readers' mean. For AUC and rates a region is
        malignant if the readers' mean is above .5; measures of a probability compare it with the
        mean itself.
    readers : dict of str to ReaderResult
        How well each reader agrees with histology and with the other readers, by reader id.
    agreement : Agreement or None
        How well the readers agree with each other.
    cad_vs_readers : AgainstReaders or None
        Comparison of the classifier's AUC with the readers' mean AUC. If it is None, the reason is
        in ``cad_vs_readers_note``.
    assisted : Assisted or None
        How good readers are if their scores are combined with the classifier's probability. If it
        is None, the reason is in ``assisted_note``.
    ceiling : Ceiling or None
        How near to the readers' mean score a classifier can come.
    operating_point : OperatingChoice or None
        Thresholds that were chosen for an aim (a predictive value); None if the settings have no
        aim.
    reject : Reject or None
        How errors and cost change with the share of referred regions; None without regions of both
        classes from enough patients.
    conformal : dict of str to list of ConformalLevel, or None
        One key, ``levels``: for each error level, how often conformal sets contain the truth. None
        unless histology has both classes.
    folds : list of FoldResult
        One per fold of a validation; empty for predictions of a trained model.
    null : PermutationNull or None
        AUC of the validation with permuted labels; None if the run did not compute it.
    rows : Given or None
        Values per region. They become columns of the table of results, and are not in
        ``metrics.json``.
    rivals : RivalTable or None
        In a validation, the comparison with other learners on the same folds.
    reader_skill : SkillTable or None
        In a validation, how good each reader is, and how much each reader adds to the others.
    disagreement : Disagreement or None
        In a validation with several readers, whether their disagreement helps the learner.
    unlabelled_rows : int or None
        In a validation, the largest number, over folds, of rows without a label that the learner
        used.
    patient_level : PatientLevel or None
        Measures of one probability per patient instead of one per region.
    at_training : dict of str to OperatingChoice
        In a prediction, the thresholds that the training of each model chose for an aim, and their
        predictive values in the training. Keys are the names of the models.
    images : Comparison or None
        Measures against histology of the probability from images alone. This probability is
        computed without readers' scores, because it is compared with readers.
    unverified : Unverified or None
        In a validation, how measures change if regions without histology count as benign.
    venn_abers : VennAbersCheck or None
        In a validation, how many probabilities lie in their Venn-Abers intervals
        (:mod:`cad.learning.evaluation.decisions.venn_abers`).
    """

    n: Sizes = field(default_factory=Sizes)
    label_kinds: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    thresholds: Thresholds | None = None
    histology: Comparison | None = None
    consensus: Comparison | None = None
    readers: dict[str, ReaderResult] = field(default_factory=dict)
    agreement: Agreement | None = None
    cad_vs_readers: AgainstReaders | None = None
    cad_vs_readers_note: str = ""
    assisted: Assisted | None = None
    assisted_note: str = ""
    ceiling: Ceiling | None = None
    operating_point: OperatingChoice | None = None
    reject: Reject | None = None
    conformal: dict[str, list[ConformalLevel]] | None = None
    folds: list[FoldResult] = field(default_factory=list)
    null: PermutationNull | None = None
    rows: Given | None = None
    rivals: RivalTable | None = None
    reader_skill: SkillTable | None = None
    disagreement: Disagreement | None = None
    unlabelled_rows: int | None = None
    patient_level: PatientLevel | None = None
    at_training: dict[str, OperatingChoice] = field(default_factory=dict)
    images: Comparison | None = None
    unverified: Unverified | None = None
    venn_abers: VennAbersCheck | None = None

    def scale_note(self) -> str:
        """Return a sentence on the scale on which a validation ranks regions; empty for other
        runs.
        """
        return CENTRED if self.folds else ""

    def as_dict(self) -> dict[str, Any]:
        """Return the measures by name, as values that JSON can hold."""
        content = _fields(self)
        # The values of the regions become columns of the table of results, and are not stored here.
        del content["rows"]
        if self.null is not None:
            content["null"] = self.null.as_dict()
        for name in ("assisted", "ceiling", "disagreement"):
            measure = getattr(self, name)
            if measure is not None:
                content[name] = {**_fields(measure), "sentence": measure.sentence()}
        if self.operating_point is not None:
            content["operating_point"] = self.operating_point.as_dict()
        content["at_training"] = {
            name: choice.as_dict() for name, choice in self.at_training.items()
        }
        return dict(json_safe(content))

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Summary:
        """Return the summary from the result of :meth:`as_dict`.

        Its ``rows`` are None.
        """
        # The schemes of a null are dicts that stand beside its other entries in the file.
        null = content.get("null")
        schemes = {}
        for name, value in (null or {}).items():
            if isinstance(value, dict):
                schemes[name] = value
        if null:
            null = {**null, "schemes": schemes}
        return typed(cls, {**content, "null": null})


@dataclass(frozen=True)
class MeasuredDecisions:
    """Hold measures of the decisions on regions and men, which are made after the probabilities.

    Parameters
    ----------
    regions : dict of str to Decisions
        Counts, predictive values and cost of decisions on regions, by the name of the rule that
        makes them. It is ``decisions`` in ``metrics.json``.
    men : dict
        ``n`` is the number of men with a decision. ``benign`` and ``malignant`` each hold a dict
        with three numbers: the men with that decision (``n``), those of them with histology
        (``known``), and those whose decision histology confirms (``right``). ``lately`` holds the
        share of men who were called benign or malignant and the calibration, both among the men
        with a decision who are the last by their ids (100 at most). It is ``decisions`` of
        ``patient_level`` in ``metrics.json``.
    waiting : int
        Number of studies without a decision because no region is drawn in them yet. It is
        ``waiting`` of ``n`` in ``metrics.json``.
    """

    regions: dict[str, Decisions] = field(default_factory=dict)
    men: JsonObject = field(default_factory=dict)
    waiting: int = 0

    @classmethod
    def from_dict(cls, content: JsonObject) -> MeasuredDecisions:
        """Return the measures of decisions in the content of a ``metrics.json``."""
        # A file of a run without decisions, or of an older version, lacks these entries.
        sizes = content.get("n") or {}
        patient_level = content.get("patient_level") or {}
        fields = {
            "regions": content.get("decisions") or {},
            "men": patient_level.get("decisions") or {},
            "waiting": sizes.get("waiting", 0),
        }
        return typed(cls, fields)


def metrics_content(summary: Summary, decisions: MeasuredDecisions) -> JsonObject:
    """Return the content of ``metrics.json``.

    Parameters
    ----------
    summary : Summary
        Measures of the probabilities.
    decisions : MeasuredDecisions
        Measures of the decisions.

    Returns
    -------
    dict
        All measures as values that JSON can hold. :meth:`Summary.from_dict` and
        :meth:`MeasuredDecisions.from_dict` make the two objects again.
    """
    content = summary.as_dict()
    content["decisions"] = json_safe(decisions.regions)
    content["n"]["waiting"] = decisions.waiting
    # Without measures of men there is no place for those of their decisions.
    if content["patient_level"] is not None:
        content["patient_level"]["decisions"] = json_safe(decisions.men)
    return content


def summarise(
    frame: pd.DataFrame,
    *,
    reader_scores: pd.DataFrame | None = None,
    decision: DecisionSettings = DEFAULT_DECISION,
    folds: OutOfFold | None = None,
    feature_names: list[str] | None = None,
    null: PermutationNull | None = None,
    validation: MeasuredValidation = NO_VALIDATION,
    patient_level: PatientLevel | None = None,
    operating_point: OperatingChoice | None = None,
    at_training: Mapping[str, OperatingChoice] | None = None,
    thresholds: tuple[float, float] | None = None,
    given: Given | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
) -> Summary:
    """Measure predictions against histology and against the readers.

    Parameters
    ----------
    frame : DataFrame
        One row per region, with the columns

        - ``participant_id, roi_id``: names of the region.
        - ``probability``: probability of cancer, NaN where unknown.
        - ``truth``: 1 or 0 by histology, NaN where unknown.
        - ``p``: the readers' mean, NaN where unknown.
        - ``belief`` (optional): is measured against the readers' mean. If it is absent,
          ``probability`` is used in its place.
        - ``probability_images`` (optional): is compared with the readers. If it is absent,
          ``probability`` is used in its place.
        - ``decision_value`` (optional): is used in place of a probability that is NaN in every row.
        - ``label_kind`` (optional): kind of each label; the kinds are counted.
        - ``centred, centred_belief, centred_images`` (in a validation): values by which regions of
          different folds are ranked (:attr:`cad.learning.evaluation.OutOfFold.centred`).
    reader_scores : DataFrame, optional
        One row per score, with the columns ``participant_id, roi_id, reader_id, probability``.
    decision : DecisionSettings
        Costs of errors and of referring a region. The thresholds P- and P+ follow from them.
    folds, feature_names
        Out-of-fold predictions, and the names of the feature columns; for a validation only.
    null : PermutationNull, optional
        AUC with permuted labels, which is copied into the result.
    validation : MeasuredValidation
        For a validation only: further measures, which are copied into the result.
    patient_level : PatientLevel, optional
        Measures of the probabilities of men, which are copied into the result.
    operating_point : OperatingChoice, optional
        Thresholds that were chosen for an aim. They are copied into the result, and used in place
        of those of the costs.
    at_training : dict of str to OperatingChoice, optional
        For predictions only: the thresholds that each model's training chose for an aim. They are
        copied into the result.
    thresholds : (float, float), optional
        For predictions only: P- and P+ of the model, in place of those of the costs.
    given : Given, optional
        For predictions only: values per region that the trained models return.
    bootstraps, seed : int
        Number of bootstrap resamples of patients, and their seed. They are for all intervals but
        that of the AUC.

    Returns
    -------
    Summary
        Measures of the run: against histology and against the readers, thresholds, and measures
        of the readers. A comparison that the data do not allow is None. ``rows`` has
        the values of every region, in the order of ``frame``.
    """
    frame = frame.reset_index(drop=True)
    columns = _RegionColumns.of(frame)
    # ``probability`` is how probable cancer is, by all that is known of the region. It is compared
    # with histology.
    probability = _Score.of(frame, "probability")
    # ``belief`` is how probable it is that readers would call the region malignant. It is compared
    # with the readers' mean. It is the learner's own score, to which the conformal p-values of a
    # trained model refer.
    belief = _Score.of(frame, "belief")
    # ``images`` is how probable cancer is by the images alone. It is compared with readers. A score
    # that uses the readers' scores would be compared with itself.
    images = _Score.of(frame, "probability_images")
    # Thresholds that are given come first, then those of an aim, and at last those of the costs.
    if thresholds is None and operating_point is not None:
        thresholds = operating_point.thresholds
    if thresholds is None:
        thresholds = decision.thresholds
    lower, upper = thresholds
    n_folds = len(folds.folds) if folds else None
    resampling = {"bootstraps": bootstraps, "seed": seed}
    # Rates are measured at the two thresholds of the decision, and at .5.
    common_options: dict[str, Any] = {"thresholds": (lower, 0.5, upper), **resampling}
    majority_of_readers, ties = metrics.consensus_truth(columns.consensus)
    truth = columns.truth
    patients = columns.patients
    # The truth is the class of each region. The target is the number that the probability of a
    # region should come near to: the class itself in the comparison with histology, and the
    # readers' mean in the comparison with readers.
    histology = compare_with_truth(
        truth=truth,
        target=truth,
        score=probability.value,
        patients=patients,
        centred=probability.centred,
        n_folds=n_folds,
        **common_options,
    )
    # Without a column of their own, images have the same probability, and no further comparison.
    images_with_histology = None
    if "probability_images" in frame:
        images_with_histology = compare_with_truth(
            truth=truth,
            target=truth,
            score=images.value,
            patients=patients,
            centred=images.centred,
            n_folds=n_folds,
            **common_options,
        )
    consensus = compare_with_truth(
        truth=majority_of_readers,
        target=columns.consensus,
        score=belief.value,
        patients=patients,
        ties=ties,
        centred=belief.centred,
        n_folds=n_folds,
        **common_options,
    )
    # A row per region and a column per reader; None without any score.
    wide = score_table(frame, reader_scores)
    tool_measures, with_tool = _tool_measures(columns, belief, images, wide, given, resampling)
    conformal, (p_benign, p_malignant) = _conformal(columns, belief.ranking, given)
    # In a prediction the models give p-values and the readers' probabilities with the tool. In a
    # validation no model gives them, so the values that were computed from the other patients are
    # used.
    values_of_regions = given
    if values_of_regions is None:
        values_of_regions = Given(
            p_benign=p_benign,
            p_malignant=p_malignant,
            with_tool=pd.DataFrame(with_tool, index=range(len(truth))),
        )
    return Summary(
        n=_sizes(columns, probability.value),
        label_kinds=_counts_of_kinds(frame),
        warnings=_warnings(columns, probability.value, histology, consensus),
        thresholds=Thresholds(lower=lower, upper=upper),
        histology=histology,
        images=images_with_histology,
        consensus=consensus,
        **reader_results(
            truth=truth, score=images.ranking, patients=patients, wide=wide, n_folds=n_folds
        ),
        **tool_measures,
        operating_point=operating_point,
        reject=reject_summary(truth, columns.consensus, probability.value, patients, decision),
        conformal=conformal,
        folds=[_fold(fold, feature_names) for fold in folds.folds] if folds else [],
        null=null,
        rows=values_of_regions,
        unlabelled_rows=validation.unlabelled_rows,
        rivals=validation.rivals,
        reader_skill=validation.reader_skill,
        disagreement=validation.disagreement,
        unverified=validation.unverified,
        venn_abers=validation.venn_abers,
        patient_level=patient_level,
        at_training=dict(at_training or {}),
    )


@dataclass(frozen=True)
class _RegionColumns:
    """Hold truth, readers' mean and patient of every region, shape (n,); NaN where unknown."""

    truth: np.ndarray
    consensus: np.ndarray
    patients: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame) -> _RegionColumns:
        """Return truth, readers' mean and patient from the columns of a table with a row per
        region.
        """
        return cls(
            truth=frame["truth"].to_numpy(dtype=float),
            consensus=frame["p"].to_numpy(dtype=float),
            patients=frame["participant_id"].astype(str).to_numpy(),
        )


_CENTRED = "centred"


@dataclass(frozen=True)
class _Score:
    """Hold one number per region, and the centred log-odds that rank regions of different folds.

    ``centred`` is None outside a validation.
    """

    value: np.ndarray
    centred: np.ndarray | None

    @classmethod
    def of(cls, frame: pd.DataFrame, name: str) -> _Score:
        """Return the numbers of regions in the column ``name`` of a table with a row per region.

        If the table has no such column, its column ``probability`` is taken. If all these numbers
        are NaN, the decision values are taken.
        """
        column = name if name in frame else "probability"
        value = frame[column].to_numpy(dtype=float)
        # An AUC can be computed from any score. So if no region has a probability, the decision
        # value is used, and measures of a probability are left out.
        if np.isnan(value).all() and "decision_value" in frame:
            value = frame["decision_value"].to_numpy(dtype=float)
        # Only a validation has centred log-odds: log-odds minus the base log-odds of the fold's
        # model, by which regions of different folds are ranked. The names of the columns are:
        #   probability -> centred
        #   belief -> centred_belief
        #   probability_images -> centred_images
        centred_column = _CENTRED
        if column != "probability":
            centred_column = f"{_CENTRED}_{column.removeprefix('probability_')}"
        if centred_column not in frame:
            return cls(value, centred=None)
        return cls(value, centred=frame[centred_column].to_numpy(dtype=float))

    @property
    def ranking(self) -> np.ndarray:
        """Return the values that rank regions; NaN where there is no value."""
        if self.centred is None:
            return self.value
        return np.where(np.isfinite(self.value), self.centred, np.nan)

    @property
    def on_one_scale(self) -> np.ndarray:
        """Return the probabilities as if all folds' models had the same base and spread.

        They order regions as :attr:`ranking` does. Readers' scores are combined with them.
        """
        return self.value if self.centred is None else np.asarray(expit(self.ranking))


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without the copies and conversions of
    ``asdict``.
    """
    return dict(vars(value))


def _tool_measures(
    regions: _RegionColumns,
    belief: _Score,
    images: _Score,
    wide: pd.DataFrame | None,
    given: Given | None,
    resampling: dict[str, int],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return measures of readers with the classifier, and readers' probabilities with it.

    In the first result, ``assisted`` measures the readers with the classifier, and ``ceiling`` says
    how near to the readers' mean a classifier can come. Each is None where it cannot be measured,
    for example if the learner gives no probability. The second result has, for each reader id, the
    probability of every region that combines the reader's score with the classifier.
    """
    measures: dict[str, Any] = {"assisted": None, "ceiling": None, "assisted_note": ""}
    if wide is None:
        measures["assisted_note"] = "no readers"
    if not is_probability(images.value[np.isfinite(images.value)]):
        return {**measures, "assisted_note": "the learner gives no probability"}, {}
    # Without readers there is nothing more to measure.
    if wide is None:
        return measures, {}
    scores = wide.to_numpy(dtype=float).T
    reader_ids = list(wide.columns)
    measures["ceiling"] = readers_ceiling(
        regions.truth,
        scores,
        belief.value,
        regions.patients,
        reader_ids,
        ranking=belief.on_one_scale,
        **resampling,
    )
    # In a prediction the trained models have already combined scores and probabilities.
    given_with_tool = None if given is None else given.with_tool[reader_ids].to_numpy(float).T
    try:
        measures["assisted"], with_tool = assist(
            regions.truth,
            scores,
            images.on_one_scale,
            regions.patients,
            reader_ids,
            given=given_with_tool,
        )
    except CadError as error:
        return {**measures, "assisted_note": str(error)}, {}
    return measures, with_tool


def _sizes(columns: _RegionColumns, score: np.ndarray) -> Sizes:
    """Count regions and patients; a region without a score is not predicted."""
    predicted = np.isfinite(score)
    return Sizes(
        rois=len(predicted),
        patients=len(np.unique(columns.patients)),
        predicted=int(predicted.sum()),
        not_predicted=int((~predicted).sum()),
        with_histology=int(np.isfinite(columns.truth).sum()),
        with_consensus=int(np.isfinite(columns.consensus).sum()),
    )


def _conformal(
    columns: _RegionColumns, ranking: np.ndarray, given: Given | None
) -> tuple[dict[str, list[ConformalLevel]] | None, tuple[np.ndarray, np.ndarray]]:
    """Measure conformal sets; return the measures, and p-values for benign and for malignant.

    A conformal set has the classes (benign, malignant) that are plausible for a region: those whose
    p-value exceeds a level. If histology does not have both classes, the measures are None and the
    p-values NaN.
    """
    truths = columns.truth[np.isfinite(columns.truth) & np.isfinite(ranking)]
    if not ((truths == 1).any() and (truths == 0).any()):
        unknown = np.full(len(ranking), np.nan)
        return None, (unknown, unknown.copy())
    if given is None:
        # In a validation the conformal p-values of a region are calibrated on the other patients.
        # In a prediction they come from the models.
        p_values = leave_patient_out_p_values(columns.truth, ranking, columns.patients)
    else:
        p_values = given.p_benign, given.p_malignant
    p_benign, p_malignant = p_values
    measures = conformal_summary(
        columns.truth, ranking, columns.patients, p_benign=p_benign, p_malignant=p_malignant
    )
    return measures, p_values


def _fold(fold: Fold, names: list[str] | None) -> FoldResult:
    """Return the outcome of a fold, with the names of its features in place of their numbers.

    If no ``names`` are given, the numbers are kept, as texts.
    """
    features = None
    if fold.features is not None:
        features = [names[i] if names else str(i) for i in fold.features]
    return FoldResult(
        name=fold.name,
        n_train=fold.n_train,
        n_unlabelled=fold.n_unlabelled,
        n_test=len(fold.rows),
        selected=fold.selected,
        features=features,
        warnings=fold.warnings,
        error=fold.error,
        base=fold.base,
        spread=fold.spread,
    )


def _counts_of_kinds(frame: pd.DataFrame) -> dict[str, int]:
    """Return the number of regions with each kind of label; empty if the kinds are not known."""
    if "label_kind" not in frame:
        return {}
    counts = frame["label_kind"].value_counts().sort_index()
    return {str(kind): int(count) for kind, count in counts.items()}


def _warnings(
    columns: _RegionColumns,
    score: np.ndarray,
    histology: Comparison | None,
    consensus: Comparison | None,
) -> list[str]:
    """Return sentences on what limits the numbers: missing values, and warnings of comparisons."""
    warnings = []
    regions = len(columns.truth)
    without_histology = int(np.isnan(columns.truth).sum())
    without_prediction = int((~np.isfinite(score)).sum())
    # Without any histology there is no comparison with it to qualify.
    if 0 < without_histology < regions:
        warnings.append(
            f"histology is known for {regions - without_histology} of {regions} ROIs; "
            "the comparison with histology is made on those"
        )
    if without_prediction:
        warnings.append(f"{without_prediction} of {regions} ROIs have no prediction")
    for title, comparison in (("histology", histology), ("readers", consensus)):
        if comparison is not None:
            warnings += [f"against {title}: {text}" for text in comparison.warnings]
    return warnings
