"""The limit that readers set, against known scatter and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cad.learning.evaluation.measures.metrics import auc
from cad.learning.evaluation.readers.ceiling import readers_ceiling

NAMES = ["r1", "r2", "r3", "r4"]


def test_a_classifier_that_knows_the_readers_expectation_is_all_scatter() -> None:
    rng = np.random.default_rng(0)
    expected = rng.uniform(0.3, 0.7, 3000)
    scores = expected + 0.1 * rng.normal(size=(4, 3000))
    group = np.arange(3000) // 6
    truth = (rng.random(3000) < expected).astype(float)
    found = readers_ceiling(truth, scores, expected, group, NAMES, bootstraps=60)
    assert found.scatter == pytest.approx(0.01 / 4, rel=0.1)
    assert found.share.value == pytest.approx(1, abs=0.1)
    assert found.share.lower < 1 < found.share.upper
    assert found.auc.value == pytest.approx(auc(truth, scores.mean(axis=0)))
    # A reader misses the others' mean by their own scatter and a third of it.
    for part in found.against_others.values():
        assert part["brier"] == pytest.approx(0.01 * 4 / 3, rel=0.15)
        assert part["classifier_brier"] == pytest.approx(0.01 / 3, rel=0.15)
    far = readers_ceiling(truth, scores, np.full(3000, 0.5), group, NAMES, bootstraps=0)
    assert far.share.value < 0.3


def test_by_hand_with_gaps() -> None:
    scores = np.array([[0.0, 1.0, np.nan], [0.5, 1.0, 0.25]])
    q = np.array([0.25, 0.5, 0.5])
    found = readers_ceiling(np.full(3, np.nan), scores, q, np.arange(3), ["a", "b"], bootstraps=0)
    # Means .25 and 1, each of two readers; spread^2/2: .0625 and 0; distance 0 and .25.
    assert found.scatter == pytest.approx(0.0625 / 2)
    assert found.distance == pytest.approx(0.125)
    assert found.share.value == pytest.approx(0.25)
    assert found.against_others["a"]["n"] == 2
    assert found.against_others["a"]["brier"] == pytest.approx(0.125)
    assert np.isnan(found.auc.value)
    said = found.sentence()
    assert "histology" not in said
    assert "25% of the classifier" in said


def test_one_reader_allows_nothing() -> None:
    q = np.array([0.2, 0.8])
    found = readers_ceiling(np.array([0.0, 1]), q[None], q, np.arange(2), ["a"], bootstraps=0)
    assert found.against_others == {}
    assert np.isnan(found.share.value)
    assert found.auc.value == 1
