"""A cohort measured study by study: what is current is kept, what fails is told, nothing is lost.

The run folder remembers in ``resume.jsonl`` what became of every study (one line each, appended as
results come, so that a power cut costs at most the last line) and says in ``log.jsonl`` what was
done and how long it took. One run at a time may write into a folder (:func:`locked`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cad.errors import CadError
from cad.extraction import (
    FAILED_BEFORE,
    Failure,
    StudyOutcome,
    StudyTask,
    fingerprint,
    process_study,
    settings_key,
)
from cad.files import write_atomic
from cad.running import Done, Fault, How, each

LOCK = ".lock"
MEMORY = "resume.jsonl"
LOG = "log.jsonl"
_PLAIN_SECONDS = 10.0
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other runs out of a folder; the system frees it when this process ends in any way.

    Raises
    ------
    CadError
        When another run writes into the folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("a+", encoding="utf-8") as stream:
        stream.seek(0)
        holder = stream.read().strip()
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # A network file system without locks: believe what the file says.
            if error.errno not in _NO_LOCKS or _alive(holder):
                raise CadError(
                    f"another run writes into this folder ({holder or 'it is starting'})",
                    file=out,
                    hint="wait for it, or name another folder; if no such process exists on that "
                    f"machine, delete {LOCK} in the folder",
                ) from error
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        for part in [*out.glob(".*.part"), *out.glob("studies/.*.part")]:
            part.unlink(missing_ok=True)  # left by a run that was killed while it wrote
        try:
            yield
        finally:
            stream.truncate(0)


def _alive(holder: str) -> bool:
    """Whether the process that a lock names may still be there; another machine's may be."""
    words = holder.split()
    if len(words) != 4:
        return bool(holder)
    if words[3] != socket.gethostname():
        return True
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True


@dataclass(frozen=True)
class _Known:
    """A line of ``resume.jsonl``."""

    status: str
    key: str
    fingerprint: str
    result: list[int]
    failures: list[Failure]


def measure_studies(tasks: Sequence[StudyTask], how: How) -> list[StudyOutcome]:
    """Measure every study that is not current; outcomes in the order of the tasks.

    Parameters
    ----------
    tasks : sequence of StudyTask
        All with the same run folder and settings.
    how : How
        Where the work is done, and what is kept.

    Returns
    -------
    list of StudyOutcome
        One per task. A study that was stopped, or whose process died, has failed.
    """
    if not tasks:
        return []
    out = tasks[0].out
    known = _remembered(out / MEMORY)
    settings = settings_key(tasks[0].settings)
    outcomes: dict[str, StudyOutcome] = {}
    pending, prints = [], {}
    for task in tasks:
        study = task.ref.study_id
        before = known.get(study)
        prints[study] = _fingerprint(task, settings)
        current = before is not None and before.fingerprint == prints[study] != ""
        if how.resume and before is not None and current:
            outcome = _without_work(task, before, how)
            if outcome is not None:
                outcomes[study] = outcome
                continue
        if how.retry_failed or not how.resume or before is None or before.status != "failed":
            pending.append(replace(task, resume=how.resume))
        else:
            failure = before.failures[0]
            pending.append(replace(task, failed=failure, failed_key=before.key))
    with (
        _Lines(out / MEMORY) as memory,
        _Lines(out / LOG) as log,
        _progress(len(pending), len(outcomes), how) as tell,
    ):
        start = time.perf_counter()
        for done in each(process_study, pending, how):
            outcome = _outcome(done)
            study = outcome.study_id
            outcomes[study] = outcome
            memory.add(_line(done.task, outcome, prints[study]))
            log.add(
                {
                    "time": round(time.time(), 3),
                    "study": study,
                    "stage": outcome.failures[0].stage if outcome.status == "failed" else "measure",
                    "status": outcome.status,
                    "why": outcome.why,
                    "seconds": round(outcome.seconds, 4),
                    "peak_mb": round(outcome.peak_mb, 1),
                }
            )
            tell(outcome)
        log.add({"time": round(time.time(), 3), **_summary(outcomes, len(pending), start)})
    ordered = [outcomes[task.ref.study_id] for task in tasks]
    _compact(out / MEMORY, {task.ref.study_id for task in tasks})
    return ordered


def _without_work(task: StudyTask, before: _Known, how: How) -> StudyOutcome | None:
    """What is known about an unchanged study without opening a file; None if it must be done."""
    study = task.ref.study_id
    if before.status == "failed":
        if how.retry_failed or not before.key:
            return None
        return StudyOutcome(study, "failed", FAILED_BEFORE, before.failures, 0.0, before.key)
    if before.result != _size_and_time(task.result):
        return None
    return StudyOutcome(study, "kept", "unchanged", before.failures, 0.0, before.key)


def _outcome(done: Done[StudyTask, StudyOutcome]) -> StudyOutcome:
    ref = done.task.ref
    if done.result is not None:
        outcome = replace(done.result, peak_mb=done.peak_mb)
        if outcome.status == "failed" or done.task.result.exists():
            return outcome
        reason = "measured elsewhere, but its result is not in the run folder"
        hint = "the run folder and the cohort must be on a file system that all nodes share"
        key = ""
    else:
        fault = done.fault or Fault("the worker gave no result", "please report this")
        reason, hint = fault.reason, fault.hint
        # With a key it is not tried again: else every night would wait for the time limit.
        key = "stopped" if fault.lasting else ""
    failure = Failure(ref.participant_id, ref.study_id, "", "worker", reason, hint)
    return StudyOutcome(ref.study_id, "failed", reason, [failure], done.seconds, key, done.peak_mb)


