"""DICOM SEG and RTSTRUCT: analytic shapes in the right place to half a voxel, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import highdicom
import numpy as np
import pydicom
import pytest
from dicom_files import edit, uid, write_seg, write_series, write_structures
from scipy.spatial.transform import Rotation

from cad.base.errors import CadError
from cad.mri.imaging.annotations import read_drawn_regions, referenced_images
from cad.mri.imaging.frames import read_dataset
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.polygons import fill_polygons
from cad.mri.imaging.stacks import stacks_of
from cad.mri.imaging.volume import Volume

TILT = Rotation.from_euler("xyz", [23.3, 4, -7], degrees=True).as_matrix()
SPACING = (0.7, 1.3, 3.5)
SHAPE = (9, 40, 60)
ORIGIN = (-20.0, 11.0, 35.0)


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """An oblique series with non-square pixels."""
    array = np.random.default_rng(0).integers(0, 900, SHAPE).astype(np.uint16)
    return write_series(
        tmp_path / "t2", array, spacing=SPACING, origin=ORIGIN, direction=TILT, frame="f"
    )


@pytest.fixture
def grid(images: list[Path]) -> Volume:
    listing = list_files(images)
    (slices,) = listing.studies.values()
    (stack,) = stacks_of(slices)
    return Volume(np.zeros(stack.shape, bool), stack.spacing, stack.origin, stack.direction)


def regions(path: Path, grid: Volume, on: Volume | None = None):
    return read_drawn_regions(read_dataset(path), path, grid, "", on or grid)


def ring(grid: Volume, z: float, centre_mm, radius_mm: float, n: int = 400) -> np.ndarray:
    """A circle of LPS points in slice z; centre in mm along the slice's own axes."""
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    x = (centre_mm[0] + radius_mm * np.cos(angle)) / grid.spacing[0]
    y = (centre_mm[1] + radius_mm * np.sin(angle)) / grid.spacing[1]
    return grid.index_to_patient(np.stack([x, y, np.full(n, float(z))], axis=1))


def centre_mm(mask: np.ndarray, spacing) -> np.ndarray:
    return (np.argwhere(mask)[:, ::-1] * np.array(spacing)).mean(axis=0)


# --- polygons ------------------------------------------------------------------------------------


def test_square_on_pixel_borders_is_exact():
    square = np.array([[1.5, 2.5], [4.5, 2.5], [4.5, 5.5], [1.5, 5.5]])
    share = fill_polygons([square], (8, 8))
    expected = np.zeros((8, 8))
    expected[3:6, 2:5] = 1
    assert np.allclose(share, expected)


def test_half_a_pixel_is_a_half():
    share = fill_polygons([np.array([[2, 1.5], [5.25, 1.5], [5.25, 2.5], [2, 2.5]])], (5, 8))
    assert np.allclose(share[2], [0, 0, 0.5, 1, 1, 0.75, 0, 0])


def test_triangle_area():
    corners = np.array([[1.2, 1.1], [17.9, 6.3], [7.4, 18.8]])
    (a, b), (c, d) = corners[1] - corners[0], corners[2] - corners[0]
    assert fill_polygons([corners], (20, 20)).sum() == pytest.approx(
        abs(a * d - b * c) / 2, rel=2e-3
    )


def test_holes_islands_and_keyholes():
    outer = np.array([[0.5, 0.5], [8.5, 0.5], [8.5, 8.5], [0.5, 8.5]])
    hole = np.array([[2.5, 2.5], [6.5, 2.5], [6.5, 6.5], [2.5, 6.5]])
    island = np.array([[3.5, 3.5], [5.5, 3.5], [5.5, 5.5], [3.5, 5.5]])
    share = fill_polygons([outer, hole, island], (10, 10))
    assert share.sum() == pytest.approx(64 - 16 + 4)
    keyhole = np.concatenate([outer, outer[:1], hole[::-1][-1:], hole[::-1], outer[:1]])
    assert fill_polygons([keyhole], (10, 10)).sum() == pytest.approx(64 - 16, abs=1e-6)


def test_polygons_may_leave_the_image():
    share = fill_polygons([np.array([[-5, -5], [20, -5], [20, 20], [-5, 20]], float)], (4, 6))
    assert (share == 1).all()
    away = fill_polygons([np.array([[50, 50], [60, 50], [60, 60]], float)], (4, 6))
    assert (away == 0).all()


