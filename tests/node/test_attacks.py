"""Callers that are slow, half-open, oversized, packed or foreign: none shuts the door."""

from __future__ import annotations

import http.client
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import deflate, write_series
from live_node import free_port, make_settings, send
from pynetdicom.pdu import A_ASSOCIATE_RQ
from pynetdicom.pdu_primitives import (
    A_ASSOCIATE,
    ImplementationClassUIDNotification,
    MaximumLengthNotification,
)
from pynetdicom.presentation import build_context

from cad.dicom.archive import listener
from cad.node import status
from cad.node.inbox import Inbox
from cad.node.queue import Queue
from cad.node.receiver import Receiver
from cad.node.status import StatusPage

MR, IMPLICIT = "1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.1.2"


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(listener, "_DOOR_SECONDS", 3.0)
    settings = make_settings(
        tmp_path / "home", receiver={"idle_seconds": 4, "associations": 8},
        studies={"memory_limit": 1.0},
    )  # fmt: skip
    made = Receiver(Inbox(settings, Queue(settings.home / "queue.sqlite")))
    yield made
    made.stop()
    made.inbox.close()
    made.inbox.queue.close()


@pytest.fixture
def images(tmp_path: Path) -> list[pydicom.Dataset]:
    paths = write_series(tmp_path / "in", np.ones((3, 64, 64), np.uint16))
    return [pydicom.dcmread(path) for path in paths]


def request(caller: str = "SCANNER", called: str = "CAD") -> bytes:
    """What asks for an association to store MR images."""
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


