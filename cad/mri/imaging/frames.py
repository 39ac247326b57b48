"""Describe every plane of a DICOM file in one form, without names and birth dates of people.

A classic DICOM file has one plane. An enhanced multi-frame object has many planes. A Siemens mosaic
is one image that holds many slices side by side, and is cut into planes. Each plane becomes a
:class:`Frame`, and later code does not distinguish the three kinds of files.
"""

import os
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from io import BytesIO
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pydicom
from pydicom.errors import InvalidDicomError
from pydicom.filereader import (
    _read_command_set_elements,
    _read_file_meta_info,
    read_preamble,
)
from pydicom.uid import DeflatedExplicitVRLittleEndian

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.reading import MAX_IMAGE, SMALL, check_inflation, read_bytes, reading
from cad.base.regular import MIB
from cad.mri.imaging.elements import Excerpt, Read, check_places, excerpt

# First two bytes of a DICOM file without a preamble: the group number 0002 or 0008, in either byte
# order.
_FIRST_BYTES = (b"\x02\x00", b"\x08\x00", b"\x00\x02", b"\x00\x08")
# Largest file (bytes) of which an excerpt is read: more than a slice of 1024 x 1024 pixels.
_MOST_READ = 4 * MIB
STATE = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")
"""Function that returns the parts of a file's status that show whether the file has changed.

The size, the times of change and the inode are returned. A copy of the file has other values.
"""
UID = re.compile(r"[0-9.]{1,64}")
"""A DICOM UID has digits and dots, and at most 64 characters (PS3.5 9.1)."""
ROUNDED = 1e-4
"""Two numbers of a header that differ by at most this share count as roundings of one number."""
_DEFLATE_FACTOR = 1032  # largest factor by which the method deflate can compress


class Scale(NamedTuple):
    """Turn stored numbers into values: ``slope * stored + intercept`` in ``unit``.

    Parameters
    ----------
    slope, intercept : float
        Values of the header; 1 and 0 where the header has none.
    unit : str
        UCUM code or RescaleType, as the header states it; empty where the header states none.
    """

    slope: float = 1.0
    intercept: float = 0.0
    unit: str = ""


class Lying(NamedTuple):
    """Say where and how uncompressed pixels are stored in their file.

    Parameters
    ----------
    layout : tuple of bytes
        All that the file states about the pixels: transfer syntax, and elements such as Rows.
    begin, end : int
        Where the pixels begin and end in the file, in bytes.
    state : tuple of int
        Size, times of change and inode of the file (:data:`STATE`), by which a change is noticed.
    """

    layout: tuple[bytes, ...]
    begin: int
    end: int
    state: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """Hold the header of one plane (a 2-D slice), whatever kind of DICOM file it lies in.

    Fields have the names of their DICOM attributes and are None or empty where the header does not
    state them. Times, TR and delay are in s, TE in ms, angles in degrees. The other fields are:

    - ``index``: number of the plane in its file, from 0
    - ``tiles``: number of tiles along a side of the mosaic that the plane is cut from; else 0
    - ``stack_id``, ``stack_position``: stack of an enhanced object to which the frame belongs, and
      the frame's number in the stack
    - ``group_delay``: pause after each volume, which the repetition time does not contain
    - ``direction``: direction of the diffusion gradient
    - ``real``: scaling of stored numbers to the values that a viewer shows (real-world value
      mapping, else rescale)
    - ``precise``: scaling of stored numbers to the scanner's signal (Philips scales displayed
      values)
    - ``phase_encoding``: ``ROW``, ``COL`` (in enhanced objects ``COLUMN``), or empty
    - ``lying``: where and how the pixels are stored; None where pydicom has to find them
    """

    path: Path
    index: int
    tiles: int
    patient_id: str
    study_uid: str
    study_date: str
    series_uid: str
    sop_uid: str
    sop_class: str
    modality: str
    manufacturer: str
    series_number: int
    description: str
    image_type: tuple[str, ...]
    sequence_name: str
    stack_id: str
    stack_position: int | None
    instance_number: int
    acquisition_number: int | None
    acquisition_time: float | None
    content_time: float | None
    trigger_time: float | None
    temporal_position: int | None
    flip_angle: float | None
    repetition_time: float | None
    group_delay: float
    echo_time: float | None
    field_strength: float | None
    b_value: float | None
    direction: tuple[float, ...] | None
    frame_uid: str
    phase_encoding: str
    position: tuple[float, ...] | None
    orientation: tuple[float, ...] | None
    pixel_spacing: tuple[float, ...] | None
    thickness: float | None
    rows: int
    columns: int
    real: Scale
    precise: Scale
    lying: Lying | None = field(default=None, compare=False)


class NotDicom(CadError):
    """Say that a file is not DICOM at all; a damaged DICOM file raises a plain CadError."""


