"""DICOM over TLS on the node's side, called by dcmtk: who shows no certificate leaves no byte."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from certificates import openssl, papers, scu
from dicom_files import dcmtk, write_series
from live_node import make_settings

from cad.base.errors import CadError
from cad.dicom.archive import listener as dimse_server
from cad.dicom.archive.settings import Tls
from cad.dicom.archive.tls import answering
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import Queue
from cad.hospital.node.receiver import Receiver

TITLES = ["-aet", "SCANNER", "-aec", "CAD"]


@pytest.fixture(scope="module", name="papers")
def made_papers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    return papers(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def receiver(tmp_path: Path, papers: dict[str, dict[str, str]]) -> Iterator[Receiver]:
    settings = make_settings(tmp_path / "home", receiver={"tls": papers["node"]})
    made = Receiver(Inbox(settings, Queue(settings.home / "queue.sqlite")))
    yield made
    made.stop()
    made.inbox.close()
    made.inbox.queue.close()


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    return write_series(tmp_path / "in", np.ones((3, 16, 16), np.uint16))


def call(tool: str, options: list[str], port: int, *files: Path) -> int:
    command = [dcmtk(tool), "-to", "10", "-ta", "10", *options, *TITLES]
    command += ["127.0.0.1", str(port), *map(str, files)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def kept(receiver: Receiver) -> list[Path]:
    return sorted(receiver.inbox.home.glob("incoming/[!.]*/*"))


def wait_for(receiver: Receiver, refused: int) -> None:
    """The caller may learn of it before it is logged."""
    end = time.monotonic() + 20
    while receiver.refused < refused:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_dcmtk_echoes_and_stores_over_tls(receiver, papers, images):
    port = receiver.address[1]
    assert call("echoscu", scu(papers["scanner"]), port) == 0
    assert call("storescu", scu(papers["scanner"]), port, *images) == 0
    assert len(kept(receiver)) == 3
    assert receiver.refused == 0


def test_who_shows_no_certificate_of_ours_leaves_no_byte(receiver, papers, images, capsys):
    """Plain, anonymous, certified by a stranger: refused, logged, 0 bytes kept."""
    port, before = receiver.address[1], sorted(receiver.inbox.home.rglob("*"))
    for number, options in enumerate(([], ["+tla", "-ic"], scu(papers["stranger"])), start=1):
        assert call("storescu", options, port, *images) != 0
        wait_for(receiver, number)
    assert sorted(receiver.inbox.home.rglob("*")) == before
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["event"] for line in lines} == {"association refused"}
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    plain, anonymous, stranger = [line["reason"] for line in lines]
    assert plain.startswith("no TLS: ")
    assert "did not return a certificate" in anonymous
    assert "the certificate is not accepted" in stranger
    assert receiver.refused == 3


def test_an_old_protocol_is_refused(receiver, papers):
    """TLS 1.1 with the right certificate."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_cert_chain(papers["scanner"]["certificate"], papers["scanner"]["key"])
    old.load_verify_locations(papers["scanner"]["authority"])
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    plain = socket.create_connection(("127.0.0.1", receiver.address[1]), 10)
    with plain, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(plain, server_hostname="localhost")
    wait_for(receiver, 1)


def test_a_silent_caller_keeps_nobody_waiting_and_is_cut(
    receiver, papers, images, monkeypatch, capsys
):
    """One says nothing, one a byte a while: others are served, and the two end."""
    monkeypatch.setattr(dimse_server, "_DOOR_SECONDS", 2.0)
    address = ("127.0.0.1", receiver.address[1])
    with socket.create_connection(address) as silent, socket.create_connection(address) as slow:
        assert call("storescu", scu(papers["scanner"]), address[1], *images) == 0
        assert len(kept(receiver)) == 3
        end = time.monotonic() + 20
        while receiver.refused < 2:
            assert time.monotonic() < end
            try:
                slow.send(b"\x16")  # of a record's five bytes; a read is never without news
            except OSError:
                break
            time.sleep(0.5)
        silent.settimeout(20)
        assert silent.recv(1) == b""
    assert "no TLS" in capsys.readouterr().out


def test_callers_that_never_finish_make_room_for_the_next(receiver, papers, monkeypatch):
    """As many wait as may: the one who came first goes, and who is admitted is served."""
    monkeypatch.setattr(dimse_server, "_WAITING", 8)
    address = ("127.0.0.1", receiver.address[1])
    held = [socket.create_connection(address) for _ in range(8)]
    try:
        assert call("echoscu", scu(papers["scanner"]), address[1]) == 0
        held[0].settimeout(20)
        assert held[0].recv(1) == b""
        wait_for(receiver, 1)
    finally:
        for one in held:
            one.close()


def test_the_certificate_that_was_shown_is_remembered(receiver, papers, images):
    """For the audit trail: by the fingerprint that Python's own reading of the file gives."""
    assert call("storescu", scu(papers["scanner"]), receiver.address[1], images[0]) == 0
    (entry,) = receiver.inbox.queue.latest(("receiving",))
    shown = ssl.PEM_cert_to_DER_cert(Path(papers["scanner"]["certificate"]).read_text())
    peer = f"127.0.0.1 certificate {hashlib.sha256(shown).hexdigest()}"
    assert receiver.inbox.queue.senders(entry.key) == [
        {"title": "SCANNER", "peer": peer, "instances": 1}
    ]


def test_files_that_cannot_be_used_are_named(papers, tmp_path):
    node = papers["node"]
    locked = tmp_path / "locked.key"
    openssl("rsa", "-aes128", "-passout", "pass:secret", "-in", node["key"], "-out", locked)
    for change, said in (
        ({"key": str(locked)}, "pass phrase"),
        ({"key": papers["scanner"]["key"]}, "key values mismatch"),
        ({"authority": node["key"]}, "no certificates of an authority"),
        ({"certificate": str(tmp_path / "absent.pem")}, "no such file"),
    ):
        with pytest.raises(CadError, match=said) as caught:
            answering(Tls.model_validate({**node, **change}))
        assert str(caught.value.file) in [*node.values(), *change.values()]
