"""Import straight from an archive: query, retrieve, and the usual import of what arrived whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cad.clinic.archive import TIMEOUT, connect, fetch_patient
from cad.clinic.importer import ImportSummary, import_source


def import_patient(
    address: str, aet: str, patient_id: str, out: Path, rules: Path, timeout: float = TIMEOUT
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
    timeout : float
        Seconds to wait for every answer.

    Returns
    -------
    ImportSummary
        Studies that arrived in part are failures, and nothing of them is imported.

    Raises
    ------
    CadError
        When the archive refuses, does not answer, or knows no such patient.
    """
    archive = connect(address, aet, timeout)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".fetch-") as scratch:
        folders, failures = fetch_patient(archive, patient_id, Path(scratch))
        whole = Path(scratch) / "whole"
        whole.mkdir()
        for folder in folders:
            folder.rename(whole / folder.name)
        summary = import_source(whole, out, rules) if folders else ImportSummary()
    summary.failures += failures
    return summary
