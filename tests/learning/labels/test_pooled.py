"""Pooled readers: optimality, limits, who cannot be identified; skill."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from cad.base.errors import CadError
from cad.base.settings import LabelSettings
from cad.learning.labels.consensus import grade_matrix, notes, reader_probabilities
from cad.learning.labels.pooled import MeanReaders, PooledReaders, refuse_outside
from cad.learning.labels.rules import consensus_rule, fold_labels
from cad.learning.labels.skill import reader_skill


def readings(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return four readers' grades (the last is noise, some missing) and the truth."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < 0.3).astype(float)
    seen = expit(2.5 * (2 * truth[:, None] - 1) + rng.normal(0, 1.5, (n, 4)))
    seen[:, 3] = rng.random(n)
    grades = np.round(4 * seen) / 4
    grades[rng.random((n, 4)) < 0.1] = np.nan
    grades[0] = np.nan
    return grades, truth


def test_the_mode_is_the_optimum_of_the_model_as_written() -> None:
    grades, truth = readings(60)
    pooled = PooledReaders().fit(grades, truth)
    used = np.isfinite(grades).any(axis=1)
    s, y = grades[used], truth[used]
    n, total, mean = np.isfinite(s).sum(1), np.nansum(s, 1), np.nanmean(s, 1)
    z = np.log((total + 0.5) / (n + 1) / (1 - (total + 0.5) / (n + 1)))
    deviation = np.where(np.isfinite(s), s - mean[:, None], 0)

    def loss(theta: np.ndarray) -> float:
        eta = theta[0] + theta[1] * z + deviation @ theta[2:]
        prior = theta[0] ** 2 + 4 * (theta[1] - 1) ** 2 + np.sum(theta[2:] ** 2)
        return float(np.sum(np.logaddexp(0, eta) - y * eta) + prior / 2)

    best = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(pooled.coefficients_, best.x, atol=1e-4)


def test_little_histology_moves_the_mean_a_little() -> None:
    """One region of each class: the prior's log-odds of the drawn mean, nearly."""
    grades, truth = readings()
    given = np.full(len(truth), np.nan)
    rows = [int(np.flatnonzero(truth[1:] == c)[0]) + 1 for c in (0, 1)]
    given[rows] = truth[rows]
    p = PooledReaders().fit(grades, given).predict(grades).p
    n, total = np.isfinite(grades).sum(1), np.nansum(grades, 1)
    known = n > 0
    assert np.abs(p[known] - ((total + 0.5) / (n + 1))[known]).max() < 0.2
    assert np.isnan(p[0])


