"""One frame model: files of every form give the same planes, values and units."""

from __future__ import annotations

import shutil
import struct
import subprocess
import warnings
from collections import defaultdict
from pathlib import Path

import highdicom
import numpy as np
import pydicom
import pytest
from dicom_files import edit, uid, write_series
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sr.coding import Code
from pydicom.uid import (
    HTJ2K as HTJ2KUID,
)
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    HTJ2KLosslessRPCL,
    ImplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
)

from cad.base.errors import CadError
from cad.base.terms.modality import ADC, T2W
from cad.mri.imaging import vendor
from cad.mri.imaging.listing import Listing, list_files
from cad.mri.imaging.phases import order_phases
from cad.mri.imaging.pixels import decoded, read_stack
from cad.mri.imaging.stacks import BY_ORDER, Stack, stacks_of
from cad.mri.imaging.units import in_unit


def voxels(shape=(5, 6, 8), seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 900, shape).astype(np.uint16)


def listed(folder: Path) -> Listing:
    return list_files(sorted(p for p in folder.rglob("*") if p.is_file()))


def stacks(folder: Path) -> list[Stack]:
    listing = listed(folder)
    assert [str(e) for e in listing.unreadable] == []
    series = defaultdict(list)
    for frames in listing.studies.values():
        for frame in frames:
            series[frame.series_uid].append(frame)
    return [stack for part in series.values() for stack in stacks_of(part)]


def resave(path: Path, syntax: str) -> None:
    dataset = pydicom.dcmread(path)
    dataset.file_meta.TransferSyntaxUID = syntax
    little = syntax != ExplicitVRBigEndian
    if not little:
        dataset.PixelData = np.frombuffer(dataset.PixelData, "<u2").astype(">u2").tobytes()
    pydicom.dcmwrite(
        path,
        dataset,
        little_endian=little,
        implicit_vr=syntax == ImplicitVRLittleEndian,
        force_encoding=True,
    )


# --- files as they come --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "syntax", [ExplicitVRBigEndian, ImplicitVRLittleEndian, DeflatedExplicitVRLittleEndian]
)
def test_transfer_syntaxes(tmp_path, syntax):
    for path in write_series(tmp_path, voxels()):
        resave(path, syntax)
    (stack,) = stacks(tmp_path)
    assert (read_stack(stack).array == voxels()).all()


@pytest.mark.parametrize("implicit", [True, False])
def test_files_without_preamble(tmp_path, implicit):
    for path in write_series(tmp_path, voxels()):
        dataset = pydicom.dcmread(path)
        plain = Dataset()
        plain.update(dataset)
        pydicom.dcmwrite(path, plain, implicit_vr=implicit, little_endian=True)
        assert path.read_bytes()[128:132] != b"DICM"
    (tmp_path / "zeros").write_bytes(b"\x08\x00" + bytes(200))
    (stack,) = stacks(tmp_path)
    assert (read_stack(stack).array == voxels()).all()


def test_jpeg_lossless_has_its_codec_in_an_extra(tmp_path):
    if shutil.which("dcmcjpeg") is None:
        pytest.skip("DCMTK ABSENT: run scripts/install_tools.sh")
    for path in write_series(tmp_path, voxels()):
        subprocess.run(["dcmcjpeg", "+e1", path, path], check=True, capture_output=True)
    assert pydicom.dcmread(path).file_meta.TransferSyntaxUID.name.startswith("JPEG Lossless")
    (stack,) = stacks(tmp_path)
    assert (read_stack(stack).array == voxels()).all()


# 8 rows of 12 columns of 12 bits: written by OpenJPH 0.9 (`ojph_compress -reversible true`).
HTJ2K = bytes.fromhex(
    "ff4fff51002940000000000c0000000800000000000000000000000c00000008000000000000000000010b0101"
    "ff500008000200000007ff52000c00020001000104044001ff5c00072070707078ff64001600014f70656e4a50"
    "482056657220302e392e302eff90000a00000000009b0001ff93c0017560ed0ff86c2dd599d7bdf790c63c4704"
    "64a43ac21bf426274de3250440426b824547009d05cc16190051ba00c0016ec0016e4000b6c0d9771114440013"
    "4c50cd56b1549b27025040c7c9013a18902d48779900e93269a2f930294163220007ce02c06a0afe00bc492840"
    "144976ba004791afa66ed38bd3cda6742db97b954df09b048d48384072033900ffd9"
)
HTJ2K_VALUES = """
8 336 654 951 1248 1504 1816 2107 2431 2748 3028 3330
78 361 687 950 1243 1568 1838 2194 2490 2761 3064 3375
122 423 674 1018 1302 1591 1920 2225 2488 2811 3080 3431
131 412 712 1012 1352 1645 1911 2267 2535 2854 3124 3438
194 449 781 1062 1396 1676 1979 2283 2562 2870 3162 3491
199 533 814 1103 1444 1686 2011 2338 2643 2920 3244 3526
228 533 862 1168 1477 1740 2029 2369 2643 2979 3268 3567
291 618 886 1191 1512 1817 2101 2371 2678 2977 3296 3615
"""


