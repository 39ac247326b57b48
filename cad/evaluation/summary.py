"""Everything a run says about its own predictions, as one nested dict: ``metrics.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.evaluation import metrics
from cad.evaluation.conformal import conformal_summary
from cad.evaluation.crossval import OutOfFold
from cad.evaluation.intervals import Interval, bootstrap, clustered_auc, delong_auc
from cad.evaluation.mrmc import against_readers
from cad.evaluation.readers import agreement
from cad.evaluation.reject import decide, reject_curve, reject_point
from cad.settings import DecisionSettings

DEFAULT_DECISION = DecisionSettings()

FEW_PATIENTS = 10  # below, an interval over patients is too wide to mean anything
CLASS_PATIENTS = 2  # patients that must have regions of each class before a curve is drawn


def evaluate(
    frame: pd.DataFrame,
    *,
    reader_scores: pd.DataFrame | None = None,
    decision: DecisionSettings = DEFAULT_DECISION,
    folds: OutOfFold | None = None,
    feature_names: list[str] | None = None,
    null: dict[str, Any] | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure predictions against histology and against the readers.

    Parameters
    ----------
    frame : DataFrame
        One row per ROI: ``participant_id, roi_id``; ``probability`` (NaN where none could be
        given); ``truth``, 1 or 0 by histology, NaN where unknown; ``p``, the readers' mean
        probability, NaN without readers. Optional: ``label_kind`` (counted),
        ``decision_value`` (stands in for the AUC where a learner has no probability at all);
        ``decision``, benign, refer or malignant, where it is not by P- and P+ alone.
    reader_scores : DataFrame, optional
        ``participant_id, roi_id, reader_id, probability``, one row per score
        (:func:`cad.labels.consensus.reader_probabilities`).
    decision : DecisionSettings
        Costs of errors and of referring; P- and P+ follow from them.
    folds : OutOfFold, optional
        For what each fold selected, warned about, or why it failed.
    feature_names : list of str, optional
        Names for the columns that selection kept.
    null : dict, optional
        Result of :func:`cad.evaluation.null.permutation_null`, passed through.
    bootstraps : int
        Patient resamples for the intervals of everything but the AUC.
    seed : int
        Seed of the resampling.

    Returns
    -------
    dict
        JSON-safe (NaN is ``None``, only str, float, int, bool, list, dict)::

            n            rois, patients, predicted, not_predicted, with_histology, with_consensus
            label_kinds  {kind: count}
            warnings     [sentence]
            thresholds   {lower, upper}
            histology    COMPARISON or null
            consensus    COMPARISON or null: readers' mean, thresholded at .5 for AUC and rates,
                         as it is for kl, alignment_error, cross_entropy, brier
            readers      {reader_id: {n, auc: INTERVAL, roc, consensus_of_others: {n, ties,
                         auc: INTERVAL}}}, each against histology, and CAD beside it on the same
                         ROIs as cad_auc: INTERVAL
            agreement    {kappa: [{a, b, n, value}], icc: {n, single, average, consistency},
                         krippendorff_alpha: {n, interval, ordinal}} or null
            cad_vs_readers  {cad_auc, reader_aucs, difference, lower, upper, t, df, p, n, omitted}
                         (Obuchowski-Rockette, readers and patients random), or null, with the
                         reason in ``cad_vs_readers_note``
            decisions    {benign|refer|malignant: {n, malignant, benign, unknown}}
            reject       {point: POINT of the decisions, curve: {scale, lower, upper, reject_rate,
                         error_rate, cost, sensitivity, ppv, error_reject_ratio}} against
                         histology (readers' consensus where that has too few regions), or null;
                         ``against`` says which
            conformal    {levels: [{error, coverage_malignant, coverage_benign,
                         coverage_malignant_roi, coverage_benign_roi, empty, single, both}],
                         p_benign, p_malignant (one per row of ``frame``)} or null
            folds        [{name, n_train, n_test, selected, features, warnings, error}]
            null         see cad.evaluation.null, or null

            INTERVAL     {value, lower, upper, method, level}
            COMPARISON   {n, patients, positive, negative, unknown, ties, not_predicted, warnings,
                          auc: INTERVAL (patient-clustered, the primary one),
                          auc_roi_level: INTERVAL (DeLong), auc_bootstrap: INTERVAL,
                          measures: {name: INTERVAL} for accuracy, average_precision, partial_auc,
                            kl, kl_one_sided, alignment_error, cross_entropy, brier,
                            calibration_intercept, calibration_slope,
                          operating_points: [{threshold, tp, fp, tn, fn, sensitivity: INTERVAL,
                            specificity, ppv, npv}] at P-, .5 and P+,
                          roc: {fpr, tpr, threshold}, precision_recall: {precision, recall},
                          calibration_curve: {predicted, observed, lower, upper, n},
                          decision_curve: {threshold, model, all, none}}; the last four are null
                          unless two patients have malignant and two have benign regions
    """
    frame = frame.reset_index(drop=True)
    score = _score(frame)
    known = np.isfinite(score)
    truth = frame["truth"].to_numpy(dtype=float)
    consensus = frame["p"].to_numpy(dtype=float)
    patients = frame["participant_id"].astype(str).to_numpy()
    thresholds = decision.thresholds
    decided = _decided(frame, score, thresholds)
    options = _Options((thresholds[0], 0.5, thresholds[1]), bootstraps, seed)
    result: dict[str, Any] = {
        "n": {
            "rois": len(frame),
            "patients": len(np.unique(patients)),
            "predicted": int(known.sum()),
            "not_predicted": int((~known).sum()),
            "with_histology": int(np.isfinite(truth).sum()),
            "with_consensus": int(np.isfinite(consensus).sum()),
        },
        "label_kinds": _kinds(frame),
        "warnings": _warnings(frame, known, truth),
        "thresholds": {"lower": thresholds[0], "upper": thresholds[1]},
        "histology": _comparison(truth, truth, score, patients, options),
        "consensus": _against_consensus(consensus, score, patients, options),
        **_readers(frame, score, reader_scores),
        "decisions": _decisions(decided, truth),
        "reject": _reject(truth, consensus, score, decided, patients, decision),
        "conformal": _conformal(truth, score, patients),
        "folds": _folds(folds, feature_names),
        "null": null,
    }
    for name, title in (("histology", "histology"), ("consensus", "readers")):
        said = (result[name] or {}).get("warnings", [])
        result["warnings"] += [f"against {title}: {text}" for text in said]
    return json_safe(result)


