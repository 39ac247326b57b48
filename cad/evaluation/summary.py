"""Everything a run says about its own predictions: what becomes ``metrics.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.evaluation import metrics
from cad.evaluation.assisted import Assisted, assist
from cad.evaluation.ceiling import Ceiling, readers_ceiling
from cad.evaluation.comparison import Comparison, compare_with_truth, is_probability
from cad.evaluation.conformal import ConformalSummary, conformal_summary
from cad.evaluation.crossval import Fold, OutOfFold
from cad.evaluation.decisions import (
    DecisionCount,
    Reject,
    Thresholds,
    count_decisions,
    decided_words,
    reject_summary,
)
from cad.evaluation.mrmc import AgainstReaders
from cad.evaluation.null import PermutationNull
from cad.evaluation.operating import OperatingChoice
from cad.evaluation.patient_level import PatientLevel, patient_level
from cad.evaluation.reader_results import ReaderResult, reader_results, score_table
from cad.evaluation.readers import Agreement
from cad.files import json_safe
from cad.settings import DecisionSettings

DEFAULT_DECISION = DecisionSettings()


@dataclass(frozen=True)
class Sizes:
    """Count the regions and the patients, and what is known of them."""

    rois: int
    patients: int
    predicted: int
    not_predicted: int
    with_histology: int
    with_consensus: int


@dataclass(frozen=True)
class FoldResult:
    """Hold what one fold selected, its warnings, or why it failed."""

    name: str
    n_train: int
    n_test: int
    selected: dict[str, Any]
    features: list[str] | None
    warnings: list[str]
    error: str


@dataclass(frozen=True)
class Summary:
    """Hold the content of ``metrics.json``, key by key.

    Parameters
    ----------
    n : Sizes
        Regions and patients.
    label_kinds : dict of str to int
        Regions by what they told the learner.
    warnings : list of str
        Sentences for whoever reads the numbers.
    thresholds : Thresholds
        P- and P+.
    histology, consensus : Comparison or None
        Against histology; against the readers' mean, thresholded at .5 for AUC and rates, as it
        is for the measures of a probability.
    readers : dict of str to ReaderResult
        Each reader against histology.
    agreement : Agreement or None
        Of the readers.
    cad_vs_readers : AgainstReaders or None
        With the reason in ``cad_vs_readers_note``.
    assisted : Assisted or None
        Readers with the tool, with the reason for None in ``assisted_note``.
    ceiling : Ceiling or None
        What the readers allow.
    patient_level : PatientLevel or None
        Probability of any malignant region, and its measures.
    operating_point : OperatingChoice or None
        Thresholds with an aim, where the settings have one.
    decisions : dict of str to DecisionCount
        benign, refer, malignant.
    reject : Reject or None
        None without regions of both classes from enough patients.
    conformal : ConformalSummary or None
        None without both histologies.
    folds : list of FoldResult
        Empty for predictions of a trained model.
    null : PermutationNull or None
        When one was asked for.
    """

    n: Sizes
    label_kinds: dict[str, int]
    warnings: list[str]
    thresholds: Thresholds
    histology: Comparison | None
    consensus: Comparison | None
    readers: dict[str, ReaderResult]
    agreement: Agreement | None
    cad_vs_readers: AgainstReaders | None
    cad_vs_readers_note: str
    assisted: Assisted | None
    assisted_note: str
    ceiling: Ceiling | None
    patient_level: PatientLevel | None
    operating_point: OperatingChoice | None
    decisions: dict[str, DecisionCount]
    reject: Reject | None
    conformal: ConformalSummary | None
    folds: list[FoldResult] = field(default_factory=list)
    null: PermutationNull | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-safe content of ``metrics.json``."""
        content = _fields(self)
        content["null"] = None if self.null is None else self.null.as_dict()
        for name in ("assisted", "ceiling", "operating_point"):
            part = content[name]
            content[name] = part and {**asdict(part), "sentence": part.sentence()}
        safe: dict[str, Any] = json_safe(content)
        return safe


