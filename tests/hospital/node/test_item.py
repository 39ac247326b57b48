"""An item fails, never the node: what is wrong with one file or study costs that one alone."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pydicom
import pytest
from dicom_files import deflate, edit, write_series
from live_node import Node as Live
from live_node import make_settings, sample_study
from pydicom._uid_dict import UID_dictionary
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless

from cad.base.errors import CadError, MachineError, refused
from cad.base.files import flush_names
from cad.dicom.archive.interface import FoundSeries
from cad.hospital.node import queue as states
from cad.hospital.node.compute import COHORT, compute, objects
from cad.hospital.node.inbox import DuplicateInstance, Inbox
from cad.hospital.node.names import key_of, node_key
from cad.hospital.node.poll import Poller
from cad.hospital.node.queue import DamagedQueue, Queue, QueueError
from cad.hospital.node.service import Node, _sound_queue
from cad.hospital.node.settings import PollSettings, WatchSettings
from cad.hospital.node.trail import Trail
from cad.hospital.node.watch import Watcher
from cad.mri.imaging.nifti import read_volume
from cad.run.audit.trail import DamagedTrail, append, verify
from cad.run.execution.options import HERE
from cad.run.execution.pool import Caller

SHAPE = (3, 16, 16)


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    return write_series(tmp_path / "in", np.ones(SHAPE, np.uint16), patient="MRN-55821")


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[object]:
    """Nodes on one home, each after the one before has ended."""
    made: list[Node] = []

    def end() -> None:
        for node in made:
            node.receiver.stop()
            node.page.stop()
            node.inbox.close()
            node.queue.close()
        made.clear()

    def begin(**changes: object) -> Node:
        end()
        made.append(Node(make_settings(tmp_path / "home", **changes), retry_failed=False))
        return made[-1]

    yield begin
    end()


def keep(inbox: Inbox, path: Path) -> int:
    with inbox.copied(path) as copy:
        return inbox.keep(copy, "SCANNER")


def full(inbox: Inbox) -> None:
    part = inbox.settings.receiver.model_copy(update={"reserve_gigabytes": 1e9})
    inbox.settings = inbox.settings.model_copy(update={"receiver": part})


def only(queue: Queue) -> states.Entry:
    (entry,) = queue.latest(states.STATES)
    return entry


def look_twice(watcher: Watcher) -> bool:
    watcher.look()
    time.sleep(0.05)
    return watcher.look()


def test_a_watched_folder_of_odd_files_costs_no_other_file(inbox, images, tmp_path, capsys):
    """Named in Latin-1, gone between listing and reading, a pipe, links that lead nowhere."""
    folder = tmp_path / "in"
    Path(os.fsdecode(os.fsencode(folder) + b"/Pr\xfcfling.dcm")).write_bytes(images[0].read_bytes())
    os.mkfifo(folder / "pipe")
    (folder / "dead").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    watcher = Watcher(WatchSettings(folder=folder, quiet_seconds=0.01), inbox)
    take = watcher._take

    def vanish(path: Path, *more: object) -> bool:
        if path == images[1]:
            path.unlink()
        return take(path, *more)  # type: ignore[arg-type]

    watcher._take = vanish  # type: ignore[method-assign]
    assert look_twice(watcher)
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 2
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["code"] for line in lines if line["event"] == "file waits"] == ["ENOENT"]


def test_a_watched_file_waits_for_a_full_disk_and_is_said_once(inbox, images, tmp_path, capsys):
    settings, watch = inbox.settings, WatchSettings(folder=tmp_path / "in", quiet_seconds=0.01)
    watcher = Watcher(watch, inbox)
    full(inbox)
    assert not look_twice(watcher)
    assert not watcher.look()
    assert capsys.readouterr().out.count("ENOSPC") == len(images)
    inbox.settings = settings
    assert watcher.look()
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 3


def fill(queue: Queue) -> None:
    for number in range(999):
        queue.note_taken(f"{number}" * 20, 1, 1)


def test_a_full_disk_under_the_queue_is_no_fault_of_a_file(inbox, images, tmp_path):
    """SQLite's own refusal; the instance is not kept, and is new the next time."""
    inbox.queue._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(QueueError, match="full"):
        fill(inbox.queue)
    watcher = Watcher(WatchSettings(folder=tmp_path / "in", quiet_seconds=0.01), inbox)
    look_twice(watcher)
    inbox.queue._db.execute("PRAGMA max_page_count = 100000")
    watcher.look()
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 3


def test_a_study_without_its_folder_waits_and_the_node_goes_on(make_node, images):
    """`count` asks for the patient of a file that is gone."""
    node = make_node(studies={"count": True, "quiet_seconds": 0.1})
    keep(node.inbox, images[0])
    shutil.rmtree(node.inbox.incoming(only(node.queue).key))
    time.sleep(0.2)
    assert node.complete_one()
    entry = only(node.queue)
    assert (entry.state, entry.attempts) == (states.RECEIVING, 1)
    assert "no instance of the study is on the disk" in entry.reason
    node = make_node()  # what is not there is forgotten, and sent again it is new
    assert node.queue.latest(states.STATES) == []
    assert keep(node.inbox, images[0]) > 0


WHO = "MRN-55821"


