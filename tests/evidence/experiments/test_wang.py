"""[W14]: encoding, folds, areas, the eight methods against the estimators, printed numbers."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from sklearn.metrics import roc_auc_score

from cad.base.errors import CadError
from cad.evidence.experiments import Options, run_experiment
from cad.evidence.experiments.uci import DataSet, draw_rows, encode, read_sets
from cad.evidence.experiments.wang2014 import (
    METHODS,
    PUBLISHED,
    PUBLISHED_MEAN,
    Split,
    aucs,
    compare_losses,
    measure_rankers,
)
from cad.learning.learners.ranking.svmroc import SSLROC, SVMROC


@pytest.fixture(scope="module")
def split() -> Split:
    rng = np.random.default_rng(0)
    y = (np.arange(40) % 2).astype(float)
    X = rng.normal(size=(40, 4)) + 0.8 * y[:, None]
    gamma = 0.5 / float(np.percentile(pdist(X), 90)) ** 2
    return Split(X[:20], y[:20], X[20:], gamma)


def test_encoding_leaks_nothing_from_test_rows() -> None:
    X = pd.DataFrame({"a": [1.0, np.nan, 3.0, 5.0, 9.0], "b": ["x", "y", "x", None, "z"]})
    train = np.arange(4)
    first = encode(X, train)
    changed = X.copy()
    changed.loc[4] = [1e6, "never seen"]
    second = encode(changed, train)
    np.testing.assert_array_equal(first[train], second[train])
    assert first.shape == second.shape == (5, 3)  # a, b = x, b = y
    np.testing.assert_allclose(first[train].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(first[1, 0], 0.0, atol=1e-12)  # median 3 of 1, 3, 5 is their mean


def test_drawn_rows_are_at_most_a_hundred_with_both_classes() -> None:
    y = np.zeros(500)
    y[:12] = 1
    data = DataSet("s", pd.DataFrame({"a": np.arange(500.0)}), y)
    drawn = draw_rows(data, 0)
    assert len(drawn.y) == 100
    assert drawn.y.sum() >= 4
    assert len(set(drawn.X["a"])) == 100
    assert draw_rows(drawn, 1) is drawn


def test_areas_are_those_of_scikit_learn_with_ties() -> None:
    rng = np.random.default_rng(2)
    y = rng.permutation(np.arange(30) % 2).astype(float)
    scores = np.round(rng.normal(size=(5, 30)), 1)
    expected = [roc_auc_score(y, row) for row in scores]
    np.testing.assert_allclose(aucs(y, scores), expected, atol=1e-12)
    assert aucs(y, np.full((1, 30), np.nan)).tolist() == [0.5]


def test_shared_factors_give_what_the_estimators_give(split: Split) -> None:
    y_test = (np.arange(20) % 2).astype(float)
    K, K_test = split.kernel(split.X, split.X), split.kernel(split.X_test, split.X)
    every, scores = METHODS["SVMROC"]
    grid = every[2:5]
    mine = scores(split, grid)
    theirs = [SVMROC(C=p["C"], kernel="precomputed", platt_folds=0).fit(K, split.y) for p in grid]
    expected = np.array([m.decision_function(K_test) for m in theirs])
    np.testing.assert_allclose(aucs(y_test, mine), aucs(y_test, expected), atol=1e-12)
    X, labels = split.both
    K = split.kernel(X, X)
    for norm in (1, 2):
        every, scores = METHODS[f"SSLROC{norm}"]
        grid = every[4:8]
        mine = scores(split, grid)
        for row, p in zip(mine, grid, strict=True):
            model = SSLROC(C=p["C"], M=p["M"], norm=norm, kernel="precomputed", platt_folds=0)
            expected = model.fit(K, labels).decision_function(K[20:])
            shift = (row - expected).mean()  # Platt's threshold
            np.testing.assert_allclose(row - shift, expected, atol=1e-4 * np.ptp(expected) + 1e-9)


@pytest.mark.parametrize("method", list(METHODS))
def test_test_labels_and_order_do_not_matter(split: Split, method: str) -> None:
    """No method can see a test label; its scores follow the test rows wherever they stand."""
    grid, scores = METHODS[method]
    points = [grid[0], grid[len(grid) // 2], grid[-1]]
    order = np.random.default_rng(1).permutation(20)
    turned = Split(split.X, split.y, split.X_test[order], split.gamma)
    one, other = (scores(s, points) for s in (split, turned))
    assert one.shape == (3, 20)
    y = (np.arange(20) % 2).astype(float)
    np.testing.assert_allclose(aucs(y, one), aucs(y[order], other), atol=1e-9)


def test_rotation_keeps_inner_products() -> None:
    rng = np.random.default_rng(0)
    wide = Split(rng.normal(size=(6, 50)), np.arange(6) % 2.0, rng.normal(size=(4, 50)), 1.0)
    turned = wide.rotated
    assert turned.X.shape == (6, 10)
    np.testing.assert_allclose(turned.X @ turned.X_test.T, wide.X @ wide.X_test.T, atol=1e-9)


def test_published_sets_have_the_published_means() -> None:
    assert len(PUBLISHED) == 34
    means = np.mean(list(PUBLISHED.values()), axis=0)
    np.testing.assert_allclose(means, PUBLISHED_MEAN, atol=0.0011)


def test_flaws_never_lower_an_area() -> None:
    rng = np.random.default_rng(3)
    y = rng.permutation(np.arange(40) % 2).astype(float)
    data = DataSet("noise", pd.DataFrame(rng.normal(size=(40, 3)), columns=list("abc")), y)
    names = ("SVM", "RankBoost")
    flawed = measure_rankers(data, True, 2, names)
    honest = measure_rankers(data, False, 2, names)
    for name in names:
        assert min(flawed[name]["auc"]) >= 0.5  # flipped
        assert np.mean(flawed[name]["auc"]) > np.mean(honest[name]["auc"])
        assert len(honest[name]["chosen"]) == 4
        assert "grid" not in honest[name]


@pytest.mark.reference
def test_the_comparison_resumes(shared_data, tmp_path) -> None:
    options = Options(tmp_path, shared_data / "uci", repeats=1, datasets=("Kidney_inflam",))
    first = run_experiment("wang2014-uci", options).read_text()
    kept = sorted((tmp_path / "wang2014-uci").glob("*.json"))
    assert [path.stem.split("-")[1] for path in kept] == ["draws", "honest", "with_flaws"]
    assert "| Kidney_inflam |" in first
    record = json.loads(kept[1].read_text())
    assert min(np.mean(m["auc"]) for m in record["methods"].values()) > 0.95  # published: 1.0
    before = [path.stat().st_mtime_ns for path in kept]
    assert run_experiment("wang2014-uci", options).read_text() == first
    assert [path.stat().st_mtime_ns for path in kept] == before


@pytest.mark.reference
def test_leaking_columns_go(shared_data) -> None:
    for name, columns in (("Cardio", {"survival", "still_alive"}), ("Bupaliver", {"selector"})):
        kept = read_sets(shared_data / "uci", (name,), leaking=True)[0]
        honest = read_sets(shared_data / "uci", (name,), leaking=False)[0]
        gone = set(kept.X.columns) - set(honest.X.columns)
        assert gone <= columns
        assert gone


def test_a_folder_without_manifest_is_refused(tmp_path) -> None:
    with pytest.raises(CadError, match="manifest"):
        run_experiment("wang2014-uci", Options(tmp_path, data=tmp_path))


def test_batches_of_patients_are_new_in_turn(tmp_path, monkeypatch) -> None:
    names = ("SVM", "RankBoost", "SSLROC1", "SSLROC2")
    few = {name: METHODS[name] for name in names}
    monkeypatch.setattr("cad.evidence.experiments.wang2014.METHODS", few)
    rng = np.random.default_rng(0)
    y = (np.arange(48) % 2).astype(float)
    y[5] = np.nan
    X = pd.DataFrame(
        rng.normal(size=(48, 3)) + 2.0 * np.nan_to_num(y)[:, None], columns=list("abc")
    )
    patients = np.repeat([f"p{i}" for i in range(12)], 4)
    result = compare_losses(X, y, patients, Options(tmp_path, repeats=3))
    table = result.tables["AUC of the eight methods"]
    assert table["method"].tolist() == list(names)
    assert (table["AUC"] > 0.85).all()
    assert (table["AUC"] <= table["best of the grid on the tested batches"] + 1e-12).all()
    assert "47 regions" in result.setup
    assert len(result.figures) == 2
