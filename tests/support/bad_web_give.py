"""Ways to be wrong while objects are given by WADO-RS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bad_dimse import changed
from bad_web import _MULTIPART, Server, _hooked, _raw, behaviour, encoded, parts
from pydicom.dataset import Dataset

# --- WADO-RS -------------------------------------------------------------------------------------

for _name, _tags in (
    ("gives_another_patient", {"PatientID": "P-002"}),
    ("gives_no_patient", {"PatientID": ""}),
    ("gives_another_study", {"StudyInstanceUID": "1.2.3"}),
    ("gives_another_series", {"SeriesInstanceUID": "1.2.3"}),
    ("gives_one_uid_only", {"SOPInstanceUID": "1.2.3"}),
    ("gives_a_name_with_a_path", {"SOPInstanceUID": "1.2/../../x"}),
    ("gives_more_bytes_than_allowed", {"PixelData": bytes(2**20 * 6)}),
):

    def _changing(server: Server, tags: Any = _tags) -> None:
        server.change = tags

    _changing.__name__ = _name
    behaviour("fetch")(_changing)


def _giving(
    name: str, make: Callable[[list[Dataset]], list[bytes]], expect: str = "refused"
) -> None:
    def script(server: Server) -> None:
        server.give = lambda request: (200, _MULTIPART, parts(make(server.truth.study)))

    script.__name__ = name
    behaviour("fetch", expect)(script)


_giving("gives_honestly", lambda study: [encoded(d) for d in study], "done")
_giving("gives_fewer", lambda study: [encoded(d) for d in study[:-1]])
_giving("gives_the_same_twice", lambda study: [encoded(study[i]) for i in (0, 0, 1)])
_giving(
    "gives_two_of_one_uid",
    lambda study: [encoded(d) for d in (*study, changed(study[0], InstanceNumber=9))],
)
_giving(
    "gives_one_of_another_patient",
    lambda study: [encoded(d) for d in (*study[1:], changed(study[0], PatientID="P-002"))],
)
_giving("gives_headers_cut_off", lambda study: [encoded(d)[:300] for d in study])
_giving("gives_pixels_cut_off", lambda study: [encoded(d)[:-50] for d in study])
_giving("gives_zeros", lambda study: [bytes(5000) for _ in study])
_giving("gives_text", lambda study: [b"hello" for _ in study])
_hooked("gives_no_boundary", "give", (200, "multipart/related", b"--here\r\n\r\nabc"), "fetch")
_hooked(
    "gives_another_boundary", "give", (200, _MULTIPART, b"--there\r\n\r\nabc\r\n--there--"), "fetch"
)
_hooked(
    "gives_parts_without_headers", "give", (200, _MULTIPART, b"--here\r\nabc\r\n--here--"), "fetch"
)
_hooked("gives_plain_dicom_type", "give", (200, "application/dicom", b"DICM"), "fetch")
_hooked("gives_an_image", "give", (200, "image/jpeg", b"\xff\xd8\xff"), "fetch")
_hooked("gives_no_type", "give", _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), "fetch")
