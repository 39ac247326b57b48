"""One run: what has been read, measured, learned and found, until it is written."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from cad import __version__
from cad.batch import measure_studies
from cad.bundle import Bundle, save_bundle
from cad.cohort import Cohort
from cad.errors import CadError
from cad.evaluation.claim import validation_md
from cad.evaluation.crossval import (
    OutOfFold,
    fit_keywords,
    out_of_fold,
)
from cad.evaluation.null import PermutationNull, permutation_null
from cad.evaluation.summary import evaluate, json_safe
from cad.extraction import Failure, StudyOutcome, StudyTask, failure_of, read_rows
from cad.features.registry import feature_units
from cad.files import write_atomic
from cad.foldwise import FoldFeatures, Preparation, without_copies
from cad.labels.consensus import malignant, reader_labels, reader_probabilities
from cad.learning import (
    KEYS,
    carried_rows,
    decide,
    explain,
    join,
    label_kinds,
    make_estimator,
    outlier_limit,
    unlinked,
)
from cad.mapping import MapTask, map_study
from cad.model_card import card, metadata
from cad.reports import write_report
from cad.run_folder import (
    EXPLANATION_COLUMNS,
    PROBABILITY_COLUMNS,
    read_failures,
    scores_text,
    write_csv,
    write_failures,
    write_json,
    write_parquet,
)
from cad.running import How
from cad.scoring import score_rows
from cad.settings import PipelineSettings

_VERSIONS = ("numpy", "scipy", "scikit-learn", "numba", "SimpleITK", "pandas", "cvxopt")
REFERENCE_ROWS = 16
COMPLETE = ".complete"


class Run:
    """A run in the order of its methods: measure, label, validate or score, write.

    Parameters
    ----------
    settings : PipelineSettings
        Everything that changes results.
    cohort : Cohort
        Tables that were checked.
    out : Path
        Run folder.
    how : How
        How the job is run.
    kind : str
        ``run``, ``train`` or ``predict``.

    Raises
    ------
    CadError
        At once, for costs that make referring useless.
    """

    def __init__(
        self, settings: PipelineSettings, cohort: Cohort, out: Path, how: How, kind: str
    ) -> None:
        self.thresholds = settings.decision.thresholds
        _check_folder(out, kind)
        if kind != "predict":
            make_estimator(settings)  # refuses a misspelt learner before any image is read
        self.settings, self.cohort, self.out, self.how, self.kind = settings, cohort, out, how, kind
        self.failures = [failure_of(p, p.patient, p.patient, "cohort") for p in cohort.problems]
        self.outcomes: list[StudyOutcome] = []
        self.timings: dict[str, float] = {}
        self.metrics: dict[str, Any] = {}
        self.model: dict[str, Any] | None = None
        self.folds: OutOfFold | None = None
        self.explanations: list[dict[str, Any]] = []
        self.parents: list[str] = []
        self.simulated = cohort.simulated
        self.notes: list[str] = []
        self.basis = ""  # what results rest on beside cohort and settings: a model

    def measure(self) -> None:
        """Features of every study, one result file each."""
        start = time.perf_counter()
        settings = without_copies(self.settings) if self.kind == "predict" else self.settings
        tasks = [StudyTask(ref, settings, self.out) for ref in self.cohort.studies()]
        self.outcomes = measure_studies(tasks, self.how)
        self.failures += [f for outcome in self.outcomes for f in outcome.failures]
        pairs = zip(tasks, self.outcomes, strict=True)
        self.measured = [task for task, outcome in pairs if outcome.status != "failed"]
        if not self.measured:
            write_failures(self.out / "failures.csv", self.failures)
            raise CadError(
                "no study could be measured",
                file=self.cohort.root,
                hint="; ".join(f"{f.study_id}: {f.reason}" for f in self.failures[:3]),
            )
        self.timings["measure"] = time.perf_counter() - start

    def restore(self) -> bool:
        """Take every result from the run folder when nothing that decides them has changed."""
        try:
            complete = (self.out / COMPLETE).read_text(encoding="utf-8")
            names = ("features.parquet", "labels.parquet", "explanations.csv", "report/index.html")
            if complete != self._identity() or not all((self.out / n).exists() for n in names):
                return False
            self.results = pd.read_csv(self.out / "probabilities.csv")
            self.metrics = json.loads((self.out / "metrics.json").read_text(encoding="utf-8"))
            self.failures = read_failures(self.out / "failures.csv")
        except (OSError, ValueError):
            return False
        return self.how.resume

    def _identity(self) -> str:
        """Hash of everything that decides what this run writes, times apart."""
        parts = [
            json.dumps(self.settings.model_dump(mode="json"), sort_keys=True),
            json.dumps([__version__, self.kind, self.basis, *map(version, _VERSIONS)]),
            json.dumps([[o.study_id, o.key, *map(asdict, o.failures)] for o in self.outcomes]),
        ]
        tables = sorted([*self.cohort.root.glob("*.tsv"), *self.cohort.root.glob("*.json")])
        parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in tables]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def label(self) -> None:
        """Readers' consensus and histology of every measured region."""
        self.features = read_rows(task.result for task in self.measured)
        good = set(self.features["participant_id"])
        rois = self.cohort.rois[self.cohort.rois["participant_id"].isin(good)]
        scores = self.cohort.scores[self.cohort.scores["participant_id"].isin(good)]
        self.rois, self.scores = rois.reset_index(drop=True), scores.reset_index(drop=True)
        settings = self.settings.labels
        self.labels = reader_labels(self.scores, self.rois, self.cohort.readers, settings)
        self.labels["label_kind"] = label_kinds(self.labels, settings)
        self.labels["truth"] = malignant(self.rois, settings.isup_min)
        self.labels["site"] = self.labels["participant_id"].map(self._sites())
        self.table = join(self.features, self.labels)

    def validate(self) -> None:
        """Out-of-fold probability of every region, all that is fitted fitted on other patients."""
        start = time.perf_counter()
        table = self.table
        if not table.labelled.any():
            raise CadError(
                "no region has a score or a histology to learn from",
                file=self.cohort.root,
                hint="fill in scores.tsv, or use `cad predict` with a trained model",
            )
        source = self._fold_features()
        self._keep(source.complete())
        if self.settings.validate_.scheme == "none":
            nothing = np.full(len(table.y), np.nan)
            self._collect(nothing, nothing)
            self.notes.append("not validated: validate.scheme is 'none'")
            return
        self.folds = out_of_fold(
            make_estimator(self.settings),
            source,
            table.y,
            groups=self._left_out_together(),
            eta=table.eta,
            patients=table.groups,
            n_jobs=self.how.jobs,
            keep_estimators=True,
        )
        for fold in self.folds.folds:
            if fold.error:
                patient = str(table.groups[fold.rows[0]])
                self.failures.append(Failure(patient, patient, "", "validate", fold.error))
            else:
                training = np.setdiff1d(np.flatnonzero(table.labelled), fold.rows)
                self._explain(fold.estimator, source(training), training, fold.rows)
        self._collect(self.folds.probability, self.folds.decision, self._null(source))
        self.notes += source.notes
        self.timings["validate"] = time.perf_counter() - start

    def extend(self, bundle: Bundle) -> None:
        """Add the training regions of an earlier model; its measurements must be the same kind."""
        if not bundle.metadata["carries_training_rows"]:
            raise CadError(
                f"{bundle.name} was written without its training rows and cannot be extended",
                hint="train it again with learner.training_rows: carry",
            )
        old, new = bundle.metadata["pipeline"], self.settings.model_dump(mode="json", by_alias=True)
        for part in ("images", "features"):
            if old[part] != new[part]:
                changed = [key for key in new[part] if new[part][key] != old[part].get(key)]
                raise CadError(
                    f"{part} settings differ from those of {bundle.name}: {', '.join(changed)}",
                    hint="measure the new cohort as the old one was measured",
                )
        old_rows = bundle.training
        keys = ["participant_id", "roi_id"]
        both = old_rows[keys].merge(self.features[keys])
        if len(both):
            raise CadError(
                f"the region is in the training table of {bundle.name} already, "
                f"as are {len(both) - 1} others",
                patient=both["participant_id"].iloc[0],
                roi=both["roi_id"].iloc[0],
                hint="patients of different cohorts need different ids",
            )
        self.parents = [bundle.name]
        self.simulated |= bundle.metadata["training"]["simulated"]
        self.table = self.table.with_rows(old_rows, bundle.features)

    def fit(self, out: Path) -> None:
        """The model that all patients make, written as a bundle."""
        table = self.table
        source, use = self._fold_features(), table.labelled
        preparation = source.fit(np.flatnonzero(use))
        X = source.measured(preparation.scale)
        rows = source.apply(preparation)
        estimator = make_estimator(self.settings)
        keywords = fit_keywords(estimator, table.eta[use], table.groups[use])
        estimator.fit(rows[use], table.y[use], **keywords)
        estimator = getattr(estimator, "best_estimator_", estimator)
        carried = carried_rows(estimator, self.settings.learner)
        labels = table.labels.assign(out_of_fold=self.folds.probability if self.folds else np.nan)
        labels = labels.loc[use].reset_index(drop=True)
        kept = X[use].reset_index(drop=True)
        training = pd.concat([labels, kept if carried else unlinked(kept)], axis=1)
        reference = rows[use] if carried else unlinked(pd.DataFrame(rows[use])).to_numpy()
        people = self.cohort.participants
        meta = metadata(
            settings=self.settings,
            features=X[use],
            units=feature_units(list(X.columns)),
            labels=labels,
            participants=people[people["participant_id"].isin(set(table.groups[use]))],
            simulated=self.simulated,
            metrics=self.metrics,
            outlier=outlier_limit(estimator, rows[use]),
            versions={name: version(name) for name in _VERSIONS},
            parents=self.parents,
        )
        meta["carries_training_rows"] = carried
        meta["preparation"] = {**preparation.as_dict(), "text": preparation.as_text()}
        save_bundle(
            out, estimator, json_safe(meta), card(meta), reference[:REFERENCE_ROWS], training
        )

    def score(self, bundles: list[Bundle]) -> None:
        """Probabilities from trained models; a study that none can take is refused by name."""
        start = time.perf_counter()
        first = bundles[0]
        models = {
            b.name: {
                "name": b.name,
                "training": b.metadata["training"],
                "cad_version": b.metadata["cad_version"],
            }
            for b in bundles
        }
        self.model = {**models[first.name], "name": ", ".join(models), "models": models}
        self.simulated |= any(b.metadata["training"]["simulated"] for b in bundles)
        source = self._fold_features()
        scores = score_rows(bundles, self.features, source)
        self._keep(source.measured(Preparation.of(first.metadata).scale))
        self.notes += scores.notes
        hint = "add the images, or name a second --model that was trained without them"
        for study, reason in scores.refused.items():
            patient = study.split("_", 1)[0]
            self.failures.append(Failure(patient, study, "", "score", reason, hint))
        self.explanations = scores.explanations
        table = scores.table
        outside = (table["warnings"] != "").to_numpy()
        self._collect(
            table["probability"].to_numpy(), table["decision_value"].to_numpy(), outside=outside
        )
        for name in ("p_benign", "p_malignant", "model", "warnings"):
            self.results[name] = table[name]
        self.timings["score"] = time.perf_counter() - start

    def map(self, bundle: Bundle) -> None:
        """The first model's probability over every gland that it can take."""
        start = time.perf_counter()
        sites = self._sites()
        scored = set(self.results.loc[self.results["model"] == bundle.name, "study_id"])
        tasks = [
            delayed(map_study)(
                MapTask(ref, self.settings, bundle, self.out, sites.get(ref.participant_id, ""))
            )
            for ref in self.cohort.studies()
            if ref.study_id in scored
        ]
        failures = Parallel(n_jobs=self.how.jobs)(tasks)
        self.failures += [failure for failure in failures if failure is not None]
        self.timings["map"] = time.perf_counter() - start

    def write(self) -> None:
        """Every file of the run folder, pages last."""
        out = self.out
        (out / COMPLETE).unlink(missing_ok=True)
        write_parquet(out / "features.parquet", self.features)
        write_parquet(out / "labels.parquet", self.labels)
        write_csv(out / "probabilities.csv", self.results, PROBABILITY_COLUMNS)
        write_csv(out / "explanations.csv", pd.DataFrame(self.explanations), EXPLANATION_COLUMNS)
        write_json(out / "metrics.json", self.metrics)
        write_failures(out / "failures.csv", self.failures)
        record = self._record()
        write_json(out / "run.json", record)
        write_atomic(out / "validation.md", validation_md(record, self.metrics).encode())
        write_report(out)
        write_atomic(out / COMPLETE, self._identity().encode())

    def _sites(self) -> dict[str, str]:
        """Site of every patient; empty where the tables do not say."""
        people = self.cohort.participants
        if "site" not in people:
            return dict.fromkeys(people["participant_id"], "")
        return dict(
            zip(people["participant_id"], people["site"].fillna("").astype(str), strict=True)
        )

    def _fold_features(self) -> FoldFeatures:
        labels = self.table.labels
        sites = labels["site"].fillna("") if "site" in labels else pd.Series("", labels.index)
        return FoldFeatures(
            self.table.keys,
            self.table.X,
            without_copies(self.settings) if self.kind == "predict" else self.settings,
            [task.result for task in self.measured],
            sites.to_numpy(str),
            self.out / "folds",
        )

    def _keep(self, X: pd.DataFrame) -> None:
        """Take features that are complete now into the tables that are stored."""
        self.table = replace(self.table, X=X)
        own = X.iloc[: len(self.features)].reindex(columns=self.features.columns[len(KEYS) :])
        self.features = pd.concat([self.features[KEYS], own], axis=1)

    def _null(self, rows: FoldFeatures) -> PermutationNull | None:
        """The whole loop under permuted labels, when the settings ask for it."""
        settings, table = self.settings.validate_, self.table
        if settings.permutations == 0:
            return None
        return permutation_null(
            make_estimator(self.settings),
            rows,
            table.y,
            table.labels["truth"].to_numpy(float),
            groups=self._left_out_together(),
            n=settings.permutations,
            eta=table.eta,
            patients=table.groups,
            seed=settings.seed,
            n_jobs=self.how.jobs,
        )

    def _collect(
        self,
        probability: np.ndarray,
        decision: np.ndarray,
        null: PermutationNull | None = None,
        outside: np.ndarray | bool = False,
    ) -> None:
        """One row per region with everything that is said about it, and the measures.

        Regions ``outside`` the training distribution are not called benign.
        """
        columns = ["participant_id", "roi_id", "label", "zone", "histology", "isup"]
        results = (
            self.features[KEYS]
            .merge(self.rois[columns], on=["participant_id", "roi_id"], how="left")
            .merge(self.labels, on=["participant_id", "roi_id"], how="left")
            .merge(scores_text(self.scores), on=["participant_id", "roi_id"], how="left")
        )
        results["label"] = results["label"].astype(int)
        own = slice(0, len(results))  # rows of an earlier model's table come after the cohort's
        results["probability"], results["decision_value"] = probability[own], decision[own]
        called = decide(probability, self.settings.decision)
        called = np.where(outside & (called == "benign"), "refer", called)
        called = np.where(np.isfinite(probability), called, "")
        results["decision"] = called[own]
        results["warnings"] = ""
        self.metrics = evaluate(
            self.table.labels.assign(
                probability=probability, decision_value=decision, decision=called
            ),
            reader_scores=reader_probabilities(self.scores, self.rois, self.settings.labels),
            decision=self.settings.decision,
            folds=self.folds,
            feature_names=list(self.table.X.columns),
            null=null,
            bootstraps=self.settings.validate_.bootstraps,
            seed=self.settings.validate_.seed,
        )
        conformal = self.metrics.pop("conformal", None)
        if conformal:
            for name in ("p_benign", "p_malignant"):
                results[name] = conformal.pop(name)[own]
            self.metrics["conformal"] = conformal
        self.results = results

    def _left_out_together(self) -> np.ndarray:
        if self.settings.validate_.scheme != "leave-one-site-out":
            return self.table.groups
        sites = self.table.labels["site"].fillna("").to_numpy(str)
        if (sites == "").any():
            raise CadError(
                "leave-one-site-out needs a site for every patient",
                patient=str(self.table.groups[sites == ""][0]),
                file=self.cohort.root / "participants.tsv",
            )
        return sites

    def _explain(
        self, estimator: Any, X: np.ndarray, training: np.ndarray, rows: np.ndarray
    ) -> None:
        names = list(self.table.X.columns)
        found = explain(estimator, X[training], X[rows], names)
        keys = self.table.keys.iloc[rows].to_dict("records")
        units = feature_units(names)
        self.explanations += [
            {**key, **entry, "unit": units[entry["feature"]]}
            for key, entries in zip(keys, found, strict=True)
            for entry in entries
        ]

    def _record(self) -> dict[str, Any]:
        return {
            "name": self.settings.name,
            "kind": self.kind,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "cad_version": __version__,
            "settings": self.settings.model_dump(mode="json", by_alias=True),
            "decision_thresholds": self.thresholds,
            "model": self.model,
            "versions": {name: version(name) for name in _VERSIONS},
            "timings": self.timings,
            "inputs": {o.study_id: o.key for o in self.outcomes},
            "studies": [
                {k: v for k, v in asdict(o).items() if k not in ("failures", "key")}
                for o in self.outcomes
            ],
            "counts": {
                "studies": len(self.outcomes),
                "failed": sum(o.status == "failed" for o in self.outcomes),
                "regions": len(self.results),
            },
            "warnings": [*self.metrics.get("warnings", []), *self.notes],
            "simulated": self.simulated,
            "cohort_simulated": self.cohort.simulated,
        }


def _check_folder(out: Path, kind: str) -> None:
    """A run writes into a new folder or one of its own kind, never over something else."""
    if (out / "dataset_description.json").exists():
        raise CadError("the output folder is a cohort", file=out, hint="name another folder")
    try:
        before = json.loads((out / "run.json").read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if before != kind:
        raise CadError(
            f"the output folder holds the result of `cad {before}`, not of `cad {kind}`",
            file=out,
            hint="name another folder",
        )
