"""Run a node: threads that move studies on, one step at a time, until a signal ends them."""

import logging
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from pydicom.uid import generate_uid

from cad.base.doors import door
from cad.base.errors import CadError, MachineError
from cad.base.files import make_folder, write_atomic
from cad.base.processes import landlock, silence_children
from cad.base.transactions.lock import locked
from cad.base.version import __version__
from cad.dicom.archive.client import connect
from cad.hospital.node import queue as states
from cad.hospital.node.compute import (
    compute,
    keep_watch,
    may_open,
    objects,
    ready,
    without_probability,
)
from cad.hospital.node.inbox import LEAST_BYTES, Inbox
from cad.hospital.node.log import tell
from cad.hospital.node.names import REASON_FILE, wording
from cad.hospital.node.poll import Poller
from cad.hospital.node.queue import DamagedQueue, Entry, Queue, QueueError
from cad.hospital.node.receiver import Receiver
from cad.hospital.node.send import (
    ask_promise,
    broken,
    images_in_archive,
    result_is_whole,
    send_back,
)
from cad.hospital.node.settings import NodeSettings
from cad.hospital.node.status import StatusPage
from cad.hospital.node.trail import Trail
from cad.hospital.node.watch import Watcher
from cad.run.audit.trail import DamagedTrail
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller

QUEUE = "queue.sqlite"
_PAUSE = 0.5  # seconds between looks at the queue
_TROUBLE = 5.0  # seconds until a failed step is tried again, for example after a full disk
_CLOCK_SECONDS = 60.0  # if the clock jumps by more seconds than this, it was wrong before
_SWEEP_SECONDS = 3600.0
_MOST_DOUBLINGS = 30  # of a wait; by then it is far longer than the longest allowed wait
_HOUR = 3600.0
_DAY = 86400.0


def serve(settings: NodeSettings, *, retry_failed: bool = False, new_trail: bool = False) -> int:
    """Receive, compute and return studies until SIGTERM or SIGINT; return the exit code.

    If the disk is full at the start, wait until it has room.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node.
    retry_failed : bool
        Whether to compute failed studies again.
    new_trail : bool
        Whether to begin another audit trail if the last one is missing; by default this is an
        error.

    Returns
    -------
    int
        0 after a signal, 1 after a fault that ended the node.

    Raises
    ------
    CadError
        For unusable settings, a changed or missing audit trail, and when another node uses
        the same folder.
    """
    silence_children()  # messages of libraries may quote DICOM headers, which name patients
    logging.disable()
    warnings.simplefilter("ignore")
    threading.excepthook = _tell_of_ended_thread
    # This call sends nothing to the archive. If the archive's address or certificates cannot be
    # used, it raises an error now, and not only when the first result is ready.
    connect(settings.archive.address, settings.archive.aet, settings.archive.limits)
    studies = settings.studies
    limits = ExecutionOptions(1, time_limit=studies.time_limit, memory_limit=studies.memory_limit)
    make_folder(settings.home, mode=0o700)
    confined = may_open(settings)
    computers = [Caller(limits, confined=confined) for _ in range(studies.jobs)]
    # The check runs where studies are computed: this process must be able to open the models.
    computers[0](ready, settings)
    if not landlock.version():
        tell("not confined", why="the kernel has no Landlock: processes that compute may open all")
    last_code = ""  # of the error that was logged last
    while True:
        # The folder is locked while the node runs; after a failed start the lock is given back.
        with ExitStack() as lock:
            try:
                lock.enter_context(locked(settings.home))
                node = Node(settings, retry_failed=retry_failed, new_trail=new_trail)
            except (OSError, QueueError) as error:
                # Only a full disk is waited for: another error would come again.
                if shutil.disk_usage(settings.home).free >= LEAST_BYTES:
                    raise
                last_code = _tell_once(last_code, "start waits", error)
            else:
                return node.run(computers)
        time.sleep(_TROUBLE)


