"""The ablation of benchmarks/ablation.py, in small."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def test_ablation_covers_every_cell(evidence: ModuleType, ablation: ModuleType) -> None:
    data = evidence.simulated(1, patients=8, rois=48, d=6)
    table = ablation.ablation_of(data, n_jobs=1, readers=2)
    assert len(table) == 2 * 2 * 2 * 2
    assert set(table["scale"]) == {"learned", "fixed"}
    assert table.loc[table["readers"] == "1", "cases"].eq(2).all()
    single = table["readers"] == "1"
    # One reader has no disagreement: adaptive and constant eta are the same thing.
    one = table[single].pivot(index=["scale", "boundary"], columns="eta", values="auc_readers")
    np.testing.assert_array_equal(one["adaptive"], one["constant"])
    assert (table["auc_histology"].dropna() > 0.5).mean() > 0.7


def test_a_case_that_fails_is_counted(ablation: ModuleType) -> None:
    from sklearn.linear_model import LogisticRegression

    X, groups = np.arange(12.0)[:, None], np.repeat([1, 2, 3], 4)
    y = np.tile([0.0, 1.0], 6)
    good = ablation.Case({"a": "x"}, LogisticRegression(), y, np.zeros(12))
    bad = ablation.Case({"a": "x"}, LogisticRegression(), np.zeros(12), np.zeros(12))
    table = ablation.ablation_table([good, bad], X, y, y, groups)
    assert table["failed"].item() == 1
    assert table["failed_folds"].item() == 3
    assert np.isfinite(table["auc_histology"].item())
