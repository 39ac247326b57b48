"""Show whom the program trusts, and the gaps in its protection, as SECURITY.md states them."""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel

from cad.base.errors import CadError
from cad.base.processes import landlock
from cad.base.processes.limited import call_limited
from cad.base.settings import PipelineSettings
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.archive.web import WebArchive
from cad.folders.cohort import read_cohort
from cad.hospital.node.settings import NodeSettings
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.run.execution.worker import Confined

# Texts of a pipeline file: shown, compared with names of columns or readers, or looked up in a
# fixed list of learners and of their parameters.
TEXTS = {
    "name",
    "description",
    "features.exclude",
    "features.filters.wavelet",
    "features.filters.bands",
    "labels.readers",
    "learner.name",
    "learner.params",
    "learner.grid",
}


def kinds_of(annotation: Any) -> Iterator[Any]:
    """Yield the plain types inside an annotation; a choice among fixed words yields nothing."""
    if typing.get_origin(annotation) is typing.Literal:
        return
    inner = typing.get_args(annotation)
    if not inner:
        yield annotation
    for part in inner:
        yield from kinds_of(part)


def keys_of(model: type[BaseModel], around: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key of a settings file with the types that its value may have."""
    for name, field in model.model_fields.items():
        for kind in kinds_of(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys_of(kind, f"{around}{name}.")
            elif (kind is not Ellipsis and isinstance(kind, type)) or kind is Any:
                yield around + name, kind


def test_a_pipeline_file_chooses_numbers_and_names_of_fixed_lists():
    other = set()
    for key, kind in keys_of(PipelineSettings):
        if kind not in (int, float, bool, type(None)):
            other.add(key)
        assert kind is not Path
    assert other == TEXTS


def test_the_settings_of_a_node_name_folders_and_addresses():
    kinds = dict(keys_of(NodeSettings))
    assert kinds["home"] is Path
    assert kinds["archive.address"] is str


def test_who_writes_a_cohort_changes_it_unasked(light_cohort: Path, tmp_path: Path):
    """Tables have no signature."""
    cohort = Path(shutil.copytree(light_cohort, tmp_path / "cohort"))
    table = pd.read_csv(cohort / "scores.tsv", sep="\t", dtype=str)
    table["score"] = "5"
    table.to_csv(cohort / "scores.tsv", sep="\t", index=False)
    assert set(read_cohort(cohort).scores["score"].astype(float)) == {5.0}


class OnArrival:
    """Call a function of its reader's process when it arrives there."""

    def __reduce__(self) -> tuple[Callable[[], int], tuple[()]]:
        return os.getpid, ()


def test_what_a_child_sends_back_is_trusted():
    """Its answer is unpickled: who runs code in a child can run code in the parent."""
    assert call_limited(OnArrival, seconds=20.0, gigabytes=1.0) == os.getpid()


def reach(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        return connection.recv(5).decode()


@pytest.mark.skipif(not landlock.version(), reason="LANDLOCK ABSENT: nothing is confined")
def test_a_confined_process_connects_signals_and_changes_modes(tmp_path: Path):
    """Landlock guards the opening of files alone."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    inside = tmp_path / "inside"
    inside.mkdir()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    options = ExecutionOptions(1, time_limit=60.0, memory_limit=4.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Caller(options, confined=Confined((inside,), (), (__name__,))) as call,
    ):

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"hello")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert call(reach, server.getsockname()[1]) == "hello"
        thread.join()
        call(os.kill, sleeper.pid, signal.SIGTERM)
        assert sleeper.wait(20) == -signal.SIGTERM
        call(os.chmod, outside, 0o604)
        call(os.utime, outside, (1.0, 2.0))
        with pytest.raises(OSError, match="Permission denied"):
            call(Path.read_bytes, outside)
    assert outside.stat().st_mode & 0o777 == 0o604
    assert outside.stat().st_mtime == 2.0


@pytest.mark.filterwarnings("ignore")  # Dask's own, at its end
def test_a_dask_cluster_runs_what_anybody_sends(tmp_path: Path):
    """Without a password: a second client, which knows the address alone, sends code."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster.scheduler_address) as stranger,
    ):
        assert stranger.submit(eval, "6 * 7").result(timeout=30) == 42


def test_a_query_without_tls_is_readable_on_the_way():
    asked = []

    class Listening(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing to the terminal."""

    with http.server.HTTPServer(("127.0.0.1", 0), Listening) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        archive = WebArchive(f"http://127.0.0.1:{server.server_port}", ArchiveLimits())
        with contextlib.suppress(CadError):
            archive._studies({"PatientID": "MRN-55821"})
        thread.join()
    assert "PatientID=MRN-55821" in asked[0]


def test_nothing_bounds_the_number_of_studies(light_cohort: Path, tmp_path: Path):
    (study,) = read_cohort(light_cohort).studies()[:1]
    cohort = tmp_path / "cohort"
    cohort.mkdir()
    for path in light_cohort.iterdir():
        if path.is_file():
            shutil.copy(path, cohort)
    for path in cohort.glob("*.tsv"):
        table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
        if "participant_id" not in table:
            continue
        rows = table[table["participant_id"] == study.participant_id]
        copies = []
        for number in range(2_000):
            copies.append(rows.assign(participant_id=f"sub-N{number:04d}"))
        pd.concat(copies).to_csv(path, sep="\t", index=False)
    for number in range(2_000):
        (cohort / f"sub-N{number:04d}").mkdir()
    assert len(read_cohort(cohort).studies()) == 2_000
