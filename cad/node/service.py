"""Run a node: threads that each move studies one step on, until a signal ends them."""

from __future__ import annotations

import logging
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydicom.uid import generate_uid

from cad import __version__
from cad.clinic.archive import connect
from cad.errors import CadError, refused
from cad.execution.options import ExecutionOptions
from cad.execution.pool import Caller
from cad.folders.lock import locked
from cad.node import queue as states
from cad.node.compute import Computed, compute, objects, ready
from cad.node.inbox import Inbox
from cad.node.log import tell
from cad.node.names import nameless
from cad.node.poll import Poller
from cad.node.queue import Entry, Queue
from cad.node.receiver import Receiver
from cad.node.send import ask_promise, broken, images_in_archive, send_back
from cad.node.settings import NodeSettings
from cad.node.status import StatusPage
from cad.node.trail import Trail
from cad.node.watch import Watcher

QUEUE = "queue.sqlite"
_PAUSE = 0.5  # seconds between looks at the queue
_SWEEP_SECONDS = 3600.0
_HOUR, _DAY = 3600.0, 86400.0


def serve(settings: NodeSettings, *, retry_failed: bool = False) -> int:
    """Receive, compute and return studies until SIGTERM or SIGINT; return the exit code.

    Parameters
    ----------
    settings : NodeSettings
        Everything that the node is told.
    retry_failed : bool
        Compute failed studies again.

    Raises
    ------
    CadError
        For unusable settings, and when another node uses the same home.
    """
    logging.disable()  # what libraries say quotes headers
    warnings.simplefilter("ignore")
    connect(settings.archive.address, settings.archive.aet, settings.archive.limits)  # usable?
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = settings.studies
    limits = ExecutionOptions(1, time_limit=part.time_limit, memory_limit=part.memory_limit)
    with locked(settings.home):
        computers = [Caller(limits) for _ in range(part.jobs)]
        computers[0](ready, settings)
        return Node(settings, retry_failed=retry_failed).run(computers)


