"""Apply a function to many tasks, in processes on this machine or on a Dask cluster."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import Any, TypeVar, cast

from cad.base.errors import CadError, MachineError
from cad.base.processes import use_one_thread
from cad.run.execution.cluster import CONNECT_SECONDS, NO_MORE, client_of, on_cluster
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.worker import Confined, Done, Result, Task, Worker, attempt

Returned = TypeVar("Returned")


def each(
    function: Callable[[Task], Result], tasks: Iterable[Task], options: ExecutionOptions
) -> Iterator[Done[Task, Result]]:
    """Apply a function to every task in parallel, and yield each result as soon as it is ready.

    Parameters
    ----------
    function : callable
        Takes one task. It must be importable by name in another process.
    tasks : iterable
        Tasks. A task is read when a worker becomes free, so that even a very long iterator takes
        little memory.
    options : ExecutionOptions
        Number of processes or address of a cluster, and the limits of each task.

    Yields
    ------
    Done
        One object per task, in the order in which tasks finish. It holds the result, or the reason
        why there is none.

    Raises
    ------
    CadError
        When no worker can be started, or no scheduler answers.
    """
    if options.jobs == 0:
        # With 0 jobs, tasks are done in the calling process, for debugging and tests. A crash in a
        # task then ends the whole run.
        return (Done(task, *attempt(function, task, options.memory_limit)) for task in tasks)
    if options.scheduler is None:
        return _on_this_machine(function, tasks, options)
    return on_cluster(function, tasks, options)


class Caller:
    """Call functions one after the other in a separate process, with limits of time and memory.

    ``caller(function, *arguments)`` returns what the function returns.

    A call that crashes or exceeds a limit ends the separate process and raises CadError; the next
    call starts a new process. Use the object as a context manager: the process ends with the
    ``with`` block.

    Parameters
    ----------
    options : ExecutionOptions
        Limits of each call. With ``jobs`` 0, functions are called in this process, without limits.
    kind : type
        Class of the CadError that a call without an answer raises.
    confined : Confined, optional
        Paths that the process may open; when not given, all paths that this process may open.
    """

    def __init__(
        self,
        options: ExecutionOptions,
        kind: type[CadError] = CadError,
        confined: Confined | None = None,
    ) -> None:
        self.options = options
        self.kind = kind
        self.confined = confined
        self._worker: Worker | None = None

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __call__(self, function: Callable[..., Returned], *arguments: Any) -> Returned:
        """Return what the function returns, or raise the CadError or OSError that it raises.

        Raises
        ------
        CadError
            When the function raised it. An error of the class ``kind`` is raised when the call
            takes too much time or memory, or when the process ends during the call.
        """
        if self.options.jobs == 0:
            return function(*arguments)
        self._worker = self._worker or Worker(_result_or_error, self.options, self.confined)
        outcome = self._worker.do((function, arguments))
        if self._worker.busy:  # the process has ended, and the next call starts another
            self._close()
        if outcome.fault is not None:
            raise self.kind(outcome.fault.reason, hint=outcome.fault.hint)
        if isinstance(outcome.result, CadError | OSError):
            raise outcome.result
        return cast(Returned, outcome.result)

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def _result_or_error(task: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    # The worker would turn a raised error into text. A returned error keeps its class and fields.
    function, arguments = task
    try:
        return function(*arguments)
    except (CadError, OSError) as error:
        return error


@contextmanager
def workplace(options: ExecutionOptions) -> Iterator[None]:
    """Set up this process for a job, until the ``with`` block ends.

    Numerical libraries get one thread each. So N jobs use N cores, and the rounding of sums does
    not depend on N. Parallel loops of joblib run on the Dask cluster if there is one, else in
    processes that end with this process.

    Parameters
    ----------
    options : ExecutionOptions
        ``scheduler`` is the address of the cluster, or None.

    Raises
    ------
    MachineError
        When a process of a joblib loop is killed.
    """
    from joblib import parallel_config
    from joblib.externals.loky import BrokenProcessPool
    from joblib.externals.loky.backend.context import set_start_method
    from threadpoolctl import threadpool_limits

    use_one_thread()
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        if options.scheduler is not None:
            stack.enter_context(client_of(options.scheduler))
            stack.enter_context(parallel_config("dask", wait_for_workers_timeout=CONNECT_SECONDS))
        else:
            end_with_this_process = {
                "initializer": _end_with,
                "initargs": (os.getpid(), options.forked),
            }
            stack.enter_context(parallel_config("loky", **end_with_this_process))
            # At the end of the block, joblib gets its own way of starting processes back.
            stack.callback(set_start_method, None, force=True)
            set_start_method("forkserver" if options.forked else None, force=True)
        try:
            yield
        except BrokenProcessPool as error:
            hint = "most often the machine had no memory left: use fewer jobs"
            raise MachineError("a process of a parallel loop has ended", hint=hint) from error


def _on_this_machine(
    function: Callable[[Any], Any], tasks: Iterable[Any], options: ExecutionOptions
) -> Iterator[Done[Any, Any]]:
    """Do tasks in worker processes of this machine, and yield each as soon as it is done."""
    waiting = iter(tasks)
    next_task = next(waiting, NO_MORE)
    workers: list[Worker] = []
    try:
        while True:
            while next_task is not NO_MORE and len(workers) < options.jobs:
                workers.append(Worker(function, options))
            for worker in list(workers):
                # No task is left for this worker. It ends now, so that its memory is free while
                # other workers measure the last studies.
                if next_task is NO_MORE and not worker.busy:
                    worker.close()
                    workers.remove(worker)
                elif worker.idle():
                    worker.give(next_task)
                    next_task = next(waiting, NO_MORE)
            if not workers:  # all tasks are done
                return
            # The loop waits here until a worker sends a message or the first deadline of a worker
            # passes.
            first_deadline = min(worker.deadline for worker in workers)
            patience = max(first_deadline - time.monotonic(), 0.0)
            answered = wait([worker.connection for worker in workers], patience)
            now = time.monotonic()
            for worker in list(workers):
                if worker.connection in answered:
                    outcome = worker.take()
                # The deadline is in clock time, in which other programs may have slowed the task
                # down. late() leaves out the time in which the task used a processor or queued for
                # one. It tells whether the task has waited too long for anything else, such as a
                # disk.
                elif worker.deadline <= now and worker.late():
                    outcome = worker.stop()
                else:
                    continue
                # The process of this worker has ended, so the worker is removed. The loop starts
                # another one.
                if outcome is not None and worker.busy:
                    worker.close()
                    workers.remove(worker)
                if outcome is not None:
                    yield outcome
    finally:
        for worker in workers:
            worker.close()


def _end_with(driver: int, forked: bool) -> None:
    """End this process when its driver, the process that started it, has ended.

    Without this, a worker of joblib would wait for work for ever and keep hundreds of megabytes.
    """

    def watch() -> None:
        # When the driver ends, this process gets another parent, and os.getppid() changes. But the
        # parent of a process that Python's fork server has forked is this server, which lives as
        # long as its children. Such a process watches the driver through multiprocessing.
        parent = parent_process()

        def driver_is_alive() -> bool:
            if forked and parent:
                return parent.is_alive()
            return os.getppid() == driver

        while driver_is_alive():
            time.sleep(1.0)
        # os._exit ends the process at once. An ordinary exit would first wait for the main thread,
        # and the main thread may wait for a lock for ever.
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
