"""The commands on somebody's own table of features and scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cad.cli.shared import Jobs, Json, Scheduler, execution, show

if TYPE_CHECKING:
    from cad.run.tables import Columns

table_app = typer.Typer(
    no_args_is_help=True,
    help="Learn from a CSV table of features and scores, or from the tables of runs; no images.",
)
File = Annotated[
    Path, typer.Argument(help="CSV or TSV file, a row per region; or a folder of run folders.")
]
Patient = Annotated[str, typer.Option("--patient", help="Column of the patient.")]
Scores = Annotated[
    str, typer.Option("--scores", help="Columns of the readers' scores: r1,r2,r3. Runs need none.")
]
Scale = Annotated[str, typer.Option("--scale", help="likert5, likert01, percent or pirads.")]
Histology = Annotated[str | None, typer.Option("--histology", help="Column of histology.")]
IsupMin = Annotated[
    int | None, typer.Option("--isup-min", min=1, max=5, help="Histology is a grade; from here on.")
]
Ignore = Annotated[str, typer.Option("--ignore", help="Columns that are no features: a,b.")]
Learner = Annotated[
    str, typer.Option("--learner", help="Class in cad.learners, or a rival; NAME:C=10,...")
]


def _columns(
    file: Path,
    patient: str,
    scores: str,
    scale: str,
    histology: str | None,
    isup_min: int | None,
    ignore: str,
) -> Columns | None:
    from cad.base.errors import CadError
    from cad.run.tables import Columns

    if file.is_dir() and (scores or histology or ignore):
        raise CadError("a folder of runs brings its own labels: leave out --scores, --histology "
                       "and --ignore", file=file)  # fmt: skip
    if file.is_dir():
        return None
    if not scores:
        raise CadError("no column of a reader's scores", file=file, hint="name them with --scores")
    readers, ignored = (tuple(filter(None, names.split(","))) for names in (scores, ignore))
    return Columns(patient, readers, scale, histology, isup_min, ignored)


@table_app.command("validate")
def table_validate(
    file: File,
    scores: Scores = "",
    patient: Patient = "participant_id",
    scale: Scale = "likert5",
    histology: Histology = None,
    isup_min: IsupMin = None,
    ignore: Ignore = "",
    learner: Learner = "ProbabilisticEnsemble",
    folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="Of whole patients; default: each alone.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the folds.")] = 0,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Cross-validate a learner, leaving whole patients out, and compare it with other learners.

    All columns but those of patient, scores and histology and those of --ignore are features. The
    comparison is printed; nothing is written.
    """
    from cad.base.reading import parse_json
    from cad.run.execution.pool import workplace
    from cad.run.tables import validate_table

    columns = _columns(file, patient, scores, scale, histology, isup_min, ignore)
    with workplace(execution(jobs, scheduler)):
        made = validate_table(file, columns, learner, folds, seed, max(jobs, 1))
    shown = made.comparison.drop(columns=["beyond_chance"]).round(3).to_string(index=False)
    rows = parse_json(made.comparison.to_json(orient="records"))
    show({"sentence": made.sentence, "notes": made.notes, "comparison": rows}, as_json,
         lambda _: "\n".join([shown, *made.notes, made.sentence]))  # fmt: skip


@table_app.command("train")
def table_train(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write.")],
    scores: Scores = "",
    patient: Patient = "participant_id",
    scale: Scale = "likert5",
    histology: Histology = None,
    isup_min: IsupMin = None,
    ignore: Ignore = "",
    learner: Learner = "ProbabilisticEnsemble",
    as_json: Json = False,
) -> None:
    """Fit a learner to the whole table and write a model bundle.

    All columns but those of patient, scores and histology and those of --ignore are features.
    Labels come from the scores, or from histology where it is known.
    """
    from cad.run.execution.pool import workplace
    from cad.run.tables import train_table

    columns = _columns(file, patient, scores, scale, histology, isup_min, ignore)
    with workplace(execution(1)):
        bundle = train_table(file, columns, learner, out)
    show({"model": str(out), **bundle.metadata["training"]}, as_json, lambda _: f"model: {out}")


@table_app.command("predict")
def table_predict(
    file: File,
    model: Annotated[Path, typer.Option("--model", help="Model folder of cad table train.")],
    written: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write.")],
    as_json: Json = False,
) -> None:
    """Write a copy of a table with the model's probability of every row added.

    The table must have the model's feature columns.
    """
    from cad.run.tables import predict_table

    scored = predict_table(file, model, written)
    show({"rows": len(scored), "file": str(written)}, as_json,
         lambda _: f"{len(scored)} rows: {written}")  # fmt: skip
