"""Write a validation that was made in Python as a run folder, without fitting anything again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.settings import LearnerSettings, PipelineSettings, ValidationSettings
from cad.base.transactions import claimed
from cad.folders.run_folder import RUNS, RunFolder
from cad.folders.run_folder.partitions import LABELS
from cad.learning.evaluation.folds.crossval import OutOfFold
from cad.learning.evaluation.folds.paired import RivalTable
from cad.run.execution.options import HERE
from cad.run.execution.pool import workplace
from cad.run.stages.decide import decide_run
from cad.run.stages.emit import emit
from cad.run.stages.validate import judge_folds
from cad.run.tables.regions import Regions, no_scores, numbered_within
from cad.run.tables.stages import aggregate_table, load_table
from cad.run.tables.validating import NOTHING_MEASURED


@dataclass(frozen=True, eq=False)
class Validated:
    """Hold the inputs of a validation of n regions that was made in Python.

    Parameters
    ----------
    X : DataFrame, shape (n, d)
        Features.
    y, eta : ndarray, shape (n,)
        Labels, and standard deviations of the readers (NaN where there is none).
    believed, truth : ndarray, shape (n,)
        The readers' mean probability, and histology as 1 or 0; NaN where unknown.
    patients : sequence of str
        Patient of every region.
    readers : DataFrame or None
        Every reader's probability, with a column for each reader.
    learner : str
        Name of the learner's class.
    n_folds : int or None
        Number of folds; None where each patient was left out by himself.
    seed : int
        Seed of the division of patients into folds.
    notes : sequence of str
        Remarks on the numbers.
    """

    X: pd.DataFrame
    y: np.ndarray
    eta: np.ndarray
    believed: np.ndarray
    truth: np.ndarray
    patients: Sequence[str]
    readers: pd.DataFrame | None
    learner: str
    n_folds: int | None
    seed: int
    notes: Sequence[str]


def save_validation(made: Validated, folds: OutOfFold, rivals: RivalTable, out: Path) -> Path:
    """Write the run folder of a validation, as ``cad table validate`` does.

    Parameters
    ----------
    made : Validated
        The inputs of the validation.
    folds : OutOfFold
        The predictions of the validation.
    rivals : RivalTable
        The comparison of the validated learner with other learners.
    out : Path
        Run folder.

    Returns
    -------
    Path
        Path of the index page.

    Raises
    ------
    CadError
        When the folder holds anything but an earlier run.
    """
    # Without a number of folds, the default scheme holds: each patient was left out by himself.
    scheme: dict[str, object] = {"seed": made.seed}
    if made.n_folds is not None:
        scheme |= {"scheme": "patient-folds", "folds": made.n_folds}
    settings = PipelineSettings(
        name="validation",
        description="A validation made in Python.",
        learner=LearnerSettings(name=made.learner),
        validate_=ValidationSettings.model_validate(scheme),
    )
    regions = _validated_regions(made)
    with claimed(out, RUNS["run"]), workplace(HERE):
        loaded = load_table(regions, settings, RunFolder(out), HERE, "run")
        # Until all files are written again, the folder must not count as a complete run.
        loaded.folder.complete.unlink(missing_ok=True)
        aggregated = aggregate_table(loaded, regions)
        judged = judge_folds(loaded, aggregated, folds, rivals=rivals)
        emit(loaded, NOTHING_MEASURED, decide_run(loaded, [], judged))
    return RunFolder(out).page("index.html")


def _validated_regions(made: Validated) -> Regions:
    """Return the inputs of a validation as the regions of a table with stated labels."""
    patients = [str(patient) for patient in made.patients]
    rois = pd.DataFrame({"participant_id": patients, "roi_id": numbered_within(patients)})
    histology_of = {1.0: "malignant", 0.0: "benign"}
    # NaN, which is unknown histology, becomes an empty text.
    histology = [histology_of.get(value, "") for value in made.truth.tolist()]
    rois = rois.assign(histology=histology, isup="", site="")
    scores = no_scores()
    if made.readers is not None:
        readings = []
        for name in made.readers:
            # A run folder stores a reader's probability as a score in percent.
            score = 100 * made.readers[name].to_numpy(float)
            keys = rois[["participant_id", "roi_id"]]
            readings.append(keys.assign(reader_id=str(name), scale="percent", score=score))
        # A reader who did not score a region has NaN there, and gets no row.
        scores = pd.concat(readings).dropna(subset="score").reset_index(drop=True)
    labels = {"y": made.y, "eta": made.eta, "p": made.believed, "truth": made.truth}
    stated = pd.DataFrame(labels).reindex(columns=LABELS)
    X = made.X.set_axis([str(name) for name in made.X.columns], axis=1).reset_index(drop=True)
    return Regions(
        Path("a table in Python"), X, rois, scores, stated=stated, notes=list(made.notes)
    )
