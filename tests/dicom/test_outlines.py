"""Outlines in reports: on the mask's boundary, on the right image, drawn by whoever reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import highdicom
import numpy as np
import pydicom
import pytest
from dicom_cases import RULES, write_run
from dicom_files import needs, validate, write_series
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from pydicom.sr.codedict import codes
from scipy.ndimage import binary_fill_holes
from skimage.measure import points_in_poly

from cad.base.errors import CadError
from cad.dicom.into.importer import import_source
from cad.dicom.out.results import write_sr_and_seg
from cad.dicom.out.sr import outlines
from cad.dicom.out.sr_reader import DrawnOutline, read_report
from cad.folders.cohort import read_cohort
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.mri.imaging.volume import Volume

SHAPE = (5, 30, 26)
SPACING, ORIGIN = (0.8, 1.2, 3.0), (-31.25, 12.5, 40.0)
TURN = np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1.0]])


def filled(points: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The pixels whose centres lie within a line; the first centre is at (.5, .5)."""
    rows, columns = np.indices(shape)
    centres = np.stack([columns.ravel(), rows.ravel()], axis=1) + 0.5
    return points_in_poly(centres, points).reshape(shape)


def boundary(plane: np.ndarray) -> np.ndarray:
    """Middles of all pixel edges between inside and outside, as columns and rows."""
    wide = np.pad(plane, 1).astype(int)
    across = np.argwhere(np.diff(wide, axis=1))[:, ::-1] + (0, -0.5)
    down = np.argwhere(np.diff(wide, axis=0))[:, ::-1] + (-0.5, 0)
    return np.concatenate([across, down])


def test_a_square_counted_by_hand():
    """Columns 3 to 5, rows 2 to 4 of the second slice: edges at 3, 6 and 2, 5."""
    mask = np.zeros((2, 6, 7), bool)
    mask[1, 2:5, 3:6] = True
    (line,) = outlines(mask)
    assert line.z == 1
    assert line.area == 9 - 4 / 8  # half a pixel is cut off at each corner
    sides = [(3.5, 2), (4.5, 2), (5.5, 2), (6, 2.5), (6, 3.5), (6, 4.5)]
    sides += [(5.5, 5), (4.5, 5), (3.5, 5), (3, 4.5), (3, 3.5), (3, 2.5)]
    assert {tuple(p) for p in line.points} == set(sides)
    assert (line.points[0] == line.points[-1]).all()


def test_the_edge_of_the_image_and_the_last_slice():
    mask = np.zeros((3, 4, 5), bool)
    mask[0, 0, 0] = mask[2, 2:, 3:] = True
    large, small = outlines(mask)
    assert (large.z, small.z) == (2, 0)  # the largest first
    assert (large.points.min(axis=0).tolist(), large.points.max(axis=0).tolist()) == (
        [3, 2],
        [5, 4],
    )
    assert (small.points.min(axis=0).tolist(), small.points.max(axis=0).tolist()) == (
        [0, 0],
        [1, 1],
    )


def test_a_hole_has_no_line_and_parts_have_one_each():
    mask = np.zeros((1, 9, 9), bool)
    mask[0, 1:6, 1:6] = True
    mask[0, 3, 3] = False
    mask[0, 6, 6] = True  # touches by a corner only
    assert [line.area for line in outlines(mask)] == [24.5, 0.5]


@settings(max_examples=60, deadline=None)
@given(arrays(bool, (7, 8)))
def test_lines_enclose_the_mask_and_lie_on_its_boundary(plane: np.ndarray):
    lines = outlines(plane[None])
    whole = binary_fill_holes(plane, np.ones((3, 3)))
    drawn = np.zeros(plane.shape, bool)
    for line in lines:
        inside = filled(line.points, plane.shape)
        assert not (drawn & inside).any()
        drawn |= inside
    assert (drawn == whole).all()
    edges = {tuple(p) for p in boundary(whole)}
    assert {
        tuple(p) for line in lines for p in line.points
    } == edges  # no vertex beside it, none less


@pytest.fixture
def masks() -> np.ndarray:
    """Three regions: a square, two parts over three slices at the edge, one on the last slice."""
    labels = np.zeros(SHAPE, np.uint8)
    labels[1, 5:11, 3:8] = 1
    labels[0:3, 20:26, 0:6] = labels[1:3, 20:24, 9:12] = 2
    labels[4, 12:16, 12:17] = 3
    return labels


