"""Small files that would fill the memory are refused by what they say, before they are unpacked."""

from __future__ import annotations

import gzip
import resource
import struct
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import deflate, write_series
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless, JPEGLSLossless, RLELossless

from cad.base.errors import CadError
from cad.mri.imaging.frames import NotDicom, read_dataset, read_header
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.nifti import read_image, read_volume, stored_axes
from cad.mri.imaging.pixel_checks import CompressedSize, compressed_size
from cad.mri.imaging.pixels import decoded


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (path,) = write_series(tmp_path, np.arange(64, dtype=np.uint16).reshape(1, 8, 8))
    return path


def test_a_deflated_file_that_swells_is_refused(image: Path):
    deflate(image, 2)
    assert len(read_dataset(image).PixelData) == 2 << 24
    deflate(image, 200)
    assert image.stat().st_size < 4e6
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CadError, match=r"would become .* of DICOM in memory"):
        read_header(image)
    (problem,) = list_files([image]).unreadable
    assert "in memory" in problem.problem
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_what_is_no_dicom_is_told_from_what_is_damaged(image: Path, tmp_path: Path):
    text = tmp_path / "note"
    text.write_text("no image")
    with pytest.raises(NotDicom):
        read_header(text)
    assert list_files([text]).unreadable == []
    (gone,) = list_files([tmp_path / "gone.dcm"]).unreadable
    assert (gone.problem, gone.file) == ("No such file or directory", str(tmp_path / "gone.dcm"))
    image.write_bytes(image.read_bytes()[:400])
    assert len(list_files([image]).unreadable) == 1


def test_what_a_compressed_image_says_of_its_size():
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc3\x00\x0b\x10\x01\x02\x03\x04\x01" + bytes(8)
    assert compressed_size(jpeg) == CompressedSize(0x0102, 0x0304, 16, 1)
    assert compressed_size(jpeg.replace(b"\xff\xc3", b"\xff\xf7")) == compressed_size(jpeg)
    assert compressed_size(jpeg.replace(b"\xff\xc3", b"\xff\xc4")) is None
    size = struct.pack(">2H6I", 41, 0, 70_000, 50_000, 10, 20, 64, 64) + bytes(8)
    image = b"\xff\x4f\xff\x51" + size + struct.pack(">HB", 1, 0x8B)
    stated = CompressedSize(50_000 - 20, 70_000 - 10, 12, 1, signed=True)
    assert compressed_size(image) == stated
    assert compressed_size(b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20) + image) == stated
    assert compressed_size(b"") is None
    assert compressed_size(b"\xff\xd8\xff") is None


@pytest.mark.parametrize("syntax", [JPEGLSLossless, JPEG2000Lossless])
def test_a_compressed_image_larger_than_its_header_says_is_refused(image: Path, syntax: str):
    dataset = pydicom.dcmread(image)
    dataset.file_meta.TransferSyntaxUID = syntax
    if syntax == JPEGLSLossless:
        stream = b"\xff\xd8\xff\xf7\x00\x0b\x10\xff\xff\xff\xff\x01\x01\x11\x00"
    else:
        stream = b"\xff\x4f\xff\x51" + struct.pack(">2H6I", 41, 0, 60_000, 60_000, 0, 0, 64, 64)
    dataset.PixelData = encapsulate([stream + bytes(100)])
    dataset["PixelData"].is_undefined_length = True
    with pytest.raises(CadError, match=r"of pixels in memory"):
        decoded(dataset, image)


def test_a_header_of_more_pixels_than_there_can_be_is_refused(image: Path):
    dataset = pydicom.dcmread(image)
    dataset.file_meta.TransferSyntaxUID = RLELossless
    dataset.PixelData = encapsulate([bytes(64)])
    dataset.Rows = dataset.Columns = 65_535
    with pytest.raises(CadError, match=r"of pixels in memory"):
        decoded(dataset, image)


def test_voxels_that_begin_far_behind_are_not_waited_for(tmp_path: Path):
    """The reader of NIfTI reads at once all that lies between the header and the voxels."""
    import nibabel

    path = tmp_path / "x.nii"
    nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4)), path)
    content = bytearray(path.read_bytes())
    struct.pack_into("<f", content, 108, 2e9)
    content[348] = 1
    path.write_bytes(content)
    with pytest.raises(CadError, match="voxels begin at byte 2e"):
        read_volume(path)


@pytest.mark.parametrize("size", [2**31 - 16, 16 - 2**31, 0, -8, 8])
def test_an_extension_that_states_a_false_size_fills_no_memory(tmp_path: Path, size: int):
    """A library would read as many bytes, and for a negative number all that the file has."""
    import nibabel

    path = tmp_path / "x.nii.gz"
    image = nibabel.Nifti1Image(np.ones((2, 2, 2), np.int16), np.eye(4))
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"a word"))
    nibabel.save(image, path)
    content = bytearray(gzip.decompress(path.read_bytes()))
    assert content[348] == 1
    struct.pack_into("<i", content, 352, size)
    path.write_bytes(gzip.compress(bytes(content)))
    assert read_volume(path).array.sum() == 8
    path.write_bytes(gzip.compress(bytes(content)) + gzip.compress(bytes(2**26)) * 8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CadError, match="others follow them"):
        read_volume(path)
    stored_axes(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_a_meta_image_that_swells_is_refused(tmp_path: Path):
    path = tmp_path / "x.mha"
    path.write_bytes(
        b"ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n"
        b"CompressedData = True\nCompressedDataSize = 10\nDimSize = 4000 4000 4000\n"
        b"TransformMatrix = 1 0 0 0 1 0 0 0 1\nOffset = 0 0 0\nElementSpacing = 1 1 1\n"
        b"ElementType = MET_SHORT\nElementDataFile = LOCAL\n" + bytes(10)
    )
    with pytest.raises(CadError, match=r"of voxels in memory"):
        read_image(path)
