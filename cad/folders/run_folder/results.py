"""Read a run folder in the form that pages need: typed rows, with nothing computed again."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.base.reading import read_rows, reading
from cad.base.terms.grades import grade_text, grade_words
from cad.folders.run_folder.folder import RunFolder
from cad.folders.run_folder.records import read_metrics, read_record
from cad.folders.run_folder.schema import HISTOLOGY, READERS
from cad.folders.run_folder.tables import LIKE, NEITHER, RANGE, EarlierRow, refuse_earlier
from cad.mri.columns import Column, columns_stated


@dataclass(frozen=True)
class RegionResult:
    """Hold one row of ``probabilities.csv``.

    Parameters
    ----------
    patient, study, roi : str
        ``participant_id``, ``study_id``, ``roi_id``.
    label : int
        Value in the label map.
    zone, label_kind, histology, isup : str
        Zone of the prostate, kind of label, histology and ISUP grade; empty where unknown.
    decision : str
        The decision that the page states: ``malignant``, ``refer`` or ``benign``; empty without a
        probability.
    decision_model, decision_before_histology : str
        The first is the decision by the two thresholds alone. The second also heeds all reasons
        against this decision except histology; it is empty in a run of an earlier version.
    decision_reason : list of str
        Reasons against the decision of the thresholds. Where there is one, ``refer`` is stated.
    truth : bool or None
        Whether histology found cancer of ISUP grade ``labels.isup_min`` or more; None where
        histology does not tell.
    probability : float or None
        Probability of such cancer, from all that is known of the region and its man. Where the
        training had no histology it is the belief.
    probability_of : str
        Source of ``probability``: ``histology`` or ``readers``; empty without a probability.
    probability_images : float or None
        The probability without the readers' scores of the region.
    belief : float or None
        The chance that readers would call the region malignant.
    decision_value, p, eta : float or None
        The learner's decision value, the consensus p of the readers, and their spread eta.
    scores : list of (str, str)
        Reader and score, as the reader gave it.
    with_tool : list of (str, float)
        Reader, and the probability of malignancy given the reader's score and the model together.
    patient_probability : float or None
        Probability that the patient has such cancer anywhere.
    warnings : list of str
        The run's remarks on this region.
    plausible : list of str or None
        Classes that conformal prediction does not rule out at 90 % confidence; None where the run
        made no such prediction.
    readers_mean, gap : float or None
        The mean of ``reader_values``, and the distance between this mean and ``belief``.
    apart : str
        The gap in words: ``agree``, ``apart`` or ``far apart``; empty without a gap.
    suspicion : float or None
        The larger of ``belief`` and ``readers_mean``; where the readers contradict the
        decision, the highest of their values takes the place of their mean.
    patient_decision : str
        The decision on the patient, the same on all of the patient's regions.
    model : str
        Name of the trained model that scored the region. Empty in a validation, where the models of
        the folds scored it.
    reader_values : list of (str, float)
        Reader, and the score as probability of malignancy.
    scales : dict of str to str
        Reader, and the name of the scale on which the reader scored.
    unlike : str
        Groups of features in which the region is unlike the training regions; empty if there is no
        such group.
    compared : bool
        Whether the region was compared with the training regions at all.
    sector : str
        Sector as a person stated it in ``rois.tsv``; empty where nobody stated one.
    psa, age : float or None
        The patient's PSA (ng/mL) and age (years).
    readers_agree : str
        ``agree``, ``differ`` or ``are split``; empty for fewer than two readers.
    probability_range : (float, float) or None
        Of many regions judged like this one, the share with cancer lies between these two numbers,
        which enclose ``probability``. None where the probability is a belief of readers.
    outline : (float, float) or None
        Lowest and highest belief over several outlines of the region; None where other outlines
        were not tried.
    outlines : str
        Which outlines were tried for ``outline``: ``20 redrawn``, or names of readers.
    """

    patient: str
    study: str
    roi: str
    label: int
    zone: str
    probability: float | None
    probability_of: str
    probability_images: float | None
    belief: float | None
    decision: str
    decision_model: str
    decision_reason: list[str]
    decision_value: float | None
    p: float | None
    eta: float | None
    label_kind: str
    histology: str
    isup: str
    truth: bool | None
    scores: list[tuple[str, str]]
    with_tool: list[tuple[str, float]]
    patient_probability: float | None
    warnings: list[str]
    plausible: list[str] | None
    readers_mean: float | None
    gap: float | None
    apart: str
    suspicion: float | None
    patient_decision: str
    model: str
    reader_values: list[tuple[str, float]] = field(default_factory=list)
    scales: dict[str, str] = field(default_factory=dict)
    unlike: str = ""
    compared: bool = False
    sector: str = ""
    psa: float | None = None
    age: float | None = None
    readers_agree: str = ""
    probability_range: tuple[float, float] | None = None
    outline: tuple[float, float] | None = None
    outlines: str = ""
    decision_before_histology: str = ""

    @property
    def of_cancer(self) -> bool:
        """Tell whether ``probability`` is the probability of cancer, and not the belief."""
        return self.probability_of == HISTOLOGY

    @property
    def histology_words(self) -> str:
        """Return histology and its grade in words, and whether the run counts it as malignant."""
        grade = "" if self.isup == "0" else grade_words(self.isup)
        if not self.histology:
            return grade
        # Histology may call a region malignant whose grade is too low for this run.
        finding_counts = self.histology != "malignant" or self.truth is True
        finding = self.histology if finding_counts else "cancer"
        words = f"{finding}, {grade}" if grade else finding
        return words if finding_counts else f"{words} (not counted as malignant)"


@dataclass(frozen=True)
class Man:
    """Hold one row of ``patients.csv``: the result for one patient.

    Parameters
    ----------
    patient : str
        ``participant_id``.
    probability : float or None
        Probability that the patient has cancer of ISUP grade ``labels.isup_min`` or more; None
        where no model gives one.
    probability_images : float or None
        Probability without the readers' scores of his regions.
    decision, decision_model : str
        The decision that the page states, and the decision by the thresholds alone. Both are empty
        where no decision is made.
    decision_reason : list of str
        Reasons against the thresholds' decision, or reasons why no decision is made.
    basis : str
        Source of the decision: ``probability`` of the patient and his regions, or ``regions`` where
        no model gave a probability of the patient.
    lower : float or None
        Threshold of the man's probability. A man with a lower probability is called benign if all
        his regions are called benign.
    unknown : str
        Values that the model uses and that are missing for this patient, such as ``age unknown``.
    truth : bool or None
        Whether histology found cancer of this grade or more; None where histology does not tell.
    age, psa, psa_density : float or None
        Age in years, PSA in ng/mL and PSA density in ng/mL2, as the cohort states them.
    probability_range : (float, float) or None
        The 95 % interval of ``probability``: of many men judged like this one, the share with
        cancer of this grade or more lies between these two numbers.
    """

    patient: str
    probability: float | None
    probability_images: float | None
    decision: str
    decision_model: str
    decision_reason: list[str]
    basis: str
    lower: float | None
    unknown: str
    truth: bool | None
    age: float | None
    psa: float | None
    psa_density: float | None
    probability_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Reason:
    """Hold one row of ``explanations.csv``: a feature that had an effect on the decision value.

    Parameters
    ----------
    feature, unit : str
        Name and unit of the feature.
    value : float or None
        The region's value.
    delta : float
        Change of the decision value when the feature goes from the training median to ``value``.
    percentile : float or None
        Percentile of ``value`` among the training rows.
    group : str
        Family to which the feature belongs.
    contribution : float or None
        Effect of the whole family on the log-odds of the belief, compared with the average training
        region. Only one row of the family has it.
    average : float or None
        Log-odds of the belief of the average training region.
    """

    feature: str
    value: float | None
    unit: str
    delta: float
    percentile: float | None
    group: str = ""
    contribution: float | None = None
    average: float | None = None


Row = TypeVar("Row", RegionResult, Man, Reason, EarlierRow)


@dataclass(frozen=True)
class Results:
    """Hold the whole content of a run folder, without its images.

    Parameters
    ----------
    folder : RunFolder
        The run folder.
    run, metrics : dict
        ``run.json`` and ``metrics.json``; ``metrics`` is empty where that file is missing.
    regions : list of RegionResult
        In the order of ``probabilities.csv``.
    failures : list of dict
        Rows of ``failures.csv``.
    reasons : dict
        Explanations of each region by ``(study, roi)``, most important first.
    men : dict of str to Man
        Rows of ``patients.csv`` by ``participant_id``; empty for a run without this file.
    earlier : dict of str to list of EarlierRow
        Rows of ``earlier.csv`` by ``participant_id``; only men with several studies have rows.
    """

    folder: RunFolder
    run: JsonObject
    metrics: JsonObject
    regions: list[RegionResult]
    failures: list[dict[str, str]]
    reasons: dict[tuple[str, str], list[Reason]] = field(default_factory=dict)
    men: dict[str, Man] = field(default_factory=dict)
    earlier: dict[str, list[EarlierRow]] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Return the columns of the run's feature table, by name."""
        return columns_stated(self.run.get("settings") or {})

    @property
    def pictured(self) -> bool:
        """Tell whether the run measured images; a run of a table has none."""
        features = (self.run.get("settings") or {}).get("features") or {}
        return features.get("modalities") != []

    def thresholds_of(self, region: RegionResult) -> tuple[float, float] | None:
        """Return the two thresholds of the model that scored a region, else those of the run.

        A probability below the first threshold means benign, and a probability above the second
        means malignant. The result is None if neither model nor run states thresholds.
        """
        with reading(self.folder.record, "thresholds are two numbers"):
            # Several models may have scored the regions of one run, each with its own thresholds.
            models = (self.run.get("model") or {}).get("models") or {}
            stated = (models.get(region.model) or {}).get("thresholds")
            return (float(stated[0]), float(stated[1])) if stated else self.thresholds

    @property
    def thresholds(self) -> tuple[float, float] | None:
        """Return the run's two thresholds; None where the run states none.

        A probability below the first threshold means benign, and a probability above the second
        means malignant.
        """
        with reading(self.folder.root, "thresholds are two numbers"):
            stated = self.run.get("decision_thresholds")
            return (float(stated[0]), float(stated[1])) if stated else None


