"""Faults of the encryption itself are refused: handshakes, certificates and records."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pydicom
import pytest
from certificates import certificate, openssl, papers
from dicom_files import write_series
from live_node import make_settings, send
from rough_callers import (
    accepted,
    command,
    cut,
    encrypted,
    part,
    plainly,
    request,
    require_as_before,
)

from cad.dicom.archive import listener
from cad.dicom.archive.settings import ArchiveTls
from cad.dicom.archive.tls import calling
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import Queue
from cad.hospital.node.receiver import Receiver

# The library, as a caller that is refused while it asks, forgets its socket.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
SHUT = struct.pack("ii", 1, 0)  # SO_LINGER: closing resets the connection


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Certificates, and three more: of no authority's, outlived, and for servers alone."""
    folder = tmp_path_factory.mktemp("certificates")
    made = papers(folder)
    child = certificate(folder, "child", folder / "scanner.pem")  # who is no authority signed it
    both = [Path(one["certificate"]).read_text() for one in (child, made["scanner"])]
    Path(child["certificate"]).write_text("".join(both))
    servers = certificate(
        folder, "servers", folder / "authority.pem", "extendedKeyUsage=serverAuth"
    )
    old = certificate(folder, "old", folder / "authority.pem")
    signed = ("-CA", folder / "authority.pem", "-CAkey", folder / "authority.key")
    openssl(
        "x509",
        "-req",
        "-days",
        "-1",
        "-in",
        folder / "old.csr",
        *signed,
        "-CAcreateserial",
        "-out",
        old["certificate"],
    )
    more = {"child": child, "servers": servers, "old": old}
    return {
        **made,
        **{k: {**v, "authority": str(folder / "authority.pem")} for k, v in more.items()},
    }


