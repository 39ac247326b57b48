"""Identify a DICOM instance by a few elements of its header, in little memory.

Two functions unpack a whole file and have to run in a process with limits: :func:`deflated_head`
reads a deflated file, and :func:`same_content` compares files that are compressed differently.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.tag import Tag
from pydicom.uid import UID as TransferSyntax
from pydicom.uid import DeflatedExplicitVRLittleEndian

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.reading import MAX_IMAGE, reading
from cad.dicom.archive.interface import MODALITIES
from cad.dicom.own import OWN_MODEL_NAME
from cad.mri.imaging.elements import (
    PIXELS,
    Read,
    TooManyElements,
    data_set,
    elements,
    tag_name,
)
from cad.mri.imaging.frame_headers import single_text
from cad.mri.imaging.frames import UID

_LONGEST = 2**10  # elements with more bytes than this are not read
_WANTED = (
    "SOPClassUID",
    "SOPInstanceUID",
    "Modality",
    "ManufacturerModelName",
    "PatientID",
    "StudyInstanceUID",
)
_REQUIRED = ("SOPInstanceUID", "PatientID", "StudyInstanceUID")
_ROWS = 0x00280010
_SPECTRA = 0x56000020
_PROVIDER = 0x00287FE0  # an element in place of pixels, which names the server that has them
# Names of the SOP classes (kinds of DICOM objects) whose objects have pixels. All segmentations
# have pixels, except segmentations of surfaces.
_OF_PIXELS = re.compile("Image Storage|Parametric Map Storage|(?<!Surface )Segmentation Storage")

# For SOP classes without pixels: the last element that an object must have, by words in the name of
# the class (DICOM PS3.3 A.35, C.17.3, C.8.8.8). A parser accepts a file that was cut off between
# two elements. A file is known to be complete only if it has this last element.
_LAST = {
    " SR Storage": (0x0040A730, "the content of its report"),
    "Key Object Selection": (0x0040A730, "the content of its selection"),
    "RT Structure Set": (0x30060080, "the observations of its structures"),
}


@dataclass(frozen=True)
class Head:
    """Hold the facts of an instance's header that a node needs.

    Parameters
    ----------
    study, uid, sop_class : str
        StudyInstanceUID, SOPInstanceUID and SOPClassUID.
    modality : str
        Modality if the node uses it, else ``other``.
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


def head_of(path: Path) -> Head | None:
    """Read an instance's header; whatever the file holds, this takes little memory.

    Parameters
    ----------
    path : Path
        A DICOM file.

    Returns
    -------
    Head or None
        None if the data set is deflated: see :func:`deflated_head`.

    Raises
    ------
    CadError
        When the file is not DICOM, or lacks a valid UID.
    """
    with reading(path, "not a readable DICOM file"), _opened(path) as (stream, offset, syntax):
        if syntax == DeflatedExplicitVRLittleEndian:
            return None
        return _head_of_dataset(_wanted_elements(stream, offset, syntax))


def require_whole(path: Path, sop_class: str) -> None:
    """Raise an error for an instance whose file was cut off.

    If such a file were kept, the complete file would be refused when it is sent later, as another
    instance of the same UID. A deflated file needs no check here: if it was cut off, reading it
    raises an error.

    Parameters
    ----------
    path : Path
        A DICOM file.
    sop_class : str
        SOPClassUID of the instance, which tells whether it must have pixels.

    Raises
    ------
    CadError
        When the file ends within an element, or before the pixels of an image.
    """
    # IGNORE: the UID of an unknown class raises no error; its name is the UID itself.
    class_name = pydicom.uid.UID(sop_class, pydicom.config.IGNORE).name
    needs_pixels = _OF_PIXELS.search(class_name) is not None
    last_tag = 0  # 0 if the class asks for no last element
    content = ""
    for kind, tag_and_words in _LAST.items():
        if kind in class_name:
            last_tag, content = tag_and_words
            break
    with reading(path, "not a readable DICOM file"), _opened(path) as (stream, offset, syntax):
        if syntax == DeflatedExplicitVRLittleEndian:
            return
        # A file with very many elements counts as whole, because checking it would take too long.
        # An example is a file with thousands of frames.
        with suppress(TooManyElements):
            for tag, *_ in elements(*_reader_of_file(stream), offset, syntax):
                if tag in (_SPECTRA, _PROVIDER, *PIXELS):
                    return  # the pixels are there; elements after them are not needed
                # The file has its last required element, or is past it.
                if last_tag and tag >= last_tag:
                    return
                if tag == _ROWS:  # an object that states a size has an image
                    needs_pixels = True
            if last_tag:
                raise CadError(f"the file ends before {content}", hint="send it again")
            if needs_pixels:
                raise CadError("the file ends before the pixels of its image", hint="send it again")


