"""A slice whose header is like an earlier one's is read in part, and gives the same frame."""

from __future__ import annotations

from pathlib import Path

import pydicom
import pytest

from cad.imaging.frame_headers import TAGS, frames_of
from cad.imaging.frames import Frame, read_header
from cad.imaging.listing import list_files


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
