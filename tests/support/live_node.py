"""A node as an operator starts it, the studies that are sent to it, and the archive's listing."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pydicom
from dicom_files import uid, write_seg
from pydicom.dataset import Dataset
from pynetdicom import AE

from cad.base.share import shared
from cad.hospital.node.settings import NodeSettings
from cad.mri.imaging.nifti import read_volume

STORED = ("1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.5.1.4.1.1.66.4")  # MR, SEG
SERIES = ("02-t2_tse_tra", "05-ep2d_diff_tra_ADC")
CALLER = "SCANNER"


def make_settings(home: Path, **changes: Any) -> NodeSettings:
    """Settings of a node on free ports, parts of them changed."""
    home.mkdir(exist_ok=True)
    content: dict[str, Any] = {
        "home": str(home),
        "rules": "sample",
        "models": ["phantom-psvm-biparametric"],
        "receiver": {"port": 0, "callers": ["SCANNER"], "reserve_gigabytes": 0},
        "archive": {"address": "127.0.0.1:1", "aet": "PACS"},
        "studies": {"quiet_seconds": 1},
        "status": {"port": 0},
    }
    for name, part in changes.items():
        content[name] = {**content.get(name, {}), **part}
    return NodeSettings.model_validate(content)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def sample_study(scratch: Path) -> list[Dataset]:
    """T2 and ADC of the sample study and, last, its regions as a workstation's SEG."""
    study = shared("sample_data", "dicom", "Sample0001")
    paths = [path for name in SERIES for path in sorted((study / name).glob("*.dcm"))]
    images = sorted(
        paths[: len(paths) // 2],
        key=lambda p: float(pydicom.dcmread(p, stop_before_pixels=True).ImagePositionPatient[2]),
    )
    labels = read_volume(study / "rois.nii.gz").array
    write_seg(
        scratch / "seg.dcm", images, {str(n): labels == n for n in (1, 2, 3) if (labels == n).any()}
    )
    return [pydicom.dcmread(path) for path in [*paths, scratch / "seg.dcm"]]


def renamed(study: list[Dataset], number: int) -> list[Dataset]:
    """The study of another patient: every UID of an instance, series, study and frame is new."""

    def change(dataset: Dataset) -> None:
        for element in dataset:
            if element.VR == "SQ":
                for item in element.value:
                    change(item)
            elif element.VR == "UI" and not str(element.value).startswith("1.2.840.10008."):
                element.value = uid(number, element.value)

    made = []
    for dataset in study:
        one = deepcopy(dataset)
        change(one)
        one.file_meta.MediaStorageSOPInstanceUID = one.SOPInstanceUID
        one.PatientID, one.PatientName = f"MRN-{number:05d}", f"Gravenstein^Waldemar{number}"
        one.PatientBirthDate, one.AccessionNumber = "19470503", f"ACC{number:05d}"
        made.append(one)
    return made


def send(
    port: int,
    datasets: Iterable[Dataset],
    caller: str = CALLER,
    aet: str = "CAD",
    seconds: list[float] | None = None,
    tls: ssl.SSLContext | None = None,
) -> list[str]:
    """Store instances by one association; the UIDs that were acknowledged.

    ``seconds`` receives how long each acknowledgement took.
    """
    entity = AE(ae_title=caller)
    entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = 60
    for name in STORED:
        entity.add_requested_context(name)
    encryption = (tls, "localhost") if tls else None
    association = entity.associate("127.0.0.1", port, ae_title=aet, tls_args=encryption)
    kept = []
    if association.is_established:
        transport: Any = association.dul.socket
        if transport is not None and transport.socket is not None:
            transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for dataset in datasets:
            begun = time.perf_counter()
            try:
                status = association.send_c_store(dataset)
            except (RuntimeError, ValueError, OSError):
                break
            if status.get("Status") == 0:
                kept.append(str(dataset.SOPInstanceUID))
                if seconds is not None:
                    seconds.append(time.perf_counter() - begun)
            elif "Status" not in status:
                break
    if association.is_established:
        association.release()
    transport = association.dul.socket
    if transport is not None and transport.socket is not None:
        transport.socket.close()  # the library leaves it open where the node has cut it
    return kept


class Node:
    """`cad serve` in a process of its own, with its log."""

    def __init__(self, folder: Path, archive: str, aet: str, /, **changes: Any) -> None:
        self.folder, self.home, self.log = folder, folder / "home", folder / "log"
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.page = free_port(), free_port()
        settings = {
            "home": str(self.home),
            "rules": "sample",
            "models": ["phantom-psvm-biparametric"],
            "receiver": {"port": self.port, "callers": [CALLER, "OTHER"], "reserve_gigabytes": 0},
            "archive": {"address": archive, "aet": aet, "retry_seconds": 1},
            "studies": {"quiet_seconds": 1},
            "status": {"port": self.page},
        }
        for name, part in changes.items():
            settings[name] = {**settings.get(name, {}), **part} if isinstance(part, dict) else part
        self.config = folder / "node.yaml"
        self.config.write_text(json.dumps(settings))  # which is YAML, too
        self.process: subprocess.Popen[bytes] | None = None
        self.on: list[str] = []  # what runs a command on the node's machine, if not on this one

    def start(self, *more: str) -> None:
        before = len(self.lines("started"))
        serve = [sys.executable, "-m", "cad.cli", "serve", "--config", str(self.config), *more]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*self.on, *serve], stdout=log, stderr=log)
        self.wait(lambda: len(self.lines("started")) > before)

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """The log's lines, of one event; the last one may be half written."""
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return [line for line in found if not event or line["event"] == event]

    def wait(self, what: Callable[[], Any], seconds: float = 900.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"not in time:\n{self.log.read_text()[-6000:]}")
            time.sleep(0.05)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = json.loads(self.get("/health"))["studies"]
        return counts

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def rest(path: str, method: str = "GET", body: object = None) -> Any:
    """Ask Orthanc."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["CAD_ORTHANC"] + path, data, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


def introduce(node: Node, **more: Any) -> None:
    """Tell Orthanc where the node is, so that it can send, move and promise."""
    place = {"AET": "CAD", "Host": "127.0.0.1", "Port": node.port, **more}
    rest("/modalities/NODE", "PUT", place)


def push(paths: Iterable[Path]) -> list[str]:
    """Put files into Orthanc; its names of the instances."""
    made = []
    for path in paths:
        body = path.read_bytes()
        request = urllib.request.Request(os.environ["CAD_ORTHANC"] + "/instances", body)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            made.append(json.loads(answer.read())["ID"])
    return made


def results(study: str) -> list[str]:
    """The modalities of our own series that Orthanc holds for a study."""
    asked = {"Level": "Series", "Query": {"StudyInstanceUID": study}, "Expand": True}
    found = [one["MainDicomTags"] for one in rest("/tools/find", "POST", asked)]
    return sorted(
        t["Modality"] for t in found if t.get("SeriesDescription", "").startswith("cad: ")
    )


ARRIVALS = """
function ReceivedInstanceFilter(dicom, origin)
  local file = io.open("{}", "a")
  file:write(dicom.SOPInstanceUID .. " " .. (dicom.SeriesDescription or "") .. "\\n")
  file:close()
  return true
end
"""


def count_arrivals(folder: Path) -> tuple[Path, str]:
    """A file to which Orthanc writes every object that it is sent, and the script that does it.

    What is sent twice is there twice, though the archive keeps it once.
    """
    arrived, script = folder / "arrived", folder / "arrived.lua"
    script.write_text(ARRIVALS.format(arrived))
    return arrived, str(script)


def each_of(associations: int, work: list[Callable[[], None]]) -> None:
    """Do pieces of work by so many threads at once."""
    waiting: Iterator[Callable[[], None]] = iter(work)
    lock = threading.Lock()

    def labour() -> None:
        while True:
            with lock:
                piece = next(waiting, None)
            if piece is None:
                return
            piece()

    threads = [threading.Thread(target=labour) for _ in range(associations)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
