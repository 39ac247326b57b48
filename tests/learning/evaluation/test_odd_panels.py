"""From readers' scores to every number, for panels and histology that lack something."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import LabelSettings
from cad.learners import AveragedProbabilisticSVC
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.folds.paired import READERS, compare_with_rivals
from cad.learning.evaluation.summary import summarise
from cad.learning.labels.consensus import malignant, reader_labels, reader_probabilities
from cad.learning.learners.rivals import SoftLogistic

PATIENTS, REGIONS = 12, 4
SETTINGS = LabelSettings()
KEY = ["participant_id", "roi_id"]


def cohort() -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """Return features, regions with histology, and five-point scores of three readers."""
    rng = np.random.default_rng(4)
    n = PATIENTS * REGIONS
    severity = rng.normal(size=n)
    isup = np.where(severity > 0.4, 2, 0)
    rois = pd.DataFrame(
        {
            "participant_id": np.repeat([f"sub-{i:02d}" for i in range(PATIENTS)], REGIONS),
            "roi_id": [str(i % REGIONS + 1) for i in range(n)],
            "histology": np.where(isup > 0, "malignant", "benign").astype(object),
            "isup": isup.astype(float),
        }
    )
    given = np.digitize(severity[:, None] + 0.5 * rng.normal(size=(n, 3)), [-1, -0.3, 0.3, 1]) + 1.0
    scores = pd.concat(
        [
            rois[KEY].assign(reader_id=f"r{j + 1}", scale="likert5", score=given[:, j])
            for j in range(3)
        ],
        ignore_index=True,
    )
    X = np.column_stack([severity, rng.normal(size=n)]) + 0.4 * rng.normal(size=(n, 2))
    return X, rois, scores


def measured(
    X: np.ndarray, rois: pd.DataFrame, scores: pd.DataFrame
) -> tuple[dict[str, object], pd.DataFrame]:
    """Return the content of metrics.json and the rivals' table, patients left out in turn."""
    names = sorted(scores["reader_id"].unique())
    readers = pd.DataFrame({"reader_id": names, "expert": False})
    labels = reader_labels(scores, rois, readers, SETTINGS)
    truth, p = malignant(rois), labels["p"].to_numpy(float)
    learner = AveragedProbabilisticSVC(C=3.0, gamma=0.3)
    y, groups, eta = labels["y"].to_numpy(float), rois["participant_id"], labels["eta"]
    folds = out_of_fold(learner, X, y, groups=groups, eta=eta)
    frame = rois[KEY].assign(probability=folds.probability, truth=truth, p=p)
    given = reader_probabilities(scores, rois, SETTINGS)
    found = summarise(frame, reader_scores=given, folds=folds, bootstraps=20).as_dict()
    json.dumps(found, allow_nan=False)
    rivals = {"logistic": SoftLogistic()}
    compared = compare_with_rivals(
        "own", folds.probability, rivals, X, y, groups, eta=eta, truth=truth
    )
    assert compared.sentence
    return found, compared.table


def test_one_reader_is_measured_and_never_compared_with_others() -> None:
    X, rois, scores = cohort()
    found, _ = measured(X, rois, scores[scores["reader_id"] == "r1"])
    assert list(found["readers"]) == ["r1"]
    assert found["ceiling"]["against_others"] == {}
    assert found["ceiling"]["share"]["value"] is None
    assert list(found["assisted"]["readers"]) == ["r1"]
    assert found["assisted"]["test"] is None


def test_readers_who_always_agree_leave_no_scatter() -> None:
    X, rois, scores = cohort()
    first = scores.loc[scores["reader_id"] == "r1", "score"].to_numpy()
    found, _ = measured(X, rois, scores.assign(score=np.tile(first, 3)))
    assert found["ceiling"]["share"]["value"] == 0
    assert all(part["brier"] == 0 for part in found["ceiling"]["against_others"].values())


def test_binary_reads_are_learned_from() -> None:
    X, rois, scores = cohort()
    binary = scores.assign(score=np.where(scores["score"] > 3, 5.0, 1.0))
    found, table = measured(X, rois, binary)
    assert found["n"]["predicted"] == len(rois)
    assert found["consensus"]["auc"]["value"] > 0.7
    assert not table["note"].any()


def test_a_reader_with_two_scores_costs_nobody_a_number() -> None:
    X, rois, scores = cohort()
    few = scores[(scores["reader_id"] != "r3") | (scores.index % (PATIENTS * REGIONS) < 2)]
    found, _ = measured(X, rois, few)
    assert found["readers"]["r3"]["n"] == 2
    assert found["readers"]["r1"]["auc"]["value"] > 0.7
    assert found["ceiling"]["against_others"]["r3"]["n"] == 2


@pytest.mark.parametrize("known", ["none", "one", "benign only"])
def test_little_histology_leaves_the_readers_and_says_what_is_missing(known: str) -> None:
    X, rois, scores = cohort()
    keep = {
        "none": np.zeros(len(rois), bool),
        "one": np.arange(len(rois)) == 0,
        "benign only": (rois["histology"] == "benign").to_numpy(),
    }[known]
    rois = rois.assign(
        histology=rois["histology"].where(keep, None), isup=rois["isup"].where(keep, np.nan)
    )
    found, table = measured(X, rois, scores)
    assert found["consensus"]["auc"]["value"] > 0.7
    assert found["assisted"] is None
    assert found["assisted_note"]
    assert found["cad_vs_readers"] is None
    assert found["ceiling"]["auc"]["value"] is None
    assert found["ceiling"]["share"]["value"] > 0
    against = set(table["against"])
    assert against == ({"readers"} if known == "none" else {"readers", "histology"})
    if known != "none":
        assert found["histology"]["auc"]["value"] is None
        assert any("not enough regions" in text for text in found["warnings"])
        own = table[(table["against"] == "histology") & (table["measure"] == "auc")]
        assert own["value"].isna().all()
        assert READERS in set(own["learner"])
    else:
        assert found["histology"] is None


def test_mixed_scales_meet_as_probabilities() -> None:
    X, rois, scores = cohort()
    same, _ = measured(X, rois, scores)
    other = scores["reader_id"] == "r2"
    mixed = scores.assign(
        scale=np.where(other, "likert01", scores["scale"]),
        score=np.where(other, (scores["score"] - 1) / 4, scores["score"]),
    )
    assert measured(X, rois, mixed)[0]["consensus"] == same["consensus"]
