"""SEG and RTSTRUCT objects that contradict themselves or their images: refused, or said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import edit, uid, write_seg, write_series, write_structures
from import_cases import only_failure, regions, table, voxels, write_patient
from pydicom.dataset import Dataset

from cad.base.errors import CadError
from cad.dicom.into.importer import ImportSummary, import_source
from cad.mri.imaging.nifti import read_volume


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_patient(tmp_path / "in", dce=False)


def imported(source: Path, rules: Path) -> ImportSummary:
    return import_source(source, source.parent / "out", rules)


def refused(source: Path, rules: Path) -> CadError:
    error = only_failure(imported(source, rules))
    assert error.hint
    assert not (source.parent / "out" / "sub-P001").exists()
    return error


def square(z: float, left: float = 1.5) -> np.ndarray:
    right = left + 4
    corners = [[left, 1.5, z], [right, 1.5, z], [right, 5.5, z], [left, 5.5, z]]
    return np.array(corners)


def slices(source: Path, name: str = "t2") -> list[Path]:
    return sorted((source / name).iterdir())


def structures(
    source: Path, change: Callable[[Dataset], None] = lambda dataset: None, image: str = "t2"
) -> Path:
    """A structure set with one region of two slices and a structure that no rule asks for."""
    path = source / "rs.dcm"
    contours = {"ROI 1": [square(6.0), square(9.0)], "gland": [square(6.0, 9.5)]}
    write_structures(path, slices(source, image)[0], contours)
    dataset = pydicom.dcmread(path)
    change(dataset)
    dataset.save_as(path)
    return path


def named(instance: str) -> Dataset:
    item = Dataset()
    item.ReferencedSOPClassUID = "1.2.840.10008.5.1.4.1.1.4"
    item.ReferencedSOPInstanceUID = instance
    return item


def series_of(dataset: Dataset) -> Dataset:
    frame = dataset.ReferencedFrameOfReferenceSequence[0]
    return frame.RTReferencedStudySequence[0].RTReferencedSeriesSequence[0]


# --- structure sets ------------------------------------------------------------------------------


def test_a_structure_set_of_one_meaning_is_read(source, rules):
    """Each contour names its slice, and each number is one structure's."""
    instances = [pydicom.dcmread(path).SOPInstanceUID for path in slices(source)]

    def change(dataset):
        series_of(dataset).ContourImageSequence = [named(instance) for instance in instances]
        for item in dataset.ROIContourSequence:
            for contour in item.ContourSequence:
                z = round(float(contour.ContourData[2]) / 3)
                contour.ContourImageSequence = [named(instances[z])]
                contour.ContourOffsetVector = ["0", "0", "0"]

    structures(source, change)
    summary = imported(source, rules)
    assert summary.failures == []
    assert not [note for note in summary.notes if "rs.dcm" in note]
    mask = source.parent / "out/sub-P001/masks/sub-P001_rois.nii.gz"
    assert (read_volume(mask).array == regions(1).array).all()


def test_contours_of_a_series_that_the_study_lacks_are_refused(source, rules):
    def change(dataset):
        series_of(dataset).SeriesInstanceUID = "1.2.3"

    structures(source, change)
    problem = refused(source, rules).problem
    assert "drawn on the series of SeriesInstanceUID 1.2.3, which the study does not" in problem


def test_what_no_rule_asks_for_may_name_any_series(source, rules):
    def change(dataset):
        series_of(dataset).SeriesInstanceUID = "1.2.3"
        dataset.StructureSetROISequence[0].ROIName = "bladder"

    structures(source, change)
    summary = imported(source, rules)
    assert summary.failures == []
    assert summary.awaiting == ["sub-P001"]


def test_a_structure_set_without_a_series_is_said(source, rules):
    def change(dataset):
        del series_of(dataset).SeriesInstanceUID

    structures(source, change)
    summary = imported(source, rules)
    assert summary.failures == []
    note = "rs.dcm does not say which series it was drawn on; series 1 is taken"
    assert f"sub-P001: {note}" in summary.notes


