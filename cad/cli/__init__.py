"""Define the commands: each parses its arguments, calls one function and prints the result.

A module that loads slowly is imported only in the commands that need it, so that ``--help`` answers
at once.
"""

import gc
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.processes import collect_rarely
from cad.cli import shared as common
from cad.cli.audit import audit_app
from cad.cli.cohort import cohort_app
from cad.cli.contract import contract_app
from cad.cli.model import model_app
from cad.cli.node import serve
from cad.cli.reading import reading_pages, suggest
from cad.cli.table import table_app
from cad.cli.watch import keep_night, watch_app

# Headings under which `cad --help` lists the commands.
START = "Start"
DATA = "Own data"
LEARN = "Learn"
SERVICE = "Service"
_INTERRUPTED = 130  # the exit code of Typer after Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Probability of malignancy for regions of interest in prostate multiparametric MRI. "
    "For research use only.",
)
app.callback()(common.loudness)


@door("own", "standard streams")
def main() -> None:
    """Run the command in ``sys.argv`` and end the process with its exit code.

    The code is 0 when all is done, 1 when some studies failed, and 2 after an error, such as bad
    arguments or settings.
    """
    collect_rarely()
    # A standard stream that the caller closed leaves its file number (0, 1 or 2) free. The next
    # opened file would get this number, and libraries and child processes would print into it.
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
    try:
        with common.notes_on_old_names():
            app(standalone_mode=True)
    except (CadError, OSError) as error:
        # These words are added to errors such as a full disk or a refused permission. After such an
        # error the finished files are whole, so that the user can continue.
        way_out = " (put it right and run again: finished work is kept)"
        if common.global_options.verbose:
            traceback.print_exc()
        addition = "" if isinstance(error, CadError) else way_out  # a CadError has its own hint
        common.say(f"cad: {error}{addition}", err=True)
        sys.exit(2)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            common.say(
                "cad: stopped. What was finished is kept and nothing is half written; the same "
                "command goes on from there.",
                err=True,
            )
        raise
    finally:
        gc.freeze()  # Python then ends sooner, without freeing every loaded object


