"""Regions and their man: by brute-force quadrature, by hand, by simulated truth, by invariants."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from benchmarks.joint import (
    believe,
    left_out_beliefs,
    nested,
    of_prevalence,
    picai,
    range_data,
    rarer_cancer,
    simulated,
)
from cad.base.errors import CadError
from cad.evidence.experiments.picai import read_marksheet
from cad.learning import joint_model
from cad.learning.joint_model import (
    AGE,
    BELIEF,
    DENSITY,
    EFFECT,
    INTERCEPT,
    LEAK,
    LEAK_DENSITY,
    NO_AGE,
    NO_DENSITY,
    READERS,
    TERMS,
    JointModel,
    MenAndRegions,
    Taught,
    contradiction,
    fit_joint,
    from_dict,
    left_out,
    of_arrays,
    predict_left_out,
    readers_logit,
    weight_of_men,
)
from cad.learning.logistic import fit_logistic

TAUGHT = Taught(100, 200, 200, 81.0, 0.2, 0.3)


def draw(
    seed: int,
    men: int = 60,
    *,
    least: int = 1,
    readers: bool = True,
    leak: bool = False,
    effect: float = 0.8,
    intercept: float = -0.7,
) -> MenAndRegions:
    """Draw men with up to five regions from the model itself."""
    rng = np.random.default_rng(seed)
    man = np.repeat(np.arange(men), rng.integers(least, 6, men))
    density = rng.normal(-2.0, 0.6, men)
    age = rng.normal(6.5, 0.7, men)
    odds = rng.normal(-1.5, 1.5, len(man))
    scores = odds + rng.normal(0, 1, len(man))
    of_man = effect * rng.normal(size=men)
    risk = intercept + 0.9 * odds + 0.8 * (density[man] + 2) + 0.2 * (age[man] - 6.5) + of_man[man]
    if readers:
        risk += 0.5 * scores
    truth = (rng.random(len(man)) < expit(risk)).astype(float)
    truth_of_man = np.zeros(men)
    np.maximum.at(truth_of_man, man, truth)
    outside = rng.random(men) < expit(-2.5 + of_man)
    truth_of_man = np.maximum(truth_of_man, outside)
    return of_arrays(
        expit(odds),
        man,
        men,
        readers=scores if readers else None,
        truth=truth,
        density=density,
        age=age,
        truth_of_man=truth_of_man if leak else None,
    )


def model_of(*, effect: float, leak: float | None = None, readers: bool = False) -> JointModel:
    """Return a model whose parameters are known, with a covariance of 1 % of the identity."""
    estimate = np.zeros((2, len(TERMS)))
    free = np.zeros((2, len(TERMS)), dtype=bool)
    for row in range(1 + readers):
        estimate[row, [INTERCEPT, BELIEF, DENSITY, AGE]] = [-0.4, 1.2, 0.7, 0.3]
        estimate[row, EFFECT] = np.log(effect)
        free[row, [INTERCEPT, BELIEF, DENSITY, AGE, EFFECT]] = True
        if leak is not None:
            estimate[row, [LEAK, LEAK_DENSITY]] = [leak, 0.4]
            free[row, [LEAK, LEAK_DENSITY]] = True
    if readers:
        estimate[1, [BELIEF, READERS]] = [0.8, 0.5]
        free[1, READERS] = True
    covariance = 0.01 * np.diag(free.ravel().astype(float))
    return JointModel(estimate, covariance, np.array([-2.0, 6.5]), free, TAUGHT)


def log_odds(model: JointModel, data: MenAndRegions, row: int = 0) -> np.ndarray:
    """Return a region's log-odds without the man's effect, written out anew."""
    a, b, c, d, e = model.estimate[row, [INTERCEPT, BELIEF, READERS, DENSITY, AGE]]
    z = a + b * logit(data.belief)
    if row == 1:
        z = z + c * data.readers
    z = z + d * (data.density - model.centre[0])[data.man]
    return np.asarray(z + e * (data.age - model.centre[1])[data.man])


@pytest.mark.parametrize("effect", [0.3, 0.8, 1.5])
def test_probabilities_are_those_of_quadrature_by_brute_force(effect: float) -> None:
    model = model_of(effect=effect, leak=-2.0)
    data = draw(3, men=12, least=0)
    predicted = model.predict(data)
    z = log_odds(model, data)
    for man in range(data.men):
        regions = z[data.man == man]
        f = -2.0 + 0.4 * (data.density[man] - model.centre[0])

        def free(t: float, regions: np.ndarray = regions, f: float = f) -> float:
            benign = np.prod(1 - expit(regions + effect * t))
            return float((1 - expit(f + effect * t)) * benign * norm.pdf(t))

        assert predicted.man[man] == pytest.approx(1 - quad(free, -10, 10)[0], abs=3e-5)
        for region, probability in zip(
            regions, predicted.probability[data.man == man], strict=True
        ):
            whole = quad(lambda t, z=region: expit(z + effect * t) * norm.pdf(t), -10, 10)[0]
            assert probability == pytest.approx(whole, abs=3e-5)


@pytest.mark.parametrize("leak", [False, True])
def test_likelihood_is_that_of_quadrature_by_brute_force(leak: bool) -> None:
    data = draw(5, men=25, least=0, readers=False, leak=leak)
    data = replace(data, truth=np.where(np.arange(len(data.man)) % 4 == 0, np.nan, data.truth))
    effect = 0.8
    model = model_of(effect=effect, leak=-2.0)
    z = log_odds(model, data)
    columns = joint_model._design_of_regions(data, model.centre)
    columns[:, READERS] = 0
    problem = joint_model._Likelihood.of(
        data,
        np.ones(len(data.man), dtype=bool),
        columns,
        joint_model._leak_columns(data, model.centre) if leak else None,
        np.zeros(data.men),
    )
    by_nodes = problem.scores(model.estimate[0])[0]
    for man in range(data.men):
        of_man = data.man == man
        f = -2.0 + 0.4 * (data.density[man] - model.centre[0])

        def likelihood(
            t: float, of_man: np.ndarray = of_man, man: int = man, f: float = f
        ) -> float:
            total = 1.0
            free = 1 - expit(f + effect * t)
            malignant = False
            for odds, truth in zip(z[of_man], data.truth[of_man], strict=True):
                risk = expit(odds + effect * t)
                if np.isnan(truth):
                    free *= 1 - risk
                elif truth == 1:
                    total *= risk
                    malignant = True
                else:
                    total *= 1 - risk
            if data.truth_of_man[man] == 0:
                total *= free
            elif data.truth_of_man[man] == 1 and not malignant:
                total *= 1 - free
            return float(total * norm.pdf(t))

        whole = quad(likelihood, -10, 10)[0]
        assert by_nodes[man] == pytest.approx(np.log(whole), abs=2e-4)


def test_terms_at_a_node_by_hand() -> None:
    """Three men: one judged by his regions alone, one free of cancer, one with cancer somewhere."""
    model = model_of(effect=0.8, leak=-2.0)
    data = joint_model.of_arrays(
        [0.3, 0.7, 0.2, 0.4],
        [0, 0, 1, 2],
        3,
        truth=[1.0, 0.0, np.nan, np.nan],
        truth_of_man=[np.nan, 0.0, 1.0],
    )
    design = joint_model._design_of_regions(data, model.centre)
    problem = joint_model._Likelihood.of(
        data,
        np.ones(4, dtype=bool),
        design,
        joint_model._leak_columns(data, model.centre),
        np.zeros(3),
    )
    value = model.estimate[0]
    nodes = problem._at_nodes(value)
    whole = np.zeros(3)
    for k, t in enumerate(nodes.effect):
        r = expit(design @ value + t)
        u = expit(-2.0 + t)
        free = [(1 - u) * (1 - r[2]), (1 - u) * (1 - r[3])]
        of_men = np.array([r[0] * (1 - r[1]), free[0], 1 - free[1]])
        share = joint_model._WEIGHT[k] * of_men
        whole += share
        np.testing.assert_allclose(nodes.posterior[:, k] * np.exp(nodes.likelihood), share)
        odds = free[1] / (1 - free[1])
        np.testing.assert_allclose(nodes.slope[:, k], [1 - r[0], -r[1], -r[2], odds * r[3]])
        np.testing.assert_allclose(nodes.leak_slope[:, k], [0, -u, odds * u])
    np.testing.assert_allclose(np.exp(nodes.likelihood), whole)


@pytest.mark.parametrize("leak", [False, True])
def test_gradient_and_hessian_are_those_of_differences(leak: bool) -> None:
    data = draw(6, men=20, least=0, leak=leak)
    data = replace(data, truth=np.where(np.arange(len(data.man)) % 4 == 0, np.nan, data.truth))
    model = model_of(effect=0.7, leak=-2.0, readers=True)
    problem = joint_model._Likelihood.of(
        data,
        np.ones(len(data.man), dtype=bool),
        joint_model._design_of_regions(data, model.centre),
        joint_model._leak_columns(data, model.centre) if leak else None,
        np.zeros(data.men),
    )
    value = model.estimate[1]
    _, gradient = problem.scores(value)
    for term in range(len(TERMS)):
        step = np.zeros(len(TERMS))
        step[term] = 1e-5
        change = problem.scores(value + step)[0] - problem.scores(value - step)[0]
        assert gradient[:, term] == pytest.approx(change / 2e-5, abs=1e-8)
        change = problem.scores(value - step)[1] - problem.scores(value + step)[1]
        assert problem.hessian(value)[term] == pytest.approx(change.sum(axis=0) / 2e-5, abs=1e-6)


def test_ranges_are_those_of_the_delta_method_by_differences() -> None:
    model = model_of(effect=0.7, leak=-2.0, readers=True)
    data = draw(7, men=15, least=0)
    # Some men's regions are scored in part: both sets of parameters are at work in one product.
    data = replace(data, readers=np.where(np.arange(len(data.man)) % 3 == 0, np.nan, data.readers))
    predicted = model.predict(data)
    of_regions = np.empty((len(data.man), 20))
    of_men = np.empty((data.men, 20))
    for term in range(20):
        ends = []
        for step in (1e-5, -1e-5):
            estimate = model.estimate.ravel().copy()
            estimate[term] += step
            ends.append(replace(model, estimate=estimate.reshape(2, 10)).predict(data))
        of_regions[:, term] = (logit(ends[0].probability) - logit(ends[1].probability)) / 2e-5
        of_men[:, term] = (logit(ends[0].man) - logit(ends[1].man)) / 2e-5
    for gradient, value, low, high in (
        (of_regions, predicted.probability, predicted.low, predicted.high),
        (of_men, predicted.man, predicted.man_low, predicted.man_high),
    ):
        half = 1.990063 * np.sqrt(np.einsum("ij,jk,ik->i", gradient, model.covariance, gradient))
        assert logit(low) == pytest.approx(logit(value) - half, abs=1e-5)
        assert logit(high) == pytest.approx(logit(value) + half, abs=1e-5)


def test_one_region_a_man_without_an_effect_is_logistic_regression() -> None:
    rng = np.random.default_rng(1)
    odds = rng.normal(-1, 1.5, 80)
    truth = (rng.random(80) < expit(odds)).astype(float)
    data = of_arrays(expit(odds), np.arange(80), 80, truth=truth)
    design = np.zeros((80, 3))
    design[:, 0] = 1
    design[:, 1] = odds
    problem = joint_model._Likelihood.of(
        data, np.ones(80, dtype=bool), design, None, np.zeros(80), log_effect=-40.0
    )
    mean = np.array([0.0, 1.0, 0.0])
    precision = np.array([1.5, 0.35, 1.0]) ** -2
    solution = joint_model._maximised(problem, mean, precision, mean)
    reference = fit_logistic(design[:, :2], truth, mean=mean[:2], precision=precision[:2])
    assert solution.value[:2] == pytest.approx(reference, abs=1e-6)
    risk = expit(design[:, :2] @ reference)
    hessian = design[:, :2].T @ (design[:, :2] * (risk * (1 - risk))[:, None])
    inverse = np.linalg.inv(hessian + np.diag(precision[:2]))
    assert solution.inverse_hessian[:2, :2] == pytest.approx(inverse, abs=1e-7)


def test_a_man_by_hand() -> None:
    # Without an effect regions are independent: 1 - (1 - .2)(1 - .5)(1 - u), u = expit(-2).
    estimate = np.zeros((2, len(TERMS)))
    estimate[0, [BELIEF, EFFECT]] = [1.0, -40.0]
    free = np.zeros((2, len(TERMS)), dtype=bool)
    free[0, [INTERCEPT, BELIEF, EFFECT]] = True
    model = JointModel(estimate, np.zeros((20, 20)), np.zeros(2), free, TAUGHT)
    data = of_arrays([0.2, 0.5], [0, 0], 2)
    predicted = model.predict(data)
    assert predicted.probability == pytest.approx([0.2, 0.5])
    assert predicted.man[0] == pytest.approx(0.6)
    assert predicted.low == pytest.approx(predicted.probability)
    assert np.isnan(predicted.man[1])
    assert predicted.notes[1] == "no region"
    estimate[0, LEAK] = -2.0
    free[0, LEAK] = True
    u = 1 / (1 + np.exp(2))
    predicted = replace(model, estimate=estimate, free=free).predict(data)
    assert predicted.man == pytest.approx([1 - 0.4 * (1 - u), u])
    assert predicted.leak == pytest.approx([u, u])


def test_simulated_parameters_are_recovered() -> None:
    model = fit_joint(draw(11, men=4000, leak=True))
    truth = {
        INTERCEPT: -0.7,
        BELIEF: 0.9,
        READERS: 0.5,
        DENSITY: 0.8,
        AGE: 0.2,
        LEAK: -2.5,
        LEAK_DENSITY: 0.0,
        EFFECT: np.log(0.8),
    }
    error = np.sqrt(np.diag(model.covariance))[10:]
    for term, value in truth.items():
        assert abs(model.estimate[1, term] - value) < 3.5 * error[term], TERMS[term]
        assert error[term] < 0.25
    assert not model.free[:, [NO_DENSITY, NO_AGE]].any()


def test_coherent_on_a_thousand_men_and_ranges_hold_their_numbers() -> None:
    rng = np.random.default_rng(2)
    for seed in range(10):
        data = draw(100 + seed, men=100, least=0, leak=seed % 2 == 0)
        data = replace(
            data,
            readers=np.where(rng.random(len(data.man)) < 0.4, np.nan, data.readers),
            density=np.where(rng.random(data.men) < 0.2, np.nan, data.density),
        )
        model = replace(
            model_of(
                effect=float(rng.uniform(0.05, 3)),
                leak=-2.0 if seed % 2 == 0 else None,
                readers=seed % 3 > 0,
            )
        )
        model = replace(model, covariance=model.covariance * 100 ** rng.uniform(0, 1))
        for used in (model, model.shifted(0.1, data), model.shifted(0.9, data)):
            predicted = used.predict(data)
            most = np.zeros(data.men)
            np.maximum.at(most, data.man, predicted.probability)
            total = predicted.leak + np.bincount(data.man, predicted.probability, data.men)
            seen = np.isfinite(predicted.man)
            assert seen.sum() == data.men if seed % 2 == 0 else len(np.unique(data.man))
            assert (most[seen] <= predicted.man[seen]).all()
            assert (predicted.man[seen] <= total[seen]).all()
            assert (predicted.low <= predicted.probability).all()
            assert (predicted.probability <= predicted.high).all()
            assert (predicted.man_low[seen] <= predicted.man[seen]).all()
            assert (predicted.man[seen] <= predicted.man_high[seen]).all()


def test_order_of_men_and_regions_is_nothing() -> None:
    data = draw(8)
    rng = np.random.default_rng(0)
    men = rng.permutation(data.men)
    regions = rng.permutation(len(data.man))
    place = np.argsort(men)
    turned = MenAndRegions(
        data.belief[regions],
        place[data.man[regions]],
        data.readers[regions],
        data.truth[regions],
        data.density[men],
        data.age[men],
        data.truth_of_man[men],
    )
    first = fit_joint(data)
    second = fit_joint(turned)
    assert second.estimate == pytest.approx(first.estimate, abs=1e-7)
    assert second.covariance == pytest.approx(first.covariance, abs=1e-7)
    assert second.predict(turned).man == pytest.approx(first.predict(data).man[men], abs=1e-8)


def test_every_man_twice_is_a_prior_of_half_the_precision() -> None:
    data = draw(9)
    twice = MenAndRegions(
        np.tile(data.belief, 2),
        np.concatenate([data.man, data.man + data.men]),
        np.tile(data.readers, 2),
        np.tile(data.truth, 2),
        np.tile(data.density, 2),
        np.tile(data.age, 2),
        np.tile(data.truth_of_man, 2),
    )
    ones = np.ones(len(data.man), dtype=bool)
    values = []
    for cohort, factor in ((data, 1.0), (twice, 2.0)):
        columns = joint_model._design_of_regions(cohort, np.array([-2.0, 6.5]))
        columns = columns[:, [INTERCEPT, BELIEF, READERS, DENSITY, AGE, EFFECT]]
        use = np.tile(ones, round(factor))
        problem = joint_model._Likelihood.of(cohort, use, columns, None, np.zeros(cohort.men))
        mean = np.array([0.0, 0.6, 0.3, 0, 0, -0.5])
        values.append(joint_model._maximised(problem, mean, np.full(6, factor), mean).value)
    assert values[1] == pytest.approx(values[0], abs=1e-6)


def test_regions_of_unknown_truth_teach_nothing_of_themselves() -> None:
    data = draw(10, men=40)
    model = fit_joint(data)
    more = MenAndRegions(
        np.append(data.belief, [0.9, 0.01]),
        np.append(data.man, [0, 1]),
        np.append(data.readers, [2.0, -2.0]),
        np.append(data.truth, [np.nan, np.nan]),
        data.density,
        data.age,
        data.truth_of_man,
    )
    again = fit_joint(more)
    assert again.estimate == pytest.approx(model.estimate, abs=1e-8)
    # They belong to the man all the same.
    assert again.predict(more).man[0] > model.predict(data).man[0]
    # And a known truth is not used where a prediction is made.
    blind = model.predict(replace(data, truth=np.full(len(data.man), np.nan)))
    assert blind.man == pytest.approx(model.predict(data).man, abs=0)


def test_readers_raise_what_they_see_and_images_stay() -> None:
    data = draw(12, men=300)
    model = fit_joint(data)
    assert model.has_readers
    low = model.predict(replace(data, readers=np.full(len(data.man), -2.0)))
    high = model.predict(replace(data, readers=np.full(len(data.man), 2.0)))
    none = model.predict(replace(data, readers=np.full(len(data.man), np.nan)))
    assert (high.probability > low.probability).all()
    assert (high.man > low.man).all()
    assert high.probability_images == pytest.approx(low.probability_images, abs=0)
    assert none.probability == pytest.approx(none.probability_images, abs=0)
    assert none.man == pytest.approx(high.man_images, abs=0)


def test_three_men_one_class_and_nothing_known_are_carried_by_the_priors() -> None:
    for truth in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, np.nan, 0]):
        data = of_arrays([0.1, 0.6, 0.3, 0.2], [0, 0, 1, 2], 3, truth=truth)
        model = fit_joint(data)
        assert "priors" in model.notes[0]
        assert 0.5 < model.estimate[0, BELIEF] < 1.6
        predicted = model.predict(data)
        assert (predicted.high - predicted.low > 0.1).all()
        assert np.isfinite(predicted.man).all()
    assert any("all 4 regions" in note for note in fit_joint(replace(data, truth=np.ones(4))).notes)
    with pytest.raises(CadError, match="no histology to learn from"):
        fit_joint(replace(data, truth=np.full(4, np.nan)))
    alone = of_arrays([0.1, 0.6], [0, 1], 2, truth=[0, np.nan])
    with pytest.raises(CadError, match="one man alone"):
        predict_left_out(alone)


def test_unknown_covariates_stand_at_the_mean() -> None:
    data = draw(13, men=200)
    lacking = np.arange(200) < 60
    data = replace(data, density=np.where(lacking, np.nan, data.density))
    model = fit_joint(data)
    assert model.free[0, NO_DENSITY]
    assert model.centre[0] == pytest.approx(np.nanmean(data.density))
    predicted = model.predict(data)
    assert predicted.notes[0] == "PSA density unknown"
    assert predicted.notes[100] == ""
    unknown = fit_joint(replace(data, density=np.full(200, np.nan), age=np.full(200, np.nan)))
    assert not unknown.free[:, [DENSITY, AGE, NO_DENSITY, NO_AGE]].any()
    # Nobody's density taught it: what a new man's is moves nothing.
    assert unknown.predict(data).man == pytest.approx(
        unknown.predict(replace(data, density=np.full(200, 1.0))).man, abs=0
    )


def test_prevalence_is_met_and_coherent() -> None:
    data = draw(14, men=80, leak=True, least=0)
    model = fit_joint(data)
    for prevalence in (0.02, 0.3, 0.97):
        moved = model.shifted(prevalence, data)
        assert moved.predict(data).man.mean() == pytest.approx(prevalence, abs=1e-9)
        assert moved.prevalence == prevalence
        assert moved.taught == model.taught
    back = model.shifted(0.05, data).shifted(float(model.predict(data).man.mean()), data)
    assert back.estimate == pytest.approx(model.estimate, abs=1e-8)
    assert back.shift == pytest.approx(0, abs=1e-8)
    for refused in (0.0, 1.0, float("nan")):
        with pytest.raises(CadError, match="not between 0 and 1"):
            model.shifted(refused, data)
    with pytest.raises(CadError, match="no man has a region"):
        fit_joint(draw(14)).shifted(0.3, of_arrays([], np.array([], dtype=int), 2))


def test_men_of_the_training_stand_for_a_place_of_another_prevalence() -> None:
    # Men with and without cancer drawn apart: 70 % of the training, 20 % of the place.
    pool = draw(31, men=4000, readers=False)
    cancer = pool.histology_of_men() == 1
    order = np.cumsum(cancer)
    other = np.cumsum(~cancer)
    training = pool.of_men(np.where(cancer, order <= 140, other <= 60))
    place = pool.of_men(
        np.where(cancer, (order > 140) & (order <= 300), (other > 60) & (other <= 700))
    )
    model = fit_joint(training)
    moved = model.shifted(0.2, training, weight_of_men(training, 0.2))
    before = model.predict(place).man
    after = moved.predict(place).man
    assert place.histology_of_men().mean() == pytest.approx(0.2)
    assert after.mean() == pytest.approx(0.2, abs=0.04)
    assert before.mean() > 0.35
    assert contradiction(after, 0.2) == ""
    assert contradiction(before, 0.2).startswith("mean probability of 800 men")
    assert contradiction([0.9], 0.2) == ""
    weight = weight_of_men(training, 0.2)
    assert weight @ (training.histology_of_men() == 1) == pytest.approx(0.2)
    with pytest.raises(CadError, match="known to be with cancer"):
        weight_of_men(replace(training, truth=0 * training.truth), 0.2)


def test_the_command_on_another_prevalence_compares_three_means() -> None:
    drawn = of_prevalence(3, 0.75, 80)
    assert drawn.men == 80
    assert drawn.histology_of_men().mean() == pytest.approx(0.75)
    mean = rarer_cancer(count=2, men=200)["mean probability of men"]
    assert mean["without a shift"] > 0.35
    assert mean["shifted"] == pytest.approx(0.28, abs=0.05)
    assert mean["every man by himself"] < mean["shifted"]


def test_truth_of_a_man_by_hand() -> None:
    # Malignant and benign; benign and unknown; benign; unknown; none; known beyond the regions.
    data = of_arrays(
        np.full(8, 0.2),
        [0, 0, 1, 1, 2, 3, 5, 5],
        6,
        truth=[1, 0, 0, np.nan, 0, np.nan, 0, np.nan],
        truth_of_man=[np.nan] * 5 + [1],
    )
    expected = [1, np.nan, 0, np.nan, np.nan, 1]
    assert np.array_equal(data.histology_of_men(), expected, equal_nan=True)


@pytest.mark.parametrize("kind", ["rare", "one huge patient", "drifted"])
def test_ranges_hold_where_data_are_unkind(kind: str) -> None:
    # 12 cohorts each; 100 of each kind and size: python -m benchmarks.joint ranges --count 100.
    fresh, share = range_data(kind, 10**6, 100, fresh=True)
    inside = []
    for seed in range(12):
        model = fit_joint(range_data(kind, 50 + seed, 49, fresh=False)[0])
        predicted = model.predict(fresh)
        inside.append(np.mean((predicted.low <= share) & (share <= predicted.high)))
    assert np.mean(inside) > 0.87


def test_probability_is_calibrated_to_histology_where_belief_is_not() -> None:
    # One cohort; twenty: python -m benchmarks.joint cohorts.
    cohort = simulated(720, 30)
    new = simulated(5720, 40)
    data = cohort.joined(left_out_beliefs(cohort))
    belief = believe(cohort, new.features)
    predicted = fit_joint(data).predict(new.joined(belief))
    errors = []
    for q in (predicted.probability, predicted.probability_images, belief):
        errors.append(np.mean((new.truth - q) ** 2))
    assert errors[0] < errors[1] < errors[2]


def test_others_beliefs_that_have_seen_a_man_move_him_little() -> None:
    # The reference leaves him out of the folds that teach the others' beliefs, too.
    cohort = simulated(731, 10)
    probability = predict_left_out(cohort.joined(left_out_beliefs(cohort))).probability
    apart = np.abs(nested(cohort) - probability)
    assert 0 < apart.mean() < 0.02


def test_a_site_moves_the_intercept_and_keeps_the_rest() -> None:
    model = fit_joint(draw(15, men=1500, leak=True))
    site = draw(16, men=120, intercept=-2.7, leak=True)
    moved = model.recalibrated(site)
    far = draw(17, men=3000, intercept=-2.7)
    before = model.predict(far)
    after = moved.predict(far)
    truth = far.truth.mean()
    assert abs(after.probability.mean() - truth) < 0.03 < before.probability.mean() - truth
    slope = moved.estimate[1, BELIEF] / model.estimate[1, BELIEF]
    assert moved.estimate[1, READERS] == pytest.approx(slope * model.estimate[1, READERS])
    assert 0.6 < slope < 1.4
    # The intercept of the site's men replaces what the model did not know of it.
    assert np.sqrt(moved.covariance[0, 0]) < 0.4
    same = model.recalibrated(draw(18, men=1500, leak=True))
    assert same.estimate[1, [INTERCEPT, BELIEF]] == pytest.approx([-0.7, 0.9], abs=0.3)
    with pytest.raises(CadError, match="30 are needed"):
        model.recalibrated(draw(16, men=20))
    with pytest.raises(CadError, match="one kind"):
        model.recalibrated(replace(site, truth=0 * site.truth, truth_of_man=0 * site.density))
    large = draw(19, men=1500)
    turned = replace(large, truth=1 - large.truth)
    with pytest.raises(CadError, match="wrong way"):
        model.recalibrated(turned)


def test_a_sites_uncertainty_is_that_of_its_draws() -> None:
    # The intercept after recalibration, over sites and over models: errors beside the stated ones.
    errors = []
    stated = []
    for seed in range(40):
        model = fit_joint(draw(200 + seed, men=60, readers=False))
        moved = model.recalibrated(draw(300 + seed, men=60, readers=False, intercept=-1.7))
        errors.append(moved.estimate[0, INTERCEPT] + 1.7)
        stated.append(np.sqrt(moved.covariance[0, 0]))
    assert np.std(errors) == pytest.approx(np.mean(stated), rel=0.4)


def test_what_a_site_moves_by_hand_and_by_differences() -> None:
    theta = model_of(effect=0.7, leak=-2.0, readers=True).estimate[1]
    move = np.array([-0.5, 1.2, 0.3, 0.1])
    moved = joint_model._moved_by_site(theta, move)
    assert moved[[INTERCEPT, BELIEF, READERS]] == pytest.approx([-0.5 - 0.48, 0.96, 0.6])
    assert moved[[LEAK, LEAK_DENSITY]] == pytest.approx([-2.0 - 0.5 + 0.3, 0.4])
    assert moved[EFFECT] == pytest.approx(np.log(0.7) + 0.1)
    by_move = joint_model._by_site_move(theta)
    by_model = joint_model._by_model(move)
    for term in range(4):
        step = 1e-6 * (np.arange(4) == term)
        change = joint_model._moved_by_site(theta, move + step) - moved
        assert by_move[:, term] == pytest.approx(change / 1e-6, abs=1e-6)
    for term in range(len(TERMS)):
        step = 1e-6 * (np.arange(len(TERMS)) == term)
        change = joint_model._moved_by_site(theta + step, move) - moved
        assert by_model[:, term] == pytest.approx(change / 1e-6, abs=1e-6)


def test_a_large_site_replaces_what_was_not_known_of_the_model() -> None:
    model = fit_joint(draw(33, men=100, readers=False))
    covariance = model.covariance.copy()
    covariance[INTERCEPT, INTERCEPT] += 4.0
    unsure = replace(model, covariance=covariance)
    moved = unsure.recalibrated(draw(34, men=1000, readers=False))
    assert np.sqrt(unsure.covariance[0, 0]) > 2
    assert np.sqrt(moved.covariance[0, 0]) < 0.4


def test_cancer_that_may_be_in_an_unjudged_region_tells_nothing_of_the_leak() -> None:
    data = draw(35, men=60, leak=True)
    data = replace(data, truth_of_man=np.where(np.arange(60) < 5, np.nan, data.truth_of_man))
    # Five men have cancer somewhere, benign regions, and one that nobody judged.
    more = replace(
        data,
        belief=np.append(data.belief, np.full(5, np.nan)),
        man=np.append(data.man, np.arange(5)),
        readers=np.append(data.readers, np.full(5, np.nan)),
        truth=np.append(np.where(data.man < 5, 0.0, data.truth), np.full(5, np.nan)),
        truth_of_man=np.where(np.arange(60) < 5, 1.0, data.truth_of_man),
    )
    silent = replace(more, truth_of_man=data.truth_of_man)
    assert fit_joint(more).estimate == pytest.approx(fit_joint(silent).estimate, abs=1e-9)


def test_hardly_any_men_stand_at_the_priors() -> None:
    data = of_arrays(
        [0.1, 0.6, 0.3], [0, 0, 1], 2, truth=[0, 1, 0], readers=readers_logit([0.2, 0.7, 0.3])
    )
    model = fit_joint(data)
    assert model.estimate[0, BELIEF] == pytest.approx(1.0, abs=0.15)
    assert model.estimate[1, [BELIEF, READERS]] == pytest.approx([0.6, 0.3], abs=0.25)
    assert model.effect == pytest.approx(np.exp([-0.5, -0.5]), abs=0.15)


def test_left_out_men_are_judged_by_others() -> None:
    data = draw(20, men=25)
    data = replace(data, truth=np.where(data.man == 3, np.nan, data.truth))
    parts = list(left_out(data))
    assert len(parts) == 25
    assert sum(left.sum() for left, _ in parts) == 25
    predicted = predict_left_out(data)
    # A man's own truth moves what others get, and not what he gets.
    turned = predict_left_out(replace(data, truth=np.where(data.man == 5, 1.0, data.truth)))
    assert turned.man[5] == pytest.approx(predicted.man[5], abs=1e-6)
    assert not np.allclose(turned.man, predicted.man, atol=1e-4)
    large = draw(21, men=130)
    parts = list(left_out(large))
    assert len(parts) == 20
    assert np.sum([left for left, _ in parts], axis=0).tolist() == [1] * 130


def test_a_share_of_regions_so_judged_lies_in_the_range() -> None:
    fresh = draw(1, men=400)
    inside = []
    for seed in range(40):
        model = fit_joint(draw(400 + seed, men=60, readers=False))
        z = -0.7 + 0.9 * logit(fresh.belief)
        z += (0.8 * (fresh.density + 2) + 0.2 * (fresh.age - 6.5))[fresh.man]
        share = expit(z[:, None] + 0.8 * joint_model._POINTS) @ joint_model._WEIGHT
        predicted = model.predict(replace(fresh, readers=np.full(len(z), np.nan)))
        inside.append(np.mean((predicted.low <= share) & (share <= predicted.high)))
    assert 0.9 < np.mean(inside) < 0.99


def test_a_model_comes_back_from_json_and_a_broken_one_is_refused() -> None:
    regions = np.bincount(draw(22).man)
    model = fit_joint(draw(22)).shifted(0.3, draw(22))
    assert model.taught.effective_men == pytest.approx(regions.sum() ** 2 / (regions @ regions))
    content = json.loads(json.dumps(model.as_dict()))
    again = from_dict(content)
    data = draw(23)
    assert again.predict(data).man == pytest.approx(model.predict(data).man, abs=0)
    assert again.as_dict() == model.as_dict()
    broken = {
        "terms": ["intercept"],
        "estimate": [[0.0] * 10],
        "covariance": (-np.asarray(model.covariance)).tolist(),
        "centre": [None, 0.0],
        "free": [[False] * 10] * 2,
        "prevalence": 1.5,
        "shift": float("inf"),
        "taught": {**content["taught"], "effective_men": 0.0},
    }
    for name, value in broken.items():
        with pytest.raises(CadError):
            from_dict({**content, name: value})
    for name in content:
        with pytest.raises(CadError, match="joint model"):
            from_dict({key: value for key, value in content.items() if key != name})


def test_arrays_that_contradict_are_refused() -> None:
    with pytest.raises(CadError, match="malignant region"):
        of_arrays([0.1], [0], 1, truth=[1], truth_of_man=[0])
    with pytest.raises(CadError, match="there are 1 men"):
        of_arrays([0.1], [1], 1)
    with pytest.raises(CadError, match="outside 0 to 1"):
        of_arrays([1.1], [0], 1)
    with pytest.raises(CadError, match="nothing between"):
        of_arrays([0.1], [0], 1, truth=[0.5])
    with pytest.raises(CadError, match="values are wanted"):
        of_arrays([0.1], [0], 1, age=[6.0, 7.0])
    with pytest.raises(CadError, match="infinite"):
        of_arrays([0.1], [0], 1, density=[-np.inf])
    with pytest.raises(CadError, match="whole number"):
        of_arrays([0.1], [0.5], 1)
    unjudged = of_arrays([np.nan, 0.3], [0, 0], 1)
    predicted = model_of(effect=0.5).predict(unjudged)
    assert np.isnan(predicted.probability[0])
    assert predicted.man[0] == predicted.probability[1]
    assert predicted.notes[0].startswith("1 of 2 regions without a belief")


def test_readers_means_become_log_odds_and_may_be_unknown() -> None:
    odds = readers_logit([0.0, 0.3, np.nan])
    assert odds[1] == pytest.approx(logit(0.3))
    assert np.isnan(odds[2])


def test_real_lesions_are_ranked_better_than_by_their_category(shared_data: Path) -> None:
    """Runs the command on real men, with fewer repeats than the page's figures."""
    result = picai(shared_data / "picai", repeats=1)
    lesions = result["by man"]["lesions with tissue"]
    assert lesions["AUC"] > lesions["AUC, men or category alone"] + 0.01
    # The order of the categories needs no folds, so that its AUC is known exactly.
    table = read_marksheet(shared_data / "picai")[1].dropna(subset="truth")
    of_category = roc_auc_score(table["truth"], table["category"])
    assert lesions["AUC, men or category alone"] == pytest.approx(of_category, abs=0.01)
    men = result["by man"]["all men"]
    assert abs(men["AUC"] - men["AUC, men or category alone"]) < 0.02


