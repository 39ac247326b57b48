"""Checklists: every answer follows the run and the estimator that was fitted."""

from __future__ import annotations

import string
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import PipelineSettings
from cad.learning.evaluation.folds.crossval import fit_keywords
from cad.learning.evaluation.statements.checklists import (
    TITLES,
    answers,
    items,
    metrics_score,
    metrics_states,
    validation_md,
)
from cad.learning.evaluation.statements.proofs import PROOFS
from cad.learning.evaluation.statements.run_facts import UNKNOWN, RunFacts
from cad.learning.evaluation.statements.sentences import SENTENCES
from cad.learning.evaluation.summary import Summary, summarise
from cad.run.model.described import describe
from cad.run.model.estimator import make_estimator
from tests.learning.evaluation.test_summary import predicted
from tests.learning.evaluation.test_summary import run as made

Json = dict[str, Any]
AVERAGED = {
    "learner": {
        "name": "AveragedProbabilisticSVC",
        "params": {"C": [1.0], "gamma": [0.3], "scaling": ["rank", "clipped"]},
    },
    "labels": {"eta0": [0.05, 0.125], "kappa": [0.0, 1.0]},
}
SETTINGS: dict[str, Json] = {
    "plain": {},
    "averaged": AVERAGED,
    "searched": {"learner": {"name": "ProbabilisticSVC", "grid": {"C": [0.1, 1.0]}}},
    # One feature of these does not tell the labels apart: a learned scale collapses.
    "selected": {"learner": {"selection": "t-test", "n_features": 1, "params": {"scale": "fixed"}}},
    "ranks": {"learner": {"scaling": "rank"}},
    "ensemble": {**AVERAGED, "learner": {**AVERAGED["learner"], "name": "ProbabilisticEnsemble"}},
    "trees": {"learner": {"name": "SoftExtraTrees", "params": {"trees": 7, "seed": 5}}},
    "boosting": {"learner": {"name": "RankBoost"}},
}


@cache
def metrics_of() -> Json:
    frame, scores, X = made()
    frame, folds = predicted(frame, X)
    return summarise(frame, reader_scores=scores, folds=folds, bootstraps=20).as_dict()


@cache
def described(kind: str) -> Json:
    """Return the description of the fitted estimator of these settings."""
    frame, _, X = made(patients=10, rois=3)
    estimator = make_estimator(PipelineSettings(name="trial", **SETTINGS[kind]))
    y = frame["truth" if kind == "boosting" else "p"].to_numpy(float)
    owner, spread = frame["participant_id"].to_numpy(), np.full(len(y), 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, y, **fit_keywords(estimator, spread, owner))
    found = describe([estimator, estimator])
    assert found is not None
    return found


def record(kind: str = "plain", **change: Any) -> Json:
    """A run's record with the estimator that these settings fit."""
    settings = PipelineSettings(name="trial", **SETTINGS[kind])
    return {
        "name": "trial",
        "kind": "run",
        "settings": settings.model_dump(mode="json", by_alias=True),
        "versions": {"numpy": "2.4"},
        "cad_version": "1.2",
        "counts": {"studies": 16, "failed": 1, "features": 2, "sites": 2, "explained": 90},
        "estimator": described(kind),
        **change,
    }


def set_in(run: Json, value: Any, *path: str) -> Json:
    changed = deepcopy(run)
    part = changed
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return changed


def facts(run: Json, metrics: Json | None = None) -> RunFacts:
    return RunFacts(run, Summary.from_dict(metrics or metrics_of()))


def said(name: str, run: Json, metrics: Json | None = None) -> str:
    return SENTENCES[name](facts(run, metrics))


