"""Serve a page on the state of a node, metrics for Prometheus, and an answer on the node's health.

All three are served to the node's own machine only.
"""

import json
import shutil
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from cad.base.doors import door
from cad.base.reading import read_json, read_rows
from cad.base.version import __version__
from cad.dicom.archive.listener import cut
from cad.folders.run_folder import RunFolder
from cad.hospital.node import queue as states
from cad.hospital.node.compute import RUN
from cad.hospital.node.inbox import STUDIES
from cad.hospital.node.log import tell
from cad.hospital.node.names import study_folder, wording
from cad.hospital.node.queue import Queue
from cad.hospital.node.receiver import Receiver
from cad.hospital.node.settings import NodeSettings

# Number of the latest studies whose results the status page summarises. A change of scanner or
# patients (drift) can be seen in these results.
_MEN = 100
_HOUR = 3600.0
_SECONDS = 10.0  # most seconds that one request may take
_CONNECTIONS = 16  # largest number of connections at once
_HOSTS = ("127.0.0.1", "localhost")
_PAGES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)


class _LimitedServer(ThreadingHTTPServer):
    """Serve a limited number of requests at once, each for a limited time."""

    daemon_threads = True
    request_queue_size = 4 * _CONNECTIONS  # a client that finds the queue full loses seconds

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._open = list[socket.socket]()
        super().__init__(*arguments)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request, within limits of time and of the number of connections.

        If there are too many connections, the oldest are cut off. A slow request is cut off, too.
        """
        with self._lock:
            n_too_many = max(0, len(self._open) + 1 - _CONNECTIONS)  # with the new connection
            for oldest in self._open[:n_too_many]:
                cut(oldest)
            self._open.append(request)
        timer = threading.Timer(_SECONDS, cut, [request])
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            with self._lock:
                self._open.remove(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors caused by a browser that closed its connection."""


