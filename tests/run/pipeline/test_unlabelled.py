"""Regions that nobody read: semi-supervised learners see them, and everybody is told how many."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.learners import SSLROC, SVMROC, ProbabilisticSVC, SSRankBoost, SVMLin
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.folds.nested import PatientGridSearch
from cad.learning.evaluation.folds.unlabelled import SemiSupervisedPipeline
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle, verify_bundle
from cad.run.pipeline import predict_cohort, train_model

SEMI = {"SSLROC": {}, "SVMLin": {}, "SSRankBoost": {"n_rounds": 5}}
PIPELINE = """
name: semi
features: {{families: [intensity], texture: {{bins: 16}}}}
learner: {{name: {name}, params: {params}}}
validate: {{bootstraps: 50}}
"""


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forty rows of ten patients, four features; a third without a label (NaN), soft otherwise."""
    rng = np.random.default_rng(0)
    X = 3.0 + rng.standard_normal((40, 4))
    y = np.clip(0.5 + 0.4 * (X[:, 0] - 3.0) + 0.1 * rng.standard_normal(40), 0, 1)
    y[::3] = np.nan
    return X, y, np.repeat(np.arange(10), 4)


def test_the_front_sees_labelled_rows_only(rows) -> None:
    X, y, _ = rows
    told = np.nan_to_num(y, nan=-1.0)
    fitted = SemiSupervisedPipeline([("scale", StandardScaler()), ("learner", SSLROC())])
    fitted.fit(X, told)
    np.testing.assert_allclose(fitted[0].mean_, X[told != -1].mean(axis=0))
    assert len(fitted[-1].soft_labels_) == np.isnan(y).sum()


def test_without_a_row_to_join_it_is_a_pipeline(rows) -> None:
    X, y, _ = rows
    X, y = X[np.isfinite(y)], y[np.isfinite(y)]
    steps = [("scale", StandardScaler()), ("learner", SSLROC(C=2.0))]
    semi = SemiSupervisedPipeline(steps).fit(X, y).decision_function(X)
    plain = Pipeline([("scale", StandardScaler()), ("learner", SVMROC(C=1.0))])
    np.testing.assert_allclose(semi, plain.fit(X, y).decision_function(X), atol=1e-5)


@pytest.mark.parametrize("learner", [SSLROC(), SVMLin(lambda_=0.1), SSRankBoost(n_rounds=5)])
def test_unlabelled_rows_change_what_is_learned_and_are_counted(rows, learner) -> None:
    X, y, patients = rows
    semi = SemiSupervisedPipeline([("scale", StandardScaler()), ("learner", learner)])
    plain = Pipeline([("scale", StandardScaler()), ("learner", learner)])
    with_them = out_of_fold(semi, X, y, groups=patients)
    without = out_of_fold(plain, X, y, groups=patients)
    for fold in with_them.folds:
        others = patients != int(fold.name)
        assert fold.n_unlabelled == int((np.isnan(y) & others).sum())
        assert fold.n_train == int((np.isfinite(y) & others).sum())
    assert all(fold.n_unlabelled == 0 for fold in without.folds)
    assert np.isfinite(with_them.probability).all()
    assert np.abs(with_them.decision - without.decision).max() > 1e-6


def test_a_supervised_learner_never_sees_them(rows) -> None:
    X, y, patients = rows
    some = Pipeline([("learner", ProbabilisticSVC())])
    moved = np.where(np.isnan(y)[:, None], X + 100.0, X)
    before = out_of_fold(some, X, y, groups=patients).probability[np.isfinite(y)]
    after = out_of_fold(some, moved, y, groups=patients).probability[np.isfinite(y)]
    np.testing.assert_array_equal(before, after)


def test_a_search_measures_labelled_rows_only(rows) -> None:
    X, y, patients = rows
    semi = SemiSupervisedPipeline([("scale", StandardScaler()), ("learner", SSLROC())])
    search = PatientGridSearch(semi, {"C": [0.1, 1.0]}, n_folds=3)
    search.fit(X, np.nan_to_num(y, nan=-1.0), groups=patients)
    assert np.isfinite(search.losses_).all()
    assert len(search.best_estimator_[-1].soft_labels_) == np.isnan(y).sum()


