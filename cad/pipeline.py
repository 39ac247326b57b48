"""From a cohort folder to a run folder, a model, or predictions; a table of contents."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from cad.batch import locked
from cad.bundle import Bundle, load_bundle
from cad.cohort import read_cohort
from cad.errors import CadError
from cad.extraction import Failure
from cad.model_comparison import compare_runs
from cad.run import Run
from cad.run_folder import write_csv, write_json
from cad.running import How, workplace
from cad.settings import (
    DecisionSettings,
    ImageSettings,
    PipelineSettings,
    parse_settings,
    read_settings,
)
from cad.share import find
from cad.suggest import suggest


@dataclass
class RunSummary:
    """What a command prints at its end.

    Parameters
    ----------
    out : Path
        Run folder.
    studies, regions : int
        Studies and regions with a probability.
    failures : list of Failure
        Rows of ``failures.csv``.
    table : list of (str, str)
        Measures by name, as text.
    metrics : dict
        The same as numbers, by what they are measured against.
    model : Path or None
        The bundle that was written.
    """

    out: Path
    studies: int = 0
    regions: int = 0
    failures: list[Failure] = field(default_factory=list)
    table: list[tuple[str, str]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    model: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-serialisable content."""
        return {
            "out": str(self.out),
            "studies": self.studies,
            "regions": self.regions,
            "failures": [asdict(f) for f in self.failures],
            "metrics": self.metrics,
        }

    def as_text(self) -> str:
        """Lines for a terminal."""
        width = max((len(name) for name, _ in self.table), default=0)
        lines = [f"{name:<{width}}  {value}" for name, value in self.table]
        lines.append(f"{self.regions} regions of {self.studies} studies scored; wrote {self.out}")
        if self.model is not None:
            lines.append(f"model: {self.model}")
        for f in self.failures:
            roi = f" ROI {f.roi_id}" if f.roi_id else ""
            lines.append(f"failed: {f.study_id}{roi} ({f.stage}): {f.reason}")
        return "\n".join(lines)


def check(root: Path) -> tuple[list[CadError], dict[str, list[str]]]:
    """Every problem of a cohort: its tables, its images, its regions on every measured grid.

    Returns
    -------
    problems : list of CadError
        What keeps a patient, a study or a region from being measured, or a measurement incomplete.
    notes : dict of str to list of str
        What is missing or replaced without being wrong, and the studies that it holds for.
    """
    from cad.imaging.prepare import prepare_study
    from cad.imaging.study import Roi
    from cad.imaging.study_files import check_study, lost_images, read_study

    notes: dict[str, list[str]] = {}
    try:
        cohort = read_cohort(root)
    except CadError as error:
        return [error], notes
    problems = list(cohort.problems)
    for ref in cohort.studies():
        problems += [lost.at(patient=ref.participant_id) for lost in lost_images(ref.folder)]
        rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
        try:
            study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
            study, _ = prepare_study(study, ImageSettings())
        except CadError as error:
            problems.append(error)
            continue
        problems += check_study(study)
        for note in study.notes:
            notes.setdefault(note, []).append(ref.study_id)
    return problems, notes


def run_pipeline(pipeline: str, root: Path, out: Path, how: How) -> RunSummary:
    """Measure, label, validate and report a cohort.

    Parameters
    ----------
    pipeline : str
        Path of a pipeline file, or a name in ``pipelines/``.
    root : Path
        Cohort folder.
    out : Path
        Run folder; made when absent, resumed when present.
    how : How
        How the job is run; changes no result.

    Raises
    ------
    CadError
        For unusable settings, or a cohort that cannot be read or learned from.
    """
    settings = read_settings(PipelineSettings, find("pipelines", pipeline, ".yaml"))
    with locked(out), workplace(how):
        run = Run(settings, read_cohort(root), out, how, kind="run")
        run.measure()
        if not run.restore():
            run.label()
            run.validate()
            run.write()
        return _summary(run)


def train(
    pipeline: str, root: Path, out: Path, how: How, *, extend: str | None = None
) -> RunSummary:
    """Validate as :func:`run_pipeline` does, fit on all patients and write a model bundle.

    The bundle goes to ``out``, its validation run to ``<out>.validation`` beside it.

    Parameters
    ----------
    extend : str, optional
        A model whose training table is added to this cohort's; feature settings must match.
    """
    settings = read_settings(PipelineSettings, find("pipelines", pipeline, ".yaml"))
    validation = out.with_name(out.name + ".validation")
    with locked(validation), workplace(how):
        run = Run(settings, read_cohort(root), validation, how, kind="train")
        run.measure()
        run.label()
        if extend is not None:
            run.extend(load_bundle(find("models", extend)))
        run.validate()
        run.write()
        run.fit(out)
        return replace(_summary(run), model=out)


def predict(
    models: list[str],
    root: Path,
    out: Path,
    how: How,
    *,
    decision: str | None = None,
    probability_map: bool = False,
) -> RunSummary:
    """Score a cohort with trained models, with measures where histology is known.

    Parameters
    ----------
    models : list of str
        Model folders, or names of released ones. Each study is scored by the first whose
        modalities it has.
    decision : str, optional
        Costs other than those the first model was trained with.
    probability_map : bool
        Also map the first model's probability over the gland.

    Raises
    ------
    CadError
        When a bundle is damaged or the models measure differently.
    """
    bundles = [load_bundle(find("models", model)) for model in models]
    settings = _shared_settings(bundles)
    if decision is not None:
        costs = read_settings(DecisionSettings, find("configs/decision", decision, ".yaml"))
        settings = settings.model_copy(update={"decision": costs})
    with locked(out), workplace(how):
        run = Run(settings, read_cohort(root), out, how, kind="predict")
        run.basis = f"{[_fingerprint(b) for b in bundles]} map {probability_map}"
        run.measure()
        if not run.restore():
            run.label()
            run.score(bundles)
            if probability_map:
                run.map(bundles[0])
            run.write()
        return _summary(run)


