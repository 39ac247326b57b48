"""Headers that contradict the pixels or themselves are refused by name; one meaning is read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import edit, uid, write_series
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    JPEG2000Lossless,
    JPEGLSLossless,
    RLELossless,
)

from cad.base.errors import CadError
from cad.mri.imaging.frame_headers import frames_of
from cad.mri.imaging.frames import Frame, Scale
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.pixels import PixelReader, read_stack
from cad.mri.imaging.stacks import Stack, stacks_of

PLANE = np.arange(1, 1537, dtype=np.uint16).reshape(32, 48)

ODD_UID = pytest.mark.filterwarnings("ignore:(Invalid value for VR UI|The value length)")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (path,) = write_series(tmp_path, PLANE[None])
    return path


def frames(path: Path) -> list[Frame]:
    listing = list_files([path])
    assert not listing.unreadable
    assert not any(listing.unusable.values())
    return [frame for study in listing.studies.values() for frame in study]


def plane(path: Path) -> np.ndarray:
    return PixelReader().plane(frames(path)[0])


def refused(path: Path, words: str) -> CadError:
    with pytest.raises(CadError, match=words) as caught:
        plane(path)
    assert caught.value.file == str(path)
    assert caught.value.hint
    return caught.value


def unusable(path: Path) -> str:
    ((error,),) = (series.values() for series in list_files([path]).unusable.values())
    assert error.hint
    return error.problem


def compress(path: Path, syntax: str, **header: int) -> None:
    """Compress an image, and then state something else of it in its header."""
    dataset = pydicom.dcmread(path)
    dataset.compress(syntax, generate_instance_uid=False)
    for name, value in header.items():
        setattr(dataset, name, value)
    dataset.save_as(path)


def converted(classic: list[Dataset]) -> Dataset:
    """Make one enhanced object of the images of a series."""
    import highdicom

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # on the form of the names
        return highdicom.legacy.LegacyConvertedEnhancedMRImage(
            classic,
            series_instance_uid=uid("enhanced"),
            series_number=7,
            sop_instance_uid=uid("object"),
            instance_number=1,
        )


# --- pixel data of another size than the header says ---------------------------------------------


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (
            {"Rows": 16},
            r"3072 bytes of pixel data, but 1536 by the header: Rows \(0028,0010\) 16 x",
        ),
        ({"Columns": 47}, r"3072 bytes .* but 3008 by the header: .* Columns \(0028,0011\) 47"),
        (
            {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7},
            r"3072 bytes .* but 1536 by the header: .* BitsAllocated \(0028,0100\) 8",
        ),
    ],
)
def test_more_pixels_than_the_header_says_are_refused(image, header, words):
    edit(image, **header)
    refused(image, words)


def test_a_longer_file_of_a_series_is_refused_after_a_sound_one(tmp_path):
    """The second file is read the fast way, by the layout of the first."""
    paths = write_series(tmp_path, np.stack([PLANE, PLANE]))
    edit(paths[1], PixelData=PLANE.tobytes() * 2)
    reader = PixelReader()
    first, second = frames(paths[0]) + frames(paths[1])
    reader.plane(first)
    with pytest.raises(CadError, match="6144 bytes of pixel data, but 3072 by the header"):
        reader.plane(second)


@pytest.mark.parametrize("padding", [1, 3, 5])
@pytest.mark.filterwarnings("ignore:The pixel data is .* bytes long")
def test_a_little_padding_behind_the_pixels_is_no_other_size(image, padding):
    odd = PLANE[:9, :15].astype(np.uint8)
    edit(image, Rows=9, Columns=15, BitsAllocated=8, BitsStored=8, HighBit=7)
    edit(image, PixelData=odd.tobytes() + bytes(padding))
    assert (plane(image) == odd).all()


def test_a_line_of_zeros_behind_the_pixels_is_padding_and_other_bytes_are_none(tmp_path):
    paths = write_series(tmp_path, np.stack([PLANE, PLANE]))
    line = PLANE[:, :1].nbytes  # a column is shorter than a row here
    edit(paths[0], PixelData=PLANE.tobytes() + bytes(line))
    edit(paths[1], PixelData=PLANE.tobytes() + bytes(line - 1) + b"x")
    reader = PixelReader()
    first, second = frames(paths[0]) + frames(paths[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (reader.plane(first) == PLANE).all()
        with pytest.raises(CadError, match=r"bytes of pixel data, but 3072 by the header"):
            reader.plane(second)
    edit(paths[0], PixelData=PLANE.tobytes() + bytes(2 * line))
    with pytest.raises(CadError, match=r"bytes of pixel data, but 3072 by the header"):
        PixelReader().plane(frames(paths[0])[0])


@pytest.mark.parametrize("syntax", [JPEG2000Lossless, JPEGLSLossless])
@pytest.mark.parametrize("rows", [16, 64])
def test_a_compressed_image_of_another_size_is_refused(image, syntax, rows):
    compress(image, syntax)
    assert (plane(image) == PLANE).all()
    edit(image, Rows=rows)
    words = rf"compressed image of 32 x 48 pixels, but Rows .* x Columns .* is {rows} x 48"
    refused(image, words)


@pytest.mark.parametrize("syntax", [JPEG2000Lossless, JPEGLSLossless])
def test_a_compressed_image_of_more_bits_than_allocated_is_refused(image, syntax):
    compress(image, syntax, BitsAllocated=8, BitsStored=8, HighBit=7)
    refused(image, r"16 bits a value, but BitsAllocated \(0028,0100\) is 8")


def test_an_rle_image_of_more_rows_than_the_header_says_is_refused(image):
    compress(image, RLELossless)
    assert (plane(image) == PLANE).all()
    edit(image, Rows=16)
    words = r"an RLE image of 1536 pixels, but Rows \(0028,0010\) 16 x Columns .* is 768"
    refused(image, words)


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless, JPEGLSLossless])
@pytest.mark.parametrize("has_bot", [True, False])
def test_two_compressed_images_of_one_frame_are_refused(image, syntax, has_bot):
    compress(image, syntax)
    dataset = pydicom.dcmread(image)
    (fragment,) = pydicom.encaps.generate_frames(dataset.PixelData, number_of_frames=1)
    dataset.PixelData = encapsulate([fragment, fragment], has_bot=has_bot)
    dataset.save_as(image)
    refused(image, r"2 compressed images, but NumberOfFrames \(0028,0008\) is 1")


def test_an_offset_table_of_two_frames_in_a_file_of_one_is_refused(image):
    compress(image, JPEG2000Lossless)
    edit(image, ExtendedOffsetTable=bytes(16), ExtendedOffsetTableLengths=bytes(16))
    refused(image, r"2 compressed images, but NumberOfFrames \(0028,0008\) is 1")


def test_one_compressed_image_in_several_fragments_is_read(image):
    compress(image, JPEG2000Lossless)
    dataset = pydicom.dcmread(image)
    (fragment,) = pydicom.encaps.generate_frames(dataset.PixelData, number_of_frames=1)
    dataset.PixelData = encapsulate([fragment], fragments_per_frame=3)
    dataset.save_as(image)
    assert (plane(image) == PLANE).all()


# --- rows and columns that are exchanged ---------------------------------------------------------


def smooth(rows: int, columns: int) -> np.ndarray:
    """An image like one of a body: bright in the middle, with some structure and noise."""
    y, x = np.indices((rows, columns)) / max(rows, columns)
    values = 400 * np.exp(-8 * ((x - 0.4) ** 2 + (y - 0.3) ** 2)) + 60 * np.sin(20 * x + 9 * y)
    noise = np.random.default_rng(0).normal(0, 8, (rows, columns))
    return (values + noise + 100).astype(np.uint16)


@pytest.mark.parametrize("syntax", ["", RLELossless])
@pytest.mark.parametrize("columns", [44, 36])
def test_rows_and_columns_that_are_exchanged_are_refused(tmp_path, syntax, columns):
    """The number of pixels is the same, and the pixels show it; so in every file of a series."""
    image = smooth(48, columns)
    paths = write_series(tmp_path, np.stack([image] * 3))
    for path in paths:
        if syntax:
            compress(path, syntax)
    reader = PixelReader()
    assert (reader.plane(frames(paths[0])[0]) == image).all()
    for path in paths[1:]:
        edit(path, Rows=columns, Columns=48)
        (frame,) = frames(path)
        with pytest.raises(CadError, match=r"Columns \(0028,0011\) 48 are exchanged") as caught:
            reader.plane(frame)
        assert caught.value.file == str(path)


@pytest.mark.parametrize(("rows", "columns"), [(48, 36), (36, 48)])
def test_noise_and_shade_have_no_rows_and_columns_that_could_be_exchanged(tmp_path, rows, columns):
    noise = np.random.default_rng(1).integers(0, 900, (20, rows, columns)).astype(np.uint16)
    ramps = np.indices((rows, columns)).astype(np.uint16) * 10
    empty = np.zeros((1, rows, columns), np.uint16)
    for path in write_series(tmp_path, np.concatenate([noise, ramps, empty])):
        assert plane(path).shape == (rows, columns)


def test_an_enhanced_image_of_exchanged_rows_and_columns_is_refused(several):
    path = several(np.stack([smooth(48, 36)] * 3))
    assert plane(path).shape == (48, 36)
    edit(path, Rows=36, Columns=48)
    refused(path, r"Rows \(0028,0010\) 36 and Columns .* exchanged")


# --- the order of the slices of an enhanced object -----------------------------------------------


@pytest.fixture
def several(tmp_path: Path) -> Callable[..., Path]:
    """An enhanced object of several slices, with numbers in their stack."""

    def write(slices: np.ndarray, numbers: tuple[int, ...] = ()) -> Path:
        classic = [pydicom.dcmread(path) for path in write_series(tmp_path / "classic", slices)]
        path = tmp_path / "several.dcm"
        converted(classic).save_as(path)
        if numbers:
            dataset = pydicom.dcmread(path)
            groups = dataset.PerFrameFunctionalGroupsSequence
            for group, number in zip(groups, numbers, strict=True):
                group.FrameContentSequence[0].StackID = "1"
                group.FrameContentSequence[0].InStackPositionNumber = number
            dataset.save_as(path)
        return path

    return write


def stack_of(path: Path) -> Stack:
    (stack,) = stacks_of(frames(path))
    return stack


def layers(count: int) -> np.ndarray:
    """Slices of a body that changes from slice to slice."""
    return np.stack([np.roll(smooth(32, 32), 3 * index, 1) for index in range(count)])


@pytest.mark.parametrize(
    ("numbers", "order"),
    [
        ((1, 2, 3, 4), None),
        ((4, 3, 2, 1), None),
        ((), None),
        ((1, 3, 2, 4), [3, 1, 2, 0]),  # the first frame lies on top
        ((1, 1, 1, 1), [0, 1, 2, 3]),
    ],
)
def test_positions_count_where_numbers_contradict_them(several, numbers, order):
    """Some converters number frames wrongly; the pixels follow each other by the positions."""
    slices = layers(4)
    stack = stack_of(several(slices, numbers))
    assert (read_stack(stack).array == slices).all()
    stated = stack.order_of_numbers
    assert (None if stated is None else stated.tolist()) == order


def test_exchanged_positions_are_refused_where_numbers_and_pixels_say_so(several):
    path = several(layers(4), (1, 2, 3, 4))
    dataset = pydicom.dcmread(path)
    _, second, third, _ = dataset.PerFrameFunctionalGroupsSequence
    second.PlanePositionSequence, third.PlanePositionSequence = (
        third.PlanePositionSequence,
        second.PlanePositionSequence,
    )
    dataset.save_as(path)
    with pytest.raises(CadError, match="give the slices two orders, and the pixels") as caught:
        read_stack(stack_of(path))
    assert caught.value.file == str(path)


# --- bits and colours ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (
            {"BitsStored": 12, "HighBit": 15},
            r"HighBit \(0028,0102\) is 15, but BitsStored \(0028,0101\) is 12; .* must be 11",
        ),
        ({"HighBit": 11}, r"HighBit \(0028,0102\) is 11, but BitsStored \(0028,0101\) is 16"),
        (
            {"BitsStored": 17, "HighBit": 16},
            r"BitsStored \(0028,0101\) is 17, but BitsAllocated \(0028,0100\) is 16",
        ),
        ({"PixelRepresentation": 2}, "Pixel Representation' value of '2'"),
    ],
)
@pytest.mark.parametrize("syntax", ["", JPEG2000Lossless])
def test_bits_that_contradict_each_other_are_refused(image, header, words, syntax):
    if syntax:
        compress(image, syntax)
    edit(image, **header)
    with pytest.raises(CadError, match=words):
        plane(image)


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("syntax", ["", RLELossless])
def test_bits_above_the_stored_ones_are_no_part_of_a_value(image, sign, syntax):
    """Overlays lay there once; readers ignore these bits (PS3.5 8.1.1)."""
    values = (PLANE.astype(np.int16) - 800) if sign else PLANE
    stored = values.astype(np.uint16) & 0x0FFF | np.uint16(0x5000)
    edit(image, PixelData=stored.tobytes(), BitsStored=12, HighBit=11, PixelRepresentation=sign)
    if syntax:
        compress(image, syntax)
    assert (plane(image) == values).all()


@pytest.mark.parametrize("syntax", [JPEG2000Lossless, JPEGLSLossless])
@pytest.mark.parametrize(
    ("stored", "sign", "words"),
    [
        (10, 0, r"a value of 1536, but BitsStored \(0028,0101\) is 10, which allows 0 to 1023"),
        (11, 1, r"a value of 1536, but BitsStored .* is 11, which allows -1024 to 1023"),
        (11, 0, ""),
        (12, 1, ""),
    ],
)
def test_a_compressed_value_of_more_bits_than_stored_is_refused(image, syntax, stored, sign, words):
    compress(image, syntax, BitsStored=stored, HighBit=stored - 1, PixelRepresentation=sign)
    if words:
        refused(image, words)
    else:
        assert (plane(image) == PLANE).all()


@pytest.mark.parametrize(("shift", "read"), [(0, True), (800, False)])
def test_a_negative_value_of_an_image_without_a_sign_is_refused(image, shift, read):
    """By the header, -50 would become 4046; values that are not negative mean the same by both."""
    values = PLANE.astype(np.int16) - shift
    edit(image, PixelData=values.tobytes(), BitsStored=12, HighBit=11, PixelRepresentation=1)
    compress(image, JPEG2000Lossless, PixelRepresentation=0)
    if read:
        assert (plane(image) == values).all()
    else:
        refused(image, r"PixelRepresentation \(0028,0103\) is 0, but the JPEG 2000 image has neg")


def test_a_picture_in_colours_of_a_palette_is_refused(image):
    edit(image, PhotometricInterpretation="PALETTE COLOR")
    refused(image, r"PhotometricInterpretation \(0028,0004\) is 'PALETTE COLOR'")


def test_floating_point_of_another_width_is_refused(image):
    dataset = pydicom.dcmread(image)
    del dataset.PixelData
    dataset.FloatPixelData = PLANE.astype("<f4").tobytes()
    dataset.save_as(image)
    refused(image, r"BitsAllocated \(0028,0100\) is 16, but FloatPixelData has 32 bits a value")
    edit(image, BitsAllocated=32)
    assert (plane(image) == PLANE).all()


# --- the scale of the values ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slope", "words"),
    [
        ("0", r"RescaleSlope \(0028,1053\) is 0, which would make every voxel the same"),
        (["1", "2"], r"RescaleSlope \(0028,1053\) is 1, 2; it must be one number"),
        ("nan", r"RescaleSlope \(0028,1053\) is nan; it must be one number"),
        ("inf", r"RescaleSlope \(0028,1053\) is inf; it must be one number"),
    ],
)
def test_a_slope_that_is_no_slope_is_refused(image, slope, words):
    with pydicom.config.disable_value_validation():
        edit(image, RescaleSlope=slope, RescaleIntercept="0")
    assert re.search(words, unusable(image))


def test_an_intercept_of_two_numbers_is_refused(image):
    edit(image, RescaleSlope="1", RescaleIntercept=["0", "-1024"])
    assert "RescaleIntercept (0028,1052) is -1024, 0" in unusable(image)


@pytest.mark.parametrize("slope", ["2", "-2", ["2", "2.0"]])
def test_a_slope_that_is_one_number_is_read(image, slope):
    edit(image, RescaleSlope=slope, RescaleIntercept="3")
    (frame,) = frames(image)
    number = float(slope[0] if isinstance(slope, list) else slope)
    assert frame.real == Scale(number, 3.0, "")


def test_values_by_a_table_are_refused(image):
    table = Dataset()
    table.LUTDescriptor = [2, 0, 16]
    table.ModalityLUTType = "US"
    table.LUTData = b"\0\0\1\0"
    edit(image, ModalityLUTSequence=[table])
    assert "ModalityLUTSequence (0028,3000) gives the values by a table" in unusable(image)


def mapping(slope: object, intercept: float = 0.0, unit: str = "1") -> Dataset:
    code = Dataset()
    code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = unit, "UCUM", unit
    item = Dataset()
    item.MeasurementUnitsCodeSequence = [code]
    item.RealWorldValueSlope, item.RealWorldValueIntercept = slope, intercept
    return item


@pytest.mark.parametrize(
    ("mappings", "words"),
    [
        ([mapping(1.0), mapping(2.0)], "slope 1, intercept 0 in 1, and slope 2, intercept 0 in 1"),
        ([mapping(1.0), mapping(1.0, 5.0)], "slope 1, intercept 5 in 1"),
        ([mapping(1.0, 0.0, "um2/s"), mapping(1.0, 0.0, "ms")], "intercept 0 in ms"),
        ([mapping(1.0, 0.0, "um2/s"), mapping(1.0, 0.0, "mm2/s")], "intercept 0 in mm2/s"),
    ],
)
def test_two_mappings_of_one_image_are_refused(image, mappings, words):
    edit(image, RealWorldValueMappingSequence=mappings)
    problem = unusable(image)
    assert "two mappings of RealWorldValueMappingSequence (0040,9096)" in problem
    assert words in problem


@pytest.mark.parametrize(
    ("slope", "shown"),
    [(float("nan"), "nan"), (float("inf"), "inf"), ([1.0, 2.0], "1, 2"), (0.0, "0")],
)
def test_a_mapping_without_a_number_is_refused(image, slope, shown):
    edit(image, RealWorldValueMappingSequence=[mapping(slope)])
    assert f"RealWorldValueSlope (0040,9225) is {shown}" in unusable(image)


def test_a_mapping_and_a_rescale_of_one_quantity_must_agree(image):
    edit(image, RescaleSlope="2", RescaleIntercept="0", RescaleType="um2/s")
    edit(image, RealWorldValueMappingSequence=[mapping(3e-6, 0.0, "mm2/s")])
    problem = unusable(image)
    assert "two scales of one quantity: slope 3e-06, intercept 0 in mm2/s" in problem
    assert "slope 2, intercept 0 in um2/s by RescaleSlope (0028,1053)" in problem


@pytest.mark.parametrize(
    ("mappings", "kind"),
    [
        ([mapping(2e-6, 0.0, "mm2/s"), mapping(2.0, 0.0, "um2/s")], "um2/s"),  # equal
        ([mapping(2.00001e-6, 0.0, "mm2/s")], "um2/s"),  # but for the last digit
        ([mapping(2e-6, 0.0, "mm2/s")], "US"),  # the rescale is for display
        ([mapping(3.0)], "US"),
    ],
)
def test_a_mapping_of_one_meaning_is_read(image, mappings, kind):
    edit(image, RescaleSlope="2", RescaleIntercept="0", RescaleType=kind)
    edit(image, RealWorldValueMappingSequence=mappings)
    (frame,) = frames(image)
    item = mappings[0]
    unit = item.MeasurementUnitsCodeSequence[0].CodeValue
    assert frame.real == Scale(item.RealWorldValueSlope, 0.0, unit)


@pytest.fixture
def enhanced(tmp_path: Path) -> Callable[..., Path]:
    """An enhanced object of two frames, and a scale in any of its places."""
    paths = write_series(tmp_path / "classic", np.stack([PLANE, PLANE]))
    path = tmp_path / "enhanced.dcm"
    converted([pydicom.dcmread(path) for path in paths]).save_as(path)

    def scaled(**slopes: list[float]) -> Path:
        dataset = pydicom.dcmread(path)
        if "top" in slopes:
            dataset.RescaleSlope, dataset.RescaleIntercept = slopes["top"][0], 0
        (shared,) = dataset.SharedFunctionalGroupsSequence
        shared.PixelValueTransformationSequence = rescales(slopes.get("shared", []))
        for group in dataset.PerFrameFunctionalGroupsSequence:
            group.PixelValueTransformationSequence = rescales(slopes.get("frame", []))
        if "mapped" in slopes:
            shared.RealWorldValueMappingSequence = [mapping(slopes["mapped"][0])]
            group.RealWorldValueMappingSequence = [mapping(slopes["mapped"][1])]
        dataset.save_as(path)
        return path

    return scaled


def rescales(slopes: list[float]) -> list[Dataset]:
    items = []
    for slope in slopes:
        item = Dataset()
        item.RescaleSlope, item.RescaleIntercept, item.RescaleType = slope, 0, "US"
        items.append(item)
    return items


@pytest.mark.parametrize(
    "slopes",
    [
        {"top": [1], "shared": [2]},
        {"top": [1], "frame": [2]},
        {"shared": [1], "frame": [2]},
        {"frame": [1, 2]},
    ],
)
def test_two_slopes_of_one_frame_are_refused(enhanced, slopes):
    problem = unusable(enhanced(**slopes))
    assert "RescaleSlope (0028,1053) stands twice in the header of one frame, as 1 and as 2" in (
        problem
    )


def test_two_mappings_in_two_places_of_an_enhanced_header_are_refused(enhanced):
    problem = unusable(enhanced(mapped=[1.0, 2.0]))
    assert "two mappings of RealWorldValueMappingSequence (0040,9096)" in problem


@pytest.mark.parametrize(
    "slopes",
    [
        {"shared": [2]},
        {"frame": [2]},
        {"top": [2], "shared": [2], "frame": [2]},
        {"frame": [2, 2]},
        {"frame": [2], "mapped": [2.0, 2.0]},
    ],
)
def test_one_slope_in_any_place_of_an_enhanced_header_is_read(enhanced, slopes):
    first, second = frames(enhanced(**slopes))
    for frame in (first, second):
        assert frame.real.slope == 2.0
        assert (PixelReader().plane(frame) == PLANE).all()


@pytest.mark.parametrize("place", ["top", "shared"])
@pytest.mark.parametrize(("spacing", "agrees"), [([0.5, 0.5], False), ([1, 1], True)])
def test_two_pixel_sizes_of_one_frame_are_refused(enhanced, place, spacing, agrees):
    path = enhanced()
    dataset = pydicom.dcmread(path)
    (shared,) = dataset.SharedFunctionalGroupsSequence
    if place == "top":
        dataset.PixelSpacing = spacing
    else:
        measures = Dataset()
        measures.PixelSpacing = spacing
        shared.PixelMeasuresSequence = [*shared.get("PixelMeasuresSequence", []), measures]
    dataset.save_as(path)
    if agrees:
        assert frames(path)[0].pixel_spacing == (1.0, 1.0)
        return
    problem = unusable(path)
    assert "PixelSpacing (0028,0030) stands twice in the header of one frame" in problem
    assert "[0.5, 0.5]" in problem


PLACES = {
    "PlanePositionSequence": ("ImagePositionPatient", [1, 2, 3]),
    "PlaneOrientationSequence": ("ImageOrientationPatient", [0, 1, 0, 0, 0, 1]),
}
UNASSIGNED = {
    "SharedFunctionalGroupsSequence": "UnassignedSharedConvertedAttributesSequence",
    "PerFrameFunctionalGroupsSequence": "UnassignedPerFrameConvertedAttributesSequence",
}


def item_of(**elements: object) -> Dataset:
    item = Dataset()
    for keyword, value in elements.items():
        setattr(item, keyword, value)
    return item


def add_item(group: Dataset, sequence: str, item: Dataset) -> None:
    setattr(group, sequence, [*group.get(sequence, []), item])


@pytest.mark.parametrize("macro", PLACES)
@pytest.mark.parametrize("place", ["top", "shared", "frame", "unassigned", "unassigned of all"])
@pytest.mark.parametrize("agrees", [False, True])
def test_two_places_of_one_frame_are_refused(enhanced, macro, place, agrees):
    path = enhanced()
    before = frames(path)
    dataset = pydicom.dcmread(path)
    (shared,) = dataset.SharedFunctionalGroupsSequence
    group = dataset.PerFrameFunctionalGroupsSequence[0]
    keyword, value = PLACES[macro]
    stated = (group.get(macro) or shared[macro].value)[0]
    item = item_of(**{keyword: stated[keyword].value if agrees else value})
    if place == "top":
        setattr(dataset, keyword, item[keyword].value)
    elif place == "shared":
        add_item(shared, macro, item)
    elif place == "frame":
        add_item(group, macro, item)
    elif place == "unassigned":
        add_item(group, UNASSIGNED["PerFrameFunctionalGroupsSequence"], item)
    else:
        add_item(shared, UNASSIGNED["SharedFunctionalGroupsSequence"], item)
    # All frames of a header lie at one place where it states one place for all.
    if (
        agrees
        and keyword == "ImagePositionPatient"
        and place in ("top", "shared", "unassigned of all")
    ):
        del dataset.PerFrameFunctionalGroupsSequence[1]
        dataset.NumberOfFrames = 1
        before = before[:1]
    dataset.save_as(path)
    if agrees:
        assert frames(path) == before
        return
    problem = unusable(path)
    assert f"{keyword} (0020,00" in problem
    assert "stands twice in the header of one frame, as [" in problem


def remove(dataset: Dataset, keyword: str) -> None:
    """Take an element out of a data set and of all of its items."""

    def visit(item: Dataset, found: pydicom.DataElement) -> None:
        if found.keyword == keyword:
            del item[keyword]

    dataset.walk(visit)


ACQUISITION = {
    "MREchoSequence": ("EffectiveEchoTime", "EchoTime", 90.0),
    "MRTimingAndRelatedParametersSequence": ("RepetitionTime", "RepetitionTime", 4000.0),
    "MRTimingAndRelatedParametersSequence ": ("FlipAngle", "FlipAngle", 12.0),
    "MRDiffusionSequence": ("DiffusionBValue", "DiffusionBValue", 50.0),
    "PixelMeasuresSequence": ("SliceThickness", "SliceThickness", 3.0),
}


@pytest.mark.parametrize("macro", ACQUISITION)
@pytest.mark.parametrize("place", ["top", "shared", "frame", "unassigned"])
@pytest.mark.parametrize("agrees", [False, True])
def test_two_acquisitions_of_one_frame_are_refused(enhanced, macro, place, agrees):
    """One echo time in the group of the frame, and another one for all frames or beside it."""
    path = enhanced()
    dataset = pydicom.dcmread(path)
    (shared,) = dataset.SharedFunctionalGroupsSequence
    keyword, classic, value = ACQUISITION[macro]
    sequence = macro.strip()
    remove(dataset, classic)
    other = value if agrees else value + 30.0
    for group in dataset.PerFrameFunctionalGroupsSequence:
        add_item(group, sequence, item_of(**{keyword: value}))
        if place == "frame":
            add_item(group, sequence, item_of(**{keyword: other}))
        elif place == "unassigned":
            add_item(
                group, UNASSIGNED["PerFrameFunctionalGroupsSequence"], item_of(**{classic: other})
            )
    if place == "top":
        setattr(dataset, classic, other)
    elif place == "shared":
        add_item(shared, sequence, item_of(**{keyword: other}))
    dataset.save_as(path)
    if agrees:
        assert len(frames(path)) == 2
        return
    problem = unusable(path)
    assert f"{classic} (0018," in problem
    assert "stands twice in the header of one frame, as " in problem
    assert f"{value:g}" in problem
    assert f"{other:g}" in problem


def test_what_a_converter_leaves_unassigned_is_read(enhanced):
    """Numbers of instances, of acquisitions and of series, and places where no macro has them."""
    path = enhanced()
    dataset = pydicom.dcmread(path)
    first = frames(path)[0]
    remove(dataset, "FlipAngle")
    for number, group in enumerate(dataset.PerFrameFunctionalGroupsSequence):
        position = group.PlanePositionSequence[0].ImagePositionPatient
        del group.PlanePositionSequence
        item = item_of(
            ImagePositionPatient=position,
            InstanceNumber=30 + number,
            AcquisitionNumber=40 + number,
            FlipAngle=12,
            SeriesNumber=99,
            SeriesDescription="of the converted series",
            PatientID=dataset.PatientID,
            StudyInstanceUID=dataset.StudyInstanceUID,
            Rows=dataset.Rows,
        )
        group.UnassignedPerFrameConvertedAttributesSequence = [item]
    dataset.save_as(path)
    read = frames(path)
    assert [frame.instance_number for frame in read] == [30, 31]
    assert [frame.acquisition_number for frame in read] == [40, 41]
    assert (read[0].position, read[0].flip_angle) == (first.position, 12)
    assert {frame.series_number for frame in read} == {7}
    assert {frame.description for frame in read} == {first.description}


OF_THE_TOP = {
    "PatientID": "SMITH^JOHN",
    "StudyInstanceUID": "1.2.3",
    "StudyDate": "19550317",
    "StudyTime": "010203",
    "SeriesInstanceUID": "1.2.3",
    "SOPInstanceUID": "1.2.3",
    "SOPClassUID": "1.2.840.10008.5.1.4.1.1.4",
    "FrameOfReferenceUID": "1.2.3",
    "Modality": "SMITH",
    "Manufacturer": "SMITH",
    "Rows": 31,
    "Columns": 31,
}


@pytest.mark.parametrize("groups", UNASSIGNED)
@pytest.mark.parametrize("macro", ["unassigned", "FrameContentSequence", ""])
@pytest.mark.parametrize("keyword", OF_THE_TOP)
def test_a_second_identity_inside_a_frame_is_refused(enhanced, groups, macro, keyword):
    """The group of a frame says where the frame lies, and never whose image it is."""
    path = enhanced()
    dataset = pydicom.dcmread(path)
    if keyword not in dataset:
        dataset[keyword] = pydicom.DataElement(keyword, "LO", "")
        setattr(
            dataset, keyword, {"StudyDate": "20200102", "StudyTime": "101112"}.get(keyword, "1")
        )
    group = dataset[groups].value[-1]
    sequence = UNASSIGNED[groups] if macro == "unassigned" else macro
    if sequence:
        add_item(group, sequence, item_of(**{keyword: OF_THE_TOP[keyword]}))
    else:
        setattr(group, keyword, OF_THE_TOP[keyword])
    dataset.save_as(path)
    problem = unusable(path)
    assert f"{keyword} (00" in problem
    assert f"one value at the top of the header, and another in {sequence or groups} (" in problem
    assert str(OF_THE_TOP[keyword]) not in problem


def test_an_identity_that_the_top_lacks_is_not_taken_from_a_frame(enhanced):
    path = enhanced()
    dataset = pydicom.dcmread(path)
    dataset.PatientID = ""
    for group in dataset.PerFrameFunctionalGroupsSequence:
        group.UnassignedPerFrameConvertedAttributesSequence = [item_of(PatientID="SMITH")]
    dataset.save_as(path)
    assert {frame.patient_id for frame in frames(path)} == {""}


# --- numbers that no scanner states --------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "value", "words"),
    [
        ("FlipAngle", "19550317", "FlipAngle (0018,1314) is no number from 0 to 360 degrees"),
        ("FlipAngle", "-1", "from 0 to 360 degrees"),
        ("EchoTime", "19550317", "EchoTime (0018,0081) is no number from 0 to 10000 ms"),
        ("EchoTime", "550317", "EchoTime (0018,0081) is no number from 0 to 10000 ms"),
        ("RepetitionTime", "19550317", "RepetitionTime (0018,0080) is no number from 0 to 100 s"),
        ("RepetitionTime", "170355", "RepetitionTime (0018,0080) is no number from 0 to 100 s"),
        (
            "MagneticFieldStrength",
            "31",
            "MagneticFieldStrength (0018,0087) is no number from 0",
        ),
        (
            "DiffusionBValue",
            19550317.0,
            "DiffusionBValue (0018,9087) is no number from 0 to",
        ),
        ("FlipAngle", "0", ""),
        ("FlipAngle", "180", ""),
        ("EchoTime", "0", ""),
        ("RepetitionTime", "20000", ""),
        ("MagneticFieldStrength", "11.7", ""),
        ("DiffusionBValue", 10000.0, ""),
    ],
)
def test_a_number_that_may_be_a_date_of_birth_is_refused(image, keyword, value, words):
    edit(image, **{keyword: value})
    if not words:
        assert len(frames(image)) == 1
        return
    problem = unusable(image)
    assert words in problem
    assert "1955" not in problem


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("550317", None),
        ("190355", 68635.0),
        ("19550317", None),
        ("256000", None),
        ("236000", None),
        ("101161", None),
        ("235960", 86400.0),
        ("101112.5", 36672.5),
        ("10:11:12", 36672.0),
        ("1011", 36660.0),
        ("10", 36000.0),
    ],
)
@pytest.mark.parametrize("keyword", ["AcquisitionTime", "ContentTime"])
@pytest.mark.filterwarnings("ignore:Invalid value for VR")
def test_a_time_is_a_time_of_the_day(image, keyword, text, seconds):
    """A date of birth as a time would be one of 55 hours."""
    with pydicom.config.disable_value_validation():
        edit(image, **{keyword: text})
    (frame,) = frames(image)
    read = frame.acquisition_time if keyword == "AcquisitionTime" else frame.content_time
    assert read == seconds


def test_a_description_of_several_values_is_read_as_it_is_written(image):
    edit(image, SeriesDescription=["t2", "tse"])
    (frame,) = frames(image)
    assert frame.description == "t2\\tse"


def test_a_private_b_value_that_no_scanner_states_is_refused(image):
    dataset = pydicom.dcmread(image)
    dataset.Manufacturer = "SIEMENS"
    dataset.private_block(0x0019, "SIEMENS MR HEADER", create=True).add_new(0x0C, "IS", "19550317")
    dataset.save_as(image)
    assert "of a private element is no number from 0 to 100000 s/mm2" in unusable(image)


# --- what an image must have ---------------------------------------------------------------------


@pytest.mark.parametrize("keyword", ["StudyInstanceUID", "Rows", "Columns"])
def test_an_element_that_an_image_lacks_is_named(image, keyword):
    dataset = pydicom.dcmread(image)
    del dataset[keyword]
    dataset.save_as(image)
    (error,) = list_files([image]).unreadable
    assert f"an image without {keyword} (00" in error.problem
    assert error.hint
    with pytest.raises(CadError, match=rf"an image without {keyword} \(00"):
        frames_of(dataset, image)


def philips(group: Dataset, slope: object, *others: object) -> None:
    """Add Philips' copies of the classic header, with a scale slope each."""
    copies = []
    for number in (slope, *others):
        copy = Dataset()
        copy.private_block(0x2005, "Philips MR Imaging DD 001", create=True).add_new(
            0x0E, "FL", number
        )
        copies.append(copy)
    group.private_block(0x2005, "Philips MR Imaging DD 005", create=True).add_new(
        0x0F, "SQ", copies
    )


