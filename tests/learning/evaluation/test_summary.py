"""metrics.json: its promised structure, its numbers, and every kind of difficult input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from cad.base.files import json_safe
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions.costs import measure_decisions
from cad.learning.evaluation.decisions.patient_level import PatientLevel
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.summary import (
    MeasuredDecisions,
    Summary,
    metrics_content,
    summarise,
)


def run(
    seed: int = 0, patients: int = 15, rois: int = 6
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    n = patients * rois
    truth = (rng.random(n) < 0.35).astype(float)
    X = truth[:, None] * [1.2, 0.6] + rng.normal(size=(n, 2))
    levels = np.clip(np.round(2 * truth[:, None] + 1 + rng.normal(size=(n, 3))), 0, 4) / 4
    frame = pd.DataFrame(
        {
            "participant_id": np.repeat([f"sub-{i:02d}" for i in range(patients)], rois),
            "roi_id": np.tile(np.arange(rois).astype(str), patients),
            "truth": truth,
            "p": levels.mean(axis=1),
            "label_kind": np.where(levels.mean(axis=1) > 0.6, "two_sided", "one_sided"),
        }
    )
    scores = pd.concat(
        [
            frame[["participant_id", "roi_id"]].assign(reader_id=f"r{j}", probability=levels[:, j])
            for j in range(3)
        ]
    )
    return frame, scores, X


def predicted(frame: pd.DataFrame, X: np.ndarray) -> tuple[pd.DataFrame, Any]:
    folds = out_of_fold(
        LogisticRegression(), X, frame["truth"], groups=frame["participant_id"].to_numpy()
    )
    return frame.assign(probability=folds.probability, decision_value=folds.decision), folds


def test_structure_and_numbers() -> None:
    frame, scores, X = run()
    frame, folds = predicted(frame, X)
    y, q, p = (frame[c].to_numpy() for c in ("truth", "probability", "p"))
    found = summarise(frame, reader_scores=scores, folds=folds, bootstraps=50).as_dict()
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text) == found == Summary.from_dict(json.loads(text)).as_dict()
    assert found["n"]["rois"] == found["n"]["predicted"] == 90
    assert found["label_kinds"] == frame["label_kind"].value_counts().to_dict()
    block = found["histology"]
    assert block["auc"]["value"] == pytest.approx(roc_auc_score(y, q))
    assert block["auc"]["lower"] < block["auc"]["value"] < block["auc"]["upper"]
    assert block["measures"]["brier"]["value"] == pytest.approx(metrics.brier(y, q))
    assert [point["threshold"] for point in block["operating_points"]] == pytest.approx(
        [0.1, 0.5, 0.6]
    )
    point = block["operating_points"][1]
    assert point["tp"] + point["fp"] + point["tn"] + point["fn"] == 90
    assert point["sensitivity"]["value"] == pytest.approx(np.mean(q[y == 1] > 0.5))
    readers = found["consensus"]
    truth, ties = metrics.consensus_truth(p)
    assert readers["ties"] == ties > 0
    assert readers["measures"]["kl"]["value"] == pytest.approx(metrics.kl(p, q))
    assert readers["auc"]["value"] == pytest.approx(roc_auc_score(truth, q))
    assert found["reject"]["against"] == "histology"
    assert len(found["folds"]) == 15


def test_rates_by_hand_and_as_decisions_state_them() -> None:
    y = np.array([1.0, 1, 1, 0, 0, 0, 0, 0])
    q = np.array([0.9, 0.6, 0.2, 0.7, 0.5, 0.3, 0.1, 0.1])
    patients = np.array(list("aabbccdd"))
    frame = pd.DataFrame(
        {"participant_id": patients, "roi_id": "1", "probability": q, "truth": y, "p": y}
    )
    block = summarise(frame, bootstraps=0).as_dict()["histology"]
    point = block["operating_points"][1]
    assert [point[cell] for cell in ("tp", "fp", "tn", "fn")] == [2, 1, 4, 1]
    rates = {name: point[name]["value"] for name in ("sensitivity", "specificity", "ppv", "npv")}
    assert rates == pytest.approx(
        {"sensitivity": 2 / 3, "specificity": 4 / 5, "ppv": 2 / 3, "npv": 4 / 5}
    )
    words = np.where(q > 0.5, "malignant", "benign")
    stated = measure_decisions(words, y, patients, DecisionSettings(), after_histology=False)
    assert stated.npv is not None
    assert stated.ppv is not None
    for name, value in (("npv", stated.npv), ("ppv", stated.ppv)):
        assert json_safe(value) == point[name]


def _lists(value: object) -> list[list[object]]:
    if isinstance(value, dict):
        return [found for part in value.values() for found in _lists(part)]
    if isinstance(value, list):
        return [value, *(found for part in value for found in _lists(part))]
    return []


def test_no_measure_holds_a_value_of_every_region_or_patient() -> None:
    frame, scores, X = run()
    frame, _ = predicted(frame, X)
    frame, scores = frame.iloc[:-3], scores[scores["roi_id"].isin(frame["roi_id"])]
    found = summarise(frame, reader_scores=scores, bootstraps=5)
    sizes = {len(one) for one in _lists(found.as_dict())}
    assert sizes  # curves are lists
    assert len(frame) not in sizes
    assert frame["participant_id"].nunique() not in sizes
    rows = found.rows
    assert rows is not None
    assert rows.p_benign.shape == rows.p_malignant.shape == (len(frame),)
    assert rows.with_tool.shape == (len(frame), scores["reader_id"].nunique())


def test_readers_beside_the_machine() -> None:
    frame, scores, X = run()
    frame, _ = predicted(frame, X)
    found = summarise(frame, reader_scores=scores, bootstraps=0).as_dict()
    wide = scores.pivot(
        index=["participant_id", "roi_id"], columns="reader_id", values="probability"
    )
    wide = wide.reindex(pd.MultiIndex.from_frame(frame[["participant_id", "roi_id"]]))
    one = found["readers"]["r1"]
    assert one["auc"]["value"] == pytest.approx(roc_auc_score(frame["truth"], wide["r1"]))
    assert one["cad_auc"]["value"] == found["histology"]["auc"]["value"]
    # A reader is left out of the consensus that he is compared with.
    others, ties = metrics.consensus_truth(wide[["r0", "r2"]].mean(axis=1))
    assert one["consensus_of_others"]["ties"] == ties
    assert one["consensus_of_others"]["auc"]["value"] == pytest.approx(
        roc_auc_score(others, wide["r1"])
    )
    assert len(found["agreement"]["kappa"]) == 3
    beside = found["cad_vs_readers"]
    assert beside["difference"] == pytest.approx(beside["cad_auc"] - np.mean(beside["reader_aucs"]))
    assert found["histology"]["measures"]["brier"]["lower"] is None  # no bootstrap asked for


def test_histology_missing_for_some_and_a_reader_with_one_score() -> None:
    frame, scores, X = run()
    frame, _ = predicted(frame, X)
    frame.loc[:29, "truth"] = np.nan
    scores = pd.concat(
        [scores, scores.iloc[[80]].assign(reader_id="r9", probability=0.5)], ignore_index=True
    )
    found = summarise(frame, reader_scores=scores, bootstraps=20).as_dict()
    assert found["histology"]["n"] == 60
    assert found["histology"]["unknown"] == 30
    assert any("histology is known for 60 of 90" in text for text in found["warnings"])
    assert found["readers"]["r9"]["n"] == 1
    assert found["readers"]["r9"]["auc"]["value"] is None
    assert found["cad_vs_readers"] is None
    assert "lack a class" in found["cad_vs_readers_note"]
    json.dumps(found, allow_nan=False)


def test_no_histology_at_all() -> None:
    frame, scores, X = run()
    frame, _ = predicted(frame, X)
    found = summarise(frame.assign(truth=np.nan), reader_scores=scores, bootstraps=10).as_dict()
    assert found["histology"] is None
    assert found["conformal"] is None
    assert found["reject"]["against"] == "readers"
    assert found["consensus"]["n"] == 90
    neither = summarise(frame.assign(truth=np.nan, p=np.nan), bootstraps=10).as_dict()
    assert neither["consensus"] is None
    assert neither["reject"] is None
    assert neither["readers"] == {}


def test_equal_probabilities_one_class_and_few_patients() -> None:
    frame, _, _ = run(patients=6)
    found = summarise(frame.assign(probability=0.3), bootstraps=20).as_dict()
    assert found["histology"]["auc"]["value"] == 0.5
    assert found["histology"]["measures"]["calibration_slope"]["value"] is None
    assert any("all probabilities are equal" in text for text in found["histology"]["warnings"])
    assert any("fewer than 10" in text for text in found["warnings"])
    single = summarise(frame.assign(probability=0.3, truth=0.0), bootstraps=20).as_dict()
    assert single["histology"]["auc"]["value"] is None
    (said,) = single["histology"]["warnings"]
    n = len(frame)
    assert said.startswith(f"not enough regions: 0 malignant (patients: 0) and {n} benign")
    assert f"against histology: {said}" in single["warnings"]
    assert single["conformal"] is None


def test_a_curve_needs_two_patients_of_each_class() -> None:
    frame, _, X = run()
    frame, _ = predicted(frame, X)
    curves = ("roc", "precision_recall", "calibration_curve", "decision_curve")
    only = frame["truth"].where(frame["participant_id"] == frame["participant_id"].iloc[0])
    assert only.nunique() == 2
    found = summarise(frame.assign(truth=only), bootstraps=20).as_dict()
    block = found["histology"]
    assert [block[name] for name in curves] == [None] * 4
    assert "not enough regions" in block["warnings"][0]
    # One patient is drawn again and again: no interval, rather than one of width 0.
    for part in (block["auc"], block["auc_bootstrap"], *block["measures"].values()):
        assert (part["lower"], part["upper"]) == (None, None)
    assert all(found["consensus"][name] for name in curves)
    assert found["reject"]["against"] == "readers"
    lonely = summarise(frame.iloc[:1], bootstraps=20).as_dict()
    assert lonely["reject"] is None
    assert "not enough regions" in lonely["histology"]["warnings"][0]


def test_failed_folds_and_learners_without_probability() -> None:
    frame, _, X = run()
    frame, _ = predicted(frame, X)
    frame.loc[:5, "probability"] = np.nan
    found = summarise(frame, bootstraps=10).as_dict()
    assert found["n"]["not_predicted"] == found["histology"]["not_predicted"] == 6
    assert "6 of 90 ROIs have no prediction" in found["warnings"]
    ranker = summarise(frame.assign(probability=np.nan), bootstraps=10).as_dict()
    block = ranker["histology"]
    assert block["auc"]["value"] == pytest.approx(
        roc_auc_score(frame["truth"], frame["decision_value"])
    )
    assert block["measures"]["brier"]["value"] is None
    assert block["calibration_curve"] is None
    assert ranker["reject"] is None


def test_costs_move_the_operating_points() -> None:
    frame, _, X = run()
    frame, _ = predicted(frame, X)
    decision = DecisionSettings(
        false_positive=1, false_negative=2, refer_negative=0.3, refer_positive=0.3
    )
    found = summarise(frame, decision=decision, bootstraps=0).as_dict()
    assert found["thresholds"] == pytest.approx({"lower": 0.15, "upper": 0.7})


def test_json_safe_knows_every_type() -> None:
    value = {"a": np.float64("nan"), 2: (np.int64(3), np.bool_(True)), "c": np.array([1.0, np.inf])}
    assert json_safe(value) == {"a": None, "2": [3, True], "c": [1.0, None]}


def test_measures_of_decisions_stand_among_the_others() -> None:
    words = np.array(["benign", "malignant", "refer"])
    stated = measure_decisions(
        words, np.array([0.0, 1, 1]), words, DecisionSettings(), after_histology=False
    )
    decisions = MeasuredDecisions({"stated": stated}, {"n": 3, "benign": {"n": 1}}, waiting=2)
    content = metrics_content(Summary(patient_level=PatientLevel(n=3)), decisions)
    read = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    assert read["n"]["waiting"] == 2
    assert read["patient_level"]["n"] == 3
    assert read["patient_level"]["decisions"] == {"n": 3, "benign": {"n": 1}}
    assert read["decisions"]["stated"]["scored"] == 3
    back = MeasuredDecisions.from_dict(read)
    assert json_safe(back) == json_safe(decisions)
    assert Summary.from_dict(read).as_dict() == json.loads(
        json.dumps(Summary(patient_level=PatientLevel(n=3)).as_dict())
    )
    # A run without measures of men has no place for the decisions on them.
    assert metrics_content(Summary(), decisions)["patient_level"] is None
    assert MeasuredDecisions.from_dict({}) == MeasuredDecisions()