def deep(folder: Path, syntax: str) -> Path:
    """A slice of 12 bits in a process of JPEG, by DCMTK."""
    ramp = np.add.outer(np.arange(24), np.arange(20)) * 90
    path = write_series(folder, ramp[None].astype(np.uint16))[0]
    edit(path, BitsStored=12, HighBit=11)
    subprocess.run(["dcmcjpeg", syntax, path, path], check=True, capture_output=True)
    return path


@pytest.mark.parametrize("syntax", ["+ee", "+es", "+ep"])
def test_jpeg_of_twelve_bits_is_what_dcmtk_reads(tmp_path, syntax):
    if shutil.which("dcmcjpeg") is None:
        pytest.skip("DCMTK ABSENT: run scripts/install_tools.sh")
    path = deep(tmp_path / "in", syntax)
    subprocess.run(["dcmdjpeg", path, tmp_path / "plain"], check=True, capture_output=True)
    (stack,) = stacks(tmp_path / "in")
    expected = pydicom.dcmread(tmp_path / "plain").pixel_array
    assert expected.max() > 3000
    np.testing.assert_array_equal(read_stack(stack).array[0], expected)


def test_jpeg_of_twelve_bits_with_a_sign_is_refused(tmp_path):
    if shutil.which("dcmcjpeg") is None:
        pytest.skip("DCMTK ABSENT: run scripts/install_tools.sh")
    edit(deep(tmp_path, "+ee"), PixelRepresentation=1)  # DCMTK itself writes none
    (stack,) = stacks(tmp_path)
    with pytest.raises(CadError, match="12 bits with a sign") as caught:
        read_stack(stack)
    assert "without compression" in caught.value.hint


@pytest.mark.parametrize("syntax", [HTJ2KLossless, HTJ2KLosslessRPCL, HTJ2KUID])
def test_high_throughput_jpeg_2000_is_read(tmp_path, syntax):
    path = write_series(tmp_path, np.zeros((1, 8, 12), np.uint16))[0]
    dataset = pydicom.dcmread(path)
    dataset.BitsStored, dataset.HighBit = 12, 11
    dataset.PixelData = encapsulate([HTJ2K])
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.save_as(path)
    (stack,) = stacks(tmp_path)
    values = np.array(HTJ2K_VALUES.split(), int).reshape(8, 12)
    np.testing.assert_array_equal(read_stack(stack).array[0], values)


@pytest.mark.parametrize("lacking", ["Rows", "BitsAllocated"])
def test_pixels_without_a_size_say_what_the_header_lacks(tmp_path, lacking):
    path = write_series(tmp_path, voxels())[0]
    dataset = pydicom.dcmread(path)
    del dataset[lacking]
    with pytest.raises(CadError, match=f"the header lacks {lacking}"):
        decoded(dataset, path)


def test_monochrome1_says_how_to_show_not_what_was_measured(tmp_path):
    write_series(tmp_path, voxels(), PhotometricInterpretation="MONOCHROME1")
    (stack,) = stacks(tmp_path)
    assert (read_stack(stack).array == voxels()).all()


def test_a_directory_under_any_name_is_passed_over(tmp_path):
    write_series(tmp_path / "s", voxels((1, 6, 8)))
    directory = Dataset()
    directory.FileSetID = "DISC"
    directory.DirectoryRecordSequence = []
    directory.file_meta = FileMetaDataset()
    directory.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    directory.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    directory.file_meta.MediaStorageSOPInstanceUID = uid("directory")
    directory.save_as(tmp_path / "s" / "INDEX.DIR", enforce_file_format=True)
    listing = listed(tmp_path)
    assert listing.unreadable == []
    assert sum(map(len, listing.studies.values())) == 1


