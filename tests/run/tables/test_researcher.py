"""From a pyradiomics export with three readers to a folder that answers TRIPOD+AI."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cad.cli import app
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_probabilities


def exported(rows: int, columns: int) -> pd.DataFrame:
    """Return what pyradiomics writes, with three readers and histology of seven in ten."""
    rng = np.random.default_rng(1)
    latent = rng.normal(size=rows)
    weight = 0.4 * rng.normal(size=columns)
    table = {
        "PatientID": [f"P{row // 2:03d}" for row in range(rows)],
        "Image": [f"image{row}.nii.gz" for row in range(rows)],
        "diagnostics_Versions_PyRadiomics": "v3.0.1",
    }
    for place in range(columns):
        noise = rng.normal(size=rows)
        table[f"original_glcm_Feature{place}"] = weight[place] * latent + noise
    frame = pd.DataFrame(table)
    for reader in ("reader_1", "reader_2", "reader_3"):
        frame[reader] = np.clip(np.round(3 + 1.2 * latent + rng.normal(0, 0.8, rows)), 1, 5)
    grade = np.clip(np.round(latent + 0.7 + rng.normal(0, 0.7, rows)), 0, 5)
    frame["isup"] = np.where(rng.random(rows) < 0.7, grade, np.nan)
    return frame


@pytest.mark.slow
def test_500_rows_of_100_columns_take_a_minute(tmp_path: Path) -> None:
    exported(500, 100).to_csv(tmp_path / "table.csv", index=False)
    words = ["table", "validate", str(tmp_path / "table.csv"), "-o", str(tmp_path / "run")]
    words += ["--preset", "pyradiomics", "--patient", "PatientID", "--scores", "reader_*"]
    words += ["--histology", "isup", "--isup-min", "2", "--folds", "10"]
    start = time.process_time()
    done = CliRunner().invoke(app, words)
    seconds = time.process_time() - start
    assert done.exit_code == 0, done.exception
    assert seconds <= 60
    folder = RunFolder(tmp_path / "run")
    assert len(read_probabilities(folder)) == 500
    text = folder.validation.read_text()
    assert "## TRIPOD+AI" in text
    assert "100 columns of a table" in text
