"""Results in a run folder have no signature and are not encrypted: SECURITY.md names this test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd

from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_probabilities


def test_who_writes_a_run_folder_changes_its_results(run_folder: Path, tmp_path: Path):
    run = RunFolder(Path(shutil.copytree(run_folder, tmp_path / "run")))
    table = pd.read_csv(run.probabilities, dtype=str, keep_default_na=False)
    table["probability"] = "0.5"
    table.to_csv(run.probabilities, index=False)
    assert (read_probabilities(run)["probability"] == 0.5).all()


def test_files_on_the_disk_are_readable_to_who_opens_them(run_folder: Path):
    text = RunFolder(run_folder).probabilities.read_bytes().decode("utf-8")
    assert text.startswith("participant_id,")
    assert "sub-0001" in text
