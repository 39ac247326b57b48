"""A patient who withdraws leaves a node, too: afterwards no byte of it names them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dicom_files import write_series
from import_cases import RULES, write_patient, write_rois
from reading_cases import code_of, export, make_cohort
from secret_scan import hits, unpacked
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.base.transactions.lock import locked
from cad.cli import app
from cad.dicom.into.importer import import_source
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.folders.cohort.patients import KEY_FILE, Patients
from cad.folders.cohort.traces import Names, named_places, traces
from cad.hospital.node import queue as states
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import DamagedQueue, Queue
from cad.hospital.reader_study.exports import collect_reading
from cad.hospital.reader_study.study import ReadingSettings, write_reading
from cad.run.audit.trail import append, verify
from cad.run.audit.withdrawal import withdraw

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
        with inbox.copied(path) as copy:
            inbox.keep(copy, "SCANNER")
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
    """Ended before rows go, and while files do: the cohort still knows whom it was about."""
    cohort, whose = cohort_of(tmp_path, "pseudonym"), fill(inbox, tmp_path / "came")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    arguments = ["cohort", "remove", LEAVING, "--cohort", str(cohort), "--node", str(inbox.home)]
    monkeypatch.setattr(Queue, "forget", killed)
    CliRunner().invoke(app, arguments)
    monkeypatch.undo()
    assert len(list(inbox.home.glob("incoming/*"))) == 3
    monkeypatch.setattr(
        os, "rmdir", lambda place, **_: killed() if len(Path(place).name) == 16 else None
    )
    CliRunner().invoke(app, arguments)
    monkeypatch.undo()
    assert len(read_cohort(cohort).participants) == 2
    code, said = command(cohort, LEAVING, inbox.home)
    assert (code, said["free"]) == (0, [str(inbox.home)])
    for part in ("incoming", "studies"):
        left = [path.name for path in inbox.home.glob(f"{part}/*")]
        assert [whose[key] for key in left] == [STAYING]
    assert [entry.key for entry in inbox.queue.latest(states.STATES)] == left


@pytest.mark.parametrize("patient", [LEAVING, "ZZZ-9999"])
def test_studies_without_received_files_are_named_and_keep_results_and_rows(
    inbox, tmp_path, patient
):
    """Other men's, after a backup came back in part: the folder is gone, or nothing is in it."""
    cohort = cohort_of(tmp_path, "id")
    others = [receive(inbox, tmp_path / "came" / name, name) for name in ("B-1", "C-1")]
    receive(inbox, tmp_path / "came" / "a", LEAVING)
    for key in others:
        shutil.rmtree(inbox.incoming(key))
    inbox.incoming(others[1]).mkdir()
    code, said = command(cohort, patient, inbox.home)
    assert code == 1
    told = {line.split(" (")[0] for line in said["still_held"][str(inbox.home)]}
    assert told == {*others}
    assert all((inbox.work(key) / "cohort" / "participants.tsv").is_file() for key in others)
    assert {entry.key for entry in inbox.queue.latest(states.STATES)} >= {*others}
    assert [inbox.queue.count_of(key, "MR") for key in others] == [3, 3]


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
    """Never imported into the cohort, which knows no UID of theirs: the node is not called free."""
    cohort = cohort_of(tmp_path, "id")
    fill(inbox, tmp_path / "came")
    receive(inbox, tmp_path / "came" / "d", "MRN-9")
    code, said = command(cohort, "MRN-9", inbox.home)
    assert (code, said["studies"], said["free"]) == (1, {str(inbox.home): 1}, [])
    assert len(inbox.queue.latest(states.STATES)) == 3


