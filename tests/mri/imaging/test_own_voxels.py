"""An image file holds its own voxels: headers that point elsewhere or lie are refused."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from image_headers import meta, nrrd

from cad.base.errors import CadError
from cad.mri.imaging.nifti import read_image, write_volume
from cad.mri.imaging.volume import Volume

SECRET = b"root:x:0:0:" * 40
SHAPE = (4, 5, 6)


def image(dtype: type = np.uint8) -> sitk.Image:
    rng = np.random.default_rng(0)
    made = sitk.GetImageFromArray(rng.integers(0, 5, SHAPE).astype(dtype))
    made.SetSpacing((0.5, 0.5, 3.0))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source, and a file of somebody else outside of it."""
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "plain.raw").write_bytes(bytes(120))
    (tmp_path / "source" / "link.raw").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "source" / "pipe.raw")
    return tmp_path / "source"


POINTERS = (
    "{top}/secret",
    "../secret",
    "/etc/passwd",
    "/dev/zero",
    "/dev/urandom",
    "/proc/self/environ",
    "link.raw",
    "pipe.raw",
    "nothing.raw",
    ".",
    "..",
    "./plain.raw",
    "LIST",
    "LIST 3",
    "plain%d.raw 1 4 1",
    "plain.raw 1 4 1",
    "sub/plain.raw",
    "x.mha",
    "plain.raw\0",
    "\\\\host\\x",
    "//host/x",
    "file:///etc/passwd",
    "",
)


@pytest.mark.parametrize("pointer", POINTERS)
@pytest.mark.parametrize("suffix", [".mha", ".mhd", ".nrrd", ".nhdr"])
def test_a_header_that_points_elsewhere_is_refused(folder: Path, suffix: str, pointer: str):
    path, name = folder / f"x{suffix}", pointer.format(top=folder.parent)
    if suffix in (".mha", ".mhd"):
        path.write_bytes(meta(ElementDataFile=name))
    else:
        path.write_bytes(nrrd(**{"data file": name}))
    with pytest.raises(CadError):
        read_image(path)


TWO_PLACES: list[dict[str, object]] = [
    {"Position": "5 0 0"},
    {"Origin": "0 0 1"},
    {"Orientation": "0 1 0 1 0 0 0 0 1"},
    {"Rotation": "-1 0 0 0 -1 0 0 0 1"},
]


@pytest.mark.parametrize("entries", TWO_PLACES)
def test_a_header_with_two_places_is_refused(folder: Path, entries: dict[str, object]):
    path = folder / "x.mha"
    path.write_bytes(meta(**entries) + bytes(120))
    with pytest.raises(CadError, match="two names of one entry, with two values"):
        read_image(path)


def test_one_place_under_two_names_is_read(folder: Path):
    path = folder / "x.mha"
    path.write_bytes(meta(Offset="1 2 3", Position="1  2 3") + bytes(120))
    assert read_image(path).origin == (1.0, 2.0, 3.0)


META_LIES: list[tuple[str, dict[str, object]]] = [
    ("skips from the end", {"HeaderSize": -1}),
    ("skips far", {"HeaderSize": 2**62}),
    ("skips a byte", {"HeaderSize": 1}),
    ("texts", {"ElementType": "MET_STRING"}),
    ("no kind", {"ElementType": None}),
    ("another kind", {"ElementType": "MET_OTHER"}),
    ("wider", {"ElementType": "MET_SHORT"}),
    ("larger", {"DimSize": "6 5 5"}),
    ("smaller", {"DimSize": "6 5 3"}),
    ("negative", {"DimSize": "-6 5 -4"}),
    ("huge", {"DimSize": "99999999999 1 1"}),
    ("two axes", {"DimSize": "6 20"}),
    ("four axes", {"NDims": 4, "DimSize": "6 5 2 2"}),
    ("colours", {"ElementNumberOfChannels": 2}),
    ("as text", {"BinaryData": "False"}),
    ("packed", {"CompressedData": "True"}),
]


@pytest.mark.parametrize(("kind", "entries"), META_LIES)
def test_a_meta_header_that_lies_is_refused(folder: Path, kind: str, entries: dict[str, object]):
    path = folder / "x.mha"
    path.write_bytes(meta(**entries) + bytes(120))
    with pytest.raises(CadError):
        read_image(path)


NRRD_LIES: list[tuple[str, dict[str, object]]] = [
    ("skips lines", {"line skip": 3}),
    ("skips bytes", {"byte skip": -1}),
    ("wider", {"type": "short"}),
    ("blocks", {"type": "block", "block size": 4}),
    ("as text", {"encoding": "ascii"}),
    ("as hex", {"encoding": "hex"}),
    ("larger", {"sizes": "6 5 5"}),
    ("smaller", {"sizes": "6 5 3"}),
    ("negative", {"sizes": "-6 -5 4"}),
    ("colours", {"dimension": 4, "sizes": "1 6 5 4"}),
    ("packed", {"encoding": "gzip"}),
]


