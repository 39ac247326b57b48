"""From DICOM with a name on it to pages and DICOM again: nobody is named anywhere in a run."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from dicom_files import IDENTIFYING, edit

from cad.clinic.dicom_out import write_sr_and_seg
from cad.clinic.importer import import_source

PATIENT = "MRN-55821"
EXTRA = {
    "PatientComments": "<script>alert('Gravenstein')</script>",
    "SeriesDate": "20240307",
    "OperatorsName": "Zwiebelfisch^Anna",
    "DeviceSerialNumber": "SN-445566",
}


def contents(path: Path) -> list[str]:
    """A file as text, with what it packs."""
    data = path.read_bytes()
    texts = [data.decode("latin-1"), data.decode("utf-16-le", "ignore")]
    if path.suffix == ".gz":
        texts.append(gzip.decompress(data).decode("latin-1"))
    if path.suffix == ".parquet":
        texts.append(pd.read_parquet(path).to_csv())
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as bundle:
            for name in bundle.namelist():
                member = bundle.read(name)
                texts += [name, member.decode("latin-1"), member.decode("utf-32-le", "ignore")]
    return texts


@pytest.mark.slow
def test_a_run_names_nobody(repository, tmp_path):
    """Import, train, predict, report and DICOM output of a study whose every header names him."""
    source = tmp_path / "in"
    shutil.copytree(repository / "sample_data/dicom/Sample0001", source)
    for path in source.rglob("*.dcm"):
        edit(path, PatientID=PATIENT, StudyDate="20240307", **IDENTIFYING, **EXTRA)
    scores = source / "scores.csv"
    scores.write_text(scores.read_text().replace("Sample0001", PATIENT))
    rules = tmp_path / "rules.yaml"
    sample = (repository / "configs/import/sample.yaml").read_text()
    rules.write_text(sample.replace("labels: id", "labels: pseudonym"))
    out = tmp_path / "out"
    summary = import_source(source, out / "cohort", rules)
    assert summary.failures == []
    said = [summary.as_text()]
    cad = [sys.executable, "-m", "cad.cli"]
    sample_cohort = repository / "sample_data"
    for command in (
        ["train", "demo", "--cohort", sample_cohort, "-o", tmp_path / "model"],
        ["predict", "--model", tmp_path / "model", "--cohort", out / "cohort", "-o", out / "run"],
    ):
        done = subprocess.run(
            [*cad, *command], capture_output=True, text=True, timeout=280, check=True
        )
        said += [done.stdout, done.stderr]
    result = write_sr_and_seg(out / "run", out / "cohort", out / "dicom")
    assert len(result.files) == 2
    secrets = [PATIENT, PATIENT.replace("-", ""), "20240307"]
    for value in [*IDENTIFYING.values(), *EXTRA.values()]:
        secrets += [part for part in value.replace("^", " ").split() if len(part) > 4]
    files = [p for p in out.rglob("*") if p.is_file()]
    assert len(files) > 30
    for path in files:
        said.append(str(path.relative_to(out)))
        for text in contents(path):
            for secret in secrets:
                assert secret not in text, f"{secret} in {path.relative_to(out)}"
    for text in said:
        assert not [secret for secret in secrets if secret in text]
