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
from cad.base.regular import MIB, file_kind
from cad.mri.imaging.header_grids import meta_grid, nrrd_grid, unplaced_kind
from cad.mri.imaging.volume import Volume

_HEADER_BYTES = 65536  # as many bytes of a file are searched for its header
# The number of bytes of each type of voxel, and the types of each number of bytes.
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
# Fields of the format (teem.sourceforge.net/nrrd/format.html), as they are written with spaces.
_NRRD_FIELDS = (
    "dimension",
    "type",
    "block size",
    "encoding",
    "endian",
    "content",
    "old min",
    "old max",
    "data file",
    "line skip",
    "byte skip",
    "number",
    "sample units",
    "sizes",
    "spacings",
    "thicknesses",
    "axis mins",
    "axis maxs",
    "centers",
    "centerings",
    "labels",
    "units",
    "kinds",
    "space",
    "space dimension",
    "space units",
    "space origin",
    "space directions",
    "measurement frame",
    "min",
    "max",
)
# The name of each field may also be written without spaces. Here all names are stored without them.
_NRRD_NAMES = {
    **{name: name.replace(" ", "") for name in _NRRD_FIELDS},
    **{name.replace(" ", ""): name.replace(" ", "") for name in _NRRD_FIELDS},
    "centers": "centerings",
}
# Keys to which MetaIO, the library that reads MetaImage files, gives a meaning. MetaIO reads them
# in this spelling only; other programs read them in any spelling.
_META_KEYS = (
    "Comment",
    "ObjectType",
    "ObjectSubType",
    "NDims",
    "BinaryData",
    "BinaryDataByteOrderMSB",
    "ElementByteOrderMSB",
    "CompressedData",
    "CompressedDataSize",
    "Position",
    "Origin",
    "Offset",
    "ImagePosition",
    "TransformMatrix",
    "Rotation",
    "Orientation",
    "CenterOfRotation",
    "DistanceUnits",
    "AnatomicalOrientation",
    "ElementSpacing",
    "ElementSize",
    "DimSize",
    "HeaderSize",
    "HeaderSizePerSlice",
    "ElementNumberOfChannels",
    "ElementNBits",
    "ElementToIntensityFunctionSlope",
    "ElementToIntensityFunctionOffset",
    "ElementType",
    "ElementDataFile",
)
_META_SPELLINGS = {key.lower(): key for key in _META_KEYS}
# Longest line of a header, in characters: an entry, and a note. The libraries for NRRD and
# MetaImage copy unknown text into messages of a fixed length; a longer text would be written beyond
# the end of the message.
_LONGEST_FIELD = 250
_LONGEST_NOTE = 4000
_META_KEY = re.compile(r"[^\s:=]+")
_PLAIN_NAME = re.compile(r"[^/\\%\s\x00-\x1f\x7f]+")
# Suffixes of the files that are read: True for NRRD, False for MetaImage. Files of other kinds are
# refused, because they never state where the image lies in the patient.
_SUFFIXES = {".nrrd": True, ".nhdr": True, ".mha": False, ".mhd": False}
_WITH_GZIP_HEADER = 16  # added to zlib's window bits for data that begin with a header of gzip
_HINT = "convert it to NIfTI, or to MetaImage or NRRD in one file"


@dataclass(frozen=True)
class _Voxels:
    """Hold where the voxels of a header are, how they are stored, and where they lie.

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
    grid : Volume
        Shape of the image and its place in the patient; its values are zeros.
    big_endian : bool
        Whether the most significant byte of a voxel is first.
    nrrd : bool
        Whether the header is one of NRRD.
    """

    file: Path
    start: int
    size: int
    packed: int | None
    grid: Volume
    big_endian: bool
    nrrd: bool


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
    count = math.prod(voxels.grid.shape)
    if voxels.size != count * kind.itemsize:
        raise CadError(
            f"voxels of {voxels.size // count} bytes by the header, of {kind.itemsize} by the "
            "library that reads it",
            file=path,
            hint=_HINT,
        )
    with voxels.file.open("rb") as stream:
        stream.seek(voxels.start)
        if voxels.packed is None:
            content = stream.read(voxels.size + 1)  # a byte more shows whether anything follows
        else:
            content = _unpacked_voxels(stream, voxels)
    if len(content) != voxels.size:
        raise CadError(
            f"the header states {voxels.size:,} bytes of voxels; the packed ones are not as many, "
            "or something follows them",
            file=voxels.file,
            hint="copy or export it again",
        )
    stored = kind.newbyteorder(">" if voxels.big_endian else "<")
    array = np.frombuffer(content, stored).reshape(voxels.grid.shape)
    return array.astype(kind)