PREDICTED = record(kind="averaged") | {
    "kind": "predict",
    "model": {"models": {"m": {"sha256": "ab" * 32, "patients_of_training": 0}}},
}
SHARED = set_in(PREDICTED, 3, "model", "models", "m", "patients_of_training")
NO_TRUTH: Json = {"histology": None}
# Sentence: a run, a word of its answer, another run, a word of that one's.
RUNS: dict[str, tuple[Json, str, Json, str]] = {
    "learner_name": (record(), "ProbabilisticSVC", record("trees"), "SoftExtraTrees"),
    "model": (record(), "ProbabilisticSVC (C 1", record("trees"), "trees 7"),
    "ensembling": (record(), "None: one machine", record("averaged"), "machines of different"),
    "start": (record(), "Convex", record("trees"), "seed 5"),
    "tuning": (record(), "fixed beforehand", record("averaged"), "Weighed by 5 inner folds"),
    "selection": (record(), "No selection", record("selected"), "keeps 1 features"),
    "scaling": (record(), "mean 0, variance 1", record("ranks"), "ranks among"),
    "preprocessing": (record(), "No selection", record("selected"), "TTestSelector"),
    "missing": (record(), "median", record(estimator=None), UNKNOWN),
    "explained": (record(), "90 ROIs", record(counts={"explained": 0}), "No ROI"),
    "partition": (record(), "Leave-one-patient-out", PREDICTED, "External"),
    "external_testing": (PREDICTED, "External", SHARED, "Not external: 3 of 15"),
    "internal": (record(), "Leave-one-patient-out", PREDICTED, "None in this run"),
    "tested": (record(), "every ROI is tested once", PREDICTED, "External"),
    "disjoint": (record(), "fitted on other patients", SHARED, "not disjoint"),
    "bundle": (PREDICTED, "abab", record(), "cad train"),
    "included": (record(), "16 studies", record(counts={"studies": 3}), "3 studies"),
    "version": (record(), "1.2", record(cad_version="9"), "9"),
    "software": (record(), "numpy 2.4", record(versions={"numpy": "3"}), "numpy 3"),
    "sites": (record(), "2 site", record(counts={}), "not in the tables"),
    "n_features": (record(), "2", record(counts={"features": 9}), "9"),
    "dimension": (record(), "2 features", record(counts={"features": 9}), "9 features"),
    "image_settings": (
        record(),
        "t2_reference auto",
        set_in(record(), "gland", "settings", "images", "t2_reference"),
        "t2_reference gland",
    ),
    "image_kinds": (
        record(),
        "dce",
        set_in(record(), ["adc"], "settings", "features", "modalities"),
        "adc.",
    ),
    "families": (
        record(),
        "haralick",
        set_in(record(), ["size"], "settings", "features", "families"),
        "size.",
    ),
    "other_predictors": (
        record(),
        "none",
        set_in(record(), ["size"], "settings", "features", "families"),
        "size",
    ),
    "predictor": (
        record(),
        "`cad predict`",
        set_in(record(), [], "settings", "features", "modalities"),
        "`cad table predict`",
    ),
    "resampling": (
        record(),
        "",
        set_in(record(), [1.0, 1.0, 0.0], "settings", "images", "spacing_t2w"),
        "1.0",
    ),
    "discretisation": (
        record(),
        "texture",
        set_in(record(), {"bins": 8}, "settings", "features", "texture"),
        "bins 8",
    ),
    "robustness": (
        record(),
        "Every feature was kept",
        set_in(record(), True, "settings", "features", "robustness", "stable_only"),
        "By ICC",
    ),
    "reference": (
        record(),
        "ISUP 2",
        set_in(record(), 1, "settings", "labels", "isup_min"),
        "ISUP 1",
    ),
    "annotators": (
        record(),
        "used: all",
        set_in(record(), "expert", "settings", "labels", "readers"),
        "used: expert",
    ),
    "significance": (
        record(),
        "1000 resamples",
        set_in(record(), 7, "settings", "validate", "bootstraps"),
        "7 resamples",
    ),
    "thresholds": (
        record(),
        "false negative 4",
        set_in(record(), 9.0, "settings", "decision", "false_negative"),
        "false negative 9",
    ),
}
# Sentences of the measures: what the run measured, and a run that did not.
MEASURED: dict[str, tuple[str, Callable[[Json], Json], str]] = {
    "auc_text": ("AUC 0.", lambda m: m | {"histology": None, "consensus": None}, "None"),
    "calibration": ("slope", lambda m: m | {"histology": None, "consensus": None}, "Not measured"),
    "measured": ("Brier", lambda m: m | {"histology": None, "consensus": None}, "Nothing"),
    "operating": ("0.5", lambda m: m | {"histology": None, "consensus": None}, "no threshold"),
    "prevalence": ("by histology", lambda m: m | NO_TRUTH, "readers' consensus"),
    "variability": ("kappa", lambda m: m | {"agreement": None}, "not measured"),
    "readers_beside": ("r0", lambda m: m | {"readers": {}}, "No reader's"),
    "failures": (
        "Folds that failed: none",
        lambda m: m | {"folds": [{**m["folds"][0], "name": "x", "error": "why"}]},
        "x (why)",
    ),
    "compared": (
        "None in this run",
        lambda m: m | {"rivals": {"table": [{"learner": "kernel ridge"}]}},
        "kernel ridge",
    ),
    "simple_rival": (
        "No simple rival",
        lambda m: m | {"rivals": {"table": [{"learner": "logistic"}]}},
        "logistic",
    ),
}


