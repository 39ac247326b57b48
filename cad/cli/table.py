"""Define the commands that work on a user's own table of features and scores."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cad.cli.shared import Jobs, Json, Out, Scheduler, execution, finish, show

if TYPE_CHECKING:
    from cad.run.tables import Columns

table_app = typer.Typer(
    no_args_is_help=True,
    help="Learn from a table of features, scores and histology, or the tables of runs; no images.",
)
File = Annotated[
    Path,
    typer.Argument(help="CSV, TSV, .xlsx or parquet, a row per region; or a folder of runs."),
]
Patient = Annotated[str, typer.Option("--patient", help="Column of the patient.")]
Scores = Annotated[
    str, typer.Option("--scores", help="Columns of the readers' scores: r1,r2 or 'reader_*'.")
]
Scale = Annotated[str, typer.Option("--scale", help="likert5, likert01, percent or pirads.")]
Histology = Annotated[
    str | None, typer.Option("--histology", help="Column of histology, or another outcome.")
]
IsupMin = Annotated[
    int | None, typer.Option("--isup-min", min=1, max=5, help="Histology is a grade; from here on.")
]
Site = Annotated[str | None, typer.Option("--site", help="Column of the patient's site.")]
Id = Annotated[str | None, typer.Option("--id", help="Column of the region's id.")]
Reader = Annotated[
    str | None, typer.Option("--reader", help="Column of the reader, where a row is one reading.")
]
Ignore = Annotated[
    str, typer.Option("--ignore", help="Columns that are no features: a,b or 'diagnostics_*'.")
]
Features = Annotated[
    str,
    typer.Option(
        "--features", help="Columns taken as features beside the others, whatever they look like."
    ),
]
Missing = Annotated[
    list[str] | None, typer.Option("--missing", help="A text for a missing value: --missing=-999.")
]
Preset = Annotated[
    str | None, typer.Option("--preset", help="Who wrote the features: pyradiomics.")
]
Separator = Annotated[
    str, typer.Option("--separator", help="comma, semicolon, tab or bar; found out by itself.")
]
Decimal = Annotated[str, typer.Option("--decimal", help="point or comma; found out by itself.")]
Encoding = Annotated[str, typer.Option("--encoding", help="Where not UTF-8 or UTF-16: cp1252 …")]
Sheet = Annotated[str, typer.Option("--sheet", help="Sheet of a workbook.")]
Pipeline = Annotated[
    str, typer.Option("--pipeline", help="Pipeline file, or a name: labels, learner, validation.")
]
Learner = Annotated[
    str, typer.Option("--learner", help="Instead of the pipeline's: a class, or a rival; NAME:C=10")
]

Folds = Annotated[
    int | None, typer.Option("--folds", min=2, help="Of whole patients; default: each alone.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the folds.")]


def _roles_of_columns(
    file: Path,
    patient: str,
    scores: str,
    scale: str,
    histology: str | None,
    isup_min: int | None,
    site: str | None,
    region: str | None,
    reader: str | None,
    ignore: str,
    features: str,
    missing: list[str] | None,
    preset: str | None,
) -> Columns | None:
    """Return what each column of a table is; None for a folder of runs, which has labels."""
    from cad.base.errors import CadError
    from cad.run.tables import Columns

    if file.is_dir():
        if scores or histology or ignore:
            raise CadError(
                "a folder of runs brings its own labels: leave out --scores, --histology and "
                "--ignore",
                file=file,
            )
        return None
    return Columns(
        patient=patient,
        scores=_columns_between_commas(scores),
        scale=scale,
        histology=histology,
        isup_min=isup_min,
        ignored=_columns_between_commas(ignore),
        site=site,
        id=region,
        reader=reader,
        features=_columns_between_commas(features),
        missing=tuple(missing or ()),
        preset=preset,
    )


def _columns_between_commas(text: str) -> tuple[str, ...]:
    """Split text at its commas; a name that contains a comma must stand in double quotes."""
    # An empty text has no row at all.
    names = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(name.strip() for name in names if name.strip())


@table_app.command("validate")
def table_validate(
    file: File,
    out: Out,
    scores: Scores = "",
    patient: Patient = "participant_id",
    scale: Scale = "likert5",
    histology: Histology = None,
    isup_min: IsupMin = None,
    site: Site = None,
    region: Id = None,
    reader: Reader = None,
    ignore: Ignore = "",
    features: Features = "",
    missing: Missing = None,
    preset: Preset = None,
    separator: Separator = "",
    decimal: Decimal = "",
    encoding: Encoding = "",
    sheet: Sheet = "",
    pipeline: Pipeline = "ensemble",
    learner: Learner = "",
    folds: Folds = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Cross-validate a learner, leaving whole patients out; write a run folder as `cad run` does.

    All columns are features but those that an option names. A column that seems to be no feature
    stops the command. The rivals (learners with which the learner is compared) are validated on the
    same folds.
    """
    from cad.run.tables import Dialect, read_regions, table_settings, validate_table

    columns = _roles_of_columns(
        file,
        patient=patient,
        scores=scores,
        scale=scale,
        histology=histology,
        isup_min=isup_min,
        site=site,
        region=region,
        reader=reader,
        ignore=ignore,
        features=features,
        missing=missing,
        preset=preset,
    )
    settings = table_settings(pipeline, learner, folds, seed)
    dialect = Dialect(separator=separator, decimal=decimal, encoding=encoding, sheet=sheet)
    regions = read_regions(file, columns, dialect)
    options = execution(jobs, scheduler)
    finish(validate_table(regions, settings, out, options, isup_min), as_json)


