"""Put the measures of a run into the lines and numbers that a command prints."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cad.evaluation.measures import MEASURES
from cad.evaluation.tables import interval_text
from cad.files import JsonObject
from cad.run_folder.results import RegionResult
from cad.run_folder.verdict import patient_verdict

UNKNOWN = interval_text(None)
MOST_PATIENTS = 10
"""Patients that a command lists at its end; the page has all."""


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
    lines = [line for line in lines if line[1] != UNKNOWN]
    return [*lines, *(("warning", text) for text in metrics.get("warnings") or [])]


def _patients(part: JsonObject | None) -> list[tuple[str, str]]:
    """Return the lines on patients, where there is a truth for them."""
    if not part or part["n"] < 2:
        return []
    return [
        ("patients", f"{part['positive']} of {part['n']} with a malignant region"),
        ("  AUC", interval_text(part["auc"])),
        ("  Average precision", interval_text(part["average_precision"])),
    ]


def patient_lines(regions: Sequence[RegionResult], failed: Collection[str]) -> list[str]:
    """Return the patients by falling suspicion, as on the index, with what speaks against the tool.

    Parameters
    ----------
    regions : sequence of RegionResult
        Of all patients.
    failed : collection of str
        Patients of whom a study or a region gave no result.
    """
    by_patient: dict[str, list[RegionResult]] = {}
    for region in regions:
        if region.probability is not None:
            by_patient.setdefault(region.patient, []).append(region)
    highest = {name: max(r.probability or 0.0 for r in own) for name, own in by_patient.items()}
    judged = {name: patient_verdict(own, name in failed) for name, own in by_patient.items()}
    ranked = sorted(by_patient, key=lambda name: (-judged[name].suspicion, name))
    width = max((len(name) for name in ranked[:MOST_PATIENTS]), default=0)
    lines = ["patients by suspicion, the tool's or the readers'"] if ranked else []
    for name in ranked[:MOST_PATIENTS]:
        said = judged[name]
        flags = [f"region {r.roi}: {'; '.join(found.against)}" for r, found in said.disputed]
        unlike = [r.roi for r in by_patient[name] if r.unlike]
        flags += [f"unlike the training: region {', '.join(unlike)}"] if unlike else []
        flags += ["something failed"] if name in failed else []
        text = f"  {name:<{width}}  {highest[name]:.2f}  {said.stated:<9}  {'. '.join(flags)}"
        lines.append(text.rstrip())
    more = len(ranked) - MOST_PATIENTS
    return [*lines, f"  and {more} more"] if more > 0 else lines
