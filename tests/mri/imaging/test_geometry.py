"""Regions in other grids: exact shares, analytic shapes, half a voxel, and every refusal."""

from __future__ import annotations

import numpy as np
import pytest
import SimpleITK as sitk
from scipy.spatial.transform import Rotation

from cad.base.errors import CadError
from cad.mri.imaging.geometry import occupancy, overlaps, resample_image, resample_mask, roi_in_grid
from cad.mri.imaging.nifti import read_image
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Volume


def grid(shape, spacing=(1.0, 1.0, 1.0), origin=(0.0, 0.0, 0.0), direction=None):
    return Volume(
        np.zeros(shape), spacing, origin, np.eye(3) if direction is None else np.asarray(direction)
    )


def ball(of: Volume, centre, radius: float) -> Volume:
    z, y, x = np.indices(of.shape)
    points = of.index_to_patient(np.stack([x, y, z], axis=-1))
    return of.with_array(((points - centre) ** 2).sum(axis=-1) <= radius**2)


def test_same_grid_gives_the_same_mask():
    mask = ball(grid((9, 10, 11)), (5, 5, 4), 3)
    assert (resample_mask(mask, grid((9, 10, 11))).array == mask.array).all()


@pytest.mark.parametrize(("shift", "share"), [(0.0, 1.0), (0.25, 0.75), (0.5, 0.5), (0.75, 0.25)])
def test_share_of_a_shifted_voxel_is_exact(shift, share):
    mask = grid((3, 3, 3))
    mask.array[1, 1, 1] = 1.0
    moved = grid((3, 3, 3), origin=(shift, 0, 0))
    assert occupancy(mask, moved).array[1, 1, 1] == pytest.approx(share)


def test_half_a_voxel_is_inside():
    mask = grid((1, 1, 4))
    mask.array[0, 0, 1:3] = 1  # x from .5 to 2.5
    coarse = grid((1, 1, 2), spacing=(2.0, 1.0, 1.0), origin=(0.5, 0, 0))  # edges -.5, 1.5, 3.5
    assert resample_mask(mask, coarse).array.tolist() == [[[True, True]]]
    nudged = grid((1, 1, 2), spacing=(2.0, 1.0, 1.0), origin=(0.49, 0, 0))
    assert resample_mask(mask, nudged).array.tolist() == [[[False, True]]]


def test_hand_counted_block():
    """A 4 x 2 mm block on a 2 mm grid whose voxels start at the block's edge: 2 x 1 voxels."""
    mask = grid((1, 6, 6), spacing=(1, 1, 2))
    mask.array[0, 2:4, 1:5] = 1  # x .5..4.5, y 1.5..3.5
    coarse = grid((1, 3, 3), spacing=(2, 2, 2), origin=(1.5, 0.5, 0))
    # x voxels .5-2.5, 2.5-4.5, 4.5-6.5; y voxels -.5-1.5, 1.5-3.5, 3.5-5.5
    assert np.argwhere(resample_mask(mask, coarse).array).tolist() == [[0, 1, 0], [0, 1, 1]]


def test_axes_may_be_flipped_and_exchanged():
    rng = np.random.default_rng(0)
    mask = Volume(rng.random((4, 5, 6)) > 0.5, (1, 2, 3), (10, 20, 30), np.eye(3))
    # The same voxels described with axes z, -x, y.
    direction = np.array([[0, -1, 0], [0, 0, 1], [1, 0, 0]], float)
    array = mask.array[:, :, ::-1].transpose(1, 2, 0)
    corner = mask.index_to_patient(np.array([5, 0, 0]))
    other = Volume(array, (3.0, 1.0, 2.0), tuple(corner), direction)
    assert (resample_mask(mask, other.with_array(np.zeros(array.shape))).array == array).all()


