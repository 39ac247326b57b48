"""A released model fitted to a site: its steps one by one, by hand and by loops over men."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from cad.base.errors import CadError
from cad.base.files import typed
from cad.base.settings import DecisionSettings
from cad.base.share import find
from cad.learning.evaluation.decisions.operating import choose_operating_point
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.readers.assisted import Combination, Combinations
from cad.learning.joint_model import BELIEF, INTERCEPT, MenAndRegions, fit_joint
from cad.run.model.bundle import Bundle, load_bundle
from cad.run.model.recalibrated import Recalibrated, moved_combinations, save_recalibrated
from cad.run.stages.risk import EVIDENCE, evidence, joint_of
from cad.run.workflows import recalibrate as workflow
from cad.run.workflows.recalibrate import recalibrate

UNKNOWN = np.nan


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(find("models", "phantom-psvm"))


def results_of(men: int, seed: int = 3) -> pd.DataFrame:
    """Draw two regions of each man, whose cancers are likelier than their beliefs say."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-1, 1.5, 2 * men)
    truth = (rng.random(2 * men) < expit(1 + 0.7 * z)) * 1.0
    return pd.DataFrame(
        {
            "participant_id": np.repeat([f"sub-{i:02}" for i in range(men)], 2),
            "belief": expit(z),
            "truth": truth,
            "readers_mean": np.clip(truth * 0.4 + 0.3, 0, 1),
            "age": UNKNOWN,
            "psa_density": UNKNOWN,
            "man_truth": UNKNOWN,
        }
    )


def data_of(results: pd.DataFrame) -> MenAndRegions:
    return evidence(results, results["belief"].to_numpy(float))[0]


def run_of(decision: DecisionSettings, results: pd.DataFrame, bundle: Bundle) -> tuple[Any, Any]:
    loaded = SimpleNamespace(
        cohort=SimpleNamespace(
            simulated=False, participants=pd.DataFrame({"site": ["B", "A", None, "B"]})
        ),
        settings=SimpleNamespace(decision=decision),
    )
    described = {"models": {bundle.name: {"patients_of_training": 2}}}
    return loaded, SimpleNamespace(results=results, model=described)


def test_a_site_needs_thirty_men_for_a_first_joint_model() -> None:
    thirty = data_of(results_of(30))
    model = workflow._site_model(None, thirty)
    assert (model.estimate == fit_joint(thirty).estimate).all()
    with pytest.raises(CadError, match="29 men with histology, 30 are needed to give a model"):
        workflow._site_model(None, data_of(results_of(29)))


def test_a_model_with_histology_is_moved(bundle: Bundle) -> None:
    before = joint_of(bundle, None)
    assert before is not None
    data = data_of(results_of(30))
    model = workflow._site_model(before, data)
    assert (model.estimate == before.recalibrated(data).estimate).all()


@pytest.mark.parametrize("men", [16, 45])
def test_each_man_is_left_out_in_one_of_twenty_blocks(bundle: Bundle, men: int) -> None:
    before = joint_of(bundle, None)
    assert before is not None
    data = data_of(results_of(men))
    regions, of_men = workflow._probabilities_left_out(before, data)
    order = np.random.default_rng(0).permutation(men)
    for block in np.array_split(order, min(20, men)):
        others = np.setdiff1d(np.arange(men), block)
        chosen = np.isin(np.arange(men), others)
        predicted = before.recalibrated(data.of_men(chosen), 15).predict(data.of_men(~chosen))
        np.testing.assert_array_equal(regions[np.isin(data.man, block)], predicted.probability)
        np.testing.assert_array_equal(of_men[np.sort(block)], predicted.man)
    # Half of the men that a recalibration needs are enough without the block, and no fewer.
    with pytest.raises(CadError, match="14 men with histology and a belief, 15 are needed"):
        workflow._probabilities_left_out(before, data_of(results_of(15)))


def test_calibration_before_and_after_by_hand() -> None:
    truth = np.array([1.0, 0.0, 1.0, 0.0, UNKNOWN, 1.0])
    before = np.array([0.6, 0.3, 0.4, 0.5, 0.9, 0.2])
    after = np.array([0.7, 0.2, 0.6, 0.65, 0.8, UNKNOWN])
    patients = np.array(["a", "a", "b", "c", "d", "e"])
    made = workflow._calibration_before_after(truth, before, after, patients)
    assert (made["men"], made["n"], made["positive"]) == (3, 4, 2)
    assert made["before"]["brier"] == pytest.approx((0.16 + 0.09 + 0.36 + 0.25) / 4)
    assert made["after"]["brier"] == pytest.approx((0.09 + 0.04 + 0.16 + 0.4225) / 4)
    known = slice(0, 4)
    slope = metrics.calibration_slope(truth[known], after[known])
    assert np.isfinite(slope)
    assert made["after"]["slope"] == slope
    intercept = metrics.calibration_intercept(truth[known], before[known])
    assert made["before"]["intercept"] == intercept
    # The model had no number for a man: nothing can be compared with the numbers after.
    before[2] = UNKNOWN
    made = workflow._calibration_before_after(truth, before, after, patients)
    assert made["before"] is None
    assert made["after"] is not None
    none = workflow._calibration_before_after(truth * UNKNOWN, before, after, patients)
    assert (none["n"], none["before"], none["after"]) == (0, None, None)


