"""The rankers as scikit-learn estimators: checks, probabilities, bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from cad.learners import OPAUC, SSLROC, SVMROC, RankBoost, SSRankBoost, SVMLin
from cad.learning.learners.ranking.base import platt

ALL = [SVMROC, SSLROC, RankBoost, OPAUC, SVMLin, SSRankBoost]
SEMI = [SSLROC, SVMLin, SSRankBoost]
# Checks that do not apply, and why.
NOT_APPLICABLE = {
    "check_classifiers_classes": (SEMI, "its labels are -1 and 1, and -1 means unlabelled"),
    "check_sample_weight_equivalence_on_dense_data": (
        [OPAUC],
        "one pass over the rows depends on their order, which the check changes",
    ),
}
FAST = {SVMROC: {"tol": 1e-10}, SSLROC: {"tol": 1e-10}}


@pytest.mark.parametrize("kind", ALL)
def test_scikit_learn_checks(kind):
    estimator = kind(platt_folds=0, **FAST.get(kind, {}))
    for checked, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        kinds, _ = NOT_APPLICABLE.get(name, ([], ""))
        if kind in kinds:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(checked)


def rows(seed=0, n=40):
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return random.normal(size=(n, 3)) + 0.8 * y[:, None], y


@pytest.mark.parametrize("kind", ALL)
def test_probabilities_decisions_and_classes_agree(kind):
    X, y = rows()
    learner = kind().fit(X, np.where(y == 1, "malignant", "benign"))
    f, p = learner.decision_function(X), learner.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (np.argsort(f) == np.argsort(p[:, 1])).all()
    assert ((f > 0) == (p[:, 1] > 0.5)).all()
    assert (learner.predict(X) == np.where(f > 0, "malignant", "benign")).all()
    again = clone(learner).fit(X, np.where(y == 1, "malignant", "benign"))
    assert again.predict_proba(X).tobytes() == p.tobytes()


def test_out_of_fold_probabilities_are_less_sure_than_training_ones():
    X, y = rows(1)
    y = np.random.default_rng(3).permutation(y)
    sure = RankBoost(platt_folds=0).fit(X, y).predict_proba(X)[:, 1]
    honest = RankBoost(platt_folds=5).fit(X, y).predict_proba(X)[:, 1]
    assert np.std(honest) < np.std(sure)


def test_patients_stay_together_in_the_calibration():
    X, y = rows(2)
    groups = np.repeat(np.arange(20), 2)
    learner = RankBoost().fit(X, y, groups=groups)
    plain = RankBoost().fit(X, y)
    assert learner.platt_slope_ != plain.platt_slope_
    np.testing.assert_array_equal(learner.alphas_, plain.alphas_)


@pytest.mark.parametrize("kind", ALL)
def test_readers_probabilities_are_thresholded(kind):
    X, y = rows(3)
    soft = np.where(y == 1, 0.75, 0.25)
    soft[0] = 0.5  # a tie counts as negative
    hard = kind(platt_folds=0).fit(X, (soft > 0.5).astype(int))
    read = kind(platt_folds=0).fit(X, soft, eta=0.125)
    np.testing.assert_array_equal(hard.decision_function(X), read.decision_function(X))


def test_platt_by_hand():
    # Two values, equally often right: slope and threshold reproduce the regularised targets.
    scores, sign = np.array([2.0, 2.0, -1.0, -1.0]), np.array([1.0, 1.0, -1.0, -1.0])
    slope, threshold = platt(scores, sign, np.ones(4))
    assert 1 / (1 + np.exp(-slope * (2 - threshold))) == pytest.approx(0.75, abs=1e-8)
    assert threshold == pytest.approx(0.5, abs=1e-7)
    slope, _ = platt(-scores, sign, np.ones(4))
    assert slope > 0


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("one class", "one class only"),
        ("three", "Only binary classification is supported"),
        ("nan", "NaN"),
        ("inf", "infinity"),
        ("length", "inconsistent numbers of samples"),
        ("weights", "one class only"),
        ("folds", "platt_folds = 1"),
    ],
)
def test_bad_data_is_refused_with_its_rule(kind, change, message):
    X, y = rows(4)
    weight = None
    params = {}
    if change == "one class":
        y = np.ones(40, dtype=int)
    elif change == "three":
        y = np.arange(40) % 3
    elif change == "nan":
        X[3, 1] = np.nan
    elif change == "inf":
        X[3, 1] = np.inf
    elif change == "length":
        y = y[:-1]
    elif change == "weights":
        weight = y.astype(float)
    elif change == "folds":
        params = {"platt_folds": 1}
    with pytest.raises(ValueError, match=message):
        kind(**params).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("kind", SEMI)
def test_unlabelled_only_and_one_class_beside_unlabelled(kind):
    X, y = rows(5)
    with pytest.raises(ValueError, match=r"all 40 rows are unlabelled .*label at least one"):
        kind().fit(X, np.full(40, -1))
    with pytest.raises(ValueError, match="one class only"):
        kind().fit(X, np.where(y == 1, 1, -1))


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (SVMROC(C=0.0), "C = 0.0, must be a finite number > 0"),
        (SVMROC(C=-1), "C = -1, must be"),
        (SSLROC(C=np.nan), "C = nan"),
        (SSLROC(M=0), "M = 0, must be"),
        (SVMROC(norm=3), "norm = 3, must be one of 1, 2"),
        (SVMROC(kernel="sigmoid"), "kernel 'sigmoid' is unknown"),
        (SVMROC(gamma=-1.0), "gamma = -1.0"),
        (SVMROC(solver="sedumi"), "solver = 'sedumi'"),
        (RankBoost(n_rounds=0), "n_rounds = 0, must be an integer >= 1"),
        (OPAUC(eta=0), "eta = 0, must be"),
        (OPAUC(lambda_=-1), "lambda_ = -1, must be"),
        (SVMLin(lambda_=0), "lambda_ = 0"),
        (SVMLin(lambda_u=0), "lambda_u = 0"),
        (SVMLin(method="svm"), "method = 'svm'"),
        (SVMLin(positive_fraction=1.0), "positive_fraction = 1.0"),
        (SSRankBoost(discount=1.2), "discount = 1.2, must lie in"),
        (SSRankBoost(k=0), "k = 0, must be"),
    ],
)
def test_bad_parameters_are_refused_with_value_and_rule(learner, message):
    with pytest.raises(ValueError, match=message):
        learner.fit(*rows(6))


def test_wrong_precomputed_kernels():
    X, y = rows(7)
    K = X @ X.T
    with pytest.raises(ValueError, match="must be a square matrix"):
        SVMROC(kernel="precomputed").fit(K[:, :-1], y)
    skew = K.copy()
    skew[0, 1] += 1
    with pytest.raises(ValueError, match="not symmetric"):
        SVMROC(kernel="precomputed").fit(skew, y)
    with pytest.raises(ValueError, match="not positive semi-definite: eigenvalue"):
        SVMROC(kernel="precomputed").fit(K - 5 * np.eye(40), y)


@pytest.mark.parametrize("kind", ALL)
def test_two_rows_and_contradictory_labels(kind):
    assert kind().fit([[0.0], [1.0]], [0, 1]).predict([[0.0], [1.0]]).tolist() == [0, 1]
    p = kind().fit(np.zeros((4, 1)), [0, 1, 0, 1]).predict_proba(np.zeros((4, 1)))
    np.testing.assert_allclose(p, 0.5, atol=1e-6)
