"""The averaged P-SVM: its weights against Yao's formula, its average against single machines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logit
from sklearn.model_selection import GroupKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from cad.learners import AveragedProbabilisticSVC, ProbabilisticSVC
from cad.learning.learners.averaged import _pseudo_bma
from cad.learning.learners.base import RangeWarning, outside, training_range
from cad.learning.learners.solvers.problem import LearnerError

FOLDS = "inner folds are drawn from rows: a repeated row is not a row of twice the weight"


@parametrize_with_checks(
    [AveragedProbabilisticSVC(C=1.0, gamma=(0.1, 1.0), eta0=0.1, kappa=0.0, folds=3)],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": FOLDS for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def cohort(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, mean and spread of four readers, and patients of four regions each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    latent = 1 / (1 + np.exp(-2 * X[:, 0]))
    scores = np.round(4 * np.clip(latent[:, None] + rng.normal(0, 0.15, (n, 4)), 0, 1)) / 4
    return X, scores.mean(axis=1), scores.std(axis=1, ddof=1), np.arange(n) // 4


def test_one_setting_is_the_p_svm_itself() -> None:
    X, p, spread, patient = cohort()
    one = AveragedProbabilisticSVC(
        C=3.0, gamma=0.3, eta0=0.05, kappa=0.5, scaling="given", tol=1e-8
    )
    one.fit(X, p, eta=spread, groups=patient)
    peer = ProbabilisticSVC(C=3.0, gamma=0.1, eta0=0.05, kappa=0.5, scale="fixed", tol=1e-8)
    peer.fit(X, p, eta=spread)
    said = peer.decision_function(X) / peer.scale_ - one.base_
    shift = one.decision_function(X) - (one.base_ + one.slope_ * said)
    np.testing.assert_allclose(shift, shift[0], atol=1e-6)
    assert one.points_[0]["weight"] == 1.0
    assert one.label_counts_ == peer.label_counts_
    np.testing.assert_array_equal(one.label_kinds_, peer.label_kinds_)


@pytest.mark.filterwarnings("ignore::cad.learning.learners.base.RangeWarning")
@pytest.mark.parametrize("seed", [2, 7, 9])
def test_one_patient_alone_drops_no_setting_early(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three regions of one patient contradict all others: what he loses counts at the end only.

    With him counted, settings of weight .2 were dropped, and probabilities moved by .06 to .2.
    """
    rng = np.random.default_rng(seed)
    X, patient = rng.normal(size=(60, 4)), np.arange(60)
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=60) > 0) * 1.0
    odd = np.argsort(X[:, 0])[-3:]
    y[odd], patient[odd] = 0, odd[0]
    new = np.random.default_rng(99).normal(size=(200, 4))
    learner = AveragedProbabilisticSVC(eta0=(0.02, 0.125), kappa=0.0, gamma=(0.1, 1.0))
    dropping = learner.fit(X, y, groups=patient).predict_proba(new)
    monkeypatch.setattr("cad.learning.learners.averaged._HOPELESS", np.inf)
    keeping = learner.fit(X, y, groups=patient).predict_proba(new)
    np.testing.assert_allclose(dropping, keeping, atol=0.02)


def test_the_average_is_of_log_odds_with_the_weights_shown() -> None:
    X, p, spread, patient = cohort()
    both = AveragedProbabilisticSVC(
        C=(0.3, 10.0),
        gamma=(0.1, 1.0),
        eta0=(0.05, 0.125),
        kappa=(0.0, 0.5),
        scaling="given",
        drop=0.05,
    )
    both.fit(X, p, eta=spread, groups=patient)
    share = np.array([point["weight"] for point in both.points_])
    assert (share[:-1] >= share[1:]).all()
    assert share.min() > 0.04
    assert share.sum() == pytest.approx(1)
    total = np.zeros(len(X))
    for point in both.points_:
        machine = ProbabilisticSVC(
            C=point["C"],
            gamma=point["gamma"] / 3,
            eta0=point["eta0"],
            kappa=point["kappa"],
            scale="fixed",
        ).fit(X, p, eta=spread)
        total += point["weight"] * machine.decision_function(X) / machine.scale_
    total = both.base_ + both.slope_ * (total - both.base_)
    shift = both.decision_function(X) - total
    np.testing.assert_allclose(shift, np.mean(shift), atol=1e-3)


