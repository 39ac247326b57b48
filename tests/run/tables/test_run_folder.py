"""A table's validation is a run: the estimator of a cohort, and a folder with all its files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings, parse_settings
from cad.cli import app
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.folder import of_every_run
from cad.folders.run_folder.records import read_record, write_record
from cad.folders.run_folder.tables import KEYS, read_probabilities
from cad.learning.learners import rivals
from cad.run.execution.options import HERE
from cad.run.model.fold_features import FoldFeatures
from cad.run.stages.aggregate import aggregate
from cad.run.stages.extract import extract, measure
from cad.run.stages.load import load
from cad.run.stages.validate import validate
from cad.run.tables import Columns, read_regions, table_settings, validate_table
from tests.run.tables import odd_tables

QUICK = ["--learner", "kernel ridge on p", "--folds", "4"]


@pytest.mark.parametrize("histology", ["ignore", "override"])
def test_both_doors_give_the_same_probabilities(
    histology: str, light_cohort: Path, tmp_path: Path
) -> None:
    """Features of a cohort with 15 % of the values lost and two columns constant, as a table."""
    content = {
        "name": "quick",
        "features": {"families": ["intensity", "semiquantitative"]},
        "labels": {"histology": histology},
        "learner": {"name": "ProbabilisticSVC", "params": {"C": 1.0}},
        "validate": {"bootstraps": 20},
    }
    settings = parse_settings(PipelineSettings, content)
    loaded = load(settings, light_cohort, tmp_path / "cohort", HERE, "run")
    measured = measure(loaded)
    extracted = extract(loaded, measured)
    features = _with_holes(extracted.features)
    keys, X = features[KEYS], features.drop(columns=KEYS)
    sites = loaded.sites(keys["participant_id"])
    source = FoldFeatures(keys, X, loaded.settings, measured.results, sites, loaded.folder)
    aggregated = aggregate(loaded, replace(extracted, features=features, source=source))
    expected = validate(loaded, aggregated).folds
    assert expected is not None

    wide = aggregated.scores.pivot(
        index=["participant_id", "roi_id"], columns="reader_id", values="score"
    ).reset_index()
    readers = [name for name in wide if name not in KEYS]
    table = features.drop(columns="study_id").merge(wide, on=["participant_id", "roi_id"])
    truth = aggregated.rois[["participant_id", "roi_id", "isup"]]
    table.merge(truth, how="left").to_csv(tmp_path / "table.csv", index=False)
    scale = str(aggregated.scores["scale"].iloc[0])
    columns = Columns(
        scores=tuple(readers),
        scale=scale,
        histology="isup",
        isup_min=2,
        id="roi_id",
        features=tuple(X),
    )
    regions = read_regions(tmp_path / "table.csv", columns)
    assert np.isnan(regions.X.to_numpy()).mean() > 0.12
    validate_table(regions, settings, tmp_path / "run", HERE, 2)
    got = read_probabilities(RunFolder(tmp_path / "run"))
    assert got["roi_id"].tolist() == keys["roi_id"].tolist()
    # A cohort refuses a region that an image does not measure; a table knows of no images.
    scored = np.isfinite(expected.probability)
    assert scored.mean() > 0.9
    belief = got["belief"].to_numpy()
    np.testing.assert_allclose(belief[scored], expected.probability[scored], rtol=0, atol=1e-12)


def _with_holes(features: pd.DataFrame) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    X = features.drop(columns=KEYS)
    holes = rng.random(X.shape) < 0.15
    # A row without any value of an image is no row of a cohort.
    holes[:, ::5] = False
    X = X.mask(holes)
    X[X.columns[3]] = 2.5
    X[X.columns[7]] = np.where(holes[:, 7], np.nan, -1.0)
    return pd.concat([features[KEYS], X], axis=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of a table on the command line, and what it printed."""
    folder = tmp_path_factory.mktemp("run")
    path = odd_tables.Odd("", odd_tables.csv).write(folder)
    words = ["table", "validate", str(path), *odd_tables.BASE, *QUICK, "-o", str(folder / "run")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    return folder / "run", done.output


def test_the_folder_is_that_of_a_run(run: tuple[Path, str]) -> None:
    folder = RunFolder(run[0])
    measured = (folder.memory, folder.log)
    for path in of_every_run(folder):
        assert path.is_file() or path in measured, path
    assert folder.page("index.html").is_file()
    assert {path.name for path in folder.report.iterdir()} == {"index.html"}
    assert (folder.figure("roc")).is_file()
    assert (folder.figure("reliability")).is_file()
    results = read_probabilities(folder)
    assert len(results) == 40
    assert results["probability"].between(0, 1).all()
    assert set(results["decision"]) <= {"benign", "refer", "malignant"}


def test_the_terminal_gives_five_lines(run: tuple[Path, str]) -> None:
    lines = run[1].strip().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("20 men, 40 regions: ")
    assert lines[-1].startswith("open ")
    assert not re.search(r"\bnan\b", run[1], re.IGNORECASE)


def test_checklists_claim_nothing_of_images(run: tuple[Path, str]) -> None:
    """The owner of a table has measured it: nothing here proves how."""
    text = RunFolder(run[0]).validation.read_text()
    for title in ("CLAIM 2024", "TRIPOD+AI", "CLEAR", "METRICS"):
        assert f"## {title}" in text
    for word in ("IBSI", "bias_correction", "0 features", "0 studies", "docs/features.md"):
        assert word not in text
    assert "3 columns of a table" in text
    assert "who made the table knows how its columns were measured" in text
    metrics = json.loads(RunFolder(run[0]).metrics.read_text())
    assert metrics["rivals"]["sentence"]


def test_an_outcome_alone_is_learned_and_shown(tmp_path: Path) -> None:
    frame = odd_tables.sound().drop(columns=["r1", "r2"])
    rng = np.random.default_rng(2)
    frame["cancer"] = rng.integers(0, 2, 40)
    frame["adc"] = frame["cancer"] * 2 + rng.normal(size=40)
    (tmp_path / "table.csv").write_text(odd_tables.csv(frame))
    words = ["table", "validate", str(tmp_path / "table.csv"), "--patient", "patient"]
    words += ["--histology", "cancer", *QUICK, "-o", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    results = read_probabilities(RunFolder(tmp_path / "run"))
    cancer = frame["cancer"].astype(int).to_numpy()
    p = results["probability"].to_numpy()
    assert p[cancer == 1].mean() > p[cancer == 0].mean() + 0.1
    page = RunFolder(tmp_path / "run").page("index.html").read_text()
    assert "not scored by anybody" not in page
    assert 'class="blinded"' not in page


def test_readers_alone_are_learned(tmp_path: Path) -> None:
    path = odd_tables.Odd("", odd_tables.csv).write(tmp_path)
    words = ["table", "validate", str(path), "--patient", "patient", "--scores", "r1,r2"]
    words += ["--ignore", "cancer", *QUICK, "-o", str(tmp_path / "run"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    content = json.loads(done.output)
    assert content["regions"] == 40
    assert content["metrics"]["histology"] is None


def test_of_a_large_table_some_regions_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cad.run.stages.validate.MOST_EXPLAINED", 11)
    path = odd_tables.Odd("", odd_tables.csv).write(tmp_path)
    words = ["table", "validate", str(path), *odd_tables.BASE, *QUICK]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.exception
    folder = RunFolder(tmp_path / "run")
    explained = pd.read_csv(folder.explanations)[["participant_id", "roi_id"]].drop_duplicates()
    assert len(explained) == 11
    # The first and the last region of the table are among them.
    assert {"p00", "p19"} <= set(explained["participant_id"])
    assert (
        "11 of 40 regions are explained, evenly over the table" in read_record(folder)["warnings"]
    )


def test_names_of_patients_are_no_paths(tmp_path: Path) -> None:
    """Names of people in the table are shown as text, and name no file."""
    frame = odd_tables.sound()
    frame["patient"] = frame["patient"].replace({"p00": "../../x", "p01": "<script>alert(1)"})
    (tmp_path / "table.csv").write_text(odd_tables.csv(frame))
    words = ["table", "validate", str(tmp_path / "table.csv"), *odd_tables.BASE, *QUICK]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.exception
    assert "<script>alert(1)" not in RunFolder(tmp_path / "run").page("index.html").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", "run"}


def test_the_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = odd_tables.Odd("", odd_tables.csv).write(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    words = ["table", "validate", str(path), *odd_tables.BASE, *QUICK, "-o", str(tmp_path / "mine")]
    assert isinstance(CliRunner().invoke(app, words).exception, CadError)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_rivals_of_many_rows_and_copied_men_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MOST_SQUARE", "MOST_GROWN"):
        monkeypatch.setattr(rivals, limit, 10)
    frame = odd_tables.sound()
    twin = frame.head(2).assign(patient="twin")
    (tmp_path / "table.csv").write_text(odd_tables.csv(pd.concat([frame, twin])))
    regions = read_regions(
        tmp_path / "table.csv", Columns("patient", ("r1", "r2"), histology="cancer")
    )
    settings = table_settings(learner="extra trees on p", folds=3)
    emitted = validate_table(regions, settings, tmp_path / "run", HERE)
    notes = read_record(RunFolder(tmp_path / "run"))["warnings"]
    assert any(note.startswith("not compared: logistic on soft labels") for note in notes)
    assert any(note.startswith("boosting on soft labels: each tree is") for note in notes)
    assert any(note.startswith("4 regions have the same features") for note in notes)
    assert emitted.metrics.rivals is not None
    learners = {row["learner"] for row in emitted.metrics.rivals["table"]}
    assert learners >= {"boosting on soft labels", "constant"}
    assert "kernel ridge on p" not in learners


@pytest.mark.parametrize(
    ("place", "value"),
    [(("settings",), True), (("settings", "decision"), ["blinded"]), (("model",), "phantom")],
)
def test_a_record_whose_sections_are_no_objects_is_refused(
    place: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    record: dict[str, Any] = {"settings": {"decision": {"blinded": True}}, "model": None}
    write_record(RunFolder(tmp_path), record)
    assert read_record(RunFolder(tmp_path)) == record
    section = record
    for name in place[:-1]:
        section = section[name]
    section[place[-1]] = value
    write_record(RunFolder(tmp_path), record)
    with pytest.raises(CadError, match=f"'{place[-1]}' is .*, must be an object"):
        read_record(RunFolder(tmp_path))