@pytest.mark.parametrize("angle", [0, 7, 30])
def test_ball_keeps_volume_and_centre(angle):
    """An analytic ball: volume within its discretisation, centre within half a voxel."""
    fine = grid((60, 60, 60), spacing=(0.5, 0.5, 0.5), origin=(-15, -15, -15))
    centre, radius = np.array([0.3, -0.4, 0.2]), 6.0
    mask = ball(fine, centre, radius)
    rotation = Rotation.from_euler("xyz", [angle, angle / 2, 0], degrees=True).as_matrix()
    coarse = grid((24, 24, 24), (1.5, 1.3, 2.0), (0, 0, 0), rotation)
    middle = coarse.index_to_patient(np.array([11.5, 11.5, 11.5]))
    coarse = grid((24, 24, 24), (1.5, 1.3, 2.0), tuple(-middle), rotation)
    share = occupancy(mask, coarse).array
    voxel = np.prod(coarse.spacing)
    assert share.sum() * voxel == pytest.approx(mask.array.sum() * 0.125, rel=2e-3)
    assert mask.array.sum() * 0.125 == pytest.approx(4 / 3 * np.pi * radius**3, rel=0.01)
    inside = resample_mask(mask, coarse)
    assert inside.array.sum() * voxel == pytest.approx(4 / 3 * np.pi * radius**3, rel=0.05)
    found = inside.index_to_patient(np.argwhere(inside.array)[:, ::-1]).mean(axis=0)
    assert np.abs(found - centre).max() < 0.25


def test_tilted_share_agrees_with_dense_sampling():
    rng = np.random.default_rng(1)
    mask = grid((6, 6, 6), (1.1, 0.9, 2.0), (-3, -3, -5))
    mask.array[:] = rng.random(mask.shape) > 0.4
    rotation = Rotation.from_euler("xyz", [12, -8, 20], degrees=True).as_matrix()
    tilted = grid((5, 5, 5), (1.7, 1.4, 2.3), (-3, -3, -5), rotation)
    share = occupancy(mask, tilted).array
    z, y, x = np.indices(tilted.shape)
    index = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    points = index[:, None] + rng.random((1, 20000, 3)) - 0.5
    at = np.floor(mask.patient_to_index(tilted.index_to_patient(points)) + 0.5).astype(int)
    valid = ((at >= 0) & (at < 6)).all(axis=-1)
    at = np.clip(at, 0, 5)
    hit = mask.array[at[..., 2], at[..., 1], at[..., 0]] * valid
    reference = hit.mean(axis=1).reshape(tilted.shape)
    assert np.abs(share - reference).max() < 0.07
    assert np.abs(share - reference).mean() < 0.01


def test_nearly_parallel_grids_meet_both_computations():
    """The exact and the sampled share agree where a tilt is just above the tolerance."""
    mask = ball(grid((20, 20, 20)), (10, 10, 10), 5)
    tilt = Rotation.from_euler("z", 0.06, degrees=True).as_matrix()
    exact = occupancy(mask, grid((10, 10, 10), (2, 2, 2), (0.3, 0.4, 0.5))).array
    sampled = occupancy(mask, grid((10, 10, 10), (2, 2, 2), (0.3, 0.4, 0.5), tilt)).array
    assert np.abs(exact - sampled).max() < 0.15
    assert sampled.sum() == pytest.approx(exact.sum(), rel=5e-3)


def test_linear_interpolation_is_exact_on_a_ramp():
    rotation = Rotation.from_euler("xyz", [5, 4, 3], degrees=True).as_matrix()
    source = grid((12, 12, 12), (2, 2, 2), (-11, -11, -11))
    z, y, x = np.indices(source.shape)
    points = source.index_to_patient(np.stack([x, y, z], axis=-1))
    slope = np.array([1.0, -2.0, 0.5])
    source = source.with_array(points @ slope + 7)
    target = grid((5, 5, 5), (1, 1, 1), (-2, -2, -2), rotation)
    z, y, x = np.indices(target.shape)
    expected = target.index_to_patient(np.stack([x, y, z], axis=-1)) @ slope + 7
    assert np.abs(resample_image(source, target).array - expected).max() < 1e-4
    far = grid((2, 2, 2), origin=(500, 0, 0))
    assert np.isnan(resample_image(source, far).array).all()


def study_with(mask: Volume) -> Study:
    return Study("sub-01", "sub-01", roi_map=mask, rois=[Roi("lesion1", 1)])