# --- RTSTRUCT ------------------------------------------------------------------------------------


def test_oblique_cylinder_with_a_hole(images, grid, tmp_path):
    """Oblique planes, non-square pixels, a hole: area, volume and place are the analytic ones."""
    centre, outer, inner = np.array([21.3, 25.6]), 12.0, 5.0
    contours = [ring(grid, z, centre, r) for z in range(2, 7) for r in (outer, inner)]
    write_structures(tmp_path / "rs.dcm", images[0], {"lesion 1": contours})
    (found,), notes = regions(tmp_path / "rs.dcm", grid)
    assert found.name == "lesion 1"
    assert notes == []
    voxel = float(np.prod(SPACING))
    analytic = np.pi * (outer**2 - inner**2) * 5 * SPACING[2]
    assert found.share.sum() * voxel == pytest.approx(analytic, rel=1e-3)
    mask = found.share >= 0.5
    assert mask.sum() * voxel == pytest.approx(analytic, rel=0.03)
    assert np.abs(centre_mm(mask, SPACING) - [*centre, 4 * SPACING[2]]).max() < min(SPACING) / 2
    place = np.tensordot(found.share, np.indices(SHAPE)[::-1], axes=((0, 1, 2), (1, 2, 3)))
    assert np.abs(place / found.share.sum() * SPACING - [*centre, 14.0]).max() < 0.01
    # Every voxel on the right side of both circles, up to half a voxel's diagonal.
    z, y, x = np.indices(SHAPE)
    distance = np.hypot(x * SPACING[0] - centre[0], y * SPACING[1] - centre[1])
    half = np.hypot(SPACING[0], SPACING[1]) / 2
    slab = (z >= 2) & (z <= 6)
    assert mask[slab & (distance < outer - half) & (distance > inner + half)].all()
    assert not mask[~slab | (distance > outer + half) | (distance < inner - half)].any()


def test_several_structures_points_and_skipped_slices(images, grid, tmp_path):
    path = tmp_path / "rs.dcm"
    write_structures(
        path,
        images[0],
        {
            "a": [ring(grid, z, (12, 15), 6) for z in (2, 4)],
            "b": [ring(grid, 5, (30, 30), 6), ring(grid, 5, (10, 30), 5)],
        },
    )
    found, notes = regions(path, grid)
    assert [r.name for r in found] == ["a", "b"]
    assert notes == ["structure 1 has no contour on slice 3, between its first and last"]
    areas = [r.share.sum() * SPACING[0] * SPACING[1] for r in found]
    assert areas == pytest.approx([2 * np.pi * 36, np.pi * (36 + 25)], rel=2e-3)
    assert list(referenced_images(read_dataset(path))) == [
        pydicom.dcmread(images[0]).SeriesInstanceUID
    ]


def test_drawn_on_another_series(images, grid, tmp_path):
    """Contours on coarser slices of another series arrive on the T2 grid by volume."""
    own = Volume(np.zeros((5, 30, 30), bool), (1.5, 1.5, 6.0), ORIGIN, TILT)
    contours = [ring(own, z, (20, 24), 9) for z in (1, 2, 3)]
    write_structures(tmp_path / "rs.dcm", images[0], {"a": contours})
    path = tmp_path / "rs.dcm"
    (found,), _ = read_drawn_regions(read_dataset(path), path, own, "", grid)
    volume = found.share.sum() * np.prod(SPACING)
    assert volume == pytest.approx(np.pi * 81 * 18, rel=2e-3)
    mask = found.share >= 0.5
    assert np.abs(centre_mm(mask, SPACING)[:2] - [20, 24]).max() < 0.35
    assert centre_mm(mask, SPACING)[2] == pytest.approx(12.0, abs=SPACING[2] / 2)


def structure_error(path: Path, grid: Volume) -> CadError:
    with pytest.raises(CadError) as caught:
        regions(path, grid)
    assert caught.value.file == str(path)
    return caught.value


