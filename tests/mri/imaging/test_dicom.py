"""DICOM series: slices in order, phases in time, and every damaged series refused by name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pydicom
import pytest
import SimpleITK as sitk
from dicom_files import edit, uid, write_series
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless, JPEGLosslessSV1, RLELossless
from scipy.spatial.transform import Rotation

from cad.base.errors import CadError, printable
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.phases import order_phases, read_phases
from cad.mri.imaging.pixels import read_stack
from cad.mri.imaging.stacks import Stack, stacks_of
from cad.mri.imaging.volume import Volume

TILT = Rotation.from_euler("xyz", [23.3, 4, -7], degrees=True).as_matrix()
TT = r"TT=([0-9.]+)s"


def voxels(shape=(6, 8, 10), seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 900, shape).astype(np.uint16)


def stacks(folder: Path) -> list[Stack]:
    listing = list_files(p for p in sorted(folder.rglob("*")) if p.is_file())
    assert not listing.unreadable
    (slices,) = listing.studies.values()
    series = defaultdict(list)
    for item in slices:
        series[item.series_uid].append(item)
    return [stack for part in series.values() for stack in stacks_of(part)]


def refused(folder: Path, words: str) -> CadError:
    with pytest.raises(CadError, match=words) as caught:
        stacks(folder)
    assert caught.value.file
    return caught.value


def test_slices_are_sorted_along_their_normal(tmp_path):
    """File names and instance numbers lie; positions do not. ITK agrees on every voxel."""
    array = voxels()
    paths = write_series(
        tmp_path / "s", array, spacing=(0.7, 0.9, 3.6), origin=(5, -7, 9), direction=TILT
    )
    for path, number in zip(paths, [4, 2, 6, 1, 3, 5], strict=True):
        edit(path, InstanceNumber=number)
        path.rename(path.with_name(f"x{number}.dcm"))
    (stack,) = stacks(tmp_path)
    volume = read_stack(stack)
    assert (volume.array == array).all()
    assert volume.array.dtype == np.uint16
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(tmp_path / "s")))
    theirs = Volume.from_sitk(reader.Execute())
    assert volume.same_grid(theirs)
    assert (theirs.array == array).all()
    assert np.abs(volume.affine - theirs.affine).max() < 1e-5


def test_reversed_slices_give_a_right_handed_grid(tmp_path):
    """Slices stored from head to foot are the same volume."""
    array = voxels()
    write_series(tmp_path, array[::-1], spacing=(1, 1, -3.0), origin=(0, 0, 15))
    (stack,) = stacks(tmp_path)
    assert (read_stack(stack).array == array).all()
    assert np.linalg.det(stack.direction) > 0
    assert stack.origin == (0, 0, 0)


def test_last_digits_do_not_matter(tmp_path):
    paths = write_series(tmp_path, voxels(), spacing=(1, 1, 3.6))
    for index, path in enumerate(paths):
        noise = 1e-4 * (-1) ** index
        edit(
            path,
            ImagePositionPatient=[0, 0, index * 3.6 + noise],
            PixelSpacing=[1 + noise / 10, 1],
            ImageOrientationPatient=[1, noise / 10, 0, 0, 1, 0],
        )
    (stack,) = stacks(tmp_path)
    assert stack.spacing[2] == pytest.approx(3.6, abs=1e-3)


def test_missing_slice(tmp_path):
    paths = write_series(tmp_path, voxels())
    paths[2].unlink()
    error = refused(tmp_path, "missing slice: 1 between 3.00 and 9.00 mm")
    assert "the slice distance is 3.000 mm" in error.problem


def test_duplicate_slice(tmp_path):
    paths = write_series(tmp_path, voxels())
    (tmp_path / "copy.dcm").write_bytes(paths[2].read_bytes())
    (stack,) = stacks(tmp_path)  # the same instance twice is taken once
    assert len(stack.slices) == 6
    edit(tmp_path / "copy.dcm", SOPInstanceUID="1.2.3.4")
    refused(tmp_path, "duplicate slice: 2 images")
    edit(tmp_path / "copy.dcm", ImagePositionPatient=[0, 0, 6.5])
    refused(tmp_path, "uneven slices: a step of 0.5")


def test_slices_that_do_not_belong_together(tmp_path):
    paths = write_series(tmp_path, voxels())
    original = paths[3].read_bytes()
    edit(paths[3], ImageOrientationPatient=[1, 0, 0, 0, 0.995, 0.1])
    refused(tmp_path, "differ in orientation")
    paths[3].write_bytes(original)
    edit(paths[3], PixelSpacing=[2, 2])
    refused(tmp_path, "differ in pixel spacing")
    paths[3].write_bytes(original)
    edit(paths[3], Rows=4, PixelData=bytes(80))
    refused(tmp_path, "differ in size: 4 x 10 and 8 x 10")
    paths[3].write_bytes(original)
    edit(paths[3], FrameOfReferenceUID="1.2.3")
    refused(tmp_path, "different frames of reference")
    paths[3].write_bytes(original)
    edit(paths[3], ImagePositionPatient=None)
    refused(tmp_path, "no ImagePositionPatient")


def test_a_localiser_is_three_images(tmp_path):
    """One series of three planes, as every examination begins: none is refused or mixed."""
    planes = ([1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, -1], [0, 1, 0, 0, 0, -1])
    for number, axes in enumerate(planes):
        paths = write_series(tmp_path, voxels((3, 8, 10), number), prefix=f"{number}-")
        normal = np.cross(axes[:3], axes[3:])
        for index, path in enumerate(paths):
            place = [float(v) for v in 20 * index * normal]
            edit(path, ImageOrientationPatient=axes, ImagePositionPatient=place)
    found = stacks(tmp_path)
    assert [stack.shape for stack in found] == [(3, 8, 10)] * 3
    for number, stack in enumerate(found):
        assert stack.spacing == (1.0, 1.0, 20.0)
        assert np.array_equal(read_stack(stack).array, voxels((3, 8, 10), number))


def test_sheared_series(tmp_path):
    for index, path in enumerate(write_series(tmp_path, voxels())):
        edit(path, ImagePositionPatient=[0, index * 0.4, index * 3.0])
    refused(tmp_path, "sheared: they drift 2.00 mm")


def test_single_slices(tmp_path):
    (path,) = write_series(tmp_path, voxels((1, 4, 4)))
    (stack,) = stacks(tmp_path)
    assert stack.spacing == (1, 1, 3)
    edit(path, SliceThickness=None)
    refused(tmp_path, "single slice without SliceThickness")


def test_rescaling_and_signed_values(tmp_path):
    array = voxels().astype(np.int16) - 400
    write_series(tmp_path / "a", array, number=1)
    write_series(tmp_path / "b", array, number=2, RescaleSlope="0.5", RescaleIntercept="-3")
    plain, scaled = stacks(tmp_path)
    assert read_stack(plain).array.dtype == np.int16
    assert (read_stack(plain).array == array).all()
    assert read_stack(scaled).array.dtype == np.float32
    assert np.allclose(read_stack(scaled).array, array * 0.5 - 3)


def test_units_of_headers(tmp_path):
    write_series(tmp_path, voxels(), AcquisitionTime="1015", TriggerTime="2500", EchoTime="101")
    head = stacks(tmp_path)[0].first
    assert (head.repetition_time, head.echo_time, head.flip_angle) == (4.0, 101.0, 150.0)
    assert (head.acquisition_time, head.trigger_time) == (10 * 3600 + 15 * 60, 2.5)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"DiffusionBValue": 650.0}, 650),
        ({"SequenceName": "*ep_b800t"}, 800),
        ({"SequenceName": "ep_b50#1"}, 50),
        ({"SequenceName": "ep_b0_800"}, None),
        ({}, None),
    ],
)
def test_b_values(tmp_path, tags, expected):
    write_series(tmp_path, voxels(), **tags)
    assert stacks(tmp_path)[0].first.b_value == expected


@pytest.mark.parametrize(
    ("creator", "group", "element", "vr", "value", "expected"),
    [
        ("SIEMENS MR HEADER", 0x19, 0x0C, "IS", "1400", 1400),
        ("SIEMENS MR HEADER", 0x19, 0x0C, "OB", b"100 ", 100),
        ("GEMS_PARM_01", 0x43, 0x39, "IS", ["1000000600", "8", "0", "0"], 600),
        ("Philips Imaging DD 001", 0x2001, 0x03, "FL", 750.0, 750),
    ],
)
def test_private_b_values(tmp_path, creator, group, element, vr, value, expected):
    for path in write_series(tmp_path, voxels((2, 4, 4))):
        dataset = pydicom.dcmread(path)
        block = dataset.private_block(group, creator, create=True)
        block.add_new(element, vr, value)
        dataset.save_as(path)
    assert stacks(tmp_path)[0].first.b_value == expected


def test_one_series_with_all_b_values(tmp_path):
    for b_value in (0, 400, 800):
        write_series(
            tmp_path, voxels(seed=b_value), prefix=f"b{b_value}-", DiffusionBValue=float(b_value)
        )
    found = stacks(tmp_path)
    assert [s.first.b_value for s in found] == [0, 400, 800]
    assert (read_stack(found[1]).array == voxels(seed=400)).all()


# --- dynamic series ------------------------------------------------------------------------------


def write_phases(folder: Path, times, number=27, **tags) -> None:
    for index, time in enumerate(times):
        write_series(
            folder / str(index),
            voxels(seed=index),
            number=number + index,
            description=f"Twist_TT={time:.1f}s",
            AcquisitionNumber=str(index + 1),
            **tags,
        )


def test_phases_by_description(tmp_path):
    write_phases(tmp_path, [8.0, 12.2, 16.4, 101.3])
    phases = order_phases(stacks(tmp_path), "description", TT)
    dynamic = read_phases(phases)
    assert dynamic.times.tolist() == pytest.approx([0, 4.2, 8.4, 93.3])
    assert (dynamic.repetition_time, dynamic.flip_angle) == (4.0, 150.0)
    for index in range(4):
        assert (dynamic.frames[index] == voxels(seed=index)).all()


def test_one_series_with_all_phases(tmp_path):
    """By trigger time, by acquisition time over midnight, by temporal position."""
    for index, (trigger, clock) in enumerate(
        [("0", "235958.0"), ("4000", "000002.0"), ("8500", "000006.5")]
    ):
        write_series(
            tmp_path,
            voxels(seed=index),
            prefix=f"p{index}-",
            TriggerTime=trigger,
            AcquisitionTime=clock,
            TemporalPositionIdentifier=index + 1,
        )
    for clock in ("trigger", "acquisition"):
        dynamic = read_phases(order_phases(stacks(tmp_path), clock, TT))
        assert dynamic.times.tolist() == pytest.approx([0, 4, 8.5])
        assert (dynamic.frames[2] == voxels(seed=2)).all()


def test_phase_errors(tmp_path):
    write_phases(tmp_path, [8.0, 12.2, 16.4])
    found = stacks(tmp_path)
    with pytest.raises(CadError, match=r"same time 36900\.2 s by the acquisition clock"):
        order_phases(found, "acquisition", TT)
    with pytest.raises(CadError, match="has no time by the trigger clock"):
        order_phases(found, "trigger", TT)
    with pytest.raises(CadError, match="has no time by the description clock"):
        order_phases(found, "description", r"phase (\d+)")


def test_times_against_the_scanner_numbering(tmp_path):
    write_phases(tmp_path, [8.0, 16.4, 12.2])
    with pytest.raises(CadError, match=r"not monotonic: .* acquisition number 2 comes after 3"):
        order_phases(stacks(tmp_path), "description", TT)


def test_phases_of_different_sizes(tmp_path):
    write_phases(tmp_path, [8.0, 12.2, 16.4])
    sorted((tmp_path / "1").iterdir())[-1].unlink()
    with pytest.raises(CadError, match=r"phase 2 \(series 28 .*\) is \(5, 8, 10\), phase 1 is"):
        read_phases(order_phases(stacks(tmp_path), "description", TT))


def test_a_missing_slice_of_one_phase_in_one_series(tmp_path):
    for index in range(3):
        write_series(tmp_path, voxels(), prefix=f"p{index}-", TemporalPositionIdentifier=index + 1)
    (tmp_path / "p1-1-003.dcm").unlink()
    refused(tmp_path, "missing slice: 1")


# --- files ---------------------------------------------------------------------------------------


def test_what_is_no_dicom_is_passed_over(tmp_path):
    write_series(tmp_path, voxels())
    (tmp_path / "notes").write_text("no DICOM")
    (tmp_path / "rois.nii.gz").write_bytes(b"x")
    (tmp_path / "DICOMDIR").write_bytes(b"x")
    assert len(stacks(tmp_path)) == 1


def test_damaged_files_are_named(tmp_path):
    paths = write_series(tmp_path, voxels())
    content = paths[1].read_bytes()
    paths[1].write_bytes(content[: len(content) - 60])
    (stack,) = stacks(tmp_path)
    with pytest.raises(CadError, match="damaged pixel data") as caught:
        read_stack(stack)
    assert caught.value.file == str(paths[1])
    paths[1].write_bytes(content)
    edit(paths[1], ImagePositionPatient=None)
    dataset = pydicom.dcmread(paths[2])
    dataset.add_new(0x00280010, "US", [4, 4])
    dataset.save_as(paths[2])
    listing = list_files(paths)
    assert [e.file for e in listing.unreadable] == [str(paths[2])]


def test_colour_and_multiframe_images(tmp_path):
    (path,) = write_series(tmp_path, voxels((1, 4, 4)))
    edit(path, SamplesPerPixel=3, PhotometricInterpretation="RGB")
    (stack,) = stacks(tmp_path)
    with pytest.raises(CadError, match="colour image"):
        read_stack(stack)
    edit(path, NumberOfFrames=5)
    listing = list_files([path])
    ((error,),) = (series.values() for series in listing.unusable.values())
    assert "a multi-frame image with 5 frames that does not say where each lies" in error.problem


def test_compressed_pixels(tmp_path):
    """RLE is decoded; a syntax without its codec is refused with the command that installs it."""
    array = voxels()
    paths = write_series(tmp_path, array)
    for path in paths:
        dataset = pydicom.dcmread(path)
        dataset.compress(RLELossless, generate_instance_uid=False)
        dataset.save_as(path)
    (stack,) = stacks(tmp_path)
    assert (read_stack(stack).array == array).all()
    for syntax in (JPEGLosslessSV1, JPEG2000Lossless):
        dataset = pydicom.dcmread(paths[0])
        dataset.PixelData = encapsulate([bytes(64)])
        dataset.file_meta.TransferSyntaxUID = syntax
        dataset.save_as(paths[0])
        with pytest.raises(CadError) as caught:
            read_stack(stack)
        if "damaged" not in caught.value.problem:  # a codec for it is installed here
            assert syntax.name in caught.value.problem
            assert "pip install 'prostate-cad[codecs]'" in caught.value.hint


def test_messages_carry_no_control_characters():
    assert printable("a\x1b[31m<b>\n") == "a?[31m<b>?"
    assert len(printable("x" * 500)) == 64


def test_same_uid_for_the_same_parts():
    assert uid("a", 1) == uid("a", 1) != uid("a", 2)


@pytest.mark.reference
def test_real_series(shared_data, counted):
    """ProstateX-0218: sizes, spacings, flip angles and both clocks as its README states them."""
    root = shared_data / "prostatex" / "ProstateX-0218"
    found = stacks(root)
    assert len(found) == 77
    by_number = {s.first.series_number: s for s in found}
    expected = {
        5: ((20, 320, 320), 0.625, 150),
        12: ((20, 104, 128), 2.031, 90),
        21: ((20, 130, 160), 1.625, 90),
        23: ((20, 160, 160), 1.625, 2),
        24: ((20, 160, 160), 1.625, 5),
        25: ((20, 160, 160), 1.625, 10),
        26: ((20, 160, 160), 1.625, 20),
        27: ((20, 160, 160), 1.625, 12),
    }
    for number, (shape, spacing, flip) in expected.items():
        stack = by_number[number]
        assert stack.shape == shape
        assert stack.spacing == pytest.approx((spacing, spacing, 3.6), abs=1e-3)
        assert stack.first.flip_angle == flip
    assert by_number[21].first.b_value == 100
    assert by_number[12].first.b_value is None
    phases = [s for n, s in by_number.items() if n >= 27]
    told = np.array([t for t, _ in order_phases(phases, "description", TT).timed])
    read = np.array([t for t, _ in order_phases(phases, "acquisition", TT).timed])
    assert (told[0], told[-1]) == (8.0, 298.9)
    assert np.diff(told).mean() == pytest.approx(4.216, abs=1e-3)
    assert np.diff(read)[0] == pytest.approx(8.895)
    assert set(np.round(np.diff(read)[1:], 4)) == {4.2325, 4.235}
    assert read[-1] - read[0] == pytest.approx(296.74, abs=0.01)
    counted(3 * len(expected) + 8, "PROSTATEx README, DICOM headers")


def test_a_header_of_more_than_64_kib_is_read(tmp_path):
    """Private elements of some makers have hundreds of KiB, and so has a header of many frames."""
    (path,) = write_series(tmp_path, np.ones((1, 8, 8), np.uint16))
    dataset = pydicom.dcmread(path)
    block = dataset.private_block(0x0029, "SIEMENS CSA HEADER", create=True)
    block.add_new(0x20, "OB", bytes(2**20))
    dataset.save_as(path)
    (frames,) = list_files([path]).studies.values()
    assert len(frames) == 1