@door("in", "DICOM", bound="the node's child", limit=MAX_IMAGE)
@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, int, TransferSyntax]]:
    """Open a file; yield it with the start of its data set and its transfer syntax."""
    with path.open("rb") as stream:
        yield stream, *data_set(*_reader_of_file(stream))


def _reader_of_file(stream: io.BufferedReader) -> tuple[Read, int]:
    """Return a function that reads bytes at any position of a file, and the file's size."""
    file = stream.fileno()
    return lambda offset, count: os.pread(file, count, offset), os.fstat(file).st_size


@door("in", "DICOM", bound="elements of at most _LONGEST bytes")
def _wanted_elements(stream: io.BufferedReader, offset: int, syntax: TransferSyntax) -> Dataset:
    """Return the elements of ``_WANTED``, which identify an instance."""
    read, size = _reader_of_file(stream)
    tags = {int(Tag(name)) for name in ("SpecificCharacterSet", *_WANTED)}
    # Elements should stand in ascending order: reading ends after the last wanted one, `max(tags)`.
    values = _values_of_elements(read, size, offset, syntax, tags, max(tags))
    if not values.keys() >= {int(Tag(name)) for name in _REQUIRED}:
        # They may stand in another order all the same. A header of very many elements is not
        # searched.
        with suppress(TooManyElements):
            values = _values_of_elements(read, size, offset, syntax, tags, PIXELS[-1])
    # The wanted elements alone are a small data set.
    wanted_bytes = io.BytesIO(b"".join(values.values()))
    return read_dataset(wanted_bytes, syntax.is_implicit_VR, syntax.is_little_endian)


def _values_of_elements(
    read: Read, size: int, offset: int, syntax: TransferSyntax, tags: set[int], last: int
) -> dict[int, bytes]:
    """Return some elements up to the tag ``last``; refuse one that is long or stands twice."""
    values = dict[int, bytes]()
    for tag, begin, end in elements(read, size, offset, syntax, last):
        if tag not in tags:
            continue
        # No wanted element needs more bytes; a longer one could fill the memory.
        if end - begin > _LONGEST:
            raise CadError(f"an element {Tag(tag)} of {end - begin} bytes")
        if tag in values:
            raise CadError(
                f"{tag_name(tag)} stands twice in one data set; programs differ in which of the "
                "two they read",
                hint="export the file again",
            )
        values[tag] = read(begin, end - begin)
    return values


@door("in", "DICOM", bound="the node's child", limit=MAX_IMAGE)
def deflated_head(path: Path) -> Head:
    """Read the header of an instance whose data set is deflated (compressed as a whole).

    Call it in a process of its own, because inflating may fill the memory.

    Parameters
    ----------
    path : Path
        A DICOM file.

    Returns
    -------
    Head
        UIDs, modality and PatientID of the instance.

    Raises
    ------
    CadError
        When the file is not DICOM, or its UIDs or patient are missing.
    """
    with reading(path, "not a readable DICOM file"):
        return _head_of_dataset(pydicom.dcmread(path, stop_before_pixels=True))


