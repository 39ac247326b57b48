"""Listen for DICOM associations (connections), with a time limit for every action of a caller.

Connections may be encrypted.

Each caller may have a limited number of associations at once. A connection counts as an
association, and gets an object of pynetdicom, only after the caller has requested an association
under an admitted title. pynetdicom can write instances to the disk as they arrive. If it does so,
any other message may not be longer than :data:`_HELD`.
"""

import hashlib
import os
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from pynetdicom import AE, _config, evt
from pynetdicom.transport import AssociationSocket, RequestHandler, ThreadedAssociationServer

from cad.base.doors import door
from cad.dicom.archive.tls import reason

Refused = Callable[..., None]
"""Function that gets the address of a refused caller and the reason."""
PDU_BYTES = 2**18  # most bytes of one piece of a message: an image slice needs only few pieces
# Seconds within which a caller must agree on encryption and request an association.
_DOOR_SECONDS = 10.0
# Most connections that may wait without an association. If another one comes, the oldest of them
# is cut off.
_WAITING = 256
# Most bytes of a message that brings no instance, and of a command within a message. Both numbers
# are small, because pydicom needs a hundred times as many bytes of memory to read such data.
_HELD = 2**16
_COMMAND = 2**13
_SLOWEST = 1000.0  # least average speed at which a message may arrive, in bytes per second
_AHEAD = 4  # number of messages that a caller may send before it has to wait for an answer
_INVALID = "Evt19"  # event of PS3.8 9.2 for an invalid message, which is answered by an abort
# A message begins with a header of 6 bytes: its type (1 requests an association), a zero and the
# length of its body. The body of a request has at least 68 bytes; the titles of the called and of
# the calling side stand at these bytes of the message (PS3.8 9.3.2).
_HEADER = 6
_ASSOCIATE = 1
_SHORTEST = 68
_TITLES = slice(10, 42)
# Codes with which a caller's request for an association is rejected: result, source and reason
# (PS3.8 9.3.4).
_NO_SUCH_TITLE = (1, 1, 7)
_NO_SUCH_CALLER = (1, 1, 3)
_NO_PLACE = (2, 3, 2)


class _TurnedAway(Exception):
    """Report why a caller gets no association, and the answer with which the caller is rejected."""

    def __init__(self, answer: tuple[int, int, int], **facts: str) -> None:
        self.answer = answer
        self.facts = facts


