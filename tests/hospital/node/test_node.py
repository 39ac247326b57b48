"""The node as it is started, beside a real Orthanc in a network namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from certificates import papers
from live_node import count_arrivals
from orthanc import require_orthanc

HERE = Path(__file__).resolve().parent


def beside_orthanc(
    repository: Path, folder: Path, *command: object, seconds: int = 280, **more: str
) -> str:
    """Run a command beside an archive that counts what it is sent; what it printed."""
    require_orthanc()
    arrived, script = count_arrivals(folder)
    done = subprocess.run(
        [repository / "tests/support/with_orthanc.sh", sys.executable, *map(str, command)],
        env={**os.environ, "CAD_ARRIVED": str(arrived), "CAD_ORTHANC_LUA": script, **more},
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_studies_come_back_once_though_the_node_is_killed(repository, tmp_path):
    """The benchmark in small, with an archive that promises to keep; it judges itself."""
    small = ["--studies", "2", "--kills", "1", "--jobs", "1", "--commitment"]
    found = json.loads(beside_orthanc(repository, tmp_path, "-m", "benchmarks.node", *small))
    assert found["instances"] == 2 * 29  # 14 slices of T2, 14 of ADC, the SEG
    assert set(found["wrong"].values()) == {0}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_node_beside_a_real_archive(repository, tmp_path):
    """Kills at every step, an archive that is down, dcmtk, a watched folder, failures."""
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "live_serve.py"]
    assert " passed" in beside_orthanc(repository, tmp_path, *tests, seconds=1400)


@pytest.mark.slow
def test_scanner_node_and_archive_on_three_machines(repository, tmp_path):
    """Each in a network namespace of its own, certificates on every cable."""
    papers(tmp_path / "papers")
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "live_apart.py"]
    tls = {"CAD_ORTHANC_TLS": str(tmp_path / "papers")}
    assert " passed" in beside_orthanc(repository, tmp_path, *tests, **tls)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_documented_demonstration(repository, tmp_path):
    said = beside_orthanc(repository, tmp_path, "scripts/node_demo.py", seconds=1400)
    assert said.count("the archive has of ours: SEG, SR") >= 1