@pytest.mark.parametrize(
    "error",
    [KeyError(WHO), CadError(f"not {WHO}"), OSError(5, WHO), refused(OSError(28, WHO))],
)
def test_whatever_computing_raises_is_that_studys(make_node, images, error):
    node = make_node(studies={"quiet_seconds": 0.1}, archive={"retry_seconds": 60})
    keep(node.inbox, images[0])
    time.sleep(0.2)
    assert node.complete_one()

    def broken(*_: object) -> None:
        raise error

    assert node._computing(broken)()  # type: ignore[arg-type]
    entry = only(node.queue)
    waits = isinstance(error, OSError | MachineError)
    assert entry.state == (states.QUEUED if waits else states.FAILED)
    assert "MRN" not in entry.reason + entry.hint
    reason = (node.inbox.work(entry.key) / "reason.txt").read_text()
    assert "MRN" in reason


def test_a_file_where_a_studys_results_belong_fails_it_with_a_reason(make_node, images):
    node = make_node(studies={"quiet_seconds": 0.1})
    keep(node.inbox, images[0])
    work = node.inbox.work(only(node.queue).key)
    work.parent.mkdir()
    work.write_text("x")
    time.sleep(0.2)
    assert node.complete_one()
    assert node._computing(Caller(HERE))()
    entry = only(node.queue)
    assert (entry.state, entry.hint) == (states.FAILED, "delete it")
    assert "no folder" in entry.reason


def test_a_late_series_waits_for_the_computing_of_the_study_and_is_computed_once_more(
    make_node, images
):
    """With two workers the second finds nothing to do until the first has ended."""
    node = make_node(studies={"jobs": 2, "quiet_seconds": 0.05})
    keep(node.inbox, images[0])
    time.sleep(0.1)
    node.complete_one()
    runs = []

    def second(*_: object) -> tuple[int, float]:
        runs.append("second")
        return 0, 0.1

    def first(*_: object) -> tuple[int, float]:
        keep(node.inbox, images[1])
        time.sleep(0.1)
        assert not node.complete_one()  # one step of a study at a time
        node.queue._db.execute("UPDATE study SET state = ?", (states.QUEUED,))
        assert not node._computing(second)()
        runs.append("first")
        return 0, 0.1

    assert node._computing(first)()
    assert node._computing(second)()
    assert runs == ["first", "second"]
    assert only(node.queue).state == states.AWAITING


def test_a_study_that_a_fault_dropped_is_taken_up_again(inbox, images):
    keep(inbox, images[0])
    queue, later = inbox.queue, time.time() + 60
    with queue.claimed(states.RECEIVING, states.RECEIVING, later) as entry:
        queue.settle(entry, states.QUEUED, later)
    claim = states.QUEUED, states.COMPUTING, later
    with queue.claimed(*claim) as entry, queue.claimed(*claim) as other:
        assert other is None
    with queue.claimed(states.QUEUED, states.COMPUTING, later) as again:
        assert (again.key, again.attempts) == (entry.key, 2)


def test_what_arrives_before_the_sweep_is_not_swept(inbox, images):
    keep(inbox, images[0])
    with inbox.queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
        inbox.queue.settle(entry, states.DONE, time.time() - 100)
    before = time.time() - 50
    assert inbox.queue.outdated(before) == [entry.key]
    keep(inbox, images[1])
    assert not inbox.sweep(entry.key, before)
    assert len(list(inbox.incoming(entry.key).iterdir())) == 2


def in_file(inbox: Inbox, change: str) -> None:
    """Change the queue's file as a person with SQLite's own program does."""
    with closing(sqlite3.connect(inbox.queue.path)) as database:
        database.execute(f"UPDATE study SET {change}")  # noqa: S608 - a test's own words
        database.commit()


def ended(inbox: Inbox, state: str, now: float) -> str:
    """End the only study, and return its key."""
    with inbox.queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
        inbox.queue.settle(entry, state, now)
    return entry.key


LONG_AGO = time.time() - 400 * 86_400


@pytest.mark.parametrize("state", [states.DONE, states.FAILED])
def test_a_study_that_somebody_else_ended_is_done_again(
    make_node, images: list[Path], state: str, capsys
):
    """Its images were never computed: to sweep them would lose the study."""
    node = make_node()
    keep(node.inbox, images[0])
    in_file(node.inbox, f"state = '{state}', settled = {LONG_AGO}")
    key = only(node.queue).key
    assert not node.inbox.sweep(key, time.time())
    node.sweep()
    entry = only(node.queue)
    assert (entry.state, entry.settled, entry.sendings) == (states.RECEIVING, None, 1)
    assert entry.due <= time.time()
    assert len(list(node.inbox.incoming(key).iterdir())) == 1
    assert f'"not ended by this node", "study": "{key}"' in capsys.readouterr().out


def test_a_start_takes_back_what_somebody_else_ended(make_node, images: list[Path], capsys):
    node = make_node()
    keep(node.inbox, images[0])
    in_file(node.inbox, f"state = '{states.DONE}', settled = {LONG_AGO}")
    assert only(make_node().queue).state == states.RECEIVING
    assert capsys.readouterr().out.count('"not ended by this node"') == 1


@pytest.mark.parametrize("state", [states.DONE, states.FAILED])
def test_an_ended_study_whose_time_somebody_moved_is_not_swept(
    make_node, images: list[Path], state: str
):
    node = make_node()
    keep(node.inbox, images[0])
    key = ended(node.inbox, state, time.time())
    node.sweep()
    assert only(node.queue).state == state  # as the node left it
    in_file(node.inbox, f"settled = {LONG_AGO}")
    assert node.queue.outdated(time.time()) == []
    assert node.queue.taken_back(time.time()) == [key]
    assert node.queue.taken_back(time.time()) == []


