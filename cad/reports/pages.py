"""The pages of a run: an index and one page per patient, each a single file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from cad.files import JsonObject, write_atomic
from cad.reports.figures import draw_figures, inline
from cad.reports.images import SCALE_BAR_MM
from cad.reports.plots import probability_text
from cad.reports.tables import metric_tables
from cad.reports.views import PatientView, list_patients, study_views
from cad.run_folder.results import RegionResult, Results, read_results

TEMPLATES = Path(__file__).parent / "templates"


def write_report(run: Path) -> Path:
    """Write ``report/`` and ``figures/`` of a run folder.

    Reads the run folder only and computes no result. Every page is one file without any
    reference to another place: it opens from a disk, makes no network request, and prints on A4.

    Parameters
    ----------
    run : Path
        Run folder with ``run.json``, ``probabilities.csv`` and, where there are any,
        ``metrics.json``, ``failures.csv``, ``explanations.csv`` and ``studies/*.npz``.

    Returns
    -------
    Path
        ``report/index.html``.

    Raises
    ------
    CadError
        When the folder is no finished run. A study whose images are damaged gets a page
        that says so.
    """
    results = read_results(run)
    folder = results.folder
    patients = list_patients(results)
    for patient in patients:
        write_atomic(folder.page(patient.page), _patient_page(results, patient).encode())
    figures = draw_figures(results.metrics, results.thresholds)
    for name, figure in figures.items():
        write_atomic(folder.figure(name), figure.svg.encode())
    index = folder.page("index.html")
    write_atomic(index, _index_page(results, patients, figures).encode())
    _remove_stale(folder.report, {p.page for p in patients})
    return index


def _patient_page(results: Results, patient: PatientView) -> str:
    studies = study_views(results, patient)
    viewers = [s.viewer for s in studies if s.viewer is not None]
    return _template("patient.html.j2").render(
        **_common(results),
        patient=patient,
        models=_models(results, patient.regions),
        studies=studies,
        regions=sorted(
            (r for s in studies for r in s.regions),
            key=lambda v: -1.0 if v.region.probability is None else v.region.probability,
            reverse=True,
        ),
        viewers=viewers,
        style=_asset("report.css"),
        script=_asset("patient.js"),
    )


def _index_page(results: Results, patients: list[PatientView], figures: JsonObject) -> str:
    metrics = results.metrics
    return _template("index.html.j2").render(
        **_common(results),
        patients=patients,
        tables=metric_tables(metrics),
        findings=_findings(metrics),
        metric_warnings=list(
            dict.fromkeys(
                [
                    *(metrics.get("warnings") or []),
                    *(results.run.get("warnings") or []),
                ]
            )
        ),
        figures=[
            (name, f.title, f.caption, Markup(inline(name, f.svg)))  # nosec B704  # noqa: S704
            for name, f in figures.items()
        ],
        counts={d: sum(p.count(d) for p in patients) for d in ("malignant", "refer", "benign")},
        statuses=sorted({p.status for p in patients}),
        record=_record(results.run),
        style=_asset("report.css"),
        script=_asset("index.js"),
    )


def _findings(metrics: JsonObject) -> list[tuple[str, str]]:
    """Return what the run found, each in one sentence."""
    parts = (
        ("operating_point", "Decisions"),
        ("rivals", "Rivals"),
        ("assisted", "Readers with the tool"),
        ("ceiling", "What the readers allow"),
        ("reader_skill", "Readers"),
    )
    found = [(title, (metrics.get(name) or {}).get("sentence")) for name, title in parts]
    return [(title, sentence) for title, sentence in found if sentence]


def _common(results: Results) -> JsonObject:
    run = results.run
    model = run.get("model") or None
    settings = run.get("settings") or {}
    return {
        "run": run,
        "model": model,
        "simulated": bool(run.get("simulated")),
        "costs": {"aim_npv": None, "aim_ppv": None, **(settings.get("decision") or {})},
        "thresholds": results.thresholds,
        "scale_bar": SCALE_BAR_MM,
    }


def _models(results: Results, regions: Iterable[RegionResult]) -> list[JsonObject]:
    """List the run's models that scored these regions, with their training."""
    said = results.run.get("model") or {}
    known = said.get("models") or {said.get("name"): said}
    names = dict.fromkeys(region.model for region in regions if region.model)
    return [{"name": name, "training": None, **known.get(name, {})} for name in names]


def _record(run: JsonObject) -> list[tuple[str, str]]:
    """Return the run's own record, for the fold at the foot of the index."""
    return [
        (key, json.dumps(run[key], indent=1, sort_keys=True, ensure_ascii=False))
        for key in ("settings", "model", "versions", "timings", "counts")
        if run.get(key)
    ]


def _moment(text: str) -> str:
    """Write an ISO time as a person does."""
    return text.replace("T", " ").replace("+00:00", " UTC")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["probability"] = probability_text
    environment.filters["moment"] = _moment
    return environment


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@cache
def _asset(name: str) -> Markup:
    """Return our own style or script, put into the page as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))  # nosec B704  # noqa: S704


def _remove_stale(report: Path, pages: Iterable[str]) -> None:
    """Remove pages of patients that an earlier run had and this one has not."""
    for path in report.glob("sub-*.html"):
        if path.name not in pages:
            path.unlink()