@pytest.fixture
def receiver(tmp_path: Path, shown, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(listener, "_DOOR_SECONDS", 3.0)
    limits = {"idle_seconds": 4, "associations": 40, "tls": shown["node"]}
    settings = make_settings(tmp_path / "home", receiver=limits)
    made = Receiver(Inbox(settings, Queue(settings.home / "queue.sqlite")))
    yield made
    made.stop()
    made.inbox.close()
    made.inbox.queue.close()


@pytest.fixture
def images(tmp_path: Path) -> list[pydicom.Dataset]:
    paths = write_series(tmp_path / "in", np.ones((3, 64, 64), np.uint16))
    return [pydicom.dcmread(path) for path in paths]


class Records:
    """A connection whose records are made here, and leave as a test wants them to."""

    def __init__(self, port: int, files: dict[str, str], version: ssl.TLSVersion) -> None:
        context = calling(ArchiveTls(**files))
        context.maximum_version = version
        self.line, self._in, self._out = plainly(port)(), ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def step(self) -> bytes:
        """Return this side's next words of the handshake, without sending them."""
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._out.read()

    def heard(self) -> None:
        said = self.line.recv(2**16)
        assert said, "cut off"
        self._in.write(said)

    def agreed(self) -> Records:
        """End the handshake and ask for an association, which is accepted."""
        while not self._done():
            self.heard()
        self.line.sendall(self.of(request()))
        while True:
            try:
                assert self.tls.read(1) == b"\x02"
                return self
            except ssl.SSLWantReadError:
                self.heard()

    def _done(self) -> bool:
        self.line.sendall(self.step())
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def of(self, content: bytes) -> bytes:
        """The records of a content."""
        self.tls.write(content)
        return self._out.read()

    def farewell(self) -> bytes:
        """The record that ends the encryption."""
        with suppress(ssl.SSLError):
            self.tls.unwrap()
        return self._out.read()


def record(kind: int, content: bytes, length: int | None = None) -> bytes:
    return struct.pack(">BHH", kind, 0x303, len(content) if length is None else length) + content


HANDSHAKES: dict[str, Callable[[bytes], list[bytes]]] = {
    "half a hello": lambda hello: [hello[:40]],
    "a hello and silence": lambda hello: [hello],
    "a hello twice": lambda hello: [hello, hello],
    "a damaged hello": lambda hello: [hello[:50] + os.urandom(len(hello) - 50)],
    "a hello of 16 MB": lambda _: [
        record(22, b"\1\xff\xff\xff" + bytes(2**14 - 4)),
        *[record(22, bytes(2**14))] * 99,
    ],
    "a record of 64 kB": lambda _: [record(22, bytes(2**16 - 1))],
    "empty records": lambda _: [record(22, b"")] * 5000,
    "a record shorter than it says": lambda _: [record(22, b"\1", 400)],
    "an alert": lambda _: [record(21, b"\2\x28")],
    "warnings without end": lambda _: [record(21, b"\1\x5a")] * 5000,
    "data": lambda _: [record(23, os.urandom(900))],
    "a heartbeat": lambda _: [record(24, b"\1\x40\0")],
    "a heartbeat after a hello": lambda hello: [hello, record(24, b"\1\x40\0")],
    "an old hello": lambda _: [bytes.fromhex("802e0100020015000000100100800200800300800400800500")],
    "a change of cipher": lambda _: [record(20, b"\1")] * 40,
    "an unknown record": lambda _: [record(99, b"\1" * 99)],
    "plain DICOM": lambda _: [request()],
    "HTTP": lambda _: [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
}


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


INSIDE: dict[str, Callable[[Records], list[bytes]]] = {
    "silence": lambda _: [],
    "half a record": lambda to: [to.of(part(command(), 3))[:-5]],
    "a flipped bit": lambda to: [flipped(to.of(part(command(), 3)))],
    "a record again": lambda to: [to.of(part(command(), 3))] * 2,
    "a record left out": lambda to: (
        [to.of(part(command(), 3))[:0], to.of(part(bytes(9), 2))] if to.of(b"x") else []
    ),
    "records in another order": lambda to: [to.of(part(command(), 3)), to.of(bytes(9))][::-1],
    "plain DICOM": lambda _: [part(command(), 3)],
    "a plain alert": lambda _: [record(21, b"\2\0")],
    "a plain hello": lambda _: [record(22, b"\1" + bytes(40))],
    "a record of 64 kB": lambda _: [record(23, bytes(2**16 - 1))],
    "half an instance, then silence": lambda to: [to.of(part(command(), 3) + part(bytes(90), 0))],
    "the end within an instance": lambda to: [
        to.of(part(command(), 3) + part(bytes(90), 0)),
        to.farewell(),
    ],
    "a byte a record": lambda to: [to.of(bytes([one])) for one in part(command(), 3)],
}


def poured(line: socket.socket, pieces: list[bytes]) -> None:
    with suppress(OSError):  # it may be cut meanwhile
        for piece in pieces:
            line.sendall(piece)


@pytest.mark.timeout(90)
def test_no_fault_of_the_encryption_costs_others_anything(receiver, images, shown):
    """Handshakes and records by TLS 1.2 and 1.3, all open at once; a scanner stores meanwhile."""
    port, lines = receiver.address[1], []
    context = calling(ArchiveTls(**shown["scanner"]))
    for version in VERSIONS:
        for pieces in HANDSHAKES.values():
            caller = Records(port, shown["scanner"], version)
            lines.append(caller.line)
            poured(caller.line, pieces(caller.step()))
        caller = Records(port, shown["scanner"], version)
        lines.append(caller.line)
        caller.line.sendall(caller.step())
        caller.heard()
        poured(caller.line, [flipped(caller.step())])
    assert len(send(port, images[:1], tls=context)) == 1
    for version in VERSIONS:
        for made in INSIDE.values():
            caller = Records(port, shown["scanner"], version).agreed()
            lines.append(caller.line)
            poured(caller.line, made(caller))
        for linger in (b"", SHUT):  # the connection is closed, or reset, without a word
            caller = Records(port, shown["scanner"], version).agreed()
            caller.line.sendall(caller.of(part(command(), 3) + part(bytes(90), 0)))
            if linger:
                caller.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            caller.line.close()
    assert len(send(port, images[1:2], tls=context)) == 1
    assert all(cut(line) for line in lines)
    assert len(send(port, images, tls=context)) == 3
    for line in lines:
        line.close()
    require_as_before(receiver, 3)
    assert len(lines) == 2 * (len(HANDSHAKES) + 1 + len(INSIDE)) == 64


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("who", ["stranger", "child", "old", "servers", "elsewhere", "nobody"])
def test_a_wrong_certificate_gets_no_association(receiver, images, shown, who, version):
    files = shown.get(who, shown["scanner"])
    context = calling(ArchiveTls(**files))
    if who == "elsewhere":  # one that its holder signed
        folder = Path(shown["node"]["authority"]).parent
        context.load_cert_chain(folder / "elsewhere.pem", folder / "elsewhere.key")
    if who == "nobody":
        context = ssl.create_default_context(cafile=files["authority"])
    context.maximum_version = version
    assert send(receiver.address[1], images, tls=context) == []
    end = time.monotonic() + 20
    while receiver.refused < 1:
        assert time.monotonic() < end
        time.sleep(0.02)
    require_as_before(receiver, 0)


def test_the_right_certificate_is_let_in_by_both_versions(receiver, images, shown):
    """So that the refusals above are the certificates'."""
    for version in VERSIONS:
        limits = {"minimum_version": version, "maximum_version": version}
        with accepted(encrypted(receiver.address[1], shown["scanner"], **limits)) as line:
            assert line.version() == version.name.replace("_", ".")
    assert not cut(socket.create_connection(("127.0.0.1", receiver.address[1])), 0.5)


@pytest.mark.timeout(90)
def test_a_renegotiation_is_refused(receiver, images, shown):
    """Within TLS 1.2 it would let a caller change who it is, or cost the node its time."""
    port, files = receiver.address[1], shown["scanner"]
    caller = subprocess.Popen(
        [
            "openssl",
            "s_client",
            "-connect",
            f"127.0.0.1:{port}",
            "-tls1_2",
            *("-cert", files["certificate"], "-key", files["key"], "-CAfile", files["authority"]),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert caller.stdin is not None
    assert caller.stdout is not None
    for line in caller.stdout:
        if b"Extended master secret" in line:  # the last of what it says of its session
            break
    caller.stdin.write(b"R\n")  # its command to renegotiate
    caller.stdin.flush()
    said = caller.communicate(timeout=60)[0]
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said
    context = calling(ArchiveTls(**files))
    assert len(send(port, images, tls=context)) == 3
    require_as_before(receiver, 3)