@pytest.mark.filterwarnings("ignore:every certain label")
def test_scale_and_shift_are_what_inner_folds_say() -> None:
    """From scipy's minimiser, on folds made without the learner's code."""
    X, p, spread, patient = cohort(120)
    one = AveragedProbabilisticSVC(C=30.0, gamma=1.0, eta0=0.02, kappa=0.0, scaling="given")
    one.fit(X, p, eta=spread, groups=patient)
    z, base = np.zeros(len(p)), logit(p.mean())
    for train, test in GroupKFold(5).split(X, groups=patient):
        peer = ProbabilisticSVC(C=30.0, gamma=1 / 3, eta0=0.02, kappa=0.0, scale="fixed")
        peer.fit(X[train], p[train], eta=spread[train])
        # Less the base of the fold, which knows the labels of who is left out.
        z[test] = peer.decision_function(X[test]) / peer.scale_ - logit(p[train].mean())

    def loss(parameters: np.ndarray) -> float:
        shift, slope = parameters
        odds = base + shift + slope * z
        prior = shift**2 / 2 + 3 * (slope - 1) ** 2
        return float(np.sum(np.logaddexp(0, odds) - p * odds) + prior)

    shift, slope = minimize(loss, [0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-6}).x
    assert one.slope_ == pytest.approx(slope, abs=0.01)
    assert one.slope_ < 0.9  # a large cost is too certain
    whole = ProbabilisticSVC(C=30.0, gamma=1 / 3, eta0=0.02, kappa=0.0, scale="fixed")
    whole.fit(X, p, eta=spread)
    stretched = base + one.slope_ * (whole.decision_function(X) / whole.scale_ - base)
    assert np.mean(one.decision_function(X) - stretched) == pytest.approx(shift, abs=0.01)
    assert abs(shift) > 0.02


def test_what_is_said_of_everybody_follows_the_mean_label() -> None:
    """Labels of noise: the mean log-odds of a fold move with its base, one for one.

    Without the shift they moved by 1.2, and ranks across folds leaned against the truth.
    """
    moves = []
    for seed in range(6):
        rng = np.random.default_rng([5, seed])
        patient = np.arange(40).repeat(4)
        X = rng.normal(size=(160, 6))
        y = (rng.random(160) < 0.3).astype(float)
        means = []
        bases = []
        for fold in range(5):
            train = patient % 5 != fold
            learner = AveragedProbabilisticSVC().fit(X[train], y[train], groups=patient[train])
            means.append(learner.decision_function(X[~train]).mean())
            bases.append(logit(y[train].mean()))
        moves.append(np.polyfit(bases, means, 1)[0])
    assert abs(np.mean(moves) - 1) < 0.15


def test_nothing_left_out_leaves_the_members_their_prior() -> None:
    X, p, spread, patient = cohort()
    one = AveragedProbabilisticSVC(C=3.0, gamma=0.3, eta0=0.05, kappa=0.5, scaling="given")
    one.fit(X, p, eta=spread, groups=patient)
    nothing = np.full((len(p), 1), np.nan)
    assert one._stacked(nothing, p, np.ones(len(p)), towards=1.0) == 1.0


def test_labels_against_the_signal_turn_no_ranks_over() -> None:
    """Twins of opposite label: who is left out is predicted to be as the other."""
    rng = np.random.default_rng(2)
    X = np.repeat(rng.normal(size=(60, 4)), 2, axis=0) + rng.normal(0, 0.01, (120, 4))
    fitted = AveragedProbabilisticSVC(C=30.0, gamma=1.0).fit(X, np.arange(120) % 2 * 1.0)
    assert fitted.slope_ == 0.1


@pytest.mark.parametrize("kind", [AveragedProbabilisticSVC, ProbabilisticSVC])
def test_rows_unlike_the_training_are_named_once_a_call(kind: type) -> None:
    X, p, spread, _ = cohort(120)
    X = pd.DataFrame(1000 + 150 * X, columns=["adc", "t2", "ktrans"])
    settings = {"C": 1.0, "gamma": 0.3, "eta0": 0.05}
    fitted = kind(**settings).fit(X, p, eta=spread)
    new = pd.DataFrame(1000 + 150 * cohort(72, seed=1)[0], columns=X.columns)
    fitted.predict_proba(new)  # the suite turns a warning into an error
    with pytest.warns(RangeWarning, match="adc: the mean of 72 rows is") as caught:
        fitted.predict_proba(new.assign(adc=1.3 * new["adc"]))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "t2" not in str(caught[0].message)
    with pytest.warns(RangeWarning, match=r"ktrans: 1 of 1 rows lie outside the training's range$"):
        fitted.predict_proba(new[:1] * 5)


