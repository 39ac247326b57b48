"""Put what a run recorded of itself into sentences, for the checklists of reviewers."""

from collections.abc import Mapping
from math import isnan
from typing import Any

from cad.evaluation.summary import Summary
from cad.terms.measures import MEASURES
from cad.terms.text import interval_text

Json = Mapping[str, Any]
UNKNOWN = "not known to the program"
SIMPLE = ("logistic", "linear", "mean")
SCALINGS = {
    "RankScaler": "ranks among the training regions",
    "QuantileTransformer": "ranks among the training regions",
    "ClippedScaler": "mean 0, variance 1, clipped at ±3",
    "StandardScaler": "mean 0, variance 1",
}


class RunFacts:
    """Make sentences about one run, each from run.json and metrics.json only.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    metrics : Summary
        Content of ``metrics.json``.
    """

    def __init__(self, run: Json, metrics: Summary) -> None:
        self.run, self.metrics = run, metrics
        self.settings: Json = run.get("settings") or {}
        self.labels: Json = self.settings.get("labels") or {}
        self.learner: Json = self.settings.get("learner") or {}
        self.validate: Json = self.settings.get("validate") or {}
        self.n = metrics.n
        self.features: int | None = (run.get("counts") or {}).get("features")
        # Tissue wherever it is known; the readers' consensus is what the model learned from.
        self.block = metrics.histology or metrics.consensus
        self.fitted: Json = run.get("estimator") or {}
        models: Json = (run.get("model") or {}).get("models") or {}
        self.predicted = run.get("kind") == "predict"
        # A man of the training makes a prediction no external test.
        self.shared = sum(model.get("patients_of_training", 0) for model in models.values())

    def performance(self) -> str:
        """Return the table of results."""
        lines = ["| | histology | readers' consensus |", "| --- | --- | --- |"]
        blocks = [self.metrics.histology, self.metrics.consensus]

        def row(name: str, texts: list[str]) -> None:
            lines.append(f"| {name} | {' | '.join(texts)} |")

        row("ROIs (patients)", [f"{b.n} ({b.patients})" if b else "–" for b in blocks])
        row("malignant", [str(b.positive) if b else "–" for b in blocks])
        row("ties at .5", [str(b.ties) if b else "–" for b in blocks])
        row("AUC, patient-clustered", [interval_text(b.auc) if b else "–" for b in blocks])
        row("AUC, ROI-level", [interval_text(b.auc_roi_level) if b else "–" for b in blocks])
        for name, measure in MEASURES.items():
            if name != "auc":
                parts = [b.measures.get(name) if b else None for b in blocks]
                row(measure.title, [interval_text(part, measure.digits) for part in parts])
        return "\n".join(lines)

    def warnings(self) -> str:
        """Return the warnings of the measures and of the run as a list."""
        texts = dict.fromkeys([*self.metrics.warnings, *(self.run.get("warnings") or [])])
        return "\n".join(f"- {text}" for text in texts)

    def missing(self) -> str:
        """Say what is missing and what is done about it."""
        return (
            f"{self.n.not_predicted} of {self.n.rois} ROIs have no "
            f"prediction; histology is known for {self.n.with_histology}, a reader's "
            f"score for {self.n.with_consensus}. {self.imputation()} Comparisons use the "
            "ROIs where the truth is known."
        )

    def included(self) -> str:
        """Count what was read."""
        counts: Json = self.run.get("counts") or {}
        studies = counts.get("studies")
        flow = ""
        if studies is not None:
            flow = f" {studies} studies read, {counts.get('failed', 0)} failed (failures.csv)."
        return f"{self.n.patients} patients, {self.n.rois} ROIs.{flow}"

    def prevalence(self) -> str:
        """Say how many regions are malignant."""
        if self.block is None:
            return "No ROI with a known truth."
        share = self.block.positive / max(self.block.n, 1)
        by = "histology" if self.metrics.histology else "the readers' consensus"
        return (
            f"{self.block.positive} of {self.block.n} ROIs malignant by {by} ({share:.0%}). "
            "Predictive values hold at this prevalence."
        )

    def partition(self) -> str:
        """Say how regions were kept apart from what predicts them."""
        if self.predicted:
            return self.external_testing()
        scheme = str(self.validate.get("scheme", UNKNOWN))
        if scheme == "none":
            return "No partition: nothing was validated."
        if scheme == "patient-folds":
            scheme = f"{self.validate['folds']} folds of patients"
        return f"{scheme.capitalize()}: every ROI is predicted by a fit without it."

    def tested(self) -> str:
        """Say which regions are test data."""
        return (
            self.partition()
            if self.predicted or not self.held_out()
            else ("As the rest: every ROI is tested once, by a model that did not see its patient.")
        )

    def internal(self) -> str:
        """Say how the data of the training were tested."""
        return "None in this run." if self.predicted else self.partition()

    def external_testing(self) -> str:
        """Say whether the data are new to the model."""
        if not self.predicted:
            return "None in this run."
        if self.shared:
            return (
                f"Not external: {self.shared} of {self.n.patients} patients carry ids of "
                "the model's training."
            )
        return "External: no patient carries an id of the model's training; nothing was fitted."

    def external(self) -> bool:
        """Tell whether the data are new to the model."""
        return self.predicted and not self.shared

    def held_out(self) -> bool:
        """Tell whether regions were predicted without their patients."""
        return self.external() or (
            not self.predicted and self.validate.get("scheme", "none") != "none"
        )

    def internal_held_out(self) -> bool:
        """Tell whether this is a sound internal validation."""
        return self.held_out() and not self.predicted

    def disjoint(self) -> str:
        """Say of what the parts are disjoint."""
        if not self.held_out():
            return "Nothing: the parts are not disjoint."
        if not self.predicted and self.validate.get("scheme") == "leave-one-site-out":
            return "Site (and so patient)."
        inside = "" if self.predicted else " Whatever is fitted is fitted on other patients."
        return f"Patient.{inside}"

    def reference(self) -> str:
        """Say what counts as truth."""
        isup = self.labels.get("isup_min", 1)
        return (
            f"Histology, malignant from ISUP {isup}; beside it the mean of the readers' "
            "probabilities, above .5 malignant, ties benign."
        )

    def annotators(self) -> str:
        """Say who scored, and what of it is used."""
        readers = self.metrics.readers
        if not readers:
            return "No readers' scores in this run."
        kinds = self.metrics.label_kinds.items()
        said = "; ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in kinds)
        return (
            f"{len(readers)} readers ({', '.join(readers)}); scores used: "
            f"{self.labels.get('readers', 'all')}; histology: "
            f"{self.labels.get('histology', 'ignore')}. Labels: {said or 'not counted'}. "
            "Their training and experience: a person."
        )

    def variability(self) -> str:
        """Say how far readers differ."""
        found = self.metrics.agreement
        if found is None:
            return "Fewer than two readers: not measured."
        kappas = [k["value"] for k in found["kappa"] if digits3(k["value"]) != "–"]
        spread = f"{min(kappas):.2f} to {max(kappas):.2f}" if kappas else "–"
        icc, alpha = found["icc"], found["krippendorff_alpha"]
        return (
            f"Between readers: quadratic weighted kappa {spread}, ICC(2,1) "
            f"{digits3(icc['single'])} on {icc['n']} ROIs, Krippendorff's alpha (interval) "
            f"{digits3(alpha['interval'])}. Within readers: not known."
        )

    def learner_name(self) -> str:
        """Name the learner that was fitted."""
        return str(self.fitted.get("learner") or f"a learner {UNKNOWN}")

    def model(self) -> str:
        """Say what the learner is and what it sees."""
        given = {k: v for k, v in (self.fitted.get("parameters") or {}).items() if v is not None}
        params = section_text(given) if self.fitted else f"parameters: {UNKNOWN}"
        modalities = ", ".join((self.settings.get("features") or {}).get("modalities", []))
        return f"{self.learner_name()} ({params}) on ROI features ({modalities})."

    def _step(self, *names: str) -> Json | None:
        steps: list[Json] = self.fitted.get("steps") or []
        return next((step for step in steps if step["name"] in names), None)

    def imputation(self) -> str:
        """Say what stands for a missing feature."""
        if not self.fitted:
            return f"Imputation: {UNKNOWN}."
        step = self._step("SimpleImputer")
        if step is None:
            return "Missing features are not imputed."
        return (
            f"Missing features are imputed by the {step['strategy']} of the patients that the "
            "model was fitted on."
        )

    def scaling(self) -> str:
        """Say how features are scaled."""
        if not self.fitted:
            return f"Scaling: {UNKNOWN}."
        found = [text for name, text in SCALINGS.items() if self._step(name)]
        weighed = (self.fitted.get("weights") or {}).get("scaling") or {}
        if set(weighed) - {"given"}:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in weighed.items())
            found.append(f"inside the learner by weight: {shares}")
        return f"{'; '.join(found) or 'none'}: fitted with the learner."

    def selection(self) -> str:
        """Say which features are selected."""
        if not self.fitted:
            return f"Selection: {UNKNOWN}."
        step = next((s for s in self.fitted.get("steps") or [] if "n_features" in s), None)
        if step is None:
            return "No selection."
        return f"{step['name']} keeps {step['n_features']} features, fitted with the learner."

    def has_selection(self) -> bool | None:
        """Tell whether features are selected."""
        return any("n_features" in s for s in self.fitted["steps"]) if self.fitted else None

    def preprocessing(self) -> str:
        """Say what is done to features before the learner."""
        constant = " Constant columns are dropped." if self._step("VarianceThreshold") else ""
        return f"{self.imputation()}{constant} Scaling: {self.scaling()} {self.selection()}"

    def tuning(self) -> str:
        """Say what was chosen, and how."""
        if not self.fitted:
            return f"Tuning: {UNKNOWN}."
        weights = self.fitted.get("weights")
        tried = {k: v for k, v in (weights or {}).items() if len(v) > 1}
        parts = []
        # A bundle keeps the best point of a search; what was searched stands in its settings.
        grid = self.fitted.get("grid") or (self.learner.get("grid") if self.predicted else None)
        if grid:
            folds = self.fitted.get("inner_folds") or self.learner.get("inner_folds")
            by = self.fitted.get("criterion") or self.learner.get("criterion")
            parts.append(f"Chosen by {folds} inner folds of patients ({by}): {section_text(grid)}.")
        if weights:
            folds = (self.fitted.get("parameters") or {}).get("folds")
            parts.append(
                f"Weighed by {folds} inner folds of patients (cross-entropy): "
                f"{', '.join(tried) or 'one setting'}."
            )
        if not parts and self.fitted.get("members") is None:
            return f"No search; whether the learner chooses inside: {UNKNOWN}."
        return " ".join(parts) or "Parameters were fixed beforehand."

    def ensembling(self) -> str:
        """Say what is averaged."""
        members, trees = self.fitted.get("members"), self.fitted.get("trees")
        grown = f"{trees} randomised trees" if trees else ""
        if members is None:
            return f"{grown}, averaged." if grown else f"Ensembling: {UNKNOWN}."
        if self.fitted.get("weights"):
            count = str(members[0]) if members[0] == members[1] else f"{members[0]} to {members[1]}"
            beside = f", and {grown} beside them" if grown else ""
            return (
                f"{count} machines of different settings a fit, averaged by what each predicts on "
                f"inner folds{beside}."
            )
        return "None: one machine."

    def start(self) -> str:
        """Say what a fit starts from."""
        start = self.fitted.get("start")
        if not start:
            return f"Initialisation: {UNKNOWN}."
        text = "Convex problems: the start does not matter" if "convex" in start else "Drawn"
        seed = start.removeprefix("convex").removeprefix("; ")
        return f"{text}{'; ' + seed if seed else ''}."

    def bundle(self) -> str:
        """Say where the model is."""
        models: Json = (self.run.get("model") or {}).get("models") or {}
        said = ", ".join(
            f"{name} (sha256 {str(m.get('sha256'))[:16]})" for name, m in models.items()
        )
        return f"Model bundle {said}." if said else "A bundle where `cad train` was asked for one."

    def explained(self) -> str:
        """Say how many regions are explained."""
        count = (self.run.get("counts") or {}).get("explained")
        if count is None:
            return f"Explanations: {UNKNOWN}."
        what = "the features that moved the decision value most"
        return f"{count} ROIs have {what} (explanations.csv)." if count else "No ROI is explained."

    def software(self) -> str:
        """Name versions."""
        versions = {"cad": self.run.get("cad_version", "?"), **(self.run.get("versions") or {})}
        return ", ".join(f"{name} {version}" for name, version in versions.items())

    def significance(self) -> str:
        """Say how uncertainty is given."""
        text = (
            "AUC: 95 % interval of jackknifed patients (logit scale, t); rates at a threshold: "
            "exact at the effective number of regions (Korn and Graubard); others: patient "
            f"bootstrap ({self.validate.get('bootstraps', 0)} resamples); DeLong is given as "
            "ROI-level."
        )
        null = self.metrics.null
        if null is None:
            return text + " No permutation null was run (validate.permutations)."
        schemes = [f"{name}: {scheme.evidence}" for name, scheme in null.schemes.items()]
        return f"{text} Permutation null of the whole loop, {null.n} each: {'; '.join(schemes)}."

    def failures(self) -> str:
        """Say what failed and where it is wrong."""
        failed = [f"{fold.name} ({fold.error})" for fold in self.metrics.folds if fold.error]
        block, wrong = self.metrics.histology, ""
        if block and block.operating_points:
            # The points are P-, .5 and P+, in this order.
            middle = block.operating_points[1]
            wrong = f" At .5: {middle['fp']} false positives, {middle['fn']} false negatives."
        return (
            f"Studies and ROIs that failed: failures.csv. Folds that failed: "
            f"{'; '.join(failed) or 'none'}.{wrong} Each patient's page shows its ROIs."
        )

    def measured(self) -> str:
        """Name the measures that the run has."""
        if self.block is None:
            return "Nothing could be measured."
        found = {name for name, part in self.block.measures.items() if not isnan(part.value)}
        titles = [measure.title for name, measure in MEASURES.items() if name in found]
        return f"{', '.join(['AUC', *titles])}."

    def operating(self) -> str:
        """Name the thresholds at which rates are given."""
        points = self.block.operating_points if self.block else []
        return ", ".join(f"{point['threshold']:.3g}" for point in points) or "no threshold"

    def image_settings(self) -> str:
        """Return the settings of images."""
        return section_text(self.settings.get("images"))

    def has_settings(self) -> bool:
        """Tell whether the settings are recorded."""
        return bool(self.settings.get("images")) and bool(self.settings.get("features"))

    def _feature_settings(self) -> Json:
        found: Json = self.settings.get("features") or {}
        return found

    def image_kinds(self) -> str:
        """Name the images, and what is made of them."""
        features = self._feature_settings()
        filters = [f"{len(made)} filters of {image}" for image, made in
                   (features.get("filters") or {}).items() if made]  # fmt: skip
        return f"{', '.join([*(features.get('modalities') or [UNKNOWN]), *filters])}."

    def has_one_image(self) -> bool:
        """Tell whether one kind of image is used."""
        return len(self._feature_settings().get("modalities") or []) == 1

    def families(self) -> str:
        """Name the families of features."""
        features = self._feature_settings()
        named = [*(features.get("families") or [UNKNOWN]), *(features.get("radiomics") or [])]
        return f"{', '.join(named)}."

    def other_predictors(self) -> str:
        """Name predictors that are no image values."""
        named = [f for f in self._feature_settings().get("families") or []
                 if f in ("size", "position")]  # fmt: skip
        return f"Beside image values: {', '.join(named) or 'none'}."

    def resampling(self) -> str:
        """Say at which spacing features are measured."""
        images: Json = self.settings.get("images") or {}
        named = {k: v for k, v in images.items() if k.startswith("spacing") and v}
        return f"{section_text(named)} (0: as acquired)." if named else "None: every image's grid."

    def discretisation(self) -> str:
        """Return levels and widths."""
        features = self._feature_settings()
        parts = [f"{name}: {section_text(features[name])}" for name in ("texture", "texture_adc")
                 if features.get(name)]  # fmt: skip
        return f"{'; '.join(parts) or UNKNOWN}."

    def n_features(self) -> str:
        """Count the features."""
        return (
            str(self.features) if self.features is not None else "The columns of features.parquet:"
        )

    def robustness(self) -> str:
        """Say whether features that do not survive redrawing are left out."""
        wanted = self._feature_settings().get("robustness") or {}
        if not wanted.get("stable_only"):
            return "Every feature was kept (features.robustness.stable_only)."
        return f"By ICC over {wanted.get('repeats')} redrawn regions, in every fold."

    def has_robustness(self) -> bool:
        """Tell whether they are left out."""
        return bool((self._feature_settings().get("robustness") or {}).get("stable_only"))

    def has_histology(self) -> bool:
        """Tell whether histology is known."""
        return self.metrics.histology is not None

    def sites(self) -> str:
        """Count the sites."""
        sites = (self.run.get("counts") or {}).get("sites")
        return (
            "sites are not in the tables"
            if sites is None
            else (f"{sites} site(s) in participants.tsv.")
        )

    def has_sites(self) -> bool | None:
        """Tell whether there are several sites; None where nobody said."""
        sites = (self.run.get("counts") or {}).get("sites")
        return None if sites is None else sites > 1

    def dimension(self) -> str:
        """Count features and regions of the rarer class."""
        if not self.block or self.features is None:
            return "The number of features is not recorded."
        return f"{self.features} features, {self._rarer()} regions of the rarer class."

    def _rarer(self) -> int:
        return min(self.block.positive, self.block.negative) if self.block else 0

    def has_few_features(self) -> bool:
        """Judge by ten regions of the rarer class a feature, the customary rule."""
        known = bool(self.block) and self.features is not None
        return known and self._rarer() >= 10 * (self.features or 0)

    def has_measures(self) -> bool:
        """Tell whether anything was measured."""
        return bool(self.block)

    def has_intervals(self) -> bool:
        """Tell whether the AUC has an interval."""
        return self.block is not None and not isnan(self.block.auc.lower)

    def has_calibration(self) -> bool:
        """Tell whether calibration was measured."""
        slope = self.block.measures.get("calibration_slope") if self.block else None
        return slope is not None and not isnan(slope.value)

    def readers_beside(self) -> str:
        """Say whether the readers' own scores were measured beside the model."""
        named = ", ".join(self.metrics.readers)
        beside = f"The readers' own scores on the same regions: {named}."
        return beside if named else "No reader's score was measured beside the model."

    def has_readers_beside(self) -> bool:
        """Tell whether the readers were compared with the model."""
        return self.metrics.cad_vs_readers is not None

    def _rivals(self) -> list[str]:
        rows = self.metrics.rivals["table"] if self.metrics.rivals else []
        return sorted({row["learner"] for row in rows})

    def compared(self) -> str:
        """Name what was compared on the same folds."""
        rivals = ", ".join(self._rivals())
        return f"Paired differences on the same folds: {rivals}." if rivals else "None in this run."

    def has_simple_rival(self) -> bool:
        """Tell whether a simple model was validated beside."""
        return any(word in name.lower() for name in self._rivals() for word in SIMPLE)

    def simple_rival(self) -> str:
        """Name the simple models that were validated beside."""
        named = [n for n in self._rivals() if any(word in n.lower() for word in SIMPLE)]
        return (
            f"On the same folds: {', '.join(named)}." if named else "No simple rival in this run."
        )

    def version(self) -> str:
        """Return the version of the program."""
        return str(self.run.get("cad_version", "?"))

    def calibration(self) -> str:
        """Return calibration with intervals."""
        if self.block is None:
            return "Not measured."
        m = self.block.measures
        return (
            f"Calibration intercept {interval_text(m['calibration_intercept'])}, slope "
            f"{interval_text(m['calibration_slope'])}, Brier {interval_text(m['brier'])}."
        )

    def thresholds(self) -> str:
        """Say how decisions follow from probabilities."""
        t = self.metrics.thresholds
        lower, upper = (t.lower, t.upper) if t else (None, None)
        d: Json = self.settings.get("decision") or {}
        known = {k.replace("_", " "): v for k, v in d.items() if v is not None}
        # Aims are no costs: the sentence of the chosen thresholds says what came of them.
        costs = ", ".join(f"{k} {v:g}" for k, v in known.items() if not k.startswith("aim"))
        promised = next(iter(self.metrics.at_training.values()), None)
        chosen = self.metrics.operating_point or promised
        return (
            f"Probability of malignancy per ROI; benign below {digits3(lower)}, malignant "
            f"above {digits3(upper)}, referred between; from "
            + (f"an aim: {chosen.sentence()}" if chosen else f"costs set by the site ({costs}).")
        )

    def auc_text(self) -> str:
        """Return AUC and calibration."""
        return (
            f"AUC {interval_text(self.block.auc)}. {self.calibration()}" if self.block else "None."
        )


def section_text(section: Any) -> str:
    """Return a section of settings in one line, such as ``bins 32, distance 1``."""
    return ", ".join(f"{k} {v}" for k, v in (section or {}).items()) or "not recorded"


def digits3(value: float | None) -> str:
    """Return a number with three significant digits, or a dash where it is unknown."""
    return "–" if value is None or isnan(value) else f"{value:.3g}"
