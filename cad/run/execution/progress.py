"""Show on standard error how many studies of a job are done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from cad.base.files import plain
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.task import StudyOutcome

Tell = Callable[[StudyOutcome], None]
_PLAIN_SECONDS = 10.0
_ENOUGH = 3
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
    with _progress_bar(pending) if sys.stderr.isatty() and pending else nullcontext() as show:
        count = failed = 0
        first = last = time.monotonic()

        def tell(outcome: StudyOutcome) -> None:
            nonlocal count, failed, first, last
            now = time.monotonic()
            count = count + 1
            failed = failed + (outcome.state == "failed")
            # The rate counts from the first finished study, so that the time to start the workers
            # is left out.
            first = now if count == 1 else first
            forecast = ""
            if count >= _ENOUGH:
                rate = (count - 1) / max(now - first, 1e-9)
                forecast = f", {rate:.2f} a second, {(pending - count) / rate:.0f} s to go"
            if show is not None:
                show(failed, forecast)
                return
            if outcome.status == "failed" and outcome.failures:
                reason = plain(f"{outcome.state}: {outcome.study_id}: {outcome.failures[0].reason}")
                print(reason, file=sys.stderr)
            if now - last >= _PLAIN_SECONDS or count == pending:
                print(f"{count} of {pending} studies, {failed} failed{forecast}", file=sys.stderr)
                last = now

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
