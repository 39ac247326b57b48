"""Returning results to an archive that is down, refuses, is slow, or says what is not true."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from dicom_cases import write_run
from dicom_files import IDENTIFYING, edit, write_seg, write_series
from live_node import free_port, make_settings
from pydicom.dataset import Dataset
from pynetdicom import AE, build_role, evt
from secret_scan import hits

from cad.base.errors import CadError
from cad.dicom.archive.dimse import COMMITMENT
from cad.hospital.node import queue as states
from cad.hospital.node.service import Node
from cad.hospital.node.trail import Trail
from cad.run.audit.trail import DamagedTrail, verify

FIND, SEG = "1.2.840.10008.5.1.4.1.2.2.1", "1.2.840.10008.5.1.4.1.1.66.4"


class Archive:
    """An archive that counts what it is sent, and behaves as it is told."""

    def __init__(self) -> None:
        self.port, self.behaviour = free_port(), "honest"
        self.came: list[str] = []
        self.answer = threading.Event()
        self.held: set[str] = set()
        self.entity = AE(ae_title="PACS")
        for name in (FIND, SEG, COMMITMENT):
            self.entity.add_supported_context(name)
        self.asked: list[Dataset] = []

    def listen(self) -> None:
        handlers: list[Any] = [
            (evt.EVT_C_FIND, self._find),
            (evt.EVT_C_STORE, self._store),
            (evt.EVT_N_ACTION, self._asked),
        ]
        self.entity.start_server(("127.0.0.1", self.port), block=False, evt_handlers=handlers)

    def _find(self, event: evt.Event) -> Iterator[Any]:
        if event.identifier.QueryRetrieveLevel == "IMAGE":
            for uid in self.held:
                answer = Dataset()
                answer.SOPInstanceUID = uid
                yield 0xFF00, answer

    def _asked(self, event: evt.Event) -> tuple[int, None]:
        self.asked.append(event.action_information)
        return (0x0122 if self.behaviour == "knows no promise" else 0), None

    def report(self, port: int, number: int, *, failed: int = 0) -> int:
        """Answer a request by an association of its own; the status that came back."""
        request, said = self.asked[number], Dataset()
        said.TransactionUID = request.TransactionUID
        items = list(request.ReferencedSOPSequence)
        for item in items[:failed]:
            item.FailureReason = 0x0112
        said.FailedSOPSequence, said.ReferencedSOPSequence = items[:failed], items[failed:]
        entity = AE(ae_title="PACS")
        entity.add_requested_context(COMMITMENT)
        association = entity.associate(
            "127.0.0.1", port, ae_title="CAD", ext_neg=[build_role(COMMITMENT, scp_role=True)]
        )
        status, _ = association.send_n_event_report(
            said, 2 if failed else 1, COMMITMENT, f"{COMMITMENT}.1"
        )
        association.release()
        return int(status.Status)

    def _store(self, event: evt.Event) -> int:
        request: Any = event.request
        self.came.append(str(request.AffectedSOPInstanceUID))
        if self.behaviour == "refuses":
            return 0xA700
        if self.behaviour == "slow":
            self.answer.wait(60)
        if self.behaviour != "lies":
            self.held.add(self.came[-1])
        return 0


@pytest.fixture
def archive() -> Iterator[Archive]:
    one = Archive()
    yield one
    one.entity.shutdown()


@pytest.fixture
def node(archive: Archive, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node with one study that is computed, and to be returned."""
    limits = {"answer_seconds": 8, "proof_seconds": 0.2, "study_seconds": 30}
    own = {"address": f"127.0.0.1:{archive.port}", "retry_seconds": 0.1, "limits": limits}
    more = getattr(request, "param", {})
    settings = make_settings(
        tmp_path / "home", archive={**own, **more}, receiver={"callers": ["SCANNER", "PACS"]}
    )
    made = Node(settings, retry_failed=False)
    images = write_series(tmp_path / "in", np.ones((3, 16, 16), np.uint16))
    mask = np.zeros((3, 16, 16), bool)
    mask[1, 4:8, 4:8] = True
    for path in images:
        with made.inbox.copied(path) as copy:
            made.inbox.keep(copy, "SCANNER", "10.0.0.7")
    with made.queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
        assert entry is not None
    made.queue.settle(entry, states.SENDING, time.time())
    objects = write_run(made.inbox.work(entry.key) / "run", "sub-P1", {"1": 0.7}) / "dicom"
    objects.mkdir()
    for name in "ab":
        write_seg(objects / f"sub-P1_{name}.dcm", images, {name: mask})
    yield made
    made.receiver.stop()
    made.page.stop()
    made.inbox.close()
    made.queue.close()


