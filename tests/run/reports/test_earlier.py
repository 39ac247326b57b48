"""The earlier study on page and sheet: the rows as counted by hand, in every language."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.results import read_results
from cad.folders.run_folder.tables import EarlierRow, write_earlier
from cad.learning.evaluation.summary import Summary
from cad.mri.imaging.earlier import State
from cad.run.reports import earlier, sheet, write_report
from cad.run.reports.content import patient_content
from cad.run.reports.paper import Paper
from cad.run.reports.views import list_patients
from cad.run.reports.wording import LANGUAGES, Wording

MAN = "sub-P003"
NOW = f"{MAN}_ses-02"
THEN = f"{MAN}_ses-01"
# By study and region: diameter, mm; volume, mm3; probability.
REGIONS = {
    (THEN, "1L1"): (12.04, 612.0, 0.34),
    (THEN, "1L2"): (8.0, 210.0, 0.12),
    (NOW, "2L1"): (15.0, 904.0, 0.61),
    (NOW, "2L2"): (7.5, 190.0, None),
}


def row(roi: str, earlier_roi: str = "", distance: float | None = None) -> EarlierRow:
    return EarlierRow(
        MAN, NOW, roi, THEN, earlier_roi, distance, "date", "aligned", 8.8, 7.5, "", 4.5, 0.104
    )


ROWS = [row("2L1", "1L1", 3.2), row("2L2"), row("", "1L2")]


@pytest.fixture(scope="module")
def run(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which a man's two studies were compared."""
    out = tmp_path_factory.mktemp("earlier") / "run"
    shutil.copytree(finished_run, out, ignore=shutil.ignore_patterns("report"))
    table = pd.read_csv(out / "probabilities.csv")
    table["psa"] = table["psa"].astype(float) if "psa" in table else np.nan
    for (study, roi), (_, _, probability) in REGIONS.items():
        region = (table["study_id"] == study) & (table["roi_id"] == roi)
        numbers = ["probability", "belief", "probability_images"]
        table.loc[region, numbers] = np.nan if probability is None else probability
        table.loc[region, "psa"] = 6.25
    table.to_csv(out / "probabilities.csv", index=False)
    for study, date, gland in ((THEN, "2024-03-01", 41.0), (NOW, "2025-09-12", 44.4)):
        path = RunFolder(out).study(study)
        with np.load(path) as archive:
            arrays = dict(archive)
        meta = json.loads(str(arrays["meta"]))
        meta["acquired"] = {"date": date, "scanner": "Siemens", "field_strength": 3.0}
        meta["gland_ml"] = gland
        for roi in meta["rois"]:
            diameter, volume, _ = REGIONS[study, roi["roi_id"]]
            roi.update(diameter_mm=diameter, volume_mm3=volume)
        arrays["meta"] = np.array(json.dumps(meta))
        np.savez_compressed(path, **arrays)
    write_earlier(RunFolder(out), ROWS)
    write_report(out)
    return out


