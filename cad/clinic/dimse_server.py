"""Listen for DICOM associations, encrypted or not; no caller can keep the next one waiting."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import TCPServer
from typing import Any

from pynetdicom import AE
from pynetdicom.transport import ThreadedAssociationServer

from cad.clinic.tls import reason

Refused = Callable[[str, str], None]
"""Take the address of a caller with whom no connection was agreed upon, and why."""
_HANDSHAKE_SECONDS = 10.0
_HANDSHAKES = 32  # at once; those who never finish one must not use up all threads


class Server(ThreadedAssociationServer):
    """Accept connections, and agree on the encryption of each in a thread of its own.

    pynetdicom's server does that in the loop that accepts: one silent caller would stop it for all.
    """

    def __init__(
        self, *given: Any, tls: ssl.SSLContext | None, refused: Refused, **more: Any
    ) -> None:
        self._tls, self._refused = tls, refused
        self._room = threading.BoundedSemaphore(_HANDSHAKES)
        super().__init__(*given, **more)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Make an association of a connection, once it is encrypted."""
        if self._tls is not None:
            request = self._encrypted(request, str(client_address[0]), self._tls)
        if request is not None:
            super().finish_request(request, client_address)

    def _encrypted(
        self, request: socket.socket, address: str, tls: ssl.SSLContext
    ) -> socket.socket | None:
        """Return the encrypted connection; None, and closed, where none is agreed upon."""
        if not self._room.acquire(blocking=False):
            self._refused(address, "too many callers that do not finish the TLS handshake")
            request.close()
            return None
        lifeline = request.dup()  # the other one moves into the encrypted connection

        def cut() -> None:
            with suppress(OSError):
                lifeline.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(_HANDSHAKE_SECONDS, cut)  # for the whole, however it drips
        timer.start()
        try:
            request.settimeout(_HANDSHAKE_SECONDS)
            encrypted = tls.wrap_socket(request, server_side=True)
            if encrypted.version() is None:  # the caller had gone before it began
                encrypted.close()
                raise OSError("the connection was lost")
            encrypted.settimeout(None)
            return encrypted
        except (OSError, ValueError) as error:
            self._refused(address, f"no TLS: {reason(error)}")
            request.close()
            return None
        finally:
            timer.cancel()
            lifeline.close()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say that a connection failed; the default prints a traceback."""
        self._refused(str(client_address[0]), "the connection was lost")

    def shutdown(self) -> None:
        """End listening."""
        TCPServer.shutdown(self)  # pynetdicom's asks the entity to forget a server it never knew
        self.server_close()


def listen(
    entity: AE,
    address: tuple[str, int],
    handlers: list[Any],
    tls: ssl.SSLContext | None,
    refused: Refused,
) -> Server:
    """Accept calls at an address for an application entity, until :func:`silence`.

    Parameters
    ----------
    entity : AE
        What is accepted, and from whom.
    address : tuple of str and int
        Where; port 0 is any free one, which ``server_address`` of the result says.
    handlers : list of tuple
        pynetdicom's events and what handles them.
    tls : ssl.SSLContext or None
        Encryption (:func:`cad.clinic.tls.answering`).
    refused : callable
        Told of every caller with whom no connection was agreed upon.
    """
    more: dict[str, Any] = {"tls": tls, "refused": refused}
    server: Any = entity.make_server(address, evt_handlers=handlers, server_class=Server, **more)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made: Server = server
    return made


def silence(entity: AE, server: Server) -> None:
    """End every association of an entity and end listening."""
    entity.shutdown()
    server.shutdown()


def peer(association: Any) -> str:
    """Return who is at the other end: the address and, encrypted, the certificate's SHA-256."""
    address = str(association.requestor.address)
    transport = association.dul.socket
    connection = transport.socket if transport is not None else None
    if isinstance(connection, ssl.SSLSocket) and (shown := connection.getpeercert(True)):
        return f"{address} certificate {hashlib.sha256(shown).hexdigest()}"
    return address