@table_app.command("train")
def table_train(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write.")],
    scores: Scores = "",
    patient: Patient = "participant_id",
    scale: Scale = "likert5",
    histology: Histology = None,
    isup_min: IsupMin = None,
    site: Site = None,
    region: Id = None,
    reader: Reader = None,
    ignore: Ignore = "",
    features: Features = "",
    missing: Missing = None,
    preset: Preset = None,
    separator: Separator = "",
    decimal: Decimal = "",
    encoding: Encoding = "",
    sheet: Sheet = "",
    pipeline: Pipeline = "ensemble",
    learner: Learner = "",
    folds: Folds = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Validate as `cad table validate` does, then fit to the whole table and write a model.

    All columns are features but those that an option names. Labels come from the readers' scores.
    They come from histology where there are no scores, or where the pipeline says so
    (labels.histology).
    """
    from cad.run.tables import Dialect, read_regions, table_settings, train_table

    columns = _roles_of_columns(
        file,
        patient=patient,
        scores=scores,
        scale=scale,
        histology=histology,
        isup_min=isup_min,
        site=site,
        region=region,
        reader=reader,
        ignore=ignore,
        features=features,
        missing=missing,
        preset=preset,
    )
    settings = table_settings(pipeline, learner, folds, seed)
    dialect = Dialect(separator=separator, decimal=decimal, encoding=encoding, sheet=sheet)
    regions = read_regions(file, columns, dialect)
    options = execution(jobs, scheduler)
    finish(train_table(regions, settings, out, options, isup_min), as_json)


@table_app.command("predict")
def table_predict(
    file: File,
    model: Annotated[Path, typer.Option("--model", help="Model folder of cad table train.")],
    written: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write.")],
    missing: Missing = None,
    separator: Separator = "",
    decimal: Decimal = "",
    encoding: Encoding = "",
    sheet: Sheet = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that this program did not write.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a copy of a table with the model's probability, range and decision of every row added.

    The table must have the model's feature columns. Where the table has readers' scores, the
    probability takes them into account. If the file of --out exists, it is replaced only if this
    program wrote it and nobody has changed it since, or with --force. The table itself is never
    replaced.
    """
    from cad.run.tables import Dialect, predict_table

    dialect = Dialect(separator=separator, decimal=decimal, encoding=encoding, sheet=sheet)
    scored = predict_table(
        file, model, out=written, dialect=dialect, missing=tuple(missing or ()), force=force
    )
    rows = len(scored.table)
    show(
        {"rows": rows, "file": str(written), "notes": scored.notes},
        as_json,
        lambda _: "\n".join([f"{rows} rows: {written}", *scored.notes]),
    )
