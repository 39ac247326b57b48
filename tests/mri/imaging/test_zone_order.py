"""The order of the zones' regions in the gland: by hand, mirrored, and in simulated men."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cad.evidence.phantom.protocols import FULL
from cad.evidence.phantom.simulator import make_patient
from cad.mri.imaging.belonging import fewest_of_zone, zone_order
from cad.mri.imaging.plausibility import CHECKS, RANGES, implausible
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Volume

# Rows and columns of four regions of 2 x 2 voxels in a gland of rows 4 to 13 and columns 2 to 21.
PLACES = {"PZ": [(12, 11), (7, 2)], "TZ": [(8, 8), (8, 14)]}


def man(places: dict[str, list[tuple[int, int]]]) -> Study:
    labels = np.zeros((3, 18, 24), np.uint8)
    inside = np.zeros(labels.shape, bool)
    inside[:, 4:14, 2:22] = True
    rois = []
    for zone, corners in places.items():
        for row, column in corners:
            label = len(rois) + 1
            labels[1, row : row + 2, column : column + 2] = label
            rois.append(Roi(str(label), label, zone))
    grid = Volume(labels, (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    return Study("sub-1", "sub-1", roi_map=grid, rois=rois, gland=grid.with_array(inside))


def test_places_by_hand() -> None:
    """Depths .9, .4 and .5, .5; aside 0, .81 and (.3)^2: places .9, .81 less .5, .5."""
    # Region (7, 2): rows 7, 8, middle 7.5, depth (7.5 - 4 + .5) / 10 = .4; columns 2, 3, middle
    # 2.5, of the width (2.5 - 2 + .5) / 20 = .05, aside (2 * .05 - 1)^2 = .81.
    assert zone_order(man(PLACES)) == pytest.approx((0.9 + 0.81) / 2 - 0.5)


def test_a_lateral_horn_is_peripheral_as_it_lies_and_mirrored() -> None:
    """Peripheral tissue reaches as far to the front at the sides as transitional tissue lies."""
    places = {"PZ": [(6, 2), (6, 20)], "TZ": [(9, 8), (9, 14)]}
    order = zone_order(man(places))
    assert order == pytest.approx(0.81 - 0.6)
    study = man(places)
    assert study.roi_map is not None
    turned = study.roi_map.with_array(study.roi_map.array[:, :, ::-1])
    assert zone_order(replace(study, roi_map=turned)) == pytest.approx(order, abs=1e-12)


def test_two_of_each_zone_and_a_gland_are_needed() -> None:
    study = man(PLACES)
    assert zone_order(replace(study, gland=None)) is None
    assert zone_order(man({"PZ": PLACES["PZ"], "TZ": PLACES["TZ"][:1]})) is None
    assert zone_order(man({"PZ": PLACES["PZ"][:1], "TZ": PLACES["TZ"]})) is None


def test_a_sound_man_with_two_lateral_regions_is_not_refused() -> None:
    """His peripheral regions lie in front of his transitional ones (depth -.15), at the sides."""
    study = make_patient(0, 46, FULL, prevalence=0.28).study
    zones = [roi.zone for roi in study.rois]
    assert (zones.count("PZ"), zones.count("TZ")) == (2, 2)
    assert implausible(study) == []
    order = zone_order(study)
    assert order is not None
    assert order > RANGES["zone_order"][0]


def refused_for_zones(study: Study) -> list[str]:
    names = ("zone_order", "zone_order_of_two")
    titles = {CHECKS[name].title for name in names}
    problems = [error.problem for error in implausible(study)]
    return [text for text in problems if any(text.startswith(title) for title in titles)]


def test_a_sound_man_with_two_transitional_regions_in_a_small_gland_is_not_refused() -> None:
    """The lowest of 3,115 men: 29 mL, three regions in one zone and two in the other."""
    study = make_patient(907, 4, FULL).study
    assert study.gland is not None
    assert fewest_of_zone(study) == 2
    order = zone_order(study)
    assert order == pytest.approx(-0.223, abs=0.001)
    assert refused_for_zones(study) == []


@pytest.mark.parametrize(("regions", "refused"), [(2, False), (3, True)])
def test_the_limit_is_wider_where_a_zone_has_two_regions(regions: int, refused: bool) -> None:
    """Peripheral regions at .4 of the depth, transitional ones at .6: -.2."""
    columns = (8, 11, 14)[:regions]
    study = man(
        {"PZ": [(7, column) for column in columns], "TZ": [(9, column) for column in columns]}
    )
    order = zone_order(study)
    assert order is not None
    low_of_two, low = (RANGES[name][0] for name in ("zone_order_of_two", "zone_order"))
    assert low_of_two < order < low
    assert fewest_of_zone(study) == regions
    assert bool(refused_for_zones(study)) == refused


def test_regions_upside_down_are_refused() -> None:
    study = man({"PZ": [(12, 9), (12, 13)], "TZ": [(7, 8), (7, 14)]})
    assert study.roi_map is not None
    turned = study.roi_map.array[:, ::-1]  # as many rows before the gland as behind it
    upside_down = replace(study, roi_map=study.roi_map.with_array(turned))
    order = zone_order(upside_down)
    assert order is not None
    assert order < RANGES["zone_order"][0]
    assert order < RANGES["zone_order_of_two"][0]
    (problem,) = refused_for_zones(upside_down)
    assert f"is {order:.3g}; plausible is -0.25 to 1" in problem
