"""Thresholds with an aim: by hand, by brute force, kept promises, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import beta

from benchmarks.outcomes import promise_cohort
from cad.base.errors import CadError
from cad.base.files import typed
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions import operating
from cad.learning.evaluation.decisions.operating import (
    OperatingChoice,
    Side,
    choose_operating_point,
    choose_thresholds,
    promised_cut,
)
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.evaluation.measures.intervals import (
    Interval,
    clustered_share,
    share_design_effect,
    share_lower_bound,
)
from cad.learning.logistic import fit_logistic

AIMS = DecisionSettings(aim_npv=0.9, aim_ppv=0.7)


def regions(seed: int, patients: int = 50, rois: int = 6) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(patients), rois)
    z = -1.5 + 1.3 * rng.normal(size=len(group)) + 0.9 * rng.normal(size=patients)[group]
    return (rng.random(len(group)) < expit(z)).astype(float), expit(z), group


def test_fifty_nine_men_without_an_error_and_not_fifty_eight() -> None:
    # .05 ** (1 / 59) = .9505, .05 ** (1 / 58) = .9497: the rule of three, exactly.
    for men, promised in ((59, True), (58, False)):
        q = np.linspace(0.01, 0.5, men)
        choice = promised_cut(np.ones(men), q, np.arange(men), 0.95)
        assert (choice.cut > 0) == promised
        assert choice.needed == 59
    assert choice.cut == 0
    assert np.isnan(choice.bound)
    assert (
        "takes 59 decisions in a row without an error, the safest 58 hold 0 errors" in choice.note
    )
    assert promised_cut(np.ones(9), np.arange(9) / 10, np.arange(9), 0.7).needed == 9


def test_threshold_by_hand() -> None:
    # 200 men in shares of 10. With one error the bound passes .95 at 100 men (93 by Clopper and
    # Pearson), so that the sequence begins there; the second share of errors ends it.
    q = np.arange(1, 201) / 201
    right = np.ones(200)
    right[[95, 145]] = 0
    first = promised_cut(right, q, np.arange(200), 0.95)
    assert beta.ppf(0.05, 139, 2) > 0.95 > beta.ppf(0.05, 91, 2)
    assert first.cut == pytest.approx((q[199] + 1) / 2, abs=0.01)
    right[[151, 152, 153, 154, 155, 156]] = 0
    stopped = promised_cut(right, q, np.arange(200), 0.95)
    assert stopped.cut == pytest.approx((q[149] + q[150]) / 2)
    assert stopped.bound == pytest.approx(beta.ppf(0.05, 148, 3))
    # Seven of the safest ten are wrong: nothing later makes up for it.
    right[:7] = 0
    assert promised_cut(right, q, np.arange(200), 0.95).cut == 0


def test_equal_values_stay_together() -> None:
    q = np.where(np.arange(200) < 150, 0.1, 0.6)
    right = np.ones(200)
    right[150:180] = 0
    assert promised_cut(right, q, np.arange(200), 0.95).cut == pytest.approx(0.35)
    right[149] = 0
    shuffled = np.random.default_rng(0).permutation(200)
    again = promised_cut(right[shuffled], q[shuffled], shuffled, 0.95)
    assert again == promised_cut(right, q, np.arange(200), 0.95)


@pytest.mark.parametrize("seed", range(4))
def test_the_sequence_stops_at_the_first_failure_by_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, q, group = regions(seed, patients=150)
    group = np.arange(len(y))  # every region a patient: Clopper and Pearson's bound
    q = q + 1e-9 * rng.random(len(q))
    lower, _ = choose_thresholds(y, q, group, AIMS)
    order = np.argsort(q)
    n = len(q)
    passed = 0
    begun = False
    for share in range(1, 21):
        size = int(np.ceil(n * share / 20))
        begun = begun or beta.ppf(0.05, size - 1, 2) >= 0.9
        if not begun:
            continue
        wrong = int(y[order[:size]].sum())
        if beta.ppf(0.05, size - wrong, wrong + 1) < 0.9:
            break
        passed = size
    assert passed > 0
    assert np.sum(q < lower) == passed


@pytest.mark.parametrize("patients", [49, 150])
@pytest.mark.parametrize("alike", [0.0, 0.2])
def test_where_the_value_is_below_the_aim_everywhere_it_is_rarely_promised(
    patients: int, alike: float
) -> None:
    # .949 wherever one looks; at most 5 % of 150 cohorts, and three standard errors of chance.
    promised = []
    for seed in range(150):
        rng = np.random.default_rng([seed, patients])
        group = np.repeat(np.arange(patients), rng.integers(1, 7, patients))
        wrong = np.full(patients, 0.051)
        if alike > 0:
            size = (1 - alike) / alike
            wrong = rng.beta(0.051 * size, 0.949 * size, patients)
        right = (rng.random(len(group)) >= wrong[group]).astype(float)
        promised.append(promised_cut(right, rng.random(len(group)), group, 0.95).cut > 0)
    assert np.mean(promised) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)


def test_regions_of_a_patient_that_fail_together_count_less() -> None:
    rng = np.random.default_rng(3)
    right = (rng.random(100) < 0.97).astype(float).repeat(4)
    group = np.arange(100).repeat(4)
    q = rng.random(400)
    together = promised_cut(right, q, group, 0.9)
    apart = promised_cut(right, q, np.arange(400), 0.9)
    assert together.bound < apart.bound - 0.02
    # Four that say the same are one: what it takes is four times as many.
    assert together.needed == pytest.approx(4 * apart.needed, abs=2)


def test_sides_mirror_each_other() -> None:
    y, q, group = regions(1, patients=200)
    aims = DecisionSettings(aim_npv=0.85, aim_ppv=0.6)
    lower, upper = choose_thresholds(y, q, group, aims)
    assert 0 < lower < upper < 1
    turned = DecisionSettings(aim_npv=0.6, aim_ppv=0.85)
    mirrored = choose_thresholds(1 - y, 1 - q, group, turned)
    assert mirrored == pytest.approx((1 - upper, 1 - lower))


def test_where_both_aims_hold_a_region_is_benign() -> None:
    y, q, group = regions(1, patients=200)
    easy = DecisionSettings(aim_npv=0.5, aim_ppv=0.2)
    choice = choose_operating_point(y, q, group, easy)
    assert choice.thresholds == (1.0, 1.0)
    assert choice.benign.share == 1
    assert choice.malignant.share == 0
    assert np.isnan(choice.malignant.promise)
    assert "nothing is decided" in choice.malignant.note


def test_promises_are_kept_for_new_patients() -> None:
    met = []
    decided = []
    for seed in range(40):
        choice = choose_operating_point(*regions(seed, patients=100), AIMS)
        y, q, _ = regions(1000 + seed, patients=3000)
        new = decide(q, *choice.thresholds)
        for label, side, aim in ((0, choice.benign, 0.9), (1, choice.malignant, 0.7)):
            if not side.note:
                assert side.promise == aim <= side.bound <= side.observed.value
                met.append(np.mean(y[new == label] == label) >= aim)
        decided.append(1 - choice.refer)
    assert np.mean(met) >= 0.9  # .95 promised; of about 60 decisions
    assert len(met) > 40
    assert np.mean(decided) > 0.3


def test_shares_are_of_all_regions_and_json_comes_back() -> None:
    y, q, group = regions(3, patients=100)
    y[:40] = np.nan
    q[40:50] = np.nan
    found = choose_operating_point(y, q, group, AIMS)
    assert found.benign.share + found.refer + found.malignant.share == pytest.approx(1)
    assert found.benign.share == pytest.approx(np.mean(q[np.isfinite(q)] < found.thresholds[0]))
    again = typed(OperatingChoice, json.loads(json.dumps(found.as_dict())))
    assert again.thresholds == found.thresholds
    assert again.sentence() == found.sentence()


def test_an_aim_that_cannot_be_promised_decides_nothing_and_says_what_it_takes() -> None:
    y, q, group = regions(5, patients=8)
    choice = choose_operating_point(y, q, group, DecisionSettings(aim_npv=0.999))
    assert choice.benign.threshold == 0
    assert choice.benign.share == 0
    assert np.isnan(choice.benign.promise)
    assert choice.benign.needed >= 2995  # ln .05 / ln .999
    assert f"it takes {choice.benign.needed} decisions in a row" in choice.sentence()
    # The settings have no aim for "malignant", so the costs of errors give its threshold. The
    # promise for it is the lower end of the interval of the predictive value.
    assert choice.malignant.needed == 0
    assert choice.malignant.promise == choice.malignant.bound < choice.malignant.observed.value
    with pytest.raises(CadError, match="malignant and benign regions"):
        choose_operating_point(np.zeros(len(y)), q, group, AIMS)


def test_a_choice_of_a_version_before_is_read_and_promises_nothing() -> None:
    y, q, group = regions(3, patients=100)
    content = choose_operating_point(y, q, group, AIMS).as_dict()
    for name in ("benign", "malignant"):
        side = dict(content[name])
        for field in ("bound", "needed"):
            del side[field]
        content[name] = {**side, "validated": side["observed"], "validated_n": 3}
    before = typed(OperatingChoice, content)
    assert np.isnan(before.benign.promise)
    assert "no promise" in before.sentence()
    assert before.thresholds == choose_thresholds(y, q, group, AIMS)


def test_share_is_clopper_pearson_when_every_region_is_a_patient() -> None:
    x = np.array([1.0] * 28 + [0.0] * 2)
    found = clustered_share(x, np.arange(30))
    effect = max(1.0, share_design_effect(x, np.arange(30)))
    n = 30 / effect
    hits = n * 28 / 30
    assert effect == pytest.approx(30 / 29)
    assert found.lower == pytest.approx(beta.ppf(0.025, hits, n - hits + 1))
    perfect = clustered_share(np.ones(30), np.arange(30))
    assert perfect.upper == 1
    assert perfect.lower == pytest.approx(0.025 ** (1 / 30))  # Clopper and Pearson in closed form
    assert clustered_share(np.ones(30), np.arange(30), design_effect=3.0).lower < perfect.lower
    assert np.isnan(clustered_share(np.ones(3), np.zeros(3)).lower)
    assert np.isnan(clustered_share(np.array([]), np.array([])).value)


def test_share_covers_with_twenty_patients() -> None:
    hits = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        share = rng.beta(9, 1, 20).repeat(5)
        x = (rng.random(100) < share).astype(float)
        found = clustered_share(x, np.arange(20).repeat(5))
        hits.append(found.lower <= 0.9 <= found.upper)
    assert np.mean(hits) >= 0.9


def test_an_aim_of_95_is_met_and_decides_at_150_men() -> None:
    # 30 cohorts; 200 of each kind and size: python -m benchmarks.outcomes aims --cohorts 200.
    far = promise_cohort("good", 7, 3000)
    met = []
    decided = []
    for seed in range(30):
        data = promise_cohort("good", 600 + seed, 150)
        choice = promised_cut(1 - data.truth, data.q, data.patients, 0.95)
        below = far.q < choice.cut
        met.append(not below.any() or np.mean(1 - far.truth[below]) >= 0.95)
        decided.append(np.mean(below))
    assert sum(met) >= 28
    assert np.mean(decided) >= 0.4


@pytest.mark.parametrize("huge", [False, True])
def test_how_alike_a_patients_regions_are_by_loops_over_pairs(huge: bool) -> None:
    rng = np.random.default_rng(4)
    sizes = [1, 2, 3, 4, 2, 3, 5, 2]
    if huge:
        sizes[0] = 20
    group = np.repeat(np.arange(8), sizes)
    q = expit(-1 + rng.normal(size=len(group)))
    y = (rng.random(len(group)) < expit(logit(q) + 2 * rng.normal(size=8)[group])).astype(float)
    design = np.column_stack([np.ones(len(q)), logit(q)])
    beta = fit_logistic(design, y, mean=np.array([0.0, 1]), precision=np.array([1.5, 0.35]) ** -2)
    residual = (y - expit(design @ beta)) / np.sqrt(np.mean((y - expit(design @ beta)) ** 2))
    means = []
    pairs = []
    for patient in range(8):
        rows = np.flatnonzero(group == patient)
        products = [residual[i] * residual[j] for i in rows for j in rows if i < j]
        if products:
            means.append(np.mean(products))
            pairs.append(len(products))
    numbers = np.array(pairs)
    regions = (1 + np.sqrt(1 + 8 * numbers)) / 2
    bounds = []
    for weight in (numbers, regions - 1):
        average = np.average(means, weights=weight)
        spread = np.array(means) - average
        bounds.append(average + np.sqrt(np.sum((weight / weight.sum() * spread) ** 2)))
    assert bounds[0] != pytest.approx(bounds[1], abs=0.01)
    assert operating._residual_correlation(y, q, group) == pytest.approx(
        min(1.0, max(0.0, *bounds))
    )
    # Patients of one region each resemble nobody.
    assert operating._residual_correlation(y, q, np.arange(len(y))) == 0


def test_shares_by_hand() -> None:
    # 40 values apart: two in each twentieth.
    assert operating._sizes_of_shares(np.arange(40) / 100).tolist() == list(range(2, 41, 2))
    # Equal values stay together, however near the next one lies.
    sizes = operating._sizes_of_shares(np.array([0.1, 0.1, 0.1, 0.2, 0.2, 0.3]))
    assert sizes.tolist() == [3, 5, 6]


def test_the_sequence_begins_where_one_error_could_be_borne() -> None:
    # Clopper and Pearson at .95: 59 without an error, 93 with one, 124 with two.
    men = np.arange(200)
    for sizes, place in (
        ([50, 59, 92, 93, 123, 124], 3),
        ([50, 58, 59, 92], 2),
        ([50, 58], 2),
    ):
        assert operating._first_tested_share(np.array(sizes), men, 0.0, 0.95) == place
    # A bound that lies on the aim reaches it; one that lies a little below does not.
    correct = np.ones(100)
    correct[0] = 0
    bound = share_lower_bound(correct, men[:100], 1.0)
    sizes = np.array([100, 200])
    assert operating._first_tested_share(sizes, men, 0.0, bound) == 0
    assert operating._first_tested_share(sizes, men, 0.0, bound + 1e-6) == 1


def test_a_bound_on_the_aim_is_promised() -> None:
    q = np.linspace(0.01, 0.5, 100)
    men = np.arange(100)
    bound = share_lower_bound(np.ones(100), men, 1.0)
    choice = promised_cut(np.ones(100), q, men, bound)
    assert choice.cut == 1
    assert choice.bound == bound
    assert promised_cut(np.ones(100), q, men, bound + 1e-9).cut == 0


def test_what_a_promise_takes_by_hand() -> None:
    # n decisions without an error have the bound .05 ** (1 / n); a little more than 58 are 59.
    for decisions, needed in ((59.0, 59), (58.005, 59), (57.999, 58)):
        aim = 0.05 ** (1 / decisions)
        assert promised_cut(np.ones(20), np.arange(20) / 20, np.arange(20), aim).needed == needed
    # Pairs whose regions are partly alike: times 1 + the correlation, however they are ordered.
    rng = np.random.default_rng(5)
    group = np.arange(60).repeat(2)
    q = rng.random(120)
    right = (rng.random(120) < 0.8).astype(float)
    right[:40] = right[:40:2].repeat(2)
    correlation = operating._residual_correlation(1 - right, q, group)
    assert 0.1 < correlation < 0.9
    needed = int(np.ceil(np.log(0.05) / np.log(0.999) * (1 + correlation)))
    assert promised_cut(right, q, group, 0.999).needed == needed


def test_likeness_lies_between_none_and_whole() -> None:
    q = np.full(40, 0.5)
    group = np.arange(20).repeat(2)
    # One of each pair is malignant: less alike than by chance counts as not alike.
    assert operating._residual_correlation(np.tile([0.0, 1.0], 20), q, group) == 0
    # Both or none are: wholly alike, and the standard error goes no further.
    rare = np.zeros(40)
    rare[:6] = 1
    assert operating._residual_correlation(rare, q, group) == 1


def test_the_sentence_names_shares_aims_and_promises() -> None:
    observed = Interval(0.93, 0.9, 0.96, "by hand")
    benign = Side(0.9, 0.2, 0.5, observed, 40, "", bound=0.9, needed=29)
    malignant = Side(None, 0.7, 0.25, observed, 20, "", bound=0.85)
    assert malignant.needed == 0
    assert benign.promise == 0.9
    choice = OperatingChoice(benign, malignant, 0.25)
    assert choice.sentence() == (
        "by the thresholds alone: benign 50%, refer 25%, malignant 25%; "
        "negative predictive value 0.93 (aim 0.9, promised 0.90); "
        "positive predictive value 0.93 (promised 0.85)."
    )
    nothing = Side(0.9, 0.0, 0.0, observed, 0, "nothing is decided")
    untested = Side(0.8, 0.7, 0.25, observed, 20, "")
    assert OperatingChoice(nothing, untested, 0.75).sentence() == (
        "by the thresholds alone: benign 0%, refer 75%, malignant 25%; "
        "negative predictive value: nothing is decided; "
        "positive predictive value 0.93 (aim 0.8, no promise)."
    )


def test_two_patients_and_two_classes_are_enough() -> None:
    y = np.array([0.0, 1.0, 0.0, 1.0])
    q = np.array([0.1, 0.8, 0.3, 0.9])
    settings = DecisionSettings(aim_npv=0.9)
    choice = choose_operating_point(y, q, np.array([0, 0, 1, 1]), settings)
    assert "it takes 29 decisions" in choice.benign.note
    # The costs' threshold has no note where something lies beyond it.
    assert choice.malignant.n > 0
    assert choice.malignant.note == ""
    with pytest.raises(CadError, match="2 malignant, 2 benign of 1"):
        choose_operating_point(y, q, np.zeros(4), settings)
    with pytest.raises(CadError, match="4 malignant, 0 benign of 2"):
        choose_operating_point(np.ones(4), q, np.array([0, 0, 1, 1]), settings)


def test_a_threshold_of_the_costs_that_nothing_lies_beyond_decides_nothing() -> None:
    y = np.array([0.0, 1.0, 0.0, 1.0])
    q = np.array([0.4, 0.45, 0.4, 0.45])
    far = DecisionSettings(aim_npv=0.9, false_positive=100.0)
    assert far.thresholds[1] > 0.9
    choice = choose_operating_point(y, q, np.arange(4), far)
    assert choice.malignant.note == "no region lies beyond the threshold: nothing is decided"
    assert np.isnan(choice.malignant.promise)
