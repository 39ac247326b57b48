"""Keep DICOM instances (files, mostly one slice of an image each) that arrive at a node.

An instance is safe once its file and its row of the queue are on the disk.
"""

import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from cad.base.doors import door
from cad.base.errors import CadError, MachineError
from cad.base.files import flush_names, make_folder
from cad.base.reading import MAX_IMAGE
from cad.hospital.node import instance
from cad.hospital.node.log import tell
from cad.hospital.node.names import KEY, KEY_FILE, is_key, key_of, node_key, study_folder, wording
from cad.hospital.node.queue import Queue, QueueError
from cad.hospital.node.settings import NodeSettings
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.run.execution.worker import Confined

INCOMING = "incoming"
STUDIES = "studies"
SPOOL = ".spool"
FETCHING = ".fetching"
"""Folders in ``incoming`` for incomplete data: SPOOL for an instance that is arriving, and FETCHING
for a study that the node is fetching from an archive.
"""
APART_SECONDS = 120.0
"""Most seconds that a process may take to unpack an instance."""
# Free bytes that the disk must have, even if the setting `reserve_gigabytes` is smaller. With fewer
# free bytes no study can be computed.
LEAST_BYTES = 2**26
_CHUNK = 2**20  # bytes that are copied at once
Returned = TypeVar("Returned")


class DuplicateInstance(CadError):
    """Report an instance that has the UID of a stored instance and different content."""


