"""Write the pages of a run: an index page and a page for each patient. Each is a single file."""

import base64
import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from cad.base.files import JsonObject, write_atomic
from cad.base.reading import read_text, reading
from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.folders.run_folder.blinding import open_results
from cad.folders.run_folder.results import Results, read_results
from cad.learning.evaluation.summary import MeasuredDecisions, Summary
from cad.run.reports.content import patient_content
from cad.run.reports.figures import draw_figures, inline
from cad.run.reports.images import SCALE_BAR_MM
from cad.run.reports.plots import benign_limit, malignant_limit, probability_text
from cad.run.reports.printed import findings, learned, promises
from cad.run.reports.sectors import map_lines
from cad.run.reports.views import PatientView, list_patients

_THREADS = 2
TEMPLATES = Path(__file__).parent / "templates"


def write_report(run: Path) -> Path:
    """Write the pages and figures of a run: ``report/`` and ``figures/`` in its folder.

    Only the run folder is read, and no result is computed. Every page is one file that loads no
    other file. It can be opened from a disk, makes no network request, and can be printed on A4. A
    run of a table of features, which has no images, gets an index and no pages of patients. Pages
    of patients that the run no longer has are deleted.

    Parameters
    ----------
    run : Path
        Run folder with ``run.json`` and ``probabilities.csv``. The files ``metrics.json``,
        ``failures.csv``, ``explanations.csv`` and ``studies/*.npz`` may be missing.

    Returns
    -------
    Path
        ``report/index.html``.

    Raises
    ------
    CadError
        When the folder is no finished run, or when its content cannot be shown. A study whose
        images are damaged raises no error; the patient's page says that they are damaged.
    """
    all_results = read_results(run)
    patients = list_patients(all_results)
    # From here on only results that are not held back from a person are used.
    results = open_results(all_results)
    folder = results.folder
    with reading(folder.metrics, "measures of another version"):
        metrics = Summary.from_dict(results.metrics)
        decisions = MeasuredDecisions.from_dict(results.metrics)

    def write_page(
        before: PatientView | None, patient: PatientView, after: PatientView | None
    ) -> None:
        """Write one patient's page, with links to the pages before and after it."""
        with reading(folder.root, f"what the run says of {patient.patient} cannot be shown"):
            page = _patient_page(results, metrics, patient, (before, after))
            write_atomic(folder.page(patient.page), page.encode())

    # Several pages are written at the same time by threads. This saves time, because pictures are
    # compressed without the interpreter's lock. list() waits for all threads, and raises the error
    # of the first page that cannot be written.
    with ThreadPoolExecutor(_THREADS) as threads:
        figures_in_work = threads.submit(draw_figures, metrics, results.thresholds)
        if results.pictured:
            patients_before = [None, *patients[:-1]]
            patients_after = [*patients[1:], None]
            list(threads.map(write_page, patients_before, patients, patients_after))
    index = folder.page("index.html")
    with reading(folder.root, "the run's record or measures cannot be shown"):
        figures = figures_in_work.result()
        for name, (_, _, svg) in figures.items():
            write_atomic(folder.figure(name), svg.encode())
        page = _index_page(results, metrics, decisions, patients, figures)
        write_atomic(index, page.encode())
    _remove_stale(folder.report, {patient.page for patient in patients})
    return index


def _patient_page(
    results: Results,
    metrics: Summary,
    patient: PatientView,
    neighbours: tuple[PatientView | None, PatientView | None],
) -> str:
    """Return a patient's page as HTML.

    ``neighbours`` are the patients before and after this one, to whose pages the page links.
    """
    before, after = neighbours
    content = patient_content(results, metrics, patient)
    studies = content.studies
    regions = content.regions

    viewers: list[JsonObject] = []
    # For each study the position of its viewer in ``viewers``; an empty text for a study without.
    view_index: dict[str, int | str] = {}
    for study in studies:
        view_index[study.study] = ""
        if study.viewer is not None:
            view_index[study.study] = len(viewers)
            viewers.append(study.viewer)
    # If a man's results are held back from a reader, his regions keep their order. An order by
    # suspicion would reveal his results.
    if not patient.blinded:
        order = [view.region.roi for view in regions]
        for viewer in viewers:
            viewer["regions"].sort(key=lambda region: order.index(region["id"]))

    style = asset("report.css")
    if content.earlier is not None:  # only the comparison with an earlier study needs this style
        style += asset("earlier.css")
    return template("patient.html.j2").render(
        **_common(results),
        patient=patient,
        before=before,
        after=after,
        models=content.models,
        studies=studies,
        head=content.head,
        earlier=content.earlier,
        regions=regions,
        has_pirads=any(view.pirads for view in regions),
        of_cancer=any(view.region.of_cancer for view in regions),
        view_index=view_index,
        map_lines=map_lines() if any(view.sector for view in regions) else "",
        viewers=viewers,
        style=style,
        script=asset("viewer.js") + asset("patient.js"),
    )


