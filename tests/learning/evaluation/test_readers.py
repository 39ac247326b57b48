"""Agreement and multi-reader analysis against published values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from cad.base.errors import CadError
from cad.learning.evaluation.measures.metrics import auc
from cad.learning.evaluation.readers.agreement import (
    agreement,
    intraclass,
    krippendorff_alpha,
    weighted_kappa,
)
from cad.learning.evaluation.readers.mrmc import (
    _jackknife_covariance,
    against_readers,
    obuchowski_rockette,
    u_statistic,
)

NA = np.nan
# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", example D: 4 observers.
FOUR_OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NA, NA, NA],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NA, 3],
    [NA, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NA],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NA],
]
# Shrout & Fleiss (1979), table 2: four judges (rows here) rate six targets.
FOUR_JUDGES = [[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]]


def test_krippendorffs_own_example() -> None:
    for level, value in (("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)):
        assert krippendorff_alpha(FOUR_OBSERVERS, level) == pytest.approx(value, abs=5e-4)
    with pytest.raises(ValueError, match="level 'ratio'"):
        krippendorff_alpha(FOUR_OBSERVERS, "ratio")


def test_shrout_and_fleiss_own_example() -> None:
    found = intraclass(FOUR_JUDGES)
    assert found["single"] == pytest.approx(0.29, abs=5e-3)
    assert found["consistency"] == pytest.approx(0.71, abs=6e-3)
    assert found["average"] == pytest.approx(0.62, abs=5e-3)


def test_kappa_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 5, 80)
    b = np.clip(a + rng.integers(-1, 2, 80), 0, 4)
    theirs = cohen_kappa_score(a, b, weights="quadratic", labels=range(5))
    assert weighted_kappa(a / 4, b / 4) == pytest.approx(theirs, abs=1e-12)
    assert np.isnan(weighted_kappa([1, 1], [1, 1]))
    assert np.isnan(weighted_kappa([], []))


def test_agreement_with_missing_scores_and_a_reader_of_one() -> None:
    table = np.array([[0, 0.5, 1, 0.25, 0.75], [0, 0.5, 1, 0.5, NA], [NA, NA, 1, NA, NA]])
    found = agreement(table, ["a", "b", "c"])
    assert [pair["n"] for pair in found["kappa"]] == [4, 1, 1]
    assert np.isnan(found["kappa"][1]["value"])
    assert found["icc"]["n"] == 1
    assert np.isnan(found["icc"]["single"])
    assert 0.5 < found["krippendorff_alpha"]["interval"] < 1
    perfect = agreement(np.array([[0, 0.5, 1], [0, 0.5, 1]]), ["a", "b"])
    assert perfect["icc"]["single"] == pytest.approx(1)
    assert perfect["krippendorff_alpha"]["ordinal"] == pytest.approx(1)


@pytest.mark.reference
def test_published_multi_reader_results(
    evidence: ModuleType, shared_data: Path, counted: Callable[[int, str], None]
) -> None:
    found = evidence.readers(shared_data / "readers")
    assert found["Van Dyke AUC 1"] == pytest.approx(0.897, abs=5e-4)
    assert found["Van Dyke AUC 2"] == pytest.approx(0.941, abs=5e-4)
    assert found["Van Dyke F"] == pytest.approx(4.46, abs=5e-3)
    assert found["Van Dyke p"] == pytest.approx(0.05, abs=5e-3)
    # Chakraborty (2017), chapter 22: p = .321 by ROC and .0349 by LROC on the same cases.
    assert found["CAD against radiologists ROC p"] == pytest.approx(0.321, abs=5e-4)
    assert found["CAD against radiologists LROC p"] == pytest.approx(0.0349, abs=5e-5)
    assert found["CAD ROC AUC"] == pytest.approx(0.8169, abs=5e-5)
    counted(7, "multi-reader results (Van Dyke; CAD against radiologists)")


def simulated(seed: int, gain: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = np.arange(60) // 2
    y = (rng.random(60) < 0.4).astype(float)
    case = y + 0.7 * rng.normal(size=60)
    bias = np.array([0.0, gain])[:, None, None] * y
    return y, case + bias + 0.7 * rng.normal(size=(2, 4, 60)), groups


def test_reading_with_and_without() -> None:
    y, ratings, groups = simulated(0, gain=1.2)
    found = obuchowski_rockette(y, ratings, groups)
    assert found.aucs[1, 2] == pytest.approx(auc(y, ratings[1, 2]))
    assert found.difference == pytest.approx(found.aucs[1].mean() - found.aucs[0].mean())
    assert found.p < 0.05
    assert found.lower > 0
    # The interval and the test are one statement.
    equal = obuchowski_rockette(y, np.stack([ratings[0], ratings[0]]), groups)
    assert equal.difference == 0
    swapped = obuchowski_rockette(y, ratings[::-1], groups)
    assert swapped.f == pytest.approx(found.f)
    assert swapped.lower == pytest.approx(-found.upper)


def test_components_are_those_of_patients_left_out_in_plain_loops() -> None:
    y, ratings, groups = simulated(3)
    ratings = np.round(ratings)  # ties, within patients too
    found = obuchowski_rockette(y, ratings, groups)
    left_out = np.array(
        [
            [auc(y[groups != g], row[groups != g]) for row in ratings.reshape(8, 60)]
            for g in np.unique(groups)
        ]
    )
    n = len(left_out)
    cov = np.cov(left_out.T) * (n - 1) ** 2 / n
    assert found.variance == pytest.approx(np.trace(cov) / 8, rel=1e-10)
    same_reader = [cov[j, 4 + j] for j in range(4)]
    assert found.cov1 == pytest.approx(np.mean(same_reader), rel=1e-10)


def test_the_jackknife_is_the_covariance_of_the_means_of_pseudovalues() -> None:
    y, ratings, groups = simulated(4)
    rows = ratings[0]
    whole = np.array([auc(y, row) for row in rows])
    patients = np.unique(groups)
    n = len(patients)
    pseudovalues = np.empty((n, len(rows)))
    for i, patient in enumerate(patients):
        others = groups != patient
        without = np.array([auc(y[others], row[others]) for row in rows])
        pseudovalues[i] = n * whole - (n - 1) * without
    away = pseudovalues - pseudovalues.mean(axis=0)
    expected = away.T @ away / (n - 1) / n
    # Names of patients need not be numbers.
    names = np.array([f"sub-{patient}" for patient in groups])
    np.testing.assert_allclose(_jackknife_covariance(y, rows, names), expected, rtol=1e-9)
    alone = _jackknife_covariance(y, rows[:1], groups)
    np.testing.assert_allclose(alone, expected[:1, :1], rtol=1e-9)


def test_level_of_the_multi_reader_test() -> None:
    p = np.array([obuchowski_rockette(*simulated(seed)).p for seed in range(60)])
    assert np.sum(p < 0.05) <= 8


def test_unread_cases_are_left_out_and_counted() -> None:
    y, ratings, groups = simulated(1)
    ratings[0, 1, 3] = np.nan
    y[7] = np.nan
    found = obuchowski_rockette(y, ratings, groups)
    assert (found.n, found.omitted) == (58, 2)
    beside = against_readers(y, ratings[0, 0], ratings[1], groups)
    assert (beside.n, beside.omitted) == (59, 1)


def test_what_cannot_be_compared_is_refused() -> None:
    y, ratings, groups = simulated(2)
    with pytest.raises(CadError, match="two treatments"):
        obuchowski_rockette(y, ratings[:1], groups)
    with pytest.raises(CadError, match="two or more, found 1"):
        against_readers(y, ratings[0, 0], ratings[0, :1], groups)
    with pytest.raises(CadError, match="lack a class"):
        against_readers(np.zeros(60), ratings[0, 0], ratings[0], groups)
    with pytest.raises(CadError, match="only one patient has malignant"):
        against_readers((groups == 0).astype(float), ratings[0, 0], ratings[0], groups)


def test_the_u_statistic_is_its_definition_in_plain_loops() -> None:
    rng = np.random.default_rng(5)
    y = np.array([1, 1, 1, 0, 0, 0, 0], float)
    table = rng.integers(0, 5, (2, 3, 7)) + y
    table[rng.random(table.shape) < 0.2] = NA
    aucs, _, error = u_statistic(y, table)
    kernels: list[dict[tuple[int, int, int], float]] = []
    for part in table:
        cells = {}
        for r, i, j in product(range(3), np.flatnonzero(y == 1), np.flatnonzero(y == 0)):
            gap = part[r, i] - part[r, j]
            if np.isfinite(gap):
                cells[r, int(i), int(j)] = float(gap > 0) + 0.5 * float(gap == 0)
        kernels.append(cells)
    assert aucs == pytest.approx([np.mean(list(cells.values())) for cells in kernels])
    variance = 0.0
    for a, b in product(range(2), repeat=2):
        of: dict[tuple[bool, ...], list[float]] = {}
        for (k, v), (m, w) in product(kernels[a].items(), kernels[b].items()):
            of.setdefault(tuple(x == z for x, z in zip(k, m, strict=True)), []).append(v * w)
        every = sum(map(sum, of.values())) / (len(kernels[a]) * len(kernels[b]))
        variance += (1 if a == b else -1) * (every - np.mean(of[False, False, False]))
    assert error == pytest.approx(np.sqrt(max(variance, 0.0)))


def test_the_u_statistic_swaps_sign_with_the_treatments() -> None:
    rng = np.random.default_rng(6)
    y = np.repeat([1.0, 0.0], 10)
    table = rng.normal(size=(2, 4, 20)) + y
    first, second = u_statistic(y, table), u_statistic(y, table[::-1])
    assert second[1:] == pytest.approx((-first[1], first[2]))
    with pytest.raises(CadError, match="no reader read"):
        u_statistic(y, np.full((2, 4, 20), NA))
