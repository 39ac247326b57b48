"""The tables of the index page, as text cells from ``metrics.json``."""

from typing import NamedTuple

import numpy as np

from cad.evaluation.summary import Summary
from cad.terms.measures import MEASURES
from cad.terms.text import interval_text


class MetricTable(NamedTuple):
    """Hold a captioned table of text."""

    title: str
    note: str
    head: list[str]
    rows: list[list[str]]


def metric_tables(metrics: Summary) -> list[MetricTable]:
    """List every table that the metrics have something for, in reading order."""
    made = (
        _measures(metrics),
        _rivals(metrics),
        _patients(metrics),
        _operating(metrics),
        _operating_points(metrics),
        _readers(metrics),
        _skill(metrics),
        _assisted(metrics),
        _against_readers(metrics),
        _agreement(metrics),
        _decisions(metrics),
        _null(metrics),
        _conformal(metrics),
        _labels(metrics.label_kinds),
        _folds(metrics),
    )
    return [table for table in made if table is not None and table.rows]


def _measures(metrics: Summary) -> MetricTable | None:
    parts = {"against histology": metrics.histology, "against readers": metrics.consensus}
    known = {title: part for title, part in parts.items() if part is not None}
    if not known:
        return None
    rows = [
        ["Regions (patients)", *(f"{p.n} ({p.patients})" for p in known.values())],
        ["Malignant / benign", *(f"{p.positive} / {p.negative}" for p in known.values())],
        ["AUC, patients as clusters", *(interval_text(p.auc) for p in known.values())],
        ["AUC, regions as independent (DeLong)",
         *(interval_text(p.auc_roi_level) for p in known.values())],
    ]  # fmt: skip
    for key, measure in MEASURES.items():
        found = [p.measures.get(key) for p in known.values()]
        if any(found):
            rows.append([measure.title, *(interval_text(part, measure.digits) for part in found)])
    note = (
        "Brackets: 95 % intervals, where patients are enough and differ. Against readers: their "
        "mean score, above .5 malignant for AUC and accuracy, as it is for the other measures."
    )
    return MetricTable("Validation", note, ["Measure", *known], rows)


def _operating_points(metrics: Summary) -> MetricTable | None:
    rows = [
        [
            f"P > {point['threshold']:.2f}",
            *map(str, (point["tp"], point["fp"], point["tn"], point["fn"])),
            *(interval_text(rate, 2) for rate in (point["sensitivity"], point["specificity"],
                                                  point["ppv"], point["npv"])),
        ]
        for point in (metrics.histology.operating_points if metrics.histology else ())
    ]  # fmt: skip
    head = ["Threshold", "TP", "FP", "TN", "FN", "Sensitivity", "Specificity", "PPV", "NPV"]
    return MetricTable("Operating points", "Against histology, per region.", head, rows)


def _readers(metrics: Summary) -> MetricTable | None:
    rows = [
        [name, str(part.n), *map(interval_text, (part.auc, part.cad_auc)),
         interval_text(part.consensus_of_others["auc"])]
        for name, part in metrics.readers.items()
    ]  # fmt: skip
    head = ["Reader", "Regions", "AUC", "Classifier, same regions", "AUC against other readers"]
    note = "AUC against histology; the last column takes the mean of the other readers as truth."
    return MetricTable("Readers", note, head, rows)


def _against_readers(metrics: Summary) -> MetricTable | None:
    found = metrics.cad_vs_readers
    if found is None:
        return None
    change = {"value": found.difference, "lower": found.lower, "upper": found.upper}
    row = [
        interval_text(found.cad_auc),
        interval_text(change),
        "–" if np.isnan(found.p) else f"{found.p:.3g}",
        f"{found.n} ({found.omitted})",
    ]
    head = ["AUC of the classifier", "Minus the mean reader", "p", "Regions (left out)"]
    note = "Obuchowski–Rockette, readers and patients random; regions that every reader scored."
    return MetricTable("Classifier and the population of readers", note, head, [row])


def _agreement(metrics: Summary) -> MetricTable | None:
    if metrics.agreement is None:
        return None
    icc, alpha = metrics.agreement["icc"], metrics.agreement["krippendorff_alpha"]
    rows = [
        ["Intraclass correlation, one reader", interval_text(icc["single"], 2)],
        ["Intraclass correlation, mean of readers", interval_text(icc["average"], 2)],
        ["Krippendorff's alpha, ordinal",
         interval_text(alpha["ordinal"], 2)],
        *(
            [f"Weighted kappa, {pair['a']} and {pair['b']}", interval_text(pair["value"], 2)]
            for pair in metrics.agreement["kappa"]
        ),
    ]  # fmt: skip
    known = [row for row in rows if row[1] != "–"]
    return MetricTable("Agreement of readers", "", ["Measure", "Value"], known)


def _decisions(metrics: Summary) -> MetricTable | None:
    titles = {
        "stated": "stated",
        "before_histology": "before histology",
        "thresholds": "thresholds alone",
    }
    rows = [
        [f"{word}, {title}", *map(str, (part.n, part.malignant, part.benign, part.unknown))]
        for name, title in titles.items()
        if name in metrics.decisions
        for word, part in metrics.decisions[name].decisions.items()
    ]
    head = ["Decision", "Regions", "Malignant by histology", "Benign", "Unknown"]
    note = (
        "Stated: as on the pages. What histology contradicts is not stated, so that errors are "
        "counted before it was looked at. Thresholds alone: nothing speaks against them."
    )
    return MetricTable("Decisions at the site's costs", note, head, rows)