@dataclass(frozen=True)
class _Options:
    """What the comparisons share: operating points, resamples, seed."""

    thresholds: tuple[float, ...]
    bootstraps: int
    seed: int


_MEASURES = (
    "accuracy",
    "average_precision",
    "partial_auc",
    "kl",
    "kl_one_sided",
    "alignment_error",
    "cross_entropy",
    "brier",
    "calibration_intercept",
    "calibration_slope",
)
_RATES = ("sensitivity", "specificity", "ppv", "npv")


def _comparison(
    truth: np.ndarray,
    target: np.ndarray,
    probability: np.ndarray,
    patients: np.ndarray,
    options: _Options,
    ties: int = 0,
) -> dict[str, Any] | None:
    """One COMPARISON (see :func:`evaluate`); None where no ROI has both truth and probability."""
    usable = np.isfinite(truth) & np.isfinite(probability)
    if not usable.any():
        return None
    y, t, q, group = (v[usable] for v in (truth, target, probability, patients))
    is_probability = _is_probability(q)
    ends = bootstrap(
        lambda rows: _values(y[rows], t[rows], q[rows], options.thresholds, is_probability),
        group,
        options.bootstraps,
        options.seed,
    )
    values = _values(y, t, q, options.thresholds, is_probability)
    method = f"{options.bootstraps} patient resamples"
    interval = [
        Interval(float(v), float(low), float(high), method)
        for v, (low, high) in zip(values, ends, strict=True)
    ]
    return {
        "n": len(y),
        "patients": len(np.unique(group)),
        "positive": int(y.sum()),
        "negative": int((1 - y).sum()),
        "unknown": int(np.isnan(truth).sum()),
        "not_predicted": int((np.isfinite(truth) & ~np.isfinite(probability)).sum()),
        "ties": ties,
        "warnings": _comparison_warnings(y, q, group),
        "auc": clustered_auc(y, q, group),
        "auc_roi_level": delong_auc(y, q),
        "auc_bootstrap": interval[0],
        "measures": dict(zip(_MEASURES, interval[1:], strict=False)),
        "operating_points": _operating_points(y, q, options, interval, is_probability),
        **_curves(y, q, _enough(y, group), is_probability),
    }


def _enough(y: np.ndarray, group: np.ndarray) -> bool:
    """Whether each class has the patients that a curve needs."""
    return min(len(np.unique(group[y == label])) for label in (0, 1)) >= CLASS_PATIENTS


def _curves(
    y: np.ndarray, q: np.ndarray, enough: bool, is_probability: bool
) -> dict[str, dict[str, Any] | None]:
    names = ("roc", "precision_recall", "calibration_curve", "decision_curve")
    if not enough:
        return dict.fromkeys(names)
    fpr, tpr, threshold = metrics.roc_curve(y, q)
    precision, recall = metrics.precision_recall_curve(y, q)
    return {
        "roc": {"fpr": fpr, "tpr": tpr, "threshold": threshold},
        "precision_recall": {"precision": precision, "recall": recall},
        "calibration_curve": metrics.calibration_curve(y, q) if is_probability else None,
        "decision_curve": metrics.decision_curve(y, q) if is_probability else None,
    }


