"""Read and check a cohort's tables before anything is measured: the stage ``load``."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from cad.base.files import JsonObject
from cad.base.settings import PipelineSettings
from cad.folders.cohort import Cohort, read_cohort
from cad.folders.cohort.twins import twins
from cad.folders.cohort.without import labels_of
from cad.folders.cohort.without import without as leave_out
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import Failure
from cad.mri.columns import Column, columns_of, columns_of_table
from cad.mri.features.filters import check_filters
from cad.mri.features.provenance import CohortFacts, resolve_auto
from cad.run.execution.options import ExecutionOptions
from cad.run.model.estimator import make_estimator, require_storable
from cad.run.stages.study import failure_of

Kind = Literal["run", "train", "predict"]


@dataclass(frozen=True)
class Loaded:
    """Hold the settings and checked tables that a run starts from.

    Parameters
    ----------
    settings : PipelineSettings
        Everything that changes results.
    cohort : Cohort
        The cohort's tables, checked.
    folder : RunFolder
        The run folder.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.
    kind : str
        ``run``, ``train`` or ``predict``.
    basis : dict
        What results depend on besides cohort and settings, as values that JSON can hold: for
        ``predict`` the models and options. A finished run with another basis is computed again.
    withdrawn : tuple of str
        Patients who withdrew and are left out, whether or not the tables hold them.
    table_columns : tuple of str
        Names of the features of a user's own table, for which no image was measured; else empty.
    table_roles : dict
        What the columns of that table are, such as patient and scores. A model stores these roles
        and reads later tables by them.
    """

    settings: PipelineSettings
    cohort: Cohort
    folder: RunFolder
    options: ExecutionOptions
    kind: Kind
    basis: JsonObject = field(default_factory=dict)
    withdrawn: tuple[str, ...] = ()
    table_columns: tuple[str, ...] = ()
    table_roles: JsonObject = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Column]:
        """Return the meaning of every feature column that the run has, by its name."""
        if self.table_columns:
            return columns_of_table(self.table_columns)
        return columns_of(self.settings.features)

    @property
    def failures(self) -> list[Failure]:
        """Return a failure for each patient whose rows in the cohort's tables break a rule."""
        # A problem of a table names no study. The patient's id stands for it.
        return [
            failure_of(problem, patient=problem.patient, study=problem.patient, stage="cohort")
            for problem in self.cohort.problems
        ]

    @property
    def site_of(self) -> dict[str, str]:
        """Return the site by patient id; empty text where the tables name no site."""
        people = self.cohort.participants
        sites = people["site"].fillna("") if "site" in people else [""] * len(people)
        return dict(zip(people["participant_id"].astype(str), map(str, sites), strict=True))

    def sites(self, patients: pd.Series) -> np.ndarray:
        """Return the site of each given patient id, in the same order; empty where unknown."""
        return np.asarray(patients.map(self.site_of).fillna(""), dtype=str)


def load(
    settings: PipelineSettings,
    root: Path,
    out: Path,
    options: ExecutionOptions,
    kind: Kind,
    basis: JsonObject | None = None,
    without: Collection[str] = (),
) -> Loaded:
    """Read a cohort's tables and check the settings.

    Everything that can be checked before the images are measured is checked here, because measuring
    may take hours.

    Parameters
    ----------
    settings : PipelineSettings
        Settings as read from the pipeline. A value of ``auto`` is replaced by one choice for the
        whole cohort.
    root, out : Path
        Cohort folder, and run folder.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.
    kind : {"run", "train", "predict"}
        Purpose of the run folder.
    basis : dict, optional
        What results depend on besides cohort and settings: for ``predict`` the models and options.
    without : collection of str
        Patients who withdrew and are left out.

    Returns
    -------
    Loaded
        The checked tables of the cohort without withdrawn patients, the settings without ``auto``,
        and the run folder with its options.

    Raises
    ------
    CadError
        For costs with which a region would never be referred, for an unknown learner or filter, and
        for a cohort that cannot be read. Except for ``predict``, also when one man has two ids in
        the cohort. For ``train``, also for a learner that cannot be stored.
    """
    # Reading the thresholds raises an error for costs that cannot be used.
    _ = settings.decision.thresholds
    check_filters(settings.features)
    if kind != "predict":
        estimator = make_estimator(settings)
        if kind == "train":
            require_storable(estimator, settings.learner)
    withdrawn = tuple(labels_of(without))
    cohort = leave_out(read_cohort(root), withdrawn)
    # A man with two ids is an error only where a model is trained or validated: he could be in
    # training and test at once. A prediction trains no model.
    errors_of_twins = twins(cohort.studies()) if kind != "predict" else []
    if errors_of_twins:
        raise errors_of_twins[0]
    facts = CohortFacts.of((ref.folder, ref.study_id) for ref in cohort.studies())
    # Each setting "auto" becomes one choice for the whole cohort. So a feature column has the same
    # meaning in all rows.
    settings = resolve_auto(facts, settings)
    return Loaded(
        settings=settings,
        cohort=cohort,
        folder=RunFolder(out),
        options=options,
        kind=kind,
        basis=basis or {},
        withdrawn=withdrawn,
    )