def test_the_checksum_of_an_earlier_end_ends_nothing_again(make_node, images: list[Path]):
    """A new instance, and a failed study that is tried again, void it."""
    node = make_node()
    keep(node.inbox, images[0])
    ended(node.inbox, states.FAILED, LONG_AGO)
    node.queue.recover(retry_failed=True)
    in_file(node.inbox, f"state = '{states.FAILED}'")
    assert node.queue.outdated(time.time()) == []
    key = only(node.queue).key
    assert node.queue.taken_back(0.0) == [key]
    ended(node.inbox, states.DONE, LONG_AGO)
    assert node.queue.outdated(time.time()) == [key]
    keep(node.inbox, images[1])
    in_file(node.inbox, f"state = '{states.DONE}'")
    assert node.queue.outdated(time.time()) == []


def test_a_wrong_clock_and_a_second_sending_leave_the_checksum_right(make_node, images: list[Path]):
    node = make_node()
    keep(node.inbox, images[0])
    now = time.time()
    key = ended(node.inbox, states.DONE, now + 10_000)
    assert node.queue.put_right(now, 100.0) == 1
    assert node.queue.outdated(now + 1) == [key]
    node.queue.still_wanted(key, now + 50)
    assert node.queue.outdated(now + 51) == [key]
    # An end of another hand stays one.
    in_file(node.inbox, f"settled = {now + 10_000}")
    node.queue.put_right(now, 100.0)
    node.queue.still_wanted(key, now + 60)
    assert node.queue.taken_back(now) == [key]


def test_an_end_at_a_whole_second_is_the_nodes_own(make_node, images: list[Path]):
    """The database gives the time back with a fraction."""
    node = make_node()
    keep(node.inbox, images[0])
    key = ended(node.inbox, states.DONE, int(LONG_AGO))
    assert node.queue.outdated(time.time()) == [key]
    node.queue.still_wanted(key, int(LONG_AGO) + 1)
    assert node.queue.taken_back(time.time()) == []


def test_studies_that_an_earlier_version_ended_are_swept(make_node, images: list[Path]):
    node = make_node()
    keep(node.inbox, images[0])
    key = ended(node.inbox, states.DONE, LONG_AGO)
    with closing(sqlite3.connect(node.queue.path)) as database:
        database.executescript("ALTER TABLE study DROP COLUMN seal; PRAGMA user_version = 5;")
    node = make_node()
    assert node.queue.outdated(time.time()) == [key]
    node.sweep()
    assert node.queue.latest(states.STATES) == []


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
def test_an_old_study_that_is_sent_again_is_kept_from_then_on(inbox, images, syntax):
    """Also written otherwise."""
    keep(inbox, images[0])
    image = pydicom.dcmread(images[0])
    image.file_meta.TransferSyntaxUID = syntax
    pydicom.dcmwrite(images[0], image, implicit_vr=syntax.is_implicit_VR, little_endian=True)
    with inbox.queue.claimed(states.RECEIVING, states.RECEIVING, time.time() + 60) as entry:
        inbox.queue.settle(entry, states.DONE, time.time() - 100)
    before = time.time() - 50
    assert inbox.queue.outdated(before) == [entry.key]
    assert keep(inbox, images[0]) == 0
    assert inbox.queue.outdated(before) == []
    assert not inbox.sweep(entry.key, before)
    assert only(inbox.queue).state == states.DONE  # it asks for nothing new


def test_a_study_whose_folder_was_lost_is_taken_when_it_is_sent_again(inbox, images):
    for path in images[:2]:
        keep(inbox, path)
    folder = inbox.incoming(only(inbox.queue).key)
    shutil.rmtree(folder)
    assert all(keep(inbox, path) > 0 for path in images[:2])
    assert len(list(folder.glob("*.dcm"))) == 2
    assert keep(inbox, images[0]) == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:900],
        lambda whole: bytes(len(whole)),
        lambda whole: whole[:-9] + bytes(9),
        lambda whole: b"",
    ],
    ids=["cut", "zeroed", "pixels", "emptied"],
)
def test_a_file_that_the_disk_damaged_is_mended_by_sending_it_again(inbox, images, damage):
    """And its study is computed again."""
    keep(inbox, images[0])
    (here,) = inbox.incoming(only(inbox.queue).key).iterdir()
    whole = here.read_bytes()
    here.write_bytes(damage(whole))
    assert keep(inbox, images[0]) == len(whole)
    assert here.read_bytes() == whole
    assert only(inbox.queue).generation == 2
    assert keep(inbox, images[0]) == 0


def test_what_lies_here_is_taken_up_on_a_full_disk(inbox, images):
    keep(inbox, images[0])
    (rows,) = inbox.queue.instances().values()
    inbox.queue.lost(rows)
    full(inbox)
    assert inbox.take_stock() == (1, 0)


