"""Measure every study and collect one row of features per region: the stage ``extract``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from cad.base.settings import PipelineSettings
from cad.folders.run_folder.study_file import read_provenance, region_rows
from cad.folders.run_folder.tables import KEYS, Failure, write_features
from cad.run.execution.resume import measure_studies
from cad.run.execution.task import StudyOutcome, StudyTask
from cad.run.model.fold_features import FoldFeatures, without_copies
from cad.run.stages.load import Loaded
from cad.run.stages.study import process_study

if TYPE_CHECKING:
    from cad.mri.imaging.standardise import NyulScale


@dataclass(frozen=True)
class Measured:
    """Hold the outcome of measuring every study of the cohort.

    Parameters
    ----------
    outcomes : list of StudyOutcome
        One outcome per study, in the order of the cohort.
    results : list of Path
        Result files of the studies that were measured, now or in an earlier run.
    failures : list of Failure
        Studies and single regions that could not be measured, with the reason.
    seconds : float
        Time of measuring, by the clock.
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
        Columns ``participant_id, study_id, roi_id`` and the features, as stored. Where an intensity
        scale of T2 is fitted across patients, these features use a scale of all patients.
    provenance : DataFrame
        How each row was measured. It is stored beside the features, and no learner learns from it.
    source : FoldFeatures
        Computes the features of the same rows for each fold. They differ between folds where a step
        is fitted to the fold's training rows, such as the intensity scale of T2.
    """

    features: pd.DataFrame
    provenance: pd.DataFrame
    source: FoldFeatures


def measure(loaded: Loaded) -> Measured:
    """Measure every study whose input or settings changed, and write one result file for each.

    Parameters
    ----------
    loaded : Loaded
        The run.

    Returns
    -------
    Measured
        All studies, including those whose earlier result is kept. A study that fails is listed
        among the failures and does not stop the others.
    """
    start = time.perf_counter()
    refs = loaded.cohort.studies()
    settings = _settings_to_measure_with(loaded)
    tasks = [StudyTask(ref, settings, loaded.folder.root) for ref in refs]
    outcomes = measure_studies(process_study, tasks, loaded.options)
    failures = []
    for outcome in outcomes:
        failures += outcome.failures
    result_files = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        # A study that fails now may still have the file of an earlier run. It is not used.
        if outcome.status != "failed":
            result_files.append(task.result)
    return Measured(
        outcomes=outcomes,
        results=result_files,
        failures=failures,
        seconds=time.perf_counter() - start,
    )


def extract(loaded: Loaded, measured: Measured, scale: NyulScale | None = None) -> Extracted:
    """Collect the features of all studies and write ``features.parquet``.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        Results of the stages ``load`` and ``measure``.
    scale : NyulScale, optional
        The intensity scale of T2 of a trained model, for a prediction. In any other run this
        argument is ignored, and the scale is fitted to all patients if the settings ask for one.

    Returns
    -------
    Extracted
        Table of features with a row for each measured region, a table of how each row was measured,
        and an object that computes the features of the same rows for each fold. A feature that
        could not be measured is NaN.
    """
    rows = region_rows(measured.results)
    keys = rows[KEYS]
    X = rows.drop(columns=KEYS)
    source = FoldFeatures(
        keys=keys,
        X=X,
        settings=_settings_to_measure_with(loaded),
        results=measured.results,
        sites=loaded.sites(keys["participant_id"]),
        folder=loaded.folder,
    )
    # The features of a prediction use the intensity scale of T2 from the model's training. A scale
    # that is fitted to the new men would give other features.
    features_to_store = source.measured(scale) if loaded.kind == "predict" else source.complete()
    features = pd.concat([keys, features_to_store.reindex(columns=X.columns)], axis=1)
    provenance = read_provenance(measured.results)
    write_features(loaded.folder, pd.concat([features, provenance], axis=1))
    return Extracted(features, provenance, source)


def extract_nothing(loaded: Loaded) -> None:
    """Write a ``features.parquet`` without rows, for a run in which no study could be measured."""
    write_features(loaded.folder, pd.DataFrame(columns=KEYS))


def _settings_to_measure_with(loaded: Loaded) -> PipelineSettings:
    # Redrawn copies of regions serve only to choose stable features. For a prediction this choice
    # was made when the model was trained, so no copies are measured.
    return without_copies(loaded.settings) if loaded.kind == "predict" else loaded.settings
