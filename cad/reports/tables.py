"""The tables of the index page, as text cells from ``metrics.json``."""

from __future__ import annotations

from dataclasses import dataclass

from cad.files import JsonObject
from cad.terms.measures import MEASURES
from cad.terms.text import interval_text

RATES = ("sensitivity", "specificity", "ppv", "npv")


@dataclass(frozen=True)
class MetricTable:
    """Hold a captioned table of text."""

    title: str
    note: str
    head: list[str]
    rows: list[list[str]]


def metric_tables(metrics: JsonObject) -> list[MetricTable]:
    """List every table that the metrics have something for, in reading order."""
    made = (
        _measures(metrics),
        _rivals(metrics.get("rivals") or {}),
        _patients(metrics.get("patient_level") or {}),
        _operating(metrics.get("operating_point") or {}),
        _operating_points(metrics),
        _readers(metrics.get("readers") or {}),
        _skill(metrics.get("reader_skill") or {}),
        _assisted(metrics.get("assisted") or {}),
        _against_readers(metrics.get("cad_vs_readers") or {}),
        _agreement(metrics.get("agreement") or {}),
        _decisions(metrics.get("decisions") or {}),
        _null(metrics.get("null") or {}),
        _conformal(metrics.get("conformal") or {}),
        _labels(metrics.get("label_kinds") or {}),
        _folds(metrics.get("folds") or []),
    )
    return [table for table in made if table is not None and table.rows]


def _measures(metrics: JsonObject) -> MetricTable | None:
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
        ["AUC, patients as clusters", *(interval_text(p.get("auc")) for p in known.values())],
        ["AUC, regions as independent (DeLong)",
         *(interval_text(p.get("auc_roi_level")) for p in known.values())],
    ]  # fmt: skip
    for key, measure in MEASURES.items():
        found = [(p.get("measures") or {}).get(key) for p in known.values()]
        if any(found):
            rows.append([measure.title, *(interval_text(part, measure.digits) for part in found)])
    note = (
        "Brackets: 95 % intervals, where patients are enough and differ. Against readers: their "
        "mean score, above .5 malignant for AUC and accuracy, as it is for the other measures."
    )
    return MetricTable("Validation", note, ["Measure", *known], rows)


def _operating_points(metrics: JsonObject) -> MetricTable | None:
    points = (metrics.get("histology") or {}).get("operating_points") or []
    rows = [
        [
            f"P ≥ {point['threshold']:.2f}",
            *(str(point.get(name, "–")) for name in ("tp", "fp", "tn", "fn")),
            *(interval_text(point.get(name), 2) for name in RATES),
        ]
        for point in points
    ]
    head = ["Threshold", "TP", "FP", "TN", "FN", "Sensitivity", "Specificity", "PPV", "NPV"]
    return MetricTable("Operating points", "Against histology, per region.", head, rows)


def _readers(readers: JsonObject) -> MetricTable | None:
    rows = [
        [
            name,
            str(part.get("n", "–")),
            interval_text(part.get("auc")),
            interval_text(part.get("cad_auc")),
            interval_text((part.get("consensus_of_others") or {}).get("auc")),
        ]
        for name, part in readers.items()
    ]
    head = ["Reader", "Regions", "AUC", "Classifier, same regions", "AUC against other readers"]
    note = "AUC against histology; the last column takes the mean of the other readers as truth."
    return MetricTable("Readers", note, head, rows)


def _against_readers(found: JsonObject) -> MetricTable | None:
    if found.get("difference") is None:
        return None
    change = {
        "value": found["difference"],
        "lower": found.get("lower"),
        "upper": found.get("upper"),
    }
    p = found.get("p")
    row = [
        interval_text(found.get("cad_auc")),
        interval_text(change),
        "–" if p is None else f"{p:.3g}",
        f"{found.get('n', '–')} ({found.get('omitted', 0)})",
    ]
    head = ["AUC of the classifier", "Minus the mean reader", "p", "Regions (left out)"]
    note = "Obuchowski–Rockette, readers and patients random; regions that every reader scored."
    return MetricTable("Classifier and the population of readers", note, head, [row])


def _agreement(found: JsonObject) -> MetricTable | None:
    icc, alpha = found.get("icc") or {}, found.get("krippendorff_alpha") or {}
    rows = [
        ["Intraclass correlation, one reader", interval_text(icc.get("single"), 2)],
        ["Intraclass correlation, mean of readers", interval_text(icc.get("average"), 2)],
        ["Krippendorff's alpha, ordinal", interval_text(alpha.get("ordinal"), 2)],
        *(
            [f"Weighted kappa, {pair['a']} and {pair['b']}", interval_text(pair.get("value"), 2)]
            for pair in found.get("kappa") or []
        ),
    ]
    known = [row for row in rows if row[1] != "–"]
    return MetricTable("Agreement of readers", "", ["Measure", "Value"], known)


def _decisions(decisions: JsonObject) -> MetricTable | None:
    titles = {
        "stated": "stated",
        "before_histology": "before histology",
        "thresholds": "thresholds alone",
    }
    rows = [
        [f"{word}, {title}", *(str(part[k]) for k in ("n", "malignant", "benign", "unknown"))]
        for name, title in titles.items()
        for word, part in (decisions.get(name) or {}).get("decisions", {}).items()
    ]
    head = ["Decision", "Regions", "Malignant by histology", "Benign", "Unknown"]
    note = (
        "Stated: as on the pages. What histology contradicts is not stated, so that errors are "
        "counted before it was looked at. Thresholds alone: nothing speaks against them."
    )
    return MetricTable("Decisions at the site's costs", note, head, rows)


