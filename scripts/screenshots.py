"""Make the pages' pictures: ``python scripts/screenshots.py OUT DEMO [WITH_TOOL OUTLINES]``.

DEMO is a run of ``cad demo``. WITH_TOOL is a reader study on the sample that shows DEMO's
probabilities, and OUTLINES one with ``--outlines``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = "/usr/bin/chromium"


def main(out: Path, run: Path, *others: Path) -> None:
    """Picture a patient page, its two numbers and its printed sheet; then the others."""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        if others:
            picture_others(browser, out, *others)
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="dark")
        page.goto((run / "report" / "index.html").resolve().as_uri())
        first = page.get_attribute("#patients tbody a", "href")
        page.goto((run / "report" / str(first)).resolve().as_uri())
        page.wait_for_selector(".viewer[data-ready]")
        page.screenshot(path=out / "patient.png")
        page.locator("li.lesion").first.screenshot(path=out / "two-numbers.png")
        with tempfile.TemporaryDirectory() as folder:
            pdf = Path(folder) / "page.pdf"
            page.pdf(path=pdf, prefer_css_page_size=True, print_background=True)
            command = ["pdftoppm", "-r", "90", "-png", "-l", "1", "-singlefile", pdf, out / "print"]
            subprocess.run(command, check=True)
        browser.close()


def picture_others(browser: Browser, out: Path, with_tool: Path, outlines: Path) -> None:
    """Picture readers' pages: of a session with the tool, and of one with outlines."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="dark")

    def show(path: Path) -> None:
        page.goto(path.resolve().as_uri())
        page.wait_for_selector(".viewer[data-ready]")

    show(with_tool / "r1-session-1.html")
    while "tool" not in page.inner_text("#rois"):
        page.keyboard.press("Enter")
        page.wait_for_timeout(500)
    page.screenshot(path=out / "reading.png")
    show(outlines / "r1-session-1.html")
    for key in ("d", *["ArrowRight"] * 5, " "):
        page.keyboard.press(key)
    page.screenshot(path=out / "reading-outlines.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