@pytest.mark.parametrize(
    ("shared", "frame", "words"),
    [
        ([0.5], [0.25], "stands twice in the header of one frame, as 0.5 and as 0.25"),
        ([], [0.5, 0.25], "stands twice in the header of one frame, as 0.25 and as 0.5"),
        ([], [[0.5, 0.25]], r"is [0.5, 0.25]; it must be one number"),
        ([], [float("nan")], "is nan; it must be one number"),
        ([0.5], [0.5], ""),
        ([], [[0.5, 0.5]], ""),
    ],
)
def test_two_scale_slopes_of_one_frame_are_refused(enhanced, shared, frame, words):
    path = enhanced(frame=[2])
    dataset = pydicom.dcmread(path)
    if shared:
        philips(dataset.SharedFunctionalGroupsSequence[0], *shared)
    for group in dataset.PerFrameFunctionalGroupsSequence:
        philips(group, *frame)
    dataset.save_as(path)
    if not words:
        assert frames(path)[0].precise == Scale(2.0, 0.0)
        return
    assert f"Philips' scale slope (2005,100E) {words}" in unusable(path)


# --- UIDs ----------------------------------------------------------------------------------------


@ODD_UID
@pytest.mark.parametrize(
    "keyword",
    [
        "StudyInstanceUID",
        "SeriesInstanceUID",
        "SOPInstanceUID",
        "FrameOfReferenceUID",
    ],
)
@pytest.mark.parametrize(
    ("text", "words"), [("1.2.SMITH^JOHN", "the character 'S'"), ("1." + "2" * 63, "65 characters")]
)
def test_a_uid_that_is_none_is_refused_and_not_shown(image, keyword, text, words):
    with pydicom.config.disable_value_validation():
        edit(image, **{keyword: text})
    problem = unusable(image)
    assert f"{keyword} (0" in problem
    assert f"has {words}; a UID has digits and dots only" in problem
    assert "SMITH" not in problem


@ODD_UID
def test_a_uid_that_is_none_is_refused_after_a_sound_file(tmp_path):
    """The second file is read in part, because its header is like that of the first."""
    paths = write_series(tmp_path, np.stack([PLANE, PLANE]))
    with pydicom.config.disable_value_validation():
        edit(paths[1], SOPInstanceUID="1.2.SMITH^JOHN")
    listing = list_files(paths)
    ((error,),) = (series.values() for series in listing.unusable.values())
    assert "SOPInstanceUID (0008,0018) has the character 'S'" in error.problem


@ODD_UID
def test_real_uids_of_any_digits_are_taken(image):
    """Some makers write a 0 before a number, which the rule forbids and which hides no name."""
    with pydicom.config.disable_value_validation():
        edit(image, SeriesInstanceUID="1.2.040.00012")
    (frame,) = frames(image)
    assert frame.series_uid == "1.2.040.00012"