def test_one_instance_twice_and_two_instances_of_one_name(tmp_path):
    paths = write_series(tmp_path, voxels())
    shutil.copy(paths[0], tmp_path / "again.dcm")
    resave(shutil.copy(paths[1], tmp_path / "deflated.dcm"), DeflatedExplicitVRLittleEndian)
    assert len(stacks(tmp_path)[0].slices) == 5
    edit(tmp_path / "again.dcm", ImagePositionPatient=[0, 0, 99])
    (error,) = listed(tmp_path).unreadable
    assert "two different files claim to be the instance" in error.problem


# --- multi-frame and mosaic ----------------------------------------------------------------------


def test_enhanced_and_classic_export_are_the_same_image(tmp_path):
    """The classic series and the enhanced object made of it by another library."""
    paths = write_series(
        tmp_path / "classic",
        voxels(),
        spacing=(0.7, 0.9, 3.6),
        origin=(5, -7, 9),
        RescaleSlope="2",
        RescaleIntercept="-3",
        RescaleType="US",
        AcquisitionDate="20240307",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # on the form of the names
        enhanced = highdicom.legacy.LegacyConvertedEnhancedMRImage(
            [pydicom.dcmread(p) for p in paths],
            series_instance_uid=uid("enhanced"),
            series_number=7,
            sop_instance_uid=uid("object"),
            instance_number=1,
        )
    (tmp_path / "enhanced").mkdir()
    enhanced.save_as(tmp_path / "enhanced/object.dcm")
    (one,), (other,) = stacks(tmp_path / "classic"), stacks(tmp_path / "enhanced")
    a, b = read_stack(one), read_stack(other)
    assert a.array.dtype == b.array.dtype
    assert (a.array == b.array).all()
    assert (a.array == voxels() * 2.0 - 3).all()
    assert (a.affine == b.affine).all()
    for name in ("flip_angle", "repetition_time", "echo_time", "acquisition_time", "frame_uid"):
        assert getattr(one.first, name) == getattr(other.first, name), name
    assert len({s.index for s in other.slices}) == 5


def test_a_parametric_map_brings_its_unit(tmp_path):
    """ADC in mm2/s as floating point becomes 1e-6 mm2/s; nothing is assumed."""
    paths = write_series(tmp_path / "t2", voxels())
    adc = np.random.default_rng(1).uniform(0.7e-3, 2e-3, (5, 6, 8))
    unit = Code("mm2/s", "UCUM", "mm2/s")
    mapping = highdicom.pm.RealWorldValueMapping(
        "ADC",
        "apparent diffusion coefficient",
        unit,
        value_range=(0.0, 1.0),
        slope=1.0,
        intercept=0.0,
    )
    made = highdicom.pm.ParametricMap(
        [pydicom.dcmread(p) for p in paths],
        adc,
        series_instance_uid=uid("map"),
        series_number=3,
        sop_instance_uid=uid("map object"),
        instance_number=1,
        manufacturer="test",
        manufacturer_model_name="test",
        software_versions="1",
        device_serial_number="1",
        contains_recognizable_visual_features=False,
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[highdicom.VOILUTTransformation(0.5, 1.0)],
    )
    (tmp_path / "map").mkdir()
    made.save_as(tmp_path / "map/object.dcm")
    (stack,) = stacks(tmp_path / "map")
    volume = read_stack(stack)
    assert volume.unit == "mm2/s"
    found, source = in_unit(volume, ADC)
    assert found.unit == "1e-6 mm2/s"
    assert source == "stated: mm2/s"
    np.testing.assert_allclose(found.array, adc * 1e6, rtol=1e-6)


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        ({}, "does not say how many slices"),
        ({"count": 4}, "without the CSA header's SliceNormalVector"),
        ({"count": 4, "csa": b"SV10\4\3\2\1" + bytes(40)}, "damaged CSA header"),
    ],
)
def test_a_mosaic_that_cannot_be_cut_with_certainty(tmp_path, tags, problem):
    (path,) = write_series(tmp_path, voxels((1, 8, 8)), ImageType=["ORIGINAL", "PRIMARY", "MOSAIC"])
    dataset = pydicom.dcmread(path)
    dataset.SpacingBetweenSlices = "3"
    if "count" in tags:
        block = dataset.private_block(0x19, "SIEMENS MR HEADER", create=True)
        block.add_new(0x0A, "US", tags["count"])
    if "csa" in tags:
        block = dataset.private_block(0x29, "SIEMENS CSA HEADER", create=True)
        block.add_new(0x10, "OB", tags["csa"])
    dataset.save_as(path)
    listing = listed(tmp_path)
    ((error,),) = (series.values() for series in listing.unusable.values())
    assert problem in error.problem
    assert list(listing.studies.values()) == [[]]


