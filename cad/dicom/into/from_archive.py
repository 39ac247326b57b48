"""Import straight from an archive: query, retrieve, and the usual import of what arrived whole."""

from __future__ import annotations

from pathlib import Path

from cad.cohort import COHORT
from cad.dicom.archive.client import connect, fetch_patient
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.into.importer import ImportSummary, Watch, import_owned, unwatched
from cad.dicom.into.sources import Call, here
from cad.folders import claimed, stage


def import_patient(
    address: str,
    aet: str,
    patient_id: str,
    out: Path,
    rules: Path,
    limits: ArchiveLimits | None = None,
    call: Call = here,
    watch: Watch = unwatched,
) -> ImportSummary:
    """Fetch a patient's studies from an archive and import them.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, or the URL of a DICOMweb service.
    aet : str
        The archive's application entity title.
    patient_id : str
        PatientID in the archive.
    out : Path
        Cohort folder.
    rules : Path
        Import rules.
    limits : ArchiveLimits, optional
        What the archive may cost.
    call, watch : callable
        As for :func:`cad.dicom.into.importer.import_source`.

    Returns
    -------
    ImportSummary
        Studies that arrived in part are failures, and nothing of them is imported.

    Raises
    ------
    CadError
        When the archive refuses, does not answer, or knows no such patient, or another process
        writes into the cohort.
    """
    archive = connect(address, aet, limits)
    with claimed(out, COHORT), stage(out) as scratch:
        folders, failures = fetch_patient(archive, patient_id, scratch)
        whole = scratch / "whole"
        whole.mkdir()
        for folder in folders:
            folder.rename(whole / folder.name)
        summary = import_owned(whole, out, rules, call, watch) if folders else ImportSummary()
    summary.failures += failures
    return summary