def _null(metrics: Summary) -> MetricTable | None:
    null = metrics.null
    if null is None:
        return None
    rows = [
        [
            f"labels permuted {scheme} patients",
            interval_text({"value": part.mean, "lower": part.lower, "upper": part.upper}),
            "–" if np.isnan(part.p) else f"{part.p:.3f}",
            part.evidence,
        ]
        for scheme, part in null.schemes.items()
    ]
    head = ["Null of the whole loop", "AUC: mean [central 95 %]", "p", "Finding"]
    note = f"{null.n} permutations of each kind, everything fitted anew."
    return MetricTable("Permutation null", note, head, rows)


def _conformal(metrics: Summary) -> MetricTable | None:
    rows = [
        [f"{100 * (1 - level.error):.0f} %",
         *(interval_text(share, 2) for share in (level.coverage_malignant, level.coverage_benign,
                                                 level.single, level.both, level.empty))]
        for level in (metrics.conformal["levels"] if metrics.conformal else ())
    ]  # fmt: skip
    head = ["Confidence", "Coverage, malignant", "Coverage, benign", "One class", "Both", "Neither"]
    note = "Coverage averaged within patients first; the last three are shares of all regions."
    return MetricTable("Conformal sets", note, head, rows)


def _labels(kinds: dict[str, int]) -> MetricTable | None:
    rows = [[name.replace("_", " "), str(n)] for name, n in kinds.items()]
    note = "What readers and histology told the learner about each region."
    return MetricTable("Labels", note, ["Kind", "Regions"], rows)


def _folds(metrics: Summary) -> MetricTable | None:
    rows = [
        [fold.name, text]
        for fold in metrics.folds
        for text in [*fold.warnings, *([fold.error] if fold.error else [])]
    ]
    note = "Folds that failed or warned; the others did neither."
    return MetricTable("Folds", note, ["Left out", "Said"], rows[:50])


def _rivals(metrics: Summary) -> MetricTable | None:
    """Return every learner's loss against the readers and against histology."""
    if metrics.rivals is None:
        return None
    kinds = (("readers", "kl"), ("readers", "brier"), ("readers", "auc"),
             ("histology", "brier"), ("histology", "auc"))  # fmt: skip
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for row in metrics.rivals["table"]:
        measure = row["measure"]
        mark = " *" if row["beyond_chance"] else ""
        text = interval_text(row["value"], MEASURES[measure].digits) + mark
        cells.setdefault(row["learner"], {})[(row["against"], measure)] = text
    shown = [kind for kind in kinds if any(kind in part for part in cells.values())]
    rows = [[learner, *(part.get(kind, "–") for kind in shown)] for learner, part in cells.items()]
    head = [f"{MEASURES[m].title} to {against}" for against, m in shown]
    note = (
        f"All on the same folds. *: differs from {metrics.rivals['reference']} by more than chance "
        "(paired 95 % interval over patients)."
    )
    return MetricTable("Rivals", note, ["Learner", *head], rows)


def _patients(metrics: Summary) -> MetricTable | None:
    part = metrics.patient_level
    if part is None or not part.n:
        return None
    rows = [
        ["Patients (malignant)", f"{part.n} ({part.positive})"],
        ["AUC", interval_text(part.auc)],
        ["Average precision", interval_text(part.average_precision)],
        ["Calibration slope", interval_text(part.calibration_slope, 2)],
        ["Brier score", interval_text(part.brier)],
    ]
    return MetricTable("Patients: any cancer of ISUP 2 or more", part.note, ["", ""], rows)


def _operating(metrics: Summary) -> MetricTable | None:
    point = metrics.operating_point
    sides = (
        (("benign", "negative", point.benign), ("malignant", "positive", point.malignant))
        if point
        else ()
    )
    rows = [
        [
            name,
            f"{side.threshold:.3f}",
            f"{100 * side.share:.0f} %",
            "from the costs" if side.aim is None else f"{side.aim:g}",
            f"{interval_text(side.observed, 2)} ({value})",
            interval_text(side.validated, 2),
        ]
        for name, value, side in sides
    ]
    head = ["Decision", "Threshold", "Share", "Aim", "Predictive value", "In left-out patients"]
    note = "What is promised is the lower end of the last column."
    return MetricTable("Operating point", note, head, rows)


def _assisted(metrics: Summary) -> MetricTable | None:
    found = metrics.assisted
    if found is None:
        return None
    rows = [
        [reader, str(part["n"]), interval_text(part["alone"]), interval_text(part["with_tool"])]
        for reader, part in found.readers.items()
    ]
    head = ["Reader", "Regions", "AUC alone", "AUC with the tool"]
    return MetricTable("Readers with the tool", found.sentence(), head, rows)


def _skill(metrics: Summary) -> MetricTable | None:
    """Return each reader's sensitivity, specificity and weight beside the others."""
    skill = metrics.reader_skill
    if skill is None:
        return None

    def cell(value: float, lower: float, upper: float) -> str:
        return interval_text({"value": value, "lower": lower, "upper": upper}, 2)

    rows = [
        [
            row["reader"],
            str(row["n"]),
            cell(row["sensitivity"], row["sensitivity_lower"], row["sensitivity_upper"]),
            cell(row["specificity"], row["specificity_lower"], row["specificity_upper"]),
            cell(row["weight"], row["weight_lower"], row["weight_upper"]),
        ]
        for row in skill["table"]
    ]
    note = f"Against {skill['against']}. {skill['sentence']}"
    head = ["Reader", "Regions", "Sensitivity", "Specificity", "Weight, log-odds"]
    return MetricTable("Readers, pooled", note, head, rows)
