"""Show how far everything is: a page, Prometheus text and a health answer, on loopback only."""

from __future__ import annotations

import json
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from cad import __version__
from cad.node import queue as states
from cad.node.queue import Queue
from cad.node.receiver import Receiver
from cad.node.settings import NodeSettings

_HOUR = 3600.0
_PAGES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)


class StatusPage:
    """Serve GET on 127.0.0.1; nothing can be changed."""

    def __init__(self, settings: NodeSettings, queue: Queue, receiver: Receiver) -> None:
        self.settings, self.queue, self.receiver = settings, queue, receiver
        answers = {"/": self._page, "/metrics": self._metrics, "/health": self._health}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = answers.get(self.path)
                if answer is None:
                    self.send_error(404)
                    return
                kind, text = answer()
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
                """Say nothing: the log is the node's."""

        self._server = ThreadingHTTPServer(("127.0.0.1", settings.status.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """End the page."""
        self._server.shutdown()
        self._server.server_close()

    def _free(self) -> int:
        return shutil.disk_usage(self.settings.home).free

    def _health(self) -> tuple[str, str]:
        free = self._free() / 1e9
        well = free > self.settings.receiver.reserve_gigabytes
        said = {"status": "ok" if well else "disk nearly full", "version": __version__}
        return "application/json", json.dumps({**said, "studies": self.queue.counts()}) + "\n"

    def _metrics(self) -> tuple[str, str]:
        counts, totals = self.queue.counts(), self.queue.totals(time.time() - _HOUR)
        rows: list[tuple[str, str, str, dict[str, float]]] = [
            ("studies", "gauge", "Studies in each state",
             {f'{{state="{state}"}}': float(n) for state, n in counts.items()}),
            ("instances_kept", "gauge", "Instances on the disk", {"": totals["instances"]}),
            ("bytes_kept", "gauge", "Bytes of them", {"": totals["bytes"]}),
            ("objects_sent", "gauge", "Objects returned, of studies kept", {"": totals["sent"]}),
            ("refused_total", "counter", "Associations and instances refused since the start",
             {"": self.receiver.refused}),
            ("done_last_hour", "gauge", "Studies done in the last hour", {"": totals["done"]}),
            ("return_seconds", "gauge", "Mean time from last arrival to done, last hour",
             {"": totals["wait"]}),
            ("disk_free_bytes", "gauge", "Free disk of the node's home", {"": self._free()}),
        ]  # fmt: skip
        lines = []
        for name, kind, text, values in rows:
            lines += [f"# HELP cad_node_{name} {text}", f"# TYPE cad_node_{name} {kind}"]
            lines += [f"cad_node_{name}{label} {value}" for label, value in values.items()]
        return "text/plain; version=0.0.4", "\n".join(lines) + "\n"

    def _page(self) -> tuple[str, str]:
        now = time.time()
        active = (states.RECEIVING, states.QUEUED, states.COMPUTING, states.SENDING)
        text = _PAGES.get_template("page.html").render(
            version=__version__,
            counts=self.queue.counts(),
            totals=self.queue.totals(now - _HOUR),
            free=self._free() / 1e9,
            tables=[
                ("Under way", self.queue.latest(active)),
                ("Awaiting regions", self.queue.latest((states.AWAITING,))),
                ("Failed", self.queue.latest((states.FAILED,))),
                ("Done", self.queue.latest((states.DONE,))),
            ],
            ago=lambda moment: f"{(now - moment) / 60:.0f} min",
        )
        return "text/html", text
