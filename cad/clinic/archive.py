"""An image archive: find a patient's studies, fetch them whole, store results.

DICOM networking is in :mod:`cad.clinic.archive_dimse`, DICOMweb in :mod:`cad.clinic.archive_web`. A
study counts as fetched only when every instance that the archive announced has arrived and says of
itself that it is of the patient, the study and the series that were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pydicom.dataset import Dataset

from cad.errors import CadError

MODALITIES = ("MR", "SEG", "RTSTRUCT")
TIMEOUT = 60.0
UID = re.compile(r"[0-9.]{1,64}")
# What results take over from the archive's own record of the study, so that they are filed there.
IDENTITY = (
    "PatientID",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "StudyID",
    "AccessionNumber",
)
SamePatient = Callable[[str, str], bool]
"""Tell whether the PatientID of an object and the archive's PatientID are one patient's."""


@dataclass(frozen=True)
class FoundSeries:
    """Name a series in an archive: whose it is, its kind and the number of its instances."""

    patient_id: str
    study_uid: str
    series_uid: str
    modality: str
    instances: int


class Archive(Protocol):
    """State what both protocols can do."""

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Return the series of interest (MR, SEG, RTSTRUCT) of a patient."""
        ...

    def fetch(self, series: FoundSeries, into: Path) -> int:
        """Write the series' instances as files; return the number that arrived."""
        ...

    def store(self, paths: Iterable[Path], same_patient: SamePatient | None = None) -> None:
        """Store objects, filed under the patient to whom the archive assigns their study."""
        ...


def connect(address: str, aet: str, timeout: float = TIMEOUT) -> Archive:
    """Return an archive by its address.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` for DICOM networking, or the ``http(s)://`` root of a DICOMweb service.
    aet : str
        The archive's application entity title; DICOMweb does not use it.
    timeout : float
        Seconds to wait for a connection and for every answer.

    Raises
    ------
    CadError
        When the address is neither.
    """
    if "://" in address:
        if urlsplit(address).scheme not in ("http", "https"):
            raise CadError(f"not an http or https address: {address}")
        from cad.clinic.archive_web import WebArchive

        return WebArchive(address, timeout)
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise CadError(
            f"not an archive's address: {address!r}", hint="HOST:PORT, or the URL of DICOMweb"
        )
    if not 0 < len(aet) <= 16 or "\\" in aet:
        raise CadError(f"an application entity title has 1 to 16 characters, found {aet!r}")
    from cad.clinic.archive_dimse import DimseArchive

    return DimseArchive(host, int(port), aet, timeout)


def fetch_patient(
    archive: Archive, patient_id: str, into: Path
) -> tuple[list[Path], list[CadError]]:
    """Fetch every study of a patient, one folder each.

    Parameters
    ----------
    archive : Archive
        Where from.
    patient_id : str
        PatientID, exactly.
    into : Path
        An existing folder.

    Returns
    -------
    list of Path, list of CadError
        Folders of complete studies; why the others are not. Files of an incomplete study stay out
        of the folders.

    Raises
    ------
    CadError
        When the archive cannot be asked, or knows no such patient.
    """
    if not patient_id.strip() or set(patient_id) & set("*?\\"):
        raise CadError(f"a PatientID without wildcards is needed, found {patient_id!r}")
    series = archive.find(patient_id)
    other = [s for s in series if s.patient_id.strip() != patient_id.strip()]
    if other:
        raise CadError(
            f"the archive answered with studies of another patient: {other[0].patient_id!r}",
            hint="nothing was imported; tell the archive's administrator",
        )
    if not series:
        raise CadError("the archive has no MR study of this patient", hint="check the PatientID")
    complete, failures = [], []
    for number, uid in enumerate(dict.fromkeys(s.study_uid for s in series), start=1):
        folder = into / f"study-{number}"
        try:
            for index, one in enumerate((s for s in series if s.study_uid == uid), start=1):
                target = folder / f"{index:04d}"
                target.mkdir(parents=True)
                arrived = archive.fetch(one, target)
                if arrived != one.instances:
                    raise CadError(
                        f"the archive returned part of a study: {arrived} of {one.instances} "
                        f"instances of series {one.series_uid}",
                        hint="try again; nothing of the study was imported",
                    )
            complete.append(folder)
        except CadError as error:
            failures.append(error)
    return complete, failures


def check_received(dataset: Dataset, series: FoundSeries) -> None:
    """Refuse an instance that is not of the patient, study and series that were asked for.

    Raises
    ------
    CadError
        Naming what was asked for and what came.
    """
    for keyword, wanted in (
        ("PatientID", series.patient_id),
        ("StudyInstanceUID", series.study_uid),
        ("SeriesInstanceUID", series.series_uid),
    ):
        found = str(dataset.get(keyword, "") or "")
        if found.strip() != wanted.strip():
            raise CadError(
                f"the archive returned an instance of another {keyword}: asked for {wanted!r}, "
                f"received {found!r}",
                hint="nothing of the study was imported; tell the archive's administrator",
            )


def file_under(
    dataset: Dataset, answers: list[Dataset], same_patient: SamePatient | None = None
) -> None:
    """Take over whose study this is from the archive that knows it; only the sent copy changes.

    Parameters
    ----------
    dataset : Dataset
        The object to send; it keeps its own identity where the archive does not know the study.
    answers : list of Dataset
        What the archive says of the study.
    same_patient : callable, optional
        Proof that both are one patient's. Without it an object that still carries its source's
        PatientID must carry the archive's.

    Raises
    ------
    CadError
        When the archive has the study twice, or as another patient's.
    """
    uid = str(dataset.StudyInstanceUID)
    answers = [a for a in answers if str(a.get("StudyInstanceUID", uid)) == uid]
    if not answers:
        return
    if len(answers) > 1:
        raise CadError(
            f"the archive has the study {uid} {len(answers)} times", hint="nothing was sent"
        )
    own, theirs = str(dataset.get("PatientID", "")), str(answers[0].get("PatientID", ""))
    if same_patient is not None:
        same = same_patient(own, theirs)
    else:
        same = dataset.get("PatientIdentityRemoved") == "YES" or own.strip() == theirs.strip()
    if not same:
        raise CadError(
            f"the archive assigns the study {uid} to a patient who is not {own!r}",
            hint="nothing was sent; find out whose study this is",
        )
    for keyword in IDENTITY:
        if answers[0].get(keyword) not in (None, ""):
            setattr(dataset, keyword, answers[0].get(keyword))
    for keyword in ("PatientIdentityRemoved", "DeidentificationMethod"):
        if keyword in dataset:
            delattr(dataset, keyword)


def not_all_sent(error: CadError, paths: list[Path], sent: list[Path]) -> CadError:
    """Return an error that also says which objects are in the archive and which are not."""
    rest = [path.name for path in paths if path not in sent]
    done = ", ".join(path.name for path in sent) or "none"
    return CadError(
        f"{error.problem}; stored: {done}; not stored: {', '.join(rest)}",
        hint=error.hint or "send them again: what is stored already is stored once",
        file=error.file,
    )
