"""Callers at a node's DICOM port that are slow, half-open, oversized, foreign or damaged."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

from pynetdicom.pdu import A_ASSOCIATE_RQ
from pynetdicom.pdu_primitives import (
    A_ASSOCIATE,
    ImplementationClassUIDNotification,
    MaximumLengthNotification,
)
from pynetdicom.presentation import build_context

from cad.dicom.archive.settings import ArchiveTls
from cad.dicom.archive.tls import calling
from cad.hospital.node.receiver import Receiver

MR, IMPLICIT = "1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.1.2"
Connect = Callable[[], socket.socket]
"""Open a connection to the node, encrypted or not."""


def request(caller: str = "SCANNER", called: str = "CAD") -> bytes:
    """The bytes that ask for an association to store MR images."""
    primitive = A_ASSOCIATE()
    primitive.application_context_name = "1.2.840.10008.3.1.1.1"
    primitive.calling_ae_title, primitive.called_ae_title = caller, called
    context = build_context(MR, IMPLICIT)
    context.context_id = 1
    primitive.presentation_context_definition_list = [context]
    length, maker = MaximumLengthNotification(), ImplementationClassUIDNotification()
    length.maximum_length_received, maker.implementation_class_uid = 16384, "1.2.3"
    primitive.user_information = [length, maker]
    message = A_ASSOCIATE_RQ()
    message.from_primitive(primitive)
    return bytes(message.encode())


def element(tag: int, value: bytes) -> bytes:
    value += b"\0" * (len(value) % 2)
    return struct.pack("<HHL", tag >> 16, tag & 0xFFFF, len(value)) + value


def command(field: int = 1, **more: bytes) -> bytes:
    """A command set: C-STORE-RQ by default."""
    body = element(2, more.get("sop_class", MR.encode())) + element(0x100, struct.pack("<H", field))
    body += element(0x110, b"\1\0") + element(0x700, b"\0\0") + element(0x800, b"\0\0")
    body += element(0x1000, more.get("sop", b"1.2.3.4"))
    return element(0, struct.pack("<L", len(body))) + body


def part(content: bytes, header: int, context: int = 1) -> bytes:
    """A P-DATA-TF of one fragment: header 3 ends a command, 0 and 2 are data."""
    inner = struct.pack(">LBB", len(content) + 2, context, header) + content
    return struct.pack(">BxL", 4, len(inner)) + inner


def plainly(port: int) -> Connect:
    return lambda: socket.create_connection(("127.0.0.1", port), 20)


def encrypted(port: int, files: dict[str, str], **versions: ssl.TLSVersion) -> Connect:
    """Connect by TLS with somebody's certificate."""
    context = calling(ArchiveTls(**files))
    for name, version in versions.items():
        setattr(context, name, version)
    return lambda: context.wrap_socket(plainly(port)(), server_hostname="localhost")


def accepted(connect: Connect) -> socket.socket:
    """Return a connection with an association.

    A caller that has just ended several has its places again a moment later.
    """
    end = time.monotonic() + 5
    while True:
        line = connect()
        line.sendall(request())
        if (answer := line.recv(1)) == b"\x02":
            return line
        line.close()
        assert answer == b"\x03", answer
        assert time.monotonic() < end, "no place within 5 s"
        time.sleep(0.05)


def cut(line: socket.socket, seconds: float = 20) -> bool:
    """Tell whether the other side ends a connection."""
    end = time.monotonic() + seconds
    line.settimeout(1)
    while time.monotonic() < end:
        try:
            if not line.recv(65536):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def require_as_before(receiver: Receiver, kept: int) -> None:
    """Require of a receiver that no caller is left in it, and so many instances are."""
    server: Any = receiver._server
    end = time.monotonic() + 15
    while left := [*receiver.inbox.spool.iterdir(), *+server._places, *server._door]:
        assert time.monotonic() < end, left
        time.sleep(0.1)
    assert len(list(receiver.inbox.home.glob("incoming/[!.]*/*"))) == kept