def likelihoods_of_men(
    data: MenAndRegions, odds: np.ndarray, leak_odds: np.ndarray | None, effect: float
) -> np.ndarray:
    """Return each man's log-likelihood, written out anew: a sum over nodes of his effect.

    ``odds`` of regions and ``leak_odds`` of men are without the man's effect. All truths of regions
    are known.
    """
    points, mass = np.polynomial.hermite_e.hermegauss(15)
    risk = expit(odds[:, None] + effect * points)
    of_truth = np.where(data.truth[:, None] == 1, risk, 1 - risk)
    product = np.ones((data.men, 15))
    np.multiply.at(product, data.man, of_truth)
    if leak_odds is not None:
        leak = expit(leak_odds[:, None] + effect * points)
        has_malignant = np.isin(np.arange(data.men), data.man[data.truth == 1])
        product[data.truth_of_man == 0] *= 1 - leak[data.truth_of_man == 0]
        leaking = (data.truth_of_man == 1) & ~has_malignant
        product[leaking] *= leak[leaking]
    return np.asarray(np.log(product @ (mass / mass.sum())))


def gradient_of(loss: Callable[[np.ndarray], float], value: np.ndarray) -> np.ndarray:
    """Return the gradient of a function by central differences."""
    step = 1e-4 * np.eye(len(value))
    return np.array([(loss(value + row) - loss(value - row)) / 2e-4 for row in step])


