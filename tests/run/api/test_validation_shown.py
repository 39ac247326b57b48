"""A validation is shown as text and in a notebook, and takes tables of several libraries."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pytest

import cad
from cad.base.errors import CadError
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.records import read_metrics
from cad.folders.run_folder.tables import read_probabilities


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return 48 regions of 16 patients: two features, labels, truth and the patient's name."""
    rng = np.random.default_rng(1)
    latent = rng.normal(size=48)
    return pd.DataFrame(
        {
            "adc": latent + rng.normal(0, 0.5, 48),
            "t2": rng.normal(size=48),
            "p": np.clip(np.round(2 + 1.2 * latent), 0, 4) / 4,
            "truth": (latent + rng.normal(0, 0.5, 48) > 0).astype(float),
            "patient": [f"p{k // 3}" for k in range(48)],
        }
    )


@pytest.fixture(scope="module")
def result(table: pd.DataFrame) -> cad.Validation:
    rivals = {"<script>alert(1)</script>": cad.learners.PlattSVC()}
    return cad.validate(
        cad.learners.ProbabilisticSVC(C=1.0),
        table[["adc", "t2", "patient"]],
        table["p"],
        "patient",
        truth=table["truth"],
        rivals=rivals,
        folds=4,
    )


def test_its_text_is_short_and_has_the_measures(result: cad.Validation) -> None:
    lines = repr(result).splitlines()
    assert lines[0] == "Validation: 48 of 48 regions predicted in 4 folds"
    assert len(lines) == 4
    row = result.comparison.query("learner == 'learner' and against == 'histology'")
    auc = float(row.set_index("measure")["value"]["auc"])
    assert f"AUC {auc:.3f}" in lines[2]
    assert lines[-1] == result.sentence
    assert "float64" not in repr(result)


def test_a_notebook_shows_table_reliability_and_roc(result: cad.Validation) -> None:
    html = result._repr_html_()
    titles = re.findall(r'<img alt="([^"]+)"', html)
    assert titles == ["Reliability", "ROC"]
    assert html.count("data:image/svg+xml;base64,") == 2
    rows = re.findall(r'<th scope="row">(.*?)</th>', html)
    assert set(rows) >= {"learner", "constant"}
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_patients_by_the_name_of_their_column(table: pd.DataFrame, result: cad.Validation) -> None:
    features = table[["adc", "t2"]]
    by_values = cad.validate(
        cad.learners.ProbabilisticSVC(C=1.0), features, table["p"], table["patient"], folds=4
    )
    np.testing.assert_array_equal(by_values.probability, result.probability)
    with pytest.raises(CadError, match="no column of that name"):
        cad.validate(cad.learners.PlattSVC(), features, table["p"], "patients")


def test_tables_of_polars_and_numpy(table: pd.DataFrame, result: cad.Validation) -> None:
    frame = polars.DataFrame({name: table[name].to_list() for name in table})
    learner = cad.learners.ProbabilisticSVC(C=1.0)
    of_polars = cad.validate(
        learner,
        frame.select("adc", "t2", "patient"),
        frame["p"],
        "patient",
        truth=frame["truth"],
        readers=frame.select("p"),
        folds=4,
    )
    np.testing.assert_array_equal(of_polars.probability, result.probability)
    of_numpy = cad.validate(
        learner,
        table[["adc", "t2"]].to_numpy(),
        table["p"].to_numpy(),
        table["patient"].to_numpy(),
        folds=4,
    )
    np.testing.assert_array_equal(of_numpy.probability, result.probability)


def test_it_is_saved_as_a_run_without_fitting_again(
    table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = pd.DataFrame({"anna": table["p"], "ben": np.roll(table["p"], 3)})
    result = cad.validate(
        cad.learners.ProbabilisticSVC(C=1.0),
        table[["adc", "t2"]],
        table["p"],
        table["patient"],
        truth=table["truth"],
        readers=readers,
        folds=4,
    )
    monkeypatch.setattr(cad.learners.ProbabilisticSVC, "fit", None)
    page = result.save(tmp_path / "run")
    assert page == RunFolder(tmp_path / "run").page("index.html")
    folder = RunFolder(tmp_path / "run")
    saved = read_probabilities(folder)
    np.testing.assert_allclose(saved["belief"], result.probability, rtol=0, atol=1e-15)
    assert saved["participant_id"].tolist() == table["patient"].tolist()
    assert set(saved["decision"]) <= {"malignant", "refer", "benign"}
    text = folder.validation.read_text()
    assert "## TRIPOD+AI" in text
    assert result.sentence in page.read_text().replace("&#39;", "'")
    assert read_metrics(folder)["readers"].keys() == {"anna", "ben"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(CadError):
        result.save(tmp_path / "mine")
