"""The map of probability as a Parametric Map: values, place and identity, as others read them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import highdicom
import numpy as np
import pandas as pd
import pydicom
import pytest
from dicom_cases import RULES, write_run
from dicom_files import IDENTIFYING, needs, validate, write_series

from cad.dicom.into.importer import import_source
from cad.dicom.out import parametric_map as map_out
from cad.dicom.out.parametric_map import OUTSIDE, write_maps
from cad.dicom.out.source_images import SourceImages, _enhanced, source_images
from cad.folders.cohort import StudyRef, read_cohort
from cad.folders.run_folder import RunFolder
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.mri.imaging.volume import Volume
from cad.run.workflows.delivery import deliver

SHAPE = (5, 30, 26)
PLACE = {
    "spacing": (0.8, 1.2, 3.0),
    "origin": (-31.25, 12.5, 40.0),
    "direction": np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1.0]]),
}


@pytest.fixture
def probability() -> np.ndarray:
    """A gland of its own probability in every voxel, nothing around it."""
    array = np.full(SHAPE, np.nan, np.float32)
    array[1:4, 5:15, 4:20] = np.random.default_rng(1).random((3, 10, 16))
    array[2, 7, 7], array[2, 7, 8] = 0, 1
    return array


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    array = np.random.default_rng(0).integers(1, 900, SHAPE).astype(np.uint16)
    write_series(tmp_path / "in/t2", array, patient="MRN-7", **PLACE)
    labels = np.zeros(SHAPE, np.uint8)
    labels[1, 5:11, 3:8] = 1
    write_volume(tmp_path / "in/rois.nii.gz", Volume(labels, **PLACE))
    (tmp_path / "rules.yaml").write_text(RULES.replace("labels: id", "labels: pseudonym"))
    assert import_source(tmp_path / "in", tmp_path / "cohort", tmp_path / "rules.yaml").added
    return tmp_path / "cohort"


@pytest.fixture
def study(cohort: Path) -> StudyRef:
    return read_cohort(cohort).studies()[0]


@pytest.fixture
def run(tmp_path: Path, study: StudyRef, probability: np.ndarray) -> Path:
    folder = write_run(tmp_path / "run", study.participant_id, {"1": 0.4})
    path = RunFolder(folder).map_image(study.study_id)
    path.parent.mkdir()
    write_volume(path, Volume(probability, **PLACE))
    return folder


def test_values_and_place_are_those_of_the_map(run, cohort, tmp_path, probability):
    (path,), failures = write_maps(run, cohort, tmp_path / "dicom")
    assert failures == []
    image = highdicom.imread(path)
    assert str(image.SOPClassUID.name) == "Parametric Map Storage"
    found = image.get_volume(apply_real_world_transform=False)
    grid = Volume(probability, **PLACE)
    # highdicom counts slices where they begin in its own order; a voxel's place decides.
    index = np.argwhere(np.isfinite(probability))
    place = grid.index_to_patient(index[:, ::-1])
    theirs = np.rint(found.map_reference_to_indices(place)).astype(int)
    np.testing.assert_allclose(found.map_indices_to_reference(theirs), place, atol=1e-4)
    assert (found.array[tuple(theirs.T)] == probability[tuple(index.T)]).all()
    assert (found.array == OUTSIDE).sum() == np.isnan(probability).sum()
    mapping = image.SharedFunctionalGroupsSequence[0].RealWorldValueMappingSequence[0]
    assert (mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept) == (100, 0)
    assert mapping.MeasurementUnitsCodeSequence[0].CodeValue == "%"
    assert image.FloatPixelPaddingValue == OUTSIDE
    anatomy = image.SharedFunctionalGroupsSequence[0].FrameAnatomySequence[0]
    assert anatomy.AnatomicRegionSequence[0].CodeMeaning == "Prostate"
    assert anatomy.FrameLaterality == "U"
    depths = [
        float(group.PlanePositionSequence[0].ImagePositionPatient[2])
        for group in image.PerFrameFunctionalGroupsSequence
    ]
    assert depths == [40, 43, 46, 49, 52]  # readers that do not look at places take the order
    source = pydicom.dcmread(tmp_path / "in/t2/1-001.dcm")
    assert image.FrameOfReferenceUID == source.FrameOfReferenceUID
    assert image.StudyInstanceUID == source.StudyInstanceUID
    needs("dciodvfy")
    validate(path)


@pytest.mark.slow
def test_the_converter_of_3d_slicers_library_reads_the_map(run, cohort, tmp_path, probability):
    """dcmqi ends with a segmentation fault where a map says nothing of the frames' anatomy."""
    if not shutil.which("paramap2itkimage"):
        pytest.skip("DCMQI ABSENT: uv run --all-extras --with dcmqi==1.5.7 pytest -m slow …")
    (path,) = write_maps(run, cohort, tmp_path / "dicom")[0]
    reader = ["paramap2itkimage", "--outputType", "nii", "--outputDirectory", tmp_path]
    subprocess.run([*reader, "--inputDICOM", path], check=True, capture_output=True)
    found, grid = read_volume(tmp_path / "pmap.nii.gz"), Volume(probability, **PLACE)
    index = np.argwhere(np.isfinite(probability))
    place = grid.index_to_patient(index[:, ::-1])
    theirs = np.rint(found.patient_to_index(place)).astype(int)[:, ::-1]
    np.testing.assert_allclose(found.index_to_patient(theirs[:, ::-1]), place, atol=1e-3)
    assert (found.array[tuple(theirs.T)] == probability[tuple(index.T)]).all()
    assert (found.array == OUTSIDE).sum() == np.isnan(probability).sum()
    said = json.loads((tmp_path / "meta.json").read_text())
    assert said["QuantityValueCode"]["CodeMeaning"] == "Probability of cancer"
    assert (said["MeasurementUnitsCode"]["CodeValue"], said["RealWorldValueSlope"]) == ("%", "100")