@pytest.mark.faults
@pytest.mark.timeout(180)
def test_a_node_that_starts_on_a_full_disk_waits_and_loses_nothing(images, tmp_path):
    home = tmp_path / "node" / "home"
    home.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount a small file system")
    node = Live(tmp_path / "node", "127.0.0.1:1", "PACS", studies={"quiet_seconds": 600})
    try:
        settings = make_settings(home)
        queue = Queue(home / "queue.sqlite")
        inbox = Inbox(settings, queue)
        for image in images:
            keep(inbox, image)
        inbox.close()
        queue.close()
        with suppress(OSError), (home / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(2**20)) or filler.write(b"x"):
                pass
        freed = threading.Thread(
            target=lambda: (
                node.wait(lambda: node.lines("start waits")),
                (home / "filler").unlink(),
            )
        )
        node.folder.mkdir(exist_ok=True)
        starting = threading.Thread(target=node.start)
        starting.start()
        time.sleep(0.5)
        freed.start()
        for thread in (starting, freed):
            thread.join()
        (line,) = node.lines("start waits")
        assert (line["code"], line["reason"]) == ("ENOSPC", "No space left on device")
        assert sum(node.counts().values()) == 1
        assert len(list(home.glob("incoming/[!.]*/*.dcm"))) == 3
        assert node.stop() == 0
    finally:
        if node.process is not None and node.process.poll() is None:
            node.kill()
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_a_watched_folder_that_is_not_there_is_said(inbox, images, tmp_path):
    """A share that is not there looks like an empty folder; mounted late, it keeps no node down."""
    (tmp_path / "in").rename(tmp_path / "away")
    watcher = Watcher(WatchSettings(folder=tmp_path / "in", quiet_seconds=0.01), inbox)
    with pytest.raises(CadError, match="no such folder to watch"):
        watcher.look()
    (tmp_path / "away").rename(tmp_path / "in")
    assert look_twice(watcher)


@contextmanager
def nobody() -> Iterator[None]:
    """Be a user who may not read everything; root may."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_folder_that_cannot_be_listed_does_not_look_empty(inbox, capsys):
    """A folder within is said once, like a file that has to wait; the watched one is an error."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o711)  # noqa: S103
        folder = Path(place) / "in"
        (folder / "sub").mkdir(parents=True)
        (folder / "sub").chmod(0)
        watcher = Watcher(WatchSettings(folder=folder), inbox)
        with nobody():
            watcher.look()
            watcher.look()
        folder.chmod(0)
        with nobody(), pytest.raises(PermissionError):
            watcher.look()
        folder.chmod(0o700)
        (folder / "sub").chmod(0o700)
    line = json.loads(capsys.readouterr().out)
    assert (line["event"], line["code"]) == ("file waits", "EACCES")


def test_an_image_that_was_cut_off_keeps_the_whole_one_not_out(inbox, images, tmp_path, capsys):
    """In its pixels, before them, or changed while it was copied."""
    watcher = Watcher(WatchSettings(folder=tmp_path / "in", quiet_seconds=0.01), inbox)
    whole = [path.read_bytes() for path in images]
    images[0].write_bytes(whole[0][:-200])
    pixels = len(np.ones(SHAPE[1:], np.uint16).tobytes()) + 12
    images[1].write_bytes(whole[1][:-pixels])
    copied = inbox.copied

    @contextmanager
    def late(path: Path) -> Iterator[Path]:
        with copied(path) as copy:
            if path == images[2]:
                path.write_bytes(whole[2] + bytes(2))
            yield copy

    inbox.copied = late
    assert not look_twice(watcher)
    assert capsys.readouterr().out.count("file left out") == 2
    inbox.copied = copied
    for path, content in zip(images, whole, strict=True):
        path.write_bytes(content)
    assert look_twice(watcher)
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 3


@pytest.mark.parametrize("behind", [0, 5, 7])
@pytest.mark.parametrize("tag", [0x0020000D, 0x00200011, 0x00280100])
def test_an_image_that_ends_at_an_element_or_in_its_head_is_refused(inbox, images, tag, behind):
    """Before the rows, behind them; a whole one may have a byte behind its pixels."""
    whole = images[0].read_bytes()
    at = pydicom.dcmread(images[0]).get_item(tag)
    images[0].write_bytes(whole[: at.value_tell + at.length + behind])
    with pytest.raises(CadError, match="the file ends"):
        keep(inbox, images[0])
    images[0].write_bytes(whole + b"x")
    assert keep(inbox, images[0]) > 0


@pytest.mark.parametrize(
    "uid",
    [
        uid
        for uid, (name, *_) in UID_dictionary.items()
        if name
        in (
            "MR Spectroscopy Storage",
            "Surface Segmentation Storage",
            "Comprehensive SR Storage",
            "RT Structure Set Storage",
            "Grayscale Softcopy Presentation State Storage",
        )
    ],
)
def test_an_object_without_pixels_is_no_image_that_was_cut_off(inbox, images, uid):
    image = pydicom.dcmread(images[0])
    image.SOPClassUID, image.SpectroscopyData = uid, bytes(8)
    del image.PixelData
    if "Spectroscopy" not in image.SOPClassUID.name:
        del image.Rows, image.SpectroscopyData
    if "SR" in image.SOPClassUID.name:
        image.ContentSequence = [pydicom.Dataset()]
    if "Structure" in image.SOPClassUID.name:
        image.RTROIObservationsSequence = [pydicom.Dataset()]
    image.save_as(images[0])
    assert keep(inbox, images[0]) > 0


def test_a_file_of_any_year_is_taken(inbox, images, tmp_path):
    for path, nanoseconds in zip(images, (2**63 + 10**9, -(10**18), 0), strict=True):
        os.utime(path, ns=(nanoseconds, nanoseconds))
    watcher = Watcher(WatchSettings(folder=tmp_path / "in", quiet_seconds=0.01), inbox)
    assert look_twice(watcher)
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 3
    assert not look_twice(watcher)


def test_an_instance_of_another_study_is_refused(inbox, images):
    keep(inbox, images[0])
    edit(images[0], StudyInstanceUID="1.2.3.4")
    with pytest.raises(DuplicateInstance):
        keep(inbox, images[0])
    assert inbox.take_stock() == (0, 0)
    assert len(inbox.queue.instances()) == 1