@door("in", "MetaImage", bound="the size that the header states")
def _unpacked_voxels(stream: io.BufferedReader, voxels: _Voxels) -> bytes:
    """Return the unpacked voxels; empty if they end early, or if anything follows them."""
    unpacker = zlib.decompressobj(wbits=voxels.packed or 0)
    blocks: list[bytes] = []
    unpacked_bytes = 0
    # No more is unpacked than the header states, whatever the file would give.
    while not unpacker.eof and unpacked_bytes <= voxels.size:
        packed = unpacker.unconsumed_tail or stream.read(MIB)
        if not packed:
            break
        block = unpacker.decompress(packed, MIB)
        blocks.append(block)
        unpacked_bytes += len(block)
    bytes_behind = len(unpacker.unused_data) + len(stream.read(1))
    return b"".join(blocks) if unpacker.eof and not bytes_behind else b""


@door("in", "MetaImage", limit=MAX_IMAGE)
def check_header(path: Path) -> _Voxels:
    """Refuse a MetaImage or NRRD file whose voxels or place are not stated with certainty.

    Parameters
    ----------
    path : Path
        ``.mha``, ``.mhd``, ``.nrrd`` or ``.nhdr``.

    Returns
    -------
    _Voxels
        Where the voxels are in the file, and the image in the patient; packed voxels are not
        counted here.

    Raises
    ------
    CadError
        For voxels in another file than this file or one plain file beside it. For entries that are
        repeated, skip bytes or are not known. For a place in the patient that is missing, not in
        mm, or stated twice. For a file that is longer or shorter than its header says.
    """
    nrrd = _SUFFIXES.get(path.suffix.lower())
    if nrrd is None:
        raise unplaced_kind(path)
    with path.open("rb") as stream:
        start = stream.read(_HEADER_BYTES)
    if start.startswith(b"NRRD") != nrrd:
        raise CadError(
            f"its name ends in {path.suffix}, and its header is one of another kind",
            file=path,
            hint="give it the name of its kind: .nrrd or .nhdr, .mha or .mhd",
        )
    voxels = _voxels_of_nrrd(path, start) if nrrd else _voxels_of_meta(path, start)
    stored_bytes = voxels.file.stat().st_size - voxels.start
    if voxels.packed is None and stored_bytes != voxels.size:
        raise CadError(
            f"the header states {voxels.size:,} bytes of voxels, and {max(stored_bytes, 0):,} "
            "follow it",
            file=voxels.file,
            hint="the file was cut off or changed: copy or export it again",
        )
    if voxels.packed is not None:
        # Without a stored byte nothing could be said of how far the voxels were packed.
        check_inflation(max(stored_bytes, 1), voxels.size, MAX_IMAGE, "voxels")
    return voxels


def _voxels_of_meta(path: Path, start: bytes) -> _Voxels:
    """Return where the voxels of a MetaImage file are, by the text of its header.

    ``start`` are the first bytes of the file.
    """
    entries, header_end = _meta_entries(path, start)
    _require_value(path, entries, "NDims", "3")
    _require_value(path, entries, "BinaryData", "True", "False")
    _require_value(path, entries, "HeaderSize", "0")
    _require_value(path, entries, "HeaderSizePerSlice", "0")
    # Some programs apply this slope and offset to the values, others do not. So only the slope 1
    # and the offset 0, which change nothing, are allowed.
    _require_number(path, entries, "ElementToIntensityFunctionSlope", 1.0)
    _require_number(path, entries, "ElementToIntensityFunctionOffset", 0.0)
    _require_value(path, entries, "ElementNumberOfChannels", "1")
    for key in ("CompressedData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB"):
        _require_value(path, entries, key, "True", "False")
    if entries.get("BinaryData", "True") != "True":
        raise CadError("voxels as text are not read", file=path, hint=_HINT)
    voxel_type = entries.get("ElementType", "")
    if voxel_type not in _META_BYTES:
        raise CadError(f"ElementType {voxel_type[:40]!r} is no number", file=path, hint=_HINT)
    lengths = _lengths(path, entries.get("DimSize", ""))
    # Whether the most significant byte is first may stand under two keys.
    big_endian = {entries.get(key) for key in ("BinaryDataByteOrderMSB", "ElementByteOrderMSB")}
    if big_endian >= {"True", "False"}:
        raise CadError("two byte orders of one image", file=path, hint=_HINT)

    # Where the voxels are: behind the header, or in a file beside it
    name = entries["ElementDataFile"]
    if name in ("LOCAL", "Local"):
        file = path
        voxels_begin = header_end
    else:
        file = _file_beside(path, name)
        voxels_begin = 0
        _require_end(path, start[header_end:])
    packed = zlib.MAX_WBITS if entries.get("CompressedData") == "True" else None
    if packed is not None and "CompressedDataSize" in entries:
        _require_value(path, entries, "CompressedDataSize", str(file.stat().st_size - voxels_begin))
    return _Voxels(
        file=file,
        start=voxels_begin,
        size=math.prod(lengths) * _META_BYTES[voxel_type],
        packed=packed,
        grid=meta_grid(path, entries, lengths),
        big_endian="True" in big_endian,
        nrrd=False,
    )


