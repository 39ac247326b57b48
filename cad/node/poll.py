"""Ask an archive, now and then, for studies that nobody sends, and fetch what is new of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cad.clinic.archive import FoundSeries, connect
from cad.errors import CadError, refused
from cad.node.inbox import INCOMING, Inbox
from cad.node.log import tell
from cad.node.names import header, key_of, nameless, node_key
from cad.node.settings import ArchiveSettings, PollSettings
from cad.reading import MAX_IMAGE, read_bytes

SENDER = "poll"
FETCHING = ".fetching"
"""Where a study lies in ``incoming`` until all of it has come; what a kill leaves is removed."""


class Poller:
    """Fetch each series that is new, or has grown, once; the archive is asked and never changed."""

    def __init__(self, settings: PollSettings, archive: ArchiveSettings, inbox: Inbox) -> None:
        self.settings, self.inbox = settings, inbox
        address = settings.address or archive.address
        limits = settings.limits or archive.limits
        self.archive = connect(address, settings.aet or archive.aet, limits)
        self._secret, self._next = node_key(inbox.home), 0.0
        self._scratch = inbox.home / INCOMING / FETCHING
        self._clear()

    def look(self) -> bool:
        """Ask once in a while; tell whether anything was taken."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self.settings.every_seconds
        since = datetime.now(UTC) - timedelta(days=self.settings.days)
        try:
            found = self.archive.recent(f"{since:%Y%m%d}", dict(self.settings.match))
        except CadError as error:
            # A library's words may quote an answer, and that may name somebody.
            tell("poll failed", reason=error.problem.partition(": its answer")[0], hint=error.hint)
            return False
        new = [one for one in found if not self._seen(one)]
        taken = False
        for uid in dict.fromkeys(one.study_uid for one in new):
            taken = self._take([one for one in new if one.study_uid == uid]) or taken
        return taken

    def _take(self, series: list[FoundSeries]) -> bool:
        """Fetch a study's new series, all or none, and keep their instances."""
        self._clear()
        self._scratch.mkdir(parents=True, mode=0o700)
        study = self.inbox.incoming(key_of(self._secret, series[0].study_uid))
        try:
            self.archive.fetch(series, self._scratch)
            taken = [self._keep(path) for path in sorted(self._scratch.rglob("*.dcm"))]
        except (CadError, OSError) as error:
            problem = error if isinstance(error, CadError) else refused(error)
            said = _without(problem.problem, {one.patient_id for one in series})
            tell("poll failed", study=study.name, reason=nameless(said, study), hint=problem.hint)
            return False
        finally:
            self._clear()
        for one in series:
            self.inbox.queue.see(self._name(one), one.instances, 0)
        return any(taken)

    def _keep(self, path: Path) -> bool:
        """Keep one instance; one that differs from what is here is left out, and said."""
        content, found = read_bytes(path, MAX_IMAGE), header(path)
        try:
            return self.inbox.keep(content, found, SENDER) > 0
        except CadError as error:
            tell("instance refused", sender=SENDER, reason=error.problem)
            return False

    def _seen(self, series: FoundSeries) -> bool:
        return self.inbox.queue.seen(self._name(series), series.instances, 0)

    def _name(self, series: FoundSeries) -> str:
        return key_of(self._secret, series.series_uid)

    def _clear(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)


def _without(text: str, identities: Iterable[str]) -> str:
    for word in filter(str.strip, identities):
        text = text.replace(word.strip(), "…")
    return text
