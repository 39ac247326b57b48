"""From DICOM with a name on it to pages and DICOM again: nobody is named anywhere in a run.

Every free text of a small study, and what failures and kills leave: ``test_identity_scan.py``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from dicom_files import IDENTIFYING, edit
from secret_scan import hits

from cad.dicom.into.importer import import_source

PATIENT = "MRN-55821"
EXTRA = {
    "PatientComments": "<script>alert('Gravenstein')</script>",
    "SeriesDate": "20240307",
    "OperatorsName": "Zwiebelfisch^Anna",
    "DeviceSerialNumber": "SN-445566",
    "ProtocolName": "Protokoll Gravenstein",
    "ImageComments": "Herr Gravenstein, Lindenallee",
    "StationName": "Obertal7",
    "InstitutionAddress": "Lindenallee 1, Obertal",
    "PerformedProcedureStepDescription": "Gravenstein",
}
READER = "Dr Kunigunde Reblaus"


@pytest.mark.slow
def test_a_run_names_nobody(repository, tmp_path):
    """Import, train, predict, report and DICOM output of a study whose every header names him."""
    source = tmp_path / "in" / "Gravenstein Waldemar"
    shutil.copytree(repository / "sample_data/dicom/Sample0001", source)
    for path in source.rglob("*.dcm"):
        edit(path, PatientID=PATIENT, StudyDate="20240307", **IDENTIFYING, **EXTRA)
        path.rename(path.with_name(f"Gravenstein-{path.name}"))
    scores = source / "scores.csv"
    text = scores.read_text().replace("Sample0001", PATIENT).replace(",r4,", f",{READER},")
    scores.write_text(text)
    rules = tmp_path / "rules.yaml"
    sample = (repository / "configs/import/sample.yaml").read_text()
    rules.write_text(sample.replace("labels: id", "labels: pseudonym"))
    out = tmp_path / "out"
    summary = import_source(tmp_path / "in", out / "cohort", rules)
    assert summary.failures == []
    said = [summary.as_text()]
    cad = [sys.executable, "-m", "cad.cli"]
    model, cohort, run = tmp_path / "model", out / "cohort", out / "run"
    for command in (
        ["check", cohort],
        ["train", "demo", "--cohort", repository / "sample_data", "-o", model],
        ["predict", "--model", model, "--cohort", cohort, "-o", run, "--map"],
        ["report", run, "--dicom", "--cohort", cohort],
    ):
        done = subprocess.run(
            [*cad, *command], capture_output=True, text=True, timeout=280, check=True
        )
        said += [done.stdout, done.stderr]
    kinds = sorted(path.stem.rsplit("_", 1)[1] for path in (run / "dicom").glob("*.dcm"))
    assert kinds == ["PM", "SEG", "SR"]
    assert (run / "log.jsonl").is_file()
    secrets = [PATIENT, PATIENT.replace("-", ""), "20240307", "Reblaus", "Kunigunde"]
    for value in [*IDENTIFYING.values(), *EXTRA.values()]:
        secrets += [part for part in value.replace("^", " ").split() if len(part) > 4]
    assert len([p for p in out.rglob("*") if p.is_file()]) > 30
    assert hits([out], secrets, [text.replace(str(tmp_path), "") for text in said]) == []
