"""Study, regions and probabilities in 3D Slicer's core, where a Python that has it is named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_probabilities
from cad.mri.imaging.nifti import read_label_map
from cad.run.execution.options import HERE
from cad.run.pipeline import predict_cohort


@pytest.mark.slow
def test_slicer_shows_every_region_with_its_probability(
    light_cohort: Path, tmp_path: Path, repository: Path
):
    python = os.environ.get("CAD_SLICER_PYTHON")
    if not python:
        pytest.skip("SLICER ABSENT: name a Python that has slicer-core in CAD_SLICER_PYTHON")
    predict_cohort(["phantom-psvm-biparametric"], light_cohort, tmp_path / "run", HERE)
    study = "sub-0001"
    ended = subprocess.run(
        [
            python,
            repository / "tests" / "support" / "show_in_slicer.py",
            light_cohort,
            tmp_path / "run",
            study,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = json.loads(ended.stdout.splitlines()[-1])
    assert shown["volumes"] == [f"{study}_T2w.nii.gz", f"{study}_ADC.nii.gz"]
    table = read_probabilities(RunFolder(tmp_path / "run"))
    rows = table[table["study_id"] == study]
    labels = read_label_map(light_cohort / study / "masks" / f"{study}_rois.nii.gz").array
    assert len(shown["segments"]) == len(rows)
    for segment, row in zip(shown["segments"], rows.itertuples(), strict=True):
        assert segment["name"] == f"{row.roi_id}: {row.probability:.2f}"
        assert segment["voxels"] == np.count_nonzero(labels == row.label)
        # From blue to red.
        red, _, blue = segment["colour"]
        assert red == pytest.approx(row.probability, abs=1e-6)
        assert blue == pytest.approx(1 - row.probability, abs=1e-6)
