"""An element that stands twice in one data set, or behind the pixels, is refused by name."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import write_series
from pydicom.dataset import Dataset
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from cad.base.errors import CadError
from cad.mri.imaging import frames as frames_module
from cad.mri.imaging.frames import read_dataset
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.pixels import PixelReader

PLANE = np.arange(1, 65, dtype=np.uint16).reshape(8, 8)
READ = {
    "PatientID": "SMITH",
    "StudyInstanceUID": "1.2.3",
    "ImagePositionPatient": [9, 9, 9],
    "PixelSpacing": [2, 2],
    "RescaleSlope": "3",
    "InstanceNumber": "8",
}
SYNTAXES = {
    "implicit": ImplicitVRLittleEndian,
    "explicit": ExplicitVRLittleEndian,
    "big-endian": ExplicitVRBigEndian,
    "deflated": DeflatedExplicitVRLittleEndian,
}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (path,) = write_series(tmp_path, PLANE[None])
    dataset = pydicom.dcmread(path)
    dataset.RescaleSlope = 1
    dataset.RescaleIntercept = 0
    dataset.save_as(path)
    return path


def element(keyword: str, value: object) -> bytes:
    """An element with an explicit VR, least significant byte first."""
    tag = pydicom.datadict.tag_for_keyword(keyword)
    assert tag is not None
    values = value if isinstance(value, list) else [value]
    text = "\\".join(map(str, values)).encode()
    text += b" " * (len(text) % 2)
    vr = pydicom.datadict.dictionary_VR(keyword).encode()
    return struct.pack("<HH2sH", tag >> 16, tag & 0xFFFF, vr, len(text)) + text


def place_of(content: bytes, keyword: str, *, behind: bool) -> int:
    """Return the start, or end, of an element with an explicit VR in a file."""
    tag = pydicom.datadict.tag_for_keyword(keyword)
    assert tag is not None
    vr = pydicom.datadict.dictionary_VR(keyword).encode()
    start = content.index(struct.pack("<HH", tag >> 16, tag & 0xFFFF) + vr)
    (length,) = struct.unpack_from("<H", content, start + 6)
    return start + 8 + length if behind else start


def refusal(path: Path) -> str:
    listing = list_files([path])
    assert not any(listing.studies.values())
    (error,) = listing.unreadable
    assert error.file == str(path)
    assert error.hint
    return error.problem


@pytest.mark.parametrize("keyword", READ)
@pytest.mark.parametrize("where", ["before", "behind", "last"])
@pytest.mark.parametrize("large", [False, True])
def test_an_element_that_stands_twice_is_refused(image, monkeypatch, keyword, where, large):
    """GDCM takes the first of the two, and pydicom the last."""
    if large:  # such a file is not read by this program's quick reader
        monkeypatch.setattr(frames_module, "_MOST_READ", 16)
    content = image.read_bytes()
    place = len(content)
    if where != "last":
        place = place_of(content, keyword, behind=where == "behind")
    image.write_bytes(content[:place] + element(keyword, READ[keyword]) + content[place:])
    problem = refusal(image)
    tag = pydicom.datadict.tag_for_keyword(keyword)
    assert tag is not None
    assert f"{keyword} ({tag >> 16:04X},{tag & 0xFFFF:04X}) stands twice in one data" in problem
    assert "each once (PS3.5 7.1)" in problem
    assert "SMITH" not in problem


def test_pixel_data_that_stand_twice_are_refused(image):
    content = image.read_bytes()
    start = content.index(b"\xe0\x7f\x10\x00OW")
    image.write_bytes(content + content[start:])
    (frame,) = next(iter(list_files([image]).studies.values()))
    with pytest.raises(CadError, match=r"PixelData \(7FE0,0010\) stands twice in one data set"):
        PixelReader().plane(frame)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_every_encoding_is_searched(tmp_path, syntax):
    """The second PatientID is written with another tag, and then gets its tag."""
    (path,) = write_series(tmp_path, PLANE[None])
    dataset = pydicom.dcmread(path)
    dataset.add_new(0x00100021, "LO", "SECOND")
    if syntax == "big-endian":
        dataset.PixelData = PLANE.byteswap().tobytes()
    list(dataset.iterall())  # decodes the elements before they are written in another order
    target = SYNTAXES[syntax]
    dataset.file_meta.TransferSyntaxUID = target
    pydicom.dcmwrite(
        path, dataset, implicit_vr=target.is_implicit_VR, little_endian=target.is_little_endian
    )
    assert len(list_files([path]).studies) == 1
    order = "<HH" if target.is_little_endian else ">HH"
    change_tag(path, order, deflated=target == DeflatedExplicitVRLittleEndian)
    assert "PatientID (0010,0020) stands twice in one data set" in refusal(path)


def change_tag(path: Path, order: str, *, deflated: bool) -> None:
    """Give the second of two elements the tag of the first."""
    content = path.read_bytes()
    start = 0
    if deflated:
        (length,) = struct.unpack_from("<L", content, 140)
        start = 144 + length
        content = content[:start] + zlib.decompress(content[start:], -zlib.MAX_WBITS)
    second = struct.pack(order, 0x10, 0x21)
    assert content[start:].count(second) == 1
    changed = content[start:].replace(second, struct.pack(order, 0x10, 0x20))
    if deflated:
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        changed = packer.compress(changed) + packer.flush()
    path.write_bytes(content[:start] + changed)


@pytest.mark.parametrize("large", [False, True])
def test_a_file_of_two_transfer_syntaxes_is_refused(image, monkeypatch, large):
    if large:
        monkeypatch.setattr(frames_module, "_MOST_READ", 16)
    content = image.read_bytes()
    (length,) = struct.unpack_from("<L", content, 140)
    second = element("TransferSyntaxUID", str(ExplicitVRLittleEndian)).replace(b" ", b"\0")
    end = 144 + length
    longer = struct.pack("<L", length + len(second))
    image.write_bytes(content[:140] + longer + content[144:end] + second + content[end:])
    assert "TransferSyntaxUID (0002,0010) stands twice in one data set" in refusal(image)


def test_a_file_without_preamble_is_searched(image):
    content = image.read_bytes()
    place = place_of(content, "PatientID", behind=True)
    (length,) = struct.unpack_from("<L", content, 140)
    whole = content[144 + length :]
    image.write_bytes(whole)
    assert len(list_files([image]).studies) == 1
    image.write_bytes(content[144 + length : place] + element("PatientID", "B") + content[place:])
    assert "PatientID (0010,0020) stands twice" in refusal(image)


@pytest.mark.parametrize("keyword", READ)
@pytest.mark.parametrize("large", [False, True])
def test_an_element_behind_the_pixels_is_refused(image, monkeypatch, keyword, large):
    """A header is read up to the pixels; a slope behind them would be no slope."""
    if large:
        monkeypatch.setattr(frames_module, "_MOST_READ", 16)
    content = image.read_bytes()
    start = place_of(content, keyword, behind=False)
    end = place_of(content, keyword, behind=True)
    image.write_bytes(content[:start] + content[end:] + content[start:end])
    problem = refusal(image)
    assert f"{keyword} (00" in problem
    assert "stands behind PixelData (7FE0,0010)" in problem
    assert "in ascending order" in problem


@pytest.mark.parametrize("end", [0xE00D, 0xE0DD])
def test_an_end_that_nothing_began_hides_no_second_element(image, end):
    """pydicom reads on behind such an end."""
    content = image.read_bytes()
    place = place_of(content, "PatientID", behind=True)
    stray = struct.pack("<HHL", 0xFFFE, end, 0)
    second = element("PatientID", "SMITH")
    image.write_bytes(content[:place] + stray + second + content[place:])
    assert "PatientID (0010,0020) stands twice in one data set" in refusal(image)


@pytest.fixture
def mapped(image: Path) -> Callable[..., Path]:
    """An image with an item in an item, of stated and of unstated lengths."""

    def write(*, undefined: bool, implicit: bool) -> Path:
        dataset = pydicom.dcmread(image)
        unit = Dataset()
        unit.CodeValue = "mm"
        unit.CodeMeaning = "AAAA"
        unit.ContextIdentifier = "BBBB"
        item = Dataset()
        item.RealWorldValueSlope = 1.0
        item.RealWorldValueIntercept = 0.0
        item.MeasurementUnitsCodeSequence = [unit]
        dataset.RealWorldValueMappingSequence = [item]
        dataset["RealWorldValueMappingSequence"].is_undefined_length = undefined
        item["MeasurementUnitsCodeSequence"].is_undefined_length = undefined
        item.is_undefined_length_sequence_item = undefined
        unit.is_undefined_length_sequence_item = undefined
        dataset.save_as(image, implicit_vr=implicit, little_endian=True)
        return image

    def syntax(*, undefined: bool, implicit: bool) -> Path:
        dataset = pydicom.dcmread(image)
        chosen = ImplicitVRLittleEndian if implicit else ExplicitVRLittleEndian
        dataset.file_meta.TransferSyntaxUID = chosen
        dataset.save_as(image, implicit_vr=implicit, little_endian=True)
        return write(undefined=undefined, implicit=implicit)

    return syntax


@pytest.mark.parametrize("undefined", [False, True])
@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_an_element_that_stands_twice_in_an_item_is_refused(
    mapped, monkeypatch, undefined, implicit, large
):
    if large:
        monkeypatch.setattr(frames_module, "_MOST_READ", 16)
    path = mapped(undefined=undefined, implicit=implicit)
    assert len(list_files([path]).studies) == 1
    content = path.read_bytes()
    meaning = struct.pack("<HH", 0x0008, 0x0104)
    context = struct.pack("<HH", 0x0008, 0x010F)
    assert content.count(context) == 1
    vr = b"LO" if not implicit else b""
    changed = content.replace(context + (b"CS" if vr else b""), meaning + vr)
    path.write_bytes(changed)
    assert "CodeMeaning (0008,0104) stands twice in one data set" in refusal(path)


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("undefined", [False, True])
def test_bytes_that_look_like_an_item_hide_no_second_element(tmp_path, implicit, undefined):
    """Where a VR is not known, the bytes of a value may look like a damaged item."""
    (path,) = write_series(tmp_path, PLANE[None])
    dataset = pydicom.dcmread(path)
    start = struct.pack("<HHL", 0xFFFE, 0xE000, 2**32 - 1 if undefined else 4)
    dataset.add_new(0x00090010, "LO", "MAKER")
    dataset.add_new(0x00091001, "UN", start + b"abcdefgh")
    dataset.add_new(0x00100021, "LO", "SECOND")
    syntax = ImplicitVRLittleEndian if implicit else ExplicitVRLittleEndian
    dataset.file_meta.TransferSyntaxUID = syntax
    pydicom.dcmwrite(path, dataset, implicit_vr=implicit, little_endian=True)
    read_dataset(path)
    content = path.read_bytes()
    second = struct.pack("<HH", 0x0010, 0x0021)
    assert content.count(second) == 1
    path.write_bytes(content.replace(second, struct.pack("<HH", 0x0010, 0x0020)))
    with pytest.raises(CadError, match=r"PatientID \(0010,0020\) stands twice in one data set"):
        read_dataset(path)


@pytest.mark.parametrize("count", [6, 8, 64, 512])
def test_zeros_at_the_end_of_a_file_are_no_elements(image, count):
    content = image.read_bytes()
    image.write_bytes(content + bytes(count))
    read_dataset(image)
    image.write_bytes(content + bytes(16) + element("PatientID", "SMITH"))
    with pytest.raises(CadError, match=r"PatientID \(0010,0020\) stands twice in one data set"):
        read_dataset(image)


def test_an_element_that_is_not_read_may_stand_twice(image):
    content = image.read_bytes()
    image.write_bytes(content + element("StationName", "A") * 2)
    assert len(list_files([image]).studies) == 1


def test_a_descending_order_alone_is_not_refused(image):
    content = image.read_bytes()
    start = place_of(content, "PatientID", behind=False)
    end = place_of(content, "PatientID", behind=True)
    last = content.index(b"\xe0\x7f\x10\x00OW")
    image.write_bytes(content[:start] + content[end:last] + content[start:end] + content[last:])
    ((frame,),) = list_files([image]).studies.values()
    assert frame.patient_id == "P-001"


def test_compressed_pixels_are_no_elements(image):
    dataset = pydicom.dcmread(image)
    dataset.compress(RLELossless, generate_instance_uid=False)
    dataset.save_as(image)
    read_dataset(image)
    ((frame,),) = list_files([image]).studies.values()
    assert (PixelReader().plane(frame) == PLANE).all()
