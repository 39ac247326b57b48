"""The noise gate, small: ``python -m benchmarks.noise`` has all learners, schemes and sizes."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from benchmarks import noise
from cad.learning.evaluation.measures import metrics

SHIPPED = (noise.SHIPPED, "ensemble (pipelines/ensemble)")
QUICK = ("logistic on soft labels", "kernel ridge on p")


def test_noise_is_measured_as_noise() -> None:
    """Two rivals, three schemes, twenty cohorts: no mean is beyond three standard errors."""
    cells = noise.noise((20,), kinds=("plain",), names=QUICK, cohorts=20)
    assert len(cells) == 2 * 3
    assert cells["passes"].all(), cells.to_string()
    assert (np.abs(cells["AUC"] - 0.5) <= noise.SLACK + 2 * cells["standard error"]).all()
    assert noise.refused(cells, cohorts=20) == []
    # The gate can fail: what was printed before, probabilities of all folds in one line, and
    # differences by the chance of the test regions alone.
    logistic = cells[cells["learner"] == QUICK[0]].set_index("scheme")
    assert logistic.at["patients", "pooled"] < 0.4
    assert logistic.at["folds", "pooled"] < 0.45
    leaning = cells.assign(passes=cells["scheme"] != "folds")
    assert len(noise.refused(leaning, cohorts=20)) == 2
    differing = cells.assign(
        **{"beyond chance": cells["beyond chance"].where(cells["beyond chance"].isna(), 0.2)}
    )
    assert [text.split(":")[0] for text in noise.refused(differing, cohorts=20)] == [
        "by folds",
        "by patients",
        "by sites",
    ]


def test_shipped_learners_measure_noise_as_noise() -> None:
    """The two shipped learners in five folds, on few cohorts."""
    cells = noise.noise((20,), ("folds",), ("plain",), SHIPPED, cohorts=12)
    assert set(cells["learner"]) == set(SHIPPED)
    assert (np.abs(cells["AUC"] - 0.5) <= noise.SLACK + 2 * cells["standard error"]).all()
    # Folds that are not put on one base lie farther from one half.
    assert (cells["pooled"] < cells["AUC"] - 0.05).all(), cells.to_string()


def test_effects_that_are_refused() -> None:
    row = {"effect": 0.5, "covered": 0.95, "NPV validated": 0.945, "NPV fresh": 0.95}
    assert noise.refused_effects(pd.DataFrame([row]), 100) == []
    rare = pd.DataFrame([row | {"covered": 0.87}])
    assert noise.refused_effects(rare, 100) == ["effect 0.5: 0.870 of the intervals cover"]
    frequent = pd.DataFrame([row | {"covered": 1.0}])
    assert noise.refused_effects(frequent, 100) == []  # 1.7 standard errors above .97
    assert noise.refused_effects(frequent, 200) == ["effect 0.5: 1.000 of the intervals cover"]
    low = pd.DataFrame([row | {"NPV validated": 0.885, "NPV fresh": 0.946}])
    assert noise.refused_effects(low, 100) == [
        "effect 0.5: the validated NPV is 0.885, of fresh patients 0.946"
    ]


def test_an_effect_is_found_and_its_interval_covers_the_fresh_auc() -> None:
    table = noise.effects(24, sizes=(1.0,), cohorts=24, name=QUICK[0], scheme="patients")
    row = table.iloc[0]
    assert row["covered"] >= 0.87  # .95 less two standard errors of 24 cohorts
    assert abs(row["AUC validated"] - row["AUC fresh"]) < 0.05
    assert row["AUC fresh"] > 0.6
    # The probabilities of all folds in one line order patients against the truth.
    assert row["AUC pooled"] < row["AUC validated"] - 0.04
    assert abs(row["NPV validated"] - row["NPV fresh"]) < 0.03


def test_an_interval_for_the_tested_patients_alone_is_too_narrow() -> None:
    row = noise.inflation(sizes=(0.0,), parts=(40,), cohorts=60).iloc[0]
    assert row["covered, tested patients alone"] < 0.9
    assert row["covered"] > row["covered, tested patients alone"]


def test_one_cell_of_the_command_is_that_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--learner", QUICK[1], "--scheme", "folds", "--kind", "clustered"]
    given = ["noise", "--part", "noise", *words, "--cohorts", "2", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", given)
    noise.main()
    shown = capsys.readouterr().out
    cells = noise.noise((20,), ("folds",), ("clustered",), (QUICK[1],), cohorts=2)
    assert cells.round(3).to_string(index=False) in shown
    assert "1 of 1 cells pass" in shown


@pytest.mark.parametrize("scheme", ["patients", "sites", "folds"])
def test_cohorts_keep_patients_whole(scheme: str) -> None:
    regions = noise.draw(1, 20, "clustered")
    group = noise.left_out(scheme, regions.patients, 1)
    assert all(len(set(group[regions.patients == man])) == 1 for man in range(20))
    assert 0.1 < regions.truth.mean() < 0.4
    score = regions.X[:, 0]
    assert abs(metrics.auc(regions.truth, score) - 0.5) < 0.2
