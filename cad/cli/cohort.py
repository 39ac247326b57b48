"""Define the command that takes a patient out of a cohort."""

from pathlib import Path
from typing import Annotated

import typer

from cad.cli.shared import Cohort, Json, show

cohort_app = typer.Typer(no_args_is_help=True, help="Remove patients from a cohort.")


@cohort_app.callback()
def _group() -> None:
    """Remove patients from a cohort."""


@cohort_app.command("remove")
def cohort_remove(
    patient: Annotated[str, typer.Argument(help="Participant: sub-XXX, or the source's id.")],
    cohort: Cohort,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", help="A run or reader study to rid of the patient; repeat it."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--models", help="A model that may have learned from them; repeat it."),
    ] = None,
    nodes: Annotated[
        list[Path] | None,
        typer.Option("--node", help="A stopped node to rid of the patient; repeat it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove a patient's rows, images and masks; exit with code 1 if none are found or some stay.

    The patient is removed from the cohort and from the runs, reader studies and nodes that are
    named. Models are searched and not changed. Everything that still holds the patient's data is
    printed.
    """
    from cad.hospital.node.withdrawal import NodeHome
    from cad.hospital.reader_study.withdrawal import ReadingFolder
    from cad.run.audit.withdrawal import Elsewhere, withdraw

    homes: list[Elsewhere] = [NodeHome(home) for home in nodes or ()]
    # Pages of a reader study name a patient by a code, so that a search for his label and ids would
    # not find them. In the folders of --runs, every reader study is therefore searched by
    # ReadingFolder, and not as a run.
    studies: list[Path] = []
    for folder in runs or ():
        studies += ReadingFolder.below(folder)
    homes += map(ReadingFolder, studies)
    other_runs = [folder for folder in runs or () if folder not in studies]
    outcome = withdraw(cohort, patient, other_runs, models or (), homes)
    show(outcome.as_dict(), as_json, lambda _: outcome.as_text())
    if not outcome.done:
        raise typer.Exit(1)