@pytest.mark.parametrize(("kind", "entries"), NRRD_LIES)
def test_an_nrrd_header_that_lies_is_refused(folder: Path, kind: str, entries: dict[str, object]):
    path = folder / "x.nrrd"
    path.write_bytes(nrrd(**entries) + bytes(120))
    with pytest.raises(CadError):
        read_image(path)


@pytest.mark.parametrize("behind", [b"x", bytes(1), bytes(3_000_000)])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["meta", "nrrd"])
def test_what_follows_the_voxels_is_refused(folder: Path, kind: str, packed: bool, behind: bytes):
    voxels = bytes(120)
    if kind == "meta":
        path, head = folder / "x.mha", meta(CompressedData=packed)
        content = zlib.compress(voxels) if packed else voxels
    else:
        path, head = folder / "x.nrrd", nrrd(encoding="gzip" if packed else "raw")
        content = gzip.compress(voxels) if packed else voxels
    path.write_bytes(head + content)
    assert read_image(path).shape == SHAPE
    path.write_bytes(head + content + behind)
    with pytest.raises(CadError):
        read_image(path)
    path.write_bytes(head + content[:-5])
    with pytest.raises(CadError):
        read_image(path)


@pytest.mark.parametrize("twice", ["ElementType", "DimSize", "HeaderSize"])
def test_an_entry_that_stands_twice_is_refused(folder: Path, twice: str):
    path = folder / "x.mha"
    path.write_bytes(f"{twice} = 0\n".encode() + meta(HeaderSize=0) + bytes(120))
    with pytest.raises(CadError):
        read_image(path)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", [".mha", ".mhd", ".nrrd", ".nhdr"])
def test_what_a_library_writes_is_read(tmp_path: Path, suffix: str, packed: bool, dtype: type):
    """ITK's own files, in one or two, packed or not."""
    path = tmp_path / f"x{suffix}"
    made = image(dtype)
    sitk.WriteImage(made, str(path), useCompression=packed)
    found = read_image(path)
    assert found.array.dtype == dtype
    np.testing.assert_array_equal(found.array, sitk.GetArrayFromImage(made))


def nifti(tmp_path: Path) -> bytearray:
    path = tmp_path / "sound.nii"
    write_volume(path, Volume.from_sitk(image()))
    return bytearray(path.read_bytes())


def put(form: str, at: int, value: object) -> Callable[[bytearray], None]:
    return lambda content: struct.pack_into(f"<{form}", content, at, value)


NIFTI_LIES: list[tuple[str, Callable[[bytearray], None]]] = [
    ("the header as voxels", put("f", 108, 0.0)),
    ("half the header", put("f", 108, 176.0)),
    ("inside the header", put("f", 108, 348.0)),
    ("no number", put("f", 108, float("nan"))),
    ("far", put("f", 108, 1e30)),
    ("before", put("f", 108, -352.0)),
    ("voxels elsewhere", put("4s", 344, b"ni1\0")),
    ("no magic", put("4s", 344, b"\0\0\0\0")),
    ("larger", put("h", 46, 5)),
    ("smaller", put("h", 46, 3)),
    ("negative", put("h", 46, -4)),
    ("a fourth axis", put("h", 40, 7)),
    ("wider", put("hh"[0], 70, 64)),
    ("colours", put("h", 70, 128)),
    ("no kind", put("h", 70, 0)),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "change"), NIFTI_LIES)
def test_a_nifti_header_that_lies_is_refused(
    tmp_path: Path, kind: str, change: Callable[[bytearray], None], packed: bool
):
    content = nifti(tmp_path)
    content[-1] = 1  # a voxel that is not zero
    change(content)
    path = tmp_path / ("x.nii.gz" if packed else "x.nii")
    path.write_bytes(gzip.compress(bytes(content)) if packed else bytes(content))
    with pytest.raises(CadError):
        read_image(path)


@pytest.mark.parametrize("packed", [False, True])
def test_three_hundred_megabytes_behind_an_image_are_refused(tmp_path: Path, packed: bool):
    path = tmp_path / ("x.nii.gz" if packed else "x.nii")
    content = bytes(nifti(tmp_path)) + bytes(300_000_000 if packed else 2_000_000)
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    with pytest.raises(CadError, match="others follow"):
        read_image(path)


@pytest.mark.parametrize("field", ["kinds", "space", "HeaderSize", "content", "no field"])
@pytest.mark.parametrize("value", ["1" * 5000, "[" * 9000, "\x01", "x" * 251])
def test_a_field_that_a_library_would_write_beyond_its_message_is_refused(
    folder: Path, field: str, value: str
):
    """Each of the long ones had ended the process by a signal, inside the library."""
    for path, head in ((folder / "x.nrrd", nrrd), (folder / "x.mha", meta)):
        path.write_bytes(head(**{field: value}) + bytes(120))
        with pytest.raises(CadError):
            read_image(path)