def test_a_patient_of_two_trainings_is_not_counted_twice() -> None:
    """Of 15 patients the first model knows ten, and the second nine: at least ten, and not 19."""
    models = {"a": {"patients_of_training": 10}, "b": {"patients_of_training": 9}}
    run = PREDICTED | {"model": {"models": models}}
    assert said("external_testing", run).startswith("Not external: at least 10 of 15 patients")


def test_every_sentence_of_the_checklists_is_tested() -> None:
    used = {
        name
        for title in (*TITLES, "metrics")
        for item in items(title).values()
        for _, name, _, _ in string.Formatter().parse(item.get("answer", ""))
        if name
    }
    assert used == set(RUNS) | set(MEASURED)
    assert used <= set(SENTENCES)


def test_an_item_of_metrics_has_a_state_or_a_proof() -> None:
    stated = {number for number, item in items("metrics").items() if "state" in item}
    assert stated | set(PROOFS) == set(items("metrics"))
    assert stated & set(PROOFS) == set()


@pytest.mark.parametrize("name", RUNS)
def test_an_answer_follows_what_stands_behind_it(name: str) -> None:
    first, word, second, other = RUNS[name]
    before, after = said(name, first), said(name, second)
    assert before != after
    assert word in before
    assert other in after


@pytest.mark.parametrize("name", MEASURED)
def test_an_answer_follows_what_was_measured(name: str) -> None:
    word, change, other = MEASURED[name]
    before, after = said(name, record()), said(name, record(), change(metrics_of()))
    assert word in before
    assert other in after
    assert before != after


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("averaged", "scaling", "inside the learner by weight: clipped"),
        ("averaged", "start", "Convex problems: the start does not matter."),
        ("ensemble", "ensembling", "50 randomised trees beside them"),
        ("ensemble", "start", "trees of seed 0"),
        ("trees", "ensembling", "7 randomised trees, averaged."),
        ("trees", "tuning", UNKNOWN),
        ("searched", "tuning", "Chosen by 5 inner folds of patients (cross-entropy): C"),
        ("boosting", "ensembling", UNKNOWN),
        ("boosting", "start", UNKNOWN),
    ],
)
def test_the_fitted_estimator_is_asked(kind: str, name: str, words: str) -> None:
    assert words in said(name, record(kind))


@pytest.mark.parametrize("name", ["ensembling", "start", "tuning", "selection", "scaling", "model"])
def test_without_an_estimator_the_program_does_not_know(name: str) -> None:
    assert UNKNOWN in said(name, record(estimator=None))


def test_weights_are_those_of_the_fitted_points() -> None:
    frame, _, X = made()
    estimator = make_estimator(PipelineSettings(name="trial", **AVERAGED))
    y, owner = frame["p"].to_numpy(float), frame["participant_id"].to_numpy()
    estimator.fit(X, y, **fit_keywords(estimator, np.full(len(y), 0.1), owner))
    points = pd.DataFrame(estimator[-1].points_)
    found = describe([estimator])
    assert found is not None
    for name in ("kappa", "eta0", "scaling"):
        own = points.groupby(name)["weight"].sum()
        assert list(found["weights"][name].values()) == pytest.approx(own.sort_index().tolist())
        assert sum(found["weights"][name].values()) == pytest.approx(1.0)
    assert found["sentence"].startswith("Weights of η₀ ")
    # A weight of kappa is no evidence that disagreement helps.
    assert "κ" not in found["sentence"]


def test_validation_md_answers_or_asks() -> None:
    text = validation_md(record(cohort_simulated=True), Summary.from_dict(metrics_of()))
    for part in (
        "Simulated patients",
        "Leave-one-patient-out",
        "numpy 2.4",
        "16 studies read, 1 failed",
        "quadratic weighted kappa",
        "of 90 ROIs malignant by histology",
    ):
        assert part in text, part
    listed = text.split("## Only a person can answer")
    for (name, title), size in zip(TITLES.items(), (44, 34, 58), strict=True):
        part = listed[0].split(f"## {title}\n")[1].split("\n## ")[0]
        asked = listed[1].split(f"{title}: ")[1].split("\n")[0]
        for number, item in items(name).items():
            answered = f"| {number} | {item['topic']} |" in part
            assert answered != (f"{number} {item['topic']}" in asked), number
        assert len(items(name)) == size
    for number, item in items("metrics").items():
        assert f"| {number} | {item['topic']} | {item['weight']:.4f} |" in text


