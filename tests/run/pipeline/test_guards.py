"""A failure that would come at the end of a long job is said before anything is measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

import cad
import cad.learning.learners
from cad.base.errors import CadError
from cad.base.settings import LearnerSettings, PipelineSettings, parse_settings
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_probabilities
from cad.learning.learners.rivals import rival_learners
from cad.learning.stored import Declared, floats
from cad.run.execution.options import HERE
from cad.run.model.estimator import make_estimator, require_storable
from cad.run.model.explanation import explain
from cad.run.pipeline import compare_pipelines, run_pipeline, suggest_next, train_model


class Voting(BaseEstimator):
    """A learner that gives a probability and no decision value."""

    stored: ClassVar[Declared] = {"weights_": floats("d"), "bias_": floats(1)}

    def fit(self, X: np.ndarray, y: np.ndarray) -> Voting:
        inner = LogisticRegression().fit(X, np.asarray(y) > 0.5)
        self.weights_, self.bias_ = inner.coef_[0], inner.intercept_
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        q = expit(X @ self.weights_ + self.bias_)
        return np.stack([1 - q, q], axis=1)


class Silent(BaseEstimator):
    """A learner that gives no probability."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Silent:
        return self


def settings(**learner: Any) -> PipelineSettings:
    return parse_settings(PipelineSettings, {"name": "x", "learner": learner})


def written(path: Path, quick: Path, learner: dict[str, Any], name: str = "quick") -> str:
    """Write the quick pipeline with another learner."""
    lines = [line for line in quick.read_text().splitlines() if not line.startswith("learner")]
    text = "\n".join(lines).replace("name: quick", f"name: {name}")
    path.write_text(f"{text}\nlearner: {json.dumps(learner)}\n")
    return str(path)


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        ({"params": {"C": [1, 10]}}, r"learner.params.C: one value .*\[1, 10\].*learner.grid.C"),
        ({"params": {"C": "1e-3"}}, "learner.params.C: expected a number, found '1e-3' .*1.0e-3"),
        ({"params": {"C": {"a": 1}}}, "learner.params.C: expected a number"),
        ({"params": {"C": None}}, "learner.params.C: expected a number, found None"),
        ({"params": {"C": True}}, "learner.params.C: expected a number, found True"),
        ({"params": {"eta0": "wide"}}, "learner.params.eta0: expected a number"),
        ({"params": {"kernel": ["rbf", "linear"]}}, "learner.grid.kernel"),
        ({"params": {"kernel": None}}, "kernel: expected a number or a word"),
        ({"grid": {"C": [1, [2, 3]]}}, "learner.grid.C: one value"),
        ({"grid": {"C": [1, "ten"]}}, "learner.grid.C: expected a number"),
        ({"name": "AveragedProbabilisticSVC", "params": {"C": [1, "ten"]}}, "expected a number"),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_a_settings_error(
    learner: dict[str, Any], said: str
) -> None:
    with pytest.raises(CadError, match=said):
        make_estimator(settings(**learner))


def test_right_kinds_are_taken() -> None:
    make_estimator(settings(params={"C": 1, "gamma": 0.1, "C_soft": None, "kernel": "linear"}))
    make_estimator(settings(params={"gamma": "scale", "eta0": 0.1}, grid={"C": [1, 10.0]}))
    make_estimator(settings(name="AveragedProbabilisticSVC", params={"C": [1, 10], "kappa": 0.5}))
    several = {"name": "x", "labels": {"eta0": [0.05, 0.1]}}
    averaged = {**several, "learner": {"name": "AveragedProbabilisticSVC"}}
    make_estimator(parse_settings(PipelineSettings, averaged))
    with pytest.raises(CadError, match=r"labels.eta0: one value is needed"):
        make_estimator(parse_settings(PipelineSettings, several))


def test_a_learner_without_a_decision_value_is_validated_and_explained(
    cohort: Path, quick_pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cad.learners.LEARNERS, "Voting", Voting)  # bundles know it by that
    pipeline = written(tmp_path / "voting.yaml", quick_pipeline, {"name": "Voting"})
    done = train_model(pipeline, cohort, tmp_path / "model", HERE)
    assert done.failures == []
    folder = RunFolder(tmp_path / "model.validation")
    table = read_probabilities(folder)
    assert table["probability"].notna().all()
    assert table["decision_value"].isna().all()
    explained = pd.read_csv(folder.explanations)
    assert len(explained[["study_id", "roi_id"]].drop_duplicates()) == len(table)
    assert np.isfinite(explained["contribution"].dropna()).all()
    assert explained["contribution"].notna().any()