@pytest.mark.parametrize("place", ["structure", "set", "both"])
def test_another_frame_of_reference_in_any_place_is_refused(source, rules, place):
    def change(dataset):
        item = dataset.StructureSetROISequence[0]
        if place == "structure":
            item.ReferencedFrameOfReferenceUID = "1.2.3"
        else:
            dataset.ReferencedFrameOfReferenceSequence[0].FrameOfReferenceUID = "1.2.3"
        if place == "set":
            del item.ReferencedFrameOfReferenceUID

    structures(source, change)
    problem = refused(source, rules).problem
    assert "another frame of reference: FrameOfReferenceUID 1.2.3, the images are in" in problem
    assert uid("P-001", "study1", "frame") in problem


def test_contours_on_a_series_in_another_frame_of_reference_are_refused(source, rules):
    """The structure set states the frame of T2, and is drawn on ADC, which has another."""
    for path in slices(source, "adc"):
        edit(path, FrameOfReferenceUID="1.2.3")

    def change(dataset):
        series_of(dataset).SeriesInstanceUID = uid("P-001", "study1", 2)

    structures(source, change)
    problem = refused(source, rules).problem
    assert "drawn on a series in another frame of reference: FrameOfReferenceUID 1.2.3" in problem


def test_images_without_a_frame_of_reference_are_said(source, rules):
    for path in source.rglob("*.dcm"):
        edit(path, FrameOfReferenceUID=None)
    image = pydicom.dcmread(slices(source)[0])
    image.FrameOfReferenceUID = "1.2.3"
    image.save_as(source / "first.dcm")
    path = source / "rs.dcm"
    write_structures(path, source / "first.dcm", {"ROI 1": [square(6.0), square(9.0)]})
    (source / "first.dcm").unlink()
    summary = imported(source, rules)
    assert summary.failures == []
    note = "the images state no frame of reference, with which that of rs.dcm could be compared"
    assert f"sub-P001: {note}" in summary.notes


def test_a_structure_without_a_frame_of_reference_is_said(source, rules):
    def change(dataset):
        del dataset.StructureSetROISequence[0].ReferencedFrameOfReferenceUID
        del dataset.ReferencedFrameOfReferenceSequence[0].FrameOfReferenceUID

    structures(source, change)
    summary = imported(source, rules)
    assert summary.failures == []
    note = "structure 1 states no frame of reference; the images' is taken"
    assert f"sub-P001: {note}" in summary.notes


@pytest.mark.parametrize("instances", [["1.2.3"], ["1.2.3", "1.2.4"]])
def test_a_series_without_the_images_that_were_drawn_on_is_refused(source, rules, instances):
    def change(dataset):
        series_of(dataset).ContourImageSequence = [named(instance) for instance in instances]

    structures(source, change)
    problem = refused(source, rules).problem
    assert "drawn on the image of ReferencedSOPInstanceUID 1.2.3" in problem
    assert "series of SeriesInstanceUID" in problem
    assert f"none of the {len(instances)} images that it names" in problem


def test_a_series_that_lacks_some_of_the_named_images_is_said(source, rules):
    instance = pydicom.dcmread(slices(source)[2]).SOPInstanceUID

    def change(dataset):
        series_of(dataset).ContourImageSequence = [named(instance), named("1.2.3")]

    structures(source, change)
    summary = imported(source, rules)
    assert summary.failures == []
    note = "rs.dcm names 1 images that its series does not have, of 2"
    assert f"sub-P001: {note}" in summary.notes


@pytest.mark.parametrize("other", ["1.2.3", "adc"])
def test_a_contour_on_an_image_of_another_series_is_refused(source, rules, other):
    instance = pydicom.dcmread(slices(source, "adc")[2]).SOPInstanceUID if other == "adc" else other

    def change(dataset):
        contour = dataset.ROIContourSequence[0].ContourSequence[0]
        contour.ContourImageSequence = [named(instance)]

    structures(source, change)
    problem = refused(source, rules).problem
    assert f"on the image of ReferencedSOPInstanceUID {instance}, which the series" in problem


