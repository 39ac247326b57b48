"""Scales against their definitions; everything off a scale is refused by name."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from cad.base.errors import CadError
from cad.learning.labels.scales import (
    PIRADS_TABLES,
    check_percent,
    check_score,
    pirads_note,
    score_probability,
)

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


@pytest.mark.parametrize(
    ("scale", "probability_of"),
    [
        ("likert5", {1: 0.0, 2: 0.25, 3: 0.5, 4: 0.75, 5: 1.0}),
        ("likert01", {0.0: 0.0, 0.25: 0.25, 0.5: 0.5, 0.75: 0.75, 1.0: 1.0}),
        ("pirads", TABLE),
        ("percent", {0: 0.0, 50: 0.5, 100: 1.0}),
    ],
)
def test_every_score_of_a_scale_is_taken(scale: str, probability_of: dict[float, float]) -> None:
    for score, probability in probability_of.items():
        assert score_probability(scale, score, TABLE) == probability


def test_a_score_off_its_scale_states_no_probability() -> None:
    with pytest.raises(CadError, match="is not on its scale likert5"):
        score_probability("likert5", 2.5)


def test_a_table_of_certain_and_of_equal_categories_is_a_table() -> None:
    table = {1: 0.0, 2: 0.2, 3: 0.2, 4: 0.9, 5: 1.0}
    assert [score_probability("pirads", k, table) for k in range(1, 6)] == list(table.values())


def test_an_unknown_scale_suggests_the_nearest() -> None:
    with pytest.raises(CadError, match=r"unknown scale 'likert-5'.*did you mean 'likert5'"):
        check_score("likert-5", 3)


def test_pirads_means_the_published_share_unless_told_otherwise() -> None:
    """The public PI-CAI marksheet: 2 of 96, 11 of 148, 24 of 240, 159 of 437, 257 of 403."""
    note, counts = pirads_note("pi-cai"), PIRADS_TABLES["pi-cai"][1]
    assert sum(lesions for _, lesions in counts.values()) == 1324
    shares = [score_probability("pirads", k) for k in range(1, 6)]
    np.testing.assert_allclose(shares, [0.021, 0.074, 0.100, 0.364, 0.638], atol=5e-4)
    for k, share in enumerate(shares, start=1):
        # Exact: the tail beyond either end is 2.5 %.
        given = counts[k]
        lower = brentq(lambda p, hits, n: binom.sf(hits - 1, n, p) - 0.025, 0, share, given)
        upper = brentq(lambda p, hits, n: binom.cdf(hits, n, p) - 0.025, share, 1, given)
        assert f"{k}: {share:.3f} [{lower:.3f}, {upper:.3f}]" in note
    assert "1,324 biopsied lesions" in note
    assert "5: 0.638 [0.589, 0.685]" in note


def test_the_pirads_table_is_the_marksheets(shared_data: Path) -> None:
    """Counted anew: categories beside the grade that the Gleason sum of the same entry gives."""
    counts: dict[int, list[int]] = {k: [0, 0] for k in range(1, 6)}
    path = next((shared_data / "picai").glob("picai_marksheet_*.csv"))
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        pairs = zip(row["lesion_PIRADS"].split(","), row["lesion_GS"].split(","), strict=False)
        for category, sum_of in pairs:
            if category.isdigit() and "+" in sum_of:
                first, second = map(int, sum_of.split("+"))
                counts[int(category)][0] += 1
                counts[int(category)][1] += first + second >= 7
    table = PIRADS_TABLES["pi-cai"][1]
    assert {k: tuple(v) for k, v in counts.items()} == {k: table[k][::-1] for k in counts}


def test_ones_own_pirads_table_is_checked() -> None:
    assert score_probability("pirads", 4, {4: 0.5}) == 0.5
    with pytest.raises(CadError, match=r"PI-RADS 4 has no probability in labels\.pirads"):
        score_probability("pirads", 4, {3: 0.2})
    with pytest.raises(CadError, match=r"must be in \[0, 1\]"):
        score_probability("pirads", 4, {4: 1.5})
    with pytest.raises(CadError, match="falls from one category to the next"):
        score_probability("pirads", 4, {3: 0.6, 4: 0.5})
    with pytest.raises(CadError, match="names 'picai': known is pi-cai"):
        score_probability("pirads", 4, "picai")


@pytest.mark.parametrize(
    "scores",
    [
        [],
        [0.9, 80],  # one score is above every other scale
        [0.5, 5.5],
        [0, 1],  # few, and no fraction: a reader may give 1 %
        [0, 1] * 9 + [1],  # nineteen prove nothing
        [1, 2, 3, 4, 5],
        [0.5, 2.5] * 20,  # neither shares nor steps of five
        [0.5, 2],  # one score is above every share
    ],
)
def test_scores_that_may_be_percents_are_taken(scores: list[float]) -> None:
    check_percent(scores)


@pytest.mark.parametrize(
    ("scores", "words", "hint"),
    [
        ([0.9], "all 1 scores are at most 1, as a share is", "write 80 for .8"),
        ([0, 0.25, 1], "all 3 scores are at most 1", "or scale likert01 for quarters"),
        ([0, 0.5] * 10, "all 20 scores are at most 1", "write 80 for .8"),
        ([1, 2, 3, 4, 5] * 4, "all 20 scores are 1 to 5, as on the scale likert5", "likert5"),
        ([1] * 20, "all 20 scores are 1 to 5", "likert5"),
        ([0, 1] * 10, "all 20 scores are at most 1", "write 80 for .8"),
    ],
)
def test_scores_that_are_no_percents_are_refused(
    scores: list[float], words: str, hint: str
) -> None:
    with pytest.raises(CadError) as caught:
        check_percent(scores)
    assert words in caught.value.problem
    assert hint in caught.value.hint


def test_the_word_for_the_scale_is_the_callers() -> None:
    with pytest.raises(CadError, match="--scale percent takes 0 to 100"):
        check_percent([0.9], "--scale")


def test_a_near_name_of_a_scale_is_told() -> None:
    with pytest.raises(CadError) as caught:
        check_score("pirad", 3)
    assert caught.value.hint == "did you mean 'pirads'?"
