"""Start worker processes before there is work, so that they and this process load in parallel.

The workers' function is given by its name, so that this process need not import it. Whoever does
the work later takes the workers (:func:`take_waiting`); those that nobody takes are ended.
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
    """Start worker processes at the start of a ``with`` block, for work that the block does later.

    The workers import their function meanwhile. At the end of the block, workers that
    :func:`take_waiting` did not hand out are ended.

    Parameters
    ----------
    function : str
        Function that the workers will call, as ``module:name``.
    options : ExecutionOptions
        How the job is run. Nothing is started for work on a cluster or in this process.
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
    """Hand out, once, the worker processes that :func:`workers_ahead` started for a function.

    Parameters
    ----------
    function : callable
        Function that the workers will call.
    options : ExecutionOptions
        How the job is run; workers that were started with other options are not returned.

    Returns
    -------
    list of Worker
        May be empty. The caller must end these workers with :meth:`Worker.close`.
    """
    name, waiting = getattr(function, "__qualname__", ""), _waiting.get([])
    wanted = f"{function.__module__}:{name}", options
    own = [worker for worker in waiting if (worker.function, worker.options) == wanted]
    waiting[:] = [worker for worker in waiting if worker not in own]
    return own
