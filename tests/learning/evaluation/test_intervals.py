"""Clustered variances against formulas written out, DeLong published code paths and simulation."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from scipy.stats import norm

from cad.learning.evaluation.measures import intervals
from cad.learning.evaluation.measures.intervals import (
    auc_covariance,
    bootstrap,
    clustered_auc,
    delong_auc,
    patient_resamples,
)
from cad.learning.evaluation.measures.metrics import auc, average_precision


def clustered(
    seed: int, patients: int = 40, rois: int = 6, shared: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(patients), rois)
    share = rng.beta(0.5, 1.2, patients)  # malignant ROIs come together, as in patients
    y = (rng.random(len(groups)) < share[groups]).astype(float)
    score = y + rng.normal(size=len(y)) + shared * rng.normal(size=patients)[groups]
    return y, score, groups


def obuchowski_loops(y: np.ndarray, s: np.ndarray, groups: np.ndarray) -> float:
    """Obuchowski (1997), eq. by eq., in plain loops."""
    pos, neg = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    m, n = len(pos), len(neg)

    def psi(x: float, z: float) -> float:
        return 1.0 if x > z else 0.5 if x == z else 0.0

    v10 = {i: np.mean([psi(s[i], s[j]) for j in neg]) for i in pos}
    v01 = {j: np.mean([psi(s[i], s[j]) for i in pos]) for j in neg}
    theta = np.mean(list(v10.values()))
    clusters = np.unique(groups)
    i10 = sum(any(groups[i] == c for i in pos) for c in clusters)
    i01 = sum(any(groups[j] == c for j in neg) for c in clusters)
    s10 = s01 = s11 = 0.0
    for c in clusters:
        a = sum(v10[i] - theta for i in pos if groups[i] == c)
        b = sum(v01[j] - theta for j in neg if groups[j] == c)
        s10, s01, s11 = s10 + a * a, s01 + b * b, s11 + a * b
    s10 *= i10 / ((i10 - 1) * m)
    s01 *= i01 / ((i01 - 1) * n)
    s11 *= len(clusters) / (len(clusters) - 1)
    return s10 / m + s01 / n + 2 * s11 / (m * n)


@pytest.mark.parametrize("seed", range(3))
def test_variance_is_obuchowskis(seed: int) -> None:
    y, s, g = clustered(seed, patients=12, rois=4)
    s = np.round(s, 1)  # ties
    theta, cov = auc_covariance(y, s, g)
    assert theta[0] == pytest.approx(auc(y, s), abs=1e-12)
    assert cov[0, 0] == pytest.approx(obuchowski_loops(y, s, g), rel=1e-10)


def test_delong_by_hand() -> None:
    # Positives .9 .6 .4 against negatives .7 .3 .2: placements 1, 2/3, 2/3 and 1/3, 1, 1.
    y, s = np.array([1, 1, 1, 0, 0, 0.0]), np.array([0.9, 0.6, 0.4, 0.7, 0.3, 0.2])
    theta, cov = auc_covariance(y, s, np.arange(6))
    assert theta[0] == pytest.approx(7 / 9)
    s10 = np.var([1, 2 / 3, 2 / 3], ddof=1)
    s01 = np.var([1 / 3, 1, 1], ddof=1)
    assert cov[0, 0] == pytest.approx(s10 / 3 + s01 / 3)
    found = delong_auc(y, s)
    half = norm.ppf(0.975) * np.sqrt(cov[0, 0]) / (7 / 9 * 2 / 9)
    centre = np.log(7 / 2)
    assert found.lower == pytest.approx(1 / (1 + np.exp(-(centre - half))))
    assert found.upper == pytest.approx(1 / (1 + np.exp(-(centre + half))))
    assert "ROI-level" in found.method


def test_covariance_of_two_scores_is_that_of_their_difference() -> None:
    y, s, g = clustered(4)
    other = s + np.random.default_rng(1).normal(size=len(s))
    _, cov = auc_covariance(y, np.stack([s, other]), g)
    np.testing.assert_allclose(cov, cov.T)
    _, same = auc_covariance(y, np.stack([s, 2 * s + 1]), g)
    assert same[0, 0] + same[1, 1] - 2 * same[0, 1] == pytest.approx(0, abs=1e-15)
    assert np.linalg.eigvalsh(cov).min() > 0


def test_interval_is_unmoved_by_what_does_not_matter() -> None:
    y, s, g = clustered(2)
    base = clustered_auc(y, s, g)
    order = np.random.default_rng(0).permutation(len(y))
    moved = clustered_auc(y[order], np.exp(s[order]), np.array([f"p{v}" for v in g[order]]))
    assert moved.lower == pytest.approx(base.lower, abs=1e-12)
    flipped = clustered_auc(1 - y, -s, g)
    assert (flipped.value, flipped.lower) == pytest.approx((base.value, base.lower), abs=1e-12)


def test_clusters_widen_the_interval_and_the_bootstrap_agrees() -> None:
    y, s, g = clustered(6, patients=60)
    wide, narrow = clustered_auc(y, s, g), delong_auc(y, s)
    assert wide.upper - wide.lower > 1.1 * (narrow.upper - narrow.lower)
    ends = bootstrap(lambda w: auc(y == 1, s, weight=w)[:, None], g, 400, seed=1)[0]
    assert ends == pytest.approx([wide.lower, wide.upper], abs=0.025)


def test_resamples_are_whole_patients_and_reproducible() -> None:
    g = np.array(["a", "b", "b", "c", "c", "c"])
    (draws,) = patient_resamples(g, 50, seed=3)
    (again,) = patient_resamples(g, 50, seed=3)
    assert draws.shape == (50, 6)
    assert (draws == again).all()
    for names in (slice(1, 3), slice(3, 6)):  # the regions of one patient go together
        assert (draws[:, names] == draws[:, names][:, :1]).all()
    assert (draws[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert len(np.unique(draws, axis=0)) > 5


def test_resamples_come_in_blocks_that_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    g = np.array(["a", "b", "b", "c", "c", "c"])
    (whole,) = patient_resamples(g, 50, seed=3)
    monkeypatch.setattr(intervals, "_ENTRIES", 42)
    blocks = list(patient_resamples(g, 50, seed=3))
    assert [len(block) for block in blocks] == [7] * 7 + [1]
    assert (np.concatenate(blocks) == whole).all()


def test_bootstrap_in_plain_loops() -> None:
    """Rows taken one resample after the other, as a textbook has it."""
    y, s, g = clustered(3, patients=12)
    rng = np.random.default_rng(9)
    rows_of = [np.flatnonzero(g == k) for k in np.unique(g)]
    draws = []
    for _ in range(200):
        rows = np.concatenate([rows_of[i] for i in rng.integers(0, 12, 12)])
        draws.append([auc(y[rows], s[rows]), average_precision(y[rows], s[rows])])
    wanted = np.quantile(draws, [0.025, 0.975], axis=0).T

    def both(w: np.ndarray) -> np.ndarray:
        measures = (auc, average_precision)
        return np.stack([measure(y == 1, s, weight=w) for measure in measures], axis=1)

    np.testing.assert_allclose(bootstrap(both, g, 200, seed=9), wanted, atol=1e-12)


def test_no_interval_rather_than_a_wrong_one() -> None:
    perfect = clustered_auc([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], [1, 2, 3, 4])
    assert perfect.value == 1
    assert np.isnan([perfect.lower, perfect.upper]).all()
    one_class = clustered_auc([0, 0], [0.1, 0.2], [1, 2])
    assert np.isnan([one_class.value, one_class.lower]).all()
    one_patient = clustered_auc([0, 1, 1], [0.3, 0.2, 0.4], [1, 1, 1])
    assert one_patient.value == 0.5
    assert np.isnan(one_patient.lower)
    nothing = bootstrap(lambda w: np.tile([1.0, 2.0], (len(w), 1)), [1, 2], 0, seed=0)
    assert nothing.shape == (2, 2)
    assert np.isnan(nothing).all()


@pytest.mark.parametrize("seed", range(3))
def test_jackknife_in_plain_loops(seed: int) -> None:
    y, s, g = clustered(seed, patients=9, rois=5)
    s = np.round(s, 1)  # ties
    without = [auc(y[g != k], s[g != k]) for k in range(9)]
    logits = np.log(without) - np.log(np.subtract(1, without))
    error = np.sqrt(8 / 9 * np.sum((logits - logits.mean()) ** 2))
    value = auc(y, s)
    centre = np.log(value / (1 - value))
    found = clustered_auc(y, s, g)
    assert found.value == pytest.approx(value, abs=1e-12)
    half = 2.306004135 * error  # t(8) at .975, from a table
    assert found.lower == pytest.approx(1 / (1 + np.exp(half - centre)), abs=1e-9)
    assert found.upper == pytest.approx(1 / (1 + np.exp(-half - centre)), abs=1e-9)


def test_one_patient_with_every_error_gives_a_wide_interval_not_an_infinite_one() -> None:
    y = np.tile([0.0, 1], 8)
    s = y + np.arange(16) / 100
    s[1] = -1  # the only error
    found = clustered_auc(y, s, np.arange(16) // 2)
    assert 0 < found.lower < 0.6 < found.value < found.upper < 1


def test_coverage_in_small(coverage: ModuleType) -> None:
    """The full 400 cohorts: python -m benchmarks.coverage."""
    found = coverage.coverage(cohorts=60, resamples=40).set_index("interval")
    own, old, naive = (found.iloc[i] for i in (0, 1, 4))
    assert own["coverage"] >= 0.9  # a true .95 falls below with probability .05
    assert own["coverage"] >= old["coverage"] > naive["coverage"]
    assert naive["mean width"] < 0.8 * own["mean width"]
