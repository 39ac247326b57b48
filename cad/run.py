"""One run: what has been read, measured, learned and found, until it is written."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad import __version__
from cad.bundle import Bundle, save_bundle
from cad.cohort import Cohort
from cad.errors import CadError
from cad.evaluation import evaluate
from cad.evaluation.crossval import OutOfFold, decision_value, fit_keywords, out_of_fold
from cad.evaluation.crossval import positive_probability
from cad.extraction import Failure, StudyOutcome, StudyTask, failure_of, process_study, read_result
from cad.labels.consensus import malignant, reader_labels, reader_probabilities
from cad.learning import KEYS, decide, explain, join, label_kinds, make_estimator
from cad.reports import write_report
from cad.run_folder import (
    EXPLANATION_COLUMNS,
    PROBABILITY_COLUMNS,
    scores_text,
    write_csv,
    write_failures,
    write_json,
    write_parquet,
)
from cad.running import How, each
from cad.settings import PipelineSettings

_VERSIONS = ("numpy", "scipy", "scikit-learn", "numba", "SimpleITK", "pandas", "cvxopt")


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
        self.settings, self.cohort, self.out, self.how, self.kind = settings, cohort, out, how, kind
        self.failures = [failure_of(p, p.patient, p.patient, "cohort") for p in cohort.problems]
        self.outcomes: list[StudyOutcome] = []
        self.timings: dict[str, float] = {}
        self.metrics: dict[str, Any] = {}
        self.model: dict[str, Any] | None = None
        self.folds: OutOfFold | None = None
        self.explanations: list[dict[str, Any]] = []

    def measure(self) -> None:
        """Features of every study, one result file each."""
        start = time.perf_counter()
        tasks = [
            StudyTask(ref, self.settings, self.out, self.how.resume)
            for ref in self.cohort.studies()
        ]
        by_study = {outcome.study_id: outcome for outcome in each(process_study, tasks, self.how)}
        self.outcomes = [by_study[task.ref.study_id] for task in tasks]
        self.failures += [f for outcome in self.outcomes for f in outcome.failures]
        measured = [t for t, o in zip(tasks, self.outcomes, strict=True) if o.status != "failed"]
        if not measured:
            raise CadError(
                "no study could be measured",
                file=self.cohort.root,
                hint="; ".join(f"{f.study_id}: {f.reason}" for f in self.failures[:3]),
            )
        tables = [read_result(task.result)["rows"] for task in measured]
        self.features = pd.concat(tables, ignore_index=True)
        self.timings["measure"] = time.perf_counter() - start

    def label(self) -> None:
        """Readers' consensus and histology of every measured region."""
        good = set(self.features["participant_id"])
        rois = self.cohort.rois[self.cohort.rois["participant_id"].isin(good)]
        scores = self.cohort.scores[self.cohort.scores["participant_id"].isin(good)]
        self.rois, self.scores = rois.reset_index(drop=True), scores.reset_index(drop=True)
        settings = self.settings.labels
        self.labels = reader_labels(self.scores, self.rois, self.cohort.readers, settings)
        self.labels["label_kind"] = label_kinds(self.labels, settings)
        self.labels["truth"] = malignant(self.rois, settings.isup_min)
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
        rows = table.X.to_numpy(float)
        self.folds = out_of_fold(
            make_estimator(self.settings),
            rows,
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
                self._explain(fold.estimator, rows[training], fold.rows)
        self._collect(self.folds.probability, self.folds.decision)
        self.timings["validate"] = time.perf_counter() - start

    def fit(self, out: Path) -> None:
        """The model that all patients make, written as a bundle."""

    def score(self, bundle: Bundle) -> None:
        """Probabilities from a trained model; a study without a needed modality is refused."""

    def write(self) -> None:
        """Every file of the run folder, pages last."""
        out = self.out
        write_parquet(out / "features.parquet", self.features)
        write_parquet(out / "labels.parquet", self.labels)
        write_csv(out / "probabilities.csv", self.results, PROBABILITY_COLUMNS)
        write_csv(out / "explanations.csv", pd.DataFrame(self.explanations), EXPLANATION_COLUMNS)
        write_json(out / "metrics.json", self.metrics)
        write_failures(out / "failures.csv", self.failures)
        write_json(out / "run.json", self._record())
        write_report(out)

    def _collect(self, probability: np.ndarray, decision: np.ndarray) -> None:
        """One row per region with everything that is said about it, and the measures."""
        columns = ["participant_id", "roi_id", "label", "zone", "histology", "isup"]
        results = (
            self.features[KEYS]
            .merge(self.rois[columns], on=["participant_id", "roi_id"], how="left")
            .merge(self.labels, on=["participant_id", "roi_id"], how="left")
            .merge(scores_text(self.scores), on=["participant_id", "roi_id"], how="left")
        )
        results["label"] = results["label"].astype(int)
        results["probability"], results["decision_value"] = probability, decision
        results["decision"] = np.where(
            np.isfinite(probability), decide(probability, self.settings.decision), ""
        )
        results["warnings"] = ""
        self.results = results
        self.metrics = evaluate(
            results,
            reader_scores=reader_probabilities(self.scores, self.rois, self.settings.labels),
            thresholds=self.thresholds,
            folds=self.folds,
            feature_names=list(self.table.X.columns),
            bootstraps=self.settings.validate_.bootstraps,
            seed=self.settings.validate_.seed,
        )

    def _left_out_together(self) -> np.ndarray:
        if self.settings.validate_.scheme != "leave-one-site-out":
            return self.table.groups
        people = self.cohort.participants
        if "site" not in people or people["site"].isna().any():
            raise CadError(
                "leave-one-site-out needs a site for every patient",
                file=self.cohort.root / "participants.tsv",
            )
        site = people.set_index("participant_id")["site"]
        return site.loc[self.table.groups].to_numpy(str)

    def _explain(self, estimator: Any, training: np.ndarray, rows: np.ndarray) -> None:
        names = list(self.table.X.columns)
        found = explain(estimator, training, self.table.X.to_numpy(float)[rows], names)
        keys = self.table.keys.iloc[rows].to_dict("records")
        self.explanations += [
            {**key, **entry} for key, entries in zip(keys, found, strict=True) for entry in entries
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
            "warnings": self.metrics.get("warnings", []),
            "simulated": self.cohort.simulated,
        }