def test_means_are_judged_by_four_standard_errors_of_sixths() -> None:
    """By hand: 24 rows against 96 are 4 against 16, one error is sqrt(1/4 + 1/16) = .559."""
    trained = training_range(np.tile([[-1.0], [1.0]], (48, 1)))
    near, far = (np.tile([[m - 0.5], [m + 0.5]], (12, 1)) for m in (2.2, 2.3))
    assert outside(near * 0.99, trained, 96, ["c"]) == []
    assert outside(far, trained, 96, ["c"])[0] == (
        "c: the mean of 24 rows is 2.3, the training's 0 ± 1"
    )


def test_weights_by_hand_and_in_the_limit() -> None:
    """Two patients: a resample draws (d, 1 - d) with d uniform; E of the softmax by quadrature."""
    sums = np.array([[0.0, 1.0], [0.5, 0.0], [np.inf, 0.0]])
    d = (np.arange(20000) + 0.5) / 20000
    first, second = np.exp(-2 * (1 - d)), np.exp(-2 * 0.5 * d)
    expected = np.mean(first / (first + second))
    found = _pseudo_bma(sums, 0.0)
    assert found[0] == pytest.approx(expected, abs=0.03)  # 200 draws
    assert found[2] == 0
    assert found.sum() == pytest.approx(1)
    np.testing.assert_array_equal(_pseudo_bma(np.array([[0.0] * 9, [50.0] * 9]), 0.01), [1, 0])


@pytest.mark.filterwarnings("ignore:every certain label")
def test_a_patient_stays_whole_and_the_loss_shown_is_the_inner_one() -> None:
    X, p, spread, patient = cohort()
    one = AveragedProbabilisticSVC(C=3.0, gamma=0.3, eta0=0.05, kappa=0.5, scaling="given")
    one.fit(X, p, eta=spread, groups=patient)
    q = np.zeros(len(p))
    for train, test in GroupKFold(5).split(X, groups=patient):
        peer = ProbabilisticSVC(C=3.0, gamma=0.1, eta0=0.05, kappa=0.5, scale="fixed")
        q[test] = peer.fit(X[train], p[train], eta=spread[train]).predict_proba(X[test])[:, 1]
    loss = -np.mean(p * np.log(q) + (1 - p) * np.log(1 - q))
    assert one.points_[0]["cross_entropy"] == pytest.approx(loss, abs=1e-4)


def test_binary_votes_of_seven_readers_are_no_obstacle() -> None:
    """One who dissents makes a spread of .38: every interval contains 1/2 at kappa = 1."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    votes = rng.random((40, 7)) < 1 / (1 + np.exp(-3 * X[:, :1]))
    p, spread = votes.mean(axis=1), votes.std(axis=1, ddof=1)
    fitted = AveragedProbabilisticSVC(kappa=1.0).fit(X, p, eta=spread)
    assert np.corrcoef(fitted.predict_proba(X)[:, 1], p)[0, 1] > 0.7


def test_a_repeated_fit_is_the_same_to_the_bit() -> None:
    X, p, spread, patient = cohort()
    one, two = (AveragedProbabilisticSVC().fit(X, p, eta=spread, groups=patient) for _ in range(2))
    assert one.dual_coef_.tobytes() == two.dual_coef_.tobytes()


def test_a_second_fit_forgets_the_first() -> None:
    X, p, spread, patient = cohort()
    once, twice = AveragedProbabilisticSVC(), AveragedProbabilisticSVC()
    twice.fit(3 * X[::-1], p, eta=spread).decision_function(X)
    said = [one.fit(X, p, eta=spread, groups=patient).decision_function(X) for one in (once, twice)]
    assert said[0].tobytes() == said[1].tobytes()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"eta0": (0.02, 0.5)}, r"eta0 = .*must lie in \(0, 0\.5\)"),
        ({"eta0": 0.0}, "eta0 = 0.0"),
        ({"kappa": -1.0}, r"kappa = -1\.0, must lie in \[0"),
        ({"C": ()}, "C = "),
        ({"scaling": "log"}, "scaling = 'log': known are rank"),
        ({"boundary": "x"}, "boundary rule 'x'"),
    ],
)
def test_settings_out_of_range_are_refused(params: dict[str, object], message: str) -> None:
    X, p, _, _ = cohort(20)
    with pytest.raises(LearnerError, match=message):
        AveragedProbabilisticSVC(**params).fit(X, p)


def test_what_cannot_be_weighed_is_refused() -> None:
    X, p, _, _ = cohort(20)
    with pytest.raises(LearnerError, match="two patients or more"):
        AveragedProbabilisticSVC().fit(X, p, groups=np.zeros(20))
    with pytest.raises(LearnerError, match="one class only"):
        AveragedProbabilisticSVC().fit(X, np.ones(20) * 0.0 + (np.arange(20) < 0))
