"""A run and a model that version 0.1 wrote are read as belief, or refused with a way out.

The folder ``version_0_1`` was written by the program of commit 645ca033, the last one whose modules
had the places of version 0.1: a model of three simulated men, and its prediction for one of them
(without the pages and figures, which are made anew).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.results import read_results
from cad.folders.run_folder.schema import MAN_COLUMNS, READERS, REGION_COLUMNS, ResultColumn
from cad.folders.run_folder.tables import read_probabilities
from cad.run.model.bundle import HASHES, load_bundle, verify_bundle

VERSION_0_1 = Path(__file__).with_name("version_0_1")
MODEL = VERSION_0_1 / "model"


@pytest.fixture
def earlier_run(tmp_path: Path) -> Path:
    """A copy of the run, to be written into."""
    return Path(shutil.copytree(VERSION_0_1 / "run", tmp_path / "earlier"))


def test_the_files_are_of_version_0_1() -> None:
    metadata = json.loads((MODEL / "metadata.json").read_text())
    assert metadata["cad_version"] == "0.1.0"
    assert metadata["pipeline"]["decision"]["man_ppv"] is None
    assert "joint" not in metadata
    record = json.loads((VERSION_0_1 / "run" / "run.json").read_text())
    assert record["cad_version"] == "0.1.0"
    table = pd.read_csv(VERSION_0_1 / "run" / "probabilities.csv")
    assert not {"belief", "probability_of"} & set(table.columns)
    assert "upper" in pd.read_csv(VERSION_0_1 / "run" / "patients.csv").columns


@pytest.mark.parametrize(
    ("name", "columns"), [("probabilities", REGION_COLUMNS), ("patients", MAN_COLUMNS)]
)
def test_a_column_that_is_said_to_be_of_0_1_was_there(
    name: str, columns: tuple[ResultColumn, ...]
) -> None:
    table = pd.read_csv(VERSION_0_1 / "run" / f"{name}.csv")
    of_0_1 = {column.name for column in columns if column.since == "0.1"}
    assert of_0_1 <= set(table.columns)


def test_pages_of_a_run_of_before_speak_of_readers(
    earlier_run: Path, main_here: Callable[..., Any]
) -> None:
    ended = main_here("report", earlier_run)
    assert ended.returncode == 0, ended.stderr
    assert "readers would" in (earlier_run / "report" / "sub-0001.html").read_text()


def test_the_probability_of_before_is_read_as_belief(earlier_run: Path) -> None:
    before = pd.read_csv(earlier_run / "probabilities.csv")["probability"]
    table = read_probabilities(RunFolder(earlier_run))
    np.testing.assert_array_equal(table["belief"], before)
    assert (table["probability_of"] == READERS).all()
    results = read_results(earlier_run)
    assert [region.belief for region in results.regions] == before.tolist()
    for region in results.regions:
        assert region.belief == region.probability
        assert not region.of_cancer
        assert region.probability_range is None
        assert region.patient_probability is None
    assert [(man.probability, man.lower) for man in results.men.values()] == [(None, None)]


def test_a_run_that_stated_other_decisions_is_refused(
    earlier_run: Path, main_here: Callable[..., Any]
) -> None:
    table = pd.read_csv(earlier_run / "probabilities.csv").drop(columns="decision_model")
    table.to_csv(earlier_run / "probabilities.csv", index=False)
    ended = main_here("report", earlier_run)
    assert ended.returncode == 2
    assert "make the run anew" in ended.stderr


def test_a_model_of_before_predicts_beliefs(
    first_patient: Path, tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    out = tmp_path / "run"
    ended = main_here("predict", "--model", MODEL, "--cohort", first_patient, "-o", out)
    assert ended.returncode == 0, ended.stderr
    table = pd.read_csv(out / "probabilities.csv")
    assert (table["probability_of"] == READERS).all()
    assert (table["probability"] == table["belief"]).all()
    warnings = json.loads((out / "run.json").read_text())["warnings"]
    assert any("written by an earlier version" in text for text in warnings)


@pytest.mark.filterwarnings("default::cad.base.renamed.RenamedWarning")
def test_a_pipeline_file_with_an_old_key_runs_with_a_note(
    cohort: Path, quick_pipeline: Path, tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    pipeline = tmp_path / "before.yaml"
    pipeline.write_text(quick_pipeline.read_text() + "labels: {eta_min: 0.2}\n")
    ended = main_here("run", pipeline, "--cohort", cohort, "-o", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    note = "labels.eta_min is labels.eta0 since version 1.0"
    assert f"cad: note: {note}" in ended.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"]["labels"]["eta0"] == 0.2
    assert "eta_min" not in record["settings"]["labels"]
    assert [text for text in record["warnings"] if note in text] != []


def test_a_model_of_before_gives_the_numbers_of_before() -> None:
    """For the features that version 0.1 measured, its table has the probabilities."""
    assert verify_bundle(MODEL) < 1e-8
    features = pd.read_parquet(VERSION_0_1 / "run" / "features.parquet")
    before = pd.read_csv(VERSION_0_1 / "run" / "probabilities.csv")
    bundle = load_bundle(MODEL)
    now = bundle.probability(features)
    assert features["roi_id"].astype(str).tolist() == before["roi_id"].astype(str).tolist()
    np.testing.assert_allclose(now, before["probability"], atol=5e-5)


def test_a_model_of_another_schema_is_refused(tmp_path: Path) -> None:
    later = Path(shutil.copytree(MODEL, tmp_path / "later"))
    metadata = json.loads((later / "metadata.json").read_text())
    metadata["schema_version"] = 2
    (later / "metadata.json").write_text(json.dumps(metadata))
    hashes = json.loads((later / HASHES).read_text())
    hashes["metadata.json"] = hashlib.sha256((later / "metadata.json").read_bytes()).hexdigest()
    (later / HASHES).write_text(json.dumps(hashes))
    with pytest.raises(CadError, match="schema version 2, this program reads 1") as caught:
        load_bundle(later)
    assert "train again" in caught.value.hint
