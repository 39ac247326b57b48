"""The pages in a real Chromium: what a reader sees, presses and prints."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cad.reports import write_report

pytestmark = [
    pytest.mark.browser,
    # Playwright's own event loop leaves sockets to the collector when the process ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PLACES = ("/usr/bin/chromium", "/usr/bin/chromium-browser")
MEBI = 1024 * 1024


def _chromium() -> str | None:
    chosen = os.environ.get("CAD_CHROMIUM")
    return next((p for p in (chosen, *PLACES) if p and Path(p).exists()), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium; absent, a loud skip, and a failure where CI=true."""
    path = _chromium()
    absent = [name for name in ("pdftoppm", "pdftotext") if shutil.which(name) is None]
    if path is None or absent:
        lacking = ", ".join([*(["chromium"] if path is None else []), *absent])
        text = f"{lacking.upper()} ABSENT: no page was opened; run scripts/install_chromium.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page with everything it said, and everything it asked the network for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.context = browser.new_context(viewport={"width": 1400, "height": 1000})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(path.as_uri())

    def ready(self) -> Any:
        """The page once its viewers have drawn."""
        self.page.wait_for_function(
            "Array.from(document.querySelectorAll('.viewer')).every(v => v.dataset.ready)"
        )
        return self.page


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[[Path], Opened]]:
    """Open pages that are closed afterwards."""
    made: list[Opened] = []

    def open_page(path: Path) -> Opened:
        made.append(Opened(browser, path))
        return made[-1]

    yield open_page
    for item in made:
        item.context.close()


def _shown(page: Any) -> list[str]:
    return page.eval_on_selector_all(
        "#patients tbody tr th", "cells => cells.map(c => c.textContent)"
    )


def _probabilities(page: Any) -> list[float]:
    return page.eval_on_selector_all(
        "#patients tbody tr", "rows => rows.map(r => Number(r.dataset.p))"
    )


def _canvas(page: Any, number: int) -> np.ndarray:
    """Brightness of one panel's canvas as it is on the screen."""
    png = page.locator(".viewer canvas").nth(number).screenshot()
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"), float)


def test_pages_are_silent_and_ask_for_nothing(
    finished_run: Path, opened: Callable[[Path], Opened]
) -> None:
    for name in ("index", "sub-P001", "sub-P002", "sub-P003", "sub-P900"):
        seen = opened(finished_run / "report" / f"{name}.html")
        seen.ready()
        assert seen.said == []
        files = [u for u in seen.asked if not u.startswith("data:")]
        assert files == [(finished_run / "report" / f"{name}.html").as_uri()]
        assert seen.page.evaluate("window.stolen") is None


def test_index_is_sorted_by_probability_and_sorts_by_keyboard(
    finished_run: Path, opened: Callable[[Path], Opened]
) -> None:
    page = opened(finished_run / "report" / "index.html").page
    first = _probabilities(page)
    assert first == sorted(first, reverse=True)
    page.focus("button[data-key=p]")
    page.keyboard.press("Enter")
    assert _probabilities(page) == sorted(first)
    assert page.get_attribute("th:has(button[data-key=p])", "aria-sort") == "ascending"
    page.click("button[data-key=patient]")
    assert _shown(page) == sorted(_shown(page))
    page.click("button[data-key=decision]")
    decisions = page.eval_on_selector_all(
        "#patients tbody tr", "rows => rows.map(r => r.dataset.decision)"
    )
    rank = {"malignant": 3, "refer": 2, "benign": 1, "": 0}
    assert [rank[d] for d in decisions] == sorted((rank[d] for d in decisions), reverse=True)


def test_index_filters_by_decision_status_probability_and_text(
    finished_run: Path, opened: Callable[[Path], Opened]
) -> None:
    page = opened(finished_run / "report" / "index.html").page
    everyone = len(_shown(page))
    page.select_option("#decision", "malignant")
    assert set(
        page.eval_on_selector_all("#patients tbody tr", "rows => rows.map(r => r.dataset.decision)")
    ) == {"malignant"}
    page.click("#clear")
    assert len(_shown(page)) == everyone
    page.select_option("#status", "awaiting ROI")
    assert _shown(page) == ["sub-P901"]
    page.click("#clear")
    page.fill("#least", "0.5")
    assert min(_probabilities(page)) >= 0.5
    page.click("#clear")
    page.fill("#find", "p003")
    assert _shown(page) == ["sub-P003"]
    assert page.inner_text("#shown") == f"1 of {everyone} patients"


