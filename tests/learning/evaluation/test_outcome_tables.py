"""Shipped learners beside logistic regression on ranks, where labels are outcomes."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import outcome_tables
from cad.evidence.experiments.uci import DataSet


def test_differences_of_two_tables_by_hand() -> None:
    rows = []
    for table, auc, brier in (("a", 0.80, 0.20), ("b", 0.70, 0.10)):
        rows.append({"table": table, "learner": outcome_tables.SIMPLE, "AUC": auc, "Brier": brier})
        for name, more in ((outcome_tables.PSVM, 0.01), (outcome_tables.ENSEMBLE, -0.02)):
            gain = more if table == "a" else 3 * more
            rows.append({"table": table, "learner": name, "AUC": auc + gain, "Brier": brier - gain})
    compared = outcome_tables.differences(pd.DataFrame(rows)).set_index(["learner", "measure"])
    psvm = compared.loc[(outcome_tables.PSVM, "AUC")]
    # Mean of .01 and .03; standard error .01 (their distance .02 over 2), so t = 2.
    assert psvm["difference"] == pytest.approx(0.02)
    assert psvm["t"] == pytest.approx(2.0)
    assert psvm["better on"] == 2
    ensemble = compared.loc[(outcome_tables.ENSEMBLE, "Brier")]
    assert ensemble["difference"] == pytest.approx(0.04)
    assert ensemble["better on"] == 0


def test_a_clear_outcome_is_predicted_by_all_learners() -> None:
    rng = np.random.default_rng(5)
    y = (np.arange(60) % 2).astype(float)
    attributes = pd.DataFrame(rng.normal(size=(60, 3)) + 3 * y[:, None], columns=["a", "b", "c"])
    rows = outcome_tables.one_table(DataSet("clear", attributes, y))
    assert {row["learner"] for row in rows} == set(outcome_tables.learners())
    assert all(float(row["AUC"]) > 0.9 for row in rows)
