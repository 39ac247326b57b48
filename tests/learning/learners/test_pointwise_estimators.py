"""Pointwise learners as scikit-learn estimators: the checks, identities, and what they refuse."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from cad.learners import (
    FuzzySVC,
    KernelLogistic,
    LogitSVR,
    PlattSVC,
    ProbabilisticSVC,
    RejectSVC,
    SoftPlattSVC,
)
from cad.learning.learners.base import LearnerWarning
from cad.learning.learners.soft_labels import half_widths
from cad.learning.learners.solvers.problem import LearnerError

# A reject SVM answers with a third label where it declines, and -1, its default, may be no class.
DECLINES = dict.fromkeys(
    (
        "check_classifiers_classes",
        "check_classifiers_train",
    ),
    "predict may decline, and reject_label -1 must not be a class",
)


def expected_failures(estimator: object) -> dict[str, str]:
    return DECLINES if isinstance(estimator, RejectSVC) else {}


@parametrize_with_checks(
    [
        ProbabilisticSVC(),
        PlattSVC(),
        FuzzySVC(),
        RejectSVC(),
        KernelLogistic(),
        LogitSVR(),
        SoftPlattSVC(),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def cohort(n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features and the mean of four readers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    latent = 1 / (1 + np.exp(-2 * X[:, 0]))
    scores = np.clip(latent[:, None] + rng.normal(0, 0.1, (n, 4)), 0, 1)
    return X, (np.round(4 * scores) / 4).mean(axis=1)


def test_all_certain_is_the_svm_of_scikit_learn() -> None:
    X, p = cohort()
    y = p > 0.5
    peer = SVC(C=3, gamma=0.2, tol=1e-9).fit(X, y)
    for learner in (ProbabilisticSVC, PlattSVC, FuzzySVC):
        ours = learner(C=3, gamma=0.2).fit(X, y)
        np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=1e-6)


def test_class_swap_mirrors_the_decision() -> None:
    X, p = cohort()
    keep = p != 0.5
    X, p = X[keep], p[keep]
    one = ProbabilisticSVC(C=5).fit(X, p)
    two = ProbabilisticSVC(C=5).fit(X, 1 - p)
    np.testing.assert_allclose(one.decision_function(X), -two.decision_function(X), atol=1e-6)
    assert one.scale_ == pytest.approx(two.scale_, abs=1e-6)


def test_scaling_the_kernel_and_the_costs_changes_nothing_but_the_duals() -> None:
    X, p = cohort()
    K = X @ X.T + 1
    one = ProbabilisticSVC(C=5, kernel="precomputed").fit(K, p)
    two = ProbabilisticSVC(C=5 / 7, kernel="precomputed").fit(7 * K, p)
    np.testing.assert_allclose(one.decision_function(K), two.decision_function(7 * K), atol=1e-6)
    assert one.scale_ == pytest.approx(two.scale_, abs=1e-6)
    assert one.solution_.primal == pytest.approx(7 * two.solution_.primal, rel=1e-6)


def test_a_sample_twice_is_a_sample_of_twice_the_weight() -> None:
    X, p = cohort()
    weight = np.ones(len(p))
    weight[:20] = 2
    one = ProbabilisticSVC(C=2).fit(X, p, sample_weight=weight)
    two = ProbabilisticSVC(C=2).fit(np.vstack([X, X[:20]]), np.r_[p, p[:20]])
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), atol=1e-5)


def test_start_from_the_full_fit_gives_the_cold_answer() -> None:
    X, p = cohort()
    full = ProbabilisticSVC(C=100).fit(X, p)
    train = np.arange(8, len(p))
    cold = ProbabilisticSVC(C=100, gamma=0.3).fit(X[train], p[train])
    warm = ProbabilisticSVC(C=100, gamma=0.3)
    warm.fit(X[train], p[train], start=full.solution_.beta[train])
    assert warm.solution_.primal == pytest.approx(cold.solution_.primal, rel=1e-6)


def test_eta_travels_through_pipelines_and_cross_validation() -> None:
    X, p = cohort()
    eta = np.linspace(0.05, 0.2, len(p))
    with config_context(enable_metadata_routing=True):
        learner = ProbabilisticSVC(C=5).set_fit_request(eta=True)
        pipeline = make_pipeline(StandardScaler(), learner)
        routed = pipeline.fit(X, p, eta=eta).predict_proba(X)
        classes = cross_val_predict(pipeline, X, p, params={"eta": eta}, cv=4)
    direct = ProbabilisticSVC(C=5).fit(StandardScaler().fit_transform(X), p, eta=eta)
    np.testing.assert_allclose(
        routed, direct.predict_proba(StandardScaler().fit_transform(X)), rtol=1e-12
    )
    assert set(classes) == {0, 1}


def test_calibration_keeps_patients_together() -> None:
    X, p = cohort()
    y, patient = p > 0.5, np.arange(len(p)) // 4
    alone = PlattSVC(calibration_folds=4).fit(X, y, groups=patient)
    seen = PlattSVC().fit(X, y)
    assert alone.sigmoid_[0] != seen.sigmoid_[0]
    np.testing.assert_array_equal(alone.dual_coef_, seen.dual_coef_)


BAD: list[tuple[str, dict[str, Any], Any, Any, str]] = [
    ("y above 1", {}, [0, 0.4, 1.2, 0, 1, 1], None, r"1\.2 outside \[0, 1\]"),
    ("y of the wrong length", {}, [0, 1, 0], None, "inconsistent numbers"),
    ("y with NaN", {}, [0, 1, np.nan, 0.2, 0.3, 1], None, "NaN"),
    ("eta above 1", {}, [0, 1, 0.7, 0.2, 0.3, 1], [0.1, 0.1, 3, 0.1, 0.1, 0.1], r"eta\[2\] = "),
    ("eta of the wrong length", {}, [0, 1, 0.7, 0.2, 0.3, 1], [0.1, 0.1], "eta has shape"),
    ("one class", {}, [1, 1, 1, 1, 1, 1], None, "one class"),
    ("C = 0", {"C": 0}, [0, 1, 0.7, 0.2, 0.3, 1], None, "C = 0, must be"),
    ("no certain label", {}, [0.3, 0.4, 0.7, 0.2, 0.3, 0.6], None, "no certain label"),
    ("nothing said", {"eta": 0.1}, [0.5, 0.5, 0.5, 0.4, 0.5, 0.6], [1.0] * 6, "no sample says"),
    ("gamma < 0", {"gamma": -1.0}, [0, 1, 0.7, 0.2, 0.3, 1], None, "gamma = -1.0"),
    ("unknown kernel", {"kernel": "rbv"}, [0, 1, 0.7, 0.2, 0.3, 1], None, "rbv"),
    ("unknown solver", {"solver": "x"}, [0, 1, 0.7, 0.2, 0.3, 1], None, "solver 'x'"),
    ("unknown rule", {"boundary": "x"}, [0, 1, 0.7, 0.2, 0.3, 1], None, "boundary rule 'x'"),
    ("kernel not square", {"kernel": "precomputed"}, [0, 1, 0.7, 0.2, 0.3, 1], None, "square"),
]


@pytest.mark.parametrize(("name", "params", "y", "eta", "message"), BAD, ids=[b[0] for b in BAD])
def test_refusals_state_value_and_rule(
    name: str, params: dict[str, Any], y: Any, eta: Any, message: str
) -> None:
    X = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(ValueError, match=message):
        ProbabilisticSVC(**params).fit(X, np.array(y), eta=eta)


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.array([[1.0, 0.5], [0.1, 1.0]]), "not symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "not positive semi-definite: eigenvalue -1"),
    ],
)
def test_a_matrix_that_is_no_kernel_is_refused(K: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlattSVC(kernel="precomputed").fit(K, [0, 1])


def test_useless_reject_costs_are_refused() -> None:
    X, p = cohort()
    with pytest.raises(LearnerError, match="useless"):
        RejectSVC(costs=(1, 1, 0.6, 0.6)).fit(X, p > 0.5)
    with pytest.raises(LearnerError, match="is one of the classes"):
        RejectSVC().fit(X, np.where(p > 0.5, 1, -1))


def test_a_collapsed_scale_is_an_error_with_the_violated_share() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    p = rng.uniform(0.2, 0.8, 60)
    p[:6] = [0, 1, 0, 1, 0, 1]
    with pytest.raises(LearnerError, match=r"collapsed to .* soft intervals are violated"):
        ProbabilisticSVC(kernel="linear", eta=0.01).fit(X, p)


def test_intervals_that_all_contain_one_half_are_narrowed_and_it_is_said() -> None:
    """Seven binary readers: one who dissents makes a spread of .378, wider than 1/7 from 1/2."""
    votes = np.array([[j < k for j in range(7)] for k in (0, 0, 1, 2, 3, 4, 5, 6, 7, 7)], float)
    p, eta = votes.mean(axis=1), votes.std(axis=1, ddof=1)
    X = np.arange(10.0)[:, None] + np.array([0, 0.3] * 5)[:, None]
    with pytest.warns(LearnerWarning, match=r"learned from narrower ones, kappa = 0\.5"):
        machine = ProbabilisticSVC(C=10.0, eta0=0.02).fit(X, p, eta=eta)
    assert machine.kappa_ == 0.5
    assert machine.solution_.converged
    assert machine.label_counts_["certain_positive"] == 2
    same = ProbabilisticSVC(C=10.0, eta0=0.02, kappa=0.5).fit(X, p, eta=eta)
    np.testing.assert_array_equal(same.dual_coef_, machine.dual_coef_)
    with pytest.warns(LearnerWarning, match="at any kappa: the scale cannot be learned"):
        held = ProbabilisticSVC().fit(X[:6], np.array([0, 1, 0.51, 0.5, 0.5, 0.5]))
    assert held.scale_ == pytest.approx(1 / np.log(7))


def test_one_number_and_an_array_of_it_are_the_same_model() -> None:
    X, p = cohort()
    for scale in ("learned", "fixed"):
        one = ProbabilisticSVC(scale=scale).fit(X, p, eta=0.03)
        many = ProbabilisticSVC(scale=scale).fit(X, p, eta=np.full(len(p), 0.03))
        assert one.solution_.gamma.tobytes() == many.solution_.gamma.tobytes()
        assert one.label_counts_ == many.label_counts_
        assert one.scale_ == many.scale_
    # eta_0 is its own number: it moves the edge of certainty, the argument of fit does not.
    at = [ProbabilisticSVC(eta0=e).fit(X, p, eta=0.03).label_counts_ for e in (0.03, 0.125)]
    certain = [c["certain_negative"] + c["certain_positive"] for c in at]
    assert certain[0] == ((p <= 0.03 + 1e-9) | (p >= 0.97 - 1e-9)).sum()
    assert certain[1] == ((p <= 0.125 + 1e-9) | (p >= 0.875 - 1e-9)).sum() > certain[0]


def test_widths_by_hand() -> None:
    """max(eta_0, kappa spread), below one half: .25 of .2 is under .06, half of .8 is .4."""
    np.testing.assert_allclose(half_widths([0.2, 0.8], 0.06, 0.25), [0.06, 0.2])
    np.testing.assert_allclose(half_widths([0.2, 1.2], 0.06, 0.5), [0.1, 0.5], atol=2e-6)
    np.testing.assert_allclose(half_widths([0.2, 0.8], 0.06, 0.0), [0.06, 0.06])


def test_useless_but_right_fits_warn() -> None:
    p = np.array([0.0, 0.0, 0.7, 0.8, 0.3, 0.75])
    with pytest.warns(LearnerWarning, match="every certain label is negative"):
        ProbabilisticSVC(scale="fixed").fit(np.arange(6.0)[:, None], p)
    y = np.array([0, 1, 0, 1, 0, 1])
    with pytest.warns(LearnerWarning, match="constant"):
        ProbabilisticSVC().fit(np.zeros((6, 2)), y)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_labels_give_a_verified_solution_or_a_reason(data: st.DataObject) -> None:
    """Any p, eta, weights, duplicates, constant features, tiny and huge C, n = 2 on."""
    n = data.draw(st.integers(2, 16))
    unit = st.sampled_from([0.0, 0.05, 0.125, 0.25, 0.4, 0.5, 0.51, 0.75, 0.9, 1.0])
    p = np.array(data.draw(st.lists(unit, min_size=n, max_size=n)))
    eta = np.array(data.draw(st.lists(unit, min_size=n, max_size=n)))
    value = st.integers(-3, 3)
    X = np.array(data.draw(st.lists(st.tuples(value, value), min_size=n, max_size=n)), float)
    weight = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), float)
    weight[0] = max(weight[0], 1.0)
    C = data.draw(st.sampled_from([1e-4, 1.0, 100.0, 2.0**13]))
    scale = data.draw(st.sampled_from(["learned", "fixed"]))
    kernel = data.draw(st.sampled_from(["rbf", "linear"]))
    learner = ProbabilisticSVC(C=C, scale=scale, kernel=kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LearnerWarning)
        try:
            learner.fit(X, p, eta=eta, sample_weight=weight)
        except LearnerError:
            return
    assert learner.solution_.converged
    assert np.isfinite(learner.predict_proba(X)).all()


@pytest.mark.parametrize("scale", ["fixed", "learned"])
def test_a_linear_kernel_takes_features_of_a_hundred_million(scale: str) -> None:
    """C / a^2 with features a x is the problem of C and x."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    p = np.round(1 / (1 + np.exp(-2 * X[:, 0])), 2)
    one, large = (
        ProbabilisticSVC(kernel="linear", scale=scale, C=1 / a**2, eta0=0.05).fit(a * X, p)
        for a in (1.0, 1e8)
    )
    assert large.solution_.converged
    np.testing.assert_allclose(large.predict_proba(1e8 * X), one.predict_proba(X), atol=1e-4)


def test_features_of_unlike_scale_are_warned_of_by_name() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"adc": 1000 * rng.normal(size=40), "ktrans": rng.normal(size=40) / 10})
    p = np.clip(0.5 + X["ktrans"].to_numpy(), 0, 1)
    with pytest.warns(LearnerWarning, match=r"adc has a standard .*, ktrans of .*default_learner"):
        ProbabilisticSVC(scale="fixed").fit(X, p)
    # Scaled, of one kernel matrix, or beside a constant: nothing to say.
    ProbabilisticSVC(scale="fixed").fit(X / X.std(), p)
    ProbabilisticSVC(scale="fixed").fit((X[["ktrans"]] * 10).assign(constant=1.0), p)
    kernel = np.exp(-np.square(p[:, None] - p)) + np.diag(np.linspace(0, 100, 40))
    ProbabilisticSVC(scale="fixed", kernel="precomputed").fit(kernel, p)