def _fingerprint(task: StudyTask, settings: str) -> str:
    try:
        return fingerprint(task.ref, settings)
    except OSError:  # the worker will meet it too, and say so
        return ""


def _size_and_time(path: Path) -> list[int]:
    try:
        stat = path.stat()
    except OSError:
        return []
    return [stat.st_size, stat.st_mtime_ns]


def _line(task: StudyTask, outcome: StudyOutcome, fingerprint: str) -> dict[str, Any]:
    return {
        "study": outcome.study_id,
        "status": outcome.status,
        "key": outcome.key,
        "fingerprint": fingerprint,
        "result": _size_and_time(task.result),
        "failures": [asdict(failure) for failure in outcome.failures],
    }


def _remembered(path: Path) -> dict[str, _Known]:
    """The last line of every study; lines that a power cut tore are passed over."""
    known: dict[str, _Known] = {}
    with suppress(FileNotFoundError), path.open("rb") as stream:
        for text in stream:
            try:
                line = json.loads(text)
                known[str(line["study"])] = _Known(
                    str(line["status"]),
                    str(line["key"]),
                    str(line["fingerprint"]),
                    list(line["result"]),
                    [Failure(**failure) for failure in line["failures"]],
                )
            except (ValueError, KeyError, TypeError):
                continue
    return known


def _compact(path: Path, wanted: set[str]) -> None:
    """One line per study of the cohort, once there are twice as many lines as studies."""
    lines = path.read_bytes().splitlines(keepends=True)
    if len(lines) < 2 * len(wanted):
        return
    last: dict[str, bytes] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            last[json.loads(line)["study"]] = line
    write_atomic(path, b"".join(line for study, line in last.items() if study in wanted))


class _Lines:
    """A file of JSON lines that grows; every line is handed to the system at once.

    A line that finds no room is left out: results say themselves what they are made from.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = path.open("ab+", buffering=0)
        size = self._stream.seek(0, os.SEEK_END)
        if size:
            self._stream.seek(size - 1)
            if self._stream.read(1) != b"\n":
                self._stream.write(b"\n")  # the line before was torn

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def add(self, content: dict[str, Any]) -> None:
        """Append a line."""
        with suppress(OSError):
            self._stream.write(json.dumps(content, sort_keys=True).encode() + b"\n")


def _summary(outcomes: dict[str, StudyOutcome], done: int, start: float) -> dict[str, Any]:
    """Counts, throughput and where the time went."""
    seconds = time.perf_counter() - start
    worked = [o for o in outcomes.values() if o.seconds > 0]
    slowest = max(worked, key=lambda o: o.seconds, default=None)
    return {
        "studies": len(outcomes),
        **dict(sorted(Counter(o.status for o in outcomes.values()).items())),
        "reasons": dict(Counter(o.why for o in outcomes.values() if o.status != "failed")),
        "seconds": round(seconds, 3),
        "studies_per_second": round(done / seconds, 3) if seconds > 0 else 0.0,
        "seconds_in_studies": round(sum(o.seconds for o in worked), 3),
        "slowest": slowest.study_id if slowest else None,
        "peak_mb": round(max((o.peak_mb for o in worked), default=0.0), 1),
    }


@contextmanager
def _progress(pending: int, kept: int, how: How) -> Iterator[Any]:
    """A bar on a terminal, a line now and then elsewhere, nothing when not asked for."""
    if not how.progress:
        yield lambda outcome: None
        return
    if kept:
        print(f"{kept} studies are as they were; {pending} to do", file=sys.stderr)
    if sys.stderr.isatty() and pending:
        yield from _bar(pending)
        return
    rate = _Rate()
    last, failed = rate.start, 0

    def tell(outcome: StudyOutcome) -> None:
        nonlocal failed, last
        failed += outcome.status == "failed"
        count, per_second, now = rate.after_one_more()
        if outcome.status == "failed":
            print(f"failed: {outcome.study_id}: {outcome.failures[0].reason}", file=sys.stderr)
        if now - last >= _PLAIN_SECONDS or count == pending:
            print(
                f"{count} of {pending} studies, {failed} failed, {per_second:.2f} a second, "
                f"{(pending - count) / per_second:.0f} s to go",
                file=sys.stderr,
            )
            last = now

    yield tell


class _Rate:
    """Studies a second since the first came: the start of the workers is not part of the rest."""

    def __init__(self) -> None:
        self.start = self.first = time.monotonic()
        self.count = 0

    def after_one_more(self) -> tuple[int, float, float]:
        """Studies so far, their rate, and the time now."""
        now = time.monotonic()
        self.count += 1
        if self.count == 1:
            self.first = now
            return 1, 1 / max(now - self.start, 1e-9), now
        return self.count, (self.count - 1) / max(now - self.first, 1e-9), now


def _bar(pending: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("studies"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("studies", total=pending, failed=0, rate="")
        rate, failed = _Rate(), 0

        def tell(outcome: StudyOutcome) -> None:
            nonlocal failed
            failed += outcome.status == "failed"
            _, per_second, _ = rate.after_one_more()
            bar.update(line, advance=1, failed=failed, rate=f"{per_second:.2f}/s")

        yield tell