def test_a_contour_in_another_plane_than_its_image_is_refused(source, rules):
    instance = pydicom.dcmread(slices(source)[3]).SOPInstanceUID

    def change(dataset):
        contour = dataset.ROIContourSequence[0].ContourSequence[0]
        contour.ContourImageSequence = [named(instance)]

    structures(source, change)
    problem = refused(source, rules).problem
    assert "a contour lies on slice 2, but the image of ReferencedSOPInstanceUID" in problem
    assert f"{instance} that it names is slice 3" in problem


def test_two_series_of_different_grids_are_told_apart_by_the_images_of_the_contours(source, rules):
    coarse = write_series(
        source / "coarse",
        voxels(5, (3, 20, 20)),
        number=7,
        description="coarse",
        spacing=(1, 1, 6.0),
    )
    instances = [pydicom.dcmread(path).SOPInstanceUID for path in coarse]

    def change(dataset):
        series = series_of(dataset)
        other = Dataset()
        other.SeriesInstanceUID = uid("P-001", "study1", 7)
        study = dataset.ReferencedFrameOfReferenceSequence[0].RTReferencedStudySequence[0]
        study.RTReferencedSeriesSequence = [series, other]
        contour = dataset.ROIContourSequence[0].ContourSequence.pop()  # at 9 mm, none of 7's slices
        if named_images:
            contour = dataset.ROIContourSequence[0].ContourSequence[0]
            contour.ContourImageSequence = [named(instances[1])]

    named_images = False
    structures(source, change)
    problem = refused(source, rules).problem
    assert "drawn on 2 series of different grids, SeriesInstanceUID" in problem
    named_images = True
    structures(source, change)
    assert imported(source, rules).failures == []
    mask = read_volume(source.parent / "out/sub-P001/masks/sub-P001_rois.nii.gz")
    assert sorted(set(np.nonzero(mask.array)[0])) == [1, 2, 3]  # a slice of 6 mm around 6 mm


def test_two_structures_of_one_number_are_refused(source, rules):
    def change(dataset):
        dataset.StructureSetROISequence[1].ROINumber = 1

    structures(source, change)
    error = refused(source, rules)
    assert "two structures of ROINumber 1" in error.problem


def test_unwanted_structures_of_one_number_cost_nothing(source, rules):
    def change(dataset):
        for name in ("bladder", "rectum"):
            item = Dataset()
            item.ROINumber, item.ROIName = 9, name
            dataset.StructureSetROISequence.append(item)

    structures(source, change)
    assert imported(source, rules).failures == []


def test_contours_of_no_structure_and_two_groups_of_one_are_refused(source, rules):
    def no_structure(dataset):
        dataset.ROIContourSequence[0].ReferencedROINumber = 5

    structures(source, no_structure)
    assert "contours of ReferencedROINumber 5, which no" in refused(source, rules).problem

    def two_groups(dataset):
        dataset.ROIContourSequence[1].ReferencedROINumber = 1

    structures(source, two_groups)
    assert "two groups of contours for the structure of ROINumber 1" in (
        refused(source, rules).problem
    )


def test_a_contour_that_is_moved_by_an_offset_is_refused(source, rules):
    def change(dataset):
        contour = dataset.ROIContourSequence[0].ContourSequence[1]
        contour.ContourOffsetVector = ["0", "0", "1.5"]

    structures(source, change)
    problem = refused(source, rules).problem
    assert "ContourOffsetVector (3006,0045) is 0, 0, 1.5 mm" in problem


