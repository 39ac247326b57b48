"""The command that lets several readers score a cohort."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cad.cli.shared import CohortFolder, Out, say


def reading(
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
    """Write pages on which readers score a cohort, blinded; --collect merges what they export."""
    if collect:
        from cad.reader_study.exports import collect_reading

        lines = collect_reading(cohort, out, collect)
    else:
        from cad.reader_study.study import ReadingSettings, write_reading

        ids = tuple(part.strip() for part in readers.split(",") if part.strip())
        settings = ReadingSettings(ids, scale, seed, wash_out, outlines)
        lines = write_reading(cohort, out, settings, with_tool, order)
    say("\n".join(lines))
