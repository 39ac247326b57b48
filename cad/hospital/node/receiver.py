"""Receive instances by DICOM networking (C-ECHO and C-STORE), from callers that may send.

An instance is written to the disk as it comes, and is acknowledged when
:meth:`cad.hospital.node.inbox.Inbox.keep` has returned. The receiver computes nothing: studies are
computed in other processes, for which it does not wait.
"""

import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, _config, evt
from pynetdicom.dimse_primitives import C_STORE

from cad.base.errors import CadError, MachineError
from cad.base.reading import reading
from cad.dicom.archive.dimse import COMMITMENT, FETCHED
from cad.dicom.archive.listener import listen, silence
from cad.dicom.archive.tls import answering
from cad.hospital.node.inbox import APART_SECONDS, DuplicateInstance, Inbox
from cad.hospital.node.log import tell
from cad.hospital.node.names import wording
from cad.hospital.node.queue import QueueError

VERIFICATION = "1.2.840.10008.1.1"
_SUCCESS = 0x0000
_OUT_OF_RESOURCES = 0xA700
_DUPLICATE = 0x0111
_CANNOT_UNDERSTAND = 0xC000
_PROCESSING_FAILURE = 0x0110
_LOOK_BYTES = 2**24  # received bytes after which the free space of the disk is checked again
_LOOK_SECONDS = 1.0
# An association is cut if its instance is not answered within the longest allowed time plus these
# seconds.
_LATE_SECONDS = 30.0
_SHOWN_FUNCTIONS = 6  # innermost functions of a thread that a message names
_LAST_ANSWER = 0.5  # seconds that remain for the last acknowledgement when the receiver stops


Promised = Callable[[str, dict[str, int]], None]
"""Function that gets an archive's answer to a storage commitment request (will it keep objects?).

Its arguments are the transaction UID of the request and, by SOPInstanceUID, 0 for an object that
the archive promises to keep, else the code of a reason.
"""