def entry_of(node: Node) -> states.Entry:
    (entry,) = node.queue.latest(states.STATES)
    return entry


def try_once(node: Node) -> states.Entry:
    time.sleep(max(entry_of(node).due - time.time(), 0))
    assert node.send_one()
    return entry_of(node)


def test_down_then_refusing_then_lying_then_honest(node, archive):
    """Nothing is lost, nothing falsely done; what it holds at last it holds once."""
    for tries, (behaviour, reason) in enumerate(
        [("down", "cannot be reached"), ("refuses", "0xa700"), ("lies", "does not list it")], 1
    ):
        archive.behaviour = behaviour
        if behaviour == "refuses":
            archive.listen()
        entry = try_once(node)
        assert entry.state == states.SENDING
        assert reason in entry.reason
        assert entry.attempts == tries
        assert entry.due > entry.opened
    archive.behaviour = "honest"
    entry = try_once(node)
    assert (entry.state, entry.returned, entry.reason) == (states.DONE, 2, "")
    assert len(archive.held) == 2
    # The trail says what was tried, by whom, with what, and what is there.
    assert verify(node.trail.path).problems == []
    lines = [json.loads(line)["entry"] for line in node.trail.path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", *["send"] * 4]
    assert [line["outcome"] for line in lines[1:]] == [*["not all stored"] * 3, "stored"]
    last = lines[-1]
    assert (last["who"], last["node_key"]) == ("SCANNER", entry.key)
    assert last["senders"] == [{"title": "SCANNER", "peer": "10.0.0.7", "instances": 3}]
    assert {one["sop_instance"] for one in last["returned"]} == archive.held
    assert last["models"][0]["thresholds"] == [0.1, 0.6]
    secrets = [*IDENTIFYING.values(), "P-001", entry_study(node)]
    assert hits([], secrets, [node.trail.path.read_text()]) == []


@pytest.mark.parametrize("left", [0, 100, -9])
def test_a_result_that_the_disk_cut_off_is_computed_again(node, archive, left):
    """Not laid to the archive, which was never asked."""
    archive.listen()
    cut = sorted(node.inbox.work(entry_of(node).key).glob("run/dicom/*.dcm"))[1]
    cut.write_bytes(cut.read_bytes()[:left])
    entry = try_once(node)
    assert (entry.state, entry.reason, archive.came) == (states.QUEUED, "", [])


def entry_study(node: Node) -> str:
    return str(pydicom.dcmread(next(node.inbox.home.glob("incoming/[!.]*/*"))).StudyInstanceUID)


def test_a_trail_that_somebody_changed_stops_the_node(node, archive, tmp_path):
    """Nothing is returned that cannot be written down."""
    archive.listen()
    path = node.trail.path
    path.write_bytes(path.read_bytes()[:-2] + b"x\n")
    with pytest.raises(DamagedTrail, match="changed or taken away while the node ran"):
        try_once(node)
    assert entry_of(node).state == states.SENDING
    with pytest.raises(CadError, match="is not what was written"):
        Trail(node.settings, node.queue)


def test_a_trail_elsewhere_is_found_by_the_nodes_folder(node, tmp_path, monkeypatch):
    """A node with a trail in its folder goes on with it elsewhere only once it was moved."""
    inside, other = node.settings.home / "audit.jsonl", tmp_path / "log" / "audit.jsonl"
    moved = node.settings.model_copy(update={"audit": other})
    with pytest.raises(CadError, match="trail is here") as refused:
        Trail(moved, node.queue)
    assert f"mv {inside} {other}" in (refused.value.hint or "")
    other.parent.mkdir()
    inside.rename(other)
    flushed, fsync = [], os.fsync

    def seen(handle: int) -> None:
        if inside.is_symlink() and os.path.samestat(os.fstat(handle), inside.parent.stat()):
            flushed.append(inside.readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    for _ in range(2):
        Trail(moved, node.queue).note("again")
    assert flushed == [other]  # a power cut would lose it
    lines = [json.loads(line)["entry"]["event"] for line in inside.read_text().splitlines()]
    assert lines[-4:] == ["start", "again"] * 2
    assert verify(other).problems == []


def test_slow_beyond_the_limit_and_what_it_has_meanwhile_is_not_sent_again(node, archive):
    """The first object arrives, unanswered in time: asked again, the archive lists it."""
    archive.behaviour = "slow"
    archive.listen()
    assert try_once(node).state == states.SENDING
    archive.behaviour = "honest"
    archive.answer.set()  # it files the object after all
    while not archive.held:
        time.sleep(0.05)
    while try_once(node).state != states.DONE:  # a busy machine may be slow again
        pass
    assert sorted(archive.came) == sorted(archive.held)
    assert len(archive.came) == 2


def test_the_waits_grow_to_a_limit(node):
    entry = entry_of(node)
    waits = [
        node._patience(states.Entry(**{**entry.__dict__, "attempts": tries}))
        for tries in (1, 2, 3, 60)
    ]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 900])


