"""Notes on data that break what intervals promise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.learning.evaluation.statements.promise import broken_promises, effective_patients
from cad.run.stages.validate import _cohort_warnings


def test_effective_patients_by_hand() -> None:
    assert effective_patients(list("aabbccdd")) == pytest.approx(4)
    assert effective_patients(["a"] * 6 + ["b", "c"]) == pytest.approx(64 / 38)


@pytest.mark.parametrize(
    ("patients", "p", "grades", "words"),
    [
        (["a"] * 4 + list("bbccdd"), [0.0, 1.0] * 5, None, "patient a holds 40%"),
        ([f"p{i // 4}" for i in range(100)], [1.0] + [0.0] * 99, None, "1.0% of the regions"),
        (list("abcdef"), [0.0, 1.0] * 3, None, "one region a patient"),
        (list("aabbccdd"), [0.25, 0.75] * 4, [[0.25], [0.75]] * 4, "one reader"),
        (list("aabbccdd"), [0, 0.5] * 4, [[0, 0], [0, 1]] * 4, "two answers"),
    ],
)
def test_each_is_said_and_nothing_else(
    patients: list[str], p: list[float], grades: list[list[float]] | None, words: str
) -> None:
    notes = broken_promises(patients, p, np.full(len(p), np.nan), grades)
    assert len(notes) == 2
    assert words in notes[1]


def test_sound_data_have_one_note() -> None:
    p, scores = [0.0, 0.5, 1.0, 1.0] * 4, [[0.0, 0.25], [1.0, 0.5]] * 8
    assert len(broken_promises(list("aaaabbbbccccdddd"), p, np.full(16, np.nan), scores)) == 1


def test_a_run_is_judged_by_its_own_regions_and_reader() -> None:
    """Rows of an earlier model come after the cohort's own, and none of them counts."""
    own = pd.DataFrame({"participant_id": list("aabbccdd"), "roi_id": ["1", "2"] * 4})
    earlier = pd.DataFrame({"participant_id": ["old"] * 40, "roi_id": [str(i) for i in range(40)]})
    keys = pd.concat([own, earlier], ignore_index=True)
    labels = keys.assign(p=[0.25, 0.75] * 4 + [0.0] * 40, truth=np.nan)
    grades = own.assign(reader_id="r1", probability=[0.25, 0.75] * 4)
    table = SimpleNamespace(labels=labels)
    aggregated: Any = SimpleNamespace(table=table, own_rows=8, grades=grades)
    constant = {"against": "readers", "measure": "kl", "learner": "constant", "lower": np.nan}
    notes = _cohort_warnings(aggregated, {"table": [constant]})
    assert notes[0] == "4 patients, effectively 4.0 of equal size"
    assert "one reader" in notes[1]
    assert "no better than a constant" in notes[2]
    assert len(notes) == 3
    aggregated.grades = pd.concat([grades, grades.assign(reader_id="r2")])
    better = {"table": [{**constant, "lower": 0.1}]}
    assert _cohort_warnings(aggregated, better) == notes[:1]


def test_labels_of_one_reader_quote_the_slopes_of_this_cohort() -> None:
    rows = pd.DataFrame(
        [
            {"against": against, "measure": "calibration_slope", "learner": learner, "value": value}
            for against, learner, value in (
                ("readers", "ours", 0.9),
                ("readers", "rival", 0.4),
                ("histology", "ours", 1.05),
            )
        ]
    ).assign(lower=np.nan)
    p = [0.25, 0.75] * 4
    notes = broken_promises(list("aabbccdd"), p, np.full(8, np.nan), np.array(p)[:, None], rows)
    assert notes[1] == (
        "labels of one reader: the calibration slope here is 0.90 to readers and 1.05 to "
        "histology; what other readers would say of these regions is not measured"
    )