def refusal(mask: Volume, image: Volume, label: int = 1) -> CadError:
    with pytest.raises(CadError) as caught:
        roi_in_grid(study_with(mask), Roi("lesion1", label), image)
    assert caught.value.patient == "sub-01"
    assert caught.value.roi == "lesion1"
    assert caught.value.hint
    return caught.value


def test_refusals_name_patient_roi_value_and_rule():
    fine = grid((10, 10, 10))
    fine.array[4:6, 4:6, 4:6] = 1
    assert "no voxel of the label map has the value 2" in str(refusal(fine, fine, label=2))
    away = grid((10, 10, 10), origin=(300, 0, 0))
    assert "outside the image" in str(refusal(fine, away))
    cut = grid((5, 10, 10))
    assert "4 of its 8 mask voxels" in str(refusal(fine, cut))
    coarse = grid((5, 5, 5), (2, 2, 2), (0.5, 0.5, 0.5))
    assert "1 voxels of 2 x 2 x 2 mm" in str(refusal(fine, coarse))
    with pytest.raises(CadError, match="no label map"):
        roi_in_grid(Study("sub-01", "sub-01"), Roi("a", 1), fine)


def test_a_region_that_is_large_enough_passes():
    fine = grid((10, 10, 10))
    fine.array[2:8, 2:8, 2:8] = 1
    coarse = grid((5, 5, 5), (2, 2, 2), (0.5, 0.5, 0.5))
    mask = roi_in_grid(study_with(fine), Roi("lesion1", 1), coarse)
    assert mask.array.dtype == bool
    assert mask.array.sum() == 27


def test_overlap_of_boxes():
    a = grid((4, 4, 4))
    assert overlaps(a, grid((4, 4, 4), origin=(3.4, 0, 0)))
    assert not overlaps(a, grid((4, 4, 4), origin=(4.6, 0, 0)))
    quarter = Rotation.from_euler("z", 45, degrees=True).as_matrix()
    assert not overlaps(a, grid((4, 4, 4), origin=(9, 2, 0), direction=quarter))


@pytest.mark.parametrize("kind", ["nrrd", "mha"])
def test_a_file_that_says_where_it_lies_is_read_its_thick_axis_last(tmp_path, kind):
    turn = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    image = grid((6, 5, 4), (3.0, 0.6, 0.7), (5.0, -7.0, 9.0), turn)
    image = image.with_array(np.arange(120.0).reshape(6, 5, 4))
    path = tmp_path / f"x.{kind}"
    sitk.WriteImage(image.to_sitk(), str(path))
    found = read_image(path)
    assert found.spacing == (0.6, 0.7, 3.0)
    assert found.shape == (4, 6, 5)
    index = np.argwhere(image.array == 50.0)[0][::-1]
    there = np.argwhere(found.array == 50.0)[0][::-1]
    np.testing.assert_allclose(
        found.index_to_patient(there), image.index_to_patient(index), atol=1e-6
    )


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("gipl", b"", b""),
        ("vtk", b"", b""),
        ("nrrd", b"space origin: (1,2,3)\n", b""),
        ("nrrd", b"left-posterior-superior", b"scanner-xyz"),
        ("nrrd", b"space origin", b'space units: "m" "m" "m"\nspace origin'),
        ("mha", b"ElementSpacing = 0.5 0.5 3\n", b""),
        ("mha", b"Offset = 1 2 3\n", b""),
        ("mha", b"TransformMatrix = 1 0 0 0 1 0 0 0 1\n", b""),
    ],
)
def test_a_file_that_does_not_say_where_it_lies_is_refused(tmp_path, kind, old, new):
    """As NIfTI without codes is: what is missing would become steps of 1 mm and an origin of 0."""
    path = tmp_path / f"x.{kind}"
    image = grid((3, 4, 5), (0.5, 0.5, 3.0), (1.0, 2.0, 3.0)).with_array(np.ones((3, 4, 5)))
    sitk.WriteImage(image.to_sitk(), str(path))
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new) if old else content)
    with pytest.raises(CadError, match="does not say in mm where it lies"):
        read_image(path)