def test_contours_of_another_kind_or_number_of_points_are_refused(source, rules):
    def without_type(dataset):
        del dataset.ROIContourSequence[0].ContourSequence[0].ContourGeometricType

    structures(source, without_type)
    assert "contour type that is not stated encloses no area" in refused(source, rules).problem

    def another_count(dataset):
        dataset.ROIContourSequence[0].ContourSequence[0].NumberOfContourPoints = 5

    structures(source, another_count)
    problem = refused(source, rules).problem
    assert "NumberOfContourPoints is 5, but the contour has 4 points" in problem


# --- SEG -----------------------------------------------------------------------------------------


def segmented(source: Path, change: Callable[[Dataset], None] = lambda dataset: None) -> None:
    path = source / "seg.dcm"
    write_seg(path, slices(source), {"ROI 1": regions(1).array > 0})
    dataset = pydicom.dcmread(path)
    change(dataset)
    dataset.save_as(path)


def test_a_seg_of_a_series_that_the_study_lacks_lies_where_it_says(source, rules):
    def change(dataset):
        dataset.ReferencedSeriesSequence[0].SeriesInstanceUID = "1.2.3"

    segmented(source, change)
    summary = imported(source, rules)
    assert summary.failures == []
    assert any("seg.dcm was drawn on a series that the study" in note for note in summary.notes)
    assert table(source.parent / "out", "rois")["roi_id"].tolist() == ["1"]
    mask = source.parent / "out/sub-P001/masks/sub-P001_rois.nii.gz"
    assert (read_volume(mask).array == regions(1).array).all()


@pytest.mark.parametrize("frame", ["", "1.2.9"])
def test_a_seg_that_nothing_connects_with_the_images_is_refused(source, rules, frame):
    def change(dataset):
        dataset.ReferencedSeriesSequence[0].SeriesInstanceUID = "1.2.3"
        dataset.FrameOfReferenceUID = frame

    segmented(source, change)
    problem = refused(source, rules).problem
    assert "drawn on the series of SeriesInstanceUID 1.2.3" in problem


def test_a_seg_without_a_frame_of_reference_is_refused_and_without_a_series_said(source, rules):
    def without_frame(dataset):
        del dataset.FrameOfReferenceUID

    segmented(source, without_frame)
    assert "a SEG without FrameOfReferenceUID (0020,0052)" in refused(source, rules).problem

    def without_series(dataset):
        del dataset.ReferencedSeriesSequence

    segmented(source, without_series)
    summary = imported(source, rules)
    assert summary.failures == []
    note = "seg.dcm does not say which series it was drawn on; series 1 is taken"
    assert f"sub-P001: {note}" in summary.notes


def test_a_seg_of_other_images_under_the_same_series_is_refused(source, rules):
    def change(dataset):
        for number, item in enumerate(
            dataset.ReferencedSeriesSequence[0].ReferencedInstanceSequence
        ):
            item.ReferencedSOPInstanceUID = f"1.2.{number}"

    segmented(source, change)
    assert "the image of ReferencedSOPInstanceUID 1.2.0" in refused(source, rules).problem


def test_a_seg_frame_in_another_plane_than_its_image_is_refused(source, rules):
    def change(dataset):
        for group in dataset.PerFrameFunctionalGroupsSequence:
            place = group.PlanePositionSequence[0]
            x, y, z = place.ImagePositionPatient
            place.ImagePositionPatient = [x, y, z + 3]

    segmented(source, change)
    problem = refused(source, rules).problem
    assert "a frame lies 3.00 mm off the plane of the image of ReferencedSOPInstanceUID" in problem


def test_two_segments_of_one_number_are_refused(source, rules):
    def change(dataset):
        dataset.SegmentSequence.append(dataset.SegmentSequence[0])

    segmented(source, change)
    error = refused(source, rules)
    assert "two segments of SegmentNumber 1" in error.problem


def test_a_seg_of_its_own_images_is_read_without_a_note(source, rules):
    segmented(source)
    summary = imported(source, rules)
    assert summary.failures == []
    assert not [note for note in summary.notes if "seg.dcm" in note]
    edit(source / "seg.dcm", SeriesDescription="again")
    assert imported(source, rules).unchanged == ["sub-P001"]
