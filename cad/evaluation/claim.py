"""``validation.md``: what a run can answer of CLAIM 2024 and TRIPOD+AI, and what it cannot.

Item numbers follow Tejani et al., Radiol. Artif. Intell. 2024 (CLAIM, 44 items) and Collins et
al., BMJ 2024 (TRIPOD+AI, 27 items); topics are named in our own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cad.evaluation.measures import MEASURES
from cad.evaluation.tables import interval_text

_Json = Mapping[str, Any]

CLAIM_TOPICS = {
    1: "AI study, category of technology",
    2: "structured summary",
    3: "background and intended role",
    4: "aims and hypotheses",
    5: "prospective or retrospective",
    6: "study goal",
    7: "data sources",
    8: "inclusion and exclusion criteria",
    9: "preprocessing",
    10: "selection of data subsets",
    11: "de-identification",
    12: "missing data",
    13: "image acquisition protocol",
    14: "reference standard, how obtained",
    15: "reference standard, why chosen",
    16: "annotators of the reference standard",
    17: "annotation of the test set",
    18: "variability between and within annotators",
    19: "assignment to partitions",
    20: "level at which partitions are disjoint",
    21: "intended sample size",
    22: "model in detail",
    23: "software and versions",
    24: "initialisation of parameters",
    25: "training",
    26: "choice of the final model",
    27: "ensembling",
    28: "measures of performance",
    29: "uncertainty and significance",
    30: "robustness and sensitivity analysis",
    31: "explanation of predictions",
    32: "testing on internal data",
    33: "testing on external data",
    34: "trial registration",
    35: "numbers included and excluded",
    36: "demographic and clinical characteristics",
    37: "performance with uncertainty",
    38: "diagnostic accuracy and its precision",
    39: "failure analysis",
    40: "limitations",
    41: "implications for practice",
    42: "study protocol",
    43: "availability of software, model, data",
    44: "funding",
}

TRIPOD_TOPICS = {
    "1": "title",
    "2": "abstract",
    "3": "background, intended use, inequalities",
    "4": "objectives",
    "5": "data sources and dates",
    "6": "setting, eligibility, treatments",
    "7": "data preparation",
    "8": "outcome, its assessment and blinding",
    "9": "predictors",
    "10": "sample size",
    "11": "missing data",
    "12a": "use of data, partition",
    "12b": "handling of predictors",
    "12c": "type of model, building, tuning, internal validation",
    "12d": "heterogeneity between clusters",
    "12e": "measures and plots",
    "12f": "model updating",
    "12g": "how predictions were made",
    "13": "class imbalance",
    "14": "fairness",
    "15": "output and thresholds",
    "16": "differences of training and evaluation",
    "17": "ethical approval",
    "18": "funding, conflicts, protocol, registration, data, code",
    "19": "patient and public involvement",
    "20": "flow and characteristics of participants",
    "21": "participants and events in each analysis",
    "22": "full model specification",
    "23a": "performance with intervals",
    "23b": "performance in clusters",
    "24": "results of updating",
    "25": "interpretation",
    "26": "limitations",
    "27": "usability: poor input, user, next steps",
}


def validation_md(run: _Json, metrics: _Json) -> str:
    """Return the text of ``validation.md``.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    metrics : dict
        Content of ``metrics.json`` (:func:`cad.evaluation.summary.evaluate`).

    Returns
    -------
    str
        Markdown: results, both checklists answered from this run, and the items that only a
        person can answer.
    """
    facts = _Facts(run, metrics)
    claim, tripod = _claim_answers(facts), _tripod_answers(facts)
    open_claim = [f"{n} {t}" for n, t in CLAIM_TOPICS.items() if n not in claim]
    open_tripod = [f"{n} {t}" for n, t in TRIPOD_TOPICS.items() if n not in tripod]
    parts = [
        f"# Validation of {run.get('name', 'this run')}",
        "Research use only." + (" **Simulated patients.**" if run.get("cohort_simulated") else ""),
        "## Results\n\n" + facts.performance(),
        *(["## Warnings\n\n" + facts.warnings()] if metrics.get("warnings") else []),
        "## CLAIM 2024\n\n" + _checklist({str(n): (CLAIM_TOPICS[n], a) for n, a in claim.items()}),
        "## TRIPOD+AI\n\n" + _checklist({n: (TRIPOD_TOPICS[n], a) for n, a in tripod.items()}),
        "## Only a person can answer\n\nCLAIM 2024: "
        + "; ".join(open_claim)
        + ".\n\nTRIPOD+AI: "
        + "; ".join(open_tripod)
        + ".",
    ]
    return "\n\n".join(parts) + "\n"


class _Facts:
    """Make sentences about one run, each from run.json and metrics.json only."""

    def __init__(self, run: _Json, metrics: _Json) -> None:
        self.run, self.metrics = run, metrics
        self.settings: _Json = run.get("settings") or {}
        self.labels: _Json = self.settings.get("labels") or {}
        self.learner: _Json = self.settings.get("learner") or {}
        self.validate: _Json = self.settings.get("validate") or {}
        self.n: _Json = metrics.get("n") or {}
        self.external = run.get("kind") == "predict"

    def performance(self) -> str:
        lines = ["| | histology | readers' consensus |", "| --- | --- | --- |"]
        blocks = [self.metrics.get("histology") or {}, self.metrics.get("consensus") or {}]

        def row(name: str, texts: list[str]) -> None:
            lines.append(f"| {name} | {' | '.join(texts)} |")

        row("ROIs (patients)", [f"{b['n']} ({b['patients']})" if b else "–" for b in blocks])
        row("malignant", [str(b["positive"]) if b else "–" for b in blocks])
        row("ties at .5", [str(b["ties"]) if b else "–" for b in blocks])
        row("AUC, patient-clustered", [interval_text(b["auc"]) if b else "–" for b in blocks])
        row("AUC, ROI-level", [interval_text(b["auc_roi_level"]) if b else "–" for b in blocks])
        for name, measure in MEASURES.items():
            if name != "auc":
                parts = [b["measures"].get(name) if b else None for b in blocks]
                row(measure.title, [interval_text(part, measure.digits) for part in parts])
        return "\n".join(lines)

    def warnings(self) -> str:
        return "\n".join(f"- {text}" for text in self.metrics["warnings"])

    def missing(self) -> str:
        return (
            f"{self.n.get('not_predicted', 0)} of {self.n.get('rois', 0)} ROIs have no "
            f"prediction; histology is known for {self.n.get('with_histology', 0)}, a reader's "
            f"score for {self.n.get('with_consensus', 0)}. Missing features are imputed by the "
            "median of the training patients, inside every fold; comparisons use the ROIs where "
            "the truth is known."
        )

    def included(self) -> str:
        counts: _Json = self.run.get("counts") or {}
        studies = counts.get("studies")
        flow = ""
        if studies is not None:
            flow = f" {studies} studies read, {counts.get('failed', 0)} failed (failures.csv)."
        return f"{self.n.get('patients', 0)} patients, {self.n.get('rois', 0)} ROIs.{flow}"

    def prevalence(self) -> str:
        block = self.metrics.get("histology") or self.metrics.get("consensus")
        if not block:
            return "No ROI with a known truth."
        share = block["positive"] / max(block["n"], 1)
        by = "histology" if self.metrics.get("histology") else "the readers' consensus"
        return (
            f"{block['positive']} of {block['n']} ROIs malignant by {by} ({share:.0%}); classes "
            "are neither resampled nor reweighted. Predictive values hold at this prevalence."
        )

    def partition(self) -> str:
        if self.external:
            return "All studies are new to the model; nothing was fitted on them."
        scheme = str(self.validate.get("scheme", "leave-one-patient-out"))
        if scheme == "none":
            return "No partition: the numbers are of the training data."
        inner = ""
        if self.learner.get("grid"):
            inner = (
                f" Hyper-parameters are chosen inside every fold by {self.learner['inner_folds']} "
                f"inner folds grouped by patient ({self.learner['criterion']})."
            )
        return f"{scheme.capitalize()}: every ROI is predicted by a fit without it.{inner}"

    def disjoint(self) -> str:
        if self.validate.get("scheme") == "leave-one-site-out":
            return "Site (and so patient)."
        return "Patient. Imputation, scaling, selection and tuning are fitted on other patients."

    def reference(self) -> str:
        isup = self.labels.get("isup_min", 1)
        return (
            f"Histology, malignant from ISUP {isup}; beside it the mean of the readers' "
            "probabilities, above .5 malignant, ties benign."
        )

    def annotators(self) -> str:
        readers: _Json = self.metrics.get("readers") or {}
        if not readers:
            return "No readers' scores in this run."
        kinds: _Json = self.metrics.get("label_kinds") or {}
        said = "; ".join(f"{k.replace('_', ' ')} {v}" for k, v in kinds.items())
        return (
            f"{len(readers)} readers ({', '.join(readers)}); scores used: "
            f"{self.labels.get('readers', 'all')}; histology: "
            f"{self.labels.get('histology', 'ignore')}. Labels: {said or 'not counted'}. "
            "Their training and experience: a person."
        )

    def variability(self) -> str:
        found = self.metrics.get("agreement")
        if not found:
            return "Fewer than two readers: not measured."
        kappas = [k["value"] for k in found["kappa"] if k["value"] is not None]
        spread = f"{min(kappas):.2f} to {max(kappas):.2f}" if kappas else "–"
        icc, alpha = found["icc"], found["krippendorff_alpha"]
        return (
            f"Between readers: quadratic weighted kappa {spread}, ICC(2,1) {_num(icc['single'])} "
            f"on {icc['n']} ROIs, Krippendorff's alpha (interval) {_num(alpha['interval'])}. "
            "Within readers: not known."
        )

    def model(self) -> str:
        params = ", ".join(f"{k} = {v}" for k, v in (self.learner.get("params") or {}).items())
        selection = self.learner.get("selection", "none")
        modalities = ", ".join((self.settings.get("features") or {}).get("modalities", []))
        return (
            f"{self.learner.get('name', 'see model card')} ({params or 'default parameters'}) on "
            f"ROI features ({modalities}); selection: {selection}."
        )

    def software(self) -> str:
        versions = {"cad": self.run.get("cad_version", "?"), **(self.run.get("versions") or {})}
        return ", ".join(f"{name} {version}" for name, version in versions.items())

    def significance(self) -> str:
        text = (
            "AUC: 95 % interval of jackknifed patients (logit scale, t); others: patient bootstrap "
            f"({self.validate.get('bootstraps', 0)} resamples); DeLong is given as ROI-level."
        )
        null = self.metrics.get("null")
        if not null:
            return text + " No permutation null was run (validate.permutations)."
        schemes = [f"{k}: {null[k]['evidence']}" for k in ("between", "within") if k in null]
        return f"{text} Permutation null of the whole loop, {null['n']} each: {'; '.join(schemes)}."

    def failures(self) -> str:
        folds = self.metrics.get("folds") or []
        failed = [f"{fold['name']} ({fold['error']})" for fold in folds if fold["error"]]
        block = self.metrics.get("histology")
        wrong = ""
        if block:
            middle = block["operating_points"][1] if block["operating_points"] else None
            if middle:
                wrong = f" At .5: {middle['fp']} false positives, {middle['fn']} false negatives."
        return (
            f"Studies and ROIs that failed: failures.csv. Folds that failed: "
            f"{'; '.join(failed) or 'none'}.{wrong} Each patient's page shows its ROIs."
        )

    def calibration(self) -> str:
        block = self.metrics.get("histology") or self.metrics.get("consensus")
        if not block:
            return "Not measured."
        m = block["measures"]
        return (
            f"Calibration intercept {interval_text(m['calibration_intercept'])}, slope "
            f"{interval_text(m['calibration_slope'])}, Brier {interval_text(m['brier'])}."
        )

    def thresholds(self) -> str:
        t: _Json = self.metrics.get("thresholds") or {}
        d: _Json = self.settings.get("decision") or {}
        known = {k.replace("_", " "): v for k, v in d.items() if v is not None}
        costs = ", ".join(f"{k} {v:g}" for k, v in known.items() if not k.startswith("aim"))
        chosen: _Json = self.metrics.get("operating_point") or {}
        return (
            f"Probability of malignancy per ROI; benign below {_num(t.get('lower'))}, malignant "
            f"above {_num(t.get('upper'))}, referred between; from "
            + (f"an aim: {chosen['sentence']}" if chosen else f"costs set by the site ({costs}).")
        )

    def auc_text(self) -> str:
        block = self.metrics.get("histology") or self.metrics.get("consensus")
        return f"AUC {interval_text(block['auc'])}. {self.calibration()}" if block else "None."


def _claim_answers(f: _Facts) -> dict[int, str]:
    external = "This run is external testing." if f.external else "None in this run."
    where = "features.parquet, labels.parquet and settings in run.json"
    return {
        1: f"Learning from image features of ROIs by {f.learner.get('name', 'a trained model')}.",
        9: f"Settings `images` and `features` in run.json: {_short(f.settings.get('images'))}.",
        10: f"{f.included()} All ROIs of readable studies are used.",
        12: f.missing(),
        14: f.reference(),
        16: f.annotators(),
        17: "All ROIs of this cohort are test data."
        if f.external
        else "As the rest: every ROI is tested once, by a model that did not see its patient.",
        18: f.variability(),
        19: f.partition(),
        20: f.disjoint(),
        22: f.model(),
        23: f.software(),
        24: "Kernel learners solve a convex problem: the start does not matter.",
        25: f"{f.model()} {f.partition()}",
        26: "Chosen by inner folds; see folds in metrics.json."
        if f.learner.get("grid")
        else "Parameters were fixed beforehand; nothing was chosen on test folds.",
        27: "None.",
        28: "AUC, accuracy, sensitivity, specificity, predictive values, two-sided KL, alignment "
        "error, cross-entropy, Brier, calibration, decision curve.",
        29: f.significance(),
        31: "Per ROI the features that moved the decision value most (explanations.csv).",
        32: "None in this run." if f.external else f.partition(),
        33: external,
        35: f.included(),
        37: f.auc_text(),
        38: "Sensitivity, specificity and predictive values with intervals at "
        f"{_operating(f.metrics)} in metrics.json.",
        39: f.failures(),
        43: f"Software: cad {f.run.get('cad_version', '?')}. Data of this run: {where}.",
    }


def _tripod_answers(f: _Facts) -> dict[str, str]:
    return {
        "7": "Settings `images`, `features`, `labels` in run.json; the same for all patients.",
        "8": f"{f.reference()} {f.annotators()} Blinding: a person.",
        "9": "Image features of docs/features.md; the list is the columns of features.parquet.",
        "11": f.missing(),
        "12a": f.partition(),
        "12b": "Median imputation, constant columns dropped, z-scores; all inside the fold.",
        "12c": f"{f.model()} {f.partition()}",
        "12d": "Patients are the unit of every interval and permutation.",
        "12e": "Discrimination, calibration, decision curve; report/index.html has the figures.",
        "12g": "`cad predict` with the model bundle; probabilities.csv.",
        "13": f.prevalence(),
        "15": f.thresholds(),
        "20": f.included(),
        "21": f.prevalence(),
        "22": "The model bundle holds every number of the model; see its card.",
        "23a": f.auc_text(),
        "27": "A study that cannot be read or measured is refused by name (failures.csv); a ROI "
        "unlike the training cohort carries a warning.",
    }


def _checklist(items: Mapping[str, tuple[str, str]]) -> str:
    rows = [f"| {n} | {topic} | {answer} |" for n, (topic, answer) in items.items()]
    return "\n".join(["| item | topic | answer |", "| --- | --- | --- |", *rows])


def _operating(metrics: _Json) -> str:
    block = metrics.get("histology") or metrics.get("consensus") or {}
    points = [f"{p['threshold']:.3g}" for p in block.get("operating_points") or []]
    return ", ".join(points) or "no threshold"


def _short(section: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in (section or {}).items()) or "not recorded"


def _num(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
