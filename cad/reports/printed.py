"""Put the measures of a run into the lines and numbers that a command prints."""

from __future__ import annotations

from cad.files import JsonObject
from cad.reports.plots import probability_text
from cad.reports.views import list_patients
from cad.run_folder.results import Results
from cad.terms.measures import MEASURES
from cad.terms.text import interval_text

UNKNOWN = interval_text(None)
MOST_PATIENTS = 3
"""Patients that a command names at its end; the page has all."""


def numbers(metrics: JsonObject) -> JsonObject:
    """Return the measures without curves and lists of regions, for ``--json``."""
    kept = ("n", "positive", "negative", "auc", "auc_roi_level", "measures", "warnings")
    found: JsonObject = {k: metrics.get(k) for k in ("n", "label_kinds", "warnings")}
    for name in ("histology", "consensus"):
        part = metrics.get(name)
        found[name] = part and {k: part.get(k) for k in kept}
    readers = metrics.get("readers") or {}
    found["readers"] = {reader: part.get("auc") for reader, part in readers.items()}
    return found


def printed_table(metrics: JsonObject) -> list[tuple[str, str]]:
    """Return names and values, line by line."""
    lines = [(f"labels: {kind}", str(n)) for kind, n in (metrics.get("label_kinds") or {}).items()]
    for name, title in (("histology", "against histology"), ("consensus", "against readers")):
        part = metrics.get(name)
        if part is None:
            continue
        counts = f"{part['positive']} of {part['n']} regions positive, {part['patients']} patients"
        lines.append((title, counts))
        if part["patients"] < 2:  # the order within one patient says nothing of others
            continue
        lines.append(("  AUC (patients as clusters)", interval_text(part["auc"])))
        lines += [
            (f"  {measure.title}", interval_text(part["measures"][name], measure.digits))
            for name, measure in MEASURES.items()
            if measure.headline
        ]
    for reader, part in (metrics.get("readers") or {}).items():
        lines.append((f"reader {reader}: AUC", interval_text(part["auc"])))
    lines += [(title[0].lower() + title[1:], sentence) for title, sentence in findings(metrics)]
    lines += [(f"{name} at its training", sentence) for name, sentence in promises(metrics)]
    lines += _patients(metrics.get("patient_level"))
    lines = [line for line in lines if line[1] != UNKNOWN]
    return [*lines, *(("warning", text) for text in metrics.get("warnings") or [])]


def findings(metrics: JsonObject) -> list[tuple[str, str]]:
    """Return what the run found, each in one sentence."""
    decisions = metrics.get("decisions") or {}
    stated, before = decisions.get("stated"), decisions.get("before_histology")
    parts = (
        ("Decisions", stated),
        ("Before histology was looked at", before if before != stated else None),
        ("By the thresholds alone", decisions.get("thresholds")),
        ("Thresholds for the aim", metrics.get("operating_point")),
        ("Rivals", metrics.get("rivals")),
        ("Readers with the tool", metrics.get("assisted")),
        ("What the readers allow", metrics.get("ceiling")),
        ("Readers", metrics.get("reader_skill")),
    )
    said = [(title, (part or {}).get("sentence")) for title, part in parts]
    return [(title, sentence) for title, sentence in said if sentence]


def learned(run: JsonObject) -> list[tuple[str, str]]:
    """Return how much each setting counts in what learned: of the run, or of its models."""
    models = (run.get("model") or {}).get("models") or {run.get("name", ""): run}
    said = [(name, (part.get("estimator") or {}).get("sentence")) for name, part in models.items()]
    return [(name, sentence) for name, sentence in said if sentence]


def promises(metrics: JsonObject) -> list[tuple[str, str]]:
    """Return the models of a prediction, each with what its training promised of its thresholds."""
    return [(name, point["sentence"]) for name, point in (metrics.get("at_training") or {}).items()]


def _patients(part: JsonObject | None) -> list[tuple[str, str]]:
    """Return the lines on patients, where there is a truth for them."""
    if not part or part["n"] < 2:
        return []
    return [
        ("patients", f"{part['positive']} of {part['n']} with cancer of ISUP 2 or more"),
        ("  AUC", interval_text(part["auc"])),
        ("  Average precision", interval_text(part["average_precision"])),
    ]


def closing_lines(results: Results) -> list[str]:
    """Return two lines: how many men and regions, decided how; the first three men."""
    views = list_patients(results)
    scored = [view for view in views if view.top is not None]
    words = [region.decision for region in results.regions]
    counts = [f"{words.count(word)} {word}" for word in ("malignant", "refer", "benign")]
    sure = words.count("malignant") + words.count("benign")
    share = f"; {100 * sure / len(words):.0f}% decided" if words else ""
    lines = [f"{_many(len(views), 'man', 'men')}, {_many(len(words), 'region', 'regions')}: "
             f"{', '.join(counts)}{share}"]  # fmt: skip
    lines += _drift(results.metrics.get("patient_level") or {})
    first = sorted(scored, key=lambda view: (-view.order, view.patient))[:MOST_PATIENTS]
    named = [
        f"{view.patient} {view.decision}, region {view.top.roi} "
        f"{probability_text(view.top.probability)}"
        for view in first
        if view.top is not None
    ]
    return [*lines, f"first: {'; '.join(named)}"] if named else lines


def _drift(men: JsonObject) -> list[str]:
    """Return the line on the last men beside what the model promised; nothing without a promise."""
    last, promised = (men.get("decisions") or {}).get("lately"), men.get("promised_share")
    if not last or not last["n"] or promised is None:
        return []
    line = f"last {_many(last['n'], 'man', 'men')}: {last['decided']:.0%} decided"
    line += f" ({promised:.0%} at the training)"
    if last["intercept"] is not None:
        line += f"; calibration in the large {last['intercept']:+.2f} ± {1.96 * last['error']:.2f}"
        line += f" over {last['known']} with histology"
    return [line]


def _many(n: int, one: str, more: str) -> str:
    return f"{n} {one if n == 1 else more}"
