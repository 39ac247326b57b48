"""Compare the header of an image file with the file, before a library reads any voxel.

MetaImage and NRRD headers name the file with their voxels. The name may be any file on the machine,
a list of files, or a device without end. Here the voxels must be in the file itself or in one plain
file beside it. The length of this file must be the length that the header states. Any other header
is refused.

This module also reads the voxels, because libraries are not safe here. They read some headers
differently from how they look, for example a colon as an equals sign. And where packed voxels end
early, a library returns memory that it never filled.
"""

from __future__ import annotations

import io
import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.reading import MAX_IMAGE, check_inflation
from cad.base.regular import MIB, kind_of

_HEADER_BYTES = 65536
_META_BYTES = {
    "MET_CHAR": 1,
    "MET_UCHAR": 1,
    "MET_SHORT": 2,
    "MET_USHORT": 2,
    "MET_INT": 4,
    "MET_UINT": 4,
    "MET_LONG": 4,
    "MET_ULONG": 4,
    "MET_LONG_LONG": 8,
    "MET_ULONG_LONG": 8,
    "MET_FLOAT": 4,
    "MET_DOUBLE": 8,
}
_NRRD_BYTES = {
    1: ("signed char", "int8", "int8_t", "uchar", "unsigned char", "uint8", "uint8_t"),
    2: (
        "short",
        "short int",
        "signed short",
        "signed short int",
        "int16",
        "int16_t",
        "ushort",
        "unsigned short",
        "unsigned short int",
        "uint16",
        "uint16_t",
    ),
    4: (
        "int",
        "signed int",
        "int32",
        "int32_t",
        "uint",
        "unsigned int",
        "uint32",
        "uint32_t",
        "float",
    ),
    8: (
        "longlong",
        "long long",
        "long long int",
        "signed long long",
        "signed long long int",
        "int64",
        "int64_t",
        "ulonglong",
        "unsigned long long",
        "unsigned long long int",
        "uint64",
        "uint64_t",
        "double",
    ),
}
# Fields of the format (teem.sourceforge.net/nrrd/format.html) that do not skip data.
_NRRD_FIELDS = {
    "dimension",
    "type",
    "blocksize",
    "encoding",
    "endian",
    "content",
    "oldmin",
    "oldmax",
    "datafile",
    "lineskip",
    "byteskip",
    "number",
    "sampleunits",
    "sizes",
    "spacings",
    "thicknesses",
    "axismins",
    "axismaxs",
    "centers",
    "centerings",
    "labels",
    "units",
    "kinds",
    "space",
    "spacedimension",
    "spaceunits",
    "spaceorigin",
    "spacedirections",
    "measurementframe",
    "min",
    "max",
}
# The libraries copy unknown text into messages of a fixed length, and would write beyond their end.
_LONGEST_FIELD = 250
_LONGEST_NOTE = 4000
_META_KEY = re.compile(r"[^\s:=]+")
_PLAIN_NAME = re.compile(r"[^/\\%\s\x00-\x1f\x7f]+")
_HINT = "convert it to NIfTI, or to MetaImage or NRRD in one file"


@dataclass(frozen=True)
class _Voxels:
    """Hold where the voxels of a header are, and how they are stored.

    Parameters
    ----------
    file : Path
        The file with the voxels.
    start : int
        Position of their first byte.
    size : int
        Number of their bytes when unpacked.
    packed : int or None
        Window bits of zlib; None for voxels that are not packed.
    lengths : tuple of int
        Voxels along x, y and z.
    big_endian : bool
        Whether the most significant byte of a voxel is first.
    """

    file: Path
    start: int
    size: int
    packed: int | None
    lengths: tuple[int, int, int]
    big_endian: bool


