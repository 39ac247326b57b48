"""Start workers before there is work: they load what measuring needs while this process loads.

The order says only by name what they will do, so that nothing heavy is imported to give it. Who
does that work later takes them; those that nobody took end with the order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cad.execution.options import ExecutionOptions
from cad.execution.worker import ByName, Worker

# More would stand idle where a cohort has few studies; the others are started with the work.
_MOST = 2
_waiting: ContextVar[tuple[Worker, ...]] = ContextVar("waiting", default=())


@contextmanager
def workers_ahead(function: ByName, options: ExecutionOptions) -> Iterator[None]:
    """Start workers that load a function while the block comes to call it.

    Parameters
    ----------
    function : ByName
        What they will do.
    options : ExecutionOptions
        Those of the work; on a cluster, or in this process, nothing is started.
    """
    here = options.jobs if options.scheduler is None else 0
    workers: list[Worker] = []
    try:
        while len(workers) < min(here, _MOST):
            workers.append(Worker(function, options))
        before = _waiting.set(tuple(workers))
        try:
            yield
        finally:
            left = _waiting.get()
            _waiting.reset(before)
            workers = [worker for worker in workers if worker in left]
    finally:
        for worker in workers:
            worker.close()


def take_waiting(function: Callable[[Any], Any], options: ExecutionOptions) -> list[Worker]:
    """Return the worker processes that :func:`workers_ahead` started for this work.

    Parameters
    ----------
    function : callable
        What they are to do.
    options : ExecutionOptions
        How the job is run; workers of other options stay waiting.

    Returns
    -------
    list of Worker
        From now on the caller has to end them.
    """
    own = [w for w in _waiting.get() if w.function == ByName.of(function) and w.options == options]
    _waiting.set(tuple(worker for worker in _waiting.get() if worker not in own))
    return own
