"""Readers weighed by their agreement: odd ones, copies, few readings, and panels without any."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import cad
from cad.base.errors import CadError
from cad.learning.labels.agreement import (
    AgreementReaders,
    agreement_notes,
    reader_agreement,
)
from cad.learning.labels.pooled import MeanReaders
from cad.learning.labels.rules import fold_labels

NAMES = ["a", "b", "c", "d"]
SPAMMERS = {
    "random": lambda scores, rng: rng.integers(0, 5, len(scores)) / 4,
    "constant": lambda scores, rng: np.full(len(scores), 0.5),
    "reversed": lambda scores, rng: 1 - scores,
    "shuffled": lambda scores, rng: rng.permutation(scores),
}


def panel(seed: int, n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Return four honest readers' grades, three regions a patient, and what they look at."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=n) + np.repeat(rng.normal(0, 0.5, n // 3), 3)
    percept = severity[:, None] + rng.normal(0, 0.6, (n, 4)) + np.array([0.0, 0.2, -0.2, 0.3])
    grades = np.searchsorted([-0.8, 0.0, 0.6, 1.2], percept) / 4
    grades[rng.random((n, 4)) < 0.05] = np.nan
    return grades, severity


def fit(grades: np.ndarray) -> AgreementReaders:
    return AgreementReaders().fit(grades, np.full(len(grades), np.nan))


def test_weights_are_squared_correlations_with_the_weighted_mean_of_the_others() -> None:
    """At the last round, of many regions, where nothing is drawn to the panel's mean."""
    grades, _ = panel(0, 60_000)
    rng = np.random.default_rng(1)
    grades[:, 3] = np.where(rng.random(60_000) < 0.7, rng.integers(0, 5, 60_000) / 4, grades[:, 3])
    weight = fit(grades).weights_
    table = np.ma.masked_invalid(grades)
    square = []
    for reader in range(4):
        others = [k for k in range(4) if k != reader]
        mean = np.ma.average(table[:, others], axis=1, weights=weight[others])
        square.append(np.ma.corrcoef(table[:, reader], mean)[0, 1] ** 2)
    np.testing.assert_allclose(weight, np.array(square) / np.sum(square), atol=2e-3)
    assert weight[3] < 0.12


