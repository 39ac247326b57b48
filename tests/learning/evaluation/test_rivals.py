"""Learners side by side: intervals against the bootstrap, sentences, learners that fail."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.learning.evaluation.folds.crossval import folds_side_by_side, out_of_fold, put_together
from cad.learning.evaluation.folds.paired import (
    CONSTANT,
    READERS,
    compare_probabilities,
    compare_with_rivals,
)
from cad.learning.learners.rivals import histology_rivals, rival_learners


class Mean(ClassifierMixin, BaseEstimator):
    """Predict the mean label; warn or fail when told to."""

    def __init__(self, mood: str = "") -> None:
        self.mood = mood

    def fit(self, X: Any, y: Any) -> Self:
        """Remember the mean."""
        if self.mood == "fails":
            raise ValueError("cannot")
        if self.mood == "warns":
            warnings.warn("did not converge", ConvergenceWarning, stacklevel=2)
        self.classes_, self.mean_ = np.array([0, 1]), float(np.mean(y))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the mean for every row."""
        return np.tile([1 - self.mean_, self.mean_], (len(X), 1))


def regions(n: int = 120, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return soft labels, histology, patients and two probabilities, the first better."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n) * 2
    p = np.clip(expit(z + rng.normal(0, 0.5, n)).round(2), 0, 1)
    truth = (rng.random(n) < expit(z)).astype(float)
    return p, truth, np.arange(n) // 4, expit(z), expit(z * 0.3 + rng.normal(0, 1, n))


def row(table: Any, against: str, measure: str, learner: str) -> Any:
    """Return one row of a table."""
    found = table[
        (table["against"] == against)
        & (table["measure"] == measure)
        & (table["learner"] == learner)
    ]
    assert len(found) == 1
    return found.iloc[0]


def test_differences_and_intervals_agree_with_the_patient_bootstrap() -> None:
    p, truth, patient, good, bad = regions()
    found = compare_probabilities(
        {"a": good, "b": bad}, patient, reference="a", target=p, truth=truth
    )
    rng = np.random.default_rng(1)
    groups = [np.flatnonzero(patient == k) for k in range(30)]
    draws = []
    for _ in range(2000):
        rows = np.concatenate([groups[k] for k in rng.integers(0, 30, 30)])
        draws.append(np.mean((p[rows] - bad[rows]) ** 2 - (p[rows] - good[rows]) ** 2))
    brier = row(found.table, "readers", "brier", "b")
    assert brier["difference"] == pytest.approx(np.mean((p - bad) ** 2 - (p - good) ** 2))
    half = (brier["upper"] - brier["lower"]) / 2
    # Student's 2.045 of 29 degrees against the normal 1.96, and Monte Carlo.
    assert half == pytest.approx(2.045 * np.std(draws), rel=0.07)
    assert brier["beyond_chance"]
    kl = row(found.table, "readers", "kl", "b")
    assert kl["lower"] < kl["difference"] < kl["upper"]
    auc = row(found.table, "histology", "auc", "b")
    assert auc["difference"] < 0
    assert "Against the readers (two-sided KL, smaller is better) a is best" in found.sentence
    assert "more than chance" in found.sentence


def test_equal_learners_do_not_differ() -> None:
    p, _, patient, good, _ = regions()
    table = compare_probabilities({"a": good, "b": good}, patient, reference="a", target=p).table
    assert not table["beyond_chance"].any()
    part = table[(table["learner"] == "b") & (table["measure"] != "calibration_slope")]
    np.testing.assert_array_equal(part["difference"], 0)


def test_a_rival_that_fails_or_warns_has_a_row_that_says_so() -> None:
    p, truth, patient, good, _ = regions()
    rivals = {"fine": Mean(), "warning": Mean("warns"), "failing": Mean("fails")}
    found = compare_with_rivals(
        "ours", good, rivals, np.zeros((len(p), 2)), p, patient, truth=truth
    )
    assert row(found.table, "readers", "kl", "fine")["note"] == ""
    warned = row(found.table, "readers", "kl", "warning")
    assert warned["note"] == "30 of 30 folds warned: did not converge"
    failed = row(found.table, "readers", "kl", "failing")
    assert np.isnan(failed["value"])
    assert "every fold failed" in failed["note"]
    # The constant is the training folds' mean, as the rival that predicts it.
    same = row(found.table, "histology", "brier", CONSTANT)["value"]
    assert same == pytest.approx(row(found.table, "histology", "brier", "fine")["value"])
    assert READERS not in set(found.table.loc[found.table["against"] == "readers", "learner"])
    assert row(found.table, "histology", "brier", READERS)["value"] == pytest.approx(
        np.mean((p - truth) ** 2)
    )


def test_who_stays_silent_does_not_win_a_sum() -> None:
    p, _, patient, good, bad = regions()
    silent = np.where(patient == 0, good, np.nan)
    found = compare_probabilities(
        {"a": good, "b": bad, "silent": silent}, patient, reference="a", target=p
    )
    assert "silent" not in found.sentence
    assert row(found.table, "readers", "kl", "silent")["n"] == 4


def test_what_cannot_be_compared_is_refused() -> None:
    p, _, patient, good, _ = regions()
    with pytest.raises(CadError, match="no learner 'x'"):
        compare_probabilities({"a": good}, patient, reference="x", target=p)
    with pytest.raises(CadError, match="neither readers' scores nor histology"):
        compare_probabilities({"a": good}, patient, reference="a")


def test_learners_side_by_side_have_the_folds_that_each_has_alone() -> None:
    p, _, patients, _, _ = regions(60)
    rng = np.random.default_rng(1)
    X = np.column_stack([p + rng.normal(0, 0.3, len(p)), rng.normal(size=(len(p), 6))])
    X[rng.random(X.shape) < 0.1] = np.nan
    p[:5], eta = np.nan, np.full(len(p), 0.1)
    front = Pipeline([("impute", SimpleImputer()), ("scale", StandardScaler())])

    def features(train: np.ndarray) -> np.ndarray:
        return X - np.nanmean(X[train], axis=0)

    def relabel(train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.clip(p + np.nanmean(p[train]) / 10, 0, 1), eta

    given = {"groups": patients, "eta": eta, "relabel": relabel}
    rivals = {**rival_learners(), "mean": Mean()}
    each = folds_side_by_side(rivals, features, p, front=front, **given)
    for name, rival in rivals.items():
        alone = out_of_fold(Pipeline([*front.steps, ("learner", rival)]), features, p, **given)
        beside = put_together(each[name], len(p))
        np.testing.assert_allclose(beside.probability, alone.probability, rtol=0, atol=1e-10)
        assert [f.n_train for f in beside.folds] == [f.n_train for f in alone.folds]
        assert np.ptp(alone.probability) > 0


def test_a_front_that_is_already_fitted_is_taken_as_it_is() -> None:
    p, _, patients, _, _ = regions()
    X = np.column_stack([p, np.random.default_rng(1).normal(size=(len(p), 3))])
    rivals = {"ridge": rival_learners()["kernel ridge on p"]}
    front = Pipeline([("impute", SimpleImputer()), ("scale", StandardScaler())])
    learner = Pipeline([*front.steps, ("learner", Mean())])
    ours = out_of_fold(learner, X, p, groups=patients, keep_estimators=True)
    fronts = {fold.name: fold.estimator[:-1] for fold in ours.folds}
    some = dict(list(fronts.items())[::2])  # what is missing is fitted
    own, shared, half = (
        folds_side_by_side(rivals, X, p, groups=patients, front=front, fronts=made)
        for made in (None, fronts, some)
    )
    for name, folds in own.items():
        for other in (shared[name], half[name]):
            for a, b in zip(folds, other, strict=True):
                np.testing.assert_array_equal(a.probability, b.probability)
    # Not fitted here: steps of other rows would be taken too, and show.
    wrong = dict(zip(fronts, [*fronts.values()][1:] + [*fronts.values()][:1], strict=True))
    other = folds_side_by_side(rivals, X, p, groups=patients, front=front, fronts=wrong)
    assert any(
        not np.array_equal(a.probability, b.probability)
        for name, folds in own.items()
        for a, b in zip(folds, other[name], strict=True)
    )


def test_a_front_that_fails_fails_every_learner_and_says_why() -> None:
    p, _, patients, _, _ = regions(20)
    front = Pipeline([("impute", SimpleImputer())])
    X = np.full((20, 1), np.inf)
    each = folds_side_by_side({"a": Mean(), "b": Mean()}, X, p, groups=patients, front=front)
    assert all("infinity" in fold.error for folds in each.values() for fold in folds)


def test_a_rival_of_histology_learns_from_histology_alone() -> None:
    """Readers say the opposite of histology: who learns from it is right against it."""
    rng = np.random.default_rng(3)
    owner = np.arange(80) // 4
    X = rng.normal(size=(80, 2))
    truth = (X[:, 0] + 0.3 * rng.normal(size=80) > 0).astype(float)
    truth[::5] = np.nan
    p = np.clip(0.5 - X[:, 0] / 4, 0, 1)
    base = out_of_fold(Mean(), X, p, groups=owner)
    options: dict[str, Any] = {"truth": truth, "of_histology": histology_rivals()}
    found = compare_with_rivals(
        "mean", base.probability, {}, X, p, owner, centred=base.centred, **options
    )
    (name,) = histology_rivals()
    value = found.table.set_index(["against", "learner", "measure"])["value"]
    assert value["histology", name, "auc"] > 0.9
    assert value["readers", name, "auc"] < 0.1
    assert np.isfinite(found.probabilities[name]).all()
    unknown = {**options, "truth": np.full(80, np.nan)}
    without = compare_with_rivals("mean", base.probability, {}, X, p, owner, **unknown)
    assert name not in without.probabilities
    assert histology_rivals(10**6) == {}
