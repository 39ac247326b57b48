"""Leave patients out of a cohort; its files do not change."""

import hashlib
from collections.abc import Collection
from dataclasses import replace

import pandas as pd

from cad.folders.cohort import Cohort


def labels_of(patients: Collection[str]) -> list[str]:
    """Return the labels ``sub-XXX`` of patients, sorted and each once.

    Parameters
    ----------
    patients : collection of str
        ``sub-XXX`` or ``XXX``.

    Returns
    -------
    list of str
        ``sub-XXX``.
    """
    return sorted({f"sub-{patient.removeprefix('sub-')}" for patient in patients})


def strangers(cohort: Cohort, patients: Collection[str]) -> list[str]:
    """Return the patients of a list who are not in the cohort, to detect a mistyped id.

    Parameters
    ----------
    cohort : Cohort
        As :func:`cad.folders.cohort.read_cohort` returns it.
    patients : collection of str
        ``sub-XXX`` or ``XXX``.

    Returns
    -------
    list of str
        ``sub-XXX``, sorted.
    """
    participants = set(cohort.participants["participant_id"])
    return [patient for patient in labels_of(patients) if patient not in participants]


def without(cohort: Cohort, patients: Collection[str]) -> Cohort:
    """Return a cohort without some patients, as if its tables had never held them.

    Parameters
    ----------
    cohort : Cohort
        The cohort; neither it nor its files change.
    patients : collection of str
        Ids of the patients, as :func:`labels_of` returns them; an id that is not in the cohort is
        ignored.
    """
    if not patients:  # nobody is left out, and the digest must stay that of the tables
        return cohort

    def others_of(table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of all other patients, with a new index from 0."""
        return table[~table["participant_id"].isin(patients)].reset_index(drop=True)

    # The cohort's digest (hash of its tables) changes, too. Otherwise a resumed run would keep
    # results that were computed with the patients who are left out.
    content = "\n".join([cohort.digest, *sorted(patients)])
    return replace(
        cohort,
        participants=others_of(cohort.participants),
        rois=others_of(cohort.rois),
        scores=others_of(cohort.scores),
        sessions=others_of(cohort.sessions),
        problems=[problem for problem in cohort.problems if problem.patient not in patients],
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )
