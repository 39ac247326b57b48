"""OHIF, the viewer, as a test finds it: its built files from npm, served beside an archive."""

from __future__ import annotations

import json
import subprocess
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PACKAGE = "@ohif/app@3.12.10"


def built_files(into: Path) -> Path:
    """Fetch the package (48 MB) once; return the folder of its built files."""
    built = into / "package" / "dist"
    if not built.is_dir():
        into.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE],
            cwd=into,
            capture_output=True,
            text=True,
            check=True,
        )
        with tarfile.open(into / packed.stdout.strip()) as archive:
            archive.extractall(into, filter="data")
    return built


class _Viewer(SimpleHTTPRequestHandler):
    """Serve the viewer's files, its settings, and the archive behind the same address."""

    def __init__(self, *arguments: Any, archive: str, **more: Any) -> None:
        self.archive = archive
        super().__init__(*arguments, **more)

    def do_GET(self) -> None:
        if self.path.startswith("/dicom-web/"):
            self._pass_on()
        elif self.path == "/app-config.js":
            self._answer(200, "text/javascript", _settings().encode())
        else:
            if not Path(self.translate_path(self.path)).is_file():
                self.path = "/index.html"  # the viewer's own addresses
            super().do_GET()

    def _pass_on(self) -> None:
        asked = urllib.request.Request(self.archive + self.path, headers=self._wanted())  # noqa: S310
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
                self._answer(answer.status, answer.headers["Content-Type"], answer.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code, "text/plain", error.read())

    def _wanted(self) -> dict[str, str]:
        return {"Accept": self.headers.get("Accept", "*/*")}

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _settings() -> str:
    """Return OHIF's settings: one archive, no questions before a SEG or an SR is shown."""
    roots = dict.fromkeys(("qidoRoot", "wadoRoot", "wadoUriRoot"), "/dicom-web")
    source = {
        "namespace": "@ohif/extension-default.dataSourcesModule.dicomweb",
        "sourceName": "archive",
        "configuration": {
            "friendlyName": "archive",
            "name": "archive",
            **roots,
            "qidoSupportsIncludeField": False,
            "imageRendering": "wadors",
            "thumbnailRendering": "wadors",
            "enableStudyLazyLoad": True,
            "supportsFuzzyMatching": False,
            "supportsWildcard": True,
            "bulkDataURI": {"enabled": True},
        },
    }
    settings = {
        "routerBasename": "/",
        "extensions": [],
        "modes": [],
        "showStudyList": True,
        "disableConfirmationPrompts": True,
        "investigationalUseDialog": {"option": "never"},
        "defaultDataSourceName": "archive",
        "dataSources": [source],
    }
    return f"window.config = {json.dumps(settings)};"


@contextmanager
def served(built: Path, archive: str) -> Iterator[str]:
    """Serve the viewer on a free port of this machine; ``archive`` is Orthanc's root address."""
    handler = partial(_Viewer, directory=str(built), archive=archive)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