class Node:
    """Hold the parts of a running node."""

    def __init__(self, settings: NodeSettings, *, retry_failed: bool) -> None:
        self.settings = settings
        self.queue = Queue(settings.home / QUEUE)
        again = self.queue.recover(retry_failed=retry_failed)
        self.inbox, self.trail = Inbox(settings, self.queue), Trail(settings, self.queue)
        watch = settings.watch
        self.watcher = Watcher(watch, self.inbox) if watch else None
        poll = settings.poll
        self.poller = Poller(poll, settings.archive, self.inbox) if poll else None
        self.receiver = Receiver(self.inbox, self.promised)
        self.page = StatusPage(settings, self.queue, self.receiver)
        self.stop, self.code, self._swept = threading.Event(), 0, 0.0
        host, port = self.receiver.address
        tell("started", version=__version__, host=host, port=port, page=self.page.port, again=again)

    def run(self, computers: list[Caller]) -> int:
        """Start every thread, wait for a signal, and end in order."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: self.stop.set())
        steps: list[Callable[[], bool]] = [self.complete_one, self.send_one, self.sweep]
        if self.watcher is not None:
            steps.append(self.watcher.look)
        if self.poller is not None:
            steps.append(self.poller.look)
        for step in steps:
            self._thread(step)
        for call in computers:
            self._thread(self._computing(call))
        self.stop.wait()
        self.receiver.stop()
        self.page.stop()
        self.trail.note("stop")
        tell("stopped", code=self.code)
        return self.code

    def _thread(self, step: Callable[[], bool]) -> None:
        """Do a step again and again, with pauses; a fault of ours ends the node."""

        def repeat() -> None:
            try:
                while not self.stop.is_set():
                    if not step():
                        self.stop.wait(_PAUSE)
            except BaseException as error:  # a thread that is gone must not look like a node
                self._fault(error)

        threading.Thread(target=repeat, daemon=True).start()

    def _fault(self, error: BaseException) -> None:
        """End the node for a fault of ours."""
        if not self.stop.is_set():
            frame = traceback.extract_tb(error.__traceback__)[-1]  # words may name somebody
            tell("fault", kind=type(error).__name__, file=frame.filename, line=frame.lineno)
            self.code = 1
            self.stop.set()

    def complete_one(self) -> bool:
        """Move a study to the queue when nothing more of it has come for a while."""
        entry = self.queue.claim(states.RECEIVING, states.RECEIVING, time.time())
        if entry is None:
            return False
        now, studies = time.time(), self.settings.studies
        if studies.count:
            try:
                there = images_in_archive(self.settings.archive, self.inbox.incoming(entry.key))
            except (CadError, OSError) as error:
                problem = error if isinstance(error, CadError) else refused(error)
                self._later(entry, studies.quiet_seconds, problem)
                return True
            here = self.queue.count_of(entry.key, "MR")
            if here < there:
                short = CadError(
                    f"the archive has {there} images of the study, {here} have come",
                    hint="send the study again",
                )
                if now - entry.changed > studies.wait_hours * _HOUR:
                    self._failed(entry, short)
                else:
                    self._later(entry, studies.quiet_seconds, short)
                return True
        if self.queue.settle(entry, states.QUEUED, now):
            tell("complete", study=entry.key, seconds=round(now - entry.opened, 1))
        return True

    def _computing(self, call: Caller) -> Callable[[], bool]:
        """Return a step that computes one study, always in the same supervised process."""

        def compute_one() -> bool:
            entry = self.queue.claim(states.QUEUED, states.COMPUTING, time.time())
            if entry is None:
                return False
            places = self.inbox.incoming(entry.key), self.inbox.work(entry.key)
            try:
                found = call(compute, self.settings, *places)
                if found.objects:
                    self.trail.predicted(entry, places[1])
                self._computed(entry, found)
            except CadError as error:
                self._failed(entry, error)
            except OSError as error:  # a full disk, say: the study is not at fault
                self._later(entry, self._patience(entry), refused(error), states.QUEUED)
            return True

        return compute_one

    def _computed(self, entry: Entry, found: Computed) -> None:
        state = states.SENDING if found.objects else states.AWAITING
        seconds = round(found.seconds, 2)
        if self.queue.settle(entry, state, time.time(), computed=seconds):
            tell("computed", study=entry.key, seconds=seconds, state=state)

    def send_one(self) -> bool:
        """Return one result to the archive; try again later when it cannot take it."""
        entry = self.queue.claim(states.SENDING, states.SENDING, time.time())
        if entry is None:
            return False
        work = self.inbox.work(entry.key)
        if not objects(work):  # HOME came back from a backup in part
            return self.queue.settle(entry, states.QUEUED, time.time())
        try:
            sent = send_back(self.settings.archive, work, ask_first=entry.sendings > 1)
            if sent or not self.settings.archive.commitment:
                self.trail.sent(entry, work, "stored")
        except (CadError, OSError) as error:
            problem = error if isinstance(error, CadError) else refused(error)
            if self._said(entry, problem)["reason"] != entry.reason:  # not at every try
                with suppress(OSError):  # then at the next try
                    self.trail.sent(entry, work, "not all stored")
            self._later(entry, self._patience(entry), problem)
            return True
        if self.settings.archive.commitment:
            self._ask_promise(entry, work, sent)
        else:
            self._done(entry, sent, entry.returned + sent)
        return True

    def _done(self, entry: Entry, sent: int, returned: int) -> None:
        now = time.time()
        if self.queue.settle(entry, states.DONE, now, returned=returned):
            tell("done", study=entry.key, sent=sent, seconds=round(now - entry.changed, 1))

    def _ask_promise(self, entry: Entry, work: Path, sent: int) -> None:
        """Ask the archive to promise to keep what it has stored, and wait for its answer."""
        number = str(generate_uid(prefix=None))
        self.queue.ask(entry, number)  # the answer may come before the request returns
        try:
            ask_promise(self.settings.archive, work, number)
        except (CadError, OSError) as error:
            problem = error if isinstance(error, CadError) else refused(error)
            self._later(entry, self._patience(entry), problem, returned=entry.returned + sent)
            return
        wait = max(self.settings.archive.commitment_seconds, self._patience(entry))
        now = time.time()
        if self.queue.settle(
            entry, entry.state, now, due=now + wait, attempts=entry.attempts,
            returned=entry.returned + sent,
            reason="stored; the archive has not promised to keep it yet",
            hint="it reports to receiver.aet at receiver.port: it has to know both",
        ):  # fmt: skip
            tell("asked", study=entry.key, sent=sent, wait=round(wait, 1), tries=entry.attempts)

    def promised(self, number: str, answered: dict[str, int]) -> None:
        """Count a result as done that the archive has promised to keep; else ask again."""
        entry = self.queue.promised(number)
        if entry is None:  # answered before, or more of the study has come since
            tell("promise of another time", objects=len(answered))
            return
        work = self.inbox.work(entry.key)
        problems = broken(work, answered)
        if not problems:
            try:
                self.trail.sent(entry, work, "committed")
            except Exception as fault:  # the library would swallow it
                self._fault(fault)
                raise
            self._done(entry, len(objects(work)), entry.returned)
            return
        error = CadError(
            f"the archive does not promise to keep {len(problems)} of {len(objects(work))} "
            f"objects: {', '.join(sorted(set(problems)))}",
            hint="the codes are those of DICOM PS3.4 J.4.2; it is asked again",
        )
        self._later(entry, self._patience(entry), error)

    def _patience(self, entry: Entry) -> float:
        """Return the seconds until the next try: twice as many each time, up to a limit."""
        part = self.settings.archive
        wait: float = min(part.retry_seconds * 2.0 ** min(entry.attempts - 1, 30), part.retry_most)
        return wait

    def _failed(self, entry: Entry, error: CadError) -> None:
        if self.stop.is_set():  # the process was ended under it: the next start computes it
            return
        said = self._said(entry, error)
        if self.queue.settle(entry, states.FAILED, time.time(), **said):
            tell("failed", study=entry.key, **said)

    def _later(
        self, entry: Entry, wait: float, error: CadError, state: str = "", **values: int
    ) -> None:
        said = self._said(entry, error)
        more = {"due": time.time() + wait, "attempts": entry.attempts, **said, **values}
        if self.queue.settle(entry, state or entry.state, time.time(), **more):
            tell("waits", study=entry.key, wait=round(wait, 1), tries=entry.attempts, **said)

    def _said(self, entry: Entry, error: CadError) -> dict[str, Any]:
        """Return reason and hint of an error as they may be kept, shown and logged."""
        folder = self.inbox.incoming(entry.key)
        return {"reason": nameless(error.problem, folder), "hint": nameless(error.hint, folder)}

    def sweep(self) -> bool:
        """Remove, now and then, what was settled long ago."""
        if time.monotonic() - self._swept >= _SWEEP_SECONDS or not self._swept:
            self._swept = time.monotonic()
            for study in self.queue.outdated(time.time() - self.settings.studies.keep_days * _DAY):
                self.inbox.sweep(study)
                tell("swept", study=study)
        return False
