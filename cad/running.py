"""How a job is run: processes here or on a cluster, limits of time and memory, no lost tasks.

Nothing here changes a result. Every task runs in a process of its own kind (:class:`_Worker`) that
does one task at a time, so that a task that hangs or takes its process down is known by name and
costs no other task. On a cluster each Dask thread keeps one such process.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess  # nosec B404
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from cad import __version__
from cad.errors import CadError

Task = TypeVar("Task")
Result = TypeVar("Result")

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
)
_START_SECONDS = 300.0
_CONNECT_SECONDS = 10.0
_NO_MORE: Any = object()
_SERVE = "from cad.running import _serve; _serve()"


@dataclass(frozen=True)
class How:
    """The command-line options that say how a job is run.

    Parameters
    ----------
    jobs : int
        Processes on this machine.
    scheduler : str or None
        Address of a Dask scheduler, used instead of processes here.
    resume : bool
        Keep what is whole and current.
    retry_failed : bool
        Try studies again that failed with unchanged input.
    time_limit : float
        Seconds allowed for one study.
    memory_limit : float
        Gigabytes that one study may ask for.
    progress : bool
        Say on standard error how far the job is.
    """

    jobs: int = 1
    scheduler: str | None = None
    resume: bool = True
    retry_failed: bool = False
    time_limit: float = 600.0
    memory_limit: float = 8.0
    progress: bool = False


@dataclass(frozen=True)
class Fault:
    """Why a task gave no result: it was stopped, or its process ended under it.

    ``lasting`` says that the same task would most likely end so again.
    """

    reason: str
    hint: str
    lasting: bool = True


@dataclass(frozen=True)
class Done(Generic[Task, Result]):
    """What became of one task.

    Parameters
    ----------
    task : object
        As given.
    result : object or None
        What the function returned.
    fault : Fault or None
        Why there is no result.
    seconds : float
        Wall time.
    peak_mb : float
        Largest resident memory of its process during the task, megabytes; 0 where unknown.
    """

    task: Task
    result: Result | None
    fault: Fault | None
    seconds: float
    peak_mb: float = 0.0


def each(
    function: Callable[[Task], Result], tasks: Iterable[Task], how: How
) -> Iterator[Done[Task, Result]]:
    """Apply a function to every task; results come as they are ready.

    Parameters
    ----------
    function : callable
        Importable by name in another process.
    tasks : iterable
        Taken as workers become free, so that an iterator of any length costs no memory.
    how : How
        Where, and with which limits.

    Yields
    ------
    Done
        One per task, in the order in which they finish.

    Raises
    ------
    CadError
        When no worker can be started, or no scheduler answers.
    """
    if how.scheduler is None:
        return _here(function, tasks, how)
    return _on_cluster(function, tasks, how)


@contextmanager
def workplace(how: How) -> Iterator[None]:
    """One numerical thread in this process, and joblib's loops on the cluster if there is one.

    One thread everywhere is what makes N jobs use N cores, and the last bits of a sum the same
    for any N.
    """
    from joblib import parallel_config
    from threadpoolctl import threadpool_limits

    for name in THREAD_VARIABLES:  # for libraries that are loaded later, and children
        os.environ.setdefault(name, "1")
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        if how.scheduler is not None:
            stack.enter_context(_client(how.scheduler))
            stack.enter_context(parallel_config("dask", wait_for_workers_timeout=_CONNECT_SECONDS))
        else:
            follow = {"initializer": _end_with, "initargs": (os.getpid(),)}
            stack.enter_context(parallel_config("loky", **follow))
        yield


class _Worker:
    """A process that does one task at a time, and whose end is seen."""

    def __init__(self, function: Callable[[Any], Any], how: How) -> None:
        self.connection, theirs = Pipe()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # Fixed arguments, and no user's string among them.
        self.process = subprocess.Popen(  # nosec B603
            [sys.executable, "-P", "-c", _SERVE, str(theirs.fileno())],
            stdin=subprocess.PIPE,  # never written: the process ends itself when it closes
            stdout=subprocess.DEVNULL,  # what libraries print must not mix with our results
            pass_fds=(theirs.fileno(),),
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONPATH": path},
        )
        theirs.close()
        self.function, self.time_limit = function, how.time_limit
        self.task: Any = None
        self.ready = self.busy = False
        self.since, self.deadline = time.monotonic(), time.monotonic() + _START_SECONDS
        self.connection.send((function, how.memory_limit))

    def give(self, task: Any) -> None:
        """Start a task."""
        self.task, self.busy = task, True
        self.since = time.monotonic()
        self.deadline = self.since + self.time_limit
        with suppress(BrokenPipeError):  # it has died since; take() will say so
            self.connection.send(task)

    def take(self) -> Done[Any, Any] | None:
        """Receive what there is; None when it only says that the process is ready.

        After a fault the process is gone and ``busy`` stays true.
        """
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.wait()
            return self._lost(_death(self.process.returncode))
        if not self.ready:
            self.ready = True
            return None
        self.busy = False
        result, fault, seconds, peak = answer
        return Done(self.task, result, fault, seconds, peak)

    def stop(self) -> Done[Any, Any]:
        """End a task that took too long, and its process."""
        self.close()
        return self._lost(
            Fault(
                f"took longer than the time limit of {self.time_limit:g} s",
                "look at the study, or raise --time-limit and use --retry-failed",
            )
        )

    def _lost(self, fault: Fault) -> Done[Any, Any]:
        if not self.ready:
            raise CadError(
                f"a worker process could not be started: {fault.reason}",
                hint="its own message is above; try the same command with --jobs 1",
            )
        return Done(self.task, None, fault, time.monotonic() - self.since)

    def do(self, task: Any) -> Done[Any, Any]:
        """One task from beginning to end, waiting for it."""
        while not self.ready:
            if not self.connection.poll(_START_SECONDS):
                return self.stop()
            self.take()
        self.give(task)
        if not self.connection.poll(self.time_limit):
            return self.stop()
        done = self.take()
        if done is None:
            raise CadError("a worker process answered out of turn")
        return done

    def close(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


def _here(
    function: Callable[[Any], Any], tasks: Iterable[Any], how: How
) -> Iterator[Done[Any, Any]]:
    waiting = iter(tasks)
    upcoming = next(waiting, _NO_MORE)
    workers: list[_Worker] = []
    try:
        while True:
            while upcoming is not _NO_MORE and len(workers) < how.jobs:
                workers.append(_Worker(function, how))
            for worker in list(workers):
                if upcoming is _NO_MORE and not worker.busy:
                    worker.close()
                    workers.remove(worker)
                elif worker.ready and not worker.busy:
                    worker.give(upcoming)
                    upcoming = next(waiting, _NO_MORE)
            if not workers:
                return
            patience = min(w.deadline for w in workers) - time.monotonic()
            answered = wait([w.connection for w in workers], max(patience, 0.0))
            now = time.monotonic()
            for worker in list(workers):
                if worker.connection in answered:
                    done = worker.take()
                elif worker.deadline <= now:
                    done = worker.stop()
                else:
                    continue
                if done is not None and worker.busy:  # it is gone; the loop starts another
                    worker.close()
                    workers.remove(worker)
                if done is not None:
                    yield done
    finally:
        for worker in workers:
            worker.close()


def _death(code: int) -> Fault:
    """An exit code in words."""
    if code != -signal.SIGKILL:
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Fault(
            f"its process ended by {name}", "a fault in a library: please report it with the study"
        )
    return Fault(
        "its process was ended by SIGKILL",
        "most often the machine had no memory left: use fewer jobs, then --retry-failed",
    )


def _serve() -> None:
    """What a worker process does: tasks from the pipe until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    function, memory_limit = connection.recv()
    ceiling = int(memory_limit * 1e9)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard != resource.RLIM_INFINITY:
        ceiling = min(ceiling, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, hard))
    connection.send("ready")
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(_attempt(function, task, memory_limit))