class Receiver:
    """Receive DICOM instances from the callers that the settings allow, until :meth:`stop`.

    Parameters
    ----------
    inbox : Inbox
        Keeps the instances; its settings name port, title and callers.
    promised : callable
        Called with an archive's answer to a storage commitment request: the transaction UID, and a
        dict by SOPInstanceUID. A value is 0, or the code of the reason why the archive does not
        keep the object.
    """

    def __init__(self, inbox: Inbox, promised: Promised = lambda number, objects: None) -> None:
        self._promised = promised
        self.settings = inbox.settings.receiver
        self.inbox = inbox
        self.refused = 0
        self._busy = 0
        self._stopping = False
        self._change = threading.Condition()
        # For each association (DICOM connection): the time at which its present instance came, and
        # the thread that handles the instance.
        self._in_progress: dict[Any, tuple[float, int]] = {}
        self._ended = threading.Event()
        # Bytes that each association may still send. The references to associations are weak,
        # because the network library drops associations without notice.
        self._bytes_left: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        # The network library writes received data to Python's folder of temporary files.
        tempfile.tempdir = str(inbox.spool)
        _config.STORE_RECV_CHUNKED_DATASET = True
        entity = AE(ae_title=self.settings.aet)
        entity.require_called_aet = True
        entity.require_calling_aet = list(self.settings.callers)
        entity.maximum_associations = self.settings.associations
        entity.network_timeout = entity.dimse_timeout = self.settings.idle_seconds
        entity.acse_timeout = self.settings.idle_seconds
        entity.add_supported_context(VERIFICATION)
        # The same SOP classes are accepted that are fetched from archives.
        for sop_class in FETCHED:
            # Any transfer syntax (form of compression) is accepted, because a refused image would
            # be lost. Whether the image can be unpacked shows only later.
            entity.add_supported_context(sop_class, ALL_TRANSFER_SYNTAXES)
        if inbox.settings.archive.commitment:  # the archive is the server (SCP) of this service
            entity.add_supported_context(COMMITMENT, scu_role=True, scp_role=True)
        handlers = [
            (evt.EVT_CONN_OPEN, self._opened),
            (evt.EVT_DATA_RECV, self._came),
            (evt.EVT_C_ECHO, lambda event: _SUCCESS),
            (evt.EVT_C_STORE, self._store),
            (evt.EVT_N_EVENT_REPORT, self._reported),
        ]
        certificates = self.settings.tls
        encryption = answering(certificates) if certificates else None
        host_and_port = self.settings.host, self.settings.port
        self._entity = entity
        self._server = listen(entity, host_and_port, handlers, encryption, self._turned_away)
        self.address = host_and_port[0], int(self._server.server_address[1])
        threading.Thread(target=self._look_for_late, name="late answers", daemon=True).start()

    def stop(self) -> None:
        """Stop receiving: finish and acknowledge instances in progress, refuse further ones."""
        with self._change:
            self._stopping = True
            # The wait for instances in progress is limited. A sender that gets no answer will send
            # its instance again.
            self._change.wait_for(lambda: not self._busy, timeout=self.settings.idle_seconds)
        time.sleep(_LAST_ANSWER)  # the last acknowledgement still has to be sent
        self._ended.set()
        silence(self._entity, self._server)
        tempfile.tempdir = None
        _config.STORE_RECV_CHUNKED_DATASET = False

    def _store(self, event: evt.Event) -> int:
        """Handle an instance that has come; return the DICOM status for its sender."""
        with self._change:
            if self._stopping:
                return _OUT_OF_RESOURCES
            # The method stop() reads this count under the same lock. So no instance can begin after
            # stop() has found that none is in progress.
            self._busy += 1
            self._in_progress[event.assoc] = time.monotonic(), threading.get_ident()
        try:
            return self._keep(event)
        finally:
            with self._change:
                self._busy -= 1
                self._in_progress.pop(event.assoc, None)
                self._change.notify_all()

    def _keep(self, event: evt.Event) -> int:
        """Put an instance that has come into the inbox; return the DICOM status for its sender."""
        association: Any = event.assoc
        sender = association.requestor.ae_title
        request = cast(C_STORE, event.request)
        # A negative number of bytes means that the connection was cut. No acknowledgement can then
        # reach the sender, and the instance is not kept.
        if self._bytes_left.get(association, -1.0) < 0:
            return _OUT_OF_RESOURCES
        announced = str(request.AffectedSOPClassUID), str(request.AffectedSOPInstanceUID)
        try:
            self.inbox.keep(event.dataset_path, sender, association.peer, announced)
        # These errors mean that the machine could not store the instance, for example because the
        # disk is full. The sender is told so and can send it again.
        except (OSError, QueueError, MachineError) as error:
            return self._refuse(sender, error, _OUT_OF_RESOURCES)
        except DuplicateInstance as error:
            return self._refuse(sender, error, _DUPLICATE)
        except Exception as error:
            # A CadError tells what is wrong with the file; any other error is the program's fault.
            is_fault_of_file = isinstance(error, CadError)
            status = _CANNOT_UNDERSTAND if is_fault_of_file else _PROCESSING_FAILURE
            return self._refuse(sender, error, status)
        return _SUCCESS

    def _look_for_late(self) -> None:
        """Cut every association whose instance is not answered in time; log where its thread waits.

        A sender that gets no answer might wait for ever. If the association is cut it notices this,
        and sends the instance again.
        """
        limit = max(self.settings.idle_seconds, APART_SECONDS) + _LATE_SECONDS
        while not self._ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            with self._change:
                late = []
                for association, (since, thread) in self._in_progress.items():
                    if now - since > limit:
                        late.append((association, now - since, thread))
                # Each late instance is logged once.
                for association, _, _ in late:
                    del self._in_progress[association]
            for association, seconds, thread in late:
                tell(
                    "answer late",
                    sender=association.requestor.ae_title,
                    seconds=round(seconds),
                    place=_functions_of_thread(thread),
                )
                self._cut(association)

    def _cut(self, association: Any) -> None:
        """Close the connection of an association; no further instance of it is acknowledged."""
        self._bytes_left[association] = -1.0  # the mark of a connection that was cut
        transport: Any = association.dul.socket
        with suppress(OSError, AttributeError):
            transport.socket.shutdown(socket.SHUT_RDWR)
            transport.socket.close()  # pynetdicom does not close a connection that was shut down

    def _reported(self, event: evt.Event) -> tuple[int, None]:
        """Take an archive's answer to our request for storage commitment (PS3.4 J.3.3)."""
        sender = event.assoc.requestor.ae_title
        try:
            with reading(f"what {sender} reports", "not readable as DICOM"):
                report = event.event_information
                stored = report.get("ReferencedSOPSequence") or []
                objects = {str(item.ReferencedSOPInstanceUID): 0 for item in stored}
                for item in report.get("FailedSOPSequence") or []:
                    reason = int(item.get("FailureReason") or _PROCESSING_FAILURE)
                    objects[str(item.ReferencedSOPInstanceUID)] = reason
                number = str(report.TransactionUID)
            self._promised(number, objects)
        except Exception as error:
            return self._refuse(sender, error, _PROCESSING_FAILURE), None
        return _SUCCESS, None

    def _refuse(self, sender: str, error: Exception, status: int) -> int:
        """Count and log what is refused because of an error; return the status for the sender."""
        self._count()
        tell("instance refused", sender=sender, status=f"{status:#06x}", **wording(error))
        return status

    def _count(self) -> None:
        with self._change:
            self.refused += 1

    def _turned_away(self, address: str, **facts: str) -> None:
        """Count and log a caller that may not connect."""
        self._count()
        tell("association refused", address=address, **facts)

    def _opened(self, event: evt.Event) -> None:
        """Set how many bytes a new connection may bring, and make the folder for them if needed."""
        self._bytes_left[event.assoc] = self.settings.association_gigabytes * 1e9
        # If instances cannot be written, no error is reported yet: it is reported later for each
        # instance.
        with suppress(OSError):
            self.inbox.check_spool()

    def _came(self, event: evt.Event) -> None:
        """Count the bytes that a connection has brought; cut the connection if there is no room.

        It is cut if it brings more than the setting ``association_gigabytes``, and if the disk is
        too full.
        """
        data: Any = event.data
        # _opened() has set how many bytes a connection may bring. A connection that it did not see
        # may bring none, and is cut.
        before = self._bytes_left.get(event.assoc, 0.0)
        bytes_left = self._bytes_left[event.assoc] = before - len(data)
        try:
            if bytes_left < 0:
                raise CadError("an association brings more than `association_gigabytes`")
            # The free space of the disk is queried only after every `_LOOK_BYTES` bytes. A query
            # for every packet would take longer than receiving the packet.
            if before // _LOOK_BYTES != bytes_left // _LOOK_BYTES:
                self.inbox.check_room()
        except (CadError, OSError) as error:
            # _keep() handles an instance that has come completely, perhaps at this moment in
            # another thread. It acknowledges none if this number is negative. So the number is set
            # before the connection is cut.
            self._bytes_left[event.assoc] = -1.0
            # The status is only logged: a connection that is cut gets no answer.
            self._refuse(event.assoc.requestor.ae_title, error, status=0)
            self._cut(event.assoc)


def _functions_of_thread(thread: int) -> str:
    """Return the names of this program's functions that a thread is in, the outermost first."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "ended"
    stack = traceback.extract_stack(frame)
    ours = []
    for call in stack:
        if "/cad/" in call.filename:
            ours.append(f"{Path(call.filename).stem}.{call.name}")
    return " > ".join(ours[-_SHOWN_FUNCTIONS:])
