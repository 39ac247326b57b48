"""Men: one row each, decided once by their own probability; what speaks against is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.folders.cohort import read_cohort
from cad.folders.run_folder.results import read_results
from cad.learning.evaluation.decisions.patient_level import PatientLevel
from cad.learning.evaluation.summary import MeasuredDecisions, Summary
from cad.run.stages.decide import decide_men, measure_decisions_on_men


def man(p: float, truth: float = np.nan) -> pd.DataFrame:
    row = {"probability": p, "truth": truth, "lower": 0.1}
    return pd.DataFrame([row], index=pd.Index(["sub-1"], name="participant_id"))


def regions(*words: str, mean: float = 0.2, reason: str = "") -> pd.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "participant_id": "sub-1",
            "probability": 0.3,
            "decision": word,
            "readers_mean": mean,
            "decision_reason": reason,
        }
        for word in words
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("p", "rows", "decision", "reason"),
    [
        (0.04, regions("benign", "benign"), "benign", ""),
        # He never goes further than his regions: without a target he is not malignant.
        (0.8, regions("refer", "refer"), "refer", ""),
        (0.8, regions("benign", "benign"), "refer", ""),
        (0.04, regions("benign", "refer"), "refer", ""),
        (0.1, regions("benign", "benign"), "refer", ""),
        # A target is one whatever his own number is.
        (0.04, regions("benign", "malignant"), "malignant", ""),
        (0.04, regions("benign", mean=0.8), "refer", "the readers suspect a region"),
        # Without a probability of his own the regions decide.
        (np.nan, regions("benign", "malignant"), "malignant", ""),
        (np.nan, regions("benign", "refer"), "refer", ""),
        (np.nan, regions("benign"), "benign", ""),
        # Where no region has a decision he has none.
        (0.04, regions("", ""), "", ""),
    ],
)
def test_a_man_never_goes_further_than_his_regions(
    p: float, rows: pd.DataFrame, decision: str, reason: str
) -> None:
    row = decide_men(man(p), rows, []).iloc[0]
    assert row["decision"] == decision
    assert row["decision_reason"] == reason
    basis = ""
    if decision:
        basis = "regions" if np.isnan(p) else "probability"
    assert row["basis"] == basis


def test_a_failure_and_histology_withdraw() -> None:
    assert decide_men(man(0.04), regions("benign"), ["sub-1"]).iloc[0]["decision"] == "refer"
    wrong = decide_men(man(0.04, 1.0), regions("benign"), [])
    assert wrong.iloc[0]["decision_reason"] == "histology found cancer"
    right = decide_men(man(0.04, 0.0), regions("benign"), [])
    assert right.iloc[0]["decision"] == "benign"
    target = decide_men(man(0.8, 0.0), regions("malignant"), [])
    assert target.iloc[0]["decision"] == "refer"
    assert target.iloc[0]["decision_reason"] == "histology found no such cancer"
    # Predictive values are counted before histology is looked at.
    content = measure_decisions_on_men(pd.concat([wrong, right]))
    assert content["benign"] == {"n": 2, "known": 2, "right": 1}
    assert content["malignant"] == {"n": 0, "known": 0, "right": 0}


def test_a_run_has_one_row_a_man(run_folder: Path) -> None:
    results = read_results(run_folder)
    assert set(results.men) == {region.patient for region in results.regions}
    for region in results.regions:
        own = results.men[region.patient]
        assert region.patient_decision == own.decision
        assert region.patient_probability == own.probability
    order = [m.probability for m in results.men.values() if m.probability is not None]
    assert order == sorted(order, reverse=True)


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("psa", "0", "psa 0 is no man's"),
        ("psa", "-3", "psa -3 is no man's"),
        ("psa", "4,5", "psa 4,5 is no man's"),
        ("psa", "1e9", "psa 1e9 is no man's"),
        ("psa", "inf", "psa inf is no man's"),
        ("age", "730", "age 730 is no man's"),
        ("age", "-3", "age -3 is no man's"),
        ("prostate_volume", "0", "prostate_volume 0 is no man's"),
        ("psa_density", "7", "psa_density 7 contradicts psa 8 / prostate_volume 40 = 0.2 ng/mL2"),
    ],
)
def test_what_no_man_can_have_costs_that_man(
    light_cohort: Path, tmp_path: Path, column: str, cell: str, said: str
) -> None:
    root = tmp_path / "cohort"
    root.mkdir()
    for path in light_cohort.iterdir():
        (root / path.name).symlink_to(path)
    people = pd.read_csv(root / "participants.tsv", sep="\t", dtype=str)
    people = people.assign(age="66", psa="8", prostate_volume="40", psa_density="0.2")
    people.loc[1, column] = cell
    (root / "participants.tsv").unlink()
    people.to_csv(root / "participants.tsv", sep="\t", index=False)
    cohort = read_cohort(root)
    assert cohort.participants["psa"].dtype == float
    problems = [p for p in cohort.problems if p.problem.startswith(column)]
    assert [p.patient for p in problems] == [people.loc[1, "participant_id"]]
    assert said in problems[0].problem
    assert problems[0].patient not in {ref.participant_id for ref in cohort.studies()}


def test_drift_is_told_over_the_last_men_beside_the_promise() -> None:
    table = pd.concat([man(0.04, 0.0)] * 150 + [man(0.3, 1.0)] * 50)
    decided = table.assign(decision_before_histology=["benign"] * 150 + ["refer"] * 50)
    decided.index = pd.Index([f"sub-{i}" for i in range(200)], name="participant_id")
    last = measure_decisions_on_men(decided)["lately"]
    assert (last["n"], last["decided"], last["known"]) == (100, 0.5, 100)
    p = np.r_[np.full(50, 0.04), np.full(50, 0.3)]
    assert last["intercept"] > 1.0  # far more cancer than the probabilities say
    assert last["error"] == pytest.approx(1 / np.sqrt(np.sum(p * (1 - p))))


def test_the_closing_line_says_what_was_promised() -> None:
    from cad.run.reports.printed import _drift

    last = {"n": 100, "decided": 0.5, "known": 80, "intercept": 0.3, "error": 0.1}
    said = PatientLevel(promised_share=0.45)
    decisions = MeasuredDecisions(men={"lately": last})
    assert _drift(Summary(patient_level=said), decisions) == [
        "last 100 men by id: 50% decided (45% at the training); calibration in the large "
        "+0.30 ± 0.20 over 80 with histology"
    ]
    silent = Summary(patient_level=replace(said, promised_share=None))
    assert _drift(silent, decisions) == []
