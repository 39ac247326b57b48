"""The receiver on loopback, spoken to by a real peer: who may send, how much, and what is said."""

from __future__ import annotations

import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import edit, write_series, write_structures
from live_node import make_settings, send
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian
from pynetdicom import AE

from cad.base.errors import CadError
from cad.hospital.node import queue as states
from cad.hospital.node import receiver as receiving
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.instance import require_whole
from cad.hospital.node.queue import Queue
from cad.hospital.node.receiver import Receiver
from cad.hospital.node.status import StatusPage

# Where the other end has closed first, the library forgets its socket.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Start = Callable[..., Receiver]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start receivers with changed settings; they end with the test."""
    made: list[Receiver] = []

    def begin(**receiver: object) -> Receiver:
        settings = make_settings(tmp_path / "home", receiver=receiver)
        queue = Queue(settings.home / "queue.sqlite")
        made.append(Receiver(Inbox(settings, queue)))
        return made[-1]

    yield begin
    for one in made:
        one.stop()
        one.inbox.close()
        one.inbox.queue.close()


@pytest.fixture
def images(tmp_path: Path) -> list[pydicom.Dataset]:
    paths = write_series(tmp_path / "in", np.ones((5, 64, 64), np.uint16))
    return [pydicom.dcmread(path) for path in paths]


