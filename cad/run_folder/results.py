"""Read a run folder as its pages see it: typed rows, nothing recomputed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cad.errors import CadError
from cad.files import JsonObject
from cad.reading import read_rows, reading
from cad.run_folder.folder import RunFolder
from cad.run_folder.records import read_metrics, read_record
from cad.run_folder.tables import LIKE

SET_ERROR = 0.1  # conformal sets are shown at 90 % confidence


@dataclass(frozen=True)
class RegionResult:
    """Hold one row of ``probabilities.csv``.

    Parameters
    ----------
    patient, study, roi : str
        ``participant_id``, ``study_id``, ``roi_id``.
    label : int
        Value in the label map.
    zone, decision, label_kind, histology, isup : str
        Empty where unknown.
    probability, decision_value, p, eta : float or None
        The classifier's probability and decision value; the readers' mean and spread.
    scores : list of (str, str)
        Reader and score, as given.
    with_tool : list of (str, float)
        Reader, and the probability of malignancy given the reader's score and the classifier.
    patient_probability : float or None
        That any region of the patient is malignant.
    warnings : list of str
        What the run said about this region.
    plausible : list of str or None
        Conformal set at error ``SET_ERROR``; None where the run made none.
    model : str
        The trained model that scored it; empty where a run validates itself.
    reader_values : list of (str, float)
        Reader, and the score as probability of malignancy.
    scales : dict of str to str
        Reader to the scale of the score; without an entry a run of before.
    unlike : str
        The groups of features in which it is unlike the training; empty where it is like it.
    compared : bool
        Whether it was compared with the training at all.
    sector : str
        As drawn by hand in ``rois.tsv``; empty where nobody said.
    psa : float or None
        The patient's, ng/mL.
    outline : (float, float) or None
        Between what the probability moves with the outline; None where nobody asked.
    outlines : str
        Over which outlines: ``20 redrawn``, or readers.
    """

    patient: str
    study: str
    roi: str
    label: int
    zone: str
    probability: float | None
    decision: str
    decision_value: float | None
    p: float | None
    eta: float | None
    label_kind: str
    histology: str
    isup: str
    scores: list[tuple[str, str]]
    with_tool: list[tuple[str, float]]
    patient_probability: float | None
    warnings: list[str]
    plausible: list[str] | None
    model: str
    reader_values: list[tuple[str, float]] = field(default_factory=list)
    scales: dict[str, str] = field(default_factory=dict)
    unlike: str = ""
    compared: bool = False
    sector: str = ""
    psa: float | None = None
    outline: tuple[float, float] | None = None
    outlines: str = ""


@dataclass(frozen=True)
class Reason:
    """Hold one row of ``explanations.csv``: a feature that moved the decision value."""

    feature: str
    value: float | None
    unit: str
    delta: float
    percentile: float | None


@dataclass(frozen=True)
class Results:
    """Hold everything a run folder says, without its images.

    Parameters
    ----------
    folder : RunFolder
        The run folder.
    run, metrics : dict
        ``run.json`` and ``metrics.json``; the latter empty where there is none.
    regions : list of RegionResult
        In the order of ``probabilities.csv``.
    failures : list of dict
        Rows of ``failures.csv``.
    reasons : dict
        ``(study, roi)`` to its explanations, most important first.
    """

    folder: RunFolder
    run: JsonObject
    metrics: JsonObject
    regions: list[RegionResult]
    failures: list[dict[str, str]]
    reasons: dict[tuple[str, str], list[Reason]] = field(default_factory=dict)

    def thresholds_of(self, region: RegionResult) -> tuple[float, float] | None:
        """Return P- and P+ of the model that scored a region."""
        with reading(self.folder.record, "thresholds are two numbers"):
            models = (self.run.get("model") or {}).get("models") or {}
            stated = (models.get(region.model) or {}).get("thresholds")
            return (float(stated[0]), float(stated[1])) if stated else self.thresholds

    @property
    def thresholds(self) -> tuple[float, float] | None:
        """Return P- and P+ of the site's costs, where the run states them."""
        with reading(self.folder.root, "thresholds are two numbers"):
            stated = self.run.get("decision_thresholds")
            if stated:
                return float(stated[0]), float(stated[1])
            stated = self.metrics.get("thresholds")
            return (float(stated["lower"]), float(stated["upper"])) if stated else None