def _attempt(
    function: Callable[[Any], Any], task: Any, memory_limit: float
) -> tuple[Any, Fault | None, float, float]:
    _forget_peak()
    start = time.perf_counter()
    result, fault = None, None
    try:
        result = function(task)
    except MemoryError:
        fault = out_of_memory(memory_limit)
    except Exception as error:
        fault = Fault(f"unexpected {type(error).__name__}: {error}", "please report this")
    return result, fault, time.perf_counter() - start, peak_mb()


def out_of_memory(limit: float) -> Fault:
    """What a study is told that asked for too much memory."""
    return Fault(
        f"asked for more memory than the limit of {limit:g} GB",
        "look at the size of its images, or raise --memory-limit and use --retry-failed",
    )


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the pipe closes; nobody writes
    os._exit(1)  # the driver is gone, even by kill -9: write nothing more into its folder


def _end_with(driver: int) -> None:
    """End this process, a child of the driver, when the driver has ended, even by kill -9.

    A worker of joblib else waits for work for ever, with hundreds of megabytes.
    """

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _forget_peak() -> None:
    """Let the kernel count the peak of resident memory anew (Linux; elsewhere it only grows)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_mb() -> float:
    """Largest resident memory of this process, megabytes.

    As Linux counts it since the program was started: ``ru_maxrss`` would include the memory of
    the process that started it.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """A connection to a Dask scheduler, or a reason why there is none."""
    try:
        from distributed import Client
    except ImportError as error:
        raise CadError(
            "--scheduler needs the extra 'cluster', which is not installed",
            hint="uv sync --extra cluster, or pip install 'cad[cluster]'",
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=True)
    except (OSError, ValueError, TimeoutError) as error:
        raise CadError(
            f"no Dask scheduler answers at {address}: {error}",
            hint="start one with `dask scheduler`, see docs/cluster.md",
        ) from error
    with client:
        yield client


