"""Boundaries at which what was made comes back: bundles, run folders, the memory of a run."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from boundaries_in import tiny_cohort
from damage import BYTES, CSV, JSON, LINES, NPZ, PARQUET, Boundary, Damage
from figures_once import draw_once

from cad.base.errors import CadError
from cad.base.reading import reading
from cad.base.settings import PipelineSettings
from cad.base.share import shared
from cad.base.transactions import require_kind
from cad.folders.cohort import read_cohort
from cad.folders.run_folder import RUNS, RunFolder, partitions
from cad.folders.run_folder.records import read_metrics, read_record
from cad.folders.run_folder.study_file import page_measurements, read_provenance, region_rows
from cad.folders.run_folder.tables import (
    KEYS,
    Failure,
    read_failures,
    read_probabilities,
)
from cad.learning.evaluation.summary import MeasuredDecisions, Summary
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.resume import measure_studies
from cad.run.execution.task import StudyOutcome, StudyTask
from cad.run.model.bundle import FILES, HASHES, load_bundle, verify_bundle
from cad.run.model.fold_features import FoldFeatures
from cad.run.reports import pages, write_report
from cad.run.reports.printed import printed_table
from cad.run.stages.extract import Extracted
from cad.run.stages.predict import operating_point, score_rows, shared_settings


def bundles(root: Path) -> Boundary:
    folder = Path(shutil.copytree(shared("models", "phantom-psvm-biparametric"), root / "model"))
    training = pd.read_parquet(folder / "training.parquet").iloc[:40].reset_index(drop=True)
    training.to_parquet(folder / "training.parquet", index=False)
    settings = PipelineSettings(name="fuzz")
    keys = training[KEYS].iloc[:3] if set(KEYS) <= set(training) else None
    if keys is None:
        keys = (
            training[["participant_id", "roi_id"]]
            .iloc[:3]
            .assign(study_id=training["participant_id"])[KEYS]
        )

    def sign() -> None:
        hashes = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in FILES}
        (folder / HASHES).write_text(json.dumps(hashes))

    sign()
    X = training[load_bundle(folder).features].iloc[:3]

    def read() -> None:
        bundle = load_bundle(folder)
        chosen = shared_settings([bundle])
        source = FoldFeatures(keys, X, settings, [], np.array([""] * 3), RunFolder(root / "run"))
        provenance = pd.DataFrame(index=range(3))
        extracted = Extracted(pd.concat([keys, X], axis=1), provenance, source)
        operating_point(bundle, chosen.decision)
        aim = chosen.decision.model_copy(update={"aim_npv": 0.9})
        operating_point(bundle, aim)
        score_rows([bundle], extracted, source.folder)
        verify_bundle(folder)

    damages = (NPZ, JSON, NPZ, PARQUET, BYTES)
    files = [(folder / name, how) for name, how in zip(FILES, damages, strict=True)]
    return Boundary([*files, (folder / "metadata.json", JSON)], read, before=sign, settle=sign)


def made_run(root: Path) -> Path:
    """The run folder of the reports' tests, smaller."""
    path = Path(__file__).resolve().parents[1] / "run" / "reports" / "made_run.py"
    spec = importlib.util.spec_from_file_location("reports_made_run", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    made.SHAPE = (3, 40, 44)
    others = [made.Patient(f"sub-P{k:03d}", 5, images=False) for k in range(6, 9)]
    return made.make_run(root / "run", (made.Patient("sub-P001", 2), *others))


def run_folder(root: Path) -> Boundary:
    run = made_run(root)
    folder = RunFolder(run)
    read_probabilities(folder).iloc[:, :4].to_parquet(folder.features)
    damages: dict[str, Damage] = {".csv": CSV, ".json": JSON, ".npz": NPZ, ".parquet": PARQUET}
    paths = sorted(p for p in run.rglob("*") if p.is_file() and p.suffix in damages)

    def report() -> None:
        with mock.patch.object(pages, "draw_figures", draw_once):
            write_report(run)

    def said() -> None:
        """The numbers that a finished run prints again, as a command reads them."""
        with reading(run, "not a finished run"):
            metrics = read_metrics(folder)
            decisions = MeasuredDecisions.from_dict(metrics)
            printed_table(Summary.from_dict(metrics), decisions)

    def read() -> None:
        study = next((run / "studies").glob("*.npz"))
        for step in (
            report,
            lambda: read_failures(folder),
            lambda: read_probabilities(folder),
            lambda: partitions._read_columns(folder.features, KEYS),
            lambda: page_measurements(folder, study.stem),
            said,
            lambda: read_record(folder),
            lambda: region_rows([study]),
            lambda: read_provenance([study]),
            lambda: require_kind(run, RUNS["run"]),
        ):
            try:
                step()
            except CadError:
                continue

    return Boundary([(p, damages[p.suffix]) for p in paths], read)


def memory(root: Path) -> Boundary:
    """The memory that a run has of the last one."""
    cohort = tiny_cohort(root)
    out = root / "run"
    settings = PipelineSettings(name="fuzz")
    tasks = [StudyTask(ref, settings, out) for ref in read_cohort(cohort).studies()]
    path = RunFolder(out).memory

    def run() -> None:
        measure_studies(_failing, tasks, ExecutionOptions(jobs=0))

    run()
    return Boundary([(path, LINES)], run)


def _failing(task: StudyTask) -> StudyOutcome:
    failure = Failure(task.ref.participant_id, task.ref.study_id, "", "read", "because")
    return StudyOutcome(task.ref.study_id, "failed", "because", [failure], 0.1, "key")
