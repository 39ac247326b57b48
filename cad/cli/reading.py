"""Define the commands for scoring by several readers, and for naming the regions to read next."""

from pathlib import Path
from typing import Annotated

import typer

from cad.cli import shared
from cad.cli.shared import CohortFolder, Out, say


def reading_pages(
    cohort: CohortFolder,
    out: Out,
    readers: Annotated[
        str, typer.Option("--readers", help="Reader ids, separated by commas; all by default.")
    ] = "",
    scale: Annotated[str, typer.Option("--scale", help="likert5 or pirads.")] = "likert5",
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of every order.")
    ] = 0,
    with_tool: Annotated[
        Path | None,
        typer.Option("--with-tool", help="Run whose probabilities one of two sessions shows."),
    ] = None,
    wash_out: Annotated[
        int, typer.Option("--wash-out", min=0, max=3650, help="Days between two sessions.")
    ] = 28,
    order: Annotated[
        Path | None, typer.Option("--order", help="suggestions.csv: its cases, in its order.")
    ] = None,
    outlines: Annotated[
        bool, typer.Option("--outlines", help="Let readers correct the regions' outlines.")
    ] = False,
    collect: Annotated[
        list[Path] | None, typer.Option("--collect", help="An export to merge into the cohort.")
    ] = None,
) -> None:
    """Write pages on which readers score a cohort, blinded; --collect merges what they export.

    A page for each reader and session is written to the folder of --out. With --collect no page is
    written: the readers' exported files are checked, and all readings are written to readings.tsv
    in that folder. Readings that were made without seeing the model's probabilities are also
    written to scores.tsv of the cohort.
    """
    if collect:
        from cad.hospital.reader_study.exports import collect_reading

        lines = collect_reading(cohort, out, collect)
    else:
        from cad.hospital.reader_study.study import ReadingSettings, write_reading

        ids = shared.words_between_commas(readers)
        settings = ReadingSettings(
            readers=ids, scale=scale, seed=seed, wash_out=wash_out, outlines=outlines
        )
        lines = write_reading(cohort, out, settings, with_tool, order)
    say("\n".join(lines))


def suggest(
    model: shared.Model,
    cohort: shared.Cohort,
    out: shared.Out,
    count: Annotated[int, typer.Option("--count", min=1, max=10**6, help="Regions to name.")] = 20,
    jobs: shared.Jobs = 1,
    time_limit: shared.TimeLimit = 600.0,
    memory_limit: shared.MemoryLimit = 8.0,
    as_json: shared.Json = False,
) -> None:
    """Rank regions by the value of one more reading; write the first ones to suggestions.csv.

    The cohort is scored with the model. This run and suggestions.csv are written to the folder of
    --out. The exit code is 1 when a region could not be scored.
    """
    from cad.base.reading import parse_json
    from cad.run.pipeline import suggest_next

    options = shared.execution(jobs, time_limit=time_limit, memory_limit=memory_limit)
    table, failures = suggest_next(model, cohort, out, options, count)
    text = table.to_string(index=False) if len(table) else "every region has two readings or more"
    shared.show(parse_json(table.to_json(orient="records")), as_json, lambda _: text)
    for failure in failures:
        shared.say(f"not scored: {failure.study_id} {failure.roi_id}: {failure.reason}", err=True)
    # A study that waits for its regions is no failure.
    if not all(failure.waiting for failure in failures):
        raise typer.Exit(1)