def test_two_files_of_one_instance_stay_with_the_study_that_came_first(inbox, images, capsys):
    """As an earlier version has left them; when the first is gone the other counts."""
    keep(inbox, images[0])
    first = only(inbox.queue)
    edit(images[0], StudyInstanceUID="1.2.3.4")
    second = inbox.incoming(key_of(node_key(inbox.home), "1.2.3.4"))
    second.mkdir()
    (name,) = (path.name for path in inbox.incoming(first.key).iterdir())
    shutil.copy(images[0], second / name)
    for _ in range(3):
        assert inbox.take_stock() == (0, 0)
        assert capsys.readouterr().out.count("file left out") == 1
    assert only(inbox.queue) == first
    shutil.rmtree(inbox.incoming(first.key))
    assert inbox.take_stock() == (1, 1)
    assert only(inbox.queue).key == second.name


def test_a_study_that_cannot_be_swept_or_written_down_holds_no_other(
    make_node, images, monkeypatch, capsys
):
    node = make_node()
    first, second = "a" * 16, "b" * 16
    for study in (first, second):
        node.queue.arrived((study, "MR", 1, b"x"), study, "S", 0.0, 0.0)
    swept: list[str] = []

    def sweep(study: str, before: float) -> bool:
        if study == first:
            raise OSError(39, "not empty")
        swept.append(study)
        return True

    monkeypatch.setattr(node.queue, "outdated", lambda before: [first, second])
    monkeypatch.setattr(node.inbox, "sweep", sweep)
    node.sweep()
    assert swept == [second]
    entry = next(e for e in node.queue.latest(states.STATES) if e.key == first)
    monkeypatch.setattr(node.trail, "sent", lambda *_: {}["half a run folder"])
    node._not_sent(entry, CadError("the archive is away"))
    said = capsys.readouterr().out
    assert '"not swept"' in said
    assert '"not written down"' in said
    assert "half a run folder" not in said
    monkeypatch.setattr(node.trail, "sent", lambda *_: (_ for _ in ()).throw(DamagedTrail("cut")))
    with pytest.raises(DamagedTrail):
        node._not_sent(entry, CadError("the archive is far away"))


def test_a_folder_that_the_disk_did_not_take_is_an_error(tmp_path, monkeypatch):
    def fails(code: int) -> Callable[[int], None]:
        def fsync(handle: int) -> None:
            raise OSError(code, os.strerror(code))

        return fsync

    monkeypatch.setattr(os, "fsync", fails(errno.EINVAL))
    flush_names(tmp_path)  # a file system that cannot
    monkeypatch.setattr(os, "fsync", fails(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        flush_names(tmp_path)


@pytest.mark.parametrize(
    "syntax",
    ["1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99", RLELossless],
)
def test_an_instance_in_another_transfer_syntax_is_the_same(inbox, images, tmp_path, syntax):
    """And with other file meta information, as an upgrade of the library writes it."""
    keep(inbox, images[0])
    before = only(inbox.queue)
    edit(images[0])
    dataset = pydicom.dcmread(images[0])
    dataset.file_meta.ImplementationVersionName = "LATER"
    dataset.save_as(tmp_path / "meta.dcm")
    other = tmp_path / "other.dcm"
    if syntax == RLELossless:
        dataset.compress(syntax, generate_instance_uid=False)
    dataset.file_meta.TransferSyntaxUID = syntax
    if syntax == "1.2.840.10008.1.2.2":
        dataset["PixelData"].value = np.frombuffer(dataset.PixelData, "<u2").astype(">u2").tobytes()
    pydicom.dcmwrite(
        other,
        dataset,
        implicit_vr=syntax == "1.2.840.10008.1.2",
        little_endian=syntax != "1.2.840.10008.1.2.2",
    )
    assert (keep(inbox, tmp_path / "meta.dcm"), keep(inbox, other)) == (0, 0)
    assert only(inbox.queue) == before
    edit(other, ImageComments="changed")
    with pytest.raises(DuplicateInstance):
        keep(inbox, other)


def test_a_deflated_bomb_is_opened_apart(inbox, images, tmp_path):
    """1.5 MB that would become 1.5 GB: refused, and nothing of it is left."""
    shutil.copy(images[0], tmp_path / "bomb.dcm")
    deflate(tmp_path / "bomb.dcm", zeros=94)
    part = inbox.settings.studies.model_copy(update={"memory_limit": 1.0})
    inbox = Inbox(inbox.settings.model_copy(update={"studies": part}), inbox.queue)
    try:
        with pytest.raises(CadError) as refusal:
            keep(inbox, tmp_path / "bomb.dcm")
        assert not isinstance(refusal.value, MachineError)
    finally:
        inbox.close()
    assert list(inbox.spool.iterdir()) == []


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGPROF])
def test_a_file_whose_process_was_killed_is_tried_again(
    inbox, images, tmp_path, monkeypatch, death
):
    """For want of memory or time, while it opens a deflated file: watched, polled and sent."""
    for path in images[1:]:
        dataset = pydicom.dcmread(path)
        dataset.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1.99"
        dataset.save_as(path)
    watcher = Watcher(WatchSettings(folder=tmp_path / "in", quiet_seconds=0.01), inbox)
    archive = inbox.settings.archive
    poller = Poller(PollSettings(every_seconds=1e-3), archive, inbox)
    series = FoundSeries("", "1.2", "1.2.3", "MR", 3)
    poller.archive = SimpleNamespace(  # type: ignore[assignment]
        recent=lambda *_: {"1.2": [series]},
        fetch=lambda _, folder: [shutil.copy(path, folder) for path in images],
    )
    opened = Caller.__call__
    monkeypatch.setattr(
        Caller, "__call__", lambda self, *_: opened(self, signal.raise_signal, death)
    )
    with pytest.raises(MachineError):
        keep(inbox, images[1])
    look_twice(watcher)
    poller.look()
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 1
    monkeypatch.undo()
    time.sleep(0.05)
    assert watcher.look()
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 3
    inbox.sweep(only(inbox.queue).key)
    assert poller.look()
    assert inbox.queue.count_of(only(inbox.queue).key, "MR") == 3


