"""A polled archive that misbehaves costs time alone: the next honest answer brings the study."""

from __future__ import annotations

import json
from pathlib import Path

import bad_dimse
import bad_web
import pytest
from misbehaving import PATIENT, Behaviour, write_truth

from cad.dicom.archive.settings import ArchiveLimits
from cad.hospital.node import queue as states
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.poll import Poller
from cad.hospital.node.settings import ArchiveSettings, PollSettings

LIMITS = ArchiveLimits(answer_seconds=1.0, study_seconds=3.0, memory_gigabytes=1.0, answers=50)


def poller(inbox: Inbox, address: str) -> Poller:
    archive = ArchiveSettings(address=address, aet="PACS", limits=LIMITS)
    return Poller(PollSettings(every_seconds=1e-3), archive, inbox)


def gone_meanwhile(server: bad_dimse.Server) -> None:
    """The study vanishes between the listing and the fetching."""
    server.get = lambda event: server.sending([])


ODD = {
    "no series UID": {"SeriesInstanceUID": ""},
    "another study's": {"StudyInstanceUID": "1.9"},
    "2^70 instances": {"NumberOfSeriesRelatedInstances": str(2**70)},
    "many instances": {"NumberOfSeriesRelatedInstances": "many"},
}


@pytest.mark.timeout(60)
def test_an_odd_study_costs_no_other(inbox, tmp_path: Path, capsys):
    """Four answers that cannot be used, and a study without a UID, come before an honest one."""
    truth = write_truth(tmp_path / "study")
    server = bad_dimse.Server(truth)
    studies = dict(zip(("1.2.1", "1.2.2", "1.2.3", "1.2.4"), ODD.values(), strict=True))

    def find(event):  # type: ignore[no-untyped-def]
        query = event.identifier
        odd = studies.get(str(query.get("StudyInstanceUID", "")))
        if query.QueryRetrieveLevel == "STUDY":
            for uid in ("", *studies):
                yield 0xFF00, bad_dimse.changed(truth.study[0], StudyInstanceUID=uid)
        if odd is None:
            yield from server.honest_find(event)
            return
        answer = bad_dimse.changed(truth.study[0], StudyInstanceUID=query.StudyInstanceUID)
        for name, value in odd.items():
            answer.add_new(name, "LO", value)
        yield 0xFF00, answer

    server.find = find
    address, end = bad_dimse._dimse(server)
    try:
        assert poller(inbox, address).look()
    finally:
        end()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines].count("poll failed") == 5
    (entry,) = inbox.queue.latest(states.STATES)
    assert inbox.queue.count_of(entry.key, "MR") == len(truth.study)


@pytest.mark.timeout(60)
def test_a_study_whose_uid_is_no_text_costs_no_other(inbox, tmp_path: Path, monkeypatch, capsys):
    """JSON can say half a character, of which no key can be made."""
    truth = write_truth(tmp_path / "study")
    uids = ("\ud800", truth.study[0].StudyInstanceUID)
    answer = bad_web.listed(
        *({"0020000D": ("UI", uid), "00100020": ("LO", PATIENT)} for uid in uids)
    )

    def script(server: bad_web.Server) -> None:
        server.studies = lambda request: answer

    monkeypatch.setitem(bad_web.BEHAVIOURS, "half", Behaviour("fetch", "refused", False, script))
    address, end = bad_web.serve("half", truth)
    try:
        assert poller(inbox, address).look()
    finally:
        end()
    assert capsys.readouterr().out.count("poll failed") == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "fault",
    [
        *("down", "pdu_cut_off", "find_hangs", "gone_meanwhile"),
        *(
            pytest.param(fault, marks=pytest.mark.faults)
            for fault in (
                "closes_at_once",
                "silent",
                "accept_of_damaged_items",
                "finds_but_does_not_give",
                "find_without_end",
            )
        ),
    ],
)
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
