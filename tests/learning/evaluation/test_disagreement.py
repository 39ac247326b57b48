"""Does disagreement help: seen where it pays, silent on noise, and the same by another way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import cad
from cad.learners import AveragedProbabilisticSVC, PlattSVC, ProbabilisticEnsemble, ProbabilisticSVC
from cad.learning.evaluation.folds.crossval import deal_patients
from cad.learning.evaluation.folds.disagreement import Disagreement, measure_disagreement
from cad.learning.evaluation.measures.metrics import kl

PLAIN = {"scale": "fixed", "eta0": 0.01, "C": 30.0, "gamma": 0.1}


def cohort(seed: int = 0, n: int = 150) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels that half the readings miss, their spreads, and patients."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    # Not biased: the mean of a doubtful label is the truth, and only its variance costs.
    p = 0.5 + 0.24 * np.tanh(2 * X[:, 0])
    doubtful = rng.random(n) < 0.5
    missed = np.where(doubtful, 0.25 * rng.choice([-1, 1], n), 0.0)
    return X, p + missed, np.where(doubtful, 0.5, 0.01), np.arange(n) // 3


def test_a_spread_that_tells_which_labels_to_doubt_helps() -> None:
    X, p, spread, patients = cohort()
    told = measure_disagreement(ProbabilisticSVC(**PLAIN), X, p, spread, patients=patients)
    assert told is not None
    assert told.lower > 0
    assert told.p == pytest.approx(1 / 21)
    assert told.sentence().startswith("Disagreement helps: ")
    assert f"changes by {-told.gain:+.1f} % [" in told.sentence()


def test_a_spread_that_tells_nothing_does_not_help() -> None:
    """Forty cohorts of noise: the interval excludes 0 from above as rarely as it may."""
    above = 0
    for seed in range(40):
        X, p, spread, patients = cohort(seed, 90)
        noise = np.random.default_rng(seed).permutation(spread)
        told = measure_disagreement(
            ProbabilisticSVC(**PLAIN), X, p, noise, patients=patients, seed=seed
        )
        assert told is not None
        above += told.lower > 0
    assert above <= 4


def test_the_gain_is_that_of_fits_one_by_one() -> None:
    """Own and permuted spreads, fitted by ``fit``, measured by the module of measures."""
    X, p, spread, patients = cohort(3)
    told = measure_disagreement(ProbabilisticSVC(**PLAIN), X, p, spread, patients=patients, draws=3)
    rng = np.random.default_rng(0)
    spreads = [spread, *(spread[rng.permutation(150)] for _ in range(3)), np.zeros(150)]
    dealt = deal_patients(patients, 5, 0)
    losses = []
    for eta in spreads:
        q = np.full(150, np.nan)
        for fold in np.unique(dealt):
            train, test = dealt != fold, dealt == fold
            fitted = ProbabilisticSVC(**PLAIN).fit(X[train], p[train], eta=eta[train])
            q[test] = fitted.predict_proba(X[test])[:, 1]
        losses.append(kl(p, q))
    assert told is not None
    np.testing.assert_allclose(told.kl, losses[0], rtol=1e-3)
    np.testing.assert_allclose(told.kl_permuted, np.mean(losses[1:4]), rtol=1e-3)
    np.testing.assert_allclose(told.kl_without, losses[4], rtol=1e-3)
    assert told.gain == pytest.approx(100 * (1 - told.kl / told.kl_permuted))


@pytest.mark.parametrize("kind", [AveragedProbabilisticSVC, ProbabilisticEnsemble])
def test_averages_are_fitted_with_each_spread_at_the_largest_kappa(kind: type) -> None:
    """One setting: its own fit at kappa 1, but for the stretch of the average."""
    X, p, spread, patients = cohort(1)
    setting = {"C": 3.0, "gamma": 0.3, "eta0": 0.05, "scaling": "given"}
    learner = kind(**setting, kappa=(0.0, 1.0))
    made = learner.predict_spreads(X, p, [spread, spread[::-1]], X[:9], groups=patients)
    plain = AveragedProbabilisticSVC(**setting, kappa=0.0).fit(X, p, groups=patients)
    for eta, probability in zip((spread, spread[::-1]), made, strict=True):
        single = ProbabilisticSVC(C=3.0, gamma=0.3 / 4, eta0=0.05, scale="fixed").fit(X, p, eta=eta)
        z = single.decision_function(X[:9]) / single.scale_
        expected = expit(plain.base_ + plain.slope_ * (z - plain.base_))
        np.testing.assert_allclose(probability, expected, atol=2e-3)


def test_where_nothing_can_be_told_nothing_is() -> None:
    X, p, spread, patients = cohort()
    ask = ProbabilisticSVC(**PLAIN)
    assert measure_disagreement(PlattSVC(), X, p, spread, patients=patients) is None
    assert measure_disagreement(ask, X, p, np.full(150, 0.1), patients=patients) is None
    assert measure_disagreement(ask, X, p, spread, patients=patients // 20) is None
    few = np.where(np.arange(150) < 9, p, np.nan)
    assert measure_disagreement(ask, X, few, spread, patients=patients) is None


def test_a_validation_with_several_readers_says_it() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    scores = np.clip(np.round(3 + X[:, :1] + rng.normal(0, 0.7, (60, 3))), 1, 5)
    belief = cad.consensus(scores)
    readers = pd.DataFrame((scores - 1) / 4)
    learner = ProbabilisticSVC(**PLAIN)
    made = cad.validate(
        learner, X, belief.p, np.arange(60) // 3, eta=belief.eta, readers=readers, folds=5
    )
    told = made.metrics["disagreement"]
    assert told["draws"] == 20
    assert made.notes.count(told["sentence"]) == 1
    alone = cad.validate(learner, X, belief.p, np.arange(60) // 3, eta=belief.eta, folds=5)
    assert alone.metrics["disagreement"] is None


@pytest.mark.parametrize(
    ("gain", "verdict", "change"),
    [
        ((10.0, 2.0, 18.0), "Disagreement helps", "-10.0 % [-18.0, -2.0]"),
        ((10.0, -2.0, 22.0), "It is not known whether disagreement helps", "-10.0 % [-22.0, +2.0]"),
        ((-5.0, -8.0, -2.0), "Disagreement harms", "+5.0 % [+2.0, +8.0]"),
    ],
)
def test_the_sentence_by_hand(gain: tuple[float, float, float], verdict: str, change: str) -> None:
    told = Disagreement(90, 30, 9.0, 10.0, 8.0, *gain, 0.5, 20)
    assert told.sentence() == (
        f"{verdict}: the divergence from the readers' mean changes by {change} against the same "
        "disagreement dealt to other regions (20 draws), by +12.5 % against none."
    )