def test_what_somebody_put_into_incoming_is_named_and_stays(inbox, tmp_path):
    """A file that the share left there, and a folder of another man's images."""
    cohort = cohort_of(tmp_path, "id")
    fill(inbox, tmp_path / "came")
    strange = inbox.home / "incoming" / "backup" / "man" / "a.dcm"
    strange.parent.mkdir(parents=True)
    strange.write_bytes(next(inbox.home.glob("incoming/*/*.dcm")).read_bytes())
    (inbox.home / "incoming" / ".nfs00001").write_text("x")
    (inbox.home / "studies" / "notes").mkdir()
    code, said = command(cohort, LEAVING, inbox.home)
    assert (code, said["studies"]) == (1, {str(inbox.home): 2})
    why = "(whose it is cannot be told: it is not the node's)"
    places = ("incoming/.nfs00001", "incoming/backup", "studies/notes")
    assert said["still_held"] == {str(inbox.home): [f"{place} {why}" for place in places]}
    assert strange.is_file()
    assert (inbox.home / "incoming" / ".nfs00001").is_file()


def test_what_else_lies_in_the_home_is_named_and_the_node_not_called_free(inbox, tmp_path):
    """As after the way out that a node names when its secret is gone; results without images."""
    cohort, whose = cohort_of(tmp_path, "pseudonym"), fill(inbox, tmp_path / "came")
    home, (first, second, _) = inbox.home, whose
    (home / "audit.jsonl").rename(home / "trail.jsonl")
    (home / "audit.jsonl").symlink_to(home / "trail.jsonl")
    (home / "queue.sqlite.damaged-1").touch()
    shutil.move(home / "incoming" / first, home / "incoming.old" / first)
    shutil.rmtree(inbox.work(first))
    shutil.rmtree(home / "incoming" / second)
    label = inbox.work(second) / "cohort" / "sub-MRN7001"
    label.rename(label.with_name("sub-Pabcdef0123"))
    inbox.queue.forget(first)
    inbox.queue.forget(second)
    code, said = command(cohort, LEAVING, home)
    assert (code, said["free"]) == (1, [])
    told = {line.split(" (")[0] for line in said["still_held"][str(home)]}
    assert told == {"incoming.old", second}


def test_a_study_of_which_no_file_can_be_read_is_named_and_the_node_not_called_free(
    inbox, tmp_path
):
    """One damaged file beside sound ones is whose they are."""
    cohort, whose = cohort_of(tmp_path, "pseudonym"), fill(inbox, tmp_path / "came")
    for key, count in zip(whose, (1, 3, 1), strict=True):
        shutil.rmtree(inbox.work(key))
        for path in sorted(inbox.incoming(key).iterdir())[:count]:
            path.write_bytes(path.read_bytes()[:128] + b"\0\0" + path.read_bytes()[130:])
    code, said = command(cohort, LEAVING, inbox.home)
    assert (code, said["studies"], said["free"]) == (1, {str(inbox.home): 1}, [])
    unread = f"{list(whose)[1]} (whose it is cannot be told: no file of it can be read)"
    assert said["still_held"] == {str(inbox.home): [unread]}
    assert len(list(inbox.home.glob("incoming/*"))) == 2


def test_another_patient_of_the_same_label_stays(inbox, tmp_path):
    """If the cohort knows the ids, they alone count; else the man with the label alone is named."""
    cohort, other = cohort_of(tmp_path, "id"), make_cohort(tmp_path / "other", 2)
    came = {
        name: receive(inbox, tmp_path / "came" / name, name)
        for name in (LEAVING, "MRN7001", "0002", "00-02")
    }
    assert command(cohort, "sub-MRN7001", inbox.home)[0] == 0
    assert {path.name for path in inbox.home.glob("incoming/*")} == {*came.values()} - {
        came[LEAVING]
    }
    code, said = command(other, "sub-0002", inbox.home)
    assert (code, said["studies"]) == (1, {str(inbox.home): 1})
    ((line,),) = said["still_held"].values()
    assert line.startswith(f"{came['00-02']} (whose it is cannot be told: another PatientID of")
    assert command(other, "00-02", inbox.home)[1]["studies"] == {str(inbox.home): 1}
    assert [path.name for path in inbox.home.glob("incoming/*")] == [came["MRN7001"]]


