"""Paired comparisons: error rates under no difference, power, published corrections."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from cad.base.errors import CadError
from cad.learning.evaluation.folds.compare import compare_learners, hochberg, holm, paper_sign_test
from cad.learning.evaluation.measures.intervals import auc_covariance


def learners(seed: int, gap: float = 0.0) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(30), 5)
    y = (rng.random(150) < 0.35).astype(float)
    shared = 1.2 * y + rng.normal(size=150)

    def probability(noise: float) -> np.ndarray:
        return 1 / (1 + np.exp(-(shared + noise * rng.normal(size=150) - 0.5)))

    return {"a": probability(0.5), "b": probability(0.5 + gap)}, y, groups


def test_corrections_by_hand() -> None:
    p = [0.01, 0.04, 0.03, np.nan]
    np.testing.assert_allclose(holm(p), [0.03, 0.06, 0.06, np.nan])
    np.testing.assert_allclose(hochberg(p), [0.03, 0.04, 0.04, np.nan])
    np.testing.assert_allclose(holm([0.5, 0.9]), [1, 1])


def test_table_of_a_comparison() -> None:
    q, y, g = learners(0, gap=1.5)
    q["c"] = 1 - q["b"]
    table = compare_learners(q, y, g, measures=("auc", "brier"), resamples=200)
    assert len(table) == 6
    first = table.iloc[0]
    assert first["value_a"] == pytest.approx(roc_auc_score(y, q["a"]))
    assert first["difference"] == pytest.approx(first["value_a"] - first["value_b"])
    assert first["lower"] < first["difference"] < first["upper"]
    _, cov = auc_covariance(y, np.stack([q["a"], q["b"]]), np.arange(len(y)))
    z = abs(first["difference"]) / np.sqrt(cov[0, 0] + cov[1, 1] - 2 * cov[0, 1])
    assert first["p_delong"] == pytest.approx(2 * norm.sf(z))
    assert (table["p_holm"] >= table["p_hochberg"]).all()
    assert table.loc[table["measure"] == "brier", "p_delong"].isna().all()
    against_reverse = table[(table["a"] == "b") & (table["b"] == "c") & (table["measure"] == "auc")]
    assert against_reverse["p_permutation"].item() < 0.02


def test_equal_learners_are_not_different() -> None:
    q, y, g = learners(1)
    table = compare_learners({"a": q["a"], "again": q["a"]}, y, g, resamples=100)
    assert (table["difference"] == 0).all()
    assert (table[["p_bootstrap", "p_permutation"]] == 1).all().all()


def test_swapping_the_learners_turns_the_sign_only() -> None:
    q, y, g = learners(2, gap=1.0)
    one = compare_learners(q, y, g, resamples=150)
    other = compare_learners({"b": q["b"], "a": q["a"]}, y, g, resamples=150)
    np.testing.assert_allclose(one["difference"], -other["difference"])
    np.testing.assert_allclose(one["p_permutation"], other["p_permutation"])
    np.testing.assert_allclose(one["lower"], -other["upper"])


def test_level_under_no_difference() -> None:
    p = np.array(
        [
            compare_learners(*learners(seed), measures=("auc",), resamples=99)[
                ["p_permutation", "p_clustered"]
            ].to_numpy()[0]
            for seed in range(40)
        ]
    )
    rejected = (p <= 0.05).sum(axis=0)
    assert (rejected <= 6).all()  # P(more than 6 of 40 at level .05) < .004
    assert 0.3 < np.median(p[:, 0]) < 0.7


def test_only_rois_that_all_predicted_are_compared() -> None:
    q, y, g = learners(3)
    q["a"][:5] = np.nan
    y[5:8] = np.nan
    table = compare_learners(q, y, g, measures=("brier",), resamples=20)
    assert table["n"].item() == 142
    q["b"][:] = np.nan
    with pytest.raises(CadError, match="no ROI"):
        compare_learners(q, y, g)
    with pytest.raises(CadError, match="two learners"):
        compare_learners({"a": q["a"]}, y, g)
    with pytest.raises(CadError, match="unknown measure 'f1'"):
        compare_learners(q, y, g, measures=("f1",))


def test_paper_sign_test_counts_wins() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 50), rng.normal(0, 1, 50)
    draws = np.random.default_rng(4)
    wins = sum((lambda r: a[r].mean() > b[r].mean())(draws.integers(0, 50, 50)) for _ in range(100))
    found = paper_sign_test(lambda r: (a[r].mean(), b[r].mean()), 50, seed=4)
    assert found == pytest.approx(binomtest(wins, 100, 0.5, alternative="greater").pvalue)
    assert paper_sign_test(lambda r: (1.0, 1.0), 50) == 1


def test_paper_sign_test_measures_the_resampling() -> None:
    """A difference far below its standard error becomes certain with enough resamples."""
    rng = np.random.default_rng(1)
    a = rng.normal(0, 1, 400)
    a = a - a.mean() + 0.02  # standard error .05

    def p(n: int) -> float:
        return paper_sign_test(lambda r: (float(a[r].mean()), 0.0), 400, n)

    assert p(3000) < 1e-12