def with_unknown(data: MenAndRegions) -> MenAndRegions:
    """Let a third of the men lack their PSA density, and a fifth their age."""
    number = np.arange(data.men)
    return replace(
        data,
        density=np.where(number % 3 == 0, np.nan, data.density),
        age=np.where(number % 5 == 0, np.nan, data.age),
    )


@pytest.mark.parametrize("row", [0, 1])
def test_the_fit_is_the_posterior_mode_and_its_covariance_the_sandwich(row: int) -> None:
    """By differences of the posterior, written out anew from docs/methods.md 9."""
    data = with_unknown(draw(41, men=30, leak=True))
    model = fit_joint(data)
    assert model.centre == pytest.approx([np.nanmean(data.density), np.nanmean(data.age)])
    density = data.density - model.centre[0]
    age = data.age - model.centre[1]
    terms = ["intercept", "belief", "readers", "density", "age", "density unknown", "age unknown"]
    prior = {
        "intercept": (0.0, 1.5),
        "belief": (1.0, 0.35),
        "density": (0.0, 1.0),
        "age": (0.0, 0.5),
        "density unknown": (0.0, 0.5),
        "age unknown": (0.0, 0.5),
        "leak": (-3.0, 1.5),
        "leak density": (0.0, 0.5),
        "log effect": (-0.5, 1.0),
    }
    if row == 0:
        terms.remove("readers")
    else:
        prior |= {"belief": (0.6, 0.5), "readers": (0.3, 0.5)}
    names = [*terms, "leak", "leak density", "log effect"]
    mean, sd = np.array([prior[name] for name in names]).T
    columns = {
        "intercept": np.ones(len(data.man)),
        "belief": logit(data.belief),
        "readers": data.readers,
        "density": np.nan_to_num(density)[data.man],
        "age": np.nan_to_num(age)[data.man],
        "density unknown": np.isnan(density)[data.man],
        "age unknown": np.isnan(age)[data.man],
    }
    design = np.column_stack([columns[name] for name in terms])

    def of_men(value: np.ndarray) -> np.ndarray:
        leak_odds = value[-3] + value[-2] * np.nan_to_num(density)
        odds = design @ value[:-3]
        return likelihoods_of_men(data, odds, leak_odds, float(np.exp(value[-1])))

    def loss(value: np.ndarray) -> float:
        return float(-of_men(value).sum() + (((value - mean) / sd) ** 2).sum() / 2)

    places = [TERMS.index(name) for name in names]
    fitted = model.estimate[row, places]
    assert gradient_of(loss, fitted) == pytest.approx(0, abs=2e-5)
    assert (model.estimate[row, np.setdiff1d(np.arange(10), places)] == 0).all()
    size = len(names)
    scores = np.empty((data.men, size))
    hessian = np.empty((size, size))
    step = 1e-3 * np.eye(size)
    for i in range(size):
        scores[:, i] = (of_men(fitted + step[i]) - of_men(fitted - step[i])) / 2e-3
        for j in range(size):
            signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
            total = sum(
                first * second * loss(fitted + first * step[i] + second * step[j])
                for first, second in signs
            )
            hessian[i, j] = total / 4e-6
    inverse = np.linalg.inv(hessian)
    middle = 30 / 29 * scores.T @ scores + np.diag(sd**-2)
    found = model.covariance[np.ix_(10 * row + np.array(places), 10 * row + np.array(places))]
    np.testing.assert_allclose(found, inverse @ middle @ inverse, rtol=0.01, atol=1e-4)


