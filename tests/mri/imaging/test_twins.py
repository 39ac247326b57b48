"""A slice whose header is like an earlier one's is read in part, and gives the same frame."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest

from cad.base.errors import CadError
from cad.mri.imaging.elements import excerpt
from cad.mri.imaging.frame_headers import _DIFFERING_TAGS, TAGS, _value, frames_of
from cad.mri.imaging.frames import STATE, Frame, read_header
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.pixels import PixelReader


def together(folder: Path) -> list[Frame]:
    listing = list_files(sorted(p for p in folder.rglob("*") if p.is_file()))
    return [frame for study in listing.studies.values() for frame in study]


def listed(path: Path) -> Frame:
    (frame,) = next(iter(list_files([path]).studies.values()))
    return frame


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
            if frame.lying:  # of the others pydicom gives all
                np.testing.assert_array_equal(reader.plane(frame), PixelReader().plane(frame))
    assert reader._form_of_layout


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
    return listed(target)


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
    assert len(reader._form_of_layout) == 2


def test_a_file_that_is_cut_off_is_refused_after_a_whole_one(repository, tmp_path):
    source = sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0]
    whole, cut = tmp_path / "a.dcm", tmp_path / "b.dcm"
    whole.write_bytes(source.read_bytes())
    cut.write_bytes(source.read_bytes()[:-2])
    reader = PixelReader()
    frame = listed(whole)
    assert frame.lying is not None
    reader.plane(frame)
    shorter = frame.lying._replace(state=STATE(cut.stat()))
    for lying in (None, frame.lying, shorter):
        with pytest.raises(CadError, match=r"b\.dcm"):
            reader.plane(replace(frame, path=cut, lying=lying))


def test_a_file_that_changes_after_it_was_listed_gives_its_new_pixels(repository, tmp_path):
    path = tmp_path / "source.dcm"
    path.write_bytes(sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0].read_bytes())
    reader, frames = PixelReader(), [grey(path, number) for number in (1, 2)]
    for frame in frames:
        reader.plane(frame)
    image = pydicom.dcmread(frames[1].path)
    image.InstanceCreationDate, image.PixelData = "20200101", image.PixelData[::-1]
    before = frames[1].path.stat()
    image.save_as(frames[1].path)
    os.utime(frames[1].path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for frame in frames:
        expected = pydicom.dcmread(frame.path).pixel_array
        np.testing.assert_array_equal(reader.plane(frame), expected)


def test_a_file_that_has_gone_is_named(repository, tmp_path):
    path = tmp_path / "folder" / "image.dcm"
    path.parent.mkdir()
    path.write_bytes(sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0].read_bytes())
    frame = listed(path)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(CadError, match=r"image\.dcm"):
        PixelReader().plane(frame)


def series(repository: Path, folder: Path, names: str, **tags: Any) -> None:
    """Write an image under several names, each with a SOPInstanceUID of its own."""
    image = pydicom.dcmread(sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0])
    image.RescaleSlope = "7"
    with pydicom.config.disable_value_validation():
        for keyword, value in tags.items():
            setattr(image, keyword, value)
        for number, name in enumerate(names):
            image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = f"1.2.{number}"
            image.save_as(folder / f"{name}.dcm")


def test_a_damaged_copy_takes_no_place_of_a_sound_one(repository, tmp_path):
    series(repository, tmp_path, "acd")
    content = (tmp_path / "c.dcm").read_bytes()
    assert content.count(b"DS\2\x007 ") == 1  # a number of no twin
    (tmp_path / "b.dcm").write_bytes(content.replace(b"DS\2\x007 ", b"DS\2\0a,"))
    listing = list_files(sorted(tmp_path.iterdir()))
    (frames,) = listing.studies.values()
    assert [frame.path.stem for frame in frames] == ["a", "c", "d"]
    assert [error.file for error in listing.unreadable] == [str(tmp_path / "b.dcm")]


def test_a_vr_that_is_none_is_told_after_a_sound_file(repository, tmp_path):
    series(repository, tmp_path, "ab")
    content = (tmp_path / "b.dcm").read_bytes()
    (tmp_path / "b.dcm").write_bytes(content.replace(b" \0\x13\0IS", b" \0\x13\0Is"))
    listing = list_files(sorted(tmp_path.iterdir()))
    ((problem,),) = (errors.values() for errors in listing.unusable.values())
    assert "Unknown Value Representation 'Is'" in problem.problem


@pytest.mark.parametrize(
    "tags",
    [{"PhotometricInterpretation": f"{'MONOCHROME2':500}"}, {"ContentTime": f"{'1011.5':500}"}],
)
def test_long_elements_are_not_kept(tags, repository, tmp_path):
    series(repository, tmp_path, "abc", **tags)
    _value.cache_clear()
    frames = together(tmp_path)
    assert frames == alone({frame.path for frame in frames})
    assert not _value.cache_info().currsize or not any(frame.lying for frame in frames)


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_told_as_of_a_file_alone(seed, repository, tmp_path):
    """Half of it in what differs between slices, which is read without the rest."""
    chance, first, copy = random.Random(seed), tmp_path / "first.dcm", tmp_path / "copy.dcm"
    image = pydicom.dcmread(sorted((repository / "sample_data/dicom").rglob("*.dcm"))[0])
    image.AcquisitionNumber, image.TriggerTime, image.ContentTime = 7, "12.5", "101112.25"
    image.save_as(copy)
    whole = copy.read_bytes()
    image.SOPInstanceUID = "1.2.3"
    image.save_as(first)
    part = excerpt(whole, _DIFFERING_TAGS)
    places = [whole.index(e) + n for e in part.elements.values() for n in range(len(e))]
    assert len(part.elements) > 5
    images = 0
    for _ in range(100):
        content = bytearray(whole)
        at = chance.choice((chance.choice(places), chance.randrange(140, places[-1] + 400)))
        content[at] = chance.choice((*b" .-\\09s\0\377", chance.randrange(256)))
        copy.write_bytes(content)
        said = [list_files(paths) for paths in ([copy], [first, copy])]
        single, both = (
            {
                "frames": [f for s in one.studies.values() for f in s if f.path == copy],
                "unreadable": [str(error) for error in one.unreadable],
                "unusable": [str(error) for s in one.unusable.values() for error in s.values()],
            }
            for one in said
        )
        images += len(both["frames"])
        assert both == single, content[at - 8 : at + 8]
    assert images > 50
