"""Tell whether a real archive can be started here, or what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PLUGIN = "/usr/share/orthanc/plugins/libOrthancDicomWeb.so"
"""Place of the plugin of Debian's orthanc-dicomweb; ``CAD_ORTHANC_DICOMWEB`` names another."""


def absent() -> str:
    """Return what an archive lacks here; empty where one can be started."""
    if not shutil.which("Orthanc", path=os.environ.get("PATH", "") + ":/usr/sbin"):
        return "ORTHANC ABSENT"
    if not Path(os.environ.get("CAD_ORTHANC_DICOMWEB", PLUGIN)).is_file():
        return "ORTHANC'S DICOMWEB PLUGIN ABSENT"
    command = ["unshare", "--map-root-user", "--net", "true"]
    if not shutil.which("unshare"):
        return "UNSHARE ABSENT"
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return "NETWORK NAMESPACES REFUSED"
    return ""


def require_orthanc() -> None:
    """Skip a test, loudly, where no archive with DICOMweb can be started."""
    if missing := absent():
        pytest.skip(f"{missing}: no real archive was asked (scripts/install_tools.sh)")