def test_words_on_sites_and_measures() -> None:
    def sites(people: pd.DataFrame) -> str:
        loaded: Any = SimpleNamespace(cohort=SimpleNamespace(participants=people))
        return workflow._named_sites(loaded)

    assert sites(pd.DataFrame({"site": ["B", "A", None, "B"]})) == "A, B"
    assert sites(pd.DataFrame({"site": [None, None]})) == "not stated"
    assert sites(pd.DataFrame({"participant_id": ["sub-1"]})) == "not stated"
    values = {"intercept": 0.125, "slope": 1.5, "brier": 0.25}
    report = {
        "regions": {"n": 6, "men": 3, "positive": 2, "before": None, "after": values},
        "men": {"n": 3, "men": 3, "positive": 1, "before": values, "after": None},
    }
    point: Any = SimpleNamespace(sentence=lambda: "benign below .1")
    assert workflow._lines_of_report(report, {"men": point}) == [
        "- regions: 6 of 3 men, 2 malignant; after, men left out: intercept 0.12, slope 1.50, "
        "Brier score 0.250",
        "- men: 3 of 3 men, 1 malignant; before: intercept 0.12, slope 1.50, Brier score 0.250",
        "- thresholds of men, chosen anew: benign below .1",
    ]


def test_weights_of_a_reader_with_the_tool_by_hand() -> None:
    """The old tool counts .5 per log-odds; the new log-odds are .5 + 2 times the old ones."""
    own = Combination(intercept=-1.0, score=3.0, tool=0.5, n=40, positive=10)
    anyone = Combination(intercept=0.25, score=2.0, tool=1.0, n=80, positive=20)
    moved = moved_combinations(Combinations({"r1": own}, anyone), 0.5, 2.0)
    assert moved.readers == {"r1": replace(own, tool=0.25, intercept=-1.125)}
    assert moved.anyone == replace(anyone, tool=0.5, intercept=0.0)


def test_weights_follow_the_joint_model_of_images(bundle: Bundle) -> None:
    before = joint_of(bundle, None)
    assert before is not None
    estimate = before.estimate.copy()
    estimate[0, BELIEF] *= 2
    estimate[0, INTERCEPT] = 2 * estimate[0, INTERCEPT] + 1
    joint = replace(before, estimate=estimate)
    content = bundle.metadata["combinations"]
    made = workflow._combinations(bundle, before, joint)
    expected = moved_combinations(typed(Combinations, content), 1.0, 2.0)
    assert made is not None
    found = typed(Combinations, made).anyone
    assert found.tool == pytest.approx(expected.anyone.tool)
    assert found.intercept == pytest.approx(expected.anyone.intercept)
    assert workflow._combinations(bundle, None, joint) is None
    without = replace(bundle, metadata={**bundle.metadata, "combinations": None})
    assert workflow._combinations(without, before, joint) is None


def test_training_regions_get_the_probabilities_of_the_site(bundle: Bundle) -> None:
    before = joint_of(bundle, None)
    assert before is not None
    joint = before.recalibrated(data_of(results_of(30)))
    moved = workflow._moved_training(bundle, joint)
    data, _ = evidence(bundle.training, bundle.training["out_of_fold"].to_numpy(float))
    np.testing.assert_array_equal(moved["out_of_fold_probability"], joint.predict(data).probability)
    exact = bundle.training[[*EVIDENCE, "out_of_fold"]]
    narrow = workflow._moved_training(replace(bundle, training=exact), joint)
    np.testing.assert_array_equal(
        narrow["out_of_fold_probability"], moved["out_of_fold_probability"]
    )
    older = bundle.training.drop(columns="psa_density")
    assert workflow._moved_training(replace(bundle, training=older), joint) is older


