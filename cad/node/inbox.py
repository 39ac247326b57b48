"""Take what arrives: on the disk first, then in the queue, then it may be acknowledged."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from pathlib import Path

from pydicom.dataset import Dataset

from cad.clinic.archive import UID
from cad.clinic.regions import OWN_MODEL_NAME
from cad.errors import CadError
from cad.files import write_atomic
from cad.node.log import tell
from cad.node.names import key_of, node_key
from cad.node.queue import Queue
from cad.node.settings import NodeSettings
from cad.reading import reading

INCOMING, STUDIES = "incoming", "studies"
_NEEDED = ("StudyInstanceUID", "SOPInstanceUID", "Modality", "ManufacturerModelName")


class Inbox:
    """Keep instances, each under its study's folder; safe for several threads."""

    def __init__(self, settings: NodeSettings, queue: Queue) -> None:
        self.settings, self.queue = settings, queue
        self.home, self._secret = settings.home, node_key(settings.home)
        self._lock = threading.Lock()

    def keep(self, content: bytes, header: Dataset, sender: str, peer: str = "") -> int:
        """Make an instance safe; return the bytes that are new.

        Returns only when the file is on the disk under its name, and its row in the queue. The
        same instance again changes nothing.

        Raises
        ------
        CadError
            For names that are no UID, and for two different instances of one name.
        OSError
            When the disk is full, or nearly.
        """
        with reading("an instance", "not readable as DICOM"):
            study_uid, uid, modality, maker = (str(header.get(name, "")) for name in _NEEDED)
        if not UID.fullmatch(study_uid) or not UID.fullmatch(uid):
            raise CadError("an instance whose study or own name is no UID")
        study, key = key_of(self._secret, study_uid), key_of(self._secret, uid)
        digest = hashlib.sha256(content).digest()
        with self._lock:  # one name at a time; the disk would not be faster with two
            known = self.queue.digest(key)
            if known is not None:
                if known != digest:
                    raise CadError(
                        f"study {study}: another instance of a name that is here already"
                    )
                return 0
            self._check_room(len(content))
            folder = self.home / INCOMING / study
            new = not folder.is_dir()
            write_atomic(folder / f"{key}.dcm", content, mode=0o600)
            _flush(folder)
            if new:
                _flush(folder.parent)
            now = time.time()
            self.queue.arrived(
                (key, modality, len(content), digest),
                study,
                sender,
                now,
                now + self.settings.studies.quiet_seconds,
                asks=maker != OWN_MODEL_NAME,  # our own result, forwarded to us, asks for nothing
                peer=peer,
            )
        if new:
            tell("study opened", study=study, sender=sender)
        return len(content)

    def _check_room(self, size: int) -> None:
        free = shutil.disk_usage(self.home).free - size
        if free < self.settings.receiver.reserve_gigabytes * 1e9:
            raise OSError(28, "less than `reserve_gigabytes` would be left on the disk")

    def incoming(self, study: str) -> Path:
        """Return the folder of a study's files as they came."""
        return self.home / INCOMING / study

    def work(self, study: str) -> Path:
        """Return the folder of a study's cohort and run."""
        return self.home / STUDIES / study

    def sweep(self, study: str) -> None:
        """Remove everything of a study."""
        sweep_study(self.home, self.queue, study)


def sweep_study(home: Path, queue: Queue, study: str) -> None:
    """Remove a study's files and then its rows; what came goes last, for it says whose it was."""
    for folder in (home / STUDIES / study, home / INCOMING / study):
        if folder.exists():
            shutil.rmtree(folder)
    queue.forget(study)


def _flush(folder: Path) -> None:
    """Bring a folder's names to the disk: without it a power cut may lose a renamed file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
