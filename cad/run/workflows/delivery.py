"""Write a run's DICOM results and send them to an archive."""

import tempfile
from pathlib import Path

from cad.base.errors import CadError
from cad.dicom.archive.client import connect
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.out.fhir import write_fhir
from cad.dicom.out.parametric_map import write_maps
from cad.dicom.out.results import write_sr_and_seg
from cad.folders.cohort.patients import patient_proof
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.blinding import held_back
from cad.folders.run_folder.results import read_results
from cad.run.audit.entries import audit_delivery, caller


def deliver(
    run: Path,
    cohort: Path | None,
    send: str | None,
    aet: str,
    limits: ArchiveLimits | None = None,
    audit: Path | None = None,
    fhir: bool = False,
    objects: bool = True,
    pdf: bool = False,
    capture: bool = False,
    language: str = "en",
) -> tuple[list[str], list[CadError]]:
    """Write a run's results for each study as DICOM, and send them to an archive if one is given.

    The DICOM objects are a report (SR) and the outlines (SEG). The probability map is added if the
    run made one, and the sheet of paper for the tumour board if it is wanted.

    Parameters
    ----------
    run : Path
        Run folder. The objects are written to ``dicom/`` in it, and FHIR bundles to ``fhir/``.
    cohort : Path or None
        Cohort of the run, to whose source images the objects refer. None raises an error.
    send : str or None
        Archive: HOST:PORT, or a DICOMweb URL; None sends nothing.
    aet : str
        The archive's AE title.
    limits : ArchiveLimits, optional
        Limits of time and amount for the transfer.
    audit : Path, optional
        Audit trail (a file that records what was sent). It gets a line for every study that was
        sent, even if the transfer failed.
    fhir : bool
        Whether to also write a FHIR bundle of every report; bundles are not sent.
    objects : bool
        Whether to keep the DICOM objects in the run folder. If not, only reports are written, to a
        temporary folder, from which the FHIR bundles are made.
    pdf, capture : bool
        Whether to also write the man's sheet, as Encapsulated PDF and as Secondary Capture.
    language : str
        Language of the sheet: ``en``, ``de`` or ``fr``.

    Returns
    -------
    list of str
        Lines for the user on what was written, what was sent and what failed.
    list of CadError
        One error for each object that could not be written.

    Raises
    ------
    CadError
        Without a cohort, or when the archive did not store everything.
    """
    if cohort is None:
        raise CadError("DICOM results need the cohort's source headers", hint="give --cohort")
    patients_held_back = sorted(held_back(read_results(run)))
    with tempfile.TemporaryDirectory(prefix="cad-report-") as scratch:
        # FHIR bundles are made from the DICOM reports. If no DICOM objects are wanted, the reports
        # are written to a temporary folder only for this purpose.
        folder = RunFolder(run).objects if objects else Path(scratch)
        files, failures = write_sr_and_seg(run, cohort, folder)
        lines = []
        if objects:
            maps, unmapped = write_maps(run, cohort, folder)
            files = files + maps
            failures = failures + unmapped
            if pdf or capture:
                # This module is imported only where sheets are wanted, because it loads matplotlib,
                # which takes time.
                from cad.run.workflows.sheets import write_sheets

                sheets, unwritten = write_sheets(
                    run, cohort, folder, pdf=pdf, capture=capture, language=language
                )
                files = files + sheets
                failures = failures + unwritten
            lines = [f"wrote {len(files)} DICOM objects to {folder}"]
        if fhir:
            reports = [path for path in files if path.name.endswith("_SR.dcm")]
            bundles = write_fhir(run, reports)
            lines.append(f"wrote {len(bundles)} FHIR bundles to {RunFolder(run).bundles}")
    if patients_held_back:
        names = ", ".join(patients_held_back)
        lines.append(f"held back until a reader has scored them: {names}")
    if send is not None and files:
        try:
            remarks = connect(send, aet, limits).store(files, patient_proof(cohort))
        except CadError:
            # The archive may have stored some of the objects before the failure. Therefore the
            # audit trail names all of them.
            if audit is not None:
                audit_delivery(audit, run, files, caller(), send, outcome="not all stored")
            raise
        lines += [f"stored them in {send}, which lists them", *remarks]
        if audit is not None:
            last_hash = audit_delivery(audit, run, files, caller(), send)
            lines.append(f"audit trail {audit}: last hash {last_hash}")
    lines += [f"failed: {failure}" for failure in failures]
    return lines, failures