def read_results(root: Path) -> Results:
    """Read a run folder.

    Parameters
    ----------
    root : Path
        Run folder with at least ``run.json`` and ``probabilities.csv``.

    Raises
    ------
    CadError
        For a folder that is no run folder, or a file of it that cannot be read.
    """
    folder = RunFolder(root)
    run = read_record(folder)
    metrics = read_metrics(folder)
    rows = _table(folder.probabilities, needed=True)
    return Results(
        folder=folder,
        run=run,
        metrics=metrics,
        regions=[_region(row, folder.probabilities) for row in rows],
        failures=_table(folder.failures),
        reasons=_reasons(folder.explanations),
    )


def number(text: Any) -> float | None:
    """Return a finite number from a cell, or None."""
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if abs(value) < float("inf") else None


def _table(path: Path, needed: bool = False) -> list[dict[str, str]]:
    if not path.is_file():
        if needed:
            raise CadError(f"no {path.name}: this is not a finished run", file=path)
        return []
    return read_rows(path)


def _region(row: dict[str, str], path: Path) -> RegionResult:
    for column in ("participant_id", "study_id", "roi_id"):
        if not row.get(column):
            raise CadError(f"a row without {column}", file=path)
    benign, malignant = number(row.get("p_benign")), number(row.get("p_malignant"))
    low, high = number(row.get("outline_low")), number(row.get("outline_high"))
    plausible = None
    if benign is not None and malignant is not None:
        named = (("benign", benign), ("malignant", malignant))
        plausible = [name for name, p in named if p > SET_ERROR]
    warnings = [part.strip() for part in row.get("warnings", "").split(";") if part.strip()]
    # A run of before says it in its warnings only.
    said = next((text for text in warnings if text.startswith("unlike the training")), "")
    unlike = _known(row.get("unlike")) or said.partition("(")[2].rpartition(")")[0]
    return RegionResult(
        patient=row["participant_id"],
        study=row["study_id"],
        roi=row["roi_id"],
        label=int(number(row.get("label")) or 0),
        zone=_known(row.get("zone")),
        probability=number(row.get("probability")),
        decision=_known(row.get("decision")),
        decision_value=number(row.get("decision_value")),
        p=number(row.get("p")),
        eta=number(row.get("eta")),
        label_kind=_known(row.get("label_kind")),
        histology=_known(row.get("histology")),
        isup=_whole(row.get("isup")),
        scores=_scores(row.get("scores", "")),
        with_tool=_values(row.get("with_tool", "")),
        patient_probability=number(row.get("patient_probability")),
        warnings=warnings,
        plausible=plausible,
        model=_known(row.get("model")),
        reader_values=_values(row.get("reader_values", "")) or _likert(row.get("scores", "")),
        scales=dict(_scores(row.get("scales", ""))),
        unlike=unlike if unlike != LIKE else "",
        compared=bool(unlike),
        sector=_known(row.get("sector")),
        psa=number(row.get("psa")),
        outline=None if low is None or high is None else (low, high),
        outlines=_known(row.get("outlines")),
    )


def _values(text: str) -> list[tuple[str, float]]:
    return [(r, value) for r, part in _scores(text) if (value := number(part)) is not None]


def _likert(text: str) -> list[tuple[str, float]]:
    """Return scores of a run of before, whose scale was not written: five points."""
    return [(reader, min(max((value - 1) / 4, 0.0), 1.0)) for reader, value in _values(text)]


def _known(text: str | None) -> str:
    return "" if text in (None, "n/a", "nan", "NaN") else str(text)


def _whole(text: str | None) -> str:
    value = number(text)
    return _known(text) if value is None else f"{value:g}"


def _scores(text: str) -> list[tuple[str, str]]:
    parts = (part.strip().rpartition("=") for part in text.split(";") if part.strip())
    return [(reader or "reader", score) for reader, _, score in parts]


def _reasons(path: Path) -> dict[tuple[str, str], list[Reason]]:
    found: dict[tuple[str, str], list[tuple[float, Reason]]] = {}
    for row in _table(path):
        delta = number(row.get("delta"))
        if delta is None:
            continue
        reason = Reason(
            feature=row.get("feature", ""),
            value=number(row.get("value")),
            unit=_known(row.get("unit")),
            delta=delta,
            percentile=number(row.get("percentile")),
        )
        key = (row.get("study_id", ""), row.get("roi_id", ""))
        found.setdefault(key, []).append((number(row.get("rank")) or 0.0, reason))
    return {
        key: [reason for _, reason in sorted(items, key=lambda item: item[0])]
        for key, items in found.items()
    }