def test_metrics_weights_are_the_published_ones_and_the_score_counts_what_is_proven() -> None:
    weights = [item["weight"] for item in items("metrics").values()]
    assert len(weights) == 30
    assert sum(weights) == pytest.approx(1.0, abs=1e-9)
    # Categories of the published table: study design, imaging data, testing, open science.
    for (first, last), share in (
        ((1, 3), 0.2022),
        ((4, 7), 0.1460),
        ((26, 27), 0.1124),
        ((28, 30), 0.0225),
    ):
        assert sum(weights[first - 1 : last]) == pytest.approx(share)
    every: dict[str, Any] = dict.fromkeys(items("metrics"), "yes")
    assert metrics_score(every) == (1.0, 1.0)
    # Without deep learning and automated segmentation their weights do not apply.
    every |= {"9": "not applicable", "17": "not applicable", "3": "no", "2": "person"}
    whole = 1 - 0.0225 - 0.0200
    found = metrics_score(every)
    assert found[0] == pytest.approx((whole - 0.0919 - 0.0735) / whole)
    assert found[1] == pytest.approx((whole - 0.0919) / whole)


@pytest.mark.parametrize(
    ("run", "item", "state"),
    [
        (PREDICTED, "27", "yes"),
        (SHARED, "27", "no"),
        (SHARED, "18", "no"),
        (PREDICTED, "26", "no"),
        (record(), "27", "no"),
        (record(), "26", "yes"),
        (record(), "4", "yes"),
        (record(counts={"sites": 1}), "4", "no"),
        (record(counts={}), "4", "person"),
        (record(), "16", "yes"),
        (record(counts={"features": 900}), "16", "no"),
        (set_in(record(), "none", "settings", "validate", "scheme"), "18", "no"),
        (record("selected"), "15", "yes"),
        (record(), "15", "no"),
        (record(estimator=None), "15", "person"),
        (set_in(record(), True, "settings", "features", "robustness", "stable_only"), "14", "yes"),
        (set_in(record(), ["adc"], "settings", "features", "modalities"), "23", "yes"),
        (record(), "28", "person"),
    ],
)
def test_metrics_items_follow_the_run(run: Json, item: str, state: str) -> None:
    assert metrics_states(facts(run))[item] == state


def test_validation_md_of_a_prediction_without_truth() -> None:
    frame, _, X = made()
    frame, _ = predicted(frame, X)
    found = summarise(frame.assign(truth=np.nan, p=np.nan), bootstraps=0).as_dict()
    text = validation_md(
        {"name": "new", "kind": "predict", "settings": {}}, Summary.from_dict(found)
    )
    assert "External: no patient carries an id of the model's training" in text
    assert "No readers' scores" in text
    assert UNKNOWN in answers("claim", facts({"kind": "predict"}, found))["27"]


@pytest.mark.parametrize(
    ("of_measures", "of_run", "listed"),
    [
        (["few men"], ["one site"], ["- few men", "- one site"]),
        ([], ["one site"], ["- one site"]),
        (["few men"], [], ["- few men"]),
        (["few men"], ["few men"], ["- few men"]),
        ([], [], []),
    ],
)
def test_validation_md_lists_the_warnings_of_measures_and_run(
    of_measures: list[str], of_run: list[str], listed: list[str]
) -> None:
    """A run that warns of what no measure warns of: the warning was left out."""
    page = validation_md(record() | {"warnings": of_run}, Summary(warnings=of_measures))
    lines = []
    if "## Warnings" in page:
        lines = page.split("## Warnings\n\n")[1].split("\n\n")[0].splitlines()
    assert lines == listed
    assert ("## Warnings" in page) == bool(listed)


def test_costs_are_costs_alone():
    """The prevalence, an aim or a blinded reading is no cost."""
    run = set_in(record(), 0.05, "settings", "decision", "prevalence")
    run = set_in(run, True, "settings", "decision", "blinded")
    assert list(facts(run).costs.values()) == [1.0, 4.0, 0.4, 0.4]
    assert "refer positive 0.4)." in SENTENCES["thresholds"](facts(run))
