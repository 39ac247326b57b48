"""Store the queue on disk: the instances that are safe, and the state of every study.

The queue is a SQLite file in the node's folder. Every change is one transaction, which is on the
disk before its function returns. A study moves ``receiving → queued → computing → sending → done``,
or to ``awaiting ROI`` or ``failed``. Any new instance returns the study to ``receiving`` and raises
its ``generation``. Work that was begun for an earlier generation can then no longer change its
state.
"""

import hashlib
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.reading import read_text
from cad.hospital.node.names import KEY

RECEIVING = "receiving"
QUEUED = "queued"
COMPUTING = "computing"
AWAITING = "awaiting ROI"
SENDING = "sending"
DONE = "done"
FAILED = "failed"
STATES = (RECEIVING, AWAITING, QUEUED, COMPUTING, SENDING, DONE, FAILED)
_VERSION = 6
_SIGNATURE = b"SQLite format 3\x00"
# Largest count that a row of the queue may hold; the schema refuses a larger count. SQLite stores
# integers below 2**63 exactly, so that adding 1 to a count cannot overflow.
_MOST = 2**53
# At the start of a node, a count of this number or more is taken for damage, because no node ever
# counts that far. If larger counts were allowed at a start, up to _MOST, the next instance that
# arrives could raise one of them above _MOST. This would happen after every start.
_LEAST_DAMAGED = 2**40
_COUNTS = (
    ("study", "generation"),
    ("study", "attempts"),
    ("study", "sendings"),
    ("study", "returned"),
    ("instance", "bytes"),
    ("asked", "generation"),
)
_SCHEMA = read_text(Path(__file__).with_suffix(".sql")).format(key=KEY, states=STATES, most=_MOST)
# SQLite's error codes for a damaged file. A row that contradicts the schema counts as damage, too,
# because this program cannot have written such a row.
_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
)


@door("own", "the queue's first bytes")
def _require_database(path: Path) -> None:
    """Raise an error for an existing file that does not begin as a SQLite file does.

    SQLite takes a file that was cut to a few bytes for a new database. The node would then forget
    all studies.
    """
    with suppress(FileNotFoundError):
        # To open a pipe would wait for a writer, so that the kind of the file is read first.
        if not stat.S_ISREG(path.stat().st_mode):
            text = "a folder, a pipe or a device has the name of the queue's file"
            raise DamagedQueue(text, file=path, hint=_ANEW)
        with path.open("rb") as file:
            start = file.read(len(_SIGNATURE))
        if not start:
            raise DamagedQueue("the queue's file was emptied", file=path, hint=_ANEW)
        if start != _SIGNATURE:
            raise DamagedQueue("the queue's file is no SQLite database", file=path, hint=_ANEW)


def _schema_of_database(database: sqlite3.Connection) -> list[tuple[str | None, ...]]:
    """Return kind, name, table and statement of all tables, indexes, triggers and views.

    SQLite keeps each statement word for word, so that equal statements mean equal columns in the
    same order, equal conditions and equal indexes.
    """
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    return database.execute(query).fetchall()


