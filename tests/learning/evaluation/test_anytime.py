"""Intervals that hold at every look: published bounds, coverage at every look, and what fails."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from cad.base.errors import CadError
from cad.learning.evaluation.measures.anytime import (
    RATES,
    brier_differences,
    confidence_sequence,
    mixture_bound,
)

# Howard, Waudby-Smith and Ramdas, confseq: values of their reference implementation at V = 100,
# alpha = .05, made tightest at V = 100.
ONE_SIDED_NORMAL = 27.66071
TWO_SIDED_NORMAL = 30.35209
TWO_SIDED_PRECISION = 12.60056
GAMMA_EXPONENTIAL = 33.02017
V = 100.0


def precision(alpha):
    return V / (2 * np.log(1 / alpha) + np.log(1 + 2 * np.log(1 / alpha)))


def middles(n, end):
    return (np.arange(n) + 0.5) * end / n


def test_normal_mixture_is_the_published_bound(counted):
    rho = precision(0.1)
    rates = middles(20_000, 12 / np.sqrt(rho))
    weights = norm.pdf(rates * np.sqrt(rho))
    bound = mixture_bound(rates[None] ** 2 * V / 2, rates, weights / weights.sum(), 20)[0]
    assert bound == pytest.approx(ONE_SIDED_NORMAL, abs=1e-4)
    assert precision(0.05) == pytest.approx(TWO_SIDED_PRECISION, abs=1e-5)
    # Robbins 1970: the two-sided mixture has a closed form.
    closed = np.sqrt((V + TWO_SIDED_PRECISION) * np.log((V / TWO_SIDED_PRECISION + 1) / 0.05**2))
    assert closed == pytest.approx(TWO_SIDED_NORMAL, abs=1e-4)
    counted(3, "confidence sequences")


def test_gamma_exponential_mixture_is_the_published_bound(counted):
    width = 2.0
    rho = precision(0.1)
    rates = middles(400_000, 1 / width)
    psi = (-np.log1p(-width * rates) - width * rates) / width**2
    weights = np.exp(-rho * psi) / (1 - width * rates)
    bound = mixture_bound(V * psi[None], rates, weights / weights.sum(), 20)[0]
    assert bound == pytest.approx(GAMMA_EXPONENTIAL, abs=2e-3)
    counted(1, "confidence sequences")


def test_one_rate_by_hand():
    # exp(l s - l^2 v / 2) = 20 at s = log(20) / l + l v / 2.
    bound = mixture_bound(np.array([[0.5**2 * 8 / 2]]), np.array([0.5]), np.array([1.0]), 20)[0]
    assert bound == pytest.approx(np.log(20) / 0.5 + 0.5 * 8 / 2, abs=1e-9)


def simulated(rng, men, worse):
    """Return the differences of two models of men; the champion has more noise by ``worse``."""
    latent = rng.normal(size=men)
    truth = (rng.random(men) < expit(1.5 * latent - 0.5)).astype(int)
    champion = expit(1.5 * latent - 0.5 + rng.normal(0, 0.8 + worse, men))
    challenger = expit(1.5 * latent - 0.5 + rng.normal(0, 0.8, men))
    names = np.arange(men).astype(str)
    return brier_differences(champion, challenger, truth, names)[1:]


def test_looking_every_night_costs_nothing_where_a_plain_interval_is_wrong_often():
    rng = np.random.default_rng(0)
    trials = 150
    ours = 0
    plain = 0
    for _ in range(trials):
        d, low, high = simulated(rng, 200, 0.0)
        sequence = confidence_sequence(d, low, high)
        ours += sequence.decided > 0
        count = np.arange(1, len(d) + 1)
        mean = d.cumsum() / count
        error = np.sqrt(np.maximum((d**2).cumsum() / count - mean**2, 0) / count)
        plain += bool((np.abs(mean[20:]) > 1.96 * error[20:]).any())
    assert ours <= 0.05 * trials
    assert plain > 0.2 * trials


def test_coverage_at_every_look_where_the_worst_case_is_met():
    # Coin flips of the whole width: the hardest case for a bound that knows the ends alone.
    rng = np.random.default_rng(1)
    missed = 0
    trials = 300
    for _ in range(trials):
        flips = rng.choice([-1.0, 1.0], 120, p=[0.6, 0.4])
        sequence = confidence_sequence(flips, -1.0, 1.0)
        missed += bool(((sequence.low > -0.2) | (sequence.high < -0.2)).any())
    assert missed <= 0.05 * trials


def test_coverage_of_the_mean_so_far_where_it_changes():
    rng = np.random.default_rng(2)
    expected = np.where(np.arange(150) < 75, 0.3, -0.4)
    so_far = expected.cumsum() / np.arange(1, 151)
    missed = 0
    for _ in range(200):
        d = np.where(rng.random(150) < (1 + expected) / 2, 1.0, -1.0)
        sequence = confidence_sequence(d, -1.0, 1.0)
        missed += bool(((sequence.low > so_far) | (sequence.high < so_far)).any())
    assert missed <= 0.05 * 200


def test_a_better_challenger_is_seen_and_more_men_tell_less_of_a_difference():
    rng = np.random.default_rng(3)
    large = confidence_sequence(*simulated(rng, 400, 1.5))
    assert 0 < large.decided < 400
    assert large.high[-1] < 0
    small = confidence_sequence(*simulated(rng, 400, 0.3))
    assert small.decided == 0
    assert small.high[-1] - small.low[-1] < small.high[99] - small.low[99]


def test_the_interval_is_turned_with_the_models():
    d, low, high = simulated(np.random.default_rng(4), 60, 0.5)
    one = confidence_sequence(d, low, high)
    other = confidence_sequence(-d, -high, -low)
    np.testing.assert_allclose(other.low, -one.high, atol=1e-9)
    np.testing.assert_allclose(other.high, -one.low, atol=1e-9)


def test_models_that_agree_differ_by_nothing():
    d, low, high = brier_differences([0.2, 0.7], [0.2, 0.7], [0, 1], ["a", "b"])[1:]
    sequence = confidence_sequence(d, low, high)
    assert sequence.low.tolist() == [0.0, 0.0]
    assert sequence.high.tolist() == [0.0, 0.0]


def test_a_patient_is_one_number_by_hand():
    names, d, low, high = brier_differences(
        [0.5, 0.5, 0.2], [0.7, 0.5, 0.4], [1, 0, 0], ["b", "b", "a"]
    )
    # b: (.3^2 - .5^2 + 0) / 2; benign it would have been (.7^2 - .5^2 + 0) / 2.
    assert names == ["b", "a"]
    np.testing.assert_allclose(d, [-0.08, 0.12])
    np.testing.assert_allclose(low, [-0.08, 0.6**2 - 0.8**2])
    np.testing.assert_allclose(high, [0.12, 0.12])


def test_regions_of_one_patient_twice_change_nothing():
    args = [0.3, 0.6, 0.8], [0.5, 0.4, 0.9], [0, 1, 1], ["a", "a", "b"]
    once = brier_differences(*args)
    twice = brier_differences(*(list(values) * 2 for values in args))
    for first, second in zip(once[1:], twice[1:], strict=True):
        np.testing.assert_allclose(first, second)


def test_what_could_not_be_is_refused():
    with pytest.raises(CadError, match=r"patient number 2 is 0\.5"):
        confidence_sequence([0.1, 0.5], [-0.2, -0.2], [0.2, 0.2])
    with pytest.raises(CadError, match="level 1"):
        confidence_sequence([0.1], [-0.2], [0.2], level=1)


def test_rates_reach_from_few_patients_to_many():
    assert RATES[0] < 0.05
    assert RATES[-1] > 20