def test_its_explanation_is_that_of_the_log_odds() -> None:
    """Of a logistic model both are the same: the decision value is the log odds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X @ [1.0, -2.0, 0.5] + rng.normal(size=60) > 0).astype(float)
    names = ["t2w_mean", "adc_mean", "adc_median"]
    voting = Voting().fit(X, y)
    wanted = explain(LogisticRegression().fit(X, y), X, X[:5], names)
    for one, other in zip(explain(voting, X, X[:5], names), wanted, strict=True):
        assert [e["feature"] for e in one] == [e["feature"] for e in other]
        np.testing.assert_allclose(
            [e["delta"] for e in one], [e["delta"] for e in other], atol=1e-9
        )


def test_a_learner_without_probability_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cad.learners.LEARNERS, "Silent", Silent)
    with pytest.raises(CadError, match="Silent gives no probability"):
        make_estimator(settings(name="Silent"))


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test fail that measures a study."""

    def refuse(*_: object) -> None:
        raise AssertionError("a study was measured")

    monkeypatch.setattr("cad.run.stages.extract.measure_studies", refuse)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("name", ["ProbabilisticSVC", "AveragedProbabilisticSVC", "SVMROC"])
def test_a_bundle_that_may_not_hold_rows_is_refused_before_measuring(
    name: str, cohort: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    learner = {"name": name, "training_rows": "drop"}
    pipeline = written(tmp_path / "drop.yaml", quick_pipeline, learner)
    with pytest.raises(CadError, match=r"learner\.training_rows is 'drop'"):
        train_model(pipeline, cohort, tmp_path / "model", HERE)


@pytest.mark.usefixtures("unmeasured")
def test_a_bundle_that_cannot_hold_a_step_is_refused_before_measuring(
    cohort: Path, quick_pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stranger = type("Stranger", (Voting,), {})  # the name of no class that bundles know
    monkeypatch.setattr("cad.run.model.estimator.LEARNERS", {"Voting": Stranger})
    pipeline = written(tmp_path / "other.yaml", quick_pipeline, {"name": "Voting"})
    with pytest.raises(CadError, match="which a bundle cannot store"):
        train_model(pipeline, cohort, tmp_path / "model", HERE)


@pytest.mark.parametrize(
    ("kept", "refusal"),
    [
        ("model", r"model_ is a sklearn.*LogisticRegression"),
        ("undeclared", r"Wrapping has the attribute 'classes_', which its `stored` does not"),
        ("arrays", None),
    ],
)
def test_what_a_fit_keeps_is_seen_before_measuring(
    monkeypatch: pytest.MonkeyPatch, kept: str, refusal: str | None
) -> None:
    """A learner that wraps one of scikit-learn's, whole or as its arrays."""
    monkeypatch.setattr(cad.learning.learners, "LEARNERS", {"Wrapping": Wrapping})
    step = Pipeline([("learner", Wrapping(kept))])
    if refusal is None:
        require_storable(step, LearnerSettings())
    else:
        with pytest.raises(CadError, match=refusal):
            require_storable(step, LearnerSettings())


def test_a_class_that_declares_nothing_is_seen_before_measuring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cad.learning.learners, "LEARNERS", {"Undeclared": Undeclared})
    with pytest.raises(CadError, match="Undeclared, whose class does not declare"):
        require_storable(Pipeline([("learner", Undeclared())]), LearnerSettings())


@pytest.mark.parametrize("name", [*cad.learning.learners.LEARNERS, *rival_learners()])
def test_every_learner_that_a_pipeline_may_name_can_be_stored(name: str) -> None:
    """Each is fitted to a table, and what it keeps is compared with what its class declares."""
    chosen = settings(name=name)
    require_storable(make_estimator(chosen), chosen.learner)


class Wrapping(ClassifierMixin, BaseEstimator):
    """Fit a logistic regression and keep it whole, or its arrays, all or only some declared."""

    stored: ClassVar[Declared] = {"coef_": floats(1, "d"), "intercept_": floats(1)}

    def __init__(self, kept: str = "model") -> None:
        self.kept = kept

    def fit(self, X: np.ndarray, y: np.ndarray) -> Wrapping:
        fitted = LogisticRegression().fit(X, y)
        self.coef_, self.intercept_ = fitted.coef_, fitted.intercept_
        if self.kept == "model":
            self.model_ = fitted
        if self.kept == "undeclared":
            self.classes_ = fitted.classes_
        return self


class Undeclared(ClassifierMixin, BaseEstimator):
    """Keep an array that no `stored` declares."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Undeclared:
        self.mean_ = X.mean(axis=0)
        return self


@pytest.mark.usefixtures("unmeasured")
def test_an_extension_is_checked_before_measuring(
    cohort: Path, first_patient: Path, model: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    def extend(root: Path, pipeline: str) -> None:
        train_model(pipeline, root, tmp_path / "new", HERE, extends=str(model))

    with pytest.raises(CadError, match="in the training table of quick-model already") as caught:
        extend(first_patient, str(quick_pipeline))
    assert caught.value.patient == "sub-0001"
    other = tmp_path / "other.yaml"
    other.write_text(quick_pipeline.read_text().replace("bins: 16", "bins: 32"))
    with pytest.raises(CadError, match="features settings differ"):
        extend(first_patient, str(other))


@pytest.mark.usefixtures("unmeasured")
def test_nothing_to_be_read_is_said_before_measuring(
    first_patient: Path, model: Path, tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    root = shutil.copytree(first_patient, tmp_path / "cohort")
    rois = pd.read_csv(root / "rois.tsv", sep="\t", dtype=str)[["participant_id", "roi_id"]]
    readers = pd.read_csv(root / "readers.tsv", sep="\t", dtype=str)["reader_id"][:2]
    scores = rois.merge(readers, how="cross").assign(scale="likert5", score="3")
    scores.to_csv(root / "scores.tsv", sep="\t", index=False)
    table, failures = suggest_next(str(model), root, tmp_path / "out", HERE, 5)
    assert table.empty
    assert failures == []
    words = ("--model", model, "--cohort", root, "-o", tmp_path / "out")
    ended = main_here("suggest", *words)
    assert (ended.returncode, ended.stdout) == (0, "every region has two readings or more\n")
    assert main_here("suggest", *words, "--json").stdout == "[]\n"


def test_a_comparison_measures_once_what_the_same_settings_measure(
    first_patient: Path,
    cohort: Path,
    part_of: Callable[..., Path],
    quick_pipeline: Path,
    tmp_path: Path,
) -> None:
    root = part_of(cohort, tmp_path / "cohort", ["sub-0001", "sub-0002", "sub-0003"])
    learners = {"a": {"params": {"C": 1.0}}, "b": {"params": {"C": 10.0}}}
    paths = [written(tmp_path / f"{n}.yaml", quick_pipeline, v, n) for n, v in learners.items()]
    other = tmp_path / "c.yaml"
    text = Path(paths[0]).read_text().replace("name: a", "name: c")
    other.write_text(text.replace("bins: 16", "bins: 8"))
    compare_pipelines([*paths, str(other)], root, tmp_path / "out", HERE)

    def statuses(name: str) -> set[str]:
        record = json.loads((tmp_path / "out" / name / "run.json").read_text())
        return {study["status"] for study in record["studies"]}

    assert [statuses(name) for name in "abc"] == [{"computed"}, {"kept"}, {"computed"}]
    alone = tmp_path / "alone"
    run_pipeline(paths[1], root, alone, HERE)
    borrowed = tmp_path / "out" / "b"
    assert (borrowed / "probabilities.csv").read_bytes() == (
        alone / "probabilities.csv"
    ).read_bytes()
    pd.testing.assert_frame_equal(
        pd.read_parquet(borrowed / "features.parquet"), pd.read_parquet(alone / "features.parquet")
    )


def test_nobody_learns_from_how_a_region_was_measured(run_folder: Path, tmp_path: Path) -> None:
    table = pd.read_parquet(run_folder / "features.parquet")  # as a user would take it
    patients = table["participant_id"]
    X = table.drop(columns=["participant_id", "study_id", "roi_id"])
    X = X.select_dtypes("number").fillna(0.0).rank(pct=True)
    assert any(name.startswith("provenance_") for name in X.columns)
    y = np.arange(len(X)) % 2.0
    learner = cad.learners.ProbabilisticSVC()
    with pytest.raises(CadError, match=r"is no feature .*leave out the columns"):
        cad.validate(learner, X, y, patients)
    learner.fit(X, y)
    with pytest.raises(CadError, match="is no feature"):
        cad.save_model(tmp_path / "model", learner, X, y, patients)
