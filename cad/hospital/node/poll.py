"""Ask an archive at intervals for new studies, and fetch their new series."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cad.base.errors import CadError, MachineError
from cad.base.files import make_folder
from cad.dicom.archive.client import connect
from cad.dicom.archive.interface import FoundSeries
from cad.hospital.node.inbox import FETCHING, INCOMING, Inbox
from cad.hospital.node.log import tell
from cad.hospital.node.names import key_of, node_key, wording
from cad.hospital.node.queue import QueueError
from cad.hospital.node.settings import ArchiveSettings, PollSettings

SENDER = "poll"


class Poller:
    """Ask an archive for new studies and fetch their series into the inbox.

    A series is fetched once. It is fetched again when it has more instances than before. Nothing in
    the archive is changed.

    Parameters
    ----------
    settings : PollSettings
        Archive, interval and conditions on studies.
    archive : ArchiveSettings
        Archive that gets the results; it is also queried if ``settings`` names no other archive.
    inbox : Inbox
        The node's inbox, which keeps the instances.
    """

    def __init__(self, settings: PollSettings, archive: ArchiveSettings, inbox: Inbox) -> None:
        self.settings = settings
        self.inbox = inbox
        address = settings.address or archive.address
        limits = settings.limits or archive.limits
        self.archive = connect(address, settings.aet or archive.aet, limits)
        self._secret = node_key(inbox.home)
        self._next = 0.0  # monotonic time of the next query; 0: at once
        self._scratch = inbox.home / INCOMING / FETCHING

    def look(self) -> bool:
        """Ask the archive and fetch new series, if the interval since the last query is over.

        An error is logged and tried again at the next query.

        Returns
        -------
        bool
            Whether a new instance was kept; False if the interval is not over.
        """
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self.settings.every_seconds
        since = datetime.now(UTC) - timedelta(days=self.settings.days)
        any_taken = False
        with self._telling():
            recent = self.archive.recent(f"{since:%Y%m%d}", dict(self.settings.match))
            for uid, series in recent.items():
                # An archive may return a text that is no valid UID of a study. Such a text gets a
                # key (pseudonym) all the same, and its error is logged under this key.
                text = uid.encode(errors="replace").decode()
                with self._telling(study=key_of(self._secret, text)):
                    any_taken = self._look_at(series) or any_taken
        return any_taken

    def _look_at(self, series_of_study: list[FoundSeries] | CadError) -> bool:
        """Fetch those series of one study that the node has not fetched yet.

        Return whether a new instance was kept. If the archive's answer was an error, raise it.
        """
        if isinstance(series_of_study, CadError):
            raise series_of_study
        was_taken = self.inbox.queue.was_taken
        new_series = []
        for series in series_of_study:
            if not was_taken(self._series_key(series), size=series.instances, time=0):
                new_series.append(series)
        return bool(new_series) and self._take(new_series)

    @contextmanager
    def _telling(self, **facts: str) -> Iterator[None]:
        """Log an error that the block raises; the next query of the archive tries again."""
        try:
            yield
        except QueueError:  # no answer of the archive is the cause
            raise
        except Exception as error:
            tell("poll failed", **facts, **wording(error))

    def _take(self, new_series: list[FoundSeries]) -> bool:
        """Fetch a study's new series and keep their instances; return whether any was new.

        If the fetch fails, no instance is kept.
        """
        shutil.rmtree(self._scratch, ignore_errors=True)
        make_folder(self._scratch, mode=0o700)
        try:
            self.archive.fetch(new_series, self._scratch)
            machine_errors = list[MachineError]()
            paths = sorted(self._scratch.rglob("*.dcm"))
            is_new = [self._keep(path, machine_errors) for path in paths]
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
        # The series count as taken only if all instances could be stored; else they come again.
        if machine_errors:
            raise machine_errors[0]
        for series in new_series:
            self.inbox.queue.note_taken(self._series_key(series), size=series.instances, time=0)
        return any(is_new)

    def _keep(self, path: Path, machine_errors: list[MachineError]) -> bool:
        """Keep one instance; return whether it was new.

        An instance that is not kept because something is wrong with it is logged, for example one
        that contradicts a stored instance. If the machine lacks disk space or memory, the error is
        appended to ``machine_errors`` and not raised, so that other instances can still be kept.
        """
        try:
            return self.inbox.keep(path, SENDER) > 0
        except QueueError:
            raise
        except MachineError as error:
            machine_errors.append(error)
        except CadError as error:
            tell("instance refused", sender=SENDER, **wording(error))
        return False

    def _series_key(self, series: FoundSeries) -> str:
        return key_of(self._secret, series.series_uid)
