"""An image archive: find a patient's studies, fetch them whole, store results.

DICOM networking (C-FIND, C-GET, C-STORE) through pynetdicom, or DICOMweb (QIDO, WADO, STOW) through
dicomweb-client. A study counts as fetched only when every instance that the archive announced has
arrived. C-MOVE, which needs a listening port that the archive knows, is not used.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pydicom
from pydicom.dataset import Dataset
from pydicom.uid import (
    Comprehensive3DSRStorage,
    ComprehensiveSRStorage,
    MRImageStorage,
    RTStructureSetStorage,
    SegmentationStorage,
)
from pynetdicom import AE, build_role, evt
from pynetdicom.association import Association

from cad.errors import CadError

# Study Root Query/Retrieve Information Model.
FIND, GET = "1.2.840.10008.5.1.4.1.2.2.1", "1.2.840.10008.5.1.4.1.2.2.3"
MODALITIES = ("MR", "SEG", "RTSTRUCT")
CALLING = "CAD"
TIMEOUT = 60.0
_FETCHED = [MRImageStorage, SegmentationStorage, RTStructureSetStorage]
_STORED = [*_FETCHED, ComprehensiveSRStorage, Comprehensive3DSRStorage]
_UID = re.compile(r"[0-9.]{1,64}")
_PENDING, _SUCCESS = (0xFF00, 0xFF01), 0x0000
_WARNINGS = (0xB000, 0xB006, 0xB007)
# What results take over from the archive's own record of the study, so that they are filed there.
_IDENTITY = (
    "PatientID",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "StudyID",
    "AccessionNumber",
)


@dataclass(frozen=True)
class FoundSeries:
    """A series in an archive and the number of its instances."""

    study_uid: str
    series_uid: str
    modality: str
    instances: int


class Archive(Protocol):
    """What both protocols can do."""

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Series of interest (MR, SEG, RTSTRUCT) of a patient."""
        ...

    def fetch(self, series: FoundSeries, into: Path) -> int:
        """Write the series' instances as files; the number that arrived."""
        ...

    def store(self, paths: Iterable[Path]) -> None:
        """Store objects, filed under the patient to whom the archive assigns their study."""
        ...


