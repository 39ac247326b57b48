"""Which regions to have read next."""

from __future__ import annotations

from typing import Annotated

import typer

from cad.cli.shared import (
    Cohort,
    Jobs,
    Json,
    MemoryLimit,
    Model,
    Out,
    TimeLimit,
    execution,
    say,
    show,
)


def suggest(
    model: Model,
    cohort: Cohort,
    out: Out,
    count: Annotated[int, typer.Option("--count", min=1, max=10**6, help="Regions to name.")] = 20,
    jobs: Jobs = 1,
    time_limit: TimeLimit = 600.0,
    memory_limit: MemoryLimit = 8.0,
    as_json: Json = False,
) -> None:
    """Rank the regions by what another reading of them is worth."""
    from cad.pipeline import suggest_next
    from cad.reading import parse_json

    options = execution(jobs, time_limit=time_limit, memory_limit=memory_limit)
    table, failures = suggest_next(model, cohort, out, options, count)
    nothing = "every region has two readings or more"
    text = table.to_string(index=False) if len(table) else nothing
    show(parse_json(table.to_json(orient="records")), as_json, lambda _: text)
    for failure in failures:
        say(f"not scored: {failure.study_id} {failure.roi_id}: {failure.reason}", err=True)
    if failures:
        raise typer.Exit(1)