@pytest.mark.parametrize("leak", [False, True])
def test_a_site_is_the_posterior_mode_of_its_changes(leak: bool) -> None:
    """By differences, with the priors as :meth:`JointModel.recalibrated` writes them."""
    model = model_of(effect=0.7, leak=-2.0 if leak else None)
    site = draw(42, men=40, readers=False, intercept=-1.5, leak=leak)
    odds = log_odds(model, site)
    leak_odds = -2.0 + 0.4 * (site.density - model.centre[0])
    mean = np.array([0.0, 1.0, 0.0, 0.0])
    sd = np.array([1.0, 0.35, 0.5, 0.5])

    def loss(change: np.ndarray) -> float:
        a, c, outside, d = change
        of_men = likelihoods_of_men(
            site,
            a + c * odds,
            leak_odds + a + outside if leak else None,
            0.7 * float(np.exp(d)),
        )
        return float(-of_men.sum() + (((change - mean) / sd) ** 2).sum() / 2)

    moved = model.recalibrated(site)
    c = moved.estimate[0, BELIEF] / 1.2
    a = moved.estimate[0, INTERCEPT] + 0.4 * c
    d = moved.estimate[0, EFFECT] - np.log(0.7)
    outside = moved.estimate[0, LEAK] + 2 - a if leak else 0.0
    assert gradient_of(loss, np.array([a, c, outside, d])) == pytest.approx(0, abs=2e-5)
    assert np.abs([a, c - 1, d]).min() > 0.01
    assert moved.estimate[0, [DENSITY, AGE]] == pytest.approx(c * np.array([0.7, 0.3]))
    if leak:
        assert outside != pytest.approx(0, abs=0.01)
        assert moved.estimate[0, LEAK_DENSITY] == pytest.approx(0.4)


