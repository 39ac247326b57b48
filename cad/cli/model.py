"""Define the commands that check, show and compare trained models."""

from typing import Annotated

import typer

from cad.cli.shared import Cohort, Jobs, Json, MemoryLimit, Out, TimeLimit, execution, show

model_app = typer.Typer(no_args_is_help=True, help="Check, show and compare trained models.")


@model_app.command("verify")
def model_verify(
    model: Annotated[str, typer.Argument(help="Model folder or name.")], as_json: Json = False
) -> None:
    """Check a model's hashes and schema, and compute its reference predictions again.

    Reference predictions are stored with the model. The largest difference between them and the
    new predictions is printed. A model that fails a check ends the command with an error and exit
    code 2; nothing is written.
    """
    from cad.base.share import find
    from cad.run.model.bundle import verify_bundle

    gap = verify_bundle(find("models", model))
    show(
        {"model": model, "largest_difference": gap},
        as_json,
        lambda _: f"{model}: verified, predictions reproduce within {gap:.1g}",
    )


@model_app.command("show")
def model_show(
    model: Annotated[str, typer.Argument(help="Model folder or name.")], as_json: Json = False
) -> None:
    """Print a model's card: the page that says what the model is, and how good it is."""
    from cad.base.reading import read_text
    from cad.base.share import find
    from cad.run.model.bundle import load_bundle

    folder = find("models", model)
    # The entry `structure` says how the learner is built of its arrays; no reader needs it.
    metadata = dict(load_bundle(folder).metadata)
    metadata.pop("structure", None)
    show(metadata, as_json, lambda _: read_text(folder / "README.md"))


@model_app.command("compare")
def model_compare(
    a: Annotated[str, typer.Argument(help="Model folder or name.")],
    b: Annotated[str, typer.Argument(help="Model folder or name.")],
    cohort: Cohort,
    out: Out,
    jobs: Jobs = 1,
    time_limit: TimeLimit = 600.0,
    memory_limit: MemoryLimit = 8.0,
    as_json: Json = False,
) -> None:
    """Compare two models on one cohort: paired differences, calibration, changed decisions.

    Both models score the cohort; their runs are written to the folders a and b in the folder of
    --out. The comparison is printed and written to comparison.json in that folder.
    """
    from cad.run.model.comparison import comparison_text
    from cad.run.pipeline import compare_models

    options = execution(jobs, time_limit=time_limit, memory_limit=memory_limit)
    show(compare_models(a, b, cohort, out, options), as_json, comparison_text)
