"""Write a node's audit trail: who sent a study, which model scored it, and what was returned.

The trail's lines have the form of the lines that ``cad predict --audit`` and
``cad report --send --audit`` write (:mod:`cad.run.audit.entries`). ``cad audit verify`` checks the
trail.
"""

from collections.abc import Callable
from pathlib import Path

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import JsonObject, flush_names
from cad.base.version import __version__
from cad.hospital.node.compute import RUN, objects
from cad.hospital.node.queue import Entry, Queue
from cad.hospital.node.settings import NodeSettings
from cad.run.audit.entries import audit_delivery, audit_prediction
from cad.run.audit.trail import DamagedTrail, append, verify

FILE = "audit.jsonl"
_TAIL = 4096  # bytes at the end of the last line that are remembered, to notice changes


@door("own", "link to the node's audit trail")
def _place_of_trail(settings: NodeSettings) -> Path:
    """Return the path of the node's audit trail.

    If the trail lies outside the node's folder HOME, ``HOME/audit.jsonl`` becomes a link to it.
    When a patient withdraws, only the node's folder is known, and the trail is found by this link.

    Raises
    ------
    CadError
        When the settings name a trail elsewhere and the node's folder has one already.
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
    flush_names(settings.home)
    return settings.audit


class Trail:
    """Add lines to a node's audit trail; each line is on the disk before the method returns.

    The whole trail is verified at the start. The queue keeps the hash of the last line, so that
    lines which were changed, or cut off at the end, are detected.

    Parameters
    ----------
    settings : NodeSettings
        Settings of the node, with the path of the trail.
    queue : Queue
        The node's queue, which keeps the hash of the last line.
    new : bool
        Whether to begin another trail if the last one is missing; otherwise this is an error.

    Raises
    ------
    DamagedTrail
        Here and in every method, when the trail is not as it was written.
    """

    def __init__(self, settings: NodeSettings, queue: Queue, *, new: bool = False) -> None:
        self.path = _place_of_trail(settings)
        self._archive = settings.archive.address
        self._queue = queue
        # Position in the trail at which the node's last line ends, and the last bytes before this
        # position.
        self._end = 0, b""
        last_hash = queue.last_line()
        is_there = self.path.exists()
        if new and not is_there:
            self.note("start", after=last_hash)
            return
        # At the first start of a node there is neither a trail nor a hash.
        if last_hash or is_there:
            problems = verify(self.path, last_hash).problems if is_there else ["it is gone"]
            if problems:
                raise DamagedTrail(
                    f"the audit trail is not what was written: {problems[0]}",
                    file=self.path,
                    hint="`cad audit verify` names every line; bring the trail back from a backup, "
                    "or move it away and begin another with --new-trail",
                )
        self.note("start")

    def note(self, event: str, **facts: object) -> None:
        """Add a line about the node itself, such as its start.

        Parameters
        ----------
        event : str
            Name of the event.
        **facts
            Further names and values of the line.
        """
        entry = {"event": event, "cad_version": __version__, **facts}
        self._add_checked(lambda: append(self.path, entry))

    def predicted(self, entry: Entry, work: Path) -> None:
        """Add a line which says that a study was scored; call it before the results are sent.

        Parameters
        ----------
        entry : Entry
            The study in the queue.
        work : Path
            The study's folder on the node; its run folder lies in it.
        """
        sender, origin = self._origin(entry)
        self._add_checked(lambda: audit_prediction(self.path, work / RUN, sender, origin))

    def sent(self, entry: Entry, work: Path, outcome: str) -> None:
        """Add a line which says that a study's DICOM results were sent.

        Parameters
        ----------
        entry : Entry
            The study in the queue.
        work : Path
            The study's folder on the node; its run folder lies in it.
        outcome : str
            How the sending ended: ``stored``, ``not all stored`` or ``committed`` (the archive has
            promised to keep the results).
        """
        sender, origin = self._origin(entry)
        sent_objects = objects(work)
        self._add_checked(
            lambda: audit_delivery(
                self.path, work / RUN, sent_objects, sender, self._archive, outcome, origin
            )
        )

    def _add_checked(self, write_lines: Callable[[], str]) -> None:
        """Add lines to the trail, after checking that the node's last line is still there.

        ``write_lines`` writes the new lines, and returns the hash of the last of them; it returns
        an empty text if there was nothing to write. If the node's last line is missing, an error is
        raised, because new lines would hide the loss.
        """
        end, tail = self._end  # the position is 0 before this node's first line
        if end and (not self.path.exists() or self._tail(end) != tail):
            raise DamagedTrail(
                "the audit trail was cut off, changed or taken away while the node ran",
                file=self.path,
                hint="bring it back from a backup, or begin another with --new-trail",
            )
        hash_of_last_line = write_lines()
        if hash_of_last_line:
            self._queue.note_line(hash_of_last_line)
            end = self.path.stat().st_size
            self._end = end, self._tail(end)

    @door("own", "the node's audit trail")
    def _tail(self, end: int) -> bytes:
        """Return the bytes of the trail, at most 4096, that end at the position ``end``.

        The position need not be the end of the trail: other programs may have added lines after it.
        """
        with self.path.open("rb") as stream:
            stream.seek(max(0, end - _TAIL))
            return stream.read(min(end, _TAIL))

    def _origin(self, entry: Entry) -> tuple[str, JsonObject]:
        """Return the AE titles of a study's senders as text, and the senders for an audit entry."""
        senders = self._queue.senders(entry.key) or [{"title": entry.sender}]
        titles = sorted({str(sender["title"]) for sender in senders})
        return ", ".join(titles), {"senders": senders, "node_key": entry.key}