def get(address: str, method: str = "GET") -> tuple[str, Message]:
    request = urllib.request.Request(address, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        return answer.read().decode(), answer.headers


def kept(receiver: Receiver) -> list[Path]:
    return sorted(receiver.inbox.home.glob("incoming/[!.]*/*"))


def test_echo_and_store(start, images):
    receiver = start()
    port = receiver.address[1]
    assert len(send(port, images)) == 5
    assert len(kept(receiver)) == 5
    assert len(send(port, images)) == 5  # acknowledged again, kept once
    (entry,) = receiver.inbox.queue.latest(states.STATES)
    assert (entry.state, entry.sender, entry.generation) == (states.RECEIVING, "SCANNER", 5)
    entity = AE(ae_title="SCANNER")
    entity.add_requested_context("1.2.840.10008.1.1")
    association = entity.associate("127.0.0.1", port, ae_title="CAD")
    assert association.send_c_echo().Status == 0
    association.release()


@pytest.mark.parametrize(("caller", "called"), [("STRANGER", "CAD"), ("SCANNER", "ANY-SCP")])
def test_strangers_are_refused_logged_and_leave_no_byte(start, images, capsys, caller, called):
    receiver = start()
    before = sorted(receiver.inbox.home.rglob("*"))
    assert send(receiver.address[1], images, caller=caller, aet=called) == []
    assert sorted(receiver.inbox.home.rglob("*")) == before
    assert receiver.inbox.queue.latest(states.STATES) == []
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    refused = [line for line in lines if line["event"] == "association refused"]
    # A stranger's words are logged nowhere, his address is.
    assert [line.get("sender") for line in refused] == [caller if caller == "SCANNER" else None]
    assert [line["address"] for line in refused] == ["127.0.0.1"]
    assert not any("STRANGER" in str(line) or "ANY-SCP" in str(line) for line in lines)


def test_an_association_that_brings_too_much_is_cut(start, images):
    """Acknowledged instances stay; the instance that went beyond is not kept."""
    receiver = start(association_gigabytes=25e-6)
    acknowledged = send(receiver.address[1], images)  # 9 kB each
    assert 0 < len(acknowledged) < 5
    assert len(kept(receiver)) == len(acknowledged)
    assert receiver.refused == 1


def test_damaged_instances_are_refused_and_cost_no_other(start, images):
    receiver = start()
    images[1].StudyInstanceUID = ""
    assert len(send(receiver.address[1], images)) == 4
    assert len(kept(receiver)) == 4


def test_more_associations_than_allowed_are_refused(start, capsys):
    receiver = start(associations=1)
    entity = AE(ae_title="SCANNER")
    entity.add_requested_context("1.2.840.10008.1.1")
    first = entity.associate("127.0.0.1", receiver.address[1], ae_title="CAD")
    second = entity.associate("127.0.0.1", receiver.address[1], ae_title="CAD")
    assert first.is_established
    assert not second.is_established  # a busy caller may miss why
    assert '"too many associations"' in capsys.readouterr().out
    first.release()


def test_stopping_ends_with_the_acknowledgement_of_what_is_being_stored(start, images, monkeypatch):
    receiver = start()
    begun, keep = threading.Event(), receiver.inbox.keep

    def slow(*arguments: object) -> int:
        begun.set()
        time.sleep(0.5)
        return keep(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(receiver.inbox, "keep", slow)
    acknowledged: list[str] = []
    thread = threading.Thread(target=lambda: acknowledged.extend(send(receiver.address[1], images)))
    thread.start()
    assert begun.wait(20)
    receiver.stop()
    thread.join()
    assert len(acknowledged) == len(kept(receiver)) == 1


def test_the_page_holds_the_last_men_against_the_promise(start, images):
    """Three of four were promised to be decided and one is; 1.0 cancers expected, 2 found."""
    receiver = start()
    queue, settings = receiver.inbox.queue, receiver.inbox.settings
    send(receiver.address[1], images)
    with queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
        pass
    queue.settle(entry, states.DONE, time.time())
    run = receiver.inbox.work(entry.key) / "run"
    run.mkdir(parents=True)
    rows = ["a,.7,malignant,1", "b,.3,refer,1", "c,.2,refer,", "d,.1,refer,", "e,,,"]
    table = "\n".join(["participant_id,probability,decision,truth", *rows])
    (run / "patients.csv").write_text(table)
    (run / "metrics.json").write_text('{"patient_level": {"promised_share": 0.75}}')
    page = StatusPage(settings, queue, receiver)
    try:
        text, _ = get(f"http://127.0.0.1:{page.port}/")
        assert "4 all, 1 decided, 3 decided as promised, 2 with histology, 2 with cancer" in text
        metrics, _ = get(f"http://127.0.0.1:{page.port}/metrics")
        assert 'cad_node_last_men{of="with cancer as promised"} 1.0' in metrics
        (run / "metrics.json").write_text("{")
        assert "4 all, 1 decided, 2 with" in get(f"http://127.0.0.1:{page.port}/")[0]
    finally:
        page.stop()


PATIENTS = "probability,decision,truth\n{}\n"
METRICS = '{{"patient_level": {}}}'


@pytest.mark.parametrize(
    ("row", "share"),
    [
        (".5,benign,x", '{"promised_share": 0.5}'),
        ('"3,5",benign,1', '{"promised_share": 0.5}'),
        ("nan,benign,1", '{"promised_share": 0.5}'),
        (".5,benign,1", "null"),
        (".5,benign,1", '{"promised_share": [1]}'),
        (".5,benign,1", '{"promised_share": 1e999}'),
    ],
)
def test_damaged_results_cost_the_page_no_other_row(start, images, tmp_path, row, share):
    receiver = start()
    queue, settings = receiver.inbox.queue, receiver.inbox.settings
    other = write_series(tmp_path / "other", np.ones((1, 64, 64), np.uint16), study="other")
    send(receiver.address[1], [images[0], pydicom.dcmread(other[0])])
    for told in ((".9,malignant,1", '{"promised_share": 1}'), (row, share)):
        with queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
            queue.settle(entry, states.DONE, time.time())
        run = receiver.inbox.work(entry.key) / "run"
        run.mkdir(parents=True)
        (run / "patients.csv").write_text(PATIENTS.format(told[0]))
        (run / "metrics.json").write_text(METRICS.format(told[1]))
    page = StatusPage(settings, queue, receiver)
    try:
        text, _ = get(f"http://127.0.0.1:{page.port}/")
        assert text.count("Its results cannot be read: ") == 1
        assert "Its results" in text[text.index(entry.key) :][:600]
        metrics, _ = get(f"http://127.0.0.1:{page.port}/metrics")
        assert 'cad_node_last_men{of="with results that cannot be read"} 1.0' in metrics
        assert 'cad_node_last_men{of="with histology"} ' in metrics
        for said in ("nan", "inf"):
            assert said not in metrics
    finally:
        page.stop()


def test_a_fault_of_the_page_is_answered_and_logged_with_a_code(start, monkeypatch, capsys):
    receiver = start()
    queue, settings = receiver.inbox.queue, receiver.inbox.settings
    page = StatusPage(settings, queue, receiver)
    monkeypatch.setattr(queue, "counts", lambda: {}["Gravenstein"])
    try:
        for path in ("/", "/metrics", "/health"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(f"http://127.0.0.1:{page.port}{path}")
            assert (caught.value.code, caught.value.reason[:8]) == (503, "KeyError")
            caught.value.close()
    finally:
        page.stop()
    said = capsys.readouterr().out
    assert [json.loads(line)["event"] for line in said.splitlines()] == ["page failed"] * 3
    assert "Gravenstein" not in said


def test_the_page_shows_every_study_by_its_key_and_changes_nothing(start, images, tmp_path):
    receiver = start()
    send(receiver.address[1], images)
    queue, settings = receiver.inbox.queue, receiver.inbox.settings
    with queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
        pass
    queue.settle(entry, states.FAILED, time.time(), reason="<b>no T2</b>", hint="see docs")
    page = StatusPage(settings, queue, receiver)
    root = f"http://127.0.0.1:{page.port}"
    try:
        assert 'cad_node_last_men{of="all"} 0.0' in get(f"{root}/metrics")[0]
        text, headers = get(f"{root}/")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert entry.key in text
        assert "&lt;b&gt;no T2&lt;/b&gt; (see docs)" in text
        metrics, _ = get(f"{root}/metrics")
        assert 'cad_node_studies{state="failed"} 1' in metrics
        assert "cad_node_instances_kept 5" in metrics
        assert json.loads(get(f"{root}/health")[0])["status"] == "ok"
        for secret in ("Gravenstein", "P-001", str(images[0].StudyInstanceUID)):
            assert secret not in text + metrics
        for path, method in (("/../queue.sqlite", "GET"), ("/", "POST")):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(root + path, method)
            assert caught.value.code in (404, 501)
            caught.value.close()
    finally:
        page.stop()


def test_an_image_that_only_differs_is_no_second_chance(start, images, tmp_path):
    """Two instances of one name: the first stays, the second is refused, and said."""
    receiver = start()
    assert len(send(receiver.address[1], images)) == 5
    path = tmp_path / "in" / "1-001.dcm"
    edit(path, ImageComments="changed")
    assert send(receiver.address[1], [pydicom.dcmread(path)]) == []
    assert receiver.refused == 1


@pytest.mark.parametrize("after", ["ValueType", "ContentTemplateSequence", "CompletionFlag"])
def test_a_report_that_was_cut_between_elements_does_not_keep_the_whole_one_out(tmp_path, after):
    """Cut there it is sound DICOM: kept, it would refuse its whole self for good."""
    whole = Dataset()
    whole.file_meta = FileMetaDataset()
    whole.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    whole.file_meta.MediaStorageSOPClassUID = Comprehensive3DSRStorage
    whole.file_meta.MediaStorageSOPInstanceUID = whole.SOPInstanceUID = "1.2.3"
    whole.SOPClassUID, whole.StudyInstanceUID = Comprehensive3DSRStorage, "1.2"
    whole.ValueType, whole.CompletionFlag = "CONTAINER", "COMPLETE"
    item = Dataset()
    item.ValueType = "TEXT"
    whole.ContentTemplateSequence, whole.ContentSequence = [Dataset()], [item]
    path = tmp_path / "report.dcm"
    whole.save_as(path, enforce_file_format=True)
    require_whole(path, Comprehensive3DSRStorage)
    for element in [e for e in whole if e.tag > whole[after].tag]:
        del whole[element.tag]
    whole.save_as(path, enforce_file_format=True)
    with pytest.raises(CadError, match="ends before the content of its report"):
        require_whole(path, Comprehensive3DSRStorage)


def test_a_structure_set_that_was_cut_between_elements_is_not_taken(tmp_path):
    images = write_series(tmp_path / "t2", np.ones((3, 16, 16), np.uint16))
    path = tmp_path / "structures.dcm"
    square = np.array([[2.0, 2, 0], [8, 2, 0], [8, 8, 0], [2, 8, 0]])
    write_structures(path, images[0], {"ROI 1": [square]})
    dataset = pydicom.dcmread(path)
    dataset.RTROIObservationsSequence = [Dataset()]
    dataset.save_as(path)
    require_whole(path, dataset.SOPClassUID)
    del dataset.RTROIObservationsSequence
    dataset.save_as(path)
    with pytest.raises(CadError, match="ends before the observations of its structures"):
        require_whole(path, dataset.SOPClassUID)


def test_an_answer_that_does_not_come_is_logged_and_its_caller_cut(
    start, images, monkeypatch, capsys
):
    """A sender may wait for ever; cut, it sends again, and the log says where its instance was."""
    monkeypatch.setattr(receiving, "_LATE_SECONDS", 0.0)
    monkeypatch.setattr(receiving, "APART_SECONDS", 1.0)
    monkeypatch.setattr(receiving, "_LOOK_SECONDS", 0.2)
    receiver = start(idle_seconds=1.0)
    never, keep = threading.Event(), receiver.inbox.keep

    def stuck(*arguments: object) -> int:
        never.wait(30)
        return keep(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(receiver.inbox, "keep", stuck)
    begun = time.monotonic()
    assert send(receiver.address[1], images) == []
    assert time.monotonic() - begun < 20
    never.set()
    late = [
        line
        for line in map(json.loads, capsys.readouterr().out.splitlines())
        if line["event"] == "answer late"
    ]
    assert [line["sender"] for line in late] == ["SCANNER"]
    assert "receiver._store > receiver._keep" in late[0]["place"]
    monkeypatch.setattr(receiver.inbox, "keep", keep)
    assert len(send(receiver.address[1], images)) == 5


def test_a_spool_that_is_gone_or_cannot_be_written_is_said(start, images, capsys):
    """Made again where that helps; else each refusal is said, and the health answer tells."""
    receiver = start()
    port, spool = receiver.address[1], receiver.inbox.spool
    page = StatusPage(receiver.inbox.settings, receiver.inbox.queue, receiver)
    health = f"http://127.0.0.1:{page.port}/health"
    try:
        shutil.rmtree(spool.parent)
        assert len(send(port, images)) == 5
        shutil.rmtree(spool)
        spool.touch()  # nothing can be written, not even by root
        assert send(port, images) == []
        assert json.loads(get(health)[0])["status"] == "nothing can be received: EEXIST"
        spool.unlink()
        assert len(send(port, images)) == 5
        assert json.loads(get(health)[0])["status"] == "ok"
    finally:
        page.stop()
    (line,) = map(json.loads, capsys.readouterr().out.splitlines()[1:])
    assert line["event"] == "association refused"
    assert line["reason"] == "what comes cannot be written: Not a directory"
