"""Talk to an archive by DICOM networking, through the package pynetdicom.

C-FIND queries the archive, C-GET or C-MOVE fetches images, and C-STORE sends objects.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pydicom
from pydicom import uid as uids
from pydicom.dataset import Dataset
from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, build_role, evt
from pynetdicom.association import Association

from cad.base.doors import door
from cad.base.errors import CadError
from cad.dicom.archive import interface, tls
from cad.dicom.archive.listener import cut, listen, silence
from cad.dicom.archive.settings import ArchiveLimits, Move
from cad.dicom.archive.tls import answering

FETCHED = [
    uids.MRImageStorage,
    uids.EnhancedMRImageStorage,
    uids.LegacyConvertedEnhancedMRImageStorage,
    uids.ParametricMapStorage,
    uids.SegmentationStorage,
    uids.RTStructureSetStorage,
]
# Statuses with which a C-STORE request is refused (PS3.4 B.2.3).
_OUT_OF_RESOURCES = 0xA700
_DOES_NOT_MATCH = 0xA900
_CANNOT_UNDERSTAND = 0xC000


class Kept:
    """Save the instances of one series that is fetched; refuse and record any other instance.

    Parameters
    ----------
    series : FoundSeries
        The requested series.
    into : Path
        Folder for the files of the series.
    """

    def __init__(self, series: interface.FoundSeries, into: Path) -> None:
        self.series = series
        self.into = into
        self.arrived: set[str] = set()
        self.refused: list[CadError] = []

    def store(self, event: evt.Event) -> int:
        """Handle a C-STORE request: save the instance or refuse it; return a DICOM status.

        The status is 0 for a saved instance and a failure for a refused one.
        """
        request: Any = event.request
        uid = str(request.AffectedSOPInstanceUID)
        try:
            interface.check_received(event.dataset, self.series)
            if str(event.dataset.get("SOPInstanceUID", "")) != uid:
                raise CadError(f"the archive returned an instance that is not {uid}")
            interface.keep_instance(event.encoded_dataset(), uid, self.into)
        except CadError as error:
            self.refused.append(error)
            return _DOES_NOT_MATCH
        except OSError as error:  # if the disk is full, the archive must learn of the failure
            self.refused.append(CadError(f"could not be written: {error.strerror}", file=self.into))
            return _OUT_OF_RESOURCES
        except Exception as error:  # a damaged data set may cause any error in the DICOM library
            problem = f"damaged ({type(error).__name__})"
            self.refused.append(CadError(f"the archive returned an instance that is {problem}"))
            return _CANNOT_UNDERSTAND
        self.arrived.add(uid)
        return SUCCESS

    def count(self) -> int:
        """Return how many instances of the series were saved.

        Raises
        ------
        CadError
            For the first instance that was refused.
        """
        if self.refused:
            raise self.refused[0]
        return len(self.arrived)


@contextmanager
def destination(move: Move, aet: str, limits: ArchiveLimits, instances: Kept) -> Iterator[Received]:
    """Listen as the destination of one C-MOVE until the block ends.

    With a C-MOVE an archive sends images to an address in its own list of destinations.
    Only the archive may call, under its own title, and only requested instances are kept. The
    connection is encrypted where the limits name certificates.

    Parameters
    ----------
    move : Move
        Our title, host and port, as the archive's list of destinations has them.
    aet : str
        The archive's application entity title.
    limits : ArchiveLimits
        Time and data that the archive may take.
    instances : Kept
        Saves the instances.

    Yields
    ------
    Received
        Counts the received bytes.

    Raises
    ------
    CadError
        When the port cannot be opened.
    """
    entity = AE(ae_title=move.aet)
    # Without these two conditions anybody could send images under any title.
    entity.require_called_aet = True
    entity.require_calling_aet = [aet]
    entity.network_timeout = entity.dimse_timeout = limits.answer_seconds
    entity.acse_timeout = limits.answer_seconds
    for kind in FETCHED:
        entity.add_supported_context(kind, ALL_TRANSFER_SYNTAXES)
    received = Received(limits)
    handlers = [*received.handlers, (evt.EVT_C_STORE, instances.store)]
    encryption = answering(limits.tls) if limits.tls is not None else None

    def say_nothing(*_: Any, **__: Any) -> None:
        """Ignore a refused caller: he is not the archive, and not this request's concern."""

    try:
        server = listen(entity, (move.host, move.port), handlers, encryption, refused=say_nothing)
    except OSError as error:
        raise CadError(
            f"nobody can listen for the archive at {move.host}:{move.port}: {error.strerror}",
            hint="another port of `move`, which the archive has to know, too",
        ) from error
    try:
        yield received
    finally:
        silence(entity, server)


