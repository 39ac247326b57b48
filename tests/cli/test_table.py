"""A table of features and scores on the command line, also where a system lacks fcntl."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cad
from cad.cli import app
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.records import read_metrics, read_record

WITHOUT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
sys.argv = ["cad", *sys.argv[1:]]
from cad.cli import main
main()
"""
ASKED = ["--patient", "patient", "--scores", "r1,r2", "--ignore", "note"]
QUICK = ["--learner", "PlattSVC"]
BARE = ["--patient", "patient", "--scores", "r1,r2", "--ignore", "note,isup"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a file as somebody would have it: texts, a gap, histology of some."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=60)
    frame = pd.DataFrame({"patient": np.arange(60) // 3, "note": "seen twice"})
    for name in ("r1", "r2"):
        frame[name] = np.clip(np.round(3 + 1.3 * latent + rng.normal(0, 0.6, 60)), 1, 5)
    frame["isup"] = np.where(np.arange(60) % 2, np.clip(np.round(latent + 1), 0, 5), np.nan)
    frame["adc"], frame["t2"] = latent + rng.normal(0, 0.5, 60), rng.normal(size=60)
    frame.loc[3, "adc"] = np.nan
    path = tmp_path / "regions.csv"
    frame.to_csv(path, index=False)
    return path


def test_validated_trained_and_predicted_without_fcntl(table: Path, tmp_path: Path) -> None:
    def run(*words: str) -> dict[str, object]:
        command = [sys.executable, "-c", WITHOUT, "table", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    learner = ["--learner", "logistic on soft labels"]
    histology = ["--histology", "isup", "--isup-min", "2"]
    out = ["-o", str(tmp_path / "run"), "--folds", "3"]
    made = run("validate", str(table), *out, *ASKED, *histology, *learner)
    assert made["regions"] == 60
    assert "20 patients" in " ".join(read_record(RunFolder(tmp_path / "run"))["warnings"])
    rivals = read_metrics(RunFolder(tmp_path / "run"))["rivals"]["table"]
    assert {"constant", "readers' mean"} <= {row["learner"] for row in rivals}
    run("train", str(table), *ASKED, *histology, *learner, "-o", str(tmp_path / "model"))
    run("predict", str(table), "--model", str(tmp_path / "model"), "-o", str(tmp_path / "out.csv"))
    scored = pd.read_csv(tmp_path / "out.csv")
    expected = cad.load_model(tmp_path / "model").probability(scored[["adc", "t2"]])
    np.testing.assert_allclose(scored["probability"], expected)
    assert scored["probability"].corr(scored["r1"]) > 0.5


def test_a_table_without_a_column_of_the_model_is_refused(table: Path, tmp_path: Path) -> None:
    run, model = CliRunner(), str(tmp_path / "model")
    run.invoke(app, ["table", "train", str(table), *BARE, *QUICK, "-o", model])
    pd.read_csv(table).drop(columns="t2").to_csv(tmp_path / "less.csv", index=False)
    words = ["table", "predict", str(tmp_path / "less.csv"), "--model", model, "-o", model + ".csv"]
    assert "no column 't2'" in str(run.invoke(app, words).exception)


def test_parameters_follow_the_learners_name_and_units_are_the_same(
    table: Path, tmp_path: Path
) -> None:
    """A feature in other units: an RBF kernel of raw columns would see nothing but the largest."""
    pd.read_csv(table).eval("adc = 1e5 * adc").to_csv(tmp_path / "other.csv", index=False)
    scored = []
    for path in (table, tmp_path / "other.csv"):
        model = tmp_path / f"model of {path.stem}"
        learner = ["--learner", "ProbabilisticSVC:C=10,kernel=linear"]
        asked = [*BARE, *learner]
        CliRunner().invoke(app, ["table", "train", str(path), *asked, "-o", str(model)])
        loaded = cad.load_model(model)
        assert loaded.estimator[-1].get_params()["C"] == 10
        scored.append(loaded.probability(pd.read_csv(path)[["adc", "t2"]]))
    np.testing.assert_allclose(*scored, atol=1e-9)


def test_ids_are_text(table: Path, tmp_path: Path) -> None:
    """007 is another patient than 7, and a copy has every id as it was."""
    frame = pd.read_csv(table).drop(columns="isup")
    frame["patient"] = [("007", "7", "NA", f"{k % 9:03d}")[k % 4] for k in range(60)]
    frame["note"] = [f"{20240100000000001 + k}" if k % 5 else "None" for k in range(60)]
    frame.to_csv(table, index=False)
    words = ["table", "validate", str(table), *ASKED, "--learner", "PlattSVC", "--folds", "2"]
    words += ["-o", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    told = " ".join(read_record(RunFolder(tmp_path / "run"))["warnings"])
    assert f"{frame['patient'].nunique()} patients" in told
    model, out = str(tmp_path / "model"), tmp_path / "out.csv"
    run = CliRunner()
    run.invoke(app, ["table", "train", str(table), *ASKED, "--learner", "PlattSVC", "-o", model])
    run.invoke(app, ["table", "predict", str(table), "--model", model, "-o", str(out)])
    before, after = (pd.read_csv(p, dtype=str, keep_default_na=False) for p in (table, out))
    pd.testing.assert_frame_equal(after.drop(columns="probability"), before)