def test_a_second_removal_calls_no_place_free(tmp_path):
    """The UIDs went with the images: a list by StudyInstanceUID or PatientID still holds them."""
    cohort, lists = cohort_of(tmp_path, "id"), tmp_path / "lists"
    lists.mkdir()
    (uid, *_) = Names.of(cohort, "sub-MRN7001").uids
    (lists / "uids.csv").write_text(f"study\n{uid}\n")
    words = ["cohort", "remove", "--cohort", str(cohort), "--runs", str(lists)]
    first, label = (CliRunner().invoke(app, [*words, "sub-MRN7001"]) for _ in range(2))
    assert "uids.csv" in first.output
    (lists / "ids.csv").write_text(f"mrn\n{LEAVING}\n")
    given = CliRunner().invoke(app, [*words, f"{LEAVING} "])
    assert "ids.csv" in given.output
    for done in (label, given):
        assert done.exit_code == 1
        assert "no place is called free" in done.output
        assert "free of" not in done.output


def test_a_patient_id_of_the_same_label_is_refused(inbox, tmp_path):
    """The cohort's sub-0002 is 0002; 00-02 is another man, and both are on the node."""
    cohort = make_cohort(tmp_path / "cohort", 2)
    sidecar = cohort / "sub-0002" / "sub-0002_T2w.json"
    sidecar.write_text('{"SourcePatientID": "0002"}')
    came = [receive(inbox, tmp_path / "came" / name, name) for name in ("0002", "00-02")]
    words = ["cohort", "remove", "00-02", "--cohort", str(cohort), "--node", str(inbox.home)]
    done = CliRunner().invoke(app, words)
    assert "sub-0002 is not '00-02', but PatientID '0002'" in str(done.exception)
    assert sidecar.is_file()
    assert {path.name for path in inbox.home.glob("incoming/[!.]*")} == {*came}
    assert command(cohort, "0002", inbox.home)[1]["studies"] == {str(inbox.home): 1}
    assert (inbox.work(came[1]) / "cohort" / "sub-0002").is_dir()


def test_a_patient_id_leads_to_the_pseudonym_or_is_refused(tmp_path):
    """Typed with a space; after the folder was deleted by hand; after the key was lost."""
    cohort = cohort_of(tmp_path, "pseudonym")
    people = {
        name: Patients(cohort, "pseudonym", set()).participant(name) for name in (LEAVING, STAYING)
    }
    shutil.rmtree(cohort / people[STAYING])
    done = withdraw(cohort, f" {STAYING} ")
    assert (done.names.participant, done.done) == (people[STAYING], False)
    assert done.rows["participants.tsv"] == 1
    key = (cohort / KEY_FILE).rename(tmp_path / "key")
    with pytest.raises(CadError, match="of a key that is gone"):
        withdraw(cohort, LEAVING)
    assert not (cohort / KEY_FILE).exists()
    shutil.copytree(cohort, tmp_path / "same")
    by_label = withdraw(tmp_path / "same", people[LEAVING])
    assert (people[LEAVING] in by_label.places, by_label.done) == (True, False)
    key.rename(cohort / KEY_FILE)
    assert withdraw(cohort, f"{LEAVING} ").done


