"""Say on standard error how far a job is."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cad.execution.options import ExecutionOptions
from cad.execution.task import StudyOutcome
from cad.files import plain

Tell = Callable[[StudyOutcome], None]
_PLAIN_SECONDS = 10.0


@contextmanager
def progress(pending: int, kept: int, options: ExecutionOptions) -> Iterator[Tell]:
    """Show on standard error how far a job is: a bar on a terminal, else a line now and then.

    Parameters
    ----------
    pending, kept : int
        Studies to do, and studies that need not be done again.
    options : ExecutionOptions
        ``progress`` says whether anything is shown.

    Yields
    ------
    callable
        Takes the outcome of each study as it is done.
    """
    if not options.progress:
        yield lambda outcome: None
        return
    if kept:
        print(f"{kept} studies are as they were; {pending} to do", file=sys.stderr)
    if sys.stderr.isatty() and pending:
        yield from _bar(pending)
        return
    rate = _Rate()
    last, failed = rate.start, 0

    def tell(outcome: StudyOutcome) -> None:
        nonlocal failed, last
        failed += outcome.status == "failed"
        count, per_second, now = rate.after_one_more()
        if outcome.status == "failed" and outcome.failures:
            reason = plain(f"failed: {outcome.study_id}: {outcome.failures[0].reason}")
            print(reason, file=sys.stderr)
        if now - last >= _PLAIN_SECONDS or count == pending:
            text = f"{count} of {pending} studies, {failed} failed"
            print(text + _to_go(count, pending, per_second), file=sys.stderr)
            last = now

    yield tell


_ENOUGH = 3
"""Studies from which a rate is told: the first ones also compile."""


class _Rate:
    """Count studies a second since the first came, so that starting the workers is left out."""

    def __init__(self) -> None:
        self.start = self.first = time.monotonic()
        self.count = 0

    def after_one_more(self) -> tuple[int, float, float]:
        """Return the studies so far, their rate, and the time now."""
        now = time.monotonic()
        self.count += 1
        if self.count == 1:
            self.first = now
            return 1, 1 / max(now - self.start, 1e-9), now
        return self.count, (self.count - 1) / max(now - self.first, 1e-9), now


def _to_go(count: int, pending: int, per_second: float) -> str:
    """Say the rate and the time to go; nothing after the first studies."""
    if count < _ENOUGH:
        return ""
    return f", {per_second:.2f} a second, {(pending - count) / per_second:.0f} s to go"


def _bar(pending: int) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    columns = (
        TextColumn("studies"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed{task.fields[rate]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("studies", total=pending, failed=0, rate="")
        rate, failed = _Rate(), 0

        def tell(outcome: StudyOutcome) -> None:
            nonlocal failed
            failed += outcome.status == "failed"
            count, per_second, _ = rate.after_one_more()
            told = _to_go(count, pending, per_second)
            bar.update(line, advance=1, failed=failed, rate=told)

        yield tell
