"""Scanner, node and archive on three machines, TLS between all: run by test_node.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import scu, shown
from dicom_files import dcmtk
from live_node import Node, renamed, results, sample_study
from machines import connect, machine, on

PAPERS = Path(os.environ["CAD_ORTHANC_TLS"])
ARCHIVE, TO_ARCHIVE = "10.9.0.1", "10.9.0.2"
NODE, SCANNER = "10.9.1.1", "10.9.1.2"
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture
def machines() -> Iterator[tuple[list[str], list[str]]]:
    """The node's and the scanner's; the archive's is this one. None but the node knows both."""
    with machine() as node, machine() as scanner:
        connect("pacs", ([], ARCHIVE), node, TO_ARCHIVE)
        connect("scan", (on(node), NODE), scanner, SCANNER)
        yield on(node), on(scanner)


def test_a_study_crosses_three_machines(tmp_path, machines):
    """Its result is in the archive; the status page answers on the node's own machine only."""
    there, scanner = machines
    node = Node(
        tmp_path / "node",
        f"{ARCHIVE}:4242",
        os.environ["CAD_ARCHIVE_AET"],
        receiver={"host": NODE, "tls": shown(PAPERS, "node")},
        archive={"limits": {"tls": shown(PAPERS, "node")}},
    )
    node.on = there
    study = renamed(sample_study(tmp_path), 9)
    files = [tmp_path / f"{number}.dcm" for number in range(len(study))]
    for one, path in zip(study, files, strict=True):
        one.save_as(path)
    node.start()
    called = ["-to", "10", "-aet", "SCANNER", "-aec", "CAD", NODE, str(node.port)]
    sent = ["-R", *scu(shown(PAPERS, "scanner")), *called, *map(str, files)]

    def store(who: list[str]) -> int:
        quick = {**os.environ, "TCP_NODELAY": "1"}
        command = [*who, dcmtk("storescu"), *sent]
        return subprocess.run(command, timeout=120, env=quick, check=False).returncode

    assert store([]) != 0  # the archive's machine has no cable to where the node listens
    assert store(scanner) == 0

    def page(who: list[str], host: str) -> subprocess.CompletedProcess[str]:
        command = [*who, sys.executable, "-c", FETCH, f"http://{host}:{node.page}/health"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    node.wait(lambda: json.loads(page(there, "127.0.0.1").stdout)["studies"]["done"] == 1)
    assert results(str(study[0].StudyInstanceUID)) == ["SEG", "SR"]
    for who, host in ((scanner, NODE), ([], TO_ARCHIVE)):
        assert "refused" in page(who, host).stderr
    assert node.stop() == 0