def _columns_of_database(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return table and name of every column of a database, sorted."""
    query = (
        "SELECT tables.name, columns.name FROM sqlite_master AS tables "
        "JOIN pragma_table_info(tables.name) AS columns WHERE tables.type = 'table' ORDER BY 1, 2"
    )
    return database.execute(query).fetchall()


# The entries that SQLite makes of the schema. A queue of this format has no other entry.
with closing(sqlite3.connect(":memory:")) as _fresh:
    _fresh.executescript(_SCHEMA)
    _COLUMNS = _columns_of_database(_fresh)
    _WRITTEN = _schema_of_database(_fresh)


@dataclass(frozen=True)
class Entry:
    """Hold one study of the queue; times are seconds since 1970.

    Parameters
    ----------
    key : str
        Pseudonym of the study's StudyInstanceUID.
    state : str
        "receiving", "queued", "computing", "sending", "done",
        "awaiting ROI" or "failed".
    generation : int
        Number of arrived instances for which the study has to be computed (again).
    sender : str
        AE title (DICOM name) of the sender, or the folder from which the study was taken.
    opened, changed, due : float
        Time of the first arrival, of the last arrival, and of the next step.
    attempts : int
        Number of tries of the present step.
    sendings : int
        Number of tries of sending since the study came.
    returned : int
        Number of objects that were sent to the archive.
    computed : float or None
        Seconds that computing took.
    settled : float or None
        Time at which the study was done or failed.
    reason, hint : str
        The last fault, and the way out for the user; empty without a fault.
    seal : str
        Checksum of a study that is done or failed (:func:`_seal`).
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
    seal: str = ""


def _seal(key: str, state: str, settled: float | None) -> str:
    """Return a checksum that tells the rows which a node wrote from rows that somebody edited.

    A study that is done or failed is deleted some days after the time ``settled``. Its row has this
    checksum. The queue asks for the checksum in SQL, too, where the function is ``seal_of``.
    """
    # The database stores every time as a number with a fraction, whatever it was given.
    time_of_end = None if settled is None else float(settled)
    text = f"a node's study {key}: {state}, {time_of_end!r}"
    return hashlib.sha256(text.encode()).hexdigest()


_ANEW = "the next start makes a damaged queue anew"


class QueueError(CadError):
    """Report that the queue cannot be read or written; no study is the cause."""


class DamagedQueue(QueueError):
    """Report that the queue's file is not a sound database.

    A start of the node then makes a new queue from the files in ``incoming``.
    """


class Queue:
    """Keep the node's queue in a SQLite file; safe for several threads of one process.

    Parameters
    ----------
    path : Path
        The database file, made when absent.

    Raises
    ------
    DamagedQueue
        Here and in every method, when the file is not a sound database.
    QueueError
        Here and in every method, when the file cannot be read or written: a full disk, a refused
        permission.
    CadError
        When a later version of the program wrote the queue.
    """

    @door("own", "the node's queue")
    def __init__(self, path: Path) -> None:
        self.path = path
        # All threads share one connection, and wait for each other by this lock. With SQLite's own
        # locks a thread that has to wait would get an error.
        self._lock = threading.RLock()
        self._held: set[str] = set()  # keys of the studies that a thread is working on
        _require_database(path)
        with self._sound():
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.create_function("seal_of", 3, _seal, deterministic=True)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def _open(self) -> None:
        """Check the whole database and make its tables, if needed."""
        # Damage must show at the start, when a new queue can be made, and not in the middle of a
        # study. SQLite's `quick_check` would be faster, but does not compare indexes with their
        # tables. A wrong index would hide a study.
        (verdict,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if verdict != "ok" or version < 0:
            raise sqlite3.DatabaseError("not as it was written")
        self._db.execute("PRAGMA journal_mode = WAL")
        # Every commit is flushed to the disk, because an instance whose receipt was acknowledged
        # must survive a power cut.
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")  # removed rows are overwritten on the disk
        if version > _VERSION:
            text = f"the queue has format {version}, this version knows {_VERSION}"
            hint = "install the version of cad that wrote it, or a later one"
            raise CadError(text, file=self.path, hint=hint)
        if version != _VERSION:  # 0 in a new file
            self._make_tables()
        self._require_schema()
        self._require_counts()
        for table in dict(_COLUMNS):  # reads every row: invalid text must raise an error now
            self._db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - ours

    def _require_schema(self) -> None:
        """Raise an error unless the database has exactly the schema that this program writes.

        A trigger changes rows, a view hides rows, and a unique index drops rows. Columns in another
        order give an :class:`Entry` the values of other fields.
        """
        present = _schema_of_database(self._db)
        if present == _WRITTEN:
            return
        differing = [entry for entry in present if entry not in _WRITTEN]
        if differing:
            kind, name, *_ = differing[0]
            raise sqlite3.DatabaseError(f"it has another {kind}, {name!r:.80}, than a queue")
        absent = [entry for entry in _WRITTEN if entry not in present]
        kind, name, *_ = absent[0]
        raise sqlite3.DatabaseError(f"it has no {kind} {name!r:.80}, which a queue has")

    def _require_counts(self) -> None:
        """Raise an error for a count that no node reaches."""
        for table, column in _COUNTS:
            query = f"SELECT max({column}) FROM {table}"  # noqa: S608 - our own names
            (largest,) = self._db.execute(query).fetchone()
            if largest is not None and largest >= _LEAST_DAMAGED:
                text = f"{column} of a row of {table} is {largest}, which no node reaches"
                raise sqlite3.DatabaseError(text)

    def _make_tables(self) -> None:
        """Make the tables, and copy the rows of an earlier version's tables, if there are any."""
        # The columns that both the old and the new tables have: only these can be copied.
        columns_of_table: dict[str, list[str]] = {}
        common_columns = set(_columns_of_database(self._db)).intersection(_COLUMNS)
        for table, column in sorted(common_columns):
            columns_of_table.setdefault(table, []).append(column)
        rename = ""
        copy = ""
        for table, columns in columns_of_table.items():
            names = ", ".join(columns)
            rename += f"ALTER TABLE {table} RENAME TO old_{table};"
            copy += f"INSERT INTO {table} ({names}) SELECT {names} FROM old_{table};"  # noqa: S608 - ours
            copy += f"DROP TABLE old_{table};"
        # Versions before 6 wrote no checksum. A new file has no studies, and needs none.
        has_studies = "study" in columns_of_table
        if has_studies and "seal" not in columns_of_table["study"]:
            copy += (
                "UPDATE study SET seal = seal_of(key, state, settled) "  # noqa: S608 - our words
                f"WHERE state IN ('{DONE}', '{FAILED}');"
            )
        # Tables and version change in one transaction. If the process is killed, the file therefore
        # has either the old or the new format.
        script = f"{rename} {_SCHEMA} {copy} PRAGMA user_version = {_VERSION};"
        self._db.executescript(f"BEGIN; {script} COMMIT;")

    def close(self) -> None:
        """Close the database; every change is on the disk already."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Turn errors of the database into :class:`DamagedQueue` or :class:`QueueError`."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # The low byte of SQLite's extended error code is the primary code, as in `_DAMAGE`.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            kind = DamagedQueue if code in _DAMAGE else QueueError
            raise kind(
                f"the queue cannot be read or written: {error}",
                file=self.path,
                hint=f"free disk space, permissions? {_ANEW}",
            ) from error

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Run the ``with`` block as one transaction, and give it the connection to the database.

        An exception in the block undoes all changes that the block has made.
        """
        with self._sound(), self._lock:
            # The transaction takes SQLite's write lock at once. If it took the lock only at its
            # first change, this would fail where another connection has written in between.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # After some errors, such as a full disk, SQLite itself has already ended the
                # transaction.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a query gives; ``values`` take the places of its marks."""
        with self._sound(), self._lock:
            return self._db.execute(query, values).fetchall()

    def _do(self, query: str, *values: Any) -> int:
        """Run one SQL statement as a transaction; return how many rows it has changed."""
        with self._change() as db:
            return db.execute(query, values).rowcount

    def digest(self, instance: str) -> bytes | None:
        """Return the hash of an instance's data set; None for an instance that is not in the queue.

        Parameters
        ----------
        instance : str
            The instance's key: the pseudonym of its SOPInstanceUID.
        """
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
        """Enter an instance that is on the disk into the queue, and its study if that is new.

        Parameters
        ----------
        instance : tuple
            Key (pseudonym of the SOPInstanceUID), modality, size in bytes, hash of the data set.
        study : str
            The study's key: the pseudonym of its StudyInstanceUID.
        sender, peer : str
            AE title (DICOM name) of the sender, or the folder from which the instance was taken;
            and the sender's address.
        now, due : float
            Time of arrival, and when the study is to be looked at, in seconds since 1970.
        asks : bool
            Whether the study is to be computed (again) because of this instance.
        """
        key, kind, size, digest = instance
        with self._change() as db:
            # The instance may have a row already: if its file was lost on the disk, it is sent
            # again. The new row replaces the old row.
            row = (key, study, kind, size, digest, now, sender, peer)
            db.execute("INSERT OR REPLACE INTO instance VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            db.execute(
                "INSERT INTO study (key, state, generation, sender, opened, changed, due) "
                "VALUES (?, ?, 0, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (study, RECEIVING, sender, now, now, due),
            )
            if asks:
                db.execute(
                    "UPDATE study SET state = ?, generation = generation + 1, changed = ?, "
                    "due = ?, attempts = 0, reason = '', hint = '', seal = '' WHERE key = ?",
                    (RECEIVING, now, due, study),
                )

    @contextmanager
    def claimed(self, state: str, into: str, now: float) -> Iterator[Entry | None]:
        """Take the study that has waited longest in a state, and hold it until the block ends.

        The study moves into the state ``into``, and the attempt is counted. No other thread gets a
        held study. A study in ``into`` that no thread holds was left there by a fault. Such a study
        is taken like a waiting study.

        Parameters
        ----------
        state, into : str
            State in which the study waits, and state in which it is worked on.
        now : float
            Seconds since 1970; a study that is due later is not taken.

        Yields
        ------
        Entry or None
            None if no study waits.
        """
        # A study that a fault left in `into` is taken, too. If both states are one, the first
        # condition of the query finds it, and "" is the state of no study.
        state_of_orphans = into if into != state else ""
        with self._lock:  # locked until after the commit: only then the study counts as held
            with self._change() as db:
                marks_of_held = ", ".join("?" * len(self._held))
                # Only a study that moves into SENDING counts a sending: the comparison is 1 or 0.
                query = (
                    "UPDATE study SET state = ?, attempts = attempts + 1, "  # noqa: S608
                    "sendings = sendings + ? WHERE key = (SELECT key FROM study "
                    "WHERE (state = ? AND due <= ? OR state = ?) "
                    f"AND key NOT IN ({marks_of_held}) "
                    "ORDER BY due, opened LIMIT 1) RETURNING *"
                )
                values = into, into == SENDING, state, now, state_of_orphans, *self._held
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
        """Move a claimed study to another state, unless one of its instances arrived meanwhile.

        Parameters
        ----------
        entry : Entry
            The study as it was claimed.
        state : str
            The new state.
        now : float
            Seconds since 1970.
        **values : object
            Further columns of the study to set, such as ``due`` or ``reason``.

        Returns
        -------
        bool
            True if the study was moved, False if another instance of it has arrived.
        """
        # A move ends all tries of the earlier step, unless the caller states other values.
        values = {"due": now, "attempts": 0, "reason": "", "hint": "", "seal": "", **values}
        # The days for which the node keeps a finished study (setting `keep_days`) count from the
        # time `settled`.
        if state in (DONE, FAILED):
            values["settled"] = now
            values["seal"] = _seal(entry.key, state, now)
        names = ", ".join(f"{name} = ?" for name in values)
        query = (
            f"UPDATE study SET state = ?, {names} "  # noqa: S608 - our own names
            # If an instance came after the study was claimed, the study's generation is higher now,
            # and no row is changed. The result of the claimed study would lack this instance.
            "WHERE key = ? AND state = ? AND generation = ?"
        )
        identity = entry.key, entry.state, entry.generation
        return self._do(query, state, *values.values(), *identity) == 1

    def ask(self, entry: Entry, number: str) -> None:
        """Record that the archive was asked to promise that it keeps a study's result.

        Parameters
        ----------
        entry : Entry
            The study.
        number : str
            Transaction UID of the request; the archive's answer carries it.
        """
        self._do("INSERT INTO asked VALUES (?, ?, ?)", number, entry.key, entry.generation)

    def promised(self, number: str) -> Entry | None:
        """Return the study that a storage commitment request (to keep objects) was about.

        Parameters
        ----------
        number : str
            Transaction UID from the archive's answer.

        Returns
        -------
        Entry or None
            None if the study is no longer being sent, or another instance of it has arrived since.
        """
        query = (
            "SELECT study.* FROM study JOIN asked ON asked.study = study.key "
            "AND asked.generation = study.generation WHERE asked.number = ? AND state = ?"
        )
        rows = self._rows(query, number, SENDING)
        return Entry(*rows[0]) if rows else None

    def put_right(self, now: float, longest: float) -> int:
        """Correct times that lie in the future because the clock was wrong.

        Parameters
        ----------
        now : float
            The present time, in seconds since 1970; no arrival and no end may be later.
        longest : float
            Seconds; a study that is due more than these after ``now`` becomes due now.

        Returns
        -------
        int
            Number of studies that were corrected.
        """
        # ?1 is the present time, ?2 the latest time at which a study may be due. A wrong checksum
        # is not put right: it is the sign of a row that somebody else has edited.
        query = (
            "UPDATE study SET opened = min(opened, ?1), changed = min(changed, ?1), "
            "settled = min(settled, ?1), seal = CASE WHEN seal = seal_of(key, state, settled) "
            "THEN seal_of(key, state, min(settled, ?1)) ELSE '' END, "
            "due = CASE WHEN due > ?2 THEN ?1 ELSE due END "
            "WHERE max(opened, changed, coalesce(settled, 0)) > ?1 OR due > ?2"
        )
        return self._do(query, now, now + longest)

    def instances(self) -> dict[str, set[str]]:
        """Return the keys of all instances in the queue, by the key of their study."""
        keys_by_study: dict[str, set[str]] = {}
        # A study without instances is listed, too: its set is empty.
        for (study,) in self._rows("SELECT key FROM study"):
            keys_by_study[study] = set()
        for study, key in self._rows("SELECT study, key FROM instance"):
            if study in keys_by_study:  # the row of an instance may outlive that of its study
                keys_by_study[study].add(key)
        return keys_by_study

    def lost(self, instances: set[str]) -> None:
        """Remove instances whose files are lost: when they are sent again, they count as new.

        Parameters
        ----------
        instances : set of str
            Keys of the instances: pseudonyms of the SOPInstanceUIDs.
        """
        with self._change() as db:
            db.executemany("DELETE FROM instance WHERE key = ?", [(key,) for key in instances])

    def was_sent(self, study: str) -> None:
        """Note that some objects of a study's result may be in the archive already.

        The next sending first asks the archive which objects it has, and leaves these out.
        """
        self._do("UPDATE study SET sendings = max(sendings, 1) WHERE key = ?", study)

    def last_line(self) -> str:
        """Return the noted SHA-256 of the audit trail's last line; empty if none was noted."""
        rows = self._rows("SELECT sha256 FROM trail")
        return str(rows[0][0]) if rows else ""

    def note_line(self, sha256: str) -> None:
        """Store the SHA-256 of the audit trail's last line, so that its removal is noticed."""
        self._do("INSERT OR REPLACE INTO trail VALUES (1, ?)", sha256)

    def is_secret(self, fingerprint: str) -> bool:
        """Tell whether the node's secret is still the secret of its first start.

        The first call stores the fingerprint. Every later call compares its own fingerprint with
        the stored one.

        Parameters
        ----------
        fingerprint : str
            The fingerprint of the node's secret.

        Returns
        -------
        bool
            True if the fingerprint is the stored one; always True in the first call.
        """
        self._do("INSERT OR IGNORE INTO secret VALUES (1, ?)", fingerprint)
        return self._rows("SELECT fingerprint FROM secret") == [(fingerprint,)]

    def recover(self, *, retry_failed: bool) -> int:
        """Queue studies again whose computing ended unfinished when the node was killed.

        Studies that were being sent become due at once; the result does not count them.

        Parameters
        ----------
        retry_failed : bool
            Also queue the studies that failed.

        Returns
        -------
        int
            Number of studies that were queued.
        """
        with self._change() as db:
            # The query has places for two states. If failed studies are left out, `COMPUTING` fills
            # both places.
            states = (COMPUTING, FAILED) if retry_failed else (COMPUTING, COMPUTING)
            query = "UPDATE study SET state = ?, due = 0, seal = '' WHERE state IN (?, ?)"
            moved = db.execute(query, (QUEUED, *states))
            db.execute("UPDATE study SET due = 0 WHERE state = ?", (SENDING,))
            return moved.rowcount

    def count_of(self, study: str, kind: str) -> int:
        """Return how many instances of one modality (``kind``) the queue has of a study."""
        query = "SELECT count(*) FROM instance WHERE study = ? AND kind = ?"
        return int(self._rows(query, study, kind)[0][0])

    def senders(self, study: str) -> list[dict[str, Any]]:
        """Return the senders of a study's instances.

        Returns
        -------
        list of dict
            One for each sender: ``title`` (AE title, or a folder), ``peer`` (address) and
            ``instances`` (how many).
        """
        query = (
            "SELECT sender, peer, count(*) FROM instance WHERE study = ? AND sender != '' "
            "GROUP BY sender, peer ORDER BY sender, peer"
        )
        names = ("title", "peer", "instances")
        return [dict(zip(names, row, strict=True)) for row in self._rows(query, study)]

    def was_taken(self, name: str, size: int, time: int) -> bool:
        """Tell whether a file, or a series of an archive, was put into the inbox as it is now.

        Its present state is given by ``size`` and ``time``.

        Parameters
        ----------
        name : str
            Pseudonym of the file's path, or of the SeriesInstanceUID.
        size : int
            Size of the file in bytes, or number of instances of the series.
        time : int
            Time of the file's last change in nanoseconds, or 0 for a series.

        Returns
        -------
        bool
            True if an entry with this name, size and time is in the queue.
        """
        query = "SELECT 1 FROM exported WHERE name = ? AND size = ? AND time = ?"
        return bool(self._rows(query, name, size, time))

    def note_taken(self, name: str, size: int, time: int) -> None:
        """Note that a file, or a series of an archive, was put into the inbox in a stated state.

        Parameters
        ----------
        name : str
            Pseudonym of the file's path, or of the SeriesInstanceUID.
        size : int
            Size of the file in bytes, or number of instances of the series.
        time : int
            Time of the file's last change in nanoseconds, or 0 for a series.
        """
        self._do("INSERT OR REPLACE INTO exported VALUES (?, ?, ?)", name, size, time)

    def counts(self) -> dict[str, int]:
        """Return the number of studies in each state, by state."""
        n_by_state = dict(self._rows("SELECT state, count(*) FROM study GROUP BY state"))
        # Every state is listed: a state without studies has no row, and counts 0.
        return {state: n_by_state.get(state, 0) for state in STATES}

    def totals(self, since: float) -> dict[str, float]:
        """Return totals for the status page.

        Parameters
        ----------
        since : float
            Seconds since 1970; ``done``, ``failed`` and ``wait`` count studies that ended later.

        Returns
        -------
        dict of str to float
            Numbers of ``instances`` and ``bytes`` that are kept, of objects ``sent`` to the
            archive, and of studies ``done`` and ``failed``. ``wait`` is the mean number of seconds
            from a study's last arrival until it was done.
        """
        # Each query gives one row. `coalesce` gives 0 where there is nothing to add up.
        ((n_instances, size),) = self._rows(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM instance"
        )
        ((n_sent,),) = self._rows("SELECT coalesce(sum(returned), 0) FROM study")
        query = (
            "SELECT count(*), coalesce(avg(settled - changed), 0) FROM study "
            "WHERE state = ? AND settled >= ?"
        )
        ((n_done, wait),) = self._rows(query, DONE, since)
        ((n_failed, _),) = self._rows(query, FAILED, since)
        return {
            "instances": n_instances,
            "bytes": size,
            "sent": n_sent,
            "done": n_done,
            "failed": n_failed,
            "wait": wait,
        }

    def latest(self, states: tuple[str, ...], limit: int = 20) -> list[Entry]:
        """Return at most ``limit`` studies that are in one of some states, the latest first.

        Studies are ordered by the time at which they were done or failed; a study that is not yet
        done or failed, by the last arrival of an instance.
        """
        marks = ", ".join("?" * len(states))  # one mark for each state
        query = (
            f"SELECT * FROM study WHERE state IN ({marks}) "  # noqa: S608 - marks only
            "ORDER BY coalesce(settled, changed) DESC LIMIT ?"
        )
        return [Entry(*row) for row in self._rows(query, *states, limit)]

    def still_wanted(self, study: str, now: float) -> None:
        """Keep a done or failed study longer, because somebody sends it again.

        From now on, the days for which it is kept are counted from the time ``now`` (seconds since
        1970).
        """
        # A wrong checksum is not put right: it is the sign of a row that somebody else has edited.
        query = (
            "UPDATE study SET settled = ?1, seal = CASE WHEN seal = seal_of(key, state, settled) "
            "THEN seal_of(key, state, ?1) ELSE '' END "
            "WHERE key = ?2 AND settled IS NOT NULL"
        )
        self._do(query, now, study)

    def taken_back(self, now: float) -> list[str]:
        """Receive studies again that are done or failed, and are not as the node left them.

        Somebody else has changed state or time of such a study in the queue's file. It might have
        no result, or be deleted too early. The next sending first asks the archive which objects it
        has.

        Parameters
        ----------
        now : float
            Seconds since 1970; the studies are due at this time.

        Returns
        -------
        list of str
            Keys of the studies.
        """
        query = (
            "UPDATE study SET state = ?, due = ?, attempts = 0, settled = NULL, "
            "sendings = max(sendings, 1), reason = '', hint = '', seal = '' "
            "WHERE state IN (?, ?) AND seal <> seal_of(key, state, settled) RETURNING key"
        )
        with self._change() as db:
            rows = db.execute(query, (RECEIVING, now, DONE, FAILED)).fetchall()
        return [key for (key,) in rows]

    def outdated(self, before: float, study: str = "") -> list[str]:
        """Return the keys of studies that were done or failed before a time.

        Studies whose state or time the node itself did not write are left out.

        Parameters
        ----------
        before : float
            Seconds since 1970.
        study : str
            Look at the study of this key only; empty for all studies.
        """
        # The last mark is `study`: the condition holds for all keys if it is empty.
        query = (
            "SELECT key FROM study WHERE state IN (?, ?) AND settled < ? "
            "AND ? IN ('', key) AND seal = seal_of(key, state, settled)"
        )
        return [key for (key,) in self._rows(query, DONE, FAILED, before, study)]

    def shrink(self) -> None:
        """Rewrite the database file, so that nothing of removed rows stays in it."""
        with self._sound(), self._lock:
            self._db.execute("VACUUM")

    def forget(self, study: str) -> None:
        """Remove the rows of a study and of its instances from the queue, but no files."""
        with self._change() as db:
            db.execute("DELETE FROM instance WHERE study = ?", (study,))
            db.execute("DELETE FROM asked WHERE study = ?", (study,))
            db.execute("DELETE FROM study WHERE key = ?", (study,))