def test_a_site_forgets_the_stated_prevalence_and_fits_nothing_else() -> None:
    data = draw(15, men=60, readers=False)
    shifted = fit_joint(data).shifted(0.5, data)
    moved = shifted.recalibrated(draw(16, men=30, readers=False))
    assert moved.prevalence is None
    assert moved.shift == 0
    assert (moved.estimate[~moved.free] == 0).all()
    assert (moved.covariance[~moved.free.ravel()] == 0).all()
    assert moved.taught.men == 30
    assert from_dict(json.loads(json.dumps(moved.as_dict()))).as_dict() == moved.as_dict()
    with pytest.raises(CadError, match=r"29 men with histology and a belief, 30 are needed"):
        shifted.recalibrated(draw(16, men=29, readers=False))
    assert shifted.recalibrated(draw(16, men=29, readers=False), least=29).taught.men == 29


def test_a_site_without_readers_moves_both_sets_as_by_images() -> None:
    model = model_of(effect=0.7, readers=True)
    site = draw(44, men=40, readers=False, intercept=-1.5)
    moved = model.recalibrated(site)
    assert moved.notes[-1] == "no readers' scores at the site: both sets are moved as by images"
    slope = moved.estimate[0, BELIEF] / 1.2
    change = moved.estimate[0, INTERCEPT] + 0.4 * slope
    assert moved.estimate[1, BELIEF] == pytest.approx(0.8 * slope)
    assert moved.estimate[1, READERS] == pytest.approx(0.5 * slope)
    assert moved.estimate[1, INTERCEPT] == pytest.approx(change - 0.4 * slope)
    # With scores, the second set is moved by the regions that have some.
    scored = draw(44, men=40, intercept=-1.5)
    apart = model.recalibrated(scored)
    assert apart.notes == ()
    assert apart.estimate[1, BELIEF] / 0.8 != pytest.approx(slope, abs=1e-3)
    assert model_of(effect=0.7).recalibrated(site).notes == ()