def test_scroller_shows_slices_and_moves_by_key_wheel_and_slider(
    finished_run: Path, opened: Callable[[Path], Opened]
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
    page.hover(".viewer canvas >> nth=1")
    page.mouse.wheel(0, -100)
    assert page.inner_text(".where").startswith("8 of 14")
    page.locator(".viewer .slice").fill("3")
    assert page.inner_text(".where").startswith("3 of 14")
    assert page.get_attribute(".viewer canvas >> nth=2", "aria-label").endswith("slice 3 of 14")


def test_scroller_panels_show_the_same_place(
    finished_run: Path, opened: Callable[[Path], Opened]
) -> None:
    page = opened(finished_run / "report" / "sub-P001.html").ready()
    box = page.locator(".viewer canvas").first.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    text = page.inner_text(".readout")
    assert "T2" in text
    assert "ADC" in text
    # The phantom's inner gland: T2 330, ADC 1250 with noise 25 and 70, or a region inside it.
    value = float(text.split("ADC ")[1].split(" ")[0])
    assert 500 < value < 1700


def test_outlines_map_and_window_change_the_picture(
    finished_run: Path, opened: Callable[[Path], Opened]
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
    finished_run: Path, opened: Callable[[Path], Opened]
) -> None:
    page = opened(finished_run / "report" / "sub-P002.html").ready()
    assert "DCE enhancement is missing" in page.inner_text(".panels")
    assert "DCE is missing from this study" in page.inner_text(".problems")
    assert page.locator(".viewer canvas").count() == 2


@pytest.mark.parametrize("width", [360, 400, 800])
@pytest.mark.parametrize("name", ["index", "sub-P002", "sub-P003", "sub-P900"])
def test_a_narrow_screen_scrolls_tables_in_their_box_and_nothing_else(
    finished_run: Path, opened: Callable[[Path], Opened], name: str, width: int
) -> None:
    page = opened(finished_run / "report" / f"{name}.html").ready()
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    beyond = page.evaluate(
        """() => Array.from(document.querySelectorAll("main *, header *"))
          .filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest("table"))
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert beyond == []
    boxes = page.evaluate(
        """() => Array.from(document.querySelectorAll("table"), (t) => t.parentElement)
          .filter((box) => box.scrollWidth > box.clientWidth)
          .map((box) => [getComputedStyle(box).overflowX, box.tabIndex])"""
    )
    assert all(box == ["auto", 0] for box in boxes)
    if name == "sub-P002" and width == 400:
        assert boxes


def test_no_serious_accessibility_finding(
    finished_run: Path, opened: Callable[[Path], Opened]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for name in ("index", "sub-P001", "sub-P003", "sub-P900"):
        page = opened(finished_run / "report" / f"{name}.html").ready()
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert serious == [], json.dumps(serious, indent=1)[:3000]


@pytest.mark.parametrize("name", ["sub-P001", "index"])
def test_printed_page_is_legible_a4(
    finished_run: Path, opened: Callable[[Path], Opened], tmp_path: Path, name: str
) -> None:
    page = opened(finished_run / "report" / f"{name}.html").ready()
    path = tmp_path / "page.pdf"
    page.pdf(path=path, prefer_css_page_size=True, print_background=True)
    text = subprocess.run(
        ["pdftotext", "-layout", path, "-"], check=True, capture_output=True, text=True
    ).stdout
    for word in ("Research use only", "Trained on simulated patients", "Malignant", "sub-P001"):
        assert word in text
    if name == "sub-P001":
        for word in ("×10⁻⁶ mm²/s", "intensity_", "poor Tofts fit", "Readers"):
            assert word in text
    size = subprocess.run(["pdfinfo", path], check=True, capture_output=True, text=True).stdout
    assert "(A4)" in size
    subprocess.run(["pdftoppm", "-r", "50", "-png", "-l", "1", path, tmp_path / "p"], check=True)
    picture = np.asarray(Image.open(next(tmp_path.glob("p-*.png"))).convert("L"), float)
    # Dark ink on white paper, with something on it.
    assert np.median(picture) > 250
    assert 0.01 < (picture < 128).mean() < 0.5


def test_a_patient_opens_within_a_second_and_six_mebibytes(
    finished_run: Path, opened: Callable[[Path], Opened]
) -> None:
    pages = sorted((finished_run / "report").glob("sub-*.html"))
    assert max(p.stat().st_size for p in pages) < 6 * MEBI
    taken = []
    for _ in range(5):  # the best of five: other work on this machine is not the page's
        page = opened(finished_run / "report" / "sub-P004.html").ready()
        # Milliseconds from the start of the navigation to the first drawn slices.
        taken.append(float(page.get_attribute(".viewer", "data-ready").removesuffix(" ms")))
    print(
        f"patient page drawn in {min(taken):.0f} ms, {max(p.stat().st_size for p in pages)} bytes"
    )
    assert min(taken) < 1000


def test_a_thousand_patients_are_below_two_megabytes_and_sort_in_a_fifth_of_a_second(
    tmp_path: Path,
    run_maker: Callable[..., Path],
    patient_kind: type,
    opened: Callable[[Path], Opened],
) -> None:
    patients = tuple(patient_kind(f"sub-Q{k:04d}", 7, images=False) for k in range(1000))
    run = run_maker(tmp_path / "run", patients)
    index = write_report(run)
    assert index.stat().st_size < 2_000_000
    page = opened(index).page
    assert len(_shown(page)) == 1003
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        """Seconds of the page's own thread: other work on this machine does not count."""
        found = session.send("Performance.getMetrics")["metrics"]
        return next(m["value"] for m in found if m["name"] == "TaskDuration")

    taken, walls = [], []
    for key in ("patient", "p", "malignant", "status", "decision"):
        before = spent()
        walls.append(
            page.evaluate(
                """key => {
                  const start = performance.now();
                  document.querySelector(`button[data-key=${key}]`).click();
                  document.body.offsetHeight;
                  return performance.now() - start;
                }""",
                key,
            )
        )
        taken.append(1000 * (spent() - before))
    print(
        f"{index.stat().st_size / 1e6:.2f} MB; sorts in {max(taken):.0f} ms of its thread, "
        f"{min(walls):.0f} to {max(walls):.0f} ms on the clock"
    )
    assert max(taken) <= 200
    page.click("#more")
    assert len(_shown(page)) == 1003