class Inbox:
    """Keep received instances, each in the folder of its study; safe for several threads.

    Parameters
    ----------
    settings : NodeSettings
        Settings of the node; its folder and limits are read.
    queue : Queue
        The node's queue, which gets a row for each instance.

    Raises
    ------
    CadError
        When the folder holds instances, and the secret from which their file names were made is
        missing or was exchanged. When the queue knows studies, and the folder ``incoming`` holds
        none of them.
    """

    def __init__(self, settings: NodeSettings, queue: Queue) -> None:
        self.settings = settings
        self.queue = queue
        self.home = settings.home
        # Without the secret, no stored file could be found by its UID. The pattern leaves out the
        # two folders for incomplete data, whose names begin with a dot.
        studies = list(self.home.glob(f"{INCOMING}/[!.]*"))
        if studies and not (self.home / KEY_FILE).is_file():
            text = f"{len(studies)} studies are here under the names of a secret that is gone"
            hint = (
                f"bring the file back from a backup, or move {INCOMING} and {STUDIES} away "
                "and send the studies again"
            )
            raise CadError(text, file=self.home / KEY_FILE, hint=hint)
        self._secret = node_key(self.home)
        self._lock = threading.Lock()
        memory = settings.studies.memory_limit
        limits = ExecutionOptions(time_limit=APART_SECONDS, memory_limit=memory)
        # The process in which `apart` calls functions may read only the node's folder.
        confined = Confined(read=(self.home,), write=(), modules=("pydicom.pixels",))
        self._apart = Caller(limits, MachineError, confined)
        self._one_apart = threading.Lock()
        # The queue knows the secret by its fingerprint. A queue that was made anew knows none, and
        # would take the fingerprint of any secret: then the names of the folders decide.
        has_no_study = not queue.instances()
        is_other_secret = has_no_study and self._is_another()
        if is_other_secret or not queue.is_secret(key_of(self._secret, KEY_FILE)):
            text = "another secret than the one that the studies here are named under"
            hint = (
                f"bring it, or an exchanged {queue.path.name}, back from a backup, or move "
                f"both, {INCOMING} and {STUDIES} away and send the studies again"
            )
            raise CadError(text, file=self.home / KEY_FILE, hint=hint)
        self.spool = self.home / INCOMING / SPOOL
        self._require_incoming()
        # A node that was killed may have left files in these folders.
        for remains in (self.spool, self.home / INCOMING / FETCHING):
            shutil.rmtree(remains, ignore_errors=True)
        make_folder(self.spool, mode=0o700)
        # A node that was killed may have made files and folders in `incoming` and in its own folder
        # without flushing their names to the disk.
        for folder in (self.spool.parent, self.home):
            flush_names(folder)
        # A later change of this number shows that another disk lies there.
        self._device = self.spool.parent.stat().st_dev

    def _require_incoming(self) -> None:
        """Raise an error if the queue knows studies and ``incoming`` holds none of them.

        Its disk is then probably not mounted. :meth:`take_stock` would take all studies for deleted
        and would delete their results.
        """
        queued = self.queue.instances()
        missing = [study for study in queued if not self.incoming(study).is_dir()]
        if not missing or len(missing) < len(queued):
            return
        # One study without images and results is no sign of an unmounted disk: a node that was
        # killed while it swept its only study leaves such a row.
        if (
            len(missing) == 1
            and self.spool.is_dir()
            and not any(self.work(missing[0]).glob("run/*"))
        ):
            return
        name = self.queue.path.name
        raise CadError(
            f"the queue knows {len(missing)} studies, and {INCOMING} has none of them: it is "
            "missing, its disk is not mounted, or it was exchanged; nothing was deleted",
            file=self.spool.parent,
            hint=f"mount its disk or bring it back, and start again; if the images are lost for "
            f"good, move {name}, {name}-wal, {name}-shm and {STUDIES} away and send the studies "
            "again",
        )

    def _check_incoming(self) -> None:
        """Raise an error if ``incoming`` lies on another disk than at the node's start.

        What would be stored on the other disk would be hidden once the first one is mounted again.
        """
        # A folder that was removed is made again, on the disk of the node's folder.
        folder = self.spool.parent if self.spool.parent.exists() else self.home
        if folder.stat().st_dev != self._device:
            raise OSError(errno.ENODEV, f"{INCOMING} is on another disk than at the start")

    def _is_another(self) -> bool:
        """Tell whether the folders of stored images were named with another secret than the present
        one.
        """
        has_foreign = False
        for path in self.home.glob(f"{INCOMING}/{KEY}/[!.]*.dcm"):
            # A damaged file tells nothing. One folder of the present secret is proof enough.
            with suppress(CadError, OSError):
                key_by_secret = key_of(self._secret, self._head(path).study)
                if key_by_secret == path.parent.name:
                    return False
                has_foreign = True
        return has_foreign

    @door("in", "any", limit=MAX_IMAGE)
    @contextmanager
    def copied(self, source: Path) -> Iterator[Path]:
        """Copy a file into the node's folder, for :meth:`keep`.

        When the block ends, the copy is deleted, unless :meth:`keep` has moved it.

        Parameters
        ----------
        source : Path
            File to copy; it stays as it is.

        Yields
        ------
        Path
            Path of the copy.

        Raises
        ------
        CadError
            When the source is not a regular file, or is larger than any image.
        OSError
            When the disk is full or nearly full.
        """
        self._make_spool()
        handle, name = tempfile.mkstemp(dir=self.spool)
        try:
            with os.fdopen(handle, "wb") as copy, source.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    self.check_room()
                    copy.write(chunk)
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def keep(
        self, path: Path, sender: str, peer: str = "", announced: tuple[str, str] | None = None
    ) -> int:
        """Keep an instance safely; return its size in bytes, or 0 if it was stored before.

        The method returns only when the file is on the disk under its name and the instance's row
        is in the queue.

        Parameters
        ----------
        path : Path
            A file below ``incoming``. It is moved if the instance is new, or if its stored file is
            lost or damaged; else it stays where it is.
        sender, peer : str
            AE title (DICOM name) of the sender, or the folder from which the instance was taken;
            and the sender's address.
        announced : tuple of str, optional
            SOPClassUID and SOPInstanceUID that the file must have.

        Returns
        -------
        int
            Size of the stored instance in bytes; 0 if it was stored before and is undamaged.

        Raises
        ------
        CadError
            When the file is not the announced instance or was cut off, or a UID is not valid.
        DuplicateInstance
            When an instance of the same UID is stored with different content, or in another study.
        OSError
            When the disk is full or nearly full.
        """
        head = self._head(path)
        if announced is not None and announced != (head.sop_class, head.uid):
            raise CadError("an instance that is not the one announced")
        instance.require_whole(path, head.sop_class)
        study = key_of(self._secret, head.study)
        key = key_of(self._secret, head.uid)
        digest = instance.digest_of(path)
        target = self.incoming(study) / f"{key}.dcm"
        with self._lock:  # one instance at a time: the disk would not write two of them faster
            stored_digest = self.queue.digest(key)
            stored_file = self._file_of(key, target) if stored_digest is not None else None
            # An instance that is sent again counts as new if its stored file was lost or damaged.
            is_same = stored_file == target and stored_digest == digest
            is_lost = stored_file is None
            if is_lost or (is_same and not instance.is_whole(target, digest)):
                return self._enter(path, target, head, digest, sender, peer)
            # Comparing the two files (below) may take long. The study is marked as wanted while the
            # lock is held. So the thread that removes old studies does not remove it meanwhile.
            if stored_file == target:
                self.queue.still_wanted(study, time.time())
        if stored_digest == digest:
            return 0
        # Another program may have packed the same content in another way on its way here.
        if stored_file == target and self.apart(instance.same_content, target, path):
            return 0
        raise DuplicateInstance("another instance of a name that is here already")

    def _file_of(self, key: str, place: Path) -> Path | None:
        """Return the file of an instance: ``place``, or a file in another study's folder."""
        if place.is_file():
            return place
        return next(self.home.glob(f"{INCOMING}/*/{key}.dcm"), None)

    @door("out", "DICOM", owner="the node's own folder")
    def _enter(
        self, path: Path, place: Path, head: instance.Head, digest: bytes, sender: str, peer: str
    ) -> int:
        """Move an instance into place, enter its row into the queue, and return its size.

        The size is that of the file, in bytes.
        """
        size = path.stat().st_size
        study = place.parent.name
        is_new_study = not place.parent.is_dir()
        if path != place:  # a file that a start of the node has met is in place already
            self.check_room()
            os.chmod(path, 0o600)
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
            make_folder(place.parent, mode=0o700)
            os.replace(path, place)
            flush_names(place.parent)
        now = time.time()
        due = now + self.settings.studies.quiet_seconds
        # A result of this program that somebody forwards to the node needs no computing.
        needs_computing = not head.ours
        row = (place.stem, head.modality, size, digest)
        self.queue.arrived(row, study, sender, now, due, asks=needs_computing, peer=peer)
        if is_new_study:
            tell("study opened", study=study, sender=sender)
        return size

    def _head(self, path: Path) -> instance.Head:
        return instance.head_of(path) or self.apart(instance.deflated_head, path)

    def head(self, study: str) -> instance.Head:
        """Read the header of one of a study's instances.

        Parameters
        ----------
        study : str
            The study's key: the pseudonym of its StudyInstanceUID.

        Returns
        -------
        Head
            UIDs, modality and PatientID of the instance.

        Raises
        ------
        CadError
            When no instance of the study is on the disk, or it cannot be read.
        """
        path = min(self.incoming(study).glob("*.dcm"), default=None)
        if path is None:
            raise CadError("no instance of the study is on the disk", hint="send the study again")
        return self._head(path)

    def apart(self, function: Callable[..., Returned], *arguments: Any) -> Returned:
        """Call a function in another process with limited time and memory; return its result.

        The method is meant for functions that unpack a file and may fill the memory.

        Parameters
        ----------
        function : callable
            The function to call.
        *arguments : object
            The arguments of the call.

        Returns
        -------
        object
            The value that the function returned.

        Raises
        ------
        CadError
            When the function raises it.
        MachineError
            When the process was killed or exceeded a limit, which tells nothing about the file.
        """
        with self._one_apart:
            return self._apart(function, *arguments)

    def check_room(self) -> None:
        """Check that the disk has room for more instances.

        Raises
        ------
        OSError
            When less than the setting `reserve_gigabytes` is free, or ``incoming`` lies on another
            disk than at the node's start.
        """
        self._check_incoming()
        least_free = max(self.settings.receiver.reserve_gigabytes * 1e9, LEAST_BYTES)
        if shutil.disk_usage(self.home).free < least_free:
            raise OSError(errno.ENOSPC, "less than `reserve_gigabytes` is left on the disk")

    @door("own", "a nameless file in the node's own folder")
    def check_spool(self) -> None:
        """Check that arriving instances can be written; make their folder again if it is missing.

        Raises
        ------
        OSError
            When arriving instances cannot be written.
        """
        self._make_spool()
        with tempfile.TemporaryFile(dir=self.spool) as trial:
            trial.write(b"?")

    def _make_spool(self) -> None:
        """Make the folder of arriving instances again if it was removed."""
        self._check_incoming()
        make_folder(self.spool, mode=0o700)

    def incoming(self, study: str) -> Path:
        """Return the folder of a study's received files; ``study`` is its key (pseudonym)."""
        return study_folder(self.home, INCOMING, study)

    def work(self, study: str) -> Path:
        """Return the folder of a study's cohort and run; ``study`` is its key (pseudonym)."""
        return study_folder(self.home, STUDIES, study)

    def take_stock(self) -> tuple[int, int]:
        """Make queue and disk agree: enter files that have no row, remove rows that have no file.

        Returns
        -------
        tuple of int
            Number of instances entered into the queue, and number removed from it.
        """
        keys_in_queue = self.queue.instances()
        n_entered = 0
        n_removed = 0
        entries = sorted(self.home.glob(f"{INCOMING}/[!.]*"))
        files_by_study: dict[str, dict[str, Path]] = {}
        for folder in entries:
            if is_key(folder.name):
                files_by_study[folder.name] = {path.stem: path for path in folder.glob("[!.]*.dcm")}
        n_foreign = len(entries) - len(files_by_study)
        if n_foreign:  # only the number of foreign files is logged: a name may be a patient's
            tell("not the node's, in incoming", files=n_foreign)
        # Studies whose folder is gone: their results are removed as well.
        for study in sorted(keys_in_queue.keys() - files_by_study.keys()):
            n_lost = len(keys_in_queue.pop(study))
            n_removed += n_lost
            tell("instances are gone from the disk", study=study, instances=n_lost)
            self.sweep(study)
            tell("swept", study=study)
        for study, files in files_by_study.items():
            lost_keys = keys_in_queue.get(study, set()) - files.keys()
            if lost_keys:
                self.queue.lost(lost_keys)
                keys_in_queue[study] -= lost_keys
                n_removed += len(lost_keys)
                tell("instances are gone from the disk", study=study, instances=len(lost_keys))
        entered_keys = set[str]().union(*keys_in_queue.values())
        for study, files in files_by_study.items():
            for key in sorted(files.keys() - keys_in_queue.get(study, set())):
                try:
                    self._take_up(files[key], entered_keys)
                    n_entered += 1
                except QueueError:  # no file is the cause
                    raise
                except (CadError, OSError) as error:
                    tell("file left out", study=study, code=wording(error)["code"])
        return n_entered, n_removed

    def _take_up(self, path: Path, entered_keys: set[str]) -> None:
        """Enter a file's instance into the queue, and the instance's key into ``entered_keys``."""
        # An earlier version of the program could store an instance in two studies. The queue has
        # only one row for the instance, which would move from study to study at every start. The
        # second file is therefore refused.
        if path.stem in entered_keys:
            raise CadError("a file whose instance another study has")
        head = self._head(path)
        study = path.parent.name
        keys_by_header = (key_of(self._secret, head.study), key_of(self._secret, head.uid))
        if (study, path.stem) != keys_by_header:
            raise CadError("a file that has not the name of its instance")
        # If the node was killed just after the file got its name, the name may not be on the disk.
        flush_names(path.parent)
        flush_names(path.parent.parent)
        digest = instance.digest_of(path)
        self._enter(path, place=path, head=head, digest=digest, sender="", peer="")
        entered_keys.add(path.stem)
        # The queue forgot that results were sent. The next sending must ask what the archive has.
        if any(self.work(study).glob("run/dicom/*.dcm")):
            self.queue.was_sent(study)

    def sweep(self, study: str, before: float | None = None) -> bool:
        """Remove everything of a study; return whether it was removed.

        Parameters
        ----------
        study : str
            The study's key: the pseudonym of its StudyInstanceUID.
        before : float, optional
            Time in seconds since 1970. The study is removed only if it was done, or failed, before
            this time. By default it is removed in any state.

        Returns
        -------
        bool
            True if the study was removed; False if it was not done or failed before ``before``.

        Raises
        ------
        OSError
            When a file cannot be removed, or ``incoming`` lies on another disk than at the start.
        """
        self._check_incoming()
        with self._lock:  # so that no instance of the study is stored meanwhile
            if before is not None and not self.queue.outdated(before, study):
                return False
            sweep_study(self.home, self.queue, study)
            return True

    def close(self) -> None:
        """End the process in which :meth:`apart` calls functions."""
        self._apart.__exit__()


def sweep_study(home: Path, queue: Queue, study: str) -> None:
    """Remove everything that the node keeps of a study: result, images, rows of the queue.

    Of the files, the received ones are removed last, because they tell whose study it was. So a
    removal that was interrupted can be repeated.

    Parameters
    ----------
    home : Path
        The node's folder.
    queue : Queue
        The node's queue.
    study : str
        The study's key: the pseudonym of its StudyInstanceUID.
    """
    for section in (STUDIES, INCOMING):
        folder = study_folder(home, section, study)
        if folder.exists():
            shutil.rmtree(folder)
            flush_names(folder.parent)
    queue.forget(study)