VOXELS = sitk.GetArrayFromImage(image()).tobytes()
PACKED = zlib.compress(VOXELS)


@pytest.mark.parametrize("key", ["ElementDataFile", "HeaderSize", "CompressedData", "DimSize"])
def test_a_key_with_a_colon_is_refused(folder: Path, key: str) -> None:
    """MetaIO takes a colon for an equals sign, and would find another file or another start."""
    path = folder / "x.mha"
    for line in (f"{key}: ../secret = x", f"{key} : 10 = 0", f"{key}:True=1", f"{key}:-1 = 0"):
        path.write_bytes(f"{line}\n".encode() + meta() + VOXELS)
        with pytest.raises(CadError, match="no entry of a MetaImage header"):
            read_image(path)


@pytest.mark.parametrize("size", ["0", "1", "4611686018427387904", str(len(PACKED) - 20)])
def test_a_wrong_size_of_packed_voxels_is_refused(folder: Path, size: str) -> None:
    """MetaIO would stop early, and SimpleITK return memory that nothing was written to."""
    path = folder / "x.mha"
    path.write_bytes(meta(CompressedData="True", CompressedDataSize=size) + PACKED)
    with pytest.raises(CadError, match="CompressedDataSize"):
        read_image(path)


@pytest.mark.parametrize("word", ["T", "1", "tRUE", "t", "Yes"])
def test_packed_or_not_is_said_by_one_word(folder: Path, word: str) -> None:
    path = folder / "x.mha"
    for content in (VOXELS, PACKED):
        path.write_bytes(meta(CompressedData=word) + content)
        with pytest.raises(CadError, match="CompressedData"):
            read_image(path)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("suffix", [".mha", ".mhd", ".nrrd", ".nhdr"])
@pytest.mark.parametrize("packed", [False, True])
def test_sound_files_are_read_as_the_library_reads_them(
    tmp_path: Path, kind: type, suffix: str, packed: bool
) -> None:
    path = tmp_path / f"x{suffix}"
    sitk.WriteImage(image(kind), str(path), useCompression=packed)
    expected = Volume.from_sitk(sitk.ReadImage(str(path))).upright()
    volume = read_image(path)
    np.testing.assert_array_equal(volume.array, expected.array)
    assert volume.array.dtype == expected.array.dtype
    np.testing.assert_allclose(volume.affine, expected.affine)


def test_the_most_significant_byte_may_be_first(folder: Path) -> None:
    values = (100 * np.arange(120)).reshape(SHAPE).astype(">i2")
    path = folder / "x.mha"
    header = meta(ElementType="MET_SHORT", BinaryDataByteOrderMSB="True")
    path.write_bytes(header + values.tobytes())
    np.testing.assert_array_equal(
        np.sort(read_image(path).array.ravel()), np.sort(values.astype(np.int16).ravel())
    )
    path = folder / "x.nrrd"
    path.write_bytes(nrrd(type="short", endian="big") + values.tobytes())
    assert read_image(path).array.max() == 11900


def test_packed_voxels_without_their_size_are_read(folder: Path) -> None:
    path = folder / "x.mha"
    path.write_bytes(meta(CompressedData="True") + PACKED)
    assert sorted(read_image(path).array.tobytes()) == sorted(VOXELS)


def test_two_byte_orders_of_one_image_are_refused(folder: Path) -> None:
    path = folder / "x.mha"
    header = meta(ElementType="MET_SHORT", ElementByteOrderMSB="True")
    path.write_bytes(header + bytes(240))
    with pytest.raises(CadError, match="two byte orders"):
        read_image(path)


def test_packed_voxels_whose_checksum_stands_in_the_next_block_are_read(tmp_path: Path):
    """A file is unpacked by the MiB: all voxels may be there before the stream has ended."""
    size = 2**20 - 2 - 614 * 5  # in 614 stored blocks, behind two bytes
    content = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8).tobytes()
    packed = b"\x78\x01"
    for begin in range(0, size, 1_703):
        block = content[begin : begin + 1_703]
        last = begin + len(block) == size
        packed += struct.pack("<BHH", last, len(block), 65_535 - len(block)) + block
    assert len(packed) == 2**20
    packed += struct.pack(">I", zlib.adler32(content))
    header = meta(DimSize="1021 1024 1", CompressedData="True", CompressedDataSize=len(packed))
    path = tmp_path / "image.mha"
    path.write_bytes(header + packed)
    assert read_image(path).array.astype(np.uint8).tobytes() == content
