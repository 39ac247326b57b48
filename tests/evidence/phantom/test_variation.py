"""Simulated men differ as they are told to, and are who they were where they are told nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.evidence.phantom.protocols import LIGHT
from cad.evidence.phantom.readers import READERS, panel
from cad.evidence.phantom.simulator import LIMITS, USUAL, Variation, make_patient, present
from cad.mri.imaging.displacement_search import measure_displacement
from cad.mri.imaging.study import Study


def test_a_panel_of_any_size_keeps_the_four() -> None:
    assert panel(4) == READERS
    assert panel(2) == READERS[:2]
    seven = panel(7)
    assert seven[:4] == READERS
    assert [reader.reader_id for reader in seven[4:]] == ["r5", "r6", "r7"]
    assert panel(9)[:7] == seven
    with pytest.raises(CadError, match="at least one reader"):
        panel(0)


def test_readers_change_nothing_but_who_reads() -> None:
    usual = make_patient(3, 0, LIGHT)
    many = make_patient(3, 0, LIGHT, variation=Variation(readers=6))
    one = make_patient(3, 0, LIGHT, variation=Variation(readers=1))
    np.testing.assert_array_equal(present(usual.study.adc).array, present(many.study.adc).array)
    four = many.scores[many.scores["reader_id"].isin([r.reader_id for r in READERS])]
    assert four.reset_index(drop=True).equals(usual.scores)
    assert set(many.scores["reader_id"]) == {f"r{k}" for k in range(1, 7)}
    assert list(many.outlines) == list(usual.outlines)
    assert set(one.scores["reader_id"]) == {"r1"}
    assert list(one.outlines) == ["r1"]
    assert one.scores["score"].equals(
        usual.scores[usual.scores["reader_id"] == "r1"]["score"].reset_index(drop=True)
    )


def test_displacement_is_where_it_was_put() -> None:
    """The search finds between two versions of one man what the simulator put there."""
    still = Variation(gas=False, motion=0.0)
    moved = Variation(gas=False, motion=0.0, displacement_mm=8.0)
    shifts = []
    for variation in (still, moved):
        man = make_patient(3, 1, LIGHT, variation=variation).study
        mask = present(man.gland)
        result = measure_displacement(present(man.t2w), present(man.adc), mask, gland=True)
        shifts.append(np.array(result.shift_mm))
    # Without motion, gas and displacement an image lies where T2 does.
    assert np.linalg.norm(shifts[0]) < 1.0
    beside = np.random.default_rng(np.random.SeedSequence(3, spawn_key=(1,)).spawn(9)[8])
    angle = beside.uniform(0, 2 * np.pi)
    length = beside.uniform(0, 8.0)
    put = length * np.array([np.cos(angle), np.sin(angle)])
    assert length > 2.0
    np.testing.assert_allclose(shifts[1] - shifts[0], put, atol=0.7)


def test_the_usual_variation_is_none() -> None:
    assert Variation() == USUAL == Variation(readers=4, displacement_mm=0.0, gas=True, motion=1.0)
    assert Variation(blur_mm=(0.0, 0.0, 0.0), noise=(0.0, 0.0, 0.0), interpolation=1.0) == USUAL


def images(study: Study) -> dict[str, np.ndarray]:
    """Return the voxels of every image of a study by the image's name."""
    arrays = {
        "T2": present(study.t2w).array,
        "ADC": present(study.adc).array,
        "DCE": present(study.dce).frames,
    }
    for b, image in study.diffusion:
        arrays[f"b {b:g}"] = image.array
    for angle, image in study.vfa:
        arrays[f"angle {angle:g}"] = image.array
    return arrays


def test_blur_and_noise_change_every_image_and_nothing_else() -> None:
    usual = make_patient(3, 0, LIGHT)
    for variation in (
        Variation(blur_mm=(2.0, 2.0, 2.0)),
        Variation(noise=(0.05, 0.05, 0.05), interpolation=1.5),
    ):
        worse = make_patient(3, 0, LIGHT, variation=variation)
        before = images(usual.study)
        for name, array in images(worse.study).items():
            assert array.dtype == before[name].dtype
            assert not np.array_equal(array, before[name]), name
        assert worse.scores.equals(usual.scores)
        for name, labels in worse.outlines.items():
            np.testing.assert_array_equal(labels.array, usual.outlines[name].array)
        np.testing.assert_array_equal(worse.truth.array, usual.truth.array)


