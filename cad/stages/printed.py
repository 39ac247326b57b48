"""Put the measures of a run into the lines and numbers that a command prints."""

from __future__ import annotations

from typing import Any

_TITLES = {
    "accuracy": "accuracy at .5",
    "kl": "two-sided KL (sum)",
    "alignment_error": "alignment error",
    "brier": "Brier score",
}


def numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the measures without curves and lists of regions, for ``--json``."""
    kept = ("n", "positive", "negative", "auc", "auc_roi_level", "measures", "warnings")
    found: dict[str, Any] = {k: metrics.get(k) for k in ("n", "label_kinds", "warnings")}
    for name in ("histology", "consensus"):
        part = metrics.get(name)
        found[name] = part and {k: part.get(k) for k in kept}
    readers = metrics.get("readers") or {}
    found["readers"] = {reader: part.get("auc") for reader, part in readers.items()}
    return found


def printed_table(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return names and values, line by line."""
    lines = [(f"labels: {kind}", str(n)) for kind, n in (metrics.get("label_kinds") or {}).items()]
    for name, title in (("histology", "against histology"), ("consensus", "against readers")):
        part = metrics.get(name)
        if part is None:
            continue
        counts = f"{part['positive']} of {part['n']} regions positive, {part['patients']} patients"
        lines.append((title, counts))
        lines.append(("  AUC (patients resampled as clusters)", _interval(part["auc"])))
        lines += [(f"  {title}", _interval(part["measures"][m])) for m, title in _TITLES.items()]
    for reader, part in (metrics.get("readers") or {}).items():
        lines.append((f"reader {reader}: AUC", _interval(part["auc"])))
    return [*lines, *(("warning", text) for text in metrics.get("warnings") or [])]


def _interval(part: dict[str, Any] | None) -> str:
    if part is None or part["value"] is None:
        return "not defined"
    text = f"{part['value']:.3f}"
    if part["lower"] is not None and part["upper"] is not None:
        text += f" [{part['lower']:.3f}, {part['upper']:.3f}]"
    return text