def mosaics(folder: Path, steps: tuple[float, ...]) -> list[Path]:
    """Write mosaics of four slices, one for each time, that state these distances of slices."""
    normal = b"".join(
        struct.pack("<4i", 4, 4, 77, 4) + text for text in (b"0\0\0\0", b"0\0\0\0", b"1\0\0\0")
    )
    name = struct.pack("<64s i 4s 3i", b"SliceNormalVector", 3, b"FD", 4, 3, 77)
    csa = b"SV10\4\3\2\1" + struct.pack("<2i", 1, 77) + name + normal
    paths = write_series(
        folder, voxels((len(steps), 8, 8)), ImageType=["ORIGINAL", "PRIMARY", "MOSAIC"]
    )
    for number, (path, step) in enumerate(zip(paths, steps, strict=True), start=1):
        dataset = pydicom.dcmread(path)
        dataset.ImagePositionPatient = [0, 0, 0]
        dataset.AcquisitionNumber = number
        dataset.SpacingBetweenSlices = str(step)
        dataset.private_block(0x19, "SIEMENS MR HEADER", create=True).add_new(0x0A, "US", 4)
        dataset.private_block(0x29, "SIEMENS CSA HEADER", create=True).add_new(0x10, "OB", csa)
        dataset.save_as(path)
    return paths


def test_mosaics_of_two_distances_between_slices_are_refused(tmp_path):
    first, second, third = mosaics(tmp_path, (3.0, 3.0, 3.6))
    (frames,) = listed(tmp_path).studies.values()
    with pytest.raises(CadError) as refused:
        stacks_of(frames)
    assert refused.value.problem == (
        f"SpacingBetweenSlices (0018,0088) is 3 mm in {first.name} and 3.6 mm in {third.name}; the "
        "mosaics of one series have one distance between slices"
    )
    assert refused.value.file == str(third)
    assert "export the series again" in refused.value.hint
    assert second.name not in str(refused.value)


def test_mosaics_of_one_rounded_distance_are_read(tmp_path):
    mosaics(tmp_path, (3.0, 3.0001, 3.0))
    assert [stack.shape for stack in stacks(tmp_path)] == [(4, 4, 4)] * 3


def test_both_phase_encoding_directions_in_one_series(tmp_path):
    """GE's pepolar, modes 2 and 3: every other volume is distorted the other way."""
    (path,) = write_series(tmp_path, voxels((1, 8, 8)))
    for mode, refused in (("1", False), ("3", True)):
        dataset = pydicom.dcmread(path)
        block = dataset.private_block(0x19, "GEMS_ACQU_01", create=True)
        block.add_new(0x9C, "LO", "epi_pepolar")
        block.add_new(0xB3, "DS", mode)
        dataset.save_as(path)
        assert bool(listed(tmp_path).unusable) == refused


@pytest.mark.parametrize(
    ("comment", "b_value"), [("b=1500(0.445,0.000,0.895)", 1500.0), ("", None)]
)
def test_a_b_value_in_a_comment(comment, b_value):
    """Canon's classic images; the same words of another maker are anybody's."""
    dataset = Dataset()
    dataset.ImageComments = comment
    for maker in ("Canon MR", "SIEMENS"):
        dataset.Manufacturer = maker
        assert vendor.b_value(dataset) == (b_value if maker.startswith("Canon") else None)


def test_private_elements_need_their_creator(tmp_path):
    """Another maker's (0019,100C) is no b-value; a moved block is found."""
    for creator, block, expected in (
        ("SOMEBODY ELSE", 0x10, None),
        ("SIEMENS MR HEADER", 0x12, 700.0),
    ):
        dataset = Dataset()
        dataset.add_new((0x0019, block), "LO", creator)
        dataset.add_new((0x0019, block << 8 | 0x0C), "IS", "700")
        assert vendor.b_value(dataset) == expected


# --- real values and units -----------------------------------------------------------------------


def test_real_world_values_go_before_the_rescale(tmp_path):
    unit, mapping = Dataset(), Dataset()
    unit.CodeValue, unit.CodingSchemeDesignator, unit.CodeMeaning = "um2/s", "UCUM", "um2/s"
    mapping.MeasurementUnitsCodeSequence = [unit]
    mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept = 0.5, 10.0
    write_series(
        tmp_path,
        voxels(),
        RescaleSlope="3",
        RescaleIntercept="1",
        RealWorldValueMappingSequence=[mapping],
    )
    (stack,) = stacks(tmp_path)
    volume = read_stack(stack)
    assert (volume.array == voxels() * np.float32(0.5) + 10).all()
    assert (volume.unit, in_unit(volume, ADC)[1]) == ("um2/s", "stated: um2/s")
    assert in_unit(volume, T2W)[0].unit == ""