def test_a_reader_of_noise_loses_weight_and_is_named() -> None:
    grades, truth = readings()
    names = ["a", "b", "c", "noise"]
    table, sentence, _ = reader_skill(grades, names, truth, np.arange(len(truth)) // 4)
    table = table.set_index("reader")
    assert table["weight"].idxmin() == "noise"
    assert table["adds"].tolist() == [True, True, True, False]
    assert sentence.startswith(
        "These regions do not show that the reader noise adds anything to the other readers. noise"
    )
    assert table["odd"].tolist() == [False, False, False, True]
    used = np.isfinite(grades[:, 0])
    sick = used & (truth == 1)
    assert table.loc["a", "sensitivity"] == pytest.approx(np.mean(grades[sick, 0] > 0.5))
    assert table.loc["a", "n"] == used.sum()
    low, high = table.loc["a", ["sensitivity_lower", "sensitivity_upper"]]
    assert low < table.loc["a", "sensitivity"] < high


def test_pooled_beats_the_mean_where_readers_differ_in_skill() -> None:
    grades, truth = readings(400, seed=3)
    given = np.where(np.arange(400) % 3 == 0, truth, np.nan)
    left = (np.arange(400) % 3 != 0) & np.isfinite(grades).any(axis=1)
    pooled = PooledReaders().fit(grades, given).predict(grades)
    mean = MeanReaders().predict(grades)
    gap = [np.mean((b.p[left] - truth[left]) ** 2) for b in (pooled, mean)]
    assert gap[0] < gap[1]
    assert np.nanmax(pooled.eta) < 0.25


@pytest.mark.parametrize(
    ("given", "what"),
    [(np.full(200, np.nan), "no region has"), (np.ones(200), "only one class has")],
)
def test_without_both_classes_the_mean_is_taken_and_it_is_said(
    given: np.ndarray, what: str
) -> None:
    grades, _ = readings()
    rule = PooledReaders().fit(grades, given)
    assert what in rule.note
    assert rule.note.endswith("the mean is taken")
    np.testing.assert_array_equal(rule.predict(grades).p, MeanReaders().predict(grades).p)
    table, sentence, against = reader_skill(grades, list("abcd"), given, np.arange(200))
    assert against == "the mean of the other readers"
    assert table["weight"].isna().all()
    assert "the mean of the others" in sentence


def test_a_fold_never_sees_the_histology_it_left_out() -> None:
    grades, truth = readings()
    train, left = np.arange(150), np.arange(150, 200)
    certain = np.where(np.arange(200) < 5, truth, np.nan)
    one = fold_labels("pooled", grades, truth, certain, train)
    other = truth.copy()
    other[left] = 1 - other[left]
    two = fold_labels("pooled", grades, other, certain, train)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_array_equal(one[0][:5], truth[:5])
    nobody = fold_labels("pooled", grades, np.full(200, np.nan), certain, train)
    assert nobody[2].endswith("the mean is taken")


def test_odd_panels() -> None:
    """One reader; all readers equal; binary reads."""
    _, truth = readings()
    one = np.where(truth == 1, 0.75, 0.25)[:, None]
    # Always right at .75: pooled is surer than that.
    assert PooledReaders().fit(one, truth).predict(one).p[truth == 1].min() > 0.75
    assert "no other reader" in reader_skill(one, ["a"], truth, np.arange(200))[1]
    equal = np.repeat(one, 3, axis=1)
    np.testing.assert_allclose(np.ptp(PooledReaders().fit(equal, truth).coefficients_[2:]), 0)
    binary = np.repeat(truth[:, None], 7, axis=1)
    binary[::5, 0] = 1 - binary[::5, 0]
    p = PooledReaders().fit(binary, truth).predict(binary).p
    assert ((p > 0.5) == (truth == 1)).all()
    with pytest.raises(CadError, match=r"grade is 3, must lie in \[0, 1\]"):
        PooledReaders().fit(one * 4, truth)
    with pytest.raises(CadError, match="must be one of agreement, mean, pooled"):
        consensus_rule("median")


def test_notes_name_the_substitutes() -> None:
    scores = pd.DataFrame(
        [("sub-1", "1", "r1", "likert5", 3.0), ("sub-1", "1", "r2", "pirads", 4.0)],
        columns=["participant_id", "roi_id", "reader_id", "scale", "score"],
    )
    rois = pd.DataFrame({"participant_id": ["sub-1"], "roi_id": ["1"]})
    said = notes(scores, LabelSettings())
    assert "biopsied lesions" in said[0]
    assert "different scales (likert5, pirads)" in said[1]
    assert notes(scores, LabelSettings(pirads_probability={4: 0.5}))[0] == said[1]
    grades, names = grade_matrix(reader_probabilities(scores, rois, LabelSettings()), rois)
    np.testing.assert_allclose(grades, [[0.5, 159 / 437]])
    assert names == ["r1", "r2"]


def test_mean_and_spread_by_hand() -> None:
    """Two readers of three; one alone; nobody; three."""
    nobody = np.nan
    grades = np.array(
        [[0.2, 0.4, nobody], [nobody, 0.5, nobody], [nobody] * 3, [0.0, 0.5, 1.0]], dtype=float
    )
    belief = MeanReaders().predict(grades)
    np.testing.assert_allclose(belief.p, [0.3, 0.5, np.nan, 0.5])
    np.testing.assert_allclose(belief.eta, [np.sqrt(0.02), 0.125, np.nan, 0.5])
    assert MeanReaders(single=0.2).predict(grades).eta[1] == 0.2
    assert MeanReaders().note == PooledReaders().note == ""
    assert belief.y.shape == (0,)
    assert belief.notes == ()


def test_the_uncertainty_is_that_of_the_posterior_by_differences() -> None:
    """Covariance from the model as written; p and eta from MacKay's formulas, written out."""
    grades, truth = readings(60)
    pooled = PooledReaders().fit(grades, truth)
    assert pooled.note == ""
    used = np.isfinite(grades).any(axis=1)
    s, y = grades[used], truth[used]
    n, total, mean = np.isfinite(s).sum(1), np.nansum(s, 1), np.nanmean(s, 1)
    drawn = (total + 0.5) / (n + 1)
    deviation = np.where(np.isfinite(s), s - mean[:, None], 0)
    design = np.column_stack([np.ones(len(s)), np.log(drawn / (1 - drawn)), deviation])

    def gradient(theta: np.ndarray) -> np.ndarray:
        prior = np.array([1.0, 4.0, 1.0, 1.0, 1.0, 1.0]) * (theta - np.eye(6)[1])
        return np.asarray(design.T @ (expit(design @ theta) - y) + prior)

    hessian = np.empty((6, 6))
    for term in range(6):
        step = 1e-5 * np.eye(6)[term]
        change = gradient(pooled.coefficients_ + step) - gradient(pooled.coefficients_ - step)
        hessian[term] = change / 2e-5
    covariance = np.linalg.inv(hessian)
    np.testing.assert_allclose(pooled.covariance_, covariance, atol=1e-6)
    belief = pooled.predict(grades)
    assert np.isnan(belief.p[~used]).all()
    assert np.isnan(belief.eta[~used]).all()
    for row in range(len(s)):
        variance = design[row] @ covariance @ design[row]
        z = design[row] @ pooled.coefficients_
        p = expit(z / np.sqrt(1 + np.pi * variance / 8))
        assert belief.p[used][row] == pytest.approx(p, abs=1e-6)
        assert belief.eta[used][row] == pytest.approx(p * (1 - p) * np.sqrt(variance), abs=1e-6)


def test_weights_are_changes_of_the_pooled_log_odds() -> None:
    """For each reader, row by row: his score from 0 to 1, the others as they are."""
    grades, truth = readings(40)
    pooled = PooledReaders().fit(grades, truth)

    def terms(scores: np.ndarray) -> np.ndarray:
        drawn = (scores.sum() + 0.5) / (len(scores) + 1)
        return np.array([1.0, np.log(drawn / (1 - drawn)), *(scores - scores.mean())])

    weight, deviation = pooled.weights(grades)
    for reader in range(4):
        slopes = []
        for row in grades[np.isfinite(grades).any(axis=1)]:
            filled = np.where(np.isfinite(row), row, np.nanmean(row))
            low, high = filled.copy(), filled.copy()
            low[reader], high[reader] = 0.0, 1.0
            slopes.append(terms(high) - terms(low))
        slope = np.mean(slopes, axis=0)
        assert weight[reader] == pytest.approx(slope @ pooled.coefficients_)
        variance = slope @ pooled.covariance_ @ slope
        assert deviation[reader] == pytest.approx(np.sqrt(variance))


def test_grades_at_the_limits_pass_and_beyond_are_refused() -> None:
    refuse_outside(np.array([[0.0, 1.0], [np.nan, 0.5]]))
    with pytest.raises(CadError, match=r"grade is -0\.01, must lie"):
        refuse_outside(np.array([[0.5, -0.01], [1.5, 0.5]]))
    with pytest.raises(CadError, match=r"grade is 1\.01, must lie"):
        refuse_outside(np.array([[0.5, 1.01]]))
    grades, truth = readings(40)
    pooled = PooledReaders().fit(grades, truth)
    with pytest.raises(CadError, match="grade is 4, must lie"):
        pooled.predict(np.full((1, 4), 4.0))


def test_rows_without_a_reader_or_without_histology_teach_nothing() -> None:
    grades, truth = readings(60)
    known = np.where(np.arange(60) % 2 == 0, truth, np.nan)
    taught = np.isfinite(known) & np.isfinite(grades).any(axis=1)
    whole = PooledReaders().fit(grades, known)
    alone = PooledReaders().fit(grades[taught], known[taught])
    np.testing.assert_array_equal(whole.coefficients_, alone.coefficients_)
    # The only malignant region has no reader.
    unread = np.array([[0.2, 0.3], [np.nan, np.nan]])
    rule = PooledReaders().fit(unread, np.array([0.0, 1.0]))
    assert not rule.identified_
    assert "only one class has" in rule.note