@door("in", "MetaImage", limit=MAX_IMAGE)
def read_own_voxels(path: Path, kind: np.dtype[Any]) -> np.ndarray:
    """Read the voxels of a MetaImage or NRRD file.

    Parameters
    ----------
    path : Path
        ``.mha``, ``.mhd``, ``.nrrd`` or ``.nhdr``.
    kind : dtype
        Type of the voxels.

    Returns
    -------
    ndarray, shape (z, y, x)
        The voxels, in the machine's own byte order.

    Raises
    ------
    CadError
        As :func:`check_header`; and for voxels whose number or width differs from the header's.
    """
    voxels = check_header(path)
    count = math.prod(voxels.lengths)
    if voxels.size != count * kind.itemsize:
        raise CadError(
            f"voxels of {voxels.size // count} bytes by the header, of {kind.itemsize} by the "
            "library that reads it",
            file=path,
            hint=_HINT,
        )
    with voxels.file.open("rb") as stream:
        stream.seek(voxels.start)
        content = stream.read(voxels.size + 1) if voxels.packed is None else b""
        if voxels.packed is not None:
            content = _unpacked(stream, voxels)
    if len(content) != voxels.size:
        raise CadError(
            f"the header states {voxels.size:,} bytes of voxels; the packed ones are not as many, "
            "or something follows them",
            file=voxels.file,
            hint="copy or export it again",
        )
    stored = kind.newbyteorder(">" if voxels.big_endian else "<")
    array = np.frombuffer(content, stored).reshape(voxels.lengths[::-1])
    return array.astype(kind)


def _unpacked(stream: io.BufferedReader, voxels: _Voxels) -> bytes:
    """Return the unpacked voxels; empty if they end early, or if anything follows them."""
    unpacker = zlib.decompressobj(wbits=voxels.packed or 0)
    blocks: list[bytes] = []
    count = 0
    while not unpacker.eof and count <= voxels.size:
        packed = unpacker.unconsumed_tail or stream.read(MIB)
        if not packed:
            break
        blocks.append(unpacker.decompress(packed, MIB))
        count += len(blocks[-1])
    behind = len(unpacker.unused_data) + len(stream.read(1))
    return b"".join(blocks) if unpacker.eof and not behind else b""


@door("in", "MetaImage", limit=MAX_IMAGE)
def check_header(path: Path) -> _Voxels:
    """Refuse a MetaImage or NRRD file whose voxels are elsewhere, or whose number is wrong.

    Parameters
    ----------
    path : Path
        ``.mha``, ``.mhd``, ``.nrrd`` or ``.nhdr``.

    Returns
    -------
    _Voxels
        Place of the voxels; packed voxels are not counted here.

    Raises
    ------
    CadError
        For voxels in another file than this file or one plain file beside it. For entries that are
        repeated, skip bytes or are not known. For a file that is longer or shorter than its header
        says.
    """
    with path.open("rb") as stream:
        start = stream.read(_HEADER_BYTES)
    voxels = _of_nrrd(path, start) if start.startswith(b"NRRD") else _of_meta(path, start)
    stored = voxels.file.stat().st_size - voxels.start
    if voxels.packed is None and stored != voxels.size:
        raise CadError(
            f"the header states {voxels.size:,} bytes of voxels, and {max(stored, 0):,} follow it",
            file=voxels.file,
            hint="the file was cut off or changed: copy or export it again",
        )
    if voxels.packed is not None:
        check_inflation(max(stored, 1), voxels.size, MAX_IMAGE, "voxels")
    return voxels


def _of_meta(path: Path, start: bytes) -> _Voxels:
    entries: dict[str, str] = {}
    offset = 0
    while "ElementDataFile" not in entries:
        end = start.find(b"\n", offset)
        if end < 0:
            raise CadError("a MetaImage header without ElementDataFile", file=path, hint=_HINT)
        key, equals, value = start[offset:end].decode("latin-1").partition("=")
        offset = end + 1
        _check_line(path, key, value, _LONGEST_FIELD)
        # The library takes a colon for an equals sign, so that a key with one has two meanings.
        if not equals or not _META_KEY.fullmatch(key.strip()) or key.strip() in entries:
            raise CadError(f"no entry of a MetaImage header: {key.strip()[:60]!r}", file=path)
        entries[key.strip()] = value.strip()
    _require_value(path, entries, "NDims", "3")
    _require_value(path, entries, "BinaryData", "True", "False")
    _require_value(path, entries, "HeaderSize", "0")
    _require_value(path, entries, "ElementNumberOfChannels", "1")
    for key in ("CompressedData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB"):
        _require_value(path, entries, key, "True", "False")
    if entries.get("BinaryData", "True") != "True":
        raise CadError("voxels as text are not read", file=path, hint=_HINT)
    kind = entries.get("ElementType", "")
    if kind not in _META_BYTES:
        raise CadError(f"ElementType {kind[:40]!r} is no number", file=path, hint=_HINT)
    lengths = _lengths(path, entries.get("DimSize", ""))
    orders = {entries.get(key) for key in ("BinaryDataByteOrderMSB", "ElementByteOrderMSB")}
    if orders >= {"True", "False"}:
        raise CadError("two byte orders of one image", file=path, hint=_HINT)
    name = entries["ElementDataFile"]
    inside = name in ("LOCAL", "Local")
    file = path if inside else _file_beside(path, name)
    first = offset if inside else 0
    packed = zlib.MAX_WBITS if entries.get("CompressedData") == "True" else None
    if packed is not None and "CompressedDataSize" in entries:
        _require_value(path, entries, "CompressedDataSize", str(file.stat().st_size - first))
    size = math.prod(lengths) * _META_BYTES[kind]
    return _Voxels(file, first, size, packed, lengths, "True" in orders)


