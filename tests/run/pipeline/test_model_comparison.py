"""`cad model compare` prints numbers a person can read, or why there are none."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from cad.learning.evaluation.measures.table import MEASURES
from cad.run.model.comparison import compare_runs, comparison_text


def _results(seed: int, truth: np.ndarray) -> pd.DataFrame:
    n = len(truth)
    probability = np.random.default_rng(seed).uniform(0.1, 0.9, n)
    return pd.DataFrame(
        {
            "participant_id": [f"sub-{i // 4}" for i in range(n)],
            "study_id": [f"sub-{i // 4}" for i in range(n)],
            "roi_id": [str(i) for i in range(n)],
            "truth": truth,
            "probability": probability,
            "decision": np.where(probability > 0.6, "malignant", "refer"),
        }
    )


def _text(truth: np.ndarray) -> list[str]:
    result = compare_runs(_results(0, truth), _results(1, truth), ("old", "new"))
    return comparison_text(result).splitlines()


def test_every_measure_is_a_line_of_numbers() -> None:
    lines = _text(np.tile([1.0, 0.0, 0.0], 8))
    assert lines[:3] == ["old (a)", "new (b)", "24 regions scored by both, 24 with histology"]
    number = r" +-?\d+\.\d+"
    for name in ("auc", "cross_entropy", "brier", "kl"):
        title = re.escape(MEASURES[name].title)
        pattern = rf"{title}{number}{number}{number} \[-?\d+\.\d+, -?\d+\.\d+\]"
        assert any(re.fullmatch(pattern, line) for line in lines), name
    for name, right in (("intercept", 0), ("slope", 1)):
        pattern = rf"calibration {name}{number}{number}  \({right} is right\)"
        assert any(re.fullmatch(pattern, line) for line in lines), name
    assert not any("{" in line for line in lines)


def test_one_patient_gives_no_interval() -> None:
    results = [_results(seed, np.array([1.0, 0.0, 0.0, 1.0])) for seed in (0, 1)]
    text = comparison_text(compare_runs(*results, ("old", "new")))
    title = re.escape(MEASURES["auc"].title)
    assert re.search(rf"^{title} +\S+ +\S+ +-?\d\.\d{{3}}$", text, re.M)  # a value, no ends


def test_without_two_classes_it_says_what_is_needed() -> None:
    lines = _text(np.ones(8))
    assert "not measured: that needs malignant and benign regions by histology" in lines
