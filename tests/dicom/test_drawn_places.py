"""Where a contour or a frame of a SEG lies: every slice that was drawn, and no other one."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import edit, write_seg, write_series, write_structures
from import_cases import only_failure, write_patient
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.uid import RTStructureSetStorage

from cad.base.errors import CadError
from cad.dicom.into.importer import ImportSummary, import_source
from cad.dicom.own import OWN_MODEL_NAME
from cad.mri.imaging.annotations import read_drawn_regions
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.polygons import Border, common_area, folded_area
from cad.mri.imaging.volume import Volume

Change = Callable[[Dataset], None]
# Corners of an L on borders of pixels: 12 pixels.
CORNERS = np.array([[1.5, 1.5], [5.5, 1.5], [5.5, 3.5], [3.5, 3.5], [3.5, 5.5], [1.5, 5.5]])
AREA = 12


def moved(x: float, y: float) -> np.ndarray:
    """The L, moved along rows and columns."""
    return CORNERS + np.array([x, y])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_patient(tmp_path / "in", dce=False)


def slices(source: Path, name: str = "t2") -> list[Path]:
    return sorted((source / name).iterdir())


def imported(source: Path, rules: Path) -> ImportSummary:
    return import_source(source, source.parent / "out", rules)


def refused(source: Path, rules: Path) -> CadError:
    error = only_failure(imported(source, rules))
    assert error.hint
    assert not (source.parent / "out" / "sub-P001").exists()
    return error


def drawn(source: Path, rules: Path, label: int = 1) -> tuple[dict[int, int], list[str]]:
    """How many voxels of the region each slice has, and the notes on the drawing."""
    summary = imported(source, rules)
    assert summary.failures == []
    mask = read_volume(source.parent / "out/sub-P001/masks/sub-P001_rois.nii.gz").array == label
    counts = mask.sum(axis=(1, 2))
    notes = [note for note in summary.notes if re.search("structure|segment|dcm", note)]
    return {z: int(n) for z, n in enumerate(counts) if n}, notes


# --- contours ------------------------------------------------------------------------------------


def points(corners: np.ndarray, z: float) -> np.ndarray:
    return np.column_stack([corners, np.full(len(corners), 3.0 * z)])


def contour(corners: np.ndarray, z: float = 2, kind: str = "CLOSED_PLANAR") -> Dataset:
    item = Dataset()
    item.ContourGeometricType = kind
    item.NumberOfContourPoints = len(corners)
    item.ContourData = [f"{v:.6f}" for v in points(corners, z).ravel()]
    return item


def structures(source: Path, change: Change = lambda dataset: None) -> None:
    """An L on the slices 1, 2 and 3 of T2."""
    path = source / "rs.dcm"
    write_structures(path, slices(source)[0], {"ROI 1": [points(CORNERS, z) for z in (1, 2, 3)]})
    dataset = pydicom.dcmread(path)
    change(dataset)
    dataset.save_as(path)


def contours(dataset: Dataset) -> list[Dataset]:
    items: list[Dataset] = dataset.ROIContourSequence[0].ContourSequence
    return items


def test_an_l_is_read_as_it_was_drawn(source, rules):
    structures(source)
    assert drawn(source, rules) == ({1: AREA, 2: AREA, 3: AREA}, [])


@pytest.mark.parametrize(
    "twin",
    [
        CORNERS,
        CORNERS[::-1],
        np.roll(CORNERS, 2, axis=0),
        CORNERS + 0.01,
    ],
    ids=["same", "reversed", "begun elsewhere", "shifted"],
)
def test_a_contour_that_is_there_twice_counts_once(source, rules, twin):
    """By the even-odd rule the two would cancel, and the slice would be lost."""
    structures(source, lambda dataset: contours(dataset).append(contour(twin)))
    counts, notes = drawn(source, rules)
    assert counts == {1: AREA, 2: AREA, 3: AREA}
    assert notes == ["sub-P001: structure 1 has contours twice on slice 2; they are taken once"]


def test_a_contour_that_is_there_twice_off_its_plane_counts_once(source, rules):
    structures(source, lambda dataset: contours(dataset).append(contour(CORNERS, 2.08)))
    assert drawn(source, rules)[0] == {1: AREA, 2: AREA, 3: AREA}


def test_a_hole_that_is_there_twice_stays_a_hole(source, rules):
    hole = np.array([[7.5, 7.5], [9.5, 7.5], [9.5, 9.5], [7.5, 9.5]])
    outer = np.array([[6.5, 6.5], [12.5, 6.5], [12.5, 12.5], [6.5, 12.5]])

    def change(dataset):
        contours(dataset)[1:2] = [contour(outer), contour(hole), contour(hole)]

    structures(source, change)
    assert drawn(source, rules)[0] == {1: AREA, 2: 32, 3: AREA}


@pytest.mark.parametrize("shift", [0.3, 1.0])
def test_contours_that_overlap_in_part_are_refused(source, rules, shift):
    structures(source, lambda dataset: contours(dataset).append(contour(moved(shift, 0))))
    error = refused(source, rules)
    assert error.roi == "ROI 1"
    assert "two contours of slice 2 overlap in" in error.problem


@pytest.mark.parametrize(
    "corners",
    [
        np.concatenate([CORNERS, CORNERS]),
        np.array([[1.5, 1.5], [5.5, 5.5], [5.5, 1.5], [1.5, 5.5]]),
    ],
    ids=["twice", "eight"],
)
def test_a_contour_that_crosses_itself_is_refused(source, rules, corners):
    def change(dataset):
        contours(dataset)[1] = contour(corners)

    structures(source, change)
    problem = refused(source, rules).problem
    assert "a contour of slice 2 crosses itself, or runs twice around" in problem


def test_a_keyhole_and_contours_that_touch_are_read(source, rules):
    outer = np.array([[6.5, 6.5], [12.5, 6.5], [12.5, 12.5], [6.5, 12.5]])
    hole = np.array([[8.5, 8.5], [8.5, 10.5], [10.5, 10.5], [10.5, 8.5]])
    keyhole = np.concatenate([outer, outer[:1], hole, hole[:1]])

    def change(dataset):
        contours(dataset)[1] = contour(keyhole)
        contours(dataset)[2:] = [contour(CORNERS, 3), contour(moved(4, 0), 3)]

    structures(source, change)
    assert drawn(source, rules) == ({1: AREA, 2: 32, 3: 2 * AREA}, [])


def test_exclusive_contours_are_combined_as_they_say(source, rules):
    def change(dataset):
        overlapping = (CORNERS, moved(2, 0))
        contours(dataset)[1:2] = [contour(c, kind="CLOSEDPLANAR_XOR") for c in overlapping]

    structures(source, change)
    assert drawn(source, rules)[0] == {1: AREA, 2: 2 * AREA - 2 * 4, 3: AREA}


def test_contours_of_two_types_on_a_slice_and_those_that_cancel_are_refused(source, rules):
    def two_types(dataset):
        contours(dataset).append(contour(moved(8, 0), kind="CLOSEDPLANAR_XOR"))

    structures(source, two_types)
    assert "CLOSED_PLANAR and CLOSEDPLANAR_XOR on slice 2" in refused(source, rules).problem

    def cancel(dataset):
        contours(dataset)[1:2] = [contour(CORNERS, kind="CLOSEDPLANAR_XOR") for _ in range(2)]

    structures(source, cancel)
    assert "the contours of slice 2 cancel each other" in refused(source, rules).problem


def box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])


LARGE = box(1.5, 1.5, 11.5, 11.5)


@pytest.mark.parametrize("kind", ["CLOSED_PLANAR", "CLOSEDPLANAR_XOR"])
@pytest.mark.parametrize("apart", [0.05, 0.1, 0.3, 0.45, 0.9])
@pytest.mark.parametrize("beside", [False, True])
def test_a_border_that_is_drawn_twice_side_by_side_is_refused(source, rules, apart, beside, kind):
    """Read as a ring, the region would lose all voxels but those of its border or its corners."""
    inner = box(1.5 + apart, 1.5 + apart, 11.5 - apart, 11.5 - apart)
    polygons = [LARGE, inner]
    if beside:
        polygons = [inner, box(13.5, 1.5, 15.5, 3.5), LARGE]

    def change(dataset):
        contours(dataset)[1:2] = [contour(polygon, kind=kind) for polygon in polygons]

    structures(source, change)
    error = refused(source, rules)
    assert "two contours of slice 2 lie inside each other, on average" in error.problem
    assert error.roi == "ROI 1"


@pytest.mark.parametrize("width", [1.1, 2])
def test_a_ring_of_more_than_a_pixel_is_read(source, rules, width):
    def change(dataset):
        inner = box(1.5 + width, 1.5 + width, 11.5 - width, 11.5 - width)
        contours(dataset)[1:2] = [contour(LARGE), contour(inner)]

    structures(source, change)
    assert drawn(source, rules)[0][2] == 100 - round(10 - 2 * width) ** 2


@pytest.mark.parametrize(
    "polygons",
    [
        [LARGE, box(3.5, 3.5, 6.5, 6.5), box(3.5, 3.5, 6.5, 6.5)],
        [box(13.5, 1.5, 15.5, 3.5), LARGE, LARGE[::-1]],
    ],
    ids=["hole", "outer"],
)
def test_an_exclusive_contour_that_is_there_twice_is_refused(source, rules, polygons):
    """The two cancel, and what they enclose would be filled, or lost."""

    def change(dataset):
        contours(dataset)[1:2] = [contour(c, kind="CLOSEDPLANAR_XOR") for c in polygons]

    structures(source, change)
    assert "the contours of slice 2 cancel each other" in refused(source, rules).problem


@pytest.mark.parametrize(
    "corners",
    [np.concatenate([CORNERS, CORNERS]), np.array([[1.5, 1.5], [9, 9], [9, 1.5], [1.5, 9]])],
    ids=["twice", "eight"],
)
def test_an_exclusive_contour_that_crosses_itself_is_refused(source, rules, corners):
    def change(dataset):
        contours(dataset)[1] = contour(corners, kind="CLOSEDPLANAR_XOR")

    structures(source, change)
    assert "a contour of slice 2 crosses itself" in refused(source, rules).problem


def test_sixty_contours_inside_each_other_are_compared_in_seconds():
    """A hole in a hole in a hole: each pair of contours is compared."""
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    borders = [Border(circle * radius + 70) for radius in np.arange(1, 61)]
    begin = time.process_time()
    for border in borders:
        for other in borders:
            assert common_area(border, other) <= border.area + 1e-6
    assert time.process_time() - begin < 20


def test_a_contour_that_fills_no_voxel_beside_others_is_said(source, rules):
    thin = box(8.0, 1.8, 14.0, 2.2)
    structures(source, lambda dataset: contours(dataset).append(contour(thin)))
    counts, notes = drawn(source, rules)
    assert counts == {1: AREA, 2: AREA, 3: AREA}
    text = "structure 1 has 1 contours on slice 2 that fill no voxel to one half"
    assert notes == [f"sub-P001: {text}"]


def test_slices_and_points_that_are_left_out_are_said(source, rules):
    def change(dataset):
        contours(dataset)[1].ContourGeometricType = "POINT"
        contours(dataset).append(contour(CORNERS[:4] / 8 + 8, 4))

    structures(source, change)
    counts, notes = drawn(source, rules)
    assert counts == {1: AREA, 3: AREA}
    assert notes == [
        "sub-P001: structure 1 has 1 single points among its contours, which are left out",
        "sub-P001: structure 1 fills no voxel of slice 4 to one half",
        "sub-P001: structure 1 has no contour on slice 2, between its first and last",
    ]


@pytest.mark.parametrize("left", [18, 500, 1e5])
def test_a_contour_that_leaves_the_image_is_refused(source, rules, left):
    def change(dataset):
        contours(dataset)[1] = contour(moved(left, 0))

    structures(source, change)
    assert "a contour on slice 2 leaves the images, which have 20" in refused(source, rules).problem


def test_a_point_far_away_is_refused(source, rules):
    def change(dataset):
        far = np.vstack([CORNERS, [1e7, 1.5]])
        contours(dataset)[1] = contour(far)

    structures(source, change)
    assert "ContourData (3006,0050) has '10000000.000000'" in refused(source, rules).problem


def test_a_contour_on_the_edge_of_the_image_is_read(source, rules):
    def change(dataset):
        for item, z in zip(contours(dataset), (1, 2, 3), strict=True):
            item.ContourData = [f"{v:.6f}" for v in points(CORNERS - 2.2, z).ravel()]

    structures(source, change)
    counts, notes = drawn(source, rules)
    assert sorted(counts) == [1, 2, 3]
    assert notes == []


@pytest.mark.parametrize("value", [None, ""])
def test_a_contour_without_the_number_of_its_points_is_refused(source, rules, value):
    """One that lost its last point would be another polygon."""

    def change(dataset):
        item = contours(dataset)[1]
        item.ContourData = item.ContourData[:-3]
        item.NumberOfContourPoints = value
        if value is None:
            del item.NumberOfContourPoints

    structures(source, change)
    problem = refused(source, rules).problem
    assert "a contour without NumberOfContourPoints (3006,0046)" in problem
    assert "its 5 points" in problem


@pytest.mark.parametrize("text", ["nan", "inf", "1_0", "1e300", "1,5"])
def test_a_coordinate_that_is_no_number_is_refused_and_named(source, rules, text):
    def change(dataset):
        contours(dataset)[1].ContourData = [
            "77777.7777777777",
            *contours(dataset)[1].ContourData[1:],
        ]

    structures(source, change)
    path = source / "rs.dcm"
    content = path.read_bytes()
    assert content.count(b"77777.7777777777") == 1
    path.write_bytes(content.replace(b"77777.7777777777", text.encode().ljust(16)))
    error = refused(source, rules)
    assert "ContourData (3006,0050)" in error.problem
    assert text in error.problem
    assert error.roi


def test_numbers_that_are_no_points_are_refused(source, rules):
    def change(dataset):
        contours(dataset)[1].ContourData = contours(dataset)[1].ContourData[:-1]

    structures(source, change)
    assert "has 17 numbers; a point has three" in refused(source, rules).problem


@pytest.mark.parametrize("keyword", ["ReferencedROINumber", "ROINumber"])
def test_an_item_without_its_number_is_named(source, rules, keyword):
    def change(dataset):
        sequence = (
            dataset.StructureSetROISequence
            if keyword == "ROINumber"
            else dataset.ROIContourSequence
        )
        delattr(sequence[0], keyword)

    structures(source, change)
    assert f"{keyword} (3006,00" in refused(source, rules).problem


@pytest.mark.parametrize("place", ["structure", "group", "contour"])
@pytest.mark.parametrize("keyword", ["PatientID", "StudyInstanceUID"])
def test_an_item_of_a_structure_set_of_another_patient_or_study_is_refused(
    source, rules, place, keyword
):
    def change(dataset):
        item = {
            "structure": dataset.StructureSetROISequence[0],
            "group": dataset.ROIContourSequence[0],
            "contour": contours(dataset)[1],
        }[place]
        setattr(item, keyword, "1.2.3")

    structures(source, change)
    error = refused(source, rules)
    assert f"{keyword} (00" in error.problem
    assert "has one value at the top of the header, and another in" in error.problem


@pytest.mark.parametrize("place", ["top", "group", "contour"])
def test_another_frame_of_reference_anywhere_is_refused(source, rules, place):
    def change(dataset):
        item = {
            "top": dataset,
            "group": dataset.ROIContourSequence[0],
            "contour": contours(dataset)[1],
        }[place]
        item.FrameOfReferenceUID = "1.2.3"

    structures(source, change)
    problem = refused(source, rules).problem
    assert "another frame of reference: FrameOfReferenceUID 1.2.3" in problem


def test_a_rejected_drawing_is_refused(source, rules):
    structures(source, lambda dataset: setattr(dataset, "ApprovalStatus", "REJECTED"))
    path = source / "rs.dcm"
    for status in (b"REJECTED", b"Rejected"):
        path.write_bytes(path.read_bytes().replace(b"REJECTED", status))
        assert "ApprovalStatus (300E,0002) is REJECTED" in refused(source, rules).problem


def test_two_numbers_of_points_are_refused_by_name(source, rules):
    def change(dataset):
        contours(dataset)[1].NumberOfContourPoints = [6, 6]

    structures(source, change)
    error = refused(source, rules)
    assert "NumberOfContourPoints (3006,0046) is no whole number" in error.problem
    assert error.roi == "ROI 1"


def test_areas_of_polygons():
    border = Border(CORNERS)
    assert border.area == common_area(border, Border(CORNERS[::-1])) == pytest.approx(AREA)
    assert border.length == pytest.approx(16)
    assert common_area(border, Border(moved(2, 0))) == pytest.approx(4)
    assert common_area(border, Border(moved(40, 0))) == 0
    assert folded_area(CORNERS) == folded_area(CORNERS[::-1]) == 0
    assert folded_area(np.concatenate([CORNERS, CORNERS])) == pytest.approx(AREA)


# --- SEG -----------------------------------------------------------------------------------------

MASK = np.zeros((6, 20, 20), bool)
MASK[:, 2:6, 2:4] = True
MASK[:, 2:4, 2:6] = True


def segmented(
    source: Path,
    change: Change = lambda dataset: None,
    on: tuple[int, ...] = (1, 2, 3),
    second: tuple[int, ...] = (),
    kind: str = "BINARY",
) -> None:
    """An L on some slices of T2, and a second segment beside it."""
    path = source / "seg.dcm"
    masks = {"ROI 1": MASK & np.isin(np.arange(6), on)[:, None, None]}
    if second:
        moved = np.roll(MASK, 8, axis=2)
        masks["ROI 2"] = moved & np.isin(np.arange(6), second)[:, None, None]
    write_seg(path, slices(source), masks, kind)
    dataset = pydicom.dcmread(path)
    change(dataset)
    dataset.save_as(path)


def groups(dataset: Dataset) -> list[Dataset]:
    items: list[Dataset] = dataset.PerFrameFunctionalGroupsSequence
    return items


def shared(dataset: Dataset) -> Dataset:
    item: Dataset = dataset.SharedFunctionalGroupsSequence[0]
    return item


def measures(dataset: Dataset, **stated: float | None) -> None:
    """Change what a SEG states of its voxels; None deletes."""
    item = shared(dataset).PixelMeasuresSequence[0]
    for keyword, value in stated.items():
        if value is not None:
            setattr(item, keyword, value)
        elif keyword in item:
            delattr(item, keyword)


def without_sources(dataset: Dataset) -> None:
    for group in groups(dataset):
        if "DerivationImageSequence" in group:
            del group.DerivationImageSequence


def shift(dataset: Dataset, mm: tuple[float, float, float]) -> None:
    for group in groups(dataset):
        place = group.PlanePositionSequence[0]
        place.ImagePositionPatient = [
            float(v) + d for v, d in zip(place.ImagePositionPatient, mm, strict=True)
        ]


@pytest.mark.parametrize("on", [(2,), (0, 4), (0, 2, 4), (1, 2, 3)])
@pytest.mark.parametrize("thickness", [3.0, None, 1.0, 20.0])
@pytest.mark.parametrize("named", [True, False])
def test_frames_fill_their_own_slices_where_no_distance_is_stated(
    source, rules, on, thickness, named
):
    def change(dataset):
        measures(dataset, SpacingBetweenSlices=None, SliceThickness=thickness)
        if not named:
            without_sources(dataset)

    segmented(source, change, on)
    assert drawn(source, rules) == (dict.fromkeys(on, AREA), [])


@pytest.mark.parametrize("distance", [6.0, 30.0, 1.5, 0.1])
@pytest.mark.parametrize("on", [(2,), (0, 2, 4)])
def test_a_distance_that_contradicts_thickness_and_images_is_refused(source, rules, distance, on):
    segmented(source, lambda dataset: measures(dataset, SpacingBetweenSlices=distance), on)
    problem = refused(source, rules).problem
    assert f"SpacingBetweenSlices (0018,0088) is {distance:g} mm" in problem
    assert "SliceThickness (0018,0050) 3 mm, and the slices of the images are 3 mm" in problem


def test_thick_slices_of_its_own_are_read_as_thick(source, rules):
    """Distance and thickness agree: the SEG has other slices than the images."""

    def change(dataset):
        measures(dataset, SpacingBetweenSlices=9.0, SliceThickness=9.0)

    segmented(source, change, (2,))
    text = "seg.dcm has slices of its own, 9 mm apart; those of the images are 3 mm apart"
    assert drawn(source, rules) == ({1: AREA, 2: AREA, 3: AREA}, [f"sub-P001: {text}"])


def test_two_distances_of_one_seg_are_refused(source, rules):
    """At its top, and in the measures of two frames."""

    def at_the_top(dataset):
        measures(dataset, SpacingBetweenSlices=3.0)
        dataset.SpacingBetweenSlices = 3.6

    segmented(source, at_the_top)
    error = refused(source, rules)
    assert error.problem.endswith(
        "SpacingBetweenSlices (0018,0088) stands twice in the header of one frame, as 3.6 and as "
        "3; one header states it once, or alike"
    )
    assert "seg.dcm" in str(error)
    assert "export the series again" in error.hint

    def in_two_frames(dataset):
        item = shared(dataset).PixelMeasuresSequence[0]
        del shared(dataset).PixelMeasuresSequence
        for number, group in enumerate(groups(dataset)):
            group.PixelMeasuresSequence = [copy.deepcopy(item)]
            group.PixelMeasuresSequence[0].SpacingBetweenSlices = 3.0 + 0.6 * (number == 1)

    segmented(source, in_two_frames)
    error = refused(source, rules)
    assert error.problem.endswith(
        "SpacingBetweenSlices (0018,0088) is stated as 3 and as 3.6 mm; all slices of a SEG have "
        "one distance, and one thickness"
    )
    assert "seg.dcm" in str(error)
    assert error.hint


def test_a_distance_that_is_no_number_is_refused(source, rules):
    segmented(source, lambda dataset: measures(dataset, SpacingBetweenSlices=77.5))
    path = source / "seg.dcm"
    content = path.read_bytes()
    assert content.count(b"77.5") == 1
    path.write_bytes(content.replace(b"77.5", b"nan "))
    assert "SpacingBetweenSlices (0018,0088) is nan" in refused(source, rules).problem


def test_slices_of_a_faint_segment_are_said(source, rules):
    """All shares of a frame are below one half, so that nothing of the frame is read."""

    def change(dataset):
        frames = np.frombuffer(dataset.PixelData, np.uint8).reshape(-1, 20, 20).copy()
        frames[1] //= 3
        dataset.PixelData = frames.tobytes()

    segmented(source, change, kind="FRACTIONAL")
    text = "segment 1 fills no voxel of slice 2 to one half"
    assert drawn(source, rules) == ({1: AREA, 3: AREA}, [f"sub-P001: {text}"])


def test_a_frame_of_an_image_that_the_series_lacks_is_said(source, rules):
    def change(dataset):
        image = groups(dataset)[1].DerivationImageSequence[0].SourceImageSequence[0]
        image.ReferencedSOPInstanceUID = "1.2.3"

    segmented(source, change)
    text = (
        "1 of 3 frames of seg.dcm name images that its series does not have; their own positions "
        "say where they lie"
    )
    assert drawn(source, rules) == ({1: AREA, 2: AREA, 3: AREA}, [f"sub-P001: {text}"])


@pytest.mark.parametrize("keyword", ["PatientID", "StudyInstanceUID", "FrameOfReferenceUID"])
def test_a_segment_of_another_patient_or_place_is_refused(source, rules, keyword):
    segmented(source, lambda dataset: setattr(dataset.SegmentSequence[0], keyword, "1.2.3"))
    error = refused(source, rules)
    assert f"{keyword} (00" in error.problem
    assert "SegmentSequence" in error.problem


def test_a_region_of_which_others_leave_no_voxel_is_refused(source, rules):
    """Each of the two fills half of the same voxels, and a voxel belongs to one of them."""
    path = source / "rs.dcm"
    left = points(box(1.5, 1.5, 2.0, 5.5), 2)
    right = points(box(2.0, 1.5, 2.5, 5.5), 2)
    write_structures(path, slices(source)[0], {"ROI 1": [left], "ROI 2": [right]})
    error = refused(source, rules)
    assert "nothing is left of it" in error.problem
    assert error.roi == "2"


@pytest.mark.parametrize("kind", ["seg", "structures"])
def test_an_object_without_a_preamble_is_read(source, rules, kind):
    if kind == "seg":
        segmented(source)
    else:
        structures(source)
    (path,) = source.glob("*.dcm")
    dataset = pydicom.dcmread(path)
    del dataset.file_meta
    pydicom.dcmwrite(path, dataset, implicit_vr=False, little_endian=True)
    path.write_bytes(path.read_bytes().partition(b"DICM")[2])
    assert drawn(source, rules) == ({1: AREA, 2: AREA, 3: AREA}, [])


@pytest.mark.parametrize("mm", [1.5, 0.5])
def test_frames_between_the_slices_of_their_images_are_refused(source, rules, mm):
    def change(dataset):
        without_sources(dataset)
        shift(dataset, (0, 0, mm))

    segmented(source, change)
    problem = refused(source, rules).problem
    assert f"frame 1 lies {mm:.2f} mm off the nearest slice of the images" in problem


def test_a_frame_near_the_image_that_it_names_lies_on_its_slice(source, rules):
    segmented(source, lambda dataset: shift(dataset, (0, 0, 1.4)))
    assert drawn(source, rules) == ({1: AREA, 2: AREA, 3: AREA}, [])


def test_two_named_images_do_not_hide_another_plane(source, rules):
    def change(dataset):
        for group in groups(dataset):
            sources = group.DerivationImageSequence[0].SourceImageSequence
            sources.append(copy.deepcopy(sources[0]))
        shift(dataset, (0, 0, 3))

    segmented(source, change)
    problem = refused(source, rules).problem
    assert "a frame lies 3.00 mm off the plane of the image of ReferencedSOPInstanceUID" in problem


@pytest.mark.parametrize("named", [True, False])
def test_frames_that_reach_beyond_their_image_are_refused(source, rules, named):
    def other_sides(dataset):
        dataset.Rows = 10
        dataset.Columns = 40
        if not named:
            without_sources(dataset)

    segmented(source, other_sides)
    assert "frame 1 has 10 Rows and 40 Columns" in refused(source, rules).problem

    def moved(dataset):
        shift(dataset, (4, 0, 0))
        if not named:
            without_sources(dataset)

    segmented(source, moved)
    assert "begins 4.0 columns and 0.0 rows from the first" in refused(source, rules).problem

    def other_pixels(dataset):
        measures(dataset, PixelSpacing=[1.0, 0.5])
        if not named:
            without_sources(dataset)

    segmented(source, other_pixels)
    assert "Columns of 1 x 0.5 mm" in refused(source, rules).problem


@pytest.mark.parametrize("number", [0, 7])
def test_a_frame_of_a_segment_that_is_not_there_is_refused(source, rules, number):
    def change(dataset):
        groups(dataset)[1].SegmentIdentificationSequence[0].ReferencedSegmentNumber = number

    segmented(source, change, second=(4,))
    problem = refused(source, rules).problem
    assert f"ReferencedSegmentNumber (0062,000B) of frame 2 is {number}, which no" in problem


@pytest.mark.parametrize("place", ["frame", "shared"])
def test_a_frame_of_two_segments_or_of_none_is_refused(source, rules, place):
    other = Dataset()
    other.ReferencedSegmentNumber = 2

    def two(dataset):
        if place == "frame":
            groups(dataset)[0].SegmentIdentificationSequence.append(other)
        else:
            shared(dataset).SegmentIdentificationSequence = [other]

    segmented(source, two, second=(4,))
    assert "of frame 1 stands twice, as 1 and as 2" in refused(source, rules).problem

    def none(dataset):
        del groups(dataset)[1].SegmentIdentificationSequence

    segmented(source, none, second=(4,))
    assert "frame 2 without ReferencedSegmentNumber" in refused(source, rules).problem


@pytest.mark.parametrize("place", ["frame", "top"])
@pytest.mark.parametrize("keyword", ["ImageOrientationPatient", "PixelSpacing"])
def test_two_statements_of_a_place_are_refused(source, rules, place, keyword):
    value = [2.0, 2.0] if keyword == "PixelSpacing" else [-1, 0, 0, 0, 1, 0]
    macro = "PixelMeasuresSequence" if keyword == "PixelSpacing" else "PlaneOrientationSequence"

    def change(dataset):
        if place == "top":
            setattr(dataset, keyword, value)
            return
        item = copy.deepcopy(shared(dataset)[macro].value[0])
        setattr(item, keyword, value)
        setattr(groups(dataset)[1], macro, [item])

    segmented(source, change)
    problem = refused(source, rules).problem
    assert f"{keyword} (00" in problem
    assert "stands twice in the header of one frame" in problem


@pytest.mark.parametrize("place", ["frame", "shared"])
@pytest.mark.parametrize(
    "keyword", ["PatientID", "StudyInstanceUID", "FrameOfReferenceUID", "Rows"]
)
def test_a_frame_of_another_patient_or_study_is_refused(source, rules, place, keyword):
    def change(dataset):
        item = groups(dataset)[1] if place == "frame" else shared(dataset)
        setattr(item, keyword, 10 if keyword == "Rows" else "1.2.3")

    segmented(source, change)
    problem = refused(source, rules).problem
    assert "has one value at the top of the header, and another in" in problem


def test_more_functional_groups_than_frames_are_refused(source, rules):
    segmented(source, lambda dataset: groups(dataset).append(copy.deepcopy(groups(dataset)[2])))
    assert "3 frames, but functional groups for 4" in refused(source, rules).problem


def test_a_frame_without_a_position_is_named(source, rules):
    def change(dataset):
        del groups(dataset)[1].PlanePositionSequence

    segmented(source, change)
    assert "frame 2 has no ImagePositionPatient (0020,0032)" in refused(source, rules).problem


def test_two_frames_of_a_segment_in_one_slice_are_refused(source, rules):
    def change(dataset):
        without_sources(dataset)
        first, second = groups(dataset)[:2]
        second.PlanePositionSequence = copy.deepcopy(first.PlanePositionSequence)

    segmented(source, change)
    assert "frame 1 and frame 2 of one segment lie in one slice" in refused(source, rules).problem


def test_values_that_do_not_say_where_the_segment_is_are_refused(source, rules):
    def background(dataset):
        pixels = np.where(dataset.pixel_array > 0, 1, 3).astype(np.uint8)
        dataset.BitsAllocated = dataset.BitsStored = 8
        dataset.HighBit = 7
        dataset.PixelData = pixels.tobytes()

    segmented(source, background)
    assert "a BINARY segmentation with the values 1, 3" in refused(source, rules).problem
    segmented(source, lambda d: setattr(d, "MaximumFractionalValue", 1), kind="FRACTIONAL")
    assert "MaximumFractionalValue (0062,000E) is 1" in refused(source, rules).problem
    segmented(source, lambda d: setattr(d, "PixelPaddingValue", 1), kind="LABELMAP")
    assert "a label map with the values 0, 1 and the background 1" in refused(source, rules).problem


def test_a_segment_of_number_0_is_named(source, rules):
    segmented(source, lambda dataset: setattr(dataset.SegmentSequence[0], "SegmentNumber", 0))
    problem = refused(source, rules).problem
    assert "SegmentNumber (0062,0004) is 0; segments are numbered from 1" in problem


def test_a_seg_of_a_lacking_series_needs_the_distance_of_its_slices(source, rules):
    def change(dataset):
        dataset.ReferencedSeriesSequence[0].SeriesInstanceUID = "1.2.3"
        measures(dataset, SpacingBetweenSlices=None, SliceThickness=None)
        shared(dataset).PixelMeasuresSequence[0].SliceThickness = ""

    segmented(source, change, (0, 4))
    problem = refused(source, rules).problem
    assert "neither SpacingBetweenSlices (0018,0088) nor SliceThickness" in problem

    def thickness(dataset):
        dataset.ReferencedSeriesSequence[0].SeriesInstanceUID = "1.2.3"
        measures(dataset, SpacingBetweenSlices=None, SliceThickness=3)

    segmented(source, thickness, (0, 4))
    assert drawn(source, rules)[0] == {0: AREA, 4: AREA}


# --- objects that are left out -------------------------------------------------------------------


def test_an_object_of_another_study_is_said(source, rules):
    segmented(source)
    edit(source / "seg.dcm", StudyInstanceUID="1.2.3")
    summary = imported(source, rules)
    assert summary.failures == []
    assert summary.awaiting == ["sub-P001"]
    assert [
        note for note in summary.notes if "seg.dcm is left out: the source has no image" in note
    ]


@pytest.mark.parametrize("modality", ["MR", "OT", "RTSTRUCT"])
def test_a_seg_of_another_modality_is_refused(source, rules, modality):
    segmented(source)
    edit(source / "seg.dcm", Modality=modality)
    problem = refused(source, rules).problem
    assert f"Modality (0008,0060) is '{modality}', but SOPClassUID (0008,0016) is that" in problem


def test_a_seg_of_another_class_is_refused(source, rules):
    segmented(source)
    edit(source / "seg.dcm", SOPClassUID=RTStructureSetStorage)
    assert "Modality (0008,0060) is 'SEG'" in refused(source, rules).problem


def test_a_result_of_this_program_is_said(source, rules):
    segmented(source)
    edit(source / "seg.dcm", ManufacturerModelName=OWN_MODEL_NAME)
    summary = imported(source, rules)
    assert summary.awaiting == ["sub-P001"]
    assert "sub-P001: seg.dcm is a result of this program, and no drawing; it is left out" in (
        summary.notes
    )


def test_the_part_of_a_region_that_the_image_cuts_off_is_said(source, rules):
    """The series that was drawn on is longer than T2."""
    array = np.zeros((8, 20, 20), np.uint16)
    longer = write_series(
        source / "longer", array, number=7, description="longer", origin=(0, 0, 3.0)
    )
    mask = np.zeros(array.shape, bool)
    mask[3:6] = MASK[0]
    write_seg(source / "seg.dcm", longer, {"ROI 1": mask})
    counts, notes = drawn(source, rules)
    assert counts == {4: AREA, 5: AREA}
    assert notes == [
        "sub-P001: 33% of a region of seg.dcm lie outside of the image on which regions are kept, "
        "and are left out; nothing is left of slice 5"
    ]


# Three slices around the one of pydicom's SEG of a liver.
GRID = Volume(
    np.zeros((3, 512, 512), bool),
    (0.810547, 0.810547, 1.0),
    (-235.2, -226.8, -129.69),
    np.eye(3),
)


@pytest.mark.parametrize("name", ["liver_1frame.dcm", "liver_expb_1frame.dcm"])
def test_a_real_seg_is_read_voxel_for_voxel(name):
    """A frame that dcmqi wrote, as little and as big endian; pydicom cut the others off."""
    path = Path(get_testdata_file(name))
    dataset = pydicom.dcmread(path)
    with pytest.raises(CadError, match="1 frames, but functional groups for 3"):
        read_drawn_regions(dataset, path, GRID, "", GRID)
    del dataset.PerFrameFunctionalGroupsSequence[1:]
    (region,), notes = read_drawn_regions(dataset, path, GRID, "", GRID)
    assert notes == []
    stored = dataset.pixel_array > 0
    assert stored.sum() == 36233
    assert ((region.share >= 0.5) == np.stack([0 * stored, stored, 0 * stored])).all()