@pytest.mark.parametrize(
    "name", ["SSLROC", *(pytest.param(n, marks=pytest.mark.slow) for n in list(SEMI)[1:])]
)
def test_a_pipeline_says_how_many_it_learned_of(
    name: str, light_cohort: Path, tmp_path, main_here
) -> None:
    cohort = Path(shutil.copytree(light_cohort, tmp_path / "cohort"))
    scores = pd.read_csv(cohort / "scores.tsv", sep="\t", dtype=str)
    unread = scores["participant_id"].isin(["sub-0001", "sub-0002"])
    scores[~unread].to_csv(cohort / "scores.tsv", sep="\t", index=False)
    (tmp_path / "semi.yaml").write_text(PIPELINE.format(name=name, params=json.dumps(SEMI[name])))
    train_model(str(tmp_path / "semi.yaml"), cohort, tmp_path / "model", HERE)
    validation = tmp_path / "model.validation"
    labels = pd.read_parquet(validation / "labels.parquet")
    unknown = int(labels["y"].isna().sum())
    assert unknown >= 2
    metrics = json.loads((validation / "metrics.json").read_text())
    assert (
        metrics["unlabelled_rows"] == unknown
    )  # the largest fold leaves out a patient with scores
    assert {fold["n_unlabelled"] for fold in metrics["folds"]} > {unknown}
    bundle = load_bundle(tmp_path / "model")
    assert bundle.metadata["training"]["unlabelled_rows"] == unknown
    assert "without a label" in (tmp_path / "model" / "README.md").read_text()
    assert verify_bundle(tmp_path / "model") < 1e-9
    _check_transductive(tmp_path, light_cohort, main_here)


def _check_transductive(tmp_path: Path, cohort: Path, main_here) -> None:
    """Each patient's regions join alone: other new patients change no probability."""
    both, one = tmp_path / "both", tmp_path / "one"
    predict_cohort([str(tmp_path / "model")], cohort, both, HERE, transductive=True)
    alone = tmp_path / "alone"
    shutil.copytree(
        cohort,
        alone,
        ignore=lambda folder, names: [
            name
            for name in names
            if name.startswith("sub-") and name != "sub-0003" and Path(folder) == cohort
        ],
    )
    for path in alone.glob("*.tsv"):
        head, *lines = path.read_text().splitlines(keepends=True)
        if head.startswith("participant_id"):
            path.write_text(head + "".join(line for line in lines if line.startswith("sub-0003")))
    model, words = tmp_path / "model", ("--transductive", "--jobs", 1)
    said = main_here("predict", "--model", model, "--cohort", alone, "-o", one, *words)
    assert said.returncode == 0, said.stderr
    table, single = (pd.read_csv(out / "probabilities.csv") for out in (both, one))
    of_third = table[table["participant_id"] == "sub-0003"]
    np.testing.assert_allclose(of_third["probability"], single["probability"], atol=1e-9)
    plain = tmp_path / "plain"
    predict_cohort([str(tmp_path / "model")], alone, plain, HERE)
    moved = pd.read_csv(plain / "probabilities.csv")["probability"]
    assert np.abs(moved - single["probability"]).max() > 1e-9
    assert "transductive" in json.dumps(json.loads((one / "run.json").read_text())["warnings"])


def test_a_model_of_labelled_regions_cannot_be_transductive(model: Path, cohort: Path, tmp_path):
    with pytest.raises(CadError, match="labelled regions only"):
        predict_cohort([str(model)], cohort, tmp_path / "run", HERE, transductive=True)
    with pytest.raises(CadError, match="no map"):
        predict_cohort(
            [str(model)], cohort, tmp_path / "run", HERE, transductive=True, probability_map=True
        )


def test_a_ranker_may_have_an_eta_of_its_own() -> None:
    """OPAUC's is the length of a step, and no label sets it."""
    from cad.base.settings import PipelineSettings
    from cad.run.model.estimator import make_estimator

    content = {"name": "x", "learner": {"name": "OPAUC", "params": {"eta": 0.5}}}
    assert make_estimator(PipelineSettings.model_validate(content))[-1].eta == 0.5


def test_histology_that_is_left_out_is_named_where_nothing_else_teaches(
    light_cohort: Path, tmp_path: Path
) -> None:
    """Regions with histology and without scores: the settings decide whether they teach."""
    cohort = Path(shutil.copytree(light_cohort, tmp_path / "cohort"))
    scores = cohort / "scores.tsv"
    scores.write_text(scores.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(
        "name: x\nfeatures: {families: [intensity]}\nlearner: {name: ProbabilisticSVC}\n"
    )
    with pytest.raises(CadError, match=r"histology of \d+ regions is left out") as caught:
        train_model(pipeline, cohort, tmp_path / "out", HERE)
    assert "labels.histology: override" in caught.value.hint
