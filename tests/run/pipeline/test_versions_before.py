"""Runs and bundles as version 0.1 wrote them are read as belief, or refused with a way out."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.folders.run_folder.schema import READERS
from cad.run.model.bundle import HASHES, load_bundle


def run_of_before(run_folder: Path, out: Path) -> Path:
    """Copy a run and take out what version 0.1 did not write."""
    shutil.copytree(run_folder, out)
    table = pd.read_csv(run_folder / "probabilities.csv", dtype={"roi_id": str})
    old = table.drop(columns=["belief", "probability_of", "probability_images"])
    old["probability"] = table["belief"]
    old.to_csv(out / "probabilities.csv", index=False)
    men = pd.read_csv(run_folder / "patients.csv").drop(columns="probability_of")
    men.assign(upper=0.6).to_csv(out / "patients.csv", index=False)
    return out


def bundle_of_before(model: Path, out: Path, **changes: Any) -> Path:
    """Copy a bundle without a joint model, with the retired setting stated as empty."""
    shutil.copytree(model, out)
    metadata = json.loads((out / "metadata.json").read_text())
    metadata.pop("joint")
    metadata["pipeline"]["decision"]["man_ppv"] = None
    metadata |= changes
    (out / "metadata.json").write_text(json.dumps(metadata))
    hashes = json.loads((out / HASHES).read_text())
    hashes["metadata.json"] = hashlib.sha256((out / "metadata.json").read_bytes()).hexdigest()
    (out / HASHES).write_text(json.dumps(hashes))
    return out


def test_pages_of_a_run_of_before_speak_of_readers(
    run_folder: Path, tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    out = run_of_before(run_folder, tmp_path / "run")
    ended = main_here("report", out)
    assert ended.returncode == 0, ended.stderr
    assert "readers would" in (out / "report" / "sub-0001.html").read_text()


def test_a_run_that_stated_other_decisions_is_refused(
    run_folder: Path, tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    out = run_of_before(run_folder, tmp_path / "run")
    table = pd.read_csv(out / "probabilities.csv").drop(columns="decision_model")
    table.to_csv(out / "probabilities.csv", index=False)
    ended = main_here("report", out)
    assert ended.returncode == 2
    assert "make the run anew" in ended.stderr


def test_a_model_of_before_predicts_beliefs(
    model: Path, first_patient: Path, tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    old = bundle_of_before(model, tmp_path / "old")
    out = tmp_path / "run"
    ended = main_here("predict", "--model", old, "--cohort", first_patient, "-o", out)
    assert ended.returncode == 0, ended.stderr
    table = pd.read_csv(out / "probabilities.csv")
    assert (table["probability_of"] == READERS).all()
    assert (table["probability"] == table["belief"]).all()
    warnings = json.loads((out / "run.json").read_text())["warnings"]
    assert any("written by an earlier version" in text for text in warnings)


def test_a_model_of_another_schema_is_refused(model: Path, tmp_path: Path) -> None:
    later = bundle_of_before(model, tmp_path / "later", schema_version=2)
    with pytest.raises(CadError, match="schema version 2, this program reads 1") as caught:
        load_bundle(later)
    assert "train again" in caught.value.hint