_warm = threading.local()


def _on_dask_worker(
    function: Callable[[Any], Any], task: Any, how: How, version: str
) -> Done[Any, Any]:
    """One task in this Dask thread's own process, which stays warm for the next."""
    if version != __version__:
        fault = Fault(
            f"a cluster worker has cad {__version__}, this run has {version}",
            "install the same version on every node",
            lasting=False,
        )
        return Done(None, None, fault, 0.0)
    worker = getattr(_warm, "worker", None)
    if worker is None or worker.busy or worker.function is not function or _warm.how != how:
        if worker is not None:
            worker.close()
        worker = _warm.worker = _Worker(function, how)
        _warm.how = how
    done = worker.do(task)
    return Done(None, done.result, done.fault, done.seconds, done.peak_mb)


def _on_cluster(
    function: Callable[[Any], Any], tasks: Iterable[Any], how: How
) -> Iterator[Done[Any, Any]]:
    with _client(str(how.scheduler)) as client:
        from distributed import KilledWorker, as_completed

        def start(task: Any, alone: bool = False) -> Any:
            future = client.submit(_on_dask_worker, function, task, how, __version__, pure=False)
            of[future.key] = (task, alone)
            return future

        of: dict[str, tuple[Any, bool]] = {}
        waiting = iter(tasks)
        window = max(64, 4 * sum(client.nthreads().values()))  # bounds the driver's memory
        running = as_completed([start(task) for task in islice(waiting, window)])
        suspects: list[Any] = []
        for batch in running.batches():
            for future, result in zip(batch, _fetch(client, batch), strict=True):
                task, alone = of.pop(future.key)
                if isinstance(result, KilledWorker) and not alone:
                    suspects.append(task)  # several workers died under it, or its neighbour
                elif isinstance(result, Exception):
                    lasting = isinstance(result, KilledWorker)
                    fault = Fault(f"{type(result).__name__}: {result}", _LOOK, lasting)
                    yield Done(task, None, fault, 0.0)
                else:
                    yield replace(result, task=task)
                future.release()
                following = next(waiting, _NO_MORE)
                if following is not _NO_MORE:
                    running.add(start(following))
                elif not of and suspects:
                    running.add(start(suspects.pop(), alone=True))


def _fetch(client: Any, futures: list[Any]) -> list[Any]:
    """Results of tasks that are done, an exception in place of each that is lost."""
    try:
        return list(client.gather(futures))
    except Exception:  # one round trip each, to know whose it is
        return [_result(future) for future in futures]


def _result(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:
        return error


_LOOK = "look at the logs of the Dask workers; then --retry-failed"
