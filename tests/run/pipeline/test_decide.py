"""The decision on a region, at the limits of each rule and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import DecisionSettings
from cad.run.stages.decide import (
    SIMULATED_TRAINING,
    SUSPICIOUS,
    UNSEEN,
    _with_warning,
    decide_men,
    decide_regions,
    measure_decisions_on_men,
    measures_of_decisions,
)
from tests.run.pipeline.test_risk import judged_men, regions

BENIGN, MALIGNANT = 0.05, 0.9


def region(probability: float, scores: tuple[float, ...] = (), **cells: Any) -> dict[str, Any]:
    """A region with its readers' probabilities; nothing else is known of it."""
    mean = np.nan
    if scores:
        mean = float(np.mean(scores))
    values = "; ".join(f"r{number}={score:g}" for number, score in enumerate(scores, 1))
    return {
        "participant_id": "sub-1",
        "probability": probability,
        "belief": probability,
        "readers_mean": mean,
        "reader_values": values,
        "truth": np.nan,
        **cells,
    }


def stated(row: dict[str, Any], withheld: tuple[str, ...] = ()) -> Any:
    """Decide on one region, benign below .1 and malignant above .6."""
    return decide_regions(pd.DataFrame([row]), np.array([0.1]), np.array([0.6]), withheld).iloc[0]


@pytest.mark.parametrize(
    ("belief", "mean", "word"),
    [
        (0.5, 0.5, "agree"),
        (0.5, 0.7421875, "agree"),
        (0.5, 0.75, "apart"),  # one step of a five-point scale
        (0.5, 0.7578125, "apart"),
        (0.25, 0.7421875, "apart"),
        (0.25, 0.75, "far apart"),  # two steps
        (0.75, 0.2421875, "far apart"),
        (0.5, np.nan, ""),
    ],
)
def test_belief_and_readers_are_apart_from_one_step_and_far_from_two(
    belief: float, mean: float, word: str
) -> None:
    row = region(0.3, belief=belief, readers_mean=mean)
    assert stated(row)["apart"] == word


@pytest.mark.parametrize(
    ("scores", "word"),
    [
        ((0.25, 0.5), "agree"),
        ((0.25, 0.5078125), "differ"),
        ((0.25, 0.75), "differ"),
        ((0.25, 0.7578125), "are split"),
        ((0.25,), ""),
    ],
)
def test_readers_agree_within_one_step_and_differ_within_two(
    scores: tuple[float, ...], word: str
) -> None:
    assert stated(region(0.3, scores))["readers_agree"] == word


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        # At one half the readers suspect nothing and rule nothing out: the distance speaks.
        (
            region(MALIGNANT, (0.5, 0.5), belief=1.0),
            "the tool and the readers are far apart",
        ),
        (region(MALIGNANT, (0.5, 0.5), belief=0.9921875), ""),
        (region(BENIGN, (0.0, 0.74)), ""),
        (
            region(BENIGN, (0.0, 0.75)),
            "the tool does not suspect cancer, one reader does",
        ),
        (
            region(BENIGN, (0.75,)),
            "the tool does not suspect cancer, the reader does",
        ),
        (
            region(BENIGN, (0.75, 0.75)),
            "the tool does not suspect cancer, the readers on average do",
        ),
        (region(MALIGNANT, (0.25,)), "the tool suspects cancer, the reader does not"),
        (region(0.3, (1.0,)), ""),
        (region(BENIGN, truth=1.0), "histology found it malignant"),
        (region(BENIGN, truth=0.0), ""),
        (region(MALIGNANT, truth=0.0), "histology found it benign"),
        (region(MALIGNANT, truth=1.0), ""),
    ],
)
def test_what_speaks_against_a_decision(row: dict[str, Any], reason: str) -> None:
    decided = stated(row)
    assert decided["decision_reason"] == reason
    if reason:
        assert decided["decision"] == "refer"
    else:
        assert decided["decision"] == decided["decision_model"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (region(BENIGN, confidence=0.9), UNSEEN),
        (region(BENIGN, confidence=np.nan), ""),
        (region(BENIGN, confidence=None), ""),
        (region(BENIGN, (0.1,), confidence=0.9), ""),
        (region(MALIGNANT, confidence=0.9), ""),
    ],
)
def test_no_region_that_nobody_saw_is_benign(row: dict[str, Any], reason: str) -> None:
    assert UNSEEN == "outlined by a detector, seen by nobody"
    assert stated(row)["decision_reason"] == reason