class Node:
    """Run a node with its queue, inbox, audit trail, receiver and status page.

    Making this object recovers the queue and starts the receiver and the status page. :meth:`run`
    starts the threads that move studies on.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node.
    retry_failed : bool
        Whether to compute failed studies again.
    new_trail : bool
        Whether to begin another audit trail if the last one is missing; by default this is an
        error.
    """

    def __init__(
        self, settings: NodeSettings, *, retry_failed: bool, new_trail: bool = False
    ) -> None:
        self.settings = settings
        # A start of the node that fails must leave nothing open, because the same process tries
        # the start again.
        with ExitStack() as undo:
            self.queue = _sound_queue(settings.home / QUEUE)
            undo.callback(self.queue.close)
            self.inbox = Inbox(settings, self.queue)
            undo.callback(self.inbox.close)
            n_entered, n_missing = self.inbox.take_stock()
            self._take_back()
            n_queued_again = self.queue.recover(retry_failed=retry_failed)
            # System time minus the monotonic clock (s): it changes only when the clock is set.
            self._clock = 0.0
            self._set_clock()
            self.trail = Trail(settings, self.queue, new=new_trail)
            undo.pop_all()  # the start did not fail: nothing is undone
        watch = settings.watch
        poll = settings.poll
        self.watcher = Watcher(watch, self.inbox) if watch else None
        self.poller = Poller(poll, settings.archive, self.inbox) if poll else None
        self.receiver = Receiver(self.inbox, self.promised)
        self.page = StatusPage(settings, self.queue, self.receiver)
        self.stop = threading.Event()
        self.code = 0
        self._swept = 0.0  # monotonic time of the last sweep; 0 before the first
        host, port = self.receiver.address
        tell(
            "started",
            version=__version__,
            host=host,
            port=port,
            page=self.page.port,
            again=n_queued_again,
            found=n_entered,
            gone=n_missing,
        )

    def run(self, computers: list[Caller]) -> int:
        """Start all threads and wait until a signal or a fault ends the node.

        Parameters
        ----------
        computers : list of Caller
            One supervised process for each study that is computed at the same time.

        Returns
        -------
        int
            Exit code: 0 after a signal, 1 after a fault.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        steps: list[Callable[[], bool]] = [self.complete_one, self.send_one, self.sweep]
        for source in (self.watcher, self.poller):
            if source is not None:  # the settings ask for it
                steps.append(source.look)
        steps += [self._computing(computer) for computer in computers]
        for step in steps:
            self._thread(step)
        self.stop.wait()
        self.receiver.stop()
        self.page.stop()
        try:
            self.trail.note("stop")
        except (CadError, OSError) as error:
            self.code = 1
            tell("not written down", **wording(error))
        tell("stopped", code=self.code)
        return self.code

    def _thread(self, step: Callable[[], bool]) -> None:
        """Repeat a step in a thread, with pauses.

        A failure of one study does not stop other studies (:meth:`_step`). If the machine prevents
        the step, for example because the disk is full, the step is tried again later. A damaged
        audit trail or queue, or an error of the program itself, ends the node.
        """

        def repeat() -> None:
            last_code = ""  # of the error that was logged last
            while not self.stop.is_set():
                try:
                    if not step():
                        self.stop.wait(_PAUSE)
                    last_code = ""
                except (DamagedTrail, DamagedQueue) as error:
                    self._fault(error)
                except (CadError, OSError) as error:
                    last_code = _tell_once(last_code, "step waits", error)
                    self.stop.wait(_TROUBLE)
                # An error of the program itself would end this thread alone. The node cannot work
                # without one of its threads, so the whole node ends.
                except BaseException as error:
                    self._fault(error)

        threading.Thread(target=repeat, daemon=True).start()

    def _fault(self, error: BaseException) -> None:
        """End the node because of an error after which it cannot continue."""
        # While the node stops, errors of threads that are being ended are no faults.
        if not self.stop.is_set():
            tell("fault", kind=type(error).__name__, **wording(error))
            self.code = 1
            self.stop.set()

    def _step(
        self,
        state: str,
        into: str,
        do_step: Callable[[Entry], None],
        on_failure: Callable[[Entry, Exception], None],
    ) -> bool:
        """Do a step for the study that has waited longest in ``state``; return whether one waited.

        While the step is done, the study is in the state ``into``. If the step raises an error,
        ``on_failure`` is called.
        """
        with self.queue.claimed(state, into, time.time()) as entry:
            if entry is None:
                return False
            try:
                do_step(entry)
            # No study is the cause of these errors, so none may fail by them.
            except (DamagedTrail, QueueError):
                raise
            except Exception as error:
                on_failure(entry, error)
            return True

    def complete_one(self) -> bool:
        """Check whether one study is complete, and queue it for computing if it is.

        A study is due when none of its instances has come for `quiet_seconds` of the settings. If
        the setting `count` is on, the number of its images is compared with the number that the
        archive has. If images are missing, the study is checked again later, and fails after
        `wait_hours`.

        Returns
        -------
        bool
            Whether a study was due.
        """
        return self._step(
            state=states.RECEIVING,
            into=states.RECEIVING,  # more instances may still come
            do_step=self._queue_if_complete,
            on_failure=self._check_later,
        )

    def _check_later(self, entry: Entry, error: Exception) -> None:
        self._later(entry, self.settings.studies.quiet_seconds, error)

    def _queue_if_complete(self, entry: Entry) -> None:
        """Queue a study that has fully arrived.

        While the archive has more images of the study, let it wait, or let it fail after
        `wait_hours`.
        """
        now = time.time()
        studies = self.settings.studies
        compare_with_archive = studies.count
        if compare_with_archive:
            # The number from the archive counts MR images only. So instances of other modalities
            # are not counted among the arrived ones.
            images_of_archive = images_in_archive(self.settings.archive, self.inbox.head(entry.key))
            arrived = self.queue.count_of(entry.key, "MR")
            if arrived < images_of_archive:
                error = CadError(
                    "the archive has more images of the study than have come",
                    hint="send the study again",
                )
                tell("incomplete", study=entry.key, here=arrived, there=images_of_archive)
                if now - entry.changed > studies.wait_hours * _HOUR:
                    self._failed(entry, error)
                else:
                    self._check_later(entry, error)
                return
        # The queue refuses the change if another instance has come meanwhile.
        if self.queue.settle(entry, states.QUEUED, now):
            tell("complete", study=entry.key, seconds=round(now - entry.opened, 1))

    def _computing(self, call: Caller) -> Callable[[], bool]:
        """Return a step that computes one study, always in the same supervised process."""

        def compute_study(entry: Entry) -> None:
            incoming = self.inbox.incoming(entry.key)
            folder = self.inbox.work(entry.key)
            n_objects, seconds = call(compute, self.settings, incoming, folder)
            if n_objects:  # without regions, a study has no result yet
                self.trail.predicted(entry, folder)
            duration = round(seconds, 2)
            state = states.SENDING if n_objects else states.AWAITING
            if self.queue.settle(entry, state, time.time(), computed=duration):
                tell("computed", study=entry.key, seconds=duration, state=state)
            if n_objects:
                keep_numbers(entry, folder)

        def keep_numbers(entry: Entry, folder: Path) -> None:
            """Keep the numbers of champion and shadow models for comparisons.

            An error here is only logged, so that no study fails by it.
            """
            try:
                failed_models = call(keep_watch, self.settings, folder)
            except (CadError, OSError) as error:
                tell("not watched", study=entry.key, **wording(error))
                return
            if failed_models:
                tell("shadow failed", study=entry.key, models=len(failed_models))

        def on_failure(entry: Entry, error: Exception) -> None:
            # A full disk may show as any error of a study: it is then the true cause.
            try:
                self.inbox.check_room()
            except OSError as full:
                error = full
            # If disk or memory ran short, the study is not the cause, and is computed again later.
            if isinstance(error, OSError | MachineError):
                self._later(entry, self._patience(entry), error, state=states.QUEUED)
            else:
                self._failed(entry, error)

        return lambda: self._step(
            state=states.QUEUED,
            into=states.COMPUTING,
            do_step=compute_study,
            on_failure=on_failure,
        )

    def send_one(self) -> bool:
        """Send one result to the archive; if that fails, plan another try.

        Returns
        -------
        bool
            Whether a result was due.
        """
        return self._step(
            state=states.SENDING,
            into=states.SENDING,
            do_step=self._send,
            on_failure=self._not_sent,
        )

    def _send(self, entry: Entry) -> None:
        """Send a study's result to the archive, and ask for its promise if the settings want it."""
        work = self.inbox.work(entry.key)
        # A study whose result is incomplete is computed again. Its folder was damaged, or came back
        # from an incomplete backup.
        if not result_is_whole(work):
            self.queue.settle(entry, states.QUEUED, time.time())
            return
        # After an earlier try, the archive may have some of the objects already.
        n_sent = send_back(self.settings.archive, work, ask_first=entry.sendings > 1)
        wants_promise = self.settings.archive.commitment
        # A try that only asks for the promise again sends nothing, and gets no line in the trail.
        if n_sent or not wants_promise:
            self.trail.sent(entry, work, "stored")
        if wants_promise:
            self._ask_promise(entry, work, n_sent)
        else:
            self._done(entry, n_sent, returned=entry.returned + n_sent)

    def _not_sent(self, entry: Entry, error: Exception) -> None:
        """Plan another try to send a result, and write the failure into the audit trail."""
        # An error that is the same as at the last attempt gets no further line in the audit trail.
        if wording(error)["reason"] != entry.reason:
            try:
                self.trail.sent(entry, self.inbox.work(entry.key), "not all stored")
            except (DamagedTrail, QueueError):
                raise
            except Exception as fault:  # for example an incomplete run folder; the node goes on
                tell("not written down", study=entry.key, **wording(fault))
        self._later(entry, self._patience(entry), error)

    def _done(self, entry: Entry, n_sent: int, returned: int) -> None:
        """Record that a study is done; ``returned`` counts all its objects that were ever sent.

        Regions without a probability do not make the study fail. They are stated as its problem.
        """
        now = time.time()
        missing_probability = without_probability(self.inbox.work(entry.key))
        problem = {}
        if missing_probability is not None:
            problem = self._problem_of(entry, missing_probability)
        if self.queue.settle(entry, states.DONE, now, returned=returned, **problem):
            tell("done", study=entry.key, sent=n_sent, seconds=round(now - entry.changed, 1))

    def _ask_promise(self, entry: Entry, work: Path, n_sent: int) -> None:
        """Ask the archive to promise that it keeps a study's objects.

        The method does not wait for the answer. If none comes in time, the archive is asked again.
        """
        request_uid = str(generate_uid(prefix=None))
        # The request's number is stored before the request is sent, because the archive may answer
        # before the call of `ask_promise` returns.
        self.queue.ask(entry, request_uid)
        try:
            ask_promise(self.settings.archive, work, request_uid)
        except (CadError, OSError) as error:
            self._later(entry, self._patience(entry), error, returned=entry.returned + n_sent)
            return
        seconds = max(self.settings.archive.commitment_seconds, self._patience(entry))
        now = time.time()
        # If another instance has come meanwhile, the study is computed again; nothing is logged.
        if self.queue.settle(
            entry,
            entry.state,
            now,
            due=now + seconds,
            attempts=entry.attempts,
            returned=entry.returned + n_sent,
            reason="stored; the archive has not promised to keep it yet",
            hint="it reports to receiver.aet at receiver.port: it has to know both",
        ):
            tell(
                "asked", study=entry.key, sent=n_sent, wait=round(seconds, 1), tries=entry.attempts
            )

    def promised(self, number: str, answered: dict[str, int]) -> None:
        """Handle an archive's answer to a storage commitment request (to keep a study's objects).

        The study is done when every object will be kept; otherwise the archive is asked again
        later.

        Parameters
        ----------
        number : str
            Transaction UID of the request.
        answered : dict of str to int
            By SOPInstanceUID: 0 where the archive promises to keep the object, else its failure
            reason.
        """
        entry = self.queue.promised(number)
        if entry is None:  # a second answer, or one about a study that changed after the request
            tell("promise of another time", objects=len(answered))
            return
        work = self.inbox.work(entry.key)
        problems = broken(work, answered)
        if not problems:
            try:
                self.trail.sent(entry, work, "committed")
            except DamagedTrail as fault:  # pynetdicom, which calls this method, hides the error
                self._fault(fault)
                raise
            self._done(entry, len(objects(work)), returned=entry.returned)
            return
        tell("not promised", study=entry.key, codes=sorted(set(problems)))
        error = CadError(
            "the archive does not promise to keep every object of the result",
            hint="the log has the codes, those of DICOM PS3.4 J.4.2; it is asked again",
        )
        self._later(entry, self._patience(entry), error)

    def _patience(self, entry: Entry) -> float:
        """Return the seconds until a step is tried again: twice as many each time, with a limit."""
        archive = self.settings.archive
        doublings = min(entry.attempts - 1, _MOST_DOUBLINGS)  # 2.0 ** attempts may overflow
        wait: float = min(archive.retry_seconds * 2.0**doublings, archive.retry_most)
        return wait

    def _failed(self, entry: Entry, error: Exception) -> None:
        """Record that a study has failed."""
        # When the node stops, it ends the processes that compute studies. A study whose process was
        # ended has not failed: the next start of the node computes the study.
        if self.stop.is_set():
            return
        problem = self._problem_of(entry, error)
        if self.queue.settle(entry, states.FAILED, time.time(), **problem):
            tell("failed", study=entry.key, code=wording(error)["code"], **problem)

    def _later(
        self, entry: Entry, wait: float, error: Exception, state: str = "", **values: int
    ) -> None:
        """Plan another try of a study's step in ``wait`` seconds, and record the error.

        ``state`` is the state in which the study waits, by default its present one. ``values`` are
        further columns of the queue.
        """
        problem = self._problem_of(entry, error)
        new_values = {"due": time.time() + wait, "attempts": entry.attempts, **problem, **values}
        if self.queue.settle(entry, state or entry.state, time.time(), **new_values):
            tell(
                "waits",
                study=entry.key,
                wait=round(wait, 1),
                tries=entry.attempts,
                code=wording(error)["code"],
                **problem,
            )

    def _problem_of(self, entry: Entry, error: Exception) -> dict[str, str]:
        """Return the text of an error without values, for queue and log.

        The full text is stored in the study's own folder, because it may name a patient.
        """
        with suppress(OSError):  # on a full disk the study still has to get its state
            text = f"{wording(error)['code']}\n{error}\n".encode(errors="replace")
            write_atomic(self.inbox.work(entry.key) / REASON_FILE, text, mode=0o600)
        words = wording(error)
        return {"reason": words["reason"], "hint": words["hint"]}

    def sweep(self) -> bool:
        """Remove studies that were done or failed longer ago than the setting `keep_days`.

        The thread calls this method often, but it looks for such studies only at intervals. Every
        call corrects the queue's times if the system clock was changed. The result is always False,
        which makes the thread pause.
        """
        self._set_clock()
        is_first = not self._swept
        if is_first or time.monotonic() - self._swept >= _SWEEP_SECONDS:
            self._swept = time.monotonic()
            self._take_back()
            before = time.time() - self.settings.studies.keep_days * _DAY
            for study in self.queue.outdated(before):
                try:
                    if self.inbox.sweep(study, before):
                        tell("swept", study=study)
                except OSError as error:  # the next studies are removed all the same
                    tell("not swept", study=study, **wording(error))
        return False

    def _take_back(self) -> None:
        """Do studies again whose end somebody else has written into the queue, and log them."""
        for study in self.queue.taken_back(time.time()):
            tell("not ended by this node", study=study)

    def _set_clock(self) -> None:
        """Correct the times in the queue at the start of the node, and after a change of the
        system's clock.

        A time is wrong if it lies in the future although it is past, or is farther ahead than the
        node waits.
        """
        # The monotonic clock is never set, so the difference changes only with the system's clock.
        ahead = time.time() - time.monotonic()
        if abs(ahead - self._clock) > _CLOCK_SECONDS:
            settings = self.settings
            longest = max(
                settings.studies.quiet_seconds,
                settings.archive.retry_most,
                settings.archive.commitment_seconds,
            )
            n_corrected = self.queue.put_right(time.time(), longest + _CLOCK_SECONDS)
            if n_corrected:
                tell("clock", studies=n_corrected)
        self._clock = ahead


def _tell_once(last_code: str, event: str, error: Exception) -> str:
    """Log an error after which a step is tried again, and return the error's code.

    ``last_code`` is the code of the last such error. If it is the same, nothing is logged.
    """
    words = wording(error)
    if words["code"] != last_code:
        tell(event, wait=_TROUBLE, **words)
    return words["code"]


def _tell_of_ended_thread(failure: threading.ExceptHookArgs) -> None:
    """Log that a thread of a library has ended by an error, without the error's text.

    Python's own hook would print the text, which may quote a header.
    """
    tell("thread ended", **wording(failure.exc_value or failure.exc_type()))


@door("out", "whole file", owner="the node's own folder")
def _sound_queue(path: Path) -> Queue:
    """Open the queue; if it is damaged, rename its file and make an empty queue.

    The inbox then fills the empty queue from the received files.
    """
    try:
        return Queue(path)
    except DamagedQueue:
        aside = f"{path.name}.damaged-{time.time_ns()}"
        # The two other files belong to the database: they would be applied to the new one.
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(path.with_name(aside + suffix))
        tell("queue made anew", damaged=aside)
        return Queue(path)
