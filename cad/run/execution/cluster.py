"""Run tasks on a Dask cluster.

Each thread of a Dask worker starts a worker process of this program. This process does the thread's
tasks, one after the other, under limits of time and memory.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from cad.base.errors import CadError, install
from cad.base.version import __version__
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.worker import Done, Fault, Worker

CONNECT_SECONDS = 10.0
_HINT = "look at the logs of the Dask workers; then --retry-failed"
NO_MORE: Any = object()
"""The value that stands for the end of the tasks, since any other value may be a task."""
# A few tasks more than threads wait at the scheduler, so that no thread waits for its next task.
_TASKS_OF_THREAD = 4
_FEWEST_TASKS = 64


@contextmanager
def client_of(address: str) -> Iterator[Any]:
    """Connect to a Dask scheduler.

    Parameters
    ----------
    address : str
        ``HOST:PORT``.

    Yields
    ------
    Client
        The connected client, which is closed at the end of the ``with`` block.

    Raises
    ------
    CadError
        When the package ``distributed`` (extra ``cluster``) is not installed, or no scheduler
        answers at the address.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise CadError(
            "--scheduler needs the extra 'cluster', which is not installed", hint=install("cluster")
        ) from error
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=True)
    except (OSError, ValueError, TimeoutError) as error:
        raise CadError(
            f"no Dask scheduler answers at {address}: {error}",
            hint="start one with `dask scheduler`, see docs/cluster.md",
        ) from error
    with client:
        yield client


# Holds, for each thread of a Dask worker, the worker process that waits for its next task.
_of_thread = threading.local()


def _on_dask_worker(
    function: Callable[[Any], Any], task: Any, options: ExecutionOptions, version: str
) -> Done[Any, Any]:
    """Do one task in the process that belongs to this thread of a Dask worker; return its outcome.

    The process stays for the next task. If the Dask worker has another version of the program, the
    outcome is a fault.
    """
    if version != __version__:
        fault = Fault(
            reason=f"a cluster worker has cad {__version__}, this run has {version}",
            hint="install the same version on every node",
            # The version of the program caused the fault, and not the study. So the next run
            # measures the study again, although its input is unchanged.
            lasting=False,
        )
        return Done(task=None, result=None, fault=fault, seconds=0.0)
    worker = getattr(_of_thread, "worker", None)
    # A worker that is still busy died during its last task. One of another run may have another
    # function or other limits.
    does_this_work = worker is not None and (worker.function, worker.options) == (function, options)
    if worker is None or worker.busy or not does_this_work:
        if worker is not None:
            worker.close()
        worker = _of_thread.worker = Worker(function, options)
    # The task is not sent back, because the caller has it.
    return replace(worker.do(task), task=None)


def on_cluster(
    function: Callable[[Any], Any], tasks: Iterable[Any], options: ExecutionOptions
) -> Iterator[Done[Any, Any]]:
    """Do tasks on a Dask cluster, and yield each as soon as it is done, in the order of completion.

    Parameters
    ----------
    function : callable
        Takes a task and returns its result.
    tasks : iterable
        Tasks, which must be picklable.
    options : ExecutionOptions
        ``scheduler`` is the address of the cluster. The limits of time and memory hold for each
        task on the cluster.

    Yields
    ------
    Done
        The task with its result, or with the reason why it has none.

    Raises
    ------
    CadError
        When the package ``distributed`` is not installed, or no scheduler answers.
    """
    with client_of(str(options.scheduler)) as client:
        from distributed import KilledWorker, as_completed

        def start(task: Any, alone: bool = False) -> Any:
            """Submit a task, note whether it runs alone on the cluster, and return its future."""
            # With ``pure`` Dask would return a stored result for a task that equals an earlier one,
            # without regard to the limits.
            future = client.submit(
                _on_dask_worker, function, task, options, __version__, pure=False
            )
            task_of[future.key] = (task, alone)
            return future

        task_of: dict[str, tuple[Any, bool]] = {}
        waiting = iter(tasks)
        # At most this number of tasks is at the scheduler at a time. This limits the memory that
        # tasks take in this process.
        n_threads = sum(client.nthreads().values())
        window = max(_FEWEST_TASKS, _TASKS_OF_THREAD * n_threads)
        running = as_completed([start(task) for task in islice(waiting, window)])
        suspects: list[Any] = []
        for batch in running.batches():
            for future, result in zip(batch, _finished_results(client, batch), strict=True):
                task, alone = task_of.pop(future.key)
                if isinstance(result, KilledWorker) and not alone:
                    # Several Dask workers died while they did this task. The cause may be another
                    # task that ran on them at the same time. So this task is tried again later,
                    # without others.
                    suspects.append(task)
                elif isinstance(result, Exception):
                    # A task that kills a worker when it is alone would do so again. Any other
                    # exception comes from the cluster, and the next run tries the task again.
                    lasting = isinstance(result, KilledWorker)
                    fault = Fault(f"{type(result).__name__}: {result}", _HINT, lasting=lasting)
                    yield Done(task=task, result=None, fault=fault, seconds=0.0)
                else:
                    yield replace(result, task=task)
                # A result takes up memory on its Dask worker until it is released.
                future.release()
                following = next(waiting, NO_MORE)
                if following is not NO_MORE:
                    running.add(start(following))
                # A suspect is a task during which Dask workers died. No other task is left now, so
                # one suspect runs alone on the cluster. If workers die again, this task is the
                # cause.
                elif not task_of and suspects:
                    running.add(start(suspects.pop(), alone=True))


def _finished_results(client: Any, futures: list[Any]) -> list[Any]:
    """Return the results of finished tasks, with an exception in place of each lost result."""
    try:
        return list(client.gather(futures))
    except Exception:  # fetched one by one below, the results show which of them is lost
        return [_result_or_exception(future) for future in futures]


def _result_or_exception(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:
        return error
