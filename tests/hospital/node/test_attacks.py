"""Callers that are slow, half-open, oversized, packed or foreign: none shuts the door."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pydicom
import pytest
from certificates import papers
from dicom_files import deflate, write_series
from live_node import free_port, make_settings, send
from rough_callers import (
    INSIDE,
    MR,
    ROUGH,
    accepted,
    command,
    cut,
    element,
    encrypted,
    part,
    plainly,
    require_as_before,
)

from cad.dicom.archive import listener
from cad.dicom.archive.settings import ArchiveTls
from cad.dicom.archive.tls import calling
from cad.hospital.node import status
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import Queue
from cad.hospital.node.receiver import Receiver
from cad.hospital.node.status import StatusPage


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def shown(request, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]] | None:
    """Certificates, for what is tried over TLS, too."""
    encrypted = request.param == "encrypted"
    return papers(tmp_path_factory.mktemp("certificates")) if encrypted else None


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown) -> Iterator[Receiver]:
    monkeypatch.setattr(listener, "_DOOR_SECONDS", 3.0)
    settings = make_settings(
        tmp_path / "home",
        receiver={"idle_seconds": 4, "associations": 8, "tls": shown and shown["node"]},
        studies={"memory_limit": 1.0},
    )
    made = Receiver(Inbox(settings, Queue(settings.home / "queue.sqlite")))
    yield made
    made.stop()
    made.inbox.close()
    made.inbox.queue.close()


@pytest.fixture
def images(tmp_path: Path) -> list[pydicom.Dataset]:
    paths = write_series(tmp_path / "in", np.ones((3, 64, 64), np.uint16))
    return [pydicom.dcmread(path) for path in paths]


PAGE: dict[str, list[bytes]] = {
    "silence": [],
    "one byte": [b"G"],
    "a line without end": [b"GET /" + b"a" * 70_000],
    "headers without end": [b"GET / HTTP/1.1\r\n"] + [b"A: b\r\n"] * 300,
    "no host": [b"GET / HTTP/1.1\r\n\r\n"],
    "another host": [b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n"],
    "a body": [b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"],
    "another method": [b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "noise": [os.urandom(999)],
    "a path that leads out": [b"GET /../queue.sqlite HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "half-open": [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "TLS": [bytes.fromhex("1603010200")],
}


@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore:Invalid value for VR")
def test_rough_callers_are_cut_and_cost_nobody_else(receiver, images, shown):
    """48, most at once, at the door and within associations; a scanner stores all the while."""
    port, lines = receiver.address[1], []
    connect = encrypted(port, shown["scanner"]) if shown else plainly(port)
    context = calling(ArchiveTls(**shown["scanner"])) if shown else None
    for pieces in ROUGH.values():
        lines.append(connect())
        for piece in pieces():
            lines[-1].sendall(piece)
    assert len(send(port, images[:1], tls=context)) == 1
    assert all(cut(line) for line in lines)
    for name, pieces in INSIDE.items():
        line = accepted(connect)
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
    assert len(send(port, images, tls=context)) == 3
    for line in lines:
        line.close()
    require_as_before(receiver, 3)


@pytest.mark.timeout(120)
def test_a_caller_that_drips_whole_parts_of_one_message_is_cut(receiver, shown):
    """Each comes in time; what has no end is their message."""
    port = receiver.address[1]
    line = accepted(encrypted(port, shown["scanner"]) if shown else plainly(port))
    begun = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - begun < 60:
            line.sendall(part(b"\0", 1))  # a byte of a command that goes on
            time.sleep(0.5)
    assert 3 < time.monotonic() - begun < 30  # idle_seconds is 4
    assert cut(line)
    line.close()
    require_as_before(receiver, 0)


@pytest.mark.timeout(120)
def test_a_hundred_strangers_that_drip_keep_no_caller_waiting(receiver, images, shown, monkeypatch):
    """A byte every 2 s from each; an admitted caller stores within 5 s, again and again."""
    monkeypatch.setattr(listener, "_DOOR_SECONDS", 10.0)
    port = receiver.address[1]
    context = calling(ArchiveTls(**shown["scanner"])) if shown else None
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
        assert len(send(port, [image], tls=context)) == 1
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
        with accepted(plainly(made.address[1])):
            assert send(made.address[1], images) == []
            assert len(send(made.address[1], images, caller="OTHER")) == 3
    finally:
        made.stop()
        made.inbox.close()
        made.inbox.queue.close()


@pytest.mark.parametrize("shown", [None])
def test_a_bomb_that_is_sent_is_refused_and_the_next_instance_is_kept(receiver, images, tmp_path):
    """Deflated: 4 MB that would become 3 GB, opened in the limited child alone."""
    deflate(tmp_path / "in" / "1-001.dcm", 192)
    bomb = tmp_path / "in" / "1-001.dcm"
    with receiver.inbox.copied(bomb) as copy, pytest.raises(Exception, match="memory"):
        receiver.inbox.keep(copy, "SCANNER")
    assert len(send(receiver.address[1], images)) == 3


@pytest.mark.parametrize("shown", [None])
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


@pytest.mark.parametrize("shown", [None])
def test_the_page_holds_sixteen_connections_the_latest(receiver):
    page = StatusPage(receiver.inbox.settings, receiver.inbox.queue, receiver)
    lines = [socket.create_connection(("127.0.0.1", page.port), 20) for _ in range(40)]
    try:
        time.sleep(1)
        open_still = 0
        for line in lines:
            line.setblocking(False)
            try:
                assert line.recv(1) == b""
            except BlockingIOError:
                open_still += 1
        assert open_still == 16
        caller = http.client.HTTPConnection("127.0.0.1", page.port, timeout=5)
        caller.request("GET", "/health", headers={"Host": "localhost"})
        assert caller.getresponse().status == 200
        caller.close()
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
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import Queue
from cad.hospital.node.receiver import Receiver
settings = make_settings(Path({home!r}), receiver={{"port": {port}, "associations": 60}})
made = Receiver(Inbox(settings, Queue(settings.home / "queue.sqlite")))
print("ready", flush=True)
time.sleep(3600)
"""


