"""An archive by DICOM networking that does not behave: one function for every way to be wrong."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pydicom
from misbehaving import PATIENT, Behaviour, Truth
from pydicom.dataset import Dataset
from pynetdicom import AE, evt

from cad.dicom.archive.dimse import FIND, GET, STORED

BEHAVIOURS: dict[str, Behaviour] = {}
_PENDING = 0xFF00


class Server:
    """Be an honest archive whose answers a behaviour replaces."""

    def __init__(self, truth: Truth) -> None:
        self.truth, self.stop = truth, threading.Event()
        self.find: Callable[[Any], Iterator[Any]] = self.honest_find
        self.get: Callable[[Any], Iterator[Any]] = self.honest_get
        self.store: Callable[[Any], Any] = self.honest_store
        self.raw: Callable[[socket.socket], None] | None = None
        self.classes = [*STORED, FIND, GET]
        self.change: dict[str, Any] = {}
        self.announced: Any = len(truth.study)

    def honest_find(self, event: evt.Event) -> Iterator[Any]:
        query = event.identifier
        study = self.truth.study[0]
        if query.QueryRetrieveLevel == "STUDY":
            if query.get("PatientID", PATIENT) in ("", PATIENT):
                answer = Dataset()
                answer.PatientID, answer.StudyInstanceUID = PATIENT, study.StudyInstanceUID
                yield _PENDING, answer
        elif query.QueryRetrieveLevel == "SERIES":
            answer = Dataset()
            answer.StudyInstanceUID = query.StudyInstanceUID
            answer.SeriesInstanceUID, answer.Modality = study.SeriesInstanceUID, "MR"
            if self.announced is not None:
                answer.add_new(0x00201209, "LO", str(self.announced))
            yield _PENDING, answer
        else:
            wanted = str(query.get("SOPInstanceUID", ""))
            held = {str(d.SOPInstanceUID) for d in self.truth.study} | set(self.truth.kept)
            for uid in sorted(held):
                if wanted in ("", uid):
                    answer = Dataset()
                    answer.SOPInstanceUID = uid
                    yield _PENDING, answer

    def honest_get(self, event: evt.Event) -> Iterator[Any]:
        yield from self.sending(self.truth.study)

    def sending(self, datasets: list[Dataset]) -> Iterator[Any]:
        yield len(datasets)
        for dataset in datasets:
            one = changed(dataset, **self.change)
            yield _PENDING, one

    def honest_store(self, event: evt.Event) -> Any:
        self.truth.kept[str(event.request.AffectedSOPInstanceUID)] = PATIENT
        return 0x0000


def changed(dataset: Dataset, **tags: Any) -> Dataset:
    """A copy of a dataset with other values."""
    with pydicom.config.disable_value_validation():
        one = pydicom.dcmread(Path(dataset.filename))
        for name, value in tags.items():
            setattr(one, name, value)
    return one


def serve(name: str, truth: Truth) -> tuple[str, Callable[[], None]]:
    """Start an archive that behaves so; return its address and what ends it."""
    server = Server(truth)
    BEHAVIOURS[name].script(server)
    return _raw(server) if server.raw else _dimse(server)


def _dimse(server: Server) -> tuple[str, Callable[[], None]]:
    entity = AE()
    entity.maximum_pdu_size = 16382
    for uid in server.classes:
        entity.add_supported_context(uid, scu_role=True, scp_role=True)
    entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = 30
    running = entity.start_server(
        ("127.0.0.1", 0),
        block=False,
        evt_handlers=[
            (evt.EVT_C_FIND, lambda event: server.find(event)),
            (evt.EVT_C_GET, lambda event: server.get(event)),
            (evt.EVT_C_STORE, lambda event: server.store(event)),
        ],
    )

    def end() -> None:
        server.stop.set()
        running.shutdown()

    return f"127.0.0.1:{running.socket.getsockname()[1]}", end


def _raw(server: Server) -> tuple[str, Callable[[], None]]:
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            assert server.raw is not None
            server.raw(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(connection,), daemon=True))
            threads[-1].start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()

    def end() -> None:
        server.stop.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for each in (thread, *threads):
            each.join(3)

    return f"127.0.0.1:{listening.getsockname()[1]}", end


def behaviour(
    job: str, expect: str = "refused", slow: bool = False
) -> Callable[[Callable[[Server], None]], Callable[[Server], None]]:
    """Enter a behaviour in the table, under the name of its function."""

    def enter(script: Callable[[Server], None]) -> Callable[[Server], None]:
        BEHAVIOURS[script.__name__] = Behaviour(job, expect, slow, script)
        return script

    return enter


def wire(event: evt.Event) -> socket.socket:
    """The socket under an association."""
    return event.assoc.dul.socket.socket  # type: ignore[union-attr]


def close(event: evt.Event) -> None:
    with suppress(OSError):
        wire(event).shutdown(socket.SHUT_RDWR)


def trickle(server: Server, connection: socket.socket, head: bytes = b"") -> None:
    """Send one byte ten times a second, for ever."""
    connection.sendall(head)
    while not server.stop.wait(0.1):
        connection.sendall(b"\0")


# --- before there is an association --------------------------------------------------------------


def _answering(data: bytes) -> Callable[[Server], None]:
    def script(server: Server) -> None:
        def raw(connection: socket.socket) -> None:
            if connection.recv(65536):
                connection.sendall(data)
                server.stop.wait(0.2)

        server.raw = raw

    return script


def _named(name: str, script: Callable[[Server], None], job: str = "fetch") -> None:
    script.__name__ = name
    behaviour(job)(script)


_named("answers_garbage", _answering(bytes(range(256)) * 4))
_named("answers_http", _answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
_named("unknown_pdu", _answering(struct.pack(">BBL", 0x77, 0, 4) + b"abcd"))
_named("rejects_association", _answering(struct.pack(">BBLBBBB", 3, 0, 4, 0, 1, 1, 7)))
_named(
    "rejects_store_association", _answering(struct.pack(">BBLBBBB", 3, 0, 4, 0, 1, 1, 7)), "store"
)
_named("aborts_association", _answering(struct.pack(">BBLBBBB", 7, 0, 4, 0, 0, 2, 0)))
_named("accept_that_is_empty", _answering(struct.pack(">BBL", 2, 0, 0)))
_named("accept_of_damaged_items", _answering(struct.pack(">BBL", 2, 0, 200) + b"\x10" * 200))
_named("pdu_cut_off", _answering(struct.pack(">BBL", 2, 0, 500) + b"abc"))


@behaviour("fetch")
def closes_at_once(server: Server) -> None:
    server.raw = lambda connection: connection.close()


@behaviour("fetch", slow=True)
def silent(server: Server) -> None:
    def raw(connection: socket.socket) -> None:
        server.stop.wait(60)

    server.raw = raw


@behaviour("fetch", slow=True)
def huge_pdu_then_silence(server: Server) -> None:
    def raw(connection: socket.socket) -> None:
        connection.sendall(struct.pack(">BBL", 2, 0, 2**32 - 1))
        server.stop.wait(60)

    server.raw = raw


@behaviour("fetch", slow=True)
def trickles_the_association(server: Server) -> None:
    server.raw = lambda connection: trickle(server, connection, struct.pack(">BBL", 2, 0, 4000))


@behaviour("fetch", slow=True)
def floods_one_pdu(server: Server) -> None:
    def raw(connection: socket.socket) -> None:
        connection.sendall(struct.pack(">BBL", 2, 0, 2**32 - 1))
        while not server.stop.is_set():
            connection.sendall(bytes(2**20))

    server.raw = raw


@behaviour("fetch")
def accepts_nothing_of_it(server: Server) -> None:
    server.classes = ["1.2.840.10008.1.1"]


@behaviour("fetch")
def finds_but_does_not_give(server: Server) -> None:
    server.classes = [FIND]


# --- C-FIND --------------------------------------------------------------------------------------


def _finding(*answers: Any) -> Callable[[Server], None]:
    def script(server: Server) -> None:
        server.find = lambda event: iter(answers)

    return script


for _name, _status in (
    ("find_out_of_resources", 0xA700),
    ("find_does_not_match", 0xA900),
    ("find_cannot_process", 0xC000),
    ("find_unknown_status", 0x1234),
    ("find_cancelled", 0xFE00),
):
    _named(_name, _finding((_status, None)))


@behaviour("fetch")
def find_nothing(server: Server) -> None:
    server.find = lambda event: iter(())


@behaviour("fetch", slow=True)
def find_hangs(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        server.stop.wait(60)
        yield 0x0000, None

    server.find = find


@behaviour("fetch")
def find_without_end(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        while not server.stop.is_set():
            yield from server.honest_find(event)

    server.find = find


@behaviour("fetch", slow=True)
def find_slowly_without_end(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        while not server.stop.wait(0.3):
            yield from server.honest_find(event)

    server.find = find


@behaviour("fetch")
def find_another_patient(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        for status, answer in server.honest_find(event):
            answer.PatientID = "P-002"
            yield status, answer

    server.find = find


@behaviour("fetch")
def find_study_without_uid(server: Server) -> None:
    answer = Dataset()
    answer.PatientID = PATIENT
    server.find = lambda event: iter([(_PENDING, answer)])


@behaviour("fetch")
def find_series_of_another_study(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        for status, answer in server.honest_find(event):
            if event.identifier.QueryRetrieveLevel == "SERIES":
                answer.StudyInstanceUID = "1.2.3"
            yield status, answer

    server.find = find


def _announcing(count: Any) -> Callable[[Server], None]:
    def script(server: Server) -> None:
        server.announced = count

    return script


for _name, _count in (
    ("announces_words", "many"),
    ("announces_less_than_nothing", -1),
    ("announces_fractions", "2.5"),
    ("announces_too_many", 7),
    ("announces_too_few", 1),
    ("announces_a_huge_number", 10**11),
):
    _named(_name, _announcing(_count))


@behaviour("fetch", expect="done")
def announces_nothing(server: Server) -> None:
    server.announced = None


@behaviour("fetch")
def find_aborts(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        event.assoc.abort()
        yield 0x0000, None

    server.find = find


@behaviour("fetch")
def find_closes(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        close(event)
        yield 0x0000, None

    server.find = find


@behaviour("fetch", slow=True)
def find_trickles_a_pdu(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        with suppress(OSError):
            trickle(server, wire(event), struct.pack(">BBL", 4, 0, 100_000))
        yield 0x0000, None

    server.find = find


@behaviour("fetch")
def find_sends_garbage(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        with suppress(OSError):
            wire(event).sendall(struct.pack(">BBL", 4, 0, 40) + b"\xff" * 40)
        yield 0x0000, None

    server.find = find
