"""Define the commands that watch models at work, and the command that changes the champion.

The champion is the model whose results people see. A shadow model, also called challenger, is on
trial: it scores the same men, and its numbers are only compared with the champion's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cad.base.errors import CadError
from cad.cli.shared import Cohort, Json, Out, say, show

if TYPE_CHECKING:
    from cad.run.execution.options import ExecutionOptions

watch_app = typer.Typer(no_args_is_help=True, help="Watch models at work; change the champion.")


@watch_app.command("night")
def watch_night(
    run: Annotated[Path, typer.Argument(help="Run folder of `cad predict`.")],
    cohort: Cohort,
    out: Out,
    model: Annotated[list[str], typer.Option("--model", help="Model of the run; repeat it.")],
    shadow: Annotated[
        list[str] | None, typer.Option("--shadow", help="Model that is watched; repeat it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep the numbers of a finished prediction, and of shadow models, for every new man.

    A shadow model is on trial: it scores the same men, and nobody sees its results. Only its
    numbers are kept, in a file of the folder of --out. A man counts on the night on which he is
    first scored. A node does this by itself, and so does `cad predict --shadow`.
    """
    from cad.run.pipeline import watch_night as keep

    rows, failed = keep(model, shadow or [], cohort, run, out)
    show({"men": len(rows), "failed": failed}, as_json, lambda _: f"{len(rows)} rows in {out}")
    for reason in failed:
        say(f"failed: {reason}", err=True)
    raise typer.Exit(1 if failed else 0)


@watch_app.command("show")
def watch_show(
    folder: Annotated[Path, typer.Argument(help="A node's folder, or that of `watch night`.")],
    truth: Annotated[
        Path | None, typer.Option("--truth", help="Cohort whose rois.tsv holds histology.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Also write a page, FILE.html.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Let --page replace a file of somebody else.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print drift, and every challenger beside the champion on men of known truth.

    A challenger is a model on trial, the champion the model whose results people see. The truth is
    histology, from rois.tsv of --truth. Its rows are taken in their order, as the order in which
    histology became known. So add new rows at the end.
    """
    from cad.base.files import write_own
    from cad.folders.cohort import read_cohort
    from cad.hospital.node.pseudonyms import hidden_truths
    from cad.run.reports.watch_page import watch_page
    from cad.run.workflows.watch import read_watched, truths_of, verdict, watch_summary, watch_text

    # A node keeps the numbers in a folder of its own; `watch night` writes them to --out itself.
    folder_of_node = folder / "watch"
    watch_folder = folder_of_node if folder_of_node.is_dir() else folder
    rows = read_watched(watch_folder)
    if not rows:
        raise CadError("no night was watched here", file=folder)
    truths = truths_of(read_cohort(truth).rois) if truth is not None else []
    # In a node's folder, the files with the models' results name men and regions by pseudonyms. The
    # histology must get the same pseudonyms.
    if watch_folder != folder:
        truths = hidden_truths(folder, truths)
    summary = watch_summary(rows, truths)
    if page is not None:
        sentences = [verdict(contest) for contest in summary["contests"]]
        number_files = sorted(watch_folder.glob("*.json"))
        write_own(page, watch_page(summary, sentences).encode(), number_files, force=force)
    show(summary, as_json, watch_text)


@watch_app.command("promote")
def watch_promote(
    model: Annotated[str, typer.Argument(help="A shadow model of the node.")],
    config: Annotated[Path, typer.Option("--config", help="The node's settings file.")],
    in_place_of: Annotated[
        str | None, typer.Option("--in-place-of", help="Champion whose place it takes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a shadow model the champion of a stopped node; the champion becomes a shadow.

    The champion is the model whose results people see; a shadow is on trial. The change is written
    to the node's settings file and to its audit trail. The same command with the two models
    exchanged undoes the change.
    """
    from cad.hospital.node.champion import promote

    change = promote(config, model, in_place_of)
    show(
        change,
        as_json,
        lambda _: (
            f"champion: {', '.join(change['champion'])}; shadow: {', '.join(change['shadow'])}. "
            f"Start the node. Back: cad watch promote {change['back']}"
        ),
    )


def keep_night(
    models: Sequence[str],
    shadows: Sequence[str],
    cohort: Path,
    run: Path,
    place: Path,
    options: ExecutionOptions,
) -> None:
    """Store the numbers that models gave to new men, for ``cad watch show``.

    An error is printed, and no study fails because of it.

    Parameters
    ----------
    models, shadows : sequence of str
        Models of the run, and models on trial.
    cohort, run, place : Path
        Cohort folder, run folder and watch folder.
    options : ExecutionOptions
        Options that say how the job is run.
    """
    from cad.run.pipeline import watch_night as keep

    try:
        _, failed = keep(models, shadows, cohort, run, place, options)
    except (CadError, OSError) as error:
        say(f"nothing is kept of this night: {error}", err=True)
        return
    for reason in failed:
        say(f"shadow failed: {reason}", err=True)
