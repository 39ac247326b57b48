"""Scales against their definitions; everything off a scale is refused by name."""

from __future__ import annotations

import math

import pytest

from cad.errors import CadError
from cad.labels.scales import check_score, score_probability

TABLE = {1: 0.02, 2: 0.05, 3: 0.2, 4: 0.5, 5: 0.85}


@pytest.mark.parametrize(
    ("scale", "score", "probability"),
    [
        ("likert5", 1, 0.0),
        ("likert5", 2, 0.25),
        ("likert5", 3, 0.5),
        ("likert5", 5, 1.0),
        ("likert01", 0.75, 0.75),
        ("percent", 37.5, 0.375),
        ("percent", 0, 0.0),
        ("pirads", 4, 0.5),
    ],
)
def test_probability_of_a_score(scale: str, score: float, probability: float) -> None:
    assert score_probability(scale, score, TABLE) == probability


@pytest.mark.parametrize(
    ("scale", "score"),
    [
        ("likert5", 0),
        ("likert5", 6),
        ("likert5", 2.5),
        ("likert01", 0.3),
        ("percent", 101),
        ("percent", -1),
        ("pirads", 0),
        ("likert5", math.nan),
        ("percent", math.nan),
        ("likert5", math.inf),
    ],
)
def test_a_score_off_its_scale_is_refused(scale: str, score: float) -> None:
    with pytest.raises(CadError, match=scale):
        check_score(scale, score)


def test_an_unknown_scale_suggests_the_nearest() -> None:
    with pytest.raises(CadError, match=r"unknown scale 'likert-5'.*did you mean 'likert5'"):
        check_score("likert-5", 3)


def test_pirads_without_a_table_is_refused() -> None:
    with pytest.raises(CadError, match="PI-RADS is not a Likert scale"):
        score_probability("pirads", 3)
    with pytest.raises(CadError, match="PI-RADS 4"):
        score_probability("pirads", 4, {3: 0.2})
    with pytest.raises(CadError, match=r"must be in \[0, 1\]"):
        score_probability("pirads", 4, {4: 1.5})
