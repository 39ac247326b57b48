"""Folds are made comparable: derivation, leave-pairs-out as oracle, noise, and what is kept."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

import cad
from cad.base.errors import CadError
from cad.learning.evaluation.folds.compare import compare_learners
from cad.learning.evaluation.folds.crossval import Fold, out_of_fold, put_together
from cad.learning.evaluation.folds.null import permutation_null
from cad.learning.evaluation.folds.paired import compare_probabilities
from cad.learning.evaluation.folds.pairs import pairs_left_out_auc
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.centring import (
    base_log_odds,
    centred_log_odds,
    ranked,
    spread_of_log_odds,
    stretches,
)
from cad.learning.evaluation.measures.comparison import compare_with_truth
from cad.learning.learners.rivals import SoftLogistic


def cohort(
    seed: int, patients: int = 20, rois: int = 4, effect: float = 0.0, alike: float = 0.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw features, truth and patients; regions of one patient are alike."""
    rng = np.random.default_rng([5, seed])
    owner = np.arange(patients).repeat(rois)
    n = len(owner)
    level = alike * rng.normal(size=patients)[owner]
    truth = (rng.normal(size=n) + level > 0.7 * np.sqrt(1 + alike**2)).astype(float)
    truth[[0, rois, 2 * rois]] = 1.0  # whatever pair is left out, a malignant region stays
    X = rng.normal(size=(n, 3)) + alike * rng.normal(size=(patients, 3))[owner]
    X[:, 0] += effect * truth
    return X, truth, owner


def test_a_model_that_knows_nothing_ties_all_folds() -> None:
    """By hand: of three patients two have a cancer each, and their own folds say less of them."""
    truth = np.array([1.0, 0, 1, 0, 0, 0])
    owner = np.repeat([0, 1, 2], 2)
    made = out_of_fold(DummyClassifier(strategy="prior"), np.zeros((6, 1)), truth, groups=owner)
    assert made.probability == pytest.approx([0.25, 0.25, 0.25, 0.25, 0.5, 0.5])
    assert metrics.auc(truth, made.probability) == pytest.approx(0.25)
    assert np.ptp(made.centred) < 1e-9
    assert metrics.auc(truth, made.centred) == 0.5
    assert [fold.base for fold in made.folds] == pytest.approx([logit(0.25), logit(0.25), 0.0])
    assert made.on_common_base == pytest.approx(np.full(6, expit(2 * logit(0.25) / 3)))


def test_within_a_fold_nothing_changes_and_certainty_stays_certain() -> None:
    q = np.array([0.0, 0.2, 0.7, 1.0])
    for base in (-3.0, 0.0, 4.0):
        assert (np.diff(centred_log_odds(q, base)) > 0).all()
    both = centred_log_odds([0.0, 0.0, 1.0, 1.0, 1e-12, 1 - 1e-12], [-4, 4, -4, 4, 4, -4])
    assert both[0] == both[1] < both[4]
    assert both[2] == both[3] > both[5]
    assert np.isnan(centred_log_odds([np.nan], 0.0)[0])
    assert base_log_odds([0, 0, 0]) == pytest.approx(logit(1 / 6))
    assert base_log_odds([1.0, np.nan, 1.0]) == pytest.approx(logit(3 / 4))
    assert base_log_odds([]) == 0.0


def test_spreads_and_their_factors_by_hand() -> None:
    """A model that predicts the same for everybody has no spread, and its rows count as ties."""
    assert spread_of_log_odds([0.2, 0.8, np.nan]) == pytest.approx(np.log(4))
    assert spread_of_log_odds([0.0, 1.0]) == pytest.approx(logit(0.999))
    assert spread_of_log_odds([0.3, 0.3]) == spread_of_log_odds([]) == 0.0
    factors = stretches([0.5, 1.0, 4.0, 1e-9, np.nan])
    assert factors[:4].tolist() == [2.0, 1.0, 0.25, 0.0]
    assert np.isnan(factors[4])
    assert stretches([0.0, 0.0]).tolist() == [0.0, 0.0]
    assert stretches([0.005, 0.005]).tolist() == [1.0, 1.0]
    assert centred_log_odds([0.5], -1.0, 0.5, stretch=3.0).tolist() == [3.5]