def test_contours_off_the_planes_are_refused(images, grid, tmp_path):
    path = tmp_path / "rs.dcm"
    write_structures(path, images[0], {"lesion7": [ring(grid, 3.3, (20, 20), 6)]})
    error = structure_error(path, grid)
    assert error.roi == "lesion7"
    assert "1.05 mm off the nearest slice plane; allowed 0.35 mm" in error.problem
    write_structures(path, images[0], {"a": [ring(grid, 11, (20, 20), 6)]})
    assert "slice 11, outside the images' 0 to 8" in structure_error(path, grid).problem


def test_contours_that_enclose_nothing(images, grid, tmp_path):
    path = tmp_path / "rs.dcm"
    write_structures(path, images[0], {"a": [ring(grid, 3, (20, 20), 6)]}, kind="OPEN_PLANAR")
    assert "encloses no area" in structure_error(path, grid).problem
    write_structures(path, images[0], {"a": [ring(grid, 3, (20, 20), 6)]}, kind="POINT")
    assert "no closed contour" in structure_error(path, grid).problem
    write_structures(path, images[0], {"a": [ring(grid, 3, (20, 20), 6, n=2)]})
    assert "2 points" in structure_error(path, grid).problem
    write_structures(path, images[0], {"a": [ring(grid, 3, (20.1, 20.1), 0.2)]})
    assert "empty" in structure_error(path, grid).problem


def test_another_frame_of_reference(images, grid, tmp_path):
    path = tmp_path / "rs.dcm"
    write_structures(path, images[0], {"a": [ring(grid, 3, (20, 20), 6)]})
    with pytest.raises(CadError, match="another frame of reference"):
        read_drawn_regions(read_dataset(path), path, grid, "1.2.3", grid)


def test_damaged_structures(images, grid, tmp_path):
    path = tmp_path / "rs.dcm"
    write_structures(path, images[0], {"a": [ring(grid, 3, (20, 20), 6)]})
    edit(path, StructureSetROISequence=None)
    assert "not a sound SEG or RTSTRUCT" in structure_error(path, grid).problem
    path.write_bytes(b"nothing")
    with pytest.raises(CadError, match="damaged"):
        read_dataset(path)


# --- SEG -----------------------------------------------------------------------------------------


def balls() -> dict[str, np.ndarray]:
    z, y, x = np.indices(SHAPE)
    masks = {}
    for name, centre, radius in (("lesion1", (15, 20, 14), 8.0), ("lesion2", (30, 30, 14), 6.0)):
        distance = (x * SPACING[0] - centre[0]) ** 2 + (y * SPACING[1] - centre[1]) ** 2
        masks[name] = distance + (z * SPACING[2] - centre[2]) ** 2 <= radius**2
    return masks


@pytest.mark.parametrize("kind", ["BINARY", "FRACTIONAL", "LABELMAP"])
def test_segments_come_back_voxel_for_voxel(images, grid, tmp_path, kind):
    masks = balls()
    if kind == "LABELMAP":
        masks["lesion2"] &= ~masks["lesion1"]
    write_seg(tmp_path / "seg.dcm", images, masks, kind)
    found, notes = regions(tmp_path / "seg.dcm", grid)
    assert [r.name for r in found] == ["lesion1", "lesion2"]
    assert notes == []
    for region in found:
        assert ((region.share >= 0.5) == masks[region.name]).all()
    named = referenced_images(read_dataset(tmp_path / "seg.dcm"))
    instances = [pydicom.dcmread(path).SOPInstanceUID for path in images]
    assert list(named) == [uid("P-001", "study1", 1)]
    assert set(named[uid("P-001", "study1", 1)]) <= set(instances)


def test_highdicom_reads_the_same_voxels(images, grid, tmp_path):
    """highdicom's own reader, which sorts frames by itself, agrees on every voxel."""
    write_seg(tmp_path / "seg.dcm", images, balls())
    found, _ = regions(tmp_path / "seg.dcm", grid)
    theirs = highdicom.seg.segread(tmp_path / "seg.dcm").get_volume(
        segment_numbers=[1], combine_segments=True
    )
    geometry = highdicom.VolumeGeometry(
        affine=highdicom.get_volume_from_series([pydicom.dcmread(p) for p in images]).affine,
        spatial_shape=SHAPE,
        coordinate_system="PATIENT",
    )
    assert (theirs.match_geometry(geometry).array == (found[0].share >= 0.5)).all()