def _null(null: JsonObject) -> MetricTable | None:
    rows = [
        [
            f"labels permuted {scheme} patients",
            interval_text(
                {k: part.get(k) for k in ("lower", "upper")} | {"value": part.get("mean")}
            ),
            f"{part['p']:.3f}" if part.get("p") is not None else "–",
            str(part.get("evidence", "")),
        ]
        for scheme, part in null.items()
        if isinstance(part, dict) and "p" in part
    ]
    head = ["Null of the whole loop", "AUC: mean [central 95 %]", "p", "Finding"]
    note = f"{null.get('n', 0)} permutations of each kind, everything fitted anew."
    return MetricTable("Permutation null", note, head, rows)


def _conformal(conformal: JsonObject) -> MetricTable | None:
    keys = ("coverage_malignant", "coverage_benign", "single", "both", "empty")
    rows = [
        [f"{100 * (1 - level['error']):.0f} %", *(interval_text(level.get(k), 2) for k in keys)]
        for level in conformal.get("levels") or []
    ]
    head = ["Confidence", "Coverage, malignant", "Coverage, benign", "One class", "Both", "Neither"]
    note = "Coverage averaged within patients first; the last three are shares of all regions."
    return MetricTable("Conformal sets", note, head, rows)


def _labels(kinds: JsonObject) -> MetricTable | None:
    rows = [[name.replace("_", " "), str(n)] for name, n in kinds.items()]
    note = "What readers and histology told the learner about each region."
    return MetricTable("Labels", note, ["Kind", "Regions"], rows)


def _folds(folds: list[JsonObject]) -> MetricTable | None:
    rows = [
        [str(f.get("name", "")), str(text)]
        for f in folds
        for text in [*(f.get("warnings") or []), *([f["error"]] if f.get("error") else [])]
    ]
    note = "Folds that failed or warned; the others did neither."
    return MetricTable("Folds", note, ["Left out", "Said"], rows[:50])


def _rivals(found: JsonObject) -> MetricTable | None:
    """Return every learner's loss against the readers and against histology."""
    kinds = (("readers", "kl"), ("readers", "brier"), ("readers", "auc"),
             ("histology", "brier"), ("histology", "auc"))  # fmt: skip
    cells: dict[str, dict[tuple[str, str], JsonObject]] = {}
    for row in found.get("table") or []:
        cells.setdefault(row["learner"], {})[(row["against"], row["measure"])] = row
    shown = [kind for kind in kinds if any(kind in part for part in cells.values())]
    rows = []
    for learner, part in cells.items():
        texts = []
        for kind in shown:
            row = part.get(kind) or {}
            digits = MEASURES[kind[1]].digits
            mark = " *" if row.get("beyond_chance") else ""
            texts.append(interval_text(row.get("value"), digits) + mark)
        rows.append([learner, *texts])
    head = [f"{MEASURES[m].title} to {against}" for against, m in shown]
    note = (
        f"All on the same folds. *: differs from {found.get('reference')} by more than chance "
        "(paired 95 % interval over patients)."
    )
    return MetricTable("Rivals", note, ["Learner", *head], rows)


def _patients(part: JsonObject) -> MetricTable | None:
    if not part.get("n"):
        return None
    rows = [
        ["Patients (malignant)", f"{part['n']} ({part['positive']})"],
        ["AUC", interval_text(part["auc"])],
        ["Average precision", interval_text(part["average_precision"])],
        ["Calibration slope", interval_text(part["calibration_slope"], 2)],
        ["Brier score", interval_text(part["brier"])],
    ]
    return MetricTable(
        "Patients: any cancer of ISUP 2 or more", part.get("note", ""), ["", ""], rows
    )


def _operating(part: JsonObject) -> MetricTable | None:
    rows = []
    for name, value in (("benign", "negative"), ("malignant", "positive")):
        side = part.get(name)
        if side:
            aim = "from the costs" if side["aim"] is None else f"{side['aim']:g}"
            rows.append(
                [
                    name,
                    f"{side['threshold']:.3f}",
                    f"{100 * side['share']:.0f} %",
                    aim,
                    f"{interval_text(side['observed'], 2)} ({value})",
                    interval_text(side["validated"], 2),
                ]
            )
    head = ["Decision", "Threshold", "Share", "Aim", "Predictive value", "In left-out patients"]
    note = "What is promised is the lower end of the last column."
    return MetricTable("Operating point", note, head, rows)


def _assisted(found: JsonObject) -> MetricTable | None:
    rows = [
        [reader, str(part["n"]), interval_text(part["alone"]), interval_text(part["with_tool"])]
        for reader, part in (found.get("readers") or {}).items()
    ]
    head = ["Reader", "Regions", "AUC alone", "AUC with the tool"]
    return MetricTable("Readers with the tool", found.get("sentence") or "", head, rows)


def _skill(found: JsonObject) -> MetricTable | None:
    """Return each reader's sensitivity, specificity and weight beside the others."""

    def cell(row: JsonObject, name: str) -> str:
        ends = {end: row.get(f"{name}_{end}") for end in ("lower", "upper")}
        return interval_text({"value": row.get(name), **ends}, 2)

    names = ("sensitivity", "specificity", "weight")
    rows = [
        [str(row["reader"]), str(row["n"]), *(cell(row, name) for name in names)]
        for row in found.get("table") or []
    ]
    note = f"Against {found.get('against')}. {found.get('sentence') or ''}"
    head = ["Reader", "Regions", "Sensitivity", "Specificity", "Weight, log-odds"]
    return MetricTable("Readers, pooled", note, head, rows)
