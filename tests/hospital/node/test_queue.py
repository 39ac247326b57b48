"""The queue and the inbox: what is said to be safe is, and nothing begun for less is settled."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import IDENTIFYING, edit, write_seg, write_series

from cad.base.errors import CadError, MachineError
from cad.base.settings import read_settings
from cad.dicom.own import OWN_MODEL_NAME
from cad.hospital.node import queue as states
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import DamagedQueue, Queue
from cad.hospital.node.service import _sound_queue
from cad.hospital.node.settings import NodeSettings, WatchSettings
from cad.hospital.node.watch import Watcher

SHAPE = (3, 16, 16)


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """A series of three images, with a name on it."""
    return write_series(tmp_path / "in", np.ones(SHAPE, np.uint16), patient="MRN-55821")


def keep(inbox: Inbox, path: Path, sender: str = "SCANNER", peer: str = "") -> int:
    with inbox.copied(path) as copy:
        return inbox.keep(copy, sender, peer)


def claim(queue: Queue, state: str, into: str, now: float) -> states.Entry:
    with queue.claimed(state, into, now) as entry:
        assert entry is not None
        return entry


def only(inbox: Inbox) -> states.Entry:
    (entry,) = inbox.queue.latest(states.STATES)
    return entry


def test_what_is_kept_is_there_byte_for_byte_and_survives_another_start(inbox, settings, images):
    for path in images:
        assert keep(inbox, path) == path.stat().st_size
    entry = only(inbox)
    kept = sorted(inbox.incoming(entry.key).iterdir())
    assert sorted(p.read_bytes() for p in kept) == sorted(p.read_bytes() for p in images)
    again = Queue(settings.home / "queue.sqlite")
    assert again.counts()[states.RECEIVING] == 1
    assert again.count_of(entry.key, "MR") == 3
    again.close()


def test_the_same_instance_again_changes_nothing_and_another_one_of_its_name_is_refused(
    inbox, images
):
    keep(inbox, images[0])
    before = only(inbox)
    assert keep(inbox, images[0]) == 0
    assert only(inbox) == before
    edit(images[0], ImageComments="changed")
    with pytest.raises(CadError, match="another instance of a name"):
        keep(inbox, images[0])
    assert len(list(inbox.incoming(before.key).iterdir())) == 1


def test_a_disk_that_is_nearly_full_takes_nothing(inbox, images):
    full = inbox.settings.receiver.model_copy(update={"reserve_gigabytes": 1e9})
    inbox.settings = inbox.settings.model_copy(update={"receiver": full})
    with pytest.raises(OSError, match="reserve_gigabytes"):
        keep(inbox, images[0])
    assert [path.name for path in inbox.home.rglob("incoming/**/*")] == [".spool"]
    assert inbox.queue.latest(states.STATES) == []


@pytest.mark.parametrize("name", ["StudyInstanceUID", "SOPInstanceUID"])
def test_a_name_that_is_no_uid_leads_nowhere(inbox, images, name):
    with pydicom.config.disable_value_validation():
        edit(images[0], **{name: "../../x"})
        with pytest.raises(CadError, match="no UID"):
            keep(inbox, images[0])


def test_what_arrives_meanwhile_makes_a_result_void(inbox, images):
    queue, now = inbox.queue, time.time() + 60
    keep(inbox, images[0])
    entry = claim(queue, states.RECEIVING, states.RECEIVING, now)
    assert queue.settle(entry, states.QUEUED, now)
    entry = claim(queue, states.QUEUED, states.COMPUTING, now)
    keep(inbox, images[1])
    assert not queue.settle(entry, states.SENDING, now)
    assert only(inbox).state == states.RECEIVING
    assert only(inbox).generation == 2


def test_our_own_result_forwarded_to_us_asks_for_nothing(inbox, images, tmp_path):
    for path in images:
        keep(inbox, path)
    entry = claim(inbox.queue, states.RECEIVING, states.RECEIVING, time.time() + 60)
    inbox.queue.settle(entry, states.DONE, time.time())
    mask = np.zeros(SHAPE, bool)
    mask[1, 4:8, 4:8] = True
    write_seg(tmp_path / "seg.dcm", images, {"1": mask})
    edit(tmp_path / "seg.dcm", ManufacturerModelName=OWN_MODEL_NAME)
    assert keep(inbox, tmp_path / "seg.dcm") > 0
    assert only(inbox).state == states.DONE
    write_seg(tmp_path / "other.dcm", images, {"1": mask})  # a workstation's
    keep(inbox, tmp_path / "other.dcm")
    assert only(inbox).state == states.RECEIVING


def test_a_start_after_a_kill_takes_up_what_was_begun(inbox, images):
    keep(inbox, images[0])
    queue, now = inbox.queue, time.time() + 60
    entry = claim(queue, states.RECEIVING, states.RECEIVING, now)
    queue.settle(entry, states.QUEUED, now)
    assert claim(queue, states.QUEUED, states.COMPUTING, now)
    assert queue.recover(retry_failed=False) == 1
    entry = claim(queue, states.QUEUED, states.COMPUTING, now)
    queue.settle(entry, states.FAILED, now, reason="r", hint="h")
    assert queue.recover(retry_failed=False) == 0
    assert queue.recover(retry_failed=True) == 1
    assert only(inbox).state == states.QUEUED


def test_a_queue_of_a_later_version_is_refused(tmp_path):
    Queue(tmp_path / "q").close()
    with sqlite3.connect(tmp_path / "q") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(CadError, match="format 99") as caught:
        Queue(tmp_path / "q")
    assert "later" in caught.value.hint


def test_a_queue_of_an_earlier_version_is_taken_over(inbox, images, tmp_path):
    """As version 1 left it, with studies in it."""
    for path in images:
        keep(inbox, path)
    before, old = only(inbox), tmp_path / "old"
    inbox.queue.close()
    (inbox.home / "queue.sqlite").rename(old)
    with sqlite3.connect(old) as database:
        database.executescript(
            "ALTER TABLE instance DROP COLUMN sender; ALTER TABLE instance DROP COLUMN peer;"
            "DROP TABLE asked; DROP TABLE trail; PRAGMA user_version = 1;"
        )
    database.close()
    queue = Queue(old)
    assert queue.latest(states.STATES) == [before]
    assert queue.senders(before.key) == []  # nobody wrote it down then
    inbox.queue = queue
    edit(images[0], SOPInstanceUID="1.2.3.4.5")
    keep(inbox, images[0], "OTHER", "10.0.0.9")
    assert queue.senders(before.key) == [{"title": "OTHER", "peer": "10.0.0.9", "instances": 1}]
    queue.close()
    again = Queue(old)
    assert again.count_of(before.key, "MR") == 4
    again.close()


def test_sweeping_leaves_nothing_of_a_study(inbox, images):
    keep(inbox, images[0])
    key = only(inbox).key
    inbox.work(key).mkdir(parents=True)
    inbox.sweep(key)
    assert inbox.queue.latest(states.STATES) == []
    assert not list(inbox.home.rglob(f"*{key}*"))
    assert keep(inbox, images[0]) > 0  # sent again, it is new


def test_no_identity_is_in_the_queue(inbox, images):
    for path in images:
        keep(inbox, path)
    secrets = [*IDENTIFYING.values(), "MRN-55821", str(pydicom.dcmread(images[0]).SOPInstanceUID)]
    kept = b"".join(p.read_bytes() for p in inbox.home.iterdir() if p.is_file())
    names = " ".join(str(p) for p in inbox.home.rglob("*")).encode()
    assert len(kept) > 4096
    assert [s for s in secrets if s.encode() in kept + names] == []


def test_a_watched_file_is_taken_once_and_only_when_it_is_quiet(inbox, images, tmp_path):
    (tmp_path / "in" / "note.txt").write_text("no DICOM")
    watch = WatchSettings(folder=tmp_path / "in", quiet_seconds=0.2)
    watcher = Watcher(watch, inbox)
    assert not watcher.look()  # seen for the first time
    time.sleep(0.3)
    edit(images[2], ImageComments="still growing")
    assert watcher.look()
    assert inbox.queue.count_of(only(inbox).key, "MR") == 2
    assert not watcher.look()
    time.sleep(0.3)
    assert watcher.look()
    assert inbox.queue.count_of(only(inbox).key, "MR") == 3
    assert not Watcher(watch, inbox).look()
    assert sorted(p.name for p in (tmp_path / "in").iterdir())[-1] == "note.txt"


def test_the_shipped_configuration_is_valid_and_unknown_keys_are_refused(repository, tmp_path):
    shipped = repository / "configs" / "node" / "default.yaml"
    assert read_settings(NodeSettings, shipped).receiver.callers == ("ORTHANC",)
    own = tmp_path / "own.yaml"
    own.write_text(shipped.read_text() + "\nreceivr: {}\n")
    with pytest.raises(CadError, match="receivr"):
        read_settings(NodeSettings, own)
    own.write_text(shipped.read_text().replace("callers: [ORTHANC]", "callers: []"))
    with pytest.raises(CadError, match="callers"):
        read_settings(NodeSettings, own)


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "emptied"), (b"\n", "no SQLite"), (b"S" * 40, "no SQLite")]
)
def test_an_emptied_queue_is_damaged_and_made_anew_of_what_lies_here(
    inbox, images, content: bytes, problem: str
):
    """SQLite takes an emptied file for a new one: studies would be forgotten without a word."""
    for path in images:
        keep(inbox, path)
    key, path = only(inbox).key, inbox.home / "queue.sqlite"
    inbox.queue.close()
    for name in ("queue.sqlite-wal", "queue.sqlite-shm"):
        (inbox.home / name).unlink(missing_ok=True)
    path.write_bytes(content)
    with pytest.raises(DamagedQueue, match=problem):
        Queue(path)
    inbox.queue = _sound_queue(path)
    assert [p.name for p in inbox.home.iterdir() if ".damaged-" in p.name]
    inbox.take_stock()
    assert only(inbox).key == key


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TRIGGER t AFTER INSERT ON study BEGIN DELETE FROM study; END",
        "CREATE VIEW v AS SELECT * FROM study",
        "CREATE UNIQUE INDEX x ON study (sender)",
        "CREATE UNIQUE INDEX x ON instance (study)",
        "CREATE INDEX x ON instance (sender)",
        "DROP INDEX study_due; CREATE UNIQUE INDEX study_due ON study (state, due)",
        "DROP INDEX instance_study",
        "CREATE TABLE other (x)",
        "ALTER TABLE study ADD COLUMN other TEXT",
        "DROP TABLE asked; CREATE TABLE asked (number TEXT PRIMARY KEY NOT NULL, study TEXT NOT "
        "NULL, generation INTEGER NOT NULL)",
    ],
)
def test_a_queue_with_another_schema_is_damage(inbox, images, foreign: str):
    """An index of somebody else can drop rows: INSERT OR REPLACE replaces other instances."""
    keep(inbox, images[0])
    path = inbox.home / "queue.sqlite"
    inbox.queue._db.executescript(foreign)
    inbox.queue.close()
    with pytest.raises(DamagedQueue, match=r"it has (another|no) (trigger|view|index|table)"):
        Queue(path)
    inbox.queue = _sound_queue(path)
    inbox.take_stock()
    assert only(inbox).state == states.RECEIVING
    for image in images[1:]:
        keep(inbox, image)
    assert inbox.queue.count_of(only(inbox).key, "MR") == 3


def test_a_queue_whose_columns_are_in_another_order_is_damage(inbox, images):
    """The fields of an entry are the columns of its row, in their order."""
    keep(inbox, images[0])
    queue = inbox.queue
    (words,) = queue._rows("SELECT sql FROM sqlite_master WHERE name = 'study'")[0]
    before = "sender TEXT NOT NULL, opened REAL NOT NULL, changed REAL NOT NULL,"
    after = "opened REAL NOT NULL, sender TEXT NOT NULL, changed REAL NOT NULL,"
    assert before in words
    names = ", ".join(name for table, name in states._COLUMNS if table == "study")
    queue._db.executescript(
        f"ALTER TABLE study RENAME TO other; {words.replace(before, after)};"  # noqa: S608
        f"INSERT INTO study ({names}) SELECT {names} FROM other; DROP TABLE other;"
        "CREATE INDEX study_due ON study (state, due)"
    )
    queue.close()
    with pytest.raises(DamagedQueue, match="another table, 'study'"):
        Queue(queue.path)


def test_the_schema_of_a_format_never_changes():
    """A start compares the statements word for word: with other words a queue counts as damaged.

    So whoever changes a statement of queue.sql also raises the number of the format.
    """
    written = hashlib.sha256(repr(states._WRITTEN).encode()).hexdigest()
    assert (states._VERSION, written[:16]) == (6, "ad34d03fe100a5b9")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_in_the_queues_place_is_put_aside(inbox, images, kind: str):
    for path in images:
        keep(inbox, path)
    key, path = only(inbox).key, inbox.home / "queue.sqlite"
    inbox.queue.close()
    for name in ("queue.sqlite", "queue.sqlite-wal", "queue.sqlite-shm"):
        (inbox.home / name).unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(DamagedQueue, match="has the name of the queue's file"):
        Queue(path)
    inbox.queue = _sound_queue(path)
    inbox.take_stock()
    assert only(inbox).key == key
    assert [p.name for p in inbox.home.iterdir() if ".damaged-" in p.name]


def test_a_study_that_is_due_at_no_time_is_due_after_a_start(inbox, images):
    keep(inbox, images[0])
    inbox.queue._db.execute("UPDATE study SET due = 9e999")
    now = time.time()
    assert inbox.queue.put_right(now, longest=3600) == 1
    assert only(inbox).due == now


@pytest.mark.parametrize("column", ["generation", "attempts", "sendings", "returned"])
@pytest.mark.parametrize("value", [2**63 - 1, 2**53 + 1, 2**53, 2**53 - 1, 2**40, -1])
def test_a_counter_that_cannot_count_on_is_damage(inbox, images, column: str, value: int):
    keep(inbox, images[0])
    path = inbox.home / "queue.sqlite"
    inbox.queue._db.execute("PRAGMA ignore_check_constraints = ON")
    inbox.queue._db.execute(f"UPDATE study SET {column} = ?", (value,))  # noqa: S608 - ours
    inbox.queue.close()
    with pytest.raises(DamagedQueue):
        Queue(path)
    inbox.queue = _sound_queue(path)
    inbox.take_stock()
    assert only(inbox).state == states.RECEIVING


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE instance SET bytes = 1 << 53",
        "INSERT INTO asked SELECT '1.2', key, 1 << 53 FROM study",
    ],
)
def test_a_count_of_another_table_at_its_end_is_damage(inbox, images, change: str):
    keep(inbox, images[0])
    inbox.queue._db.execute(change)
    inbox.queue.close()
    with pytest.raises(DamagedQueue, match="which no node reaches"):
        Queue(inbox.queue.path)


def test_a_count_below_its_end_is_no_damage(inbox, images):
    keep(inbox, images[0])
    inbox.queue._db.execute("UPDATE study SET generation = (1 << 40) - 1")
    inbox.queue.close()
    inbox.queue = Queue(inbox.queue.path)
    keep(inbox, images[1])
    assert only(inbox).generation == 2**40


def test_folders_of_studies_are_the_nodes_own_whatever_the_umask_is(inbox, images):
    before = os.umask(0)
    try:
        keep(inbox, images[0])
    finally:
        os.umask(before)
    places = [inbox.home / "incoming", *(inbox.home / "incoming").rglob("*")]
    assert len(places) > 2
    for place in places:
        assert place.stat().st_mode & 0o077 == 0, place


@pytest.mark.parametrize(
    ("problem", "looks"),
    [
        ("took longer than the time limit of 1 s of processor time", 3),
        ("no process could start", 9),
    ],
)
def test_a_file_that_takes_too_long_is_parked_after_three_tries(
    inbox, images, tmp_path, monkeypatch, problem: str, looks: int
):
    """A machine short of memory parks nothing; a file that has changed is looked at again."""
    tries = []

    def too_long(path: Path, *_: object) -> int:
        tries.append(path)
        raise MachineError(problem)

    for path in images[1:]:
        path.unlink()
    monkeypatch.setattr(inbox, "keep", too_long)
    watcher = Watcher(WatchSettings(folder=tmp_path / "in", quiet_seconds=1e-6), inbox)
    for _ in range(9 + 1):  # the first look only sees it
        assert not watcher.look()
    assert len(tries) == looks
    monkeypatch.undo()
    edit(images[0], ImageComments="exported again")
    assert [watcher.look() for _ in range(2)] == [False, True]
