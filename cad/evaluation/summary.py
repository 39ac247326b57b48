"""Everything a run says about its own predictions: what becomes ``metrics.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

import numpy as np
import pandas as pd

from cad.evaluation import metrics
from cad.evaluation.comparison import (
    Comparison,
    compare_with_truth,
    enough_patients,
    is_probability,
)
from cad.evaluation.conformal import ConformalSummary, conformal_summary
from cad.evaluation.crossval import Fold, OutOfFold
from cad.evaluation.mrmc import AgainstReaders
from cad.evaluation.null import PermutationNull
from cad.evaluation.reader_results import ReaderResult, reader_results
from cad.evaluation.readers import Agreement
from cad.evaluation.reject import RejectPoint, decide, reject_curve, reject_point
from cad.settings import DecisionSettings

DEFAULT_DECISION = DecisionSettings()
_DECISIONS = {0: "benign", -1: "refer", 1: "malignant"}


@dataclass(frozen=True)
class Sizes:
    """How many regions and patients there are, and what is known of them."""

    rois: int
    patients: int
    predicted: int
    not_predicted: int
    with_histology: int
    with_consensus: int


@dataclass(frozen=True)
class Thresholds:
    """P- and P+: benign below the first, malignant above the second."""

    lower: float
    upper: float


@dataclass(frozen=True)
class DecisionCount:
    """Regions of one decision, by histology."""

    n: int
    malignant: int
    benign: int
    unknown: int


@dataclass(frozen=True)
class Reject:
    """Errors and cost of referring.

    Parameters
    ----------
    against : str
        ``histology``, or ``readers`` where that has too few regions.
    point : RejectPoint
        Of the run's decisions.
    curve : dict of str to list of float
        See :func:`cad.evaluation.reject.reject_curve`.
    """

    against: str
    point: RejectPoint
    curve: dict[str, list[float]]


@dataclass(frozen=True)
class FoldResult:
    """What one fold selected, warned about, or why it failed."""

    name: str
    n_train: int
    n_test: int
    selected: dict[str, Any]
    features: list[str] | None
    warnings: list[str]
    error: str


@dataclass(frozen=True)
class Summary:
    """Content of ``metrics.json``, key by key.

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
    decisions: dict[str, DecisionCount]
    reject: Reject | None
    conformal: ConformalSummary | None
    folds: list[FoldResult] = field(default_factory=list)
    null: PermutationNull | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-safe content of ``metrics.json``."""
        null = None if self.null is None else self.null.as_dict()
        safe: dict[str, Any] = json_safe({**_fields(self), "null": null})
        return safe


def evaluate(
    frame: pd.DataFrame,
    *,
    reader_scores: pd.DataFrame | None = None,
    decision: DecisionSettings = DEFAULT_DECISION,
    folds: OutOfFold | None = None,
    feature_names: list[str] | None = None,
    null: PermutationNull | None = None,
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
    bootstraps: int = 1000,
    seed: int = 0,
) -> Summary:
    """Measure predictions against histology and against the readers.

    Parameters
    ----------
    frame : DataFrame
        One row per region: ``participant_id, roi_id``; ``probability`` (NaN where none could be
        given); ``truth``, 1 or 0 by histology, NaN where unknown; ``p``, the readers' mean, NaN
        without readers. Optional: ``label_kind`` (counted); ``decision_value`` (stands in where a
        learner has no probability at all); ``decision``, where it is not by P- and P+ alone.
    reader_scores : DataFrame, optional
        ``participant_id, roi_id, reader_id, probability``, one row per score.
    decision : DecisionSettings
        Costs of errors and of referring; P- and P+ follow from them.
    folds, feature_names
        What each fold did, and names for the columns that selection kept.
    null : PermutationNull, optional
        Passed through.
    bootstraps, seed : int
        Patient resamples for the intervals of everything but the AUC, and their seed.
    """
    frame = frame.reset_index(drop=True)
    columns = _columns(frame)
    truth, consensus, score, patients = columns.truth, columns.consensus, columns.score, columns.ids
    lower, upper = decision.thresholds
    options: dict[str, Any] = {
        "thresholds": (lower, 0.5, upper),
        "bootstraps": bootstraps,
        "seed": seed,
    }
    majority, ties = metrics.consensus_truth(consensus)
    histology = compare_with_truth(truth, truth, score, patients, **options)
    readers = compare_with_truth(majority, consensus, score, patients, ties=ties, **options)
    beside = reader_results(frame, score, reader_scores)
    decided = _decided(frame, score, (lower, upper))
    return Summary(
        n=_sizes(columns),
        label_kinds=_kinds(frame),
        warnings=_warnings(columns, histology, readers),
        thresholds=Thresholds(lower, upper),
        histology=histology,
        consensus=readers,
        **_fields(beside),
        decisions={word: _count(truth[decided == word]) for word in _DECISIONS.values()},
        reject=_reject(columns, decided, decision),
        conformal=_conformal(columns),
        folds=[_fold(fold, feature_names) for fold in folds.folds] if folds else [],
        null=null,
    )


def json_safe(value: Any) -> Any:
    """Return plain JSON types: arrays as lists, dataclasses as dicts, NaN and infinity as None."""
    if is_dataclass(value) and not isinstance(value, type):
        return json_safe(asdict(value))
    if isinstance(value, dict):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [json_safe(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


@dataclass(frozen=True)
class _Columns:
    """The columns of a frame as arrays of shape (n,), NaN where unknown."""

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


def _decided(frame: pd.DataFrame, score: np.ndarray, thresholds: tuple[float, float]) -> np.ndarray:
    """Return each region's decision, empty where it has no score."""
    if "decision" in frame:
        return frame["decision"].to_numpy(dtype=str)
    words = np.array([_DECISIONS[code] for code in decide(score, *thresholds).tolist()], dtype=str)
    return np.where(np.isfinite(score), words, "")


def _count(truth: np.ndarray) -> DecisionCount:
    return DecisionCount(
        n=len(truth),
        malignant=int(np.sum(truth == 1)),
        benign=int(np.sum(truth == 0)),
        unknown=int(np.isnan(truth).sum()),
    )


def _reject(columns: _Columns, decided: np.ndarray, decision: DecisionSettings) -> Reject | None:
    code = np.select([decided == word for word in _DECISIONS.values()], list(_DECISIONS), -1)
    majority = metrics.consensus_truth(columns.consensus)[0]
    for against, y in (("histology", columns.truth), ("readers", majority)):
        usable = np.isfinite(y) & np.isfinite(columns.score)
        y, q = y[usable], columns.score[usable]
        if enough_patients(y, columns.ids[usable]) and is_probability(q):
            point = reject_point(y, code[usable], decision)
            return Reject(against, point, reject_curve(y, q, decision))
    return None


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
