"""Do tasks in a worker process, one at a time, with limits of time and memory.

A task that hangs, or that crashes its process, is reported and does not stop other tasks. The
processor time of a task has one limit, and its waiting time (for a disk, or for ever) another. Time
in which other programs use the processor counts for neither limit. Therefore no task fails because
the machine is busy.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

from cad.base.doors import door
from cad.base.errors import CadError, MachineError
from cad.base.processes import Child, limit_memory, share_loaded
from cad.base.processes.landlock import confine
from cad.run.execution.options import ExecutionOptions

Task = TypeVar("Task")
Result = TypeVar("Result")

# Time that a process has to load its modules. It is long, because a machine may be busy.
_START_SECONDS = 300.0
# Number of times that a process is started at most if something outside kills it.
_STARTS = 5
# If the clock is so much past a deadline when this process looks, this process was suspended.
_SUSPENDED_SECONDS = 1.0
# Share of the time that a process is assumed to be busy where the operating system does not report
# it. In the rest of the time it waits.
_UNKNOWN_SHARE = 0.9


@dataclass(frozen=True)
class Confined:
    """Hold the paths that a worker may open in addition to the program's own files.

    The restriction is enforced by Linux kernels with Landlock; other systems do not restrict.

    Parameters
    ----------
    read : tuple of Path
        Files and folders that the worker may read.
    write : tuple of Path
        Folders in which the worker may make, change and remove files.
    modules : tuple of str
        Modules that the worker loads before the limits hold.
    """

    read: tuple[Path, ...]
    write: tuple[Path, ...]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fault:
    """Hold the reason why a task gave no result: it exceeded a limit, or its process died.

    Parameters
    ----------
    reason, hint : str
        What happened, and advice to the user. Both are written into ``failures.csv``.
    lasting : bool
        Whether the same task would most likely fail again. A study is then not measured again while
        its input is unchanged.
    """

    reason: str
    hint: str
    lasting: bool = True


@dataclass(frozen=True)
class Done(Generic[Task, Result]):
    """Hold a task that is done, with its result or the reason why it has none.

    Parameters
    ----------
    task : object
        The task as the caller gave it.
    result : object or None
        Return value of the function; None where ``fault`` is set.
    fault : Fault or None
        Why there is no result.
    seconds : float
        Time by the clock.
    peak_mb : float
        Largest resident memory of the worker process during the task, in megabytes; 0 where
        unknown.
    """

    task: Task
    result: Result | None
    fault: Fault | None
    seconds: float
    peak_mb: float = 0.0


class Worker:
    """Start a child process that does one task at a time, and notice when it dies.

    Parameters
    ----------
    function : callable
        Function that the process calls with each task; importable by its name.
    options : ExecutionOptions
        Limits of time and memory of each task.
    confined : Confined, optional
        Paths that the process may open; when not given, all paths that this process may open.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        options: ExecutionOptions,
        confined: Confined | None = None,
    ) -> None:
        self.function = function
        self.confined = confined
        self.time_limit = options.time_limit
        self.options = options
        self.starts = 0
        self._start()

    def _start(self) -> None:
        """Start the child process, and send it the function and the limits."""
        self.starts += 1
        self.process = Child(__name__, self.function.__module__)
        self.connection = self.process.connection
        self.task: Any = None
        self.ready = self.busy = False
        self._set_deadline(max(_START_SECONDS, self.time_limit))
        with suppress(BrokenPipeError):  # the process has died already; take() will report it
            self.connection.send((self.function, self.options, self.confined))

    def idle(self) -> bool:
        """Tell whether the process waits for a task. A process that has ended does not wait."""
        return self.ready and not self.busy and not self.connection.poll()

    def give(self, task: Any) -> None:
        """Send a task to the process and return at once; :meth:`take` receives its result."""
        self.task = task
        self.busy = True
        self._set_deadline(self.time_limit)
        with suppress(BrokenPipeError):  # the process has died already; take() will report it
            self.connection.send(task)

    def _set_deadline(self, patience: float) -> None:
        self.since = time.monotonic()
        self.patience = patience
        self.busy_before = busy_seconds(self.process.pid)
        self.deadline = self.since + patience

    def late(self) -> bool:
        """Tell whether the task has waited longer than allowed, and set a new deadline.

        Call this method once :attr:`deadline` has passed. Time in which the worker's process was
        busy does not count as waiting. The new deadline is the present time plus the part of the
        allowed waiting time that is left. If this process itself was suspended past the deadline,
        the new deadline is the present time plus the whole allowed waiting time.
        """
        now = time.monotonic()
        if now - self.deadline > _SUSPENDED_SECONDS:  # the task was suspended with this process
            self._set_deadline(self.patience)
            return False
        busy = busy_seconds(self.process.pid)
        if busy is None or self.busy_before is None:
            busy = _UNKNOWN_SHARE * (now - self.since)
            self.busy_before = 0.0
        waited = now - self.since - (busy - self.busy_before)
        remaining = self.patience - waited
        self.deadline = now + remaining
        return remaining <= 0

    def take(self) -> Done[Any, Any] | None:
        """Receive one message of the process, waiting for it.

        Returns
        -------
        Done or None
            The task that is done. None when the process only reported that it is ready, or died
            before it had a task and was started again. When it died during a task, the ``fault`` of
            the result says so, and ``busy`` of this worker stays true.
        """
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            # Without a task the process ends only if something outside ends it. Then another one is
            # started. If it ended while it started, and was not killed, it would do so again.
            ended_from_outside = self.ready or code == -signal.SIGKILL
            if not self.busy and self.starts < _STARTS and ended_from_outside:
                self.close()
                self._start()
                return None
            return self._task_without_result(_fault_of_exit(code, self.time_limit))
        if not self.ready:
            self.ready = True
            return None
        self.busy = False
        result, fault, seconds, peak_megabytes = answer
        return Done(
            task=self.task, result=result, fault=fault, seconds=seconds, peak_mb=peak_megabytes
        )

    def stop(self) -> Done[Any, Any]:
        """Kill the process, because its task waited too long, and return the task with a fault."""
        self.close()
        reason = f"waited longer than the time limit of {self.patience:g} s"
        hint = "look at its files and their disk, or raise --time-limit and use --retry-failed"
        return self._task_without_result(Fault(reason, hint))

    def _task_without_result(self, fault: Fault) -> Done[Any, Any]:
        """Return the task with a fault. If the process had no task yet, raise an error."""
        if not self.busy:
            hint = "its own message is above; try the same command with --jobs 1"
            raise MachineError(f"a worker process could not be started: {fault.reason}", hint=hint)
        seconds = time.monotonic() - self.since
        return Done(task=self.task, result=None, fault=fault, seconds=seconds)

    def do(self, task: Any) -> Done[Any, Any]:
        """Send one task to the process, wait until it is done, and return it with its result."""
        while not self.idle():  # until the process reports that it is ready
            self._next_message()
        self.give(task)
        outcome = self._next_message()
        if outcome is None:
            raise CadError("a worker process answered out of turn")
        return outcome

    def _next_message(self) -> Done[Any, Any] | None:
        """Wait for a message of the process, and return what :meth:`take` makes of it.

        If the process waits for longer than allowed, it is stopped.
        """
        while not self.connection.poll(max(self.deadline - time.monotonic(), 0.0)):
            if self.late():
                return self.stop()
        return self.take()

    def close(self) -> None:
        """Kill the process, even in the middle of a task."""
        self.process.end()


