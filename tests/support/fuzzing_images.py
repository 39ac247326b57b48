"""Damage for images: NIfTI headers and voxels, DICOM elements."""

from __future__ import annotations

import gzip
import io
import random
import struct
import warnings
from pathlib import Path
from typing import Any

import pydicom
from fuzzing import odd_bytes
from pydicom.dataelem import RawDataElement

# --- images --------------------------------------------------------------------------------------

_NIFTI_FIELDS = (
    (0, "i"),
    (40, "h"),
    (42, "h"),
    (44, "h"),
    (46, "h"),
    (48, "h"),
    (50, "h"),
    (56, "f"),
    (70, "h"),
    (72, "h"),
    (76, "f"),
    (80, "f"),
    (84, "f"),
    (88, "f"),
    (108, "f"),
    (112, "f"),
    (116, "f"),
    (123, "B"),
    (252, "h"),
    (254, "h"),
    (256, "f"),
    (268, "f"),
    (280, "f"),
    (284, "f"),
    (296, "f"),
    (344, "4s"),
    (348, "4s"),
    (352, "i"),
    (356, "i"),
)
_INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    8,
    16,
    64,
    127,
    128,
    512,
    768,
    1024,
    1536,
    2048,
    2304,
    32767,
    -32768,
)
_FLOATS = (0.0, 1.0, -1.0, 1e-30, 1e30, 3e38, float("nan"), float("inf"), -1e9, 0.5)


def odd_nifti(content: bytes, rng: random.Random) -> bytes:
    """Other header fields, other voxels, other compression."""
    if rng.random() < 0.1:
        return odd_bytes(content, rng)
    data = bytearray(gzip.decompress(content))
    for _ in range(rng.randrange(1, 4)):
        place, form = rng.choice(_NIFTI_FIELDS)
        if form == "4s":
            value: Any = rng.choice((b"n+1\0", b"ni1\0", b"n+2\0", b"\1\0\0\0", b"\0\0\0\0"))
        elif form == "f":
            value = rng.choice(_FLOATS)
        elif form == "B":
            value = rng.randrange(256)
        elif form == "i":
            value = rng.choice((*_INTEGERS, 2**31 - 16, -(2**31)))
        else:
            value = rng.choice(_INTEGERS)
        order = rng.choice("<<<>")
        if place + 4 <= len(data):
            struct.pack_into(order + form, data, place, value)
    if rng.random() < 0.2:
        start = 352
        filler = rng.choice((b"\0", b"\xff", b"\x7f\xc0"))
        data[start:] = (filler * len(data))[: len(data) - start]
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)) :]
    return bytes(data) if rng.random() < 0.02 else gzip.compress(bytes(data), 1)


ODD_ELEMENTS = (
    b"n/a ",
    b"",
    b" ",
    b"nan ",
    b"inf ",
    b"1e999 ",
    b"-1",
    b"0 ",
    b"999999999999999999999999",
    b"1\\2",
    b"\\\\\\",
    b"\xff\xfe\xfd\xfc",
    b"\0\0",
    b"\0" * 8,
    b"1.2.3 ",
    b"\x1b[31m ",
    b"1" * 4000,
    b"256000",
    b"20260230",
    b"0x10",
    b"MONOCHROME1 ",
    b"1,5 ",
    b"\xff" * 8,
    b"..",
    b"1.2.840.10008.1.2.4.90\0",
)
ODD_VRS = ("UN", "SQ", "OB", "OW", "FD", "FL", "US", "SS", "UL", "AT", "LO", "DS", "IS", "UI", "TM")


def odd_dicom(path: Path, rng: random.Random) -> None:
    """An element with another value, of another kind, missing, or in a sequence; or other bytes."""
    if rng.random() < 0.15:
        path.write_bytes(odd_bytes(path.read_bytes(), rng))
        return
    dataset = pydicom.dcmread(path)
    inner: Any = dataset
    for _ in range(rng.randrange(4)):
        sequences = [e for e in inner if e.VR == "SQ" and len(e.value)]
        if sequences:
            inner = rng.choice(rng.choice(sequences).value)
    tag = rng.choice(sorted(inner.keys()))
    kind = rng.randrange(8)
    if kind == 0:
        del inner[tag]
    elif kind == 1:
        inner[tag] = pydicom.DataElement(tag, "SQ", [pydicom.Dataset()])
    else:
        vr = inner[tag].VR if kind < 7 else rng.choice(ODD_VRS)
        value = rng.choice(ODD_ELEMENTS)
        value += b"\0" * (len(value) % 2)
        inner._dict[tag] = RawDataElement(tag, vr, len(value), value, 0, False, True)
    if rng.random() < 0.1:
        dataset.file_meta.TransferSyntaxUID = rng.choice(
            (
                "1.2.840.10008.1.2.4.90",
                "1.2.840.10008.1.2.5",
                "1.2.840.10008.1.2.1.99",
                "1.2.3",
                "1.2.840.10008.1.2.4.80",
                "1.2.840.10008.1.2.4.70",
                "1.2.840.10008.1.2",
            )
        )
    plain = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pydicom.dcmwrite(plain, dataset, enforce_file_format=False)
    except Exception:  # what cannot even be written is damaged by bytes
        path.write_bytes(odd_bytes(path.read_bytes(), rng))
        return
    path.write_bytes(plain.getvalue())