def test_a_model_that_is_withheld_decides_nothing() -> None:
    row = region(MALIGNANT, (0.9,), model="m", p_benign=0.01, p_malignant=0.9)
    held = stated(row, withheld=("m",))
    assert (held["decision_model"], held["decision"]) == ("", "")
    assert held["decision_reason"] == SIMULATED_TRAINING
    assert held["plausible"] == ""
    assert held["suspicion"] == MALIGNANT
    other = stated(row, withheld=("another",))
    assert (other["decision"], other["plausible"]) == ("malignant", "malignant")


def test_a_model_of_simulated_patients_decides_after_thirty_real_men() -> None:
    """The sentence states the number that ``cad recalibrate`` asks for."""
    assert "recalibrating the model on 30 men with histology" in SIMULATED_TRAINING


def run_of(detected: bool = False, simulated: bool = True) -> Any:
    """A run on simulated regions; a detector may have drawn the first two, one of them scored."""
    rows = regions(11).assign(readers_mean=0.1)
    if detected:
        rows.loc[0, "readers_mean"] = np.nan
        rows["confidence"] = np.nan
        rows.loc[[0, 1], "confidence"] = 0.8
    return judged_men(rows, simulated_cohort=simulated)


def test_a_region_of_a_detector_that_no_reader_scored_has_a_warning() -> None:
    warnings = run_of(detected=True).results["warnings"]
    assert warnings[0] == UNSEEN
    assert (warnings[1:] == "").all()
    assert (run_of().results["warnings"] == "").all()


def test_only_a_model_that_is_withheld_has_the_note() -> None:
    assert run_of(simulated=False).notes == [SIMULATED_TRAINING]
    assert run_of(simulated=True).notes == []


@pytest.mark.parametrize(
    ("probability", "words", "decision", "reason", "basis"),
    [
        (np.nan, ["benign"], "benign", "", "regions"),
        (0.05, ["benign"], "benign", "", "probability"),
        (0.05, [""], "", SIMULATED_TRAINING, ""),
    ],
)
def test_a_man_says_on_what_his_decision_rests(
    probability: float, words: list[str], decision: str, reason: str, basis: str
) -> None:
    man = {"probability": probability, "truth": np.nan, "lower": 0.1}
    men = pd.DataFrame([man], index=pd.Index(["sub-1"], name="participant_id"))
    table = pd.DataFrame(
        {
            "participant_id": "sub-1",
            "probability": 0.05,
            "decision": words,
            "readers_mean": np.nan,
            # A region's reason becomes the man's only where he has no decision of his own.
            "decision_reason": SIMULATED_TRAINING,
        }
    )
    decided = decide_men(men, table, ()).loc["sub-1"]
    assert decided["decision"] == decision
    assert decided["decision_reason"] == reason
    assert decided["basis"] == basis


def test_a_man_without_a_region_has_no_decision_and_the_reason() -> None:
    cells = {"decision": "malignant", "decision_reason": ""}
    table = pd.DataFrame([region(0.9) | cells]).assign(participant_id="sub-1")
    men = pd.DataFrame(
        {"probability": [0.9, np.nan], "lower": 0.1, "truth": np.nan},
        index=pd.Index(["sub-1", "sub-2"], name="participant_id"),
    )
    decided = decide_men(men, table, ())
    assert decided["regions"].tolist() == [1, 0]
    assert decided["decision"].tolist() == ["malignant", ""]
    assert decided.at["sub-2", "decision_reason"] == "his latest study gave no result"
    assert decided["basis"].tolist() == ["probability", ""]


