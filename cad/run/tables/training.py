"""Validate a learner on a table, then fit it to all labelled rows and store it as a bundle."""

from dataclasses import replace
from pathlib import Path

from cad.base.settings import PipelineSettings
from cad.base.transactions import claimed, require_kind
from cad.folders.run_folder import RUNS, RunFolder
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import workplace
from cad.run.model.bundle import MODEL
from cad.run.model.estimator import make_estimator, require_storable
from cad.run.stages.emit import Emitted
from cad.run.stages.train import train
from cad.run.tables.regions import Regions
from cad.run.tables.stages import load_table
from cad.run.tables.validating import check_folds, validated


def train_table(
    regions: Regions,
    settings: PipelineSettings,
    out: Path,
    options: ExecutionOptions,
    isup_min: int | None = None,
) -> Emitted:
    """Validate a learner on a table, then fit it to all labelled rows and store it as a bundle.

    Parameters
    ----------
    regions : Regions
        The table (:func:`cad.run.tables.regions.read_regions`).
    settings : PipelineSettings
        Result of :func:`cad.run.tables.settings.table_settings`.
    out : Path
        Folder of the bundle. The model card in it states the measures of the validation. The run
        folder of the validation is ``<out>.validation`` beside it.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept. No
        option changes a result.
    isup_min : int or None
        Lowest grade that counts as malignant, where histology is stated as a grade.

    Returns
    -------
    Emitted
        Summary of the validation, which the command prints.

    Raises
    ------
    CadError
        For labels or settings that cannot be used, and for a learner that cannot be stored.
    """
    check_folds(regions, settings)
    require_kind(out, MODEL)
    require_storable(make_estimator(settings), settings.learner)
    validation = out.with_name(out.name + ".validation")
    # The folders are claimed, so that no other process writes to them at the same time.
    with claimed(validation, RUNS["train"]), workplace(options):
        loaded = load_table(regions, settings, RunFolder(validation), options, "train", isup_min)
        aggregated, judged, emitted = validated(loaded, regions)
        train(loaded, aggregated, judged, out)
    return replace(emitted, model=out)