# Statuses of an answer after which more answers come, and of the last answer.
PENDING = (0xFF00, 0xFF01)
SUCCESS = 0x0000
_TRANSIENT = 0x02
# Seconds of the waits between attempts to connect, if the archive has no free association.
_BUSY_SECONDS = (1.0, 2.0, 4.0)


class Received:
    """Count the bytes that come over one connection, and end it when they exceed the limit.

    Parameters
    ----------
    limits : ArchiveLimits
        Limits: the most gigabytes, and the longest wait of one read.
    """

    def __init__(self, limits: ArchiveLimits) -> None:
        self.seconds = limits.answer_seconds
        self.left = limits.study_gigabytes * 1e9
        self.too_much = False
        self._socket: socket.socket | None = None

    @property
    def handlers(self) -> list[Any]:
        """Return pairs of a pynetdicom event and the method of this object that handles it."""
        return [(evt.EVT_CONN_OPEN, self.opened), (evt.EVT_DATA_RECV, self.came)]

    def opened(self, event: evt.Event) -> None:
        """Handle a new connection: limit the time that one read from it may wait."""
        transport = event.assoc.dul.socket
        self._socket = transport.socket if transport else None
        if self._socket is not None:  # the connection may be closed already
            self._socket.settimeout(self.seconds)
            # Without this option a small message waits for the acknowledgement of the message
            # before it, and the exchange is 12 to 30 times slower.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def came(self, event: evt.Event) -> None:
        """Handle received data: count its bytes, and end the connection beyond the limit."""
        data: Any = event.data
        self.left -= len(data)
        if self.left < 0:
            self.too_much = True
            self.cut()

    def cut(self) -> None:
        """End the connection at once. A thread that is waiting to read from it wakes up."""
        if self._socket is not None:
            cut(self._socket)


def _keep_answers(association: Association) -> None:
    """Let only the code that sent a request take the answer to this request.

    A thread of pynetdicom (the reactor) looks for requests of the archive, and may take an answer
    instead. In a trial four of 600 queries on one association lost their answers in this way. After
    this call the thread takes nothing. The archive sends requests to us only within a C-GET, and
    these are handled by the code that sent the C-GET.
    """
    take_message = association.dimse.get_msg

    def get_msg(block: bool = False) -> Any:
        """Take a message for code that waits for one; give nothing to the thread, which polls."""
        return take_message(block=True) if block else (None, None)

    association.dimse.get_msg = get_msg  # type: ignore[method-assign]


def _busy(association: Association) -> bool:
    """Tell whether an archive has refused only for the moment (PS3.8 9.3.4: rejected-transient)."""
    answer = association.acceptor.primitive
    return association.is_rejected and answer is not None and answer.result == _TRANSIENT


# UIDs of the services C-FIND, C-GET and C-MOVE, in DICOM's Study Root Query/Retrieve Information
# Model.
FIND = "1.2.840.10008.5.1.4.1.2.2.1"
GET = "1.2.840.10008.5.1.4.1.2.2.3"
MOVE = "1.2.840.10008.5.1.4.1.2.2.2"
STORED = [
    *FETCHED,
    uids.ComprehensiveSRStorage,
    uids.Comprehensive3DSRStorage,
    uids.EncapsulatedPDFStorage,
    uids.SecondaryCaptureImageStorage,
]
# UIDs of the Storage Commitment Push Model (the service by which an archive promises to keep
# objects), and of the one instance of this service that DICOM defines.
COMMITMENT = "1.2.840.10008.1.20.1"
_COMMITMENT_INSTANCE = "1.2.840.10008.1.20.1.1"
_WARNINGS = (0xB000, 0xB006, 0xB007)  # statuses of an object that is stored, with a remark


