"""Show on standard error how many studies of a job are done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from cad.base.files import plain
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.task import StudyOutcome

Tell = Callable[[StudyOutcome], None]
# Time between two lines of text, where no bar is shown.
_SECONDS_BETWEEN_LINES = 10.0
_ENOUGH_FOR_RATE = 3
"""Number of studies that must be finished before a rate is shown. The first studies are slower,
because they also compile code.
"""


@contextmanager
def progress(pending: int, n_unchanged: int, options: ExecutionOptions) -> Iterator[Tell]:
    """Show on standard error how many studies are done: a bar on a terminal, else a line each 10 s.

    Parameters
    ----------
    pending, n_unchanged : int
        Number of studies to measure, and number of studies whose earlier result is kept.
    options : ExecutionOptions
        ``progress`` says whether anything is shown.

    Yields
    ------
    callable
        A function to call with the StudyOutcome of each study when the study is done.
    """
    if not options.progress:
        yield lambda outcome: None
        return
    if n_unchanged:
        print(f"{n_unchanged} studies are as they were; {pending} to do", file=sys.stderr)
    with_bar = sys.stderr.isatty() and pending
    with _progress_bar(pending) if with_bar else nullcontext() as move_bar:
        n_done = n_failed = 0
        first_done_at = last_line_at = time.monotonic()

        def tell(outcome: StudyOutcome) -> None:
            """Count a finished study, and show the new numbers."""
            nonlocal n_done, n_failed, first_done_at, last_line_at
            now = time.monotonic()
            n_done = n_done + 1
            n_failed = n_failed + (outcome.state == "failed")
            # The rate counts from the first finished study, so that the time to start the workers
            # is left out.
            first_done_at = now if n_done == 1 else first_done_at
            forecast = ""
            if n_done >= _ENOUGH_FOR_RATE:
                seconds = max(now - first_done_at, 1e-9)  # a clock may stand still
                rate = (n_done - 1) / seconds
                forecast = f", {rate:.2f} a second, {(pending - n_done) / rate:.0f} s to go"
            if move_bar is not None:
                move_bar(n_failed, forecast)
                return
            if outcome.status == "failed" and outcome.failures:
                reason = plain(f"{outcome.state}: {outcome.study_id}: {outcome.failures[0].reason}")
                print(reason, file=sys.stderr)
            if now - last_line_at >= _SECONDS_BETWEEN_LINES or n_done == pending:
                line = f"{n_done} of {pending} studies, {n_failed} failed{forecast}"
                print(line, file=sys.stderr)
                last_line_at = now

        yield tell


@contextmanager
def _progress_bar(pending: int) -> Iterator[Callable[[int, str], None]]:
    """Show a bar during a ``with`` block, and yield the function that moves it by one study.

    The function takes the number of failures so far and the text with the rate.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("studies"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed{task.fields[rate]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("studies", total=pending, failed=0, rate="")
        yield lambda failed, rate: bar.update(line, advance=1, failed=failed, rate=rate)
