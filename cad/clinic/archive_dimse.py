"""An archive by DICOM networking: C-FIND, C-GET and C-STORE through pynetdicom.

C-MOVE, which needs a listening port that the archive knows, is not used.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataset import Dataset
from pydicom.uid import (
    Comprehensive3DSRStorage,
    ComprehensiveSRStorage,
    EnhancedMRImageStorage,
    LegacyConvertedEnhancedMRImageStorage,
    MRImageStorage,
    ParametricMapStorage,
    RTStructureSetStorage,
    SegmentationStorage,
)
from pynetdicom import AE, build_role, evt
from pynetdicom.association import Association

from cad.clinic.archive import (
    IDENTITY,
    MODALITIES,
    TIMEOUT,
    UID,
    FoundSeries,
    SamePatient,
    check_received,
    file_under,
    not_all_sent,
)
from cad.errors import CadError

# Study Root Query/Retrieve Information Model.
FIND, GET = "1.2.840.10008.5.1.4.1.2.2.1", "1.2.840.10008.5.1.4.1.2.2.3"
CALLING = "CAD"
_FETCHED = [
    MRImageStorage,
    EnhancedMRImageStorage,
    LegacyConvertedEnhancedMRImageStorage,
    ParametricMapStorage,
    SegmentationStorage,
    RTStructureSetStorage,
]
_STORED = [*_FETCHED, ComprehensiveSRStorage, Comprehensive3DSRStorage]
_PENDING, _SUCCESS = (0xFF00, 0xFF01), 0x0000
_WARNINGS = (0xB000, 0xB006, 0xB007)
_OUT_OF_RESOURCES, _DOES_NOT_MATCH, _CANNOT_UNDERSTAND = 0xA700, 0xA900, 0xC000


class DimseArchive:
    """Speak DICOM networking with an archive."""

    def __init__(self, host: str, port: int, aet: str, timeout: float = TIMEOUT) -> None:
        self.host, self.port, self.aet, self.timeout = host, port, aet, timeout

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Return the series of interest of a patient."""
        found = []
        with self._associate([FIND]) as association:
            query = _query("STUDY", PatientID=patient_id, StudyInstanceUID="")
            for study in self._ask(association, query):
                owner = str(study.get("PatientID", patient_id))
                if owner.strip() == patient_id.strip():
                    found += self._series(association, owner, str(study.StudyInstanceUID))
        return found

    def _series(self, association: Association, owner: str, study_uid: str) -> list[FoundSeries]:
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
            found.append(FoundSeries(owner, study_uid, uid, modality, int(count)))
        return found

    def fetch(self, series: FoundSeries, into: Path) -> int:
        """Fetch a series into a folder by C-GET."""
        arrived: set[str] = set()
        refused: list[CadError] = []

        def keep(event: evt.Event) -> int:
            request: Any = event.request
            uid = str(request.AffectedSOPInstanceUID)
            if not UID.fullmatch(uid):
                return _CANNOT_UNDERSTAND
            try:
                check_received(event.dataset, series)
                (into / f"{uid}.dcm").write_bytes(event.encoded_dataset())
            except CadError as error:
                refused.append(error)
                return _DOES_NOT_MATCH
            except OSError:  # a full disk must not look like a stored instance
                return _OUT_OF_RESOURCES
            except Exception:  # a damaged dataset may break the reader anywhere
                return _CANNOT_UNDERSTAND
            arrived.add(uid)
            return _SUCCESS

        query = _query(
            "SERIES", StudyInstanceUID=series.study_uid, SeriesInstanceUID=series.series_uid
        )
        with self._associate([GET], receive=_FETCHED, handler=keep) as association:
            for status, _ in association.send_c_get(query, GET):
                if not refused:  # the archive reports our refusal as its failure
                    self._check(status, "C-GET", allowed=(*_PENDING, _SUCCESS, *_WARNINGS))
        if refused:
            raise refused[0]
        return len(arrived)

    def store(self, paths: Iterable[Path], same_patient: SamePatient | None = None) -> None:
        """Store objects by C-STORE under the archive's own patient of their study."""
        classes = [*_STORED, FIND]
        wanted, sent = list(paths), list[Path]()
        known: dict[str, list[Dataset]] = {}
        try:
            with self._associate(classes) as association:
                for path in wanted:
                    self._send(association, path, known, same_patient)
                    sent.append(path)
        except CadError as error:
            raise not_all_sent(error, wanted, sent) from error

    def _send(
        self,
        association: Association,
        path: Path,
        known: dict[str, list[Dataset]],
        same_patient: SamePatient | None,
    ) -> None:
        dataset = pydicom.dcmread(path)
        uid = str(dataset.StudyInstanceUID)
        if uid not in known:
            query = _query("STUDY", StudyInstanceUID=uid, **dict.fromkeys(IDENTITY, ""))
            known[uid] = self._ask(association, query)
        file_under(dataset, known[uid], same_patient)
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
        """Open and close a plain connection first: only it says why a connection fails."""
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


def _query(level: str, **keys: Any) -> Dataset:
    query = Dataset()
    query.QueryRetrieveLevel = level
    for keyword, value in keys.items():
        setattr(query, keyword, value)
    return query