def test_a_fold_whose_model_is_twice_as_bold_counts_the_same() -> None:
    """Log-odds and spread of one fold are doubled around its base: nothing else changes."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(3, 4))
    base = np.array([-1.0, -0.5, -2.0])

    def folds(boldness: float) -> list[Fold]:
        made = []
        for k, factor in enumerate((1.0, 1.0, boldness)):
            q = expit(base[k] + factor * z[k])
            rows = np.arange(4) + 4 * k
            fold = Fold(f"{k}", rows, 8, q, np.full(4, np.nan), base=base[k], spread=factor)
            made.append(fold)
        return made

    plain = put_together(folds(1.0), 12)
    bold = put_together(folds(2.0), 12)
    assert bold.centred == pytest.approx(plain.centred)
    assert not np.allclose(bold.probability[8:], plain.probability[8:])
    failed = Fold("3", np.array([12]), 8, np.full(1, np.nan), np.full(1, np.nan), error="no fit")
    with_gap = put_together([*folds(1.0), failed], 13)
    assert with_gap.centred[:12] == pytest.approx(plain.centred)
    assert np.isnan(with_gap.centred[12])


def test_the_common_base_is_the_mean_over_folds_and_not_over_regions() -> None:
    """By hand: bases -1 and 3, of one and of three regions; the mean base is 1."""
    half = np.array([0.5])
    none = np.array([np.nan])
    folds = [
        Fold("a", np.array([0]), 9, half, none, base=-1.0, spread=1.0),
        Fold("b", np.array([1, 2, 3]), 9, half.repeat(3), none.repeat(3), base=3.0, spread=4.0),
        Fold("c", np.array([4]), 9, none, none, base=100.0, error="no label"),
    ]
    teaching = put_together(folds, 5).on_common_base
    assert logit(teaching[:4]) == pytest.approx([2.0, -2.0, -2.0, -2.0])
    assert np.isnan(teaching[4])


def test_a_penalty_chosen_on_inner_folds_does_not_lean_on_noise() -> None:
    """With the base alone the AUC is .45 on noise; pairs left out are the oracle."""
    rows = []
    for seed in range(24):
        X, truth, owner = cohort(seed, patients=12, alike=0.0)
        learner = SoftLogistic(Cs=(1e-3, 1e-2, 1e-1, 1.0), scaling=("given",))
        made = out_of_fold(learner, X, truth, groups=owner)
        base = np.empty(len(truth))
        for fold in made.folds:
            base[fold.rows] = fold.base
        alone = centred_log_odds(made.probability, base)
        pairs = pairs_left_out_auc(learner, X, truth, truth, owner)
        rows.append([metrics.auc(truth, alone), metrics.auc(truth, made.centred), pairs])
    alone_auc, centred_auc, pairs_auc = np.mean(rows, axis=0)
    assert abs(centred_auc - pairs_auc) < 0.04
    assert abs(centred_auc - pairs_auc) < abs(alone_auc - pairs_auc)


def brute_force(learner: Any, X: np.ndarray, truth: np.ndarray, owner: np.ndarray) -> float:
    """Compare every malignant with every benign region by a fit of its own."""
    won = []
    for i in np.flatnonzero(truth == 1):
        for j in np.flatnonzero(truth == 0):
            train = (owner != owner[i]) & (owner != owner[j])
            score = clone(learner).fit(X[train], truth[train]).decision_function(X[[i, j]])
            won.append(float(score[0] > score[1]) + 0.5 * float(score[0] == score[1]))
    return float(np.mean(won))


def test_certain_predictions_stay_outermost_whatever_their_base() -> None:
    """A probability next to 0 or 1 counts as certain from 1e-15 on: by hand."""
    bases = np.array([8.0, -8.0, 8.0, -8.0])
    centred = centred_log_odds([0.0, 1e-15, 1 - 1e-15, 1.0], bases)
    assert centred.tolist() == [-100.0, -100.0, 100.0, 100.0]
    assert centred_log_odds([0.5], 1.0).tolist() == [-1.0]
    nearly = centred_log_odds([2e-15, 1 - 2e-15], [8.0, -8.0])
    assert (np.abs(nearly) < 100).all()


def test_without_a_label_there_is_no_base() -> None:
    assert base_log_odds([]) == 0.0
    assert base_log_odds([np.nan]) == 0.0


def test_ranks_among_others_by_hand() -> None:
    """Two of four are smaller; one is smaller and one equal; none is known."""
    others = np.array([4.0, 1.0, np.nan, 2.0, 3.0])
    ranks = ranked(np.array([2.5, 2.0, 0.0, 9.0, np.nan]), others)
    assert ranks[:4].tolist() == [0.5, 0.375, 0.0, 1.0]
    assert np.isnan(ranks[4])
    assert ranked(np.array([1.0]), np.array([np.nan])).tolist() == [0.0]
    assert ranked(np.array([1.0]), np.array([0.0])).tolist() == [1.0]


def test_pairs_are_left_out_as_by_brute_force() -> None:
    X, truth, owner = cohort(3, patients=7, rois=3, effect=1.0)
    learner = LogisticRegression(C=0.3)
    expected = brute_force(learner, X, truth, owner)
    assert pairs_left_out_auc(learner, X, truth, truth, owner) == pytest.approx(expected)
    names = np.array(["b", "a", "g", "c", "z", "k", "d"])[owner]
    assert pairs_left_out_auc(learner, X, truth, truth, names) == pytest.approx(expected)
    assert np.isnan(pairs_left_out_auc(learner, X, truth, np.zeros(len(truth)), owner))
    few = owner < 2
    with pytest.raises(CadError, match="failed"):
        pairs_left_out_auc(
            learner,
            X[few],
            truth[few] * 0 + [1, 0, 0] * 2,
            truth[few] * 0 + [1, 0, 0] * 2,
            owner[few],
        )


@pytest.mark.parametrize("effect", [0.0, 1.0])
def test_the_centred_auc_is_that_of_pairs_left_out(effect: float) -> None:
    """The oracle: twelve cohorts of ten patients, three strengths of shrinkage."""
    for C in (0.01, 0.1, 1.0):
        table = []
        for seed in range(12):
            X, truth, owner = cohort(seed, patients=10, effect=effect)
            learner = LogisticRegression(C=C)
            made = out_of_fold(learner, X, truth, groups=owner)
            pairs = pairs_left_out_auc(learner, X, truth, truth, owner)
            row = [metrics.auc(truth, made.probability), metrics.auc(truth, made.centred), pairs]
            table.append(row)
        pooled, centred, pairs = np.mean(table, axis=0)
        assert abs(centred - pairs) < 0.04, C
        assert pooled < pairs - (0.15 if C == 0.01 else 0.05), C


def test_everything_that_ranks_is_centred_and_nothing_else() -> None:
    X, truth, owner = cohort(1, patients=30, effect=0.8)
    made = out_of_fold(LogisticRegression(C=0.02), X, truth, groups=owner)
    q = made.probability
    options: dict[str, Any] = {"thresholds": (0.5,), "bootstraps": 20, "seed": 0}
    raw = compare_with_truth(truth, truth, q, owner, **options)
    fair = compare_with_truth(truth, truth, q, owner, centred=made.centred, **options)
    assert raw is not None
    assert fair is not None
    assert fair.auc.value == pytest.approx(roc_auc_score(truth, made.centred))
    assert fair.auc_roi_level.value == pytest.approx(fair.auc.value)
    assert fair.auc_bootstrap.value == pytest.approx(fair.auc.value)
    assert raw.auc.value == pytest.approx(roc_auc_score(truth, q)) != fair.auc.value
    shifted = expit(made.centred)
    expected = {
        "average_precision": metrics.average_precision(truth, shifted),
        "partial_auc": metrics.partial_auc(truth, shifted),
        "patient_average_precision": metrics.patient_average_precision(truth, shifted, owner),
        "calibration_slope": metrics.calibration_slope(truth, shifted),
    }
    for name, value in fair.measures.items():
        wanted = expected.get(name, raw.measures[name].value)
        assert value.value == pytest.approx(wanted), name
        assert (name in expected) == (abs(value.value - raw.measures[name].value) > 1e-9), name
    assert [point["tp"] for point in fair.operating_points] == [
        point["tp"] for point in raw.operating_points
    ]
    assert fair.calibration_curve == raw.calibration_curve
    assert fair.roc is not None
    area = np.trapezoid(fair.roc["tpr"], fair.roc["fpr"])
    assert area == pytest.approx(fair.auc.value)
    inside = fair.roc["threshold"][1:]
    assert ((inside > 0) & (inside < 1)).all()


def test_rivals_pairs_of_learners_and_the_null_are_centred() -> None:
    X, truth, owner = cohort(2, patients=16)
    learner = LogisticRegression(C=0.01)
    made = out_of_fold(learner, X, truth, groups=owner)
    fair = metrics.auc(truth, made.centred)
    pooled = metrics.auc(truth, made.probability)
    assert fair - pooled > 0.1
    both = {"a": made.probability, "b": expit(X[:, 0])}
    centred = {"a": made.centred}
    table = compare_probabilities(both, owner, reference="b", truth=truth, centred=centred).table
    row = table.set_index(["learner", "measure"])["value"]
    assert row["a", "auc"] == pytest.approx(fair)
    assert row["b", "auc"] == pytest.approx(metrics.auc(truth, X[:, 0]))
    assert row["a", "brier"] == pytest.approx(metrics.brier(truth, made.probability))
    assert row["a", "calibration_slope"] == pytest.approx(
        metrics.calibration_slope(truth, expit(made.centred))
    )
    pair = compare_learners(
        both, truth, owner, centred=centred, measures=("auc", "brier"), resamples=20
    ).set_index("measure")
    assert pair.at["auc", "value_a"] == pytest.approx(fair)
    assert pair.at["brier", "value_a"] == pytest.approx(metrics.brier(truth, made.probability))
    null = permutation_null(learner, X, truth, truth, groups=owner, n=20, schemes=("between",))
    assert null.observed == pytest.approx(fair)
    assert abs(null.schemes["between"].mean - 0.5) < 0.08  # .3 where folds are pooled


def test_a_learner_without_probabilities_is_centred_on_its_own_training_rows() -> None:
    table = []
    for seed in range(40):
        X, truth, owner = cohort(seed, patients=16)
        made = out_of_fold(LinearSVC(C=1e-3), X, truth, groups=owner)
        assert np.isnan(made.probability).all()
        assert np.isnan(made.on_common_base).all()
        table.append([metrics.auc(truth, made.decision), metrics.auc(truth, made.centred)])
    pooled, centred = np.mean(table, axis=0)
    # A hinge moves its intercept by more than the base rate: better, not all of it.
    assert pooled < centred - 0.02
    assert abs(centred - 0.5) < abs(pooled - 0.5)


def test_cad_validate_measures_noise_as_noise() -> None:
    """Two logistic regressions on pure noise, by the public function: AUC, and its base."""
    aucs = []
    for seed in range(10):
        X, truth, owner = cohort(seed, patients=14, alike=0.0)
        rivals = {"logistic": LogisticRegression(C=0.01)}
        done = cad.validate(LogisticRegression(C=0.05), X, truth, owner, truth=truth, rivals=rivals)
        rows = done.comparison
        value = rows[rows["measure"] == "auc"].set_index("learner")["value"]
        aucs.append([value["learner"], value["logistic"]])
        assert done.metrics["histology"]["auc"]["value"] == pytest.approx(value["learner"])
        folds = pd.DataFrame(done.metrics["folds"]).set_index("name").loc[owner.astype(str)]
        again = logit(done.probability) - folds["base"].to_numpy(float)
        again = again / folds["spread"].to_numpy(float)
        assert metrics.auc(truth, again) == pytest.approx(value["learner"], abs=1e-9)
    assert np.abs(np.mean(aucs, axis=0) - 0.5).max() < 0.1


def test_men_have_no_pair_of_their_own() -> None:
    """Every pair of patients is fitted once, whoever of the two has the cancer."""
    X, truth, owner = cohort(4, patients=5)
    asked: list[int] = []

    class Counting(LogisticRegression):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            asked.append(len(y))
            return super().fit(X, y, sample_weight)

    pairs_left_out_auc(Counting(), X, truth, truth, owner)
    most = len(list(combinations(range(5), 2))) + 5
    assert len(asked) <= most
