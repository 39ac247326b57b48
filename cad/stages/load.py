"""Load: a cohort's tables and one study's images, checked, nothing measured yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from cad.cohort import Cohort, StudyRef, read_cohort
from cad.cohort.without import labels_of
from cad.cohort.without import without as leave_out
from cad.errors import CadError
from cad.execution.options import ExecutionOptions
from cad.features.provenance import CohortFacts, resolve_auto
from cad.model.estimator import make_estimator
from cad.run_folder import RunFolder
from cad.run_folder.tables import Failure
from cad.settings import PipelineSettings

if TYPE_CHECKING:
    from cad.imaging.study import Study

Kind = Literal["run", "train", "predict"]


@dataclass(frozen=True)
class Loaded:
    """Hold what a run starts from.

    Parameters
    ----------
    settings : PipelineSettings
        Everything that changes results.
    cohort : Cohort
        Tables that were checked.
    folder : RunFolder
        Where the run is written.
    options : ExecutionOptions
        How the job is run.
    kind : str
        ``run``, ``train`` or ``predict``.
    basis : str
        What results rest on beside cohort and settings: the models, for ``predict``.
    withdrawn : tuple of str
        Patients who are left out, whether the tables hold them or not.
    """

    settings: PipelineSettings
    cohort: Cohort
    folder: RunFolder
    options: ExecutionOptions
    kind: Kind
    basis: str = ""
    withdrawn: tuple[str, ...] = ()

    @property
    def failures(self) -> list[Failure]:
        """Return the patients that the cohort's tables exclude."""
        return [failure_of(p, p.patient, p.patient, "cohort") for p in self.cohort.problems]

    def sites(self, patients: pd.Series) -> np.ndarray:
        """Return the site of every row's patient; empty where the tables do not say."""
        people = self.cohort.participants
        if "site" not in people:
            return np.full(len(patients), "")
        site = people.drop_duplicates("participant_id").set_index("participant_id")["site"]
        sites: np.ndarray = patients.map(site).fillna("").to_numpy(str)
        return sites


def load(
    settings: PipelineSettings,
    root: Path,
    out: Path,
    options: ExecutionOptions,
    kind: Kind,
    basis: str = "",
    without: Collection[str] = (),
) -> Loaded:
    """Read a cohort's tables and refuse at once what can be known to fail later.

    Raises
    ------
    CadError
        For costs that make referring useless, an output folder that holds something else, a
        misspelt learner, or a cohort that cannot be read.
    """
    _ = settings.decision.thresholds
    folder = RunFolder(out)
    folder.check_kind(kind)
    if kind != "predict":
        make_estimator(settings)
    withdrawn = tuple(labels_of(without))
    cohort = leave_out(read_cohort(root), withdrawn)
    facts = CohortFacts.of((ref.folder, ref.study_id) for ref in cohort.studies())
    settings = resolve_auto(facts, settings)  # one choice for all: a column means one thing
    return Loaded(settings, cohort, folder, options, kind, basis, withdrawn)


class AwaitingRoi(CadError):
    """Say that a study has no region yet; nothing is wrong with it."""


def read_study_of(ref: StudyRef) -> Study:
    """Read one study's volumes and regions.

    Raises
    ------
    AwaitingRoi
        For a study without regions.
    CadError
        For images that cannot be read, or values that no patient has.
    """
    from cad.imaging.plausibility import require_plausible, site_ranges
    from cad.imaging.study import Roi
    from cad.imaging.study_files import read_study

    rois = [
        Roi(str(row.roi_id), int(row.label), "n/a" if pd.isna(row.zone) else str(row.zone))
        for row in ref.rois.itertuples()
    ]
    if not rois:
        raise AwaitingRoi(
            "awaiting ROI: the study has no region to measure", patient=ref.participant_id
        )
    study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
    require_plausible(study, site_ranges(ref.folder))
    return study


def require_t1_of_the_field(study: Study, settings: PipelineSettings) -> None:
    """Refuse a study whose field strength the assumed T1 does not hold at.

    Raises
    ------
    CadError
        Where the dynamic series is measured; see
        :func:`cad.imaging.plausibility.t1_default_problem`.
    """
    from cad.imaging.plausibility import t1_default_problem

    if "dce" in settings.features.modalities:
        perfusion = settings.features.perfusion
        problem = t1_default_problem(study, perfusion.t1_tissue, perfusion.t1_blood)
        if problem is not None:
            raise problem


def failure_of(error: CadError, patient: str, study: str, stage: str) -> Failure:
    """Return the row of ``failures.csv`` for an error; it names the file where it knows it."""
    where = f"{Path(error.file).name}: " if error.file else ""
    return Failure(
        error.patient or patient,
        study,
        error.roi,
        stage,
        where + error.problem,
        error.hint,
        "awaiting ROI" if isinstance(error, AwaitingRoi) else "failed",
    )