def connect(address: str, aet: str, timeout: float = TIMEOUT) -> Archive:
    """An archive by its address.

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
        return WebArchive(address, timeout)
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise CadError(
            f"not an archive's address: {address!r}", hint="HOST:PORT, or the URL of DICOMweb"
        )
    if not 0 < len(aet) <= 16 or "\\" in aet:
        raise CadError(f"an application entity title has 1 to 16 characters, found {aet!r}")
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


class DimseArchive:
    """An archive that speaks DICOM networking."""

    def __init__(self, host: str, port: int, aet: str, timeout: float = TIMEOUT) -> None:
        self.host, self.port, self.aet, self.timeout = host, port, aet, timeout

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Series of interest of a patient."""
        found = []
        with self._associate([FIND]) as association:
            query = _query("STUDY", PatientID=patient_id, StudyInstanceUID="")
            for study in self._ask(association, query):
                if str(study.get("PatientID", patient_id)).strip() == patient_id.strip():
                    found += self._series(association, str(study.StudyInstanceUID))
        return found

    def _series(self, association: Association, study_uid: str) -> list[FoundSeries]:
        query = _query(
            "SERIES",
            StudyInstanceUID=study_uid,
            SeriesInstanceUID="",
            Modality="",
            NumberOfSeriesRelatedInstances=None,
        )
        found = []
        for series in self._ask(association, query):
            modality = str(series.get("Modality", ""))
            if modality not in MODALITIES:
                continue
            uid = str(series.SeriesInstanceUID)
            count = series.get("NumberOfSeriesRelatedInstances")
            if count is None:  # an optional answer: count the instances themselves
                query = _query(
                    "IMAGE", StudyInstanceUID=study_uid, SeriesInstanceUID=uid, SOPInstanceUID=""
                )
                count = len(self._ask(association, query))
            found.append(FoundSeries(study_uid, uid, modality, int(count)))
        return found

    def fetch(self, series: FoundSeries, into: Path) -> int:
        """C-GET a series into a folder."""
        arrived: set[str] = set()

        def keep(event: evt.Event) -> int:
            request: Any = event.request
            uid = str(request.AffectedSOPInstanceUID)
            if not _UID.fullmatch(uid):
                return 0xC000
            try:
                (into / f"{uid}.dcm").write_bytes(event.encoded_dataset())
            except OSError:  # a full disk must not look like a stored instance
                return 0xA700
            arrived.add(uid)
            return _SUCCESS

        query = _query(
            "SERIES", StudyInstanceUID=series.study_uid, SeriesInstanceUID=series.series_uid
        )
        with self._associate([GET], receive=_FETCHED, handler=keep) as association:
            for status, _ in association.send_c_get(query, GET):
                self._check(status, "C-GET", allowed=(*_PENDING, _SUCCESS, *_WARNINGS))
        return len(arrived)

    def store(self, paths: Iterable[Path]) -> None:
        """C-STORE objects under the archive's own patient of their study."""
        classes = [*_STORED, FIND]
        known: dict[str, list[Dataset]] = {}
        with self._associate(classes) as association:
            for path in paths:
                dataset = pydicom.dcmread(path)
                uid = str(dataset.StudyInstanceUID)
                if uid not in known:
                    query = _query("STUDY", StudyInstanceUID=uid, **dict.fromkeys(_IDENTITY, ""))
                    known[uid] = self._ask(association, query)
                _file_under(dataset, known[uid])
                try:
                    status = association.send_c_store(dataset)
                except (ValueError, RuntimeError) as error:
                    raise CadError(f"the archive does not take it: {error}", file=path) from error
                self._check(status, "C-STORE", allowed=(_SUCCESS, *_WARNINGS), path=path)

    def _ask(self, association: Association, query: Dataset) -> list[Dataset]:
        answers = []
        for status, answer in association.send_c_find(query, FIND):
            self._check(status, "C-FIND", allowed=(*_PENDING, _SUCCESS))
            if answer is not None and status.Status in _PENDING:
                answers.append(answer)
        return answers

    def _check(
        self, status: Dataset, what: str, allowed: tuple[int, ...], path: object = ""
    ) -> None:
        if not status or "Status" not in status:
            raise CadError(
                f"{self._name}: no answer to {what} within {self.timeout:g} s, or the connection "
                "was lost",
                file=path,
                hint="try again, or allow more time",
            )
        if status.Status not in allowed:
            raise CadError(
                f"{self._name}: {what} failed with status {status.Status:#06x}", file=path
            )

    @property
    def _name(self) -> str:
        return f"archive {self.aet} at {self.host}:{self.port}"

    @contextmanager
    def _associate(
        self,
        classes: list[Any],
        receive: list[Any] | None = None,
        handler: Any = None,
    ) -> Iterator[Association]:
        self._reach()
        entity = AE(ae_title=CALLING)
        entity.acse_timeout = entity.dimse_timeout = self.timeout
        entity.network_timeout = entity.connection_timeout = self.timeout
        for name in classes:
            entity.add_requested_context(name)
        for name in receive or []:
            entity.add_requested_context(name)
        association = entity.associate(
            self.host,
            self.port,
            ae_title=self.aet,
            ext_neg=[build_role(name, scp_role=True) for name in receive or []],
            evt_handlers=[(evt.EVT_C_STORE, handler)] if handler else [],
        )
        if not association.is_established:
            raise self._refusal(association)
        try:
            # Small answers otherwise wait for acknowledgements: 12 to 30 times slower.
            transport = association.dul.socket
            if transport is not None and transport.socket is not None:
                transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield association
        finally:
            if association.is_established:
                association.release()
            else:
                association.abort()

    def _reach(self) -> None:
        """Why a connection fails is told by the plain socket only."""
        try:
            socket.create_connection((self.host, self.port), self.timeout).close()
        except OSError as error:
            raise CadError(
                f"{self._name} cannot be reached: {error.strerror or error}",
                hint="check host, port and firewall",
            ) from error

    def _refusal(self, association: Association) -> CadError:
        if association.is_rejected:
            return CadError(
                f"{self._name} refuses the association",
                hint=f"ask its administrator to admit {CALLING}, and check the title {self.aet!r}",
            )
        return CadError(
            f"{self._name} does not answer within {self.timeout:g} s, or accepts none of what is "
            "asked for",
            hint="check host, port and firewall",
        )


