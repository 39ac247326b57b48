"""A patient who withdraws leaves a node, too: afterwards no byte of it names them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import write_series
from import_cases import RULES, write_patient, write_rois
from secret_scan import hits
from typer.testing import CliRunner

from cad.cli import app
from cad.clinic.audit import append, verify
from cad.clinic.importer import import_source
from cad.clinic.patients import Patients
from cad.cohort import read_cohort
from cad.folders.lock import locked
from cad.node import queue as states
from cad.node.inbox import Inbox
from cad.node.queue import Queue

LEAVING, STAYING = "MRN-7001", "MRN-70012"
SHAPE = (3, 16, 16)


def cohort_of(tmp_path: Path, labels: str) -> Path:
    for person in (LEAVING, STAYING):
        write_patient(tmp_path / "in" / person, person, f"study of {person}", dce=False)
        write_rois(tmp_path / "in" / person, 1)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("labels: id", f"labels: {labels}"))
    assert import_source(tmp_path / "in", tmp_path / "cohort", rules).failures == []
    return tmp_path / "cohort"


def receive(inbox: Inbox, folder: Path, patient: str) -> str:
    """A study that came and was computed; its key."""
    before = {entry.key for entry in inbox.queue.latest(states.STATES)}
    ids = {"patient": patient, "study": folder.name}
    for path in write_series(folder, np.ones(SHAPE, np.uint16), **ids):
        inbox.keep(path.read_bytes(), pydicom.dcmread(path), "SCANNER")
    (key,) = {entry.key for entry in inbox.queue.latest(states.STATES)} - before
    label = "sub-" + patient.replace("-", "")
    (inbox.work(key) / "cohort" / label).mkdir(parents=True)
    (inbox.work(key) / "cohort" / "participants.tsv").write_text(label)
    return key


def fill(inbox: Inbox, folder: Path) -> dict[str, str]:
    """Two studies of the one who leaves, one of who stays; patients by key."""
    append(inbox.home / "audit.jsonl", {"event": "start"})
    people = {"a": LEAVING, "b": LEAVING, "c": STAYING}
    return {receive(inbox, folder / name, person): person for name, person in people.items()}


def command(cohort: Path, patient: str, home: Path) -> tuple[int, dict[str, object]]:
    arguments = ["cohort", "remove", patient, "--cohort", str(cohort), "--node", str(home)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("labels", ["id", "pseudonym"])
@pytest.mark.parametrize("named", ["id", "label"])
def test_no_byte_of_the_node_names_a_patient_who_left(inbox, tmp_path, labels, named):
    """Named by PatientID or by label; where the label is a pseudonym its key proves whose it is."""
    cohort = cohort_of(tmp_path, labels)
    label = Patients(cohort, labels, set()).participant(LEAVING)
    whose, home = fill(inbox, tmp_path / "came"), inbox.home
    (staying,) = (key for key, person in whose.items() if person == STAYING)
    kept = {p: p.read_bytes() for p in home.rglob(f"{staying}/**/*") if p.is_file()}
    code, said = command(cohort, LEAVING if named == "id" else label, home)
    assert (code, said["studies"], said["still_held"]) == (0, {str(home): 2}, {})
    assert said["free"] == [str(home)]
    assert len(read_cohort(cohort).participants) == 1
    assert [entry.key for entry in inbox.queue.latest(states.STATES)] == [staying]
    assert inbox.queue.count_of(staying, "MR") == 3
    assert len(kept) == 4
    assert {path: path.read_bytes() for path in kept} == kept
    files = [path for path in home.rglob("*") if path.is_file()]
    texts = [f"{path} {path.read_bytes().decode('latin-1')}" for path in files]
    assert hits([], [STAYING], texts) != []
    others = [text.replace(STAYING, "").replace(STAYING.replace("-", ""), "") for text in texts]
    assert hits([], [LEAVING, "sub-MRN7001"], others) == []
    assert verify(home / "audit.jsonl").problems == []
    last = json.loads((home / "audit.jsonl").read_text().splitlines()[-1])["entry"]
    assert last == {"event": "withdraw", "node_keys": sorted(set(whose) - {staying})}


def test_a_trail_elsewhere_gets_the_line_too(inbox, tmp_path):
    cohort, other = cohort_of(tmp_path, "id"), tmp_path / "audit.jsonl"
    (inbox.home / "audit.jsonl").symlink_to(other)  # as a node with `audit` leaves it
    fill(inbox, tmp_path / "came")
    assert command(cohort, LEAVING, inbox.home)[0] == 0
    assert (inbox.home / "audit.jsonl").is_symlink()
    assert json.loads(other.read_text().splitlines()[-1])["entry"]["event"] == "withdraw"


def test_after_a_kill_the_same_command_finds_the_rest(inbox, tmp_path, monkeypatch):
    """Ended while files go: the cohort still knows whom it was about."""
    cohort, whose = cohort_of(tmp_path, "pseudonym"), fill(inbox, tmp_path / "came")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Queue, "forget", killed)
    arguments = ["cohort", "remove", LEAVING, "--cohort", str(cohort), "--node", str(inbox.home)]
    CliRunner().invoke(app, arguments)
    monkeypatch.undo()
    assert len(read_cohort(cohort).participants) == 2
    assert len(list(inbox.home.glob("incoming/*"))) == 2
    code, said = command(cohort, LEAVING, inbox.home)
    assert (code, said["studies"]) == (0, {str(inbox.home): 1})
    left = [path.name for path in inbox.home.glob("incoming/*")]
    assert [whose[key] for key in left] == [STAYING]


def test_a_node_that_runs_is_not_swept_and_nothing_is_removed(inbox, tmp_path):
    cohort = cohort_of(tmp_path, "id")
    fill(inbox, tmp_path / "came")
    arguments = ["cohort", "remove", LEAVING, "--cohort", str(cohort), "--node"]
    with locked(inbox.home):
        done = CliRunner().invoke(app, [*arguments, str(inbox.home)])
    assert "the node is running" in str(done.exception) + done.output
    assert done.exit_code != 0
    done = CliRunner().invoke(app, [*arguments, str(tmp_path)])
    assert "no node's folder" in str(done.exception) + done.output
    assert len(read_cohort(cohort).participants) == 2
    assert len(inbox.queue.latest(states.STATES)) == 3


def test_a_patient_of_the_node_alone_is_swept(inbox, tmp_path):
    """Never imported into the cohort; it counts as found."""
    cohort = cohort_of(tmp_path, "id")
    fill(inbox, tmp_path / "came")
    receive(inbox, tmp_path / "came" / "d", "MRN-9")
    assert command(cohort, "MRN-9", inbox.home)[0] == 0
    assert command(cohort, "MRN-9", inbox.home)[0] == 1
    assert len(inbox.queue.latest(states.STATES)) == 3
