"""Simulated men differ as they are told to, and are who they were where they are told nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.evidence.phantom.protocols import LIGHT
from cad.evidence.phantom.readers import READERS, panel
from cad.evidence.phantom.simulator import USUAL, Variation, make_patient, present
from cad.mri.imaging.displacement_search import measure_displacement


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
