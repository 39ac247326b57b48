"""A man's regions in two studies: found again where his body was moved by a known way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from earlier_study import displacement, imaged_again

from cad.evidence.phantom.protocols import FULL
from cad.evidence.phantom.simulator import make_patient
from cad.mri.imaging.earlier import (
    align_earlier,
    nearest_regions,
    region_centres,
)
from cad.mri.imaging.geometry import resample_mask
from cad.mri.imaging.registration import moved
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

LIMIT = 10.0
ASIDE = (4.0, 3.0, 0.0)  # 5 mm


@pytest.fixture(scope="module")
def man() -> Study:
    """A simulated man with his T2 image, gland and six regions."""
    return make_patient(4, 0, FULL).study


@pytest.fixture(scope="module")
def stranger() -> Study:
    """Another man."""
    return make_patient(4, 1, FULL).study


def middle(mask: Volume) -> np.ndarray:
    return mask.index_to_patient(np.argwhere(mask.array != 0).mean(axis=0)[::-1])


def gland_points(study: Study) -> np.ndarray:
    """Points of the gland, LPS mm with a 1 after them, shape (n, 4)."""
    points = study.gland.index_to_patient(np.argwhere(study.gland.array)[::50, ::-1])
    return np.column_stack([points, np.ones(len(points))])


@pytest.mark.parametrize(
    ("degrees", "shift_mm"),
    [
        ((4.0, -3.0, 5.0), (6.0, -5.0, 4.0)),
        ((-6.0, 2.0, -4.0), (-8.0, 3.0, -6.0)),
    ],
)
def test_a_known_displacement_is_found_within_a_millimetre(
    man: Study, degrees: tuple[float, float, float], shift_mm: tuple[float, float, float]
) -> None:
    matrix = displacement(middle(man.gland), degrees, shift_mm)
    later = imaged_again(man, matrix, removed={"1"}, smaller={"2"}, aside={"3": ASIDE})
    alignment = align_earlier(man, later)
    assert alignment.state == "aligned"
    points = gland_points(man)
    error = np.linalg.norm((points @ alignment.matrix.T - points @ matrix.T)[:, :3], axis=1)
    print(f"largest error in the gland {error.max():.2f} mm")
    assert error.max() < 0.5
    matches = nearest_regions(region_centres(later), region_centres(man), alignment.matrix, LIMIT)
    assert set(matches) == {"b2", "b3", "b4", "b5", "b6"}
    for roi_id, match in matches.items():
        assert match is not None
        assert match.roi_id == roi_id[1:]
        # One region was drawn 5 mm beside; the voxels of a mask are 3 mm high.
        expected = 5.0 if roi_id == "b3" else 0.0
        print(f"{roi_id}: {match.distance_mm:.2f} mm, expected {expected:g}")
        assert match.distance_mm == pytest.approx(expected, abs=1.0)


def test_another_place_of_the_table_is_no_obstacle(man: Study) -> None:
    matrix = displacement(middle(man.gland), (2.0, 0.0, 3.0), (3.0, 2.0, -2.0))
    later = imaged_again(man, matrix)
    table = displacement(np.zeros(3), (0.0, 0.0, 0.0), (0.0, -80.0, 240.0))
    earlier = replace(man, t2w=moved(man.t2w, table), roi_map=moved(man.roi_map, table), gland=None)
    alignment = align_earlier(earlier, replace(later, gland=None))
    assert alignment.state == "aligned"
    points = gland_points(man)
    wanted = points @ matrix.T
    reached = points @ (alignment.matrix @ table).T
    assert np.linalg.norm((reached - wanted)[:, :3], axis=1).max() < 0.5


def test_the_same_study_twice_has_no_distance(man: Study) -> None:
    alignment = align_earlier(man, man)
    assert alignment.state == "aligned"
    assert alignment.moved_mm == pytest.approx(0.0, abs=0.05)
    centres = region_centres(man)
    for roi_id, match in nearest_regions(centres, centres, alignment.matrix, LIMIT).items():
        assert match.roi_id == roi_id
        assert match.distance_mm == pytest.approx(0.0, abs=0.05)


def test_there_and_back_is_the_same_way(man: Study) -> None:
    matrix = displacement(middle(man.gland), (3.0, -2.0, 4.0), (5.0, -4.0, 3.0))
    later = imaged_again(man, matrix)
    there = align_earlier(man, later).matrix
    back = align_earlier(later, man).matrix
    points = gland_points(man)
    error = np.linalg.norm((points @ (back @ there).T - points)[:, :3], axis=1)
    assert error.max() < 0.5


def test_another_man_is_not_aligned(man: Study, stranger: Study) -> None:
    assert align_earlier(man, stranger).state != "aligned"
    without = [replace(study, gland=None) for study in (stranger, man)]
    assert align_earlier(*without).state != "aligned"


def test_what_cannot_be_trusted_is_told_apart(man: Study) -> None:
    about = middle(man.gland)
    assert align_earlier(replace(man, t2w=None), man).state == "no T2"
    assert align_earlier(man, replace(man, t2w=None)).state == "no T2"
    # Three slices hold less than half of what is compared, wherever they are put.
    slab = man.t2w.beginning_at(man.t2w.array[:3], np.zeros(3))
    assert align_earlier(replace(man, t2w=slab), man).state == "no overlap"
    # Noise fits nowhere better than beside.
    noise = np.random.default_rng(0).normal(300, 50, man.t2w.shape).astype(np.float32)
    state = align_earlier(replace(man, t2w=man.t2w.with_array(noise)), man).state
    assert state in ("not improved", "no clear place", "too far")
    # The images agree, the outlines of the gland do not.
    away = displacement(about, (0.0, 0.0, 0.0), (0.0, 14.0, 0.0))
    elsewhere = resample_mask(moved(man.gland, away), man.gland)
    assert align_earlier(replace(man, gland=elsewhere), man).state == "glands apart"


def test_turned_too_far_is_not_trusted(man: Study) -> None:
    matrix = displacement(middle(man.gland), (0.0, 0.0, 24.0), (0.0, 0.0, 0.0))
    alignment = align_earlier(man, imaged_again(man, matrix))
    assert alignment.state == "too far"
    assert alignment.turned_deg > 15.0


def test_nearness_ends_at_the_limit_and_does_not_ask_for_the_order() -> None:
    now = {"a": np.zeros(3), "b": np.array([0.0, 0.0, 30.0])}
    then = {
        "1": np.array([10.0, 0.0, 0.0]),
        "2": np.array([0.0, 0.0, 40.1]),
        "3": np.array([0.0, -6.0, 8.0]),
    }
    only_first = nearest_regions(now, {"1": then["1"]}, np.eye(4), LIMIT)
    assert only_first["a"] == ("1", 10.0)
    assert nearest_regions(now, {"2": then["2"]}, np.eye(4), LIMIT)["b"] is None
    # As far as "1" is: the id decides, whichever is listed first.
    both = nearest_regions(now, then, np.eye(4), LIMIT)
    assert both["a"] == ("1", 10.0)
    assert both["b"] is None
    turned_round = nearest_regions(
        dict(reversed(now.items())), dict(reversed(then.items())), np.eye(4), LIMIT
    )
    assert turned_round == both
