"""The place of a region in its image, for a study without a gland mask."""

from __future__ import annotations

import numpy as np
import pytest

from cad.mri.features.place import ImagePlace, place_in_image
from cad.mri.imaging.volume import Volume

SPACING = (0.5, 0.5, 3.0)


def image(regions: dict[int, tuple[int, int, int]], direction: np.ndarray | None = None) -> Volume:
    """Return a label map of 12 slices of 101 x 101 voxels with regions of 5 x 5 voxels."""
    array = np.zeros((12, 101, 101), np.uint8)
    for label, (z, y, x) in regions.items():
        array[z, y - 2 : y + 3, x - 2 : x + 3] = label
    direction = np.eye(3) if direction is None else direction
    return Volume(array, SPACING, (0.0, 0.0, 0.0), tuple(map(tuple, direction)))


def test_hand_counted_places() -> None:
    labels = image({1: (1, 30, 80), 2: (6, 70, 20), 3: (11, 50, 50)})
    # 30 voxels of .5 mm beside column 50 of 0 to 100.
    assert place_in_image(labels, 1) == ImagePlace("left", 15.0, "lower", "anterior")
    assert place_in_image(labels, 2) == ImagePlace("right", -15.0, "middle", "posterior")
    third = place_in_image(labels, 3)
    assert third is not None
    assert (third.side, third.left_mm, third.third) == ("midline", 0.0, "upper")


def test_one_depth_is_called_neither_front_nor_back() -> None:
    labels = image({1: (1, 50, 80), 2: (6, 55, 20)})
    place = place_in_image(labels, 1)
    assert place is not None
    assert place.depth == ""
    alone = place_in_image(image({1: (1, 30, 80)}), 1)
    assert alone is not None
    assert alone.depth == ""


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_grid_that_is_stored_the_other_way_round_gives_the_same_place(axis: int) -> None:
    straight = image({1: (1, 30, 80), 2: (9, 70, 20)})
    direction = np.eye(3)
    direction[axis, axis] = -1.0
    flipped = np.flip(straight.array, axis=2 - axis)
    turned = Volume(flipped.copy(), SPACING, (0.0, 0.0, 0.0), tuple(map(tuple, direction)))
    for label in (1, 2):
        assert place_in_image(turned, label) == place_in_image(straight, label)


def test_slices_that_are_not_axial_have_no_place() -> None:
    sagittal = np.eye(3)[[2, 0, 1]]
    assert place_in_image(image({1: (1, 30, 80)}, sagittal), 1) is None
