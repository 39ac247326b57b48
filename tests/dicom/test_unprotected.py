"""Show the gaps in the protection by an import; SECURITY.md names these tests beside each gap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
import SimpleITK as sitk
from dicom_files import edit
from import_cases import RULES, write_patient

from cad.dicom.into.importer import import_source
from cad.folders.cohort import read_cohort
from cad.mri.imaging.nifti import read_image, read_volume


def sidecar(cohort: Path, name: str) -> dict[str, Any]:
    (path,) = cohort.rglob(f"*_{name}.json")
    return json.loads(path.read_text())


def test_a_number_that_may_be_a_birth_date_reaches_the_sidecar(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    for path in (source / "t2").iterdir():
        edit(path, SeriesNumber="19550317", RepetitionTime="19550")
    for path in (source / "adc").iterdir():
        edit(path, EchoTime="5503")
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P001"], summary.failures
    content = sidecar(tmp_path / "out", "T2w")
    assert content["SeriesNumber"] == 19550317
    # In seconds, as BIDS has it.
    assert content["RepetitionTime"] == pytest.approx(19.55)
    assert sidecar(tmp_path / "out", "ADC")["EchoTime"] == pytest.approx(5.503)


def test_a_date_that_is_a_time_by_chance_counts_and_is_not_kept(tmp_path, rules):
    """The 19th of March 1955 as a time is five to seven: the cohort gets differences of times."""
    source = write_patient(tmp_path / "in", dce=False)
    for path in source.rglob("*.dcm"):
        edit(path, AcquisitionTime="190355", StudyTime="190355")
    assert import_source(source, tmp_path / "out", rules).added == ["sub-P001"]
    for path in (tmp_path / "out").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for text in (b"190355", b"19:03:55", b"68635"):
            assert text not in content


def test_two_people_of_whom_nothing_is_stated_are_not_noted(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    for path in source.rglob("*.dcm"):
        edit(path, PatientName="", PatientBirthDate="", IssuerOfPatientID="")
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P001"]
    assert not any("under one PatientID" in note for note in summary.notes)


def test_a_name_that_is_drawn_into_the_pixels_stays(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    paths = sorted((source / "t2").iterdir())
    letter = np.array([[1, 0, 1], [1, 1, 1], [1, 0, 1]], bool)  # an H
    for path in paths:
        dataset = pydicom.dcmread(path)
        drawn = dataset.pixel_array.copy()
        drawn[2:5, 3:6][letter] = 4095
        dataset.PixelData = drawn.tobytes()
        dataset.save_as(path)
    import_source(source, tmp_path / "out", rules)
    (image,) = (tmp_path / "out").rglob("*_T2w.nii.gz")
    array = read_volume(image).array
    assert (array[:, 2:5, 3:6][:, letter] == 4095).all()


def test_the_names_that_the_rules_keep_reach_the_cohort(tmp_path):
    source = write_patient(tmp_path / "in", patient="SMITH-JOHN", dce=False)
    rules = tmp_path / "rules.yaml"
    text = RULES.replace("name: test", "name: Ward of Dr Grey").replace("site: A", "site: Mercy")
    rules.write_text(text)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    cohort = read_cohort(tmp_path / "out")
    assert list(cohort.participants["participant_id"]) == ["sub-SMITHJOHN"]
    assert list(cohort.participants["site"]) == ["Mercy"]
    assert "Ward of Dr Grey" in (tmp_path / "out" / "dataset_description.json").read_text()


def test_messages_name_the_sources_files_to_who_imports(tmp_path, rules):
    source = write_patient(tmp_path / "Gravenstein", dce=False)
    path = sorted((source / "t2").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-100])
    summary = import_source(source, tmp_path / "out", rules)
    assert any("Gravenstein" in str(failure) for failure in summary.failures)
    for entry in (tmp_path / "out").rglob("*"):
        assert "Gravenstein" not in entry.name
        assert b"Gravenstein" not in (entry.read_bytes() if entry.is_file() else b"")


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha", ".nrrd"])
def test_one_wrong_place_is_believed(tmp_path: Path, suffix: str):
    """A header that contradicts neither itself nor its format; the patient lay elsewhere."""
    image = sitk.GetImageFromArray(np.ones((3, 4, 5), np.uint8))
    image.SetOrigin((100.0, -50.0, 7.0))
    path = tmp_path / f"image{suffix}"
    sitk.WriteImage(image, str(path))
    np.testing.assert_allclose(read_image(path).origin, (100.0, -50.0, 7.0))