@pytest.mark.parametrize(
    ("decision", "regions", "men"),
    [
        (DecisionSettings(), False, False),
        (DecisionSettings(aim_npv=0.8), True, False),
        (DecisionSettings(aim_ppv=0.8), True, False),
        (DecisionSettings(aim_npv=0.8, man_npv=0.6), True, True),
    ],
)
def test_what_a_recalibration_writes(
    bundle: Bundle, tmp_path: Path, decision: DecisionSettings, regions: bool, men: bool
) -> None:
    results = results_of(40)
    # Of the first man one region is benign and one unknown, of the second both are unknown.
    results.loc[0, "truth"] = 0.0
    results.loc[[1, 2, 3], "truth"] = UNKNOWN
    loaded, judged = run_of(decision, results, bundle)
    report = recalibrate(bundle, loaded, judged, tmp_path / "moved")
    assert report["sites"] == "A, B"
    assert report["of_training"] == 2
    assert report["simulated"] is False
    assert len(report["text"]) == 2 + regions + men
    moved = load_bundle(tmp_path / "moved")
    names = [f"sub-{i:02}" for i in range(40)]
    # The benign region of the first man taught the model, though he himself is of unknown truth.
    assert moved.metadata["recalibrated_on"] == [names[0], *names[2:]]
    assert moved.metadata["recalibration"] == report
    before = joint_of(bundle, None)
    assert before is not None
    data = data_of(results)
    joint = joint_of(moved, None)
    assert joint is not None
    np.testing.assert_array_equal(joint.estimate, before.recalibrated(data).estimate)
    after_regions, after_men = workflow._probabilities_left_out(before, data)
    patients = results["participant_id"].to_numpy(str)
    predicted = before.predict(data)
    assert report["regions"] == workflow._calibration_before_after(
        data.truth, predicted.probability, after_regions, patients
    )
    truth_of_men = data.histology_of_men()
    assert report["men"] == workflow._calibration_before_after(
        truth_of_men, predicted.man, after_men, np.array(names)
    )
    point = None
    if regions:
        point = choose_operating_point(data.truth, after_regions, patients, decision).as_dict()
    assert moved.metadata["operating_point"] == point
    man = None
    if men:
        assert decision.of_men is not None
        chosen = choose_operating_point(truth_of_men, after_men, np.array(names), decision.of_men)
        man = {"operating_point": chosen.as_dict()}
    assert moved.metadata["man"] == man


def test_a_model_without_histology_gets_its_first_joint_model(
    bundle: Bundle, tmp_path: Path
) -> None:
    untaught = replace(bundle, metadata={**bundle.metadata, "joint": None, "combinations": None})
    results = results_of(40)
    loaded, judged = run_of(DecisionSettings(), results, bundle)
    report = recalibrate(untaught, loaded, judged, tmp_path / "first")
    # Before, a region had its belief, and a man no number.
    assert report["regions"]["before"]["brier"] == pytest.approx(
        np.mean((results["belief"] - results["truth"]) ** 2)
    )
    assert report["men"]["before"] is None
    assert report["men"]["after"] is not None
    with pytest.raises(CadError, match="is recalibrated already"):
        recalibrate(load_bundle(tmp_path / "first"), loaded, judged, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_moved_model_keeps_everything_else(bundle: Bundle, tmp_path: Path) -> None:
    report = {"simulated": True, "sites": "A", "of_training": 0, "text": ["- a line"]}
    outcome = {"man": {"operating_point": None}, "recalibrated_on": ["sub-1"]}
    save_recalibrated(tmp_path / "moved", bundle, bundle.training, outcome, report)
    moved = load_bundle(tmp_path / "moved")
    for name, value in bundle.metadata.items():
        if name != "man":
            assert moved.metadata[name] == value, name
    assert moved.metadata["man"] == {"operating_point": None}
    np.testing.assert_allclose(
        moved.reference_probability, bundle.reference_probability, atol=1e-12
    )
    assert "- a line" in (tmp_path / "moved" / "README.md").read_text()


def test_a_wrapper_of_an_earlier_version_moves_the_log_odds() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = (X[:, 0] + rng.normal(size=40) > 0) * 1
    learner = LogisticRegression().fit(X, y)
    moved = Recalibrated(learner, -0.5, 2.0)
    q = learner.predict_proba(X)[:, 1]
    p = expit(-0.5 + 2 * logit(q))
    assert moved.__sklearn_is_fitted__()
    np.testing.assert_allclose(moved.predict_proba(X), np.column_stack([1 - p, p]))
    np.testing.assert_array_equal(moved.decision_function(X), learner.decision_function(X))
    again = Recalibrated(LogisticRegression(), 0.0, 1.0).fit(X, y)
    np.testing.assert_allclose(again.predict_proba(X)[:, 1], q)
