"""A polled archive that misbehaves costs time alone: the next honest answer brings the study."""

from __future__ import annotations

import json
from pathlib import Path

import bad_dimse
import pytest
from misbehaving import PATIENT, write_truth

from cad.dicom.archive.settings import ArchiveLimits
from cad.node import queue as states
from cad.node.inbox import Inbox
from cad.node.poll import Poller
from cad.node.settings import ArchiveSettings, PollSettings

LIMITS = ArchiveLimits(answer_seconds=1.0, study_seconds=3.0, memory_gigabytes=1.0, answers=50)


def poller(inbox: Inbox, address: str) -> Poller:
    archive = ArchiveSettings(address=address, aet="PACS", limits=LIMITS)
    return Poller(PollSettings(every_seconds=1e-3), archive, inbox)


def gone_meanwhile(server: bad_dimse.Server) -> None:
    """The study vanishes between the listing and the fetching."""
    server.get = lambda event: server.sending([])


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "fault",
    ["down", "closes_at_once", "silent", "pdu_cut_off", "accept_of_damaged_items",
     "finds_but_does_not_give", "find_hangs", "find_without_end", "gone_meanwhile"],
)  # fmt: skip
def test_a_poll_that_fails_is_said_and_repeated(fault, inbox, tmp_path: Path, capsys):
    truth = write_truth(tmp_path / "study")
    server = bad_dimse.Server(truth)
    if fault == "gone_meanwhile":
        gone_meanwhile(server)
    elif fault != "down":
        bad_dimse.BEHAVIOURS[fault].script(server)
    address, end = bad_dimse._raw(server) if server.raw else bad_dimse._dimse(server)
    if fault == "down":
        end()
    assert not poller(inbox, address).look()
    if fault != "down":
        end()
    said = capsys.readouterr().out
    assert {json.loads(line)["event"] for line in said.splitlines()} == {"poll failed"}
    assert PATIENT not in said
    assert inbox.queue.latest(states.STATES) == []
    assert [path.name for path in (inbox.home / "incoming").iterdir()] == [".spool"]
    address, end = bad_dimse._dimse(bad_dimse.Server(truth))
    try:
        asked = poller(inbox, address)
        assert asked.look()
        assert not asked.look()  # each series once
    finally:
        end()
    (entry,) = inbox.queue.latest(states.STATES)
    assert inbox.queue.count_of(entry.key, "MR") == len(truth.study)
