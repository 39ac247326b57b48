"""Receive by DICOM networking: C-ECHO and C-STORE, from those that are allowed to send.

An instance is acknowledged when :meth:`cad.node.inbox.Inbox.keep` has returned. The receiver
computes nothing and waits for no computing: that happens in other processes.
"""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, evt

from cad.clinic.archive_dimse import COMMITMENT
from cad.clinic.dimse_fetch import FETCHED
from cad.clinic.dimse_server import listen, peer, silence
from cad.clinic.tls import answering
from cad.errors import CadError
from cad.node.inbox import Inbox
from cad.node.log import tell
from cad.reading import reading

VERIFICATION = "1.2.840.10008.1.1"
_SUCCESS, _OUT_OF_RESOURCES, _DUPLICATE, _CANNOT_UNDERSTAND = 0x0000, 0xA700, 0x0111, 0xC000
_PROCESSING_FAILURE = 0x0110
_PDU_BYTES = 2**18  # a slice in few pieces
_LAST_ANSWER = 0.5  # seconds for an acknowledgement to leave after its instance is safe


Promised = Callable[[str, dict[str, int]], None]
"""Take an archive's answer: our number, and each object that it keeps (0) or does not (why)."""


class Receiver:
    """Receive until :meth:`stop`."""

    def __init__(self, inbox: Inbox, promised: Promised = lambda number, objects: None) -> None:
        self._promised = promised
        self.settings, self.inbox = inbox.settings.receiver, inbox
        self.refused = 0
        self._busy, self._stopping = 0, False
        self._change = threading.Condition()
        self._left: dict[Any, float] = {}
        entity = AE(ae_title=self.settings.aet)
        entity.require_called_aet = True
        entity.require_calling_aet = list(self.settings.callers)
        entity.maximum_associations = self.settings.associations
        entity.maximum_pdu_size = _PDU_BYTES
        entity.network_timeout = entity.dimse_timeout = self.settings.idle_seconds
        entity.acse_timeout = self.settings.idle_seconds
        entity.add_supported_context(VERIFICATION)
        for kind in FETCHED:  # what is fetched elsewhere is taken here
            entity.add_supported_context(kind, ALL_TRANSFER_SYNTAXES)
        if inbox.settings.archive.commitment:  # there the archive has the role of the SCP
            entity.add_supported_context(COMMITMENT, scu_role=True, scp_role=True)
        handlers = [
            (evt.EVT_CONN_OPEN, self._opened),
            (evt.EVT_DATA_RECV, self._came),
            (evt.EVT_CONN_CLOSE, self._closed),
            (evt.EVT_REJECTED, self._rejected),
            (evt.EVT_C_ECHO, lambda event: _SUCCESS),
            (evt.EVT_C_STORE, self._store),
            (evt.EVT_N_EVENT_REPORT, self._reported),
        ]
        files = self.settings.tls
        encryption = answering(files) if files is not None else None
        where = self.settings.host, self.settings.port
        self._entity = entity
        self._server = listen(entity, where, handlers, encryption, self._turned_away)
        self.address = where[0], int(self._server.server_address[1])

    def stop(self) -> None:
        """Let what is being stored be acknowledged, refuse what follows, and end."""
        with self._change:
            self._stopping = True
            self._change.wait_for(lambda: not self._busy, timeout=self.settings.idle_seconds)
        time.sleep(_LAST_ANSWER)
        silence(self._entity, self._server)

    def _store(self, event: evt.Event) -> int:
        with self._change:
            if self._stopping:
                return _OUT_OF_RESOURCES
            self._busy += 1
        try:
            return self._keep(event)
        finally:
            with self._change:
                self._busy -= 1
                self._change.notify_all()

    def _keep(self, event: evt.Event) -> int:
        sender = event.assoc.requestor.ae_title
        if self._left.get(event.assoc, -1.0) < 0:  # cut: nobody can be told that it is safe
            return _OUT_OF_RESOURCES
        try:
            with reading(f"what {sender} sends", "not readable as DICOM"):
                header, content = event.dataset, event.encoded_dataset()
                request: Any = event.request
                if str(header.get("SOPInstanceUID", "")) != str(request.AffectedSOPInstanceUID):
                    raise CadError("an instance that is not the one announced")
        except CadError:
            return self._refuse(sender, "not readable as DICOM", _CANNOT_UNDERSTAND)
        try:
            self.inbox.keep(content, header, sender, peer(event.assoc))
        except CadError as error:
            return self._refuse(sender, error.problem, _DUPLICATE)
        except (
            OSError,
            sqlite3.Error,
        ) as error:  # a full disk must not look like a stored instance
            return self._refuse(sender, f"not stored: {error}", _OUT_OF_RESOURCES)
        return _SUCCESS

    def _reported(self, event: evt.Event) -> tuple[int, None]:
        """Take an archive's answer to our request for storage commitment (PS3.4 J.3.3)."""
        sender = event.assoc.requestor.ae_title
        try:
            with reading(f"what {sender} reports", "not readable as DICOM"):
                said = event.event_information
                objects = {
                    str(item.ReferencedSOPInstanceUID): 0
                    for item in said.get("ReferencedSOPSequence") or []
                }
                for item in said.get("FailedSOPSequence") or []:
                    reason = int(item.get("FailureReason") or _PROCESSING_FAILURE)
                    objects[str(item.ReferencedSOPInstanceUID)] = reason
                number = str(said.TransactionUID)
        except CadError:
            return self._refuse(sender, "not readable as DICOM", _PROCESSING_FAILURE), None
        self._promised(number, objects)
        return _SUCCESS, None

    def _refuse(self, sender: str, reason: str, status: int) -> int:
        self._count()
        tell("instance refused", sender=sender, reason=reason, status=f"{status:#06x}")
        return status

    def _count(self) -> None:
        with self._change:
            self.refused += 1

    def _turned_away(self, address: str, reason: str) -> None:
        self._count()
        tell("association refused", address=address, reason=reason)

    def _rejected(self, event: evt.Event) -> None:
        self._count()
        asked: Any = event.assoc.requestor
        tell("association refused", sender=asked.ae_title, address=asked.address,
             called=asked.primitive.called_ae_title)  # fmt: skip

    def _opened(self, event: evt.Event) -> None:
        """Count what comes over the connection from now on."""
        transport = event.assoc.dul.socket
        if transport is not None and transport.socket is not None:
            # Small answers otherwise wait for acknowledgements: 12 to 30 times slower.
            transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport.socket.settimeout(self.settings.idle_seconds)  # also in the midst of one
        self._left[event.assoc] = self.settings.association_gigabytes * 1e9

    def _came(self, event: evt.Event) -> None:
        """Count the bytes of one message, and cut a connection that brings too much."""
        data: Any = event.data
        left = self._left.get(event.assoc, 0.0) - len(data)
        self._left[event.assoc] = left
        transport: Any = event.assoc.dul.socket
        if left < 0 and transport is not None:
            self._refuse(event.assoc.requestor.ae_title, "more than `association_gigabytes`", 0)
            transport.socket.shutdown(socket.SHUT_RDWR)
            transport.socket.close()  # the library closes none that is shut down

    def _closed(self, event: evt.Event) -> None:
        self._left.pop(event.assoc, None)
