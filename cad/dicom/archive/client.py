"""Use an image archive: find the studies of a patient, fetch them completely, store results.

DICOM networking is in :mod:`cad.dicom.archive.dimse`, DICOMweb in :mod:`cad.dicom.archive.web`.
Both run in a separate process (:mod:`cad.dicom.archive.conversation`). The process is ended when it
takes longer than the archive's limits allow.
"""

from pathlib import Path
from urllib.parse import urlsplit

from cad.base.errors import CadError
from cad.dicom.archive.conversation import Conversation
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.archive.tls import calling


def connect(address: str, aet: str, limits: ArchiveLimits | None = None) -> Conversation:
    """Return a client for an archive at an address; nothing is sent to the archive yet.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` for DICOM networking, or the ``http(s)://`` root of a DICOMweb service.
    aet : str
        The archive's application entity title (AE title, its DICOM name); DICOMweb does not use it.
    limits : ArchiveLimits, optional
        Time, memory and data that one request may take, and certificates.

    Raises
    ------
    CadError
        When the address has neither of these two forms, or the certificates cannot be used.
    """
    check_address(address, aet)
    if limits is not None and limits.tls is not None:
        if address.startswith("http://"):
            raise CadError(f"TLS is asked for, and {address} is not https", hint="give its https")
        calling(limits.tls)  # raises an error now, before any request, for unusable certificates
    return Conversation(address, aet, limits or ArchiveLimits())


def check_address(address: str, aet: str) -> None:
    """Refuse an address or an application entity title that no archive can have.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` for DICOM networking, or an ``http(s)://`` URL for DICOMweb.
    aet : str
        The archive's application entity title; DICOMweb needs none.

    Raises
    ------
    CadError
        The message names the address or title that cannot be right.
    """
    if "://" in address:
        url = urlsplit(address)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise CadError(f"not an http or https address: {address}")
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise CadError(
            f"not an archive's address: {address!r}", hint="HOST:PORT, or the URL of DICOMweb"
        )
    if not 0 < len(aet) <= 16 or "\\" in aet:  # a backslash separates values in DICOM
        raise CadError(f"an application entity title has 1 to 16 characters, found {aet!r}")


def fetch_patient(
    archive: Conversation, patient_id: str, into: Path
) -> tuple[list[Path], list[CadError]]:
    """Fetch every study of a patient, each into a folder of its own.

    Parameters
    ----------
    archive : Conversation
        The archive (:func:`connect`).
    patient_id : str
        PatientID, exactly as the archive has it.
    into : Path
        An existing folder, in which the studies' folders are made.

    Returns
    -------
    list of Path, list of CadError
        Folders of the studies that arrived completely, and an error for each other study. Files of
        an incomplete study are not in these folders.

    Raises
    ------
    CadError
        When the archive does not answer the request, or has no such patient.
    """
    # An empty PatientID, or one with wildcards, would bring the studies of many patients.
    if not patient_id.strip() or set(patient_id) & set("*?\\"):
        raise CadError(f"a PatientID without wildcards is needed, found {patient_id!r}")
    series = archive.find(patient_id)
    foreign = [listed for listed in series if listed.patient_id.strip() != patient_id.strip()]
    if foreign:
        raise CadError(
            f"the archive answered with studies of another patient: {foreign[0].patient_id!r}",
            hint="nothing was imported; tell the archive's administrator",
        )
    if not series:
        raise CadError("the archive has no MR study of this patient", hint="check the PatientID")
    complete = []
    failures = []
    study_uids = dict.fromkeys(listed.study_uid for listed in series)  # each once, in their order
    for number, study_uid in enumerate(study_uids, start=1):
        folder = into / f"study-{number}"
        series_of_study = [listed for listed in series if listed.study_uid == study_uid]
        try:
            folder.mkdir()
            archive.fetch(series_of_study, folder)
            complete.append(folder)
        except CadError as error:
            failures.append(error)
    return complete, failures