def _meta_entries(path: Path, start: bytes) -> tuple[dict[str, str], int]:
    """Return the entries of a MetaImage header by key, and the number of bytes that they fill."""
    entries: dict[str, str] = {}
    offset = 0
    # ElementDataFile is the last entry of a header; voxels may follow it.
    while "ElementDataFile" not in entries:
        end = start.find(b"\n", offset)
        # If the header is a file of its own, its last line may end with the file, without a line
        # break.
        if end < 0 and offset < len(start) < _HEADER_BYTES:
            end = len(start)
        if end < 0:
            raise CadError(
                f"a MetaImage header without ElementDataFile in its first {_HEADER_BYTES:,} bytes",
                file=path,
                hint=_HINT,
            )
        text, equals, value = _text_of_line(start[offset:end]).partition("=")
        key = text.strip()
        offset = end + 1
        _check_line(path, text, value, _LONGEST_FIELD)
        # MetaIO, the library that reads MetaImage files, also takes a colon for an equals sign. A
        # key that contains a colon would therefore have two meanings, and is refused.
        if not equals or not _META_KEY.fullmatch(key) or key in entries:
            raise CadError(
                f"no entry of a MetaImage header, or one that stands twice: {key[:60]!r}",
                file=path,
                hint=_HINT,
            )
        metaio_spelling = _META_SPELLINGS.get(key.lower(), key)
        if key != metaio_spelling:
            # MetaIO ignores a key in another spelling, so the entry would be lost.
            problem = f"the key {key!r} must be spelled {metaio_spelling}"
            raise CadError(problem, file=path, hint=_HINT)
        entries[key] = value.strip()
    return entries, offset


def _voxels_of_nrrd(path: Path, start: bytes) -> _Voxels:
    """Return where the voxels of an NRRD file are, by the text of its header.

    ``start`` are the first bytes of the file.
    """
    # An empty line ends the header. A header that is a file of its own may do without.
    empty_line = re.search(rb"\r?\n\r?\n", start)
    header = start[: empty_line.start()] if empty_line else start.rstrip(b"\r\n")
    entries = _nrrd_entries(path, header)
    _require_value(path, entries, "dimension", "3")
    _require_value(path, entries, "lineskip", "0")
    _require_value(path, entries, "byteskip", "0")
    # The format takes the names of encodings in any capitals.
    entries["encoding"] = entries.get("encoding", "raw").lower()
    _require_value(path, entries, "encoding", "raw", "gzip", "gz")
    voxel_type = entries.get("type", "").lower()
    bytes_of_voxel = 0
    for size, names in _NRRD_BYTES.items():
        if voxel_type in names:
            bytes_of_voxel = size
    if not bytes_of_voxel:
        raise CadError(f"type {voxel_type[:40]!r} is no number", file=path, hint=_HINT)
    _require_value(path, entries, "endian", "little", "big")
    lengths = _lengths(path, entries.get("sizes", ""))

    # Where the voxels are: behind the header, or in a file beside it
    data_file = entries.get("datafile", "")
    if not data_file and empty_line is None:
        raise CadError(
            f"an NRRD header without an empty line at its end in its first {_HEADER_BYTES:,} bytes",
            file=path,
            hint=_HINT,
        )
    header_end = empty_line.end() if empty_line else len(start)
    if data_file:
        file = _file_beside(path, data_file)
        voxels_begin = 0
        _require_end(path, start[header_end:])
    else:
        file = path
        voxels_begin = header_end
    packed = _WITH_GZIP_HEADER + zlib.MAX_WBITS if entries["encoding"] != "raw" else None
    return _Voxels(
        file=file,
        start=voxels_begin,
        size=math.prod(lengths) * bytes_of_voxel,
        packed=packed,
        grid=nrrd_grid(path, entries, lengths),
        big_endian=entries.get("endian") == "big",
        nrrd=True,
    )