@door("own", "process")
def busy_seconds(pid: int) -> float | None:
    """Return for how long a process has run, or was ready to run and waited for a processor.

    In the rest of the time the process waited for something else, such as a disk. Linux states the
    running time of all threads of a process. It states the time of waiting for a processor only for
    the first thread.

    Parameters
    ----------
    pid : int
        The process.

    Returns
    -------
    float or None
        Seconds; None on other systems.
    """
    try:
        # Nanoseconds of the first thread.
        running, queued = Path(f"/proc/{pid}/schedstat").read_text().split()[:2]
        # The name of the program, in brackets, may hold spaces. Of the fields behind it, numbers 11
        # and 12 (from 0) are the clock ticks of all threads in the program and in the system.
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        ticks = fields.split()[11:13]
    except (OSError, ValueError):
        return None
    running_of_all_threads = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    # The time of all threads is rounded to ticks. For a single thread the other is more exact.
    return max(int(running) / 1e9, running_of_all_threads) + int(queued) / 1e9


def _fault_of_exit(code: int, time_limit: float) -> Fault:
    """Return the fault that an exit code of a worker's process stands for.

    A negative code is the number of the signal that ended the process.
    """
    if code == -signal.SIGPROF:  # the timer of :func:`serve`
        hint = "look at the study, or raise --time-limit and use --retry-failed"
        return Fault(f"took longer than the time limit of {time_limit:g} s of processor time", hint)
    if code == -signal.SIGKILL:
        hint = "most often the machine had no memory left: use fewer jobs, then --retry-failed"
        return Fault("its process was ended by SIGKILL", hint)
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    hint = "a fault in a library: please report it with the study"
    return Fault(f"its process ended by {name}", hint)