def test_up_to_a_hundred_men_are_left_out_alone() -> None:
    rng = np.random.default_rng(5)
    belief = rng.uniform(0.1, 0.9, 101)
    truth = (rng.random(101) < belief) * 1.0
    man = np.arange(101)
    hundred = of_arrays(belief[:100], man[:100], 100, truth=truth[:100])
    first, _ = next(left_out(hundred))
    assert np.flatnonzero(first).tolist() == [0]
    more = of_arrays(belief, man, 101, truth=truth)
    first, _ = next(left_out(more))
    # 101 men in 20 parts: the first has six, drawn by the seed 0 unless another is given.
    drawn = np.random.default_rng(0).permutation(101)[:6]
    assert np.flatnonzero(first).tolist() == sorted(drawn)
    assert (next(left_out(more, 1))[0] != first).any()
    by_default = predict_left_out(more)
    assert (by_default.probability == predict_left_out(more, 0).probability).all()
    assert (by_default.probability != predict_left_out(more, 1).probability).any()


def test_left_out_men_get_each_number_of_their_model() -> None:
    data = draw(45, men=12, leak=True)
    data = replace(
        data,
        truth=np.where(data.man == 3, np.nan, data.truth),
        truth_of_man=np.where(np.arange(12) == 3, np.nan, data.truth_of_man),
        age=np.where(np.arange(12) == 5, np.nan, data.age),
    )
    predicted = predict_left_out(data)
    for men, model in left_out(data):
        expected = model.predict(data.of_men(men))
        for name in ("probability", "low", "high", "probability_images"):
            assert (getattr(predicted, name)[men[data.man]] == getattr(expected, name)).all()
        for name in ("man", "man_low", "man_high", "man_images", "leak"):
            assert (getattr(predicted, name)[men] == getattr(expected, name)).all()
    assert predicted.notes[5] == "age unknown"
    assert predicted.notes[4] == ""