def _nrrd_entries(path: Path, header: bytes) -> dict[str, str]:
    """Return the fields of an NRRD header by their usual names; notes are left out."""
    entries: dict[str, str] = {}
    for row in header.split(b"\n")[1:]:  # the first line names the format and its version
        line = _text_of_line(row)
        # As in the library for NRRD, the mark that comes first decides: ": " ends the name of a
        # field, and ":=" ends the key of a note.
        field, colon, value = line.partition(": ")
        key, note_mark, _ = line.partition(":=")
        if line.startswith("#") or (note_mark and len(key) < len(field)):
            _check_line(path, line, "", _LONGEST_NOTE)
            continue
        _check_line(path, field, value, _LONGEST_FIELD)
        name = _NRRD_NAMES.get(field.strip().lower(), "")
        # A line with both marks is refused, because a program may take the other one first.
        if not colon or note_mark or not name or name in entries:
            raise CadError(
                f"no entry of an NRRD header, or one that stands twice: {field.strip()[:60]!r}",
                file=path,
                hint=_HINT,
            )
        entries[name] = value.strip()
    return entries


def _text_of_line(line: bytes) -> str:
    """Return the text of a line of a header: UTF-8, or else one letter for each byte."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _require_end(path: Path, behind: bytes) -> None:
    """Refuse a file that holds more than the header, although the voxels are in another file.

    ``behind`` are the bytes after the header. A program that reads these bytes, too, could find
    other entries of the header in them. A file is also refused if it is longer than the bytes that
    are read of a header.
    """
    size = path.stat().st_size
    if size > _HEADER_BYTES:
        raise CadError(
            f"a header of {size:,} bytes, read are at most {_HEADER_BYTES:,}", file=path, hint=_HINT
        )
    if behind.strip():
        raise CadError(
            f"{len(behind):,} bytes follow a header whose voxels are in another file",
            file=path,
            hint="take out what follows the header, or convert the image from its source again",
        )


def _check_line(path: Path, key: str, value: str, longest: int) -> None:
    """Refuse a line of a header that is very long or holds characters that cannot be printed.

    The libraries that read the header would write a long text beyond the end of a message.
    """
    line = (key + value).replace("\t", " ").removesuffix("\r")
    if len(line) > longest or not line.isprintable():
        raise CadError(
            f"a line of the header is longer than {longest} characters or holds others than text: "
            f"{key.strip()[:40]!r}",
            file=path,
            hint=_HINT,
        )


def _require_value(path: Path, entries: dict[str, str], key: str, *values: str) -> None:
    """Raise an error if the header entry ``key`` is present with a value not among ``values``."""
    if key in entries and entries[key] not in values:
        raise CadError(
            f"{key} = {entries[key][:40]!r}, read is {' or '.join(values)}", file=path, hint=_HINT
        )


def _require_number(path: Path, entries: dict[str, str], key: str, number: float) -> None:
    """Raise an error if the header entry ``key`` is present and is not equal to ``number``."""
    try:
        stated = float(entries.get(key, number))
    except ValueError:
        stated = math.nan  # differs from every number
    if stated != number:
        raise CadError(f"{key} = {entries[key][:40]!r}, read is {number:g}", file=path, hint=_HINT)


def _lengths(path: Path, text: str) -> tuple[int, int, int]:
    """Return the numbers of voxels along x, y and z from their text in the header."""
    lengths = text.split()
    if len(lengths) != 3 or not all(re.fullmatch(r"[1-9]\d{0,5}", length) for length in lengths):
        raise CadError(f"expected 3 lengths of axes, found {text[:40]!r}", file=path)
    x, y, z = map(int, lengths)
    return x, y, z


def _file_beside(path: Path, name: str) -> Path:
    """Return the path of a plain file in the header's folder; raise an error for any other name."""
    # MetaImage writes LIST where the names of several files follow.
    is_plain = _PLAIN_NAME.fullmatch(name) and name != "LIST"
    beside = path.with_name(name) if is_plain else None
    if beside is None or beside.is_symlink() or file_kind(beside) or beside == path:
        raise CadError(
            f"its voxels are said to be in {name[:80]!r}: read is the file itself, or one plain "
            "file beside it",
            file=path,
            hint=_HINT,
        )
    return beside
