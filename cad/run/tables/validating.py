"""Validate a learner on a table, leaving whole patients out, and write the run folder."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.base.transactions import claimed
from cad.folders.run_folder import RUNS, RunFolder
from cad.learning.learners.rivals import rival_learners, rival_notes
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import workplace
from cad.run.stages.aggregate import Aggregated
from cad.run.stages.decide import decide_run
from cad.run.stages.emit import Emitted, emit
from cad.run.stages.extract import Measured
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded
from cad.run.stages.validate import validate
from cad.run.tables.regions import Regions
from cad.run.tables.stages import aggregate_table, load_table

NOTHING_MEASURED = Measured([], [], [], 0.0)
"""The outcome of the measurement for a table: nothing is measured, because it has the features."""


def validate_table(
    regions: Regions,
    settings: PipelineSettings,
    out: Path,
    options: ExecutionOptions,
    isup_min: int | None = None,
) -> Emitted:
    """Cross-validate a pipeline's learner on a table, and write the run folder.

    Other learners (rivals) are validated on the same folds, and the learner is compared with them.

    Parameters
    ----------
    regions : Regions
        The table (:func:`cad.run.tables.regions.read_regions`).
    settings : PipelineSettings
        Result of :func:`cad.run.tables.settings.table_settings`.
    out : Path
        Run folder. It gets probabilities, measures, ``validation.md``, figures and an index page.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept. No
        option changes a result.
    isup_min : int or None
        Lowest grade that counts as malignant, where histology is stated as a grade.

    Returns
    -------
    Emitted
        Summary of the run, which the command prints.

    Raises
    ------
    CadError
        For labels or settings that cannot be used.
    """
    check_folds(regions, settings)
    with claimed(out, RUNS["run"]), workplace(options):
        loaded = load_table(regions, settings, RunFolder(out), options, "run", isup_min)
        return validated(loaded, regions)[-1]


def check_folds(regions: Regions, settings: PipelineSettings) -> None:
    """Raise an error for more folds than the table has patients, before a file is written.

    Parameters
    ----------
    regions : Regions
        The regions of the table, with their features, scores and histology.
    settings : PipelineSettings
        Settings with the scheme of the validation.

    Raises
    ------
    CadError
        For more folds than patients; the message has both numbers.
    """
    folds = settings.validate_.folds
    patients = regions.patients.nunique()
    if settings.validate_.scheme == "patient-folds" and folds > patients:
        raise CadError(
            f"--folds {folds}: the table has {patients} patients in column "
            f"{regions.roles.get('patient', '')!r}, and a fold leaves out one at least",
            file=regions.file,
            hint=f"--folds 2 to --folds {patients}, or leave --folds out to leave out one patient "
            "at a time",
        )


def validated(loaded: Loaded, regions: Regions) -> tuple[Aggregated, Judged, Emitted]:
    """Validate a learner on a table, and write the results to a run folder that is locked already.

    Parameters
    ----------
    loaded : Loaded
        Result of :func:`cad.run.tables.stages.load_table`.
    regions : Regions
        The regions of the table, with their features, scores and histology.

    Returns
    -------
    Aggregated
        Features and labels of the regions, with notes on the table.
    Judged
        Probabilities, decisions and measures of the validation.
    Emitted
        The run's summary, and the lines that the command prints.
    """
    # The file that marks a run as finished is removed first. So a run that is killed later does not
    # count as finished.
    loaded.folder.complete.unlink(missing_ok=True)
    aggregated = aggregate_table(loaded, regions)
    rivals = [name for name in rival_learners() if name != loaded.settings.learner.name]
    n_regions = len(regions.X)
    notes = [*aggregated.notes, *rival_notes(rivals, n_regions), *copies(regions)]
    aggregated = replace(aggregated, notes=tuple(notes))
    judged = decide_run(loaded, [], validate(loaded, aggregated))
    return aggregated, judged, emit(loaded, NOTHING_MEASURED, judged)


def copies(regions: Regions) -> list[str]:
    """Say how many regions have the same features as a region of another patient.

    Parameters
    ----------
    regions : Regions
        The regions of the table, with their features, scores and histology.

    Returns
    -------
    list of str
        One sentence for the user; empty if no such region exists.
    """
    # Rows of equal features have equal hashes.
    hashes = pd.util.hash_pandas_object(regions.X, index=False).to_numpy()
    frame = pd.DataFrame({"row": hashes, "patient": regions.patients.to_numpy()})
    n_patients = frame.groupby("row")["patient"].transform("nunique")
    n_copied = int((n_patients > 1).sum())
    if not n_copied:
        return []
    return [
        f"{n_copied} regions have the same features as a region of another patient: one man under "
        "two names is trained on and tested at once"
    ]
