"""An import of images whose headers contradict themselves: refused as a whole, and no name kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import highdicom
import pydicom
import pytest
from dicom_files import edit, uid
from import_cases import only_failure, write_patient

from cad.dicom.into.importer import import_source


@pytest.mark.parametrize("place", [0, -1])
def test_a_series_with_one_unusable_slice_is_not_cut_short(tmp_path, rules, place):
    """Without its first or last slice an image looks whole."""
    source = write_patient(tmp_path / "in", dce=False)
    edit(sorted((source / "t2").iterdir())[place], RescaleSlope="0", RescaleIntercept="0")
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "no series is the T2 image by the rules" in error.problem
    assert "series 1: RescaleSlope (0028,1053) is 0" in error.problem
    assert not (tmp_path / "out" / "sub-P001").exists()


@pytest.mark.filterwarnings("ignore:Invalid value for VR UI")
def test_a_slice_whose_study_has_no_uid_is_missed_in_its_series(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    with pydicom.config.disable_value_validation():
        edit(sorted((source / "t2").iterdir())[-1], StudyInstanceUID="1.2.SMITH^JOHN")
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    problems = [failure.problem for failure in summary.failures]
    assert any("StudyInstanceUID (0020,000D) has the character 'S'" in text for text in problems)
    assert any("no series is the T2 image by the rules" in text for text in problems)


def test_an_unusable_series_that_no_rule_names_costs_nothing(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    (localizer,) = (source / "loc").iterdir()
    edit(localizer, RescaleSlope="0", RescaleIntercept="0")
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    (note,) = (note for note in summary.notes if "left out" in note)
    assert "series 9: RescaleSlope (0028,1053) is 0" in note


@pytest.mark.filterwarnings("ignore:Invalid value for VR UI")
@pytest.mark.parametrize(
    "keyword", ["StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID"]
)
def test_a_name_in_the_place_of_a_uid_reaches_no_file(tmp_path, rules, keyword):
    source = write_patient(tmp_path / "in", dce=False)
    for path in source.rglob("*.dcm"):
        with pydicom.config.disable_value_validation():
            edit(path, **{keyword: f"1.2.{path.stem[:1]}.SMITH^JOHN"})
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    assert any(f"{keyword} (0" in failure.problem for failure in summary.failures)
    for path in (tmp_path / "out").rglob("*"):
        assert "SMITH" not in path.name
        if path.is_file():
            assert b"SMITH" not in path.read_bytes()


# Free text, codes and dates, all with a name where the header should have something else.
TEXTS = (
    "Manufacturer",
    "SequenceName",
    "SeriesDescription",
    "InPlanePhaseEncodingDirection",
    "RescaleType",
    "ScanningSequence",
    "StationName",
    "StudyDate",
    "StudyTime",
    "AcquisitionTime",
    "ContentTime",
)


@pytest.mark.filterwarnings("ignore:Invalid value for VR")
@pytest.mark.parametrize("keyword", TEXTS)
def test_a_name_in_a_text_a_code_or_a_date_reaches_no_file(tmp_path, rules, keyword):
    source = write_patient(tmp_path / "in", dce=False)
    text = "t2 SMITH^JOHN" if keyword == "SeriesDescription" else "SMITH^JOHN"
    for path in (source / "t2").iterdir():
        with pydicom.config.disable_value_validation():
            edit(path, **{keyword: text})
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    sidecar = json.loads((tmp_path / "out/sub-P001/anat/sub-P001_T2w.json").read_text())
    assert len(sidecar["SOPInstanceUIDs"]) == 6
    for path in (tmp_path / "out").rglob("*"):
        assert b"SMITH" not in (path.read_bytes() if path.is_file() else b"")


@pytest.mark.filterwarnings("ignore:.* VR (DS|IS)")
@pytest.mark.parametrize("keyword", ["FlipAngle", "EchoTime", "SeriesNumber", "InstanceNumber"])
def test_a_name_in_the_place_of_a_number_reaches_no_file(tmp_path, rules, keyword):
    source = write_patient(tmp_path / "in", dce=False)
    for path in (source / "t2").iterdir():
        content = path.read_bytes()
        tag = pydicom.datadict.tag_for_keyword(keyword)
        place = content.index(tag.to_bytes(4, "little")[2:] + tag.to_bytes(4, "little")[:2])
        length = int.from_bytes(content[place + 6 : place + 8], "little")
        path.write_bytes(content[: place + 6] + b"\x0a\0SMITH^JOHN" + content[place + 8 + length :])
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    assert summary.failures
    for path in (tmp_path / "out").rglob("*"):
        assert b"SMITH" not in (path.read_bytes() if path.is_file() else b"")


@pytest.mark.filterwarnings("ignore:The value length")
def test_the_number_of_a_person_is_no_number_of_a_series(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    for path in (source / "t2").iterdir():
        with pydicom.config.disable_value_validation():
            edit(path, SeriesNumber="7560123456789")
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    problem = "SeriesNumber (0020,0011) has 13 digits; an integer of DICOM has at most 32 bits"
    assert any(problem in failure.problem for failure in summary.failures)


@pytest.mark.filterwarnings("ignore:The string 'Gravenstein")
def test_a_study_is_not_filed_under_a_name_inside_its_frames(tmp_path, rules):
    """Only the top of a header says whose image it is, also in an enhanced object."""
    source = write_patient(tmp_path / "in", dce=False)
    paths = sorted((source / "t2").iterdir())
    classic = [pydicom.dcmread(path) for path in paths]
    enhanced = highdicom.legacy.LegacyConvertedEnhancedMRImage(
        classic,
        series_instance_uid=uid("enhanced"),
        series_number=1,
        sop_instance_uid=uid("object"),
        instance_number=1,
    )
    enhanced.SeriesDescription = classic[0].SeriesDescription
    for path in paths:
        path.unlink()
    enhanced.save_as(paths[0])
    assert import_source(source, tmp_path / "sound", rules).added == ["sub-P001"]
    item = pydicom.Dataset()
    item.PatientID = "SMITH^JOHN"
    (shared,) = enhanced.SharedFunctionalGroupsSequence
    shared.UnassignedSharedConvertedAttributesSequence = [item]
    enhanced.save_as(paths[0])
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    problem = "PatientID (0010,0020) has one value at the top of the header, and another in"
    assert any(problem in failure.problem for failure in summary.failures)
    for path in (tmp_path / "out").rglob("*"):
        assert b"SMITH" not in (path.read_bytes() if path.is_file() else b"")


@pytest.mark.filterwarnings("ignore:Invalid value for VR")
@pytest.mark.parametrize(
    ("keyword", "usual", "other"),
    [
        ("PatientName", "Smith^John", "Jones^Ann"),
        ("PatientBirthDate", "19550317", "19610423"),
        ("IssuerOfPatientID", "North", "South"),
    ],
)
def test_two_people_under_one_id_are_noted(tmp_path, rules, keyword, usual, other):
    source = write_patient(tmp_path / "in", dce=False)
    for path in source.rglob("*.dcm"):
        edit(path, **{keyword: usual})
    # The same text in other letters, and no text, are no other person.
    edit(sorted((source / "t2").iterdir())[0], **{keyword: usual.upper()})
    edit(sorted((source / "t2").iterdir())[1], **{keyword: ""})
    summary = import_source(source, tmp_path / "alike", rules)
    assert summary.failures == []
    assert not any("under one PatientID" in note for note in summary.notes)
    edit(sorted((source / "adc").iterdir())[-1], **{keyword: other})
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P001"]
    (note,) = (note for note in summary.notes if "under one PatientID" in note)
    assert f"files of the study state 2 values of {keyword} (0010,00" in note
    for text in (usual, other):
        assert text not in note


@pytest.mark.parametrize("keyword", ["FlipAngle", "EchoTime", "RepetitionTime"])
def test_a_date_of_birth_in_the_place_of_a_number_reaches_no_file(tmp_path, rules, keyword):
    source = write_patient(tmp_path / "in", dce=False)
    for path in (source / "t2").iterdir():
        edit(path, **{keyword: "19550317"})
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    assert any(f"{keyword} (0018," in failure.problem for failure in summary.failures)
    assert not any("1955" in str(failure) for failure in summary.failures)
    for path in (tmp_path / "out").rglob("*"):
        assert b"19550317" not in (path.read_bytes() if path.is_file() else b"")


@pytest.mark.parametrize("archive", [False, True])
def test_one_fault_of_many_files_is_one_failure(tmp_path, rules, archive):
    """The first file is named, and how many there are; another fault is a failure of its own."""
    source = write_patient(tmp_path / "in", dce=False)
    paths = sorted((source / "t2").iterdir())
    for path in paths[:5]:
        dataset = pydicom.dcmread(path)
        del dataset.Rows
        dataset.save_as(path)
    dataset = pydicom.dcmread(paths[5])
    del dataset.Columns
    dataset.save_as(paths[5])
    if archive:
        source = Path(shutil.make_archive(str(tmp_path / "archive"), "zip", source))
    summary = import_source(source, tmp_path / "out", rules)
    of_files = [failure for failure in summary.failures if "without" in failure.problem]
    assert len(of_files) == 2
    first, second = of_files
    assert "without Rows (0028,0010); so are 5 files of the folder" in first.problem
    assert first.file.endswith("1-001.dcm")
    assert "without Columns (0028,0011)" in second.problem
    assert "files of the folder" not in second.problem
    assert second.file.endswith("1-006.dcm")
    if archive:
        assert "zip-" not in str(first)


def test_a_patient_id_of_two_values_is_refused_as_it_is_written(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    for path in source.rglob("*.dcm"):
        edit(path, PatientID=["P-001", "P-002"])
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    problems = [failure.problem for failure in summary.failures]
    assert len(problems) == len(list(source.iterdir()))
    for problem in problems:
        assert "PatientID (0010,0020) has 2 values, P-001\\P-002; it has one" in problem
    assert not any("[" in problem for problem in problems)


def test_a_patient_id_of_two_values_in_one_image_costs_its_series(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    edit(sorted((source / "t2").iterdir())[0], PatientID=["P-001", "P-002"])
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "no series is the T2 image by the rules" in error.problem
    assert "series 1: PatientID (0010,0020) has 2 values" in error.problem


def test_a_patient_id_behind_the_pixels_is_said_to_stand_there(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    for path in source.rglob("*.dcm"):
        content = path.read_bytes()
        start = content.index(b"\x10\0\x20\0LO")
        end = start + 8 + int.from_bytes(content[start + 6 : start + 8], "little")
        path.write_bytes(content[:start] + content[end:] + content[start:end])
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == []
    assert len(summary.failures) == len(list(source.iterdir()))
    for failure in summary.failures:
        assert "PatientID (0010,0020) stands behind PixelData (7FE0,0010)" in failure.problem


@pytest.mark.parametrize(
    ("date", "kept"), [("19990229", None), ("550317", None), ("20240229", "2024-02-29")]
)
@pytest.mark.filterwarnings("ignore:Invalid value for VR")
def test_a_study_date_that_is_none_is_not_kept(tmp_path, rules, date, kept):
    source = write_patient(tmp_path / "in", dce=False)
    for path in source.rglob("*.dcm"):
        with pydicom.config.disable_value_validation():
            edit(path, StudyDate=date)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P001"]
    sidecar = json.loads((tmp_path / "out/sub-P001/anat/sub-P001_T2w.json").read_text())
    assert sidecar.get("StudyDate") == kept


@pytest.mark.filterwarnings("ignore:Invalid value for VR")
def test_two_studies_whose_order_is_not_known_are_noted(tmp_path, rules):
    for study, date in (("one", "101112"), ("two", "20200102")):
        source = write_patient(tmp_path / "in" / study, study=study, dce=False, seed=len(study))
        for path in source.rglob("*.dcm"):
            with pydicom.config.disable_value_validation():
                edit(path, StudyDate=date)
    summary = import_source(tmp_path / "in", tmp_path / "out", rules)
    assert len(summary.added) == 2
    (note,) = (note for note in summary.notes if "in which order" in note)
    assert note.startswith("sub-P001_ses-01: StudyDate (0008,0020) is missing or no date")
