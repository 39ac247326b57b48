"""Options that several commands have, and how a command ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cad.execution.options import ExecutionOptions
    from cad.stages.emit import Emitted

Cohort = Annotated[Path, typer.Option("--cohort", help="Cohort folder.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")]
Model = Annotated[str, typer.Option("--model", help="Model folder, or a released model's name.")]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Processes on this machine.")]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", help="Dask scheduler, tcp://HOST:PORT.")
]
NoResume = Annotated[bool, typer.Option("--no-resume", help="Recompute every study.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try failed studies again.")]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", min=1, help="Seconds allowed for one study.")
]
MemoryLimit = Annotated[
    float, typer.Option("--memory-limit", min=0.5, help="Gigabytes that one study may ask for.")
]


def execution(
    jobs: int,
    scheduler: str | None = None,
    no_resume: bool = False,
    retry_failed: bool = False,
    time_limit: float = 600.0,
    memory_limit: float = 8.0,
) -> ExecutionOptions:
    """Return how a command was asked to run its job."""
    from cad.execution.options import ExecutionOptions

    return ExecutionOptions(
        jobs, scheduler, not no_resume, retry_failed, time_limit, memory_limit, True
    )


def finish(summary: Emitted, as_json: bool) -> None:
    """Print what a run found; exit with 1 when a study failed."""
    typer.echo(json.dumps(summary.as_dict(), indent=1) if as_json else summary.as_text())
    if summary.failures:
        raise typer.Exit(1)


def show(result: Any, as_json: bool, text: Callable[[Any], str] = str) -> None:
    """Print a result, as JSON or as text."""
    typer.echo(json.dumps(result, indent=1) if as_json else text(result))
