"""Archives whose encryption is wrong, made by hand: they are told nothing, and why is said.

An archive that is right in all this is asked first, so that the refusals are those of its faults.
"""

from __future__ import annotations

import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import certificate, openssl, papers, shown
from dicom_files import write_series

from cad.base.errors import CadError
from cad.dicom.archive.client import connect
from cad.dicom.archive.settings import ArchiveLimits

KINDS = {"dimse": "127.0.0.1:{}", "web": "https://127.0.0.1:{}/dicom-web"}
FAULTS = {
    "expired": "certificate has expired",
    "not valid yet": "not yet valid",
    "another host": "mismatch|not valid for",
    "no name": "mismatch|not valid for",
    "another authority": "unable to get local issuer|self.signed",
    "for clients alone": "unsuitable certificate purpose|purpose",
    "TLS 1.1": "protocol version|unsupported protocol|internal error|alert",
    "no encryption": "wrong version|record layer|packet length|no encrypted connection",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The papers of `certificates`, and an archive's for every fault."""
    made = tmp_path_factory.mktemp("papers")
    papers(made)
    authority = made / "authority.pem"
    certificate(made, "another host", authority, "subjectAltName=DNS:archive.example")
    certificate(made, "no name", authority, "keyUsage=digitalSignature")
    purpose = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=clientAuth"
    certificate(made, "for clients alone", authority, purpose)
    certificate(made, "another authority", made / "elsewhere.pem")
    for name, begin, end in (
        ("expired", "20200101000000Z", "20200201000000Z"),
        ("not valid yet", "20900101000000Z", "20910101000000Z"),
    ):
        dated(made, name, begin, end)
    return made


def dated(folder: Path, name: str, begin: str, end: str) -> None:
    """A certificate of the authority that is valid within these dates."""
    certificate(folder, name, folder / "authority.pem")
    store = folder / f"{name} store"
    (store / "new").mkdir(parents=True)
    (store / "index").write_text("")
    (store / "serial").write_text("01\n")
    (store / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=x\n[x]\nnew_certs_dir={store / 'new'}\ndatabase={store / 'index'}\n"
        f"serial={store / 'serial'}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
    )
    files = ("-cert", folder / "authority.pem", "-keyfile", folder / "authority.key")
    request = ("-in", folder / f"{name}.csr", "-extfile", folder / f"{name}.ext")
    dates = ("-startdate", begin, "-enddate", end)
    openssl(
        "ca",
        "-batch",
        "-notext",
        "-config",
        store / "ca.cnf",
        *files,
        *request,
        *dates,
        "-out",
        folder / f"{name}.pem",
    )


class Archive(threading.Thread):
    """A server by TLS that keeps what it was told inside the encryption, and answers nothing."""

    def __init__(self, folder: Path, fault: str) -> None:
        super().__init__(daemon=True)
        self.told = bytearray()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.context: ssl.SSLContext | None = None
        if fault != "no encryption":
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            paper = folder / (f"{fault}.pem" if fault in FAULTS else "orthanc.pem")
            paper = paper if paper.exists() else folder / "orthanc.pem"
            self.context.load_cert_chain(paper, paper.with_suffix(".key"))
        if fault == "TLS 1.1":
            assert self.context is not None
            self.context.set_ciphers("ALL:@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                self.context.minimum_version = ssl.TLSVersion.TLSv1
                self.context.maximum_version = ssl.TLSVersion.TLSv1_1

    def run(self) -> None:
        """Take one connection after the other, until the server is closed."""
        while True:
            try:
                line, _ = self.server.accept()
            except OSError:
                return
            line.settimeout(3)
            try:
                if self.context is not None:
                    line = self.context.wrap_socket(line, server_side=True)
                    self.told += line.recv(2**16)
                else:
                    line.recv(2**16)  # the caller's hello, in the plain
                    line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            except OSError:
                pass
            line.close()


@pytest.fixture
def archive(folder: Path) -> Iterator[Callable[[str], Archive]]:
    made: list[Archive] = []

    def start(fault: str) -> Archive:
        made.append(Archive(folder, fault))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.server.shutdown(socket.SHUT_RDWR)
        one.server.close()
        one.join(5)


def limits(folder: Path) -> ArchiveLimits:
    content: dict[str, Any] = {"answer_seconds": 3, "tls": shown(folder, "node")}
    return ArchiveLimits.model_validate(content)


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_archive_is_told_something(
    folder: Path, archive: Callable[[str], Archive], kind: str
):
    server = archive("nothing")
    with pytest.raises(CadError):  # it does not answer
        connect(KINDS[kind].format(server.port), "PACS", limits(folder)).find("P-001")
    assert server.told


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_archive_with_a_wrong_encryption_is_told_nothing(
    folder: Path, archive: Callable[[str], Archive], tmp_path: Path, kind: str, fault: str
):
    server = archive(fault)
    paths = write_series(tmp_path / "in", np.ones((2, 16, 16), np.uint16))
    for ask in (
        lambda there: there.find("P-001"),
        lambda there: there.store(paths),
    ):
        there = connect(KINDS[kind].format(server.port), "PACS", limits(folder))
        with pytest.raises(CadError) as caught:
            ask(there)
        assert "P-001" not in str(caught.value)
        said = f"{caught.value.problem} {caught.value.__cause__ or ''}".lower()
        pattern = FAULTS[fault]
        assert any(word in said for word in pattern.lower().split("|")), said
    assert bytes(server.told) == b""
