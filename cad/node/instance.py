"""Know an instance by its file: by a bounded part of its header, and never unpacked here.

What is deflated, or packed otherwise than an instance of the same name that is here, is opened by
:func:`deflated_head` and :func:`same_content`, in a process with limits.
"""

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from struct import unpack
from typing import Any

import pydicom
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.tag import Tag
from pydicom.uid import UID as TransferSyntax
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian
from pydicom.valuerep import EXPLICIT_VR_LENGTH_32

from cad.dicom.archive.interface import MODALITIES, UID
from cad.dicom.own import OWN_MODEL_NAME
from cad.errors import CadError
from cad.reading import MAX_IMAGE, check_file, reading

_MOST = 100_000
"""Elements and items that are looked at; before its UIDs the largest real file has fewer."""
_LONGEST = 2**10  # bytes of an element that is read
_WANTED = (
    "SOPClassUID", "SOPInstanceUID", "Modality", "ManufacturerModelName", "PatientID",
    "StudyInstanceUID",
)  # fmt: skip
_LAST, _LAST_OF_META = int(Tag("StudyInstanceUID")), 0x0002FFFF
_ROWS, _PIXELS = 0x00280010, (0x7FE00008, 0x7FE00009, 0x7FE00010)
_PREAMBLE = 132
_ITEMS, _ENDS, _UNDEFINED = 0xFFFE, (0xFFFEE00D, 0xFFFEE0DD), 2**32 - 1
_LONG = {str(vr).encode() for vr in EXPLICIT_VR_LENGTH_32}


@dataclass(frozen=True)
class Head:
    """Hold the parts of an instance's header that a node needs.

    Parameters
    ----------
    study, uid, sop_class : str
        StudyInstanceUID, SOPInstanceUID and SOPClassUID.
    modality : str
        Modality if it is one that the node uses, else ``other``.
    ours : bool
        Whether the instance is a result that this program wrote.
    patient : str
        PatientID.
    """

    study: str
    uid: str
    sop_class: str
    modality: str
    ours: bool
    patient: str


class _TooMany(CadError):
    """Report more than :data:`_MOST` elements and items."""


def head_of(path: Path) -> Head | None:
    """Read an instance's header, in little memory whatever the file holds.

    Parameters
    ----------
    path : Path
        A DICOM file.

    Returns
    -------
    Head or None
        None where the data set is deflated: see :func:`deflated_head`.

    Raises
    ------
    CadError
        When the file is not DICOM, or has not its UIDs among its first elements.
    """
    with reading(path, "not a readable DICOM file"), _opened(path) as (stream, syntax):
        if syntax == DeflatedExplicitVRLittleEndian:
            return None
        return _judged(_picked(stream, syntax, _WANTED, _LAST))


def require_whole(path: Path) -> None:
    """Refuse an instance whose file was cut off: it would keep the whole one out.

    A deflated one that was cut off cannot be inflated, and is not looked at here.

    Parameters
    ----------
    path : Path
        A DICOM file.

    Raises
    ------
    CadError
        When the file ends within an element, or before the pixels of an image.
    """
    seen = set[int]()
    with reading(path, "not a readable DICOM file"), _opened(path) as (stream, syntax):
        if syntax != DeflatedExplicitVRLittleEndian:
            with suppress(_TooMany):  # thousands of frames: it takes too long to tell
                tags = (tag for tag, *_ in _elements(stream, syntax, _PIXELS[-1]))
                seen = {tag for tag in tags if tag in (_ROWS, *_PIXELS)}
        if seen == {_ROWS}:
            raise CadError("the file ends before the pixels of its image", hint="send it again")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, TransferSyntax]]:
    """Open a file at its data set, and tell how that is written."""
    check_file(path, MAX_IMAGE)
    with path.open("rb") as stream:
        if stream.read(_PREAMBLE)[-4:] != b"DICM":
            raise CadError("not a DICOM file: it has no preamble")
        meta = _picked(stream, ExplicitVRLittleEndian, ("TransferSyntaxUID",), _LAST_OF_META)
        yield stream, TransferSyntax(str(meta.get("TransferSyntaxUID", "")))


def _picked(
    stream: io.BufferedReader, syntax: TransferSyntax, wanted: tuple[str, ...], last: int
) -> Dataset:
    """Return some of the elements up to a tag, from a stream that is left behind that."""
    tags = {int(Tag(name)) for name in ("SpecificCharacterSet", *wanted)}
    kept = dict[int, bytes]()
    for tag, begin, end in _elements(stream, syntax, last):
        if tag in tags:
            if end - begin > _LONGEST:
                raise CadError(f"an element {Tag(tag)} of {end - begin} bytes")
            stream.seek(begin)
            kept[tag] = stream.read(end - begin)
    short = io.BytesIO(b"".join(kept.values()))
    return read_dataset(short, syntax.is_implicit_VR, syntax.is_little_endian)


