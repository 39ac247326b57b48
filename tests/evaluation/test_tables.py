"""Tables in three formats, and the ablation that fills one."""

from __future__ import annotations

import io
from types import ModuleType

import numpy as np
import pandas as pd

from cad.evaluation.ablation import Case, ablation_table
from cad.evaluation.intervals import Interval
from cad.evaluation.tables import FORMATS, interval_text

TABLE = pd.DataFrame(
    {
        "learner": ["P-SVM_a", "F|SVM 5%"],
        "auc": [0.86234, np.nan],
        "n": [350, 349],
        "x": [1e-5, 2e4],
    }
)


def test_markdown() -> None:
    lines = FORMATS["md"](TABLE).splitlines()
    assert lines[0] == "| learner | auc | n | x |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[2] == "| P-SVM_a | 0.862 | 350 | 1e-05 |"
    assert lines[3] == r"| F\|SVM 5% | – | 349 | 2e+04 |"


def test_csv_reads_back() -> None:
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(FORMATS["csv"](TABLE))), TABLE)


def test_latex() -> None:
    text = FORMATS["tex"](TABLE)
    assert r"\begin{tabular}{lrrr}" in text
    assert r"P-SVM\_a & 0.862 & 350" in text
    assert r"5\%" in text


def test_interval_text() -> None:
    assert interval_text(Interval(0.8434, 0.7912, 0.8847, "m")) == "0.843 (0.791 to 0.885)"
    assert interval_text({"value": 1.0, "lower": None, "upper": None}) == "1.000"
    assert interval_text({"value": None, "lower": None, "upper": None}) == "–"


def test_ablation_covers_every_cell(evidence: ModuleType) -> None:
    data = evidence.simulated(1, patients=8, rois=48, d=6)
    table = evidence.ablation_of(data, n_jobs=1, readers=2)
    assert len(table) == 2 * 2 * 2 * 2
    assert set(table["scale"]) == {"learned", "fixed"}
    assert table.loc[table["readers"] == "1", "cases"].eq(2).all()
    single = table["readers"] == "1"
    # One reader has no disagreement: adaptive and constant eta are the same thing.
    one = table[single].pivot(index=["scale", "boundary"], columns="eta", values="auc_readers")
    np.testing.assert_array_equal(one["adaptive"], one["constant"])
    assert (table["auc_histology"].dropna() > 0.5).mean() > 0.7


def test_a_case_that_fails_is_counted() -> None:
    from sklearn.linear_model import LogisticRegression

    X, groups = np.arange(12.0)[:, None], np.repeat([1, 2, 3], 4)
    y = np.tile([0.0, 1.0], 6)
    good = Case({"a": "x"}, LogisticRegression(), y, np.zeros(12))
    bad = Case({"a": "x"}, LogisticRegression(), np.zeros(12), np.zeros(12))
    table = ablation_table([good, bad], X, y, y, groups)
    assert table["failed"].item() == 1
    assert table["failed_folds"].item() == 3
    assert np.isfinite(table["auc_histology"].item())
