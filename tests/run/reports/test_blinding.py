"""If a site blinds, nothing that a person reads says what an unscored man's result is."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.folders.run_folder.blinding import held_back, held_back_of_table, open_results
from cad.folders.run_folder.known_failures import SortedFailures
from cad.folders.run_folder.results import read_results
from cad.learning.evaluation.summary import MeasuredDecisions, Summary
from cad.run.reports import write_report
from cad.run.reports.plots import probability_text
from cad.run.reports.printed import closing_lines, regions_as_json
from cad.run.stages.emit import Emitted
from tests.run.reports.made_run import blind

UNSCORED = "sub-P005"


@pytest.fixture(scope="module")
def blinded_run(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a site that blinds, in which nobody scored one of the men."""
    run = tmp_path_factory.mktemp("blinded") / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("report"))
    table = pd.read_csv(run / "probabilities.csv")
    own = table["participant_id"] == UNSCORED
    table.loc[own, "scores"] = np.nan
    # Numbers that no other man of the run has.
    table.loc[own, ["probability", "belief", "patient_probability"]] = [0.71717, 0.72727, 0.73737]
    table.to_csv(run / "probabilities.csv", index=False)
    blind(run, on=True)
    write_report(run)
    return run


def test_the_source_of_page_and_index_holds_no_number_of_him(blinded_run: Path) -> None:
    page = (blinded_run / "report" / f"{UNSCORED}.html").read_text(encoding="utf-8")
    for text in (
        "72%",
        "73%",
        "74%",
        "0.717",
        "0.727",
        "0.737",
        "call malignant",
        "call refer",
        "call benign",
    ):
        assert text not in page, text
    index = (blinded_run / "report" / "index.html").read_text(encoding="utf-8")
    row = re.search(rf'<tr[^>]*>\s*<th scope="row"><a href="{UNSCORED}.*?</tr>', index, re.S)
    assert row is not None
    for text in ("72%", "73%", "74%", "0.717", "0.737"):
        assert text not in row[0], text
    assert 'id="figures-title"' not in index  # pooled measures would say it of a single man
    assert "held back: not scored by a reader" in index


def test_terminal_and_json_hold_no_number_of_him(blinded_run: Path) -> None:
    results = read_results(blinded_run)
    metrics = Summary.from_dict(results.metrics)
    decisions = MeasuredDecisions.from_dict(results.metrics)
    lines = closing_lines(results, metrics, decisions)
    assert UNSCORED not in " ".join(lines)
    assert "1 man held back, not scored by a reader" in lines[0]
    for region in regions_as_json(results):
        hidden = region["participant_id"] == UNSCORED
        assert region["held_back"] == hidden
        assert (region["probability"] is None) == hidden
        assert (region["belief"] is None) == hidden
        assert (region["decision"] == "") == hidden
    none_failed = SortedFailures([], [], [])
    emitted = Emitted(blinded_run, 1, 1, [], none_failed, metrics, decisions, patients=lines)
    assert emitted.as_dict()["metrics"] is None
    assert "0.7" not in json.dumps([r for r in regions_as_json(results) if r["held_back"]])
    assert "AUC" not in emitted.as_text(verbose=True)


def test_a_score_opens_him_and_a_site_that_does_not_blind_hides_nobody(
    blinded_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(blinded_run, run, ignore=shutil.ignore_patterns("report", "studies"))
    assert held_back(read_results(run)) == {UNSCORED}
    table = pd.read_csv(run / "probabilities.csv")
    record = json.loads((run / "run.json").read_text())
    assert held_back_of_table(record, table) == {UNSCORED}
    table.loc[table["participant_id"] == UNSCORED, "scores"] = "r1=4"
    table.to_csv(run / "probabilities.csv", index=False)
    scored = read_results(run)
    assert held_back(scored) == frozenset()
    assert open_results(scored) is scored
    table["scores"] = np.nan
    table.to_csv(run / "probabilities.csv", index=False)
    blind(run, on=False)
    results = read_results(run)
    assert held_back(results) == frozenset()
    write_report(run)
    page = (run / "report" / f"{UNSCORED}.html").read_text(encoding="utf-8")
    assert probability_text(0.71717) in page
