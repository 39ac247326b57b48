"""An archive by DICOMweb that does not behave: one function for every way to be wrong."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pydicom
from bad_dimse import changed
from misbehaving import PATIENT, Behaviour, Truth
from pydicom.dataset import Dataset

BEHAVIOURS: dict[str, Behaviour] = {}
_JSON = "application/dicom+json"
_MULTIPART = 'multipart/related; type="application/dicom"; boundary=here'
Reply = tuple[int, str, bytes]


class Server:
    """Be an honest archive whose answers a behaviour replaces.

    A hook gets the request's handler and returns (status, content type, body), or None where it
    has answered by itself.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth, self.stop = truth, threading.Event()
        self.studies: Callable[[Any], Reply | None] = self.honest_studies
        self.series: Callable[[Any], Reply | None] = self.honest_series
        self.instances: Callable[[Any], Reply | None] = self.honest_instances
        self.give: Callable[[Any], Reply | None] = self.honest_give
        self.store: Callable[[Any], Reply | None] = self.honest_store
        self.change: dict[str, Any] = {}
        self.announced: Any = len(truth.study)

    def honest_studies(self, request: Any) -> Reply:
        study = self.truth.study[0]
        return listed({"00100020": ("LO", PATIENT), "0020000D": ("UI", study.StudyInstanceUID)})

    def honest_series(self, request: Any) -> Reply:
        study = self.truth.study[0]
        found = {
            "0020000D": ("UI", study.StudyInstanceUID),
            "0020000E": ("UI", study.SeriesInstanceUID),
            "00080060": ("CS", "MR"),
        }
        if self.announced is not None:
            found["00201209"] = ("IS", self.announced)
        return listed(found)

    def honest_instances(self, request: Any) -> Reply:
        wanted = parse_qs(urlsplit(request.path).query).get("SOPInstanceUID", [""])[0]
        held = {str(d.SOPInstanceUID) for d in self.truth.study} | set(self.truth.kept)
        return listed(*({"00080018": ("UI", u)} for u in sorted(held) if wanted in ("", u)))

    def honest_give(self, request: Any) -> Reply:
        return self.multipart([changed(d, **self.change) for d in self.truth.study])

    def multipart(self, datasets: list[Dataset]) -> Reply:
        return 200, _MULTIPART, parts([encoded(d) for d in datasets])

    def honest_store(self, request: Any) -> Reply:
        uids = stored_uids(request)
        self.truth.kept.update(dict.fromkeys(uids, PATIENT))
        return 200, _JSON, outcome(uids)


def listed(*answers: dict[str, tuple[str, Any]]) -> Reply:
    """A list in DICOM JSON."""
    content = [{tag: {"vr": vr, "Value": [v]} for tag, (vr, v) in a.items()} for a in answers]
    return 200, _JSON, json.dumps(content).encode()


def encoded(dataset: Dataset) -> bytes:
    stream = BytesIO()
    with pydicom.config.disable_value_validation():
        dataset.save_as(stream)
    return stream.getvalue()


def parts(bodies: list[bytes], head: bytes = b"Content-Type: application/dicom\r\n\r\n") -> bytes:
    """A multipart body."""
    return b"".join(b"\r\n--here\r\n" + head + b for b in bodies) + b"\r\n--here--"


def outcome(stored: list[str], failed: list[str] | None = None) -> bytes:
    """The answer to STOW-RS."""
    answer = Dataset()
    answer.ReferencedSOPSequence, answer.FailedSOPSequence = [], []
    for uid in stored:
        item = Dataset()
        item.ReferencedSOPInstanceUID = uid
        answer.ReferencedSOPSequence.append(item)
    for uid in failed or []:
        item = Dataset()
        item.ReferencedSOPInstanceUID, item.FailureReason = uid, 0xA700
        answer.FailedSOPSequence.append(item)
    return json.dumps(answer.to_json_dict()).encode()


