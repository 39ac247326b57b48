"""Watch a folder to which a site exports; a file is taken when it no longer changes."""

import os
import time
from pathlib import Path

from cad.base.errors import CadError, MachineError
from cad.base.files import state_of
from cad.base.regular import file_kind
from cad.hospital.node.inbox import Inbox
from cad.hospital.node.log import tell
from cad.hospital.node.names import key_of, node_key, wording
from cad.hospital.node.queue import DamagedQueue, QueueError
from cad.hospital.node.settings import WatchSettings

SENDER = "folder"
_MOST_TRIES = 3


class Watcher:
    """Look for new files in a watched folder, and copy them into the node's inbox.

    Nothing in the folder is changed.

    Parameters
    ----------
    settings : WatchSettings
        The folder, and how long a file must stay the same before it is taken.
    inbox : Inbox
        The node's inbox, which keeps the files.
    """

    def __init__(self, settings: WatchSettings, inbox: Inbox) -> None:
        self.settings = settings
        self.inbox = inbox
        self._secret = node_key(inbox.home)
        # For each file by its key: size, time of change, and since when (monotonic) both are so.
        self._quiet: dict[str, tuple[int, int, float]] = {}
        # For each file or folder that waits: the code of the error that was logged.
        self._told: dict[str, str] = {}
        # For each file: its last state (size and time of change), and how often reading the file in
        # this state took too long.
        self._slow: dict[str, tuple[tuple[int, int], int]] = {}

    def look(self) -> bool:
        """Search the folder once, and take each new file that has stopped changing.

        Returns
        -------
        bool
            Whether a new DICOM instance was put into the inbox.

        Raises
        ------
        CadError
            When the folder does not exist: a lost network share must not look like an empty folder.
        OSError
            When the folder cannot be listed.
        """
        folder = self.settings.folder
        if not folder.is_dir():
            raise CadError("no such folder to watch", file=folder)
        taken = False
        quiet_files = dict[str, tuple[int, int, float]]()
        code_by_key = dict[str, str]()

        def waits(path: Path, error: Exception) -> None:
            """Log, only once, why a file or folder has to wait; the next search tries it again."""
            key = self._key(path)
            code = wording(error)["code"]
            if self._told.get(key) != code:
                tell("file waits", sender=SENDER, file=key, code=code)
            code_by_key[key] = code

        def unreadable(error: OSError) -> None:
            if Path(error.filename) == folder:  # then nothing can be searched
                raise error
            waits(Path(error.filename), error)

        for place, _, names in os.walk(folder, onerror=unreadable):
            for name in names:
                path = Path(place) / name
                try:
                    taken = self._look_at(path, quiet_files) or taken
                except DamagedQueue:  # no file is the cause
                    raise
                except Exception as error:
                    waits(path, error)
        # Files that are gone are forgotten with the old dicts.
        self._quiet = quiet_files
        self._told = code_by_key
        return taken

    def _key(self, path: Path) -> str:
        return key_of(self._secret, str(path.relative_to(self.settings.folder)))

    def _look_at(self, path: Path, quiet_files: dict[str, tuple[int, int, float]]) -> bool:
        """Take one file if it is new and no longer changes; tell whether it was a new instance."""
        if file_kind(path):  # not a regular file; reading a pipe, for example, would wait for ever
            return False
        key = self._key(path)
        state = state_of(path)
        if self.inbox.queue.was_taken(key, *state):
            return False
        # A file that is new to the search has no state yet, which its own never equals.
        size, changed, since = self._quiet.get(key, (-1, -1, 0.0))
        if (size, changed) != state:
            since = time.monotonic()
        if time.monotonic() - since < self.settings.quiet_seconds:
            quiet_files[key] = (*state, since)
            return False
        quiet_files[key] = (*state, since)  # for the next search, if taking the file fails
        try:
            taken = self._take(path, key, state)
        except MachineError as error:
            # A try to read the file may take long. So there is a pause before the next try: the
            # time for which the file must stay unchanged starts again.
            quiet_files[key] = (*state, time.monotonic())
            if not self._is_parked(key, state, error):
                raise
            return False
        self.inbox.queue.note_taken(key, *state)
        return taken

    def _is_parked(self, key: str, state: tuple[int, int], error: MachineError) -> bool:
        """Count a failed attempt to read a file; tell whether the file has used up its attempts.

        A file without attempts left is read again only after it has changed. An attempt counts if
        it exceeded its time. An attempt that lacked memory does not count, because memory may soon
        be available again.
        """
        if "time limit" not in error.problem:
            return False
        last_state, tries = self._slow.get(key, (state, 0))
        tries = tries + 1 if last_state == state else 1
        self._slow[key] = (state, tries)
        if tries < _MOST_TRIES:
            return False
        # The file counts as taken in this state, so that searches pass it over.
        self.inbox.queue.note_taken(key, *state)
        tell("file parked", sender=SENDER, file=key, tries=tries)
        return True

    def _take(self, path: Path, key: str, state: tuple[int, int]) -> bool:
        """Copy one file into the inbox; return whether the inbox kept a new file.

        If the file is not DICOM, or not wanted, this is logged once. A file that changes meanwhile
        is not kept.
        """
        try:
            with self.inbox.copied(path) as copy:
                # A file that changed while it was copied is not kept now; a later search takes it.
                return state_of(path) == state and self.inbox.keep(copy, SENDER) > 0
        except (QueueError, MachineError):  # these say nothing about the file
            raise
        except CadError as error:
            tell("file left out", sender=SENDER, file=key, code=wording(error)["code"])
            return False
