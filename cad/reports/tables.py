"""The tables of the index page, as text cells from ``metrics.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MEASURES = (
    ("accuracy", "Accuracy at .5", 3),
    ("average_precision", "Average precision", 3),
    ("partial_auc", "Partial AUC", 3),
    ("brier", "Brier score", 3),
    ("cross_entropy", "Cross-entropy, nats", 3),
    ("kl", "Two-sided KL, sum, nats", 1),
    ("alignment_error", "Alignment error", 3),
    ("calibration_intercept", "Calibration intercept", 2),
    ("calibration_slope", "Calibration slope", 2),
)
RATES = ("sensitivity", "specificity", "ppv", "npv")


@dataclass(frozen=True)
class MetricTable:
    """A captioned table of text."""

    title: str
    note: str
    head: list[str]
    rows: list[list[str]]


def metric_tables(metrics: dict[str, Any]) -> list[MetricTable]:
    """Every table that the metrics have something for, in reading order."""
    made = (
        _measures(metrics),
        _operating_points(metrics),
        _readers(metrics.get("readers") or {}),
        _against_readers(metrics.get("cad_vs_readers") or {}),
        _agreement(metrics.get("agreement") or {}),
        _decisions(metrics.get("decisions") or {}),
        _null(metrics.get("null") or {}),
        _conformal(metrics.get("conformal") or {}),
        _labels(metrics.get("label_kinds") or {}),
        _folds(metrics.get("folds") or []),
    )
    return [table for table in made if table is not None and table.rows]


def interval(part: Any, digits: int = 3) -> str:
    """``value [lower, upper]`` with as many decimals; a dash where nothing is known."""
    if isinstance(part, int | float):
        part = {"value": part}
    if not isinstance(part, dict) or part.get("value") is None:
        return "–"
    text = _fixed(part["value"], digits)
    lower, upper = part.get("lower"), part.get("upper")
    if lower is None or upper is None:
        return text
    return f"{text} [{_fixed(lower, digits)}, {_fixed(upper, digits)}]"


def _fixed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 and digits > 1 else text


def _measures(metrics: dict[str, Any]) -> MetricTable | None:
    parts = {
        title: metrics.get(key)
        for key, title in (("histology", "against histology"), ("consensus", "against readers"))
    }
    known = {title: part for title, part in parts.items() if part}
    if not known:
        return None
    rows = [
        ["Regions (patients)", *(f"{p['n']} ({p.get('patients', '–')})" for p in known.values())],
        ["Malignant / benign", *(f"{p.get('positive', '–')} / {p.get('negative', '–')}"
                                 for p in known.values())],
        ["AUC, patients as clusters", *(interval(p.get("auc")) for p in known.values())],
        ["AUC, regions as independent (DeLong)",
         *(interval(p.get("auc_roi_level")) for p in known.values())],
    ]  # fmt: skip
    for key, title, digits in MEASURES:
        cells = [interval((p.get("measures") or {}).get(key), digits) for p in known.values()]
        rows.append([title, *cells])
    note = (
        "Brackets: 95 % intervals, where patients are enough and differ. Against readers: their "
        "mean score, above .5 malignant for AUC and accuracy, as it is for the other measures."
    )
    return MetricTable("Validation", note, ["Measure", *known], rows)


def _operating_points(metrics: dict[str, Any]) -> MetricTable | None:
    points = (metrics.get("histology") or {}).get("operating_points") or []
    rows = [
        [
            f"P ≥ {_fixed(point['threshold'], 2)}",
            *(str(point.get(name, "–")) for name in ("tp", "fp", "tn", "fn")),
            *(interval(point.get(name), 2) for name in RATES),
        ]
        for point in points
    ]
    head = ["Threshold", "TP", "FP", "TN", "FN", "Sensitivity", "Specificity", "PPV", "NPV"]
    return MetricTable("Operating points", "Against histology, per region.", head, rows)


def _readers(readers: dict[str, Any]) -> MetricTable | None:
    rows = [
        [
            name,
            str(part.get("n", "–")),
            interval(part.get("auc")),
            interval(part.get("cad_auc")),
            interval((part.get("consensus_of_others") or {}).get("auc")),
        ]
        for name, part in readers.items()
    ]
    head = ["Reader", "Regions", "AUC", "Classifier, same regions", "AUC against other readers"]
    note = "AUC against histology; the last column takes the mean of the other readers as truth."
    return MetricTable("Readers", note, head, rows)


def _against_readers(found: dict[str, Any]) -> MetricTable | None:
    if found.get("difference") is None:
        return None
    change = {
        "value": found["difference"],
        "lower": found.get("lower"),
        "upper": found.get("upper"),
    }
    p = found.get("p")
    row = [
        interval(found.get("cad_auc")),
        interval(change),
        "–" if p is None else f"{p:.3g}",
        f"{found.get('n', '–')} ({found.get('omitted', 0)})",
    ]
    head = ["AUC of the classifier", "Minus the mean reader", "p", "Regions (left out)"]
    note = "Obuchowski–Rockette, readers and patients random; regions that every reader scored."
    return MetricTable("Classifier and the population of readers", note, head, [row])


def _agreement(found: dict[str, Any]) -> MetricTable | None:
    icc, alpha = found.get("icc") or {}, found.get("krippendorff_alpha") or {}
    rows = [
        ["Intraclass correlation, one reader", interval(icc.get("single"), 2)],
        ["Intraclass correlation, mean of readers", interval(icc.get("average"), 2)],
        ["Krippendorff's alpha, ordinal", interval(alpha.get("ordinal"), 2)],
        *(
            [f"Weighted kappa, {pair['a']} and {pair['b']}", interval(pair.get("value"), 2)]
            for pair in found.get("kappa") or []
        ),
    ]
    known = [row for row in rows if row[1] != "–"]
    return MetricTable("Agreement of readers", "", ["Measure", "Value"], known)


def _decisions(decisions: dict[str, Any]) -> MetricTable | None:
    rows = [
        [name, *(str(part.get(k, "–")) for k in ("n", "malignant", "benign", "unknown"))]
        for name, part in decisions.items()
    ]
    head = ["Decision", "Regions", "Malignant by histology", "Benign", "Unknown"]
    return MetricTable("Decisions at the site's costs", "", head, rows)


def _null(null: dict[str, Any]) -> MetricTable | None:
    rows = [
        [
            f"labels permuted {scheme} patients",
            interval({k: part.get(k) for k in ("lower", "upper")} | {"value": part.get("mean")}),
            _fixed(part["p"], 3) if part.get("p") is not None else "–",
            str(part.get("evidence", "")),
        ]
        for scheme, part in null.items()
        if isinstance(part, dict) and "p" in part
    ]
    head = ["Null of the whole loop", "AUC: mean [central 95 %]", "p", "Finding"]
    note = f"{null.get('n', 0)} permutations of each kind, everything fitted anew."
    return MetricTable("Permutation null", note, head, rows)


def _conformal(conformal: dict[str, Any]) -> MetricTable | None:
    keys = ("coverage_malignant", "coverage_benign", "single", "both", "empty")
    rows = [
        [f"{100 * (1 - level['error']):.0f} %", *(interval(level.get(k), 2) for k in keys)]
        for level in conformal.get("levels") or []
    ]
    head = ["Confidence", "Coverage, malignant", "Coverage, benign", "One class", "Both", "Neither"]
    note = "Coverage averaged within patients first; the last three are shares of all regions."
    return MetricTable("Conformal sets", note, head, rows)


def _labels(kinds: dict[str, Any]) -> MetricTable | None:
    rows = [[name.replace("_", " "), str(n)] for name, n in kinds.items()]
    note = "What readers and histology told the learner about each region."
    return MetricTable("Labels", note, ["Kind", "Regions"], rows)


def _folds(folds: list[dict[str, Any]]) -> MetricTable | None:
    rows = [
        [str(f.get("name", "")), str(text)]
        for f in folds
        for text in [*(f.get("warnings") or []), *([f["error"]] if f.get("error") else [])]
    ]
    note = "Folds that failed or warned; the others did neither."
    return MetricTable("Folds", note, ["Left out", "Said"], rows[:50])
