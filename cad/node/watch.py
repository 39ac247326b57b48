"""Watch a folder to which a site exports: a file is taken when it has stopped changing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cad.errors import CadError
from cad.node.inbox import Inbox
from cad.node.log import tell
from cad.node.names import header, key_of, node_key
from cad.node.settings import WatchSettings
from cad.reading import MAX_IMAGE, kind_of, read_bytes

SENDER = "folder"


class Watcher:
    """Look through the folder again and again; nothing in it is changed."""

    def __init__(self, settings: WatchSettings, inbox: Inbox) -> None:
        if not settings.folder.is_dir():
            raise CadError("no such folder to watch", file=settings.folder)
        self.settings, self.inbox = settings, inbox
        self._secret = node_key(inbox.home)
        self._quiet: dict[str, tuple[int, int, float]] = {}

    def look(self) -> bool:
        """Take every file that has been the same for long enough; tell whether there was one."""
        taken, still = False, {}
        for place, _, names in os.walk(self.settings.folder):
            for name in names:
                path = Path(place) / name
                if kind_of(path):  # a pipe would be waited on for ever
                    continue
                status = path.stat()
                key = key_of(self._secret, str(path.relative_to(self.settings.folder)))
                now = status.st_size, status.st_mtime_ns
                if self.inbox.queue.seen(key, *now):
                    continue
                size, changed, since = self._quiet.get(key, (-1, -1, 0.0))
                if (size, changed) != now:
                    since = time.monotonic()
                if time.monotonic() - since < self.settings.quiet_seconds:
                    still[key] = (*now, since)
                    continue
                taken = self._take(path) or taken
                self.inbox.queue.see(key, *now)
        self._quiet = still
        return taken

    def _take(self, path: Path) -> bool:
        """Take one file; what is no DICOM, or not wanted, is left alone and said once."""
        try:
            content = read_bytes(path, MAX_IMAGE)
            return self.inbox.keep(content, header(path), SENDER) > 0
        except CadError:
            tell("file left out", sender=SENDER, reason="not an instance that can be taken")
            return False