def test_noise_comes_on_top_of_the_noise_of_the_protocol() -> None:
    """The difference from the usual image is the added noise alone, as strong as it was set."""
    usual = make_patient(3, 0, LIGHT).study
    noisy = make_patient(3, 0, LIGHT, variation=Variation(noise=(0.1, 0.1, 0.1))).study
    for (low_or_high, before), (_, after) in zip(usual.diffusion, noisy.diffusion, strict=True):
        difference = after.array.astype(float) - before.array
        share = 0.1 if low_or_high < 400 else 0.05
        # In bright voxels the magnitude changes by the real part of the noise.
        bright = before.array > 3.5 * share * 300.0
        assert bright.sum() > 300
        assert difference[bright].std() == pytest.approx(share * 300.0, rel=0.06)
    last = len(present(usual.dce).frames) - 1
    frames = [0, last]
    differences = []
    for frame in frames:
        before_frame = present(usual.dce).frames[frame].astype(float)
        difference = present(noisy.dce).frames[frame] - before_frame
        differences.append(difference[before_frame > 80.0])
        assert differences[-1].std() == pytest.approx(10.0, rel=0.06)
    assert not np.array_equal(differences[0][:100], differences[1][:100])


def test_each_kind_of_image_has_its_own_blur_and_noise() -> None:
    usual = images(make_patient(3, 0, LIGHT).study)
    for place, kind in enumerate(("T2", "b", "DCE")):
        noise = [0.0, 0.0, 0.0]
        noise[place] = 0.1
        blur = [0.0, 0.0, 0.0]
        blur[place] = 3.0
        for variation in (Variation(noise=tuple(noise)), Variation(blur_mm=tuple(blur))):
            worse = images(make_patient(3, 0, LIGHT, variation=variation).study)
            changed = {name for name in usual if not np.array_equal(usual[name], worse[name])}
            with_it = {"T2": {"T2"}, "b": {"ADC"}, "DCE": {"DCE"}}[kind]
            with_it |= {name for name in usual if kind == "b" and name.startswith("b ")}
            with_it |= {name for name in usual if kind == "DCE" and name.startswith("angle ")}
            assert changed == with_it


def test_blur_makes_the_steepest_edges_of_images_less_steep() -> None:
    still = Variation(gas=False, motion=0.0)
    wide = Variation(gas=False, motion=0.0, blur_mm=(6.0, 6.0, 6.0))
    sharp = images(make_patient(3, 1, LIGHT, variation=still).study)
    blurred = images(make_patient(3, 1, LIGHT, variation=wide).study)
    # In an ADC map the steepest edges are those of noise in the air.
    del sharp["ADC"]
    for name, array in sharp.items():
        steepest = np.abs(np.diff(array.astype(float), axis=-1)).max()
        steepest_blurred = np.abs(np.diff(blurred[name].astype(float), axis=-1)).max()
        assert steepest_blurred < 0.75 * steepest, name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blur_mm", (0.0, -0.1, 0.0)),
        ("blur_mm", (0.0, 0.0, 10.5)),
        ("blur_mm", (float("nan"), 0.0, 0.0)),
        ("noise", (-0.01, 0.0, 0.0)),
        ("noise", (0.0, 0.0, 1.5)),
        ("interpolation", 0.5),
        ("interpolation", float("inf")),
        ("displacement_mm", float("nan")),
        ("motion", -1.0),
    ],
)
def test_numbers_beyond_their_limits_are_refused_with_their_limits(name: str, value: Any) -> None:
    low, high = LIMITS[name]
    with pytest.raises(CadError, match=f"{name}.* is .*must be from {low:g} to {high:g}"):
        Variation(**{name: value})


def test_interpolation_without_noise_is_refused() -> None:
    with pytest.raises(CadError, match="noise is 0"):
        Variation(interpolation=2.0)
