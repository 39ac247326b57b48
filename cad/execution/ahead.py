"""Start workers before there is work: they load what measuring needs while this process loads.

The order says only by name what they will do, so that nothing heavy is imported to give it. Who
does that work later takes them; those that nobody took end with the order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cad.execution.options import ExecutionOptions
from cad.execution.worker import Worker

# More would stand idle where a cohort has few studies; the others are started with the work.
_MOST = 2
_waiting: ContextVar[list[Worker]] = ContextVar("waiting")


@contextmanager
def workers_ahead(function: str, options: ExecutionOptions) -> Iterator[None]:
    """Start workers that load a function while the block comes to call it.

    Parameters
    ----------
    function : str
        What they will do, as ``module:name``.
    options : ExecutionOptions
        Those of the work; on a cluster, or in this process, nothing is started.
    """
    here = options.jobs if options.scheduler is None else 0
    before = _waiting.set([])
    try:
        while len(_waiting.get()) < min(here, _MOST):
            _waiting.get().append(Worker(function, options))
        yield
    finally:
        for worker in _waiting.get():
            worker.close()
        _waiting.reset(before)


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
    name, waiting = getattr(function, "__qualname__", ""), _waiting.get([])
    wanted = f"{function.__module__}:{name}", options
    own = [worker for worker in waiting if (worker.function, worker.options) == wanted]
    waiting[:] = [worker for worker in waiting if worker not in own]
    return own