def pour(port: int, megabytes: int) -> None:
    """Send an instance of so many megabytes, all but its end."""
    with accepted(plainly(port)) as line:
        line.sendall(part(command(), 3))
        piece = part(bytes(2**18 - 6), 0)
        for _ in range(4 * megabytes):
            line.sendall(piece)


def items(port: int, kind: int, count: int) -> None:
    """Send a sequence of empty items, 8 bytes each, in an instance (kind 0) or a command (1)."""
    begin = element(0x00080016, MR.encode()) + element(0x00080018, b"1.2.3.4")
    sequence = struct.pack("<HHL", 8, 0x1110, 2**32 - 1)
    content = begin + sequence + struct.pack("<HHL", 0xFFFE, 0xE000, 0) * count
    with accepted(plainly(port)) as line, contextlib.suppress(ConnectionError):
        assert line.recv(2**12)  # the rest of what accepts it
        if kind == 0:
            line.sendall(part(command(), 3))
        for start in range(0, len(content), 2**17):
            line.sendall(part(content[start : start + 2**17], kind))
        line.sendall(part(struct.pack("<HHL", 0xFFFE, 0xE0DD, 0), kind | 2))
        line.recv(1)  # an answer, or an abort


def peak(tmp_path: Path, associations: int, attack: Callable[[int], None]) -> float:
    """Memory of a receiver of its own, MB, after so many associations at once."""
    support, port = str(Path(__file__).resolve().parents[2] / "support"), free_port()
    (tmp_path / "home").mkdir(exist_ok=True)
    script = SERVED.format(support=support, home=str(tmp_path / "home"), port=port)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        threads = [threading.Thread(target=attack, args=(port,)) for _ in range(associations)]
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
    assert peak(tmp_path, 8, partial(pour, megabytes=32)) < 400


def test_what_a_header_holds_is_not_held(tmp_path):
    """4 instances of 4 MB, and 8 commands of 1 MB, of nothing but items: 1.6 GB as objects."""
    assert peak(tmp_path, 4, partial(items, kind=0, count=500_000)) < 400
    assert peak(tmp_path, 8, partial(items, kind=1, count=120_000)) < 400


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "megabytes",
    [pytest.param(128, marks=pytest.mark.faults), pytest.param(512, marks=pytest.mark.slow)],
)
def test_fifty_large_associations_are_not_held(tmp_path, megabytes):
    """6 or 25 GB come at once: the receiver stays under 400 MB."""
    assert peak(tmp_path, 50, partial(pour, megabytes=megabytes)) < 400


def held(pid: int) -> float:
    """Resident memory of a process now, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith("VmRSS")).split()[1]) / 1024


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_instances_in_one_association_are_not_held(tmp_path, capsys):
    """After the first 1,000 the receiver grows by less than 5 MB, and every one is kept."""
    support, port = str(Path(__file__).resolve().parents[2] / "support"), free_port()
    home = tmp_path / "home"
    home.mkdir()
    (path,) = write_series(tmp_path / "in", np.ones((1, 64, 64), np.uint16))
    image = pydicom.dcmread(path)
    memory = []

    def instances() -> Iterator[pydicom.Dataset]:
        for number in range(10_000):
            if number % 1_000 == 0:
                memory.append(held(process.pid))
            image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = f"1.2.3.{number}"
            yield image

    script = SERVED.format(support=support, home=str(home), port=port)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        while process.stdout.readline() != b"ready\n":
            assert process.poll() is None
        log = threading.Thread(target=process.stdout.read, daemon=True)
        log.start()
        begun = time.monotonic()
        assert len(send(port, instances())) == 10_000
        seconds = time.monotonic() - begun
        memory.append(held(process.pid))
    finally:
        process.kill()
        process.wait()
    log.join()
    process.stdout.close()
    assert len(list((home / "incoming").glob("*/*.dcm"))) == 10_000
    with capsys.disabled():
        sizes = " ".join(f"{size:.1f}" for size in memory)
        print(f"\n10,000 instances in one association took {seconds:.0f} s")
        print(f"memory: {memory[0]:.1f} MB at the start, {memory[-1]:.1f} MB at the end")
        print(f"MB before every 1,000 instances: {sizes}")
    assert max(memory[1:]) - memory[1] < 5.0
