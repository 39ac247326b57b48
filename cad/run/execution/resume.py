"""Measure a cohort study by study, keep results whose input is unchanged, and report failures.

The run folder stores the outcome of every study in ``resume.jsonl``, one line for each study. The
line is appended when the study is done, so that a killed run loses at most its last line.
``log.jsonl`` records the work that was done and how long it took.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import flush_names, make_folder, state_of, typed, write_atomic
from cad.base.reading import MAX_ARRAYS, parse_json, read_bytes, reading
from cad.base.transactions import keep
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import Failure
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import each
from cad.run.execution.progress import progress
from cad.run.execution.task import FAILED_BEFORE, StudyOutcome, StudyTask, fingerprint, settings_key
from cad.run.execution.worker import Done, Fault


@dataclass(frozen=True)
class _EarlierOutcome:
    """Hold one line of ``resume.jsonl``: the outcome of a study in an earlier run."""

    status: str
    key: str
    fingerprint: str
    result: list[int]
    failures: list[Failure]


def measure_studies(
    measure: Callable[[StudyTask], StudyOutcome],
    tasks: Sequence[StudyTask],
    options: ExecutionOptions,
) -> list[StudyOutcome]:
    """Measure every study whose result is missing in the run folder or was made from other input.

    Parameters
    ----------
    measure : callable
        Measures one study and writes its file; importable by name in another process.
    tasks : sequence of StudyTask
        Tasks that all have the same run folder and settings.
    options : ExecutionOptions
        Number of processes or address of a cluster, and whether earlier results are kept.

    Returns
    -------
    list of StudyOutcome
        One outcome per task, in the order of the tasks. A study that exceeded a limit, or whose
        process died, has the status ``failed``.
    """
    if not tasks:
        return []
    folder = RunFolder(tasks[0].out)
    outcomes, pending, fingerprints = _plan_of_studies(
        tasks, remembered=_last_lines(folder.memory), options=options
    )
    with (
        _Lines(folder.memory) as memory,
        _Lines(folder.log) as log,
        progress(len(pending), len(outcomes), options) as tell,
    ):
        start = time.perf_counter()
        for measured in each(measure, pending, options):
            outcome = _outcome_of_task(measured)
            outcomes[outcome.study_id] = outcome
            memory.add(_resume_line(measured.task, outcome, fingerprints[outcome.study_id]))
            log.add(_log_line(outcome))
            tell(outcome)
        log.add({"time": round(time.time(), 3), **_summary_of_run(outcomes, len(pending), start)})
    _compact_lines(folder.memory, {task.ref.study_id for task in tasks})
    return [outcomes[task.ref.study_id] for task in tasks]


def borrow(earlier: RunFolder, folder: RunFolder) -> None:
    """Reuse the study files of one run in another run that measures the same features.

    :func:`measure_studies` later checks of each file whether it was made from the present input, as
    it does for the run's own files.

    Parameters
    ----------
    earlier : RunFolder
        The run whose study files are reused.
    folder : RunFolder
        The new run. It gets links to the study files, or copies where the disk has no links.
        Nothing is done where the new run has measured studies already, or ``earlier`` has not.
    """
    if folder.memory.exists() or not earlier.memory.exists():
        return
    for path in sorted(earlier.study("any").parent.glob("*.npz")):
        target = folder.study(path.stem)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            keep(path, target)
    write_atomic(folder.memory, read_bytes(earlier.memory, MAX_ARRAYS))


def _plan_of_studies(
    tasks: Sequence[StudyTask], remembered: dict[str, _EarlierOutcome], options: ExecutionOptions
) -> tuple[dict[str, StudyOutcome], list[StudyTask], dict[str, str]]:
    """Return which studies need no work, which do, and what identifies their input.

    The result has three members. The first has, by study, the earlier outcomes that still hold. The
    second has the tasks that are left. The third has, by study, the fingerprint (a fast hash) of
    the study's input and the settings; it is empty where the input cannot be read.
    """
    settings = settings_key(tasks[0].settings)
    outcomes: dict[str, StudyOutcome] = {}
    pending = []
    fingerprints = {}
    for task in tasks:
        study = task.ref.study_id
        before = remembered.get(study)
        present = _fingerprint_or_empty(task, settings)
        fingerprints[study] = present
        # Two empty fingerprints, of input that cannot be read, do not say that it is unchanged.
        if options.resume and before is not None and before.fingerprint == present and present:
            outcome = _outcome_without_work(task, before, options)
            if outcome is not None:
                outcomes[study] = outcome
                continue
        # The worker compares the bytes of the study's files with those of the earlier run. It is
        # told of an earlier failure, so that it does not try the same bytes again.
        tries_failed_again = options.retry_failed or not options.resume
        if tries_failed_again or before is None or before.status != "failed":
            pending.append(replace(task, resume=options.resume))
        else:
            pending.append(replace(task, failed=before.failures[0], failed_key=before.key))
    return outcomes, pending, fingerprints


def _log_line(outcome: StudyOutcome) -> dict[str, object]:
    """Return the line of ``log.jsonl`` about one study."""
    stage = "measure"
    if outcome.status == "failed":
        stage = outcome.failures[0].stage
    return {
        "time": round(time.time(), 3),
        "study": outcome.study_id,
        "stage": stage,
        "status": outcome.state,
        "why": outcome.why,
        "seconds": round(outcome.seconds, 4),
        "peak_mb": round(outcome.peak_mb, 1),
    }


def _outcome_without_work(
    task: StudyTask, before: _EarlierOutcome, options: ExecutionOptions
) -> StudyOutcome | None:
    """Return the outcome of a study without opening a file.

    The caller has found that the study's input and settings are those of the outcome ``before``.
    None means that the study must be measured, or measured again after a failure.
    """
    study = task.ref.study_id
    if before.status == "failed":
        # The key is the hash of the input that made the study fail, or ``stopped`` if a limit did.
        # It is empty where another cause, such as a full disk, may be gone now. Then the study is
        # tried again.
        if options.retry_failed or not before.key:
            return None
        status = "failed"
        why = FAILED_BEFORE
    elif before.result == _size_and_time(task.result):
        status = "kept"
        why = "unchanged"
    else:  # the result file was changed or removed
        return None
    return StudyOutcome(study, status, why, before.failures, seconds=0.0, key=before.key)


def _outcome_of_task(done: Done[StudyTask, StudyOutcome]) -> StudyOutcome:
    """Return the outcome of a study: that of the worker, or a failure if the worker gave none."""
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
        reason = fault.reason
        hint = fault.hint
        # A failed study whose ``key`` is not empty is not measured again while its input is
        # unchanged. Such a key is set if the study would most likely fail again. Otherwise a run
        # that is repeated every night would wait for the study's time limit every night.
        key = "stopped" if fault.lasting else ""
    failure = Failure(
        participant_id=ref.participant_id,
        study_id=ref.study_id,
        roi_id="",
        stage="worker",
        reason=reason,
        hint=hint,
    )
    return StudyOutcome(
        study_id=ref.study_id,
        status="failed",
        why=reason,
        failures=[failure],
        seconds=done.seconds,
        key=key,
        peak_mb=done.peak_mb,
    )


def _fingerprint_or_empty(task: StudyTask, settings: str) -> str:
    try:
        return fingerprint(task.ref, settings)
    except OSError:  # the worker that reads the study gets the same error and reports it
        return ""


def _size_and_time(path: Path) -> list[int]:
    try:
        return [*state_of(path)]
    except OSError:  # there is no such file
        return []


def _resume_line(task: StudyTask, outcome: StudyOutcome, fingerprint: str) -> dict[str, object]:
    """Return the line of ``resume.jsonl`` by which a later run keeps the result of a study."""
    return {
        "study": outcome.study_id,
        "status": outcome.status,
        "key": outcome.key,
        "fingerprint": fingerprint,
        "result": _size_and_time(task.result),
        "failures": [asdict(failure) for failure in outcome.failures],
    }


@door("own", "memory of a run")
def _last_lines(path: Path) -> dict[str, _EarlierOutcome]:
    """Return the last line of every study; a line that was written in part is skipped."""
    by_study: dict[str, _EarlierOutcome] = {}
    with suppress(FileNotFoundError), path.open("rb") as stream:
        for text in stream:
            with suppress(CadError), reading(path, "a torn line"):
                line = parse_json(text)
                outcome = typed(_EarlierOutcome, line)
                # A failure without a reason could not be repeated to the user.
                if outcome.status != "failed" or outcome.failures:
                    by_study[str(line["study"])] = outcome
    return by_study


def _compact_lines(path: Path, studies: set[str]) -> None:
    """Rewrite ``resume.jsonl`` with a line per study, if it has twice as many lines as studies."""
    lines = read_bytes(path, MAX_ARRAYS).splitlines(keepends=True)
    if len(lines) < 2 * len(studies):
        return
    last_lines: dict[str, bytes] = {}
    for line in lines:
        with suppress(CadError), reading(path, "a torn line"):
            last_lines[str(parse_json(line)["study"])] = line
    # Studies that the cohort has no more are left out.
    lines_to_keep = [line for study, line in last_lines.items() if study in studies]
    write_atomic(path, b"".join(lines_to_keep))


_LONGEST = 2**20  # length of the longest line in bytes


class _Lines:
    """Append JSON lines, one for each study, to a file.

    Every line is passed to the system at once, and the file is flushed to the disk at the end. If
    the disk is full, the line of a study is left out. A later run then opens the result of this
    study to learn from which input the result was made.
    """

    @door("own", "memory of a run")
    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        self._stream = path.open("ab+", buffering=0)
        flush_names(path.parent)
        # A killed process may leave the beginning of a line after the last line break. It is
        # removed here. Only the end of the file is read, since a line is no longer than that.
        file_size = self._stream.seek(0, os.SEEK_END)
        begin = max(0, file_size - _LONGEST)
        self._stream.seek(begin)
        last_break = self._stream.read().rfind(b"\n")  # -1 if there is none
        self._stream.truncate(begin + last_break + 1)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        with self._stream, suppress(OSError):
            os.fsync(self._stream.fileno())

    def add(self, content: dict[str, object]) -> None:
        """Append a line."""
        with suppress(OSError):
            self._stream.write(json.dumps(content, sort_keys=True).encode() + b"\n")


def _summary_of_run(
    outcomes: dict[str, StudyOutcome], n_measured: int, start: float
) -> dict[str, object]:
    """Return the line of the log about the whole run: numbers of studies, rate, time and memory.

    ``n_measured`` studies were measured since the time ``start``.
    """
    seconds = time.perf_counter() - start
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seconds_in_studies = 0.0
    peak_mb = 0.0
    slowest: StudyOutcome | None = None
    for outcome in outcomes.values():
        statuses[outcome.state] += 1
        if outcome.status != "failed":
            reasons[outcome.why] += 1
        # A study whose earlier result is kept has taken 0 seconds in this run.
        if outcome.seconds > 0:
            seconds_in_studies += outcome.seconds
            peak_mb = max(peak_mb, outcome.peak_mb)
            if slowest is None or outcome.seconds > slowest.seconds:
                slowest = outcome
    return {
        "studies": len(outcomes),
        **dict(sorted(statuses.items())),
        "reasons": dict(reasons),
        "seconds": round(seconds, 3),
        "studies_per_second": round(n_measured / seconds, 3) if seconds > 0 else 0.0,
        "seconds_in_studies": round(seconds_in_studies, 3),
        "slowest": slowest.study_id if slowest else None,
        "peak_mb": round(peak_mb, 1),
    }