def test_empty_frames_are_read_and_empty_segments_refused(images, grid, tmp_path):
    path = tmp_path / "seg.dcm"
    masks = balls()
    write_seg(path, images, masks, keep_empty=True)
    found, notes = regions(path, grid)
    assert len(found) == 2
    assert notes == []
    masks["lesion2"][:] = False
    write_seg(path, images, masks, keep_empty=True)
    error = structure_error(path, grid)
    assert (error.roi, "segment is empty" in error.problem) == ("lesion2", True)


def test_segments_of_a_coarser_series(images, grid, tmp_path):
    """A SEG drawn on ADC slices arrives on the T2 grid with its volume and centre."""
    shape, spacing = (8, 28, 24), (1.9, 1.9, 4.0)
    own = Volume(np.zeros(shape, bool), spacing, ORIGIN, TILT)
    z, y, x = np.indices(shape)
    centre, radius = np.array([22.0, 24.0, 15.0]), 9.0
    inside = ((np.stack([x, y, z], axis=-1) * spacing - centre) ** 2).sum(axis=-1) <= radius**2
    adc = write_series(
        tmp_path / "adc",
        inside.astype(np.uint16),
        spacing=spacing,
        origin=ORIGIN,
        direction=TILT,
        number=2,
        frame="f",
    )
    write_seg(tmp_path / "seg.dcm", adc, {"a": inside})
    (found,), _ = regions(tmp_path / "seg.dcm", own, grid)
    voxels = inside.sum() * np.prod(spacing)
    assert found.share.sum() * np.prod(SPACING) == pytest.approx(voxels, rel=1e-3)
    expected = centre_mm(inside, spacing)
    shares = found.share[..., None] * (np.indices(SHAPE)[::-1].transpose(1, 2, 3, 0) * SPACING)
    assert np.abs(shares.sum(axis=(0, 1, 2)) / found.share.sum() - expected).max() < 0.05


def test_frames_without_a_regular_grid(images, grid, tmp_path):
    path = tmp_path / "seg.dcm"
    write_seg(path, images, balls())
    dataset = pydicom.dcmread(path)
    groups = dataset.PerFrameFunctionalGroupsSequence
    place = groups[1].PlanePositionSequence[0]
    place.ImagePositionPatient = [float(v) + 1.2 for v in place.ImagePositionPatient]
    dataset.save_as(path)
    assert "no regular grid" in structure_error(path, grid).problem
    edit(path, PerFrameFunctionalGroupsSequence=None)
    assert "8 frames that does not say where each lies" in structure_error(path, grid).problem


