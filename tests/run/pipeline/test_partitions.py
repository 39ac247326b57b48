"""Runs of a few patients each, read as one table: the same numbers as one run of all of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cad
from cad.base.errors import CadError
from cad.cli import app
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.partitions import read_partitions
from cad.folders.run_folder.records import read_metrics
from cad.run.execution.options import HERE
from cad.run.pipeline import run_pipeline


@pytest.fixture(scope="module")
def months(
    cohort: Path,
    quick_pipeline: Path,
    part_of: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Two finished runs, of two and of four patients."""
    root = tmp_path_factory.mktemp("months")
    names = [f"sub-{n:04d}" for n in range(1, 7)]
    for month, patients in (("may", names[:2]), ("june", names[2:])):
        part = part_of(cohort, tmp_path_factory.mktemp(month) / "cohort", patients)
        run_pipeline(str(quick_pipeline), part, root / month, HERE)
    return root


@pytest.fixture
def changed(months: Path, tmp_path: Path) -> Path:
    """A copy of both runs, to spoil."""
    return Path(shutil.copytree(months, tmp_path / "months"))


def invoke(*words: str) -> Any:
    done = CliRunner().invoke(app, ["table", *words, "--json"])
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def test_two_runs_are_the_table_of_one_run(months: Path, run_folder: Path) -> None:
    def ordered(table: pd.DataFrame) -> pd.DataFrame:
        return table.sort_values(["participant_id", "roi_id"]).reset_index(drop=True)

    joined, whole = ordered(read_partitions(months)), ordered(read_partitions(run_folder))
    pd.testing.assert_frame_equal(joined, whole)
    stored = pd.read_parquet(RunFolder(run_folder).features)
    assert [c for c in stored if not c.startswith("provenance_")] == list(joined.columns[:-5])
    labels = pd.read_parquet(RunFolder(run_folder).labels)
    np.testing.assert_array_equal(whole["y"], ordered(labels)["y"])


def test_validated_trained_and_predicted(months: Path, run_folder: Path, tmp_path: Path) -> None:
    learner = ["--learner", "extra trees on p"]
    shown = []
    for name, source in (("one", run_folder), ("two", months)):
        invoke("validate", str(source), "-o", str(tmp_path / name), *learner, "--folds", "3")
        rivals = read_metrics(RunFolder(tmp_path / name))["rivals"]["table"]
        shown.append(pd.DataFrame(rivals).set_index(["learner", "measure"]))
    kernel = "kernel ridge on p"  # its sums do not depend on the order of rows, as drawn trees do
    a, b = (frame.loc[kernel, "value"].to_numpy(float) for frame in shown)
    np.testing.assert_allclose(a, b, rtol=1e-6)
    model, out = tmp_path / "model", tmp_path / "scored.csv"
    made = invoke("train", str(months), *learner, "--folds", "3", "-o", str(model))
    assert made["studies"] == 6
    invoke("predict", str(months), "--model", str(model), "-o", str(out))
    scored = pd.read_csv(out)
    expected = cad.load_model(model).probability(read_partitions(months))
    np.testing.assert_allclose(scored["belief"], expected)


def test_a_run_from_elsewhere_has_gaps_where_it_lacks_a_feature(changed: Path) -> None:
    path = RunFolder(changed / "may").features
    table = pd.read_parquet(path)
    gone = next(c for c in table if c.startswith("t2w_"))
    table.drop(columns=gone).to_parquet(path)
    joined = read_partitions(changed)
    assert joined[gone].isna().sum() == len(table)
    assert joined.columns.is_unique


def test_a_patient_in_two_runs_is_refused(changed: Path) -> None:
    shutil.copytree(changed / "may", changed / "may-again")
    with pytest.raises(CadError, match=r"sub-0001.*a patient may be in one run only"):
        read_partitions(changed)


def rewrite(record: Path, section: str, key: str, value: object) -> None:
    content = json.loads(record.read_text())
    content["settings"][section][key] = value
    record.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("runs", "section", "key", "value", "message"),
    [
        (["june"], "images", "interpolation", "cubic", "images.interpolation is"),
        (["june"], "labels", "isup_min", 3, "labels.isup_min is"),
        (["june", "may"], "images", "t2_standardisation", "nyul", "depends? on all patients"),
        (["june", "may"], "labels", "consensus", "pooled", "depends? on all patients"),
    ],
)
def test_numbers_that_do_not_mean_the_same_are_refused(
    changed: Path, runs: list[str], section: str, key: str, value: object, message: str
) -> None:
    for run in runs:
        rewrite(RunFolder(changed / run).record, section, key, value)
    with pytest.raises(CadError, match=message):
        read_partitions(changed)


def test_what_is_no_finished_run_is_refused(changed: Path, tmp_path: Path) -> None:
    RunFolder(changed / "june").complete.unlink()
    with pytest.raises(CadError, match="not a finished run"):
        read_partitions(changed)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CadError, match="no run of"):
        read_partitions(tmp_path / "empty")
    with pytest.raises(CadError, match="brings its own labels"):
        invoke("validate", str(changed), "-o", str(tmp_path / "run"), "--scores", "r1")
    with pytest.raises(CadError, match="cannot be read as a table: No such file"):
        invoke("validate", str(tmp_path / "table.csv"), "-o", str(tmp_path / "run"))


def test_a_damaged_table_names_its_file(changed: Path) -> None:
    path = RunFolder(changed / "june").labels
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CadError, match=r"june/labels\.parquet"):
        read_partitions(changed)