def imported(tmp_path: Path, labels: np.ndarray) -> tuple[Path, list[Path]]:
    source = tmp_path / "in"
    array = np.random.default_rng(0).integers(1, 900, SHAPE).astype(np.uint16)
    place = {"spacing": SPACING, "origin": ORIGIN, "direction": TURN}
    paths = write_series(source / "t2", array, patient="MRN-7", **place)
    write_volume(source / "rois.nii.gz", Volume(labels, SPACING, ORIGIN, TURN))
    (tmp_path / "rules.yaml").write_text(RULES.replace("labels: id", "labels: pseudonym"))
    assert import_source(source, tmp_path / "cohort", tmp_path / "rules.yaml").failures == []
    return tmp_path / "cohort", paths


def written(tmp_path: Path, cohort: Path) -> tuple[Path, Path]:
    (study,) = read_cohort(cohort).studies()
    run = write_run(tmp_path / "run", study.participant_id, {"1": 0.4, "2": 0.9, "3": 0.05})
    files, failures = write_sr_and_seg(run, cohort, tmp_path / "dicom")
    assert [str(f) for f in failures] == []
    return files[0], files[1]


def in_the_patient(line: DrawnOutline, head: pydicom.Dataset) -> np.ndarray:
    """Points in LPS mm by the header of the image that a line is drawn on."""
    across, down = np.reshape(head.ImageOrientationPatient, (2, 3)).astype(float)
    height, width = map(float, head.PixelSpacing)
    column, row = (line.points - 0.5).T  # a header's position is the centre of the first pixel
    return np.asarray(head.ImagePositionPatient, float) + (
        np.outer(column * width, across) + np.outer(row * height, down)
    )


def test_every_outline_lies_on_its_region_in_the_patient(tmp_path: Path, masks: np.ndarray):
    """From the report and the headers of the images that it names back to the label map."""
    cohort, paths = imported(tmp_path, masks)
    _, sr = written(tmp_path, cohort)
    images = {str(d.SOPInstanceUID): d for d in map(pydicom.dcmread, paths)}
    grid = Volume(masks, SPACING, ORIGIN, TURN)
    for label, roi in enumerate(read_report(sr).rois, start=1):
        again = np.zeros(SHAPE, bool)
        for line in roi.outlines:
            place = in_the_patient(line, images[line.image])
            index = np.linalg.solve(grid.affine, np.c_[place, np.ones(len(place))].T).T[:, :3]
            z = int(np.rint(index[0, 2]))
            np.testing.assert_allclose(index[:, 2], z, atol=1e-5)
            # Half-way between two voxels: on the edge that both share.
            assert np.abs(index[:, :2] % 1 - 0.5).min(axis=1).max() < 1e-4
            again[z] |= filled(index[:, :2] + 0.5, SHAPE[1:])
        assert (again == (masks == label)).all()


def test_highdicom_and_dcmtk_read_the_outlines(tmp_path: Path, masks: np.ndarray):
    cohort, _ = imported(tmp_path, masks)
    _, sr = written(tmp_path, cohort)
    theirs = highdicom.sr.srread(sr).content
    for roi in read_report(sr).rois:
        groups = theirs.get_volumetric_roi_measurement_groups(tracking_uid=roi.tracking_uid)
        kinds = [group.reference_type for group in groups]
        assert kinds == [codes.DCM.ReferencedSegment, codes.DCM.ImageRegion]
        for region, line in zip(groups[1].roi, roi.outlines, strict=True):
            np.testing.assert_array_equal(region.value, line.points)
            image = region.ContentSequence[0].ReferencedSOPSequence[0]
            assert image.ReferencedSOPInstanceUID == line.image
    needs("dsrdump", "dciodvfy")
    validate(sr)
    done = subprocess.run(["dsrdump", sr], capture_output=True, text=True, check=True)
    # One slice; one part on three slices and another on two of them; one slice.
    assert done.stdout.count('contains SCOORD:(,,"Image Region")=(POLYLINE,') == 1 + 5 + 1
    assert done.stdout.count('<selected from IMAGE:(,,"Source")=(MR image,)>') == 7
    assert "E:" not in done.stderr


