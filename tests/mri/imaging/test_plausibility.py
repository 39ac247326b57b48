"""The physical gate by itself: statistics by hand, and the field strength of the assumed T1."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.mri.imaging.plausibility import (
    RANGES,
    implausible,
    require_plausible,
    site_ranges,
    study_statistics,
    t1_default_problem,
)
from cad.mri.imaging.study import Protocol, Study
from cad.mri.imaging.volume import Dynamic, Volume

SHAPE = (4, 16, 16)


def volume(value: float) -> Volume:
    return Volume(np.full(SHAPE, value), (1, 1, 3), (0, 0, 0), np.eye(3))


def spoiled(degrees: float, t1: float, tr: float) -> float:
    """Spoiled gradient echo: sin a (1 - E1) / (1 - E1 cos a)."""
    a, e1 = np.radians(degrees), np.exp(-tr / t1)
    return float(np.sin(a) * (1 - e1) / (1 - e1 * np.cos(a)))


def study() -> Study:
    frames = np.stack([np.full(SHAPE, v, float) for v in (100, 100, 150, 180, 170)])
    frames += np.random.default_rng(0).normal(0, 1, frames.shape)
    return Study(
        "sub-01",
        "sub-01",
        t2w=volume(5),
        adc=volume(1300),
        dce=Dynamic(frames, volume(1), np.arange(5) * 8.0, 0.004, 12.0),
        vfa=[(a, volume(1000 * spoiled(a, 1.5, 0.004))) for a in (2.0, 8.0, 15.0)],
        vfa_repetition_time=0.004,
        protocols={"t2w": Protocol(4.0, 0.1), "dce": Protocol(field_strength=3.0)},
    )


def test_statistics_by_hand():
    found = {name: value for name, value, _ in study_statistics(study())}
    assert set(found) <= set(RANGES)
    assert found["adc_median"] == 1300
    assert found["vfa_t1_any_tissue"] == pytest.approx(1.5, rel=1e-6)
    assert found["vfa_misfit"] == pytest.approx(0, abs=1e-9)
    assert found["dce_interval"] == 8
    assert found["dce_enhancement"] == pytest.approx(0.8, abs=0.02)
    assert found["dce_first_frame"] == pytest.approx(0, abs=0.02)
    assert found["dce_snr"] == pytest.approx(100, rel=0.2)  # noise of 1 on a baseline of 100
    assert (found["t2w_repetition_time"], found["t2w_echo_time"]) == (4.0, 0.1)
    assert implausible(study()) == []


def test_the_prostate_is_measured_where_it_is_drawn():
    """A bright prostate off the middle decides, not the middle."""
    one = study()
    assert one.adc is not None
    inside = np.zeros(SHAPE, bool)
    inside[1, :3, :3] = True
    one.adc.array[inside] = 50.0
    assert implausible(one) == []
    one.gland = one.adc.with_array(inside)
    tiny = {"gland_volume": (0.0, 400.0)}
    (problem,) = implausible(one, tiny)
    assert problem.problem == (
        "median ADC in the prostate is 50 1e-6 mm2/s; plausible is 400 to 3000 1e-6 mm2/s: "
        "values look like 1e-5 mm2/s"
    )
    assert problem.hint == "set scale: 10 in the adc rule; a site may widen the range adc_median"
    with pytest.raises(CadError, match="median ADC in the prostate"):
        require_plausible(one)
    require_plausible(one, {"adc_median": (10, 3000), **tiny})


def test_fat_in_the_middle_of_an_image_is_no_error_until_a_region_is_judged():
    """Most of the image has .35 s; with swapped angles the region itself is refused."""
    one = study()
    region = np.zeros(SHAPE, bool)
    region[1, :3, :3] = True

    def images(*angles: float) -> list[tuple[float, Volume]]:
        found = []
        for said, true in zip((2.0, 8.0, 15.0), angles, strict=True):
            image = volume(1000 * spoiled(true, 0.35, 0.004))
            image.array[region] = 1000 * spoiled(true, 1.5, 0.004)
            found.append((said, image))
        return found

    one.vfa = images(2.0, 8.0, 15.0)
    found = {name: value for name, value, _ in study_statistics(one)}
    assert found["vfa_t1_any_tissue"] == pytest.approx(0.35, rel=1e-6)
    assert implausible(one) == []
    assert one.adc is not None
    one.roi_map = one.adc.with_array(2 * region.astype(np.uint8))
    found = {name: value for name, value, _ in study_statistics(one)}
    assert found["vfa_t1"] == pytest.approx(1.5, rel=1e-6)
    assert implausible(one) == []
    one.vfa = images(15.0, 8.0, 2.0)
    said = [problem.problem for problem in implausible(one)]
    assert any("T1 by the flip-angle images in the regions" in one for one in said)


def test_a_cohort_carries_its_own_ranges(tmp_path: Path):
    folder = tmp_path / "sub-01" / "ses-01"
    folder.mkdir(parents=True)
    assert site_ranges(folder) == {}
    (tmp_path / "plausible.json").write_text(json.dumps({"adc_median": [10, 20]}))
    assert site_ranges(folder) == site_ranges(folder.parent) == {"adc_median": (10.0, 20.0)}
    for text, says in (
        ('{"adc": [1, 2]}', "no statistic 'adc'"),
        ("[1]", "expected"),
        ("{", "not valid JSON"),
    ):
        (tmp_path / "plausible.json").write_text(text)
        with pytest.raises(CadError, match=says):
            site_ranges(folder)


def test_the_default_t1_holds_at_3_tesla():
    one = study()
    assert t1_default_problem(one, 1.6, 1.664) is None
    one.protocols["dce"] = Protocol(field_strength=1.5)
    problem = t1_default_problem(one, 1.6, 1.664)  # T1 of tissue is measured, that of blood not
    assert problem is not None
    assert problem.problem == "the field strength is 1.5 T, but t1_blood is 3 T's"
    assert t1_default_problem(one, 1.6, 1.44) is None
    one.vfa = []
    problem = t1_default_problem(one, 1.6, 1.44)
    assert problem is not None
    assert problem.hint == "set features.perfusion.t1_tissue for this field"
    assert t1_default_problem(one, None, None) is None  # 1.5 T's are known
    one.protocols["dce"] = Protocol(field_strength=7.0)
    problem = t1_default_problem(one, None, None)
    assert problem is not None
    assert problem.problem == (
        "the field strength is 7 T, but t1_tissue is 3 T's and t1_blood is 3 T's"
    )
    one.protocols["dce"] = Protocol(field_strength=1.0)  # the nearest field of a known T1 is 1.5 T
    problem = t1_default_problem(one, None, 1.664)
    assert problem is not None
    assert problem.problem == (
        "the field strength is 1 T, but t1_tissue is 1.5 T's and t1_blood is 3 T's"
    )


def test_zeros_are_no_adc_and_regions_are_asked_first():
    """A scanner's threshold leaves zeros; half of the middle may be none but the regions are."""
    one = study()
    assert one.adc is not None
    one.adc.array[:, ::2] = 0.0
    assert implausible(one) == []
    region = np.zeros(SHAPE, bool)
    region[1, :3, :3] = True
    one.adc.array[region] = 300.0
    one.roi_map = one.adc.with_array(region.astype(np.uint8))
    (problem,) = implausible(one)
    assert problem.problem.startswith("median ADC in the regions is 300 ")
    one.adc.array[region] = 0.0
    assert "median ADC in the regions is 0 " in implausible(one)[0].problem