def _head_of_dataset(dataset: Dataset) -> Head:
    """Return the header of an instance; refuse one without a valid UID of study and instance.

    An element of several values is refused, too: a man could not be found by such a PatientID.
    """
    texts = {name: single_text(dataset.get(name), name) for name in _WANTED}
    study = texts["StudyInstanceUID"]
    uid = texts["SOPInstanceUID"]
    if not UID.fullmatch(study) or not UID.fullmatch(uid):
        raise CadError("an instance whose study or own name is no UID")
    modality = texts["Modality"] if texts["Modality"] in MODALITIES else "other"
    ours = texts["ManufacturerModelName"] == OWN_MODEL_NAME
    return Head(
        study=study,
        uid=uid,
        sop_class=texts["SOPClassUID"],
        modality=modality,
        ours=ours,
        patient=texts["PatientID"],
    )


@door("in", "DICOM", bound="the node's child", limit=MAX_IMAGE)
def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a DICOM file without its file meta information.

    The file meta information names the program that wrote the file. It may differ between two
    copies of the same instance.

    Parameters
    ----------
    path : Path
        A DICOM file.
    """
    with _opened(path) as (stream, offset, _):
        stream.seek(offset)
        return hashlib.file_digest(stream, "sha256").digest()


def is_whole(path: Path, digest: bytes) -> bool:
    """Tell whether a file still has the data set with which it was stored.

    Parameters
    ----------
    path : Path
        The file, which the disk may have damaged.
    digest : bytes
        Hash of the data set (:func:`digest_of`) when the file was stored.

    Returns
    -------
    bool
        True if the file can be read and its data set has this hash.
    """
    with suppress(CadError), reading(path, "damaged on the disk"):
        return digest_of(path) == digest
    return False


def same_content(first: Path, second: Path) -> bool:
    """Tell whether two files hold the same instance, even in different transfer syntaxes.

    Call it in a process of its own, because decoding may fill the memory.

    Parameters
    ----------
    first, second : Path
        DICOM files.

    Returns
    -------
    bool
        True if the elements and the decoded pixels of both files are equal.
    """
    with reading(first, "not readable as DICOM"):
        return _plain_dataset(first) == _plain_dataset(second)


@door("in", "DICOM", bound="the node's child", limit=MAX_IMAGE)
def _plain_dataset(path: Path) -> bytes:
    """Return a data set as bytes in one form, to compare it: pixels unpacked, lengths stated.

    The bytes have the transfer syntax of implicit value representation (VR).
    """
    dataset = pydicom.dcmread(path)
    if dataset.file_meta.TransferSyntaxUID.is_compressed and "PixelData" in dataset:
        dataset.decompress(generate_instance_uid=False)  # the UID is compared, too
    # Pixels of two bytes are turned from the big-endian into the little-endian order.
    if not dataset.file_meta.TransferSyntaxUID.is_little_endian and dataset.BitsAllocated == 16:
        swapped = bytearray(dataset.PixelData)
        swapped[::2], swapped[1::2] = swapped[1::2], swapped[::2]
        dataset.PixelData = bytes(swapped)
    _state_lengths(dataset)
    stream = io.BytesIO()
    # Elements of number 0 state lengths of groups, which differ between transfer syntaxes.
    plain_dataset = Dataset({tag: dataset[tag] for tag in sorted(dataset.keys()) if tag.element})
    pydicom.dcmwrite(stream, plain_dataset, implicit_vr=True, little_endian=True)
    return stream.getvalue()


def _state_lengths(dataset: Any) -> None:
    """Let all sequences of a data set and their items be written with stated lengths.

    A file may also end them by marks, so that equal content could be different bytes.
    """
    for element in dataset:
        element.is_undefined_length = False
        if element.VR != "SQ":  # only sequences have items
            continue
        for item in element.value:
            item.is_undefined_length_sequence_item = False
            _state_lengths(item)
