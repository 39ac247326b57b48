"""Pictures for the documentation from a run folder: ``python scripts/screenshots.py RUN OUT``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"


def main(run: Path, out: Path) -> None:
    """Index, patient page, slice viewer, one region and one printed page."""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="dark")
        page.goto((run / "report" / "index.html").resolve().as_uri())
        first = page.get_attribute("#patients tbody a", "href")
        page.screenshot(path=out / "index.png")
        page.locator(".figures").screenshot(path=out / "figures.png")
        page.goto((run / "report" / str(first)).resolve().as_uri())
        page.wait_for_selector(".viewer[data-ready]")
        page.screenshot(path=out / "patient.png")
        page.focus(".viewer")
        page.keyboard.press("m")
        page.locator(".viewer").screenshot(path=out / "viewer.png")
        page.keyboard.press("m")
        page.locator(".region").first.screenshot(path=out / "region.png")
        with tempfile.TemporaryDirectory() as folder:
            pdf = Path(folder) / "page.pdf"
            page.pdf(path=pdf, prefer_css_page_size=True, print_background=True)
            command = ["pdftoppm", "-r", "90", "-png", "-l", "1", "-singlefile", pdf, out / "print"]
            subprocess.run(command, check=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