def years(queue: Queue, count: float) -> None:
    shift = count * 365 * 86400
    queue._db.execute(
        "UPDATE study SET due = due + ?1, changed = changed + ?1, opened = opened + ?1", (shift,)
    )


def test_a_clock_that_was_years_ahead_keeps_no_study_waiting(make_node, images):
    node = make_node(studies={"quiet_seconds": 0.1})
    keep(node.inbox, images[0])
    years(node.queue, 3)
    assert not node.complete_one()
    node = make_node(studies={"quiet_seconds": 0.1})  # at the start
    assert node.complete_one()
    node.queue._db.execute("UPDATE study SET state = ?", (states.RECEIVING,))
    years(node.queue, 3)
    node._clock -= 3600  # when the clock was set
    node.sweep()
    assert node.complete_one()
    assert only(node.queue).changed <= time.time()


def damages(path: Path) -> dict[str, Callable[[], object]]:
    """Ways in which a queue may come back from a disk, each a function of nothing."""
    size, noise = path.stat().st_size, np.random.default_rng(3)

    def bytes_at(start: int, count: int) -> Callable[[], object]:
        def change() -> None:
            content = bytearray(path.read_bytes())
            content[start : start + count] = noise.bytes(len(content[start : start + count]))
            path.write_bytes(content)

        return change

    def table(statement: str) -> Callable[[], object]:
        def change() -> None:
            with closing(sqlite3.connect(path)) as database:
                database.executescript(statement)

        return change

    def study_key() -> None:
        """A byte of it in the table's page; the index has the right one."""
        with closing(sqlite3.connect(path)) as database:
            (key,) = database.execute("SELECT key FROM study").fetchone()
        content = bytearray(path.read_bytes())
        content[content.index(f"{key}{states.RECEIVING}".encode())] ^= 1
        path.write_bytes(content)

    def another_key(key: str) -> Callable[[], object]:
        columns = "state, generation, sender, opened, changed, due"
        return table(
            "PRAGMA ignore_check_constraints = ON; "  # noqa: S608
            f"INSERT INTO study (key, {columns}) SELECT '{key}', {columns} FROM study;"
        )

    found: dict[str, Callable[[], object]] = {
        "lost": path.unlink,
        "empty": lambda: path.write_bytes(b""),
        "another file": lambda: path.write_bytes(b"PK\3\4" * 999),
        "zeros": lambda: path.write_bytes(bytes(size)),
        "no tables": table("DROP TABLE study; DROP TABLE instance;"),
        "a column less": table("ALTER TABLE study DROP COLUMN hint;"),
        "no rows": table("DELETE FROM study; DELETE FROM instance;"),
        "no instances": table("DELETE FROM instance;"),
        "no studies": table("DELETE FROM study;"),
        "cut to a page": lambda: os.truncate(path, 4096),
        "cut in a page": lambda: os.truncate(path, size - 2000),
        "header": bytes_at(0, 16),
        "a study's key": study_key,
        "no key": another_key(""),
        "a key that leads out": another_key(".."),
        "a format below zero": table("PRAGMA user_version = -1;"),
    }
    for k, start in enumerate(np.linspace(24, size - 200, 14).astype(int)):
        found[f"noise {k}"] = bytes_at(int(start), 150)
    return found


def test_a_damaged_queue_forgets_nothing_that_was_acknowledged(inbox, settings, images):
    """30 damages: made anew of what lies here, or refused in words; a start ends with all of it."""
    for one in images:
        keep(inbox, one)
    key, path, home = only(inbox.queue).key, inbox.queue.path, inbox.home
    inbox.queue.close()
    with closing(sqlite3.connect(path)) as database:  # all in one file
        database.execute("PRAGMA journal_mode = DELETE")
    sound = path.read_bytes()
    names = list(damages(path))
    assert len(names) == 30
    refused: list[str] = []
    for name in names:
        for old in home.glob("queue.*"):
            old.unlink()
        path.write_bytes(sound)
        damages(path)[name]()
        try:
            queue = _sound_queue(path)
        except CadError as error:  # the number of its format was hit
            refused.append(error.hint)
            continue
        again = Inbox(settings, queue)
        again.take_stock()
        entry = only(queue)
        assert (entry.key, entry.state) == (key, states.RECEIVING), name
        assert queue.instances()[key] == {one.stem for one in again.incoming(key).glob("*.dcm")}
        assert queue.count_of(key, "MR") == 3, name
        assert [keep(again, one) for one in images] == [0, 0, 0], name
        again.close()
        queue.close()
    assert [hint[:26] for hint in refused] in ([], ["install the version of cad"])


def test_a_queue_that_is_damaged_meanwhile_is_said_so(inbox, images):
    keep(inbox, images[0])
    inbox.queue._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    inbox.queue._db.execute("DROP TABLE asked")
    with pytest.raises(DamagedQueue):
        inbox.queue.promised("1")


