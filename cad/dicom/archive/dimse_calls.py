"""Call an archive: associations that are opened, limited, encrypted where asked, and ended."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pydicom.dataset import Dataset
from pynetdicom import AE, build_role, evt
from pynetdicom.association import Association

from cad.dicom.archive import tls
from cad.dicom.archive.interface import understood
from cad.dicom.archive.settings import ArchiveLimits
from cad.errors import CadError

PENDING, SUCCESS = (0xFF00, 0xFF01), 0x0000
_TRANSIENT = 0x02
_BUSY_SECONDS = (1.0, 2.0, 4.0)  # waits between tries where an archive has no association free


class Calls:
    """Open associations with one archive, and judge what it answers."""

    def __init__(self, host: str, port: int, aet: str, limits: ArchiveLimits) -> None:
        self.host, self.port, self.aet, self.limits = host, port, aet, limits
        self._encryption: Any = None
        if limits.tls is not None:
            self._encryption = tls.calling(limits.tls), limits.tls.name or host

    def check(
        self, status: Dataset, what: str, allowed: tuple[int, ...], path: object = ""
    ) -> None:
        """Refuse a status that is not allowed.

        Raises
        ------
        CadError
            With the status, or because there is none.
        """
        # pynetdicom gives an empty data set for a timeout and for a lost connection alike.
        if not status or "Status" not in status:
            raise CadError(
                f"{self.name}: no answer to {what} within {self.limits.answer_seconds:g} s, or "
                "the connection was lost",
                file=path,
                hint="try again, or raise `answer_seconds` in the archive's limits",
            )
        if status.Status not in allowed:
            raise CadError(
                f"{self.name}: {what} failed with status {status.Status:#06x}", file=path
            )

    @property
    def name(self) -> str:
        """Return what an error calls the archive."""
        return f"archive {self.aet} at {self.host}:{self.port}"

    @contextmanager
    def open(
        self,
        classes: list[Any],
        receive: list[Any] | None = None,
        handler: Any = None,
    ) -> Iterator[Association]:
        """Open an association for some SOP classes; end it with the block.

        Parameters
        ----------
        classes : list
            What is asked for.
        receive : list, optional
            What the archive may store within it (C-GET), by ``handler``.

        Raises
        ------
        CadError
            When the archive cannot be reached, refuses, or brings too much.
        """
        entity = AE(ae_title=self.limits.calling)
        entity.acse_timeout = entity.dimse_timeout = self.limits.answer_seconds
        entity.network_timeout = entity.connection_timeout = self.limits.answer_seconds
        for name in (*classes, *(receive or [])):
            entity.add_requested_context(name)
        received = Received(self.limits)
        handlers: list[Any] = [(evt.EVT_CONN_OPEN, received.opened)]
        handlers.append((evt.EVT_DATA_RECV, received.came))
        handlers += [(evt.EVT_C_STORE, handler)] if handler else []
        # Within C-GET the archive is the one that stores, and we are the SCP.
        roles: list[Any] = [build_role(name, scp_role=True) for name in receive or []]
        for wait in (*_BUSY_SECONDS, None):
            association = entity.associate(
                self.host, self.port, ae_title=self.aet, ext_neg=roles, evt_handlers=handlers,
                tls_args=self._encryption,
            )  # fmt: skip
            if wait is None or not _busy(association):
                break
            time.sleep(wait)
        if not association.is_established:
            raise self._refusal(association)
        _keep_answers(association)
        try:
            with understood(self.name):
                yield association
        except BaseException as error:
            received.cut()  # first: ending it politely would wait for an archive that is at fault
            association.abort()
            if received.too_much:
                raise self._too_much() from error
            raise
        # An archive may have ended it meanwhile; then a release would wait for an answer.
        association.release() if association.is_established else association.abort()

    def check_amount(self, received: Received) -> None:
        """Refuse an archive that has sent more than it may, over a connection of its own.

        Raises
        ------
        CadError
            Naming the limit.
        """
        if received.too_much:
            raise self._too_much()

    def _too_much(self) -> CadError:
        return CadError(
            f"{self.name}: sends more than {self.limits.study_gigabytes:g} GB",
            hint="raise `study_gigabytes` in the archive's limits if that is right",
        )

    def _refusal(self, association: Association) -> CadError:
        if association.is_rejected:
            return CadError(
                f"{self.name} refuses the association",
                hint=f"ask its administrator to admit {self.limits.calling}, and check the title "
                f"{self.aet!r}",
            )
        try:  # only a plain connection says why there is none
            plain = socket.create_connection((self.host, self.port), self.limits.answer_seconds)
        except OSError as error:
            return CadError(
                f"{self.name} cannot be reached: {error.strerror or error}",
                hint="check host, port and firewall",
            )
        with plain:
            if self.limits.tls is not None:
                try:
                    tls.probe(plain, self.limits.tls, self.host)
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


class Received:
    """Count the bytes that come over one connection, and end it when they exceed the limit."""

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


def _busy(association: Association) -> bool:
    """Tell whether an archive refuses for the moment only (PS3.8 9.3.4: rejected-transient)."""
    answer = association.acceptor.primitive
    return association.is_rejected and answer is not None and answer.result == _TRANSIENT
