"""Hold options that several commands have, and the functions by which a command prints and ends."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cad.base.errors import CadError
from cad.base.files import plain
from cad.base.renamed import RenamedWarning
from cad.base.share import find

if TYPE_CHECKING:
    from cad.dicom.archive.settings import ArchiveLimits
    from cad.folders.run_folder.known_failures import SortedFailures
    from cad.run.execution.options import ExecutionOptions
    from cad.run.stages.emit import Emitted

_TELL_SECONDS = 60


def _check_folder_exists(folder: Path) -> Path:
    """Refuse a cohort folder that does not exist, before the command loads any slow module."""
    if not folder.is_dir():
        raise CadError("no such cohort folder", file=folder)
    return folder


def _check_pipeline_exists(name: str) -> str:
    """Return the name of a pipeline, and refuse it if the pipeline does not exist.

    This is checked before the command loads any slow module.
    """
    find("pipelines", name, ".yaml")
    return name


def _check_model_exists(name: str) -> str:
    """Refuse a model that does not exist, before the command loads any slow module."""
    find("models", name)
    return name


Cohort = Annotated[
    Path, typer.Option("--cohort", help="Cohort folder.", callback=_check_folder_exists)
]
CohortFolder = Annotated[Path, typer.Argument(help="Cohort folder.", callback=_check_folder_exists)]
Pipeline = Annotated[
    str,
    typer.Argument(help="Pipeline file, or a name in pipelines/.", callback=_check_pipeline_exists),
]
Pipelines = Annotated[
    list[str],
    typer.Argument(
        help="Pipeline files, or names.",
        callback=lambda names: list(map(_check_pipeline_exists, names)),
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")]
Model = Annotated[
    str,
    typer.Option(
        "--model", help="Model folder, or a released model's name.", callback=_check_model_exists
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results.")]

Jobs = Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Processes on this machine.")]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", help="Dask scheduler, tcp://HOST:PORT.")
]
NoResume = Annotated[bool, typer.Option("--no-resume", help="Recompute every study.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try failed studies again.")]
TimeLimit = Annotated[
    float,
    typer.Option(
        "--time-limit", min=1, max=30 * 86_400, help="Seconds that one study may compute, or wait."
    ),
]
MemoryLimit = Annotated[
    float,
    typer.Option(
        "--memory-limit", min=0.5, max=100_000, help="Gigabytes that one study may ask for."
    ),
]
Aet = Annotated[str, typer.Option("--aet", help="The archive's AE title.")]
Limits = Annotated[
    str, typer.Option("--limits", help="Archive's limits: a file, or a name in configs/archive.")
]
Audit = Annotated[
    Path | None,
    typer.Option("--audit", help="Audit trail: one line is added for each study."),
]


Map = Annotated[bool, typer.Option("--map", help="Also map the probability over the gland.")]
Outlines = Annotated[
    int,
    typer.Option(
        "--outlines",
        min=0,
        max=1000,
        help="Also say how far the belief moves with the outline, redrawn N times.",
    ),
]
ReaderScore = Annotated[
    list[str] | None,
    typer.Option("--reader-score", help="A reading to add: sub-XXX/ROI/READER=SCORE, 1 to 5."),
]


def archive_limits(name: str) -> ArchiveLimits:
    """Read the limits (time, memory and data) on requests to an image archive.

    Parameters
    ----------
    name : str
        Path of a YAML file, or the name of a file in ``configs/archive``.

    Returns
    -------
    ArchiveLimits
        The limits as the file states them; a limit that the file leaves out has its default value.
    """
    from cad.base.settings import read_settings
    from cad.dicom.archive.settings import ArchiveLimits

    return read_settings(ArchiveLimits, find("configs/archive", name, ".yaml"))


@dataclass
class GlobalOptions:
    """Hold the options ``--quiet`` and ``--verbose``, which stand before a command's name."""

    quiet: bool = False
    verbose: bool = False


global_options = GlobalOptions()


def _print_version(requested: bool) -> None:
    """Print the version and end the command, if ``--version`` is given."""
    if requested:
        from cad.base.version import __version__

        say(f"cad {__version__}")
        raise typer.Exit