class StatusPage:
    """Serve a status page, metrics and an answer on the node's health over HTTP on 127.0.0.1.

    Serving starts at once, in a thread. A request changes nothing in the node. The paths are ``/``,
    ``/metrics`` (Prometheus) and ``/health`` (JSON).

    Parameters
    ----------
    settings : NodeSettings
        The page's port, and the node's folder.
    queue : Queue
        The node's queue of studies, whose states are shown.
    receiver : Receiver
        The node's receiver, which counts what it refused.
    """

    @door("port", "HTTP", bound="127.0.0.1 only; _CONNECTIONS at once, each for _SECONDS")
    def __init__(self, settings: NodeSettings, queue: Queue, receiver: Receiver) -> None:
        self.settings = settings
        self.queue = queue
        self.receiver = receiver
        answers = {"/": self._page, "/metrics": self._metrics, "/health": self._health}

        class Handler(BaseHTTPRequestHandler):
            timeout = _SECONDS

            def do_GET(self) -> None:
                # A request is answered only if its Host header names this machine. A foreign web
                # page in the operator's browser could reach the server under another name.
                stated_host = self.headers.get("Host", "")
                name_before_port, _, _ = stated_host.rpartition(":")
                host = name_before_port or stated_host
                answer = answers.get(self.path)
                if host not in _HOSTS or answer is None:
                    # 404 is "not found", 421 "not the server of this name".
                    self.send_error(404 if host in _HOSTS else 421)
                    return
                try:
                    kind, text = answer()
                except Exception as error:  # whoever asks gets the error's code, as does the log
                    code = wording(error)["code"]
                    tell("page failed", code=code)
                    self.send_error(503, code)
                    return
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header(
                    "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"
                )
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing: standard output is the log of the node."""

        self._server = _LimitedServer(("127.0.0.1", settings.status.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.settings.home).free

    def _health(self) -> tuple[str, str]:
        """Return type and text of the answer on the node's health."""
        free_gigabytes = self._free_bytes() / 1e9
        has_room = free_gigabytes > self.settings.receiver.reserve_gigabytes
        status = "ok" if has_room else "disk nearly full"
        try:
            self.receiver.inbox.check_spool()
        except OSError as error:
            status = f"nothing can be received: {wording(error)['code']}"
        health = {"status": status, "version": __version__, "studies": self.queue.counts()}
        return "application/json", json.dumps(health) + "\n"

    def _counts_of_men(self) -> tuple[dict[str, float], dict[str, str]]:
        """Count decided men and cancers among the last men, beside the numbers to be expected.

        A man is decided if the decision is benign or malignant. The share of decided men to expect
        comes from the model's validation. The number of cancers to expect is the sum of the men's
        probabilities. Cancers are counted among men whose histology came with the study. A change
        of scanner or patients (drift) shows in these numbers first.

        The second returned value has an error's code for each study whose results cannot be read.
        They may have been removed, damaged, or incompletely brought back from a backup.
        """
        men = list[tuple[str, float | None, float | None]]()  # decision, truth, probability
        promised_shares = list[float]()
        unread = dict[str, str]()
        for entry in self.queue.latest((states.DONE,), _MEN):
            run = RunFolder(study_folder(self.settings.home, STUDIES, entry.key) / RUN)
            try:
                rows_of_study = []
                for row in read_rows(run.patients, ("probability", "decision", "truth")):
                    if row["decision"]:  # empty for a man without a decision
                        truth = _chance(row["truth"])
                        rows_of_study.append((row["decision"], truth, _chance(row["probability"])))
                men += rows_of_study
                promised_share = _chance(read_json(run.metrics)["patient_level"]["promised_share"])
                if promised_share is not None:
                    promised_shares.append(promised_share)
            # A damaged file may raise any error. The other studies must still be counted.
            except Exception as error:
                unread[entry.key] = wording(error)["code"]
        # Cancers are compared with probabilities only in men who have both.
        truths = []
        probabilities = []
        for _, truth, probability in men:
            if truth is not None and probability is not None:
                truths.append(truth)
                probabilities.append(probability)
        n_decided = sum(decision in ("benign", "malignant") for decision, *_ in men)
        counts = {"all": float(len(men)), "decided": float(n_decided)}
        if promised_shares:
            counts["decided as promised"] = len(men) * sum(promised_shares) / len(promised_shares)
        if truths:
            counts |= {
                "with histology": float(len(truths)),
                "with cancer": sum(truths),
                "with cancer as promised": sum(probabilities),
            }
        if unread:
            counts["with results that cannot be read"] = float(len(unread))
        return counts, unread

    def _metrics(self) -> tuple[str, str]:
        text = self._filled("metrics.txt", refused=self.receiver.refused, last=_MEN)
        return "text/plain; version=0.0.4", f"{text}\n"

    def _page(self) -> tuple[str, str]:
        """Return type and text of the status page."""
        now = time.time()
        active = (states.RECEIVING, states.QUEUED, states.COMPUTING, states.SENDING)
        text = self._filled(
            "page.html",
            version=__version__,
            tables=[
                ("Under way", self.queue.latest(active)),
                ("Awaiting regions", self.queue.latest((states.AWAITING,))),
                ("Failed", self.queue.latest((states.FAILED,))),
                ("Done", self.queue.latest((states.DONE,))),
            ],
            ago=lambda moment: f"{(now - moment) / 60:.0f} min",
        )
        return "text/html", text

    def _filled(self, template: str, **values: Any) -> str:
        """Fill a template with the node's numbers and further values."""
        men, unread = self._counts_of_men()
        return _PAGES.get_template(template).render(
            counts=self.queue.counts(),
            totals=self.queue.totals(time.time() - _HOUR),
            free=self._free_bytes(),
            men=men,
            unread=unread,
            **values,
        )


def _chance(cell: Any) -> float | None:
    """Return the number between 0 and 1 in a cell or JSON value; None if the cell is empty.

    Anything else raises a ValueError.
    """
    if cell in ("", None):
        return None
    value = float(cell)
    if not 0 <= value <= 1:
        raise ValueError("not between 0 and 1")
    return value