def _index_page(
    results: Results,
    metrics: Summary,
    decisions: MeasuredDecisions,
    patients: list[PatientView],
    figures: JsonObject,
) -> str:
    """Return the index page as HTML. ``figures`` has title, caption and SVG text by name."""
    not_held_back = [patient for patient in patients if not patient.blinded]
    warnings = []
    # If results of some patients are held back from a reader, warnings of the run as a whole are
    # not shown. They could reveal these results.
    if len(not_held_back) == len(patients):
        run_warnings = results.run.get("warnings") or []
        # A warning that measures and run both have is shown once.
        warnings = list(dict.fromkeys([*metrics.warnings, *run_warnings]))
    figures_shown = []
    for name, (title, caption, svg) in figures.items():
        # The program has drawn this SVG text itself, so the template need not escape it.
        figures_shown.append((name, title, caption, Markup(inline(name, svg))))  # noqa: S704
    counts = {}
    for decision in ("malignant", "refer", "benign"):
        counts[decision] = sum(patient.count(decision) for patient in not_held_back)
    return template("index.html.j2").render(
        **_common(results),
        patients=patients,
        metrics=metrics,
        decisions=decisions.regions,
        measures=MEASURES,
        rivals=_rivals_table(metrics),
        findings=findings(metrics, decisions),
        promises=promises(metrics),
        learned=learned(results.run),
        metric_warnings=warnings,
        figures=figures_shown,
        disputed=sum(bool(patient.disputed) for patient in not_held_back),
        blinded=len(patients) - len(not_held_back),
        counts=counts,
        statuses=sorted({patient.status for patient in patients}),
        record=_record_sections(results.run),
        style=asset("report.css"),
        script=asset("index.js"),
    )


def _rivals_table(metrics: Summary) -> JsonObject:
    """Return a table of measures of the learner and its rivals (learners for comparison).

    The measures compare predictions with the readers and with histology. A star marks a rival's
    measure that differs from the learner's by more than chance. A measure that no learner has gets
    no column.
    """
    columns = (
        ("readers", "kl"),
        ("readers", "brier"),
        ("readers", "auc"),
        ("histology", "brier"),
        ("histology", "auc"),
    )
    cells_by_learner: dict[str, dict[tuple[str, str], str]] = {}
    for row in metrics.rivals["table"] if metrics.rivals else ():
        text = interval_text(row["value"], MEASURES[row["measure"]].digits)
        mark = " *" if row["beyond_chance"] else ""
        cells_of_learner = cells_by_learner.setdefault(row["learner"], {})
        cells_of_learner[row["against"], row["measure"]] = text + mark

    measured: set[tuple[str, str]] = set()
    for cells_of_learner in cells_by_learner.values():
        measured.update(cells_of_learner)
    columns_shown = [column for column in columns if column in measured]
    rows = []
    for learner, cells_of_learner in cells_by_learner.items():
        rows.append([learner, *(cells_of_learner.get(column, "–") for column in columns_shown)])
    head = [f"{MEASURES[measure].title} to {against}" for against, measure in columns_shown]
    return {"head": head, "rows": rows}


def _common(results: Results) -> JsonObject:
    """Return the values that the templates of index page and patients' pages both need."""
    run = results.run
    decision_settings = (run.get("settings") or {}).get("decision") or {}
    return {
        "run": run,
        "model": run.get("model") or None,
        "simulated": bool(run.get("simulated")),
        # A run without these two settings has no such aim. A template fails on an absent value.
        "costs": {"aim_npv": None, "aim_ppv": None, **decision_settings},
        "thresholds": results.thresholds,
        "scale_bar": SCALE_BAR_MM,
    }


def _record_sections(run: JsonObject) -> list[tuple[str, str]]:
    """Return sections of ``run.json`` as text, for the foot of the index page."""
    sections = []
    for key in ("settings", "model", "versions", "timings", "counts"):
        if run.get(key):
            text = json.dumps(run[key], indent=1, sort_keys=True, ensure_ascii=False)
            sections.append((key, text))
    return sections


def _digest(text: str) -> Markup:
    """Return the hash by which a page's content security policy allows a style or script."""
    value = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup("sha256-{}").format(value)


@cache
def _environment(folder: Path) -> jinja2.Environment:
    """Return what loads the templates of a folder, with the filters by which they write numbers."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["probability"] = probability_text
    environment.filters["interval"] = interval_text
    environment.filters["benign_limit"] = benign_limit
    environment.filters["malignant_limit"] = malignant_limit
    environment.filters["moment"] = lambda iso: iso.replace("T", " ").replace("+00:00", " UTC")
    environment.filters["odds"] = lambda log_odds: f"{log_odds:+.2f}".replace("-", "−")
    environment.filters["digest"] = _digest
    return environment


def template(name: str, folder: Path = TEMPLATES) -> jinja2.Template:
    """Return a Jinja template by its file name.

    The template may include templates of the pages of a run.

    Parameters
    ----------
    name : str
        File name.
    folder : Path
        Folder that is searched before the folder of the run's pages.
    """
    return _environment(folder).get_template(name)


@cache
def asset(name: str, folder: Path = TEMPLATES) -> Markup:
    """Return the text of a style sheet or script, which a template inserts without escaping.

    Parameters
    ----------
    name : str
        File name.
    folder : Path
        Folder of the file.
    """
    return Markup(read_text(folder / name))  # noqa: S704


def _remove_stale(report: Path, pages: Iterable[str]) -> None:
    """Remove pages of patients whom an earlier run had and this run does not have."""
    for path in report.glob("sub-*.html"):
        if path.name not in pages:
            path.unlink()
