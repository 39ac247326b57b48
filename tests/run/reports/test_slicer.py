"""Study, regions and probabilities in 3D Slicer's core, where a Python that has it is named."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


class Scene:
    """Stand for Slicer's scene where nothing is loaded."""

    def AddNewNodeByClass(self, *_: str) -> None:
        raise AssertionError("nothing is there to be loaded")


def test_a_study_that_slicer_cannot_show_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
):
    for name in ("slicer", "vtk", "vtk.util", "vtk.util.numpy_support"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vtk.util.numpy_support"].vtk_to_numpy = None
    script = runpy.run_path(str(repository / "scripts" / "in_slicer.py"))
    (tmp_path / "run").mkdir()
    table = tmp_path / "run" / "probabilities.csv"
    table.write_text("study_id,roi_id,label,probability\n")
    with pytest.raises(OSError, match="sub-0001: the cohort has no such study"):
        script["show"](tmp_path, tmp_path / "run", "sub-0001", Scene())
    (tmp_path / "sub-0001").mkdir()
    with pytest.raises(OSError, match="no region of sub-0001 has a probability"):
        script["show"](tmp_path, tmp_path / "run", "sub-0001", Scene())
    table.write_text("study_id,roi_id,label,probability\nsub-0001,1,1,0.5\n")
    with pytest.raises(OSError, match=r"sub-0001_rois\.nii\.gz: the study's outlines"):
        script["show"](tmp_path, tmp_path / "run", "sub-0001", Scene())


def test_outside_slicer_its_command_is_named(tmp_path: Path, repository: Path):
    script = repository / "scripts" / "in_slicer.py"
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Slicer --python-script" in ended.stderr
    assert "Traceback" not in ended.stderr
