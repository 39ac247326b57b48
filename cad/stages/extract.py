"""Extract: every study measured, one row of features per region."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from cad.execution.resume import measure_studies
from cad.execution.task import StudyOutcome, StudyTask
from cad.model.fold_features import FoldFeatures, without_copies
from cad.run_folder.study_file import read_provenance, region_rows
from cad.run_folder.tables import KEYS, Failure, write_features
from cad.settings import PipelineSettings
from cad.stages.load import Loaded
from cad.stages.study import process_study

if TYPE_CHECKING:
    from cad.imaging.standardise import NyulScale


@dataclass(frozen=True)
class Measured:
    """Tell what became of every study of the cohort.

    Parameters
    ----------
    outcomes : list of StudyOutcome
        One per study, in the order of the cohort.
    results : list of Path
        Files of the studies that were measured.
    failures : list of Failure
        Of studies and of single regions.
    seconds : float
        Wall time.
    """

    outcomes: list[StudyOutcome]
    results: list[Path]
    failures: list[Failure]
    seconds: float


@dataclass(frozen=True)
class Extracted:
    """Hold the features of every measured region.

    Parameters
    ----------
    features : DataFrame
        ``participant_id, study_id, roi_id`` and features, as stored: where T2's scale is fitted
        across patients, the fit on all of them.
    provenance : DataFrame
        How each row was measured; stored beside the features, seen by no learner.
    source : FoldFeatures
        The same rows as any set of training patients makes them.
    """

    features: pd.DataFrame
    provenance: pd.DataFrame
    source: FoldFeatures


def measure(loaded: Loaded) -> Measured:
    """Measure every study whose input or settings changed, one result file each.

    Parameters
    ----------
    loaded : Loaded
        The run.

    Returns
    -------
    Measured
        A failed study is listed and costs no other.
    """
    start = time.perf_counter()
    refs = loaded.cohort.studies()
    settings = _measured_with(loaded)
    tasks = [StudyTask(ref, settings, loaded.folder.root) for ref in refs]
    outcomes = measure_studies(process_study, tasks, loaded.options)
    failures = [f for outcome in outcomes for f in outcome.failures]
    pairs = zip(tasks, outcomes, strict=True)
    results = [task.result for task, outcome in pairs if outcome.status != "failed"]
    return Measured(outcomes, results, failures, time.perf_counter() - start)


def extract(loaded: Loaded, measured: Measured, scale: NyulScale | None = None) -> Extracted:
    """Collect the features of all studies and write ``features.parquet``.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        The run so far.
    scale : NyulScale, optional
        T2's scale, where a trained model brings it; else it is fitted on all patients.
    """
    rows = region_rows(measured.results)
    keys, X = rows[KEYS], rows.drop(columns=KEYS)
    source = FoldFeatures(
        keys,
        X,
        _measured_with(loaded),
        measured.results,
        loaded.sites(keys["participant_id"]),
        loaded.folder,
    )
    # New men are measured on the scale of the model's training, never on one of their own.
    complete = source.measured(scale) if loaded.kind == "predict" else source.complete()
    features = pd.concat([keys, complete.reindex(columns=X.columns)], axis=1)
    provenance = read_provenance(measured.results)
    write_features(loaded.folder, pd.concat([features, provenance], axis=1))
    return Extracted(features, provenance, source)


def _measured_with(loaded: Loaded) -> PipelineSettings:
    # Redrawn copies only choose features, which a trained model has done.
    predicting = loaded.kind == "predict"
    return without_copies(loaded.settings) if predicting else loaded.settings