class DimseArchive(interface.Protocolled):
    """Ask an archive by DICOM networking (C-FIND, C-GET or C-MOVE, C-STORE).

    Parameters
    ----------
    host, port, aet : str, int, str
        The archive's address and application entity title.
    limits : ArchiveLimits
        Time and data that the archive may take, our own title, certificates.
    """

    def __init__(self, host: str, port: int, aet: str, limits: ArchiveLimits) -> None:
        self.host = host
        self.port = port
        self.aet = aet
        self.limits = limits
        self.name = f"archive {aet} at {host}:{port}"
        self._association: Any = None
        self._encryption: Any = None
        if limits.tls is not None:
            self._encryption = tls.calling(limits.tls), limits.tls.name or host

    @contextmanager
    def _speaking(self, *, storing: bool = False) -> Iterator[None]:
        # Queries prove that an object is stored, so that storing needs both services.
        with self.open([*STORED, FIND] if storing else [FIND]) as self._association:
            yield

    def _studies(self, filters: dict[str, str], fields: Iterable[str] = ()) -> list[Dataset]:
        # An element with an empty value asks for the value; one with a value is a condition.
        keys = dict.fromkeys(("PatientID", "StudyInstanceUID", *fields), "")
        return self._ask(_query("STUDY", **{**keys, **filters}))

    def _series(self, study: str, fields: Iterable[str]) -> list[Dataset]:
        return self._ask(_query("SERIES", StudyInstanceUID=study, **dict.fromkeys(fields)))

    def _instances(self, study: str, series: str, instance: str = "") -> set[str]:
        query = _query(
            "IMAGE", StudyInstanceUID=study, SeriesInstanceUID=series, SOPInstanceUID=instance
        )
        return {str(answer.SOPInstanceUID) for answer in self._ask(query)}

    def check(self, status: Dataset, operation: str, allowed: tuple[int, ...]) -> None:
        """Check the status of an answer.

        Parameters
        ----------
        status : Dataset
            The answer as pynetdicom returns it; empty if no answer came.
        operation : str
            Name of the request, for the message.
        allowed : tuple of int
            Statuses that are accepted.

        Raises
        ------
        CadError
            When the status is not one of the accepted ones, or no answer came.
        """
        # The library pynetdicom returns an empty status both if no answer came in time and if the
        # connection was lost.
        if not status or "Status" not in status:
            raise CadError(
                f"{self.name}: no answer to {operation} within "
                f"{self.limits.answer_seconds:g} s, or the connection was lost",
                hint="try again, or raise `answer_seconds` in the archive's limits",
            )
        if status.Status not in allowed:
            raise CadError(f"{self.name}: {operation} failed with status {status.Status:#06x}")

    @contextmanager
    def open(
        self, classes: list[Any], receive: list[Any] | None = None, handler: Any = None
    ) -> Iterator[Association]:
        """Open an association (connection) for some SOP classes; end it when the block ends.

        Parameters
        ----------
        classes : list
            SOP classes that we use as a client.
        receive : list, optional
            SOP classes that the archive may store to us within the association (C-GET).
        handler : callable, optional
            Handles pynetdicom's event of each such C-STORE; returns a status.

        Yields
        ------
        Association
            The open association.

        Raises
        ------
        CadError
            When the archive cannot be reached, refuses, or sends too much.
        """
        entity = AE(ae_title=self.limits.calling)
        entity.acse_timeout = entity.dimse_timeout = self.limits.answer_seconds
        entity.network_timeout = entity.connection_timeout = self.limits.answer_seconds
        for name in (*classes, *(receive or [])):
            entity.add_requested_context(name)
        received = Received(self.limits)
        stores = [(evt.EVT_C_STORE, handler)] if handler else []
        # Within a C-GET the archive sends objects to us. While it stores them, our side of the
        # association has the role of the SCP, which receives objects.
        roles: list[Any] = [build_role(name, scp_role=True) for name in receive or []]
        # After the last attempt nothing is waited for (None).
        for wait in (*_BUSY_SECONDS, None):
            association = entity.associate(
                self.host,
                self.port,
                ae_title=self.aet,
                ext_neg=roles,
                evt_handlers=[*received.handlers, *stores],
                tls_args=self._encryption,
            )
            if wait is None or not _busy(association):
                break
            time.sleep(wait)
        if not association.is_established:
            raise self._refusal(association)
        _keep_answers(association)
        try:
            with interface.understood(self.name):
                yield association
        except BaseException as error:
            # The connection is cut at once, because pynetdicom's regular release would wait for an
            # answer of the faulty archive.
            received.cut()
            association.abort()
            if received.too_much:
                raise interface.too_much(self.name, self.limits) from error
            raise
        # If the archive has already ended the association, a release would wait in vain for the
        # archive's answer.
        if association.is_established:
            association.release()
        else:
            association.abort()

    def _refusal(self, association: Association) -> CadError:
        """Return the error that says why an association could not be opened."""
        if association.is_rejected:
            return CadError(
                f"{self.name} refuses the association",
                hint=f"ask its administrator to admit {self.limits.calling}, and check the title "
                f"{self.aet!r}",
            )
        try:  # pynetdicom does not say why it cannot connect; the error of a plain socket does
            connection = socket.create_connection(
                (self.host, self.port), self.limits.answer_seconds
            )
        except OSError as error:
            return CadError(
                f"{self.name} cannot be reached: {error.strerror or error}",
                hint="check host, port and firewall",
            )
        with connection:
            if self.limits.tls is not None:
                try:
                    tls.probe(connection, self.limits.tls, self.host)
                except OSError as error:
                    return CadError(
                        f"{self.name}: no encrypted connection: {tls.reason(error)}",
                        hint="check certificate, key and authority on both sides, and that this "
                        "port speaks TLS",
                    )
        return CadError(
            f"{self.name} does not answer within {self.limits.answer_seconds:g} s, or accepts "
            "none of what is asked for",
            hint="check host, port and firewall",
        )

    def _fetch(self, series: interface.FoundSeries, into: Path) -> int:
        """Fetch a series by C-MOVE if the limits name our address for it, else by C-GET."""
        instances = Kept(series, into)
        query = _query(
            "SERIES", StudyInstanceUID=series.study_uid, SeriesInstanceUID=series.series_uid
        )
        if self.limits.move is not None:
            self._move(query, instances, self.limits.move)
            return instances.count()
        with self.open([GET], receive=FETCHED, handler=instances.store) as association:
            self._follow(association.send_c_get(query, GET), "C-GET", instances)
        return instances.count()

    def _move(self, query: Dataset, instances: Kept, move: Move) -> None:
        """Ask the archive to send a series to the address that the archive has for our title."""
        with (
            destination(move, self.aet, self.limits, instances) as received,
            self.open([MOVE]) as association,
        ):
            try:
                self._follow(association.send_c_move(query, move.aet, MOVE), "C-MOVE", instances)
            finally:
                # This error explains the other errors that the end of the connection caused.
                if received.too_much:
                    raise interface.too_much(self.name, self.limits)

    def _follow(self, answers: Iterator[Any], operation: str, instances: Kept) -> None:
        """Read the archive's reports on the instances that it sends, until the last report."""
        for status, _ in answers:
            # After this program has refused an instance, the archive reports a failure. The report
            # is skipped, because Kept.count raises the error that led to the refusal.
            if instances.refused:
                continue
            self.check(status, operation, allowed=(*PENDING, SUCCESS, *_WARNINGS))
            failed = status.get("NumberOfFailedSuboperations") or 0
            if failed:
                hint = "does it know `move`'s title, host and port, and is --aet its own title?"
                raise CadError(
                    f"{self.name}: {failed} instances could not be sent",
                    hint=hint if operation == "C-MOVE" else "",
                )

    @door("own", "our own DICOM objects")
    def commit(self, paths: list[Path], number: str) -> None:
        """Ask the archive to promise that it keeps files (storage commitment, PS3.4 J.3.2).

        ``number`` is the transaction UID of the request. The archive answers later, by a message
        N-EVENT-REPORT.
        """
        request = Dataset()
        request.TransactionUID = number
        request.ReferencedSOPSequence = []
        for path in paths:
            header = pydicom.dcmread(path, stop_before_pixels=True)
            item = Dataset()
            item.ReferencedSOPClassUID = header.SOPClassUID
            item.ReferencedSOPInstanceUID = header.SOPInstanceUID
            request.ReferencedSOPSequence.append(item)
        with self.open([COMMITMENT]) as association:
            # Action 1 of the service: request a commitment.
            status, _ = association.send_n_action(request, 1, COMMITMENT, _COMMITMENT_INSTANCE)
            self.check(status, "N-ACTION", allowed=(SUCCESS,))

    def _send(self, dataset: Dataset, path: Path) -> str:
        """Store an object by C-STORE and check that the archive lists it.

        Return a remark on a warning with which the archive stored it, or an empty text. ``path`` is
        not used: only DICOMweb names the file in its own error.
        """
        try:
            status = self._association.send_c_store(dataset)
        except (ValueError, RuntimeError) as error:  # no agreement on objects of this class
            raise CadError(f"the archive does not take it: {error}") from error
        self.check(status, "C-STORE", allowed=(SUCCESS, *_WARNINGS))
        self._wait_until_listed(dataset)
        code = int(status.Status)
        return "" if code == SUCCESS else f"stored with warning {code:#06x}"

    def _ask(self, query: Dataset) -> list[Dataset]:
        """Return every answer of the archive to a query."""
        answers: list[Dataset] = []
        for status, answer in self._association.send_c_find(query, FIND):
            self.check(status, "C-FIND", allowed=(*PENDING, SUCCESS))
            if status.Status not in PENDING:  # the last answer has a status and no content
                break
            if answer is None:
                raise CadError(f"{self.name}: an answer to C-FIND is damaged")
            answers.append(answer)
            self._not_too_many(answers)
        return answers


def _query(level: str, **keys: Any) -> Dataset:
    """Return a query at a level (STUDY, SERIES or IMAGE), with values by DICOM keyword."""
    query = Dataset()
    query.QueryRetrieveLevel = level
    for keyword, value in keys.items():
        setattr(query, keyword, value)
    return query