def evaluate(
    frame: pd.DataFrame,
    *,
    reader_scores: pd.DataFrame | None = None,
    decision: DecisionSettings = DEFAULT_DECISION,
    folds: OutOfFold | None = None,
    feature_names: list[str] | None = None,
    null: PermutationNull | None = None,
    operating_point: OperatingChoice | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the content of ``metrics.json``; parameters as in :func:`summarise`."""
    return summarise(
        frame,
        reader_scores=reader_scores,
        decision=decision,
        folds=folds,
        feature_names=feature_names,
        null=null,
        operating_point=operating_point,
        bootstraps=bootstraps,
        seed=seed,
    ).as_dict()


def summarise(
    frame: pd.DataFrame,
    *,
    reader_scores: pd.DataFrame | None = None,
    decision: DecisionSettings = DEFAULT_DECISION,
    folds: OutOfFold | None = None,
    feature_names: list[str] | None = None,
    null: PermutationNull | None = None,
    operating_point: OperatingChoice | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
) -> Summary:
    """Measure predictions against histology and against the readers.

    Parameters
    ----------
    frame : DataFrame
        One row per region: ``participant_id, roi_id``; ``probability``; ``truth``, 1 or 0 by
        histology; ``p``, the readers' mean; each NaN where unknown. Optional: ``label_kind``;
        ``decision_value``, where a learner has no probability; ``decision``, if not by threshold.
    reader_scores : DataFrame, optional
        ``participant_id, roi_id, reader_id, probability``, one row per score.
    decision : DecisionSettings
        Costs of errors and of referring; P- and P+ follow from them.
    folds, feature_names
        What each fold did, and names for the columns that selection kept.
    null, operating_point
        Passed through; the operating point's thresholds replace those of the costs.
    bootstraps, seed : int
        Patient resamples for the intervals of everything but the AUC, and their seed.
    """
    frame = frame.reset_index(drop=True)
    columns = _columns(frame)
    truth, consensus, score, patients = columns.truth, columns.consensus, columns.score, columns.ids
    lower, upper = operating_point.thresholds if operating_point else decision.thresholds
    resampling = {"bootstraps": bootstraps, "seed": seed}
    options: dict[str, Any] = {"thresholds": (lower, 0.5, upper), **resampling}
    majority, ties = metrics.consensus_truth(consensus)
    histology = compare_with_truth(truth, truth, score, patients, **options)
    readers = compare_with_truth(majority, consensus, score, patients, ties=ties, **options)
    wide = score_table(frame, reader_scores)
    decided = decided_words(frame, score, (lower, upper))
    return Summary(
        n=_sizes(columns),
        label_kinds=_kinds(frame),
        warnings=_warnings(columns, histology, readers),
        thresholds=Thresholds(lower, upper),
        histology=histology,
        consensus=readers,
        **_fields(reader_results(truth, score, patients, wide)),
        **_tool(columns, wide, resampling),
        operating_point=operating_point,
        decisions=count_decisions(decided, truth),
        reject=reject_summary(truth, consensus, score, patients, decided, decision),
        conformal=_conformal(columns),
        folds=[_fold(fold, feature_names) for fold in folds.folds] if folds else [],
        null=null,
    )


@dataclass(frozen=True)
class _Columns:
    """Hold the columns of a frame as arrays of shape (n,), NaN where unknown."""

    truth: np.ndarray
    consensus: np.ndarray
    score: np.ndarray
    ids: np.ndarray


def _columns(frame: pd.DataFrame) -> _Columns:
    score = frame["probability"].to_numpy(dtype=float)
    if np.isnan(score).all() and "decision_value" in frame:
        score = frame["decision_value"].to_numpy(dtype=float)
    return _Columns(
        frame["truth"].to_numpy(dtype=float),
        frame["p"].to_numpy(dtype=float),
        score,
        frame["participant_id"].astype(str).to_numpy(),
    )


def _fields(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields, not copied and not turned into dicts."""
    return dict(vars(value))


def _tool(
    columns: _Columns, wide: pd.DataFrame | None, resampling: dict[str, int]
) -> dict[str, Any]:
    """Return what needs a probability: readers with the tool, their ceiling, the patients."""
    truth, q, patients = columns.truth, columns.score, columns.ids
    found: dict[str, Any] = dict.fromkeys(("assisted", "ceiling", "patient_level"))
    found["assisted_note"] = "no readers" if wide is None else ""
    if not is_probability(q[np.isfinite(q)]):
        return {**found, "assisted_note": "the learner gives no probability"}
    found["patient_level"] = patient_level(truth, q, patients, **resampling)
    if wide is None:
        return found
    scores, names = wide.to_numpy(dtype=float).T, list(wide.columns)
    found["ceiling"] = readers_ceiling(truth, scores, q, patients, names, **resampling)
    try:
        found["assisted"] = assist(truth, scores, q, patients, names)
    except CadError as error:
        found["assisted_note"] = str(error)
    return found


def _sizes(columns: _Columns) -> Sizes:
    known = np.isfinite(columns.score)
    return Sizes(
        rois=len(known),
        patients=len(np.unique(columns.ids)),
        predicted=int(known.sum()),
        not_predicted=int((~known).sum()),
        with_histology=int(np.isfinite(columns.truth).sum()),
        with_consensus=int(np.isfinite(columns.consensus).sum()),
    )


def _conformal(columns: _Columns) -> ConformalSummary | None:
    truth, score = columns.truth, columns.score
    known = truth[np.isfinite(truth) & np.isfinite(score)]
    both = (known == 1).any() and (known == 0).any()
    return conformal_summary(truth, score, columns.ids) if both else None


def _fold(fold: Fold, names: list[str] | None) -> FoldResult:
    kept = fold.features
    features = None if kept is None else [names[i] if names else str(i) for i in kept]
    return FoldResult(
        name=fold.name,
        n_train=fold.n_train,
        n_test=len(fold.rows),
        selected=fold.selected,
        features=features,
        warnings=fold.warnings,
        error=fold.error,
    )


def _kinds(frame: pd.DataFrame) -> dict[str, int]:
    if "label_kind" not in frame:
        return {}
    return {str(k): int(v) for k, v in frame["label_kind"].value_counts().sort_index().items()}


def _warnings(
    columns: _Columns, histology: Comparison | None, consensus: Comparison | None
) -> list[str]:
    said = []
    n, missing = len(columns.truth), int(np.isnan(columns.truth).sum())
    unscored = int((~np.isfinite(columns.score)).sum())
    if 0 < missing < n:
        said.append(
            f"histology is known for {n - missing} of {n} ROIs; "
            "the comparison with histology is made on those"
        )
    if unscored:
        said.append(f"{unscored} of {n} ROIs have no prediction")
    for title, part in (("histology", histology), ("readers", consensus)):
        said += [f"against {title}: {text}" for text in (part.warnings if part else [])]
    return said