@pytest.mark.parametrize("kind", SPAMMERS)
def test_one_spammer_of_four_costs_little_and_is_named(kind: str) -> None:
    """Twenty cohorts: named in 19 or more, an honest reader in one or none."""
    named = honest = 0
    error = {"agreement": 0.0, "without him": 0.0}
    for seed in range(20):
        grades, severity = panel(seed)
        rng = np.random.default_rng(900 + seed)
        odd = seed % 4
        spoilt = grades.copy()
        spoilt[:, odd] = SPAMMERS[kind](grades[:, odd], rng)
        rows = reader_agreement(spoilt, NAMES, np.arange(150) // 3)
        named += rows[odd].odd
        honest += any(row.odd for row in rows if row.reader != NAMES[odd])
        mean = np.nanmean(np.searchsorted([-0.8, 0.0, 0.6, 1.2], severity)[:, None] / 4, axis=1)
        without = np.delete(grades, odd, axis=1)
        beliefs = {
            "agreement": fit(spoilt).predict(spoilt).p,
            "without him": fit(without).predict(without).p,
        }
        for name, p in beliefs.items():
            error[name] += float(np.nanmean((p - mean) ** 2))
    assert named >= 19
    assert honest <= 1
    assert error["agreement"] < 1.02 * error["without him"]


def test_an_honest_panel_is_its_mean_within_a_hair() -> None:
    for seed in range(20):
        grades, _ = panel(seed)
        np.testing.assert_allclose(fit(grades).weights_, 0.25, atol=0.06)
        assert not any(row.odd for row in reader_agreement(grades, NAMES, np.arange(150) // 3))


def test_two_readers_and_one_weigh_alike() -> None:
    grades, _ = panel(3)
    for few in (grades[:, :1], grades[:, :2]):
        belief = fit(few).predict(few)
        plain = MeanReaders().predict(few)
        np.testing.assert_array_equal(belief.p, plain.p)
        np.testing.assert_array_equal(belief.eta, plain.eta)
        assert agreement_notes(reader_agreement(few, NAMES[: few.shape[1]], np.arange(150))) == []


def test_the_spread_is_that_of_the_weighted_readers() -> None:
    """By hand: weights 1, 1, 2 of grades 0, .5, 1; missing scores take their weight with them."""
    rule = fit(panel(0)[0][:, :3])
    rule.weights_ = np.array([0.25, 0.25, 0.5])
    belief = rule.predict(np.array([[0.0, 0.5, 1.0], [0.0, np.nan, 1.0], [0.5, np.nan, np.nan]]))
    np.testing.assert_allclose(belief.p, [0.625, 2 / 3, 0.5])
    square = (0.25 * 0.625**2 + 0.25 * 0.125**2 + 0.5 * 0.375**2) / (1 - 0.375)
    pair = (1 / 3 * (2 / 3) ** 2 + 2 / 3 * (1 / 3) ** 2) / (1 - 5 / 9)
    np.testing.assert_allclose(belief.eta, [np.sqrt(square), np.sqrt(pair), 0.125])


def test_what_readers_say_alike_is_said_exactly() -> None:
    """Sums of weights round: 1.0000000000000002 is no label, and .5 is a tie."""
    grades, _ = panel(1)
    noise = np.random.default_rng(0)
    grades[:, 3] = noise.permutation(grades[:, 3])
    rule = fit(grades)
    assert np.ptp(rule.weights_) > 0
    for value in (0.0, 0.5, 1.0):
        said = np.where(noise.random((500, 4)) < 0.3, np.nan, value)
        said = said[np.isfinite(said).any(axis=1)]
        belief = rule.predict(said)
        assert (belief.p == value).all()
        assert (belief.eta[np.isfinite(said).sum(axis=1) > 1] <= 0.125).all()


def test_the_same_reader_under_two_names_counts_once_and_is_said() -> None:
    grades, _ = panel(5)
    twice = np.column_stack([grades, grades[:, 0]])
    weight = fit(twice).weights_
    np.testing.assert_allclose(weight[0], weight[4])
    np.testing.assert_allclose(weight[0] + weight[4], fit(grades).weights_[0])
    np.testing.assert_allclose(fit(twice).predict(twice).p, fit(grades).predict(grades).p)
    notes = agreement_notes(reader_agreement(twice, [*NAMES, "e"], np.arange(150)))
    assert notes == [
        "a, e gave the same scores, by more than chance: one reader under 2 names is no agreement, "
        "and counts once"
    ]


def test_readers_who_agree_by_chance_are_no_copies() -> None:
    """Three regions, and a panel that agrees in nearly everything."""
    grades, _ = panel(5)
    few = np.full((150, 5), np.nan)
    few[:, :4] = grades
    few[:3, 4] = grades[:3, 0]
    assert fit(few).copies_.tolist() == [0, 1, 2, 3, 4]
    rng = np.random.default_rng(0)
    truth = (rng.random(60) < 0.5).astype(float)
    clear = np.repeat(truth[:, None], 4, axis=1)
    clear[0, 2] = 1 - clear[0, 2]
    clear[1, 3] = 1 - clear[1, 3]
    assert fit(clear).copies_.tolist() == [0, 1, 2, 3]


def test_a_reader_who_scored_three_regions_has_the_weight_of_the_others() -> None:
    grades, _ = panel(7)
    noise = np.random.default_rng(0)
    grades[:60, 3] = noise.permutation(grades[:60, 3])
    few = np.column_stack([grades, np.full(150, np.nan)])
    few[:3, 4] = [1.0, 0.0, 1.0]
    weight = fit(few).weights_
    assert weight[:4].min() < weight[4] < weight[:4].max()
    row = reader_agreement(few, [*NAMES, "e"], np.arange(150))[4]
    assert row.n == 3
    assert np.isnan(row.correlation)
    assert not row.odd


@pytest.mark.parametrize(
    "grades",
    [np.full((40, 4), 0.5), np.repeat(np.arange(40)[:, None] % 2, 4, axis=1) * 1.0],
    ids=["one value", "unanimous"],
)
def test_a_unanimous_panel_is_its_mean(grades: np.ndarray) -> None:
    belief = fit(grades).predict(grades)
    np.testing.assert_array_equal(belief.p, grades[:, 0])
    np.testing.assert_array_equal(belief.eta, 0)
    rows = reader_agreement(grades, NAMES, np.arange(40))
    assert not any(row.odd for row in rows)
    told = bool(np.ptp(grades))
    assert [note.split(" (")[0] for note in agreement_notes(rows)] == [
        "the readers agree nearly everywhere"
    ] * told


def test_a_turned_scale_is_asked_about() -> None:
    grades, _ = panel(2)
    grades[:, 1] = 1 - grades[:, 1]
    (note,) = agreement_notes(reader_agreement(grades, NAMES, np.arange(150) // 3))
    assert note.startswith("b adds nothing to the other readers")
    assert note.endswith("is the scale turned round?")


def test_a_fold_learns_weights_from_its_training_regions_only() -> None:
    grades, _ = panel(4)
    noise = np.random.default_rng(0)
    grades[:, 3] = noise.permutation(grades[:, 3])
    nothing = np.full(150, np.nan)
    train = np.arange(100)
    y, eta, note = fold_labels("agreement", grades, nothing, nothing, train)
    spoilt = grades.copy()
    spoilt[100:, 0] = 1 - spoilt[100:, 0]
    again = fold_labels("agreement", spoilt, nothing, nothing, train)
    np.testing.assert_array_equal(y[train], again[0][train])
    np.testing.assert_array_equal(eta[train], again[1][train])
    assert note == ""
    other = fold_labels("agreement", grades, nothing, nothing, train[:50])[0]
    assert not np.array_equal(y, other, equal_nan=True)


def test_consensus_names_readers_by_their_columns() -> None:
    grades, _ = panel(6)
    scores = pd.DataFrame(4 * grades + 1, columns=["anna", "ben", "cleo", "dan"])
    scores["ben"] = np.random.default_rng(0).permutation(scores["ben"].to_numpy())
    belief = cad.consensus(scores, patients=np.arange(150) // 3)
    assert belief.notes[0].startswith("ben adds nothing")
    plain = cad.consensus(scores, rule="mean")
    np.testing.assert_array_equal(plain.p, np.nanmean((scores - 1) / 4, axis=1))
    assert not np.allclose(plain.p, belief.p, equal_nan=True)
    with pytest.raises(CadError, match="must be one of agreement, mean, pooled"):
        cad.consensus(scores, rule="median")


def test_grades_outside_their_range_are_refused() -> None:
    with pytest.raises(CadError, match=r"grade is 2, must lie in \[0, 1\]"):
        fit(np.full((5, 3), 2.0))