def compare_models(a: str, b: str, root: Path, out: Path, how: How) -> dict[str, Any]:
    """Two models on one cohort: paired differences, calibration, changed decisions.

    Returns
    -------
    dict
        JSON-safe: ``models``; ``differences`` by measure with patient-clustered intervals, None
        without histology; ``calibration`` of each; ``changed``, the regions whose decision differs.
    """
    first, second = (_scored(name, root, out / which, how) for name, which in ((a, "a"), (b, "b")))
    result = compare_runs(first.results, second.results, (a, b))
    write_json(out / "comparison.json", result)
    return result


def suggest_readings(
    model: str, root: Path, out: Path, how: How, count: int
) -> tuple[pd.DataFrame, list[Failure]]:
    """Which regions to have read next (:func:`cad.suggest.suggest`), and what was not scored.

    The table is also written to ``suggestions.csv``.
    """
    run = _scored(model, root, out, how)
    known = run.results["probability"].notna().to_numpy()
    table = suggest(
        run.results[known],
        run.features.loc[known],
        run.scores,
        count=count,
        pirads_probability=run.settings.labels.pirads_probability,
    )
    write_csv(out / "suggestions.csv", table, list(table.columns))
    return table, run.failures


def _scored(model: str, root: Path, out: Path, how: How) -> Run:
    """A whole prediction with one model, its run folder written."""
    bundle = load_bundle(find("models", model))
    with locked(out), workplace(how):
        run = Run(_shared_settings([bundle]), read_cohort(root), out, how, kind="predict")
        run.basis = _fingerprint(bundle)
        run.measure()
        run.label()
        run.score([bundle])
        run.write()
        return run


def _fingerprint(bundle: Bundle) -> str:
    """What tells one model from another of the same name."""
    return f"{bundle.name} {bundle.hash}"


def _shared_settings(bundles: list[Bundle]) -> PipelineSettings:
    """Settings of the first model, measuring every modality that one of them needs."""
    parsed = [
        parse_settings(PipelineSettings, bundle.metadata["pipeline"], bundle.name)
        for bundle in bundles
    ]
    first = parsed[0]
    for bundle, other in zip(bundles[1:], parsed[1:], strict=True):
        same = other.features.model_copy(update={"modalities": first.features.modalities})
        if other.images != first.images or same != first.features:
            raise CadError(
                f"models {bundles[0].name} and {bundle.name} measure images differently",
                hint="models that stand in for each other share images and features settings",
            )
    wanted = {modality for settings in parsed for modality in settings.features.modalities}
    modalities = tuple(m for m in ("t2w", "adc", "dce") if m in wanted)
    features = first.features.model_copy(update={"modalities": modalities})
    return first.model_copy(update={"features": features})


def _summary(run: Run) -> RunSummary:
    scored = run.results.dropna(subset=["probability"])
    return RunSummary(
        run.out,
        scored["study_id"].nunique(),
        len(scored),
        run.failures,
        _table(run.metrics),
        _numbers(run.metrics),
    )


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    """The measures without curves and lists of regions."""
    kept = ("n", "positive", "negative", "auc", "auc_roi_level", "measures", "warnings")
    numbers: dict[str, Any] = {k: metrics.get(k) for k in ("n", "label_kinds", "warnings")}
    for name in ("histology", "consensus"):
        part = metrics.get(name)
        numbers[name] = part and {k: part.get(k) for k in kept}
    readers = metrics.get("readers") or {}
    numbers["readers"] = {reader: part.get("auc") for reader, part in readers.items()}
    return numbers


def _table(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines that a command prints."""
    lines = [(f"labels: {kind}", str(n)) for kind, n in (metrics.get("label_kinds") or {}).items()]
    for name, title in (("histology", "against histology"), ("consensus", "against readers")):
        part = metrics.get(name)
        if part is None:
            continue
        counts = f"{part['positive']} of {part['n']} regions positive, {part['patients']} patients"
        lines.append((title, counts))
        lines.append(("  AUC (patients resampled as clusters)", _interval(part["auc"])))
        for measure in ("accuracy", "kl", "alignment_error", "brier"):
            lines.append((f"  {_MEASURE_NAMES[measure]}", _interval(part["measures"][measure])))
    for reader, part in (metrics.get("readers") or {}).items():
        lines.append((f"reader {reader}: AUC", _interval(part["auc"])))
    return [*lines, *(("warning", text) for text in metrics.get("warnings") or [])]


_MEASURE_NAMES = {
    "accuracy": "accuracy at .5",
    "kl": "two-sided KL (sum)",
    "alignment_error": "alignment error",
    "brier": "Brier score",
}


def _interval(part: dict[str, Any] | None) -> str:
    if part is None or part["value"] is None:
        return "not defined"
    text = f"{part['value']:.3f}"
    if part["lower"] is not None and part["upper"] is not None:
        text += f" [{part['lower']:.3f}, {part['upper']:.3f}]"
    return text