@pytest.mark.parametrize(
    ("grade", "decision"), [(SUSPICIOUS, "refer"), (SUSPICIOUS - 1e-9, "benign")]
)
def test_no_man_is_benign_whom_the_readers_mean_suspects(grade: float, decision: str) -> None:
    cells = {"decision": "benign", "decision_reason": "", "readers_mean": grade}
    table = pd.DataFrame([region(0.02) | cells]).assign(participant_id="sub-1")
    men = pd.DataFrame(
        {"probability": [0.02], "lower": 0.1, "truth": np.nan},
        index=pd.Index(["sub-1"], name="participant_id"),
    )
    assert decide_men(men, table, ()).at["sub-1", "decision"] == decision


def test_decisions_on_men_are_counted_by_hand() -> None:
    """Histology knows three men called malignant, two rightly, and two called benign, one so."""
    men = pd.DataFrame(
        {
            "decision_before_histology": ["malignant"] * 4 + ["benign"] * 3 + ["refer", ""],
            "truth": [1.0, 1.0, 0.0, np.nan, 0.0, 1.0, np.nan, 1.0, 1.0],
            "probability": 0.5,
        }
    )
    counts = measure_decisions_on_men(men)
    assert counts["n"] == 8
    assert counts["malignant"] == {"n": 4, "known": 3, "right": 2}
    assert counts["benign"] == {"n": 3, "known": 2, "right": 1}
    # Of the eight with a decision seven are decided; six have histology, each at one half.
    assert counts["lately"]["decided"] == 7 / 8
    assert counts["lately"]["known"] == 6
    assert counts["lately"]["error"] == pytest.approx(1 / np.sqrt(6 * 0.25))
    # Four of six are ill, so the log-odds of one half lie log(2) below.
    assert counts["lately"]["intercept"] == pytest.approx(np.log(2), abs=1e-6)


def test_no_predictive_value_is_stated_of_decisions_that_histology_changed() -> None:
    results = pd.DataFrame(
        {
            "participant_id": ["sub-1", "sub-2", "sub-3"],
            "truth": [0.0, 1.0, 0.0],
            "decision": ["benign", "refer", "benign"],
            "decision_before_histology": "benign",
            "decision_model": "benign",
        }
    )
    measured = measures_of_decisions(results, DecisionSettings())
    assert measured["stated"].npv is None
    assert measured["before_histology"].npv.value == pytest.approx(2 / 3)
    unchanged = results.assign(decision="benign")
    assert measures_of_decisions(unchanged, DecisionSettings())["stated"].npv is not None


def test_a_warning_is_put_behind_those_that_are_there() -> None:
    warnings = pd.Series(["", "far", "far", ""], index=[4, 5, 6, 7])
    joined = _with_warning(warnings, np.array([True, True, False, False]), "unseen")
    assert joined.to_dict() == {4: "unseen", 5: "far; unseen", 6: "far", 7: ""}


@pytest.mark.parametrize("probability", [BENIGN, MALIGNANT])
def test_an_image_that_may_lie_too_far_beside_t2_withdraws_the_decision(probability: float) -> None:
    text = "ADC may lie 10.1 mm beside T2"
    row = stated(region(probability, displaced=text))
    assert row["decision"] == "refer"
    assert row["decision_reason"] == text
    assert stated(region(probability, displaced=""))["decision"] != "refer"


def test_what_the_conformal_set_excludes_is_said_by_its_classes() -> None:
    """Neither class, or the other one alone: three sentences, and each withdraws the decision."""
    reasons = {}
    for name, decided, benign, malignant in (
        ("neither", MALIGNANT, 0.02, 0.03),
        ("not malignant", MALIGNANT, 0.5, 0.03),
        ("not benign", BENIGN, 0.02, 0.5),
    ):
        row = stated(region(decided, p_benign=benign, p_malignant=malignant))
        assert row["decision"] == "refer"
        reasons[name] = row["decision_reason"]
    assert "benign or malignant" in reasons["neither"]
    assert "malignant regions of the training looked so harmless" in reasons["not malignant"]
    assert "benign regions of the training looked so suspicious" in reasons["not benign"]
    allowed = stated(region(MALIGNANT, p_benign=0.02, p_malignant=0.5))
    assert allowed["decision"] == "malignant"
