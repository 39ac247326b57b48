"""An archive that speaks TLS only: run by test_archive.py inside tests/support/with_orthanc.sh."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pydicom
import pytest
from dicom_files import edit, write_seg, write_series
from live_node import free_port, make_settings, push, rest
from tls_front import encrypted_front

from cad.base.errors import CadError
from cad.dicom.archive.client import connect
from cad.dicom.archive.conversation import protocol
from cad.dicom.archive.interface import Protocolled
from cad.dicom.archive.settings import ArchiveLimits
from cad.hospital.node import queue as states
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.poll import Poller
from cad.hospital.node.queue import Queue

# The libraries leave connections open that the other side has cut.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
AET, PAPERS = os.environ["CAD_ARCHIVE_AET"], Path(os.environ["CAD_ORTHANC_TLS"])
FRONT = encrypted_front(PAPERS, urlsplit(os.environ["CAD_ORTHANC"]).netloc)
ADDRESSES = {"dimse": os.environ["CAD_ARCHIVE"], "web": f"https://{FRONT}/dicom-web"}
PLAIN = {"dimse": ADDRESSES["dimse"], "web": f"http://{FRONT}/dicom-web"}


def shown(whose: str, /, **more: str) -> dict[str, str]:
    files = {"certificate": f"{PAPERS / whose}.pem", "key": f"{PAPERS / whose}.key"}
    return {**files, "authority": str(PAPERS / "authority.pem"), **more}


def asked(
    kind: str, tls: dict[str, str] | None, addresses: dict[str, str], **more: Any
) -> Protocolled:
    """The archive without a process in between."""
    content: dict[str, Any] = {"answer_seconds": 5, "tls": tls, **more}
    return protocol(addresses[kind], AET, ArchiveLimits.model_validate(content))


@pytest.mark.parametrize("kind", ["dimse", "web"])
def test_there_and_back(kind, tmp_path):
    """Stored, listed, found and fetched, encrypted, with both certificates checked."""
    paths = write_series(tmp_path / "in", np.ones((3, 16, 16), np.uint16), patient=f"MRN-{kind}")
    archive = asked(kind, shown("node"), ADDRESSES)
    assert archive.missing(paths) == paths
    assert [step.path for step in archive.store(paths) if step.stored] == paths
    assert archive.missing(paths) == []
    (series,) = archive.find(f"MRN-{kind}")
    assert series.instances == 3
    archive.fetch([series], tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.dcm"))) == 3


@pytest.mark.parametrize("kind", ["dimse", "web"])
@pytest.mark.parametrize(
    ("tls", "addresses"),
    [
        (shown("stranger"), ADDRESSES),  # our certificate is nobody's
        (None, PLAIN),  # no TLS
        (shown("node", name="archive.example"), ADDRESSES),  # it is another archive's
        (shown("node", authority=str(PAPERS / "elsewhere.pem")), ADDRESSES),  # whom we do not trust
    ],
)
def test_nothing_is_sent_where_a_certificate_is_wrong(kind, tls, addresses, tmp_path):
    paths = write_series(tmp_path / "in", np.ones((2, 16, 16), np.uint16), study=f"wrong {kind}")
    before = sorted(rest("/instances"))
    with pytest.raises(CadError) as caught:
        list(asked(kind, tls, addresses).store(paths))
    gc.collect()  # while the warnings about what was cut off are still ours
    assert sorted(rest("/instances")) == before
    if kind == "dimse" and tls is not None:
        assert "no encrypted connection" in caught.value.problem
        names = tls.get("name") or "elsewhere" in tls["authority"]
        assert ("certificate is not accepted" in caught.value.problem) == bool(names)


def test_certificates_without_https_are_refused_before_anything_is_asked():
    limits = ArchiveLimits.model_validate({"tls": shown("node")})
    with pytest.raises(CadError, match="is not https"):
        connect(PLAIN["web"], AET, limits)


@pytest.fixture
def place() -> dict[str, Any]:
    """A destination that Orthanc knows, to be called over TLS."""
    move = {"aet": "CADMOVE", "host": "127.0.0.1", "port": free_port()}
    known = {"AET": "CADMOVE", "Host": "127.0.0.1", "Port": move["port"], "UseDicomTls": True}
    rest("/modalities/CADMOVE", "PUT", known)
    return move


def test_fetched_by_move_and_only_what_was_asked_for(place, tmp_path):
    array = np.ones((3, 16, 16), np.uint16)
    push(write_series(tmp_path / "a", array, patient="MRN-move", study="m", number=1))
    push(write_series(tmp_path / "b", array, patient="MRN-other", study="o", number=1))
    archive = asked("dimse", shown("node"), ADDRESSES, move=place)
    (series,) = archive.find("MRN-move")
    archive.fetch([series], tmp_path / "out")
    files = sorted((tmp_path / "out").rglob("*.dcm"))
    assert {pydicom.dcmread(path).PatientID for path in files} == {"MRN-move"}
    assert len(files) == 3
    other = replace(series, series_uid=archive.find("MRN-other")[0].series_uid)
    with pytest.raises(CadError):  # a series that is not of that study
        archive.fetch([other], tmp_path / "no")
    unknown = asked("dimse", shown("node"), ADDRESSES, move={**place, "aet": "NOBODY"})
    with pytest.raises(CadError, match=r"C-MOVE failed with status|could not be sent"):
        unknown.fetch([series], tmp_path / "never")
    rest("/modalities/CADMOVE", "DELETE")
    plain = {**asked_settings(place), "UseDicomTls": False}
    rest("/modalities/CADMOVE", "PUT", plain)
    with pytest.raises(CadError):  # it would come unencrypted: nobody listens to that
        archive.fetch([series], tmp_path / "plain")
    assert not [*(tmp_path / "plain").rglob("*.dcm"), *(tmp_path / "never").rglob("*.dcm")]
    gc.collect()


def asked_settings(place: dict[str, Any]) -> dict[str, Any]:
    return {"AET": place["aet"], "Host": place["host"], "Port": place["port"]}


@pytest.mark.parametrize("kind", ["dimse", "web"])
def test_a_node_polls_what_nobody_sends(kind, tmp_path, capsys):
    """New, then again, grown, of another kind; and an archive that is gone."""
    settings = make_settings(
        tmp_path / "home",
        archive={"address": ADDRESSES[kind], "limits": {"tls": shown("node")}},
        poll={"every_seconds": 0.01, "days": 20000, "match": {"StudyDescription": f"*{kind} P*"}},
    )
    queue = Queue(settings.home / "queue.sqlite")
    inbox = Inbox(settings, queue)
    poller = Poller(settings.poll, settings.archive, inbox)
    poller.archive = asked(kind, shown("node"), ADDRESSES)
    array = np.ones((3, 16, 16), np.uint16)
    ids = {"patient": f"MRN-poll-{kind}", "study": f"polled {kind}"}
    text = {"StudyDescription": f"the {kind} prostate"}
    images = write_series(tmp_path / "a", array, number=1, **ids, **text)
    push(images)
    push(write_series(tmp_path / "b", array, study=f"other {kind}", StudyDescription="a knee"))

    def poll() -> bool:
        time.sleep(0.02)
        return poller.look()

    assert poll()
    (entry,) = queue.latest(states.STATES)
    assert (entry.state, queue.count_of(entry.key, "MR")) == (states.RECEIVING, 3)
    assert queue.senders(entry.key) == [{"title": "poll", "peer": "", "instances": 3}]
    assert not poll()
    mask = np.zeros((3, 16, 16), bool)
    mask[1, 4:8, 4:8] = True
    write_seg(tmp_path / "seg.dcm", images, {"1": mask})
    edit(tmp_path / "seg.dcm", **text)
    push([tmp_path / "seg.dcm", *write_series(tmp_path / "c", array[:2], number=2, **ids, **text)])
    assert poll()
    assert (queue.count_of(entry.key, "MR"), queue.count_of(entry.key, "SEG")) == (5, 1)
    assert not poll()
    assert [p.name for p in (inbox.home / "incoming").glob("[!.]*")] == [entry.key]
    poller.archive = asked(kind, shown("stranger"), ADDRESSES)
    assert not poll()
    said = capsys.readouterr().out
    assert '"poll failed"' in said
    assert "MRN" not in said
    queue.close()
    gc.collect()
