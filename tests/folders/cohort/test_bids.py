"""The BIDS validator finds no error in any cohort that is written here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cad.base.share import find, shared
from cad.dicom.into.importer import import_source
from cad.evidence.phantom import simulate

VALIDATOR = Path(sys.executable).with_name("bids-validator-deno")


def errors(cohort: Path) -> list[str]:
    """Return code and place of every error of a cohort."""
    said = subprocess.run(
        [str(VALIDATOR), str(cohort), "--json"], capture_output=True, text=True, check=False
    )
    issues = json.loads(said.stdout)["issues"]["issues"]
    assert issues, "the validator always recommends something"
    return [f"{i['code']} {i['location']}" for i in issues if i["severity"] == "error"]


@pytest.mark.parametrize("kind", ["sample", "simulated", "imported"])
def test_no_error(kind: str, tmp_path: Path) -> None:
    cohort = tmp_path / "cohort"
    if kind == "sample":
        cohort = shared("sample_data")
    elif kind == "simulated":
        simulate(cohort, patients=2, seed=0, light=True)
        dwi = next((cohort / "sub-0001" / "dwi").glob("*_acq-b*_dwi.nii.gz"))
        shutil.copy(dwi, dwi.with_name("sub-0001_acq-highb_dwi.nii.gz"))
    else:
        source = shared("sample_data", "dicom")
        assert not import_source(source, cohort, find("configs/import", "sample", ".yaml")).failures
        assert list(cohort.rglob("*.bval"))
    assert errors(cohort) == []


def test_an_error_is_seen(tmp_path: Path) -> None:
    shutil.copytree(
        shared("sample_data"), tmp_path / "cohort", ignore=shutil.ignore_patterns("dicom")
    )
    next((tmp_path / "cohort").rglob("*.bval")).unlink()
    (tmp_path / "cohort" / "notes.txt").write_text("a")
    found = errors(tmp_path / "cohort")
    assert {line.split()[0] for line in found} == {"DWI_MISSING_BVAL", "NOT_INCLUDED"}
