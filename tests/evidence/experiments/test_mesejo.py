"""Learners and consensus rules on lesions: every lesion left out with all that is fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.evidence.experiments import Options, mesejo2016
from cad.evidence.experiments.mesejo2016 import (
    READERS,
    RULES,
    SHIPPED,
    compare_consensus_rules,
    learners,
    read_lesions,
)
from cad.learners import ProbabilisticSVC
from cad.learning.labels.pooled import PooledReaders

N = 24  # lesions


def write_lesions(folder: Path, flipped: int | None = None) -> Path:
    """Write 24 lesions with three features in two lights; flip the histology of one."""
    rng = np.random.default_rng(1)
    truth = np.arange(N) % 2
    votes = (rng.random((N, len(READERS))) < np.where(truth, 0.9, 0.1)[:, None]).astype(int)
    images = rng.normal(size=(N, 2, 3)) + 1.2 * truth[:, None, None]
    if flipped is not None:
        truth = np.where(np.arange(N) == flipped, 1 - truth, truth)
    names = [f"Lesion{i:02d}" for i in range(N)]
    folder.mkdir(exist_ok=True)
    table = pd.DataFrame(votes, columns=list(READERS))
    table.insert(0, "truth", truth)
    table.insert(0, "lesion", names)
    table.to_csv(folder / "readers.csv", index=False)
    rows = [
        [name.lower(), 1, light + 1, *image[light]]
        for name, image in zip(names, images, strict=True)
        for light in (0, 1)
    ]
    pd.DataFrame(rows).to_csv(folder / "features.csv", index=False, header=False)
    return folder


def test_every_learner_has_a_row_for_every_rule_and_warnings_stand_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    # The slow ones are the rivals' tests' matter.
    some = {SHIPPED: "P-SVM, fixed scale", "P-SVM, learned scale": "P-SVM, learned scale"}
    some["SVM"] = "SVM"
    chosen = {name: learners()[of] for name, of in some.items()}
    monkeypatch.setattr(mesejo2016, "learners", lambda: dict(chosen))
    result = compare_consensus_rules(
        Options(out=tmp_path, data=write_lesions(tmp_path / "lesions"))
    )
    table = next(iter(result.tables.values()))
    for rule in RULES:
        rows = table[table["labels"] == rule].set_index("learner")
        assert set(rows.index) == {*chosen, "constant", "readers' mean"}
        assert rows.loc[SHIPPED, "n"] == N
    # Binary reads: with these votes every tube of the whole spread contains 1/2.
    said = table.set_index(["labels", "learner"])["note"]["mean", "P-SVM, learned scale"]
    assert "24 folds warned: every soft interval contains 1/2" in said
    assert rows.loc["SVM", "n"] == N
    assert not [w for w in recwarn if "interval" in str(w.message)]
    page = result.write(tmp_path, "lesions").read_text()
    assert page.count("every soft interval") <= len(RULES)


def test_a_left_out_lesion_is_predicted_by_the_others_alone(tmp_path: Path, monkeypatch) -> None:
    machine = ProbabilisticSVC(scale="fixed", eta0=0.125, kappa=0.5, C=3.0, gamma=0.1)
    monkeypatch.setattr(mesejo2016, "learners", lambda: {SHIPPED: machine})
    found = []
    for flipped in (None, 3):
        X, grades, truth, names = read_lesions(write_lesions(tmp_path / "lesions", flipped))
        part = mesejo2016._compared_learners(
            "pooled", mesejo2016._scaled_in_folds(X), grades, truth, names
        )
        found.append(part.probabilities[SHIPPED])
    # Histology weighs readers: another lesion's moves the others, never its own.
    assert found[0][3] == found[1][3]
    assert np.abs(found[0] - found[1]).max() > 1e-4
    train = np.delete(np.arange(N), 3)
    scaler = StandardScaler().fit(X[train])
    belief = PooledReaders().fit(grades[train], truth[train]).predict(grades[train])
    machine.fit(scaler.transform(X[train]), belief.p, eta=belief.eta)
    alone = machine.predict_proba(scaler.transform(X[[3]]))[0, 1]
    assert found[1][3] == pytest.approx(alone, abs=1e-12)


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(CadError, match="needs --data"):
        compare_consensus_rules(Options(out=tmp_path))
    with pytest.raises(CadError, match=r"readers\.csv"):
        read_lesions(tmp_path)
    folder = write_lesions(tmp_path / "lesions")
    table = pd.read_csv(folder / "features.csv", header=None)
    table[1:].to_csv(folder / "features.csv", index=False, header=False)
    with pytest.raises(CadError, match="lesion lesion00 has no row of light 1"):
        read_lesions(folder)