@door("in", "DICOM", bound="import's child", limit=MAX_IMAGE)
def read_header(path: Path, tags: Collection[int] = ()) -> pydicom.Dataset:
    """Read the header of a DICOM file, without pixels; the file may lack the preamble.

    Parameters
    ----------
    path : Path
        The file.
    tags : collection of int, optional
        Attributes to read; by default all.

    Returns
    -------
    Dataset
        The elements of the header, or those of ``tags`` that the file has.

    Raises
    ------
    NotDicom
        When the file is not DICOM.
    CadError
        When it is damaged.
    """
    try:
        return read_dataset(path, tags, stop_before_pixels=True)
    except NotDicom:
        # The file has no preamble. It is read all the same if it begins like a DICOM file and
        # says what kind of object it is; any bytes can be taken for some elements.
        with path.open("rb") as stream:
            if stream.read(2) not in _FIRST_BYTES:
                raise
        dataset = read_dataset(path, tags, force=True, stop_before_pixels=True)
        if "SOPClassUID" not in dataset:
            raise
        return dataset


@door("in", "DICOM", bound="import's child", limit=MAX_IMAGE)
def read_dataset(path: Path, tags: Collection[int] = (), **options: Any) -> pydicom.Dataset:
    """Read a DICOM file with ``pydicom.dcmread``; ``options`` are passed on to this function.

    Parameters
    ----------
    path : Path
        The file.
    tags : collection of int, optional
        Attributes to read; by default all.

    Returns
    -------
    Dataset
        The elements of the file, or those of ``tags`` that the file has.

    Raises
    ------
    NotDicom
        For a file without the preamble, unless the options hold ``force=True``.
    CadError
        When the file is damaged, is no plain file, or is larger (packed or unpacked) than any
        image, and when an element that is read stands twice or behind the pixels.
    """
    with reading(path, "damaged DICOM file"):
        try:
            _check_deflated(path)
            # An excerpt is read faster than pydicom reads the file, and has been checked.
            extract = read_excerpt(path, tags) if tags else None
            if extract is not None:
                return dataset_of(extract)
            dataset = pydicom.dcmread(path, specific_tags=list(tags) or None, **options)
            _check_places_in_file(path, dataset, tags)
            return dataset
        except InvalidDicomError as error:
            raise NotDicom(f"not a DICOM file: {error}") from error


def read_excerpt(path: Path, tags: Collection[int]) -> Excerpt | None:
    """Return some elements of a file, by :func:`cad.mri.imaging.elements.excerpt`.

    The result is None where ``excerpt`` returns None, and for a file of more than 4 MiB.

    Parameters
    ----------
    path : Path
        The file.
    tags : collection of int
        The elements.
    """
    # The state is taken before the file is read, so that a change during reading is noticed later.
    state = STATE(path.stat())
    size = state[0]
    if size > _MOST_READ:
        return None
    extract = excerpt(read_bytes(path, _MOST_READ), tags)
    if extract is None:
        return None
    return extract._replace(state=state)


@door("in", "DICOM", bound="the excerpt of a file that was read within its limit")
def dataset_of(extract: Excerpt) -> pydicom.Dataset:
    """Return the elements of an excerpt as a data set."""
    return pydicom.dcmread(BytesIO(b"".join([extract.start, *extract.elements.values()])))


@door("in", "DICOM", bound="import's child", limit=MAX_IMAGE)
def _check_deflated(path: Path) -> None:
    """Raise an error for a deflated data set that would be too large once it is inflated.

    pydicom would inflate the data set without a limit.
    """
    packed = path.stat().st_size
    unpacked = 0
    if packed * _DEFLATE_FACTOR <= SMALL:  # small even if it were deflated as far as possible
        return
    with path.open("rb") as stream:
        read_preamble(stream, force=True)
        if _read_file_meta_info(stream).get("TransferSyntaxUID") != DeflatedExplicitVRLittleEndian:
            return
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # negative: the data have no zlib header
        # At most a mebibyte is inflated at a time, and only counted. The packed bytes that are left
        # over come first the next time.
        while chunk := inflate.unconsumed_tail or stream.read(MIB):
            unpacked += len(inflate.decompress(chunk, MIB))
            check_inflation(packed, unpacked, MAX_IMAGE, "DICOM")
            if inflate.eof:
                return


@door("in", "DICOM", bound="import's child", limit=MAX_IMAGE)
def _check_places_in_file(path: Path, dataset: pydicom.Dataset, tags: Collection[int]) -> None:
    """Refuse a file in which an element stands twice or behind the pixels.

    Of two elements, pydicom has taken the last.
    """
    _, is_little_endian = dataset.original_encoding
    order = "<" if is_little_endian else ">"
    with path.open("rb") as stream:
        read_preamble(stream, force=True)
        meta_begins = stream.tell()
        meta = _read_file_meta_info(stream)
        meta_ends = stream.tell()
        # The meta information is little-endian in every file.
        check_places(_reader_of_stream(stream), size=meta_ends, offset=meta_begins, order="<")
        stream.seek(meta_ends)
        # Elements of a network message may stand before the data set; pydicom passes over them.
        _read_command_set_elements(stream)
        body: BinaryIO = stream
        if meta.get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
            body = BytesIO(zlib.decompressobj(-zlib.MAX_WBITS).decompress(stream.read()))
        data_set_begins = body.tell()
        size = body.seek(0, os.SEEK_END)
        check_places(_reader_of_stream(body), size, data_set_begins, order, tags)


def _reader_of_stream(stream: BinaryIO) -> Read:
    """Return a function that reads bytes at a position of a stream."""

    def read(place: int, count: int) -> bytes:
        stream.seek(place)
        return stream.read(count)

    return read
