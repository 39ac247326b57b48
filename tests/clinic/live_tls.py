"""An archive that speaks TLS only: run by test_archive.py inside tests/support/with_orthanc.sh."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from dicom_files import write_series
from live_node import rest
from tls_front import encrypted_front

from cad.clinic.archive import Protocolled, connect, protocol
from cad.clinic.archive_settings import ArchiveLimits
from cad.errors import CadError

AET, PAPERS = os.environ["CAD_ARCHIVE_AET"], Path(os.environ["CAD_ORTHANC_TLS"])
FRONT = encrypted_front(PAPERS, urlsplit(os.environ["CAD_ORTHANC"]).netloc)
ADDRESSES = {"dimse": os.environ["CAD_ARCHIVE"], "web": f"https://{FRONT}/dicom-web"}
PLAIN = {"dimse": ADDRESSES["dimse"], "web": f"http://{FRONT}/dicom-web"}


def shown(whose: str, /, **more: str) -> dict[str, str]:
    files = {"certificate": f"{PAPERS / whose}.pem", "key": f"{PAPERS / whose}.key"}
    return {**files, "authority": str(PAPERS / "authority.pem"), **more}


def asked(kind: str, tls: dict[str, str] | None, addresses: dict[str, str]) -> Protocolled:
    """The archive without a process in between."""
    content: dict[str, Any] = {"answer_seconds": 5, "tls": tls}
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


# A library leaves the connection open that the other side has cut.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
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