def test_a_shift_may_be_larger_than_ten() -> None:
    for intercept in (-25.0, 25.0):
        model = model_of(effect=0.5)
        estimate = model.estimate.copy()
        estimate[0, INTERCEPT] = intercept
        data = draw(46, men=20, readers=False)
        far = replace(model, estimate=estimate).shifted(0.4, data)
        assert far.predict(data).man.mean() == pytest.approx(0.4, abs=1e-8)
        assert abs(far.shift) > 15
        assert far.estimate[0, INTERCEPT] == pytest.approx(intercept + far.shift)


def test_men_of_no_weight_or_without_a_number_do_not_count_in_a_shift() -> None:
    data = draw(47, men=40, least=0)
    model = fit_joint(data)
    number = np.arange(40)
    counting = (number % 2 == 0) & np.isfinite(model.predict(data).man)
    moved = model.shifted(0.3, data, np.where(number % 2 == 0, 1.0, 0.0))
    assert moved.predict(data).man[counting].mean() == pytest.approx(0.3, abs=1e-9)
    with pytest.raises(CadError, match="no man has a region"):
        model.shifted(0.3, data, np.zeros(40))


def test_a_contradiction_begins_beyond_three_standard_errors() -> None:
    # Mean .2, standard deviation .1 * sqrt(2), standard error .1.
    assert contradiction([0.1, 0.3], 0.499) == ""
    assert contradiction([0.1, 0.3, np.nan], 0.501) == (
        "mean probability of 2 men .2, of whom .5 were stated to have cancer"
    )
    assert contradiction([np.nan, 0.9], 0.1) == ""


def test_sentences_on_what_the_training_lacked() -> None:
    data = of_arrays([0.1, 0.7], [0, 1], 2, truth=[0, 1])
    assert fit_joint(data).notes == (
        "histology of 2 men: the priors carry much of the model",
        "no readers' scores: they are no evidence to this model",
        "no man's PSA density is known: it is not used",
        "no man's age is known: it is not used",
        "no man's truth is known beyond his regions: of the outlined regions only",
    )
    assert fit_joint(draw(48, men=30, leak=True)).notes == ()
    assert fit_joint(draw(48, men=29, leak=True)).notes == (
        "histology of 29 men: the priors carry much of the model",
    )
    # A fact that is known of no man has the centre 0.
    assert fit_joint(data).centre.tolist() == [0.0, 0.0]
    ill = replace(data, truth=np.ones(2))
    assert fit_joint(ill).notes[1] == "all 2 regions with histology are malignant"
    well = replace(data, truth=np.zeros(2))
    assert fit_joint(well).notes[1] == "all 2 regions with histology are benign"


def test_what_taught_a_model_by_hand() -> None:
    """Man 0: two judged regions, one scored. Man 1: no belief, but his truth. Man 2: nothing."""
    data = of_arrays(
        [0.2, 0.6, np.nan, 0.3],
        [0, 0, 1, 2],
        3,
        readers=[0.5, np.nan, 0.1, 0.2],
        truth=[0, 1, 0, np.nan],
        truth_of_man=[np.nan, 1, np.nan],
    )
    taught = fit_joint(data).taught
    assert (taught.men, taught.regions, taught.regions_with_readers) == (2, 2, 1)
    # Sizes 2 and 1: (2 + 1)^2 / (4 + 1).
    assert taught.effective_men == pytest.approx(9 / 5)
    assert taught.prevalence_of_regions == 0.5
    assert taught.prevalence_of_men == 1.0
    assert joint_model.effective_number([0, 0]) == 0.0
    assert joint_model.effective_number([8, 1, 1]) == pytest.approx(100 / 66)


def test_facts_that_a_man_lacks_by_hand() -> None:
    model = model_of(effect=0.5, leak=-2.0)
    data = of_arrays(
        [np.nan, 0.3, np.nan],
        [0, 0, 1],
        4,
        density=[-2.0, np.nan, -2.0, np.nan],
        age=[6.5, 6.5, np.nan, 6.5],
    )
    assert model.predict(data).notes == (
        "1 of 2 regions without a belief",
        "1 of 1 regions without a belief, PSA density unknown",
        "no region, age unknown",
        "no region, PSA density unknown",
    )