def outcomes(node: Node) -> list[str]:
    lines = [json.loads(line)["entry"] for line in node.trail.path.read_text().splitlines()]
    return [line["outcome"] for line in lines if line["event"] == "send"]


def wait_for_done(node: Node) -> None:
    end = time.monotonic() + 20
    while entry_of(node).state != states.DONE:
        assert time.monotonic() < end
        time.sleep(0.02)


COMMITTED = {"commitment": True, "commitment_seconds": 0.5}


@pytest.mark.parametrize("node", [COMMITTED], indirect=True)
def test_done_only_when_the_archive_has_promised_to_keep_it(node, archive):
    """Refused to promise, promised in part, then whole; each object is sent once."""
    archive.listen()
    port = node.receiver.address[1]
    archive.behaviour = "knows no promise"
    entry = try_once(node)
    assert (entry.state, entry.returned) == (states.SENDING, 2)
    assert "failed with status 0x0122" in entry.reason
    archive.behaviour = "honest"
    assert "not promised" in try_once(node).reason
    assert archive.report(port, -1, failed=1) == 0
    entry = entry_of(node)
    assert entry.state == states.SENDING
    assert "does not promise to keep every object" in entry.reason
    assert try_once(node).state == states.SENDING
    assert archive.report(port, -1) == 0
    wait_for_done(node)
    assert (entry_of(node).returned, entry_of(node).reason) == (2, "")
    assert sorted(archive.came) == sorted(archive.held)
    assert len(archive.came) == 2
    assert outcomes(node) == ["stored", "committed"]
    assert archive.report(port, -1) == 0  # it may say so twice
    assert outcomes(node) == ["stored", "committed"]


@pytest.mark.parametrize("node", [COMMITTED], indirect=True)
def test_a_late_promise_counts_and_one_for_less_does_not(node, archive, tmp_path):
    """Asked twice, the first is answered; before that, more of the study arrives."""
    archive.listen()
    port = node.receiver.address[1]
    assert try_once(node).state == states.SENDING
    assert try_once(node).attempts == 2
    assert len({one.TransactionUID for one in archive.asked}) == 2
    edit(tmp_path / "in" / "1-001.dcm", SOPInstanceUID="1.2.3.4.5.6")
    with node.inbox.copied(tmp_path / "in" / "1-001.dcm") as copy:
        node.inbox.keep(copy, "SCANNER")
    assert archive.report(port, 0) == 0  # of a result that is none any more
    entry = entry_of(node)
    assert (entry.state, entry.generation) == (states.RECEIVING, 4)
    with node.queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
        assert entry is not None
    node.queue.settle(entry, states.SENDING, time.time())
    assert archive.report(port, 0) == 0
    assert entry_of(node).state == states.SENDING
    assert try_once(node).state == states.SENDING
    assert try_once(node).state == states.SENDING
    assert archive.report(port, -2) == 0  # late, but of this result
    wait_for_done(node)


def test_a_promise_needs_an_archive_that_may_call(tmp_path):
    for archive, callers in (
        ({"commitment": True}, ["SCANNER"]),
        ({"commitment": True, "address": "https://pacs/dicom-web"}, ["PACS"]),
    ):
        with pytest.raises(ValueError, match="the archive calls back to promise"):
            make_settings(tmp_path / "home", archive=archive, receiver={"callers": callers})
