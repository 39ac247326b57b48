"""Watch a folder to which a site exports: a file is taken when it has stopped changing."""

import os
import time
from pathlib import Path

from cad.errors import CadError
from cad.node.inbox import Inbox
from cad.node.log import tell
from cad.node.names import key_of, node_key, wording
from cad.node.queue import DamagedQueue, QueueError
from cad.node.settings import WatchSettings
from cad.reading import kind_of

SENDER = "folder"


class Watcher:
    """Look for new files in a watched folder, and copy them into the node's inbox.

    Nothing in the folder is changed.

    Parameters
    ----------
    settings : WatchSettings
        The folder, and how long a file must stay the same before it is taken.
    inbox : Inbox
        Where received DICOM files are kept.

    Raises
    ------
    CadError
        When there is no such folder.
    """

    def __init__(self, settings: WatchSettings, inbox: Inbox) -> None:
        self.settings, self.inbox = settings, inbox
        self._require_folder()
        self._secret = node_key(inbox.home)
        self._quiet: dict[str, tuple[int, int, float]] = {}
        self._told: dict[str, str] = {}

    def look(self) -> bool:
        """Look through the folder once, and take each new file that has stopped changing.

        Returns
        -------
        bool
            Whether a new DICOM instance was put into the inbox.

        Raises
        ------
        CadError
            When the folder is gone: a network share that is lost must not look like an empty
            folder.
        """
        self._require_folder()
        taken, still = False, dict[str, tuple[int, int, float]]()
        for place, _, names in os.walk(self.settings.folder):
            for name in names:
                path = Path(place) / name
                key = key_of(self._secret, str(path.relative_to(self.settings.folder)))
                try:
                    taken = self._look_at(path, key, still) or taken
                except DamagedQueue:
                    raise
                except Exception as error:  # tried again the next time, and said once
                    code = wording(error)["code"]
                    if self._told.get(key) != code:
                        tell("file waits", sender=SENDER, file=key, code=code)
                    self._told[key] = code
        self._quiet = still
        return taken

    def _require_folder(self) -> None:
        if not self.settings.folder.is_dir():
            raise CadError("no such folder to watch", file=self.settings.folder)

    def _look_at(self, path: Path, key: str, still: dict[str, tuple[int, int, float]]) -> bool:
        """Take one file if it is new and at rest; tell whether anything of it was new."""
        if kind_of(path):  # a pipe would be waited on for ever
            return False
        status = path.stat()
        now = status.st_size, status.st_mtime_ns
        if self.inbox.queue.seen(key, *now):
            return False
        size, changed, since = self._quiet.get(key, (-1, -1, 0.0))
        if (size, changed) != now:
            since = time.monotonic()
        if time.monotonic() - since < self.settings.quiet_seconds:
            still[key] = (*now, since)
            return False
        still[key] = (*now, since)  # should it have to wait
        taken = self._take(path, key)
        self.inbox.queue.see(key, *now)
        self._told.pop(key, None)
        return taken

    def _take(self, path: Path, key: str) -> bool:
        """Take one file; what is no DICOM, or not wanted, is left alone and said once."""
        try:
            with self.inbox.copied(path) as copy:
                return self.inbox.keep(copy, SENDER) > 0
        except QueueError:
            raise
        except CadError as error:
            tell("file left out", sender=SENDER, file=key, code=wording(error)["code"])
            return False
