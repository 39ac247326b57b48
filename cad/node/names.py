"""Take identities out: keys in place of UIDs, and messages without what a header says of somebody.

Only two places of a node hold identities: ``incoming/``, the files as they came, and ``studies/``,
the cohorts made of them. Queue, log, metrics and status page know a study by its key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset

from cad.errors import CadError
from cad.files import write_atomic
from cad.reading import MAX_IMAGE, check_file, reading

KEY_FILE = "node.key"
_HEX = 16
_UID = re.compile(r"\b(?:[0-9]+(?:\.[0-9]+){4,}|2\.25\.[0-9]+)\b")  # no IP address
_PATIENT_GROUP = 0x0010
_OTHERS = (
    "AccessionNumber", "StudyID", "StudyDate", "SeriesDate", "AcquisitionDate", "ContentDate",
    "StudyDescription", "ReferringPhysicianName", "PerformingPhysicianName", "OperatorsName",
    "RequestingPhysician", "InstitutionName", "InstitutionAddress", "StationName",
)  # fmt: skip
_SHORT = 3


def node_key(home: Path) -> bytes:
    """Return the node's own secret, made when there is none: without it a key says nothing."""
    path = home / KEY_FILE
    if not path.is_file():
        write_atomic(path, secrets.token_hex(16).encode(), mode=0o600)
    return path.read_bytes()


def key_of(secret: bytes, uid: str) -> str:
    """Return what stands for a UID in file names, queue, log and pages."""
    return hmac.new(secret, uid.encode(), hashlib.sha256).hexdigest()[:_HEX]


def nameless(text: str, folder: Path) -> str:
    """Return a message without UIDs and without what a study's headers say of its patient.

    Parameters
    ----------
    text : str
        The message.
    folder : Path
        The study as it came; every header is looked at, for one may be another patient's.
    """
    said = {word for path in folder.glob("*.dcm") for word in _said(path)}
    for word in sorted(said, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "…", text, flags=re.IGNORECASE)
    return _UID.sub("UID", text)


def header(path: Path) -> Dataset:
    """Return a file's header without its pixels."""
    with reading(path, "not a readable DICOM file"):
        check_file(path, MAX_IMAGE)
        return pydicom.dcmread(path, stop_before_pixels=True)


def _said(path: Path) -> Iterator[str]:
    """Yield every word of a header that may name somebody."""
    try:
        with reading(path, "not a readable DICOM file"):
            dataset = header(path)
            values = [str(element.value) for element in dataset.group_dataset(_PATIENT_GROUP)]
            values += [str(dataset.get(keyword, "")) for keyword in _OTHERS]
    except (CadError, OSError):  # what cannot be read cannot have been quoted
        return
    for value in values:
        label = re.sub(r"[^A-Za-z0-9]", "", value)  # as the cohort's label has it
        words = [value, label, value.replace("^", " "), *re.split(r"[\^\s,]+", value)]
        yield from (word for word in words if len(word) >= _SHORT)
