"""Ranks that no outlier stretches and that keep ties together; clipped standard scores."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cad.base.settings import PipelineSettings, parse_settings
from cad.learners import AveragedProbabilisticSVC, ProbabilisticEnsemble
from cad.learning.learners.scaling import RANK_QUANTILES, ClippedScaler, RankScaler
from cad.run.model.estimator import front_steps
from cad.run.model.explanation import explain
from cad.run.model.state import dump_state, load_state


def front(scaling: str) -> Pipeline:
    """Return the steps of a pipeline with a scaling."""
    settings = {"name": "x", "learner": {"scaling": scaling}}
    return front_steps(parse_settings(PipelineSettings, settings))


def sample(n: int = 80) -> np.ndarray:
    """Return two skewed features with a gap."""
    X = np.exp(np.random.default_rng(0).normal(size=(n, 2)))
    X[3, 1] = np.nan
    return X


@parametrize_with_checks([RankScaler(), ClippedScaler()])
def test_scikit_learn_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def test_without_ties_ranks_are_scikit_learns_read_off_the_same_quantiles() -> None:
    X = sample()[:, :1]
    peer = QuantileTransformer(n_quantiles=RANK_QUANTILES, subsample=None)
    expected = StandardScaler().fit_transform(peer.fit_transform(X))
    np.testing.assert_allclose(RankScaler().fit_transform(X), expected, atol=1e-9)


def test_a_block_of_ties_has_the_middle_of_its_ranks() -> None:
    """Every value a quantile: the rank is that of rankdata, whose ties share their mean."""
    column = np.array([0.0] * 8 + [1.0] * 4 + list(range(2, 11)))
    scaler = RankScaler().fit(column[:, None])
    assert len(column) == RANK_QUANTILES
    np.testing.assert_allclose(scaler.ranks_[:, 0], (rankdata(column) - 1) / 20, atol=1e-12)


ODD = {
    "zeros": np.r_[np.zeros(80), np.geomspace(0.5, 50, 20)],
    "saturated": np.r_[np.linspace(0, 0.9, 21), np.ones(79)],
    "two values": np.r_[np.zeros(80), np.ones(20)],
    "rounding": np.r_[0.3 + 1e-16 * np.arange(80), np.linspace(0.5, 2, 20)],
    "constant": np.full(100, 7.0),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("scaler", [RankScaler(), ClippedScaler()], ids=["rank", "clipped"])
def test_what_differs_by_a_hair_ends_a_hair_apart(kind: str, scaler: RankScaler) -> None:
    """scikit-learn's ranks put 80 zeros at 40 % and whatever is above zero at 80 %."""
    column = ODD[kind]
    scaler.fit(column[:, None])
    hair = 1e-6
    at, above, below = (
        scaler.transform(np.unique(column)[:, None] + step)[:, 0] for step in (0.0, hair, -hair)
    )
    assert np.abs(above - at).max() < 1e-3
    assert np.abs(below - at).max() < 1e-3
    assert (np.diff(at) >= 0).all()
    if kind != "constant":
        values = scaler.transform(column[:, None])
        assert values.mean() == pytest.approx(0, abs=1e-9)
        assert values.std() == pytest.approx(1)
        peer = QuantileTransformer(n_quantiles=RANK_QUANTILES, subsample=None)
        peer.fit(column[:, None])
        jump = np.ptp(peer.transform([[column[0]], [column[0] + hair]]))
        assert kind not in ("zeros", "rounding") or jump > 0.3


def test_an_outlier_and_a_change_of_unit_move_no_other_region() -> None:
    X = sample()
    plain, far = front("rank").fit(X), X.copy()
    far[np.argmax(X[:, 0]), 0] = 1e9
    others = np.arange(len(X)) != np.argmax(X[:, 0])
    # Only the highest twentieth is stretched by it; standardised values change for everybody.
    moved = np.abs(front("rank").fit(far).transform(X) - plain.transform(X))[others, 0]
    assert moved.max() < 0.2
    stretched = front("standard").fit(far).transform(X) - front("standard").fit(X).transform(X)
    assert np.abs(stretched)[others, 0].max() > 1
    new = np.array([[1e9, 1.0], [X[:, 0].max(), 1.0]])
    first, second = plain.transform(new)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(
        front("rank").fit(1000 * X).transform(1000 * X), plain.transform(X), atol=1e-9
    )


@pytest.mark.parametrize("kind", [AveragedProbabilisticSVC, ProbabilisticEnsemble])
def test_a_model_that_weighs_scalings_survives_the_disk_and_explains(kind: type) -> None:
    X = sample()
    p = np.clip(np.nan_to_num(X[:, 0]) / 3, 0, 1).round(2)
    model = Pipeline([*front("standard").steps, ("learner", kind())]).fit(X, p)
    structure, arrays = dump_state(model)
    assert not any("_supports" in name for name in arrays)
    assert all(array.dtype != object for array in arrays.values())
    again = load_state(json.loads(json.dumps(structure)), arrays)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    first = explain(again, X, X[:3], ["a", "b"])
    assert [rows[0]["feature"] for rows in first] == ["a"] * 3
    # A feature's part is the change against the median, the other kept.
    other = np.array([[np.nanmedian(X[:, 0]), X[0, 1]]])
    change = model.decision_function(X[:1]) - model.decision_function(other)
    assert first[0][0]["delta"] == pytest.approx(float(change[0]))


def test_fewer_regions_than_quantiles_still_rank() -> None:
    X = sample(12)
    found = front("rank").fit_transform(X)
    np.testing.assert_array_equal(np.argsort(found[:, 0]), np.argsort(X[:, 0]))


def test_the_average_takes_the_scaling_that_the_data_have() -> None:
    """Zero-inflated columns are torn apart by their order alone; log-normal ones are not."""
    rng = np.random.default_rng(3)
    latent = rng.normal(size=(300, 3))
    for X, heavier in ((np.exp(3 * latent), "rank"), (np.clip(latent, -3, 3), None)):
        p = np.round(4 / (1 + np.exp(-2 * latent[:, 0]))) / 4
        fitted = AveragedProbabilisticSVC().fit(X, p, groups=np.arange(300) // 3)
        share = {"rank": 0.0, "clipped": 0.0}
        for point in fitted.points_:
            share[point["scaling"]] += point["weight"]
        assert sum(share.values()) == pytest.approx(1)
        assert heavier is None or share[heavier] > 0.9