def test_few_effective_men_have_students_widest_quantile() -> None:
    model = model_of(effect=0.5)
    data = of_arrays([0.4], [0], 1, density=[-2.0], age=[6.5])
    # Two degrees of freedom at least: the quantile of .975 is 4.302653; with 80 it is 1.990063.
    of_few = replace(model, taught=Taught(2, 2, 0, 1.2, 0.5, 0.5)).predict(data)
    of_many = model.predict(data)
    half = [logit(found.probability) - logit(found.low) for found in (of_few, of_many)]
    assert half[0] / half[1] == pytest.approx(4.302653 / 1.990063, rel=1e-5)
    three = replace(model, taught=Taught(4, 4, 0, 4.0, 0.5, 0.5)).predict(data)
    third = logit(three.probability) - logit(three.low)
    assert third / half[1] == pytest.approx(3.182446 / 1.990063, rel=1e-5)


def test_limits_of_a_stored_model() -> None:
    """The limit itself is read, and a little more is refused."""
    content = model_of(effect=0.5).as_dict()

    def changed(name: str, place: tuple[int, ...], value: float) -> dict[str, object]:
        array = np.array(content[name], dtype=float)
        array[place] = value
        return {**content, name: array.tolist()}

    from_dict(changed("estimate", (0, BELIEF), 50.0))
    from_dict(changed("centre", (0,), -50.0))
    for name, place in (("estimate", (0, BELIEF)), ("centre", (1,))):
        with pytest.raises(CadError, match=r"a parameter of 50\.1, which no fit gives"):
            from_dict(changed(name, place, -50.1))
    from_dict(changed("covariance", (0, 0), 2500.0))
    with pytest.raises(CadError, match=r"a variance of 2\.5e\+03, which no fit gives"):
        from_dict(changed("covariance", (0, 0), 2501.0))
    with pytest.raises(CadError, match="is not symmetric"):
        from_dict(changed("covariance", (0, 1), 0.001))
    with pytest.raises(CadError, match="has negative variances"):
        from_dict(changed("covariance", (READERS, READERS), -0.001))
    # Rounding errors of a matrix with large entries are no fault.
    large = changed("covariance", (0, 0), 2000.0)
    rounded = np.array(large["covariance"], dtype=float)
    rounded[READERS, READERS] = -1e-7
    from_dict({**content, "covariance": rounded.tolist()})
    rounded[READERS, READERS] = 0.0
    rounded[0, 1] = 1e-6
    from_dict({**content, "covariance": rounded.tolist()})
    with pytest.raises(CadError, match="training told nothing of"):
        from_dict(changed("estimate", (0, READERS), 0.1))
    for term in (INTERCEPT, BELIEF, EFFECT):
        free = np.array(content["free"])
        free[0, term] = False
        estimate = np.where(free, np.array(content["estimate"]), 0.0)
        with pytest.raises(CadError, match="has an intercept, a belief and a man's effect"):
            from_dict({**content, "free": free.tolist(), "estimate": estimate.tolist()})
    for prevalence in (0.0, 1.0, None):
        assert from_dict({**content, "prevalence": prevalence}).prevalence == prevalence
    for name in ("prevalence_of_regions", "prevalence_of_men"):
        taught = {**content["taught"], name: None}
        assert np.isnan(getattr(from_dict({**content, "taught": taught}).taught, name))
        taught = {**content["taught"], name: 1.01}
        with pytest.raises(CadError, match=r"a prevalence of 1\.01"):
            from_dict({**content, "taught": taught})
    with pytest.raises(CadError, match=r"a prevalence of -0\.01"):
        from_dict({**content, "prevalence": -0.01})
    for effective in (0.0, -1.0, float("inf"), float("nan")):
        taught = {**content["taught"], "effective_men": effective}
        with pytest.raises(CadError, match="effective men have taught no joint model"):
            from_dict({**content, "taught": taught})
    for shift in (-50.0, 50.0):
        assert from_dict({**content, "shift": shift}).shift == shift
    for shift in (-50.1, 50.1, float("nan")):
        with pytest.raises(CadError, match="which no prevalence gives"):
            from_dict({**content, "shift": shift})


def test_limits_of_arrays() -> None:
    assert of_arrays([0.0, 1.0], [0, 1], 2, truth=[0, 1]).men == 2
    assert of_arrays([], [], 2).men == 2
    for wrong in ([-0.01, 0.5], [0.5, 1.01]):
        with pytest.raises(CadError, match="outside 0 to 1"):
            of_arrays(wrong, [0, 0], 1)
    with pytest.raises(CadError, match=r"man runs from -1 to 0, there are 1 men from 0"):
        of_arrays([0.1, 0.2], [-1, 0], 1)
    with pytest.raises(CadError, match="of 2 axes"):
        of_arrays([0.1], [[0]], 1)
    with pytest.raises(CadError, match="truth_of_man is 0, 1 or unknown"):
        of_arrays([0.1], [0], 1, truth_of_man=[0.5])
    with pytest.raises(CadError, match="man 1 is said to be free of cancer"):
        of_arrays([0.1, 0.2], [0, 1], 2, truth=[0, 1], truth_of_man=[0, 0])
    assert of_arrays([0.1], [0], 1, truth=[1], truth_of_man=[1]).histology_of_men() == [1]


def test_some_of_the_men_keep_their_regions_and_order() -> None:
    data = draw(49, men=6, leak=True)
    chosen = np.array([False, True, False, True, True, False])
    some = data.of_men(chosen)
    kept = chosen[data.man]
    assert some.men == 3
    assert some.man.tolist() == np.searchsorted([1, 3, 4], data.man[kept]).tolist()
    for name in ("belief", "readers", "truth"):
        assert (getattr(some, name) == getattr(data, name)[kept]).all()
    for name in ("density", "age", "truth_of_man"):
        assert (getattr(some, name) == getattr(data, name)[chosen]).all()


def test_readers_means_near_0_and_1_are_clipped() -> None:
    assert readers_logit([0.0, 0.05, 0.95, 1.0]) == pytest.approx(logit([0.05, 0.05, 0.95, 0.95]))


def test_weights_of_men_by_hand() -> None:
    """Two men with cancer share .2, one without has .8, and one of unknown truth has none."""
    data = of_arrays(np.full(4, 0.3), np.arange(4), 4, truth=[1, 0, np.nan, 1])
    assert weight_of_men(data, 0.2) == pytest.approx([0.1, 0.8, 0.0, 0.1])
    with pytest.raises(CadError, match="known to be without cancer"):
        weight_of_men(replace(data, truth=np.ones(4)), 0.2)


def test_truth_of_regions_by_hand() -> None:
    unknown = np.nan
    truth = np.array([0.0, 1.0, 0.0, 0.0, unknown, unknown])
    man = np.array([0, 0, 1, 1, 2, 2])
    of_men = joint_model.truth_of_regions(truth, man, 4)
    assert np.array_equal(of_men, [1.0, 0.0, unknown, unknown], equal_nan=True)
    mixed = joint_model.truth_of_regions(np.array([0.0, unknown]), np.array([0, 0]), 1)
    assert np.isnan(mixed).all()