def json_safe(value: Any) -> Any:
    """Plain JSON types only: arrays become lists, dataclasses dicts, NaN and infinity None."""
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


def _values(
    y: np.ndarray,
    t: np.ndarray,
    q: np.ndarray,
    thresholds: tuple[float, ...],
    is_probability: bool,
) -> np.ndarray:
    """AUC, the measures in the order of ``_MEASURES``, then four rates per threshold."""
    ranking = [metrics.auc(y, q)]
    if not is_probability:
        rest = [float("nan")] * (len(_MEASURES) + len(_RATES) * len(thresholds))
        rest[1:3] = metrics.average_precision(y, q), metrics.partial_auc(y, q)
        return np.array(ranking + rest)
    fit = metrics.calibration(y, q)
    measures = [
        metrics.accuracy(y, q),
        metrics.average_precision(y, q),
        metrics.partial_auc(y, q),
        metrics.kl(t, q),
        metrics.kl_one_sided(t, q),
        metrics.alignment_error(t, q),
        metrics.cross_entropy(t, q),
        metrics.brier(t, q),
        fit.intercept,
        fit.slope,
    ]
    tables = [metrics.counts(y, q, threshold) for threshold in thresholds]
    return np.array(ranking + measures + [getattr(c, rate) for c in tables for rate in _RATES])


def _operating_points(
    y: np.ndarray,
    q: np.ndarray,
    options: _Options,
    interval: list[Interval],
    is_probability: bool,
) -> list[dict[str, Any]]:
    if not is_probability:
        return []
    rates = interval[1 + len(_MEASURES) :]
    return [
        {
            "threshold": threshold,
            **asdict(metrics.counts(y, q, threshold)),
            **dict(zip(_RATES, rates[i * len(_RATES) :], strict=False)),
        }
        for i, threshold in enumerate(options.thresholds)
    ]


def _against_consensus(
    p: np.ndarray, score: np.ndarray, patients: np.ndarray, options: _Options
) -> dict[str, Any] | None:
    truth, ties = metrics.consensus_truth(p)
    return _comparison(truth, p, score, patients, options, ties)


def _readers(
    frame: pd.DataFrame, score: np.ndarray, reader_scores: pd.DataFrame | None
) -> dict[str, Any]:
    nothing: dict[str, Any] = {"readers": {}, "agreement": None, "cad_vs_readers": None}
    if reader_scores is None or len(reader_scores) == 0:
        return {**nothing, "cad_vs_readers_note": "no readers"}
    key = ["participant_id", "roi_id"]
    wide = reader_scores.pivot(index=key, columns="reader_id", values="probability")
    wide = wide.reindex(pd.MultiIndex.from_frame(frame[key]))
    table = wide.to_numpy(dtype=float)
    truth = frame["truth"].to_numpy(dtype=float)
    patients = frame["participant_id"].astype(str).to_numpy()
    names = [str(reader) for reader in wide.columns]
    note, beside = "", None
    try:
        beside = against_readers(truth, score, table.T, patients)
    except CadError as error:
        note = str(error)
    return {
        "readers": {
            name: _one_reader(j, table, truth, score, patients) for j, name in enumerate(names)
        },
        "agreement": agreement(table.T, names) if len(names) > 1 else None,
        "cad_vs_readers": beside,
        "cad_vs_readers_note": note,
    }


def _one_reader(
    j: int, table: np.ndarray, truth: np.ndarray, score: np.ndarray, patients: np.ndarray
) -> dict[str, Any]:
    own = table[:, j]
    use = np.isfinite(own) & np.isfinite(truth)
    both = use & np.isfinite(score)
    fpr, tpr, threshold = metrics.roc_curve(truth[use], own[use])
    others = np.delete(table, j, axis=1)
    counted = np.isfinite(others).sum(axis=1)
    total = np.nansum(others, axis=1)
    mean = np.divide(total, counted, out=np.full(len(total), np.nan), where=counted > 0)
    consensus, ties = metrics.consensus_truth(np.where(np.isfinite(own), mean, np.nan))
    seen = np.isfinite(own) & np.isfinite(consensus)
    return {
        "n": int(use.sum()),
        "auc": clustered_auc(truth[use], own[use], patients[use]),
        "cad_auc": clustered_auc(truth[both], score[both], patients[both]),
        "roc": {"fpr": fpr, "tpr": tpr, "threshold": threshold},
        "consensus_of_others": {
            "n": int(seen.sum()),
            "ties": ties,
            "auc": clustered_auc(consensus[seen], own[seen], patients[seen]),
        },
    }