def loudness(
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="No progress, results only.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", help="Also print measures, and where in the code an error arose."
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Store ``--quiet`` and ``--verbose`` in ``global_options``, which all commands read."""
    global_options.quiet = quiet
    global_options.verbose = verbose


def execution(
    jobs: int,
    scheduler: str | None = None,
    no_resume: bool = False,
    retry_failed: bool = False,
    time_limit: float = 600.0,
    memory_limit: float = 8.0,
) -> ExecutionOptions:
    """Return, as one object, the options that say how a command's work is run.

    Parameters
    ----------
    jobs : int
        Processes on this machine.
    scheduler : str or None
        Dask scheduler, ``tcp://HOST:PORT``; None for work on this machine.
    no_resume, retry_failed : bool
        Whether to compute every study again (``no_resume``), or those that failed before
        (``retry_failed``).
    time_limit, memory_limit : float
        Seconds and gigabytes that one study may take.

    Returns
    -------
    ExecutionOptions
        The given options. Progress is shown unless the global option ``--quiet`` is set.
    """
    from cad.run.execution.options import ExecutionOptions

    return ExecutionOptions(
        jobs,
        scheduler,
        resume=not no_resume,
        retry_failed=retry_failed,
        time_limit=time_limit,
        memory_limit=memory_limit,
        progress=not global_options.quiet,
    )


def load_ahead(out: Path, options: ExecutionOptions, *, folds: bool = False) -> ExecutionOptions:
    """Load the modules that a run needs, and let the processes that it starts share them.

    If an earlier run is resumed, no module is loaded ahead, because perhaps nothing is left to
    compute.

    Parameters
    ----------
    out : Path
        Run folder.
    options : ExecutionOptions
        How the job is run.
    folds : bool
        Whether learners will be fitted as well, and not only studies measured.

    Returns
    -------
    ExecutionOptions
        The same options; ``forked`` is set where the folds can run in forked processes.
    """
    from cad.base.processes import use_one_thread
    from cad.folders.run_folder import RunFolder

    # With a Dask scheduler, other machines compute.
    if options.scheduler is not None or RunFolder(out).memory.exists():
        return options
    use_one_thread()  # works only before numerical libraries are loaded
    import cad.run.execution.worker
    import cad.run.pipeline  # noqa: F401
    from cad.run.stages.ready import ready_to_fit, ready_to_measure

    ready_to_measure()
    if folds:
        ready_to_fit()
    return replace(options, forked=share(loops=folds and options.jobs > 1))


def share(*, loops: bool = False) -> bool:
    """Let the processes that a command starts share its loaded modules; return whether they do.

    Nothing is shared when a foreign program calls the command as a function, for two reasons. The
    started processes, which are copies, would also hold the foreign program's data and its changes
    to modules. Python's fork server would even run the foreign program's main module again.
    """
    from cad.base.processes import share_loaded

    # The command itself was started, and not a program that calls it.
    is_our_program = sys.argv[0].endswith(("/cad", "/cad/__main__.py", "/cad/cli/__main__.py"))
    return is_our_program and share_loaded(loops=loops)


def finish(summary: Emitted, as_json: bool, tell: str | None = None) -> None:
    """Print the summary of a run, tell of new failures; exit with code 1 when a study failed.

    Parameters
    ----------
    summary : Emitted
        Result of the run.
    as_json : bool
        Whether to print JSON instead of text.
    tell : str, optional
        Command that gets new failures as JSON on its standard input.
    """
    announce(summary, as_json, tell)
    # The exit code tells a script, as the last printed line tells a person, whether studies failed.
    # Failures that somebody has acknowledged, and studies that wait for regions, do not count.
    if summary.kinds.unsettled:
        raise typer.Exit(1)


def announce(summary: Emitted, as_json: bool, tell: str | None = None) -> None:
    """Print the summary of a run, tell a command of new failures, and remember what was told.

    Parameters
    ----------
    summary : Emitted
        Result of the run.
    as_json : bool
        Whether to print JSON instead of text.
    tell : str, optional
        Command that gets new failures as JSON on its standard input.
    """
    from cad.folders.run_folder.known_failures import remember

    if as_json:
        say(json.dumps(summary.as_dict(), indent=1))
    else:
        say(summary.as_text(global_options.verbose))
    kinds = summary.kinds
    unreported = []
    if tell and kinds.new:
        succeeded = _tell_command(tell, summary.out, kinds)
        if not succeeded:
            unreported = kinds.new  # the next run of the command reports these failures
    # Failures are recorded as told only at the end. If this command is killed before the end, the
    # next command tells of them again.
    remember(summary.out, summary.failures, unreported)


def _tell_command(command: str, out: Path, kinds: SortedFailures) -> bool:
    """Run the command of ``--tell`` with the new failures; return whether it succeeded.

    If the command of ``--tell`` fails, the reason is printed, and no error is raised.
    """
    content = json.dumps({"out": str(out), **kinds.as_dict()})
    try:
        subprocess.run(  # noqa: S603 - the user's own command, split into words, no shell
            shlex.split(command), input=content, text=True, check=True, timeout=_TELL_SECONDS
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        say(f"the command of --tell failed, and will be tried again: {error}", err=True)
        return False
    return True


def words_between_commas(text: str) -> tuple[str, ...]:
    """Split the value of an option at its commas, without spaces around words and empty words."""
    words = []
    for piece in text.split(","):
        if piece.strip():
            words.append(piece.strip())
    return tuple(words)


def say(text: str, *, err: bool = False) -> None:
    """Print text with control characters made harmless; all commands print by this function.

    With ``err``, the text goes to standard error and not to standard output.
    """
    typer.echo(plain(text), err=err)


@contextmanager
def notes_on_old_names() -> Iterator[None]:
    """Print warnings of old names as notes of the command, inside a ``with`` block.

    Other warnings are shown as before.
    """
    with warnings.catch_warnings():
        show_other = warnings.showwarning

        def show_warning(
            message: Warning | str, category: type[Warning], *where: Any, **options: Any
        ) -> None:
            if issubclass(category, RenamedWarning):
                say(f"cad: note: {message}", err=True)
            else:
                show_other(message, category, *where, **options)

        warnings.showwarning = show_warning
        yield


def show(result: Any, as_json: bool, text: Callable[[Any], str] = str) -> None:
    """Print a result as JSON, or as the text that the function ``text`` makes of it."""
    say(json.dumps(result, indent=1) if as_json else text(result))
