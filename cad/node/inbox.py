"""Take what arrives: on the disk first, then in the queue, then it may be acknowledged."""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from cad.errors import CadError
from cad.execution.options import ExecutionOptions
from cad.execution.pool import Caller
from cad.files import flush_names, make_folder
from cad.node.instance import Head, deflated_head, digest_of, head_of, same_content
from cad.node.log import tell
from cad.node.names import KEY_FILE, key_of, node_key, wording
from cad.node.queue import Queue, QueueError
from cad.node.settings import NodeSettings
from cad.reading import MAX_IMAGE, check_file

INCOMING, STUDIES = "incoming", "studies"
SPOOL, FETCHING = ".spool", ".fetching"
"""Where an instance, or a polled study, lies in ``incoming`` until all of it has come."""
_APART_SECONDS = 120.0
LEAST_BYTES = 2**26  # without which no study can be computed, whatever `reserve_gigabytes` is
_CHUNK = 2**20
Returned = TypeVar("Returned")


class DuplicateInstance(CadError):
    """Say that an instance has the name of one that is here already, and another content."""


class Inbox:
    """Keep instances, each under its study's folder; safe for several threads.

    Raises
    ------
    CadError
        Where instances lie without the node's secret, under which they have their names.
    """

    def __init__(self, settings: NodeSettings, queue: Queue) -> None:
        self.settings, self.queue, self.home = settings, queue, settings.home
        studies = list(self.home.glob(f"{INCOMING}/[!.]*"))
        if studies and not (self.home / KEY_FILE).is_file():
            raise CadError(
                f"{len(studies)} studies are here under the names of a secret that is gone",
                file=self.home / KEY_FILE,
                hint=f"bring the file back from a backup, or move {INCOMING} and {STUDIES} away "
                "and send the studies again",
            )
        self._secret, self._lock = node_key(self.home), threading.Lock()
        memory = settings.studies.memory_limit
        self._apart = Caller(ExecutionOptions(time_limit=_APART_SECONDS, memory_limit=memory))
        self._one_apart = threading.Lock()
        self.spool = self.home / INCOMING / SPOOL
        for left in (self.spool, self.home / INCOMING / FETCHING):  # by a killed node
            shutil.rmtree(left, ignore_errors=True)
        make_folder(self.spool, mode=0o700)
        for folder in (self.spool.parent, self.home):  # a node killed before it could flush them
            flush_names(folder)

    @contextmanager
    def copied(self, source: Path) -> Iterator[Path]:
        """Copy a file to where :meth:`keep` can take it; what it does not take goes.

        Raises
        ------
        CadError
            For what is no file, or larger than any image.
        OSError
            When the disk is full, or nearly.
        """
        check_file(source, MAX_IMAGE)
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
        """Make an instance safe; return the bytes that are new.

        Returns only when the file is on the disk under its name, and its row in the queue. The
        same instance again changes nothing.

        Parameters
        ----------
        path : Path
            A file below ``incoming``; it is moved from there when it is new.
        sender, peer : str
            The AE title or door by which it came, and from where.
        announced : tuple of str, optional
            SOP class and instance that it must be.

        Raises
        ------
        CadError
            For names that are no UID (:class:`DuplicateInstance`: and for two different instances
            of one name).
        OSError
            When the disk is full, or nearly.
        """
        head = self._head(path)
        if announced is not None and announced != (head.sop_class, head.uid):
            raise CadError("an instance that is not the one announced")
        study, key = key_of(self._secret, head.study), key_of(self._secret, head.uid)
        digest, place = digest_of(path), self.incoming(study) / f"{key}.dcm"
        with self._lock:  # one name at a time; the disk would not be faster with two
            known = self.queue.digest(key)
            # Sent again after its folder was lost, it is as new.
            if known is None or not place.is_file():
                return self._enter(path, place, head, digest, sender, peer)
            if known == digest:
                self.queue.still_wanted(study, time.time())
        if known != digest and not self._same(path, key):
            raise DuplicateInstance("another instance of a name that is here already")
        return 0

    def _enter(
        self, path: Path, place: Path, head: Head, digest: bytes, sender: str, peer: str
    ) -> int:
        """Put an instance into place, and its row into the queue."""
        size, study = path.stat().st_size, place.parent.name
        new = not place.parent.is_dir()
        if path != place:
            self.check_room()
            os.chmod(path, 0o600)
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
            make_folder(place.parent)
            os.replace(path, place)
            flush_names(place.parent)
        now = time.time()
        self.queue.arrived(
            (place.stem, head.modality, size, digest),
            study,
            sender,
            now,
            now + self.settings.studies.quiet_seconds,
            asks=not head.ours,  # our own result, forwarded to us, asks for nothing
            peer=peer,
        )
        if new:
            tell("study opened", study=study, sender=sender)
        return size

    def _head(self, path: Path) -> Head:
        return head_of(path) or self.apart(deflated_head, path)

    def head(self, study: str) -> Head:
        """Return what one of a study's instances says.

        Raises
        ------
        CadError
            When there is none, or it cannot be read.
        """
        path = min(self.incoming(study).glob("*.dcm"), default=None)
        if path is None:
            raise CadError("no instance of the study is on the disk", hint="send the study again")
        return self._head(path)

    def _same(self, path: Path, key: str) -> bool:
        """Tell whether a file is an instance that is here, but for how it is written."""
        here = next(self.home.glob(f"{INCOMING}/*/{key}.dcm"), None)
        if here is None:
            return False
        return digest_of(here) == digest_of(path) or self.apart(same_content, here, path)

    def apart(self, function: Callable[..., Returned], *arguments: Any) -> Returned:
        """Call a function in a process with limits: what it unpacks may fill the memory.

        Raises
        ------
        CadError
            Also when it did.
        """
        with self._one_apart:
            return self._apart(function, *arguments)

    def check_room(self) -> None:
        """Refuse to fill the disk.

        Raises
        ------
        OSError
            Below `reserve_gigabytes`.
        """
        least = max(self.settings.receiver.reserve_gigabytes * 1e9, LEAST_BYTES)
        if shutil.disk_usage(self.home).free < least:
            raise OSError(28, "less than `reserve_gigabytes` is left on the disk")

    def incoming(self, study: str) -> Path:
        """Return the folder of a study's files as they came."""
        return self.home / INCOMING / study

    def work(self, study: str) -> Path:
        """Return the folder of a study's cohort and run."""
        return self.home / STUDIES / study

    def take_stock(self) -> tuple[int, int]:
        """Hold queue and disk against each other: what lies here is in the queue, and only that.

        Returns
        -------
        tuple of int
            Instances that came into the queue, and that went from it.
        """
        rows, came, gone = self.queue.instances(), 0, 0
        folders = {folder.name: folder for folder in self.home.glob(f"{INCOMING}/[!.]*")}
        for study, folder in folders.items():
            files = {path.stem: path for path in folder.glob("[!.]*.dcm")}
            for key in files.keys() - rows.get(study, set()):
                try:
                    self._take_up(files[key])
                    came += 1
                except QueueError:
                    raise
                except (CadError, OSError) as error:
                    tell("file left out", study=study, code=wording(error)["code"])
            if lost := rows.get(study, set()) - files.keys():
                self.queue.lost(lost)
                gone += len(lost)
                tell("instances are gone from the disk", study=study, instances=len(lost))
        for study in rows.keys() - folders.keys():
            gone += len(rows[study])
            self.sweep(study)
        return came, gone

    def _take_up(self, path: Path) -> None:
        head, study = self._head(path), path.parent.name
        if (study, path.stem) != (key_of(self._secret, head.study), key_of(self._secret, head.uid)):
            raise CadError("a file that has not the name of its instance")
        # The node may have been killed between the file's name and its flush.
        flush_names(path.parent)
        flush_names(path.parent.parent)
        self._enter(path, path, head, digest_of(path), "", "")
        if any(self.work(study).glob("run/dicom/*.dcm")):
            self.queue.was_sent(study)

    def sweep(self, study: str, before: float | None = None) -> bool:
        """Remove everything of a study; not if something arrives after ``before``."""
        with self._lock:
            if before is not None and not self.queue.outdated(before, study):
                return False
            sweep_study(self.home, self.queue, study)
            return True

    def close(self) -> None:
        """End the process that unpacks."""
        self._apart.__exit__()


def sweep_study(home: Path, queue: Queue, study: str) -> None:
    """Remove everything that the node keeps of a study: result, images, rows of the queue.

    What came goes last, for it says whose it was: a sweep that is cut short can be repeated.

    Parameters
    ----------
    home : Path
        The node's folder.
    queue : Queue
        Its queue.
    study : str
        The study's key.
    """
    for folder in (home / STUDIES / study, home / INCOMING / study):
        if folder.exists():
            shutil.rmtree(folder)
            flush_names(folder.parent)
    queue.forget(study)
