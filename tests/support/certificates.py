"""Certificates made by openssl for a test: an authority's, and a stranger's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

# The two addresses are those of tests/support/machines.py.
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.9.0.1,IP:10.9.0.2"


def openssl(*arguments: object) -> None:
    try:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
    except FileNotFoundError:
        import pytest  # here: scripts/node_demo.py runs where there is none

        pytest.skip("OPENSSL ABSENT: run scripts/install_tools.sh")


def authority(folder: Path, name: str = "authority") -> Path:
    """An authority's certificate; its key lies beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        2,
        "-subj",
        f"/CN={name}",
        "-keyout",
        folder / f"{name}.key",
        "-out",
        folder / f"{name}.pem",
    )
    return folder / f"{name}.pem"


def certificate(folder: Path, name: str, by: Path, names: str = NAMES) -> dict[str, str]:
    """A certificate signed by an authority, as the settings name its files."""
    paths = [folder / f"{name}.{end}" for end in ("key", "csr", "ext", "pem")]
    paths[2].write_text(names)
    openssl(
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        f"/CN={name}",
        "-keyout",
        paths[0],
        "-out",
        paths[1],
    )
    openssl(
        "x509",
        "-req",
        "-days",
        2,
        "-in",
        paths[1],
        "-CA",
        by,
        "-CAkey",
        by.with_suffix(".key"),
        "-CAcreateserial",
        "-extfile",
        paths[2],
        "-out",
        paths[3],
    )
    return {"certificate": str(paths[3]), "key": str(paths[0]), "authority": str(by)}


def papers(folder: Path) -> dict[str, dict[str, str]]:
    """Certificates of a node, a scanner and an archive by one authority, a stranger's by another.

    with_orthanc.sh takes the folder as CAD_ORTHANC_TLS.
    """
    ours, theirs = authority(folder), authority(folder, "elsewhere")
    made = {name: certificate(folder, name, ours) for name in ("node", "scanner", "orthanc")}
    # The stranger knows whom the others believe, but was certified by somebody else.
    made["stranger"] = {**certificate(folder, "stranger", theirs), "authority": str(ours)}
    return made


def shown(folder: Path, name: str, **more: str) -> dict[str, str]:
    """One of the papers, as the settings name its files."""
    files = {"certificate": str(folder / f"{name}.pem"), "key": str(folder / f"{name}.key")}
    return {**files, "authority": str(folder / "authority.pem"), **more}


def scu(files: dict[str, str]) -> list[str]:
    """Options with which dcmtk's tools call over TLS and check the other side."""
    return ["+tls", files["key"], files["certificate"], "+cf", files["authority"], "-rc"]
