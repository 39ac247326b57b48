"""A finished run with its pages, and a browser that opens them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cad.run.reports import write_report
from tests.run.reports.made_run import Patient, make_run


@pytest.fixture(scope="session")
def run_maker() -> Callable[..., Path]:
    """Write run folders of any patients."""
    return make_run


@pytest.fixture(scope="session")
def patient_kind() -> type[Patient]:
    """The description that ``run_maker`` takes."""
    return Patient


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with its pages; tests read it and change nothing."""
    run = make_run(tmp_path_factory.mktemp("reports") / "run")
    write_report(run)
    return run


PLACES = ("/usr/bin/chromium", "/usr/bin/chromium-browser")


def _chromium() -> str | None:
    chosen = os.environ.get("CAD_CHROMIUM")
    return next((p for p in (chosen, *PLACES) if p and Path(p).exists()), None)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the place of the system's Chromium; absent, a loud skip, or a failure with CI=true."""
    path = _chromium()
    absent = [name for name in ("pdftoppm", "pdftotext") if shutil.which(name) is None]
    if path is None or absent:
        lacking = ", ".join([*(["chromium"] if path is None else []), *absent])
        text = f"{lacking.upper()} ABSENT: no page was opened; run scripts/install_tools.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return str(path)


@pytest.fixture(scope="session")
def driver(chromium: str) -> Iterator[Any]:
    """Playwright, once: its loop can be started only once a thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def browser(chromium: str, driver: Any) -> Iterator[Any]:
    """The system's Chromium."""
    started = driver.chromium.launch(
        executable_path=chromium, args=["--no-sandbox", *os.environ.get("XARGS", "").split()]
    )
    yield started
    started.close()


class Opened:
    """A page with everything it said, and everything it asked the network for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.context = browser.new_context(viewport={"width": 1440, "height": 900})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(path.as_uri())
        self.path = path

    def ready(self) -> Any:
        """The page once its viewers have drawn."""
        self.page.wait_for_function(
            "Array.from(document.querySelectorAll('.viewer')).every(v => v.dataset.ready)"
        )
        return self.page


@pytest.fixture(scope="module")
def standing(browser: Any, finished_run: Path) -> Iterator[Callable[[str], Opened]]:
    """Pages of the finished run that stay open for every test that changes nothing on them."""
    made: dict[str, Opened] = {}

    def show(name: str) -> Opened:
        if name not in made:
            made[name] = Opened(browser, finished_run / "report" / f"{name}.html")
            made[name].ready()
        return made[name]

    yield show
    for item in made.values():
        item.context.close()


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


@pytest.fixture
def axe() -> Callable[[Any], list[tuple[str, str, str]]]:
    """Return what axe finds on a page in light and dark, of any impact, small targets included."""
    from axe_playwright_python.sync_playwright import Axe

    rules = {"rules": {"target-size": {"enabled": True}}}

    def findings(page: Any) -> list[tuple[str, str, str]]:
        found = []
        # Folded text is judged, too.
        page.evaluate(
            "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
        )
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found += Axe().run(page, options=rules).response["violations"]
        return [(v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in found]

    return findings