def hidden(folder: Path, names: list[str]) -> list[str]:
    """Files of a folder that name somebody, in any byte, also of what is packed."""
    texts = {
        path: unpacked(path.name, path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }
    return [
        str(path)
        for path, parts in texts.items()
        for part in [str(path).encode(), *parts]
        if any(name.encode() in part for name in names)
    ]


def test_no_image_or_score_of_ten_men_is_left_in_a_reader_study(tmp_path):
    """Images, key, pages, exports and what was collected; the other readers' work stays whole."""
    cohort, study = make_cohort(tmp_path / "cohort", 12), tmp_path / "study"
    write_reading(cohort, study, ReadingSettings(("r1", "r2"), outlines=True))
    paths = [export(study, reader) for reader in ("r1", "r2")]
    collect_reading(cohort, study, paths[:1])
    (study / "kept").mkdir()
    paths = [paths[0], paths[1].rename(study / "kept" / "r2.jsonl")]
    foreign = export(study, "r1", study="another").rename(study / "kept" / "of another study.jsonl")
    other = foreign.read_bytes()
    paths[0] = export(study, "r1")
    leaving, remaining = [f"sub-{k:04d}" for k in range(1, 11)], ("sub-0011", "sub-0012")
    codes = {name: code_of(study, name) for name in [*leaving, *remaining]}
    pictures = {name: (study / "cases" / f"{codes[name]}.js").read_bytes() for name in codes}
    for name in leaving:
        words = ["cohort", "remove", name, "--cohort", str(cohort), "--runs", str(study), "--json"]
        done = CliRunner().invoke(app, words)
        said = json.loads(done.stdout)
        assert (done.exit_code, said["studies"], said["still_held"]) == (0, {str(study): 1}, {})
        assert said["free"] == [str(study)]
    hold = hidden(study, [*leaving, *(f'{codes[name]}"' for name in leaving)])
    assert set(hold) == {str(foreign)}
    assert hidden(cohort, leaving) == []
    assert foreign.read_bytes() == other
    left = {path.read_bytes() for path in (study / "cases").iterdir()}
    assert left == {pictures[name] for name in remaining}
    lines = collect_reading(cohort, study, paths)  # exports are sound, and of the rest
    assert lines[:2] == [f"reader {r}, session 1: 4 of 4 regions, complete" for r in ("r1", "r2")]


def test_a_reader_study_below_a_folder_of_runs_is_swept_too(tmp_path):
    cohort, study = make_cohort(tmp_path / "cohort", 3), tmp_path / "runs" / "readers" / "study"
    write_reading(cohort, study, ReadingSettings(("r1",)))
    code = code_of(study, "sub-0002")
    words = ["cohort", "remove", "sub-0002", "--cohort", str(cohort), "--json"]
    done = CliRunner().invoke(app, [*words, "--runs", str(tmp_path / "runs")])
    assert json.loads(done.stdout)["studies"] == {str(study): 1}
    assert not (study / "cases" / f"{code}.js").exists()


QUICK = """
name: quick
features: {modalities: [t2w], families: [intensity]}
learner: {name: ProbabilisticSVC}
validate: {bootstraps: 0}
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_still_names_ten_men_is_said_to_in_every_kind_of_folder(inbox, tmp_path):
    """Each byte that names one of them lies in a file that the last answer named; tables have none.

    Made anew, a folder is free of them; a model is trained without them.
    """
    root = tmp_path / "cohort"
    simulate(root, 12, 4, light=True)
    for unread in sorted(root.glob("sub-*/[dp]*")):  # T2 is measured alone
        shutil.rmtree(unread)
    (tmp_path / "quick.yaml").write_text(QUICK)
    (tmp_path / "other.yaml").write_text(QUICK.replace("quick", "other"))
    quick, on = str(tmp_path / "quick.yaml"), ["--cohort", str(root), "-o"]
    places = {
        name: str(tmp_path / name)
        for name in ("run", "model", "predicted", "suggested", "compared", "study")
    }
    words = {
        "run": ["run", quick, *on],
        "model": ["train", quick, *on],
        "predicted": ["predict", "--model", places["model"], *on],
        "suggested": ["suggest", "--model", places["model"], *on],
        "compared": ["compare", quick, str(tmp_path / "other.yaml"), *on],
        "study": ["reading", str(root), "--readers", "r1,r2", "-o"],
    }

    def make(name: str, *more: str) -> None:
        done = CliRunner().invoke(app, [*words[name], places[name], *more])
        assert done.exit_code in (0, 1), (name, done.output, done.exception)  # some region fails

    for name in words:
        make(name)
    export(Path(places["study"]), "r1")
    men = [f"sub-{k:04d}" for k in range(1, 11)]
    for man in men:
        images = write_series(tmp_path / "came" / man, np.ones(SHAPE, np.uint16), patient=man[4:])
        for path in images:
            with inbox.copied(path) as copy:
                inbox.keep(copy, "SCANNER")
    named = [name for name in places if name != "model"]
    swept = [places[name] for name in named] + [places["model"] + ".validation"]
    arguments = ["--cohort", str(root), "--models", places["model"], "--node", str(inbox.home)]
    arguments += [word for place in swept for word in ("--runs", place)] + ["--json"]
    held: dict[str, set[str]] = {}
    for man in men:
        done = CliRunner().invoke(app, ["cohort", "remove", man, *arguments])
        said = json.loads(done.stdout)
        assert done.exit_code == 1
        for place, files in said["still_held"].items():
            held[place] = held.get(place, set()) | set(files)
    left = {place: {hit.split(" in ", 1)[1] for hit in hits([Path(place)], men)} for place in swept}
    print({Path(place).name: sorted(files) for place, files in left.items()})
    assert {place: files for place, files in left.items() if files - held.get(place, set())} == {}
    tables = {file for files in left.values() for file in files}
    assert not [file for file in tables if file.endswith((".csv", ".parquet", ".jsonl", ".npz"))]
    assert hits([root, inbox.home, Path(places["study"])], men) == []
    assert list(inbox.home.glob("incoming/[!.]*")) == []  # DICOM calls them 0001 to 0010
    assert all("regions" in line for line in held.pop(places["model"]))
    for name in ("run", "model", "predicted", "suggested", "compared"):
        make(name, *(word for man in men for word in ("--without", man) if name == "model"))
    assert hits(map(Path, [*swept, places["model"]]), men) == []


def test_a_reader_study_without_its_key_is_not_called_free(tmp_path):
    cohort, study = make_cohort(tmp_path / "cohort", 3), tmp_path / "study"
    write_reading(cohort, study, ReadingSettings(("r1",)))
    (study / "reading.json").unlink()
    above = ["cohort", "remove", "sub-0003", "--cohort", str(cohort), "--runs", str(tmp_path)]
    assert CliRunner().invoke(app, above).exit_code == 1  # as when its folder is named
    words = [
        "cohort",
        "remove",
        "sub-0002",
        "--cohort",
        str(cohort),
        "--runs",
        str(study),
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "whose they are" in json.loads(done.stdout)["still_held"][str(study)][0]


@pytest.mark.parametrize("name", ["r1-session-1.jsonl", "r1-session-1.jsonl.txt"])
def test_a_folder_of_exports_alone_is_not_called_free(name, tmp_path):
    """Files of readers name cases by codes, under any name; a run's log says nothing."""
    cohort, study = make_cohort(tmp_path / "cohort", 3), tmp_path / "study"
    write_reading(cohort, study, ReadingSettings(("r1",)))
    sent, run = tmp_path / "sent", tmp_path / "run"
    for folder in (sent, run):
        folder.mkdir()
    export(study, "r1").rename(sent / name)
    (run / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(run / "waits.jsonl")
    (run / "log.jsonl").write_text('{"study": "sub-0001"}\n')
    words = ["cohort", "remove", "sub-0002", "--cohort", str(cohort), "--json"]
    done = CliRunner().invoke(app, [*words, "--runs", str(sent), "--runs", str(run)])
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert f"{name} (whose they are" in said["still_held"][str(sent)][0]
    assert said["free"] == [str(run)]


def test_exports_and_cases_are_known_by_content_and_packed_ones_are_named(tmp_path):
    """Renamed by a mail program; sent back packed; the pages as they went to a reader."""
    cohort, study, sent = make_cohort(tmp_path / "cohort", 3), tmp_path / "study", tmp_path / "sent"
    write_reading(cohort, study, ReadingSettings(("r1",)))
    code, mailed = code_of(study, "sub-0002"), study / "r1-session-1.jsonl.txt"
    export(study, "r1").rename(mailed)
    (study / "back.jsonl.gz").write_bytes(gzip.compress(mailed.read_bytes()))
    other = export(study, "r1", study="another").read_bytes()
    (study / "r1-session-1.jsonl").rename(study / "other")
    (study / "other.gz").write_bytes(gzip.compress(other))
    for folder in (sent, study):
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(folder / "for-r1.zip", "w") as archive:
            archive.write(study / "cases" / f"{code}.js", f"study/cases/{code}.js")
    words = ["cohort", "remove", "sub-0002", "--cohort", str(cohort), "--json"]
    done = CliRunner().invoke(app, [*words, "--runs", str(study), "--runs", str(sent)])
    held = json.loads(done.stdout)["still_held"]
    assert done.exit_code == 1
    assert [one.split(" (")[0] for one in held.pop(str(study))] == ["back.jsonl.gz", "for-r1.zip"]
    assert "whose they are" in held.pop(str(sent))[0]
    assert held == {}
    assert code not in mailed.read_text()
    assert (study / "other").read_bytes() == other
    for packed in ("back.jsonl.gz", "for-r1.zip"):
        (study / packed).unlink()
    again = CliRunner().invoke(app, [*words, "--runs", str(study)])
    assert json.loads(again.stdout)["still_held"] == {}


def test_a_name_in_a_packed_file_is_found(tmp_path):
    """In an array of words, a zip member, a gzip file; beside it somebody else's."""
    names = Names("sub-0002", frozenset({LEAVING}))
    np.savez(tmp_path / "a.npz", words=np.array(["x", f"of {LEAVING}"]), other=np.ones(3))
    np.savez(tmp_path / "b.npz", words=np.array([STAYING, "sub-00021"]))
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b'{"id": "sub-0002"}'))
    with zipfile.ZipFile(tmp_path / "d.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/sub-0002_T2w.json", "{}" * 99)
    packed = gzip.compress(b"sub-0001\n"), gzip.compress(b"sub-0002\n")
    (tmp_path / "e.log").write_bytes(b"".join(packed))  # rotated: of two members
    (tmp_path / "f.gz").write_bytes(packed[0][:-9])
    with tarfile.open(tmp_path / "g.tgz", "w:gz") as tar:
        tar.add(tmp_path / "d.zip", "d.zip")
    (tmp_path / "h").write_bytes(gzip.compress(bz2.compress(b"sub-0002")))
    (tmp_path / "i.xz").write_bytes(lzma.compress(b"sub-0002"))
    *whole, cut, last, bzip, xz = traces(tmp_path, names)
    assert [*whole, last] == ["a.npz", "c.json.gz", "d.zip", "e.log", "g.tgz"]
    assert cut.startswith("f.gz (cannot be looked into")
    assert bzip.startswith("h (cannot be looked into: packed as bzip2")
    assert xz.startswith("i.xz (cannot be looked into: packed as")


