"""Ways to be wrong while a study is fetched by C-GET."""

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
    changed,
    close,
    trickle,
    wire,
)
from pydicom.dataset import Dataset

# --- C-GET ---------------------------------------------------------------------------------------


def _changing(**tags: Any) -> Callable[[Server], None]:
    def script(server: Server) -> None:
        server.change = tags

    return script


_named("gives_another_patient", _changing(PatientID="P-002"))
_named("gives_no_patient", _changing(PatientID=""))
_named("gives_another_study", _changing(StudyInstanceUID="1.2.3"))
_named("gives_another_series", _changing(SeriesInstanceUID="1.2.3"))
_named("gives_one_uid_only", _changing(SOPInstanceUID="1.2.3"))


@behaviour("fetch")
def gives_one_of_another_patient(server: Server) -> None:
    def get(event: Any) -> Iterator[Any]:
        first, *rest = server.truth.study
        yield 1 + len(rest)
        for one in rest:
            yield _PENDING, one
        yield _PENDING, changed(first, PatientID="P-002")

    server.get = get


@behaviour("fetch")
def gives_fewer(server: Server) -> None:
    server.get = lambda event: server.sending(server.truth.study[:-1])


@behaviour("fetch")
def gives_the_same_twice(server: Server) -> None:
    study = server.truth.study
    server.get = lambda event: server.sending([study[0], study[0], study[1]])


@behaviour("fetch")
def gives_two_of_one_uid(server: Server) -> None:
    study = server.truth.study
    twin = changed(study[0], InstanceNumber=99)
    server.get = lambda event: iter([4, *((_PENDING, one) for one in (*study, twin))])


@behaviour("fetch")
def gives_nothing(server: Server) -> None:
    server.get = lambda event: iter([0])


@behaviour("fetch")
def gives_a_part_and_says_so(server: Server) -> None:
    def get(event: Any) -> Iterator[Any]:
        yield 3
        yield _PENDING, server.truth.study[0]
        failed = Dataset()
        failed.FailedSOPInstanceUIDList = [d.SOPInstanceUID for d in server.truth.study[1:]]
        yield 0xB000, failed

    server.get = get


@behaviour("fetch")
def announces_what_it_can_give(server: Server) -> None:
    """The number announced has arrived, but the archive says that more could not be sent."""
    gives_a_part_and_says_so(server)
    server.announced = 1


for _name, _status in (
    ("get_out_of_resources", 0xA701),
    ("get_does_not_match", 0xA900),
    ("get_cannot_process", 0xC000),
    ("get_unknown_status", 0x1234),
    ("get_cancelled", 0xFE00),
):

    def _getting(server: Server, status: int = _status) -> None:
        server.get = lambda event: iter([1, (status, Dataset())])

    _named(_name, _getting)


@behaviour("fetch", slow=True)
def get_hangs_after_the_first(server: Server) -> None:
    def get(event: Any) -> Iterator[Any]:
        yield 3
        yield _PENDING, server.truth.study[0]
        server.stop.wait(60)

    server.get = get


@behaviour("fetch")
def get_closes_after_the_first(server: Server) -> None:
    def get(event: Any) -> Iterator[Any]:
        yield 3
        yield _PENDING, server.truth.study[0]
        close(event)
        yield _PENDING, server.truth.study[1]

    server.get = get


@behaviour("fetch")
def get_aborts_after_the_first(server: Server) -> None:
    def get(event: Any) -> Iterator[Any]:
        yield 3
        yield _PENDING, server.truth.study[0]
        event.assoc.abort()
        yield _PENDING, server.truth.study[1]

    server.get = get


@behaviour("fetch", slow=True)
def get_without_end(server: Server) -> None:
    """More and more instances, each with a name of its own."""

    def get(event: Any) -> Iterator[Any]:
        yield 60_000
        number = 0
        while not server.stop.is_set():
            number += 1
            yield _PENDING, changed(server.truth.study[0], SOPInstanceUID=f"1.2.{number}")

    server.get = get


@behaviour("fetch")
def gives_more_bytes_than_allowed(server: Server) -> None:
    server.change = {"PixelData": bytes(2**20 * 6)}


@behaviour("fetch")
def gives_an_instance_without_uids(server: Server) -> None:
    server.change = {"StudyInstanceUID": "", "SeriesInstanceUID": ""}


@behaviour("fetch")
def gives_a_name_with_a_path(server: Server) -> None:
    server.change = {"SOPInstanceUID": "1.2/../../x"}


@behaviour("fetch", slow=True)
def get_trickles_a_pdu(server: Server) -> None:
    def get(event: Any) -> Iterator[Any]:
        yield 3
        yield _PENDING, server.truth.study[0]
        with suppress(OSError):
            trickle(server, wire(event), struct.pack(">BBL", 4, 0, 100_000))

    server.get = get
