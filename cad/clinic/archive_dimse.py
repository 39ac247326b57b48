"""An archive by DICOM networking: C-FIND, C-GET and C-STORE through pynetdicom.

C-MOVE, which needs a listening port that the archive knows, is not used.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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
    ArchiveLimits,
    FoundSeries,
    SamePatient,
    Step,
    check_received,
    fetch_whole,
    file_under,
    keep_instance,
    prove_stored,
    understood,
)
from cad.clinic.supersede import (
    ASKED,
    Earlier,
    earlier_results,
    is_report,
    named_predecessors,
    sent_together,
    supersede,
)
from cad.errors import CadError

# Study Root Query/Retrieve Information Model.
FIND, GET = "1.2.840.10008.5.1.4.1.2.2.1", "1.2.840.10008.5.1.4.1.2.2.3"
CALLING = "CAD"
FETCHED = [
    MRImageStorage,
    EnhancedMRImageStorage,
    LegacyConvertedEnhancedMRImageStorage,
    ParametricMapStorage,
    SegmentationStorage,
    RTStructureSetStorage,
]
STORED = [*FETCHED, ComprehensiveSRStorage, Comprehensive3DSRStorage]
_PENDING, _SUCCESS = (0xFF00, 0xFF01), 0x0000
_WARNINGS = (0xB000, 0xB006, 0xB007)
_TRANSIENT = 0x02
_BUSY_SECONDS = (1.0, 2.0, 4.0)  # waits between tries where an archive has no association free
_OUT_OF_RESOURCES, _DOES_NOT_MATCH, _CANNOT_UNDERSTAND = 0xA700, 0xA900, 0xC000


class DimseArchive:
    """Speak DICOM networking with an archive."""

    def __init__(self, host: str, port: int, aet: str, limits: ArchiveLimits) -> None:
        self.host, self.port, self.aet, self.limits = host, port, aet, limits

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
            if str(series.get("StudyInstanceUID", study_uid)) != study_uid:
                raise CadError(
                    f"{self._name}: asked for series of {study_uid}, got another study's"
                )
            modality = str(series.get("Modality", ""))
            if modality not in MODALITIES:
                continue
            uid = str(series.SeriesInstanceUID)
            count = series.get("NumberOfSeriesRelatedInstances")
            if count is None:  # an optional answer: count the instances themselves
                count = len(self._instances(association, study_uid, uid))
            found.append(FoundSeries(owner, study_uid, uid, modality, int(count)))
        return found

    def _instances(
        self, association: Association, study: str, series: str, instance: str = ""
    ) -> set[str]:
        query = _query(
            "IMAGE", StudyInstanceUID=study, SeriesInstanceUID=series, SOPInstanceUID=instance
        )
        return {str(one.SOPInstanceUID) for one in self._ask(association, query)}

    def fetch(self, series: list[FoundSeries], into: Path) -> None:
        """Fetch a study's series into a folder by C-GET."""
        fetch_whole(self._fetch, series, into)

    def _fetch(self, series: FoundSeries, into: Path) -> int:
        arrived: set[str] = set()
        refused: list[CadError] = []

        def keep(event: evt.Event) -> int:
            request: Any = event.request
            uid = str(request.AffectedSOPInstanceUID)
            try:
                check_received(event.dataset, series)
                if str(event.dataset.get("SOPInstanceUID", "")) != uid:
                    raise CadError(f"the archive returned an instance that is not {uid}")
                keep_instance(event.encoded_dataset(), uid, into)
            except CadError as error:
                refused.append(error)
                return _DOES_NOT_MATCH
            except OSError as error:  # a full disk must not look like a stored instance
                refused.append(CadError(f"could not be written: {error.strerror}", file=into))
                return _OUT_OF_RESOURCES
            except Exception as error:  # a damaged dataset may break the reader anywhere
                what = f"damaged ({type(error).__name__})"
                refused.append(CadError(f"the archive returned an instance that is {what}"))
                return _CANNOT_UNDERSTAND
            arrived.add(uid)
            return _SUCCESS

        query = _query(
            "SERIES", StudyInstanceUID=series.study_uid, SeriesInstanceUID=series.series_uid
        )
        with self._associate([GET], receive=FETCHED, handler=keep) as association:
            for status, _ in association.send_c_get(query, GET):
                if refused:  # the archive reports our refusal as its failure
                    continue
                self._check(status, "C-GET", allowed=(*_PENDING, _SUCCESS, *_WARNINGS))
                failed = status.get("NumberOfFailedSuboperations") or 0
                if failed:
                    raise CadError(f"{self._name}: {failed} instances could not be sent")
        if refused:
            raise refused[0]
        return len(arrived)

    def store(
        self, paths: Iterable[Path], same_patient: SamePatient | None = None
    ) -> Iterator[Step]:
        """Store objects by C-STORE under the archive's own patient of their study."""
        known: dict[str, list[Dataset]] = {}
        paths = list(paths)
        together = sent_together(paths)
        with self._associate([*STORED, FIND]) as association:
            for path in paths:
                dataset = pydicom.dcmread(path)
                uid = str(dataset.StudyInstanceUID)
                if uid not in known:
                    query = _query("STUDY", StudyInstanceUID=uid, **dict.fromkeys(IDENTITY, ""))
                    known[uid] = self._ask(association, query)
                file_under(dataset, known[uid], same_patient)
                before = self._earlier(association, dataset) if is_report(dataset) else []
                named = named_predecessors(supersede(dataset, before, together))
                yield Step(path)
                remark = self._send(association, dataset, path)
                yield Step(path, True, "; ".join(filter(None, (remark, named))))

    def _earlier(self, association: Association, dataset: Dataset) -> list[Earlier]:
        """Return the results of ours that the archive has of an object's study."""
        study = str(dataset.StudyInstanceUID)
        query = _query("SERIES", StudyInstanceUID=study, **dict.fromkeys(ASKED, ""))
        query.SeriesNumber = None
        answers = self._ask(association, query)
        return earlier_results(answers, lambda uid: self._instances(association, study, uid))

    def missing(self, paths: list[Path]) -> list[Path]:
        """Return the objects that a C-FIND does not list."""
        with self._associate([FIND]) as association:
            return [path for path in paths if not self._lists(association, path)]

    def _lists(self, association: Association, path: Path) -> bool:
        found = pydicom.dcmread(path, stop_before_pixels=True)
        study, series, uid = found.StudyInstanceUID, found.SeriesInstanceUID, found.SOPInstanceUID
        return str(uid) in self._instances(association, str(study), str(series), str(uid))

    def _send(self, association: Association, dataset: Dataset, path: Path) -> str:
        """Send one object and ask for it; return the archive's remark on it."""
        try:
            status = association.send_c_store(dataset)
        except (ValueError, RuntimeError) as error:
            raise CadError(f"the archive does not take it: {error}", file=path) from error
        self._check(status, "C-STORE", allowed=(_SUCCESS, *_WARNINGS), path=path)
        uid = str(dataset.SOPInstanceUID)
        study, series = str(dataset.StudyInstanceUID), str(dataset.SeriesInstanceUID)
        try:
            prove_stored(
                lambda: self._instances(association, study, series, uid),
                uid,
                self._name,
                self.limits.proof_seconds,
            )
        except CadError as error:
            raise error.at(file=path) from None
        code = int(status.Status)
        return "" if code == _SUCCESS else f"stored with warning {code:#06x}"

    def _ask(self, association: Association, query: Dataset) -> list[Dataset]:
        answers = []
        for status, answer in association.send_c_find(query, FIND):
            self._check(status, "C-FIND", allowed=(*_PENDING, _SUCCESS))
            if status.Status not in _PENDING:
                break
            if answer is None:
                raise CadError(f"{self._name}: an answer to C-FIND is damaged")
            answers.append(answer)
            if len(answers) > self.limits.answers:
                raise CadError(
                    f"{self._name}: more than {self.limits.answers} answers to one query",
                    hint="raise `answers` in the archive's limits if that is right",
                )
        return answers

    def _check(
        self, status: Dataset, what: str, allowed: tuple[int, ...], path: object = ""
    ) -> None:
        if not status or "Status" not in status:
            raise CadError(
                f"{self._name}: no answer to {what} within {self.limits.answer_seconds:g} s, or "
                "the connection was lost",
                file=path,
                hint="try again, or raise `answer_seconds` in the archive's limits",
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
        entity = AE(ae_title=CALLING)
        entity.acse_timeout = entity.dimse_timeout = self.limits.answer_seconds
        entity.network_timeout = entity.connection_timeout = self.limits.answer_seconds
        for name in (*classes, *(receive or [])):
            entity.add_requested_context(name)
        received = _Received(self.limits)
        handlers: list[Any] = [(evt.EVT_CONN_OPEN, received.opened)]
        handlers += [(evt.EVT_DATA_RECV, received.came)]
        handlers += [(evt.EVT_C_STORE, handler)] if handler else []
        roles: list[Any] = [build_role(name, scp_role=True) for name in receive or []]
        for wait in (*_BUSY_SECONDS, None):
            association = entity.associate(
                self.host, self.port, ae_title=self.aet, ext_neg=roles, evt_handlers=handlers
            )
            if wait is None or not _busy(association):
                break
            time.sleep(wait)
        if not association.is_established:
            raise self._refusal(association)
        _keep_answers(association)
        try:
            with understood(self._name):
                yield association
        except BaseException as error:
            received.cut()  # first: ending it politely would wait for an archive that is at fault
            association.abort()
            if received.too_much:
                raise CadError(
                    f"{self._name}: sends more than {self.limits.study_gigabytes:g} GB",
                    hint="raise `study_gigabytes` in the archive's limits if that is right",
                ) from error
            raise
        association.release() if association.is_established else association.abort()

    def _refusal(self, association: Association) -> CadError:
        if association.is_rejected:
            return CadError(
                f"{self._name} refuses the association",
                hint=f"ask its administrator to admit {CALLING}, and check the title {self.aet!r}",
            )
        try:  # only a plain connection says why there is none
            socket.create_connection((self.host, self.port), self.limits.answer_seconds).close()
        except OSError as error:
            return CadError(
                f"{self._name} cannot be reached: {error.strerror or error}",
                hint="check host, port and firewall",
            )
        return CadError(
            f"{self._name} does not answer within {self.limits.answer_seconds:g} s, or accepts "
            "none of what is asked for",
            hint="check host, port and firewall",
        )


class _Received:
    """Count what comes over one connection, and cut it when it is too much."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self.seconds, self.left = limits.answer_seconds, limits.study_gigabytes * 1e9
        self.too_much = False
        self._socket: socket.socket | None = None

    def opened(self, event: evt.Event) -> None:
        """Let no single read wait longer than an answer may take."""
        transport = event.assoc.dul.socket
        self._socket = transport.socket if transport else None
        if self._socket is not None:
            self._socket.settimeout(self.seconds)
            # Small answers otherwise wait for acknowledgements: 12 to 30 times slower.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def came(self, event: evt.Event) -> None:
        """Count the bytes of one message."""
        data: Any = event.data
        self.left -= len(data)
        if self.left < 0:
            self.too_much = True
            self.cut()

    def cut(self) -> None:
        """End the connection at once; a thread that reads from it wakes up."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _busy(association: Association) -> bool:
    """Tell whether an archive refuses for the moment only (PS3.8 9.3.4: rejected-transient)."""
    answer = association.acceptor.primitive
    return association.is_rejected and answer is not None and answer.result == _TRANSIENT


def _keep_answers(association: Association) -> None:
    """Let nobody but whoever asked take an answer.

    pynetdicom's reactor thread looks for requests of the peer without blocking, and is not always
    at rest when an answer comes: of 600 queries on one association four lost one. Who asks blocks;
    we serve no requests but those within C-GET, which whoever asked takes too.
    """
    take = association.dimse.get_msg

    def get_msg(block: bool = False) -> Any:
        return take(block=True) if block else (None, None)

    association.dimse.get_msg = get_msg  # type: ignore[method-assign]


def _query(level: str, **keys: Any) -> Dataset:
    query = Dataset()
    query.QueryRetrieveLevel = level
    for keyword, value in keys.items():
        setattr(query, keyword, value)
    return query