def deflated(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["zip", "gz", "parquet"])
def test_a_small_file_of_nested_packed_files_is_named_and_not_searched_for_hours(
    tmp_path, monkeypatch, kind
):
    """Each content is within the limits of its packed file, all together are not."""
    monkeypatch.setattr("cad.base.reading.SMALL", 2**20)
    if kind == "zip":
        inner = deflated({"zeros": bytes(2**20)})
    elif kind == "gz":
        inner = gzip.compress(bytes(2**20))
    else:
        stream = io.BytesIO()
        pd.DataFrame({"x": np.full(2**17, 0.5)}).to_parquet(stream)
        inner = stream.getvalue()
    (tmp_path / "x").write_bytes(deflated({"y": deflated({f"{k}": inner for k in range(99)})}))
    looked = list[str]()
    monkeypatch.setattr(Names, "within", lambda *_: bool(looked.append("")))
    (held,) = traces(tmp_path, Names("sub-0002"))
    assert "(cannot be looked into: " in held
    assert len(looked) < 20


def test_a_tar_file_of_any_size_that_is_read_is_searched_packed_too(tmp_path, monkeypatch):
    monkeypatch.setattr("cad.base.reading.SMALL", 2**20)
    (tmp_path / "zeros").write_bytes(bytes(1000 * 2**10))
    (tmp_path / "name").write_text("sub-0002")
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        for name in ("zeros", "name"):
            tar.add(tmp_path / name, name)
    assert traces(tmp_path, Names("sub-0002")) == ["a.tgz", "name"]