def test_nobody_is_named_and_the_same_map_is_the_same_object(run, cohort, tmp_path, study):
    first, again = (write_maps(run, cohort, tmp_path / n)[0][0] for n in ("a", "b"))
    text = first.read_bytes().decode("latin-1")
    for value in [*IDENTIFYING.values(), "MRN-7", "20240307"]:
        assert value not in text
    image = pydicom.dcmread(first)
    assert (image.PatientID, image.PatientIdentityRemoved) == (study.participant_id, "YES")
    assert image.SOPInstanceUID == pydicom.dcmread(again).SOPInstanceUID
    path = RunFolder(run).map_image(study.study_id)
    write_volume(path, Volume(np.full(SHAPE, 0.25, np.float32), **PLACE))
    other = write_maps(run, cohort, tmp_path / "c")[0][0]
    assert pydicom.dcmread(other).SOPInstanceUID != image.SOPInstanceUID


def test_the_map_names_the_model_that_made_it(run, cohort, tmp_path):
    assert pydicom.dcmread(write_maps(run, cohort, tmp_path / "a")[0][0]).SoftwareVersions == (
        "phantom-psvm 0.1.0"
    )


def test_frames_of_an_enhanced_object(run, cohort, tmp_path, probability, monkeypatch):
    """Every frame of the map lies where the frame of the source lies that it names."""
    planes = (3, 1, 0, 4, 2)

    def enhanced(folder: Path, name: str, participant: str) -> SourceImages:
        made = source_images(folder, name, participant)
        entries = {"StudyInstanceUID": "1.2", "SeriesInstanceUID": "1.2.3"}
        entries |= {"FrameOfReferenceUID": "1.2.4", "SOPClassUID": "1.2.840.10008.5.1.4.1.1.4.1"}
        head = _enhanced(made.grid, planes, "1.2.5", entries, made.patient_id)
        return SourceImages(made.grid, [head], made.patient_id, planes)

    monkeypatch.setattr(map_out, "source_images", enhanced)
    image = pydicom.dcmread(write_maps(run, cohort, tmp_path / "dicom")[0][0])
    stored = np.asarray(image.pixel_array)
    for frame, group in zip(stored, image.PerFrameFunctionalGroupsSequence, strict=True):
        (source,) = group.DerivationImageSequence[0].SourceImageSequence
        z = planes[int(source.ReferencedFrameNumber) - 1]
        assert group.PlanePositionSequence[0].ImagePositionPatient[2] == 40 + 3 * z
        np.testing.assert_array_equal(frame, np.nan_to_num(probability[z], nan=OUTSIDE))


def test_a_map_of_other_images_is_refused(run, cohort, tmp_path, study):
    place = PLACE | {"origin": (-31.25, 12.5, 41.0)}
    write_volume(RunFolder(run).map_image(study.study_id), Volume(np.zeros(SHAPE, "f4"), **place))
    (failure,) = write_maps(run, cohort, tmp_path / "dicom")[1]
    assert failure.patient == study.participant_id
    assert failure.problem == "the probability map is not on the grid of the T2 images"
    assert not (tmp_path / "dicom").exists()


def test_maps_are_written_where_there_are_any(run, cohort, study):
    lines, _ = deliver(run, cohort, None, "ANY")
    assert lines == [f"wrote 3 DICOM objects to {run / 'dicom'}"]
    RunFolder(run).map_image(study.study_id).unlink()
    assert deliver(run, cohort, None, "ANY")[0][0].startswith("wrote 2 DICOM objects")


def test_a_map_is_a_result_and_no_image_of_the_study(run, cohort, tmp_path):
    """A rule that takes every derived image does not take it."""
    (path,) = write_maps(run, cohort, tmp_path / "dicom")[0]
    image = pydicom.dcmread(path)
    image.PatientID = "MRN-7"  # as an archive exports what it has stored
    image.save_as(tmp_path / "in/map.dcm")
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("image_type: [ADC]", "image_type: [DERIVED]"))
    assert import_source(tmp_path / "in", tmp_path / "again", rules).failures == []
    (again,) = read_cohort(tmp_path / "again").studies()
    assert [p.name for p in again.folder.rglob("*.nii.gz") if "ADC" in p.name] == []
    assert len(pd.read_csv(tmp_path / "again/participants.tsv", sep="\t")) == 1
