"""A man's model alone: what is known of each, the fit, folds, calibration, what is not known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

from cad.base.errors import CadError
from cad.base.files import json_safe, typed
from cad.evidence.experiments.man_alone import (
    ABSENT_SD,
    PRIORS,
    ManModel,
    fit_men,
    out_of_fold_men,
    region_columns,
)
from cad.learning.evaluation.decisions.patient_level import measure_men, truth_of_men
from cad.learning.evaluation.measures.metrics import calibration_slope


def regions(seed: int, men: int = 60, rois: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    group = np.repeat([f"{k:04d}" for k in range(men)], rois)
    z = -1.8 + rng.normal(size=len(group)) + 1.2 * np.repeat(rng.normal(size=men), rois)
    truth = (rng.random(len(group)) < expit(z)).astype(float)
    return truth, expit(z), group


def men(seed: int, count: int = 60) -> tuple[pd.DataFrame, np.ndarray]:
    """Return men whose age and density matter as well, both missing in some."""
    truth, q, group = regions(seed, count)
    table = region_columns(q, group)
    rng = np.random.default_rng([seed, 1])
    age, density = 6.5 + 0.7 * rng.normal(size=count), -2 + 0.6 * rng.normal(size=count)
    y = truth_of_men(truth, group)
    age[rng.random(count) < 0.2] = np.nan
    return table.assign(age=age + 0.3 * y, density=density + 0.5 * y), y


def test_columns_by_hand() -> None:
    truth = np.array([0, 1, 0, 0, np.nan, np.nan, 0, 1])
    q = np.array([0.2, 0.4, 0.3, np.nan, 0.9, 0.1, 0.2, np.nan])
    found = region_columns(q, np.array(["b", "b", "a", "a", "c", "d", "d", "e"]))
    assert found.index.tolist() == list("abcde")
    np.testing.assert_allclose(found["highest"], [*logit([0.3, 0.4, 0.9, 0.2]), np.nan])
    np.testing.assert_allclose(found["rest"], [np.nan, logit(0.2), np.nan, logit(0.1), np.nan])
    # d has an open region: a benign one beside it does not make the man benign.
    said = truth_of_men(truth, np.array(["b", "b", "a", "a", "c", "d", "d", "e"]))
    np.testing.assert_array_equal(said, [0, 1, np.nan, np.nan, 1])


def test_the_fit_is_that_of_an_independent_minimiser() -> None:
    table, y = men(2)
    model = fit_men(table, y)
    assert model.names == ("highest", "rest", "age", "density")
    X = table[list(model.names)].to_numpy()
    missing = np.isnan(X[:, 2])
    centred = np.where(np.isnan(X), 0, X - np.nanmean(X, axis=0))
    design = np.column_stack([np.ones(len(y)), centred, missing])
    mean = np.array([0, *(PRIORS[n][0] for n in model.names), 0])
    sd = np.array([100, *(PRIORS[n][1] for n in model.names), ABSENT_SD])

    def loss(beta: np.ndarray) -> float:
        z = design @ beta
        return float((np.logaddexp(0, z) - y * z).sum() + (((beta - mean) / sd) ** 2).sum() / 2)

    best = minimize(loss, mean, method="BFGS", options={"gtol": 1e-9}).x
    got = [model.intercept, *model.weight, model.absent[2]]
    np.testing.assert_allclose(got, best, atol=2e-5)


def test_probabilities_are_out_of_fold_and_ranked_among_the_others() -> None:
    table, y = men(0)
    probability, rank = out_of_fold_men(table, y)
    moved = y.copy()
    moved[7] = 1 - y[7]
    other, order = out_of_fold_men(table, moved)
    assert other[7] == probability[7]
    assert order[7] == rank[7]
    left = y.copy()
    left[7] = np.nan
    odds = fit_men(table, left).log_odds(table)
    assert probability[7] == pytest.approx(expit(odds[7]))
    assert rank[7] == pytest.approx(np.mean(np.delete(odds, 7) < odds[7]))
    found = measure_men(y, probability, rank, bootstraps=30)
    assert found is not None
    assert found.auc.value == pytest.approx(roc_auc_score(y, rank))
    assert found.auc.lower < found.auc.value < found.auc.upper


def test_many_men_are_left_out_in_parts() -> None:
    table, y = men(5, 240)
    probability, _ = out_of_fold_men(table, y)
    order = np.random.default_rng(0).permutation(240)
    left = y.copy()
    left[np.array_split(order, 20)[3]] = np.nan
    i = np.array_split(order, 20)[3][0]
    assert probability[i] == pytest.approx(fit_men(table, left).probability(table)[i])


def test_calibrated_out_of_fold() -> None:
    """Pooled over cohorts of 60 men, slope and mean are right."""
    y, fitted = [], []
    for seed in range(8):
        truth, q, group = regions(seed)
        y.append(truth_of_men(truth, group))
        fitted.append(out_of_fold_men(region_columns(q, group), y[-1])[0])
    truths, ours = np.concatenate(y), np.concatenate(fitted)
    assert 0.8 < calibration_slope(truths, ours) < 1.25
    assert abs(ours.mean() - truths.mean()) < 0.02


def test_what_is_not_known_stands_at_the_mean_and_is_said() -> None:
    table, y = men(3)
    model = typed(ManModel, json_safe(fit_men(table, y)))
    assert model == fit_men(table, y)
    at_mean = table.iloc[[0]].assign(age=model.centre[2], density=model.centre[3])
    without = at_mean.assign(density=np.nan)
    assert model.absent[3] == 0  # no training man lacked it
    assert model.probability(without)[0] == pytest.approx(model.probability(at_mean)[0])
    assert model.unknown(without.drop(columns="age")) == ["age, PSA density"]
    assert model.unknown(at_mean) == [""]
    assert np.isnan(model.probability(at_mean.assign(highest=np.nan)))[0]


def test_recalibration_moves_the_log_odds() -> None:
    table, y = men(3)
    model = fit_men(table, y)
    moved = model.recalibrated(-0.4, 0.7)
    np.testing.assert_allclose(moved.log_odds(table), -0.4 + 0.7 * model.log_odds(table))


def test_too_few_men_are_refused() -> None:
    truth, q, group = regions(4, men=8)
    truth[:] = 0
    truth[[0, 12, 20]] = 1
    with pytest.raises(CadError, match="there are 3 and 5"):
        fit_men(region_columns(q, group), truth_of_men(truth, group))
    y = np.r_[np.ones(6), np.zeros(6)]
    with pytest.raises(CadError, match="nothing is known of these men"):
        fit_men(pd.DataFrame({"other": y}), y)
    assert measure_men(np.full(8, np.nan), np.full(8, 0.5)).n == 0


@pytest.mark.parametrize("malignant", [4, 5, 6])
def test_who_can_be_fitted_can_be_left_out(malignant: int) -> None:
    """Five of a class are enough for a model, and so are the four that are left in a fold."""
    rng = np.random.default_rng(1)
    truth = (np.arange(30) < malignant).astype(float)
    q = np.clip(0.3 + 0.3 * truth + rng.normal(0, 0.1, 30), 0.01, 0.99)
    table = region_columns(q, np.array([f"{k:02d}" for k in range(30)]))
    if malignant < 5:
        with pytest.raises(CadError, match="there are 4 and 26"):
            out_of_fold_men(table, truth)
    else:
        probability, rank = out_of_fold_men(table, truth)
        assert np.isfinite(probability).all()
        assert np.isfinite(rank).all()
