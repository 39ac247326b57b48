"""The permutation null: what moves, what stays, and what it says on noise and on signal."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.learning.evaluation.folds.null import permutation_null, permute_between, permute_within


class QuickBayes(GaussianNB):
    """A learner of a millisecond that takes soft labels."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> QuickBayes:
        return super().fit(X, y > 0.5)


def quick() -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("learner", QuickBayes())])


def logistic() -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("learner", LogisticRegression())])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 9999))
@settings(max_examples=80, deadline=None)
def test_both_schemes_are_permutations(groups: list[int], seed: int) -> None:
    n = len(groups)
    for permute in (permute_between, permute_within):
        source = permute(groups, np.random.default_rng(seed))
        assert sorted(source) == list(range(n))
    owner = np.array(groups)
    assert (owner[permute_within(groups, np.random.default_rng(seed))] == owner).all()


def test_between_keeps_neighbours_together() -> None:
    """The labels of patients, end to end, are shifted: neighbours part once a patient at most."""
    groups = np.repeat(np.arange(10), 6)
    broken = []
    for seed in range(20):
        source = permute_between(groups, np.random.default_rng(seed))
        broken.append(int(np.sum(np.diff(source) != 1)))
    assert max(broken) <= 10
    assert np.mean([permute_between(groups, np.random.default_rng(s))[0] for s in range(50)]) > 5


def test_within_is_uniform() -> None:
    seen = Counter(
        tuple(permute_within([0, 0, 0, 1], np.random.default_rng(s))) for s in range(1200)
    )
    assert len(seen) == 6
    assert max(seen.values()) < 260  # 200 expected


def test_tuples_travel_together_and_features_stay() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 5)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] > 0.3).astype(float)
    found = permutation_null(logistic(), X, y, y, groups=groups, n=39, eta=0.1)
    assert found.observed > 0.9
    for scheme in ("between", "within"):
        block = found.schemes[scheme]
        assert block.p == pytest.approx(1 / 40)
        assert len(block.aucs) == 39
        assert block.evidence.startswith("evidence")
        assert block.lower < block.mean < block.upper


def test_count_and_observed_do_not_change_the_null() -> None:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(8), 5)
    X, y = rng.normal(size=(40, 2)), rng.integers(0, 2, 40).astype(float)
    one = permutation_null(logistic(), X, y, y, groups=groups, n=6, seed=3)
    two = permutation_null(logistic(), X, y, y, groups=groups, n=6, seed=3, observed=one.observed)
    longer = permutation_null(logistic(), X, y, y, groups=groups, n=8, seed=3, schemes=("within",))
    np.testing.assert_array_equal(one.schemes["between"].aucs, two.schemes["between"].aucs)
    np.testing.assert_array_equal(one.schemes["between"].p, two.schemes["between"].p)
    np.testing.assert_array_equal(longer.schemes["within"].aucs[:6].shape, (6,))
    assert "between" not in longer.schemes
    assert one.against == "histology"
    unread = permutation_null(logistic(), X, y, np.full(40, np.nan), groups=groups, n=6, seed=3)
    assert unread.against == "labels"
    np.testing.assert_array_equal(one.schemes["within"].aucs, unread.schemes["within"].aucs)


def test_noise_in_small(evidence: ModuleType) -> None:
    """The full 100 cohorts: python -m benchmarks.evidence noise."""
    counts = evidence.noise(cohorts=4, permutations=39, patients=8, n_jobs=1, estimator=quick())
    assert counts["p < .05 between"] <= 1
    assert counts["p < .05 within"] <= 1
    assert counts["covered between"] >= 3


def test_noise_in_folds_of_patients(evidence: ModuleType) -> None:
    """The full 100 cohorts with the released P-SVM: python -m benchmarks.evidence shipped-noise."""
    counts = evidence.noise(
        cohorts=4,
        permutations=39,
        patients=10,
        schemes=("between",),
        n_jobs=1,
        estimator=quick(),
        n_folds=5,
    )
    assert counts["p < .05 between"] <= 1
    assert counts["covered between"] >= 3


def test_selecting_outside_the_fold_beats_the_null(evidence: ModuleType) -> None:
    """Positive control: the leak that the design prevents would look like evidence."""
    found = evidence.leak(permutations=24, n_jobs=1, estimator=quick())
    assert found["AUC selected outside"] > 0.7
    assert found["p outside (between)"] <= 0.04
    assert found["AUC selected outside"] > found["null upper end outside"]
    assert found["p inside (between)"] > 0.05


def test_wrong_use_is_refused() -> None:
    X, y, groups = np.zeros((4, 1)), np.array([0, 1, 0, 1.0]), [1, 1, 2, 2]
    with pytest.raises(CadError, match="schemes"):
        permutation_null(logistic(), X, y, y, groups=groups, n=5, schemes=("across",))
    with pytest.raises(CadError, match="n >= 1"):
        permutation_null(logistic(), X, y, y, groups=groups, n=0)
    with pytest.raises(CadError, match="one class"):
        permutation_null(logistic(), X, y, np.ones(4), groups=groups, n=5)
    with pytest.raises(CadError, match="no AUC"):
        permutation_null(logistic(), X, np.zeros(4), y, groups=groups, n=5)