class Server(ThreadedAssociationServer):
    """Accept DICOM connections on a port, each in a thread of its own.

    Only :func:`listen` makes a server. With a TLS context connections are encrypted. Each rejected
    caller is reported to the callable ``refused``.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        *arguments: Any,
        tls: ssl.SSLContext | None,
        refused: Refused,
        places: int,
        **keywords: Any,
    ) -> None:
        self._tls = tls
        self.say = refused
        self._most_per_caller = places  # associations of one caller at once
        self._lock = threading.Lock()  # for the two attributes below, which all threads change
        self._door = dict[int, socket.socket]()  # connections that have no association yet
        self._places = Counter[str]()  # number of associations by title of the caller
        super().__init__(*arguments, **keywords)

    def get_request(self) -> Any:
        """Accept the next connection.

        Python's ``socketserver`` calls this method and hides its errors. An error is therefore
        reported before it is raised.
        """
        try:
            return super().get_request()
        # The usual cause of this error is that the process has too many open files. Without the
        # pause the server would try again at once and without end.
        except OSError as error:
            self.say("", reason=f"no connection can be taken: {os.strerror(error.errno or 0)}")
            time.sleep(_DOOR_SECONDS)
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection until it ends; Python's ``socketserver`` calls this method."""
        address = str(client_address[0])
        try:
            with self._at_the_door(request):
                until = time.monotonic() + _DOOR_SECONDS
                if self._tls is not None:
                    request = _encrypted(request, self._tls)
                request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                first_message = _first_message(request, until)
                caller = self._admitted(first_message)
            with self._place(caller):
                _Begun(request, client_address, self, first_message)
        except _TurnedAway as turned:
            self.say(address, **turned.facts)
            # The answer is the message A-ASSOCIATE-RJ (type 3) with a body of 4 bytes (PS3.8
            # 9.3.4). A caller that has gone away cannot get it.
            with suppress(OSError):
                request.settimeout(_DOOR_SECONDS)
                request.sendall(struct.pack(">BBLBBBB", 3, 0, 4, 0, *turned.answer))
        except (OSError, ValueError) as error:
            self.say(address, reason=_reason_of_error(error))
        finally:
            self.shutdown_request(request)

    @contextmanager
    def _at_the_door(self, request: socket.socket) -> Iterator[None]:
        """Hold a connection until its caller is admitted; if too many connections wait, cut off the
        oldest of them.
        """
        lifeline = request.dup()  # a second handle, because encryption takes over `request`
        with self._lock:
            # Callers that send nothing must not keep other callers out. The dictionary keeps the
            # order in which connections came, so that the oldest ones are cut.
            for number in list(self._door)[: len(self._door) - _WAITING + 1]:
                cut(self._door.pop(number))
            self._door[id(lifeline)] = lifeline
        try:
            yield
        finally:
            with self._lock:
                self._door.pop(id(lifeline), None)
            lifeline.close()

    def _admitted(self, first_message: bytes) -> str:
        """Return the title of the caller, read from its first message; refuse it if not allowed."""
        # Bytes that are not ASCII must not raise an error. A title with such bytes is not admitted.
        titles = first_message[_TITLES].decode("latin-1")  # 16 letters each, filled up with spaces
        called = titles[:16].strip("\0 ")
        caller = titles[16:32].strip("\0 ")
        # A caller's title is logged only if it is admitted, because another title could be any
        # text. The caller's address is always logged; it shows whose settings have to be changed.
        sender_if_admitted = {"sender": caller} if caller in self.ae.require_calling_aet else {}
        if self.ae.require_called_aet and called != self.ae_title.strip():
            raise _TurnedAway(
                _NO_SUCH_TITLE, reason="another title was called", **sender_if_admitted
            )
        if not sender_if_admitted:
            raise _TurnedAway(_NO_SUCH_CALLER, reason="not among the callers")
        return caller

    @contextmanager
    def _place(self, caller: str) -> Iterator[None]:
        """Count one more association (DICOM connection) of a caller until the ``with`` block ends.

        An error is raised if the caller already has as many associations as one caller may have.
        """
        with self._lock:
            if self._places[caller] >= self._most_per_caller:
                raise _TurnedAway(_NO_PLACE, reason="too many associations", sender=caller)
            self._places[caller] += 1
        try:
            yield
        finally:
            with self._lock:
                self._places[caller] -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report a failed connection to the callable ``refused`` of :func:`listen`.

        It replaces the standard library's method, which prints a traceback.
        """
        self.say(str(client_address[0]), reason="the connection was lost")

    def shutdown(self) -> None:
        """Close the port, and the connections that have no association yet."""
        # pynetdicom's own method would fail: it removes the server from the entity's list of
        # servers, and this server is not in the list.
        TCPServer.shutdown(self)
        with self._lock:
            for waiting in self._door.values():
                cut(waiting)
        self.server_close()


class _Begun(RequestHandler):
    """Pass a connection to pynetdicom once its first message has come, and wait until it ends."""

    def __init__(self, request: Any, address: Any, server: Server, first_message: bytes) -> None:
        self._first_message = first_message
        # The constructor of pynetdicom's class already calls `handle`, which needs the first
        # message.
        super().__init__(request, address, server)

    def handle(self) -> None:
        """Serve the association, and delete instances that were received only in part."""
        association: Any = self._create_association()
        idle = association.network_timeout or _DOOR_SECONDS
        # The caller's address is stored now, because instances may still be handled after the
        # connection was closed. A closed connection has no address.
        association.peer = _peer(str(self.client_address[0]), self.request)
        association.dul.socket = _Line(association, self.request, self._first_message, idle)
        # pynetdicom's own socket object was replaced by a `_Line`. Each of the two has put an event
        # "connection opened" into the queue. One of the two events is removed.
        association.dul.event_queue.get()
        _end_with_what_is_damaged(association, self._not_kept)
        evt.trigger(association, evt.EVT_CONN_OPEN, {"address": self.client_address})
        association.start()
        association.join()
        # pynetdicom's thread reads on until it is stopped. It would write again a file that is
        # deleted below.
        association.dul.kill_dul()
        association.dul.join(idle)
        # Two kinds of instances are unfinished: the one that was being received, and those that
        # were received and not handled.
        unfinished = [getattr(association.dimse.message, "_data_set_file", None)]
        for _, message in association.dimse.msg_queue.queue:
            unfinished.append(getattr(message, "_dataset_file", None))
        for file in filter(None, unfinished):
            file.close()
            Path(file.name).unlink(missing_ok=True)

    def _not_kept(self, error: OSError) -> None:
        """Report to ``refused`` why received data cannot be written; the caller is not told."""
        server: Any = self.server
        reason = f"what comes cannot be written: {os.strerror(error.errno or 0)}"
        server.say(str(self.client_address[0]), reason=reason)


def _end_with_what_is_damaged(association: Any, not_kept: Callable[[OSError], None]) -> None:
    """End an association if one of its messages cannot be read, or written to the disk.

    Otherwise pynetdicom's thread would die with the error. A command that comes in the middle of a
    message is refused, too: pynetdicom would forget the file to which it writes the message.
    """
    receive_message = association.dimse.receive_primitive

    def receive(primitive: Any) -> None:
        """Pass pieces of a message on to pynetdicom; abort the association if they are damaged."""
        try:
            message = association.dimse.message
            pieces = primitive.presentation_data_value_list
            # The first byte of a piece tells what it is (PS3.8 E.2): bit 0 is set in a piece of a
            # command, bit 1 in the last piece of a command or of the data.
            kinds = [data[0] & 3 for _, data in pieces]
            command_bytes = message.encoded_command_set.tell() if message is not None else 0
            command_bytes += sum(len(data) for _, data in pieces if data[0] & 1)
            if command_bytes > _COMMAND:
                raise ValueError("a command that is too long")
            # A file means that data are being received, and that the command is complete.
            has_file = getattr(message, "_data_set_file", None) is not None
            if kinds.count(3) > 1 or (has_file and {1, 3}.intersection(kinds)):
                raise ValueError("a command within a message")
            receive_message(primitive)
        except Exception as error:
            if isinstance(error, OSError):  # the disk is full, for example
                not_kept(error)
            association.dul.event_queue.put(_INVALID)

    association.dimse.receive_primitive = receive


class _Line(AssociationSocket):
    """Read one connection for pynetdicom, within limits of length and time.

    pynetdicom's own class accepts messages of any length, and waits for a message for ever. A
    message comes in parts, and each part is read as a header of six bytes and a body.

    Parameters
    ----------
    association : Association
        The association of pynetdicom that reads from this object.
    connection : socket
        The connection.
    first_message : bytes
        Bytes that were read from the connection before; they are given out first.
    idle : float
        Seconds that a part may take.
    """

    def __init__(
        self, association: Any, connection: Any, first_message: bytes, idle: float
    ) -> None:
        super().__init__(association, client_socket=connection)
        self._first_message = first_message
        self._idle = idle
        self._message_start = time.monotonic()
        self._message_bytes = 0  # bytes of the present message that have come
        self._deadline = 0.0  # when the present part of the message must have come
        self._header_read = False  # whether the header of the present part was read

    @property
    def ready(self) -> bool:
        """Tell whether there is something to read; False while too many messages wait already."""
        if self._first_message:
            return True
        return self.assoc.dimse.msg_queue.qsize() < _AHEAD and super().ready

    def recv(self, nr_bytes: int) -> bytearray:
        """Read ``nr_bytes`` bytes: alternately the six bytes of a message's header, and its body.

        Raises
        ------
        OSError
            For a message, or a part of a message, that is too long or takes too long.
        """
        if self._first_message:
            piece = self._first_message[:nr_bytes]
            self._first_message = self._first_message[nr_bytes:]
            return bytearray(piece)
        if not self._header_read:
            self._begin()
        elif nr_bytes > PDU_BYTES + 2**10:  # with a little room above the agreed length
            raise OSError("a part of a message is longer than was agreed upon")
        self._header_read = not self._header_read
        content = bytearray()
        connection = self.socket
        while connection is not None and len(content) < nr_bytes:
            piece = _bytes_before(connection, nr_bytes - len(content), self._deadline)
            if not piece:  # the caller has closed the connection
                break
            content += piece
        if connection is not None:
            # `_bytes_before` has shortened the timeout of the socket, which also holds for sending.
            connection.settimeout(self._idle)
        self._message_bytes += len(content)
        return content

    def _begin(self) -> None:
        """Set the deadline of the next part of a message.

        The part is refused if its message is already too long and is not written to a file, as an
        image is.
        """
        now = time.monotonic()
        message = self.assoc.dimse.message
        if message is None:
            self._message_start = now
            self._message_bytes = 0
        elif (
            _config.STORE_RECV_CHUNKED_DATASET
            and getattr(message, "_data_set_file", None) is None
            and self._message_bytes > _HELD
        ):
            raise OSError("a message is too long that brings no instance")
        # The first time limits one part of a message. A caller that sends tiny parts could keep
        # this limit for ever, so the second time limits the whole message.
        end_of_part = now + self._idle
        end_of_message = self._message_start + self._idle + self._message_bytes / _SLOWEST
        self._deadline = min(end_of_part, end_of_message)


def _peer(address: str, connection: Any) -> str:
    """Return who has called: the address and, if a certificate was shown, its hash."""
    if not isinstance(connection, ssl.SSLSocket):
        return address
    certificate = connection.getpeercert(binary_form=True)
    if not certificate:
        return address
    return f"{address} certificate {hashlib.sha256(certificate).hexdigest()}"


def _encrypted(request: socket.socket, tls: ssl.SSLContext) -> socket.socket:
    """Return a connection after encrypting it; its timeout limits the whole TLS handshake."""
    request.settimeout(_DOOR_SECONDS)
    try:
        encrypted = tls.wrap_socket(request, server_side=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"no TLS: {reason(error)}") from error
    if encrypted.version() is None:  # the caller closed the connection before the TLS handshake
        encrypted.close()
        raise ValueError("no TLS: the connection was lost")
    return encrypted


def _first_message(request: socket.socket, until: float) -> bytes:
    """Return a caller's first message, which must request an association (PS3.8 9.3.2)."""
    content = b""
    expected_bytes = _HEADER  # until the header has come, which tells the length of the body
    while len(content) < expected_bytes:
        piece = _bytes_before(request, expected_bytes - len(content), until)
        if not piece:
            raise ValueError("the connection was lost before an association was asked for")
        content += piece
        if len(content) == _HEADER:
            kind, length = struct.unpack(">BxL", content)
            if kind != _ASSOCIATE or not _SHORTEST <= length <= PDU_BYTES:
                raise ValueError("no association was asked for")
            expected_bytes += length
    return content