def test_whatever_names_a_case_that_left_is_named(tmp_path):
    """Old copies, a saved page, exports that cannot be swept; another study's are its own."""
    cohort, study = make_cohort(tmp_path / "cohort", 3), tmp_path / "study"
    write_reading(cohort, study, ReadingSettings(("r1",)))
    code = code_of(study, "sub-0002")
    (study / "old").mkdir()
    shutil.copy(study / "cases" / f"{code}.js", study / "old")
    shutil.copy(next(study.glob("*.html")), study / "page.htm")
    mailed = export(study, "r1").read_bytes()
    (study / "blank.txt").write_bytes(b"\n" + mailed)
    (study / "cut.part").write_bytes(mailed[:-200])
    export(study, "r1", study="another").rename(study / "another")
    kept = [one for one in json.loads(mailed.split(b"\n")[0])["readings"] if one["case"] != code]
    export(study, "r1", readings=kept).rename(study / "other")
    (study / "two.jsonl").write_bytes((study / "other").read_bytes() + mailed)
    words = ["cohort", "remove", "sub-0002", "--cohort", str(cohort), "--runs", str(study)]
    done = CliRunner().invoke(app, [*words, "--json"])
    held = [one.split(" (")[0] for one in json.loads(done.stdout)["still_held"][str(study)]]
    assert held == ["blank.txt", "cut.part", f"old/{code}.js", "page.htm", "two.jsonl"]