@pytest.fixture
def drawn(images: list[Path], tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A SEG of one segment, on the second and fourth slice, that states no distance of slices."""
    path = tmp_path / "seg.dcm"
    mask = np.zeros(SHAPE, bool)
    mask[[1, 3], 5:9, 6:12] = True
    write_seg(path, images, {"a": mask})
    dataset = pydicom.dcmread(path)
    measures = dataset.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    if "SpacingBetweenSlices" in measures:
        del measures.SpacingBetweenSlices
    dataset.save_as(path)
    return path, mask


@pytest.mark.parametrize("known", [True, False])
def test_slices_without_a_frame_stay_empty(images, grid, drawn, known):
    """The distance of the images is taken, or the thickness of a slice, where a SEG states none."""
    path, mask = drawn
    sources = next(iter(list_files(images).studies.values())) if known else []
    (region,), notes = read_drawn_regions(
        pydicom.dcmread(path), path, grid, "", grid, images=sources
    )
    assert ((region.share >= 0.5) == mask).all()
    assert notes == []


def test_a_region_of_one_slice_is_as_thick_as_its_slice(images, grid, drawn):
    path, mask = drawn
    mask[3] = False
    write_seg(path, images, {"a": mask})
    dataset = pydicom.dcmread(path)
    measures = dataset.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    if "SpacingBetweenSlices" in measures:
        del measures.SpacingBetweenSlices
    dataset.save_as(path)
    (region,), _ = read_drawn_regions(dataset, path, grid, "", grid)
    assert ((region.share >= 0.5) == mask).all()
    dataset = pydicom.dcmread(path)
    del dataset.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].SliceThickness
    with pytest.raises(CadError, match=r"neither SpacingBetweenSlices .* nor SliceThickness"):
        read_drawn_regions(dataset, path, grid, "", grid)


@pytest.mark.parametrize("macro", ["PlanePositionSequence", "PlaneOrientationSequence"])
@pytest.mark.parametrize("kind", ["shared", "frame"])
def test_a_frame_of_a_seg_that_lies_in_two_places_is_refused(images, grid, drawn, macro, kind):
    path, _ = drawn
    dataset = pydicom.dcmread(path)
    (shared,) = dataset.SharedFunctionalGroupsSequence
    group = dataset.PerFrameFunctionalGroupsSequence[0]
    item = pydicom.Dataset()
    if macro == "PlanePositionSequence":
        item.ImagePositionPatient = [0, 0, 99]
    else:
        item.ImageOrientationPatient = [0, 1, 0, 0, 0, 1]
    place = shared if kind == "shared" else group
    setattr(place, macro, [*place.get(macro, []), item])
    with pytest.raises(CadError, match="stands twice in the header of one frame") as caught:
        read_drawn_regions(dataset, path, grid, "", grid)
    assert caught.value.file == str(path)


def test_a_seg_whose_rows_and_columns_are_exchanged_is_refused(tmp_path):
    plane = np.zeros((5, 48, 36), np.uint16)
    series = write_series(tmp_path / "long", plane)
    y, x = np.indices((48, 36))
    mask = np.broadcast_to((x - 15) ** 2 + (y - 20) ** 2 < 81, plane.shape)
    path = tmp_path / "long.dcm"
    write_seg(path, series, {"a": mask})
    (frames,) = list_files(series).studies.values()
    place = stacks_of(frames)[0].grid
    (region,), _ = read_drawn_regions(pydicom.dcmread(path), path, place, "", place)
    assert ((region.share >= 0.5) == mask).all()
    edit(path, Rows=36, Columns=48)
    with pytest.raises(CadError, match=r"Rows .* 36 and Columns .* 48 are exchanged") as caught:
        read_drawn_regions(pydicom.dcmread(path), path, place, "", place)
    assert caught.value.file == str(path)


def test_a_contour_that_leaves_the_images_is_refused(images, grid, tmp_path):
    """A part outside of them was cut off without a word."""
    path = tmp_path / "rs.dcm"
    origin = np.array(grid.origin) + grid.spacing[2] * grid.direction[:, 2]
    x = grid.spacing[0] * grid.direction[:, 0]
    y = grid.spacing[1] * grid.direction[:, 1]

    def square(left: float) -> np.ndarray:
        corners = ((left, 1.5), (left + 6, 1.5), (left + 6, 7.5), (left, 7.5))
        return np.array([origin + column * x + row * y for column, row in corners])

    write_structures(path, images[0], {"a": [square(-0.5)]})
    (region,), _ = regions(path, grid)
    assert (region.share >= 0.5).sum() == 36
    write_structures(path, images[0], {"a": [square(-3.5)]})
    error = structure_error(path, grid)
    assert "a contour on slice 1 leaves the images" in error.problem


def test_a_region_that_the_grid_cuts_is_noted(images, grid, drawn):
    path, mask = drawn
    half = replace(grid, array=grid.array[:3])
    (region,), notes = read_drawn_regions(pydicom.dcmread(path), path, grid, "", half)
    assert ((region.share >= 0.5) == mask[:3]).all()
    assert notes == [
        "50% of a region of seg.dcm lie outside of the image on which regions are kept, and are "
        "left out; nothing is left of slice 3"
    ]


@pytest.mark.filterwarnings("ignore:.*exceeds the size of 64 kByte")
def test_a_contour_of_more_than_64_kib_is_read(images, grid, tmp_path):
    """An element of this VR holds 64 KiB; a longer one is written as UN (PS3.5 6.2.2).

    Its bytes are no coordinates, not even if their number can be divided by 3.
    """
    path = tmp_path / "rs.dcm"
    write_structures(path, images[0], {"a": [ring(grid, 2, (20, 25), 12, n=5000)]})
    content = path.read_bytes()
    assert b"\x06\x30\x50\x00UN" in content
    (region,), _ = regions(path, grid)
    area = region.share.sum() * SPACING[0] * SPACING[1]
    assert abs(area - np.pi * 144) < 1
