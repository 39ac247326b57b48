"""A slice whose header is like an earlier one's is read in part, and gives the same frame."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest

from cad.errors import CadError
from cad.imaging.frame_headers import TAGS, frames_of
from cad.imaging.frames import Frame, read_header
from cad.imaging.listing import list_files
from cad.imaging.pixels import PixelReader


def together(folder: Path) -> list[Frame]:
    listing = list_files(sorted(p for p in folder.rglob("*") if p.is_file()))
    return [frame for study in listing.studies.values() for frame in study]


def alone(paths: set[Path]) -> list[Frame]:
    return [frame for path in sorted(paths) for frame in frames_of(read_header(path, TAGS), path)]


@pytest.mark.parametrize(
    "place", ["sample", "zoo", "zoo-more", pytest.param("prostatex", marks=pytest.mark.slow)]
)
def test_a_folder_gives_the_frames_that_its_files_give_alone(place, repository, request):
    folder = repository / "sample_data/dicom"
    if place != "sample":
        folder = request.getfixturevalue("shared_data") / place
    frames = sorted(together(folder), key=lambda frame: (frame.path, frame.index))
    assert len(frames) > 20
    assert frames == alone({frame.path for frame in frames})
    reader = PixelReader()  # of those that pydicom can decode: the zoo has others, on purpose
    for frame in frames:
        with suppress(CadError):
            np.testing.assert_array_equal(reader.plane(frame), PixelReader().plane(frame))
    assert reader._alike


@pytest.mark.parametrize(
    ("keyword", "value", "field"),
    [
        ("FlipAngle", "77", "flip_angle"),
        ("PatientID", "another", "patient_id"),
        ("ImageOrientationPatient", [1, 0, 0, 0, 0, 1], "orientation"),
        ("RescaleSlope", "3", "real"),
        ("Rows", 4, "rows"),
        ("SpecificCharacterSet", "ISO_IR 144", "patient_id"),
        ("InstanceNumber", "99", "instance_number"),
        ("AcquisitionTime", None, "acquisition_time"),
    ],
)
def test_whatever_differs_is_seen(keyword, value, field, repository, tmp_path):
    source = sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0]
    for number, changed in enumerate((False, True, False)):
        image = pydicom.dcmread(source)
        image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = f"1.2.{number}"
        image.PatientID, image.SpecificCharacterSet = "Jos\xe9", "ISO_IR 100"
        if changed and keyword == "SpecificCharacterSet":
            image["PatientID"].value  # noqa: B018 - decoded before the character set changes
        image.save_as(tmp_path / f"{number}.dcm")
        if changed and keyword == "SpecificCharacterSet":
            content = (tmp_path / "1.dcm").read_bytes()
            (tmp_path / "1.dcm").write_bytes(content.replace(b"ISO_IR 100", b"ISO_IR 144"))
        elif changed:
            setattr(image, keyword, value)
            image.save_as(tmp_path / f"{number}.dcm")
    first, other, last = together(tmp_path)
    assert getattr(first, field) == getattr(last, field) != getattr(other, field)
    assert [first, other, last] == alone({frame.path for frame in (first, other, last)})


def grey(path: Path, number: int, **tags: Any) -> Frame:
    """Write an uncompressed image of 16 bits whose numbers use all of them; return its frame."""
    image = pydicom.dcmread(path)
    image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = f"1.2.{number}"
    pixels = np.random.default_rng(number).integers(0, 2**16, (image.Rows, image.Columns), "u2")
    image.PixelData = pixels.tobytes()
    for keyword, value in tags.items():
        setattr(image, keyword, value)
    target = path.parent / f"{number}.dcm"
    image.save_as(target)
    (frame,) = frames_of(read_header(target, TAGS), target)
    return frame


@pytest.mark.parametrize(
    "tags",
    [
        {"PixelRepresentation": 1},
        {"BitsStored": 12, "HighBit": 11},
        {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7, "PixelData": b"\1\2" * 2048},
    ],
)
@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.1"])
def test_pixels_are_those_that_pydicom_reads(tags, syntax, repository, tmp_path):
    """Each of a series by its own header, whatever header came before."""
    source = pydicom.dcmread(sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0])
    source.file_meta.TransferSyntaxUID = syntax
    source.Rows = source.Columns = 64
    source.BitsAllocated = source.BitsStored = 16
    source.HighBit, source.PixelRepresentation = 15, 0
    source.PixelData = bytes(2 * 64 * 64)
    path = tmp_path / "source.dcm"
    source.save_as(path, implicit_vr=syntax.endswith(".2"), little_endian=True)
    reader = PixelReader()
    for number in range(4):
        frame = grey(path, number, **(tags if number in (1, 2) else {}))
        given = reader.plane(frame)
        expected = pydicom.dcmread(frame.path).pixel_array
        np.testing.assert_array_equal(given, expected)
        assert given.dtype == expected.dtype
    assert len(reader._alike) == 2


def test_a_file_that_is_cut_off_is_refused_after_a_whole_one(repository, tmp_path):
    source = sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0]
    whole, cut = tmp_path / "a.dcm", tmp_path / "b.dcm"
    whole.write_bytes(source.read_bytes())
    cut.write_bytes(source.read_bytes()[:-2])
    reader = PixelReader()
    (frame,) = frames_of(read_header(whole, TAGS), whole)
    reader.plane(frame)
    with pytest.raises(CadError, match=r"b\.dcm"):
        reader.plane(replace(frame, path=cut))