def serve(connection: Connection[Any, Any]) -> None:
    """Run as a worker process: do tasks of the parent process until the pipe closes.

    Parameters
    ----------
    connection : Connection
        The pipe to the parent process.
    """
    # The timer that limits a task's processor time sends SIGPROF. This signal shall end the
    # process.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    function, options, confined = connection.recv()
    limit_memory(options.memory_limit)
    if confined is not None:
        # The modules are loaded before the process is restricted. A module that is loaded later
        # could not store the code that it compiles.
        for name in confined.modules:
            import_module(name)
        if "numba" in sys.modules:
            kernel_folders = _kernel_folders()
            _keep_new_kernels_in_memory()
        else:
            kernel_folders = []

        # From now on children of this process are copies of it, with its loaded modules. After the
        # restriction a child could not load a module that stores compiled code beside itself.
        def share() -> None:
            share_loaded(threads=2)

        confine((*confined.read, *kernel_folders), confined.write, share)
    connection.send("ready")
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, options.time_limit)
        answer = attempt(function, task, options.memory_limit)
        signal.setitimer(signal.ITIMER_PROF, 0.0)  # 0 stops the timer
        connection.send(answer)


def _kernel_folders() -> list[Path]:
    """Return the folders in which numba stores compiled code when it is not beside the modules."""
    chosen_folder: str = import_module("numba").config.CACHE_DIR
    standard = import_module("numba.misc.appdirs").AppDirs(appname="numba", appauthor=False)
    folder_of_user = Path(standard.user_cache_dir)
    return [Path(chosen_folder), folder_of_user] if chosen_folder else [folder_of_user]


def _keep_new_kernels_in_memory() -> None:
    """Let numba go on where it may not write compiled code to its cache.

    A process that may change compiled code would decide which code other processes execute. So a
    restricted worker may read the cache and not write it. numba works without a cache, but raises
    an error for a cache that it may not write. This error is ignored here.
    """
    cache_of_functions: Any = import_module("numba.core.caching").FunctionCache
    save = cache_of_functions.save_overload

    def save_if_allowed(cache: Any, signature: Any, compiled: Any) -> None:
        with suppress(PermissionError):
            save(cache, signature, compiled)

    cache_of_functions.save_overload = save_if_allowed


@door("own", "process")
def attempt(
    function: Callable[[Any], Any], task: Any, memory_limit: float
) -> tuple[Any, Fault | None, float, float]:
    """Call a function with a task in this process, and measure time and memory.

    An exception of the function is returned as a fault and not raised.

    Parameters
    ----------
    function : callable
        Takes the task.
    task : object
        Argument of the function.
    memory_limit : float
        Gigabytes; only named in the message when memory runs out.

    Returns
    -------
    result : object
        Return value of the function; None where it raised an exception.
    fault : Fault or None
        The exception in words; None where there was none.
    seconds, megabytes : float
        Time by the clock, and largest resident memory of this process.
    """
    # Writing 5 makes Linux forget the largest memory that this process has used so far. On other
    # systems the largest memory since the start of the process is returned.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    result = None
    fault = None
    try:
        result = function(task)
    except MemoryError:
        hint = "look at the size of its images, or raise --memory-limit and use --retry-failed"
        fault = Fault(f"asked for more memory than the limit of {memory_limit:g} GB", hint)
    except Exception as error:
        fault = Fault(f"unexpected {type(error).__name__}: {error}", "please report this")
    return result, fault, time.perf_counter() - start, peak_mb()


@door("own", "process")
def peak_mb() -> float:
    """Return the largest resident memory that this process has had, in megabytes.

    On Linux this is ``VmHWM``, because ``ru_maxrss`` includes the memory of the parent process.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024  # it is stated in kilobytes
    except OSError:  # not Linux
        pass
    import resource  # not part of Python on Windows, where no study is measured

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS states bytes, and other systems kilobytes.
    units_in_megabyte = 2**20 if sys.platform == "darwin" else 1024
    return peak / units_in_megabyte