def test_two_exports_in_one_file_are_not_cut_to_one(tmp_path):
    cohort, study = make_cohort(tmp_path / "cohort", 3), tmp_path / "study"
    write_reading(cohort, study, ReadingSettings(("r1",)))
    path = export(study, "r1")
    path.write_bytes(path.read_bytes() * 2)
    words = ["cohort", "remove", "sub-0002", "--cohort", str(cohort), "--runs", str(study)]
    done = CliRunner().invoke(app, words)
    assert "more than one export" in str(done.exception)
    assert (cohort / "sub-0002").is_dir()


def test_an_id_in_the_index_or_in_numbers_of_a_table_is_found(tmp_path):
    """And in a spreadsheet's text of two bytes a letter; measurements are no ids."""
    names = Names("sub-0002", frozenset({"5582100"}))
    rows = pd.DataFrame({"id": ["sub-0002", "sub-0003"], "mrn": [5582100, 1], "x": [0.5, 5582100]})
    rows[["id", "x"]].set_index("id").to_parquet(tmp_path / "a.parquet")
    rows[["mrn", "x"]].to_parquet(tmp_path / "b.parquet")
    rows[["mrn"]].astype(float).to_parquet(tmp_path / "c.parquet")
    (tmp_path / "d.txt").write_bytes("id\nsub-0002\n".encode("utf-16"))
    rows[["x"]].to_parquet(tmp_path / "e.parquet")
    np.save(tmp_path / "f.npy", np.array([(1, "sub-0002")], [("x" * 300, "f4"), ("id", ">U8")]))
    held = ["a.parquet", "b.parquet", "c.parquet", "d.txt", "f.npy"]
    assert traces(tmp_path, names) == held