ROUGH: dict[str, Callable[[], list[bytes]]] = {
    "silence": lambda: [],
    "one byte": lambda: [b"\x01"],
    "half a request": lambda: [request()[:40]],
    "a request without end": lambda: [struct.pack(">BxL", 1, 200_000) + b"\0" * 99],
    "a request of 4 GB": lambda: [struct.pack(">BxL", 1, 2**32 - 1)],
    "an empty request": lambda: [struct.pack(">BxL", 1, 0)],
    "a stranger": lambda: [request("STRANGER")],
    "another title": lambda: [request(called="OTHER")],
    "no title": lambda: [request()[:10] + bytes(32) + request()[42:]],
    "a damaged request": lambda: [request()[:80] + os.urandom(len(request()) - 80)],
    "HTTP": lambda: [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    "TLS": lambda: [bytes.fromhex("160301020001000100fc0303") + bytes(500)],
    "noise": lambda: [os.urandom(3000)],
    "zeros": lambda: [bytes(3000)],
    "data before a request": lambda: [part(command(), 3)],
    "an abort": lambda: [bytes.fromhex("07000000000400000000")],
    "a release": lambda: [bytes.fromhex("05000000000400000000")],
    "an answer": lambda: [b"\x02" + request()[1:]],
}
INSIDE: dict[str, Callable[[], list[bytes]]] = {
    "silence": lambda: [],
    "a request again": lambda: [request()],
    "half a header": lambda: [b"\x04\0\0"],
    "a part of 4 GB": lambda: [struct.pack(">BxL", 4, 2**32 - 1) + bytes(99)],
    "a part of 300 kB": lambda: [part(bytes(300_000), 0)],
    "half a part": lambda: [part(command(), 3)[:-9]],
    "an unknown part": lambda: [struct.pack(">BxL", 9, 4) + bytes(4)],
    "an empty part": lambda: [struct.pack(">BxL", 4, 0)],
    "a fragment longer than its part": lambda: [struct.pack(">BxLLBB", 4, 6, 9999, 1, 3)],
    "a fragment of nothing": lambda: [struct.pack(">BxLLBB", 4, 6, 2, 1, 3)],
    "data without a command": lambda: [part(bytes(9), 2)],
    "data without end before a command": lambda: [part(bytes(200_000), 0)] * 30,
    "a command without end": lambda: [part(bytes(200_000), 1)] * 30,
    "a damaged command": lambda: [part(os.urandom(200), 3)],
    "a command that is unknown": lambda: [part(command(0x7777), 3)],
    "a foreign context": lambda: [part(command(), 3, 99)],
    "a class that was not asked for": lambda: [part(command(sop_class=b"1.2.840.1"), 3)],
    "a name that leads out": lambda: [part(command(sop=b"../../x"), 3), part(bytes(64), 2)],
    "an empty instance": lambda: [part(command(), 3), part(b"", 2)],
    "noise for an instance": lambda: [part(command(), 3), part(os.urandom(9000), 2)],
    "an instance without end": lambda: [part(command(), 3), *[part(bytes(9000), 0)] * 20],
    "two interleaved": lambda: [part(command(), 3), part(bytes(90), 0), part(command(), 3)],
    "two in one part": lambda: [
        struct.pack(">BxL", 4, 2 * len(part(command(), 3)[6:])) + 2 * part(command(), 3)[6:]
    ],
    "a command within an instance": lambda: [
        part(command(), 3),
        part(bytes(90), 0),
        *[part(bytes(200_000), 1)] * 30,
    ],
    "a find": lambda: [part(command(0x20), 3), part(bytes(64), 2)],
    "a query without end": lambda: [part(command(0x20), 3), *[part(bytes(200_000), 0)] * 30],
    "an answer to nothing": lambda: [part(command(0x8001), 3), part(bytes(64), 2)],
    "a cancel": lambda: [part(command(0xFFF), 3)] * 50,
    "a promise of nobody": lambda: [part(command(0x100), 3), part(bytes(64), 2)],
    "a deep sequence": lambda: [
        part(command(), 3),
        part(struct.pack("<HHLHHL", 8, 0x1140, 2**32 - 1, 0xFFFE, 0xE000, 2**32 - 1) * 9000, 2),
    ],
    "an element of 4 GB": lambda: [
        part(command(), 3),
        part(struct.pack("<HHL", 8, 0x60, 2**32 - 2), 2),
    ],
    "an abort": lambda: [bytes.fromhex("07000000000400000000")],
}
