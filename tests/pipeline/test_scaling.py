"""What stands before a learner: ranks that no outlier stretches, read off 21 quantiles."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from cad.learners import AveragedProbabilisticSVC
from cad.model.estimator import RANK_QUANTILES, front_steps
from cad.model.state import dump_state, load_state
from cad.settings import PipelineSettings, parse_settings


def front(scaling: str) -> Pipeline:
    """Return the steps of a pipeline with a scaling."""
    settings = {"name": "x", "learner": {"scaling": scaling}}
    return front_steps(parse_settings(PipelineSettings, settings))


def sample(n: int = 80) -> np.ndarray:
    """Return two skewed features with a gap."""
    X = np.exp(np.random.default_rng(0).normal(size=(n, 2)))
    X[3, 1] = np.nan
    return X


def test_ranks_are_interpolated_between_quantiles_and_standardised() -> None:
    X = sample()
    found = front("rank").fit_transform(X)
    for j in range(2):
        column = np.where(np.isnan(X[:, j]), np.nanmedian(X[:, j]), X[:, j])
        landmarks = np.quantile(column, np.linspace(0, 1, RANK_QUANTILES))
        rank = np.interp(column, landmarks, np.linspace(0, 1, RANK_QUANTILES))
        np.testing.assert_allclose(found[:, j], (rank - rank.mean()) / rank.std(), atol=1e-9)


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


def test_a_model_on_ranks_survives_the_disk() -> None:
    X = sample()
    p = np.clip(np.nan_to_num(X[:, 0]) / 3, 0, 1).round(2)
    model = Pipeline([*front("rank").steps, ("learner", AveragedProbabilisticSVC())]).fit(X, p)
    structure, arrays = dump_state(model)
    again = load_state(json.loads(json.dumps(structure)), arrays)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_fewer_regions_than_quantiles_say_so_and_still_rank() -> None:
    X = sample(12)
    with pytest.warns(UserWarning, match="n_quantiles"):
        found = front("rank").fit_transform(X)
    np.testing.assert_array_equal(np.argsort(found[:, 0]), np.argsort(X[:, 0]))
