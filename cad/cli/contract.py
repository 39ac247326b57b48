"""Define the commands that a container runs on the platforms Grand Challenge and MHub.

Each platform states a contract: in which folders and files a container finds its inputs, and where
it must write its results.
"""

from pathlib import Path
from typing import Annotated

import typer

from cad.cli.shared import Json, say, show

contract_app = typer.Typer(
    no_args_is_help=True, help="Run as platforms run models: folders in, out."
)
Models = Annotated[
    list[str], typer.Option("--model", help="Model folder or name; repeat it for other images.")
]
Highest = Annotated[
    bool,
    typer.Option("--highest-region", help="A man without a probability gets his highest region's."),
]


@contract_app.command("grand-challenge")
def grand_challenge(
    source: Annotated[Path, typer.Option("--input", help="Folder of the inputs.")] = Path("/input"),
    out: Annotated[Path, typer.Option("--output", help="Folder of the results.")] = Path("/output"),
    model: Models = ["phantom-psvm-biparametric"],  # noqa: B006
    without_regions: Annotated[
        float | None,
        typer.Option("--without-regions", help="Likelihood of a study with nothing marked."),
    ] = None,
    highest: Highest = False,  # whether a man without a probability gets his highest region's
    as_json: Json = False,
) -> None:
    """Score the one study of a Grand Challenge job.

    The T2, ADC and high-b images and the regions are read as .mha files. The results are written to
    cspca-case-level-likelihood.json and images/cspca-detection-map/NAME.mha.
    """
    from cad.hospital.contracts.grand_challenge import run_grand_challenge

    scored = run_grand_challenge(source, out, model, without_regions, highest)
    # A study in which nothing is marked is not scored (None). It has the likelihood that the user
    # gave for such studies.
    likelihood = without_regions
    if scored is not None:
        likelihood = scored.likelihood
    show(
        {"likelihood": likelihood}, as_json, lambda result: f"likelihood {result['likelihood']:.3f}"
    )


@contract_app.command("mhub")
def mhub(
    source: Annotated[Path, typer.Option("--input", help="Folder of DICOM.")] = Path(
        "/app/data/input_data"
    ),
    out: Annotated[Path, typer.Option("--output", help="Folder of results.")] = Path(
        "/app/data/output_data"
    ),
    rules: Annotated[str, typer.Option("--rules", help="Rules of the import.")] = "prostatex",
    model: Models = ["phantom-psvm", "phantom-psvm-biparametric"],  # noqa: B006
    highest: Highest = False,
    as_json: Json = False,
) -> None:
    """Score every study of a folder of DICOM; write a folder of results for each.

    The exit code is 1 when a study or region has no result.
    """
    from cad.hospital.contracts.mhub import run_mhub

    count, problems = run_mhub(source, out, rules, model, highest)
    failures = [str(problem) for problem in problems]
    noun = "studies"
    if count == 1:
        noun = "study"
    show({"studies": count, "failures": failures}, as_json, lambda _: f"{count} {noun} in {out}")
    for failure in failures:
        say(f"failed: {failure}", err=True)
    raise typer.Exit(1 if failures else 0)