def read_results(root: Path) -> Results:
    """Read a run folder.

    Parameters
    ----------
    root : Path
        Run folder with at least ``run.json`` and ``probabilities.csv``.

    Returns
    -------
    Results
        Content of the tables of the run, of ``run.json`` and of ``metrics.json``. If a file is
        missing that a run folder need not have, its field is empty.

    Raises
    ------
    CadError
        For a folder that is no run folder, or when one of its files cannot be read.
    """
    folder = RunFolder(root)
    run = read_record(folder)
    metrics = read_metrics(folder)
    rows = _rows_of_file(folder.probabilities, needed=True)
    # In tables of early versions the decisions have another meaning, so that they are refused. A
    # table without rows has no decisions and is accepted.
    refuse_earlier(rows[0] if rows else ("decision_model",), folder.probabilities)
    return Results(
        folder=folder,
        run=run,
        metrics=metrics,
        regions=[_region_of_row(row, folder.probabilities) for row in rows],
        failures=_rows_of_file(folder.failures),
        reasons=_reasons_by_region(folder.explanations),
        men=_rows_of_men(folder.patients),
        earlier=read_earlier(folder),
    )


def read_earlier(folder: RunFolder) -> dict[str, list[EarlierRow]]:
    """Read ``earlier.csv``: the rows of every man, by ``participant_id``.

    Parameters
    ----------
    folder : RunFolder
        The run; without the file the result is empty.

    Returns
    -------
    dict of str to list of EarlierRow
        For each man by ``participant_id`` his rows, in the order of the file. Only men with several
        studies have rows.
    """
    rows_of_men: dict[str, list[EarlierRow]] = {}
    for cells in _rows_of_file(folder.earlier):
        row = _made(EarlierRow, cells)
        rows_of_men.setdefault(row.participant_id, []).append(row)
    return rows_of_men


