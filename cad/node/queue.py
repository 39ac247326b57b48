"""The queue on disk: which instances are safe, and how far every study is.

SQLite in a folder of the node; every change is one transaction, on the disk before it returns. A
study moves ``receiving → queued → computing → sending → done``, aside to ``awaiting ROI`` or
``failed``; whatever arrives for it brings it back to ``receiving`` and one further ``generation``,
and what was begun for an earlier generation settles nothing.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cad.errors import CadError
from cad.reading import read_text

RECEIVING, QUEUED, COMPUTING, AWAITING = "receiving", "queued", "computing", "awaiting ROI"
SENDING, DONE, FAILED = "sending", "done", "failed"
STATES = (RECEIVING, AWAITING, QUEUED, COMPUTING, SENDING, DONE, FAILED)
_VERSION = 3
_SCHEMA = read_text(Path(__file__).with_suffix(".sql"))
# What a queue of each earlier version lacks of the next.
_LACKS = {
    1: """
ALTER TABLE instance ADD COLUMN sender TEXT NOT NULL DEFAULT '';
ALTER TABLE instance ADD COLUMN peer TEXT NOT NULL DEFAULT '';
CREATE TABLE asked (number TEXT PRIMARY KEY, study TEXT NOT NULL, generation INTEGER NOT NULL);
""",
    2: "CREATE TABLE trail (one INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);",
}


def _columns(database: sqlite3.Connection) -> list[tuple[str, str]]:
    query = (
        "SELECT tables.name, columns.name FROM sqlite_master AS tables "
        "JOIN pragma_table_info(tables.name) AS columns WHERE tables.type = 'table' ORDER BY 1, 2"
    )
    return database.execute(query).fetchall()


# The columns that a sound queue has, from the schema itself.
with closing(sqlite3.connect(":memory:")) as _fresh:
    _fresh.executescript(_SCHEMA)
    _COLUMNS = _columns(_fresh)


@dataclass(frozen=True)
class Entry:
    """Hold one study of the queue; times are seconds since 1970.

    Parameters
    ----------
    key, state, sender : str
        What stands for its UID, how far it is, and the AE title or folder that it came from.
    generation : int
        Instances that have asked for a result.
    opened, changed, due : float
        First and last arrival; when it is to be looked at again.
    attempts, sendings, returned : int
        Tries of the present step; of sending, ever; objects that were sent back.
    computed, settled : float or None
        Seconds of computing; when it was done or failed.
    reason, hint : str
        What went wrong last, and the way out.
    """

    key: str
    state: str
    generation: int
    sender: str
    opened: float
    changed: float
    due: float
    attempts: int
    sendings: int
    returned: int
    computed: float | None
    settled: float | None
    reason: str
    hint: str


class QueueError(CadError):
    """Say that the queue cannot be read or written: no study is at fault."""


class DamagedQueue(QueueError):
    """Say that the queue is no sound database: it is made anew of what lies in ``incoming``."""


class Queue:
    """Keep the queue; safe for several threads of the one process that owns it.

    Raises
    ------
    DamagedQueue
        Here and in every method, for what is no sound database.
    QueueError
        When it cannot be read or written: a full disk, a refused permission.
    CadError
        For a queue of a later version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # One connection for all threads: SQLite's own locks would make them fail instead of wait.
        self._lock = threading.RLock()
        self._held: set[str] = set()
        with self._sound():
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def _open(self) -> None:
        # Damage is found now, while a queue can be made anew, and not in the middle of a study.
        (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError("not as it was written")
        self._db.execute("PRAGMA journal_mode = WAL")
        # An acknowledged instance must outlive a power cut: every commit is flushed.
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")  # what a patient's rows held is overwritten
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise CadError(
                f"the queue has format {version}, this version knows {_VERSION}",
                file=self.path,
                hint="install the version of cad that wrote it, or a later one",
            )
        steps = [_SCHEMA] if version == 0 else [_LACKS[v] for v in range(version, _VERSION)]
        if steps:
            change = "".join(steps)
            # Tables and version in one transaction: a kill leaves the old format or the new one.
            self._db.executescript(f"BEGIN; {change} PRAGMA user_version = {_VERSION}; COMMIT;")
        if _columns(self._db) != _COLUMNS:
            raise sqlite3.DatabaseError("it has other tables than a queue")
        self._db.execute("SELECT * FROM instance").fetchall()  # words that are none end it here
        for row in self._db.execute("SELECT * FROM study"):
            entry = Entry(*row)
            times = entry.opened, entry.changed, entry.due, entry.generation, entry.attempts
            if entry.state not in STATES or not all(isinstance(n, int | float) for n in times):
                raise sqlite3.DatabaseError("a study is in no state, or at no time")

    def close(self) -> None:
        """End the use of the database; what was said to be kept is."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Turn what the database raises into the project's errors."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # The low byte is the primary code of SQLite's extended ones.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            damage = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
            kind = DamagedQueue if damage else QueueError
            raise kind(
                f"the queue cannot be read or written: {error}",
                file=self.path,
                hint="free disk space, permissions? The next start makes a damaged queue anew",
            ) from error

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Make one transaction."""
        with self._sound(), self._lock:
            # The write lock at once: a reader that becomes a writer could fail half way.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have ended it already
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._sound(), self._lock:
            return self._db.execute(query, values).fetchall()

    def _do(self, query: str, *values: Any) -> int:
        """Change rows in one transaction; return how many."""
        with self._change() as db:
            return db.execute(query, values).rowcount

    def digest(self, instance: str) -> bytes | None:
        """Return the hash of a safe instance's data set; None for one that is not safe."""
        rows = self._rows("SELECT digest FROM instance WHERE key = ?", instance)
        return rows[0][0] if rows else None

    def arrived(
        self,
        instance: tuple[str, str, int, bytes],
        study: str,
        sender: str,
        now: float,
        due: float,
        *,
        asks: bool = True,
        peer: str = "",
    ) -> None:
        """Write down an instance (key, modality, bytes, hash) that is on the disk.

        ``asks`` says whether its study is to be computed (again) because of it; ``peer`` is where
        the sender was.
        """
        key, kind, size, digest = instance
        with self._change() as db:
            db.execute(
                # Replaced, not refused: an instance that was lost on the disk is sent again.
                "INSERT OR REPLACE INTO instance VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (key, study, kind, size, digest, now, sender, peer),
            )
            db.execute(
                "INSERT INTO study (key, state, generation, sender, opened, changed, due) "
                "VALUES (?, ?, 0, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (study, RECEIVING, sender, now, now, due),
            )
            if asks:
                db.execute(
                    "UPDATE study SET state = ?, generation = generation + 1, changed = ?, "
                    "due = ?, attempts = 0, reason = '', hint = '' WHERE key = ?",
                    (RECEIVING, now, due, study),
                )

    @contextmanager
    def claimed(self, state: str, into: str, now: float) -> Iterator[Entry | None]:
        """Hold the study that has waited longest in a state, and count the attempt.

        Nobody else is given a study that is held, in whatever state it is meanwhile. One that is
        in the state ``into`` and held by nobody was dropped by a fault: it is taken up again.
        """
        # What a fault left in the middle of a step is nobody's: without this it would stay there.
        orphan = into if into != state else ""
        with self._lock:  # a claim whose commit fails holds nothing
            with self._change() as db:
                marks = ", ".join("?" * len(self._held))
                query = (
                    "UPDATE study SET state = ?, attempts = attempts + 1, "  # noqa: S608
                    "sendings = sendings + ? WHERE key = (SELECT key FROM study "
                    "WHERE (state = ? AND due <= ? OR state = ?) "
                    f"AND key NOT IN ({marks}) "  # nosec B608: marks only
                    "ORDER BY due, opened LIMIT 1) RETURNING *"
                )
                values = into, into == SENDING, state, now, orphan, *self._held
                row = db.execute(query, values).fetchone()
                entry = Entry(*row) if row else None
            if entry is not None:
                self._held.add(entry.key)
        try:
            yield entry
        finally:
            if entry is not None:
                with self._lock:
                    self._held.discard(entry.key)

    def settle(self, entry: Entry, state: str, now: float, **values: Any) -> bool:
        """Move a study on, unless more of it has arrived since it was claimed; tell whether."""
        values = {"due": now, "attempts": 0, "reason": "", "hint": "", **values}
        # The sweep counts keep_days from here.
        if state in (DONE, FAILED):
            values["settled"] = now
        names = ", ".join(f"{name} = ?" for name in values)
        query = (
            f"UPDATE study SET state = ?, {names} "  # noqa: S608  # nosec B608: our own names
            # An instance that has come since raised the generation: this result is of less.
            "WHERE key = ? AND state = ? AND generation = ?"
        )
        own = entry.key, entry.state, entry.generation
        return self._do(query, state, *values.values(), *own) == 1

    def ask(self, entry: Entry, number: str) -> None:
        """Remember that the archive is asked, by a number, to promise to keep a study's result."""
        self._do("INSERT INTO asked VALUES (?, ?, ?)", number, entry.key, entry.generation)

    def promised(self, number: str) -> Entry | None:
        """Return the study of a promise, while its result is still to be settled."""
        rows = self._rows(
            "SELECT study.* FROM study JOIN asked ON asked.study = study.key "
            "AND asked.generation = study.generation WHERE asked.number = ? AND state = ?",
            number,
            SENDING,
        )
        return Entry(*rows[0]) if rows else None

    def put_right(self, now: float, longest: float) -> int:
        """Bring times back that a wrong clock has set; return how many studies had one.

        Nothing is due later than ``longest`` seconds from now, and nothing happened later than now.
        """
        return self._do(
            "UPDATE study SET opened = min(opened, ?1), changed = min(changed, ?1), "
            "settled = min(settled, ?1), due = CASE WHEN due > ?2 THEN ?1 ELSE due END "
            "WHERE max(opened, changed, coalesce(settled, 0)) > ?1 OR due > ?2",
            now,
            now + longest,
        )

    def instances(self) -> dict[str, set[str]]:
        """Return the safe instances of every study."""
        kept: dict[str, set[str]] = {key: set() for (key,) in self._rows("SELECT key FROM study")}
        for study, key in self._rows("SELECT study, key FROM instance"):
            if study in kept:
                kept[study].add(key)
        return kept

    def lost(self, instances: set[str]) -> None:
        """Forget instances that are not on the disk: sent again, they are new."""
        with self._change() as db:
            db.executemany("DELETE FROM instance WHERE key = ?", [(key,) for key in instances])

    def was_sent(self, study: str) -> None:
        """Note that some of a study's result may have been sent: what is there is asked first."""
        self._do("UPDATE study SET sendings = max(sendings, 1) WHERE key = ?", study)

    def last_line(self) -> str:
        """Return the hash of the audit trail's last line; empty where none was noted."""
        rows = self._rows("SELECT sha256 FROM trail")
        return str(rows[0][0]) if rows else ""

    def note_line(self, sha256: str) -> None:
        """Remember the audit trail's last line: who cuts it off is found out."""
        self._do("INSERT OR REPLACE INTO trail VALUES (1, ?)", sha256)

    def recover(self, *, retry_failed: bool) -> int:
        """Put back what a killed node had begun; return how many studies that were."""
        with self._change() as db:
            # SQL wants two marks either way.
            again = (COMPUTING, FAILED) if retry_failed else (COMPUTING, COMPUTING)
            moved = db.execute(
                "UPDATE study SET state = ?, due = 0 WHERE state IN (?, ?)", (QUEUED, *again)
            )
            db.execute("UPDATE study SET due = 0 WHERE state = ?", (SENDING,))
            return moved.rowcount

    def count_of(self, study: str, kind: str) -> int:
        """Return the number of safe instances of a modality."""
        query = "SELECT count(*) FROM instance WHERE study = ? AND kind = ?"
        return int(self._rows(query, study, kind)[0][0])

    def senders(self, study: str) -> list[dict[str, Any]]:
        """Return who has sent a study's instances: title, peer and how many."""
        query = (
            "SELECT sender, peer, count(*) FROM instance WHERE study = ? AND sender != '' "
            "GROUP BY sender, peer ORDER BY sender, peer"
        )
        names = ("title", "peer", "instances")
        return [dict(zip(names, row, strict=True)) for row in self._rows(query, study)]

    def seen(self, name: str, size: int, time: int) -> bool:
        """Tell whether an exported file was taken as it is now."""
        query = "SELECT 1 FROM exported WHERE name = ? AND size = ? AND time = ?"
        return bool(self._rows(query, name, size, time))

    def see(self, name: str, size: int, time: int) -> None:
        """Remember an exported file as taken."""
        self._do("INSERT OR REPLACE INTO exported VALUES (?, ?, ?)", name, size, time)

    def counts(self) -> dict[str, int]:
        """Return the number of studies in every state."""
        found = dict(self._rows("SELECT state, count(*) FROM study GROUP BY state"))
        return {state: found.get(state, 0) for state in STATES}

    def totals(self, since: float) -> dict[str, float]:
        """Return numbers of what is kept: instances, bytes, objects sent, done since a time."""
        instances, size = self._rows("SELECT count(*), coalesce(sum(bytes), 0) FROM instance")[0]
        (sent,) = self._rows("SELECT coalesce(sum(returned), 0) FROM study")[0]
        query = "SELECT count(*), coalesce(avg(settled - changed), 0) FROM study WHERE state = ? "
        done, wait = self._rows(query + "AND settled >= ?", DONE, since)[0]
        return {"instances": instances, "bytes": size, "sent": sent, "done": done, "wait": wait}

    def latest(self, states: tuple[str, ...], limit: int = 20) -> list[Entry]:
        """Return the studies in some states, those that moved last first."""
        marks = ", ".join("?" * len(states))
        query = (
            f"SELECT * FROM study WHERE state IN ({marks}) "  # noqa: S608  # nosec B608: marks only
            "ORDER BY coalesce(settled, changed) DESC LIMIT ?"
        )
        return [Entry(*row) for row in self._rows(query, *states, limit)]

    def still_wanted(self, study: str, now: float) -> None:
        """Count the days that a settled study is kept from now: it is being sent again."""
        query = "UPDATE study SET settled = ? WHERE key = ? AND settled IS NOT NULL"
        self._do(query, now, study)

    def outdated(self, before: float, study: str = "") -> list[str]:
        """Return the studies, or tell of one, that were done or failed before a time."""
        query = "SELECT key FROM study WHERE state IN (?, ?) AND settled < ? AND ? IN ('', key)"
        return [key for (key,) in self._rows(query, DONE, FAILED, before, study)]

    def shrink(self) -> None:
        """Write the database anew: pages that are free keep nothing of what was in them."""
        with self._sound(), self._lock:
            self._db.execute("VACUUM")

    def forget(self, study: str) -> None:
        """Remove a study and its instances, once their files are gone."""
        with self._change() as db:
            db.execute("DELETE FROM instance WHERE study = ?", (study,))
            db.execute("DELETE FROM asked WHERE study = ?", (study,))
            db.execute("DELETE FROM study WHERE key = ?", (study,))