@pytest.mark.parametrize(
    ("unit", "factor"),
    [("um2/s", 1), ("10*-6.mm2/s", 1), ("10^-3 mm^2/s", 1e3), ("mm²/s", 1e6), ("US", 1), ("", 1)],
)
def test_stated_units(tmp_path, unit, factor):
    write_series(tmp_path, voxels(), RescaleSlope="1", RescaleIntercept="0", RescaleType=unit)
    (stack,) = stacks(tmp_path)
    found, source = in_unit(read_stack(stack), ADC)
    np.testing.assert_allclose(found.array, voxels() * factor, rtol=1e-6)
    assert ("not stated" in source) == (unit in ("US", ""))
    assert "import rule" in in_unit(read_stack(stack), ADC, 2.0)[1]


def test_a_unit_of_something_else_is_refused(tmp_path):
    write_series(tmp_path, voxels(), RescaleSlope="1", RescaleIntercept="0", RescaleType="ms")
    (stack,) = stacks(tmp_path)
    with pytest.raises(CadError, match="no unit of this quantity"):
        in_unit(read_stack(stack), ADC)


# --- dynamic series ------------------------------------------------------------------------------


def two_clocks(folder: Path, **tags) -> None:
    """Three phases at equal positions; one phase has two acquisition times in it."""
    for phase, times in enumerate(
        (["100000"] * 5, ["100010"] * 3 + ["100011"] * 2, ["100020"] * 5)
    ):
        for index, path in enumerate(
            write_series(folder, voxels(seed=phase), prefix=f"p{phase}-", **tags)
        ):
            edit(path, InstanceNumber=5 * phase + index + 1, AcquisitionTime=times[index])


def test_phases_by_order_of_occurrence(tmp_path):
    two_clocks(tmp_path)
    found = stacks(tmp_path)
    assert [s.told_apart_by for s in found] == [BY_ORDER] * 3
    phases = order_phases(found)
    assert phases.clock == "acquisition"
    assert (phases.times - phases.times[0]).tolist() == [0, 10, 20]
    assert "order of the instance numbers" in phases.notes[0]
    for number, (_, stack) in enumerate(phases.timed):
        assert (read_stack(stack).array == voxels(seed=number)).all()


def test_without_a_clock_the_site_gives_the_interval(tmp_path):
    two_clocks(tmp_path, RepetitionTime="3.85")
    for path in tmp_path.iterdir():
        edit(path, AcquisitionTime="100000")
    found = stacks(tmp_path)
    with pytest.raises(CadError, match="no clock dates the 3 phases") as caught:
        order_phases(found)
    assert "dce.interval" in caught.value.hint
    assert order_phases(found, interval=4.5).times.tolist() == [0, 4.5, 9]


def test_equal_instance_numbers_are_a_duplicate(tmp_path):
    write_series(tmp_path, voxels(), prefix="a-")
    write_series(tmp_path, voxels(seed=1), prefix="b-")
    with pytest.raises(CadError, match="neither a clock nor the instance numbers"):
        stacks(tmp_path)


@pytest.mark.parametrize("creator", ["Image Private Header", "UIH"])
def test_a_grid_without_places_is_refused_whoever_reserved_its_block(tmp_path, creator):
    (path,) = write_series(tmp_path, voxels((1, 8, 8)))
    dataset = pydicom.dcmread(path)
    dataset.private_block(0x65, creator, create=True).add_new(0x50, "DS", "36")
    dataset.save_as(path)
    ((error,),) = (series.values() for series in listed(tmp_path).unusable.values())
    assert "a grid of slices in one image" in error.problem


def test_a_mosaic_that_lost_its_image_type_is_still_a_mosaic(tmp_path):
    (path,) = write_series(tmp_path, voxels((1, 8, 8)))
    dataset = pydicom.dcmread(path)
    dataset.private_block(0x19, "SIEMENS MR HEADER", create=True).add_new(0x0A, "US", 4)
    dataset.save_as(path)
    ((error,),) = (series.values() for series in listed(tmp_path).unusable.values())
    assert "SliceNormalVector" in error.problem
