"""Do a loop's pieces here, or in several processes where these save more than their start costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

Result = TypeVar("Result")

# Seconds of a process before its first piece: scikit-learn and the compiled kernels are loaded.
START_SECONDS = 2.5
# Seconds that the first piece may take for the same reason, in this process.
FIRST_USE_SECONDS = 1.5


def each_piece(
    function: Callable[..., Result], pieces: Iterable[tuple[Any, ...]], n_jobs: int
) -> Iterator[Result]:
    """Yield the function's results in the order of the pieces.

    A small cohort's folds take less time than processes take to start: pieces are done one after
    the other here, and what is left goes to processes once the last piece says that they will save
    more than their start. Where a piece is done changes no result.

    Parameters
    ----------
    function : callable
        Importable by name in another process.
    pieces : iterable of tuple
        Arguments of each call.
    n_jobs : int
        Processes, as joblib counts them.
    """
    waiting = list(pieces)
    # A cluster's cores, whatever n_jobs says, where joblib's loops are sent to one.
    most = get_active_backend()[0].effective_n_jobs(n_jobs)
    allowed = FIRST_USE_SECONDS
    while waiting:
        left = len(waiting) - 1
        start = time.perf_counter()
        result = function(*waiting.pop(0))
        each = time.perf_counter() - start - allowed
        yield result
        allowed = 0.0
        shared = min(most, left)
        if shared > 1 and each * left * (1 - 1 / shared) > START_SECONDS:
            rest = (delayed(function)(*piece) for piece in waiting)
            yield from Parallel(n_jobs=n_jobs, return_as="generator")(rest)
            return
