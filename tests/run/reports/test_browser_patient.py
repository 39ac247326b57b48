"""A patient's page in a real Chromium: its slices, its ten questions, and what it hides."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from cad.run.reports import write_report
from tests.run.reports.made_run import blind

pytestmark = [
    pytest.mark.browser,
    # Playwright's own event loop leaves sockets to the collector when the process ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def _canvas(page: Any, number: int) -> np.ndarray:
    """Brightness of one panel's canvas as it is on the screen."""
    png = page.locator(".viewer canvas").nth(number).screenshot()
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"), float)


def test_scroller_shows_slices_and_moves_by_key_wheel_and_slider(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    for panel in range(3):
        assert _canvas(page, panel).std() > 20
    page.focus(".viewer")
    page.keyboard.press("Home")
    assert page.inner_text(".where").startswith("1 of 14, z −20.0 mm")
    bottom = _canvas(page, 0)
    for _ in range(6):
        page.keyboard.press("ArrowUp")
    assert page.inner_text(".where").startswith("7 of 14")
    assert np.abs(_canvas(page, 0) - bottom).mean() > 5
    page.click(".viewer canvas >> nth=1")
    page.mouse.wheel(0, -100)
    assert page.inner_text(".where").startswith("8 of 14")
    page.locator(".viewer .slice").fill("3")
    assert page.inner_text(".where").startswith("3 of 14")
    assert page.get_attribute(".viewer canvas >> nth=2", "aria-label").endswith("slice 3 of 14")


def test_scroller_panels_show_the_same_place(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    page.locator(".viewer").scroll_into_view_if_needed()
    box = page.locator(".viewer canvas").first.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    text = page.inner_text(".readout")
    assert "T2" in text
    assert "ADC" in text
    # The phantom's inner gland: T2 330, ADC 1250 with noise 25 and 70, or a region inside it.
    value = float(text.split("ADC ")[1].split(" ")[0])
    assert 500 < value < 1700


def test_outlines_map_and_window_change_the_picture(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    page.focus(".viewer")
    before = _canvas(page, 0)
    page.keyboard.press("o")
    plain = _canvas(page, 0)
    assert not page.is_checked(".outlines")
    assert 0 < (np.abs(plain - before) > 10).mean() < 0.2
    page.keyboard.press("m")
    mapped = _canvas(page, 0)
    assert (np.abs(mapped - plain) > 5).mean() > 0.1
    page.keyboard.press("m")
    box = page.locator(".viewer canvas").first.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 100, box["y"] + 20)
    page.mouse.up()
    page.mouse.move(5, 5)
    brighter = _canvas(page, 0)
    assert brighter.mean() > plain.mean() + 5
    page.focus(".viewer")
    page.keyboard.press("r")
    assert np.abs(_canvas(page, 0) - plain).max() == 0
    page.keyboard.press("Shift+ArrowUp")
    assert _canvas(page, 0).mean() > plain.mean()


def test_a_missing_modality_is_named_on_its_panel(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P002.html").ready()
    assert "DCE enhancement is missing" in page.inner_text(".panels")
    assert "DCE is missing from this study" in page.inner_text(".problems")
    assert "missing: DCE" in page.inner_text(".about")
    assert "1 result failed" in page.inner_text(".reliable")
    assert page.locator(".viewer canvas").count() == 2


QUESTIONS = {
    "who": "h1",
    "which region is worst": ".lesion h3",
    "where, how large, on which image": ".lesion .where-it-is",
    "how probable": ".lesion .tool",
    "do readers agree": ".lesion .readers",
    "what next, and why": ".lesion .action",
    "the man": ".man .first",
    "how reliable": ".man .reliable",
    "what is missing": "header .about",
    "for research only": ".banners",
}


def _printed(page: Any, path: Path) -> tuple[str, int]:
    """Text of the first sheet, and how many there are."""
    page.pdf(path=path, prefer_css_page_size=True, print_background=True)
    text = subprocess.run(
        ["pdftotext", "-raw", "-l", "1", path, "-"], check=True, capture_output=True, text=True
    ).stdout
    size = subprocess.run(["pdfinfo", path], check=True, capture_output=True, text=True).stdout
    return " ".join(text.split()), int(size.split("Pages:")[1].split()[0])


@pytest.mark.parametrize("name", ["sub-P001", "sub-P002", "sub-P004", "sub-P005"])
def test_ten_questions_are_answered_above_the_fold_and_on_one_sheet(
    finished_run: Path, opened: Callable[[Path], Any], tmp_path: Path, name: str
) -> None:
    page = opened(finished_run / "report" / f"{name}.html").ready()
    text, sheets = _printed(page, tmp_path / "p.pdf")
    # Three lesions fill a sheet; more of them, and the table of all regions, take a second.
    n_lesions = page.locator(".lesion").count()
    n_regions = page.locator("table.regions tbody tr").count()
    assert sheets == (2 if n_regions > 3 and n_lesions >= 3 else 1)
    for question, place in QUESTIONS.items():
        found = page.locator(place).first
        assert found.is_visible(), question
        box = found.bounding_box()
        assert box["y"] + box["height"] <= 900, question
        answer = found.inner_text()
        assert len(answer) > 2, question
        assert answer.split()[-1] in text, question
    assert page.evaluate("scrollY") == 0
    assert "series 4 image" in page.inner_text(".lesion .where-it-is >> nth=0")
    # Every lesion of the head is on the map, and has its pictures above the fold and on paper.
    lesions = page.locator(".lesion")
    assert page.locator(".head .sectors .at").count() == lesions.count()
    for k in range(lesions.count()):
        box = lesions.nth(k).bounding_box()
        assert box["y"] + box["height"] <= 900
        assert lesions.nth(k).locator("figure.key").count() >= 1


def test_links_lead_the_viewer_and_m_says_when_there_is_no_map(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    first = page.get_attribute(".lesion h3 a >> nth=0", "data-roi")
    marked = "window.cadViewers[0].marked.id"
    assert page.evaluate(marked) == first
    shown = page.inner_text(".where")
    link = page.locator(f"td a:not([data-roi='{first}'])").last
    link.click()
    assert page.evaluate(marked) == link.get_attribute("data-roi")
    assert page.evaluate("document.activeElement.id") == "viewer-0"
    page.click(f"td a[data-roi='{first}']")
    assert page.inner_text(".where") == shown
    page.keyboard.press("m")  # the link gave the viewer the keys
    there = page.evaluate("Boolean(window.cadViewers[0].layers.probability)")
    assert ("no probability map" in page.locator(".notice").inner_text()) != there
    assert page.is_checked(".map")


def test_ten_regions_fit_on_two_sheets_and_forty_on_a_page(
    tmp_path: Path,
    run_maker: Callable[..., Path],
    patient_kind: type,
    opened: Callable[[Path], Any],
) -> None:
    name = "sub-" + 60 * "X"
    run = run_maker(
        tmp_path / "run",
        (
            patient_kind("sub-T010", 10),
            patient_kind(name, 40),
        ),
    )
    write_report(run)
    page = opened(run / "report" / "sub-T010.html").ready()
    text, sheets = _printed(page, tmp_path / "ten.pdf")
    assert sheets == 2
    both = subprocess.run(
        ["pdftotext", "-raw", tmp_path / "ten.pdf", "-"], check=True, capture_output=True, text=True
    ).stdout
    first, second = both.split("\f")[:2]
    for k in range(1, 11):
        assert f"L{k} " in second.replace("\n", " ")
    assert all("sub-T010" in sheet for sheet in (first, second))
    assert "Research use only" in text
    many = opened(run / "report" / f"{name}.html").ready()
    assert many.evaluate("document.documentElement.scrollWidth") == 1440
    assert many.locator(".lesion .action").first.bounding_box()["y"] < 900
    assert many.locator(".goto button").count() > 5


@pytest.fixture(scope="module")
def unscored(
    run_maker: Callable[..., Path], patient_kind: type, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run with its pages in which nobody scored two of the patients."""
    patients = (
        patient_kind("sub-P001", 4),
        patient_kind("sub-P002", 3, missing=("dce",)),
        patient_kind("sub-P005", 1, missing=("adc",)),
        *(patient_kind(f"sub-P{k:03d}", 5, images=False) for k in range(6, 9)),
    )
    run = run_maker(tmp_path_factory.mktemp("unscored") / "run", patients)
    table = pd.read_csv(run / "probabilities.csv")
    table.loc[table["participant_id"].isin(["sub-P002", "sub-P005"]), "scores"] = np.nan
    table.to_csv(run / "probabilities.csv", index=False)
    blind(run, on=True)
    write_report(run)
    return run


def test_a_page_nobody_scored_is_held_back_where_the_site_wants_it(
    unscored: Path, opened: Callable[[Path], Any], tmp_path: Path
) -> None:
    run, index = unscored, unscored / "report" / "index.html"
    table = pd.read_csv(run / "probabilities.csv")
    own = table["participant_id"] == "sub-P002"
    seen = opened(run / "report" / "sub-P002.html")
    page = seen.ready()
    probabilities = [f"{100 * p:.0f}%" for p in table.loc[own, "probability"]]
    for word in (*probabilities, "Malignant", "Benign", "Histology", "Speaks against it"):
        assert word not in page.inner_text("body"), word
    assert page.locator(".man .first").count() == 0
    assert "held back" in page.inner_text(".blind")
    regions = page.eval_on_selector_all("table.regions tbody th", "c => c.map(e => e.textContent)")
    assert regions == sorted(regions)  # their order says nothing
    assert "P" not in page.get_attribute(".goto button", "title").removeprefix("Go to region")
    blind, _ = _printed(page, tmp_path / "blind.pdf")
    assert probabilities[0] not in blind
    assert seen.said == []
    # The index hides the same patient, and sorts by nothing that is hidden.
    listed = opened(index).page
    row = listed.locator("#patients tr:has-text('sub-P002')")
    assert "held back until a reader has scored" in row.inner_text()
    assert not any(p in row.inner_text() for p in probabilities)


def test_a_page_nobody_scored_shows_everything_where_the_site_does_not_blind(
    unscored: Path, opened: Callable[[Path], Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unscored, run, ignore=shutil.ignore_patterns("report"))
    blind(run, on=False)
    write_report(run)
    page = opened(run / "report" / "sub-P002.html").ready()
    table = pd.read_csv(run / "probabilities.csv")
    shown = page.inner_text("body")
    for value in table.loc[table["participant_id"] == "sub-P002", "probability"]:
        assert f"{100 * value:.0f}%" in shown
    assert "not scored by a reader" in shown


def test_the_wheel_is_the_pages_until_a_panel_was_clicked(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    before = page.inner_text(".where")
    page.hover(".viewer canvas >> nth=0")
    page.mouse.wheel(0, 100)
    page.wait_for_function("() => scrollY > 0")
    assert page.inner_text(".where") == before
    page.click(".viewer canvas >> nth=0")
    page.keyboard.press("Home")
    scrolled = page.evaluate("scrollY")
    page.mouse.wheel(0, -100)
    assert page.inner_text(".where").startswith("2 of 14")
    assert page.evaluate("scrollY") == scrolled
    page.mouse.wheel(0, 100)
    assert page.inner_text(".where").startswith("1 of 14")
    page.mouse.wheel(0, 100)  # at the first slice the page goes on
    page.wait_for_function(f"() => scrollY > {scrolled}")
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    page.mouse.wheel(0, 10)
    assert page.inner_text(".where").startswith("14 of 14")


def test_zoom_pan_and_ruler_measure_millimetres(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    page.focus(".viewer")
    plain = _canvas(page, 0)
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert page.inner_text(".zoom") == "1.6×"
    assert np.abs(_canvas(page, 0) - plain).mean() > 3
    box = page.locator(".viewer canvas").first.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.keyboard.press("p")
    zoomed = _canvas(page, 0)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 40, middle[1])
    page.mouse.up()
    moved = _canvas(page, 0)
    assert np.abs(moved - zoomed).mean() > 3
    page.keyboard.press("l")
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 80, middle[1] - 60)
    page.mouse.up()
    # 100 pixels of the screen: 88 mm fill the panel's width at zoom 1, here 1.5625.
    length = page.evaluate("window.cadViewers[0].length()")
    assert length == pytest.approx(100 * 88 / box["width"] / 1.5625, rel=0.02)
    page.keyboard.press("r")
    assert page.inner_text(".zoom") == "1×"


def test_the_adc_window_is_physical_and_never_negative(
    finished_run: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    caption = page.locator(".panels figcaption").nth(1)
    assert "window 400 to 2000 ×10⁻⁶ mm²/s" in caption.inner_text()
    page.click(".viewer canvas >> nth=1")
    for _ in range(30):
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowDown")
    assert "−" not in caption.inner_text().replace("×10⁻⁶", "")