@app.command(rich_help_panel=START)
def demo(
    out: common.Out = Path("out"),
    jobs: common.Jobs = 2,
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Write probabilities, reports and a table for the simulated sample cohort.

    The sample cohort comes with the program. A learner is validated on it, with the settings of the
    pipeline file demo. All results are written to the folder of --out.
    """
    from cad.base.share import shared

    options = common.execution(jobs, time_limit=time_limit, memory_limit=memory_limit)
    options = common.load_ahead(out, options, folds=True)
    from cad.run.pipeline import run_pipeline

    common.finish(run_pipeline("demo", shared("sample_data"), out, options), as_json)


@app.command(rich_help_panel=START)
def simulate(
    out: Annotated[Path, typer.Argument(help="Cohort folder to write.")],
    patients: Annotated[
        int, typer.Option("--patients", min=1, max=10**6, help="Number of patients.")
    ] = 49,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of every random draw.")
    ] = 0,
    prevalence: Annotated[
        float | None,
        typer.Option("--prevalence", help="Share of men with significant cancer, up to .73."),
    ] = None,
    readers: Annotated[
        int, typer.Option("--readers", min=1, max=100, help="Readers who score every region.")
    ] = 4,
    displacement: Annotated[
        float,
        typer.Option(
            "--displacement", min=0.0, max=15.0, help="Largest shift of ADC and DCE in slices, mm."
        ),
    ] = 0.0,
    no_gas: Annotated[
        bool, typer.Option("--no-gas", help="No gas that distorts diffusion images.")
    ] = False,
    motion: Annotated[
        float, typer.Option("--motion", min=0.0, max=20.0, help="Factor on how far men move.")
    ] = 1.0,
    blur: Annotated[
        tuple[float, float, float],
        typer.Option("--blur", help="FWHM of a blur of T2, diffusion and DCE, mm, each up to 10."),
    ] = (0.0, 0.0, 0.0),
    noise: Annotated[
        tuple[float, float, float],
        typer.Option(
            "--noise", help="SD of noise added to T2, diffusion and DCE: share of signal, up to 1."
        ),
    ] = (0.0, 0.0, 0.0),
    interpolation: Annotated[
        float,
        typer.Option(
            "--interpolation",
            min=1.0,
            max=4.0,
            help="Stored voxels for each sampled one, along each axis: correlates added noise.",
        ),
    ] = 1.0,
    jobs: common.Jobs = 1,
) -> None:
    """Write a simulated cohort of any size."""
    from cad.evidence.phantom import latent_auc
    from cad.evidence.phantom import simulate as simulate_cohort
    from cad.evidence.phantom.simulator import Variation

    variation = Variation(
        readers=readers,
        displacement_mm=displacement,
        gas=not no_gas,
        motion=motion,
        blur_mm=blur,
        noise=noise,
        interpolation=interpolation,
    )
    simulate_cohort(
        out, patients=patients, seed=seed, jobs=jobs, prevalence=prevalence, variation=variation
    )
    common.say(f"wrote {patients} simulated patients to {out}")
    try:
        common.say(f"AUC that the latent malignancy allows: {latent_auc(out):.3f}")
    except CadError as error:  # all men are of one class: there is no AUC
        common.say(str(error))


@app.command("import", rich_help_panel=DATA)
def import_command(
    source: Annotated[
        str,
        typer.Argument(help="Folder or zip of studies; with --patient an archive: HOST:PORT, URL."),
    ],
    out: Annotated[
        Path | None, typer.Argument(help="Cohort folder; not needed for --explain.")
    ] = None,
    rules: Annotated[
        str | None, typer.Option("--rules", help="Rules file, or a name in configs/import.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show series and rules; write nothing.")
    ] = False,
    new_rules: Annotated[
        Path | None,
        typer.Option("--new-rules", help="Write a rules file to start from; import nothing."),
    ] = None,
    take: Annotated[
        list[str] | None,
        typer.Option("--take", help="Decide for --new-rules: ROLE=SERIES, such as adc=12."),
    ] = None,
    patient: Annotated[
        str | None, typer.Option("--patient", help="PatientID to fetch from an archive.")
    ] = None,
    aet: common.Aet = "ANY-SCP",
    limits: common.Limits = "default",
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Turn DICOM into a cohort folder: add what is new, leave what is there.

    Studies are read from a folder, a zip file or an archive, and the rules file says which series
    is which image. Images, masks and tables are written to the cohort folder. The exit code is 1
    when a study could not be imported.
    """
    from cad.base.share import find

    rules_file = find("configs/import", rules, ".yaml") if rules else None
    options = common.execution(1, time_limit=time_limit, memory_limit=memory_limit)
    if explain:
        from cad.run.workflows.imports import explain_confined

        explanation = explain_confined(Path(source), rules_file, options)
        common.show(explanation.as_dict(), as_json, lambda _: explanation.as_text())
        return
    if new_rules is not None:
        from cad.dicom.into.explain import decisions
        from cad.run.workflows.imports import page_of, write_rules_confined

        undecided = write_rules_confined(Path(source), new_rules, decisions(take or []), options)
        page = page_of(new_rules)
        common.show(undecided, as_json, lambda _: _questions(new_rules, undecided, page))
        return
    if out is None or rules_file is None:
        raise CadError(
            "an import needs a cohort folder and --rules",
            hint="`cad import SOURCE --new-rules FILE` writes a rules file to start from, "
            "`--explain` shows one",
        )
    from cad.base.processes import use_one_thread

    use_one_thread()  # works only before numerical libraries are loaded
    from cad.run.workflows.imports import import_cohort

    common.share()
    archive = common.archive_limits(limits) if patient is not None else None
    summary = import_cohort(
        source, out, rules_file, options, patient=patient, aet=aet, limits=archive
    )
    common.show(summary.as_dict(), as_json, lambda _: summary.as_text())
    if summary.failures:
        raise typer.Exit(1)


def _questions(rules: Path, undecided: dict[str, list[str]], page: Path) -> str:
    """Return, as text, the decisions on a new rules file that only a person can make."""
    if not undecided:
        return f"{rules}: check every line, then import with it"
    lines = [f"{rules}: an import refuses it until these are decided; {page} shows them"]
    for role, candidates in undecided.items():
        if role == "diffusion":
            lines.append(
                "do the matches of diffusion take acquired images alone? and one image for each "
                "b-value? (edit the file, or --take diffusion=SERIES for one description)"
            )
        elif role == "vfa":
            lines.append(
                "do the matches of vfa take one image for each flip angle? (edit the file, or "
                "--take vfa=SERIES for one description)"
            )
        else:
            lines.append(f"which series is {role}? (--take {role}=SERIES, or edit the file)")
        lines += [f"  {candidate}" for candidate in candidates]
    return "\n".join(lines)


@app.command("check", rich_help_panel=DATA)
def check_command(
    cohort: common.CohortFolder,
    model: Annotated[
        str | None, typer.Option(help="Also name what this model will refuse to predict.")
    ] = None,
    jobs: common.Jobs = 1,
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Validate a cohort and name every problem.

    Tables, images and regions are read; problems are printed, with notes on what a study lacks. No
    file of the cohort is changed. The exit code is 1 when there is a problem.
    """
    from cad.run.workflows.check import check, check_text, model_settings

    options = common.execution(jobs, time_limit=time_limit, memory_limit=memory_limit)
    problems, notes = check(cohort, options, model_settings(model) if model else None)
    common.show(
        [str(problem) for problem in problems],
        as_json,
        lambda _: check_text(cohort, problems, notes),
    )
    if problems:
        raise typer.Exit(1)


@app.command(rich_help_panel=LEARN)
def run(
    pipeline: common.Pipeline,
    cohort: common.Cohort,
    out: common.Out,
    jobs: common.Jobs = 1,
    scheduler: common.Scheduler = None,
    no_resume: common.NoResume = False,
    retry_failed: common.RetryFailed = False,
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Run a whole pipeline: features, labels, learner, validation, report.

    The regions of a cohort are measured, their labels are made from the readers' scores, and the
    learner is validated on left-out patients. Probabilities, measures of their quality and the
    report are written to the folder of --out; no model is kept. If a run was stopped, the same
    command continues it.
    """
    options = common.execution(jobs, scheduler, no_resume, retry_failed, time_limit, memory_limit)
    options = common.load_ahead(out, options, folds=True)
    from cad.run.pipeline import run_pipeline

    common.finish(run_pipeline(pipeline, cohort, out, options), as_json)


@app.command(rich_help_panel=LEARN)
def train(
    pipeline: common.Pipeline,
    cohort: common.Cohort,
    out: common.Out,
    extend: Annotated[
        str | None, typer.Option("--extend", help="Model whose training table is added.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", help="A patient who withdrew, left out; repeat it."),
    ] = None,
    jobs: common.Jobs = 1,
    scheduler: common.Scheduler = None,
    no_resume: common.NoResume = False,
    retry_failed: common.RetryFailed = False,
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Fit a learner on all patients and write a model bundle with its validation.

    The learner is first validated on left-out patients. The bundle is the folder that holds the
    trained model; it is written to the folder of --out. The run of the validation is written to a
    folder beside it, with .validation after its name.
    """
    from cad.folders.cohort import read_cohort
    from cad.folders.cohort.without import strangers
    from cad.run.pipeline import train_model

    unknown_patients = strangers(read_cohort(cohort), without) if without else ()
    for patient in unknown_patients:
        common.say(
            f"{patient} is not in {cohort}, so --without changes nothing there: mistyped?", err=True
        )
    options = common.execution(jobs, scheduler, no_resume, retry_failed, time_limit, memory_limit)
    summary = train_model(pipeline, cohort, out, options, extends=extend, without=without or ())
    common.finish(summary, as_json)


@app.command(rich_help_panel=LEARN)
def recalibrate(
    model: Annotated[str, typer.Option("--model", help="Model folder or name.")],
    cohort: common.Cohort,
    out: common.Out,
    jobs: common.Jobs = 1,
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Fit a model's probabilities to a site's own men; 30 or more with histology are needed.

    The cohort holds these men. A new model is written to the folder of --out; the old model is not
    changed. The old model's run on the cohort is written to a folder beside it, with .before after
    its name.
    """
    from cad.run.pipeline import recalibrate_model

    options = common.execution(jobs, time_limit=time_limit, memory_limit=memory_limit)
    report = recalibrate_model(model, cohort, out, options)
    common.show(report, as_json, lambda site: "\n".join([*site["text"], f"wrote {out}"]))


@app.command(rich_help_panel=DATA)
def predict(
    cohort: common.Cohort,
    out: common.Out,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Model folder or name; repeat it for studies it cannot take."),
    ] = None,
    decision: Annotated[
        str | None, typer.Option("--decision", help="Costs: a file, or a name in configs/decision.")
    ] = None,
    probability_map: common.Map = False,
    outlines: common.Outlines = 0,
    reader_score: common.ReaderScore = None,
    transductive: Annotated[
        bool,
        typer.Option(
            "--transductive",
            help="Let each patient's regions join the fit of a semi-supervised model.",
        ),
    ] = False,
    audit: common.Audit = None,
    tell: Annotated[
        str | None,
        typer.Option("--tell", help="Command that gets new failures as JSON on standard input."),
    ] = None,
    shadow: Annotated[
        list[str] | None,
        typer.Option("--shadow", help="Model on trial: it scores all and shows nothing; repeat."),
    ] = None,
    watch: Annotated[
        Path | None,
        typer.Option("--watch", help="Folder of what models say, for cad watch; else OUT.watch."),
    ] = None,
    jobs: common.Jobs = 1,
    scheduler: common.Scheduler = None,
    no_resume: common.NoResume = False,
    retry_failed: common.RetryFailed = False,
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Write probabilities per region and reports per patient for new studies.

    Regions of the cohort are scored with trained models; each study by the first model whose
    images it has. Without --model the released models are taken, those that need more images first.
    All results are written to the folder of --out, the cohort is not changed. Of models on trial
    (--shadow) only numbers are kept, in another folder, for cad watch show.
    """
    options = common.execution(jobs, scheduler, no_resume, retry_failed, time_limit, memory_limit)
    common.load_ahead(out, options)
    from cad.run.model.released import released_models
    from cad.run.pipeline import predict_cohort
    from cad.run.stages.emit import NothingScored
    from cad.run.workflows.watch import require_apart

    models = model or released_models()
    require_apart(models, shadow or ())
    try:
        summary = predict_cohort(
            models,
            cohort,
            out,
            options,
            decision=decision,
            probability_map=probability_map,
            outlines=outlines,
            readings=reader_score or (),
            transductive=transductive,
        )
    except NothingScored as error:
        # The summary of the run is printed before the command ends with the error.
        if error.emitted is not None:
            common.announce(error.emitted, as_json, tell)
        raise
    if audit is not None:
        from cad.run.audit.entries import audit_prediction, caller

        audit_prediction(audit, out, caller())
    if shadow or watch is not None:
        place = watch or out.with_name(f"{out.name}.watch")
        keep_night(models, shadow or [], cohort, out, place, options)
    common.finish(summary, as_json, tell)


@app.command(rich_help_panel=DATA)
def acknowledge(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    study: Annotated[str, typer.Argument(help="Patient or study that failed.")],
    reason: Annotated[str, typer.Option("--reason", help="Why nothing is to be done about it.")],
) -> None:
    """Acknowledge the failures of a study: predict no longer ends with exit code 1 because of them.

    The study's present failures and the reason are kept in acknowledged.csv of the run folder. If
    the same study fails for another reason, that is a new failure.
    """
    from cad.folders.run_folder.known_failures import acknowledge as settle

    settled = settle(run, study, reason)
    common.say(f"{len(settled)} failures of {study} acknowledged")


@app.command(rich_help_panel=DATA)
def report(
    out: Annotated[Path, typer.Argument(help="Run folder.")],
    dicom: Annotated[bool, typer.Option("--dicom", help="Also write SR, SEG and maps.")] = False,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also write each man's sheet as Encapsulated PDF.")
    ] = False,
    capture: Annotated[
        bool, typer.Option("--capture", help="Also write the sheet as Secondary Capture pictures.")
    ] = False,
    language: Annotated[
        str, typer.Option("--language", help="Language of the sheet: en, de or fr.")
    ] = "en",
    fhir: Annotated[
        bool, typer.Option("--fhir", help="Also write the results as FHIR bundles.")
    ] = False,
    cohort: Annotated[
        Path | None, typer.Option("--cohort", help="Cohort of the run, for --dicom.")
    ] = None,
    send: Annotated[
        str | None,
        typer.Option("--send", help="Archive to store the DICOM objects in: HOST:PORT, or a URL."),
    ] = None,
    aet: common.Aet = "ANY-SCP",
    limits: common.Limits = "default",
    audit: common.Audit = None,
) -> None:
    """Rebuild the pages of a run; write and send DICOM results.

    The pages are always written again, into the run folder. With --dicom, --pdf, --capture or
    --send, DICOM objects are written to its folder dicom; with --fhir, FHIR bundles to its folder
    fhir. Each of these options needs --cohort. The DICOM objects of a study are a report (SR), a
    segmentation (SEG) and, if the run made one, the map of probability. --pdf and --capture add the
    man's sheet, a page for the tumour board. Only --send sends the DICOM objects to an archive;
    FHIR bundles are never sent.
    """
    from cad.base.transactions import owned, require_kind
    from cad.folders.run_folder import RUNS
    from cad.run.reports import write_report

    if not out.is_dir():
        raise CadError("no such run folder", file=out)
    require_kind(out, *RUNS.values())
    with owned(out):
        common.say(f"wrote {write_report(out)}")
        objects = dicom or pdf or capture or send is not None
        if objects or fhir:
            from cad.run.workflows.delivery import deliver

            lines, failures = deliver(
                out,
                cohort,
                send=send,
                aet=aet,
                limits=common.archive_limits(limits),
                audit=audit,
                fhir=fhir,
                objects=objects,
                pdf=pdf,
                capture=capture,
                language=language,
            )
            common.say("\n".join(lines))
            if failures:
                raise typer.Exit(1)


@app.command("compare", rich_help_panel=LEARN)
def compare_command(
    pipelines: common.Pipelines,
    cohort: common.Cohort,
    out: common.Out,
    jobs: common.Jobs = 1,
    time_limit: common.TimeLimit = 600.0,
    memory_limit: common.MemoryLimit = 8.0,
    as_json: common.Json = False,
) -> None:
    """Validate pipelines on the same folds; compare each, measure by measure, with the first.

    The comparison is printed and written to comparison.json in the folder of --out. In the same
    folder each pipeline's run gets a folder with the pipeline's name.
    """
    from cad.run.pipeline import compare_pipelines
    from cad.run.workflows.compare import comparison_table

    options = common.execution(jobs, time_limit=time_limit, memory_limit=memory_limit)
    common.show(compare_pipelines(pipelines, cohort, out, options), as_json, comparison_table)


@app.command("warm", rich_help_panel=START)
def warm_command() -> None:
    """Compile every compiled function now and cache it, so that no later command compiles.

    Compiled code is kept in numba's cache on this machine; nothing else is written.
    """
    from cad.cli.warm import warm_up

    warm_up()
    common.say("every kernel is compiled")


def _print_experiments(listed: bool) -> None:
    """Print the names of all experiments and end the command, if ``--list`` is given."""
    if listed:
        from cad.evidence.experiments import EXPERIMENTS

        common.say("\n".join(EXPERIMENTS))
        raise typer.Exit


@app.command(rich_help_panel=LEARN)
def experiment(
    name: Annotated[str, typer.Argument(help="Name of an experiment; see --list.")],
    out: common.Out,
    list_all: Annotated[
        bool,
        typer.Option("--list", callback=_print_experiments, is_eager=True, help="Print the names."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder of the paper's data, or of a cohort. Without it wang2014-uci asks OpenML.",
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, max=10**6, help="Seeds or repetitions.")
    ] = None,
    datasets: Annotated[
        str, typer.Option("--datasets", help="Data sets to use, separated by commas.")
    ] = "",
    jobs: common.Jobs = 1,
    first_seed: Annotated[
        int, typer.Option("--first-seed", min=0, max=10**6, help="Draw anew, from this seed on.")
    ] = 0,
    shuffled: Annotated[
        bool,
        typer.Option(
            "--shuffled", help="Deal the labels to other rows first: what noise would come to."
        ),
    ] = False,
) -> None:
    """Repeat an experiment, such as a table of a paper, and write a page of its results.

    The page, NAME.md, is written to the folder of --out, with its tables and figures. Results that
    were published stand beside the results of this program.
    """
    from cad.evidence.experiments import Options, run_experiment

    names = common.words_between_commas(datasets)
    options = Options(
        out=out,
        data=data,
        repeats=repeats,
        datasets=names,
        jobs=jobs,
        first_seed=first_seed,
        shuffled=shuffled,
    )
    common.say(f"wrote {run_experiment(name, options)}")


app.add_typer(table_app, name="table", rich_help_panel=LEARN)
app.add_typer(model_app, name="model", rich_help_panel=LEARN)
app.command("reading", rich_help_panel=LEARN)(reading_pages)
app.command(rich_help_panel=LEARN)(suggest)
app.command(rich_help_panel=SERVICE)(serve)
app.add_typer(watch_app, name="watch", rich_help_panel=SERVICE)
app.add_typer(contract_app, name="contract", rich_help_panel=SERVICE)
app.add_typer(cohort_app, name="cohort", rich_help_panel=SERVICE)
app.add_typer(audit_app, name="audit", rich_help_panel=SERVICE)
