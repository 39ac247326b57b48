"""The place, size and enhancement of a region: hand-counted cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cad.base.terms.sectors import SECTOR_NAMES, SECTORS, sector_at
from cad.mri.features.place import axial_diameter, curve_type, drawn_as, place_of
from cad.mri.imaging.volume import Volume
from cad.run.reports.sectors import GAP, HIGH, WIDE, apart, map_lines, mark, sector_cells


def gland(direction: np.ndarray | None = None) -> Volume:
    """A box of 9 slices, 20 rows, 40 columns in an image of 15 x 40 x 60."""
    array = np.zeros((15, 40, 60), bool)
    array[3:12, 10:30, 10:50] = True
    return Volume(
        array, (0.5, 0.5, 3.0), (0.0, 0.0, 0.0), np.eye(3) if direction is None else direction
    )


def at(z: int, y: int, x: int) -> np.ndarray:
    inside = np.zeros((15, 40, 60), bool)
    inside[z, y - 1 : y + 2, x - 1 : x + 2] = True
    return inside


@pytest.mark.parametrize(
    ("inside", "side", "sector"),
    [
        (at(7, 28, 36), "left", "left mid PZpm"),
        (at(7, 27, 45), "left", "left mid PZpl"),
        (at(7, 17, 12), "right", "right mid PZa"),
        (at(4, 14, 24), "right", "right apex TZa"),
        (at(10, 24, 26), "right", "right base CZ"),
        (at(10, 11, 32), "left", "left base AFS"),
    ],
)
def test_the_box_of_the_gland_gives_side_level_and_sector(
    inside: np.ndarray, side: str, sector: str
) -> None:
    found = place_of(gland(), inside)
    assert found is not None
    assert (found.side, found.sector) == (side, sector)


def test_a_turned_grid_gives_the_same_place() -> None:
    turned = gland(np.diag([-1.0, -1.0, -1.0]))
    flip = (slice(None, None, -1),) * 3
    turned = turned.with_array(turned.array[flip])
    for inside in (at(7, 28, 36), at(4, 14, 24), at(10, 11, 32)):
        assert place_of(turned, inside[flip]) == place_of(gland(), inside)


def test_a_region_across_the_middle_is_on_no_side_and_sagittal_slices_have_no_place() -> None:
    wide = np.zeros((15, 40, 60), bool)
    wide[7, 26:29, 25:35] = True
    found = place_of(gland(), wide)
    assert found is not None
    assert found.side == "midline"
    sagittal = gland(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert place_of(sagittal, wide) is None


def test_a_persons_zone_chooses_among_its_sectors() -> None:
    assert sector_at(0.1, 0.95, "mid", "TZ") == "TZp"
    assert sector_at(0.1, 0.3, "mid", "PZ") == "PZa"
    assert sector_at(0.1, 0.7, "apex", "CZ") in SECTORS["apex"]  # there is none at the apex


@given(st.floats(-1, 1), st.floats(0, 1), st.sampled_from(list(SECTORS)))
def test_every_place_has_a_sector_of_its_level_and_sides_mirror(
    u: float, v: float, level: str
) -> None:
    assert sector_at(u, v, level) in SECTORS[level]
    assert sector_at(u, v, level) == sector_at(-u, v, level)


def test_the_drawing_has_all_38_sectors_and_marks_the_one_that_is_said() -> None:
    assert len(SECTOR_NAMES) == 38
    drawn = {str(name) for level in SECTORS for name in np.unique(sector_cells(level))} - {""}
    assert drawn == SECTOR_NAMES
    assert map_lines().startswith("M")
    found = mark("left base PZpl", {"u": 0.75, "v": 0.75})
    assert found is not None
    assert found[1] == pytest.approx((0.875 * WIDE, 0.75 * HIGH), abs=0.51)
    # The marked bars cover exactly the sector's cells.
    bars = [piece.replace("h", " ").replace("v", " ").split() for piece in found[0].split("M")[1:]]
    assert sum(int(b[2]) for b in bars) == int((sector_cells("base") == "left base PZpl").sum())
    assert mark("left", None) is None


@pytest.mark.parametrize(
    "place",
    [
        None,
        {"u": 0.0, "v": 0.5},
        {"u": 1.0, "v": 1.0},
        {"u": -1.3, "v": 0.9},
        {"u": 0.9, "v": -0.2},
    ],
)
def test_a_mark_lies_in_its_sector(place: dict[str, float] | None) -> None:
    """Also where the region's place in the gland's box lies beside the sector that is named."""
    for sector in SECTOR_NAMES:
        found = mark(sector, place)
        assert found is not None
        level = sector.split(" ")[1]
        left = list(SECTORS).index(level) * (WIDE + GAP)
        x, y = found[1]
        cells = sector_cells(level)
        for across, down in ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)):
            assert cells[int(y) + down, int(x - left) + across] == sector


def test_marks_of_one_sector_stand_beside_each_other() -> None:
    one = mark("left mid PZpl", {"u": 0.8, "v": 0.8})
    assert one is not None
    points = [moved.point for moved in apart([one, one])]
    assert points[0] == one.point
    assert np.linalg.norm(np.subtract(*points)) >= 8.0
    cells = sector_cells("mid")
    for x, y in points:
        assert cells[int(y), int(x) - WIDE - GAP] == "left mid PZpl"


def ellipsoid(
    axes: tuple[float, float, float], offset: float, spacing: tuple[float, float, float]
) -> np.ndarray:
    """The voxels whose centres lie within an ellipsoid with these half axes (mm) along x, y, z."""
    shape = [2 * int(np.ceil(axis / step)) + 5 for axis, step in zip(axes, spacing, strict=True)]
    x, y, z = np.indices(shape)
    total = np.zeros(shape)
    for places, axis, step in zip((x, y, z), axes, spacing, strict=True):
        total += ((places - places.max() / 2 + offset) * step / axis) ** 2
    return np.asarray((total <= 1).transpose(2, 1, 0))


@pytest.mark.parametrize("offset", [0.0, 0.3, -0.45])
@pytest.mark.parametrize("spacing", [(0.5, 0.5, 3.0), (1.0, 1.0, 1.0), (0.6, 0.4, 2.2)])
def test_a_ball_is_a_mark_and_an_ellipsoid_is_not(
    spacing: tuple[float, float, float], offset: float
) -> None:
    ball = ellipsoid((5.0, 5.0, 5.0), offset, spacing)
    assert drawn_as(ball, spacing) == "ball"
    assert drawn_as(ellipsoid((5.0, 6.0, 5.0), offset, spacing), spacing) == ""
    missed = ball.copy()
    missed[tuple(np.argwhere(ball)[len(np.argwhere(ball)) // 2])] = False
    assert drawn_as(missed, spacing) == ""
    flat = ball.copy()
    flat[:, np.argwhere(ball)[:, 1].max() - 2 :] = False
    assert drawn_as(flat, spacing) == ""


def test_a_box_is_a_mark_and_a_few_voxels_are_none() -> None:
    box = np.zeros((5, 20, 20), bool)
    box[1:4, 3:11, 4:12] = True
    assert drawn_as(box, (0.5, 0.5, 3.0)) == "box"
    box[2, 3, 4] = False
    assert drawn_as(box, (0.5, 0.5, 3.0)) == ""
    # So small or flat, what a person draws may be a ball by chance.
    assert drawn_as(ellipsoid((2.0, 2.0, 2.0), 0.0, (1.0, 1.0, 1.0)), (1.0, 1.0, 1.0)) == ""
    flat = ellipsoid((6.0, 6.0, 6.0), 0.0, (0.5, 0.5, 6.5))
    assert drawn_as(flat, (0.5, 0.5, 6.5)) == ""
    assert drawn_as(np.zeros((3, 4, 4), bool), (1.0, 1.0, 1.0)) == ""


def test_a_diameter_is_the_longest_line_of_a_slice() -> None:
    row = np.zeros((3, 9, 20), bool)
    row[1, 4, 3:13] = True  # ten voxels of .5 mm; the outline runs half a voxel beyond the centres
    assert axial_diameter(row, (0.5, 0.5)) == pytest.approx(5.0, abs=0.02)
    y, x = np.mgrid[:81, :81]
    disc = ((y - 40) ** 2 + (x - 40) ** 2 < 30**2)[None]
    assert axial_diameter(disc, (0.2, 0.2)) == pytest.approx(12.0, abs=0.2)
    tall = np.zeros((9, 5, 5), bool)
    tall[:, 2, 2] = True  # nine slices of one voxel: no line lies between slices
    assert axial_diameter(tall, (1.0, 1.0)) <= 1.0


def curve(end: float, length: float = 300.0) -> tuple[np.ndarray, np.ndarray]:
    """A curve that rises from 100 to 200 by 60 s and runs straight to its end."""
    times = np.arange(0.0, length, 5.0)
    signal = np.interp(times, [0, 30, 60, length - 5], [100, 100, 200, end])
    return times, signal


@pytest.mark.parametrize(("end", "kind"), [(320.0, 1), (204.0, 2), (196.0, 2), (140.0, 3)])
def test_the_three_types_of_curve(end: float, kind: int) -> None:
    assert curve_type(*curve(end)) == kind


def test_a_curve_without_a_bolus_or_an_end_has_no_type() -> None:
    times, _ = curve(200.0)
    assert curve_type(times, np.full(len(times), 100.0)) is None
    assert curve_type(*curve(150.0, length=160.0)) is None
    assert curve_type(times[:3], np.array([1.0, 2.0, 3.0])) is None
