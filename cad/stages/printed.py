"""Put the measures of a run into the lines and numbers that a command prints."""

from __future__ import annotations

from cad.evaluation.measures import MEASURES
from cad.evaluation.tables import interval_text
from cad.files import JsonObject


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
        lines.append(("  AUC (patients as clusters)", interval_text(part["auc"])))
        lines += [
            (f"  {measure.title}", interval_text(part["measures"][name], measure.digits))
            for name, measure in MEASURES.items()
            if measure.headline
        ]
    for reader, part in (metrics.get("readers") or {}).items():
        lines.append((f"reader {reader}: AUC", interval_text(part["auc"])))
    for name, title in (
        ("operating_point", "decisions"),
        ("rivals", "rivals"),
        ("assisted", "readers with the tool"),
        ("ceiling", "readers' ceiling"),
        ("reader_skill", "readers"),
    ):
        sentence = (metrics.get(name) or {}).get("sentence")
        lines += [(title, sentence)] if sentence else []
    lines += _patients(metrics.get("patient_level"))
    return [*lines, *(("warning", text) for text in metrics.get("warnings") or [])]


def _patients(part: JsonObject | None) -> list[tuple[str, str]]:
    """Return the lines on patients, where there is a truth for them."""
    if not part:
        return []
    return [
        ("patients", f"{part['positive']} of {part['n']} with a malignant region"),
        ("  AUC", interval_text(part["auc"])),
        ("  Average precision", interval_text(part["average_precision"])),
    ]