def test_a_name_beside_the_rows_of_a_table_is_found(tmp_path):
    """In the attributes of a pandas table, in notes on the file and on a column; packed, too."""
    names = Names("sub-0002", frozenset({LEAVING}))
    table = pd.DataFrame({"x": [0.5]})
    for name, said in {"a": "of sub-0002", "b": f"{LEAVING}", "c": f"sub-00021 {STAYING}"}.items():
        table.attrs["from"] = said
        table.to_parquet(tmp_path / f"{name}.parquet")
    plain = pa.table({"x": [0.5]})
    pq.write_table(plain.replace_schema_metadata({"by": "sub-0002"}), tmp_path / "d.parquet")
    noted = pa.schema([pa.field("x", pa.float64(), metadata={"by": "sub-0002"})])
    pq.write_table(plain.cast(noted), tmp_path / "e.parquet")
    (tmp_path / "f.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    held = ["a.parquet", "b.parquet", "d.parquet", "e.parquet", "f.gz"]
    assert traces(tmp_path, names) == held


def test_a_picture_is_named_wherever_its_path_says_whose_it_is(tmp_path):
    """In the middle of a name, in a packed file without entries of folders, in an empty folder."""
    for name in ("x/prostate_sub-0002_0000.nii.gz", "sub-0002seg.png", "sub-0002-seg/m.nii.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "y" / "sub-0002").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("sub-0002/anat/sub-0002_T2w.nii.gz", "x")
    for name in ("sub-00021_T2w.nii.gz", "sub-0003.png"):
        (tmp_path / name).touch()
    held = ["sub-0002-seg", "sub-0002seg.png", "x/prostate_sub-0002_0000.nii.gz", "y/sub-0002"]
    assert traces(tmp_path, Names("sub-0002")) == [*held, "z.zip"]
    assert named_places(tmp_path, Names("sub-0002")) == ["y/sub-0002"]  # the rest is not deleted


def test_what_cannot_be_listed_or_read_is_named(tmp_path, monkeypatch):
    """Root may look everywhere: another user looks."""
    monkeypatch.chdir(tmp_path)
    closed, user = (Path("a/b"), Path("c.txt")), os.geteuid()
    closed[0].mkdir(parents=True)
    closed[1].touch()
    for path in closed:
        path.chmod(0)
    tmp_path.chmod(0o755)
    try:
        if user == 0:
            os.seteuid(65534)
        held = traces(Path(), Names("sub-0002"))
    finally:
        os.seteuid(user)
        for path in closed:
            path.chmod(0o700)
    why = "(cannot be looked into: Permission denied)"
    assert held == [f"a/b {why}", f"c.txt {why}"]


def test_a_pseudonymous_cohort_without_its_key_takes_nobody(tmp_path):
    """The next study of a patient who is there would become another patient."""
    cohort = cohort_of(tmp_path, "pseudonym")
    (cohort / "sourcedata" / "pseudonym.key").unlink()
    write_patient(tmp_path / "again" / LEAVING, LEAVING, "another study", dce=False)
    found = import_source(tmp_path / "again", cohort, tmp_path / "rules.yaml")
    assert "of a key that is gone" in str(found.failures[0])
    assert len(read_cohort(cohort).participants) == 2


def test_a_damaged_queue_is_refused_in_words_and_nothing_is_removed(inbox, tmp_path):
    cohort = cohort_of(tmp_path, "id")
    whose = fill(inbox, tmp_path / "came")
    inbox.queue.close()
    (inbox.home / "queue.sqlite").write_bytes(b"noise" * 9999)
    words = ["cohort", "remove", LEAVING, "--cohort", str(cohort), "--node", str(inbox.home)]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, DamagedQueue)
    assert "the next start makes a damaged queue anew" in done.exception.hint.lower()
    assert len(read_cohort(cohort).participants) == 2
    assert {path.name for path in inbox.home.glob("incoming/[!.]*")} == set(whose)