_DECISIONS = {0: "benign", -1: "refer", 1: "malignant"}


def _decided(frame: pd.DataFrame, score: np.ndarray, thresholds: tuple[float, float]) -> np.ndarray:
    """The word of every ROI, empty without a score."""
    if "decision" in frame:
        return frame["decision"].to_numpy(dtype=str)
    words = np.array([_DECISIONS[code] for code in decide(score, *thresholds).tolist()], dtype=str)
    return np.where(np.isfinite(score), words, "")


def _decisions(decided: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    groups = {name: decided == name for name in _DECISIONS.values()}
    return {
        name: {
            "n": int(rows.sum()),
            "malignant": int(np.sum(truth[rows] == 1)),
            "benign": int(np.sum(truth[rows] == 0)),
            "unknown": int(np.isnan(truth[rows]).sum()),
        }
        for name, rows in groups.items()
    }


def _reject(
    truth: np.ndarray,
    consensus: np.ndarray,
    score: np.ndarray,
    decided: np.ndarray,
    patients: np.ndarray,
    decision: DecisionSettings,
) -> dict[str, Any] | None:
    code = np.select([decided == word for word in _DECISIONS.values()], list(_DECISIONS), -1)
    for against, y in (("histology", truth), ("readers", metrics.consensus_truth(consensus)[0])):
        usable = np.isfinite(y) & np.isfinite(score)
        y, q = y[usable], score[usable]
        if _enough(y, patients[usable]) and _is_probability(q):
            point = reject_point(y, code[usable], decision)
            return {"against": against, "point": point, "curve": reject_curve(y, q, decision)}
    return None


def _conformal(truth: np.ndarray, score: np.ndarray, patients: np.ndarray) -> dict[str, Any] | None:
    usable = np.isfinite(truth) & np.isfinite(score)
    both = (truth[usable] == 1).any() and (truth[usable] == 0).any()
    return conformal_summary(truth, score, patients) if both else None


def _is_probability(q: np.ndarray) -> bool:
    return bool(((q >= 0) & (q <= 1)).all())


def _folds(folds: OutOfFold | None, names: list[str] | None) -> list[dict[str, Any]]:
    if folds is None:
        return []
    return [
        {
            "name": fold.name,
            "n_train": fold.n_train,
            "n_test": len(fold.rows),
            "selected": fold.selected,
            "features": _named(fold.features, names),
            "warnings": fold.warnings,
            "error": fold.error,
        }
        for fold in folds.folds
    ]


def _named(columns: list[int] | None, names: list[str] | None) -> list[str] | None:
    if columns is None:
        return None
    return [names[i] if names is not None else str(i) for i in columns]


def _score(frame: pd.DataFrame) -> np.ndarray:
    probability = frame["probability"].to_numpy(dtype=float)
    if np.isnan(probability).all() and "decision_value" in frame:
        return frame["decision_value"].to_numpy(dtype=float)
    return probability


def _kinds(frame: pd.DataFrame) -> dict[str, int]:
    if "label_kind" not in frame:
        return {}
    return {str(k): int(v) for k, v in frame["label_kind"].value_counts().sort_index().items()}


def _warnings(frame: pd.DataFrame, known: np.ndarray, truth: np.ndarray) -> list[str]:
    said = []
    missing = int(np.isnan(truth).sum())
    if 0 < missing < len(frame):
        said.append(
            f"histology is known for {len(frame) - missing} of {len(frame)} ROIs; "
            "the comparison with histology is made on those"
        )
    if not known.all():
        said.append(f"{int((~known).sum())} of {len(frame)} ROIs have no prediction")
    return said


def _comparison_warnings(y: np.ndarray, q: np.ndarray, group: np.ndarray) -> list[str]:
    if not _enough(y, group):
        found = [
            f"{int((y == label).sum())} {name} (patients: {len(np.unique(group[y == label]))})"
            for label, name in ((1, "malignant"), (0, "benign"))
        ]
        return [
            f"not enough regions: {' and '.join(found)}; without {CLASS_PATIENTS} patients of each "
            "there is no curve and no interval of the AUC"
        ]
    said = []
    if np.ptp(q) == 0:
        said.append("all probabilities are equal: AUC is .5 by definition, no calibration slope")
    if len(np.unique(group)) < FEW_PATIENTS:
        said.append(
            f"{len(np.unique(group))} patients, fewer than {FEW_PATIENTS}: "
            "intervals are too wide to mean anything"
        )
    return said
