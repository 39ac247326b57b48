"""A node beside a real Orthanc: run by test_node.py inside tests/support/with_orthanc.sh."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pydicom
import pytest
from dicom_files import dcmtk
from live_node import Node, free_port, introduce, push, renamed, rest, results, sample_study, send

from cad.hospital.node import queue as states

ARCHIVE, AET = os.environ["CAD_ARCHIVE"], os.environ["CAD_ARCHIVE_AET"]


@pytest.fixture
def study(tmp_path: Path) -> list[pydicom.Dataset]:
    return renamed(sample_study(tmp_path), 7)


def test_regions_that_arrive_later_complete_a_study_across_kills(tmp_path, study):
    """Killed while receiving, computing and sending; each time it goes on where it was."""
    node = Node(tmp_path / "node", ARCHIVE, AET)
    node.start()
    assert len(send(node.port, study[:10])) == 10
    node.kill()  # receiving
    node.start()
    assert len(send(node.port, study[10:-1])) == len(study) - 11
    node.wait(lambda: node.counts()[states.AWAITING] == 1)
    node.kill()  # waiting
    node.start()
    assert len(send(node.port, study[-1:])) == 1
    node.wait(lambda: node.counts()[states.COMPUTING] == 1)
    node.kill()  # computing
    node.start()
    node.wait(lambda: node.counts()[states.SENDING] == 1)
    node.kill()  # sending
    node.start()
    node.wait(lambda: node.counts()[states.DONE] == 1)
    assert results(str(study[0].StudyInstanceUID)) == ["SEG", "SR"]
    assert node.stop() == 0


def test_an_archive_that_is_down_for_a_while(tmp_path, study):
    """The result waits; when somebody answers at the address again, it goes."""
    port = free_port()
    node = Node(tmp_path / "node", f"127.0.0.1:{port}", AET)
    node.start()
    send(node.port, study)
    node.wait(lambda: len(node.lines("waits")) >= 2)
    assert "cannot be reached" in node.lines("waits")[-1]["reason"]
    assert node.stop() == 0
    node.config.write_text(node.config.read_text().replace(f"127.0.0.1:{port}", ARCHIVE))
    node.start()
    node.wait(lambda: node.counts()[states.DONE] == 1)
    assert results(str(study[0].StudyInstanceUID)) == ["SEG", "SR"]
    assert node.stop() == 0


def test_dcmtk_sends_and_a_folder_is_watched(tmp_path, study):
    """storescu brings one study, an export the other; both come back."""
    storescu, echoscu = dcmtk("storescu"), dcmtk("echoscu")
    exported = tmp_path / "exported" / "study"
    exported.mkdir(parents=True)
    node = Node(
        tmp_path / "node", ARCHIVE, AET, watch={"folder": str(exported.parent), "quiet_seconds": 1}
    )
    node.start()
    other, files = renamed(study, 8), []
    for number, (one, two) in enumerate(zip(study, other, strict=True)):
        one.save_as(tmp_path / f"{number}.dcm")
        files.append(tmp_path / f"{number}.dcm")
        two.save_as(exported / f"{number}.dcm")
    called = ["-aet", "SCANNER", "-aec", "CAD", "127.0.0.1", str(node.port)]
    subprocess.run([echoscu, *called], check=True, timeout=60)
    # storescu proposes no segmentation by itself; with -R it proposes what the files are.
    command = [storescu, "-R", *called, *map(str, files)]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, "TCP_NODELAY": "1"})
    node.wait(lambda: node.counts()[states.DONE] == 2)
    for one in (study, other):
        assert results(str(one[0].StudyInstanceUID)) == ["SEG", "SR"]
    senders = {line["sender"] for line in node.lines("study opened")}
    assert senders == {"SCANNER", "folder"}
    assert node.stop() == 0


def test_an_archive_moves_a_study_here_when_a_workstation_asks(tmp_path, study):
    """dcmtk's movescu names the node as destination; Orthanc sends."""
    node = Node(tmp_path / "node", ARCHIVE, AET, receiver={"callers": [AET]})
    node.start()
    introduce(node)
    stranger = renamed(study, 21)  # nothing of ours is in the archive, which would be sent along
    files = [tmp_path / f"{number}.dcm" for number in range(len(stranger))]
    for one, path in zip(stranger, files, strict=True):
        one.save_as(path)
    push(files)
    uid = stranger[0].StudyInstanceUID
    asked = ["-k", "QueryRetrieveLevel=STUDY", "-k", f"StudyInstanceUID={uid}"]
    titles = ["-S", "-aet", "STATION", "-aec", AET, "-aem", "CAD"]
    command = [dcmtk("movescu"), *titles, *asked, *ARCHIVE.split(":")]
    subprocess.run(command, check=True, timeout=120)
    node.wait(lambda: node.counts()[states.DONE] == 1)
    assert results(str(uid)) == ["SEG", "SR"]
    assert {line["sender"] for line in node.lines("study opened")} == {AET}
    assert node.stop() == 0


def test_a_study_that_no_rule_takes_fails_with_a_hint_and_names_nobody(tmp_path, study):
    for one in study[:-1]:
        one.SeriesDescription = "Gravenstein"
    node = Node(tmp_path / "node", ARCHIVE, AET)
    node.start()
    send(node.port, study[:5])
    node.wait(lambda: node.counts()[states.FAILED] == 1)
    (line,) = node.lines("failed")
    assert line["reason"]
    assert "Gravenstein" not in node.log.read_text() + node.get("/")
    assert node.stop() == 0
    node.start("--retry-failed")
    assert node.lines("started")[-1]["again"] == 1
    node.wait(lambda: node.counts()[states.FAILED] == 1)
    assert node.stop() == 0


def test_two_nodes_do_not_share_a_home(tmp_path):
    node = Node(tmp_path / "node", ARCHIVE, AET)
    node.start()
    other = Node(tmp_path / "node", ARCHIVE, AET)  # another process, the same home
    with pytest.raises(AssertionError, match="another run writes into this folder"):
        other.start()
    assert node.process is not None
    assert node.process.poll() is None
    assert node.stop() == 0
    assert rest("/instances") is not None
