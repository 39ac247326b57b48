"""A reader study in a real Chromium: keys, killed browsers, browsers that keep nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from reading_cases import make_cohort

from cad.hospital.reader_study.exports import collect_reading
from cad.hospital.reader_study.study import ReadingSettings, write_reading

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CASES = 50


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cohort(tmp_path_factory.mktemp("reading") / "c", CASES)


@pytest.fixture(scope="module")
def study(cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading") / "study"
    write_reading(cohort, folder, ReadingSettings(("r1", "r2")))
    return folder


def _case(page: Any, k: int) -> str:
    """Wait until the k-th case is on the screen; return its code."""
    page.wait_for_function(
        """k => { const v = document.querySelector(".viewer");
            return v && v.dataset.case
              && document.getElementById("progress").textContent.startsWith(`case ${k} of`); }""",
        arg=k,
    )
    return str(page.get_attribute(".viewer", "data-case"))


def test_fifty_cases_by_keys_are_exported_and_merged_to_the_byte(
    cohort: Path, study: Path, opened: Callable[[Path], Any], tmp_path: Path
) -> None:
    seen = opened(study / "r1-session-1.html")
    page = seen.page
    given: dict[tuple[str, str], int] = {}
    for k in range(1, CASES + 1):
        code = _case(page, k)
        for n, roi in enumerate("ab"):
            score = 1 + (k + n) % 5
            page.keyboard.press(str(score))  # a score takes one key
            given[code, roi] = score
        page.keyboard.press("Enter")
    page.wait_for_selector("#done:not([hidden])")
    with page.expect_download() as download:
        page.click("#export")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "r1-session-1.jsonl"
    assert seen.said == []
    assert all(not url.startswith("http") for url in seen.asked)
    content = json.loads(path.read_bytes().split(b"\n")[0])
    assert {(r["case"], r["roi"]): r["score"] for r in content["readings"]} == given
    assert all(r["milliseconds"] > 0 for r in content["readings"])
    before = (cohort / "scores.tsv").read_bytes()
    try:
        collect_reading(cohort, study, [path])
        cases = json.loads((study / "reading.json").read_text())["cases"]
        patient = {code: case["participant_id"] for code, case in cases.items()}
        wanted = "".join(
            f"{p}\t{roi}\tr1\tlikert5\t{score}\n"
            for p, roi, score in sorted((patient[c], r, s) for (c, r), s in given.items())
        )
        assert (cohort / "scores.tsv").read_bytes() == before + wanted.encode()
        assert len(pd.read_csv(study / "readings.tsv", sep="\t")) == 2 * CASES
    finally:
        (cohort / "scores.tsv").write_bytes(before)


@contextmanager
def _running(chromium: str, profile: Path, driver: Any) -> Iterator[tuple[Any, subprocess.Popen]]:
    """A browser of our own, with a profile, that can be killed."""
    process = subprocess.Popen(
        [
            chromium,
            "--headless=new",
            "--no-sandbox",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        address = ""
        while not address:
            line = process.stderr.readline()
            assert line, "the browser ended"
            address = line.split("listening on ")[1].strip() if "listening on " in line else ""
        yield driver.chromium.connect_over_cdp(address), process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()


def test_a_killed_browser_loses_at_most_the_current_case(
    study: Path, chromium: str, driver: Any, tmp_path: Path
) -> None:
    url = (study / "r2-session-1.html").as_uri()
    with _running(chromium, tmp_path / "profile", driver) as (browser, process):
        page = browser.contexts[0].new_page()
        page.goto(url)
        codes = []
        for k in range(1, 7):
            codes.append(_case(page, k))
            page.keyboard.press("2")
            page.keyboard.press("5")
            page.keyboard.press("Enter")
        _case(page, 7)
        page.keyboard.press("3")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with _running(chromium, tmp_path / "profile", driver) as (browser, _):
        page = browser.contexts[0].new_page()
        page.goto(url)
        _case(page, 7)
        content = json.loads(page.evaluate("() => window.cadExport()").split("\n")[0])
        kept = {(r["case"], r["roi"]): r["score"] for r in content["readings"]}
        for code in codes:
            assert kept[code, "a"] == 2
            assert kept[code, "b"] == 5


def test_a_browser_without_storage_warns_and_still_exports(
    study: Path, opened: Callable[[Path], Any]
) -> None:
    seen = opened(study / "r2-session-1.html")
    seen.page.add_init_script(
        """for (const name of ["localStorage", "indexedDB"])
             Object.defineProperty(window, name, { get() { throw new Error("refused"); } });"""
    )
    seen.page.reload()
    _case(seen.page, 1)
    seen.page.keyboard.press("4")
    assert "keeps nothing" in seen.page.inner_text("#alarm")
    content = json.loads(seen.page.evaluate("() => window.cadExport()").split("\n")[0])
    assert [r["score"] for r in content["readings"]] == [4]
    assert [text for text in seen.said if text.startswith("error")] == []


def test_the_reading_page_is_accessible_and_names_what_it_cannot_load(
    study: Path, opened: Callable[[Path], Any], axe: Callable[[Any], Any], tmp_path: Path
) -> None:
    page = opened(study / "r2-session-1.html").page
    _case(page, 1)
    assert axe(page) == []
    lost = tmp_path / "r2-session-1.html"
    lost.write_bytes((study / "r2-session-1.html").read_bytes())
    alone = opened(lost).page
    alone.wait_for_selector("#alarm:not([hidden])")
    assert "cannot be read" in alone.inner_text("#alarm")


def test_a_reader_scores_by_the_keyboard_alone_and_can_turn_single_keys_off(
    study: Path, opened: Callable[[Path], Any]
) -> None:
    page = opened(study / "r2-session-1.html").page
    _case(page, 1)
    given = "JSON.parse(window.cadExport().split('\\n')[0]).readings.map((r) => [r.roi, r.score])"
    button = page.locator("[aria-label='Region b: 4']")
    button.focus()
    page.keyboard.press("Space")
    assert page.evaluate(given) == [["b", 4]]
    # A part of the page that is made anew on every score keeps the focus.
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Region b: 4"
    page.locator("#keys").focus()
    page.keyboard.press("Space")
    page.keyboard.press("2")
    assert page.evaluate(given) == [["b", 4]]
    mark = page.locator("[aria-label='Mark region a']")
    mark.focus()
    page.keyboard.press("Enter")
    assert mark.get_attribute("aria-pressed") == "true"
