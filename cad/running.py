"""How a job is run: processes, resuming, time limits. Nothing here changes a result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from joblib import Parallel, delayed

T = TypeVar("T")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
)


@dataclass(frozen=True)
class How:
    """The command-line options that say how a job is run.

    Parameters
    ----------
    jobs : int
        Processes on this machine.
    scheduler : str or None
        Address of a Dask scheduler.
    resume : bool
        Keep what is whole and current.
    retry_failed : bool
        Try studies again that failed with unchanged input.
    time_limit : float
        Seconds allowed for one study.
    """

    jobs: int = 1
    scheduler: str | None = None
    resume: bool = True
    retry_failed: bool = False
    time_limit: float = 600.0


def each(function: Callable[[Any], T], tasks: Iterable[Any], how: How) -> Iterator[T]:
    """Apply a function to every task; results come as they are ready."""
    if how.jobs == 1:
        yield from map(function, tasks)
        return
    for name in THREAD_VARIABLES:  # N processes of one thread each use N cores
        os.environ.setdefault(name, "1")
    yield from Parallel(n_jobs=how.jobs, return_as="generator_unordered")(
        delayed(function)(task) for task in tasks
    )
