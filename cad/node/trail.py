"""Write down for good who sent what, which model scored it, and what was returned.

The lines are those of ``cad predict --audit`` and ``cad report --send --audit``
(:mod:`cad.clinic.audited`); ``cad audit verify`` checks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cad import __version__
from cad.clinic.audit import append
from cad.clinic.audited import audit_delivery, audit_prediction
from cad.errors import CadError
from cad.files import JsonObject
from cad.node.compute import RUN, objects
from cad.node.queue import Entry, Queue
from cad.node.settings import NodeSettings

FILE = "audit.jsonl"


class DamagedTrail(Exception):
    """Say that the trail was changed by somebody else: no study is at fault, the node must end."""


def _place(settings: NodeSettings) -> Path:
    """Return where the trail is; ``HOME/audit.jsonl`` leads to one that is elsewhere.

    So a withdrawal finds it by the folder alone.

    Raises
    ------
    CadError
        When the node has a trail in its folder already: one trail would become two.
    """
    inside = settings.home / FILE
    if settings.audit is None or settings.audit.resolve() == inside.resolve():
        return inside
    if inside.is_file() and not inside.is_symlink():
        raise CadError(
            f"the node's audit trail is here, and `audit` names {settings.audit}",
            file=inside,
            hint=f"move it (mv {inside} {settings.audit}): the chain of its lines goes on there",
        )
    inside.unlink(missing_ok=True)
    inside.symlink_to(settings.audit.resolve())
    return settings.audit


class Trail:
    """Add lines to a node's audit trail; each is on the disk before its method returns."""

    def __init__(self, settings: NodeSettings, queue: Queue) -> None:
        self.path, self._to = _place(settings), settings.archive.address
        self._queue = queue
        self.note("start")  # a trail that is damaged is better found now

    def note(self, event: str, **facts: object) -> None:
        """Add a line about the node itself.

        Raises
        ------
        CadError
            When the trail's end is not what was written.
        """
        append(self.path, {"event": event, "cad_version": __version__, **facts})

    def predicted(self, entry: Entry, work: Path) -> None:
        """Add a line that a study was scored; its objects are not sent without it."""
        with self._sound():
            audit_prediction(self.path, work / RUN, *self._origin(entry))

    def sent(self, entry: Entry, work: Path, outcome: str) -> None:
        """Add a line that a study's objects were sent, and how that ended."""
        who, more = self._origin(entry)
        with self._sound():
            audit_delivery(self.path, work / RUN, objects(work), who, self._to, outcome, more)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        try:
            yield
        except CadError as error:
            raise DamagedTrail(error.problem) from error

    def _origin(self, entry: Entry) -> tuple[str, JsonObject]:
        """Return who sent a study: its AE titles, and each with its peer."""
        senders = self._queue.senders(entry.key) or [{"title": entry.sender}]
        titles = sorted({str(sender["title"]) for sender in senders})
        return ", ".join(titles), {"senders": senders, "node_key": entry.key}
