"""Extremely randomised trees against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from cad.learners import SoftExtraTrees
from cad.learning.learners.solvers.problem import LearnerError

DRAWN = "a repeated row moves the random cuts of a tree and the regions that a leaf needs"


@parametrize_with_checks(
    [SoftExtraTrees(trees=20)],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": DRAWN for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def cohort(n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, the mean of four readers, and patients of four regions each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    scores = np.clip(expit(3 * X[:, :1]) + rng.normal(0, 0.15, (n, 4)), 0, 1)
    return X, (np.round(4 * scores) / 4).mean(axis=1), np.arange(n) // 4


def test_arrays_predict_what_scikit_learns_trees_predict() -> None:
    X, p, _ = cohort()
    weight = np.where(np.arange(len(p)) % 3, 1.0, 2.0)
    ours = SoftExtraTrees(trees=30).fit(X, p, sample_weight=weight)
    peer = ExtraTreesRegressor(30, min_samples_leaf=3, max_features=1.0, random_state=0)
    expected = peer.fit(X, p, weight).predict(X)
    found = ours.predict_proba(X)[:, 1]
    np.testing.assert_allclose(found, np.clip(expected, 0.01, 0.99), atol=1e-12)
    new = cohort(seed=1)[0]
    np.testing.assert_allclose(
        ours.predict_proba(new)[:, 1], np.clip(peer.predict(new), 0.01, 0.99), atol=1e-12
    )


def test_a_node_is_the_mean_of_its_rows_and_a_monotone_change_of_scale_is_none() -> None:
    X, p, _ = cohort()
    fitted = SoftExtraTrees(trees=5).fit(X, p)
    np.testing.assert_allclose(fitted.values_[fitted.roots_], p.mean(), atol=1e-12)
    scaled = SoftExtraTrees(trees=5).fit(4 * X, p)
    np.testing.assert_allclose(scaled.predict_proba(4 * X), fitted.predict_proba(X), atol=1e-12)


def test_a_tree_is_judged_by_patients_that_it_has_not_seen() -> None:
    """A column that names the patient tells a left-out patient's label nothing."""
    rng = np.random.default_rng(6)
    patient = np.repeat(np.arange(40), 5)
    p = np.repeat(rng.random(40), 5)
    X = np.column_stack([patient, rng.normal(size=200)])
    trees = SoftExtraTrees(trees=200, share=0.8)
    left_out = trees._fit_inside(X, p, None, patient)
    assert abs(np.corrcoef(left_out, p)[0, 1]) < 0.4
    assert np.corrcoef(trees.predict_proba(X)[:, 1], p)[0, 1] > 0.9


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_the_prediction_of_a_row_is_of_the_trees_without_its_patient(share: float) -> None:
    X, p, patient = cohort(40)
    weight = np.ones(len(p))
    trees = SoftExtraTrees(trees=8, share=share)
    left_out = trees._fit_inside(X, p, weight, patient)
    # The patients of each tree, drawn again: a seed for the cuts comes first.
    random = np.random.RandomState(trees.seed)
    total = np.zeros(len(p))
    count = np.zeros(len(p))
    stops = np.append(trees.roots_[1:], len(trees.values_))
    for root, stop in zip(trees.roots_, stops, strict=True):
        random.randint(np.iinfo(np.int32).max)
        n_drawn = min(9, max(1, round(share * 10)))
        is_drawn = np.isin(patient, random.permutation(10)[:n_drawn])
        assert trees.values_[root] == pytest.approx(p[is_drawn].mean())
        for row in np.flatnonzero(~is_drawn):
            node = root
            while trees.left_[node] != node:
                goes_left = np.float32(X[row, trees.features_[node]]) <= trees.thresholds_[node]
                node = trees.left_[node] if goes_left else trees.right_[node]
            assert root <= node < stop
            total[row] += trees.values_[node]
            count[row] += 1
    expected = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    np.testing.assert_allclose(left_out, expected, rtol=0, atol=1e-12)
    nobody = SoftExtraTrees(trees=3, share=share)._fit_inside(X, p, weight, patient, judged=False)
    assert np.isnan(nobody).all()


def test_where_no_drawn_row_counts_all_rows_are_drawn() -> None:
    X, p, patient = cohort(40)
    trees = SoftExtraTrees(trees=20, share=0.1)
    # One patient alone has weight: a tree that is grown without him would be grown on nothing.
    weight = (patient == 3).astype(float)
    left_out = trees._fit_inside(X, p, weight, patient)
    np.testing.assert_allclose(trees.values_[trees.roots_], p[patient == 3].mean(), atol=1e-12)
    assert np.isnan(left_out[patient == 3]).all()
    # All regions of one patient: nobody else is there to predict for.
    alone = SoftExtraTrees(trees=3, share=0.5)._fit_inside(X, p, None, np.zeros(len(p)))
    assert np.isnan(alone).all()


def test_labels_that_say_nothing_are_refused() -> None:
    X, p, _ = cohort()
    with pytest.raises(LearnerError, match="nothing to tell apart"):
        SoftExtraTrees().fit(X, np.full(len(p), 0.5))
