"""A table of features and scores on the command line, also where a system lacks fcntl."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cad
from cad.base.errors import CadError
from cad.cli import app
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.records import read_metrics, read_record
from cad.run.tables.predicting import ADDED

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
QUICK = ["--learner", "PlattSVC", "--folds", "2"]
BELIEF = "belief"
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
    folds = ["--folds", "2"]
    run("train", str(table), *ASKED, *histology, *learner, *folds, "-o", str(tmp_path / "model"))
    run("predict", str(table), "--model", str(tmp_path / "model"), "-o", str(tmp_path / "out.csv"))
    scored = pd.read_csv(tmp_path / "out.csv")
    expected = cad.load_model(tmp_path / "model").probability(scored[["adc", "t2"]])
    np.testing.assert_allclose(scored[BELIEF], expected)
    assert scored["probability"].corr(scored["r1"]) > 0.5
    assert set(scored["decision"]) <= {"malignant", "refer", "benign"}
    assert (scored["probability_low"] <= scored["probability_high"]).all()
    card = (tmp_path / "model" / "README.md").read_text()
    assert "columns of a table" in card
    assert "| histology | " in card


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
        learner = ["--learner", "ProbabilisticSVC:C=10,kernel=linear", "--folds", "2"]
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
    words = ["table", "validate", str(table), *ASKED, *QUICK, "-o", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    told = " ".join(read_record(RunFolder(tmp_path / "run"))["warnings"])
    assert f"{frame['patient'].nunique()} patients" in told
    model, out = str(tmp_path / "model"), tmp_path / "out.csv"
    run = CliRunner()
    run.invoke(app, ["table", "train", str(table), *ASKED, *QUICK, "-o", model])
    run.invoke(app, ["table", "predict", str(table), "--model", model, "-o", str(out)])
    before, after = (pd.read_csv(p, dtype=str, keep_default_na=False) for p in (table, out))
    pd.testing.assert_frame_equal(
        after.drop(columns=[name for name in ADDED if name in after]), before
    )


@pytest.fixture
def model(table: Path, tmp_path: Path) -> Path:
    """A model of the table's two features."""
    done = CliRunner().invoke(
        app, ["table", "train", str(table), *BARE, *QUICK, "-o", str(tmp_path / "model")]
    )
    assert done.exit_code == 0, done.exception
    return tmp_path / "model"


def predicted(table: Path, model: Path, out: Path) -> pd.DataFrame:
    words = ["table", "predict", str(table), "--model", str(model), "-o", str(out)]
    done = CliRunner().invoke(app, words)
    if done.exception is not None:
        raise done.exception
    return pd.read_csv(out)


def test_what_is_unlike_the_training_is_said_with_its_column(
    table: Path, model: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(table)
    frame.loc[7, "t2"] = 400.0
    frame.to_csv(tmp_path / "new.csv", index=False)
    scored = predicted(tmp_path / "new.csv", model, tmp_path / "out.csv")
    assert "t2" in scored["unlike"][7]
    assert "adc" not in scored["unlike"][7]
    assert scored["decision"][7] == "refer"
    assert (scored["unlike"].drop(7) == "like").mean() > 0.9


def test_neither_the_input_nor_a_column_of_it_is_overwritten(
    table: Path, model: Path, tmp_path: Path
) -> None:
    before = table.read_bytes()
    with pytest.raises(CadError, match="never changed"):
        predicted(table, model, table)
    (tmp_path / "link.csv").symlink_to(table)
    with pytest.raises(CadError, match="what it leads to is not replaced"):
        predicted(table, model, tmp_path / "link.csv")
    assert table.read_bytes() == before
    pd.read_csv(table).assign(decision="mine").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(CadError, match=r"has a column 'decision' already.*rename"):
        predicted(tmp_path / "new.csv", model, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_model_that_does_not_reproduce_scores_nothing(
    table: Path, model: Path, tmp_path: Path
) -> None:
    """Its reference predictions were altered, its hashes made right."""
    with np.load(model / "reference.npz") as arrays:
        changed = dict(arrays)
    changed["probability"] = changed["probability"] + 0.01
    np.savez(model / "reference.npz", **changed)
    hashes = json.loads((model / "hashes.json").read_text())
    hashes["reference.npz"] = hashlib.sha256((model / "reference.npz").read_bytes()).hexdigest()
    (model / "hashes.json").write_text(json.dumps(hashes))
    with pytest.raises(CadError, match="reference predictions differ"):
        predicted(table, model, tmp_path / "out.csv")


def test_a_model_of_a_table_scores_no_images_and_says_so(
    model: Path, light_cohort: Path, tmp_path: Path
) -> None:
    words = ["predict", "--model", str(model), "--cohort", str(light_cohort)]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "run")])
    assert isinstance(done.exception, CadError)
    assert "was trained on a table" in str(done.exception)
    assert "cad table predict" in str(done.exception)


def test_what_comes_from_the_table_is_shown_as_text(table: Path, tmp_path: Path) -> None:
    """Names of columns that are a formula, HTML or Markdown."""
    names = ["=1+1", "<script>alert(1)</script>", "a|b*c_d"]
    frame = pd.read_csv(table).drop(columns=["isup", "t2"])
    rng = np.random.default_rng(3)
    frame = frame.assign(**{name: rng.normal(size=60) for name in names})
    frame.to_csv(table, index=False)
    model = tmp_path / "model"
    done = CliRunner().invoke(app, ["table", "train", str(table), *ASKED, *QUICK, "-o", str(model)])
    assert done.exit_code == 0, done.exception
    card = (model / "README.md").read_text()
    assert "<script>" not in card
    assert r"a\|b\*c_d" in card
    scored = predicted(table, model, tmp_path / "out.csv")
    assert len(scored) == 60
    text = (tmp_path / "out.csv").read_text()
    assert not re.search(r"(^|,)=1\+1", text)
    run = RunFolder(tmp_path / "model.validation")
    for path in (run.validation, run.page("index.html"), run.explanations):
        assert "<script>alert" not in path.read_text() or path.suffix == ".csv", path
