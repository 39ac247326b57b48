"""The queue on disk: which instances are safe, and how far every study is.

SQLite in a folder of the node; every change is one transaction, on the disk before it returns. A
study moves ``receiving → queued → computing → sending → done``, aside to ``awaiting ROI`` or
``failed``; whatever arrives for it brings it back to ``receiving`` and one further ``generation``,
and what was begun for an earlier generation settles nothing.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cad.errors import CadError

RECEIVING, QUEUED, COMPUTING, AWAITING = "receiving", "queued", "computing", "awaiting ROI"
SENDING, DONE, FAILED = "sending", "done", "failed"
STATES = (RECEIVING, AWAITING, QUEUED, COMPUTING, SENDING, DONE, FAILED)
_VERSION = 2
_SCHEMA = """
CREATE TABLE study (
    key TEXT PRIMARY KEY, state TEXT NOT NULL, generation INTEGER NOT NULL,
    sender TEXT NOT NULL, opened REAL NOT NULL, changed REAL NOT NULL, due REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, sendings INTEGER NOT NULL DEFAULT 0,
    returned INTEGER NOT NULL DEFAULT 0,
    computed REAL, settled REAL, reason TEXT NOT NULL DEFAULT '', hint TEXT NOT NULL DEFAULT ''
);
CREATE INDEX study_due ON study (state, due);
CREATE TABLE instance (
    key TEXT PRIMARY KEY, study TEXT NOT NULL, kind TEXT NOT NULL, bytes INTEGER NOT NULL,
    digest BLOB NOT NULL, came REAL NOT NULL,
    sender TEXT NOT NULL DEFAULT '', peer TEXT NOT NULL DEFAULT ''
);
CREATE INDEX instance_study ON instance (study);
CREATE TABLE asked (number TEXT PRIMARY KEY, study TEXT NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE exported (name TEXT PRIMARY KEY, size INTEGER NOT NULL, time INTEGER NOT NULL);
"""
# What a queue of an earlier version lacks, by its version.
_LACKS = {
    1: """
ALTER TABLE instance ADD COLUMN sender TEXT NOT NULL DEFAULT '';
ALTER TABLE instance ADD COLUMN peer TEXT NOT NULL DEFAULT '';
CREATE TABLE asked (number TEXT PRIMARY KEY, study TEXT NOT NULL, generation INTEGER NOT NULL);
""",
}


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


class Queue:
    """Keep the queue; safe for several threads of the one process that owns it."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise CadError(
                f"the queue has format {version}, this version knows {_VERSION}",
                file=path,
                hint="install the version of cad that wrote it, or a later one",
            )
        change = _SCHEMA if version == 0 else _LACKS.get(version, "")
        if change:
            self._db.executescript(f"BEGIN; {change} PRAGMA user_version = {_VERSION}; COMMIT;")

    def close(self) -> None:
        """End the use of the database; what was said to be kept is."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Make one transaction."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have ended it already
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def digest(self, instance: str) -> bytes | None:
        """Return the hash of an instance that is safe; None for one that is not."""
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
                "INSERT INTO instance VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
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

    def claim(self, state: str, into: str, now: float) -> Entry | None:
        """Take the study that has waited longest in a state, and count the attempt."""
        with self._change() as db:
            row = db.execute(
                "UPDATE study SET state = ?, attempts = attempts + 1, sendings = sendings + ? "
                "WHERE key = (SELECT key FROM study WHERE state = ? AND due <= ? "
                "ORDER BY due, opened LIMIT 1) RETURNING *",
                (into, into == SENDING, state, now),
            ).fetchone()
        return Entry(*row) if row else None

    def settle(self, entry: Entry, state: str, now: float, **values: Any) -> bool:
        """Move a study on, unless more of it has arrived since it was claimed; tell whether."""
        values = {"due": now, "attempts": 0, "reason": "", "hint": "", **values}
        if state in (DONE, FAILED):
            values["settled"] = now
        names = ", ".join(f"{name} = ?" for name in values)
        with self._change() as db:
            done = db.execute(
                f"UPDATE study SET state = ?, {names} "  # noqa: S608  # nosec B608: our own names
                "WHERE key = ? AND state = ? AND generation = ?",
                (state, *values.values(), entry.key, entry.state, entry.generation),
            )
            return done.rowcount == 1

    def ask(self, entry: Entry, number: str) -> None:
        """Remember that the archive is asked, by a number, to promise to keep a study's result."""
        with self._change() as db:
            values = (number, entry.key, entry.generation)
            db.execute("INSERT INTO asked VALUES (?, ?, ?)", values)

    def promised(self, number: str) -> Entry | None:
        """Return the study of a promise, while its result is still to be settled."""
        rows = self._rows(
            "SELECT study.* FROM study JOIN asked ON asked.study = study.key "
            "AND asked.generation = study.generation WHERE asked.number = ? AND state = ?",
            number,
            SENDING,
        )
        return Entry(*rows[0]) if rows else None

    def recover(self, *, retry_failed: bool) -> int:
        """Put back what a killed node had begun; return how many studies that were."""
        with self._change() as db:
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
        with self._change() as db:
            db.execute("INSERT OR REPLACE INTO exported VALUES (?, ?, ?)", (name, size, time))

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

    def outdated(self, before: float) -> list[str]:
        """Return the studies that were done or failed before a time."""
        query = "SELECT key FROM study WHERE state IN (?, ?) AND settled < ?"
        return [key for (key,) in self._rows(query, DONE, FAILED, before)]

    def forget(self, study: str) -> None:
        """Remove a study and its instances, once their files are gone."""
        with self._change() as db:
            db.execute("DELETE FROM instance WHERE study = ?", (study,))
            db.execute("DELETE FROM asked WHERE study = ?", (study,))
            db.execute("DELETE FROM study WHERE key = ?", (study,))