def _elements(
    stream: io.BufferedReader, syntax: TransferSyntax, last: int
) -> Iterator[tuple[int, int, int]]:
    """Yield tag, begin and end of each element, within no sequence, up to a tag; stop behind that.

    pydicom builds each item of a sequence whose length is not stated, whether it is wanted or not:
    a kilobyte in memory for eight bytes.
    """
    order, size = "<" if syntax.is_little_endian else ">", os.fstat(stream.fileno()).st_size
    outermost, begin, end = 0, stream.tell(), stream.tell()
    # As pydicom does: some files are written otherwise than they say.
    implicit = not b"AA" <= stream.read(6)[4:] <= b"ZZ"
    around = list[bool]()  # whether VRs are implicit around each sequence and item that is open
    for _ in range(_MOST):
        stream.seek(end)
        if len(head := stream.read(8)) < 8:
            if around:
                raise CadError("the file ends within a sequence", hint="send it again")
            return
        group, element, length = unpack(f"{order}HHL", head)
        tag, vr = group << 16 | element, head[4:6]
        if not around:
            if tag > last:
                stream.seek(end)
                return
            outermost, begin = tag, end
        end += 8
        if tag in _ENDS:
            if not around:
                return
            implicit = around.pop()
        else:
            if group != _ITEMS and not implicit and b"AA" <= vr <= b"ZZ":
                if vr in _LONG:
                    (length,), end = unpack(f"{order}L", stream.read(4)), end + 4
                else:
                    (length,) = unpack(f"{order}H", head[6:])
            if length == _UNDEFINED:
                around.append(implicit)
                implicit = implicit or vr == b"UN"  # PS3.5 6.2.2
            else:
                end += length
        if end > size:
            raise CadError("the file ends within an element", hint="send it again")
        if not around:
            yield outermost, begin, end
    raise _TooMany(f"more than {_MOST} elements and items")


def deflated_head(path: Path) -> Head:
    """Read the header of an instance whose data set is deflated (compressed as a whole).

    Inflating may fill the memory: call it in a process of its own.

    Parameters
    ----------
    path : Path
        A DICOM file.

    Raises
    ------
    CadError
        When the file is not DICOM, or its UIDs or patient are missing.
    """
    with reading(path, "not a readable DICOM file"):
        found = pydicom.dcmread(path, stop_before_pixels=True)
        return _judged(found)


def _judged(found: Dataset) -> Head:
    said = {name: str(found.get(name) or "") for name in _WANTED}
    study, uid = said["StudyInstanceUID"], said["SOPInstanceUID"]
    if not UID.fullmatch(study) or not UID.fullmatch(uid):
        raise CadError("an instance whose study or own name is no UID")
    modality = said["Modality"] if said["Modality"] in MODALITIES else "other"
    ours = said["ManufacturerModelName"] == OWN_MODEL_NAME
    return Head(study, uid, said["SOPClassUID"], modality, ours, said["PatientID"].strip())


def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a DICOM file without its file meta information.

    The file meta says which program wrote the file: the same instance, sent twice, may differ
    there.

    Parameters
    ----------
    path : Path
        A DICOM file.
    """
    with _opened(path) as (stream, _):
        return hashlib.file_digest(stream, "sha256").digest()


def same_content(one: Path, other: Path) -> bool:
    """Tell whether two files hold the same instance, even in different transfer syntaxes.

    Decoding may fill the memory: call it in a process of its own.

    Parameters
    ----------
    one, other : Path
        DICOM files.
    """
    with reading(one, "not readable as DICOM"):
        return _plain(one) == _plain(other)


def _plain(path: Path) -> bytes:
    """Return a data set written plainly: pixels unpacked, implicit VR, lengths stated."""
    check_file(path, MAX_IMAGE)
    dataset = pydicom.dcmread(path)
    if dataset.file_meta.TransferSyntaxUID.is_compressed and "PixelData" in dataset:
        dataset.decompress(generate_instance_uid=False)
    if not dataset.file_meta.TransferSyntaxUID.is_little_endian and dataset.BitsAllocated == 16:
        swapped = bytearray(dataset.PixelData)
        swapped[::2], swapped[1::2] = swapped[1::2], swapped[::2]
        dataset.PixelData = bytes(swapped)
    _state_lengths(dataset)
    stream = io.BytesIO()
    plain = Dataset({tag: dataset[tag] for tag in sorted(dataset.keys()) if tag.element})
    pydicom.dcmwrite(stream, plain, implicit_vr=True, little_endian=True)
    return stream.getvalue()


def _state_lengths(dataset: Any) -> None:
    for element in dataset:
        element.is_undefined_length = False
        for item in element.value if element.VR == "SQ" else ():
            item.is_undefined_length_sequence_item = False
            _state_lengths(item)
