"""The card of a model: what it says of each fact of the metadata, word by word."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from cad.base.files import JsonObject
from cad.run.model.card import card

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def meta() -> JsonObject:
    """Return the metadata of a released model, for the test to change."""
    path = ROOT / "models" / "phantom-psvm" / "metadata.json"
    return dict(copy.deepcopy(json.loads(path.read_text(encoding="utf-8"))))


def lines_of(meta: JsonObject, heading: str) -> list[str]:
    """Return the lines of one section of the card, without empty ones."""
    section = card(meta).split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line]


def test_training_by_hand(meta: JsonObject) -> None:
    meta["training"] |= {
        "simulated": False,
        "label_kinds": {"certain_negative": 4, "two_sided": 2},
        "unlabelled_rows": 3,
        "detected": 5,
        "withdrawn": 1,
        "sites": {"A|B": 7},
    }
    meta["features"] = ["adc_mean", "t2w_mean"]
    meta["preparation"]["text"] = ["T2 is prepared so"]
    meta["joint"]["taught"] |= {
        "prevalence_of_men": None,
        "prevalence_of_regions": 0.125,
        "regions": 16,
    }
    meta["joint"]["notes"] = ["a note"]
    lines = lines_of(meta, "Training")
    assert lines[0].startswith("- 150 real patients, 1061 regions: 53 malignant, 1008 benign, 0")
    assert lines[1:6] == [
        "- what the learner was told: certain_negative 4, two_sided 2",
        "- 3 regions without a label joined the fit",
        "- 5 regions were outlined by a detector, not by a reader",
        "- 1 patient has withdrawn: nothing here was learned from them",
        "- sites: A\\|B 7",
    ]
    assert lines[8:12] == [
        "- 2 features from adc, dce, t2w",
        "- T2 is prepared so",
        "- prevalence: unknown of men, 0.12 of 16 regions with histology",
        "- a note",
    ]
    meta["training"] |= {"withdrawn": 2, "sites": {}, "label_kinds": None, "detected": 0}
    meta["training"]["unlabelled_rows"] = 0
    meta["joint"]["taught"]["prevalence_of_men"] = 0.25
    lines = lines_of(meta, "Training")
    assert lines[1:3] == [
        "- 2 patients have withdrawn: nothing here was learned from them",
        "- sites: not stated",
    ]
    assert "- prevalence: 0.25 of men, 0.12 of 16 regions with histology" in lines


def test_a_model_of_a_table_without_histology(meta: JsonObject) -> None:
    meta |= {"joint": None, "table": {}, "features": ["a|b", "c"], "typicality": None}
    meta["carries_training_rows"] = False
    meta["training"]["simulated"] = False
    text = card(meta)
    assert "**Research use only.**\n" in text
    assert "2 columns of a table, whose owner knows how they were measured: a\\|b, c\n" in text
    assert "- no histology: the numbers are what readers would say" in text
    assert "no training region's row.\n" in text
    assert "Too few patients to say which new regions" in text


def test_tables_of_measures_and_rivals_by_hand(meta: JsonObject) -> None:
    measures = meta["validation"]["histology"]["measures"]
    measures["accuracy"] = {"value": 0.75, "lower": 0.5, "upper": 1.0}
    meta["validation"]["histology"]["auc"] = {"value": 0.8, "lower": 0.7, "upper": 0.9}
    meta["validation"]["consensus"] = None
    rival = {"learner": "a|b", "against": "readers", "measure": "kl", "value": 12.34}
    worse = {**rival, "learner": "other", "measure": "auc"}
    meta["validation"]["rivals"]["table"] = [
        {**rival, "difference": None, "lower": None, "upper": None},
        {**worse, "difference": None, "lower": None, "upper": None},
        {**rival, "difference": 1.5, "lower": 1.25, "upper": 2.0},
    ]
    lines = lines_of(meta, "Validation")
    assert lines[1].startswith("| against | AUC | Accuracy at .5 |")
    assert lines[2] == "| --- | --- | --- | --- | --- | --- |"
    assert lines[3].startswith("| histology | 0.800 [0.700, 0.900] | 0.750 [0.500, 1.000] |")
    assert lines[4:8] == [
        "| learner | against | measure | value | difference |",
        "| --- | --- | --- | --- | --- |",
        "| a\\|b | readers | Two-sided KL, sum, nats | 12.3 | – |",
        "| a\\|b | readers | Two-sided KL, sum, nats | 12.3 | 1.500 [1.250, 2.000] |",
    ]
    meta["validation"] |= {"histology": None, "rivals": None}
    assert not any(line.startswith("|") for line in lines_of(meta, "Validation"))


def test_a_recalibration_says_of_whom(meta: JsonObject) -> None:
    assert "## Recalibration" not in card(meta)
    site = {"simulated": False, "sites": "A|B", "of_training": 0, "text": ["- one", "- two"]}
    meta["recalibration"] = site
    assert lines_of(meta, "Recalibration") == ["Fitted to men of: A\\|B.", "- one", "- two"]
    meta["recalibration"] = {**site, "simulated": True, "of_training": 2}
    meta["recalibrated_on"] = ["sub-1"]
    assert lines_of(meta, "Recalibration")[0] == (
        "Fitted to SIMULATED men of: A\\|B. 2 carry an id of the training: were they in it, all of "
        "this is too good. The bundle lists their labels in the cohort, as it does those of the "
        "training, for removals."
    )