def test_studies_without_the_nodes_secret_are_refused(inbox, images, settings):
    keep(inbox, images[0])
    (inbox.home / "node.key").unlink()
    with pytest.raises(CadError, match="under the names of a secret that is gone"):
        Inbox(settings, inbox.queue)


@pytest.mark.parametrize(
    "content",
    [b"", b"0" * 31, b"0" * 32, b"\xff" * 32],
    ids=["emptied", "cut", "another", "no digits"],
)
def test_a_secret_that_was_changed_is_refused_and_an_earlier_versions_is_taken(
    inbox, images, settings, content
):
    keep(inbox, images[0])
    path = inbox.home / "node.key"
    before = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(CadError, match="secret") as caught:
        Inbox(settings, inbox.queue)
    assert "from a backup" in caught.value.hint
    path.write_bytes(before)
    inbox.queue._db.executescript("DROP TABLE secret; PRAGMA user_version = 3;")
    queue = Queue(inbox.queue.path)
    Inbox(settings, queue).close()
    assert only(queue) == only(inbox.queue)
    queue.close()
    path.write_bytes(b"0" * 32)
    with pytest.raises(CadError, match="another secret"):
        Inbox(settings, inbox.queue)


def test_another_secret_is_refused_where_the_queue_was_lost_too(inbox, images, settings):
    """The images say under which secret their folders were named; a damaged one says nothing."""
    for path in images:
        keep(inbox, path)
    inbox.queue.close()
    inbox.queue.path.unlink()
    one, secret = next(inbox.home.glob("incoming/*/*.dcm")), inbox.home / "node.key"
    one.write_bytes(b"damaged")
    right = secret.read_bytes()
    for _ in range(2):  # the refusal notes no secret
        secret.write_bytes(b"0" * 32)
        with (
            closing(Queue(inbox.queue.path)) as queue,
            pytest.raises(CadError, match="another sec"),
        ):
            Inbox(settings, queue)
    assert len(list(inbox.home.glob("incoming/*/*.dcm"))) == 3
    secret.write_bytes(right)
    with closing(Queue(inbox.queue.path)) as queue:
        again = Inbox(settings, queue)
        assert again.take_stock() == (2, 0)
        again.close()


@pytest.mark.parametrize("key", ["", "..", "a/../../b", "A" * 16, "a" * 15])
def test_what_is_no_key_leads_to_no_folder(inbox, images, key):
    """Empty, it would be the folder of all studies."""
    keep(inbox, images[0])
    with pytest.raises(CadError, match="no study's key"):
        inbox.sweep(key)
    with pytest.raises(CadError, match="no study's key"):
        inbox.incoming(key)
    assert inbox.incoming(only(inbox.queue).key).is_dir()


@pytest.mark.parametrize("change", ["key = NULL", "due = 'soon'", "state = 'lost'", "key = 'x'"])
def test_a_row_of_an_earlier_version_that_no_queue_has_is_damage(inbox, images, tmp_path, change):
    """The tables of version 3 let it in."""
    keep(inbox, images[0])
    with closing(sqlite3.connect(tmp_path / "old")) as database:
        inbox.queue._db.backup(database)
        (words,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'study'").fetchone()
        loose = re.sub(r" CHECK \(.*?\)+|STRICT|PRIMARY KEY NOT NULL", "", words)
        database.executescript(
            f"ALTER TABLE study RENAME TO strict_study; {loose};"  # noqa: S608
            "INSERT INTO study SELECT * FROM strict_study; DROP TABLE strict_study;"
            f"UPDATE study SET {change}; DROP TABLE secret; PRAGMA user_version = 3;"
        )
    with pytest.raises(DamagedQueue):
        Queue(tmp_path / "old")


def _two_studies_with_results(inbox: Inbox, images: list[Path]) -> None:
    """Two studies in the queue, a result of each, and a hidden file as a mount point may have."""
    keep(inbox, images[0])
    edit(images[1], StudyInstanceUID="1.2.3.4")
    keep(inbox, images[1])
    for key in inbox.queue.instances():
        (inbox.work(key) / "run").mkdir(parents=True)
        (inbox.work(key) / "run" / "result.txt").write_text("a result")


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "a spool", "a link"])
@pytest.mark.parametrize("studies", [1, 2])
def test_studies_are_kept_where_incoming_is_not_mounted(
    inbox, images, settings, tmp_path, left, studies, capsys
):
    """A start would take all images for deleted, and would delete their results."""
    _two_studies_with_results(inbox, images)
    home, queue = inbox.home, inbox.queue
    if studies == 1:
        inbox.sweep(min(queue.instances()))
    before = queue.latest(states.STATES)
    assert len(before) == studies
    incoming = home / "incoming"
    incoming.rename(tmp_path / "elsewhere")
    if left == "an empty folder":
        incoming.mkdir()
    elif left == "a spool":  # as an earlier start has left it below the mount point
        (incoming / ".spool").mkdir(parents=True)
    elif left == "a link":
        incoming.symlink_to(tmp_path / "nowhere")
    for _ in range(2):
        with pytest.raises(CadError, match=f"knows {studies} studies.*mounted") as caught:
            Inbox(settings, queue)
        assert "queue.sqlite-wal" in caught.value.hint
    assert queue.latest(states.STATES) == before
    assert len(list(home.glob("studies/*/run/result.txt"))) == studies
    if left == "a link":
        incoming.unlink()
    elif left != "nothing":
        shutil.rmtree(incoming)
    (tmp_path / "elsewhere").rename(incoming)
    again = Inbox(settings, queue)
    assert again.take_stock() == (0, 0)
    again.close()
    assert queue.latest(states.STATES) == before
    assert "gone from the disk" not in capsys.readouterr().out