def as_belief(row: dict[str, str]) -> dict[str, str]:
    """Return a row of an earlier version with the columns of this version.

    In earlier versions the learner's own number, now called the belief, was called the probability.

    Parameters
    ----------
    row : dict of str to str
        A row of ``probabilities.csv`` without ``probability_of``.
    """
    probability = row.get("probability", "")
    earlier = {**row, "belief": probability, "probability_images": probability}
    earlier["probability_of"] = READERS if probability else ""
    # The range is emptied, because in the earlier version it was a range of the share of cancer,
    # and does not belong to the belief. The man's probability is emptied, because it came from a
    # model that this version does not have.
    for name in (*RANGE, "patient_probability"):
        earlier[name] = ""
    return earlier


def _rows_of_men(path: Path) -> dict[str, Man]:
    """Return the rows of ``patients.csv``, by patient.

    If an earlier version of the program wrote the file, its probabilities are left out.
    """
    men = {}
    for row in _rows_of_file(path):
        if "probability_of" not in row:  # the file of an earlier version has no such column
            row = {**row, "probability": "", "lower": ""}
        men[row["participant_id"]] = _man_of_row(row)
    return men


def number(text: Any) -> float | None:
    """Return a table's cell as a number; None where it is empty, no number or not finite."""
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if abs(value) < float("inf") else None


def _rows_of_file(path: Path, needed: bool = False) -> list[dict[str, str]]:
    """Read the rows of a table; without the file there is none, unless it is needed."""
    if not path.is_file():
        if needed:
            raise CadError(f"no {path.name}: this is not a finished run", file=path)
        return []
    return read_rows(path)


