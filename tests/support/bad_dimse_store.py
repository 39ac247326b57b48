"""Ways to be wrong while objects are stored by C-STORE."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from bad_dimse import (
    _PENDING,
    Server,
    _named,
    behaviour,
    close,
    find_another_patient,
    trickle,
    wire,
)
from pydicom.dataset import Dataset

from cad.dicom.archive.dimse import FIND

# --- C-STORE -------------------------------------------------------------------------------------


def _storing(status: int, keep: bool) -> Callable[[Server], None]:
    def script(server: Server) -> None:
        def store(event: Any) -> int:
            if keep:
                server.honest_store(event)
            return status

        server.store = store

    return script


for _status in (0xA700, 0xA900, 0xC000, 0x0110, 0x0117, 0x0122, 0x0124, 0x0210, 0x1111, 0xFF00):
    _named(f"store_fails_{_status:04x}", _storing(_status, keep=False), "store")
for _status in (0xB000, 0xB006, 0xB007):
    _script = _storing(_status, keep=True)
    _script.__name__ = f"store_warns_{_status:04x}"
    behaviour("store", expect="done")(_script)
    _named(f"store_warns_{_status:04x}_and_keeps_nothing", _storing(_status, keep=False), "store")
_named("store_says_yes_and_keeps_nothing", _storing(0x0000, keep=False), "store")


@behaviour("store", expect="done")
def store_honestly(server: Server) -> None:
    server.change = {}


@behaviour("store", slow=True)
def store_hangs(server: Server) -> None:
    def store(event: Any) -> int:
        server.stop.wait(60)
        return 0x0000

    server.store = store


@behaviour("store")
def store_closes(server: Server) -> None:
    def store(event: Any) -> int:
        close(event)
        return 0x0000

    server.store = store


@behaviour("store")
def store_aborts(server: Server) -> None:
    def store(event: Any) -> int:
        event.assoc.abort()
        return 0x0000

    server.store = store


@behaviour("store")
def store_keeps_and_closes(server: Server) -> None:
    def store(event: Any) -> Any:
        server.honest_store(event)
        close(event)
        return 0x0000

    server.store = store


@behaviour("store")
def store_refuses_the_second(server: Server) -> None:
    def store(event: Any) -> Any:
        return 0xA700 if server.truth.kept else server.honest_store(event)

    server.store = store


@behaviour("store")
def store_lists_another(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        if event.identifier.QueryRetrieveLevel != "IMAGE":
            yield from server.honest_find(event)
            return
        answer = Dataset()
        answer.SOPInstanceUID = "1.2.3"
        yield _PENDING, answer

    server.find = find
    server.store = lambda event: 0x0000


@behaviour("store", slow=True)
def store_and_then_silent(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        if event.identifier.QueryRetrieveLevel == "IMAGE":
            server.stop.wait(60)
        yield from server.honest_find(event)

    server.find = find


@behaviour("store")
def store_for_another_patient(server: Server) -> None:
    find_another_patient(server)


@behaviour("store")
def store_where_the_study_is_there_twice(server: Server) -> None:
    def find(event: Any) -> Iterator[Any]:
        yield from server.honest_find(event)
        if event.identifier.QueryRetrieveLevel == "STUDY":
            yield from server.honest_find(event)

    server.find = find


@behaviour("store")
def store_takes_no_such_class(server: Server) -> None:
    server.classes = [FIND]


@behaviour("store", slow=True)
def store_trickles_its_answer(server: Server) -> None:
    def store(event: Any) -> int:
        with suppress(OSError):
            trickle(server, wire(event), struct.pack(">BBL", 4, 0, 100_000))
        return 0x0000

    server.store = store