def test_the_way_out_of_an_incoming_that_is_lost_for_good(inbox, images, settings, tmp_path):
    _two_studies_with_results(inbox, images)
    inbox.queue.close()
    shutil.rmtree(inbox.home / "incoming")
    for name in ("queue.sqlite", "queue.sqlite-wal", "queue.sqlite-shm", "studies"):
        place = inbox.home / name
        if place.exists():
            place.rename(tmp_path / name)
    inbox.queue = _sound_queue(inbox.home / "queue.sqlite")
    again = Inbox(settings, inbox.queue)
    assert again.take_stock() == (0, 0)
    assert keep(again, images[0]) > 0
    again.close()


def test_a_study_without_images_is_named_when_its_results_are_swept(
    inbox, images, settings, capsys
):
    _two_studies_with_results(inbox, images)
    first, second = sorted(inbox.queue.instances())
    shutil.rmtree(inbox.incoming(first))
    again = Inbox(settings, inbox.queue)
    assert again.take_stock() == (0, 1)
    again.close()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [(line["event"], line["study"]) for line in lines if line["event"] != "study opened"]
    assert told == [("instances are gone from the disk", first), ("swept", first)]
    assert list(inbox.queue.instances()) == [second]
    assert not inbox.work(first).exists()


def test_a_start_after_a_kill_in_the_sweep_of_the_only_study_goes_on(inbox, images, settings):
    keep(inbox, images[0])
    shutil.rmtree(inbox.incoming(only(inbox.queue).key))  # the row would be removed next
    again = Inbox(settings, inbox.queue)
    assert again.take_stock() == (0, 1)
    again.close()


def test_nothing_is_stored_or_swept_while_incoming_is_another_disk(settings, images, tmp_path):
    """A disk that is unmounted below a running node, for which a link to another disk stands."""
    memory = Path("/dev/shm")  # noqa: S108 - another disk than the folder of the tests
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second disk: /dev/shm is missing, or the tests run there")
    with tempfile.TemporaryDirectory(dir=memory) as other:
        incoming = settings.home / "incoming"
        incoming.symlink_to(other)
        queue = Queue(settings.home / "queue.sqlite")
        inbox = Inbox(settings, queue)
        _two_studies_with_results(inbox, images)
        incoming.unlink()
        for _ in range(2):  # missing, as it is at first and after each refusal
            assert not incoming.exists()
            with pytest.raises(OSError, match="another disk"):
                keep(inbox, images[2])
            with pytest.raises(OSError, match="another disk"):
                inbox.check_spool()
        incoming.mkdir()
        for refused_step in (inbox.check_room, lambda: inbox.sweep(min(queue.instances()))):
            with pytest.raises(OSError, match="another disk"):
                refused_step()
        assert list(incoming.iterdir()) == []
        assert len(list(settings.home.glob("studies/*/run/result.txt"))) == 2
        incoming.rmdir()
        incoming.symlink_to(other)
        assert keep(inbox, images[2]) > 0
        inbox.close()
        queue.close()


@pytest.mark.parametrize("change", ["gone", "cut", "another", "longer"])
def test_a_trail_that_was_cut_off_or_taken_away_stops_the_node(make_node, change):
    node = make_node()
    path = node.trail.path
    node.trail.note("one")
    lines = path.read_bytes().splitlines(keepends=True)
    if change == "gone":
        path.unlink()
    elif change == "cut":
        path.write_bytes(b"".join(lines[:-1]))
    elif change == "longer":  # a sound trail of something else
        path.unlink()
        for number in range(9):
            append(path, {"event": f"other {number}"})
        assert verify(path).problems == []
    else:
        path.write_bytes(b"")
    with pytest.raises(DamagedTrail, match="cut off, changed or taken away while the node ran"):
        node.trail.note("two")
    with pytest.raises(CadError, match="the audit trail is not what was written"):
        make_node()


def test_another_trail_is_begun_where_the_last_one_is_gone_and_only_there(make_node):
    """Its first line holds the hash of the last line that was lost."""
    node = make_node()
    path, whole = node.trail.path, node.trail.path.read_bytes()
    Trail(node.settings, node.queue, new=True)  # it is there: it goes on
    assert path.read_bytes().startswith(whole)
    last = node.queue.last_line()
    path.unlink()
    with pytest.raises(DamagedTrail, match="it is gone"):
        Trail(node.settings, node.queue)
    Trail(node.settings, node.queue, new=True)
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["entry"]["after"] == last
    assert verify(path, node.queue.last_line()).problems == []


@pytest.mark.filterwarnings("ignore")
def test_an_image_that_was_computed_in_part_is_whole_once_the_rest_has_come(tmp_path: Path):
    came, work = tmp_path / "came", tmp_path / "work"
    came.mkdir()
    study = sample_study(tmp_path)
    adc = [image for image in study if "ADC" in str(image.get("SeriesDescription", ""))]
    for number, image in enumerate(one for one in study[:-1] if one not in adc[3:]):
        image.save_as(came / f"{number}.dcm")
    settings = make_settings(tmp_path / "home")
    assert compute(settings, came, work)[0] == 0
    for number, image in enumerate([*adc[3:], study[-1]]):
        image.save_as(came / f"late-{number}.dcm")
    assert compute(settings, came, work)[0] == len(objects(work)) > 0
    (path,) = (work / COHORT).rglob("*_ADC.nii.gz")
    assert len(read_volume(path).array) == len(adc) > 3