def _bytes_before(connection: socket.socket, limit: int, until: float) -> bytes:
    """Return the bytes, at most ``limit``, that come before the time ``until``."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("too slow")
    connection.settimeout(seconds)
    return connection.recv(limit)


def _reason_of_error(error: Exception) -> str:
    """Return in words why a connection failed; only errors of this module have words to quote."""
    if isinstance(error, TimeoutError):
        return "too slow"
    return str(error) if isinstance(error, ValueError) else "the connection was lost"


def cut(connection: socket.socket) -> None:
    """End a connection at once; a thread that waits to read from the connection wakes up."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@door("port", "DICOM", bound="PDU_BYTES; the entity's titles, limits of time and associations")
def listen(
    entity: AE,
    address: tuple[str, int],
    handlers: list[Any],
    tls: ssl.SSLContext | None,
    refused: Refused,
) -> Server:
    """Accept DICOM associations at an address in the background, until :func:`silence`.

    Parameters
    ----------
    entity : AE
        pynetdicom's application entity, with the SOP classes and titles that are accepted. Each
        caller may have ``entity.maximum_associations`` at once.
    address : tuple of str and int
        Host and port; port 0 takes any free port, which the result's ``server_address`` names.
    handlers : list of tuple
        Pairs of a pynetdicom event and the function that handles it. The attribute ``peer`` of the
        event's association names the caller: the address and, on an encrypted connection, the word
        ``certificate`` and the SHA-256 of the caller's certificate.
    tls : ssl.SSLContext or None
        Encryption (:func:`cad.dicom.archive.tls.answering`); None for plain connections.
    refused : callable
        Called for every rejected caller, with its address and, by keyword, the reason.

    Returns
    -------
    Server
        The server, which already runs.
    """
    entity.maximum_pdu_size = PDU_BYTES
    keywords: dict[str, Any] = {
        "tls": tls,
        "refused": refused,
        "places": entity.maximum_associations,
    }
    # To pynetdicom the number is that of all callers together.
    entity.maximum_associations = len(entity.require_calling_aet) * entity.maximum_associations
    server: Any = entity.make_server(
        address, evt_handlers=handlers, server_class=Server, **keywords
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    typed_server: Server = server  # pynetdicom declares another class
    return typed_server


def silence(entity: AE, server: Server) -> None:
    """Stop a server of :func:`listen`: end its associations and close its port.

    Parameters
    ----------
    entity : AE
        The application entity that the server was made for.
    server : Server
        The server.
    """
    entity.shutdown()
    server.shutdown()