@pytest.mark.slow
def test_the_loader_of_3d_slicer_reads_segments_and_measurements(tmp_path: Path, masks: np.ndarray):
    """dcmqi is what 3D Slicer loads SEG and TID 1500 with; every voxel and number comes through."""
    if not shutil.which("segimage2itkimage"):
        pytest.skip("DCMQI ABSENT: uv run --all-extras --with dcmqi==1.5.7 pytest -m slow …")
    cohort, _ = imported(tmp_path, masks)
    seg, sr = written(tmp_path, cohort)
    reader = ["segimage2itkimage", "--outputType", "nii", "--outputDirectory", tmp_path]
    subprocess.run([*reader, "--inputDICOM", seg], check=True, capture_output=True)
    grid = Volume(masks, SPACING, ORIGIN, TURN)
    for label in (1, 2, 3):
        found = read_volume(tmp_path / f"{label}.nii.gz")
        place = found.index_to_patient(np.argwhere(found.array)[:, ::-1])
        wanted = grid.index_to_patient(np.argwhere(masks == label)[:, ::-1])
        order, theirs = np.lexsort(wanted.round(2).T), np.lexsort(place.round(2).T)
        np.testing.assert_allclose(place[theirs], wanted[order], atol=1e-3)
    said = tmp_path / "sr.json"
    subprocess.run(
        ["tid1500reader", "--inputDICOM", sr, "--outputMetadata", said],
        check=True,
        capture_output=True,
    )
    groups = json.loads(said.read_text())["Measurements"]
    numbers = {
        g["TrackingIdentifier"]: (g["ReferencedSegment"], g["measurementItems"][0]["value"])
        for g in groups
        if g.get("measurementItems")
    }
    assert numbers == {"1": (1, "40.0"), "2": (2, "90.0"), "3": (3, "5.0")}


def test_frames_of_an_enhanced_object(tmp_path: Path, masks: np.ndarray, monkeypatch):
    """Frames stored in another order than slices: the outline names the frame of its slice."""
    from cad.dicom.out import results as dicom_out
    from cad.dicom.out.source_images import SourceImages, _enhanced, source_images

    cohort, _ = imported(tmp_path, masks)
    planes = (3, 1, 0, 4, 2)

    def enhanced(folder: Path, study: str, participant: str) -> SourceImages:
        made = source_images(folder, study, participant)
        entries = {"StudyInstanceUID": made.headers[0].StudyInstanceUID}
        entries |= {"SeriesInstanceUID": "1.2.3", "FrameOfReferenceUID": "1.2.4"}
        entries |= {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.4.1"}
        head = _enhanced(made.grid, planes, "1.2.5", entries, made.patient_id)
        return SourceImages(made.grid, [head], made.patient_id, planes)

    monkeypatch.setattr(dicom_out, "source_images", enhanced)
    _, sr = written(tmp_path, cohort)
    square, _, last = read_report(sr).rois
    assert [(line.image, line.frame) for line in square.outlines] == [("1.2.5", 2)]
    assert [line.frame for line in last.outlines] == [4]


def test_another_outline_is_another_object(tmp_path: Path, masks: np.ndarray):
    """An archive keeps what it has under a UID: a region that was redrawn needs a new one."""
    cohort, _ = imported(tmp_path, masks)
    first = [pydicom.dcmread(path).SOPInstanceUID for path in written(tmp_path, cohort)]
    path = next(cohort.rglob("*_rois.nii.gz"))
    masks[1, 11, 3:8] = 1
    write_volume(path, Volume(masks, SPACING, ORIGIN, TURN))
    second = [pydicom.dcmread(path).SOPInstanceUID for path in written(tmp_path / "2", cohort)]
    assert not set(first) & set(second)


def test_the_reader_notices_unsound_outlines(tmp_path: Path, masks: np.ndarray):
    cohort, _ = imported(tmp_path, masks)
    _, sr = written(tmp_path, cohort)
    whole = sr.read_bytes()

    def drawn(dataset: pydicom.Dataset) -> pydicom.Dataset:
        container = next(c for c in dataset.ContentSequence if c.ValueType == "CONTAINER")
        return container.ContentSequence[3]  # after the three groups with a segment

    def item(dataset: pydicom.Dataset, code: str) -> pydicom.Dataset:
        content = drawn(dataset).ContentSequence
        return next(c for c in content if c.ConceptNameCodeSequence[0].CodeValue == code)

    def source(dataset: pydicom.Dataset) -> pydicom.Dataset:
        return item(dataset, "111030").ContentSequence[0].ReferencedSOPSequence[0]

    cases = {
        "belongs to no ROI": lambda d: setattr(item(d, "112040"), "UID", "1.2.3"),
        "is not closed": lambda d: setattr(item(d, "111030"), "GraphicData", [1, 1, 2, 1, 2, 2]),
        "not a line of SCOORD": lambda d: setattr(item(d, "111030"), "GraphicType", "CIRCLE"),
        "0 items of source image": lambda d: delattr(item(d, "111030"), "ContentSequence"),
        "outline of ROI 1 is not listed": lambda d: setattr(
            source(d), "ReferencedSOPInstanceUID", "1.2.3"
        ),
    }
    for words, change in cases.items():
        sr.write_bytes(whole)
        dataset = pydicom.dcmread(sr)
        change(dataset)
        dataset.save_as(sr)
        with pytest.raises(CadError, match=words):
            read_report(sr)