@pytest.fixture
def drawn(run: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Draw the man's sheet and return all that stands on it, a line a text."""
    papers: list[Paper] = []

    class Noted(Paper):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            papers.append(self)

    monkeypatch.setattr(sheet, "Paper", Noted)

    def draw(language: str = "en") -> str:
        results = read_results(run)
        (patient,) = [man for man in list_patients(results) if man.patient == MAN]
        sheet.draw_sheet(results, Summary.from_dict(results.metrics), patient, language=language)
        return "\n".join(papers[-1].content)

    return draw


def view_of(run: Path, language: str = "en") -> earlier.EarlierView:
    results = read_results(run)
    (patient,) = [man for man in list_patients(results) if man.patient == MAN]
    metrics = Summary.from_dict(results.metrics)
    content = patient_content(results, metrics, patient, scroller=False, words=Wording(language))
    assert content.earlier is not None
    return content.earlier


def test_the_rows_are_those_counted_by_hand(run: Path) -> None:
    view = view_of(run)
    assert view.title == "Earlier study: sub-P003_ses-01"
    assert view.facts == [
        ["Date", "2024-03-01", "2025-09-12"],
        ["Gland volume", "41 mL", "44 mL"],
        ["PSA", "4.50 ng/mL", "6.25 ng/mL"],
        ["PSA density", "0.10 ng/mL²", "–"],
    ]
    assert view.regions_head == [
        "Region now",
        "Nearest then",
        "Distance",
        "Diameter",
        "Volume",
        "Probability",
        "",
    ]
    none = "none within 10 mm"
    assert view.regions == [
        ["2L1", "1L1", "3.2 mm", "12.0 → 15.0 mm", "0.61 → 0.90 mL", "34% → 61%", "Same region?"],
        ["2L2", none, "–", "– → 7.5 mm", "– → 0.19 mL", "– → –", ""],
        [none, "1L2", "–", "8.0 → – mm", "0.21 → – mL", "12% → –", ""],
    ]
    assert view.sentences == [
        "sub-P003_ses-02 is the latest by the dates of the studies.",
        "The T2 image of sub-P003_ses-01 was moved by 8.8 mm and turned by 7.5° onto that of "
        "sub-P003_ses-02. Distances are between the regions' centres; sizes and numbers are "
        "then → now.",
        "The comparison is for the reader: no decision of the tool rests on it.",
        "The man's probability counts the regions of all his studies in this run: a lesion that "
        "two of them show counts twice.",
    ]


def test_the_sheet_has_each_row_and_the_page_the_same(run: Path, drawn: Callable[..., str]) -> None:
    text = drawn()
    page = (run / "report" / f"{MAN}.html").read_text(encoding="utf-8")
    section = page.split('<section class="earlier"')[1].split("</section>")[0]
    for cells in view_of(run).regions:
        for cell in cells:
            assert cell in text, cell
            assert cell in section, cell
    assert "Date 2024-03-01 → 2025-09-12 · Gland volume 41 mL → 44 mL" in text
    assert "Earlier study: sub-P003_ses-01" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_outcome_has_a_sentence_in_every_language(run: Path, language: str) -> None:
    states = set(get_args(State))
    assert states == set(earlier._ALIGNMENTS)
    words = Wording(language)
    for state in states:
        sentence = words.say(
            earlier._ALIGNMENTS[state],
            earlier=THEN,
            study=NOW,
            moved="8.8",
            turned="7.5",
            reason="full disk",
        )
        assert "{" not in sentence
    view = view_of(run, language)
    assert len(view.regions) == 3
    if language != "en":
        assert "Same region?" not in view.regions[0]
        assert view.title != view_of(run).title


@pytest.mark.parametrize("state", ["no overlap", "too far", "glands apart"])
def test_an_alignment_that_is_not_trusted_shows_no_match(
    run: Path, tmp_path: Path, state: str
) -> None:
    out = tmp_path / "run"
    shutil.copytree(run, out)
    rows = [replace(row("2L1"), alignment=state), replace(row("2L2"), alignment=state)]
    write_earlier(RunFolder(out), rows)
    view = view_of(out)
    assert view.regions == []
    assert view.sentences[1].startswith("No region is compared")
    assert ["Gland volume", "41 mL", "44 mL"] in view.facts


def test_numbers_of_two_kinds_are_shown_as_what_both_have(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(run, out)
    table = pd.read_csv(out / "probabilities.csv")
    now = table["study_id"] == NOW
    table["model"] = table["model"].astype(object) if "model" in table else ""
    table.loc[table["study_id"] == THEN, "model"] = "full"
    table.loc[now, "model"] = "other"
    table.loc[now, "probability_of"] = "readers"
    table.loc[table["study_id"] == THEN, "belief"] = 0.25
    table.to_csv(out / "probabilities.csv", index=False)
    view = view_of(out)
    assert "Readers would say" in view.regions_head
    assert view.regions[0][5] == "25% → 61%"
    assert any(sentence.startswith("Different models") for sentence in view.sentences)
