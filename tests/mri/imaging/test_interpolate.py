"""Another spacing: the grid is aligned by its centre, linear values are kept, extents covered."""

from __future__ import annotations

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.mri.imaging.interpolate import aligned_grid, interpolate
from cad.mri.imaging.volume import Volume

TURN = np.array([[1.0, 0, 0], [0, 0.8, -0.6], [0, 0.6, 0.8]])


def ramp(shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> Volume:
    """Values are a linear function of the place in the patient."""
    empty = Volume(np.zeros(shape, np.float32), spacing, (-20.0, 5.0, 12.0), TURN)
    index = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), axis=-1)
    points = empty.index_to_patient(index[..., ::-1])
    return empty.with_array((points @ np.array([1.0, -2.0, 3.0]) + 50).astype(np.float32))


def centre(image: Volume) -> np.ndarray:
    return image.index_to_patient((np.array(image.shape[::-1]) - 1) / 2)


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (0.4, 0.7, 0.0), (2.3, 2.3, 4.5)])
def test_the_grid_has_the_same_centre_and_covers_the_image(spacing) -> None:
    image = ramp((9, 30, 32), (0.6, 0.5, 3.0))
    grid = aligned_grid(image, spacing)
    np.testing.assert_allclose(centre(grid), centre(image), atol=1e-9)
    new = [s or o for s, o in zip(spacing, image.spacing, strict=True)]
    assert grid.spacing == pytest.approx(new)
    extent = np.array(grid.shape[::-1]) * new
    old = np.array(image.shape[::-1]) * np.array(image.spacing)
    assert (extent >= old - 1e-6).all()
    assert (extent < old + new).all()


def test_a_linear_image_stays_what_it_is() -> None:
    image = ramp((9, 30, 32), (0.6, 0.5, 3.0))
    made = interpolate(image, (1.0, 1.0, 1.0))
    inside = np.isfinite(made.array)
    assert inside.mean() > 0.8
    index = np.argwhere(inside)
    points = made.index_to_patient(index[:, ::-1].astype(float))
    # Within half a voxel of the border the outermost value goes on; further in it is exact.
    back = image.patient_to_index(points)
    deep = ((back >= 0) & (back <= np.array(image.shape[::-1]) - 1)).all(axis=1)
    expected = points @ np.array([1.0, -2.0, 3.0]) + 50
    np.testing.assert_allclose(made.array[inside][deep], expected[deep], atol=2e-3)


def test_ibsis_example_of_the_aligned_grid() -> None:
    """4 x 4 voxels of 3 mm on 2 mm are 6 x 6, the first centre at -0.5 + 0.5 of a voxel inwards.

    IBSI reference manual, table 2.1 (align by centre): the new origin is 1/2 (n - 1) - 1/2 s'/s
    (n' - 1) = 1.5 - 2/3 * 2.5 = -1/6 of an old voxel.
    """
    image = Volume(np.zeros((1, 4, 4), np.float32), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    grid = aligned_grid(image, (2.0, 2.0, 0.0))
    assert grid.shape == (1, 6, 6)
    np.testing.assert_allclose(grid.origin, (-0.5, -0.5, 0.0), atol=1e-12)


def test_nothing_is_done_where_nothing_is_asked_for() -> None:
    image = ramp((4, 8, 8), (0.6, 0.6, 3.0))
    assert interpolate(image, None) is image
    assert interpolate(image, (0.6, 0.6, 0.0)) is image
    with pytest.raises(CadError, match="positive"):
        aligned_grid(image, (-1.0, 1.0, 1.0))
    with pytest.raises(CadError, match="voxels of one image"):
        aligned_grid(image, (1e-4, 1e-4, 1e-4))
