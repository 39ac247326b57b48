"""Load: a cohort's tables, checked, nothing measured yet."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from cad.cohort import Cohort, read_cohort
from cad.cohort.twins import twins
from cad.cohort.without import labels_of
from cad.cohort.without import without as leave_out
from cad.execution.options import ExecutionOptions
from cad.features.filters import check_filters
from cad.features.provenance import CohortFacts, resolve_auto
from cad.model.estimator import make_estimator, require_storable
from cad.run_folder import RunFolder
from cad.run_folder.tables import Failure
from cad.settings import PipelineSettings
from cad.stages.study import failure_of

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

    @property
    def site_of(self) -> dict[str, str]:
        """Return every patient's site; empty where the tables do not say."""
        people = self.cohort.participants
        sites = people["site"].fillna("") if "site" in people else [""] * len(people)
        return dict(zip(people["participant_id"].astype(str), map(str, sites), strict=True))

    def sites(self, patients: pd.Series) -> np.ndarray:
        """Return the site of every row's patient."""
        sites: np.ndarray = patients.map(self.site_of).fillna("").to_numpy(str)
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
        For costs that make referring useless, a misspelt learner or filter, a learner that a
        bundle cannot hold, a cohort that cannot be read, or one to learn from that has one man
        under two ids.
    """
    # Asked for before hours are spent: unusable costs have no thresholds.
    _ = settings.decision.thresholds
    check_filters(settings.features)
    if kind != "predict":
        estimator = make_estimator(settings)
        if kind == "train":
            require_storable(estimator, settings.learner)
    withdrawn = tuple(labels_of(without))
    cohort = leave_out(read_cohort(root), withdrawn)
    # A prediction learns nothing, so that one man under two ids spoils no number.
    same = twins(cohort.studies()) if kind != "predict" else []
    if same:
        raise same[0]
    facts = CohortFacts.of((ref.folder, ref.study_id) for ref in cohort.studies())
    settings = resolve_auto(facts, settings)  # one choice for all: a column means one thing
    return Loaded(settings, cohort, RunFolder(out), options, kind, basis, withdrawn)
