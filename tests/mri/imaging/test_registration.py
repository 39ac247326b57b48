"""Registration: a known displacement is found back, voxels stay as measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation

from cad.base.errors import CadError
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.registration import (
    Registration,
    align_study,
    image_information,
    register_rigid,
)
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Dynamic, Volume

TILT = Rotation.from_euler("x", -23, degrees=True).as_matrix()


def scene(seed: int = 0) -> Volume:
    """Smooth structures on a tilted grid."""
    rng = np.random.default_rng(seed)
    array = gaussian_filter(rng.normal(size=(24, 60, 60)), (1.5, 4, 4))
    array = 100 + 300 * (array - array.min()) / np.ptp(array)
    return Volume(array.astype(np.float32), (1.5, 1.5, 3.0), (-40.0, -30.0, 10.0), TILT)


def other_contrast(fixed: Volume, direction: np.ndarray) -> Volume:
    """The same object seen on another grid, another tilt, with another contrast."""
    centre = fixed.index_to_patient((np.array(fixed.shape[::-1]) - 1) / 2)
    spacing = np.array([2.0, 2.0, 3.0])
    shape = (20, 40, 40)
    start = centre - direction @ (spacing * (np.array(shape[::-1]) - 1) / 2)
    grid = Volume(np.zeros(shape, np.float32), tuple(spacing), tuple(start), direction)
    seen = resample_image(fixed, grid).array
    return grid.with_array(np.nan_to_num(np.sin(seen / 60) * 200 + 400).astype(np.float32))


def displaced(image: Volume, shift: tuple[float, float, float], degrees: float) -> Registration:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("z", degrees, degrees=True).as_matrix()
    centre = image.index_to_patient((np.array(image.shape[::-1]) - 1) / 2)
    matrix[:3, 3] = centre + np.array(shift) - matrix[:3, :3] @ centre
    return Registration("made", matrix, 0.0, 0.0, True, "", image)


@pytest.mark.parametrize(
    ("shift", "degrees"), [((4.0, -3.0, 2.0), 0.0), ((0.0, 0.0, 6.0), 0.0), ((2.0, 2.0, -2.0), 5.0)]
)
def test_known_displacement_is_undone(shift: tuple[float, float, float], degrees: float) -> None:
    fixed = scene()
    still = other_contrast(fixed, np.eye(3))
    made = displaced(still, shift, degrees)
    found = register_rigid(made.apply(still), fixed, name="x")
    assert found.accepted
    assert found.after > found.before
    # Every corner of the image is back in its place to half of its smallest voxel edge.
    corners = np.array([[x, y, z] for x in (0, 39) for y in (0, 39) for z in (0, 19)], float)
    points = still.index_to_patient(corners)
    back = found.apply(made.apply(still)).index_to_patient(corners)
    assert np.linalg.norm(back - points, axis=1).max() < 1.0


def test_the_moving_image_keeps_its_voxels() -> None:
    still = other_contrast(scene(), TILT)
    moved = displaced(still, (3.0, 1.0, 2.0), 4.0).apply(still)
    assert moved.array is still.array
    assert moved.spacing == still.spacing
    np.testing.assert_allclose(moved.direction.T @ moved.direction, np.eye(3), atol=1e-12)


def test_the_result_repeats() -> None:
    fixed = scene()
    moving = displaced(fixed, (3.0, 0.0, 1.0), 2.0).apply(other_contrast(fixed, np.eye(3)))
    one, other = register_rigid(moving, fixed), register_rigid(moving, fixed)
    np.testing.assert_array_equal(one.matrix, other.matrix)


def test_implausible_or_useless_results_move_nothing() -> None:
    fixed = scene()
    unrelated = scene(5)
    found = register_rigid(fixed, fixed, name="same")
    assert np.abs(found.matrix - np.eye(4)).max() < 0.02
    other = register_rigid(unrelated, fixed, name="noise")
    if not other.accepted:
        np.testing.assert_array_equal(other.matrix, np.eye(4))
        assert "not moved" in other.note


def test_mutual_information_counted_by_hand() -> None:
    """Two equal halves with themselves: the entropy ln 2; with an independent pattern: 0."""
    array = np.zeros((2, 10, 10), np.float32)
    array[1] = 1
    image = Volume(array, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    everywhere = np.ones(array.shape, bool)
    assert image_information(image, image, everywhere) == pytest.approx(np.log(2))
    swapped = image.with_array(1 - array)
    assert image_information(image, swapped, everywhere) == pytest.approx(np.log(2))
    crossed = image.with_array(np.tile(np.arange(10) % 2, (2, 10, 1)).astype(np.float32))
    assert image_information(image, crossed, everywhere) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(CadError, match="constant"):
        image_information(image, image.with_array(array * 0), everywhere)


def test_images_apart_are_refused() -> None:
    fixed = scene()
    with pytest.raises(CadError, match="do not overlap"):
        register_rigid(replace(fixed, origin=(1000.0, 0.0, 0.0)), fixed)
    with pytest.raises(CadError, match="needs a T2 image"):
        align_study(Study("sub-01", "sub-01"))


def test_study_is_aligned_with_its_companions() -> None:
    fixed = scene()
    still = other_contrast(fixed, np.eye(3))
    moved = displaced(still, (3.0, -2.0, 3.0), 0.0).apply(still)
    frames = np.stack([moved.array] * 4)
    study = Study(
        "sub-01",
        "sub-01",
        t2w=fixed,
        adc=moved,
        dce=Dynamic(frames, moved, np.arange(4.0)),
        vfa=[(5.0, moved)],
        diffusion=[(800.0, moved)],
    )
    aligned, done = align_study(study)
    assert [r.name for r in done] == ["adc", "dce"]
    assert all(r.accepted for r in done)
    assert len(aligned.notes) == 2
    assert study.notes == []
    assert aligned.adc is not None
    assert aligned.dce is not None
    for image in (aligned.adc, aligned.dce.grid, aligned.vfa[0][1], aligned.diffusion[0][1]):
        np.testing.assert_allclose(image.origin, still.origin, atol=1.0)
    assert aligned.dce.frames is frames


@pytest.mark.reference
def test_real_study_moves_along_the_slices(shared_data: Path) -> None:
    """ProstateX-0218: two starts 7 mm apart end in one place, about 10 mm further up the body."""
    import SimpleITK as sitk

    folder = shared_data / "prostatex" / "ProstateX-0218"

    def series(pattern: str) -> Volume:
        found = next(iter(sorted(folder.glob(pattern))))
        names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(found))
        return Volume.from_sitk(sitk.ReadImage(names))

    t2, late = series("5.000000-*"), series("96.000000-*")
    region = np.zeros(t2.shape, bool)
    region[3:17, 80:240, 80:240] = True
    one = register_rigid(late, t2, region, "dce")
    assert one.accepted
    assert one.after > 1.5 * one.before
    start = displaced(late, (3.0, -4.0, 5.0), 3.0)
    other = register_rigid(start.apply(late), t2, region, "dce")
    centre = np.append(t2.index_to_patient(np.array([160.0, 160.0, 10.0])), 1.0)
    gap = (other.matrix @ start.matrix - one.matrix) @ centre
    assert np.linalg.norm(gap) < 1.0
    assert 5 < ((one.matrix @ centre) - centre)[2] < 20
