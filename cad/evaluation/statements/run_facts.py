"""Put what a run recorded of itself into sentences, for the checklists of reviewers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cad.evaluation.measures import MEASURES
from cad.evaluation.tables import interval_text

Json = Mapping[str, Any]


class RunFacts:
    """Make sentences about one run, each from run.json and metrics.json only.

    Parameters
    ----------
    run, metrics : dict
        Content of the two files.
    """

    def __init__(self, run: Json, metrics: Json) -> None:
        self.run, self.metrics = run, metrics
        self.settings: Json = run.get("settings") or {}
        self.labels: Json = self.settings.get("labels") or {}
        self.learner: Json = self.settings.get("learner") or {}
        self.validate: Json = self.settings.get("validate") or {}
        self.n: Json = metrics.get("n") or {}
        self.features: int | None = (run.get("counts") or {}).get("features")
        self.external = run.get("kind") == "predict"

    def performance(self) -> str:
        """Tell of: performance."""
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
        """Tell of: warnings."""
        return "\n".join(f"- {text}" for text in self.metrics["warnings"])

    def missing(self) -> str:
        """Tell of: missing."""
        return (
            f"{self.n.get('not_predicted', 0)} of {self.n.get('rois', 0)} ROIs have no "
            f"prediction; histology is known for {self.n.get('with_histology', 0)}, a reader's "
            f"score for {self.n.get('with_consensus', 0)}. Missing features are imputed by the "
            "median of the training patients, inside every fold; comparisons use the ROIs where "
            "the truth is known."
        )

    def included(self) -> str:
        """Tell of: included."""
        counts: Json = self.run.get("counts") or {}
        studies = counts.get("studies")
        flow = ""
        if studies is not None:
            flow = f" {studies} studies read, {counts.get('failed', 0)} failed (failures.csv)."
        return f"{self.n.get('patients', 0)} patients, {self.n.get('rois', 0)} ROIs.{flow}"

    def prevalence(self) -> str:
        """Tell of: prevalence."""
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
        """Tell of: partition."""
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
        """Tell of: disjoint."""
        if self.validate.get("scheme") == "leave-one-site-out":
            return "Site (and so patient)."
        return "Patient. Imputation, scaling, selection and tuning are fitted on other patients."

    def reference(self) -> str:
        """Tell of: reference."""
        isup = self.labels.get("isup_min", 1)
        return (
            f"Histology, malignant from ISUP {isup}; beside it the mean of the readers' "
            "probabilities, above .5 malignant, ties benign."
        )

    def annotators(self) -> str:
        """Tell of: annotators."""
        readers: Json = self.metrics.get("readers") or {}
        if not readers:
            return "No readers' scores in this run."
        kinds: Json = self.metrics.get("label_kinds") or {}
        said = "; ".join(f"{k.replace('_', ' ')} {v}" for k, v in kinds.items())
        return (
            f"{len(readers)} readers ({', '.join(readers)}); scores used: "
            f"{self.labels.get('readers', 'all')}; histology: "
            f"{self.labels.get('histology', 'ignore')}. Labels: {said or 'not counted'}. "
            "Their training and experience: a person."
        )

    def variability(self) -> str:
        """Tell of: variability."""
        found = self.metrics.get("agreement")
        if not found:
            return "Fewer than two readers: not measured."
        kappas = [k["value"] for k in found["kappa"] if k["value"] is not None]
        spread = f"{min(kappas):.2f} to {max(kappas):.2f}" if kappas else "–"
        icc, alpha = found["icc"], found["krippendorff_alpha"]
        return (
            f"Between readers: quadratic weighted kappa {spread}, ICC(2,1) "
            f"{digits3(icc['single'])} on {icc['n']} ROIs, Krippendorff's alpha (interval) "
            f"{digits3(alpha['interval'])}. Within readers: not known."
        )

    def model(self) -> str:
        """Tell of: model."""
        params = ", ".join(f"{k} = {v}" for k, v in (self.learner.get("params") or {}).items())
        selection = self.learner.get("selection", "none")
        modalities = ", ".join((self.settings.get("features") or {}).get("modalities", []))
        return (
            f"{self.learner.get('name', 'see model card')} ({params or 'default parameters'}) on "
            f"ROI features ({modalities}); selection: {selection}."
        )

    def software(self) -> str:
        """Tell of: software."""
        versions = {"cad": self.run.get("cad_version", "?"), **(self.run.get("versions") or {})}
        return ", ".join(f"{name} {version}" for name, version in versions.items())

    def significance(self) -> str:
        """Tell of: significance."""
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
        """Tell of: failures."""
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
        """Tell of: calibration."""
        block = self.metrics.get("histology") or self.metrics.get("consensus")
        if not block:
            return "Not measured."
        m = block["measures"]
        return (
            f"Calibration intercept {interval_text(m['calibration_intercept'])}, slope "
            f"{interval_text(m['calibration_slope'])}, Brier {interval_text(m['brier'])}."
        )

    def thresholds(self) -> str:
        """Tell of: thresholds."""
        t: Json = self.metrics.get("thresholds") or {}
        d: Json = self.settings.get("decision") or {}
        known = {k.replace("_", " "): v for k, v in d.items() if v is not None}
        costs = ", ".join(f"{k} {v:g}" for k, v in known.items() if not k.startswith("aim"))
        chosen: Json = self.metrics.get("operating_point") or {}
        return (
            f"Probability of malignancy per ROI; benign below {digits3(t.get('lower'))}, malignant "
            f"above {digits3(t.get('upper'))}, referred between; from "
            + (f"an aim: {chosen['sentence']}" if chosen else f"costs set by the site ({costs}).")
        )

    def auc_text(self) -> str:
        """Tell of: auc text."""
        block = self.metrics.get("histology") or self.metrics.get("consensus")
        return f"AUC {interval_text(block['auc'])}. {self.calibration()}" if block else "None."


def section_text(section: Any) -> str:
    """Return a section of settings in one line."""
    return ", ".join(f"{k} {v}" for k, v in (section or {}).items()) or "not recorded"


def digits3(value: float | None) -> str:
    """Return three digits, or a dash for what is unknown."""
    return "–" if value is None else f"{value:.3g}"
