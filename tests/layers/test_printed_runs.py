"""Commands that pages print run one after the other in one folder, with data in place of names."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from printed import COMMANDS

from cad.base.share import shared

OWN_DICOM = "docs/tutorials/own-dicom.md"
NAMES = {
    "SOURCE": "dicom",
    "COHORT": "cohort",
    "RULES": "sample",
    "RUN": "run",
    "TABLE.csv": "table.csv",
}
"""The file, folder or word in place of a name that a page leaves to its reader."""
QUICK = [
    (OWN_DICOM, "import SOURCE --explain", ""),
    (OWN_DICOM, "import SOURCE COHORT --rules RULES", "cohort/rois.tsv"),
    ("README.md", "check COHORT", ""),
    ("docs/tutorials/readers-to-model.md", "model verify", ""),
    ("docs/tutorials/first-run.md", "predict --model phantom-psvm --cohort cohort -o run", "run"),
    (OWN_DICOM, "report RUN --dicom --cohort COHORT", "run/dicom"),
]
"""Page, command without ``cad``, and a file or folder that the command writes."""
SLOW = [
    ("README.md", "demo -o out", "out/report/index.html"),
    ("docs/tutorials/first-run.md", "simulate cohort --patients 3", "cohort/rois.tsv"),
    ("README.md", "check COHORT", ""),
    ("README.md", "predict --cohort COHORT -o RUN", "run/report/index.html"),
    ("README.md", "table validate TABLE.csv -o RUN --scores r1,r2", "run/validation.md"),
    (
        "docs/table.md",
        "table train regions.csv -o MODEL --patient patient --scores r1,r2,r3 "
        "--histology isup --isup-min 2",
        "MODEL/metadata.json",
    ),
    ("docs/table.md", "table predict new.csv --model MODEL -o scored.csv", "scored.csv"),
]
MORE = {"model verify": ["phantom-psvm"]}
"""Arguments that the page leaves out, by command."""


def prepare(folder: Path) -> None:
    """Put a DICOM study and tables of scored regions into a folder, as the pages describe them."""
    (folder / "dicom").symlink_to(shared("sample_data", "dicom"))
    rng = np.random.default_rng(0)
    latent = rng.normal(size=60)
    rows = pd.DataFrame({"patient": np.arange(60) // 3, "adc": -latent + rng.normal(0, 0.5, 60)})
    rows.to_csv(folder / "new.csv", index=False)
    for reader in ("r1", "r2", "r3"):
        seen = 3 + 1.3 * latent + rng.normal(0, 0.6, 60)
        rows[reader] = np.clip(np.round(seen), 1, 5)
    two_readers = rows.rename(columns={"patient": "participant_id"}).drop(columns="r3")
    two_readers.to_csv(folder / "table.csv", index=False)
    rows["isup"] = np.clip(np.round(latent + 1), 0, 5)
    rows.to_csv(folder / "regions.csv", index=False)


def run_printed(page: str, command: str, writes: str, folder: Path) -> str:
    """Run a printed command in a folder; return what is wrong, or an empty text."""
    words = shlex.split(command)
    if (page, *words) not in COMMANDS:
        return f"{page} does not print: cad {command}"
    given = [NAMES.get(word, word) for word in words] + MORE.get(command, [])
    started = [sys.executable, "-m", "cad", *given]
    done = subprocess.run(started, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"{page}: cad {command}: {done.returncode}: {done.stderr[-500:]}"
    if writes and not (folder / writes).exists():
        return f"{page}: cad {command} wrote no {writes}"
    return ""


def test_quick_commands_of_pages_run(tmp_path: Path) -> None:
    prepare(tmp_path)
    for page, command, writes in QUICK:
        assert run_printed(page, command, writes, tmp_path) == ""


@pytest.mark.slow
def test_commands_of_the_readme_and_of_tutorials_run(tmp_path: Path) -> None:
    prepare(tmp_path)
    for page, command, writes in SLOW:
        # Two commands write into RUN: images first, and then a table.
        folder = tmp_path / "table" if command.startswith("table") else tmp_path
        if not folder.is_dir():
            folder.mkdir()
            prepare(folder)
        assert run_printed(page, command, writes, folder) == ""


def test_a_command_that_fails_or_is_not_printed_is_seen(tmp_path: Path) -> None:
    said = run_printed("README.md", "check COHORT", "", tmp_path)
    assert said.startswith("README.md: cad check COHORT: 2: ")
    said = run_printed("README.md", "check cohort", "", tmp_path)
    assert said == "README.md does not print: cad check cohort"
