"""Archives: the real one in a namespace of its own, and the ones that do not answer."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import papers
from orthanc import require_orthanc

from cad.base.errors import CadError
from cad.dicom.archive.client import connect
from cad.dicom.archive.settings import ArchiveLimits

HERE = Path(__file__).resolve().parent


def live(
    repository: Path, file: str = "live_archive.py", *more: str, only: str = "", **environment: str
) -> str:
    """Run a file of tests inside with_orthanc.sh; what it printed."""
    require_orthanc()
    script = repository / "tests/support/with_orthanc.sh"
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [script, *command, *more, "-k", only, HERE / file],
        env={**os.environ, "CAD_ORTHANC_STRICT": "true", **environment},
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    return done.stdout


def test_against_a_real_archive(repository):
    """Query, retrieve, import, store, and what goes wrong, by DICOM networking and DICOMweb."""
    live(repository)


def test_against_a_real_archive_over_tls(repository, tmp_path):
    """DICOM over TLS and HTTPS, with certificates of both sides, the right ones and wrong ones."""
    papers(tmp_path)
    # The front's connections are open until the process ends.
    front = ("-p", "no:unraisableexception")
    live(repository, "live_tls.py", *front, CAD_ORTHANC_TLS=str(tmp_path))


@pytest.mark.slow
def test_the_real_study_through_a_real_archive(repository, shared_data, capfd):
    """1,540 files by both protocols."""
    study = str(shared_data / "prostatex" / "ProstateX-0218")
    said = live(repository, only="real_study", CAD_REAL_STUDY=study)
    with capfd.disabled():
        print("\n" + "\n".join(line for line in said.splitlines() if " s" in line))


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(2)
        for one in held:
            one.close()


@pytest.mark.parametrize("address", ["{}", "http://{}/dicom-web"])
def test_silence_ends_in_time(silent: str, address: str):
    start = time.perf_counter()
    with pytest.raises(CadError, match=r"does not answer within 1 s|Timeout"):
        connect(address.format(silent), "PACS", ArchiveLimits(answer_seconds=1)).find("P1")
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://127.0.0.1:1/x"])
def test_nobody_listens(address: str):
    with pytest.raises(CadError) as caught:
        connect(address, "PACS", ArchiveLimits(answer_seconds=2)).find("P1")
    assert caught.value.hint
    assert "127.0.0.1:1" in caught.value.problem


@pytest.mark.parametrize(
    ("address", "aet", "words"),
    [
        ("pacs", "A", "not an archive's address"),
        (":104", "A", "not an archive's address"),
        ("pacs:0", "A", "not an archive's address"),
        ("ftp://pacs", "A", "not an http or https address"),
        ("pacs:104", "", "1 to 16 characters"),
        ("pacs:104", "A" * 17, "1 to 16 characters"),
    ],
)
def test_addresses(address: str, aet: str, words: str):
    with pytest.raises(CadError, match=words):
        connect(address, aet)


def test_the_script_says_how(repository: Path, capfd: pytest.CaptureFixture[str]):
    run: Callable[..., subprocess.CompletedProcess[bytes]] = subprocess.run
    assert run([repository / "tests/support/with_orthanc.sh"], check=False).returncode == 2
    assert "COMMAND" in capfd.readouterr().out


@pytest.mark.parametrize("missing", ["plugin", "program"])
def test_an_archive_without_its_parts_is_skipped_by_a_loud_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
):
    """Without the plugin the tests had failed, as if the program were wrong."""
    if missing == "program":
        monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    else:
        require_orthanc()
        monkeypatch.setenv("CAD_ORTHANC_DICOMWEB", str(tmp_path / "absent.so"))
    with pytest.raises(pytest.skip.Exception, match=r"ABSENT: no real archive was asked"):
        require_orthanc()


@pytest.mark.slow
def test_the_documented_round_trip(repository, tmp_path, capfd):
    """round_trip.py as docs/dicom.md calls it: SR and SEG are in the archive."""
    require_orthanc()
    support = repository / "tests/support"
    steps = [sys.executable, support / "round_trip.py", "--model", "phantom-psvm", tmp_path / "out"]
    done = subprocess.run(
        [support / "with_orthanc.sh", *steps],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "awaiting ROI: sub-Sample0001" in done.stdout
    assert "updated: sub-Sample0001" in done.stdout
    assert done.stdout.count("ROI 1: ") == 1
    assert "the archive lists 22 series MR, 2 series SEG, 1 series SR" in done.stdout
