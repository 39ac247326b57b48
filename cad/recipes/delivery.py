"""Write a run's DICOM results and send them to an archive."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cad.cohort.patients import patient_proof
from cad.dicom.archive.client import connect
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.out.fhir import write_fhir
from cad.dicom.out.parametric_map import write_maps
from cad.dicom.out.results import DicomOutput, write_sr_and_seg
from cad.errors import CadError
from cad.records.audited import audit_delivery, caller


@dataclass(frozen=True)
class Delivery:
    """Hold what was written and sent, line by line, and what could not be written."""

    lines: list[str] = field(default_factory=list)
    failures: list[CadError] = field(default_factory=list)


def deliver(
    run: Path,
    cohort: Path | None,
    send: str | None,
    aet: str,
    limits: ArchiveLimits | None = None,
    audit: Path | None = None,
    fhir: bool = False,
    objects: bool = True,
) -> Delivery:
    """Write SR, SEG and map of every study of a run and, where asked, store them in an archive.

    Parameters
    ----------
    run : Path
        Run folder; the objects go to ``dicom/`` in it.
    cohort : Path or None
        Cohort of the run: the objects refer to its source images.
    send : str or None
        Archive: HOST:PORT, or a DICOMweb URL.
    aet : str
        The archive's AE title.
    limits : ArchiveLimits, optional
        What the archive may cost.
    audit : Path, optional
        Audit trail that gets a line for every study that was sent, also when that failed.
    fhir : bool
        Also write a FHIR bundle of every report; none is sent.
    objects : bool
        Whether the DICOM objects are written; without them bundles alone are.

    Raises
    ------
    CadError
        Without a cohort, or when the archive did not store everything.
    """
    if cohort is None:
        raise CadError("DICOM results need the cohort's source headers", hint="give --cohort")
    with tempfile.TemporaryDirectory(prefix="cad-report-") as scratch:
        folder = run / "dicom" if objects else Path(scratch)
        made = write_sr_and_seg(run, cohort, folder)
        lines = []
        if objects:
            maps = write_maps(run, cohort, folder)
            made = DicomOutput(made.files + maps.files, made.failures + maps.failures)
            lines = [f"wrote {len(made.files)} DICOM objects to {folder}"]
        if fhir:
            reports = [path for path in made.files if path.name.endswith("_SR.dcm")]
            lines.append(f"wrote {len(write_fhir(run, reports))} FHIR bundles to {run / 'fhir'}")
    if send is not None and made.files:
        try:
            remarks = connect(send, aet, limits).store(made.files, patient_proof(cohort))
        except CadError:
            if audit is not None:
                audit_delivery(audit, run, made.files, caller(), send, "not all stored")
            raise
        lines += [f"stored them in {send}, which lists them", *remarks]
        if audit is not None:
            last = audit_delivery(audit, run, made.files, caller(), send)
            lines.append(f"audit trail {audit}: last hash {last}")
    return Delivery([*lines, *(f"failed: {failure}" for failure in made.failures)], made.failures)
