"""The commands that compare consensus rules, on tables small enough to see what must come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import consensus
from benchmarks.real_tables import RealTable
from cad.learning.evaluation.measures import metrics


def table_of_readers(noise: int = 0, n: int = 90) -> RealTable:
    """Return a table that four readers scored, of whom the last ``noise`` did not look."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    seen = X[:, :1] + rng.normal(0, 0.5, (n, 4))
    grades = np.searchsorted([-1.0, -0.3, 0.3, 1.0], seen) / 4
    if noise > 0:
        grades[:, -noise:] = rng.integers(0, 5, (n, noise)) / 4
    truth = (X[:, 0] > 0).astype(float)
    return RealTable(X, grades, truth, np.repeat(np.arange(n // 3), 3).astype(str))


def test_readers_of_noise_cost_the_plain_mean_more_than_agreement() -> None:
    table = consensus.noisy(cohorts=1, patients=30).set_index("readers of noise")
    assert list(table.index) == [0, 1, 2]
    assert table.at[2, "mean"] > table.at[0, "mean"]
    assert table.at[2, "agreement"] < table.at[2, "mean"]


def test_a_fold_learns_nothing_from_the_patient_it_predicts() -> None:
    table = table_of_readers()
    other = table.grades.copy()
    one = table.owner == "0"
    other[one] = 1 - other[one]
    for rule in consensus.RULES.values():
        before = consensus.learned(rule, table.X, table.grades, table.owner)
        after = consensus.learned(rule, table.X, other, table.owner)
        np.testing.assert_array_equal(before[one], after[one])
        assert not np.array_equal(before, after)


def test_a_left_out_reader_is_predicted_better_where_a_remaining_one_did_not_look() -> None:
    alike = consensus.left_out(table_of_readers())
    shuffled = consensus.left_out(table_of_readers(), shuffled=True)
    assert alike["lower"] <= alike["difference, %"] <= alike["upper"]
    assert shuffled["difference, %"] < alike["difference, %"]
    assert shuffled["upper"] < 0


def test_the_difference_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction does not depend on the reader, so that all losses are those of two vectors."""
    table = table_of_readers()
    near = np.clip(table.labels[0], 0.01, 0.99)
    far = np.full(len(near), 0.5)

    def known(rule: type, X: np.ndarray, grades: np.ndarray, patients: np.ndarray) -> np.ndarray:
        assert grades.shape == (len(near), 3)
        return near if rule is consensus.AgreementReaders else far

    monkeypatch.setattr(consensus, "learned", known)
    targets = table.grades[:, : consensus.LEFT_OUT].T
    loss_near = sum(metrics.kl(target, near) for target in targets)
    loss_far = sum(metrics.kl(target, far) for target in targets)
    found = consensus.left_out(table)
    assert found["difference, %"] == pytest.approx(100 * (loss_near / loss_far - 1))
    assert found["upper"] < 0


def test_the_consensus_is_compared_with_the_truth_of_every_panel(tmp_path: Path) -> None:
    rows = []
    for case, truth in enumerate([0, 0, 1, 1] * 5):
        for reader in (1, 2, 3):
            rows.append((reader, 1, case, truth, 1 + 4 * truth if reader < 3 else 1 + case % 5))
    names = ["reader", "treatment", "case", "truth", "rating"]
    panel = pd.DataFrame(rows, columns=names)
    panel.to_csv(tmp_path / "van_dyke.csv", index=False)
    radiologists = panel.assign(reader_type="radiologist", rating=panel["rating"] - 1)
    program = radiologists[radiologists["reader"] == 1].assign(reader=9, reader_type="cad")
    both = pd.concat([radiologists, program.assign(rating=50)])
    both.to_csv(tmp_path / "cad_vs_radiologists.csv", index=False)
    table = consensus.against_truth(tmp_path, tmp_path).set_index("panel")
    assert list(table.index) == ["aortic dissection, images 1", "mammograms"]
    assert list(table["readers"]) == [3, 3]
    third = np.array([case % 5 / 4 for case in range(20)])
    truth = np.array([0.0, 0, 1, 1] * 5)
    # Readers whose scores are copies count as one person where readers are weighted by agreement.
    for rule, p in {"mean": (2 * truth + third) / 3, "agreement": (truth + third) / 2}.items():
        brier = metrics.brier(truth, p)
        auc = metrics.auc(truth, p)
        assert table[f"Brier {rule}"].to_numpy() == pytest.approx([brier, brier])
        assert table[f"AUC {rule}"].to_numpy() == pytest.approx([auc, auc])


def test_the_gain_of_the_spread_is_that_of_the_measure() -> None:
    table = table_of_readers(n=45)
    found = consensus.disagreement(table)
    assert found["lower"] <= found["gain, %"] <= found["upper"]
    same = RealTable(table.X, np.repeat(table.grades[:, :1], 4, axis=1), table.truth, table.owner)
    assert np.isnan(consensus.disagreement(same)["gain, %"])