def stored_uids(request: Any) -> list[str]:
    """The names of what was sent."""
    found = []
    for part in request.body.split(b"--0f3cf5c0-70e0-41ef-baef-c6f9f65ec3e1")[1:-1]:
        dataset = pydicom.dcmread(BytesIO(part.partition(b"\r\n\r\n")[2][:-2]))
        found.append(str(dataset.SOPInstanceUID))
    return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripted: Server

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.endswith("/instances"):
            self._answer(self.scripted.instances)
        elif path.endswith("/series"):
            self._answer(self.scripted.series)
        elif path.endswith("/studies"):
            self._answer(self.scripted.studies)
        else:
            self._answer(self.scripted.give)

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.body = b""
            while size := int(self.rfile.readline(), 16):
                self.body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(self.scripted.store)

    def _answer(self, hook: Callable[[Any], Reply | None]) -> None:
        with suppress(OSError):
            reply = hook(self)
            if reply is None:
                self.close_connection = True
                return
            status, kind, body = reply
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no matter."""


def serve(name: str, truth: Truth) -> tuple[str, Callable[[], None]]:
    """Start an archive that behaves so; return its address and what ends it."""
    scripted = Server(truth)
    BEHAVIOURS[name].script(scripted)
    handler = type("Handler", (_Handler,), {"scripted": scripted})
    running = _Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True)
    thread.start()

    def end() -> None:
        scripted.stop.set()
        running.shutdown()
        running.server_close()
        thread.join(3)

    return f"http://127.0.0.1:{running.server_address[1]}/dicom-web", end


def behaviour(
    job: str, expect: str = "refused", slow: bool = False
) -> Callable[[Callable[[Server], None]], Callable[[Server], None]]:
    """Enter a behaviour in the table, under the name of its function."""

    def enter(script: Callable[[Server], None]) -> Callable[[Server], None]:
        BEHAVIOURS[script.__name__] = Behaviour(job, expect, slow, script)
        return script

    return enter


def _hooked(name: str, hook: str, reply: Any, job: str, **how: Any) -> None:
    """Enter a behaviour that replaces one hook by a reply, or by what makes one."""

    def script(server: Server) -> None:
        setattr(server, hook, reply if callable(reply) else lambda request: reply)

    script.__name__ = name
    behaviour(job, **how)(script)


# --- every question ------------------------------------------------------------------------------

_DEEP = b"[" * 100_000 + b"]" * 100_000
for _hook, _job in (("studies", "fetch"), ("give", "fetch"), ("store", "store")):
    for _code in (400, 401, 403, 404, 409, 413, 429, 500, 503):
        _hooked(f"{_hook}_{_code}", _hook, (_code, "text/plain", b"no"), _job)
    for _kind, _body in (
        ("html", b"<html><body>Please log in</body></html>"),
        ("invalid_json", b'[{"0020000D": '),
        ("deep_json", _DEEP),
        ("number", b"5"),
        ("list_of_numbers", b"[1, 2]"),
        ("wrong_types", b'[{"0020000D": {"vr": 7, "Value": "x"}}]'),
        ("no_vr", b'[{"0020000D": {"Value": ["1.2"]}}]'),
        ("null", b"null"),
        ("not_utf8", b'[{"00100020": {"vr": "LO", "Value": ["\xff\xfe"]}}]'),
        ("nothing", b""),
    ):
        _type = "text/html" if _kind == "html" else _JSON
        _hooked(f"{_hook}_{_kind}", _hook, (200, _type, _body), _job)
    for _code in (202, 204):
        _hooked(f"{_hook}_{_code}", _hook, (_code, _JSON, b""), _job)


def _raw(data: bytes) -> Callable[[Any], None]:
    return lambda request: request.wfile.write(data) and None


def _redirect(where: str) -> Callable[[Any], None]:
    def hook(request: Any) -> None:
        target = request.path if where == "itself" else where
        request.wfile.write(
            f"HTTP/1.1 301 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
        )

    return hook


def _bomb(request: Any) -> None:
    body = gzip.compress(bytes(200_000_000), 1)
    request.wfile.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    request.wfile.write(body)


for _hook, _job in (("studies", "fetch"), ("give", "fetch"), ("store", "store")):
    _hooked(f"{_hook}_redirects_to_itself", _hook, _redirect("itself"), _job)
    _hooked(f"{_hook}_redirects_elsewhere", _hook, _redirect("http://127.0.0.1:1/"), _job)
    _hooked(f"{_hook}_closes", _hook, lambda request: None, _job)
    _hooked(
        f"{_hook}_closes_after_headers",
        _hook,
        _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n["),
        _job,
    )
    _hooked(f"{_hook}_garbage_status_line", _hook, _raw(b"\x00\x01\x02 no http\r\n\r\n"), _job)
    _hooked(
        f"{_hook}_bad_chunk",
        _hook,
        _raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n[]\r\n"),
        _job,
    )
    _hooked(
        f"{_hook}_bad_gzip",
        _hook,
        _raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"),
        _job,
    )
_hooked("studies_gzip_bomb", "studies", _bomb, "fetch")
_hooked(
    "huge_content_length",
    "studies",
    _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n"),
    "fetch",
)
_hooked(
    "negative_content_length",
    "studies",
    _raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n[]"),
    "fetch",
)
_hooked("one_endless_header", "studies", _raw(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000), "fetch")
_hooked(
    "a_thousand_headers",
    "studies",
    _raw(b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 1000 + b"\r\n"),
    "fetch",
)


def _slow(head: bytes, piece: bytes, pause: float) -> Callable[[Server], Callable[[Any], None]]:
    def script(server: Server) -> Callable[[Any], None]:
        def hook(request: Any) -> None:
            request.wfile.write(head)
            while not server.stop.wait(pause):
                request.wfile.write(piece)

        return hook

    return script


for _name, _hook, _job, _made in (
    ("studies_silent", "studies", "fetch", _slow(b"", b"", 60)),
    ("studies_slow_headers", "studies", "fetch", _slow(b"HTTP/1.1 200 OK\r\n", b"X", 0.1)),
    (
        "studies_slow_body",
        "studies",
        "fetch",
        _slow(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n[", b" ", 0.1),
    ),
    (
        "studies_chunks_without_end",
        "studies",
        "fetch",
        _slow(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"10000\r\n" + b" " * 0x10000 + b"\r\n",
            0.0,
        ),
    ),
    ("give_silent", "give", "fetch", _slow(b"", b"", 60)),
    (
        "give_slow_body",
        "give",
        "fetch",
        _slow(
            b"HTTP/1.1 200 OK\r\nContent-Type: "
            + _MULTIPART.encode()
            + b"\r\nContent-Length: 9000\r\n\r\n",
            b"a",
            0.1,
        ),
    ),
    (
        "give_without_end",
        "give",
        "fetch",
        _slow(
            b"HTTP/1.1 200 OK\r\nContent-Type: "
            + _MULTIPART.encode()
            + b"\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"10000\r\n" + b"a" * 0x10000 + b"\r\n",
            0.0,
        ),
    ),
    ("store_silent", "store", "store", _slow(b"", b"", 60)),
    ("store_slow_headers", "store", "store", _slow(b"HTTP/1.1 200 OK\r\n", b"X", 0.1)),
    ("proof_silent", "instances", "store", _slow(b"", b"", 60)),
):

    def _script(server: Server, hook: str = _hook, made: Any = _made) -> None:
        setattr(server, hook, made(server))

    _script.__name__ = _name
    behaviour(_job, slow=True)(_script)

# --- QIDO-RS -------------------------------------------------------------------------------------

_hooked(
    "finds_another_patient",
    "studies",
    listed({"00100020": ("LO", "P-002"), "0020000D": ("UI", "1.2")}),
    "fetch",
)
_hooked("finds_a_study_without_uid", "studies", listed({"00100020": ("LO", PATIENT)}), "fetch")
_hooked(
    "finds_without_end",
    "studies",
    listed(*[{"00100020": ("LO", PATIENT), "0020000D": ("UI", "1.2")}] * 2000),
    "fetch",
)
_hooked(
    "finds_a_name_that_is_a_path",
    "studies",
    listed({"00100020": ("LO", PATIENT), "0020000D": ("UI", "../../x")}),
    "fetch",
)
_hooked(
    "series_of_another_study",
    "series",
    listed({"0020000D": ("UI", "1.2"), "0020000E": ("UI", "1.3"), "00080060": ("CS", "MR")}),
    "fetch",
)
for _name, _count in (
    ("announces_words", "many"),
    ("announces_less_than_nothing", -1),
    ("announces_fractions", 2.5),
    ("announces_a_list", [1, 2]),
    ("announces_too_many", 7),
    ("announces_too_few", 1),
):

    def _announcing(server: Server, count: Any = _count) -> None:
        server.announced = count

    _announcing.__name__ = _name
    behaviour("fetch")(_announcing)


@behaviour("fetch", expect="done")
def announces_nothing(server: Server) -> None:
    server.announced = None