class WebArchive:
    """An archive that speaks DICOMweb."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        try:
            from dicomweb_client.api import DICOMwebClient
            from requests import RequestException, Session
            from requests.adapters import HTTPAdapter
        except ImportError as error:
            raise CadError(
                f"DICOMweb needs a package that is not installed: {error.name}",
                hint="install the extra: cad[dicomweb]",
            ) from error

        class Patient(HTTPAdapter):
            """Every request has a time limit."""

            def send(self, *args: Any, **kwargs: Any) -> Any:
                kwargs["timeout"] = timeout
                return super().send(*args, **kwargs)

        session = Session()
        session.mount("http://", Patient())
        session.mount("https://", Patient())
        self.url = url
        self._client = DICOMwebClient(url=url, session=session)
        self._client.set_http_retry_params(retry=False)
        self._errors = (RequestException, ValueError)

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Series of interest of a patient."""
        with self._speaking():
            found = []
            studies = self._client.search_for_studies(search_filters={"PatientID": patient_id})
            for study in (Dataset.from_json(answer) for answer in studies):
                if str(study.get("PatientID", "")).strip() == patient_id.strip():
                    found += self._series(str(study.StudyInstanceUID))
            return found

    def _series(self, study_uid: str) -> list[FoundSeries]:
        answers = self._client.search_for_series(
            study_uid, fields=["NumberOfSeriesRelatedInstances", "Modality"]
        )
        found = []
        for series in (Dataset.from_json(answer) for answer in answers):
            modality = str(series.get("Modality", ""))
            if modality in MODALITIES:
                uid = str(series.SeriesInstanceUID)
                count = series.get("NumberOfSeriesRelatedInstances")
                if count is None:
                    count = len(self._client.search_for_instances(study_uid, uid))
                found.append(FoundSeries(study_uid, uid, modality, int(count)))
        return found

    def fetch(self, series: FoundSeries, into: Path) -> int:
        """WADO-RS a series into a folder."""
        arrived = set()
        with self._speaking():
            for dataset in self._client.retrieve_series(series.study_uid, series.series_uid):
                uid = str(dataset.SOPInstanceUID)
                if _UID.fullmatch(uid):
                    dataset.save_as(into / f"{uid}.dcm", enforce_file_format=True)
                    arrived.add(uid)
        return len(arrived)

    def store(self, paths: Iterable[Path]) -> None:
        """STOW-RS objects under the archive's own patient of their study."""
        known: dict[str, list[Dataset]] = {}
        for path in paths:
            dataset = pydicom.dcmread(path)
            uid = str(dataset.StudyInstanceUID)
            with self._speaking():
                if uid not in known:
                    answers = self._client.search_for_studies(
                        search_filters={"StudyInstanceUID": uid}, fields=list(_IDENTITY)
                    )
                    known[uid] = [Dataset.from_json(answer) for answer in answers]
                _file_under(dataset, known[uid])
                answer = self._client.store_instances([dataset])
            if answer.get("FailedSOPSequence"):
                raise CadError(f"{self.url}: the archive did not store it", file=path)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            response = getattr(error, "response", None)
            what = f"HTTP {response.status_code}" if response is not None else type(error).__name__
            raise CadError(
                f"DICOMweb archive {self.url}: {what}", hint="check address, rights and network"
            ) from error


def _query(level: str, **keys: Any) -> Dataset:
    query = Dataset()
    query.QueryRetrieveLevel = level
    for keyword, value in keys.items():
        setattr(query, keyword, value)
    return query


def _file_under(dataset: Dataset, answers: list[Dataset]) -> None:
    """Take over whose study this is from the archive that knows it; only the sent copy changes."""
    if len(answers) != 1:
        return
    for keyword in _IDENTITY:
        if answers[0].get(keyword) not in (None, ""):
            setattr(dataset, keyword, answers[0].get(keyword))
    for keyword in ("PatientIdentityRemoved", "DeidentificationMethod"):
        if keyword in dataset:
            delattr(dataset, keyword)