def _of_nrrd(path: Path, start: bytes) -> _Voxels:
    end = re.search(rb"\r?\n\r?\n", start)
    head = start[: end.start()] if end else start
    entries: dict[str, str] = {}
    for line in head.decode("latin-1").splitlines()[1:]:
        if line.startswith("#") or ":=" in line:
            _check_line(path, line, "", _LONGEST_NOTE)
            continue
        key, colon, value = line.partition(":")
        name = key.strip().lower().replace(" ", "")
        _check_line(path, key, value, _LONGEST_FIELD)
        if not colon or name in entries or name not in _NRRD_FIELDS:
            raise CadError(f"no entry of an NRRD header: {key.strip()[:60]!r}", file=path)
        entries[name] = value.strip()
    _require_value(path, entries, "dimension", "3")
    _require_value(path, entries, "lineskip", "0")
    _require_value(path, entries, "byteskip", "0")
    _require_value(path, entries, "encoding", "raw", "gzip", "gz")
    kind = entries.get("type", "").lower()
    width = next((size for size, names in _NRRD_BYTES.items() if kind in names), 0)
    if not width:
        raise CadError(f"type {kind[:40]!r} is no number", file=path, hint=_HINT)
    _require_value(path, entries, "endian", "little", "big")
    lengths = _lengths(path, entries.get("sizes", ""))
    packed = 16 + zlib.MAX_WBITS if entries.get("encoding", "raw") != "raw" else None
    data_file = entries.get("datafile", "")
    if not data_file and end is None:
        raise CadError("an NRRD header without an end", file=path, hint=_HINT)
    file = _file_beside(path, data_file) if data_file else path
    first = end.end() if end and not data_file else 0
    size = math.prod(lengths) * width
    return _Voxels(file, first, size, packed, lengths, entries.get("endian") == "big")


def _check_line(path: Path, key: str, value: str, longest: int) -> None:
    """Refuse a line of a header that is very long or holds characters that cannot be printed."""
    line = (key + value).replace("\t", " ").removesuffix("\r")
    if len(line) > longest or not line.isprintable():
        raise CadError(
            f"a line of the header is longer than {longest} characters or holds others than text: "
            f"{key.strip()[:40]!r}",
            file=path,
            hint=_HINT,
        )


def _require_value(path: Path, entries: dict[str, str], key: str, *values: str) -> None:
    """Raise an error if an entry is present with a value other than the given ones."""
    if key in entries and entries[key] not in values:
        raise CadError(
            f"{key} = {entries[key][:40]!r}, read is {' or '.join(values)}", file=path, hint=_HINT
        )


def _lengths(path: Path, text: str) -> tuple[int, int, int]:
    """Return the numbers of voxels along x, y and z from their text in the header."""
    lengths = text.split()
    if len(lengths) != 3 or not all(re.fullmatch(r"[1-9]\d{0,5}", length) for length in lengths):
        raise CadError(f"expected 3 lengths of axes, found {text[:40]!r}", file=path)
    x, y, z = map(int, lengths)
    return x, y, z


def _file_beside(path: Path, name: str) -> Path:
    """Return the path of a plain file in the header's folder; raise an error for any other name."""
    beside = path.with_name(name) if _PLAIN_NAME.fullmatch(name) and name != "LIST" else None
    if beside is None or beside.is_symlink() or kind_of(beside) or beside == path:
        raise CadError(
            f"its voxels are said to be in {name[:80]!r}: read is the file itself, or one plain "
            "file beside it",
            file=path,
            hint=_HINT,
        )
    return beside
