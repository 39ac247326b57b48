"""A patient who withdraws leaves a cohort: afterwards no byte of it names them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from dicom_files import uid
from import_cases import RULES, write_patient, write_rois
from secret_scan import hits
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.dicom.into.importer import import_source
from cad.folders.cohort import read_cohort
from cad.folders.cohort.patients import KEY_FILE, Patients
from cad.folders.cohort.traces import Names, traces
from cad.run.audit.withdrawal import withdraw


def cohort_of(tmp_path: Path, labels: str = "id", people: tuple[str, ...] = ("MRN-7001",)) -> Path:
    """Import patients, each with two regions, scores and images."""
    for person in people:
        source = tmp_path / "in" / person
        write_patient(source, person, f"study of {person}", dce=False)
        write_rois(source, 1, 2, scores=f"{person},1,r1,likert5,4\n{person},1,r2,likert5,2\n")
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("labels: id", f"labels: {labels}"))
    assert import_source(tmp_path / "in", tmp_path / "cohort", rules).failures == []
    return tmp_path / "cohort"


def secrets(root: Path, participant: str) -> list[str]:
    """Everything that names a patient: label, PatientID and every UID of the sidecars."""
    names = Names.of(root, participant)
    assert len(names.uids) > 10
    return [names.participant, *names.source_ids, *names.uids]


@pytest.mark.parametrize("labels", ["id", "pseudonym"])
def test_no_byte_of_the_cohort_names_a_patient_who_left(tmp_path: Path, labels: str):
    root = cohort_of(tmp_path, labels, ("MRN-7001", "MRN-70012"))
    everybody = set(read_cohort(root).participants["participant_id"])
    leaving = "sub-MRN7001"
    if labels == "pseudonym":
        leaving = Patients(root, "pseudonym", set()).participant("MRN-7001")
    (staying,) = everybody - {leaving}
    (root / "derivatives" / "sketch" / leaving).mkdir(parents=True)
    (root / "derivatives" / "sketch" / leaving / "x.txt").write_text("x")
    (root / "notes.txt").write_text(f"{leaving} moved; {staying} did not")
    words = secrets(root, leaving)
    kept = {p: p.read_bytes() for p in (root / staying).rglob("*") if p.is_file()}
    key = (root / KEY_FILE).read_bytes() if labels == "pseudonym" else b""

    removed = withdraw(root, "MRN-7001")

    assert removed.names.participant == leaving
    assert removed.rows == {"participants.tsv": 1, "rois.tsv": 2, "scores.tsv": 4}
    assert removed.places == [f"derivatives/sketch/{leaving}", leaving]
    assert removed.holders == {str(root): ["notes.txt"]}  # not ours: named, and left to its author
    (root / "notes.txt").unlink()
    whole = [word for word in words if word not in staying and word != "MRN-7001"]
    assert len(whole) > 10  # the other patient's id begins as this one's: traces() tells them apart
    assert hits([root], whole) == []
    assert traces(root, removed.names) == []
    assert {p: p.read_bytes() for p in (root / staying).rglob("*") if p.is_file()} == kept
    assert read_cohort(root).problems == []
    assert list(read_cohort(root).participants["participant_id"]) == [staying]
    if key:
        assert (root / KEY_FILE).read_bytes() == key


def test_the_key_goes_with_the_last_patient(tmp_path: Path):
    root = cohort_of(tmp_path, "pseudonym")
    (participant,) = read_cohort(root).participants["participant_id"]
    words = [*secrets(root, participant), "MRN-7001"]
    removed = withdraw(root, participant)
    assert KEY_FILE in removed.places
    assert not any((root / KEY_FILE).parent.iterdir())
    assert hits([root], words) == []


def test_the_scan_has_teeth(tmp_path: Path):
    """A label, an id or a UID within a table, a page or a name is seen; a longer one is not."""
    names = Names("sub-A1", frozenset({"MRN-7"}), frozenset({uid("MRN-7", "s")}))
    pd.DataFrame({"participant_id": ["sub-A1"]}).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.html").write_text("<td>sub-A1</td>")
    (tmp_path / "c.json").write_text(json.dumps({"x": uid("MRN-7", "s")}))
    (tmp_path / "sub-A1_map.nii.gz").write_bytes(b"")
    (tmp_path / "d.txt").write_text("patient MRN-7.")
    found = ["a.parquet", "b.html", "c.json", "d.txt", "sub-A1_map.nii.gz"]
    assert traces(tmp_path, names) == found
    (tmp_path / "e.txt").write_text(f"sub-A12 MRN-77 {uid('MRN-7', 's')}1 xsub-A1")
    assert traces(tmp_path, names) == found


def test_what_is_no_patient_is_said(tmp_path: Path):
    root = cohort_of(tmp_path)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    said = CliRunner().invoke(app, ["cohort", "remove", "sub-Nobody", "--cohort", str(root)])
    assert said.exit_code == 1
    assert "sub-Nobody is not in the cohort" in said.output
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before
    with pytest.raises(CadError, match="names no patient"):
        withdraw(root, "/..")
    with pytest.raises(CadError, match=r"no such cohort: it has no participants\.tsv"):
        withdraw(tmp_path / "in", "sub-A1")