def _made(kind: type[Row], row: dict[str, str], **other: Any) -> Row:
    """Return an object of the class ``kind`` that is made from a row of a table.

    A field that is not given as an argument is read from the cell with the field's name.
    """
    cells = {}
    for column in fields(kind):
        if column.name not in other:
            cells[column.name] = _CELLS[column.type](row.get(column.name))
    return kind(**cells, **other)


def _region_of_row(row: dict[str, str], path: Path) -> RegionResult:
    """Return a row of ``probabilities.csv`` as an object; ``path`` is the file, for messages."""
    for column in ("participant_id", "study_id", "roi_id"):
        if not row.get(column):
            raise CadError(f"a row without {column}", file=path)
    if "probability_of" not in row:
        row = as_belief(row)
    # An empty cell means that no class was predicted, and NEITHER that no class is plausible.
    plausible_text = _cell_text(row.get("plausible"))
    plausible = None
    if plausible_text:
        plausible = [word for word in plausible_text.split(" or ") if word != NEITHER]
    unlike = _cell_text(row.get("unlike"))
    return _made(
        RegionResult,
        row,
        patient=row["participant_id"],
        study=row["study_id"],
        roi=row["roi_id"],
        label=int(number(row.get("label")) or 0),  # 0 for a region without a label map
        isup=grade_text(row.get("isup")),
        plausible=plausible,
        scales=dict(_scores_of_readers(row.get("scales"))),
        # An empty cell means that the region was not compared with the training regions. The word
        # LIKE means that it was compared and is like them. In both cases the field `unlike` is
        # empty, and the field `compared` tells them apart.
        unlike=unlike if unlike != LIKE else "",
        compared=bool(unlike),
        probability_range=_range_of_row(row, *RANGE),
        outline=_range_of_row(row, "outline_low", "outline_high"),
    )


def _range_of_row(row: dict[str, str], *names: str) -> tuple[float, float] | None:
    """Return the two ends of a range from their columns; None where either is missing."""
    low, high = (number(row.get(name)) for name in names)
    return None if low is None or high is None else (low, high)


def _man_of_row(row: dict[str, str]) -> Man:
    return _made(
        Man, row, patient=row["participant_id"], probability_range=_range_of_row(row, *RANGE)
    )


def _truth_of_cell(text: str | None) -> bool | None:
    """Return whether a cell is 1; None where it is no number."""
    value = number(text)
    return None if value is None else value == 1.0


def _values_of_readers(text: str | None) -> list[tuple[str, float]]:
    """Return readers and their values from a cell such as ``r1=0.3; r2=0.4``."""
    values = []
    for reader, score in _scores_of_readers(text):
        value = number(score)
        if value is not None:
            values.append((reader, value))
    return values


def _cell_texts(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(";") if entry.strip()]


def _cell_text(text: str | None) -> str:
    return "" if text in (None, "n/a", "nan", "NaN") else str(text)


def _scores_of_readers(text: str | None) -> list[tuple[str, str]]:
    """Return readers and their scores as text, from a cell such as ``r1=3; r2=4``."""
    # An entry without a reader's name is the score of an unnamed reader.
    entries = (entry.rpartition("=") for entry in _cell_texts(text))
    return [(reader or "reader", score) for reader, _, score in entries]


_CELLS: dict[Any, Callable[[str | None], Any]] = {
    str: _cell_text,
    float | None: number,
    bool | None: _truth_of_cell,
    list[str]: _cell_texts,
    list[tuple[str, str]]: _scores_of_readers,
    list[tuple[str, float]]: _values_of_readers,
}
"""Functions that read a cell, by the type of its field."""


def _reasons_by_region(path: Path) -> dict[tuple[str, str], list[Reason]]:
    """Return the rows of ``explanations.csv`` by study and region, in the order of their ranks."""
    ranked_by_region: dict[tuple[str, str], list[tuple[float, Reason]]] = {}
    for row in _rows_of_file(path):
        delta = number(row.get("delta"))
        if delta is None:  # a row without an effect explains nothing
            continue
        reason = _made(Reason, row, delta=delta)
        region = (row.get("study_id", ""), row.get("roi_id", ""))
        rank = number(row.get("rank")) or 0.0  # rows without a rank come first
        ranked_by_region.setdefault(region, []).append((rank, reason))
    reasons = {}
    for region, ranked_reasons in ranked_by_region.items():
        ranked_reasons.sort(key=lambda ranked_reason: ranked_reason[0])
        reasons[region] = [reason for _, reason in ranked_reasons]
    return reasons