def accepted(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), 20)
    line.sendall(request())
    assert line.recv(1) == b"\x02"
    return line


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
    "a find": lambda: [part(command(0x20), 3), part(bytes(64), 2)],
    "a query without end": lambda: [part(command(0x20), 3), *[part(bytes(200_000), 0)] * 30],
    "an answer to nothing": lambda: [part(command(0x8001), 3), part(bytes(64), 2)],
    "a cancel": lambda: [part(command(0xFFF), 3)] * 50,
    "a promise of nobody": lambda: [part(command(0x100), 3), part(bytes(64), 2)],
    "a deep sequence": lambda: [part(command(), 3),
                                part(struct.pack("<HHLHHL", 8, 0x1140, 2**32 - 1, 0xFFFE, 0xE000,
                                                 2**32 - 1) * 9000, 2)],
    "an element of 4 GB": lambda: [part(command(), 3),
                                   part(struct.pack("<HHL", 8, 0x60, 2**32 - 2), 2)],
    "an abort": lambda: [bytes.fromhex("07000000000400000000")],
}  # fmt: skip
PAGE: dict[str, list[bytes]] = {
    "silence": [], "one byte": [b"G"], "a line without end": [b"GET /" + b"a" * 70_000],
    "headers without end": [b"GET / HTTP/1.1\r\n"] + [b"A: b\r\n"] * 300,
    "no host": [b"GET / HTTP/1.1\r\n\r\n"],
    "another host": [b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n"],
    "a body": [b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"],
    "another method": [b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n"], "noise": [os.urandom(999)],
    "a path that leads out": [b"GET /../queue.sqlite HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "half-open": [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "TLS": [bytes.fromhex("1603010200")],
}  # fmt: skip


@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore:Invalid value for VR")
def test_rough_callers_are_cut_and_cost_nobody_else(receiver, images):
    """48 at once at the door and within associations; meanwhile and afterwards a scanner stores."""
    port, lines = receiver.address[1], []
    for pieces in ROUGH.values():
        line = socket.create_connection(("127.0.0.1", port), 20)
        lines.append(line)
        for piece in pieces():
            line.sendall(piece)
    assert len(send(port, images[:1])) == 1
    assert all(cut(line) for line in lines)
    for name, pieces in INSIDE.items():
        line = accepted(port)
        try:
            for piece in pieces():
                line.sendall(piece)
        except OSError:  # it was cut meanwhile
            pass
        if name in ("silence", "half a header", "half a part", "an instance without end"):
            lines.append(line)  # they take its time
        else:
            line.close()
    assert all(cut(line) for line in lines)
    assert len(send(port, images)) == 3
    for line in lines:
        line.close()
    end = time.monotonic() + 15
    while list(receiver.inbox.spool.iterdir()) or any(receiver._server._places.values()):
        assert time.monotonic() < end, (
            list(receiver.inbox.spool.iterdir()),
            receiver._server._places,
        )
        time.sleep(0.1)
    kept = list(receiver.inbox.home.glob("incoming/[!.]*/*"))
    assert len(kept) == 3


@pytest.mark.timeout(120)
def test_a_hundred_strangers_that_drip_keep_no_caller_waiting(receiver, images, monkeypatch):
    """A byte every 2 s from each; an admitted caller stores within 5 s, again and again."""
    monkeypatch.setattr(listener, "_DOOR_SECONDS", 10.0)
    port = receiver.address[1]
    strangers = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(100)]
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(2):
            for line in strangers:
                try:
                    line.send(b"\x01")
                except OSError:
                    continue

    thread = threading.Thread(target=drip)
    thread.start()
    seconds = []
    for image in images:
        begun = time.monotonic()
        assert len(send(port, [image])) == 1
        seconds.append(time.monotonic() - begun)
        time.sleep(2)
    stop.set()
    thread.join()
    for line in strangers:
        line.close()
    assert max(seconds) < 5


def test_one_caller_that_takes_its_places_leaves_the_others_theirs(tmp_path, images):
    settings = make_settings(
        tmp_path / "two", receiver={"callers": ["SCANNER", "OTHER"], "associations": 1}
    )
    made = Receiver(Inbox(settings, Queue(settings.home / "queue.sqlite")))
    try:
        with accepted(made.address[1]):
            assert send(made.address[1], images) == []
            assert len(send(made.address[1], images, caller="OTHER")) == 3
    finally:
        made.stop()
        made.inbox.close()
        made.inbox.queue.close()


def test_a_bomb_that_is_sent_is_refused_and_the_next_instance_is_kept(receiver, images, tmp_path):
    """Deflated: 4 MB that would become 3 GB, opened in the limited child alone."""
    deflate(tmp_path / "in" / "1-001.dcm", 192)
    bomb = tmp_path / "in" / "1-001.dcm"
    with receiver.inbox.copied(bomb) as copy, pytest.raises(Exception, match="memory"):
        receiver.inbox.keep(copy, "SCANNER")
    assert len(send(receiver.address[1], images)) == 3


@pytest.mark.timeout(90)
def test_the_page_answers_whoever_hangs_on_it(receiver, monkeypatch):
    """12 rough callers, twice over: each ends, and an operator is answered at once."""
    monkeypatch.setattr(status, "_SECONDS", 2.0)
    page = StatusPage(receiver.inbox.settings, receiver.inbox.queue, receiver)
    lines = []
    try:
        for pieces in [*PAGE.values(), *PAGE.values()]:
            line = socket.create_connection(("127.0.0.1", page.port), 20)
            lines.append(line)
            for piece in pieces:
                try:
                    line.sendall(piece)
                except OSError:
                    break
        for host, code in (("localhost", 200), ("127.0.0.1", 200), ("evil.example", 421)):
            caller = http.client.HTTPConnection("127.0.0.1", page.port, timeout=5)
            caller.request("GET", "/health", headers={"Host": f"{host}:{page.port}"})
            assert caller.getresponse().status == code
            caller.close()
        assert all(cut(line) for line in lines)
    finally:
        for line in lines:
            line.close()
        page.stop()


def resident(pid: int) -> float:
    """Largest resident memory of a process so far, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith("VmHWM")).split()[1]) / 1024


SERVED = """
import sys, time
sys.path[:0] = [{support!r}]
from pathlib import Path
from live_node import make_settings
from cad.node.inbox import Inbox
from cad.node.queue import Queue
from cad.node.receiver import Receiver
settings = make_settings(Path({home!r}), receiver={{"port": {port}, "associations": 60}})
made = Receiver(Inbox(settings, Queue(settings.home / "queue.sqlite")))
print("ready", flush=True)
time.sleep(3600)
"""


def pour(port: int, megabytes: int) -> None:
    """Send an instance of so many megabytes, all but its end."""
    with accepted(port) as line:
        line.sendall(part(command(), 3))
        piece = part(bytes(2**18 - 6), 0)
        for _ in range(4 * megabytes):
            line.sendall(piece)


def peak(tmp_path: Path, associations: int, megabytes: int) -> float:
    """Memory of a receiver of its own, MB, after so many associations poured so much at once."""
    support, port = str(Path(__file__).resolve().parents[1] / "support"), free_port()
    (tmp_path / "home").mkdir(exist_ok=True)
    script = SERVED.format(support=support, home=str(tmp_path / "home"), port=port)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        threads = [
            threading.Thread(target=pour, args=(port, megabytes)) for _ in range(associations)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return resident(process.pid)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_what_is_received_is_not_held(tmp_path):
    """8 associations of 32 MiB at once: the receiver stays under 400 MB."""
    assert peak(tmp_path, 8, 32) < 400


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_fifty_associations_of_512_mb_are_not_held(tmp_path):
    assert peak(tmp_path, 50, 512) < 400
